"""Representations of a selection."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
from dataclasses import replace

import numpy as np

from skood.selection import select_novelties


def _selection(m=60):
    ranks = np.arange(m) % 40 + 60
    return select_novelties(ranks / 100, 99, alpha=0.1)


def test_repr():
    selection = _selection()
    assert repr(selection) == "0 of 60 selected at alpha=0.1; smallest q-value 0.99"
    without = replace(selection, qvalues=None)
    assert repr(without) == "0 of 60 selected at alpha=0.1; smallest p-value 0.6"
    few = select_novelties([0.01, 0.5, 0.02], 99, alpha=0.05)
    assert repr(few) == "2 of 3 selected at alpha=0.05; smallest q-value 0.03"
    assert repr(select_novelties([], 99)) == "0 of 0 selected at alpha=0.1"


def test_table_for_notebooks():
    names = np.array(["<b>"] * 60)
    html = replace(_selection(), detector=names)._repr_html_()
    assert html.count("<tr>") == 11  # a head and ten samples
    shown = [int(i) for i in re.findall(r"<tr><th>(\d+)</th>", html)]
    expected = np.argsort(_selection().pvalues, kind="stable")[:10]
    np.testing.assert_array_equal(shown, expected)
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert "0 of 60 selected at alpha=0.1" in html
    assert "detector" not in _selection()._repr_html_()
    assert select_novelties([], 99)._repr_html_().count("<tr>") == 1

"""Tests of the plots of the demo: that they show the numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import auc
from sklearn.utils import Bunch

from skood.benchmark._options import Options
from skood.exceptions import NotCertifiableError

pytest.importorskip("matplotlib")

from skood.benchmark import _output


@pytest.fixture
def options(digits_result):
    return Options(**digits_result.options)


def test_png_files(digits_result):
    pngs = [path for path in digits_result.files if path.suffix == ".png"]
    assert len(pngs) == 4
    for path in pngs:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_roc_curves(digits_result, options):
    figure = _output._roc(digits_result, options)
    whole, corner = figure.axes
    assert whole.get_xlim()[1] >= 1
    assert corner.get_ylim()[0] == 0.7
    for ax in figure.axes:
        lines = {line.get_label().split(" (")[0]: line for line in ax.lines}
        for row in digits_result.table[:7]:
            x, y = lines[row["method"]].get_xydata().T
            assert auc(x, y) == pytest.approx(row["auroc"])
            assert f"{row['auroc']:.4f}" in lines[row["method"]].get_label()
    assert len({(line.get_color(), line.get_linestyle()) for line in whole.lines}) == 8
    assert len(figure.legends[0].get_texts()) == 9


def test_risk_coverage_curves(digits_result, options):
    figure = _output._risk_coverage(digits_result, options)
    for row, line in zip(digits_result.table, figure.axes[0].lines[:7], strict=False):
        assert line.get_label() == f"{row['method']} (AURC = {row['aurc']:.5f})"
        assert line.get_ydata()[-1] == pytest.approx(1 - digits_result.accuracy)
    assert_allclose(figure.axes[1].get_ylim(), (0, 1.3 * (1 - digits_result.accuracy)))


def test_risk_coverage_curves_without_errors(digits_result, options):
    result = Bunch(**digits_result)
    result.y_pred = result.y_true
    with warnings.catch_warnings(action="error"):
        figure = _output._risk_coverage(result, options)
    assert figure.axes[1].get_ylim()[0] == 0


def test_score_histograms(digits_result, options):
    figure = _output._histograms(digits_result, options)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [
        f"{row['method']} (AUROC = {row['auroc']:.4f})"
        for row in digits_result.table[:7]
    ]
    assert len(figure.legends) == 1
    assert all(ax.get_legend() is None for ax in figure.axes)


def test_acceptance_shows_the_test_samples(digits_result, options):
    figure = _output._acceptance(digits_result, options)
    test = digits_result.is_test
    y_true, y_pred = digits_result.y_true[test], digits_result.y_pred[test]
    kinds = y_true == y_pred, (y_true != y_pred) & (y_true != -1), y_true == -1
    for ax, name in zip(figure.axes, ("KNN", "ViM"), strict=True):
        for line, mask in zip(ax.lines, kinds, strict=False):
            a, b = (-digits_result.scores[score][test][mask] for score in ("MSP", name))
            assert_allclose(line.get_xydata(), np.column_stack([a, b]))
        assert ax.get_xscale() == "log"


def test_bounds_that_are_not_met(digits_result, options):
    result = Bunch(**digits_result)
    error = NotCertifiableError("No rule.")
    result.reject_options = {
        "KNN+MSP": Bunch(error=error),
        "ViM+MSP": Bunch(error=error),
    }
    figure = _output._acceptance(result, options)
    assert figure.axes[0].get_title() == "KNN+MSP: infeasible"
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert "no accepted region here" in texts
    assert all("0.0 % of" in text for text in texts[:3])


def test_dollars_in_names_are_no_formulas(tmp_path):
    title = _output._title(SimpleNamespace(id_data="a$b", ood_name="$c"))
    figure = _output._new_figure(3, 1)
    text = figure.suptitle(title)
    figure.savefig(tmp_path / "title.png")
    assert text.get_text() == r"a\$b (ID) against \$c (OOD)"

"""Checked numbers of the selection of OOD samples, and the laws of small batches."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
from itertools import combinations
from pathlib import Path

import numpy as np

_VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())


def vector(name):
    """Return the input and the expected result of a checked case."""
    (case,) = (case for case in _VECTORS if case["id"] == name)
    return case["input"], case["expected"]


def orders(n, m0, m1):
    """Yield the ranks of m0 ID samples and m1 OOD samples below all others.

    All orders of n calibration and m0 ID scores, which are equally likely, with the
    first m0 ranks the ranks of the ID samples, in one order of these: the procedures
    are symmetric in samples of a kind.
    """
    for places in combinations(range(n + m0), m0):
        ranks = [1 + place - i for i, place in enumerate(places)]
        yield np.array(ranks + [1] * m1)

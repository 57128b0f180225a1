"""The small version of each paper, by its command, in which all claims hold."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _jobs
from benchmarks.reproduce._command import main


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A function that runs the small version of a paper, and returns its cells."""

    def run(paper):
        out = tmp_path_factory.mktemp(paper)
        assert main([paper, "--small", "--quiet", "--out", str(out)]) == 0
        content = json.loads((out / "cells.json").read_text())
        good = {"holds", "in favor"}
        assert {claim["verdict"] for claim in content["claims"]} <= good
        assert len(content["claims"]) == len(_jobs.load_paper(paper).claims)
        cells = pd.DataFrame(content["cells"])
        assert set(cells.verdict) == {"small"}
        return cells.set_index(["table", "row", "column"]).value.astype(float)

    return run


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_franc(small):
    values = small("franc")
    at_fpr = "selective risk at TPR .7, FPR .2"
    found = values["1"]
    for row, expected in (("A", 0.1585), ("B", 0.1419), ("C", np.nan), ("D", 0.1259)):
        np.testing.assert_allclose(found[row, at_fpr], expected, atol=5e-5)
    expected = [0.1242, 0.8782, 0.8649, 0.7575, 0.9620, 0.9543, 0.9139]
    expected += [0.8198, 0.8267, 0.8620]
    cells = [("D", "selective risk at precision .9, recall .7")]
    cells += [(row, area) for area in ("AUROC", "AUPR", "OSCR") for row in "ABC"]
    np.testing.assert_allclose([found[cell] for cell in cells], expected, atol=5e-5)
    risk = values["2"].xs("8 and 9/selective risk at common FPR", level="column")
    assert risk["digits/KNN+MSP"] < risk["digits/KNN"]
    assert risk["digits/ViM+MSP"] < risk["digits/ViM"]

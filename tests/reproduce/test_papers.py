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

    def run(paper, n_claims=None):
        out = tmp_path_factory.mktemp(paper)
        assert main([paper, "--small", "--quiet", "--out", str(out)]) == 0
        content = json.loads((out / "cells.json").read_text())
        good = {"holds", "in favor"}
        assert {claim["verdict"] for claim in content["claims"]} <= good
        n_claims = n_claims or len(_jobs.load_paper(paper).claims)
        assert len(content["claims"]) == n_claims
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


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_epn(small):
    """Ranks, seconds of epochs and the combination are of published graphs only."""
    values = small("epn", n_claims=3)
    aurocs = values["10"].xs("OS-1/OOD-AUROC", level="column")
    assert len(aurocs) == 3 * 16
    assert aurocs.min() > 50
    assert values["4"].nunique() > 5
    found = values["theorem-1"].xs("closed form", level="column")
    np.testing.assert_allclose(found, [0.63546, 0.85507, 0.99533], atol=5e-6)
    assert values["1"]["EPN-reg", "average/rank"] == pytest.approx(3.71, abs=5e-3)


def test_dsde(small):
    values = small("dsde")
    for column in ("TPR", "average/FPR", "average/AUC"):
        # one combination in four tables
        places = (("1", "DSDE"), ("2", "DSDE-KNN"), ("5", "DSDE-KNN"))
        places += (("6", "DSDE-KNN(Small)"),)
        found = [values[table, f"digits/{row}", column] for table, row in places]
        assert len(set(found)) == 1
        # rows of Table 2 are means over the networks
        singles = values["networks"].xs(column, level="column")
        for method in ("MSP", "ODIN", "Energy", "KNN"):
            rows = [row for row in singles.index if row.startswith(f"digits/{method}/")]
            assert len(rows) == 8
            np.testing.assert_allclose(
                values["2", f"digits/{method}", column], singles[rows].mean()
            )
    # all networks are the only part of their size
    rows = ("digits/8 networks, c_m 2/m", "digits/DSDE-KNN(Small)")
    for column in ("TPR", "average/FPR"):
        np.testing.assert_allclose(*(values["6", row, column] for row in rows))
    # BY is BH at a smaller level: the same order of images
    at_95 = values["5"].xs("average/FPR at 95 % TPR", level="column")
    assert at_95["digits/BY"] == at_95["digits/BH"]
    tpr = values["5"].xs("TPR", level="column")
    assert tpr["digits/Naive"] < tpr["digits/BH"] < tpr["digits/BY"]


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_openood(small):
    """Claims of digits: distances of features, and covariate shift."""
    values = small("openood", n_claims=2)
    assert values["digits"]["network", "ID/accuracy"] > 95
    for table in ("digits", "digits-fs"):
        for group, sets in (("near", "89"), ("far", ("noise", "photographs"))):
            for rate in ("FPR95", "AUROC", "AUPR-in", "AUPR-out"):
                mean, *parts = (
                    values[table].xs(f"{group}/{name}/{rate}", level="column")
                    for name in ("mean", *sets)
                )
                assert len(mean) == 17
                np.testing.assert_allclose(mean, sum(parts) / 2)

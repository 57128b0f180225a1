"""The numbered checks of the page of errata, of numbers as the papers print them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from benchmarks.reproduce import paper_table
from skood.combine import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    DOSStorey,
    Naive,
)


def printed(paper, table, row):
    """Return the printed numbers of a row by their columns."""
    cells = paper_table(paper, table)
    cells = cells[cells.row == row]
    return dict(zip(cells.column, cells.value, strict=True))


def test_1_averages_of_dsde():
    knn, msp = printed("dsde", "2", "KNN"), printed("dsde", "4", "MSP")
    sets = ["SVHN", "LSUN", "iSUN", "DTD", "Places365"]
    assert knn["average/FPR"] == knn["SVHN/FPR"] == 20.74
    assert round(np.mean([knn[f"{name}/FPR"] for name in sets]), 2) == 22.14
    assert msp["average/AUC"] == 76.69
    assert round(np.mean([msp[f"{name}/AUC"] for name in sets]), 2) == 78.5
    assert printed("dsde", "3", "DSDE")["TPR"] == 94.62
    assert printed("dsde", "4", "DSDE-KNN")["TPR"] == 94.96


def test_2_two_tables_of_mln():
    assert printed("mln", "1", "GTSRB/MLN+Ensemble")["AUROC"] == 99.89
    assert printed("mln", "3", "GTSRB/Ensemble")["AUROC/+MLN"] == 99.88


def test_3_regularized_probe_of_epn_equals_ice():
    ice = printed("epn", "4", "EPN+ICE")
    expected = {"CiteSeer": 88.23, "PubMed": 67.38, "CoauthorPhysics": 93.59}
    for graph, value in expected.items():
        table = "11" if graph == "CoauthorPhysics" else "10"
        row = printed("epn", table, f"{graph}/EPN-reg")
        assert row["OS-1/OOD-AUROC"] == ice[f"{graph}/OS-1/OOD-AUROC"] == value
    column = "AmazonPhotos/OS-1/OOD-AUROC"
    assert printed("epn", "5", "Backbone/GCN")[column] == 86.49
    for table, row in (("11", "AmazonPhotos/EPN-reg"), ("19", "AmazonPhotos/GCN")):
        assert printed("epn", table, row)["OS-1/OOD-AUROC"] == 86.49
    assert printed("epn", "4", "EPN+ICE+PCL (EPN-reg)")[column] == 86.69
    # Tables 20 and 21 do not have OGBN-Arxiv.
    graphs = {column.split("/")[0] for column in ice} - {"OGBN-Arxiv"}
    for table, row in (("20", "last"), ("21", "exp")):
        for graph in graphs:
            cells = printed("epn", table, f"{graph}/{row}")
            assert cells["OS-1/OOD-AUROC"] == ice[f"{graph}/OS-1/OOD-AUROC"]


def test_4_gpn_is_printed_twice():
    row = printed("epn", "10", "CiteSeer/GPN")
    assert row
    assert row == printed("epn", "15", "CiteSeer/GPN")


def test_5_tprs_of_uniform_pvalues():
    uniform = np.random.default_rng(0).random((400_000, 7))
    expected = {
        "Naive": (Naive(), 69.8, 69.87),
        "Bonferroni": (Bonferroni(), 95.1, 95.07),
        "BY": (BenjaminiYekutieli(), 98.1, 98.11),
        "BH": (BenjaminiHochberg(), 95.0, 94.96),
        "DSDE-KNN": (DOSStorey(c_m=2 / 7), 93.6, 94.91),
    }
    for row, (combiner, value, number) in expected.items():
        accepted = 100 * np.mean(combiner.statistic(uniform) > 0.05)
        assert accepted == pytest.approx(value, abs=0.05)
        assert printed("dsde", "5", row)["TPR"] == number

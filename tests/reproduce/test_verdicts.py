"""Tests of intervals, verdicts and claims against numbers computed by hand."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce._jobs import load_paper
from benchmarks.reproduce._page import _printed
from benchmarks.reproduce._paper import Claim, Paper, Records
from benchmarks.reproduce._verdicts import (
    Ours,
    compare_cells,
    direction,
    holm,
    last_digit,
    paired_pvalue,
    paper_error,
    summarize,
    test_claims,
    tolerance,
    verdict,
)

test_claims.__test__ = False  # a function of the program

NAN = math.nan


def over_runs(*values):
    return summarize(np.array([[v, NAN, NAN] for v in values]))


def test_interval_over_runs():
    """1, 2, 3: mean 2, sd 1, t(0.975; 2) = 4.30265."""
    ours = over_runs(1.0, 2.0, 3.0)
    half = 4.302653 / math.sqrt(3)
    assert_allclose(ours[:3], [2.0, 2.0 - half, 2.0 + half], rtol=1e-6)
    assert_allclose([ours.error, ours.spread], [1 / math.sqrt(3), 1.0])
    assert ours.n_runs == 3


def test_single_run_has_an_interval():
    ours = summarize(np.array([[0.5, 0.5 - 1.959964, 0.5 + 1.959964]]))
    assert_allclose(ours[:5], [0.5, -1.459964, 2.459964, 1.0, 1.0], rtol=1e-6)
    assert math.isnan(over_runs(0.5).error)


def test_runs_that_are_unable():
    ours = over_runs(1.0, NAN, 3.0)
    assert (ours.value, ours.n_runs) == (2.0, 2)
    assert math.isnan(over_runs(NAN).value)


def test_error_of_a_printed_value():
    assert paper_error(0.5, "standard deviation", 25) == 0.1
    assert paper_error(0.5, "standard error", 10) == 0.5
    assert math.isnan(paper_error(None, "standard error", 10))
    assert math.isnan(paper_error(0.5, None, None))
    assert math.isnan(paper_error(0.5, "standard deviation", None))


@pytest.mark.parametrize(
    "ours, error, expected",
    [
        # both errors: 1.959964 * sqrt(0.3^2 + 0.4^2)
        (Ours(0, 0, 0, 0.3, 0.9, 9), 0.4, 1.959964 * 0.5),
        # a further run: t(0.975; 3) = 3.182446, times 2 * sqrt(1 + 1/4)
        (Ours(0, 0, 0, 1.0, 2.0, 4), NAN, 3.182446 * 2.0 * math.sqrt(1.25)),
        # one run with a bootstrap interval
        (Ours(0, 0, 0, 0.1, 0.1, 1), NAN, 1.959964 * math.sqrt(2) * 0.1),
        # exact: only rounding
        (Ours(0, NAN, NAN, NAN, NAN, 1), NAN, 0.005),
        # equal runs
        (Ours(0.8, 0.8, 0.8, 1e-17, 2e-17, 3), NAN, 0.005),
        (Ours(0.8, 0.8, 0.8, 0.0, 0.0, 3), 0.2, 1.959964 * 0.2),
        # exact, with a printed error
        (Ours(0, NAN, NAN, NAN, NAN, 1), 0.2, 1.959964 * 0.2),
    ],
)
def test_tolerance(ours, error, expected):
    assert_allclose(tolerance(ours, error, 0.01), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "paper, sign, expected",
    [
        (0.80, 1, "agrees"),
        (0.81, 1, "worse"),
        (0.79, 1, "better"),
        (0.81, -1, "better"),
        (0.79, -1, "worse"),
        (0.79, 0, "differs"),
        (None, 1, "better"),
    ],
)
def test_verdict(paper, sign, expected):
    ours = Ours(0.8, NAN, NAN, NAN, NAN, 1)
    assert verdict(ours, paper, NAN, 0.01, sign) == expected


def test_verdict_where_both_are_unable():
    unable = over_runs(NAN)
    assert verdict(unable, None, NAN, 0.01, 1) == "agrees"
    assert verdict(unable, 0.5, NAN, 0.01, 1) == "worse"


@pytest.mark.parametrize(
    "column, sign",
    [
        ("notMNIST/AUROC", 1),
        ("OS-1/OOD-AUPR", 1),
        ("MNIST/selective risk at TPR .8, FPR .19", -1),
        ("SVHN/FPR", -1),
        ("FPR95", -1),
        ("CoraML/ECE", -1),
        ("CoraML/BS", -1),
        ("OGBN-Arxiv/seconds", -1),
        ("rank", -1),
        ("clean accuracy", 1),
        ("TPR", 0),
        ("nodes", 0),
        ("CoraML/OS-1", 1),
    ],
)
def test_direction_of_a_column(column, sign):
    assert direction(column) == sign


def test_last_digit():
    assert_allclose(last_digit([0.143, 0.86, 0.9]), 1e-3)
    assert_allclose(last_digit([97, 95.0]), 1.0)


def test_holm():
    """Sorted p .01, .02, .04 with 3, 2, 1: .03, .04, .04; the largest so far."""
    assert_allclose(holm([0.02, NAN, 0.04, 0.01]), [0.04, NAN, 0.04, 0.03])
    assert_allclose(holm([0.5, 0.9]), [1.0, 1.0])
    assert holm([]).shape == (0,)


def test_paired_pvalue():
    """1, 2, 3: t = 2 / (1 / sqrt 3) = 3.4641, two-sided with 2 df: 0.0741799."""
    assert_allclose(paired_pvalue(np.array([1.0, 2.0, 3.0])), 0.0741799, rtol=1e-5)
    assert math.isnan(paired_pvalue(np.array([1.0])))
    assert paired_pvalue(np.array([0.1, 0.1, 0.1])) == 0.0
    assert paired_pvalue(np.zeros(3)) == 1.0


def records_of(**columns):
    """Records of the row "MNIST/KNN" of Table 2, with values of runs by column."""
    n_runs = len(next(iter(columns.values())))
    return Records(
        [
            {
                "table": "2",
                "row": "MNIST/KNN",
                "seed": seed,
                "values": {k: [v[seed], None, None] for k, v in columns.items()},
            }
            for seed in range(n_runs)
        ]
    )


def paper_with(differences, **options):
    claims = [
        Claim(f"claim {i}", "2", lambda _, d=d: np.array(d), always=options.get("only"))
        for i, d in enumerate(differences)
    ]
    return Paper("franc", "", (), (), claims=claims)


NONE = Records([])


def test_claims_are_tested_together():
    steady, opposite = [1.0, 1.1, 0.9, 1.0], [-1.0, -1.1, -0.9, -1.0]
    unclear = [1.0, -1.0, 1.5, -1.0]
    found = test_claims(paper_with([steady, opposite, unclear]), NONE)
    assert [row["verdict"] for row in found] == ["holds", "fails", "undecided"]
    first = paired_pvalue(np.array(steady))
    assert_allclose([row["pvalue"] for row in found[:2]], 3 * first)
    small = test_claims(paper_with([steady, opposite, unclear]), NONE, small=True)
    assert [row["verdict"] for row in small] == ["in favor", "against", "in favor"]


def test_correction_changes_the_verdict():
    """Mean .875 and sd .478714: t = 3.65563 with 3 df, p = .03537, twice it of two."""
    once = [1.0, 0.5, 1.5, 0.5]
    assert_allclose(paired_pvalue(np.array(once)), 0.03537, rtol=1e-3)
    assert test_claims(paper_with([once]), NONE)[0]["verdict"] == "holds"
    both = test_claims(paper_with([once, [0.5, -0.5, 0.1, 0.2]]), NONE)
    assert both[0]["verdict"] == "undecided"
    assert_allclose(both[0]["pvalue"], 2 * 0.03537, rtol=1e-3)


def test_identities_hold_in_every_run():
    found = test_claims(paper_with([[0.0, 1.0], [3.0, -0.1]], only=True), NONE)
    assert [row["verdict"] for row in found] == ["holds", "fails"]
    assert [row["pvalue"] for row in found] == [None, None]
    # further axes are averaged, but not for an identity
    [row] = test_claims(paper_with([[[2.0, -1.0], [1.0, 1.0]]], only=True), NONE)
    assert (row["verdict"], row["mean"]) == ("fails", 0.75)


def test_claims_of_other_tables_and_without_records():
    assert test_claims(paper_with([[1.0, 2.0]]), NONE, ["1"]) == []
    absent = Paper("franc", "", (), (), claims=[Claim("", "2", lambda _: None)])
    assert test_claims(absent, NONE) == []


def test_cells_are_compared_with_the_printed_ones():
    """Table 2: KNN on MNIST against notMNIST has the AUROC .972."""
    records = records_of(
        **{"notMNIST/AUROC": [0.9, 0.91, 0.92], "notMNIST/mine": [1.0, 2.0, 3.0]}
    )
    paper = Paper("franc", "", (), ())
    cells = compare_cells(paper, records, small=False).set_index("column")
    cell = cells.loc["notMNIST/AUROC"]
    assert (cell.verdict, cell.n_runs, cell.n_unable) == ("worse", 3, 0)
    assert_allclose(cell.value, 0.91)
    assert cells.loc["notMNIST/mine"].verdict == ""
    small = compare_cells(paper, records, small=True)
    assert set(small.verdict) == {"small"} and small.paper.isna().all()
    reason = {("2", "MNIST/*", "*AUROC"): "no recipe"}
    cells = compare_cells(
        Paper("franc", "", (), (), cannot_follow=reason), records, small=False
    ).set_index("column")
    assert cells.loc["notMNIST/AUROC", ["verdict", "note"]].tolist() == [
        "cannot follow",
        "no recipe",
    ]


@pytest.mark.parametrize(
    "paper, place, expected, printed",
    [
        ("franc", ("1", "C", "selective risk at TPR .7, FPR .2"), "cannot", "unable"),
        ("franc", ("1", "A", "selective risk at TPR .7, FPR .2"), "cannot", "0.157"),
        ("franc", ("1", "D", "OSCR"), "cannot", "0.86"),
        ("franc", ("1", "D", "AUROC"), "agrees", "0.88"),
        ("franc", ("1", "A", "no such area"), "", ""),
        ("dsde", ("5", "digits/DSDE-KNN", "TPR"), "", ""),
        ("dsde", ("5", "DSDE-KNN", "TPR"), "cannot", "94.91"),
    ],
)
def test_verdict_only_where_the_paper_has_a_cell(paper, place, expected, printed):
    table, row, column = place
    record = {
        "table": table,
        "row": row,
        "seed": 0,
        "values": {column: [0.88, None, None]},
    }
    cells = compare_cells(load_paper(paper), Records([record]), small=False)
    (cell,) = cells.itertuples()
    assert cell.verdict.split(" ")[0] == expected
    assert _printed(cell) == printed
    if expected == "cannot":
        assert "sampl" in cell.note or "independent" in cell.note


def test_areas_of_franc():
    """Of the 11 areas that the densities determine, 9 or more agree as printed."""
    paper = load_paper("franc")
    records = [
        {"table": "1", "row": row.name, "seed": 0}
        | {"values": {k: [v, None, None] for k, v in row.compute().items()}}
        for row in paper.experiments[0].tables["1"](
            paper.experiments[0].prepare(None, 0)
        )
    ]
    cells = compare_cells(paper, Records(records), small=False)
    assert len(cells) == 20
    assert (cells.verdict == "cannot follow").sum() == 9
    assert (cells.verdict == "agrees").sum() >= 9


def test_spread_of_the_paper_is_used():
    """quam, Table 1: .986 with a deviation of .005 over three runs."""
    close, far = 1.959964 * 0.005 / np.sqrt(3) + np.array([-1e-5, 1e-5])
    for gap, expected in ((close, "agrees"), (far, "worse"), (-far, "better")):
        record = {"table": "1", "row": "FMNIST", "seed": 0}
        record["values"] = {"Reference/AUROC": [0.986 - gap, None, None]}
        cells = compare_cells(Paper("quam", "", (), ()), Records([record]), small=False)
        assert cells.verdict.tolist() == [expected]

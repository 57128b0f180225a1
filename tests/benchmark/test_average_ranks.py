"""Average ranks of methods, the Friedman test and the critical difference."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import friedmanchisquare

from skood.benchmark import average_ranks

COLUMNS = {"block": "data", "method": "name", "value": "auroc"}


def _table(cells):
    """Return a table in long form, in random order, of values (n_blocks, n_methods)."""
    entries = [
        {"data": i, "name": f"m{j:02d}", "auroc": value}
        for i, row in enumerate(cells)
        for j, value in enumerate(row)
    ]
    np.random.default_rng(0).shuffle(entries)
    return entries


def test_ranks_as_in_a_loop_with_ties():
    cells = np.random.default_rng(1).integers(4, size=(9, 5)).astype(float)
    ranking = average_ranks(_table(cells), **COLUMNS)
    means = []
    for j in range(5):
        ranks = [
            1 + sum(v > row[j] for v in row) + (sum(v == row[j] for v in row) - 1) / 2
            for row in cells
        ]
        means.append(sum(ranks) / 9)
    order = np.argsort(means, kind="stable")
    assert ranking.methods.tolist() == [f"m{j:02d}" for j in order]
    assert_allclose(ranking.mean_rank, np.sort(means), rtol=1e-12)
    statistic, pvalue = friedmanchisquare(*cells.T)
    assert_allclose(ranking.statistic, statistic, rtol=1e-12)
    assert_allclose(ranking.pvalue, pvalue, rtol=1e-12)
    least = average_ranks(_table(-cells), greater_is_better=False, **COLUMNS)
    assert_array_equal(least.mean_rank, ranking.mean_rank)


@pytest.mark.parametrize("n_blocks, expected", [(8, 7.0146), (40, 3.1370)])
def test_critical_difference(n_blocks, expected):
    """Quantile 3.35362 for 14 methods, by the specification."""
    cells = np.random.default_rng(0).normal(size=(n_blocks, 14))
    ranking = average_ranks(_table(cells), **COLUMNS)
    assert_allclose(ranking.critical_difference, expected, atol=1e-4)


def test_missing_results_leave_out_a_single_method():
    cells = np.array([[3.0, 2.0, 1.0], [np.nan, 2.0, 1.0], [3.0, 1.0, 2.0]])
    ranking = average_ranks(_table(cells), **COLUMNS)
    assert dict(zip(ranking.methods.tolist(), ranking.n_blocks, strict=True)) == {
        "m00": 2,
        "m01": 3,
        "m02": 3,
    }
    assert_allclose(ranking.mean_rank, [1, 2, 7 / 3])
    assert np.isnan([ranking.statistic, ranking.pvalue]).all()  # two methods are whole
    assert_allclose(ranking.critical_difference, 1.9600 / 3**0.5, atol=1e-4)
    no_row = [row for row in _table(cells) if row["auroc"] == row["auroc"]]
    again = average_ranks(no_row, **COLUMNS)
    assert_array_equal(again.mean_rank, ranking.mean_rank)


def test_a_data_frame():
    pandas = pytest.importorskip("pandas")
    cells = np.random.default_rng(2).normal(size=(4, 3))
    entries = _table(cells)
    frame = pandas.DataFrame(entries)
    actual, expected = (
        average_ranks(frame, **COLUMNS),
        average_ranks(entries, **COLUMNS),
    )
    assert_array_equal(actual.mean_rank, expected.mean_rank)
    assert actual.methods.tolist() == expected.methods.tolist()


@pytest.mark.parametrize(
    "table, message",
    [
        ([{"data": 1, "name": "a"}], "The table has no column 'auroc'"),
        ({"data": [1], "name": ["a"], "auroc": [1, 2]}, "the same length"),
        ({"data": [], "name": [], "auroc": []}, "The table has no rows"),
        (
            {"data": [1, 1], "name": ["a", "a"], "auroc": [1, 2]},
            "The method a has 2 values for the block 1. Average them first",
        ),
        (
            {"data": [1, 1], "name": ["a", "b"], "auroc": [1, np.nan]},
            "The method b has no value",
        ),
    ],
)
def test_errors(table, message):
    with pytest.raises(ValueError, match=message):
        average_ranks(table, **COLUMNS)

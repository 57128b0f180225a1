"""The studies of the QUAM paper: closed forms, coverage, the simplex and claims."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _quam_posteriors as posteriors
from benchmarks.reproduce import _quam_studies as studies
from benchmarks.reproduce._paper import Records
from benchmarks.reproduce._run import Run


def rows(name, out):
    """Return functions for the rows of a small experiment with one table."""
    (experiment,) = (one for one in studies.SMALL if one.name == name)
    parts = experiment.prepare(Run(None, out, device="cpu", small=True), 0)
    ((_, table),) = experiment.tables.items()
    return {row.name: row.compute for row in table(parts)}


def records(table, values):
    """Return records of one run: {row: {column: value}}."""
    return Records(
        [
            {
                "table": table,
                "row": row,
                "seed": 0,
                "values": {column: [v, None, None] for column, v in columns.items()},
            }
            for row, columns in values.items()
        ]
    )


def test_variance_of_importance_sampling(tmp_path):
    """Values of the specification, and half a unit of their last digits."""
    found = rows("two modes", tmp_path)
    expected = {
        "mode sd 0.5": (64.459, 5e-4),
        "mode sd 1": (2025.521, 5e-4),
        "mode sd 1.3": (1.402e12, 5e8),
        "mean 1": (0.42957, 5e-6),
        "mean 2": (13.3995, 5e-5),
        "mean 4": (2.22153e6, 5),
        "mean 5": (1.80012e10, 5e4),
        "sampling sd 0.8": (2.754e13, 5e9),
        "sampling sd 1.5": (3.35532, 5e-6),
        "sampling sd 2": (0.855035, 5e-7),
        "sampling sd 2.667": (0.576774, 5e-7),
        "sampling sd 3": (0.603588, 5e-7),
        "sampling sd 5": (1.16279, 5e-6),
    }
    for name, (value, error) in expected.items():
        assert found[name]()["N variance"] == pytest.approx(value, abs=error)
    narrow, wide = (found[f"bounds, sampling sd {sd}"]() for sd in (1, 2))
    assert narrow == pytest.approx({"N variance": 2025.521, "4 E": 8106.08}, rel=1e-5)
    expected = {"N variance": 0.855035, "4 E": 7.42014, "4 c^2": 80.431}
    assert wide == pytest.approx(expected, rel=1e-5)
    # the second integral does not exist: wide modes and narrow draws
    assert studies.asymptotic_variance(mode_sd=1.5) == np.inf


def test_coverage(tmp_path):
    """The exact coverages within three standard errors of 1,000 repetitions."""
    found = rows("two modes", tmp_path)
    values = {name: found[name]() for name in studies.DRAWS}
    for row, expected in zip(values.values(), (0.602, 0.953, 0.954), strict=True):
        error = np.sqrt(expected * (1 - expected) / 1000)
        assert row["coverage"] == pytest.approx(expected, abs=3 * error)
    (gain,) = studies.covers_too_rarely(records("fig-B.1", values))
    one, _, both = (row["coverage"] for row in values.values())
    assert gain == both - one


def test_simplex(tmp_path):
    found = {name: row() for name, row in rows("simplex", tmp_path).items()}
    corners = [found[f"corner of class {k}"]["training loss"] for k in range(3)]
    assert found["all"]["vertices"] == 15
    assert found["all"]["least"] <= min(corners) == corners[0]
    (gain,) = studies.nearest_is_cheapest(records("fig-2", found))
    assert gain == min(corners[1:]) - corners[0] > 0


def test_columns_of_the_sine():
    """Standard deviations that are known: |x|, and another that grows outside."""
    parts = posteriors.SmallSine(None, 0, variance=0.01)
    x = np.abs(parts.grid)
    parts._stds = {"HMC": x, "Laplace": x**2}
    found = parts.measure("Laplace")
    assert found["sd inside"] == pytest.approx(np.mean(x[x <= np.pi] ** 2))
    assert found["sd outside"] == pytest.approx(np.mean(x[x > np.pi] ** 2))
    assert found["Spearman to HMC"] == pytest.approx(1)
    assert found["Pearson to HMC"] == pytest.approx(np.corrcoef(x, x**2)[0, 1])


def test_claims_on_posteriors():
    sine = records(
        "fig-C.4",
        {
            f"variance {variance}/QUAM": {"sd inside": 0.5, "sd outside": outside}
            for variance, outside in ((0.01, 2.5), (0.1, 0.25))
        },
    )
    np.testing.assert_array_equal(
        posteriors.grows_outside(sine, "QUAM"), [[2.0, -0.25]]
    )
    assert posteriors.grows_outside(sine, "Laplace") is None
    moons = records(
        "fig-3",
        {
            "unit/QUAM": {"a/Spearman": 0.75, "b/Spearman": 0.5},
            "unit/Laplace": {"a/Spearman": 0.25, "b/Spearman": 0.625},
        },
    )
    np.testing.assert_array_equal(
        posteriors.is_closer(moons, "Laplace"), [[0.5, -0.125]]
    )
    assert posteriors.is_closer(moons, "MC dropout") is None

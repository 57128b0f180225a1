"""Tests of the proportion of true null hypotheses, against exact fractions."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from fractions import Fraction

import numpy as np
import pytest

from skood.stats._ranks import (
    change_point,
    change_point_proportion,
    change_point_range,
    slope_differences,
    storey_proportion,
)
from tests._loops import looped

# No division by zero, and no NaN on the way.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def _sorted_grid(rng, m, n_samples, steps=1000):
    """Sorted multiples of 1 / steps, as counts and as p-values of shape (m, n)."""
    counts = np.sort(rng.integers(0, steps + 1, (m, n_samples)), axis=0)
    return counts, counts / steps


SHARES = {Fraction(i, j) for j in range(2, 41) for i in range(1, j // 2 + 1)}


@looped("m", range(2, 41))
def test_range_against_fractions(m):
    for share in SHARES:
        first, last = math.ceil(m * share), m // 2
        if first <= last:
            assert change_point_range(m, float(share)) == (first, last)
        else:
            with pytest.raises(ValueError, match=rf"c_m in \(0, {m // 2}/{m}\]"):
                change_point_range(m, float(share))


@pytest.mark.parametrize("m", [4, 5, 7, 18, 49])
def test_default_is_two_of_all(m):
    assert change_point_range(m, None) == (2, m // 2) == change_point_range(m, 2 / m)


@pytest.mark.parametrize(
    ("m", "c_m", "message"),
    [
        (1, None, r"at least 2 detectors \(4 with c_m=None\). Got 1: use DetectorEns"),
        (1, 0.5, r"needs at least 2 detectors .*Got 1"),
        (
            2,
            None,
            r"DSDE, needs at least 4 detectors .* got 2\. Add .*"
            r"DetectorEnsemble\(detectors, BenjaminiHochberg\(\)\).*\(0, 1/2\].*0\.5",
        ),
        (3, None, r"at least 4 detectors .* got 3.*\(0, 1/3\].*most 0\.3333"),
        (7, 0.45, r"m=7 detectors c_m=0\.45 leaves none.*\(0, 3/7\].*most 0\.4285"),
    ],
)
def test_no_range(m, c_m, message):
    with pytest.raises(ValueError, match=message):
        change_point_range(m, c_m)


@pytest.mark.parametrize(("m", "c_m"), [(2, 0.5), (3, 0.3333), (7, 0.4285), (9, 0.44)])
def test_what_the_error_names_is_valid(m, c_m):
    assert change_point_range(m, c_m)[1] == m // 2


@looped("beta", [0.5, 0.8, 1.0])
@looped("m", [2, 3, 7, 18])
def test_differences_one_by_one(m, beta):
    p = np.sort(np.random.default_rng(m).random((m, 20)), axis=0)
    d = slope_differences(p, beta)
    assert d.shape == (m // 2, 20)
    for i in range(1, m // 2 + 1):
        for s in range(20):
            expected = (p[2 * i - 1, s] - 2 * p[i - 1, s]) / i**beta
            assert d[i - 1, s] == pytest.approx(expected, rel=1e-14, abs=1e-16)


@pytest.mark.parametrize(("m", "first"), [(2, 1), (5, 1), (7, 2), (18, 3), (18, 9)])
@pytest.mark.parametrize("fallback", ["bh", "argmax"])
def test_change_point_and_proportion_against_fractions(m, first, fallback):
    rng = np.random.default_rng(m)
    counts, p = _sorted_grid(rng, m, 400)
    k = change_point(p, 1.0, first, fallback)
    pi0 = change_point_proportion(p, k)
    n_unique = n_none = 0
    for s, c in enumerate(counts.T.tolist()):
        d = {
            i: Fraction(c[2 * i - 1] - 2 * c[i - 1], i)
            for i in range(first, m // 2 + 1)
        }
        best = max(d.values())
        largest = [i for i in d if d[i] == best]
        if fallback == "bh" and best <= 0:
            n_none += 1
            assert k[s] == 0
        elif len(largest) == 1:  # else rounding may choose
            n_unique += 1
            assert k[s] == largest[0]
        at = Fraction(c[k[s] - 1], 1000) if k[s] else Fraction(0)
        exact = min(1, (1 - Fraction(int(k[s]), m)) / (1 - at)) if at < 1 else 1
        assert pi0[s] == pytest.approx(float(exact), rel=1e-14)
    assert n_unique > 150
    assert (n_none > 0) == (fallback == "bh")


def test_first_of_equal_differences():
    # powers of 2 are exact: d(1) = d(2) = 1/8
    p = np.array([0, 1 / 16, 1 / 8, 3 / 8])[:, None]
    assert slope_differences(p, 1.0)[:, 0].tolist() == [1 / 16, 1 / 8]
    p[1] = 1 / 8
    p[3] = 1 / 2
    assert slope_differences(p, 1.0)[:, 0].tolist() == [1 / 8, 1 / 8]
    assert change_point(p, 1.0, 1, "bh").tolist() == [1]
    assert change_point(p, 1.0, 2, "bh").tolist() == [2]


def test_no_positive_difference():
    p = np.array([[0.3, 0.0, 1.0, 0.1]] * 3 + [[0.3, 0.0, 1.0, 0.2]])
    assert change_point(p, 1.0, 1, "bh").tolist() == [0, 0, 0, 0]
    assert change_point_proportion(p, np.zeros(4, int)).tolist() == [1, 1, 1, 1]
    # d(2) is half as negative as d(1), equal to it, half as negative, and 0
    assert change_point(p, 1.0, 1, "argmax").tolist() == [2, 1, 2, 2]


def test_proportion_where_the_change_point_is_at_one():
    p = np.array([[0.2, 1.0, 0.0], [1.0, 1.0, 0.5], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    proportions = change_point_proportion(p, np.array([2, 1, 1]))
    assert proportions.tolist() == [1.0, 1.0, 0.75]


@pytest.mark.parametrize("plus_one", [False, True])
@pytest.mark.parametrize("lam", ["0", "1/2", "3/10", "9/10"])
def test_storey_against_fractions(lam, plus_one):
    threshold, m = Fraction(lam), 6
    counts, p = _sorted_grid(np.random.default_rng(0), m, 300, steps=10)
    proportions = storey_proportion(p, float(threshold), plus_one)
    for s, c in enumerate(counts.T.tolist()):
        above = sum(Fraction(value, 10) > threshold for value in c) + plus_one
        exact = min(Fraction(1), above / (m * (1 - threshold)))
        assert proportions[s] == pytest.approx(float(exact), rel=1e-14)
    if lam in ("1/2", "9/10"):  # there are samples with nothing above
        assert (proportions.min() == 0) == (not plus_one)

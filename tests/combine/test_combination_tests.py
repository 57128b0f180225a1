"""Tests of combined p-values: against SciPy, many digits, and all closed tests."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2, norm

from skood.combine import Cauchy, Fisher, HarmonicMean, Stouffer
from skood.stats._conformal import reaches
from tests._loops import looped

# No division by zero, and no NaN on the way.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

ALL = (Fisher(), Stouffer(), HarmonicMean(), Cauchy())
each = pytest.mark.parametrize("combiner", ALL, ids=repr)


def _harmonic(p):
    m = len(p)
    factor = {1: 1.0, 2: 2.0}.get(m, math.e * math.log(max(m, 1)))
    return factor * m / math.fsum(1 / each for each in p)


def _fisher(p):
    return chi2.sf(-2 * math.fsum(math.log(each) for each in p), 2 * len(p))


def _stouffer(p):
    return norm.sf(math.fsum(norm.isf(p)) / math.sqrt(len(p)))


def _cauchy(p):
    total = math.fsum(1 / math.tan(math.pi * each) for each in p)
    return math.atan2(1, total / len(p)) / math.pi


NAIVE = {"Fisher": _fisher, "Stouffer": _stouffer, "HarmonicMean": _harmonic}
NAIVE["Cauchy"] = _cauchy


@each
@looped("m", [1, 2, 3, 7, 18])
def test_sample_by_sample(combiner, m):
    rng = np.random.default_rng(m)
    P = np.concatenate([rng.random((200, m)), rng.random((200, m)) ** 6])
    naive = NAIVE[type(combiner).__name__]
    expected = [naive(row) for row in P.tolist()]
    assert_allclose(combiner.statistic(P), expected, rtol=1e-10)


def _digits(name, p):
    """The combined p-value, with 400 digits in between."""
    mp = pytest.importorskip("mpmath").mp
    with mp.workdps(400):
        p, m = [mp.mpf(each) for each in p], len(p)
        if name == "Fisher":
            x = -sum(mp.log(each) for each in p)
            q = mp.exp(-x) * sum(x**i / mp.factorial(i) for i in range(m))
        elif name == "HarmonicMean":
            factor = m if m < 3 else mp.e * mp.log(m)
            q = factor * m / sum(1 / each for each in p)
        else:
            total = sum(mp.cot(mp.pi * each) for each in p) / m
            q = mp.atan(1 / total) / mp.pi
            q = q + 1 if q < 0 else q
        return float(q)


@pytest.mark.parametrize("name", ["Fisher", "HarmonicMean", "Cauchy"])
@looped(
    "p",
    [
        [1e-300, 0.5],
        [1e-300, 1e-8, 0.9],
        [1e-300],
        [1e-150, 1e-150],
        [1e-17, 0.3, 0.7, 0.99],
        [1 - 1e-16, 1 - 1e-15, 0.2],
        [1e-9, 1 - 1e-10],
        [0.5, 0.5 + 1e-15, 0.5 - 1e-15],
        [2.5e-308, 1.0 - 2**-53],
        [1e-3] * 18,
    ],
)
def test_many_digits(name, p):
    combiner = next(each for each in ALL if type(each).__name__ == name)
    expected = _digits(name, p)
    assert combiner.statistic([p])[0] == pytest.approx(expected, rel=1e-10, abs=1e-320)
    assert expected > 0


def test_stouffer_far_in_the_tail():
    for p in (1e-300, 1e-30, 1e-3):
        z = norm.isf(p)
        assert Stouffer().statistic([[p, 0.5, 0.5, 0.5]])[0] == pytest.approx(
            norm.sf(z / 2), rel=1e-10
        )
    assert Stouffer().statistic([[1e-12, 1 - 1e-12]])[0] == pytest.approx(0.5, abs=1e-4)


@each
@looped("p", [1e-200, 1e-20, 0.01, 0.3, 0.5, 0.8, 1 - 1e-15])
def test_closed_forms_of_equal_pvalues(combiner, p):
    q = combiner.statistic([[p] * 9])[0]
    expected = {
        "Fisher": chi2.sf(-18 * math.log(p), 18),
        "Stouffer": norm.sf(3 * norm.isf(p)),
        "HarmonicMean": math.e * math.log(9) * p,
        "Cauchy": p,  # the tests are all the same
    }
    assert q == pytest.approx(expected[type(combiner).__name__], rel=1e-9, abs=1e-320)


# ---- zeros and ones


@each
def test_a_zero_outweighs_everything(combiner):
    P = np.array([[0, 0.3, 0.9], [0, 1, 1], [0, 0, 1], [0, 0, 0], [0, 0.5, 1]])
    assert combiner.statistic(P).tolist() == [0.0] * 5
    selected = combiner.selected(P, 0.01)
    assert_array_equal(selected, P == 0)
    assert_array_equal(combiner.selected(P, 0), P == 0)


@each
def test_ones(combiner):
    P = [[1, 1, 1], [1e-300, 1, 1], [0.01, 0.9, 1]]
    q = combiner.statistic(P)
    if isinstance(combiner, (Stouffer, Cauchy)):
        assert q.tolist() == [1, 1, 1]
    else:
        naive = NAIVE[type(combiner).__name__]
        assert_allclose(q, [naive(row) for row in P], rtol=1e-10)
    assert (combiner.selected(P, 0.05).sum(axis=1) <= [0, 1, 1]).all()


@each
def test_pvalues_close_to_the_ends_count_as_the_ends(combiner):
    for row in ([0.0, 0.4, 0.7], [1.0, 0.4, 0.7], [1.0, 1.0, 1.0]):
        near = np.clip(row, 5e-324, 1 - 2**-53)
        q, limit = combiner.statistic([row, near])
        # in three normal quantiles, 1 - 2**-53 is not so close to 1
        assert q == pytest.approx(limit, abs=1e-5)


# ---- the level, and its dependence


@pytest.mark.parametrize("combiner", [Fisher(), Stouffer(), Cauchy()], ids=repr)
def test_exact_for_two_independent_detectors(combiner):
    # the midpoints of a fine grid on the square: P(q <= alpha) = alpha
    grid = (np.arange(1000) + 0.5) / 1000
    P = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    q = combiner.statistic(P)
    for alpha in (0.05, 0.2, 0.5, 0.9):
        assert np.mean(q <= alpha) == pytest.approx(alpha, abs=2e-3)


def test_factor_of_two_pvalues_is_the_smallest_that_is_valid():
    # p_2 = alpha - p_1 below alpha is the worst that two p-values can do
    alpha = 0.1
    p = alpha * (np.arange(10**5) + 0.5) / 10**5
    P = np.stack([p, alpha - p], axis=1)
    q = HarmonicMean().statistic(P)
    assert q.max() <= alpha * (1 + 1e-12)  # so P(q <= alpha) = alpha
    assert q.max() == pytest.approx(alpha, rel=1e-4)  # and a smaller factor breaks it


@pytest.mark.parametrize("m", [3, 7, 18, 60])
def test_factor_is_at_least_that_of_independent_and_equal_pvalues(m):
    rng = np.random.default_rng(m)
    independent = rng.random((40000, m))
    equal = np.repeat(rng.random((40000, 1)), m, axis=1)
    for P in (independent, equal):
        q = HarmonicMean().statistic(P)
        for alpha in (0.01, 0.05, 0.2):
            assert np.mean(q <= alpha) <= alpha + 3 * math.sqrt(alpha / 40000)


# ---- closed testing


def _closed(combiner, row, alpha):
    """Members for which every set that they are in is rejected."""
    m = len(row)
    selected = [True] * m
    for size in range(1, m + 1):
        for members in combinations(range(m), size):
            q = combiner.statistic([[row[j] for j in members]])[0]
            if not reaches(q, alpha):
                for j in members:
                    selected[j] = False
    return selected


@each
@looped("alpha", [0.05, 0.3, 1.0, 2.0])
@looped("m", [1, 2, 3, 5])
def test_all_sets_of_members(combiner, m, alpha):
    rng = np.random.default_rng(m)
    P = np.concatenate(
        [
            rng.random((12, m)) ** 4,
            rng.choice([0, 1e-300, 0.001, 0.02, 0.05, 0.6, 1], (12, m)),
        ]
    )
    expected = [_closed(combiner, row, alpha) for row in P.tolist()]
    assert_array_equal(combiner.selected(P, alpha), expected)


@each
def test_seven_members(combiner):
    P = np.random.default_rng(0).random((6, 7)) ** np.array([9, 9, 6, 6, 3, 1, 1])
    expected = np.array([_closed(combiner, row, 0.1) for row in P.tolist()])
    assert_array_equal(combiner.selected(P, 0.1), expected)
    assert 0 < expected.sum() < expected.size


@each
def test_selected_detectors_are_among_the_rejecting(combiner):
    rng = np.random.default_rng(1)
    P = rng.random((4000, 7)) ** rng.integers(1, 4, (4000, 1))
    rejected = reaches(combiner.statistic(P), 0.05)
    named = combiner.selected(P, 0.05)
    assert not (named.any(axis=1) & ~rejected).any()
    assert (P[named] <= 0.05).all()
    # many small objections reject a sample without naming a member
    assert (rejected & ~named.any(axis=1)).any()


def test_smaller_level_at_the_critical_value():
    # p-values whose sum of evidence is exactly the critical one
    for m in (1, 2, 5):
        P = np.full((1, m), 0.02)
        for combiner in ALL:
            level = float(combiner.statistic(P)[0])
            assert combiner.selected(P, max(level, 0.02)).all()
            assert not combiner.selected(P, 0.02 * (1 - 1e-9)).any()

"""Tests of combiners against loops over single samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from fractions import Fraction
from math import ceil, fsum

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skood.combine import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    DOSStorey,
    Naive,
    Storey,
    Vote,
)
from skood.stats._conformal import reaches
from tests._loops import looped
from tests.combine._combiners import ALL, ONE_BY_ONE, STEP_UP, mixed_pvalues

# No division by zero, and no NaN on the way.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

each_step_up = pytest.mark.parametrize("combiner", STEP_UP, ids=repr)


def _pi0(combiner, p):
    """The share of true null hypotheses, of sorted p-values of one sample."""
    m = len(p)
    if isinstance(combiner, Storey):
        above = sum(each > combiner.lam for each in p) + combiner.plus_one
        return min(1.0, above / (m * (1 - combiner.lam)))
    if not isinstance(combiner, DOSStorey):
        return 1.0
    best, k = -np.inf, 0
    for i in range(ceil(m * combiner.c_m - 1e-9), m // 2 + 1):
        d = (p[2 * i - 1] - 2 * p[i - 1]) / i**combiner.beta
        if d > best:
            best, k = d, i
    if (best <= 0 and combiner.fallback == "bh") or p[k - 1] == 1:
        return 1.0
    return min(1.0, (1 - k / m) / (1 - p[k - 1]))


def _factor(combiner, p):
    """What p_(k) / k is multiplied by."""
    m = len(p)
    if isinstance(combiner, BenjaminiYekutieli):
        return m * fsum(1 / i for i in range(1, m + 1))
    return m * _pi0(combiner, p)


# ---- one class after the other, sample by sample


@each_step_up
@looped("m", [2, 3, 4, 7, 18])
def test_step_up_sample_by_sample(combiner, m):
    P = mixed_pvalues(np.random.default_rng(m), 400, m)
    q, selected = combiner.statistic(P), combiner.selected(P, 0.1)
    assert q.dtype == np.float64
    assert selected.dtype == bool
    for s, row in enumerate(P.tolist()):
        p = sorted(row)
        factor = _factor(combiner, p)
        scaled = [factor * p[k - 1] / k for k in range(1, m + 1)]
        assert q[s] == pytest.approx(min(scaled), rel=1e-12, abs=0)
        k_hat = max([k for k in range(1, m + 1) if reaches(scaled[k - 1], 0.1)] + [0])
        largest = p[k_hat - 1] if k_hat else -1
        assert selected[s].tolist() == [each <= largest for each in row]


@pytest.mark.parametrize("m", [1, 2, 7, 18])
def test_samples_are_independent(m):
    P = mixed_pvalues(np.random.default_rng(m), 400, m)
    for combiner, factor in ((Bonferroni(), m), (Naive(), 1)):
        q, selected = combiner.statistic(P), combiner.selected(P, 0.1)
        assert_allclose(q, factor * P.min(axis=1), rtol=1e-15)
        assert_array_equal(selected, reaches(P * factor, 0.1))
    for share in ("1/100", "1/7", "1/3", "1/2", "6/10", "1"):
        combiner, s = Vote(float(Fraction(share))), Fraction(share)
        position = max(1, ceil(s * m))
        expected = [sorted(row)[position - 1] for row in P.tolist()]
        assert_array_equal(combiner.statistic(P), expected)
        assert_array_equal(combiner.selected(P, 0.1), reaches(P, 0.1))


@pytest.mark.parametrize(
    ("share", "m", "position"),
    [(0.28, 25, 7), (0.56, 50, 28), (0.6, 5, 3), (1e-12, 25, 1), (1, 25, 25)],
)
def test_votes_that_are_needed_whatever_rounding(share, m, position):
    P = np.arange(1, m + 1)[None] / 100
    assert Vote(share).statistic(P) == position / 100


@pytest.mark.parametrize(
    "combiner", [s for s in STEP_UP if hasattr(s, "pi0")], ids=repr
)
@looped("m", [2, 7, 18])
def test_share_of_true_null_hypotheses(combiner, m):
    P = mixed_pvalues(np.random.default_rng(m), 400, m)
    pi0 = combiner.pi0(P)
    expected = [_pi0(combiner, sorted(row)) for row in P.tolist()]
    assert_allclose(pi0, expected, rtol=1e-14)
    assert pi0.dtype == np.float64
    assert pi0.min() >= 0
    assert pi0.max() == 1
    q = pi0 * BenjaminiHochberg().statistic(P)
    assert_allclose(combiner.statistic(P), q, rtol=1e-12)


def test_who_estimates_the_share():
    assert [hasattr(each, "pi0") for each in ALL] == [False] * 2 + [True] * 4 + [
        False
    ] * 8


@pytest.mark.parametrize("m", [4, 7, 18])
def test_change_points_and_differences(m):
    combiner, P = DOSStorey(0.7), np.random.default_rng(m).random((200, m)) ** 2
    d, k = combiner.dos(P), combiner.change_point(P)
    assert d.shape == (200, m // 2)
    assert k.dtype.kind == "i"
    p = np.sort(P, axis=1)
    assert np.isnan(d[:, 0]).all()
    for i in range(2, m // 2 + 1):
        expected = (p[:, 2 * i - 1] - 2 * p[:, i - 1]) / i**0.7
        assert_allclose(d[:, i - 1], expected, rtol=1e-12, atol=1e-16)
    positive = np.nanmax(d, axis=1) > 0
    assert positive.all() == (m == 18)
    assert_array_equal(k, np.where(positive, np.nanargmax(d, axis=1) + 1, 0))
    literal = DOSStorey(0.7, fallback="argmax").change_point(P)
    assert_array_equal(literal, np.nanargmax(d, axis=1) + 1)


def test_dos_storey_is_not_monotone():
    # a smaller p-value moves the change point from 3 to none
    P = [
        [0.02, 0.03, 0.04, 0.3, 0.4, 0.8, 0.9],
        [0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.9],
    ]
    combiner = DOSStorey()
    q = combiner.statistic(P)
    assert combiner.change_point(P).tolist() == [3, 0]
    assert q[0] < 0.06 < q[1] < 0.09
    assert (np.diff(BenjaminiHochberg().statistic(P)) < 0).all()


@pytest.mark.parametrize(
    "combiner", [c for c in ALL if not hasattr(c, "pi0")], ids=repr
)
def test_others_are_monotone(combiner):
    rng = np.random.default_rng(0)
    P = mixed_pvalues(rng, 2000, 7)
    raised = P + rng.choice([0, 0, 0.5, 1], P.shape) * (1 - P)
    q, larger = combiner.statistic(P), combiner.statistic(raised)
    assert (larger >= q * (1 - 1e-12)).all()
    assert np.mean(larger > q) > 0.2
    fewer = combiner.selected(np.maximum(P, raised), 0.2).sum(axis=1)
    assert (fewer <= combiner.selected(P, 0.2).sum(axis=1)).all()


def test_storey_may_reject_without_any_small_pvalue():
    P = [[0.5, 0.4, 0.45, 0.3]]
    assert Storey(0.5).statistic(P) == 0
    assert Storey(0.5).selected(P, 0.001).all()
    assert Storey(0.5, plus_one=True).statistic(P) == pytest.approx(0.25)


# ---- a statistic that equals the level, mathematically


def test_bonferroni_at_a_level_that_rounding_misses():
    """3 x .1 exceeds .3 in floating point."""
    P = [[0.1, 0.5, 0.9]]
    assert Bonferroni().selected(P, alpha=0.3).tolist() == [[True, False, False]]
    assert Vote(1 / 3).selected([[0.1 + 0.2, 0.5, 0.9]], alpha=0.3)[0, 0]


@pytest.mark.parametrize("combiner", [*STEP_UP, *ONE_BY_ONE], ids=repr)
@looped("m", [2, 7, 18])
@looped("alpha", [0.01, 0.05, 0.1, 0.3, 1.5])
def test_rejected_iff_a_member_is_selected(combiner, m, alpha):
    P = mixed_pvalues(np.random.default_rng(m), 2000, m)
    q = combiner.statistic(P)
    named = combiner.selected(P, alpha).any(axis=1)
    if isinstance(combiner, Vote):
        assert (named | ~reaches(q, alpha)).all()
    else:
        assert_array_equal(named, reaches(q, alpha))


@looped(("n", "m"), [(139, 7), (359, 18), (79, 4)])
@pytest.mark.parametrize(
    "combiner", [Bonferroni(), BenjaminiHochberg(), DOSStorey(), Storey()], ids=repr
)
def test_single_detector_at_the_smallest_conformal_pvalue(combiner, n, m):
    # m / (n + 1) is the level, and m / n is more
    P = np.array([[1 / (n + 1)] + [1.0] * (m - 1), [1 / n] + [1.0] * (m - 1)])
    assert reaches(combiner.statistic(P), 0.05).tolist() == [True, False]
    selected = combiner.selected(P, 0.05)
    assert selected.tolist() == [[True] + [False] * (m - 1), [False] * m]


@pytest.mark.parametrize("alpha", ["1/20", "1/10", "3/10"])
def test_levels_against_fractions(alpha):
    # p-values on a grid, where many statistics equal the level
    level, m, n = Fraction(alpha), 7, 139
    counts = np.random.default_rng(0).integers(1, 60, (3000, m)) ** 2 // 25 + 1
    equal = 0
    expected = np.zeros(counts.shape, dtype=bool)
    for s, row in enumerate(counts.tolist()):
        ranked = sorted(row)
        q = [Fraction(m * ranked[k], (n + 1) * (k + 1)) for k in range(m)]
        equal += level in q
        passed = [k for k in range(m) if q[k] <= level]
        largest = ranked[passed[-1]] if passed else 0
        expected[s] = [each <= largest for each in row]
    assert equal > 10
    selected = BenjaminiHochberg().selected(counts / (n + 1), float(level))
    assert_array_equal(selected, expected)


# ---- parameters


@pytest.mark.parametrize(
    ("combiner", "message"),
    [
        (
            DOSStorey(beta=0.4),
            r"'beta' parameter of DOSStorey .* range \[0\.5, 1\.?0?\]",
        ),
        (DOSStorey(beta=1.1), r"'beta' parameter of DOSStorey .* Got 1\.1 instead"),
        (
            DOSStorey(c_m=0.6),
            r"'c_m' parameter of DOSStorey .* \(0\.?0?, 0\.5\] or None",
        ),
        (DOSStorey(c_m=0), "'c_m' parameter of DOSStorey .* Got 0 instead"),
        (
            DOSStorey(fallback="no"),
            "'fallback' parameter of DOSStorey .* Got 'no' inst",
        ),
        (Storey(lam=1), r"'lam' parameter of Storey .* range \[0\.?0?, 1\.?0?\)"),
        (Storey(plus_one="yes"), "'plus_one' parameter of Storey .* Got 'yes' instead"),
        (Vote(share=0), r"'share' parameter of Vote .* range \(0\.?0?, 1\.?0?\]"),
    ],
    ids=repr,
)
def test_invalid_parameters(combiner, message):
    names = ("statistic", "selected", "pi0", "change_point", "dos")
    for method in (
        getattr(combiner, name) for name in names if hasattr(combiner, name)
    ):
        with pytest.raises(ValueError, match=message):
            method(np.full((2, 7), 0.3))


def test_too_few_detectors_for_a_change_point():
    combiner = DOSStorey(c_m=0.4)
    for method in (combiner.statistic, combiner.selected, combiner.pi0, combiner.dos):
        message = r"m=3 detectors .* none. Pass c_m in \(0, 1"
        with pytest.raises(ValueError, match=message):
            method(np.full((2, 3), 0.3))

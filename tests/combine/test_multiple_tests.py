"""Tests of combiners against loops over single samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings
from fractions import Fraction
from math import ceil, fsum

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skood.combine import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    DetectorEnsemble,
    DOSStorey,
    Fisher,
    HarmonicMean,
    Naive,
    Storey,
    Stouffer,
    Vote,
    conformal_pvalues,
    min_calibration_size,
)
from skood.detectors import KNN, Mahalanobis
from skood.exceptions import SkoodWarning
from skood.metrics import auroc, fpr_at_tpr
from skood.stats._conformal import reaches
from skood.stats._ranks import change_point_range
from tests._loops import looped
from tests.combine._combiners import ALL, ONE_BY_ONE, STEP_UP, mixed_pvalues

# No division by zero, and no NaN on the way.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

each_step_up = pytest.mark.parametrize("combiner", STEP_UP, ids=repr)


def _pi0(combiner, p):
    """The fraction of true null hypotheses, of sorted p-values of one sample."""
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
        (Vote(fraction=0), r"'fraction' parameter of Vote .* range \(0\.?0?, 1\.?0?\]"),
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


@pytest.fixture(params=[1, 2, 7, 18])
def P(request):
    rng = np.random.default_rng(request.param)
    return np.concatenate(
        [
            rng.random((60, request.param)) ** 3,
            rng.integers(1, 140, (60, request.param)) / 140,
        ]
    )


@pytest.mark.parametrize(
    ("combiner", "method"), [(BenjaminiHochberg(), "bh"), (BenjaminiYekutieli(), "by")]
)
def test_scipy_false_discovery_control(combiner, method, P):
    q = np.minimum(combiner.statistic(P), 1)
    for row, statistic, selected in zip(P, q, combiner.selected(P, 0.2), strict=True):
        adjusted = stats.false_discovery_control(row, method=method)
        assert statistic == pytest.approx(adjusted.min(), rel=1e-12)
        assert selected.tolist() == (adjusted <= 0.2 + 1e-12).tolist()


@pytest.mark.parametrize(
    ("combiner", "method"), [(Fisher(), "fisher"), (Stouffer(), "stouffer")]
)
def test_scipy_combine_pvalues(combiner, method, P):
    expected = [stats.combine_pvalues(row, method=method)[1] for row in P]
    assert_allclose(combiner.statistic(P), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("combiner", "method"),
    [
        (BenjaminiHochberg(), "fdr_bh"),
        (BenjaminiYekutieli(), "fdr_by"),
        (Bonferroni(), "bonferroni"),
    ],
)
def test_statsmodels(combiner, method, P):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    q = np.minimum(combiner.statistic(P), 1)
    for row, statistic, selected in zip(P, q, combiner.selected(P, 0.2), strict=True):
        _, adjusted, _, _ = multitest.multipletests(row, 0.2, method)
        assert statistic == pytest.approx(adjusted.min(), rel=1e-12)
        assert selected.tolist() == (adjusted <= 0.2 + 1e-12).tolist()


# p, d(2), d(3), k, pi0, Simes' statistic, number of selected members at 0.05, equation
# 15 as it is printed
DSDE = {
    "B-dsde-typical": (
        [0.5, 0.001, 0.7, 0.03, 0.9, 0.008, 0.2],
        (0.092, 0.21333333333333335),
        (3, 0.5891016200294551, 0.007, 3, 0.5542857142857143),
    ),
    "B-dsde-rescued_by_pi0": (
        [0.02, 0.024, 0.026, 0.5, 0.6, 0.8, 0.9],
        (0.226, 0.24933333333333332),
        (3, 0.5866823115283074, 0.06066666666666667, 3, 0.5565714285714286),
    ),
    "B-dsde-no_positive_dos": (
        [0.1, 0.2, 0.21, 0.22, 0.23, 0.24, 0.25],
        (-0.09, -0.06),
        (0, 1.0, 0.25, 0, None),
    ),
    "B-dsde-ties_all_equal": ([0.3] * 7, (-0.15, -0.1), (0, 1.0, 0.3, 0, None)),
    "B-dsde-zeros": ([0.0] * 7, (0.0, 0.0), (0, 1.0, 0.0, 7, None)),
    "B-dsde-ones": ([1.0] * 7, (-0.5, -1 / 3), (0, 1.0, 1.0, 0, None)),
}


@pytest.mark.parametrize("name", DSDE)
def test_dsde(name):
    p, d, (k, pi0, simes, n_selected, product) = DSDE[name]
    scaled = pi0 * 7 * np.sort(p) / np.arange(1, 8)
    q_values = np.minimum.accumulate(scaled[::-1])[::-1].tolist()
    for combiner in (DOSStorey(beta=1, c_m=2 / 7), DOSStorey()):
        actual = combiner.dos([p])[0]
        assert np.isnan(actual[0])
        assert actual[1:] == pytest.approx(d, abs=1e-12)
        assert combiner.change_point([p]).tolist() == [k]
        assert combiner.pi0([p]) == pytest.approx(pi0, abs=1e-12)
        q = combiner.statistic([p])
        assert q == pytest.approx(q_values[0], abs=1e-12)
        assert (q[0] <= 0.05) == (n_selected > 0)
        assert combiner.selected([p], 0.05).sum() == n_selected
        assert BenjaminiHochberg().statistic([p]) == pytest.approx(simes, abs=1e-12)
        for level in q_values:  # the members up to which q is at most the level
            count = sum(q_value <= level for q_value in q_values)
            assert combiner.selected([p], level).sum() == count
            fewer = combiner.selected([p], level * (1 - 1e-9)).sum()
            assert fewer < count or level == 0
        if product is not None:
            printed = (1 - k / 7) * (1 - sorted(p)[k - 1])
            assert printed == pytest.approx(product, abs=1e-12)


def test_index_ranges():
    # B-cm-range
    pairs = [(7, 2 / 7), (18, 2 / 15), (15, 2 / 15), (6, 1 / 3), (2, 1 / 2), (4, 1 / 4)]
    ranges = [(2, 3), (3, 9), (2, 7), (2, 3), (1, 1), (1, 2)]
    assert [change_point_range(*pair) for pair in pairs] == ranges
    for (m, c_m), (first, last) in zip(pairs, ranges, strict=True):
        looked_at = ~np.isnan(DOSStorey(c_m=c_m).dos(np.full((1, m), 0.5))[0])
        assert (np.flatnonzero(looked_at) + 1).tolist() == [*range(first, last + 1)]
    for m, c_m in ((1, 0.5), (7, 0.5), (5, 0.45)):
        with pytest.raises(ValueError, match="change point"):
            DOSStorey(c_m=c_m).statistic(np.full((1, m), 0.5))


def test_conformal_pvalues():
    # B-conformal-p
    calibration, scores = [1, 2, 2, 3, 5], [0, 1, 2, 2.5, 5, 6]
    assert conformal_pvalues(scores, calibration) == pytest.approx(
        [1 / 6, 1 / 3, 2 / 3, 2 / 3, 1, 1], abs=1e-12
    )
    assert conformal_pvalues(scores, calibration, method="ecdf") == pytest.approx(
        [0, 0.2, 0.6, 0.6, 1, 1], abs=1e-12
    )


def test_resolution():
    # B-resolution
    assert [min_calibration_size(m, 0.05) for m in (7, 18)] == [139, 359]


def test_ranks_that_are_the_same():
    # B-auc-identities, and the same of the FPR at a TPR
    rng = np.random.default_rng(0)
    P, y = rng.random((3000, 7)), np.repeat([0, -1], 1500)
    P[y == -1, :3] **= 4
    ranked = np.sort(P, axis=1)

    def quality(q):
        return auroc(y, q), fpr_at_tpr(y, q)

    naive = quality(Naive().statistic(P))
    assert naive == quality(Bonferroni().statistic(P)) == quality(ranked[:, 0])
    bh = quality(BenjaminiHochberg().statistic(P))
    assert bh == quality(BenjaminiYekutieli().statistic(P))
    for share in (0.5, 0.6, 1.0):
        position = math.ceil(7 * share)
        vote = quality(Vote(share).statistic(P))
        assert vote == quality(ranked[:, position - 1])
    factor_free = quality(1 / np.sum(1 / ranked, axis=1))
    assert quality(HarmonicMean().statistic(P)) == factor_free
    different = {naive, bh, vote, factor_free, quality(Storey().statistic(P))}
    assert len(different) == 5
    assert all(0.55 < each[0] < 0.98 for each in different)


GRID = [i / 100 for i in range(96)]

# independent uniform p-values; 40,000 draws of the specification
ACCEPTED = {
    7: {0.5: 0.920, "bootstrap": 0.607, "smoother": 0.576},
    18: {0.5: 0.940, "bootstrap": 0.863, "smoother": 0.785},
}

few = pytest.mark.filterwarnings("ignore:lam=")


def _estimate(p, lam, plus_one=False):
    return (sum(each > lam for each in p) + plus_one) / (len(p) * (1 - lam))


def _bootstrap(p, grid, plus_one):
    m = len(p)
    curve = [_estimate(p, lam, plus_one) for lam in grid]
    low = np.quantile(curve, 0.1)
    errors = []
    for lam, estimate in zip(grid, curve, strict=True):
        w = sum(each > lam for each in p)
        variance = w / (m**2 * (1 - lam) ** 2) * (1 - w / m)
        errors.append(variance + (estimate - low) ** 2)
    best = min(errors)
    at = next(i for i, e in enumerate(errors) if e <= best + 1e-9)
    return min(1.0, curve[at])


def _smoother(p, grid, plus_one):
    curve = [_estimate(p, lam, plus_one) for lam in grid]
    value = np.polyval(np.polyfit(grid, curve, 3), grid[-1])
    return min(max(value, 0.0), 1.0)


@few
@pytest.mark.parametrize("plus_one", [False, True])
@pytest.mark.parametrize("m", [1, 2, 7, 18])
def test_thresholds_sample_by_sample(m, plus_one):
    P = mixed_pvalues(np.random.default_rng(m), 80, m)
    array = [0.1, 0.5, 0.3]
    curve = Storey("bootstrap", plus_one).pi0_curve(P)
    bootstrap = Storey("bootstrap", plus_one).pi0(P)
    smoother = Storey("smoother", plus_one).pi0(P)
    of_array = Storey(array, plus_one).pi0(P)
    for s, p in enumerate(P.tolist()):
        expected = [_estimate(p, lam, plus_one) for lam in GRID]
        assert_allclose(curve[s], expected, rtol=1e-12)
        assert_allclose(bootstrap[s], _bootstrap(p, GRID, plus_one), rtol=1e-9)
        assert_allclose(smoother[s], _smoother(p, GRID, plus_one), atol=1e-8)
        assert_allclose(of_array[s], _bootstrap(p, sorted(array), plus_one), rtol=1e-9)


@few
def test_the_variance_is_that_of_bootstrap_samples():
    p = np.array([0.001, 0.01, 0.02, 0.3, 0.5, 0.7, 0.9])
    draws = np.random.default_rng(0).choice(p, size=(200_000, 7))
    for lam, w in ((0.02, 4), (0.4, 3), (0.8, 1)):
        estimates = (draws > lam).sum(axis=1) / (7 * (1 - lam))
        expected = w / (49 * (1 - lam) ** 2) * (1 - w / 7)
        assert_allclose(estimates.var(), expected, rtol=0.02)
    assert_allclose(Storey("bootstrap").pi0([p]), 0.58309, atol=5e-6)
    assert_allclose(Storey(0.5).pi0([p]), 0.57143, atol=5e-6)
    assert_allclose(Storey(0.5).pi0_curve([p]), [[4 / 7]], rtol=1e-12)


@few
@pytest.mark.parametrize(
    "m, lam, accepted", [(m, *pair) for m in ACCEPTED for pair in ACCEPTED[m].items()]
)
def test_share_of_accepted_samples(m, lam, accepted):
    P = np.random.default_rng(1).random((20_000, m))
    share = np.mean(Storey(lam).statistic(P) > 0.05)
    assert abs(share - accepted) < 3 * np.sqrt(accepted * (1 - accepted) * 1.5 / 20_000)


@few
@pytest.mark.slow
@pytest.mark.parametrize("m", ACCEPTED)
def test_table_of_the_user_guide(m):
    """300,000 draws: standard errors of 0.0009 or less."""
    least = {7: 0.277, 18: 0.551}[m]  # with the smallest estimate of the grid
    expected = {**ACCEPTED[m], "smallest": least, "bh": {7: 0.950, 18: 0.949}[m]}
    counts = dict.fromkeys(expected, 0)
    for seed in range(6):
        P = np.random.default_rng(seed).random((50_000, m))
        bh = BenjaminiHochberg().statistic(P)
        pi0 = np.minimum(Storey("bootstrap").pi0_curve(P).min(axis=1), 1)
        ratios = np.sort(P, axis=1) * m / np.arange(1, m + 1)
        levels = {"bh": bh, "smallest": np.minimum(pi0 * ratios.min(axis=1), 1)}
        for lam in (0.5, "bootstrap", "smoother"):
            levels[lam] = Storey(lam).statistic(P)
        for name, level in levels.items():
            counts[name] += np.sum(level > 0.05)
    for name, accepted in expected.items():
        assert abs(counts[name] / 300_000 - accepted) < 0.002, name


@few
@pytest.mark.parametrize("lam", ["bootstrap", "smoother", [0.2, 0.6]])
def test_a_sample_alone_is_the_same_sample(lam):
    P = mixed_pvalues(np.random.default_rng(0), 60, 9)
    combiner = Storey(lam)
    alone = [combiner.statistic(P[[i]])[0] for i in range(len(P))]
    assert_array_equal(combiner.statistic(P), alone)
    assert_array_equal(combiner.statistic(P[:, ::-1]), alone)


def test_few_detectors_warn_and_many_do_not():
    P = np.random.default_rng(0).random((5, 99))
    message = "lam='bootstrap' estimates the threshold from 99 p-values"
    with pytest.warns(SkoodWarning, match=message) as caught:
        Storey("bootstrap").statistic(P)
    assert len(caught) == 1
    with warnings.catch_warnings(action="error"):
        Storey("bootstrap").pi0_curve(P)
        Storey("smoother").statistic(np.hstack([P, P]))
        Storey(0.4).statistic(P)


def test_in_an_ensemble():
    """The conformal level holds for any combiner."""
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(1000, 3)), rng.normal(size=(4000, 3))
    members = [("knn", KNN()), ("mahalanobis", Mahalanobis())]
    with pytest.warns(SkoodWarning, match="from 2 p-values"):
        ensemble = DetectorEnsemble(
            members, Storey("bootstrap", plus_one=True), random_state=0
        ).fit(X)
        accepted = np.mean(ensemble.predict(X_new) == 1)
    # 100 calibration samples of the level: sd .022
    assert 0.95 - 3 * 0.022 < accepted < 1


@pytest.mark.parametrize(
    "lam, message",
    [
        ("median", "'lam' parameter of Storey"),
        ([0.5, 1.0], r"lam must be thresholds in \[0, 1\)"),
        ([-0.1], r"lam must be thresholds in \[0, 1\)"),
        ([[0.5]], r"lam must be thresholds in \[0, 1\) of shape \(n,\)"),
    ],
)
def test_errors_of_thresholds(lam, message):
    for method in ("statistic", "pi0", "pi0_curve"):
        with pytest.raises(ValueError, match=message):
            getattr(Storey(lam), method)(np.full((2, 100), 0.3))

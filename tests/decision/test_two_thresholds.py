"""Two thresholds from ID samples: loops over thresholds, levels on new data, errors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom

from skood.exceptions import InfeasibleError, NotCertifiableError, SkoodWarning
from skood.rejection import (
    TwoThresholds,
    accept,
    accept_proba,
    certify,
    min_accepted_id,
    solve,
)


def _samples(n, seed=0, *, ties=False):
    """Return dependent scores with heavy tails, or few values, and 0/1 losses."""
    rng = np.random.default_rng(seed)
    common = rng.standard_t(2, size=n)
    a, b = common + rng.standard_t(2, size=(2, n))
    if ties:
        a, b = np.clip(np.rint(a), -2, 3), np.clip(np.rint(b), -1, 2)
    wrong = rng.uniform(size=n) < 0.3 / (1 + np.exp(-a))
    return a, b, wrong.astype(float)


def _rejected(point, a, b):
    """Return the shares of samples rejected by the OOD score and by the risk score."""
    return np.mean(b > point.ood_max), np.mean(a > point.lam * point.scales[0])


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("ood, risk", [(0.1, 0.2), (0.05, 0.0), (0.0, 0.3)])
def test_thresholds_are_conformal_quantiles(ood, risk, ties):
    a, b, wrong = _samples(300, ties=ties)
    point = solve(TwoThresholds(ood, risk), a, b, wrong, None, None)
    expected = np.ones(300, bool)
    for score, share in ((a, risk), (b, ood)):
        if share:
            rank = math.ceil(301 * (1 - share) - 1e-9)
            expected &= score <= np.sort(score)[rank - 1]
    assert_array_equal(accept(point, a, b), expected)
    assert_allclose(point.tpr, expected.mean())
    assert_allclose(point.risk, wrong[expected].mean())
    assert point.tpr >= 1 - ood - risk


@pytest.mark.parametrize("ties", [False, True])
def test_largest_coverage_at_a_bounded_selective_risk(ties):
    a, b, wrong = _samples(400, seed=1, ties=ties)
    rule = TwoThresholds(0.1, 0.12, criterion="selective_risk")
    point = solve(rule, a, b, wrong, None, None)
    within = b <= np.sort(b)[math.ceil(401 * 0.9 - 1e-9) - 1]
    best = 0
    for threshold in a:  # the naive loop
        kept = within & (a <= threshold)
        if wrong[kept].mean() <= 0.12:
            best = max(best, kept.sum())
    assert_allclose(point.tpr, best / 400)
    assert point.risk <= 0.12
    assert_allclose(point.objective, -point.tpr)


def test_rates_of_ood_samples():
    a, b, wrong = _samples(200)
    a_ood, b_ood, _ = _samples(100, seed=9)
    b_ood = b_ood + 3
    point = solve(TwoThresholds(0.1, 0.1), a, b, wrong, a_ood, b_ood)
    kept = (b_ood <= point.ood_max) & (a_ood <= point.lam * point.scales[0])
    assert_allclose(point.fpr, kept.mean())
    assert_array_equal(accept_proba(point, a_ood, b_ood), kept.astype(float))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [19, 60, 200])
def test_marginal_level(n, ties):
    """Rejected shares of new samples, on average over draws of the given samples."""
    rule, shares = TwoThresholds(0.05, 0.1), []
    new = _samples(20000, seed=10**6, ties=ties)
    for seed in range(400):
        point = solve(rule, *_samples(n, seed, ties=ties), None, None)
        shares.append(_rejected(point, *new[:2]))
    mean = np.mean(shares, axis=0)
    error = np.std(shares, axis=0) / 20 + 1 / math.sqrt(4 * 20000)
    assert (mean <= [0.05, 0.1] + 3 * error).all()
    if not ties:  # not conservative either
        assert (mean >= [0.05, 0.1] - 3 * error - 1 / (n + 1)).all()


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("guarantee", ["high_probability", "ltt"])
def test_certified_shares(guarantee, ties):
    """Both bounds together are broken in at most a share delta of 400 draws."""
    rule, delta, broken = TwoThresholds(0.1, 0.2), 0.2, 0
    new = _samples(50000, seed=10**6, ties=ties)
    for seed in range(400):
        point = certify(
            rule,
            *_samples(150, seed, ties=ties),
            None,
            None,
            guarantee=guarantee,
            delta=delta,
        )
        ood, risk = _rejected(point, *new[:2])
        broken += ood > 0.1 or risk > 0.2
    assert broken <= binom.isf(1e-4, 400, delta)
    if not ties:  # a level that is never reached would be no test of it
        assert broken > 400 * delta / 8


@pytest.mark.parametrize("ties", [False, True])
def test_certified_selective_risk(ties):
    rule = TwoThresholds(0.1, 0.15, criterion="selective_risk")
    new = _samples(50000, seed=10**6, ties=ties)
    broken = refused = 0
    for seed in range(150):
        try:
            point = certify(
                rule,
                *_samples(250, seed, ties=ties),
                None,
                None,
                delta=0.2,
                random_state=seed,
            )
        except NotCertifiableError:
            refused += 1
            continue
        kept = accept(point, *new[:2])
        ood, _ = _rejected(point, *new[:2])
        broken += ood > 0.1 or new[2][kept].mean() > 0.15
    assert refused < 75  # it certifies more often than not
    assert broken <= binom.isf(1e-4, 150, 0.2)


def test_expectation_is_the_conformal_quantile():
    rows = (*_samples(200), None, None)
    rule = TwoThresholds(0.1, 0.1)
    point = certify(rule, *rows, guarantee="expectation")
    assert point == solve(rule, *rows)
    with pytest.raises(TypeError, match="cannot be bounded with guarantee='expect"):
        certify(
            TwoThresholds(criterion="selective_risk"), *rows, guarantee="expectation"
        )


def test_too_few_samples():
    a, b, wrong = _samples(18)
    with pytest.warns(SkoodWarning, match="18 ID samples .* 0.05 .*: 19 are needed"):
        point = solve(TwoThresholds(0.05, 0.1), a, b, wrong, None, None)
    assert point.ood_max == math.inf
    assert point.lam < math.inf
    with pytest.raises(NotCertifiableError, match="18 ID samples are too few") as error:
        certify(TwoThresholds(0.05, 0.0), a, b, wrong, None, None, delta=0.1)
    needed = error.value.n_id_needed
    assert min_accepted_id(needed, 0.95, 0.1) is not None
    assert min_accepted_id(needed - 1, 0.95, 0.1) is None


def test_risk_that_no_threshold_has():
    a, b, _ = _samples(100)
    rule = TwoThresholds(0.1, 0.2, criterion="selective_risk")
    with pytest.raises(InfeasibleError, match=r"selective_risk.*on 100 ID"):
        solve(rule, a, b, np.ones(100), None, None)
    with pytest.raises(NotCertifiableError, match="do not show a selective risk"):
        certify(rule, a, b, np.ones(100), None, None)
    with pytest.raises(ValueError, match=r"losses in \[0, max_loss=1\.0\], got 3"):
        certify(rule, a, b, 3 * np.ones(100), None, None)


def test_samples_needed_for_a_selective_risk():
    """Twice as many samples with the same rates until the risk is certified."""
    a, b, wrong = _samples(120)
    rule = TwoThresholds(0.1, 0.15, criterion="selective_risk")
    with pytest.raises(NotCertifiableError, match="do not show") as error:
        certify(rule, a, b, wrong, None, None, random_state=0)
    times = error.value.n_id_needed // 120
    assert times >= 2
    rows = (np.tile(one, 4 * times) for one in (a, b, wrong))
    assert certify(rule, *rows, None, None, random_state=0).risk <= 0.15


def test_bad_parameters():
    rows = (*_samples(100), None, None)
    with pytest.raises(ValueError, match=r"ood \+ risk must be below 1, got 0.5 \+ 0."):
        solve(TwoThresholds(0.5, 0.5), *rows)
    with pytest.raises(ValueError, match="The 'ood' parameter of TwoThresholds"):
        solve(TwoThresholds(1.0), *rows)
    with pytest.raises(ValueError, match="The 'criterion' parameter of TwoThres"):
        solve(TwoThresholds(criterion="coverage"), *rows)
    with pytest.raises(ValueError, match="TwoThresholds requires two scores"):
        solve(TwoThresholds(), rows[0], None, rows[2], None, None)


def test_infinite_scores_are_rejected():
    a, b, wrong = _samples(200)
    a[:3], b[3:6] = math.inf, math.inf
    point = solve(TwoThresholds(0.1, 0.1), a, b, wrong, None, None)
    assert not accept(point, a, b)[:6].any()
    assert math.isfinite(point.ood_max)


def test_bounds_are_attacked_by_constant_scores():
    """All samples are tied: a threshold cannot reject any of them."""
    ones = np.ones(100)
    point = solve(TwoThresholds(0.1, 0.1), ones, ones, np.zeros(100), None, None)
    assert accept(point, ones, ones).all()
    near = ones * (1 + 1e-9)  # rounding in another batch
    assert accept(point, near, near).all()
    assert not accept(point, [1.0], [1.1]).any()

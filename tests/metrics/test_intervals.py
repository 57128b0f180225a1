"""Tests of intervals of metrics: how often they cover, and what they are made of."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools
import itertools
import math
import os

import numpy as np
import pytest
from scipy.stats import binom, norm

from skood.exceptions import SkoodWarning
from skood.metrics import (
    aupr_in,
    aupr_out,
    aurc,
    auroc,
    bootstrap_ci,
    coverage_at_risk,
    detection_error,
    expected_calibration_error,
    fpr_at_tpr,
    oscr,
    risk_at_coverage,
)
from skood.metrics._intervals import beta_interval, fpr_interval
from skood.metrics._ranking import accepted_counts
from skood.stats._mean_intervals import clopper_pearson
from tests.metrics._resampled import paired

FEW = {"n_resamples": 40, "random_state": 0}
SLOW = pytest.mark.slow


def cases(*values):
    """Return all combinations at night, by day a few in which each value occurs.

    Beyond the fourth they are slow.
    """
    if "SKOOD_NIGHTLY" in os.environ:
        return list(itertools.product(*map(dict.fromkeys, values)))
    longest = max(map(len, values))
    shifted = (itertools.islice(itertools.cycle(v), longest) for v in values)
    return [
        pytest.param(*case, marks=[pytest.mark.slow] if i > 3 else [])
        for i, case in enumerate(zip(*shifted, strict=True))
    ]


def draw_normal(area, m, n, rng):
    """Return labels and normal scores of the given AUROC."""
    y_true = np.repeat([0, -1], [m, n])
    shift = math.sqrt(2) * norm.ppf(area)
    return y_true, rng.normal(size=m + n) + shift * (y_true == 0)


def draw_contaminated(area, m, n, rng):
    """Return labels and scores; a fraction 1 - area of the ID samples is the lowest."""
    y_true = np.repeat([0, -1], [m, n])
    y_score = rng.normal(size=m + n) + 9 * (y_true == 0)
    y_score[:m][rng.uniform(size=m) > area] = -9
    return y_true, y_score


def draw_two_values(area, m, n, rng):
    """Return labels and scores of 0 and 1, with the given AUROC."""
    y_true = np.repeat([0, -1], [m, n])
    y_score = rng.uniform(size=m + n) < np.where(y_true == 0, area, 1 - area)
    return y_true, y_score.astype(float)


def coverage(metric, true, draw, n_sets, **params):
    """Return the fraction of data sets whose interval contains the true value."""
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(n_sets):
        value, low, high = bootstrap_ci(
            metric, *draw(rng), n_resamples=30, random_state=seed, **params
        )
        assert low <= value <= high
        hits += low - 1e-12 <= true <= high + 1e-12
    return hits / n_sets


# A coverage of 0.95 is below 0.86 in one of 500 runs of 60 data sets.
@pytest.mark.parametrize(
    ("size", "draw"),
    cases(
        [(0.99, 10, 10), (0.9, 17, 3), (0.95, 20, 20), (0.5, 10, 10), (0.995, 20, 20),
         (0.99, 100, 100)],
        [draw_normal, draw_contaminated, draw_two_values],
    ),
)  # fmt: skip
def test_coverage_of_auroc(size, draw):
    # percentiles cover 0.37 of the data sets at 0.99 with 10 + 10 samples
    area, arguments = size[0], functools.partial(draw, *size)
    assert coverage(auroc, area, arguments, 60) >= 0.86


@pytest.mark.parametrize(
    ("metric", "size"),
    cases(
        [aupr_in, aupr_out, detection_error, fpr_at_tpr],
        [(0.5, 25, 25), (0.95, 10, 10), (0.99, 25, 25)],
    ),
)
def test_coverage_of_ranking_metrics(metric, size):
    area, m, n = size
    true = metric(*draw_normal(area, 10**5, 10**5, np.random.default_rng(1)))
    arguments = functools.partial(draw_normal, area, m, n)
    assert coverage(metric, true, arguments, 40) >= 0.84


@pytest.mark.parametrize("metric", [aurc, oscr, risk_at_coverage, coverage_at_risk])
def test_coverage_of_metrics_of_predictions(metric):
    def draw(m, rng):
        y_true, y_score = draw_normal(0.95, m, m, rng)
        chance = 0.1 * norm.sf(y_score - math.sqrt(2) * norm.ppf(0.95))
        wrong = (rng.uniform(size=2 * m) < chance).astype(int)
        return y_true, np.where(y_true == -1, 0, wrong), y_score

    true = metric(*draw(10**5, np.random.default_rng(1)))
    assert coverage(metric, true, functools.partial(draw, 20), 40) >= 0.84


@pytest.mark.parametrize(
    "size, params",
    [
        (50, {}),
        pytest.param(400, {"n_bins": 5, "strategy": "quantile"}, marks=SLOW),
        pytest.param(400, {"norm": "max"}, marks=SLOW),
        pytest.param(400, {"norm": "l2", "classwise": True}, marks=SLOW),
        pytest.param(2000, {}, marks=SLOW),
    ],
)
@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_coverage_of_a_calibration_error(size, params, shift):
    """Also of calibrated probabilities, whose error is exactly 0."""
    covered, n_sets = 0, 100
    metric = functools.partial(expected_calibration_error, **params)

    def draw(n, rng):
        p = 0.8 * rng.uniform(size=n)
        y_true = (rng.uniform(size=n) < p + shift).astype(int)
        return y_true, np.stack([p, 1 - p], axis=1)[:, ::-1]

    true = 0.0
    if shift:  # the error of a sample so large that its bins have no noise
        true = metric(*draw(10**6, np.random.default_rng(1)))
    for seed in range(n_sets):
        data = draw(size, np.random.default_rng([size, seed]))
        _, low, high = bootstrap_ci(metric, *data, classes=[0, 1], **FEW)
        covered += low <= true <= high
    assert covered >= binom.ppf(1e-3, n_sets, 0.93)


@pytest.mark.parametrize("size", [5, *(pytest.param(n, marks=SLOW) for n in (10, 40))])
def test_coverage_of_the_coverage_at_a_risk(size):
    """All samples may be accepted, whatever a single error among few samples shows."""
    covered, n_sets = 0, 150
    for seed in range(n_sets):
        rng = np.random.default_rng([size, seed])
        y_true, y_score = np.zeros(size), rng.normal(size=size)
        y_pred = (rng.uniform(size=size) < 0.02).astype(float)
        data = y_true, y_pred, y_score
        interval = bootstrap_ci(coverage_at_risk, *data, risk=0.05, **FEW)
        covered += interval.high == 1.0  # the true coverage
        plausible = max(
            k
            for k in range(1, size + 1)
            if clopper_pearson(int(y_pred[np.argsort(-y_score)[:k]].sum()), k, 0.95).low
            <= 0.05
        )
        assert interval.high >= plausible / size - 1e-12
    assert covered >= binom.ppf(1e-3, n_sets, 0.93)


def test_a_large_calibration_error_is_not_zero():
    rng = np.random.default_rng(0)
    p = 0.8 * rng.uniform(size=2000)
    right = (rng.uniform(size=2000) < p + 0.1).astype(int)
    arguments = p, np.ones(2000, dtype=int)
    interval = bootstrap_ci(
        expected_calibration_error, right, *arguments, classes=[0, 1], **FEW
    )
    assert 0.05 < interval.low < 0.1 < interval.high < 0.15


def test_interval_of_a_perfect_auroc_is_no_point():
    y_true = np.repeat([0, -1], [30, 20])
    value, low, high = bootstrap_ci(auroc, y_true, y_true, **FEW)
    # what Clopper and Pearson give for 20 of 20
    assert (value, high) == (1, 1)
    assert low == pytest.approx(clopper_pearson(20, 20).low)
    # and of an AUROC of 0
    value, low, high = bootstrap_ci(auroc, y_true, -y_true, **FEW)
    assert (value, low) == (0, 0)
    assert high == pytest.approx(clopper_pearson(0, 20).high)


def test_no_error_among_few_samples_is_no_risk_of_zero():
    y_true = np.repeat([0, 1, -1], 20)
    y_score = np.arange(60.0)
    _, low, high = bootstrap_ci(aurc, y_true, y_true, y_score, **FEW)
    q = 1 - 0.025 ** (1 / 40)
    # a fraction q of errors that have the highest scores
    assert low == 0
    assert high == pytest.approx(q * (1 + math.log(1 / q)), rel=0.05)
    # a loss matrix has a larger risk, and so have losses of a stated range
    matrix = [[0, 1], [5, 0]]
    params = {"loss": matrix, "classes": [0, 1]}
    costly = bootstrap_ci(aurc, y_true, y_true, y_score, **params, **FEW)
    assert costly.high == pytest.approx(5 * high)
    params = {"loss": np.zeros(60), "bounds": (0, 5)}
    assert bootstrap_ci(aurc, y_true, None, y_score, **params, **FEW) == costly


def test_losses_without_a_bound_have_no_interval():
    y_true, y_score = np.repeat([0, 1, -1], 5), np.arange(15.0)

    def loss(y_true, y_pred):
        return 2.0 * (y_true != y_pred)

    for arguments in (loss, np.ones(15)):
        _, *ends = bootstrap_ci(aurc, y_true, y_true, y_score, loss=arguments, **FEW)
        assert np.isnan(ends).all()
    interval = bootstrap_ci(
        aurc, y_true, 1 - y_true, y_score, loss=loss, bounds=(0, 2), **FEW
    )
    assert 0 < interval.low < interval.high == interval.value == 2


def test_custom_metric():
    y_true, y_score = draw_normal(0.9, 30, 20, np.random.default_rng(0))

    def own(y_true, y_score):
        return auroc(y_true, y_score)

    with pytest.warns(SkoodWarning, match=r"range .* not known.*Pass bounds=\(lowest"):
        _, low, high = bootstrap_ci(own, y_true, y_score, **FEW)
    ours = bootstrap_ci(auroc, y_true, y_score, **FEW)
    stated = bootstrap_ci(own, y_true, y_score, bounds=(0, 1), **FEW)
    assert high - low == pytest.approx(ours.high - ours.low, rel=0.3)
    assert (stated.low, stated.high) == pytest.approx((ours.low, ours.high), rel=0.05)
    with pytest.warns(SkoodWarning, match="undefined if all resamples agree"):
        estimate = bootstrap_ci(own, y_true, 9.0 * (y_true == 0), **FEW)
    assert np.isnan(estimate[1:]).all()
    # a metric of skood with fixed parameters is known
    fixed = functools.partial(fpr_at_tpr, tpr=0.5)
    assert bootstrap_ci(fixed, y_true, y_score) == bootstrap_ci(
        fpr_at_tpr, y_true, y_score, tpr=0.5
    )


@pytest.mark.parametrize("bounds", [(0,), (1, 0), (0, math.inf), (0, math.nan)])
def test_errors_of_bounds(bounds):
    with pytest.raises(ValueError, match="lowest and the highest value of the metric"):
        bootstrap_ci(auroc, [0, -1], [1.0, 0.0], bounds=bounds)
    with pytest.raises(ValueError, match=r"metric is 1.0, which is not in bounds=\(0"):
        bootstrap_ci(auroc, [0, -1], [1.0, 0.0], bounds=(0, 0.5))


def test_a_single_sample_bounds_nothing():
    assert bootstrap_ci(auroc, [0, 0, -1], [2.0, 1, 0], **FEW) == (1, 0, 1)
    result = paired(auroc, [0, 0, -1], [2.0, 1, 0], [0.0, 1, 2], **FEW)
    assert (result.low, result.high) == (-1, 1)


def test_beta_interval_of_a_mean_is_that_of_clopper_and_pearson():
    draws = binom.ppf((np.arange(20000) + 0.5) / 20000, 200, 0.1) / 200
    low, high = beta_interval(0.1, draws, [10**6], (0, 1), 0.95)
    assert (low, high) == pytest.approx(clopper_pearson(20, 200)[1:], rel=0.01)
    scaled = beta_interval(1.2, 1 + 2 * draws, [10**6], (1, 3), 0.95)
    assert scaled == pytest.approx((1 + 2 * low, 1 + 2 * high))
    assert beta_interval(0.3, np.full(9, 0.3), [5, 5], (0, 1), 0.95) == (0.3, 0.3)


@pytest.mark.parametrize(
    ("m", "digits", "tpr"), cases([5, 60, 200, 60], [1, 9, 9, 1], [0.5, 0.95])
)
def test_exact_interval_of_the_fpr(m, digits, tpr):
    rng = np.random.default_rng(m)
    # the score that the share tpr reaches, and the share of OOD samples that reach it
    if digits == 9:
        true = norm.sf(norm.ppf(1 - tpr) + 1)
    else:
        edges = np.arange(-8, 9, 0.1)
        reached = norm.sf(edges - 0.05 - 1) >= tpr
        true = norm.sf(edges[reached][-1] - 0.05)
    hits = []
    is_ood = np.repeat([False, True], [m, 50])
    for _ in range(200):
        scores = (rng.normal(size=m + 50) + 1 * ~is_ood).round(digits)
        low, high = fpr_interval(accepted_counts(is_ood, scores), tpr, 0.95)
        hits.append(low <= true <= high)
    # 0.95 less three standard deviations of 200; it is conservative
    assert np.mean(hits) >= 0.904
    # tpr^m is the probability that no score is below the threshold
    assert (high == 1) == (tpr**m > 0.0125)


def test_coverage_of_a_difference():
    areas = 0.99, 0.97
    shifts = math.sqrt(2) * norm.ppf(areas)
    y_true = np.repeat([0, -1], 15)
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(60):
        common, first, second = rng.normal(size=(3, 30)) / math.sqrt(2)
        a, b = (
            common + individual + shift * (y_true == 0)
            for individual, shift in zip((first, second), shifts, strict=True)
        )
        result = paired(
            auroc, y_true, a, b, method="bootstrap", n_resamples=30, random_state=seed
        )
        assert -1 <= result.low < result.high <= 1
        hits += result.low <= 0.02 <= result.high
    assert hits >= 52

"""Intervals of metrics that also hold for few samples and near the ends of a range."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from functools import partial

import numpy as np
from scipy.special import betaincinv, ndtri
from scipy.stats import binom
from scipy.stats import t as student

from skood.metrics._calibration import calibration_noise, expected_calibration_error
from skood.metrics._ranking import _counts, _oriented, detection_error, fpr_at_tpr
from skood.metrics._resampling import effective_sizes
from skood.metrics._risk_coverage import coverage_at_risk
from skood.metrics._sample_checks import rank_id
from skood.metrics._unseen import (
    known_metric,
    relevant_strata,
    unseen_difference,
    unseen_interval,
)
from skood.stats._mean_intervals import clopper_pearson
from skood.utils._warnings import warn

_UNKNOWN_RANGE = (
    "The range of the metric is not known: its interval is that of Student's t, which "
    "covers less than it promises for few samples or near an end of the range, and is "
    "undefined if all resamples agree. Pass bounds=(lowest, highest) of the metric."
)

_CALIBRATION_PARAMS = "n_bins strategy norm classwise ood_label classes".split()
_COVERAGE_PARAMS = "risk loss ood_label classes".split()


def beta_interval(value, draws, sizes, bounds, confidence_level):
    """Return the interval of `value`, treated as a fraction of independent samples.

    `draws` has shape (n_resamples,), `sizes` are the numbers of samples of the strata,
    at least 2 each. Without `bounds` it is the interval of Student's t. Both ends are
    the value if it is the same on all resamples.
    """
    # The metric, scaled to [0, 1], has the variance V of n* = p (1 - p) / V (z / t)^2
    # samples [1]; the interval of Clopper and Pearson for n* p of n* is extended by the
    # one around the value minus twice the bias of the resamples, as the smaller of this
    # bias and 0 may be the right correction.
    # [1] E. L. Korn, B. I. Graubard. Confidence intervals for proportions with small
    # expected number of positive counts estimated from survey data. Survey Methodology
    # 24, 1998.
    smallest = min(sizes)
    variance = float(np.var(draws)) * smallest / (smallest - 1)
    if variance <= (1e-12 * max(1.0, abs(value))) ** 2:
        return value, value
    tail = (1 - confidence_level) / 2
    t = -student.ppf(tail, max(1, sum(sizes) - len(sizes)))
    bias = float(np.mean(draws)) - value
    centers = np.array([value, value - 2 * bias])
    if bounds is None:
        half = t * math.sqrt(variance)
        return float(centers.min() - half), float(centers.max() + half)
    least, scale = bounds[0], bounds[1] - bounds[0]
    p = np.clip((centers - least) / scale, 0, 1)
    # a fraction of 0 or 1 has no effective number: use the mean of the resamples
    inside = p[0] if 0 < p[0] < 1 else (float(np.mean(draws)) - least) / scale
    n = inside * (1 - inside) * scale**2 / variance * (ndtri(tail) / t) ** 2
    # Beta distributions of the ends of Clopper and Pearson, 0 and 1 at the edges
    low = [betaincinv(n * q, n * (1 - q) + 1, tail) if q > 0 else 0.0 for q in p]
    high = [betaincinv(n * q + 1, n * (1 - q), 1 - tail) if q < 1 else 1.0 for q in p]
    return least + scale * float(min(low)), least + scale * float(max(high))


def covering_interval(metric, value, draws, sizes, bounds, ends, confidence_level):
    """Return the interval of `beta_interval`, extended to the ends for unseen samples.

    `metric` is a metric of skood, or None; the others are as in `beta_interval`.
    """
    low, high = beta_interval(value, draws, sizes, bounds, confidence_level)
    if metric is detection_error:
        # A minimum over thresholds is too small. Smirnov's limit of the deviation at
        # all of them, exp(-2 x^2) for x sqrt(1/m + 1/n), in units of its largest
        # variance; the variance at the error p of the best threshold is about 4 p (1 -
        # p).
        x = math.sqrt(math.log(2 / (1 - confidence_level)) / 2)
        spread = math.sqrt(value * (1 - value) * sum(1 / n for n in sizes))
        high = min(max(high, value + x * spread), 0.5)
    return min(low, *ends), max(high, *ends)


def fpr_interval(counts, tpr, confidence_level):
    """Return an exact interval of the FPR at a TPR.

    `counts` are accepted samples of the positive and of the negative class at every
    distinct score, from the highest down.
    """
    # The score that a fraction `tpr` of the positive class reaches is between two order
    # statistics, whose ranks follow from the binomial distribution. They do not depend
    # on the other class, so the FPR at each of them is between Clopper-Pearson limits.
    # Each of the four statements has a quarter of the error.
    tp, fp = counts
    n, tail = int(tp[-1]), (1 - confidence_level) / 4
    level = 1 - 2 * tail
    # samples below the quantile are Bin(n, 1 - tpr): the k-th smallest score is above
    # it if there are fewer than k of them, and below it if there are k or more
    ranks = np.arange(1, n + 1)
    below = ranks[binom.cdf(ranks - 1, n, 1 - tpr) <= tail]
    above = ranks[binom.sf(ranks - 1, n, 1 - tpr) <= tail]
    low, high = 0.0, 1.0
    if below.size:
        accepted = fp[np.searchsorted(tp, n - below[-1] + 1)]
        high = clopper_pearson(int(accepted), int(fp[-1]), level).high
    if above.size:
        accepted = fp[np.searchsorted(tp, n - above[0] + 1)]
        low = clopper_pearson(int(accepted), int(fp[-1]), level).low
    return low, high


def score_interval(system, value, draws, strata, is_ood, bounds, confidence_level):
    """Return the interval of a metric from its variance and from unseen samples.

    `draws`, of shape (n_resamples,), is not used by a metric with a closed form. If
    `bounds` is None, a metric of skood has no interval, and another metric that of
    Student's t, with a warning.
    """
    if has_closed_form(system):
        return exact_interval(system, confidence_level)
    strata = relevant_strata(system, strata, is_ood)
    sizes = effective_sizes(system, strata)
    if bounds is None:
        return _student_interval(system, value, draws, sizes, confidence_level)
    if min(sizes) < 2:
        return bounds
    known = strata, is_ood, bounds, confidence_level
    low, high = unseen_interval(value, system, *known)
    ends = _one_interval(system, value, draws, sizes, bounds, confidence_level)
    return min(low, ends[0]), max(high, ends[1])


def _student_interval(system, value, draws, sizes, confidence_level):
    """Return the interval of Student's t of an unknown metric, with a warning; or NaN.

    `value` and `draws` may be of the difference of two systems.
    """
    low = high = math.nan
    if known_metric(system)[0] is None and min(sizes) > 1:
        low, high = beta_interval(value, draws, sizes, None, confidence_level)
        warn(_UNKNOWN_RANGE)
    return (low, high) if low < high else (math.nan, math.nan)


def _farther_limit(system, value, confidence_level):
    """Return a limit of metrics whose resamples do not reach it; else `value`.

    A calibration error adds up the errors of bins, of resamples as well, which are not
    near 0 for calibrated probabilities. The coverage at a risk is far from 1 for a
    single error among few samples, however small the true risk.
    """
    metric, known = known_metric(system)
    tail = (1 - confidence_level) / 2
    if metric is expected_calibration_error:
        limit, names = partial(calibration_noise, 1 - tail), _CALIBRATION_PARAMS
    elif metric is coverage_at_risk:
        limit, names = partial(_plausible_coverage, tail), _COVERAGE_PARAMS
    else:
        return value
    params = {name: known[name] for name in names if name not in system.row_params}
    bound = system._replace(metric=limit, params=params).value()
    if metric is coverage_at_risk:
        return max(value, bound)
    return max(0.0, value - bound)


def _plausible_coverage(
    tail, y_true, y_pred, y_score, *, risk, loss, ood_label, classes, sample_weight=None
):
    """Return the largest coverage whose risk is not significantly above a bound.

    The lower limit of Clopper and Pearson, with an error of `tail`, is within the
    bound; 0 for losses other than 0 and a single value, which have no such limit.
    """
    if sample_weight is not None:
        raise ValueError(
            "coverage_at_risk with sample_weight has no interval of method='beta': "
            "exact limits are for counts of errors. Use method='percentile'."
        )
    _, loss, last, _ = rank_id(y_true, y_pred, y_score, loss, ood_label, classes)
    largest = loss.max()
    if not np.isin(loss, (0.0, largest)).all():
        return 0.0
    accepted, wrong = last + 1, np.cumsum(loss > 0)[last]
    low = np.where(wrong, betaincinv(np.maximum(wrong, 1), last + 2 - wrong, tail), 0)
    return float(np.max(accepted * (largest * low <= risk)) / loss.size)


def has_closed_form(system):
    """Return whether the interval of a metric needs no resamples."""
    weighted = "sample_weight" in system.row_params
    return known_metric(system)[0] is fpr_at_tpr and not weighted


def exact_interval(system, confidence_level):
    """Return the exact interval of `fpr_at_tpr`."""
    _, params = known_metric(system)
    y_score = system.row_params.get("y_score", *system.arrays[:1])
    counts = _counts(system.y_true, y_score, params["ood_label"], params["classes"])
    counts = _oriented(counts, params["positive"])
    return fpr_interval(counts, params["tpr"], confidence_level)


def _one_interval(system, value, draws, sizes, bounds, confidence_level):
    """Return the interval of one system without unseen samples."""
    if has_closed_form(system):
        return exact_interval(system, confidence_level)
    metric = known_metric(system)[0]
    ends = value, _farther_limit(system, value, confidence_level)
    return covering_interval(
        metric, value, draws, sizes, bounds, ends, confidence_level
    )


def difference_interval(pair, values, draws, strata, is_ood, bounds, confidence_level):
    """Return the interval of the difference of a metric of two systems.

    `pair` are the systems, `values` their metrics, `draws` of shape (n_resamples, 2)
    their metrics on resamples; the others are as in `score_interval`.
    """
    # From the interval [l, u] of either system and the correlation r of their values by
    # the method of variance estimates recovery [1], extended by unseen samples that are
    # good for one system and bad for the other.
    # [1] G. Y. Zou. On the estimation of additive interaction by use of the four-by-two
    # table and beyond. American Journal of Epidemiology 168, 2008.
    strata = relevant_strata(pair[0], strata, is_ood)
    sizes = effective_sizes(pair[0], strata)
    a, b = values
    if bounds is None:
        differences = a - b, draws[:, 0] - draws[:, 1]
        return _student_interval(pair[0], *differences, sizes, confidence_level)
    if min(sizes) < 2:
        return bounds[0] - bounds[1], bounds[1] - bounds[0]
    (low_a, high_a), (low_b, high_b) = (
        _one_interval(system, value, x, sizes, bounds, confidence_level)
        for system, value, x in zip(pair, values, draws.T, strict=True)
    )
    spreads = draws.std(axis=0)
    r = np.corrcoef(draws.T)[0, 1] if (spreads > 1e-12).all() else 0.0
    if has_closed_form(pair[0]):
        r = min(r, 0.0)  # exact intervals do not scale with deviations

    def half(x, y):
        return math.sqrt(max(0.0, x * x + y * y - 2 * r * x * y))

    low, high = unseen_difference(
        pair, values, strata, is_ood, bounds, confidence_level
    )
    return (
        float(min(low, a - b - half(a - low_a, high_b - b))),
        float(max(high, a - b + half(high_a - a, b - low_b))),
    )

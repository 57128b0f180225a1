"""Confidence intervals of metrics, also for few samples and near ends of a range."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from functools import partial
from numbers import Integral, Real

import numpy as np
from scipy.special import betaincinv, ndtri
from scipy.stats import binom
from scipy.stats import t as student
from sklearn.utils import check_random_state

from skood.decision import Estimate
from skood.metrics._calibration import calibration_noise, expected_calibration_error
from skood.metrics._ranking import _counts, _oriented, detection_error, fpr_at_tpr
from skood.metrics._resampling import (
    Bootstrap,
    effective_sizes,
    finite_value,
    finite_values,
    interval,
    jackknife_values,
    make_system,
    strata_of,
)
from skood.metrics._risk_coverage import coverage_at_risk
from skood.metrics._sample_checks import check_ood, rank_id
from skood.metrics._unseen import (
    known_metric,
    range_of,
    relevant_strata,
    unseen_difference,
    unseen_interval,
)
from skood.stats._mean_intervals import clopper_pearson
from skood.utils._param_validation import Number, StrOptions, validate_params
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


def checked_bounds(bounds, system, value):
    """Return the given range of a metric, or its known range."""
    if bounds is None:
        return range_of(system)
    low, high = map(float, bounds) if len(bounds) == 2 else (math.nan, math.nan)
    if not -math.inf < low < high < math.inf:
        raise ValueError(
            f"bounds must be the lowest and the highest value of the metric, two "
            f"finite numbers, got {bounds!r}."
        )
    if not low <= value <= high:
        raise ValueError(f"metric is {value}, which is not in bounds={bounds!r}.")
    return low, high


@validate_params(
    {
        "metric": [callable],
        "n_resamples": [Number(Integral, 1, None, closed="left")],
        "method": [StrOptions({"beta", "percentile", "basic", "bca"})],
        "confidence_level": [Number(Real, 0, 1, closed="neither")],
        "bounds": [tuple, list, None],
        "stratify": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    },
    prefer_skip_nested_validation=False,  # of the parameters of the metric
)
def bootstrap_ci(
    metric,
    y_true,
    *arrays,
    n_resamples=999,
    confidence_level=0.95,
    method="beta",
    bounds=None,
    stratify=True,
    random_state=None,
    ood_label=-1,
    classes=None,
    n_jobs=None,
    **metric_params,
):
    r"""Confidence interval of a metric.

    Samples are drawn with replacement, together with their entries in all arrays, and
    the metric is computed on each resample. The default interval also holds for few
    samples and for values near 0 or 1. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, *arrays, **metric_params)`` returns a number: one of
        :mod:`skood.metrics`, of :mod:`sklearn.metrics`, or your own. `ood_label` and
        `classes` are passed if it has parameters of these names.

    y_true : array-like of shape (n_samples,)
        Labels of ID and OOD samples, see `ood_label` and `classes`.

    *arrays : array-like of shape (n_samples, ...) or None
        Arguments of the metric after `y_true`, such as predictions and scores.

    n_resamples : int, default=999
        Number of resamples.

    confidence_level : float, default=0.95
        Level of the interval, in (0, 1).

    method : {"beta", "percentile", "basic", "bca"}, default="beta"
        Type of the interval, see Notes. "beta" is designed to attain its nominal
        coverage; the others are the textbook intervals, which cover less for few
        samples and near the ends of the range of the metric.

    bounds : tuple of (float, float), default=None
        Used by "beta": lowest and highest value of the metric. None: known for the
        metrics of :mod:`skood.metrics`, unless the loss is a callable or an array; in
        these cases there is no interval, NaN in `low` and `high`. For other metrics it
        is Student's t interval, with a warning.

    stratify : bool, default=True
        Whether ID and OOD samples are resampled separately, so that every resample has
        as many ID and OOD samples as the data.

    random_state : int, RandomState instance or None, default=None
        Controls the resampling. The result does not depend on `n_jobs`.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    n_jobs : int, default=None
        Number of joblib jobs.

    **metric_params : dict
        Further arguments of the metric. One-dimensional arrays with one entry per
        sample, such as losses or sample weights, are resampled with the samples; so are
        `y_pred`, `y_score`, `ood_score`, `y_proba` and `sample_weight` of any
        dimension. A two-dimensional `loss` is a loss matrix and is not.

    Returns
    -------
    estimate : Estimate
        The metric on the data in `value`, and the interval in `low` and `high`.

    Raises
    ------
    ValueError
        If the metric is NaN or infinite on the data or on a resample, if an array
        does not have one entry per sample, or if it is not clear whether one of
        `metric_params` does. "bca": if all resamples are above or all are
        below the value, or a stratum has a single sample.
    TypeError
        If the metric does not return a number.

    See Also
    --------
    paired_test : Tests whether two systems differ on the same samples.

    Notes
    -----
    "beta" treats the metric, scaled to [0, 1], as a fraction :math:`\hat\theta` of
    :math:`n^*` independent samples that has the variance :math:`V` of the metric on the
    resamples, and uses the Clopper-Pearson interval [1]_,

    .. math::
        n^* = \frac{\hat\theta (1 - \hat\theta)}{V} \Big(\frac{z}{t}\Big)^2, \quad
        Q_{\mathrm{Beta}(n^* \hat\theta,\, n^* (1 - \hat\theta) + 1)}
        \Big(\frac{\alpha}{2}\Big) \le \theta \le
        Q_{\mathrm{Beta}(n^* \hat\theta + 1,\, n^* (1 - \hat\theta))}
        \Big(1 - \frac{\alpha}{2}\Big),

    with the quantiles :math:`z` and :math:`t` of the normal and of Student's
    distribution. It is extended in two ways: by the same interval around
    :math:`\hat\theta - 2 \hat b`, with the bias :math:`\hat b` of the resamples, and by
    the values of the metric if a fraction :math:`1 - (\alpha / 2)^{1/n}` of samples
    with the lowest or highest score, right or wrong, is added to the :math:`n` ID or
    OOD samples: with a probability of :math:`\alpha / 2` the data contain none of
    these. So an AUROC of 1 on 20 ID and 20 OOD samples has the interval [0.83, 1] and
    not [1, 1].

    The interval of :func:`fpr_at_tpr` is exact and needs no resamples: the threshold is
    between two order statistics of the scores of the positive class, and the FPR at
    each of them between Clopper-Pearson limits, each of the four statements with an
    error of :math:`\alpha / 4`. Fewer than 86 positive samples do not bound the
    threshold of a TPR of 0.95 from below, and the upper end is 1.

    The gaps of :func:`expected_calibration_error` are positive for calibrated
    probabilities as well, on the data and even more on resamples. Its interval is
    extended to the value minus a quantile of the norm of the sampling errors of the
    gaps: by the triangle inequality, at least a limit of the true error. That of
    :func:`coverage_at_risk` is extended to the largest coverage whose risk is not
    significantly above the bound.

    For the other methods, with the quantile function :math:`Q` of the values
    :math:`\theta^*_b` on the resamples and :math:`\alpha` = 1 - `confidence_level`,

    - "percentile" is :math:`[Q(\alpha/2), Q(1 - \alpha/2)]`;
    - "basic" is :math:`[2\hat\theta - Q(1-\alpha/2), 2\hat\theta - Q(\alpha/2)]`,
      which may leave the range of the metric;
    - "bca" [2]_ is :math:`[Q(\alpha_1), Q(\alpha_2)]` at the levels

      .. math::
          \alpha_j = \Phi\Big( z_0 + \frac{z_0 + z_j}{1 - a (z_0 + z_j)} \Big),
          \quad z_1 = \Phi^{-1}(\alpha/2) = -z_2 ,

      with the bias :math:`z_0 = \Phi^{-1}(P(\theta^* < \hat\theta) + \frac12
      P(\theta^* = \hat\theta))` and the acceleration of leave-one-out values
      :math:`\hat\theta_{h(i)}` in the strata :math:`h` of :math:`n_h` samples,

      .. math::
          a = \frac{\sum_h n_h^{-3} \sum_i u_{hi}^3}
          {6 (\sum_h n_h^{-2} \sum_i u_{hi}^2)^{3/2}}, \quad
          u_{hi} = (n_h - 1)(\bar\theta_h - \hat\theta_{h(i)}) .

      It takes another `n_samples` evaluations of the metric.

    A metric that returns an operating point or a curve is passed as a function that
    returns one of its numbers, such as its `risk` or `area`; pass the range as
    `bounds`.

    A sample is drawn together with its entry in `sample_weight`, so that a sample of
    weight 3 is one observation that stands for three, not three observations: repeat
    samples whose repeats are independent. Samples of weight 0 are absent. Weighted
    metrics have no closed form, and Student's distribution takes the effective number
    of samples :math:`(\sum_i w_i)^2 / \sum_i w_i^2` in place of :math:`n`.

    A resample may lack a class: pass `classes` to metrics that would otherwise infer
    them from the labels.

    References
    ----------
    .. [1] E. L. Korn, B. I. Graubard. Confidence intervals for proportions with small
       expected number of positive counts estimated from survey data. Survey
       Methodology 24, 1998.
    .. [2] B. Efron, R. J. Tibshirani. An introduction to the bootstrap, sections 14.3
       and 15.4. Chapman & Hall, 1993.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.metrics import auroc, bootstrap_ci
    >>> y_true = np.repeat([0, -1], [60, 40])
    >>> y_score = np.random.default_rng(0).normal(size=100) + (y_true == 0)
    >>> value, low, high = bootstrap_ci(auroc, y_true, y_score, random_state=0)
    >>> print(f"{value:.3f} in [{low:.3f}, {high:.3f}]")
    0.759 in [0.641, 0.851]
    """
    weight = metric_params.get("sample_weight")
    strata = strata_of(y_true, stratify, ood_label, classes, weight)
    system = make_system(metric, y_true, arrays, metric_params, ood_label, classes)
    value = finite_value(system, "the data")
    bounds = checked_bounds(bounds, system, value)
    jackknife = None
    if method == "bca":
        jackknife = jackknife_values(system, strata, n_jobs)
    draws = None
    if method != "beta" or not has_closed_form(system):
        bootstrap = Bootstrap([system], strata, check_random_state(random_state))
        draws = finite_values(bootstrap, n_resamples, n_jobs, "resamples")[:, 0]
    if method == "beta":
        is_ood = check_ood(system.y_true, ood_label, classes)
        known = value, draws, strata, is_ood, bounds
        return Estimate(value, *score_interval(system, *known, confidence_level))
    return Estimate(value, *interval(value, draws, method, confidence_level, jackknife))

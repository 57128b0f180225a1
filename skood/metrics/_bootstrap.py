"""Confidence intervals of metrics."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral, Real

from sklearn.utils import check_random_state

from skood.decision import Estimate
from skood.metrics._intervals import has_closed_form, score_interval
from skood.metrics._resampling import (
    Bootstrap,
    finite_value,
    finite_values,
    interval,
    jackknife_values,
    make_system,
    strata_of,
)
from skood.metrics._sample_checks import check_ood
from skood.metrics._unseen import range_of
from skood.utils._param_validation import Number, StrOptions, validate_params


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

"""How sure a metric is: bootstrap intervals, and paired tests of two systems."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
import math
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata
from sklearn.utils import check_random_state

from skood.metrics._ranking import Number
from skood.metrics._resampling import (
    Bootstrap,
    finite_value,
    finite_values,
    interval,
    jackknife_values,
    make_system,
    parameters_of,
    seed_of,
    strata_of,
)
from skood.rejection._report import Estimate
from skood.utils._params import StrOptions, validate_params
from skood.utils._torch import to_numpy

__all__ = ["PairedTestResult", "bootstrap_ci", "paired_test"]

_CONSTRAINTS = {
    "metric": [callable],
    "n_resamples": [Number(Integral, 1, None, closed="left")],
    "confidence_level": [Number(Real, 0, 1, closed="neither")],
    "stratify": ["boolean"],
    "random_state": ["random_state"],
    "n_jobs": [Integral, None],
}

# Arguments of metrics that an order-preserving map leaves as good as they were, and
# arguments that are on a common scale as they are.
_SCORES = ("y_score", "ood_score")
_COMMON_SCALE = ("y_pred", "y_proba", "loss")


class PairedTestResult(NamedTuple):
    """Result of :func:`paired_test`.

    Parameters
    ----------
    statistic : float
        The metric of system a minus that of system b.

    pvalue : float
        Probability, if there is no difference, of one that is as large or larger.

    low, high : float
        Ends of the two-sided bootstrap interval of the difference.

    value_a, value_b : float
        The metric of either system.

    See Also
    --------
    paired_test : Compares two systems.
    """

    statistic: float
    pvalue: float
    low: float
    high: float
    value_a: float
    value_b: float


def _check_alike(a, b):
    """Raise unless two systems have arrays of the same shapes."""
    shapes = [
        [None if x is None else x.shape for x in s.arrays]
        + sorted((name, x.shape) for name, x in s.row_params.items())
        for s in (a, b)
    ]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"The systems must have the same arrays, got the shapes {shapes[0]} in "
            f"arrays_a and {shapes[1]} in arrays_b."
        )


def _ranked(metric, arrays):
    """Return the arrays of a system with its scores replaced by their ranks."""
    if isinstance(arrays, dict):
        return {name: _common_scale(name, a) for name, a in arrays.items()}
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [name for name, p in parameters_of(metric).items() if p.kind in kinds][1:]
    names += [None] * len(arrays)
    return tuple(_common_scale(name, a) for name, a in zip(names, arrays, strict=False))


def _common_scale(name, array):
    """Return what of a system may be exchanged with that of another."""
    if array is None or name in _COMMON_SCALE:
        return array
    array = to_numpy(array)
    if name in _SCORES and np.ndim(array) == 1:
        return rankdata(array)
    raise ValueError(
        f"The metric has an array {name or 'without a name'!r} of {np.ndim(array)} "
        f"dimension(s), of which it is not known whether two systems share its scale: "
        f"{_SCORES} of one dimension are ranked, {_COMMON_SCALE} are taken as they "
        f"are. Pass rank=False if all arrays are on a common scale, or use "
        f"method='bootstrap'."
    )


def _check_unchanged(pair, values):
    """Raise if ranking the scores has changed the metric."""
    for system, value in zip(pair, values, strict=True):
        ranked = system.value()
        if not math.isclose(ranked, value, rel_tol=1e-9, abs_tol=1e-9):
            raise ValueError(
                f"metric depends on more than the order of the scores: it is "
                f"{value:.6g} on the scores and {ranked:.6g} on their ranks. Pass "
                f"rank=False if the scores of both systems are on a common scale, or "
                f"use method='bootstrap'."
            )


class _Swap:
    """The difference of two systems after swapping random rows, for joblib."""

    def __init__(self, pair, random_state):
        self.pair = pair
        self.entropy = seed_of(random_state)

    def __call__(self, i):
        rng = np.random.default_rng([*self.entropy, i])
        swap = rng.integers(2, size=self.pair[0].y_true.shape[0]).astype(bool)
        a, b = self.pair
        return _mixed(a, b, swap).value() - _mixed(b, a, swap).value()


def _mixed(a, b, swap):
    """Return system a with the rows in `swap` taken from b."""

    def mix(x, y):
        if x is None:
            return None
        return np.where(swap.reshape(-1, *[1] * (x.ndim - 1)), y, x)

    arrays = tuple(mix(x, y) for x, y in zip(a.arrays, b.arrays, strict=True))
    row_params = {name: mix(x, b.row_params[name]) for name, x in a.row_params.items()}
    return a._replace(arrays=arrays, row_params=row_params)


@validate_params(
    {**_CONSTRAINTS, "method": [StrOptions({"percentile", "basic", "bca"})]},
    prefer_skip_nested_validation=True,
)
def bootstrap_ci(
    metric,
    y_true,
    *arrays,
    n_resamples=999,
    confidence_level=0.95,
    method="percentile",
    stratify=True,
    random_state=None,
    ood_label=-1,
    classes=None,
    n_jobs=None,
    **metric_params,
):
    r"""Bootstrap confidence interval of a metric.

    The rows are drawn with replacement, with everything that belongs to a row, and
    the metric is computed on each such resample. Read more in the
    :ref:`User Guide <metrics>`.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, *arrays, **metric_params)`` returns a number: one of
        :mod:`skood.metrics`, of :mod:`sklearn.metrics`, or your own. It is given
        `ood_label` and `classes` if it has parameters of these names.

    y_true : array-like of shape (n_samples,)
        Labels. A row is OOD when its label equals `ood_label` or, with `classes`
        given, is not among them.

    *arrays : array-like of shape (n_samples, ...) or None
        What the metric takes after `y_true`, such as predictions and scores.

    n_resamples : int, default=999
        Number of resamples.

    confidence_level : float, default=0.95
        Level of the interval, in (0, 1).

    method : {"percentile", "basic", "bca"}, default="percentile"
        How the interval is read off the resamples, see Notes.

    stratify : bool, default=True
        Whether ID and OOD rows are resampled separately, so that every resample has
        as many of either kind as the data.

    random_state : int, RandomState instance or None, default=None
        Draws the resamples. The result does not depend on `n_jobs`.

    ood_label : int or str, default=-1
        Label of known OOD rows.

    classes : array-like of shape (n_classes,), default=None
        The known classes; a label outside of them is OOD.

    n_jobs : int, default=None
        Number of joblib jobs.

    **metric_params : dict
        Further arguments of the metric. One-dimensional arrays with one entry per
        row, such as losses or sample weights, are resampled with the rows; so are
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
        does not have one entry per row, or if it is not clear whether one of
        `metric_params` does. "bca": if all resamples are above or all are
        below the value, or a stratum has a single row.
    TypeError
        If the metric does not return a number.

    See Also
    --------
    paired_test : Whether two systems differ on the same rows.

    Notes
    -----
    With the value :math:`\hat\theta`, the quantile function :math:`Q` of the
    :math:`\theta^*_b` on the resamples, and :math:`\alpha` = 1 - `confidence_level`,

    - "percentile" is :math:`[Q(\alpha/2), Q(1 - \alpha/2)]`;
    - "basic" is :math:`[2\hat\theta - Q(1-\alpha/2), 2\hat\theta - Q(\alpha/2)]`,
      which may leave the range of the metric;
    - "bca" [1]_ is :math:`[Q(\alpha_1), Q(\alpha_2)]` at the levels

      .. math::
          \alpha_j = \Phi\Big( z_0 + \frac{z_0 + z_j}{1 - a (z_0 + z_j)} \Big),
          \quad z_1 = \Phi^{-1}(\alpha/2) = -z_2 ,

      with the bias :math:`z_0 = \Phi^{-1}(P(\theta^* < \hat\theta) + \frac12
      P(\theta^* = \hat\theta))` and the acceleration of leave-one-out values
      :math:`\hat\theta_{h(i)}` in the strata :math:`h` of :math:`n_h` rows,

      .. math::
          a = \frac{\sum_h n_h^{-3} \sum_i u_{hi}^3}
          {6 (\sum_h n_h^{-2} \sum_i u_{hi}^2)^{3/2}}, \quad
          u_{hi} = (n_h - 1)(\bar\theta_h - \hat\theta_{h(i)}) .

      It evaluates the metric another `n_samples` times.

    A metric that returns an operating point or a curve is given as a function that
    returns a number of it, such as its `risk` or `area`.

    A resample may lack a class: give `classes` to metrics that would otherwise take
    them from the labels. It repeats rows, which biases metrics that count small
    gaps, such as :func:`expected_calibration_error`, upwards: for these use "basic".

    References
    ----------
    .. [1] B. Efron, R. J. Tibshirani. An introduction to the bootstrap, sections 14.3
       and 15.4. Chapman & Hall, 1993.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.metrics import auroc, bootstrap_ci
    >>> y_true = np.repeat([0, -1], [60, 40])
    >>> y_score = np.random.default_rng(0).normal(size=100) + (y_true == 0)
    >>> value, low, high = bootstrap_ci(auroc, y_true, y_score, random_state=0)
    >>> print(f"{value:.3f} in [{low:.3f}, {high:.3f}]")
    0.759 in [0.657, 0.851]
    """
    strata = strata_of(y_true, stratify, ood_label, classes)
    system = make_system(metric, y_true, arrays, metric_params, ood_label, classes)
    value = finite_value(system, "the data")
    jackknife = None
    if method == "bca":
        jackknife = jackknife_values(system, strata, n_jobs)
    bootstrap = Bootstrap([system], strata, check_random_state(random_state))
    draws = finite_values(bootstrap, n_resamples, n_jobs, "resamples")[:, 0]
    return Estimate(value, *interval(value, draws, method, confidence_level, jackknife))


@validate_params(
    {
        **_CONSTRAINTS,
        "method": [StrOptions({"permutation", "bootstrap"})],
        "alternative": [StrOptions({"two-sided", "greater", "less"})],
        "rank": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def paired_test(
    metric,
    y_true,
    arrays_a,
    arrays_b,
    *,
    n_resamples=999,
    method="permutation",
    alternative="two-sided",
    rank=True,
    confidence_level=0.95,
    stratify=True,
    random_state=None,
    ood_label=-1,
    classes=None,
    n_jobs=None,
    **metric_params,
):
    r"""Test whether a metric of two systems differs, on the same rows.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, *arrays, **metric_params)`` returns a number, as in
        :func:`bootstrap_ci`.

    y_true : array-like of shape (n_samples,)
        Labels. A row is OOD when its label equals `ood_label` or, with `classes`
        given, is not among them.

    arrays_a, arrays_b : array-like of shape (n_samples, ...), tuple or dict of them
        What the metric takes after `y_true` from system a and from system b: one
        array, a tuple of several, or a dict of them by name. None is allowed.

    n_resamples : int, default=999
        Number of permutations, and of bootstrap resamples.

    method : {"permutation", "bootstrap"}, default="permutation"
        Where the p-value comes from. "permutation": rows are swapped between the
        systems at random. "bootstrap": rows are resampled. See Notes.

    alternative : {"two-sided", "greater", "less"}, default="two-sided"
        "greater": the metric of a is greater than that of b, which is good or bad
        as the metric is.

    rank : bool, default=True
        Of "permutation" only: whether `y_score` and `ood_score`, known by the names
        of the parameters of the metric, are replaced by their ranks within either
        system before rows are swapped. `y_pred`, `y_proba` and `loss` are swapped as
        they are. False: all are, which needs scores on a common scale.

    confidence_level : float, default=0.95
        Level of the interval of the difference, in (0, 1).

    stratify : bool, default=True
        Whether the bootstrap resamples ID and OOD rows separately.

    random_state : int, RandomState instance or None, default=None
        Draws permutations and resamples. The result does not depend on `n_jobs`.

    ood_label : int or str, default=-1
        Label of known OOD rows.

    classes : array-like of shape (n_classes,), default=None
        The known classes; a label outside of them is OOD.

    n_jobs : int, default=None
        Number of joblib jobs.

    **metric_params : dict
        Further arguments of the metric, shared by the systems. Those with one entry
        per row are resampled with the rows, as in :func:`bootstrap_ci`.

    Returns
    -------
    result : PairedTestResult
        The difference a - b in `statistic`, `pvalue`, the ends `low` and `high` of
        its two-sided percentile bootstrap interval (for either method), `value_a`
        and `value_b`.

    Raises
    ------
    ValueError
        If the metric is NaN or infinite on the data or on a resample, if the systems
        have different arrays, or if `rank` is True and the metric has an array of
        another name, or changes when scores are ranked (so that ranks do not do).
    TypeError
        If the metric does not return a number.

    See Also
    --------
    bootstrap_ci : Interval of one system.

    Notes
    -----
    *Permutation.* If nothing but the name tells the systems apart, then swapping the
    rows of any subset gives an equally likely pair. With the difference :math:`d` on
    the data and :math:`d_b` after swapping each row with probability 1/2, the p-value
    for "greater" is

    .. math::
        p = \frac{1 + \#\{b : d_b \ge d\}}{1 + B}

    and the two-sided one twice the smaller of both sides, at most 1. Two detectors
    have scores of different scales, and a mixture of both would order the rows by
    where their score is from: on the same scale the test is valid, on different
    ones it has no power. So scores are replaced by their ranks within each system
    first [1]_ [2]_, which changes no metric of the order of scores. All rows given
    are ranked together; for a metric of ID rows only, give ID rows only. The null
    hypothesis is that the systems behave alike on these rows, not merely that the
    metric is equal. Ranks in a sample stand for those in the population, so that
    the level is not exact but close.

    *Bootstrap.* The null hypothesis is that the metrics are equal; no common scale
    is needed, so that it suits any metric, but its level holds for large samples
    only. With the differences :math:`d^*_b` on resamples of the rows, common to both
    systems, the p-value for "greater" is :math:`(1 + \#\{b : d^*_b \le 0\}) /
    (1 + B)`. So the two-sided one is at most :math:`\alpha` about where the
    percentile interval of level :math:`1 - \alpha` leaves 0 out.

    References
    ----------
    .. [1] E. S. Venkatraman, C. B. Begg. A distribution-free procedure for comparing
       receiver operating characteristic curves from a paired experiment.
       Biometrika, 1996.
    .. [2] A. I. Bandos, H. E. Rockette, D. Gur. A permutation test sensitive to
       differences in areas for comparing ROC curves from a paired design. Statistics
       in Medicine, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.metrics import auroc, paired_test
    >>> rng = np.random.default_rng(0)
    >>> y_true = np.repeat([0, -1], 50)
    >>> good = rng.normal(size=100) + 2 * (y_true == 0)
    >>> poor = 1000 * (rng.normal(size=100) + (y_true == 0))
    >>> res = paired_test(auroc, y_true, good, poor, n_resamples=199, random_state=0)
    >>> print(f"{res.statistic:.3f} in [{res.low:.3f}, {res.high:.3f}]")
    0.133 in [0.054, 0.225]
    >>> res.pvalue
    0.04
    """
    strata = strata_of(y_true, stratify, ood_label, classes)
    given = metric_params, ood_label, classes
    both = [a if isinstance(a, tuple | dict) else (a,) for a in (arrays_a, arrays_b)]
    pair = [make_system(metric, y_true, arrays, *given) for arrays in both]
    _check_alike(*pair)
    value_a = finite_value(pair[0], "system a")
    value_b = finite_value(pair[1], "system b")
    difference = value_a - value_b
    random_state = check_random_state(random_state)
    bootstrap = Bootstrap(pair, strata, random_state)
    draws = finite_values(bootstrap, n_resamples, n_jobs, "resamples")
    draws = draws[:, 0] - draws[:, 1]
    low, high = interval(difference, draws, "percentile", confidence_level)
    # a difference that is equal but for rounding counts on either side
    rounding = 1e-12 * max(1.0, abs(difference))
    if method == "bootstrap":
        greater, less = draws <= rounding, draws >= -rounding
    else:
        if rank:
            both = [_ranked(metric, arrays) for arrays in both]
            pair = [make_system(metric, y_true, arrays, *given) for arrays in both]
            _check_unchanged(pair, (value_a, value_b))
        swap = _Swap(pair, random_state)
        draws = finite_values(swap, n_resamples, n_jobs, "permutations")
        greater, less = draws >= difference - rounding, draws <= difference + rounding
    p = {
        side: float((1 + np.count_nonzero(hits)) / (1 + n_resamples))
        for side, hits in (("greater", greater), ("less", less))
    }
    p["two-sided"] = min(1.0, 2 * min(p.values()))
    return PairedTestResult(difference, p[alternative], low, high, value_a, value_b)

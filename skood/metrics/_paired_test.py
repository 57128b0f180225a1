"""Paired tests of two systems on the same samples, and effect sizes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
import math
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from scipy.special import nctdtrinc
from scipy.stats import rankdata
from sklearn.utils import check_array, check_random_state

from skood.decision import Estimate
from skood.metrics._intervals import checked_bounds, difference_interval
from skood.metrics._resampling import (
    Bootstrap,
    Resampling,
    effective_sizes,
    finite_value,
    finite_values,
    make_system,
    parameters_of,
    seed_of,
    strata_of,
)
from skood.metrics._sample_checks import check_ood
from skood.metrics._unseen import relevant_strata
from skood.utils._param_validation import Interval, StrOptions, validate_params
from skood.utils._torch import to_numpy

# Arguments of metrics that may be replaced by their ranks, and arguments that are
# already on a common scale.
_SCORES = ("y_score", "ood_score")
_COMMON_SCALE = ("y_pred", "y_proba", "loss")


class PairedTestResult(NamedTuple):
    """Result of :func:`paired_test`.

    Parameters
    ----------
    statistic : float
        The metric of system a minus the metric of system b.

    pvalue : float
        Probability of a difference at least as large under the null hypothesis.

    low, high : float
        Ends of the two-sided interval of the difference.

    value_a, value_b : float
        The metric of either system.

    effect_size : Estimate
        ``value``, ``low`` and ``high`` of the difference in units of the standard
        deviation over samples; NaN if the difference is equal on all resamples.

    See Also
    --------
    paired_test : Compares two systems.
    cohen_d : Effect size over seeds, or over data sets.
    """

    statistic: float
    pvalue: float
    low: float
    high: float
    value_a: float
    value_b: float
    effect_size: Estimate


def _effect_size(difference, draws, sizes, confidence_level):
    """Return the difference over the standard deviation of one sample's fraction."""
    n = float(np.sum(sizes))
    error = np.std(draws, ddof=1)
    # resamples of equal systems differ by rounding errors
    if n < 2 or not error > 1e-14 * np.abs(draws).max():
        return Estimate(math.nan, math.nan, math.nan)
    # of a mean the resamples have the population variance over n
    error *= math.sqrt(n / (n - 1))
    scale = 1 / math.sqrt(n)
    return noncentral_t_interval(
        scale * difference / error, scale, n - 1, confidence_level
    )


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
    names = _names(metric, len(arrays))
    return tuple(_common_scale(name, a) for name, a in zip(names, arrays, strict=True))


def _names(metric, n_arrays):
    """Return the names of the first parameters of a metric after `y_true`, or None."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [name for name, p in parameters_of(metric).items() if p.kind in kinds][1:]
    return [*names, *[None] * n_arrays][:n_arrays]


def _common_scale(name, array):
    """Return the arrays of a system that may be swapped with another system."""
    if array is None or name in _COMMON_SCALE:
        return array
    array = to_numpy(array)
    if name in _SCORES and np.ndim(array) == 1:
        return rankdata(array)
    raise ValueError(
        f"The metric has an array {name or 'without a name'!r} of {np.ndim(array)} "
        f"dimension(s), and it is unknown whether two systems share its scale: "
        f"{_SCORES} of one dimension are ranked, {_COMMON_SCALE} are taken as they "
        f"are. Pass rank=False if all arrays are on a common scale, or use "
        f"Resampling(method='bootstrap')."
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
                f"use Resampling(method='bootstrap')."
            )


class _SwappedDifference:
    """Return the difference of two systems after swapping random samples."""

    def __init__(self, pair, rank, random_state):
        self.pair = pair
        self.rank = rank
        self.names = _names(pair[0].metric, len(pair[0].arrays))
        self.entropy = seed_of(random_state)

    def __call__(self, i):
        rng = np.random.default_rng([*self.entropy, i])
        swap = rng.integers(2, size=self.pair[0].y_true.shape[0]).astype(bool)
        a, b = self.pair
        return (
            self._mixed(a, b, swap, rng).value() - self._mixed(b, a, swap, rng).value()
        )

    def _mixed(self, a, b, swap, rng):
        """Return system a with the samples in `swap` taken from b."""

        def mix(name, x, y):
            if x is None:
                return None
            mixed = np.where(swap.reshape(-1, *[1] * (x.ndim - 1)), y, x)
            if self.rank and name in _SCORES:
                # Ranks of ties of a and b differ, so that a mixture has fewer ties: its
                # order, equal ranks in random order, is put on the ties of a. Ranks
                # are multiples of 1/2.
                mixed[np.argsort(mixed + rng.random(x.size) / 2)] = np.sort(x)
            return mixed

        named = zip(self.names, a.arrays, b.arrays, strict=True)
        row_params = {
            name: mix(name, x, b.row_params[name]) for name, x in a.row_params.items()
        }
        return a._replace(
            arrays=tuple(mix(*arrays) for arrays in named), row_params=row_params
        )


@validate_params(
    {
        "metric": [callable],
        "alternative": [StrOptions({"two-sided", "greater", "less"})],
        "rank": ["boolean"],
        "bounds": [tuple, list, None],
        "resampling": [Resampling, None],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    },
    prefer_skip_nested_validation=False,  # of the parameters of the metric
)
def paired_test(
    metric,
    y_true,
    arrays_a,
    arrays_b,
    *,
    alternative="two-sided",
    rank=True,
    bounds=None,
    resampling=None,
    random_state=None,
    ood_label=-1,
    classes=None,
    n_jobs=None,
    **metric_params,
):
    r"""Test whether a metric of two systems differs, on the same samples.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    metric, y_true, bounds, random_state, ood_label, classes, n_jobs, **metric_params
        As in :func:`bootstrap_ci`; `random_state` controls permutations as well.

    arrays_a, arrays_b : array-like of shape (n_samples, ...), tuple or dict of them
        Arguments of the metric after `y_true`, from system a and from system b: one
        array, a tuple of several, or a dict of them by name. None is allowed.

    alternative : {"two-sided", "greater", "less"}, default="two-sided"
        "greater": the metric of a is greater than the metric of b, whether higher is
        better or not.

    rank : bool, default=True
        Only for permutations: whether `y_score` and `ood_score`, identified by the
        parameter names of the metric, are replaced by their ranks within either system
        before samples are swapped. `y_pred`, `y_proba` and `loss` are swapped as they
        are. False: all arrays are swapped as they are, which requires scores on a
        common scale.

    resampling : Resampling, default=None
        Number of resamples, type of the test (see Notes) and level of the interval of
        the difference. None: ``Resampling()``, 999 permutations and 95 %.

    Returns
    -------
    result : PairedTestResult
        The difference a - b in `statistic`, `pvalue`, the ends `low` and `high` of
        its two-sided interval (for either method; NaN where there is none), `value_a`
        and `value_b`, and the `effect_size`, see Notes.

    Raises
    ------
    ValueError
        If the metric is NaN or infinite on the data or on a resample, if the systems
        have different arrays, or if `rank` is True and the metric has an array of
        another name, or changes when scores are ranked (so that ranks cannot replace
        scores).
    TypeError
        If the metric does not return a number.

    See Also
    --------
    bootstrap_ci : Interval of one system.

    Notes
    -----
    *Permutation.* Under the null hypothesis the systems are exchangeable, so that
    swapping the samples of any subset gives an equally likely pair. With the difference
    :math:`d` on the data and :math:`d_b` after swapping each sample with probability
    1/2, the p-value for "greater" is

    .. math::
        p = \frac{1 + \#\{b : d_b \ge d\}}{1 + B}

    and the two-sided one twice the smaller of both sides, at most 1. Two detectors have
    scores of different scales, and a mixture of both would order the samples by the
    origin of their score: on the same scale the test is valid, on different scales it
    has no power. So scores are replaced by their ranks within each system first [1]_
    [2]_, which leaves metrics of the order of scores unchanged. After swapping, samples
    of equal rank are put in random order [1]_, and the k-th sample of a system receives
    the k-th smallest rank of this system before swapping: otherwise tied scores would
    not be tied after swapping, and a metric that accepts ties together, such as
    :func:`fpr_at_tpr`, would vary less than on the data. All samples given are ranked
    together; for a metric of ID samples only, pass ID samples only. The null hypothesis
    is exchangeability on these samples, not merely an equal metric. Ranks in a sample
    replace ranks in the population, so that the level is close but not exact, and
    conservative on few tied samples.

    *Bootstrap.* The null hypothesis is that the metrics are equal; no common scale is
    needed, so that it suits any metric, but its level is only asymptotic. With the
    differences :math:`d^*_b` on resamples of the samples, common to both systems, the
    p-value for "greater" is :math:`(1 + \#\{b : d^*_b \le 0\}) / (1 + B)`. So the
    two-sided p-value is at most :math:`\alpha` about when the percentile interval of
    level :math:`1 - \alpha` excludes 0.

    *Interval.* It follows from the interval :math:`[l, u]` of either system by
    :func:`bootstrap_ci` and the correlation :math:`r` of their values on common
    resamples [3]_: the lower end is

    .. math::
        \hat\theta_a - \hat\theta_b - \sqrt{(\hat\theta_a - l_a)^2
        + (u_b - \hat\theta_b)^2 - 2 r (\hat\theta_a - l_a) (u_b - \hat\theta_b)}

    and the upper end likewise. It is extended by the differences that result if unseen
    samples are good for one system and bad for the other. So the interval of two
    systems that are perfect on few samples is not [0, 0].

    *Effect size.* With the standard error :math:`s` of the difference over resamples
    of :math:`n` samples (ID samples only, if the metric depends only on them)

    .. math::
        \delta = \frac{\hat\theta_a - \hat\theta_b}{s \sqrt{n}} .

    For a metric that is a mean over samples this is Cohen's d of the paired samples
    [4]_, the mean of their differences over its standard deviation; for others the
    deviations are the influences of the samples. Its interval is that of
    :func:`cohen_d`, from the noncentral t distribution.

    References
    ----------
    .. [1] E. S. Venkatraman, C. B. Begg. A distribution-free procedure for comparing
       receiver operating characteristic curves from a paired experiment.
       Biometrika, 1996.
    .. [2] A. I. Bandos, H. E. Rockette, D. Gur. A permutation test sensitive to
       differences in areas for comparing ROC curves from a paired design. Statistics
       in Medicine, 2005.
    .. [3] G. Y. Zou. On the estimation of additive interaction by use of the
       four-by-two table and beyond. American Journal of Epidemiology 168, 2008.
    .. [4] J. Cohen. Statistical power analysis for the behavioral sciences. 1988.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.metrics import Resampling, auroc, paired_test
    >>> rng = np.random.default_rng(0)
    >>> y_true = np.repeat([0, -1], 50)
    >>> good = rng.normal(size=100) + 2 * (y_true == 0)
    >>> poor = 1000 * (rng.normal(size=100) + (y_true == 0))
    >>> few = Resampling(n_resamples=199)
    >>> res = paired_test(auroc, y_true, good, poor, resampling=few, random_state=0)
    >>> print(f"{res.statistic:.3f} in [{res.low:.3f}, {res.high:.3f}]")
    0.133 in [0.036, 0.237]
    >>> res.pvalue
    0.04
    """
    resampling = Resampling._checked(resampling)
    n_resamples, level = resampling.n_resamples, resampling.confidence_level
    weight = metric_params.get("sample_weight")
    strata = strata_of(y_true, resampling.stratify, ood_label, classes, weight)
    arguments = metric_params, ood_label, classes
    both = [a if isinstance(a, tuple | dict) else (a,) for a in (arrays_a, arrays_b)]
    pair = [make_system(metric, y_true, arrays, *arguments) for arrays in both]
    _check_alike(*pair)
    value_a = finite_value(pair[0], "system a")
    value_b = finite_value(pair[1], "system b")
    difference = value_a - value_b
    bounds = checked_bounds(bounds, pair[0], value_a)
    random_state = check_random_state(random_state)
    bootstrap = Bootstrap(pair, strata, random_state)
    draws = finite_values(bootstrap, n_resamples, n_jobs, "resamples")
    is_ood = check_ood(pair[0].y_true, ood_label, classes)
    known = (value_a, value_b), draws, strata, is_ood, bounds
    low, high = difference_interval(pair, *known, level)
    draws = draws[:, 0] - draws[:, 1]
    sizes = effective_sizes(pair[0], relevant_strata(pair[0], strata, is_ood))
    effect = _effect_size(difference, draws, sizes, level)
    # a difference that is equal up to rounding counts on either side
    rounding = 1e-12 * max(1.0, abs(difference))
    if resampling.method == "bootstrap":
        greater, less = draws <= rounding, draws >= -rounding
    else:
        if rank:
            both = [_ranked(metric, arrays) for arrays in both]
            pair = [make_system(metric, y_true, arrays, *arguments) for arrays in both]
            _check_unchanged(pair, (value_a, value_b))
        swap = _SwappedDifference(pair, rank, random_state)
        draws = finite_values(swap, n_resamples, n_jobs, "permutations")
        greater, less = draws >= difference - rounding, draws <= difference + rounding
    p = {
        side: float((1 + np.count_nonzero(hits)) / (1 + n_resamples))
        for side, hits in (("greater", greater), ("less", less))
    }
    p["two-sided"] = min(1.0, 2 * min(p.values()))
    return PairedTestResult(
        difference, p[alternative], low, high, value_a, value_b, effect
    )


@validate_params(
    {
        "paired": ["boolean"],
        "confidence_level": [Interval(Real, 0, 1, closed="neither")],
    },
    prefer_skip_nested_validation=True,
)
def cohen_d(a, b, *, paired=False, confidence_level=0.95):
    r"""Cohen's d: a difference of means in standard deviations.

    For results of two methods, such as their AUROC over seeds, with means
    :math:`\bar a, \bar b` and sample variances :math:`s_a^2, s_b^2`,

    .. math:: d = \frac{\bar a - \bar b}{\sqrt{(s_a^2 + s_b^2) / 2}} ,

    or, for pairs of results of the same seeds, the mean of the differences over their
    standard deviation [1]_. Unlike a p-value it does not grow with the number of seeds.
    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    a, b : array-like of shape (n_a,) and (n_b,)
        Results of the two methods, at least two of each.

    paired : bool, default=False
        Whether ``a[i]`` and ``b[i]`` belong to the same seed.

    confidence_level : float, default=0.95
        Coverage of the interval, for normally distributed results of equal variance
        (with `paired`: normally distributed differences).

    Returns
    -------
    d : Estimate
        ``value``, ``low`` and ``high``: the effect size and its interval, from the
        noncentral t distribution. Positive if `a` is larger.

    Raises
    ------
    ValueError
        If there are fewer than two results, NaN, no spread or, with `paired`, unequal
        numbers of results.

    See Also
    --------
    paired_test : Compares two methods on the samples of one data set; its
        ``effect_size`` is in units of the standard deviation over samples.

    References
    ----------
    .. [1] J. Cohen. Statistical power analysis for the behavioral sciences. 1988.

    Examples
    --------
    >>> from skood.metrics import cohen_d
    >>> d = cohen_d([1, 2, 3], [0, 1, 2])
    >>> d.value, round(d.low, 2), round(d.high, 2)
    (1.0, -0.78, 2.68)
    """
    a, b = (_results(values, name) for values, name in ((a, "a"), (b, "b")))
    if paired:
        if len(a) != len(b):
            raise ValueError(
                f"paired=True needs pairs of results, got {len(a)} in a and {len(b)} "
                "in b."
            )
        center, spread = np.mean(a - b), np.std(a - b, ddof=1)
        scale, df = np.sqrt(1 / len(a)), len(a) - 1
    else:
        center = np.mean(a) - np.mean(b)
        spread = np.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / 2)
        scale, df = np.sqrt(1 / len(a) + 1 / len(b)), len(a) + len(b) - 2
    # differences of equal results are rounding errors
    if spread <= 1e-14 * max(np.abs(a).max(), np.abs(b).max()):
        raise ValueError(
            "The results have no spread (standard deviation 0), so that there is no "
            f"effect size. The means differ by {center:.4g}."
        )
    value = center / spread
    return noncentral_t_interval(value, scale, df, confidence_level)


def noncentral_t_interval(value, scale, df, confidence_level):
    """Return an effect size with its interval; value / scale is Student's t."""
    tail = (1 - confidence_level) / 2
    # the noncentralities for which t is the quantile of a probability
    ends = scale * nctdtrinc(df, np.array([1 - tail, tail]), value / scale)
    return Estimate(float(value), *ends.tolist())


def _results(values, name):
    """Return at least two finite numbers as an array."""
    values = check_array(values, ensure_2d=False, dtype=np.float64, input_name=name)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(
            f"{name} must have the shape (n,) with n >= 2 results, got {values.shape}."
        )
    return values

"""Size of a difference in units of the spread, with its interval."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from scipy.special import nctdtrinc
from sklearn.utils import check_array

from skood.decision import Estimate
from skood.utils._param_validation import Interval, validate_params


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

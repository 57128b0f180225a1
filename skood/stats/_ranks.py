"""P-values: checks, ranks, the step-up test, and the proportion of true nulls.

Estimates of the proportion take p-values of shape (m, n_samples): m for each sample,
ascending along the first axis.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral, Real

import numpy as np
from scipy.sparse import issparse

from skood.utils._ties import GUARD, loosened
from skood.utils._torch import to_numpy


def check_level(alpha, name="alpha", ends="()"):
    """Return a number between 0 and 1 as a float, or raise; `ends` as in "(0, 1]"."""
    interval = f"{ends[0]}0, 1{ends[1]}"
    if isinstance(alpha, (bool, np.bool_)) or not isinstance(alpha, Real):
        raise TypeError(f"{name} must be a number in {interval}, got {alpha!r}.")
    level = float(alpha)
    above = level >= 0 if ends[0] == "[" else level > 0
    if not (above and (level <= 1 if ends[1] == "]" else level < 1)):
        raise ValueError(f"{name} must be in {interval}, got {alpha!r}.")
    return level


def check_size(n_calibration):
    """Return the number of calibration samples as an int, or raise."""
    if isinstance(n_calibration, bool) or not isinstance(n_calibration, Integral):
        raise TypeError(
            "n_calibration must be an integer, the number of calibration samples that "
            f"the p-values refer to, got {n_calibration!r}."
        )
    if n_calibration < 1:
        raise ValueError(
            "There is no calibration sample: p-values are relative to the scores of "
            f"held-out ID samples, got n_calibration={n_calibration}."
        )
    return int(n_calibration)


def check_pvalues(pvalues, name="pvalues", *, ndim=1, n_calibration=None):
    """Return p-values with `ndim` axes; with `n_calibration` their ranks; or raise.

    The ranks r of p-values r / (n + 1) are 1, ..., n + 1. An empirical distribution
    function, which can be 0, is not accepted: for n = 100 and 1000 ID samples,
    Benjamini-Hochberg at 0.1 has a false discovery rate of 0.91 on it.
    """
    if issparse(pvalues):
        raise TypeError(f"{name} must be a dense array, got a sparse matrix.")
    p = np.asarray(to_numpy(pvalues))
    if p.dtype.kind not in "biufO" and p.size:
        raise ValueError(f"{name} must be numbers, got an array of dtype {p.dtype}.")
    if p.ndim != ndim:
        shape, hint = "(n_samples,)", ""
        if ndim == 2:
            shape = "(n_samples, n_detectors), or (n_splits, n_samples)"
            hint = f" Pass a row as {name}.reshape(1, -1), a column as (-1, 1)."
        raise ValueError(f"{name} must have the shape {shape}, got {p.shape}.{hint}")
    if not (p.dtype.kind == "f" and p.dtype.itemsize == 4):
        p = p.astype(np.float64, copy=False)  # long doubles too, for equal comparisons
    if np.isnan(p).any():
        raise ValueError(
            f"{name} has {int(np.isnan(p).sum())} NaN among {p.size} values. Leave the "
            "detectors, or the samples, out."
        )
    if p.min(initial=0) < 0 or p.max(initial=1) > 1:
        raise ValueError(
            f"{name} must be in [0, 1], got values from {p.min():g} to {p.max():g}; "
            "skood.combine.conformal_pvalues makes p-values of scores."
        )
    if n_calibration is None:
        return p
    n = check_size(n_calibration)
    exact = p.astype(np.float64) * (n + 1)
    ranks = np.rint(exact)
    eps = np.finfo(p.dtype).eps
    wrong = (np.abs(exact - ranks) > max(1e-6, min(2 * n * eps, 0.2))) | (ranks < 1)
    if wrong.any():
        raise ValueError(
            f"{name} must be conformal p-values of n_calibration={n} samples, the "
            f"multiples of 1/{n + 1} from 1/{n + 1} to 1. Got {p[wrong][0]:.6g} at the "
            f"index {np.flatnonzero(wrong)[0]}. Use conformal_pvalues, with "
            "method='conformal', and the number of its calibration scores."
        )
    return ranks.astype(np.intp)


def min_selected(n_samples, n_calibration, alpha):
    """Return the smallest size of a Benjamini-Hochberg selection that is not empty."""
    return math.ceil(n_samples / (loosened(alpha) * (n_calibration + 1)))


def step_up(ranks, values, m0):
    """Return the smallest selecting level of each possible rank, of shape (n + 2,).

    The p-value of rank r is ``values[r]``, non-decreasing in r: the level is the
    minimum of ``m0 * p_(k) / k`` over the p-values that are at least as large. The
    samples are not sorted, but counted by rank.
    """
    counts = np.bincount(ranks, minlength=len(values))
    n_at_most = np.cumsum(counts)
    levels = np.full(len(values), np.inf)
    seen = counts > 0
    levels[seen] = m0 * values[seen] / n_at_most[seen]
    return np.minimum.accumulate(levels[::-1])[::-1]


# Thresholds of Storey's estimate, Eq. (8) of DSDE: 0, .01, ..., .95.
LAMBDA_GRID = np.arange(96) / 100


def change_point_range(m, c_m):
    """Return the first and last index of a change point of m p-values, or raise."""
    if m < 2:
        raise ValueError(
            "DOSStorey compares the slopes of p-values on both sides of a change "
            f"point, and needs at least 2 detectors (4 with c_m=None). Got {m}: use "
            "DetectorEnsemble(detectors, BenjaminiHochberg()), which leaves a single "
            "p-value as it is."
        )
    first, last = 2 if c_m is None else max(1, math.ceil(m * c_m - GUARD)), m // 2
    if first <= last:
        return first, last
    limit = (
        f"c_m in (0, {last}/{m}], that is at most {math.floor(last / m * 1e4) / 1e4:g}."
    )
    if c_m is None:
        raise ValueError(
            "DOSStorey, the combiner of DSDE, needs at least 4 detectors to find a "
            f"change point of their p-values, got {m}. Add detectors, use "
            "DetectorEnsemble(detectors, BenjaminiHochberg()), which needs one, or "
            f"pass {limit}"
        )
    raise ValueError(
        "DOSStorey looks for a change point k with m * c_m <= k <= m / 2, and for "
        f"m={m} detectors c_m={c_m:g} leaves none. Pass {limit}"
    )


def slope_differences(p, beta):
    """Return ``(p_(2i) - 2 p_(i)) / i ** beta``, (m // 2, n_samples)."""
    half = len(p) // 2
    d = p[1 : 2 * half : 2] - 2.0 * p[:half]
    d /= (np.arange(1, half + 1) ** float(beta))[:, None]
    return d


def change_point(p, beta, first, fallback):
    """Return the index, from 1, of the largest difference of slopes of each sample.

    With ``fallback="bh"`` it is 0 for samples without a positive difference.
    """
    d = slope_differences(p, beta)[first - 1 :]
    k = d.argmax(axis=0) + first
    if fallback == "bh":
        k[d.max(axis=0) <= 0] = 0
    return k


def change_point_proportion(p, k):
    """Return ``min(1, (1 - k / m) / (1 - p_(k)))``; 1 if k is 0 or ``p_(k)`` is 1."""
    m = len(p)
    at = p[np.maximum(k, 1) - 1, np.arange(p.shape[1])]
    pi0 = np.ones(p.shape[1])
    # the quotient in Eq. (15) of DSDE, which is printed as a product
    np.divide((m - k) / m, 1.0 - at, out=pi0, where=(k > 0) & (at < 1))
    return np.minimum(pi0, 1.0, out=pi0)


def storey_proportion(p, lam, plus_one):
    """Return Storey's ``(#{p > lam} + plus_one) / (m (1 - lam))``, at most 1."""
    count = np.count_nonzero(p > lam, axis=0) + int(plus_one)
    return np.minimum(count / (len(p) * (1.0 - lam)), 1.0)


def proportion_curve(p, grid, plus_one):
    """Return Storey's estimates at thresholds, not clipped: (n_grid, n_samples)."""
    curve = np.stack([np.count_nonzero(p > lam, axis=0) for lam in grid])
    return (curve + float(plus_one)) / (len(p) * (1.0 - grid))[:, None]


def bootstrap_proportion(p, grid, plus_one):
    r"""Return the estimate of the threshold with the least estimated squared error.

    The mean of bootstrap samples needs no resampling: with W p-values above
    :math:`\lambda` the variance is :math:`W / (m (1 - \lambda))^2 \cdot (1 - W / m)`,
    and the bias is the difference from the 10 % quantile of the estimates.
    """
    m = len(p)
    curve = proportion_curve(p, grid, plus_one)
    weight = (m * (1.0 - grid))[:, None]
    above = curve * weight - float(plus_one)
    variance = above / weight**2 * (1.0 - above / m)
    error = variance + (curve - np.quantile(curve, 0.1, axis=0)) ** 2
    # the smallest of tied thresholds, also if rounding has separated them
    tied = error <= error.min(axis=0) + GUARD
    best = curve[tied.argmax(axis=0), np.arange(curve.shape[1])]
    return np.minimum(best, 1.0)


def smoother_proportion(p, grid, plus_one):
    """Return the value at the last threshold of a cubic fitted to the estimates."""
    powers = np.vander(grid, 4)
    at_last = powers[-1] @ np.linalg.pinv(powers)
    fitted = np.zeros(p.shape[1])
    for factor, estimates in zip(
        at_last, proportion_curve(p, grid, plus_one), strict=True
    ):
        fitted += factor * estimates  # in this order, for any number of samples
    return np.clip(fitted, 0.0, 1.0)

"""Estimates of the proportion of true null hypotheses among a few p-values.

All functions take p-values of shape (m, n_samples): m for each sample, ascending along
the first axis.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np

from skood.utils._ties import GUARD

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

"""Estimates of the proportion of true null hypotheses among a few p-values.

All functions take p-values of shape (m, n_samples), m of each sample in ascending order
along the first axis.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np

from skood.decision import GUARD

__all__ = [
    "change_point",
    "change_point_proportion",
    "change_point_range",
    "slope_differences",
    "storey_proportion",
]


def change_point_range(m, c_m):
    """Return the first and the last index that a change point may have.

    Parameters
    ----------
    m : int
        Number of p-values.

    c_m : float or None
        Smallest share of p-values before the change point; None: 2 / m.

    Returns
    -------
    first, last : int
        ``max(1, ceil(m c_m))`` and ``floor(m / 2)``.

    Raises
    ------
    ValueError
        If there is none in between.
    """
    if m < 2:
        raise ValueError(
            "DOSStorey compares the slopes of p-values on both sides of a change "
            f"point, and needs at least 2 detectors (4 with c_m=None). Got {m}: use "
            "DetectorEnsemble(detectors, BenjaminiHochberg()), which leaves a single "
            "p-value as it is."
        )
    first, last = 2 if c_m is None else max(1, math.ceil(m * c_m - GUARD)), m // 2
    if first > last:
        if c_m is None:
            raise ValueError(
                "DOSStorey, the combiner of DSDE, needs at least 4 detectors to find a "
                f"change point of their p-values, got {m}. Add detectors, use "
                "DetectorEnsemble(detectors, BenjaminiHochberg()), which needs one, or "
                f"pass c_m in (0, {last}/{m}], that is at most "
                f"{math.floor(last / m * 1e4) / 1e4:g}."
            )
        raise ValueError(
            "DOSStorey looks for a change point k with m * c_m <= k <= m / 2, and for "
            f"m={m} detectors c_m={c_m:g} leaves none. Pass c_m in (0, {last}/{m}], "
            f"that is at most {math.floor(last / m * 1e4) / 1e4:g}."
        )
    return first, last


def slope_differences(p, beta):
    """Differences of slope at the first half of the p-values.

    Parameters
    ----------
    p : ndarray of shape (m, n_samples)
        Sorted p-values.

    beta : float
        Power of the index that scales them.

    Returns
    -------
    d : ndarray of shape (m // 2, n_samples)
        ``(p_(2i) - 2 p_(i)) / i ** beta`` for i = 1, 2, ….
    """
    half = len(p) // 2
    d = p[1 : 2 * half : 2] - 2.0 * p[:half]
    d /= (np.arange(1, half + 1) ** float(beta))[:, None]
    return d


def change_point(p, beta, first, fallback):
    """Where the sorted p-values bend most: the index of the largest difference.

    Parameters
    ----------
    p : ndarray of shape (m, n_samples)
        Sorted p-values.

    beta : float
        See `slope_differences`.

    first : int
        The smallest index to look at.

    fallback : {"bh", "argmax"}
        Whether samples without a positive difference have the index 0.

    Returns
    -------
    k : ndarray of shape (n_samples,), dtype int64
        Index, from 1 on; the smallest of equally large differences.
    """
    d = slope_differences(p, beta)[first - 1 :]
    k = d.argmax(axis=0) + first
    if fallback == "bh":
        k[d.max(axis=0) <= 0] = 0
    return k


def change_point_proportion(p, k):
    """Storey's estimate with the p-value at the change point as its threshold.

    Parameters
    ----------
    p : ndarray of shape (m, n_samples)
        Sorted p-values.

    k : ndarray of shape (n_samples,)
        Change points; 0: none.

    Returns
    -------
    pi0 : ndarray of shape (n_samples,)
        ``min(1, (1 - k / m) / (1 - p_(k)))``, and 1 where k is 0 or ``p_(k)`` is 1.
    """
    m = len(p)
    at = p[np.maximum(k, 1) - 1, np.arange(p.shape[1])]
    pi0 = np.ones(p.shape[1])
    np.divide((m - k) / m, 1.0 - at, out=pi0, where=(k > 0) & (at < 1))
    return np.minimum(pi0, 1.0, out=pi0)


def storey_proportion(p, lam, plus_one):
    """Storey's estimate: the share of p-values above a threshold, scaled.

    Parameters
    ----------
    p : ndarray of shape (m, n_samples)
        Sorted p-values.

    lam : float
        The threshold.

    plus_one : bool
        Whether one is added to the count.

    Returns
    -------
    pi0 : ndarray of shape (n_samples,)
        ``(#{p > lam} + plus_one) / (m (1 - lam))``, clipped at 1.
    """
    count = np.count_nonzero(p > lam, axis=0) + int(plus_one)
    return np.minimum(count / (len(p) * (1.0 - lam)), 1.0)

"""P-values as ranks among calibration scores, and the step-up test on them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Integral, Real

import numpy as np

from skood.utils._ties import loosened
from skood.utils._torch import to_numpy


def check_level(alpha, name="alpha"):
    """Return a level in (0, 1) as a float, or raise."""
    if isinstance(alpha, (bool, np.bool_)) or not isinstance(alpha, Real):
        raise TypeError(f"{name} must be a number in (0, 1), got {alpha!r}.")
    level = float(alpha)
    if not 0 < level < 1:
        raise ValueError(f"{name} must be in (0, 1), got {alpha!r}.")
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


def check_pvalues(pvalues, *, ndim=1):
    """Return p-values of shape (n_samples,), or (n_splits, n_samples), or raise."""
    p = np.asarray(to_numpy(pvalues))
    if p.dtype.kind not in "biuf" and p.size:
        raise ValueError(f"pvalues must be numbers, got an array of dtype {p.dtype}.")
    if p.ndim != ndim:
        shape = "(n_samples,)" if ndim == 1 else "(n_splits, n_samples)"
        raise ValueError(f"pvalues must have the shape {shape}, got {p.shape}.")
    if not (p.dtype.kind == "f" and p.dtype.itemsize == 4):
        p = p.astype(np.float64, copy=False)
    if p.size == 0:
        return p
    if np.isnan(p).any():
        raise ValueError(
            f"pvalues has {int(np.isnan(p).sum())} NaN among {p.size} values. Leave "
            "these samples out."
        )
    if p.min() < 0 or p.max() > 1:
        raise ValueError(
            f"pvalues must be in [0, 1], got values from {p.min():g} to {p.max():g}; "
            "skood.combine.conformal_pvalues makes p-values of scores."
        )
    return p


def check_ranks(pvalues, n_calibration, *, ndim=1):
    """Return the ranks r of p-values r / (n + 1), r = 1, ..., n + 1, or raise.

    An empirical distribution function, which can be 0, is not accepted: for n = 100 and
    1000 ID samples, Benjamini-Hochberg at 0.1 has a false discovery rate of 0.91 on it.
    """
    p, n = check_pvalues(pvalues, ndim=ndim), check_size(n_calibration)
    exact = p.astype(np.float64) * (n + 1)
    ranks = np.rint(exact)
    eps = np.finfo(p.dtype).eps
    wrong = (np.abs(exact - ranks) > max(1e-6, min(2 * n * eps, 0.2))) | (ranks < 1)
    if wrong.any():
        raise ValueError(
            f"pvalues must be conformal p-values of n_calibration={n} samples, the "
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

"""Tied scores: thresholds are placed between distinct scores only.

A sample's score varies between calls: networks compute in float32, and the order of
summation depends on the batch size and the number of threads. Scores whose difference
is within such rounding errors are tied. Thresholds are placed between scores that are
not tied, as far from both as possible, so that rounding does not change decisions.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

__all__ = [
    "ends_of_ties",
    "merged_ties",
    "threshold_at",
    "threshold_between",
    "tie_scale",
    "tolerance",
]

# Scores whose difference is less than this share of their spread, and less than ten
# times this share of their magnitude, are tied.
_ROUNDING = 1e-5

# A spread that is a smaller share of the typical magnitude than this is rounding.
_COLLAPSED = 1e-6

# Scores are clipped at this magnitude to compute their spread.
_LARGE = 1e300


def ends_of_ties(ranked):
    """Return the last index of each group of equal values in a sorted array."""
    return np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1)


def tie_scale(scores):
    """Return the scales of scores that `tolerance` is relative to: least and spread.

    `least` bounds the magnitude of a score from below: zero if all have one sign, for
    then small scores have small errors. `spread` is the interquartile range of finite
    scores, a wider range, or the typical magnitude, if it is zero or within rounding
    errors.
    """
    finite = np.clip(scores[np.isfinite(scores)], -_LARGE, _LARGE)
    if finite.size == 0:
        return 0.0, 0.0
    typical = float(np.median(np.abs(finite)))
    least = typical if finite.min() < 0 < finite.max() else 0.0
    for tail in (0.25, 0.05, 0.0):
        low, high = np.quantile(finite, [tail, 1 - tail])
        if high - low > _COLLAPSED * typical:
            return least, float(high - low)
    return least, typical


def tolerance(scores, least, spread):
    """Return the largest difference from each score that counts as a tie, finite.

    `least` and `spread` are from `tie_scale` of reference samples.
    """
    size = np.maximum(np.abs(scores), least)
    return _ROUNDING * np.minimum(10 * np.minimum(size, _LARGE), spread)


def threshold_between(low, high, scores):
    """Return a threshold between two neighboring scores, far from both.

    It is halfway between finite scores, or beyond a single finite one by the tolerance
    of ties of `scores`; at least `low`, and less than a finite `high`.
    """
    if np.isfinite(low) and np.isfinite(high):
        middle = low / 2 + high / 2
        return float(middle if low < middle < high else low)
    if np.isfinite(low):
        return float(low + tolerance(low, *tie_scale(scores)))
    if np.isfinite(high):
        beyond = high - tolerance(high, *tie_scale(scores))
        return float(min(beyond, np.nextafter(high, -np.inf)))
    return float(low)


def threshold_at(scores, share):
    """Return a threshold that at most a share of the scores is below.

    Scores tied with the quantile of this level are above it: it is in the middle of the
    widest gap whose upper end is at most the quantile and tied with it, or below all
    scores by the tolerance of ties. Infinite or NaN if the quantile is.
    """
    # a product such as 0.29 * 100 may be rounded down
    rank = int(share * len(scores) * (1 + 1e-12))
    top = float(np.partition(scores, rank)[rank])
    if not np.isfinite(top):
        return top
    scale = tie_scale(scores)
    low = top - float(tolerance(top, *scale))
    tied = np.unique(scores[(scores >= low) & (scores <= top)])
    below = scores[np.isfinite(scores) & (scores < low)]
    if not below.size:
        return threshold_between(-np.inf, tied[0], scores)
    edges = np.append(below.max(), tied)
    k = np.argmax(edges[1:] / 2 - edges[:-1] / 2)
    return threshold_between(edges[k], edges[k + 1], scores)


def merged_ties(scores):
    """Return scores, each replaced by the center of its group of ties.

    A chain of scores, each tied with the next, is one group if its ends are tied as
    well. Longer chains are dense data, where rounding affects few: they are not
    changed.
    """
    if scores.size < 2:
        return scores
    order = np.argsort(scores)
    ranked = scores[order]
    tol = tolerance(ranked, *tie_scale(scores))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = ranked[1:] - ranked[:-1] > np.minimum(tol[1:], tol[:-1])
    apart |= np.isinf(ranked[1:]) | np.isinf(ranked[:-1])
    last = np.append(np.flatnonzero(apart), ranked.size - 1)
    first = np.append(0, last[:-1] + 1)
    with np.errstate(invalid="ignore"):
        wide = ranked[last] - ranked[first]
    tied = (wide > 0) & (wide <= np.maximum(tol[last], tol[first]))
    if not tied.any():
        return scores
    middle = ranked[first]
    middle[tied] = middle[tied] / 2 + ranked[last[tied]] / 2
    merged = np.empty_like(ranked)
    merged[order] = np.repeat(middle, last - first + 1)
    keep = np.repeat(~tied, last - first + 1)  # other groups are wide, or equal
    merged[order[keep]] = ranked[keep]
    return merged

"""Tied scores: thresholds are placed between distinct scores only.

A sample's score varies between calls: networks compute in float32, and the order of
summation depends on the batch size and the number of threads. Scores whose difference
is within such rounding errors are tied. Thresholds are placed between scores that are
not tied, as far from both as possible, so that rounding does not change decisions.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from bisect import bisect_left
from typing import Literal

import numpy as np

from skood.utils._weights import first_above, weighted_quantile

#: The sides of equal scores in `numpy.searchsorted`.
SIDES: tuple[Literal["left"], Literal["right"]] = "left", "right"

# Guard against rounding in ceil and floor of a fraction times a count, so that 0.7 of
# 10 samples are 7 samples; smaller amounts are no violation.
GUARD = 1e-9

# Scores whose difference is less than this fraction of their spread, and less than ten
# times this fraction of their magnitude, are tied.
_ROUNDING = 1e-5

# A number that exceeds its bound by less than this relative amount equals it, if both
# are fractions such as k / (n + 1), computed with rounding.
_SLACK = 1e-12

# A spread that is a smaller fraction of the typical magnitude than this is rounding.
_COLLAPSED = 1e-6

# With at least this many scores, sorting one array of keys is faster than `argsort`.
_MANY = 1000

# Scores are clipped at this magnitude to compute their spread.
_LARGE = 1e300

# Fractions of scores in each tail, outside the range that is their spread: the first
# whose range is not within rounding errors.
_TAILS = 0.25, 0.05, 0.0


def loosened(bound):
    """Return a bound, or bounds, increased by the slack for rounding of fractions."""
    return bound * (1 + _SLACK)


def ranked_scores(scores):
    """Return the order that sorts float64 scores without NaN, and the sorted scores.

    Keys of the leading bits of a score, ordered as integers, and of its index are
    sorted; scores that agree in the leading bits are sorted afterwards.
    """
    if scores.size < _MANY:
        order = np.argsort(scores)
        return order, scores[order]
    low = (1 << (scores.size - 1).bit_length()) - 1
    keys = (scores + 0.0).view(np.int64)  # there is one zero only
    keys ^= (keys >> 63) & np.iinfo(np.int64).max
    keys &= ~low
    keys |= np.arange(scores.size)
    keys.sort()
    order = keys & low
    ranked = scores[order]
    if (ranked[1:] < ranked[:-1]).any():
        keys &= ~low
        same = keys[1:] == keys[:-1]
        unsorted = np.flatnonzero(np.append(same, False) | np.append(False, same))
        if unsorted.size > scores.size / 8:
            order = np.argsort(scores)
            return order, scores[order]
        again = unsorted[np.lexsort((ranked[unsorted], keys[unsorted]))]
        order[unsorted], ranked[unsorted] = order[again], ranked[again]
    return order, ranked


def ends_of_ties(ranked):
    """Return the last index of each group of equal values in a sorted array."""
    ends = ranked[1:] != ranked[:-1]
    if ends.all():
        return np.arange(ranked.size)
    return np.append(np.flatnonzero(ends), ranked.size - 1)


def at_ends(values, last):
    """Return the values at the ends of groups of ties, without a copy if all are."""
    return values if last.size == values.size else values[last]


def tie_scale(scores, weight=None):
    """Return the scales of scores that `tolerance` is relative to: least and spread.

    `least` bounds the magnitude of a score from below: zero if all have one sign, for
    then small scores have small errors. `spread` is the interquartile range of finite
    scores, a wider range, or the typical magnitude, if it is zero or within rounding
    errors. Scores of integer `weight` count as repeated ones.
    """
    if weight is None:
        return tie_scale_of_ranked(np.sort(scores))
    order = np.argsort(scores)
    return tie_scale_of_ranked(scores[order], weight[order])


def tie_scale_of_ranked(ranked, weight=None):
    """Return the scales of sorted scores, which may have weights."""
    finite = finite_of_ranked(ranked)
    if finite.size == 0:
        return 0.0, 0.0
    if finite[0] < -_LARGE or finite[-1] > _LARGE:
        finite = np.clip(finite, -_LARGE, _LARGE)
    ends, n = None, finite.size
    if weight is None:  # the median magnitude
        lower = _ranked_size(finite, (n - 1) // 2)
        typical = (lower + _ranked_size(finite, n // 2)) / 2
    else:
        first = np.searchsorted(ranked, -np.inf, side="right")
        weight, sizes = weight[first : first + n], np.abs(finite)
        ends, order = np.cumsum(weight), np.argsort(sizes)
        typical = weighted_quantile(sizes[order], np.cumsum(weight[order]), 0.5)
    least = typical if finite[0] < 0 < finite[-1] else 0.0
    for tail in _TAILS:
        low = weighted_quantile(finite, ends, tail)
        high = weighted_quantile(finite, ends, 1 - tail)
        if high - low > _COLLAPSED * typical:
            return least, float(high - low)
    return least, typical


def finite_of_ranked(ranked):
    """Return the finite scores of sorted scores."""
    first = np.searchsorted(ranked, -np.inf, side="right")
    return ranked[first : np.searchsorted(ranked, np.inf)]


def _ranked_size(finite, k):
    """Return the magnitude of rank `k` among sorted finite scores, by bisection."""
    n, n_negative = finite.size, int(np.searchsorted(finite, 0.0))

    def enough(i):  # of the k smallest magnitudes, i belong to negative scores
        return -finite[n_negative - 1 - i] >= finite[n_negative + k - i - 1]

    fewest, most = max(0, k - n + n_negative), min(k, n_negative)
    i = bisect_left(range(most), True, lo=fewest, key=enough)
    negative = finite[max(n_negative - 1 - i, 0) : n_negative - i]
    positive = finite[n_negative + k - i : n_negative + k - i + 1]
    return abs(float(min([*-negative, *positive])))


def tolerance(scores, least, spread):
    """Return the largest difference from each score that counts as a tie, finite.

    `least` and `spread` are from `tie_scale` of reference samples.
    """
    size = np.abs(scores)
    if np.any(least):
        size = np.maximum(size, least)
    return _ROUNDING * np.minimum(10 * np.minimum(size, _LARGE), spread)


def threshold_between(low, high, scores, weight=None):
    """Return a threshold between two neighboring scores, far from both.

    It is halfway between finite scores, or beyond a single finite one by the tolerance
    of ties of `scores`; at least `low`, and less than a finite `high`.
    """
    if np.isfinite(low) and np.isfinite(high):
        middle = low / 2 + high / 2
        return float(middle if low < middle < high else low)
    if np.isfinite(low):
        return float(low + tolerance(low, *tie_scale(scores, weight)))
    if np.isfinite(high):
        beyond = high - tolerance(high, *tie_scale(scores, weight))
        return float(min(beyond, np.nextafter(high, -np.inf)))
    return float(low)


def threshold_at(scores, fraction, weight=None):
    """Return a threshold with at most a fraction of the (weight of) scores below it.

    Scores tied with the quantile of this level are above it: it is in the middle of the
    widest gap whose upper end is at most the quantile and tied with it, or below all
    scores by the tolerance of ties. Infinite or NaN if the quantile is.
    """
    # a product such as 0.29 * 100 may be rounded down
    if weight is None:
        rank = int(fraction * len(scores) * (1 + 1e-12))
        ranked, ranked_weight = np.sort(scores), None
    else:
        order = np.argsort(scores)
        ranked, ranked_weight = scores[order], weight[order]
        ends = np.cumsum(ranked_weight)
        rank = first_above(ends, fraction * ends[-1] * (1 + 1e-12))
    top = float(ranked[rank])
    if not np.isfinite(top):
        return top
    scale = tie_scale_of_ranked(ranked, ranked_weight)
    low = top - float(tolerance(top, *scale))
    first = np.searchsorted(ranked, low)
    tied = np.unique(ranked[first : np.searchsorted(ranked, top, side="right")])
    if first == 0 or ranked[first - 1] == -np.inf:
        return threshold_between(-np.inf, tied[0], scores, weight)
    edges = np.append(ranked[first - 1], tied)
    k = np.argmax(edges[1:] / 2 - edges[:-1] / 2)
    return threshold_between(edges[k], edges[k + 1], scores)


def merged_ties(scores, weight=None):
    """Return scores, each replaced by the center of its group of ties.

    A chain of scores, each tied with the next, is one group if its ends are tied as
    well. Longer chains are dense data, where rounding affects few: they are not
    changed.
    """
    if scores.size < 2:
        return scores
    order, ranked = ranked_scores(scores)
    ranked_weight = None if weight is None else weight[order]
    merged_ranked = merged_ties_of_ranked(ranked, ranked_weight)
    if merged_ranked is ranked:
        return scores
    merged = np.empty_like(ranked)
    merged[order] = merged_ranked
    return merged


def merged_ties_of_ranked(ranked, weight=None, scale=None):
    """Return sorted scores, merged as by `merged_ties`.

    `scale` is their `tie_scale`, for a part of all scores.
    """
    tol = tolerance(ranked, *(scale or tie_scale_of_ranked(ranked, weight)))
    with np.errstate(invalid="ignore", over="ignore"):
        near = ranked[1:] - ranked[:-1] <= np.minimum(tol[1:], tol[:-1])
    if np.isinf(ranked[:1]).any() or np.isinf(ranked[-1:]).any():
        near &= np.isfinite(ranked[1:]) & np.isfinite(ranked[:-1])
    # groups of at least two: they start where none is near before, and end likewise
    first = np.flatnonzero(near & np.append(True, ~near[:-1]))
    last = np.flatnonzero(near & np.append(~near[1:], True)) + 1
    wide = ranked[last] - ranked[first]
    tied = (wide > 0) & (wide <= np.maximum(tol[last], tol[first]))
    if not tied.any():
        return ranked
    first, last = first[tied], last[tied]
    size = last - first + 1
    indices = np.arange(size.sum()) + np.repeat(last + 1 - np.cumsum(size), size)
    merged = ranked.copy()
    merged[indices] = np.repeat(ranked[first] / 2 + ranked[last] / 2, size)
    return merged


def tie_around(ranked, k, scale):
    """Return the ends of the tie that a threshold above ``ranked[k]`` would separate.

    They are the first and last index of its scores in the sorted array, merged as by
    `merged_ties`; None if the scores of the indices `k` and ``k + 1`` are not tied.
    """
    if k + 1 >= ranked.size or not np.isfinite(ranked[k : k + 2]).all():
        return None
    # beyond this distance, a chain is too long for a tie; one more score shows it
    widest = _ROUNDING * scale[1]
    first = max(np.searchsorted(ranked, ranked[k] - widest) - 1, 0)
    last = np.searchsorted(ranked, ranked[k + 1] + widest, side="right") + 1
    merged = merged_ties_of_ranked(ranked[first:last], scale=scale)
    if merged[k - first] != merged[k + 1 - first]:
        return None
    ends = (np.searchsorted(merged, merged[k - first], side) for side in SIDES)
    low, high = (first + int(end) for end in ends)
    return low, high - 1

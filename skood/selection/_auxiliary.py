"""Auxiliary selections: what each sample would see if it were a calibration sample.

The lemma of all procedures that let the batch choose: for a sample j that is ID, the
numbers of this file are functions of the unordered set of the calibration samples and
j, and of the other samples of the batch, while the p-value of j is super-uniform given
these.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from sklearn.utils import check_random_state

from skood.utils._ties import loosened

# Number of float64 that a block of a matrix of pairs of samples may have.
_BLOCK = 2**20


def auxiliary_counts(scores, calibration_scores, alpha):
    """Return R_j, the size of the Benjamini-Hochberg set with p_j = 0, shape (m,).

    The other p-values are relative to the n calibration samples and j, divided by
    n + 1. Takes O((m + n) log(m + n)) for all samples.
    """
    m, n = len(scores), len(calibration_scores)
    alpha = loosened(alpha)
    ranked = np.sort(scores)
    c = np.sort(calibration_scores).searchsorted(ranked, side="right")
    i = np.arange(1, m + 1)
    # of a sample above j or tied with it, the count includes j: its rank stays i
    reached = np.flatnonzero((c + 1) * m <= alpha * i * (n + 1))
    last = reached[-1] + 1 if len(reached) else 0
    # of a sample below j it does not, and the rank is i + 1, since p_j = 0 is the first
    below = np.where(c * m <= alpha * (i + 1) * (n + 1), i + 1, 1)
    best_below = np.maximum.accumulate(np.concatenate([[1], below]))
    n_less = ranked.searchsorted(scores, side="left")
    n_at_most = ranked.searchsorted(scores, side="right")
    # if `last` is the rank of j alone, the sample before it has this rank as well
    return np.maximum(best_below[n_less], np.where(last >= n_at_most, last, 0))


def weighted_counts(scores, weights, calibration_scores, calibration_weights, alpha):
    """Return R_j of weighted p-values, of shape (m,), in O(m^2) by blocks."""
    m = len(scores)
    alpha = loosened(alpha)
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    mass = _mass_at_most(ranked, calibration_scores, calibration_weights)
    total = calibration_weights.sum()
    ends = ranked.searchsorted(ranked, side="right")
    positions = np.arange(m)
    counts = np.empty(m, dtype=np.intp)
    size = max(1, _BLOCK // max(m, 1))
    for start in range(0, m, size):
        at = positions[start : start + size, None]
        j = order[start : start + size]
        below = ranked < ranked[at]  # (block, m): samples l with s_l < s_j
        own = weights[j][:, None]
        rank = ends + below  # p_j = 0 is before the samples below j
        reached = (mass + own * ~below) * m <= alpha * rank * (total + own)
        reached &= positions != at
        counts[j] = np.where(reached, rank, 1).max(axis=1)
    return counts


def _mass_at_most(scores, calibration_scores, calibration_weights):
    """Return the weight of the calibration scores that are at most each score."""
    order = np.argsort(calibration_scores, kind="stable")
    cumulated = np.concatenate([[0.0], np.cumsum(calibration_weights[order])])
    at = calibration_scores[order].searchsorted(scores, side="right")
    return cumulated[at]


def weighted_pvalues(scores, weights, calibration_scores, calibration_weights):
    """Return (sum_i w_i 1{s_i <= s_j} + w_j) / (sum_i w_i + w_j)."""
    mass = _mass_at_most(scores, calibration_scores, calibration_weights)
    total = calibration_weights.sum()
    return (mass + weights) / (total + weights)


def check_pruning(pruning):
    """Raise unless `pruning` is "none", "shared" or a number in (0, 1]."""
    if pruning in ("none", "shared") if isinstance(pruning, str) else False:
        return
    number = isinstance(pruning, Real) and not isinstance(pruning, bool)
    if not (number and 0 < pruning <= 1):
        raise ValueError(
            f"pruning must be 'shared', 'none' or a number in (0, 1], got {pruning!r}."
        )


def xi_of(pruning, random_state):
    """Return xi of the pruning: 1, one uniform draw in (0, 1], or the given number."""
    if pruning == "none":
        return 1.0
    if pruning == "shared":
        return 1.0 - check_random_state(random_state).random_sample()
    return float(pruning)


def pruned(passed, counts, xi):
    """Return which samples that passed their test are selected, of shape (m,).

    R* = max{r : #{j passed : xi R_j <= r} >= r}; selected are those with
    xi R_j <= R*.
    """
    bounds = np.sort(xi * counts[passed])
    r = np.arange(len(bounds) + 1)
    n_within = bounds.searchsorted(loosened(r), side="right")
    largest = r[n_within >= r].max()
    return passed & (xi * counts <= loosened(largest))

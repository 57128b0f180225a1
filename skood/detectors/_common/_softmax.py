"""Numerically stable softmax quantities that distinguish saturated samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.utils._array_api import (
    array_namespace,
    as_double,
    row_indices,
    row_max,
    row_sums,
)

__all__ = ["logsumexp_rows", "shifted_exponentials"]


def shifted_exponentials(logits, temperature=1.0):
    """Return exponentials of logits relative to the largest, without the largest one.

    Returns three float64 arrays: exp((l_j - max l) / T), with 0 in place of the 1 of
    the largest logit; their sums `others` (n_samples,), so that softmax probabilities
    are exponentials / (1 + others), the largest 1 / (1 + others); and (l_j - max l) /
    T.
    """
    xp = array_namespace(logits)
    shifted = xp.astype(logits, xp.float64, copy=True)
    rows, top = row_indices(logits), xp.argmax(shifted, axis=1)
    shifted -= shifted[rows, top][:, None]
    if temperature != 1.0:
        shifted /= temperature
    exponentials = xp.exp(shifted)
    exponentials[rows, top] = 0.0
    return exponentials, row_sums(exponentials), shifted


def logsumexp_rows(logits):
    """Return the log-sum-exp of each row, which may contain -inf, in float64."""
    xp = array_namespace(logits)
    top = as_double(row_max(logits))
    shifted = logits - top[:, None]
    xp.exp(shifted, out=shifted)
    return top + xp.log(row_sums(shifted))

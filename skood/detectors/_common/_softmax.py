"""Numerically stable softmax quantities that distinguish saturated samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._array_api import (
    NARROW,
    array_namespace,
    as_double,
    row_indices,
    row_max,
    row_sums,
)

# Sums of exponentials of logits up to this magnitude neither overflow nor underflow,
# in float64 and in float32.
_MODERATE, _MODERATE_SINGLE = 600.0, 80.0


def shifted_exponentials(logits, temperature=1.0):
    """Return exponentials of logits relative to the largest, without the largest one.

    Returns three float64 arrays: exp((l_j - max l) / T), with 0 in place of the 1 of
    the largest logit; their sums `others` (n_samples,), so that softmax probabilities
    are exponentials / (1 + others), the largest 1 / (1 + others); and (l_j - max l) /
    T.
    """
    if type(logits) is np.ndarray and logits.shape[1] <= NARROW:
        # NumPy reduces the first axis many samples at a time, a short last one by one
        shifted = np.empty(logits.shape[::-1])
        np.copyto(shifted, logits.T)
        shifted -= np.maximum.reduce(shifted, axis=0)  # faster than `max` for a few
        below = shifted < 0.0
        if temperature != 1.0:
            shifted /= temperature
        exponentials = np.exp(shifted)
        if np.count_nonzero(below) == shifted.size - shifted.shape[1]:  # no ties
            exponentials *= below
        else:
            exponentials[np.argmax(shifted, axis=0), row_indices(logits)] = 0.0
        return exponentials.T, np.add.reduce(exponentials, axis=0), shifted.T
    xp = array_namespace(logits)
    shifted = xp.astype(logits, xp.float64, copy=True)
    indices, top = row_indices(logits), xp.argmax(shifted, axis=1)
    shifted -= shifted[indices, top][:, None]
    if temperature != 1.0:
        shifted /= temperature
    exponentials = xp.exp(shifted)
    exponentials[indices, top] = 0.0
    return exponentials, row_sums(exponentials), shifted


def without_largest(shifted):
    """Return logits minus the largest one, with -inf in place of its 0."""
    xp = array_namespace(shifted)
    is_top = shifted == 0.0
    # no ties; where a count would wait for a GPU, it is not computed
    if type(is_top) is np.ndarray and np.count_nonzero(is_top) == len(shifted):
        shifted[is_top] = -xp.inf
    else:
        shifted[row_indices(shifted), xp.argmax(shifted, axis=1)] = -xp.inf
    return shifted


def log_sum_exp(logits):
    """Return the log-sum-exp of each row, which may contain -inf, in float64.

    Exponentials of float32 logits up to 80 are float32: absolute errors are 3e-7.
    """
    if type(logits) is np.ndarray and logits.size:
        is_single = logits.dtype == np.float32
        most = _MODERATE_SINGLE if is_single else _MODERATE
        # False for NaN
        if np.max(logits) <= most and np.min(logits) >= -most:
            exponentials = np.exp(logits if is_single else as_double(logits))
            return np.log(row_sums(as_double(exponentials)))
        if is_single:  # a score does not depend on the other samples
            large = ~(np.maximum.reduce(np.abs(logits), axis=1) <= most)
            result = np.empty(len(logits))
            result[~large] = log_sum_exp(logits[~large])
            result[large] = log_sum_exp(as_double(logits[large]))
            return result
    xp = array_namespace(logits)
    top = as_double(row_max(logits))
    shifted = logits - top[:, None]
    xp.exp(shifted, out=shifted)
    return top + xp.log(row_sums(shifted))

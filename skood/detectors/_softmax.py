"""Numerically safe softmax quantities that keep saturated rows apart."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

__all__ = ["logsumexp_rows", "shifted_exponentials"]


def shifted_exponentials(logits, temperature=1.0):
    """Exponentials of the logits relative to the largest, without that one.

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of any float precision.

    temperature : float, default=1.0
        The logits are divided by it.

    Returns
    -------
    exponentials : ndarray of shape (n_samples, n_classes), dtype float64
        exp((l_j - max l) / T), with 0 in place of the 1 of the largest logit.

    others : ndarray of shape (n_samples,), dtype float64
        Their sums: softmax probabilities are exponentials / (1 + others), and
        1 / (1 + others) for the largest.

    shifted : ndarray of shape (n_samples, n_classes), dtype float64
        (l_j - max l) / T.
    """
    shifted = logits.astype(np.float64)
    top = shifted.argmax(axis=1)
    rows = np.arange(len(shifted))
    shifted -= shifted[rows, top][:, None]
    if temperature != 1.0:
        shifted /= temperature
    exponentials = np.exp(shifted)
    exponentials[rows, top] = 0.0
    return exponentials, exponentials.sum(axis=1), shifted


def logsumexp_rows(logits):
    """Logarithm of the sum of exponentials of each row, in float64.

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits; -inf is allowed.

    Returns
    -------
    total : ndarray of shape (n_samples,), dtype float64
        max l + log(sum exp(l - max l)).
    """
    top = logits.max(axis=1).astype(np.float64)
    shifted = logits - top[:, None]
    np.exp(shifted, out=shifted)
    return top + np.log(shifted.sum(axis=1))

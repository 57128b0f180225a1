"""Numerically safe softmax quantities that keep saturated rows apart."""

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
    """Exponentials of the logits relative to the largest, without that one.

    Parameters
    ----------
    logits : array of shape (n_samples, n_classes)
        Logits of any float precision.

    temperature : float, default=1.0
        The logits are divided by it.

    Returns
    -------
    exponentials : array of shape (n_samples, n_classes), dtype float64
        exp((l_j - max l) / T), with 0 in place of the 1 of the largest logit.

    others : array of shape (n_samples,), dtype float64
        Their sums: softmax probabilities are exponentials / (1 + others), and
        1 / (1 + others) for the largest.

    shifted : array of shape (n_samples, n_classes), dtype float64
        (l_j - max l) / T.
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
    """Logarithm of the sum of exponentials of each row, in float64.

    Parameters
    ----------
    logits : array of shape (n_samples, n_classes)
        Logits; -inf is allowed.

    Returns
    -------
    total : array of shape (n_samples,), dtype float64
        max l + log(sum exp(l - max l)).
    """
    xp = array_namespace(logits)
    top = as_double(row_max(logits))
    shifted = logits - top[:, None]
    xp.exp(shifted, out=shifted)
    return top + xp.log(row_sums(shifted))

"""Factorisations in float64, on one thread where that is faster."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

__all__ = ["symmetric_eigh"]

# Small eigenproblems only lose by threads that wait for each other.
_ONE_THREAD_BELOW = 2048


def symmetric_eigh(matrix):
    """Eigenvalues, eigenvectors and numerical rank of a covariance matrix.

    Parameters
    ----------
    matrix : ndarray of shape (n_features, n_features)
        Symmetric positive semidefinite.

    Returns
    -------
    values : ndarray of shape (n_features,), dtype float64
        Eigenvalues in ascending order.

    vectors : ndarray of shape (n_features, n_features), dtype float64
        Eigenvectors in columns.

    rank : int
        Number of eigenvalues above the rounding error of the largest.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    limits = 1 if len(matrix) < _ONE_THREAD_BELOW else None
    with threadpool_limits(limits=limits):
        values, vectors = eigh(matrix)
    tolerance = values[-1] * len(values) * np.finfo(np.float64).eps
    rank = int(np.sum(values > max(tolerance, np.finfo(np.float64).tiny)))
    return values, vectors, rank

"""Matrix factorizations in float64, on one thread where that is faster."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import nullcontext

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular

from skood.utils._array_api import all_finite
from skood.utils._parallel import ONE_THREAD

# Below this size, eigendecompositions are faster on one thread.
_ONE_THREAD_BELOW = 2048

# Eigenvalues of small matrices have errors of up to 8 rounding errors of the largest
# (measured on singular covariances of 2 to 512 features), of large matrices less than
# one per feature.
_LEAST_ERRORS = 32


def _threads(matrix):
    """Limit the number of threads for a factorization, where that is faster."""
    return nullcontext() if len(matrix) >= _ONE_THREAD_BELOW else ONE_THREAD


def check_no_overflow(array, what):
    """Raise a ValueError if an array has NaN or infinity.

    `what` is its name in the error, as in "The covariance matrix".
    """
    if not all_finite(array):
        raise ValueError(
            f"{what} overflows float64: X, or what the classifier computes from it, "
            "has values whose squares or sums are too large. Scale X, for example "
            "with sklearn.preprocessing.StandardScaler."
        )


def symmetric_eigh(matrix):
    """Return eigenvalues (ascending), eigenvectors in columns, and the numerical rank.

    The rank counts the eigenvalues above the rounding error of the largest.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    check_no_overflow(matrix, "The covariance matrix")
    with _threads(matrix):
        values, vectors = eigh(matrix, check_finite=False)
    errors = max(len(values), _LEAST_ERRORS) * np.finfo(np.float64).eps
    tolerance = values[-1] * errors
    rank = int(np.sum(values > max(tolerance, np.finfo(np.float64).tiny)))
    return values, vectors, rank


def precision_cholesky(covariance):
    """Return an upper triangular matrix W, with W W^T the inverse of the covariance."""
    check_no_overflow(covariance, "The covariance matrix")
    with _threads(covariance):
        lower = cholesky(covariance, lower=True, check_finite=False)
        return solve_triangular(lower, np.eye(len(lower)), lower=True).T

"""Eigenvalues and rank of covariance matrices."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from skood.utils import _linalg
from skood.utils._linalg import precision_cholesky, symmetric_eigh


def orthogonal(n, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_known_eigenvalues(dtype):
    known = np.array([0.5, 1.0, 2.0, 8.0])
    Q = orthogonal(4)
    values, vectors, rank = symmetric_eigh(((Q * known) @ Q.T).astype(dtype))
    tol = 1e-12 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(values, known, rtol=tol)
    np.testing.assert_allclose(np.abs(vectors.T @ Q), np.eye(4), atol=10 * tol)
    assert values.dtype == vectors.dtype == np.float64
    assert rank == 4


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("rank", [1, 3, 10])
def test_rank_of_few_samples(rank, scale):
    Z = np.random.default_rng(1).normal(size=(rank, 10)) * scale
    assert symmetric_eigh(Z.T @ Z)[2] == rank
    # centering takes one away
    centered = Z - Z.mean(0)
    assert symmetric_eigh(centered.T @ centered)[2] == rank - 1 or rank == 10


def test_zero_matrix_has_rank_zero():
    values, vectors, rank = symmetric_eigh(np.zeros((3, 3)))
    assert rank == 0 and not values.any()
    np.testing.assert_array_equal(np.abs(vectors).sum(0), np.ones(3))


def test_an_eigenvalue_above_rounding_counts():
    values, _, rank = symmetric_eigh(np.diag([1.0, 1e-10, 1e-20]))
    assert rank == 2
    np.testing.assert_allclose(values, [1e-20, 1e-10, 1.0], atol=1e-25)


@pytest.mark.parametrize("factorize", [symmetric_eigh, precision_cholesky])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_raise(factorize, value):
    matrix = np.eye(2)
    matrix[1, 0] = matrix[0, 1] = value
    with pytest.raises(ValueError, match="covariance matrix overflows float64: X"):
        factorize(matrix)


def test_threads(monkeypatch):
    """Small matrices are decomposed on one thread, large ones on all."""
    seen = []
    eigh = _linalg.eigh

    def spy(matrix, **options):
        seen.append({p["num_threads"] for p in threadpool_info() if _is_blas(p)})
        return eigh(matrix, **options)

    monkeypatch.setattr(_linalg, "eigh", spy)
    monkeypatch.setattr(_linalg, "_ONE_THREAD_BELOW", 5)
    before = {p["num_threads"] for p in threadpool_info() if _is_blas(p)}
    symmetric_eigh(np.eye(4))
    symmetric_eigh(np.eye(5))
    assert seen == [{1}, before]
    after = {p["num_threads"] for p in threadpool_info() if _is_blas(p)}
    assert after == before


def _is_blas(pool):
    return pool["user_api"] == "blas"


def test_precision_cholesky():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(4, 4))
    covariance = factor @ factor.T
    upper = precision_cholesky(covariance)
    np.testing.assert_array_equal(upper, np.triu(upper))
    np.testing.assert_allclose(upper @ upper.T, np.linalg.inv(covariance), rtol=1e-7)
    np.testing.assert_allclose(precision_cholesky(np.diag([4.0, 9.0]))[1, 1], 1 / 3)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        precision_cholesky(np.diag([1.0, -1.0]))

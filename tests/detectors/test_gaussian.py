"""Tests of covariances and of the whitening."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from sklearn.covariance import EmpiricalCovariance, ShrunkCovariance

from skood.detectors._gaussian import (
    Whitening,
    check_spread,
    contributions,
    fitted_covariance,
)
from skood.detectors._streaming import NotEnoughRows
from skood.exceptions import SkoodWarning


def _covariance(n_features=4, rank=4):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(n_features, rank))
    return factor @ factor.T


def test_whitened_rows_have_euclidean_distances():
    covariance = _covariance()
    rng = np.random.default_rng(1)
    means, rows = rng.normal(size=(3, 4)), rng.normal(size=(20, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whitening = Whitening(covariance, means, "The covariance")
    precision = np.linalg.inv(covariance)
    np.testing.assert_allclose(
        whitening.matrix @ whitening.matrix.T, precision, rtol=1e-8
    )
    assert whitening.log_det == pytest.approx(np.linalg.slogdet(covariance)[1])
    gaps = rows[:, None] - means
    expected = np.einsum("nki,ij,nkj->nk", gaps, precision, gaps)
    squared, index = whitening.squared_distances(rows, np.asarray)
    np.testing.assert_array_equal(index, expected.argmin(axis=1))
    np.testing.assert_allclose(squared, expected.min(axis=1), rtol=1e-8)


def test_singular_covariance():
    covariance = _covariance(n_features=5, rank=3)
    with pytest.warns(SkoodWarning, match=r"The matrix is singular \(rank 3 of 5\)"):
        whitening = Whitening(covariance, np.zeros((1, 5)), "The matrix")
    assert whitening.matrix.shape == (5, 3)
    inverse = np.linalg.pinv(covariance, rcond=1e-10, hermitian=True)
    np.testing.assert_allclose(
        whitening.matrix @ whitening.matrix.T, inverse, rtol=1e-8
    )
    values = np.linalg.eigvalsh(covariance)[-3:]
    assert whitening.log_det == pytest.approx(np.log(values).sum())


def test_whitening_far_from_the_origin():
    """Means that are near each other, but far away: nothing cancels."""
    means = np.array([[1e9, 1e9], [1e9 + 2, 1e9]])
    whitening = Whitening(np.eye(2), means, "")
    squared, index = whitening.squared_distances(
        np.array([[1e9 + 0.5, 1e9], [1e9 + 2, 1e9 + 1]]), np.asarray
    )
    np.testing.assert_allclose(squared, [0.25, 1.0], rtol=1e-12)
    assert index.tolist() == [0, 1]


def test_contributions_sum_to_the_squared_distance():
    covariance = _covariance()
    gaps = np.random.default_rng(1).normal(size=(20, 4))
    whitening = Whitening(covariance, np.zeros((1, 4)), "")
    parts = contributions(gaps, whitening.matrix)
    precision = np.linalg.inv(covariance)
    np.testing.assert_allclose(parts, gaps * (gaps @ precision), rtol=1e-7, atol=1e-9)
    squared, _ = whitening.squared_distances(gaps, np.asarray)
    np.testing.assert_allclose(parts.sum(axis=1), squared, rtol=1e-9)
    diagonal = Whitening(np.diag([1.0, 4.0]), np.zeros((1, 2)), "")
    parts = contributions(np.array([[3.0, 4.0]]), diagonal.matrix)
    np.testing.assert_allclose(parts, [[9.0, 4.0]], rtol=1e-12)


@pytest.mark.parametrize("estimator", [EmpiricalCovariance(), ShrunkCovariance()])
def test_fitted_covariance_is_that_of_a_clone(estimator):
    X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    covariance = fitted_covariance(estimator, X)
    assert covariance.dtype == np.float64
    assert not hasattr(estimator, "covariance_")
    np.testing.assert_array_equal(covariance, estimator.fit(X).covariance_)


def test_spread():
    counts, means = np.array([10.0, 5.0]), np.array([[1e6, 0.1], [3.0, 0.1]])
    check_spread(np.diag([0.0, 1e-20]), means, counts, "It")  # one feature varies
    check_spread(np.diag([1e-9, 0.0]), means, counts, "It")
    message = r"It is zero: .*n_samples = 15 in 2 classes, n_features = 2\). Give more"
    with pytest.raises(NotEnoughRows, match=message):
        # what ten equal numbers of 1e6 may differ from their mean
        check_spread(np.diag([1e-18, 0.0]), means, counts, "It")

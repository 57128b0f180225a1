"""Tests of covariances and of the whitening."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from sklearn.covariance import EmpiricalCovariance, ShrunkCovariance

from skood.detectors import Mahalanobis
from skood.detectors._common._class_moments import ClassMoments
from skood.detectors._common._gaussian import (
    Whitening,
    check_spread,
    contributions,
    fitted_covariance,
)
from skood.detectors._common._partial_fit import NotEnoughRows
from skood.exceptions import SkoodWarning


def _covariance(n_features=4, rank=4):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(n_features, rank))
    return factor @ factor.T


def _moments(means, counts=None):
    """Moments with these means."""
    moments = ClassMoments()
    moments.origin, moments.offsets = means[0], means - means[0]
    moments.counts = np.ones(len(means)) if counts is None else counts
    return moments


def test_whitened_samples_have_euclidean_distances():
    covariance = _covariance()
    rng = np.random.default_rng(1)
    means, samples = rng.normal(size=(3, 4)), rng.normal(size=(20, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whitening = Whitening(covariance, _moments(means), "The covariance")
    precision = np.linalg.inv(covariance)
    np.testing.assert_allclose(
        whitening.matrix @ whitening.matrix.T, precision, rtol=1e-8
    )
    assert whitening.log_det == pytest.approx(np.linalg.slogdet(covariance)[1])
    gaps = samples[:, None] - means
    expected = np.einsum("nki,ij,nkj->nk", gaps, precision, gaps)
    squared, index = whitening.squared_distances(samples, np.asarray)
    np.testing.assert_array_equal(index, expected.argmin(axis=1))
    np.testing.assert_allclose(squared, expected.min(axis=1), rtol=1e-8)


def test_singular_covariance():
    covariance = _covariance(n_features=5, rank=3)
    with pytest.warns(SkoodWarning, match=r"The matrix is singular \(rank 3 of 5\)"):
        whitening = Whitening(covariance, _moments(np.zeros((1, 5))), "The matrix")
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
    whitening = Whitening(np.eye(2), _moments(means), "")
    squared, index = whitening.squared_distances(
        np.array([[1e9 + 0.5, 1e9], [1e9 + 2, 1e9 + 1]]), np.asarray
    )
    np.testing.assert_allclose(squared, [0.25, 1.0], rtol=1e-12)
    assert index.tolist() == [0, 1]
    gaps = whitening.gaps(np.array([[1e9 + 0.5, 1e9]]), np.array([1]))
    np.testing.assert_array_equal(gaps, [[-1.5, 0.0]])


def test_scales_of_the_features_do_not_matter():
    covariance, scale = _covariance(), np.array([1e6, 1e-3, 1.0, 1e-9])
    scaled = covariance * scale * scale[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whitening = Whitening(scaled, _moments(np.zeros((1, 4))), "")
    precision = np.linalg.inv(covariance) / scale / scale[:, None]
    np.testing.assert_allclose(
        whitening.matrix @ whitening.matrix.T, precision, rtol=1e-8
    )
    log_det = np.linalg.slogdet(covariance)[1] + 2 * np.log(scale).sum()
    assert whitening.log_det == pytest.approx(log_det, rel=1e-12)


def test_constant_features_do_not_contribute():
    """Not even with a variance that came from rounding, and next to small ones."""
    covariance = np.zeros((4, 4))
    covariance[1:, 1:] = 1e-6 * _covariance(3, 3)
    covariance[0, 0] = 1e-20
    means = np.array([[1e6, 1.0, 2.0, 3.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whitening = Whitening(covariance, _moments(means), "It")
    np.testing.assert_array_equal(whitening.matrix[0], 0.0)
    np.testing.assert_allclose(
        whitening.matrix[1:] @ whitening.matrix[1:].T,
        np.linalg.inv(covariance[1:, 1:]),
        rtol=1e-8,
    )


def test_a_covariance_too_small_to_invert():
    with pytest.raises(NotEnoughRows, match="zero: no feature varies, up to rounding"):
        Whitening(1e-310 * np.eye(3), _moments(np.zeros((1, 3))), "It")


def test_contributions_sum_to_the_squared_distance():
    covariance = _covariance()
    gaps = np.random.default_rng(1).normal(size=(20, 4))
    whitening = Whitening(covariance, _moments(np.zeros((1, 4))), "")
    parts = contributions(gaps, whitening.matrix)
    precision = np.linalg.inv(covariance)
    np.testing.assert_allclose(parts, gaps * (gaps @ precision), rtol=1e-7, atol=1e-9)
    squared, _ = whitening.squared_distances(gaps, np.asarray)
    np.testing.assert_allclose(parts.sum(axis=1), squared, rtol=1e-9)
    diagonal = Whitening(np.diag([1.0, 4.0]), _moments(np.zeros((1, 2))), "")
    parts = contributions(np.array([[3.0, 4.0]]), diagonal.matrix)
    np.testing.assert_allclose(parts, [[9.0, 4.0]], rtol=1e-12)


@pytest.mark.parametrize("estimator", [EmpiricalCovariance(), ShrunkCovariance()])
def test_fitted_covariance_is_that_of_a_clone(estimator):
    X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    covariance = fitted_covariance(Mahalanobis(covariance=estimator), X)
    assert covariance.dtype == np.float64
    assert not hasattr(estimator, "covariance_")
    np.testing.assert_array_equal(covariance, estimator.fit(X).covariance_)


def test_spread():
    counts, means = np.array([10.0, 5.0]), np.array([[1e6, 0.1], [3.0, 0.1]])
    moments = _moments(means, counts)
    # one feature varies
    varies = check_spread(np.diag([0.0, 1e-20]), moments, "It")
    assert varies.tolist() == [False, True]
    varies = check_spread(np.diag([1e-17, 0.0]), moments, "It")
    assert varies.tolist() == [True, False]
    message = r"It is zero: .*within each class.*n_samples = 15 in 2 classes, n_feature"
    with pytest.raises(NotEnoughRows, match=message):
        # four rounding errors of 1e6
        check_spread(np.diag([7e-19, 0.0]), moments, "It")
    # of more samples not more
    varies = check_spread(np.diag([1e-17, 0.0]), _moments(means, 1e9 * counts), "It")
    assert varies.tolist() == [True, False]
    message = r"It is zero: no feature varies.* \(n_samples = 10, n_features = 2\)"
    with pytest.raises(NotEnoughRows, match=message) as caught:
        check_spread(np.zeros((2, 2)), _moments(means[:1], counts[:1]), "It")
    assert "class" not in str(caught.value)

"""Tests of the one-cluster distance of unit-norm features."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf
from sklearn.linear_model import LogisticRegression

from skood.detectors import SSD, Mahalanobis

# What the tests of all estimators check; at night, all of them.
INSTANCES = [SSD(), SSD(covariance=LedoitWolf()), SSD(LogisticRegression())]


def _data(n_samples=120, n_features=5, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, n_features)) + 2
    queries = 3 * rng.normal(size=(50, n_features))
    return X.astype(dtype), queries.astype(dtype)


def _units(X):
    """Rows of unit length, by loops."""
    samples = [[float(v) for v in x] for x in X]
    lengths = [math.sqrt(sum(v * v for v in x)) or 1.0 for x in samples]
    return np.array([[v / s for v in x] for x, s in zip(samples, lengths, strict=True)])


def _naive(X, queries):
    units = _units(X)
    mean = sum(units) / len(units)
    covariance = sum(np.outer(u - mean, u - mean) for u in units) / len(units)
    precision = np.linalg.pinv(covariance, hermitian=True)
    return np.array([-(q - mean) @ precision @ (q - mean) for q in _units(queries)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(dtype):
    X, queries = _data(dtype=dtype)
    detector = SSD().fit(X)
    scores = detector.score_samples(queries)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, _naive(X, queries), rtol=1e-9)
    units = _units(X)
    np.testing.assert_allclose(detector.location_, units.mean(axis=0), rtol=1e-12)
    covariance = np.cov(units.T, ddof=0)
    np.testing.assert_allclose(detector.covariance_, covariance, rtol=1e-9)
    assert not hasattr(detector, "classes_")


def test_lengths_do_not_count():
    X, queries = _data()
    scores = SSD().fit(X).score_samples(queries)
    rng = np.random.default_rng(1)
    longer, far = rng.uniform(0.01, 1e6, size=(2, len(X), 1))
    got = SSD().fit(X * longer).score_samples(queries * far[:50])
    np.testing.assert_allclose(got, scores, rtol=1e-9)


def test_is_mahalanobis_on_unit_features():
    X, queries = _data()
    expected = Mahalanobis().fit(_units(X)).score_samples(_units(queries))
    np.testing.assert_allclose(SSD().fit(X).score_samples(queries), expected, rtol=1e-9)


def test_labels_are_not_used():
    X, queries = _data()
    y = np.arange(len(X)) % 3
    labeled = SSD().fit(X, y)
    scores = SSD().fit(X).score_samples(queries)
    np.testing.assert_array_equal(labeled.score_samples(queries), scores)
    np.testing.assert_array_equal(labeled.classes_, [0, 1, 2])


def test_zero_vectors_stay_zero():
    X, _ = _data()
    X[3] = 0
    detector = SSD().fit(X)
    zero = np.zeros((1, 5))
    expected = -detector.location_ @ np.linalg.solve(
        detector.covariance_, detector.location_
    )
    np.testing.assert_allclose(detector.score_samples(zero), expected, rtol=1e-9)
    np.testing.assert_allclose(detector.score_samples(X), _naive(X, X), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_squares_that_overflow(scale):
    X, queries = _data()
    scores = SSD().fit(X).score_samples(queries)
    got = SSD().fit(X * scale).score_samples(queries * scale)
    np.testing.assert_allclose(got, scores, rtol=1e-9)


def test_fewer_samples_than_features():
    X, queries = _data(n_samples=10, n_features=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = SSD().fit(X)
    units = _units(X)
    gaps = units - units.mean(axis=0)
    scale = gaps.std(axis=0)
    np.testing.assert_allclose(np.diag(detector.covariance_), scale**2, rtol=1e-9)
    expected = gaps.T @ gaps / 10
    square = np.sum((expected / np.outer(scale, scale)) ** 2)
    rho = (0.9 * square + 400) / ((10 + 0.9) * (square - 20))  # of 20 features
    expected *= 1 - min(rho, 1)
    np.fill_diagonal(expected, scale**2)
    np.testing.assert_allclose(detector.covariance_, expected, rtol=1e-9, atol=1e-15)
    gaps = _units(queries) - units.mean(axis=0)
    squared = np.sum(gaps @ np.linalg.inv(expected) * gaps, axis=1)
    np.testing.assert_allclose(detector.score_samples(queries), -squared, rtol=1e-9)


@pytest.mark.parametrize("n_features", [1, 4])
def test_single_direction(n_features):
    X = np.arange(1.0, 11.0)[:, None] * np.ones(n_features)
    message = rf"unit-norm features is zero.*n_samples = 10.*n_features = {n_features}"
    with pytest.raises(ValueError, match=message) as caught:
        SSD().fit(X)
    assert "class" not in str(caught.value)


def test_covariance_estimators_of_scikit_learn():
    X, queries = _data(n_samples=12, n_features=20)
    detector = SSD(covariance=LedoitWolf()).fit(X)
    units = _units(X)
    mean = units.mean(axis=0)
    precision = np.linalg.inv(LedoitWolf().fit(units - mean).covariance_)
    gaps = _units(queries) - mean
    expected = -np.einsum("ij,jk,ik->i", gaps, precision, gaps)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-8)
    assert not hasattr(detector, "partial_fit")


def test_explanation_sums_to_the_score():
    X, queries = _data()
    detector = SSD().fit(X)
    frame = detector.explain(queries, n_features=5)
    scores = detector.score_samples(queries)
    np.testing.assert_allclose(frame["squared_distance"], -scores, rtol=1e-9)
    parts = frame[[f"contribution_{j}" for j in range(1, 6)]]
    np.testing.assert_allclose(parts.sum(axis=1), -scores, rtol=1e-9)
    gaps = _units(queries) - detector.location_
    products = gaps * np.linalg.solve(detector.covariance_, gaps.T).T
    order = frame[[f"feature_{j}" for j in range(1, 6)]].to_numpy()
    np.testing.assert_allclose(
        parts, np.take_along_axis(products, order, axis=1), rtol=1e-7, atol=1e-9
    )

"""Tests of class-aware relative features."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import CARef
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead

# What the tests of all estimators check; at night, all of them.
INSTANCES = [CARef(), CARef(LogisticRegression())]


def _network(dtype=np.float64, n_samples=150, seed=0):
    """A frozen head of random weights, and features of both signs."""
    rng = np.random.default_rng(seed)
    coef, intercept = rng.normal(size=(4, 6)), rng.normal(size=4)
    head = LinearHead(coef.astype(dtype), intercept.astype(dtype), list("abcd"))
    Z = (2 * rng.normal(size=(n_samples, 6)) + 0.5).astype(dtype)
    return FrozenEstimator(head), Z


def _naive(head, Z, queries):
    """The score, feature by feature."""
    W, b = (np.asarray(a, np.float64) for a in (head.coef, head.intercept))
    Z, queries = (np.asarray(a, np.float64) for a in (Z, queries))

    def predict(z):
        logits = [float(w @ z + c) for w, c in zip(W, b, strict=True)]
        return logits.index(max(logits))

    predicted = [predict(z) for z in Z]
    scores = []
    for z in queries:
        samples = [row for row, k in zip(Z, predicted, strict=True) if k == predict(z)]
        mean = sum(samples) / len(samples)
        error = sum(abs(v - m) for v, m in zip(z, mean, strict=True))
        scores.append(-error / sum(abs(v) for v in z))
    return np.array(scores)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(dtype):
    head, Z = _network(dtype)
    queries = 3 * np.random.default_rng(1).normal(size=(50, 6)).astype(dtype)
    detector = CARef(head).fit(Z)
    expected = _naive(head.estimator, Z, queries)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-11)
    assert detector.location_.shape == (4, 6)


def test_labels_are_not_read():
    """Means are of what is predicted, not of what is labeled."""
    head, Z = _network()
    y = np.resize(list("abcd"), len(Z))
    expected = CARef(head).fit(Z).score_samples(Z)
    np.testing.assert_array_equal(CARef(head).fit(Z, y).score_samples(Z), expected)


def test_a_row_at_the_mean_of_its_class_scores_zero():
    head, _ = _network()
    Z = np.repeat(head.coef_ * 100, 5, axis=0)
    detector = CARef(head).fit(Z)
    np.testing.assert_allclose(detector.score_samples(Z), 0.0, atol=1e-14)
    # twice as far, and half as far: the error is half of the row, and all of it
    np.testing.assert_allclose(detector.score_samples(2 * Z), -0.5, rtol=1e-12)
    np.testing.assert_allclose(detector.score_samples(0.5 * Z), -1.0, rtol=1e-12)


def test_a_class_that_is_never_predicted():
    head, Z = _network()
    subset = Z[head.predict(Z) != "b"]
    message = r"No training sample .* of the 1 classes \['b'\]: .* mean of all training"
    with pytest.warns(SkoodWarning, match=message):
        detector = CARef(head).fit(subset)
    np.testing.assert_allclose(detector.location_[1], subset.mean(axis=0), rtol=1e-12)
    is_b = head.predict(Z) == "b"
    gap = np.abs(Z[is_b] - subset.mean(axis=0)).sum(axis=1)
    expected = -gap / np.abs(Z[is_b]).sum(axis=1)
    np.testing.assert_allclose(detector.score_samples(Z[is_b]), expected, rtol=1e-12)
    others = _naive(head.estimator, subset, Z[~is_b])
    np.testing.assert_allclose(detector.score_samples(Z[~is_b]), others, rtol=1e-11)


def test_samples_of_zeros():
    """They score below anything of ordinary length, and finitely."""
    head, Z = _network()
    zero = CARef(head).fit(Z).score_samples(np.zeros((1, 6)))
    assert np.isfinite(zero) and zero < -1e10
    with pytest.warns(SkoodWarning, match="No training sample"):
        detector = CARef(head).fit(np.zeros((10, 6)))
    np.testing.assert_array_equal(detector.score_samples(np.zeros((2, 6))), 0.0)
    assert np.isfinite(detector.score_samples(Z)).all()


def test_large_features():
    head, Z = _network()
    assert np.isfinite(CARef(head).fit(1e4 * Z).score_samples(-1e4 * Z)).all()


def test_reads_a_classifier_without_a_head():
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    detector = CARef(FrozenEstimator(forest)).fit(X)
    mean = X[forest.predict(X) == 2].mean(axis=0)
    np.testing.assert_allclose(detector.location_[2], mean, rtol=1e-12)

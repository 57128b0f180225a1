"""Tests of the neural-collapse-inspired detector."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import FDBD, NCI
from skood.nn import LinearHead
from skood.nn._make_network import make_network
from skood.nn._sklearn_network import LinearNetwork

# What the tests of all estimators check; at night, all of them.
INSTANCES = [NCI(), NCI(LogisticRegression(), alpha=0.0)]


def _network(dtype=np.float64, n_samples=100, seed=0):
    """A frozen head of random weights, and features whose mean is not zero."""
    rng = np.random.default_rng(seed)
    coef, intercept = rng.normal(size=(4, 6)), rng.normal(size=4)
    head = LinearHead(coef.astype(dtype), intercept.astype(dtype))
    Z = (2 * rng.normal(size=(n_samples, 6)) + np.arange(6)).astype(dtype)
    return FrozenEstimator(head), Z


def _naive(head, Z, queries, alpha):
    """The score, feature by feature, in plain Python."""
    W, b = (np.asarray(a, np.float64).tolist() for a in (head.coef, head.intercept))
    Z, queries = (np.asarray(a, np.float64).tolist() for a in (Z, queries))
    mean = [sum(column) / len(Z) for column in zip(*Z, strict=True)]
    scores = []
    for z in queries:
        logits = [
            sum(w * v for w, v in zip(row, z, strict=True)) + c
            for row, c in zip(W, b, strict=True)
        ]
        weights = W[logits.index(max(logits))]
        gap = [v - m for v, m in zip(z, mean, strict=True)]
        toward = sum(w * g for w, g in zip(weights, gap, strict=True))
        length = math.sqrt(sum(g * g for g in gap))
        scores.append(toward / length + alpha * sum(abs(v) for v in z))
    return np.array(scores)


@pytest.mark.parametrize("alpha", [0, 0.0001, 0.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(alpha, dtype):
    head, Z = _network(dtype)
    queries = 3 * np.random.default_rng(1).normal(size=(50, 6)).astype(dtype)
    detector = NCI(head, alpha=alpha).fit(Z)
    expected = _naive(head.estimator, Z, queries, alpha)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-11)
    np.testing.assert_allclose(detector.mean_, Z.mean(axis=0, dtype=np.float64))
    assert detector.mean_.dtype == np.float64


def test_the_first_term_is_a_cosine_times_the_weights_length():
    """It is largest, and the length of the weights, where a row goes along them."""
    head, Z = _network()
    W = head.coef_
    mean = Z.mean(axis=0)
    samples = mean + 1000 * W  # far enough for the biases not to matter
    scores = NCI(head, alpha=0.0).fit(Z).score_samples(samples)
    np.testing.assert_array_equal(head.predict(samples), np.arange(4))
    np.testing.assert_allclose(scores, np.linalg.norm(W, axis=1), rtol=1e-12)


def test_a_row_at_the_mean_points_nowhere():
    rng = np.random.default_rng(0)
    head = FrozenEstimator(LinearHead(rng.normal(size=(3, 2))))
    detector = NCI(head, alpha=0.5).fit([[1.0, 2.0], [3.0, -6.0]])
    np.testing.assert_array_equal(detector.score_samples([[2.0, -2.0]]), 0.5 * 4.0)


def test_features_that_do_not_vary():
    """All training rows are the mean; others still have a direction."""
    head, _ = _network()
    detector = NCI(head, alpha=0.0).fit(np.ones((10, 6)))
    np.testing.assert_array_equal(detector.score_samples(np.ones((3, 6))), 0.0)
    assert np.abs(detector.score_samples(np.zeros((1, 6)))) > 0.1


def test_large_logits():
    head, Z = _network()
    assert np.isfinite(NCI(head).fit(1e4 * Z).score_samples(-1e4 * Z)).all()


def test_binary_head():
    """The two rows of a binary margin are opposite to each other."""
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression().fit(X[:100], y[:100])
    detector = NCI(FrozenEstimator(model), alpha=0.0).fit(X[:100])
    gap = X[:100] - X[:100].mean(axis=0)
    side = np.where(model.decision_function(X[:100]) > 0, 0.5, -0.5)
    expected = side * (gap @ model.coef_[0]) / np.linalg.norm(gap, axis=1)
    np.testing.assert_allclose(detector.score_samples(X[:100]), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", [FDBD, NCI])
def test_fit_computes_logits_for_the_threshold_only(monkeypatch, kind):
    sizes, product = [], LinearNetwork._product

    def counted(network, samples):
        sizes.append(len(samples))
        return product(network, samples)

    monkeypatch.setattr(LinearNetwork, "_product", counted)
    head, Z = _network(n_samples=8000)
    detector = kind(head).fit(Z)
    assert sum(sizes) == 5000
    assert detector.offset_ == pytest.approx(kind(head).partial_fit(Z).offset_)
    np.testing.assert_allclose(detector.mean_, Z.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_every_sample_is_validated_in_fit(value):
    head, Z = _network(n_samples=8000)
    for i in (0, 4321, -1):
        wrong = Z.copy()
        wrong[i, 3] = value
        with pytest.raises(ValueError, match="Input X contains"):
            NCI(head).fit(wrong)


def test_logits_that_are_computed_later_are_those_of_the_classifier():
    """Two logits of a binary margin have the precision of the weights."""
    X, y = load_iris(return_X_y=True)
    X, y = X[:100].astype(np.float32), y[:100]
    model = LogisticRegression().fit(X, y)
    network = make_network(model)
    later = network.later_logits(X)
    expected = network.outputs(X, {"logits"}).logits
    assert later.shape == expected.shape
    np.testing.assert_array_equal(later[10:20], expected[10:20])
    np.testing.assert_array_equal(np.asarray(later), expected)
    assert make_network(RandomForestClassifier().fit(X, y)).later_logits(X) is None

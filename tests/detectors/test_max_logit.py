"""Tests of the maximum logit."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neural_network import MLPClassifier

from skood.detectors import MaxLogit

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    MaxLogit(),
    MaxLogit(LogisticRegression()),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(dtype):
    logits = np.random.default_rng(0).normal(scale=5, size=(50, 6)).astype(dtype)
    scores = MaxLogit().fit(logits).score_samples(logits)
    assert scores.dtype == np.float64
    np.testing.assert_array_equal(scores, [max(row) for row in logits.tolist()])


def test_shifts_and_scales_with_the_logits():
    logits = np.random.default_rng(0).normal(size=(20, 3))
    detector = MaxLogit().fit(logits)
    scores = detector.score_samples(logits)
    np.testing.assert_allclose(detector.score_samples(4 * logits + 7), 4 * scores + 7)


def test_reads_margins_of_any_linear_classifier():
    X, y = load_iris(return_X_y=True)
    for classifier in (LogisticRegression(max_iter=500), RidgeClassifier()):
        detector = MaxLogit(classifier).fit(X, y)
        margins = detector.estimator_.decision_function(X)
        np.testing.assert_allclose(detector.score_samples(X), margins.max(axis=1))


def test_binary_margin_becomes_two_symmetric_logits():
    X, y = load_iris(return_X_y=True)
    X, y = X[:100], y[:100]
    detector = MaxLogit(LogisticRegression()).fit(X, y)
    margin = detector.estimator_.decision_function(X)
    np.testing.assert_allclose(detector.score_samples(X), np.abs(margin) / 2)


def test_reads_a_network_before_its_softmax():
    X, y = load_iris(return_X_y=True)
    network = MLPClassifier((6,), activation="tanh", solver="lbfgs", random_state=0)
    detector = MaxLogit(network).fit(X, y)
    fitted = detector.estimator_
    expected = []
    for x in X:
        hidden = np.tanh(fitted.coefs_[0].T @ x + fitted.intercepts_[0])
        expected.append(max(fitted.coefs_[1].T @ hidden + fitted.intercepts_[1]))
    np.testing.assert_allclose(detector.score_samples(X), expected, rtol=1e-10)

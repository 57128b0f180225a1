"""Tests of the entropy score."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import entropy as scipy_entropy
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from skood.detectors import Entropy

# What the tests of all estimators check; at night, all of them.
INSTANCES = [Entropy(), Entropy(LogisticRegression())]


def _naive(logits):
    """sum p log p with 0 log 0 = 0, by loops in float64."""
    scores = []
    for row in np.asarray(logits, dtype=np.float64).tolist():
        top = max(row)
        terms = [math.exp(value - top) for value in row]
        total = math.fsum(terms)
        p = [term / total for term in terms]
        scores.append(math.fsum(v * math.log(v) for v in p if v > 0))
    return np.array(scores)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.1, 3.0, 300.0])
def test_equals_naive_loop_and_scipy(dtype, scale):
    logits = np.random.default_rng(0).normal(scale=scale, size=(80, 6)).astype(dtype)
    scores = Entropy().fit(logits).score_samples(logits)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, _naive(logits), atol=1e-14)
    p = softmax(logits.astype(np.float64), axis=1)
    np.testing.assert_allclose(scores, -scipy_entropy(p, axis=1), atol=1e-14)


def test_equal_logits_have_the_entropy_log_n_classes():
    logits = np.full((1, 7), -3.0)
    np.testing.assert_allclose(
        Entropy().fit(logits).score_samples(logits), -math.log(7), rtol=1e-15
    )


def test_two_classes_have_a_closed_form():
    """H = log(1 + e^-m) + m e^-m / (1 + e^-m) for the margin m >= 0."""
    m = np.linspace(0, 700, 301)
    logits = np.column_stack([m, np.zeros_like(m)])
    expected = -(np.log1p(np.exp(-m)) + m * expit(-m))
    np.testing.assert_allclose(
        Entropy().fit(logits).score_samples(logits), expected, rtol=1e-13
    )


def test_zero_times_log_zero_is_zero():
    logits = np.array([[0.0, -2000.0, -1e30], [5.0, 5.0, -2000.0]])
    with np.errstate(all="raise", under="ignore"):
        scores = Entropy().fit(logits).score_samples(logits)
    np.testing.assert_allclose(scores, [0, -math.log(2)], atol=1e-15)


def test_saturated_float32_logits_keep_a_strict_order():
    gap = np.arange(20, 701, dtype=np.float32)
    logits = np.zeros((len(gap), 10), dtype=np.float32)
    logits[:, 3] = gap
    scores = Entropy().fit(logits).score_samples(logits)
    assert np.all(np.diff(scores) > 0)
    gap = gap.astype(np.float64)
    np.testing.assert_allclose(scores, -9 * (gap + 1) * np.exp(-gap), rtol=1e-7)


def test_bounds_and_invariances():
    logits = np.random.default_rng(1).normal(scale=2, size=(60, 5))
    detector = Entropy().fit(logits)
    scores = detector.score_samples(logits)
    assert np.all(scores < 0)
    assert np.all(scores > -math.log(5))
    np.testing.assert_allclose(detector.score_samples(logits[:, ::-1]), scores)
    np.testing.assert_allclose(detector.score_samples(logits - 50), scores)
    # a network that is surer of everything has less entropy
    assert np.all(detector.score_samples(2 * logits) > scores)


def test_hard_zeros_of_a_classifier():
    X = np.arange(40.0)[:, None]
    y = (X[:, 0] >= 20).astype(int)
    detector = Entropy(DecisionTreeClassifier()).fit(X, y)
    assert set(np.unique(detector.estimator_.predict_proba(X))) == {0, 1}
    np.testing.assert_allclose(detector.score_samples(X), 0, atol=1e-300)

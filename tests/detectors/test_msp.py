"""Tests of the maximum softmax probability."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from scipy.special import expit
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from skood.detectors import MSP

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    MSP(),
    MSP(LogisticRegression(), temperature=2.0),
    MSP(RandomForestClassifier(n_estimators=5, random_state=0)),
]


def _naive(logits, temperature=1.0):
    """max p - 1, by loops in float64."""
    scores = []
    for row in np.asarray(logits, dtype=np.float64).tolist():
        top = max(row)
        terms = [math.exp((value - top) / temperature) for value in row]
        scores.append(max(terms) / math.fsum(terms) - 1)
    return np.array(scores)


@pytest.mark.parametrize("temperature", [0.5, 1, 3.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(temperature, dtype):
    logits = np.random.default_rng(0).normal(scale=3, size=(100, 6)).astype(dtype)
    scores = MSP(temperature=temperature).fit(logits).score_samples(logits)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, _naive(logits, temperature), atol=1e-14)


def test_two_classes_have_a_closed_form():
    margin = np.linspace(-700, 700, 201)
    logits = np.column_stack([-margin / 2, margin / 2])
    scores = MSP().fit(logits).score_samples(logits)
    np.testing.assert_allclose(scores, -expit(-np.abs(margin)), rtol=1e-14)


def test_equal_logits_score_1_over_n_classes():
    logits = np.full((2, 8), 5.0)
    np.testing.assert_allclose(
        MSP().fit(logits).score_samples(logits), 1 / 8 - 1, rtol=1e-15
    )


def test_saturated_float32_logits_keep_a_strict_order():
    """All of these have max p == 1 in float32, and nearly all in float64."""
    gap = np.arange(20, 701, dtype=np.float32)
    logits = np.zeros((len(gap), 10), dtype=np.float32)
    logits[:, 3] = gap
    scores = MSP().fit(logits).score_samples(logits)
    assert np.all(np.diff(scores) > 0)
    assert np.all(scores < 0)
    np.testing.assert_allclose(scores, -9 * np.exp(-gap.astype(float)), rtol=1e-7)


def test_infinite_gap_is_the_best_score():
    logits = np.array([[2000.0, 0.0], [1e30, -1e30]])
    np.testing.assert_array_equal(MSP().fit(logits).score_samples(logits), [0, 0])


def test_invariances():
    logits = np.random.default_rng(1).normal(scale=2, size=(50, 5))
    msp = MSP().fit(logits)
    scores = msp.score_samples(logits)
    shifted = logits + np.linspace(-100, 100, 50)[:, None]
    np.testing.assert_allclose(msp.score_samples(shifted), scores, rtol=1e-12)
    np.testing.assert_allclose(msp.score_samples(logits[:, ::-1]), scores, rtol=1e-14)
    tempered = MSP(temperature=2.5).fit(logits).score_samples(2.5 * logits)
    np.testing.assert_allclose(tempered, scores, rtol=1e-12)
    flat = MSP(temperature=1e12).fit(logits).score_samples(logits)
    np.testing.assert_allclose(flat, 1 / 5 - 1, rtol=1e-10)


def test_threshold_is_the_quantile_of_the_training_scores():
    logits = np.random.default_rng(2).normal(scale=2, size=(200, 4))
    msp = MSP(contamination=0.1).fit(logits)
    scores = np.sort(_naive(logits))
    # the 10 % quantile lies between the 20th and the 21st of 200 ordered scores
    assert scores[19] < msp.offset_ < scores[20]
    assert np.sum(msp.predict(logits) == -1) == 20
    np.testing.assert_allclose(
        msp.decision_function(logits), _naive(logits) - msp.offset_, atol=1e-14
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_reads_a_linear_classifier(n_classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], y[y < n_classes]
    classifier = LogisticRegression(max_iter=500).fit(X, y)
    msp = MSP(LogisticRegression(max_iter=500)).fit(X, y)
    np.testing.assert_allclose(
        msp.score_samples(X), classifier.predict_proba(X).max(axis=1) - 1, atol=1e-12
    )
    assert msp.estimator is not msp.estimator_
    np.testing.assert_array_equal(msp.classes_, np.arange(n_classes))


@pytest.mark.parametrize(
    "classifier", [RandomForestClassifier(10, random_state=0), GaussianNB()], ids=repr
)
def test_reads_probabilities(classifier):
    X, y = load_iris(return_X_y=True)
    msp = MSP(classifier).fit(X, y)
    proba = msp.estimator_.predict_proba(X)
    np.testing.assert_allclose(msp.score_samples(X), proba.max(axis=1) - 1, atol=1e-12)


def test_single_column_is_no_logits():
    with pytest.raises(ValueError, match=r"one column per class.*-m/2 and m/2"):
        MSP().fit(np.ones((10, 1)))

"""Tests of the neural relation graph."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import Relation, _relation
from skood.nn import LinearHead
from skood.utils._left_out import drawn_copies
from skood.utils._sample_keys import SampleKeys
from tests._loops import looped
from tests._thresholds import middle_of_gap

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    Relation(),
    Relation(LogisticRegression(), power=2.0, threshold=0.0),
    Relation(max_samples=0.7, random_state=0),
]


def _network(n_samples=120, n_features=6, dtype=np.float64, seed=0):
    """A frozen head, and features."""
    rng = np.random.default_rng(seed)
    coef = rng.normal(size=(3, n_features)).astype(dtype)
    Z = rng.normal(size=(n_samples, n_features)).astype(dtype)
    return FrozenEstimator(LinearHead(coef, np.arange(3, dtype=dtype))), Z


def _relations(head, bank, queries):
    """Relations of each query to each row of the bank, one by one."""
    W, b = np.asarray(head.coef, np.float64), np.asarray(head.intercept, np.float64)

    def proba(z):
        weights = [math.exp(w @ z + c) for w, c in zip(W, b, strict=True)]
        return np.array(weights) / sum(weights)

    def relation(a, b, pa, pb):
        cosine = (a @ b) / math.sqrt((a @ a) * (b @ b))
        return max(0.0, cosine) * float(pa @ pb)

    queries, bank = np.asarray(queries, np.float64), np.asarray(bank, np.float64)
    pairs = [(other, proba(other)) for other in bank]
    return np.array(
        [[relation(z, other, proba(z), p) for other, p in pairs] for z in queries]
    )


def _naive(relations, power=1.0, threshold=0.03):
    return np.array([sum(k**power for k in row if k > threshold) for row in relations])


@looped("power", [0.5, 1.0, 1, 4])
@looped("threshold", [0.0, 0.03, 0.4])
@looped("dtype", [np.float32, np.float64])
def test_equals_naive_loop(power, threshold, dtype):
    head, Z = _network(dtype=dtype)
    queries = 2 * np.random.default_rng(1).normal(size=(10, 6)).astype(dtype)
    relations = _relations(head.estimator, Z, queries)
    # no relation is so close to the threshold that rounding decides
    assert np.abs(relations[relations > 0] - threshold).min() > 1e-7
    detector = Relation(head, power=power, threshold=threshold).fit(Z)
    expected = _naive(relations, power, threshold)
    rtol = 1e-10 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=rtol)


def test_sample_is_related_to_itself_by_its_collision_probability():
    """Its cosine is one, and its relation to itself Σ p²."""
    head = FrozenEstimator(LinearHead(np.zeros((4, 2)), np.log([0.4, 0.3, 0.2, 0.1])))
    detector = Relation(head).fit([[3.0, 4.0]])
    scores = detector.score_samples([[6.0, 8.0], [-3.0, -4.0], [4.0, -3.0], [0, 0]])
    np.testing.assert_allclose(scores, [0.16 + 0.09 + 0.04 + 0.01, 0, 0, 0], rtol=1e-12)


def test_sums_over_the_bank():
    """The scores from two halves of the bank add up to those from the whole."""
    head, Z = _network()
    halves = [Relation(head).fit(part).score_samples(Z) for part in (Z[:50], Z[50:])]
    whole = Relation(head).fit(Z).score_samples(Z)
    np.testing.assert_allclose(sum(halves), whole, rtol=1e-12)


def test_scores_are_not_negative():
    head, Z = _network()
    scores = Relation(head, threshold=0.0).fit(Z).score_samples(-Z)
    assert (scores >= 0).all()


def test_bank_is_in_the_precision_of_the_features():
    for dtype in (np.float32, np.float64):
        head, Z = _network(dtype=dtype)
        detector = Relation(head).fit(Z)
        assert detector.bank_.dtype == detector.bank_proba_.dtype == dtype
        np.testing.assert_allclose(
            np.linalg.norm(detector.bank_, axis=1), 1.0, rtol=1e-6
        )
        np.testing.assert_allclose(detector.bank_proba_.sum(axis=1), 1.0, rtol=1e-6)


def test_saturated_logits():
    head, Z = _network()
    sure = FrozenEstimator(LinearHead(1e4 * head.coef_, head.intercept_))
    detector = Relation(sure).fit(Z)
    assert np.isfinite(detector.score_samples(Z)).all()
    assert np.isin(detector.bank_proba_.max(axis=1), 1.0).all()


@pytest.mark.parametrize("max_samples, n_kept", [(40, 40), (0.25, 30), (200, 120)])
def test_max_samples(max_samples, n_kept):
    head, Z = _network()
    detector = Relation(head, max_samples=max_samples, random_state=0).fit(Z)
    assert detector.bank_.shape == (n_kept, 6)
    assert detector.bank_proba_.shape == (n_kept, 3)
    full = Relation(head).fit(Z).bank_
    indices = [np.flatnonzero((full == row).all(axis=1))[0] for row in detector.bank_]
    expected = _naive(_relations(head.estimator, Z[indices], Z))
    np.testing.assert_allclose(detector.score_samples(Z), expected, rtol=1e-10)
    again = Relation(head, max_samples=max_samples, random_state=0).fit(Z)
    np.testing.assert_array_equal(again.bank_, detector.bank_)


def test_reads_a_classifier_without_a_head():
    """Features are its input; the probabilities are those it predicts."""
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    detector = Relation(FrozenEstimator(forest)).fit(X)
    np.testing.assert_allclose(
        detector.bank_proba_, forest.predict_proba(X), atol=1e-12
    )


def test_chunks_and_tiles_change_nothing(monkeypatch):
    head, Z = _network()
    expected = Relation(head).fit(Z).score_samples(Z)
    monkeypatch.setattr(_relation, "TILE_SAMPLES", 13)
    monkeypatch.setattr(_relation, "_TILE_BYTES", 13 * 8 * 50)
    actual = Relation(head).fit(Z).score_samples(Z)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_threshold_from_5000_samples():
    head, Z = _network(6000)
    detector = Relation(head, max_samples=100, random_state=0).fit(Z)
    indices, _ = drawn_copies(SampleKeys(Z), limit=5000)
    expected = middle_of_gap(detector.score_samples(Z[indices]), 0.05)
    assert detector.offset_ == pytest.approx(expected, rel=1e-12)


def test_a_relation_at_the_threshold_does_not_count():
    """k = 1 · 1/2 for two equal logits: no edge at a threshold of 1/2."""
    head = FrozenEstimator(LinearHead(np.zeros((2, 2))))
    Z = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    at = Relation(head, threshold=0.5).fit(Z).score_samples(Z)
    below = Relation(head, threshold=0.49).fit(Z).score_samples(Z)
    np.testing.assert_array_equal(at, 0)
    np.testing.assert_allclose(below, 1.5)

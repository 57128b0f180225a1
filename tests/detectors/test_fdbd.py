"""Tests of the distance to the decision boundaries."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import FDBD
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from tests._loops import looped

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    FDBD(),
    FDBD(LogisticRegression(), normalizer="length"),
    FDBD(normalizer=None),
]


def _network(dtype=np.float64, n_classes=4, n_samples=100, seed=0):
    """A frozen head of random weights, and features whose mean is not zero."""
    rng = np.random.default_rng(seed)
    coef, intercept = rng.normal(size=(n_classes, 6)), rng.normal(size=n_classes)
    head = LinearHead(coef.astype(dtype), intercept.astype(dtype))
    Z = (2 * rng.normal(size=(n_samples, 6)) + np.arange(6)).astype(dtype)
    return FrozenEstimator(head), Z


def _naive(head, Z, queries, normalizer):
    """The score, pair by pair of classes."""
    W, b = (np.asarray(a, np.float64) for a in (head.coef, head.intercept))
    Z, queries = (np.asarray(a, np.float64) for a in (Z, queries))
    mean = sum(Z) / len(Z)
    scores = []
    for z in queries:
        logits = [float(w @ z + c) for w, c in zip(W, b, strict=True)]
        best = logits.index(max(logits))
        distances = []
        for c in range(len(W)):
            gap = math.sqrt(sum((W[best] - W[c]) ** 2))
            if c != best and gap > 0:
                distances.append((logits[best] - logits[c]) / gap)
        score = sum(distances) / len(distances)
        if normalizer == "distance":
            score /= math.sqrt(sum((z - mean) ** 2))
        elif normalizer == "length":
            score /= math.sqrt(sum(z**2))
        scores.append(score)
    return np.array(scores)


@looped("normalizer", ["distance", "length", None])
@looped("n_classes", [2, 4, 9])
@looped("dtype", [np.float32, np.float64])
def test_equals_naive_loop(normalizer, n_classes, dtype):
    head, Z = _network(dtype, n_classes)
    queries = 3 * np.random.default_rng(1).normal(size=(50, 6)).astype(dtype)
    detector = FDBD(head, normalizer=normalizer).fit(Z)
    expected = _naive(head.estimator, Z, queries, normalizer)
    # logits of float32 features come in float32
    tolerance = {"rtol": 1e-10} if dtype is np.float64 else {"atol": 1e-5, "rtol": 0}
    np.testing.assert_allclose(detector.score_samples(queries), expected, **tolerance)
    np.testing.assert_allclose(detector.mean_, Z.mean(axis=0, dtype=np.float64))


def test_is_the_distance_to_the_boundary():
    """Two classes: the foot of the perpendicular has equal logits."""
    head, Z = _network(n_classes=2)
    distance = FDBD(head, normalizer=None).fit(Z).score_samples(Z)
    W = head.coef_
    normal = (W[0] - W[1]) / np.linalg.norm(W[0] - W[1])
    side = np.where(head.predict(Z) == 0, -1.0, 1.0)
    feet = Z + (side * distance)[:, None] * normal
    logits = head.predict_logits(feet)
    np.testing.assert_allclose(logits[:, 0], logits[:, 1], atol=1e-12)


def test_boundaries_score_zero():
    """On a boundary of two classes, and with all logits equal."""
    head = FrozenEstimator(LinearHead([[1.0, 0.0], [-1.0, 0.0]]))
    detector = FDBD(head).fit(np.random.default_rng(0).normal(size=(9, 2)))
    np.testing.assert_array_equal(detector.score_samples([[0.0, 5.0]]), 0.0)


def test_shifting_all_logits_changes_nothing():
    head, Z = _network()
    moved = FrozenEstimator(LinearHead(head.coef_ + 3.0, head.intercept_ - 7.0))
    expected = FDBD(head).fit(Z).score_samples(Z)
    np.testing.assert_allclose(FDBD(moved).fit(Z).score_samples(Z), expected, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_scaling_the_head_changes_nothing(scale):
    head, Z = _network()
    scaled = FrozenEstimator(LinearHead(scale * head.coef_, scale * head.intercept_))
    expected = FDBD(head).fit(Z).score_samples(Z)
    actual = FDBD(scaled).fit(Z).score_samples(Z)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_equal_weights_have_no_boundary():
    head, Z = _network()
    coef = np.vstack([head.coef_, head.coef_[1], head.coef_[1]])
    intercept = np.append(head.intercept_, [head.intercept_[1], -50.0])
    double = FrozenEstimator(LinearHead(coef, intercept))
    message = "3 of the 6 rows of weights .*first is row 1.*left out of the mean. Merge"
    with pytest.warns(SkoodWarning, match=message):
        detector = FDBD(double).fit(Z)
    scores = detector.score_samples(Z)
    expected = _naive(double.estimator, Z, Z, "distance")
    np.testing.assert_allclose(scores, expected, rtol=1e-10)
    # a pair is left out where its class is predicted: then the score is the one of
    # four classes
    is_one = head.predict(Z) == 1
    assert is_one.any()
    four = FDBD(head).fit(Z).score_samples(Z)
    np.testing.assert_allclose(scores[is_one], four[is_one], rtol=1e-10)


def test_a_head_without_any_boundary():
    head = FrozenEstimator(LinearHead(np.ones((3, 2)), [1.0, 2.0, 3.0]))
    with pytest.warns(SkoodWarning, match="3 of the 3 rows"):
        detector = FDBD(head).fit([[1.0, 2.0], [3.0, 5.0]])
    np.testing.assert_array_equal(detector.score_samples([[4.0, -1.0]]), 0.0)


@pytest.mark.parametrize("normalizer", ["distance", "length"])
def test_a_row_at_the_origin_of_the_normalizer(normalizer):
    """Its score is finite, and above those of rows near it of the same class."""
    rng = np.random.default_rng(0)
    head = FrozenEstimator(LinearHead(rng.normal(size=(3, 2)), [0.0, 0.0, 5.0]))
    Z = np.array([[1.0, 2.0], [3.0, -6.0]])
    detector = FDBD(head, normalizer=normalizer).fit(Z)
    origin = [2.0, -2.0] if normalizer == "distance" else [0.0, 0.0]
    score = detector.score_samples([origin])
    assert np.isfinite(score) and score > 1e12
    assert detector.score_samples(np.add([origin], 1e-6)) < score
    # also where the mean itself is zero
    centered = FDBD(head, normalizer=normalizer).fit(Z - Z.mean(axis=0))
    score = centered.score_samples([[0.0, 0.0]])
    assert np.isfinite(score) and score > 1e12

"""Tests of KL matching."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import KLMatching
from skood.exceptions import SkoodWarning

# What the tests of all estimators check; at night, all of them.
INSTANCES = [KLMatching(), KLMatching(LogisticRegression())]


def _logits(n=150, n_classes=5, scale=2.0, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=scale, size=(n, n_classes))
    logits[np.arange(n), np.arange(n) % n_classes] += 2 * scale
    return logits.astype(dtype)


def _naive(train, queries):
    """Mean predictions, and the least divergence from one, by loops in float64."""
    groups = {}
    for row in softmax(np.asarray(train, dtype=np.float64), axis=1).tolist():
        groups.setdefault(row.index(max(row)), []).append(row)
    typical = [
        [math.fsum(column) / len(members) for column in zip(*members, strict=True)]
        for _, members in sorted(groups.items())
    ]
    scores = []
    for p in softmax(np.asarray(queries, dtype=np.float64), axis=1).tolist():
        divergences = [
            math.fsum(a * math.log(a / b) for a, b in zip(p, d, strict=True) if a > 0)
            for d in typical
        ]
        scores.append(-min(divergences))
    return np.array(scores), np.array(typical), sorted(groups)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.3, 2.0, 15.0])
def test_equals_naive_loop_and_scipy(dtype, scale):
    train, queries = _logits(scale=scale, dtype=dtype), _logits(60, seed=1, dtype=dtype)
    detector = KLMatching().fit(train)
    expected, typical, columns = _naive(train, queries)
    scores = detector.score_samples(queries)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(detector.distributions_, typical, rtol=1e-12)
    np.testing.assert_array_equal(detector.columns_, columns)
    p = softmax(queries.astype(np.float64), axis=1)
    by_scipy = np.min(
        [entropy(p, np.array(d), axis=1) for d in typical[:, None]], axis=0
    )
    np.testing.assert_allclose(scores, -by_scipy, rtol=1e-11, atol=1e-14)


def test_a_typical_prediction_has_no_divergence():
    """One row per class: each is its own typical prediction."""
    logits = np.random.default_rng(0).normal(size=(5, 5)) + 5 * np.eye(5)
    detector = KLMatching().fit(logits)
    np.testing.assert_allclose(detector.score_samples(logits), 0, atol=1e-15)
    np.testing.assert_allclose(detector.distributions_, softmax(logits, axis=1))


def test_scores_are_not_positive_and_ignore_a_constant():
    logits, queries = _logits(), _logits(seed=3)
    detector = KLMatching().fit(logits)
    scores = detector.score_samples(queries)
    assert np.all(scores <= 0)
    np.testing.assert_allclose(detector.score_samples(queries - 40), scores, atol=1e-13)


def test_labels_are_not_used():
    """Except for those of known OOD rows."""
    logits = _logits()
    y = np.random.default_rng(0).integers(0, 5, len(logits))
    with_y = KLMatching().fit(logits, y)
    np.testing.assert_array_equal(
        with_y.score_samples(logits), KLMatching().fit(logits).score_samples(logits)
    )
    is_ood = np.arange(len(y)) % 3 == 0
    subset = KLMatching().fit(logits, np.where(is_ood, -1, y))
    np.testing.assert_array_equal(
        subset.distributions_, KLMatching().fit(logits[~is_ood]).distributions_
    )


def _exact(train, query):
    """The divergence in 80 digits."""
    with localcontext() as context:
        context.prec = 80

        def probabilities(row):
            weights = [Decimal(value).exp() for value in row]
            return [w / sum(weights) for w in weights]

        samples = [probabilities(row) for row in train]
        typical = [sum(column) / len(samples) for column in zip(*samples, strict=True)]
        p = probabilities(query)
        return float(sum(a * (a / b).ln() for a, b in zip(p, typical, strict=True)))


def test_sure_predictions_keep_their_digits():
    """1 - max p is 1e-9 in the typical prediction and 1e-30 in queries."""
    train = [[20.0, 0.0, -1.0], [22.0, 0.0, 1.0]]
    queries = [[gap, 0.0, 0.5] for gap in (15.0, 30.0, 50.0, 70.0)]
    with pytest.warns(SkoodWarning, match="2 of the 3 classes"):
        detector = KLMatching().fit(train)
    expected = [-_exact(train, query) for query in queries]
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-12)


def test_predictions_that_underflow():
    """Entries of a typical prediction below the smallest normal float count as it."""
    train = np.array([[2000.0, 0.0], [0.0, 2000.0]])
    with np.errstate(all="raise", under="ignore"):
        detector = KLMatching().fit(train)
        scores = detector.score_samples([[1e4, 0.0], [0.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(detector.distributions_, np.eye(2))
    floor = math.log(np.finfo(np.float64).tiny)
    p = 1 / (1 + math.e)
    sure = p * math.log(p) + (1 - p) * math.log(1 - p) - p * floor
    expected = [0, -(math.log(0.5) - floor / 2), -sure]
    np.testing.assert_allclose(scores, expected, rtol=1e-14)


def test_a_class_that_is_never_predicted():
    logits = _logits()
    never = logits.copy()
    never[:, [1, 3]] -= 100
    message = (
        r"predicted to be of 2 of the 5 classes \(columns \[1, 3\] of the logits\)"
    )
    with pytest.warns(SkoodWarning, match=message):
        detector = KLMatching().fit(never)
    np.testing.assert_array_equal(detector.columns_, [0, 2, 4])
    np.testing.assert_allclose(
        detector.score_samples(logits), _naive(never, logits)[0], rtol=1e-11
    )
    many = np.column_stack([np.zeros((4, 20)), np.eye(4) * 9])
    with pytest.warns(SkoodWarning, match=r"20 of the 24 .*8, 9\], … of the"):
        KLMatching().fit(many)


def test_partial_fit_equals_fit():
    """Also if a class is predicted in a later call only."""
    logits = _logits(300)
    order = np.argsort(logits.argmax(axis=1), kind="stable")
    expected = KLMatching().fit(logits[order])
    detector = KLMatching()
    with pytest.warns(SkoodWarning, match="No training sample is predicted"):
        detector.partial_fit(logits[order[:100]])
    early = detector.columns_
    detector.partial_fit(logits[order[100:]])
    assert len(early) < len(detector.columns_) == 5
    np.testing.assert_allclose(
        detector.distributions_, expected.distributions_, rtol=1e-13
    )
    np.testing.assert_allclose(
        detector.score_samples(logits), expected.score_samples(logits), atol=1e-13
    )
    assert detector.offset_ == pytest.approx(expected.offset_, rel=1e-12)


def test_partial_fit_that_fails_changes_nothing():
    logits = _logits(60)
    detector = KLMatching().fit(logits)
    before = detector.score_samples(logits)
    with pytest.raises(ValueError, match="NaN"):
        detector.partial_fit(np.full((3, 5), np.nan))
    np.testing.assert_array_equal(detector.score_samples(logits), before)


def test_reads_a_classifier():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=500).fit(X, y)
    logits = model.decision_function(X)
    detector = KLMatching(FrozenEstimator(model)).fit(X, y)
    expected = _naive(logits, logits)[0]
    np.testing.assert_allclose(detector.score_samples(X), expected, atol=1e-13)


def test_chunks_change_nothing(monkeypatch):
    logits = _logits()
    expected = KLMatching().fit(logits)
    monkeypatch.setattr(KLMatching, "_logit_chunk_bytes", 7 * 8 * 4 * 5)
    cut = KLMatching().fit(logits)
    np.testing.assert_allclose(cut.distributions_, expected.distributions_, rtol=1e-13)
    np.testing.assert_allclose(
        cut.score_samples(logits), expected.score_samples(logits), atol=1e-14
    )


def test_pytorch_ood():
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("pytorch_ood.detector")
    train, queries = _logits(), _logits(60, seed=1)
    theirs = peer.KLMatching(None).fit_logits(torch.from_numpy(train))
    expected = -theirs.predict_logits(torch.from_numpy(queries)).detach().numpy()
    ours = KLMatching().fit(train).score_samples(queries)
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-13)


def test_sums_are_not_written_into():
    """What is put back when `partial_fit` fails must be as it was."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 4)) + 4 * np.eye(4)[np.arange(60) % 4]
    fitted = KLMatching().partial_fit(logits[:30])
    held = fitted._sums
    before = [array.copy() for array in held]
    fitted.partial_fit(logits[30:])
    for array, old in zip(held, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_no_divergence_is_negative():
    """Of a sample that is its own pattern it is 0, and rounding has two signs."""
    for seed in range(20):
        logits = np.random.default_rng(seed).normal(size=(9, 9)) + 5 * np.eye(9)
        scores = KLMatching().fit(logits).score_samples(logits)
        assert scores.max() <= 0
        np.testing.assert_allclose(scores, 0, atol=1e-14)

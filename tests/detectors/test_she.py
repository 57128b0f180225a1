"""Tests of the simplified Hopfield energy."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import re

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import SHE, _she
from skood.nn import LinearHead
from tests.detectors._paths import assert_torch_path_agrees

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    SHE(),
    SHE(metric="euclidean"),
    SHE(metric="cosine"),
    SHE(LogisticRegression()),
]

METRICS = ["inner", "euclidean", "cosine"]


def _data(n_features=6, n_classes=3, dtype=np.float64):
    """Features, noisy labels, and a frozen head."""
    rng = np.random.default_rng(0)
    coef = rng.normal(size=(n_classes, n_features)).astype(dtype)
    Z = rng.normal(size=(150, n_features)).astype(dtype)
    y = (Z @ coef.T).argmax(axis=1)
    wrong = rng.choice(len(y), 30, replace=False)
    y[wrong] = rng.integers(n_classes, size=30)
    queries = 3 * rng.normal(size=(50, n_features)).astype(dtype)
    return FrozenEstimator(LinearHead(coef)), Z, y, queries


def _naive(head, Z, y, queries, metric, labels=None):
    """Row by row, in plain Python."""
    coef = np.asarray(head.estimator.coef_, dtype=np.float64)
    labels = list(range(len(coef))) if labels is None else labels
    known = [k for k in range(len(coef)) if labels[k] in set(y.tolist())]
    samples = {k: [] for k in known}
    for z, label in zip(np.asarray(Z, np.float64), y.tolist(), strict=True):
        k = int(np.argmax(coef @ z))
        if labels[k] == label:
            samples[k].append(z)
    patterns = {k: sum(samples[k]) / len(samples[k]) for k in known}
    scores = []
    for q in np.asarray(queries, np.float64):
        s = patterns[max(known, key=lambda k, q=q: coef[k] @ q)]
        inner = sum(a * b for a, b in zip(q, s, strict=True))
        if metric == "euclidean":
            inner = -math.sqrt(sum((a - b) ** 2 for a, b in zip(q, s, strict=True)))
        if metric == "cosine":
            inner /= math.sqrt(sum(q**2)) * math.sqrt(sum(s**2))
        scores.append(inner)
    return np.array(scores), np.array([patterns[k] for k in known])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(metric, dtype):
    head, Z, y, queries = _data(dtype=dtype)
    detector = SHE(head, metric=metric).fit(Z, y)
    scores = detector.score_samples(queries)
    assert scores.dtype == np.float64
    expected, patterns = _naive(head, Z, y, queries, metric)
    np.testing.assert_allclose(scores, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(detector.patterns_, patterns, rtol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype, rtol", [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_torch_path(metric, dtype, rtol):
    head, Z, y, _ = _data(dtype=dtype)
    y[y == 1] = 2  # two of three classes: the torch path picks columns of logits
    assert_torch_path_agrees(SHE(head, metric=metric), Z, y, rtol)


def test_misclassified_samples_do_not_count():
    """Rows that are not correctly classified may be anything."""
    head, Z, y, queries = _data()
    expected = SHE(head).fit(Z, y).score_samples(queries)
    correct = head.predict(Z) == y
    np.testing.assert_array_equal(correct.sum() < len(y) - 10, True)
    got = SHE(head).fit(Z[correct], y[correct]).score_samples(queries)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    longer = np.where(correct[:, None], Z, 1e3 * Z)  # has the same prediction
    got = SHE(head).fit(longer, y).score_samples(queries)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_scale_of_the_features():
    """The inner product grows with the square, the cosine not at all."""
    head, Z, y, queries = _data()
    for metric, factor in (("inner", 49), ("euclidean", 7), ("cosine", 1)):
        scores = SHE(head, metric=metric).fit(Z, y).score_samples(queries)
        got = SHE(head, metric=metric).fit(7 * Z, y).score_samples(7 * queries)
        np.testing.assert_allclose(got, factor * scores, rtol=1e-10, atol=1e-12)


def test_pattern_itself_scores_best():
    head, Z, y, _ = _data()
    for metric, best in (("euclidean", 0), ("cosine", 1)):
        detector = SHE(head, metric=metric).fit(Z, y)
        at = detector.score_samples(detector.patterns_)
        np.testing.assert_allclose(at, best, atol=1e-12)
        assert detector.score_samples(Z).max() <= best


def test_classes_are_matched_by_label_not_by_position():
    """A classifier that knows more classes than y, in another order, as text."""
    head, Z, y, queries = _data(n_classes=5)
    names = np.array(["e", "d", "c", "b", "a"])
    named = FrozenEstimator(LinearHead(head.coef_, classes=names))
    mask = np.isin(y, [1, 3, 4])
    detector = SHE(named).fit(Z[mask], names[y[mask]])
    assert detector.classes_.tolist() == ["a", "b", "d"]
    expected, patterns = _naive(head, Z[mask], names[y[mask]], queries, "inner", names)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-10)
    np.testing.assert_allclose(detector.patterns_, patterns[::-1], rtol=1e-12)


@pytest.mark.parametrize("named", [False, True])
def test_a_class_without_a_correct_row(named):
    head, Z, y, _ = _data()
    names = np.array(["ant", "bee", "cat"]) if named else np.arange(3)
    head = FrozenEstimator(LinearHead(head.coef_, classes=names))
    y[(y == 1) & (head.predict(Z) == names[1])] = 2
    message = f"No sample of the classes {names[1:2].tolist()} is correctly classified"
    with pytest.raises(ValueError, match=re.escape(message)):
        SHE(head).fit(Z, names[y])


def test_a_class_that_the_classifier_does_not_know():
    head, Z, y, _ = _data()
    y[:5] = 7
    message = r"classes \[7\] is .*\(n_samples = 150, classes of the classifier: \[0, 1"
    with pytest.raises(ValueError, match=message):
        SHE(head).fit(Z, y)
    with pytest.raises(ValueError, match=r"classes \['a'\] is correctly classified"):
        SHE(head).fit(Z, np.full(len(Z), "a"))


def test_labels_are_needed():
    head, Z, _, _ = _data()
    for call in (SHE(head).fit, SHE(head).partial_fit):
        with pytest.raises(ValueError, match=r"SHE requires y to be passed.*patterns"):
            call(Z)
    with pytest.raises(ValueError, match=r"SHE\(\) requires y to be passed.*head"):
        SHE().fit(Z)


def test_a_late_class_makes_it_wait():
    """A class is in y, but none of its rows is correct yet."""
    head, Z, y, queries = _data()
    correct = head.predict(Z) == y
    late = np.flatnonzero(correct & (y == 2))
    y[np.flatnonzero(~correct)[0]] = 2
    order = np.concatenate([np.setdiff1d(np.arange(len(y)), late), late])
    Z, y, cut = Z[order], y[order], len(y) - len(late)
    detector = SHE(head).partial_fit(Z[:cut], y[:cut])
    with pytest.raises(NotFittedError):
        detector.score_samples(Z)
    detector.partial_fit(Z[cut:], y[cut:])
    expected = SHE(head).fit(Z, y)
    np.testing.assert_allclose(
        detector.score_samples(queries), expected.score_samples(queries), rtol=1e-12
    )
    assert detector.offset_ == pytest.approx(expected.offset_, rel=1e-12)


def test_classifier_without_a_head():
    """A forest has predictions, which is all that is needed."""
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(10, max_depth=2, random_state=0)
    detector = SHE(make_pipeline(StandardScaler(), forest)).fit(X, y)
    fitted = detector.estimator_
    Z, predicted = fitted[:-1].transform(X), fitted.predict(X)
    patterns = np.stack([Z[(y == k) & (predicted == k)].mean(axis=0) for k in range(3)])
    expected = np.sum(Z * patterns[predicted], axis=1)
    np.testing.assert_allclose(detector.score_samples(X), expected, rtol=1e-9)


def test_zero_vectors():
    """Cosine with a zero vector is zero, be it a row or a pattern."""
    head = LinearHead([[1.0, 0.0], [-1.0, 0.0]])
    Z = np.array([[0.0, 0.0], [0.0, 0.0], [-2.0, 1.0]])  # zero is of the first class
    detector = SHE(head, metric="cosine").fit(Z, [0, 0, 1])
    np.testing.assert_array_equal(detector.patterns_, [[0, 0], [-2, 1]])
    scores = detector.score_samples([[0.0, 0.0], [3.0, 1.0], [-4.0, 2.0]])
    np.testing.assert_allclose(scores, [0, 0, 1], rtol=1e-12)
    inner = SHE(head).fit(Z, [0, 0, 1]).score_samples([[0.0, 0.0], [3.0, 1.0]])
    np.testing.assert_array_equal(inner, [0, 0])


def test_other_number_of_logits_than_classes():
    """As skorch gives them for the labels 1, 2, … of a network of one more output."""

    class Wrong(LogisticRegression):
        def predict_proba(self, X):
            return np.full((len(X), 4), 0.25)

    _, Z, y, _ = _data()
    model = Wrong().fit(Z, y)
    del model.coef_
    with pytest.raises(ValueError, match=r"got 4 logits for 3 classes: \[0, 1, 2\]"):
        SHE(FrozenEstimator(model)).fit(Z, y)


def test_chunks_change_nothing(monkeypatch):
    head, Z, y, queries = _data()
    expected = SHE(head).fit(Z, y).score_samples(queries)
    monkeypatch.setattr(SHE, "_chunk_bytes", 20 * 8 * 4 * 9)
    monkeypatch.setattr(_she, "_BLOCK", 6 * 7)  # 7 rows
    got = SHE(head).fit(Z, y).score_samples(queries)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_a_head_whose_classes_are_not_sorted(metric):
    """The patterns are in the order of classes_, the logits in that of the head."""
    head, Z, codes, queries = _data()
    labels = ["c", "a", "b"]
    y = np.array(labels)[codes]
    unsorted = FrozenEstimator(LinearHead(head.estimator.coef_, classes=labels))
    detector = SHE(unsorted, metric=metric).fit(Z, y)
    expected, patterns = _naive(head, Z, y, queries, metric, labels)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-10)
    assert detector.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(detector.patterns_, patterns[[1, 2, 0]], rtol=1e-12)


def test_partial_fit_equals_fit_far_from_the_origin():
    head, Z, y, _ = _data()
    coef, shift = head.estimator.coef_, 1e6
    far = FrozenEstimator(LinearHead(1e3 * coef, -1e3 * shift * coef.sum(axis=1)))
    Z, y = np.tile(shift + 1e-3 * Z, (20, 1)), np.tile(y, 20)
    whole, steps = (SHE(far, metric="euclidean") for _ in range(2))
    whole.fit(Z, y)
    for start in range(0, len(Z), 700):
        steps.partial_fit(Z[start : start + 700], y[start : start + 700])
    np.testing.assert_allclose(
        steps.score_samples(Z), whole.score_samples(Z), rtol=1e-9
    )

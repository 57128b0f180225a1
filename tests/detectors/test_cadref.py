"""Tests of class-aware decoupled relative features."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import CADRef, CARef
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from skood.nn._outputs import NetworkOutputs
from tests._loops import looped

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    CADRef(),
    CADRef(LogisticRegression(), logit_score="gen"),
    CADRef(logit_score="max_logit"),
    CADRef(logit_score="msp"),
]

LOGIT_SCORES = ["energy", "gen", "max_logit", "msp"]

each_score = pytest.mark.parametrize("logit_score", LOGIT_SCORES)


def _network(dtype=np.float64, n_classes=4, n_samples=150, seed=0):
    """A frozen head with positive logits, and features of both signs."""
    rng = np.random.default_rng(seed)
    coef = rng.normal(size=(n_classes, 6)).astype(dtype)
    coef[0, 2] = 0.0  # this feature raises no logit of the first class, nor lowers it
    head = LinearHead(coef, np.full(n_classes, 25, dtype))
    Z = (2 * rng.normal(size=(n_samples, 6)) + 0.5).astype(dtype)
    return FrozenEstimator(head), Z


def _logit_score(logits, kind):
    if kind == "max_logit":
        return max(logits)
    total = sum(math.exp(value) for value in logits)
    if kind == "energy":
        return math.log(total)
    p = sorted((math.exp(value) / total for value in logits), reverse=True)
    if kind == "msp":
        return p[0]
    p = p[: max(10, len(logits) // 10)]
    return 1 / sum(value**0.1 * (1 - value) ** 0.1 for value in p)


def _naive(head, Z, queries, kind):
    """The score, feature by feature."""
    W, b = (np.asarray(a, np.float64) for a in (head.coef, head.intercept))
    Z, queries = (np.asarray(a, np.float64) for a in (Z, queries))

    def logits(z):
        return [float(w @ z + c) for w, c in zip(W, b, strict=True)]

    def predict(z):
        return logits(z).index(max(logits(z)))

    predicted = (Z @ W.T + b).argmax(axis=1)
    mean_score = sum(_logit_score(logits(z), kind) for z in Z) / len(Z)
    scores = []
    for z in queries:
        k = predict(z)
        samples = [row for row, other in zip(Z, predicted, strict=True) if other == k]
        mean = sum(samples) / len(samples)
        raising = lowering = 0.0
        for j in range(len(z)):
            if W[k][j] != 0:
                push = (z[j] - mean[j]) * (1 if W[k][j] > 0 else -1)
                raising += max(push, 0)
                lowering += max(-push, 0)
        error = raising / _logit_score(logits(z), kind) + lowering / mean_score
        scores.append(-error / sum(abs(v) for v in z))
    return np.array(scores), mean_score


@each_score
@looped("n_classes", [4, 30, 120])
@looped("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:No training sample")
def test_equals_naive_loop(logit_score, n_classes, dtype):
    head, Z = _network(dtype, n_classes)
    queries = Z[::9] + np.asarray(0.5, dtype)
    known = np.isin(head.predict(queries), head.predict(Z))
    queries = queries[known]
    detector = CADRef(head, logit_score=logit_score).fit(Z)
    expected, mean = _naive(head.estimator, Z, queries, logit_score)
    rtol = 1e-10 if dtype is np.float64 else 2e-6
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=rtol)
    assert detector.mean_logit_score_ == pytest.approx(mean, rel=rtol)


def test_is_the_error_of_caref_where_all_logits_are_equally_sure():
    """One score of the logits for all rows divides the error, and no weight is 0."""
    head, Z = _network()
    coef = np.where(head.coef_ == 0, 0.1, head.coef_)
    # two opposite rows and symmetric logits: the largest probability is the same
    head = FrozenEstimator(LinearHead([coef[0], -coef[0]], [0.0, 0.0]))
    Z = np.vstack([Z, -Z]) - np.outer(np.vstack([Z, -Z]) @ coef[0], coef[0]) / (
        coef[0] @ coef[0]
    )
    Z += np.outer(np.where(np.arange(len(Z)) % 2, 1.0, -1.0), coef[0])
    detector = CADRef(head, logit_score="msp").fit(Z)
    expected = CARef(head).fit(Z).score_samples(Z) / detector.mean_logit_score_
    np.testing.assert_allclose(detector.score_samples(Z), expected, rtol=1e-9)


def test_raising_errors_count_less_the_surer_the_logits():
    """Along the weights the error raises the logit, against them it lowers it."""
    head = FrozenEstimator(LinearHead([[1.0, 0.0], [0.0, 1.0]], [4.0, 4.0]))
    Z = np.array([[9.0, 1.0], [11.0, 1.0], [1.0, 9.0], [1.0, 11.0]])
    detector = CADRef(head, logit_score="max_logit").fit(Z)
    np.testing.assert_array_equal(detector.location_, [[10, 1], [1, 10]])
    assert detector.mean_logit_score_ == 14.0
    scores = detector.score_samples([[12.0, 1.0], [8.0, 1.0], [10.0, 5.0]])
    np.testing.assert_allclose(scores, [-2 / 13 / 16, -2 / 9 / 14, 0.0], rtol=1e-12)


def test_scores_that_are_not_positive():
    head, Z = _network()
    low = FrozenEstimator(LinearHead(head.coef_, head.intercept_ - 23))
    top = low.predict_logits(Z).max(axis=1)
    n_low = np.sum(top <= 0)
    assert 0 < n_low < 20
    message = (
        f"logit_score='max_logit' is not positive for {n_low} of the 150 .*1e-06 times "
        '.*Use logit_score="gen" or "msp"'
    )
    with pytest.warns(SkoodWarning, match=message):
        detector = CADRef(low, logit_score="max_logit").fit(Z)
    assert detector.mean_logit_score_ == pytest.approx(top.mean(), rel=1e-12)
    scores = detector.score_samples(Z)
    assert np.isfinite(scores).all()
    assert scores[top <= 0].max() < scores[top > 0].min()
    # the raising error is divided by a millionth of the mean
    i = np.argmin(top)
    push = np.sign(low.coef_[low.predict(Z)[i]]) * (
        Z[i] - detector.location_[low.predict(Z)[i]]
    )
    raising, lowering = np.maximum(push, 0).sum(), np.maximum(-push, 0).sum()
    expected = -(raising * 1e6 + lowering) / top.mean() / np.abs(Z[i]).sum()
    assert scores[i] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("logit_score", ["energy", "max_logit"])
def test_a_mean_that_is_not_positive(logit_score):
    head, Z = _network()
    low = FrozenEstimator(LinearHead(head.coef_, head.intercept_ - 100))
    message = (
        f"The mean of logit_score='{logit_score}' over the training samples is -.*must "
        'be positive to divide by. Use logit_score="gen"'
    )
    with pytest.raises(ValueError, match=message):
        CADRef(low, logit_score=logit_score).fit(Z)
    for always in ("gen", "msp"):  # do not change with the biases
        expected = CADRef(head, logit_score=always).fit(Z).score_samples(Z)
        actual = CADRef(low, logit_score=always).fit(Z).score_samples(Z)
        np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_entropy_below_the_smallest_float():
    """Logits of 1e4: each sample is as sure as can be."""
    head, Z = _network()
    sure = FrozenEstimator(LinearHead(1e4 * head.coef_, head.intercept_))
    detector = CADRef(sure, logit_score="gen").fit(Z)
    assert 0 < detector.mean_logit_score_ <= 1e100
    assert np.isfinite(detector.score_samples(Z)).all()
    assert np.isfinite(detector.score_samples(-Z)).all()


def test_a_class_that_is_never_predicted():
    head, Z = _network()
    subset = Z[head.predict(Z) != 1]
    message = r"No training sample .* of the 1 classes \[1\]"
    with pytest.warns(SkoodWarning, match=message):
        detector = CADRef(head).fit(subset)
    np.testing.assert_allclose(detector.location_[1], subset.mean(axis=0), rtol=1e-12)
    assert np.isfinite(detector.score_samples(Z)).all()


def test_samples_of_zeros():
    head, Z = _network()
    zero = CADRef(head).fit(Z).score_samples(np.zeros((1, 6)))
    assert np.isfinite(zero) and zero < -1e10


def test_sure_samples_do_not_drown_the_others():
    """1 / GEN has a heavy tail: it is positive, and not kept from being small."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    Z = np.abs(rng.normal(size=(300, 6))) + 3 * np.eye(6)[y]
    coef = 100 * np.eye(6)[:3]
    fitted = CADRef(FrozenEstimator(LinearHead(coef)), logit_score="gen").fit(Z, y)
    assert fitted.mean_logit_score_ > 1e9 * np.median(
        fitted._logit_scores(NetworkOutputs(logits=Z @ coef.T))
    )
    for row, score in zip(Z[:30], fitted.score_samples(Z[:30]), strict=True):
        logits = coef @ row
        top = logits.argmax()
        p = np.exp(logits - logits.max())
        p /= p.sum()
        others = [p[:k].sum() + p[k + 1 :].sum() for k in range(3)]
        gen = sum((a * b) ** 0.1 for a, b in zip(p, others, strict=True))
        gaps = np.sign(coef[top]) * (row - fitted.location_[top])
        raising, lowering = np.maximum(gaps, 0).sum(), np.maximum(-gaps, 0).sum()
        expected = raising * gen + lowering / fitted.mean_logit_score_
        assert score == pytest.approx(-expected / row.sum(), rel=1e-9)

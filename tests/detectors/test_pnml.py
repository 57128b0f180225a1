"""Tests of the regret of predictive normalized maximum likelihood."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skood.detectors import PNML
from skood.detectors._pnml import _regret
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from tests._loops import looped
from tests.detectors._paths import assert_torch_path_agrees
from tests.nn._networks import random_head

# What the tests of all estimators check; at night, all of them.
INSTANCES = [PNML(), PNML(LogisticRegression()), PNML(normalize_logits=True)]


def _naive(head, Z, queries, normalize=False):
    """The regret, row by row, in float64."""
    Z, queries, W, b = (
        np.asarray(a, dtype=np.float64) for a in (Z, queries, head.coef, head.intercept)
    )
    unit = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    inverse = np.linalg.pinv(unit.T @ unit, hermitian=True)
    scores = []
    for z in queries:
        x = z / np.linalg.norm(z)
        q = x @ inverse @ x
        kappa = q / (1 + q)
        p = softmax(W @ (x if normalize else z) + b)
        total = sum(v / (v + (1 - v) * v**kappa) for v in p)
        scores.append(-np.log(total) / np.log(len(b)))
    return np.array(scores)


@looped("dtype", [np.float32, np.float64])
@looped("normalize", [False, True])
@looped("n_classes", [2, 3, 9])
def test_equals_naive_loop(dtype, normalize, n_classes):
    head, Z = random_head(n_classes=n_classes, dtype=dtype)
    queries = np.random.default_rng(5).normal(size=(50, 8)).astype(dtype)
    detector = PNML(head, normalize_logits=normalize).fit(Z)
    scores = detector.score_samples(queries)
    assert scores.dtype == np.float64
    expected = _naive(head.estimator, Z, queries, normalize)
    if dtype is np.float64:
        np.testing.assert_allclose(scores, expected, rtol=1e-10, atol=1e-15)
    else:
        np.testing.assert_allclose(scores, expected, rtol=2e-5)
    assert detector.rank_ == 8


def test_q_is_the_leverage():
    """Of training rows: they sum to the number of features (the trace of a hat)."""
    head, Z = random_head()
    detector = PNML(head).fit(Z)
    outputs = next(detector._outputs(Z))
    unit = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    rest = detector._rest(outputs, unit)
    assert np.sum(1 / rest - 1) == pytest.approx(8, rel=1e-12)
    # more training rows of the same kind: less regret
    twice = PNML(head).fit(np.tile(Z, (4, 1)))
    assert np.all(twice.score_samples(Z) > detector.score_samples(Z))


def test_length_counts_for_the_prediction_only():
    head, Z = random_head()
    detector = PNML(head, normalize_logits=True).fit(Z)
    np.testing.assert_allclose(
        detector.score_samples(7 * Z), detector.score_samples(Z), rtol=1e-12
    )
    scores = PNML(head).fit(Z).score_samples(Z)
    assert np.abs(PNML(head).fit(Z).score_samples(7 * Z) - scores).max() > 0.01


def _exact_regret(logits, rest):
    """log of the sum, in 400 digits."""
    with localcontext() as context:
        context.prec = 400
        weights = [Decimal(value).exp() for value in logits]
        total = sum(weights)
        kappa = 1 - Decimal(rest)
        terms = []
        for i, weight in enumerate(weights):
            p = weight / total
            others = sum(weights[:i] + weights[i + 1 :]) / total
            terms.append(p / (p + others * p**kappa))
        return float(sum(terms).ln())


@looped("rest", [0.0, 1e-3, 0.3, 0.9])
@looped("logits", [[0, 0, 0], [1, 0, -1], [40, 0, 3], [0, 100, 99], [500, -3, 0]])
def test_regret_keeps_its_digits(logits, rest):
    """Also for sure predictions, where the sum rounds to 1."""
    logits = np.array([logits], dtype=np.float64)
    regret = _regret(logits, np.array([rest]))
    expected = _exact_regret(logits[0].tolist(), rest)
    np.testing.assert_allclose(regret, expected, rtol=1e-10)


def test_regret_of_the_extremes():
    """kappa 0: no regret. kappa 1: each term is 1 / (2 - p)."""
    logits = np.random.default_rng(0).normal(scale=3, size=(50, 4))
    p = softmax(logits, axis=1)
    np.testing.assert_allclose(_regret(logits, np.ones(50)), 0, atol=1e-15)
    expected = np.log(np.sum(1 / (2 - p), axis=1))
    np.testing.assert_allclose(_regret(logits, np.zeros(50)), expected, rtol=1e-13)


def test_regret_is_not_negative():
    """Where kappa is zero there is none: of a sum of one nothing may remain."""
    logits = 3 * np.random.default_rng(0).normal(size=(2000, 7))
    regret = _regret(logits, np.ones(2000))
    assert regret.min() == 0
    assert regret.max() < 1e-14


def test_saturated_logits_rank():
    gap = np.array([30.0, 300, 700, 900, 2000])
    logits = np.column_stack([gap, np.zeros_like(gap)])
    with np.errstate(all="raise", under="ignore"):
        regret = _regret(logits, np.full(5, 0.2))
    assert np.all(np.diff(regret) < 0)
    # the small term is exp(-gap rest) / (exp(-gap rest) + 1)
    small = np.exp(-0.2 * gap)
    np.testing.assert_allclose(regret, np.log1p(small / (1 + small)), rtol=1e-10)


def test_directions_outside_of_the_span_are_new():
    """A feature that is zero in training, and fewer samples than features."""
    head, Z = random_head()
    Z[:, 3] = 0
    with pytest.warns(SkoodWarning, match="rank 7 of 8: .*Give more samples, or drop"):
        detector = PNML(head).fit(Z)
    assert detector.rank_ == 7
    outputs = next(detector._outputs(Z))
    unit = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    leverage = np.einsum("ni,ij,nj->n", unit, np.linalg.pinv(unit.T @ unit), unit)
    np.testing.assert_allclose(detector._rest(outputs, unit), 1 / (1 + leverage))
    queries = Z[:4].copy()
    queries[:, 3] = [0, 1e-9, np.linalg.norm(Z[2]), 1e9]
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    rest = detector._rest(next(detector._outputs(queries)), unit)
    # half of the squared length outside: kappa is at least that
    np.testing.assert_allclose(rest[:2], 1 / (1 + leverage[:2]), rtol=1e-9)
    np.testing.assert_allclose(rest[2:], [0.5, 0], atol=1e-12)
    with pytest.warns(SkoodWarning, match="rank 7 of 8"):
        few = PNML(head).fit(Z[:5])
    assert np.isfinite(few.score_samples(queries)).all()
    rest = few._rest(next(few._outputs(queries)), unit)
    np.testing.assert_allclose(rest[3], 0, atol=1e-12)


def test_zero_vectors():
    """They have no direction: kappa is 1, the regret that of the bias alone."""
    head, Z = random_head()
    Z[:3] = 0
    detector = PNML(head).fit(Z)
    p = softmax(head.intercept_)
    expected = -np.log(np.sum(1 / (2 - p))) / np.log(3)
    np.testing.assert_allclose(detector.score_samples(Z[:3]), expected, rtol=1e-12)
    np.testing.assert_allclose(
        detector.score_samples(Z[3:]), PNML(head).fit(Z[3:]).score_samples(Z[3:])
    )
    with pytest.raises(ValueError, match="All training features are zero"):
        PNML(head).fit(np.zeros((5, 8)))


def test_scores_lie_between_minus_1_and_0():
    """The regret is at most that of kappa = 1 and equal probabilities."""
    head, Z = random_head(n_classes=6)
    scores = PNML(head).fit(Z).score_samples(100 * Z[::-1] - 3)
    assert np.all(scores <= 0)
    assert np.all(scores >= -np.log(6 * 6 / 11) / np.log(6))


def test_network_or_fitted_head():
    X, y = load_iris(return_X_y=True)
    network = MLPClassifier((10,), solver="lbfgs", max_iter=300, random_state=0)
    fitted = network.fit(X, y)
    Z = np.maximum(X @ fitted.coefs_[0] + fitted.intercepts_[0], 0)
    head = LinearHead(fitted.coefs_[1].T, fitted.intercepts_[1])
    alive = Z.any(axis=0)
    assert alive.sum() < 10
    rank = np.linalg.matrix_rank(Z)
    with pytest.warns(SkoodWarning, match=f"rank {rank} of 10"):
        detector = PNML(FrozenEstimator(fitted)).fit(X, y)
    expected = _naive(head, Z, Z)
    np.testing.assert_allclose(detector.score_samples(X), expected, atol=1e-12)


def test_partial_fit_equals_fit():
    head, Z = random_head()
    expected = PNML(head).fit(Z)
    detector = PNML(head)
    for indices in (slice(0, 50), slice(50, 53), slice(53, 120)):
        detector.partial_fit(Z[indices])
    np.testing.assert_allclose(
        detector.score_samples(Z), expected.score_samples(Z), rtol=1e-10
    )
    assert detector.offset_ == pytest.approx(expected.offset_, rel=1e-10)
    assert not hasattr(PNML(), "partial_fit")  # its head cannot learn row by row


def test_partial_fit_on_zero_samples_waits():
    head, Z = random_head()
    detector = PNML(head).partial_fit(np.zeros((2, 8)))
    assert not hasattr(detector, "offset_")
    assert np.isfinite(detector.partial_fit(Z).score_samples(Z)).all()


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_path(normalize, dtype):
    head, Z = random_head(dtype=dtype)
    Z[:, 2] = 0
    Z[7] = 0
    rtol = 1e-9 if dtype is np.float64 else 1e-5
    assert_torch_path_agrees(PNML(head, normalize_logits=normalize), Z, None, rtol=rtol)

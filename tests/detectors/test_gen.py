"""Tests of the generalized entropy."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from skood.detectors import GEN
from tests._loops import looped
from tests.detectors._paths import assert_torch_path_agrees

# What the tests of all estimators check; at night, all of them.
INSTANCES = [GEN(), GEN(LogisticRegression()), GEN(gamma=0.5, top=2)]


def _naive(logits, gamma=0.1, top=100):
    """The sum over the largest probabilities, in 60 digits, row by row."""
    scores = []
    with localcontext() as context:
        context.prec = 60
        power = Decimal(gamma)
        for row in np.asarray(logits, dtype=np.float64).tolist():
            weights = sorted((Decimal(value).exp() for value in row), reverse=True)
            total = sum(weights)
            terms = [
                (w / total) ** power
                * (sum(weights[:i] + weights[i + 1 :]) / total) ** power
                for i, w in enumerate(weights[:top])
            ]
            scores.append(-float(sum(terms)))
    return np.array(scores)


@looped("dtype", [np.float32, np.float64])
@looped("gamma", [0.01, 0.1, 1.0, 3.0])
@looped("top", [1, 2, 4, 7, 100])
def test_equals_naive_loop(dtype, gamma, top):
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(25, 7)) * rng.choice([0.1, 3, 30], (25, 1))).astype(
        dtype
    )
    scores = GEN(gamma=gamma, top=top).fit(logits).score_samples(logits)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, _naive(logits, gamma, top), rtol=1e-13)


def test_equal_logits_have_a_closed_form():
    """All p are 1 / C, so that the sum is min(M, C) ((C - 1) / C²)^gamma."""
    logits = np.full((1, 5), -3.0)
    for top in (1, 3, 5, 9):
        expected = -min(top, 5) * (4 / 25) ** 0.1
        score = GEN(top=top).fit(logits).score_samples(logits)
        np.testing.assert_allclose(score, expected, rtol=1e-15)


def test_two_classes_have_a_closed_form():
    """2 (p (1 - p))^gamma with p (1 - p) = 1 / (4 cosh²(m / 2)), for any margin m."""
    m = np.linspace(0, 7000, 200)
    logits = np.column_stack([m, np.zeros_like(m)])
    log_product = -m - 2 * np.log1p(np.exp(-m))
    scores = GEN().fit(logits).score_samples(logits)
    np.testing.assert_allclose(scores, -2 * np.exp(0.1 * log_product), rtol=1e-12)


@pytest.mark.parametrize("top", [1, 5, 10])
def test_saturated_float32_logits_keep_a_strict_order(top):
    """Far beyond a gap of 745, where the probabilities themselves underflow."""
    gap = np.arange(20, 7001, 20, dtype=np.float32)
    logits = np.zeros((len(gap), 10), dtype=np.float32)
    logits[:, 3] = gap
    with np.errstate(all="raise", under="ignore"):
        scores = GEN(top=top).fit(logits).score_samples(logits)
    assert np.all(np.diff(scores) > 0)
    # 1 - p = 9 exp(-gap) for the largest, p = exp(-gap) for the others
    expected = -((9**0.1) + min(top, 10) - 1) * np.exp(-0.1 * gap.astype(np.float64))
    np.testing.assert_allclose(scores, expected, rtol=1e-7)


def test_score_does_not_depend_on_saturated_samples_of_the_call():
    logits = np.array([[3.0, 1.0, 0.0], [2000.0, 0.0, 1.0], [1e4, 1e4, 0.0]])
    detector = GEN().fit(logits)
    together = detector.score_samples(logits)
    alone = [detector.score_samples(row[None])[0] for row in logits]
    np.testing.assert_array_equal(together, alone)
    assert np.isfinite(together).all()
    assert together[2] == pytest.approx(-2 * 0.25**0.1, rel=1e-15)


def test_bounds_and_invariances():
    logits = np.random.default_rng(1).normal(scale=2, size=(60, 5))
    detector = GEN().fit(logits)
    scores = detector.score_samples(logits)
    assert np.all(scores < 0)
    assert np.all(scores > -5 * (4 / 25) ** 0.1)  # the largest is that of equal logits
    np.testing.assert_allclose(detector.score_samples(logits[:, ::-1]), scores)
    np.testing.assert_allclose(detector.score_samples(logits - 50), scores)
    assert np.all(detector.score_samples(2 * logits) > scores)
    # the terms are positive: fewer of them sum to less
    assert np.all(GEN(top=2).fit(logits).score_samples(logits) > scores)


def test_gamma_of_1_and_all_classes_is_1_minus_purity():
    """sum p (1 - p) = 1 - sum p²."""
    logits = np.random.default_rng(2).normal(size=(40, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    scores = GEN(gamma=1.0).fit(logits).score_samples(logits)
    np.testing.assert_allclose(scores, np.sum(p**2, axis=1) - 1, rtol=1e-13)


def test_reads_a_classifier():
    X, y = load_iris(return_X_y=True)
    detector = GEN(LogisticRegression(max_iter=500), top=2).fit(X, y)
    logits = detector.estimator_.decision_function(X)
    np.testing.assert_allclose(
        detector.score_samples(X), _naive(logits, top=2), rtol=1e-12
    )


@pytest.mark.parametrize("top", [1, 3, 100])
def test_torch_path(top):
    logits = np.random.default_rng(0).normal(scale=3, size=(200, 8))
    logits[:3] = np.eye(8)[:3] * 5000
    assert_torch_path_agrees(GEN(top=top), logits, np.arange(200) % 8)


def test_chunks_change_nothing(monkeypatch):
    logits = np.random.default_rng(0).normal(size=(200, 8))
    expected = GEN(top=3).fit(logits).score_samples(logits)
    monkeypatch.setattr(GEN, "_logit_chunk_bytes", 7 * 8 * 4 * 8)
    np.testing.assert_array_equal(
        GEN(top=3).fit(logits).score_samples(logits), expected
    )


def test_pytorch_ood():
    """It takes the mean, and clips probabilities at 1e-7."""
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("pytorch_ood.detector")
    logits = 2 * np.random.default_rng(0).normal(size=(200, 6))
    for top in (2, 6):
        theirs = peer.GEN.score(torch.from_numpy(logits), gamma=0.1, M=top)
        ours = GEN(top=top).fit(logits).score_samples(logits)
        np.testing.assert_allclose(ours / top, -theirs.numpy(), rtol=1e-12)
    sure = np.array([[20.0, 0, 0], [40.0, 0, 0], [80.0, 0, 0]])
    theirs = peer.GEN.score(torch.from_numpy(sure)).numpy()
    assert theirs[1] == theirs[2]
    assert math.isclose(theirs[0], theirs[1], rel_tol=1e-2)
    assert np.all(np.diff(GEN().fit(sure).score_samples(sure)) > 0)

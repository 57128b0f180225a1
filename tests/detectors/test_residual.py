"""Tests of the residual outside the principal space."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from skood.detectors import Energy, Residual, ViM
from skood.exceptions import SkoodWarning
from tests.nn._networks import random_head

# What the tests of all estimators check; at night, all of them.
INSTANCES = [Residual(), Residual(LogisticRegression()), Residual(n_components=1)]


def _naive(head, Z, queries, n_components):
    """Minus the length of the residual, by explicit projection, row by row."""
    W, b = (np.asarray(a, dtype=np.float64) for a in (head.coef, head.intercept))
    Z, queries = (np.asarray(a, dtype=np.float64) for a in (Z, queries))
    u = -np.linalg.pinv(W) @ b
    _, _, vectors = np.linalg.svd(Z - u)
    scores = []
    for q in queries:
        rest = q - u
        for direction in vectors[:n_components]:
            rest = rest - (rest @ direction) * direction
        scores.append(-math.sqrt(sum(rest**2)))
    return np.array(scores)


@pytest.mark.parametrize("n_components", [1, 3, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(n_components, dtype):
    head, Z = random_head(dtype=dtype)
    queries = 3 * np.random.default_rng(5).normal(size=(50, 8)).astype(dtype)
    detector = Residual(head, n_components=n_components).fit(Z)
    scores = detector.score_samples(queries)
    assert scores.dtype == np.float64
    expected = _naive(head.estimator, Z, queries, n_components)
    rtol = 1e-8 if dtype is np.float64 else 2e-5
    np.testing.assert_allclose(scores, expected, rtol=rtol)
    assert detector.n_components_ == n_components


def test_is_the_second_term_of_vim():
    head, Z = random_head()
    vim, residual = ViM(head).fit(Z), Residual(head).fit(Z)
    energy = Energy(head).fit(Z).score_samples(Z)
    np.testing.assert_allclose(
        vim.score_samples(Z), energy + vim.alpha_ * residual.score_samples(Z), rtol=1e-9
    )
    np.testing.assert_array_equal(residual.origin_, vim.origin_)
    assert residual.n_components_ == vim.n_components_


def test_moving_within_the_principal_space_changes_nothing():
    head, Z = random_head()
    detector = Residual(head, n_components=3).fit(Z)
    _, _, vectors = np.linalg.svd(Z - detector.origin_)
    moved = Z + 10 * np.random.default_rng(0).normal(size=(len(Z), 3)) @ vectors[:3]
    np.testing.assert_allclose(
        detector.score_samples(moved), detector.score_samples(Z), rtol=1e-9
    )
    off = Z + vectors[-1]
    assert np.abs(detector.score_samples(off) - detector.score_samples(Z)).max() > 0.1


def test_features_without_rank_for_half_of_the_features():
    head, Z = random_head(n_features=20)
    message = "rank 6 of 20: .*dimension 10 would .*n_components=3; give"
    with pytest.warns(SkoodWarning, match=message):
        detector = Residual(head).fit(Z[:6])
    expected = _naive(head.estimator, Z[:6], Z, 3)
    np.testing.assert_allclose(detector.score_samples(Z), expected, rtol=1e-8)


def test_no_residual_is_left():
    head, Z = random_head()
    with pytest.raises(ValueError, match=r"dimension 8, but .*rank 8 \(n_features = 8"):
        Residual(head, n_components=8).fit(Z)


def test_explanation_sums_to_the_squared_residual():
    head, Z = random_head()
    detector = Residual(head, n_components=3).fit(Z)
    frame = detector.explain(Z, n_features=8)
    scores = detector.score_samples(Z)
    np.testing.assert_allclose(frame["residual"], -scores, rtol=1e-12)
    parts = frame[[f"contribution_{j}" for j in range(1, 9)]].to_numpy()
    np.testing.assert_allclose(parts.sum(axis=1), scores**2, rtol=1e-9)
    # each is the square of the residual along a feature
    _, _, vectors = np.linalg.svd(Z - detector.origin_)
    rest = (Z - detector.origin_) @ vectors[3:].T @ vectors[3:]
    np.testing.assert_allclose(parts, -np.sort(-(rest**2), axis=1), atol=1e-9)

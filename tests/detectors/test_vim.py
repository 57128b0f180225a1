"""Tests of virtual-logit matching."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skood.detectors import Energy, ViM
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from tests.nn._networks import random_head

# What the tests of all estimators check; at night, all of them.
INSTANCES = [ViM(), ViM(LogisticRegression()), ViM(n_components=1)]


def _naive(head, Z, queries, n_components):
    """Energy minus alpha times the residual, by explicit projection, row by row."""
    W, b = (np.asarray(a, dtype=np.float64) for a in (head.coef, head.intercept))
    Z, queries = (np.asarray(a, dtype=np.float64) for a in (Z, queries))
    u = -np.linalg.pinv(W) @ b
    # the principal space: leading right singular vectors of the shifted features
    _, _, vectors = np.linalg.svd(Z - u)
    principal = vectors[:n_components]

    def residual(z):
        shifted = z - u
        for direction in principal:
            shifted = shifted - (shifted @ direction) * direction
        return math.sqrt(sum(shifted**2))

    alpha = sum(max(W @ z + b) for z in Z) / sum(residual(z) for z in Z)
    scores = []
    for z in queries:
        logits = W @ z + b
        energy = math.log(sum(math.exp(value) for value in logits))
        scores.append(energy - alpha * residual(z))
    return np.array(scores), u, alpha


@pytest.mark.parametrize("n_components", [1, 3, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(n_components, dtype):
    head, Z = random_head(dtype=dtype)
    queries = 3 * np.random.default_rng(5).normal(size=(50, 8)).astype(dtype)
    vim = ViM(head, n_components=n_components).fit(Z)
    expected, u, alpha = _naive(head.estimator, Z, queries, n_components)
    rtol = 1e-8 if dtype is np.float64 else 2e-5
    np.testing.assert_allclose(vim.score_samples(queries), expected, rtol=rtol)
    np.testing.assert_allclose(vim.origin_, u, rtol=1e-6)
    assert vim.alpha_ == pytest.approx(alpha, rel=1e-6)
    assert vim.n_components_ == n_components


def test_origin_is_where_the_logits_vanish():
    """W u + b = 0 where W has full row rank; u is the shortest such vector."""
    head, Z = random_head()
    vim = ViM(head).fit(Z)
    np.testing.assert_allclose(head.predict_logits(vim.origin_[None]), 0, atol=1e-12)
    W = head.coef_
    off_row_space = vim.origin_ - W.T @ np.linalg.solve(W @ W.T, W @ vim.origin_)
    np.testing.assert_allclose(off_row_space, 0, atol=1e-12)


def test_mean_virtual_logit_equals_the_mean_largest_logit():
    """That is what alpha is for."""
    head, Z = random_head()
    vim = ViM(head).fit(Z)
    energy = Energy(head).fit(Z).score_samples(Z)
    virtual = energy - vim.score_samples(Z)
    largest = head.predict_logits(Z).max(axis=1)
    assert virtual.mean() == pytest.approx(largest.mean(), rel=1e-12)


def test_moving_within_the_principal_space_changes_the_energy_only():
    head, Z = random_head()
    vim = ViM(head, n_components=3).fit(Z)
    _, _, vectors = np.linalg.svd(Z - vim.origin_)
    moved = Z + np.random.default_rng(0).normal(size=(len(Z), 3)) @ vectors[:3]
    energy = Energy(head).fit(Z)
    np.testing.assert_allclose(
        vim.score_samples(moved) - vim.score_samples(Z),
        energy.score_samples(moved) - energy.score_samples(Z),
        atol=1e-9,
    )


@pytest.mark.parametrize(
    "n_features, dimension",
    [
        (1, 0),
        (2, 1),
        (9, 4),
        (511, 255),
        (512, 256),
        pytest.param(700, 256, marks=pytest.mark.slow),
        (1024, 512),
        pytest.param(1030, 512, marks=pytest.mark.slow),
    ],
)
def test_automatic_dimension(n_features, dimension, monkeypatch):
    # the threshold costs five more decompositions
    monkeypatch.setattr(ViM, "_without_each", lambda self, part, y: np.arange(99.0))
    rng = np.random.default_rng(0)
    head = FrozenEstimator(LinearHead(rng.normal(size=(3, n_features)), [9.0, 9, 9]))
    Z = rng.normal(size=(n_features + 100, n_features))
    assert ViM(head).fit(Z).n_components_ == dimension


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_explained_share(share):
    head, Z = random_head()
    vim = ViM(head, n_components=share).fit(Z)
    values = np.linalg.svd(Z - vim.origin_, compute_uv=False) ** 2
    explained = np.cumsum(values) / values.sum()
    k = vim.n_components_
    assert explained[k - 1] >= share
    assert k == 1 or explained[k - 2] < share
    same = ViM(head, n_components=k).fit(Z)
    np.testing.assert_array_equal(same.score_samples(Z), vim.score_samples(Z))


@pytest.mark.parametrize("rank", [6, 10])
def test_features_without_rank_for_half_of_the_features(rank):
    head, Z = random_head(n_features=20)
    few = Z[:rank]
    half = rank // 2
    message = f"rank {rank} of 20: .*dimension 10 would .*n_components={half}; give"
    with pytest.warns(SkoodWarning, match=message):
        vim = ViM(head).fit(few)
    assert vim.n_components_ == half
    expected, *_ = _naive(head.estimator, few, Z, half)
    np.testing.assert_allclose(vim.score_samples(Z), expected, rtol=1e-8)


@pytest.mark.parametrize(
    "n_components, n_samples, message",
    [
        (
            8,
            120,
            r"n_components=8 gives .*dimension 8, but .*rank 8 \(n_features = 8\)",
        ),
        (99, 120, "n_components=99 gives .*no residual is left. Use fewer components"),
        (6, 5, "dimension 6, but the training features have rank 5"),
        (
            0.9999999,
            5,
            r"n_components=0.9999999 gives a principal space of dimension 5",
        ),
    ],
)
def test_no_residual_is_left(n_components, n_samples, message):
    head, Z = random_head()
    with pytest.raises(ValueError, match=message):
        ViM(head, n_components=n_components).fit(Z[:n_samples])


def test_features_that_do_not_vary():
    """All rows at the origin: no direction at all."""
    head = FrozenEstimator(LinearHead(np.eye(3)))
    with pytest.raises(ValueError, match="rank 0"):
        ViM(head).fit(np.zeros((10, 3)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_of_a_softmax_head_sum_to_0_up_to_rounding(dtype):
    """The origin must not be that rounding, magnified by the pseudo-inverse."""
    X, y = load_iris(return_X_y=True)
    X = X.astype(dtype)
    model = LogisticRegression(max_iter=1000).fit(X, y)
    coef = model.coef_.astype(np.float64)
    smallest = np.linalg.svd(coef, compute_uv=False)[-1]
    assert 0 < smallest < 1e-4  # not exactly singular
    exact = coef - coef.mean(axis=0)
    intercept = model.intercept_ - model.intercept_.mean(dtype=np.float64)
    expected = -np.linalg.pinv(exact, rcond=1e-3) @ intercept
    vim = ViM(FrozenEstimator(model)).fit(X, y)
    rtol = 1e-3 if dtype is np.float32 else 1e-9
    np.testing.assert_allclose(vim.origin_, expected, rtol=rtol)


def test_reads_arandom_head():
    X, y = load_iris(return_X_y=True)
    network = MLPClassifier((10,), solver="lbfgs", max_iter=300, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vim = ViM(network, n_components=2).fit(X, y)
    fitted = vim.estimator_
    Z = np.maximum(X @ fitted.coefs_[0] + fitted.intercepts_[0], 0)
    head = LinearHead(fitted.coefs_[1].T, fitted.intercepts_[1])
    expected, *_ = _naive(head, Z, Z, 2)
    np.testing.assert_allclose(vim.score_samples(X), expected, rtol=1e-6)


def test_negative_alpha_warns():
    """All logits far below zero: then a residual would speak for a sample."""
    head, Z = random_head()
    low = LinearHead(head.coef_, head.intercept_ - 100)
    with pytest.warns(SkoodWarning, match="alpha_ is -.*does not lower the score"):
        ViM(FrozenEstimator(low)).fit(Z)


def test_alpha_that_is_hardly_negative_warns():
    head, Z = random_head()
    top = head.predict_logits(Z).max(axis=1).mean()
    detector = ViM(FrozenEstimator(LinearHead(head.coef_, head.intercept_ - top - 0.1)))
    with pytest.warns(SkoodWarning, match="alpha_ is -0.*does not lower the score"):
        detector.fit(Z)
    assert -1 < detector.alpha_ < 0


def test_alpha_of_zero_warns():
    _, Z = random_head()
    silent = FrozenEstimator(LinearHead(np.zeros((3, Z.shape[1]))))
    with pytest.warns(SkoodWarning, match="alpha_ is 0: .*does not lower the score"):
        ViM(silent).fit(Z)

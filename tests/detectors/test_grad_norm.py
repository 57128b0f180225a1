"""Tests of the gradient norm."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skood.detectors import GradNorm
from skood.nn import LinearHead
from tests._loops import looped
from tests.nn._networks import random_head

# What the tests of all estimators check; at night, all of them.
INSTANCES = [GradNorm(), GradNorm(LogisticRegression(), temperature=2.0)]


def _by_autograd(head, Z, temperature):
    """L1 norm of the gradient of KL(u || p) in the weights, row by row, in float64."""
    weight, bias, Z = (
        torch.tensor(np.asarray(a, dtype=np.float64))
        for a in (head.coef, head.intercept, Z)
    )
    weight.requires_grad_()
    n_classes = len(bias)
    norms = []
    for z in Z:
        log_p = torch.log_softmax((weight @ z + bias) / temperature, dim=0)
        uniform = torch.full((n_classes,), 1 / n_classes, dtype=torch.float64)
        divergence = torch.sum(uniform * (torch.log(uniform) - log_p))
        (gradient,) = torch.autograd.grad(divergence, weight)
        norms.append(float(gradient.abs().sum()))
    return np.array(norms)


@looped("dtype", [np.float32, np.float64])
@looped("temperature", [0.5, 1.0, 20.0])
@looped("n_classes", [2, 3, 11])
def test_equals_the_gradient(dtype, temperature, n_classes):
    head, Z = random_head(n_classes=n_classes, dtype=dtype)
    scores = GradNorm(head, temperature=temperature).fit(Z).score_samples(Z)
    assert scores.dtype == np.float64
    expected = _by_autograd(head.estimator, Z, temperature)
    rtol = 1e-11 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(scores, expected, rtol=rtol)


def test_uniform_and_sure_predictions():
    """0 for equal logits; ||z||_1 (2 - 2 / C) for a sure prediction."""
    head = FrozenEstimator(LinearHead(np.eye(4)))
    Z = np.array([[2.0, 2, 2, 2], [1e4, 0, 0, 0], [0, 0, 0, 0], [-1e4, 0, -1e4, -1e4]])
    scores = GradNorm(head).fit(Z).score_samples(Z)
    np.testing.assert_allclose(scores, [0, 1.5e4, 0, 4.5e4], rtol=1e-15)


def test_proportional_to_features_that_do_not_change_the_prediction():
    """A feature of weight zero: only the length changes."""
    rng = np.random.default_rng(0)
    coef = np.column_stack([rng.normal(size=(3, 4)), np.zeros(3)])
    head = FrozenEstimator(LinearHead(coef))
    Z = np.column_stack([rng.normal(size=(30, 4)), np.zeros(30)])
    longer = Z.copy()
    longer[:, 4] = np.abs(Z).sum(axis=1)
    detector = GradNorm(head).fit(Z)
    np.testing.assert_allclose(
        detector.score_samples(longer), 2 * detector.score_samples(Z), rtol=1e-12
    )


def test_network_or_fitted_head():
    X, y = load_iris(return_X_y=True)
    network = MLPClassifier((10,), solver="lbfgs", max_iter=300, random_state=0)
    fitted = network.fit(X, y)
    Z = np.maximum(X @ fitted.coefs_[0] + fitted.intercepts_[0], 0)
    head = LinearHead(fitted.coefs_[1].T, fitted.intercepts_[1])
    scores = GradNorm(FrozenEstimator(fitted)).fit(X, y).score_samples(X)
    np.testing.assert_allclose(scores, _by_autograd(head, Z, 1.0), rtol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_pytorch_ood(temperature):
    peer = pytest.importorskip("pytorch_ood.detector")
    head, Z = random_head()
    layer = torch.nn.Linear(8, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(head.coef_))
        layer.bias.copy_(torch.from_numpy(head.intercept_))
    theirs = peer.GradNorm(
        layer, param_filter=lambda name: name == "weight", temperature=temperature
    ).predict(torch.from_numpy(Z))
    ours = GradNorm(head, temperature=temperature).fit(Z).score_samples(Z)
    np.testing.assert_allclose(ours, -theirs.numpy(), rtol=1e-10)

"""Curvature of linear heads against autograd, dense matrices and closed forms."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.func import hessian

from skood.epistemic.laplace._curvature import (
    STRUCTURES,
    LastLayer,
    best_precision,
    check_full,
    log_marginal_likelihood,
)
from skood.nn import pretrained
from skood.nn._make_network import make_network

KINDS = ["diag", "full", "kron"]


def _problem(n_outputs=3, n_samples=20, width=4, seed=0):
    """Features that end in a one, weights, and logits (-m/2, m/2) of a margin."""
    rng = np.random.default_rng(seed)
    features = torch.from_numpy(rng.normal(size=(n_samples, width)))
    features[:, -1] = 1.0
    weights = torch.from_numpy(rng.normal(size=(n_outputs, width)))
    codes = torch.from_numpy(rng.integers(max(2, n_outputs), size=n_samples))
    return features, weights, codes


def _logits(features, weights):
    outputs = features @ weights.T
    if outputs.shape[1] == 1:
        outputs = torch.cat([-outputs, outputs], dim=1) / 2
    return outputs


def _curvature(kind, features, weights, parts=1):
    structure = STRUCTURES[kind]
    totals = None
    for samples in torch.arange(len(features)).tensor_split(parts):
        sums = structure.sums(
            features[samples], _logits(features[samples], weights), len(weights)
        )
        totals = sums if totals is None else tuple(map(torch.add, totals, sums))
    return structure(*(t.numpy() for t in totals), n_samples=len(features))


def _dense(kind, features, weights):
    """H by a loop over rows, from the definition."""
    n_outputs, width = weights.shape
    full = np.zeros((n_outputs * width,) * 2)
    B, A = np.zeros((n_outputs, n_outputs)), np.zeros((width, width))
    for phi in features.numpy():
        p = torch.softmax(_logits(torch.from_numpy(phi)[None], weights), 1)[0].numpy()
        G = np.diag(p) - np.outer(p, p)
        if n_outputs == 1:
            spread = np.array([-0.5, 0.5])
            G = np.array([[spread @ G @ spread]])
        full += np.kron(G, np.outer(phi, phi))
        B, A = B + G, A + np.outer(phi, phi) / len(features)
    if kind == "kron":
        return np.kron(B, A)
    return np.diag(np.diag(full)) if kind == "diag" else full


@pytest.mark.parametrize("n_outputs", [1, 2, 3])
def test_full_is_the_hessian_of_the_posterior(n_outputs):
    """Of the negative log posterior over the flattened head, by autograd."""
    features, weights, codes = _problem(n_outputs)

    def loss(flat):
        logits = _logits(features, flat.view(weights.shape))
        likelihood = nn.functional.cross_entropy(logits, codes, reduction="sum")
        return likelihood + 0.7 / 2 * (flat**2).sum()

    expected = hessian(loss)(weights.flatten()).numpy()
    curvature = _curvature("full", features, weights)
    h = curvature.vectors @ np.diag(curvature.eigenvalues) @ curvature.vectors.T
    assert_allclose(h + 0.7 * np.eye(len(h)), expected, atol=1e-12)
    diagonal = _curvature("diag", features, weights).eigenvalues
    assert_allclose(diagonal.ravel() + 0.7, np.diag(expected), atol=1e-12)


def test_kron_is_exact_if_all_samples_have_the_same_features():
    features, weights, _ = _problem()
    features = features[:1].expand(7, -1)
    assert_allclose(
        _dense("kron", features, weights), _dense("full", features, weights), atol=1e-12
    )
    results = [
        np.sort(_curvature(k, features, weights).eigenvalues, None)
        for k in ("full", "kron")
    ]
    assert_allclose(*results, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_outputs", [1, 2, 4])
def test_moments_against_dense_matrices(kind, n_outputs):
    """Of the outputs: J (H + τI)^-1 Jᵀ with J = I ⊗ φᵀ, row by row."""
    features, weights, _ = _problem(n_outputs)
    curvature = _curvature(kind, features, weights)
    h = _dense(kind, features, weights)
    inverse = np.linalg.inv(h + 0.3 * np.eye(len(h)))
    expected = []
    for phi in features.numpy():
        J = np.kron(np.eye(n_outputs), phi)
        expected.append(J @ inverse @ J.T)
    expected = np.array(expected)
    result = curvature.covariances(features, 0.3).numpy()
    assert_allclose(result, expected, atol=1e-12)
    assert_allclose(
        curvature.variances(features, 0.3),
        np.diagonal(expected, axis1=1, axis2=2),
        atol=1e-12,
    )
    assert_allclose(curvature.row_sums(features, 0.3), expected.sum(axis=2), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_covariance_of_the_weights(kind):
    """The map from normals to weights is the symmetric root of (H + τI)^-1."""
    features, weights, _ = _problem()
    curvature = _curvature(kind, features, weights)
    unit = torch.eye(weights.numel(), dtype=torch.float64).view(-1, *weights.shape)
    half = curvature.draw(unit, 0.3).flatten(1).numpy()
    assert_allclose(half, half.T, atol=1e-13)
    h = _dense(kind, features, weights)
    assert_allclose(half @ half, np.linalg.inv(h + 0.3 * np.eye(len(h))), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_may_come_in_batches(kind):
    features, weights, _ = _problem()
    assert_allclose(
        _curvature(kind, features, weights, parts=6).eigenvalues,
        _curvature(kind, features, weights).eigenvalues,
        atol=1e-13,
    )


def test_sure_predictions_keep_their_curvature():
    """1 - p of a sure prediction is not 1 minus a number that was rounded to 1."""
    features, weights = torch.ones(1, 1).double(), torch.tensor([[60.0], [0.0], [0.0]])
    curvature = _curvature("diag", features, weights.double())
    tiny = math.exp(-60)  # p is (1, tiny, tiny) up to relative errors of that size
    assert_allclose(curvature.eigenvalues.ravel(), [2 * tiny, tiny, tiny], rtol=1e-14)
    # eigenvalues of [[2, -1, -1], [-1, 1, 0], [-1, 0, 1]]
    for kind in ("full", "kron"):
        values = np.sort(_curvature(kind, features, weights.double()).eigenvalues, None)
        assert_allclose(values[1:], [tiny, 3 * tiny], rtol=1e-12)


# ---- prior precision


@pytest.mark.parametrize("kind", KINDS)
def test_marginal_likelihood_against_determinants(kind):
    features, weights, codes = _problem()
    h = _dense(kind, features, weights)
    log_lik = -float(
        nn.functional.cross_entropy(features @ weights.T, codes, reduction="sum")
    )
    w = weights.flatten().numpy()
    for tau in (0.01, 1.0, 30.0):
        log_prior = 0.5 * (len(w) * math.log(tau / (2 * math.pi)) - tau * w @ w)
        log_det = np.linalg.slogdet(h + tau * np.eye(len(w)))[1]
        expected = (
            log_lik + log_prior + 0.5 * (len(w) * math.log(2 * math.pi) - log_det)
        )
        result = log_marginal_likelihood(
            log_lik, _curvature(kind, features, weights).eigenvalues, w @ w, tau
        )
        assert result == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("square_norm", [1e-6, 1.0, 1e6])
def test_best_precision_is_the_maximum(scale, square_norm):
    h = scale * np.random.default_rng(0).gamma(0.3, size=30)
    precision = best_precision(h, square_norm)
    gamma = np.sum(h / (h + precision))
    assert precision * square_norm == pytest.approx(gamma, rel=1e-9)
    best = log_marginal_likelihood(0.0, h, square_norm, precision)
    around = minimize_scalar(
        lambda log_tau: -log_marginal_likelihood(0.0, h, square_norm, np.exp(log_tau)),
        bounds=(math.log(precision) - 20, math.log(precision) + 20),
        method="bounded",
    )
    assert best >= -around.fun - 1e-12 * abs(around.fun)


def test_best_precision_of_a_single_eigenvalue_is_in_closed_form():
    """h / (h + τ) = τ s is a quadratic equation; with s = 1, h = 2: τ = √3 - 1."""
    assert best_precision([2.0], 1.0) == pytest.approx(math.sqrt(3) - 1, rel=1e-12)


def test_best_precision_where_there_is_none():
    with pytest.raises(
        ValueError, match=r"so sure of all training samples .* a number"
    ):
        best_precision(np.zeros(3), 1.0)
    with pytest.raises(ValueError, match="weights are zero, and the larger it is"):
        best_precision(np.ones(3), 0.0)


# ---- the last layer of a network


def _net(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), *layers)


def _open(net, n_classes=3):
    network = make_network(pretrained(net, classes=np.arange(n_classes))).with_weights(
        device="cpu"
    )
    X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    return network, network.batch(network.prepare(X))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_outputs", [1, 2, 4])
def test_last_layer_gives_the_logits(bias, n_outputs):
    net = _net(nn.Linear(5, n_outputs, bias=bias))
    network, batch = _open(net, max(2, n_outputs))
    head = LastLayer(network)
    features, logits = head.read(batch)
    assert features.shape == (6, 5 + bias)
    assert head.weights.shape == (n_outputs, 5 + bias)
    outputs = features @ head.weights.T
    spread = torch.tensor([[-0.5], [0.5]]) if n_outputs == 1 else torch.eye(n_outputs)
    spread = spread.double()
    assert_allclose(outputs @ spread.T, logits, atol=1e-6)
    draws = torch.randn(2, n_outputs, 5 + bias, generator=torch.Generator()).double()
    changes = head.changes(features, draws)
    for s in range(2):
        moved = (features @ (head.weights + draws[s]).T) @ spread.T
        assert_allclose(logits + changes[s], moved, atol=1e-6)
    assert not network.module.get_submodule(network.head_name)._forward_pre_hooks


def test_softmax_behind_the_head_is_excluded():
    network, batch = _open(_net(nn.Linear(5, 3), nn.Softmax(1)))
    features, logits = LastLayer(network).read(batch)
    head = network.module[2]
    assert_allclose(logits, head(features[:, :5].float()), atol=1e-6)


def test_margin_of_scikit_learn_is_a_single_output():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), np.arange(30) % 2
    clf = LogisticRegression().fit(X, y)
    network = make_network(clf).with_weights(device="cpu", one_margin=True)
    batch = network.batch(network.prepare(X))
    head = LastLayer(network)
    expected = np.append(clf.coef_, clf.intercept_)[None]
    assert_allclose(head.weights, expected, rtol=1e-15)
    _, logits = head.read(batch)
    m = clf.decision_function(X)
    assert_allclose(logits, np.column_stack([-m, m]) / 2, atol=1e-15)
    variances = torch.full((30, 1), 8.0, dtype=torch.float64)
    per_class, row_sums = head.class_moments(variances, variances)
    assert per_class.eq(2.0).all() and per_class.shape == (30, 2)
    assert row_sums.eq(0.0).all()
    covariances = head.class_covariances(variances[:, :, None])
    expected = np.broadcast_to([[2.0, -2.0], [-2.0, 2.0]], (30, 2, 2))
    assert_array_equal(covariances, expected)


def test_network_without_a_linear_head():
    network, _ = _open(_net(nn.Linear(5, 3), nn.Tanh()))
    with pytest.raises(ValueError, match=r"Sequential are not .* subset='all'"):
        LastLayer(network)


def test_logits_that_overflow():
    network, batch = _open(_net(nn.Linear(5, 3)))
    batch[2] = torch.inf
    network.module[2].weight.fill_(3e38)
    with pytest.raises(ValueError, match=r"infinite logits for \d of 6 samples"):
        LastLayer(network).read(batch)


def test_symmetric_weights_of_two_outputs_stay_two():
    """A head of zeros, or one that happens to be symmetric, is no margin."""
    net = _net(nn.Linear(5, 2))
    with torch.no_grad():
        net[2].weight.zero_()
        net[2].bias.copy_(torch.tensor([-1.0, 1.0]))
    network, _ = _open(net, 2)
    head = LastLayer(network)
    assert head.weights.shape == (2, 6)
    assert not head.is_margin


def test_full_matrix_that_is_too_large():
    check_full("full", 23_000)
    check_full("diag", 10**9)
    with pytest.raises(
        ValueError, match=r"all 55,510 weights, of 24\.7 GB.*'kron' or 'diag'"
    ):
        check_full("full", 55_510)
    network, batch = _open(_net(nn.Linear(5, 5_000)), 5_000)
    head = LastLayer(network)
    with pytest.raises(ValueError, match=r"all 30,000 weights, of 7\.2 GB"):
        head.sums("full", *head.read(batch))

"""Curvature of heads and of networks linearized in many weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import functools
import math
import pickle
import sys
import types

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import block_diag
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import nn
from torch.func import functional_call, jacrev

from skood.epistemic import Laplace, MixtureLaplace
from skood.epistemic.laplace._curvature import (
    STRUCTURES,
    Eigenbasis,
    LastLayer,
    best_precision,
    check_full,
    log_marginal_likelihood,
)
from skood.nn import pretrained
from skood.nn._make_network import make_network
from skood.utils._torch import seeded
from tests.epistemic._member_nets import Recurrent

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


@pytest.mark.parametrize("n_outputs, width", [(1, 3), (2, 8), (4, 21)])
def test_full_of_grams_of_pairs_of_outputs(n_outputs, width):
    """Blocks of features, with a smaller last one, and a symmetric H."""
    features, weights, _ = _problem(n_outputs, 30, width)
    curvature = _curvature("full", features, weights, parts=3)
    H = (curvature.vectors * curvature.eigenvalues) @ curvature.vectors.T
    assert_allclose(H, _dense("full", features, weights), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_outputs", [1, 2, 3])
def test_full_is_the_hessian_of_the_posterior(n_outputs):
    """Of the negative log posterior over the flattened head, by autograd."""
    features, weights, codes = _problem(n_outputs)

    def loss(flat):
        logits = _logits(features, flat.view(weights.shape))
        likelihood = nn.functional.cross_entropy(logits, codes, reduction="sum")
        return likelihood + 0.7 / 2 * (flat**2).sum()

    expected = torch.func.hessian(loss)(weights.flatten()).numpy()
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


class _Factors:
    def __init__(self, blocks):
        self.kfacs = blocks


class _StandIn:
    """Takes the place of laplace-torch: factors of the right shapes, with its names."""

    def __init__(self, model, *, likelihood, subset_of_weights, hessian_structure):
        assert likelihood == "classification"
        assert (subset_of_weights, hessian_structure) == ("all", "kron")
        self.model = model

    def fit(self, loader, progress_bar):
        assert not progress_bar
        self.loss, seen = 0.0, 0
        for batch, codes in loader:
            loss = nn.functional.cross_entropy(
                self.model(batch), codes, reduction="sum"
            )
            self.loss, seen = self.loss + loss.detach(), seen + len(batch)
        assert len(loader.dataset) == seen
        chosen = [p for p in self.model.parameters() if p.requires_grad]
        self.H_facs = _Factors(_blocks(p.shape for p in chosen))


def _blocks(shapes):
    rng = torch.Generator().manual_seed(0)
    blocks = []
    for shape in shapes:
        halves = [torch.randn(n, n, generator=rng).double() for n in shape]
        blocks.append([half @ half.T for half in halves])
    return blocks


@pytest.fixture
def stand_in(monkeypatch):
    module = types.ModuleType("laplace")
    module.Laplace = _StandIn
    monkeypatch.setitem(sys.modules, "laplace", module)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(45) % 3
    return (rng.normal(size=(45, 4)) + 2 * np.eye(4)[y]).astype(np.float32), y


@pytest.fixture(scope="module")
def frozen():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    return FrozenEstimator(pretrained(net, classes=np.arange(3)))


def _naive(frozen, X, names):
    """Jacobians of the logits, row by row, and the logits, in float64."""
    net = frozen.module_.double()
    params = {k: v.detach() for k, v in net.named_parameters() if k in names}
    results = []
    for row in torch.from_numpy(X).double():
        j = jacrev(lambda p, r=row: functional_call(net, p, r[None])[0])(params)
        results.append(
            torch.cat([value.flatten(1) for value in j.values()], 1).detach().numpy()
        )
    logits = net(torch.from_numpy(X).double()).detach().numpy()
    net.float()
    return np.array(results), logits


ALL = ["0.weight", "0.bias", "2.weight", "2.bias"]


@pytest.mark.parametrize(
    "subset, names", [("all", ALL), (["0"], ALL[:2]), (["2", "0"], ALL)]
)
@pytest.mark.parametrize("hessian", ["diag", "full", "kron"])
def test_posterior_against_dense_matrices(
    stand_in, data, frozen, hessian, subset, names
):
    X, y = data
    clf = Laplace(
        frozen,
        subset=subset,
        hessian=hessian,
        prior_precision=0.5,
        batch_size=7,
        setting="a",
        n_samples=3,
        device="cpu",
        random_state=0,
    ).fit(X, y)
    J, logits = _naive(frozen, X, names)
    p = softmax(logits, axis=1)
    H = sum(j.T @ (np.diag(q) - np.outer(q, q)) @ j for j, q in zip(J, p, strict=True))
    if hessian == "diag":
        H = np.diag(np.diag(H))
    params = dict(frozen.module_.named_parameters())
    if hessian == "kron":
        blocks = _blocks(params[name].shape for name in names)
        H = block_diag(*(functools.reduce(np.kron, block) for block in blocks))
    P = H + 0.5 * np.eye(len(H))
    S = J @ np.linalg.inv(P) @ J.transpose(0, 2, 1)
    w = torch.cat([params[name].flatten() for name in names])
    w = w.detach().double().numpy()
    log_lik = log_softmax(logits, axis=1)[np.arange(45), y].sum()
    log_det = np.linalg.slogdet(P / 0.5)[1]
    expected = log_lik - 0.25 * w @ w - 0.5 * log_det
    assert clf.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-12)
    layers, samples = clf._open(X)
    jacobian, mean = layers.read(layers.network.batch(samples))
    assert_allclose(jacobian, J, atol=1e-12)
    assert_allclose(mean, logits, atol=1e-12)
    posterior = clf._curvature
    assert_allclose(posterior.covariances(jacobian, 0.5), S, atol=1e-11)
    assert_allclose(
        posterior.variances(jacobian, 0.5), np.diagonal(S, axis1=1, axis2=2), atol=1e-11
    )
    assert_allclose(posterior.row_sums(jacobian, 0.5), S.sum(2), atol=1e-11)
    unit = torch.eye(len(w), dtype=torch.float64)
    half = posterior.draw(unit, 0.5).numpy()
    assert_allclose(half, half.T, atol=1e-12)
    assert_allclose(half @ half, np.linalg.inv(P), atol=1e-11)
    draws = torch.cat([*clf._draws(layers.weights)]).numpy()
    expected = log_softmax(mean.numpy() + np.einsum("nkp,sp->snk", J, draws), axis=2)
    assert_allclose(np.log(clf.predict_members(X)), expected, atol=1e-10)


@pytest.mark.parametrize(
    "predictive", ["mean_field", "probit", "mc", "bridge", "bridge_norm"]
)
def test_predictives_and_small_blocks(stand_in, data, frozen, predictive, monkeypatch):
    X, y = data
    clf = Laplace(
        frozen, subset="all", predictive=predictive, setting="a", device="cpu"
    ).fit(X, y)
    proba = clf.predict_proba(X)
    assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    monkeypatch.setattr(
        "skood.epistemic.laplace._laplace.row_chunks",
        lambda n, *size: (slice(i, i + 2) for i in range(0, n, 2)),
    )
    assert_allclose(clf.predict_proba(X), proba, rtol=1e-10)


def test_blocks_of_factors_against_dense_matrices():
    rng = np.random.default_rng(0)

    def matrix(n):
        half = rng.normal(size=(n, n))
        return half @ half.T

    blocks = [(matrix(2), matrix(3)), (matrix(2),), (rng.gamma(1.0, size=4),)]
    basis = Eigenbasis(blocks)
    H = np.zeros((12, 12))
    H[:6, :6], H[6:8, 6:8] = np.kron(*blocks[0]), blocks[1][0]
    H[8:, 8:] = np.diag(blocks[2][0])
    inverse = np.linalg.inv(H + 0.3 * np.eye(12))
    J = torch.from_numpy(rng.normal(size=(5, 3, 12)))
    assert_allclose(
        basis.covariances(J, 0.3),
        J.numpy() @ inverse @ J.numpy().transpose(0, 2, 1),
        atol=1e-12,
    )
    half = basis.draw(torch.eye(12, dtype=torch.float64), 0.3).numpy()
    assert_allclose(half @ half, inverse, atol=1e-12)


def test_linear_model_equals_its_linearization(data):
    """Of a linear classifier all weights are those of the last layer."""
    X, y = data
    net = FrozenEstimator(LogisticRegression().fit(X, y))
    options = {"hessian": "full", "setting": "a", "random_state": 0}
    last = Laplace(net, **options).fit(X, y)
    every = Laplace(net, subset="all", **options).fit(X, y)
    assert every.prior_precision_ == pytest.approx(last.prior_precision_, rel=1e-8)
    assert every.log_marginal_likelihood_ == pytest.approx(
        last.log_marginal_likelihood_, rel=1e-10
    )
    assert_allclose(every.predict_proba(X), last.predict_proba(X), rtol=1e-8)


def test_unknown_layers(data, frozen):
    X, y = data
    with pytest.raises(ValueError, match=r"no layers .* called \['5'\].*\['0', '2'\]"):
        Laplace(frozen, subset=["5"], hessian="diag").fit(X, y)
    with pytest.raises(ValueError, match=r"subset=\[\]: Sequential"):
        Laplace(frozen, subset=[], hessian="diag").fit(X, y)


def test_layers_without_kronecker_factors(stand_in, data, frozen, monkeypatch):
    def fit(self, loader, progress_bar):
        raise NotImplementedError("Found parameters in un-supported layers.")

    monkeypatch.setattr(_StandIn, "fit", fit)
    with pytest.raises(ValueError, match=r"subset='all': Found .* hessian='diag'"):
        Laplace(frozen, subset="all").fit(*data)


# ---- against laplace-torch itself


@pytest.fixture
def peer():
    return pytest.importorskip("laplace")


def _fit_peer(peer, frozen, X, y, subset, hessian, tau):
    net = frozen.module_.double()
    theirs = peer.Laplace(
        net,
        "classification",
        subset_of_weights=subset,
        hessian_structure=hessian,
        prior_precision=tau,
    )
    pairs = torch.utils.data.TensorDataset(
        torch.from_numpy(X).double(), torch.from_numpy(y)
    )
    theirs.fit(torch.utils.data.DataLoader(pairs, batch_size=20))
    return theirs


def _bias_free():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3, bias=False))
    return FrozenEstimator(pretrained(net, classes=np.arange(3)))


@pytest.mark.parametrize(
    "subset, hessian",
    [
        ("last_layer", "full"),
        ("last_layer", "diag"),
        ("last_layer", "kron"),  # equal only without a bias
        ("all", "full"),
        ("all", "diag"),
        ("all", "kron"),
    ],
)
def test_against_laplace_torch(peer, data, frozen, subset, hessian):
    """Evidence, probit and bridge; draws are compared by their covariance above."""
    X, y = data
    if subset == "last_layer" and hessian == "kron":
        frozen = _bias_free()
    ours = Laplace(
        frozen,
        subset=subset,
        hessian=hessian,
        prior_precision=0.7,
        setting="a",
        device="cpu",
    )
    theirs = _fit_peer(peer, frozen, X, y, subset, hessian, 0.7)
    samples = torch.from_numpy(X).double()
    ours.fit(X, y)  # while the network is in float64
    # its full matrix is a product with an identity matrix in float32
    rounded = hessian == "full"
    assert ours.log_marginal_likelihood_ == pytest.approx(
        float(theirs.log_marginal_likelihood()), rel=1e-7 if rounded else 1e-12
    )
    for predictive in ("probit", "bridge", "bridge_norm"):
        expected = theirs(samples, link_approx=predictive).numpy()
        proba = ours.set_params(predictive=predictive).predict_proba(X)
        assert_allclose(proba, expected, rtol=1e-6 if rounded else 1e-10)
    frozen.module_.float()


def test_perceptron_through_laplace_torch(peer, data):
    X, y = data
    net = MLPClassifier((6,), solver="lbfgs", max_iter=30, random_state=0)
    clf = Laplace(net, subset="all", random_state=0, verbose=1).fit(X, y)
    assert clf.score(X, y) > 0.8
    assert clf.predict_uncertainty(X + 20).epistemic.mean() > (
        clf.predict_uncertainty(X).epistemic.mean()
    )


# ---- binary margins


@pytest.mark.parametrize("kind", ["one output", "scikit-learn"])
@pytest.mark.parametrize("predictive", ["mean_field", "probit", "mc", "bridge"])
def test_margin_is_a_single_output_for_all_subsets(data, kind, predictive):
    """Of a linear model all weights are those of the last layer, also of a margin."""
    X, y = data[0], data[1] > 0
    net = LogisticRegression().fit(X, y)
    if kind == "one output":
        module = nn.Linear(4, 1).double()
        with torch.no_grad():
            module.weight.copy_(torch.as_tensor(net.coef_))
            module.bias.copy_(torch.as_tensor(net.intercept_))
        net = pretrained(module, classes=[False, True])
    options = {"setting": "a", "predictive": predictive, "random_state": 0}
    for hessian in ("full", "diag"):
        last, every = (
            Laplace(FrozenEstimator(net), subset=s, hessian=hessian, **options).fit(
                X, y
            )
            for s in ("last_layer", "all")
        )
        assert every._arrays["eigenvalues"].size == 5
        assert every.prior_precision_ == pytest.approx(last.prior_precision_, rel=1e-8)
        assert every.log_marginal_likelihood_ == pytest.approx(
            last.log_marginal_likelihood_, rel=1e-10
        )
        assert_allclose(every.predict_proba(X), last.predict_proba(X), rtol=1e-8)
        assert_allclose(every.predict_members(X), last.predict_members(X), rtol=1e-7)


def test_margin_of_a_deep_network_in_closed_form(data):
    X, y = data[0], data[1] > 0
    with seeded(0):
        module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    original = FrozenEstimator(pretrained(module, classes=[False, True]))
    clf = Laplace(
        original, subset="all", hessian="full", prior_precision=0.7, setting="a"
    )
    clf.fit(X, y)
    samples = torch.as_tensor(X).double()
    params = {k: v.detach() for k, v in module.named_parameters()}
    J = torch.stack(
        [
            torch.cat([value.flatten() for value in j.values()])
            for j in (
                jacrev(lambda p, r=row: functional_call(module, p, r[None])[0, 0])(
                    params
                )
                for row in samples
            )
        ]
    ).numpy()
    m = module(samples)[:, 0].detach().numpy()
    p = 1 / (1 + np.exp(-m))
    H = (J * (p * (1 - p))[:, None]).T @ J
    v = np.einsum("nd,de,ne->n", J, np.linalg.inv(H + 0.7 * np.eye(len(H))), J)
    expected = 1 / (1 + np.exp(-m / np.sqrt(1 + np.pi / 8 * v)))
    for predictive in ("mean_field", "probit"):
        result = clf.set_params(predictive=predictive).predict_proba(X)[:, 1]
        assert_allclose(result, expected, rtol=1e-9)
    for predictive in ("bridge", "bridge_norm"):
        proba = clf.set_params(predictive=predictive).predict_proba(X)
        assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)


def test_margin_through_the_stand_in(stand_in, data):
    X, y = data[0], data[1] > 0
    with seeded(0):
        module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    original = FrozenEstimator(pretrained(module, classes=[False, True]))
    clf = Laplace(original, subset="all", prior_precision=0.7, setting="a").fit(X, y)
    mean_field = clf.predict_proba(X)
    probit = clf.set_params(predictive="probit").predict_proba(X)
    assert_allclose(mean_field, probit, rtol=1e-12)
    dumped = pickle.loads(pickle.dumps(clf))
    assert_array_equal(dumped.predict_proba(X), probit)


# ---- networks that cannot be mapped, are too large, or lack a package


@pytest.mark.parametrize("inference_mode", [False, True])
def test_recurrent_networks_row_by_row(data, inference_mode):
    X, y = data
    with seeded(0):
        module = Recurrent(3)
        module.unused = nn.Linear(2, 2)
    original = FrozenEstimator(pretrained(module, classes=[0, 1, 2]))
    clf = Laplace(original, subset="all", hessian="diag", n_samples=3, setting="a")
    with torch.inference_mode(inference_mode):
        clf.fit(X, y)
        layers, samples = clf._open(X[:2])
        for _ in range(2):  # the second time it is known that mapping fails
            jacobian, logits = layers.read(layers.network.batch(samples))
            assert not layers._derivatives.is_mapped
        members = clf.predict_members(X[:2])
    twin = copy.deepcopy(module).double()
    for i in range(2):
        out = twin(torch.as_tensor(X[i : i + 1]).double())[0]
        torch.testing.assert_close(logits[i], out.detach(), rtol=1e-10, atol=1e-12)
        for k in range(3):
            grads = torch.autograd.grad(
                out[k], [*twin.parameters()], retain_graph=True, allow_unused=True
            )
            expected = torch.cat(
                [
                    (torch.zeros_like(w) if g is None else g).flatten()
                    for g, w in zip(grads, twin.parameters(), strict=True)
                ]
            )
            torch.testing.assert_close(jacobian[i, k], expected, rtol=1e-9, atol=1e-12)
    assert members.shape == (3, 2, 3)


def test_full_matrix_of_too_many_weights(data):
    X, y = data
    with seeded(0):
        module = nn.Sequential(nn.Linear(4, 5000), nn.Tanh(), nn.Linear(5000, 3))
    original = FrozenEstimator(pretrained(module, classes=[0, 1, 2]))
    clf = Laplace(original, subset="all", hessian="full", batch_size=2)
    with pytest.raises(
        ValueError, match=r"matrix over all 40,003 weights, of 12\.8 GB"
    ):
        clf.fit(X, y)


class Counting(LogisticRegression):
    """Counts its fits."""

    fits = 0

    def fit(self, X, y, sample_weight=None):
        """Fit, and count."""
        type(self).fits += 1
        return super().fit(X, y, sample_weight)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
@pytest.mark.parametrize(
    "wrapped", [lambda item: item, MixtureLaplace], ids=["Laplace", "MixtureLaplace"]
)
def test_missing_package_raises_before_training(data, wrapped, monkeypatch):
    monkeypatch.setitem(sys.modules, "laplace", None)
    monkeypatch.setattr(Counting, "fits", 0)
    with pytest.raises(ImportError, match=r'install "laplace-torch>=.*".*last_layer'):
        wrapped(Laplace(Counting(), subset="all")).fit(*data)
    assert Counting.fits == 0
    wrapped(Laplace(Counting(), subset="all", hessian="diag")).fit(*data)
    assert Counting.fits > 0


def test_broken_package_gives_its_cause(data, frozen, monkeypatch, tmp_path):
    (tmp_path / "laplace.py").write_text("import a_package_that_is_missing")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "laplace", raising=False)
    with pytest.raises(
        ImportError,
        match=r"cannot be imported here \(No module named 'a_package_that_is_missing'\)"
        r": pip install \"laplace-torch>=.* hessian='diag'",
    ):
        Laplace(frozen, subset="all").fit(*data)

"""Graph posterior network and radial flows: evidence, densities, training."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings
import weakref

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import digamma
from scipy.stats import dirichlet, multivariate_normal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skood.base import UncertaintyDetector
from skood.detectors import MSP, Entropy
from skood.evidential import EvidentialProbe
from skood.exceptions import SkoodWarning
from skood.graph import GraphPosteriorNetwork, NodeSet, Propagation, propagate
from skood.graph import _gpn as _module
from skood.graph._base_node_classifier import BaseGraphClassifier
from skood.graph._gpn import RadialFlows
from skood.graph._tensors import GraphTensors
from skood.utils._torch import seeded
from tests.graph._flat import flat_params
from tests.graph._messy import naive_log_density

_QUICK = {
    "hidden": (16,),
    "latent_dim": 3,
    "flow_layers": 2,
    "dropout": 0.0,
    "lr": 0.03,
    "max_epochs": 15,
    "early_stopping": False,
    "random_state": 0,
}


def _gpn(**params):
    params = flat_params(GraphPosteriorNetwork, **{**_QUICK, **params})
    return GraphPosteriorNetwork(**params)


def _blocks(n_nodes=90, n_classes=3, seed=0):
    """Nodes that are linked to nodes of their own class, and their classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_nodes) % n_classes
    X = 3 * np.eye(n_classes)[y] + rng.normal(size=(n_nodes, n_classes))
    linked = np.triu(rng.random((n_nodes, n_nodes)) < 0.2 * (y[:, None] == y), 1)
    return NodeSet((X, linked | linked.T), labels=y), y


def _odd(seed=0):
    """Directed and weighted edges, a loop, and two nodes that nothing is sent to."""
    rng = np.random.default_rng(seed)
    n_nodes = 20
    y = np.arange(n_nodes) % 2
    X = 3 * np.eye(2)[y] + rng.normal(size=(n_nodes, 2))
    adjacency = rng.uniform(0.5, 3.0, size=(n_nodes, n_nodes))
    adjacency *= rng.random((n_nodes, n_nodes)) < 0.2
    adjacency[4, 4] = 2.5
    adjacency[:, [7, 8]] = 0
    adjacency[8] = 0
    return NodeSet((X, adjacency), labels=y), y


NODES, Y = _blocks()
ODD, Y_ODD = _odd()


@pytest.fixture(scope="module")
def gpn():
    return _gpn().fit(NODES[::2], Y[::2])


# --- evidence --------------------------------------------------------------------


def _naive_encode(encoder, x):
    weight = encoder.layers[0].weight.detach().double().numpy()
    hidden = np.maximum(weight @ x + encoder.biases[0].detach().double().numpy(), 0)
    head = encoder.head
    bias = head.bias.detach().double().numpy()
    return head.weight.detach().double().numpy() @ hidden + bias


def test_evidence_is_budget_times_density_times_prior(gpn):
    evidence = gpn.predict_alpha(NODES[:5], propagated=False) - 1
    module = gpn.module_
    for i in range(5):
        z = _naive_encode(module.encoder, NODES.features[i])
        for c in range(3):
            density = math.exp(naive_log_density(module.flows, z, c))
            expected = (4 * math.pi) ** 1.5 * density * gpn.class_prior_[c]
            assert_allclose(evidence[i, c], expected, rtol=1e-4)


def test_prior_is_the_share_of_the_training_weight():
    indices = np.flatnonzero((Y < 2) | (np.arange(len(Y)) < 30))
    gpn = _gpn(max_epochs=1).fit(NODES[indices], Y[indices])
    assert_allclose(gpn.class_prior_, np.array([30, 30, 10]) / 70)
    gpn.set_params(class_weight={0: 1.0, 1: 2.0, 2: 3.0}).fit(
        NODES[indices], Y[indices]
    )
    assert_allclose(gpn.class_prior_, np.array([30, 60, 30]) / 120)
    weight = np.where(Y[indices] == 0, 0.5, 1.0)
    gpn.set_params(class_weight=None).fit(
        NODES[indices], Y[indices], sample_weight=weight
    )
    assert_allclose(gpn.class_prior_, np.array([15, 30, 10]) / 55)


def test_budgets_scale_the_evidence():
    """Of networks that have not moved from where they were initialized."""
    evidence = {}
    for budget in ("latent", "latent-classes", 50.0):
        gpn = _gpn(certainty_budget=budget, max_epochs=1, lr=1e-12, warmup_epochs=0)
        evidence[budget] = gpn.fit(NODES, Y).predict_alpha(NODES) - 1
    assert_allclose(evidence["latent-classes"], 3 * evidence["latent"], rtol=1e-5)
    factor = 50 / (4 * math.pi) ** 1.5
    assert_allclose(evidence[50.0], factor * evidence["latent"], rtol=1e-5)


def test_far_from_the_training_nodes_there_is_no_evidence(gpn):
    for distance in (1e4, 1e15, 1e30):
        far = NODES.with_features(NODES.features + distance)
        assert_allclose(gpn.predict_alpha(far), 1.0, rtol=1e-10)
        assert_allclose(gpn.predict_proba(far), 1 / 3, rtol=1e-10)
        assert_allclose(gpn.predict_uncertainty(far).epistemic, 1.0, rtol=1e-10)
    near = gpn.predict_uncertainty(NODES).epistemic
    assert near.max() < 0.95
    assert near.min() < 0.3


# --- propagation -----------------------------------------------------------------


def test_evidence_is_propagated_as_values_are():
    """By `propagate`, which is tested against loops over edges."""
    gpn = _gpn(n_steps=4, teleport=0.2).fit(ODD, Y_ODD)
    separate = gpn.predict_alpha(ODD, propagated=False) - 1
    expected = propagate(separate, ODD, scheme="symmetric", n_steps=4, teleport=0.2)
    assert_allclose(gpn.predict_alpha(ODD) - 1, expected, rtol=1e-5)


def test_many_steps_solve_the_linear_system_of_page_rank():
    gpn = _gpn(n_steps=150, teleport=0.3).fit(ODD, Y_ODD)
    separate = gpn.predict_alpha(ODD, propagated=False) - 1
    operator = ODD.graph.operator("symmetric").toarray()
    expected = np.linalg.solve(np.eye(20) - 0.7 * operator, 0.3 * separate)
    assert_allclose(gpn.predict_alpha(ODD) - 1, expected, rtol=1e-5)


def test_nodes_that_hear_of_nobody_keep_their_evidence():
    gpn = _gpn().fit(ODD, Y_ODD)
    alpha = gpn.predict_alpha(ODD, propagated=False)
    after = gpn.predict_alpha(ODD)
    assert_allclose(after[8], alpha[8], rtol=1e-6)  # isolated
    assert_allclose(after[7], alpha[7], rtol=1e-6)  # it sends, and receives nothing
    assert np.abs(after[0] / alpha[0] - 1).max() > 1e-3


@pytest.mark.parametrize("params", [{"n_steps": 0}, {"teleport": 1.0}])
def test_network_that_does_not_see_edges(params):
    gpn = _gpn(**params).fit(ODD, Y_ODD)
    alpha = gpn.predict_alpha(ODD, propagated=False)
    assert_allclose(gpn.predict_alpha(ODD), alpha, rtol=1e-6)
    fitted = clone(gpn).fit(ODD.features, Y_ODD)
    assert_allclose(fitted.predict_alpha(ODD.features), alpha, rtol=1e-4)


def test_array_samples_are_nodes_without_edges(gpn):
    features = NODES.features
    alpha = gpn.predict_alpha(features)
    for X in (NODES, features):
        assert_allclose(alpha, gpn.predict_alpha(X, propagated=False), rtol=1e-6)


def test_nodes_do_not_depend_on_the_others_of_the_view(gpn):
    alpha = gpn.predict_alpha(NODES)
    assert_array_equal(gpn.predict_alpha(NODES[[5, 2, 5]]), alpha[[5, 2, 5]])


def test_sparse_features_give_what_dense_ones_do():
    X = np.where(NODES.features > 1, NODES.features, 0)
    dense, thin = NODES.with_features(X), NODES.with_features(sparse.csr_array(X))
    expected = _gpn().fit(dense, Y).predict_proba(dense)
    assert_allclose(_gpn().fit(thin, Y).predict_proba(thin), expected, atol=1e-4)


def test_another_graph_is_scored():
    gpn = _gpn(max_epochs=60).fit(NODES, Y)
    other, y_other = _blocks(n_nodes=60, seed=1)
    assert gpn.score(other, y_other) > 0.9


# --- what it says ----------------------------------------------------------------


def test_probabilities_and_uncertainties_are_those_of_the_dirichlet(gpn):
    for propagated in (True, False):
        alpha = gpn.predict_alpha(NODES, propagated=propagated)
        p = alpha / alpha.sum(axis=1, keepdims=True)
        u = gpn.predict_uncertainty(NODES, propagated=propagated)
        assert_allclose(u.total, -(p * np.log(p)).sum(axis=1), rtol=1e-10)
        assert_allclose(u.aleatoric, -p.max(axis=1), rtol=1e-12)
        assert_allclose(u.epistemic, 3 / alpha.sum(axis=1), rtol=1e-12)
        if propagated:
            assert_allclose(gpn.predict_proba(NODES), p, rtol=1e-12)
            assert_array_equal(gpn.predict(NODES), p.argmax(axis=1))
    assert alpha.dtype == np.float64


def test_detector_finds_a_class_that_was_left_out():
    rng = np.random.default_rng(0)
    nodes, y = _blocks(n_nodes=160, n_classes=4)
    indices = rng.permutation(np.flatnonzero(y < 3))[:90]
    gpn = _gpn(max_epochs=25, n_steps=2)
    detector = UncertaintyDetector(gpn).fit(nodes[indices], y[indices])
    test = np.setdiff1d(np.arange(160), indices)
    assert detector.score(nodes[test], y[test]) > 0.9
    known = test[y[test] < 3]
    assert detector.estimator_.score(nodes[known], y[known]) > 0.9


def test_string_labels():
    names = np.array(["ant", "bee", "cat"])
    by_name, by_number = _gpn().fit(NODES, names[Y]), _gpn().fit(NODES, Y)
    assert_array_equal(by_name.classes_, names)
    assert_array_equal(by_name.predict(NODES), names[by_number.predict(NODES)])
    assert_array_equal(by_name.predict_alpha(NODES), by_number.predict_alpha(NODES))


# --- training --------------------------------------------------------------------


@pytest.mark.parametrize("lambda_entropy", [0.0, 1e-3, 0.5])
def test_loss_is_expected_cross_entropy_less_entropy(lambda_entropy):
    evidence = np.random.default_rng(0).gamma(2.0, 5.0, size=(6, 4))
    codes = np.array([0, 1, 2, 3, 0, 1])
    ignored = np.full((6, 4), 1e9)
    outputs = torch.tensor(np.hstack([evidence, ignored]))
    losses = _gpn(lambda_entropy=lambda_entropy)._loss(outputs, torch.tensor(codes))
    for i, (e, code) in enumerate(zip(evidence, codes, strict=True)):
        alpha = e + 1
        expected = digamma(alpha.sum()) - digamma(alpha[code])
        expected -= lambda_entropy * dirichlet(alpha).entropy()
        assert_allclose(losses[i], expected, rtol=1e-10)


def test_loss_of_extreme_evidence_has_a_finite_gradient():
    evidence = torch.tensor([[1e-13, 1e13], [1e13, 1e13], [1e-13, 1e-13]])
    evidence.requires_grad_()
    outputs = torch.cat([evidence, evidence.detach()], dim=1)
    losses = _gpn(lambda_entropy=0.5)._loss(outputs, torch.tensor([0, 0, 1]))
    assert losses.dtype == torch.float32
    assert torch.isfinite(losses).all()
    losses.sum().backward()
    assert torch.isfinite(evidence.grad).all()
    # without evidence: d/da of psi(2) - psi(1) is trigamma(2), less trigamma(1) for
    # the class; the entropy is largest there
    expected = [math.pi**2 / 6 - 1, -1.0]
    assert_allclose(evidence.grad[2], expected, rtol=1e-5)


def _until_warm(monkeypatch, **params):
    """A network after its warm-up, and one that is as it was initialized."""
    results = []

    def stop(self, module, train, valid, **options):
        results.append((module, train))
        return []

    monkeypatch.setattr(BaseGraphClassifier, "_run_epochs", stop)
    gpn = _gpn(**params).fit(NODES[::2], Y[::2])
    with seeded(gpn._config["seed"]):
        fresh = gpn._build()
    [(module, train)] = results
    return module, fresh, train


def test_warm_up_trains_the_flows_and_nothing_else(monkeypatch):
    module, fresh, train = _until_warm(monkeypatch, warmup_epochs=20)
    for name, before in fresh.encoder.state_dict().items():
        assert torch.equal(before, module.encoder.state_dict()[name])
    assert all(p.grad is None for p in module.encoder.parameters())
    nodes, codes, _ = train.on_device
    with torch.no_grad():
        z = module.encoder(train.tensors)[nodes]
        before, after = (
            item.flows(z).gather(1, codes[:, None]).mean() for item in (fresh, module)
        )
    assert after > before + 0.1


def test_without_warm_up_nothing_is_trained(monkeypatch):
    module, fresh, _ = _until_warm(monkeypatch, warmup_epochs=0)
    for name, before in fresh.state_dict().items():
        if name != "log_prior":
            assert torch.equal(before, module.state_dict()[name])


def test_training_lowers_the_loss_and_early_stopping_keeps_the_best():
    train, valid = np.arange(0, 90, 2), np.arange(1, 90, 2)
    gpn = _gpn(max_epochs=300, n_iter_no_change=5, lr=0.1)
    gpn.fit(NODES[train], Y[train], X_val=NODES[valid], y_val=Y[valid])
    losses = [done["valid_loss"] for done in gpn.history_]
    assert gpn.n_iter_ == len(losses) < 300
    assert min(losses) < 0.5 * losses[0]
    outputs = torch.tensor(gpn._outputs(NODES[valid]))
    loss = gpn._loss(outputs, torch.tensor(Y[valid])).mean()
    assert_allclose(loss, min(losses), rtol=1e-5)


def test_validation_nodes_are_held_out():
    gpn = _gpn(early_stopping=True, validation_fraction=0.2).fit(NODES, Y)
    assert "valid_loss" in gpn.history_[0]
    assert_allclose(gpn.class_prior_.sum(), 1.0)


def test_many_blocks_equal_a_single_block(monkeypatch):
    expected = _gpn(dropout=0.3).fit(NODES, Y)
    monkeypatch.setattr(_module, "_MAX_BLOCK_BYTES", 4000)
    calls = []
    forward = _module.RadialFlows.forward

    def counted(self, z):
        calls.append(len(z))
        return forward(self, z)

    monkeypatch.setattr(_module.RadialFlows, "forward", counted)
    gpn = _gpn(dropout=0.3).fit(NODES, Y)
    assert max(calls) < 20  # in the warm-up, too
    assert_allclose(gpn.predict_alpha(NODES), expected.predict_alpha(NODES), rtol=1e-3)


def test_flows_without_layers():
    """Standard normal densities, which no warm-up can train."""
    gpn = _gpn(flow_layers=0, warmup_epochs=3).fit(NODES, Y)
    alpha = gpn.predict_alpha(NODES[:4], propagated=False)
    for i in range(4):
        z = _naive_encode(gpn.module_.encoder, NODES.features[i])
        density = math.exp(-0.5 * sum(z**2)) / (2 * math.pi) ** 1.5
        expected = (4 * math.pi) ** 1.5 * density * gpn.class_prior_
        assert_allclose(alpha[i] - 1, expected, rtol=1e-4)


@pytest.mark.parametrize(
    "budget, bound, remedy",
    [
        (1e30, "30", "Lower certainty_budget or latent_dim."),
        (1e-30, "-30", "Scale the features, raise warmup_epochs or certainty_budget"),
    ],
)
def test_evidence_at_its_bounds_warns(budget, bound, remedy):
    message = (
        "The logarithm of the evidence of 100% of the training nodes for their own "
        f"class is beyond the bound {bound}, where it is cut: "
    )
    gpn = _gpn(certainty_budget=budget, max_epochs=1)
    with pytest.warns(SkoodWarning) as caught:
        gpn.fit(NODES[::2], Y[::2])
    [text] = [str(item.message) for item in caught]
    assert text.startswith(message)
    assert remedy in text
    separate = gpn.predict_alpha(NODES[::2], propagated=False)[range(45), Y[::2]] - 1
    assert_allclose(np.log(separate), float(bound), rtol=1e-2)


def test_evidence_of_a_few_nodes_at_a_bound_does_not_warn():
    """Four of 45 are far from all others, and no epoch moves the perceptron."""
    still = {"lr": 1e-12, "max_epochs": 1, "warmup_epochs": 0}
    for n_far, warns in ((4, False), (5, True)):
        X = NODES.features.copy()
        X[: 2 * n_far : 2] *= 1000
        far = NODES.with_features(X)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gpn = _gpn(**still).fit(far[::2], Y[::2])
        separate = gpn.predict_alpha(far[::2], propagated=False) - 1
        assert (separate.max(axis=1) < 1e-12).sum() == n_far
        assert len(caught) == warns
        if warns:
            assert "evidence of 11% of the training nodes" in str(caught[0].message)


# --- detectors and probes ---------------------------------------------------------


@pytest.mark.parametrize("of_arrays", [False, True])
def test_detectors_and_probes_read_its_probabilities(gpn, of_arrays):
    X = NODES.features if of_arrays else NODES
    frozen = FrozenEstimator(gpn)
    proba = gpn.predict_proba(X)
    confidence = proba.max(axis=1) - 1
    assert_allclose(MSP(frozen).fit(X, Y).score_samples(X), confidence, rtol=1e-10)
    entropy = Entropy(frozen).fit(X, Y).score_samples(X)
    assert_allclose(entropy, (proba * np.log(proba)).sum(axis=1), rtol=1e-10)
    walked = Propagation(MSP(frozen)).fit(X, Y).score_samples(X[:20])
    expected = confidence if of_arrays else propagate(confidence, NODES)
    assert_allclose(walked, expected[:20], rtol=1e-10)
    probe = EvidentialProbe(frozen, max_epochs=5, random_state=0).fit(X, Y)
    assert_allclose(probe.predict_proba(X), proba, rtol=1e-10)
    q = np.exp(np.log(proba) @ probe.coef_.T + probe.intercept_)
    assert_allclose(probe.predict_evidence(X), q.sum(axis=1), rtol=1e-10)
    assert probe.predict_uncertainty(X[:3]).epistemic.shape == (3,)


# --- scikit-learn ----------------------------------------------------------------


def _scaled(nodes):
    return nodes.with_features(nodes.graph.X / 3)


def test_model_selection_on_nodes():
    pipeline = make_pipeline(
        FunctionTransformer(_scaled), _gpn(max_epochs=25, n_steps=2)
    )
    assert cross_val_score(pipeline, NODES, Y, cv=StratifiedKFold(3)).mean() > 0.9
    search = GridSearchCV(
        pipeline,
        {
            "graphposteriornetwork__module_params": [{"n_steps": 0}, {"n_steps": 2}],
            "graphposteriornetwork__max_epochs": [3],
        },
        cv=2,
    )
    search.fit(NODES, Y)
    assert search.best_estimator_.predict(NODES[:4]).shape == (4,)


# --- errors ----------------------------------------------------------------------


def test_a_class_without_training_nodes_raises():
    message = (
        "estimates a density of each class, and the class 'bee' has no training node "
        "with a weight above zero. Give it some, or leave its nodes out of X and y"
    )
    names = np.array(["ant", "bee", "cat"])[Y]
    with pytest.raises(ValueError, match=message):
        _gpn().fit(NODES, names, sample_weight=np.where(Y == 1, 0.0, 1.0))
    with pytest.raises(ValueError, match=message):
        _gpn(class_weight={"ant": 1, "bee": 0, "cat": 1}).fit(NODES, names)


@pytest.mark.parametrize(
    "name, value",
    [
        ("certainty_budget", 0.0),
        ("certainty_budget", "samples"),
        ("warmup_epochs", -1),
        ("lambda_entropy", -1.0),
    ],
)
def test_wrong_parameters_raise(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of GraphPosterior"):
        _gpn(**{name: value}).fit(NODES, Y)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("hidden", (8, 0), "hidden must hold widths of at least 1, got"),
        ("latent_dim", 0, "latent_dim must be an integer of at least 1, got 0"),
        ("flow_layers", -1, "flow_layers must be an integer of at least 0, got -1"),
        ("dropout", 1.0, "dropout must be in the range"),
        ("n_steps", -1, "Propagation needs n_steps of at least 0"),
        ("teleport", 1.5, "Propagation needs n_steps of at least 0"),
    ],
)
def test_wrong_parameters_of_the_network_raise(name, value, message):
    with pytest.raises(ValueError, match=message):
        _gpn(**{name: value}).fit(NODES, Y)
    with pytest.raises(TypeError, match=r"cannot be built with module_params=\{'foo'"):
        GraphPosteriorNetwork({"foo": 1}).fit(NODES, Y)


def test_module_takes_tensors(gpn):
    tensors = GraphTensors(NODES.graph, torch.device("cpu"))
    with torch.no_grad():
        outputs = gpn.module_(tensors).numpy()
    alpha = gpn.predict_alpha(NODES)
    separate = gpn.predict_alpha(NODES, propagated=False)
    assert_allclose(outputs, np.hstack([alpha, separate]) - 1, rtol=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_weights_are_repetitions_up_to_float32(seed):
    """The bound that the expected failure of scikit-learn's check states."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 3
    weight = rng.integers(1, 4, size=30)
    weighted = _gpn(dropout=0.0).fit(X, y, sample_weight=weight)
    repeated = _gpn(dropout=0.0).fit(np.repeat(X, weight, axis=0), y.repeat(weight))
    proba = weighted.predict_proba(X)
    assert_allclose(proba, repeated.predict_proba(X), atol=1e-4, rtol=0)
    unweighted = _gpn(dropout=0.0).fit(X, y).predict_proba(X)
    assert np.abs(proba - unweighted).max() > 1e-2


def _flows(n_classes=3, n_features=4, n_layers=5, spread=1.5, seed=0):
    """Flows in float64 that move points visibly."""
    generator = torch.Generator().manual_seed(seed)
    flows = RadialFlows(n_classes, n_features, n_layers).double()
    with torch.no_grad():
        for parameter in flows.parameters():
            noise = torch.randn(
                parameter.shape, dtype=torch.float64, generator=generator
            )
            parameter.copy_(spread * noise)
    return flows


def _points(n_points, n_features, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_points, n_features, dtype=torch.float64, generator=generator)


def test_density_is_that_of_the_paper():
    flows, z = _flows(), _points(6, 4)
    expected = [
        [naive_log_density(flows, point, c) for c in range(3)] for point in z.numpy()
    ]
    assert_allclose(flows(z).detach(), expected, rtol=1e-12)


def test_determinant_is_that_of_the_jacobian():
    flows = _flows()
    for z in _points(4, 4):
        jacobian = torch.autograd.functional.jacobian(
            lambda point: flows.transform(point[None])[0][0], z
        )  # (n_classes, n_features, n_features)
        sign, log_abs = torch.linalg.slogdet(jacobian)
        assert (sign == 1).all()
        assert_allclose(
            flows.transform(z[None])[1][0].detach(), log_abs.detach(), rtol=1e-9
        )


def test_flow_without_layers_is_standard_normal():
    z = _points(5, 3)
    flows = RadialFlows(2, 3, 0).double()
    expected = multivariate_normal(np.zeros(3)).logpdf(z.numpy())
    assert_allclose(flows(z), np.column_stack([expected] * 2), rtol=1e-12)


def test_new_flows_are_almost_the_identity():
    """So no class is denser than another; but their layers are not all alike."""
    z = _points(50, 3)
    torch.manual_seed(0)
    moved, log_det = RadialFlows(2, 3, 1).double().transform(z)
    change = (moved - z[:, None]).norm(dim=-1) / z.norm(dim=1)[:, None]
    assert 0 < change.max() < 0.1
    assert 0 < log_det.abs().max() < 0.1


def test_density_in_2d_is_normalized():
    flows = _flows(n_classes=2, n_features=2, n_layers=3, spread=0.7)
    axis = torch.linspace(-12, 12, 601, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    density = flows(grid).detach().exp().numpy()
    step = float(axis[1] - axis[0])
    assert_allclose(density.sum(axis=0) * step**2, 1.0, rtol=1e-3)


@pytest.mark.parametrize("raw_a, raw_s", [(3.0, -200.0), (-200.0, 3.0), (5.0, 5.0)])
def test_every_layer_is_invertible(raw_a, raw_s):
    """Along a ray the new distance grows with the old, whatever the parameters."""
    flows = RadialFlows(1, 2, 1).double()
    with torch.no_grad():
        flows.centers.zero_()
        flows.raw_a.fill_(raw_a)
        flows.raw_s.fill_(raw_s)
    r = torch.linspace(0, 20, 400, dtype=torch.float64)
    moved, log_det = flows.transform(torch.stack([r, torch.zeros_like(r)], dim=1))
    assert (moved[:, 0, 0].diff() > 0).all()
    assert torch.isfinite(log_det).all()


def test_classes_do_not_see_each_other():
    flows, z = _flows(n_classes=3), _points(7, 4)
    for c in range(3):
        alone = RadialFlows(1, 4, 5).double()
        with torch.no_grad():
            for separate, of_all in zip(
                alone.parameters(), flows.parameters(), strict=True
            ):
                separate.copy_(of_all[:, c : c + 1])
        # the last digit depends on which samples share a vector instruction
        assert_allclose(
            alone(z)[:, 0].detach(), flows(z)[:, c].detach(), rtol=1e-14, strict=True
        )


@pytest.mark.parametrize("distance", [0.0, 1e3, 1e10, 3e38])
@pytest.mark.parametrize("raw", [0.0, -200.0, 200.0])
def test_points_anywhere_have_finite_densities_and_gradients(distance, raw):
    """At the center of a layer, and as far as float32 reaches."""
    flows = RadialFlows(2, 16, 10)
    with torch.no_grad():
        flows.centers.zero_()
        flows.raw_a.fill_(raw)
        flows.raw_s.fill_(raw)
    z = torch.full((3, 16), distance, requires_grad=True)
    log_density = flows(z)
    assert torch.isfinite(log_density).all()
    log_density.clamp(-30, 30).sum().backward()
    for tensor in (z, *flows.parameters()):
        assert torch.isfinite(tensor.grad).all()


def test_density_falls_to_nothing_far_away():
    flows = _flows(n_classes=3, spread=1.0)
    directions = _points(5, 4)
    directions /= directions.norm(dim=1, keepdim=True)
    near, far, farther = (flows(r * directions) for r in (3.0, 30.0, 300.0))
    assert (far < near - 100).all()
    assert (farther < far).all()


def test_gradient_is_that_of_finite_differences():
    flows, z = _flows(n_layers=2), _points(3, 4).requires_grad_()
    assert torch.autograd.gradcheck(flows, (z,))


def test_activations_of_a_single_block_are_stored(monkeypatch):
    """The results are those of one block, with many that are let go of in turn."""
    flows, z = _flows(), _points(50, 4).requires_grad_()
    weight = _points(50, 3, seed=2)
    expected = torch.autograd.grad(
        (flows.in_blocks(z) * weight).sum(), [z, *flows.parameters()]
    )
    monkeypatch.setattr(_module, "_MAX_BLOCK_BYTES", 7 * 4 * 3 * 4 * 4 * 6)
    assert [block.stop - block.start for block in flows.blocks(50)] == [7] * 7 + [1]
    alive, stored = [], []
    transform = RadialFlows.transform

    def watched(self, z):
        alive.append(sum(ref() is not None for ref in stored))
        features = transform(self, z)
        stored.append(weakref.ref(features[0]))
        return features

    monkeypatch.setattr(RadialFlows, "transform", watched)
    outputs = torch.cat([flows(z[block]) for block in flows.blocks(50)])
    assert max(alive) == 7  # they would all be kept
    del outputs
    alive.clear(), stored.clear()
    value = (flows.in_blocks(z) * weight).sum()
    assert alive == [0] * 8
    value.backward()
    assert len(alive) == 16
    assert max(alive) <= 1
    for tensor, gradient in zip([z, *flows.parameters()], expected, strict=True):
        torch.testing.assert_close(tensor.grad, gradient, rtol=1e-10, atol=1e-12)


def test_blocks_without_gradient(monkeypatch):
    flows, z = _flows(), _points(50, 4)
    expected = flows(z)
    monkeypatch.setattr(_module, "_MAX_BLOCK_BYTES", 1)
    assert len(flows.blocks(50)) == 50
    with torch.no_grad():
        torch.testing.assert_close(flows.in_blocks(z), expected)
    # points that need none do not keep parameters from having theirs
    flows.in_blocks(z).sum().backward()
    assert all(parameter.grad is not None for parameter in flows.parameters())

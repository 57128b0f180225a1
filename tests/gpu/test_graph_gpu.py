"""Estimators of graphs on a GPU give what they give on the CPU."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.frozen import FrozenEstimator

from skood.detectors import Energy
from skood.epistemic import MCDropout
from skood.evidential import EvidentialClassifier, EvidentialProbe, ProbeObjective
from skood.graph import (
    GKDENetwork,
    GraphClassifier,
    GraphPosteriorNetwork,
    NodeSet,
    Propagation,
)
from skood.nn import TorchClassifier, TrainingOptions
from tests.nn._outputs import read

pytestmark = pytest.mark.gpu


def _blocks(n_nodes=120, n_classes=3):
    """Nodes that are linked to nodes of their own class, and their classes."""
    rng = np.random.default_rng(0)
    y = np.arange(n_nodes) % n_classes
    X = 2 * np.eye(n_classes)[y] + rng.normal(size=(n_nodes, n_classes))
    linked = np.triu(rng.random((n_nodes, n_nodes)) < 0.2 * (y[:, None] == y), 1)
    return NodeSet((X, linked | linked.T), labels=y), y


def _gcn(device):
    return GraphClassifier(
        conv_params={"dropout": 0.0},
        max_epochs=20,
        device=device,
        random_state=0,
        training=TrainingOptions(early_stopping=False),
    )


def test_propagation():
    nodes, y = _blocks()
    scores = []
    for device in ("cpu", "cuda"):
        clf = _gcn(device).fit(nodes[::2], y[::2])
        detector = Propagation(Energy(FrozenEstimator(clf)), scheme="gnnsafe")
        scores.append(detector.fit(nodes[::2], y[::2]).score_samples(nodes))
    assert_allclose(scores[1], scores[0], rtol=1e-3)


def test_gkde_network():
    nodes, y = _blocks()
    result = {}
    for device in ("cpu", "cuda"):
        clf = GKDENetwork(_gcn(device)).fit(nodes[::2], y[::2])
        assert next(clf.estimator_.module_.parameters()).device.type == device
        result[device] = clf.predict_alpha(nodes)
    assert_allclose(result["cuda"], result["cpu"], rtol=1e-3)


def test_evidential_classifier():
    nodes, y = _blocks()
    results = []
    for device in ("cpu", "cuda"):
        clf = EvidentialClassifier(_gcn(device), propagation="both")
        clf.fit(nodes[::2], y[::2])
        assert next(clf.estimator_.module_.parameters()).device.type == device
        results.append(clf.predict_uncertainty(nodes))
    for name in ("total", "aleatoric", "epistemic"):
        assert_allclose(results[1][name], results[0][name], rtol=1e-3)


@pytest.mark.parametrize("evidence", ["softplus", "exp", "relu"])
def test_evidential_classifier_of_arrays(evidence):
    nodes, y = _blocks()
    results = []
    for device in ("cpu", "cuda"):
        net = TorchClassifier(max_epochs=20, random_state=0).set_params(device=device)
        clf = EvidentialClassifier(net, evidence=evidence).fit(nodes.features, y)
        results.append(clf.predict_alpha(nodes.features))
    assert_allclose(results[1], results[0], rtol=1e-3)


def test_graph_posterior_network():
    nodes, y = _blocks()
    result = {}
    for device in ("cpu", "cuda"):
        gpn = GraphPosteriorNetwork(
            module_params={"latent_dim": 4, "dropout": 0.0},
            max_epochs=20,
            random_state=0,
            device=device,
            training=TrainingOptions(early_stopping=False),
        ).fit(nodes[::2], y[::2])
        assert next(gpn.module_.parameters()).device.type == device
        result[device] = gpn.predict_proba(nodes)
    assert_allclose(result["cuda"], result["cpu"], atol=1e-3)


@pytest.mark.parametrize("activation", ["exp", "softplus"])
def test_evidential_probe(activation):
    nodes, y = _blocks()
    net = GraphClassifier(
        conv_params={"dropout": 0.0},
        max_epochs=20,
        random_state=0,
        device="cpu",
        training=TrainingOptions(early_stopping=False),
    ).fit(nodes[::2], y[::2])
    results = []
    for device in ("cpu", "cuda"):
        probe = EvidentialProbe(
            FrozenEstimator(net),
            ProbeObjective(activation=activation),
            random_state=0,
            device=device,
        ).fit(nodes[::2], y[::2])
        assert isinstance(probe.coef_, np.ndarray)
        results.append(probe.predict_uncertainty(nodes).epistemic)
    assert_allclose(results[1], results[0], rtol=1e-3)


@pytest.mark.parametrize("conv", ["gcn", "gat", "sage", "appnp"])
def test_outputs(conv):
    nodes, y = _blocks()
    clf = GraphClassifier(conv, max_epochs=5, random_state=0, device="cpu")
    clf.fit(nodes[::2], y[::2])
    want = {"features", "logits", "head"}
    there, here = (read(clf, nodes, want, device=d) for d in ("cuda", "cpu"))
    assert_allclose(there.features, here.features, rtol=1e-3, atol=1e-5)
    assert_allclose(there.logits, here.logits, rtol=1e-3, atol=1e-5)
    assert_array_equal(there.head.coef, here.head.coef)
    assert next(clf.estimator_.module_.parameters()).device.type == "cpu"


def test_dropout():
    nodes, y = _blocks()
    clf = GraphClassifier(max_epochs=20, random_state=0, device="cpu")
    clf.fit(nodes[::2], y[::2])
    members = [
        MCDropout(FrozenEstimator(clf), 5, random_state=0, device=device)
        .fit(nodes, y)
        .predict_members(nodes)
        for device in ("cpu", "cuda")
    ]
    assert_allclose(members[1], members[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("conv", ["gcn", "gat", "sage", "appnp"])
@pytest.mark.parametrize("batch_size", [None, 16])
def test_graph_classifier(conv, batch_size):
    nodes, y = _blocks()
    words = nodes.with_features(sparse.csr_array(np.maximum(nodes.graph.X, 0)))
    results = []
    for device in ("cpu", "cuda"):
        clf = GraphClassifier(
            conv,
            conv_params={"dropout": 0.0},
            max_epochs=10,
            batch_size=batch_size,
            random_state=0,
            device=device,
        ).fit(words[::2], y[::2])
        assert next(clf.estimator_.module_.parameters()).device.type == device
        results.append(clf.predict_proba(words))
    assert_allclose(results[1], results[0], atol=1e-2)
    dropped = GraphClassifier(conv, max_epochs=20, random_state=0, device="cuda")
    assert dropped.fit(words[::2], y[::2]).score(words[1::2], y[1::2]) > 0.8

"""What all classifiers share that train a network on nodes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gc
import pickle
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from torch import nn

from skood.datasets import make_ood_graph
from skood.detectors import Energy, Gram
from skood.epistemic import MCDropout
from skood.evidential import EvidentialClassifier, EvidentialProbe
from skood.graph import (
    GKDE,
    GKDENetwork,
    GraphClassifier,
    GraphPosteriorNetwork,
    Propagation,
    _node_set,
)
from skood.graph._modules import check_widths
from skood.graph._node_set import Graph
from skood.nn import FeatureExtractor

pytest.importorskip("torch_geometric")

QUICK = {"max_epochs": 4, "random_state": 0}
TRAINED = pytest.mark.parametrize(
    "clf",
    [
        GraphClassifier(**QUICK),
        GraphClassifier("gat", **QUICK),
        GraphClassifier(batch_size=16, **QUICK),
        GKDENetwork(GraphClassifier(**QUICK)),
        GraphPosteriorNetwork(**QUICK),
        EvidentialClassifier(GraphClassifier(**QUICK)),
        EvidentialProbe(GraphClassifier(**QUICK), **QUICK),
    ],
    ids=["gcn", "gat", "sampled", "gkde", "gpn", "evidential", "probe"],
)


def _blocks():
    nodes = make_ood_graph(90, n_classes=3, n_features=8, random_state=0)
    return nodes, nodes.labels


NODES, Y = _blocks()


@pytest.fixture(scope="module")
def gnn():
    return FrozenEstimator(GraphClassifier(**QUICK).fit(NODES, Y))


# --- modes of torch ------------------------------------------------------------------


@contextmanager
def _float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@TRAINED
@pytest.mark.parametrize(
    "mode",
    [torch.inference_mode, pytest.param(torch.no_grad, marks=pytest.mark.slow)],
)
def test_trained_where_gradients_are_off(clf, mode):
    expected = clone(clf).fit(NODES, Y).predict_proba(NODES)
    nodes, y = _blocks()  # tensors of the graph are made in this mode
    with mode():
        fitted = clone(clf).fit(nodes[::2], y[::2]).fit(nodes, y)
        assert not torch.is_grad_enabled()
        assert_array_equal(fitted.predict_proba(nodes), expected)
        loaded = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(loaded.predict_proba(nodes), expected)
    fitted.fit(nodes, y)  # with what was kept of the graph
    assert_array_equal(fitted.predict_proba(nodes), expected)


@TRAINED
def test_trained_in_double_precision(clf):
    """Networks of torch's default kind of number, also after loading them elsewhere."""
    with _float64():
        takes_valid = not isinstance(clf, EvidentialClassifier)
        valid = {"X_val": NODES[1::2], "y_val": Y[1::2]} if takes_valid else {}
        fitted = clone(clf).fit(NODES[::2], Y[::2], **valid)
        p = fitted.predict_proba(NODES)
    network = getattr(fitted, "estimator_", fitted)
    assert next(network.module_.parameters()).dtype == torch.float64
    assert_array_equal(fitted.predict_proba(NODES), p)
    loaded = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(loaded.predict_proba(NODES), p)


def test_a_module_in_double_precision():
    def conv(n_features, n_classes):
        class Double(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(n_features, n_classes).double()

            def forward(self, x, edge_index):
                return self.linear(x.index_add(0, edge_index[1], x[edge_index[0]]))

        return Double()

    clf = GraphClassifier(conv, **QUICK).fit(NODES, Y)
    with torch.no_grad():
        summed = NODES.graph.X + NODES.graph.operator("sum") @ NODES.graph.X
        logits = clf.module_.module.linear(torch.tensor(summed, dtype=torch.float64))
    assert_allclose(clf.predict_logits(NODES), logits, rtol=1e-12)


# --- graphs are let go ---------------------------------------------------------------


@contextmanager
def _no_search_for_cycles():
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "estimator",
    [
        GraphClassifier(**QUICK),
        GraphClassifier("gat", **QUICK),
        GraphClassifier(batch_size=16, **QUICK),
        GKDE(),
        GKDENetwork(GraphClassifier(**QUICK)),
        GraphPosteriorNetwork(**QUICK),
        EvidentialClassifier(GraphClassifier(**QUICK)),
        "EvidentialProbe",
        "Energy",
        "Gram",
        "Propagation",
        "MCDropout",
        "FeatureExtractor",
    ],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_no_graph_is_stored(estimator, gnn):
    """It goes with the last of its sets, at once."""
    made = {
        "EvidentialProbe": lambda: EvidentialProbe(gnn, max_epochs=3),
        "Energy": lambda: Energy(gnn),
        "Gram": lambda: Gram(gnn, random_state=0),
        "Propagation": lambda: Propagation(Energy(gnn)),
        "MCDropout": lambda: MCDropout(gnn),
        "FeatureExtractor": lambda: FeatureExtractor(gnn),
    }
    estimator = made[estimator]() if isinstance(estimator, str) else clone(estimator)
    nodes, y = _blocks()
    with _no_search_for_cycles():
        estimator.fit(nodes[:60], y[:60])
        for name in ("predict_proba", "predict_uncertainty", "score_samples"):
            if hasattr(estimator, name):
                getattr(estimator, name)(nodes[5:50])
        reference = weakref.ref(nodes.graph)
        assert reference() is not None
        del nodes
        assert reference() is None


def test_predictions_on_arrays_keep_nothing(monkeypatch):
    """Of the graphs that blocks of rows become, one or two live at a time."""
    X = np.tile(NODES.features, (5, 1))
    clf = GraphClassifier(**QUICK).fit(X[:90], Y)
    alive, most, make = weakref.WeakSet(), [0], Graph.__init__

    def counted(self, *args):
        make(self, *args)
        alive.add(self)
        most[0] = max(most[0], len(alive))

    monkeypatch.setattr(Graph, "__init__", counted)
    monkeypatch.setattr(_node_set, "_MAX_SAMPLES", 45)
    with _no_search_for_cycles():
        for call in (clf.predict, clf._outputs, Energy(FrozenEstimator(clf)).fit):
            call(X)
            assert len(alive) == 0
    assert most[0] in (1, 2)


# --- classes and units ---------------------------------------------------------------


def test_classes_weigh_in_validation_what_they_do_in_training():
    """By naive sums over training nodes, of any share of the classes in X_val."""
    train = np.r_[np.flatnonzero(Y == 0)[:20], np.flatnonzero(Y > 0)[:13]]
    valid = np.r_[np.flatnonzero(Y == 0)[20:22], np.flatnonzero(Y == 1)[13:]]
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=len(train))
    weight[3] = 0.0
    clf = GraphClassifier(class_weight="balanced", **QUICK)
    clf.fit(NODES[train], Y[train], weight, X_val=NODES[valid], y_val=Y[valid])
    totals = [weight[Y[train] == c].sum() for c in range(3)]
    of_samples = np.array([1 / totals[c] for c in Y[valid]])
    p = clf.predict_proba(NODES[valid])[np.arange(len(valid)), Y[valid]]
    expected = (of_samples * -np.log(p)).sum() / of_samples.sum()
    best = min(row["valid_loss"] for row in clf.history_)
    assert best == pytest.approx(expected, rel=1e-5)


def test_widths():
    assert check_widths(np.array([3, 5])) == (3, 5)
    assert all(type(width) is int for width in check_widths(np.array([3])))
    assert check_widths([]) == ()
    for hidden in ([0], (2, 1.5), ["a"]):
        with pytest.raises(ValueError, match="hidden must hold widths of at least 1,"):
            check_widths(hidden)

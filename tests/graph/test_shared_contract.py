"""What all classifiers of nodes share: seeds, state, views, pickles, memory, errors."""

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
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from skood.base import UncertaintyDetector
from skood.detectors import Energy, Gram
from skood.epistemic import MCDropout
from skood.evidential import EvidentialClassifier, EvidentialProbe
from skood.graph import (
    GKDE,
    GKDENetwork,
    GraphClassifier,
    GraphPosteriorNetwork,
    NodeSet,
    Propagation,
    _node_set,
)
from skood.graph._modules import check_widths
from skood.graph._node_set import Graph
from skood.nn import FeatureExtractor

pytest.importorskip("torch_geometric")


def _blocks(n_nodes=90):
    """Nodes that are mostly linked to nodes of their class; the last has no edge."""
    rng = np.random.default_rng(0)
    y = np.arange(n_nodes) % 3
    X = 2 * np.eye(3)[y] + rng.normal(size=(n_nodes, 3))
    likely = np.where(y[:, None] == y, 0.15, 0.01)
    linked = np.triu(rng.random((n_nodes, n_nodes)) < likely, 1)
    linked[:, -1] = False
    return NodeSet((X, (linked | linked.T).astype(float))), y


NODES, Y = _blocks()
QUICK = GraphClassifier(
    conv_params={"hidden": (16,)}, max_epochs=20, lr=0.03, random_state=0
)
POSTERIOR = {"hidden": (16,), "latent_dim": 3, "flow_layers": 2}
CLASSIFIERS = {
    "gcn": QUICK,
    "gat": clone(QUICK).set_params(conv="gat"),
    "sage": clone(QUICK).set_params(conv="sage"),
    "appnp": clone(QUICK).set_params(conv="appnp"),
    "sampled": clone(QUICK).set_params(batch_size=16, n_neighbors=2),
    "posterior": GraphPosteriorNetwork(POSTERIOR, max_epochs=20, random_state=0),
    "gkde": GKDE(),
    "regularized": GKDENetwork(QUICK),
    "evidential": EvidentialClassifier(QUICK),
    "probe": EvidentialProbe(QUICK, max_epochs=20, random_state=0),
}
each_classifier = pytest.mark.parametrize("name", CLASSIFIERS)
_FITTED: dict = {}


def _fitted(name):
    """A fitted classifier that no test changes."""
    if name not in _FITTED:
        _FITTED[name] = clone(CLASSIFIERS[name]).fit(NODES[::2], Y[::2])
    return _FITTED[name]


@each_classifier
def test_seeds(name):
    expected = _fitted(name).predict_proba(NODES)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    again = clone(CLASSIFIERS[name]).fit(NODES[::2], Y[::2])
    assert torch.equal(torch.get_rng_state(), state)
    assert_array_equal(again.predict_proba(NODES), expected)
    for parameter in {"estimator__random_state", "random_state"} & {
        *again.get_params()
    }:
        again.set_params(**{parameter: 1})
    if name != "gkde":
        other = again.fit(NODES[::2], Y[::2]).predict_proba(NODES)
        assert np.abs(other - expected).max() > 1e-3


@each_classifier
def test_nodes_do_not_depend_on_the_other_nodes_of_the_call(name):
    clf = _fitted(name)
    expected = clf.predict_proba(NODES)
    for samples in ([7], [7, 3, 7], slice(5, 9), np.arange(90) % 3 == 0):
        assert_array_equal(clf.predict_proba(NODES[samples]), expected[samples])


@each_classifier
def test_pickles_are_equal_and_hold_no_graph(name):
    clf = clone(_fitted(name)).fit(NODES[::2], Y[::2])
    wide = NodeSet((np.zeros((50_000, 3)), sparse.csr_array((50_000, 50_000))))
    if name != "gkde":  # it predicts nodes of its own graph
        clf.predict(wide)
    data = pickle.dumps(clf)
    assert len(data) < 45_000  # the features of `wide` have 1.2 MB
    loaded = pickle.loads(data)
    assert set(vars(loaded)) == set(vars(clf))
    expected = clf.predict_proba(NODES)
    assert_array_equal(loaded.predict_proba(NODES), expected)
    if hasattr(clf, "module_"):
        assert not loaded.module_.training
        with torch.no_grad():  # nothing is shared
            next(loaded.module_.parameters()).add_(1.0)
        assert_array_equal(clf.predict_proba(NODES), expected)


@each_classifier
def test_failed_fit_keeps_the_state(name):
    clf = clone(_fitted(name)).fit(NODES[::2], Y[::2])
    before = vars(clf).copy()
    for samples, labels, options, message in (
        (NODES[:3], Y, {}, "inconsistent numbers of samples"),
        (NODES, None, {}, "requires y to be passed"),
        (NODES[[]], [], {}, "Found a NodeSet with 0 nodes of 90 while a minimum of 1"),
        (NODES, Y, {"sample_weight": -np.ones(90)}, "Negative values in data passed"),
        (NODES[::3], Y[::3], {}, "at least two classes|got 1 class"),
    ):
        if name == "gkde" and "class" in message:
            continue  # it estimates a single class, too
        if name == "probe" and options:
            continue  # it takes no weights
        with pytest.raises(ValueError, match=message):
            clf.fit(samples, labels, **options)
    assert vars(clf) == before


@each_classifier
def test_wrong_input_of_predictions(name):
    clf = _fitted(name)
    for method in ("_proba", "_alpha", "_evidence", "_uncertainty", ""):
        method = "predict" + method
        if hasattr(clf, method):
            with pytest.raises(NotFittedError, match="not fitted yet"):
                getattr(clone(clf), method)(NODES)
            with pytest.raises(ValueError, match="0 nodes of 90 while a minimum of 1"):
                getattr(clf, method)(NODES[[]])
    with pytest.raises(ValueError, match="X has 2 features, but "):
        clf.predict(NODES.with_features(np.zeros((90, 2))))


def _doubled(nodes):
    return nodes.with_features(2 * nodes.graph.X)


@pytest.mark.parametrize(
    "name", ["gcn", "posterior", "gkde", "regularized", "evidential", "probe"]
)
def test_pipelines_and_splits(name):
    clf = clone(CLASSIFIERS[name])
    pipeline = make_pipeline(FunctionTransformer(_doubled), clf)
    pipeline.fit(NODES[::2], Y[::2])
    doubled = _doubled(NODES)
    expected = clone(clf).fit(doubled[::2], Y[::2]).predict_proba(doubled[1::2])
    assert_array_equal(pipeline.predict_proba(NODES[1::2]), expected)
    assert cross_val_score(clf, NODES, Y, cv=2).mean() > 0.6
    names = np.array(["a", "b", "c"])[Y]
    assert set(cross_val_predict(pipeline, NODES, names, cv=2)) <= set("abc")
    if hasattr(clf, "predict_uncertainty"):
        detector = UncertaintyDetector(clf).fit(NODES, Y)
        uncertainty = detector.estimator_.predict_uncertainty(NODES)
        assert_array_equal(detector.score_samples(NODES), -uncertainty.epistemic)


# --- modes of torch ------------------------------------------------------------------


@contextmanager
def _float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@each_classifier
@pytest.mark.parametrize(
    "mode",
    [torch.inference_mode, pytest.param(torch.no_grad, marks=pytest.mark.slow)],
)
def test_trained_where_gradients_are_off(name, mode):
    expected = _fitted(name).predict_proba(NODES)
    nodes, y = _blocks()  # tensors of the graph are made in this mode
    with mode():
        fitted = clone(CLASSIFIERS[name]).fit(nodes[::2], y[::2])
        assert not torch.is_grad_enabled()
        assert_array_equal(fitted.predict_proba(nodes), expected)
        loaded = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(loaded.predict_proba(nodes), expected)
    fitted.fit(nodes[::2], y[::2])  # with what was stored of the graph
    assert_array_equal(fitted.predict_proba(nodes), expected)


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name != "gkde"])
def test_trained_in_double_precision(name):
    """Networks of torch's default kind of number, also after loading them elsewhere."""
    with _float64():
        takes_valid = name != "evidential"
        valid = {"X_val": NODES[1::2], "y_val": Y[1::2]} if takes_valid else {}
        fitted = clone(CLASSIFIERS[name]).fit(NODES[::2], Y[::2], **valid)
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

    clf = clone(QUICK).set_params(conv=conv, conv_params=None).fit(NODES, Y)
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


DETECTORS = {
    "Energy": Energy,
    "Gram": lambda gnn: Gram(gnn, random_state=0),
    "Propagation": lambda gnn: Propagation(Energy(gnn)),
    "MCDropout": MCDropout,
    "FeatureExtractor": FeatureExtractor,
}


@pytest.mark.parametrize("name", [*CLASSIFIERS, *DETECTORS])
def test_no_graph_is_stored(name):
    """It goes with the last of its sets, at once."""
    if name in DETECTORS:
        estimator = DETECTORS[name](FrozenEstimator(_fitted("gcn")))
    else:
        estimator = clone(CLASSIFIERS[name])
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
    clf = clone(QUICK).fit(X[:90], Y)
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
    """By naive sums over training nodes, of any fraction of the classes in X_val."""
    train = np.r_[np.flatnonzero(Y == 0)[:20], np.flatnonzero(Y > 0)[:13]]
    valid = np.r_[np.flatnonzero(Y == 0)[20:22], np.flatnonzero(Y == 1)[13:]]
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=len(train))
    weight[3] = 0.0
    clf = clone(QUICK).set_params(class_weight="balanced")
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

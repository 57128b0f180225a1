"""Classifiers of nodes: training, prediction, scikit-learn's tools, errors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch import nn

from skood.datasets import make_ood_graph
from skood.exceptions import SkoodWarning
from skood.graph import GraphClassifier, NodeSet, _node_set
from skood.graph import _base_node_classifier as _base
from skood.graph._modules import GCN
from skood.graph._tensors import GraphTensors
from skood.nn import TrainingOptions
from tests.graph._flat import flat_params

pytest.importorskip("torch_geometric")

RUN = {"max_epochs": 40, "random_state": 0}
QUICK = {"conv_params": {"hidden": (16,)}, **RUN}
FIXED = TrainingOptions(early_stopping=False)
CONVS = pytest.mark.parametrize("conv", ["gcn", "gat", "sage", "appnp"])


def _blocks(n_nodes=120, *, seed=0, **kwargs):
    """A generated graph of three classes, and labels of its nodes."""
    nodes = make_ood_graph(
        n_nodes, n_classes=3, n_features=8, random_state=seed, **kwargs
    )
    return nodes, nodes.labels


NODES, Y = _blocks()
TRAIN, TEST = np.arange(0, 120, 2), np.arange(1, 120, 2)


def _fitted(conv="gcn", **kwargs):
    if isinstance(kwargs.get("conv", conv), str):
        kwargs = {"hidden": (16,), **kwargs}
    clf = GraphClassifier(conv, **RUN)
    clf.set_params(**flat_params(GraphClassifier, **kwargs))
    return clf.fit(NODES[TRAIN], Y[TRAIN])


def _pickled(clf):
    return pickle.loads(pickle.dumps(clf))


def _assert_same(clf, other, X=NODES, Z=None, *, rtol=0.0, atol=0.0):
    """Check that two classifiers have equal logits, of X or of Z."""
    expected = other.predict_logits(X if Z is None else Z)
    assert_allclose(clf.predict_logits(X), expected, rtol=rtol, atol=atol)


class Sums(nn.Module):
    """A network of a user: sums over in-neighbors and the node, twice."""

    def __init__(self, n_features, n_classes, width=16):
        super().__init__()
        self.first = nn.Linear(n_features, width)
        self.second = nn.Linear(width, n_classes)

    def forward(self, x, edge_index):
        source, target = edge_index
        h = torch.relu(self.first(x.index_add(0, target, x[source])))
        return self.second(h.index_add(0, target, h[source]))


class WeightedSums(Sums):
    """The same, with weights."""

    def forward(self, x, edge_index, edge_weight=None):
        if edge_weight is None:
            return super().forward(x, edge_index)
        (source, target), w = edge_index, edge_weight[:, None]
        h = torch.relu(self.first(x.index_add(0, target, w * x[source])))
        return self.second(h.index_add(0, target, w * h[source]))


# --- what it learns ----------------------------------------------------------------


@CONVS
def test_neighbors_help(conv):
    """Features alone say little; edges are within classes."""
    nodes, y = _blocks(300, feature_signal=1.5, average_degree=8.0, homophily=0.9)
    train, test = np.arange(0, 300, 3), np.arange(1, 300, 3)
    clf = GraphClassifier(conv, **QUICK)
    alone = NodeSet((nodes.features, sparse.csr_array((300, 300))))
    score = clf.fit(nodes[train], y[train]).score(nodes[test], y[test])
    without = clf.fit(alone[train], y[train]).score(alone[test], y[test])
    assert score > 0.85
    assert score > without + 0.1


@CONVS
def test_logits_are_those_of_the_module(conv):
    clf = _fitted(conv)
    with torch.no_grad():
        outputs = clf.module_(GraphTensors(NODES.graph, torch.device("cpu")))
    logits = clf.predict_logits(NODES[TEST])
    assert logits.dtype == np.float64
    assert_array_equal(logits, outputs.double().numpy()[TEST])
    assert_array_equal(clf._outputs(NODES[TEST]), logits)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert_allclose(clf.predict_proba(NODES[TEST]), p)
    assert_array_equal(clf.predict(NODES[TEST]), p.argmax(axis=1))
    assert not clf.module_.training


def test_what_a_fit_leaves():
    clf = _fitted(n_iter_no_change=5, max_epochs=200)
    assert clf.n_features_in_ == 8
    assert clf.n_iter_ == len(clf.history_) < 200
    assert [row["epoch"] for row in clf.history_] == list(range(1, clf.n_iter_ + 1))
    assert set(clf.history_[0]) == {"epoch", "train_loss", "valid_loss"}
    best = np.argmin([row["valid_loss"] for row in clf.history_])
    assert clf.n_iter_ == best + 1 + 5
    assert not hasattr(clf, "feature_names_in_")
    assert_array_equal(clf.classes_, [0, 1, 2])
    fixed = _fitted(early_stopping=False)
    assert fixed.n_iter_ == 40
    assert "valid_loss" not in fixed.history_[0]


def test_only_labels_of_the_view_are_seen():
    """Labels that the graph knows, and those of other nodes, change nothing."""
    clf, rolled = _fitted(), NodeSet(NODES, labels=np.roll(Y, 1))
    other = GraphClassifier(**QUICK).fit(rolled[TRAIN], Y[TRAIN])
    _assert_same(clf, other)


def test_two_classes_have_a_margin():
    two = TRAIN[Y[TRAIN] < 2]
    clf = GraphClassifier(**QUICK).fit(NODES[two], Y[two])
    logits = clf.predict_logits(NODES)
    assert logits.shape == (120, 2)
    assert_array_equal(clf.decision_function(NODES), logits[:, 1] - logits[:, 0])


@CONVS
def test_inductive(conv):
    """It predicts nodes of another graph, with more nodes and other edges."""
    nodes, y = _blocks(200, feature_signal=3.0)
    train = np.arange(0, 200, 2)
    clf = GraphClassifier(conv, **QUICK).fit(nodes[train], y[train])
    X, A = nodes.graph.X, nodes.adjacency.toarray()
    twice = NodeSet((np.vstack([X, X]), np.kron(np.eye(2), A)))
    expected = clf.predict_logits(nodes)
    assert_allclose(
        clf.predict_logits(twice), np.vstack([expected] * 2), rtol=1e-4, atol=1e-5
    )
    order = np.random.default_rng(0).permutation(200)
    shuffled = NodeSet((X[order], A[np.ix_(order, order)]))
    assert_allclose(clf.predict_logits(shuffled), expected[order], rtol=1e-4, atol=1e-5)


# --- nodes and rows ----------------------------------------------------------------


@CONVS
def test_arrays_are_nodes_without_edges(conv):
    X = NODES.features.astype(np.float64)
    alone = NodeSet((X, np.zeros((120, 120))))
    clf = GraphClassifier(conv, **QUICK).fit(X[TRAIN], Y[TRAIN])
    train = NodeSet((X[TRAIN], np.zeros((60, 60))))
    other = GraphClassifier(conv, **QUICK).fit(train, Y[TRAIN])
    expected = clf.predict_logits(X)
    assert_array_equal(expected, other.predict_logits(alone))
    for samples in ([7], [7, 3], slice(50, 90)):
        assert_array_equal(clf.predict_logits(X[samples]), expected[samples])
        assert_array_equal(clf._outputs(X[samples]), expected[samples])


def test_long_arrays_are_run_in_blocks(monkeypatch):
    X = NODES.features
    clf = GraphClassifier(**QUICK).fit(X, Y)
    expected = clf.predict_logits(X)
    monkeypatch.setattr(_node_set, "_MAX_SAMPLES", 50)
    assert_array_equal(clf.predict_logits(X), expected)
    assert_array_equal(clf._outputs(X), expected)


def test_sparse_features():
    nodes, y = _blocks(features="words", feature_signal=3.0)
    assert sparse.issparse(nodes.graph.X)
    dense = nodes.with_features(nodes.graph.X.toarray())
    params = {"hidden": (16,), "dropout": 0.0}
    clf, other = (
        GraphClassifier(conv_params=params, **RUN).fit(X[TRAIN], y[TRAIN])
        for X in (nodes, dense)
    )
    _assert_same(clf, other, nodes, dense, rtol=1e-2, atol=1e-3)
    _assert_same(clf, clf, nodes, dense, rtol=1e-4, atol=1e-5)


def test_a_node_twice_weighs_twice():
    r = np.r_[TRAIN[:5], TRAIN]
    weight = np.r_[np.full(5, 2.0), np.ones(55)]
    settings = {**QUICK, "training": FIXED, "max_epochs": 10}
    twice = GraphClassifier(**settings).fit(NODES[r], Y[r])
    clf = GraphClassifier(**settings).fit(NODES[TRAIN], Y[TRAIN], weight)
    _assert_same(clf, twice, rtol=1e-3, atol=1e-4)


# --- validation --------------------------------------------------------------------


def _loss(clf, nodes, y, weight):
    p = clf.predict_proba(nodes)[np.arange(len(y)), np.searchsorted(clf.classes_, y)]
    return float(np.average(-np.log(p), weights=weight))


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1, 1: 5, 2: 2}])
@pytest.mark.parametrize("same_graph", [True, False])
def test_validation_nodes_of_the_user(same_graph, class_weight):
    nodes, y = (NODES, Y) if same_graph else _blocks(90, seed=3)
    valid = np.flatnonzero(np.arange(len(y)) % 4 == 1)[:-3]
    clf = GraphClassifier(**QUICK, class_weight=class_weight, training=FIXED)
    clf.fit(NODES[TRAIN], Y[TRAIN], X_val=nodes[valid], y_val=y[valid])
    if class_weight == "balanced":  # as in training, whatever classes are valid here
        weight = 1 / np.bincount(Y[TRAIN])[y[valid]]
    elif class_weight is None:
        weight = np.ones(len(valid))
    else:
        weight = np.array([1, 5, 2])[y[valid]]
    best = min(row["valid_loss"] for row in clf.history_)
    assert _loss(clf, nodes[valid], y[valid], weight) == pytest.approx(best, rel=1e-5)


def test_validation_samples_of_the_user():
    X = NODES.features
    clf = GraphClassifier(**QUICK)
    clf.fit(X[TRAIN], Y[TRAIN], X_val=X[TEST], y_val=Y[TEST])
    best = min(row["valid_loss"] for row in clf.history_)
    assert _loss(clf, X[TEST], Y[TEST], None) == pytest.approx(best, rel=1e-5)


def test_held_out_nodes_are_of_all_classes(monkeypatch):
    result = {}

    def keep(self, module, train, valid, **options):
        result.update(train=train, valid=valid)
        return [{"train_loss": 1.0}]

    monkeypatch.setattr(GraphClassifier, "_run_epochs", keep)
    r = np.r_[np.flatnonzero(Y == 0), np.flatnonzero(Y == 1)[:20]]
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=len(r))
    weight[3] = 0.0
    clf = GraphClassifier(
        random_state=0, training=TrainingOptions(validation_fraction=0.25)
    )
    clf.fit(NODES[r], Y[r], sample_weight=weight)
    train, valid = result["train"], result["valid"]
    assert np.bincount(valid.codes).tolist() in ([10, 5], [9, 5], [10, 4])
    together = np.r_[train.nodes, valid.nodes]
    assert sorted(together) == sorted(np.delete(r, 3))
    for component in (train, valid):
        original = weight[[list(r).index(node) for node in component.nodes]]
        assert_allclose(component.weight, original / original.mean(), rtol=1e-12)


def test_class_weight_of_training():
    counts = np.bincount(Y[TRAIN])
    settings = {**QUICK, "training": FIXED, "conv_params": {"dropout": 0.0}}
    balanced = GraphClassifier(**settings, class_weight="balanced")
    balanced.fit(NODES[TRAIN], Y[TRAIN])
    by_hand = GraphClassifier(**settings).fit(
        NODES[TRAIN], Y[TRAIN], 1 / counts[Y[TRAIN]]
    )
    _assert_same(balanced, by_hand, rtol=1e-4)


# --- seeds and state ---------------------------------------------------------------


def _interrupt(outputs, codes):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "params, error",
    [
        ({"lr": 1e25}, ValueError),
        ({"criterion": _interrupt}, KeyboardInterrupt),
        ({"conv_params": {"hidden": (0,)}}, ValueError),
    ],
)
def test_a_failed_fit_keeps_the_state(params, error):
    clf = _fitted()
    before, logits = dict(vars(clf)), clf.predict_logits(NODES)
    clf.set_params(**params)
    with pytest.raises(error):
        clf.fit(NODES[TEST], Y[TEST])
    assert vars(clf) == {**before, **params}
    assert_array_equal(clf.predict_logits(NODES), logits)


def test_refit_forgets_validation():
    clf = _fitted()
    clf.set_params(training=FIXED).fit(NODES.features[TRAIN, :5], Y[TRAIN])
    assert clf.n_features_in_ == 5
    assert "valid_loss" not in clf.history_[0]


def test_a_module_of_a_user_is_rebuilt():
    clf = _fitted(Sums, conv_params={"width": 5}, max_epochs=3)
    clf.conv_params["width"] = 7  # what it was built of is kept apart
    loaded = _pickled(clf)
    assert loaded.module_.module.first.out_features == 5
    _assert_same(loaded, clf)


# --- scikit-learn's tools ----------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_grid_search(n_jobs):
    grid = {
        "conv": ["gcn", "gat"],
        "conv_params": [{"hidden": (16,)}, {"hidden": (16, 8)}],
        "lr": [1e-4, 1e-2],
    }
    settings = {**QUICK, "training": FIXED, "max_epochs": 10}
    search = GridSearchCV(GraphClassifier(**settings), grid, cv=2, n_jobs=n_jobs)
    search.fit(NODES, Y)
    assert search.best_params_["lr"] == 1e-2
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    expected = clone(search.best_estimator_).fit(NODES, Y).predict_logits(NODES)
    assert_array_equal(search.best_estimator_.predict_logits(NODES), expected)


def test_progress(capsys):
    _fitted(max_epochs=3, verbose=1)
    assert "GraphClassifier" in capsys.readouterr().err


# --- networks of users -------------------------------------------------------------


def test_module_of_a_user():
    clf = _fitted(Sums, conv_params={"width": 9})
    assert isinstance(clf.module_.module, Sums)
    assert clf.module_.module.first.out_features == 9
    with torch.no_grad():
        X = torch.tensor(NODES.graph.X)
        edges = torch.tensor(np.stack(NODES.adjacency.nonzero()))
        outputs = clf.module_.module(X, edges)
    assert_allclose(clf.predict_logits(NODES), outputs.numpy(), rtol=1e-4, atol=1e-4)
    assert clf.score(NODES[TEST], Y[TEST]) > 0.6


def _geometric(n_features, n_classes):
    from torch_geometric.nn.models import GCN as GCNModel

    return GCNModel(n_features, 16, 2, n_classes)


def test_model_of_torch_geometric():
    A = NODES.adjacency * 3.0
    weighted = NodeSet((NODES.graph.X, A))
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkoodWarning)
        clf = GraphClassifier(_geometric, **RUN).fit(weighted[TRAIN], Y[TRAIN])
    assert clf.score(weighted[TEST], Y[TEST]) > 0.6
    # loops of one weigh less next to edges of three
    assert np.abs(clf.predict_logits(weighted) - clf.predict_logits(NODES)).max() > 0.01


def test_weights_that_are_not_used():
    weighted = NodeSet((NODES.graph.X, NODES.adjacency * 3.0))
    settings = {**RUN, "max_epochs": 2}
    for conv in ("gat", Sums):
        name = "GAT" if conv == "gat" else "Sums"
        with pytest.warns(SkoodWarning, match=f"have weights, and {name} does not use"):
            GraphClassifier(conv, **settings).fit(weighted[TRAIN], Y[TRAIN])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "`torch.jit.script`")
        for conv in ("gcn", "sage", "appnp", WeightedSums):
            GraphClassifier(conv, **settings).fit(weighted[TRAIN], Y[TRAIN])
        GraphClassifier("gat", **settings).fit(NODES[TRAIN], Y[TRAIN])


@pytest.mark.parametrize(
    "method", ["predict", "predict_proba", "decision_function", "predict_logits"]
)
def test_weights_that_are_not_used_in_predictions(method):
    weighted = NodeSet((NODES.graph.X, NODES.adjacency * 3.0))
    clf = _fitted("gat", max_epochs=2)
    with pytest.warns(SkoodWarning, match="have weights, and GAT does not") as caught:
        result = getattr(clf, method)(weighted)
    assert [item.filename for item in caught] == [__file__]  # once, and here
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_array_equal(getattr(clf, method)(NODES), result)
        getattr(clf, method)(NODES.graph.X)
        getattr(_fitted("gcn", max_epochs=2), method)(weighted)


def test_weights_are_used():
    rng = np.random.default_rng(0)
    A = NODES.adjacency.copy()
    A.data = rng.uniform(0.1, 5.0, size=len(A.data)).astype(np.float32)
    weighted = NodeSet((NODES.graph.X, A))
    for conv in ("gcn", "sage", "appnp", WeightedSums):
        clf = _fitted(conv, max_epochs=5)
        difference = clf.predict_logits(weighted) - clf.predict_logits(NODES)
        assert np.abs(difference).max() > 1e-3


def test_other_losses():
    def squared(outputs, codes):
        truth = nn.functional.one_hot(codes, 3)
        return (outputs - truth).square().sum(dim=1)

    clf = _fitted(criterion=squared, max_epochs=300, dropout=0.0, early_stopping=False)
    outputs = clf.predict_logits(NODES[TRAIN])
    mean = ((outputs - np.eye(3)[Y[TRAIN]]) ** 2).sum(axis=1).mean()
    assert clf.history_[-1]["train_loss"] == pytest.approx(mean, rel=0.1)
    smooth = nn.CrossEntropyLoss(label_smoothing=0.2, reduction="none")
    assert _fitted(criterion=smooth).predict_proba(NODES).max() < 0.99


def test_criterion_with_parameters_is_left_alone():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, outputs, codes):
            return (self.scale * outputs).square().sum(dim=1)

    criterion = Scaled()
    _fitted(criterion=criterion, max_epochs=3)
    assert criterion.scale.grad is None
    assert criterion.scale.requires_grad
    assert torch.equal(criterion.scale, torch.ones(3))


def test_a_factory_without_a_signature(monkeypatch):
    """As of some that are written in C."""

    def refuse(factory):
        raise ValueError("no signature found")

    fake = SimpleNamespace(signature=refuse)
    monkeypatch.setattr("skood.graph._classifier.inspect", fake)
    clf = _fitted("appnp", conv_params={"n_steps": 3}, max_epochs=1)
    assert clf.module_.n_steps == 3


# --- sampled neighborhoods --------------------------------------------------------


@pytest.mark.parametrize("conv", ["gcn", "sage"])
def test_samples_learn_as_much_as_the_whole_graph(conv):
    nodes, y = _blocks(600, feature_signal=1.5, average_degree=12.0, homophily=0.9)
    train, test = np.arange(0, 600, 3), np.arange(1, 600, 3)
    clf = GraphClassifier(conv, **{**QUICK, "max_epochs": 25, "training": FIXED})
    whole = clf.fit(nodes[train], y[train]).score(nodes[test], y[test])
    clf.set_params(batch_size=32, n_neighbors=4, max_epochs=6)
    sampled = clf.fit(nodes[train], y[train]).score(nodes[test], y[test])
    assert whole > 0.9
    assert sampled > whole - 0.04


def _batch_size_of(clf, monkeypatch, limit):
    results = []

    def keep(module, train, valid, *, batch_size, **kwargs):
        results.append(batch_size)
        return [{"train_loss": 1.0}]

    monkeypatch.setattr(_base, "_MAX_EPOCH_BYTES", limit)
    monkeypatch.setattr(_base, "train_nodes", keep)
    clf.fit(NODES[TRAIN], Y[TRAIN])
    return results[0]


def test_large_graphs_are_sampled(monkeypatch):
    # 4 bytes, four times, for each of 16 + 3 outputs of a layer, of 120 nodes
    needed = 16 * 19 * 120
    clf = GraphClassifier(**QUICK)
    assert _batch_size_of(clf, monkeypatch, needed) is None
    assert _batch_size_of(clf, monkeypatch, needed - 1) == 1024
    clf.set_params(batch_size=7)
    assert _batch_size_of(clf, monkeypatch, needed - 1) == 7
    assert _batch_size_of(clf, monkeypatch, needed) == 7


def test_networks_that_copy_edges_are_sampled_sooner(monkeypatch):
    n_edges = NODES.adjacency.nnz
    needed = 16 * 19 * (120 + n_edges)
    for conv in ("gat", Sums):
        clf = GraphClassifier(conv, **(RUN if conv is Sums else QUICK))
        assert _batch_size_of(clf, monkeypatch, needed) is None
        assert _batch_size_of(clf, monkeypatch, needed - 1) == 1024


# --- errors ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params, error, message",
    [
        ({"hidden": (16, 0)}, ValueError, r"hidden must hold widths of at least 1, g"),
        ({"hidden": (1.5,)}, ValueError, r"widths of at least 1, got \(1.5,\)"),
        ({"hidden": 16}, ValueError, r"widths of at least 1, got 16"),
        ({"dropout": 1.0}, ValueError, r"dropout must be in the range \[0, 1\), got 1"),
        ({"conv": "gin"}, ValueError, r"The 'conv' parameter of GraphClassifier"),
        ({"conv": "gat", "hidden": (12,)}, ValueError, r"a multiple of heads=8"),
        (
            {"conv": "gcn", "conv_params": {"heads": 2}},
            TypeError,
            r"conv='gcn' cannot be built with conv_params=\{.*\}: .*hold: hidden, drop",
        ),
        (
            {"conv": "appnp", "conv_params": {"foo": 1}},
            TypeError,
            r"unexpected keyword argument 'foo'. .* hold: hidden, dropout, n_steps, t",
        ),
        (
            {"conv": Sums, "conv_params": {"foo": 1}},
            TypeError,
            r"Sums.* cannot be built with conv_params=\{'foo': 1\}: .* hold: width\.",
        ),
        (
            {"conv": lambda: Sums(8, 3)},
            TypeError,
            r"too many positional arguments. It is called as conv\(n_features, n_class",
        ),
        (
            {"conv": Sums(8, 3)},
            TypeError,
            r"conv is a module, a Sums, but each fit trains a new one: pass the class "
            r"or a factory, or wrap a trained module by skood.graph.pretrained_graph",
        ),
        (
            {"conv": nn.Linear},
            TypeError,
            r"called as module\(x, edge_index\), .* and Linear has forward\(input",
        ),
        (
            {"conv": lambda n_features, n_classes: None},
            TypeError,
            r"conv must make a torch.nn.Module, got NoneType",
        ),
        (
            {"conv": lambda n_features, n_classes: Sums(n_features, 5)},
            ValueError,
            r"The network has 5 outputs, but y has 3 classes: \[0, 1, 2\]. conv is",
        ),
        (
            {"criterion": nn.CrossEntropyLoss()},
            ValueError,
            r"must return a tensor with a loss for each sample: of shape \(54,\)",
        ),
        ({"validation_fraction": 1e-9}, ValueError, "leaves none but one training"),
        ({"device": "abacus"}, ValueError, "Unknown device 'abacus'"),
    ],
)
def test_parameters(params, error, message):
    with pytest.raises(error, match=message):
        _fitted(**params)


def test_cached_layers_are_refused():
    from torch_geometric.nn.models import GCN as GCNModel

    def cached(n_features, n_classes):
        return GCNModel(n_features, 16, 2, n_classes, cached=True)

    with pytest.raises(ValueError, match="cached=True: it stores the first graph"):
        _fitted(cached)


def test_validation_labels_that_no_training_node_has():
    known = TRAIN[Y[TRAIN] < 2]
    message = r"the label 2, which no training node has: .* \[0, 1\]. Leav"
    with pytest.raises(ValueError, match=message):
        GraphClassifier().fit(NODES[known], Y[known], X_val=NODES, y_val=Y)


@pytest.mark.parametrize(
    "passed, message",
    [
        ({"X_val": NODES}, "Pass both of X_val and y_val, or neither"),
        ({"y_val": Y}, "Pass both of X_val and y_val, or neither"),
        ({"X_val": NODES, "y_val": Y[:5]}, "inconsistent numbers of samples"),
        ({"X_val": NODES.features[:, :3], "y_val": Y}, "X has 3 features, but Graph"),
        ({"X_val": NODES[[]], "y_val": []}, "Found a NodeSet with 0 nodes of 120"),
        ({"sample_weight": np.zeros(60)}, "All 60 sample weights are zero"),
        ({"sample_weight": (Y[TRAIN] == 1) * 1.0}, r"got 1 class: 1\."),
    ],
)
def test_data(passed, message):
    with pytest.raises(ValueError, match=message):
        GraphClassifier().fit(NODES[TRAIN], Y[TRAIN], **passed)


def test_single_class():
    with pytest.raises(ValueError, match=r"at least two classes .* got 1 class: 'a'\."):
        GraphClassifier().fit(NODES[:5], ["a"] * 5)


def test_features_that_are_too_large():
    clf = _fitted(max_epochs=1)
    with pytest.raises(ValueError, match="returned NaN or infinity for 120 of 120"):
        clf._outputs(np.full((120, 8), 1e300))
    with pytest.raises(ValueError, match="logits contain NaN or infinity"):
        clf.predict(np.full((120, 8), 1e300))
    with pytest.raises(ValueError, match="Training diverged: in epoch 1"):
        clf.fit(np.full((120, 8), 1e300), Y)


def test_default_is_the_gcn_of_the_paper():
    clf = GraphClassifier(max_epochs=1, random_state=0).fit(NODES, Y)
    assert type(clf.module_) is GCN
    shapes = [tuple(p.shape) for p in clf.module_.parameters()]
    assert sorted(shapes) == [(3,), (3, 64), (64,), (64, 8)]


@pytest.mark.parametrize("conv", ["gcn", "gat"])
def test_batch_normalization_of_a_classifier(conv):
    """Trained, with running moments that predictions use, and pickled with them."""
    params = {"hidden": (16, 8), "batch_norm": True}
    clf = GraphClassifier(conv, conv_params=params, **RUN)
    clf.fit(NODES[TRAIN], Y[TRAIN])
    assert clf.score(NODES[TEST], Y[TEST]) > 0.8
    first = clf.module_.norms[0]
    assert int(first.num_batches_tracked) == clf.n_iter_
    before = {name: t.clone() for name, t in clf.module_.state_dict().items()}
    proba = clf.predict_proba(NODES)
    loaded = pickle.loads(pickle.dumps(clf))
    assert_array_equal(loaded.predict_proba(NODES), proba)
    assert_array_equal(clf.predict_proba(NODES[3:4]), proba[3:4])
    for name, tensor in clf.module_.state_dict().items():
        assert torch.equal(tensor, before[name])

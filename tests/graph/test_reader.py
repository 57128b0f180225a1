"""Tests of how graph networks are read."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import threading
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from torch import nn

from skood.graph import GraphClassifier, NodeSet, pretrained_graph
from skood.graph._tensors import GraphTensors
from skood.nn import FeatureExtractor, split
from skood.nn._make_network import make_network
from tests.nn._outputs import read

pytest.importorskip("torch_geometric")

from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    SAGEConv,
    TransformerConv,
)
from torch_geometric.nn import Linear as GeometricLinear

from tests._loops import looped

N_CLASSES = 3
N_FEATURES = 5
ALL = {"features", "logits", "head"}


def _nodes(weighted=False, n_nodes=30, seed=0):
    """A directed graph, in which one node has no edge and one has a loop."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_nodes) % N_CLASSES
    X = rng.normal(size=(n_nodes, N_FEATURES)) + np.eye(N_CLASSES, N_FEATURES)[y]
    adjacency = (rng.random((n_nodes, n_nodes)) < 0.1).astype(np.float32)
    adjacency[4] = adjacency[:, 4] = 0
    adjacency[7, 7] = 1
    if weighted:
        adjacency *= rng.random(adjacency.shape).astype(np.float32)
    return NodeSet((X, adjacency), labels=y)


NODES = _nodes()


class Two(nn.Module):
    """A hidden GCNConv, then the layer under test."""

    def __init__(self, last, closing=None, width=8):
        super().__init__()
        self.first = GCNConv(N_FEATURES, width)
        self.last = last
        self.closing = closing or nn.Identity()

    def forward(self, x, edge_index):
        """Logits of all nodes."""
        h = torch.tanh(self.first(x, edge_index))
        if isinstance(self.last, (nn.Linear, GeometricLinear)):
            return self.closing(self.last(h))
        return self.closing(self.last(h, edge_index))


class Weighted(nn.Module):
    """One convolution that is given the weights of edges."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    def forward(self, x, edge_index, edge_weight=None):
        """Logits of all nodes."""
        return self.last(x, edge_index, edge_weight)


def _wrapped(make, seed=0, **options):
    """A network in float64, made from a seed, with random biases."""
    torch.manual_seed(seed)
    module = make().double()
    for name, parameter in module.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return pretrained_graph(module, ["a", "b", "c"], **options)


def _assert_head(clf, nodes, width):
    """Logits are the head of the features, on a graph and on an array."""
    for X in (nodes, nodes.features):
        outputs = read(clf, X, ALL)
        assert outputs.features.shape == (len(nodes), width)
        result = outputs.features @ outputs.head.coef.T + outputs.head.intercept
        assert_allclose(result, outputs.logits, rtol=1e-10, atol=1e-12)


def _assert_no_head(clf, **options):
    with pytest.raises(ValueError, match="needs the weights of a linear head"):
        read(clf, NODES, ALL, **options)


def _assert_split(clf, **options):
    body, head = split(clf, **options)
    logits = head.predict_logits(body.transform(NODES))
    assert_allclose(logits, clf.predict_logits(NODES))


def _logits(clf, nodes):
    """What the module gives, by hand."""
    module = copy.deepcopy(clf.estimator.module).eval()
    edges = nodes.adjacency.tocoo()
    edge_index = torch.tensor(np.stack([edges.row, edges.col]).astype(np.int64))
    kwargs = {}
    if isinstance(module, Weighted) and (edges.data != 1).any():
        kwargs["edge_weight"] = torch.tensor(edges.data).double()
    with torch.no_grad():
        return module(torch.tensor(nodes.graph.X), edge_index, **kwargs).numpy()


# ---- built-in networks


def _trained(conv="gcn", hidden=(8,), nodes=None):
    """A built-in network after two epochs."""
    params = {"conv_params": {"hidden": hidden}} if isinstance(conv, str) else {}
    nodes = NODES if nodes is None else nodes
    clf = GraphClassifier(conv, **params, max_epochs=2, random_state=0)
    return clf.fit(nodes, nodes.labels)


@looped("hidden", [(), (16,), (16, 8)])
@pytest.mark.parametrize("conv", ["gcn", "gat", "sage", "appnp"])
def test_head_of_built_in_networks(conv, hidden):
    clf = _trained(conv, hidden)
    clf.module_.double()
    n_maps = 2 if conv == "sage" else 1
    _assert_head(clf, NODES, n_maps * [N_FEATURES, *hidden][-1])
    with torch.no_grad():
        tensors = GraphTensors(NODES.graph, torch.device("cpu"), torch.float64)
        expected = clf.module_(tensors).numpy()
    assert_array_equal(read(clf, NODES, {"logits"}).logits, expected)


@pytest.mark.parametrize("conv", ["gcn", "gat", "sage", "appnp"])
def test_split_of_built_in_networks(conv):
    nodes = _nodes(weighted=conv != "gat")
    clf = _trained(conv, nodes=nodes)
    body, head = split(clf)
    embeddings = body.transform(nodes)
    assert_array_equal(embeddings, read(clf, nodes, {"features"}).features)
    assert embeddings.shape[1] == len(body.get_feature_names_out())
    assert_allclose(
        head.predict_logits(embeddings), clf.predict_logits(nodes), atol=1e-6
    )
    assert head.classes_.tolist() == [0, 1, 2]


# ---- networks of the user


CONVOLUTIONS = {
    "gcn": (lambda: GCNConv(8, 3), 8),
    "gcn-no-bias": (lambda: GCNConv(8, 3, bias=False), 8),
    "gcn-sum": (lambda: GCNConv(8, 3, normalize=False), 8),
    "gcn-no-loops": (lambda: GCNConv(8, 3, add_self_loops=False), 8),
    "gcn-mean": (lambda: GCNConv(8, 3, aggr="mean"), 8),
    "gat": (lambda: GATConv(8, 3), 8),
    "gat-mean": (lambda: GATConv(8, 3, heads=3, concat=False), 24),
    "gat-concat": (lambda: GATConv(8, 1, heads=3), 24),
    "gat-no-loops": (lambda: GATConv(8, 3, add_self_loops=False, bias=False), 8),
    "gat-flow": (lambda: GATConv(8, 3, flow="target_to_source"), 8),
    "gat-pair": (lambda: GATConv((8, 8), 3), 8),
    "sage": (lambda: SAGEConv(8, 3), 16),
    "sage-max": (lambda: SAGEConv(8, 3, aggr="max"), 16),
    "sage-both": (lambda: SAGEConv(8, 3, aggr=["mean", "max"]), 24),
    "sage-no-root": (lambda: SAGEConv(8, 3, root_weight=False, bias=False), 8),
    "linear": (lambda: nn.Linear(8, 3), 8),
    "geometric-linear": (lambda: GeometricLinear(8, 3), 8),
}


@looped("closing", [None, nn.LogSoftmax(1), nn.Softmax(1)])
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_head_of_networks_of_torch_geometric(kind, closing):
    last, width = CONVOLUTIONS[kind]
    clf = _wrapped(lambda: Two(last(), closing))
    _assert_head(clf, NODES, width)
    clf.estimator.module.closing = nn.Identity()
    assert_allclose(clf.predict_logits(NODES), _logits(clf, NODES))


@pytest.mark.skipif(
    not hasattr(GATConv(2, 2), "res"), reason="GATConv(residual=) is newer"
)
@pytest.mark.parametrize("concat", [True, False])
def test_head_with_a_residual(concat):
    width = 1 if concat else 3
    clf = _wrapped(
        lambda: Two(GATConv(8, width, heads=3, concat=concat, residual=True))
    )
    _assert_head(clf, _nodes(), 32)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(
    ("make", "width"),
    [
        (lambda: GCNConv(N_FEATURES, 3), N_FEATURES),
        (lambda: GCNConv(N_FEATURES, 3, normalize=False), N_FEATURES),
        (lambda: GATConv(N_FEATURES, 3, edge_dim=1), N_FEATURES),
        (lambda: GATConv(N_FEATURES, 1, heads=3, edge_dim=1), 3 * N_FEATURES),
    ],
    ids=["gcn", "gcn-sum", "gat", "gat-concat"],
)
def test_head_with_edge_weights(make, width, weighted):
    nodes = _nodes(weighted)
    clf = _wrapped(lambda: Weighted(make()))
    _assert_head(clf, nodes, width)
    assert_allclose(clf.predict_logits(nodes), _logits(clf, nodes))


def test_features_of_a_gcn_are_its_aggregated_input():
    nodes = _nodes(weighted=True)
    clf = _wrapped(lambda: Weighted(GCNConv(N_FEATURES, 3)))
    expected = nodes.graph.operator("symmetric") @ nodes.graph.X
    features = read(clf, nodes, {"features"}).features
    assert_allclose(features, expected, rtol=1e-6)  # weights are float32


@looped("closing", [None, nn.LogSoftmax(1)])
@looped(
    "make",
    [
        lambda: GATv2Conv(8, 3),
        lambda: TransformerConv(8, 3),
        lambda: SAGEConv(8, 3, normalize=True),
        lambda: SAGEConv(8, 3, project=True),
        lambda: GCNConv(8, 3, aggr="max"),
        lambda: GATConv(8, 3, aggr="mean"),
    ],
)
def test_convolutions_that_are_not_linear(make, closing):
    clf = _wrapped(lambda: Two(make(), closing))
    outputs = read(clf, NODES, {"features", "logits"})
    expected = FeatureExtractor(clf, layer="input:last").fit(NODES).transform(NODES)
    assert_array_equal(outputs.features, expected)
    # the logits, not their log-softmax
    clf.estimator.module.closing = nn.Identity()
    assert_array_equal(outputs.logits, _logits(clf, NODES))
    for layer in ("penultimate", "input:last"):
        _assert_no_head(clf, layer=layer)
    with pytest.raises(ValueError, match=r"ones with an output per class are: none"):
        split(clf)


def test_a_gin_ends_in_the_linear_layer_of_its_perceptron():
    mlp = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    clf = _wrapped(lambda: Two(GINConv(mlp)))
    _assert_head(clf, _nodes(), 6)


def test_a_changed_output_has_no_head():
    class Scaled(Two):
        def forward(self, x, edge_index):
            return 2 * super().forward(x, edge_index)

    clf = _wrapped(lambda: Scaled(GCNConv(8, 3)))
    outputs = read(clf, NODES, {"features", "logits"})
    assert_allclose(outputs.logits, _logits(clf, NODES))
    # what the last layer is called with
    assert outputs.features.shape == (30, 8)
    _assert_no_head(clf)


def test_a_hook_of_the_user_that_changes_the_layer():
    """What it makes of the input is read; what it makes of the output is no head."""
    clf = _wrapped(lambda: Two(GCNConv(8, 3)))
    last = clf.estimator.module.last
    handle = last.register_forward_pre_hook(lambda layer, args: (3 * args[0], args[1]))
    _assert_head(clf, NODES, 8)
    handle.remove()
    last.register_forward_hook(lambda layer, args, output: output.square())
    _assert_no_head(clf)


def test_a_subclass_is_not_taken_for_what_it_was():
    pytest.importorskip("torch_geometric", minversion="2.6")  # older: no such subclass

    class Other(GCNConv):
        def forward(self, x, edge_index):
            return super().forward(x.square(), edge_index)

    class SAGEConv(nn.Module):  # passes messages, under a known name
        message = propagate = None

        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(8, 3)

        def forward(self, x, edge_index):
            return self.lin(x) ** 3

    for kind in (lambda: Other(8, 3), SAGEConv):
        clf = _wrapped(lambda kind=kind: Two(kind()))
        expected = FeatureExtractor(clf, layer="input:last").fit(NODES).transform(NODES)
        outputs = read(clf, NODES, {"features", "logits"})
        assert_array_equal(outputs.features, expected)
        assert_allclose(outputs.logits, _logits(clf, NODES))


class _Calls(nn.Module):
    """Calls its layer in another way."""

    def __init__(self, layer, call):
        super().__init__()
        self.layer = layer
        self.call = call

    def forward(self, x, edge_index):
        """Logits of all nodes."""
        return self.call(self.layer, x, edge_index)


@pytest.mark.parametrize("kind", [GCNConv, SAGEConv, GATConv, GATv2Conv])
def test_arguments_by_name(kind):
    clf = _wrapped(
        lambda: _Calls(
            kind(N_FEATURES, 3), lambda layer, x, e: layer(x=x, edge_index=e)
        )
    )
    if kind is not GATv2Conv:
        _assert_head(clf, NODES, N_FEATURES * (2 if kind is SAGEConv else 1))
    else:
        features = read(clf, NODES, {"features"}).features
        assert_array_equal(features, NODES.features)


@pytest.mark.parametrize("kind", [SAGEConv, GATConv])
def test_sources_and_targets_apart(kind):
    clf = _wrapped(
        lambda: _Calls(kind(N_FEATURES, 3), lambda layer, x, e: layer((-x, x), e))
    )
    outputs = read(clf, NODES, {"features", "logits"})
    assert_array_equal(outputs.features, NODES.features)
    assert_allclose(outputs.logits, _logits(clf, NODES))
    _assert_no_head(clf)


def test_a_convolution_that_returns_its_attention_too():
    clf = _wrapped(
        lambda: _Calls(
            GATConv(N_FEATURES, 3),
            lambda layer, x, e: layer(x, e, return_attention_weights=True),
        )
    )
    _assert_head(clf, _nodes(), N_FEATURES)


@pytest.mark.parametrize("kind", [GCNConv, SAGEConv, GATConv])
def test_torch_has_nothing_to_warn_of(kind):
    nodes, always = _nodes(), torch.is_warn_always_enabled()
    clf = _wrapped(lambda: Two(kind(8, N_CLASSES)))
    torch.set_warn_always(True)  # else a warning may have been given before
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert read(clf, nodes, ALL).features.shape[0] == len(nodes)
    finally:
        torch.set_warn_always(always)


@pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR")
@pytest.mark.parametrize("kind", [GCNConv, SAGEConv, GATConv])
def test_edges_as_a_sparse_tensor(kind):
    """SAGEConv and GCNConv are taken apart; of GATConv the input is read."""

    def call(layer, x, edges):
        ones = torch.ones(edges.shape[1], dtype=x.dtype)
        shape = (len(x), len(x))
        return layer(x, torch.sparse_coo_tensor(edges.flip(0), ones, shape).coalesce())

    options = {"add_self_loops": False} if kind is not SAGEConv else {}
    clf = _wrapped(lambda: _Calls(kind(N_FEATURES, 3, **options), call))
    if kind is GATConv:
        outputs = read(clf, NODES, {"features", "logits"})
        assert_array_equal(outputs.features, NODES.features)
        return
    _assert_head(clf, NODES, N_FEATURES * (2 if kind is SAGEConv else 1))


def test_layers_with_borrowed_weights():
    class Low(nn.Module):  # a map of low rank in place of the linear one
        def __init__(self):
            super().__init__()
            self.down, self.up = nn.Linear(8, 2), nn.Linear(2, 3)

        def forward(self, x):
            return self.up(self.down(x))

    for kind, name in ((GCNConv, "lin"), (GATConv, "lin"), (SAGEConv, "lin_r")):
        layer = kind(8, 3)
        setattr(layer, name, Low())
        clf = _wrapped(lambda layer=layer: Two(layer))
        outputs = read(clf, NODES, {"features", "logits"})
        assert outputs.features.shape == (30, 8)
        assert_allclose(outputs.logits, _logits(clf, NODES))


def test_network_that_is_a_single_convolution():
    for make in (lambda: GCNConv(N_FEATURES, 3), lambda: GATConv(N_FEATURES, 3)):
        _assert_head(_wrapped(make), NODES, N_FEATURES)


def test_batch_normalization_and_half_trained_modes():
    class Normalized(Two):
        def __init__(self):
            super().__init__(GCNConv(8, 3))
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x, edge_index):
            h = self.norm(self.first(x, edge_index))
            return self.last(torch.relu(h), edge_index)

    clf = _wrapped(Normalized)
    module = clf.estimator.module.train()
    module.norm.eval()
    _assert_head(clf, NODES, 8)
    assert [submodule.training for submodule in module.modules()].count(False) == 1
    assert module.norm.num_batches_tracked == 0


# ---- logits


def test_outputs_that_are_probabilities():
    class Bounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(N_FEATURES, 3)

        def forward(self, x, edge_index):
            powers = torch.softmax(self.conv(x, edge_index), 1).square()
            return powers / powers.sum(1, keepdim=True)

    clf = _wrapped(Bounded, output="probabilities")
    assert_allclose(clf.predict_proba(NODES), _logits(clf, NODES))


def test_wrong_number_of_logits():
    clf = pretrained_graph(Two(GCNConv(8, 4)), ["a", "b", "c"])
    with pytest.raises(ValueError, match="Two has 4 outputs, but classes names 3"):
        clf.predict(NODES)
    pooled = _Calls(
        GCNConv(N_FEATURES, 3), lambda layer, x, e: layer(x, e).mean(0)[None]
    )
    clf = pretrained_graph(pooled, ["a", "b", "c"])
    with pytest.raises(ValueError, match="gave 1 rows for a batch of 30"):
        clf.predict(NODES)
    nan = _Calls(GCNConv(N_FEATURES, 3), lambda layer, x, e: layer(x, e) * np.nan)
    clf = pretrained_graph(nan, ["a", "b", "c"])
    with pytest.raises(ValueError, match="logits contain NaN or infinity"):
        clf.predict(NODES)


# ---- other layers


def test_layers_by_name_and_number():
    clf = _wrapped(lambda: Two(GCNConv(8, 3)))
    module = clf.estimator.module
    edges = torch.tensor(np.stack(NODES.adjacency.nonzero()).astype(np.int64))
    with torch.no_grad():
        first = module.first(torch.tensor(NODES.graph.X), edges).numpy()
    for layer, expected in (
        ("first", first),
        ("input:first", NODES.features),
        ("input:last", np.tanh(first)),
        ("last", _logits(clf, NODES)),
        (0, first),
        (-1, _logits(clf, NODES)),
        (np.int64(-2), first),
    ):
        body = FeatureExtractor(clf, layer=layer).fit(NODES)
        assert_allclose(body.transform(NODES[3:9]), expected[3:9])
    with pytest.raises(ValueError, match=r"2 linear layers and convolutions: \['fir"):
        FeatureExtractor(clf, layer=2).fit(NODES)
    with pytest.raises(ValueError, match=r"no layer named 'third'\. It has: first,"):
        FeatureExtractor(clf, layer="third").fit(NODES)


def test_layers_of_built_in_networks():
    clf = _trained("gat", (16,))
    names = {0: "layers.0.map", 1: "head", -1: "head"}
    for number, name in names.items():
        result, expected = (
            read(clf, NODES, {"features"}, layer=layer).features
            for layer in (number, name)
        )
        assert_array_equal(result, expected)
    hidden = read(clf, NODES, {"features"}, layer="dropouts.1").features
    assert hidden.shape == (30, 16)


def test_layers_of_a_network_that_is_trained_have_the_names_of_the_user():
    def conv(n_features, n_classes):
        return Two(GCNConv(8, n_classes))

    clf = _trained(conv)
    outputs = read(clf, NODES, {"features"}, layer="input:last")
    number = read(clf, NODES, {"features"}, layer=0)
    assert_allclose(np.tanh(number.features), outputs.features, rtol=1e-6)


def test_maps_of_several_heads_are_pooled():
    class Heads(nn.Module):
        def forward(self, x):
            return x.reshape(len(x), 2, -1)

    class Net(Two):
        def __init__(self):
            super().__init__(GCNConv(8, 3))
            self.heads = Heads()

        def forward(self, x, edge_index):
            h = self.heads(self.first(x, edge_index)).flatten(1)
            return self.last(h, edge_index)

    clf = _wrapped(Net)
    flat = FeatureExtractor(clf, layer="first").fit(NODES).transform(NODES)
    for pooling, expected in (
        ("mean", flat.reshape(30, 2, 4).mean(1)),
        ("max", flat.reshape(30, 2, 4).max(1)),
        ("flatten", flat),
        (None, flat.reshape(30, 2, 4)),
    ):
        body = FeatureExtractor(clf, layer="heads", pooling=pooling).fit(NODES)
        assert_allclose(body.transform(NODES), expected)


def test_layers_with_something_else_than_nodes():
    class Pooled(Two):
        def forward(self, x, edge_index):
            self.closing(x.mean(0)[None])
            return self.last(self.first(x, edge_index), edge_index)

    class Idle(Two):
        def forward(self, x, edge_index):
            return self.last(self.first(x, edge_index), edge_index)

    with pytest.raises(ValueError, match="layer='closing' gave 1 rows for a batch of"):
        read(_wrapped(lambda: Pooled(GCNConv(8, 3))), NODES, ALL, layer="closing")
    with pytest.raises(ValueError, match="'closing' did not run in the forward pass"):
        read(_wrapped(lambda: Idle(GCNConv(8, 3))), NODES, ALL, layer="closing")


def test_a_network_without_layers_that_are_known():
    class Free(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(N_FEATURES, 3))

        def forward(self, x, edge_index):
            return x @ self.weight

    clf = _wrapped(Free)
    assert clf.predict_logits(NODES).shape == (30, 3)
    with pytest.raises(ValueError, match="none ran in this network"):
        read(clf, NODES, {"features"})

    class Blind(nn.Module):  # a convolution that is called without values of nodes
        message = propagate = None

        def forward(self, n_nodes):
            return torch.zeros(n_nodes, 3)

    class Several(Blind):  # one that returns something else than a tensor
        def forward(self, n_nodes):
            return {"zeros": torch.zeros(n_nodes, 3)}

    for layer, call in (
        (Blind(), lambda layer, x, e: layer(len(x))),
        (Several(), lambda layer, x, e: layer(len(x))["zeros"]),
    ):
        clf = _wrapped(lambda layer=layer, call=call: _Calls(layer, call))
        assert (clf.predict_logits(NODES) == 0).all()
        with pytest.raises(ValueError, match="none ran in this network"):
            read(clf, NODES, {"features"})


# ---- finding the head without nodes


def test_split_by_width():
    convs = GCNConv(8, 3), GATConv(8, 1, heads=3), SAGEConv(8, 3)
    for last in (*convs, nn.Linear(8, 3)):
        _assert_split(_wrapped(lambda last=last: Two(last)))


def test_split_of_a_network_with_several_layers_of_this_width():

    def make():
        return Two(GCNConv(3, 3), width=3)

    clf = _wrapped(make)
    with pytest.raises(ValueError, match=r"are: first, last\. If one of them does"):
        split(clf)
    clf = _wrapped(make, n_features=N_FEATURES)
    _assert_split(clf)
    clf = _wrapped(lambda: Two(GATv2Conv(8, 3)), n_features=N_FEATURES)
    with pytest.raises(ValueError, match="needs the weights of a linear head"):
        split(clf)


def test_split_at_the_input_of_a_layer():
    clf = _wrapped(lambda: Two(nn.Linear(8, 3)))
    _assert_split(clf, layer="input:last")
    clf = _wrapped(lambda: Two(GCNConv(8, 3)))
    with pytest.raises(ValueError, match="cannot be split at layer='input:last'"):
        split(clf, layer="input:last")
    # what a convolution is called with is not yet aggregated: it has no head
    with pytest.raises(ValueError, match="on the features of layer='input:last'"):
        read(clf, NODES, ALL, layer="input:last")


# ---- the module is left as it was found


def test_the_module_is_unchanged():
    torch.manual_seed(0)
    module = Two(GATConv(8, 3, dropout=0.5), nn.Dropout(0.5)).train()
    module.first.eval()
    clf = pretrained_graph(module, ["a", "b", "c"])

    def state():
        return {
            name: {
                "training": submodule.training,
                "hooks": (
                    len(submodule._forward_hooks),
                    len(submodule._forward_pre_hooks),
                ),
                "flags": (
                    dict(submodule._forward_hooks_with_kwargs),
                    dict(submodule._forward_pre_hooks_with_kwargs),
                ),
                "parameters": {k: id(p) for k, p in submodule._parameters.items()},
                "modules": {k: id(m) for k, m in submodule._modules.items()},
                "names": set(vars(submodule)),
            }
            for name, submodule in module.named_modules()
        }

    weights = copy.deepcopy(module.state_dict())
    before = state()
    first = read(clf, NODES, ALL)
    split(clf)
    again = read(clf, NODES, ALL)
    assert_array_equal(first.logits, again.logits)  # dropout is off
    assert state() == before
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    for name, weight in module.state_dict().items():
        assert torch.equal(weight, weights[name])


def test_failed_forward_pass_leaves_no_hooks():
    module = Two(GCNConv(8, 3)).double()
    clf = pretrained_graph(module, ["a", "b", "c"])
    with pytest.raises(RuntimeError):
        read(clf, NODES.features[:, :2], ALL)  # of the wrong width
    assert not any(submodule._forward_hooks for submodule in module.modules())


def test_threads_share_a_module():
    clf = _wrapped(lambda: Two(GATConv(8, 3)))
    expected = read(clf, NODES, ALL)
    result: list = []

    def work():
        for _ in range(10):
            result.append(read(clf, NODES, ALL))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(result) == 30
    for outputs in result:
        assert_array_equal(outputs.features, expected.features)


# ---- rows


def test_samples_of_a_view():
    """Of a subset, in any order and with repeats; of the other graph, its own."""
    nodes = _nodes(weighted=True)
    clf = _wrapped(lambda: Weighted(GCNConv(N_FEATURES, 3)))
    whole = read(clf, nodes, ALL)
    samples = np.array([7, 4, 4, 29, 0])
    outputs = read(clf, nodes[samples], ALL)
    assert_array_equal(outputs.features, whole.features[samples])
    assert_array_equal(outputs.logits, whole.logits[samples])
    reader = make_network(clf)
    assert list(reader.blocks(whole)) == [whole]
    other = _nodes(weighted=True, seed=1)
    assert not np.allclose(read(clf, other, ALL).logits, whole.logits)


def test_extractor_of_a_classifier_that_it_trains():
    clf = GraphClassifier(conv_params={"hidden": (4,)}, max_epochs=2, random_state=0)
    body = FeatureExtractor(clf)
    embeddings = body.fit_transform(NODES[:20], NODES.labels[:20])
    clf.fit(NODES[:20], NODES.labels[:20])
    frozen = FeatureExtractor(FrozenEstimator(clf)).fit(NODES)
    assert_array_equal(frozen.transform(NODES[:20]), embeddings)
    assert frozen.n_features_in_ == N_FEATURES

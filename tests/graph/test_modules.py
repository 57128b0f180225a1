"""Graph networks against torch_geometric and against loops."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from skood.exceptions import SkoodWarning
from skood.graph._modules import (
    APPNP,
    GAT,
    GCN,
    NETWORKS,
    SAGE,
    EdgeModule,
    FeatureDropout,
    FeatureLinear,
    warn_of_weights,
)
from skood.graph._node_set import NodeSet, as_nodes
from skood.graph._tensors import GraphTensors, SparseRows
from tests._loops import looped
from tests.graph._messy import messy_graph

pytest.importorskip("torch_geometric")

CPU = torch.device("cpu")
BOTH = looped("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-9)])
HIDDEN = looped("hidden", [(), (16,), (16, 8), (3, 16)])


def _graph(dtype=torch.float32, **kwargs):
    nodes = messy_graph(dtype=np.float64, **kwargs)
    return GraphTensors(nodes.graph, CPU, dtype)


def _network(cls, dtype=torch.float32, n_features=6, **kwargs):
    """A network with biases that are not zero, in eval mode."""
    torch.manual_seed(0)
    network = cls(n_features, 4, **kwargs)
    for name, parameter in network.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return network.to(dtype).eval()


def _close(result, expected, tolerance):
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


# --- dropout of features -----------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("hidden", [(), (16, 8)])
def test_dropout_of_features(name, hidden):
    """Another probability before the first layer only; None is as before."""
    graph = _graph()
    shared = {"hidden": hidden, "dropout": 0.4}

    def outputs(seed=1, **params):
        network = _network(NETWORKS[name], **shared, **params).train()
        torch.manual_seed(seed)
        return network(graph).detach()

    before = outputs()
    assert torch.equal(outputs(input_dropout=None), before)
    assert torch.equal(outputs(input_dropout=0.4), before)
    assert not torch.equal(outputs(input_dropout=0.0), before)
    network = _network(NETWORKS[name], input_dropout=0.1, **shared)
    assert [layer.p for layer in network.dropouts] == [0.1] + [0.4] * len(hidden)


def test_dropout_of_features_alone_is_none():
    """A network without layers between has no dropout at all."""
    graph, network = _graph(), _network(GCN, hidden=(), input_dropout=0.0).train()
    assert torch.equal(network(graph), network(graph))
    with pytest.raises(ValueError, match=r"input_dropout must be in .* got 1.0"):
        GCN(6, 4, input_dropout=1.0)


# --- against torch_geometric -------------------------------------------------------


@BOTH
@HIDDEN
def test_gcn_is_a_stack_of_gcn_convolutions(hidden, dtype, tolerance):
    from torch_geometric.nn import GCNConv

    graph = _graph(dtype)
    network = _network(GCN, dtype, hidden=hidden)
    h = graph.x
    weights = [layer.weight for layer in network.layers] + [network.head.weight]
    biases = [*network.biases, network.head.bias]
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        layer = GCNConv(weight.shape[1], weight.shape[0]).to(dtype)
        layer.lin.weight.data, layer.bias.data = weight.data, bias.data
        h = layer(torch.relu(h) if i else h, graph.edge_index, graph.edge_weight)
    _close(network(graph), h, tolerance)


@BOTH
@HIDDEN
def test_sage_is_a_stack_of_sage_convolutions(hidden, dtype, tolerance):
    """SAGEConv does not take weights: here there are none."""
    from torch_geometric.nn import SAGEConv

    graph = _graph(dtype, weighted=False)
    network = _network(SAGE, dtype, hidden=hidden)
    h = graph.x
    maps = [(m.neighbors.weight, m.own.weight) for m in network.layers]
    maps.append(network.head.weight.chunk(2, dim=1))
    biases = [*network.biases, network.head.bias]
    for i, ((told, separate), bias) in enumerate(zip(maps, biases, strict=True)):
        layer = SAGEConv(told.shape[1], told.shape[0]).to(dtype)
        layer.lin_l.weight.data, layer.lin_r.weight.data = told.data, separate.data
        layer.lin_l.bias.data = bias.data
        h = layer(torch.relu(h) if i else h, graph.edge_index)
    _close(network(graph), h, tolerance)


@BOTH
@pytest.mark.parametrize("hidden", [(), (16,), (16, 8)])
def test_gat_is_a_stack_of_gat_convolutions(hidden, dtype, tolerance):
    from torch_geometric.nn import GATConv

    graph = _graph(dtype)
    network = _network(GAT, dtype, hidden=hidden, heads=4)
    maps = [*(layer.map for layer in network.layers), network.head]
    attention = [*(layer.attention for layer in network.layers), network.attention]
    layers = []
    h = graph.x
    for i, (linear, heads, bias) in enumerate(
        zip(maps, attention, [*network.biases, network.head.bias], strict=True)
    ):
        n_out, n_in = linear.weight.shape
        n_heads = heads.source.shape[1]
        layers.append(GATConv(n_in, n_out // n_heads, heads=n_heads).to(dtype))
        named = {"att_src": heads.source, "att_dst": heads.target, "bias": bias}
        layers[-1].load_state_dict({**named, "lin.weight": linear.weight})
        h = layers[-1](functional.elu(h) if i else h, graph.edge_index)
    cotangent = torch.randn_like(h)
    h.backward(cotangent)
    for is_training in (False, True):  # the head is before or after the last sums
        for dropout in network.modules():
            dropout.p = 0.0
        network.train(is_training).zero_grad()
        result = network(graph)
        _close(result, h, tolerance)
        result.backward(cotangent)
        for linear, heads, layer in zip(maps, attention, layers, strict=True):
            _close(linear.weight.grad, layer.lin.weight.grad, 10 * tolerance)
            _close(heads.source.grad, layer.att_src.grad, 10 * tolerance)
            _close(heads.target.grad, layer.att_dst.grad, 10 * tolerance)


def test_attention_to_edges_of_all_kinds():
    """Nodes without edges, own edges, parallel weights, and huge scores."""
    A = np.zeros((5, 5), dtype=np.float32)
    A[0, 1], A[2, 1], A[1, 1], A[3, 2] = 2, 4, 1, 5
    nodes = NodeSet((np.arange(10.0).reshape(5, 2), A))
    graph = GraphTensors(nodes.graph, CPU, torch.float64)
    network = _network(GAT, torch.float64, n_features=2, hidden=())
    with torch.no_grad():
        network.attention.source *= 1e4
    W, bias = network.head.weight, network.head.bias
    mapped = graph.x @ W.T
    scores = mapped @ network.attention.source.flatten()
    scores = scores[:, None] + mapped @ network.attention.target.flatten()
    scores = functional.leaky_relu(scores, 0.2)
    is_edge = torch.tensor((A != 0) | np.eye(5, dtype=bool))
    weights = torch.softmax(torch.where(is_edge, scores, -torch.inf), dim=0)
    _close(network(graph), weights.T @ mapped + bias, 1e-10)


def test_dropout_of_attention():
    """The mean over masks is the result without dropout, and all nodes vary."""
    graph = _graph(torch.float64)
    network = _network(GAT, torch.float64, hidden=(), dropout=0.5, input_dropout=0.0)
    network.dropouts[0].p = 0.0
    expected = network(graph).detach()
    network.train()
    torch.manual_seed(0)
    draws = torch.stack([network(graph).detach() for _ in range(4000)])
    error = draws.std(dim=0) / 4000**0.5
    assert ((draws.mean(dim=0) - expected).abs() <= 5 * error + 1e-12).all()
    alone = error.abs().max(dim=1).values > 0
    assert alone.all()


# --- against loops -----------------------------------------------------------------


def _told(graph, kind):
    """Dense operator of a graph."""
    return torch.tensor(graph.graph.operator(kind).toarray())


@pytest.mark.parametrize("hidden", [(), (16,)])
@pytest.mark.parametrize("steps, teleport", [(10, 0.1), (3, 0.5), (0, 0.1), (4, 0.0)])
def test_appnp_against_a_loop(hidden, steps, teleport):
    graph = _graph(torch.float64)
    network = _network(
        APPNP, torch.float64, hidden=hidden, n_steps=steps, teleport=teleport
    )
    h = graph.x
    for layer, bias in zip(network.layers, network.biases, strict=True):
        h = torch.relu(h @ layer.weight.T + bias)
    h = h @ network.head.weight.T
    A, out = _told(graph, "symmetric"), h
    for _ in range(steps):
        out = (1 - teleport) * A @ out + teleport * h
    _close(network(graph), out + network.head.bias, 1e-12)


def test_sage_takes_weighted_means():
    graph = _graph(torch.float64)
    network = _network(SAGE, torch.float64, hidden=())
    told, separate = network.head.weight.chunk(2, dim=1)
    A = graph.graph.adjacency.toarray().astype(np.float64)
    expected = torch.zeros(30, 4, dtype=torch.float64)
    for j in range(30):
        incoming = np.flatnonzero(A[:, j])
        mean = torch.zeros(6, dtype=torch.float64)
        for i in incoming:
            mean += A[i, j] / A[incoming, j].sum() * graph.x[i]
        expected[j] = told @ mean + separate @ graph.x[j] + network.head.bias
    _close(network(graph), expected, 1e-7)  # weights of edges are float32


# --- what does not change ----------------------------------------------------------

EACH = pytest.mark.parametrize("cls", [GCN, GAT, SAGE, APPNP])


@EACH
@HIDDEN
def test_sparse_features_are_as_dense_ones(cls, hidden):
    options = {"heads": 1} if cls is GAT else {}
    network = _network(cls, torch.float64, hidden=hidden, **options)
    dense = network(_graph(torch.float64))
    sparse = network(_graph(torch.float64, sparse_features=True))
    _close(sparse, dense, 1e-12)


@EACH
@HIDDEN
def test_training_mode_computes_the_same_another_way_round(cls, hidden):
    """Without dropout; and so are the gradients."""
    options = {"heads": 1} if cls is GAT else {}
    network = _network(cls, torch.float64, hidden=hidden, dropout=0.0, **options)
    graph = _graph(torch.float64)
    results = []
    for training in (False, True):
        network.train(training).zero_grad()
        outputs = network(graph)
        outputs.square().sum().backward()
        results.append([outputs, *(p.grad for p in network.parameters())])
    for expected, got in zip(*results, strict=True):
        _close(got, expected, 1e-10)
    with torch.no_grad():
        _close(network(graph), results[0][0], 1e-10)


@EACH
def test_a_node_without_edges_is_a_row(cls):
    """It gets what it would in a graph of its own, whatever the others do."""
    network = _network(cls, torch.float64)
    graph = _graph(torch.float64)
    alone = graph.graph.X[-2:]
    expected = network(GraphTensors(as_nodes(alone).graph, CPU, torch.float64))
    _close(network(graph)[-2:], expected, 1e-12)


@EACH
def test_width_of_hidden_layers_and_gradients(cls):
    """All parameters are trained."""
    network = _network(cls, hidden=(16, 8)).train()
    network(_graph(sparse_features=True)).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    assert network.n_layers == (10 if cls is APPNP else 3)


@pytest.mark.parametrize("cls", [GCN, SAGE, APPNP])
def test_batch_normalization_is_an_affine_map_of_hidden_layers(cls):
    """In eval mode: folded into weights and biases, the network is the same."""
    graph = _graph(torch.float64)
    network = _network(cls, torch.float64, hidden=(16, 8), batch_norm=True)
    plain = _network(cls, torch.float64, hidden=(16, 8))
    assert not torch.allclose(network(graph), plain(graph))  # biases of the norms
    plain.load_state_dict(network.state_dict(), strict=False)
    with torch.no_grad():
        for norm, layer, bias in zip(
            network.norms, plain.layers, plain.biases, strict=True
        ):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.normal_(norm.weight)
            scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            for weight in layer.parameters():
                weight *= scale[:, None]
            bias.copy_((bias - norm.running_mean) * scale + norm.bias)
    _close(network(graph), plain(graph), 1e-10)


@EACH
def test_batch_normalization_comes_before_the_activation(cls):
    """With the moments of all nodes in training."""
    graph = _graph(torch.float64)
    network = _network(cls, torch.float64, hidden=(16, 8), batch_norm=True, dropout=0)
    seen = []
    network.norms[0].register_forward_hook(lambda *args: seen.append(args[2]))
    following = network.layers[1]
    if cls in (SAGE, GAT):
        following = following.own if cls is SAGE else following.map
    following.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    activation = functional.elu if cls is GAT else torch.relu
    for training in (True, False):
        seen.clear()
        network.train(training)(graph)
        normed, received = seen
        normed = (normed - network.norms[0].bias) / network.norms[0].weight
        zeros = torch.zeros(16, dtype=torch.float64)
        if training:
            _close(normed.mean(dim=0), zeros, 1e-9)
            _close(normed.var(dim=0, correction=0), zeros + 1, 1e-3)  # eps
        else:
            assert normed.mean(dim=0).abs().max() > 0.01  # running moments
        _close(received, activation(seen[0]), 1e-12)
    assert len(network.norms) == 2
    assert all(isinstance(norm, nn.Identity) for norm in _network(cls).norms)


# --- errors ------------------------------------------------------------------------


@pytest.mark.parametrize("hidden, heads", [((12,), 8), ((16, 8), 16), ((8,), 0)])
def test_width_that_heads_do_not_divide(hidden, heads):
    message = rf"must be a multiple of heads={heads}, which must be at"
    with pytest.raises(ValueError, match=message):
        GAT(6, 4, hidden, heads=heads)


@pytest.mark.parametrize("params", [{"n_steps": -1}, {"teleport": 1.5}])
def test_steps_and_teleport(params):
    with pytest.raises(ValueError, match=r"steps of at least 0 and a teleport in the"):
        APPNP(6, 4, **params)


# --- dropout -----------------------------------------------------------------------


def test_dropout_of_dense_features():
    torch.manual_seed(0)
    x = torch.ones(1000, 100)
    dropped = FeatureDropout(0.3)(x)
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.7)}
    # 100,000 draws: the standard deviation of the fraction is .00145
    assert float((dropped == 0).float().mean()) == pytest.approx(0.3, abs=0.006)
    per_row = (dropped == 0).float().mean(dim=1)
    assert 0.03 < float(per_row.std()) < 0.06  # .0458: drawn independently
    assert torch.equal(x, torch.ones(1000, 100))


def test_dropout_of_sparse_features():
    torch.manual_seed(0)
    x = _graph(n_nodes=400, n_features=200, sparse_features=True).x
    dropped = FeatureDropout(0.5)(x)
    assert isinstance(dropped, SparseRows)
    stored = dropped.values != 0
    assert float(stored.float().mean()) == pytest.approx(0.5, abs=0.012)  # 5 sigma
    torch.testing.assert_close(dropped.values[stored], 2 * x.values[stored])
    # the transpose, which gradients go by, drops the same
    assert torch.equal(dropped.to_dense(), dropped.transposed.to_dense().T)


@pytest.mark.parametrize("sparse_features", [True, False])
def test_dropout_does_nothing(sparse_features):
    x = _graph(sparse_features=sparse_features).x
    assert FeatureDropout(0.0)(x) is x
    assert FeatureDropout(0.9).eval()(x) is x


def test_dropout_off_the_cpu_is_that_of_torch(monkeypatch):
    """A device without data stands for an accelerator."""
    x = torch.ones(3, 4, device="meta")
    called = []
    monkeypatch.setattr(
        nn.Dropout, "forward", lambda self, x: called.append(x) or x, raising=True
    )
    assert FeatureDropout(0.5)(x) is x
    assert len(called) == 1


def test_gradient_of_dropout():
    x = torch.ones(50, 4, requires_grad=True)
    dropped = FeatureDropout(0.5)(x)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())


def test_feature_linear():
    layer = FeatureLinear(6, 3)
    graph = _graph(sparse_features=True)
    expected = graph.dense @ layer.weight.T
    torch.testing.assert_close(layer(graph.x), expected)
    torch.testing.assert_close(layer(graph.dense), expected)


# --- modules of users --------------------------------------------------------------


class _Sums(nn.Module):
    """Sums over in-neighbors; writes to what it is given."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x, edge_index):
        x += 1.0
        source, target = edge_index
        return self.linear(torch.zeros_like(x).index_add_(0, target, x[source]))


class _WeightedSums(_Sums):
    def forward(self, x, edge_index, edge_weight=None):
        self.given = edge_weight
        source, target = edge_index
        told = x[source] if edge_weight is None else edge_weight[:, None] * x[source]
        return self.linear(torch.zeros_like(x).index_add_(0, target, told))


@pytest.mark.parametrize("sparse_features", [True, False])
def test_edge_module(sparse_features):
    graph = _graph(torch.float64, sparse_features=sparse_features)
    module = _Sums().double()
    counted = torch.tensor((graph.graph.adjacency.toarray() > 0).T.astype(np.float64))
    before = graph.dense.clone()
    expected = module.linear(counted @ (before + 1.0))
    wrapped = EdgeModule(module)
    assert not wrapped.uses_weights
    _close(wrapped(graph), expected, 1e-12)
    assert torch.equal(graph.dense, before)
    _close(wrapped(graph), expected, 1e-12)


def test_edge_module_with_weights():
    module = _WeightedSums().double()
    wrapped = EdgeModule(module)
    assert wrapped.uses_weights
    graph = _graph(torch.float64)
    expected = module.linear(_told(graph, "sum") @ graph.x)
    _close(wrapped(graph), expected, 1e-12)
    wrapped(_graph(torch.float64, weighted=False))
    assert module.given is None


class _AlwaysWeighted(_WeightedSums):
    def forward(self, x, edge_index, edge_weight):
        return super().forward(x, edge_index, edge_weight)


def test_edge_module_that_needs_weights():
    """Where there are none it is given ones."""
    module = _AlwaysWeighted().double()
    wrapped = EdgeModule(module)
    assert wrapped.uses_weights
    graph = _graph(torch.float64)
    _close(wrapped(graph), module.linear(_told(graph, "sum") @ graph.x), 1e-12)
    plain = _graph(torch.float64, weighted=False)
    _close(wrapped(plain), module.linear(_told(plain, "sum") @ plain.x), 1e-12)
    assert torch.equal(module.given, torch.ones_like(plain.edge_index[0]).double())


def test_edge_module_takes_copies():
    class Spoils(_WeightedSums):
        def forward(self, x, edge_index, edge_weight=None):
            out = super().forward(x, edge_index, edge_weight)
            for original in (x, edge_index, edge_weight):
                original.zero_()
            return out

    graph = _graph(torch.float64)
    wrapped = EdgeModule(Spoils().double())
    torch.testing.assert_close(wrapped(graph), wrapped(graph), rtol=0, atol=0)


@pytest.mark.parametrize(
    "forward, message",
    [
        (lambda x: x, r"Odd has forward\(x\): too many positional arguments. Write a"),
        (lambda x, edge_index, batch: x, r"missing a required argument: 'batch'"),
        (lambda x, edge_weight, edge_index: x, r"multiple values for argument 'edge_w"),
    ],
)
def test_modules_that_are_called_otherwise(forward, message):
    Odd = type("Odd", (nn.Module,), {"forward": staticmethod(forward)})
    with pytest.raises(TypeError, match=message):
        EdgeModule(Odd())


def test_warning_of_weights():
    weighted, plain = _graph().graph, _graph(weighted=False).graph
    n_edges = weighted.adjacency.nnz
    for module, name in ((GAT(6, 4), "GAT"), (EdgeModule(_Sums()), "_Sums")):
        message = f"have weights, and {name} does not use them: all {n_edges} edges"
        with pytest.warns(SkoodWarning, match=message):
            warn_of_weights(weighted, module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in (GCN(6, 4), EdgeModule(_WeightedSums())):
            warn_of_weights(weighted, module)
        warn_of_weights(plain, EdgeModule(_Sums()))


def test_models_of_torch_geometric():
    """Those that do not know weights take them without using them."""
    from torch_geometric.nn.models import GAT as GATModel
    from torch_geometric.nn.models import GCN as GCNModel

    assert EdgeModule(GCNModel(6, 8, 3, 4)).uses_weights
    assert not EdgeModule(GATModel(6, 8, 3, 4)).uses_weights


def test_number_of_layers_of_a_module():
    from torch_geometric.nn import APPNP as Propagate
    from torch_geometric.nn import GCNConv, SGConv

    class Three(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(GCNConv(4, 4) for _ in range(3))

        def forward(self, x, edge_index):
            return x

    class Steps(Three):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([SGConv(4, 4, K=2), Propagate(K=5, alpha=0.1)])

    assert EdgeModule(Three()).n_layers == 3
    assert EdgeModule(Steps()).n_layers == 7
    assert EdgeModule(_Sums()).n_layers == 2  # it cannot be told


def test_layers_that_remember_a_graph():
    from torch_geometric.nn.models import GCN as GCNModel

    with pytest.raises(ValueError, match=r"The layer 'convs.0' was made with cached"):
        EdgeModule(GCNModel(6, 8, 2, 4, cached=True))

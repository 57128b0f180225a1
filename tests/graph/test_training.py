"""Training on nodes: against plain loops, early stopping, sampled neighborhoods."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn
from torch.nn import functional

from skood.graph import NodeSet
from skood.graph._base_node_classifier import (
    NodeRows,
    cross_entropy,
    neighborhood,
    train_nodes,
)
from skood.graph._modules import NETWORKS
from skood.graph._tensors import GraphTensors
from skood.nn import TrainingOptions
from tests.graph._messy import messy_graph

pytest.importorskip("torch_geometric")

CPU = torch.device("cpu")


def _rows(nodes=None, numbers=None, *, seed=0, weight=None, n_classes=3):
    """Nodes with classes drawn at random."""
    nodes = messy_graph() if nodes is None else nodes
    numbers = np.arange(0, len(nodes), 2) if numbers is None else numbers
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=len(numbers))
    weight = np.ones(len(numbers)) if weight is None else weight
    return NodeRows(GraphTensors(nodes.graph, CPU), numbers, codes, weight)


def _network(name="gcn", **kwargs):
    torch.manual_seed(0)
    kwargs = {"hidden": (8,), "dropout": 0.0, **kwargs}
    return NETWORKS[name](6, 3, **kwargs)


def _train(module, samples, valid=None, **params):
    options = {"weight_decay": 0.0, "n_iter_no_change": 50, "tol": 0.0}
    options.update({name: params.pop(name) for name in list(params) if name in options})
    options = TrainingOptions(optimizer="adam", **options)
    return train_nodes(module, samples, valid, options=options, **params)


# --- against a plain loop ----------------------------------------------------------


def _plain(module, samples, n_epochs, lr, weight_decay, penalty=None):
    """Adam on the weighted mean loss, written out."""
    optimizer = torch.optim.Adam(module.parameters(), lr=lr, weight_decay=weight_decay)
    losses = []
    for _ in range(n_epochs):
        outputs = module(samples.tensors)
        value = 0.0
        for node, code, w in zip(
            samples.nodes, samples.codes, samples.weight, strict=True
        ):
            value += w * -torch.log_softmax(outputs[node], dim=0)[code]
        value = value / len(samples.nodes)
        if penalty is not None:
            value = value + penalty(outputs)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses


@pytest.mark.parametrize("name", ["gcn", "gat", "sage", "appnp"])
@pytest.mark.parametrize("n_epochs", [1, 4])
def test_epochs_are_those_of_a_plain_loop(name, n_epochs):
    samples = _rows(weight=np.random.default_rng(1).uniform(0.2, 1.8, size=15))
    module = _network(name)
    plain = copy.deepcopy(module)
    history = _train(module, samples, lr=0.03, weight_decay=0.1, max_epochs=n_epochs)
    losses = _plain(plain, samples, n_epochs, 0.03, 0.1)
    assert [row["train_loss"] for row in history] == pytest.approx(losses, rel=1e-5)
    assert all(set(row) == {"train_loss"} for row in history)
    for result, expected in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-5)
    assert not module.training


def test_penalty_is_of_all_nodes():
    samples = _rows()
    module = _network()
    plain = copy.deepcopy(module)
    seen = []

    def penalty(outputs, numbers, epoch):
        seen.append((numbers, epoch))
        return outputs.square().sum() / 7

    history = _train(module, samples, max_epochs=2, penalty=penalty)
    losses = _plain(plain, samples, 2, 1e-2, 0.0, lambda out: out.square().sum() / 7)
    assert [row["train_loss"] for row in history] == pytest.approx(losses, rel=1e-5)
    assert seen == [(slice(None), 0), (slice(None), 1)]


def test_loss_of_nodes():
    samples = _rows(weight=np.linspace(0.5, 1.5, 15))

    def loss(outputs, codes):
        assert outputs.shape == (15, 3)
        assert_array_equal(codes, samples.codes)
        return outputs.square().sum(dim=1)

    module = _network()
    with torch.no_grad():
        outputs = module(samples.tensors)[samples.nodes]
        expected = float((outputs.square().sum(dim=1).numpy() * samples.weight).mean())
    [row] = _train(module, samples, loss=loss, max_epochs=1)
    assert row["train_loss"] == pytest.approx(expected, rel=1e-5)


def test_cross_entropy_of_nodes():
    outputs = torch.randn(5, 3)
    codes = torch.tensor([0, 2, 1, 1, 0])
    expected = functional.nll_loss(outputs.log_softmax(1), codes, reduction="none")
    torch.testing.assert_close(cross_entropy(outputs, codes), expected)


def test_weight_two_is_the_row_twice_and_zero_is_none():
    samples = _rows(weight=np.r_[[2.0, 0.0], np.ones(13)])
    order = np.r_[0, 0, np.arange(2, 15)]
    twice = replace(samples.take(order), weight=np.ones(15))
    modules = [_network(), _network()]
    for module, item in zip(modules, (samples, twice), strict=True):
        _train(module, item, max_epochs=5)
    for item, other in zip(*(m.parameters() for m in modules), strict=True):
        torch.testing.assert_close(item, other, rtol=1e-4, atol=1e-6)


# --- early stopping ----------------------------------------------------------------


class _Scripted(nn.Module):
    """Its validation losses are given; its weight counts the steps."""

    def __init__(self, losses):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.losses = losses
        self.epoch = -1

    def forward(self, tensors):
        if self.training:
            self.epoch += 1
            return -self.weight.expand(tensors.shape[0], 1)  # goes up
        loss = self.losses[self.epoch]
        return torch.full((tensors.shape[0], 1), loss)


def _first_column(outputs, codes):
    return outputs[:, 0]


def _run_script(losses, **kwargs):
    module = _Scripted(losses)
    samples = _rows()
    kwargs = {"loss": _first_column, "max_epochs": len(losses), "lr": 0.1, **kwargs}
    history = _train(module, samples, samples, **kwargs)
    # a step of Adam on a constant gradient is lr long
    return history, round(float(module.weight.detach()) / 0.1)


def test_the_best_weights_return():
    losses = [5.0, 3.0, 2.0, 4.0, 2.5, 2.0, 6.0]
    history, epoch_of_weights = _run_script(losses)
    assert [row["valid_loss"] for row in history] == losses
    assert epoch_of_weights == 3


@pytest.mark.parametrize("patience, n_epochs", [(1, 4), (2, 7), (3, 11), (99, 11)])
def test_patience(patience, n_epochs):
    losses = [5.0, 3.0, 2.0, 4.0, 1.9, 2.0, 6.0, 1.8, 2.0, 2.0, 2.0]
    history, epoch_of_weights = _run_script(losses, n_iter_no_change=patience)
    assert len(history) == n_epochs
    assert epoch_of_weights == int(np.argmin(losses[:n_epochs])) + 1


def test_tol_is_the_gain_that_counts():
    losses = [5.0, 4.0, 3.9, 3.8, 3.7, 3.6, 3.5]
    history, epoch_of_weights = _run_script(losses, tol=0.5, n_iter_no_change=3)
    assert len(history) == 5
    assert epoch_of_weights == 5  # small gains are taken, too
    assert len(_run_script(losses, tol=0.05, n_iter_no_change=3)[0]) == 7


def test_validation_is_without_dropout_and_leaves_training_alone():
    samples = _rows()
    module = _network(dropout=0.5)
    history = _train(module, samples, samples, max_epochs=3)
    torch.manual_seed(0)
    again = _network(dropout=0.5)
    without = _train(again, samples, max_epochs=3)
    assert [h["train_loss"] for h in history] == [h["train_loss"] for h in without]
    with torch.no_grad():
        outputs = module(samples.tensors)[samples.nodes]
        loss = float(cross_entropy(outputs, torch.tensor(samples.codes)).mean())
    assert min(h["valid_loss"] for h in history) == pytest.approx(loss, rel=1e-6)


def test_validation_nodes_of_another_graph():
    samples, other = _rows(), _rows(messy_graph(n_nodes=20, seed=5), seed=5)
    module = _network()
    history = _train(module, samples, other, max_epochs=1)
    with torch.no_grad():
        outputs = module(other.tensors)[other.nodes]
        loss = float(cross_entropy(outputs, torch.tensor(other.codes)).mean())
    assert history[0]["valid_loss"] == pytest.approx(loss, rel=1e-6)


def test_bar_is_told():
    class Bar:
        def __init__(self):
            self.told = []

        def set_postfix(self, **kwargs):
            self.told.append(kwargs)

        def update(self, n):
            self.told.append(n)

    bar = Bar()
    samples = _rows()
    history = _train(_network(), samples, samples, max_epochs=2, bar=bar)
    values = [{name: f"{v:.3g}" for name, v in row.items()} for row in history]
    assert bar.told == [values[0], 1, values[1], 1]


# --- errors ------------------------------------------------------------------------


def test_diverged():
    with pytest.raises(ValueError, match=r"Training diverged: in epoch \d+ the loss"):
        _train(_network(), _rows(), lr=1e25, max_epochs=10)


def test_validation_loss_that_is_not_finite():
    with pytest.raises(
        ValueError,
        match=r"loss of the validation nodes was nan in epoch 2: their features are",
    ):
        _run_script([1.0, np.nan, 1.0])


class _Returns(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.outputs = outputs

    def forward(self, tensors):
        return self.outputs


@pytest.mark.parametrize(
    "outputs, result",
    [
        (torch.zeros(5, 3), r"a tensor of shape \(5, 3\)"),
        (torch.zeros(30), r"a tensor of shape \(30,\)"),
        ((torch.zeros(30, 3),), "an object of type tuple"),
    ],
)
def test_outputs_that_are_not_a_row_for_each_node(outputs, result):
    message = f"a row for each of the 30 nodes of the graph, got {result}"
    with pytest.raises(ValueError, match=message):
        _train(_Returns(outputs), _rows())


# --- neighborhoods ----------------------------------------------------------------


def _naive_reach(A, nodes, n_layers):
    """Nodes that can tell some nodes something in so many steps."""
    reached = {int(node) for node in nodes}
    for _ in range(n_layers):
        reached |= {i for i in range(len(A)) for j in reached if i != j and A[i, j] > 0}
    return reached


@pytest.mark.parametrize("n_layers", [0, 1, 2, 3])
@pytest.mark.parametrize("loops", [True, False])
def test_whole_neighborhood_against_a_loop(n_layers, loops):
    graph = messy_graph(density=0.06, loops=loops).graph
    A = graph.adjacency.toarray()
    nodes = np.array([4, 9, 4, 28])  # one of them twice, one without edges
    rng = np.random.default_rng(0)
    sample, numbers, of_nodes = neighborhood(graph, nodes, n_layers, 30, rng)
    assert set(numbers) == _naive_reach(A, nodes, n_layers)
    assert len(set(numbers)) == len(numbers) == sample.n_nodes
    assert_array_equal(numbers[of_nodes], nodes)
    assert_array_equal(sample.X, graph.X[numbers])
    # edges to all but the nodes that were reached last, and all loops
    inner = _naive_reach(A, nodes, n_layers - 1) if n_layers else set()
    expected = np.zeros((30, 30), dtype=np.float32)
    for i in range(30):
        for j in range(30):
            if j in inner or (i == j and i in numbers):
                expected[i, j] = A[i, j]
    array = np.zeros((30, 30), dtype=np.float32)
    array[np.ix_(numbers, numbers)] = sample.adjacency.toarray()
    assert_array_equal(array, expected)
    assert sample.adjacency.dtype == np.float32


@pytest.mark.parametrize("name", ["gcn", "gat", "sage", "appnp"])
@pytest.mark.parametrize("sparse_features", [True, False])
def test_whole_neighborhood_gives_the_outputs_of_the_whole_graph(name, sparse_features):
    """Of the nodes that were requested: "gcn" uses the degrees at the border."""
    nodes = messy_graph(n_nodes=60, density=0.03, sparse_features=sparse_features)
    options = {"n_steps": 3} if name == "appnp" else {}
    module = _network(name, hidden=(8, 16), **options).eval()
    wanted = np.array([3, 17, 40, 59, 3])
    rng = np.random.default_rng(0)
    sample, numbers, of_nodes = neighborhood(
        nodes.graph, wanted, module.n_layers, 60, rng
    )
    assert len(numbers) < 55  # something is left out
    with torch.no_grad():
        whole = module(GraphTensors(nodes.graph, CPU))[wanted]
        result = module(GraphTensors(sample, CPU, torch.float32))[of_nodes]
    torch.testing.assert_close(result, whole, rtol=1e-5, atol=1e-5)


def test_few_neighbors_are_drawn_without_replacement():
    graph = messy_graph(n_nodes=60, density=0.3).graph
    A = graph.adjacency.toarray()
    in_degrees = ((A > 0) & ~np.eye(60, dtype=bool)).sum(axis=0)
    rng = np.random.default_rng(0)
    wanted = np.arange(10)
    sample, numbers, _ = neighborhood(graph, wanted, 1, 4, rng)
    edges = sample.adjacency.toarray()
    for place, j in enumerate(numbers[:10]):
        column = edges[:, place].copy()
        assert column[place] == A[j, j]
        column[place] = 0.0
        sources = numbers[np.flatnonzero(column)]
        assert len(sources) == min(4, in_degrees[j])
        factor = max(in_degrees[j] / 4, 1.0)
        assert_allclose(column[column > 0], factor * A[sources, j], 1e-6)
    assert np.count_nonzero(edges[:, 10:].sum(axis=0) - edges.diagonal()[10:]) == 0


@pytest.mark.parametrize("kind", ["sum", "symmetric"])
def test_sums_over_samples_are_right_in_expectation(kind):
    graph = messy_graph(n_nodes=30, density=0.4).graph
    expected = graph.operator(kind).toarray()[0]
    rng = np.random.default_rng(0)
    drawn = np.zeros((600, 30))
    for row in drawn:
        sample, numbers, of_nodes = neighborhood(graph, np.array([0]), 1, 3, rng)
        row[numbers] = sample.operator(kind).toarray()[of_nodes[0]]
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - expected) <= 4.5 * error + 1e-6).all()
    assert error.max() > 0


def test_each_edge_is_drawn_as_often():
    """Of a node with 6 neighbors, 2 are drawn: each in a third of the samples."""
    A = np.zeros((7, 7))
    A[1:, 0] = 1.0
    graph = NodeSet((np.eye(7), A)).graph
    rng = np.random.default_rng(0)
    counts = np.zeros(7)
    for _ in range(1500):
        counts[neighborhood(graph, np.array([0]), 1, 2, rng)[1]] += 1
    assert counts[0] == 1500
    # the standard deviation is 18
    assert_allclose(counts[1:], 500, atol=75)


# --- training on samples -----------------------------------------------------------


def test_batches_with_whole_neighborhoods_are_steps_of_a_plain_loop():
    samples = _rows(weight=np.random.default_rng(1).uniform(0.2, 1.8, size=15))
    module = _network()
    plain = copy.deepcopy(module)
    torch.manual_seed(3)
    history = _train(
        module, samples, max_epochs=2, batch_size=4, n_neighbors=30, lr=0.03
    )
    torch.manual_seed(3)
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.03)
    for row in history:
        order = torch.randperm(15).numpy()
        total = 0.0
        for selected in (order[:4], order[4:8], order[8:12], order[12:]):
            outputs = plain(samples.tensors)[samples.nodes[selected]]
            losses = cross_entropy(outputs, torch.tensor(samples.codes[selected]))
            value = (losses * torch.tensor(samples.weight[selected]).float()).mean()
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            total += float(value.detach()) * len(selected)
        assert row["train_loss"] == pytest.approx(total / 15, rel=1e-4)
    for result, expected in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)


def test_penalty_is_told_the_numbers_of_the_sample():
    nodes = messy_graph(n_nodes=60, density=0.03)
    samples = _rows(nodes)
    seen = []

    def penalty(outputs, numbers, epoch):
        seen.append(numbers)
        assert len(outputs) == len(numbers)
        return outputs.sum() * 0

    _train(_network(), samples, max_epochs=1, batch_size=10, penalty=penalty)
    assert len(seen) == 3
    A = nodes.adjacency.toarray()
    for numbers in seen:
        inner = [n for n in numbers if n in samples.nodes]
        assert set(numbers) <= _naive_reach(A, inner, 2)
    assert set(samples.nodes) <= {n for numbers in seen for n in numbers}


def test_seed_of_the_samples():
    samples = _rows(messy_graph(n_nodes=60, density=0.3))
    results = []
    for seed in (0, 0, 1):
        torch.manual_seed(1)
        module = _network(hidden=())
        history = _train(
            module, samples, batch_size=10, n_neighbors=2, seed=seed, max_epochs=3
        )
        results.append([row["train_loss"] for row in history])
    assert results[0] == results[1] != results[2]


# --- rows --------------------------------------------------------------------------


def test_labeled_nodes():
    samples = _rows(weight=np.linspace(0, 1, 15))
    nodes, codes, weight = samples.on_device
    assert nodes.dtype == codes.dtype == torch.int64
    assert weight.dtype == torch.float32
    selected = samples.take(np.array([2, 3]))
    assert_array_equal(selected.nodes, [4, 6])
    assert_array_equal(selected.weight, samples.weight[2:4])
    assert_array_equal(selected.codes, samples.codes[2:4])
    mean_one = samples.take(slice(2, 4), normalize=True).weight
    assert_allclose(
        mean_one, samples.weight[2:4] / samples.weight[2:4].mean(), rtol=1e-15
    )
    assert selected.tensors is samples.tensors
    assert selected.numbers == slice(None)

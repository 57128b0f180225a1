"""Training of networks on nodes: epochs over the whole graph, or over samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from scipy import sparse
from torch.nn import functional

from skood.graph._node_set import Graph
from skood.graph._tensors import GraphTensors
from skood.nn._training import OPTIMIZERS, check_finite, make_schedule
from skood.nn._training_data import row_batches
from skood.utils._torch import evaluating


def cross_entropy(outputs, codes):
    """Return the cross-entropy of logits, one value per node."""
    return functional.cross_entropy(outputs, codes, reduction="none")


@dataclass(frozen=True)
class NodeRows:
    """Nodes with their class and their weight, all of shape (n_samples,)."""

    tensors: GraphTensors
    nodes: np.ndarray
    codes: np.ndarray
    weight: np.ndarray
    numbers: np.ndarray | slice = field(default_factory=partial(slice, None))

    def on_device(self):
        """Return nodes, codes and weights as tensors."""
        device, dtype = self.tensors.device, self.tensors.dtype
        return (
            torch.tensor(self.nodes, device=device),
            torch.tensor(self.codes, device=device),
            torch.tensor(self.weight, device=device, dtype=dtype),
        )

    def with_weight(self, weight):
        """Return the same nodes with other weights."""
        return replace(self, weight=weight)

    def with_dtype(self, dtype):
        """Return the same nodes of a graph in another dtype."""
        tensors = GraphTensors(self.tensors.graph, self.tensors.device, dtype)
        return replace(self, tensors=tensors)

    def part(self, rows):
        """Return some of the nodes."""
        return replace(
            self,
            nodes=self.nodes[rows],
            codes=self.codes[rows],
            weight=self.weight[rows],
        )


class _Sample(Graph):
    """Sampled graph, whose "symmetric" operator has the degrees of the whole graph."""

    def __init__(self, X, adjacency, degrees):
        super().__init__(X, adjacency)
        self.degrees = degrees

    def _operator(self, kind):
        operator = super()._operator(kind)
        if kind != "symmetric":
            return operator
        scale = np.sqrt(_degrees(self) / self.degrees)
        operator.data *= np.repeat(scale, np.diff(operator.indptr))
        operator.data *= scale[operator.indices]
        return operator


def _degrees(graph):
    """Return the weighted in-degrees, with a loop of one for nodes without a loop."""
    incoming = graph.operator("sum")
    return incoming.sum(axis=1) + (incoming.diagonal() == 0)


def _incoming(graph):
    """Return incoming edges except loops, weights of the loops, and degrees."""
    edges = graph.adjacency.tocoo()
    between = edges.row != edges.col
    edges = sparse.coo_array(
        (edges.data[between], (edges.col[between], edges.row[between])),
        shape=edges.shape,
    )
    return sparse.csr_array(edges), graph.adjacency.diagonal(), _degrees(graph)


def neighborhood(graph, nodes, n_layers, n_neighbors, rng):
    """Sample the subgraph of the messages that reach some nodes.

    In each layer, a newly reached node retains its loop and at most `n_neighbors` of
    its incoming edges, with greater weights so that sums over edges are unbiased.
    """
    incoming, loops, degrees = graph.derived("incoming", lambda: _incoming(graph))
    numbers, of_nodes = np.unique(nodes, return_inverse=True)
    place = np.full(graph.n_nodes, -1, dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    frontier = numbers
    edges: list = []
    for _ in range(n_layers):
        kept, targets, factor = _draw_edges(incoming, frontier, n_neighbors, rng)
        sources = incoming.indices[kept]
        new = np.unique(sources[place[sources] < 0])
        place[new] = np.arange(len(numbers), len(numbers) + len(new))
        numbers = np.concatenate([numbers, new])
        edges.append((place[sources], place[targets], factor * incoming.data[kept]))
        frontier = new
    with_loop = np.flatnonzero(loops[numbers])
    edges.append((with_loop, with_loop, loops[numbers[with_loop]]))
    first, second, weights = (
        np.concatenate(parts) for parts in zip(*edges, strict=True)
    )
    adjacency = sparse.csr_array(
        (weights.astype(np.float32), (first, second)), shape=(len(numbers),) * 2
    )
    sample = _Sample(graph.X[numbers], adjacency, degrees[numbers])
    return sample, numbers, of_nodes.ravel()


def _draw_edges(incoming, nodes, n_neighbors, rng):
    """Return positions and targets of the retained edges, and weight factors."""
    starts = incoming.indptr[nodes].astype(np.int64)
    degrees = incoming.indptr[nodes + 1] - starts
    owner = np.repeat(np.arange(len(nodes)), degrees)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    kept = np.ones(len(owner), dtype=bool)
    drawn = np.flatnonzero(degrees[owner] > n_neighbors)
    # edges of each node in random order; the first of them are retained
    order = drawn[np.lexsort((rng.random(len(drawn)), owner[drawn]))]
    kept[order] = within[drawn] < n_neighbors
    owner = owner[kept]
    factor = np.maximum(degrees / n_neighbors, 1.0)
    return starts[owner] + within[kept], nodes[owner], factor[owner]


def train_nodes(
    module,
    train,
    valid=None,
    *,
    loss=cross_entropy,
    penalty=None,
    lr=1e-2,
    max_epochs=200,
    options,
    batch_size=None,
    n_neighbors=10,
    n_layers=2,
    seed=0,
    bar=None,
):
    """Train a network; with validation nodes return to the best weights."""
    make, defaults = OPTIMIZERS[options.optimizer]
    optimizer = make(
        module.parameters(), lr=lr, weight_decay=options.weight_decay, **defaults
    )
    n_steps = 1 if batch_size is None else -(-len(train.nodes) // batch_size)
    schedule, by_step = make_schedule(
        options.lr_schedule, optimizer, max_epochs, n_steps
    )
    rng = np.random.default_rng(seed)
    history: list[dict] = []
    best_loss, best_state, waited = np.inf, None, 0

    def objective(rows):
        nodes, codes, weight = rows.on_device()
        outputs = _outputs(module, rows.tensors)
        value = (loss(outputs[nodes], codes) * weight).mean()
        return value if penalty is None else value + penalty(outputs, rows.numbers)

    def step(rows):
        optimizer.zero_grad()
        value = objective(rows)
        value.backward()
        optimizer.step()
        if by_step:
            schedule.step()
        return float(value.detach())

    while len(history) < max_epochs and waited < options.n_iter_no_change:
        module.train()
        if batch_size is None:
            done = {"train_loss": step(train)}
        else:
            batches = _sampled(train, batch_size, n_layers, n_neighbors, rng)
            total = sum(step(batch) * len(batch.nodes) for batch in batches)
            done = {"train_loss": total / len(train.nodes)}
        history.append(done)
        if schedule is not None and not by_step:
            schedule.step()
        check_finite(module, done["train_loss"], len(history))
        if valid is not None:
            with torch.no_grad(), evaluating(module):
                done["valid_loss"] = float(objective(valid))
            if not np.isfinite(done["valid_loss"]):
                raise ValueError(
                    f"The loss of the validation nodes was {done['valid_loss']} in "
                    f"epoch {len(history)}: their features are too large for the "
                    "network. Scale them like the training nodes."
                )
            waited = 0 if done["valid_loss"] < best_loss - options.tol else waited + 1
            if done["valid_loss"] < best_loss:
                best_loss = done["valid_loss"]
                best_state = copy.deepcopy(module.state_dict())
        if bar is not None:
            bar.set_postfix(**{name: f"{value:.3g}" for name, value in done.items()})
            bar.update(1)
    if best_state is not None:
        module.load_state_dict(best_state)
    module.eval()
    return history


def _outputs(module, tensors):
    """Run a network on a graph; raise if it does not return one row per node."""
    outputs = module(tensors)
    n_nodes = tensors.shape[0]
    if not isinstance(outputs, torch.Tensor):
        found = f"an object of type {type(outputs).__name__}"
    elif outputs.ndim != 2 or outputs.shape[0] != n_nodes:
        found = f"a tensor of shape {tuple(outputs.shape)}"
    else:
        return outputs
    raise ValueError(
        f"The network must return a tensor with a row for each of the {n_nodes} nodes "
        f"of the graph, got {found}."
    )


def _sampled(rows, batch_size, n_layers, n_neighbors, rng):
    """Yield the nodes of each batch as nodes of a sampled graph."""
    tensors = rows.tensors
    for part in row_batches(len(rows.nodes), batch_size, shuffle=True):
        batch = rows.part(part)
        graph, numbers, of_nodes = neighborhood(
            tensors.graph, batch.nodes, n_layers, n_neighbors, rng
        )
        sampled = GraphTensors(graph, tensors.device, tensors.dtype)
        yield replace(batch, tensors=sampled, nodes=of_nodes, numbers=numbers)

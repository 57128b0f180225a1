"""Graph neural networks: modules that map `GraphTensors` to one row per node."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
from collections.abc import Callable
from itertools import pairwise
from numbers import Integral

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from skood.graph._node_set import NodeSet
from skood.graph._tensors import SparseRows, attend
from skood.utils._warnings import warn


class FeatureDropout(nn.Dropout):
    """Dropout that also supports sparse features: their zeros stay zeros."""

    def forward(self, x):
        """Drop values."""
        if not self.training or self.p == 0:
            return x
        if isinstance(x, SparseRows):
            return x.with_values(self._drop(x.values))
        return self._drop(x)

    def _drop(self, values):
        if values.device.type != "cpu":
            return super().forward(values)
        return _dropped(values, self.p)


def _dropped(values, p):
    """Return values after dropout; on the CPU this takes half the time of torch's."""
    mask = torch.rand_like(values).ge_(p)
    return values * mask.div_(1 - p)


class FeatureLinear(nn.Module):
    """Linear map without bias that also supports sparse features."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x):
        """Map samples."""
        if isinstance(x, SparseRows):
            return x @ self.weight.T
        return functional.linear(x, self.weight)


def check_widths(hidden):
    """Return the numbers of hidden units as a tuple of int, or raise."""
    widths = tuple(hidden) if np.iterable(hidden) else (0,)
    if any(not isinstance(width, Integral) or width < 1 for width in widths):
        raise ValueError(f"hidden must hold widths of at least 1, got {hidden!r}.")
    return tuple(int(width) for width in widths)


def _dropouts(n_layers, dropout, input_dropout=None):
    """Return the dropout before each layer; of the features None is as `dropout`."""
    of_features = dropout if input_dropout is None else input_dropout
    for name, value in (("dropout", dropout), ("input_dropout", of_features)):
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be in the range [0, 1), got {value!r}.")
    values = [of_features, *[dropout] * (n_layers - 1)]
    return nn.ModuleList(FeatureDropout(value) for value in values)


def _norms(hidden, batch_norm):
    """Return the batch normalization after each hidden layer, or identities."""
    return nn.ModuleList(
        nn.BatchNorm1d(width) if batch_norm else nn.Identity() for width in hidden
    )


def check_propagation(n_steps, teleport):
    """Raise if the number of steps or the teleport are out of their range."""
    if not isinstance(n_steps, Integral) or n_steps < 0 or not 0 <= teleport <= 1:
        raise ValueError(
            "Propagation needs n_steps of at least 0 and a teleport in the range "
            f"[0, 1]; got n_steps={n_steps} and teleport={teleport}."
        )


def _head(n_in, n_classes):
    """Return the linear layer that gives the logits."""
    head = nn.Linear(n_in, n_classes)
    nn.init.xavier_uniform_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def _dense(x):
    return x.to_dense() if isinstance(x, SparseRows) else x


def _map_and_aggregate(graph, kind, layer, h):
    """Map linearly and aggregate, in the faster order."""
    # columns of the product with the operator, twice if the backward pass needs them
    n_out, n_in = layer.weight.shape
    n_in *= 1 + getattr(h, "requires_grad", False)
    n_out *= 1 + torch.is_grad_enabled()
    if n_in < n_out and not isinstance(h, SparseRows):
        return layer(graph.aggregate(kind, h))
    return graph.aggregate(kind, layer(h))


class _GraphNetwork(nn.Module):
    """Base class of networks: hidden layers, then aggregation, then a linear head."""

    head_factor = 1  # width of the embedding, per hidden unit
    activation = staticmethod(torch.relu)
    _hidden: Callable  # (graph, layer, h): a hidden layer before bias and activation
    _embedding: Callable  # (graph, h): the last aggregation

    def __init__(
        self,
        n_features,
        n_classes,
        hidden=(64,),
        dropout=0.5,
        batch_norm=False,
        input_dropout=None,
    ):
        super().__init__()
        hidden = check_widths(hidden)
        self.n_layers = len(hidden) + 1
        widths = [n_features, *hidden]
        self.dropouts = _dropouts(self.n_layers, dropout, input_dropout)
        self.layers = nn.ModuleList(self._layer(*pair) for pair in pairwise(widths))
        self.biases = nn.ParameterList(torch.zeros(width) for width in hidden)
        self.norms = _norms(hidden, batch_norm)
        self.head = _head(self.head_factor * widths[-1], n_classes)

    def _layer(self, n_in, n_out):
        return FeatureLinear(n_in, n_out)

    def forward(self, graph):
        """Return the logits of all nodes."""
        h = graph.x
        *before, last = self.dropouts
        parts = zip(before, self.layers, self.biases, self.norms, strict=True)
        for dropout, layer, bias, norm in parts:
            h = self._hidden(graph, layer, dropout(h)) + bias
            h = self.activation(norm(h))
        h = _dense(last(h))
        # Aggregation and the head commute. The head comes last, since its input is the
        # embeddings; in training it comes first if this is faster.
        weight, bias = self.head.weight, self.head.bias
        if self.training and weight.shape[0] < h.shape[1]:
            return self._embedding_map(graph, h, weight) + bias
        return self.head(self._embedding(graph, h))

    def _embedding_map(self, graph, h, weight):
        """Return a linear map of the embeddings, mapped before they are aggregated."""
        return self._embedding(graph, functional.linear(h, weight))


class GCN(_GraphNetwork):
    """Graph convolutional network (Kipf and Welling, 2017)."""

    def _hidden(self, graph, layer, h):  # Eq. (2) of the paper
        return _map_and_aggregate(graph, "symmetric", layer, h)

    def _embedding(self, graph, h):
        return graph.aggregate("symmetric", h)


class _OwnAndNeighbors(nn.Module):
    """Two linear maps: of a node, and of the mean of its neighbors."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.neighbors = FeatureLinear(n_in, n_out)
        self.own = FeatureLinear(n_in, n_out)


class SAGE(_GraphNetwork):
    """GraphSAGE with mean aggregation (Hamilton, Ying and Leskovec, 2017)."""

    head_factor = 2

    def _layer(self, n_in, n_out):
        return _OwnAndNeighbors(n_in, n_out)

    def _hidden(self, graph, layer, h):
        received = _map_and_aggregate(graph, "mean", layer.neighbors, h)
        return received + layer.own(h)

    def _embedding(self, graph, h):
        return torch.cat([graph.aggregate("mean", h), h], dim=1)

    def _embedding_map(self, graph, h, weight):
        of_neighbors, of_self = weight.chunk(2, dim=1)
        received = graph.aggregate("mean", functional.linear(h, of_neighbors))
        return received + functional.linear(h, of_self)


class APPNP(_GraphNetwork):
    """Perceptron with personalized PageRank propagation (Gasteiger et al., 2019)."""

    def __init__(
        self,
        n_features,
        n_classes,
        hidden=(64,),
        dropout=0.5,
        n_steps=10,
        teleport=0.1,
        batch_norm=False,
        input_dropout=None,
    ):
        super().__init__(
            n_features, n_classes, hidden, dropout, batch_norm, input_dropout
        )
        check_propagation(n_steps, teleport)
        self.n_layers = n_steps
        self.n_steps = n_steps
        self.teleport = teleport

    def _hidden(self, graph, layer, h):
        return layer(h)

    def _embedding(self, graph, h):
        start = self.teleport * h
        for _ in range(self.n_steps):  # Eq. (4) of the paper
            sent = graph.aggregate("symmetric", h)
            h = torch.add(start, sent, alpha=1 - self.teleport)
        return h


class _AttentionLayer(nn.Module):
    """Linear map, and sums over in-neighbors weighted by attention."""

    def __init__(self, n_in, n_out, heads, dropout):
        super().__init__()
        self.map = FeatureLinear(n_in, n_out)
        self.attention = _Attention(n_out, heads, dropout)


class _Attention(nn.Module):
    """Attention of each node to its in-neighbors and to itself, by heads."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.p = dropout
        self.source = nn.Parameter(torch.empty(1, heads, width // heads))
        self.target = nn.Parameter(torch.empty(1, heads, width // heads))
        nn.init.xavier_uniform_(self.source[0])
        nn.init.xavier_uniform_(self.target[0])

    def forward(self, graph, mapped, values):
        """Return sums of the values, weighted by attention of the mapped features."""
        edges, targets = graph.attention_edges
        n_heads = self.source.shape[1]
        by_head = mapped.unflatten(1, (n_heads, -1))
        sent, received = (
            (by_head * part).sum(2).index_select(0, ends)
            for part, ends in ((self.source, edges.columns), (self.target, targets))
        )
        scores = functional.leaky_relu(sent + received, 0.2)  # Eq. (3) of the paper
        return attend(edges, targets, scores, values, self._dropout)

    def _dropout(self, weights):
        return _dropped(weights, self.p) if self.training and self.p else weights


class GAT(_GraphNetwork):
    """Graph attention network (Veličković et al., 2018)."""

    uses_weights = False
    copies_edges = True
    activation = staticmethod(functional.elu)

    def __init__(
        self,
        n_features,
        n_classes,
        hidden=(64,),
        dropout=0.5,
        heads=8,
        batch_norm=False,
        input_dropout=None,
    ):
        hidden = check_widths(hidden)
        if heads < 1 or any(width % heads for width in hidden):
            raise ValueError(
                f"Each width of hidden={tuple(hidden)} must be a multiple of "
                f"heads={heads}, which must be at least 1. Set it by "
                "conv_params={'heads': ...}."
            )
        self._options = heads, dropout
        super().__init__(
            n_features, n_classes, hidden, dropout, batch_norm, input_dropout
        )
        self.attention = _Attention(n_classes, 1, dropout)

    def _layer(self, n_in, n_out):
        return _AttentionLayer(n_in, n_out, *self._options)

    def _hidden(self, graph, layer, h):  # Eqs. (4) and (5) of the paper
        mapped = layer.map(h)
        return layer.attention(graph, mapped, mapped)

    def _embedding(self, graph, h):
        return self.attention(graph, functional.linear(h, self.head.weight), h)

    def _embedding_map(self, graph, h, weight):
        mapped = functional.linear(h, weight)
        return self.attention(graph, mapped, mapped)


NETWORKS = {"gcn": GCN, "gat": GAT, "sage": SAGE, "appnp": APPNP}


class EdgeModule(nn.Module):
    """Wrapper of a module ``module(x, edge_index)``, which may modify its input."""

    copies_edges = True

    def __init__(self, module):
        super().__init__()
        for name, child in module.named_modules():
            if getattr(child, "cached", False):
                raise ValueError(
                    f"The layer {name!r} was made with cached=True: it stores the "
                    "first graph, and would use it for any other. Set its attribute "
                    "cached to False."
                )
        self.module = module
        weight = _weight_parameter(module)
        self.needs_weights = weight is not None and weight.default is weight.empty
        # models of torch_geometric accept weights even if their layers do not
        self.uses_weights = weight is not None and bool(
            getattr(module, "supports_edge_weight", True)
        )
        # each message passing layer is a module of torch_geometric, of K steps or one
        layers = [m for m in module.modules() if hasattr(m, "message")]
        self.n_layers = sum(getattr(m, "K", None) or 1 for m in layers) or 2

    def forward(self, graph):
        """Return the outputs for all nodes."""
        x, edge_index = graph.dense.clone(), graph.edge_index.clone()
        if self.uses_weights and graph.edge_weight is not None:
            weight = graph.edge_weight.clone()
        elif self.needs_weights:
            weight = x.new_ones(edge_index.shape[1])
        else:
            return self.module(x, edge_index)
        return self.module(x, edge_index, edge_weight=weight)


def _weight_parameter(module):
    """Return the parameter ``edge_weight`` of a module, or None if it has none."""
    signature = inspect.signature(module.forward)
    weight = signature.parameters.get("edge_weight")
    try:
        signature.bind("x", "edge_index", **({"edge_weight": None} if weight else {}))
    except TypeError as error:
        raise TypeError(
            "A graph network is called as module(x, edge_index), with edge_weight= if "
            f"it has a parameter of this name, and {type(module).__name__} has "
            f"forward{signature}: {error}. Write a module around it that is called "
            "like that."
        ) from error
    return weight


def network_input(X, nodes, module):
    """Return the input of a network: nodes, or the features of an array `X`."""
    if not isinstance(X, NodeSet):
        return nodes.features
    warn_of_weights(nodes.graph, module)
    return nodes


def warn_of_weights(graph, module):
    """Warn if a graph has edge weights that a network does not use."""
    if graph.is_weighted and not getattr(module, "uses_weights", True):
        written = module.module if isinstance(module, EdgeModule) else module
        warn(
            f"The edges have weights, and {type(written).__name__} does not use them: "
            f"all {graph.adjacency.nnz} edges count the same. A module that takes "
            "edge_weight is given them, and conv='gcn', 'sage' and 'appnp' of "
            "GraphClassifier use them."
        )

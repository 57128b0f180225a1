"""Reader of graph networks: embeddings of nodes, logits, and the head between them.

The layers of torch_geometric that aggregate and map linearly are decomposed into a
linear head on aggregated embeddings.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import ExitStack, contextmanager

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted
from torch import nn

from skood.graph._forward_hooks import GraphWatcher, is_convolution, named_layers
from skood.graph._graph_network import GraphNetwork
from skood.graph._linear_convolutions import linear_form
from skood.graph._modules import EdgeModule, FeatureLinear
from skood.graph._node_set import Graph, iter_graphs
from skood.graph._tensors import graph_tensors
from skood.nn._forward_hooks import parse_layer, primary_tensor
from skood.nn._outputs import Reading
from skood.nn._torch_reader import ModuleReader, _weights, borrowed
from skood.utils._torch import parameter_dtype

__all__ = ["GraphReader", "graph_reader"]


class GraphReader(ModuleReader):
    """Reader of graph networks: `GraphClassifier`, `pretrained_graph`.

    Each graph is run as a whole, in one forward pass. Layers have the names of the
    user's module.

    Parameters
    ----------
    estimator : object
        A fitted estimator with ``module_``, which is called with `GraphTensors`, and
        ``_prepare_input``.

    is_skorch : bool
        False.

    layer, pooling, batch_size, device
        See `FeatureExtractor`; an integer counts convolutions and the linear layers
        outside of them. `batch_size` has no effect.
    """

    def __init__(self, estimator, *, is_skorch, layer, **options):
        super().__init__(estimator, is_skorch=is_skorch, layer="penultimate", **options)
        self.network = self.module
        if isinstance(self.network, EdgeModule):
            self.module = self.network.module
        if isinstance(layer, (int, np.integer)):
            layer = _named_by_number(self.module, layer)
        parse_layer(self.module, layer)  # an unknown name raises now
        self.layer = layer
        self.place = (layer, self.pooling)

    def iter_together(self, X, wanted):
        """Yield the readings of nodes: all of a set at once, arrays in blocks."""
        for graph, rows in iter_graphs(self.prepare(X)):
            yield self._read_graph(graph, rows, wanted)

    def _read_graph(self, graph, rows, wanted):
        with borrowed(self.module, self.device) as device, ExitStack() as stack:
            watchers = []
            for reader, _ in wanted:
                watcher = GraphWatcher(self.module, [reader.layer], reader.pooling)
                watchers.append(watcher)
                stack.callback(watcher.remove)
            tensors = graph_tensors(graph, device, parameter_dtype(self.module))
            output = primary_tensor(self.network(tensors))
            readings = []
            for (reader, want), watcher in zip(wanted, watchers, strict=True):
                found, features, logits = reader._taken(output, tensors, watcher, want)
                readings.append(
                    Reading(
                        None if features is None else features[rows],
                        None if logits is None else logits[rows],
                        reader._head(found) if "head" in want else None,
                    )
                )
            return readings

    def blocks(self, reading):
        """Return the reading of all nodes as one block, as `iter_read` does."""
        yield reading

    @contextmanager
    def watched(self, graph, layers=(), pooling=None):
        """Run the network on a graph with forward hooks.

        Parameters
        ----------
        graph : Graph
            The graph.

        layers : sequence of str, default=()
            Layers whose outputs are stored.

        pooling : str, default=None
            See `Watcher`.

        Yields
        ------
        watcher : GraphWatcher
            Hooks of this forward pass.

        output : torch.Tensor of shape (n_nodes, n_classes)
            Output of the network.

        tensors : GraphTensors
            Input of the network.
        """
        with borrowed(self.module, self.device) as device:
            watcher = GraphWatcher(self.module, layers, pooling)
            try:
                tensors = graph_tensors(graph, device, parameter_dtype(self.module))
                yield watcher, primary_tensor(self.network(tensors)), tensors
            finally:
                watcher.remove()

    def open_network(self, steps):
        """Return the layers of the network, see `make_network`."""
        return GraphNetwork(self, steps)

    def _head(self, found):
        """Return the weights of the logits' layer, if its input is the features."""
        if found is not None and not isinstance(found[1], nn.Module):
            # a convolution: its input is not yet aggregated
            if found[1] is None or self.layer != "penultimate":
                found = None
        return super()._head(found)

    def find_head(self):
        """Return the head without running nodes, and the name of its layer.

        If the number of features is known, a small graph finds the layer that gives the
        logits; otherwise it is the only one with an output per class.
        """
        if self.layer != "penultimate":
            return super().find_head()
        n_features = getattr(self.estimator, "n_features_in_", None)
        if n_features is not None:
            with self.watched(_small_graph(n_features)) as (watcher, output, _):
                return self._head(watcher.head_of(output)), self.layer
        n_classes = len(self.estimator.classes_)
        heads = {
            name: head
            for name, head in _linear_maps(self.module)
            if max(2, head.weight.shape[0]) == n_classes
        }
        if len(heads) != 1:
            raise ValueError(
                f"The network {type(self.module).__name__} cannot be split: without "
                "the number of features it is unknown which layer gives the "
                "logits. The linear ones with an output per class are: "
                f"{', '.join(heads) or 'none'}. If one of them does, give n_features "
                "to skood.graph.pretrained_graph."
            )
        (head,) = heads.values()
        return _weights(head), self.layer


def _small_graph(n_features):
    """Return a path of three nodes with distinct features."""
    X = np.linspace(-1, 1, 3 * n_features).reshape(3, n_features)
    edges = [0, 1, 1, 2], [1, 0, 2, 1]
    adjacency = sparse.csr_array((np.ones(4, np.float32), edges), shape=(3, 3))
    return Graph(X, adjacency)


def _named_by_number(module, number):
    """Return the name of a layer, from its index in the order of definition."""
    names = [name for name, _ in named_layers(module) if name]
    if not -len(names) <= number < len(names):
        raise ValueError(
            f"layer={number} is out of range: the network has {len(names)} linear "
            f"layers and convolutions: {names}."
        )
    return names[number]


def _linear_maps(module):
    """Yield the linear maps in a network, and their names."""
    for name, child in named_layers(module):
        head = linear_form(child) if is_convolution(child) else child
        if head is not None and not isinstance(child, FeatureLinear):
            yield name, head


def graph_reader(estimator, **options):
    """Return the reader of a fitted classifier of nodes: its ``__skood_network__``."""
    check_is_fitted(estimator)
    return GraphReader(estimator, is_skorch=False, **options)

"""Graph networks: embeddings of nodes, logits, the head between them, and layers.

The layers of torch_geometric that aggregate and map linearly are decomposed into a
linear head on aggregated embeddings.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from collections import OrderedDict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import check_is_fitted
from torch import nn

from skood.graph._modules import EdgeModule, FeatureLinear
from skood.graph._node_set import Graph, NodeSet, iter_graphs
from skood.graph._tensors import GraphTensors, SparseRows
from skood.nn._borrowed_module import (
    borrowed,
    check_first_axis,
    copied,
    finite_array,
    finite_logits,
)
from skood.nn._dropout_masks import (
    ThinnedModule,
    check_log_proba,
    does_not_run,
    dropped,
    logits_come_first,
)
from skood.nn._forward_hooks import Watcher, parse_layer, primary_tensor
from skood.nn._functional_network import plain_attention, symmetric
from skood.nn._make_network import make_network
from skood.nn._network import Layers
from skood.nn._outputs import Head, NetworkOutputs
from skood.nn._torch_network import TorchNetwork
from skood.utils._progress import progress
from skood.utils._torch import autocast, parameter_dtype, resolve_device, row_chunks

# Results are returned in blocks of about this many bytes.
_BLOCK_BYTES = 32 * 2**20


def graph_network(estimator, **options):
    """Return the network of a fitted classifier of nodes: its ``__skood_network__``."""
    check_is_fitted(estimator)
    return GraphNetwork(estimator, is_skorch=False, **options)


def graph_logits(classifier, X):
    """Return the logits of nodes, (n_samples, n_classes), float64."""
    network = make_network(classifier, device=classifier.device)
    return network.outputs(X, {"logits"}).logits.astype(np.float64)


class GraphNetwork(TorchNetwork):
    """Network of nodes: a graph is run as a whole, in one forward pass."""

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

    def outputs_together(self, X, wanted):
        """Yield the outputs for nodes: all of a set at once, arrays in blocks."""
        for graph, indices in iter_graphs(self.check_input(X)):
            yield self._outputs_of_graph(graph, indices, wanted)

    def _outputs_of_graph(self, graph, indices, wanted):
        requests = [([network.layer], network.pooling) for network, _ in wanted]
        with self.watched(graph, *requests) as (watchers, output, tensors):
            results = []
            for (network, needs), watcher in zip(wanted, watchers, strict=True):
                layer, z, logits = network._taken(output, tensors, watcher, needs)
                features = None if z is None else finite_array(z, "features")[indices]
                logits = None if logits is None else finite_logits(logits)[indices]
                head = network._head(layer) if "head" in needs else None
                results.append(NetworkOutputs(features, logits, head))
            return results

    def blocks(self, outputs):
        """Return the outputs of all nodes as one block, as `iter_outputs` does."""
        yield outputs

    @contextmanager
    def watched(self, graph, *requests):
        """Run a graph; yield a watcher per request (layers, pooling), output, input."""
        with borrowed(self.module, self.device) as device, ExitStack() as stack:
            watchers = []
            for layers, pooling in requests:
                watchers.append(GraphWatcher(self.module, layers, pooling))
                stack.callback(watchers[-1].remove)
            tensors = GraphTensors(graph, device, parameter_dtype(self.module))
            yield watchers, primary_tensor(self.network(tensors)), tensors

    def _head(self, head):
        """Return the weights of the logits' layer, if its input is the features."""
        if head is not None and not isinstance(head[1], nn.Module):
            # a convolution: its input is not yet aggregated
            if head[1] is None or self.layer != "penultimate":
                head = None
        return super()._head(head)

    def find_head(self):
        """Return the head without running given nodes, and the name of its layer."""
        if self.layer != "penultimate":
            return super().find_head()
        n_features = getattr(self.estimator, "n_features_in_", None)
        if n_features is not None:
            graph = _small_graph(n_features)
            with self.watched(graph, ((), None)) as ([watcher], output, _):
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
        return Head.of_linear(head), self.layer

    # --- layers --------------------------------------------------------------

    def prepare(self, X):
        """See `Network`."""
        return self.check_input(X)

    def layer_names(self, rows):
        """Return the layers that run, in this order, except the layer of the logits."""
        graph, _ = next(iter_graphs(rows[:2]))
        with self.watched(graph, ((), None)) as ([watcher], output, _):
            head = watcher.giver_of(output)
            names = [n for n in watcher.ran if head is None or n != head[0]]
        return names or ["penultimate"]

    def layers(self, rows, names, pooling="mean"):
        """See `Network`."""
        for graph, nodes in iter_graphs(rows):
            outputs, logits = self._layers_of(graph, nodes, names, pooling)
            n_bytes = logits.nbytes + sum(t.nbytes for t in outputs.values())
            for chunk in row_chunks(len(nodes), n_bytes // len(nodes), _BLOCK_BYTES):
                yield Layers({k: t[chunk] for k, t in outputs.items()}, logits[chunk])

    def _layers_of(self, graph, nodes, names, pooling):
        """Run a graph; return outputs of layers, and logits, for some nodes."""
        with self.watched(graph, (names, pooling)) as ([watcher], output, tensors):
            head = watcher.head_of(output)
            logits = finite_logits(self.logits_of(output, head, tensors))
            outputs = {}
            for layer in names:
                tensor = self.layer_output(layer, watcher, head).detach()
                check_first_axis(tensor, tensors, f"layer={layer!r}")
                tensor = tensor[torch.as_tensor(nodes, device=tensor.device)]
                if not torch.isfinite(tensor).all():
                    raise ValueError(f"layer={layer!r} gave NaN or infinity.")
                outputs[layer] = tensor
        return outputs, np.asarray(logits)[nodes]

    def input_gradient(self, rows, function, move):
        """Raise: not supported, see `Network`."""
        raise TypeError(
            self._not_row_by_row("moves each sample of X along a gradient")
            + " Or split the network, body, head = skood.nn.split(gnn), and use this "
            "one with estimator=head on the embeddings body.transform(nodes)."
        )

    def replaced(self, rows, names, function):
        """Raise: not supported, see `Network`."""
        raise TypeError(
            self._not_row_by_row("replaces what a layer gives for a sample")
        )

    def _not_row_by_row(self, what):
        return (
            f"This detector {what}, on its own. The logits of a node of a graph depend "
            "on the features of other nodes, too, so it cannot be used with the graph "
            f"network {type(self.module).__name__}. Use a detector that uses "
            "logits or features, such as Energy or KNN."
        )

    # --- weights -------------------------------------------------------------

    def copied_module(self, one_margin=False):
        raise TypeError(
            "A graph network cannot be opened as a function of its weights: its "
            "output for a node depends on the whole graph. Split it, body, head = "
            "skood.nn.split(gnn), and go on with the head and the embeddings, as "
            "in Laplace(head).fit(body.transform(nodes), y). MCDropout and "
            "DeepEnsemble take graph networks as they are."
        )

    def _thin(self, source, device, seed):
        return ThinnedGraph(self, source.estimator, device, seed)


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


class ThinnedGraph(ThinnedModule):
    """Thinned networks of a graph network, with the same masks for all nodes."""

    def __init__(self, network, estimator, device, seed):
        self.prepare = network.prepare
        self._graph_network = network
        self._n_classes = len(network.estimator.classes_)
        self._device = resolve_device(device)
        self._network = copied(network.network).to(self._device)
        for child in self._network.modules():
            child.training = False
        self._module = self._network
        if isinstance(self._network, EdgeModule):
            self._module = self._network.module
        self._tensors: Any = None  # the graph that is run
        self._is_known = False  # whether the following attribute is determined
        self._gives_logits = False
        self._layer_output = None  # output of this layer, if it is not the network's
        self._too_late: tuple | None = None  # a dropout module after it
        super().__init__(self._module, estimator, seed)

    def _drop(self, name, module, input):
        """Forward pass of a dropout module."""
        call, self._calls = self._calls, self._calls + 1
        if not self._is_known:
            return input
        if self._layer_output is not None:
            self._too_late = (name, self._layer_output)
        if input.shape[0] not in self._lengths():
            raise ValueError(
                f"The dropout module {name!r} is called with an array of shape "
                f"{tuple(input.shape)}, on a graph of {self._tensors.shape[0]} nodes "
                f"and {self._tensors.graph.adjacency.nnz} edges: its mask would depend "
                "on the graph. Build the network so that nodes, or edges, are the "
                "first axis in all of its layers."
            )
        mask = self._mask(call, self._shape(module, input), module.p, self._device)
        if isinstance(input, SparseRows):
            mask = mask[:, input.columns]
            return input.with_values(dropped(input.values[None], mask, module)[0])
        new = dropped(input, mask, module)
        return input.copy_(new) if module.inplace else new

    def _lengths(self):
        """Return the lengths of arrays with a row for each node, or each edge."""
        n_nodes, n_edges = self._tensors.shape[0], self._tensors.graph.adjacency.nnz
        n_loops = np.count_nonzero(self._tensors.graph.adjacency.diagonal())
        return {n_nodes, n_edges, n_edges + n_nodes, n_edges - n_loops + n_nodes}

    def _find_logits(self):
        """Find the layer that gives the logits, and store its output if needed."""
        watcher = GraphWatcher(self._module)
        try:
            output = primary_tensor(self._network(self._tensors))
            head = watcher.giver_of(output)
        finally:
            watcher.remove()
        if self._calls == 0:
            raise does_not_run(self._module)
        if head is not None and not torch.equal(head[3], output):
            # after a softmax the digits of confident predictions are lost
            head[1].register_forward_hook(self._keep)
        self._gives_logits = head is not None
        self._is_known = True

    def _keep(self, layer, args, output):
        self._layer_output = output[0] if isinstance(output, tuple) else output

    def _logits(self, member):
        """Return the logits of all nodes by one of the thinned networks."""
        self._member, self._calls, self._layer_output, self._too_late = (
            member,
            0,
            None,
            None,
        )
        output = primary_tensor(self._network(self._tensors))
        if self._layer_output is not None:
            if self._too_late is not None and self._too_late[1] is self._layer_output:
                raise logits_come_first(self._too_late[0])
            output = self._layer_output
        head = (None, None, None, output) if self._gives_logits else None
        return symmetric(self._graph_network.logits_of(output, head, self._tensors))

    def log_proba(self, samples, n_members, bar=None):
        """Return log-probabilities (n_members, n, n_classes) by thinned networks."""
        blocks = []
        bar = progress(1, desc="", verbose=0) if bar is None else bar
        is_graph = isinstance(samples, NodeSet)
        plain = autocast(self._device.type)
        with torch.inference_mode(False), torch.no_grad(), plain_attention(), plain:
            for graph, nodes in iter_graphs(samples):
                dtype = parameter_dtype(self._module)
                self._tensors = GraphTensors(graph, self._device, dtype)
                if not self._is_known:
                    self._find_logits()
                log_proba = np.empty((n_members, len(nodes), self._n_classes))
                for member in range(n_members):
                    logits = self._logits(member)[nodes].double()
                    log_proba[member] = torch.log_softmax(logits, 1).cpu().numpy()
                    bar.update(int(is_graph))
                blocks.append(check_log_proba(log_proba))
        self._tensors = self._layer_output = self._too_late = None  # releases the graph
        bar.update(int(not is_graph))
        return np.concatenate(blocks, axis=1)


@dataclass(frozen=True)
class LinearForm:
    """Linear map of a layer that also aggregates."""

    weight: torch.Tensor  # (n_outputs, n_inputs)
    bias: torch.Tensor | None  # (n_outputs,)


def linear_form(layer):
    """Return the linear map of a layer of torch_geometric; None of a subclass."""
    kind = type(layer)
    is_known = kind.__module__.startswith("torch_geometric.nn.conv.")
    return (
        _FORMS[kind.__name__](layer) if is_known and kind.__name__ in _FORMS else None
    )


def _weight(linear):
    return getattr(linear, "weight", None)


def _changed(layer, modules, parameters):
    """Return a copy of a layer with some parts replaced, and without hooks."""
    twin = copy.copy(layer)
    twin._modules = {**layer._modules, **modules}
    twin._parameters = {**layer._parameters, **parameters}
    # the arguments have already passed the hooks
    twin._forward_hooks = OrderedDict()
    twin._forward_pre_hooks = OrderedDict()
    return twin


# --- GCNConv: sum over neighbors of weight * W x, plus b --------------------------


def _gcn(layer):
    weight = _weight(layer.lin)
    if weight is None or layer.aggr not in ("add", "sum", "mean"):
        return None
    return LinearForm(weight, layer.bias)


def _gcn_features(layer, x, edge_index, edge_weight=None):
    twin = _changed(layer, {"lin": torch.nn.Identity()}, {"bias": None})
    return twin(x, edge_index, edge_weight)


# --- SAGEConv: W_l (any aggregate of x) + b + W_r x --------------------------------


def _sage(layer):
    if layer.normalize or layer.project:
        return None
    weights = [_weight(layer.lin_l)]
    if layer.root_weight:
        weights.append(_weight(layer.lin_r))
    if any(weight is None for weight in weights):
        return None
    return LinearForm(torch.cat(weights, dim=1), layer.lin_l.bias)


def _sage_features(layer, x, edge_index, size=None):
    if not torch.is_tensor(x):
        return None
    twin = _changed(layer, {"lin_l": torch.nn.Identity()}, {})
    twin.root_weight = False
    features = twin(x, edge_index, size)
    return torch.cat([features, x], dim=1) if layer.root_weight else features


# --- GATConv: for each head, sum over neighbors of attention * W x ------------------


def _gat(layer):
    weight = _weight(layer.lin if layer.lin is not None else layer.lin_src)
    if weight is None or layer.aggr not in ("add", "sum"):
        return None
    weight = weight.view(layer.heads, -1, weight.shape[1])
    if layer.concat:
        weight = torch.block_diag(*weight)
    else:
        weight = torch.cat(list(weight / layer.heads), dim=1)
    if getattr(layer, "res", None) is not None:  # residual of the node's own values
        weight = torch.cat([weight, layer.res.weight], dim=1)
    return LinearForm(weight, layer.bias)


def _gat_features(
    layer, x, edge_index, edge_attr=None, size=None, return_attention_weights=None
):
    if not (torch.is_tensor(x) and torch.is_tensor(edge_index)):
        return None
    if edge_index.layout != torch.strided:
        return None
    twin = _changed(layer, {}, {})
    _, (edges, attention) = twin(
        x, edge_index, edge_attr, size, return_attention_weights=True
    )
    if layer.flow == "source_to_target":
        edges = edges.flip(0)
    shape = (x.shape[0], x.shape[0])
    # torch warns if checks are neither enabled nor disabled
    options: dict = {"size": shape, "check_invariants": False}
    features = [
        torch.sparse_coo_tensor(edges, attention[:, head], **options) @ x
        for head in range(layer.heads)
    ]
    if getattr(layer, "res", None) is not None:
        features.append(x)
    return torch.cat(features, dim=1)


_FORMS: dict = {"GATConv": _gat, "GCNConv": _gcn, "SAGEConv": _sage}

# Functions that return the input of the linear map, (n_nodes, n_inputs).
_FEATURES: dict = {
    "GATConv": _gat_features,
    "GCNConv": _gcn_features,
    "SAGEConv": _sage_features,
}


def is_convolution(module):
    """Return whether a module is a message passing layer of torch_geometric."""
    return hasattr(module, "message") and hasattr(module, "propagate")


def _is_linear(module):
    """Return whether a module is a linear layer, of torch or torch_geometric."""
    kind = type(module)
    return isinstance(module, (nn.Linear, FeatureLinear)) or (
        kind.__name__ == "Linear" and kind.__module__.startswith("torch_geometric.nn")
    )


def named_layers(module):
    """Yield the convolutions and the linear layers outside of them, with names."""
    inside: tuple = ()
    for name, child in module.named_modules():
        if name.startswith(inside) and inside:
            continue
        if is_convolution(child):
            yield name, child
            inside = (*inside, f"{name}." if name else "")
        elif _is_linear(child):
            yield name, child


class GraphWatcher(Watcher):
    """Forward hooks that also record the layers of torch_geometric, see `Watcher`."""

    def __init__(self, module, layers=(), pooling=None):
        self.convolutions: dict = {}
        super().__init__(module, layers, pooling)
        for name, child in named_layers(module):
            if isinstance(child, nn.Linear):
                continue  # hooked already
            self._hook(child.register_forward_hook, self._ran, name)
            if is_convolution(child):
                self._hook(child.register_forward_hook, self._convolution, name)
            elif not isinstance(child, FeatureLinear):
                self._hook(child.register_forward_hook, self._linear, name)

    def _convolution(self, name, module, args, kwargs, output):
        if isinstance(output, tuple) and output:  # with attention weights
            output = output[0]
        if isinstance(output, torch.Tensor):
            call = (args, kwargs)
            self.convolutions[name] = (name, module, call, output)
            values = _values(args, kwargs)
            if values is not None:
                self.last = (name, module, values, output)

    def forget(self):
        """Release the results of a forward pass."""
        super().forget()
        self.convolutions = {}

    def giver_of(self, output):
        """Return name, layer, input and logits of the layer that gives the logits."""
        head = super().head_of(output)
        if head is None and self.convolutions:
            candidates, self.candidates = self.candidates, self.convolutions
            head = super().head_of(output)
            self.candidates = candidates
        return head

    def head_of(self, output):
        """Return name, linear map or None, its input, and logits of the last layer."""
        head = self.giver_of(output)
        if head is None or not is_convolution(head[1]):
            return head
        name, layer, (args, kwargs), logits = head
        if (form := linear_form(layer)) is not None:
            features = _FEATURES[type(layer).__name__](layer, *args, **kwargs)
            if features is not None:
                return name, form, features, logits
        values = _values(args, kwargs)
        return None if values is None else (name, None, values, logits)


def _values(args, kwargs):
    """Return the values of the nodes among the arguments of a convolution."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, (tuple, list)) and value:  # of sources and targets
            value = value[-1]
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value
    return None

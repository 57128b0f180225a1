"""Networks that result from the dropout masks of one graph network (MC dropout)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import Any

import numpy as np
import torch

from skood.graph._forward_hooks import GraphWatcher
from skood.graph._modules import EdgeModule
from skood.graph._node_set import NodeSet, iter_graphs
from skood.graph._tensors import GraphTensors, SparseRows
from skood.nn._borrowed_module import copied
from skood.nn._dropout_masks import (
    ThinnedModule,
    check_log_proba,
    does_not_run,
    dropped,
    logits_come_first,
)
from skood.nn._forward_hooks import primary_tensor
from skood.nn._functional_network import plain_attention, symmetric
from skood.utils._progress import progress
from skood.utils._torch import parameter_dtype, resolve_device


class ThinnedGraph(ThinnedModule):
    """Thinned networks of a graph network, with the same masks for all nodes.

    The masks depend only on the number of the thinned network; see `ThinnedModule`.
    """

    def __init__(self, network, estimator, device, seed):
        self.prepare = network.prepare
        self._graph_network = network
        self._n_classes = len(network.estimator.classes_)
        self._device = resolve_device(device)
        self._network = copied(network.network).to(self._device)
        for part in self._network.modules():
            part.training = False
        self._module = self._network
        if isinstance(self._network, EdgeModule):
            self._module = self._network.module
        self._tensors: Any = None  # the graph that is run
        self._is_known = False  # whether the following attribute is determined
        self._gives_logits = False
        self._kept = None  # output of this layer, if it is not the network's
        self._too_late: tuple | None = None  # a dropout module after it
        super().__init__(self._module, estimator, seed)

    def _drop(self, name, module, x):
        """Forward pass of a dropout module."""
        call, self._calls = self._calls, self._calls + 1
        if not self._is_known:
            return x
        if self._kept is not None:
            self._too_late = (name, self._kept)
        if x.shape[0] not in self._lengths():
            raise ValueError(
                f"The dropout module {name!r} is called with an array of shape "
                f"{tuple(x.shape)}, on a graph of {self._tensors.shape[0]} nodes and "
                f"{self._tensors.graph.adjacency.nnz} edges: its mask would depend on "
                "the graph. Build the network so that nodes, or edges, are the first "
                "axis in all of its layers."
            )
        mask = self._mask(call, self._shape(module, x), module.p)
        if isinstance(x, SparseRows):
            mask = mask[:, x.columns.cpu()]
            return x.with_values(dropped(x.values[None], mask, module)[0])
        new = dropped(x, mask, module)
        return x.copy_(new) if module.inplace else new

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
            found = watcher.giver_of(output)
        finally:
            watcher.remove()
        if self._calls == 0:
            raise does_not_run(self._module)
        if found is not None and not torch.equal(found[3], output):
            # after a softmax the digits of confident predictions are lost
            found[1].register_forward_hook(self._keep)
        self._gives_logits = found is not None
        self._is_known = True

    def _keep(self, layer, args, output):
        self._kept = output[0] if isinstance(output, tuple) else output

    def _logits(self, member):
        """Return the logits of all nodes by one of the thinned networks."""
        self._member, self._calls, self._kept, self._too_late = member, 0, None, None
        output = primary_tensor(self._network(self._tensors))
        if self._kept is not None:
            if self._too_late is not None and self._too_late[1] is self._kept:
                raise logits_come_first(self._too_late[0])
            output = self._kept
        found = (None, None, None, output) if self._gives_logits else None
        return symmetric(self._graph_network.logits_of(output, found, self._tensors))

    def log_proba(self, rows, n_members, bar=None):
        """Return the log-probabilities by the first `n_members` thinned networks.

        Returns an array of shape (n_members, n_rows, n_classes).
        """
        parts = []
        bar = progress(1, desc="", verbose=0) if bar is None else bar
        is_graph = isinstance(rows, NodeSet)
        with torch.inference_mode(False), torch.no_grad(), plain_attention():
            for graph, nodes in iter_graphs(rows):
                dtype = parameter_dtype(self._module)
                self._tensors = GraphTensors(graph, self._device, dtype)
                if not self._is_known:
                    self._find_logits()
                part = np.empty((n_members, len(nodes), self._n_classes))
                for member in range(n_members):
                    logits = self._logits(member)[nodes].double()
                    part[member] = torch.log_softmax(logits, 1).cpu().numpy()
                    bar.update(int(is_graph))
                parts.append(check_log_proba(part))
        self._tensors = self._kept = self._too_late = None  # releases the graph
        bar.update(int(not is_graph))
        return np.concatenate(parts, axis=1)

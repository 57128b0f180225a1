"""Access to the layers of a graph network, for detectors that use several layers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import torch

from skood.graph._dropout_masks import ThinnedGraph
from skood.graph._node_set import iter_graphs
from skood.nn._network import Layers, Network
from skood.nn._torch_reader import check_first_axis, finite_logits
from skood.utils._torch import row_chunks

__all__ = ["GraphNetwork"]

# Results are returned in blocks of about this many bytes.
_BLOCK_BYTES = 32 * 2**20


class GraphNetwork(Network):
    """Layers of a graph network; its samples cannot be moved one by one.

    Each graph is run as a whole. Only layers with one output row per node are
    supported.
    """

    reads_graphs = True

    def thinned(self, estimator, device, seed):
        """Return the thinned networks of MC dropout, see `ThinnedGraph`."""
        return ThinnedGraph(self, estimator, device, seed)

    def _checked(self, X):
        return self.reader.prepare(X)

    def layer_names(self, rows):
        """Return the convolutions and linear layers, without the layer of the logits.

        These are the layers that run, in the order of execution.
        """
        graph, _ = next(iter_graphs(rows[:2]))
        with self.reader.watched(graph) as (watcher, output, _):
            found = watcher.giver_of(output)
            names = [n for n in watcher.ran if found is None or n != found[0]]
        return names or ["penultimate"]

    def iter_layers(self, rows, layers, pooling="mean"):
        """See `Network`."""
        for graph, nodes in iter_graphs(rows):
            outputs, logits = self._read(graph, nodes, layers, pooling)
            n_bytes = logits.nbytes + sum(t.nbytes for t in outputs.values())
            for part in row_chunks(len(nodes), n_bytes // len(nodes), _BLOCK_BYTES):
                yield Layers({k: t[part] for k, t in outputs.items()}, logits[part])

    def _read(self, graph, nodes, layers, pooling):
        """Run a graph; return outputs of layers, and logits, for some nodes."""
        reader = self.reader
        with reader.watched(graph, layers, pooling) as (watcher, output, tensors):
            found = watcher.head_of(output)
            logits = finite_logits(reader.logits_of(output, found, tensors))
            outputs = {}
            for layer in layers:
                tensor = reader.layer_output(layer, watcher, found).detach()
                check_first_axis(tensor, tensors, f"layer={layer!r}")
                tensor = tensor[torch.as_tensor(nodes, device=tensor.device)]
                if not torch.isfinite(tensor).all():
                    raise ValueError(f"layer={layer!r} gave NaN or infinity.")
                outputs[layer] = tensor
        return outputs, np.asarray(logits)[nodes]

    def iter_moved(self, rows, cotangent, move):
        """Raise: not supported, see `Network`."""
        raise TypeError(
            self._not_row_by_row("moves each row of X along a gradient")
            + " Or split the network, body, head = skood.nn.split(gnn), and use this "
            "one with estimator=head on the embeddings body.transform(nodes)."
        )

    def iter_replaced(self, rows, layers, function):
        """Raise: not supported, see `Network`."""
        raise TypeError(self._not_row_by_row("replaces what a layer gives for a row"))

    def _not_row_by_row(self, what):
        return (
            f"This detector {what}, on its own. The logits of a node of a graph depend "
            "on the features of other nodes, too, so it cannot be used with the graph "
            f"network {type(self.reader.module).__name__}. Use a detector that reads "
            "logits or features, such as Energy or KNN."
        )

"""Nodes of graphs as samples, graph neural networks as classifiers, and propagation.

Names, and torch and torch_geometric with the names that need them, are imported on
first use.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.graph._node_set import NodeSet
from skood.utils._optional import lazy_names

if TYPE_CHECKING:
    from skood.graph._classifier import GraphClassifier
    from skood.graph._gkde import GKDE
    from skood.graph._gkde_network import GKDENetwork
    from skood.graph._gpn import GraphPosteriorNetwork
    from skood.graph._pretrained import pretrained_graph
    from skood.graph._propagation import Propagation, propagate

__all__ = [
    "GKDE",
    "GKDENetwork",
    "GraphClassifier",
    "GraphPosteriorNetwork",
    "NodeSet",
    "Propagation",
    "pretrained_graph",
    "propagate",
]

# Names that are imported on first use, and the file that defines them.
_LAZY = {
    "GKDE": "._gkde",
    "GKDENetwork": "._gkde_network",
    "GraphClassifier": "._classifier",
    "GraphPosteriorNetwork": "._gpn",
    "Propagation": "._propagation",
    "pretrained_graph": "._pretrained",
    "propagate": "._propagation",
}

__getattr__, __dir__ = lazy_names(__name__, __all__, _LAZY)

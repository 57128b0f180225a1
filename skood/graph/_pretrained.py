"""Frozen classifier from a trained graph network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import column_or_1d

from skood.graph._graph_network import graph_logits, graph_network
from skood.graph._modules import EdgeModule, network_input
from skood.graph._node_set import as_nodes
from skood.nn._logits import LogitsMixin
from skood.utils._estimator import SkoodEstimator
from skood.utils._stored import stored


@stored
class _PretrainedGraph(LogitsMixin, ClassifierMixin, SkoodEstimator):
    """Trained graph network as a fitted classifier; see `pretrained_graph`."""

    __skood_network__ = graph_network

    def __init__(self, module, classes, output, n_features, device):
        self.module = module
        self.classes = classes
        self.output = output
        self.n_features = n_features
        self.device = device

    def __sklearn_is_fitted__(self):
        return True

    @property
    def module_(self):
        """Wrapped network, called with `GraphTensors`."""
        return EdgeModule(self.module)

    @property
    def classes_(self):
        """Class labels, in the order of the outputs."""
        return self.classes

    @property
    def n_features_in_(self):
        """Number of features of a node, if it was given."""
        if self.n_features is None:
            raise AttributeError("n_features was not given to pretrained_graph.")
        return self.n_features

    def _prepare_input(self, X):
        nodes = as_nodes(X, estimator=self)
        if self.n_features not in (None, nodes.shape[1]):
            raise ValueError(
                f"X has {nodes.shape[1]} features, but the network "
                f"{type(self.module).__name__} is expecting {self.n_features} features "
                "as input."
            )
        return network_input(X, nodes, self.module_)

    def fit(self, X, y=None):
        """Raise, because the module is already trained."""
        raise TypeError(
            "A pretrained module is not fitted again. Keep it in the FrozenEstimator "
            "that skood.graph.pretrained_graph returned, or train a "
            "skood.graph.GraphClassifier."
        )

    def predict_logits(self, X):
        """Return the logits, an ndarray of shape (n_samples, n_classes)."""
        return graph_logits(self, X)


def pretrained_graph(
    module, classes, *, output="logits", n_features=None, device="auto"
):
    """Wrap a trained graph network as a frozen scikit-learn classifier of nodes.

    The module is run in eval mode and without gradients on the whole graph of a
    :class:`NodeSet`, and is restored afterwards: training mode of each submodule,
    buffers, gradients, hooks, device. It is not copied.

    Parameters
    ----------
    module : torch.nn.Module
        A trained network, called as ``module(x, edge_index)``, with ``edge_weight=`` if
        it has a parameter of this name and the graph has weights, or the parameter has
        no default. It returns a row of logits for each node.

    classes : array-like of shape (n_classes,)
        Class labels in the order of the outputs.

    output : {"logits", "probabilities"}, default="logits"
        Output of the module. A softmax or log-softmax directly after the layer that
        gives the logits is recognized in any case.

    n_features : int, default=None
        Number of features of a node. If given, nodes with another number raise, and
        :func:`skood.nn.split` finds the head by running a small graph; otherwise only
        if a single linear layer has an output per class.

    device : str, default="auto"
        Device of the module: "auto" is the device of its weights, from which it is not
        moved.

    Returns
    -------
    estimator : FrozenEstimator
        With ``classes_``, ``predict``, ``predict_proba``, ``decision_function`` and
        ``predict_logits``; ``clone`` returns it unchanged.

    Raises
    ------
    TypeError
        If `module` is not a torch module, or cannot be called with these arguments.
    ValueError
        If `classes` has duplicates, `n_features` is not positive, or the module has
        layers that cache the first graph that they get.

    Warns
    -----
    SkoodWarning
        In predictions, if the graph has edge weights that the module does not use.

    See Also
    --------
    GraphClassifier : Train a network.
    skood.nn.FeatureExtractor : Embeddings of nodes.

    Notes
    -----
    The features for detectors are the input of the last linear map. The layers
    ``GCNConv``, ``GATConv`` and ``SAGEConv`` of torch_geometric are decomposed into
    aggregation and a linear map; if another kind of layer comes last, its input is
    used.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skood.detectors import Energy
    >>> from skood.graph import NodeSet, pretrained_graph
    >>> class Mean(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.linear = torch.nn.Linear(4, 3)
    ...
    ...     def forward(self, x, edge_index):
    ...         sums = x.index_add(0, edge_index[1], x[edge_index[0]])
    ...         return self.linear(sums)
    >>> clf = pretrained_graph(Mean(), classes=["a", "b", "c"])
    >>> rng = np.random.default_rng(0)
    >>> nodes = NodeSet((rng.normal(size=(20, 4)), rng.random((20, 20)) < 0.2))
    >>> Energy(estimator=clf).fit(nodes).score_samples(nodes[:5]).shape
    (5,)
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"module must be a trained torch.nn.Module, got {type(module).__name__}. "
            "Pass a module class to skood.graph.GraphClassifier(conv=...) to train one."
        )
    if output not in ("logits", "probabilities"):
        raise ValueError(
            f"output must be 'logits' or 'probabilities', got {output!r} instead."
        )
    classes = column_or_1d(classes)
    if len(np.unique(classes)) != len(classes) or len(classes) < 2:
        raise ValueError(
            f"classes must be at least two distinct labels, got {classes.tolist()}."
        )
    if n_features is not None and not (
        isinstance(n_features, Integral) and int(n_features) >= 1
    ):
        raise ValueError(
            f"n_features must be a whole number above zero, got {n_features!r}."
        )
    EdgeModule(module)  # raises if it cannot be called
    return FrozenEstimator(
        _PretrainedGraph(module, classes, output, n_features, device)
    )

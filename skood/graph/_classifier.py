"""Node classifier that trains a graph neural network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import inspect
from numbers import Integral

import torch

from skood.graph._base_node_classifier import BaseGraphClassifier
from skood.graph._graph_network import graph_logits, graph_network
from skood.graph._modules import NETWORKS, EdgeModule
from skood.nn._logits import LogitsMixin
from skood.nn._training import WeightedCriterion
from skood.utils._input import takes_input
from skood.utils._param_validation import Interval, StrOptions


class GraphClassifier(LogitsMixin, BaseGraphClassifier):
    r"""Node classifier that trains a graph neural network in `fit`.

    Each layer of the network maps the values of the nodes linearly and aggregates them
    over neighbors. A GCN [1]_ with one hidden layer has the logits

    .. math:: L = \hat A \, \max(0, \hat A X W_1 + b_1) \, W_2 + b_2 , \qquad
        \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2} .

    Read more in the :ref:`User Guide <graph>`.

    Parameters
    ----------
    conv : {"gcn", "gat", "sage", "appnp"} or callable, default="gcn"
        The kind of network: graph convolutions [1]_, attention [2]_ (eight heads in
        hidden layers), GraphSAGE with means [3]_, or a perceptron whose embeddings are
        propagated by personalized PageRank [4]_. Or a module class or another factory,
        called as ``conv(n_features, n_classes, **conv_params)``, of a module that is
        called as ``module(x, edge_index)`` and returns logits for all nodes. If it has
        a parameter ``edge_weight``, this is the weights of a weighted graph; if the
        parameter has no default, it is ones for unweighted graphs.

    conv_params : dict, default=None
        Further arguments of `conv`. Of the named networks: `hidden`, the units of the
        hidden layers, by default (64,); `dropout`, the probability of dropout before
        each layer, by default 0.5; `input_dropout`, the one before the first layer, by
        default `dropout`; `batch_norm`, whether each hidden layer has batch
        normalization before its activation, by default False; for "gat" `heads`; for
        "appnp" `n_steps` and `teleport`.

    lr : float, default=1e-2
        Learning rate.

    max_epochs : int, default=1000
        Number of epochs, with early stopping at most.

    training : TrainingOptions, default=None
        Optimizer, learning rate schedule, weight decay and early stopping, see
        :class:`~skood.nn.TrainingOptions`. Defaults that differ: `weight_decay` 1e-4,
        `early_stopping` True, `n_iter_no_change` 50 and `tol` 0. Validation nodes
        passed to `fit` enable early stopping as well; with few labels, pass them.

    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes, multiplied with `sample_weight`.

    criterion : callable, default=None
        ``criterion(outputs, codes)`` returns the loss of each node, from its outputs, a
        tensor of shape (n_rows, n_classes), and its class index. If it has parameters
        of its own, they are not trained. None: the cross-entropy.

    batch_size : int, default=None
        Training nodes per step, each step with a sampled neighborhood of the batch.
        None: all nodes and the whole graph in one step, as long as the activations need
        less than 8 GiB, else 1024.

    n_neighbors : int, default=10
        Maximum number of incoming edges per node in a sampled neighborhood. Their
        weights are increased to compensate for the omitted ones, and "gcn" and "appnp"
        use the degrees in the whole graph, so that the result is exact if no node has
        more edges.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, dropout, held-out nodes and sampled neighborhoods.
        The generators of torch are left unchanged.

    device : {"auto"}, str or torch.device, default="auto"
        Device to train on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.

    n_features_in_ : int
        Number of features of a node.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if `X` was a data frame with names.

    module_ : torch.nn.Module
        The trained network, in eval mode. It does not contain the graph.

    n_iter_ : int
        Number of epochs trained.

    history_ : list of dict
        Results of each epoch: `epoch` (from 1), `train_loss` and, with validation
        nodes, `valid_loss`.

    Warns
    -----
    SkoodWarning
        In `fit` and in predictions, if the graph has edge weights that the network does
        not use.

    See Also
    --------
    pretrained_graph : Wrap a graph network that is already trained.
    NodeSet : Nodes as samples.
    skood.evidential.EvidentialProbe : Adds uncertainty to a trained network.

    Notes
    -----
    The network is trained on one graph and predicts nodes of any graph with the same
    features. The network runs on all nodes of a graph, for any set of nodes. Samples of
    an array are nodes without edges.

    The features for detectors are the embeddings after the last aggregation, which the
    last linear map turns into logits. So each array detector works on a frozen graph
    network.

    References
    ----------
    .. [1] T. Kipf and M. Welling. "Semi-supervised classification with graph
       convolutional networks". ICLR 2017.

    .. [2] P. Veličković, G. Cucurull, A. Casanova, A. Romero, P. Liò, Y. Bengio. "Graph
       attention networks". ICLR 2018.

    .. [3] W. Hamilton, Z. Ying and J. Leskovec. "Inductive representation learning on
       large graphs". NeurIPS 2017.

    .. [4] J. Gasteiger, A. Bojchevski and S. Günnemann. "Predict then propagate: graph
       neural networks meet personalized PageRank". ICLR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.graph import GraphClassifier, NodeSet
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 30)
    >>> X = y[:, None] + rng.normal(size=(60, 4))
    >>> adjacency = rng.random((60, 60)) < np.where(y[:, None] == y, 0.2, 0.02)
    >>> nodes = NodeSet((X, adjacency | adjacency.T))
    >>> train, test = np.arange(0, 60, 2), np.arange(1, 60, 2)
    >>> clf = GraphClassifier(max_epochs=50, random_state=0)
    >>> round(clf.fit(nodes[train], y[train]).score(nodes[test], y[test]), 2)
    1.0
    """

    _parameter_constraints: dict = {
        **BaseGraphClassifier._parameter_constraints,
        "conv": [StrOptions(set(NETWORKS)), callable],
        "conv_params": [dict, None],
        "criterion": [callable, None],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    }

    __skood_network__ = graph_network

    def __init__(
        self,
        conv="gcn",
        *,
        conv_params=None,
        lr=1e-2,
        max_epochs=1000,
        training=None,
        class_weight=None,
        criterion=None,
        batch_size=None,
        n_neighbors=10,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.conv = conv
        self.conv_params = conv_params
        self.lr = lr
        self.max_epochs = max_epochs
        self.training = training
        self.class_weight = class_weight
        self.criterion = criterion
        self.batch_size = batch_size
        self.n_neighbors = n_neighbors
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _module_recipe(self):
        """Return the parameters of the network, stored to build it again."""
        if isinstance(self.conv, torch.nn.Module):
            raise TypeError(
                f"conv is a module, a {type(self.conv).__name__}, but each fit trains "
                "a new one: pass the class or a factory, or wrap a trained module by "
                "skood.graph.pretrained_graph."
            )
        return {"conv": self.conv, "conv_params": copy.deepcopy(self.conv_params) or {}}

    def _make_module(self, n_features, n_classes, recipe):
        conv, params = recipe["conv"], recipe["conv_params"]
        module = _built(conv, (n_features, n_classes), params)
        if conv in NETWORKS:
            return module
        if not isinstance(module, torch.nn.Module):
            raise TypeError(
                f"conv must make a torch.nn.Module, got {type(module).__name__}."
            )
        return EdgeModule(module)

    def _make_loss(self, device):
        losses = super()._make_loss(device)
        if self.criterion is not None:
            losses = WeightedCriterion(self.criterion).to(device).losses

        def checked(outputs, codes):
            if outputs.shape[1] != len(self.classes_):
                raise ValueError(
                    f"The network has {outputs.shape[1]} outputs, but y has "
                    f"{len(self.classes_)} classes: {self.classes_.tolist()}. conv is "
                    "called with the number of features and the number of classes."
                )
            return losses(outputs, codes)

        return checked

    @takes_input
    def predict_logits(self, X):
        """Return the logits of the network.

        Parameters
        ----------
        X : NodeSet or array-like of shape (n_samples, n_features)
            Nodes, or an array, whose samples are nodes without edges.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes), dtype float64
            Output of the network.
        """
        return graph_logits(self, X)


def _built(conv, args, params):
    """Call `conv`, the name of a network or a factory; raise for wrong parameters."""
    factory = NETWORKS[conv] if conv in NETWORKS else conv
    try:
        signature = inspect.signature(factory)
    except ValueError:  # written in C, without a signature
        return factory(*args, **params)
    try:
        signature.bind(*args, **params)
    except TypeError as error:
        names = list(signature.parameters)[len(args) :]
        raise TypeError(
            f"conv={conv!r} cannot be built with conv_params={params!r}: {error}. It "
            "is called as conv(n_features, n_classes, **conv_params), and conv_params "
            f"may hold: {', '.join(names) or 'nothing'}."
        ) from error
    return factory(*args, **params)

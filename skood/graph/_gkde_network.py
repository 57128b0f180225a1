"""Graph network regularized towards kernel evidence of labeled nodes (SGNN-GKDE)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager
from numbers import Real

import numpy as np
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skood.graph._base_node_classifier import BaseGraphClassifier
from skood.graph._classifier import GraphClassifier
from skood.graph._gkde import GKDE, resolve_metric
from skood.graph._gkde_targets import Targets
from skood.graph._graph_network import GraphNetworkMixin
from skood.graph._node_set import NodeSet
from skood.nn._dirichlet import DirichletMixin
from skood.nn._evidential_loss import EVIDENCES, EvidentialLoss
from skood.utils._input import takes_input
from skood.utils._labels import label_codes
from skood.utils._log_proba import log_proba_of
from skood.utils._metaestimators import unwrapped
from skood.utils._param_validation import HasMethods, Interval, StrOptions

__all__ = ["GKDENetwork"]

# Lower bound of the teacher's log-probabilities, as if each class had 1e-10.
_LOG_FLOOR = float(np.log(1e-10))


@contextmanager
def _given(teacher, samples):
    """Return how to replace a teacher that does not accept nodes, for an error."""
    try:
        yield
    except TypeError as error:
        if not isinstance(samples, NodeSet):
            raise
        raise TypeError(
            f"The teacher {type(unwrapped(teacher)).__name__} could not be given nodes "
            "of a graph. Pass a classifier of nodes, such as a GraphClassifier, or a "
            "Pipeline whose first step returns their features; or set "
            "lambda_teacher=0."
        ) from error


class GKDENetwork(GraphNetworkMixin, DirichletMixin, BaseGraphClassifier):
    r"""Graph network regularized towards kernel evidence of labeled nodes (SGNN-GKDE).

    The outputs of the network are mapped to evidence :math:`e = g(l)`, and
    :math:`\alpha = e + 1` are the parameters of the Dirichlet distribution of a node,
    with the total S and the mean :math:`\bar p = \alpha / S`. It is trained on [1]_

    .. math::

        \frac{1}{n} \sum_{i \text{ labeled}} \sum_k \Bigl( (y_{ik} - \bar p_{ik})^2 +
        \frac{\bar p_{ik} (1 - \bar p_{ik})}{S_i + 1} \Bigr)
        + \frac{1}{N} \sum_{j = 1}^N \Bigl( \lambda_1 \, KL \bigl(
        \mathrm{Dir}(\alpha_j) \,\|\, \mathrm{Dir}(\hat\alpha_j) \bigr)
        + \lambda_2 \, KL \bigl( \bar p_j \,\|\, \hat p_j \bigr) \Bigr):

    the expected squared error of the n labeled nodes; and for all N nodes of the graph
    the divergences from the distributions with the parameters :math:`\hat\alpha` that
    `GKDE` estimates from the labeled nodes, and from the probabilities :math:`\hat p`
    of a teacher, a plain graph network. Nodes far from all labels have little evidence,
    unless their features indicate a class.

    Read more in the :ref:`User Guide <gkde>`.

    Parameters
    ----------
    conv : {"gcn", "gat", "sage", "appnp"} or callable, default="gcn"
        The kind of network, see `GraphClassifier`.

    lambda_gkde : float, default=0.1
        The weight :math:`\lambda_1`. 0: `GKDE` is not used.

    lambda_teacher : float, default=0.1
        The weight :math:`\lambda_2`. 0: no teacher.

    teacher : object, default=None
        A classifier of nodes with ``predict_proba``. It is cloned and fitted to the
        training nodes, with their weights (including class weights), unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. It must have all classes of the
        training nodes. For arrays it is given arrays. None: a `GraphClassifier` with
        the same parameters.

    sigma : float, default=1.0
        Bandwidth of `GKDE`, in edges, or in units of the features.

    cutoff : float, default=10.0
        Labeled nodes at a greater distance are no evidence for `GKDE`. None: all
        reachable nodes are evidence.

    metric : {"auto", "hops", "euclidean"}, default="auto"
        Kind of distance for `GKDE`: "hops" is the number of edges on the shortest path,
        "euclidean" is the distance of the features. "auto" is "hops" for a `NodeSet`,
        and "euclidean" for arrays.

    evidence : {"exp", "softplus", "relu"}, default="exp"
        The function g, see :class:`~skood.evidential.EvidentialLoss`.

    conv_params : dict, default=None
        Further arguments of `conv`.

    hidden : tuple of int, default=(64,)
        Units of the hidden layers. Not used with a custom `conv`.

    dropout : float, default=0.5
        Probability of dropout before each layer. Not used with a custom `conv`.

    lr : float, default=1e-2
        Learning rate of Adam.

    weight_decay : float, default=1e-4
        Weight decay of Adam.

    max_epochs : int, default=1000
        Number of epochs, with early stopping at most.

    early_stopping : bool, default=True
        Stop when the loss of validation nodes, including the divergences of all nodes,
        no longer falls, and return to the weights with the smallest loss. Validation
        nodes passed to `fit` also enable it.

    validation_fraction : float, default=0.1
        Fraction of the training nodes held out, stratified by class, if no validation
        nodes are passed to `fit`. They are no evidence for `GKDE`.

    patience : int, default=50
        Number of epochs without an improvement by `tol` before early stopping.

    tol : float, default=0.0
        Smallest decrease of the validation loss that counts.

    class_weight : {"balanced"}, dict or None, default=None
        Weights of the classes, multiplied with `sample_weight`. Weights are scaled to a
        mean of one, and are also multiplied with the evidence of `GKDE`.

    batch_size : int, default=None
        Training nodes per step, see `GraphClassifier`.

    n_neighbors : int, default=10
        Maximum number of incoming edges per node in a sampled neighborhood.

    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights, dropout, held-out nodes, sampled neighborhoods, and
        of the default teacher. The generators of torch are left unchanged.

    device : {"auto"}, str or torch.device, default="auto"
        Device to train on: "auto" is CUDA if available, else the CPU.

    verbose : int, default=0
        1 shows a progress bar over the epochs.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.

    metric_ : str
        "hops" or "euclidean".

    gkde_ : GKDE or None
        Prior of the distributions, fitted to the training nodes.

    teacher_ : object or None
        The fitted teacher.

    n_features_in_ : int
        Number of features of a node.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if `X` was a data frame with names.

    module_ : torch.nn.Module
        The trained network, in eval mode. It does not contain the graph.

    n_iter_ : int
        Number of epochs trained, excluding the teacher.

    history_ : list of dict
        Results of each epoch: `epoch` (from 1), `train_loss` and, with validation
        nodes, `valid_loss`, including the divergences of all nodes.

    See Also
    --------
    GKDE : The kernel estimate alone, without training.
    skood.evidential.EvidentialClassifier : Evidential network without a prior.
    skood.evidential.dissonance : Conflicting evidence, from `predict_alpha`.

    Notes
    -----
    The network predicts nodes of any graph with the same features; paths are counted
    only in `fit`. For validation nodes of another graph than the training nodes, to
    which there are no paths, only the loss and the teacher are used.

    Detectors use the outputs l of the network as logits: with `evidence` "exp" they are
    the logarithms of the evidence, so that :class:`~skood.detectors.Energy` is the
    energy of the total evidence.

    With sampled neighborhoods, the means over all nodes are means over the nodes of a
    sample.

    References
    ----------
    .. [1] X. Zhao, F. Chen, S. Hu, J.-H. Cho. "Uncertainty aware semi-supervised
       learning on graph data". NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.graph import GKDENetwork, NodeSet
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 30)
    >>> X = y[:, None] + rng.normal(size=(60, 4))
    >>> adjacency = rng.random((60, 60)) < np.where(y[:, None] == y, 0.2, 0.02)
    >>> nodes = NodeSet((X, adjacency | adjacency.T))
    >>> train = np.arange(0, 60, 3)
    >>> clf = GKDENetwork(max_epochs=50, random_state=0).fit(nodes[train], y[train])
    >>> bool(clf.score(nodes, y) > 0.9)
    True
    >>> clf.predict_uncertainty(nodes).epistemic.shape
    (60,)
    """

    _parameter_constraints: dict = {
        **GraphClassifier._parameter_constraints,
        **GKDE._parameter_constraints,
        "lambda_gkde": [Interval(Real, 0, None, closed="left")],
        "lambda_teacher": [Interval(Real, 0, None, closed="left")],
        "teacher": [HasMethods(["fit", "predict_proba"]), None],
        "evidence": [StrOptions(set(EVIDENCES))],
    }
    del _parameter_constraints["criterion"]

    def __init__(
        self,
        conv="gcn",
        *,
        lambda_gkde=0.1,
        lambda_teacher=0.1,
        teacher=None,
        sigma=1.0,
        cutoff=10.0,
        metric="auto",
        evidence="exp",
        conv_params=None,
        hidden=(64,),
        dropout=0.5,
        lr=1e-2,
        weight_decay=1e-4,
        max_epochs=1000,
        early_stopping=True,
        validation_fraction=0.1,
        patience=50,
        tol=0.0,
        class_weight=None,
        batch_size=None,
        n_neighbors=10,
        random_state=None,
        device="auto",
        verbose=0,
    ):
        self.conv = conv
        self.lambda_gkde = lambda_gkde
        self.lambda_teacher = lambda_teacher
        self.teacher = teacher
        self.sigma = sigma
        self.cutoff = cutoff
        self.metric = metric
        self.evidence = evidence
        self.conv_params = conv_params
        self.hidden = hidden
        self.dropout = dropout
        self.lr = lr
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.tol = tol
        self.class_weight = class_weight
        self.batch_size = batch_size
        self.n_neighbors = n_neighbors
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # --- the network and the default teacher --------------------------------------

    def _plain(self, random_state=None):
        """Return an unfitted classifier with the same network."""
        own = self.get_params(deep=False)
        shared = GraphClassifier().get_params(deep=False).keys() & own.keys()
        params = {name: own[name] for name in shared}
        return GraphClassifier(**{**params, "random_state": random_state})

    def _module_recipe(self):
        return self._plain()._module_recipe()

    def _make_module(self, n_features, n_classes, recipe):
        return GraphClassifier()._make_module(n_features, n_classes, recipe)

    # --- regularization -------------------------------------------------------------

    def _check_nodes(self, X, reset):
        if reset:
            self.metric_ = resolve_metric(self.metric, X)
            self._of_arrays = not isinstance(X, NodeSet)
        return super()._check_nodes(X, reset)

    def _train(self, nodes, codes, weight, factors, X_val, y_val):
        self._factors = factors  # the weights of the classes
        super()._train(nodes, codes, weight, factors, X_val, y_val)

    def _run_epochs(self, module, train, valid, seed, bar):
        """Fit GKDE and the teacher, then train the network."""
        self._evidence = self.evidence  # used in predictions until another fit
        self._fit_prior(train)
        self._fit_teacher(train, valid, seed)
        of_train = of_valid = self._targets(train, same_graph=True)
        if valid is not None and valid.tensors.graph is not train.tensors.graph:
            of_valid = self._targets(valid, same_graph=False)

        def penalty(outputs, numbers):
            targets = of_train if module.training else of_valid
            return self._distance(outputs, targets, numbers)

        self._penalty = penalty  # of this fit only: it contains the graph
        try:
            return super()._run_epochs(module, train, valid, seed, bar)
        finally:
            del self._penalty

    def _fit_prior(self, train):
        """Fit GKDE on the training nodes."""
        self.gkde_ = None
        if self.lambda_gkde > 0:
            nodes = NodeSet(train.tensors.graph, train.nodes)
            gkde = GKDE(self.sigma, cutoff=self.cutoff, metric=self.metric_)
            self.gkde_ = gkde.fit(nodes, self.classes_[train.codes], train.weight)

    def _fit_teacher(self, train, valid, seed):
        """Fit the teacher on the training nodes, unless it is frozen."""
        self.teacher_ = None
        if self.lambda_teacher == 0:
            return
        teacher, weight = self.teacher, train.weight
        if teacher is None:
            teacher, weight = self._default_teacher(train, seed)
        teacher, more = clone(teacher), {}
        if has_fit_parameter(teacher, "sample_weight"):
            more["sample_weight"] = weight
        elif not isinstance(teacher, FrozenEstimator) and np.ptp(weight) > 0:
            raise ValueError(
                "The training nodes have weights, by sample_weight or class_weight, "
                f"but the fit of the teacher {type(teacher).__name__} does not take "
                "sample_weight. Leave the weights out, pass a teacher that takes them, "
                "or fit it before and pass it in a sklearn.frozen.FrozenEstimator."
            )
        if valid is not None and has_fit_parameter(teacher, "X_val"):
            more["X_val"] = self._samples(valid.tensors.graph, valid.nodes)
            more["y_val"] = self.classes_[valid.codes]
        samples = self._samples(train.tensors.graph, train.nodes)
        with _given(teacher, samples):
            self.teacher_ = teacher.fit(samples, self.classes_[train.codes], **more)
        self._check_classes(np.asarray(teacher.classes_), train.codes)

    def _default_teacher(self, train, seed):
        """Return a plain network, and weights of nodes without class weights.

        It multiplies by class weights itself, also for validation nodes.
        """
        rng = np.random.RandomState([seed, 1])
        teacher = self._plain(int(rng.randint(np.iinfo(np.int32).max)))
        if self.class_weight is not None:
            labels, factors = self.classes_.tolist(), self._factors.tolist()
            present = np.unique(train.codes)  # without classes of weight zero
            teacher.class_weight = {labels[c]: factors[c] for c in present}
        return teacher, train.weight / self._factors[train.codes]

    def _check_classes(self, found, codes):
        """Raise if the teacher has other classes than the training nodes."""
        known = label_codes(found, self.classes_)
        if (known < 0).any():
            raise ValueError(
                f"The teacher predicts the classes {found.tolist()!r}, "
                f"and y has {self.classes_.tolist()!r}. Pass a teacher of these "
                "classes, or lambda_teacher=0."
            )
        missing = np.setdiff1d(codes, known)
        if len(missing):
            raise ValueError(
                f"The teacher predicts the classes {found.tolist()!r}, but y also has "
                f"{self.classes_[missing].tolist()!r}, whose probabilities it would "
                "draw to zero. Pass a teacher of all classes, leave the nodes of these "
                "out of X and y, or set lambda_teacher=0."
            )

    def _samples(self, graph, nodes=None):
        """Return the input of a teacher: nodes, or an array if `fit` was given one."""
        if self._of_arrays and graph.adjacency.nnz == 0:
            return graph.X if nodes is None else graph.X[nodes]
        return NodeSet(graph, nodes)

    def _targets(self, rows, same_graph):
        """Return the regularization targets of all nodes of a graph."""
        whole, prior, log_teacher = NodeSet(rows.tensors.graph), None, None
        # there are no paths to nodes of another graph
        if self.gkde_ is not None and (same_graph or self.metric_ == "euclidean"):
            alpha = self.gkde_.predict_alpha(whole)
            prior = self._columns(alpha, self.gkde_.classes_, 1.0, rows)
        if self.teacher_ is not None:
            samples = self._samples(rows.tensors.graph)
            with _given(self.teacher_, samples):
                log_p = np.maximum(log_proba_of(self.teacher_, samples), _LOG_FLOOR)
            log_teacher = self._columns(log_p, self.teacher_.classes_, _LOG_FLOOR, rows)
        return Targets(prior, log_teacher)

    def _columns(self, values, classes, missing, rows):
        """Put columns in the order of ``classes_``, as a tensor in float64."""
        ordered = np.full((len(values), len(self.classes_)), missing)
        ordered[:, label_codes(np.asarray(classes), self.classes_)] = values
        return torch.tensor(ordered, device=rows.tensors.device)

    def _evidential(self):
        """Return the loss that maps outputs to Dirichlet distributions."""
        return EvidentialLoss(
            evidence=self._evidence, loss="squared_error", lambda_kl=0.0
        )

    def _loss(self, outputs, codes):
        return self._evidential()(outputs, codes)

    def _distance(self, outputs, targets, numbers):
        """Return the mean divergence of nodes from their regularization targets."""
        alpha = self._evidential().alpha(outputs)
        weights = self.lambda_gkde, self.lambda_teacher
        return targets.distance(alpha, numbers, *weights).to(outputs.dtype)

    # --- prediction -----------------------------------------------------------------

    @takes_input
    def predict_alpha(self, X):
        """Return the parameters of the Dirichlet distribution of each node.

        Parameters
        ----------
        X : NodeSet or array-like of shape (n_samples, n_features)
            Nodes of any graph, or an array, whose samples are nodes without edges.

        Returns
        -------
        alpha : ndarray of shape (n_samples, n_classes), dtype float64
            Evidence plus one, in the order of ``classes_``.
        """
        check_is_fitted(self)
        outputs = torch.from_numpy(self._outputs(X))
        return self._evidential().alpha(outputs).numpy()

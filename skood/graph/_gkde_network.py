"""Graph network regularized towards kernel evidence of labeled nodes (SGNN-GKDE)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skood.graph._classifier import GraphClassifier
from skood.graph._gkde import GKDE, resolve_metric
from skood.graph._graph_network import graph_network
from skood.graph._node_set import NodeSet
from skood.nn._dirichlet import DirichletMixin
from skood.nn._evidential_loss import EVIDENCES, EvidentialLoss, dirichlet_divergence
from skood.utils._atomic_fit import fresh_fit
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import takes_input
from skood.utils._labels import label_codes
from skood.utils._log_proba import log_proba_of
from skood.utils._metaestimators import copy_input_attributes, unwrapped
from skood.utils._param_validation import HasMethods, Interval, StrOptions, fit_context

# Lower bound of the teacher's log-probabilities, as if each class had 1e-10.
_LOG_FLOOR = float(np.log(1e-10))


def divergence_of_means(alpha, log_teacher):
    """Return KL(mean of Dir(alpha) || teacher) in nats, (n_rows,), differentiable."""
    mean = alpha / alpha.sum(dim=1, keepdim=True)
    return (mean * (mean.log() - log_teacher)).sum(dim=1)


@dataclass(frozen=True)
class Targets:
    """Dirichlet parameters by GKDE, and log-probabilities by the teacher, or None."""

    prior: torch.Tensor | None
    log_teacher: torch.Tensor | None

    def distance(self, alpha, numbers, lambda_gkde, lambda_teacher):
        """Return the mean weighted divergence of the nodes `numbers`, differentiable.

        Shapes: alpha (n_rows, n_classes), numbers (n_rows,) or slice.
        """
        distance = alpha.new_zeros(())
        if self.prior is not None:
            divergence = dirichlet_divergence(alpha, self.prior[numbers])
            distance = distance + lambda_gkde * divergence.mean()
        if self.log_teacher is not None:
            divergence = divergence_of_means(alpha, self.log_teacher[numbers])
            distance = distance + lambda_teacher * divergence.mean()
        return distance


@contextmanager
def _teacher_errors(teacher, samples):
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


class GKDENetwork(DirichletMixin, ClassifierMixin, SkoodEstimator):
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
    estimator : GraphClassifier, default=None
        Unfitted classifier that builds and trains the network. It is cloned, and the
        clone's `criterion` is set to the loss. None: ``GraphClassifier()``.

    lambda_gkde : float, default=0.1
        The weight :math:`\lambda_1`. 0: `GKDE` is not used.

    lambda_teacher : float, default=0.1
        The weight :math:`\lambda_2`. 0: no teacher.

    teacher : object, default=None
        A classifier of nodes with ``predict_proba``. It is cloned and fitted to the
        training nodes, with their weights (including class weights), unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. It must have all classes of the
        training nodes. For arrays it is given arrays. None: a clone of `estimator`.

    gkde : GKDE, default=None
        Unfitted kernel estimate, which is cloned. None: ``GKDE()``.

    evidence : {"exp", "softplus", "relu"}, default="exp"
        The function g, see :class:`~skood.evidential.EvidentialLoss`.

    ramp : int, default=None
        In epoch t = 0, 1, ... of the training the weight of the teacher is
        ``lambda_teacher * min(1, t / ramp)``. Validation nodes have the final weight,
        so that epochs can be compared. None: the final weight in all epochs.

    random_state : int, RandomState instance or None, default=None
        Seed of the training, if the `random_state` of the estimator is None.

    Attributes
    ----------
    estimator_ : GraphClassifier
        The trained network, with its ``history_``, whose losses include the divergences
        of all nodes. Its own probabilities, the softmax of the outputs, are not
        meaningful.

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
    >>> from skood.graph import GKDENetwork, GraphClassifier, NodeSet
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 30)
    >>> X = y[:, None] + rng.normal(size=(60, 4))
    >>> adjacency = rng.random((60, 60)) < np.where(y[:, None] == y, 0.2, 0.02)
    >>> nodes = NodeSet((X, adjacency | adjacency.T))
    >>> train, test = np.arange(0, 60, 2), np.arange(1, 60, 2)
    >>> network = GraphClassifier(max_epochs=50, random_state=0)
    >>> clf = GKDENetwork(network).fit(nodes[train], y[train])
    >>> round(clf.score(nodes[test], y[test]), 2)
    1.0
    >>> clf.predict_uncertainty(nodes).epistemic.shape
    (60,)
    """

    _parameter_constraints: dict = {
        "estimator": [GraphClassifier, None],
        "lambda_gkde": [Interval(Real, 0, None, closed="left")],
        "lambda_teacher": [Interval(Real, 0, None, closed="left")],
        "teacher": [HasMethods(["fit", "predict_proba"]), None],
        "gkde": [GKDE, None],
        "evidence": [StrOptions(set(EVIDENCES))],
        "ramp": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator=None,
        *,
        lambda_gkde=0.1,
        lambda_teacher=0.1,
        teacher=None,
        gkde=None,
        evidence="exp",
        ramp=None,
        random_state=None,
    ):
        self.estimator = estimator
        self.lambda_gkde = lambda_gkde
        self.lambda_teacher = lambda_teacher
        self.teacher = teacher
        self.gkde = gkde
        self.evidence = evidence
        self.ramp = ramp
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)  # its parts are the user's
    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None):
        """Fit `GKDE` and the teacher, then train the network.

        Parameters
        ----------
        X : NodeSet or array-like of shape (n_samples, n_features)
            Training nodes. All other nodes of their graph are regularized, too. Samples
            of an array are nodes without edges.

        y : array-like of shape (n_samples,)
            Class labels of the nodes.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights of the nodes.

        X_val : NodeSet or array-like of shape (n_val, n_features), default=None
            Validation nodes, see :meth:`GraphClassifier.fit`.

        y_val : array-like of shape (n_val,), default=None
            Labels of the validation nodes.

        Returns
        -------
        self : GKDENetwork
            The fitted classifier.

        Raises
        ------
        ValueError
            If the data are invalid, the teacher has other classes, or training
            diverges. The estimator then is left unchanged.
        """
        with fresh_fit(self):
            self._loss = EvidentialLoss(
                evidence=self.evidence, loss="squared_error", lambda_kl=0.0
            )
            self.metric_ = resolve_metric((self.gkde or GKDE()).metric, X)
            self._of_arrays = not isinstance(X, NodeSet)
            network = self._new_network(self._loss, self.random_state)
            network._validate_params()
            network._fit(X, y, sample_weight, X_val, y_val, self._regularizer)
            self.estimator_ = network
            copy_input_attributes(self, network)
        return self

    def _new_network(self, criterion, random_state):
        """Return an unfitted network with a loss, and a seed if it has none."""
        network = GraphClassifier() if self.estimator is None else clone(self.estimator)
        if network.criterion is not None:
            raise ValueError(
                "GKDENetwork sets the criterion of its estimator, which must be None, "
                f"got {network.criterion!r}."
            )
        if network.random_state is None:
            network.random_state = random_state
        return network.set_params(criterion=criterion)

    # --- regularization -------------------------------------------------------------

    def _regularizer(self, network, module, train, valid, factors, seed):
        """Fit GKDE and the teacher; return the divergence of nodes from them."""
        self.classes_ = network.classes_
        self._fit_prior(train)
        self._fit_teacher(train, valid, factors, seed)
        of_train = of_valid = self._targets(train, same_graph=True)
        if valid is not None and valid.tensors.graph is not train.tensors.graph:
            of_valid = self._targets(valid, same_graph=False)

        def penalty(outputs, numbers, epoch):
            targets = of_train if module.training else of_valid
            ramped = min(1.0, epoch / self.ramp) if module.training and self.ramp else 1
            weights = self.lambda_gkde, self.lambda_teacher * ramped
            alpha = self._loss.alpha(outputs)
            return targets.distance(alpha, numbers, *weights).to(outputs.dtype)

        return penalty

    def _fit_prior(self, train):
        """Fit GKDE on the training nodes."""
        self.gkde_ = None
        if self.lambda_gkde > 0:
            nodes = NodeSet(train.tensors.graph, train.nodes)
            gkde = clone(self.gkde or GKDE()).set_params(metric=self.metric_)
            self.gkde_ = gkde.fit(nodes, self.classes_[train.codes], train.weight)

    def _fit_teacher(self, train, valid, factors, seed):
        """Fit the teacher on the training nodes, unless it is frozen."""
        self.teacher_ = None
        if self.lambda_teacher == 0:
            return
        teacher, weight = self.teacher, train.weight
        if teacher is None:
            teacher, weight = self._default_teacher(train, factors, seed)
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
        with _teacher_errors(teacher, samples):
            self.teacher_ = teacher.fit(samples, self.classes_[train.codes], **more)
        self._check_classes(np.asarray(teacher.classes_), train.codes)

    def _default_teacher(self, train, factors, seed):
        """Return a network with class weights, and node weights without them."""
        rng = np.random.RandomState([seed, 1])
        teacher = self._new_network(None, None)
        teacher.random_state = int(rng.randint(np.iinfo(np.int32).max))
        if teacher.class_weight is not None:
            labels = self.classes_.tolist()
            present = np.unique(train.codes)  # without classes of weight zero
            teacher.class_weight = {labels[c]: float(factors[c]) for c in present}
        return teacher, train.weight / factors[train.codes]

    def _check_classes(self, teacher_classes, codes):
        """Raise if the teacher has other classes than the training nodes."""
        known = label_codes(teacher_classes, self.classes_)
        if (known < 0).any():
            raise ValueError(
                f"The teacher predicts the classes {teacher_classes.tolist()!r}, "
                f"and y has {self.classes_.tolist()!r}. Pass a teacher of these "
                "classes, or lambda_teacher=0."
            )
        missing = np.setdiff1d(codes, known)
        if len(missing):
            raise ValueError(
                f"The teacher predicts the classes {teacher_classes.tolist()!r}, but y "
                f"also has {self.classes_[missing].tolist()!r}, whose probabilities it "
                "would regularize towards zero. Pass a teacher of all classes, leave "
                "the nodes of these out of X and y, or set lambda_teacher=0."
            )

    def _samples(self, graph, nodes=None):
        """Return the input of a teacher: nodes, or an array if `fit` was given one."""
        if self._of_arrays and graph.adjacency.nnz == 0:
            return graph.X if nodes is None else graph.X[nodes]
        return NodeSet(graph, nodes)

    def _targets(self, labeled, same_graph):
        """Return the regularization targets of all nodes of a graph."""
        whole, prior, log_teacher = NodeSet(labeled.tensors.graph), None, None
        # there are no paths to nodes of another graph
        if self.gkde_ is not None and (same_graph or self.metric_ == "euclidean"):
            alpha = self.gkde_.predict_alpha(whole)
            prior = self._columns(alpha, self.gkde_.classes_, 1.0, labeled)
        if self.teacher_ is not None:
            samples = self._samples(labeled.tensors.graph)
            with _teacher_errors(self.teacher_, samples):
                log_p = np.maximum(log_proba_of(self.teacher_, samples), _LOG_FLOOR)
            log_teacher = self._columns(
                log_p, self.teacher_.classes_, _LOG_FLOOR, labeled
            )
        return Targets(prior, log_teacher)

    def _columns(self, values, classes, missing, labeled):
        """Put columns in the order of ``classes_``, as a tensor in float64."""
        ordered = np.full((len(values), len(self.classes_)), missing)
        ordered[:, label_codes(np.asarray(classes), self.classes_)] = values
        return torch.tensor(ordered, device=labeled.tensors.device)

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
        outputs = torch.from_numpy(self.estimator_._outputs(X))
        return self._loss.alpha(outputs).numpy()

    def __skood_network__(self, **options):
        check_is_fitted(self)
        return graph_network(self.estimator_, **options)

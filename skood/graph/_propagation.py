"""Propagation of scores and evidence along the edges of a graph."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array

from skood.base import BaseDetector
from skood.graph._node_set import Graph, NodeSet, as_nodes
from skood.utils._labels import check_nested_ood_labels
from skood.utils._left_out import NETWORK_FOLDS, is_fixed, unused_thresholds
from skood.utils._metaestimators import (
    fit_wrapped,
    n_rows,
    take_rows,
    unwrapped,
    wrapped_tags,
)
from skood.utils._param_validation import (
    HasMethods,
    Interval,
    StrOptions,
    validate_params,
)
from skood.utils._torch import to_numpy
from skood.utils._weights import weighted

_CONSTRAINTS: dict = {
    "scheme": [StrOptions({"random-walk", "gnnsafe", "symmetric"})],
    "n_steps": [Interval(Integral, 0, None, closed="left"), None],
    "teleport": [Interval(Real, 0, 1, closed="both"), None],
    "alpha": [Interval(Real, 0, 1, closed="both")],
}


# Operator, and default number of steps and teleport, of each scheme.
_SCHEMES: dict = {
    "random-walk": ("walk", 30, 0.02),
    "gnnsafe": ("mean", 2, None),
    "symmetric": ("symmetric", 10, 0.1),
}


@validate_params(
    {"values": "no_validation", "nodes": [NodeSet, Graph], **_CONSTRAINTS},
    prefer_skip_nested_validation=True,
)
def propagate(
    values, nodes, *, scheme="random-walk", n_steps=None, teleport=None, alpha=0.2
):
    r"""Average the values of nodes over their in-neighbors.

    Let :math:`B_{ij}` be the weight of the edge from node j to node i, and D the
    diagonal matrix of the sums :math:`\sum_j B_{ij}`. :math:`\tilde B`, with its sums
    :math:`\tilde D`, is the same matrix with a weight of one for nodes without a loop.
    One step of the scheme

    - "random-walk" is a personalized PageRank with the restart probability
      :math:`\gamma` = `teleport` [1]_:

      .. math:: v^{(t+1)} = (1 - \gamma) \tilde D^{-1} \tilde B v^{(t)}
         + \gamma v^{(0)};

    - "symmetric" is the propagation of APPNP [1]_:

      .. math:: v^{(t+1)} = (1 - \gamma) \tilde D^{-1/2} \tilde B \tilde D^{-1/2}
         v^{(t)} + \gamma v^{(0)};

    - "gnnsafe" is the propagation of GNNSafe [2]_, where :math:`\alpha` = `alpha` is
      the weight of a node's own value:

      .. math:: v^{(t+1)} = \alpha v^{(t)} + (1 - \alpha) D^{-1} B v^{(t)}.

    A node without incoming edges keeps its value, in every scheme. Read more in the
    :ref:`User Guide <graph>`.

    Parameters
    ----------
    values : array-like of shape (n_nodes,) or (n_nodes, n_values)
        Finite values of all nodes of the graph, such as scores or evidence.

    nodes : NodeSet or Graph
        The graph; for a set of nodes, the whole graph.

    scheme : {"random-walk", "gnnsafe", "symmetric"}, default="random-walk"
        Kind of averaging. "random-walk" and "gnnsafe" return averages of the values,
        while "symmetric" increases the magnitude of values of nodes with many edges.

    n_steps : int, default=None
        Number of steps. None: 30 of "random-walk", 2 of "gnnsafe", 10 of "symmetric".

    teleport : float, default=None
        Weight of the initial value in each step, in [0, 1]. None: 0.02 of
        "random-walk", 0.1 of "symmetric". "gnnsafe" does not use it.

    alpha : float, default=0.2
        Weight of a node's own value in each step of "gnnsafe", in [0, 1]. Not used by
        the others.

    Returns
    -------
    values : ndarray of the same shape, dtype float64
        The values after the last step.

    Raises
    ------
    ValueError
        If a parameter is out of its range, a value is not finite, or the number of
        values is not the number of nodes of the graph.

    See Also
    --------
    Propagation : Propagation of the scores of a detector.

    References
    ----------
    .. [1] J. Gasteiger, A. Bojchevski, S. Günnemann. Predict then propagate: graph
       neural networks meet personalized PageRank. ICLR 2019.
    .. [2] Q. Wu, Y. Chen, C. Yang, J. Yan. Energy-based out-of-distribution detection
       for graph neural networks. ICLR 2023.

    Examples
    --------
    Two linked nodes, and an isolated one:

    >>> from skood.graph import NodeSet, propagate
    >>> nodes = NodeSet(([[0.0], [1.0], [2.0]], [[0, 1, 0], [1, 0, 0], [0, 0, 0]]))
    >>> propagate([0.0, 1.0, 5.0], nodes, scheme="gnnsafe", n_steps=1)
    array([0.8, 0.2, 5. ])
    >>> propagate([0.0, 1.0, 5.0], nodes, n_steps=1, teleport=0.0)
    array([0.5, 0.5, 5. ])
    """
    graph = nodes.graph if isinstance(nodes, NodeSet) else nodes
    initial = check_array(
        to_numpy(values), dtype=np.float64, ensure_2d=False, input_name="values"
    )
    if len(initial) != graph.n_nodes:
        raise ValueError(
            f"values must have one row for each of the {graph.n_nodes} nodes of the "
            f"graph, got {len(initial)}. Give the values of nodes.whole()."
        )
    kind, usual_steps, usual_teleport = _SCHEMES[scheme]
    n_steps = usual_steps if n_steps is None else n_steps
    teleport = usual_teleport if teleport is None else teleport
    alone = graph.derived("alone", lambda: _alone(graph.adjacency))
    if n_steps == 0 or alone.all():
        return initial.copy()
    operator = graph.operator(kind)
    propagated = initial
    for _ in range(n_steps):
        if scheme == "gnnsafe":
            propagated = alpha * propagated + (1.0 - alpha) * (operator @ propagated)
        else:
            propagated = (1.0 - teleport) * (operator @ propagated) + teleport * initial
        propagated[alone] = initial[alone]  # exactly
    return propagated


def _alone(adjacency):
    """Return a mask of the nodes without incoming edges."""
    edges = adjacency.tocoo()
    received = edges.col[(edges.row != edges.col) & (edges.data != 0)]
    return np.bincount(received, minlength=adjacency.shape[0]) == 0


class Propagation(BaseDetector):
    r"""Detector that propagates the scores of another detector along edges.

    The wrapped detector scores all nodes of the graph, and its scores are averaged over
    the in-neighbors of each node. One step of the scheme "random-walk" is

    .. math:: s^{(t+1)} = (1 - \gamma) \tilde D^{-1} \tilde B s^{(t)} + \gamma s^{(0)}

    with :math:`\gamma` = `teleport`, and one step of "gnnsafe" is

    .. math:: s^{(t+1)} = \alpha s^{(t)} + (1 - \alpha) D^{-1} B s^{(t)},

    where B contains the weights of incoming edges, see :func:`propagate`. With
    :class:`~skood.detectors.Energy` on a graph network, the second is GNNSafe [1]_.

    Read more in the :ref:`User Guide <graph>`.

    Parameters
    ----------
    estimator : object
        A detector, or a Pipeline that ends in one. It is cloned and fitted, unless it
        is in a :class:`~sklearn.frozen.FrozenEstimator`.

    scheme : {"random-walk", "gnnsafe", "symmetric"}, default="random-walk"
        Kind of averaging; see :func:`propagate`.

    n_steps : int, default=None
        Number of steps. None: 30 of "random-walk", 2 of "gnnsafe", 10 of "symmetric".

    teleport : float, default=None
        Weight of the detector's own score in each step, in [0, 1]. None: 0.02 of
        "random-walk", 0.1 of "symmetric". "gnnsafe" does not use it.

    alpha : float, default=0.2
        Weight of a node's previous value in each step of "gnnsafe", in [0, 1]. Not used
        by the others.

    contamination : float, default=0.05
        Fraction of new ID nodes to reject.

    ood_label : int or str, default=-1
        Label of known OOD nodes in ``y``; they are left out of the fit. Their scores
        are propagated like the scores of all nodes.

    Attributes
    ----------
    estimator_ : object
        The fitted detector.

    offset_ : float
        Threshold: at most a fraction `contamination` of the propagated scores of the
        training nodes, each left out of the fit of the detector, are below it, see
        :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    propagate : Propagation of any values of nodes.
    skood.detectors.Energy : The detector that GNNSafe propagates.

    Notes
    -----
    Samples of an array are nodes without edges: their scores are not propagated.

    References
    ----------
    .. [1] Q. Wu, Y. Chen, C. Yang, J. Yan. Energy-based out-of-distribution detection
       for graph neural networks. ICLR 2023.

    Examples
    --------
    Two paths of 20 nodes; the second path is OOD:

    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> from skood.detectors import KNN
    >>> from skood.graph import NodeSet, Propagation
    >>> y = np.repeat([0, -1], 20)
    >>> X = np.random.default_rng(3).normal(size=(40, 2))
    >>> X[y == -1] += 1.5
    >>> adjacency = np.diag(np.ones(39), 1) + np.diag(np.ones(39), -1)
    >>> adjacency[19, 20] = adjacency[20, 19] = 0
    >>> nodes = NodeSet((X, adjacency))
    >>> def features(nodes):
    ...     return nodes.features
    >>> knn = make_pipeline(
    ...     FunctionTransformer(features), KNN(n_neighbors=2, normalize=False)
    ... )
    >>> train, test, y_test = nodes[:10], nodes[10:], y[10:]
    >>> round(Propagation(knn, n_steps=0).fit(train).score(test, y_test), 2)
    0.78
    >>> round(Propagation(knn).fit(train).score(test, y_test), 2)
    1.0
    """

    _parameter_constraints: dict = {
        **BaseDetector._parameter_constraints,
        **_CONSTRAINTS,
        "estimator": [HasMethods(["fit", "score_samples"])],
    }

    _learns = False

    def __init__(
        self,
        estimator,
        *,
        scheme="random-walk",
        n_steps=None,
        teleport=None,
        alpha=0.2,
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(contamination=contamination, ood_label=ood_label)
        self.estimator = estimator
        self.scheme = scheme
        self.n_steps = n_steps
        self.teleport = teleport
        self.alpha = alpha

    def _fit(self, X, y, sample_weight=None):
        if isinstance(X, NodeSet):
            X = as_nodes(X, estimator=self)
        if y is not None:
            check_nested_ood_labels("estimator", self.estimator, y, "Propagation")

        def fit(other, *training):
            other.estimator_ = fit_wrapped(other, self.estimator, *training)

        def refit(other, *training):
            with unused_thresholds():  # only scores of the copy are used
                fit(other, *training)

        def score(other, left_out, copy_weights):
            return weighted(other._score(take_rows(X, left_out)), copy_weights)

        fit(self, X, y, sample_weight)
        inner = self.estimator_
        while isinstance(inner, Pipeline):
            inner = inner[-1]
        fits_network = not is_fixed(getattr(inner, "estimator", None))
        is_function = hasattr(inner, "_score_outputs") and not inner._learns
        if is_fixed(self.estimator) or (is_function and not fits_network):
            return weighted(self._score(X), sample_weight)
        folds = NETWORK_FOLDS if fits_network else None
        rescale = fits_network or getattr(inner, "_rescales", False)
        return self._scores_of_refits(
            X, y, refit, score, folds, rescale=rescale, weight=sample_weight
        )

    def _score(self, X):
        if not isinstance(X, NodeSet):
            return self._detector_scores(X)
        nodes = as_nodes(X, estimator=self)
        whole = nodes.whole()
        scores = propagate(
            self._detector_scores(whole),
            whole,
            scheme=self.scheme,
            n_steps=self.n_steps,
            teleport=self.teleport,
            alpha=self.alpha,
        )
        return scores[nodes.nodes]

    def _detector_scores(self, X):
        """Return the scores of the wrapped detector, which must be finite."""
        scores = np.asarray(self.estimator_.score_samples(X), dtype=np.float64)
        name, n_samples = type(unwrapped(self.estimator_)).__name__, n_rows(X)
        if scores.shape != (n_samples,):
            raise ValueError(
                f"The {name} in Propagation gave scores of shape {scores.shape} for "
                f"{n_samples} samples: score_samples must return one score per sample."
            )
        n_wrong = int(np.count_nonzero(~np.isfinite(scores)))
        if n_wrong:
            raise ValueError(
                f"The {name} in Propagation gave an infinite or missing score (NaN) to "
                f"{n_wrong} of {n_samples} samples, and along edges it would reach "
                "others. Scale X, look at the network's outputs, or propagate the "
                "scores of another detector."
            )
        return scores

    def __sklearn_tags__(self):
        return wrapped_tags(super().__sklearn_tags__(), self.estimator)

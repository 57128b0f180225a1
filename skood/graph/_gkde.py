"""Graph-based kernel Dirichlet estimation (GKDE)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import hashlib
from numbers import Real

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from skood.graph._node_set import NodeSet, check_nodes
from skood.nn._dirichlet import DirichletMixin
from skood.nn._training_data import check_target
from skood.utils._atomic_fit import fresh_fit
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import takes_input
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._torch import row_chunks
from skood.utils._weights import check_weight

# Number of simultaneous breadth-first searches: one for each bit of a word.
_WORD = 64


def resolve_metric(metric, X):
    """Resolve "auto" to "hops" or "euclidean" for samples; "hops" needs edges."""
    if metric == "auto":
        return "hops" if isinstance(X, NodeSet) else "euclidean"
    if metric == "hops" and not isinstance(X, NodeSet):
        raise ValueError(
            "metric='hops' counts edges on paths, and the samples of an array have no "
            "edges. Pass a NodeSet, or set metric='euclidean'."
        )
    return metric


class GKDE(DirichletMixin, ClassifierMixin, SkoodEstimator):
    r"""Graph-based kernel Dirichlet estimation (GKDE) from nearby labeled nodes.

    Each training node is evidence for its class in all nodes that are reachable from
    it; the evidence decreases with the length of the path. With :math:`d_{ij}` the
    number of edges on the shortest path from the training node i to node j, node j has
    the Dirichlet distribution with the parameters [1]_

    .. math::

        \alpha_{jk} = 1 + \sum_{i: y_i = k,\, d_{ij} \le \text{cutoff}} g(d_{ij}),
        \qquad g(d) = \frac{1}{\sigma \sqrt{2 \pi}} e^{-d^2 / (2 \sigma^2)} .

    There is no training, and features are not used. For arrays, which have no edges,
    distances are Euclidean.

    Read more in the :ref:`User Guide <gkde>`.

    Parameters
    ----------
    sigma : float, default=1.0
        Bandwidth of the kernel, in edges, or in units of the features.

    cutoff : float, default=10.0
        Training nodes at a greater distance are no evidence. None: all reachable nodes
        are evidence.

    metric : {"auto", "hops", "euclidean"}, default="auto"
        Kind of distance: "hops" is the number of edges on the shortest directed path,
        without their weights; "euclidean" is the distance of the features. "auto" is
        "hops" for a `NodeSet`, and "euclidean" for arrays.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.

    metric_ : str
        "hops" or "euclidean".

    nodes_ : ndarray of shape (n_train,)
        Indices of the training nodes, ordered by class; nodes of weight zero are left
        out. For arrays: indices of samples.

    n_features_in_ : int
        Number of features of a node.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of features, only if all of them are strings.

    Raises
    ------
    ValueError
        If hops are to be counted in another graph than the graph of `fit`.

    See Also
    --------
    GKDENetwork : Graph network that is regularized towards this evidence.
    skood.evidential.vacuity : Lack of evidence.

    Notes
    -----
    A node that is not reachable from any training node has no evidence: its vacuity is
    one, its probabilities are equal, and its predicted class, the first, is arbitrary.

    Hops are counted by a breadth-first search of the graph from 64 training nodes at a
    time. Memory does not grow with the number of training nodes, but time does: there
    is one search per 64 training nodes, and each step of it visits all edges.

    References
    ----------
    .. [1] X. Zhao, F. Chen, S. Hu, J.-H. Cho. "Uncertainty aware semi-supervised
       learning on graph data". NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.graph import GKDE, NodeSet
    >>> adjacency = np.zeros((5, 5))
    >>> adjacency[[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]] = 1  # 0 - 1 - 2 - 3, and 4
    >>> nodes = NodeSet((np.zeros((5, 1)), adjacency))
    >>> clf = GKDE().fit(nodes[[0, 3]], ["a", "b"])
    >>> clf.predict_alpha(nodes).round(3)
    array([[1.399, 1.004],
           [1.242, 1.054],
           [1.054, 1.242],
           [1.004, 1.399],
           [1.   , 1.   ]])
    >>> clf.predict_uncertainty(nodes).epistemic.round(3)
    array([0.832, 0.871, 0.871, 0.832, 1.   ])
    """

    _parameter_constraints: dict = {
        "sigma": [Interval(Real, 0, None, closed="neither")],
        "cutoff": [Interval(Real, 0, None, closed="left"), None],
        "metric": [StrOptions({"auto", "hops", "euclidean"})],
    }

    def __init__(self, sigma=1.0, *, cutoff=10.0, metric="auto"):
        self.sigma = sigma
        self.cutoff = cutoff
        self.metric = metric

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Store the training nodes.

        Parameters
        ----------
        X : NodeSet or array-like of shape (n_samples, n_features)
            Training nodes. Repeated nodes count repeatedly.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights of the nodes, multiplied with their evidence.

        Returns
        -------
        self : GKDE
            The fitted classifier.
        """
        with fresh_fit(self):
            nodes, y = check_nodes(self, X, reset=True), check_target(y, self)
            check_consistent_length(nodes, y)
            weight = check_weight(sample_weight, len(y), default=1)
            self.metric_ = resolve_metric(self.metric, X)
            self._sigma = float(self.sigma)
            self._cutoff = np.inf if self.cutoff is None else float(self.cutoff)
            self.classes_, codes = np.unique(y, return_inverse=True)
            order = np.argsort(codes, kind="stable")
            order = order[weight[order] > 0]
            self.nodes_ = nodes.nodes[order]
            self._codes, self._weight = codes[order], weight[order]
            if self.metric_ == "hops":
                self._graph_id, self._n_nodes = _graph_id(nodes.graph), nodes.n_nodes
            else:
                self._samples = _dense(nodes.features[order])
            self._check_finite()
        return self

    def _check_finite(self):
        """Raise if the largest possible evidence overflows."""
        with np.errstate(over="ignore"):
            most = self._weight.sum() * self._kernel(0.0)
        if not np.isfinite(most):
            raise ValueError(
                f"The evidence at sigma={self.sigma} and weights up to "
                f"{self._weight.max():g} overflows. Use a greater sigma, or smaller "
                "weights."
            )

    # --- evidence ------------------------------------------------------------

    def _kernel(self, distance):
        """Return the density of the normal distribution; zero beyond the cutoff."""
        distance = np.asarray(distance, dtype=np.float64)
        with np.errstate(over="ignore", under="ignore"):
            g = np.exp(-0.5 * (distance / self._sigma) ** 2)
            g = g / (self._sigma * np.sqrt(2.0 * np.pi))
        return np.where(distance > self._cutoff, 0.0, g)

    def _class_sums(self, values, chunk=slice(None)):
        """Sum over training nodes, the last axis, by class: (n_rows, n_classes)."""
        codes = self._codes[chunk]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        sums = np.zeros((len(values), len(self.classes_)))
        sums[:, codes[starts]] = np.add.reduceat(
            values * self._weight[chunk], starts, axis=1
        )
        return sums

    def _evidence_by_hops(self, graph):
        """Return the evidence in all nodes of the graph."""
        incoming = graph.operator("sum")
        evidence = np.zeros((graph.n_nodes, len(self.classes_)))
        for chunk in row_chunks(len(self.nodes_), 1, budget=_WORD):
            rings = _rings(incoming, self.nodes_[chunk])
            for hops, ring in enumerate(rings):
                g = self._kernel(hops)
                if g == 0:
                    break
                reached = np.flatnonzero(ring)
                for block in row_chunks(len(reached), 32 * _WORD):
                    indices = reached[block]
                    bits = _unpacked(ring[indices])[:, : chunk.stop - chunk.start]
                    evidence[indices] += g * self._class_sums(bits, chunk)
        return evidence

    def _evidence_by_features(self, X):
        """Return the evidence in samples of an array."""
        evidence = np.empty((X.shape[0], len(self.classes_)))
        # a few numbers for each training node, and one or two dense copies of the
        # sample
        row_bytes = 32 * len(self._samples) + 16 * X.shape[1]
        for indices in row_chunks(X.shape[0], row_bytes):
            with np.errstate(over="ignore"):  # infinitely distant samples
                distances = cdist(_dense(X[indices]), self._samples)
            evidence[indices] = self._class_sums(self._kernel(distances))
        return evidence

    def _check_nodes(self, X):
        """Return a set of nodes for which distances can be computed."""
        check_is_fitted(self)
        nodes = check_nodes(self, X, reset=False)
        if self.metric_ == "hops":
            if not isinstance(X, NodeSet):
                raise ValueError(
                    f"{type(self).__name__} was fitted on nodes of a graph and counts "
                    "edges on paths from them, but X is an array, whose samples have "
                    "no edges. Pass a NodeSet of the same graph, or fit with "
                    "metric='euclidean'."
                )
            if _graph_id(nodes.graph) != self._graph_id:
                raise ValueError(
                    f"{type(self).__name__} counts edges on paths from its training "
                    "nodes, so they must be in the graph that is scored: it was fitted "
                    f"on a graph of {self._n_nodes} nodes, and X is of another graph, "
                    f"of {nodes.n_nodes} nodes and {nodes.adjacency.nnz} edges. Fit on "
                    "nodes of this graph, or with metric='euclidean'."
                )
        return nodes

    # --- prediction ----------------------------------------------------------

    @takes_input
    def predict_alpha(self, X):
        """Return the parameters of the Dirichlet distribution of each node.

        Parameters
        ----------
        X : NodeSet or array-like of shape (n_samples, n_features)
            Nodes; for "hops", of the graph of `fit`.

        Returns
        -------
        alpha : ndarray of shape (n_samples, n_classes), dtype float64
            Evidence plus one, in the order of ``classes_``.
        """
        nodes = self._check_nodes(X)
        if self.metric_ == "hops":
            return 1.0 + self._evidence_by_hops(nodes.graph)[nodes.nodes]
        return 1.0 + self._evidence_by_features(nodes.features)


# --- paths -------------------------------------------------------------------------


def _graph_id(graph):
    """Return a hash of the edges of a graph without their weights."""

    def make():
        digest = hashlib.sha256()
        for array in (graph.adjacency.indptr, graph.adjacency.indices):
            digest.update(array.astype(np.int64).tobytes())
        return digest.hexdigest()

    return graph.derived("edges id", make)


def _rings(incoming, seeds):
    """Yield, for 0, 1, … hops, the nodes there, uint64 with a bit for each seed."""
    bits = np.zeros((incoming.shape[0], _WORD), dtype=np.uint8)
    bits[seeds, np.arange(len(seeds))] = 1
    ring = np.packbits(bits, axis=1).view(np.uint64)[:, 0]
    del bits
    seen = ring.copy()
    hearing = np.flatnonzero(np.diff(incoming.indptr))
    starts = incoming.indptr[hearing]
    while ring.any():
        yield ring
        reached = np.zeros_like(ring)
        if len(hearing):
            received = ring[incoming.indices]
            reached[hearing] = np.bitwise_or.reduceat(received, starts)
        ring = reached & ~seen
        seen |= ring


def _unpacked(ring):
    """Return the bits of words, one row of 64 for each."""
    return np.unpackbits(ring.view(np.uint8).reshape(-1, 8), axis=1)


def _dense(features):
    """Return features as a float64 array."""
    features = features.toarray() if sparse.issparse(features) else features
    return np.ascontiguousarray(features, dtype=np.float64)

"""Graphs, and sets of their nodes as samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import weakref

import numpy as np
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from skood.graph._validation import (
    check_features,
    check_labels,
    check_parts,
    check_sizes,
    from_data,
    from_networkx,
    is_data,
    node_numbers,
    read_only,
)
from skood.utils._optional import import_optional
from skood.utils._torch import to_numpy

# Block size for samples of arrays, which are nodes without edges. With fewer samples
# than the second number a matrix product uses other kernels, which round differently.
_MAX_ROWS = 65536
_MIN_ROWS = 32


class Graph:
    """Graph behind sets of nodes: features, edges and labels.

    It is not modified. Derived values are cached, not pickled, and must not refer to
    the graph, so that it is freed, together with them, after its last use.
    """

    def __init__(self, X, adjacency, labels=None, public_split=None):
        self.X = X
        self.adjacency = adjacency
        self.labels = labels
        self.public_split = public_split
        self._derived: dict = {}
        self._whole = None  # a weak reference to the set of all nodes

    @property
    def n_nodes(self):
        """Number of nodes."""
        return self.X.shape[0]

    @property
    def n_features(self):
        """Number of features of a node."""
        return self.X.shape[1]

    @property
    def is_weighted(self):
        """Whether an edge has a weight other than one."""
        weights = self.adjacency.data
        return self.derived("is weighted", lambda: bool((weights != 1).any()))

    def whole(self):
        """Return the set of all nodes, the same object as long as it is referenced."""
        found = None if self._whole is None else self._whole()
        if found is None:
            found = NodeSet(self)
            self._whole = weakref.ref(found)
        return found

    def derived(self, key, make):
        """Return the result of `make`, which is cached under a key."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

    def operator(self, kind):
        r"""Return the matrix that aggregates the values of in-neighbors of each node.

        B is the transposed adjacency matrix; "walk" and "symmetric" add a loop of
        weight one to nodes without a loop. With D the row sums of B: "sum" is B; "mean"
        and "walk" are :math:`D^{-1} B`; "symmetric" is :math:`D^{-1/2} B D^{-1/2}`.
        """
        return self.derived(("operator", kind), lambda: self._operator(kind))

    def _operator(self, kind):
        B = sparse.csr_array(self.adjacency.T, dtype=np.float64)
        if kind in ("walk", "symmetric"):
            missing = np.flatnonzero(B.diagonal() == 0)
            ones = np.ones(len(missing))
            B = sparse.csr_array(
                B + sparse.coo_array((ones, (missing, missing)), shape=B.shape)
            )
        if kind == "sum":
            return B
        degrees = np.asarray(B.sum(axis=1)).ravel()
        scale = np.zeros(len(degrees))
        power = -0.5 if kind == "symmetric" else -1.0
        scale[degrees > 0] = degrees[degrees > 0] ** power
        B.data *= np.repeat(scale, np.diff(B.indptr))
        if kind == "symmetric":
            B.data *= scale[B.indices]
        return B

    def __getstate__(self):
        return {**vars(self), "_derived": {}, "_whole": None}

    def __setstate__(self, state):
        vars(self).update(state)
        read_only(self.X, self.adjacency, self.labels)


class NodeSet:
    r"""Nodes of a graph as samples.

    A view of some nodes of one graph. It has a length and a shape and can be indexed
    like an array, so that it can be used in splits, cross-validation and searches of
    scikit-learn; each view contains the whole graph, which is used by estimators that
    pass messages. Indexing does not copy the graph.

    Read more in the :ref:`User Guide <graph>`.

    Parameters
    ----------
    data : torch_geometric.data.Data, (X, adjacency), (X, edge_index) or NodeSet
        The graph:

        - a ``Data`` with ``x`` and ``edge_index`` (or ``adj_t``), and optionally
          ``edge_weight`` and ``y``, one label for each node; ``edge_attr`` is not used;
        - features of shape (n_nodes, n_features), dense or sparse, and an adjacency
          matrix of shape (n_nodes, n_nodes), a SciPy sparse matrix or an array, with
          the weight of the edge from node i to node j at row i and column j;
        - features, and edges as an array or tensor of integers of shape (2, n_edges):
          first nodes and second nodes, each edge with weight one. Two edges of two
          nodes would have the shape of an adjacency matrix, and are taken for one;
        - a set of nodes, whose graph is used.

        Features, edges and labels are copied: later changes of the data do not change
        the graph.

    nodes : array-like of int or bool, or slice, default=None
        Selected nodes: their indices in the graph, in any order, or a mask of length
        n_nodes; also if `data` is a set of some nodes only. None: all, or the nodes of
        the given set.

    labels : array-like of shape (n_nodes,), default=None
        Labels of all nodes. None: labels of the data. Estimators do not use them; they
        are for the user: ``nodes.labels`` can be passed as `y`.

    Attributes
    ----------
    nodes : ndarray of shape (n_samples,), dtype int64
        Indices of the nodes.

    shape : tuple of int
        (n_samples, n_features).

    features : ndarray or csr_array of shape (n_samples, n_features)
        Features of the nodes, a copy.

    labels : ndarray of shape (n_samples,) or None
        Labels of the nodes, if known, a copy.

    adjacency : csr_array of shape (n_nodes, n_nodes)
        Edges of the whole graph, read-only.

    n_nodes : int
        Number of nodes of the whole graph.

    public_split : dict of str to ndarray, or None
        Indices of the nodes for "train", "valid" and "test", if they are published with
        a graph of :func:`~skood.datasets.load_graph`.

    Raises
    ------
    TypeError
        If the data are of another type.

    ValueError
        If features are not finite, weights are negative, or sizes do not match.

    IndexError
        If a node does not exist.

    Warns
    -----
    SkoodWarning
        If a ``Data`` has attributes that may be weights or labels, but are not used.

    See Also
    --------
    GraphClassifier : A graph network that is trained on the nodes of a set.
    skood.datasets.make_ood_graph : A generated graph with classes to leave out.

    Notes
    -----
    Edges are directed: messages are sent along them, from their first node to their
    second. An undirected graph contains each edge twice. Repeated edges add up.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import train_test_split
    >>> from skood.graph import NodeSet
    >>> X = np.eye(4)
    >>> adjacency = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    >>> nodes = NodeSet((X, adjacency))
    >>> nodes[[0, 3]]
    NodeSet of 2 of 4 nodes with 4 features and 4 edges
    >>> train, test = train_test_split(nodes, test_size=1, random_state=0)
    >>> len(train), test.nodes
    (3, array([2]))
    """

    ndim = 2

    def __init__(self, data, nodes=None, *, labels=None):
        if isinstance(data, NodeSet):
            nodes = data.nodes if nodes is None else nodes
            data = data.graph
        if isinstance(data, Graph):
            graph = data
            if labels is not None:
                labels = check_labels(labels, graph.n_nodes)
                read_only(labels)
                graph = Graph(graph.X, graph.adjacency, labels, graph.public_split)
        else:
            graph = _make_graph(data, labels)
        self.graph: Graph = graph
        self.nodes: np.ndarray = node_numbers(
            nodes, graph.n_nodes, "nodes of the graph"
        )

    @classmethod
    def from_networkx(cls, graph, features, *, labels=None, weight=None):
        """Return all nodes of a graph of networkx.

        Parameters
        ----------
        graph : networkx.Graph
            A graph of any kind. Node i of the set is ``list(graph)[i]``. Edges of an
            undirected graph have both directions; parallel edges add up.

        features : str or list of str
            Node attributes that are features, in this order: numbers, or vectors.

        labels : str, default=None
            Node attribute that contains labels. None: the set has no labels.

        weight : str, default=None
            Edge attribute that contains weights. None: each edge has a weight of one.

        Returns
        -------
        nodes : NodeSet
            All nodes.

        Raises
        ------
        ImportError
            If networkx is not installed.
        TypeError
            If the graph is of another type.
        ValueError
            If a node or an edge does not have an attribute, or features are not
            finite numbers.

        Examples
        --------
        >>> import networkx as nx
        >>> from skood.graph import NodeSet
        >>> graph = nx.path_graph(["a", "b", "c"])
        >>> nx.set_node_attributes(graph, {"a": 1.0, "b": 2.0, "c": 5.0}, "size")
        >>> nodes = NodeSet.from_networkx(graph, "size")
        >>> nodes
        NodeSet of 3 of 3 nodes with 1 features and 4 edges
        >>> nodes.features.ravel()
        array([1., 2., 5.])
        """
        X, adjacency, labels = from_networkx(graph, features, labels, weight)
        return cls((X, adjacency), labels=labels)

    # --- as an array ----------------------------------------------------------

    @property
    def shape(self):
        """Shape (n_samples, n_features)."""
        return (len(self.nodes), self.graph.n_features)

    @property
    def dtype(self):
        """Data type of the features."""
        return self.graph.X.dtype

    def __len__(self):
        return len(self.nodes)

    def __getitem__(self, key):
        if isinstance(key, tuple):  # scikit-learn indexes samples as X[rows, ...]
            if len(key) != 2 or not (
                key[1] is Ellipsis
                or (isinstance(key[1], slice) and key[1] == slice(None))
            ):
                raise IndexError(
                    "A NodeSet is indexed by nodes only, as nodes[rows]; got an index "
                    f"with {len(key)} parts. Take features of all nodes from .features."
                )
            key = key[0]
        if key is None:
            raise IndexError("A NodeSet is indexed by nodes, got None.")
        rows = node_numbers(key, len(self), "nodes of this set")
        return NodeSet(self.graph, self.nodes[rows])

    def __array__(self, *args, **kwargs):
        raise TypeError(
            "A NodeSet is a set of nodes of a graph, not an array. Give it to an "
            "estimator that accepts graphs, such as skood.graph.GraphClassifier, or to "
            "a detector with estimator=FrozenEstimator(a fitted one); or give the "
            "features of the nodes, .features, to an estimator of arrays."
        )

    def __repr__(self):
        return (
            f"NodeSet of {len(self)} of {self.n_nodes} nodes with "
            f"{self.graph.n_features} features and {self.adjacency.nnz} edges"
        )

    # --- the whole graph ------------------------------------------------------

    @property
    def features(self):
        """Features of the nodes, (n_samples, n_features)."""
        return self.graph.X[self.nodes]

    @property
    def labels(self):
        """Labels of the nodes, or None."""
        return None if self.graph.labels is None else self.graph.labels[self.nodes]

    @property
    def adjacency(self):
        """Edges of the whole graph."""
        return self.graph.adjacency

    @property
    def n_nodes(self):
        """Number of nodes of the whole graph."""
        return self.graph.n_nodes

    @property
    def public_split(self):
        """Indices of training, validation and test nodes published with the graph."""
        return self.graph.public_split

    def whole(self):
        """Return the set of all nodes of the graph, in their order.

        Returns
        -------
        nodes : NodeSet
            All nodes. As long as this set is referenced, the same object is returned,
            so that estimators may share a forward pass.
        """
        return self.graph.whole()

    def with_features(self, X):
        """Return the same nodes of the same edges, with other features.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_nodes, n_features)
            New features, of all nodes of the graph.

        Returns
        -------
        nodes : NodeSet
            Set of nodes of a new graph.
        """
        X = check_features(X)
        check_sizes(X, self.adjacency)
        read_only(X)
        graph = Graph(X, self.adjacency, self.graph.labels)
        return NodeSet(graph, self.nodes)

    def to_data(self):
        """Return the whole graph as a ``torch_geometric.data.Data``.

        Returns
        -------
        data : torch_geometric.data.Data
            With ``x``, ``edge_index``, ``edge_weight`` (if a weight is not one), ``y``
            (if labels are known numbers), and the mask ``nodes`` of this set.

        Raises
        ------
        ImportError
            If torch_geometric is not installed.
        """
        Data = import_optional("torch_geometric.data", "to_data", "graph").Data
        import torch

        X = self.graph.X
        X = X.toarray() if sparse.issparse(X) else X
        edges = self.adjacency.tocoo()
        data = Data(
            x=torch.tensor(X),
            edge_index=torch.tensor(np.stack([edges.row, edges.col]).astype(np.int64)),
        )
        if self.graph.is_weighted:
            data.edge_weight = torch.tensor(edges.data)
        labels = self.graph.labels
        if labels is not None and labels.dtype.kind in "biu":
            data.y = torch.tensor(labels)
        data.nodes = torch.zeros(self.n_nodes, dtype=torch.bool)
        data.nodes[torch.tensor(self.nodes)] = True
        return data


def as_nodes(X, *, estimator=None):
    """Return a set of nodes; samples of arrays become nodes without edges."""
    if isinstance(X, NodeSet):
        if len(X) == 0:
            name = "" if estimator is None else f" by {type(estimator).__name__}"
            raise ValueError(
                f"Found a NodeSet with 0 nodes of {X.n_nodes} while a minimum of 1 is "
                f"required{name}."
            )
        return X
    X = check_array(
        to_numpy(X),
        dtype=[np.float64, np.float32],
        input_name="X",
        estimator=estimator,
    )
    n_nodes = X.shape[0]
    adjacency = sparse.csr_array((n_nodes, n_nodes), dtype=np.float32)
    return NodeSet(Graph(X, adjacency))


def check_nodes(estimator, X, reset):
    """Return `X` as a set of nodes, after checking its number of features."""
    nodes = as_nodes(X, estimator=estimator)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return nodes


def iter_graphs(X):
    """Yield graphs to run a network on, and the requested rows of its outputs."""
    if isinstance(X, NodeSet):
        yield X.graph, X.nodes
        return
    for start in range(0, len(X), _MAX_ROWS):
        block = X[start : start + _MAX_ROWS]
        n_rows = len(block)
        if n_rows < _MIN_ROWS:
            block = np.pad(block, ((0, _MIN_ROWS - n_rows), (0, 0)), mode="edge")
        yield as_nodes(block).graph, np.arange(n_rows)


def _make_graph(data, labels):
    """Return a graph from the user's data."""
    if isinstance(data, (tuple, list)) and len(data) == 2:
        X, adjacency = data
        parts = check_parts(X, adjacency, labels)
    elif is_data(data):
        X, adjacency, own = from_data(data)
        parts = check_parts(X, adjacency, own if labels is None else labels)
    else:
        raise TypeError(
            "data must be a torch_geometric.data.Data, a pair (X, adjacency) or "
            f"(X, edge_index), or a NodeSet, got {type(data).__name__}. A graph of "
            "networkx is converted by NodeSet.from_networkx(graph, features)."
        )
    read_only(*parts)
    return Graph(*parts)

"""Graphs, and sets of their nodes as samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
import weakref

import numpy as np
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import column_or_1d, validate_data

from skood.utils._optional import import_optional
from skood.utils._torch import is_tensor, to_numpy
from skood.utils._warnings import warn

# Block size for samples of arrays, which are nodes without edges. With fewer samples
# than the second number a matrix product uses other kernels, which round differently.
_MAX_SAMPLES = 65536
_MIN_SAMPLES = 32


class Graph:
    """Graph behind sets of nodes, not modified; cached values must not refer to it."""

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
        nodes = None if self._whole is None else self._whole()
        if nodes is None:
            nodes = NodeSet(self)
            self._whole = weakref.ref(nodes)
        return nodes

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
        indices = node_numbers(key, len(self), "nodes of this set")
        return NodeSet(self.graph, self.nodes[indices])

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
        to_numpy(X), dtype=[np.float64, np.float32], input_name="X", estimator=estimator
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
    for start in range(0, len(X), _MAX_SAMPLES):
        block = X[start : start + _MAX_SAMPLES]
        n_samples = len(block)
        if n_samples < _MIN_SAMPLES:
            block = np.pad(block, ((0, _MIN_SAMPLES - n_samples), (0, 0)), mode="edge")
        yield as_nodes(block).graph, np.arange(n_samples)


def _make_graph(data, labels):
    """Return a graph from the user's data."""
    if isinstance(data, (tuple, list)) and len(data) == 2:
        X, adjacency = data
        parts = check_parts(X, adjacency, labels)
    elif is_data(data):
        X, adjacency, labels_of_data = from_data(data)
        parts = check_parts(X, adjacency, labels_of_data if labels is None else labels)
    else:
        raise TypeError(
            "data must be a torch_geometric.data.Data, a pair (X, adjacency) or "
            f"(X, edge_index), or a NodeSet, got {type(data).__name__}. A graph of "
            "networkx is converted by NodeSet.from_networkx(graph, features)."
        )
    read_only(*parts)
    return Graph(*parts)


def is_data(data):
    """Return whether data is a ``Data``, without importing torch_geometric."""
    module = sys.modules.get("torch_geometric.data")
    return module is not None and isinstance(data, module.Data)


def from_data(data):
    """Return features, adjacency and labels of a ``Data``."""
    if data.x is None:
        raise ValueError(
            "The Data has no features x. Give each node a feature, such as its degree "
            "or a one."
        )
    X = _to_scipy(data.x)
    n_nodes = X.shape[0]
    edge_weight = getattr(data, "edge_weight", None)
    if data.edge_index is not None:
        edges = to_numpy(data.edge_index)
    elif is_tensor(getattr(data, "adj_t", None)):
        edges, edge_weight = _coordinates(data.adj_t)
        edges = edges[::-1]
    else:
        raise ValueError("The Data has no edges: neither edge_index nor a torch adj_t.")
    _check_edges(edges, n_nodes)
    if edge_weight is None:
        _warn_of_attributes(getattr(data, "edge_attr", None), edges.shape[1])
        edge_weight = np.ones(edges.shape[1], dtype=np.float32)
    else:
        edge_weight = to_numpy(edge_weight).ravel()
        if len(edge_weight) != edges.shape[1]:
            raise ValueError(
                f"edge_weight has {len(edge_weight)} weights for {edges.shape[1]} "
                "edges."
            )
    adjacency = sparse.coo_array((edge_weight, tuple(edges)), shape=(n_nodes, n_nodes))
    return X, adjacency, _labels_of(getattr(data, "y", None), n_nodes)


def _check_edges(edges, n_nodes):
    """Raise if an edge_index has another shape, or nodes that do not exist."""
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(
            f"edge_index must have shape (2, n_edges); got {tuple(edges.shape)}."
        )
    if edges.size and edges.dtype.kind not in "iu":
        raise ValueError(
            f"edge_index must hold indices of nodes, integers; got {edges.dtype}."
        )
    if edges.size and (edges.min() < 0 or edges.max() >= n_nodes):
        wrong = edges.min() if edges.min() < 0 else edges.max()
        raise ValueError(
            f"edge_index names the node {wrong}, but x has {n_nodes} rows, for the "
            f"nodes 0 to {n_nodes - 1}."
        )


def _from_edges(X, edges):
    """Return the adjacency of an edge_index; anything that is none is unchanged."""
    edges, n_nodes = _to_scipy(edges), X.shape[0]
    shape = np.shape(edges)
    is_pairs = len(shape) == 2 and shape[0] == 2 and shape != (n_nodes, n_nodes)
    if sparse.issparse(edges) or not is_pairs:
        return edges
    array = np.asarray(edges)
    _check_edges(array, n_nodes)
    ones, array = np.ones(array.shape[1], dtype=np.float32), array.astype(np.int64)
    return sparse.coo_array((ones, tuple(array)), shape=(n_nodes, n_nodes))


def from_networkx(graph, features, labels, weight):
    """Return features, adjacency and labels of a graph of networkx."""
    networkx = import_optional("networkx", "from_networkx")
    if not isinstance(graph, networkx.Graph):
        raise TypeError(f"graph must be a networkx graph, got {type(graph).__name__}.")
    names = [features] if isinstance(features, str) else list(features)
    if not names or len(graph) == 0:
        raise ValueError(
            f"A graph with nodes, and the names of node attributes that are features, "
            f"are required; got {len(graph)} nodes and features={features!r}."
        )
    columns = []
    for name in names:
        values = _node_attribute(graph, name)
        try:
            columns.append(np.array(values, dtype=np.float64).reshape(len(graph), -1))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The feature {name!r} must be a number, or a vector of the same "
                f"length, at every node; got, for example, {values[0]!r}: {error}"
            ) from error
    if weight is not None:
        for *ends, value in graph.edges(data=weight):
            if value is None:
                raise ValueError(f"The edge {tuple(ends)} has no attribute {weight!r}.")
    # csr adds up entries; in coo, networkx corrects loops by negative ones
    adjacency = networkx.to_scipy_sparse_array(graph, weight=weight, format="csr")
    node_labels = None if labels is None else _node_attribute(graph, labels)
    return np.hstack(columns), adjacency, node_labels


def _node_attribute(graph, name):
    """Return the values of an attribute, in the order of the nodes, or raise."""
    values = []
    for node, attributes in graph.nodes(data=True):
        if name not in attributes:
            raise ValueError(
                f"The node {node!r} has no attribute {name!r}; its attributes are "
                f"{sorted(map(str, attributes))}."
            )
        values.append(attributes[name])
    return values


def _warn_of_attributes(edge_attr, n_edges):
    """Warn if edge attributes, which are not used, look like weights."""
    if edge_attr is None:
        return
    edge_attr = np.asarray(to_numpy(edge_attr))
    is_column = edge_attr.ndim in (1, 2) and edge_attr.size == n_edges
    if is_column and (edge_attr != 1).any():
        warn(
            f"The Data has edge_attr with one number for each of its {n_edges} edges, "
            "and no edge_weight. Attributes are not used, so all edges have a weight "
            "of one. If they are weights, set data.edge_weight = data.edge_attr."
        )


def _labels_of(y, n_nodes):
    """Return the node labels of a ``Data``, or None."""
    if y is None:
        return None
    y = np.asarray(to_numpy(y))
    if y.ndim > 1 and y.shape[0] == n_nodes and y.size > n_nodes:
        warn(
            f"The Data has {y.size // n_nodes} values of y for each of its {n_nodes} "
            "nodes, which are not taken as labels. Pass labels=, one for each node, "
            "such as data.y.argmax(1) of classes in columns."
        )
    if y.ndim == 0 or y.size != n_nodes:
        return None  # several labels per node, or a label of the whole graph
    return y.ravel()


def _coordinates(tensor):
    """Return rows and columns, and values, of a torch matrix of any layout."""
    tensor = tensor.detach().to_sparse_coo().coalesce()
    return to_numpy(tensor.indices()), to_numpy(tensor.values())


def _to_scipy(matrix):
    """Return a sparse tensor as a SciPy matrix, never dense; see `to_numpy`."""
    if is_tensor(matrix) and "sparse" in str(matrix.layout):
        indices, values = _coordinates(matrix)
        return sparse.coo_array((values, tuple(indices)), shape=tuple(matrix.shape))
    return to_numpy(matrix)


def check_parts(X, adjacency, labels=None):
    """Return the parts of a graph, checked and copied; see `Graph`."""
    for name, value in (("X", X), ("adjacency", adjacency)):
        if value is None:
            raise TypeError(
                f"{name} of the pair (X, adjacency) is None. A graph without edges has "
                "the adjacency matrix scipy.sparse.csr_array((n_nodes, n_nodes)), and "
                "one without features may have its degrees or ones in place of them. "
                "Samples without edges can be given to estimators as an array."
            )
    X = check_features(X)
    adjacency = _check_adjacency(_from_edges(X, adjacency))
    check_sizes(X, adjacency)
    return X, adjacency, check_labels(labels, X.shape[0])


def check_features(X):
    """Return a copy of features: an ndarray, or a csr_array in canonical format."""
    X = check_array(
        _to_scipy(X),
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        copy=True,
        input_name="features",
    )
    if sparse.issparse(X):
        X = sparse.csr_array(X)
        X.sum_duplicates()
    return X


def _check_adjacency(adjacency):
    adjacency = _to_scipy(adjacency)
    if sparse.issparse(adjacency):  # before repeated edges are added
        _check_weights(adjacency.tocoo().data)
    adjacency = check_array(
        adjacency,
        accept_sparse="coo",
        dtype=np.float32,
        ensure_min_samples=0,
        ensure_min_features=0,
        input_name="adjacency",
    )
    adjacency = sparse.csr_array(adjacency)  # a copy: the input is not modified
    _check_weights(adjacency.data)
    if not np.isfinite(adjacency.data).all():
        raise ValueError(
            "Weights of repeated edges add up to more than float32 can hold, "
            f"{np.finfo(np.float32).max:.3g}. Scale the weights."
        )
    adjacency.eliminate_zeros()
    adjacency.sum_duplicates()
    return adjacency


def _check_weights(weights):
    if weights.size and weights.min() < 0:
        raise ValueError(
            f"Weights of edges must not be negative, got a weight of {weights.min():g}."
        )


def check_sizes(X, adjacency):
    """Raise if features and edges have different numbers of nodes."""
    n_nodes = X.shape[0]
    if adjacency.shape != (n_nodes, n_nodes):
        raise ValueError(
            f"There are features of {n_nodes} nodes, so the adjacency matrix must have "
            f"shape ({n_nodes}, {n_nodes}); got {adjacency.shape}. Edges as pairs of "
            "nodes, edge_index, have the shape (2, n_edges)."
        )


def check_labels(labels, n_nodes):
    """Return a copy of labels, or None."""
    if labels is None:
        return None
    labels = np.array(column_or_1d(to_numpy(labels)))
    if len(labels) != n_nodes:
        raise ValueError(
            f"labels must have one label per node, {n_nodes}; got {len(labels)}."
        )
    return labels


def read_only(*arrays):
    """Make arrays read-only; they may be sparse or None."""
    for array in arrays:
        if sparse.issparse(array):
            read_only(array.data, array.indices, array.indptr)
        elif array is not None:
            array.flags.writeable = False


def node_numbers(nodes, size, what):
    """Return an index of any kind as integers from 0 to size - 1."""
    if nodes is None:
        return np.arange(size)
    if isinstance(nodes, slice):
        return np.arange(size)[nodes]
    nodes = np.atleast_1d(to_numpy(nodes))
    if nodes.ndim != 1:
        raise IndexError(f"Nodes are named by a 1-D array, got {nodes.ndim} axes.")
    if nodes.dtype == bool:
        if len(nodes) != size:
            raise IndexError(
                f"A mask must have one value for each of the {size} {what}; got "
                f"{len(nodes)}."
            )
        return np.flatnonzero(nodes)
    if nodes.size == 0:
        return np.empty(0, dtype=np.int64)
    if nodes.dtype.kind not in "iu":
        raise IndexError(
            f"Nodes are named by integers or a mask, got dtype {nodes.dtype}."
        )
    low, high = int(nodes.min()), int(nodes.max())
    if low < -size or high >= size:
        wrong = high if high >= size else low
        raise IndexError(f"There is no node {wrong}: there are {size} {what}.")
    return nodes.astype(np.int64) % size

"""Validation of features, edges and labels of graphs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import numpy as np
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import column_or_1d

from skood.utils._optional import import_optional
from skood.utils._torch import is_tensor, to_numpy
from skood.utils._warnings import warn


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
    found = None if labels is None else _node_attribute(graph, labels)
    return np.hstack(columns), adjacency, found


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
    for name, part in (("X", X), ("adjacency", adjacency)):
        if part is None:
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

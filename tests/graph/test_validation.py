"""Parts of graphs and graphs of networkx: what is copied, checked and warned of."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import pickle
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from skood.datasets import make_ood_graph
from skood.exceptions import SkoodWarning
from skood.graph import NodeSet
from skood.utils._optional import import_optional
from tests._loops import looped

X = np.arange(6.0).reshape(3, 2)
A = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
Y = np.array([0, 1, 0])
EDGES = [[0, 1, 1], [1, 0, 2]]


# --- copies that nobody writes to ---------------------------------------------------


def _as_tensor(array):
    return pytest.importorskip("torch").from_numpy(array)


@looped("make_X", [np.array, pd.DataFrame, sparse.csr_array, "tensor"])
@looped("dtype", [np.float32, np.float64, np.int64])
def test_later_changes_of_the_data_do_not_matter(make_X, dtype):
    separate_X, separate_A, separate_y = X.astype(dtype), sparse.csr_array(A), Y.copy()
    original = _as_tensor(separate_X) if isinstance(make_X, str) else make_X(separate_X)
    nodes = NodeSet((original, separate_A), labels=separate_y)
    values = original.data if sparse.issparse(original) else original
    if isinstance(original, pd.DataFrame):
        original.iloc[:] = 7
    else:
        values[:] = 7
    separate_A.data[:] = 7.0
    separate_y[:] = 7
    features = nodes.features
    assert_array_equal(features.toarray() if sparse.issparse(features) else features, X)
    assert_array_equal(nodes.adjacency.toarray(), A)
    assert_array_equal(nodes.labels, Y)


def test_later_changes_of_new_features_and_labels_do_not_matter():
    new_X, new_y = 2 * X, Y + 1
    nodes = NodeSet((X, A))
    other = NodeSet(nodes.with_features(new_X), labels=new_y)
    new_X[:], new_y[:] = 7, 7
    assert_array_equal(other.features, 2 * X)
    assert_array_equal(other.labels, Y + 1)


@pytest.mark.parametrize("way", ["made", "with_features", "pickled", "copied"])
@pytest.mark.parametrize("is_sparse", [True, False])
def test_nobody_writes_into_a_graph(way, is_sparse):
    features = sparse.csr_array(X) if is_sparse else X
    nodes = NodeSet((features, A), labels=Y)
    if way == "with_features":
        nodes = nodes.with_features(features * 1)
    elif way == "pickled":
        nodes = pickle.loads(pickle.dumps(nodes))
    elif way == "copied":
        nodes = copy.deepcopy(nodes)
    graph = nodes.graph
    arrays = [graph.labels]
    for component in (graph.X, graph.adjacency):
        has_parts = sparse.issparse(component)
        arrays += (
            [component.data, component.indices, component.indptr]
            if has_parts
            else [component]
        )
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    other = NodeSet(nodes, labels=Y)
    with pytest.raises(ValueError, match="read-only"):
        other.graph.labels[0] = 1
    # what a set gives is the user's own
    nodes.features[:1] *= 2
    nodes.labels[0] = 5
    assert_array_equal(nodes.labels, Y)
    result = nodes.features
    assert_array_equal(result.toarray() if is_sparse else result, X)


def test_input_stays_writable():
    separate_X, separate_A, separate_y = X.copy(), sparse.csr_array(A), Y.copy()
    NodeSet((separate_X, separate_A), labels=separate_y)
    for array in (separate_X, separate_A.data, separate_A.indices, separate_y):
        assert array.flags.writeable


def test_arrays_of_graphs_make_tensors_without_warnings():
    """torch warns where it would share memory that must not be written to."""
    torch = pytest.importorskip("torch")
    from skood.graph._tensors import GraphTensors

    for features in (X, sparse.csr_array(X)):
        nodes = NodeSet((features, A), labels=Y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tensors = GraphTensors(nodes.graph, torch.device("cpu"))
            tensors.aggregate("walk", tensors.dense)[tensors.edge_index[0]]
            assert_array_equal(tensors.dense, X)
            assert_array_equal(tensors.edge_weight, [2, 1, 1])


# --- what is refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    "data, name", [((X, None), "adjacency"), ((None, A), "X"), ([X, None], "adjacency")]
)
def test_pair_with_none(data, name):
    message = (
        rf"^{name} of the pair \(X, adjacency\) is None. A graph without edges has"
    )
    with pytest.raises(TypeError, match=message):
        NodeSet(data)


def test_sums_of_repeated_edges_that_are_not_finite():
    largest = np.finfo(np.float32).max
    ends = [0, 0], [1, 1]
    twice = sparse.coo_array((np.full(2, 0.75 * largest), ends), shape=(3, 3))
    with pytest.raises(ValueError, match=r"(more than|too large for).*float32"):
        NodeSet((X, twice))
    half = sparse.coo_array((np.full(2, 0.375 * largest), ends), shape=(3, 3))
    total = NodeSet((X, half)).adjacency[0, 1]
    assert total == pytest.approx(0.75 * largest, rel=1e-6)


# --- what of a Data is not read ------------------------------------------------------


@pytest.fixture
def make():
    """Make a `Data` with three edges."""
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data")

    def made(**parts):
        parts = {"x": X, "edge_index": EDGES, **parts}
        return data.Data(
            **{name: torch.tensor(component) for name, component in parts.items()}
        )

    return made


def _warnings_of(data):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nodes = NodeSet(data)
    assert all(warning.category is SkoodWarning for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)
    return nodes, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("values", [[2.0, 1.0, 1.0], [[2.0], [1.0], [1.0]]])
def test_attributes_that_may_be_weights(make, values):
    nodes, (message,) = _warnings_of(make(edge_attr=values))
    assert "one number for each of its 3 edges, and no edge_weight" in message
    assert "set data.edge_weight = data.edge_attr" in message
    assert_array_equal(nodes.adjacency.toarray(), A > 0)
    data = make(edge_attr=values)
    data.edge_weight = data.edge_attr  # what the warning says
    nodes, result = _warnings_of(data)
    assert result == []
    assert_array_equal(nodes.adjacency.toarray(), A)


@pytest.mark.parametrize(
    "parts",
    [
        {"edge_attr": np.zeros((3, 2))},
        {"edge_attr": [1.0, 1.0, 1.0]},
        {"edge_attr": [5.0, 5.0, 5.0], "edge_weight": [1.0, 1.0, 1.0]},
        {},
    ],
)
def test_attributes_that_are_no_weights(make, parts):
    nodes, result = _warnings_of(make(**parts))
    assert result == []
    assert_array_equal(nodes.adjacency.toarray(), A > 0)


def test_labels_in_columns(make):
    nodes, (message,) = _warnings_of(make(y=[[0, 1], [1, 0], [1, 1]]))
    assert "has 2 values of y for each of its 3 nodes, which are not taken" in message
    assert nodes.labels is None
    for y in ([[0], [1], [0]], Y):
        nodes, result = _warnings_of(make(y=y))
        assert result == []
        assert_array_equal(nodes.labels, Y)
    for of_graph in (1, [[1, 0]]):
        nodes, result = _warnings_of(make(y=of_graph))
        assert result == []
        assert nodes.labels is None


# --- torch_geometric -----------------------------------------------------------------


def test_import_of_torch_geometric(monkeypatch):
    pytest.importorskip("torch_geometric")
    name = "torch_geometric.data"
    assert import_optional(name, "this", "graph").__name__ == name
    nodes = NodeSet((X, A))
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    message = r"to_data needs torch_geometric, which is not installed: pip install \"to"
    with pytest.raises(ImportError, match=message):
        nodes.to_data()


nx = pytest.importorskip("networkx")


def make_graph(kind):
    """Return a graph whose nodes are not in the order of their names."""
    graph = kind()
    for name, size, place, group in [
        ("c", 3.0, (0.0, 1.0), "x"),
        ("a", 1, (2.0, 3.0), "y"),
        ("b", 2.5, (4.0, 5.0), "x"),
        (7, 0.0, [6.0, 7.0], "z"),
    ]:
        graph.add_node(name, size=size, place=place, group=group)
    for first, second, cost in [("a", "b", 2.0), ("b", "c", 0.5), ("c", "c", 4.0)]:
        graph.add_edge(first, second, cost=cost)
    return graph


@pytest.mark.parametrize("weight", [None, "cost"])
@pytest.mark.parametrize(
    "kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph], ids=str
)
def test_nodes_features_labels_and_edges(kind, weight):
    graph = make_graph(kind)
    if graph.is_multigraph():
        graph.add_edge("a", "b", cost=8.0)
    nodes = NodeSet.from_networkx(
        graph, ["size", "place"], labels="group", weight=weight
    )
    expected = [[3, 0, 1], [1, 2, 3], [2.5, 4, 5], [0, 6, 7]]
    assert_array_equal(nodes.features, np.array(expected, dtype=float))
    assert_array_equal(nodes.labels, ["x", "y", "x", "z"])
    A, index = np.zeros((4, 4)), {"c": 0, "a": 1, "b": 2, 7: 3}
    for u, v, attributes in graph.edges(data=True):
        value = 1.0 if weight is None else attributes[weight]
        A[index[u], index[v]] += value
        if u != v and not graph.is_directed():
            A[index[v], index[u]] += value
    assert_array_equal(nodes.adjacency.toarray(), A)


def test_equal_to_features_and_adjacency():
    nodes, y = make_ood_graph(60, feature_signal=2, return_X_y=True, random_state=0)
    graph = nx.from_scipy_sparse_array(nodes.adjacency)
    for i, x in enumerate(nodes.features):
        graph.nodes[i].update(x=x, y=int(y[i]))
    result = NodeSet.from_networkx(graph, "x", labels="y")
    assert_array_equal(result.labels, y)
    assert_allclose(result.features, nodes.features, rtol=0, atol=1e-12)
    for kind in ("sum", "mean", "walk", "symmetric"):
        difference = result.graph.operator(kind) - nodes.graph.operator(kind)
        assert np.abs(difference.toarray()).max() <= 1e-12


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        (None, {"features": "age"}, ValueError, "node 'c' has no attribute 'age'; its"),
        (
            None,
            {"labels": "kind"},
            ValueError,
            r"'kind'; .* \['group', 'place', 's",
        ),
        (None, {"weight": "w"}, ValueError, r"edge \('.', '.'\) has no attribute 'w'"),
        (None, {"features": []}, ValueError, "names of node attributes"),
        (None, {"features": "group"}, ValueError, "The feature 'group' must be a num"),
        ({"place": (1.0,)}, {}, ValueError, "'place' must be a number, or a vector of"),
        ({"size": np.nan}, {}, ValueError, "Input features contains NaN"),
        ({"size": None}, {}, ValueError, "Input features contains NaN"),
    ],
)
def test_errors(change, options, error, message):
    graph = make_graph(nx.Graph)
    graph.nodes["b"].update(change or {})
    with pytest.raises(error, match=message):
        NodeSet.from_networkx(graph, **{"features": ["size", "place"], **options})


def test_other_types():
    with pytest.raises(TypeError, match="must be a networkx graph, got ndarray"):
        NodeSet.from_networkx(np.eye(3), "size")
    with pytest.raises(ValueError, match="got 0 nodes"):
        NodeSet.from_networkx(nx.Graph(), "size")
    with pytest.raises(TypeError, match=r"got Graph\. A graph of networkx is conver"):
        NodeSet(make_graph(nx.Graph))

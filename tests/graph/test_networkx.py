"""Graphs of networkx as sets of nodes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skood.datasets import make_ood_graph
from skood.graph import NodeSet

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

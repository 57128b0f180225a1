"""Evidence of labeled nodes by a kernel of their distance."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import norm
from sklearn.model_selection import GridSearchCV, cross_val_score

from skood.base import UncertaintyDetector
from skood.graph import GKDE, NodeSet
from skood.graph import _gkde as gkde_module


def _path(n_nodes, *, directed=False, X=None):
    """The path 0 - 1 - … with features of zeros."""
    X = np.zeros((n_nodes, 1)) if X is None else X
    first = np.arange(n_nodes - 1)
    adjacency = sparse.lil_array((n_nodes, n_nodes))
    adjacency[first, first + 1] = 1
    if not directed:
        adjacency[first + 1, first] = 1
    return NodeSet((X, adjacency.tocsr()))


def _random_graph(n_nodes, n_edges, seed, *, directed=True, weighted=True):
    """Random edges with loops; the last node has none."""
    rng = np.random.default_rng(seed)
    A = np.zeros((n_nodes, n_nodes))
    i, j = rng.integers(n_nodes - 1, size=(2, n_edges))
    A[i, j] = rng.uniform(0.1, 9.0, size=n_edges) if weighted else 1.0
    if not directed:
        A = np.maximum(A, A.T)
    return NodeSet((rng.normal(size=(n_nodes, 3)), A)), A


def _hops(A, start):
    """Number of edges on the shortest path to each node that can be reached."""
    result, queue = {start: 0}, [start]
    while queue:
        node = queue.pop(0)
        for other in range(len(A)):
            if A[node][other] != 0 and other not in result:
                result[other] = result[node] + 1
                queue.append(other)
    return result


def _naive_alpha(A, nodes, labels, classes, *, sigma=1.0, cutoff=10, weight=None):
    """The equation of the docstring, node by node."""
    alpha = [[1.0] * len(classes) for _ in range(len(A))]
    for position, (node, label) in enumerate(zip(nodes, labels, strict=True)):
        for other, d in _hops(A, node).items():
            if cutoff is None or d <= cutoff:
                g = math.exp(-(d**2) / (2 * sigma**2)) / math.sqrt(2 * math.pi)
                g *= 1.0 if weight is None else weight[position]
                alpha[other][classes.index(label)] += g / sigma
    return np.array(alpha)


# --- hops --------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("sigma, cutoff", [(1.0, 10), (0.5, 2), (3.0, None), (2.0, 0)])
def test_against_a_search_in_plain_python(directed, sigma, cutoff):
    nodes, A = _random_graph(60, 90, seed=1, directed=directed)
    rng = np.random.default_rng(2)
    # more than a word of training nodes, in any order, some of them twice
    train = rng.choice(60, size=80)
    y = rng.choice(["c", "a", "b"], size=80)
    clf = GKDE(sigma, cutoff=cutoff).fit(nodes[train], y)
    expected = _naive_alpha(A, train, y, ["a", "b", "c"], sigma=sigma, cutoff=cutoff)
    assert_allclose(clf.predict_alpha(nodes), expected, rtol=1e-13)
    assert clf.metric_ == "hops"
    view = nodes[[59, 3, 3, 0]]
    assert_array_equal(clf.predict_alpha(view), clf.predict_alpha(nodes)[[59, 3, 3, 0]])


@pytest.mark.parametrize("n_train", [1, 63, 64, 65, 128])
def test_words_are_filled(n_train):
    nodes, A = _random_graph(130, 200, seed=3)
    train = np.random.default_rng(4).permutation(130)[:n_train]
    y = np.arange(n_train) % 2
    alpha = GKDE(2.0).fit(nodes[train], y).predict_alpha(nodes)
    classes = [0] if n_train == 1 else [0, 1]
    expected = _naive_alpha(A, train, y, classes, sigma=2.0)
    assert_allclose(alpha, expected, rtol=1e-13)


def test_features_do_not_count():
    nodes, _ = _random_graph(40, 80, seed=5)
    clf = GKDE().fit(nodes[[1, 5]], [0, 1])
    other = nodes.with_features(np.zeros((40, 3)))  # another graph, the same edges
    assert_array_equal(clf.predict_alpha(other), clf.predict_alpha(nodes))


def test_parts_that_cannot_be_reached_are_vacuous():
    """Two paths: a training node in the first is no evidence in the second."""
    A = np.zeros((6, 6))
    A[[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]] = 1  # 0 - 1 - 2, 3 - 4, and 5
    nodes = NodeSet((np.zeros((6, 1)), A))
    clf = GKDE().fit(nodes[[0, 2]], ["x", "y"])
    uncertainty = clf.predict_uncertainty(nodes[[3, 4, 5]])
    assert_array_equal(uncertainty.epistemic, 1.0)
    assert_array_equal(clf.predict_proba(nodes[[3, 5]]), 0.5)
    assert list(clf.predict(nodes[[0, 2, 5]])) == ["x", "y", "x"]


def test_isolated_training_node_is_evidence_for_itself():
    nodes = NodeSet((np.zeros((3, 1)), np.zeros((3, 3))))
    alpha = GKDE().fit(nodes[[1, 2]], [0, 1]).predict_alpha(nodes)
    g = norm.pdf(0)
    assert_allclose(alpha, [[1, 1], [1 + g, 1], [1, 1 + g]], rtol=1e-14)


def test_search_ends_where_the_kernel_does():
    """A long path without a cutoff: beyond 39 sigma the density is zero."""
    nodes = _path(5000)
    alpha = GKDE(cutoff=None).fit(nodes[[0]], [0]).predict_alpha(nodes)
    assert_allclose(alpha[:, 0], 1 + norm.pdf(np.arange(5000)), rtol=1e-14)
    clf = GKDE(cutoff=None).fit(nodes[[0]], [0])
    searched = []
    clf._kernel = lambda d: searched.append(d) or GKDE._kernel(clf, d)
    clf.predict_alpha(nodes)
    assert len(searched) == 40


def test_memory_does_not_grow_with_the_training_nodes():
    import tracemalloc

    n = 20_000
    nodes = _path(n)
    y = np.arange(n) % 5
    clf = GKDE(cutoff=2).fit(nodes[: 64 * 20], y[: 64 * 20])
    nodes.graph.operator("sum")
    tracemalloc.start()
    clf.predict_alpha(nodes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20  # distances in float64 would be 195 MiB


def test_nodes_may_be_labeled_twice():
    """Evidence for both labels, with the weights of each."""
    nodes, A = _random_graph(20, 40, seed=6)
    train, y, w = [4, 4, 9], ["b", "a", "b"], [0.5, 2.0, 3.0]
    clf = GKDE().fit(nodes[train], y, sample_weight=w)
    expected = _naive_alpha(A, train, y, ["a", "b"], weight=w)
    assert_allclose(clf.predict_alpha(nodes), expected, rtol=1e-14)


def test_class_without_weight_has_no_evidence():
    nodes = _path(4)
    clf = GKDE().fit(nodes[[0, 1, 3]], [0, 1, 2], sample_weight=[1, 0, 1])
    assert list(clf.classes_) == [0, 1, 2]
    assert list(clf.nodes_) == [0, 3]
    assert_array_equal(clf.predict_alpha(nodes)[:, 1], 1.0)


# --- rows of arrays ----------------------------------------------------------------


def test_euclidean_against_a_loop():
    rng = np.random.default_rng(7)
    X, T = rng.normal(size=(30, 4)), rng.normal(size=(20, 4))
    y, w = rng.integers(3, size=30), rng.uniform(size=30)
    clf = GKDE(1.5, cutoff=2.5).fit(X, y, sample_weight=w)
    expected = np.ones((20, 3))
    for j in range(20):
        for i in range(30):
            d = math.sqrt(sum((T[j, k] - X[i, k]) ** 2 for k in range(4)))
            if d <= 2.5:
                expected[j, y[i]] += w[i] * norm.pdf(d, scale=1.5)
    assert clf.metric_ == "euclidean"
    assert_allclose(clf.predict_alpha(T), expected, rtol=1e-12)
    # rows do not depend on each other
    item = np.concatenate([clf.predict_alpha(row[None]) for row in T])
    assert_array_equal(item, clf.predict_alpha(T))


def test_euclidean_in_chunks(monkeypatch):
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(50, 2)), np.arange(50) % 3
    clf = GKDE().fit(X, y)
    expected = clf.predict_alpha(X)
    chunks = []

    def small(n_samples, bytes_per_row):
        chunks.append(bytes_per_row)
        return (
            slice(start, min(start + 7, n_samples)) for start in range(0, n_samples, 7)
        )

    monkeypatch.setattr("skood.graph._gkde.row_chunks", small)
    assert_array_equal(clf.predict_alpha(X), expected)
    assert chunks == [32 * 50 + 16 * 2]


def test_chunks_of_wide_sparse_samples(monkeypatch):
    """They are made dense, so fewer of them are worked on at once."""
    n_features = 200_000
    X = sparse.random(60, n_features, density=1e-4, format="csr", random_state=0)
    y = np.arange(60) % 3
    nodes = NodeSet((X, sparse.csr_array((60, 60))))
    clf = GKDE(metric="euclidean").fit(nodes[:3], y[:3])
    expected = clf.predict_alpha(nodes)
    sizes = []
    dense = gkde_module._dense
    monkeypatch.setattr(
        gkde_module,
        "_dense",
        lambda samples: sizes.append(samples.shape[0]) or dense(samples),
    )
    assert_array_equal(clf.predict_alpha(nodes), expected)
    assert sizes == [20, 20, 20]  # 3.2 MB each, of 64 MiB


@pytest.mark.parametrize("as_array", [False, True])
def test_parameters_are_those_of_fit(as_array):
    nodes = _path(30)
    X = np.arange(30.0)[:, None] if as_array else nodes
    clf = GKDE(2.0, cutoff=3.0).fit(X[[4, 20]], [0, 1])
    expected = clf.predict_alpha(X)
    clf.set_params(sigma=0.5, cutoff=None)
    assert_array_equal(clf.predict_alpha(X), expected)
    assert (clf.fit(X[[4, 20]], [0, 1]).predict_alpha(X) != expected).any()


@pytest.mark.parametrize("is_sparse", [False, True])
def test_euclidean_on_nodes(is_sparse):
    """Features of nodes in place of paths; any graph can then be scored."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(12, 3)) * (rng.uniform(size=(12, 3)) < 0.5)
    y = np.arange(12) % 2
    nodes = NodeSet((sparse.csr_array(X) if is_sparse else X, np.ones((12, 12))))
    clf = GKDE(metric="euclidean").fit(nodes, y)
    expected = GKDE().fit(X, y).predict_alpha(X[::2])
    assert_array_equal(clf.predict_alpha(nodes[::2]), expected)
    assert_array_equal(clf.predict_alpha(X[::2]), expected)


def test_samples_that_are_infinitely_far_are_vacuous():
    X = np.array([[1e300, 0.0], [-1e300, 0.0]])
    clf = GKDE(cutoff=None).fit(X, [0, 1])
    g = norm.pdf(0)
    assert_allclose(clf.predict_alpha(X), [[1 + g, 1], [1, 1 + g]], rtol=1e-14)


# --- what it predicts --------------------------------------------------------------


def test_probabilities_and_uncertainty_follow_from_alpha():
    nodes, _ = _random_graph(50, 120, seed=10)
    clf = GKDE().fit(nodes[:20], np.arange(20) % 4)
    alpha = clf.predict_alpha(nodes)
    total = alpha.sum(axis=1)
    assert_allclose(clf.predict_proba(nodes), alpha / total[:, None])
    uncertainty = clf.predict_uncertainty(nodes)
    assert_allclose(uncertainty.epistemic, 4 / total, rtol=1e-14)
    assert_array_equal(clf.predict(nodes), alpha.argmax(axis=1))


def test_far_nodes_are_more_uncertain():
    nodes = _path(9)
    epistemic = GKDE().fit(nodes[[0]], [0]).predict_uncertainty(nodes).epistemic
    assert (np.diff(epistemic) > 0).all()
    detector = UncertaintyDetector(GKDE()).fit(nodes[[0, 1, 2]], [0, 0, 1])
    assert (np.diff(detector.score_samples(nodes)[2:]) < 0).all()


def test_single_class():
    nodes = _path(3)
    clf = GKDE().fit(nodes[[0]], ["a"])
    assert_array_equal(clf.predict_proba(nodes), 1.0)


# --- in scikit-learn ---------------------------------------------------------------


def _two_groups():
    """Two cliques of ten nodes, joined by an edge."""
    A = np.zeros((20, 20))
    A[:10, :10] = A[10:, 10:] = 1 - np.eye(10)
    A[9, 10] = A[10, 9] = 1
    return NodeSet((np.zeros((20, 1)), A)), np.repeat(["left", "right"], 10)


NODES, Y = _two_groups()


def test_searches_and_splits():
    assert cross_val_score(GKDE(), NODES, Y, cv=5).min() == 1.0
    search = GridSearchCV(GKDE(), {"sigma": [0.01, 1.0]}, cv=5).fit(NODES, Y)
    assert search.best_params_ == {"sigma": 1.0}
    assert (search.predict(NODES[[0, 19]]) == ["left", "right"]).all()


def test_refit_forgets():
    clf = GKDE().fit(NODES, Y).fit(np.eye(3), [0, 1, 2])
    assert clf.metric_ == "euclidean"
    assert clf.predict_alpha(np.eye(3)).shape == (3, 3)


# --- errors ------------------------------------------------------------------------


def test_another_graph():
    clf = GKDE().fit(NODES, Y)
    with pytest.raises(
        ValueError,
        match="fitted on a graph of 20 nodes, and X is of another graph, of 4 nodes "
        r"and 6 edges\. Fit on nodes of this graph, or with metric='euclidean'",
    ):
        clf.predict(_path(4))
    A = NODES.adjacency.toarray()
    A[9, 10] = 0  # one edge less
    with pytest.raises(ValueError, match="of another graph, of 20 nodes and 181 edges"):
        clf.predict(NodeSet((NODES.features, A)))


def test_arrays_have_no_paths():
    message = "metric='hops' counts edges on paths, and the"
    with pytest.raises(ValueError, match=message):
        GKDE(metric="hops").fit(np.eye(3), [0, 1, 2])
    message = "but X is an array, whose samples have no edges"
    with pytest.raises(ValueError, match=message):
        GKDE().fit(NODES, Y).predict(np.zeros((3, 1)))


def test_overflow():
    message = r"at sigma=1e-300 and weights up to 1e\+10 overflows"
    with pytest.raises(ValueError, match=message):
        GKDE(1e-300).fit(np.eye(2), [0, 1], sample_weight=[1e10, 1.0])


@pytest.mark.parametrize(
    "parameters",
    [{"sigma": 0.0}, {"sigma": "1"}, {"cutoff": -1}, {"metric": "cosine"}],
    ids=str,
)
def test_parameters(parameters):
    name = next(iter(parameters))
    with pytest.raises(ValueError, match=f"'{name}' parameter of GKDE must be"):
        GKDE(**parameters).fit(np.eye(2), [0, 1])

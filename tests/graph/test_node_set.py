"""Tests of sets of nodes: what they hold, how they are indexed, split and searched."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import io
import pickle
import subprocess
import sys
import warnings
import weakref

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import resample, shuffle

from skood.datasets import make_ood_graph
from skood.graph import NodeSet
from skood.graph._node_set import Graph, as_nodes
from skood.model_selection import LeaveClassesOut, OODStratifiedKFold
from tests._loops import looped

# Directed and weighted; node 2 has a loop, node 4 no edge, node 3 only outgoing ones.
WEIGHTS = {(0, 1): 2.0, (1, 0): 0.5, (1, 2): 1.0, (2, 2): 3.0, (3, 0): 4.0, (3, 1): 1.0}
X = np.arange(10.0).reshape(5, 2)
Y = np.array([0, 1, 0, 1, 2])


def adjacency(dtype=np.float64):
    A = np.zeros((5, 5), dtype=dtype)
    for (i, j), weight in WEIGHTS.items():
        A[i, j] = weight
    return A


@pytest.fixture
def nodes():
    return NodeSet((X, adjacency()), labels=Y)


class GraphMean(ClassifierMixin, BaseEstimator):
    """Nearest mean of the classes, among features averaged along edges.

    It sees the whole graph of what it is given, and fits on the nodes of the view.
    """

    def __init__(self, n_hops=1):
        self.n_hops = n_hops

    def _features(self, X):
        H = X.graph.X
        for _ in range(self.n_hops):
            H = X.graph.operator("walk") @ H
        return H[X.nodes]

    def fit(self, X, y):
        H = self._features(X)
        self.classes_ = np.unique(y)
        self.means_ = np.stack([H[y == c].mean(axis=0) for c in self.classes_])
        return self

    def decision_function(self, X):
        H = self._features(X)
        return -((H[:, None] - self.means_) ** 2).sum(axis=2)

    def predict(self, X):
        return self.classes_[self.decision_function(X).argmax(axis=1)]


class Scale(TransformerMixin, BaseEstimator):
    """A step that gives the same nodes with other features."""

    def __init__(self, factor=2.0):
        self.factor = factor

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return X.with_features(X.graph.X * self.factor)


@pytest.fixture(scope="module")
def problem():
    return make_ood_graph(
        300, n_features=8, feature_signal=3.0, return_X_y=True, random_state=0
    )


# --- what it holds -----------------------------------------------------------------


def test_attributes(nodes):
    assert len(nodes) == nodes.n_nodes == nodes.graph.n_nodes == 5
    assert nodes.shape == (5, 2)
    assert nodes.ndim == 2
    assert nodes.dtype == np.float64
    assert nodes.graph.n_features == 2
    assert_array_equal(nodes.nodes, np.arange(5))
    assert nodes.nodes.dtype == np.int64
    assert_array_equal(nodes.features, X)
    assert_array_equal(nodes.labels, Y)
    assert_array_equal(nodes.adjacency.toarray(), adjacency())
    assert nodes.adjacency.dtype == np.float32
    assert repr(nodes) == "NodeSet of 5 of 5 nodes with 2 features and 6 edges"


def test_a_view(nodes):
    view = nodes[[3, 1]]
    assert view.graph is nodes.graph
    assert view.shape == (2, 2)
    assert view.n_nodes == 5
    assert_array_equal(view.features, X[[3, 1]])
    assert_array_equal(view.labels, Y[[3, 1]])
    assert view.adjacency is nodes.adjacency
    assert repr(view) == "NodeSet of 2 of 5 nodes with 2 features and 6 edges"
    whole = view.whole()
    assert_array_equal(whole.nodes, np.arange(5))
    assert whole.graph is nodes.graph


def test_nodes_may_be_named_at_once(nodes):
    view = NodeSet((X, adjacency()), [4, 0], labels=Y)
    assert_array_equal(view.nodes, [4, 0])
    assert_array_equal(view.labels, [2, 0])
    # a set alone is taken as it is; numbers are always those of the graph
    again = NodeSet(view)
    assert again.graph is view.graph
    assert_array_equal(again.nodes, [4, 0])
    assert_array_equal(NodeSet(view, slice(1, 3)).nodes, [1, 2])
    assert_array_equal(NodeSet(view, [1]).nodes, [1])
    assert_array_equal(NodeSet(view, [True] + [False] * 4).nodes, [0])
    named = NodeSet(view, labels=list("abcde"))
    assert_array_equal(named.nodes, [4, 0])
    assert_array_equal(named.labels, ["e", "a"])


def test_the_whole_set_is_the_same_object_as_long_as_it_lives(nodes):
    whole = nodes[[3, 1]].whole()
    assert nodes.whole() is whole
    assert_array_equal(whole.nodes, np.arange(5))
    other = NodeSet(nodes, labels=list("abcde"))
    assert other.whole() is not whole
    reference = weakref.ref(whole)
    del whole
    assert reference() is None
    assert_array_equal(nodes.whole().nodes, np.arange(5))


def test_a_graph_goes_with_its_sets(nodes):
    """At once, without a search for cycles."""
    view = NodeSet((X, adjacency()), labels=Y)[[1, 2]]
    view.whole()
    view.graph.operator("walk")
    assert view.graph.is_weighted
    reference = weakref.ref(view.graph)
    del view
    assert reference() is None


def test_labels():
    assert NodeSet((X, adjacency())).labels is None
    names = NodeSet((X, adjacency()), labels=list("abacd"))
    assert_array_equal(names[1:3].labels, ["b", "a"])
    series = NodeSet((X, adjacency()), labels=pd.Series(Y, index=list("vwxyz")))
    assert_array_equal(series.labels, Y)
    with pytest.raises(ValueError, match="must have one label per node, 5; got 4"):
        NodeSet((X, adjacency()), labels=Y[:4])
    with pytest.raises(ValueError, match="1d array"):
        NodeSet((X, adjacency()), labels=np.eye(5))


@pytest.mark.parametrize("as_graph", [False, True])
def test_other_labels_for_the_same_nodes(nodes, as_graph):
    operator = nodes.graph.operator("walk")
    other = NodeSet(nodes.graph if as_graph else nodes, [2, 4], labels=list("vwxyz"))
    assert_array_equal(other.labels, ["x", "z"])
    assert_array_equal(nodes.labels, Y)
    assert other.graph.X is nodes.graph.X
    assert nodes.graph.operator("walk") is operator


def test_with_features(nodes):
    view = nodes[[4, 2]]
    nodes.graph.operator("sum")
    other = view.with_features(np.ones((5, 3)))
    assert other.shape == (2, 3)
    assert_array_equal(other.nodes, [4, 2])
    assert_array_equal(other.labels, [2, 0])
    assert other.adjacency is nodes.adjacency
    assert other.graph is not nodes.graph
    assert_array_equal(nodes.features, X)
    with pytest.raises(ValueError, match=r"shape \(2, 2\); got \(5, 5\)"):
        view.with_features(np.ones((2, 3)))


# --- indexing ----------------------------------------------------------------------


@looped(
    "key",
    [
        [0, 3],
        (np.array([0, 3]), Ellipsis),
        (np.array([0, 3]), slice(None)),
        np.array([0, 3], dtype=np.uint8),
        [-1, -5],
        [2, 2, 0, 2],
        np.array([True, False, True, True, False]),
        [True, False, True, True, False],
        np.zeros(5, bool),
        slice(None),
        slice(1, None, 2),
        slice(None, None, -1),
        slice(7, 9),
        [],
        np.array([], dtype=np.float64),
        pd.Series([4, 1]),
        pd.Index([4, 1]),
        pd.Series([True, False, True, True, False]),
        range(1, 4),
    ],
)
def test_indexing_as_arrays_do(nodes, key):
    """The nodes that an array of their numbers gives; of a view, the view's rows."""
    samples = key[0] if isinstance(key, tuple) else key
    if not isinstance(samples, slice):
        samples = np.asarray(samples) if np.size(samples) else np.zeros(0, int)
    for whole in (nodes, nodes[[4, 2, 0, 3, 1]]):
        component = whole[key]
        assert_array_equal(component.nodes, whole.nodes[samples])
        assert_array_equal(component.labels, whole.labels[samples])
        assert component.nodes.dtype == np.int64
    if not isinstance(key, tuple):
        assert_array_equal(NodeSet(nodes, key).nodes, np.arange(5)[samples])


def test_indexing_by_tensors(nodes):
    torch = pytest.importorskip("torch")
    assert_array_equal(nodes[torch.tensor([3, -1])].nodes, [3, 4])
    assert_array_equal(nodes[torch.tensor([True, False] * 2 + [True])].nodes, [0, 2, 4])
    assert_array_equal(nodes[torch.tensor(2)].nodes, [2])


def test_single_node_is_a_set(nodes):
    assert_array_equal(nodes[3].nodes, [3])
    assert nodes[np.int64(-1)].shape == (1, 2)
    assert [int(node.nodes[0]) for node in nodes[[2, 0]]] == [2, 0]  # iterating ends


def test_views_of_views_copy_no_features(nodes):
    view = nodes[1:][[3, 0]][::-1]
    assert_array_equal(view.nodes, [1, 4])
    assert view.graph is nodes.graph


def test_empty_view(nodes):
    empty = nodes[[]]
    assert len(empty) == 0
    assert empty.shape == (0, 2)
    assert empty.features.shape == (0, 2)
    assert empty.labels.shape == (0,)
    assert len(empty[:]) == len(empty[np.zeros(0, bool)]) == 0
    assert len(empty.whole()) == 5
    assert repr(empty) == "NodeSet of 0 of 5 nodes with 2 features and 6 edges"
    with pytest.raises(IndexError, match="no node 0: there are 0 nodes of this set"):
        empty[0]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ([0, 5], "There is no node 5: there are 5 nodes of this set"),
        ([-6, 0], "There is no node -6: there are 5 nodes of this set"),
        (np.array([2**64 - 1], np.uint64), f"There is no node {2**64 - 1}"),
        (
            np.ones(4, bool),
            "A mask must have one value for each of the 5 nodes",
        ),
        (True, "A mask must have one value for each of the 5 nodes of this set; got 1"),
        ([0.0, 1.0], "integers or a mask, got dtype float64"),
        (["0"], "integers or a mask, got dtype <U1"),
        (np.eye(5, dtype=int), "Nodes are named by a 1-D array, got 2 axes"),
        (None, "A NodeSet is indexed by nodes, got None"),
        (([0], None), "indexed by nodes only, as nodes.rows.; got an index with 2 pa"),
        (([0], [1]), "Take features of all nodes from .features"),
        (([0], slice(1)), "got an index with 2 parts"),
        ((slice(None), 0), "got an index with 2 parts"),
        (([0], Ellipsis, 1), "got an index with 3 parts"),
        ((0,), "got an index with 1 parts"),
    ],
)
def test_wrong_indices(nodes, key, message):
    with pytest.raises(IndexError, match=message):
        nodes[key]


def test_wrong_nodes_of_the_graph():
    with pytest.raises(IndexError, match="no node 7: there are 5 nodes of the graph"):
        NodeSet((X, adjacency()), [7])
    with pytest.raises(IndexError, match="each of the 5 nodes of the graph; got 2"):
        NodeSet((X, adjacency()), [True, False])


def test_it_is_no_array(nodes):
    message = "NodeSet is a set of nodes of a graph, not an array. Give it to an esti"
    for convert in (np.asarray, lambda x: np.array(x, dtype=float), np.stack):
        with pytest.raises(TypeError, match=message):
            convert(nodes)
    with pytest.raises(TypeError, match=message):
        StandardScaler().fit(nodes)


# --- operators ---------------------------------------------------------------------


def naive_operator(kind):
    """One row for each node, from a dictionary of its incoming edges."""
    array = np.zeros((5, 5))
    incoming = {node: {} for node in range(5)}
    for (i, j), weight in WEIGHTS.items():
        incoming[j][i] = weight
    if kind in ("walk", "symmetric"):
        for node in range(5):
            incoming[node].setdefault(node, 1.0)
    degree = {node: sum(incoming[node].values()) for node in range(5)}
    for j in range(5):
        for i, weight in incoming[j].items():
            if kind in ("mean", "walk"):
                weight /= degree[j]
            elif kind == "symmetric":
                weight /= (degree[i] * degree[j]) ** 0.5
            array[j, i] = weight
    return array


@pytest.mark.parametrize("kind", ["sum", "mean", "walk", "symmetric"])
def test_operators(nodes, kind):
    operator = nodes.graph.operator(kind)
    assert operator.dtype == np.float64
    assert sparse.issparse(operator)
    assert_allclose(operator.toarray(), naive_operator(kind), rtol=1e-15)
    assert nodes[[1]].graph.operator(kind) is operator  # made once


def test_row_sums_of_operators(nodes):
    walk, mean = (nodes.graph.operator(kind).toarray() for kind in ("walk", "mean"))
    assert_allclose(walk.sum(axis=1), 1, rtol=1e-15)
    # nodes 3 and 4 hear of nobody: "walk" leaves them their own, "mean" nothing
    assert_array_equal(walk[3:], np.eye(5)[3:])
    assert_array_equal(mean[3:], 0)
    assert_allclose(mean[:3].sum(axis=1), 1, rtol=1e-15)


@pytest.mark.parametrize("kind", ["sum", "mean", "walk", "symmetric"])
def test_operators_of_a_graph_without_edges(kind):
    graph = NodeSet((X, np.zeros((5, 5)))).graph
    expected = np.eye(5) if kind in ("walk", "symmetric") else np.zeros((5, 5))
    assert_array_equal(graph.operator(kind).toarray(), expected)


def test_symmetric_is_that_of_a_gcn(nodes):
    """`gcn_norm` of torch_geometric, on float64."""
    torch = pytest.importorskip("torch")
    conv = pytest.importorskip("torch_geometric.nn.conv.gcn_conv")
    edges = torch.tensor(list(WEIGHTS)).T
    weights = torch.tensor(list(WEIGHTS.values()), dtype=torch.float64)
    (i, j), values = conv.gcn_norm(edges, weights, num_nodes=5)
    theirs = sparse.coo_array((values.numpy(), (j.numpy(), i.numpy())), shape=(5, 5))
    ours = nodes.graph.operator("symmetric")
    assert_allclose(ours.toarray(), theirs.toarray(), rtol=1e-15)


def test_messages_go_along_edges(nodes):
    """One unit at node 3 arrives where its edges 3 -> 0 and 3 -> 1 go."""
    unit = np.eye(5)[3]
    assert_array_equal(nodes.graph.operator("sum") @ unit, [4, 1, 0, 0, 0])


def test_derived_data_are_made_once_and_not_pickled(nodes):
    calls = []
    for view in (nodes, nodes[[0]]):
        assert view.graph.derived("key", lambda: calls.append(1) or "value") == "value"
    assert calls == [1]
    nodes.graph.operator("walk")
    for twin in (pickle.loads(pickle.dumps(nodes)), copy.deepcopy(nodes)):
        assert twin.graph._derived == {}
        assert twin.graph.derived("key", lambda: "other") == "other"
    assert nodes.graph.derived("key", lambda: "new") == "value"


# --- pickling ----------------------------------------------------------------------


def through_joblib(thing):
    file = io.BytesIO()
    joblib.dump(thing, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize(
    "through", [lambda x: pickle.loads(pickle.dumps(x)), through_joblib]
)
def test_pickling(nodes, through):
    view = through(nodes[[2, 0]])
    assert_array_equal(view.nodes, [2, 0])
    assert_array_equal(view.labels, [0, 0])
    assert_array_equal(view.whole().features, X)
    assert_array_equal(view.adjacency.toarray(), adjacency())
    assert_allclose(view.graph.operator("walk").toarray(), naive_operator("walk"))


def test_views_pickled_together_share_their_graph(nodes):
    a, b = pickle.loads(pickle.dumps((nodes[:2], nodes[2:])))
    assert a.graph is b.graph


@pytest.mark.slow
def test_other_processes_read_it():
    """Large arrays come there as read-only memory maps."""
    nodes, y = make_ood_graph(20_000, n_features=8, return_X_y=True, random_state=0)
    parallel = joblib.Parallel(n_jobs=2, max_nbytes=1000)
    shares = parallel(
        joblib.delayed(fraction_correct)(nodes, y, seed) for seed in range(2)
    )
    assert shares == [fraction_correct(nodes, y, seed) for seed in range(2)]


def fraction_correct(nodes, y, seed):
    indices = np.random.RandomState(seed).permutation(len(y))[:1000]
    again = NodeSet((nodes.graph.X, nodes.adjacency))
    return GraphMean().fit(again[indices], y[indices]).score(again, y)


# --- scikit-learn ------------------------------------------------------------------


def test_train_test_split(problem):
    nodes, y = problem
    train, test, y_train, y_test = train_test_split(
        nodes, y, test_size=0.25, stratify=y, random_state=0
    )
    assert isinstance(train, NodeSet)
    assert_array_equal(train.labels, y_train)
    assert_array_equal(test.labels, y_test)
    assert_array_equal(np.sort(np.append(train.nodes, test.nodes)), np.arange(300))
    assert abs(np.bincount(y_test) - np.bincount(y) / 4).max() < 1
    assert train.graph is test.graph is nodes.graph
    numbers = train_test_split(np.arange(300), test_size=0.25, random_state=1)
    for component, expected in zip(
        train_test_split(nodes, test_size=0.25, random_state=1), numbers, strict=True
    ):
        assert_array_equal(component.nodes, expected)


def test_shuffle_and_resample(problem):
    nodes, y = problem
    for function in (shuffle, resample):
        component, labels = function(nodes, y, random_state=0)
        assert_array_equal(component.labels, labels)


@pytest.mark.parametrize(
    "cv",
    [
        StratifiedKFold(4),
        KFold(3, shuffle=True, random_state=0),
        LeaveClassesOut(random_state=0),
        OODStratifiedKFold(3),
    ],
    ids=lambda cv: type(cv).__name__,
)
def test_splitters(problem, cv):
    nodes, y = problem
    y = np.where(y == 3, -1, y) if isinstance(cv, OODStratifiedKFold) else y
    splits = list(cv.split(nodes, y))
    for (train, test), (samples, others) in zip(
        splits, cv.split(nodes.features, y), strict=True
    ):
        assert_array_equal(train, samples)
        assert_array_equal(nodes[test].nodes, others)


def test_cross_validation(problem):
    """Each fold by hand, on a view whose rows are not those of the graph."""
    nodes, y = problem
    view = nodes[::-2]
    y = view.labels
    cv = StratifiedKFold(3)
    scores, predicted = [], np.empty_like(y)
    for train, test in cv.split(np.zeros(len(y)), y):
        model = GraphMean().fit(NodeSet(nodes, view.nodes[train]), y[train])
        predicted[test] = model.predict(NodeSet(nodes, view.nodes[test]))
        scores.append(np.mean(predicted[test] == y[test]))
    assert_array_equal(cross_val_score(GraphMean(), view, y, cv=cv), scores)
    assert_array_equal(cross_val_predict(GraphMean(), view, y, cv=cv), predicted)
    assert np.mean(scores) > 0.8


def test_left_out_classes(problem):
    nodes, y = problem
    result = cross_validate(
        GraphMean(), nodes, y, cv=LeaveClassesOut(random_state=0), return_estimator=True
    )
    known = [set(model.classes_.tolist()) for model in result["estimator"]]
    assert known == [{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}]


@pytest.mark.parametrize("n_jobs", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_search_over_a_pipeline(problem, n_jobs):
    """Parameters of a step that changes features, and of a classifier."""
    nodes, y = problem
    search = GridSearchCV(
        make_pipeline(Scale(), GraphMean()),
        {"scale__factor": [1e-3, 1.0], "graphmean__n_hops": [0, 1, 2]},
        cv=3,
        n_jobs=n_jobs,
        error_score="raise",
    ).fit(nodes, y)
    means = search.cv_results_["mean_test_score"].reshape(3, 2)
    assert_array_equal(means[:, 0], means[:, 1])  # distances scale alike
    for n_hops in range(3):
        alone = cross_val_score(GraphMean(n_hops), nodes, y, cv=3).mean()
        assert_allclose(means[n_hops], alone, rtol=1e-12)
    assert search.score(nodes, y) == search.best_estimator_.score(nodes, y)


def test_cloning_an_estimator_copies_no_graph(problem):
    nodes, y = problem
    model = GraphMean(n_hops=2).fit(nodes, y)
    assert len(pickle.dumps(clone(model))) < 1000
    assert len(pickle.dumps(model)) < 2000


# --- what it is made of ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool])
def test_kinds_of_features(dtype):
    nodes = NodeSet((X.astype(dtype), adjacency()))
    assert nodes.dtype == (np.float32 if dtype == np.float32 else np.float64)
    assert_array_equal(nodes.features, X.astype(dtype))


@pytest.mark.parametrize(
    "make", [sparse.csr_array, sparse.csr_matrix, sparse.coo_matrix, sparse.csc_array]
)
def test_sparse_features_and_edges(make):
    nodes = NodeSet((make(X.astype(np.float32)), make(adjacency())))
    assert isinstance(nodes.graph.X, sparse.csr_array)
    assert nodes.dtype == np.float32
    assert_array_equal(nodes[[4, 0]].features.toarray(), X[[4, 0]])
    assert nodes[[]].features.shape == (0, 2)
    assert isinstance(nodes.adjacency, sparse.csr_array)
    assert_array_equal(nodes.adjacency.toarray(), adjacency())
    assert nodes.adjacency.nnz == 6


def test_lists_and_frames():
    frame = pd.DataFrame(X, columns=["a", "b"], index=list("vwxyz"))
    nodes = NodeSet([frame, adjacency().tolist()])
    assert_array_equal(nodes.features, X)
    assert_array_equal(nodes.adjacency.toarray(), adjacency())
    assert_array_equal(NodeSet((X, pd.DataFrame(adjacency() > 0))).adjacency.data, 1)


@pytest.mark.parametrize("layout", ["dense", "coo", "csr"])
def test_tensors(layout):
    torch = pytest.importorskip("torch")

    def make(array):
        tensor = torch.tensor(array, requires_grad=True)
        with warnings.catch_warnings():  # that CSR is in a beta state
            warnings.simplefilter("ignore", UserWarning)
            return {
                "dense": lambda: tensor,
                "coo": tensor.to_sparse_coo,
                "csr": tensor.to_sparse_csr,
            }[layout]()

    nodes = NodeSet((make(X), make(adjacency())), labels=torch.tensor(Y))
    assert sparse.issparse(nodes.features) == (layout != "dense")
    features = nodes.features
    assert_array_equal(features if layout == "dense" else features.toarray(), X)
    assert_array_equal(nodes.adjacency.toarray(), adjacency())
    assert_array_equal(nodes.labels, Y)


def test_sparse_tensors_never_become_dense():
    """As dense arrays, these would take 80 GB each."""
    torch = pytest.importorskip("torch")
    size = 100_000
    places = torch.arange(size).repeat(2, 1)
    eye = torch.sparse_coo_tensor(
        places, torch.ones(size), (size, size), check_invariants=True
    )
    nodes = NodeSet((eye, eye))
    assert nodes.graph.X.nnz == nodes.adjacency.nnz == size


def test_repeated_edges_add_up_and_zeros_are_no_edges():
    ends = ([0, 0, 1, 2], [1, 1, 0, 0])
    A = sparse.coo_array((np.array([1.0, 2.0, 0.0, 0.5]), ends), shape=(3, 3))
    nodes = NodeSet((np.eye(3), A))
    assert_array_equal(nodes.adjacency.toarray(), [[0, 3, 0], [0, 0, 0], [0.5, 0, 0]])
    assert nodes.adjacency.nnz == 2


def test_input_is_unchanged():
    """Unsorted, repeated and zero entries are brought in order in copies."""
    A = sparse.csr_array(
        (np.array([0, 1, 2, 1], np.float32), [1, 2, 0, 0], [0, 2, 4, 4]), shape=(3, 3)
    )
    B = sparse.csr_array((np.array([1.0, 2, 3]), [2, 0, 0], [0, 3, 3, 3]), shape=(3, 3))
    before = [
        component.copy() for M in (A, B) for component in (M.data, M.indices, M.indptr)
    ]
    nodes = NodeSet((B, A))
    after = [component for M in (A, B) for component in (M.data, M.indices, M.indptr)]
    for old, new in zip(before, after, strict=True):
        assert_array_equal(old, new)
    assert_array_equal(nodes.adjacency.toarray(), [[0, 0, 1], [3, 0, 0], [0, 0, 0]])
    assert_array_equal(nodes.features.toarray(), [[5, 0, 1], [0, 0, 0], [0, 0, 0]])
    assert nodes.graph.X.has_canonical_format


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (X, TypeError, r"\(X, edge_index\), or a NodeSet, got ndarray.*from_networkx"),
        ((X, [[0, 5], [1, 2]]), ValueError, "node 5, but x has 5 rows, .* 0 to 4"),
        ((X, [[0, 1], [-1, 2]]), ValueError, "names the node -1, but x has 5 rows"),
        ((X, [[0.0], [1.0]]), ValueError, "indices of nodes, integers; got float64"),
        ((X, [[0, 1]] * 3), ValueError, r"got \(3, 2\)\. Edges as pairs .* \(2, n_edg"),
        ((X, adjacency(), Y), TypeError, "got tuple"),
        ((X[:3], adjacency()), ValueError, r"features of 3 nodes, so .* \(3, 3\); got"),
        ((X, adjacency()[:, :4]), ValueError, r"shape \(5, 5\); got \(5, 4\)"),
        ((X * np.nan, adjacency()), ValueError, "Input features contains NaN"),
        (
            (X, np.where(adjacency() > 0, np.nan, 0)),
            ValueError,
            "Input adjacency contains NaN",
        ),
        ((X, adjacency() * 1e39), ValueError, "Input adjacency contains infinity or"),
        ((X, -adjacency()), ValueError, "must not be negative, got a weight of -4"),
        ((X, sparse.csr_array(-adjacency())), ValueError, "got a weight of -4"),
        ((X[:, 0], adjacency()), ValueError, "Expected 2D array"),
        ((X[:0], adjacency()[:0, :0]), ValueError, "minimum of 1 is required"),
        ((np.full((5, 2), "word"), adjacency()), ValueError, "could not convert stri"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_wrong_data(data, error, message):
    with pytest.raises(error, match=message):
        NodeSet(data)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, "tensor", "list"])
def test_edges_as_pairs(dtype):
    """Directed edges with a self loop, and one edge twice: equal to the matrix."""
    edges = np.array([[0, 1, 1, 2, 0, 3], [1, 0, 2, 2, 1, 0]])
    A = np.zeros((5, 5))
    np.add.at(A, tuple(edges), 1.0)
    if dtype == "tensor":
        original = pytest.importorskip("torch").tensor(edges)
    else:
        original = edges.tolist() if dtype == "list" else edges.astype(dtype)
    result, expected = NodeSet((X, original)), NodeSet((X, A))
    assert_array_equal(result.adjacency.toarray(), A)
    for kind in ("sum", "mean", "walk", "symmetric"):
        difference = result.graph.operator(kind) - expected.graph.operator(kind)
        assert np.abs(difference.toarray()).max() <= 1e-12


def test_no_edges_as_pairs_and_edges_of_two_nodes():
    assert NodeSet((X, np.empty((2, 0)))).adjacency.nnz == 0
    item = NodeSet((X[:2], [[0], [1]]))
    assert_array_equal(item.adjacency.toarray(), [[0, 1], [0, 0]])
    ambiguous = NodeSet((X[:2], [[0, 0], [1, 1]]))  # documented: a matrix
    assert_array_equal(ambiguous.adjacency.toarray(), [[0, 0], [1, 1]])


def test_negative_weights_do_not_hide_in_repeated_edges():
    A = sparse.coo_array((np.array([-1.0, 2.0]), ([0, 0], [1, 1])), shape=(5, 5))
    with pytest.raises(ValueError, match="got a weight of -1"):
        NodeSet((X, A))


# --- arrays as nodes ---------------------------------------------------------------


def test_as_nodes(nodes):
    assert as_nodes(nodes) is nodes
    for array in (X, X.tolist(), pd.DataFrame(X), X.astype(np.float32)):
        samples = as_nodes(array)
        assert_array_equal(samples.features, X)
        assert samples.adjacency.nnz == 0
        assert samples.labels is None
    assert samples.dtype == np.float32
    assert_array_equal(samples.graph.operator("walk").toarray(), np.eye(5))


def test_as_nodes_of_tensors():
    torch = pytest.importorskip("torch")
    assert_array_equal(as_nodes(torch.tensor(X)).features, X)


def test_as_nodes_refuses(nodes):
    empty = nodes[[]]
    with pytest.raises(
        ValueError,
        match=r"NodeSet with 0 nodes of 5 while a minimum of 1 is required\.",
    ):
        as_nodes(empty)
    with pytest.raises(ValueError, match=r"minimum of 1 is required by GraphMean\."):
        as_nodes(empty, estimator=GraphMean())
    with pytest.raises(ValueError, match="Input X contains NaN"):
        as_nodes(X * np.nan, estimator=GraphMean())
    with pytest.raises(ValueError, match="Found array with 0 sample"):
        as_nodes(X[:0])
    with pytest.raises(ValueError, match="Expected 2D array"):
        as_nodes(X[0])


# --- torch_geometric ---------------------------------------------------------------


@pytest.fixture
def geometric():
    """torch, and a function that makes a `Data` of float32."""
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data")

    def make(**parts):
        parts.setdefault("x", torch.tensor(X, dtype=torch.float32))
        return data.Data(**parts)

    return torch, make


def test_of_data(geometric):
    torch, make = geometric
    edges = torch.tensor(list(WEIGHTS)).T
    weights = torch.tensor(list(WEIGHTS.values()))
    nodes = NodeSet(make(edge_index=edges, edge_weight=weights, y=torch.tensor(Y)))
    assert nodes.dtype == np.float32
    assert_array_equal(nodes.features, X)
    assert_array_equal(nodes.adjacency.toarray(), adjacency())
    assert_array_equal(nodes.labels, Y)
    column = make(edge_index=edges, edge_weight=weights[:, None])
    assert_array_equal(NodeSet(column).adjacency.toarray(), adjacency())
    plain = NodeSet(make(edge_index=edges), [3, 1], labels=list("abcde"))
    assert_array_equal(plain.adjacency.toarray(), adjacency() > 0)
    assert_array_equal(plain.labels, ["d", "b"])
    twice = NodeSet(make(edge_index=torch.cat([edges, edges], dim=1)))
    assert_array_equal(twice.adjacency.toarray(), 2 * (adjacency() > 0))
    none = NodeSet(make(edge_index=torch.empty((2, 0), dtype=torch.int64)))
    assert none.adjacency.nnz == 0


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr", "to_dense"])
def test_of_data_with_transposed_edges(geometric, layout):
    torch, make = geometric
    with warnings.catch_warnings():  # that CSR is in a beta state
        warnings.simplefilter("ignore", UserWarning)
        transposed = getattr(torch.tensor(adjacency()).T, layout)()
    nodes = NodeSet(make(adj_t=transposed))
    assert_array_equal(nodes.adjacency.toarray(), adjacency())


def test_of_data_with_sparse_features(geometric):
    torch, make = geometric
    edges = torch.tensor(list(WEIGHTS)).T
    with warnings.catch_warnings():  # that CSR is in a beta state
        warnings.simplefilter("ignore", UserWarning)
        for x in (torch.tensor(X).to_sparse(), torch.tensor(X).to_sparse_csr()):
            nodes = NodeSet(make(x=x, edge_index=edges))
            assert isinstance(nodes.graph.X, sparse.csr_array)
            assert_array_equal(nodes.features.toarray(), X)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (lambda torch: torch.tensor(Y)[:, None], Y),
        (lambda torch: Y, Y),
        (lambda torch: torch.tensor(1), None),  # of the whole graph
        (lambda torch: torch.ones(1), None),
    ],
)
def test_labels_of_data(geometric, y, expected):
    torch, make = geometric
    data = make(edge_index=torch.tensor([[0], [1]]), y=y(torch))
    assert_array_equal(NodeSet(data).labels, expected)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"x": None}, "The Data has no features x. Give each node a feature"),
        ({"edge_index": None}, "no edges: neither edge_index nor a torch adj_t"),
        ({"edge_index": [[0, 5], [1, 1]]}, "names the node 5, but x has 5 rows, for"),
        ({"edge_index": [[0, 1], [-1, 1]]}, "names the node -1, but x has 5 rows"),
        ({"edge_index": [[0, 1, 2]]}, r"must have shape \(2, n_edges\); got \(1, 3\)"),
        ({"edge_index": [0, 1]}, r"must have shape \(2, n_edges\); got \(2,\)"),
        ({"edge_weight": [1.0]}, "edge_weight has 1 weights for 2 edges"),
        ({"edge_weight": [1.0, -2.0]}, "must not be negative, got a weight of -2"),
        ({"edge_weight": [1.0, np.nan]}, "Input adjacency contains NaN"),
    ],
)
def test_wrong_data_objects(geometric, parts, message):
    torch, make = geometric
    parts = {"edge_index": [[0, 1], [1, 0]], **parts}
    parts = {k: v if v is None else torch.tensor(v) for k, v in parts.items()}
    with pytest.raises(ValueError, match=message):
        NodeSet(make(**parts))


def test_to_data(geometric, nodes):
    torch, _ = geometric
    data = nodes[[4, 1]].to_data()
    assert_array_equal(data.x, X)
    assert data.x.dtype == torch.float64
    result = {
        tuple(edge): weight
        for edge, weight in zip(
            data.edge_index.T.tolist(), data.edge_weight.tolist(), strict=True
        )
    }
    assert result == WEIGHTS
    assert data.edge_index.dtype == torch.int64
    assert_array_equal(data.y, Y)
    assert_array_equal(data.nodes, [False, True, False, False, True])
    again = NodeSet(data, data.nodes)
    assert_array_equal(again.nodes, [1, 4])
    assert_array_equal(again.adjacency.toarray(), adjacency())
    assert_array_equal(again.labels, Y[[1, 4]])


def test_to_data_without_weights_and_labels(geometric):
    plain = NodeSet((sparse.csr_array(X), adjacency() > 0)).to_data()
    assert plain.edge_weight is None
    assert plain.y is None
    assert_array_equal(plain.x, X)
    named = NodeSet((X, adjacency()), labels=list("abcde")).to_data()
    assert named.y is None  # text is no tensor


def test_neither_torch_nor_torch_geometric_is_imported():
    code = (
        "import sys, numpy as np; "
        "from skood.graph import NodeSet, Propagation, propagate; "
        "nodes = NodeSet((np.eye(2), np.eye(2)))[[0]]; propagate([1.0, 2.0], nodes); "
        "import skood.datasets; skood.datasets.make_ood_graph(50); "
        "assert not {'torch', 'torch_geometric', 'skorch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_of_the_room():
    import skood.graph

    for name in skood.graph.__all__:
        assert getattr(skood.graph, name).__name__ == name
    with pytest.raises(AttributeError, match=r"'skood.graph' has no attribute 'nope'"):
        skood.graph.nope  # noqa: B018
    assert dir(skood.graph) == sorted(skood.graph.__all__)


def test_a_graph_is_taken_as_it_is():
    graph = Graph(X, sparse.csr_array(adjacency()))
    assert NodeSet(graph).graph is graph

"""Propagation along edges: naive loops, limits, and detectors that are propagated."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import OneClassSVM

from skood.combine import DetectorEnsemble
from skood.detectors import KNN, MSP, Energy, Mahalanobis, SklearnDetector
from skood.graph import NodeSet, Propagation, propagate
from skood.metrics import make_ood_scorer
from skood.model_selection import LeaveClassesOut
from skood.nn import FeatureExtractor, TrainingOptions
from skood.nn._shared_forward import network_groups, shared_outputs
from skood.utils.estimator_checks import check_detector
from tests._thresholds import middle_of_gap

slow = pytest.mark.slow
SCHEMES = ["random-walk", "gnnsafe", "symmetric"]
USUAL = {
    "random-walk": {"n_steps": 30, "teleport": 0.02},
    "gnnsafe": {"n_steps": 2, "alpha": 0.2},
    "symmetric": {"n_steps": 10, "teleport": 0.1},
}


def _directed(n_nodes=12, seed=0):
    """Directed weighted edges with loops; the last two nodes receive nothing."""
    rng = np.random.default_rng(seed)
    adjacency = rng.random((n_nodes, n_nodes)) * (rng.random((n_nodes, n_nodes)) < 0.3)
    adjacency = adjacency.astype(np.float32)
    adjacency[:, -2:] = 0
    adjacency[-1, :] = 0  # the last is isolated, the one before sends to another
    adjacency[-2, 0] = 2.0
    adjacency[3, 3] = 0.7
    return NodeSet((rng.normal(size=(n_nodes, 2)), adjacency))


DIRECTED = _directed()


def _naive(values, nodes, scheme, n_steps, teleport=None, alpha=None):
    """Loops over edges in plain Python."""
    edges = nodes.adjacency.tocoo()
    edges = list(
        zip(edges.row.tolist(), edges.col.tolist(), edges.data.tolist(), strict=True)
    )
    if scheme != "gnnsafe":
        looped = {source for source, target, _ in edges if source == target}
        edges += [(i, i, 1.0) for i in range(nodes.n_nodes) if i not in looped]
    degree = [0.0] * nodes.n_nodes
    for _, target, weight in edges:
        degree[target] += weight
    initial = values = [float(v) for v in values]
    for _ in range(n_steps):
        received = [0.0] * nodes.n_nodes
        for source, target, weight in edges:
            if scheme == "symmetric":
                scale = (degree[source] * degree[target]) ** 0.5
            else:
                scale = degree[target]
            received[target] += weight * values[source] / scale
        if scheme == "gnnsafe":
            values = [
                alpha * old + (1 - alpha) * new if d > 0 else old
                for old, new, d in zip(values, received, degree, strict=True)
            ]
        else:
            values = [
                (1 - teleport) * new + teleport * separate
                for new, separate in zip(received, initial, strict=True)
            ]
    return np.array(values)


# --- the function --------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", range(3))
def test_equals_loops_over_edges(scheme, seed):
    nodes = _directed(seed=seed)
    values = np.random.default_rng(seed).normal(size=nodes.n_nodes)
    expected = _naive(values, nodes, scheme, **USUAL[scheme])
    propagated = propagate(values, nodes, scheme=scheme)
    assert_allclose(propagated, expected, rtol=1e-12)
    separate = {"alpha": 0.6} if scheme == "gnnsafe" else {"teleport": 0.3}
    expected = _naive(values, nodes, scheme, 3, **separate)
    propagated = propagate(values, nodes.graph, scheme=scheme, n_steps=3, **separate)
    assert_allclose(propagated, expected, rtol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_columns_are_propagated_each(scheme):
    values = np.random.default_rng(0).normal(size=(DIRECTED.n_nodes, 3))
    propagated = propagate(values, DIRECTED, scheme=scheme)
    assert propagated.dtype == np.float64
    for column, expected in zip(propagated.T, values.T, strict=True):
        item = propagate(expected, DIRECTED, scheme=scheme)
        assert_allclose(column, item, rtol=1e-14)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nodes_that_receive_nothing_keep_their_value_to_the_last_digit(scheme):
    values = np.random.default_rng(0).normal(size=DIRECTED.n_nodes) / 3
    propagated = propagate(values, DIRECTED, scheme=scheme)
    hears = (DIRECTED.adjacency.toarray() * (1 - np.eye(12))).any(axis=0)
    assert 2 <= np.sum(~hears) < 6
    assert_array_equal(propagated == values, ~hears)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_loop_is_no_neighbor(scheme):
    """A node that only it itself sends to keeps its value, whatever the weight."""
    nodes = NodeSet((np.eye(3), [[0.3, 0, 0], [0, 0, 1], [0, 1, 0]]))
    propagated = propagate([0.1, 5.0, 7.0], nodes, scheme=scheme)
    assert propagated[0] == 0.1
    assert 5 < propagated[1] < 7


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_edges_and_no_steps(scheme):
    values = np.arange(4.0)
    for nodes, steps in ((NodeSet((np.eye(4), np.zeros((4, 4)))), 5), (_path(4), 0)):
        propagated = propagate(values, nodes, scheme=scheme, n_steps=steps)
        assert_array_equal(propagated, values)
        propagated[0] = 9.0  # a copy
        assert values[0] == 0.0


def _path(n_nodes):
    """Nodes in a row, each linked to the next, in both directions."""
    adjacency = np.diag(np.ones(n_nodes - 1), 1)
    return NodeSet((np.arange(n_nodes)[:, None].astype(float), adjacency + adjacency.T))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_messages_go_along_edges(scheme):
    """The node 0 sends to 1, and 1 to 2: what 2 has reaches nobody."""
    nodes = NodeSet((np.eye(3), [[0, 1, 0], [0, 0, 1], [0, 0, 0]]))
    assert_array_equal(propagate([0, 0, 1.0], nodes, scheme=scheme)[:2], 0)
    assert propagate([1.0, 0, 0], nodes, scheme=scheme, n_steps=1)[2] == 0
    assert propagate([1.0, 0, 0], nodes, scheme=scheme, n_steps=2)[2] > 0


def test_weights_count():
    nodes = NodeSet((np.eye(3), [[0, 0, 3], [0, 0, 1], [0, 0, 0]]))
    propagated = propagate(
        [1.0, 0.0, 0.0], nodes, scheme="gnnsafe", n_steps=1, alpha=0.0
    )
    assert propagated[2] == 0.75
    propagated = propagate([1.0, 0.0, 0.0], nodes, n_steps=1, teleport=0.0)
    assert_allclose(propagated[2], 0.6)  # a loop of weight one is added


def test_symmetric_favors_nodes_with_many_edges():
    """Of equal values of a star's nodes, that of the center grows with its degree."""
    adjacency = np.zeros((6, 6))
    adjacency[0, 1:] = adjacency[1:, 0] = 1
    nodes = NodeSet((np.eye(6), adjacency))
    propagated = propagate(
        np.ones(6), nodes, scheme="symmetric", n_steps=1, teleport=0.0
    )
    assert_allclose(propagated[0], 1 / 6 + 5 / np.sqrt(12))
    assert_allclose(propagated[1:], 1 / 2 + 1 / np.sqrt(12))


@pytest.mark.parametrize("scheme", ["random-walk", "symmetric"])
def test_many_steps_solve_the_linear_system(scheme):
    values = np.random.default_rng(0).normal(size=(DIRECTED.n_nodes, 2))
    loops = np.diag(DIRECTED.adjacency.diagonal() == 0).astype(float)
    B = DIRECTED.adjacency.toarray().T.astype(float) + loops
    degree = B.sum(axis=1)
    if scheme == "symmetric":
        P = B / np.sqrt(degree[:, None] * degree)
    else:
        P = B / degree[:, None]
    exact = 0.1 * np.linalg.solve(np.eye(DIRECTED.n_nodes) - 0.9 * P, values)
    propagated = propagate(values, DIRECTED, scheme=scheme, n_steps=400, teleport=0.1)
    assert_allclose(propagated, exact, atol=1e-12)


@pytest.mark.parametrize("scheme", ["random-walk", "symmetric"])
def test_full_teleport_returns_the_values(scheme):
    values = np.random.default_rng(0).normal(size=DIRECTED.n_nodes)
    propagated = propagate(values, DIRECTED, scheme=scheme, teleport=1.0)
    assert_array_equal(propagated, values)


def test_ends_of_alpha():
    """With alpha=1 nodes hear of nobody, with alpha=0 not even of themselves."""
    nodes = _path(3)
    values = [1.0, 2.0, 4.0]
    propagated = propagate(values, nodes, scheme="gnnsafe", alpha=1.0)
    assert_array_equal(propagated, values)
    propagated = propagate(values, nodes, scheme="gnnsafe", alpha=0.0, n_steps=1)
    assert_array_equal(propagated, [2.0, 2.5, 2.0])


def test_the_view_does_not_matter():
    values = np.arange(DIRECTED.n_nodes, dtype=np.float32)
    propagated = propagate(values, DIRECTED[[3, 3, 1]])
    assert_array_equal(propagated, propagate(values, DIRECTED))


def test_tensors():
    torch = pytest.importorskip("torch")
    values = torch.arange(4, dtype=torch.float32, requires_grad=True)
    propagated = propagate(values, _path(4))
    assert_array_equal(propagated, propagate([0.0, 1.0, 2.0, 3.0], _path(4)))


def test_wrong_arguments_of_the_function():
    nodes = _path(4)
    with pytest.raises(
        ValueError,
        match=r"one row for each of the 4 nodes of the graph, got 2. Give the values "
        r"of nodes.whole\(\)",
    ):
        propagate([1.0, 2.0], nodes[:2])
    for value, name in ((np.nan, "NaN"), (-np.inf, "infinity")):
        with pytest.raises(ValueError, match=f"Input values contains {name}"):
            propagate([1.0, value, 0.0, 0.0], nodes)
    with pytest.raises(TypeError, match="The 'nodes' parameter of propagate"):
        propagate([1.0, 2.0], np.eye(2))
    for name, value in (
        ("scheme", "walk"),
        ("n_steps", -1),
        ("n_steps", 1.5),
        ("teleport", 1.1),
        ("alpha", -0.1),
    ):
        with pytest.raises(ValueError, match=f"The '{name}' parameter of propagate"):
            propagate(np.ones(4), nodes, **{name: value})


# --- the detector --------------------------------------------------------------------


def _features(nodes):
    """Features of nodes as an array."""
    return nodes.features if isinstance(nodes, NodeSet) else nodes


def _blocks(per_class=30, n_classes=4, seed=0, spread=1.2):
    """A graph whose nodes are mostly linked to nodes of their own class."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), per_class)
    X = 2 * np.eye(n_classes)[y] + spread * rng.normal(size=(len(y), n_classes))
    linked = rng.random((len(y), len(y))) < np.where(y[:, None] == y, 0.15, 0.01)
    linked = np.triu(linked, 1)
    return NodeSet((X, sparse.csr_array(linked | linked.T)), labels=y), y


NODES, Y = _blocks()


def _classifier(**params):
    return make_pipeline(
        FunctionTransformer(_features), LogisticRegression(max_iter=1000, **params)
    )


def _frozen(nodes, y):
    return FrozenEstimator(_classifier().fit(nodes, y))


def _knn():
    return make_pipeline(
        FunctionTransformer(_features), KNN(n_neighbors=3, normalize=False)
    )


class _Counted(Energy):
    """Counts how often it is fitted, and scores."""

    calls: list = []

    def fit(self, X, y=None):
        self.calls.append(("fit", len(X)))
        return super().fit(X, y)

    def score_samples(self, X):
        self.calls.append(("score", len(X)))
        return super().score_samples(X)


class _Given(OutlierMixin, BaseEstimator):
    """A detector that gives the scores that it was made with."""

    def __init__(self, scores):
        self.scores = scores

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def score_samples(self, X):
        return np.asarray(self.scores)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", ["classifier", "pipeline", "frozen"])
def test_scores_are_those_of_all_nodes_propagated(scheme, kind):
    train = np.random.default_rng(0).permutation(90)[:40]  # of three classes
    inner = {
        "classifier": Energy(_classifier()),
        "pipeline": _knn(),
        "frozen": FrozenEstimator(Energy(_classifier()).fit(NODES[train], Y[train])),
    }[kind]
    detector = Propagation(inner, scheme=scheme, contamination=0.1)
    assert detector.fit(NODES[train], Y[train]) is detector
    alone = clone(inner).fit(NODES[train], Y[train]).score_samples(NODES)
    expected = propagate(alone, NODES, scheme=scheme)
    assert_array_equal(detector.score_samples(NODES), expected)
    if kind == "frozen":  # others are fitted again without nodes, for the threshold
        assert detector.offset_ == middle_of_gap(expected[train], 0.1)
    samples = [7, 3, 3, 100]  # in any order, also twice
    assert_array_equal(detector.score_samples(NODES[samples]), expected[samples])
    decision = detector.decision_function(NODES[samples])
    assert_array_equal(decision, expected[samples] - detector.offset_)
    labels = detector.predict(NODES[samples])
    assert_array_equal(labels, np.where(decision >= 0, 1, -1))
    assert_array_equal(detector.classes_, [0, 1, 2])


def test_parameters_reach_the_propagation():
    inner = Energy(_frozen(NODES[:60], Y[:60]))
    alone = inner.fit(NODES[:60], Y[:60]).score_samples(NODES)
    for separate in (
        {"n_steps": 0},
        {"n_steps": 4, "teleport": 0.5},
        {"scheme": "gnnsafe", "n_steps": 1, "alpha": 0.7},
        {"scheme": "symmetric", "teleport": 0.0},
    ):
        scores = Propagation(inner, **separate).fit(NODES[:60]).score_samples(NODES)
        assert_array_equal(scores, propagate(alone, NODES, **separate))


def test_no_steps_is_the_detector():
    inner = Energy(_frozen(NODES[:60], Y[:60]))
    plain = clone(inner).fit(NODES[:60], Y[:60])
    detector = Propagation(inner, n_steps=0).fit(NODES[:60], Y[:60])
    assert detector.offset_ == plain.offset_
    assert_array_equal(detector.score_samples(NODES), plain.score_samples(NODES))


def test_neighbors_help():
    """Noisy features of nodes that are linked with their own kind."""
    clf = _frozen(NODES[:90:2], Y[:90:2])  # the last class is left out
    test = np.arange(1, 120, 2)
    plain = Energy(clf).fit(NODES[:90:2], Y[:90:2]).score(NODES[test], Y[test])
    for scheme in SCHEMES:
        detector = Propagation(Energy(clf), scheme=scheme).fit(NODES[:90:2], Y[:90:2])
        assert detector.score(NODES[test], Y[test]) > plain + 0.1


@pytest.mark.parametrize(
    "scheme", ["gnnsafe", *(pytest.param(s, marks=slow) for s in SCHEMES[::2])]
)
def test_array_samples_are_nodes_without_edges(scheme):
    X = NODES.features
    for inner in (Energy(LogisticRegression()), KNN(n_neighbors=3)):
        detector = Propagation(inner, scheme=scheme).fit(X, Y)
        plain = clone(inner).fit(X, Y)
        assert_array_equal(detector.score_samples(X), plain.score_samples(X))
        share = np.mean(plain.score_samples(X) < detector.offset_)
        assert abs(share - np.mean(plain.predict(X) == -1)) < 0.05
    lonely = NodeSet((X, sparse.csr_array((len(Y), len(Y)))))
    detector = Propagation(_knn(), scheme=scheme).fit(lonely, Y)
    assert_array_equal(
        detector.score_samples(lonely), Propagation(_knn()).fit(X, Y).score_samples(X)
    )


def test_threshold_of_scores_that_are_sums_over_the_samples():
    """Scores of a one-class SVM of fewer samples are smaller, thresholds are not."""
    svm = SklearnDetector(detector=OneClassSVM(), contamination=0.2)
    excess = []
    for seed in range(5):
        X = np.random.default_rng(seed).normal(size=(200, 3))
        offset = Propagation(svm, contamination=0.2).fit(X).offset_
        excess.append(offset - clone(svm).fit(X).offset_)
    # scores have a sd of 4.5; folds differ, with a standard error of the mean of 0.09
    assert abs(np.mean(excess)) < 0.35  # 0.73 without rescaling


@pytest.mark.parametrize(
    "inner, scheme",
    [
        (Energy(), "random-walk"),
        pytest.param(KNN(n_neighbors=3), "gnnsafe", marks=slow),  # in test_common
        pytest.param(Mahalanobis(), "symmetric", marks=slow),
    ],
)
def test_conventions_of_detectors(inner, scheme):
    check_detector(Propagation(inner, scheme=scheme))


def test_nothing_is_scored_needlessly():
    """Once by the detector's own fit, which reads the view; then all nodes, once."""
    _Counted.calls = []
    detector = Propagation(_Counted(_frozen(NODES[:60], Y[:60])))
    detector.fit(NODES[:60], Y[:60])
    assert _Counted.calls == [("fit", 60), ("score", 120)]
    _Counted.calls = []
    detector.score_samples(NODES[:5])
    assert _Counted.calls == [("score", 120)]


def test_another_graph():
    """Fitted on one graph, a detector scores the nodes of another."""
    other, _ = _blocks(per_class=10, seed=1)
    detector = Propagation(Energy(_classifier())).fit(NODES, Y)
    alone = detector.estimator_.score_samples(other)
    assert_array_equal(detector.score_samples(other[:7]), propagate(alone, other)[:7])


@pytest.mark.parametrize("label", [-1, "unknown"])
def test_known_ood_nodes_are_left_out_of_the_fit(label):
    names = np.array(list("abcd"))[Y] if label == "unknown" else Y
    inner = _knn()
    indices = np.arange(0, 120, 2)
    labels = np.where(Y == 3, label, names)[indices]
    fitted = Propagation(inner, ood_label=label).fit(NODES[indices], labels)
    known = indices[Y[indices] != 3]
    expected = Propagation(inner).fit(NODES[known], names[known])
    assert fitted.offset_ == expected.offset_
    assert_array_equal(fitted.classes_, expected.classes_)
    assert_array_equal(fitted.score_samples(NODES), expected.score_samples(NODES))


def test_search_with_left_out_classes():
    nodes, y = _blocks(per_class=20)
    cv = LeaveClassesOut(n_splits=2, random_state=0)
    search = GridSearchCV(
        Propagation(Energy(_classifier())),
        [
            {"n_steps": [0], "estimator__temperature": [1.0, 10.0]},
            {"n_steps": [5], "scheme": SCHEMES},
        ],
        cv=cv,
        scoring=make_ood_scorer(),
        error_score="raise",
    ).fit(nodes, y)
    cv_results = search.cv_results_["mean_test_score"]
    expected = np.zeros((5, cv.get_n_splits(nodes, y)))
    for split, (train, test) in enumerate(cv.split(nodes, y)):
        clf = _classifier().fit(nodes[train], y[train])
        logits = clf.decision_function(nodes)
        is_id = np.isin(y[test], y[train])
        for i, params in enumerate(map(dict, search.cv_results_["params"])):
            temperature = params.pop("estimator__temperature", 1.0)
            scores = temperature * logsumexp(logits / temperature, axis=1)
            moved = propagate(scores, nodes, **params)[test]
            expected[i, split] = roc_auc_score(is_id, moved)
    assert_allclose(cv_results, expected.mean(axis=-1))
    assert len(set(cv_results.round(6))) > 3
    best = search.best_estimator_
    again = cross_val_score(best, nodes, y, cv=cv, scoring=make_ood_scorer())
    assert_allclose(again.mean(), cv_results.max())
    assert_array_equal(search.score_samples(nodes[:3]), best.score_samples(nodes)[:3])


def test_step_of_a_pipeline():
    nodes, y = _blocks()

    def scaled(nodes):
        return nodes.with_features(StandardScaler().fit_transform(nodes.graph.X))

    pipeline = Pipeline(
        [("scale", FunctionTransformer(scaled)), ("detector", Propagation(_knn()))]
    )
    pipeline.fit(nodes[:60], y[:60])
    expected = Propagation(_knn()).fit(scaled(nodes)[:60], y[:60])
    assert_array_equal(
        pipeline.score_samples(nodes[90:]), expected.score_samples(scaled(nodes)[90:])
    )


def test_pickled_state_holds_no_graph():
    detector = Propagation(_knn()).fit(NODES[:60], Y[:60])
    data = pickle.dumps(detector)
    assert b"NodeSet" not in data and b"Graph" not in data
    assert_array_equal(
        pickle.loads(data).score_samples(NODES), detector.score_samples(NODES)
    )


def test_reads_the_network_of_its_detector():
    clf, other = _frozen(NODES, Y), _frozen(NODES, Y)
    members = [
        Propagation(Energy(clf)),
        Propagation(Energy(other)),
        MSP(clf),
        Propagation(make_pipeline(FunctionTransformer(_features), KNN())),
    ]
    assert network_groups(members) == [[0, 2], [1], [3]]
    fitted = [member.fit(NODES, Y) for member in members]
    assert network_groups(fitted) == [[0, 2], [1], [3]]


def test_shared_forward_pass_of_propagated_detectors():
    """All score one object, the whole graph, by whose identity outputs are shared."""
    runs = []

    class Counting(LogisticRegression):
        def decision_function(self, X):
            runs.append(len(X))
            return super().decision_function(X)

    clf = make_pipeline(FunctionTransformer(_features), Counting(max_iter=1000))
    clf = FrozenEstimator(clf.fit(NODES, Y))
    members = [
        Propagation(Energy(clf)).fit(NODES, Y),
        Propagation(MSP(clf), scheme="gnnsafe").fit(NODES, Y),
    ]
    expected = [member.score_samples(NODES[:9]) for member in members]
    del runs[:]
    with shared_outputs(members):
        results = [member.score_samples(NODES[:9]) for member in members]
        results = [member.score_samples(NODES[4:9]) for member in members]
    assert runs == [120]
    assert_array_equal(results, [scores[4:] for scores in expected])


# --- of a graph network --------------------------------------------------------------


TRAIN = np.arange(0, 90, 3)  # the last class is left out


@pytest.fixture(scope="module")
def clf():
    """A graph network that is trained on these nodes."""
    from skood.graph import GraphClassifier

    clf = GraphClassifier(
        conv_params={"hidden": (8,)},
        max_epochs=10,
        random_state=0,
        device="cpu",
        training=TrainingOptions(early_stopping=False),
    )
    return clf.fit(NODES[TRAIN], Y[TRAIN])


def test_energy_of_a_graph_network(clf):
    energy = logsumexp(clf.predict_logits(NODES), axis=1)
    expected = propagate(energy, NODES, scheme="gnnsafe", n_steps=2, alpha=0.2)
    for inner in (Energy(FrozenEstimator(clf)), Energy(clf)):  # the second is trained
        detector = Propagation(inner, scheme="gnnsafe", n_steps=2, alpha=0.2)
        detector.fit(NODES[TRAIN], Y[TRAIN])
        scores = detector.score_samples(NODES[50:])
        assert_allclose(scores, expected[50:], rtol=1e-5)
        if isinstance(inner.estimator, FrozenEstimator):
            assert detector.offset_ == middle_of_gap(
                detector.score_samples(NODES[TRAIN]), 0.05
            )


def test_embeddings_of_a_graph_network(clf):
    knn = make_pipeline(FeatureExtractor(FrozenEstimator(clf)), KNN(n_neighbors=3))
    detector = Propagation(knn).fit(NODES[TRAIN], Y[TRAIN])
    alone = knn.fit(NODES[TRAIN], Y[TRAIN]).score_samples(NODES)
    assert_allclose(
        detector.score_samples(NODES[:9]), propagate(alone, NODES)[:9], rtol=1e-6
    )
    loaded = pickle.loads(pickle.dumps(detector))
    assert_array_equal(loaded.score_samples(NODES), detector.score_samples(NODES))


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")  # few rows
def test_members_of_an_ensemble_run_the_network_once(clf):
    frozen = FrozenEstimator(clf)
    ensemble = DetectorEnsemble(
        [
            ("energy", Propagation(Energy(frozen), scheme="gnnsafe")),
            ("walk", Propagation(MSP(frozen))),
        ],
        calibration=0.4,
        random_state=0,
    ).fit(NODES[TRAIN], Y[TRAIN])
    runs = []
    handle = clf.module_.register_forward_hook(lambda *args: runs.append(1))
    levels = ensemble.levels(NODES)
    handle.remove()
    assert len(runs) == 1
    assert_array_equal(ensemble.levels(NODES[:5]), levels[:5])


# --- errors --------------------------------------------------------------------------


def test_infinite_scores():
    kde = make_pipeline(
        FunctionTransformer(_features), KernelDensity(kernel="tophat", bandwidth=0.1)
    )
    detector = Propagation(kde)
    with pytest.raises(
        ValueError,
        match=r"The Pipeline in Propagation gave an infinite or missing score \(NaN\) "
        "to 60 of 120 samples, and along edges it would reach others. Scale X, look at "
        "the network's outputs, or propagate the scores of another detector",
    ):
        detector.fit(NODES[:60], Y[:60])
    assert not hasattr(detector, "estimator_")
    for value, X in ((np.nan, _path(4)), (np.inf, np.eye(4))):
        with pytest.raises(ValueError, match="to 1 of 4 samples"):
            Propagation(_Given([0.0, value, 1.0, 2.0])).fit(X)


def test_scores_of_a_wrong_shape():
    with pytest.raises(
        ValueError,
        match=r"The _Given in Propagation gave scores of shape \(2, 1\) for 4 samples: "
        "score_samples must return one score per sample",
    ):
        Propagation(FrozenEstimator(_Given([[0.0], [1.0]]).fit([]))).fit(_path(4))


def test_empty_views():
    fitted = Propagation(_knn()).fit(NODES, Y)
    for call in (Propagation(_knn()).fit, fitted.score_samples):
        message = r"0 nodes of 120 .* required by Propagation"
        with pytest.raises(ValueError, match=message):
            call(NODES[:0])


def test_wrong_parameters():
    for name, value in (
        ("scheme", "symmetrical"),
        ("n_steps", -2),
        ("teleport", -0.1),
        ("alpha", 2.0),
        ("estimator", LogisticRegression()),
        ("contamination", 0.0),
    ):
        detector = Propagation(_knn()).set_params(**{name: value})
        with pytest.raises(ValueError, match=f"The '{name}' parameter of Propagation"):
            detector.fit(NODES, Y)


def test_ood_label_that_is_a_class_of_the_detector():
    detector = Propagation(Energy(_classifier()), ood_label=-9)
    with pytest.raises(
        ValueError,
        match=r"estimator__ood_label=-1 is one of the classes.* of the Propagation",
    ):
        detector.fit(NODES, Y - 1)


def test_a_detector_of_arrays_says_what_to_do():
    with pytest.raises(TypeError, match="NodeSet is a set of nodes of a graph, not an"):
        Propagation(KNN()).fit(NODES, Y)

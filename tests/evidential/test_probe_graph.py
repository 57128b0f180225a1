"""EvidentialProbe on the nodes of graphs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import digamma, softmax
from scipy.stats import entropy
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from skood.evidential import EvidentialProbe
from skood.graph import GraphClassifier, NodeSet
from skood.metrics import make_misclassification_scorer, make_ood_scorer
from skood.model_selection import LeaveClassesOut
from skood.nn import TrainingOptions
from tests._loops import looped
from tests.evidential._nested import nested

N_NODES, N_CLASSES = 150, 5
TRAIN = np.arange(0, N_NODES, 3)
KNOWN = TRAIN[TRAIN % N_CLASSES < 3]


def _graph(seed=0):
    """Five classes; nodes are linked to nodes of their own class. Two are isolated."""
    rng = np.random.default_rng(seed)
    y = np.arange(N_NODES) % N_CLASSES
    X = 1.5 * np.eye(N_CLASSES)[y] + rng.normal(size=(N_NODES, N_CLASSES))
    rate = np.where(y[:, None] == y, 0.2, 0.01)
    linked = np.triu(rng.random((N_NODES, N_NODES)) < rate, 1)
    linked[[0, 3]] = linked[:, [0, 3]] = False
    return NodeSet((X.astype(np.float32), linked | linked.T), labels=y), y


NODES, Y = _graph()
GNN = GraphClassifier(
    conv_params={"hidden": (8,), "dropout": 0.0},
    max_epochs=50,
    random_state=0,
    training=TrainingOptions(early_stopping=False),
)
FITTED = clone(GNN).fit(NODES[KNOWN], Y[KNOWN])
FROZEN = FrozenEstimator(FITTED)
QUICK = {"max_epochs": 30, "random_state": 0}


def _probe(estimator=FROZEN, **params):
    return EvidentialProbe(estimator).set_params(**nested({**QUICK, **params}))


PROBE = _probe().fit(NODES[KNOWN], Y[KNOWN])


# --- fit -----------------------------------------------------------------------------


def test_the_network_runs_once_for_all_nodes():
    fitted = pickle.loads(pickle.dumps(FITTED))
    calls = []
    fitted.module_.register_forward_hook(lambda *args: calls.append(1))
    probe = _probe(FrozenEstimator(fitted))
    probe.fit(NODES[KNOWN], Y[KNOWN])
    assert len(calls) == 1
    calls.clear()
    probe.fit(
        NODES[KNOWN[5:]], Y[KNOWN[5:]], X_val=NODES[KNOWN[:5]], y_val=Y[KNOWN[:5]]
    )
    assert len(calls) == 1
    calls.clear()
    probe.predict_uncertainty(NODES[KNOWN])
    assert len(calls) == 1


def test_regularizers_are_on_all_nodes():
    """The loss of the first epoch, from its formula."""
    probe = _probe(max_epochs=1, early_stopping=False).fit(NODES[KNOWN], Y[KNOWN])
    p = FITTED.predict_proba(NODES)
    q = np.exp(FITTED.predict_logits(NODES))  # the probe starts from W = I
    e = q.sum(axis=1)
    r = np.maximum((p.max(axis=1) - 1 / 3) * 1.5, 0.01)
    samples = ((3 + e)[:, None] * p - q) ** 2
    pcl = np.maximum(0, 100 - e) ** 2 + (1 - r) / r * e**2
    expected = 1e-3 * (samples.sum(axis=1) + pcl).mean()
    e_separate, p_separate = e[KNOWN], p[KNOWN, Y[KNOWN]]
    expected += (digamma(e_separate + 3) - digamma(e_separate * p_separate + 1)).mean()
    assert_allclose(probe.history_[0]["train_loss"], expected, rtol=1e-5)


def test_without_regularizers_only_samples_count():
    both = {"lambda_ice": 0.0, "lambda_pcl": 0.0}
    probe = _probe(**both).fit(NODES[KNOWN], Y[KNOWN])
    moved = NODES.with_features(NODES.graph.X)
    again = _probe(**both).fit(moved[KNOWN], Y[KNOWN])
    assert_array_equal(again.coef_, probe.coef_)
    assert (probe.predict_evidence(NODES) > 0).all()


def test_nodes_of_unknown_classes_have_no_label():
    """The frozen network does not know two classes of `y`."""
    probe = _probe().fit(NODES[TRAIN], Y[TRAIN])
    assert_array_equal(probe.classes_, [0, 1, 2])
    assert_array_equal(probe.coef_, PROBE.coef_)


def test_without_labels():
    probe = _probe(early_stopping=False).fit(NODES[KNOWN])
    other = _probe(early_stopping=False).fit(NODES)
    assert_array_equal(probe.coef_, other.coef_)  # all nodes count either way


def test_a_node_that_is_there_twice_counts_twice():
    twice = np.r_[KNOWN, KNOWN]
    single = _probe(early_stopping=False).fit(NODES[KNOWN], Y[KNOWN])
    double = _probe(early_stopping=False).fit(NODES[twice], Y[twice])
    assert_allclose(double.coef_, single.coef_, rtol=1e-9)
    epistemic = double.predict_uncertainty(NODES[[7, 7, 2]]).epistemic
    assert epistemic[0] == epistemic[1] != epistemic[2]


def test_validation_nodes_of_another_graph():
    other, y = _graph(seed=1)
    known = np.flatnonzero(y < 3)
    probe = _probe().fit(NODES[KNOWN], Y[KNOWN], X_val=other[known], y_val=y[known])
    assert "valid_loss" in probe.history_[0]
    assert probe.predict_uncertainty(other).epistemic.shape == (N_NODES,)


def test_an_unfitted_network_gets_the_validation_nodes():
    gnn = GraphClassifier(
        conv_params={"hidden": (8,)},
        max_epochs=20,
        random_state=0,
        training=TrainingOptions(n_iter_no_change=5),
    )
    valid = NODES[KNOWN[::2]], Y[KNOWN[::2]]
    train = NODES[KNOWN[1::2]], Y[KNOWN[1::2]]
    probe = _probe(gnn).fit(*train, X_val=valid[0], y_val=valid[1])
    expected = clone(gnn).fit(*train, X_val=valid[0], y_val=valid[1])
    assert_array_equal(probe.predict_proba(NODES), expected.predict_proba(NODES))


def test_not_fitted_and_no_nodes():
    with pytest.raises(NotFittedError):
        _probe().predict_evidence(NODES)
    with pytest.raises(ValueError, match="NodeSet with 0 nodes"):
        PROBE.predict_uncertainty(NODES[[]])


# --- predictions and propagation -----------------------------------------------------


def _walk(values, operator, steps, teleport):
    start = values
    for _ in range(steps):
        values = (1 - teleport) * (operator @ values) + teleport * start
    return values


@looped("original", [{}, {"n_steps": 3, "teleport": 0.3}])
@looped(
    "propagation",
    [
        *(None, "vacuity", "log-evidence"),
        *("evidence", "both", "evidence-sym", "vacuity-paper"),
    ],
)
def test_schemes(propagation, original):
    """Each by matrix products, and nodes that are on their own keep their value."""
    probe = pickle.loads(pickle.dumps(PROBE))
    probe.set_params(propagation=propagation, **original)
    uncertainty = probe.predict_uncertainty(NODES[10:])
    p, e = FITTED.predict_proba(NODES), probe.predict_evidence(NODES)
    alpha = e[:, None] * p + 1
    operator, symmetric = (
        NODES.graph.operator(kind).toarray() for kind in ("walk", "symmetric")
    )
    usual = {
        "evidence": (10, 0.1),
        "evidence-sym": (10, 0.1),
        "vacuity-paper": (2, 0.5),
    }
    walk = tuple(original.values()) or usual.get(propagation, (30, 0.02))
    if propagation == "vacuity-paper":
        u = 3 / _walk(3 + e, operator, *walk)
        alpha = alpha * (3 / u / alpha.sum(axis=1))[:, None]
    else:
        if propagation in ("evidence", "evidence-sym", "both"):
            matrix = symmetric if propagation == "evidence-sym" else operator
            steps = tuple(original.values()) or (10, 0.1)
            alpha = _walk(alpha, matrix, *steps)
        u = 3 / alpha.sum(axis=1)
        if propagation in ("vacuity", "both"):
            u = _walk(u, operator, *walk)
        if propagation == "log-evidence":
            u = np.log(3) - _walk(np.log(3 + e), operator, *walk)
    mean = alpha / alpha.sum(axis=1, keepdims=True)
    moved = propagation in ("evidence", "evidence-sym", "both")
    aleatoric = -(mean if moved else p).max(axis=1)
    assert_allclose(uncertainty.epistemic, u[10:], rtol=1e-9)
    assert_allclose(uncertainty.aleatoric, aleatoric[10:], rtol=1e-9)
    assert_allclose(uncertainty.total, entropy(mean, axis=1)[10:], rtol=1e-7)
    alone = probe.predict_uncertainty(NODES[[0, 3]]).epistemic
    expected = 3 / (3 + e[[0, 3]])
    if propagation == "log-evidence":
        expected = np.log(expected)
    assert_allclose(alone, expected, rtol=1e-12)
    # predictions are those of the network, whatever is propagated
    assert_allclose(probe.predict_proba(NODES), p, rtol=1e-12)
    assert_array_equal(probe.predict_alpha(NODES[:4]), probe.predict_alpha(NODES)[:4])


def test_array_samples_have_no_neighbors():
    X = NODES.features
    result = {}
    for propagation in (None, "vacuity", "evidence-sym", "both"):
        probe = pickle.loads(pickle.dumps(PROBE)).set_params(propagation=propagation)
        result[propagation] = probe.predict_uncertainty(X)
        for name in ("total", "aleatoric", "epistemic"):
            assert_array_equal(result[propagation][name], result[None][name])
    probe.set_params(propagation="log-evidence")
    uncertainty = probe.predict_uncertainty(X)
    assert_allclose(uncertainty.epistemic, np.log(result[None].epistemic), rtol=1e-12)
    assert_array_equal(uncertainty.aleatoric, result[None].aleatoric)
    logits = FITTED.predict_logits(X)
    assert_allclose(PROBE.predict_proba(X), softmax(logits, axis=1), rtol=1e-6)


def test_embeddings():
    probe = _probe(layer="penultimate").fit(NODES[KNOWN], Y[KNOWN])
    assert probe.coef_.shape == (3, 8)
    assert np.isfinite(probe.predict_uncertainty(NODES).epistemic).all()


def test_smoothed_vacuity_tells_left_out_classes():
    probe = EvidentialProbe(FROZEN, random_state=0).fit(NODES[KNOWN], Y[KNOWN])
    test = np.setdiff1d(np.arange(N_NODES), np.r_[TRAIN, 0, 3])
    is_ood = Y[test] >= 3
    u = probe.predict_uncertainty(NODES[test]).epistemic
    single = clone(probe).set_params(propagation=None).fit(NODES[KNOWN], Y[KNOWN])
    alone = single.predict_uncertainty(NODES[test]).epistemic
    assert roc_auc_score(is_ood, u) > max(0.95, roc_auc_score(is_ood, alone))


# --- as scikit-learn uses it ---------------------------------------------------------


def test_search_on_a_frozen_network():
    """It was trained without two classes: these are OOD in each test part."""
    scoring = {
        "auroc": make_ood_scorer("auroc"),
        "errors": make_misclassification_scorer(),
    }
    rng = np.random.default_rng(0)
    noisy = np.where((rng.random(N_NODES) < 0.1) & (Y < 3), (Y + 1) % 3, Y)
    cv = LeaveClassesOut(left_out=[(3,), (3, 4)], random_state=0)
    search = GridSearchCV(
        _probe(),
        {"objective__lambda_ice": [1e-3, 1.0], "propagation": [None, "vacuity"]},
        scoring=scoring,
        cv=cv,
        refit="auroc",
        error_score="raise",
    ).fit(NODES, noisy)
    results = search.cv_results_
    for i, (train, test) in enumerate(cv.split(NODES, noisy)):
        probe = _probe(**results["params"][1]).fit(NODES[train], noisy[train])
        u = probe.predict_uncertainty(NODES[test]).epistemic
        expected = roc_auc_score(np.isin(noisy[test], [0, 1, 2]), -u)
        assert_allclose(results[f"split{i}_test_auroc"][1], expected, rtol=1e-12)
    assert search.best_params_["propagation"] == "vacuity"
    assert (results["mean_test_errors"] > 0.4).all()


def test_search_that_trains_the_network():
    """Classes that a fold leaves out are not among its classes_."""
    probe = _probe(clone(GNN))
    scores = cross_val_score(
        probe,
        NODES,
        Y,
        scoring=make_ood_scorer("auroc"),
        cv=LeaveClassesOut(2, random_state=0),
        error_score="raise",
    )
    assert scores.shape == (3,)
    assert scores.mean() > 0.8


def test_clones_copy_no_graph():
    rng = np.random.default_rng(0)
    n_nodes = 2000
    X = rng.normal(size=(n_nodes, 400)).astype(np.float32)  # 3 MB
    y = np.arange(n_nodes) % 3
    edges = sparse.random(n_nodes, n_nodes, density=1e-3, random_state=0)
    nodes = NodeSet((X, edges))
    gnn = clone(GNN).set_params(max_epochs=2).fit(nodes, y)
    probe = _probe(FrozenEstimator(gnn), max_epochs=2).fit(nodes, y)
    probe.predict_uncertainty(nodes)
    tracemalloc.start()
    clone(probe)
    copied = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert copied < X.nbytes / 10

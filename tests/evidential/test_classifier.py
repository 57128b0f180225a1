"""Tests of `EvidentialClassifier` on arrays, images and graphs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.base import UncertaintyDetector
from skood.epistemic import BatchEnsemble
from skood.evidential import EvidentialClassifier, EvidentialLoss
from skood.graph import GraphClassifier, NodeSet, propagate
from skood.metrics import auroc
from skood.nn import TorchClassifier

FIELDS = ("total", "aleatoric", "epistemic")
QUICK = TorchClassifier(
    module_params={"hidden": (16,)}, max_epochs=20, lr=0.02, random_state=0
)
QUICK_GRAPH = GraphClassifier(
    conv_params={"hidden": (8,)}, max_epochs=60, lr=0.03, random_state=0
)


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    return rng.normal(size=(90, 3)) + 3 * np.eye(3)[y], y


@pytest.fixture(scope="module")
def graph():
    """Four classes that link within; the last node has no edge."""
    rng = np.random.default_rng(0)
    y = np.arange(121) % 4
    X = rng.normal(size=(121, 6)) + 1.5 * np.eye(6)[y]
    linked = rng.random((121, 121)) < np.where(y[:, None] == y, 0.15, 0.01)
    adjacency = np.triu(linked, 1).astype(float)
    adjacency[-1] = adjacency[:, -1] = 0
    return NodeSet((X, adjacency + adjacency.T), labels=y)


@pytest.fixture(scope="module")
def fitted(graph):
    train = graph[:80]
    known = train.labels != 3
    train = train[known]
    return EvidentialClassifier(QUICK_GRAPH).fit(train, train.labels)


# --- what it trains ----------------------------------------------------------------


def test_it_is_the_network_with_the_loss(blobs):
    X, y = blobs
    params = {"evidence": "exp", "loss": "squared_error", "lambda_kl": 0.3}
    params["penalty"] = "uniform"
    loss = EvidentialLoss(**params)
    net = clone(QUICK).set_params(criterion=loss).fit(X, y)
    clf = EvidentialClassifier(QUICK, **params).fit(X, y)
    assert clf.estimator_.criterion == loss
    assert QUICK.criterion is None
    logits = net.predict_logits(X)
    assert_array_equal(clf.estimator_.predict_logits(X), logits)
    assert_allclose(clf.predict_alpha(X), 1 + np.exp(logits), rtol=1e-14)
    assert_array_equal(clf.classes_, [0, 1, 2])


def test_penalty_of_all_evidence_lowers_evidence(blobs):
    """The divergence of the whole parameters also penalizes right classes."""
    X, y = blobs
    misleading, uniform = (
        EvidentialClassifier(QUICK, lambda_kl=1.0, penalty=penalty).fit(X, y)
        for penalty in ("misleading", "uniform")
    )
    of_class = (np.arange(len(y)), y)
    right = [clf.predict_alpha(X)[of_class] for clf in (misleading, uniform)]
    assert right[1].mean() < right[0].mean()


def test_what_it_predicts(blobs):
    X, y = blobs
    clf = EvidentialClassifier(QUICK).fit(X, y)
    alpha = clf.predict_alpha(X)
    assert alpha.dtype == np.float64 and (alpha >= 1).all()
    proba = clf.predict_proba(X)
    assert_allclose(proba, alpha / alpha.sum(axis=1, keepdims=True), rtol=1e-15)
    assert_array_equal(clf.predict(X), proba.argmax(axis=1))
    assert clf.score(X, y) > 0.9
    uncertainty = clf.predict_uncertainty(X)
    assert_allclose(uncertainty.epistemic, 3 / alpha.sum(axis=1), rtol=1e-15)
    assert_allclose(uncertainty.aleatoric, -proba.max(axis=1), rtol=1e-15)
    assert_allclose(uncertainty.total, -(proba * np.log(proba)).sum(axis=1), rtol=1e-12)


def test_default_networks(blobs, graph, monkeypatch):
    X, y = blobs
    for kind in (TorchClassifier, GraphClassifier):
        monkeypatch.setitem(kind.__init__.__kwdefaults__, "max_epochs", 3)
    images = X[:, :1, None, None] * np.ones((1, 1, 3, 3))
    clf = EvidentialClassifier(random_state=0)
    for samples in (X[:12], images[:12]):
        clf.fit(samples, y[:12])
        assert type(clf.estimator_) is TorchClassifier
        assert clf.predict_proba(samples).shape == (12, 3)
    assert clf.n_features_in_ == 1
    nodes = graph[:40]
    clf.fit(nodes, nodes.labels)
    assert type(clf.estimator_) is GraphClassifier
    assert clf.n_features_in_ == 6


@pytest.mark.parametrize("seed_of_network", [None, 0])
def test_seed_is_of_an_unseeded_network(blobs, seed_of_network):
    X, y = blobs
    net = clone(QUICK).set_params(random_state=seed_of_network, max_epochs=3)
    first, same, other = (
        EvidentialClassifier(net, random_state=seed).fit(X, y).predict_alpha(X)
        for seed in (1, 1, 2)
    )
    assert_array_equal(first, same)
    assert (np.abs(first - other).max() > 1e-3) == (seed_of_network is None)


def test_weights(blobs):
    X, y = blobs
    net = clone(QUICK).set_params(batch_size=1000)
    weight = np.where(np.arange(90) < 80, 1.0, 0.0)
    weighted = EvidentialClassifier(net).fit(X, y, sample_weight=weight)
    subset = EvidentialClassifier(net).fit(X[:80], y[:80])
    assert_allclose(weighted.predict_alpha(X), subset.predict_alpha(X), rtol=1e-4)


def test_the_divergence_takes_evidence_for_wrong_classes_away(blobs):
    X, y = blobs
    wrong = []
    for lambda_kl in (0.0, 0.1, 1.0):
        clf = EvidentialClassifier(QUICK, lambda_kl=lambda_kl).fit(X, y)
        evidence = clf.predict_alpha(X) - 1
        evidence[np.arange(90), y] = 0
        wrong.append(evidence.sum(axis=1).mean())
    assert wrong[0] > 1.1 * wrong[1] and wrong[1] > 1.3 * wrong[2]


def test_digits_with_left_out_classes():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16, y, random_state=0, stratify=y)
    known = y < 7
    net = TorchClassifier(max_epochs=30, lr=3e-3, random_state=0)
    clf = EvidentialClassifier(net, evidence="exp").fit(X[known], y[known])
    is_id = y_test < 7
    assert clf.score(X_test[is_id], y_test[is_id]) > 0.96
    uncertainty = clf.predict_uncertainty(X_test)
    for name in FIELDS:
        assert auroc(y_test, -uncertainty[name], classes=range(7)) > 0.95


# --- graphs ------------------------------------------------------------------------


def test_nodes(graph, fitted):
    test = graph[80:]
    is_id = test.labels != 3
    assert fitted.score(test[is_id], test.labels[is_id]) > 0.8
    alpha = fitted.predict_alpha(test)
    proba = fitted.predict_proba(test)
    assert_allclose(proba, alpha / alpha.sum(axis=1, keepdims=True), rtol=1e-15)


@pytest.mark.parametrize("propagation", [None, "vacuity", "evidence", "both"])
def test_propagation(graph, fitted, propagation):
    test = graph[80:]
    alpha = fitted.predict_alpha(graph)
    clf = clone(fitted).set_params(propagation=propagation)
    assert vars(clf)["propagation"] == propagation
    fitted = pickle.loads(pickle.dumps(fitted)).set_params(propagation=propagation)
    if propagation in ("evidence", "both"):
        alpha = propagate(alpha, graph, n_steps=10, teleport=0.1)
    u = 3 / alpha.sum(axis=1)
    if propagation in ("vacuity", "both"):
        u = propagate(u, graph, n_steps=30, teleport=0.02)
    uncertainty = fitted.predict_uncertainty(test)
    assert_allclose(uncertainty.epistemic, u[80:], rtol=1e-12)
    proba = alpha[80:] / alpha[80:].sum(axis=1, keepdims=True)
    assert_allclose(uncertainty.aleatoric, -proba.max(axis=1), rtol=1e-12)
    alone = test[-1:]  # has no neighbors
    separate = 3 / fitted.predict_alpha(alone).sum(axis=1)
    assert_array_equal(fitted.predict_uncertainty(alone).epistemic, separate)


def test_neighbors_help(graph, fitted):
    test = graph[80:]
    plain = fitted.predict_uncertainty(test).epistemic
    smooth = pickle.loads(pickle.dumps(fitted))
    smooth.set_params(propagation="vacuity", n_steps=10, teleport=0.1)
    averaged = smooth.predict_uncertainty(test).epistemic
    before, after = (
        auroc(test.labels, -u, classes=range(3)) for u in (plain, averaged)
    )
    assert after > before > 0.5


def test_validation_nodes(graph):
    train, val = graph[:60], graph[60:80]
    net = clone(QUICK_GRAPH).set_params(training__n_iter_no_change=3)
    clf = EvidentialClassifier(net)
    clf.fit(train, train.labels, X_val=val, y_val=val.labels)
    same = clone(net).set_params(criterion=EvidentialLoss())
    same.fit(train, train.labels, X_val=val, y_val=val.labels)
    assert clf.estimator_.history_ == same.history_
    assert_array_equal(clf.estimator_.predict_logits(graph), same.predict_logits(graph))


def test_search_on_nodes(graph):
    nodes = graph[:60]
    y = np.array(["a", "b", "c", "d"])[nodes.labels]
    net = clone(QUICK_GRAPH).set_params(max_epochs=20)
    search = GridSearchCV(
        EvidentialClassifier(net),
        {"lambda_kl": [0.01], "estimator__lr": [0.01]},
        cv=2,
    ).fit(nodes, y)
    assert search.best_estimator_.estimator_.lr == 0.01
    search = pickle.loads(pickle.dumps(search))
    assert search.predict(nodes).shape == (60,)


# --- around it ---------------------------------------------------------------------


def test_pipeline_and_search_on_arrays(blobs):
    X, y = blobs
    clf = make_pipeline(StandardScaler(), EvidentialClassifier(QUICK))
    assert cross_val_score(clf, X, y, cv=2).mean() > 0.85
    grid = {"evidence": ["exp"], "estimator__max_epochs": [2, 20]}
    search = GridSearchCV(EvidentialClassifier(QUICK), grid, cv=2).fit(X, y)
    assert search.best_params_["estimator__max_epochs"] == 20


def test_detector_of_arrays(blobs):
    X, y = blobs
    detector = UncertaintyDetector(EvidentialClassifier(QUICK)).fit(X, y)
    assert np.mean(detector.predict(X) == 1) == pytest.approx(0.95, abs=0.02)


def test_later_changes_of_the_loss_need_a_fit(blobs):
    X, y = blobs
    clf = EvidentialClassifier(QUICK).fit(X, y)
    before = clf.predict_alpha(X)
    assert_array_equal(clf.set_params(evidence="exp").predict_alpha(X), before)


# --- errors ------------------------------------------------------------------------


def test_estimators_without_a_criterion(blobs):
    net = BatchEnsemble(clone(QUICK))
    for estimator in (net, FrozenEstimator(clone(QUICK).fit(*blobs))):
        name = type(estimator).__name__
        with pytest.raises(ValueError, match=f"needs a parameter criterion.*{name}"):
            EvidentialClassifier(estimator).fit(*blobs)
    with pytest.raises(ValueError, match="The 'estimator' parameter of EvidentialClas"):
        EvidentialClassifier(LogisticRegression()).fit(*blobs)


def test_a_criterion_that_is_set(blobs):
    net = clone(QUICK).set_params(criterion=EvidentialLoss(evidence="exp"))
    message = r"sets the criterion of its estimator, .* got EvidentialLoss\(evidence='"
    with pytest.raises(ValueError, match=message):
        EvidentialClassifier(net).fit(*blobs)


def test_what_the_fit_of_the_estimator_does_not_take(blobs):
    X, y = blobs
    clf = EvidentialClassifier(QUICK).fit(X, y)
    before = vars(clf).copy()
    message = "X_val and y_val were passed, but the fit of TorchClassifier does not"
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y, X_val=X, y_val=y)
    assert vars(clf) == before


@pytest.mark.parametrize(
    "params",
    [
        {"evidence": "tanh"},
        {"loss": "hinge"},
        {"lambda_kl": -0.1},
        {"propagation": "energy"},
        {"n_steps": -1},
        {"teleport": 1.5},
    ],
)
def test_bad_parameters(blobs, params):
    (name,) = params
    with pytest.raises(ValueError, match=f"The '{name}' parameter of EvidentialCl"):
        EvidentialClassifier(**params).fit(*blobs)


# --- imports -------------------------------------------------------------------------


def test_unknown_names():
    import skood.evidential

    message = "module 'skood.evidential' has no attribute 'nope'"
    with pytest.raises(AttributeError, match=message):
        skood.evidential.nope  # noqa: B018
    assert dir(skood.evidential) == sorted(skood.evidential.__all__)

"""Tests of `GKDENetwork`, with naive losses."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import re

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import digamma, gammaln
from scipy.stats import entropy
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skood.base import UncertaintyDetector
from skood.detectors import KNN, MSP, Energy
from skood.evidential import EvidentialLoss, EvidentialProbe, dirichlet_kl, vacuity
from skood.graph import GKDE, GKDENetwork, GraphClassifier, NodeSet
from skood.graph._gkde_network import (
    Targets,
    dirichlet_divergence,
    divergence_of_means,
)
from skood.nn import TrainingOptions


def _blocks(n_nodes=90, n_classes=3, seed=0, noise=1.0):
    """Nodes that are mostly linked to nodes of their class; the last has no edge."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_nodes) % n_classes
    X = 2 * np.eye(n_classes)[y] + noise * rng.normal(size=(n_nodes, n_classes))
    likely = np.where(y[:, None] == y, 0.15, 0.01)
    linked = np.triu(rng.random((n_nodes, n_nodes)) < likely, 1)
    linked[:, -1] = False
    return NodeSet((X, (linked | linked.T).astype(float))), y


NODES, Y = _blocks()


# Weights that stay what they are drawn as: the loss of the first epoch is theirs.
STILL = GraphClassifier(
    conv_params={"hidden": (8,), "dropout": 0.0},
    lr=1e-12,
    max_epochs=1,
    training=TrainingOptions(weight_decay=0.0, early_stopping=False),
    random_state=0,
    device="cpu",
)

QUICK = GraphClassifier(
    conv_params={"hidden": (16,)},
    max_epochs=40,
    training=TrainingOptions(early_stopping=False),
    random_state=0,
    device="cpu",
)


def _new(network, **params):
    return clone(network).set_params(**params)


PLAIN = {"hidden": (16,), "dropout": 0.0}
LONG = _new(QUICK, max_epochs=200)


# --- the parts of the loss ----------------------------------------------------------


def test_divergences_against_scipy():
    rng = np.random.default_rng(0)
    alpha, beta = 1 + rng.gamma(2.0, size=(2, 50, 4))
    a, b = torch.tensor(alpha), torch.tensor(beta)
    expected = [
        gammaln(p.sum())
        - gammaln(p).sum()
        - gammaln(q.sum())
        + gammaln(q).sum()
        + ((p - q) * (digamma(p) - digamma(p.sum()))).sum()
        for p, q in zip(alpha, beta, strict=True)
    ]
    assert_allclose(dirichlet_divergence(a, b), expected, rtol=1e-11)
    assert_allclose(dirichlet_divergence(a, b), dirichlet_kl(alpha, beta), rtol=1e-11)
    assert_allclose(dirichlet_divergence(a, a), 0.0, atol=1e-14)
    q = beta / beta.sum(axis=1, keepdims=True)
    assert_allclose(
        divergence_of_means(a, torch.tensor(np.log(q))),
        entropy(alpha, q, axis=1),
        rtol=1e-11,
    )


def test_gradients_of_divergences():
    rng = np.random.default_rng(1)
    alpha, beta = torch.tensor(1 + rng.gamma(2.0, size=(2, 5, 3)))
    alpha.requires_grad_()
    log_q = torch.log_softmax(beta, dim=1)
    assert torch.autograd.gradcheck(lambda a: dirichlet_divergence(a, beta), alpha)
    assert torch.autograd.gradcheck(lambda a: divergence_of_means(a, log_q), alpha)


@pytest.mark.parametrize("lambdas", [(0.3, 0.5), (0.0, 2.0), (1.0, 0.0)])
@pytest.mark.parametrize("numbers", [slice(None), np.array([4, 0, 2])], ids=str)
def test_distance_node_by_node(lambdas, numbers):
    rng = np.random.default_rng(2)
    prior, teacher = 1 + rng.gamma(2.0, size=(6, 3)), rng.dirichlet(np.ones(3), size=6)
    nodes = np.arange(6)[numbers]
    alpha = 1 + rng.gamma(2.0, size=(len(nodes), 3))
    of_prior = of_teacher = 0.0
    for a, j in zip(alpha, nodes, strict=True):
        of_prior += dirichlet_kl(a, prior[j]) / len(nodes)
        of_teacher += entropy(a / a.sum(), teacher[j]) / len(nodes)
    both = torch.tensor(prior), torch.tensor(np.log(teacher))
    for original, expected in (
        (both, lambdas[0] * of_prior + lambdas[1] * of_teacher),
        ((both[0], None), lambdas[0] * of_prior),
        ((None, both[1]), lambdas[1] * of_teacher),
        ((None, None), 0.0),
    ):
        result = Targets(*original).distance(torch.tensor(alpha), numbers, *lambdas)
        assert result.shape == ()
        assert_allclose(result, expected, rtol=1e-11)


def _assert_loss(clf, nodes, codes, weight, prior, teacher, kind="train_loss"):
    """Check the loss of the first epoch, which did not change the weights."""
    expected = _naive_risk(clf, nodes, codes, weight)
    expected += _naive_penalty(clf, nodes, prior, teacher)
    assert clf.estimator_.history_[0][kind] == pytest.approx(expected, rel=1e-5)


def _naive_penalty(clf, nodes, prior, teacher):
    """Regularization of all nodes, one node at a time."""
    alpha, penalty = clf.predict_alpha(nodes.whole()), 0.0
    for j in range(nodes.n_nodes):
        p = alpha[j] / alpha[j].sum()
        if prior is not None:
            penalty += clf.lambda_gkde * dirichlet_kl(alpha[j], prior[j])
        if teacher is not None:
            penalty += clf.lambda_teacher * entropy(p, teacher[j])
    return penalty / nodes.n_nodes


def _naive_risk(clf, nodes, codes, weight):
    """Expected squared error of labeled nodes by the moments of the distribution."""
    risks = []
    for a, k in zip(clf.predict_alpha(nodes), codes, strict=True):
        total, risk = sum(a), 0.0
        for c in range(len(a)):
            mean = a[c] / total
            variance = a[c] * (total - a[c]) / (total**2 * (total + 1))
            risk += ((c == k) - mean) ** 2 + variance
        risks.append(risk)
    return np.average(risks, weights=weight)


@pytest.mark.parametrize("evidence", ["exp", "softplus"])
@pytest.mark.parametrize(
    "lambdas", [(0.0, 0.0), (0.1, 0.0), (0.0, 2.0), (0.3, 0.5)], ids=str
)
def test_training_loss_against_a_loop(evidence, lambdas):
    train = np.arange(0, 90, 2)
    clf = GKDENetwork(
        STILL,
        lambda_gkde=lambdas[0],
        lambda_teacher=lambdas[1],
        evidence=evidence,
    ).fit(NODES[train], Y[train])
    prior = teacher = None
    if lambdas[0]:
        prior = GKDE().fit(NODES[train], Y[train]).predict_alpha(NODES)
    if lambdas[1]:
        assert repr(_new(clf.teacher_, random_state=1)) == repr(
            _new(STILL, random_state=1)
        )
        teacher = clf.teacher_.predict_proba(NODES)
    _assert_loss(clf, NODES[train], Y[train], np.ones(45), prior, teacher)
    assert (clf.gkde_ is None) == (lambdas[0] == 0)
    assert (clf.teacher_ is None) == (lambdas[1] == 0)


def test_weights_multiply_evidence_and_loss():
    train = np.arange(0, 90, 2)
    w = np.random.default_rng(3).uniform(size=45)
    clf = GKDENetwork(_new(STILL, class_weight={0: 1, 1: 2, 2: 5}), lambda_teacher=0.0)
    clf.fit(NODES[train], Y[train], sample_weight=w)
    w = w * np.array([1, 2, 5])[Y[train]]
    w /= w.mean()
    prior = GKDE().fit(NODES[train], Y[train], w).predict_alpha(NODES)
    _assert_loss(clf, NODES[train], Y[train], w, prior, None)


@pytest.mark.parametrize("metric", ["hops", "euclidean"])
@pytest.mark.parametrize("same_graph", [True, False])
def test_validation_loss_against_a_loop(metric, same_graph):
    train, others = np.arange(0, 90, 2), np.arange(1, 90, 3)
    of_val, y_val = (NODES, Y) if same_graph else _blocks(60, seed=5)
    valid = others[others < len(y_val)]
    clf = GKDENetwork(STILL, lambda_gkde=0.3, gkde=GKDE(metric=metric))
    clf.fit(NODES[train], Y[train], X_val=of_val[valid], y_val=y_val[valid])
    prior = None
    if same_graph or metric == "euclidean":
        gkde = GKDE(metric=metric).fit(NODES[train], Y[train])
        prior = gkde.predict_alpha(of_val)
    teacher = clf.teacher_.predict_proba(of_val)
    data = of_val[valid], y_val[valid], np.ones(len(valid))
    _assert_loss(clf, *data, prior, teacher, "valid_loss")


def _teacher_weights(monkeypatch, network, **params):
    """Return the weights of the teacher in steps of the training, and in validation."""
    steps, weights = [], []
    distance = Targets.distance

    def recorded(targets, alpha, numbers, lambda_gkde, lambda_teacher):
        (steps if alpha.requires_grad else weights).append(lambda_teacher)
        return distance(targets, alpha, numbers, lambda_gkde, lambda_teacher)

    monkeypatch.setattr(Targets, "distance", recorded)
    clf = GKDENetwork(network, lambda_gkde=0.0, **params)
    clf.fit(NODES[::2], Y[::2], X_val=NODES[1::4], y_val=Y[1::4])
    return steps, weights


def test_weight_of_the_teacher_by_epoch(monkeypatch):
    network = _new(STILL, max_epochs=50)
    params = {"ramp": 20, "lambda_teacher": 3.0}
    network.training = TrainingOptions(early_stopping=False, n_iter_no_change=1000)
    steps, of_valid = _teacher_weights(monkeypatch, network, **params)
    expected = 3.0 * np.minimum(np.arange(50) / 20, 1.0)
    assert_allclose(steps, expected, rtol=0, atol=1e-15)
    assert set(of_valid) == {3.0}


def test_weight_of_the_teacher_without_ramp(monkeypatch):
    steps, of_valid = _teacher_weights(monkeypatch, QUICK, lambda_teacher=0.3)
    assert set(steps) == set(of_valid) == {0.3}


def test_weight_of_the_teacher_is_that_of_the_epoch_in_batches(monkeypatch):
    network = _new(QUICK, batch_size=16, n_neighbors=3, max_epochs=4)
    steps, _ = _teacher_weights(monkeypatch, network, lambda_teacher=1.0, ramp=2)
    assert steps == 3 * [0.0] + 3 * [0.5] + 6 * [1.0]


def test_first_epoch_of_a_ramp_has_no_teacher():
    losses = []
    for params in ({"ramp": 5}, {}, {"lambda_teacher": 0.0}):
        clf = GKDENetwork(STILL, lambda_gkde=0.0, **{"lambda_teacher": 2.0, **params})
        clf.fit(NODES[::2], Y[::2])
        losses.append(clf.estimator_.history_[0]["train_loss"])
    assert losses[0] == losses[2] < losses[1]


def test_held_out_nodes_are_no_evidence():
    clf = GKDENetwork(
        _new(STILL, training__early_stopping=True, training__validation_fraction=0.3)
    )
    clf.fit(NODES, Y)
    assert len(clf.gkde_.nodes_) == 63
    assert "valid_loss" in clf.estimator_.history_[0]
    assert "valid_loss" in clf.teacher_.history_[0]  # of the same nodes


# --- what it learns -----------------------------------------------------------------


def test_distributions_come_close_to_those_of_gkde():
    train = np.arange(0, 60, 2)
    options = {"lambda_teacher": 0.0}
    near, far = (
        GKDENetwork(LONG, lambda_gkde=weight, **options).fit(NODES[train], Y[train])
        for weight in (10.0, 0.0)
    )
    near, far = near.predict_alpha(NODES), far.predict_alpha(NODES)
    prior = GKDE().fit(NODES[train], Y[train]).predict_alpha(NODES)
    assert dirichlet_kl(near, prior).mean() < 0.05 < dirichlet_kl(far, prior).mean()


def test_means_come_close_to_those_of_the_teacher():
    nodes, y = _blocks(noise=2.0)
    train = np.arange(0, 60, 4)
    teacher = clone(QUICK).fit(nodes[train], y[train])
    q = teacher.predict_proba(nodes)
    options = {"lambda_gkde": 0.0, "teacher": FrozenEstimator(teacher)}
    divergence = []
    for weight in (100.0, 0.0):
        clf = GKDENetwork(LONG, lambda_teacher=weight, **options)
        p = clf.fit(nodes[train], y[train]).predict_proba(nodes)
        divergence.append(entropy(p, q, axis=1).mean())
    assert divergence[0] < 0.02 < divergence[1]


def test_left_out_class_is_uncertain():
    nodes, y = _blocks(150, seed=2)
    train = np.flatnonzero((y != 2) & (np.arange(150) % 2 == 0))
    test = np.arange(1, 150, 2)
    clf = GKDENetwork(QUICK).fit(nodes[train], y[train])
    uncertainty = clf.predict_uncertainty(nodes[test])
    assert roc_auc_score(y[test] == 2, uncertainty.epistemic) > 0.9
    known = test[y[test] != 2]
    assert clf.score(nodes[known], y[known]) > 0.9
    alpha = clf.predict_alpha(nodes[test])
    assert_array_equal(uncertainty.epistemic, vacuity(alpha))
    assert_array_equal(uncertainty.aleatoric, -clf.predict_proba(nodes[test]).max(1))
    assert_allclose(uncertainty.total, entropy(alpha, axis=1), rtol=1e-10)
    detector = UncertaintyDetector(FrozenEstimator(clf)).fit(nodes[train], y[train])
    assert_array_equal(detector.score_samples(nodes[test]), -uncertainty.epistemic)
    assert detector.score(nodes[test], y[test]) > 0.9


def test_nodes_that_labels_do_not_reach_have_less_evidence():
    """Two copies of a graph, labels in one only: their features are the same."""
    item, y = _blocks()
    X = np.concatenate([item.features, item.features])
    nodes = NodeSet((X, sparse.block_diag([item.adjacency, item.adjacency])))
    train = np.arange(0, 90, 4)
    network = _new(QUICK, conv_params=PLAIN, max_epochs=300)
    both, alone = (
        GKDENetwork(network, lambda_gkde=10.0, lambda_teacher=0.0).fit(
            graph[train], y[train]
        )
        for graph in (nodes, item)
    )
    assert_array_equal(both.gkde_.predict_alpha(nodes[90:]), 1.0)
    # the network cannot tell them apart, so both get the mean of what draws them
    alpha = both.predict_alpha(nodes)
    assert_allclose(alpha[90:], alpha[:90], rtol=1e-5)
    assert (alpha - 1).sum() < 1.5 * (alone.predict_alpha(item) - 1).sum()


@pytest.mark.parametrize("conv", ["gat", "sage", "appnp"])
def test_other_networks(conv):
    clf = GKDENetwork(_new(QUICK, conv=conv)).fit(NODES[::2], Y[::2])
    assert clf.score(NODES[1::2], Y[1::2]) > 0.9
    assert clf.teacher_.conv == conv


def test_sampled_neighborhoods():
    network = _new(QUICK, batch_size=16, n_neighbors=3, max_epochs=15)
    clf = GKDENetwork(network).fit(NODES[::2], Y[::2])
    assert clf.score(NODES[1::2], Y[1::2]) > 0.9
    again = clone(clf).fit(NODES[::2], Y[::2])
    assert_array_equal(again.predict_alpha(NODES), clf.predict_alpha(NODES))


def test_other_graphs_are_predicted():
    other, y_other = _blocks(60, seed=7)
    clf = GKDENetwork(QUICK).fit(NODES, Y)
    assert clf.score(other, y_other) > 0.9
    alpha = clf.predict_alpha(other.features)  # without edges
    assert alpha.shape == (60, 3)
    assert_allclose(alpha[-1], clf.predict_alpha(other)[-1], rtol=1e-5)


def test_detectors_read_it():
    clf = GKDENetwork(QUICK).fit(NODES, Y)
    energy = Energy(FrozenEstimator(clf)).fit(NODES)
    evidence = clf.predict_alpha(NODES) - 1
    assert_allclose(
        energy.score_samples(NODES), np.log(evidence.sum(axis=1)), rtol=1e-5
    )
    knn = KNN(FrozenEstimator(clf), n_neighbors=3).fit(NODES, Y)
    assert knn.score_samples(NODES[[0, 89]]).shape == (2,)


# --- the teacher --------------------------------------------------------------------


class _Teacher(ClassifierMixin, BaseEstimator):
    """Tells what it was fitted on; predicts by counts of classes."""

    def fit(self, X, y):
        self.given_ = X, y
        self.classes_ = np.unique(y)[::-1]  # not sorted: columns are put in order
        return self

    def predict_proba(self, X):
        p = np.array([(self.given_[1] == c).mean() for c in self.classes_])
        return np.tile(p, (len(X), 1))


class _WeightedTeacher(_Teacher):
    """It also takes weights and validation nodes."""

    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None):
        self.more_ = sample_weight, X_val, y_val
        return super().fit(X, y)


def test_teacher_of_any_kind():
    names = np.array(["a", "b", "c"])[Y]
    train = np.r_[0:30, 30:60:3, 30:60:3]
    original = _Teacher()
    clf = GKDENetwork(STILL, teacher=original, lambda_gkde=0.0)
    clf.fit(NODES[train], names[train])
    assert not hasattr(original, "given_")
    assert_array_equal(clf.teacher_.given_[0].nodes, train)
    assert_array_equal(clf.teacher_.given_[1], names[train])
    p = np.tile([np.mean(names[train] == c) for c in "abc"], (90, 1))
    _assert_loss(clf, NODES[train], Y[train], np.ones(50), None, p)


def test_teacher_takes_weights_and_validation_nodes():
    clf = GKDENetwork(STILL, teacher=_WeightedTeacher())
    w = np.arange(60.0)  # a node of weight zero is no training node
    clf.fit(NODES[:60], Y[:60], w, X_val=NODES[60:], y_val=Y[60:])
    weight, X_val, y_val = clf.teacher_.more_
    assert_array_equal(clf.teacher_.given_[0].nodes, np.arange(1, 60))
    assert_allclose(weight, w[1:] / w[1:].mean())
    assert_array_equal(X_val.nodes, np.arange(60, 90))
    assert_array_equal(y_val, Y[60:])


def test_class_without_weight():
    """No evidence for it, neither by GKDE nor by the teacher; but it is a class."""
    clf = GKDENetwork(QUICK).fit(NODES, Y, sample_weight=(Y != 1).astype(float))
    assert list(clf.classes_) == [0, 1, 2]
    assert list(clf.teacher_.classes_) == [0, 2]
    proba = clf.predict_proba(NODES)
    assert proba.shape == (90, 3)
    assert proba[:, 1].mean() < 0.1
    assert np.isfinite(clf.estimator_.history_[-1]["train_loss"])


def test_teacher_of_other_classes():
    teacher = FrozenEstimator(clone(QUICK).fit(NODES, Y))
    names = np.array(["a", "b", "c"])[Y]
    with pytest.raises(
        ValueError,
        match=re.escape(
            "The teacher predicts the classes [0, 1, 2], and y has ['a', 'b', 'c']. "
            "Pass a teacher of these classes, or lambda_teacher=0."
        ),
    ):
        GKDENetwork(QUICK, teacher=teacher).fit(NODES, names)


def test_frozen_teacher_without_a_class():
    names = np.array(["a", "b", "c"])[Y]
    known = np.flatnonzero(Y != 1)
    teacher = clone(QUICK).fit(NODES[known], names[known])
    clf = GKDENetwork(QUICK, teacher=FrozenEstimator(teacher))
    with pytest.raises(
        ValueError,
        match=re.escape(
            "The teacher predicts the classes ['a', 'c'], but y also has ['b'], whose "
            "probabilities it would regularize towards zero. Pass a teacher of all "
            "classes, leave the nodes of these out of X and y, or set lambda_teacher=0."
        ),
    ):
        clf.fit(NODES, names)
    # a class without weight is none to be drawn anywhere
    clf.fit(NODES, names, sample_weight=(Y != 1).astype(float))
    assert list(clf.classes_) == ["a", "b", "c"]


@pytest.mark.parametrize("class_weight", [{0: 1.0, 1: 4.0, 2: 0.5}, "balanced"])
def test_class_weights_of_the_default_teacher_count_once(class_weight):
    """It is the network that would be fitted alone with the same weights."""
    train, valid = np.r_[0:30, 30:60:3], np.arange(60, 90)
    w = np.random.default_rng(3).uniform(0.5, 2.0, size=40)
    data = {"X_val": NODES[valid], "y_val": Y[valid]}
    clf = GKDENetwork(_new(QUICK, class_weight=class_weight))
    clf.fit(NODES[train], Y[train], sample_weight=w, **data)
    seed = clf.teacher_.random_state
    alone = _new(QUICK, class_weight=class_weight)
    alone.set_params(random_state=seed).fit(NODES[train], Y[train], w, **data)
    for name in ("train_loss", "valid_loss"):
        assert_allclose(
            [done[name] for done in clf.teacher_.history_],
            [done[name] for done in alone.history_],
            rtol=1e-3,
        )
    assert_allclose(
        clf.teacher_.predict_proba(NODES), alone.predict_proba(NODES), atol=1e-3
    )


def test_class_weight_of_zero_and_the_default_teacher():
    """It is of the classes that are left, one of which has no entry."""
    clf = GKDENetwork(_new(QUICK, class_weight={0: 0.0, 1: 2.0})).fit(NODES, Y)
    assert list(clf.teacher_.classes_) == [1, 2]
    assert clf.teacher_.class_weight == {1: 2.0, 2: 1.0}


def test_weights_that_a_teacher_does_not_take():
    w = np.arange(1.0, 91.0)
    pipeline = make_pipeline(QUICK)
    message = re.escape(
        "The training nodes have weights, by sample_weight or class_weight, but the "
        "fit of the teacher Pipeline does not take sample_weight. Leave the weights "
        "out, pass a teacher that takes them, or fit it before and pass it in a "
        "sklearn.frozen.FrozenEstimator."
    )
    with pytest.raises(ValueError, match=message):
        GKDENetwork(QUICK, teacher=pipeline).fit(NODES, Y, sample_weight=w)
    with pytest.raises(ValueError, match=message):
        GKDENetwork(_new(QUICK, class_weight={0: 2, 1: 1, 2: 1}), teacher=pipeline).fit(
            NODES, Y
        )
    equal = GKDENetwork(QUICK, teacher=pipeline).fit(NODES, Y, np.full(90, 3.0))
    assert equal.teacher_.score(NODES, Y) > 0.8
    frozen = FrozenEstimator(equal.teacher_)
    clf = GKDENetwork(QUICK, teacher=frozen).fit(NODES, Y, sample_weight=w)
    assert clf.teacher_ is frozen


def test_teacher_of_arrays():
    X = NODES.features
    clf = GKDENetwork(STILL, teacher=LogisticRegression(), lambda_gkde=0.0).fit(X, Y)
    alone = LogisticRegression().fit(X, Y)
    assert_allclose(clf.teacher_.coef_, alone.coef_, rtol=1e-6)
    samples = NodeSet((X, np.zeros((90, 90))))
    _assert_loss(clf, samples, Y, np.ones(90), None, alone.predict_proba(X))
    # held-out rows, and those of weight zero, are not among what it is given
    clf = GKDENetwork(STILL, teacher=_WeightedTeacher())
    w = np.arange(60.0)
    clf.fit(X[:60], Y[:60], w, X_val=X[60:], y_val=Y[60:])
    assert_array_equal(clf.teacher_.given_[0], X[1:60])
    assert_array_equal(clf.teacher_.more_[1], X[60:])
    # validation nodes with edges remain nodes
    clf.fit(X[:60], Y[:60], X_val=NODES[60:], y_val=Y[60:])
    assert clf.teacher_.more_[1].graph is NODES.graph


def test_teacher_that_does_not_read_nodes():
    message = re.escape(
        "The teacher LogisticRegression could not be given nodes of a graph. Pass a "
        "classifier of nodes, such as a GraphClassifier, or a Pipeline whose first "
        "step returns their features; or set lambda_teacher=0."
    )
    fitted = LogisticRegression().fit(NODES.features, Y)
    for teacher in (LogisticRegression(), FrozenEstimator(fitted)):
        with pytest.raises(TypeError, match=message) as error:
            GKDENetwork(QUICK, teacher=teacher).fit(NODES, Y)
        assert "A NodeSet is a set of nodes" in str(error.value.__cause__)
    pipeline = make_pipeline(FunctionTransformer(_features), LogisticRegression())
    clf = GKDENetwork(QUICK, teacher=pipeline).fit(NODES, Y)
    assert_allclose(
        clf.teacher_.predict_proba(NODES), fitted.predict_proba(NODES.features)
    )


def _features(nodes):
    return nodes.features


def test_errors_of_a_teacher_of_arrays_come_through():
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        GKDENetwork(QUICK, teacher=_Failing()).fit(NODES.features, Y)


class _Failing(_Teacher):
    def fit(self, X, y):
        raise TypeError("unexpected keyword argument 'nonsense'")


def test_evidence_is_that_of_fit():
    clf = GKDENetwork(QUICK, evidence="softplus").fit(NODES, Y)
    expected = clf.predict_alpha(NODES)
    clf.set_params(evidence="exp")
    assert_array_equal(clf.predict_alpha(NODES), expected)


def test_probes_keep_its_probabilities():
    """They are not the softmax of its outputs."""
    clf = GKDENetwork(QUICK).fit(NODES, Y)
    outputs = np.log(clf.predict_alpha(NODES) - 1)
    for X, z in ((NODES, outputs), (NODES.features, None)):
        proba = clf.predict_proba(X)
        probe = EvidentialProbe(FrozenEstimator(clf), max_epochs=5, random_state=0)
        probe.fit(X, Y)
        assert_allclose(probe.predict_proba(X), proba, rtol=1e-10)
        e = probe.predict_evidence(X)
        assert_allclose(probe.predict_alpha(X), e[:, None] * proba + 1, rtol=1e-10)
        if z is not None:  # the probe reads the outputs
            q = np.exp(z @ probe.coef_.T + probe.intercept_)
            assert_allclose(e, q.sum(axis=1), rtol=1e-4)
    fitted = MSP(FrozenEstimator(GKDE().fit(NODES, Y))).fit(NODES, Y)
    expected = GKDE().fit(NODES, Y).predict_proba(NODES).max(axis=1) - 1
    assert_allclose(fitted.score_samples(NODES), expected, rtol=1e-10)


# --- in scikit-learn ----------------------------------------------------------------


def test_search():
    quick = _new(QUICK, max_epochs=10)
    search = GridSearchCV(
        GKDENetwork(quick, teacher=quick),
        {"lambda_gkde": [0.1, 1.0], "teacher__conv_params": [PLAIN]},
        cv=2,
    ).fit(NODES, Y)
    assert search.best_estimator_.teacher_.conv_params == PLAIN
    assert search.score(NODES, Y) > 0.8


def test_teacher_and_network_start_from_different_weights():
    clf = GKDENetwork(STILL).fit(NODES, Y)
    weights = clf.estimator_.module_.head.weight, clf.teacher_.module_.head.weight
    assert not torch.allclose(*weights)


def test_arrays_have_distances_of_features():
    X = NODES.features
    clf = GKDENetwork(STILL, lambda_teacher=0.0).fit(X, Y)
    assert clf.metric_ == clf.gkde_.metric_ == "euclidean"
    prior = GKDE().fit(X, Y).predict_alpha(X)
    _assert_loss(clf, NodeSet((X, np.zeros((90, 90)))), Y, np.ones(90), prior, None)


# --- errors -------------------------------------------------------------------------


def test_interrupted_fit_keeps_state(monkeypatch):
    clf = GKDENetwork(QUICK, lambda_teacher=0.0).fit(NODES, Y)
    before = clf.predict_alpha(NODES)

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("skood.graph._gkde_network.Targets.distance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(NODES[:60], Y[:60])
    assert_array_equal(clf.predict_alpha(NODES), before)


@pytest.mark.parametrize(
    "name, value",
    [
        ("lambda_gkde", -0.1),
        ("lambda_teacher", -1.0),
        ("teacher", "gcn"),
        ("estimator", LogisticRegression()),
        ("gkde", "hops"),
        ("evidence", "square"),
        ("gkde__sigma", 0.0),
        ("gkde__cutoff", -1),
        ("gkde__metric", "cosine"),
        ("estimator__conv", "cheb"),
        ("estimator__lr", 0.0),
    ],
)
def test_parameters(name, value):
    """Of the network itself, and of its parts."""
    clf = GKDENetwork(GraphClassifier(), gkde=GKDE()).set_params(**{name: value})
    component, _, name = name.rpartition("__")
    owner = {"": "GKDENetwork", "gkde": "GKDE", "estimator": "GraphClassifier"}[
        component
    ]
    with pytest.raises(ValueError, match=f"'{name}' parameter of {owner} must be"):
        clf.fit(NODES, Y)


def test_the_loss_is_evidential():
    clf = GKDENetwork(_new(QUICK, criterion=EvidentialLoss()))
    with pytest.raises(ValueError, match="sets the criterion of its estimator"):
        clf.fit(NODES, Y)


def test_seed_of_an_unseeded_estimator():
    network = _new(QUICK, random_state=None, max_epochs=3)
    item, same, other = (
        GKDENetwork(network, random_state=seed).fit(NODES, Y).predict_alpha(NODES)
        for seed in (1, 1, 2)
    )
    assert_array_equal(item, same)
    assert (item != other).any()


def test_wrong_input():
    with pytest.raises(ValueError, match="metric='hops' counts edges on paths"):
        GKDENetwork(gkde=GKDE(metric="hops")).fit(NODES.features, Y)
    assert math.isfinite(
        GKDENetwork(STILL).fit(NODES, Y).estimator_.history_[0]["train_loss"]
    )

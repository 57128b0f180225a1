"""Snapshot ensembles against the same training by hand."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.epistemic import SnapshotEnsemble
from skood.nn import TorchClassifier

NET = TorchClassifier(
    module_params={"hidden": (6,)}, max_epochs=12, lr=0.05, random_state=0
)


@pytest.fixture
def data():
    return make_blobs(80, 4, centers=3, cluster_std=4.0, random_state=0)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_members_are_those_of_a_loop(data, optimizer):
    X, y = data
    base = clone(NET).set_params(training__optimizer=optimizer)
    clf = SnapshotEnsemble(base, n_members=3).fit(X, y)
    net, members = clone(base), []
    for t in range(12):
        net.set_params(lr=0.05 / 2 * (math.cos(math.pi * (t % 4) / 4) + 1))
        net.partial_fit(X, y, classes=[0, 1, 2])
        if t % 4 == 3:
            members.append(copy.deepcopy(net))
    p = [member.predict_proba(X) for member in members]
    assert_allclose(clf.predict_members(X), p, rtol=1e-12)
    assert_allclose(clf.predict_proba(X), np.mean(p, axis=0), rtol=1e-12)
    rates = [0.05 * r for r in (1.0, 0.5 + 0.25 * 2**0.5, 0.5, 0.5 - 0.25 * 2**0.5)]
    history = clf.estimators_[-1].history_
    assert_allclose([epoch["lr"] for epoch in history], 3 * rates)
    assert clf.predict_uncertainty(X).epistemic.max() > 1e-4
    assert [member.lr for member in clf.estimators_] == [0.05] * 3


def test_epochs_are_rounded_up(data):
    clf = SnapshotEnsemble(NET, n_members=5).fit(*data)
    assert [member.n_iter_ for member in clf.estimators_] == [3, 6, 9, 12, 15]


def test_setting_b_is_about_the_last_member(data):
    X, y = data
    clf = SnapshotEnsemble(NET, n_members=2, setting="b").fit(X, y)
    assert clf.estimator_ is clf.estimators_[-1]
    assert_allclose(
        clf.predict_proba(X), clf.estimators_[1].predict_proba(X), rtol=1e-12
    )
    log_p = np.log(clf.predict_members(X))
    divergence = np.sum(np.exp(log_p[1]) * (log_p[1] - log_p[0]), axis=1)
    uncertainty = clf.predict_uncertainty(X)
    assert_allclose(uncertainty.epistemic, divergence / 2, rtol=1e-7)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1.0, 1: 2.0, 2: 3.0}])
def test_class_and_sample_weights_multiply(data, class_weight):
    X, y = data
    y = np.where(np.arange(len(y)) < 30, 0, y)
    weight = np.linspace(1, 2, len(y))
    if class_weight == "balanced":
        per_class = [1 / np.sum(weight[y == c]) for c in range(3)]
    else:
        per_class = [1.0, 2.0, 3.0]
    base = clone(NET).set_params(class_weight=class_weight)
    clf = SnapshotEnsemble(base, n_members=2).fit(X, y, sample_weight=weight)
    product = weight * np.array(per_class)[y]
    expected = SnapshotEnsemble(NET, n_members=2).fit(X, y, sample_weight=product)
    assert_allclose(clf.predict_members(X), expected.predict_members(X), rtol=1e-4)


def test_scaled_in_a_pipeline(data):
    X, y = data
    names = np.array(["ant", "bee", "cat"])[y]
    clf = make_pipeline(StandardScaler(), SnapshotEnsemble(NET, n_members=2))
    predictions = clf.fit(X, names).predict(X)
    scaled = StandardScaler().fit_transform(X)
    expected = SnapshotEnsemble(NET, n_members=2).fit(scaled, y).predict(scaled)
    assert_array_equal(predictions, np.array(["ant", "bee", "cat"])[expected])


def test_what_it_refuses(data):
    X, y = data
    base = clone(NET)
    with pytest.raises(ValueError, match="must have lr_schedule=None, got 'cosine'"):
        SnapshotEnsemble(clone(base).set_params(training__lr_schedule="cosine")).fit(
            X, y
        )
    with pytest.raises(ValueError, match="set early_stopping=False of its estimator"):
        SnapshotEnsemble(clone(base).set_params(training__early_stopping=True)).fit(
            X, y
        )
    for epochs in (0, 2.5, "many"):
        bad = clone(base).set_params(max_epochs=epochs)
        with pytest.raises(ValueError, match="'max_epochs' parameter of TorchClassif"):
            SnapshotEnsemble(bad).fit(X, y)
    with pytest.raises(ValueError, match=r"'estimator' parameter of SnapshotEnsemble"):
        SnapshotEnsemble(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        SnapshotEnsemble(base).fit(X, None)
    with pytest.raises(ValueError, match=r"above zero to fit, got 1 class: 2\."):
        SnapshotEnsemble(base).fit(X, y, sample_weight=(y == 2).astype(float))

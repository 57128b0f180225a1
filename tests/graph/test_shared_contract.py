"""What all classifiers of nodes share: seeds, state, views, pickles, errors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skood.base import UncertaintyDetector
from skood.evidential import EvidentialClassifier, EvidentialProbe
from skood.graph import (
    GKDE,
    GKDENetwork,
    GraphClassifier,
    GraphPosteriorNetwork,
    NodeSet,
)


def _blocks(n_nodes=90):
    """Nodes that are mostly linked to nodes of their class; the last has no edge."""
    rng = np.random.default_rng(0)
    y = np.arange(n_nodes) % 3
    X = 2 * np.eye(3)[y] + rng.normal(size=(n_nodes, 3))
    likely = np.where(y[:, None] == y, 0.15, 0.01)
    linked = np.triu(rng.random((n_nodes, n_nodes)) < likely, 1)
    linked[:, -1] = False
    return NodeSet((X, (linked | linked.T).astype(float))), y


NODES, Y = _blocks()
QUICK = GraphClassifier(
    conv_params={"hidden": (16,)}, max_epochs=20, lr=0.03, random_state=0
)
POSTERIOR = {"hidden": (16,), "latent_dim": 3, "flow_layers": 2}
CLASSIFIERS = {
    "gcn": QUICK,
    "gat": clone(QUICK).set_params(conv="gat"),
    "sage": clone(QUICK).set_params(conv="sage"),
    "appnp": clone(QUICK).set_params(conv="appnp"),
    "sampled": clone(QUICK).set_params(batch_size=16, n_neighbors=2),
    "posterior": GraphPosteriorNetwork(POSTERIOR, max_epochs=20, random_state=0),
    "gkde": GKDE(),
    "regularized": GKDENetwork(QUICK),
    "evidential": EvidentialClassifier(QUICK),
    "probe": EvidentialProbe(QUICK, max_epochs=20, random_state=0),
}
each_classifier = pytest.mark.parametrize("name", CLASSIFIERS)
_FITTED: dict = {}


def _fitted(name):
    """A fitted classifier that no test changes."""
    if name not in _FITTED:
        _FITTED[name] = clone(CLASSIFIERS[name]).fit(NODES[::2], Y[::2])
    return _FITTED[name]


@each_classifier
def test_seeds(name):
    expected = _fitted(name).predict_proba(NODES)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    again = clone(CLASSIFIERS[name]).fit(NODES[::2], Y[::2])
    assert torch.equal(torch.get_rng_state(), state)
    assert_array_equal(again.predict_proba(NODES), expected)
    for parameter in {"estimator__random_state", "random_state"} & {
        *again.get_params()
    }:
        again.set_params(**{parameter: 1})
    if name != "gkde":
        other = again.fit(NODES[::2], Y[::2]).predict_proba(NODES)
        assert np.abs(other - expected).max() > 1e-3


@each_classifier
def test_nodes_do_not_depend_on_the_other_nodes_of_the_call(name):
    clf = _fitted(name)
    expected = clf.predict_proba(NODES)
    for samples in ([7], [7, 3, 7], slice(5, 9), np.arange(90) % 3 == 0):
        assert_array_equal(clf.predict_proba(NODES[samples]), expected[samples])


@each_classifier
def test_pickles_are_equal_and_hold_no_graph(name):
    clf = clone(_fitted(name)).fit(NODES[::2], Y[::2])
    wide = NodeSet((np.zeros((50_000, 3)), sparse.csr_array((50_000, 50_000))))
    if name != "gkde":  # it predicts nodes of its own graph
        clf.predict(wide)
    data = pickle.dumps(clf)
    assert len(data) < 45_000  # the features of `wide` have 1.2 MB
    loaded = pickle.loads(data)
    assert set(vars(loaded)) == set(vars(clf))
    expected = clf.predict_proba(NODES)
    assert_array_equal(loaded.predict_proba(NODES), expected)
    if hasattr(clf, "module_"):
        assert not loaded.module_.training
        with torch.no_grad():  # nothing is shared
            next(loaded.module_.parameters()).add_(1.0)
        assert_array_equal(clf.predict_proba(NODES), expected)


@each_classifier
def test_failed_fit_keeps_the_state(name):
    clf = clone(_fitted(name)).fit(NODES[::2], Y[::2])
    before = vars(clf).copy()
    for samples, labels, options, message in (
        (NODES[:3], Y, {}, "inconsistent numbers of samples"),
        (NODES, None, {}, "requires y to be passed"),
        (NODES[[]], [], {}, "Found a NodeSet with 0 nodes of 90 while a minimum of 1"),
        (NODES, Y, {"sample_weight": -np.ones(90)}, "Negative values in data passed"),
        (NODES[::3], Y[::3], {}, "at least two classes|got 1 class"),
    ):
        if name == "gkde" and "class" in message:
            continue  # it estimates a single class, too
        if name == "probe" and options:
            continue  # it takes no weights
        with pytest.raises(ValueError, match=message):
            clf.fit(samples, labels, **options)
    assert vars(clf) == before


@each_classifier
def test_wrong_input_of_predictions(name):
    clf = _fitted(name)
    for method in ("_proba", "_alpha", "_evidence", "_uncertainty", ""):
        method = "predict" + method
        if hasattr(clf, method):
            with pytest.raises(NotFittedError, match="not fitted yet"):
                getattr(clone(clf), method)(NODES)
            with pytest.raises(ValueError, match="0 nodes of 90 while a minimum of 1"):
                getattr(clf, method)(NODES[[]])
    with pytest.raises(ValueError, match="X has 2 features, but "):
        clf.predict(NODES.with_features(np.zeros((90, 2))))


def _doubled(nodes):
    return nodes.with_features(2 * nodes.graph.X)


@pytest.mark.parametrize(
    "name", ["gcn", "posterior", "gkde", "regularized", "evidential", "probe"]
)
def test_pipelines_and_splits(name):
    clf = clone(CLASSIFIERS[name])
    pipeline = make_pipeline(FunctionTransformer(_doubled), clf)
    pipeline.fit(NODES[::2], Y[::2])
    doubled = _doubled(NODES)
    expected = clone(clf).fit(doubled[::2], Y[::2]).predict_proba(doubled[1::2])
    assert_array_equal(pipeline.predict_proba(NODES[1::2]), expected)
    assert cross_val_score(clf, NODES, Y, cv=2).mean() > 0.6
    names = np.array(["a", "b", "c"])[Y]
    assert set(cross_val_predict(pipeline, NODES, names, cv=2)) <= set("abc")
    if hasattr(clf, "predict_uncertainty"):
        detector = UncertaintyDetector(clf).fit(NODES, Y)
        uncertainty = detector.estimator_.predict_uncertainty(NODES)
        assert_array_equal(detector.score_samples(NODES), -uncertainty.epistemic)

"""Tests of graph networks that are trained already."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_score
from torch import nn

from skood.detectors import Energy
from skood.exceptions import SkoodWarning
from skood.graph import GraphClassifier, NodeSet, pretrained_graph
from tests.nn._outputs import read

pytest.importorskip("torch_geometric")

from torch_geometric.nn import APPNP, GCNConv


class Net(nn.Module):
    """A graph convolution."""

    def __init__(self, n_features=4, n_classes=3):
        super().__init__()
        self.conv = GCNConv(n_features, n_classes)

    def forward(self, x, edge_index):
        """Logits of all nodes."""
        return self.conv(x, edge_index)


@pytest.fixture
def nodes():
    rng = np.random.default_rng(0)
    y = np.array(["a", "b", "c"])[np.arange(12) % 3]
    return NodeSet((rng.normal(size=(12, 4)), rng.random((12, 12)) < 0.2), labels=y)


def _net():
    torch.manual_seed(0)
    return Net()


def test_predictions(nodes):
    net = _net()
    clf = pretrained_graph(net, ["x", "y", "z"])
    assert isinstance(clf, FrozenEstimator)
    assert clone(clf) is clf
    edges = torch.tensor(np.stack(nodes.adjacency.nonzero()).astype(np.int64))
    with torch.no_grad():
        logits = net(torch.tensor(nodes.graph.X).float(), edges)
    result = clf.predict_logits(nodes)
    assert result.dtype == np.float64
    assert_array_equal(result, logits.numpy())
    assert_array_equal(clf.decision_function(nodes), result)
    proba = torch.softmax(logits.double(), 1).numpy()
    assert_allclose(clf.predict_proba(nodes), proba)
    expected = np.array(["x", "y", "z"])[proba.argmax(1)]
    assert_array_equal(clf.predict(nodes), expected)
    assert_array_equal(clf.predict(nodes[[3, 3, 0]]), expected[[3, 3, 0]])
    assert clf.score(nodes, expected) == 1.0


def test_the_module_is_not_copied(nodes):
    net = _net()
    clf = pretrained_graph(net, ["x", "y", "z"])
    before = clf.predict_logits(nodes)
    with torch.no_grad():
        net.conv.bias += 1
    assert_allclose(clf.predict_logits(nodes), before + 1, rtol=1e-5)


def test_single_margin(nodes):
    clf = pretrained_graph(Net(4, 1), ["no", "yes"])
    logits = clf.predict_logits(nodes)
    assert_array_equal(logits[:, 0], -logits[:, 1])
    assert_allclose(clf.decision_function(nodes), 2 * logits[:, 1])
    outputs = read(clf, nodes, {"features", "logits", "head"})
    result = outputs.features @ outputs.head.coef.T + outputs.head.intercept
    assert_allclose(result, logits, atol=1e-6)


def test_it_is_pickled_and_searched(nodes):
    clf = pretrained_graph(_net(), ["a", "b", "c"], n_features=4)
    again = pickle.loads(pickle.dumps(clf))
    assert_array_equal(again.predict_logits(nodes), clf.predict_logits(nodes))
    scores = cross_val_score(clf, nodes, nodes.labels, cv=3)
    assert scores.shape == (3,)


def test_number_of_features(nodes):
    clf = pretrained_graph(_net(), ["a", "b", "c"], n_features=4)
    assert clf.n_features_in_ == 4
    assert Energy(clf).fit(nodes).n_features_in_ == 4
    narrow = nodes.with_features(nodes.features[:, :3])
    for X in (narrow, narrow.features):
        message = "X has 3 features, but the network Net is"
        with pytest.raises(ValueError, match=message):
            clf.predict(X)
    clf = pretrained_graph(_net(), ["a", "b", "c"])
    assert not hasattr(clf, "n_features_in_")
    message = "n_features must be a whole number above zero"
    with pytest.raises(ValueError, match=message):
        pretrained_graph(_net(), ["a", "b", "c"], n_features=0)


def test_it_is_not_fitted_again(nodes):
    clf = pretrained_graph(_net(), ["a", "b", "c"])
    assert clf.fit(nodes, nodes.labels) is clf  # frozen
    with pytest.raises(TypeError, match="A pretrained module is not fitted again"):
        clf.estimator.fit(nodes, nodes.labels)
    with pytest.raises(NotFittedError):
        Energy(GraphClassifier()).score_samples(nodes)


def test_bad_arguments():
    with pytest.raises(TypeError, match=r"trained torch\.nn\.Module, got type\. Pass"):
        pretrained_graph(Net, [0, 1, 2])
    with pytest.raises(ValueError, match="output must be 'logits' or 'probabilities',"):
        pretrained_graph(_net(), [0, 1, 2], output="proba")
    for classes in ([0, 0, 1], [0]):
        with pytest.raises(ValueError, match="classes must be at least two distinct"):
            pretrained_graph(_net(), classes)
    with pytest.raises(TypeError, match=r"module\(x, edge_index\), .* Linear has f"):
        pretrained_graph(nn.Linear(4, 3), [0, 1, 2])
    for layer in (GCNConv(4, 3, cached=True), APPNP(2, 0.1, cached=True)):
        with pytest.raises(ValueError, match="The layer 'conv' was made with cached=T"):
            net = _net()
            net.conv = layer
            pretrained_graph(net, [0, 1, 2])


class Plain(nn.Module):
    """Sums over in-neighbors, whatever edges weigh."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, edge_index):
        """Logits of all nodes."""
        return self.linear(x.index_add(0, edge_index[1], x[edge_index[0]]))


def test_weights_that_are_not_used(nodes):
    """A call warns once, and names the module of the user."""
    weighted = NodeSet((nodes.features, 3.0 * nodes.adjacency))
    clf = pretrained_graph(Plain(), ["a", "b", "c"])
    detector = Energy(clf).fit(nodes)
    for call in (clf.predict, clf.predict_proba, detector.score_samples):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(weighted)
        (warning,) = caught
        assert warning.category is SkoodWarning
        assert "have weights, and Plain does not use them" in str(warning.message)
        assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict(nodes)
        clf.predict(weighted.features)


def test_weights_of_a_module_that_takes_none(nodes):
    class Weighs(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(4, 3)

        def forward(self, x, edge_index, edge_weight):
            return self.conv(x, edge_index, edge_weight)

    module = Weighs()
    clf = pretrained_graph(module, ["a", "b", "c"])
    plain = pretrained_graph(Plain(), ["a", "b", "c"])
    assert plain.estimator.module_.needs_weights is False
    edges = torch.tensor(np.stack(nodes.adjacency.nonzero()).astype(np.int64))
    with torch.no_grad():
        logits = module(torch.tensor(nodes.graph.X).float(), edges, None)
    assert_allclose(clf.predict_logits(nodes), logits, rtol=1e-5, atol=1e-6)


def test_bad_nodes(nodes):
    clf = pretrained_graph(_net(), ["a", "b", "c"])
    with pytest.raises(ValueError, match="NodeSet with 0 nodes of 12"):
        clf.predict(nodes[:0])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        clf.predict(np.full((2, 4), np.nan))
    with pytest.raises(ValueError, match="Unknown device 'gpu7'"):
        pretrained_graph(_net(), ["a", "b", "c"], device="gpu7").predict(nodes)

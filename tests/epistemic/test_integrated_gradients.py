"""Integrated gradients: closed forms, completeness and bad input."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.epistemic import integrated_gradients
from skood.nn import TorchClassifier, pretrained


class Product(torch.nn.Module):
    """Logits x1 x2 and 0."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(1, 2, bias=False)
        self.head.weight.data = torch.tensor([[1.0], [0.0]])

    def forward(self, X):
        return self.head(X[:, :1] * X[:, 1:])


def test_product():
    clf = pretrained(Product(), classes=["a", "b"])
    X = np.array([[1.0, 2.0], [3.0, -1.0]], dtype=np.float32)
    # of x1 x2 along a (x1, x2): x1 and x2 have equal shares
    for n_steps in (1, 7):
        attributions = integrated_gradients(clf, X, target="a", n_steps=n_steps)
        assert_allclose(attributions, [[1, 1], [-1.5, -1.5]], rtol=1e-6)
    # from the baseline (1, 0): d x1 = 0
    attributions = integrated_gradients(clf, X[:1], target="a", baseline=[1.0, 0.0])
    assert_allclose(attributions, [[0, 2]], rtol=1e-6)
    assert_array_equal(integrated_gradients(clf, X, target="b"), np.zeros((2, 2)))
    assert_allclose(integrated_gradients(clf, X[:1]), [[1, 1]], rtol=1e-6)


def test_linear_classifiers_are_exact(iris):
    X, y = iris
    clf = LogisticRegression().fit(X, y)
    baseline = X.mean(axis=0)
    attributions = integrated_gradients(clf, X, target=2, baseline=baseline, n_steps=1)
    assert_allclose(attributions, (X - baseline) * clf.coef_[2], rtol=1e-10)
    binary = LogisticRegression().fit(X[:100], y[:100])  # logits -m/2 and m/2
    attributions = integrated_gradients(binary, X, target=1)
    assert_allclose(attributions, X * binary.coef_[0] / 2, rtol=1e-10)
    attributions = integrated_gradients(binary, X, target=0)
    assert_allclose(attributions, -X * binary.coef_[0] / 2, rtol=1e-10)


@pytest.fixture(params=["mlp", "torch", "pipeline"])
def network(request, iris):
    X, y = iris
    if request.param == "torch":
        return TorchClassifier(max_epochs=20, lr=0.01, random_state=0).fit(
            X.astype(np.float32), y
        )
    mlp = MLPClassifier((20,), max_iter=500, random_state=0)
    if request.param == "pipeline":
        return make_pipeline(StandardScaler(), mlp).fit(X, y)
    return mlp.fit(X, y)


def test_completeness(network, iris):
    """The attributions sum to the difference of the logit, to 1 %."""
    from skood.nn._make_network import make_network

    X = iris[0][::7].astype(np.float32)
    labels = np.resize([0, 1, 2], len(X))
    opened = make_network(network)
    samples = opened.prepare(X)

    def logits(samples):
        return np.concatenate([b.logits for b in opened.layers(samples, ())])

    change = (logits(samples) - logits(samples * 0))[np.arange(len(X)), labels]
    attributions = integrated_gradients(network, X, target=labels)
    np.testing.assert_allclose(
        attributions.sum(axis=1), change, rtol=0.01, atol=0.01 * np.abs(change).max()
    )
    alone = [
        integrated_gradients(network, X[[i]], target=labels[i])[0] for i in range(5)
    ]
    assert_allclose(attributions[:5], alone, rtol=1e-4, atol=1e-5)
    frozen = integrated_gradients(FrozenEstimator(network), X, target=labels)
    assert_array_equal(frozen, attributions)


def test_the_predicted_class_is_the_default(network, iris):
    X = iris[0][::11].astype(np.float32)
    attributions = integrated_gradients(network, X, n_steps=4)
    predicted = integrated_gradients(network, X, target=network.predict(X), n_steps=4)
    assert_array_equal(attributions, predicted)


def test_images_keep_their_shape():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    clf = pretrained(module, classes=[0, 1, 2])
    X = np.random.default_rng(0).normal(size=(5, 3, 2, 2)).astype(np.float32)
    attributions = integrated_gradients(clf, X, target=1, baseline=np.ones((3, 1, 1)))
    weights = module[1].weight.detach().numpy()[1].reshape(3, 2, 2)
    assert_allclose(attributions, (X - 1) * weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"target": 7}, ValueError, r"target has 7, which is none of the classes \[0"),
        ({"target": [0, 1]}, ValueError, r"have the shape \(150,\), got the shape \(2"),
        (
            {"baseline": np.zeros(3)},
            ValueError,
            r"baseline has the shape \(3,\)",
        ),
        ({"baseline": np.nan}, ValueError, "baseline must hold finite numbers"),
        ({"n_steps": 0}, ValueError, "n_steps"),
    ],
)
def test_errors(iris, change, error, message):
    X, y = iris
    clf = LogisticRegression().fit(X, y)
    with pytest.raises(error, match=message):
        integrated_gradients(clf, X, **change)


def test_other_classifiers(iris):
    X, y = iris
    with pytest.raises(TypeError, match="has neither layers nor a gradient"):
        integrated_gradients(RandomForestClassifier(n_estimators=2).fit(X, y), X)
    with pytest.raises(NotFittedError):
        integrated_gradients(LogisticRegression(), X)

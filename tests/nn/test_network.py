"""Layers, gradients and replacements of scikit-learn's classifiers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from skood.nn import LinearHead
from skood.nn import _sklearn_network as module
from skood.nn._make_network import make_network
from skood.nn._sklearn_network import LayeredNetwork
from skood.utils._torch import row_chunks
from tests._loops import looped
from tests.nn._outputs import data, fitted, naive_mlp, read

ACTIVATIONS = ("identity", "logistic", "tanh", "relu")


def perceptron(activation="relu", hidden=(7, 4), n_classes=3, dtype=np.float64):
    X, y = data(n_classes)
    X = X.astype(dtype)
    net = MLPClassifier(hidden, activation=activation, max_iter=30, random_state=0)
    return fitted(net, X, y), X


def gradients(network, X, cotangent):
    """The gradients that rows would be moved along."""
    collected = []

    def keep(part, gradient):
        collected.append(gradient)
        return part

    for _ in network.input_gradient(network.prepare(X), cotangent, keep):
        pass
    return np.concatenate(collected)


def numeric_gradient(function, x, h=1e-6):
    """Central differences, from a function of several rows."""
    steps = h * np.eye(len(x))
    return (function(x + steps) - function(x - steps)) / (2 * h)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layers_of_a_perceptron_equal_a_naive_loop(activation):
    net, X = perceptron(activation)
    network = make_network(net)
    samples = network.prepare(X)
    layers = [0, 1, "penultimate", -1]
    (block,) = network.layers(samples, layers)
    assert network.layer_names(samples) == [0, 1]
    assert list(block.outputs) == layers
    for i in (0, 5, 79):
        first, second, logits = naive_mlp(net, X[i])
        assert_allclose(block.outputs[0][i], first, rtol=1e-12)
        assert_allclose(block.outputs[1][i], second, rtol=1e-12)
        assert_allclose(block.outputs["penultimate"][i], second, rtol=1e-12)
        assert_allclose(block.outputs[-1][i], logits, rtol=1e-12)
        assert_allclose(block.logits[i], logits, rtol=1e-12)


def test_vectors_are_maps_of_a_single_position():
    net, X = perceptron()
    network = make_network(net)
    samples = network.prepare(X)
    (plain,) = network.layers(samples, [0])
    (maps,) = network.layers(samples, [0], "maps")
    assert_array_equal(maps.outputs[0], plain.outputs[0][:, :, None])


@looped("activation", ACTIVATIONS)
@looped("n_classes", [2, 3])
@looped("hidden", [(), (6,), (7, 4)])
def test_gradient_equals_central_differences(activation, n_classes, hidden):
    net, X = perceptron(activation, hidden, n_classes)
    network = make_network(net)
    weights = np.linspace(-1, 2, n_classes)

    def function(samples):
        """A sum of squares of weighted logits, of each row."""
        return np.sum((weights * read(net, samples, {"logits"}).logits) ** 2, axis=1)

    gradient = gradients(network, X[:6], lambda z: 2 * weights**2 * z)
    expected = [numeric_gradient(function, x) for x in X[:6]]
    assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", [LogisticRegression, RidgeClassifier, LinearHead])
def test_gradient_of_a_linear_model_is_its_weights(kind, n_classes):
    X, y = data(n_classes)
    model = kind().fit(X.astype(np.float64), y)
    weights = np.arange(1.0, n_classes + 1)
    gradient = gradients(
        make_network(model), X, lambda z: np.tile(weights, (len(z), 1))
    )
    head = read(model, X, {"features", "head"}).head
    assert_allclose(gradient, np.tile(weights @ head.coef, (len(X), 1)))


def test_logits_are_those_of_the_moved_samples():
    net, X = perceptron()
    network = make_network(net)

    def move(part, gradient):
        assert part.shape == gradient.shape
        return part + 0.1

    (logits,) = network.input_gradient(network.prepare(X), np.ones_like, move)
    expected = read(net, X + 0.1, {"logits"}).logits
    assert_allclose(logits, expected, rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_replaced_layers(n_classes):
    net, X = perceptron("tanh", n_classes=n_classes)
    network = make_network(net)
    layers = [0, "penultimate"]
    (logits,) = network.replaced(network.prepare(X), layers, lambda h: h**2 - 1)
    for i in (0, 17):
        first = np.tanh(X[i] @ net.coefs_[0] + net.intercepts_[0])
        second = np.tanh((first**2 - 1) @ net.coefs_[1] + net.intercepts_[1])
        margin = second @ net.coefs_[2] + net.intercepts_[2]
        expected = [-margin[0] / 2, margin[0] / 2] if n_classes == 2 else margin
        assert_allclose(logits[0][i], expected, rtol=1e-10)
        second = np.tanh(first @ net.coefs_[1] + net.intercepts_[1])
        margin = (second**2 - 1) @ net.coefs_[2] + net.intercepts_[2]
        expected = [-margin[0] / 2, margin[0] / 2] if n_classes == 2 else margin
        assert_allclose(logits[1][i], expected, rtol=1e-10)


def test_linear_model_has_its_input_as_the_only_layer():
    X, y = data()
    model = LogisticRegression().fit(X, y)
    network = make_network(model)
    samples = network.prepare(X)
    assert samples.dtype == np.float64
    assert network.layer_names(samples) == ["penultimate"]
    (block,) = network.layers(samples, ["penultimate"])
    assert_array_equal(block.outputs["penultimate"], samples)
    (replaced,) = network.replaced(samples, ["penultimate"], lambda z: 2 * z)
    assert_allclose(
        replaced[0], model.decision_function(2 * X.astype(float)), rtol=1e-6
    )
    with pytest.raises(ValueError, match="layer=0, but a LogisticRegression has no la"):
        next(network.layers(samples, [0]))


def test_chunks(monkeypatch):
    net, X = perceptron()
    network = make_network(net)
    samples = network.prepare(X)
    width = 5 + 7 + 4 + 3
    sizes = []

    def chunks(n_rows, bytes_per_row):
        assert bytes_per_row == 4 * 8 * width
        return row_chunks(n_rows, bytes_per_row, 30 * bytes_per_row)

    whole = next(network.layers(samples, [0]))
    monkeypatch.setattr(module, "row_chunks", chunks)
    parts = list(network.layers(samples, [0]))
    sizes = [len(part.logits) for part in parts]
    assert sizes == [30, 30, 20]
    joined = np.concatenate([part.outputs[0] for part in parts])
    assert_allclose(joined, whole.outputs[0], rtol=1e-12)
    moved = list(network.input_gradient(samples, np.ones_like, lambda part, g: part))
    assert [len(part) for part in moved] == sizes
    replaced = list(network.replaced(samples, [0], lambda h: h))
    assert [len(part[0]) for part in replaced] == sizes


def test_pipeline_is_opened_at_its_last_step():
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcde")).astype(np.float64)
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    nested = make_pipeline(StandardScaler(with_std=False), inner).fit(frame, y)
    network = make_network(FrozenEstimator(nested))
    samples = network.prepare(frame)
    assert_allclose(samples, StandardScaler().fit_transform(frame))
    (block,) = network.layers(samples, [])
    assert_allclose(block.logits, nested.decision_function(frame))
    alone = make_network(make_pipeline(LogisticRegression()).fit(X, y))
    assert_array_equal(alone.prepare(X), X)
    with pytest.raises(ValueError, match="feature names should match"):
        network.prepare(frame[list("edcba")])


def test_finished_search_is_looked_through():
    X, y = data()
    search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2).fit(X, y)
    assert isinstance(make_network(search), LayeredNetwork)


@pytest.mark.parametrize("kind", [RandomForestClassifier, SVC])
def test_classifier_without_layers(kind):
    X, y = data()
    says = f"needs a network, but a {kind.__name__} has neither layers nor a gradient"
    with pytest.raises(TypeError, match=says):
        make_network(kind().fit(X, y)).prepare(X)


def test_what_cannot_be_read():
    X, y = data()
    with pytest.raises(TypeError, match="must be a classifier, got the regressor"):
        make_network(LinearRegression().fit(X, y))
    net, _ = perceptron()
    network = make_network(net)
    with pytest.raises(ValueError, match="X has 4 features"):
        network.prepare(X[:, :4])
    with pytest.raises(ValueError, match="contains NaN"):
        network.prepare(np.full((2, 5), np.nan))
    with pytest.raises(ValueError, match=r"layer='conv' is not a layer.*\[-3, 2\]"):
        next(network.layers(network.prepare(X), ["conv"]))
    head = make_network(LinearHead([[1.0, 0.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="X has 5 features, but LinearHead is expecti"):
        head.prepare(X)


def test_numbers_that_overflow():
    head = make_network(LinearHead([[1e200, 0.0], [0.0, 1.0]]))
    samples = head.prepare([[1e200, 1.0]])
    with pytest.raises(ValueError, match="logits contains infinity"):
        next(head.layers(samples, ()))


def test_devices():
    net, X = perceptron()
    with pytest.raises(ValueError, match="Unknown device 'abacus'"):
        make_network(net, device="abacus").prepare(X)
    network = make_network(net, device="cpu")
    assert next(network.layers(network.prepare(X), ())).logits.shape == (80, 3)

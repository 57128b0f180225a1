"""Parts of networks that end in other ways, or that torch cannot map."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from skood.epistemic.quam._searched_layers import DenseTail, WholeNetwork, find_tail
from skood.nn._functional_network import symmetric
from skood.nn._make_network import make_network
from tests.epistemic._member_nets import Encoder, Recurrent
from tests.epistemic._tails import (
    SIZE,
    Two,
    X,
    assert_is_the_network,
    make_net,
    make_tail,
    other_weights,
)

# ---- what the network ends in


def test_softmax_at_the_end():
    """The logits are those before it."""
    module = make_net(lambda: nn.Sequential(Two(nn.ReLU()), nn.Softmax(dim=1)))
    network, tail = make_tail(module)
    assert [w for w, _ in tail.layers] == ["0.body.weight", "0.head.weight"]
    assert_is_the_network(module[0], _renamed(tail))
    full = WholeNetwork(network)
    weights = other_weights(full, 2)
    samples = torch.as_tensor(X)
    logits, _ = full.logits(weights, samples, samples[:2])
    with torch.no_grad():
        expected = functional_call(module, full.named(weights, 1), (samples,)).log()
    torch.testing.assert_close(torch.log_softmax(logits[1], 1), expected)


def _renamed(tail):
    tail.layers = [
        tuple(name.removeprefix("0.") for name in pair) for pair in tail.layers
    ]
    tail.read = lambda batch: (batch, None)  # the samples are the first layer's input
    return tail


@pytest.mark.parametrize(
    "estimator, widths",
    [
        (LogisticRegression(), [2]),
        (MLPClassifier((5, 6), max_iter=20, random_state=0), [5, 6, 2]),
        (
            make_pipeline(StandardScaler(), MLPClassifier((5,), max_iter=20)),
            [5, 2],
        ),
    ],
    ids=["linear", "perceptron", "pipeline"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_binary_classifiers_of_scikit_learn(estimator, widths):
    """Their margin is the difference of two logits."""
    y = (X[:, 0] > 0).astype(int)
    network = make_network(estimator.fit(X, y)).with_weights(device="cpu")
    samples = network.prepare(X)
    for scope in ("dense", "full"):
        tail = find_tail(network, scope, network.batch(samples[:2]))
        assert [weight.shape[1] for weight, _ in tail._weights] == widths
        features = tail.features(samples)
        logits, points = tail.logits(tail.start(1), features, features[:1])
        assert logits.shape == (1, 12, 2)
        assert points.shape == (1, 2)
        p = torch.softmax(symmetric(logits[0].detach()), 1)
        assert_allclose(p, estimator.predict_proba(X), rtol=1e-10)


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_networks_with_a_single_output(scope):
    """A margin stays one: the part has one output, too."""
    module = make_net(lambda: Two(nn.Tanh(), n_classes=1))
    network, tail = make_tail(module, scope, n_classes=2)
    assert isinstance(tail, DenseTail)
    assert_is_the_network(module, tail)
    features = tail.features(X)
    logits, _ = tail.logits(tail.start(1), features, features[:1])
    p = torch.softmax(symmetric(logits[0].detach()), 1)
    expected = np.exp(network.log_proba(network.prepare(X)))
    assert_allclose(p, expected, rtol=1e-10)


class ScaledHead(nn.Linear):
    """Its output is not that of a linear layer with its weights."""

    def forward(self, x):
        """Ten times as sure."""
        return 10 * super().forward(x)


class CosineHead(nn.Linear):
    """Its weights are not what the linear map is called with."""

    def forward(self, x):
        """Of normalized rows."""
        weight = functional.normalize(self.weight)
        return functional.linear(functional.normalize(x), weight)


class Embedded(nn.Module):
    """The weights of its head are those of its embedding."""

    def __init__(self):
        super().__init__()
        self.words, self.mid = nn.Embedding(3, 5), nn.Linear(5 * SIZE, 5)
        self.head = nn.Linear(5, 3, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        """Of token numbers."""
        return self.head(torch.tanh(self.mid(self.words(x).flatten(1))))


class NoHead(nn.Module):
    """Adds a function to the output of its linear layer."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(SIZE, 3)

    def forward(self, x):
        """Something more."""
        return self.head(x) + x[:, :3] ** 2


def _body(head):
    return nn.Sequential(nn.Linear(SIZE, 5), nn.ReLU(), head)


OTHER_HEADS = {
    "scaled": lambda: _body(ScaledHead(5, 3)),
    "cosine": lambda: _body(CosineHead(5, 3, bias=False)),
    "spectral norm": lambda: _body(spectral_norm(nn.Linear(5, 3))),
    "embedding": Embedded,
    "no linear head": NoHead,
}


@pytest.mark.parametrize("name", OTHER_HEADS)
def test_heads_that_are_no_plain_linear_layer(name):
    module = make_net(OTHER_HEADS[name])
    samples = np.random.default_rng(0).integers(3, size=(12, SIZE))
    samples = samples if name == "embedding" else X
    for scope in ("last", "dense"):
        text = (
            rf"scope='{scope}' searches linear layers at the end of the network, but "
            rf"the logits of {type(module).__name__} are not the output of a "
            r"torch\.nn\.Linear with weights of its own\. Use scope='full'\."
        )
        with pytest.raises(ValueError, match=text):
            make_tail(module, scope, samples)
    _, tail = make_tail(module, "full", samples)
    assert isinstance(tail, WholeNetwork)
    assert_is_the_network(module, tail, samples)


# ---- networks that need care


@pytest.mark.parametrize("make", [Recurrent, lambda: Encoder(3)])
def test_gradients_of_recurrent_and_attentive_networks(make):
    module = make_net(make)
    _, tail = make_tail(module, "full")
    weights = other_weights(tail, 4)
    features = tail.features(X)
    for _ in range(2):  # the second time it is known that mapping fails
        logits, points = tail.logits(weights, features[:5], features[5:7])
    grads = torch.autograd.grad(logits.square().sum() + points.sum(), weights)
    for search in range(4):
        named = tail.named(weights, search)
        with torch.no_grad():
            for name, weight in named.items():
                module.get_parameter(name).copy_(weight)
        samples = torch.as_tensor(X)
        separate = module(samples[5 + search // 2][None])
        torch.testing.assert_close(points[search], separate[0])
        loss = module(samples[:5]).square().sum() + separate.sum()
        expected = torch.autograd.grad(loss, list(module.parameters()))
        for grad, other in zip(grads, expected, strict=True):
            torch.testing.assert_close(grad[search], other, rtol=1e-8, atol=1e-10)
    assert torch.backends.mha.get_fastpath_enabled()

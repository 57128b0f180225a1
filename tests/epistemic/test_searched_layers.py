"""Parts of networks that are searched: which they are, and that they are right."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from skood.epistemic.quam._searched_layers import DenseTail, WholeNetwork, find_tail
from tests.epistemic._lenet import digits, lenet
from tests.epistemic._tails import (
    SIZE,
    Two,
    X,
    assert_is_the_network,
    make_net,
    make_tail,
)

# Functions of rows, as modules and as they are called in a `forward`.
MODULES = [
    nn.ReLU(),
    nn.ReLU(inplace=True),
    nn.LeakyReLU(0.3, inplace=True),
    nn.ELU(0.7),
    nn.CELU(0.5),
    nn.SELU(),
    nn.GELU(),
    nn.GELU(approximate="tanh"),
    nn.SiLU(),
    nn.Mish(),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.Hardtanh(-0.5, 0.4),
    nn.Hardshrink(0.2),
    nn.Softshrink(0.2),
    nn.Softplus(2.0, 3.0),
    nn.Softsign(),
    nn.Tanhshrink(),
    nn.Threshold(0.1, -0.3),
    nn.ReLU6(),
    nn.RReLU(),
    nn.LogSigmoid(),
    nn.Sigmoid(),
    nn.Tanh(),
    nn.Identity(),
    nn.Dropout(0.5),
    nn.AlphaDropout(0.5),
    nn.LayerNorm(6),
    nn.LayerNorm(6, elementwise_affine=False),
    nn.Flatten(),
]
FUNCTIONS = [
    functional.relu,
    functional.tanh,
    functional.sigmoid,
    torch.relu,
    torch.tanh,
    torch.sigmoid,
    torch.Tensor.relu,
    torch.Tensor.tanh,
    torch.Tensor.sigmoid,
    lambda h: functional.dropout(h, 0.5, False),
    lambda h: functional.relu(input=h),
    lambda h: functional.relu(functional.layer_norm(h, (6,))),
    lambda h: torch.tanh(h.clone()).contiguous().view(-1, 6),
    lambda h: functional.leaky_relu(h, 0.2, True),
]


# ---- which layers are searched


@pytest.mark.parametrize(
    "between",
    MODULES + FUNCTIONS,
    ids=lambda value: repr(value) if isinstance(value, nn.Module) else None,
)
def test_samplewise_functions_are_followed(between):
    module = make_net(lambda: Two(between))
    _, tail = make_tail(module)
    assert tail.layers == [("body.weight", "body.bias"), ("head.weight", "head.bias")]
    assert_is_the_network(module, tail)


class Residual(nn.Module):
    """A sum in the middle: what comes after it is searched."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        """Add the input."""
        return self.head(torch.tanh(self.two(x + torch.tanh(self.one(x)))))


class Tokens(nn.Module):
    """A linear layer of 3-D arrays."""

    def __init__(self):
        super().__init__()
        self.token, self.head = nn.Linear(1, 6), nn.Linear(6 * SIZE, 3)

    def forward(self, x):
        """Each feature is a token."""
        return self.head(functional.relu(self.token(x[:, :, None])).flatten(1))


class Tied(nn.Module):
    """The same weights in two layers, under one name or under two."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.one = nn.Linear(SIZE, SIZE)
        self.two = nn.Linear(SIZE, SIZE)
        if kind == "two names":
            self.two.weight = self.one.weight
        self.head = nn.Linear(SIZE, 3)

    def forward(self, x):
        """Use them twice."""
        two = self.two if self.kind == "two names" else self.one
        return self.head(torch.tanh(two(torch.tanh(self.one(x)))))


class Writes(nn.Module):
    """Overwrites a feature between the layers."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(SIZE, 6), nn.Linear(6, 3)

    def forward(self, x):
        """Nothing tells that a feature is replaced."""
        h = torch.tanh(self.body(x))
        h[:, 0] = 2.0
        return self.head(h)


class ScaledBody(nn.Module):
    """Calls a linear map by itself, with half of its input, then changes that."""

    def __init__(self, bias):
        super().__init__()
        self.body, self.head = nn.Linear(SIZE, 6, bias=bias), nn.Linear(6, 3)

    def forward(self, x):
        """What the body reads is not what the module is called with."""
        half = x * 0.5
        h = functional.linear(input=half, weight=self.body.weight, bias=self.body.bias)
        half += 100.0
        return self.head(torch.tanh(h))


class BufferBias(nn.Module):
    """A linear map whose bias is no parameter."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(SIZE, 6), nn.Linear(6, 3)
        self.register_buffer("shift", torch.linspace(-1, 1, 6))

    def forward(self, x):
        """Call it."""
        h = functional.linear(x, self.body.weight, self.shift)
        return self.head(torch.tanh(h))


NETS = {
    "three": (
        lambda: nn.Sequential(
            nn.Linear(SIZE, 5), nn.ReLU(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)
        ),
        ["0", "2", "4"],
    ),
    "no function": (
        lambda: nn.Sequential(nn.Linear(SIZE, 5), nn.Linear(5, 3)),
        ["0", "1"],
    ),
    "one layer": (lambda: nn.Linear(SIZE, 3), [""]),
    "no bias": (
        lambda: nn.Sequential(
            nn.Linear(SIZE, 5, bias=False),
            nn.ReLU(),
            nn.Linear(5, 6),
            nn.ReLU(),
            nn.Linear(6, 3, bias=False),
        ),
        ["0", "2", "4"],
    ),
    "batch norm": (
        lambda: nn.Sequential(
            nn.Linear(SIZE, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)
        ),
        ["3"],
    ),
    "prelu": (lambda: Two(nn.PReLU()), ["head"]),
    "clamp": (lambda: Two(lambda h: h.clamp(-1, 1)), ["head"]),
    "frozen spectral norm": (
        lambda: nn.Sequential(
            spectral_norm(nn.Linear(SIZE, 6)), nn.ReLU(), nn.Linear(6, 3)
        ),
        ["2"],
    ),
    "residual": (Residual, ["two", "head"]),
    "tokens": (Tokens, ["head"]),
    "one layer twice": (lambda: Tied("one name"), ["head"]),
    "tied": (lambda: Tied("two names"), ["head"]),
    "writes": (Writes, ["head"]),
    "functional": (lambda: ScaledBody(True), ["body", "head"]),
    "functional without bias": (lambda: ScaledBody(False), ["body", "head"]),
    "bias in a buffer": (BufferBias, ["head"]),
}


@pytest.mark.parametrize("name", NETS)
def test_detected_layers(name):
    """As many as can be followed from the end."""
    make, layers = NETS[name]
    module = make_net(make)
    _, tail = make_tail(module)
    assert isinstance(tail, DenseTail)
    results = [weight.rpartition(".")[0] for weight, _ in tail.layers]
    assert results == layers
    assert_is_the_network(module, tail)


@pytest.mark.parametrize("name", NETS)
def test_last_layer(name):
    make, layers = NETS[name]
    module = make_net(make)
    _, tail = make_tail(module, "last")
    assert [weight.rpartition(".")[0] for weight, _ in tail.layers] == layers[-1:]
    assert_is_the_network(module, tail)


@pytest.mark.parametrize("name", NETS)
def test_full_is_all_weights(name):
    """By the products of dense layers where these are all that there is."""
    make, _ = NETS[name]
    module = make_net(make)
    _, tail = make_tail(module, "full")
    all_dense = ("three", "no function", "one layer", "no bias")
    all_dense += ("functional", "functional without bias")
    assert isinstance(tail, DenseTail if name in all_dense else WholeNetwork)
    named = tail.named(tail.start(2), 1)
    assert named.keys() == dict(module.named_parameters()).keys()
    for key, weight in named.items():
        assert torch.equal(weight, module.get_parameter(key))
    assert tail.n_weights() == sum(p.numel() for p in module.parameters())
    assert_is_the_network(module, tail)


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_convolutional_network(scope):
    module = lenet(torch.float64)
    samples, _ = digits(8, dtype=np.float64)
    _, tail = make_tail(module, scope, samples, n_classes=4)
    assert_is_the_network(module, tail, samples)
    assert tail.n_weights() == {"last": 340, "dense": 41344, "full": 43916}[scope]
    with torch.no_grad():
        x = torch.as_tensor(samples)
        for conv in (module.conv1, module.conv2):
            x = functional.max_pool2d(functional.relu(conv(x)), 2)
        flat = x.flatten(1)
        expected = {
            "last": functional.relu(module.fc2(functional.relu(module.fc1(flat)))),
            "dense": flat,
            "full": torch.as_tensor(samples),
        }[scope]
    torch.testing.assert_close(tail.features(samples), expected, rtol=0, atol=1e-12)


def test_single_sample_is_enough():
    """What is found does not depend on how many rows are looked at."""
    module = make_net(NETS["three"][0])
    network, tail = make_tail(module)
    item = find_tail(network, "dense", network.batch(X[:1]))
    assert item.layers == tail.layers
    samples, _ = digits(1, dtype=np.float64)
    _, tail = make_tail(lenet(torch.float64), "dense", samples, n_classes=4)
    assert len(tail.layers) == 3


def test_features_come_in_batches_of_samples():
    module = make_net(NETS["residual"][0])
    _, tail = make_tail(module)
    many = np.tile(X, (50, 1))  # more rows than the 256 of a batch
    features = tail.features(many)
    assert features.shape == (600, SIZE)
    x = torch.as_tensor(many)
    expected = (x + torch.tanh(module.one(x))).detach()
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-14)


# ---- gradients, memory, biases


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_searches_are_copies_with_gradients(scope):
    module = lenet(torch.float64)
    samples, _ = digits(4, dtype=np.float64)
    network, tail = make_tail(module, scope, samples, n_classes=4)
    weights = tail.start(3)
    assert all(weight.requires_grad for weight in weights)
    # each entry has memory of its own, in any order of the axes
    assert all(weight.untyped_storage().nbytes() == weight.nbytes for weight in weights)
    with torch.no_grad():
        for weight in weights:
            weight += 1
    for name, weight in network.weights().items():
        assert torch.equal(weight, module.get_parameter(name))
    for name, weight in tail.named(weights, 2).items():
        assert torch.equal(weight, module.get_parameter(name) + 1)
        assert not weight.requires_grad


def test_memory_of_activations():
    """Of dense layers their outputs, twice, and gradients; else what was made."""
    samples, _ = digits(4)
    _, tail = make_tail(lenet(), "dense", samples, n_classes=4)
    assert tail.bytes_per_row == 4 * 4 * (120 + 84 + 4)
    _, tail = make_tail(lenet(), "full", samples, n_classes=4)
    conv = 6 * 24 * 24 * 2 + 6 * 12 * 12 + 16 * 8 * 8 * 2 + 16 * 4 * 4 * 2
    dense = 120 * 2 + 84 * 2 + 4
    copies = 28 * 28  # the batch is copied
    assert tail.bytes_per_row == 2 * 4 * (conv + dense + copies)


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_outputs_are_moved_by_their_bias(scope):
    module = lenet(torch.float64)
    samples, _ = digits(6, dtype=np.float64)
    _, tail = make_tail(module, scope, samples, n_classes=4)
    weights = tail.start(4)
    tail.move_outputs(weights, torch.tensor([1.0, -2.0, 0.5, 0.0]).double())
    features = tail.features(samples)
    with torch.no_grad():
        expected = module(torch.as_tensor(samples))
        result, _ = tail.logits(weights, features, features[:2])
    for search, shift in enumerate([1.0, -2.0, 0.5, 0.0]):
        moved = expected + torch.tensor([shift, 0, 0, 0])
        torch.testing.assert_close(result[search], moved, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_outputs_without_bias_cannot_be_moved(scope):
    module = make_net(
        lambda: nn.Sequential(nn.Linear(SIZE, 5), nn.Linear(5, 3, bias=False))
    )
    _, tail = make_tail(module, scope)
    with pytest.raises(ValueError, match="last layer of Sequential has no bias"):
        tail.move_outputs(tail.start(2), torch.ones(2))
    whole = WholeNetwork(tail.network)
    with pytest.raises(ValueError, match="last layer of Sequential has no bias"):
        whole.move_outputs(whole.start(2), torch.ones(2))

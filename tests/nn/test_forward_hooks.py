"""Layers by name and by index, and pooling."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from skood.nn import pretrained
from tests.nn._networks import Net
from tests.nn._outputs import ALL, assert_head, numbers, read, run


def features(module, X, layer, pooling="mean", classes=(0, 1, 2)):
    return read(
        pretrained(module, classes), X, {"features"}, layer=layer, pooling=pooling
    ).features


def conv_net():
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(2, 4, 3),
            act=nn.ReLU(inplace=True),
            conv2=nn.Conv2d(4, 5, 2),
            pool=nn.AdaptiveAvgPool2d(1),
            flat=nn.Flatten(),
            hidden=nn.Linear(5, 6),
            act2=nn.ReLU(inplace=True),
            head=nn.Linear(6, 3),
        )
    )


# --- which layer ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "n_layers"),
    [("hidden", 6), ("act2", 7), ("input:head", 7), ("head", 8), ("flat", 5)],
)
def test_layer_by_name(layer, n_layers):
    net, X = conv_net(), numbers(7, 2, 8, 8)
    expected = run(*list(net)[:n_layers], X=X)
    assert_allclose(features(net, X, layer), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (0, "conv"),
        (1, "conv2"),
        (2, "hidden"),
        (3, "head"),
        (-1, "head"),
        (-3, "conv2"),
        (np.int64(-2), "hidden"),
    ],
)
def test_layer_by_index_among_linear_and_convolutional(layer, name):
    net, X = conv_net(), numbers(7, 2, 8, 8)
    assert_array_equal(features(net, X, layer), features(net, X, name))


def test_penultimate_is_the_input_of_the_head():
    net, X = conv_net(), numbers(7, 2, 8, 8)
    assert_array_equal(features(net, X, "penultimate"), features(net, X, "input:head"))


def test_nested_names():
    net = nn.Sequential(nn.Sequential(nn.Linear(4, 5), nn.ReLU()), nn.Linear(5, 3))
    X = numbers(6, 4)
    assert_allclose(features(net, X, "0.0"), run(net[0][0], X=X), rtol=1e-6)
    assert_allclose(features(net, X, "0"), run(net[0], X=X), rtol=1e-6)


def test_unknown_layers():
    net, X = conv_net(), numbers(7, 2, 8, 8)
    names = "conv, act, conv2, pool, flat, hidden, act2, head"
    for layer in ("fc", "input:fc", ""):
        with pytest.raises(ValueError, match=rf"no layer named .*It has: {names}\."):
            features(net, X, layer)
    for layer in (4, -5):
        with pytest.raises(ValueError, match=r"4 linear and convolutional .*'conv2'"):
            features(net, X, layer)


def test_unknown_layer_of_a_large_network():
    """Some close names are told, not hundreds."""
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(40)))
    with pytest.raises(
        ValueError, match=r"no layer named '390'. The closest of its 40"
    ):
        features(net, numbers(4, 3), "390")


def test_layer_that_returns_an_object():
    """As layers of transformers do."""

    def backbone(net, x):
        x = net.blocks[1](net.blocks[0](net.dense(x)))
        return SimpleNamespace(last_hidden_state=net.norm(x))

    parts = {"dense": nn.Linear(4, 5), "norm": nn.LayerNorm(5)}
    vit = Net(backbone, **parts, blocks=nn.ModuleList([nn.ReLU(), nn.Tanh()]))
    net = Net(
        lambda net, x: net.head(net.vit(x).last_hidden_state),
        vit=vit,
        head=nn.Linear(5, 3),
    )
    with pytest.raises(
        TypeError,
        match=r"The layer 'vit' returned SimpleNamespace, .* Name a layer inside it "
        r"that returns one: it has vit\.dense, vit\.norm, vit\.blocks\.0, vit\.b",
    ):
        features(net, numbers(5, 4), "vit")
    assert features(net, numbers(5, 4), "vit.norm").shape == (5, 5)


def test_layer_that_does_not_run():
    layers = {"head": nn.Linear(4, 3), "unused": nn.Linear(4, 2)}
    net = Net(lambda net, x: net.head(x), **layers)
    for layer in ("unused", "input:unused", -1):
        with pytest.raises(ValueError, match="did not run in the forward pass of Net"):
            features(net, numbers(5, 4), layer)
    # the unused layer, though defined last, is not taken for the head
    assert_array_equal(features(net, numbers(5, 4), "penultimate"), numbers(5, 4))


def test_layer_that_runs_twice_gives_its_last_output():
    def twice(net, x):
        return net.head(net.mix(torch.relu(net.mix(x))))

    net, X = Net(twice, mix=nn.Linear(4, 4), head=nn.Linear(4, 3)), numbers(5, 4)
    expected = run(net.mix, nn.ReLU(), net.mix, X=X)
    assert_allclose(features(net, X, "mix"), expected, rtol=1e-6)


def test_layers_called_by_keyword():
    def by_keyword(net, x):
        net.clock(step=3)
        return net.head(input=torch.relu(net.fc(input=x)))

    class Clock(nn.Module):
        def forward(self, step):
            return torch.zeros(0, 1)

    layers = {"fc": nn.Linear(4, 5), "head": nn.Linear(5, 3), "clock": Clock()}
    net, X = Net(by_keyword, **layers), numbers(6, 4)
    assert_array_equal(features(net, X, "input:fc"), X)
    outputs = read(pretrained(net), X, ALL)
    assert_head(outputs, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="called without a tensor"):
        features(net, X, "input:clock")
    with pytest.raises(ValueError, match="gave 0 rows for a batch of 6"):
        features(net, X, "clock")


# --- operations in place -------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "of_input"), [("conv", False), ("input:act", True), ("conv2", False)]
)
@pytest.mark.parametrize("pooling", ["mean", "flatten", None])
def test_a_following_operation_in_place_does_not_change_features(
    layer, of_input, pooling
):
    net, X = conv_net(), numbers(7, 2, 8, 8)
    taken = features(net, X, layer, pooling)
    if layer != "conv2":
        maps = run(net.conv, X=X)
    else:
        maps = run(net.conv, net.act, net.conv2, X=X)
    expected = {
        "mean": maps.mean((2, 3)),
        "flatten": maps.reshape(len(X), -1),
        None: maps,
    }[pooling]
    assert (maps < 0).any()  # else ReLU would change nothing
    assert_allclose(taken, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_module_that_writes_to_its_input_does_not_change_x(as_tensor):
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3))
    X = numbers(6, 4)
    X = torch.as_tensor(X) if as_tensor else X
    read(pretrained(net), X, ALL)
    assert_array_equal(np.asarray(X), numbers(6, 4))


# --- pooling -------------------------------------------------------------------


def test_pooling_of_maps_against_loops():
    net, X = conv_net(), numbers(3, 2, 8, 8)
    maps = run(net.conv, X=X)
    assert maps.shape == (3, 4, 6, 6)
    mean, largest = np.empty((3, 4)), np.empty((3, 4))
    for i in range(3):
        for c in range(4):
            mean[i, c] = sum(maps[i, c, h, w] for h in range(6) for w in range(6)) / 36
            largest[i, c] = max(maps[i, c, h, w] for h in range(6) for w in range(6))
    assert_allclose(features(net, X, 0), mean, rtol=1e-5, atol=1e-6)
    assert_allclose(features(net, X, 0, "max"), largest, rtol=1e-6)
    assert_array_equal(features(net, X, 0, "flatten"), maps.reshape(3, 4 * 6 * 6))
    assert_array_equal(features(net, X, 0, None), maps)


class Tokens(nn.Module):
    """(n, t) token numbers, or (n, t, 4) vectors, through a transformer."""

    def __init__(self, embed=True):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(10, 4) if embed else nn.Identity()
        self.encode = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        states, _ = self.lstm(self.encode(self.embed(x)))
        return self.head(states[:, -1])


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16, np.uint8])
def test_tokens(dtype):
    net = Tokens().eval()
    X = np.random.default_rng(0).integers(10, size=(6, 7)).astype(dtype)
    with torch.no_grad():
        embedded = net.embed(torch.as_tensor(X.astype(np.int64)))
        encoded = net.encode(embedded)
        states = net.lstm(encoded)[0]
        logits = net.head(states[:, -1]).numpy()
    outputs = read(pretrained(net), X, ALL)
    assert_allclose(outputs.logits, logits, rtol=1e-4, atol=1e-5)
    assert_allclose(outputs.features, states[:, -1], rtol=1e-4, atol=1e-5)
    # tokens are pooled over tokens, not over their dimensions
    for layer, expected in [("embed", embedded), ("encode", encoded), ("lstm", states)]:
        assert_allclose(features(net, X, layer), expected.mean(1), rtol=1e-4, atol=1e-5)
        assert_allclose(
            features(net, X, layer, "max"), expected.amax(1), rtol=1e-4, atol=1e-5
        )
    taken = features(net, X, "input:encode")
    assert_allclose(taken, embedded.mean(1), rtol=1e-4, atol=1e-5)


def test_vectors_as_tokens():
    net, X = Tokens(embed=False).eval(), numbers(6, 7, 4)
    assert_allclose(features(net, X, "embed"), X.mean(1), rtol=1e-5)
    # the last linear layer that ran read tokens: they are pooled, too
    net = nn.Sequential(nn.Linear(4, 5), nn.Flatten(), nn.Unflatten(1, (3, -1)))
    assert_allclose(features(net, X[:, :3], "penultimate"), X[:, :3].mean(1), rtol=1e-5)


def test_signals_are_pooled_over_time():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv1d(2, 5, 3), nn.BatchNorm1d(5), nn.ReLU(), nn.Flatten(), nn.Linear(30, 3)
    ).eval()
    X = numbers(4, 2, 8)
    for n_layers, layer in [(1, "0"), (2, "1"), (3, "2")]:
        maps = run(*list(net)[:n_layers], X=X)
        assert maps.shape == (4, 5, 6)
        assert_allclose(features(net, X, layer), maps.mean(2), rtol=1e-4)
    assert_allclose(features(net, X, "input:0"), X.mean(2), rtol=1e-5)
    assert_allclose(
        features(net, X, "input:2"), run(net[0], net[1], X=X).mean(2), rtol=1e-4
    )


def test_linear_maps_have_their_channels_last():
    net = nn.Sequential(nn.Linear(4, 5), nn.Flatten(), nn.Linear(5 * 2 * 3, 3))
    X = numbers(6, 2, 3, 4)
    maps = run(net[0], X=X)
    assert_allclose(features(net, X, "0"), maps.mean((1, 2)), rtol=1e-4, atol=1e-6)
    assert_allclose(features(net, X, "input:0"), X.mean((1, 2)), rtol=1e-4)


def test_layer_of_numbers_is_a_column():
    norm = Net(lambda net, x: x.norm(dim=1))
    net = Net(
        lambda net, x: net.head(x) * net.norm(x)[:, None],
        norm=norm,
        head=nn.Linear(4, 3),
    )
    X = numbers(6, 4)
    assert_allclose(
        features(net, X, "norm"), np.linalg.norm(X, axis=1)[:, None], rtol=1e-6
    )

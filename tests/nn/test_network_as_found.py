"""A torch network is left as it was found, whatever is done inside it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch

from skood.nn import _torch_network as module
from skood.nn import pretrained
from skood.nn._make_network import make_network
from tests.nn._reading import Counter, data
from tests.nn.test_network import gradients
from tests.nn.test_outputs_as_found import aspects, assert_same, used_net


def opened(net, **options):
    return make_network(pretrained(net, classes=[0, 1, 2], **options))


def squares(z):
    """Gradient of half the sum of squares."""
    return z


def reads_layers(net, X):
    list(opened(net, batch_size=20).layers(X, ["body.0", "penultimate"]))


def moves_rows(net, X):
    list(
        opened(net, batch_size=20).input_gradient(X, squares, lambda part, g: part + g)
    )


def replaces(net, X):
    list(opened(net, batch_size=20).replaced(X, ["body"], lambda z: z))


def names_layers(net, X):
    opened(net).layer_names(X)


def is_interrupted(net, X):
    for happens in (reads_layers, moves_rows, replaces):
        net.fails_at = len(net.sizes) + 2
        with pytest.raises(KeyboardInterrupt):
            happens(net, X)
    net.fails_at = None


def function_raises(net, X):
    def fails(*args):
        raise ZeroDivisionError

    network = opened(net)
    for parts in (
        network.input_gradient(X, fails, fails),
        network.input_gradient(X, squares, fails),
        network.replaced(X, ["body"], fails),
        network.replaced(X, ["input:head"], fails),
    ):
        with pytest.raises(ZeroDivisionError):
            next(parts)


ALL_THAT_HAPPENS = [
    reads_layers,
    moves_rows,
    replaces,
    names_layers,
    is_interrupted,
    function_raises,
]


@pytest.mark.parametrize("happens", ALL_THAT_HAPPENS)
def test_left_as_found(happens, monkeypatch):
    """Modes, buffers, weights, `.grad`, `requires_grad`, hooks and the grad mode."""
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1)
    X, _ = data()
    net = used_net(X)
    before = aspects(net)
    happens(net, X)
    assert_same(aspects(net), before)


def test_no_gradients_are_left():
    X, _ = data()
    net = Counter()
    moves_rows(net, X)
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize(
    "mode", [torch.no_grad, torch.inference_mode, torch.enable_grad]
)
@pytest.mark.parametrize("frozen", [False, True])
def test_grad_mode_of_the_caller_and_frozen_parameters(mode, frozen):
    X, _ = data()
    expected = gradients(opened(Counter()), X, squares)
    net = Counter().requires_grad_(not frozen)
    with mode():
        found = gradients(opened(net), torch.as_tensor(X).clone(), squares)
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
        assert torch.is_grad_enabled() == (mode is torch.enable_grad)
    np.testing.assert_array_equal(found, expected)
    assert [p.requires_grad for p in net.parameters()] == [not frozen] * 6

"""Gradients of many searches are those of torch's differentiation."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from torch import nn

from skood.epistemic.quam._batched_gradients import (
    AutogradSteps,
    DenseSteps,
    make_steps,
)
from skood.epistemic.quam._searched_layers import WholeNetwork, find_tail
from skood.nn import pretrained
from skood.nn._make_network import make_network

DENSE_NETS = {
    "one output": lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1)),
    "no bias": lambda: nn.Sequential(
        nn.Linear(5, 6, bias=False),
        nn.GELU(),
        nn.Linear(6, 4, bias=False),
        nn.Sigmoid(),
        nn.Linear(4, 3),
    ),
    "relu": lambda: nn.Sequential(
        nn.Linear(5, 6),
        nn.Dropout(0.5),
        nn.ReLU(inplace=True),
        nn.Linear(6, 4),
        nn.ReLU(),
        nn.Linear(4, 3),
    ),
    "no function": lambda: nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3, bias=False)),
    "dropout": lambda: nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.5), nn.Linear(6, 3)),
    "one layer": lambda: nn.Linear(5, 3, bias=False),
}


@pytest.mark.parametrize("name", DENSE_NETS)
def test_gradients_of_dense_layers_are_those_of_torch(name):
    """Written by hand into memory that is used again, batches of any size."""
    torch.manual_seed(0)
    module = DENSE_NETS[name]().double().eval()
    n_classes = max(2, list(module.parameters())[-1].shape[0])
    X = np.random.default_rng(0).normal(size=(40, 5))
    network = make_network(pretrained(module, np.arange(n_classes))).with_weights(
        device="cpu"
    )
    tail = find_tail(network, "dense", network.batch(network.prepare(X)[:2]))
    weights = tail.start(6)
    with torch.no_grad():
        for weight in weights:
            weight += 0.3 * torch.randn_like(weight)
    features = tail.features(X)
    steps = make_steps(tail, weights)
    assert isinstance(steps, DenseSteps)
    plain = [weight.detach().clone().requires_grad_() for weight in weights]
    for n_samples in (7, 7, 12):
        samples, points = features[:n_samples], features[20:23]
        expected = tail.logits(plain, samples, points)
        result = steps.forward(samples, points)
        gradients = [torch.randn_like(logits) for logits in result]
        for a, b in zip(result, expected, strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=0, atol=1e-12)
        steps.backward(*gradients)
        for weight, grad in zip(
            weights, torch.autograd.grad(expected, plain, gradients), strict=True
        ):
            torch.testing.assert_close(weight.grad, grad, rtol=0, atol=1e-12)


def test_gradients_lie_in_memory_as_weights_do():
    """The fused Adam does not look at strides."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv1d(1, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 1), nn.Linear(1, 3)
    ).double()
    X = np.random.default_rng(0).normal(size=(12, 1, 5))
    network = make_network(pretrained(module, [0, 1, 2])).with_weights(device="cpu")
    network.prepare(X)
    tail = WholeNetwork(network)
    weights = tail.start(4)
    steps = make_steps(tail, weights)
    assert isinstance(steps, AutogradSteps)
    features = tail.features(X)
    result = steps.forward(features[:6], features[6:8])
    gradients = [torch.randn_like(logits) for logits in result]
    steps.backward(*gradients)
    expected = torch.autograd.grad(
        tail.logits(weights, features[:6], features[6:8]), weights, gradients
    )
    for weight, grad in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.grad, grad, rtol=0, atol=1e-12)
        assert weight.grad.stride() == weight.stride()

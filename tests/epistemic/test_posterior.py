"""Posteriors of weights, and many models at once, against loops over models."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import re

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn.neural_network import MLPClassifier
from torch import nn

from skood.epistemic import Categorical
from skood.epistemic.mcmc import _base_sampler as _posterior
from skood.epistemic.mcmc._base_sampler import (
    Posterior,
    StackedWeights,
    member_outputs,
    prior_scales,
)
from skood.nn import pretrained
from skood.nn._make_network import make_network
from skood.utils._torch import seeded

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 4))
y = np.arange(30) % 3


class Scaled(nn.Module):
    """A layer norm with weights of its own in the middle: no plain chain."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.norm = nn.LayerNorm(5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.norm(torch.tanh(self.first(x))))


class Branching(Scaled):
    """What it does depends on a weight: it cannot be mapped over models."""

    def forward(self, x):
        h = self.norm(self.first(x))
        up = float(self.norm.weight.detach().sum()) > 0
        return self.head(torch.relu(h) if up else torch.tanh(h))


def _pretrained(module, classes=(0, 1, 2)):
    with seeded(0):
        return pretrained(module().double(), classes=list(classes))


def _estimator(kind):
    if kind == "perceptron":
        return MLPClassifier((5, 6), activation="tanh", max_iter=20).fit(X, y)
    if kind == "binary":
        return _pretrained(lambda: nn.Sequential(nn.Linear(4, 1)), [0, 1])
    if kind == "no bias":
        return _pretrained(
            lambda: nn.Sequential(
                nn.Linear(4, 5, bias=False), nn.ReLU(inplace=True), nn.Linear(5, 3)
            )
        )
    if kind == "norm":
        return _pretrained(Scaled)
    return _pretrained(Branching)


KINDS = ["perceptron", "binary", "no bias", "norm", "branching"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def _opened(kind):
    network = make_network(_estimator(kind)).with_weights(
        device="cpu", dtype=torch.float64
    )
    samples = network.prepare(X)
    return network, samples, StackedWeights(network, samples)


def _thetas(models, n_models=4):
    generator = torch.Generator().manual_seed(0)
    shape = n_models, models.n_weights
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_kind
def test_stacked_logits_against_a_loop(kind):
    network, samples, models = _opened(kind)
    assert models._is_chain == (kind in KINDS[:3])
    theta = _thetas(models)
    logits = models.logits(theta, models.features(samples))
    assert models._each.is_mapped == (kind != "branching")
    for item, row in zip(logits, theta, strict=True):
        weights, start = {}, 0
        for name, parameter in network.module.named_parameters():
            stop = start + parameter.numel()
            weights[name] = row[start:stop].reshape(parameter.shape)
            start = stop
        assert start == models.n_weights
        expected = network.logits(network.batch(samples), weights)
        torch.testing.assert_close(item, expected, rtol=1e-12, atol=1e-12)
    # again, now that it is known what cannot be mapped
    torch.testing.assert_close(models.logits(theta, models.features(samples)), logits)


def test_numbers_and_parameters_are_the_same():
    network, _, models = _opened("no bias")
    theta = _thetas(models)
    stacked = models.split(theta)
    assert list(stacked) == ["0.weight", "2.weight", "2.bias"]
    assert stacked["0.weight"].shape == (4, 5, 4)
    assert stacked["2.bias"].shape == (4, 3)
    torch.testing.assert_close(models.flatten(stacked), theta)
    arrays = {name: tensor.numpy() for name, tensor in stacked.items()}
    torch.testing.assert_close(models.flatten(arrays), theta)
    item = models.flatten(network.weights())
    assert item.shape == (1, models.n_weights)
    # leading axes are kept
    assert models.split(theta.reshape(2, 2, -1))["0.weight"].shape == (2, 2, 5, 4)


def _posterior_of(kind, **kwargs):
    codes = np.asarray(y > 0, dtype=int) if kind == "binary" else y
    return Posterior(_estimator(kind), X, codes, device="cpu", **kwargs), codes


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("temperature", [1.0, 0.25])
@each_kind
def test_log_posterior_against_a_loop(kind, temperature):
    posterior, codes = _posterior_of(kind, prior_scale=0.7, temperature=temperature)
    theta = _thetas(posterior.models)
    value, grad = posterior.value_and_grad(theta)
    logits = posterior.models.logits(theta, posterior.features).numpy()

    def log_density(i, weights):
        terms = [
            float(row[code] - np.log(np.sum(np.exp(row))))
            for row, code in zip(logits[i], codes, strict=True)
        ]
        terms += [-0.5 * (w / 0.7) ** 2 for w in weights.tolist()]
        return math.fsum(terms) / temperature

    for i, row in enumerate(theta):
        assert float(value[i]) == pytest.approx(log_density(i, row), rel=1e-12)
    assert value.dtype == torch.float64
    # the gradient against differences along random directions
    direction = torch.randn(theta.shape, generator=torch.Generator().manual_seed(1))
    direction = direction.double() / direction.double().norm(dim=1, keepdim=True)
    up, down = (
        posterior.value_and_grad(theta + sign * 1e-5 * direction)[0] for sign in (1, -1)
    )
    torch.testing.assert_close(
        (grad * direction).sum(dim=1), (up - down) / 2e-5, rtol=1e-5, atol=1e-5
    )


def test_batches_of_samples_sum_to_all_of_them(monkeypatch):
    posterior, _ = _posterior_of("norm")
    theta = _thetas(posterior.models)
    expected = posterior.value_and_grad(theta)
    proba = posterior.predictions(theta)
    calls = []
    inner = posterior.likelihood_and_grad

    def counted(theta, samples):
        calls.append(samples)
        return inner(theta, samples)

    monkeypatch.setattr(posterior, "likelihood_and_grad", counted)
    monkeypatch.setattr(_posterior, "_BUDGET", posterior.models.bytes_per_row * 4 * 7)
    torch.testing.assert_close(posterior.value_and_grad(theta), expected)
    assert len(calls) == 5
    monkeypatch.setattr(_posterior, "_BUDGET", 1)  # one model at a time
    assert_allclose(posterior.predictions(theta), proba, rtol=1e-12)
    parts = [
        inner(theta, samples) for samples in (torch.arange(10), torch.arange(10, 30))
    ]
    value = sum(component[0] for component in parts) + posterior.log_prior(theta)
    grad = sum(component[1] for component in parts) + posterior.grad_log_prior(theta)
    torch.testing.assert_close((value, grad), expected)


def test_numbers_are_those_of_the_network():
    """Gradients in float32 for a network in float32, energies in float64."""
    network = nn.Sequential(nn.Linear(4, 3))
    posterior = Posterior(
        pretrained(network, classes=[0, 1, 2]), X.astype(np.float32), y, device="cpu"
    )
    assert posterior.initial.dtype == torch.float32
    value, grad = posterior.value_and_grad(posterior.initial)
    assert (value.dtype, grad.dtype) == (torch.float64, torch.float32)
    expected = posterior.models.flatten(
        {"0.weight": network[0].weight.detach(), "0.bias": network[0].bias.detach()}
    )
    assert torch.equal(posterior.initial, expected)
    assert network[0].weight.requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_sampled_in_float32(dtype):
    network = nn.Sequential(nn.Linear(4, 3)).to(dtype)
    original = pretrained(network, classes=[0, 1, 2])
    posterior = Posterior(original, X.astype(np.float32), y, device="cpu")
    assert posterior.initial.dtype == torch.float32
    value, grad = posterior.value_and_grad(posterior.initial)
    assert (value.dtype, grad.dtype) == (torch.float64, torch.float32)
    assert network[0].weight.dtype == dtype


def test_scales_of_priors():
    shapes = {"w": torch.Size([3, 4]), "b": torch.Size([3]), "c": (2, 3, 3, 3)}
    assert_array_equal(prior_scales(0.5, shapes), np.full(69, 0.5))
    expected = np.repeat([np.sqrt(2 / 4), 1.0, np.sqrt(2 / 27)], [12, 3, 54])
    assert_allclose(prior_scales("he", shapes), expected, rtol=1e-15)
    original = {"c": 3.0, "b": 2, "w": 1.0}
    assert_array_equal(
        prior_scales(original, shapes), np.repeat([1.0, 2.0, 3.0], [12, 3, 54])
    )
    with pytest.raises(
        ValueError,
        match=r"must have the scale of each parameter of the network, \['b', 'c', 'w'\]"
        r"; got \['b', 'c'\]",
    ):
        prior_scales({"c": 1.0, "b": 1.0}, shapes)
    for bad in (0.0, -1.0, np.inf, np.nan, "a", None, np.ones(3)):
        text = re.escape(f"must be positive and finite, got {bad!r} for 'b'.")
        with pytest.raises(ValueError, match=text):
            prior_scales({**original, "b": bad}, shapes)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_kind
def test_member_probabilities_do_not_depend_on_the_blocks(kind, monkeypatch):
    estimator = _estimator(kind)
    _, _, models = _opened(kind)
    theta = _thetas(models)
    samples = {name: w.numpy() for name, w in models.split(theta).items()}
    likelihood = Categorical()

    def predictions():
        network = likelihood.open(estimator, "cpu", dtype=torch.float64)
        outputs = member_outputs(network, samples, X)
        return [likelihood.predictions(values) for values in outputs]

    (together,) = predictions()
    logits = models.logits(theta, torch.as_tensor(X)).numpy()
    assert_allclose(together, log_softmax(logits, axis=2), rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(_posterior, "_BUDGET", 1)
    alone = predictions()
    assert len(alone) == len(X)
    assert_allclose(np.concatenate(alone, axis=1), together, rtol=1e-12, atol=1e-12)

"""Searches side by side give what plain loops give, one by one."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from skood.epistemic.quam._adversarial_search import (
    AdversarialSearch,
    Classes,
    Means,
    SearchResult,
    growth,
    search,
)
from skood.epistemic.quam._searched_layers import find_tail
from skood.nn import pretrained
from skood.nn._make_network import make_network
from tests.epistemic._lenet import N_CLASSES, digits, lenet, plain_search

DENSE = [f"fc{i}.{kind}" for i in (1, 2, 3) for kind in ("weight", "bias")]
SCOPES = {
    "last": ["fc3.weight", "fc3.bias"],
    "dense": DENSE,
    "full": [
        *(f"conv{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")),
        *DENSE,
    ],
}
SIGNS = [1.0, -1.0, 1.0, -1.0]  # of searches for higher and lower means
STEP = {"lr": 5e-3, "weight_decay": 1e-3, "c0": 6.0}


def _opened(module, scope, X):
    network = make_network(pretrained(module)).with_weights(device="cpu")
    samples = network.prepare(X)
    return network, find_tail(network, scope, network.batch(samples[:2]))


def _batches(X, y, n_batches, size=16):
    """Overlapping batches of training rows."""
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    starts = [7 * step % (len(X) - size) for step in range(n_batches)]
    return [(X[i : i + size], y[i : i + size]) for i in starts]


def _problem(scope, n_batches, module=None, dtype=torch.float64):
    """A network, its searched layers, images, and batches of them."""
    X, y = digits(64, dtype=np.dtype(str(dtype).removeprefix("torch.")))
    module = lenet(dtype) if module is None else module
    return module, _opened(module, scope, X)[1], X, _batches(X, y, n_batches)


def _assert_steps(result, tail, expected, atol):
    """The first search is the plain one.

    Adam divides a gradient by its size, so that of one that is zero up to rounding
    the step is random: weights are compared in float64 only.
    """
    for name, weight in tail.named(result.weights, 0).items():
        if weight.dtype == torch.float64:
            plain = expected.weights[name]
            torch.testing.assert_close(weight, plain, rtol=0, atol=atol)
    for name in ("outputs", "training_loss", "attack_loss"):
        assert_allclose(getattr(result, name)[:, 0], getattr(expected, name), atol=atol)


def _search(tail, points, targets, batches, schedule, judges=None):
    """Search all `targets` (one row for each point); batches are rows of inputs."""
    stored = [(tail.features(samples.numpy()), answers) for samples, answers in batches]
    if judges is not None:
        judges = tail.features(judges[0].numpy()), judges[1]
    targets = torch.as_tensor(targets)
    return search(
        tail,
        tail.features(points),
        Classes(targets.flatten()),
        targets.numel(),
        stored,
        schedule,
        judges,
    )


# ---- one search, against a loop


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 1e-5), (torch.float64, 1e-9)])
@pytest.mark.parametrize("target", range(N_CLASSES))
@pytest.mark.parametrize("scope", SCOPES)
def test_single_step_equals_a_plain_loop(scope, target, dtype, atol):
    module, tail, X, batches = _problem(scope, 2, dtype=dtype)
    schedule = AdversarialSearch(1, **STEP, eta=1, update_every=1)
    result = _search(tail, X[:1], [[target]], batches, schedule)
    expected = plain_search(
        module, SCOPES[scope], torch.from_numpy(X[0]), target, batches, **STEP
    )
    weights = tail.named(result.weights, 0)
    assert set(weights) == set(SCOPES[scope])
    _assert_steps(result, tail, expected, atol)
    moved = {
        n: float((w - module.get_parameter(n).detach()).abs().max())
        for n, w in weights.items()
    }
    assert min(moved.values()) > 4e-3  # Adam's first step is as long as lr


@pytest.mark.parametrize(
    "eta, update_every, weight_decay", [(1.0, 5, 0.0), (1.9, 2, 1e-3), (1.3, 3, 0.1)]
)
@pytest.mark.parametrize("scope", SCOPES)
def test_many_steps_equal_a_plain_loop(scope, eta, update_every, weight_decay):
    module, tail, X, batches = _problem(scope, 8)
    step = {**STEP, "weight_decay": weight_decay}
    step |= {"eta": eta, "update_every": update_every}
    result = _search(tail, X[:1], [[2]], batches, AdversarialSearch(7, **step))
    x = torch.from_numpy(X[0])
    expected = plain_search(module, SCOPES[scope], x, 2, batches, **step)
    _assert_steps(result, tail, expected, atol=1e-9)


@pytest.mark.parametrize("scope", SCOPES)
def test_weights_may_lie_in_memory_as_they_like(scope):
    module, _, X, batches = _problem(scope, 4)
    schedule = AdversarialSearch(3, **STEP, eta=1.0, update_every=1)
    results = []
    for _ in range(2):
        _, tail = _opened(module, scope, X)
        results.append(_search(tail, X[:2], [[0, 1], [1, 2]], batches, schedule))
        module = module.to(memory_format=torch.channels_last)
        module.fc2.weight.data = module.fc2.weight.data.T.contiguous().T
    torch.testing.assert_close(
        results[1].outputs, results[0].outputs, rtol=0, atol=1e-9
    )


# ---- many searches


@pytest.mark.parametrize("scope", SCOPES)
def test_many_points_and_classes_equal_each_alone(scope):
    X, y = digits(64, dtype=np.float64)
    _, tail = _opened(lenet(torch.float64), scope, X)
    batches = _batches(X, y, 5, size=8)
    schedule = AdversarialSearch(4, **STEP, eta=1.5, update_every=2)
    targets = np.array([[0, 1, 3], [2, 3, 1]])
    points = X[[3, 10]]
    result = _search(tail, points, targets, batches, schedule)
    assert result.outputs.shape == (5, 6, N_CLASSES)
    for i in range(2):
        for j in range(3):
            separate = targets[i : i + 1, j : j + 1]
            item = _search(tail, points[i : i + 1], separate, batches, schedule)
            at = 3 * i + j
            for name in ("outputs", "training_loss", "attack_loss", "evaluated"):
                both = getattr(result, name)[:, at], getattr(item, name)[:, 0]
                torch.testing.assert_close(*both, rtol=0, atol=1e-9)
            weights = tail.named(result.weights, at)
            for name, weight in tail.named(item.weights, 0).items():
                torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-9)


def test_first_model_is_the_original():
    X, y = digits(64, dtype=np.float64)
    module = lenet(torch.float64)
    network, tail = _opened(module, "dense", X)
    batches = _batches(X, y, 2)
    schedule = AdversarialSearch(1, **STEP, eta=1.0, update_every=1)
    result = _search(tail, X[:3], [[1], [1], [1]], batches, schedule)
    assert_allclose(
        result.outputs[0], network.log_proba(network.prepare(X[:3])), atol=1e-12
    )


def test_judges_are_samples_that_all_models_share():
    module, tail, X, batches = _problem("dense", 4)
    judges = torch.as_tensor(X[40:60]), torch.as_tensor(digits(64)[1][40:60])
    schedule = AdversarialSearch(3, **STEP, eta=1.0, update_every=1)
    result = _search(tail, X[:2], [[0, 1], [0, 1]], batches, schedule, judges)
    plain = _search(tail, X[:2], [[0, 1], [0, 1]], batches, schedule)
    assert torch.equal(plain.evaluated, plain.training_loss)
    assert torch.equal(result.outputs, plain.outputs)
    for at in range(4):
        last = dict(module.named_parameters()) | tail.named(result.weights, at)
        with torch.no_grad():
            logits = torch.func.functional_call(module, last, (judges[0],))
            expected = nn.functional.cross_entropy(logits, judges[1])
        assert float(result.evaluated[-1, at]) == pytest.approx(
            float(expected), abs=1e-10
        )


class Spare(nn.Module):
    """Has weights that it does not use."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 7, stride=7)
        self.spare = nn.Linear(3, 2)
        self.head = nn.Linear(32, N_CLASSES)

    def forward(self, x):
        """Forget the spare layer."""
        return self.head(torch.tanh(self.conv(x)).flatten(1))


def test_weights_that_are_not_used_stay():
    torch.manual_seed(0)
    module, tail, X, batches = _problem("full", 4, Spare().double())
    schedule = AdversarialSearch(3, **STEP, eta=1.0, update_every=1)
    result = _search(tail, X[:1], [[1]], batches, schedule)
    names = [name for name, _ in module.named_parameters()]
    expected = plain_search(module, names, torch.as_tensor(X[0]), 1, batches, **STEP)
    _assert_steps(result, tail, expected, atol=1e-9)
    assert torch.equal(expected.weights["spare.weight"], module.spare.weight)


def test_adam_of_older_torch(monkeypatch):
    """Where there is no fused Adam, the plain one does the same."""
    _, tail, X, batches = _problem("last", 6)
    schedule = AdversarialSearch(5, **STEP, eta=1.5, update_every=2)
    arguments = tail, X[:2], [[0], [1]], batches, schedule
    expected = _search(*arguments)
    adam = torch.optim.Adam

    def older(weights, *, fused=False, **options):
        if fused:
            raise RuntimeError("`fused=True` requires all the params to be on CUDA")
        return adam(weights, **options)

    monkeypatch.setattr(torch.optim, "Adam", older)
    result = _search(*arguments)
    torch.testing.assert_close(result.outputs, expected.outputs, rtol=0, atol=1e-12)


# ---- what is attacked


def test_losses_of_classes():
    generator = torch.Generator().manual_seed(0)
    row_logits = 3 * torch.randn(6, 5, 3, generator=generator, dtype=torch.float64)
    logits = 3 * torch.randn(6, 3, generator=generator, dtype=torch.float64)
    answers = torch.tensor([0, 2, 1, 1, 0])
    targets = torch.tensor([0, 1, 2, 2, 1, 0])
    task = Classes(targets)
    outputs = task.outputs(logits)
    training = task.training_loss(row_logits, answers)
    attack = task.attack_loss(outputs)
    for s in range(6):
        losses = []
        for z, k in zip(row_logits[s].tolist(), answers.tolist(), strict=True):
            losses.append(math.log(math.fsum(math.exp(v) for v in z)) - z[k])
        assert float(training[s]) == pytest.approx(math.fsum(losses) / 5, rel=1e-12)
        z = logits[s].tolist()
        total = math.log(math.fsum(math.exp(v) for v in z))
        expected = [v - total for v in z]
        assert_allclose(outputs[s], expected, rtol=1e-12, atol=1e-14)
        assert float(attack[s]) == pytest.approx(total - z[targets[s]], rel=1e-12)


def test_losses_of_a_margin():
    """One logit m stands for the logits (-m/2, m/2)."""
    margins = torch.tensor([[[0.5], [-2.0]], [[3.0], [1.0]]], dtype=torch.float64)
    task = Classes(torch.tensor([0, 1]))
    training = task.training_loss(margins, torch.tensor([1, 0]))
    for s in range(2):
        m, n = margins[s, :, 0].tolist()
        expected = (math.log1p(math.exp(-m)) + math.log1p(math.exp(n))) / 2
        assert float(training[s]) == pytest.approx(expected, rel=1e-12)
    outputs = task.outputs(margins[:, 0])
    assert_allclose(
        task.attack_loss(outputs),
        [math.log1p(math.exp(0.5)), math.log1p(math.exp(-3.0))],
        rtol=1e-12,
    )


@pytest.mark.parametrize("fixed", [True, False])
def test_losses_of_means(fixed):
    """The likelihood and the divergence are those of torch's normal distributions."""
    generator = torch.Generator().manual_seed(0)
    n_outputs = 1 if fixed else 2
    shape = (4, 5, n_outputs)
    row_logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    outputs = torch.randn(4, n_outputs, generator=generator, dtype=torch.float64)
    answers = torch.randn(5, generator=generator, dtype=torch.float64)
    mean = torch.tensor([0.3, 0.3, -1.0, -1.0], dtype=torch.float64)
    variance = torch.tensor([0.7] * 4 if fixed else [0.7, 0.7, 2.0, 2.0]).double()
    task = Means(torch.tensor(SIGNS), mean, variance, fixed=fixed)
    assert task.outputs(outputs) is outputs
    training = task.training_loss(row_logits, answers)
    attack = task.attack_loss(outputs)

    def normal(values, original):
        variances = original if fixed else values[..., 1].exp()
        return torch.distributions.Normal(values[..., 0], variances.sqrt())

    weights = [torch.zeros(4, n_outputs, requires_grad=True)]

    class Biases:
        """Its outputs are its weights."""

        def start(self, n_searches):
            return weights

        def move_outputs(self, moved, shifts):
            with torch.no_grad():
                moved[0][:, 0] += shifts

    (moved,) = task.start(Biases(), 4)
    shifts = [
        math.copysign(math.sqrt(v), s) for v, s in zip(variance, SIGNS, strict=True)
    ]
    assert_allclose(moved[:, 0].tolist(), shifts, rtol=1e-6)
    for s in range(4):
        likelihood = normal(row_logits[s], variance[s]).log_prob(answers)
        assert float(training[s]) == pytest.approx(float(-likelihood.mean()), rel=1e-12)
        original = torch.distributions.Normal(mean[s], variance[s].sqrt())
        kl = torch.distributions.kl_divergence(
            original, normal(outputs[s], variance[s])
        )
        assert float(attack[s]) == pytest.approx(float(-kl), rel=1e-10)


# ---- the schedule and what is found


def test_penalty_grows_every_few_steps():
    options = AdversarialSearch(9, eta=2.0, update_every=3)
    assert [growth(options, step) for step in range(7)] == [1, 1, 1, 2, 2, 2, 4]


def test_search_result_by_points():
    """Searches are in the order of the points, and of the targets of each."""
    points, targets = torch.meshgrid(torch.arange(3), torch.arange(2), indexing="ij")
    number = (10.0 * points + targets).flatten()
    result = SearchResult(
        torch.stack([torch.stack([number, -number], 1)] * 4),
        *[torch.stack([number + 100 * step for step in range(4)])] * 3,
        [],
    ).by_points(3)
    assert result["outputs"].shape == (4, 2, 3, 2)
    assert result["training_loss"].shape == (4, 2, 3)
    for step in range(4):
        for target in range(2):
            for point in range(3):
                value = 10 * point + target
                assert result["evaluated"][step, target, point] == value + 100 * step
                assert result["outputs"][step, target, point].tolist() == [
                    value,
                    -value,
                ]
    assert result["outputs"].dtype == result["attack_loss"].dtype == np.float64

"""Untargeted searches: away from the given prediction, from several starts."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from torch.nn import functional

from skood.epistemic import QUAM, AdversarialSearch
from skood.epistemic.quam._adversarial_search import Untargeted
from skood.nn import TorchClassifier, pretrained
from tests.epistemic._lenet import digits, lenet
from tests.epistemic._quam import FIELDS, QUICK, STEP, make_quam
from tests.epistemic._tails import make_tail
from tests.nn._conv_net import perceptron_in_torch

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def _untargeted(estimator, data, **params):
    quam = make_quam(estimator, targets="untargeted", **{**QUICK, **STEP, **params})
    return quam.fit(*data)


def _objective(tail, n_points, n_starts, samples):
    features = tail.features(samples[:n_points])
    weights = tail.start(n_points)
    with torch.no_grad():
        reference = torch.log_softmax(tail.logits(weights, features, features)[1], 1)
    starts = torch.arange(n_starts).repeat(n_points)
    return Untargeted(starts, reference.repeat_interleave(n_starts, 0), seed=3)


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_divergence_is_stationary_at_the_original_weights(scope):
    """Therefore the starts are moved; the gradient grows with the distance."""
    samples, _ = digits(4, dtype=np.float64)
    _, tail = make_tail(lenet(torch.float64), scope, samples, n_classes=4)
    task, features = _objective(tail, 4, 3, samples), tail.features(samples)

    def gradient(weights):
        with torch.enable_grad():
            _, logits = tail.logits(weights, features, features)
            loss = task.attack_loss(task.outputs(logits)).sum()
        return max(float(g.abs().max()) for g in torch.autograd.grad(loss, weights))

    assert gradient(tail.start(12)) < 1e-7
    assert gradient(task.start(tail, 12)) > 1e-6


@pytest.mark.parametrize("scope", ["last", "dense", "full", "bias", "adapter"])
def test_noise_of_the_starts(scope):
    """N(0, (1e-3 sd)^2) for each tensor, the same for all points."""
    samples, _ = digits(4, dtype=np.float64)
    module = lenet(torch.float64)
    _, tail = make_tail(module, scope, samples, n_classes=4)
    task = _objective(tail, 3, 4, samples)
    original = tail.by_search(tail.start(12))
    views = tail.by_search(task.start(tail, 12))
    again = tail.by_search(_objective(tail, 2, 4, samples).start(tail, 8))
    scales = tail.scales()
    assert len(scales) == len(views)
    expected = [float(view[0].detach().std(correction=0)) for view in original]
    if scope == "adapter":  # in units of the weights that they change
        names = ["conv1", "conv2", "fc1", "fc2", "fc3"]
        layers = [module.get_submodule(name).weight for name in names]
        expected = [
            value
            for weight in layers
            for value in (0.0, float(weight.detach().std(correction=0)))
        ]
    assert_allclose(scales, expected, rtol=1e-12)
    for view, first, other, scale in zip(views, original, again, scales, strict=True):
        noise = (view - first).detach()
        for start in range(4):
            assert torch.equal(noise[start], noise[start + 4])
            assert torch.equal(noise[start], noise[start + 8])
        assert torch.equal(other, view[:8])
        if noise[0].numel() > 500 and scale:
            result = noise[:4].flatten(1).std(dim=1) / scale
            assert_allclose(result, 1e-3, rtol=0.1)
        if scale:
            assert not torch.equal(noise[0], noise[1])


def test_constant_tensors_are_moved(data):
    """The deviation of equal weights is zero: their noise has the size 1e-3."""
    X, y = data
    net = MLPClassifier((6,), max_iter=9, random_state=0).fit(X, y)
    net.intercepts_ = [np.zeros_like(b) for b in net.intercepts_]
    quam = _untargeted(FrozenEstimator(net), data, scope="bias", n_steps=1)
    assert (quam.trace(X[:1]).divergence[0] > 0).all()


def test_equals_a_plain_loop(data, mlp):
    """Gradient ascent on the cross-entropy of the given prediction, with a penalty."""
    X, _ = data
    quam = _untargeted(FrozenEstimator(mlp), data, n_starts=2)
    network, samples = quam._open(), X[:1]
    network.prepare(samples)
    _, tail = make_tail(perceptron_in_torch(mlp), "dense", X)
    starts = _objective(tail, 1, 2, X)
    starts.seed = quam._seed
    first = starts.start(tail, 2)
    trace = quam.trace(samples)
    assert_array_equal(trace.targets, [0, 1])
    proba = torch.as_tensor(mlp.predict_proba(samples))
    names = [name for name, _ in perceptron_in_torch(mlp).named_parameters()]
    for start in range(2):
        net = perceptron_in_torch(mlp)
        with torch.no_grad():
            for name, weight in tail.named(first, start).items():
                net.get_parameter(name).copy_(weight)
        optimizer = torch.optim.Adam(
            [net.get_parameter(name) for name in names], lr=0.02, weight_decay=1e-2
        )
        for step in range(6):
            index = quam.penalty_index_[step]
            batch = torch.as_tensor(quam.penalty_features_[index])
            codes = torch.as_tensor(quam.penalty_targets_[index])
            logits = net(torch.as_tensor(samples))
            entropy = functional.cross_entropy(logits, proba)
            training = functional.cross_entropy(net(batch), codes)
            assert_allclose(
                trace.log_proba[step, start],
                torch.log_softmax(logits, 1)[0].detach(),
                rtol=0,
                atol=1e-7,
            )
            original = float(-(proba * proba.log()).sum())
            divergence = float(entropy.detach()) - original
            assert trace.attack_loss[step, start] == pytest.approx(
                -divergence, abs=1e-8
            )
            assert trace.divergence[step, start] == pytest.approx(divergence, abs=1e-8)
            power = step // 2
            for group in optimizer.param_groups:
                group["lr"] = 0.02 / 1.6**power
            optimizer.zero_grad()
            (3.0 * 1.6**power * training - entropy).backward()
            optimizer.step()


def test_points_and_chunks_do_not_matter(data, mlp):
    X, _ = data
    quam = _untargeted(FrozenEstimator(mlp), data, n_starts=3)
    together = quam.predict_uncertainty(X[:5], return_error=True)
    for chunk_size in (1, 2):
        quam.set_params(search__chunk_size=chunk_size)
        uncertainty = quam.predict_uncertainty(X[:5])
        for name in FIELDS:
            assert_allclose(uncertainty[name], together[name], rtol=1e-8)
    assert quam.predict_members(X[:2]).shape == (18, 2, 3)
    assert (together.n_effective <= 3 + 1e-9).all()  # a search is one draw
    again = copy.deepcopy(quam).fit(*data).predict_uncertainty(X[:5])
    assert_allclose(again.epistemic, together.epistemic, rtol=1e-8)
    other = quam.set_params(random_state=1).fit(*data).predict_uncertainty(X[:5])
    assert (np.abs(other.epistemic - together.epistemic) > 0).all()


def test_models_of_untargeted_searches():
    X, y = digits(40)
    quam = _untargeted(pretrained(lenet()), (X, y), n_starts=2, scope="bias")
    (item,) = quam.adversarial_models(X[:1], slack=np.inf)
    assert item.targets.tolist() == [0, 1]
    for i in range(2):
        proba = item.model(i).predict_proba(X[:1])[0]
        assert_allclose(proba, np.exp(item.log_proba[i]), atol=1e-6)
    assert (item.divergence > 0).all()


# ---- the remark of the paper, that these searches find similar models


def test_saturated_predictions_are_not_left():
    """The targeted search leaves them, with the same number of steps."""
    X, y = make_moons(100, noise=0.05, random_state=0)
    net = MLPClassifier((30,), learning_rate_init=0.05, tol=0, random_state=0)
    net = FrozenEstimator(net.fit(X, y))
    assert net.predict_proba(X[1:2]).max() > 1 - 2e-5
    result, targeted = (
        QUAM(net, AdversarialSearch(c0=3), targets=targets, random_state=0)
        .fit(X, y)
        .trace(X[1:2])
        .divergence
        for targets in ("untargeted", "all")
    )
    assert result.max() < 5e-4
    assert targeted.max() > 2


@pytest.mark.slow
def test_two_moons():
    """Saturated predictions are not left, and the starts end in the same class.

    The schedule of the paper and a network of 100-100 units; at new samples the given
    prediction is saturated, or between the classes. About a minute.
    """
    X, y = make_moons(200, noise=0.1, random_state=0)
    points = make_moons(200, noise=0.1, random_state=10)[0][:6]
    points = np.r_[points, [[0.5, 0.25], [0.6, 0.3]]].astype(np.float32)
    net = TorchClassifier(
        module_params={"hidden": (100, 100)}, max_epochs=100, lr=1e-2, random_state=0
    )
    net = FrozenEstimator(net.fit(X.astype(np.float32), y))
    search = AdversarialSearch(194, c0=6.0, eta=1.9)
    traces = {}
    for targets in ("untargeted", "all"):
        quam = QUAM(net, search, targets=targets, random_state=0)
        quam.fit(X.astype(np.float32), y)
        traces[targets] = [quam.trace(x[None]) for x in points]
    is_saturated = net.predict_proba(points).max(axis=1) > 1 - 5e-5
    assert is_saturated.sum() == 5
    differs = np.zeros(8, dtype=bool)
    for i, (result, targeted) in enumerate(zip(*traces.values(), strict=True)):
        differs[i] = len(set(result.log_proba[-1].argmax(axis=1))) > 1
        if is_saturated[i]:
            assert result.divergence[-1].max() < 5e-4
            assert targeted.divergence.max() > 2
    # starts may end in both classes at the least certain point alone: with this seed,
    # and not with others
    assert differs.sum() <= 1
    certainty = net.predict_proba(points).max(axis=1)
    assert not differs[certainty > certainty.min()].any()
    other = QUAM(net, search, targets="untargeted", random_state=1)
    other.fit(X.astype(np.float32), y)
    trace = other.trace(points[certainty.argmin()][None])
    assert len(set(trace.log_proba[-1].argmax(axis=1))) == 1

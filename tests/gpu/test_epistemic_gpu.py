"""Uncertainty classifiers on a GPU give what they give on the CPU."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPRegressor

from skood.epistemic import (
    HMC,
    QUAM,
    AdversarialSearch,
    BatchEnsemble,
    CyclicalSchedule,
    CyclicalSGHMC,
    DeepEnsemble,
    HMCKernel,
    Laplace,
    MCDropout,
    MixtureLaplace,
    PackedEnsemble,
    SnapshotEnsemble,
)
from skood.nn import TorchClassifier, pretrained
from tests._loops import looped
from tests.epistemic._lenet import digits, lenet

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kind", [BatchEnsemble, PackedEnsemble])
def test_members_that_share_a_network(kind):
    """Trained on the GPU, a classifier predicts there what it predicts on the CPU."""
    X = np.random.default_rng(0).normal(size=(60, 2, 8, 8)).astype(np.float32)
    y = np.arange(60) % 3
    X[np.arange(60), 0] += y[:, None, None]
    net = TorchClassifier(max_epochs=30, lr=0.01, device="cuda", random_state=0)
    clf = kind(net).fit(X, y)
    network = clf.estimator_.module_
    assert {p.device.type for p in network.parameters()} == {"cuda"}
    p = clf.predict_members(X)
    assert_allclose(clf.predict_members(torch.as_tensor(X).cuda()), p)
    logits = network.cpu().members(torch.as_tensor(X)).detach()
    expected = torch.softmax(logits, -1).transpose(0, 1)
    assert_allclose(p, expected, rtol=1e-3, atol=1e-5)
    assert clf.score(X, y) > 0.9
    assert (clf.predict_uncertainty(X).epistemic >= 0).all()


@pytest.mark.parametrize(
    "sampler",
    [
        HMC(None, HMCKernel(n_leapfrog=5, n_warmup=20), n_samples=8, n_chains=2),
        CyclicalSGHMC(
            None,
            schedule=CyclicalSchedule(
                n_cycles=2, epochs_per_cycle=10, samples_per_cycle=2
            ),
        ),
    ],
    ids=["hmc", "sghmc"],
)
@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_samples_of_weights(sampler):
    """Samples drawn on the GPU predict the same on the CPU."""
    X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    network = TorchClassifier(max_epochs=5, device="cuda", random_state=0)
    state = torch.cuda.get_rng_state()
    clf = clone(sampler).set_params(estimator=network, device="cuda", random_state=0)
    clf.fit(X, y)
    again = clone(clf).fit(X, y)
    for name, stacked in clf.samples_.items():
        assert_allclose(stacked, again.samples_[name], rtol=1e-3, atol=1e-4)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    p = clf.predict_members(X)
    clf.set_params(device="cpu")
    assert_allclose(clf.predict_members(X), p, rtol=1e-9, atol=1e-12)
    assert clf.score(X, y) > 0.6


@looped("predictive", ["mean_field", "probit", "mc", "bridge_norm"])
@looped("hessian", ["diag", "full", "kron"])
@looped("subset", ["last_layer", "all"])
def test_laplace(subset, hessian, predictive):
    if subset == "all" and hessian == "kron":
        pytest.importorskip("laplace")
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = (rng.normal(size=(90, 4)) + 2 * np.eye(4)[y]).astype(np.float32)
    net = TorchClassifier(
        module_params={"hidden": (8,)}, max_epochs=20, lr=0.03, random_state=0
    )
    net.set_params(device="cpu").fit(X, y)
    both = [
        Laplace(
            FrozenEstimator(net),
            subset=subset,
            hessian=hessian,
            predictive=predictive,
            setting="a",
            random_state=0,
            device=device,
        ).fit(X, y)
        for device in ("cpu", "cuda")
    ]
    cpu, gpu = both
    assert gpu.prior_precision_ == pytest.approx(cpu.prior_precision_, rel=1e-4)
    p = cpu.predict_proba(X)
    assert_allclose(gpu.predict_proba(X), p, rtol=1e-3, atol=1e-5)
    expected = cpu.predict_uncertainty(X).epistemic
    epistemic = gpu.predict_uncertainty(X).epistemic
    assert_allclose(epistemic, expected, rtol=1e-2, atol=1e-5)


def test_mixture_of_laplace_approximations():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = (rng.normal(size=(90, 4)) + 2 * np.eye(4)[y]).astype(np.float32)
    net = TorchClassifier(max_epochs=10, lr=0.03, device="cuda")
    clf = MixtureLaplace(Laplace(net, device="cuda"), 2, random_state=0).fit(X, y)
    assert clf.score(X, y) > 0.7
    assert (clf.predict_uncertainty(X).epistemic > 0).all()


@pytest.mark.parametrize(
    "kind", [DeepEnsemble, SnapshotEnsemble, MCDropout], ids=lambda kind: kind.__name__
)
def test_ensembles_and_dropout(kind):
    """What was trained on the GPU, or on the CPU, is the same on both."""
    X = np.random.default_rng(0).normal(size=(80, 1, 8, 8)).astype(np.float32)
    y = np.arange(80) % 3
    X[np.arange(80), 0, y] += 1.5
    net = TorchClassifier(
        module_params={"dropout": 0.3},
        max_epochs=20,
        lr=0.01,
        random_state=0,
        device="cuda",
    )
    options = {"random_state": 0} if kind is not SnapshotEnsemble else {}
    clf = kind(net, 4, **options).fit(X, y)
    assert next(clf.estimator_.module_.parameters()).is_cuda
    members = clf.predict_members(X)
    assert_array_equal(clf.predict_members(torch.as_tensor(X).cuda()), members)
    if kind is MCDropout:  # masks are drawn on the CPU
        expected = clf.set_params(device="cpu").predict_members(X)
    else:
        for member in clf.estimators_:
            member.module_.cpu()
        expected = clf.predict_members(X)
    assert_allclose(members, expected, rtol=1e-3, atol=1e-5)
    assert np.ptp(members, axis=0).max() > 1e-3
    assert clf.score(X, y) > 0.7


@pytest.mark.parametrize("chunk_size", ["auto", 3])
@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_adversarial_models(scope, chunk_size):
    """In double precision the searches are those of the CPU."""
    X, y = digits(60, dtype=np.float64)
    module = lenet(torch.float64)
    cpu, gpu = (
        QUAM(
            pretrained(module),
            scope=scope,
            search=AdversarialSearch(
                n_steps=8, eta=1.5, update_every=3, batch_size=16, chunk_size=chunk_size
            ),
            random_state=0,
            device=device,
        ).fit(X, y)
        for device in ("cpu", "cuda")
    )
    assert_allclose(gpu.penalty_features_, cpu.penalty_features_, rtol=1e-9, atol=1e-10)
    points = digits(7, seed=3, dtype=np.float64)[0]
    expected, result = cpu.predict_uncertainty(points), gpu.predict_uncertainty(points)
    for name in ("total", "aleatoric", "epistemic"):
        assert_allclose(result[name], expected[name], rtol=1e-6)
    samples = torch.as_tensor(points).cuda()
    again = gpu.predict_uncertainty(samples)
    assert_allclose(again.epistemic, result.epistemic, rtol=1e-6)
    trace = gpu.trace(points[:1])
    assert_allclose(trace.loss, cpu.trace(points[:1]).loss, rtol=1e-6)
    assert next(module.parameters()).device.type == "cpu"


@pytest.mark.parametrize("scope", ["last", "dense", "full"])
def test_adversarial_models_of_a_regressor(scope):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(X[:, 0]) + rng.normal(scale=0.1, size=60)
    net = MLPRegressor(hidden_layer_sizes=(8,), max_iter=200, random_state=0)
    frozen = FrozenEstimator(net.fit(X, y))
    cpu, gpu = (
        QUAM(
            frozen,
            scope=scope,
            search=AdversarialSearch(n_steps=8),
            random_state=0,
            device=device,
        )
        .fit(X, y)
        .predict_uncertainty(X[:5])
        for device in ("cpu", "cuda")
    )
    assert_allclose(gpu.epistemic, cpu.epistemic, rtol=1e-6)

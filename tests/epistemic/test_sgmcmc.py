"""Cyclical stochastic-gradient HMC against a loop and against quadrature."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import make_moons
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skood.epistemic import CyclicalSchedule, CyclicalSGHMC
from skood.epistemic.mcmc._base_sampler import Posterior
from skood.exceptions import SkoodWarning
from tests.epistemic import _logistic

X, y = make_moons(60, noise=0.1, random_state=0)


def _quick(estimator=None, **kwargs):
    if estimator is None:
        estimator = MLPClassifier((6,), solver="lbfgs", max_iter=50, random_state=0)
    schedule = CyclicalSchedule(n_cycles=2, epochs_per_cycle=4, samples_per_cycle=2)
    clf = CyclicalSGHMC(
        estimator, schedule, batch_size=25, random_state=0, device="cpu"
    )
    return clf.set_params(**kwargs)


def _softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


@pytest.mark.parametrize("exploration", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("init", ["estimator", "prior"])
def test_against_a_loop(exploration, init):
    """Plain NumPy with the same draws gives the same samples."""
    n_cycles, n_epochs, lr, mu, scale, temperature = 2, 4, 0.3, 0.7, 0.8, 0.6
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    clf = _quick(
        frozen,
        schedule__lr=lr,
        schedule__momentum=mu,
        schedule__exploration=exploration,
        prior_scale=scale,
        temperature=temperature,
        init=init,
        random_state=3,
    ).fit(X, y)
    seed = np.random.RandomState(3).randint(np.iinfo(np.int32).max)
    generator = torch.Generator().manual_seed(int(seed))

    def noise():
        draws = torch.empty((1, 6), dtype=torch.float64)
        return draws.normal_(generator=generator)[0].numpy()

    coef, bias = frozen.coef_[0], frozen.intercept_[0]
    theta = np.concatenate([-coef / 2, coef / 2, [-bias / 2, bias / 2]])
    if init == "prior":
        theta = scale * noise()
    r, stored, step, n_steps = np.zeros(6), [], 0, n_epochs * 3
    for _ in range(n_cycles):
        step = 0
        for epoch in range(n_epochs):
            order = torch.randperm(60, generator=generator).numpy()
            for batch in (order[:20], order[20:40], order[40:]):
                grad = -theta / scale**2
                for i in batch:
                    p = _softmax(theta[:4].reshape(2, 2) @ X[i] + theta[4:])
                    error = (np.arange(2) == y[i]) - p
                    grad[:4] += 60 / 20 * np.outer(error, X[i]).ravel()
                    grad[4:] += 60 / 20 * error
                now = lr / 2 * (math.cos(math.pi * step / n_steps) + 1)
                h = math.sqrt(now / 60)
                r = mu * r + h * grad
                if step / n_steps >= exploration:
                    r = r + math.sqrt(2 * (1 - mu) * temperature) * noise()
                theta = theta + h * r
                step += 1
            if epoch >= 2:
                stored.append(theta)
    stored = np.array(stored)
    assert_allclose(clf.samples_["0.weight"].reshape(4, 4), stored[:, :4], rtol=1e-9)
    assert_allclose(clf.samples_["0.bias"], stored[:, 4:], rtol=1e-9)


def test_no_momentum_and_no_noise_is_gradient_descent():
    """The learning rate is that of the mean loss."""
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    clf = _quick(
        frozen,
        batch_size=60,
        schedule=CyclicalSchedule(
            n_cycles=1,
            epochs_per_cycle=1,
            samples_per_cycle=1,
            exploration=1.0,
            lr=0.5,
            momentum=0.0,
        ),
    ).fit(X, y)
    posterior = Posterior(frozen, X, y, device="cpu")
    before = posterior.initial
    _, grad = posterior.value_and_grad(before)
    after = posterior.models.flatten(clf.samples_)
    torch.testing.assert_close(after, before + 0.5 * grad / 60)
    assert not torch.allclose(after, before)


@pytest.mark.parametrize(
    "momentum, prior_scale, temperature",
    [pytest.param(0.5, 1.0, 1.0, marks=pytest.mark.slow), (0.7, 2.0, 0.5)],
)
def test_small_steps_sample_the_posterior(momentum, prior_scale, temperature):
    """Means, variances and covariance, at a momentum far from 1 too."""
    frozen, n_chains = _logistic.frozen(), 1000
    clf = _quick(frozen, schedule__lr=0.1, temperature=temperature)
    clf.set_params(schedule__momentum=momentum)
    posterior = Posterior(
        frozen, _logistic.X, _logistic.y, prior_scale=prior_scale, device="cpu"
    )
    generator = torch.Generator().manual_seed(0)
    indices = torch.arange(posterior.n_samples)
    theta = posterior.initial.expand(n_chains, -1)
    r, stored = torch.zeros_like(theta), []
    for step in range(400):
        theta, r = clf._step(clf.schedule, posterior, theta, r, indices, 0.0, generator)
        if step >= 200 and step % 20 == 0:
            stored.append(theta)
    samples = posterior.models.split(torch.stack(stored, dim=1).flatten(0, 1))
    result, error = _logistic.sample_moments({k: w.numpy() for k, w in samples.items()})
    exact = _logistic.Quadrature(prior_scale, temperature).moments()
    assert (np.abs(result - exact) < 4 * error).all()
    # sharp enough to tell another variance of the noise, as 1 - momentum^2
    assert (error[2:4] < 0.25 * (1 - momentum) / 2 * exact[2:4]).all()


def test_errors_keep_what_was_fitted():
    clf = _quick(schedule__momentum=0.0).fit(X, y)
    before = clf.samples_
    with pytest.raises(
        ValueError,
        match=r"samples_per_cycle=5 must not be larger than epochs_per_cycle=4",
    ):
        clf.set_params(schedule__samples_per_cycle=5).fit(X, y)
    clf.set_params(schedule__samples_per_cycle=1, schedule__epochs_per_cycle=200)
    clf.set_params(schedule__lr=1e8)
    with pytest.raises(
        ValueError, match=r"became infinite in epoch \d+: lr=100000000.0 is too large"
    ):
        clf.fit(X, y)
    assert clf.samples_ is before


def test_divergence_is_reported():
    """Before it ends in infinity, it gives samples that are sure of anything."""
    with pytest.warns(SkoodWarning, match="CyclicalSGHMC diverged") as caught:
        clf = _quick(
            schedule__lr=20.0, schedule__epochs_per_cycle=6, schedule__momentum=0.5
        ).fit(X, y)
    (message,) = (str(w.message) for w in caught)
    posterior = Posterior(clf.estimator_, X, y, device="cpu")
    value = float(posterior.value_and_grad(posterior.initial)[0])
    n_far = np.sum(clf.log_density_ < value - 10 * (32 + 60))
    assert n_far > 0
    assert f"log density of {n_far} of 4 samples is as low as" in message
    assert f"{clf.log_density_.min():.3g}. It is {value:.3g} at the given" in message
    assert "samples of 32 weights should be about 16 below the mode" in message
    assert "Lower lr=20.0" in message


@pytest.mark.parametrize("init", ["estimator", "prior"])
def test_no_divergence_is_no_warning(init):
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkoodWarning)
        _quick(init=init).fit(X, y)

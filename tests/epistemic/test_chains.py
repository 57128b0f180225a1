"""Hamiltonian Monte Carlo against closed forms, loops and invariants; R-hat."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from skood.epistemic.mcmc import _hmc as _chains
from skood.epistemic.mcmc._hmc import (
    _DualAveraging,
    _Sampler,
    leapfrog,
    r_hat,
    sample,
)
from skood.utils._progress import progress


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def _sample(value_and_grad, start, *, seed=0, **kwargs):
    bar = progress(1, desc="", verbose=0)
    options = {"n_samples": 100, "n_warmup": 0, "n_leapfrog": 5}
    return sample(
        value_and_grad,
        torch.as_tensor(start, dtype=torch.float64),
        generator=_generator(seed),
        bar=bar,
        **{**options, **kwargs},
    )


def _gaussian(mean, covariance):
    precision = torch.as_tensor(np.linalg.inv(covariance))
    mean = torch.as_tensor(mean)

    def value_and_grad(z):
        grad = -(z - mean) @ precision
        return 0.5 * ((z - mean) * grad).sum(dim=1), grad

    return value_and_grad


def _quartic(z):
    """Not a normal density: its force grows with the third power."""
    value = -0.25 * (z**4).sum(dim=1) - 0.5 * (z[:, 0] * z[:, 1])
    return value, -(z**3) - 0.5 * z[:, [1, 0]]


def _follow(z, r, step, n_steps, inverse_mass=None):
    if inverse_mass is None:
        inverse_mass = torch.ones(z.shape[1], dtype=z.dtype)
    step = torch.full((len(z), 1), step, dtype=z.dtype)
    return leapfrog(_quartic, z, r, *_quartic(z), step, n_steps, inverse_mass)


def _state(n_chains=3, seed=0):
    draws = torch.randn(2, n_chains, 2, generator=_generator(seed), dtype=torch.float64)
    return draws[0], draws[1]


# --- leapfrog ------------------------------------------------------------------


def test_leapfrog_is_reversible():
    z, r = _state()
    mass = torch.tensor([0.5, 2.0], dtype=torch.float64)
    z1, r1, value, grad = _follow(z, r, 0.1, 17, mass)
    back, momentum, *_ = _follow(z1, -r1, 0.1, 17, mass)
    assert not torch.allclose(z1, z, atol=0.1)
    torch.testing.assert_close(back, z, rtol=0, atol=1e-12)
    torch.testing.assert_close(-momentum, r, rtol=0, atol=1e-12)
    torch.testing.assert_close((value, grad), _quartic(z1))


def test_energy_error_is_of_second_order():
    z, r = _state()

    def error(n_steps):
        _, r1, value, _ = _follow(z, r, 1.0 / n_steps, n_steps)
        return (0.5 * (r1**2 - r**2).sum(dim=1) - value + _quartic(z)[0]).abs()

    for coarse, fine in ((50, 100), (100, 200)):
        ratio = error(coarse) / error(fine)
        torch.testing.assert_close(
            ratio, torch.full_like(ratio, 4.0), rtol=0.02, atol=0
        )


def test_leapfrog_keeps_volume():
    z, r = _state(n_chains=1)

    def flow(state):
        end = _follow(state[None, :2], state[None, 2:], 0.2, 5)
        return torch.cat([end[0][0], end[1][0]])

    jacobian = torch.autograd.functional.jacobian(flow, torch.cat([z[0], r[0]]))
    assert float(torch.det(jacobian)) == pytest.approx(1.0, abs=1e-12)
    assert not torch.allclose(jacobian, torch.eye(4, dtype=torch.float64), atol=0.5)


def test_chains_do_not_see_each_other():
    z, r = _state()
    together = _follow(z, r, 0.1, 4)
    for i in range(3):
        alone = _follow(z[i : i + 1], r[i : i + 1], 0.1, 4)
        for result, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(result[i : i + 1], expected)


# --- transitions ---------------------------------------------------------------


def test_single_chain_against_a_loop():
    """Plain Python with the same draws gives the same samples."""
    step, n_leapfrog, n = 0.4, 5, 60
    chains = _sample(
        _quartic, [[1.0, -1.0]], step_size=step, n_samples=n, n_leapfrog=n_leapfrog
    )

    def log_p(z):
        return -0.25 * (z[0] ** 4 + z[1] ** 4) - 0.5 * z[0] * z[1]

    def force(z):
        return [-(z[0] ** 3) - 0.5 * z[1], -(z[1] ** 3) - 0.5 * z[0]]

    generator = _generator()
    z, accepted = [1.0, -1.0], []
    for i in range(n):
        n_steps = int(torch.randint(3, 8, (1,), generator=generator))
        r = torch.empty(1, 2, dtype=torch.float64).normal_(generator=generator)
        r = r[0].tolist()
        u = float(torch.empty(1, dtype=torch.float64).uniform_(generator=generator))
        q, p = list(z), list(r)
        for _ in range(n_steps):
            half = [a + 0.5 * step * b for a, b in zip(p, force(q), strict=True)]
            q = [a + step * b for a, b in zip(q, half, strict=True)]
            p = [a + 0.5 * step * b for a, b in zip(half, force(q), strict=True)]
        change = log_p(q) - log_p(z) + 0.5 * sum(a * a for a in r)
        change -= 0.5 * sum(a * a for a in p)
        accepted.append(min(1.0, math.exp(change)))
        z = q if u < accepted[-1] else z
        assert_allclose(chains.samples[0, i], z, rtol=1e-9)
        assert float(chains.log_density[0, i]) == pytest.approx(log_p(z), rel=1e-9)
    assert 0 < sum(a < 1 for a in accepted)
    assert len({tuple(row) for row in chains.samples[0].tolist()}) < n  # a rejection
    assert_allclose(chains.acceptance_rate, [np.mean(accepted)], rtol=1e-9)
    assert chains.step_size.tolist() == [step]
    assert chains.n_divergences.tolist() == [0]


def _z_scores(draws, expected):
    """Distance of means from what is expected, in their Monte-Carlo errors."""
    draws = draws[:, : draws.shape[1] // 10 * 10]
    batches = draws.reshape(len(draws) * 10, -1, *draws.shape[2:]).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
    return np.abs(batches.mean(axis=0) - expected) / error


@pytest.mark.parametrize("adapt_mass", [False, True])
def test_correlated_gaussian(adapt_mass):
    covariance = np.array([[4.0, 1.2, 0.0], [1.2, 0.5, 0.1], [0.0, 0.1, 0.2]])
    mean = np.array([1.0, -2.0, 3.0])
    chains = _sample(
        _gaussian(mean, covariance),
        np.zeros((8, 3)),
        n_samples=750,
        n_warmup=200,
        n_leapfrog=8,
        adapt_mass=adapt_mass,
    )
    draws = chains.samples.numpy()
    assert _z_scores(draws, mean).max() < 4
    products = (draws - mean)[..., :, None] * (draws - mean)[..., None, :]
    assert _z_scores(products, covariance).max() < 4
    assert r_hat(draws).max() < 1.01
    assert chains.n_divergences.sum() == 0


def test_thinning_keeps_every_third():
    start = np.ones((2, 2))
    all_of_them = _sample(_quartic, start, step_size=0.2, n_samples=30)
    thinned = _sample(_quartic, start, step_size=0.2, n_samples=10, thin=3)
    torch.testing.assert_close(thinned.samples, all_of_them.samples[:, 2::3])
    torch.testing.assert_close(thinned.log_density, all_of_them.log_density[:, 2::3])
    assert_allclose(thinned.acceptance_rate, all_of_them.acceptance_rate)


def test_long_steps_diverge_and_are_rejected():
    chains = _sample(_quartic, np.ones((2, 2)), step_size=50.0, n_samples=7, thin=2)
    assert chains.n_divergences.tolist() == [14, 14]
    assert chains.acceptance_rate.tolist() == [0.0, 0.0]
    assert (chains.samples == 1.0).all()


def test_undefined_densities_are_rejected():
    def square_root(z):  # NaN below zero
        return torch.sqrt(z[:, 0]) - z[:, 0], 0.5 / torch.sqrt(z) - 1

    chains = _sample(square_root, [[1.0]], step_size=0.5, n_samples=300)
    assert (chains.samples > 0).all()
    assert torch.isfinite(chains.log_density).all()
    assert 0 < chains.acceptance_rate[0] < 1


# --- adaptation ----------------------------------------------------------------


def test_dual_averaging_against_the_published_algorithm():
    """Hoffman & Gelman 2014, algorithm 5, in scalars."""
    rng = np.random.default_rng(0)
    accepts = rng.uniform(size=30)
    averaging = _DualAveraging(torch.tensor([0.3], dtype=torch.float64), 0.65)
    assert averaging.mean().tolist() == [0.3]
    mu, h, log_mean = math.log(10 * 0.3), 0.0, 0.0
    for m, accept in enumerate(accepts, start=1):
        h = (1 - 1 / (m + 10)) * h + (0.65 - accept) / (m + 10)
        log_step = mu - math.sqrt(m) / 0.05 * h
        log_mean = m**-0.75 * log_step + (1 - m**-0.75) * log_mean
        averaging.update(torch.tensor([accept], dtype=torch.float64))
        assert float(averaging.step) == pytest.approx(math.exp(log_step))
        assert float(averaging.mean()) == pytest.approx(math.exp(log_mean))


def test_target_orders_the_steps():
    gaussian = _gaussian(np.zeros(10), np.diag(np.linspace(0.5, 2, 10)))
    results = [
        _sample(gaussian, np.zeros((2, 10)), n_warmup=300, target_accept=target)
        for target in (0.5, 0.8, 0.95)
    ]
    steps = [item.step_size.mean() for item in results]
    rates = [item.acceptance_rate.mean() for item in results]
    assert steps[0] > steps[1] > steps[2] > 0
    assert rates[0] < rates[1] < rates[2]
    assert abs(rates[1] - 0.8) < 0.1


def test_first_step_on_a_plateau_is_finite():
    """Nothing is ever rejected, so the search has to end on its own."""

    def flat(z):
        return torch.zeros(len(z), dtype=torch.float64), torch.zeros_like(z)

    sampler = _Sampler(flat, torch.zeros((2, 3), dtype=torch.float64), _generator())
    step = sampler.first_step(torch.full((2,), 0.1, dtype=torch.float64))
    assert torch.isfinite(step).all() and (step > 1e20).all()


def test_single_gradient_per_transition():
    """The number of steps has nothing to vary; this is Langevin dynamics."""
    gaussian = _gaussian(np.zeros(2), np.eye(2))
    chains = _sample(
        gaussian, np.zeros((6, 2)), n_leapfrog=1, step_size=0.8, n_samples=700
    )
    draws = chains.samples.numpy()
    assert _z_scores(draws**2, np.ones(2)).max() < 4


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_first_step_follows_the_scale(scale):
    """One step of it is accepted about half of the time, whatever the units."""
    gaussian = _gaussian(np.zeros(20), scale**2 * np.eye(20))
    start = scale * torch.randn(4, 20, generator=_generator(1), dtype=torch.float64)
    sampler = _Sampler(gaussian, start, _generator())
    step = sampler.first_step(torch.full((4,), 0.1, dtype=torch.float64))
    assert (step > 0.3 * scale).all() and (step < 5 * scale).all()


def test_masses_are_inverse_variances():
    """Scales that differ by 1e4 are sampled with few steps."""
    variances = np.array([1e-4, 1.0, 1e4])
    kwargs = {"n_warmup": 400, "n_leapfrog": 6, "n_samples": 150}
    results = [
        _sample(
            _gaussian(np.zeros(3), np.diag(variances)),
            np.zeros((6, 3)),
            adapt_mass=adapt,
            **kwargs,
        )
        for adapt in (False, True)
    ]
    without, adapted = (item.samples.numpy().var(axis=(0, 1)) for item in results)
    assert without[2] < 0.5 * variances[2]
    assert_allclose(adapted, variances, rtol=0.4)


# --- R-hat ---------------------------------------------------------------------


def _naive_r_hat(draws):
    """Equations 3, 4 and 14 of Vehtari et al. 2021, for one quantity."""
    n = draws.shape[1] // 2
    halves = [half for chain in draws for half in (chain[:n], chain[-n:])]
    median = np.median(np.concatenate(halves))

    def ratio_of(chains):
        values = np.concatenate(chains)
        z = []
        for chain in chains:
            row = []
            for value in chain:
                rank = np.sum(values < value) + (np.sum(values == value) + 1) / 2
                row.append(norm.ppf((rank - 3 / 8) / (len(values) + 1 / 4)))
            z.append(row)
        means = [np.mean(row) for row in z]
        between = n * np.sum((means - np.mean(means)) ** 2) / (len(z) - 1)
        within = np.mean([np.sum((row - np.mean(row)) ** 2) / (n - 1) for row in z])
        return np.sqrt(((n - 1) / n * within + between / n) / within)

    return max(ratio_of(halves), ratio_of([np.abs(half - median) for half in halves]))


@pytest.mark.parametrize("n_draws", [4, 15, 40])
def test_r_hat_against_a_loop(n_draws):
    draws = np.random.default_rng(0).standard_t(3, size=(3, n_draws, 2, 2))
    draws[..., 1] = draws[..., 1].round()  # ties
    r_hats = r_hat(draws)
    for i in range(2):
        for j in range(2):
            expected = _naive_r_hat(draws[:, :, i, j])
            assert r_hats[i, j] == pytest.approx(expected, rel=1e-12)


def test_r_hat_finds_what_is_wrong():
    rng = np.random.default_rng(0)
    good = rng.normal(size=(4, 500))
    assert r_hat(good) == pytest.approx(1.0, abs=0.01)
    assert r_hat(np.exp(30 * good)) == pytest.approx(r_hat(good), abs=0.01)
    shifted, wide, drifting = good.copy(), good.copy(), good.copy()
    shifted[0] += 2
    wide[0] *= 5
    drifting += np.linspace(-2, 2, 500)
    for bad in (shifted, wide, drifting):
        assert r_hat(bad) > 1.1


def test_r_hat_of_constants():
    assert r_hat(np.ones((2, 10))) == 1.0
    # each chain has a value of its own
    assert r_hat(np.repeat([[1.0], [2.0]], 10, axis=1)) == np.inf


def test_r_hat_in_small_pieces(monkeypatch):
    """Memory is bounded, and each number is on its own."""
    draws = np.random.default_rng(0).normal(size=(3, 21, 4, 5)).astype(np.float32)
    expected = r_hat(draws)
    assert expected.shape == (4, 5)
    seen = []

    def pieces(n_numbers, n_bytes):
        seen.append((n_numbers, n_bytes))
        return (slice(i, i + 3) for i in range(0, n_numbers, 3))

    monkeypatch.setattr(_chains, "row_chunks", pieces)
    assert_array_equal(r_hat(draws), expected)
    assert seen == [(20, 10 * 8 * 63)]
    assert r_hat(draws[:, :, 1, 2]).shape == ()
    assert r_hat(draws[:, :, 1, 2]) == expected[1, 2]

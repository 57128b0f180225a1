"""Hamiltonian Monte Carlo with parallel chains for any log density, and R-hat."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from itertools import pairwise

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.utils import Bunch

from skood.utils._torch import row_chunks

# A larger error of the energy counts as a divergence.
_DIVERGED = 1000.0

# Number of arrays of the size of the draws that R-hat needs.
_COPIES = 10


def leapfrog(value_and_grad, z, r, value, grad, step, n_steps, inverse_mass):
    """Return position, momentum, value and gradient of all chains after `n_steps`.

    ``value_and_grad(z)`` returns log densities (n_chains,) in float64, and their
    gradients. `z` and `r` have the shape (n_chains, n_dims), `step` (n_chains, 1) and
    `inverse_mass` (n_dims,).
    """
    r = r + 0.5 * step * grad
    for i in range(n_steps):
        z = z + step * inverse_mass * r
        value, grad = value_and_grad(z)
        r = r + (step if i + 1 < n_steps else 0.5 * step) * grad
    return z, r, value, grad


class _DualAveraging:
    """Dual averaging of step sizes (Hoffman & Gelman 2014, Sec. 3.2)."""

    gamma, t0, kappa = 0.05, 10.0, 0.75

    def __init__(self, step, target):
        self.target = target
        self.mu = torch.log(10.0 * step)
        self.h = torch.zeros_like(step)
        self.log_mean = torch.zeros_like(step)
        self.n = 0
        self.step = step

    def update(self, accept):
        self.n += 1
        weight = 1.0 / (self.n + self.t0)  # Eq. (6)
        self.h = (1 - weight) * self.h + weight * (self.target - accept)
        log_step = self.mu - math.sqrt(self.n) / self.gamma * self.h
        weight = self.n**-self.kappa
        self.log_mean = weight * log_step + (1 - weight) * self.log_mean
        self.step = torch.exp(log_step)

    def mean(self):
        return torch.exp(self.log_mean) if self.n else self.step


class _Sampler:
    """State and transitions of the chains."""

    def __init__(self, value_and_grad, start, generator, n_leapfrog=1, bar=None):
        self.value_and_grad = value_and_grad
        self.generator = generator
        self.n_leapfrog = n_leapfrog
        self.bar = bar
        self.z = start.clone()
        self.value, self.grad = value_and_grad(self.z)
        self.inverse_mass = torch.ones_like(start[0])

    def _energy(self, value, r):
        return 0.5 * (r.square() * self.inverse_mass).double().sum(dim=1) - value

    def _propose(self, step, n_steps):
        """Return the end of a random trajectory and the decrease of the energy."""
        noise = torch.empty_like(self.z).normal_(generator=self.generator)
        r = noise / self.inverse_mass.sqrt()
        end = leapfrog(
            self.value_and_grad,
            self.z,
            r,
            self.value,
            self.grad,
            step[:, None].to(r.dtype),
            n_steps,
            self.inverse_mass,
        )
        gain = self._energy(self.value, r) - self._energy(end[2], end[1])
        return end, torch.nan_to_num(gain, nan=-math.inf)

    def transition(self, step):
        """Move each chain; return acceptance probabilities and divergences.

        The number of steps is drawn between about 0.5 and 1.5 times `n_leapfrog`.
        """
        n = self.n_leapfrog
        low, high = (n + 1) // 2, n + n // 2
        if low < high:
            place = {"generator": self.generator, "device": self.z.device}
            low = int(torch.randint(low, high + 1, (1,), **place))
        (z, _, value, grad), gain = self._propose(step, low)
        self.bar.update(1)
        accept = gain.clamp(max=0.0).exp()
        u = torch.empty_like(accept).uniform_(generator=self.generator)
        moved = u < accept
        self.z = torch.where(moved[:, None], z, self.z)
        self.grad = torch.where(moved[:, None], grad, self.grad)
        self.value = torch.where(moved, value, self.value)
        return accept, gain < -_DIVERGED

    def first_step(self, step):
        """Double or halve the step sizes until one step is accepted half the time."""
        up = None
        for _ in range(100):
            _, gain = self._propose(step, 1)
            good = gain > math.log(0.5)
            if up is None:
                up, going = good, torch.ones_like(good)
            going &= good == up
            if not going.any():
                break
            factor = torch.where(up, 2.0, 0.5).to(step.dtype)
            step = torch.where(going, step * factor, step)
        return step


def _warm_up(sampler, n_warmup, target_accept, adapt_mass):
    """Adapt the step sizes and, optionally, the masses; return the step sizes."""
    step = torch.full_like(sampler.value, 0.1)
    # growing windows, so that late values dominate
    ends = [n_warmup * share // 8 for share in (0, 1, 2, 4, 8)]
    for start, end in pairwise(ends):
        step = sampler.first_step(step)
        averaging = _DualAveraging(step, target_accept)
        draws = []
        for i in range(end - start):
            accept, _ = sampler.transition(averaging.step)
            averaging.update(accept)
            if adapt_mass and i >= (end - start) // 2:
                draws.append(sampler.z)
        step = averaging.mean()
        if len(draws) > 1 and end < n_warmup:
            sampler.inverse_mass = _shrunk_variance(torch.stack(draws))
    return step


def _shrunk_variance(draws):
    """Return the variance within the chains, shrunk towards a small one as in Stan."""
    n_draws = draws.shape[0] * draws.shape[1]
    variance = draws.double().var(dim=0).mean(dim=0)
    return ((n_draws * variance + 5e-3) / (n_draws + 5)).to(draws.dtype)


def sample(
    value_and_grad,
    start,
    *,
    n_samples,
    n_warmup,
    n_leapfrog,
    generator,
    bar,
    thin=1,
    target_accept=0.8,
    step_size=None,
    adapt_mass=False,
):
    """Sample from a density by Hamiltonian Monte Carlo, all chains in parallel.

    ``value_and_grad(z)`` maps positions (n_chains, n_dims), independent of each other,
    to log densities (n_chains,), up to a constant and in float64, and their gradients.
    The number of steps of a trajectory is drawn around the mean `n_leapfrog`, to avoid
    periodic orbits; the step size is not adapted if it is given.

    Returns the tensors ``samples`` (n_chains, n_samples, n_dims) and ``log_density``
    (n_chains, n_samples), and ndarrays (n_chains,) over the transitions after warm-up:
    ``acceptance_rate``, ``step_size`` and ``n_divergences``.
    """
    sampler = _Sampler(value_and_grad, start, generator, n_leapfrog, bar)
    if step_size is None:
        step = _warm_up(sampler, n_warmup, target_accept, adapt_mass)
    else:
        step = torch.full_like(sampler.value, step_size)
        for _ in range(n_warmup):
            sampler.transition(step)
    n_chains, n_dims = start.shape
    samples = start.new_empty((n_chains, n_samples, n_dims))
    log_density = step.new_empty((n_chains, n_samples))
    accepted, diverged = torch.zeros_like(step), torch.zeros_like(step)
    for i in range(n_samples * thin):
        accept, bad = sampler.transition(step)
        accepted += accept
        diverged += bad
        if (i + 1) % thin == 0:
            samples[:, i // thin] = sampler.z
            log_density[:, i // thin] = sampler.value
    return Bunch(
        samples=samples,
        log_density=log_density,
        acceptance_rate=(accepted / (n_samples * thin)).cpu().numpy(),
        step_size=step.cpu().numpy(),
        n_divergences=diverged.cpu().numpy().astype(int),
    )


# --- convergence diagnostics -----------------------------------------------


def r_hat(draws):
    """Return the rank-normalized split R-hat (...) of draws (n_chains, n_draws, ...).

    The halves of the chains are compared as separate chains, for the bulk and, by the
    distances of the draws from their median, for the tails; the larger value counts
    (Vehtari et al. 2021). It is near 1 if the chains agree, and 1 where all draws are
    the same. There are at least four draws per chain.
    """
    draws = np.asarray(draws)
    flat = draws.reshape(*draws.shape[:2], -1)
    n_bytes = _COPIES * 8 * flat.shape[0] * flat.shape[1]
    parts = [
        _split_r_hat(flat[:, :, some].astype(np.float64))
        for some in row_chunks(flat.shape[2], n_bytes)
    ]
    return np.concatenate(parts).reshape(draws.shape[2:])


def _split_r_hat(draws):
    n_draws = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :n_draws], draws[:, -n_draws:]])
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.maximum(_rank_r_hat(halves), _rank_r_hat(folded))


def _rank_r_hat(draws):
    shape = draws.shape
    flat = draws.reshape(shape[0] * shape[1], -1)
    ranks = rankdata(flat, axis=0)
    scores = ndtri((ranks - 0.375) / (len(flat) + 0.25)).reshape(shape)
    n = shape[1]
    # Eqs. (3) and (4) of Vehtari et al. 2021, with B / n = between
    within = scores.var(axis=1, ddof=1).mean(axis=0)
    between = scores.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(within > 0, between / within, np.where(between > 0, np.inf, 0))
        # all draws are the same
        return np.where(
            (within == 0) & (between == 0), 1.0, np.sqrt((n - 1) / n + ratio)
        )

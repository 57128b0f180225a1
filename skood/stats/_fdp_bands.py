"""Bands and envelopes that hold for all ranks at once, with a given probability."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import lru_cache

import numpy as np
from scipy.special import betainc, betaincinv, gammaln, xlogy

from skood.utils._ties import loosened

# Number of simulated calibration sets, their seed, and how many of them at a time.
_N_DRAWS = 4000
_SEED = 0
_CHUNK = 500

# The smallest tail probability of a draw is searched among this many ranks, where the
# deviance is largest, and at both ends, where it is a coarse approximation.
_N_CANDIDATES = 32
_N_ENDS = 8

# Number of ranks at which the envelope is computed.
_N_RANKS = 64


@lru_cache(maxsize=32)
def simes_band(n, delta):
    """Return b_0, ..., b_{n+1} of the generalized Simes inequality, see [1] of StepUp.

    P(U_(r) <= b_r for all r) >= 1 - delta for order statistics of n uniform variables.
    """
    k = max(n // 2, 1)
    i = np.arange(1, n + 1, dtype=np.float64)
    # the product over l < k of (i - l) / (n - l), as factorials
    with np.errstate(invalid="ignore"):
        log_product = gammaln(i + 1) - gammaln(i - k + 1) - gammaln(n + 1)
    log_product += gammaln(n - k + 1)
    root = np.where(i < k, 0.0, np.exp((np.log(delta) + log_product) / k))
    return _frozen(np.concatenate([[0.0], (1.0 - root)[::-1], [1.0]]))


@lru_cache(maxsize=32)
def local_band(n, delta):
    """Return b_0, ..., b_{n+1} with equal local levels gamma, found by simulation.

    b_r is the 1 - gamma quantile of Beta(r, n + 1 - r), the law of U_(r).
    """
    rng = np.random.default_rng(_SEED)
    smallest = np.concatenate(
        [_smallest_tails(n, rng) for _ in range(0, _N_DRAWS, _CHUNK)]
    )
    gamma = _lower_quantile(smallest, delta)
    r = np.arange(1, n + 1)
    # the upper quantile of Beta(a, b) is one minus the lower of Beta(b, a), which is
    # accurate for small levels
    band = 1.0 - betaincinv(n + 1.0 - r, r, gamma)
    return _frozen(np.concatenate([[0.0], np.maximum.accumulate(band), [1.0]]))


def _smallest_tails(n, rng):
    """Return min_r P(Beta(r, n + 1 - r) >= U_(r)) of a chunk of simulated draws."""
    u = np.sort(rng.random((_CHUNK, n)), axis=1)
    r = np.arange(1, n + 1)
    fraction = (r - 0.5) / n
    # the tail probability is about that of sqrt(2 n KL(fraction, u)), which is cheaper
    entropy = xlogy(fraction, fraction) + xlogy(1 - fraction, 1 - fraction)
    deviance = entropy - fraction * np.log(u) - (1 - fraction) * np.log1p(-u)
    deviance[u < fraction] *= -1
    deviance[:, :_N_ENDS] = deviance[:, -_N_ENDS:] = np.inf
    n_candidates = min(_N_CANDIDATES, n)
    at = np.argpartition(deviance, n - n_candidates, axis=1)[:, n - n_candidates :]
    at_u = np.take_along_axis(u, at, axis=1)
    tails = betainc(n - at.astype(np.float64), at + 1.0, 1.0 - at_u)
    return tails.min(axis=1)


def _lower_quantile(statistics, delta):
    """Return the floor(delta (B + 1))-th smallest of B statistics, 0 if there is none.

    A further statistic that is exchangeable with them is smaller with a probability of
    at most delta.
    """
    k = int(np.floor(loosened(delta * (len(statistics) + 1))))
    return float(np.sort(statistics)[k - 1]) if k else 0.0


def _frozen(values):
    values.flags.writeable = False
    return values


def _tails(n, m, r):
    """Return P(BetaBinomial(m, r, n + 1 - r) >= b) for b = 0, ..., m."""
    b = np.arange(m + 1, dtype=np.float64)
    log_mass = (
        gammaln(m + 1) - gammaln(b + 1) - gammaln(m - b + 1) + gammaln(b + r)
    ) + (gammaln(m - b + n + 1 - r) - gammaln(m + n + 1.0))
    log_mass -= gammaln(r) + gammaln(n + 1.0 - r) - gammaln(n + 1.0)
    return np.minimum(np.cumsum(np.exp(log_mass)[::-1])[::-1], 1.0)


def envelope(n, m, gamma, ranks):
    """Return B_r = max{b : P(BetaBinomial(m, r, n + 1 - r) >= b) >= gamma}."""
    return np.array(
        # P(. >= 0) = 1, so that the count is at least 1
        [np.count_nonzero(_tails(n, m, r) >= gamma) - 1 for r in ranks]
    )


@lru_cache(maxsize=32)
def local_envelope(n, m, delta):
    """Return ranks r, at most 64, and B_r at them, with equal local levels gamma.

    N_r, the number of m uniform test samples below the r-th smallest of n calibration
    samples, is at most B_r at all ranks with a probability of at least 1 - delta.
    """
    ranks = np.unique(np.rint(np.geomspace(1, n, _N_RANKS)).astype(np.intp))
    rng = np.random.default_rng(_SEED)
    smallest = np.ones(_N_DRAWS)
    below, previous = np.zeros(_N_DRAWS, dtype=np.int64), 0
    for r in ranks:
        # U_(r) given the previous order statistic, and the test samples in between
        step = rng.beta(r - previous, n + 1 - r, _N_DRAWS)
        below += rng.binomial(m - below, step)
        np.minimum(smallest, _tails(n, m, r)[below], out=smallest)
        previous = r
    gamma = _lower_quantile(smallest, delta)
    return _frozen(ranks), _frozen(envelope(n, m, gamma, ranks))

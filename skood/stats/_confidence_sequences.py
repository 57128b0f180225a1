"""Confidence sequences for a rate: of counts, and of bounded values with weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln

from skood.utils._stored import stored

# Fractions of the largest bet that keeps capital positive.
FRACTIONS = 0.5 ** np.arange(1, 9)

# Symmetric: 1 - m is the grid in reverse order.
_GRID = np.sin(np.pi * np.arange(1, 512) / 1024) ** 2

# Samples whose factors, at most 1.1e5, are multiplied before a logarithm is taken, and
# the powers of 1 / m for their products.
_DEGREE = 32
_POWERS = (1 / _GRID[:, None]) ** np.arange(_DEGREE + 1)

# Samples processed at once.
_CHUNK = 16 * _DEGREE


def beta_interval(successes, n, delta, failures=None):
    """Return the Beta(1/2, 1/2) mixture interval of a rate, valid at all times.

    ``log B(1/2 + S, 1/2 + N - S) - log B(1/2, 1/2) - S log m - (N - S) log(1 - m) <
    log(1 / delta)`` (Robbins, 1970), convex in m.
    """
    failures = n - successes if failures is None else failures
    if n == 0:
        return 0.0, 1.0
    level = betaln(0.5 + successes, 0.5 + failures) - betaln(0.5, 0.5) + np.log(delta)
    level = float(level)

    def excess(m):
        return level - successes * math.log(m) - failures * math.log1p(-m)

    center, tiny = successes / n, 1e-300
    low = 0.0 if successes == 0 else brentq(excess, tiny, _inside(center), xtol=1e-15)
    if failures == 0:
        return low, 1.0

    def mirrored(q):  # for digits next to one
        return level - successes * math.log1p(-q) - failures * math.log(q)

    return low, 1 - brentq(mirrored, tiny, _inside(1 - center), xtol=1e-15)


def _inside(m):
    return min(m, 1 - 1e-16)


@stored
@dataclass(frozen=True)
class CountBand:
    """Counts of zeros and ones; `lost` samples are written off, see `HedgedBand`."""

    n: int = 0
    successes: int = 0
    lost: int = 0

    def extend(self, weight, x, lost):
        """Return the band after more samples; a weight of zero excludes a sample."""
        used = weight > 0
        seen = used & ~lost
        n = int(np.count_nonzero(seen))
        return CountBand(
            self.n + n,
            self.successes + int(np.count_nonzero(x[seen])),
            self.lost + int(np.count_nonzero(used)) - n,
        )

    def __add__(self, other):
        return CountBand(
            self.n + other.n, self.successes + other.successes, self.lost + other.lost
        )

    @property
    def estimate(self):
        return self.successes / self.n if self.n else np.nan

    def interval(self, delta):
        """Return the interval, the hull over all labels of samples written off."""
        n = self.n + self.lost
        low, high = beta_interval(self.successes, n, delta)
        if self.lost:
            _, high = beta_interval(self.successes + self.lost, n, delta)
        return low, high


@stored
@dataclass(frozen=True)
class HedgedBand:
    """Log products of bets on a grid of rates, and weighted sums.

    ``K+(m) = mean_i prod_t (1 + c_i r_t (x_t / m - 1))`` and ``K-(m)``, the same on 1 -
    x and 1 - m (Waudby-Smith and Ramdas, 2024). A sample that was written off counts
    as 0 in K+ and as 1 in K-.
    """

    above: np.ndarray  # log products of K+, (n_fractions, n_grid)
    below: np.ndarray  # of K-
    weight: float = 0.0
    weighted_x: float = 0.0

    @classmethod
    def empty(cls):
        nothing = np.zeros((len(FRACTIONS), len(_GRID)))
        return cls(nothing, nothing)

    def extend(self, weight, x, lost):
        """Return the band after more samples with weights r_t in [0, 1]."""
        used = weight > 0
        weight, x, lost = weight[used], x[used], lost[used]
        above, below = self.above.copy(), self.below.copy()
        for at in range(0, len(x), _CHUNK):
            part = slice(at, at + _CHUNK)
            bets = weight[part, None] * FRACTIONS
            above += _log_product(bets, np.where(lost[part], 0.0, x[part]))
            low = np.where(lost[part], 0.0, 1 - x[part])
            below += _log_product(bets, low)[:, ::-1]
        seen = ~lost
        return HedgedBand(
            above,
            below,
            self.weight + float(weight[seen].sum()),
            self.weighted_x + float(weight[seen] @ x[seen]),
        )

    def __add__(self, other):
        return HedgedBand(
            self.above + other.above,
            self.below + other.below,
            self.weight + other.weight,
            self.weighted_x + other.weighted_x,
        )

    @property
    def estimate(self):
        return self.weighted_x / self.weight if self.weight else np.nan

    def interval(self, delta):
        """Return the interval, its ends rounded outward to the grid."""
        level = np.log(2 / delta)
        excluded = np.flatnonzero(_log_mean(self.above) >= level)
        low = float(_GRID[excluded[-1]]) if len(excluded) else 0.0
        excluded = np.flatnonzero(_log_mean(self.below) >= level)
        return low, float(_GRID[excluded[0]]) if len(excluded) else 1.0


def _log_product(bets, x):
    """Return log prod_t (1 + bet_t (x_t / m - 1)), of shape (n_fractions, n_grid).

    The products of some samples are polynomials in 1 / m with positive coefficients.
    """
    n_samples, n_fractions = bets.shape
    degree = min(n_samples, _DEGREE)
    n_blocks = -(-n_samples // degree)
    padded = np.zeros((n_blocks * degree, n_fractions))
    padded[:n_samples] = bets
    slope = np.zeros_like(padded)
    slope[:n_samples] = bets * x[:, None]
    shape = (n_blocks, degree, n_fractions)
    constant, slope = (1 - padded).reshape(shape), slope.reshape(shape)
    coefficients = np.zeros((degree + 1, n_blocks, n_fractions))
    coefficients[0] = 1
    for k in range(degree):
        by_slope = coefficients[: k + 1] * slope[:, k]
        coefficients[: k + 1] *= constant[:, k]
        coefficients[1 : k + 2] += by_slope
    products = _POWERS[:, : degree + 1] @ coefficients.reshape(degree + 1, -1)
    logs = np.log(products).reshape(len(_GRID), n_blocks, n_fractions)
    return logs.sum(axis=1).T


def _log_mean(logs):
    """Return the logarithm of the mean of exponentials over the first axis."""
    top = logs.max(axis=0)
    return top + np.log(np.exp(logs - top).mean(axis=0))

"""Confidence sequences for a rate: of counts, and of bounded values with weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln

from skood.utils._stored import stored

__all__ = ["FRACTIONS", "CountBand", "HedgedBand", "beta_interval"]

# Fractions of the largest bet that keeps capital positive.
FRACTIONS = 0.5 ** np.arange(1, 9)

_GRID = np.sin(np.pi * np.arange(1, 512) / 1024) ** 2

# Samples whose factors, at most 6e4, are multiplied before a logarithm is taken.
_CHUNK = 32


def beta_interval(successes, n, delta, failures=None):
    """Return the Beta(1/2, 1/2) mixture interval of a rate, valid at all times.

    ``log B(1/2 + S, 1/2 + N - S) - log B(1/2, 1/2) - S log m - (N - S) log(1 - m) <
    log(1 / delta)`` (Robbins, 1970), convex in m.
    """
    failures = n - successes if failures is None else failures
    if n == 0:
        return 0.0, 1.0
    level = betaln(0.5 + successes, 0.5 + failures) - betaln(0.5, 0.5) + np.log(delta)

    def excess(m):
        return level - successes * np.log(m) - failures * np.log1p(-m)

    center, tiny = successes / n, 1e-300
    low = 0.0 if successes == 0 else brentq(excess, tiny, _inside(center), xtol=1e-15)
    if failures == 0:
        return low, 1.0

    def mirrored(q):  # for digits next to one
        return level - successes * np.log1p(-q) - failures * np.log(q)

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
        return CountBand(
            self.n + int((used & ~lost).sum()),
            self.successes + int(x[used & ~lost].sum()),
            self.lost + int((used & lost).sum()),
        )

    @property
    def estimate(self):
        return self.successes / self.n if self.n else np.nan

    def interval(self, delta):
        """Return the interval, the hull over all labels of samples written off."""
        n = self.n + self.lost
        low, _ = beta_interval(self.successes, n, delta)
        return low, beta_interval(self.successes + self.lost, n, delta)[1]


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
            rows = slice(at, at + _CHUNK)
            bets = weight[rows, None] * FRACTIONS
            low = np.where(lost[rows], 0.0, x[rows])
            high = np.where(lost[rows], 1.0, x[rows])
            above += _log_product(bets, low, _GRID)
            below += _log_product(bets, 1 - high, 1 - _GRID)
        seen = ~lost
        return HedgedBand(
            above,
            below,
            self.weight + float(weight[seen].sum()),
            self.weighted_x + float(weight[seen] @ x[seen]),
        )

    @property
    def estimate(self):
        return self.weighted_x / self.weight if self.weight else np.nan

    def interval(self, delta):
        """Return the interval, its ends rounded outward to the grid."""
        level = np.log(2 / delta) + np.log(len(FRACTIONS))
        excluded = np.flatnonzero(np.logaddexp.reduce(self.above, axis=0) >= level)
        low = float(_GRID[excluded[-1]]) if len(excluded) else 0.0
        excluded = np.flatnonzero(np.logaddexp.reduce(self.below, axis=0) >= level)
        return low, float(_GRID[excluded[0]]) if len(excluded) else 1.0


def _log_product(bets, x, m):
    """Return log prod_t (1 + bet_t (x_t / m - 1)), of shape (n_fractions, n_grid)."""
    gain = x[:, None] / m - 1
    return np.log((1 + bets[:, :, None] * gain[:, None, :]).prod(axis=0))

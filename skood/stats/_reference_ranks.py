"""Ranks of a stream among calibration scores, and bets on them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from skood.utils._stored import stored

# Uniform numbers drawn at once; their values depend on it.
_DRAWN = 1024

POWERS = (0.25, 0.5, 0.75, 0.9)
SHIFTS = (0.25, 0.5, 1.0)
SHAPES = tuple(f"power {parameter:g}" for parameter in POWERS) + tuple(
    f"shift {parameter:g}" for parameter in SHIFTS
)


def bet_table(n_calibration, alternative="ood"):
    """Return the bets of shape (n_shapes, n_calibration + 1), each of mean one.

    ``f[j] = (n + 1) (F((j + 1) / (n + 1)) - F(j / (n + 1)))`` for the distribution
    functions ``F(u) = u^kappa`` and ``F(u) = Phi(Phi^-1(u) + delta)``. All decrease in
    j; for "id" they are mirrored.
    """
    n_gaps = n_calibration + 1
    u = np.arange(n_gaps + 1) / n_gaps
    v = u[::-1]
    lines = [np.diff(u**power) for power in POWERS]
    for shift in SHIFTS:
        from_below = np.diff(ndtr(ndtri(u) + shift))
        from_above = -np.diff(ndtr(ndtri(v) - shift))  # more digits above one half
        lines.append(np.where(u[1:] <= 0.5, from_below, from_above))
    ood = n_gaps * np.array(lines)
    if alternative == "ood":
        return ood
    mirrored = ood[:, ::-1]
    return mirrored.copy() if alternative == "id" else np.vstack([ood, mirrored])


def tied_ranks(ordered, ties, scores, tie_breakers):
    """Return how many calibration samples rank below samples by (score, tie-breaker).

    `ordered` and `ties`, of shape (n_calibration,), are sorted in this order.
    """
    # NumPy orders complex numbers by the real, then by the imaginary part
    return _pairs(ordered, ties).searchsorted(_pairs(scores, tie_breakers), side="left")


def _pairs(scores, ties):
    pairs = np.empty(len(scores), dtype=np.complex128)
    pairs.real, pairs.imag = scores, ties
    return pairs


@stored
@dataclass(frozen=True)
class ReferenceScores:
    """Calibration scores with tie-breakers, and the bets on ranks among them.

    `scores` and `ties` have shape (n_calibration,), `table`, the transpose of
    `bet_table`, has shape (n_calibration + 1, n_shapes).
    """

    scores: np.ndarray
    ties: np.ndarray
    table: np.ndarray
    conservative: bool

    @classmethod
    def make(cls, scores, ties, alternative, conservative):
        order = np.lexsort((ties, scores))
        # one line per rank: the bets of a sample are in one place of the memory
        table = np.ascontiguousarray(bet_table(len(scores), alternative).T)
        return cls(scores[order], ties[order], table, conservative)

    def _bets_of_one(self, scores, draw_ties, total, n_before):
        """Return the results of `bets` for one sample, ties broken at random."""
        j = self.scores.searchsorted(scores[0])
        if j < len(self.scores) and self.scores[j] == scores[0]:
            breaker = draw_ties(np.zeros(1, dtype=np.int64))
            j = tied_ranks(self.scores, self.ties, scores, breaker)[0]
        added = self.table[j]
        bets = added * (n_before + 1) / total
        return bets[:, None], total + added

    def bets(self, scores, draw_ties, total, n_before):
        """Return the bets (n_shapes, n_samples), and the totals S after the last.

        `draw_ties` returns the tie-breakers of samples by their positions; `total`, of
        shape (n_shapes,), is S, and `n_before` counts calibration and stream.
        """
        if len(scores) == 1 and not self.conservative:  # for the speed of small calls
            return self._bets_of_one(scores, draw_ties, total, n_before)
        low = self.scores.searchsorted(scores)
        tied = np.flatnonzero(self.scores.take(low, mode="clip") == scores)
        if self.conservative:
            # smallest and largest bet in the block: each bet is monotone in the rank
            high = self.scores.searchsorted(scores, side="right")
            ends = self.table.take(low, axis=0), self.table.take(high, axis=0)
            smallest, added = np.minimum(*ends), np.maximum(*ends)
        else:
            if tied.size:
                breakers = draw_ties(tied)
                low[tied] = tied_ranks(self.scores, self.ties, scores[tied], breakers)
            smallest = added = self.table.take(low, axis=0)
        totals = np.empty((len(total), len(scores) + 1))
        totals[:, 0] = total
        totals[:, 1:] = added.T
        np.cumsum(totals, axis=1, out=totals)
        count = np.arange(n_before + 1, n_before + len(scores) + 1, dtype=np.float64)
        bets = np.ascontiguousarray(smallest.T)
        bets *= count
        bets /= totals[:, :-1]
        return bets, totals[:, -1].copy()


def stream_uniforms(seed, positions):
    """Return uniform numbers for samples of a stream by their positions.

    The numbers depend on the position only, not on how the stream is cut.
    """
    blocks, where = np.divmod(positions, _DRAWN)
    values = np.empty(len(positions))
    for block in np.unique(blocks):
        drawn = np.random.default_rng([seed, int(block), 0]).random(_DRAWN)
        inside = blocks == block
        values[inside] = drawn[where[inside]]
    return values

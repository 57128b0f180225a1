"""Lower bounds of an interval of angles, for branch and bound."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from typing import Literal, NamedTuple

import numpy as np

from skood.decision._base_rule import Linear
from skood.decision._calibration_sample import cumulated
from skood.utils._ties import GUARD
from skood.utils._weights import row_weight

# Number of coarse pieces; a position is in doubt by this share of a piece.
_PIECES, _DOUBT = 500, 1e-6


class Line(NamedTuple):
    """Threshold that is linear in s, given at both ends of an interval."""

    start: float
    end: float

    @property
    def middle(self):
        return (self.start + self.end) / 2


class Node(NamedTuple):
    """Node of the search: an interval of angles and its undecided samples.

    Samples accepted by every possibly optimal rule of the interval are only counted
    (`base`); samples accepted by no such rule are dropped.
    """

    turn: int
    s: Line
    size: float  # number (weight) of accepted samples where the bound is least
    reference: Line
    low: float  # thresholds that may be optimal, relative to `reference`
    high: float
    rows: np.ndarray
    base: tuple
    bound: float
    most: float
    stuck: bool = False


class Relaxation:
    """Lower bounds of an interval for every threshold.

    At a threshold t (relative to the reference), samples whose largest projected score
    is at most t are surely accepted, and samples whose smallest is above t are surely
    rejected. The other samples are accepted if that is better, separately for the
    objective and for each bound, which gives a lower bound for each. All lower bounds
    change at the smallest projected scores only, or grow in between: so each of these
    scores starts a piece of thresholds, and one piece is before the first. Coarse
    pieces, of equal width, need no sort; their bounds hold for all of their thresholds.
    """

    def __init__(self, search, node, coarse=False):
        self.search = search
        x, y = search.problem.turned(node.turn, node.rows)
        ends = [x * (1 - s) + y * s for s in node.s]
        # A threshold that accepts the same number of samples at both ends turns around
        # a point such that few samples change sides. The bound is tight near this
        # point, so the point is put where the bound of the whole interval was least.
        size = node.size - node.base[0] - node.base[2]
        reference = [search.problem.score_at(p, size, node.rows) for p in ends]
        shift = [old - new for old, new in zip(node.reference, reference, strict=True)]
        self.node = node = node._replace(
            reference=Line(*reference),
            low=node.low + min(shift),
            high=node.high + max(shift),
        )
        ends = [p - t for p, t in zip(ends, reference, strict=True)]
        self.low, self.high = np.minimum(*ends), np.maximum(*ends)
        self.is_id, self.loss = search.is_id[node.rows], search.loss[node.rows]
        self.weight = row_weight(search.weight, node.rows)
        (self._coarse_pieces if coarse else self._pieces)()
        # a piece must not be empty, and must meet the remaining thresholds
        start, end = self.starts[:-1], self.starts[1:]
        self.valid = (start < end) & (start <= node.high) & (end > node.low)
        of_id = self.is_id if self.weight is None else self.is_id * self.weight
        self.N_most = node.base[0] + self.possible(of_id)
        self.N_least = node.base[0] + self.sure(of_id)

    def _pieces(self):
        """Set the starts of pieces, and sums over samples for every piece."""
        by_low, by_high = np.argsort(self.low), np.argsort(self.high)
        self.starts = np.concatenate([[-math.inf], self.low[by_low], [math.inf]])
        side: Literal["left", "right"] = "left" if self.search.randomize else "right"
        n_sure = np.searchsorted(self.high[by_high], self.starts[:-1], side=side)
        self.possible = lambda values: cumulated(values[by_low])
        self.sure = lambda values: cumulated(values[by_high])[n_sure]

    def _coarse_pieces(self):
        """Set them for coarse pieces."""
        some = np.sort(self.low[:: -(-self.low.size // _PIECES)])
        start, end = some[some.size // 50], some[-1 - some.size // 50]
        width = (end - start) / _PIECES
        if not _DOUBT / 1000 * max(abs(start), abs(end)) < width:  # edges are rounded
            return self._pieces()
        edges = start + width * np.arange(_PIECES + 1)
        self.starts = np.concatenate([[-math.inf], edges, [math.inf]])
        n_pieces = edges.size + 1
        # in doubt, a sample is possible a piece earlier, and sure a piece later
        with np.errstate(over="ignore"):
            first = (self.low - start) / width + (1 - _DOUBT)
            last = (self.high - start) / width + (2 + _DOUBT)
        first = np.clip(first, 0, n_pieces - 1).astype(np.intp)
        last = np.clip(last, 1, n_pieces).astype(np.intp)
        self.possible = lambda values: np.cumsum(
            np.bincount(first, values, minlength=n_pieces)
        )
        self.sure = lambda values: np.cumsum(
            np.bincount(last, values, minlength=n_pieces + 1)[:-1]
        )
        return None

    def least(self, function):
        """Return the least value of a linear function for every piece."""
        weights = np.where(self.is_id, float(function.id), float(function.ood))
        if self.weight is not None:
            weights *= self.weight
        if function.loss:
            weights += function.loss * self.loss
        possible = self.possible(np.minimum(weights, 0))
        sure = self.sure(np.maximum(weights, 0))
        return function.at(*self.node.base) + possible + sure

    def solve(self):
        """Return a lower bound of the objective and the largest N for every piece."""
        goal = self.search.goal
        valid = self.valid & (self.N_most >= goal.n_min - GUARD)
        for bound in goal.bounds:
            valid &= self.least(bound) <= GUARD
        if not valid.any():
            return np.full(valid.size, math.inf), self.N_most
        value = self.risk(valid) if goal.cost is None else self.cost()
        return np.where(valid, value, math.inf), self.N_most

    def risk(self, valid):
        """Return a lower bound of the selective risk.

        For any number c, ``E - c N`` is at least the least value G of this linear
        function, and so ``E / N`` is at least ``c + G / N``.
        """
        worst = self.search.worst
        bound = self.risk_from(worst)
        best = self.search.value()
        near = best if math.isfinite(best) else worst / 2
        bound = np.maximum(bound, self.risk_from(near))
        return np.maximum(bound, self.risk_from(float(bound[valid].min())))

    def risk_from(self, c):
        """Return the bound for a number c."""
        G = self.least(Linear(id=-c, loss=1.0))
        N = np.where(
            G < 0, np.maximum(self.N_least, self.search.goal.n_min), self.N_most
        )
        return np.divide(G, N, out=np.zeros(G.size), where=N > 0) + c

    def cost(self):
        """Return a lower bound of a linear objective.

        A bound with a multiplier is added to it, so that a sample with the largest loss
        costs nothing: accepting it for only one of the two gains nothing.
        """
        cost, worst = self.search.goal.cost, self.search.worst
        value = self.least(cost)
        for bound in self.search.goal.bounds:
            price = bound.id + bound.loss * worst
            nu = -(cost.id + cost.loss * worst) / price if price else 0.0
            if nu > 0:
                both = Linear(*(a + nu * b for a, b in zip(cost, bound, strict=True)))
                value = np.maximum(value, self.least(both))
        return value

    def size_at(self, k):
        """Return how many samples a piece accepts in the middle of the interval."""
        t = self.starts[k] if k else self.starts[1]
        within = (self.low + self.high) / 2 <= t
        inside = np.count_nonzero(within)
        if self.weight is not None:
            inside = self.weight[within].sum()
        return inside + self.node.base[0] + self.node.base[2]

    def decided(self, first, last):
        """Return the thresholds and samples of the pieces from `first` to `last`."""
        low = max(self.node.low, self.starts[first])
        high = min(self.node.high, self.starts[last + 1])
        surely = self.high < low if self.search.randomize else self.high <= low
        never = (self.low > high) | (self.low >= self.starts[last + 1])
        return low, high, ~(surely | never), surely

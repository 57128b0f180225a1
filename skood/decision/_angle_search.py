"""Searches over the angle: a grid, all cells of angles, and branch and bound."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import heapq
import itertools
import math
import operator
from typing import Literal, NamedTuple

import numpy as np

from skood.decision._base_rule import Linear
from skood.decision._calibration_sample import better, pick, points_before
from skood.utils._ties import GUARD, ends_of_ties

# The work of the exact search grows with the square of the number of samples.
MAX_SAMPLES = 5000
# Number of best cells that are recounted until one attains its counted value.
_CANDIDATES, _ROUNDING = 64, 1e-12
# Cells narrower than this are merged: no rule in between can be represented.
_NARROW = 1e-12

# Number of intervals of a quadrant at the start: wider ones are never decided.
_FIRST = 8
_OFFSET = (math.sqrt(5) - 2) / 100
# Intervals with at most this many undecided samples are searched cell by cell.
_LEAF = 40
# Also intervals where halving decides less than a fifth of the samples, if at most so
# many distinct points and so many cells are left.
_STUCK, _PAIRS, _CELLS = 0.8, 1000, 100
# With more undecided samples, thresholds are first bounded in coarse pieces.
_MANY = 4000
# Beyond this many intervals the search stops with the remaining gap.
_MAX_NODES = 5000

# Number of coarse pieces; a position is in doubt by this fraction of a piece.
_PIECES, _DOUBT = 500, 1e-6


def grid_search(problem, goal, thetas, randomize=False):
    """Return the best rule over given angles, or None, and its value."""
    best = None
    for theta in thetas:
        candidate = problem.best_at(theta, goal, randomize=randomize)
        if candidate is not None and better(candidate, best, goal.rtol):
            best = candidate
    return best, math.inf if best is None else best.value


class _Pivots:
    """Samples with finite scores in one quadrant, and the search around them."""

    def __init__(self, problem, goal, turn, randomize):
        self.problem, self.goal, self.randomize = problem, goal, randomize
        self.start = turn * (math.pi / 2)
        finite, first = problem.split_off_infinite(turn)
        self.base = np.array(problem.counts(first), dtype=float)
        self.x, self.y = problem.turned(turn, finite)
        self.indices = np.flatnonzero(finite)
        is_id = problem.is_id[finite]
        self.summands = [is_id, problem.loss[finite], ~is_id]
        if problem.weight is not None:
            weight = problem.weight[finite]
            self.summands[::2] = is_id * weight, ~is_id * weight

    def _counts(self, mask):
        return np.array(self.problem.counts(self.indices[mask]), dtype=float)

    def around(self, i):
        """Return the angles that bound the cells, and N, E, F in each cell.

        A sample is accepted with the pivot as the threshold iff its projected score is
        not larger. In a quadrant this changes at most once: samples with a larger first
        and a smaller second score enter; samples with a smaller first and a larger
        second score leave.
        """
        dx, dy = self.x - self.x[i], self.y - self.y[i]
        same = (dx == 0) & (dy == 0)
        always = (dx <= 0) & (dy <= 0)
        enter, leave = (dx > 0) & (dy < 0), (dx < 0) & (dy > 0)
        moving = np.flatnonzero(enter | leave)
        phi = np.arctan2(np.abs(dx[moving]), np.abs(dy[moving]))
        order = np.argsort(phi)
        moving, phi = moving[order], phi[order]
        sign = np.where(enter[moving], 1.0, -1.0)
        # a cell begins where a whole group of equal angles has been passed
        ends = np.flatnonzero(np.diff(phi, append=math.pi / 2) > _NARROW)
        start = always | leave
        at_start = self.base + self._counts(start)
        counts = [
            np.concatenate([[count], count + np.cumsum(sign * change[moving])[ends]])
            for count, change in zip(at_start, self.summands, strict=True)
        ]
        edges = np.concatenate([[0.0], phi[ends], [math.pi / 2]])
        if phi.size and phi[0] <= _NARROW:
            # the first cell has no width
            counts, edges = [c[1:] for c in counts], edges[1:]
        return edges, counts, self._counts(same)

    def best_around(self, i):
        """Return (value, -N, F, angle, accepted samples) of the best cell, or None."""
        edges, after, tied = self.around(i)
        N, _, F = after
        if self.randomize:
            before = [count - t for count, t in zip(after, tied, strict=True)]
            value, _, N, F = (x.ravel() for x in self.goal.mixtures(before, after))
        else:
            value = self.goal.value(*after)
        k = pick(value, N, F, self.goal.rtol)
        if k is None:
            return None
        cell = k % (edges.size - 1)
        middle = self.start + (edges[cell] + edges[cell + 1]) / 2
        size = self.problem.size_of(after[0][cell], after[2][cell])
        # rounded, so that ties do not depend on the order of summation
        value = round(float(value[k]), 13)
        return value, -float(N[k]), float(F[k]), float(middle), size


def pivot_sweep(problem, goal, *, turns=(0,), randomize=False):
    """Minimize over all angles and thresholds."""
    # no nearby angle resolves the ties of a single score: the ends are extra
    ends = [k * (math.pi / 2) for turn in turns for k in (turn, turn + 1)]
    best, _ = grid_search(problem, goal, ends, randomize)
    cells: list = []
    for turn in turns:
        pivots = _Pivots(problem, goal, turn, randomize)
        for i in range(pivots.x.size):
            cell = pivots.best_around(i)
            if cell is not None:
                cells.append(cell)
    for cell in heapq.nsmallest(_CANDIDATES, cells):
        if best is not None and cell[0] > best.value + _ROUNDING:
            break
        candidate = problem.at_size(*cell[3:], goal, randomize=randomize)
        if candidate is not None and better(candidate, best, goal.rtol):
            best = candidate
    return best, math.inf if best is None else best.value


class Line(NamedTuple):
    """Threshold that is linear in s, given at both ends of an interval."""

    start: float
    end: float


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
    indices: np.ndarray
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
        x, y = search.problem.turned(node.turn, node.indices)
        start, end = x * (1 - node.s.start) + y * node.s.start, x * (1 - node.s.end)
        end += y * node.s.end
        # A threshold that accepts the same number of samples at both ends turns around
        # a point such that few samples change sides. The bound is tight near this
        # point, so the point is put where the bound of the whole interval was least.
        size = node.size - node.base[0] - node.base[2]
        reference = Line(
            search.problem.score_at(start, size, node.indices),
            search.problem.score_at(end, size, node.indices),
        )
        shift = np.subtract(node.reference, reference)
        self.node = node = node._replace(
            reference=reference,
            low=node.low + shift.min(),
            high=node.high + shift.max(),
        )
        start -= reference.start
        end -= reference.end
        self.low, self.high = np.minimum(start, end), np.maximum(start, end)
        self.is_id, self.loss = search.is_id[node.indices], search.loss[node.indices]
        self.weight = None
        if search.weight is not None:
            self.weight = search.weight[node.indices]
        if not (coarse and self._coarse_pieces()):
            by_low, by_high = np.argsort(self.low), np.argsort(self.high)
            self.starts = np.concatenate([[-math.inf], self.low[by_low], [math.inf]])
            side: Literal["left", "right"] = "left" if search.randomize else "right"
            n_sure = np.searchsorted(self.high[by_high], self.starts[:-1], side=side)
            self.totals = lambda possible, sure: (
                np.cumsum(np.append(0.0, possible[by_low])),
                np.cumsum(np.append(0.0, sure[by_high]))[n_sure],
            )
        # a piece must not be empty, and must meet the remaining thresholds
        start, end = self.starts[:-1], self.starts[1:]
        self.valid = (start < end) & (start <= node.high) & (end > node.low)
        of_id = self.is_id if self.weight is None else self.is_id * self.weight
        possible, sure = self.totals(of_id, of_id)
        self.N_most, self.N_least = node.base[0] + possible, node.base[0] + sure

    def _coarse_pieces(self):
        """Set the starts and the sums of coarse pieces, unless rounding excludes it."""
        sample = np.sort(self.low[:: -(-self.low.size // _PIECES)])
        start, end = sample[sample.size // 50], sample[-1 - sample.size // 50]
        width = (end - start) / _PIECES
        if not _DOUBT / 1000 * max(abs(start), abs(end)) < width:  # edges are rounded
            return False
        edges = start + width * np.arange(_PIECES + 1)
        self.starts = np.concatenate([[-math.inf], edges, [math.inf]])
        n_pieces = edges.size + 1
        # in doubt, a sample is possible a piece earlier, and sure a piece later
        with np.errstate(over="ignore"):
            first = (self.low - start) / width + (1 - _DOUBT)
            last = (self.high - start) / width + (2 + _DOUBT)
        first = np.clip(first, 0, n_pieces - 1).astype(np.intp)
        last = np.clip(last, 1, n_pieces).astype(np.intp)
        self.totals = lambda possible, sure: (
            np.cumsum(np.bincount(first, possible, minlength=n_pieces)),
            np.cumsum(np.bincount(last, sure, minlength=n_pieces + 1)[:-1]),
        )
        return True

    def least(self, function):
        """Return the least value of a linear function for every piece."""
        weights = np.where(self.is_id, float(function.id), float(function.ood))
        if self.weight is not None:
            weights *= self.weight
        if function.loss:
            weights += function.loss * self.loss
        possible, sure = self.totals(np.minimum(weights, 0), np.maximum(weights, 0))
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
        worst, best = self.search.worst, self.search.value()
        near = best if math.isfinite(best) else worst / 2
        bound = np.full(valid.size, -math.inf)
        for number in (worst, near, None):
            c = float(bound[valid].min()) if number is None else number
            G = self.least(Linear(id=-c, loss=1.0))
            N = np.where(
                G < 0, np.maximum(self.N_least, self.search.goal.n_min), self.N_most
            )
            quotient = np.divide(G, N, out=np.zeros(G.size), where=N > 0)
            bound = np.maximum(bound, quotient + c)
        return bound

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

    def narrowed(self, first, last, best):
        """Return the node with the pieces from `first` to `last`, and decided samples.

        `best` is the piece with the least bound, whose size in the middle of the
        interval becomes that of the node.
        """
        t = self.starts[best] if best else self.starts[1]
        within = (self.low + self.high) / 2 <= t
        inside = np.count_nonzero(within)
        if self.weight is not None:
            inside = self.weight[within].sum()
        node, end = self.node, self.starts[last + 1]
        low, high = max(node.low, self.starts[first]), min(node.high, end)
        surely = self.high < low if self.search.randomize else self.high <= low
        never = (self.low > high) | (self.low >= end)
        counted = self.search.problem.counts(node.indices[surely])
        return node._replace(
            size=inside + node.base[0] + node.base[2],
            low=low,
            high=high,
            indices=node.indices[~(surely | never)],
            base=tuple(map(operator.add, node.base, counted)),
        )


class _AngleSearch:
    """State of one search."""

    def __init__(self, problem, goal, randomize):
        self.problem, self.goal, self.randomize = problem, goal, randomize
        self.is_id, self.loss = problem.is_id, problem.loss
        self.weight = problem.weight
        self.worst = float(problem.loss_id.max())
        self.best = None
        self.nodes = 0

    # s in [0, 1] is an angle: the weights (1 - s, s) are linear in s, so that a
    # projected score has its extremes at the ends of an interval.

    @staticmethod
    def theta(turn, s):
        """Return the angle of s."""
        return turn * (math.pi / 2) + math.atan2(s, 1 - s)

    def value(self):
        """Return the best value so far."""
        return math.inf if self.best is None else self.best.value

    def try_angle(self, theta):
        """Search all thresholds at an angle; return the accepted count of the best."""
        lam, N, E, F = self.problem.points(theta)
        before = points_before(N, E, F) if self.randomize else None
        best = self.problem.best_of(theta, lam, N, E, F, goal=self.goal, before=before)
        if best is not None:
            if better(best, self.best, self.goal.rtol):
                self.best = best
            return self.problem.size_of(best.N, best.F)
        excess = np.zeros(N.shape)
        for bound in self.goal.bounds:
            excess += np.maximum(bound.at(N, E, F), 0)
        k = np.argmin(excess)  # of the least total violation, in samples
        return self.problem.size_of(N[k], F[k])

    def roots(self, turn):
        """Return the first intervals of a quadrant that may hold the best rule."""
        ends = np.linspace(0, 1, _FIRST + 1)
        # Scores that are whole numbers are tied at angles such as pi / 4, where
        # rounding would separate tied samples.
        ends[1:-1] += _OFFSET
        sizes = []
        for s in ends:
            sizes.append(self.try_angle(self.theta(turn, s)))
        finite, first = self.problem.split_off_infinite(turn)
        base, indices = self.problem.counts(first), np.flatnonzero(finite)
        limits = -math.inf, math.inf
        nodes = []
        for k in range(_FIRST if indices.size else 0):
            s, size = Line(ends[k], ends[k + 1]), sizes[k]
            node = Node(turn, s, size, Line(0.0, 0.0), *limits, indices, base, *limits)
            nodes.append(self.bounded(node))
        return nodes

    def size(self, indices):
        """Return the number of samples, in which whole weights are repeats."""
        if self.weight is None or self.weight.dtype.kind != "i":
            return indices.size
        return self.weight[indices].sum()

    def bounded(self, node):
        """Bound the interval from below, and drop the samples that are decided.

        Returns None if no rule of the interval can be better than the best one.
        """
        self.nodes += 1
        for coarse in (True, False):
            if (coarse and node.indices.size <= _MANY) or not node.indices.size:
                continue
            relaxed = Relaxation(self, node, coarse)
            node = relaxed.node
            bound, most = relaxed.solve()
            limit = self.value()
            if math.isfinite(limit):
                limit += self.goal.rtol * abs(limit)
            alive = np.flatnonzero((bound <= limit) & np.isfinite(bound))
            if not alive.size:
                return None
            best = alive[np.argmin(bound[alive])]
            node = relaxed.narrowed(alive[0], alive[-1], best)._replace(
                bound=max(node.bound, float(bound[alive].min())),
                most=float(most[alive].max()),
            )
        return node

    def try_inside(self, node, s):
        """Search all thresholds that may be optimal at an angle inside of a node.

        Points are in the order of `Problem.points`, with thresholds relative to zero in
        units of s; the first accepts no undecided sample.
        """
        x, y = self.problem.turned(node.turn, node.indices)
        projected = x * (1 - s) + y * s
        order = np.argsort(projected)
        ranked = projected[order]
        last = ends_of_ties(ranked) if ranked.size else np.empty(0, dtype=int)
        t = np.append(-math.inf, ranked[last])
        fraction = (s - node.s.start) / (node.s.end - node.s.start)
        middle = node.reference.start * (1 - fraction) + node.reference.end * fraction
        # thresholds up to the next one are equivalent
        inside = t <= middle + node.high
        inside[:-1] &= t[1:] > middle + node.low
        after, before = [], []
        sums, ends = self.problem.cumulated(node.indices[order]), np.append(0, last + 1)
        for base, counts in zip(node.base, sums, strict=True):
            count = base + counts[ends]
            after.append(count[inside])
            if self.randomize:
                # the first point is no group of tied samples: accepted as a whole
                before.append(np.append(count[0], count[:-1])[inside])
        t = t[inside]
        best = self.problem.best_of(
            self.theta(node.turn, s),
            t,
            *after,
            goal=self.goal,
            before=before if self.randomize else None,
        )
        if best is not None and better(best, self.best, self.goal.rtol):
            k = np.argmax(t == best.lam)
            self.confirm(best, self.problem.size_of(after[0][k], after[2][k]))

    def confirm(self, candidate, size):
        """Consider the rule that accepts `size` samples, recounted on all samples."""
        theta = candidate.theta
        true = self.problem.at_size(theta, size, self.goal, randomize=self.randomize)
        if true is not None and better(true, self.best, self.goal.rtol):
            self.best = true
        if true is None or better(candidate, true, self.goal.rtol):
            # counts of the undecided samples differ by rounding: recount all of them
            self.try_angle(theta)

    def cells(self, node, most):
        """Return one s of each cell of an interval; None if there are too many.

        Between two angles at which undecided samples change order, or enter or leave
        the thresholds of the node, all angles are equivalent.
        """
        edges = np.array([node.low, node.high])
        edges = edges[np.isfinite(edges)]
        slope = (node.reference.end - node.reference.start) / (
            node.s.end - node.s.start
        )
        x, y = self.problem.turned(node.turn, node.indices)
        # a line of thresholds is the projected score of a sample, too
        lines = node.reference.start + edges - slope * node.s.start
        x, y = np.append(x, lines), np.append(y, lines + slope)
        x, y = np.unique(np.stack([x, y]), axis=1)
        if x.size > _PAIRS:
            return None
        i, j = np.triu_indices(x.size, 1)
        dx, dy = x[i] - x[j], y[i] - y[j]
        with np.errstate(divide="ignore", invalid="ignore"):
            s = dx / (dx - dy)
        s = np.unique(s[(s > node.s.start) & (s < node.s.end)])
        ends = np.concatenate([[node.s.start], s, [node.s.end]])
        wide = np.diff(ends) > _NARROW
        if np.count_nonzero(wide) > most:
            return None
        return ((ends[1:] + ends[:-1]) / 2)[wide]

    def search_cells(self, node):
        """Search all angles of an interval if they are few; return whether they are."""
        few = self.size(node.indices) <= _LEAF
        if not few and not node.stuck:
            return False
        if node.s.end - node.s.start <= _NARROW:
            s = np.array([(node.s.start + node.s.end) / 2])
        else:
            s = self.cells(node, _LEAF**2 if few else _CELLS)
        if s is None:
            return False
        least = self.least_inside(node, s) if few else np.full(s.size, node.bound)
        for k in np.argsort(least, kind="stable"):
            if least[k] > self.value() or not math.isfinite(least[k]):
                break
            self.try_inside(node, s[k])
        return True

    def least_inside(self, node, s):
        """Return the least objective over all thresholds at each of some angles.

        Thresholds that are not valid in the node, and parts of tied samples, count too:
        it is a lower bound.
        """
        x, y = self.problem.turned(node.turn, node.indices)
        if self.randomize:
            return self.least_mixture(node, x, y, s)
        order = np.argsort(x * (1 - s[:, None]) + y * s[:, None], axis=1)
        counts = self.problem.cumulated(node.indices[order])
        N, E, F = map(operator.add, node.base, counts)
        return self.goal.value(N, E, F).min(axis=1)

    def least_mixture(self, node, x, y, s):
        """Return the same for rules that accept equal samples with a probability."""
        (x, y), point = np.unique(np.stack([x, y]), axis=1, return_inverse=True)
        order = np.argsort(x * (1 - s[:, None]) + y * s[:, None], axis=1)
        before, after = [], []
        for base, ends in zip(
            node.base, self.problem.cumulated(node.indices), strict=True
        ):
            count = np.bincount(point.ravel(), np.diff(ends))
            ends = np.full((s.size, count.size + 1), float(base))
            ends[:, 1:] += np.cumsum(count[order], axis=1)
            after.append(ends.ravel())
            before.append(np.insert(ends[:, :-1], 0, ends[:, 0], axis=1).ravel())
        value = self.goal.mixtures(before, after)[0]
        return value.min(axis=0).reshape(s.size, -1).min(axis=1)

    def split(self, node):
        """Return the two halves of an interval, bounded."""
        (s_low, s_high), (t_low, t_high) = node.s, node.reference
        s, t = (s_low + s_high) / 2, (t_low + t_high) / 2
        self.try_inside(node, s)
        halves = []
        for ends, reference in (
            (Line(s_low, s), Line(t_low, t)),
            (Line(s, s_high), Line(t, t_high)),
        ):
            half = self.bounded(node._replace(s=ends, reference=reference))
            if half is not None:
                # samples on one line through the pivot stay undecided however narrow
                stuck = self.size(half.indices) > _STUCK * self.size(node.indices)
                half = half._replace(stuck=stuck)
            halves.append(half)
        return halves


def branch_and_bound(problem, goal, *, turns=(0,), tol=1e-3, grid=(), randomize=False):
    """Minimize over all angles of some quadrants."""
    search = _AngleSearch(problem, goal, randomize)
    grid, order = np.asarray(grid), itertools.count()
    heap: list = []
    nodes: list = []
    for turn in turns:
        nodes += search.roots(turn)
    while True:
        for node in nodes:
            if node is not None:
                heapq.heappush(heap, (node.bound, next(order), node))
        if not (heap and heap[0][0] < search.value() - tol):
            break
        if search.nodes >= _MAX_NODES:
            break
        node = heapq.heappop(heap)[2]
        nodes = [] if search.search_cells(node) else search.split(node)
    for _, _, node in heap:  # angles of the grid that may hold a better rule
        best = search.best
        if node.bound > search.value() or (
            best is not None and node.bound == best.value and node.most <= best.N
        ):
            continue
        if search.search_cells(node):
            continue
        low, high = (search.theta(node.turn, s) for s in node.s)
        for theta in grid[(grid > low) & (grid < high)]:
            phi = theta - node.turn * (math.pi / 2)
            search.try_inside(node, math.sin(phi) / (math.sin(phi) + math.cos(phi)))
    bound = heap[0][0] if heap else math.inf
    return search.best, min(bound, search.value())

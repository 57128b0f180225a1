"""Branch and bound over the angle, with a certificate of the optimum."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import heapq
import math

import numpy as np

from skood.decision._calibration_sample import cumulated
from skood.decision._interval_bounds import Line, Node, Relaxation
from skood.decision._objective import better
from skood.utils._ties import ends_of_ties

# Number of intervals of a quadrant at the start: wider ones are never decided.
_FIRST = 8
_OFFSET = (math.sqrt(5) - 2) / 100
# Intervals with at most this many undecided samples are searched cell by cell.
_LEAF = 40
# Also intervals where halving decides less than this share of the samples, if at most
# so many distinct points and so many cells are left.
_STUCK, _PAIRS, _CELLS = 0.8, 1000, 100
# Cells narrower than this are not distinguishable in floating point.
_NARROW = 1e-12
# With more undecided samples, thresholds are first bounded in coarse pieces.
_MANY = 4000
# Beyond this many intervals the search stops with the remaining gap.
_MAX_NODES = 5000


class _Search:
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

    @staticmethod
    def s_of(turn, theta):
        """Return the s of an angle."""
        phi = theta - turn * (math.pi / 2)
        return math.sin(phi) / (math.sin(phi) + math.cos(phi))

    def offer(self, found):
        """Replace the best rule if this one is better."""
        if found is not None and better(found, self.best, self.goal.rtol):
            self.best = found

    def value(self):
        """Return the best value so far."""
        return math.inf if self.best is None else self.best.value

    def try_angle(self, theta):
        """Search all thresholds at an angle; return the accepted count of the best."""
        lam, *after = self.problem.points(theta)
        before = [np.append(0, count[:-1]) for count in after]
        found = self.problem.best_of(
            theta,
            lam,
            *after,
            goal=self.goal,
            before=before if self.randomize else None,
        )
        self.offer(found)
        if found is not None:
            return self.problem.size_of(found.N, found.F)
        k = np.argmin(self.goal.excess(*after))
        return self.problem.size_of(after[0][k], after[2][k])

    def roots(self, turn):
        """Return the first intervals of a quadrant."""
        ends = np.linspace(0, 1, _FIRST + 1)
        # Scores that are whole numbers are tied at angles such as pi / 4, where
        # rounding would separate tied samples.
        ends[1:-1] += _OFFSET
        sizes = [self.try_angle(self.theta(turn, s)) for s in ends]
        finite, first = self.problem.split_off_infinite(turn)
        base, rows = self.problem.counts(first), np.flatnonzero(finite)
        for k in range(_FIRST if rows.size else 0):
            node = Node(
                turn,
                Line(ends[k], ends[k + 1]),
                sizes[k],
                Line(0.0, 0.0),
                -math.inf,
                math.inf,
                rows,
                base,
                -math.inf,
                math.inf,
            )
            yield self.bounded(node)

    def size(self, rows):
        """Return the number of samples, in which whole weights are repeats."""
        if self.weight is None or self.weight.dtype.kind != "i":
            return rows.size
        return self.weight[rows].sum()

    def bounded(self, node):
        """Bound the interval from below, and drop the samples that are decided.

        Returns None if no rule of the interval can be better than the best one.
        """
        self.nodes += 1
        if node.rows.size > _MANY:
            node = self.narrowed(node, coarse=True)
        return node and self.narrowed(node)

    def narrowed(self, node, coarse=False):
        """Bound an interval by one relaxation, see `bounded`."""
        if not node.rows.size:
            return node
        relaxed = Relaxation(self, node, coarse)
        node = relaxed.node
        bound, most = relaxed.solve()
        limit = self.value()
        if math.isfinite(limit):
            limit += self.goal.rtol * abs(limit)
        alive = np.flatnonzero((bound <= limit) & np.isfinite(bound))
        if not alive.size:
            return None
        low, high, keep, surely = relaxed.decided(alive[0], alive[-1])
        counted = self.problem.counts(node.rows[surely])
        return node._replace(
            size=relaxed.size_at(alive[np.argmin(bound[alive])]),
            low=low,
            high=high,
            rows=node.rows[keep],
            base=tuple(b + c for b, c in zip(node.base, counted, strict=True)),
            bound=max(node.bound, float(bound[alive].min())),
            most=float(most[alive].max()),
        )

    def active_points(self, node, s):
        """Return the operating points of an angle inside of a node.

        In the order of :func:`sweep`, with thresholds relative to zero in units of s;
        the first accepts no undecided sample.
        """
        x, y = self.problem.turned(node.turn, node.rows)
        projected = x * (1 - s) + y * s
        order = np.argsort(projected)
        ranked = projected[order]
        last = ends_of_ties(ranked) if ranked.size else np.empty(0, dtype=int)
        ends = np.append(0, last + 1)
        counts = [count[ends] for count in self.problem.cumulated(node.rows[order])]
        t = np.append(-math.inf, ranked[last])
        return t, *(b + count for b, count in zip(node.base, counts, strict=True))

    def try_inside(self, node, s):
        """Search all thresholds that may be optimal at an angle inside of a node."""
        t, *after = self.active_points(node, s)
        # the first point is no group of tied samples: it is accepted as a whole
        before = [np.append(count[0], count[:-1]) for count in after]
        share = (s - node.s.start) / (node.s.end - node.s.start)
        middle = node.reference.start * (1 - share) + node.reference.end * share
        # thresholds up to the next one are equivalent
        inside = t <= middle + node.high
        inside[:-1] &= t[1:] > middle + node.low
        t = t[inside]
        after = [count[inside] for count in after]
        before = [count[inside] for count in before]
        theta = self.theta(node.turn, s)
        found = self.problem.best_of(
            theta, t, *after, goal=self.goal, before=before if self.randomize else None
        )
        if found is not None and better(found, self.best, self.goal.rtol):
            k = np.argmax(t == found.lam)
            self.confirm(found, self.problem.size_of(after[0][k], after[2][k]))

    def confirm(self, found, size):
        """Consider the rule that accepts `size` samples, recounted on all samples."""
        true = self.problem.at_size(
            found.theta, size, self.goal, randomize=self.randomize
        )
        self.offer(true)
        if true is None or better(found, true, self.goal.rtol):
            # counts of the undecided samples differ by rounding: recount all of them
            self.try_angle(found.theta)

    def cells(self, node, most):
        """Return one s of each cell of an interval; None if there are too many.

        Between two angles at which undecided samples change order, or enter or leave
        the thresholds of the node, all angles are equivalent.
        """
        edges = [t for t in (node.low, node.high) if math.isfinite(t)]
        slope = (node.reference.end - node.reference.start) / (
            node.s.end - node.s.start
        )
        x, y = self.problem.turned(node.turn, node.rows)
        # a line of thresholds is the projected score of a sample, too
        x = np.append(
            x, [node.reference.start + t - slope * node.s.start for t in edges]
        )
        y = np.append(y, x[x.size - len(edges) :] + slope)
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
        few = self.size(node.rows) <= _LEAF
        if not few and not node.stuck:
            return False
        if node.s.end - node.s.start <= _NARROW:
            s = np.array([node.s.middle])
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
        x, y = self.problem.turned(node.turn, node.rows)
        if self.randomize:
            return self.least_mixture(node, x, y, s)
        order = np.argsort(x * (1 - s[:, None]) + y * s[:, None], axis=1)
        counts = self.problem.cumulated(node.rows[order])
        N, E, F = (b + count for b, count in zip(node.base, counts, strict=True))
        return self.goal.value(N, E, F).min(axis=1)

    def least_mixture(self, node, x, y, s):
        """Return the same for rules that accept equal samples with a probability."""
        (x, y), point = np.unique(np.stack([x, y]), axis=1, return_inverse=True)
        order = np.argsort(x * (1 - s[:, None]) + y * s[:, None], axis=1)
        before, after = [], []
        for base, ends in zip(
            node.base, self.problem.cumulated(node.rows), strict=True
        ):
            count = np.bincount(point.ravel(), np.diff(ends))
            ends = base + cumulated(count[order])
            after.append(ends.ravel())
            before.append(np.insert(ends[:, :-1], 0, ends[:, 0], axis=1).ravel())
        value = self.goal.mixtures(before, after)[0]
        return value.min(axis=0).reshape(s.size, -1).min(axis=1)

    def split(self, node):
        """Return the two halves of an interval, bounded."""
        s, t = node.s.middle, node.reference
        self.try_inside(node, s)
        for ends, reference in (
            ((node.s.start, s), (t.start, t.middle)),
            ((s, node.s.end), (t.middle, t.end)),
        ):
            half = self.bounded(
                node._replace(s=Line(*ends), reference=Line(*reference))
            )
            if half is not None:
                # samples on one line through the pivot stay undecided however narrow
                stuck = self.size(half.rows) > _STUCK * self.size(node.rows)
                half = half._replace(stuck=stuck)
            yield half


def branch_and_bound(problem, goal, *, turns=(0,), tol=1e-3, grid=(), randomize=False):
    """Minimize over all angles of some quadrants."""
    search = _Search(problem, goal, randomize)
    heap: list = []

    def push(nodes):
        for node in nodes:
            if node is not None:
                heapq.heappush(heap, (node.bound, search.nodes, node))

    for turn in turns:
        push(search.roots(turn))
    while heap and heap[0][0] < search.value() - tol and search.nodes < _MAX_NODES:
        node = heapq.heappop(heap)[2]
        if not search.search_cells(node):
            push(search.split(node))
    _polish(search, [entry[2] for entry in heap], np.asarray(grid))
    bound = min((b for b, _, _ in heap), default=math.inf)
    return search.best, min(bound, search.value())


def _polish(search, nodes, grid):
    """Search the angles of the grid that may hold a better rule."""
    for node in nodes:
        best = search.best
        if node.bound > search.value() or (
            best is not None and node.bound == best.value and node.most <= best.N
        ):
            continue
        if search.search_cells(node):
            continue
        low, high = (search.theta(node.turn, s) for s in node.s)
        for theta in grid[(grid > low) & (grid < high)]:
            search.try_inside(node, search.s_of(node.turn, theta))

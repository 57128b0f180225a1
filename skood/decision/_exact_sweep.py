"""Exact optimum over all angles, by rotating a line around every sample."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import heapq
import math

import numpy as np

from skood.decision._objective import better, pick

#: The work grows with the square of the number of samples.
MAX_ROWS = 5000
# Angles closer than this are merged: no rule in between can be represented.
_NARROW = 1e-12
_ROUNDING = 1e-12
# Number of best cells that are recounted until one attains its counted value.
_CANDIDATES = 64


class _Pivots:
    """Samples with finite scores in one quadrant, and the search around them."""

    def __init__(self, problem, goal, turn, randomize):
        self.problem, self.goal, self.randomize = problem, goal, randomize
        self.start = turn * (math.pi / 2)
        finite, first = problem.split_off_infinite(turn)
        self.base = np.array(problem.counts(first), dtype=float)
        self.x, self.y = problem.turned(turn, finite)
        self.rows = np.flatnonzero(finite)
        is_id = problem.is_id[finite]
        self.summands = [is_id, problem.loss[finite], ~is_id]
        if problem.weight is not None:
            weight = problem.weight[finite]
            self.summands[::2] = is_id * weight, ~is_id * weight

    def _counts(self, some):
        return np.array(self.problem.counts(self.rows[some]), dtype=float)

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
    best = None
    for turn in turns:
        # no nearby angle resolves the ties of a single score: the ends are extra
        for theta in (turn * (math.pi / 2), (turn + 1) * (math.pi / 2)):
            found = problem.best_at(theta, goal, randomize=randomize)
            if found is not None and better(found, best, goal.rtol):
                best = found
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
        found = problem.at_size(*cell[3:], goal, randomize=randomize)
        if found is not None and better(found, best, goal.rtol):
            best = found
    return best, math.inf if best is None else best.value

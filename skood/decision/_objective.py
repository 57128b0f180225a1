"""Objective of a search: a cost within bounds, for regions or their mixtures."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from skood.decision._base_rule import is_floor
from skood.utils._ties import GUARD

# Fewer thresholds are not searched for their bounds, but all evaluated.
_MANY = 1000


class Candidate(NamedTuple):
    """Acceptance rule found in a search."""

    value: float
    N: float
    F: float
    theta: float
    lam: float
    tau: float = 1.0


def better(new, old, rtol):
    """Return whether `new` beats `old`: value, then N, then smallest F, then angle."""
    if old is None or abs(new.value - old.value) > rtol * abs(old.value):
        return old is None or new.value < old.value
    return (-new.N, new.F, new.theta) < (-old.N, old.F, old.theta)


def pick(value, N, F, rtol):
    """Return the index of the best value, then largest N, then smallest F; or None."""
    least = value.min(initial=np.inf)
    if np.isposinf(least):
        return None
    ties = np.flatnonzero(value <= least + rtol * abs(least))
    return ties[np.lexsort((F[ties], -N[ties]))[0]]


def within(goal, N, F):
    """Return the slice of points of one angle that meet the bounds on one count."""
    first, last = 0, N.size
    for bound in goal.bounds:
        slope = bound.id + bound.ood
        if bound.loss or (bound.id and bound.ood) or not slope or N.size < _MANY:
            continue

        def changed(k, bound=bound, slope=slope):
            return (bound.at(N.item(k), 0.0, F.item(k)) <= GUARD) == (slope < 0)

        k = bisect_left(range(N.size), True, key=changed)
        first, last = (max(first, k), last) if slope < 0 else (first, min(last, k))
    return slice(first, last)


class Goal:
    """Problem in N, E and F: minimize ``E / N``, or a linear `cost`, within `bounds`.

    Bounds must not be positive. Values that differ by less than `rtol`, relative to
    their size, are ties.
    """

    def __init__(self, cost, bounds, rtol=0.0):
        self.cost = cost
        self.bounds = bounds
        self.rtol = rtol
        # least number of ID samples; the risk of an empty region is undefined
        self.n_min, nothing = -np.inf, cost is not None
        for bound in bounds:
            nothing &= bound.constant <= GUARD
            if is_floor(bound):
                self.n_min = max(self.n_min, bound.constant / -bound.id)
        if self.n_min == -np.inf:
            self.n_min = 0.0 if cost is not None else 1.0
        self.none = cost.constant if nothing else np.inf

    @classmethod
    def of(cls, rule, problem, *, whole=True):
        """Return the goal of a rule on the samples of a problem."""
        sizes = problem.n_id, problem.n_ood
        whole = whole and problem.whole
        cost = rule.cost()
        if cost is not None:
            cost = cost.in_counts(*sizes)
        # Quotients of sums of whole numbers are ties if they are equal; other sums
        # depend on their order.
        exact = cost is None and problem.whole_losses and whole
        bounds = rule.bounds(*sizes, whole=whole)
        if not problem.whole:  # sums of weights are rounded
            slack = min(GUARD * max(sizes), 0.5)
            bounds = [b._replace(constant=b.constant - slack) for b in bounds]
        return cls(cost, bounds, 0.0 if exact else 1e-12)

    def objective(self, N, E, F):
        """Return the objective where something is accepted, infinity elsewhere."""
        if self.cost is not None:
            return np.where(N + F > 0, self.cost.at(N, E, F), np.inf)
        value = np.full(np.shape(N), np.inf)
        return np.divide(E, N, out=value, where=N > 0)

    def value(self, N, E, F):
        """Return the objective within the bounds, infinity outside, elementwise."""
        value = self.objective(N, E, F)
        for bound in self.bounds:
            value[bound.at(N, E, F) > GUARD] = np.inf
        return value

    def excess(self, N, E, F):
        """Return the total violation of the bounds, in samples."""
        total = np.zeros(np.shape(N))
        for bound in self.bounds:
            total += np.maximum(bound.at(N, E, F), 0)
        return total

    def mixtures(self, before, after):
        """Return value, tau, N and F of the best mixtures of two regions each.

        Along ``before + tau * (after - before)`` the objective is monotone in tau and
        the bounds leave an interval: one of its ends is optimal. The value is infinite
        where the interval is empty or zero. Shapes: counts (n,) -> (2, n).
        """
        low, high = np.zeros(len(before[0])), np.ones(len(before[0]))
        for bound in self.bounds:
            start = np.asarray(bound.at(*before), dtype=np.float64)
            step = bound.at(*after) - start
            with np.errstate(divide="ignore", invalid="ignore"):
                root = -start / step
            low = np.where((step < 0) & (start > GUARD), np.maximum(low, root), low)
            high = np.where(
                (step > 0) & (start + step > GUARD), np.minimum(high, root), high
            )
            high = np.where((step == 0) & (start > GUARD), -1.0, high)
        tau = np.stack([low, high])
        mixed = [b + tau * (a - b) for b, a in zip(before, after, strict=True)]
        value = self.objective(*mixed)
        value[:, (low > high + GUARD) | (high <= 0)] = np.inf
        value[tau <= 0] = np.inf
        return value, tau, mixed[0], mixed[2]

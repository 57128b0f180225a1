"""Calibration samples and objective of a rule, and its best threshold at an angle."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import itertools
import math
from bisect import bisect_left
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from skood.decision._base_rule import is_floor
from skood.decision._operating_point import (
    OperatingPoint,
    project,
    rates_of,
    standardize,
)
from skood.utils._ties import (
    GUARD,
    SIDES,
    at_ends,
    ends_of_ties,
    finite_of_ranked,
    merged_ties,
    merged_ties_of_ranked,
    ranked_scores,
    threshold_between,
    tie_around,
    tie_scale_of_ranked,
)
from skood.utils._weights import count_weights, weighted_quantile

# Fewer thresholds are not searched for their bounds, but all evaluated.
_MANY = 1000

# Scaled scores are below this, so that sums and products of them are finite.
_LARGEST = 1e150

# Weights below this fraction of the mean weight count less than a sample.
_LEAST_FRACTION = 1e-6

# Fraction of samples that may be tied with others in both scores by chance.
_FEW_TIED = 0.01

# After so many best thresholds that separate tied scores, all ties are merged.
_TIES = 20


class BestRule(NamedTuple):
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

    def value(self, N, E, F, bounds=None):
        """Return the objective within bounds, None: all; infinity outside.

        It is also infinite where nothing is accepted.
        """
        if self.cost is not None:
            value = np.where(N + F > 0, self.cost.at(N, E, F), np.inf)
        else:
            value = np.full(np.shape(N), np.inf)
            np.divide(E, N, out=value, where=N > 0)
        for bound in self.bounds if bounds is None else bounds:
            value[bound.at(N, E, F) > GUARD] = np.inf
        return value

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
        value = self.value(mixed[0], mixed[1], mixed[2], ())
        value[:, (low > high + GUARD) | (high <= 0)] = np.inf
        value[tau <= 0] = np.inf
        return value, tau, mixed[0], mixed[2]


def scales_of(samples):
    """Return the scales of both scores: 5..95 % inter-quantile ranges of ID samples.

    Only finite scores count. A scale is 1 if zero, and larger if a score would overflow
    with it.
    """
    of_id, of_ood = samples.by_kind("weight")
    weight, scales = None, [1.0, 1.0]
    if of_id is not None or (of_ood is not None and of_ood.size):
        weight = _unit_weights(of_id, samples.sizes[0])
    for k, name in enumerate(("risk", "ood")):
        score_id, score_ood = samples.by_kind(name)
        if score_id is None:
            continue
        is_finite = np.isfinite(score_id)
        finite, finite_ood = score_id[is_finite], score_ood[np.isfinite(score_ood)]
        largest = np.abs(finite_ood).max(initial=np.abs(finite).max(initial=0.0))
        ends = None
        if weight is None:
            finite = np.sort(finite)
        else:
            order = np.argsort(finite)
            finite, ends = finite[order], np.cumsum(weight[is_finite][order])
        scales[k] = _scale_of_ranked(finite / 2, largest, ends)
    return tuple(scales)


def _scale_of_ranked(halves, largest, ends=None):
    """Return the scale from sorted finite ID scores and the largest finite size.

    `ends` are their cumulated weights, None if these are equal.
    """
    if halves.size == 0:
        return 1.0
    low = weighted_quantile(halves, ends, 0.05)
    high = weighted_quantile(halves, ends, 0.95)
    spread = min(2 * float(high - low), np.finfo(np.float64).max) or 1.0
    return float(max(spread, largest / _LARGEST))


def points_before(*counts):
    """Return the counts of operating points without the samples at the thresholds."""
    return [np.append(0, count[:-1]) for count in counts]


def _unit_weights(weight, n_samples):
    """Return positive weights in the unit of a sample, ones for None or no samples.

    Whole weights count samples. The unit of others is the least weight: if a rule has
    to accept some sample, any of them will do.
    """
    if weight is None or not n_samples:
        return np.ones(n_samples, dtype=np.int64)
    weight = count_weights(weight, n_samples)
    if weight.dtype.kind == "i":
        return weight
    return weight / max(weight.min(), _LEAST_FRACTION)


class Problem:
    """View of `ScoredSamples` for a search: checked samples, as of `solve`.

    The arrays of all samples, such as `loss`, have ID samples first; with a single
    score they are sorted by it. With weights, which are positive, `loss` is multiplied
    by them, and numbers of samples such as `n_id` are sums of them.
    """

    def __init__(self, samples):
        risk_id, risk_ood = self.risk_id, self.risk_ood = samples.by_kind("risk")
        ood_id, ood_ood = self.ood_id, self.ood_ood = samples.by_kind("ood")
        self.double = ood_id is not None
        self.loss_id = loss_id = samples.by_kind("loss")[0]
        self.size_id, self.size_ood = risk_id.size, risk_ood.size
        self.n_id, self.n_ood = self.size_id, self.size_ood
        self.weight_id = self.weight_ood = self.weight = None
        self.whole, (of_id, of_ood) = True, samples.by_kind("weight")
        if of_id is not None or (of_ood is not None and of_ood.size):
            # weights of either kind have a unit of their own: only rates matter
            self.weight_id = _unit_weights(of_id, self.size_id)
            self.weight_ood = _unit_weights(of_ood, self.size_ood)
            # as sums of accepted samples, so that the rate of all of them is 1
            self.n_id = (np.ones(self.size_id) @ self.weight_id).item()
            self.n_ood = (np.ones(self.size_ood) @ self.weight_ood).item()
            self.weight = np.concatenate([self.weight_id, self.weight_ood])
            self.whole = self.weight_id.dtype.kind == self.weight_ood.dtype.kind == "i"
            loss_id = loss_id * self.weight_id
        self.loss = np.concatenate([loss_id, np.zeros(self.size_ood)])
        self.whole_losses = bool(np.all(loss_id == np.rint(loss_id)))
        # sums of integers take less time, and are exact if sums of floats are
        exact = self.whole_losses and loss_id.sum() < 2.0**53
        self.summands = self.loss.astype(np.int64 if exact else np.float64, copy=False)
        risk = np.concatenate([risk_id, risk_ood])
        self.original: tuple[np.ndarray, np.ndarray | None]
        self.merged: tuple[np.ndarray, np.ndarray | None]
        if self.double:
            self.is_id = np.arange(self.loss.size) < self.size_id
            self.original = self.merged = risk, np.concatenate([ood_id, ood_ood])
            self.set_scales(*scales_of(samples))
            return
        order, ranked = ranked_scores(risk)
        self.loss, self.is_id = self.loss.take(order), order < self.size_id
        self.summands = self.loss.astype(self.summands.dtype, copy=False)
        if self.weight is not None:
            self.weight = self.weight[order]
        self.original = self.merged = ranked, None
        finite = finite_of_ranked(ranked)
        first = int(np.searchsorted(ranked, -np.inf, side="right"))
        ids = first + np.flatnonzero(self.is_id[first : first + finite.size])
        largest = np.abs(finite[[0, -1]]).max() if finite.size else 0.0
        ends = None if self.weight is None else np.cumsum(self.weight[ids])
        self.set_scales(_scale_of_ranked(ranked[ids] / 2, largest, ends), 1.0)

    def counts(self, indices):
        """Return N, E and F of samples, given by a mask or indices."""
        is_id, loss = self.is_id[indices], float(self.loss[indices].sum())
        if self.weight is None:
            N = int(np.count_nonzero(is_id))
            return N, loss, is_id.size - N
        weight = self.weight[indices]
        return weight[is_id].sum().item(), loss, weight[~is_id].sum().item()

    def cumulated(self, indices):
        """Return the cumulated N, E and F of samples in an order, starting with none.

        Shapes: indices (..., n) -> (3, ..., n + 1).
        """
        is_id, loss = self.is_id[indices], self.loss[indices]
        of_id, of_ood = is_id, ~is_id
        if self.weight is not None:
            of_id, of_ood = is_id * self.weight[indices], ~is_id * self.weight[indices]
        sums = np.zeros((3, *is_id.shape[:-1], is_id.shape[-1] + 1))
        for total, values in zip(sums, (of_id, loss, of_ood), strict=True):
            np.cumsum(values, axis=-1, out=total[..., 1:])
        return sums

    def size_of(self, N, F):
        """Return the size, for `at_size`, of N accepted ID and F OOD samples."""
        return round(N + F) if self.weight is None else float(N + F)

    def set_scales(self, *scales):
        """Divide the scores by `scales`."""
        self.scales = scales
        self.scaled = standardize(*self.merged, scales)

    def with_merged_ties(self):
        """Return a problem that searches no threshold between tied scores.

        Its rules are evaluated on the scores as they were given.
        """
        risk, ood = self.original
        problem = copy.copy(self)
        if self.double:
            weight = self.weight
            problem.merged = merged_ties(risk, weight), merged_ties(ood, weight)
        else:
            problem.merged = merged_ties_of_ranked(risk, self.weight), None
        problem.set_scales(*self.scales)
        return problem

    def few_tied(self):
        """Return whether few samples were merged with others by both scores.

        In dense data, samples are near others by one of the scores, by chance.
        """
        (a, b), (merged_a, merged_b) = self.original, self.merged
        if b is None or merged_b is None:
            return False
        changed = (a != merged_a) | (b != merged_b)
        pairs = np.empty(np.count_nonzero(changed), dtype=np.complex128)
        pairs.real, pairs.imag = merged_a[changed], merged_b[changed]
        return pairs.size - np.unique(pairs).size < _FEW_TIED * changed.size

    def are_separated(self, best, problem):
        """Return whether a rule of the given scores separates merged samples."""
        exact = project(best.theta, *problem.scaled)
        merged = project(best.theta, *self.scaled)
        for accepted in (exact <= best.lam, exact < best.lam)[: 1 + (best.tau < 1)]:
            inside, outside = merged[accepted], merged[~accepted]
            low, high = outside.min(initial=np.inf), inside.max(initial=-np.inf)
            if np.intersect1d(inside[inside >= low], outside[outside <= high]).size:
                return True
        return False

    def split_off_infinite(self, turn):
        """Return the samples with finite scores, and the samples accepted first.

        `turn` is the quadrant, as the multiple of pi / 2 at which it starts. Samples in
        neither are accepted last, at all angles inside of the quadrant.
        """
        u, _, top = self.scaled
        finite = np.isfinite(u)
        if top is not None:
            finite &= ~top
        # -inf in the first score: first, or, if the score is used reversed, last
        first = np.isneginf(u) & ~finite if turn in (0, -1) else np.zeros_like(finite)
        return finite, first

    def turned(self, turn, indices):
        """Return both scores of samples, turned so that a quadrant is the first."""
        u, v = self.scaled[0][indices], self.scaled[1][indices]
        return ((u, v), (v, -u), (-u, -v), (-v, u))[turn % 4]

    def points(self, theta):
        """Return the operating points of one angle: thresholds, N, E and F.

        Thresholds exist at distinct projected scores only: tied samples are accepted
        together.
        """
        ranked, is_id = project(theta, *self.scaled), self.is_id
        loss, weight = self.summands, self.weight
        if self.double:
            order, ranked = ranked_scores(ranked)
            is_id, loss = order < self.size_id, loss[order]
            weight = None if weight is None else weight[order]
        last = ends_of_ties(ranked)
        N = at_ends(np.cumsum(is_id if weight is None else weight * is_id), last)
        E = at_ends(np.cumsum(loss), last).astype(np.float64, copy=False)
        if weight is not None:
            F = at_ends(np.cumsum(weight * ~is_id), last)
        else:
            F = last + 1
            F -= N
        return at_ends(ranked, last), N, E, F

    def best_at(self, theta, goal, *, randomize=False):
        """Return the best threshold at an angle, None if no rule meets the bounds."""
        lam, N, E, F = self.points(theta)
        before = points_before(N, E, F) if randomize else None
        return self.best_of(theta, lam, N, E, F, goal=goal, before=before)

    def best_of(self, theta, lam, N, E, F, *, goal, before=None):
        """Return the best of given operating points, None if none meets the bounds.

        With `before`, the counts without the samples at the thresholds, these may be
        accepted with a probability. Shapes: lam, N, E, F (n_points,).
        """
        if before is None:
            allowed = within(goal, N, F)
            lam, N, E, F = lam[allowed], N[allowed], E[allowed], F[allowed]
            value, tau = goal.value(N, E, F), None
        else:
            value, tau, N, F = (x.ravel() for x in goal.mixtures(before, (N, E, F)))
            lam = np.tile(lam, 2)
        k = pick(value, N, F, goal.rtol)
        best = None
        if k is not None:
            best = BestRule(
                float(value[k]),
                N[k].item(),
                F[k].item(),
                float(theta),
                float(lam[k]),
                1.0 if tau is None else float(tau[k]),
            )
        if goal.none < np.inf:
            none = BestRule(goal.none, 0, 0, float(theta), -math.inf, 0.0)
            best = none if better(none, best, goal.rtol) else best
        return best

    def best_between_ties(self, goal):
        """Return the best threshold of a single score that separates no tied scores.

        Only ties at the best threshold are searched for, which takes less time than to
        merge all. None if none is found.
        """
        ranked, scaled = self.original[0], self.scaled[0]
        lam, N, E, F = self.points(0.0)
        scale = tie_scale_of_ranked(ranked, self.weight)
        for _ in range(_TIES):
            best = self.best_of(0.0, lam, N, E, F, goal=goal)
            if best is None or best.N + best.F == 0:
                return best
            k = int(np.searchsorted(scaled, best.lam, side="right")) - 1
            tie = tie_around(ranked, k, scale)
            if tie is None:
                return best
            inside = slice(*np.searchsorted(lam, scaled[list(tie)]))
            lam, N, E, F = (np.delete(count, inside) for count in (lam, N, E, F))
        return None

    def at_size(self, theta, size, goal, *, randomize=False):
        """Return the rule that accepts `size` samples, None if it breaks the bounds.

        Samples tied with the last one are accepted with it. With weights, `size` is
        their sum, up to rounding.
        """
        projected = project(theta, *self.scaled)
        lam, before = self.score_at(projected, size), None
        after = np.reshape(self.counts(projected <= lam), (3, 1))
        if randomize:
            before = np.reshape(self.counts(projected < lam), (3, 1))
        lam = np.array([lam])
        return self.best_of(theta, lam, *after, goal=goal, before=before)

    def score_at(self, projected, size, indices=slice(None)):
        """Return the score up to which some samples have a size, see `at_size`."""
        if self.weight is None:
            rank = min(max(size - 1, 0), projected.size - 1)
            return float(np.partition(projected, rank)[rank])
        order = np.argsort(projected)
        ends = np.cumsum(self.weight[indices][order])
        k = np.searchsorted(ends, size * (1 - 1e-12))
        return float(projected[order[min(k, projected.size - 1)]])

    def describe(self, rule, best, bound=None):
        """Return the operating point of a rule, with its gap to a bound of all rules.

        None if merged ties would be separated at this angle.
        """
        lam, lowest = best.lam, None
        if lam > -math.inf or best.tau > 0:
            projected = exact = project(best.theta, *self.scaled)
            if self.merged is not self.original:
                exact = project(best.theta, *standardize(*self.original, self.scales))
            groups: list
            top, bottom = slice(None), slice(None)
            if self.double:
                groups = [projected < lam, projected == lam, projected > lam]
                together = projected <= lam
            else:  # sorted
                low, high = (int(projected.searchsorted(lam, side)) for side in SIDES)
                groups = [slice(low), slice(low, high), slice(high, None)]
                together = slice(high)
                top, bottom = slice(-1, None), slice(1)
            if best.tau == 1.0:
                groups[:2] = [together]
            for below, above in itertools.pairwise(groups):
                low = exact[below][top].max(initial=-math.inf)
                high = exact[above][bottom].min(initial=math.inf)
                if not low < high and exact[above].size:
                    return None
                lowest, lam = lam, threshold_between(low, high, exact, self.weight)
            if best.tau == 1.0:
                lowest = None
        point = OperatingPoint(
            best.theta, lam, tau=best.tau, scales=self.scales, lam_low=lowest
        )
        point = self.evaluated(rule, point)
        if bound is not None:
            objective = point.rates.objective
            gap = objective - bound  # NaN if nothing is certified
            if gap <= 1e-12 * abs(objective):
                gap = 0.0  # also removes negative rounding errors
            point = replace(point, gap=gap)
        return point

    def evaluated(self, rule, point, groups=(None, None)):
        """Return an operating point with its rates on these samples.

        `groups` of ID and of OOD samples are for thresholds of groups.
        """
        accepted = point._proba(self.risk_id, self.ood_id, groups[0])
        leaked = point._proba(self.risk_ood, self.ood_ood, groups[1])
        if self.weight is None:
            N, F = float(accepted.sum()), float(leaked.sum())
        else:
            N, F = float(accepted @ self.weight_id), float(leaked @ self.weight_ood)
            accepted = accepted * self.weight_id
        E = float(accepted @ self.loss_id)
        rates = rates_of(rule, N, E, F, self.n_id, self.n_ood)
        return replace(point, rates=rates)

"""Calibration samples of a rule, and the best threshold at an angle."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import itertools
import math
from bisect import bisect_left
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from skood.decision._base_rule import GUARD, check_rule
from skood.decision._objective import Candidate, better, pick
from skood.decision._operating_point import (
    OperatingPoint,
    Rates,
    check_pair,
    precision_at,
    proba_of,
    project,
    standardize,
)
from skood.utils._labels import column
from skood.utils._ties import (
    SIDES,
    at_ends,
    ends_of_ties,
    finite_of_ranked,
    merged_ties,
    merged_ties_of_ranked,
    quantile_of_ranked,
    ranked_scores,
    threshold_between,
    tie_around,
    tie_scale_of_ranked,
)

__all__ = ["Problem", "check_problem", "sweep"]


# Scaled scores are kept below this, so that sums and products of them are finite.
_LARGEST = 1e150

# Fewer thresholds are not searched for their bounds, but all evaluated.
_MANY = 1000

# Share of samples that may be tied with others in both scores by chance.
_FEW_TIED = 0.01

# After so many best thresholds that separate tied scores, all ties are merged.
_TIES = 20


def _scale(score_id, score_ood):
    """Return the 5..95 % inter-quantile range of finite ID scores, 1 if zero.

    It is larger if some score would overflow with it.
    """
    parts = [score[np.isfinite(score)] for score in (score_id, score_ood)]
    largest = max(np.abs(finite).max(initial=0.0) for finite in parts)
    return _scale_of_ranked(np.sort(parts[0]) / 2, largest)


class _Halves(NamedTuple):
    """Half of some sorted scores, whose range does not overflow, computed on use."""

    ranked: np.ndarray
    rows: np.ndarray

    @property
    def size(self):
        return self.rows.size

    def __getitem__(self, k):
        return self.ranked[self.rows[k]] / 2


def _scale_of_ranked(halves, largest):
    """Return the scale from sorted finite ID scores and the largest finite size."""
    if halves.size == 0:
        return 1.0
    low, high = (quantile_of_ranked(halves, share) for share in (0.05, 0.95))
    spread = min(2 * float(high - low), np.finfo(np.float64).max) or 1.0
    return float(max(spread, largest / _LARGEST))


def sweep(projected, n_id, loss):
    """Return all operating points of one angle.

    Thresholds exist at distinct projected scores only: tied samples are accepted
    together. Sums of losses that are integers of NumPy take less time.

    Shapes: projected (n_id + n_ood,), loss (n_id + n_ood,) -> lam, N, E, F (n_points,).
    """
    order, ranked = ranked_scores(projected)
    return _points_of_ranked(ranked, order < n_id, loss[order])


def _points_of_ranked(ranked, is_id, loss):
    """Return the operating points of sorted scores."""
    last = ends_of_ties(ranked)
    N = at_ends(np.cumsum(is_id), last)
    E = at_ends(np.cumsum(loss), last).astype(np.float64, copy=False)
    F = last + 1
    F -= N
    return at_ends(ranked, last), N, E, F


def _within(goal, N, F):
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


class Problem:
    """Scores and losses of ID and OOD samples: checked arrays, as of `solve`.

    The arrays of all samples, such as `loss`, have ID samples first; with a single
    score they are sorted by it.
    """

    def __init__(self, risk_id, ood_id, loss_id, risk_ood, ood_ood):
        self.double = ood_id is not None
        self.risk_id, self.ood_id = risk_id, ood_id
        self.risk_ood, self.ood_ood = risk_ood, ood_ood
        self.n_id, self.n_ood = risk_id.size, risk_ood.size
        self.loss_id = loss_id
        self.loss = np.concatenate([loss_id, np.zeros(self.n_ood)])
        self.is_id = np.arange(self.loss.size) < self.n_id
        self.whole_losses = bool(np.all(loss_id == np.rint(loss_id)))
        # sums of integers take less time, and are exact if those of floats are
        exact = self.whole_losses and loss_id.sum() < 2.0**53
        kind = np.int64 if exact else np.float64
        self.summands = self.loss.astype(kind, copy=False)
        risk = np.concatenate([risk_id, risk_ood])
        self.given: tuple[np.ndarray, np.ndarray | None]
        self.merged: tuple[np.ndarray, np.ndarray | None]
        if self.double:
            self.given = self.merged = risk, np.concatenate([ood_id, ood_ood])
            self.set_scales(_scale(risk_id, risk_ood), _scale(ood_id, ood_ood))
            return
        order, ranked = ranked_scores(risk)
        self.loss, self.is_id = self.loss[order], order < self.n_id
        self.summands = self.loss.astype(kind, copy=False)
        self.given = self.merged = ranked, None
        finite = finite_of_ranked(ranked)
        first = int(np.searchsorted(ranked, -np.inf, side="right"))
        ids = first + np.flatnonzero(self.is_id[first : first + finite.size])
        largest = np.abs(finite[[0, -1]]).max() if finite.size else 0.0
        self.set_scales(_scale_of_ranked(_Halves(ranked, ids), largest), 1.0)

    def set_scales(self, *scales):
        """Divide the scores by `scales`."""
        self.scales = scales
        self.scaled = standardize(*self.merged, scales)

    def with_merged_ties(self):
        """Return a problem that searches no threshold between tied scores.

        Its rules are evaluated on the scores as they were given.
        """
        risk, ood = self.given
        problem = copy.copy(self)
        if self.double:
            problem.merged = merged_ties(risk), merged_ties(ood)
        else:
            problem.merged = merged_ties_of_ranked(risk), None
        problem.set_scales(*self.scales)
        return problem

    def few_tied(self):
        """Return whether few samples were merged with others by both scores.

        In dense data, samples are near others by one of the scores, by chance.
        """
        (a, b), (merged_a, merged_b) = self.given, self.merged
        if b is None or merged_b is None:
            return False
        changed = (a != merged_a) | (b != merged_b)
        pairs = np.empty(np.count_nonzero(changed), dtype=np.complex128)
        pairs.real, pairs.imag = merged_a[changed], merged_b[changed]
        return pairs.size - np.unique(pairs).size < _FEW_TIED * changed.size

    def are_separated(self, found, problem):
        """Return whether a rule of the given scores separates merged samples."""
        given = project(found.theta, *problem.scaled)
        merged = project(found.theta, *self.scaled)
        for accepted in (given <= found.lam, given < found.lam)[: 1 + (found.tau < 1)]:
            some, others = merged[accepted], merged[~accepted]
            low, high = others.min(initial=np.inf), some.max(initial=-np.inf)
            if np.intersect1d(some[some >= low], others[others <= high]).size:
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

    def turned(self, turn, rows):
        """Return both scores of samples, turned so that a quadrant is the first."""
        u, v = self.scaled[0][rows], self.scaled[1][rows]
        return ((u, v), (v, -u), (-u, -v), (-v, u))[turn % 4]

    def points(self, theta):
        """Return the operating points of one angle: thresholds, N, E and F."""
        projected = project(theta, *self.scaled)
        if self.double:
            return sweep(projected, self.n_id, self.summands)
        return _points_of_ranked(projected, self.is_id, self.summands)

    def best_at(self, theta, goal, *, randomize=False):
        """Return the best threshold at an angle, None if no rule meets the bounds."""
        lam, *after = self.points(theta)
        before = [np.append(0, count[:-1]) for count in after] if randomize else None
        return self.best_of(theta, lam, *after, goal=goal, before=before)

    def best_of(self, theta, lam, N, E, F, *, goal, before=None):
        """Return the best of given operating points, None if none meets the bounds.

        With `before`, the counts without the samples at the thresholds, these may be
        accepted with a probability. Shapes: lam, N, E, F (n_points,).
        """
        if before is None:
            some = _within(goal, N, F)
            lam, N, E, F = lam[some], N[some], E[some], F[some]
            value, tau = goal.value(N, E, F), None
        else:
            value, tau, N, F = (x.ravel() for x in goal.mixtures(before, (N, E, F)))
            lam = np.tile(lam, 2)
        k = pick(value, N, F, goal.rtol)
        best = None
        if k is not None:
            best = Candidate(
                float(value[k]),
                N[k].item(),
                F[k].item(),
                float(theta),
                float(lam[k]),
                1.0 if tau is None else float(tau[k]),
            )
        if goal.none < np.inf:
            none = Candidate(goal.none, 0, 0, float(theta), -math.inf, 0.0)
            best = none if better(none, best, goal.rtol) else best
        return best

    def best_between_ties(self, goal):
        """Return the best threshold of a single score that separates no tied scores.

        Only ties at the best threshold are searched for, which takes less time than to
        merge all. None if none is found.
        """
        ranked, scaled = self.given[0], self.scaled[0]
        lam, N, E, F = self.points(0.0)
        scale = tie_scale_of_ranked(ranked)
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

        Samples tied with the last one are accepted with it.
        """
        projected = project(theta, *self.scaled)
        lam = np.partition(projected, size - 1)[size - 1]
        after = self._count(projected <= lam)
        before = self._count(projected < lam) if randomize else None
        lam = np.array([lam])
        return self.best_of(theta, lam, *after, goal=goal, before=before)

    def _count(self, accepted):
        """Return N, E and F of some samples as arrays of one entry."""
        N = np.count_nonzero(accepted[: self.n_id])
        F = np.count_nonzero(accepted[self.n_id :])
        return [np.array([count]) for count in (N, self.loss[accepted].sum(), F)]

    def describe(self, rule, found, **certificate):
        """Return the operating point of a rule that was found.

        `certificate` has fields of it, such as its gap. None if merged ties would be
        separated at this angle.
        """
        lam, lowest = found.lam, None
        if lam > -math.inf or found.tau > 0:
            projected = project(found.theta, *self.scaled)
            groups: list
            if self.double:
                groups = [projected < lam, projected == lam, projected > lam]
                together = projected <= lam
            else:  # sorted
                low, high = (int(projected.searchsorted(lam, side)) for side in SIDES)
                groups = [slice(low), slice(low, high), slice(high, None)]
                together = slice(high)
            if found.tau == 1.0:
                groups[:2] = [together]
            *lower, lam = self._thresholds(found.theta, groups)
            if any(map(math.isnan, (*lower, lam))):
                return None
            lowest = lower[0] if lower else None
        point = OperatingPoint(
            theta=found.theta,
            lam=lam,
            tau=found.tau,
            scales=self.scales,
            lam_low=lowest,
        )
        return self.evaluated(rule, point, **certificate)

    def _thresholds(self, theta, groups):
        """Return thresholds between groups of samples; NaN if the groups overlap."""
        scaled = self.scaled
        if self.merged is not self.given:
            scaled = standardize(*self.given, self.scales)
        exact = project(theta, *scaled)
        top, bottom = slice(None), slice(None)
        if not self.double:  # sorted
            top, bottom = slice(-1, None), slice(1)
        thresholds = []
        for below, above in itertools.pairwise(groups):
            low = exact[below][top].max(initial=-math.inf)
            high = exact[above][bottom].min(initial=math.inf)
            inside = low < high or not exact[above].size
            between = threshold_between(low, high, exact)
            thresholds.append(between if inside else math.nan)
        return thresholds

    def evaluated(self, rule, point, **certificate):
        """Return an operating point with its rates on these samples."""
        accepted = proba_of(point, self.risk_id, self.ood_id)
        N, E = float(accepted.sum()), float(accepted @ self.loss_id)
        F = float(proba_of(point, self.risk_ood, self.ood_ood).sum())
        tpr = N / self.n_id
        fpr = F / self.n_ood if self.n_ood else math.nan
        precision = math.nan
        if rule.ood_prior is not None:
            leaked = fpr if rule.ood_prior else 0.0
            precision = float(precision_at(rule.ood_prior, tpr, leaked))
        rates = Rates(
            risk=E / N if N else math.nan,
            tpr=tpr,
            fpr=fpr,
            precision=precision,
            objective=float(rule.objective(N, E, F, self.n_id, self.n_ood)),
        )
        return replace(point, rates=rates, **certificate)


def _check_loss(loss_id, n_id):
    """Return the losses as float64 of shape (n_id,), or raise."""
    loss_id = column(loss_id).astype(np.float64, copy=False)
    if loss_id.size != n_id:
        raise ValueError(
            f"loss_id must have one entry per ID sample, got {loss_id.size} for {n_id} "
            f"samples."
        )
    bad = ~(np.isfinite(loss_id) & (loss_id >= 0))
    if bad.any():
        raise ValueError(
            f"loss_id must be finite and not negative, got {float(loss_id[bad][0])!r}."
        )
    return loss_id


def check_problem(rule, risk_id, ood_id, loss_id, risk_ood, ood_ood):
    """Return the samples as a checked problem, or raise."""
    check_rule(rule)
    double = ood_id is not None
    risk_id, ood_id = check_pair(risk_id, ood_id, ("risk_id", "ood_id"), False)
    if risk_id.size == 0:
        raise ValueError("No ID samples: risk_id is empty; a rule needs ID samples.")
    loss_id = _check_loss(loss_id, risk_id.size)
    if risk_ood is None:
        if ood_ood is not None:
            raise ValueError(
                "ood_ood is given although risk_ood is None; pass both scores of the "
                "OOD samples, or none."
            )
        risk_ood, ood_ood = np.empty(0), np.empty(0) if double else None
    risk_ood, ood_ood = check_pair(risk_ood, ood_ood, ("risk_ood", "ood_ood"), double)
    if ood_ood is not None and not double:
        raise ValueError(
            "ood_ood is given although ood_id is None; pass both scores for ID and "
            "for OOD samples, or one for both."
        )
    if rule.needs_ood and risk_ood.size == 0:
        raise ValueError(
            f"{type(rule).__name__} needs OOD samples, since it depends on the share "
            f"of them that is accepted; got none. Add OOD samples, or use a rule that "
            f"needs none, such as BoundedAbstention."
        )
    return Problem(risk_id, ood_id, loss_id, risk_ood, ood_ood)

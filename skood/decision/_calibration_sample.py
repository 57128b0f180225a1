"""Calibration samples of a rule, and the best threshold at an angle."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import itertools
import math
from dataclasses import replace

import numpy as np

from skood.decision._base_rule import check_rule
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
    at_ends,
    ends_of_ties,
    finite_of_ranked,
    merged_ties,
    merged_ties_of_ranked,
    quantile_of_ranked,
    ranked_scores,
    threshold_between,
)

__all__ = ["Problem", "check_problem", "sweep"]


# Scaled scores are kept below this, so that sums and products of them are finite.
_LARGEST = 1e150


def _scale(score_id, score_ood):
    """Return the 5..95 % inter-quantile range of finite ID scores, 1 if zero.

    It is larger if some score would overflow with it.
    """
    parts = [score[np.isfinite(score)] for score in (score_id, score_ood)]
    largest = max(np.abs(finite).max(initial=0.0) for finite in parts)
    return _scale_of_ranked(np.sort(parts[0]), largest)


def _scale_of_ranked(finite, largest):
    """Return the scale from sorted finite ID scores and the largest finite size."""
    if finite.size == 0:
        return 1.0
    # half: the range may overflow
    low, high = (quantile_of_ranked(finite / 2, share) for share in (0.05, 0.95))
    spread = min(2 * float(high - low), np.finfo(np.float64).max) or 1.0
    return float(max(spread, largest / _LARGEST))


def sweep(projected, n_id, loss):
    """Return all operating points of one angle.

    Thresholds exist at distinct projected scores only: tied samples are accepted
    together.

    Shapes: projected (n_id + n_ood,), loss (n_id + n_ood,) -> lam, N, E, F (n_points,).
    """
    order, ranked = ranked_scores(projected)
    return _points_of_ranked(ranked, order < n_id, loss[order])


def _points_of_ranked(ranked, is_id, loss):
    """Return the operating points of sorted scores."""
    last = ends_of_ties(ranked)
    N = at_ends(np.cumsum(is_id.astype(np.int64)), last)
    E = at_ends(np.cumsum(loss), last)
    return at_ends(ranked, last), N, E, last + 1 - N


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
        risk = np.concatenate([risk_id, risk_ood])
        self.given: tuple[np.ndarray, np.ndarray | None]
        self.merged: tuple[np.ndarray, np.ndarray | None]
        if self.double:
            self.given = self.merged = risk, np.concatenate([ood_id, ood_ood])
            self.set_scales(_scale(risk_id, risk_ood), _scale(ood_id, ood_ood))
            return
        order, ranked = ranked_scores(risk)
        self.loss, self.is_id = self.loss[order], order < self.n_id
        self.given = self.merged = ranked, None
        finite = finite_of_ranked(ranked)
        ids = finite_of_ranked(ranked[np.flatnonzero(self.is_id)])
        largest = np.abs(finite[[0, -1]]).max() if finite.size else 0.0
        self.set_scales(_scale_of_ranked(ids, largest), 1.0)

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
            return sweep(projected, self.n_id, self.loss)
        return _points_of_ranked(projected, self.is_id, self.loss)

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
            value, tau = goal.value(N, E, F), np.ones(N.shape)
        else:
            value, tau, N, F = (x.ravel() for x in goal.mixtures(before, (N, E, F)))
            lam = np.tile(lam, 2)
        best = None
        k = pick(value, N, F, goal.rtol)
        if k is not None:
            best = Candidate(
                float(value[k]),
                N[k].item(),
                F[k].item(),
                float(theta),
                float(lam[k]),
                float(tau[k]),
            )
        if goal.none < np.inf:
            none = Candidate(goal.none, 0, 0, float(theta), -math.inf, 0.0)
            best = none if better(none, best, goal.rtol) else best
        return best

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
        lam, low = found.lam, None
        if lam > -math.inf or found.tau > 0:
            projected = project(found.theta, *self.scaled)
            groups: list = [projected < lam, projected == lam, projected > lam]
            if found.tau == 1.0:
                groups[:2] = [groups[0] | groups[1]]
            if not self.double:  # sorted: groups are slices
                ends = np.cumsum([0, *map(np.count_nonzero, groups)])
                groups = [slice(*pair) for pair in itertools.pairwise(ends)]
            *lower, lam = self._thresholds(found.theta, groups)
            if any(map(math.isnan, (*lower, lam))):
                return None
            low = lower[0] if lower else None
        point = OperatingPoint(
            theta=found.theta,
            lam=lam,
            tau=found.tau,
            scales=self.scales,
            lam_low=low,
        )
        return self.evaluated(rule, point, **certificate)

    def _thresholds(self, theta, groups):
        """Return thresholds between groups of samples; NaN if the groups overlap."""
        exact = project(theta, *standardize(*self.given, self.scales))
        thresholds = []
        for below, above in itertools.pairwise(groups):
            low = exact[below].max(initial=-math.inf)
            high = exact[above].min(initial=math.inf)
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

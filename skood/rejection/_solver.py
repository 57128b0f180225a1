"""The best acceptance rule on two scores: one engine for all rules."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings
from dataclasses import replace
from numbers import Integral

import numpy as np
from sklearn.utils.validation import column_or_1d

from skood.exceptions import InfeasibleError, SkoodWarning
from skood.rejection._operating_point import (
    OperatingPoint,
    accept,
    check_pair,
    precision_at,
    project,
    standardise,
    weights,
)
from skood.rejection._rules import BaseRule
from skood.utils._ties import ends_of_ties

__all__ = ["OperatingPoint", "accept", "search", "solve"]


def _scale(score):
    """Return the 5..95 % inter-quantile range of the finite scores, 1 if zero."""
    finite = score[np.isfinite(score)]
    if finite.size == 0:
        return 1.0
    low, high = np.quantile(finite, [0.05, 0.95])
    return float(high - low) or 1.0


def _grid(angles, n_angles):
    """Return the angles to search, in increasing order."""
    if isinstance(n_angles, bool) or not isinstance(n_angles, Integral):
        raise TypeError(f"n_angles must be an integer of at least 2, got {n_angles!r}.")
    if n_angles < 2:
        raise ValueError(f"n_angles must be at least 2, got {n_angles!r}.")
    if angles == "quadrant":
        return np.linspace(0, math.pi / 2, n_angles)
    if angles == "full":
        # every quadrant starts exactly at a right angle; pi is the same as -pi
        steps = np.linspace(
            0, math.pi / 2, math.ceil(int(n_angles) / 4), endpoint=False
        )
        return np.concatenate([k * (math.pi / 2) + steps for k in range(-2, 2)])
    raise ValueError(f"angles must be 'quadrant' or 'full', got {angles!r}.")


def _sweep(projected, n_id, loss):
    """Return all operating points of one angle: thresholds, N, E and F.

    ID rows come first in `projected`; `loss` is zero on OOD rows. Thresholds exist
    at distinct projected scores only: tied rows are accepted together.
    """
    order = np.argsort(projected)
    ranked = projected[order]
    last = ends_of_ties(ranked)
    N = np.cumsum(order < n_id, dtype=np.int64)[last]
    E = np.cumsum(loss[order])[last]
    return ranked[last], N, E, last + 1 - N


def _pick(objective, N, F, rtol):
    """Return the index of the best point: objective, then largest N, smallest F."""
    least = objective.min()
    if np.isposinf(least):
        return None
    ties = np.flatnonzero(objective <= least + rtol * abs(least))
    return ties[np.lexsort((F[ties], -N[ties]))[0]]


def _better(new, old, rtol):
    """Tell whether the point (objective, N, F) `new` beats `old`."""
    if abs(new[0] - old[0]) <= rtol * abs(old[0]):
        return (-new[1], new[2]) < (-old[1], old[2])
    return new[0] < old[0]


class _Problem:
    """The rows, and the search over angles for any elementwise objective."""

    def __init__(self, risk_id, ood_id, loss_id, risk_ood, ood_ood):
        double = ood_id is not None
        self.risk_id, self.ood_id = risk_id, ood_id
        self.risk_ood, self.ood_ood = risk_ood, ood_ood
        self.n_id, self.n_ood = risk_id.size, risk_ood.size
        self.loss_id = loss_id
        self.loss = np.concatenate([loss_id, np.zeros(self.n_ood)])
        # sums of whole numbers are exact, so that their ties are ties
        self.rtol = 0.0 if np.all(loss_id == np.rint(loss_id)) else 1e-12
        self.scales = (_scale(risk_id), _scale(ood_id) if double else 1.0)
        self.scaled = standardise(
            np.concatenate([risk_id, risk_ood]),
            np.concatenate([ood_id, ood_ood]) if double else None,
            self.scales,
        )

    def points(self, theta):
        """Return the operating points of one angle."""
        return _sweep(project(theta, *self.scaled), self.n_id, self.loss)

    def minimise(self, objective, thetas):
        """Return (theta, lam) of the least ``objective(N, E, F)``, None if infinite."""
        best, rule = None, None
        for theta in thetas:
            lam, N, E, F = self.points(theta)
            values = objective(N, E, F)
            k = _pick(values, N, F, self.rtol)
            if k is None:
                continue
            point = (values[k], N[k], F[k])
            if best is None or _better(point, best, self.rtol):
                best, rule = point, (float(theta), float(lam[k]))
        return rule

    def describe(self, rule, theta, lam):
        """Return the operating point with numbers from applying the stored rule."""
        point = OperatingPoint(theta=theta, lam=lam, scales=self.scales)
        accepted = accept(point, self.risk_id, self.ood_id)
        N, E = int(accepted.sum()), float(self.loss_id[accepted].sum())
        F = int(accept(point, self.risk_ood, self.ood_ood).sum())
        tpr = N / self.n_id
        fpr = F / self.n_ood if self.n_ood else math.nan
        precision = math.nan
        if rule.ood_prior is not None:
            precision = float(precision_at(rule.ood_prior, tpr, fpr))
        return replace(
            point,
            risk=E / N if N else math.nan,
            tpr=tpr,
            fpr=fpr,
            precision=precision,
            objective=float(rule.objective(N, E, F, self.n_id, self.n_ood)),
            gap=math.nan if self.ood_id is not None else 0.0,
        )

    def least_violation(self, rule, thetas):
        """Return the point that breaks the bounds least, and what is attainable."""
        n_id, n_ood = self.n_id, self.n_ood
        most_id, least_ood = 0, math.inf

        def violation(N, E, F):
            nonlocal most_id, least_ood
            kept = N[rule.keeps_out(N, E, F, n_id, n_ood)]
            most_id = max(most_id, kept.max(initial=0))
            enough = F[rule.accepts_enough(N, n_id)]
            least_ood = min(least_ood, enough.min(initial=n_ood))
            fpr = F / n_ood if n_ood else np.full(N.shape, np.nan)
            risk = E / np.maximum(N, 1)
            return np.where(N > 0, rule.violation(N / n_id, fpr, risk), np.inf)

        point = self.describe(rule, *self.minimise(violation, thetas))
        return replace(
            point,
            risk=math.nan,
            objective=math.nan,
            feasible=False,
            max_tpr_at_fpr=float(most_id / n_id),
            min_fpr_at_tpr=float(least_ood / n_ood) if n_ood else math.nan,
        )


def _check_loss(loss_id, n_id):
    """Return the losses as float64 of shape (n_id,), or raise."""
    loss_id = column_or_1d(loss_id).astype(np.float64, copy=False)
    if loss_id.size != n_id:
        raise ValueError(
            f"loss_id must have one entry per ID row, got {loss_id.size} for {n_id} "
            f"rows."
        )
    bad = ~(np.isfinite(loss_id) & (loss_id >= 0))
    if bad.any():
        raise ValueError(
            f"loss_id must be finite and not negative, got {float(loss_id[bad][0])!r}."
        )
    return loss_id


def _check_problem(rule, risk_id, ood_id, loss_id, risk_ood, ood_ood):
    """Return the rows as a checked problem, or raise."""
    if not isinstance(rule, BaseRule):
        raise TypeError(
            f"rule must be an instance of a rule, such as BoundedTPRFPR(), got "
            f"{rule!r}."
        )
    rule.check_params()
    double = ood_id is not None
    risk_id, ood_id = check_pair(risk_id, ood_id, ("risk_id", "ood_id"), False)
    if risk_id.size == 0:
        raise ValueError("No ID rows: risk_id is empty; a rule needs ID rows.")
    loss_id = _check_loss(loss_id, risk_id.size)
    if risk_ood is None:
        if ood_ood is not None:
            raise ValueError(
                "ood_ood is given although risk_ood is None; pass both scores of the "
                "OOD rows, or none."
            )
        risk_ood, ood_ood = np.empty(0), np.empty(0) if double else None
    risk_ood, ood_ood = check_pair(risk_ood, ood_ood, ("risk_ood", "ood_ood"), double)
    if ood_ood is not None and not double:
        raise ValueError(
            "ood_ood is given although ood_id is None; pass both scores for ID and "
            "for OOD rows, or one for both."
        )
    if rule.needs_ood and risk_ood.size == 0:
        raise ValueError(
            f"{type(rule).__name__} needs OOD rows to bound the share of them that is "
            f"accepted, got none; add OOD rows, or use BoundedAbstention."
        )
    return _Problem(risk_id, ood_id, loss_id, risk_ood, ood_ood)


def search(
    rule,
    risk_id,
    ood_id,
    loss_id,
    risk_ood,
    ood_ood,
    *,
    solver="grid",
    angles="quadrant",
    n_angles=360,
):
    """Do what :func:`solve` does, but return an infeasible point instead of raising.

    The point then has ``feasible=False``, a NaN risk and the attainable bounds, and
    is the one that breaks the bounds of the rule by the smallest total amount.
    """
    if solver != "grid":
        raise ValueError(f"solver must be 'grid', got {solver!r}.")
    thetas = _grid(angles, n_angles)
    problem = _check_problem(rule, risk_id, ood_id, loss_id, risk_ood, ood_ood)
    if ood_id is None:
        thetas = np.zeros(1)

    def objective(N, E, F):
        sizes = problem.n_id, problem.n_ood
        met = rule.feasible(N, E, F, *sizes)
        return np.where(met, rule.objective(N, E, F, *sizes), np.inf)

    best = problem.minimise(objective, thetas)
    if best is None:
        return problem.least_violation(rule, thetas)
    reversed_scores = [
        name for name, w in zip(("risk", "OOD"), weights(best[0]), strict=True) if w < 0
    ]
    if reversed_scores:
        warnings.warn(
            f"The best rule uses the {' and the '.join(reversed_scores)} score "
            f"reversed (theta={best[0]:.4g}): it accepts rows because that score is "
            f"high. Check its direction, or search angles='quadrant'.",
            SkoodWarning,
            stacklevel=3,
        )
    return problem.describe(rule, *best)


def solve(
    rule,
    risk_id,
    ood_id,
    loss_id,
    risk_ood,
    ood_ood,
    *,
    solver="grid",
    angles="quadrant",
    n_angles=360,
):
    r"""Find the best acceptance rule on one or two scores.

    Scores are outlier-like here: high means reject. Among the rules

    .. math::
        \cos\theta \, a / c_a + \sin\theta \, b / c_b \le \lambda

    the one is returned that minimises the objective of `rule` within its bounds; if
    there are several, the one with the largest TPR, then the smallest FPR, then the
    smallest angle. Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    rule : BaseRule
        What is asked for, such as :class:`BoundedTPRFPR`.

    risk_id : array-like of shape (n_id,)
        Scores a of ID rows, high for rows that are likely misclassified.

    ood_id : array-like of shape (n_id,) or None
        Scores b of ID rows, high for OOD rows; -inf is not allowed. None (then also
        in `ood_ood`): a is the only score, and the angle is 0.

    loss_id : array-like of shape (n_id,)
        Losses of ID rows, not negative.

    risk_ood : array-like of shape (n_ood,) or None
        Scores a of OOD rows. None: no OOD rows, for rules that need none.

    ood_ood : array-like of shape (n_ood,) or None
        Scores b of OOD rows.

    solver : {"grid"}, default="grid"
        "grid" searches `n_angles` angles and, at each, all thresholds.

    angles : {"quadrant", "full"}, default="quadrant"
        "quadrant": [0, pi/2], so that both scores count against acceptance. "full":
        [-pi, pi), which lets a score be used reversed, with a warning.

    n_angles : int, default=360
        Number of angles. Both ends of a quadrant are among them, so that two scores
        are never worse than either of them alone (if all are finite). With "full"
        it is rounded up to a multiple of 4.

    Returns
    -------
    point : OperatingPoint
        The rule, with numbers from applying it to the rows given.

    Raises
    ------
    InfeasibleError
        If no rule meets the bounds; its text says what is attainable.
    ValueError
        If there are no ID rows or, where `rule` needs them, no OOD rows; if a score
        is NaN, an OOD score is -inf, a loss is negative, or shapes do not fit.

    Warns
    -----
    SkoodWarning
        If the best rule uses a score reversed.

    See Also
    --------
    accept : Applies the rule to other rows.
    skood.metrics.selective_risk_at : The same from labels and predictions.

    Notes
    -----
    The scales :math:`c_a, c_b` are the 5..95 % inter-quantile ranges of the finite
    scores of ID rows (1 if zero), so that the grid of angles does not depend on the
    units of the scores; the plain grid of [1]_ does. Thresholds exist at distinct
    projected scores only. A row with an infinite score is accepted last, at every
    angle. With :math:`d` angles the cost is :math:`O(d \, n \log n)`.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import BoundedTPRFPR, solve
    >>> rng = np.random.default_rng(0)
    >>> risk_id, ood_id = rng.uniform(size=(2, 500))
    >>> loss_id = rng.uniform(size=500) < risk_id / 2
    >>> risk_ood, ood_ood = rng.uniform(size=500), rng.uniform(0.7, 1.7, size=500)
    >>> rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.2)
    >>> point = solve(rule, risk_id, ood_id, loss_id, risk_ood, ood_ood)
    >>> bool(point.tpr >= 0.7 and point.fpr <= 0.2)
    True
    >>> single = solve(rule, ood_id, None, loss_id, ood_ood, None)
    >>> bool(point.risk <= single.risk)
    True
    """
    point = search(
        rule,
        risk_id,
        ood_id,
        loss_id,
        risk_ood,
        ood_ood,
        solver=solver,
        angles=angles,
        n_angles=n_angles,
    )
    if not point.feasible:
        asked = ", ".join(f"{k}={v!r}" for k, v in rule.get_params().items())
        n_ood = 0 if risk_ood is None else len(risk_ood)
        raise InfeasibleError(
            f"No acceptance rule meets {type(rule).__name__}({asked}) on "
            f"{len(risk_id)} ID and {n_ood} OOD rows.",
            max_tpr_at_fpr=point.max_tpr_at_fpr,
            min_fpr_at_tpr=point.min_fpr_at_tpr,
        )
    return point

"""Step curve of the best acceptance rule at every bound."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass, field

import numpy as np

from skood.decision import OperatingPoint, grid_of_angles
from skood.utils._ties import GUARD, ends_of_ties


@dataclass(frozen=True, eq=False)
class BoundCurve:
    r"""Step function of the best value of an acceptance rule at every bound.

    The curve has a point where the best value changes, and stores the rule on the
    scores that attains each point. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    bounds : ndarray of shape (n_points,)
        The bounds, which the rules meet with equality; increasing.

    values : ndarray of shape (n_points,)
        The best value of a rule that meets the bound; strictly monotone. Precisions
        may also be equal, namely 1 at an `ood_prior` of 0 or next to it.

    at_most : bool
        Whether the bounds are upper bounds. False: lower bounds.

    thetas : ndarray of shape (n_points,)
        The angle of each rule; 0 uses the first score only, pi/2 the second. If
        several rules share a point, the smallest angle.

    lams : ndarray of shape (n_points,)
        The threshold of each rule; -inf with a tau of 0 accepts nothing.

    taus : ndarray of shape (n_points,)
        Probability of accepting samples at the threshold.

    scales : tuple of (float, float)
        The scales of the two scores.

    See Also
    --------
    double_score_risk_coverage_curve : The least risk at each coverage.
    double_score_roc_curve : The least FPR at each TPR.
    double_score_precision_recall_curve : The largest precision at each recall.
    double_score_ccr_curve : The largest correct classification rate at each FPR.
    scod_risk_coverage_curve : The least risk over ID and OOD samples at each coverage.

    Examples
    --------
    >>> from skood.metrics import double_score_risk_coverage_curve
    >>> curve = double_score_risk_coverage_curve(
    ...     [0, 1, 1, 0], [0, 1, 0, 0], [0.9, 0.8, 0.6, 0.5]
    ... )
    >>> curve.bounds, curve.values
    (array([0.5, 1. ]), array([0.  , 0.25]))
    >>> curve.at([0.4, 0.6])
    array([0.  , 0.25])
    >>> curve.area
    0.125
    """

    bounds: np.ndarray
    values: np.ndarray
    at_most: bool
    thetas: np.ndarray = field(repr=False)
    lams: np.ndarray = field(repr=False)
    taus: np.ndarray = field(repr=False)
    scales: tuple[float, float]

    def _positions(self, bound):
        """Return the index of the point for each bound, and whether it exists."""
        bound = np.asarray(bound, dtype=np.float64)
        if np.isnan(bound).any():
            raise ValueError("bound contains NaN; pass numbers.")
        if self.at_most:
            position = np.searchsorted(self.bounds, bound + GUARD, side="right") - 1
            return np.maximum(position, 0), position >= 0
        position = np.searchsorted(self.bounds, bound - GUARD)
        return np.minimum(position, self.bounds.size - 1), position < self.bounds.size

    def at(self, bound):
        """Return the best value at other bounds.

        Parameters
        ----------
        bound : float or array-like
            The bounds to meet.

        Returns
        -------
        value : float or ndarray
            NaN where no rule meets the bound.
        """
        position, met = self._positions(bound)
        return np.where(met, self.values[position], np.nan)[()]

    def rule_at(self, bound):
        """Return the rule that is best at a bound.

        Parameters
        ----------
        bound : float
            The bound to meet.

        Returns
        -------
        point : OperatingPoint
            The rule, on the negated scores: apply it by
            ``skood.rejection.accept(point, -y_score, -ood_score)``.

        Raises
        ------
        ValueError
            If no rule meets the bound.
        """
        position, met = self._positions(float(bound))
        if not met:
            raise ValueError(
                f"No rule meets a bound of at most {bound!r}: the least that one "
                f"meets is {self.bounds[0]:.6g}."
                if self.at_most
                else f"No rule meets a bound of at least {bound!r}: the largest that "
                f"one meets is {self.bounds[-1]:.6g}."
            )
        return OperatingPoint(
            theta=float(self.thetas[position]),
            lam=float(self.lams[position]),
            tau=float(self.taus[position]),
            scales=self.scales,
        )

    @property
    def area(self):
        """The exact area under the step function, over bounds from 0 to 1.

        Where no rule meets the bound, the value counts as 0.
        """
        if self.at_most:
            width = np.diff(self.bounds, append=1.0)
        else:
            width = np.diff(self.bounds, prepend=0.0)
        return float(np.sum(width * self.values))


def angles_to_try(problem, angles, n_angles):
    """Return the grid of angles, or angle 0 if there is only one score."""
    thetas = grid_of_angles(angles, n_angles)
    return thetas if problem.double else np.zeros(1)


def _best_of_runs(position, key):
    """Return, for each run of equal positions, the index of its last least key.

    Runs with only infinite keys are omitted.
    """
    last = ends_of_ties(position)
    first = np.append(0, last[:-1] + 1)
    least = np.repeat(np.minimum.reduceat(key, first), last + 1 - first)
    hit = np.flatnonzero((key == least) & (key < np.inf))
    return hit[ends_of_ties(position[hit])] if hit.size else hit


def _beats_later(key):
    """Return which keys are smaller than all later keys."""
    return key < np.append(np.minimum.accumulate(key[::-1])[::-1][1:], np.inf)


def _frontier(points):
    """Return the columns that no other column dominates in position and key.

    Among equal columns, the one with the most ID samples stays, then the last.
    """
    points = points[:, np.lexsort((points[2], -points[1], points[0]))]
    return points[:, _beats_later(points[1])]


def best_rules(problem, thetas, read, *, none=None, at_most=False):
    """Return positions and keys of the best rule at every bound, and the rules.

    `read(N, E, F)` returns position and key (infinite: does not count) of operating
    points; `none` are position and key of accepting nothing. Positions, of shape
    (n_points,), are bounded from above if `at_most`; the rules are arguments of a
    :class:`BoundCurve`.
    """
    # One pass over the angles: all thresholds at each angle are evaluated, and the best
    # are merged into the best rules so far.
    sign = -1.0 if at_most else 1.0
    # rows: position, key, N, theta, lam, tau; upper bounds are negated lower bounds
    best = np.empty((6, 0))
    if none is not None:
        best = np.array([[sign * none[0]], [none[1]], [0], [0], [-math.inf], [0]])
    for theta in thetas:
        lam, N, E, F = problem.points(theta)
        position, key = read(N, E, F)
        k = _best_of_runs(position, key)
        if at_most:
            k = k[::-1]
        k = k[_beats_later(key[k])]
        new = np.array(
            [
                sign * position[k],
                key[k],
                N[k],
                np.full(k.size, theta),
                lam[k],
                np.ones(k.size),
            ]
        )
        best = _frontier(np.concatenate([new, best], axis=1))
    if at_most:
        best = best[:, ::-1]
    rules = {
        "at_most": at_most,
        "thetas": best[3],
        "lams": best[4],
        "taus": best[5],
        "scales": problem.scales,
    }
    return sign * best[0], best[1], rules

"""Optimal acceptance probabilities on a finite input space."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from skood.decision._base_rule import (
    Linear,
    as_requested,
    attainable_rates,
    check_rule,
    is_floor,
    least_tpr,
)
from skood.decision._operating_point import Attainable, rates_of
from skood.exceptions import InfeasibleError
from skood.utils._scores import check_nonnegative
from skood.utils._ties import GUARD

# A reduced cost below this fraction of its terms is a tie, and acceptance probabilities
# this close to 0 or 1 are rounded.
_TIE = 1e-12

# Programs are multiplied by _SHARP, by which the tolerances of HiGHS, none of them
# below 1e-10, and the 1e-9 below which it takes a matrix entry for zero, get smaller.
_SHARP = 1e3
_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# Whether to presolve, and slack in the bounds, tried until HiGHS finishes.
_ATTEMPTS = ((False, 0.0), (True, 0.0), (False, 1e-10), (True, 1e-10), (True, 5e-10))


@dataclass(frozen=True, eq=False)
class FiniteSolution:
    r"""Optimal acceptance probabilities of the atoms of a finite input space.

    Read more in the :ref:`User Guide <finite_space>`.

    Parameters
    ----------
    accept : ndarray of shape (n_atoms,)
        The probability c(x) of accepting each atom.

    risk : float
        Selective risk; NaN if nothing is accepted.

    tpr : float
        Accepted fraction of ID inputs.

    fpr : float
        Accepted fraction of OOD inputs; NaN without `p_ood`.

    precision : float
        Fraction of ID inputs among accepted ones at the `ood_prior` of the rule; NaN if
        the rule has no `ood_prior`, without `p_ood`, or if nothing is accepted.

    objective : float
        The minimized objective of the rule.

    mu : float
        Weight of the likelihood ratio in ``r + mu * g``.

    lam : float
        The threshold of ``r + mu * g``: atoms below it are accepted and atoms above it
        are rejected; atoms at the threshold may have any probability. `mu` and `lam`
        are NaN where the risk plays no role, as when all inputs may be accepted. They
        are computed from multipliers of the bounds; if these are not unique, they are
        one possible pair.

    feasible : bool
        Whether the bounds, as functions of the three fractions, hold up to 1e-9 at
        these numbers.

    See Also
    --------
    solve_finite : Returns it.
    OperatingPoint : The result for two scores.

    Examples
    --------
    >>> from skood.rejection import BoundedAbstention, solve_finite
    >>> rule = BoundedAbstention(coverage=0.75)
    >>> solution = solve_finite([0.5, 0.5], None, [0.1, 0.3], rule)
    >>> solution.accept, round(solution.risk, 4), solution.lam
    (array([1. , 0.5]), 0.1667, 0.3)
    """

    accept: np.ndarray
    risk: float
    tpr: float
    fpr: float
    precision: float
    objective: float
    mu: float
    lam: float
    feasible: bool


class _Face:
    """Set of acceptance probabilities within bounds, or of the best among them.

    The variables of its programs are not the probabilities c but the accepted masses z
    = c * mass: all their coefficients are of the order of one, so that the tolerances
    of a program solver are tolerances of the result.
    """

    def __init__(self, p, q, risk, bounds, cost=None):
        uses_ood = any(function.ood for function in (*bounds, cost or Linear()))
        self.mass = np.maximum(p, q) if uses_ood else p
        self.columns = np.array([p, p * risk, q]) / self.mass
        self.coefficients = np.array([bound[:3] for bound in bounds]).reshape(-1, 3)
        self.most = -np.array([bound.constant for bound in bounds])
        # samples of no effect would only add to the number of fractional atoms
        of_use = ((self.coefficients @ self.columns) > 0).any(axis=1) | (self.most < 0)
        self.coefficients, self.most = self.coefficients[of_use], self.most[of_use]
        self.equal = np.zeros(len(self.coefficients), dtype=bool)
        self.free = np.ones(len(p), dtype=bool)
        self.z = np.zeros(len(p))

    def sums(self, z):
        """Return N, E and F of accepted masses."""
        return self.columns @ z

    def excess(self):
        """Return by how much the bounds must be relaxed to be met."""
        worst = float(np.max(-self.most, initial=0.0))
        if worst <= 0:
            return 0.0  # attained by accepting nothing
        coefficients = self.coefficients @ self.columns
        z, _ = _linear_program(
            np.append(np.zeros(len(self.z)), 1.0),
            np.column_stack([coefficients, -np.ones(len(coefficients))]),
            self.most,
            self.equal,
            np.append(self.mass, worst),
        )
        return float(z[-1])

    def minimize(self, objective):
        """Return a vertex that minimizes a Linear, and the multipliers of the rows."""
        if not self.free.any():
            return self.z, np.zeros(len(self.coefficients))
        columns, z = self.columns[:, self.free], self.z.copy()
        factors = np.array(objective[:3])
        decided = self.columns[:, ~self.free] @ z[~self.free]
        scale = self._size(factors) or 1.0
        z[self.free], multipliers = _linear_program(
            factors / scale @ columns,
            self.coefficients @ columns,
            self.most - self.coefficients @ decided,
            self.equal,
            self.mass[self.free],
        )
        return z, multipliers * scale

    def narrow(self, objective):
        """Restrict to minima of a Linear; return the factors of N, E, F in its dual.

        By complementary slackness these are all points in which an atom is accepted
        where its reduced cost is negative, and rejected where it is positive, and
        that meet every bound with a multiplier exactly.
        """
        self.z, multipliers = self.minimize(objective)
        factors, coefficients = np.array(objective[:3]), np.abs(self.coefficients)
        total = factors - multipliers @ self.coefficients
        size = self._size(factors)
        terms = size + np.abs(multipliers) @ coefficients @ self.columns
        self.free &= np.abs(total @ self.columns) <= _TIE * terms
        weight = np.abs(multipliers) * np.max(coefficients, axis=1, initial=0.0)
        self.equal |= weight > _TIE * size
        return total

    def _size(self, factors):
        """Return the size of the terms of an objective."""
        return float(np.max(np.abs(factors) @ self.columns, where=self.free, initial=0))


def _linear_program(weights, coefficients, most, equal, upper):
    """Return a vertex that minimizes the weighted sum, and the multipliers.

    Presolving rounds more, and the slack in the bounds allows for rounding; with both,
    the solver also finishes where coefficients differ by many orders of magnitude.
    """
    for presolve, slack in _ATTEMPTS:
        result = linprog(
            _SHARP * weights,
            A_ub=_SHARP * coefficients[~equal],
            b_ub=_SHARP * (most[~equal] + slack),
            A_eq=_SHARP * coefficients[equal],
            b_eq=_SHARP * most[equal],
            bounds=np.column_stack([np.zeros(len(upper)), upper]),
            method="highs-ds",
            options={**_OPTIONS, "presolve": presolve},
        )
        if result.status == 0:
            break
    if result.status != 0:
        raise RuntimeError(
            f"The linear program of solve_finite could not be solved; "
            f"message of scipy.optimize.linprog: {result.message}"
        )
    multipliers = np.zeros(len(coefficients))
    multipliers[~equal] = result.ineqlin.marginals
    multipliers[equal] = result.eqlin.marginals
    return np.clip(result.x, 0.0, upper), multipliers


def _check_probabilities(values, name):
    """Return probabilities as float64 that sum to one, or raise."""
    values = check_nonnegative(values, name)
    if not abs(values.sum() - 1) <= GUARD:
        raise ValueError(
            f"{name} must sum to 1, got a sum of {float(values.sum())!r}; divide it "
            f"by its sum."
        )
    return values / values.sum()


def _problem(rule, has_ood):
    """Return cost and bounds as functions of rates, and whether N must be positive."""
    cost, bounds = rule.cost(), []
    for rate in rule.rates():
        # in units of the largest factor, since a user's rule may use any unit
        size = max(map(abs, rate[:3])) or 1.0
        bounds.append(Linear(*(term / size for term in rate)))
    used = any(f.ood != 0 for f in (*bounds, cost or Linear()))
    if not has_ood and (rule.needs_ood or used):
        raise ValueError(
            f"{type(rule).__name__} needs p_ood, the probabilities of the atoms in OOD "
            f"data, got None."
        )
    return cost, bounds, least_tpr(rule, 1) > least_tpr(rule)


def _largest_tpr(face):
    """Return N where it is largest, and the selective risk there."""
    N, E, _ = face.sums(face.minimize(Linear(id=-1.0))[0])
    return N, E / max(N, _TIE)


def _least_risk(face, risk):
    """Return the linear objective with the same minima as the selective risk.

    Dinkelbach's iteration: from an attained risk R, the minimum of E - R N is negative
    until R is the least risk, where it is zero. The risks fall faster than linearly.
    """
    while True:
        N, E, _ = face.sums(face.minimize(Linear(id=-risk, loss=1.0))[0])
        if N <= 0 or E / N >= risk:
            return Linear(id=-risk, loss=1.0)
        risk = E / N


def _infeasible(rule, p, q, risk, bounds, has_ood):
    """Return the error with the attainable values."""
    others = _Face(p, q, risk, [b for b in bounds if not is_floor(b)])
    most = 0.0 if others.excess() > GUARD else _largest_tpr(others)[0]
    floors = _Face(p, q, risk, [b for b in bounds if is_floor(b)])
    least = math.nan
    if has_ood and floors.excess() <= GUARD:
        least = floors.sums(floors.minimize(Linear(ood=1.0))[0])[2]
    attainable = Attainable(most, least, float(risk.min()))
    return InfeasibleError(
        f"No acceptance probabilities meet {as_requested(rule)} on {len(p)} "
        f"atoms that may be accepted.",
        **attainable_rates(rule, attainable),
    )


def _describe(rule, bounds, c, p, q, risk, factors):
    """Return the solution with numbers from the acceptance probabilities."""
    # quotients of equal sums are exactly 1 where all is accepted
    N, E = (float(mass.sum() / p.sum()) for mass in (c * p, c * p * risk))
    F, n_ood = (float((c * q).sum() / q.sum()), 1) if q.any() else (0.0, 0)
    by_id, by_loss, by_ood = factors
    return FiniteSolution(
        accept=c,
        **rates_of(rule, N, E, F, 1, n_ood)._asdict(),
        mu=float(by_ood / by_loss) if by_loss > 0 else math.nan,
        lam=float(-by_id / by_loss) if by_loss > 0 else math.nan,
        feasible=all(bool(bound.at(N, E, F) <= GUARD) for bound in bounds),
    )


def solve_finite(p_id, p_ood, risk, rule):
    r"""Find the optimal acceptance probabilities on a finite input space.

    The distributions are known: each atom x, such as a cell of discrete features, has
    an ID probability, an OOD probability and a conditional risk. Rules on two scores
    have one acceptance probability at their threshold; here each atom has its own. Read
    more in the :ref:`User Guide <finite_space>`.

    Parameters
    ----------
    p_id : array-like of shape (n_atoms,)
        Probabilities of the atoms in ID data; they sum to 1.

    p_ood : array-like of shape (n_atoms,) or None
        Probabilities of the atoms in OOD data; they sum to 1. None: unknown, for rules
        that do not require it.

    risk : array-like of shape (n_atoms,)
        Conditional risk of each atom: its expected loss in ID data, not negative. The
        risk of atoms with ``p_id = 0`` has no effect.

    rule : BaseRule
        The objective and the bounds, such as :class:`BoundedTPRFPR`.

    Returns
    -------
    solution : FiniteSolution
        The acceptance probabilities, in the order of the atoms, and the attained rates.
        Ties among optima are resolved by the largest TPR, then the smallest FPR. Atoms
        with ``p_id = 0``, or a likelihood ratio of at least 1e9, are rejected.

    Raises
    ------
    InfeasibleError
        If no acceptance probabilities meet the bounds; its text gives the attainable
        values.
    ValueError
        If probabilities are negative, not finite, or do not sum to 1 (up to 1e-9); if
        a risk is negative or not finite; if lengths differ; if `rule` needs `p_ood`.
    TypeError
        If `rule` is not a rule.

    See Also
    --------
    solve : For scores of samples.
    PlugInCost : The rule of least cost on the conditional risk and the ratio.

    Notes
    -----
    With the acceptance probabilities :math:`c(x) \in [0, 1]`, let

    .. math::
        N = \sum_x c \, p_I, \qquad E = \sum_x c \, p_I \, r, \qquad
        F = \sum_x c \, p_O .

    Costs and bounds are linear in them, and so in c: a linear program [1]_. The
    selective risk is their quotient :math:`E / N`. Its least value is the number R for
    which the least value of :math:`E - R N` is zero, which takes a few linear programs
    [2]_. The last linear program gives the optima. Ties among them are resolved by
    further linear programs on the face of all optima. A bound that at least one sample
    be accepted becomes :math:`N > 0`.

    At a vertex of :math:`[0, 1]^n` cut by m bounds, at least n - m atoms have the
    probability 0 or 1. So at most m have a fractional one: two for
    :class:`BoundedTPRFPR` and :class:`BoundedPrecisionRecall`,
    one for :class:`BoundedAbstention` and :class:`BoundedImprovement`, none for
    :class:`CostBased`. Duality gives the form of the solution, with
    :math:`g = p_O / p_I`:

    .. math::
        c(x) = 1 \ \text{ if }\ r(x) + \mu \, g(x) < \lambda, \qquad
        c(x) = 0 \ \text{ if }\ r(x) + \mu \, g(x) > \lambda .

    The programs are solved by HiGHS through :func:`scipy.optimize.linprog`.
    Probabilities within 1e-12 of 0 or 1 are rounded; bounds hold up to 1e-9.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.
    .. [2] W. Dinkelbach. On nonlinear fractional programming. Management Science 13,
       1967.

    Examples
    --------
    >>> from skood.rejection import BoundedTPRFPR, solve_finite
    >>> solution = solve_finite(
    ...     p_id=[0.4, 0.4, 0.2],
    ...     p_ood=[0.0, 0.5, 0.5],
    ...     risk=[0.3, 0.1, 0.2],
    ...     rule=BoundedTPRFPR(tpr_min=0.5, fpr_max=0.25),
    ... )
    >>> solution.accept.round(4), round(solution.risk, 4)
    (array([0.75, 0.5 , 0.  ]), 0.22)
    >>> round(solution.tpr, 4), round(solution.fpr, 4)
    (0.5, 0.25)
    """
    check_rule(rule)
    p, risk = _check_probabilities(p_id, "p_id"), check_nonnegative(risk, "risk")
    q = np.zeros(len(p)) if p_ood is None else _check_probabilities(p_ood, "p_ood")
    if not len(p) == len(q) == len(risk):
        raise ValueError(
            f"p_id, p_ood and risk must have one entry per atom each, got {len(p)}, "
            f"{len(q)} and {len(risk)}."
        )
    cost, bounds, needs_sample = _problem(rule, p_ood is not None)
    # elsewhere the likelihood ratio is infinite, or nearly so: never accepted
    atoms = np.flatnonzero(p > GUARD * q)
    inside = p[atoms], q[atoms], risk[atoms]
    face = _Face(*inside, bounds, cost)
    excess = face.excess()
    face.most += excess
    most, start = math.inf, 0.0
    if needs_sample and excess <= GUARD:
        most, start = _largest_tpr(face)
    if excess > GUARD or most <= _TIE:
        raise _infeasible(rule, *inside, bounds, p_ood is not None)
    factors = face.narrow(cost if cost is not None else _least_risk(face, start))
    for preference in (Linear(id=-1.0), Linear(ood=1.0)):
        face.narrow(preference)
    c = np.zeros(len(p))
    c[atoms] = face.z / face.mass
    c[c <= _TIE] = 0.0
    c[c >= 1 - _TIE] = 1.0
    return _describe(rule, bounds, c, p, q, risk, factors)

"""Optimal acceptance on a finite input space, and on a decision boundary."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
from scipy.optimize import linprog
from sklearn.utils import Bunch, check_array

from skood.decision._base_rule import (
    Linear,
    as_requested,
    attainable_rates,
    check_rule,
    is_floor,
    least_tpr,
)
from skood.decision._bounded_rules import BoundedTPRFPR
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


def boundary_acceptance(g_id, g_ood, rule, mu, *, weights_id=None, weights_ood=None):
    r"""Find the optimal acceptance where all combined scores are equal.

    The optimal rule for a bounded TPR and FPR accepts samples with :math:`r(x) + \mu
    g(x) < \lambda`, for the conditional risk r and the likelihood ratio :math:`g = p_O
    / p_I`. Where the sum equals :math:`\lambda` it depends on g alone [1]_: of samples
    that are all on this boundary, with TPR :math:`\varphi` and FPR :math:`\rho`, the
    selective risk is

    .. math:: R^S = \lambda - \mu \, \frac{\rho}{\varphi} .

    It is least if :math:`\rho / \varphi` is as small (:math:`\mu < 0`) or as large
    (:math:`\mu > 0`) as the bounds allow, for the acceptance of a window
    :math:`\gamma_1 \le g \le \gamma_2`.

    Read more in the :ref:`User Guide <boundary>`.

    Parameters
    ----------
    g_id : array-like of shape (n_id,)
        Likelihood ratios of ID samples, of atoms or of quadrature nodes.

    g_ood : array-like of shape (n_ood,)
        Likelihood ratios of OOD samples.

    rule : BoundedTPRFPR
        The bounds on :math:`\varphi` and :math:`\rho`.

    mu : float
        Weight of g in the combined score. 0: any acceptance that meets the bounds is
        optimal, and the one of the least FPR is returned.

    weights_id, weights_ood : array-like of shape (n_id,) and (n_ood,), default=None
        Weights of the samples, such as the probabilities of atoms or the density at
        quadrature nodes; they are divided by their sum. None: equal weights.

    Returns
    -------
    acceptance : Bunch
        ``gamma1`` and ``gamma2``, the ends of the window; ``chi1`` and ``chi2``, the
        acceptance probabilities at these values of g, while values in between are
        accepted; ``tpr`` and ``fpr``, the attained rates; and ``feasible``. If it is
        False, no acceptance meets the bounds, and the one of the required TPR and the
        least FPR is returned.

    Raises
    ------
    ValueError
        If values or weights are negative or not finite.
    TypeError
        If `rule` is not a :class:`BoundedTPRFPR`.

    See Also
    --------
    solve_finite : Solves the whole problem for a finite input space.

    Notes
    -----
    For :math:`\mu > 0` each lower end has a largest upper end with :math:`\rho \le
    \rho_{\max}`; the lower end is raised until :math:`\varphi = \varphi_{\min}`. The
    function :math:`F(\alpha, s)` of [1]_ is undefined if all of :math:`g \ge s` has
    less than :math:`\rho_{\max}`, and the printed recipe then stops too low.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023, Theorem 7.

    Examples
    --------
    ID samples are uniform on [0, 1], OOD samples have the density 2x, and g = 2x:

    >>> import numpy as np
    >>> from skood.rejection import BoundedTPRFPR, boundary_acceptance
    >>> x = (np.arange(10_000) + 0.5) / 10_000
    >>> rule = BoundedTPRFPR(tpr_min=0.6, fpr_max=0.5)
    >>> found = boundary_acceptance(2 * x, 2 * x, rule, mu=1.0, weights_ood=x)
    >>> round(found.gamma1, 3), round(found.gamma2, 3)
    (0.233, 1.433)
    >>> round(found.fpr / found.tpr, 4)
    0.8333
    """
    if not isinstance(rule, BoundedTPRFPR):
        raise TypeError(
            f"rule must be a BoundedTPRFPR, got {type(rule).__name__}: the acceptance "
            "on the boundary is known for bounds on TPR and FPR."
        )
    rule.check_params()
    if isinstance(mu, bool) or not isinstance(mu, Real) or not math.isfinite(mu):
        raise ValueError(f"mu must be a finite number, got {mu!r}.")
    g, id_mass, ood_mass = _atoms(g_id, g_ood, weights_id, weights_ood)
    # cumulative masses at the ends of the atoms; in between they are linear in the
    # fraction of an atom that is accepted
    tpr, fpr = (np.concatenate([[0.0], np.cumsum(m)]) for m in (id_mass, ood_mass))
    tpr[-1] = fpr[-1] = 1.0
    low, high = 0.0, _first_reaching(tpr, rule.tpr_min)
    feasible = np.interp(high, np.arange(len(fpr)), fpr) <= rule.fpr_max + GUARD
    if float(mu) > 0 and feasible:
        low, high = _highest_window(tpr, fpr, rule)
    return Bunch(**_window(g, tpr, fpr, low, high), feasible=feasible)


def _atoms(g_id, g_ood, weights_id, weights_ood):
    """Return the distinct values of g with their probabilities in ID and OOD data."""
    values, masses = [], []
    for g, weights, kind in ((g_id, weights_id, "id"), (g_ood, weights_ood, "ood")):
        g = check_array(g, ensure_2d=False, dtype=np.float64, input_name=f"g_{kind}")
        if g.ndim != 1 or g.min() < 0:
            raise ValueError(
                f"g_{kind} must be likelihood ratios >= 0 of shape (n_{kind},), got "
                f"the shape {g.shape} and the least value {g.min():.4g}."
            )
        if weights is None:
            weights = np.ones(len(g))
        name = f"weights_{kind}"
        mass = check_array(weights, ensure_2d=False, dtype=np.float64, input_name=name)
        if mass.shape != g.shape or mass.min() < 0 or not mass.any():
            raise ValueError(
                f"{name} must be weights >= 0 of shape {g.shape}, not all 0, got the "
                f"shape {mass.shape} and the least value {mass.min():.4g}."
            )
        values.append(g)
        masses.append(mass / mass.sum())
    g, codes = np.unique(np.concatenate(values), return_inverse=True)
    n_id = len(values[0])
    id_mass = np.bincount(codes[:n_id], masses[0], minlength=len(g))
    ood_mass = np.bincount(codes[n_id:], masses[1], minlength=len(g))
    return g, id_mass, ood_mass


def _first_reaching(cumulative, level):
    """Return the first position with a level: atoms, and a fraction of the next one."""
    k = int(np.searchsorted(cumulative, level - GUARD))
    if k == 0:
        return 0.0
    below, above = cumulative[k - 1 : k + 1]
    return k - 1 + min((level - below) / (above - below), 1.0)


def _highest_window(tpr, fpr, rule):
    """Return the ends of the window of largest FPR over TPR that meets both bounds."""
    n = len(tpr) - 1
    positions = np.arange(n + 1)
    # below each lower end s: the largest upper end, which moves linearly between kinks
    at_end = fpr - rule.fpr_max
    kinks = [_last_below(fpr, level) for level in at_end[at_end > 0]]
    lows = np.unique(np.concatenate([positions, kinks]))
    levels = np.interp(lows, positions, fpr) + rule.fpr_max
    highs = np.array([_last_below(fpr, level) for level in levels])
    widths = np.interp(highs, positions, tpr) - np.interp(lows, positions, tpr)
    last = np.flatnonzero(widths >= rule.tpr_min - GUARD)[-1]
    low, high = lows[last], highs[last]
    if last + 1 < len(lows) and widths[last] > rule.tpr_min:
        # between two kinks all are linear
        fraction = (widths[last] - rule.tpr_min) / (widths[last] - widths[last + 1])
        low += fraction * (lows[last + 1] - low)
        high += fraction * (highs[last + 1] - high)
    return float(low), float(high)


def _last_below(cumulative, level):
    """Return the last position with at most a level."""
    k = int(np.searchsorted(cumulative, level + GUARD, side="right"))
    if k == len(cumulative):
        return k - 1.0
    below, above = cumulative[k - 1 : k + 1]
    return k - 1 + min(max((level - below) / (above - below), 0.0), 1.0)


def _window(g, tpr, fpr, low, high):
    """Return the window between positions: ends, acceptance there, and masses."""
    first, last = min(int(low), len(g) - 1), max(int(np.ceil(high)) - 1, 0)
    chi1, chi2 = 1.0 - (low - first), high - last
    if first == last:
        chi1 = chi2 = high - low
    positions = np.arange(len(tpr))
    rates = [np.diff(np.interp([low, high], positions, m))[0] for m in (tpr, fpr)]
    return {
        "gamma1": float(g[first]),
        "gamma2": float(g[last]),
        "chi1": float(chi1),
        "chi2": float(chi2),
        "tpr": float(rates[0]),
        "fpr": float(rates[1]),
    }

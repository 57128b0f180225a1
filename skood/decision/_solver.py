"""Solver of all decision rules: the best acceptance rule on two scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from skood.decision._angle_search import (
    MAX_SAMPLES,
    branch_and_bound,
    grid_search,
    pivot_sweep,
)
from skood.decision._base_rule import (
    Linear,
    Rebounded,
    as_requested,
    attainable_rates,
    is_floor,
)
from skood.decision._calibration_sample import (
    BestRule,
    Goal,
    Problem,
    better,
    points_before,
)
from skood.decision._operating_point import Attainable, OperatingPoint, weights
from skood.decision._options import Solver
from skood.decision._scored_samples import checked_samples
from skood.exceptions import InfeasibleError
from skood.stats._rate_tests import least_where
from skood.utils._ties import GUARD, tolerance
from skood.utils._warnings import warn

# Gap at which any rule within the bounds will do.
_ANY = 1e300

# Angles of a grid by default.
N_ANGLES = 360

# Accuracy of the least violation: less than a sample in a billion.
_ACCURACY = 1e-9


def grid_of_angles(angles, n_angles):
    """Return the angles of a grid, right angles included, in increasing order."""
    if angles == "quadrant":
        return np.linspace(0, math.pi / 2, n_angles)
    # every quadrant starts exactly at a right angle; pi is the same as -pi
    steps = np.linspace(0, math.pi / 2, math.ceil(n_angles / 4), endpoint=False)
    return np.concatenate([k * (math.pi / 2) + steps for k in range(-2, 2)])


def _nearest(problem, rule, optimize, find, *, whole, randomize):
    """Return the best rule of those with the least largest violation, and the latter.

    `optimize` returns the best rule of a goal, or None; `find` returns some rule that
    meets its bounds, or None. `whole` is as in `BaseRule.bounds`.

    The violation is bracketed: each rule that is found lowers the upper end to the
    least violation at its angle. The bracket is halved, or the violation just below the
    upper end is tried, which is the last search if no rule has it.
    """

    def goal(amount):
        return Goal.of(Rebounded.loosened(rule, amount), problem, whole=whole)

    low, high = 0.0, 1.0
    best = find(goal(high))
    while best is None:
        low, high = high, 2 * high  # a risk of large losses
        best = find(goal(high))
    accuracy = _ACCURACY * max(high, 1.0)
    halves = False
    while high - low > 1.5 * accuracy:  # differences are rounded
        if best is not None:
            high = _least_at(problem, best.theta, goal, low, high, accuracy, randomize)
            halves = not halves and high - low > 2 * accuracy
        amount = (low + high) / 2 if halves else high - accuracy
        best = find(goal(amount))
        if best is not None:
            high = amount
        else:
            low, halves = amount, False
    # Rules with equal violations may differ by the guard against rounding.
    return optimize(goal(high + GUARD + accuracy)), round(high, 9)


def _least_at(problem, theta, goal, low, high, accuracy, randomize):
    """Return the least violation of the rules of an angle, which have at most `high`.

    It is at least `low`, and is found by bisection.
    """
    lam, *after = problem.points(theta)
    before = points_before(*after) if randomize else None

    def is_met(amount):
        best = problem.best_of(theta, lam, *after, goal=goal(amount), before=before)
        return best is not None

    return least_where(is_met, low, high, accuracy / 2)


def _least_violation(problem, rule, thetas, optimize, find, randomize, infeasible):
    """Return the point with the smallest violation, and the attainable values.

    The first is searched on a grid of angles, or is the nearest rule; `optimize`
    returns the best rule of any goal, `find` some rule within its bounds, or None.
    """
    whole = problem.whole and not randomize
    n_id, n_ood = problem.n_id, problem.n_ood
    best = None
    for theta in thetas:
        lam, N, E, F = problem.points(theta)
        risk = np.divide(E, N, out=np.full(N.shape, math.inf), where=N > 0)
        fpr = F / n_ood if n_ood else np.full(N.shape, np.nan)
        broken = np.where(N > 0, rule.violation(N / n_id, fpr, risk), math.inf)
        k = np.lexsort((F, -N, broken))[0]
        candidate = BestRule(
            float(broken[k]), float(N[k]), float(F[k]), float(theta), float(lam[k])
        )
        if better(candidate, best, 0.0):
            best = candidate
    bounds = rule.bounds(n_id, n_ood, whole=whole)
    floors = tuple(bound for bound in bounds if is_floor(bound))
    others = tuple(bound for bound in bounds if not is_floor(bound))
    most = optimize(Goal(Linear(id=-1 / n_id), others))
    least = optimize(Goal(Linear(ood=1 / max(n_ood, 1)), floors))
    right = optimize(Goal(None, ()))
    attainable = Attainable(
        max_tpr_at_fpr=most.N / n_id if most else 0.0,
        min_fpr_at_tpr=least.F / n_ood if least and n_ood else math.nan,
        min_risk=right.value,
    )
    if infeasible == "raise":
        point = problem.describe(rule, best)
        return point and point.infeasible(attainable)
    options = {"whole": whole, "randomize": randomize}
    best, violation = _nearest(problem, rule, optimize, find, **options)
    point = problem.describe(rule, best)
    return point and replace(point, attainable=attainable, violation=violation)


def _plug_in(problem, rule):
    """Return the operating point of a rule with a closed form."""
    for score, name in ((problem.ood_id, "ood_id"), (problem.ood_ood, "ood_ood")):
        if score is not None and (score < 0).any():
            raise ValueError(
                f"{type(rule).__name__} takes the OOD score for a likelihood ratio, "
                f"which is not negative, but {name} contains {float(score.min())!r}. "
                f"Exponentiate the logarithm of a ratio; with any other score use "
                f"CostBased."
            )
    mu, lam = rule.plug_in()
    theta = math.atan(mu) if problem.double else 0.0
    problem.set_scales(1.0, 1.0)
    # no midpoint between scores: equal costs, up to rounding, accept
    lam += float(tolerance(lam, 0.0, lam))
    point = OperatingPoint(theta=theta, lam=lam * math.cos(theta))
    return problem.evaluated(rule, point)


def search(rule, samples, solver=None):
    """Solve as `solve`, but return an infeasible point instead of raising."""
    solver = Solver._checked(solver)
    return search_problem(rule, Problem(checked_samples(rule, samples)), solver)


def search_problem(rule, problem, solver):
    """Search the best rule on checked samples with a checked solver."""
    n_samples = problem.loss.size
    if solver.method == "exact" and problem.double and n_samples > MAX_SAMPLES:
        raise ValueError(
            f"solver='exact' takes at most {MAX_SAMPLES} samples, its work grows with "
            f"their square; got {n_samples}. Use solver='bnb', which certifies its "
            f"gap, with a smaller tol if need be."
        )
    if rule.plug_in() is not None:
        return _plug_in(problem, rule)
    point = None if rule.is_searched else rule._point(problem)
    if point is not None:
        is_nearest = solver.infeasible == "nearest" and not point.feasible
        return problem.evaluated(rule, point) if is_nearest else point
    infeasible = solver.infeasible
    if not problem.double and not solver.randomize:
        goal = Goal.of(rule, problem)
        best = problem.best_between_ties(goal)
        if best is not None:
            return problem.describe(rule, best, best.value)
    merged = problem.with_merged_ties()
    point = exact = None
    if merged.few_tied():
        exact, best = _best_point(problem, rule, solver, None)
        if best is not None and not merged.are_separated(best, problem):
            point = exact
    # Where scores are dense, ties that were merged may not stay together at an angle.
    point = point or _best_point(merged, rule, solver, infeasible)[0]
    point = point or exact or _best_point(problem, rule, solver, infeasible)[0]
    if point.attainable is None and solver.angles == "full":
        warn_of_reversed(point)
    return point


def _best_point(problem, rule, solver, infeasible):
    """Return the best operating point, None if it separates merged ties, and its rule.

    If none meets the bounds, the rule is None, and if `infeasible` is None as well, so
    is the point.
    """
    tol, randomize = solver.tol, solver.randomize
    goal = Goal.of(rule, problem, whole=not randomize)
    turns = (0,) if solver.angles == "quadrant" else (-2, -1, 0, 1)
    thetas = grid_of_angles(solver.angles, solver.n_angles or N_ANGLES)
    method = solver.method
    if not problem.double:
        thetas, method = np.zeros(1), "grid"
    optimize: Callable[..., Any]
    find: Callable[..., Any]
    if method == "bnb":
        options = {"turns": turns, "randomize": randomize}
        find = partial(branch_and_bound, problem, tol=_ANY, **options)
        options["grid"] = thetas
        best, bound = branch_and_bound(problem, goal, tol=tol, **options)
        tol = min(tol, 1e-3)
        optimize = partial(branch_and_bound, problem, tol=tol, **options)
    else:
        find = partial(grid_search, problem, thetas=thetas, randomize=randomize)
        if method == "exact":
            find = partial(pivot_sweep, problem, turns=turns, randomize=randomize)
        optimize = find
        best, bound = find(goal)
        if method == "grid" and problem.double:
            bound = math.nan
    if best is None and infeasible is None:
        return None, None
    if best is None:
        point = _least_violation(
            problem,
            rule,
            thetas,
            lambda goal: optimize(goal)[0],
            lambda goal: find(goal)[0],
            randomize,
            infeasible,
        )
        return point, None
    return problem.describe(rule, best, bound), best


def warn_of_reversed(point):
    """Warn if a rule accepts samples because a score is high."""
    w_a, w_b = weights(point.theta)
    if min(w_a, w_b) < 0:
        reversed_scores = ["risk"] * (w_a < 0) + ["OOD"] * (w_b < 0)
        warn(
            f"The best rule uses the {' and the '.join(reversed_scores)} score "
            f"reversed (theta={point.theta:.4g}): it accepts samples because that "
            f"score is high. Check its direction, or search angles='quadrant'."
        )


def solve(rule, samples, solver=None):
    r"""Find the best acceptance rule on one or two scores.

    Scores are outlier-like here: high means reject. Among the rules

    .. math::
        \cos\theta \, a / c_a + \sin\theta \, b / c_b \le \lambda

    the rule that minimizes the objective of `rule` within its bounds is returned. Ties
    among the evaluated rules are resolved by the largest TPR, then the smallest FPR,
    then the smallest angle. Read more in the :ref:`User Guide <rejection_solvers>`.

    Parameters
    ----------
    rule : BaseRule
        The objective and the bounds, such as :class:`BoundedTPRFPR`.

    samples : ScoredSamples
        Scores and losses of ID samples and, for rules that require them, OOD samples.

    solver : Solver, default=None
        Search over angles, and behavior if no rule meets the bounds. None:
        ``Solver()``.

    Returns
    -------
    point : OperatingPoint
        The rule, with its rates on the given samples.

    Raises
    ------
    InfeasibleError
        If no rule meets the bounds; its text gives the attainable values.
    ValueError
        If there are no ID samples or, where `rule` needs them, no OOD samples; if a
        score is NaN, an OOD score is -inf or a loss is negative; if there are too many
        samples for "exact".

    Warns
    -----
    SkoodWarning
        If the best rule uses a score reversed, or is only the nearest to its bounds.

    See Also
    --------
    OperatingPoint.accept : Applies the rule to other samples.
    solve_finite : For a finite input space, with a probability for each input.
    skood.metrics.selective_risk_at : The same from labels and predictions.

    Notes
    -----
    The scales :math:`c_a, c_b` are the 5..95 % inter-quantile ranges of the finite
    scores of ID samples (1 if zero), so that results do not depend on the units of the
    scores, unlike the plain grid of angles of [1]_. Thresholds exist at distinct
    projected scores only. A sample with an infinite score is accepted last, at every
    angle.

    Ties of the objective are resolved among the evaluated rules; "exact" evaluates all.
    Rules that differ only by rounding of floating point are merged.

    The nearest rule has the smallest largest violation of a bound, to an accuracy of
    1e-9, and of these rules the best objective. The violation is measured in units of
    the bounded rate: the TPR, FPR, precision, selective risk or error rate, and of a
    rule of your own the value of the function in `rates`.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import BoundedTPRFPR, ScoredSamples, solve
    >>> rng = np.random.default_rng(0)
    >>> risk_id, ood_id = rng.uniform(size=(2, 500))
    >>> loss_id = rng.uniform(size=500) < risk_id / 2
    >>> risk_ood, ood_ood = rng.uniform(size=500), rng.uniform(0.7, 1.7, size=500)
    >>> rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.2)
    >>> both = ScoredSamples.from_arrays(risk_id, ood_id, loss_id, risk_ood, ood_ood)
    >>> point = solve(rule, both)
    >>> print(f"TPR {point.tpr:.2f}, FPR {point.fpr:.2f}, risk {point.risk:.2f}")
    TPR 0.70, FPR 0.20, risk 0.22
    >>> single = ScoredSamples.from_arrays(ood_id, None, loss_id, ood_ood, None)
    >>> print(f"risk {solve(rule, single).risk:.2f}")  # with one score
    risk 0.27
    """
    solver = Solver._checked(solver)
    point = search_problem(rule, Problem(checked_samples(rule, samples)), solver)
    if point.attainable is not None:
        n_id, n_ood = samples.sizes
        message = (
            f"No acceptance rule meets {as_requested(rule)} on {n_id} ID and {n_ood} "
            "OOD samples."
        )
        if solver.infeasible == "raise":
            attainable = attainable_rates(rule, point.attainable)
            raise InfeasibleError(message, **attainable)
        warn(
            f"{message} The nearest rule violates a bound by {point.violation:.4g}: "
            f"TPR {point.tpr:.4g}, FPR {point.fpr:.4g}, selective risk "
            f"{point.risk:.4g}."
        )
    return point

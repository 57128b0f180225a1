"""Tests of the optimum on a finite input space: brute force, duality, densities."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import math
import pickle
import time
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skood.datasets import make_reject_option_1d
from skood.decision import _finite_space as _finite
from skood.exceptions import InfeasibleError
from skood.rejection import (
    BaseRule,
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    CostBased,
    Linear,
    PlugInCost,
    Solver,
    solve,
    solve_finite,
)
from tests.decision._scores import COST, DOUBLE, samples_of, solved

# A-lp of the specification
P_ID = np.array([0.25, 0.2, 0.2, 0.15, 0.1, 0.1])
P_OOD = np.array([0.05, 0.1, 0.15, 0.2, 0.2, 0.3])
RISK = np.array([0.3, 0.2, 0.12, 0.05, 0.02, 0.01])


class _Bounds(BaseRule):
    """A user's rule: given bounds on shares, and the selective risk or a cost."""

    def __init__(self, *bounds, cost=None):
        self.bound_list = bounds
        self.fixed_cost = cost

    def rates(self):
        """Return the given bounds."""
        return self.bound_list

    def cost(self):
        """Return the given cost."""
        return self.fixed_cost

    def get_params(self, deep=True):
        """Return nothing that can be set."""
        return {}


def _fractional(solution):
    return int(((solution.accept > 0) & (solution.accept < 1)).sum())


def _random(rng, n):
    """Three distributions over n atoms whose masses differ by orders of magnitude."""
    p, q = np.exp(2 * rng.normal(size=(2, n)))
    return p / p.sum(), q / q.sum(), rng.uniform(size=n)


# the vectors ------------------------------------------------------------------------


def test_generic_optimum_has_two_probabilities():
    """A-lp-generic: exact rationals."""
    solution = solve_finite(P_ID, P_OOD, RISK, BoundedTPRFPR(0.6, 0.3))
    assert solution.risk == pytest.approx(4141 / 20400, abs=1e-15)
    assert solution.objective == solution.risk
    assert_allclose(solution.accept, [13 / 17, 1, 1, 1 / 17, 0, 0], atol=1e-14)
    assert_allclose([solution.tpr, solution.fpr], [0.6, 0.3], atol=1e-15)
    assert math.isnan(solution.precision)
    assert solution.feasible
    # r + mu g is lam at both of the atoms that are accepted in part
    g = P_OOD / P_ID
    assert_allclose((RISK + solution.mu * g)[[0, 3]], solution.lam, atol=1e-15)
    for values in (P_ID, P_OOD, RISK):
        values.flags.writeable = True  # nothing was locked
    assert solve_finite(P_ID, P_OOD, RISK, BoundedTPRFPR(0.65, 0.3)).tpr == 0.65


def test_infeasible_says_what_is_attainable():
    """A-lp-infeasible."""
    with pytest.raises(
        InfeasibleError,
        match=r"No acceptance probabilities meet BoundedTPRFPR\(fpr_max=0.2, "
        r"tpr_min=0.9\) on 6 atoms that may be accepted. Attainable on this data: a "
        r"TPR of at most 0.5167 within the given FPR, and an FPR of at least 0.7 with",
    ) as info:
        solve_finite(P_ID, P_OOD, RISK, BoundedTPRFPR(0.9, 0.2))
    assert info.value.max_tpr_at_fpr == pytest.approx(0.5166666666666666, abs=1e-14)
    assert info.value.min_fpr_at_tpr == pytest.approx(0.7, abs=1e-14)
    assert math.isnan(info.value.min_risk)


def test_constant_risk_accepts_most():
    """A-lemma1: every c is optimal; the largest TPR is wanted."""
    rule = BoundedTPRFPR(0.25, 0.5)
    solution = solve_finite([0.5, 0.5], [0.1, 0.9], [0.1, 0.1], rule)
    assert solution.risk == pytest.approx(0.1, abs=1e-15)
    assert solution.tpr == pytest.approx(0.7222222222222222, abs=1e-14)
    assert_allclose(solution.accept, [1, 4 / 9], atol=1e-14)


@pytest.fixture(scope="module", params=DOUBLE, ids=str)
def density(request):
    """The 1-D problem on a fine grid, and the mean of the OOD density."""
    model = make_reject_option_1d(1, ood_mean=request.param).model
    x = np.linspace(-7, 9, 8001)
    p, q = model.density_id(x), model.density_ood(x)
    return (p / p.sum(), q / q.sum(), model.risk(x)), request.param


def test_population_optimum_of_bounds(density):
    """A-dens D_tpr_fpr and D_prec_rec, with mu, lam and FPR; A-pr-equals-tprfpr."""
    atoms, mean = density
    phi, kappa, pi = 0.7, 0.9, 0.25
    first = solve_finite(*atoms, BoundedTPRFPR(phi, 0.2))
    second = solve_finite(*atoms, BoundedPrecisionRecall(kappa, phi, pi))
    for solution, expected in zip((first, second), DOUBLE[mean], strict=True):
        numbers = solution.risk, solution.mu, solution.lam, solution.fpr
        assert_allclose(numbers, expected, rtol=0, atol=5e-4)
        assert solution.tpr == pytest.approx(phi, abs=1e-12)
        assert _fractional(solution) <= 2
    assert second.precision == pytest.approx(kappa, abs=1e-12)
    rho = phi * (1 - pi) * (1 - kappa) / (pi * kappa)
    same = solve_finite(*atoms, BoundedTPRFPR(phi, rho))
    assert same.risk == pytest.approx(second.risk, abs=1e-12)
    assert_allclose(same.accept, second.accept, atol=1e-9)


def test_population_optimum_of_costs(density):
    """A-dens cost_eps_0.3_1_0: the rule of least cost is known in closed form."""
    (p, q, risk), mean = density
    costs = {"reject_id": 0.3, "accept_ood": 1.0, "reject_ood": 0.0, "ood_prior": 0.25}
    for rule in (CostBased(**costs), PlugInCost(**costs)):
        solution = solve_finite(p, q, risk, rule)
        assert solution.objective == pytest.approx(COST[mean][0], abs=5e-4)
        assert_array_equal(solution.accept, risk + q / p / 3 <= 0.3)
        plug_in = PlugInCost(**costs).plug_in()
        assert_allclose((solution.mu, solution.lam), plug_in, rtol=1e-14)


# brute force ------------------------------------------------------------------------


def _brute_force(p, q, r, rule, n_bounds):
    """All vertices in exact arithmetic; returns (objective, -N, F) of the best one."""
    n, best = len(p), None
    columns = list(zip(p, [a * b for a, b in zip(p, r, strict=True)], q, strict=True))
    bounds, objective = rule
    for k in range(n_bounds + 1):
        for subset in itertools.combinations(range(n), k):
            others = [i for i in range(n) if i not in subset]
            for bits in itertools.product((0, 1), repeat=n - k):
                c = dict(zip(others, map(Fraction, bits), strict=True))
                for tight in itertools.combinations(bounds, k):
                    if not _fill(c, subset, tight, columns):
                        continue
                    NEF = [
                        sum(c[i] * columns[i][j] for i in range(n)) for j in (0, 1, 2)
                    ]
                    if any(_at(b, NEF) > 0 for b in bounds):
                        continue
                    value = objective(*NEF)
                    if value is not None:
                        key = (value, -NEF[0], NEF[2])
                        best = key if best is None else min(best, key)
    return best


def _at(bound, NEF):
    return sum(f * x for f, x in zip(bound, NEF, strict=False)) + bound[3]


def _fill(c, subset, tight, columns):
    """Solve for the fractional atoms by Cramer's rule; False if they leave [0, 1]."""
    decided = [
        sum(c[i] * columns[i][j] for i in c if i not in subset) for j in (0, 1, 2)
    ]
    rest = [-_at(bound, decided) for bound in tight]
    matrix = [
        [sum(f * x for f, x in zip(bound, columns[i], strict=False)) for i in subset]
        for bound in tight
    ]
    if len(subset) == 1:
        if matrix[0][0] == 0:
            return False
        roots = [rest[0] / matrix[0][0]]
    elif subset:
        (a, b), (d, e) = matrix
        det = a * e - b * d
        if det == 0:
            return False
        roots = [(rest[0] * e - b * rest[1]) / det, (a * rest[1] - d * rest[0]) / det]
    else:
        return True
    c.update(zip(subset, roots, strict=True))
    return all(0 <= x <= 1 for x in roots)


def _exact(rule):
    """Bounds and objective of a rule, written anew with fractions."""
    unit = Fraction(1)

    def risk(N, E, F):
        return E / N if N > 0 else None

    params = {k: v for k, v in rule.get_params().items() if v is not None}
    values = {k: Fraction(v).limit_denominator() for k, v in params.items()}
    if isinstance(rule, BoundedTPRFPR):
        phi, rho = values["tpr_min"], values["fpr_max"]
        return [(-unit, 0, 0, phi), (0, 0, unit, -rho)], risk
    if isinstance(rule, BoundedPrecisionRecall):
        phi, kappa, pi = (
            values[k] for k in ("recall_min", "precision_min", "ood_prior")
        )
        right = (1 - pi) * (1 - kappa)
        return [(-unit, 0, 0, phi), (-right, 0, kappa * pi, 0)], risk
    if isinstance(rule, BoundedAbstention):
        return [(-unit, 0, 0, values["coverage"])], risk
    if isinstance(rule, BoundedImprovement):
        return [
            (-values["risk_max"], unit, 0, 0)
        ], lambda N, E, F: -N if N > 0 else None
    e1, e2, e3, pi = (
        values[k] for k in ("reject_id", "accept_ood", "reject_ood", "ood_prior")
    )
    return (
        [],
        lambda N, E, F: (1 - pi) * (E + e1 * (1 - N)) + pi * (e2 * F + e3 * (1 - F)),
    )


RULES = (
    (BoundedTPRFPR(0.5, 0.4), 2),
    (BoundedTPRFPR(0.0, 0.25), 2),
    (BoundedPrecisionRecall(0.6, 0.4, 0.4), 2),
    (BoundedAbstention(0.65), 1),
    (BoundedImprovement(0.25), 1),
    (CostBased(0.3, 1.0, 0.1, 0.25), 0),
    (PlugInCost(0.4, 0.8, 0.0, 0.2), 0),
)


@pytest.mark.parametrize(
    ("rule", "n_bounds"),
    RULES,
    ids=[f"{type(r).__name__}-{i}" for i, (r, _) in enumerate(RULES)],
)
@pytest.mark.parametrize("n", [4, pytest.param(9, marks=pytest.mark.slow)])
def test_brute_force_over_all_vertices(rule, n_bounds, n):
    """Coarse numbers, so that ties of all kinds occur; exact ones, so they are ties."""
    rng = np.random.default_rng(0)
    exact_rule = _exact(rule)
    n_feasible = 0
    for _ in range(n):
        counts = rng.multinomial(20, np.ones(5) / 5, size=2)
        counts[0][counts[0] == 0] = 1
        levels = rng.integers(0, 6, size=5)
        p, q = ([Fraction(int(k), int(row.sum())) for k in row] for row in counts)
        r = [Fraction(int(k), 10) for k in levels]
        best = _brute_force(p, q, r, exact_rule, n_bounds)
        atoms = [np.array(x, dtype=float) for x in (p, q, r)]
        if best is None:
            with pytest.raises(InfeasibleError):
                solve_finite(*atoms, rule)
            continue
        n_feasible += 1
        solution = solve_finite(*atoms, rule)
        numbers = solution.objective, -solution.tpr, solution.fpr
        assert_allclose(numbers, [float(x) for x in best], rtol=0, atol=1e-12)
        assert _fractional(solution) <= n_bounds
        assert solution.feasible
    assert n_feasible >= n / 3


# duality: the conditions that make a feasible c optimal -------------------------------


def _is_threshold_rule(solution, p, q, risk):
    """c is 1 below the threshold and 0 above it."""
    score = risk + solution.mu * q / p - solution.lam
    off = 1e-9 * (1 + q / p)
    assert_array_equal(solution.accept[score < -off], 1.0)
    assert_array_equal(solution.accept[score > off], 0.0)


@pytest.mark.parametrize("n", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_optimality_conditions_on_random_problems(n):
    """With multipliers of the right sign, on tight bounds only, c is optimal."""
    rng = np.random.default_rng(1)
    both = 0
    for _ in range(n):
        p, q, risk = _random(rng, 20)
        phi, rho = rng.uniform(0.1, 0.9, size=2)
        try:
            solution = solve_finite(p, q, risk, BoundedTPRFPR(phi, rho))
        except InfeasibleError as error:
            c = _greedy(p, q, rho)
            assert error.max_tpr_at_fpr == pytest.approx(c @ p, abs=1e-12)
            assert error.max_tpr_at_fpr < phi
            c = _greedy(q, p, 1 - phi)  # the most OOD to reject with 1 - phi of ID
            assert error.min_fpr_at_tpr == pytest.approx(1 - c @ q, abs=1e-12)
            assert error.min_fpr_at_tpr > rho
            continue
        assert _fractional(solution) <= 2
        assert solution.tpr >= phi - 1e-12 and solution.fpr <= rho + 1e-12
        _is_threshold_rule(solution, p, q, risk)
        assert solution.mu >= 0 and solution.lam >= solution.risk - 1e-15
        if solution.mu > 1e-9:
            assert solution.fpr == pytest.approx(rho, abs=1e-12)
        if solution.lam > solution.risk + 1e-9:
            assert solution.tpr == pytest.approx(phi, abs=1e-12)
        both += solution.mu > 1e-9 and solution.lam > solution.risk + 1e-9
    assert both >= n / 4


def _greedy(gain, cost, budget):
    """The fractional knapsack: largest gain within a budget."""
    c = np.zeros(len(gain))
    for i in np.argsort(cost / gain):
        c[i] = min(1.0, max(0.0, budget - c @ cost) / cost[i])
    return c


def test_abstention_is_a_fractional_knapsack():
    """The least risky atoms, until the coverage is met."""
    rng = np.random.default_rng(2)
    for coverage in (0.01, 0.3, 0.77, 1.0):
        p, _, risk = _random(rng, 40)
        solution = solve_finite(p, None, risk, BoundedAbstention(coverage))
        c = _greedy(p / risk, p, coverage)
        c[np.argmin(risk)] = 1.0  # all of the best atom: its own risk is no worse
        assert_allclose(solution.accept, c, atol=1e-9)
        assert solution.risk == pytest.approx(c @ (p * risk) / (c @ p), abs=1e-14)
        assert math.isnan(solution.fpr) and math.isnan(solution.precision)
        assert _fractional(solution) <= 1


def test_improvement_fills_up_to_the_risk():
    rng = np.random.default_rng(3)
    for risk_max in (0.1, 0.3, 0.45):
        p, q, risk = _random(rng, 40)
        solution = solve_finite(p, q, risk, BoundedImprovement(risk_max))
        order = np.argsort(risk)
        E, N = np.cumsum((p * risk)[order]), np.cumsum(p[order])
        whole = np.flatnonzero(risk_max * N >= E)[-1]
        extra = (risk_max * N[whole] - E[whole]) / (risk[order[whole + 1]] - risk_max)
        assert solution.tpr == pytest.approx(N[whole] + extra, abs=1e-12)
        assert solution.objective == -solution.tpr
        assert solution.risk == pytest.approx(risk_max, abs=1e-12)
        assert _fractional(solution) == 1
    everything = solve_finite(p, q, risk, BoundedImprovement(2.0))
    assert_array_equal(everything.accept, 1.0)
    assert everything.tpr == 1.0 and everything.fpr == 1.0
    assert math.isnan(everything.mu) and math.isnan(everything.lam)


# the solver for samples ---------------------------------------------------------------


@pytest.mark.parametrize("randomize", [False, True])
def test_never_worse_than_a_rule_on_two_scores(randomize):
    """One row per unit of mass, with r and g as scores and r as the loss."""
    rng = np.random.default_rng(4)
    better = 0
    for _ in range(8):
        n_id, n_ood = (rng.multinomial(40, np.ones(8) / 8) for _ in range(2))
        n_id[n_id == 0] = 1
        risk = rng.uniform(size=8)
        p, q = n_id / n_id.sum(), n_ood / n_ood.sum()
        g = q / p
        rule = BoundedTPRFPR(0.5, 0.3)
        repeated = [np.repeat(x, n_id) for x in (risk, g, risk)]
        repeated += [np.repeat(x, n_ood) for x in (risk, g)]
        try:
            point = solved(rule, *repeated, solver="exact", randomize=randomize)
        except InfeasibleError:
            continue
        solution = solve_finite(p, q, risk, rule)
        assert solution.risk <= point.risk + 1e-12
        better += solution.risk < point.risk - 1e-6
    assert better >= 2


def test_generic_optimum_needs_more_than_one_probability():
    """A-lp-generic: no rule with a single tau attains 4141/20400."""
    n_id, n_ood = (np.rint(100 * x).astype(int) for x in (P_ID, P_OOD))
    repeated = [np.repeat(x, n_id) for x in (RISK, P_OOD / P_ID, RISK)]
    repeated += [np.repeat(x, n_ood) for x in (RISK, P_OOD / P_ID)]
    for randomize in (False, True):
        point = solved(
            BoundedTPRFPR(0.6, 0.3), *repeated, solver="exact", randomize=randomize
        )
        assert point.risk > 4141 / 20400 + 1e-4


def test_costs_are_a_rule_on_two_scores():
    """Without bounds the optimum is a half-plane, which solve finds as well."""
    rng = np.random.default_rng(5)
    for _ in range(5):
        n_id, n_ood = rng.integers(1, 9, size=(2, 8))
        risk = rng.uniform(0.1, 0.6, size=8)
        p, q = n_id / n_id.sum(), n_ood / n_ood.sum()
        repeated = [np.repeat(x, n_id) for x in (risk, q / p, risk)]
        repeated += [np.repeat(x, n_ood) for x in (risk, q / p)]
        rule = CostBased(0.6, 1.0, 0.0, 0.2)
        solution = solve_finite(p, q, risk, rule)
        point = solve(rule, samples_of(*repeated), Solver("exact"))
        assert solution.objective == pytest.approx(point.objective, abs=1e-12)
        assert solution.precision == pytest.approx(
            0.8 * solution.tpr / (0.8 * solution.tpr + 0.2 * solution.fpr)
        )


# invariants and edges -----------------------------------------------------------------


def test_order_splitting_and_unit_of_the_loss():
    rng = np.random.default_rng(6)
    p, q, risk = _random(rng, 30)
    rule = BoundedTPRFPR(0.7, 0.4)
    solution = solve_finite(p, q, risk, rule)
    order = rng.permutation(30)
    shuffled = solve_finite(p[order], q[order], risk[order], rule)
    assert_allclose(shuffled.accept, solution.accept[order], atol=1e-12)
    halves = [np.repeat(x / 2, 2) for x in (p, q)]
    split = solve_finite(*halves, np.repeat(risk, 2), rule)
    assert split.risk == pytest.approx(solution.risk, abs=1e-14)
    merged = split.accept.reshape(-1, 2).mean(axis=1)
    assert_allclose(merged, solution.accept, atol=1e-12)
    for unit in (1e-9, 1e6):
        scaled = solve_finite(p, q, unit * risk, rule)
        assert scaled.risk == pytest.approx(unit * solution.risk, rel=1e-13)
        assert_allclose(scaled.accept, solution.accept, atol=1e-12)


def test_ties_take_the_largest_tpr_then_the_smallest_fpr():
    # the last two atoms are alike for ID data; the cost of the fourth is zero
    p, q = [0.4, 0.2, 0.2, 0.2], [0.1, 0.2, 0.3, 0.4]
    solution = solve_finite(p, q, [0.1, 0.1, 0.3, 0.3], BoundedAbstention(0.5))
    assert_array_equal(solution.accept, [1, 1, 0, 0])
    solution = solve_finite(p, q, [0.1, 0.2, 0.2, 0.2], BoundedAbstention(0.6))
    assert_allclose(solution.accept, [1, 1, 0, 0], atol=1e-15)
    rule = CostBased(reject_id=0.2, ood_prior=0.0)
    for p_ood in (q, None):
        solution = solve_finite(p, p_ood, [0.1, 0.1, 0.2, 0.3], rule)
        assert_array_equal(solution.accept, [1, 1, 1, 0])
    assert solution.precision == 1.0
    zero_risk = solve_finite(p, q, np.zeros(4), BoundedTPRFPR(0.4, 0.3))
    assert_array_equal(zero_risk.accept, [1, 1, 0, 0])
    assert zero_risk.risk == 0.0


@pytest.mark.parametrize(
    "rule",
    [
        BoundedTPRFPR(0.0, 1.0),
        BoundedTPRFPR(1.0, 1.0),
        BoundedPrecisionRecall(0.0, 1.0, 0.5),
        BoundedAbstention(1.0),
        BoundedImprovement(1.0),
        CostBased(1.0, 1.0, 0.0, 0.0),
    ],
    ids=repr,
)
def test_atoms_without_id_mass_are_rejected(rule):
    """Their likelihood ratio is infinite, even where they cost nothing."""
    solution = solve_finite(
        [0.5, 0.0, 0.5, 0.0], [0.25, 0.5, 0.25, 0.0], [0.2, 0.0, 0.2, 0.0], rule
    )
    assert_array_equal(solution.accept, [1, 0, 1, 0])
    assert solution.tpr == 1.0 and solution.fpr == 0.5


def test_bounds_that_leave_one_point():
    """A TPR of 1 is met although the probabilities sum to one in rounding only."""
    p = np.full(7, 1 / 7) - 5e-11
    for n in (1, 2, 5):
        q = np.r_[np.zeros(7 - n), np.full(n, 1 / n)]
        solution = solve_finite(p, q, np.arange(7) / 10, BoundedTPRFPR(1.0, 1.0))
        assert_array_equal(solution.accept, 1.0)
        assert solution.tpr == 1.0 and solution.fpr == 1.0
    within = 0.3 + 5e-10  # above what is attainable, by rounding only
    solution = solve_finite(p, p[::-1], np.zeros(7), BoundedTPRFPR(within, 0.3))
    assert_allclose([solution.tpr, solution.fpr], 0.3, rtol=0, atol=1e-9)
    assert solution.feasible
    with pytest.raises(InfeasibleError, match=r"TPR of at most 0\.3 within"):
        solve_finite(p, p[::-1], np.zeros(7), BoundedTPRFPR(0.3 + 1e-8, 0.3))


def test_atoms_of_tiny_mass_count():
    """Without a bound from below the least risky atom is optimal, however rare."""
    tiny = 1e-18
    p, risk = [1 - tiny, tiny], [0.1, 0.05]
    solution = solve_finite(p, None, risk, BoundedAbstention(0.0))
    assert_array_equal(solution.accept, [0, 1])
    assert solution.risk == pytest.approx(0.05) and solution.tpr == tiny
    # unless its likelihood ratio is as good as infinite
    for p_ood, expected in (([0.5, 0.5], [1, 0]), ([1 - 1e-6, 1e-6], [0, 1])):
        atoms = [1 - 1e-12, 1e-12], p_ood, risk
        solution = solve_finite(*atoms, BoundedTPRFPR(0.0, 1.0))
        assert_array_equal(solution.accept, expected)


def test_nothing_is_accepted_if_it_is_best():
    solution = solve_finite(P_ID, P_OOD, RISK, CostBased(0.0, 1.0, 0.0, 0.5))
    assert_array_equal(solution.accept, 0.0)
    assert (solution.tpr, solution.fpr, solution.objective) == (0.0, 0.0, 0.0)
    assert math.isnan(solution.risk) and math.isnan(solution.precision)


def test_something_must_be_accepted_where_a_rule_says_so():
    with pytest.raises(
        InfeasibleError, match=r"this data: a selective risk of at least 0\.01\.$"
    ) as info:
        solve_finite(P_ID, None, RISK, BoundedImprovement(0.005))
    assert info.value.min_risk == 0.01
    with pytest.raises(
        InfeasibleError, match="a TPR of at most 0 within the given FPR"
    ):
        solve_finite(P_ID, P_OOD, RISK, BoundedTPRFPR(0.0, 0.0))
    with pytest.raises(InfeasibleError, match="at most 0 within the given precision"):
        solve_finite(P_ID, P_OOD, RISK, BoundedPrecisionRecall(1.0, 0.0, 0.5))


# rules of users -----------------------------------------------------------------------


def test_user_rule_with_three_bounds():
    """A bound from above on N and one on E, which no rule of skood has."""
    rng = np.random.default_rng(7)
    p, q, risk = _random(rng, 40)
    bounds = (
        Linear(id=1.0, constant=-0.8),
        Linear(loss=1.0, constant=-0.25),
        Linear(ood=1.0, constant=-0.5),
    )
    rule = _Bounds(*bounds, cost=Linear(id=-1.0))
    solution = solve_finite(p, q, risk, rule)
    assert solution.feasible and _fractional(solution) <= 3
    # that of each bound on its own is an upper bound; the tightest one is attained or
    # two bounds bind together
    alone = [solve_finite(p, q, risk, _Bounds(b, cost=rule.fixed_cost)) for b in bounds]
    assert alone[0].tpr == pytest.approx(0.8, abs=1e-12)
    assert solution.tpr <= min(s.tpr for s in alone) + 1e-12
    loose = solve_finite(p, q, 0 * risk, rule)
    assert loose.tpr == pytest.approx(min(0.8, alone[2].tpr), abs=1e-12)


@pytest.mark.parametrize(("prior", "precision"), [(0.3, math.nan), (0.0, 1.0)])
def test_precision_without_ood_atoms_is_that_of_samples(prior, precision):
    rule = _Bounds(Linear(id=-1.0, constant=0.5))
    rule.ood_prior = prior
    solution = solve_finite(P_ID, None, RISK, rule)
    point = solve(rule, samples_of([0.1, 0.2], None, [0, 1], None, None))
    assert_array_equal([solution.precision, point.precision], precision)


def test_user_rule_in_other_units():
    """Factors of any size, and a vacuous bound, which makes no atom fractional."""
    tens = _Bounds(
        Linear(id=-1e7, constant=0.6e7),
        Linear(ood=1e-7, constant=-0.3e-7),
        Linear(),
        Linear(id=-1.0),
    )
    solution = solve_finite(P_ID, P_OOD, RISK, tens)
    assert solution.risk == pytest.approx(4141 / 20400, abs=1e-14)
    assert_allclose(solution.accept, [13 / 17, 1, 1, 1 / 17, 0, 0], atol=1e-13)


def test_user_rule_that_cannot_be_met():
    """Neither of the two attainable rates exists, so the extreme ones are reported."""
    rule = _Bounds(Linear(id=-1.0, constant=1.5), Linear(ood=-1.0, constant=1.5))
    with pytest.raises(InfeasibleError, match="a TPR of at most 0 within") as info:
        solve_finite(P_ID, P_OOD, RISK, rule)
    assert info.value.max_tpr_at_fpr == 0.0
    assert math.isnan(info.value.min_fpr_at_tpr)
    floor = _Bounds(Linear(id=-1.0, constant=1.5))
    with pytest.raises(InfeasibleError, match="a TPR of at most 1 within"):
        solve_finite(P_ID, None, RISK, floor)


# speed --------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.5, 6.0])
def test_ten_thousand_atoms_in_two_seconds(spread):
    rng = np.random.default_rng(8)
    p, q = np.exp(spread * rng.normal(size=(2, 10_000)))
    p, q, risk = p / p.sum(), q / q.sum(), rng.uniform(size=10_000)
    start = time.process_time()
    solution = solve_finite(p, q, risk, BoundedTPRFPR(0.6, 0.5))
    assert time.process_time() - start < 2
    assert solution.feasible and _fractional(solution) <= 2
    _is_threshold_rule(solution, p, q, risk)


# errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p_id": [0.5, 0.6]}, r"p_id must sum to 1, got a sum of 1\.1; divide it by"),
        ({"p_id": [1.5, -0.5]}, r"p_id must be finite and not negative, got -0\.5\."),
        ({"p_id": [np.nan, 1.0]}, r"p_id must be finite and not negative, got nan\."),
        ({"p_id": []}, r"p_id must sum to 1, got a sum of 0\.0"),
        ({"p_ood": [0.5, 0.5 - 1e-8]}, r"p_ood must sum to 1, got a sum of 0\.99999"),
        ({"p_ood": [np.inf, 0]}, r"p_ood must be finite and not negative, got inf\."),
        ({"risk": [0.1, -0.2]}, r"risk must be finite and not negative, got -0\.2\."),
        ({"risk": [0.1, np.nan]}, r"risk must be finite and not negative, got nan\."),
        ({"risk": [0.1]}, r"one entry per atom each, got 2, 2 and 1\."),
        ({"p_ood": [1.0]}, r"one entry per atom each, got 2, 1 and 2\."),
        (
            {"rule": BoundedTPRFPR(1.5)},
            r"'tpr_min' .* of BoundedTPRFPR .* \[0.0, 1.0\]",
        ),
        ({"p_ood": None}, r"BoundedTPRFPR needs p_ood, the probabilities of the atoms"),
        (
            {"p_ood": None, "rule": PlugInCost()},
            r"PlugInCost needs p_ood, the probabilities of the atoms in OOD data, got",
        ),
        (
            {"p_ood": None, "rule": _Bounds(Linear(ood=1.0, constant=-0.5))},
            r"_Bounds needs p_ood",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_errors(change, message):
    arguments = {"p_id": [0.5, 0.5], "p_ood": [0.2, 0.8], "risk": [0.1, 0.2]}
    arguments["rule"] = BoundedTPRFPR(0.1, 0.9)
    solve_finite(**arguments)
    with pytest.raises(ValueError, match=message):
        solve_finite(**{**arguments, **change})


def test_rule_must_be_a_rule():
    with pytest.raises(TypeError, match=r"rule must be an instance of a rule, such as"):
        solve_finite([1.0], [1.0], [0.0], "tpr_fpr")


@pytest.mark.parametrize(
    "n", [201, *(pytest.param(n, marks=pytest.mark.slow) for n in (401, 801))]
)
@pytest.mark.parametrize("ends", [(-7, 10), (-5, 8), (-10, 14)])
def test_densities_far_out(n, ends):
    # coefficients of neighboring atoms are many orders of magnitude apart
    x = np.linspace(*ends, n)
    model = make_reject_option_1d(1, random_state=0).model
    p, q = model.density_id(x), model.density_ood(x)
    p, q, risk = p / p.sum(), q / q.sum(), model.risk(x)
    for rule in (
        BoundedTPRFPR(0.7, 0.0),
        BoundedPrecisionRecall(1.0, 0.7, ood_prior=0.25),
    ):
        # all OOD mass within 1e-9 of zero is left: less than a TPR of .7
        with pytest.raises(InfeasibleError) as info:
            solve_finite(p, q, risk, rule)
        ratio = np.argsort(q / p)
        within = np.cumsum(q[ratio]) <= 1e-9
        assert info.value.max_tpr_at_fpr <= p[ratio][within].sum() + 0.01
        assert info.value.max_tpr_at_fpr < 0.7
    for phi in (0.3, 0.7, 0.95):
        for rho in (1e-6, 0.01, 0.2, 1.0):
            try:
                best = solve_finite(p, q, risk, BoundedTPRFPR(phi, rho))
            except InfeasibleError as error:
                assert error.max_tpr_at_fpr < phi
            else:
                assert best.tpr >= phi - 1e-9 and best.fpr <= rho + 1e-9


def test_everything_is_accepted_if_that_is_asked_for():
    p = [1.272938505585723e-07, 0.9451470365217193, 0.05485283618443012]
    q = [0.44680754754533436, 0.5517032941464852, 0.0014891583081803178]
    for rule in (BoundedTPRFPR(1.0, 1.0), BoundedAbstention(1.0)):
        best = solve_finite(p, q, [1.0, 0.5, 1.0], rule)
        assert best.tpr == pytest.approx(1.0, abs=2e-9)


def test_failure_of_the_program_solver_is_no_result(monkeypatch):
    class _Failed:
        status, message = 4, "Numerical difficulties."

    monkeypatch.setattr(_finite, "linprog", lambda *args, **kwargs: _Failed())
    with pytest.raises(RuntimeError, match=r"linprog: Numerical difficulties\."):
        solve_finite(P_ID, P_OOD, RISK, BoundedTPRFPR(0.6, 0.3))


def test_solution_is_frozen_and_pickles():
    solution = solve_finite(P_ID, P_OOD, RISK, BoundedTPRFPR(0.6, 0.3))
    with pytest.raises(AttributeError, match="cannot assign"):
        solution.risk = 0.0
    again = pickle.loads(pickle.dumps(solution))
    assert_array_equal(again.accept, solution.accept)
    assert again.risk == solution.risk

"""Tests of the solvers that certify: by brute force, by each other, by numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import os
import warnings
from fractions import Fraction

import numpy as np
import pytest

from skood.decision._angle_search import (
    Line,
    _AngleSearch,
    branch_and_bound,
    pivot_sweep,
)
from skood.decision._calibration_sample import BestRule, Goal, Problem
from skood.decision._solver import search
from skood.exceptions import InfeasibleError, SkoodWarning
from skood.rejection import (
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    CostBased,
    OperatingPoint,
    Solver,
    solve,
)
from tests.decision._brute_force import best_mixture, brute_force, instance, regions
from tests.decision._scores import TIED, samples_of, solve_arguments, solved

MODELS = ["tpr_fpr", "precision_recall", "cost", "abstention", "improvement"]
ALL_TURNS = (-2, -1, 0, 1)
NIGHTLY = "SKOOD_NIGHTLY" in os.environ
SLOW_BLOCKS = [pytest.param(block, marks=pytest.mark.slow) for block in (1, 2)]


def _model(name, seed, n_id=12, n_ood=6):
    """A rule with random numbers, its bounds and its objective in fractions."""
    rng = np.random.default_rng(seed)
    share, other, prior = (Fraction(int(rng.integers(1, 10)), 10) for _ in range(3))
    leak = Fraction(int(rng.integers(0, 7)), 10)

    def least(N, E, F):
        return max(1, share * n_id) - N

    def risk(N, E, F):
        return E / Fraction(N) if N else None

    if name == "tpr_fpr":
        rule = BoundedTPRFPR(float(share), float(leak))
        return rule, [least, lambda N, E, F: F - leak * n_ood], risk
    if name == "precision_recall":
        rule = BoundedPrecisionRecall(float(other), float(share), float(prior))
        wrong, right = other * prior * Fraction(n_id, n_ood), (1 - prior) * (1 - other)
        return rule, [least, lambda N, E, F: wrong * F - right * N], risk
    if name == "cost":
        rule = CostBased(float(share / 2), 1.0, 0.0, float(prior))

        def cost(N, E, F):
            rejected = (1 - prior) * (E + share / 2 * (n_id - N)) / n_id
            return rejected + prior * F / Fraction(n_ood)

        return rule, [], cost
    if name == "abstention":
        return BoundedAbstention(float(share)), [least], risk
    bounds = [lambda N, E, F: 1 - N, lambda N, E, F: E - leak * N]
    return BoundedImprovement(float(leak)), bounds, lambda N, E, F: -N / Fraction(n_id)


def _best(results, bounds, objective, name):
    return brute_force(
        results,
        lambda *counts: all(bound(*counts) <= 0 for bound in bounds),
        objective,
        none_allowed=name == "cost",
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("block", range(10 if NIGHTLY else 1))
def test_exact_is_brute_force(name, block):
    # blocks of 30 instances each, heavily tied; every third on the full circle
    feasible = 0
    for seed in range(30 * block, 30 * block + 30):
        rule, bounds, objective = _model(name, seed)
        data = instance(seed, losses=(0, 1) if seed % 2 else (0, 0.1, 0.3, 0.7, 2))
        turns = (0,) if seed % 3 else ALL_TURNS
        best = _best(regions(*data, turns=turns), bounds, objective, name)
        problem = Problem(samples_of(*data))
        results, bound = pivot_sweep(problem, Goal.of(rule, problem), turns=turns)
        if best is None:
            assert results is None
            continue
        feasible += 1
        point = problem.describe(rule, results)
        assert point.objective == pytest.approx(float(best[0]), abs=1e-12)
        assert bound == results.value
        assert round(point.tpr * 12) == -best[1]
        assert round(point.fpr * 6) == best[2]
    assert feasible > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_branch_and_bound_is_within_its_gap(name):
    open_gaps = 0
    for seed in range(100 if NIGHTLY else 16):
        rule, *_ = _model(name, seed, 60, 30)
        losses = (0, 1) if seed % 2 else (0, 0.1, 0.3, 0.7, 2)
        a, b, loss, a_ood, b_ood = instance(
            seed, n_id=60, n_ood=30, losses=losses, high=6 if seed % 4 < 2 else 1000
        )
        best = search(rule, samples_of(a, b, loss, a_ood, b_ood), Solver("exact"))
        for factor in (1.0, 1000.0):
            tol = 1e-3 if seed % 3 else 0.05
            data = a * factor, b, loss, a_ood * factor, b_ood
            point = search(rule, samples_of(*data), Solver(tol=tol))
            assert point.feasible == best.feasible
            if not best.feasible:
                continue
            assert best.gap == 0.0 and best.lower_bound == best.objective
            assert best.objective >= point.lower_bound - 1e-12
            assert 0 <= point.gap <= tol
            assert point.objective == pytest.approx(point.lower_bound + point.gap)
            assert point.objective >= best.objective - 1e-12
            open_gaps += point.gap > 0
    if name != "abstention":
        assert open_gaps  # else this test looks at optimal rules only


@pytest.mark.parametrize(
    "randomize", [False, pytest.param(True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", MODELS)
def test_bounds_of_coarse_pieces_hold(name, randomize, monkeypatch):
    module = "skood.decision._angle_search"
    rng = np.random.default_rng(0)
    for high in (5, 1000):
        rule, *_ = _model(name, 1, 60, 40)
        a, *others = instance(1, n_id=60, n_ood=40, losses=(0, 0.3, 1), high=high)
        for data in ((a, *others), (a * rng.standard_cauchy(60) ** 3, *others)):
            results = []
            for many, pieces in ((4000, 500), (10, 8), (0, 60)):
                monkeypatch.setattr(f"{module}._MANY", many)
                monkeypatch.setattr("skood.decision._angle_search._PIECES", pieces)
                problem = Problem(samples_of(*data))
                goal = Goal.of(rule, problem, whole=not randomize)
                best, bound = branch_and_bound(
                    problem, goal, tol=0.0, randomize=randomize
                )
                results.append((math.inf if best is None else best.value, bound))
            np.testing.assert_allclose(results, results[:1] * 3, rtol=1e-10)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("block", [0, *SLOW_BLOCKS])
def test_branch_and_bound_without_tolerance_is_exact(name, block):
    for seed in range(10 * block, 10 * block + 10):
        rule, *_ = _model(name, seed, 40, 20)
        data = instance(seed, n_id=40, n_ood=20)
        problem = Problem(samples_of(*data))
        goal, turns = Goal.of(rule, problem), (0,) if seed % 2 else ALL_TURNS
        exact, _ = pivot_sweep(problem, goal, turns=turns)
        best, bound = branch_and_bound(problem, goal, turns=turns, tol=0.0)
        if exact is None:
            assert best is None and bound == math.inf
            continue
        assert best.value == pytest.approx(exact.value, abs=1e-12)
        assert bound == pytest.approx(exact.value, abs=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_never_worse_than_the_grid_or_a_single_score(name):
    for seed in range(20 if NIGHTLY else 5):
        rng = np.random.default_rng(seed)
        rule, *_ = _model(name, seed, 200, 100)
        a, b = rng.normal(size=(2, 200))
        loss = (rng.uniform(size=200) < 1 / (1 + np.exp(-a - b / 2))).astype(float)
        data = a, b, loss, rng.normal(size=100), rng.normal(1.5, size=100)
        best = search(rule, samples_of(*data), Solver(n_angles=90))
        others = [
            search(rule, samples_of(*data), Solver("grid", n_angles=90)),
            search(rule, samples_of(a, None, loss, data[3], None)),
            search(rule, samples_of(b, None, loss, data[4], None)),
        ]
        for other in others:
            assert best.feasible or not other.feasible
            if other.feasible:
                assert best.objective <= other.objective + 1e-12


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("solver", ["exact", "bnb"])
def test_randomized_rules_are_brute_force(name, solver):
    gains = 0
    for seed in range(40 if NIGHTLY else 10):
        rule, bounds, objective = _model(name, seed)
        losses = (0, 1) if seed % 2 else (0, 0.1, 0.3, 0.7, 2)
        data = instance(seed, losses=losses, high=4)
        options = {"solver": solver, "tol": 0.0}
        point = search(rule, **solve_arguments(*data, randomize=True, **options))
        plain = search(rule, **solve_arguments(*data, **options))
        # rows of different scores tie at single angles only, which a solver may
        # or may not meet
        least = best_mixture(regions(*data), bounds, objective)
        most = best_mixture(regions(*data, critical=False), bounds, objective)
        if name == "cost":
            none = objective(Fraction(0), Fraction(0), Fraction(0))
            least, most = min(least, none), min(most, none)
        if most is None:
            assert not point.feasible or least is not None
            continue
        assert point.feasible
        assert float(least) - 1e-12 <= point.objective <= float(most) + 1e-12
        if plain.feasible:
            assert point.objective <= plain.objective + 1e-12
        gains += not plain.feasible or point.objective < plain.objective - 1e-9
        # the reported numbers are those of the stored rule
        c, leaked = point.accept_proba(*data[:2]), point.accept_proba(*data[3:])
        assert set(np.r_[c, leaked]) <= {0.0, point.tau, 1.0}
        assert point.tpr == pytest.approx(c.mean())
        assert point.fpr == pytest.approx(leaked.mean())
        if point.tpr:
            assert point.risk == pytest.approx(np.average(data[2], weights=c))
    # a linear objective without bounds is optimal at an end of every mixture
    assert (gains > 0) == (name != "cost")


def test_ties_randomized():
    # A-ties-randomized
    point = solved(BoundedTPRFPR(0.5, 0.25), *TIED, randomize=True)
    assert point.risk == pytest.approx(1 / 6, abs=1e-12)
    assert point.lam * point.scales[0] == pytest.approx(1.5, abs=1e-12)
    assert point.tau == pytest.approx(0.5, abs=1e-12)
    assert (point.tpr, point.fpr) == (0.5, 0.25)
    proba = point.accept_proba([0.0, 1.0, 2.0])
    np.testing.assert_allclose(proba, [1.0, 0.5, 0.0], atol=1e-12)
    drawn = [point.accept(np.ones(1000), random_state=seed) for seed in (0, 0, 1)]
    assert abs(drawn[0].mean() - 0.5) < 5 * 0.5 / math.sqrt(1000)
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    assert point.accept([0.0, 2.0]).tolist() == [True, False]


A_EXACT = {
    104: (
        "5 3 8 4 2 3 5 10 7 5 2 4 8 4 10 7 5 5 3 1 2 5 7 8 5 9 2 11 2 4 3 10 9 "
        "7 7 0 7 8 4 11",
        "8 3 6 8 2 3 11 8 4 10 12 3 7 4 7 9 4 14 4 11 10 13 5 12 5 3 13 3 7 4 6 "
        "8 10 10 11 5 1 4 14 11",
        [2, 3, 10, 14, 17, 21, 23, 26, 33, 38, 39],
        [7, 9, 12, 14, 15, 22, 23, 24, 29, 32, 39],
        (0.14285714285714285, 0.14285714285714285, 0.17586206896551726),
    ),
    101: (
        "2 5 2 1 3 5 7 2 3 1 5 1 3 2 0 8 0 2 4 6 11 7 3 11 8 5 4 9 0 0 0 7 5 11 "
        "7 0 11 10 3 1",
        "1 8 0 0 7 0 2 1 10 14 2 9 1 11 11 7 2 3 10 10 0 5 10 15 10 5 3 8 10 4 "
        "5 11 2 10 11 11 9 2 3 10",
        [4, 9, 13, 19, 22, 23, 30],
        [3, 6, 8, 12, 15, 20, 23, 27, 31, 33, 36, 38],
        (None, 0.20833333333333334, 0.24025974025974028),
    ),
}


@pytest.mark.parametrize("solver", ["exact", "bnb"])
@pytest.mark.parametrize("key", A_EXACT)
def test_vectors(key, solver):
    # A-exact-104, A-exact-101
    r, g, out, wrong, expected = A_EXACT[key]
    r, g = (np.array(x.split(), dtype=float) for x in (r, g))
    is_ood = np.isin(np.arange(40), out)
    loss = np.isin(np.arange(40), wrong).astype(float)[~is_ood]
    args = r[~is_ood], g[~is_ood], loss, r[is_ood], g[is_ood]
    for rule, value in zip(
        (
            BoundedTPRFPR(0.6, 0.25),
            BoundedPrecisionRecall(0.85, 0.6, ood_prior=0.3),
            CostBased(0.4, 1.0, 0.0, ood_prior=0.25),
        ),
        expected,
        strict=True,
    ):
        options = {"solver": solver, "tol": 0.0}
        if value is None:
            with pytest.raises(InfeasibleError):
                solved(rule, *args, **options)
            continue
        for factor in (1.0, 1000.0):
            scaled = args[0], factor * args[1], loss, args[3], factor * args[4]
            point = solved(rule, *scaled, **options)
            assert point.objective == pytest.approx(value, abs=1e-12)
            assert point.gap == 0.0


def test_precision_recall_infeasible():
    args = [1.0, 2.0, 3.0], None, [0, 0, 1], [0.0, 2.0], None
    rule = BoundedPrecisionRecall(0.9, 0.6, ood_prior=0.5)
    with pytest.raises(InfeasibleError) as info:
        solve(rule, samples_of(*args))
    # the OOD row 0 is always in: a precision of .9 would need a TPR of 4.5
    assert str(info.value).endswith(
        "Attainable on this data: a TPR of at most 0 within the given precision, and "
        "an FPR of at least 1 with the given TPR."
    )


@pytest.mark.parametrize("solver", ["exact", "bnb"])
@pytest.mark.parametrize("angles", ["quadrant", "full"])
def test_infinite_scores(solver, angles):
    rng = np.random.default_rng(0)
    a, b, loss, a_ood, b_ood = instance(0, n_id=20, n_ood=10, high=50)
    for x in (a, a_ood):
        x[rng.choice(x.size, 3, replace=False)] = -np.inf
    for x in (b, b_ood):
        x[rng.choice(x.size, 3, replace=False)] = np.inf
    rules = BoundedTPRFPR(0.5, 0.6), CostBased(0.2), BoundedAbstention(0.95)
    options = {"solver": solver, "tol": 0.0, "angles": angles}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        points = [
            search(r, **solve_arguments(a, b, loss, a_ood, b_ood, **options))
            for r in rules
        ]
    counts = []
    scales = points[0].scales
    for theta in rng.uniform(
        *((0, np.pi / 2) if angles == "quadrant" else (-3, 3)), 30
    ):
        for x, y in zip(a, b, strict=True):
            lam = np.inf
            if np.isfinite(x) and np.isfinite(y):
                lam = np.cos(theta) * (x / scales[0]) + np.sin(theta) * (y / scales[1])
            at = OperatingPoint(theta=theta, lam=lam + 1e-9, scales=scales)
            c, f = at.accept(a, b), at.accept(a_ood, b_ood)
            counts.append((c.sum(), loss[c].sum(), f.sum()))
    counts = np.array(counts).T
    for rule, point in zip(rules, points, strict=True):
        assert point.gap == 0.0 and point.scales == scales
        least = rule.objective(*counts, 20, 10)[rule.feasible(*counts, 20, 10)].min()
        assert np.isfinite(least)
        assert point.objective <= least + 1e-12


@pytest.mark.parametrize("solver", ["exact", "bnb", "grid"])
def test_samples_without_a_finite_score(solver):
    inf = np.full(3, np.inf)
    args = inf, np.zeros(3), [0, 0, 1], inf[:2], np.zeros(2)
    point = solve(BoundedTPRFPR(0.5, 1.0), samples_of(*args), Solver(solver))
    assert (point.lam, point.tpr, point.fpr) == (np.inf, 1.0, 1.0)
    assert not search(
        BoundedTPRFPR(0.5, 0.5), samples_of(*args), Solver(solver)
    ).feasible


def test_exact_is_guarded():
    zeros = np.zeros(3000)
    rule = BoundedTPRFPR()
    with pytest.raises(
        ValueError, match=r"at most 5000 samples.*got 6000\. Use solver='b"
    ):
        solve(rule, samples_of(zeros, zeros, zeros, zeros, zeros), Solver("exact"))
    # one score needs no angle
    solved(BoundedAbstention(), np.zeros(6000), None, np.zeros(6000), None, None)
    for tol in (-1.0, math.nan, True, "small"):
        with pytest.raises(
            ValueError, match=r"'tol' parameter of Solver must be a float"
        ):
            solve(rule, samples_of(zeros, zeros, zeros, zeros, zeros), Solver(tol=tol))


def test_the_gap_that_is_left_is_reported(monkeypatch):
    monkeypatch.setattr("skood.decision._angle_search._MAX_NODES", 8)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 800))
    loss = (rng.uniform(size=800) < 1 / (1 + np.exp(-a))).astype(float)
    data = a, b, loss, rng.normal(size=400), rng.normal(1.0, size=400)
    rule = BoundedTPRFPR(0.7, 0.4)
    point = solve(rule, samples_of(*data))
    assert point.gap > 1e-3
    assert (
        solve(rule, samples_of(*data), Solver("exact")).objective >= point.lower_bound
    )
    # the angles of the grid were looked at nevertheless
    assert point.objective <= solve(rule, samples_of(*data), Solver("grid")).objective


def test_zero_risk_is_reached_with_the_largest_coverage_of_the_grid():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(size=(2, 500))
    loss = (a + 0.3 * b > 0.9).astype(float)
    data = a, b, loss, rng.uniform(size=100), rng.uniform(0.5, 1.5, size=100)
    rule = BoundedTPRFPR(0.3, 0.9)
    point, grid = (
        solve(rule, samples_of(*data)),
        solve(rule, samples_of(*data), Solver("grid")),
    )
    assert point.risk == grid.risk == 0.0
    assert point.tpr >= grid.tpr
    assert 0.3 < grid.tpr


def _search_of(rule, data):
    problem = Problem(samples_of(*data))
    return _AngleSearch(problem, Goal.of(rule, problem), False)


def test_counts_of_undecided_samples_are_confirmed():
    data = instance(3, n_id=30, n_ood=10, high=100)
    search = _search_of(BoundedAbstention(0.5), data)
    search.confirm(BestRule(-1.0, 20, 3, 0.7, 0.0), 23)
    # the whole angle was searched instead
    true = search.problem.best_at(0.7, search.goal)
    assert search.best == true and true.value >= 0


def test_intervals_too_narrow_to_be_halved_are_searched_at_one_angle():
    data = instance(3, n_id=600, n_ood=10, high=10_000)
    search = _search_of(BoundedAbstention(0.5), data)
    node = next(node for node in search.roots(0) if node is not None)
    node = node._replace(s=Line(0.3, 0.3 + 1e-13), stuck=True)
    assert node.indices.size > 40
    best, search.best = search.best, None
    assert search.search_cells(node)
    assert search.best.theta == pytest.approx(math.atan2(0.3, 0.7))
    assert best.value <= search.best.value < math.inf
    # anything wider has too many cells for that, or is not stuck
    assert not search.search_cells(node._replace(s=Line(0.0, 1.0)))
    assert not search.search_cells(node._replace(stuck=False))


def test_many_tied_points_are_not_compared_in_pairs(monkeypatch):
    monkeypatch.setattr("skood.decision._angle_search._PAIRS", 5)
    data = instance(3, n_id=60, n_ood=10)
    search = _search_of(BoundedAbstention(0.5), data)
    node = next(node for node in search.roots(0) if node is not None)
    assert search.cells(node._replace(indices=np.arange(70)), 100) is None


def test_many_samples_on_a_line():
    # all 300 samples change places at the same angle: no halving ever decides them
    rng = np.random.default_rng(0)
    b = rng.permutation(300).astype(float)
    a, loss = 299 - b, rng.integers(0, 2, 300).astype(float)
    for rule in (BoundedAbstention(0.3), BoundedImprovement(0.4), CostBased(0.3)):
        data = a, b, loss, a[:100], b[:100]
        point, exact = (
            search(rule, samples_of(*data)),
            search(rule, samples_of(*data), Solver("exact")),
        )
        assert point.gap <= 1e-3
        assert abs(point.objective - exact.objective) <= 1e-3


def test_samples_that_change_places_at_once_leave_no_first_cell():
    a = np.array([0.0, 1e-14, 1.0, 2.0])
    b = np.array([1.0, 0.0, 0.0, 1.0])
    loss = np.array([0.0, 1.0, 0.0, 1.0])
    data = a, b, loss, np.zeros(0), np.zeros(0)
    point = search(BoundedAbstention(0.5), samples_of(*data), Solver("exact"))
    # row 1 enters before row 0 at all angles that can be stored, but zero
    assert (point.theta, point.risk, point.tpr) == (0.0, 1 / 3, 0.75)
    point = search(BoundedAbstention(0.25), samples_of(*data), Solver("exact"))
    assert (point.theta, point.risk, point.tpr) == (0.0, 0.0, 0.25)


def test_attainable_bounds_are_those_of_all_angles():
    n_infeasible = 0
    for seed in range(30):
        rule, bounds, _ = _model("tpr_fpr", seed)
        data = instance(seed)
        results = [
            search(rule, samples_of(*data), Solver(s, tol=0.0))
            for s in ("exact", "bnb")
        ]
        assert results[0].feasible == results[1].feasible
        if results[0].feasible:
            continue
        n_infeasible += 1
        points = {after for _, after in regions(*data)}
        tpr = max((N for N, _, F in points if bounds[1](N, 0, F) <= 0), default=0) / 12
        fpr = min(F for N, _, F in points if bounds[0](N, 0, F) <= 0) / 6
        for point in results:
            assert point.attainable.max_tpr_at_fpr == pytest.approx(tpr)
            assert point.attainable.min_fpr_at_tpr == pytest.approx(fpr)
            assert rule.violation(point.tpr, point.fpr) > 0
    assert n_infeasible > 5


def test_thresholds_of_a_cell_change_where_a_row_meets_their_edge():
    # cells that were cut where rows cross each other only missed these optima
    data = np.array([0, 1, 0.5]), np.array([1, 0, 0.4999]), np.array([1, 1, 0.2])
    point = solve(BoundedAbstention(0.0), samples_of(*data, None, None))
    assert (point.risk, point.lower_bound, point.gap) == (0.2, 0.2, 0.0)
    a, b = [-0.37, 0.31], [1.04, -0.32]
    a_ood, b_ood = [-0.1, -0.95, 0.8, 0.55, -0.29], [0.92, 1.56, 1.31, 0.24, 0.3]
    point = solve(CostBased(1.0, 1.2, 0.2, 0.5), samples_of(a, b, [0, 0], a_ood, b_ood))
    assert point.objective == pytest.approx(0.2)


@pytest.mark.slow
def test_small_problems_of_untied_samples():
    # few rows, all over the plane: each cell matters
    for seed in range(2500 if NIGHTLY else 250):
        rng = np.random.default_rng(seed)
        n_id, n_ood = rng.integers(2, 12), rng.integers(1, 6)
        a, b = rng.normal(size=(2, n_id))
        loss = rng.choice([0, 0.2, 1.0], n_id)
        data = a, b, loss, rng.normal(size=n_ood), rng.normal(0.5, size=n_ood)
        rule, *_ = _model(MODELS[seed % 5], seed, n_id, n_ood)
        problem = Problem(samples_of(*data))
        goal = Goal.of(rule, problem)
        exact, _ = pivot_sweep(problem, goal)
        best, _ = branch_and_bound(problem, goal, tol=0.0)
        assert (best is None) == (exact is None)
        if exact is not None:
            assert best.value == pytest.approx(exact.value, abs=1e-12)


def test_heavy_tails_are_certified():
    # the best rule accepts next to nothing, the proof is about the bulk of the rows
    rng = np.random.default_rng(0)
    a, b = rng.standard_cauchy((2, 4000))
    loss = rng.uniform(size=2000) < np.where(a[:2000] > np.quantile(a, 0.8), 0.4, 0.05)
    point = solved(
        CostBased(0.3, ood_prior=0.3), a[:2000], b[:2000], loss, a[2000:], b[2000:]
    )
    assert point.gap <= 1e-3


def test_a_bound_that_cannot_be_broken():
    rule = BoundedPrecisionRecall(1.0, 0.5, ood_prior=0.0)
    for solver in ("bnb", "exact", "grid"):
        args = rule, [1, 2], [1, 2], [0, 1], None, None
        assert (
            solve(args[0], samples_of(*args[1:]), Solver(solver, randomize=True)).risk
            == 0.0
        )


def test_attainable_risk_is_that_of_all_angles():
    data = np.array([0, 1, 0.5]), np.array([1, 0, 0.4999]), np.array([1, 1, 0.2])
    for solver in ("bnb", "exact"):
        with pytest.raises(InfeasibleError, match=r"a selective risk of at least 0\.2"):
            solved(BoundedImprovement(0.1), *data, None, None, solver=solver)


def test_attainable_bounds_of_randomized_rules():
    args = [0, 0, 1, 1], None, [0, 0, 0, 0], [0, 0, 0, 1], None
    point = search(BoundedTPRFPR(0.6, 0.1), samples_of(*args), Solver(randomize=True))
    # tau of the first group with 3 tau of 4 OOD rows; then all of it and .2 of two
    assert point.attainable.max_tpr_at_fpr == pytest.approx(0.4 / 3 / 2)
    assert point.attainable.min_fpr_at_tpr == pytest.approx((3 + 0.2) / 4)

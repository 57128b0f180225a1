"""Tests of the solver against brute force, closed forms and checked numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings

import numpy as np
import pytest

from skood.decision._calibration_sample import BestRule, Problem
from skood.decision._operating_point import project
from skood.decision._solver import search
from skood.exceptions import InfeasibleError, SkoodWarning
from skood.rejection import (
    BaseRule,
    BoundedAbstention,
    BoundedTPRFPR,
    Certificate,
    CostBased,
    Linear,
    ScoredSamples,
    Solver,
    TwoThresholds,
    certify,
    solve,
)
from tests.decision._brute_force import instance
from tests.decision._scores import (
    TIED,
    TIED_LOSS,
    TIED_OOD,
    TIED_SCORE,
    samples_of,
    solved,
)

_SAMPLE = "skood.decision._calibration_sample"


def _smooth(seed, n=400):
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(size=(2, n))
    loss = (rng.uniform(size=n) < a / 2).astype(float)
    return a, b, loss, rng.uniform(size=n), rng.uniform(0.6, 1.6, size=n)


def _angles(mode):
    if mode == "quadrant":
        return [i * (math.pi / 2) / 12 for i in range(13)]
    return [(i - 24) * (math.pi / 2) / 12 for i in range(48)]


def _cos_sin(theta):
    for angle, pair in (
        (-math.pi, (-1, 0)),
        (-math.pi / 2, (0, -1)),
        (0.0, (1, 0)),
        (math.pi / 2, (0, 1)),
    ):
        if abs(theta - angle) < 1e-9:
            return pair
    return math.cos(theta), math.sin(theta)


def _range(values):
    low, high = np.percentile(values, [5, 95])
    return high - low or 1.0


def _brute_force(rule, a, b, loss, a_ood, b_ood, mode):
    """All angles and thresholds, row by row, in plain Python."""
    c_a, c_b = _range(a), _range(b)
    best, tpr_at, fpr_at = None, 0.0, math.inf
    for theta in _angles(mode):
        w_a, w_b = _cos_sin(theta)
        p_id = [w_a * (x / c_a) + w_b * (y / c_b) for x, y in zip(a, b, strict=True)]
        p_ood = [
            w_a * (x / c_a) + w_b * (y / c_b) for x, y in zip(a_ood, b_ood, strict=True)
        ]
        for lam in sorted({*p_id, *p_ood}):
            n = sum(p <= lam for p in p_id)
            e = sum(cost for p, cost in zip(p_id, loss, strict=True) if p <= lam)
            f = sum(p <= lam for p in p_ood)
            tpr, fpr = n / len(p_id), f / max(len(p_ood), 1)
            if isinstance(rule, BoundedTPRFPR):
                enough = tpr >= rule.tpr_min - 1e-9 and n > 0
                few = fpr <= rule.fpr_max + 1e-9
            else:
                enough, few = tpr >= rule.coverage - 1e-9 and n > 0, True
            tpr_at = max(tpr_at, tpr) if few else tpr_at
            fpr_at = min(fpr_at, fpr) if enough else fpr_at
            if enough and few:
                key = (round(e / n, 12), -n, f, theta)
                best = key if best is None else min(best, key)
    return best, tpr_at, fpr_at


@pytest.mark.parametrize("mode", ["quadrant", "full"])
@pytest.mark.parametrize("seed", range(50))
@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_brute_force(seed, mode):
    rng = np.random.default_rng(1000 + seed)
    data = instance(seed, losses=(0, 1) if seed % 2 else (0, 0.1, 0.3, 0.7), high=5)
    n_angles = {"quadrant": 13, "full": 48}[mode]
    for rule in (
        BoundedTPRFPR(rng.choice([0.3, 0.6, 0.9]), rng.choice([0.0, 1 / 6, 0.5])),
        BoundedAbstention(rng.choice([0.25, 0.5, 0.8])),
    ):
        best, tpr_at, fpr_at = _brute_force(rule, *data, mode)
        if best is None:
            with pytest.raises(InfeasibleError) as info:
                solved(rule, *data, solver="grid", angles=mode, n_angles=n_angles)
            assert info.value.max_tpr_at_fpr == pytest.approx(tpr_at, abs=1e-12)
            assert info.value.min_fpr_at_tpr == pytest.approx(fpr_at, abs=1e-12)
            continue
        point = solved(rule, *data, solver="grid", angles=mode, n_angles=n_angles)
        assert point.risk == pytest.approx(best[0], abs=1e-11)
        assert round(point.tpr * 12) == -best[1]
        assert round(point.fpr * 6) == best[2]
        assert point.theta == pytest.approx(best[3], abs=1e-12)


def test_brute_force_instances_are_of_both_kinds():
    feasible = [
        search(
            BoundedTPRFPR(0.6, 1 / 6),
            samples_of(*instance(seed, high=5)),
            Solver("grid", n_angles=13),
        ).feasible
        for seed in range(50)
    ]
    assert 5 < sum(feasible) < 45


def test_ties_points():
    # A-ties-points: one operating point per distinct score
    loss = np.where(TIED_OOD, 0.0, TIED_LOSS)
    problem = Problem(ScoredSamples(TIED_SCORE, np.zeros(10), loss, TIED_OOD))
    problem.set_scales(1.0, 1.0)
    lam, N, E, F = problem.points(0.0)
    np.testing.assert_array_equal(lam, [0, 1, 2, 3])
    np.testing.assert_array_equal(N, [2, 4, 5, 6])
    np.testing.assert_array_equal(E, [0, 1, 1, 2])
    np.testing.assert_array_equal(F, [1, 1, 3, 4])


def test_ties_deterministic():
    # A-ties-deterministic: between 1 and 2 in units of the score
    point = solved(BoundedTPRFPR(tpr_min=0.5, fpr_max=0.25), *TIED)
    assert point.risk == pytest.approx(0.25, abs=1e-12)
    assert point.tpr == pytest.approx(2 / 3, abs=1e-12)
    assert point.fpr == 0.25
    assert point.lam * point.scales[0] == pytest.approx(1.5, abs=1e-12)
    assert (point.theta, point.tau, point.gap, point.mu) == (0.0, 1.0, 0.0, 0.0)
    assert point.feasible and point.objective == point.risk
    assert math.isnan(point.precision)


def test_infeasible_says_what_is_attainable():
    rule = BoundedTPRFPR(tpr_min=0.8, fpr_max=0.25)
    with pytest.raises(InfeasibleError) as info:
        solved(rule, *TIED)
    assert info.value.max_tpr_at_fpr == pytest.approx(4 / 6)
    assert info.value.min_fpr_at_tpr == pytest.approx(3 / 4)
    assert str(info.value) == (
        "No acceptance rule meets BoundedTPRFPR(fpr_max=0.25, tpr_min=0.8) on 6 ID and "
        "4 OOD samples. Attainable on this data: a TPR of at most 0.6667 within the "
        "given FPR, and an FPR of at least 0.75 with the given TPR."
    )
    point = search(rule, samples_of(*TIED))
    assert not point.feasible
    assert math.isnan(point.risk) and math.isnan(point.objective)
    assert (point.attainable.max_tpr_at_fpr, point.attainable.min_fpr_at_tpr) == (
        4 / 6,
        0.75,
    )
    # of the four points, accepting up to 1 breaks the bounds least: by 0.8 - 4/6
    assert (point.tpr, point.fpr) == (4 / 6, 0.25)
    assert rule.violation(point.tpr, point.fpr) == pytest.approx(0.8 - 4 / 6)


@pytest.mark.parametrize("seed", range(20))
def test_infeasible_point_violates_least(seed):
    a, _, loss, a_ood, _ = instance(seed, high=5)
    rule = BoundedTPRFPR(tpr_min=0.95, fpr_max=0.0)
    point = search(rule, samples_of(a, None, loss, a_ood, None))
    violations = [
        rule.violation(np.mean(a <= t), np.mean(a_ood <= t))
        for t in np.unique(a)
        if np.any(a <= t)
    ]
    if point.feasible:
        assert min(violations) == 0
    else:
        assert rule.violation(point.tpr, point.fpr) == pytest.approx(min(violations))


def test_nothing_accepted_is_never_optimal():
    # within FPR 0 only an empty region is left, whose risk is undefined
    rule = BoundedTPRFPR(tpr_min=0.0, fpr_max=0.0)
    with pytest.raises(InfeasibleError) as info:
        solve(rule, samples_of([2.0, 3.0], None, [0, 0], [1.0], None))
    assert info.value.max_tpr_at_fpr == 0.0
    assert info.value.min_fpr_at_tpr == 1.0


def test_risk_need_not_grow_with_the_threshold():
    point = solved(BoundedAbstention(0.3), [1, 2, 3, 4], None, [1, 1, 0, 0], None, None)
    assert (point.risk, point.tpr) == (0.5, 1.0)
    assert math.isnan(point.fpr)


def test_tie_rule():
    # same risk everywhere: the largest TPR, then the smallest FPR, then angle
    a, b = [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]
    data = BoundedTPRFPR(0.3, 1.0), a, b, [0, 0, 0], [2.5, 9.0], [9.0, 9.0]
    assert (
        solve(data[0], samples_of(*data[1:])).tpr,
        solve(data[0], samples_of(*data[1:])).fpr,
    ) == (1.0, 0.0)
    point = solve(data[0], samples_of(*data[1:]), Solver("grid"))
    assert (point.tpr, point.fpr) == (1.0, 0.0)
    # all ID rows are accepted without the OOD row (2.5, 9) iff tan(theta) > 1 / 12
    assert 0 < point.theta - math.atan(1 / 12) <= math.pi / 2 / 359
    point = solve(BoundedAbstention(0.3), samples_of(a, b, [0, 0, 0], None, None))
    assert (point.tpr, point.theta) == (1.0, 0.0)


@pytest.mark.parametrize("angles", ["quadrant", "full"])
@pytest.mark.parametrize("seed", range(15))
@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_reported_numbers_are_those_of_the_stored_rule(seed, angles):
    a, b, loss, a_ood, b_ood = instance(seed, n_id=40, n_ood=20, high=5)
    point = solved(
        BoundedTPRFPR(0.5, 0.6),
        a,
        b,
        loss,
        a_ood,
        b_ood,
        solver="grid",
        angles=angles,
        n_angles=40,
    )
    accepted, leaked = point.accept(a, b), point.accept(a_ood, b_ood)
    assert point.tpr == accepted.mean()
    assert point.fpr == leaked.mean()
    assert point.risk == loss[accepted].mean()
    # one row at a time gives the same answer as all at once
    single = [bool(point.accept([x], [y])[0]) for x, y in zip(a, b, strict=True)]
    assert single == accepted.tolist()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("rule", [BoundedTPRFPR(0.5, 0.5), BoundedAbstention(0.4)])
def test_two_scores_are_never_worse_than_one(seed, rule):
    a, b, loss, a_ood, b_ood = instance(seed, n_id=30, n_ood=10, high=5)
    for n_angles in (2, 7):
        double = search(
            rule,
            samples_of(a, b, loss, a_ood, b_ood),
            Solver("grid", n_angles=n_angles),
        )
        for single in (
            search(rule, samples_of(a, None, loss, a_ood, None)),
            search(rule, samples_of(b, None, loss, b_ood, None)),
        ):
            if single.feasible:
                assert double.feasible
                assert double.objective <= single.objective


@pytest.mark.parametrize("factors", [(1024.0, 1.0), (1.0, 2.0**-10), (1000.0, 1e-3)])
def test_units_of_the_scores_do_not_matter(factors):
    k_a, k_b = factors
    a, b, loss, a_ood, b_ood = _smooth(0)
    rule = BoundedTPRFPR(0.6, 0.2)
    point = solve(rule, samples_of(a, b, loss, a_ood, b_ood))
    scaled = solve(rule, samples_of(k_a * a, k_b * b, loss, k_a * a_ood, k_b * b_ood))
    assert 0 < point.theta < math.pi / 2
    assert scaled.scales == pytest.approx(
        (k_a * point.scales[0], k_b * point.scales[1])
    )
    for name in ("theta", "risk", "tpr", "fpr"):
        assert getattr(scaled, name) == getattr(point, name)
    assert scaled.lam == pytest.approx(point.lam, rel=1e-12)
    assert scaled.mu == pytest.approx(point.mu * k_a / k_b)


def test_scales():
    a = np.arange(101.0)
    point = solved(BoundedAbstention(0.5), a, a / 2, np.zeros(101), None, None)
    assert point.scales == (90.0, 45.0)
    with_inf = np.r_[a, np.inf, np.inf]
    point = solved(BoundedAbstention(0.5), with_inf, None, np.zeros(103), None, None)
    assert point.scales == (90.0, 1.0)
    constant = np.full(5, 3.0)
    point = solved(BoundedAbstention(0.5), constant, constant, np.zeros(5), None, None)
    assert point.scales == (1.0, 1.0)
    nothing = np.full(5, np.inf)
    point = solved(BoundedAbstention(0.5), nothing, None, np.zeros(5), None, None)
    assert (point.scales, point.lam, point.tpr) == ((1.0, 1.0), np.inf, 1.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("solver", ["bnb", "exact", "grid"])
def test_only_the_order_of_extreme_scores_matters(solver):
    loss = [0, 0, 1, 0]
    a, a_ood = [1.7e308, -1.7e308, 1e308, -1e308], [0.0, 1.0]
    b, b_ood = [5e-324, 0.0, 1e300, 0.0], [0.0, 5e-324]
    ranks = [[5, 0, 4, 1], [2, 3]]
    for rule in (BoundedTPRFPR(0.5, 0.5), CostBased(0.2)):
        point = solve(rule, samples_of(a, None, loss, a_ood, None), Solver(solver))
        by_rank = solved(rule, ranks[0], None, loss, ranks[1], None, solver=solver)
        assert point.objective == by_rank.objective
        both = solve(rule, samples_of(a, b, loss, a_ood, b_ood), Solver(solver))
        assert both.objective <= point.objective
        assert all(math.isfinite(scale) for scale in both.scales)


def test_reversed_score_warns():
    # wrong rows have *low* a: only the full circle can use that
    a, loss = np.arange(10.0), np.r_[np.ones(5), np.zeros(5)]
    b = np.zeros(10)
    assert solve(BoundedAbstention(0.5), samples_of(a, b, loss, None, None)).risk == 0.5
    with pytest.warns(
        SkoodWarning, match=r"uses the risk score reversed \(theta="
    ) as w:
        samples = samples_of(a, b, loss, None, None)
        point = solve(BoundedAbstention(0.5), samples, Solver(angles="full"))
    assert w[0].filename == __file__
    assert (point.risk, point.theta, point.mu) == (0.0, -math.pi, 0.0)
    # rows are right where one score is low *and* the other is high, or both are
    first, other = np.r_[1, 1, 0, 0, 0, 0], np.r_[0, 0, 1, 1, 0, 0]
    loss = np.r_[1, 1, 1, 1, 0, 0]
    with pytest.warns(SkoodWarning, match="uses the OOD score reversed"):
        point = solved(
            BoundedAbstention(1 / 3), first, -other, loss, None, None, angles="full"
        )
    assert (point.risk, point.tpr) == (0.0, 1 / 3)
    assert -math.pi / 2 < point.theta < 0
    with pytest.warns(SkoodWarning, match="the risk and the OOD score reversed"):
        point = solved(
            BoundedAbstention(1 / 3), -first, -other, loss, None, None, angles="full"
        )
    assert (point.risk, point.tpr) == (0.0, 1 / 3)
    assert -math.pi < point.theta < -math.pi / 2


class _Priced(BoundedTPRFPR):
    """A rule with the fraction of OOD samples at deployment."""

    def __init__(self, tpr_min=0.5, fpr_max=0.25, ood_prior=0.4):
        super().__init__(tpr_min, fpr_max)
        self.ood_prior = ood_prior


def test_precision_needs_a_prior():
    point = solved(_Priced(), *TIED)
    assert point.precision == pytest.approx(0.6 * (2 / 3) / (0.6 * (2 / 3) + 0.4 / 4))


class _MostAccepted(BaseRule):
    """The largest TPR at a bounded risk: another objective, no bound from below."""

    def rates(self):
        return (Linear(id=-0.25, loss=1.0),)

    def cost(self):
        return Linear(id=-4.0)


def test_other_linear_rules_fit_the_engine():
    point = solved(_MostAccepted(), [1, 2, 3, 4], None, [0, 0, 0, 1], None, None)
    assert (point.tpr, point.risk, point.objective) == (1.0, 0.25, -4.0)
    point = solved(_MostAccepted(), [1, 2, 3, 4], None, [0, 0, 1, 1], None, None)
    assert (point.tpr, point.risk, point.objective) == (0.5, 0.0, -2.0)
    message = r"Attainable on this data: a selective risk of at least 1\.$"
    with pytest.raises(InfeasibleError, match=message) as info:
        solve(_MostAccepted(), samples_of([1, 2], None, [1, 1], None, None))
    assert info.value.min_risk == 1.0
    assert math.isnan(info.value.max_tpr_at_fpr)


def test_errors_of_arguments():
    a, b, loss, a_ood, b_ood = instance(0, high=5)
    rule = BoundedTPRFPR()
    with pytest.raises(TypeError, match=r"write BoundedTPRFPR\(\)"):
        solve(BoundedTPRFPR, samples_of(a, b, loss, a_ood, b_ood))
    with pytest.raises(ValueError, match="'tpr_min' parameter of BoundedTPRFPR"):
        solve(BoundedTPRFPR(tpr_min=2), samples_of(a, b, loss, a_ood, b_ood))
    with pytest.raises(ValueError, match=r"'method' parameter of Solver must be a str"):
        solve(rule, samples_of(a, b, loss, a_ood, b_ood), Solver("newton"))
    with pytest.raises(ValueError, match=r"'angles' parameter of Solver must be a str"):
        solve(rule, samples_of(a, b, loss, a_ood, b_ood), Solver(angles="half"))
    with pytest.raises(ValueError, match=r"'n_angles' parameter of Solver.* Got 1"):
        solve(rule, samples_of(a, b, loss, a_ood, b_ood), Solver("grid", n_angles=1))
    for n_angles in (2.5, True):
        with pytest.raises(
            TypeError, match=r"'n_angles' parameter of Solver must be an int"
        ):
            solved(rule, a, b, loss, a_ood, b_ood, solver="grid", n_angles=n_angles)


def test_errors_of_missing_samples():
    a, b, loss, a_ood, b_ood = instance(0, high=5)
    rule = BoundedTPRFPR()
    with pytest.raises(ValueError, match="No ID samples: risk_id is empty"):
        solve(rule, samples_of([], [], [], a_ood, b_ood))
    for none in (None, []):
        with pytest.raises(ValueError, match=r"TPRFPR needs OOD samples.*got none"):
            solve(rule, samples_of(a, b, loss, none, none))
        with pytest.raises(ValueError, match=r"TPRFPR needs OOD samples.*got none"):
            solve(rule, samples_of(a, None, loss, none, None))
    with pytest.raises(ValueError, match="ood_ood is None although the rule has two"):
        solve(rule, samples_of(a, b, loss, a_ood, None))
    with pytest.raises(ValueError, match="ood_ood is given although ood_id is None"):
        solve(rule, samples_of(a, None, loss, a_ood, b_ood))
    with pytest.raises(ValueError, match="ood_ood is given although risk_ood is None"):
        solve(rule, samples_of(a, b, loss, None, b_ood))


def test_errors_of_values():
    a, b, loss, a_ood, b_ood = instance(0, high=5)
    rule = BoundedTPRFPR()

    def spoil(values, value):
        values = values.copy()
        values[0] = value
        return values

    for i, name in enumerate(["risk_id", "ood_id", None, "risk_ood", "ood_ood"]):
        if name is not None:
            args = [a, b, loss, a_ood, b_ood]
            args[i] = spoil(args[i], np.nan)
            with pytest.raises(ValueError, match=f"{name} contains 1 NaN"):
                solve(rule, samples_of(*args))
            args[i] = spoil(args[i], -np.inf)
            if name.startswith("ood"):
                with pytest.raises(ValueError, match=f"{name} contains -inf"):
                    solve(rule, samples_of(*args))
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"loss_id must be finite and not neg"):
            solve(rule, samples_of(a, b, spoil(loss, bad), a_ood, b_ood))
    with pytest.raises(ValueError, match=r"loss_id must have .* sample, got 11 for 12"):
        solve(rule, samples_of(a, b, loss[1:], a_ood, b_ood))
    with pytest.raises(ValueError, match="risk_id and ood_id must have one entry per"):
        solve(rule, samples_of(a, b[1:], loss, a_ood, b_ood))
    with pytest.raises(ValueError, match="risk_ood and ood_ood must have one entry"):
        solve(rule, samples_of(a, b, loss, a_ood, b_ood[1:]))


def test_inputs_are_left_as_they_were():
    data = instance(0, high=5)
    data[0][0] = data[4][0] = np.inf
    copies = [x.copy() for x in data]
    solve(BoundedAbstention(), samples_of(*data))
    for before, after in zip(copies, data, strict=True):
        np.testing.assert_array_equal(before, after)


def test_reads_tensors():
    torch = pytest.importorskip("torch")
    a = torch.tensor([0.1, 0.2, 0.3, 0.4], requires_grad=True)
    point = solve(BoundedAbstention(0.5), samples_of(a, None, [0, 0, 1, 1], None, None))
    assert point.accept(a).tolist() == [True, True, False, False]


@pytest.mark.parametrize("kind", ["distinct", "tied", "nearly tied", "infinite"])
def test_a_single_score_as_if_all_ties_were_merged(kind, monkeypatch):
    rng = np.random.default_rng(0)
    for n, tries in ((30, 20), (30, 1), (3000, 20)):
        score = rng.normal(size=n)
        if kind != "distinct":
            score = np.round(score, 1)
        if kind == "nearly tied":
            score *= 1 + 1e-8 * rng.normal(size=n)
        elif kind == "infinite":
            score[: n // 3] = rng.choice([-np.inf, np.inf], n // 3)
            score = rng.permutation(score)
        half = n // 2
        for loss in ((rng.random(half) < 0.3).astype(float), rng.random(half)):
            data = score[:half], None, loss, score[half:], None
            for rule in (
                BoundedTPRFPR(0.4, 0.6),
                BoundedTPRFPR(0.95, 0.01),
                BoundedAbstention(0.7),
                CostBased(0.3, 1.0, 0.0, ood_prior=0.25),
            ):
                monkeypatch.setattr(f"{_SAMPLE}._TIES", tries)
                point = search(rule, samples_of(*data))
                monkeypatch.setattr(f"{_SAMPLE}._TIES", 0)
                assert repr(point) == repr(search(rule, samples_of(*data)))


def test_rules_of_dense_scores_that_separate_a_pair_are_detected():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(size=(2, 3000))
    a[-1], b[-1] = a[0] + 1e-9, b[0] + 1e-9
    problem = Problem(samples_of(a, b, np.zeros(3000), None, None))
    merged = problem.with_merged_ties()
    assert merged.few_tied()
    order = np.argsort(a)
    near = order[1000 + np.argmin(np.diff(a[order])[1000:1500])]
    for theta in (0.0, 0.7, math.pi / 2):
        projected = project(theta, *problem.scaled)
        # a sample that is tied with another by one score only
        for k, separated in ((0, True), (-1, False), (near, theta == 0.0)):
            candidate = BestRule(0.0, 1, 0, theta, projected[k])
            assert merged.are_separated(candidate, problem) == separated
    discrete = np.round(a, 1) * (1 + 1e-9 * b)
    tied = Problem(samples_of(discrete, discrete, b, None, None))
    assert not tied.with_merged_ties().few_tied()


def test_record_of_lists_equals_the_one_of_arrays():
    rule = BoundedTPRFPR(tpr_min=0.5, fpr_max=0.5)
    risk, loss = [0, 1, 2, 3, 1, 4], [0, 1]
    labels = [False] * 4 + [True] * 2
    samples = ScoredSamples(risk, None, loss * 2 + [0, 0], labels)
    other = samples_of(risk[:4], None, loss * 2, risk[4:], None)
    assert repr(solve(rule, samples)) == repr(solve(rule, other))
    assert repr(solve(rule, samples.take([5, 3, 1, 0, 4, 2]))) == repr(
        solve(rule, other)
    )


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        # as indices, 0 and 1 would select other samples
        ({"is_ood": [0, 0, 0, 0, 1, 1]}, "is_ood must be Boolean, .* the dtype int64"),
        ({"loss": [0.0]}, "must have the same shape"),
        ({"weight": [1, -5, 1, 1, 1, 1]}, "passed to weight_id: the least is -5"),
        ({"weight": [1, np.nan, 1, 1, 1, 1]}, "weight_id contains NaN"),
        ({"weight": [1, 1, 1, 1, 2, -1]}, "passed to weight_ood: the least is -1"),
        ({"group": [1, None, 1, 1, None, None]}, "group_id contains missing labels"),
        ({"source": [*[None] * 4, "a", None]}, "source_ood contains missing labels"),
        ({"risk": [0, 1, np.nan, 3, 1, 4]}, "risk contains 1 NaN"),
    ],
)
def test_invalid_records(arrays, message):
    valid = {"risk": [0, 1, 2, 3, 1, 4], "ood": None, "loss": [0] * 6}
    valid["is_ood"] = [False] * 4 + [True] * 2
    with pytest.raises(ValueError, match=message):
        solve(BoundedTPRFPR(0.5, 0.5), ScoredSamples(**{**valid, **arrays}))


@pytest.mark.parametrize("n_id", [0, 3, 7, 12])
def test_arrays_by_kind_are_those_of_masks(n_id):
    rng = np.random.default_rng(n_id)
    risk, loss, is_ood = rng.normal(size=12), np.arange(12.0), np.arange(12) >= n_id
    for order in (np.arange(12), np.arange(12)[::-1], rng.permutation(12)):
        samples = ScoredSamples(risk, None, loss, is_ood[order])
        for name, array in (("risk", risk), ("loss", loss)):
            of_id, of_ood = samples.by_kind(name)
            np.testing.assert_array_equal(of_id, array[~is_ood[order]])
            np.testing.assert_array_equal(of_ood, array[is_ood[order]])


def test_mask_of_something_else_than_samples():
    split = Certificate(split=np.array([True, False]))
    with pytest.raises(TypeError, match="samples must be ScoredSamples, got tuple"):
        certify(BoundedTPRFPR(0.5, 0.5), ([0.0], None), split)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float32])
def test_samples_of_other_types(dtype):
    """The fields of `ScoredSamples` may be of any numbers."""
    rng = np.random.default_rng(0)
    risk, ood = rng.integers(0, 2 if dtype is bool else 9, (2, 90)).astype(dtype)
    is_ood, loss = rng.random(90) < 0.4, rng.random(90) < 0.3
    for rule in (CostBased(), BoundedTPRFPR(0.5, 0.9), TwoThresholds(0.3, 0.3)):
        points = []
        for kind in (dtype, float):
            fields = risk.astype(kind), ood.astype(kind), loss.astype(kind), is_ood
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                points.append(solve(rule, ScoredSamples(*fields)))
        assert points[0] == points[1]


@pytest.mark.parametrize(("window", "expected"), [(0, []), (2, [1, 2, 3, 4])])
def test_latest_samples_of_each_kind(window, expected):
    samples = ScoredSamples(range(5), None, np.zeros(5), np.arange(5) % 2 == 1)
    assert samples.latest(window).risk.tolist() == expected

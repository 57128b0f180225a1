"""The nearest rule to bounds that no rule meets: all regions, and closed forms."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skood.exceptions import InfeasibleError, SkoodWarning
from skood.rejection import (
    BaseRule,
    BoundedErrorRate,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    CostBased,
    Linear,
    Solver,
    TwoThresholds,
    solve,
)
from tests.decision._brute_force import instance, regions
from tests.decision._scores import samples_of, solved


class _LeastFPR(BaseRule):
    """A user's rule: least FPR at a coverage and a risk, and a bound on a sum."""

    def rates(self):
        return (
            Linear(id=-1.0, constant=0.9),
            Linear(id=-0.01, loss=1.0),
            Linear(id=-1.0, ood=2.0, constant=-0.1),
        )

    def cost(self):
        return Linear(ood=1.0)


def _largest_violation(rule, t, f, risk):
    """Return the largest violation in units of the rates, from their definitions."""
    if isinstance(rule, BoundedTPRFPR):
        return max(rule.tpr_min - t, f - rule.fpr_max)
    if isinstance(rule, BoundedPrecisionRecall):
        prior = rule.ood_prior
        precision = (1 - prior) * t / ((1 - prior) * t + prior * f)
        return max(rule.recall_min - t, rule.precision_min - precision)
    if isinstance(rule, BoundedImprovement):
        return risk - rule.risk_max
    return max(0.9 - t, risk - 0.01, -t + 2 * f - 0.1)


@pytest.mark.parametrize(
    "rule",
    [
        BoundedTPRFPR(tpr_min=0.95, fpr_max=0.0),
        BoundedTPRFPR(tpr_min=1.0, fpr_max=1 / 6),
        BoundedPrecisionRecall(precision_min=0.97, recall_min=0.9),
        BoundedImprovement(risk_max=0.01),
        _LeastFPR(),
    ],
    ids=["fpr_0", "tpr_1", "precision", "risk", "own"],
)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_least_largest_violation_then_objective(rule, seed):
    a, b, loss, a_ood, b_ood = instance(
        seed, n_id=8, n_ood=4, losses=(0, 0.5, 1), high=4
    )
    n_infeasible = 0
    for scores in ((a, b, loss, a_ood, b_ood), (a, None, loss, a_ood, None)):
        pair = scores if scores[1] is not None else (a, 0 * a, loss, a_ood, 0 * a_ood)
        best = None
        for _, (N, E, F) in regions(*pair):
            if N == 0:
                continue
            rates = N / 8, F / 4, float(E) / N
            least = max(_largest_violation(rule, *rates), 0.0)
            cost = rule.cost()
            value = rates[2] if cost is None else cost.at(rates[0], float(E), rates[1])
            key = (round(least, 8), round(value, 10), -N, F)
            best = key if best is None else min(best, key)
        point = solve(rule, samples_of(*scores), Solver("exact", infeasible="nearest"))
        assert point.feasible == (best[0] == 0)
        n_infeasible += not point.feasible
        assert point.violation == pytest.approx(best[0], abs=1e-8)
        assert point.objective == pytest.approx(best[1], abs=1e-8)
        assert round(point.tpr * 8) == -best[2]
        assert round(point.fpr * 4) == best[3]
        if not point.feasible:
            with pytest.raises(InfeasibleError):
                solve(rule, samples_of(*scores), Solver("exact"))


def test_numbers_by_hand():
    # N, F at thresholds 1, 2, 3: (1, 0), (2, 1), (4, 2); violations .75, .5, 1
    args = [1, 2, 3, 3], None, [0, 1, 0, 0], [2, 3], None
    with pytest.warns(SkoodWarning) as warned:
        point = solved(BoundedTPRFPR(1.0, 0.0), *args, infeasible="nearest")
    assert (point.tpr, point.fpr, point.risk) == (0.5, 0.5, 0.5)
    assert point.violation == pytest.approx(0.5, abs=1e-9)
    assert not point.feasible
    assert point.attainable == (0.25, 1.0, 0.0)
    assert str(warned[0].message) == (
        "No acceptance rule meets BoundedTPRFPR(fpr_max=0.0, tpr_min=1.0) on 4 ID and "
        "2 OOD samples. The nearest rule violates a bound by 0.5: TPR 0.5, FPR 0.5, "
        "selective risk 0.5."
    )
    # Mixtures of the thresholds 2 and 3 have f = t: 1 - t = f - 1/4 at t = 5/8.
    rule = BoundedTPRFPR(1.0, 0.25)
    with pytest.warns(SkoodWarning, match="nearest"):
        mixed = solved(rule, *args, infeasible="nearest", randomize=True)
    assert_allclose([mixed.tpr, mixed.fpr], [5 / 8, 5 / 8], atol=1e-8)
    assert mixed.violation == pytest.approx(3 / 8, abs=1e-8)


def _nearest_by_bisection(rule, scores):
    """Return the least violation of randomized rules by halving alone."""

    def is_met(amount):
        loosened = clone(rule).set_params(
            **{
                name: value + amount if name.endswith("max") else value - amount
                for name, value in rule.get_params().items()
                if name.endswith(("min", "max"))
            }
        )
        try:
            solve(loosened, samples_of(*scores), Solver("exact", randomize=True))
        except InfeasibleError:
            return False
        return True

    low, high = 0.0, 0.5
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if is_met(middle) else (middle, high)
    return high


@pytest.mark.parametrize("high", [3, None])
@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_randomized_rules(high):
    """Ties and separate scores; "bnb" against "exact" and against plain bisection."""
    a, b, loss, a_ood, b_ood = instance(1, n_id=16, n_ood=10, losses=(0, 1), high=4)
    if high is None:
        noise = np.random.default_rng(0).normal(size=(2, 26))
        a, b = a + noise[0, :16], b + noise[1, :16]
        a_ood, b_ood = a_ood + noise[0, 16:], b_ood + noise[1, 16:]
    rule = BoundedTPRFPR(tpr_min=0.93, fpr_max=0.04)
    scores = a, b, loss, a_ood, b_ood
    options = {"infeasible": "nearest", "randomize": True}
    point = solved(rule, *scores, **options)
    exact = solved(rule, *scores, solver="exact", **options)
    expected = _nearest_by_bisection(rule, scores)
    assert not point.feasible and expected > 0.01
    for nearest in (point, exact):
        assert nearest.violation == pytest.approx(expected, abs=2e-9)
        rates = nearest.tpr, nearest.fpr, nearest.risk
        assert _largest_violation(rule, *rates) == pytest.approx(expected, abs=4e-9)
    assert point.risk == pytest.approx(exact.risk, abs=1e-7)


def test_bounds_that_are_met_are_solved_as_before():
    a, b, loss, a_ood, b_ood = instance(3)
    args = BoundedTPRFPR(0.3, 0.9), a, b, loss, a_ood, b_ood
    assert solved(*args, infeasible="nearest") == solved(*args)


def test_two_thresholds():
    a = np.arange(40.0)
    loss = np.where(a < 2, 1.0, (a % 4 == 0).astype(float))
    rule = TwoThresholds(ood=0.05, risk=0.01, criterion="selective_risk")
    b = np.random.default_rng(0).permutation(40).astype(float)
    with pytest.warns(SkoodWarning, match="The nearest rule violates a bound by"):
        point = solved(rule, a, b, loss, None, None, infeasible="nearest")
    within = b <= point.ood_max
    risks = np.cumsum(loss[within]) / np.arange(1, within.sum() + 1)
    last = np.flatnonzero(risks == risks.min())[-1]
    assert point.risk == pytest.approx(risks.min())
    assert point.tpr == (last + 1) / 40
    assert point.violation == pytest.approx(risks.min() - 0.01)


def test_large_losses():
    point_of = BoundedImprovement(risk_max=1.0)
    with pytest.warns(SkoodWarning, match="nearest"):
        point = solved(
            point_of, [1, 2], None, [70.0, 50.0], None, None, infeasible="nearest"
        )
    assert point.violation == pytest.approx(59.0, abs=1e-6)
    assert point.tpr == 1.0 and math.isnan(point.fpr)


def test_unknown_option():
    with pytest.raises(ValueError, match=r"'infeasible' parameter of Sol.* Got 'ign"):
        solved(BoundedTPRFPR(), [1], None, [0], [1], None, infeasible="ignore")


@pytest.mark.filterwarnings("ignore:No acceptance rule")
def test_nearest_error_rate():
    """It accepts an ID sample, and the violation is one of the error rate."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        a, a_ood = rng.normal(size=8), rng.normal(-0.5, 1, size=5)
        loss = (rng.random(8) < 0.7).astype(float)
        thresholds = [t for t in (*a, *a_ood) if t >= a.min()]
        t, e, f = np.transpose(
            [
                ((a <= lam).mean(), ((a <= lam) * loss).mean(), (a_ood <= lam).mean())
                for lam in thresholds
            ]
        )
        coverage = 0.6 * t + 0.4 * f
        violation = np.maximum((0.6 * e + 0.4 * f) / coverage - 0.05, 0)
        best = np.lexsort((-coverage, violation.round(9)))[0]
        samples = samples_of(a, None, loss, a_ood, None)
        point = solve(
            BoundedErrorRate(0.05, 0.4), samples, Solver(infeasible="nearest")
        )
        assert point.violation == pytest.approx(violation[best], abs=1e-8)
        assert -point.objective == pytest.approx(coverage[best])


@pytest.mark.parametrize("rule", [BoundedErrorRate(0.1, 0.5), CostBased(cost_max=0.1)])
def test_text_of_bounds_that_are_no_precision(rule):
    samples = samples_of([1.0, 2.0], None, [1, 1], [0.5], None)
    with pytest.raises(InfeasibleError, match="within the given bounds"):
        solve(rule, samples)

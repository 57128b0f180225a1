"""Tests of SCOD risk and cost, against every rule in a loop and closed forms."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from skood.metrics import RiskCoverageCurve
from skood.rejection import BoundedTPRFPR, CostBased, Solver, solve
from tests.metrics._double_samples import (
    cost_curve,
    every_rule,
    least_risk_curve,
    make_samples,
    precision_recall_curve,
    relabel,
    scod_risk_curve,
    scored,
)

SEEDS = range(4)
THETAS = np.linspace(0, math.pi / 2, 9)
METRICS = [scod_risk_curve, cost_curve]


def sizes(samples):
    n = int((samples[0] != -1).sum())
    return n, samples[0].size - n


# ------------------------------------------------------------------- risk at coverage


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("beta", "prior"), [(0.5, 0.5), (0.8, 0.2), (0.1, 0.7)])
def test_best_risk_of_every_rule(beta, prior, seed):
    samples = make_samples(seed)
    n, m = sizes(samples)
    reached = []
    for N, E, F in every_rule(*samples, THETAS):
        coverage = (1 - prior) * N / n + prior * F / m
        risk = (1 - beta) * (1 - prior) * E / n + beta * prior * F / m
        reached.append((coverage, risk / coverage))
    curve = scod_risk_curve(
        *samples, ood_weight=beta, ood_prior=prior, solver=Solver("grid", n_angles=9)
    )
    for share in np.linspace(0, 1, 101):
        best = min(r for c, r in reached if c >= share - 1e-9)
        assert_allclose(curve.at(share), best, rtol=1e-12, atol=1e-15)
    for bound, value in zip(curve.bounds, curve.values, strict=True):
        accepted = curve.rule_at(bound).accept(-samples[2], -samples[3])
        weight = np.where(samples[0] == -1, prior / m, (1 - prior) / n)[accepted]
        cost = np.where(samples[0] == -1, beta, (1 - beta) * (samples[0] != samples[1]))
        assert_allclose(weight.sum(), bound, rtol=1e-12)
        assert_allclose(
            np.average(cost[accepted], weights=weight), value, rtol=1e-12, atol=1e-15
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_ood_samples_as_a_further_class_that_is_never_right(seed):
    """At the prior of the sample, and twice the weight of one half."""
    y_true, y_pred, y_score, _ = make_samples(seed)
    prior = float(np.mean(y_true == -1))
    curve = scod_risk_curve(y_true, y_pred, y_score, ood_prior=prior)
    mixed = least_risk_curve(np.where(y_true == -1, 3, y_true), y_pred, y_score)
    shares = np.linspace(0, 1, 51)
    assert_allclose(2 * curve.at(shares), mixed.at(shares), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("seed", SEEDS)
def test_limits_of_weight_and_prior(seed):
    samples = make_samples(seed)
    only_id = tuple(x[samples[0] != -1] for x in samples)
    plain = least_risk_curve(*samples)
    for arguments in (samples, only_id):
        curve = scod_risk_curve(*arguments, ood_prior=0.0, ood_weight=0.25)
        assert_allclose(curve.bounds, plain.bounds, rtol=1e-12)
        assert_allclose(curve.values, 0.75 * plain.values, rtol=1e-12)
    # only OOD rows count: one minus the precision, which depends on the TPR and FPR
    curve = scod_risk_curve(*samples, ood_prior=0.3, ood_weight=1.0)
    best = precision_recall_curve(samples[0], *samples[2:], ood_prior=0.3)
    assert_allclose(curve.values[0], 1 - best.values[0], atol=1e-15)
    assert_allclose(curve.at(1.0), 0.3, rtol=1e-12)
    # none counts
    curve = scod_risk_curve(*samples, ood_prior=0.3, ood_weight=0.0)
    wrong = np.mean(only_id[0] != only_id[1])
    assert_allclose(curve.at(1.0), 0.7 * wrong, rtol=1e-12)


# ------------------------------------------------------------------------------- cost


def cost_of(N, E, F, n, m, e1, e2, e3, prior):
    """The definition, row by row."""
    on_id = (E + e1 * (n - N)) / n
    return (1 - prior) * on_id + prior * (e2 * F + e3 * (m - F)) / m


SWEEPS = {
    "reject_id": {"reject_id": np.linspace(0, 1.2, 13)},
    "accept_ood": {"accept_ood": np.linspace(0.3, 3, 10), "reject_ood": 0.2},
    "reject_ood": {"reject_ood": np.linspace(0, 0.9, 10)},
    "ood_prior": {"ood_prior": np.linspace(0, 0.95, 20), "reject_ood": 0.1},
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("swept", SWEEPS)
def test_least_cost_of_every_rule(swept, seed):
    samples = make_samples(seed)
    params = SWEEPS[swept]
    curve = cost_curve(*samples, solver=Solver("grid", n_angles=9), **params)
    points = [(0, 0, 0), *every_rule(*samples, THETAS)]
    assert len(curve.rules) == len(curve.points) == params[swept].size
    for k, (cost, rule, point) in enumerate(
        zip(curve.costs, curve.rules, curve.points, strict=True)
    ):
        assert getattr(rule, swept) == params[swept][k]
        e = rule.reject_id, rule.accept_ood, rule.reject_ood, rule.ood_prior
        costs = [cost_of(*p, *sizes(samples), *e) for p in points]
        assert_allclose(cost, min(costs), rtol=1e-12)
        assert point.objective == cost
        accepted = point.accept(-samples[2], -samples[3])
        is_id = samples[0] != -1
        assert (accepted[is_id].mean(), accepted[~is_id].mean()) == (
            point.tpr,
            point.fpr,
        )
    # the least of linear functions is concave
    assert np.all(np.diff(curve.costs, 2) <= 1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_solver_on_the_same_angles(seed):
    """Not only the cost but the rule is the same, though few points are tried."""
    samples = make_samples(seed)
    is_id, wrong = samples[0] != -1, samples[0] != samples[1]
    costs = {"reject_id": [0.0, 0.17, 0.4, 0.9, 3.0], "ood_prior": 0.4}
    for loss in (None, np.where(is_id, 0.37 * wrong, np.nan)):
        of_curve = "zero_one" if loss is None else loss
        curve = cost_curve(*samples, loss=of_curve, **costs)
        for rule, point in zip(curve.rules, curve.points, strict=True):
            arguments = scored(*samples, loss=loss), Solver("grid", n_angles=91)
            actual = solve(rule, *arguments)
            for name in ("objective", "tpr", "fpr", "risk", "theta", "lam", "tau"):
                expected = getattr(actual, name)
                assert_equal(getattr(point, name), expected, err_msg=name)


def test_chow_without_ood_samples():
    """For r in [0, 1]: reject where r > e, at a cost of e minus e squared / 2."""
    n = 2000
    r = (np.arange(n) + 0.5) / n
    e = np.linspace(0, 1, 21)
    curve = cost_curve(np.zeros(n), None, -r, loss=r, reject_id=e, ood_prior=0.0)
    assert_allclose(curve.costs, e - e**2 / 2, atol=1e-3 / 2)
    assert_allclose([p.tpr for p in curve.points], e, atol=1e-3)


def test_cost_is_never_above_accepting_all_or_none():
    samples = make_samples(1)
    wrong = np.mean((samples[0] != samples[1])[samples[0] != -1])
    prior = np.linspace(0, 0.99, 12)
    curve = cost_curve(*samples, ood_prior=prior, reject_id=0.4)
    assert np.all(curve.costs <= (1 - prior) * 0.4 + 1e-12)
    assert np.all(curve.costs <= (1 - prior) * wrong + prior + 1e-12)
    assert cost_curve(*samples, reject_id=0.0).costs == [0.0]
    dear = cost_curve(*samples, reject_id=1e6, ood_prior=0.1).points[0]
    assert dear.tpr == 1.0
    useless = np.where(samples[0] == -1, 1.0, 0.0)
    none = cost_curve(*samples[:2], useless, reject_id=0.01).points[0]
    assert (none.tpr, none.fpr, none.lam, none.tau) == (0.0, 0.0, -math.inf, 0.0)


@pytest.mark.parametrize(("c_in", "c_out"), [(0.2, 0.3), (0.05, 0.6)])
def test_the_cost_of_narasimhan_et_al(c_in, c_out):
    """As the docstring says: scaled, and at a prior of one half."""
    samples = make_samples(2)
    n, m = sizes(samples)
    rest = 1 - c_in - c_out
    theirs = min(
        rest * E / n + c_in * (1 - N / n) + c_out * F / m
        for N, E, F in [(0, 0, 0), *every_rule(*samples, THETAS)]
    )
    curve = cost_curve(
        *samples,
        reject_id=c_in / rest,
        accept_ood=c_out / rest,
        solver=Solver("grid", n_angles=9),
    )
    assert_allclose(2 * rest * curve.costs, [theirs], rtol=1e-12)


def test_known_densities(densities):
    """Costs .3, 1, 0: on a sample of them."""
    y_true, y_pred, r, g = densities
    samples, is_ood = (y_true, y_pred, -r), y_true == -1
    costs = {"reject_id": 0.3, "ood_prior": 0.25}
    double = cost_curve(*samples, -g, **costs)
    assert double.costs[0] == pytest.approx(0.14988425140398326, abs=0.006)
    # Chow's rule, which accepts iff r <= .3, and the best threshold on r
    accepted = r <= 0.3
    wrong = np.where(accepted, y_pred != y_true, 0.3)[~is_ood].mean()
    chow = 0.75 * wrong + 0.25 * accepted[is_ood].mean()
    assert chow == pytest.approx(0.21523359892410232, abs=0.006)
    alone = cost_curve(*samples, **costs)
    assert double.costs[0] < alone.costs[0] < chow


def test_what_is_swept_together():
    samples = make_samples(3)
    curve = cost_curve(*samples, reject_id=[0.1, 0.5], ood_prior=[0.2, 0.6])
    alone = [
        cost_curve(*samples, reject_id=e, ood_prior=p).costs[0]
        for e, p in ((0.1, 0.2), (0.5, 0.6))
    ]
    assert_array_equal(curve.costs, alone)
    assert (
        curve.rules[1].get_params()
        == CostBased(reject_id=0.5, ood_prior=0.6).get_params()
    )


# ------------------------------------------------------------------------------ input


def result(metric, *args, **params):
    curve = metric(*args, **params)
    return curve.costs if metric is cost_curve else curve.values


@pytest.mark.parametrize("metric", METRICS)
def test_losses_and_labels(metric):
    y_true, y_pred, *scores = make_samples(0)
    is_id = y_true != -1
    expected = result(metric, y_true, y_pred, *scores)
    names = relabel(y_true), relabel(y_pred), *scores
    for kw in ({"ood_label": "other"}, {"classes": ["a", "b", "c"]}):
        assert_array_equal(result(metric, *names, **kw), expected)
    unseen = np.where(is_id, y_true, 8)
    same = result(metric, unseen, y_pred, *scores, classes=[0, 1, 2])
    assert_array_equal(same, expected)
    matrix = 1 - np.eye(3)
    same = result(metric, y_true, y_pred, *scores, loss=matrix, classes=[0, 1, 2])
    assert_array_equal(same, expected)
    loss = np.where(is_id, y_true != y_pred, np.nan)
    assert_array_equal(result(metric, y_true, None, *scores, loss=loss), expected)
    more = result(metric, y_true, None, *scores, loss=2 * loss)
    assert more.max() > expected.max()


@pytest.mark.parametrize("metric", METRICS)
def test_a_score_reversed(metric):
    y_true, y_pred, *scores = make_samples(1)
    noise, more = np.random.default_rng(0).uniform(size=(2, 50))
    score = sum(scores) + noise  # untied, since rounding differs between mirror images
    good = metric(y_true, y_pred, score, more, solver=Solver("grid", n_angles=3))
    bad = metric(y_true, y_pred, -score, more, solver=Solver("grid", n_angles=3))
    full = metric(
        y_true, y_pred, -score, more, solver=Solver("grid", angles="full", n_angles=8)
    )
    if metric is cost_curve:
        assert full.costs[0] <= good.costs[0] < bad.costs[0]
        assert math.cos(full.points[0].theta) < 0
    else:
        assert full.area <= good.area < bad.area
        assert np.any(np.cos(full.thetas) < 0)


@pytest.mark.parametrize("metric", METRICS)
def test_errors(metric):
    samples = make_samples(5)
    with pytest.raises(
        ValueError, match=r"'n_angles' parameter of Solver must.* Got 0"
    ):
        metric(*samples, solver=Solver("grid", n_angles=0))
    with pytest.raises(ValueError, match="y_score contains 50 NaN"):
        metric(*samples[:2], np.full(50, np.nan))
    with pytest.raises(ValueError, match=r"No ID samples.*ood_label=-1"):
        metric(np.full(50, -1), *samples[1:])
    with pytest.raises(ValueError, match=r"No OOD samples.*ood_label=7"):
        metric(*samples, ood_label=7)
    with pytest.raises(ValueError, match="y_pred is required"):
        metric(samples[0], None, *samples[2:])


@pytest.mark.parametrize(
    ("params", "error", "says"),
    [
        ({"reject_id": [0.1, -0.1]}, ValueError, "'reject_id' parameter of CostBased"),
        ({"ood_prior": 1.0}, ValueError, r"'ood_prior' .* CostBased .* \[0.0, 1.0\)"),
        ({"accept_ood": 0.0}, ValueError, "accept_ood of CostBased must be above"),
        ({"reject_id": "a"}, TypeError, "'reject_id' parameter of CostBased must be a"),
        ({"rules": []}, TypeError, "list of CostBased rules, at least one, got"),
        ({"rules": [BoundedTPRFPR()]}, TypeError, "list of CostBased rules.*TPRFPR"),
    ],
)
def test_parameters_of_the_cost(params, error, says):
    with pytest.raises(error, match=says):
        cost_curve(*make_samples(5), **params)


def test_no_ood_samples_are_needed_at_a_prior_of_zero():
    samples = make_samples(0)
    only_id = tuple(x[samples[0] != -1] for x in samples)
    expected = cost_curve(*samples, ood_prior=0.0, reject_id=[0.2, 0.4])
    actual = cost_curve(*only_id, ood_prior=[0.0, 0.0], reject_id=[0.2, 0.4])
    assert_array_equal(actual.costs, expected.costs)
    curve = RiskCoverageCurve.from_predictions(*only_id[:3])
    coverage, risk = curve.coverage, curve.risk
    alone = cost_curve(*only_id[:3], ood_prior=0.0, reject_id=0.4)
    expected = min((coverage * risk + 0.4 * (1 - coverage)).min(), 0.4)
    assert_allclose(alone.costs, [expected], rtol=1e-12)

"""Tests of the curves of two scores, against every rule in a loop."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skood.exceptions import InfeasibleError, SkoodWarning
from skood.metrics import (
    RiskCoverageCurve,
    TwoScoreCurve,
    aupr_in,
    aurc,
    auroc,
    ccr_at_fpr,
    oscr,
    selective_risk_at,
)
from skood.rejection import (
    BoundedAbstention,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    OperatingPoint,
    Solver,
    solve,
)
from tests._loops import looped
from tests.metrics._double_samples import (
    ccr_curve,
    every_rule,
    least_risk_curve,
    make_samples,
    precision_recall_curve,
    relabel,
    roc_curve,
    scored,
)
from tests.metrics._samples import check_input_errors

SEEDS = range(4)
N_ANGLES = 9


def counts(y_true, y_pred, accepted):
    is_id = y_true != -1
    N, F = (accepted & is_id).sum(), (accepted & ~is_id).sum()
    return N, (accepted & is_id & (y_true != y_pred)).sum(), F


def risk_coverage(samples, **params):
    return least_risk_curve(*samples, **params)


def risk_at_fpr(samples, **params):
    return least_risk_curve(*samples, **{"fpr_max": 0.2, **params})


def risk_at_precision(samples, **params):
    bounds = {"precision_min": 0.9, "ood_prior": 0.3, "fpr_max": 0.45}
    return least_risk_curve(*samples, **bounds | params)


def roc(samples, **params):
    return roc_curve(samples[0], *samples[2:], **params)


def precision_recall(samples, **params):
    params = {"ood_prior": 0.3, **params}
    return precision_recall_curve(samples[0], *samples[2:], **params)


def ccr(samples, **params):
    return ccr_curve(*samples, **{"tpr_min": 0.3, **params})


def dhamija(samples, **params):
    return ccr_curve(*samples, kind="dhamija", **params)


# curve: (bound, value, whether less is better) of N, E, F and the numbers of rows
READ = {
    risk_coverage: (
        lambda N, E, F, n, m: N / n,
        lambda N, E, F, n, m: E / N if N else None,
        True,
    ),
    risk_at_fpr: (
        lambda N, E, F, n, m: N / n,
        lambda N, E, F, n, m: E / N if N and F / m <= 0.2 else None,
        True,
    ),
    risk_at_precision: (
        lambda N, E, F, n, m: N / n,
        lambda N, E, F, n, m: (
            E / N
            if N
            and F / m <= 0.45
            and 0.7 * N / n >= 0.9 * (0.7 * N / n + 0.3 * F / m) - 1e-12
            else None
        ),
        True,
    ),
    roc: (lambda N, E, F, n, m: N / n, lambda N, E, F, n, m: F / m, True),
    precision_recall: (
        lambda N, E, F, n, m: N / n,
        lambda N, E, F, n, m: 0.7 * N / n / (0.7 * N / n + 0.3 * F / m) if N else None,
        False,
    ),
    ccr: (
        lambda N, E, F, n, m: F / m,
        lambda N, E, F, n, m: 1 - E / N if N >= math.ceil(0.3 * n - 1e-9) else None,
        False,
    ),
    dhamija: (lambda N, E, F, n, m: F / m, lambda N, E, F, n, m: (N - E) / n, False),
}
CURVES = list(READ)
AT_MOST = (ccr, dhamija)


@looped("seed", SEEDS)
@looped("n_angles", [2, N_ANGLES])
@pytest.mark.parametrize("curve", CURVES)
def test_best_of_every_rule(curve, n_angles, seed):
    """At every bound, also between the points: the best of a loop over all rules."""
    samples = make_samples(seed)
    is_id = samples[0] != -1
    n, m = is_id.sum(), (~is_id).sum()
    bound, value, less = READ[curve]
    thetas = np.linspace(0, math.pi / 2, n_angles)
    points = [(0, 0, 0), *every_rule(*samples, thetas)]
    reached = [(bound(*p, n, m), value(*p, n, m)) for p in points]
    result = curve(samples, solver=Solver("grid", n_angles=n_angles))
    for share in np.linspace(0, 1, 4 * len(is_id) + 1):
        met = [
            v
            for b, v in reached
            if v is not None
            and (b <= share + 1e-9 if curve in AT_MOST else b >= share - 1e-9)
        ]
        best = (min(met) if less else max(met)) if met else math.nan
        assert_allclose(result.at(share), best, rtol=1e-13, err_msg=f"at {share}")


@pytest.mark.parametrize("angles", ["quadrant", "full"])
@pytest.mark.parametrize("curve", CURVES)
def test_the_rules_reach_the_values(curve, angles):
    samples = make_samples(1)
    is_id = samples[0] != -1
    bound, value, less = READ[curve]
    result = curve(samples, solver=Solver("grid", angles=angles, n_angles=N_ANGLES))
    assert np.all(np.diff(result.bounds) > 0)
    # a tighter bound costs: lower bounds are tight where large, upper where small
    worse = 1 if less else -1
    tighter = -1 if curve in AT_MOST else 1
    assert np.all(worse * tighter * np.diff(result.values) > 0)
    for b, v in zip(result.bounds, result.values, strict=True):
        accepted = result.rule_at(b).accept(-samples[2], -samples[3])
        args = (*counts(*samples[:2], accepted), is_id.sum(), (~is_id).sum())
        assert_allclose(bound(*args), b, rtol=1e-13)
        assert_allclose(value(*args), v, rtol=1e-13)


@looped("seed", SEEDS)
@pytest.mark.parametrize("curve", CURVES)
def test_two_scores_are_never_worse_than_either(curve, seed):
    y_true, y_pred, first, second = make_samples(seed)
    shares = np.linspace(0, 1, 201)
    sign = 1 if READ[curve][2] else -1
    both = sign * curve((y_true, y_pred, first, second)).at(shares)
    better = 0
    for score in (first, second):
        alone = sign * curve((y_true, y_pred, score)).at(shares)
        assert not np.any(np.isnan(both) & ~np.isnan(alone))
        known = ~np.isnan(alone)
        assert np.all(both[known] <= alone[known] + 1e-15)
        better += np.sum(both[known] < alone[known] - 1e-9)
    assert better > 0


@pytest.mark.parametrize("curve", CURVES)
def test_units_order_and_labels_do_not_matter(curve):
    """The second score in units of a power of two, so that arithmetic is exact."""
    y_true, y_pred, first, second = make_samples(2)
    expected = curve((y_true, y_pred, first, second))
    order = np.random.default_rng(0).permutation(len(y_true))
    moved = curve(tuple(x[order] for x in (y_true, y_pred, first, 1024 * second)))
    named = curve((relabel(y_true), relabel(y_pred), first, second), ood_label="other")
    unseen = curve(
        (np.where(y_true == -1, 7, y_true), y_pred, first, second), classes=[0, 1, 2]
    )
    for result in (moved, named, unseen):
        assert_array_equal(result.bounds, expected.bounds)
        assert_array_equal(result.values, expected.values)
        assert_array_equal(result.thetas, expected.thetas)


@pytest.mark.parametrize("curve", CURVES)
def test_a_score_reversed(curve):
    """ "full" finds what "quadrant" finds for the negated score."""
    y_true, y_pred, *scores = make_samples(3)
    # untied: rounding differs between an angle and its mirror image
    first, second = scores + np.random.default_rng(0).uniform(size=(2, 50))
    good = curve((y_true, y_pred, first, second), solver=Solver("grid", n_angles=3))
    full = curve(
        (y_true, y_pred, -first, second),
        solver=Solver("grid", angles="full", n_angles=8),
    )
    shares = np.linspace(0, 1, 101)
    sign = 1 if READ[curve][2] else -1
    known = ~np.isnan(good.at(shares))
    assert np.all(sign * full.at(shares)[known] <= sign * good.at(shares)[known])
    assert np.any(np.cos(full.thetas) < 0)


# --------------------------------------------------------- one score, closed forms


@pytest.mark.parametrize("seed", SEEDS)
def test_single_score_risk_coverage(seed):
    y_true, y_pred, y_score, _ = make_samples(seed)
    curve = least_risk_curve(y_true, y_pred, y_score)
    points = RiskCoverageCurve.from_predictions(y_true, y_pred, y_score)
    for k, c in enumerate(points.coverage):
        assert curve.at(c) == points.risk[k:].min()
    n = int((y_true != -1).sum())
    shares = np.arange(1, n + 1) / n
    assert_allclose(curve.area, curve.at(shares).mean(), rtol=1e-12)
    untied = y_score + np.random.default_rng(seed).uniform(size=len(y_score))
    curve = least_risk_curve(y_true, y_pred, untied)
    assert curve.area <= aurc(y_true, y_pred, untied) + 1e-12


def test_risk_coverage_needs_no_ood_samples():
    samples = make_samples(0)
    curve = least_risk_curve(*samples)
    again = least_risk_curve(*(x[samples[0] != -1] for x in samples))
    assert_array_equal(again.values, curve.values)
    assert_array_equal(again.thetas, curve.thetas)


@pytest.mark.parametrize("seed", SEEDS)
def test_single_score_roc(seed):
    y_true, _, y_score, _ = make_samples(seed)
    is_id = y_true != -1
    above = [s > t for s in y_score[is_id] for t in y_score[~is_id]]
    area = roc_curve(y_true, y_score).area
    assert_allclose(1 - area, np.mean(above), rtol=1e-12)
    untied = y_score + np.random.default_rng(seed).uniform(size=len(y_score))
    area = roc_curve(y_true, untied).area
    assert_allclose(1 - area, auroc(y_true, untied), rtol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_single_score_precision_recall(seed):
    y_true, _, y_score, _ = make_samples(seed)
    prior = float(np.mean(y_true == -1))
    curve = precision_recall_curve(y_true, y_score, ood_prior=prior)
    assert curve.area >= aupr_in(y_true, y_score) - 1e-12
    perfect = precision_recall_curve(y_true, 1.0 * (y_true != -1), ood_prior=prior)
    assert (perfect.bounds, perfect.values, perfect.area) == ([1.0], [1.0], 1.0)
    constant = precision_recall_curve(y_true, np.ones(len(y_true)), ood_prior=0.1)
    assert_allclose(constant.values, [0.9], rtol=1e-14)
    nothing_ood = precision_recall_curve(y_true, y_score, ood_prior=0)
    assert_array_equal(nothing_ood.at([0.1, 1.0]), [1.0, 1.0])


@pytest.mark.parametrize("seed", SEEDS)
def test_single_score_ccr(seed):
    y_true, y_pred, y_score, _ = make_samples(seed)
    curve = ccr_curve(y_true, y_pred, y_score, kind="dhamija")
    for fpr in np.linspace(0, 1, 21):
        expected = ccr_at_fpr(y_true, y_pred, y_score, fpr=fpr, definition="dhamija")
        assert_allclose(curve.at(fpr), expected, rtol=1e-12)
    untied = y_score + np.random.default_rng(seed).uniform(size=len(y_score))
    curve = ccr_curve(y_true, y_pred, untied, kind="dhamija")
    expected = oscr(y_true, y_pred, untied, definition="dhamija")
    assert_allclose(curve.area, expected, rtol=1e-12)


def test_ccr_with_a_bound_on_the_tpr_may_start_late():
    y_true, y_pred = [0, 1, 1, 0, -1, -1], [0, 1, 0, 0, 0, 1]
    score = [0.9, 0.8, 0.3, 0.7, 0.75, 0.1]
    curve = ccr_curve(y_true, y_pred, score, tpr_min=1.0)
    assert_array_equal(curve.at([0.0, 0.49, 0.5, 1.0]), [np.nan, np.nan, 0.75, 0.75])
    assert curve.area == 0.375
    for kind, start in (("dhamija", 0.0), ("ccr", np.nan)):
        # the best score is that of an OOD row: nothing can be accepted within FPR 0
        curve = ccr_curve(y_true, y_pred, [3, 3, 3, 3, 4, 4], kind=kind)
        assert_array_equal(curve.at([0.0, 1.0]), [start, 0.75])


def test_ccr_prefers_more_samples_among_equals():
    """All of the first three rules have CCR 1 at FPR 0."""
    curve = ccr_curve([0, 0, 0, 0, -1], [0, 0, 0, 1, 0], [5, 4, 3, 2, 1])
    assert curve.rule_at(0.0).accept(-np.arange(5.0)).sum() == 2


# ----------------------------------------------------------------- the same by rules


@pytest.mark.parametrize("seed", SEEDS)
def test_the_solver_on_the_same_angles(seed):
    samples = make_samples(seed)
    arguments = scored(*samples), Solver("grid", n_angles=91)
    curve, rates = least_risk_curve(*samples), ccr_curve(*samples, tpr_min=0.6)
    for bound in (0.5, 0.7, 0.9):
        point = solve(BoundedAbstention(coverage=bound), *arguments)
        assert point.risk == curve.at(bound)
        point = solve(BoundedTPRFPR(0.6, bound), *arguments)
        assert_allclose(1 - point.risk, rates.at(bound), rtol=1e-13)


def test_table_1_of_the_paper(densities):
    """Model D on a sample: the best linear rules of r and g."""
    y_true, y_pred, r, g = densities
    samples = y_true, y_pred, -r, -g
    rates = ccr_curve(*samples, tpr_min=0.7)
    assert 1 - rates.at(0.2) == pytest.approx(0.1258560691240669, abs=0.006)
    # precision 0.9 at recall 0.7 and prior 0.25 is this bound on the FPR
    assert 1 - rates.at(0.7 / 3) == pytest.approx(0.12419133538842779, abs=0.006)
    alone = ccr_curve(*samples[:2], samples[3], tpr_min=0.7)
    assert 1 - alone.at(0.2) == pytest.approx(0.15848793701963335, abs=0.006)
    risk_only = ccr_curve(*samples[:3], tpr_min=0.7)
    assert math.isnan(risk_only.at(0.2))
    roc = roc_curve(samples[0], *samples[2:])
    # no rule ranks better than the likelihood ratio
    assert 1 - roc.area == pytest.approx(0.8782300341732343, abs=0.006)


# ------------------------------------------------------------------------------ input


@pytest.mark.parametrize("curve", CURVES)
def test_infinite_scores(curve):
    """A row with an infinite second score is accepted last, at every angle."""
    y_true, y_pred, first, second = make_samples(0)
    low = np.where(y_true == -1, -np.inf, second)
    result = curve((y_true, y_pred, first, low))
    finite = curve((y_true, y_pred, first, np.where(y_true == -1, -1e9, second)))
    assert_array_equal(result.at(0.5), finite.at(0.5))
    with pytest.raises(ValueError, match=r"ood_score contains \+inf"):
        curve((y_true, y_pred, first, np.where(y_true == -1, np.inf, second)))
    for value in (np.inf, -np.inf):  # one threshold, at which all are accepted
        result = curve((y_true, y_pred, np.full(50, value)))
        if curve in (risk_at_fpr, risk_at_precision):
            assert result.attainable == 0  # all OOD samples are accepted as well
            continue
        assert result.bounds[-1] == 1.0
        assert result.rule_at(1.0).accept(np.full(3, -value)).all()


@pytest.mark.parametrize("curve", CURVES)
def test_errors(curve):
    samples = make_samples(5)
    with pytest.raises(
        ValueError, match=r"'n_angles' parameter of Solver must.* Got 1"
    ):
        curve(samples, solver=Solver("grid", n_angles=1))
    with pytest.raises(ValueError, match="'angles' parameter of Solver must be a str"):
        curve(samples, solver=Solver(angles=1))
    with pytest.raises(ValueError, match="ood_score contains 50 NaN"):
        curve((*samples[:3], np.full(50, np.nan)))
    with pytest.raises(
        ValueError, match=r"y_score must .*\(50,\), .* got .*\(49,\)\.$"
    ):
        curve((*samples[:2], samples[2][1:]))
    with pytest.raises(ValueError, match=r"No ID samples.*ood_label=-1"):
        curve((np.full(50, -1), *samples[1:]))
    if curve is not risk_coverage:
        with pytest.raises(ValueError, match=r"No OOD samples.*ood_label=7"):
            curve(samples, ood_label=7)


def test_errors_of_parameters():
    samples = make_samples(5)
    with pytest.raises(ValueError, match=r"'tpr_min' parameter .* \[0.0, 1.0\]"):
        ccr(samples, tpr_min=1.5)
    with pytest.raises(ValueError, match=r"'kind' parameter .* Got 'vaze'"):
        ccr(samples, kind="vaze")
    with pytest.raises(ValueError, match=r"'ood_prior' parameter .* \[0.0, 1.0\)"):
        precision_recall(samples, ood_prior=1.0)
    with pytest.raises(ValueError, match=r"'ood_weight' parameter .* \[0.0, 1.0\]"):
        ccr(samples, kind="scod", ood_weight=1.1)
    with pytest.raises(ValueError, match="loss must be finite and not negative"):
        risk_coverage(samples, loss=np.full(50, -1.0))


def test_other_losses():
    y_true, y_pred, first, second = make_samples(4)
    matrix = np.array([[0, 1, 4], [2, 0, 1], [3, 5, 0]])
    loss = np.full(50, np.nan)  # nothing need be known of OOD rows
    is_id = y_true != -1
    loss[is_id] = matrix[y_true[is_id], y_pred[is_id]]
    by_array = least_risk_curve(y_true, None, first, second, loss=loss)
    by_matrix = least_risk_curve(
        y_true, y_pred, first, second, loss=matrix, classes=[0, 1, 2]
    )
    assert_array_equal(by_array.values, by_matrix.values)
    accepted = by_array.rule_at(0.8).accept(-first, -second)
    assert by_array.at(0.8) == loss[accepted & is_id].mean()
    assert_allclose(by_array.at(1.0), loss[is_id].mean(), rtol=1e-13)


def test_precision_without_ood_samples():
    """With none at deployment, none is needed, and the best rule accepts everything."""
    curve = precision_recall_curve([0, 1, 1], [1, 2, 3], ood_prior=0)
    assert curve.bounds.tolist() == curve.values.tolist() == [1.0]
    with pytest.raises(ValueError, match="No OOD samples in y_true"):
        precision_recall_curve([0, 1, 1], [1, 2, 3], ood_prior=0.1)


# A-dens-2.0-0.2-0.25: TPR .7 and FPR .2; precision .9 and recall .7
@pytest.mark.parametrize(
    ("model", "tpr_fpr", "precision_recall"),
    [
        ("A", 0.15848793701963335, 0.15848793701963335),
        ("B", 0.14179186887599884, 0.14179186887599884),
        ("C", None, None),
        ("D", 0.1258560691240669, 0.12419133538842779),
    ],
)
def test_table_1(densities, model, tpr_fpr, precision_recall):
    y_true, y_pred, r, g = densities
    scores = {"A": (-g,), "B": (-(r + 0.2 * g),), "C": (-r,), "D": (-r, -g)}[model]
    for expected, rule in (
        (tpr_fpr, BoundedTPRFPR(0.7, 0.2)),
        (precision_recall, BoundedPrecisionRecall(0.9, 0.7, 0.25)),
    ):
        point = selective_risk_at(y_true, y_pred, *scores, rule=rule)
        assert point.feasible == (expected is not None)
        if expected is None:
            assert math.isnan(point.risk)
        else:
            assert point.risk == pytest.approx(expected, abs=0.006)
    if model == "C":
        point = selective_risk_at(y_true, y_pred, *scores, rule=BoundedTPRFPR(0.7))
        assert point.attainable.max_tpr_at_fpr == pytest.approx(
            0.5888419058518811, abs=0.006
        )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "rule",
    [BoundedTPRFPR(0.6, 0.4), BoundedPrecisionRecall(0.8, 0.6, ood_prior=0.3)],
    ids=["tpr_fpr", "precision_recall"],
)
def test_is_the_solution_of_the_rule(rule, seed):
    y_true, y_pred, y_score, ood_score = make_samples(seed)
    double = solve(rule, scored(y_true, y_pred, y_score, ood_score))
    point = selective_risk_at(y_true, y_pred, y_score, ood_score, rule=rule)
    for name in ("theta", "lam", "risk", "tpr", "fpr", "feasible", "scales", "gap"):
        assert getattr(point, name) == getattr(double, name)
    accepted = point.accept(-y_score, -ood_score)
    assert accepted[y_true != -1].mean() == point.tpr
    single = selective_risk_at(y_true, y_pred, ood_score, rule=rule)
    assert not single.feasible or point.risk <= single.risk


@pytest.mark.parametrize("seed", range(5))
def test_precision_and_recall_of_a_single_score_in_a_loop(seed):
    y_true, y_pred, _, y_score = make_samples(seed)
    n = (y_true != -1).sum()
    m = y_true.size - n
    best = precision_recall_curve(y_true, y_score, ood_prior=0.3).at(0.9)
    assert best < 1
    risks = [
        E / N
        for N, E, F in every_rule(y_true, y_pred, y_score, y_score, [0])
        if N >= 0.9 * n and 0.7 * N / n / (0.7 * N / n + 0.3 * F / m) >= best - 0.05
    ]
    point = selective_risk_at(
        y_true,
        y_pred,
        y_score,
        rule=BoundedPrecisionRecall(best - 0.05, 0.9, ood_prior=0.3),
    )
    assert point.risk == min(risks)
    assert best - 0.05 <= point.precision <= best
    for asked, met in ((best - 1e-6, True), (best + 1e-6, False)):
        point = selective_risk_at(
            y_true,
            y_pred,
            y_score,
            rule=BoundedPrecisionRecall(asked, 0.9, ood_prior=0.3),
        )
        assert point.feasible == met


def test_prior_of_zero():
    """A prior of 0: any precision is met, and no OOD rows are needed."""
    samples = make_samples(0)
    only_id = tuple(x[samples[0] != -1] for x in samples)
    for arguments in (samples, only_id):
        point = selective_risk_at(
            *arguments, rule=BoundedPrecisionRecall(1.0, 0.5, ood_prior=0.0)
        )
        assert point.feasible and point.precision == 1.0
        loose = selective_risk_at(*samples, rule=BoundedTPRFPR(0.5, 1.0))
        assert point.risk == pytest.approx(loose.risk, abs=1e-3)  # gaps of the solver
    with pytest.raises(ValueError, match="No OOD samples"):
        selective_risk_at(*only_id, rule=BoundedPrecisionRecall())
    with pytest.raises(ValueError, match="No OOD samples"):
        selective_risk_at(*only_id)


def test_infinite_scores_within_bounds():
    y_true, y_pred = [0, 0, 0, -1, -1], [0, 0, 1, 0, 0]
    point = selective_risk_at(
        y_true, y_pred, [np.inf, 1, -np.inf, 0, -np.inf], rule=BoundedTPRFPR(0.6, 0.0)
    )
    assert (point.risk, point.tpr, point.fpr) == (0.0, 2 / 3, 0.0)
    point = selective_risk_at(
        y_true,
        y_pred,
        [1, 1, 1, 1, 1],
        [1, 1, 1, 0, -np.inf],
        rule=BoundedTPRFPR(1, 0.0),
    )
    assert (point.risk, point.tpr, point.fpr) == (1 / 3, 1.0, 0.0)


def test_reversed_score():
    y_true, y_pred = [0, 0, 0, 0, -1], [0, 0, 1, 1, 0]
    scores = [1.0, 2.0, 3.0, 4.0, 5.0], [0.0] * 5
    for rule in (BoundedTPRFPR(0.5, 0.0), BoundedPrecisionRecall(0.9, 0.5)):
        args = {"rule": rule, "solver": Solver(angles="full")}
        assert not selective_risk_at(y_true, y_pred, *scores, rule=rule).feasible
        with pytest.warns(SkoodWarning, match="reversed") as record:
            point = selective_risk_at(y_true, y_pred, *scores, **args)
        assert record[0].filename == __file__
        assert (point.risk, point.tpr) == (0.0, 0.5)


@pytest.mark.parametrize(
    "rule",
    [BoundedTPRFPR(0.6, 0.7), BoundedPrecisionRecall(0.7, 0.6, ood_prior=0.3)],
    ids=["tpr_fpr", "precision_recall"],
)
def test_losses_and_labels(rule):
    metric = partial(selective_risk_at, rule=rule)
    y_true, y_pred, y_score, _ = make_samples(3)
    is_id = y_true != -1
    matrix = np.array([[0, 1, 4], [2, 0, 1], [3, 5, 0]])
    loss = np.full(50, np.nan)  # nothing need be known of OOD rows
    loss[is_id] = matrix[y_true[is_id], y_pred[is_id]]

    def table(true, pred):
        assert np.all(true != -1)
        return matrix[true, pred]

    expected = metric(y_true, None, y_score, loss=loss)
    assert expected.feasible and expected.risk > 0
    args = y_true, y_pred, y_score
    assert metric(*args, loss=table) == expected
    assert metric(*args, loss=matrix, classes=[0, 1, 2]) == expected
    plain = metric(*args)
    assert plain.risk < expected.risk
    names = relabel(y_true), relabel(y_pred), y_score
    for kw in ({"ood_label": "other"}, {"classes": ["a", "b", "c"]}):
        assert metric(*names, **kw) == plain
    unseen = np.where(is_id, y_true, 9)
    assert metric(unseen, *args[1:], classes=[0, 1, 2]) == plain


@pytest.mark.parametrize("rule", [BoundedTPRFPR, BoundedPrecisionRecall])
def test_errors_within_bounds(rule):
    metric = partial(selective_risk_at, rule=rule())
    y_true, y_pred, y_score, _ = make_samples(4)
    check_input_errors(metric, y_true, y_pred, y_score)
    with pytest.raises(ValueError, match=r"No OOD samples.*ood_label=7"):
        metric(y_true, y_pred, y_score, ood_label=7)
    with pytest.raises(ValueError, match="ood_score contains 50 NaN"):
        metric(y_true, y_pred, y_score, np.full(50, np.nan))
    with pytest.raises(ValueError, match=r"ood_score must .*\(49,\)"):
        metric(y_true, y_pred, y_score, y_score[1:])
    with pytest.raises(ValueError, match=r"ood_score contains \+inf"):
        metric(y_true, y_pred, y_score, np.full(50, np.inf))
    with pytest.raises(ValueError, match="'angles' parameter of Solver must be a str"):
        metric(y_true, y_pred, y_score, solver=Solver(angles="none"))


@pytest.mark.parametrize(
    ("rule", "error", "says"),
    [
        (BoundedTPRFPR(1.5), ValueError, r"'tpr_min' .* BoundedTPRFPR .* \[0.0, 1.0\]"),
        (
            BoundedTPRFPR(0, -1),
            ValueError,
            r"'fpr_max' .* BoundedTPRFPR .* \[0.0, 1.0\]",
        ),
        (
            BoundedPrecisionRecall(0, 2),
            ValueError,
            "'recall_min' .* BoundedPrecisionRec",
        ),
        (
            BoundedPrecisionRecall(-1),
            ValueError,
            "'precision_min' .* BoundedPrecisionRec",
        ),
        (BoundedPrecisionRecall(0, 0, 1.0), ValueError, r"'ood_prior' .* \[0.0, 1.0\)"),
        (
            BoundedPrecisionRecall(0, 0, "half"),
            TypeError,
            "'ood_prior' .* float.*'half'",
        ),
        (BoundedTPRFPR, TypeError, "BoundedTPRFPR: write BoundedTPRFPR"),
    ],
)
def test_invalid_rules(rule, error, says):
    with pytest.raises(error, match=says):
        selective_risk_at([0, 1, -1], [0, 1, 0], [3.0, 2.0, 1.0], rule=rule)


def test_second_score_of_several_columns():
    with pytest.raises(ValueError, match=r"ood_score must .* got .* \(3, 2\). Of sev"):
        selective_risk_at([0, 1, -1], [0, 1, 0], [3.0, 2.0, 1.0], np.ones((3, 2)))


def make_curve(bounds, values, at_most):
    n = len(bounds)
    return TwoScoreCurve(
        bounds=np.array(bounds),
        values=np.array(values),
        at_most=at_most,
        thetas=np.arange(n) / 10,
        lams=np.arange(n) * 2.0,
        taus=np.ones(n),
        scales=(3.0, 4.0),
    )


LOWER = make_curve([0.2, 0.7, 1.0], [1.0, 3.0, 10.0], False)
UPPER = make_curve([0.25, 0.5], [0.4, 0.8], True)


def test_values_of_lower_bounds():
    """To ask for less is to get the next point that is enough."""
    actual = LOWER.at([-1.0, 0.0, 0.2, 0.2001, 0.7, 0.9, 1.0, 1.1])
    assert_array_equal(actual, [1, 1, 1, 3, 3, 10, 10, np.nan])
    assert isinstance(LOWER.at(0.5), float) and LOWER.at(0.5) == 3.0


def test_values_of_upper_bounds():
    actual = UPPER.at([[-1.0, 0.2, 0.25], [0.4, 0.5, 9.0]])
    assert_array_equal(actual, [[np.nan, np.nan, 0.4], [0.4, 0.8, 0.8]])


def test_bounds_are_guarded_against_rounding():
    assert_array_equal(LOWER.at([0.2 + 1e-12, 0.7 + 1e-12, 1 + 1e-12]), [1, 3, 10])
    assert_array_equal(UPPER.at([0.25 - 1e-12, 0.5 - 1e-12]), [0.4, 0.8])


def test_area_is_the_integral_of_the_step_function():
    assert LOWER.area == pytest.approx(0.2 * 1 + 0.5 * 3 + 0.3 * 10, rel=1e-14)
    assert UPPER.area == pytest.approx(0.25 * 0.4 + 0.5 * 0.8, rel=1e-14)
    middles = (np.arange(1000) + 0.5) / 1000
    assert np.mean(LOWER.at(middles)) == pytest.approx(LOWER.area, rel=1e-12)
    assert np.nansum(UPPER.at(middles)) / 1000 == pytest.approx(UPPER.area, rel=1e-12)


def test_rules():
    point = LOWER.rule_at(0.5)
    assert isinstance(point, OperatingPoint)
    assert (point.theta, point.lam, point.tau) == (0.1, 2.0, 1.0)
    assert point.scales == (3.0, 4.0)
    assert UPPER.rule_at(0.3).theta == 0.0
    with pytest.raises(ValueError, match=r"of at least 1.5: the largest .* is 1\."):
        LOWER.rule_at(1.5)
    with pytest.raises(ValueError, match=r"of at most 0.1: the least .* is 0.25\."):
        UPPER.rule_at(0.1)
    for ask in (LOWER.at, UPPER.rule_at):
        with pytest.raises(ValueError, match="bound contains NaN; pass numbers"):
            ask(math.nan)


def test_the_rule_that_accepts_nothing():
    """Also not the row that every threshold would accept."""
    scores = np.array([2.0, 1.0, np.inf, 0.0])
    curve = roc_curve([0, 0, -1, -1], scores)
    assert_array_equal(curve.bounds, [0, 1])
    assert_array_equal(curve.values, [0, 0.5])
    assert not curve.rule_at(0.0).accept(-scores).any()
    assert_array_equal(curve.rule_at(0.1).accept(-scores), [True, True, True, False])


def test_repr_is_short():
    assert "lams" not in repr(LOWER) and "bounds=array([0.2, 0.7, 1. ])" in repr(LOWER)


# ------------------------------------------------------- bounds on the OOD samples

VECTORS = json.loads(Path(__file__).with_name("vectors_decisions.json").read_text())
BOUNDS = {
    "fpr_max .2": {"fpr_max": 0.2},
    "fpr_max .5": {"fpr_max": 0.5},
    "precision_min .85": {"precision_min": 0.85, "ood_prior": 0.3},
    "none": {},
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounded_risk_coverage_of_the_specification(name):
    (vector,) = (v for v in VECTORS if v["id"] == "D-rc")
    y_true, y_pred, y_score, _ = map(np.array, vector["input"].values())
    expected = vector["expected"][name]
    curve = least_risk_curve(y_true, y_pred, y_score, **BOUNDS[name])
    assert curve.attainable == pytest.approx(expected["attainable"], abs=1e-12)
    n = (y_true != -1).sum()
    risks = np.array(expected["at"], dtype=float)  # null is NaN
    assert_allclose(curve.at(np.arange(1, n + 1) / n), risks, rtol=0, atol=1e-9)
    assert math.isnan(curve.area) == (name != "none")
    with pytest.raises(ValueError, match=r"the largest that one meets is 0\.541667"):
        least_risk_curve(y_true, y_pred, y_score, fpr_max=0.2).rule_at(0.55)


@pytest.mark.parametrize("seed", SEEDS)
def test_bounded_risk_is_the_risk_of_the_solver_on_the_same_angles(seed):
    samples = make_samples(seed)
    arguments = scored(*samples), Solver("grid", n_angles=91)
    fpr = risk_at_fpr(samples)
    precision = risk_at_precision(samples, fpr_max=1.0)
    for bound in (0.2, 0.4, 0.6):
        for curve, rule in (
            (fpr, BoundedTPRFPR(bound, 0.2)),
            (precision, BoundedPrecisionRecall(0.9, bound, 0.3)),
        ):
            if bound <= curve.attainable:
                assert solve(rule, *arguments).risk == curve.at(bound)
            else:
                with pytest.raises(InfeasibleError):
                    solve(rule, *arguments)


def test_bounds_that_no_rule_meets():
    """The best accepted sample is OOD, alone or in a tie."""
    for y_score in ([0.0, 1.0, 2.0], [1.0, 2.0, 2.0]):
        curve = least_risk_curve([0, 1, -1], [0, 0, 0], y_score, fpr_max=0.0)
        assert curve.attainable == 0
        assert math.isnan(curve.area)
        assert math.isnan(curve.at(0.5))
        assert_array_equal(curve.at([0.0, 1.0]), [math.nan] * 2)
        with pytest.raises(ValueError, match="the largest that one meets is 0"):
            curve.rule_at(0.5)


def test_bounds_that_hold_everywhere_change_nothing():
    samples = make_samples(2)
    expected = least_risk_curve(*samples)
    for bounds in ({"fpr_max": 1.0}, {"precision_min": 0.0, "ood_prior": 0.4}):
        curve = least_risk_curve(*samples, **bounds)
        assert curve.area == pytest.approx(expected.area, rel=1e-12)
        assert curve.attainable == 1
    assert math.isnan(least_risk_curve(*samples, fpr_max=0.1).area)


def test_weights_of_a_bounded_curve_are_repeated_samples():
    samples = make_samples(3)
    weight = np.random.default_rng(0).integers(0, 4, size=50)
    repeated = [np.repeat(values, weight) for values in samples]
    for curve in (risk_at_fpr, risk_at_precision):
        expected, actual = curve(repeated), curve(samples, sample_weight=weight)
        assert_allclose(actual.bounds, expected.bounds, rtol=1e-12)
        assert_allclose(actual.values, expected.values, rtol=1e-12)


def test_errors_of_bounds():
    samples = make_samples(0)
    with pytest.raises(ValueError, match=r"precision_min=0\.9 .* Pass ood_prior"):
        least_risk_curve(*samples, precision_min=0.9)
    with pytest.raises(ValueError, match=r"No OOD samples.*ood_label=-1"):
        least_risk_curve([0, 1], [0, 1], [0.5, 0.7], fpr_max=0.2)
    with pytest.raises(ValueError, match=r"bounds of kind='risk_coverage'.*'ccr'"):
        ccr_curve(*samples, fpr_max=0.2)
    with pytest.raises(ValueError, match="'fpr_max' parameter"):
        least_risk_curve(*samples, fpr_max=1.2)
    with pytest.raises(TypeError, match="tpr_max"):
        least_risk_curve(*samples, tpr_max=1.2)

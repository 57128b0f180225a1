"""Tests of the least selective risk at bounds, of one and two scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from functools import partial

import numpy as np
import pytest

from skood.datasets import make_reject_option_1d
from skood.exceptions import SkoodWarning
from skood.metrics import (
    selective_risk_at,
)
from skood.rejection import (
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    ScoredSamples,
    Solver,
    solve,
)
from tests.metrics._double_samples import (
    every_rule,
    make_samples,
    precision_recall_curve,
    relabel,
)
from tests.metrics._samples import check_input_errors

SEEDS = range(5)


@pytest.fixture(scope="module")
def table_1_sample():
    """Draw 60,000 samples and their scores from the densities of the paper."""
    data = make_reject_option_1d((45_000, 15_000), random_state=1)
    r, g = data.risk, data.likelihood_ratio
    scores = {"A": (-g,), "B": (-(r + 0.2 * g),), "C": (-r,), "D": (-r, -g)}
    return data.target, data.posteriors.argmax(axis=1) + 1, scores


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
def test_table_1(table_1_sample, model, tpr_fpr, precision_recall):
    y_true, y_pred, scores = table_1_sample
    for expected, rule in (
        (tpr_fpr, BoundedTPRFPR(0.7, 0.2)),
        (precision_recall, BoundedPrecisionRecall(0.9, 0.7, 0.25)),
    ):
        point = selective_risk_at(y_true, y_pred, *scores[model], rule=rule)
        assert point.feasible == (expected is not None)
        if expected is None:
            assert math.isnan(point.risk)
        else:
            assert point.risk == pytest.approx(expected, abs=0.006)
    if model == "C":
        point = selective_risk_at(
            y_true, y_pred, *scores["C"], rule=BoundedTPRFPR(tpr_min=0.7)
        )
        assert point.attainable.max_tpr_at_fpr == pytest.approx(
            0.5888419058518811, abs=0.006
        )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "rule",
    [BoundedTPRFPR(0.6, 0.4), BoundedPrecisionRecall(0.8, 0.6, ood_prior=0.3)],
    ids=["tpr_fpr", "precision_recall"],
)
def test_is_the_solution_of_the_rule(rule, seed):
    y_true, y_pred, y_score, ood_score = make_samples(seed)
    is_id = y_true != -1
    a, b = -y_score, -ood_score
    loss = (y_true != y_pred).astype(float)
    double = solve(
        rule,
        ScoredSamples.from_arrays(
            a[is_id], b[is_id], loss[is_id], a[~is_id], b[~is_id]
        ),
    )
    point = selective_risk_at(y_true, y_pred, y_score, ood_score, rule=rule)
    for name in ("theta", "lam", "risk", "tpr", "fpr", "feasible", "scales", "gap"):
        assert getattr(point, name) == getattr(double, name)
    assert point.accept(a, b)[is_id].mean() == point.tpr
    single = selective_risk_at(y_true, y_pred, ood_score, rule=rule)
    assert not single.feasible or point.risk <= single.risk


@pytest.mark.parametrize("seed", SEEDS)
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
        rule=BoundedPrecisionRecall(
            precision_min=best - 0.05, recall_min=0.9, ood_prior=0.3
        ),
    )
    assert point.risk == min(risks)
    assert best - 0.05 <= point.precision <= best
    for asked, met in ((best - 1e-6, True), (best + 1e-6, False)):
        point = selective_risk_at(
            y_true,
            y_pred,
            y_score,
            rule=BoundedPrecisionRecall(
                precision_min=asked, recall_min=0.9, ood_prior=0.3
            ),
        )
        assert point.feasible == met


def test_prior_of_zero():
    """A prior of 0: any precision is met, and no OOD rows are needed."""
    samples = make_samples(0)
    only_id = tuple(x[samples[0] != -1] for x in samples)
    for arguments in (samples, only_id):
        point = selective_risk_at(
            *arguments,
            rule=BoundedPrecisionRecall(
                precision_min=1.0, recall_min=0.5, ood_prior=0.0
            ),
        )
        assert point.feasible and point.precision == 1.0
        loose = selective_risk_at(
            *samples, rule=BoundedTPRFPR(tpr_min=0.5, fpr_max=1.0)
        )
        assert point.risk == pytest.approx(loose.risk, abs=1e-3)  # gaps of the solver
    with pytest.raises(ValueError, match="No OOD samples"):
        selective_risk_at(*only_id, rule=BoundedPrecisionRecall())
    with pytest.raises(ValueError, match="No OOD samples"):
        selective_risk_at(*only_id)


def test_infinite_scores():
    y_true, y_pred = [0, 0, 0, -1, -1], [0, 0, 1, 0, 0]
    point = selective_risk_at(
        y_true,
        y_pred,
        [np.inf, 1, -np.inf, 0, -np.inf],
        rule=BoundedTPRFPR(tpr_min=0.6, fpr_max=0.0),
    )
    assert (point.risk, point.tpr, point.fpr) == (0.0, 2 / 3, 0.0)
    point = selective_risk_at(
        y_true,
        y_pred,
        [1, 1, 1, 1, 1],
        [1, 1, 1, 0, -np.inf],
        rule=BoundedTPRFPR(tpr_min=1, fpr_max=0.0),
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
def test_errors(rule):
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
    ("rule", "bounds", "says"),
    [
        (
            BoundedTPRFPR,
            {"tpr_min": 1.5},
            r"'tpr_min' .* BoundedTPRFPR .* \[0.0, 1.0\]",
        ),
        (
            BoundedTPRFPR,
            {"fpr_max": -0.1},
            r"'fpr_max' .* BoundedTPRFPR .* \[0.0, 1.0\]",
        ),
        (
            BoundedPrecisionRecall,
            {"recall_min": 2},
            "'recall_min' parameter of BoundedPrecisionRecall",
        ),
        (
            BoundedPrecisionRecall,
            {"precision_min": -1},
            "'precision_min' parameter of BoundedPrecisionRecall",
        ),
        (BoundedPrecisionRecall, {"ood_prior": 1.0}, r"'ood_prior' .* \[0.0, 1.0\)"),
    ],
)
def test_bounds_out_of_range(rule, bounds, says):
    y_true, y_pred, y_score, _ = make_samples(4)
    with pytest.raises(ValueError, match=says):
        selective_risk_at(y_true, y_pred, y_score, rule=rule(**bounds))


def test_rule_that_is_none():
    with pytest.raises(TypeError, match="BoundedTPRFPR: write BoundedTPRFPR"):
        selective_risk_at([0, -1], [0, 0], [1.0, 0.0], rule=BoundedTPRFPR)


def test_bound_of_another_type():
    y_true, y_pred, y_score, _ = make_samples(4)
    with pytest.raises(
        TypeError, match=r"'ood_prior' parameter of .* must be a float.*'half'"
    ):
        selective_risk_at(
            y_true, y_pred, y_score, rule=BoundedPrecisionRecall(ood_prior="half")
        )


def test_second_score_of_several_columns():
    with pytest.raises(
        ValueError,
        match=r"ood_score must .* got .* \(3, 2\). Of sev",
    ):
        selective_risk_at([0, 1, -1], [0, 1, 0], [3.0, 2.0, 1.0], np.ones((3, 2)))

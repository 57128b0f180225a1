"""Tests of selective risk against coverage."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.integrate import trapezoid
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from skood.metrics import (
    RiskCoverageCurve,
    augrc,
    aurc,
    auroc,
    ccr_at_fpr,
    coverage_at_risk,
    e_aurc,
    fpr_at_tpr,
    oscr,
    risk_at_coverage,
)
from tests._loops import looped
from tests.metrics._samples import check_input_errors, tied

curve_of = RiskCoverageCurve.from_predictions

AREAS = [aurc, e_aurc, augrc]


def risk_coverage_curve(*samples, **params):
    """Return coverage, risk and thresholds of the curve."""
    curve = curve_of(*samples, **params)
    return curve.coverage, curve.risk, curve.thresholds


ALL = [risk_coverage_curve, *AREAS, risk_at_coverage, coverage_at_risk]


@pytest.mark.parametrize("seed", range(10))
def test_risk_coverage_curve_naive(seed):
    y_true, y_pred, y_score = tied(seed)
    is_id = y_true != -1
    coverage, risk, thresholds = risk_coverage_curve(y_true, y_pred, y_score)
    assert_array_equal(thresholds, np.unique(y_score[is_id])[::-1])
    for c, r, t in zip(coverage, risk, thresholds, strict=True):
        accepted = is_id & (y_score >= t)
        assert c == pytest.approx(accepted.sum() / is_id.sum(), abs=1e-14)
        assert r == pytest.approx(
            np.mean(y_true[accepted] != y_pred[accepted]), abs=1e-14
        )
    assert coverage[-1] == 1.0


@pytest.mark.parametrize("metric", ALL)
def test_ood_samples_are_left_out(metric):
    y_true, y_pred, y_score = tied(1)
    is_id = y_true != -1
    expected = metric(y_true[is_id], y_pred[is_id], y_score[is_id])
    assert_array_equal(metric(y_true, y_pred, y_score), expected)
    # rows of a class that is not known are OOD too
    left_out = np.where(is_id, y_true, 7)
    assert_array_equal(metric(left_out, y_pred, y_score, classes=[0, 1, 2]), expected)


@pytest.mark.parametrize("metric", ALL)
def test_order_of_samples_and_scale_of_scores_do_not_matter(metric):
    y_true, y_pred, y_score = tied(2)
    result = metric(y_true, y_pred, y_score)
    order = np.random.default_rng(0).permutation(60)
    shuffled = metric(y_true[order], y_pred[order], np.exp(y_score[order]))
    if metric is risk_coverage_curve:
        result, shuffled = result[:2], shuffled[:2]
    assert_array_equal(shuffled, result)


def _aurc_of(ranked):
    return np.mean(np.cumsum(ranked) / np.arange(1, ranked.size + 1))


def _augrc_of(ranked):
    summed = np.append(0.0, np.cumsum(ranked)) / ranked.size
    return trapezoid(summed, np.linspace(0, 1, ranked.size + 1))


@pytest.mark.parametrize("metric, naive", [(aurc, _aurc_of), (augrc, _augrc_of)])
def test_area_is_the_mean_over_all_ways_of_breaking_ties(metric, naive):
    # groups of 1, 4 and 3 tied rows: 4! * 3! orders, each equally likely
    loss = np.array([0.5, 0.0, 1.0, 1.0, 3.0, 0.0, 0.2, 2.0])
    groups = [[0], [1, 2, 3, 4], [5, 6, 7]]
    values = []
    for second, third in itertools.product(
        itertools.permutations(groups[1]), itertools.permutations(groups[2])
    ):
        values.append(naive(loss[[*groups[0], *second, *third]]))
    y_score = [2, 1, 1, 1, 1, 0, 0, 0]
    assert np.std(values) > 0.05
    assert metric(np.zeros(8), None, y_score, loss=loss) == pytest.approx(
        np.mean(values), abs=1e-12
    )


def test_aurc_closed_forms():
    y_true, y_pred = np.zeros(100), np.r_[np.zeros(80), np.ones(20)]
    # a constant score leaves the mean loss at every coverage
    assert aurc(y_true, y_pred, np.ones(100)) == pytest.approx(0.2)
    # the best score: no loss up to k = 80, then (k - 80) / k
    best = sum((k - 80) / k for k in range(81, 101)) / 100
    # equal losses inside a tie group: breaking the ties changes nothing
    assert aurc(y_true, y_pred, 1 - y_pred) == pytest.approx(best)
    assert aurc(y_true, y_pred, -np.arange(100)) == pytest.approx(best)
    infinite = np.where(y_pred == 0, np.inf, -np.inf)
    assert aurc(y_true, y_pred, infinite) == aurc(y_true, y_pred, 1 - y_pred)


def test_e_aurc_is_the_excess_over_the_best_of_all_orders():
    loss = np.array([0.5, 0.0, 1.0, 3.0, 0.2, 2.0])
    best = min(
        _aurc_of(loss[list(order)]) for order in itertools.permutations(range(6))
    )
    y_score = [3, 1, 2, 2, 0, 1]
    excess = e_aurc(np.zeros(6), None, y_score, loss=loss)
    assert excess == pytest.approx(
        aurc(np.zeros(6), None, y_score, loss=loss) - best, abs=1e-14
    )
    assert excess > 0.1
    assert e_aurc(np.zeros(6), None, -loss, loss=loss) == 0.0


def test_e_aurc_is_never_negative():
    # rounding may put the area of a perfect ranking below the least one
    rng = np.random.default_rng(0)
    for _ in range(200):
        loss = np.round(rng.uniform(size=20), 1)
        perfect = -loss - 1e-9 * np.arange(20)  # breaks the ties of the losses
        assert 0.0 <= e_aurc(np.zeros(20), None, perfect, loss=loss) < 1e-15


@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_e_aurc_tends_to_the_closed_form(n):
    # the least AURC is a right-hand Riemann sum of 1 - (1 - R) / x over [1 - R, 1],
    # whose excess over the integral is R / (2n) to first order
    risk = 0.2
    y_true, y_pred = np.zeros(n), np.arange(n) >= n * (1 - risk)
    least = risk - e_aurc(y_true, y_pred, np.ones(n))
    closed = risk + (1 - risk) * math.log(1 - risk)
    assert n * (least - closed) == pytest.approx(risk / 2, rel=1 / (2 * math.sqrt(n)))


@pytest.mark.parametrize("seed", range(5))
def test_augrc_by_points_and_by_mean_ranks(seed):
    y_true, _, y_score = tied(seed)
    loss = np.random.default_rng(seed).uniform(size=60)
    is_id = y_true != -1
    n = is_id.sum()
    area = augrc(y_true, None, y_score, loss=loss)
    coverage, risk, _ = risk_coverage_curve(y_true, None, y_score, loss=loss)
    points = np.append(0.0, coverage), np.append(0.0, risk * coverage)
    assert area == pytest.approx(trapezoid(points[1], points[0]), abs=1e-14)
    rank = rankdata(-y_score[is_id])
    assert area == pytest.approx(
        np.sum(loss[is_id] * (n - rank + 0.5)) / n**2, abs=1e-14
    )


@pytest.mark.parametrize("seed", range(5))
def test_augrc_identity_with_the_auroc_of_right_against_wrong(seed):
    y_true, y_pred, y_score = tied(seed, n=23)
    is_id = y_true != -1
    right = (y_true == y_pred)[is_id]
    acc = right.mean()
    area = roc_auc_score(right, y_score[is_id])
    assert augrc(y_true, y_pred, y_score) == pytest.approx(
        (1 - area) * acc * (1 - acc) + (1 - acc) ** 2 / 2, abs=1e-15
    )


def test_augrc_closed_forms():
    y_true, y_pred = np.zeros(10), np.r_[np.zeros(7), np.ones(3)]
    assert augrc(y_true, y_pred, np.ones(10)) == pytest.approx(0.3 / 2, abs=1e-15)
    assert augrc(y_true, y_pred, -y_pred) == pytest.approx(0.3**2 / 2, abs=1e-15)
    assert augrc(y_true, np.ones(10), np.arange(10)) == 0.5
    assert augrc(y_true, y_true, np.arange(10)) == 0.0
    # the right-hand sum of the Notes
    ranked = np.r_[np.zeros(7), np.ones(3)]
    assert np.sum(np.cumsum(ranked)) / 100 == pytest.approx(
        augrc(y_true, y_pred, -np.arange(10)) + 0.3 / 20, abs=1e-15
    )


def _points(y_true, y_pred, y_score):
    """Coverage and risk at every threshold, in plain Python."""
    samples = zip(y_true, y_pred, y_score, strict=True)
    samples = [(score, true != pred) for true, pred, score in samples if true != -1]
    for threshold in sorted({s for s, _ in samples}, reverse=True):
        accepted = [wrong for s, wrong in samples if s >= threshold]
        yield len(accepted) / len(samples), sum(accepted) / len(accepted)


@pytest.mark.parametrize("seed", range(5))
def test_points_of_the_curve_naive(seed):
    args = tied(seed)
    points = list(_points(*args))
    n = np.sum(args[0] != -1)
    for coverage in [1e-12, 0.123, *(np.arange(1, n + 1) / n)]:
        expected = next(r for c, r in points if c >= coverage - 1e-12)
        assert risk_at_coverage(*args, coverage=coverage) == pytest.approx(expected)
    for risk in [0.0, *(r for _, r in points), 1.0]:
        expected = max([c for c, r in points if r <= risk], default=0.0)
        assert coverage_at_risk(*args, risk=risk) == pytest.approx(expected)


def test_points_of_the_curve_at_ties_and_at_shares_that_round():
    y_true, y_pred = np.zeros(10), np.r_[np.zeros(9), 1]
    # the fraction 0.1 * 3 of 10 is above 3 in floating point: 3 rows must do, not 4
    assert 0.1 * 3 * 10 > 3
    order = -np.arange(10)
    wrong_fourth = np.where(np.arange(10) == 3, 1, 0)
    assert risk_at_coverage(y_true, wrong_fourth, order, coverage=0.1 * 3) == 0.0
    # a group of ties is accepted as a whole
    ties = np.r_[np.ones(2), np.zeros(8)]
    assert risk_at_coverage(y_true, y_pred, ties, coverage=0.2) == 0.0
    assert risk_at_coverage(y_true, y_pred, ties, coverage=0.21) == 0.1
    assert coverage_at_risk(y_true, y_pred, ties, risk=0.05) == 0.2
    # the mean of three losses of 0.1 is above 0.1 in floating point
    loss = np.full(3, 0.1)
    assert coverage_at_risk(np.zeros(3), None, [3, 2, 1], loss=loss, risk=0.1) == 1.0


def test_coverage_at_risk_looks_past_a_first_violation():
    y_true, y_pred = [0] * 10, [0, 1] + [0] * 8
    y_score = -np.arange(10)
    assert coverage_at_risk(y_true, y_pred, y_score, risk=0.2) == 1.0
    assert coverage_at_risk(y_true, y_pred, y_score, risk=0.0) == 0.1
    assert coverage_at_risk(y_true, y_pred, -y_score, risk=0.0) == 0.8
    # nothing can be accepted: the first row is wrong
    assert coverage_at_risk([0, 0], [1, 0], [2, 1], risk=0.4) == 0.0
    # and the smallest attainable coverage may be the whole
    assert risk_at_coverage([0, 0], [1, 0], [1, 1], coverage=0.1) == 0.5


@pytest.mark.parametrize("metric", [*AREAS, risk_at_coverage])
def test_losses_are_homogeneous(metric):
    y_true, y_pred, y_score = tied(3)
    loss = np.full(60, np.nan)  # nothing need be known of OOD rows
    is_id = y_true != -1
    loss[is_id] = 3.0 * (y_true != y_pred)[is_id]
    expected = 3 * metric(y_true, y_pred, y_score)
    assert metric(y_true, None, y_score, loss=loss) == pytest.approx(expected)
    assert metric(
        y_true, y_pred, y_score, loss=lambda t, p: 3.0 * (t != p)
    ) == pytest.approx(expected)
    matrix = 3.0 * (1 - np.eye(3))
    assert metric(
        y_true, y_pred, y_score, loss=matrix, classes=[0, 1, 2]
    ) == pytest.approx(expected)


@pytest.mark.parametrize("metric", [*ALL, oscr, ccr_at_fpr])
def test_errors(metric):
    y_true, y_pred, y_score = tied(5)
    check_input_errors(metric, y_true, y_pred, y_score)
    if metric not in ALL:
        return
    with pytest.raises(ValueError, match="loss must be finite and not negative"):
        metric(y_true, y_pred, y_score, loss=np.full(60, -1.0))
    with pytest.raises(ValueError, match=r"No ID samples.*all of its 60 labels"):
        metric(y_true, y_pred, y_score, classes=[8, 9])


@pytest.mark.parametrize("coverage", [0.0, 1.5, math.nan, "half", True])
def test_errors_of_coverage(coverage):
    message = f"'coverage' parameter of .*risk_at must.* Got {coverage!r} instead"
    with pytest.raises(ValueError, match=message):
        risk_at_coverage(*tied(5), coverage=coverage)


@pytest.mark.parametrize("risk", [-0.1, math.nan, None, True])
def test_errors_of_risk(risk):
    message = f"'risk' parameter of .*coverage_at must.* Got {risk!r} instead"
    with pytest.raises(ValueError, match=message):
        coverage_at_risk(*tied(5), risk=risk)


@pytest.mark.parametrize("weighted", [False, True])
def test_functions_are_attributes_of_the_curve(weighted):
    y_true, y_pred, y_score = tied(4)
    weight = np.random.default_rng(4).uniform(size=60) if weighted else None
    samples = y_true, y_pred, y_score
    curve = curve_of(*samples, sample_weight=weight)
    for metric in AREAS:
        expected = metric(*samples, sample_weight=weight)
        assert getattr(curve, metric.__name__) == expected
    k = curve.coverage.size // 2
    assert curve.risk_at(curve.coverage[k]) == curve.risk[k]
    largest = curve.coverage[curve.risk <= curve.risk[k]].max()
    assert curve.coverage_at(curve.risk[k]) == largest


def _naive_oscr(y_true, y_pred, y_score, definition):
    is_id = y_true != -1
    fpr, ccr = [], []
    for t in np.unique(y_score)[::-1]:
        accepted = is_id & (y_score >= t)
        right = np.sum(y_true[accepted] == y_pred[accepted])
        if definition == "dhamija":
            ccr.append(right / is_id.sum())
        elif not accepted.any():
            continue
        else:
            ccr.append(right / accepted.sum())
        fpr.append(np.mean(y_score[~is_id] >= t))
    first = 0.0 if definition == "dhamija" else ccr[0]
    return trapezoid([first, *ccr], [0.0, *fpr])


@pytest.mark.parametrize("definition", ["selective_risk", "dhamija"])
@looped("seed", range(10))
def test_oscr_naive(seed, definition):
    y_true, y_pred, y_score = tied(seed)
    for score in (y_score, -y_score):
        assert oscr(y_true, y_pred, score, definition=definition) == pytest.approx(
            _naive_oscr(y_true, y_pred, score, definition), abs=1e-12
        )


def test_oscr_of_a_classifier_that_is_always_right():
    y_true, _, y_score = tied(2)
    y_pred = np.maximum(y_true, 0)
    assert oscr(y_true, y_pred, y_score) == pytest.approx(1.0)
    assert oscr(y_true, y_pred, y_score, definition="dhamija") == pytest.approx(
        auroc(y_true, y_score)
    )


def test_oscr_before_any_id_row_is_accepted():
    # the OOD row comes first: its CCR is that of the first point with an ID row
    assert oscr([-1, 0, 0], [0, 0, 1], [3.0, 2.0, 1.0]) == 1.0
    assert oscr([-1, 0, 0], [0, 1, 0], [3.0, 2.0, 1.0]) == 0.0
    assert oscr([-1, 0], [0, 0], [3.0, 2.0], definition="dhamija") == 0.0


def _naive_ccr_at(y_true, y_pred, y_score, fpr, definition):
    is_id = y_true != -1
    ccr = 0.0
    for t in np.unique(y_score)[::-1]:  # the last threshold within the bound counts
        accepted = is_id & (y_score >= t)
        if accepted.any() and np.mean(y_score[~is_id] >= t) <= fpr + 1e-12:
            total = is_id.sum() if definition == "dhamija" else accepted.sum()
            ccr = np.sum(y_true[accepted] == y_pred[accepted]) / total
    return ccr


@pytest.mark.parametrize("definition", ["selective_risk", "dhamija"])
@pytest.mark.parametrize("seed", range(5))
def test_ccr_at_fpr_naive(seed, definition):
    y_true, y_pred, y_score = tied(seed)
    n_ood = np.sum(y_true == -1)
    for score in (y_score, -y_score):
        for fpr in [*(np.arange(n_ood + 1) / n_ood), 0.123]:
            assert ccr_at_fpr(
                y_true, y_pred, score, fpr=fpr, definition=definition
            ) == pytest.approx(_naive_ccr_at(y_true, y_pred, score, fpr, definition))


def test_ccr_at_fpr_closed_forms():
    y_true, y_pred = [0, 0, 0, 0, -1, -1], [0, 1, 0, 0, 0, 0]
    y_score = [6, 5, 3, 1, 4, 2]
    # the most permissive threshold: not the first row alone, which has no error
    assert ccr_at_fpr(y_true, y_pred, y_score, fpr=0.0) == 0.5
    assert ccr_at_fpr(y_true, y_pred, y_score, fpr=0.0, definition="dhamija") == 0.25
    assert ccr_at_fpr(y_true, y_pred, y_score, fpr=0.5) == 2 / 3
    assert ccr_at_fpr(y_true, y_pred, y_score, fpr=1.0) == 0.75
    # 1/3 of three OOD rows is one row
    y_true, y_score = [0, 0, -1, -1, -1], [4, 2, 3, 1, 0]
    assert ccr_at_fpr(y_true, [0] * 5, y_score, fpr=1 / 3, definition="dhamija") == 1.0
    # 0.29 of 100 OOD rows is below 29 in floating point, and still 29 rows
    assert 0.29 * 100 < 29
    y_true, y_score = np.r_[0, np.full(100, -1)], np.r_[71.5, np.arange(1, 101)]
    assert ccr_at_fpr(y_true, np.zeros(101), y_score, fpr=0.29) == 1.0
    # always right: the CCR of "dhamija" is the TPR
    y_true, _, y_score = tied(2)
    y_pred = np.maximum(y_true, 0)
    assert ccr_at_fpr(y_true, y_pred, y_score) == 1.0
    least = fpr_at_tpr(y_true, y_score, tpr=0.7)
    assert ccr_at_fpr(y_true, y_pred, y_score, fpr=least, definition="dhamija") >= 0.7
    assert (
        ccr_at_fpr(y_true, y_pred, y_score, fpr=least - 1e-6, definition="dhamija")
        < 0.7
    )


@pytest.mark.parametrize("definition", ["selective_risk", "dhamija"])
def test_ccr_at_fpr_if_no_id_row_can_be_accepted(definition):
    # the OOD row has the highest score, alone or in a tie
    for y_score in ([3, 2, 1], [3, 3, 1], [3, 3, 3]):
        assert (
            ccr_at_fpr([-1, 0, 0], [0] * 3, y_score, fpr=0.9, definition=definition)
            == 0.0
        )
    # within the bound there are OOD rows only
    y_true, y_score = [-1, 0, -1], [3, 2, 2]
    assert ccr_at_fpr(y_true, [0] * 3, y_score, fpr=0.5, definition=definition) == 0.0


TABLE_1 = {  # corrected Table 1 of the paper: OOD ~ N(2, variance 0.2)
    "A": (0.819841532616011, 0.7187953848299856, 0.8782300341732343),
    "B": (0.8267210506981113, 0.7112133491795829, 0.8649078632693777),
    "C": (0.8619464059528054, 0.6446444991911879, 0.7575949183895513),
}


@pytest.mark.parametrize("model", TABLE_1)
def test_table_1_areas(densities, model):
    y_true, y_pred, r, g = densities
    selective, dhamija, area = TABLE_1[model]
    y_score = {"A": -g, "B": -(r + 0.2 * g), "C": -r}[model]
    assert oscr(y_true, y_pred, y_score) == pytest.approx(selective, abs=0.006)
    assert oscr(y_true, y_pred, y_score, definition="dhamija") == pytest.approx(
        dhamija, abs=0.006
    )
    assert auroc(y_true, y_score) == pytest.approx(area, abs=0.006)


def test_losses():
    y_true, y_pred, y_score = tied(3)
    is_id = y_true != -1
    matrix = np.array([[0, 1, 4], [2, 0, 1], [3, 5, 0]])
    loss = np.full(60, np.nan)  # nothing need be known of OOD rows
    loss[is_id] = matrix[y_true[is_id], y_pred[is_id]]
    args = y_true, y_pred, y_score

    def table(true, pred):
        assert np.all(true != -1)
        return matrix[true, pred]

    accepted = is_id & (y_score >= 5)
    curve = curve_of(*args, loss=loss)
    assert curve.risk[curve.thresholds == 5] == pytest.approx(np.mean(loss[accepted]))
    by_table = curve_of(*args, loss=table)
    assert_array_equal(by_table.risk, curve.risk)
    assert aurc(*args, loss=table) == aurc(y_true, None, y_score, loss=loss)


def test_strings_and_left_out_classes():
    y_true, y_pred, y_score = tied(4)
    names = np.array(["a", "b", "c", "other"])
    s_true, s_pred = names[y_true], names[y_pred]
    other = {"ood_label": "other"}
    for true in (s_true, s_true.astype(object)):
        assert aurc(true, s_pred, y_score, **other) == aurc(y_true, y_pred, y_score)
        assert oscr(true, s_pred, y_score, **other) == oscr(y_true, y_pred, y_score)
    # the default ood_label is no string: every row is ID
    assert aurc(["a", "b"], ["a", "a"], [2, 1]) == 0.25
    with pytest.raises(ValueError, match=r"No OOD samples.*ood_label=-1"):
        oscr(["a", "b"], ["a", "a"], [2, 1])


def test_errors_of_parameters():
    y_true, y_pred, y_score = tied(5)
    with pytest.raises(ValueError, match="definition must be 'selective_risk' or"):
        oscr(y_true, y_pred, y_score, definition="vaze")
    with pytest.raises(ValueError, match="definition must be 'selective_risk' or"):
        ccr_at_fpr(y_true, y_pred, y_score, definition="vaze")
    for fpr in (1.5, True):
        message = f"'fpr' parameter of ccr_at_fpr must be a.* Got {fpr} instead"
        with pytest.raises(ValueError, match=message):
            ccr_at_fpr(y_true, y_pred, y_score, fpr=fpr)
    with pytest.raises(ValueError, match=r"No OOD samples.*ood_label=7"):
        oscr(y_true, y_pred, y_score, ood_label=7)
    for loss in (np.full(60, -1.0), np.full(60, np.nan), lambda t, p: t * np.inf + 1):
        with (
            np.errstate(invalid="ignore"),
            pytest.raises(ValueError, match="loss must be finite and not negative"),
        ):
            aurc(y_true, y_pred, y_score, loss=loss)

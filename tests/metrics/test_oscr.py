"""Tests of the metrics of selective classification."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import norm

from skood.metrics import (
    RiskCoverageCurve,
    aurc,
    auroc,
    ccr_at_fpr,
    fpr_at_tpr,
    oscr,
)
from tests._loops import looped
from tests.metrics._samples import check_input_errors, tied

WITH_PRED = [oscr, ccr_at_fpr]


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


@pytest.fixture(scope="module")
def table_1_sample():
    """Draw 200,000 rows and their scores from the densities of the paper."""
    rng = np.random.default_rng(1)
    n_id, n_ood = 150_000, 50_000
    priors, means = np.array([0.3, 0.3, 0.4]), np.array([-1.0, 1.0, 3.0])
    label = rng.choice(3, size=n_id, p=priors)
    x = np.r_[
        rng.normal(means[label], 1.0), rng.normal(2.0, math.sqrt(0.2), size=n_ood)
    ]
    joint = priors * norm.pdf(x[:, None], means, 1.0)
    p_id = joint.sum(axis=1)
    r = 1 - joint.max(axis=1) / p_id
    g = norm.pdf(x, 2.0, math.sqrt(0.2)) / p_id
    y_true = np.r_[label, np.full(n_ood, -1)]
    return y_true, joint.argmax(axis=1), {"A": -g, "B": -(r + 0.2 * g), "C": -r}, r, g


@pytest.mark.parametrize("model", TABLE_1)
def test_table_1_areas(table_1_sample, model):
    y_true, y_pred, scores, _, _ = table_1_sample
    selective, dhamija, area = TABLE_1[model]
    y_score = scores[model]
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
    curve = RiskCoverageCurve.from_predictions(*args, loss=loss)
    assert curve.risk[curve.thresholds == 5] == pytest.approx(np.mean(loss[accepted]))
    by_table = RiskCoverageCurve.from_predictions(*args, loss=table)
    np.testing.assert_array_equal(by_table.risk, curve.risk)
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


@pytest.mark.parametrize("metric", WITH_PRED)
def test_errors(metric):
    y_true, y_pred, y_score = tied(5)
    check_input_errors(metric, y_true, y_pred, y_score)


def test_errors_of_parameters():
    y_true, y_pred, y_score = tied(5)
    with pytest.raises(ValueError, match="definition must be 'selective_risk' or"):
        oscr(y_true, y_pred, y_score, definition="vaze")
    with pytest.raises(ValueError, match="definition must be 'selective_risk' or"):
        ccr_at_fpr(y_true, y_pred, y_score, definition="vaze")
    with pytest.raises(ValueError, match=r"'fpr' parameter of ccr_at_fpr must be a"):
        ccr_at_fpr(y_true, y_pred, y_score, fpr=1.5)
    with pytest.raises(ValueError, match=r"No OOD samples.*ood_label=7"):
        oscr(y_true, y_pred, y_score, ood_label=7)
    for loss in (np.full(60, -1.0), np.full(60, np.nan), lambda t, p: t * np.inf + 1):
        with (
            np.errstate(invalid="ignore"),
            pytest.raises(ValueError, match="loss must be finite and not negative"),
        ):
            aurc(y_true, y_pred, y_score, loss=loss)


def test_bound_is_not_true():
    with pytest.raises(ValueError, match=r"'fpr' parameter .* Got True instead"):
        ccr_at_fpr([0, -1], [0, 0], [0.2, 0.1], fpr=True)

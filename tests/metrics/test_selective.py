"""Tests of the metrics of selective classification."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import norm

from skood.exceptions import SkoodWarning
from skood.metrics import (
    aurc,
    auroc,
    oscr,
    risk_coverage_curve,
    selective_risk_at,
)
from skood.rejection import BoundedTPRFPR, accept, solve

WITH_PRED = [risk_coverage_curve, aurc, oscr, selective_risk_at]


def _tied(seed, n=60):
    """Labels of three ID classes and OOD (-1), predictions, tied scores."""
    rng = np.random.default_rng(seed)
    y_true = rng.integers(-1, 3, size=n)
    y_true[:2] = -1, 0
    y_pred = np.where(rng.uniform(size=n) < 0.6, y_true, rng.integers(0, 3, size=n))
    y_pred[y_pred == -1] = 0
    score = rng.integers(0, 6, size=n) + (y_true >= 0) + (y_true == y_pred)
    return y_true, y_pred, score.astype(float)


@pytest.mark.parametrize("seed", range(10))
def test_risk_coverage_curve_naive(seed):
    y_true, y_pred, y_score = _tied(seed)
    is_id = y_true != -1
    coverage, risk, thresholds = risk_coverage_curve(y_true, y_pred, y_score)
    np.testing.assert_array_equal(thresholds, np.unique(y_score[is_id])[::-1])
    for c, r, t in zip(coverage, risk, thresholds, strict=True):
        kept = is_id & (y_score >= t)
        assert c == pytest.approx(kept.sum() / is_id.sum(), abs=1e-14)
        assert r == pytest.approx(np.mean(y_true[kept] != y_pred[kept]), abs=1e-14)
    assert coverage[-1] == 1.0


def test_ood_rows_are_left_out():
    y_true, y_pred, y_score = _tied(1)
    is_id = y_true != -1
    part = y_true[is_id], y_pred[is_id], y_score[is_id]
    for mixed, clean in zip(
        risk_coverage_curve(y_true, y_pred, y_score),
        risk_coverage_curve(*part),
        strict=True,
    ):
        np.testing.assert_array_equal(mixed, clean)
    assert aurc(y_true, y_pred, y_score) == aurc(*part)


def test_aurc_of_distinct_scores():
    rng = np.random.default_rng(0)
    loss = rng.uniform(size=30)
    y_score = rng.permutation(30)
    ranked = loss[np.argsort(-y_score)]
    naive = np.mean([ranked[:k].mean() for k in range(1, 31)])
    assert aurc(np.zeros(30), None, y_score, loss=loss) == pytest.approx(naive)
    _, risk, _ = risk_coverage_curve(np.zeros(30), None, y_score, loss=loss)
    assert np.mean(risk) == pytest.approx(naive)


def test_aurc_is_the_mean_over_all_ways_of_breaking_ties():
    # groups of 1, 4 and 3 tied rows: 4! * 3! orders, each equally likely
    loss = np.array([0.5, 0.0, 1.0, 1.0, 3.0, 0.0, 0.2, 2.0])
    groups = [[0], [1, 2, 3, 4], [5, 6, 7]]
    values = []
    for second, third in itertools.product(
        itertools.permutations(groups[1]), itertools.permutations(groups[2])
    ):
        ranked = loss[[*groups[0], *second, *third]]
        values.append(np.mean(np.cumsum(ranked) / np.arange(1, 9)))
    y_score = [2, 1, 1, 1, 1, 0, 0, 0]
    assert np.std(values) > 0.05
    assert aurc(np.zeros(8), None, y_score, loss=loss) == pytest.approx(
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


def _naive_oscr(y_true, y_pred, y_score, definition):
    is_id = y_true != -1
    fpr, ccr = [], []
    for t in np.unique(y_score)[::-1]:
        kept = is_id & (y_score >= t)
        right = np.sum(y_true[kept] == y_pred[kept])
        if definition == "dhamija":
            ccr.append(right / is_id.sum())
        elif not kept.any():
            continue
        else:
            ccr.append(right / kept.sum())
        fpr.append(np.mean(y_score[~is_id] >= t))
    first = 0.0 if definition == "dhamija" else ccr[0]
    return trapezoid([first, *ccr], [0.0, *fpr])


@pytest.mark.parametrize("definition", ["selective_risk", "dhamija"])
@pytest.mark.parametrize("seed", range(10))
def test_oscr_naive(seed, definition):
    y_true, y_pred, y_score = _tied(seed)
    for score in (y_score, -y_score):
        assert oscr(y_true, y_pred, score, definition=definition) == pytest.approx(
            _naive_oscr(y_true, y_pred, score, definition), abs=1e-12
        )


def test_oscr_of_a_classifier_that_is_always_right():
    y_true, _, y_score = _tied(2)
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


def test_table_1_selective_risks(table_1_sample):
    y_true, y_pred, scores, _, _ = table_1_sample
    bounds = {"tpr_min": 0.7, "fpr_max": 0.2}
    for model, risk in (("A", 0.158487937), ("B", 0.141791869)):
        point = selective_risk_at(y_true, y_pred, scores[model], **bounds)
        assert point.feasible
        assert point.risk == pytest.approx(risk, abs=0.006)
    point = selective_risk_at(y_true, y_pred, scores["C"], **bounds)
    assert not point.feasible and math.isnan(point.risk)
    assert point.max_tpr_at_fpr == pytest.approx(0.588841906, abs=0.006)


@pytest.mark.parametrize("seed", range(5))
def test_selective_risk_at_is_the_solution_of_the_rule(seed):
    y_true, y_pred, y_score = _tied(seed)
    ood_score = np.random.default_rng(seed).normal(size=60) + 2 * (y_true != -1)
    is_id = y_true != -1
    a, b = -y_score, -ood_score
    rule = BoundedTPRFPR(tpr_min=0.6, fpr_max=0.4)
    loss = (y_true != y_pred).astype(float)
    double = solve(rule, a[is_id], b[is_id], loss[is_id], a[~is_id], b[~is_id])
    point = selective_risk_at(
        y_true, y_pred, y_score, ood_score, tpr_min=0.6, fpr_max=0.4
    )
    for name in ("theta", "lam", "risk", "tpr", "fpr", "feasible", "scales"):
        assert getattr(point, name) == getattr(double, name)
    assert accept(point, a, b)[is_id].mean() == point.tpr
    single = selective_risk_at(y_true, y_pred, ood_score, tpr_min=0.6, fpr_max=0.4)
    assert not single.feasible or point.risk <= single.risk


def test_selective_risk_at_infinite_scores():
    y_true, y_pred = [0, 0, 0, -1, -1], [0, 0, 1, 0, 0]
    point = selective_risk_at(
        y_true, y_pred, [np.inf, 1, -np.inf, 0, -np.inf], tpr_min=0.6, fpr_max=0.0
    )
    assert (point.risk, point.tpr, point.fpr) == (0.0, 2 / 3, 0.0)
    point = selective_risk_at(
        y_true, y_pred, [1, 1, 1, 1, 1], [1, 1, 1, 0, -np.inf], tpr_min=1, fpr_max=0.0
    )
    assert (point.risk, point.tpr, point.fpr) == (1 / 3, 1.0, 0.0)
    with pytest.raises(ValueError, match=r"ood_score contains \+inf"):
        selective_risk_at(y_true, y_pred, [1.0] * 5, [1, 1, 1, 0, np.inf])


def test_selective_risk_at_reversed_score():
    y_true, y_pred = [0, 0, 0, 0, -1], [0, 0, 1, 1, 0]
    scores = [1.0, 2.0, 3.0, 4.0, 5.0], [0.0] * 5
    bounds = {"tpr_min": 0.5, "fpr_max": 0.0}
    assert not selective_risk_at(y_true, y_pred, *scores, **bounds).feasible
    with pytest.warns(SkoodWarning, match="reversed") as record:
        point = selective_risk_at(y_true, y_pred, *scores, angles="full", **bounds)
    assert record[0].filename == __file__
    assert (point.risk, point.tpr) == (0.0, 0.5)


def test_losses():
    y_true, y_pred, y_score = _tied(3)
    is_id = y_true != -1
    matrix = np.array([[0, 1, 4], [2, 0, 1], [3, 5, 0]])
    loss = np.full(60, np.nan)  # nothing need be known of OOD rows
    loss[is_id] = matrix[y_true[is_id], y_pred[is_id]]
    args = y_true, y_pred, y_score

    def table(true, pred):
        assert np.all(true != -1)
        return matrix[true, pred]

    kept = is_id & (y_score >= 5)
    _, risk, thresholds = risk_coverage_curve(*args, loss=loss)
    assert risk[thresholds == 5] == pytest.approx(np.mean(loss[kept]))
    np.testing.assert_array_equal(risk_coverage_curve(*args, loss=table)[1], risk)
    assert aurc(*args, loss=table) == aurc(y_true, None, y_score, loss=loss)
    bounds = {"tpr_min": 0.6, "fpr_max": 0.7}
    expected = selective_risk_at(*args, loss=loss, **bounds)
    assert expected.feasible
    assert selective_risk_at(*args, loss=table, **bounds) == expected
    assert (
        selective_risk_at(*args, loss=matrix, classes=[0, 1, 2], **bounds) == expected
    )


def test_strings_and_left_out_classes():
    y_true, y_pred, y_score = _tied(4)
    names = np.array(["a", "b", "c", "other"])
    s_true, s_pred = names[y_true], names[y_pred]
    bounds = {"tpr_min": 0.6, "fpr_max": 0.7}
    other = {"ood_label": "other"}
    for true in (s_true, s_true.astype(object)):
        assert aurc(true, s_pred, y_score, **other) == aurc(y_true, y_pred, y_score)
        assert oscr(true, s_pred, y_score, **other) == oscr(y_true, y_pred, y_score)
        for kw in (other, {"classes": ["a", "b", "c"]}):
            assert selective_risk_at(
                true, s_pred, y_score, **kw, **bounds
            ) == selective_risk_at(y_true, y_pred, y_score, **bounds)
    # the default ood_label is no string: every row is ID
    assert aurc(["a", "b"], ["a", "a"], [2, 1]) == 0.25
    with pytest.raises(ValueError, match=r"No OOD rows.*ood_label=-1"):
        oscr(["a", "b"], ["a", "a"], [2, 1])


@pytest.mark.parametrize("metric", WITH_PRED)
def test_errors(metric):
    y_true, y_pred, y_score = _tied(5)
    with pytest.raises(ValueError, match=r"pass labels.*np.where\(is_ood, -1, 1\)"):
        metric(y_true == -1, y_pred, y_score)
    with pytest.raises(ValueError, match="y_score contains 60 NaN"):
        metric(y_true, y_pred, np.full(60, np.nan))
    with pytest.raises(ValueError, match="y_score has 59 entries, but y_true has 60"):
        metric(y_true, y_pred, y_score[1:])
    with pytest.raises(ValueError, match="y_pred has 59 entries, but y_true has 60"):
        metric(y_true, y_pred[1:], y_score)
    with pytest.raises(ValueError, match="y_pred is required"):
        metric(y_true, None, y_score)
    with pytest.raises(ValueError, match=r"No ID rows.*ood_label=-1"):
        metric(np.full(60, -1), y_pred, y_score)


def test_errors_of_parameters():
    y_true, y_pred, y_score = _tied(5)
    with pytest.raises(ValueError, match="definition must be 'selective_risk' or"):
        oscr(y_true, y_pred, y_score, definition="vaze")
    with pytest.raises(ValueError, match=r"No OOD rows.*ood_label=7"):
        selective_risk_at(y_true, y_pred, y_score, ood_label=7)
    with pytest.raises(ValueError, match="ood_score contains 60 NaN"):
        selective_risk_at(y_true, y_pred, y_score, np.full(60, np.nan))
    with pytest.raises(ValueError, match="ood_score has 59 entries"):
        selective_risk_at(y_true, y_pred, y_score, y_score[1:])
    with pytest.raises(ValueError, match="tpr_min of BoundedTPRFPR must be in"):
        selective_risk_at(y_true, y_pred, y_score, tpr_min=1.5)
    with pytest.raises(ValueError, match="angles must be 'quadrant' or 'full'"):
        selective_risk_at(y_true, y_pred, y_score, angles="none")
    for loss in (np.full(60, -1.0), np.full(60, np.nan), lambda t, p: t * np.inf + 1):
        with (
            np.errstate(invalid="ignore"),
            pytest.raises(ValueError, match="loss must be finite and not negative"),
        ):
            aurc(y_true, y_pred, y_score, loss=loss)

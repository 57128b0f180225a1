"""Tests of `PrecisionRecallDisplay`: what is drawn are the numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skood.decision._solver import grid_of_angles
from skood.metrics import PrecisionRecallDisplay
from skood.rejection import (
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    CostBased,
    OperatingPoint,
    Solver,
)
from tests.metrics._double_samples import (
    every_rule,
    make_samples,
    precision_recall_curve,
)
from tests.metrics._drawing import legend_texts
from tests.metrics._rejector import fit_rejector, make_blobs_ood

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

Y_TRUE, Y_PRED, Y_SCORE, OOD_SCORE = make_samples(4)
N_ID, N_OOD = np.sum(Y_TRUE != -1), np.sum(Y_TRUE == -1)


def precision_drawn_at(line, recall):
    """The height of a staircase whose steps go up to, and with, their corners."""
    x, y = line.get_data()
    return y[np.flatnonzero(np.asarray(x) >= recall - 1e-12)[0]]


def largest_precision(thetas, recall, prior):
    rules = every_rule(Y_TRUE, Y_PRED, Y_SCORE, OOD_SCORE, thetas)
    shares = [(N / N_ID, F / N_OOD) for N, _, F in rules if N > 0]
    return max(
        (1 - prior) * tpr / ((1 - prior) * tpr + prior * fpr)
        for tpr, fpr in shares
        if tpr >= recall - 1e-12
    )


@pytest.mark.parametrize("recall", [0.0, 0.3, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("prior", [0.1, 0.6])
def test_staircases_are_the_largest_precision_of_all_rules(prior, recall):
    display = PrecisionRecallDisplay.from_predictions(
        Y_TRUE, Y_SCORE, OOD_SCORE, ood_prior=prior, solver=Solver("grid", n_angles=7)
    )
    first, second = display.single_lines_
    for line, thetas in (
        (display.line_, grid_of_angles("quadrant", 7)),
        (first, [0.0]),
        (second, [np.pi / 2]),
    ):
        expected = largest_precision(thetas, recall, prior)
        assert_allclose(precision_drawn_at(line, recall), expected, rtol=1e-12)
        assert line.get_drawstyle() == "steps-pre"
    assert (
        display.ax_.get_ylabel() == f"precision, if the share {prior} of samples is OOD"
    )
    assert display.ax_.get_xlabel() == "recall: share of ID samples accepted"


def test_lines_are_the_curves():
    display = PrecisionRecallDisplay.from_predictions(Y_TRUE, Y_SCORE, OOD_SCORE)
    lines = [display.line_, *display.single_lines_]
    scores = [(Y_SCORE, OOD_SCORE), (Y_SCORE,), (OOD_SCORE,)]
    for line, pair in zip(lines, scores, strict=True):
        curve = precision_recall_curve(Y_TRUE, *pair, ood_prior=0.5)
        assert_array_equal(line.get_xdata()[1:], curve.bounds)
        assert_array_equal(line.get_ydata()[1:], curve.values)
        assert_array_equal(line.get_xydata()[0], [0, curve.values[0]])
        assert line.get_label().endswith(f" (area {curve.area:.3f})")
    assert display.point_ is display.bounds_ is display.random_line_ is None
    assert display.fpr_lines_ == []
    bottom, top = display.ax_.get_ylim()
    assert bottom < min(line.get_ydata().min() for line in lines)
    assert top > 1


@pytest.mark.parametrize(
    ("lam", "precision"), [(2.5, 0.25), (-np.inf, np.nan)], ids=["bad", "none"]
)
def test_point_below_all_curves(lam, precision):
    point = OperatingPoint(theta=0.0, lam=lam)
    display = PrecisionRecallDisplay.from_predictions(
        [0, 0, 0, -1, -1], [-2.0, -3.0, -4.0, -1.0, -2.0], ood_prior=0.5, point=point
    )
    assert_allclose(display.point_.get_ydata(), precision, rtol=1e-12)
    low = 0.25 if precision == 0.25 else 0.5
    low = max(0, low - 0.4 * (1 - low))
    assert_allclose(display.ax_.get_ylim()[0], low, rtol=1e-12)


def test_point_and_bounds():
    point = OperatingPoint(theta=0.0, lam=-5.0)
    rule = BoundedPrecisionRecall(precision_min=0.75, recall_min=0.6, ood_prior=0.3)
    display = PrecisionRecallDisplay.from_predictions(
        Y_TRUE, Y_SCORE, ood_prior=0.3, y_pred=Y_PRED, point=point, rule=rule
    )
    accepted = Y_SCORE >= 5
    tpr, fpr = accepted[Y_TRUE != -1].mean(), accepted[Y_TRUE == -1].mean()
    precision = 0.7 * tpr / (0.7 * tpr + 0.3 * fpr)
    risk = np.mean((Y_TRUE != Y_PRED)[accepted & (Y_TRUE != -1)])
    assert_allclose(display.point_.get_xydata(), [[tpr, precision]], rtol=1e-12)
    corners = display.bounds_.get_corners()
    assert_allclose(corners.min(axis=0), [0.6, 0.75])
    assert_allclose(corners.max(axis=0), [1, 1])
    assert legend_texts(display)[1:] == [
        f"operating point\n(precision {precision:.3f}, recall {tpr:.3f}, "
        f"risk {risk:.3f})",
        "bounds: precision ≥ 0.75, recall ≥ 0.6",
    ]


def test_reference_lines():
    display = PrecisionRecallDisplay.from_predictions(
        Y_TRUE,
        Y_SCORE,
        ood_prior=0.2,
        plot_random=True,
        fpr_lines=(0.1, 0.5),
        color="black",
    )
    assert display.line_.get_color() == "black"
    assert_allclose(display.random_line_.get_ydata(), [0.8, 0.8])
    for line, fpr in zip(display.fpr_lines_, (0.1, 0.5), strict=True):
        recall, precision = line.get_data()
        # the FPR is odds of OOD among accepted rows, by the odds of the prior
        odds = (1 - precision) / precision * recall * 0.8 / 0.2
        assert_allclose(odds, fpr, rtol=1e-10)
        assert recall[-1] == 1
    assert [text.get_text() for text in display.ax_.texts] == ["FPR 0.1", "FPR 0.5"]


def test_random_score_lies_on_its_line():
    y_true = np.repeat([0, -1], 20)
    display = PrecisionRecallDisplay.from_predictions(
        y_true, np.zeros(40), ood_prior=0.2, plot_random=True
    )
    assert_allclose(display.line_.get_ydata(), 0.8)


def test_ood_prior_of_zero():
    display = PrecisionRecallDisplay.from_predictions(Y_TRUE, Y_SCORE, ood_prior=0.0)
    assert_array_equal(display.line_.get_ydata(), 1.0)
    assert display.ax_.get_ylim()[0] < 0.9


def test_classifier_is_drawn_at_the_prior_of_its_rule():
    rule = BoundedPrecisionRecall(precision_min=0.7, recall_min=0.8, ood_prior=0.3)
    clf = fit_rejector(rule)
    X, y = make_blobs_ood(1)
    display = PrecisionRecallDisplay.from_estimator(
        clf, X, y, solver=Solver("grid", n_angles=9)
    )
    report = clf.report(X, y, ood_prior=0.3)
    rates = [report.tpr.value, report.precision.value]
    assert_allclose(display.point_.get_xydata(), [rates], rtol=1e-12)
    assert_allclose(display.point.risk, report.risk.value, rtol=1e-12)
    assert display.ood_prior == 0.3
    assert display.rule is rule
    norm = np.linalg.norm(X, axis=1)
    curve = precision_recall_curve(
        y,
        clf.predict_proba(X).max(axis=1) - 1,
        -norm,
        ood_prior=0.3,
        solver=Solver("grid", n_angles=9),
    )
    assert_allclose(display.line_.get_ydata()[1:], curve.values, rtol=1e-12)
    other = PrecisionRecallDisplay.from_estimator(clf, X, y, ood_prior=0.4)
    assert other.ood_prior == 0.4
    assert other.bounds_ is None


@pytest.mark.parametrize(
    ("rule", "prior"),
    [(None, 0.5), (BoundedTPRFPR(0.5, 0.5), 0.5), (CostBased(ood_prior=0.1), 0.1)],
    ids=["none", "tpr-fpr", "cost"],
)
def test_prior_of_other_rules(rule, prior):
    display = PrecisionRecallDisplay.from_estimator(
        fit_rejector(rule), *make_blobs_ood(1), solver=Solver("grid", n_angles=3)
    )
    assert display.ood_prior == prior
    assert display.bounds_ is None
    assert (display.point_ is None) == (rule is None)


def test_errors():
    with pytest.raises(
        TypeError, match=r"bounds as in BoundedPrecisionRecall, got rule=B"
    ):
        PrecisionRecallDisplay.from_predictions(Y_TRUE, Y_SCORE, rule=BoundedTPRFPR())
    with pytest.raises(ValueError, match=r"its own ood_prior.* are for ood_prior=0\.2"):
        PrecisionRecallDisplay.from_predictions(
            Y_TRUE, Y_SCORE, ood_prior=0.2, rule=BoundedPrecisionRecall()
        )
    with pytest.raises(
        TypeError, match=r"PrecisionRecallDisplay\.from_estimator needs"
    ):
        PrecisionRecallDisplay.from_estimator(object(), [[0.0]], [0])
    with pytest.raises(ValueError, match="ood_prior"):
        PrecisionRecallDisplay.from_predictions(Y_TRUE, Y_SCORE, ood_prior=1.0)


def test_second_display_keeps_the_first_in_sight():
    y, score = [0, 0, -1], [1.0, 2.0, 3.0]
    first = PrecisionRecallDisplay.from_predictions(y, score, ood_prior=0.7)
    bottom = first.ax_.get_ylim()[0]
    assert bottom == pytest.approx(0.3 - 0.4 * 0.7)
    second = PrecisionRecallDisplay.from_predictions(
        y, score, ood_prior=0.1, ax=first.ax_
    )
    assert second.ax_.get_ylim()[0] == bottom
    third = PrecisionRecallDisplay.from_predictions(
        y, score, ood_prior=0.99, ax=first.ax_
    )
    assert third.ax_.get_ylim()[0] == 0


def test_axis_ends_at_zero():
    display = PrecisionRecallDisplay.from_predictions(
        [0, 0, -1], [1.0, 2.0, 3.0], ood_prior=0.99
    )
    assert display.ax_.get_ylim()[0] == 0


def test_ood_prior_of_zero_without_ood_samples():
    point = OperatingPoint(theta=0.0, lam=-2.0)
    display = PrecisionRecallDisplay.from_predictions(
        [0, 0, 1], [1.0, 2.0, 3.0], ood_prior=0, point=point
    )
    assert_array_equal(display.line_.get_xydata(), [[0, 1], [1, 1]])
    assert_allclose(display.point_.get_xydata(), [[2 / 3, 1]], rtol=1e-12)


def test_without_matplotlib(monkeypatch):
    curve = precision_recall_curve(Y_TRUE, Y_SCORE)
    display = PrecisionRecallDisplay(curve=curve, ood_prior=0.5)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'PrecisionRec.* needs .*"skood\[plot\]"'):
        display.plot()

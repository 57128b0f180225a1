"""Displays of curves of two scores: what is drawn are the numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skood.decision._solver import grid_of_angles
from skood.detectors import MSP
from skood.metrics import (
    AcceptanceRegionDisplay,
    DoubleScoreROCDisplay,
    PrecisionRecallDisplay,
    RiskCoverageDisplay,
    ScoreHistogramDisplay,
    auroc,
)
from skood.rejection import (
    BoundedAbstention,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    CostBased,
    OperatingPoint,
    Rates,
    Solver,
)
from tests.metrics._double_samples import (
    every_rule,
    make_samples,
    precision_recall_curve,
    relabel,
    roc_curve,
)
from tests.metrics._drawing import legend_texts
from tests.metrics._rejector import fit_rejector, make_blobs_ood

draw_precision = PrecisionRecallDisplay.from_predictions

draw_roc = DoubleScoreROCDisplay.from_predictions

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

Y_TRUE, Y_PRED, Y_SCORE, OOD_SCORE = make_samples(3)
POINT = OperatingPoint(theta=0.0, lam=0.0)
N_ID, N_OOD = np.sum(Y_TRUE != -1), np.sum(Y_TRUE == -1)


def fpr_at(line, tpr):
    """The FPR at which a drawn staircase first reaches a TPR."""
    x, y = line.get_data()
    return x[np.flatnonzero(np.asarray(y) >= tpr - 1e-12)[0]]


def least_fpr(thetas, tpr):
    rules = every_rule(Y_TRUE, Y_PRED, Y_SCORE, OOD_SCORE, thetas)
    return min(F / N_OOD for N, _, F in rules if N / N_ID >= tpr - 1e-12)


@pytest.mark.parametrize("tpr", [0.1, 0.5, 0.8, 0.95, 1.0])
def test_staircases_are_the_least_fpr_of_all_rules(tpr):
    display = draw_roc(Y_TRUE, Y_SCORE, OOD_SCORE, solver=Solver("grid", n_angles=7))
    assert fpr_at(display.line_, tpr) == least_fpr(grid_of_angles("quadrant", 7), tpr)
    first, second = display.single_lines_
    assert fpr_at(first, tpr) == least_fpr([0.0], tpr)
    assert fpr_at(second, tpr) == least_fpr([np.pi / 2], tpr)
    assert display.line_.get_drawstyle() == "steps-post"


def test_lines_are_the_curves():
    display = draw_roc(Y_TRUE, Y_SCORE, OOD_SCORE)
    lines = [display.line_, *display.single_lines_]
    scores = [(Y_SCORE, OOD_SCORE), (Y_SCORE,), (OOD_SCORE,)]
    names = ["both scores", "y_score alone", "ood_score alone"]
    for line, pair, name in zip(lines, scores, names, strict=True):
        curve = roc_curve(Y_TRUE, *pair)
        assert_array_equal(line.get_xdata()[1:-1], curve.values)
        assert_array_equal(line.get_ydata()[1:-1], curve.bounds)
        assert_array_equal(line.get_xydata()[[0, -1]], [[0, 0], [1, 1]])
        assert line.get_label() == f"{name} (area {1 - curve.area:.3f})"
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-."]
    assert len({line.get_color() for line in lines}) == 3
    assert display.point_ is display.bounds_ is display.random_line_ is None
    assert display.ax_.get_xlabel() == "FPR: fraction of OOD samples accepted"
    assert display.ax_.get_ylabel() == "TPR: fraction of ID samples accepted"


def test_single_score_without_ties_has_the_auroc():
    rng = np.random.default_rng(0)
    score = rng.normal(size=Y_TRUE.size) + (Y_TRUE != -1)
    display = draw_roc(
        relabel(Y_TRUE), score, ood_label="other", score_names=("mine", "none")
    )
    assert display.single_lines_ == []
    x, y = display.line_.get_data()
    assert_allclose(np.sum(np.diff(x) * y[:-1]), auroc(Y_TRUE, score), rtol=1e-12)
    assert legend_texts(display) == [f"mine (area {auroc(Y_TRUE, score):.3f})"]


def test_point_is_marked_at_its_rates_on_these_samples():
    point = OperatingPoint(0.0, -5.0, tau=0.25, rates=Rates(tpr=0.123, fpr=0.456))
    params = {"y_pred": Y_PRED, "point": point}
    display = draw_roc(Y_TRUE, Y_SCORE, OOD_SCORE, **params)
    chance = np.where(Y_SCORE > 5, 1.0, np.where(Y_SCORE == 5, 0.25, 0.0))
    tpr, fpr = chance[Y_TRUE != -1].mean(), chance[Y_TRUE == -1].mean()
    wrong = (Y_TRUE != Y_PRED) & (Y_TRUE != -1)
    risk = chance[wrong].sum() / chance[Y_TRUE != -1].sum()
    assert_allclose(display.point_.get_xydata(), [[fpr, tpr]], rtol=1e-12)
    assert_allclose(display.point.risk, risk, rtol=1e-12)
    assert np.isnan(display.point.precision)
    assert (
        f"operating point\n(TPR {tpr:.3f}, FPR {fpr:.3f}, risk {risk:.3f})"
        in legend_texts(display)
    )


def test_risk_is_told_only_if_it_is_known():
    point = OperatingPoint(theta=0.0, lam=-5.0)
    display = draw_roc(Y_TRUE, Y_SCORE, point=point)
    assert np.isnan(display.point.risk)
    assert "risk" not in legend_texts(display)[-1]
    nothing = OperatingPoint(theta=0.0, lam=-np.inf, tau=0.0)
    display = draw_roc(Y_TRUE, Y_SCORE, y_pred=Y_PRED, point=nothing)
    assert legend_texts(display)[-1] == "operating point\n(TPR 0.000, FPR 0.000)"


def test_bounds_and_random_score():
    display = draw_roc(Y_TRUE, Y_SCORE, rule=BoundedTPRFPR(0.7, 0.25), plot_random=True)
    corners = display.bounds_.get_corners()
    assert_allclose(corners.min(axis=0), [0, 0.7])
    assert_allclose(corners.max(axis=0), [0.25, 1])
    assert_array_equal(display.random_line_.get_xydata(), [[0, 0], [1, 1]])
    assert legend_texts(display)[1:] == ["bounds: TPR ≥ 0.7, FPR ≤ 0.25", "random"]


def test_several_displays_on_the_same_axes():
    first = draw_roc(Y_TRUE, Y_SCORE, OOD_SCORE, plot_single=False, c="black")
    assert first.line_.get_color() == "black"
    assert first.single_lines_ == []
    second = first.plot(first.ax_)
    third = second.plot(first.ax_)
    colors = [line.get_color() for line in third.ax_.lines]
    assert len(set(colors)) == len(colors) == 7
    assert first.figure_ is first.ax_.figure


def test_classifier_is_drawn_with_its_operating_point():
    rule = BoundedTPRFPR(0.8, 0.4)
    clf = fit_rejector(rule, solver=Solver(angles="full"))
    X, y = make_blobs_ood(1)
    y = np.where(y == -1, 7, y)  # a class that it does not know
    display = DoubleScoreROCDisplay.from_estimator(
        make_pipeline("passthrough", clf), X, y
    )
    report = clf.report(X, y)
    rates = [report.fpr.value, report.tpr.value]
    assert_allclose(display.point_.get_xydata(), [rates], rtol=1e-12)
    assert_allclose(display.point.risk, report.risk.value, rtol=1e-12)
    assert display.rule is rule
    norm = np.linalg.norm(X, axis=1)
    proba = clf.predict_proba(X).max(axis=1)
    solver = Solver("grid", angles="full", n_angles=91)  # as that of the classifier
    curve = roc_curve(y, proba - 1, -norm, ood_label=7, solver=solver)
    assert_allclose(display.line_.get_xdata()[1:-1], curve.values, rtol=1e-12)
    assert_allclose(display.line_.get_ydata()[1:-1], curve.bounds, rtol=1e-12)
    names = [text.split(" (")[0] for text in legend_texts(display)]
    assert names[:3] == ["both scores", "max probability alone", "MarginDetector alone"]


@pytest.mark.parametrize(
    "rule",
    [None, BoundedAbstention(0.7), CostBased()],
    ids=["none", "coverage", "cost"],
)
def test_classifier_with_another_rule_has_no_bounds(rule):
    clf = fit_rejector(rule, ood_detector=False)
    display = DoubleScoreROCDisplay.from_estimator(clf, *make_blobs_ood(1))
    assert display.bounds_ is None
    assert (display.point_ is None) == (rule is None)
    assert legend_texts(display)[0].startswith("max probability (area")


def test_detector_in_a_pipeline_is_named():
    clf = fit_rejector(None, risk_detector=make_pipeline("passthrough", MSP(None)))
    display = DoubleScoreROCDisplay.from_estimator(clf, *make_blobs_ood(1))
    assert legend_texts(display)[1].startswith("MSP alone")


def test_errors():
    X, y = make_blobs_ood(0)
    model = LogisticRegression().fit(X, y)
    with pytest.raises(TypeError, match=r"DoubleScoreROC.*Logistic.*Fit it, or use"):
        DoubleScoreROCDisplay.from_estimator(model, X, y)
    with pytest.raises(TypeError, match=r"point must be an OperatingPoint.*got 0\.5"):
        draw_roc(Y_TRUE, Y_SCORE, point=0.5)
    with pytest.raises(TypeError, match=r"bounds as in BoundedTPRFPR, got rule=Bou"):
        draw_roc(Y_TRUE, Y_SCORE, rule=BoundedPrecisionRecall())
    with pytest.raises(ValueError, match="tpr_min"):
        draw_roc(Y_TRUE, Y_SCORE, rule=BoundedTPRFPR(tpr_min=2))
    with pytest.raises(ValueError, match="No OOD samples in y_true"):
        draw_roc([0, 1], [0.1, 0.2])


@pytest.mark.parametrize(
    ("names", "got"),
    [(("a",), "got 1: "), (("a", "b", "c"), "got 3: "), ("ab", "a single text: 'ab'")],
    ids=["one", "three", "text"],
)
def test_names_of_the_scores(names, got):
    import matplotlib.pyplot as plt

    y, scores = [0, 1, -1], ([3.0, 2.0, 1.0], [2.0, 3.0, 1.0])
    draw_region = partial(AcceptanceRegionDisplay.from_predictions, y, y, point=POINT)
    for draw in (partial(draw_roc, y), draw_region):
        with pytest.raises(ValueError, match=f"score_names must be .* {got}"):
            draw(*scores, score_names=names)
    assert plt.get_fignums() == []


def test_single_score_needs_a_single_name():
    y, score = [0, 1, -1], [3.0, 2.0, 1.0]
    display = draw_roc(y, score, score_names=("mine",))
    assert legend_texts(display)[0].startswith("mine (area")
    with pytest.raises(ValueError, match=r"score_names must be .* got 0: "):
        draw_roc(y, score, score_names=())


@pytest.mark.parametrize(
    "display",
    [
        AcceptanceRegionDisplay(
            **dict.fromkeys(("risk_id", "risk_ood", "wrong_id"), np.zeros(1)),
            ood_id=None,
            ood_ood=None,
            point=POINT,
        ),
        DoubleScoreROCDisplay(curve=roc_curve(Y_TRUE, Y_SCORE)),
        PrecisionRecallDisplay(
            curve=precision_recall_curve(Y_TRUE, Y_SCORE), ood_prior=0.5
        ),
        RiskCoverageDisplay(coverage=[[1.0]], risk=[[0.2]]),
        ScoreHistogramDisplay(scores_id=Y_SCORE, scores_ood=Y_SCORE),
    ],
    ids=lambda display: type(display).__name__,
)
def test_without_matplotlib(display, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    message = rf'{type(display).__name__}.* needs .*"matplotlib>='
    with pytest.raises(ImportError, match=message):
        display.plot()


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
    display = draw_precision(
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
        display.ax_.get_ylabel()
        == f"precision, if the fraction {prior} of samples is OOD"
    )
    assert display.ax_.get_xlabel() == "recall: fraction of ID samples accepted"


def test_lines_are_the_curves_of_precision():
    display = draw_precision(Y_TRUE, Y_SCORE, OOD_SCORE)
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
    display = draw_precision(
        [0, 0, 0, -1, -1], [-2.0, -3.0, -4.0, -1.0, -2.0], ood_prior=0.5, point=point
    )
    assert_allclose(display.point_.get_ydata(), precision, rtol=1e-12)
    low = 0.25 if precision == 0.25 else 0.5
    low = max(0, low - 0.4 * (1 - low))
    assert_allclose(display.ax_.get_ylim()[0], low, rtol=1e-12)


def test_point_and_bounds():
    point = OperatingPoint(theta=0.0, lam=-5.0)
    rule = BoundedPrecisionRecall(precision_min=0.75, recall_min=0.6, ood_prior=0.3)
    display = draw_precision(
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
    display = draw_precision(
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
    display = draw_precision(y_true, np.zeros(40), ood_prior=0.2, plot_random=True)
    assert_allclose(display.line_.get_ydata(), 0.8)


def test_ood_prior_of_zero():
    display = draw_precision(Y_TRUE, Y_SCORE, ood_prior=0.0)
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


def test_errors_of_precision_and_recall():
    with pytest.raises(
        TypeError, match=r"bounds as in BoundedPrecisionRecall, got rule=B"
    ):
        draw_precision(Y_TRUE, Y_SCORE, rule=BoundedTPRFPR())
    with pytest.raises(ValueError, match=r"its own ood_prior.* are for ood_prior=0\.2"):
        draw_precision(Y_TRUE, Y_SCORE, ood_prior=0.2, rule=BoundedPrecisionRecall())
    with pytest.raises(
        TypeError, match=r"PrecisionRecallDisplay\.from_estimator needs"
    ):
        PrecisionRecallDisplay.from_estimator(object(), [[0.0]], [0])
    with pytest.raises(ValueError, match="ood_prior"):
        draw_precision(Y_TRUE, Y_SCORE, ood_prior=1.0)


def test_second_display_keeps_the_first_in_sight():
    y, score = [0, 0, -1], [1.0, 2.0, 3.0]
    first = draw_precision(y, score, ood_prior=0.7)
    bottom = first.ax_.get_ylim()[0]
    assert bottom == pytest.approx(0.3 - 0.4 * 0.7)
    second = draw_precision(y, score, ood_prior=0.1, ax=first.ax_)
    assert second.ax_.get_ylim()[0] == bottom
    third = draw_precision(y, score, ood_prior=0.99, ax=first.ax_)
    assert third.ax_.get_ylim()[0] == 0


def test_axis_ends_at_zero():
    display = draw_precision([0, 0, -1], [1.0, 2.0, 3.0], ood_prior=0.99)
    assert display.ax_.get_ylim()[0] == 0


def test_ood_prior_of_zero_without_ood_samples():
    point = OperatingPoint(theta=0.0, lam=-2.0)
    display = draw_precision([0, 0, 1], [1.0, 2.0, 3.0], ood_prior=0, point=point)
    assert_array_equal(display.line_.get_xydata(), [[0, 1], [1, 1]])
    assert_allclose(display.point_.get_xydata(), [[2 / 3, 1]], rtol=1e-12)

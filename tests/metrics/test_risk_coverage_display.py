"""Tests of `RiskCoverageDisplay`: what is drawn are the numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.metrics import (
    RiskCoverageCurve,
    RiskCoverageDisplay,
    TwoScoreCurve,
    aurc,
)
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    Certificate,
    RejectOptionClassifier,
    TwoThresholds,
)
from tests.metrics._drawing import MarginDetector, legend_texts
from tests.metrics._rejector import fit_rejector, make_blobs_ood
from tests.metrics._scored import Decider

curve_of = RiskCoverageCurve.from_predictions

draw = RiskCoverageDisplay.from_predictions

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

RNG = np.random.RandomState(0)
Y = RNG.choice([0, 1, -1], 300)
PRED = np.where(RNG.rand(300) < 0.8, Y, 1 - Y)
SCORE = RNG.normal(size=300).round(1) + (PRED == Y)
X_IRIS, Y_IRIS = load_iris(return_X_y=True)


def test_line_is_the_curve():
    display = draw(Y, PRED, SCORE, name="mine")
    curve = curve_of(Y, PRED, SCORE)
    assert_array_equal(
        display.line_.get_xydata(), np.column_stack([curve.coverage, curve.risk])
    )
    assert legend_texts(display) == [f"mine (AURC = {aurc(Y, PRED, SCORE):.4f})"]
    assert display.ax_.get_xlabel() == "coverage (fraction of ID samples accepted)"
    assert display.ax_.get_ylabel() == "selective risk (low = good)"
    assert display.oracle_line_ is None
    assert display.random_line_ is None
    assert display.figure_ is display.ax_.figure


def test_several_scores():
    scores = {"good": SCORE, "bad": -SCORE}
    display = draw(Y, PRED, scores)
    assert len(display.line_) == 2
    for line, (name, score) in zip(display.line_, scores.items(), strict=True):
        curve = curve_of(Y, PRED, score)
        assert_array_equal(
            line.get_xydata(), np.column_stack([curve.coverage, curve.risk])
        )
        assert line.get_label() == f"{name} (AURC = {aurc(Y, PRED, score):.4f})"
    colors = {line.get_color() for line in display.line_}
    dashes = {line.get_linestyle() for line in display.line_}
    assert len(colors) == len(dashes) == 2


def test_reference_lines():
    """Oracle: no error on the right share, then k errors among n_right + k rows."""
    display = draw(Y, PRED, SCORE, plot_random=True, plot_oracle=True)
    n, wrong = np.sum(Y != -1), np.sum((PRED != Y)[Y != -1])
    accepted = np.arange(1, n + 1)
    errors = np.maximum(0, accepted - (n - wrong))
    expected = np.column_stack([accepted / n, errors / accepted])
    assert_allclose(display.oracle_line_.get_xydata(), expected, atol=1e-15)
    assert_allclose(display.random_line_.get_ydata(), [wrong / n] * 2)
    assert np.all(
        np.interp(display.coverage[0], *expected.T) <= display.risk[0] + 1e-12
    )
    assert legend_texts(display)[1:] == ["oracle", f"random (risk = {wrong / n:.4f})"]


def test_losses_instead_of_predictions():
    loss = RNG.rand(300)
    display = draw(Y, None, SCORE, loss=loss)
    assert_allclose(display.line_.get_ydata()[-1], loss[Y != -1].mean())
    assert_allclose(display.oracle_risk[0], loss[Y != -1].min())


def test_plot_on_used_axes_continues_the_colors():
    first = draw(Y, PRED, SCORE, name="a")
    second = draw(Y, PRED, -SCORE, name="b", ax=first.ax_)
    assert second.ax_ is first.ax_
    assert second.figure_ is first.figure_
    assert second.line_.get_color() != first.line_.get_color()
    assert len(legend_texts(first)) == 2


def test_keyword_arguments_reach_the_line():
    display = draw(Y, PRED, SCORE, c="red", lw=3)
    assert display.line_.get_color() == "red"
    assert display.line_.get_linewidth() == 3
    again = display.plot(name="other", color="green")
    assert again is display
    assert legend_texts(display)[0].startswith("other (AURC")
    assert display.line_.get_color() == "green"


def test_display_from_bare_arrays():
    display = RiskCoverageDisplay(coverage=[[0.5, 1.0]], risk=[[0.0, 0.2]]).plot()
    assert display.ax_.get_legend() is None
    assert_array_equal(display.line_.get_ydata(), [0.0, 0.2])
    display.plot(name="named")
    assert legend_texts(display) == ["named"]
    display = RiskCoverageDisplay(coverage=[[1.0]], risk=[[0.2]], aurc=[0.25]).plot()
    assert legend_texts(display) == ["AURC = 0.2500"]


@pytest.mark.parametrize(
    ("params", "plot", "message"),
    [
        ({"aurc": [0.1, 0.2]}, {}, "1 arrays of coverage, 1 of risk, 1 names and 2"),
        ({}, {"name": ["a", "b"]}, "2 names"),
        ({}, {"plot_oracle": True}, "plot_oracle=True needs oracle_coverage"),
        ({}, {"plot_random": True}, "plot_random=True needs full_risk"),
    ],
)
def test_errors_of_plot(params, plot, message):
    with pytest.raises(ValueError, match=message):
        RiskCoverageDisplay(coverage=[[1.0]], risk=[[0.2]], **params).plot(**plot)


def test_errors_of_from_predictions():
    with pytest.raises(ValueError, match="y_score is an empty dict"):
        draw(Y, PRED, {})
    with pytest.raises(ValueError, match="name='a' is for a single score"):
        draw(Y, PRED, {"b": SCORE}, name="a")


@pytest.mark.parametrize("wrap", [False, True])
def test_classifier(wrap):
    """Rows of the class that was not fitted are left out."""
    known = Y_IRIS != 2
    model = LogisticRegression(max_iter=500, C=0.01)
    model = make_pipeline(StandardScaler(), model) if wrap else model
    model.fit(X_IRIS[known], Y_IRIS[known])
    display = RiskCoverageDisplay.from_estimator(model, X_IRIS, Y_IRIS)
    curve = curve_of(
        Y_IRIS[known],
        model.predict(X_IRIS[known]),
        model.predict_proba(X_IRIS[known]).max(axis=1),
    )
    assert_array_equal(
        display.line_.get_xydata(), np.column_stack([curve.coverage, curve.risk])
    )
    assert display.name == ["LogisticRegression"]


def test_detector_around_a_classifier():
    """Its own score is used, not the probabilities that it has, too."""
    noisy = np.where(RNG.rand(150) < 0.7, Y_IRIS, 0)
    detector = MarginDetector().fit(X_IRIS, Y_IRIS)
    display = RiskCoverageDisplay.from_estimator(detector, X_IRIS, noisy, name="norm")
    curve = curve_of(
        noisy, detector.estimator_.predict(X_IRIS), detector.score_samples(X_IRIS)
    )
    assert_array_equal(
        display.line_.get_xydata(), np.column_stack([curve.coverage, curve.risk])
    )
    assert display.name == ["norm"]


def test_errors_of_from_estimator():
    with pytest.raises(TypeError, match=r"with predict_proba .*Got RidgeClassifier"):
        RiskCoverageDisplay.from_estimator(
            RidgeClassifier().fit(X_IRIS, Y_IRIS), X_IRIS, Y_IRIS
        )
    model = LogisticRegression(max_iter=500).fit(X_IRIS, Y_IRIS)
    with pytest.raises(
        ValueError, match="No in-distribution samples in y: every label"
    ):
        RiskCoverageDisplay.from_estimator(model, X_IRIS, Y_IRIS + 7)


@pytest.mark.parametrize("wrap", [False, True], ids=["alone", "pipeline"])
def test_rejected_samples_are_no_errors(wrap):
    """The curve is that of the classifier: rejections are not in its predictions."""
    clf = fit_rejector(BoundedTPRFPR(tpr_min=0.6, fpr_max=0.3))
    X, y = make_blobs_ood(1)
    assert np.mean(clf.predict(X[y != -1]) == -1) > 0.1
    model = make_pipeline("passthrough", clf) if wrap else clf
    display = RiskCoverageDisplay.from_estimator(model, X, y)
    curve = curve_of(y, clf.estimator_.predict(X), clf.predict_proba(X).max(axis=1))
    assert_array_equal(
        display.line_.get_xydata(), np.column_stack([curve.coverage, curve.risk])
    )
    assert display.name == ["RejectOptionClassifier"]
    accepted = (clf.predict(X) != -1)[y != -1]
    wrong = (clf.estimator_.predict(X) != y)[y != -1]
    point = accepted.mean(), wrong[accepted].mean()
    assert_allclose(display.operating_point, point, rtol=1e-12)
    (marker,) = display.ax_.lines[-1].get_xydata()
    assert_allclose(marker, point, rtol=1e-12)
    assert legend_texts(display)[-1].startswith(f"rule (coverage {point[0]:.3f}")
    redrawn = display.plot()
    assert_allclose(redrawn.ax_.lines[-1].get_xydata(), [point], rtol=1e-12)


def test_rule_with_a_threshold_for_each_group_has_no_marker():
    X, y = make_blobs_ood(0)
    X, y = np.tile(X[y != -1], (6, 1)), np.tile(y[y != -1], 6)
    clf = RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=MarginDetector(),
        rule=TwoThresholds(ood=0.1, risk=0.1),
        guarantee=Certificate(within="groups", thresholds="group"),
        random_state=0,
    ).fit(X, y, groups=np.arange(len(y)) % 2)
    assert clf.operating_point_.has_group_thresholds
    display = RiskCoverageDisplay.from_estimator(clf, X, y)
    assert display.operating_point is None
    curve = curve_of(y, clf.estimator_.predict(X), clf.predict_proba(X).max(axis=1))
    assert_array_equal(display.line_.get_ydata(), curve.risk)


def test_classifier_that_rejects_with_string_labels():
    X, y = make_blobs_ood(0)
    names = np.array(["ant", "bee", "other"])[y]
    clf = RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=MarginDetector(),
        rule=BoundedTPRFPR(tpr_min=0.6, fpr_max=0.3),
        ood_label="other",
        reject_label="pass",
        random_state=0,
    ).fit(X, names)
    assert "pass" in clf.predict(X[y != -1])
    display = RiskCoverageDisplay.from_estimator(clf, X, names, ood_label="other")
    wrong = clf.estimator_.predict(X[y != -1]) != names[y != -1]
    assert display.line_.get_ydata()[-1] == pytest.approx(wrong.mean(), rel=1e-12)


def test_curve_under_a_loss_ranks_by_the_expected_loss():
    loss = np.array([[0.0, 1.0], [10.0, 0.0]])
    rng = np.random.RandomState(0)
    X = rng.normal(size=(800, 1))
    y = (rng.rand(800) < 1 / (1 + np.exp(1 - 2 * X[:, 0]))).astype(int)
    clf = RejectOptionClassifier(
        LogisticRegression(), rule=BoundedAbstention(0.7), loss=loss
    ).fit(X, y)
    display = RiskCoverageDisplay.from_estimator(clf, X, y, loss=loss)
    expected = (clf.predict_proba(X) @ loss).min(axis=1)  # Theorem 1: r_B
    decision = (clf.predict_proba(X) @ loss).argmin(axis=1)
    area = aurc(y, decision, -expected, loss=loss, classes=[0, 1])
    assert_allclose(display.aurc, area, rtol=1e-12)
    largest = clf.predict_proba(X).max(axis=1)
    by_probability = aurc(y, decision, largest, loss=loss, classes=[0, 1])
    assert area < 0.8 * by_probability


def test_what_rejects_needs_the_classifier_behind_it():
    class Opaque(Decider):
        def fit(self):
            self.classes_ = np.array([0, 1])
            return self

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    with pytest.raises(TypeError, match=r"errors are counted in estimator_.*Opaque"):
        RiskCoverageDisplay.from_estimator(Opaque().fit(), np.ones((2, 2)), [0, 1])


def test_known_classes_and_loss_matrix():
    """Rows of class 2 are left out; a wrong label 1 costs 5."""
    y, pred = np.where(Y == -1, 2, Y), np.where(PRED == 1, 1, 0)
    matrix = np.array([[0.0, 1.0], [5.0, 0.0]])
    display = draw(y, pred, SCORE, loss=matrix, classes=[0, 1], ood_label=-7)
    is_id = y < 2
    losses = matrix[y[is_id], pred[is_id]]
    assert_allclose(display.line_.get_ydata()[-1], losses.mean(), rtol=1e-12)
    assert_allclose(display.full_risk, losses.mean(), rtol=1e-12)
    assert_allclose(display.oracle_risk[-1], losses.mean(), rtol=1e-12)


def test_loss_matrix_of_a_classifier():
    matrix = np.array([[0.0, 1, 2], [3, 0, 4], [5, 6, 0]])
    noisy = np.where(np.arange(150) % 4 == 0, 0, Y_IRIS)
    model = LogisticRegression(max_iter=500).fit(X_IRIS, Y_IRIS)
    losses = matrix[noisy, model.predict(X_IRIS)]
    for params in ({}, {"classes": [0, 1, 2]}):
        display = RiskCoverageDisplay.from_estimator(
            model, X_IRIS, noisy, loss=matrix, **params
        )
        assert_allclose(display.full_risk, losses.mean(), rtol=1e-12)


def test_losses_per_row_of_a_classifier():
    loss = np.random.default_rng(0).random(150)
    known = Y_IRIS != 2
    model = LogisticRegression(max_iter=500).fit(X_IRIS[known], Y_IRIS[known])
    display = RiskCoverageDisplay.from_estimator(model, X_IRIS, Y_IRIS, loss=loss)
    assert_allclose(display.full_risk, loss[known].mean(), rtol=1e-12)


def test_second_curve_on_the_axes_is_in_sight():
    low = RiskCoverageDisplay(coverage=[[0.5, 1.0]], risk=[[0.01, 0.02]]).plot()
    high = RiskCoverageDisplay(coverage=[[0.5, 1.0]], risk=[[0.5, 0.9]]).plot(low.ax_)
    bottom, top = high.ax_.get_ylim()
    assert bottom == 0
    assert 0.9 < top < 1
    high.ax_.plot([0, 1], [2.0, 2.0])
    assert high.ax_.get_ylim()[1] > 2


def test_failed_plot_leaves_no_figure():
    import matplotlib.pyplot as plt

    display = RiskCoverageDisplay(coverage=[[1.0]], risk=[[0.2]])
    with pytest.raises(AttributeError, match="colr"):
        display.plot(colr="red")
    assert plt.get_fignums() == []
    ax = plt.subplots()[1]
    with pytest.raises(AttributeError, match="colr"):
        display.plot(ax, colr="red")
    assert plt.get_fignums() == [ax.figure.number]


def test_bounded_curve_ends_at_the_attainable_coverage():
    second = np.random.RandomState(1).normal(size=300) - 2 * (Y == -1)
    bounds = {"ood_score": second, "precision_min": 0.9, "ood_prior": 0.2}
    curve = TwoScoreCurve.from_predictions(
        Y, PRED, SCORE, kind="risk_coverage", **bounds
    )
    assert 0 < curve.attainable < 1
    display = draw(Y, PRED, SCORE, name="mine", **bounds, plot_random=True)
    x, y = display.line_.get_xydata().T
    assert x[0] == 0
    assert x[-1] == curve.attainable
    assert np.all(np.diff(x) >= 0)
    assert_array_equal(curve.at((x[::2] + x[1::2]) / 2), y[::2])  # horizontal pieces
    assert_array_equal(y[::2], y[1::2])
    legend = f"mine (coverage ≤ {curve.attainable:.2f})"
    assert legend_texts(display)[0] == legend
    assert display.random_line_ is not None
    whole = draw(Y, PRED, SCORE, ood_score=second)
    area = TwoScoreCurve.from_predictions(
        Y, PRED, SCORE, second, kind="risk_coverage"
    ).area
    assert legend_texts(whole) == [f"AURC = {area:.4f}"]


def test_bounds_of_several_scores_and_of_an_estimator():
    clf, (X, y) = fit_rejector(BoundedTPRFPR(0.5, 0.5)), make_blobs_ood(1)
    risk, ood = clf.score_pair(X)
    display = draw(
        y, clf.estimator_.predict(X), {"risk": risk, "ood": ood}, fpr_max=0.1
    )
    assert all("coverage ≤ 0." in text for text in legend_texts(display))
    display = RiskCoverageDisplay.from_estimator(
        clf, X, y, ood_score=ood, fpr_max=0.1, plot_oracle=True
    )
    curve = TwoScoreCurve.from_predictions(
        y,
        clf.estimator_.predict(X),
        clf.predict_proba(X).max(axis=1),
        ood,
        kind="risk_coverage",
        fpr_max=0.1,
    )
    assert display.line_.get_xdata()[-1] == curve.attainable
    assert_array_equal(display.line_.get_ydata()[1::2], curve.values)
    assert display.oracle_line_ is not None


def test_bounds_that_no_rule_meets():
    display = draw([0, 1, -1], [0, 1, 0], [0.1, 0.2, 0.9], fpr_max=0.0, name="no")
    assert legend_texts(display) == ["no (coverage ≤ 0.00)"]
    assert display.line_.get_xdata().size == 0
    with pytest.raises(ValueError, match="Pass ood_prior"):
        draw(Y, PRED, SCORE, precision_min=0.9)

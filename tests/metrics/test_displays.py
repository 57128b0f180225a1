"""Tests of `RiskCoverageDisplay`: what is drawn are the numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.metrics import RiskCoverageDisplay, aurc, risk_coverage_curve
from tests.metrics._drawing import MarginDetector, legend_texts

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

RNG = np.random.RandomState(0)
Y = RNG.choice([0, 1, -1], 300)
PRED = np.where(RNG.rand(300) < 0.8, Y, 1 - Y)
SCORE = RNG.normal(size=300).round(1) + (PRED == Y)
X_IRIS, Y_IRIS = load_iris(return_X_y=True)


@pytest.fixture(autouse=True)
def close_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def test_line_is_the_curve():
    display = RiskCoverageDisplay.from_predictions(Y, PRED, SCORE, name="mine")
    coverage, risk, _ = risk_coverage_curve(Y, PRED, SCORE)
    assert_array_equal(display.line_.get_xydata(), np.column_stack([coverage, risk]))
    assert legend_texts(display) == [f"mine (AURC = {aurc(Y, PRED, SCORE):.3g})"]
    assert display.ax_.get_xlabel() == "coverage (share of ID samples accepted)"
    assert display.ax_.get_ylabel() == "selective risk (low = good)"
    assert display.oracle_line_ is None
    assert display.random_line_ is None
    assert display.figure_ is display.ax_.figure


def test_several_scores():
    scores = {"good": SCORE, "bad": -SCORE}
    display = RiskCoverageDisplay.from_predictions(Y, PRED, scores)
    assert len(display.line_) == 2
    for line, (name, score) in zip(display.line_, scores.items(), strict=True):
        coverage, risk, _ = risk_coverage_curve(Y, PRED, score)
        assert_array_equal(line.get_xydata(), np.column_stack([coverage, risk]))
        assert line.get_label() == f"{name} (AURC = {aurc(Y, PRED, score):.3g})"
    colours = {line.get_color() for line in display.line_}
    dashes = {line.get_linestyle() for line in display.line_}
    assert len(colours) == len(dashes) == 2


def test_reference_lines():
    """Oracle: no error on the right share, then k errors among n_right + k rows."""
    display = RiskCoverageDisplay.from_predictions(
        Y, PRED, SCORE, plot_random=True, plot_oracle=True
    )
    n, wrong = np.sum(Y != -1), np.sum((PRED != Y)[Y != -1])
    accepted = np.arange(1, n + 1)
    errors = np.maximum(0, accepted - (n - wrong))
    expected = np.column_stack([accepted / n, errors / accepted])
    assert_allclose(display.oracle_line_.get_xydata(), expected, atol=1e-15)
    assert_allclose(display.random_line_.get_ydata(), [wrong / n] * 2)
    assert np.all(
        np.interp(display.coverage[0], *expected.T) <= display.risk[0] + 1e-12
    )
    assert legend_texts(display)[1:] == ["oracle", f"random (risk = {wrong / n:.3g})"]


def test_losses_instead_of_predictions():
    loss = RNG.rand(300)
    display = RiskCoverageDisplay.from_predictions(Y, None, SCORE, loss=loss)
    assert_allclose(display.line_.get_ydata()[-1], loss[Y != -1].mean())
    assert_allclose(display.oracle_risk[0], loss[Y != -1].min())


def test_plot_on_given_axes_goes_on_with_the_colours():
    first = RiskCoverageDisplay.from_predictions(Y, PRED, SCORE, name="a")
    second = RiskCoverageDisplay.from_predictions(
        Y, PRED, -SCORE, name="b", ax=first.ax_
    )
    assert second.ax_ is first.ax_
    assert second.figure_ is first.figure_
    assert second.line_.get_color() != first.line_.get_color()
    assert len(legend_texts(first)) == 2


def test_keyword_arguments_reach_the_line():
    display = RiskCoverageDisplay.from_predictions(Y, PRED, SCORE, c="red", lw=3)
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
    assert legend_texts(display) == ["AURC = 0.25"]


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
        RiskCoverageDisplay.from_predictions(Y, PRED, {})
    with pytest.raises(ValueError, match="name='a' is for a single score"):
        RiskCoverageDisplay.from_predictions(Y, PRED, {"b": SCORE}, name="a")


@pytest.mark.parametrize("wrap", [False, True])
def test_classifier(wrap):
    """Rows of the class that was not fitted are left out."""
    known = Y_IRIS != 2
    model = LogisticRegression(max_iter=500, C=0.01)
    model = make_pipeline(StandardScaler(), model) if wrap else model
    model.fit(X_IRIS[known], Y_IRIS[known])
    display = RiskCoverageDisplay.from_estimator(model, X_IRIS, Y_IRIS)
    coverage, risk, _ = risk_coverage_curve(
        Y_IRIS[known],
        model.predict(X_IRIS[known]),
        model.predict_proba(X_IRIS[known]).max(axis=1),
    )
    assert_array_equal(display.line_.get_xydata(), np.column_stack([coverage, risk]))
    assert display.name == ["LogisticRegression"]


def test_detector_around_a_classifier():
    """Its own score is used, not the probabilities that it has, too."""
    noisy = np.where(RNG.rand(150) < 0.7, Y_IRIS, 0)
    detector = MarginDetector().fit(X_IRIS, Y_IRIS)
    display = RiskCoverageDisplay.from_estimator(detector, X_IRIS, noisy, name="norm")
    coverage, risk, _ = risk_coverage_curve(
        noisy, detector.estimator_.predict(X_IRIS), detector.score_samples(X_IRIS)
    )
    assert_array_equal(display.line_.get_xydata(), np.column_stack([coverage, risk]))
    assert display.name == ["norm"]


def test_errors_of_from_estimator():
    with pytest.raises(
        TypeError, match=r"with predict_proba, or .*Got RidgeClassifier"
    ):
        RiskCoverageDisplay.from_estimator(
            RidgeClassifier().fit(X_IRIS, Y_IRIS), X_IRIS, Y_IRIS
        )
    model = LogisticRegression(max_iter=500).fit(X_IRIS, Y_IRIS)
    with pytest.raises(ValueError, match="No in-distribution rows in y: every label"):
        RiskCoverageDisplay.from_estimator(model, X_IRIS, Y_IRIS + 7)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    display = RiskCoverageDisplay(coverage=[[1.0]], risk=[[0.2]])
    with pytest.raises(ImportError, match=r'RiskCov.*plot needs .*"skood\[plot\]"'):
        display.plot()

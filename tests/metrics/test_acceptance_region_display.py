"""Tests of `AcceptanceRegionDisplay`: what is shaded is what the rule accepts."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline

from skood.detectors import MSP
from skood.metrics import AcceptanceRegionDisplay
from skood.rejection import BoundedAbstention, BoundedTPRFPR, OperatingPoint
from tests.metrics._double_samples import make_samples, relabel, roc_curve
from tests.metrics._drawing import legend_texts
from tests.metrics._rejector import fit_rejector, make_blobs_ood

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

RNG = np.random.default_rng(0)
Y_TRUE, Y_PRED, _, _ = make_samples(5, 300)
# both negated scores are in (0, 1), so that every scale takes them
Y_SCORE, OOD_SCORE = -RNG.beta(0.5, 2.0, 300), -RNG.beta(0.3, 3.0, 300)
IS_ID, WRONG = Y_TRUE != -1, Y_TRUE != Y_PRED


def draw(point, **params):
    return AcceptanceRegionDisplay.from_predictions(
        Y_TRUE, Y_PRED, Y_SCORE, OOD_SCORE, point=point, **params
    )


def shaded(display, points):
    """Tell which points of the plane lie in the shaded polygon, on the screen."""
    to_screen = display.ax_.transData.transform
    corners = display.region_.get_xy()
    if len(corners) == 0:
        return np.zeros(len(points), dtype=bool)
    path = matplotlib.path.Path(to_screen(corners), closed=True)
    return path.contains_points(to_screen(points))


def points_in(display, n=4000):
    """Points all over the screen, none of them within half a pixel of the border."""
    ax = display.ax_
    screen = np.random.default_rng(1).uniform(size=(n, 2)) * ax.bbox.size + ax.bbox.min
    points = ax.transData.inverted().transform(screen)
    point = display.point
    if len(display.line_.get_xydata()) == 0:
        return points
    # a point is near the border if the rule changes its mind half a pixel from it
    near = np.zeros(n, dtype=bool)
    for shift in ((0.5, 0), (-0.5, 0), (0, 0.5), (0, -0.5)):
        moved = ax.transData.inverted().transform(screen + shift)
        near |= point.accept(*points.T) != point.accept(*moved.T)
    return points[~near]


THETAS = [0.0, 0.02, 0.6, 1.56, math.pi / 2, 2.5, math.pi, -2.0, -math.pi / 2]


@pytest.mark.parametrize("scales", ["linear", "log", "symlog", "logit"])
@pytest.mark.parametrize("theta", THETAS, ids=lambda theta: f"{theta:.2f}")
def test_shaded_is_what_the_rule_accepts(theta, scales):
    c = (0.7, 0.3)
    middle = [np.cos(theta) * 0.2 / c[0] + np.sin(theta) * 0.1 / c[1]]
    point = OperatingPoint(theta=theta, lam=float(middle[0]), scales=c)
    display = draw(point, xscale=scales, yscale=scales)
    points = points_in(display)
    accepted = point.accept(*points.T)
    assert 0 < accepted.sum() < accepted.size
    assert points.shape[0] > 3900
    assert_array_equal(shaded(display, points), accepted)


def test_shaded_with_a_logarithmic_axis():
    point = OperatingPoint(theta=0.8, lam=1.0, scales=(0.5, 0.2))
    display = draw(point, yscale="log")
    points = points_in(display)
    assert_array_equal(shaded(display, points), point.accept(*points.T))
    assert display.ax_.get_xscale() == "linear"


@pytest.mark.parametrize("scales", ["linear", "log"])
@pytest.mark.parametrize("theta", [0.0, 0.4, 1.3, math.pi / 2, 2.2])
def test_border_is_the_line_of_the_rule(theta, scales):
    point = OperatingPoint(
        theta=theta, lam=np.cos(theta) * 0.3 + np.sin(theta) * 0.2, scales=(1.0, 1.0)
    )
    display = draw(point, xscale=scales, yscale=scales)
    a, b = display.line_.get_data()
    assert_allclose(np.cos(theta) * a + np.sin(theta) * b, point.lam, atol=1e-12)
    ends = display.ax_.transAxes.inverted().transform(
        display.ax_.transData.transform(display.line_.get_xydata()[[0, -1]])
    )
    assert_allclose(np.minimum(ends, 1 - ends).min(axis=1), 0, atol=1e-9)
    screen = display.ax_.transData.transform(display.line_.get_xydata())
    steps = np.diff(screen, axis=0)
    assert np.linalg.norm(steps, axis=1).max() < 5  # pixels: a curve looks like one
    onwards, backwards = (steps > -1e-6).all(axis=0), (steps < 1e-6).all(axis=0)
    assert (onwards | backwards).all()  # it does not turn back


def test_right_angles_give_straight_lines():
    vertical = draw(OperatingPoint(theta=0.0, lam=0.5, scales=(0.4, 9.0)))
    assert_allclose(vertical.line_.get_xdata(), 0.2, rtol=1e-12)
    horizontal = draw(OperatingPoint(theta=math.pi / 2, lam=0.5, scales=(9.0, 0.4)))
    assert_allclose(horizontal.line_.get_ydata(), 0.2, rtol=1e-12)


@pytest.mark.parametrize(
    ("lam", "share", "label"),
    [
        (math.inf, 1.0, "accepted region"),
        (1e3, 1.0, "accepted region"),
        (-math.inf, 0.0, "no accepted region here"),
        (-1e3, 0.0, "no accepted region here"),
    ],
    ids=["all", "far-above", "none", "far-below"],
)
def test_border_out_of_sight(lam, share, label):
    point = OperatingPoint(theta=0.7, lam=lam, tau=0.0 if lam == -math.inf else 1.0)
    display = draw(point)
    assert len(display.line_.get_xydata()) == 0
    assert shaded(display, points_in(display)).mean() == share
    assert label in legend_texts(display)
    assert (
        f"{100 * share:.1f} % of {np.sum(~IS_ID)} accepted" in legend_texts(display)[2]
    )


def test_points_are_the_samples_and_the_legend_has_the_shares():
    point = OperatingPoint(theta=0.5, lam=0.4, scales=(0.9, 0.6))
    display = draw(point)
    kinds = IS_ID & ~WRONG, IS_ID & WRONG, ~IS_ID
    lines = display.points_right_, display.points_wrong_, display.points_ood_
    accepted = np.cos(0.5) * -Y_SCORE / 0.9 + np.sin(0.5) * -OOD_SCORE / 0.6 <= 0.4
    names = "ID, right", "ID, wrong", "OOD"
    for kind, line, name in zip(kinds, lines, names, strict=True):
        assert_array_equal(line.get_xdata(), -Y_SCORE[kind])
        assert_array_equal(line.get_ydata(), -OOD_SCORE[kind])
        share = 100 * accepted[kind].mean()
        expected = f"{name}: {share:.1f} % of {kind.sum()} accepted"
        assert line.get_label() == expected
        assert expected in legend_texts(display)
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 3
    assert legend_texts(display)[-1] == "rule: θ = 28.6°, λ = 0.4"
    ax = display.ax_
    assert ax.get_xlabel() == "a = -y_score  (high = reject)"
    assert ax.get_ylabel() == "b = -ood_score  (high = reject)"
    for x, y in (line.get_data() for line in lines):
        for values, (low, high) in ((x, ax.get_xlim()), (y, ax.get_ylim())):
            assert low < values.min() <= values.max() < high


def test_subset_of_many_samples_is_drawn():
    point = OperatingPoint(theta=0.5, lam=0.4)
    whole = draw(point)
    subset = draw(point, max_points=40)
    again = draw(point, max_points=40)
    other = draw(point, max_points=40, random_state=1)
    for name in ("points_right_", "points_wrong_", "points_ood_"):
        samples = {tuple(row) for row in getattr(whole, name).get_xydata()}
        drawn = getattr(subset, name).get_xydata()
        assert len(drawn) == 40 < len(samples)
        assert {tuple(row) for row in drawn} <= samples
        assert_array_equal(drawn, getattr(again, name).get_xydata())
    assert not np.array_equal(
        subset.points_ood_.get_xydata(), other.points_ood_.get_xydata()
    )
    assert legend_texts(subset) == legend_texts(whole)
    assert subset.ax_.get_xlim() == whole.ax_.get_xlim()


def test_randomized_rule():
    y_true, y_score = [0, 0, 0, 0, -1], [3.0, 2.0, 2.0, 1.0, 2.0]
    point = OperatingPoint(theta=0.0, lam=-2.0, tau=0.25)
    display = AcceptanceRegionDisplay.from_predictions(
        y_true, [0] * 5, y_score, point=point
    )
    assert legend_texts(display) == [
        "ID, right: 37.5 % of 4 accepted",
        "OOD: 25.0 % of 1 accepted",
        "accepted region",
        "rule: θ = 0.0°, λ = -2, τ = 0.25",
    ]
    assert display.points_wrong_ is None


@pytest.mark.parametrize("theta", [0.0, math.pi], ids=["high-rejected", "reversed"])
@pytest.mark.parametrize("xscale", ["linear", "log"])
def test_single_score_is_a_strip_for_each_kind(xscale, theta):
    point = OperatingPoint(theta=theta, lam=math.cos(theta) * 0.5, scales=(0.4, 1.0))
    display = AcceptanceRegionDisplay.from_predictions(
        Y_TRUE, Y_PRED, Y_SCORE, point=point, xscale=xscale
    )
    assert_allclose(display.line_.get_xdata(), 0.2, rtol=1e-12)
    points = points_in(display)
    below = points[:, 0] <= 0.2
    assert_array_equal(shaded(display, points), below if theta == 0 else ~below)
    ticks = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert ticks == ["ID, right", "ID, wrong", "OOD"]
    heights = display.ax_.get_yticks()
    kinds = IS_ID & ~WRONG, IS_ID & WRONG, ~IS_ID
    lines = display.points_right_, display.points_wrong_, display.points_ood_
    for kind, line, height in zip(kinds, lines, heights, strict=True):
        assert_array_equal(line.get_xdata(), -Y_SCORE[kind])
        assert np.abs(line.get_ydata() - height).max() < 0.36
    assert display.ax_.get_ylabel() == ""


def test_samples_that_cannot_be_drawn_are_counted():
    y_true, y_pred = [0, 0, 0, 0, -1, -1], [0, 0, 0, 1, 0, 0]
    y_score = [-1.0, -2.0, np.inf, -1.0, 3.0, -0.5]
    ood_score = [-1.0, -np.inf, -1.0, -1.0, -2.0, -3.0]
    point = OperatingPoint(theta=0.3, lam=2.0)
    params = {"point": point, "xscale": "log", "yscale": "log"}
    display = AcceptanceRegionDisplay.from_predictions(
        y_true, y_pred, y_score, ood_score, **params
    )
    assert legend_texts(display)[:3] == [
        "ID, right: 66.7 % of 3 accepted (2 infinite)",
        "ID, wrong: 100.0 % of 1 accepted",
        "OOD: 100.0 % of 2 accepted (1 off the scale)",
    ]
    assert_array_equal(display.points_right_.get_xydata(), [[1, 1]])
    assert_array_equal(display.points_ood_.get_xydata(), [[0.5, 3]])


def test_probabilities_on_a_logit_axis():
    display = AcceptanceRegionDisplay.from_predictions(
        [0, 0, 0, -1],
        [0] * 4,
        [-0.1, -1.0, -0.0, -0.9],
        point=OperatingPoint(theta=0.0, lam=0.5),
        xscale="logit",
    )
    assert (
        legend_texts(display)[0] == "ID, right: 66.7 % of 3 accepted (2 off the scale)"
    )


def test_single_sample_has_margins():
    display = AcceptanceRegionDisplay.from_predictions(
        [0], [0], [-4.0], [-2.0], point=OperatingPoint(theta=0.1, lam=1.0)
    )
    left, right = display.ax_.get_xlim()
    assert left < 4 < right
    assert legend_texts(display)[0] == "ID, right: 0.0 % of 1 accepted"
    assert display.points_ood_ is display.points_wrong_ is None


def test_classifier_is_drawn_with_its_rule():
    clf = fit_rejector(BoundedTPRFPR(0.8, 0.5))
    X, y = make_blobs_ood(1)
    display = AcceptanceRegionDisplay.from_estimator(
        make_pipeline("passthrough", clf), X, np.where(y == -1, 9, y), alpha=0.2
    )
    norm = np.linalg.norm(X, axis=1)
    ood = y == -1
    assert_allclose(display.points_ood_.get_ydata(), norm[ood], rtol=1e-12)
    assert_allclose(
        display.points_ood_.get_xdata(),
        1 - clf.predict_proba(X[ood]).max(axis=1),
        atol=1e-12,
    )
    wrong = clf.predict_proba(X).argmax(axis=1) != y
    assert_allclose(
        np.sort(display.points_wrong_.get_ydata()), np.sort(norm[wrong & ~ood])
    )
    rates = [clf.accept_proba(X[kind]).mean() for kind in (~wrong, wrong & ~ood, ood)]
    for rate, text in zip(rates, legend_texts(display), strict=False):
        assert f": {100 * rate:.1f} % of" in text
    assert display.ax_.get_xlabel() == "a = 1 - max probability  (high = reject)"
    assert display.ax_.get_ylabel() == "b = -MarginDetector score  (high = reject)"
    assert display.points_ood_.get_alpha() == 0.2
    points = points_in(display)
    point = clf.operating_point_
    assert_array_equal(shaded(display, points), point.accept(*points.T))


def test_classifier_with_a_single_detector():
    clf = fit_rejector(BoundedAbstention(0.7), ood_detector=False, risk_detector=MSP())
    X, y = make_blobs_ood(1)
    display = AcceptanceRegionDisplay.from_estimator(clf, X[y != -1], y[y != -1])
    assert display.ax_.get_xlabel() == "a = -MSP score  (high = reject)"
    assert display.points_ood_ is None
    assert_allclose(
        display.line_.get_xdata(), clf.lambda_ * clf.operating_point_.scales[0]
    )


def test_rule_of_a_curve_and_string_labels():
    curve = roc_curve(Y_TRUE, Y_SCORE, OOD_SCORE)
    point = curve.rule_at(0.8)
    display = AcceptanceRegionDisplay.from_predictions(
        relabel(Y_TRUE),
        relabel(Y_PRED),
        Y_SCORE,
        OOD_SCORE,
        point=point,
        ood_label="other",
    )
    fpr = curve.at(0.8)
    assert f"OOD: {100 * fpr:.1f} % of" in legend_texts(display)[2]


def test_errors():
    X, y = make_blobs_ood(0)
    with pytest.raises(ValueError, match=r"has rule=None.*Set a rule"):
        AcceptanceRegionDisplay.from_estimator(fit_rejector(None), X, y)
    with pytest.raises(
        TypeError, match=r"AcceptanceRegionDisplay\.from_estimator need"
    ):
        AcceptanceRegionDisplay.from_estimator(MSP(), X, y)
    with pytest.raises(TypeError, match=r"point must be an OperatingPoint.* got 1"):
        draw(1)
    point = OperatingPoint(theta=0.0, lam=0.5)
    params = {"point": point, "yscale": "log"}
    with pytest.raises(ValueError, match=r"yscale='log' is for the second score"):
        AcceptanceRegionDisplay.from_predictions(Y_TRUE, Y_PRED, Y_SCORE, **params)
    with pytest.raises(
        ValueError, match=r"No sample can be drawn.*'symlog' for scores"
    ):
        AcceptanceRegionDisplay.from_predictions(
            Y_TRUE, Y_PRED, -Y_SCORE, point=point, xscale="log"
        )
    with pytest.raises(
        ValueError, match=r"max_points.*must be an int in the range \[1"
    ):
        draw(point, max_points=0)
    with pytest.raises(ValueError, match="ood is None although the rule has two"):
        AcceptanceRegionDisplay.from_predictions(
            Y_TRUE, Y_PRED, Y_SCORE, point=OperatingPoint(theta=1.0, lam=0.5)
        )


def test_failed_plot_leaves_no_figure():
    import matplotlib.pyplot as plt

    with pytest.raises(ValueError, match="No sample can be drawn"):
        AcceptanceRegionDisplay.from_predictions(
            [0, 1], [0, 1], [np.inf, np.inf], point=OperatingPoint(theta=0.0, lam=0.0)
        )
    assert plt.get_fignums() == []


def test_docstring_has_the_equation():
    assert r"\sin\theta\, b/c_b" in AcceptanceRegionDisplay.__doc__
    assert r"\theta\\, b" not in AcceptanceRegionDisplay.__doc__

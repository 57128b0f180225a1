"""Tests of `ReliabilityDisplay`: what is drawn are the numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.metrics import ReliabilityDisplay, expected_calibration_error
from tests.metrics._drawing import legend_texts

pytest.importorskip("matplotlib").use("Agg")


def _draw(n, seed=0, power=1.0):
    """Labels that are drawn from the probabilities, to a power, and OOD samples."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.ones(3), size=n)
    true = proba**power / np.sum(proba**power, axis=1, keepdims=True)
    y = (rng.random(n)[:, None] > np.cumsum(true, axis=1)).sum(axis=1)
    return np.where(rng.random(n) < 0.1, -1, y), proba


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_points_are_those_of_a_loop(strategy):
    y, proba = _draw(400)
    binning = {"n_bins": 6, "strategy": strategy}
    display = ReliabilityDisplay.from_predictions(
        y, proba, **binning, n_resamples=49, confidence_level=0.9
    )
    is_id = y != -1
    top, right = proba[is_id].max(axis=1), proba[is_id].argmax(axis=1) == y[is_id]
    edges = np.arange(1, 7) / 6
    if strategy == "quantile":
        edges = np.sort(top)[[int(np.ceil(k * top.size / 6)) - 1 for k in range(1, 7)]]
    low, b = -1.0, 0
    for high in edges:
        inside = (top > low) & (top <= high)
        low = high
        if not inside.any():
            continue
        assert display.n_samples[b] == inside.sum()
        assert_allclose(display.confidence[b], top[inside].mean(), rtol=1e-12)
        assert_allclose(display.accuracy[b], right[inside].mean(), rtol=1e-12)
        exact = binomtest(int(right[inside].sum()), int(inside.sum())).proportion_ci(
            0.9
        )
        assert_allclose([display.low[b], display.high[b]], list(exact), atol=1e-9)
        b += 1
    assert b == len(display.n_samples)
    shares = display.n_samples / display.n_samples.sum()
    assert_allclose(shares.sum(), 1)
    gaps = np.abs(display.accuracy - display.confidence)
    ece = expected_calibration_error(y, proba, **binning)
    assert_allclose([shares @ gaps, display.ece], ece, rtol=1e-12)
    assert display.interval[0] <= ece <= display.interval[1]
    points = display.errorbar_.lines[0]
    assert_array_equal(points.get_xdata(), display.confidence)
    assert_array_equal(points.get_ydata(), display.accuracy)
    assert_allclose([bar.get_height() for bar in display.bars_], shares)
    assert legend_texts(display)[1].startswith(f"ECE {ece:.3f} [")


def test_a_calibrated_draw():
    y, proba = _draw(100_000)
    display = ReliabilityDisplay.from_predictions(y, proba, n_resamples=9)
    assert display.ece < 0.01
    inside = (display.low <= display.confidence) & (display.confidence <= display.high)
    assert inside.mean() > 0.8  # of intervals of 95 %
    y, proba = _draw(20_000, power=0.5)
    overconfident = ReliabilityDisplay.from_predictions(y, proba, n_resamples=9)
    assert overconfident.ece > 0.05
    # not where the largest probability is hardly above chance
    assert np.all(overconfident.accuracy[1:] < overconfident.confidence[1:])


def test_several_classifiers_on_shared_axes(iris):
    X, y = iris
    options = {"n_resamples": 19}
    first = ReliabilityDisplay.from_estimator(
        LogisticRegression().fit(X, y), X, y, **options
    )
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=1e-3)).fit(X, y)
    second = ReliabilityDisplay.from_estimator(
        pipeline, X, y, ax=first.ax_, name="weak", **options
    )
    assert second.ax_ is first.ax_
    texts = legend_texts(second)
    assert texts[0] == "calibrated"
    assert texts[1].startswith("LogisticRegression: ECE 0.")
    assert texts[2].startswith(f"weak: ECE {second.ece:.3f}")
    colors = [d.errorbar_.lines[0].get_color() for d in (first, second)]
    assert colors[0] != colors[1]
    # an unknown class is left out
    known = LogisticRegression().fit(X[y < 2], y[y < 2])
    display = ReliabilityDisplay.from_estimator(known, X, y, **options)
    assert display.n_samples.sum() == 100


def test_errors(iris):
    X, y = iris
    with pytest.raises(TypeError, match="RidgeClassifier has none"):
        ReliabilityDisplay.from_estimator(RidgeClassifier().fit(X, y), X, y)
    with pytest.raises(ValueError, match="n_bins"):
        ReliabilityDisplay.from_predictions([0, 1], [[0.5, 0.5], [0.1, 0.9]], n_bins=0)

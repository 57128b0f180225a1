"""Tests of `ScoreHistogramDisplay`: what is drawn are the numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.datasets import load_iris
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline

from skood.metrics import ScoreHistogramDisplay
from tests.metrics._drawing import MarginDetector, legend_texts

draw = ScoreHistogramDisplay.from_predictions

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

RNG = np.random.RandomState(0)
Y = RNG.choice([0, 1, -1], 300)
SCORE = RNG.normal(size=300).round(1) + (Y != -1)
X_IRIS, Y_IRIS = load_iris(return_X_y=True)


def test_counts_of_the_samples():
    display = draw(Y, SCORE, bins=17, density=False)
    assert display.bin_edges_.size == 18
    assert display.counts_id_.sum() == np.sum(Y != -1)
    assert display.counts_ood_.sum() == np.sum(Y == -1)
    expected = np.histogram(SCORE[Y != -1], display.bin_edges_)[0]
    assert_array_equal(display.counts_id_, expected)
    assert display.patch_id_.get_xy()[:, 1].max() == expected.max()
    assert display.ax_.get_xlabel() == "score (high = in-distribution)"
    assert display.ax_.get_ylabel() == "samples per bin"
    assert legend_texts(display) == [
        f"in-distribution ({np.sum(Y != -1)} samples)",
        f"out-of-distribution ({np.sum(Y == -1)} samples)",
    ]
    assert display.line_ is None


def test_densities_have_unit_area():
    display = draw(Y, SCORE)
    width = np.diff(display.bin_edges_)
    assert_allclose(np.sum(display.counts_id_ * width), 1)
    assert_allclose(np.sum(display.counts_ood_ * width), 1)
    assert display.ax_.get_ylabel() == "density"


def test_threshold_line_and_its_rates():
    y, score = [0, 0, 1, 1, -1, -1], [3.0, 2.0, 1.0, 0.0, 1.0, 0.5]
    display = draw(y, score, threshold=1.0)
    assert_array_equal(display.line_.get_xdata(), [1.0, 1.0])
    assert legend_texts(display)[-1] == "threshold (TPR 0.75, FPR 0.50)"


def test_infinite_scores_are_counted_in_the_legend():
    y, score = [0, 0, 1, -1, -1], [1.0, 2.0, np.inf, -np.inf, -np.inf]
    display = draw(y, score)
    assert legend_texts(display) == [
        "in-distribution (3 samples, 1 infinite)",
        "out-of-distribution (2 samples, 2 infinite)",
    ]
    assert_array_equal(display.counts_ood_, np.zeros(30))


def test_histogram_of_a_detector_with_a_left_out_class():
    known = Y_IRIS != 2
    detector = MarginDetector().fit(X_IRIS[known], Y_IRIS[known])
    display = ScoreHistogramDisplay.from_estimator(
        make_pipeline("passthrough", detector), X_IRIS, Y_IRIS, density=False
    )
    assert_array_equal(display.scores_id, detector.score_samples(X_IRIS[known]))
    assert_array_equal(display.scores_ood, detector.score_samples(X_IRIS[~known]))
    assert display.counts_ood_.sum() == 50
    assert display.threshold == -8.0
    assert display.ax_.get_title() == "MarginDetector"


def test_histogram_of_scikit_learns_detectors():
    y = np.where(Y_IRIS == 2, -1, 1)
    forest = IsolationForest(random_state=0).fit(X_IRIS[y == 1])
    display = ScoreHistogramDisplay.from_estimator(forest, X_IRIS, y, name="forest")
    assert display.threshold == forest.offset_
    accepted = (forest.predict(X_IRIS) == 1)[y == 1].mean()
    assert f"TPR {accepted:.2f}" in legend_texts(display)[-1]
    assert display.ax_.get_title() == "forest"
    density = KernelDensity().fit(X_IRIS[y == 1])
    assert ScoreHistogramDisplay.from_estimator(density, X_IRIS, y).line_ is None


def test_histogram_options():
    display = draw(Y, SCORE, log=True, alpha=0.5)
    assert display.ax_.get_yscale() == "log"
    assert display.patch_id_.get_alpha() == 0.5
    assert display.ax_.get_title() == ""
    again = display.plot(display.ax_, name="again")
    assert again.ax_.get_title() == "again"


def test_errors_of_histograms():
    with pytest.raises(TypeError, match="score_samples, RidgeClassifier has none"):
        ScoreHistogramDisplay.from_estimator(RidgeClassifier(), X_IRIS, Y_IRIS)
    with pytest.raises(ValueError, match="No OOD samples in y_true"):
        draw([0, 1], [0.1, 0.2])


@pytest.mark.filterwarnings("error")
def test_nothing_finite_to_draw():
    display = draw([0, 1, -1], [np.inf] * 2 + [-np.inf])
    assert display.counts_id_.sum() == display.counts_ood_.sum() == 0
    bottom, top = display.ax_.get_ylim()
    assert bottom < top


@pytest.mark.parametrize("name", ["fc", "facecolor"])
def test_short_names_of_keyword_arguments(name):
    from matplotlib.colors import to_rgba

    display = draw(Y, SCORE, lw=3, **{name: "red"})
    assert display.patch_id_.get_facecolor() == to_rgba("red")
    assert display.patch_ood_.get_linewidth() == 3


def test_bad_arguments_leave_no_figure():
    import matplotlib.pyplot as plt

    display = ScoreHistogramDisplay(scores_id=SCORE, scores_ood=SCORE)
    with pytest.raises(ValueError, match="orientation='horizontal' is not supported"):
        display.plot(orientation="horizontal")
    with pytest.raises(AttributeError, match="colr"):
        display.plot(colr="red")
    assert plt.get_fignums() == []
    assert display.plot(orientation="vertical").ax_.get_xlabel().startswith("score")


@pytest.mark.parametrize("fit", ["genextreme", "norm", "gennorm", "uniform"])
def test_fitted_distribution_and_its_distance_are_scipys(fit):
    rng = np.random.default_rng(1)
    scores = np.concatenate([-rng.gumbel(size=200).round(2), rng.normal(size=50) - 4])
    y = np.repeat([0, -1], [200, 50])
    display = draw(y, scores, fit=fit)
    distribution = getattr(stats, fit)(**display.distribution_)
    outlier = -scores[:200]
    distance = stats.kstest(outlier, distribution.cdf).statistic
    assert_allclose(display.distance_, distance, rtol=1e-9)
    individual = getattr(stats, fit).logpdf(outlier, *getattr(stats, fit).fit(outlier))
    assert distribution.logpdf(outlier).sum() > individual.sum() - 0.01
    *_, density = display.ax_.lines
    x, drawn = density.get_data()
    assert_allclose(drawn, distribution.pdf(-x), rtol=1e-6, atol=1e-12)
    empirical, survival = display.ax_survival_.lines
    x, drawn = survival.get_data()
    assert_allclose(drawn, distribution.sf(-x), rtol=1e-6, atol=1e-11)
    x, drawn = empirical.get_data()
    # P(O >= o) at a score, which is the fraction of scores up to it
    for at in (0, 60, 199):
        assert drawn[x == x[at]].max() == np.mean(outlier >= -x[at])
    texts = [t.get_text() for t in display.ax_survival_.get_legend().get_texts()]
    assert texts == ["in-distribution", f"{fit} (KS distance {distance:.3f})"]
    assert display.ax_survival_.get_xlabel() == "score (high = in-distribution)"
    # drawn again without a fit
    display.plot()
    assert display.distribution_ is display.distance_ is display.ax_survival_ is None


def test_panel_of_axes_that_are_placed_by_hand():
    figure = pyplot.figure()
    ax = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    display = draw(Y, SCORE, fit="norm", ax=ax)
    upper, lower = (axes.get_position() for axes in (ax, display.ax_survival_))
    assert 0.1 <= lower.y0 < lower.y1 < upper.y0 < upper.y1 <= 0.9
    assert lower.width == pytest.approx(upper.width) == pytest.approx(0.8)


def test_a_distribution_that_does_not_fit_is_shown_with_its_distance():
    scores = np.append(np.repeat([1.0, 2.0], 50), [0.0, 0.5])
    y = np.repeat([0, -1], [100, 2])
    display = draw(y, scores, fit="genextreme")
    assert display.distance_ > 0.3


def test_errors_of_fits():
    y, scores = [0, 0, 0, -1], [1.0, 1.0, 1.0, 0.0]
    with pytest.raises(
        ValueError, match=r"cannot be fitted to the 3 scores of ID samp"
    ):
        draw(y, scores, fit="norm")
    with pytest.raises(
        ValueError, match=r"fit must be one of \['genextreme', .* 'gev'"
    ):
        draw(y, scores, fit="gev")
    with pytest.raises(ValueError, match=r"needs density=True .* got False"):
        draw(y, scores, fit="norm", density=False)

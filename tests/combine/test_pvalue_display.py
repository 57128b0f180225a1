"""Tests of `PValuePlotDisplay`: what is drawn are the numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from skood.combine import (
    DSDE,
    BenjaminiHochberg,
    Bonferroni,
    DOSStorey,
    Naive,
    PValuePlotDisplay,
    Storey,
    Vote,
)
from skood.detectors import KNN
from tests.combine._members import equicorrelated, frozen_columns, frozen_ensemble
from tests.metrics._drawing import legend_texts

draw = PValuePlotDisplay.from_pvalues

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

# The p-values of the guide: k = 3, pi0 = (4 / 7) / 0.97.
P_ROW = np.array([0.5, 0.001, 0.7, 0.03, 0.9, 0.008, 0.2])
PI0 = (4 / 7) / 0.97
NAMES = ["a", "b", "c", "d", "e", "f", "g"]


@pytest.fixture(autouse=True)
def close_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def tick_names(ax):
    return [text.get_text() for text in ax.get_xticklabels()]


def slope(line):
    (x0, y0), (x1, y1) = line.get_xydata()
    return (y1 - y0) / (x1 - x0)


def test_lines_are_the_numbers():
    display = draw(P_ROW, names=NAMES)
    assert_array_equal(display.line_.get_xdata(), np.arange(1, 8))
    assert_array_equal(display.line_.get_ydata(), np.sort(P_ROW))
    assert tick_names(display.ax_) == ["b", "f", "d", "g", "a", "c", "e"]
    assert_array_equal(
        display.selected_line_.get_xydata(), [[1, 0.001], [2, 0.008], [3, 0.03]]
    )
    assert_allclose(display.bh_line_.get_xydata(), [[0, 0], [7, 0.05]], rtol=1e-15)
    assert_allclose(
        display.adaptive_line_.get_xydata(), [[0, 0], [7, 0.05 / PI0]], rtol=1e-14
    )
    first, second = display.slope_lines_
    assert_array_equal(first.get_xydata(), [[0, 0], [3, 0.03]])
    assert_array_equal(second.get_xydata(), [[3, 0.03], [7, 1]])
    assert legend_texts(display) == [
        r"$α\, i / m$ (BH)",
        r"$α\, i / (\hat\pi_0 m)$, $\hat\pi_0$ = 0.589",
        "slopes, change point 3",
        "p-value",
        "selected (3 of 7)",
    ]
    level = PI0 * 7 * 0.001  # of the smallest p-value
    assert display.ax_.get_title() == f"OOD (level {level:.3g} ≤ 0.05)"
    assert display.ax_.get_ylabel() == "p-value"
    assert display.figure_ is display.ax_.figure


def test_slope_of_the_null_pvalues_is_that_of_the_adaptive_line_over_alpha():
    display = draw(P_ROW, alpha=0.1)
    _, null = display.slope_lines_
    assert_allclose(slope(null), 1 / (PI0 * 7), rtol=1e-14)
    assert_allclose(slope(display.adaptive_line_), 0.1 * slope(null), rtol=1e-14)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_selected_members_end_at_the_last_pvalue_below_the_adaptive_line(seed, alpha):
    rng = np.random.default_rng(seed)
    p = rng.uniform(size=18) ** rng.uniform(1, 6, size=18)
    display = draw(p, alpha=alpha)
    x, y = display.line_.get_data()
    below = np.flatnonzero(y <= x * slope(display.adaptive_line_))
    n_selected = below.max() + 1 if below.size else 0
    assert_array_equal(display.selected_line_.get_ydata(), y[:n_selected])
    assert_array_equal(display.pvalues, [p])


def test_combiner_without_estimates():
    display = draw(P_ROW, combiner=BenjaminiHochberg())
    assert display.pi0 is display.change_point is None
    assert display.adaptive_line_ is display.slope_lines_ is None
    assert display.selected_line_.get_ydata().tolist() == [0.001, 0.008]
    assert tick_names(display.ax_) == list("1536024")
    assert legend_texts(display) == [
        r"$α\, i / m$ (BH)",
        "p-value",
        "selected (2 of 7)",
    ]


def test_combiner_without_a_change_point():
    display = draw(P_ROW, combiner=Storey(plus_one=True))
    pi0 = 3 / 3.5  # 0.7 and 0.9 are above one half
    assert display.slope_lines_ is display.change_point is None
    assert_allclose(display.adaptive_line_.get_ydata()[1], 0.05 / pi0, rtol=1e-14)


def test_line_of_a_proportion_of_zero_goes_straight_up():
    display = draw([0.1, 0.4, 0.2], combiner=Storey())
    assert display.pi0.tolist() == [0.0]
    assert_array_equal(display.adaptive_line_.get_xydata(), [[0, 0], [0, 1]])
    assert len(display.selected_line_.get_xdata()) == 3
    assert display.zoom_ax_ is None
    assert display.ax_.get_title() == "OOD (level 0 ≤ 0.05)"


def test_no_change_point_where_no_difference_is_positive():
    p = [0.1, 0.2, 0.21, 0.22, 0.23, 0.24, 0.25]
    display = draw(p)
    assert display.slope_lines_ is None
    assert_array_equal(
        display.adaptive_line_.get_xydata(), display.bh_line_.get_xydata()
    )
    assert display.ax_.get_title() == "ID (level 0.25 > 0.05)"
    literal = draw(p, combiner=DOSStorey(fallback="argmax"))
    assert_array_equal(literal.slope_lines_[0].get_xydata(), [[0, 0], [3, 0.21]])


def test_equal_pvalues_keep_the_order_of_the_members():
    display = draw(
        [0.3, 0.02, 0.3, 0.02], names=["a", "b", "c", "d"], combiner=Bonferroni()
    )
    assert tick_names(display.ax_) == ["b", "d", "a", "c"]
    assert display.selected_line_.get_xdata().size == 0
    naive = draw([0.3, 0.02, 0.3, 0.02], combiner=Naive())
    assert_array_equal(naive.selected_line_.get_xydata(), [[1, 0.02], [2, 0.02]])


def test_zoom_shows_the_same_lines():
    display = draw(P_ROW)
    bh, adaptive, p, selected = display.zoom_ax_.lines
    for line, of in (
        (bh, display.bh_line_),
        (adaptive, display.adaptive_line_),
        (p, display.line_),
        (selected, display.selected_line_),
    ):
        assert_array_equal(line.get_xydata(), of.get_xydata())
    # three members below 0.085, and one more
    assert display.zoom_ax_.get_xlim() == (0, 4.5)
    top = 1.3 * 0.05 / PI0 * 4 / 7
    assert_allclose(display.zoom_ax_.get_ylim(), (-0.08 * top, top), rtol=1e-14)
    assert draw(P_ROW, plot_zoom=False).zoom_ax_ is None


def test_zoom_is_where_nothing_else_is():
    # one member objects, the others are high up: the upper left is not free
    low = draw([0.01, 0.9, 0.92, 0.95, 0.97, 1.0])
    left, bottom, _, _ = low.zoom_ax_.get_position().bounds
    box = low.ax_.get_position()
    assert left > box.x0 + 0.5 * box.width and bottom < box.y0 + 0.2 * box.height
    high = draw(P_ROW)
    left, bottom, _, _ = high.zoom_ax_.get_position().bounds
    box = high.ax_.get_position()
    assert left < box.x0 + 0.1 * box.width and bottom > box.y0 + 0.5 * box.height


@pytest.mark.parametrize(
    ("p", "why"),
    [
        ([0.6, 0.7, 0.8, 0.9], "no member is near the lines"),
        ([0.001, 0.5, 0.52, 0.5, 0.51, 0.9], "the p-values go through both corners"),
        ([0.3, 0.32, 0.31, 0.33], "the lines can be seen as they are"),
    ],
)
def test_no_zoom(p, why):
    alpha = 0.5 if why.startswith("the lines") else 0.05
    display = draw(p, alpha=alpha)
    assert display.zoom_ax_ is None, why


def test_no_zoom_without_height():
    display = PValuePlotDisplay(
        pvalues=np.array([[0.0, 1.0]]),
        selected=np.zeros((1, 2), dtype=bool),
        level=np.array([1.0]),
        alpha=0.05,
        cut=0.0,
    )
    assert display.plot().zoom_ax_ is None
    assert legend_texts(display)[0] == r"$c\, i / m$ (BH), c = 0"


def test_several_samples_have_a_panel_each():
    P = np.array([P_ROW, P_ROW[::-1], [0.1, 0.2, 0.21, 0.22, 0.23, 0.24, 0.25]])
    display = draw(P, names=NAMES)
    assert len(display.ax_) == len(display.line_) == len(display.slope_lines_) == 3
    assert display.figure_.axes == display.ax_
    assert tick_names(display.ax_[1]) == ["f", "b", "d", "a", "g", "e", "c"]
    for i, p in enumerate(P):
        single = draw(p, names=NAMES)
        assert_array_equal(display.line_[i].get_xydata(), single.line_.get_xydata())
        assert tick_names(display.ax_[i]) == tick_names(single.ax_)
        assert display.ax_[i].get_title() == f"sample {i}: {single.ax_.get_title()}"
    assert display.slope_lines_[2] is None


def test_axes_of_the_user():
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2)
    display = draw([P_ROW, P_ROW], ax=axes)
    assert display.ax_ == list(axes)
    assert display.figure_ is figure
    first = draw(P_ROW, ax=axes[0], c="black", marker="s")
    assert first.ax_ is axes[0]
    assert first.line_.get_color() == first.selected_line_.get_color() == "black"
    assert first.line_.get_marker() == first.selected_line_.get_marker() == "s"


def test_names_are_written_so_that_they_fit():
    def rotation(m, name):
        display = draw(np.linspace(0.01, 1, m), names=[name] * m)
        return display.ax_.get_xticklabels()[0].get_rotation()

    assert rotation(7, "KNN") == 0
    assert rotation(7, "KNN of the first network") == 30
    assert rotation(18, "KNN of the first network") == 90
    small = draw(np.linspace(0.01, 1, 18))
    large = draw(np.linspace(0.01, 1, 60))
    assert small.figure_.get_size_inches().tolist() == [8.0, 4.2]
    assert large.figure_.get_size_inches().tolist() == [12.0, 4.2]


@pytest.mark.parametrize("m", [1, 2])
def test_few_members(m):
    display = draw([[0.01] * m], combiner=Bonferroni())
    assert_array_equal(display.selected_line_.get_ydata(), [0.01] * m)
    display.figure_.canvas.draw()


def test_ensemble_is_drawn_with_its_numbers():
    rng = np.random.default_rng(0)
    X = equicorrelated(rng, 400, 7, 0.3)
    ensemble = DSDE(
        frozen_columns(7), calibration="same", level="nominal", random_state=0
    ).fit(X)
    new = equicorrelated(rng, 3, 7, 0.3) - [[0] * 7, [3] * 3 + [0] * 4, [1] * 7]
    display = PValuePlotDisplay.from_estimator(
        make_pipeline("passthrough", ensemble), new
    )
    P = ensemble.pvalues(new)
    expected = draw(P, names=[f"c{j}" for j in range(7)])
    for name in ("line_", "selected_line_", "bh_line_", "adaptive_line_"):
        for line, of in zip(
            getattr(display, name), getattr(expected, name), strict=True
        ):
            assert_array_equal(line.get_xydata(), of.get_xydata())
    for ax, of in zip(display.ax_, expected.ax_, strict=True):
        assert tick_names(ax) == tick_names(of)
        assert ax.get_title() == of.get_title()
    assert_array_equal(display.pi0, ensemble.pi0(new))


@pytest.mark.parametrize("alpha", [None, 0.2])
def test_conformal_level_moves_the_lines(alpha):
    rng = np.random.default_rng(1)
    X = equicorrelated(rng, 400, 5, 0.8)
    ensemble = frozen_ensemble(5, Vote(0.4), level="conformal").fit(X)
    new = equicorrelated(rng, 4, 5, 0.8) - np.arange(4)[:, None]
    display = PValuePlotDisplay.from_estimator(ensemble, new, alpha=alpha)
    level = ensemble.levels(new)
    assert_array_equal(display.selected, ensemble.selected_detectors(new, alpha))
    used = 0.05 if alpha is None else alpha
    for i in range(4):
        verdict = "OOD" if level[i] <= used else "ID"
        assert display.ax_[i].get_title().startswith(f"sample {i}: {verdict} (level")
        # the 2nd smallest p-value is compared with the height of the line at its end
        second = display.line_[i].get_ydata()[1]
        (_, (_, height)) = display.bh_line_[i].get_xydata()
        assert (second <= height) == (level[i] <= used)
    assert height != used
    texts = [text.get_text() for text in display.ax_[0].get_legend().get_texts()]
    assert texts[0] == rf"$c\, i / m$ (BH), c = {height:.3g}"


def test_level_that_equals_alpha_in_the_title():
    """7 (1/140) is .05 up to rounding: the sample counts as OOD."""
    row = [1 / 140, 1, 1, 1, 1, 1, 1]
    display = draw(row, combiner=Bonferroni())
    assert display.ax_.get_title() == "OOD (level 0.05 ≤ 0.05)"


def test_few_members_and_names_of_columns():
    frame = pd.DataFrame([[0.01, 0.5, 0.9]], columns=["msp", "knn", "vim"])
    display = draw(frame)
    assert display.names == ["msp", "knn", "vim"]
    assert display.pi0 is None  # Benjamini-Hochberg estimates none
    assert display.level[0] == pytest.approx(0.03)


def test_errors():
    with pytest.raises(
        ValueError, match=r"P must be in \[0, 1\], got values from 0.1 to 1.5"
    ):
        draw([0.5, 1.5, 0.2, 0.1])
    with pytest.raises(ValueError, match="P must have the shape"):
        draw(np.zeros((2, 2, 2)))
    message = "names must be a list of 7 names, one for each"
    with pytest.raises(ValueError, match=message):
        draw(P_ROW, names=NAMES[:6])
    with pytest.raises(ValueError, match="got 'abcdefg'"):
        draw(P_ROW, names="abcdefg")
    with pytest.raises(ValueError, match=r"1 to 12 fit in a figure\. Got 13 samples"):
        draw([P_ROW] * 13)
    with pytest.raises(ValueError, match="Got 0 samples: choose a few, such as"):
        draw(np.empty((0, 7)))
    with pytest.raises(TypeError, match="needs a DetectorEnsemble or a DSDE, got KNN"):
        PValuePlotDisplay.from_estimator(KNN(), [[0.0]])
    with pytest.raises(NotFittedError, match="DSDE instance is not fitted"):
        PValuePlotDisplay.from_estimator(DSDE(frozen_columns(4)), [[0.0] * 4])


def test_axes_must_match_the_samples():
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    message = "There are 2 samples, and each needs axes of its own; got 1"
    with pytest.raises(ValueError, match=message):
        draw([P_ROW, P_ROW], ax=ax)


def test_an_error_leaves_no_figure():
    import matplotlib.pyplot as plt

    with pytest.raises(AttributeError, match="nonsense"):
        draw(P_ROW, nonsense=1)
    assert plt.get_fignums() == []


def test_matplotlib_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"PValuePlotDisplay\.plot needs matplotlib"):
        draw(P_ROW)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pvalues_of_any_kind(dtype):
    P = np.asfortranarray(np.tile(P_ROW, (2, 1)).astype(dtype))
    P.flags.writeable = False
    display = draw(P)
    assert_array_equal(display.line_[1].get_ydata(), np.sort(P[1]).astype(float))
    assert display.pvalues.dtype == np.float64

"""SelectionDisplay: what is drawn."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.ensemble import IsolationForest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.selection import (
    BestOf,
    NoveltySelector,
    SelectionDisplay,
    StepUp,
    select_novelties,
)

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_points_and_lines(rng):
    ranks = np.concatenate([rng.integers(1, 4, 10), rng.integers(1, 101, 50)])
    p, is_ood = ranks / 100, np.arange(60) < 10
    batch = select_novelties(p, 99, 0.2, StepUp("storey"))
    assert 0 < batch.n_selected < 30
    display = SelectionDisplay.from_selection(batch, is_ood=is_ood, n_shown=60)
    drawn = np.concatenate([line.get_ydata() for line in display.lines_])
    assert_array_equal(np.sort(drawn), np.sort(p))
    assert len(display.lines_[1].get_ydata()) == 10
    (x, y) = display.selected_line_.get_data()
    assert x.tolist() == list(range(1, batch.n_selected + 1))
    assert y.max() == batch.threshold
    # the last selected sample is below the line, and all later ones above
    slope = np.diff(display.bound_line_.get_ydata()) / 60
    ordered, k = np.sort(p), np.arange(1, 61)
    assert np.flatnonzero(ordered <= slope * k * (1 + 1e-12)).max() + 1 == x.max()
    assert len(SelectionDisplay.from_selection(batch).lines_) == 1


def test_choices_have_no_line_and_pipelines_are_unwrapped(rng):
    scores, calibration = rng.normal(size=(50, 3)), rng.normal(size=(200, 3))
    batch = BestOf().select(scores, calibration, random_state=0)
    display = SelectionDisplay.from_selection(batch)
    assert display.bound_line_ is None and len(display.lines_[0].get_xdata()) == 20
    selector = NoveltySelector(IsolationForest(random_state=0), random_state=0)
    pipeline = make_pipeline(StandardScaler(), selector).fit(calibration)
    _, ax = plt.subplots()
    display = SelectionDisplay.from_estimator(pipeline, scores, alpha=0.3, ax=ax)
    assert display.ax_ is ax and display.selection.alpha == 0.3
    with pytest.raises(TypeError, match="needs a NoveltySelector, got StandardScaler"):
        SelectionDisplay.from_estimator(StandardScaler(), scores)


def test_invalid_truth():
    batch = select_novelties([0.1, 0.2], 9)
    with pytest.raises(ValueError, match=r"is_ood must be a boolean array of shape"):
        SelectionDisplay.from_selection(batch, is_ood=[1, 0])
    with pytest.raises(ValueError, match="The batch is empty"):
        SelectionDisplay.from_selection(select_novelties([], 9))
    assert plt.get_fignums() == []

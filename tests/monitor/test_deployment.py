"""A whole deployment, the example of the gallery: alarms, culprits, recalibration."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "monitor" / "plot_deployment.py"


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_deployment(capsys):
    """The normal stream of 20,000 images raises no alarm; each failure does."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("pandas")
    names = runpy.run_path(str(EXAMPLE))
    pyplot.close("all")
    panels = {name: pair[0] for name, pair in names["after"].items()}
    for panel in panels.values():  # none before the change at image 20,001
        assert 20_001 <= panel.alarm_.row < 21_500
        assert abs(panel.alarm_.start - 20_001) < 100
        assert panel.alarm_.direction == "ood"
    assert panels["a broken member"].culprits_ == ["mahalanobis"]
    assert panels["a broken member"].alarm_name_ == "mahalanobis"
    assert len(panels["a light on the left"].culprits_) >= 3
    shares = {name: pair[1] for name, pair in names["after"].items()}
    assert shares["a new digit"].alarm_.direction == "upper"
    assert shares["a new digit"].n_pending_ == 0
    assert shares["a light on the left"].alarm_ is None  # no new digits
    low, high = shares["a broken member"].interval_
    assert low < 0.05 < high < 0.07
    tpr, _ = names["broken"]
    assert tpr < 0.83  # the promise is 0.85
    tpr, fpr = names["mended"]
    assert tpr >= 0.85
    assert fpr <= 0.5
    assert names["panel"].alarm_ is None
    assert names["rate"].alarm_ is None
    assert names["rate"].n_seen_ == 10_000
    assert "mahalanobis" in capsys.readouterr().out

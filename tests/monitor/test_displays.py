"""Displays: lines, bands, thresholds and alarms of monitors and panels."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skood.monitor import (
    ExchangeabilityMonitor,
    MartingaleDisplay,
    MonitorPanel,
    RateDisplay,
    RateMonitor,
)
from tests.metrics._drawing import legend_texts
from tests.monitor._vectors import long_stream

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


def _monitor(shift=0.0):
    calibration, scores = long_stream()
    monitor = ExchangeabilityMonitor(random_state=0).fit(calibration)
    return monitor, monitor.update(scores - shift)


def test_display_of_a_single_monitor():
    monitor, path = _monitor()
    display = MartingaleDisplay.from_monitor(monitor, color="red")
    x, y = display.lines_[0].get_data()
    assert_array_equal(x, np.arange(201))
    assert_allclose(y, np.r_[0, path] / np.log(10))
    assert display.lines_[0].get_color() == "red"
    _, level, start, marker = display.ax_.get_lines()
    assert_allclose(level.get_ydata(), 2)  # 1 / alpha = 10**2
    assert_array_equal(start.get_xdata(), [101, 101])
    assert_array_equal(marker.get_xdata(), [157])
    assert legend_texts(display) == ["1/alpha = 100", "estimated start", "alarm"]


def test_several_monitors_and_rates():
    rate = RateMonitor(bound=0.5, alpha=0.1)
    rate.update_values(np.zeros(30))
    figure, ax = pyplot.subplots()
    display = MartingaleDisplay.from_monitor({"x": _monitor()[0], "y": rate}, ax=ax)
    assert display.figure_ is figure
    assert legend_texts(display)[:3] == ["x", "y", "1/alpha = 10"]
    assert display.threshold == pytest.approx(np.log(10))  # the lowest
    with pytest.raises(ValueError, match="at least one monitor, got none"):
        MartingaleDisplay.from_monitor({})


def test_culprits_of_a_panel_are_colored():
    calibration, scores = long_stream()
    names = ["a", "b", "c"]
    panel = MonitorPanel([(k, ExchangeabilityMonitor(random_state=0)) for k in names])
    panel.fit(dict.fromkeys(names, calibration))
    panel.update({"a": scores[:100], "b": scores[100:] - 1, "c": scores[:100]})
    display = MartingaleDisplay.from_monitor(panel)
    assert panel.culprits_ == ["b"]
    colors = [line.get_color() for line in display.lines_]
    assert colors[0] == colors[2] != colors[1]
    alarm = ["estimated start", "alarm"]
    assert legend_texts(display) == ["b", "1/alpha = 300", *alarm]
    assert display.threshold == pytest.approx(np.log(300))
    assert display.alarms == [panel.alarm_]


def test_rates():
    """The estimate and interval after each recorded sample, and the last one."""
    x = np.r_[np.arange(400) % 10 == 0, np.arange(100) % 2 == 0]
    monitor = RateMonitor(quantity="fpr", bound=0.2)
    monitor.update_values(x)
    display = RateDisplay.from_monitor(monitor, c="red")
    row, estimate = display.line_.get_data()
    assert row[-1] == 500
    assert_array_equal(row[:32], np.arange(1, 33))
    assert_allclose(estimate, [x[:n].mean() for n in row])
    outline = display.band_.get_paths()[0].vertices
    for n in (10, 400, 500):
        alone = RateMonitor(quantity="fpr", bound=0.2)
        alone.update_values(x[:n])
        ends = outline[outline[:, 0] == n, 1]
        assert_allclose([ends.min(), ends.max()], alone.interval_, atol=1e-12)
    _, bound, audited, start, alarm = display.ax_.get_lines()
    assert_array_equal(bound.get_ydata(), 0.2)
    assert_array_equal(audited.get_xdata(), np.arange(1, 501))
    assert start.get_xdata()[0] == monitor.alarm_.start
    assert alarm.get_data() == ([monitor.alarm_.row], [0.2])
    assert display.line_.get_color() == "red"
    assert display.ax_.get_ylabel() == "fpr"
    figure, ax = pyplot.subplots()
    empty = RateDisplay.from_monitor(RateMonitor(bound=0.5), ax=ax)
    assert empty.figure_ is figure
    assert len(empty.row) == 0
    with pytest.raises(TypeError, match="must be a RateMonitor, got Exchangeability"):
        RateDisplay.from_monitor(_monitor()[0])

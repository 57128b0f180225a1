"""Tests of the plots of the demo: that they show the numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import auc
from sklearn.utils import Bunch

from skood.benchmark._options import Options
from skood.exceptions import NotCertifiableError
from skood.rejection import OperatingPoint

pytest.importorskip("matplotlib")

from skood.benchmark import _output


@pytest.fixture
def options(digits_result):
    return Options(**digits_result.options)


def test_png_files(digits_result):
    pngs = [path for path in digits_result.files if path.suffix == ".png"]
    assert len(pngs) == 4
    for path in pngs:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_roc_curves(digits_result, options):
    figure = _output._roc(digits_result, options)
    whole, corner = figure.axes
    assert whole.get_xlim()[1] >= 1
    assert corner.get_ylim()[0] == 0.7
    for ax in figure.axes:
        lines = {line.get_label().split(" (")[0]: line for line in ax.lines}
        for row in digits_result.table[:7]:
            x, y = lines[row["method"]].get_xydata().T
            assert auc(x, y) == pytest.approx(row["auroc"])
            assert f"{row['auroc']:.4f}" in lines[row["method"]].get_label()
    assert len({(line.get_color(), line.get_linestyle()) for line in whole.lines}) == 8
    assert len(figure.legends[0].get_texts()) == 9


def test_risk_coverage_curves(digits_result, options):
    figure = _output._risk_coverage(digits_result, options)
    for row, line in zip(digits_result.table, figure.axes[0].lines[:7], strict=False):
        assert line.get_label() == f"{row['method']} (AURC = {row['aurc']:.5f})"
        assert line.get_ydata()[-1] == pytest.approx(1 - digits_result.accuracy)
    assert_allclose(figure.axes[1].get_ylim(), (0, 1.3 * (1 - digits_result.accuracy)))


def test_risk_coverage_curves_without_errors(digits_result, options):
    result = Bunch(**digits_result)
    result.y_pred = result.y_true
    with warnings.catch_warnings(action="error"):
        figure = _output._risk_coverage(result, options)
    assert figure.axes[1].get_ylim()[0] == 0


def test_score_histograms(digits_result, options):
    figure = _output._histograms(digits_result, options)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [
        f"{row['method']} (AUROC = {row['auroc']:.4f})"
        for row in digits_result.table[:7]
    ]
    assert len(figure.legends) == 1
    assert all(ax.get_legend() is None for ax in figure.axes)


def test_acceptance_shows_the_test_samples(digits_result, options):
    figure = _output._acceptance(digits_result, options)
    test = digits_result.is_test
    y_true, y_pred = digits_result.y_true[test], digits_result.y_pred[test]
    for ax, name in zip(figure.axes, ("KNN", "ViM"), strict=True):
        ood, right, wrong = (ax.collections[i].get_offsets() for i in range(3))
        assert len(ood) == np.sum(y_true == -1)
        assert len(right) == np.sum(y_true == y_pred)
        assert len(wrong) == np.sum((y_true != y_pred) & (y_true != -1))
        assert_allclose(
            right[:, 0], -digits_result.scores["MSP"][test][y_true == y_pred]
        )
        drawn = right[:, 1]
        scores = -digits_result.scores[name][test][y_true == y_pred]
        inside = np.abs(drawn - scores) < 1e-12
        assert inside.mean() > 0.9
        assert ax.get_xscale() == "log"


@pytest.mark.parametrize("theta", [0.0, 0.4, np.pi / 2])
def test_region_is_that_of_the_rule(theta):
    figure = _output._new_figure(4, 4)
    ax = figure.subplots()
    ax.set(xscale="log", xlim=(1e-6, 1), ylim=(-3, 5))
    point = OperatingPoint(theta, 0.3, scales=(0.5, 4.0))
    _output._draw_region(ax, point)
    filled = ax.collections[0].get_paths()[0]
    for a, b in [(1e-4, -2), (1e-4, 4), (0.1, 0), (0.9, -2), (0.9, 4), (0.2, 1)]:
        accepted = np.cos(theta) * a / 0.5 + np.sin(theta) * b / 4.0 <= 0.3
        assert filled.contains_point((a, b)) == accepted
    assert_array_equal(ax.get_xlim(), (1e-6, 1))


@pytest.mark.parametrize(("lam", "n_drawn"), [(-100.0, 0), (100.0, 1)])
def test_region_that_is_nothing_or_everything(lam, n_drawn):
    figure = _output._new_figure(4, 4)
    ax = figure.subplots()
    ax.set(xscale="log", xlim=(1e-6, 1), ylim=(-3, 5))
    with warnings.catch_warnings(action="error"):
        _output._draw_region(ax, OperatingPoint(0.5, lam))
    assert len(ax.collections) == n_drawn


def test_bounds_that_are_not_met(digits_result, options):
    result = Bunch(**digits_result)
    error = NotCertifiableError("No rule.")
    result.reject_options = {
        "KNN+MSP": Bunch(error=error),
        "ViM+MSP": Bunch(error=error),
    }
    figure = _output._acceptance(result, options)
    assert figure.axes[0].get_title() == "KNN+MSP: infeasible"
    assert len(figure.axes[0].collections) == 3


def test_dollars_in_names_are_no_formulas(tmp_path):
    title = _output._title(SimpleNamespace(id_data="a$b", ood_name="$c"))
    figure = _output._new_figure(3, 1)
    text = figure.suptitle(title)
    figure.savefig(tmp_path / "title.png")
    assert text.get_text() == r"a\$b (ID) against \$c (OOD)"

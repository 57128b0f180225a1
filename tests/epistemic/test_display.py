"""Displays draw the numbers of a trace."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import make_blobs
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch

from skood.epistemic import AdversarialModelDisplay
from tests.epistemic._quam import make_quam

QUICK = {"n_steps": 4, "batch_size": 8, "random_state": 0, "device": "cpu"}
DEFAULT = ["attack_loss", "penalty", "divergence", "weights"]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    X, y = make_blobs(60, 2, centers=3, cluster_std=3.0, random_state=0)
    return X, np.array(["ant", "bee", "cat"])[y]


@pytest.fixture(scope="module")
def quam(data):
    return make_quam(LogisticRegression(), **QUICK).fit(*data)


def _assert_draws(display, trace, quantities):
    assert list(display.lines_) == list(quantities)
    assert len(display.axes_) == len(quantities)
    for axes, name in zip(display.axes_, quantities, strict=True):
        lines = display.lines_[name]
        assert [line.get_label() for line in lines] == [str(t) for t in trace.targets]
        for j, line in enumerate(lines):
            assert_array_equal(line.get_xdata(), np.arange(5))
            assert_array_equal(line.get_ydata(), trace[name][:, j])
            assert line.axes is axes
        assert axes.get_xlabel() == "step"
        assert axes.get_ylabel()


def test_what_is_drawn(data, quam):
    X, _ = data
    trace = quam.trace(X[:1])
    display = AdversarialModelDisplay.from_estimator(quam, X[:1])
    _assert_draws(display, trace, DEFAULT)
    labels = [text.get_text() for text in display.figure_.legends[0].get_texts()]
    assert labels == ["ant", "bee", "cat"]
    assert display.figure_ is display.axes_[0].figure
    zero = display.axes_[1].get_lines()[-1]
    assert set(zero.get_ydata()) == {0.0}  # no excess of the training loss
    display.figure_.canvas.draw()


def test_quantities_and_style(data, quam):
    trace = quam.trace(data[0][:1])
    quantities = ("training_loss", "loss")
    display = AdversarialModelDisplay.from_trace(
        trace, quantities=quantities, linewidth=3
    )
    _assert_draws(display, trace, quantities)
    assert all(line.get_linewidth() == 3 for line in display.lines_["loss"])


def test_axes_of_the_user(quam, data):
    trace = quam.trace(data[0][:1])
    figure, axes = plt.subplots(2, 2)
    display = AdversarialModelDisplay.from_trace(trace, ax=axes)
    assert display.figure_ is figure
    assert list(display.axes_) == list(axes.ravel())
    _assert_draws(display, trace, DEFAULT)
    _, item = plt.subplots()
    display = AdversarialModelDisplay.from_trace(trace, ax=item, quantities=["loss"])
    assert list(display.axes_) == [item]
    with pytest.raises(ValueError, match=r"There are 4 quantities, .* got 1"):
        AdversarialModelDisplay.from_trace(trace, ax=item)


def test_pipeline_and_regressor(data):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), make_quam(LogisticRegression(), **QUICK))
    pipeline.fit(X, y)
    display = AdversarialModelDisplay.from_estimator(pipeline, X[:1])
    _assert_draws(display, pipeline[-1].trace(pipeline[0].transform(X[:1])), DEFAULT)
    regressor = make_quam(LinearRegression(), **QUICK).fit(X, X[:, 0] + (y == "ant"))
    display = AdversarialModelDisplay.from_estimator(regressor, X[:1])
    _assert_draws(display, regressor.trace(X[:1]), DEFAULT)
    labels = [text.get_text() for text in display.figure_.legends[0].get_texts()]
    assert labels == ["higher", "lower"]


def test_many_targets_have_no_legend():
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=(5, 45)) for name in DEFAULT}
    trace = Bunch(targets=np.arange(45), **values)
    display = AdversarialModelDisplay.from_trace(trace)
    assert not display.figure_.legends
    styles = {
        (line.get_color(), line.get_linestyle()) for line in display.lines_["weights"]
    }
    assert len(styles) > 20  # more than there are colors


def test_errors(data, quam):
    X, y = data
    trace = quam.trace(X[:1])
    for quantities in (["loss", "lss"], [], "loss"):
        with pytest.raises(
            ValueError, match=r"must be a list of names from .*'attack_l"
        ):
            AdversarialModelDisplay.from_trace(trace, quantities=quantities)
    with pytest.raises(TypeError, match="needs a QUAM, got LogisticReg"):
        AdversarialModelDisplay.from_estimator(LogisticRegression().fit(X, y), X[:1])
    with pytest.raises(
        ValueError, match="shows the searches of one point, got 2 samples"
    ):
        AdversarialModelDisplay.from_estimator(quam, X[:2])
    assert not plt.get_fignums()

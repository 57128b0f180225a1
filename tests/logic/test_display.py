"""The display of contributions: its bars are the numbers of ``explain``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skood.detectors import KNN
from skood.logic import ConstraintContributionDisplay
from tests.logic._signs import NAMES, RULES, logic, mln, signs
from tests.metrics._drawing import legend_texts

matplotlib.use("Agg")

X, Y = signs(200, 60, seed=1)
RULES_BY_NAME = {"stop": RULES[0], "yield": RULES[1], "light": "color = red"}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def widths(display):
    """Widths of the bars: samples in rows, constraints in columns."""
    return np.array([[bar.get_width() for bar in bars] for bars in display.bars_]).T


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_bar_for_each_sample(wrapped):
    model = mln(RULES_BY_NAME, weights=[3.0, 2.0, 1.0])
    if wrapped:
        model = make_pipeline(FunctionTransformer(), model)
    model.fit(X, Y)
    display = ConstraintContributionDisplay.from_estimator(model, X[-10:])
    rows = (model[-1] if wrapped else model).explain(X[-10:])
    expected = np.array([list(row.contributions.values()) for row in rows])
    order = np.argsort(-expected.sum(axis=0), kind="stable")
    assert legend_texts(display) == [list(RULES_BY_NAME)[j] for j in order]
    np.testing.assert_allclose(widths(display), expected[:, order])
    lefts = np.array([[bar.get_x() for bar in bars] for bars in display.bars_]).T
    np.testing.assert_allclose(lefts[:, 1:], np.cumsum(widths(display), axis=1)[:, :-1])
    labels = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert labels == [f"sample {i}" for i in range(10)]
    assert display.figure_ is display.ax_.figure
    low, high = display.ax_.get_ylim()
    assert low > high  # the first sample is on top


def test_means_of_id_and_ood_samples():
    model = mln(RULES_BY_NAME).fit(X, Y)
    rows = model.explain(X)
    values = np.array([list(row.contributions.values()) for row in rows])
    is_ood = Y[:, 0] == -1
    expected = np.stack([values[~is_ood].mean(axis=0), values[is_ood].mean(axis=0)])
    frame = pd.DataFrame(Y, columns=NAMES)
    for labels in (Y, frame, frame[NAMES[::-1]]):
        display = ConstraintContributionDisplay.from_estimator(model, X, labels)
        np.testing.assert_allclose(display.contributions, expected)
        texts = [text.get_text() for text in display.ax_.get_yticklabels()]
        assert texts == ["ID (mean)", "OOD (mean)"]
    display = ConstraintContributionDisplay.from_estimator(
        model, X, Y, labels=["a", "b"]
    )
    assert display.labels == ["a", "b"]
    for part, word in ((X[:9], "ID"), (X[-9:], "OOD")):
        labels = Y[:9] if word == "ID" else Y[-9:]
        with pytest.raises(ValueError, match=f"y has only {word} samples"):
            ConstraintContributionDisplay.from_estimator(model, part, labels)


def test_small_contributions_are_added_up():
    values = np.array([[1.0, 5.0, 0.0, 2.0], [0.0, 1.0, 0.0, 2.5]])
    display = ConstraintContributionDisplay(contributions=values, names=list("abcd"))
    display.plot(max_constraints=1)
    assert legend_texts(display) == ["b", "2 others"]
    np.testing.assert_allclose(widths(display), [[5.0, 3.0], [1.0, 2.5]])
    display.plot(max_constraints=3)
    assert legend_texts(display) == ["b", "d", "a"]  # c adds nothing


def test_many_constraints_differ_by_color_or_hatching():
    names = [f"rule {j}" for j in range(15)]
    display = ConstraintContributionDisplay(contributions=np.ones((2, 15)), names=names)
    display.plot(max_constraints=15)
    looks = {(bars[0].get_facecolor(), bars[0].get_hatch()) for bars in display.bars_}
    assert len(looks) == 15


def test_nothing_is_broken():
    display = ConstraintContributionDisplay.from_estimator(mln().fit(X, Y), X[:3])
    assert display.bars_ == []
    assert display.ax_.get_legend() is None


def test_long_names_and_style():
    figure, ax = plt.subplots()
    display = ConstraintContributionDisplay(
        contributions=[[1.0]], names=["x" * 100], labels=["this"]
    ).plot(ax, height=0.3, color="red")
    assert display.ax_ is ax
    assert legend_texts(display) == ["x" * 59 + "…"]
    assert display.bars_[0][0].get_height() == pytest.approx(0.3)
    assert display.bars_[0][0].get_facecolor() == (1.0, 0.0, 0.0, 1.0)
    assert figure is display.figure_


def test_of_the_strict_detector():
    display = ConstraintContributionDisplay.from_estimator(logic().fit(X, Y), X[-5:])
    assert set(widths(display).ravel()) <= {0.0, 1.0}


@pytest.mark.parametrize(
    "params, text",
    [
        ({"contributions": np.ones((2, 3)), "names": ["a"]}, "a column for each of 1"),
        ({"contributions": np.ones(3), "names": list("abc")}, r"of shape \(3,\)"),
        ({"contributions": np.ones((41, 1)), "names": ["a"]}, "got 41: choose a few"),
        ({"contributions": np.ones((0, 1)), "names": ["a"]}, "got 0"),
        (
            {"contributions": np.ones((2, 1)), "names": ["a"], "labels": ["b"]},
            r"a list of 2 texts, one for each bar, got \['b'\]",
        ),
        (
            {"contributions": np.ones((2, 1)), "names": ["a"], "labels": "bc"},
            "got 'bc'",
        ),
    ],
)
def test_errors(params, text):
    with pytest.raises(ValueError, match=text):
        ConstraintContributionDisplay(**params).plot()
    assert matplotlib.pyplot.get_fignums() == []


def test_too_many_bars_are_refused_before_samples_are_read():
    model = mln().fit(X, Y)
    for some, text in ((X, "got 260: choose a few"), (X[:0], "got 0")):
        some = np.full_like(some, np.nan)  # what reads them says so
        with pytest.raises(ValueError, match=text):
            ConstraintContributionDisplay.from_estimator(model, some)


def test_other_estimators():
    with pytest.raises(TypeError, match=r"needs a detector with constraints.*KNN"):
        ConstraintContributionDisplay.from_estimator(KNN().fit(X), X)
    with pytest.raises(NotFittedError):
        ConstraintContributionDisplay.from_estimator(mln(), X)

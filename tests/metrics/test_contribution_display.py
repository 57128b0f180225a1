"""Tests of `ContributionDisplay`: bars, and names as they are."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import Energy, Mahalanobis, column_contributions
from skood.metrics import ContributionDisplay
from skood.rejection import RejectOptionClassifier, TwoThresholds

plt = pytest.importorskip("matplotlib.pyplot")
RNG = np.random.default_rng(0)
Y = np.repeat([0, 1], 100)
X = RNG.normal(size=(200, 12)) + 2 * Y[:, None]


def _clf(detector):
    return RejectOptionClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()),
        ood_detector=detector,
        rule=TwoThresholds(),
        random_state=0,
    ).fit(X, Y)


def test_bars_are_the_largest_contributions_and_the_rest():
    clf = _clf(Mahalanobis())
    sample = X[:1] + np.arange(12)
    explanation = clf.explain(sample)
    display = ContributionDisplay.from_estimator(clf, sample, max_columns=4)
    widths = np.array([bar.get_width() for bar in display.bars_])
    parts = explanation.contributions[0]
    order = np.argsort(-np.abs(parts))
    assert_allclose(widths[:4], parts[order[:4]])
    assert_allclose(widths.sum(), -clf.score_pair(sample)[1][0])
    labels = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert labels == [*explanation.columns[order[:4]], "8 others"]
    title = display.ax_.get_title(loc="left")
    assert " ".join(title.split()) == explanation.sentences[0]
    tops = [bar.get_y() for bar in display.bars_]
    assert display.ax_.yaxis_inverted() and tops == sorted(tops)
    wide = ContributionDisplay.from_explanation(explanation, max_columns=11)
    assert wide.ax_.get_yticklabels()[-1].get_text() == "1 other column"
    assert len(ContributionDisplay.from_explanation(explanation, max_columns=12).bars_)


def test_negative_contributions_have_another_color():
    display = ContributionDisplay(
        contributions=np.array([-3.0, 1.0]), columns=["$a_1$", "<b>"], name="$2 & $3"
    ).plot()
    first, second = display.bars_
    assert first.get_width() == -3.0 and first.get_facecolor() != second.get_facecolor()
    display.figure_.canvas.draw()  # "$" is no formula
    assert [t.get_text() for t in display.ax_.get_yticklabels()] == ["$a_1$", "<b>"]
    assert not display.ax_.get_yticklabels()[0].get_parse_math()


def test_of_a_detector_and_axes_of_the_user():
    detector = make_pipeline(StandardScaler(), Mahalanobis()).fit(X)
    contributions = column_contributions(detector, X[:3])
    _, ax = plt.subplots()
    display = ContributionDisplay.from_explanation(
        contributions, 2, ax=ax, name="third", color="gray", max_columns=12
    )
    assert display.ax_ is ax and ax.get_title(loc="left") == "third"
    widths = [bar.get_width() for bar in display.bars_]
    assert_allclose(sum(widths), contributions.contributions[2].sum())


def test_errors():
    clf = _clf(Mahalanobis())
    with pytest.raises(ValueError, match="X must have one sample, got 2"):
        ContributionDisplay.from_estimator(clf, X[:2])
    with pytest.raises(ValueError, match="has no contributions: no detector"):
        ContributionDisplay.from_estimator(_clf(Energy()), X[:1])
    with pytest.raises(TypeError, match=r"from_estimator needs a .*, got Mahalanobis"):
        ContributionDisplay.from_estimator(Mahalanobis().fit(X), X[:1])

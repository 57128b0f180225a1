"""Tests of the picture of fitted predictors with a reject option in notebooks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
from copy import copy
from html import unescape

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skood.detectors import KNN
from skood.rejection import (
    BoundedAbstention,
    Certificate,
    RejectOptionClassifier,
    RejectOptionRegressor,
    TwoThresholds,
)
from tests.rejection._problem import selective

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(400, 2)), columns=["height", "width"])
Y = (X["height"] + 0.5 * RNG.normal(size=400) > 0).astype(int).to_numpy()
SITE = np.repeat(["north", "south"], 200)


def _same(X):
    return X


def _pipeline(final):
    """Return a pipeline that scikit-learn draws only if it is fitted."""
    named = FunctionTransformer(_same, feature_names_out="one-to-one")
    columns = make_pipeline(StandardScaler(), named)
    columns = ColumnTransformer([("scaled", columns, list(X.columns))])
    return make_pipeline(columns, final)


def _labels(estimator):
    """Return the texts of the picture, without tables, styles and the fallback."""
    html = estimator._repr_html_()
    html = html[html.index('class="sk-container"') :].split("<script>")[0]
    return [unescape(text).strip() for text in re.findall(r">([^<>]+)<", html)]


def _line(estimator):
    """Return the line on the rule."""
    (line,) = {text for text in _labels(estimator) if text.endswith("certified")} | {
        text for text in _labels(estimator) if "; certified: " in text
    }
    return line


CLF = selective(
    _pipeline(LogisticRegression()),
    ood_detector=KNN(),
    rule=TwoThresholds(0.1, 0.2),
    guarantee="high_probability",
    calibration=0.5,
).fit(X, Y)


def test_classifier_is_drawn_with_fitted_parts():
    labels = _labels(CLF)
    assert {"estimator: Pipeline", "scaled", "StandardScaler"} <= set(labels)
    assert labels.index("risk_detector") < labels.index("1 - max probability")
    assert "ood_detector: KNN" in labels
    point = CLF.operating_point_
    assert _line(CLF) == (
        f"{CLF.rule!r}; theta = 0, lam = {point.lam:.4g}, "
        f"ood_max = {point.ood_max:.4g}; certified: "
        "fraction rejected by the risk score <= 0.2, "
        "fraction rejected by the OOD score <= 0.1"
    )
    changed = copy(CLF).set_params(ood_detector=KNN(n_neighbors=77))
    labels = _labels(changed)
    parts = labels[labels.index("ood_detector: KNN") :]
    assert not any("n_neighbors=77" in text for text in parts)


def test_classifier_with_thresholds_of_groups_is_drawn():
    options = Certificate(within="groups", thresholds="group")
    clf = selective(
        _pipeline(LogisticRegression()),
        rule=BoundedAbstention(0.5),
        guarantee=options,
        calibration=0.5,
    ).fit(X, Y, groups=SITE)
    lam = clf.operating_point_.lam
    line = _line(clf)
    assert f"lam = {{north: {lam['north']:.4g}, south: {lam['south']:.4g}}}" in line
    assert line.endswith("TPR >= 0.5 in group north, TPR >= 0.5 in group south")


def test_regressor_is_drawn_with_fitted_parts():
    reg = RejectOptionRegressor(
        _pipeline(LinearRegression()), rule=BoundedAbstention(0.5)
    )
    reg.fit(X, X["height"].to_numpy())
    labels = _labels(reg)
    assert {"estimator: Pipeline", "StandardScaler", "LinearRegression"} <= set(labels)
    assert "ood_detector" not in " ".join(text for text in labels if ":" in text)
    lam = reg.operating_point_.lam
    expected = f"{reg.rule!r}; theta = 0, lam = {lam:.4g}; not certified"
    assert _line(reg) == expected


@pytest.mark.parametrize("rule", [None, BoundedAbstention(0.7)])
def test_unfitted_classifier_is_drawn_with_its_parameters(rule):
    clf = RejectOptionClassifier(
        _pipeline(LogisticRegression()), ood_detector=KNN(n_neighbors=77), rule=rule
    )
    labels = _labels(clf)
    assert {"estimator: Pipeline", "ood_detector: KNN"} <= set(labels)
    assert not any("certified" in text for text in labels)
    fitted = clf.set_params(ood_detector=None, rule=None).fit(X, Y)
    assert "None: all samples are accepted" in _labels(fitted)

"""A classifier with two thresholds, without OOD samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import pickle
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.datasets import load_idx_images
from skood.detectors import GMM, KNN, Mahalanobis
from skood.metrics import AcceptanceRegionDisplay, make_rule_scorer
from skood.model_selection import OODStratifiedKFold
from skood.rejection import TwoThresholds
from tests.rejection._problem import X_NEW, Y_NEW, X, Y, make_clf, selective

ID = Y >= 0


def _fitted(**params):
    rule = TwoThresholds(ood=0.1, risk=0.15)
    return make_clf(**{"rule": rule, **params}).fit(X[ID], Y[ID])


def test_decisions_are_those_of_both_thresholds():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # above all, none of the weight of the OOD score
        clf = _fitted()
    risk_score, ood_score = clf.score_pair(X_NEW)
    point = clf.operating_point_
    assert clf.theta_ == 0.0
    accepted = (-ood_score <= point.ood_max) & (
        -risk_score <= clf.lambda_ * point.scales[0]
    )
    assert 0 < accepted.sum() < len(accepted)
    expected = np.where(accepted, clf.estimator_.predict(X_NEW), -1)
    assert_array_equal(clf.predict(X_NEW), expected)
    assert_array_equal(clf.accept_proba(X_NEW), accepted.astype(float))
    again = pickle.loads(pickle.dumps(clf))
    assert_array_equal(again.predict(X_NEW), expected)
    report = clf.report(X_NEW, Y_NEW)
    assert_allclose(report.tpr.value, accepted[Y_NEW >= 0].mean())
    assert_allclose(report.fpr.value, accepted[Y_NEW < 0].mean())


def test_reasons_are_the_excesses_over_each_threshold():
    clf = _fitted()
    reason = clf.reject_reason(X_NEW)
    risk_score, ood_score = clf.score_pair(X_NEW)
    point = clf.operating_point_
    a, b = -risk_score / point.scales[0], -ood_score / point.scales[1]
    over_a = np.maximum(a - point.lam, 0)
    over_b = np.maximum(b - point.ood_max / point.scales[1], 0)
    rejected = over_a + over_b > 0
    share = over_b[rejected] / (over_a + over_b)[rejected]
    assert_allclose(reason.ood_fraction[rejected], share)
    assert_array_equal(reason.ood_fraction[~rejected], 0)
    assert_array_equal(
        reason.reason[rejected],
        np.where(share > 0.5, "out-of-distribution", "uncertain class"),
    )
    assert set(reason.reason) == {"accepted", "out-of-distribution", "uncertain class"}


@pytest.mark.parametrize("xscale", ["linear", "log"])
def test_region_is_a_rectangle(xscale):
    clf = _fitted()
    display = AcceptanceRegionDisplay.from_estimator(clf, X_NEW, Y_NEW, xscale=xscale)
    point = clf.operating_point_
    a_max = clf.lambda_ * point.scales[0]
    corners = display.region_.get_xy()
    assert_allclose(corners[:, 0].max(), a_max)
    assert_allclose(corners[:, 1].max(), point.ood_max)
    left, low = display.ax_.get_xlim()[0], display.ax_.get_ylim()[0]
    assert_allclose(
        display.line_.get_xydata(),
        [[a_max, low], [a_max, point.ood_max], [left, point.ood_max]],
    )
    assert f"b ≤ {point.ood_max:.3g}" in display.line_.get_label()
    plt.close(display.figure_)


def test_search_over_levels():
    rule = TwoThresholds(risk=0.1)
    search = GridSearchCV(
        make_clf(rule=rule, calibration=0.5),
        {"rule__ood": [0.1, 0.3], "rule__criterion": ["rejection"]},
        scoring=make_rule_scorer(TwoThresholds(0.1, 0.1)),
        cv=OODStratifiedKFold(2),
        error_score="raise",
    ).fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("guarantee", ["high_probability", "ltt", "expectation"])
def test_guarantee(guarantee):
    clf = _fitted(guarantee=guarantee, calibration=0.5)
    plain = _fitted(calibration=0.5)
    assert clf.operating_point_.ood_max >= plain.operating_point_.ood_max
    assert clf.lambda_ >= plain.lambda_


def test_shifted_column_of_a_table():
    """One column of new samples is off by 15 standard deviations (defect 13)."""
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, new = order[:400], order[400:]
    shifted = X[new].copy()
    shifted[:, 3] += 15 * X[train, 3].std()
    detector = make_pipeline(StandardScaler(), Mahalanobis())
    clf = selective(
        make_pipeline(StandardScaler(), LogisticRegression()),
        ood_detector=detector,
        rule=TwoThresholds(ood=0.05, risk=0.05),
    ).fit(X[train], y[train])
    alone = detector.fit(X[train], y[train])
    fpr = clf.report(np.r_[X[new], shifted], np.r_[y[new], 0 * y[new] - 1]).fpr.value
    assert fpr <= np.mean(alone.predict(shifted) == 1) + 0.02


@pytest.mark.slow
@pytest.mark.skipif("SKOOD_DATA" not in os.environ, reason="SKOOD_DATA is not set")
@pytest.mark.parametrize("detector", [KNN(), Mahalanobis(), GMM()], ids=repr)
def test_letters_without_ood_samples(detector):
    """MNIST against notMNIST: letters are rejected as by the detector alone."""
    read = {"subset": "test", "as_images": False, "return_X_y": True}
    X, y = load_idx_images(os.path.join(os.environ["SKOOD_DATA"], "mnist"), **read)
    letters, _ = load_idx_images(
        os.path.join(os.environ["SKOOD_DATA"], "notmnist"), **read
    )
    letters = letters[:3000]
    order = np.random.default_rng(0).permutation(len(y))
    train, fit, new = order[:3000], order[3000:6000], order[6000:9000]
    network = FrozenEstimator(
        MLPClassifier((64,), max_iter=20, random_state=0).fit(X[train], y[train])
    )
    alone = clone(detector).set_params(estimator=network, contamination=0.05)
    alone.fit(X[train], y[train])
    clf = selective(
        network,
        ood_detector=FrozenEstimator(alone),
        rule=TwoThresholds(ood=0.05, risk=0.05),
        calibration="same",
    ).fit(X[fit], y[fit])
    report = clf.report(np.r_[X[new], letters], np.r_[y[new], np.full(3000, -1)])
    level = np.quantile(alone.score_samples(X[fit]), 0.05)
    fpr = np.mean(alone.score_samples(letters) >= level)
    noise = 3 * np.sqrt(fpr * (1 - fpr) / 3000)
    assert report.fpr.value <= fpr + noise
    assert report.tpr.value >= 0.9 - 3 * np.sqrt(0.1 * 0.9 * 2 / 3000)
    assert fpr < 0.1  # the detector is of use

"""Tests of what detectors of RejectOptionClassifier get, and of their weight."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.ensemble import IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from skood.detectors import KNN, Energy, Mahalanobis, MaxLogit, SklearnDetector
from skood.exceptions import SkoodWarning
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    RejectOptionClassifier,
)
from tests.rejection._problem import PLAIN_KNN, X_NEW, Y_NEW, X, Y, make_clf

ANY = BoundedAbstention(0.6)  # feasible with any score
NET = MLPClassifier((8,), solver="lbfgs", max_iter=200, random_state=0)


# ------------------------------------------------------------------------------ input


@pytest.mark.parametrize("calibration", [0.3, 3])
def test_input_of_the_ood_detector(calibration):
    """A detector in a pipeline, if only of one step, has X as input."""
    bound = make_clf(NET, calibration=calibration).fit(X, Y)
    piped = make_clf(
        NET, ood_detector=make_pipeline(PLAIN_KNN), calibration=calibration
    )
    piped.fit(X, Y)
    assert piped.theta_ != bound.theta_
    knn = piped.ood_detector_[-1]
    assert knn.n_features_in_ == 2
    assert knn.estimator is None
    assert bound.ood_detector_.estimator.estimator is bound.estimator_
    assert bound.detector_inputs_ == {"ood": "estimator"}
    assert piped.detector_inputs_ == {"ood": "X"}
    # what the user gave is untouched
    assert bound.ood_detector.estimator is None


def test_input_of_the_risk_detector():
    on_x = make_pipeline(PLAIN_KNN)
    clf = make_clf(
        NET, risk_detector=make_pipeline(Mahalanobis()), ood_detector=on_x, rule=ANY
    )
    clf.fit(X, Y)
    assert clf.risk_detector_[-1].estimator is None
    assert clf.detector_inputs_ == {"risk": "X", "ood": "X"}
    mixed = make_clf(NET, risk_detector=Energy(), ood_detector=on_x, rule=ANY)
    mixed.fit(X, Y)
    assert mixed.detector_inputs_ == {"risk": "estimator", "ood": "X"}
    a = -Energy(FrozenEstimator(mixed.estimator_)).fit(X[:5]).score_samples(X_NEW)
    assert_array_equal(-mixed.risk_detector_.score_samples(X_NEW), a)
    alone = RejectOptionClassifier(NET).fit(X, Y)
    assert alone.detector_inputs_ == {}


def test_detectors_that_cannot_use_the_classifier():
    fitted = FrozenEstimator(KNN(n_neighbors=3).fit(X))
    for detector in (
        IsolationForest(n_estimators=10),
        make_pipeline(StandardScaler(), PLAIN_KNN),
        KNN(LogisticRegression(), n_neighbors=3),
        fitted,
    ):
        clf = make_clf(ood_detector=detector, rule=ANY).fit(X, Y)
        assert clf.detector_inputs_ == {"ood": "X"}
    forest = SklearnDetector(detector=IsolationForest(n_estimators=10, random_state=0))
    clf = make_clf(NET, ood_detector=forest, rule=ANY).fit(X, Y)
    assert clf.ood_detector_.detectors_[0].n_features_in_ == 8


def test_a_label_of_a_detector_on_x_is_checked():
    detector = make_pipeline(KNN(n_neighbors=3, ood_label=2))
    with pytest.raises(ValueError, match="__ood_label=2 is one of the cl"):
        make_clf(ood_detector=detector).fit(X, Y)


def test_the_report_names_scores_and_inputs():
    report = make_clf(ood_detector=make_pipeline(PLAIN_KNN)).fit(X, Y)
    report = report.report(X_NEW, Y_NEW)
    risk = "1 - max probability of LogisticRegression"
    assert report.scores == {"risk": risk, "ood": "KNN on X"}
    assert str(report).splitlines()[-1] == f"risk score: {risk}; ood score: KNN on X"
    assert report.to_dict()["scores"] == report.scores
    model = FrozenEstimator(LogisticRegression().fit(X[Y >= 0], Y[Y >= 0]))
    clf = make_clf(model, risk_detector=MaxLogit(), ood_detector=None)
    report = clf.set_params(rule=BoundedAbstention(0.5)).fit(X, Y).report(X_NEW, Y_NEW)
    outputs = "MaxLogit on the outputs of LogisticRegression"
    assert report.scores == {"risk": outputs}
    plain = RejectOptionClassifier(LogisticRegression()).fit(X, Y)
    assert plain.report(X_NEW, Y_NEW).scores is None


def test_tags_follow_the_input():
    sparse = get_tags(LogisticRegression()).input_tags.sparse
    on_x = RejectOptionClassifier(LogisticRegression(), make_pipeline(MaxLogit()))
    assert not get_tags(on_x).input_tags.sparse
    on_x.set_params(risk_detector=MaxLogit())
    assert get_tags(on_x).input_tags.sparse == sparse


# ----------------------------------------------------------------------------- weight


@pytest.mark.parametrize("calibration", [0.3, 3])
def test_a_weight_that_no_ood_sample_chose(calibration):
    """Errors on ID samples alone give the OOD score its weight, and are not its aim."""
    clf = make_clf(rule=BoundedAbstention(0.8), calibration=calibration)
    with pytest.warns(SkoodWarning, match="y has no OOD samples") as caught:
        clf.fit(X[Y >= 0], Y[Y >= 0])
    text = str(caught[0].message)
    assert f"theta_ = {clf.theta_:.3g} " in text
    assert f"mu_ = {clf.mu_:.3g}." in text
    assert "Add known OOD samples, labeled ood_label=-1, and use" in text
    assert "rule=TwoThresholds()" in text
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("params", "samples"),
    [
        ({"rule": BoundedTPRFPR(0.6, 0.4)}, slice(None)),
        ({"rule": BoundedAbstention(0.6)}, slice(None)),
        ({"rule": BoundedAbstention(0.6), "ood_detector": None}, Y >= 0),
        ({"rule": None}, Y >= 0),
    ],
)
def test_no_warning_where_the_weight_has_a_reason(params, samples):
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkoodWarning)
        make_clf(**params).fit(X[samples], Y[samples])


def test_the_remedies_of_the_warning_hold():
    """OOD samples in y, or the detector's own threshold, reject what is far away."""
    rng = np.random.default_rng(0)
    far = rng.normal(size=(200, 2)) + np.array([0.0, -15.0])
    rule = BoundedAbstention(0.9)
    clf = make_clf(rule=rule, ood_detector=Mahalanobis(), random_state=4)
    with pytest.warns(SkoodWarning, match="y has no OOD samples"):
        clf.fit(X[Y >= 0], Y[Y >= 0])
    assert clf.theta_ == 0.0
    assert np.mean(clf.predict(far) != -1) > 0.9  # the classifier is sure of them
    assert_array_equal(clf.ood_detector_.predict(far), np.full(200, -1))
    known = np.r_[X[Y >= 0], far[:100]], np.r_[Y[Y >= 0], np.full(100, -1)]
    bounded = clf.set_params(rule=BoundedTPRFPR(0.7, 0.05)).fit(*known)
    assert np.mean(bounded.predict(far[100:]) != -1) <= 0.05

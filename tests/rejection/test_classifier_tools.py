"""Tests of RejectOptionClassifier with scikit-learn's tools and with networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
from dataclasses import asdict

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from sklearn.covariance import LedoitWolf
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags

from skood.datasets import load_digits_ood
from skood.detectors import KNN, Energy, Mahalanobis, MaxLogit, ViM
from skood.metrics import make_selective_risk_scorer
from skood.model_selection import OODStratifiedKFold
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    RejectOptionClassifier,
)
from tests.rejection._problem import (
    X_NEW,
    Y_NEW,
    X,
    Y,
    make_clf,
    selective,
)


@pytest.fixture(scope="module")
def fitted():
    return make_clf().fit(X, Y)


def _pickled(clf, path):
    return pickle.loads(pickle.dumps(clf))


def _joblib_file(clf, path):
    joblib.dump(clf, path / "clf.joblib")
    return joblib.load(path / "clf.joblib")


def _skops_file(clf, path):
    sio = pytest.importorskip("skops.io")
    sio.dump(clf, path / "clf.skops")
    unknown = sio.get_untrusted_types(file=path / "clf.skops")
    assert all(name.startswith("skood.") for name in unknown)
    return sio.load(path / "clf.skops", trusted=unknown)


@pytest.mark.parametrize("round_trip", [_pickled, _joblib_file, _skops_file])
def test_serialization(fitted, round_trip, tmp_path):
    loaded = round_trip(fitted, tmp_path)
    assert_equal(asdict(loaded.operating_point_), asdict(fitted.operating_point_))
    assert_array_equal(loaded.predict(X_NEW), fitted.predict(X_NEW))
    reason, expected = loaded.reject_reason(X_NEW), fitted.reject_reason(X_NEW)
    for name, value in expected.items():
        assert_array_equal(reason[name], value)


def test_grid_search():
    scorer = make_selective_risk_scorer(tpr_min=0.5, fpr_max=0.5)
    cv = OODStratifiedKFold(2)
    grid = {"rule__fpr_max": [0.2, 0.4], "ood_detector__n_neighbors": [1, 5]}
    search = GridSearchCV(make_clf(), grid, scoring=scorer, cv=cv, error_score="raise")
    search.fit(X, Y)
    for params, mean in zip(
        search.cv_results_["params"],
        search.cv_results_["mean_test_score"],
        strict=True,
    ):
        scores = []
        for train, test in cv.split(X, Y):
            clf = make_clf().set_params(**params).fit(X[train], Y[train])
            report = clf.report(X[test], Y[test])
            missing = max(0, 0.5 - report.tpr.value)
            excess = max(0, report.fpr.value - 0.5)
            met = missing == excess == 0
            scores.append(-report.risk.value if met else -(1 + missing + excess))
        assert_allclose(mean, np.mean(scores))
    assert len(np.unique(search.cv_results_["mean_test_score"])) > 1
    assert search.best_estimator_.rule.fpr_max == search.best_params_["rule__fpr_max"]
    scores = cross_val_score(make_clf(), X, Y, scoring=scorer, cv=cv)
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()


def test_in_a_pipeline(fitted):
    pipe = make_pipeline(StandardScaler(), make_clf()).fit(X, Y)
    inner = make_clf().fit(pipe[0].transform(X), Y)
    assert_array_equal(pipe.predict(X_NEW), inner.predict(pipe[0].transform(X_NEW)))
    assert pipe.score(X_NEW, Y_NEW) == inner.score(pipe[0].transform(X_NEW), Y_NEW)
    scorer = make_selective_risk_scorer(tpr_min=0.01, fpr_max=0.99)
    assert_allclose(scorer(pipe, X_NEW, Y_NEW), pipe.score(X_NEW, Y_NEW))


def test_data_frames(fitted):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["width", "height"])
    clf = make_clf().fit(frame, pandas.Series(Y))
    assert clf.feature_names_in_.tolist() == ["width", "height"]
    new = pandas.DataFrame(X_NEW, columns=["width", "height"])
    assert_array_equal(clf.predict(new), fitted.predict(X_NEW))
    assert clf.report(new, pandas.Series(Y_NEW)) == fitted.report(X_NEW, Y_NEW)
    labels = pandas.Series(
        np.where(Y < 0, "ood", np.array(["ant", "bee", "cat"])[Y]), dtype="category"
    )
    text = make_clf(ood_label="ood", reject_label="?").fit(frame, labels)
    assert_array_equal(text.predict(new) == "?", fitted.predict(X_NEW) == -1)


def test_lists_and_single_precision(fitted):
    clf = make_clf().fit(X.tolist(), Y.tolist())
    assert_array_equal(clf.predict(X_NEW.tolist()), fitted.predict(X_NEW))
    single = make_clf().fit(X.astype(np.float32), Y)
    assert single.accept_proba(X_NEW.astype(np.float32)).dtype == np.float64
    agree = single.predict(X_NEW.astype(np.float32)) == fitted.predict(X_NEW)
    assert agree.mean() > 0.98


def test_tags():
    assert get_tags(make_clf()).target_tags.required
    assert get_tags(make_clf()).estimator_type == "classifier"
    plain = RejectOptionClassifier(LogisticRegression())
    # scikit-learn 1.6 does not say yet that a linear model takes sparse rows
    takes_sparse = get_tags(LogisticRegression()).input_tags.sparse
    assert get_tags(plain).input_tags.sparse == takes_sparse
    assert get_tags(make_clf()).input_tags.sparse == takes_sparse  # by KNN
    dense = make_clf(ood_detector=Mahalanobis())
    assert not get_tags(dense).input_tags.sparse
    logits_only = make_clf(ood_detector=MaxLogit())
    assert get_tags(logits_only).input_tags.sparse == takes_sparse
    binary_only = RejectOptionClassifier(_BinaryOnly())
    assert not get_tags(binary_only).classifier_tags.multi_class
    assert get_tags(RejectOptionClassifier(LinearRegression())).classifier_tags


class _BinaryOnly(LogisticRegression):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def test_methods_follow_the_classifier():
    clf = make_clf(LinearSVC(), risk_detector=MaxLogit())
    assert hasattr(clf, "decision_function")
    assert not hasattr(clf, "predict_proba")
    assert hasattr(make_clf(KNeighborsClassifier()), "predict_proba")
    assert not hasattr(make_clf(KNeighborsClassifier()), "decision_function")


# ---------------------------------------------------------------------------- networks


@pytest.fixture(scope="module")
def images():
    return load_digits_ood((8, 9), as_images=True, ood_label=-1, return_X_y=True)


@pytest.mark.parametrize(
    ("detector", "fpr_max", "as_tensor"),
    [(KNN(n_neighbors=5), 0.2, True), (ViM(), 0.3, False)],
)
def test_a_network_on_images(images, detector, fpr_max, as_tensor):
    torch = pytest.importorskip("torch")
    from skood.nn import TorchClassifier

    samples, y = images
    train, test = np.arange(0, 1797, 2), np.arange(1, 1797, 2)
    if as_tensor:
        samples = torch.as_tensor(samples)
    clf = selective(
        TorchClassifier(max_epochs=8, lr=3e-3, random_state=0, device="cpu"),
        ood_detector=detector,
        rule=BoundedTPRFPR(tpr_min=0.8, fpr_max=fpr_max),
    ).fit(samples[train], y[train])
    assert clf.ood_detector_.estimator_.estimator is clf.estimator_
    report = clf.report(samples[test], y[test])
    assert report.tpr.high > 0.8
    assert report.fpr.low < fpr_max
    is_id = y[test] >= 0
    accuracy = clf.estimator_.score(samples[test][is_id], y[test][is_id])
    assert accuracy > 0.9
    assert report.risk.value < (1 - accuracy) / 2
    reason = clf.reject_reason(samples[test])
    assert_array_equal(reason.reason == "accepted", clf.predict(samples[test]) != -1)
    assert reason.ood_percentile[~is_id].mean() > 70
    assert 40 < reason.ood_percentile[is_id].mean() < 60


def test_other_detectors_of_a_network(images):
    from skood.nn import TorchClassifier

    images_, y = images
    clf = selective(
        TorchClassifier(max_epochs=3, lr=3e-3, random_state=0, device="cpu"),
        risk_detector=Energy(),
        ood_detector=Mahalanobis(covariance=LedoitWolf()),
        rule=BoundedAbstention(0.8),
    ).fit(images_[:600], y[:600])
    for detector in (clf.risk_detector_, clf.ood_detector_):
        assert detector.estimator_.estimator is clf.estimator_
    assert clf.operating_point_.tpr >= 0.8


def test_score_pair_is_compared_with_the_threshold():
    clf = make_clf(risk_detector=MaxLogit()).fit(X, Y)
    risk, ood = clf.score_pair(X_NEW)
    assert_allclose(risk, clf.risk_detector_.score_samples(X_NEW))
    assert_allclose(ood, clf.ood_detector_.score_samples(X_NEW))
    accepted = clf.operating_point_.accept(-risk, -ood)
    assert_array_equal(accepted, clf.accept_proba(X_NEW) > 0)
    single = make_clf(ood_detector=None, rule=BoundedAbstention(0.2)).fit(X, Y)
    risk, ood = single.score_pair(X_NEW)
    assert ood is None
    assert_allclose(risk, single.predict_proba(X_NEW).max(axis=1) - 1, atol=1e-12)

"""Gradient-boosted trees as classifiers: scikit-learn, LightGBM, XGBoost, CatBoost."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_classification
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score

from skood.detectors import MSP, Energy, Mahalanobis
from skood.metrics import make_ood_scorer
from skood.model_selection import LeaveClassesOut
from skood.nn._make_network import make_network
from skood.rejection import RejectOptionClassifier, TwoThresholds

NAMES = np.array(["ant", "bee", "cat"])


def _histogram(n, **options):
    return HistGradientBoostingClassifier(max_iter=n, random_state=0, **options)


def _exact(n, **options):
    return GradientBoostingClassifier(n_estimators=n, random_state=0, **options)


def _lightgbm(n, **options):
    library = pytest.importorskip("lightgbm")
    return library.LGBMClassifier(n_estimators=n, n_jobs=1, verbose=-1, **options)


def _xgboost(n, **options):
    library = pytest.importorskip("xgboost")
    return library.XGBClassifier(n_estimators=n, n_jobs=1, **options)


def _catboost(n, **options):
    library = pytest.importorskip("catboost")
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return library.CatBoostClassifier(iterations=n, **quiet, **options)


def _raw(model, X):
    """The raw scores, by the documentation of each library."""
    options = {
        "LGBMClassifier": {"raw_score": True},
        "XGBClassifier": {"output_margin": True},
        "CatBoostClassifier": {"prediction_type": "RawFormulaVal"},
    }.get(type(model).__name__)
    return (
        model.decision_function(X) if options is None else model.predict(X, **options)
    )


@pytest.fixture(params=[_histogram, _exact, _lightgbm, _xgboost, _catboost])
def booster(request):
    request.param(1)  # skip without the library
    return request.param


@pytest.fixture
def data():
    X, y = make_classification(
        240, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0
    )
    return pd.DataFrame(X, columns=list("abcdef")), y


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_logits_are_raw_scores(booster, data, n_classes):
    X, y = data
    y = np.minimum(y, n_classes - 1)
    model = booster(8).fit(X, y)
    raw = np.asarray(_raw(model, X), dtype=np.float64)
    logits = make_network(model).outputs(X, {"logits"}).logits
    if n_classes == 2:
        np.testing.assert_allclose(logits[:, 1] - logits[:, 0], raw, rtol=1e-12)
        expected = np.logaddexp(raw / 2, -raw / 2)
    else:
        expected = logsumexp(raw, axis=1)
    # XGBoost computes p and 1 - p in float32
    np.testing.assert_allclose(
        softmax(logits, axis=1), model.predict_proba(X), rtol=1e-6, atol=1e-7
    )
    frozen = FrozenEstimator(model)
    np.testing.assert_allclose(Energy(frozen).fit(X).score_samples(X), expected)
    expected = softmax(logits, axis=1).max(axis=1)
    np.testing.assert_allclose(1 + MSP(frozen).fit(X).score_samples(X), expected)


def test_sure_predictions_are_not_tied():
    """Probabilities of XGBoost are float32: they are 1 where margins still differ."""
    model = _xgboost(300, learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0)
    X, y = make_blobs(300, centers=2, cluster_std=2.5, random_state=0)
    model.fit(X, y)
    rng = np.random.default_rng(0)
    X = X[rng.permutation(300)] + rng.normal(size=X.shape)
    margin = np.abs(_raw(model, X))
    sure = model.predict_proba(X).max(axis=1) == 1.0
    assert np.unique(margin[sure]).size > 1
    scores = MSP(FrozenEstimator(model)).fit(X).score_samples(X)
    order = np.argsort(margin)
    assert (np.diff(scores[order]) >= 0).all()
    assert np.unique(scores[sure]).size > 1


@pytest.mark.parametrize(
    ("make", "options", "n_classes"),
    [
        (_exact, {"loss": "exponential"}, 2),
        (_lightgbm, {"objective": "multiclassova"}, 3),
        (_lightgbm, {"sigmoid": 2.0}, 2),
        (_catboost, {"loss_function": "MultiClassOneVsAll"}, 3),
        (_xgboost, {"objective": "binary:hinge"}, 2),
    ],
)
def test_other_objectives_give_probabilities(make, options, n_classes, data):
    """Their raw scores are no logits: the logarithm of the probabilities is used."""
    X, y = data
    model = make(5, **options).fit(X, np.minimum(y, n_classes - 1))
    logits = make_network(model).outputs(X, {"logits"}).logits
    proba = np.asarray(model.predict_proba(X), dtype=np.float64)
    tiny = np.finfo(np.float64).tiny
    np.testing.assert_allclose(logits, np.log(np.maximum(proba, tiny)))


@pytest.mark.filterwarnings("error")
def test_reject_option(booster, data):
    X, y = data
    labels = y if booster is _xgboost else NAMES[y]
    clf = RejectOptionClassifier(
        booster(8), ood_detector=Mahalanobis(), rule=TwoThresholds(), random_state=0
    ).fit(X, labels)
    answers = clf.predict(X)
    assert answers.shape == (240,)
    accepted = answers != clf.reject_label_
    assert 0.7 < accepted.mean() < 1
    given = np.asarray(clf.estimator_.predict(X)).reshape(-1)
    assert (answers[accepted] == given[accepted]).all()
    report = clf.report(X, labels)
    assert report.coverage.value == accepted.mean()
    assert report.risk.value == np.mean(given[accepted] != labels[accepted])
    loaded = pickle.loads(pickle.dumps(clf))
    assert (loaded.predict(X) == answers).all()
    assert (clone(clf).fit(X, labels).predict(X) == answers).all()
    assert (clf.set_params(rule=None).fit(X, labels).predict(X[:3]) != "").all()
    assert clf.predict(X).shape == (240,)
    X.iloc[0] = 1e6
    assert loaded.reject_reason(X).reason[0] == "out-of-distribution"


def test_search_over_a_booster(booster, data):
    X, y = data
    name = next(
        n
        for n in ("max_iter", "n_estimators", "iterations")
        if n in booster(1).get_params()
    )
    clf = RejectOptionClassifier(
        booster(2), ood_detector=Mahalanobis(), rule=TwoThresholds(), random_state=0
    )
    search = GridSearchCV(clf, {f"estimator__{name}": [1, 8]}, cv=2).fit(X, y)
    assert search.best_estimator_.estimator_.get_params()[name] in (1, 8)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_left_out_classes(booster, data):
    X, y = data
    model = booster(3)
    if booster is _xgboost:
        with pytest.raises(ValueError, match="Invalid classes inferred") as error:
            MSP(model).fit(X, y + 1)
        assert "VotingClassifier([('xgb', XGBClassifier())]" in error.value.__notes__[0]
        with pytest.raises(ValueError, match="Invalid classes inferred") as error:
            RejectOptionClassifier(model).fit(X, NAMES[y])
        assert "VotingClassifier([('xgb', XGBClassifier())]" in error.value.__notes__[0]
        model = VotingClassifier([("xgb", model)], voting="soft")
    found = cross_val_score(
        MSP(model), X, NAMES[y], cv=LeaveClassesOut(1), scoring=make_ood_scorer("auroc")
    )
    assert len(found) == 3
    assert np.isfinite(found).all()


def test_names_of_columns(booster, data):
    """Columns are named as in the fit, also in a copy; CatBoost sorts them."""
    X, y = data
    detector = pickle.loads(pickle.dumps(Mahalanobis(booster(3)).fit(X, y)))
    expected = detector.score_samples(X)
    np.testing.assert_array_equal(detector.score_samples(X.copy()), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        detector.score_samples(X[list("bacdef")])

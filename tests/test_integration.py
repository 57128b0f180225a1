"""Detectors, scorers, splitters and networks in scikit-learn's searches."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import KNN, MSP, Energy, Mahalanobis, ViM
from skood.metrics import make_ood_scorer
from skood.model_selection import LeaveClassesOut, OODStratifiedKFold
from skood.nn import FeatureExtractor, TorchClassifier, split


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[::2] / 16, y[::2]


def _auroc(estimator, X, y, train, test):
    """AUROC of classes seen in training against the others, by scikit-learn."""
    fitted = clone(estimator).fit(X[train], y[train])
    is_id = np.isin(y[test], np.unique(y[train]))
    return roc_auc_score(is_id, fitted.score_samples(X[test]))


def test_grid_search_over_a_pipeline_with_left_out_classes(digits):
    X, y = digits
    pipeline = Pipeline(
        [("scale", StandardScaler()), ("detector", KNN(normalize=True))]
    )
    cv = LeaveClassesOut(3, random_state=0)
    search = GridSearchCV(
        pipeline,
        {"detector__n_neighbors": [5, 50]},
        scoring=make_ood_scorer("auroc"),
        cv=cv,
        error_score="raise",
    ).fit(X, y)
    for i, k in enumerate((5, 50)):
        candidate = clone(pipeline).set_params(detector__n_neighbors=k)
        expected = [_auroc(candidate, X, y, *fold) for fold in cv.split(X, y)]
        got = [
            search.cv_results_[f"split{j}_test_score"][i] for j in range(len(expected))
        ]
        np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert search.best_params_ == {"detector__n_neighbors": 5}
    assert search.best_score_ > 0.9
    # refitted on all rows, it knows all classes and accepts what it has seen, of which
    # each is its own neighbor, and of new digits all but contamination
    assert np.mean(search.predict(X) == 1) >= 0.95
    new = load_digits().data[1::2] / 16
    noise = np.sqrt(0.05 * 0.95 * (1 / len(X) + 1 / len(new)))
    accepted = np.mean(search.predict(new) == 1)
    assert accepted == pytest.approx(0.95, abs=3 * noise)
    np.testing.assert_array_equal(search.best_estimator_.classes_, np.arange(10))


def test_grid_search_over_a_network_inside_a_detector(digits):
    X, y = digits
    network = TorchClassifier(max_epochs=5, random_state=0)
    search = GridSearchCV(
        MSP(network),
        {"estimator__lr": [1e-6, 1e-2], "temperature": [1.0, 10.0]},
        scoring=make_ood_scorer("auroc"),
        cv=LeaveClassesOut(left_out=[(8, 9), (0, 1)], random_state=0),
        error_score="raise",
    ).fit(X, y)
    # a network that has learned nothing tells nothing
    assert search.best_params_["estimator__lr"] == 1e-2
    scores = search.cv_results_["mean_test_score"]
    assert scores[:2].max() < search.best_score_ - 0.1
    assert search.best_score_ > 0.8
    assert network.lr == 1e-3
    assert not hasattr(network, "module_")


def test_cross_validation_with_known_ood_samples(digits):
    X, y = digits
    y = np.where(y >= 8, -1, y)
    detector = ViM(LogisticRegression(max_iter=500))
    cv = OODStratifiedKFold(3)
    got = cross_val_score(
        detector, X, y, cv=cv, scoring=make_ood_scorer(), error_score="raise"
    )
    own = cross_val_score(detector, X, y, cv=cv, error_score="raise")  # score(X, y)
    np.testing.assert_allclose(own, got, rtol=1e-12)
    for score, (train, test) in zip(got, cv.split(X, y), strict=True):
        fitted = clone(detector).fit(X[train], y[train])
        expected = roc_auc_score(y[test] != -1, fitted.score_samples(X[test]))
        assert score == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore:The within-class covariance is singular")
def test_network_of_many_detectors(digits):
    """Read directly, or body and head apart, or in a pipeline: the same scores."""
    X, y = digits
    known = np.where(y >= 8, -1, y)
    network = TorchClassifier(max_epochs=5, lr=1e-2, random_state=0)
    network.fit(X[known != -1], y[known != -1])
    body, head = split(network)
    Z = body.transform(X)
    for make in (
        lambda estimator: Energy(estimator=estimator),
        lambda estimator: KNN(estimator, n_neighbors=10),
        lambda estimator: Mahalanobis(estimator),
        lambda estimator: ViM(estimator, n_components=20),
    ):
        direct = make(body.estimator.estimator_).fit(X, known)
        apart = make(head).fit(Z, known)
        scores = apart.score_samples(Z)
        np.testing.assert_allclose(direct.score_samples(X), scores, rtol=1e-3)
        assert direct.score(X, y) == pytest.approx(apart.score(Z, y), abs=1e-4)
    pipeline = make_pipeline(FeatureExtractor(body.estimator.estimator_), KNN())
    expected = KNN().fit(Z, known).score_samples(Z)
    np.testing.assert_allclose(pipeline.fit(X, known).score_samples(X), expected, 1e-6)

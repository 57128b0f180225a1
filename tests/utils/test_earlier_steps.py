"""Steps of a pipeline that are fitted on samples labeled as OOD."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from skood.combine import DetectorEnsemble
from skood.detectors import KNN, MSP, Energy, Mahalanobis
from skood.exceptions import SkoodWarning
from skood.logic import MLNDetector
from skood.metrics import make_ood_scorer
from skood.model_selection import IDOnly
from skood.monitor import ExchangeabilityMonitor, MonitorPanel
from skood.nn import FeatureExtractor
from skood.rectifiers import ASH, ReAct
from skood.rejection import (
    BoundedTPRFPR,
    RejectOptionClassifier,
    RejectOptionRegressor,
)
from skood.selection import NoveltySelector

RNG = np.random.default_rng(0)
Y = np.repeat([0, 1, -1], [150, 150, 100])
X = RNG.normal(size=(400, 4)) + 5
X[Y == 1, 1] += 3
X[Y == -1, 0] += 1000
TARGETS = np.where(Y == -1, np.nan, X[:, 1])
CONCEPTS = pd.DataFrame({"a": Y, "b": np.where(Y == -1, -1, Y == 0)})
RULE = BoundedTPRFPR(tpr_min=0.8, fpr_max=0.3)


def _plain(last):
    return make_pipeline(StandardScaler(), last)


def _logic(**parts):
    concepts = [("a", LogisticRegression()), ("b", LogisticRegression())]
    constraints = ["a=0 -> b=1"]
    return MLNDetector(constraints, **{"concepts": concepts, **parts})


def _messages(estimator, X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, y)
    ours = [str(one.message) for one in caught if one.category is SkoodWarning]
    return [message for message in ours if "of the pipeline before" in message]


AFFECTED = {
    "detector": (lambda: _plain(KNN()), Y),
    "detector of a classifier": (lambda: _plain(MSP(LogisticRegression())), Y),
    "reject option": (
        lambda: _plain(
            RejectOptionClassifier(
                LogisticRegression(), ood_detector=KNN(), rule=RULE, random_state=0
            )
        ),
        Y,
    ),
    "ensemble": (lambda: _plain(DetectorEnsemble([("a", KNN())])), Y),
    "selector": (lambda: _plain(NoveltySelector([("a", KNN())])), Y),
    "logic": (lambda: _plain(_logic()), CONCEPTS),
    "monitor": (lambda: ExchangeabilityMonitor(_plain(KNN())), Y),
    "panel": (lambda: MonitorPanel([("a", ExchangeabilityMonitor(_plain(KNN())))]), Y),
    "pipeline in a pipeline": (lambda: make_pipeline(PCA(), make_pipeline(KNN())), Y),
    "columns": (
        lambda: make_pipeline(make_column_transformer((PCA(), [0, 1])), KNN()),
        Y,
    ),
    "union": (lambda: make_pipeline(make_union(Normalizer(), PCA()), KNN()), Y),
    "text": (
        lambda: make_pipeline(IDOnly(PCA()), KNN(ood_label="far")),
        np.where(Y == -1, "far", "near"),
    ),
}

UNAFFECTED = {
    "detector": (lambda: make_pipeline(IDOnly(StandardScaler()), KNN()), Y),
    "columns": (
        lambda: make_pipeline(make_column_transformer((IDOnly(PCA()), [0, 1])), KNN()),
        Y,
    ),
    "frozen": (
        lambda: make_pipeline(FrozenEstimator(StandardScaler().fit(X)), KNN()),
        Y,
    ),
    "passthrough": (lambda: make_pipeline("passthrough", KNN()), Y),
    "one step": (lambda: make_pipeline(KNN()), Y),
    "stateless": (
        lambda: make_pipeline(Normalizer(), FunctionTransformer(np.abs), KNN()),
        Y,
    ),
    "rectifier": (lambda: make_pipeline(ReAct(), ASH(), KNN()), Y),
    "features of a network": (
        lambda: make_pipeline(
            FeatureExtractor(
                FrozenEstimator(LogisticRegression().fit(X, Y)), device="cpu"
            ),
            KNN(),
        ),
        Y,
    ),
    "no OOD samples": (lambda: _plain(KNN()), np.abs(Y)),
    "no labels": (lambda: _plain(KNN()), None),
    "text": (
        lambda: make_pipeline(IDOnly(PCA(), ood_label="far"), KNN(ood_label="far")),
        np.where(Y == -1, "far", "near"),
    ),
    # these leave OOD samples out before they fit the pipelines
    "pipelines in a reject option": (
        lambda: RejectOptionClassifier(
            _plain(LogisticRegression()),
            ood_detector=_plain(KNN()),
            rule=RULE,
            random_state=0,
        ),
        Y,
    ),
    "pipelines in a regressor": (
        lambda: RejectOptionRegressor(_plain(Ridge()), uncertainty=_plain(Ridge())),
        TARGETS,
    ),
    "pipelines in an ensemble": (lambda: DetectorEnsemble([("a", _plain(KNN()))]), Y),
    "pipelines in a selector": (lambda: NoveltySelector([("a", _plain(KNN()))]), Y),
    "pipelines in a logic detector": (lambda: _logic(detector=_plain(KNN())), CONCEPTS),
    "pipeline in a detector": (lambda: MSP(_plain(LogisticRegression())), Y),
}


@pytest.mark.parametrize("name", AFFECTED)
def test_warns_once_with_the_remedy(name):
    make, labels = AFFECTED[name]
    (message,) = _messages(make(), X, labels)
    assert "skood.model_selection.IDOnly" in message


@pytest.mark.parametrize("name", UNAFFECTED)
def test_no_warning(name):
    make, labels = UNAFFECTED[name]
    assert _messages(make(), X, labels) == []


def test_message_has_the_steps_and_the_label():
    pipe = make_pipeline(StandardScaler(), Normalizer(), PCA(), KNN(ood_label="far"))
    (message,) = _messages(pipe, X, np.where(Y == -1, "far", "near"))
    assert "['standardscaler', 'pca'] of the pipeline before KNN" in message
    assert "IDOnly(..., ood_label='far')" in message


def test_regressor_has_another_remedy():
    pipe = _plain(RejectOptionRegressor(Ridge(), uncertainty=Ridge()))
    (message,) = _messages(pipe, X, TARGETS)
    assert "IDOnly" not in message
    assert "Make the estimator a pipeline of them" in message


def test_search_warns_for_plain_steps_only():
    scoring = make_ood_scorer()
    grid = {"knn__n_neighbors": [5]}
    search = GridSearchCV(_plain(KNN()), grid, scoring=scoring, cv=2)
    assert _messages(search, X, Y)
    wrapped = make_pipeline(IDOnly(StandardScaler()), KNN())
    search = GridSearchCV(wrapped, grid, scoring=scoring, cv=2)
    assert _messages(search, X, Y) == []


def test_affected_scores_improve_with_the_remedy():
    rng = np.random.default_rng(1)
    X_new = rng.normal(size=(400, 4)) + 5
    X_new[Y == 1, 1] += 3
    X_new[Y == -1, 0] += 4
    plain = _plain(KNN(n_neighbors=5))
    assert _messages(plain, X, Y)
    wrapped = make_pipeline(IDOnly(StandardScaler()), KNN(n_neighbors=5)).fit(X, Y)
    assert plain.score(X_new, Y) < 0.7 < 0.9 < wrapped.score(X_new, Y)


@pytest.mark.parametrize("detector", [Mahalanobis(), Energy(LogisticRegression())])
def test_scores_do_not_depend_on_the_search_for_a_pipeline(detector):
    scaled = StandardScaler().fit_transform(X)
    alone = detector.fit(scaled, Y).score_samples(scaled)
    pipe = _plain(detector)
    assert _messages(pipe, X, Y)
    np.testing.assert_array_equal(pipe.score_samples(X), alone)

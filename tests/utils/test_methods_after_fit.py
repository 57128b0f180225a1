"""Estimators whose methods appear on fit, in all meta-estimators."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.ensemble import StackingClassifier, StackingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from skood.base import UncertaintyDetector
from skood.combine import DetectorEnsemble
from skood.detectors import KNN, MSP
from skood.epistemic import DeepEnsemble
from skood.logic import MLNDetector
from skood.rejection import RejectOptionClassifier, RejectOptionRegressor
from skood.selection import ClassifierFusion, NoveltySelector
from skood.utils._param_validation import HasMethods
from skood.utils.discovery import all_estimators
from tests._loops import looped

X, Y = make_blobs(90, centers=3, cluster_std=2.5, random_state=0)
T = X @ [1.0, 0.5]
CONCEPTS = pd.DataFrame({"a": Y, "b": (Y > 0).astype(int)})
STACK = StackingClassifier([("a", GaussianNB())], cv=2)
REGRESSOR = StackingRegressor([("a", Ridge())], cv=2)

CLASSIFIERS = {
    "stack": STACK,
    "pipeline": make_pipeline(STACK),
    "search": GridSearchCV(STACK, {"cv": [2]}, cv=2),
    "one-vs-rest": OneVsRestClassifier(STACK),
}
REGRESSORS = {
    "stack": REGRESSOR,
    "pipeline": make_pipeline(REGRESSOR),
    "search": GridSearchCV(REGRESSOR, {"cv": [2]}, cv=2),
}


def _logic(clf):
    concepts = [("a", clf), ("b", LogisticRegression())]
    return MLNDetector(concepts=concepts, constraints=["a=0 -> b=0"])


OF_CLASSIFIERS = {
    "members": lambda clf: (DeepEnsemble(clf, n_members=2), Y, "predict_proba"),
    "list of members": lambda clf: (DeepEnsemble([clf, clf]), Y, "predict_proba"),
    "reject option": lambda clf: (RejectOptionClassifier(clf), Y, "predict_proba"),
}
OTHERS_OF_CLASSIFIERS = {
    "reference": lambda clf: (
        DeepEnsemble(LogisticRegression(), n_members=2, reference=clf),
        Y,
    ),
    "uncertainty": lambda clf: (
        UncertaintyDetector(DeepEnsemble(clf, n_members=2)),
        Y,
    ),
    "detector": lambda clf: (MSP(clf), Y),
    "ensemble": lambda clf: (DetectorEnsemble([("a", MSP(clf)), ("b", KNN())]), Y),
    "selector": lambda clf: (NoveltySelector([("a", MSP(clf))]), Y),
    "concept": lambda clf: (_logic(clf), CONCEPTS),
}
OF_REGRESSORS = {
    "members": lambda reg: DeepEnsemble(reg, n_members=2),
    "list of members": lambda reg: DeepEnsemble([reg, reg]),
    "reject option": lambda reg: RejectOptionRegressor(reg, uncertainty=Ridge()),
    "loss": lambda reg: RejectOptionRegressor(Ridge(), uncertainty=reg),
    "quantiles": lambda reg: RejectOptionRegressor(Ridge(), uncertainty=(reg, reg)),
}


@looped("kind", CLASSIFIERS)
@pytest.mark.parametrize("name", OF_CLASSIFIERS)
def test_classifier_gives_its_probabilities(name, kind):
    owner, labels, method = OF_CLASSIFIERS[name](CLASSIFIERS[kind])
    expected = clone(CLASSIFIERS[kind]).fit(X, labels).predict_proba(X)
    np.testing.assert_allclose(getattr(owner.fit(X, labels), method)(X), expected)


@looped("kind", CLASSIFIERS)
@pytest.mark.parametrize("name", OTHERS_OF_CLASSIFIERS)
def test_classifier_is_fitted(name, kind):
    owner, labels = OTHERS_OF_CLASSIFIERS[name](CLASSIFIERS[kind])
    scores = owner.fit(X, labels).predict(X)
    assert len(scores) == len(X)


@looped("kind", REGRESSORS)
@pytest.mark.parametrize("name", OF_REGRESSORS)
def test_regressor_is_fitted(name, kind):
    owner = OF_REGRESSORS[name](REGRESSORS[kind]).fit(X, T)
    np.testing.assert_allclose(owner.predict(X).astype(float), T, atol=0.5)


def test_every_constraint_of_a_classifier():
    constraints = {
        f"{name}.{parameter}": constraint
        for name, cls in all_estimators()
        for parameter, allowed in getattr(cls, "_parameter_constraints", {}).items()
        for constraint in allowed
        if isinstance(constraint, HasMethods)
        and {"fit"} < set(constraint.methods) <= {"fit", "predict", "predict_proba"}
    }
    assert len(constraints) > 10
    refused = [n for n, one in constraints.items() if not one.is_satisfied_by(STACK)]
    assert refused == []


@pytest.mark.parametrize(
    "clf",
    [
        SVC(),
        GridSearchCV(SVC(), {"C": [1.0]}),
        make_pipeline(SVC()),
        OneVsRestClassifier(Ridge()),
        StackingClassifier([("a", LogisticRegression())], final_estimator=SVC()),
        FrozenEstimator(SVC().fit(X, Y)),
    ],
)
def test_methods_that_never_appear_are_refused(clf):
    for model in (clf, [clf]):
        with pytest.raises((TypeError, ValueError), match="predict_proba"):
            DeepEnsemble(model).fit(X, Y)


def test_pipeline_without_a_detector_is_refused():
    pipe = make_pipeline(LogisticRegression())
    with pytest.raises(TypeError, match="without score_samples"):
        DetectorEnsemble([("a", pipe)]).fit(X, Y)


def test_fusion_by_a_stack():
    rng = np.random.default_rng(0)
    calibration, scores = rng.normal(size=(400, 2)), rng.normal(size=(200, 2))
    scores[:60] -= 4
    cv = StratifiedKFold(2, shuffle=True, random_state=0)
    fusion = ClassifierFusion(classifier=clone(STACK).set_params(cv=cv))
    batch = fusion.select(scores, calibration, alpha=0.1, random_state=0)
    assert batch.selected[:60].mean() > 0.8
    assert batch.selected[60:].mean() < 0.15

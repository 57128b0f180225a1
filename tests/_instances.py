"""Instances of every public estimator, and the checks that each cannot pass."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import inspect
from functools import partial

import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import LocalOutlierFactor
from sklearn.neural_network import MLPClassifier
from sklearn.svm import OneClassSVM
from sklearn.utils import Bunch, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from skood.base import BaseDetector, UncertaintyDetector, UncertaintyMixin
from skood.detectors import (
    KNN,
    MSP,
    Energy,
    Entropy,
    Mahalanobis,
    MaxLogit,
    SklearnDetector,
    ViM,
)
from skood.nn import FeatureExtractor, LinearHead
from skood.rejection import PlugInCost, RejectOptionClassifier
from skood.utils.discovery import all_estimators

__all__ = [
    "PlainUncertainty",
    "detectors",
    "expected_detector_failures",
    "expected_failures",
    "instances",
    "instances_of",
    "parametrize_over",
]


class PlainUncertainty(UncertaintyMixin, LogisticRegression):
    """An uncertainty classifier: all of its entropy is called epistemic."""

    def predict_uncertainty(self, X):
        """Entropy of the predicted probabilities, none of it aleatoric."""
        log_p = np.maximum(self.predict_log_proba(X), -700.0)
        entropy = -np.sum(np.exp(log_p) * log_p, axis=1)
        return Bunch(total=entropy, aleatoric=np.zeros_like(entropy), epistemic=entropy)


_LINEAR = LogisticRegression()

# Classes that are not here are constructed without arguments. Some checks have as few
# as ten samples, fewer than the 50 neighbours that KNN asks for.
_INSTANCES = {
    "Energy": [Energy(), Energy(_LINEAR, temperature=2.0)],
    "Entropy": [Entropy(), Entropy(_LINEAR)],
    "FeatureExtractor": [
        FeatureExtractor(_LINEAR),
        FeatureExtractor(MLPClassifier((8,), solver="lbfgs", random_state=0)),
    ],
    "KNN": [
        KNN(n_neighbors=3),
        KNN(n_neighbors=3, algorithm="sklearn", normalize=False),
        KNN(n_neighbors=3, algorithm="torch"),
        KNN(n_neighbors=3, metric="manhattan"),
        KNN(n_neighbors=3, max_samples=0.8, random_state=0),
        KNN(_LINEAR, n_neighbors=3),
    ],
    "LinearHead": [LinearHead()],
    "MSP": [
        MSP(),
        MSP(_LINEAR, temperature=2.0),
        MSP(RandomForestClassifier(n_estimators=5, random_state=0)),
    ],
    "Mahalanobis": [
        Mahalanobis(),
        Mahalanobis(tied=False),
        Mahalanobis(covariance=LedoitWolf()),
        Mahalanobis(_LINEAR),
    ],
    "MaxLogit": [
        MaxLogit(),
        MaxLogit(_LINEAR),
    ],
    "RejectOptionClassifier": [
        RejectOptionClassifier(_LINEAR),
        RejectOptionClassifier(_LINEAR, ood_label=-9, reject_label=-9),
        RejectOptionClassifier(
            _LINEAR,
            # accepts everything, by way of a calibrated threshold
            rule=PlugInCost(reject_id=1.0, ood_prior=0.0),
            ood_label=-9,
            reject_label=-9,
            random_state=0,
        ),
    ],
    "SklearnDetector": [
        SklearnDetector(),
        SklearnDetector(IsolationForest(n_estimators=10, random_state=0)),
        SklearnDetector(LocalOutlierFactor(n_neighbors=3, novelty=True)),
        SklearnDetector(OneClassSVM(), per_class=True),
        SklearnDetector(OneClassSVM(), estimator=_LINEAR),
    ],
    "UncertaintyDetector": [
        UncertaintyDetector(PlainUncertainty()),
        UncertaintyDetector(PlainUncertainty(), component="total"),
    ],
    "ViM": [ViM(), ViM(_LINEAR), ViM(n_components=1)],
}

_NO_OOD_ROWS = (
    "`score` is the AUROC of ID against OOD samples, and the data of this check hold "
    "no OOD rows."
)
_NEEDS_Y = (
    "The check fits without y, but a classifier, or one detector per class, has to be "
    "fitted on (X, y); the error says so."
)
_FLOAT32_SUMS = (
    "A weight of two and a repeated row are summed in another order in float32: "
    "probabilities agree to 1e-6, the check asks for 1e-7."
)
_MINUS_ONE = (
    "The check names a class -1, which marks known OOD rows in `y` (`ood_label`) and "
    "rejected rows in predictions (`reject_label`); other values of these pass it."
)
_TIES = (
    "Few trees give few values: with so many ties no threshold rejects the asked "
    "share of the training samples."
)
_TAKES_NAN = "A forest takes missing values, so NaN in X is no error."
_ONE_WIDTH = (
    "The check fits on data of another width, and this instance has one: that of the "
    "network it was frozen with, or of its class_weight."
)


def _requires_y(estimator):
    """Whether a detector cannot be fitted on `X` alone."""
    per_class = getattr(estimator, "per_class", False)
    return per_class or get_tags(estimator).target_tags.required


def instances_of(name, cls):
    """Instances of a public estimator; empty if nobody has registered any."""
    if name in _INSTANCES:
        return _INSTANCES[name]
    parameters = list(inspect.signature(cls).parameters.values())
    if any(p.default is p.empty for p in parameters):
        return []
    return [cls()]


def instances():
    """Instances of all public estimators."""
    return [one for name, cls in all_estimators() for one in instances_of(name, cls)]


def detectors():
    """Instances of all public detectors, and some that read a frozen network."""
    found = [one for one in instances() if isinstance(one, BaseDetector)]
    rng = np.random.default_rng(0)
    y = np.arange(200) % 5
    X = rng.normal(size=(200, 5)) + 8 * np.eye(5)[y]
    network = MLPClassifier((16,), solver="lbfgs", random_state=0).fit(X, y)
    weighted = Energy(class_weight=[1.0, 2.0, 0.0, 1.0, 1.0])
    return [*found, KNN(), weighted, MSP(FrozenEstimator(network))]


def expected_failures(estimator):
    """Checks of scikit-learn that an instance fails, each with the reason."""
    name = type(estimator).__name__
    if name == "TorchClassifier":
        return {"check_sample_weight_equivalence_on_dense_data": _FLOAT32_SUMS}
    if name == "RejectOptionClassifier" and estimator.ood_label == -1:
        return {"check_classifiers_classes": _MINUS_ONE}
    failures = {}
    if isinstance(estimator, BaseDetector):
        for check in ("check_fit_score_takes_y", "check_pipeline_consistency"):
            failures[check] = _NO_OOD_ROWS
        if _requires_y(estimator):
            for check in ("check_outliers_train", "check_outliers_fit_predict"):
                failures[check] = _NEEDS_Y
    return failures


def expected_detector_failures(detector):
    """Checks of `yield_detector_checks` that an instance fails, with the reason."""
    estimator = detector.get_params().get("estimator")
    if isinstance(estimator, RandomForestClassifier):
        nan = ("check_failed_fit_keeps_state", "check_bad_input")
        return {"check_offset": _TIES, **dict.fromkeys(nan, _TAKES_NAN)}
    if isinstance(estimator, FrozenEstimator) or getattr(
        detector, "class_weight", None
    ):
        return dict.fromkeys(("check_refit", "check_few_samples"), _ONE_WIDTH)
    return {}


def parametrize_over(estimators):
    """``parametrize_with_checks``, where an expected failure that passes fails."""
    strict = {"xfail_strict": True}
    if "xfail_strict" not in inspect.signature(parametrize_with_checks).parameters:
        strict = {}  # before scikit-learn 1.8
    return partial(
        parametrize_with_checks, expected_failed_checks=expected_failures, **strict
    )(estimators)

"""Metadata routing of sample weights to the parts of detectors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn import config_context, get_config
from sklearn.covariance import EmpiricalCovariance
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.metadata_routing import get_routing_for_object

from skood.base import UncertaintyDetector
from skood.combine import DetectorEnsemble
from skood.detectors import MSP, Mahalanobis, SklearnDetector
from skood.graph import Propagation
from skood.model_selection import IDOnly
from skood.rectifiers import DICE, LTS
from tests._instances import PlainUncertainty

rng = np.random.default_rng(0)
Y = np.arange(90) % 3
X = rng.normal(size=(90, 3)) + 3 * np.eye(3)[Y]
WEIGHT = rng.integers(1, 4, size=90)


class Recorder(LogisticRegression):
    """Classifier that stores the weights of its fit."""

    def fit(self, X, y, sample_weight=None):
        self.seen_ = sample_weight
        return super().fit(X, y, sample_weight)


def _propagated(part):
    detector = MSP(part)
    if get_config()["enable_metadata_routing"]:
        detector.set_fit_request(sample_weight=True)
    return Propagation(detector)


@pytest.mark.parametrize(
    "kind",
    [
        MSP,
        Mahalanobis,
        _propagated,
        DICE,
        LTS,
    ],
    ids=["MSP", "Mahalanobis", "Propagation", "DICE", "LTS"],
)
def test_a_classifier_gets_weights_that_it_requests(kind):
    def seen(part):
        fitted = kind(part).fit(X, Y, sample_weight=WEIGHT).estimator_
        return getattr(fitted, "estimator_", fitted).seen_

    np.testing.assert_array_equal(seen(Recorder()), WEIGHT)  # without routing
    with config_context(enable_metadata_routing=True):
        np.testing.assert_array_equal(
            seen(Recorder().set_fit_request(sample_weight=True)), WEIGHT
        )
        assert seen(Recorder().set_fit_request(sample_weight=False)) is None
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            seen(Recorder())


def test_members_of_ensembles():
    def fitted(request):
        part = Recorder().set_fit_request(sample_weight=request)
        member = MSP(part).set_fit_request(sample_weight=request)
        members = [
            ("a", member),
            ("b", SklearnDetector().set_fit_request(sample_weight=False)),
        ]
        ensemble = DetectorEnsemble(members, calibration=0.5, random_state=0)
        ensemble.fit(X, Y, sample_weight=WEIGHT)
        return ensemble.named_detectors_["a"].estimator_.seen_

    with config_context(enable_metadata_routing=True):
        assert len(fitted(True)) == 45
        assert fitted(False) is None
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            DetectorEnsemble([("a", MSP(LogisticRegression()))]).fit(
                X, Y, sample_weight=WEIGHT
            )


def test_detectors_of_other_parts():
    forest, uncertain = IsolationForest(random_state=0), PlainUncertainty()
    with config_context(enable_metadata_routing=True):
        forest.set_fit_request(sample_weight=True)
        detector = SklearnDetector(detector=forest)
        actual = detector.fit(X, Y, sample_weight=WEIGHT).score_samples(X)
        expected = forest.fit(X, sample_weight=WEIGHT).score_samples(X)
        np.testing.assert_array_equal(actual, expected)
        # the default parts are not the user's, and need no request
        SklearnDetector().fit(X, Y, sample_weight=WEIGHT)
        DICE().fit(X, Y, sample_weight=WEIGHT)
        uncertain.set_fit_request(sample_weight=True)
        request = get_routing_for_object(UncertaintyDetector(uncertain))
        assert "sample_weight" in request.consumes("fit", ["sample_weight"])
        Mahalanobis(covariance=EmpiricalCovariance()).fit(X, Y, sample_weight=WEIGHT)


def test_id_only_drops_weights_with_their_samples():
    y = np.where(np.arange(90) % 5 == 0, -1, Y)
    weight = np.where(y == -1, 1e6, WEIGHT)
    expected = np.average(X[y >= 0], axis=0, weights=WEIGHT[y >= 0])
    scaler = IDOnly(StandardScaler()).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(scaler.transformer_.mean_, expected)
    with config_context(enable_metadata_routing=True):
        inner = StandardScaler().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(
            IDOnly(inner).set_fit_request(sample_weight=True),
            Mahalanobis().set_fit_request(sample_weight=True),
        )
        pipeline.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(pipeline[0].transformer_.mean_, expected)
    Z = pipeline[:1].transform(X)
    detector = Mahalanobis().fit(Z, y, sample_weight=weight)
    np.testing.assert_array_equal(pipeline[1].location_, detector.location_)
    with pytest.raises(ValueError, match="Negative values"):
        IDOnly(StandardScaler()).fit(X, y, sample_weight=-weight)

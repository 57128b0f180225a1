"""Classifiers calibrated by a temperature as networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import warnings
from copy import deepcopy
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.fixes import parse_version

from skood.combine import DetectorEnsemble
from skood.detectors import KNN, MSP, ODIN, Energy, ViM
from skood.epistemic import MCDropout
from skood.nn import FeatureExtractor, split
from skood.rejection import BoundedImprovement, RejectOptionClassifier
from skood.utils.discovery import all_estimators

VECTORS = json.loads(Path(__file__).with_name("vectors_decisions.json").read_text())

needs_temperature = pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.8"),
    reason='method="temperature" is in scikit-learn 1.8 and later',
)


def _data(n_classes):
    X, y = make_classification(
        400, 8, n_informative=6, n_classes=n_classes, flip_y=0.2, random_state=0
    )
    return X[:200], y[:200], X[200:], y[200:]


def _scaled(classifier, factor):
    """Return a copy of a classifier with a scaled last layer."""
    copy = deepcopy(classifier)
    last = copy[-1] if hasattr(copy, "steps") else copy
    if hasattr(last, "coefs_"):
        last.coefs_[-1] *= factor
        last.intercepts_[-1] *= factor
    else:
        last.coef_ *= factor
        last.intercept_ *= factor
    return copy


CLASSIFIERS = {
    "linear": LogisticRegression(max_iter=500),
    "perceptron": MLPClassifier((12,), max_iter=60, random_state=0),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
}


@pytest.fixture(scope="module", params=[2, 3])
def pairs(request):
    """Calibrated classifiers, and the same with a scaled head, by name."""
    X, y, X_new, y_new = _data(request.param)
    result = {}
    for name, classifier in CLASSIFIERS.items():
        with warnings.catch_warnings(action="ignore"):
            fitted = deepcopy(classifier).fit(X, y)
        calibrated = CalibratedClassifierCV(
            FrozenEstimator(fitted), method="temperature"
        ).fit(X_new, y_new)
        beta = calibrated.calibrated_classifiers_[0].calibrators[0].beta_
        assert not 0.99 < beta < 1.01
        # scikit-learn scales (-d, d), and perceptrons have no decision_function
        has_margin = request.param == 2 and name != "perceptron"
        result[name] = calibrated, _scaled(fitted, beta * (2 if has_margin else 1))
    return result


DETECTORS = {
    name: cls
    for name, cls in all_estimators("detector")
    if "estimator" in signature(cls).parameters
    and cls.__module__.startswith("skood.detectors")
    # maps of convolutions; forests of features, which take seconds
    and name not in ("RankFeat", "SklearnDetector")
}


@needs_temperature
@pytest.mark.parametrize("name", DETECTORS)
def test_detector_equals_itself_on_a_scaled_head(name, pairs):
    X, y, X_new, _ = _data(len(pairs["linear"][0].classes_))
    for calibrated, reference in pairs.values():
        scores = []
        for classifier in (calibrated, reference):
            detector = DETECTORS[name](estimator=FrozenEstimator(classifier))
            if "random_state" in detector.get_params():
                detector.set_params(random_state=0)
            with warnings.catch_warnings(action="ignore"):
                scores.append(detector.fit(X, y).score_samples(X_new))
        assert_allclose(scores[0], scores[1], rtol=1e-9, atol=1e-9)


@needs_temperature
@pytest.mark.parametrize("index", [0, 1])
def test_head_of_the_specification(index):
    vector = VECTORS[index]
    coef, intercept, beta, X = map(np.array, vector["input"].values())
    expected = vector["expected"]
    classes = np.arange(max(2, len(coef)))
    y = np.resize(classes, 60)
    rng = np.random.default_rng(0)
    linear = LogisticRegression().fit(rng.normal(size=(60, X.shape[1])), y)
    linear.coef_, linear.intercept_ = coef, intercept
    samples = rng.normal(size=(60, X.shape[1]))
    calibrated = CalibratedClassifierCV(
        FrozenEstimator(linear), method="temperature"
    ).fit(samples, y)
    calibrated.calibrated_classifiers_[0].calibrators[0].beta_ = float(beta)
    head = split(calibrated)[1]
    W, b = head.coef_, head.intercept_
    if len(coef) == 1:  # the head has two symmetric rows
        W, b = np.diff(W, axis=0), np.diff(b)
    assert_allclose(W, expected["head_coef"], rtol=0, atol=1e-12)
    assert_allclose(b, expected["head_intercept"], rtol=0, atol=1e-12)
    largest = head.predict_proba(X).max(axis=1)
    assert_allclose(largest, expected["max_probability"], rtol=0, atol=1e-9)
    assert_allclose(largest, calibrated.predict_proba(X).max(axis=1), rtol=1e-12)


@needs_temperature
def test_classifier_that_is_fitted_by_the_calibration():
    """ensemble=False has a single temperature; features are of the inner network."""
    X, y, X_new, _ = _data(3)
    labels = np.array(["a", "b", "c"])[y]
    network = MLPClassifier((12,), max_iter=60, random_state=0)
    calibrated = CalibratedClassifierCV(
        network, method="temperature", ensemble=False, cv=2
    )
    with warnings.catch_warnings(action="ignore"):
        calibrated.fit(X, labels)
    inner = calibrated.calibrated_classifiers_[0].estimator
    body, head = split(calibrated)
    assert_array_equal(head.classes_, ["a", "b", "c"])
    assert_allclose(
        head.predict_proba(body.transform(X_new)),
        calibrated.predict_proba(X_new),
        atol=1e-9,
    )
    inner_features = FeatureExtractor(FrozenEstimator(inner)).fit(X).transform(X_new)
    features = FeatureExtractor(FrozenEstimator(calibrated)).fit(X).transform(X_new)
    assert_array_equal(features, inner_features)
    members = [("knn", KNN()), ("energy", Energy()), ("vim", ViM(n_components=4))]
    ensemble = DetectorEnsemble(
        members, estimator=FrozenEstimator(calibrated), random_state=0
    ).fit(X)
    single = Energy(FrozenEstimator(calibrated)).fit(X).score_samples(X_new)
    shared = ensemble.named_detectors_["energy"].score_samples(X_new)
    assert_allclose(shared, single, rtol=1e-12)


@needs_temperature
def test_detector_fits_the_calibration_and_a_rule_uses_its_probabilities():
    X, y, X_new, y_new = _data(3)
    calibrated = CalibratedClassifierCV(
        LogisticRegression(), method="temperature", ensemble=False
    )
    detector = ViM(calibrated, n_components=4).fit(X, y)
    fitted = FrozenEstimator(clone(calibrated).fit(X, y))
    expected = ViM(fitted, n_components=4).fit(X, y).score_samples(X_new)
    assert_allclose(detector.score_samples(X_new), expected, rtol=1e-12)
    model = RejectOptionClassifier(
        fitted, ood_detector=Energy(), rule=BoundedImprovement(0.1), random_state=0
    ).fit(X_new, y_new)
    risk, _ = model.score_pair(X_new)
    assert_allclose(
        risk + 1, fitted.predict_proba(X_new).max(axis=1), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    "options",
    [
        {"method": "sigmoid"},
        {"method": "isotonic", "ensemble": False},
        pytest.param({"method": "temperature", "cv": 2}, marks=needs_temperature),
    ],
)
def test_calibration_without_a_single_temperature(options):
    X, y, X_new, _ = _data(3)
    calibrated = CalibratedClassifierCV(LogisticRegression(), **options).fit(X, y)
    frozen = FrozenEstimator(calibrated)
    match = r"single temperature only.*method='temperature', ensemble=False"
    with pytest.raises(TypeError, match=match):
        split(calibrated)
    with pytest.raises(TypeError, match=match):
        ViM(frozen, n_components=4).fit(X, y)
    with pytest.raises(TypeError, match=match):
        ODIN(frozen).fit(X, y).score_samples(X_new)
    with pytest.raises(TypeError, match=match):
        MCDropout(frozen).fit(X, y).predict_proba(X_new)
    # probabilities alone need neither
    score = MSP(frozen).fit(X, y).score_samples(X_new)
    assert_allclose(score + 1, calibrated.predict_proba(X_new).max(axis=1), rtol=1e-9)


@needs_temperature
def test_dropout_and_weights_of_a_calibrated_network():
    """The temperature is of the network without dropout."""
    X, y, X_new, _ = _data(3)
    calibrated = CalibratedClassifierCV(
        MLPClassifier((12,), max_iter=20, random_state=0),
        method="temperature",
        ensemble=False,
        cv=2,
    )
    with warnings.catch_warnings(action="ignore"):
        calibrated.fit(X, y)
    with pytest.raises(TypeError, match="a CalibratedClassifierCV has neither"):
        MCDropout(FrozenEstimator(calibrated)).fit(X, y).predict_proba(X_new)


@needs_temperature
@pytest.mark.parametrize(
    "classifier",
    [RandomForestClassifier(10, random_state=0), SVC(probability=True, random_state=0)],
)
def test_probabilities_that_are_no_function_of_a_network(classifier):
    """Trees, and a machine whose margins do not give its probabilities."""
    X, y, X_new, _ = _data(2)
    with warnings.catch_warnings(action="ignore"):
        calibrated = CalibratedClassifierCV(
            classifier, method="temperature", ensemble=False, cv=2
        ).fit(X, y)
        detector = MSP(FrozenEstimator(calibrated)).fit(X, y)
    score = detector.score_samples(X_new)
    proba = calibrated.predict_proba(X_new).max(axis=1)
    assert_allclose(score + 1, proba, rtol=1e-9)
    with pytest.raises(ValueError, match="weights of a linear head"):
        split(calibrated)


@needs_temperature
def test_torch_network():
    torch = pytest.importorskip("torch")
    from skood.nn import pretrained

    X, y, X_new, y_new = _data(3)
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3)
    ).double()
    network = pretrained(module, classes=[0, 1, 2])
    calibrated = CalibratedClassifierCV(network, method="temperature").fit(X_new, y_new)
    beta = calibrated.calibrated_classifiers_[0].calibrators[0].beta_
    with torch.no_grad():
        scaled = deepcopy(module)
        scaled[2].weight *= beta
        scaled[2].bias *= beta
    reference = pretrained(scaled, classes=[0, 1, 2])
    for detector in (Energy, ViM, ODIN, KNN, MSP):
        options = {"n_components": 2} if detector is ViM else {}
        scores = [
            detector(FrozenEstimator(clf), **options).fit(X, y).score_samples(X_new)
            for clf in (calibrated, reference)
        ]
        assert_allclose(*scores, rtol=1e-9, atol=1e-9)

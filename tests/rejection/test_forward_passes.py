"""A network runs once for all that uses it in one call."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import KNN, MSP, Energy, ViM
from skood.nn import TorchClassifier, pretrained
from skood.nn._sklearn_network import MLPNetwork
from skood.rejection import BoundedAbstention, RejectOptionClassifier
from tests.nn._reading import Counter, data


@pytest.fixture
def samples_run(monkeypatch):
    """Numbers of samples of the forward passes of an MLPClassifier."""
    sizes = []
    fast, ours = MLPClassifier._forward_pass_fast, MLPNetwork._forward

    def forward_fast(self, X, *args, **kwargs):
        sizes.append(len(X))
        return fast(self, X, *args, **kwargs)

    def forward(self, z, *args, **kwargs):
        sizes.append(len(z))
        return ours(self, z, *args, **kwargs)

    monkeypatch.setattr(MLPClassifier, "_forward_pass_fast", forward_fast)
    monkeypatch.setattr(MLPNetwork, "_forward", forward)
    return sizes


def network(kind, samples_run):
    X, y = data()
    if kind == "torch":
        module = Counter().eval()
        module.sizes = samples_run
        return pretrained(module, classes=[0, 1, 2])
    if kind == "pipeline":
        clf = make_pipeline(StandardScaler(), MLPClassifier((6,), max_iter=20))
    else:
        clf = MLPClassifier((6,), max_iter=20, random_state=0)
    return FrozenEstimator(clf.fit(X, y))


def selective(clf, **options):
    parts = {"risk_detector": MSP(), "ood_detector": KNN(n_neighbors=3), **options}
    rule = BoundedAbstention(coverage=0.7)
    return RejectOptionClassifier(clf, rule=rule, random_state=0, **parts)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"risk_detector": None},
        {"ood_detector": None},
        {"risk_detector": Energy(), "ood_detector": ViM(n_components=2)},
    ],
)
@pytest.mark.parametrize("kind", ["torch", "perceptron", "pipeline"])
def test_reject_option_classifier(kind, options, samples_run):
    X, y = data()
    clf = selective(network(kind, samples_run), **options)
    X_new = X[:33] + 0.1
    samples_run.clear()
    clf.fit(X, np.where(np.arange(80) < 70, y, -1))
    assert sum(samples_run) == 80  # to train on, to calibrate with, OOD
    for method in (clf.predict, clf.accept_proba, clf.reject_reason):
        samples_run.clear()
        method(X_new)
        assert sum(samples_run) == 33
    samples_run.clear()
    clf.report(X_new, y[:33])
    assert sum(samples_run) == 33
    np.testing.assert_array_equal(
        clf.set_params(rule=None).fit(X, y).predict(X), clf.estimator_.predict(X)
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["torch", "perceptron"])
def test_detectors(kind, samples_run):
    X, y = data()
    clf = network(kind, samples_run)
    for detector in (MSP(clf), KNN(clf), ViM(clf, n_components=2)):
        samples_run.clear()
        detector.fit(X, y)
        assert sum(samples_run) == 80
        for method in (detector.predict, detector.score_samples):
            samples_run.clear()
            method(X[:33])
            assert sum(samples_run) == 33


def test_trained_network_and_large_arrays(monkeypatch):
    """Predictions in blocks of bounded memory do not depend on the blocks."""
    X, y = data()
    clf = selective(TorchClassifier(max_epochs=2, random_state=0)).fit(X, y)
    whole, pair = clf.predict(X), clf.score_pair(X)
    accepted = whole != -1
    np.testing.assert_array_equal(whole[accepted], clf.estimator_.predict(X)[accepted])
    monkeypatch.setattr("skood.nn._shared_forward._SHARED_ROWS", 25)
    np.testing.assert_array_equal(clf.predict(X), whole)
    for part, all_at_once in zip(clf.score_pair(X), pair, strict=True):
        np.testing.assert_allclose(part, all_at_once, rtol=1e-4)

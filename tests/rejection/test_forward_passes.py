"""A network runs once for all that uses it in one call."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags

from skood.detectors import KNN, MSP, Energy, MaxLogit, ViM
from skood.nn import LinearHead, TorchClassifier, pretrained
from skood.nn._sklearn_network import MLPNetwork
from skood.rejection import BoundedAbstention, RejectOptionClassifier
from tests.nn._outputs import Counter, data

LINEAR = ["logistic", "head"]


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
    elif kind == "perceptron":
        clf = MLPClassifier((6,), max_iter=20, random_state=0)
    else:
        kinds = {"logistic": counting_logistic, "head": counting_head}
        clf = kinds[kind](samples_run)()
    return FrozenEstimator(clf.fit(X, y))


def counting_logistic(sizes):
    class Counting(LogisticRegression):
        def decision_function(self, X):
            sizes.append(len(X))
            return super().decision_function(X)

    return Counting


def counting_head(sizes):
    class Counting(LinearHead):
        def predict_logits(self, X):
            sizes.append(len(X))
            return super().predict_logits(X)

    return Counting


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
        {"risk_detector": None, "ood_detector": None},
        {"risk_detector": Energy(), "ood_detector": ViM(n_components=2)},
    ],
)
@pytest.mark.parametrize("kind", ["torch", "perceptron", "pipeline", *LINEAR])
def test_reject_option_classifier(kind, options, samples_run):
    X, y = data()
    clf = selective(network(kind, samples_run), **options)
    X_new = X[:33] + 0.1
    samples_run.clear()
    clf.fit(X, np.where(np.arange(80) < 70, y, -1))
    # features of a linear classifier are the samples
    runs = clf.ood_detector is not None and kind not in LINEAR
    learns = clf.risk_detector is not None or runs
    n_fitted = 49 if learns else 0  # 70 %, the others and the OOD samples calibrate
    assert sum(samples_run) == n_fitted + 21 + 10
    for method in (clf.predict, clf.accept_proba, clf.reject_reason, clf.score_pair):
        samples_run.clear()
        method(X_new)
        assert sum(samples_run) == 33
    for method in (clf.report, clf.score):
        samples_run.clear()
        method(X_new, y[:33])
        assert sum(samples_run) == 33
    risk, ood = clf.score_pair(X_new)
    if options == {}:
        assert_allclose(risk, MSP(clf.estimator_).fit(X, y).score_samples(X_new))
        assert_allclose(ood, clf.ood_detector_.score_samples(X_new))
    elif clf.risk_detector is None:
        proba = clf.estimator_.predict_proba(X_new).astype(float)
        assert_allclose(-risk, np.sort(proba, axis=1)[:, :-1].sum(axis=1), rtol=1e-6)
    assert_array_equal(
        clf.set_params(rule=None).fit(X, y).predict(X), clf.estimator_.predict(X)
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("calibration", [0.3, 3])
@pytest.mark.parametrize("kind", LINEAR)
def test_fitted_classifiers(kind, calibration, samples_run):
    """Each classifier that is fitted runs once for each sample that it is given."""
    X, y = data()
    counting = {"logistic": counting_logistic, "head": counting_head}[kind]
    clf = selective(counting(samples_run)()).set_params(calibration=calibration)
    clf.fit(X, y)
    n_times = 1 if calibration == 0.3 else 4  # the folds, and the final fit
    assert sum(samples_run) == 80 * n_times


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"ood_detector": None}])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", [LogisticRegression, LinearHead, LinearSVC])
def test_linear_classifiers_as_alone(kind, n_classes, options):
    """Predictions from shared margins are the predictions of the classifier."""
    X, y = data(n_classes)
    y = np.array(["a", "b", "c"])[y]
    clf = FrozenEstimator(kind().fit(X, y))
    risk = MaxLogit() if kind is LinearSVC else None
    reject = selective(clf, risk_detector=risk, **options).fit(X, y)
    accepted = reject.accept_proba(X) == 1
    assert 0 < accepted.sum() < len(X)
    predicted = reject.predict(X)
    assert predicted.dtype.kind == "U"
    assert_array_equal(predicted[accepted], clf.predict(X)[accepted])
    assert (predicted[~accepted] == "reject").all()
    if risk is None:
        proba = clf.predict_proba(X).astype(np.float64)
        assert_array_equal(
            reject.score_pair(X)[0],
            -np.where(proba == proba.max(axis=1)[:, None], 0.0, proba).sum(axis=1),
        )


@pytest.mark.filterwarnings("ignore")
def test_overridden_predictions_of_a_linear_classifier():
    """What a class computes in its own way is not computed from its margins."""

    class Last(LogisticRegression):
        def predict(self, X):
            return np.full(len(X), self.classes_[-1])

        def predict_proba(self, X):
            return np.tile([0.5, 0.3, 0.2], (len(X), 1))

    X, y = data()
    clf = selective(FrozenEstimator(Last().fit(X, y)), risk_detector=None).fit(X, y)
    assert set(clf.predict(X)) <= {-1, 2}
    assert_allclose(clf.score_pair(X)[0], -0.5)


@pytest.mark.filterwarnings("ignore")
def test_tags_clone_nothing():
    class Counting(KNN):
        n_clones = 0

        def __sklearn_clone__(self):
            type(self).n_clones += 1
            return super().__sklearn_clone__()

    X, y = data()
    clf = selective(LogisticRegression(), ood_detector=Counting()).fit(X, y)
    Counting.n_clones = 0
    tags = get_tags(clf)
    assert tags.input_tags.sparse == get_tags(LogisticRegression()).input_tags.sparse
    assert clf.ood_detector.estimator is None
    clf.predict(X)
    assert Counting.n_clones == 0


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
    assert_array_equal(whole[accepted], clf.estimator_.predict(X)[accepted])
    monkeypatch.setattr("skood.nn._shared_forward._SHARED_SAMPLES", 25)
    assert_array_equal(clf.predict(X), whole)
    for score, all_at_once in zip(clf.score_pair(X), pair, strict=True):
        assert_allclose(score, all_at_once, rtol=1e-4)

"""Small calls: nothing is validated twice, and no change of a classifier is missed."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gc
import sys
import warnings
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_array

from skood.detectors import (
    FDBD,
    GMM,
    KNN,
    MSP,
    NCI,
    PNML,
    SHE,
    Energy,
    Mahalanobis,
    MaxLogit,
    Residual,
    ViM,
)
from skood.nn import LinearHead, pretrained
from skood.rectifiers import DICE, ReAct
from tests._loops import looped

RNG = np.random.default_rng(0)
N_CLASSES = 3
Y = np.arange(90) % N_CLASSES
X = (RNG.normal(size=(90, 6)) + 2 * np.eye(6)[Y]).astype(np.float32)
COEF = RNG.normal(size=(N_CLASSES, 6)).astype(np.float32) + np.eye(3, 6, dtype="f")
BIAS = np.zeros(N_CLASSES, dtype=np.float32)

# --- validations -----------------------------------------------------------------


@pytest.fixture
def validations(monkeypatch):
    """The types of what `check_array` was given, in all modules that have it."""
    given = []

    def counted(array, *args, **kwargs):
        given.append(type(array))
        return check_array(array, *args, **kwargs)

    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if name.split(".")[0] in ("sklearn", "skood") and (
            getattr(module, "check_array", None) is check_array
        ):
            monkeypatch.setattr(module, "check_array", counted)
    return given


def head():
    return FrozenEstimator(LinearHead(COEF.copy(), BIAS.copy()))


def logistic():
    return FrozenEstimator(LogisticRegression().fit(X, Y))


def logistic_of_names():
    return FrozenEstimator(LogisticRegression().fit(frame(X), Y))


def frame(samples):
    return pd.DataFrame(samples, columns=list("abcdef"))


def detectors_of(classifier):
    return [
        MSP(classifier()),
        MaxLogit(classifier()),
        Energy(classifier()),
        SHE(classifier()),
        NCI(classifier()),
        FDBD(classifier()),
        ViM(classifier(), n_components=2),
        Residual(classifier(), n_components=2),
        PNML(classifier()),
        KNN(classifier(), n_neighbors=3),
        Mahalanobis(classifier()),
        GMM(classifier()),
    ]


WITHOUT = [ViM(n_components=2), SHE(), KNN(n_neighbors=3), Mahalanobis(), GMM()]
ALL = [*detectors_of(head), *detectors_of(logistic), *WITHOUT]
ids = [f"{type(d).__name__}-{i}" for i, d in enumerate(ALL)]


@pytest.mark.parametrize("detector", ALL, ids=ids)
def test_a_plain_array_needs_no_validation_by_scikit_learn(detector, validations):
    detector.fit(X, Y)
    whole = detector.score_samples(X)
    validations.clear()
    one = [detector.score_samples(X[i : i + 1])[0] for i in range(5)]
    assert validations == []
    assert_allclose(one, whole[:5], rtol=1e-5)  # as precise as float32


@pytest.mark.parametrize("detector", ALL, ids=ids)
def test_other_input_is_validated_once(detector, validations):
    detector.fit(X, Y)
    expected = detector.score_samples(X[:2].astype(np.float64))
    for samples in (X[:2].tolist(), X[:2].astype(np.float16).astype(object)):
        validations.clear()
        scores = detector.score_samples(samples)
        assert len(validations) == 1
        assert_allclose(scores, expected, rtol=1e-2)


@pytest.mark.parametrize(
    "detector", [*detectors_of(logistic_of_names), *WITHOUT], ids=repr
)
def test_named_columns_are_compared_once(detector, validations):
    detector.fit(frame(X), Y)
    expected = detector.score_samples(frame(X[:2]))
    validations.clear()
    assert_array_equal(detector.score_samples(frame(X[:2])), expected)
    assert len(validations) == 1
    with pytest.raises(ValueError, match="feature names should match"):
        detector.score_samples(frame(X[:2]).rename(columns={"a": "other"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        detector.score_samples(X[:2])


@pytest.mark.parametrize("kind", [MaxLogit, Energy, SHE, NCI, KNN])
@looped("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_rejected(kind, bad):
    for classifier in (head(), logistic()):
        detector = kind(classifier).fit(X, Y)
        samples = X[:1].copy()
        samples[0, 2] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            detector.score_samples(samples)


@pytest.mark.parametrize("detector", ALL, ids=ids)
def test_other_shapes_are_rejected(detector):
    detector.fit(X, Y)
    for samples in (X[:1, :5], X[0], X[:0], X[None, :1], X[:1, :0], X[0, 0, ...]):
        with pytest.raises(ValueError):
            detector.score_samples(samples)


def test_weights_are_validated_once(monkeypatch):
    calls = []
    given = LinearHead._checked_weights

    def counted(self):
        calls.append(self)
        return given(self)

    monkeypatch.setattr(LinearHead, "_checked_weights", counted)
    detector = Energy(FrozenEstimator(LinearHead(COEF, BIAS, ["a", "b", "c"])))
    detector.fit(X, Y)
    for i in range(5):
        detector.score_samples(X[i : i + 1])
    assert len(calls) == 1


def test_rectified_features_are_validated_once(validations):
    rectifier = make_pipeline(ReAct().fit(X), head())
    detectors = [
        Energy(FrozenEstimator(rectifier)),
        Energy(FrozenEstimator(DICE(head()).fit(X, Y))),
    ]
    for detector in detectors:
        detector.fit(X, Y)
        for samples, expected in ((X[:1], 0), (X[:1].tolist(), 1)):
            validations.clear()
            detector.score_samples(samples)
            assert len(validations) == expected
    rectified = np.minimum(X, rectifier[0].threshold_)
    expected = logsumexp(rectified @ COEF.T + BIAS, axis=1)
    assert_allclose(detectors[0].score_samples(X), expected, rtol=1e-5)


# --- changes of the classifier ---------------------------------------------------


def energies(logits):
    return logsumexp(np.asarray(logits, dtype=np.float64), axis=1)


def change_in_place(model):
    model.coef[:] = 2 * model.coef
    model.intercept[:] = 1.0


def change_parameters(model):
    model.set_params(coef=3 * model.coef, intercept=None)


def change_to_fitted(model):
    model.set_params(coef=None, intercept=None).fit(X, Y)


@pytest.mark.parametrize(
    "change", [change_in_place, change_parameters, change_to_fitted]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_changed_weights_of_a_head_are_used(change, dtype):
    model = LinearHead(COEF.astype(dtype), BIAS.astype(dtype))
    detector = Energy(FrozenEstimator(model)).fit(X, Y)
    before = detector.score_samples(X[:4])
    change(model)
    scores = detector.score_samples(X[:4])
    assert not np.allclose(scores, before)
    expected = energies(X[:4] @ model.coef_.T + model.intercept_)
    assert_allclose(scores, expected, rtol=1e-5)


def test_changed_weights_of_a_margin_are_used():
    coef, intercept = COEF[:1].copy(), np.zeros(1, dtype=np.float32)
    model = LinearHead(coef, intercept)
    detector = MaxLogit(FrozenEstimator(model)).fit(X, Y % 2)
    assert_allclose(detector.score_samples(X), abs(X @ coef[0]) / 2, rtol=1e-5)
    coef *= 2
    intercept += 1
    expected = abs(X @ coef[0] + 1) / 2
    assert_allclose(detector.score_samples(X), expected, rtol=1e-5, atol=1e-6)


def test_changed_lists_of_weights_and_classes_are_used():
    weights, names = [[1.0, 0.0], [0.0, 1.0]], ["a", "b"]
    model = LinearHead(weights, classes=names)
    samples = np.array([[2.0, 1.0]])
    assert model.predict(samples).tolist() == ["a"]
    names[0] = "c"
    assert model.predict(samples).tolist() == ["c"]
    weights[1][1] = 9.0
    assert model.predict(samples).tolist() == ["b"]
    model = LinearHead(np.eye(2), classes=names)
    assert model.predict(samples).tolist() == ["c"]
    names[0] = 7
    names[1] = 8
    assert model.predict(samples).tolist() == [7]
    names[0] = 8
    with pytest.raises(ValueError, match="distinct labels"):
        model.predict(samples)


def test_bad_weights_are_rejected_at_every_score():
    model = LinearHead(np.eye(2), np.zeros(3))
    for _ in range(2):
        with pytest.raises(ValueError, match="intercept has shape"):
            model.predict(np.eye(2))


def test_validated_weights_are_no_state_of_the_head():
    model = LinearHead(COEF, BIAS)
    before = set(vars(model))
    model.predict(X)
    assert set(vars(model)) == before
    weak = weakref.ref(model)
    del model
    gc.collect()
    assert weak() is None


def test_refitted_classifiers_are_used():
    other = Y[::-1]
    for model in (
        LogisticRegression(),
        MLPClassifier((5,), max_iter=5, random_state=0),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            detector = MaxLogit(FrozenEstimator(model.fit(X, Y))).fit(X, Y)
            before = detector.score_samples(X[:3])
            model.fit(X, np.where(other == 2, 0, other))  # two classes
        scores = detector.score_samples(X[:3])
        assert not np.allclose(scores, before)
        if isinstance(model, LogisticRegression):
            margins = model.decision_function(X[:3])
            assert_allclose(scores, np.abs(margins) / 2, rtol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        SGDClassifier(loss="log_loss", random_state=0),
        MLPClassifier((5,), random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_partial_fits_are_used(model):
    model.partial_fit(X, Y, classes=[0, 1, 2])
    detector = ViM(FrozenEstimator(model), n_components=2).fit(X, Y)
    energy = Energy(FrozenEstimator(model)).fit(X, Y)
    for one in (detector, energy):
        before = one.score_samples(X[:3])
        for _ in range(5):
            model.partial_fit(X, Y)
        assert not np.allclose(one.score_samples(X[:3]), before)
    if hasattr(model, "coef_"):
        expected = energies(model.decision_function(X[:3]))
        assert_allclose(energy.score_samples(X[:3]), expected, rtol=1e-6)


def test_torch_modules_that_are_trained_further_are_used():
    linear = torch.nn.Linear(6, N_CLASSES)
    network = pretrained(linear, classes=range(N_CLASSES), input_shape=(6,))
    detector = Energy(FrozenEstimator(network)).fit(X, Y)
    before = detector.score_samples(X[:3])
    with torch.no_grad():
        linear.weight += 1.0
        logits = linear(torch.from_numpy(X[:3])).numpy()
    scores = detector.score_samples(X[:3])
    assert not np.allclose(scores, before)
    assert_allclose(scores, energies(logits), rtol=1e-5)


def test_methods_of_subclasses_are_used():
    class Halved(LinearHead):
        def predict_logits(self, X):
            return super().predict_logits(X) / 2

    class Doubled(LogisticRegression):
        def decision_function(self, X):
            return 2 * super().decision_function(X)

    halved = MaxLogit(FrozenEstimator(Halved(COEF, BIAS))).fit(X, Y)
    expected = (X @ COEF.T + BIAS).max(axis=1) / 2
    assert_allclose(halved.score_samples(X), expected, rtol=1e-5)
    model = Doubled().fit(X, Y)
    for kind in (MaxLogit, SHE):
        layer_features = kind(FrozenEstimator(model)).fit(X, Y)
        layer_features.score_samples(X)
    doubled = MaxLogit(FrozenEstimator(model)).fit(X, Y)
    expected = 2 * (X @ model.coef_.T + model.intercept_).max(axis=1)
    assert_allclose(doubled.score_samples(X), expected, rtol=1e-5)


def test_sparse_weights_are_used():
    model = LogisticRegression().fit(X, Y)
    expected = model.decision_function(X).max(axis=1)
    detector = MaxLogit(FrozenEstimator(model.sparsify())).fit(X, Y)
    assert_allclose(detector.score_samples(X), expected, rtol=1e-6)

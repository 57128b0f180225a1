"""One forward pass for all: kinds of classifiers, and outputs that cannot be shared."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from torch import nn

from skood.detectors import (
    KNN,
    MSP,
    Energy,
    Mahalanobis,
    ViM,
)
from skood.nn import FeatureExtractor, pretrained
from skood.nn._shared_forward import network_groups, shared_outputs
from skood.nn._sklearn_network import MLPNetwork
from skood.rectifiers import DICE
from tests.nn._members import X, check_same, counted, fit_all, score_all
from tests.nn._outputs import Counter, data


class CountingLogistic(LogisticRegression):
    calls = 0

    def decision_function(self, X):
        type(self).calls += 1
        return super().decision_function(X)


class CountingBayes(GaussianNB):
    calls = 0

    def predict_proba(self, X):
        type(self).calls += 1
        return super().predict_proba(X)


class CountingScaler(StandardScaler):
    calls = 0

    def transform(self, X, copy=None):
        type(self).calls += 1
        return super().transform(X, copy)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("base", [CountingLogistic, CountingBayes])
def test_classifiers_without_layers(base, n_classes):
    samples, y = data(n_classes)

    class Counting(base):
        calls = 0

    clf = FrozenEstimator(Counting().fit(samples, y))
    detectors = [
        MSP(clf),
        KNN(clf),
        make_pipeline(FeatureExtractor(clf, pooling="max"), KNN()),
        MSP(clf),
    ]
    if base is CountingLogistic:
        detectors += [ViM(clf, n_components=2), Energy(DICE(clf, sparsity=0.3))]
    assert network_groups(detectors) == [list(range(len(detectors)))]
    fitted = check_same(detectors, samples, y, samples[:30])
    fitted = fitted[:4]  # the weights of DICE are its own
    Counting.calls = 0
    score_all(fitted, samples, shared=True)
    assert Counting.calls == 1
    score_all(fitted, samples, shared=False)
    assert Counting.calls == 3


@pytest.mark.parametrize(
    "hidden, n_classes",
    [
        ((), 2),
        ((6, 4), 3),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (((), 3), ((6,), 2), ((6,), 3), ((6, 4), 2))
        ),
    ],
)
def test_perceptron(monkeypatch, hidden, n_classes):
    samples, y = data(n_classes)
    mlp = MLPClassifier(hidden, max_iter=20, random_state=0).fit(samples, y)
    clf = FrozenEstimator(mlp)
    layers = range(len(hidden) + 1)
    detectors = [
        MSP(clf),
        KNN(clf),
        ViM(clf, n_components=2),
        *(make_pipeline(FeatureExtractor(clf, layer=i), KNN()) for i in layers),
    ]
    fitted = check_same(detectors, samples, y, samples[:30])
    calls = []
    run = MLPNetwork._forward
    monkeypatch.setattr(
        MLPNetwork, "_forward", lambda self, *args: calls.append(0) or run(self, *args)
    )
    score_all(fitted, samples, shared=True)
    assert len(calls) == 1
    score_all(fitted, samples, shared=False)
    assert len(calls) == 1 + len(fitted)


def test_pipeline_as_network():
    samples, y = data()
    scaler = CountingScaler().fit(samples)
    mlp = MLPClassifier((6,), max_iter=20, random_state=0).fit(
        scaler.transform(samples), y
    )
    clf = FrozenEstimator(make_pipeline(scaler, mlp))
    detectors = [
        MSP(clf),
        KNN(clf),
        make_pipeline(FeatureExtractor(clf, layer=0), KNN()),
        make_pipeline(FeatureExtractor(clf, layer=1), KNN()),
    ]
    fitted = check_same(detectors, samples, y, samples[:30])
    CountingScaler.calls = 0
    score_all(fitted, samples, shared=True)
    assert CountingScaler.calls == 1
    score_all(fitted, samples, shared=False)
    assert CountingScaler.calls == 5


def test_pipeline_reads_in_the_smallest_batches():
    samples, _ = data()
    net = Counter()
    clf = FrozenEstimator(make_pipeline(FunctionTransformer(), pretrained(net)))
    extractors = [
        FeatureExtractor(clf, layer=layer, batch_size=size)
        for layer, size in (("head", 40), ("body", 50), ("head", 30), ("head", 60))
    ]
    fit_all(extractors, samples, None, shared=False)
    del net.sizes[:]
    with shared_outputs(extractors):
        for extractor in extractors:
            extractor.fit_transform(samples)
    assert net.sizes == [30, 30, 20]


def test_data_frames():
    samples, y = data()
    frame = pd.DataFrame(samples, columns=list("abcde"))
    clf = FrozenEstimator(LogisticRegression().fit(frame, y))
    check_same([MSP(clf), KNN(clf)], frame, y, frame[:20])
    renamed = frame.rename(columns={"a": "z"})
    detectors = fit_all([MSP(clf), KNN(clf)], frame, y, shared=True)
    with shared_outputs(detectors), pytest.raises(ValueError, match="feature names"):
        detectors[0].score_samples(renamed)


# --- errors -----------------------------------------------------------------------


def test_error_is_of_the_detector_that_scores():
    """What cannot be read by one is read by the others, as by each alone."""
    clf, sizes = counted()
    missing = make_pipeline(FeatureExtractor(clf, layer="conv9"), KNN())
    unhashable = make_pipeline(FeatureExtractor(clf, layer=["conv1"]), KNN())
    unknown = make_pipeline(FeatureExtractor(clf, device="abacus"), KNN())
    y = clf.predict(X)
    with shared_outputs([missing, unhashable, unknown, MSP(clf), KNN(clf)]):
        del sizes[:]
        MSP(clf).fit(X, y)
        for _ in range(2):
            with pytest.raises(ValueError, match="has no layer named 'conv9'"):
                missing.fit(X, y)
            with pytest.raises(ValueError, match="The 'layer' parameter of"):
                unhashable.fit(X, y)
            with pytest.raises(ValueError, match="Unknown device 'abacus'"):
                unknown.fit(X, y)
        KNN(clf).fit(X, y)
    assert sizes == [len(X)]


class Headless(nn.Module):
    """Logits that are not the output of a linear layer; NaN for large input."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(5, 3)
        self.root = nn.Identity()
        self.idle = nn.Linear(3, 3)

    def forward(self, x):
        z = torch.relu(self.body(x))
        self.root((100.0 - x).sqrt())
        return 2.0 * z


@pytest.mark.parametrize("first", [0, 1])
def test_union_that_cannot_be_read(first):
    samples, y = data()
    clf = pretrained(Headless(), classes=np.arange(3))
    idle = make_pipeline(FeatureExtractor(clf, layer="idle"), KNN())
    root = make_pipeline(FeatureExtractor(clf, layer="root"), KNN())
    works = [MSP(clf), Energy(clf), make_pipeline(FeatureExtractor(clf), KNN())]
    alone = score_all(fit_all(works, samples, y, shared=False), samples, shared=False)
    with shared_outputs([*works, ViM(clf), idle]):
        for turn in range(2):
            if turn == first:
                with pytest.raises(ValueError, match=r"not the output of a torch\.nn"):
                    ViM(clf).fit(samples, y)
                with pytest.raises(ValueError, match="'idle' did not run") as error:
                    idle.fit(samples, y)
                assert error.value.__context__ is None
            else:
                for detector, scores in zip(works, alone, strict=True):
                    actual = detector.fit(samples, y).score_samples(samples)
                    assert_array_equal(actual, scores)
    large = samples.copy()
    large[-1] = 200.0
    with shared_outputs([root, *works]):
        with pytest.raises(ValueError, match="features contain NaN"):
            root.fit(large, y)
        works[0].fit(large, y)
        root.fit(samples, y)  # the next rows are read together again


def test_sparse_samples():
    samples, y = data()
    clf = FrozenEstimator(LogisticRegression().fit(samples, y))
    csr = sparse.csr_array(samples)
    expected = MSP(clf).fit(samples, y).score_samples(samples)
    with shared_outputs([MSP(clf), KNN(clf)]):
        with pytest.raises(TypeError, match="TruncatedSVD"):
            Mahalanobis(clf).fit(csr, y)
        scores = MSP(clf).fit(csr, y).score_samples(csr)
        distances = KNN(clf).fit(csr, y).score_samples(csr)
    assert_allclose(scores, expected, rtol=1e-6)
    assert_allclose(
        distances, KNN(clf).fit(samples, y).score_samples(samples), rtol=1e-9
    )


def test_classifier_that_cannot_be_read():
    samples, y = data()
    votes = FrozenEstimator(SVC(decision_function_shape="ovo").fit(*data(4)))
    with shared_outputs([MSP(votes), Energy(votes)]):
        with pytest.raises(ValueError, match="set decision_function_shape='ovr'"):
            MSP(votes).fit(samples, y)

"""Reading rows: networks run once, rows go through in chunks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier

from skood.detectors import KNN, MSP, Mahalanobis
from skood.logic import ConceptFusion, MLNDetector
from skood.logic._concepts import fit_named, samples_at
from skood.nn import pretrained
from tests.logic._signs import Column, columns, signs


class Counting(torch.nn.Module):
    """A network that counts the rows that it reads."""

    def __init__(self):
        super().__init__()
        self.n_rows = 0
        torch.manual_seed(0)
        self.hidden = torch.nn.Linear(3, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, X):
        self.n_rows += len(X)
        return self.head(torch.relu(self.hidden(X)))


def networks():
    """A network for the class, and readers of the other concepts."""
    module = Counting()
    net = pretrained(module, classes=["other", "stop_sign", "yield"])
    return module, net, [("class", net), *columns()[1:]]


@pytest.mark.parametrize("detector", ["confidence", "msp", "mahalanobis"])
def test_a_network_runs_once_per_call(detector):
    X, y = signs(200, 20)
    X = X.astype(np.float32)
    module, net, readers = networks()
    given = {"confidence": detector, "msp": MSP(net), "mahalanobis": Mahalanobis(net)}
    one = MLNDetector(
        ["class = yield -> shape = triangle"],
        readers,
        given[detector],
        fusion=ConceptFusion(normalizer="empirical"),
        marginalize=True,
        random_state=0,
    ).fit(X, y)
    module.n_rows = 0
    scores = one.score_samples(X)
    assert module.n_rows == len(X)
    alone = [one.score_samples(X[i : i + 1])[0] for i in range(0, 220, 20)]
    np.testing.assert_allclose(scores[::20], alone, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(one.predict_concepts(X)[:, 0], net.predict(X))


def test_a_shared_network_of_scikit_learn():
    X, y = signs(200, 20)
    labels = np.where(y[:, 0] == -1, "other", y[:, 0]).astype(str)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        net = FrozenEstimator(MLPClassifier(8, max_iter=30).fit(X, labels))
    one = MLNDetector(
        ["class = yield -> shape = triangle"],
        [("class", net), *columns()[1:]],
        KNN(net),
        fusion=ConceptFusion(normalizer="empirical"),
        marginalize=True,
    ).fit(X, y)
    found = one._read(X)
    np.testing.assert_allclose(found.proba[0], net.predict_proba(X), rtol=1e-6)
    np.testing.assert_array_equal(one.predict_concepts(X)[:, 0], net.predict(X))
    np.testing.assert_allclose(found.outlier, -one.detector_.score_samples(X))


def test_chunks(monkeypatch):
    X, y = signs(200, 20)
    X = X.astype(np.float32)
    _, net, readers = networks()
    for params in ({}, {"marginalize": True}):
        one = MLNDetector(
            ["class = yield -> shape = triangle"],
            readers,
            MSP(net),
            fusion=ConceptFusion(normalizer="norm"),
            random_state=0,
            **params,
        ).fit(X, y)
        together = one.score_samples(X)
        monkeypatch.setattr("skood.nn._shared_forward._SHARED_SAMPLES", 64)
        np.testing.assert_allclose(one.score_samples(X), together, rtol=1e-5)
        monkeypatch.undo()


def test_a_network_reads_the_same_labels_with_and_without_probabilities():
    X, y = signs(100)
    X = X.astype(np.float32)
    _, net, readers = networks()
    found = []
    for params in ({}, {"marginalize": True}):
        fusion = ConceptFusion(normalizer="norm")
        one = MLNDetector(
            [], readers, MSP(net), fusion=fusion, random_state=0, **params
        )
        one.fit(X, y)
        found.append(one._read(X))
    np.testing.assert_array_equal(found[0].codes, found[1].codes)
    assert found[0].proba is None
    assert [p.shape for p in found[1].proba] == [(100, 3), (100, 2), (100, 2)]


def test_samples_at():
    X = np.arange(6).reshape(3, 2)
    assert samples_at(X, np.arange(3)) is X
    np.testing.assert_array_equal(samples_at(X, np.array([2, 1, 0])), X[::-1])
    np.testing.assert_array_equal(samples_at(X, np.array([1])), X[[1]])


def test_fit_named():
    X, y = signs(20)
    column = Column()
    fitted = fit_named("a", column, X, y[:, 0])
    assert fitted is not column
    frozen = FrozenEstimator(fitted)
    assert fit_named("a", frozen, X, None) is frozen
    assert fit_named("m", Mahalanobis(), X, None).offset_ < 0

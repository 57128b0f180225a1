"""Rectifiers before a head: samples in parts, which nothing validates twice."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import skood.nn._network as network_module
from skood.detectors import Energy, Mahalanobis
from skood.nn import LinearHead
from skood.rectifiers import ASH, VRA, ReAct

RNG = np.random.default_rng(0)
X = np.abs(RNG.normal(size=(60, 8))).astype(np.float32)
COEF = RNG.normal(size=(3, 8)).astype(np.float32)


def head():
    return LinearHead(COEF, np.zeros(3, dtype=np.float32))


def detector_of(*steps):
    return Energy(FrozenEstimator(make_pipeline(*steps))).fit(X)


@pytest.fixture(params=[8 * 4 * 7, 2**40], ids=["parts", "whole"])
def part_bytes(request, monkeypatch):
    monkeypatch.setattr(network_module, "_BLOCK_BYTES", request.param)
    return request.param


@pytest.mark.parametrize(
    "steps", [[ReAct()], [VRA()], [ASH()], [VRA(below="clip"), ReAct(quantile=0.5)]]
)
def test_energy_of_rectified_features(part_bytes, steps):
    pipeline = make_pipeline(*steps).fit(X)
    scores = detector_of(*pipeline, head()).score_samples(X)
    logits = pipeline.transform(X).astype(np.float64) @ COEF.T.astype(np.float64)
    assert_allclose(scores, logsumexp(logits, axis=1), rtol=1e-5, atol=1e-5)


def test_blocks_are_cut_only_where_features_are_not_requested(part_bytes, monkeypatch):
    sizes = []
    rectify = ReAct._rectify

    def counted(self, Z, out):
        sizes.append(len(Z))
        rectify(self, Z, out)

    detector = detector_of(ReAct().fit(X), head())
    steps = make_pipeline(ReAct().fit(X), head())
    other = Mahalanobis(FrozenEstimator(steps)).fit(X)
    monkeypatch.setattr(ReAct, "_rectify", counted)
    detector.score_samples(X)
    assert sizes == ([7] * 8 + [4] if part_bytes < 2**40 else [60])
    del sizes[:]
    other.score_samples(X)
    assert sizes == [60]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite(part_bytes, value):
    """Also an infinity that ReAct would replace by its threshold."""
    samples = X.copy()
    samples[-1, 3] = value
    message = "contains NaN" if np.isnan(value) else "contains infinity"
    with pytest.raises(ValueError, match=message):
        detector_of(ReAct().fit(X), head()).score_samples(samples)


def test_a_head_of_other_features(part_bytes):
    steps = make_pipeline(ReAct().fit(X[:, :5]), head())
    with pytest.raises(ValueError, match="5 features, but LinearHead is expecting 8"):
        Energy(FrozenEstimator(steps)).fit(X[:, :5])


def test_a_head_of_named_features_warns_as_ever(part_bytes):
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    model = LogisticRegression().fit(frame, np.arange(60) % 3)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        detector = detector_of(ReAct().fit(X), model)
    plain = LogisticRegression().fit(X, np.arange(60) % 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = detector.score_samples(X)
    expected = detector_of(ReAct().fit(X), plain).score_samples(X)
    assert_array_equal(scores, expected)

"""Thresholds of detectors with a scatter that few samples determine."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skood.detectors import (
    GMM,
    NECO,
    PNML,
    SSD,
    Mahalanobis,
    RelativeMahalanobis,
    Residual,
    ViM,
)
from skood.nn import LinearHead

_D = 24
_MEANS = 1.5 * np.random.default_rng(1).normal(size=(3, _D))
_HEAD = FrozenEstimator(LinearHead(_MEANS / np.sqrt(_D), [4.0, 4.0, 4.0]))

DETECTORS = [
    Mahalanobis(),
    Mahalanobis(tied=False),
    RelativeMahalanobis(),
    SSD(),
    GMM(),
    GMM(covariance_type="tied"),
    PNML(_HEAD),
    Residual(_HEAD),
    ViM(_HEAD),
    NECO(_HEAD),
    NECO(max_logit=False),
]
_AT_NIGHT = {repr(DETECTORS[i]) for i in (1, 5, 10)}  # the second ones of a class
SHRUNK = [Mahalanobis(), Mahalanobis(tied=False), RelativeMahalanobis(), SSD()]


def _samples(n_samples, seed):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n_samples) % 3)
    return rng.normal(size=(n_samples, _D)) + _MEANS[y], y


def _fit(detector, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(detector).fit(*args, **options)


@pytest.mark.parametrize("ratio", [0.5, 1, 1.25])
@pytest.mark.parametrize(
    "detector",
    [
        pytest.param(one, marks=[pytest.mark.slow] * (repr(one) in _AT_NIGHT))
        for one in DETECTORS
    ],
    ids=lambda one: repr(one)[:30],
)
def test_rejected_share_of_new_samples(detector, ratio):
    """It is within the two ranks around the threshold, up to 3 standard errors."""
    n_samples = round(ratio * _D)
    X_new, _ = _samples(1000, 10_000)
    shares = [
        np.mean(_fit(detector, *_samples(n_samples, seed)).predict(X_new) == -1)
        for seed in range(10)
    ]
    mean, error = np.mean(shares), np.std(shares) / np.sqrt(len(shares))
    rank = np.floor(0.05 * n_samples)
    assert rank / (n_samples + 1) - 3 * error <= mean + 0.01
    assert mean <= (rank + 1) / (n_samples + 1) + 3 * error + 0.01


# without SSD, whose features of unit length depend on scales
@pytest.mark.parametrize("detector", SHRUNK[:-1], ids=repr)
def test_scales_of_the_features_do_not_matter(detector):
    X, y = _samples(_D, 0)
    scale = 10.0 ** np.random.default_rng(0).uniform(-6, 6, _D)
    plain = _fit(detector, X, y)
    scores = _fit(detector, X * scale, y).decision_function(X * scale)
    np.testing.assert_allclose(scores, plain.decision_function(X), rtol=1e-6)


@pytest.mark.parametrize("detector", SHRUNK, ids=repr)
def test_partial_fit_and_weights(detector):
    """Batches equal one fit, integer weights equal copies, a scale does not matter."""
    X, y = _samples(30, 0)
    X_new, _ = _samples(50, 1)
    scores = _fit(detector, X, y).decision_function(X_new)
    batches = clone(detector)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batches.partial_fit(X[:11], y[:11]).partial_fit(X[11:], y[11:])
    np.testing.assert_allclose(batches.decision_function(X_new), scores, rtol=1e-8)
    weight = np.arange(30) % 3
    copies = _fit(detector, np.repeat(X, weight, axis=0), np.repeat(y, weight))
    weighted = _fit(detector, X, y, sample_weight=weight)
    np.testing.assert_allclose(
        weighted.decision_function(X_new), copies.decision_function(X_new), rtol=1e-8
    )
    same, small = (
        _fit(detector, X, y, sample_weight=np.full(30, w)).score_samples(X_new)
        for w in (1.0, 1 / 30)
    )
    if detector.get_params().get("tied", True):
        np.testing.assert_allclose(small, same, rtol=1e-8)


@pytest.mark.parametrize("n_samples", [2 * _D + 2, 5 * _D])
def test_maximum_likelihood_of_more_samples(n_samples):
    """From 2d samples, plus the means that are subtracted besides the first."""
    X, y = _samples(n_samples, 0)
    gaps = X - np.stack([X[y == k].mean(axis=0) for k in range(3)])[y]
    expected = gaps.T @ gaps / n_samples
    for detector in (Mahalanobis(), RelativeMahalanobis()):
        covariance = _fit(detector, X, y).covariance_
        np.testing.assert_allclose(covariance, expected, rtol=1e-9, atol=1e-12)
    fewer = _fit(Mahalanobis(), X[: 2 * _D + 1], y[: 2 * _D + 1]).covariance_
    gaps = (
        X[: 2 * _D + 1]
        - np.stack(
            [X[: 2 * _D + 1][y[: 2 * _D + 1] == k].mean(axis=0) for k in range(3)]
        )[y[: 2 * _D + 1]]
    )
    ratio = fewer / (gaps.T @ gaps / (2 * _D + 1))
    np.testing.assert_allclose(np.diag(ratio), 1, rtol=1e-9)
    off_diagonal = ratio[~np.eye(_D, dtype=bool)]
    assert np.ptp(off_diagonal) < 1e-6
    assert off_diagonal.mean() < 0.9


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda one: repr(one)[:30])
def test_hostile_samples(detector):
    """Constant and copied features, copies of samples, two samples, classes of one."""
    X, y = _samples(_D, 0)
    X_new, _ = _samples(50, 1)
    X[:, 3], X[:, 5] = 0.1, X[:, 4]
    settings = [(X, y), (np.tile(X, (3, 1)), np.tile(y, 3))]
    order = np.concatenate([np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:1]])
    settings.append((X[order], y[order]))
    if not isinstance(detector, (Residual, ViM, RelativeMahalanobis)):
        settings.append((X[:2], np.zeros(2, dtype=int)))
    for samples in settings:
        fitted = _fit(detector, *samples)
        assert np.isfinite(fitted.decision_function(X_new)).all()

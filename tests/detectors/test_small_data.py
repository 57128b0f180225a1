"""Data that are small or odd: finite scores or an error, and a warning that tells."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skood.detectors import (
    GMM,
    KNN,
    SHE,
    SSD,
    Mahalanobis,
    RelativeMahalanobis,
    Residual,
    ViM,
)
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead
from tests._loops import looped

_COEF = np.random.default_rng(7).normal(size=(3, 12))
_HEAD = FrozenEstimator(LinearHead(_COEF, [4.0, 4.0, 4.0]))

DETECTORS = {
    "GMM": GMM(),
    "GMM diag": GMM(covariance_type="diag"),
    "KNN": KNN(n_neighbors=2),
    "KNN unit": KNN(n_neighbors=2, normalize=True),
    "Mahalanobis": Mahalanobis(),
    "Mahalanobis own": Mahalanobis(tied=False),
    "RelativeMahalanobis": RelativeMahalanobis(),
    "Residual": Residual(_HEAD),
    "SHE": SHE(_HEAD),
    "SHE cosine": SHE(_HEAD, metric="cosine"),
    "SSD": SSD(),
    "ViM": ViM(_HEAD),
}

# What needs a rank says so where there is none.
SPACES = ("Residual", "ViM")

each_detector = pytest.mark.parametrize("name", list(DETECTORS))
each_dtype = looped("dtype", [np.float32, np.float64])


def _data(n_samples=60, seed=0):
    """Rows that the head predicts as they are labeled, and others."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, 12))
    y = _HEAD.predict(X)
    return X, y, 3 * rng.normal(size=(40, 12))


def _fit(name, X, y):
    """A fitted detector, and the warnings that it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        detector = clone(DETECTORS[name]).fit(X, y)
    assert {w.category for w in caught} <= {SkoodWarning}
    return detector, " ".join(str(w.message) for w in caught)


def _assert_defined(detector, *arrays):
    """Finite scores, that are the same alone, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X in arrays:
            scores = detector.score_samples(X)
            assert np.isfinite(scores).all()
            alone = [detector.score_samples(x[None])[0] for x in X[:5]]
            # residuals of float32 features are projected in float32
            share = 1e-9 if X.dtype == np.float64 else 1e-6
            atol = share * np.abs(scores).max() + 1e-12
            np.testing.assert_allclose(alone, scores[:5], rtol=1e-6, atol=atol)
    assert np.isfinite(detector.offset_)


@each_detector
@each_dtype
def test_fewer_samples_than_features(name, dtype):
    X, y, queries = _data(n_samples=9)
    assert len(set(y)) == 3
    detector, said = _fit(name, X.astype(dtype), y)
    _assert_defined(detector, X.astype(dtype), queries.astype(dtype))
    assert np.sum(y == 1) == 1  # for which there is no variance either
    # the class of one sample has no covariance, others are shrunk
    assert ("singular" in said) == (name in ("GMM", "GMM diag", "Mahalanobis own"))


@pytest.mark.parametrize("name", SPACES)
def test_too_little_rank_for_the_principal_space(name):
    X, y, queries = _data(n_samples=5)
    detector, said = _fit(name, X, y)
    assert "rank 5 of 12" in said and "Using n_components=2" in said
    _assert_defined(detector, X, queries)


@each_detector
@each_dtype
def test_class_with_a_single_sample(name, dtype):
    X, y, queries = _data()
    indices = np.concatenate([np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:1]])
    detector, said = _fit(name, X[indices].astype(dtype), y[indices])
    _assert_defined(detector, X.astype(dtype), queries.astype(dtype))
    own = {"GMM": "of the classes [2] is singular", "GMM diag": "classes [2] is sing"}
    own["Mahalanobis own"] = "of the classes [2] are singular and were regularized"
    assert own.get(name, "") in said
    assert bool(said) == (name in own)


@each_detector
@each_dtype
def test_constant_features(name, dtype):
    """Also such whose mean is rounded: three times 0.1 is not 0.3."""
    X, y, queries = _data()
    X[:, 2], X[:, 5] = 0.1, 0.0
    y = _HEAD.predict(X)
    detector, said = _fit(name, X.astype(dtype), y)
    _assert_defined(detector, X.astype(dtype), queries.astype(dtype))
    if name == "SSD":  # at unit length 0.1 is no constant, but determined by others
        assert said == "" or "rank 10 of 12" in said
    assert ("singular" in said) == (name in ("GMM", "GMM diag"))


@each_detector
def test_all_features_are_constant(name):
    """Nothing to scale by; what needs no scale has its scores."""
    X = np.full((12, 12), 0.1)
    y = np.full(12, _HEAD.predict(X[:1])[0])
    y[:6] = (y[0] + 1) % 3
    if name in ("SHE", "SHE cosine"):
        with pytest.raises(ValueError, match="is correctly classified"):
            _fit(name, X, y)
        return
    if name in ("Mahalanobis", "Mahalanobis own", "RelativeMahalanobis", "SSD"):
        with pytest.raises(ValueError, match=r"covariance.* is zero: .*n_samples = 12"):
            _fit(name, X, y)
        return
    detector, said = _fit(name, X, y)
    _assert_defined(detector, X)
    assert bool(said) == (name in ("GMM", "GMM diag", *SPACES))


@each_detector
@each_dtype
def test_large_values(name, dtype):
    """Features and logits of 1e4: a scaled problem, nothing overflows."""
    X, y, queries = _data()
    scale = 1e4 / np.abs(X @ _COEF.T).max()
    X, queries = (X * scale).astype(dtype), (queries * scale).astype(dtype)
    detector, said = _fit(name, X, y)
    assert not said
    _assert_defined(detector, X, queries)
    invariant = (
        "KNN unit",
        "Mahalanobis",
        "RelativeMahalanobis",
        "SHE cosine",
        "SSD",
    )
    if name in invariant:
        plain, _ = _fit(name, X / scale, y)
        np.testing.assert_allclose(
            detector.score_samples(queries),
            plain.score_samples(queries / scale),
            rtol=1e-4 if dtype is np.float32 else 1e-7,
            atol=1e-4 if dtype is np.float32 else 1e-9,
        )


@each_detector
@each_dtype
def test_zero_vectors(name, dtype):
    """As training rows and as samples."""
    X, y, queries = _data()
    X[3] = X[17] = queries[2] = 0
    y = _HEAD.predict(X)
    detector, said = _fit(name, X.astype(dtype), y)
    assert not said
    _assert_defined(detector, X.astype(dtype), queries.astype(dtype))


@each_detector
def test_equal_samples(name):
    """Copies of a row have one score; fitting on copies of all rows changes none."""
    X, y, queries = _data(n_samples=120)  # enough for a covariance of each class
    detector, _ = _fit(name, np.repeat(X, 3, axis=0), np.repeat(y, 3))
    samples = np.repeat(queries[:4], 5, axis=0)
    scores = detector.score_samples(samples).reshape(4, 5)
    spread = np.ptp(scores, axis=1)
    assert np.all(spread <= 1e-9 * np.abs(scores).max())
    if name in ("KNN", "KNN unit"):  # whose second neighbor then is the first
        return
    once, _ = _fit(name, X, y)
    np.testing.assert_allclose(
        detector.score_samples(queries), once.score_samples(queries), rtol=1e-7
    )

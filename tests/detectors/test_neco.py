"""Tests of neural-collapse-based detection."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from skood.detectors import NECO, MaxLogit
from skood.exceptions import SkoodWarning
from skood.nn import LinearHead

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    NECO(),
    NECO(n_components=1),
    NECO(LogisticRegression(), n_components=0.5),
    NECO(n_components=1, max_logit=False),
]


def _network(dtype=np.float64, n_samples=200, n_features=8, seed=0):
    """A frozen head with positive logits, and correlated features."""
    rng = np.random.default_rng(seed)
    coef = rng.normal(size=(3, n_features)).astype(dtype)
    head = LinearHead(coef, np.full(3, 20, dtype))
    Z = rng.normal(size=(n_samples, 4)) @ rng.normal(size=(4, n_features))
    Z += 0.3 * rng.normal(size=Z.shape)
    Z *= np.linspace(1, 5, n_features)
    return FrozenEstimator(head), (Z + 2).astype(dtype)


def _naive(head, Z, queries, n_components):
    """Ratio and largest logit, by a singular value decomposition, row by row."""
    W, b = (np.asarray(a, np.float64) for a in (head.coef, head.intercept))
    Z, queries = (np.asarray(a, np.float64) for a in (Z, queries))
    mean = sum(Z) / len(Z)
    scale = np.array([math.sqrt(sum(column**2) / len(Z)) for column in (Z - mean).T])
    _, _, vectors = np.linalg.svd((Z - mean) / scale)
    scores = []
    for z in queries:
        h = (z - mean) / scale
        inside = math.sqrt(sum((v @ h) ** 2 for v in vectors[:n_components]))
        ratio = inside / math.sqrt(h @ h)
        scores.append((ratio, max(W @ z + b)))
    return np.array(scores).T


@pytest.mark.parametrize("n_components", [1, 3, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(n_components, dtype):
    head, Z = _network(dtype)
    queries = 3 * np.random.default_rng(1).normal(size=(50, 8)).astype(dtype)
    ratio, top = _naive(head.estimator, Z, queries, n_components)
    plain = NECO(head, n_components=n_components, max_logit=False).fit(Z)
    np.testing.assert_allclose(plain.score_samples(queries), ratio, rtol=1e-9)
    detector = NECO(head, n_components=n_components).fit(Z)
    rtol = 1e-9 if dtype is np.float64 else 2e-6
    np.testing.assert_allclose(detector.score_samples(queries), ratio * top, rtol=rtol)


def test_equals_scikit_learn():
    head, Z = _network()
    scaler, pca = StandardScaler().fit(Z), PCA(3)
    H = scaler.transform(Z)
    ratio = np.linalg.norm(pca.fit_transform(H), axis=1) / np.linalg.norm(H, axis=1)
    detector = NECO(head, n_components=3).fit(Z)
    expected = ratio * head.predict_logits(Z).max(axis=1)
    np.testing.assert_allclose(detector.score_samples(Z), expected, rtol=1e-10)
    np.testing.assert_allclose(detector.mean_, scaler.mean_)
    np.testing.assert_allclose(detector.scale_, scaler.scale_)
    assert detector.components_.shape == (3, 8)
    signs = np.sign(np.sum(detector.components_ * pca.components_, axis=1))
    np.testing.assert_allclose(detector.components_ * signs[:, None], pca.components_)


def test_the_ratio_is_a_cosine():
    """One in the principal space, zero outside of it."""
    head, Z = _network()
    detector = NECO(head, n_components=3, max_logit=False).fit(Z)
    inside = detector.mean_ + detector.scale_ * detector.components_
    _, _, vectors = np.linalg.svd(detector.components_)
    outside = detector.mean_ + detector.scale_ * vectors[3:]
    np.testing.assert_allclose(detector.score_samples(inside), 1.0, rtol=1e-12)
    np.testing.assert_allclose(detector.score_samples(outside), 0.0, atol=1e-12)


def test_scaling_and_shifting_features_changes_no_ratio():
    _, Z = _network()
    expected = NECO(n_components=3, max_logit=False).fit(Z).score_samples(Z)
    moved = 100 - Z * np.logspace(-3, 4, 8)
    actual = NECO(n_components=3, max_logit=False).fit(moved).score_samples(moved)
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


@pytest.mark.parametrize("share", [0.3, 0.8, 0.95])
def test_explained_share(share):
    head, Z = _network()
    detector = NECO(head, n_components=share).fit(Z)
    pca = PCA().fit(StandardScaler().fit_transform(Z))
    explained = np.cumsum(pca.explained_variance_ratio_)
    assert detector.n_components_ == np.searchsorted(explained, share) + 1
    same = NECO(head, n_components=detector.n_components_).fit(Z)
    np.testing.assert_array_equal(same.score_samples(Z), detector.score_samples(Z))


@pytest.mark.parametrize("value", [0.1, 1e8, 0.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_that_do_not_vary(value, dtype):
    """They are in no component, and count in the length of rows that differ there."""
    _, Z = _network(dtype)
    wide = np.insert(Z, 3, value, axis=1)
    detector = NECO(n_components=3, max_logit=False).fit(wide)
    assert detector.scale_[3] == 1.0
    np.testing.assert_allclose(detector.components_[:, 3], 0.0, atol=1e-15)
    narrow = NECO(n_components=3, max_logit=False).fit(Z)
    expected = narrow.score_samples(Z)
    np.testing.assert_allclose(detector.score_samples(wide), expected, rtol=1e-6)
    wide[:, 3] = value + 16
    assert (detector.score_samples(wide) < expected).all()


def test_no_feature_varies():
    with pytest.raises(ValueError, match=r"No feature varies.*more .* n_samples = 9"):
        NECO(max_logit=False).fit(np.full((9, 3), 0.1))


@pytest.mark.parametrize("n_components", [6, 100])
def test_fewer_samples_than_components(n_components):
    head, Z = _network()
    few = Z[:6]
    message = f"n_components={n_components}, but .*rank 5 of 8: using 5 components"
    with pytest.warns(SkoodWarning, match=message):
        detector = NECO(head, n_components=n_components).fit(few)
    assert detector.n_components_ == 5
    ratio, top = _naive(head.estimator, few, Z, 5)
    np.testing.assert_allclose(detector.score_samples(Z), ratio * top, rtol=1e-8)


def test_all_components():
    head, Z = _network()
    message = "n_components=100 keeps all of the n_features = 8: the score is the larg"
    with pytest.warns(SkoodWarning, match=message):
        detector = NECO(head, n_components=100).fit(Z)
    assert detector.n_components_ == 8
    expected = MaxLogit(head).fit(Z).score_samples(Z)
    np.testing.assert_allclose(detector.score_samples(Z), expected, rtol=1e-12)
    message = "n_components=8 keeps all .* every sample is 1. Use fewer components"
    with pytest.raises(ValueError, match=message):
        NECO(head, n_components=8, max_logit=False).fit(Z)


@pytest.mark.parametrize(
    ("n_samples", "n_features", "n_components"),
    [(300, 8, 4), (300, 3, 1), (300, 130, 100), (50, 130, 24), (300, 100, 50)],
)
def test_automatic_components(n_samples, n_features, n_components):
    """No warning of a default: of fewer features than 100 the cosine needs some."""
    X = np.random.default_rng(0).normal(size=(n_samples, n_features))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = NECO(max_logit=False).fit(X)
    assert detector.n_components_ == n_components
    new = np.random.default_rng(1).normal(size=X.shape)
    assert detector.score_samples(new).max() < 1
    constant = np.insert(X, 1, 0.5, axis=1)  # the directions that vary
    wanted = 24 if n_samples == 50 else min(100, n_features)
    assert NECO(max_logit=False).fit(constant).n_components_ == wanted


def test_a_row_at_the_mean_scores_zero():
    head = FrozenEstimator(LinearHead(np.ones((2, 2)), [3.0, 4.0]))
    Z = np.array([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0], [4.0, 2.0]])
    detector = NECO(head, n_components=1).fit(Z)
    np.testing.assert_array_equal(detector.score_samples([[2.0, 1.0]]), 0.0)


def test_large_logits():
    head, Z = _network()
    detector = NECO(head, n_components=3).fit(1e4 * Z)
    assert np.isfinite(detector.score_samples(-1e4 * Z)).all()


def test_logits_that_are_negative():
    head, Z = _network()
    low = FrozenEstimator(LinearHead(head.coef_, head.intercept_ - 200))
    mean = low.predict_logits(Z).max(axis=1).mean()
    message = f"are {mean:.3g} on average: .*lowers the score. Shift .*max_logit=False"
    with pytest.warns(SkoodWarning, match=message):
        NECO(low, n_components=3).fit(Z)


def test_without_the_logit_it_reads_features_only():
    X, y = load_iris(return_X_y=True)
    expected = NECO(n_components=2, max_logit=False).fit(X)
    assert not hasattr(expected, "estimator_")
    forest = FrozenEstimator(RandomForestClassifier(5, random_state=0).fit(X, y))
    given = NECO(forest, n_components=2, max_logit=False).fit(X)
    np.testing.assert_array_equal(given.score_samples(X), expected.score_samples(X))


def test_partial_fit_equals_fit():
    head, Z = _network()
    steps = NECO(n_components=3, max_logit=False)
    steps.partial_fit(Z[:1])  # does not vary yet
    assert not hasattr(steps, "offset_")
    for indices in (slice(1, 40), slice(40, 200)):
        steps.partial_fit(Z[indices])
    whole = NECO(n_components=3, max_logit=False).fit(Z)
    np.testing.assert_allclose(
        steps.score_samples(Z), whole.score_samples(Z), rtol=1e-9
    )
    assert steps.offset_ == pytest.approx(whole.offset_, rel=1e-9)
    assert hasattr(NECO(head), "partial_fit")
    assert not hasattr(NECO(n_components=3), "partial_fit")  # it fits a head


@pytest.mark.parametrize("n_components", [2, 0.999999])
def test_partial_fit_where_more_samples_never_help(n_components):
    """Without the logit all components are no score: an error, not a silence."""
    Z = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ValueError, match=r"keeps all of .*Use fewer components"):
        NECO(n_components=n_components, max_logit=False).partial_fit(Z)
    detector = NECO(n_components=1, max_logit=False).partial_fit(Z)
    expected = detector.score_samples(Z)
    with pytest.raises(ValueError, match=r"keeps all of .*Use fewer components"):
        detector.set_params(n_components=n_components).partial_fit(Z)
    np.testing.assert_array_equal(detector.score_samples(Z), expected)


def test_signs_of_the_components():
    """Of the solver they are whatever its rounding makes them."""
    head, Z = _network()
    whole = NECO(head, n_components=7).fit(Z)
    indices = np.arange(7)
    largest = np.abs(whole.components_).argmax(axis=1)
    assert (whole.components_[indices, largest] > 0).all()
    for size in (9, 30, 77):
        steps = NECO(n_components=7, max_logit=False).partial_fit(Z[:20])
        for start in range(20, len(Z), size):
            steps.partial_fit(Z[start : start + size])
        np.testing.assert_allclose(steps.components_, whole.components_, atol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_signs_of_equal_entries(seed):
    """Two features have components (1, 1) and (1, -1), but for rounding."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(50, 2)) + rng.normal(size=(50, 1))
    logits = FrozenEstimator(LinearHead(np.ones((2, 2)), [9.0, 9.0]))
    with pytest.warns(SkoodWarning, match="keeps all"):
        detector = NECO(logits, n_components=100).fit(Z)
    expected = np.array([[1, 1], [1, -1]]) / math.sqrt(2)
    np.testing.assert_allclose(detector.components_, expected, rtol=1e-12)


@pytest.mark.parametrize("n_samples", [300, 30_000])
def test_constant_features_far_from_zero(n_samples):
    Z = 1e-3 * np.random.default_rng(0).normal(size=(n_samples, 3))
    wide = np.insert(Z, 1, 1000.1, axis=1)
    steps = NECO(n_components=2, max_logit=False)
    for start in range(0, n_samples, 9000):
        steps.partial_fit(wide[start : start + 9000])
    for detector in (steps, NECO(n_components=2, max_logit=False).fit(wide)):
        assert detector.scale_[1] == 1.0
        expected = NECO(n_components=2, max_logit=False).fit(Z).score_samples(Z)
        np.testing.assert_allclose(detector.score_samples(wide), expected, rtol=1e-9)


def test_small_spread_far_from_zero():
    """Is spread, however many samples there are."""
    Z = 1e6 + 1e-6 * np.random.default_rng(0).normal(size=(100_000, 3))
    detector = NECO(n_components=2, max_logit=False).fit(Z)
    np.testing.assert_allclose(detector.scale_, Z.std(axis=0), rtol=1e-4)

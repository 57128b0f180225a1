"""Tests of the relative Mahalanobis distance."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.covariance import EmpiricalCovariance, LedoitWolf
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import Mahalanobis, RelativeMahalanobis
from skood.exceptions import SkoodWarning

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    RelativeMahalanobis(),
    RelativeMahalanobis(covariance=LedoitWolf()),
    RelativeMahalanobis(LogisticRegression()),
]


def _data(n_samples=150, n_features=5, n_classes=3, dtype=np.float64):
    """Classes of unequal size with correlated features."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n_samples) * rng.integers(2, size=n_samples)
    y[: 3 * n_classes] = list(range(n_classes)) * 3
    mix = rng.normal(size=(n_features, n_features)) + 2 * np.eye(n_features)
    means = 4 * rng.normal(size=(n_classes, n_features))
    X = rng.normal(size=(n_samples, n_features)) @ mix + means[y]
    queries = 5 * rng.normal(size=(60, n_features))
    return X.astype(dtype), y, queries.astype(dtype)


def _gaussians(X, y):
    """Class means, tied covariance, background mean and covariance, by loops."""
    X = np.asarray(X, dtype=np.float64)
    n_samples, n_features = X.shape
    labels = sorted(set(y.tolist()))
    means = {k: sum(X[y == k]) / np.sum(y == k) for k in labels}
    center = sum(X) / n_samples
    tied, background = np.zeros((2, n_features, n_features))
    for x, k in zip(X, y.tolist(), strict=True):
        tied += np.outer(x - means[k], x - means[k]) / n_samples
        background += np.outer(x - center, x - center) / n_samples
    return np.array([means[k] for k in labels]), tied, center, background


def _naive(means, tied, center, background, queries):
    """d_0 - min_k d_k with explicit inverses, row by row."""
    precision, background = np.linalg.inv(tied), np.linalg.inv(background)
    scores = []
    for q in np.asarray(queries, dtype=np.float64):
        distances = [(q - m) @ precision @ (q - m) for m in means]
        scores.append((q - center) @ background @ (q - center) - min(distances))
    return np.array(scores)


@pytest.mark.parametrize("n_classes", [2, 3, 9])  # fewer and more than features
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(dtype, n_classes):
    X, y, queries = _data(n_classes=n_classes, dtype=dtype)
    detector = RelativeMahalanobis().fit(X, y)
    scores = detector.score_samples(queries)
    assert scores.dtype == np.float64
    gaussians = _gaussians(X, y)
    np.testing.assert_allclose(scores, _naive(*gaussians, queries), rtol=1e-9)
    for name, expected in zip(
        ("location_", "covariance_", "background_location_", "background_covariance_"),
        gaussians,
        strict=True,
    ):
        got = getattr(detector, name)
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


def test_1d_in_closed_form():
    """Classes at -a and a with variance 1: the background variance is 1 + a²."""
    a = 3.0
    X = np.array([-a - 1, -a + 1, a - 1, a + 1])[:, None]
    detector = RelativeMahalanobis().fit(X, [0, 0, 1, 1])
    z = np.array([-5.0, 0.0, 2.5])
    expected = z**2 / (1 + a**2) - (np.abs(z) - a) ** 2
    np.testing.assert_allclose(detector.score_samples(z[:, None]), expected, rtol=1e-12)


def test_only_directions_between_the_classes_count():
    """Moving a sample where the whitened class means are equal changes nothing."""
    X, y, queries = _data()
    detector = RelativeMahalanobis().fit(X, y)
    means, tied, _, _ = _gaussians(X, y)
    # tied^-1 (mu_k - mu_j) spans what counts: move orthogonally to it
    counts = np.linalg.solve(tied, (means[1:] - means[0]).T)
    free = np.linalg.svd(counts.T)[2][2:]
    moved = queries + 50 * np.random.default_rng(1).normal(size=(60, 3)) @ free
    scores = detector.score_samples(queries)
    np.testing.assert_allclose(detector.score_samples(moved), scores, rtol=1e-8)
    plain = Mahalanobis().fit(X, y)
    assert np.all(plain.score_samples(moved) < plain.score_samples(queries) - 1)


def test_background_does_not_vanish_with_more_samples():
    """The defect of peers: a scatter that is not divided by n."""
    X, y, queries = _data()
    once = RelativeMahalanobis().fit(X, y).score_samples(queries)
    many = RelativeMahalanobis().fit(np.tile(X, (20, 1)), np.tile(y, 20))
    np.testing.assert_allclose(many.score_samples(queries), once, rtol=1e-8)


def test_affine_maps_of_the_features_change_nothing():
    X, y, queries = _data()
    rng = np.random.default_rng(1)
    A, b = rng.normal(size=(5, 5)), 100 * rng.normal(size=5)
    scores = RelativeMahalanobis().fit(X, y).score_samples(queries)
    mapped = RelativeMahalanobis().fit(X @ A + b, y).score_samples(queries @ A + b)
    np.testing.assert_allclose(mapped, scores, rtol=1e-7)


def test_orders_of_classes_and_samples_do_not_matter():
    X, y, queries = _data()
    scores = RelativeMahalanobis().fit(X, y).score_samples(queries)
    order = np.random.default_rng(0).permutation(len(y))
    renamed = np.array(["c", "a", "b"])[y]
    got = RelativeMahalanobis().fit(X[order], renamed[order]).score_samples(queries)
    np.testing.assert_allclose(got, scores, rtol=1e-8)


@pytest.mark.parametrize("covariance", [EmpiricalCovariance(), LedoitWolf()], ids=repr)
def test_covariance_estimators_of_scikit_learn(covariance):
    X, y, queries = _data()
    detector = RelativeMahalanobis(covariance=covariance).fit(X, y)
    means, _, center, _ = _gaussians(X, y)
    tied = covariance.fit(X - means[y]).covariance_
    background = covariance.fit(X - center).covariance_
    expected = _naive(means, tied, center, background, queries)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-8)
    assert not hasattr(detector, "partial_fit")


class _Flattened(BaseEstimator):
    """A covariance estimator without variance in the first feature of far data."""

    def fit(self, X, y=None):
        self.covariance_ = np.cov(X.T, ddof=0)
        if np.abs(X).max() > 10:
            self.covariance_[0] = self.covariance_[:, 0] = 0
        return self


def test_singular_background():
    """Directions without background variance do not count in its distance."""
    corners = np.array([[a, b] for a in (-1.0, 1.0) for b in (-2.0, 2.0)])
    X, y = np.concatenate([corners, corners + 20]), np.repeat([0, 1], 4)
    with pytest.warns(SkoodWarning, match=r"background .* \(rank 1 of 2\).*_Flattened"):
        detector = RelativeMahalanobis(covariance=_Flattened()).fit(X, y)
    means, _, center, background = _gaussians(X, y)
    precision = np.linalg.inv(np.cov((X - means[y]).T, ddof=0))
    distances = [np.einsum("ij,jk,ik->i", X - m, precision, X - m) for m in means]
    expected = (X - center)[:, 1] ** 2 / background[1, 1] - np.min(distances, axis=0)
    np.testing.assert_allclose(detector.score_samples(X), expected, rtol=1e-8)


def test_fewer_samples_than_features():
    """Both distances are measured with the shrunk within-class covariance."""
    X, y, _ = _data(n_samples=20, n_features=50)
    queries = 3 * np.random.default_rng(3).normal(size=(40, 50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = RelativeMahalanobis().fit(X, y)
    means, tied, center, background = _gaussians(X, y)
    background += detector.covariance_ - tied
    assert np.linalg.matrix_rank(tied) == 17  # 20 samples minus 3 means
    np.testing.assert_allclose(np.diag(detector.covariance_), np.diag(tied), rtol=1e-9)
    np.testing.assert_allclose(detector.background_covariance_, background, rtol=1e-9)
    expected = _naive(means, detector.covariance_, center, background, queries)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-7)


def test_constant_features_are_left_out():
    X, y, queries = _data()
    wide = np.insert(X, 2, 7.0, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = RelativeMahalanobis().fit(wide, y)
    expected = RelativeMahalanobis().fit(X, y).score_samples(queries)
    for value in (7.0, -1e3):
        got = detector.score_samples(np.insert(queries, 2, value, axis=1))
        np.testing.assert_allclose(got, expected, rtol=1e-8)


def test_single_class_has_no_relative_distance():
    X, _, _ = _data()
    with pytest.raises(ValueError, match=r"n_classes = 1\) do not differ where .*two"):
        RelativeMahalanobis().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="do not differ where features vary"):
        RelativeMahalanobis().fit(np.tile(X, (2, 1)), np.repeat([0, 1], len(X)))


def test_classes_that_differ_in_constant_features_only():
    """A within-class covariance that is singular there: nothing is left."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(30, 2))
    X = np.insert(np.tile(half, (2, 1)), 2, np.repeat([0.0, 1.0], 30), axis=1)
    with pytest.warns(SkoodWarning, match="rank 2 of 3"):
        with pytest.raises(ValueError, match="do not differ where features vary"):
            RelativeMahalanobis().fit(X, np.repeat([0, 1], 30))


@pytest.mark.parametrize("estimator", [None, "frozen"])
def test_labels_are_needed(estimator):
    X, y, _ = _data()
    if estimator is not None:
        estimator = FrozenEstimator(LogisticRegression().fit(X, y))
    detector = RelativeMahalanobis(estimator)
    with pytest.raises(ValueError, match=r"requires y to be passed.*use Mahalanobis"):
        detector.fit(X)
    with pytest.raises(ValueError, match="requires y to be passed"):
        detector.partial_fit(X)
    with pytest.raises(NotFittedError):
        detector.score_samples(X)


def test_explanation_sums_to_the_score():
    X, y, queries = _data()
    detector = RelativeMahalanobis().fit(X, y)
    frame = detector.explain(queries, n_features=5)
    means, tied, _, _ = _gaussians(X, y)
    precision = np.linalg.inv(tied)
    distances = [
        np.einsum("ij,jk,ik->i", queries - m, precision, queries - m) for m in means
    ]
    np.testing.assert_array_equal(frame["nearest_class"], np.argmin(distances, axis=0))
    scores = detector.score_samples(queries)
    np.testing.assert_allclose(frame["relative_distance"], -scores, rtol=1e-9)
    parts = frame[[f"contribution_{j}" for j in range(1, 6)]]
    np.testing.assert_allclose(parts.sum(axis=1), -scores, rtol=1e-8)
    assert np.all(np.diff(parts, axis=1) <= 0)


def test_explanation_of_independent_features():
    """Where features are independent, each contributes its own difference."""
    rng = np.random.default_rng(0)
    corners = np.array([[a, b] for a in (-1.0, 1.0) for b in (-2.0, 2.0)])
    X = np.concatenate([corners + m for m in ([0.0, 0.0], [6.0, 0.0])])
    detector = RelativeMahalanobis().fit(X, np.repeat(["p", "q"], 4))
    queries = 3 * rng.normal(size=(20, 2))
    frame = detector.explain(queries, n_features=1)
    at = queries[:, 0]
    own = (at - np.where(at > 3, 6, 0)) ** 2 - (at - 3) ** 2 / 10
    both = np.maximum(own, 0)  # the second feature has the same mean: no difference
    np.testing.assert_allclose(frame["contribution_1"], both, atol=1e-12)
    assert set(frame["feature_1"][own > 1e-9]) == {0}
    np.testing.assert_array_equal(frame["nearest_class"], np.where(at > 3, "q", "p"))


def test_shrinkage_needs_no_warning_with_few_samples():
    X, y, _ = _data(n_samples=20, n_features=50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = RelativeMahalanobis(covariance=LedoitWolf()).fit(X, y)
    assert np.all(np.isfinite(detector.score_samples(X)))


@pytest.mark.parametrize("n_samples", [300, 30_000])
def test_constant_features_far_from_zero(n_samples):
    rng = np.random.default_rng(0)
    X, y = 1e-3 * rng.normal(size=(n_samples, 3)), np.arange(n_samples) % 3
    X[y == 1] += 1e-3
    wide = np.insert(X, 1, 1000.1, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = RelativeMahalanobis().fit(wide, y)
    expected = RelativeMahalanobis().fit(X, y).score_samples(X)
    np.testing.assert_allclose(
        detector.score_samples(wide), expected, rtol=1e-9, atol=1e-9
    )


def test_partial_fit_equals_fit_far_from_the_origin():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=4000)
    near = 1e-3 * (rng.normal(size=(4000, 4)) + 3 * np.eye(3, 4)[y])
    X = 1e6 + near
    whole, steps = RelativeMahalanobis().fit(X, y), RelativeMahalanobis()
    for start in range(0, len(X), 700):
        steps.partial_fit(X[start : start + 700], y[start : start + 700])
    scores = whole.score_samples(X)
    atol = 1e-9 * np.abs(scores).max()
    np.testing.assert_allclose(steps.score_samples(X), scores, rtol=1e-9, atol=atol)
    # as if they were near, where nothing rounds
    exact = RelativeMahalanobis().fit(X - 1e6, y).score_samples(X - 1e6)
    np.testing.assert_allclose(scores, exact, rtol=1e-9, atol=atol)
    frame = whole.explain(X, n_features=4)
    np.testing.assert_allclose(-frame["relative_distance"], scores, atol=atol)


def test_features_on_different_scales():
    X, y, queries = _data()
    scale = np.array([1e6, 1e-3, 1.0, 1e-6, 1e3])
    expected = RelativeMahalanobis().fit(X, y).score_samples(queries)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = RelativeMahalanobis().fit(X * scale, y)
    scores = detector.score_samples(queries * scale)
    np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-8)

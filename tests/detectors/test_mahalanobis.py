"""Tests of the Mahalanobis distance to the nearest class mean."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import OAS, EmpiricalCovariance, LedoitWolf, ShrunkCovariance
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.detectors import Mahalanobis
from skood.exceptions import SkoodWarning

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    Mahalanobis(),
    Mahalanobis(tied=False),
    Mahalanobis(covariance=LedoitWolf()),
    Mahalanobis(LogisticRegression()),
]


def _data(n_samples=150, n_features=5, dtype=np.float64):
    """Three classes of unequal size with correlated features."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=n_samples, p=[0.5, 0.3, 0.2])
    y[:9] = [0, 1, 2] * 3
    mix = rng.normal(size=(n_features, n_features)) + 2 * np.eye(n_features)
    means = 4 * rng.normal(size=(3, n_features))
    X = rng.normal(size=(n_samples, n_features)) @ mix + means[y]
    queries = 5 * rng.normal(size=(60, n_features))
    return X.astype(dtype), y, queries.astype(dtype)


def _parameters(X, y):
    """Class means and the tied maximum likelihood covariance, by loops."""
    X = np.asarray(X, dtype=np.float64)
    means = np.array([X[y == k].sum(axis=0) / np.sum(y == k) for k in np.unique(y)])
    covariance = np.zeros((X.shape[1], X.shape[1]))
    for x, k in zip(X, np.searchsorted(np.unique(y), y), strict=True):
        covariance += np.outer(x - means[k], x - means[k])
    return means, covariance / len(X)


def _naive(X, y, queries):
    """-min_k (z - mu_k)' pinv(Sigma) (z - mu_k), by loops."""
    means, covariance = _parameters(X, y)
    precision = np.linalg.pinv(covariance, hermitian=True)
    queries = np.asarray(queries, dtype=np.float64)
    return np.array(
        [-min((q - m) @ precision @ (q - m) for m in means) for q in queries]
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(dtype):
    X, y, queries = _data(dtype=dtype)
    detector = Mahalanobis().fit(X, y)
    scores = detector.score_samples(queries)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, _naive(X, y, queries), rtol=1e-9)
    means, covariance = _parameters(X, y)
    np.testing.assert_allclose(detector.location_, means, rtol=1e-12)
    np.testing.assert_allclose(detector.covariance_, covariance, rtol=1e-10, atol=1e-12)


def test_single_class_without_labels():
    X, _, queries = _data()
    detector = Mahalanobis().fit(X)
    expected = EmpiricalCovariance().fit(X).mahalanobis(queries)
    np.testing.assert_allclose(detector.score_samples(queries), -expected, rtol=1e-9)
    assert detector.location_.shape == (1, 5)
    assert not hasattr(detector, "classes_")


def test_mean_training_distance_is_the_number_of_features():
    """trace(Sigma^-1 S) = d, where each sample is nearest to its own mean."""
    X, y, _ = _data()
    X = X + 100 * np.eye(5)[y]
    assert Mahalanobis().fit(X, y).score_samples(X).mean() == pytest.approx(-5, 1e-9)


def test_class_means_score_zero_and_nothing_scores_above():
    X, y, queries = _data()
    detector = Mahalanobis().fit(X, y)
    np.testing.assert_allclose(detector.score_samples(detector.location_), 0, atol=1e-9)
    for samples in (X, queries, detector.location_):
        assert detector.score_samples(samples).max() <= 0


def test_is_not_positive_even_where_rounding_is_large():
    """Means that are 1e8 standard deviations apart."""
    rng = np.random.default_rng(0)
    y = np.arange(100) % 2
    X = rng.normal(size=(100, 3)) + 1e8 * y[:, None]
    detector = Mahalanobis().fit(X, y)
    assert detector.score_samples(np.concatenate([X, detector.location_])).max() <= 0


@pytest.mark.parametrize("tied", [True, False])
def test_value_does_not_depend_on_the_number_of_samples(tied):
    X, y, queries = _data()
    once = Mahalanobis(tied=tied).fit(X, y).score_samples(queries)
    X, y = np.tile(X, (7, 1)), np.tile(y, 7)
    many = Mahalanobis(tied=tied).fit(X, y).score_samples(queries)
    np.testing.assert_allclose(many, once, rtol=1e-9)


@pytest.mark.parametrize("tied", [True, False])
def test_affine_maps_of_the_features(tied):
    """Distances stay as they are; a density changes by the log determinant."""
    X, y, queries = _data()
    rng = np.random.default_rng(1)
    A, b = rng.normal(size=(5, 5)), 100 * rng.normal(size=5)
    scores = Mahalanobis(tied=tied).fit(X, y).score_samples(queries)
    mapped = Mahalanobis(tied=tied).fit(X @ A + b, y).score_samples(queries @ A + b)
    change = 0 if tied else -np.linalg.slogdet(A)[1]
    np.testing.assert_allclose(mapped, scores + change, rtol=1e-7)


def test_orders_of_classes_and_samples_do_not_matter():
    X, y, queries = _data()
    scores = Mahalanobis().fit(X, y).score_samples(queries)
    order = np.random.default_rng(0).permutation(len(y))
    renamed = np.array(["c", "a", "b"])[y]
    got = Mahalanobis().fit(X[order], renamed[order]).score_samples(queries)
    np.testing.assert_allclose(got, scores, rtol=1e-9)


def test_fewer_samples_than_features():
    """Correlations are shrunk by Eq. (23) of Chen et al. for 20 - 2 samples."""
    X, y, _ = _data(n_samples=20, n_features=50)
    queries = 3 * np.random.default_rng(3).normal(size=(40, 50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = Mahalanobis().fit(X, y)
    means, covariance = _parameters(X, y)
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scale, scale)
    trace, square = np.trace(correlation), np.trace(correlation @ correlation)
    rho = (1 - 2 / 50) * square + trace**2
    rho /= (18 + 1 - 2 / 50) * (square - trace**2 / 50)
    assert 0.05 < rho < 1
    expected = ((1 - rho) * correlation + rho * np.eye(50)) * np.outer(scale, scale)
    np.testing.assert_allclose(detector.covariance_, expected, rtol=1e-9, atol=1e-12)
    precision = np.linalg.inv(expected)
    gaps = queries[:, None] - means
    squared = np.einsum("nki,ij,nkj->nk", gaps, precision, gaps).min(axis=1)
    np.testing.assert_allclose(detector.score_samples(queries), -squared, rtol=1e-9)


def test_constant_features_are_left_out():
    X, y, queries = _data()
    wide = np.insert(X, 2, 7.0, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = Mahalanobis().fit(wide, y)
    expected = Mahalanobis().fit(X, y).score_samples(queries)
    for value in (7.0, -1e3):  # what is off the support does not count
        got = detector.score_samples(np.insert(queries, 2, value, axis=1))
        np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_copied_features_count_once():
    X, y, queries = _data()
    with pytest.warns(SkoodWarning, match="rank 5 of 10.*drop features that others"):
        detector = Mahalanobis().fit(np.hstack([X, X]), y)
    np.testing.assert_allclose(
        detector.score_samples(np.hstack([queries, queries])),
        Mahalanobis().fit(X, y).score_samples(queries),
        rtol=1e-8,
    )


@pytest.mark.parametrize("repeats", [1, 3, 10])
@pytest.mark.parametrize("tied", [True, False])
def test_no_variation_within_the_classes(repeats, tied):
    """The mean of three times 0.1 is not 0.1: that difference is no variance."""
    X = np.repeat([[0.1, 0.2], [0.7, 0.3], [1e6 + 0.1, 3.3]], repeats, axis=0)
    y = np.repeat([0, 1, 2], repeats)
    message = "covariance is zero: all features are constant .*more than 1 sample per"
    with pytest.raises(ValueError, match=message):
        Mahalanobis(tied=tied).fit(X, y)


def _mixture(X, y, queries):
    """log sum_k pi_k N(z; mu_k, Sigma_k), by scipy."""
    terms = []
    for k in np.unique(y):
        samples = X[y == k]
        covariance = np.cov(samples.T, ddof=0)
        density = multivariate_normal(samples.mean(axis=0), covariance)
        terms.append(np.log(np.mean(y == k)) + density.logpdf(queries))
    return logsumexp(terms, axis=0)


def test_class_covariances_are_the_gaussian_mixture():
    X, y, queries = _data()
    detector = Mahalanobis(tied=False).fit(X, y)
    np.testing.assert_allclose(
        detector.score_samples(queries), _mixture(X, y, queries), rtol=1e-9
    )
    # the tied one is there as well
    covariance = _parameters(X, y)[1]
    np.testing.assert_allclose(detector.covariance_, covariance, rtol=1e-10, atol=1e-12)


def test_class_covariance_without_labels_is_a_gaussian():
    X, _, queries = _data()
    expected = multivariate_normal(X.mean(axis=0), np.cov(X.T, ddof=0)).logpdf(queries)
    np.testing.assert_allclose(
        Mahalanobis(tied=False).fit(X).score_samples(queries), expected, rtol=1e-9
    )


def test_densities_far_away_do_not_underflow():
    X, y, queries = _data()
    scores = Mahalanobis(tied=False).fit(X, y).score_samples(1e6 * queries)
    assert np.all(np.isfinite(scores))
    assert scores.max() < -1e9


@pytest.mark.parametrize("n_small", [1, 2, 4])
def test_singular_class_covariances_shrink_to_the_tied_covariance(n_small):
    X, y, queries = _data()
    indices = np.concatenate([np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:n_small]])
    X, y = X[indices], y[indices]
    names = np.array(["ant", "bee", "cat"])
    with pytest.warns(SkoodWarning, match=r"of the classes \['cat'\] are singular and"):
        detector = Mahalanobis(tied=False).fit(X, names[y])
    means, tied = _parameters(X, y)
    terms = []
    for k in range(3):
        residuals = X[y == k] - means[k]
        n, d = residuals.shape
        own = residuals.T @ residuals / n
        if k == 2:
            own = (n * own + d * tied) / (n + d)
        density = multivariate_normal(means[k], own)
        terms.append(np.log(n / len(y)) + density.logpdf(queries))
    np.testing.assert_allclose(
        detector.score_samples(queries), logsumexp(terms, axis=0), rtol=1e-8
    )


def test_class_of_equal_samples_in_1d():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=40), np.full(3, 0.1)])[:, None]
    y = np.repeat([0, 1], [40, 3])
    with pytest.warns(SkoodWarning, match=r"classes \[1\] are singular"):
        detector = Mahalanobis(tied=False).fit(X, y)
    tied = _parameters(X, y)[1]
    terms = [
        np.log(40 / 43) + multivariate_normal(X[:40].mean(), X[:40].var()).logpdf(X),
        np.log(3 / 43) + multivariate_normal(0.1, tied / 4).logpdf(X),
    ]
    np.testing.assert_allclose(
        detector.score_samples(X), logsumexp(terms, axis=0), rtol=1e-9
    )


def test_single_class_is_never_singular_on_the_support():
    """A frozen classifier has three classes, but X without y is one."""
    X, y, _ = _data(n_samples=12, n_features=4)
    X[:, 3] = X[:, 0]
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        detector = Mahalanobis(frozen, tied=False).fit(X)
    assert [w.category for w in caught] == [SkoodWarning]
    assert "rank 3 of 4" in str(caught[0].message)
    assert detector.location_.shape == (1, 4)


@pytest.mark.parametrize(
    "covariance",
    [EmpiricalCovariance(), LedoitWolf(), OAS(), ShrunkCovariance(shrinkage=0.3)],
    ids=repr,
)
def test_covariance_estimators_of_scikit_learn(covariance):
    X, y, queries = _data()
    detector = Mahalanobis(covariance=covariance).fit(X, y)
    means, _ = _parameters(X, y)
    precision = np.linalg.inv(covariance.fit(X - means[y]).covariance_)
    expected = [-min((q - m) @ precision @ (q - m) for m in means) for q in queries]
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-8)


def test_shrinkage_needs_no_warning_with_few_samples():
    X, y, _ = _data(n_samples=20, n_features=50)
    queries = 3 * np.random.default_rng(3).normal(size=(40, 50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = Mahalanobis(covariance=LedoitWolf()).fit(X, y)
    means, _ = _parameters(X, y)
    precision = np.linalg.inv(LedoitWolf().fit(X - means[y]).covariance_)
    expected = [-min((q - m) @ precision @ (q - m) for m in means) for q in queries]
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-7)


def test_class_covariances_by_an_estimator():
    """Fitted in the space where the tied covariance is the identity."""
    X, y, queries = _data(n_samples=60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shrunk = Mahalanobis(covariance=LedoitWolf(), tied=False).fit(X, y)
    values, vectors = np.linalg.eigh(
        LedoitWolf().fit(X - _parameters(X, y)[0][y]).covariance_
    )
    whiten = vectors / np.sqrt(values)
    terms = []
    for k in range(3):
        samples = X[y == k] @ whiten
        own = LedoitWolf().fit(samples - samples.mean(axis=0)).covariance_
        density = multivariate_normal(samples.mean(axis=0), own).logpdf(
            queries @ whiten
        )
        terms.append(np.log(np.mean(y == k)) + density - np.log(values).sum() / 2)
    np.testing.assert_allclose(
        shrunk.score_samples(queries), logsumexp(terms, axis=0), rtol=1e-8
    )


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("n_samples", [300, 30_000])
@pytest.mark.parametrize("value", [0.1, 1000.1])
def test_constant_features_far_from_zero(tied, n_samples, value):
    """They are no direction, of whatever many samples and next to small features."""
    rng = np.random.default_rng(0)
    X, y = 1e-3 * rng.normal(size=(n_samples, 3)), np.arange(n_samples) % 3
    wide = np.insert(X, 1, value, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = Mahalanobis(tied=tied).fit(wide, y)
    assert detector.covariance_[1, 1] == 0
    expected = Mahalanobis(tied=tied).fit(X, y).score_samples(X[:100])
    wide[:100, 1] += 1e-3  # does not count
    got = detector.score_samples(wide[:100])
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def test_features_that_are_constant_in_each_class():
    rng = np.random.default_rng(0)
    X, y = 1e-3 * rng.normal(size=(30_000, 3)), np.arange(30_000) % 3
    wide = np.insert(X, 1, (1e6 + 0.1) * (1 + y), axis=1)
    with pytest.warns(SkoodWarning, match=r"singular \(rank 3 of 4\)"):
        detector = Mahalanobis().fit(wide, y)
    expected = Mahalanobis().fit(X, y).score_samples(X[:100])
    got = detector.score_samples(wide[:100])
    np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("tied", [True, False])
def test_small_spread_far_from_zero(tied):
    """Is spread, however many samples there are."""
    rng = np.random.default_rng(0)
    y = np.arange(100_000) % 2
    X = 1e6 + 1e-6 * rng.normal(size=(len(y), 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = Mahalanobis(tied=tied).fit(X, y)
    expected = Mahalanobis(tied=tied).fit(X - 1e6, y)
    np.testing.assert_allclose(detector.covariance_, expected.covariance_, rtol=1e-9)
    np.testing.assert_allclose(
        detector.score_samples(X[:200]),
        expected.score_samples(X[:200] - 1e6),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("tied", [True, False])
def test_partial_fit_equals_fit_far_from_the_origin(tied):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=4000)
    X = 1e6 + 1e-3 * (rng.normal(size=(4000, 4)) + 3 * np.eye(3, 4)[y])
    whole, steps = (Mahalanobis(tied=tied) for _ in range(2))
    whole.fit(X, y)
    for start in range(0, len(X), 700):
        steps.partial_fit(X[start : start + 700], y[start : start + 700])
    scores = whole.score_samples(X)
    np.testing.assert_allclose(steps.score_samples(X), scores, rtol=1e-9)
    frame = whole.explain(X, n_features=4)
    if tied:  # explanations are measured from the same means
        np.testing.assert_allclose(-frame["squared_distance"], scores, rtol=1e-9)


@pytest.mark.parametrize("tied", [True, False])
def test_features_on_different_scales(tied):
    """None of them is a rounding error of another one."""
    X, y, queries = _data()
    scale = np.array([1e6, 1e-3, 1.0, 1e-6, 1e3])
    expected = Mahalanobis(tied=tied).fit(X, y).score_samples(queries)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = Mahalanobis(tied=tied).fit(X * scale, y)
    scores = detector.score_samples(queries * scale)
    if not tied:  # densities are per volume
        scores += np.log(scale).sum()
    np.testing.assert_allclose(scores, expected, rtol=1e-9)


def test_features_too_small_to_be_squared():
    X, y, _ = _data()
    with pytest.raises(ValueError, match=r"is zero: .*too small to be squared"):
        Mahalanobis().fit(1e-160 * X, y)


def test_covariance_estimator_without_labels():
    X, _, queries = _data()
    detector = Mahalanobis(covariance=LedoitWolf()).fit(X)
    precision = np.linalg.inv(LedoitWolf().fit(X).covariance_)
    gaps = queries - X.mean(axis=0)
    expected = -np.einsum("ni,ij,nj->n", gaps, precision, gaps)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-9)

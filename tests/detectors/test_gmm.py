"""Tests of the density under a Gaussian mixture."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.neural_network import MLPClassifier

from skood.detectors import GMM, Mahalanobis
from skood.exceptions import SkoodWarning

# What the tests of all estimators check; at night, all of them.
INSTANCES = [
    GMM(),
    GMM(covariance_type="tied"),
    GMM(covariance_type="diag"),
    GMM(n_components=2, random_state=0),
    GMM(LogisticRegression(), covariance_type="spherical"),
]

KINDS = ["full", "tied", "diag", "spherical"]


def _data(n_samples=150, n_features=4, dtype=np.float64):
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=n_samples, p=[0.5, 0.3, 0.2])
    y[:9] = [0, 1, 2] * 3
    mix = rng.normal(size=(3, n_features, n_features)) + 2 * np.eye(n_features)
    means = 4 * rng.normal(size=(3, n_features))
    X = np.einsum("ij,ijk->ik", rng.normal(size=(n_samples, n_features)), mix[y])
    X += means[y]
    queries = 5 * rng.normal(size=(60, n_features))
    return X.astype(dtype), y, queries.astype(dtype)


def _naive(X, y, queries, kind, reg_covar=1e-6):
    """log sum_k pi_k N(z; mu_k, Sigma_k), by scipy."""
    X = np.asarray(X, dtype=np.float64)
    labels = np.unique(y)
    means = [X[y == k].mean(axis=0) for k in labels]
    own = [np.cov(X[y == k].T, ddof=0) for k in labels]
    tied = sum(np.mean(y == k) * one for k, one in zip(labels, own, strict=True))
    terms = []
    for k, mean, covariance in zip(labels, means, own, strict=True):
        covariance = {
            "full": covariance,
            "tied": tied,
            "diag": np.diag(np.diag(covariance)),
            "spherical": np.eye(len(mean)) * np.mean(np.diag(covariance)),
        }[kind]
        covariance = covariance + reg_covar * np.eye(len(mean))
        density = multivariate_normal(mean, covariance).logpdf(queries)
        terms.append(np.log(np.mean(y == k)) + density)
    return logsumexp(terms, axis=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_components_are_the_classes(kind, dtype):
    X, y, queries = _data(dtype=dtype)
    names = np.array(["c", "a", "b"])[y]
    detector = GMM(covariance_type=kind).fit(X, names)
    scores = detector.score_samples(queries)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, _naive(X, y, queries, kind), rtol=1e-8)
    mixture = detector.mixture_
    shares = [np.mean(names == k) for k in "abc"]
    np.testing.assert_allclose(mixture.weights_, shares, rtol=1e-12)
    assert detector.n_iter_ == mixture.n_iter_ == 1


@pytest.mark.parametrize("kind", KINDS)
def test_mixture_is_complete(kind):
    """What scikit-learn computes from a fitted mixture works on ours."""
    X, y, queries = _data()
    mixture = GMM(covariance_type=kind).fit(X, y).mixture_
    covariances = mixture.covariances_
    if kind == "spherical":
        covariances = covariances[:, None] * np.ones(4)
    if kind in ("diag", "spherical"):
        covariances = np.stack([np.diag(one) for one in covariances])
    covariances = np.broadcast_to(covariances, (3, 4, 4))
    terms = [
        np.log(weight) + multivariate_normal(mean, covariance).logpdf(queries)
        for weight, mean, covariance in zip(
            mixture.weights_, mixture.means_, covariances, strict=True
        )
    ]
    expected = logsumexp(terms, axis=0)
    np.testing.assert_allclose(mixture.score_samples(queries), expected, rtol=1e-9)
    np.testing.assert_array_equal(mixture.predict(queries), np.argmax(terms, axis=0))
    precisions = {"full": np.linalg.inv, "tied": np.linalg.inv}.get(kind, np.reciprocal)
    expected = precisions(mixture.covariances_)
    np.testing.assert_allclose(mixture.precisions_, expected, rtol=1e-8, atol=1e-9)
    assert np.isfinite(mixture.bic(X))
    samples, labels = mixture.sample(3000)
    mean = samples[labels == 0].mean(axis=0)
    np.testing.assert_allclose(mean, mixture.means_[0], atol=0.5)


def test_equals_mahalanobis_with_class_covariances():
    X, y, queries = _data()
    expected = Mahalanobis(tied=False).fit(X, y).score_samples(queries)
    got = GMM(reg_covar=0).fit(X, y).score_samples(queries)
    np.testing.assert_allclose(got, expected, rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_single_component_without_labels(kind):
    """Which is what the iterations find at once."""
    X, _, queries = _data()
    detector = GMM(covariance_type=kind).fit(X)
    expected = GaussianMixture(covariance_type=kind).fit(X).score_samples(queries)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-9)
    assert not hasattr(detector, "classes_")


@pytest.mark.parametrize("kind", KINDS)
def test_expectation_maximization_is_scikit_learns(kind):
    X, y, queries = _data()
    options = {"tol": 1e-4, "max_iter": 50, "n_init": 2, "reg_covar": 1e-3}
    detector = GMM(n_components=2, covariance_type=kind, random_state=0, **options)
    detector.fit(X, y)
    mixture = GaussianMixture(2, covariance_type=kind, random_state=0, **options)
    expected = mixture.fit(X).score_samples(queries)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-12)
    assert detector.n_iter_ == mixture.n_iter_ > 1
    np.testing.assert_array_equal(detector.classes_, [0, 1, 2])


def test_known_ood_samples_are_left_out_of_the_iterations():
    X, y, queries = _data()
    detector = GMM(n_components=2, random_state=0)
    expected = detector.fit(X).score_samples(queries)
    far = np.concatenate([X, X[:20] + 100])
    labels = np.concatenate([y, np.full(20, -1)])
    got = detector.fit(far, labels).score_samples(queries)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_orders_of_the_samples_do_not_matter(kind):
    X, y, queries = _data()
    scores = GMM(covariance_type=kind).fit(X, y).score_samples(queries)
    order = np.random.default_rng(0).permutation(len(y))
    got = GMM(covariance_type=kind).fit(X[order], y[order]).score_samples(queries)
    np.testing.assert_allclose(got, scores, rtol=1e-9)


def test_class_of_a_single_sample():
    """It has no covariance but reg_covar: a warning."""
    X, y, queries = _data()
    indices = np.concatenate([np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:1]])
    X, y = X[indices], y[indices]
    names = np.array(["ant", "bee", "cat"])[y]
    message = r"classes \['cat'\] is singular .*n_features = 4\).*reg_covar=0.01 alone"
    with pytest.warns(SkoodWarning, match=message):
        detector = GMM(reg_covar=0.01).fit(X, names)
    assert np.all(np.isfinite(detector.score_samples(queries)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GMM(covariance_type="tied").fit(X, names)


@pytest.mark.parametrize("kind", KINDS)
def test_constant_features(kind):
    X, y, _ = _data()
    wide = np.insert(X, 1, 0.1, axis=1)
    with pytest.warns(SkoodWarning, match=r"classes \[0, 1, 2\] is singular"):
        detector = GMM(covariance_type=kind).fit(wide, y)
    assert np.all(np.isfinite(detector.score_samples(wide)))


@pytest.mark.parametrize("kind", KINDS)
def test_no_variance_at_all(kind):
    X = np.full((6, 3), 0.1)
    with pytest.warns(SkoodWarning, match="is singular"):
        detector = GMM(covariance_type=kind, reg_covar=1.0).fit(X, [0, 0, 0, 1, 1, 1])
    queries = np.random.default_rng(0).normal(size=(20, 3))
    expected = multivariate_normal(X[0], np.eye(3)).logpdf(queries)
    np.testing.assert_allclose(detector.score_samples(queries), expected, rtol=1e-9)
    message = "not positive definite, also with reg_covar=0 added.*Raise reg_covar"
    with pytest.raises(ValueError, match=message):
        GMM(covariance_type=kind, reg_covar=0).fit(X, [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_reg_covar_below_the_rounding_of_the_covariance(kind):
    """Copied features of 2^27: their variance of 2^54 swallows reg_covar."""
    X = 2.0**27 * np.array([[1, 1], [-1, -1]] * 3)
    with pytest.raises(ValueError, match=r"reg_covar=1e-06 added .*scale X, drop"):
        GMM(covariance_type=kind).fit(X)


def test_fewer_samples_than_features():
    """Covariances are shrunk, so that no warning is given without `reg_covar`."""
    X, y, _ = _data(n_samples=12, n_features=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = GMM(covariance_type="tied", reg_covar=0.0).fit(X, y)
    expected = Mahalanobis().fit(X, y).covariance_
    np.testing.assert_allclose(detector.mixture_.covariances_, expected, rtol=1e-9)
    X[1:] = X[0]  # no feature varies
    with pytest.warns(SkoodWarning, match=r"n_samples = 12, n_features = 10"):
        GMM(covariance_type="tied").fit(X, y)


def test_reads_a_network():
    X, y, _ = _data()
    network = MLPClassifier((6,), solver="lbfgs", max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.fit(X, y)
        detector = GMM(FrozenEstimator(network)).fit(X, y)
        Z = np.maximum(X @ network.coefs_[0] + network.intercepts_[0], 0)
        expected = GMM().fit(Z, y).score_samples(Z)
    np.testing.assert_allclose(detector.score_samples(X), expected, rtol=1e-9)


def test_computes_on_the_cpu():
    """Tensors are taken, but there is no device to choose."""
    torch = pytest.importorskip("torch")
    X, y, _ = _data()
    detector = GMM().fit(torch.from_numpy(X), y)
    expected = GMM().fit(X, y).score_samples(X)
    np.testing.assert_array_equal(detector.score_samples(torch.from_numpy(X)), expected)
    assert "device" not in detector.get_params()


def test_more_components_than_samples():
    X, y, _ = _data(n_samples=9)
    with pytest.raises(ValueError, match="n_components = 20, n_samples = 9"):
        GMM(LogisticRegression(), n_components=20).fit(X, y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_samples", [300, 30_000])
def test_constant_features_far_from_zero(kind, n_samples):
    rng = np.random.default_rng(0)
    X, y = 1e-3 * rng.normal(size=(n_samples, 3)), np.arange(n_samples) % 3
    wide = np.insert(X, 1, 1000.1, axis=1)
    with pytest.warns(SkoodWarning, match=r"classes \[0, 1, 2\] is singular"):
        detector = GMM(covariance_type=kind).fit(wide, y)
    assert np.all(np.isfinite(detector.score_samples(wide)))
    if kind == "diag":  # nothing but reg_covar
        np.testing.assert_array_equal(detector.mixture_.covariances_[:, 1], 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_small_spread_far_from_zero(kind):
    """Is spread, however many samples there are."""
    y = np.arange(100_000) % 2
    X = 1e6 + 1e-6 * np.random.default_rng(0).normal(size=(len(y), 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = GMM(covariance_type=kind, reg_covar=0.0).fit(X, y)
    near = GMM(covariance_type=kind, reg_covar=0.0).fit(X - 1e6, y)
    np.testing.assert_allclose(
        detector.mixture_.covariances_, near.mixture_.covariances_, rtol=1e-9
    )

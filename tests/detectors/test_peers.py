"""The same arrays through other libraries: equal scores, or what is wrong there.

scikit-learn and scipy are always there; faiss and pytorch-ood (0.4.0 at the time of
writing) are skipped where they are not installed. pytorch-ood needs the torchvision
that belongs to the installed torch.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import EmpiricalCovariance, LedoitWolf
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from skood.detectors import KNN, MSP, Energy, Entropy, Mahalanobis, MaxLogit, ViM
from tests.detectors._peers import (
    TOLERANCE,
    assert_equal,
    make_features,
    make_head,
    peer_scores,
)


@pytest.fixture(scope="module")
def features():
    return make_features()


@pytest.fixture(scope="module")
def head(features):
    return make_head(features)


@pytest.fixture(scope="module")
def logits(features, head):
    Z, _, queries = features
    return head.predict_logits(np.concatenate([Z, queries]))


# ---------------------------------------------------------------------------------
# scikit-learn and scipy


@pytest.mark.parametrize("scale", [True, False])
def test_scikit_learn_neighbors(features, scale):
    Z, _, queries = features
    bank, asked = (normalize(Z), normalize(queries)) if scale else (Z, queries)
    distances, _ = NearestNeighbors(n_neighbors=50).fit(bank).kneighbors(asked)
    knn = KNN(n_neighbors=50, normalize=scale).fit(Z)
    assert_equal(knn.score_samples(queries), -distances[:, -1])


@pytest.mark.parametrize("covariance", [EmpiricalCovariance(), LedoitWolf()])
def test_scikit_learn_covariance(features, covariance):
    Z, y, queries = features
    means = np.stack([Z[y == k].mean(axis=0) for k in range(5)])
    fitted = covariance.fit(Z - means[y])
    expected = np.min([fitted.mahalanobis(queries - mean) for mean in means], axis=0)
    ours = Mahalanobis(covariance=covariance).fit(Z, y)
    assert_equal(ours.score_samples(queries), -expected)
    if type(covariance) is EmpiricalCovariance:
        assert_equal(Mahalanobis().fit(Z, y).score_samples(queries), -expected)


def test_scipy_mixture_of_gaussians(features):
    Z, y, queries = features
    terms = [
        np.log(np.mean(y == k))
        + multivariate_normal(
            Z[y == k].mean(axis=0), np.cov(Z[y == k].T, ddof=0)
        ).logpdf(queries)
        for k in range(5)
    ]
    ours = Mahalanobis(tied=False).fit(Z, y)
    assert_equal(ours.score_samples(queries), logsumexp(terms, axis=0))


# ---------------------------------------------------------------------------------
# faiss


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 50])
def test_faiss_neighbors(features, dtype, k):
    faiss = pytest.importorskip("faiss")
    Z, _, queries = (np.asarray(a, dtype=dtype) for a in features)
    index = faiss.IndexFlatL2(Z.shape[1])
    index.add(normalize(Z).astype(np.float32))
    squared, _ = index.search(normalize(queries).astype(np.float32), k)
    for algorithm in ("faiss", "sklearn", "torch"):
        knn = KNN(n_neighbors=k, normalize=True, algorithm=algorithm).fit(Z)
        assert_equal(knn.score_samples(queries), -np.sqrt(squared[:, -1]))


def test_faiss_loses_the_distance_between_near_features():
    """In large searches it subtracts squared norms in float32; what we make of it."""
    faiss = pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    direction = np.abs(rng.normal(size=256))
    bank, queries = (
        normalize(direction + 1e-3 * rng.normal(size=(n, 256))).astype(np.float32)
        for n in (500, 600)
    )
    squared, _ = faiss.knn(queries, bank, 10)
    exact = np.sort(cdist(queries.astype(np.float64), bank), axis=1)[:, 9]
    off = np.abs(np.sqrt(np.maximum(squared[:, -1], 0)) / exact - 1)
    assert off.max() > 0.01  # faiss 1.15: 30 %
    knn = KNN(n_neighbors=10, normalize=False, algorithm="faiss").fit(bank)
    assert_equal(knn.score_samples(queries), -exact)


# ---------------------------------------------------------------------------------
# pytorch-ood: higher means more OOD there


@pytest.fixture(scope="module")
def peer():
    return pytest.importorskip("pytorch_ood.detector")


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_pytorch_ood_softmax_scores(peer, logits, temperature):
    samples = torch.from_numpy(logits)
    ours = MSP(temperature=temperature).fit(logits).score_samples(logits)
    # there max p, where we subtract 1
    np.testing.assert_allclose(
        ours, peer_scores(peer.MaxSoftmax.score(samples, temperature)) - 1, atol=1e-14
    )
    ours = Energy(temperature=temperature).fit(logits).score_samples(logits)
    assert_equal(ours, peer_scores(peer.EnergyBased.score(samples, temperature)))


def test_pytorch_ood_max_logit(peer, logits):
    ours = MaxLogit().fit(logits).score_samples(logits)
    assert_equal(ours, peer_scores(peer.MaxLogit.score(torch.from_numpy(logits))))


def test_pytorch_ood_weighted_energy(peer, logits):
    weight = np.array([0.5, 1.0, 0.0, 2.0, 1.0])
    ours = Energy(class_weight=weight).fit(logits).score_samples(logits)
    samples, weights = torch.from_numpy(logits), torch.from_numpy(weight)
    assert_equal(ours, peer_scores(peer.WeightedEBO.score(samples, weights)))
    # there without a shift: exp(1e4) is infinite, and infinity times weight 0 is NaN
    assert torch.isnan(peer.WeightedEBO.score(samples + 1e4, weights)).all()
    assert torch.isinf(peer.WeightedEBO.score(samples + 1e4, weights + 1)).all()
    far = Energy(class_weight=weight).fit(logits + 1e4).score_samples(logits + 1e4)
    np.testing.assert_allclose(far, ours + 1e4, rtol=1e-12)


def test_pytorch_ood_entropy(peer):
    """Equal where no probability is below 1e-7, which is where it clips them."""
    logits = 2 * np.random.default_rng(0).normal(size=(200, 6))
    ours = Entropy().fit(logits).score_samples(logits)
    assert_equal(ours, peer_scores(peer.Entropy.score(torch.from_numpy(logits))))
    # clipped: p = 1e-7 contributes 1e-7 log 1e-7, so that all sure samples are tied
    sure = np.array([[20.0, 0, 0, 0], [40.0, 0, 0, 0], [80.0, 0, 0, 0]])
    clipped = peer_scores(peer.Entropy.score(torch.from_numpy(sure)))
    np.testing.assert_allclose(clipped, 3e-7 * np.log(1e-7), rtol=3e-2)
    assert np.all(np.diff(Entropy().fit(sure).score_samples(sure)) > 0)
    assert clipped[1] == clipped[2]


def test_pytorch_ood_ties_saturated_softmax(peer):
    gap = np.arange(20, 60, dtype=np.float32)
    logits = np.stack([gap, np.zeros_like(gap)], axis=1)
    assert len(torch.unique(peer.MaxSoftmax.score(torch.from_numpy(logits)))) == 1
    assert np.all(np.diff(MSP().fit(logits).score_samples(logits)) > 0)


@pytest.mark.parametrize("scale", [True, False])
def test_pytorch_ood_knn(peer, features, scale):
    Z, y, queries = features
    theirs = peer.KNN(None, k=50, normalize=scale)
    theirs.fit_features(torch.from_numpy(Z), torch.from_numpy(y))
    expected = peer_scores(theirs.predict_features(torch.from_numpy(queries)))
    ours = KNN(n_neighbors=50, normalize=scale).fit(Z)
    assert_equal(ours.score_samples(queries), expected)


def test_pytorch_ood_gmm(peer, features):
    """Its `GMM` is what we call ``Mahalanobis(tied=False)``."""
    Z, y, queries = features
    theirs = peer.GMM(None, reg=0.0)
    theirs.fit_features(torch.from_numpy(Z), torch.from_numpy(y))
    expected = peer_scores(theirs.predict_features(torch.from_numpy(queries)))
    assert_equal(Mahalanobis(tied=False).fit(Z, y).score_samples(queries), expected)


def _peer_mahalanobis(peer, Z, y, queries, dtype=torch.float32):
    theirs = peer.Mahalanobis(None)
    theirs.fit_features(torch.from_numpy(Z).to(dtype), torch.from_numpy(y))
    return peer_scores(theirs.predict_features(torch.from_numpy(queries).to(dtype)))


def test_pytorch_ood_mahalanobis_is_scaled_by_the_number_of_samples(peer, features):
    """It does not divide the scatter by n, and halves: theirs is ours / (2 n)."""
    Z, y, queries = features
    ours = Mahalanobis().fit(Z, y).score_samples(queries)
    theirs = _peer_mahalanobis(peer, Z, y, queries)
    # its scatter is added up in float32, with a ridge of 1e-6
    np.testing.assert_allclose(theirs * 2 * len(Z), ours, rtol=2e-3)
    twice = _peer_mahalanobis(peer, np.tile(Z, (2, 1)), np.tile(y, 2), queries)
    np.testing.assert_allclose(twice, theirs / 2, rtol=2e-3)
    again = Mahalanobis().fit(np.tile(Z, (2, 1)), np.tile(y, 2))
    np.testing.assert_allclose(again.score_samples(queries), ours, rtol=1e-10)


def test_pytorch_ood_mahalanobis_is_negative_for_few_samples(peer):
    """For n < d the inverse of what rounding leaves makes squares negative."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    Z, queries = 30 * rng.normal(size=(30, 64)), 30 * rng.normal(size=(100, 64))
    theirs = _peer_mahalanobis(peer, Z, y, queries)
    assert theirs.max() > 0  # a score above that of a class mean
    covariance = EmpiricalCovariance(assume_centered=True)  # the default shrinks
    with pytest.warns(UserWarning, match="rank 27 of 64"):
        ours = Mahalanobis(covariance=covariance).fit(Z, y).score_samples(queries)
    means = np.stack([Z[y == k].mean(axis=0) for k in range(3)])
    precision = np.linalg.pinv(np.cov((Z - means[y]).T, ddof=0), hermitian=True)
    gaps = queries[:, None] - means
    expected = np.einsum("nkd,de,nke->nk", gaps, precision, gaps).min(axis=1)
    assert_equal(ours, -expected)


@pytest.mark.parametrize("n_components", [2, 8])
def test_pytorch_ood_vim(peer, features, head, n_components):
    Z, y, queries = (
        np.asarray(a, dtype=t) for a, t in zip(features, "fqf", strict=True)
    )
    theirs = peer.ViM(
        None,
        n_components,
        torch.from_numpy(head.coef),
        torch.from_numpy(head.intercept),
    )
    theirs.fit_features(torch.from_numpy(Z), torch.from_numpy(y))
    expected = peer_scores(theirs.predict_features(torch.from_numpy(queries)))
    ours = ViM(FrozenEstimator(head), n_components=n_components).fit(Z, y)
    # a difference of two large numbers, there in float32
    size = np.abs(ours.score_samples(queries)).max()
    np.testing.assert_allclose(
        ours.score_samples(queries), expected, rtol=TOLERANCE, atol=TOLERANCE * size
    )
    assert ours.alpha_ == pytest.approx(theirs.alpha, rel=TOLERANCE)
    np.testing.assert_allclose(ours.origin_, theirs.u, rtol=1e-4)


def test_pytorch_ood_ranks_digits_as_we_do(peer):
    """On real features, up to what rounds differently."""
    X, y = load_digits(return_X_y=True)
    X = X / 16
    train = y < 7
    model = LogisticRegression(max_iter=1000).fit(X[train], y[train])
    logits = model.decision_function(X)
    samples = torch.from_numpy(logits)
    for ours, theirs in (
        (MSP(), peer.MaxSoftmax.score(samples)),
        (MaxLogit(), peer.MaxLogit.score(samples)),
        (Energy(), peer.EnergyBased.score(samples)),
        (Entropy(), peer.Entropy.score(samples)),
    ):
        scores = ours.fit(logits[train]).score_samples(logits)
        order = np.argsort(scores)
        assert np.all(np.diff(peer_scores(theirs)[order]) >= -2e-6)

"""Detectors that read features, through other libraries and through skood.

Each part is skipped where its library (pytorch-ood 0.4.0, oodeel 0.4.0, PyOD 3.6) is
not installed. pytorch-ood needs the torchvision that belongs to the installed torch.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from sklearn.covariance import EmpiricalCovariance
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import normalize

from skood.detectors import (
    FDBD,
    GMM,
    KNN,
    NCI,
    SHE,
    SSD,
    Mahalanobis,
    NNGuide,
    RelativeMahalanobis,
    Residual,
)
from tests.detectors._peers import (
    assert_equal,
    make_features,
    make_head,
    peer_scores,
)


@pytest.fixture(scope="module")
def features():
    return make_features(np.float32)


@pytest.fixture(scope="module")
def head(features):
    return make_head(features)


@pytest.fixture(scope="module")
def linear(head):
    module = torch.nn.Linear(16, 5)
    module.weight.data = torch.from_numpy(head.coef)
    module.bias.data = torch.from_numpy(head.intercept)
    return module


# ---------------------------------------------------------------------------------
# scikit-learn


def test_scikit_learn_covariance_of_unit_features(features):
    Z, _, queries = (np.asarray(array, dtype=np.float64) for array in features)
    covariance = EmpiricalCovariance().fit(normalize(Z))
    expected = -covariance.mahalanobis(normalize(queries))
    assert_equal(SSD().fit(Z).score_samples(queries), expected)


# ---------------------------------------------------------------------------------
# pytorch-ood


@pytest.fixture(scope="module")
def peer():
    return pytest.importorskip("pytorch_ood.detector")


def _peer_scores(detector, features):
    """Fit a detector of pytorch-ood, and score the queries; high = ID."""
    Z, y, queries = map(torch.from_numpy, features)
    return peer_scores(detector.fit_features(Z, y).predict_features(queries))


def test_pytorch_ood_relative_mahalanobis(peer, features):
    """It divides neither scatter by n: theirs is ours / n, as 0.4.0 is."""
    Z, y, queries = features
    expected = len(Z) * _peer_scores(peer.RMD(None), features)
    ours = RelativeMahalanobis().fit(Z, y).score_samples(queries)
    # there in float32, with 1e-6 added to the variances
    assert_equal(ours, expected, rtol=1e-3, of_largest=True)


def test_pytorch_ood_relative_mahalanobis_shrinks_with_the_samples(peer, features):
    Z, y, queries = features
    once = _peer_scores(peer.RMD(None), features)
    doubled = np.tile(Z, (2, 1)), np.tile(y, 2)
    twice = _peer_scores(peer.RMD(None), (*doubled, queries))
    assert_equal(twice, once / 2, rtol=1e-3, of_largest=True)
    ours = RelativeMahalanobis().fit(Z, y).score_samples(queries)
    again = RelativeMahalanobis().fit(*doubled).score_samples(queries)
    assert_equal(again, ours, rtol=1e-10, of_largest=True)


def test_pytorch_ood_she(peer, features, head, linear):
    Z, y, queries = features
    expected = _peer_scores(peer.SHE(None, linear), features)
    assert_equal(SHE(FrozenEstimator(head)).fit(Z, y).score_samples(queries), expected)


@pytest.mark.parametrize("k", [1, 10, 100])
def test_pytorch_ood_nnguide(peer, features, head, linear, k):
    Z, y, queries = features
    expected = _peer_scores(peer.NNGuide(None, linear, k=k), features)
    ours = NNGuide(FrozenEstimator(head), n_neighbors=k).fit(Z, y)
    assert_equal(ours.score_samples(queries), expected)


@pytest.mark.parametrize("alpha", [0.0, 0.0001, 0.1])
def test_pytorch_ood_nci(peer, features, head, linear, alpha):
    Z, y, queries = features
    expected = _peer_scores(peer.NCI(None, linear, alpha=alpha), features)
    ours = NCI(FrozenEstimator(head), alpha=alpha).fit(Z, y)
    assert_equal(ours.score_samples(queries), expected, of_largest=True)


def test_pytorch_ood_nci_is_nan_at_the_mean(peer, features, head, linear):
    """A row that equals the mean has no direction; there 0 / 0."""
    Z, y, _ = features
    whole = np.round(Z)  # so that the mean is 0 without rounding
    balanced, twice = np.concatenate([whole, -whole]), np.concatenate([y, y])
    mean = np.zeros((1, 16), dtype=np.float32)
    assert np.isnan(_peer_scores(peer.NCI(None, linear), (balanced, twice, mean)))
    ours = NCI(FrozenEstimator(head)).fit(balanced, twice)
    assert ours.score_samples(mean) == 0


def test_pytorch_ood_fdbd(peer, features, head, linear):
    Z, y, queries = features
    expected = _peer_scores(peer.fDBD(None, linear), features)
    ours = FDBD(FrozenEstimator(head)).fit(Z, y)
    assert_equal(ours.score_samples(queries), expected, of_largest=True)


def test_pytorch_ood_gmm(peer, features):
    Z, y, queries = features
    expected = _peer_scores(peer.GMM(None), features)
    assert_equal(GMM().fit(Z, y).score_samples(queries), expected)


@pytest.mark.parametrize("n_components", [2, 8])
def test_pytorch_ood_residual(peer, features, head, n_components):
    """The length that its ViM computes on the way."""
    Z, y, queries = features
    weights = torch.from_numpy(head.coef), torch.from_numpy(head.intercept)
    vim = peer.ViM(None, n_components, *weights)
    vim.fit_features(torch.from_numpy(Z), torch.from_numpy(y))
    projected = (torch.from_numpy(queries) - vim.u) @ vim.principal_subspace
    ours = Residual(FrozenEstimator(head), n_components=n_components).fit(Z, y)
    assert_equal(
        ours.score_samples(queries), -projected.norm(dim=1).numpy(), of_largest=True
    )


# ---------------------------------------------------------------------------------
# oodeel: higher means more OOD there, too


@pytest.fixture(scope="module")
def oodeel():
    # it imports what is not among its requirements
    pytest.importorskip("oodeel.extractor.torch_feature_extractor")
    return pytest.importorskip("oodeel.methods")


def _batches(Z, y):
    pairs = [(torch.from_numpy(Z), torch.from_numpy(np.asarray(y)))]
    return torch.utils.data.DataLoader(pairs, batch_size=None)


@pytest.fixture
def network(linear):
    return torch.nn.Sequential(torch.nn.Identity(), linear)


def _fit_oodeel(detector, network, Z, y):
    detector.fit(network, _batches(Z, y), feature_layers_id=[0])
    return detector


def _score_oodeel(detector, queries):
    scores, _ = detector.score(_batches(queries, np.zeros(len(queries), dtype=int)))
    return -scores


@pytest.mark.parametrize(
    ("name", "ours", "factor"),
    [
        ("Mahalanobis", Mahalanobis, 2),  # half the distances there
        ("RMDS", RelativeMahalanobis, 2),
    ],
)
def test_oodeel_distances(oodeel, features, network, name, ours, factor):
    Z, y, queries = features
    detector = _fit_oodeel(getattr(oodeel, name)(eps=0.0), network, Z, y)
    expected = factor * _score_oodeel(detector, queries)
    scores = ours().fit(Z, y).score_samples(queries)
    assert_equal(scores, expected, rtol=1e-4, of_largest=True)  # float32 there


def test_oodeel_knn(oodeel, features, network):
    Z, y, queries = features
    expected = _score_oodeel(_fit_oodeel(oodeel.DKNN(), network, Z, y), queries)
    ours = KNN(n_neighbors=50, normalize=True).fit(Z).score_samples(queries)
    assert_equal(-(ours**2), expected, rtol=1e-4)  # squared, with float32 rounding


def test_oodeel_loses_directions_of_small_variance(oodeel, features, network):
    """Its pseudo-inverse is in float32, where small variances count as zero.

    Two features that nearly agree: what tells an OOD row is that they do not.
    """
    Z, y, _ = (np.array(array) for array in features)
    Z[:, 1] = Z[:, 0] + 1e-4 * np.random.default_rng(0).normal(size=len(Z))
    apart = Z[:1].copy()
    apart[0, 1] += 1e-2  # a hundred standard deviations
    detector = _fit_oodeel(oodeel.Mahalanobis(eps=0.0), network, 100 * Z, y)
    theirs = 2 * _score_oodeel(detector, 100 * np.concatenate([Z[:1], apart]))
    ours = Mahalanobis().fit(100 * Z, y)
    near, far = ours.score_samples(100 * np.concatenate([Z[:1], apart]))
    assert far < -5000
    assert near > -100
    assert theirs[1] > -1000


def test_oodeel_keeps_the_first_fit(oodeel, features, network):
    """It appends to what it learned, and reads the first."""
    Z, y, queries = features
    detector = _fit_oodeel(oodeel.Mahalanobis(eps=0.0), network, Z, y)
    before = _score_oodeel(detector, queries)
    _fit_oodeel(detector, network, 3 * Z, y)
    np.testing.assert_array_equal(_score_oodeel(detector, queries), before)
    ours = Mahalanobis().fit(Z, y)
    first = ours.score_samples(queries)
    again = ours.fit(3 * Z, y).score_samples(3 * queries)
    assert_equal(again, first, of_largest=True)


def test_oodeel_loses_its_hooks_to_a_second_detector(oodeel, features, network):
    """A second detector on the same network removes the hooks of the first, which
    then returns the scores of what it saw last."""
    Z, y, queries = features
    first = _fit_oodeel(oodeel.Mahalanobis(eps=0.0), network, Z, y)
    expected = _score_oodeel(first, queries)
    _fit_oodeel(oodeel.DKNN(), network, Z, y)
    stale = _score_oodeel(first, 3 * queries)
    np.testing.assert_array_equal(stale, expected)


def test_oodeel_vim_has_a_single_origin(oodeel, features, network):
    """Its origin is the mean of the features, also with ``pca_origin="pseudo"``."""
    Z, y, queries = features
    scores = [
        _score_oodeel(
            _fit_oodeel(oodeel.VIM(princ_dims=8, pca_origin=origin), network, Z, y),
            queries,
        )
        for origin in ("center", "pseudo")
    ]
    np.testing.assert_array_equal(*scores)


# ---------------------------------------------------------------------------------
# PyOD


@pytest.mark.parametrize("name", ["ECOD", "COPOD"])
def test_pyod_scores_depend_on_the_batch(features, name):
    module = pytest.importorskip(f"pyod.models.{name.lower()}")
    Z, _, queries = features
    detector = getattr(module, name)().fit(Z)
    whole, alone = (
        detector.decision_function(queries)[:1],
        detector.decision_function(queries[:1]),
    )
    assert abs(whole[0] - alone[0]) > 1e-3 * whole[0]

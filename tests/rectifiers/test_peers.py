"""Rectifiers through pytorch-ood 0.4.0 and through skood.

Skipped where pytorch-ood is not installed. It needs the torchvision that belongs to
the installed torch. Its rectifiers read maps (channels, height, width), ours features:
maps of one position.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from skood.detectors import Energy
from skood.nn import LinearHead
from skood.rectifiers import ASH, DICE, LTS, SCALE, VRA, ReAct

peer = pytest.importorskip("pytorch_ood.detector")


@pytest.fixture(scope="module")
def features():
    """Features after a ReLU, of 500 training samples and 100 queries, and labels."""
    rng = np.random.default_rng(0)
    Z = np.maximum(rng.normal(0.3, 1, size=(600, 64)), 0).astype(np.float32)
    return Z[:500], rng.integers(0, 5, 500), Z[500:] * 1.5


@pytest.fixture(scope="module")
def head():
    rng = np.random.default_rng(1)
    coef = rng.normal(size=(5, 64)).astype(np.float32) / 4
    return LinearHead(coef, rng.normal(size=5).astype(np.float32))


def _maps(samples):
    return torch.from_numpy(samples)[:, :, None, None]


def _apply(head):
    """The head and the energy, as pytorch-ood calls them."""
    coef, intercept = torch.from_numpy(head.coef), torch.from_numpy(head.intercept)
    return lambda maps: maps.flatten(1) @ coef.T + intercept


def _energy_of(rectifier, head, features):
    Z, y, queries = features
    pipeline = make_pipeline(rectifier, Energy(FrozenEstimator(head)))
    return pipeline.fit(Z, y).score_samples(queries)


def _assert_equal(actual, theirs):
    np.testing.assert_allclose(actual, -theirs.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_react(features, head, quantile):
    Z, y, queries = features
    theirs = peer.ReAct(None, _apply(head), percentile=quantile)
    theirs.fit_feature_maps(_maps(Z), torch.from_numpy(y))
    assert ReAct(quantile=quantile).fit(Z).threshold_ == pytest.approx(
        theirs.threshold, rel=1e-6
    )
    _assert_equal(
        _energy_of(ReAct(quantile=quantile), head, features),
        theirs.predict_feature_maps(_maps(queries)),
    )


def test_vra(features, head):
    Z, y, queries = features
    theirs = peer.VRA(None, _apply(head), 0.6, 0.9)
    theirs.fit_feature_maps(_maps(Z), torch.from_numpy(y))
    _assert_equal(
        _energy_of(VRA(low=0.6, high=0.9, below="clip"), head, features),
        theirs.predict_feature_maps(_maps(queries)),
    )


def test_vra_raises_low_activations(features):
    """It clips from below, where the paper sets to zero."""
    Z, y, queries = features
    theirs = peer.VRA(None, None, 0.6, 0.9)
    theirs.fit_feature_maps(_maps(Z), torch.from_numpy(y))
    low = theirs._lower_threshold[:, 0, 0].numpy()
    raised = (queries < low) & (low > 0)
    assert raised.mean() > 0.2
    clipped = theirs._clip(_maps(queries))[:, :, 0, 0].numpy()
    assert np.all(clipped[raised] > 0)
    assert np.all(VRA(low=0.6, high=0.9).fit(Z).transform(queries)[raised] == 0)


@pytest.mark.parametrize("percentile", [20, 65, 90])
@pytest.mark.parametrize("variant", ["s", "b", "p"])
def test_ash(features, percentile, variant):
    """Of distinct, positive features."""
    queries = features[2] + np.linspace(0.01, 0.02, 64, dtype=np.float32)
    rectified = peer.ASH.variants[f"ash-{variant}"](_maps(queries), percentile / 100)
    ours = ASH(percentile=percentile, variant=variant).fit_transform(queries)
    np.testing.assert_allclose(ours, rectified[:, :, 0, 0], rtol=1e-5)


def test_ash_b_lifts_zeros():
    samples = np.zeros((1, 10), dtype=np.float32)
    samples[0, :2] = 1, 3
    theirs = peer.ASH.variants["ash-b"](_maps(samples), 0.5)
    assert (theirs > 0).sum() == 5  # three of them were zero
    np.testing.assert_array_equal(
        ASH(percentile=50, variant="b").fit_transform(samples), samples.astype(bool) * 2
    )


def test_ash_of_a_row_of_zeros_is_nan():
    samples = np.zeros((1, 10), dtype=np.float32)
    assert torch.isnan(peer.ASH.variants["ash-s"](_maps(samples), 0.65)).all()
    np.testing.assert_array_equal(ASH().fit_transform(samples), samples)


@pytest.mark.parametrize("percentile", [65, 85])
def test_scale(features, head, percentile):
    _, _, queries = features
    theirs = peer.SCALE(None, _apply(head), percentile / 100)
    _assert_equal(
        _energy_of(SCALE(percentile=percentile), head, features),
        theirs.predict_feature_maps(_maps(queries)),
    )


@pytest.mark.parametrize("top", [0.05, 0.5])
def test_lts(features, head, top):
    """With the head given, so that the biases are scaled as well."""
    _, _, queries = features
    theirs = peer.LTS(None, _apply(head), top)
    expected = theirs.predict_features(torch.from_numpy(queries))
    frozen = FrozenEstimator(head)
    actual = _energy_of(LTS(frozen, top=top), head, features)
    np.testing.assert_allclose(actual, -expected.numpy(), rtol=1e-4)


@pytest.mark.parametrize("sparsity", [0.5, 0.9])
def test_dice(features, head, sparsity):
    Z, y, queries = features
    theirs = peer.DICE(
        None, torch.from_numpy(head.coef), torch.from_numpy(head.intercept), sparsity
    )
    theirs.fit_features(torch.from_numpy(Z), torch.from_numpy(y))
    ours = Energy(DICE(FrozenEstimator(head), sparsity=sparsity)).fit(Z, y)
    np.testing.assert_array_equal(ours.estimator_.coef_, theirs.masked_w)
    _assert_equal(
        ours.score_samples(queries), theirs.predict_features(torch.from_numpy(queries))
    )

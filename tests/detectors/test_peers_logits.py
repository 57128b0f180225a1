"""Detectors that read logits, through pytorch-ood 0.4.0 and through skood.

Skipped where pytorch-ood is not installed. It needs the torchvision that belongs to
the installed torch.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from torch.nn.functional import one_hot

from skood.detectors import GEN, PNML, KLMatching, OpenMax
from tests.detectors._peers import (
    assert_equal,
    make_features,
    make_head,
    peer_scores,
)

peer = pytest.importorskip("pytorch_ood.detector")


@pytest.fixture(scope="module")
def logits():
    """Logits of 300 samples in 6 classes, none of them surer than 1 - 1e-5."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 6
    samples = rng.normal(size=(300, 6)) + 3 * one_hot(torch.from_numpy(y)).numpy()
    return samples, y


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
# GEN


@pytest.mark.parametrize("gamma", [0.1, 0.5])
@pytest.mark.parametrize("top", [3, 6])
def test_gen(logits, gamma, top):
    samples, _ = logits
    ours = GEN(gamma=gamma, top=top).fit(samples).score_samples(samples)
    expected = peer_scores(peer.GEN.score(torch.from_numpy(samples), gamma, top))
    assert_equal(ours, top * expected)  # the mean of the terms there


def test_gen_ties_sure_samples():
    """There probabilities are clipped at 1e-7."""
    gap = np.arange(20.0, 60.0)
    samples = np.stack([gap, np.zeros_like(gap)], axis=1)
    clipped = peer_scores(peer.GEN.score(torch.from_numpy(samples)))
    assert len(np.unique(clipped)) == 1
    assert np.all(np.diff(GEN().fit(samples).score_samples(samples)) > 0)


# ---------------------------------------------------------------------------------
# KLMatching


def _peer_kl_matching(train, samples):
    fitted = peer.KLMatching(None).fit_logits(torch.from_numpy(train))
    return peer_scores(fitted.predict_logits(torch.from_numpy(samples)))


def test_kl_matching(logits):
    samples, _ = logits
    ours = KLMatching().fit(samples).score_samples(-samples)
    assert_equal(ours, _peer_kl_matching(samples, -samples))


def test_kl_matching_without_a_class(logits):
    """Both leave a class out that nothing is predicted to be of."""
    samples, _ = logits
    train = samples[samples.argmax(axis=1) != 2]
    with pytest.warns(UserWarning, match=r"1 of the 6 classes \(columns \[2\]"):
        ours = KLMatching().fit(train)
    assert_equal(ours.score_samples(samples), _peer_kl_matching(train, samples))


def test_kl_matching_of_a_sure_network():
    """There the logarithm of a probability that rounds to 0 is -1.8e308."""
    train = np.array([[800.0, 0.0], [900.0, 0.0], [0.0, 900.0], [0.0, 1000.0]])
    row = np.array([[2.0, 0.0]])
    ours = KLMatching().fit(train).score_samples(row)
    p = np.array([np.exp(2.0), 1.0]) / (1 + np.exp(2.0))
    least = np.log(np.finfo(np.float64).tiny)  # what a probability counts as
    np.testing.assert_allclose(ours, p[1] * least - p @ np.log(p), rtol=1e-12)
    assert _peer_kl_matching(train, row) < -1e306


# ---------------------------------------------------------------------------------
# OpenMax


def _fit_peer_openmax(logits, y, **options):
    fitted = peer.OpenMax(None, tailsize=20, **options)
    return fitted.fit_logits(torch.from_numpy(logits), torch.from_numpy(y))


@pytest.fixture(scope="module")
def correct(logits):
    samples, y = logits
    hits = samples.argmax(axis=1) == y
    return samples[hits], y[hits]


@pytest.mark.parametrize("alpha", [2, 6])
@pytest.mark.parametrize(("distance", "weight"), [("euclidean", 1.0), ("cosine", 0.0)])
def test_openmax_of_a_batch_with_all_classes(correct, alpha, distance, weight):
    samples, y = correct
    fitted = _fit_peer_openmax(samples, y, alpha=alpha, euclid_weight=weight)
    expected = 1 - fitted.predict_logits(torch.from_numpy(samples)).numpy()
    ours = OpenMax(alpha=alpha, distance=distance).fit(samples, y)
    # there scipy's general optimizer fits the Weibull distribution
    np.testing.assert_allclose(np.exp(ours.score_samples(samples)), expected, rtol=1e-3)


def test_openmax_depends_on_the_batch(correct):
    """There the distance to a class that no row of the batch is predicted to be of
    counts as 0."""
    samples, y = correct
    theirs = _fit_peer_openmax(samples, y)
    whole = theirs.predict_logits(torch.from_numpy(samples)).numpy()
    alone = theirs.predict_logits(torch.from_numpy(samples[:1])).numpy()
    assert abs(alone[0] - whole[0]) > 1e-3
    ours = OpenMax().fit(samples, y)
    np.testing.assert_allclose(
        ours.score_samples(samples[:1]), ours.score_samples(samples)[:1], rtol=1e-12
    )


def test_openmax_learns_from_wrong_samples(logits, correct):
    """There also from samples that are classified wrong; the paper leaves them out."""
    samples, y = logits
    asked = torch.from_numpy(samples)
    everything = _fit_peer_openmax(samples, y).predict_logits(asked).numpy()
    only_correct = _fit_peer_openmax(*correct).predict_logits(asked).numpy()
    assert np.abs(everything - only_correct).max() > 1e-3
    ours = OpenMax().fit(samples, y).score_samples(samples)
    again = OpenMax().fit(*correct).score_samples(samples)
    np.testing.assert_allclose(ours, again, rtol=1e-12)


# ---------------------------------------------------------------------------------
# PNML


def test_pnml(features, head, linear):
    Z, y, queries = features
    fitted = peer.PNML(None, linear)
    fitted.fit_features(torch.from_numpy(Z), torch.from_numpy(y))
    expected = peer_scores(fitted.predict_features(torch.from_numpy(queries)))
    ours = PNML(FrozenEstimator(head), normalize_logits=True).fit(Z, y)
    assert_equal(ours.score_samples(queries), expected, of_largest=True)


def test_pnml_outside_of_the_training_features(features, head, linear):
    """There a direction that no training sample has gives the least regret."""
    Z, y, queries = (np.array(array) for array in features)
    Z[:, -1] = 0
    outside, inside = np.zeros((1, 16), np.float32), queries[:1].copy()
    outside[0, -1], inside[0, -1] = 1, 0
    fitted = peer.PNML(None, linear)
    fitted.fit_features(torch.from_numpy(Z), torch.from_numpy(y))
    with torch.no_grad():
        p = linear(torch.from_numpy(outside)).softmax(dim=1)
    # p ** 0 = 1, so that all regret terms are p and their sum is 1
    theirs = peer_scores(fitted.predict_features(torch.from_numpy(outside)))
    np.testing.assert_allclose(theirs, 0, atol=1e-6)
    with pytest.warns(UserWarning, match="rank 15 of 16"):
        ours = PNML(FrozenEstimator(head), normalize_logits=True).fit(Z, y)
    # p ** 1: the sum over 1 / (1 + 1 - p)
    expected = -np.log((1 / (2 - p)).sum().item()) / np.log(5)
    assert_equal(ours.score_samples(outside), [expected])
    assert ours.score_samples(outside)[0] < ours.score_samples(inside)[0]

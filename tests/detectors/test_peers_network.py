"""Detectors of the whole network, through pytorch-ood 0.4.0 and through skood.

Skipped where pytorch-ood is not installed. It needs the torchvision that belongs to
the installed torch.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from torch import nn

from skood.detectors import ODIN, Gram, MultiLayerMahalanobis, RankFeat
from skood.nn import pretrained
from tests.detectors._peers import assert_equal, peer_scores

peer = pytest.importorskip("pytorch_ood.detector")


@pytest.fixture(scope="module")
def images():
    """300 ID images in 3 classes, their labels, and 50 queries."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    patterns = rng.normal(size=(3, 1, 6, 6))
    X = 0.5 * rng.normal(size=(300, 1, 6, 6)) + patterns[y]
    queries = rng.normal(size=(50, 1, 6, 6))
    return X.astype(np.float32), y, queries.astype(np.float32)


@pytest.fixture(scope="module")
def stages(images):
    """The layers of a network: two blocks, and what makes logits of the maps."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
    second = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    with torch.no_grad():  # a head that predicts all classes
        head[2].weight *= 20
        logits = head(second(first(torch.from_numpy(images[0]))))
        head[2].bias -= logits.mean(dim=0)
    return [first, second, head]


@pytest.fixture(scope="module")
def network(stages):
    return nn.Sequential(*stages).eval()


@pytest.fixture(scope="module")
def model(network):
    return pretrained(network, input_shape=(1, 6, 6))


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.0014, 0.1])
def test_odin(images, network, model, temperature, epsilon):
    X, y, queries = images
    theirs = peer.ODIN(network, temperature=temperature, eps=epsilon)
    expected = peer_scores(theirs.predict(torch.from_numpy(queries)))
    ours = ODIN(model, temperature=temperature, epsilon=epsilon).fit(X, y)
    # there max p, from which we subtract 1
    np.testing.assert_allclose(
        ours.score_samples(queries), expected - 1, rtol=0, atol=1e-6
    )


def test_odin_ties_at_a_high_temperature(images, network, model):
    """There in float32, where all max p of 3 classes are close to 1/3."""
    X, y, queries = images
    ours = ODIN(model, temperature=1e5).fit(X, y).score_samples(queries)
    theirs = peer.ODIN(network, temperature=1e5).predict(torch.from_numpy(queries))
    assert len(torch.unique(theirs)) < 45
    assert len(np.unique(ours)) == 50


def test_rank_feat(images, stages, model):
    X, y, queries = images
    theirs = peer.RankFeat(nn.Sequential(*stages[:2]), stages[2])
    with torch.no_grad():
        expected = peer_scores(theirs.predict(torch.from_numpy(queries)))
    ours = RankFeat(model, layer="1").fit(X, y)
    assert_equal(ours.score_samples(queries), expected, of_largest=True)


def test_multi_layer_mahalanobis(images, stages, model):
    """As in its `Mahalanobis`, each layer's distance is halved and divided by n."""
    X, y, queries = images
    theirs = peer.MultiMahalanobis(stages[:2])
    pairs = list(zip(torch.from_numpy(X), torch.from_numpy(y), strict=True))
    theirs.fit(torch.utils.data.DataLoader(pairs, batch_size=100))
    expected = peer_scores(theirs.predict(torch.from_numpy(queries)))
    ours = MultiLayerMahalanobis(model, layers=["0", "1"]).fit(X, y)
    # there in float32, with 1e-6 added to the variances times n
    assert_equal(
        ours.score_samples(queries), 2 * len(X) * expected, rtol=2e-3, of_largest=True
    )


def test_gram(images, stages, network, model):
    """Its deviations from the ranges that we find: it takes them over the rows of a
    label, and we over those that are predicted so, as the paper does."""
    X, y, queries = images
    ours = Gram(model, layers=["0", "1"], powers=[1, 2, 3], entries="row_sums")
    ours.set_params(random_state=0).fit(X, y)
    samples = torch.from_numpy(queries)
    expected = torch.zeros(len(samples))
    with torch.no_grad():
        predicted = network(samples).argmax(dim=1)
        assert len(predicted.unique()) == 3
        for i, stage in enumerate(stages[:2]):
            samples = stage(samples)
            ranges = [
                torch.from_numpy(bounds[i]).float()[predicted]
                for bounds in (ours.minima_, ours.maxima_)
            ]
            for j, power in enumerate([1, 2, 3]):
                entries = peer.Gram._gram_vector(samples, power)
                deviation = peer.Gram._deviation(entries, *(r[:, j] for r in ranges))
                expected += deviation / ours.expected_deviations_[i]
    assert_equal(ours.score_samples(queries), -expected.numpy(), rtol=1e-4)

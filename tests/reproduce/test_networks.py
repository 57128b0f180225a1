"""Tests of networks, by their numbers of weights, and of augmentation."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _training
from benchmarks.reproduce._networks import (
    CIFAR10,
    densenet100,
    lenet,
    resnet,
    wide_resnet,
)
from benchmarks.reproduce._training import (
    cropped_and_flipped,
    prepare,
    trained_openood,
)
from skood.nn import pretrained, split


@pytest.mark.parametrize(
    "factory, shape, n_weights, n_features",
    [
        (lambda s, n: lenet(s, n, padding=0), (1, 28, 28), 44_426, 84),
        (lenet, (1, 28, 28), 61_706, 84),
        (lenet, (3, 28, 28), 62_006, 84),
        (resnet, (3, 32, 32), 11_173_962, 512),
        (lambda s, n: resnet(s, n, depth=34), (3, 32, 32), 21_282_122, 512),
        (lambda s, n: resnet(s, n, depth=50), (3, 32, 32), 23_520_842, 2048),
        (densenet100, (3, 32, 32), 769_162, 342),
        (wide_resnet, (3, 32, 32), 2_243_546, 128),
    ],
    ids=["lenet valid", "lenet", "lenet 3", "18", "34", "50", "densenet", "wide"],
)
def test_number_of_weights(factory, shape, n_weights, n_features):
    module = factory(shape, 10).eval()
    assert sum(p.numel() for p in module.parameters()) == n_weights
    head = module[-1]
    assert isinstance(head, torch.nn.Linear) and head.in_features == n_features
    with torch.no_grad():
        assert module(torch.zeros(1, *shape)).shape == (1, 10)


@pytest.mark.parametrize("depth, n_weights", [(101, 42_512_970), (152, 58_156_618)])
def test_number_of_weights_of_deep_networks(depth, n_weights):
    with torch.device("meta"):  # without memory for them
        module = resnet((3, 32, 32), 10, depth=depth)
    assert sum(p.numel() for p in module.parameters()) == n_weights


def test_large_images_and_no_head():
    module = resnet((3, 64, 64), None, small_images=False).eval()
    with torch.no_grad():
        assert module(torch.zeros(1, 3, 64, 64)).shape == (1, 512)


def test_pixels_are_standardized_by_the_network():
    """Its first layer makes the mean image zero, and is not stored."""
    module = lenet((3, 28, 28), 10, mean=CIFAR10["mean"], std=CIFAR10["std"])
    image = torch.tensor(CIFAR10["mean"])[:, None, None].expand(1, 3, 28, 28)
    assert module[0](image).abs().max() == 0
    assert set(module.state_dict()) == {
        f"{i}.{part}" for i in (1, 4, 8, 10, 12) for part in ("weight", "bias")
    }


def test_features_are_the_input_of_the_last_layer():
    torch.manual_seed(0)
    network = pretrained(lenet((1, 28, 28), 10).eval(), range(10))
    X = np.random.default_rng(0).random((3, 1, 28, 28), dtype=np.float32)
    body, head = split(network)
    Z = body.transform(X)
    assert Z.shape == (3, 84) and Z.min() == 0
    np.testing.assert_allclose(
        head.predict_logits(Z), network.predict_logits(X), atol=1e-5
    )


def test_crops_and_flips():
    """Each image is one of the (2 * 4 + 1)^2 crops, or mirrored; all shifts occur."""
    torch.manual_seed(0)
    image = torch.arange(1.0, 33.0).reshape(1, 2, 4, 4)
    found = cropped_and_flipped(image.expand(2000, 2, 4, 4))
    padded = torch.nn.functional.pad(image, (4,) * 4)[0]
    crops = {}
    for i in range(9):
        for j in range(9):
            crop = padded[:, i : i + 4, j : j + 4]
            crops.setdefault(tuple(crop.flatten().tolist()), "plain")
            crops.setdefault(tuple(crop.flip(2).flatten().tolist()), "flipped")
    seen = [tuple(one.flatten().tolist()) for one in found]
    assert set(seen) <= set(crops)
    assert len(set(seen)) > 0.9 * len(crops)
    # 6/9 of all shifts along either axis leave some of the image visible
    visible = [crops[one] for one in seen if any(one)]
    assert abs(visible.count("flipped") / len(visible) - 0.5) < 0.1


def test_prepared_images():
    X = np.array([[[[0, 255], [51, 102]]]], dtype=np.uint8)
    np.testing.assert_allclose(prepare(X), X / 255.0, rtol=1e-6)
    assert prepare(X, n_channels=3).shape == (1, 3, 2, 2)
    gray = prepare(prepare(X, n_channels=3) * 255, n_channels=1)
    np.testing.assert_allclose(gray, X / 255.0, atol=1e-6)
    np.testing.assert_allclose(prepare(X, size=1)[0, 0, 0, 0], 0.4, atol=1e-6)


def test_network_at_chance_is_trained_again(monkeypatch):
    last = 1000  # seeds up to here give a network that predicts one class

    class Network(DummyClassifier):
        def predict(self, X):
            return X if self.seed > last else super().predict(X)

    def untrained(module, *, seed, **options):
        network = Network()
        network.seed = seed
        return network

    monkeypatch.setattr(_training, "openood_classifier", untrained)
    y = np.arange(10).repeat(30)
    assert trained_openood(None, y, y, seed=0).seed == 2000
    assert trained_openood(None, y, y, seed=1500).seed == 1500
    last = 9000
    with pytest.raises(ValueError, match="network of seed 0 at chance five times"):
        trained_openood(None, y, y, seed=0)

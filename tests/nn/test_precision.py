"""Passes of a pretrained network in bfloat16, and transfers of its batches to a GPU."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch import nn

from skood.detectors import ODIN, Energy, ViM
from skood.nn import _torch_network, pretrained, split
from tests._stand_in_device import stand_in_device


def _net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 4),
    ).eval()


@pytest.fixture
def images():
    return np.random.default_rng(0).normal(size=(70, 3, 6, 6)).astype(np.float32)


def test_bfloat16_is_autocast(images):
    net = _net()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        features = net[:6](torch.from_numpy(images)).float().numpy()
        logits = net(torch.from_numpy(images)).double().numpy()
    clf = pretrained(net, precision="bfloat16")
    assert_array_equal(clf.predict_logits(images), logits)
    body, _ = split(clf)
    assert_array_equal(body.transform(images), features)
    exact = pretrained(net).predict_logits(images)
    difference = np.abs(exact - logits).max() / np.abs(exact).max()
    assert 1e-4 < difference < 0.02


def test_autocast_of_the_user_has_no_effect(images):
    net = _net()
    expected = pretrained(net).predict_logits(images)
    with torch.autocast("cpu", torch.bfloat16):
        assert_array_equal(pretrained(net).predict_logits(images), expected)
        half = pretrained(net, precision="bfloat16").predict_logits(images)
        assert torch.is_autocast_enabled("cpu")
    assert not np.array_equal(half, expected)
    pretrained(net, precision="bfloat16").predict_logits(images)
    assert not torch.is_autocast_enabled("cpu")


def test_detectors_of_bfloat16(images):
    """The head and gradients are those of the network, up to rounding."""
    net = _net()
    y = np.arange(len(images)) % 4
    for kind in (Energy, ViM, ODIN):
        exact, half = (
            kind(pretrained(net, precision=precision)).fit(images, y)
            for precision in ("auto", "bfloat16")
        )
        expected, scores = exact.score_samples(images), half.score_samples(images)
        assert not np.array_equal(scores, expected)
        assert np.corrcoef(scores, expected)[0, 1] > 0.98


def test_unknown_precision():
    with pytest.raises(ValueError, match="precision must be 'auto' or 'bfloat16', got"):
        pretrained(_net(), precision="float16")


def test_batches_on_a_device(images, monkeypatch):
    """Each is sent once, in order; the host waits once per block and output."""
    net = _net()
    expected = pretrained(net).predict_logits(images)
    with stand_in_device() as device:
        clf = pretrained(net.to("cuda"), batch_size=8)
        with device.counted() as counts:
            logits = clf.predict_logits(images)
        assert_array_equal(logits, expected)
        assert counts.to_device == images.nbytes
        assert counts.to_host == images.shape[0] * 4 * 4
        assert counts.waits <= 2  # the finite test and the result
        with device.counted() as counts:
            assert_array_equal(clf.predict_logits(images.astype(np.float64)), expected)
        assert counts.to_device == images.nbytes  # cast before they are sent
        tensor = torch.from_numpy(images).to("cuda")
        with device.counted() as counts:
            assert_array_equal(clf.predict_logits(tensor), expected)
        assert counts.to_device == 0
        # blocks of two batches: a batch that was sent ahead is not lost
        monkeypatch.setattr(_torch_network, "_BLOCK_BYTES", 200)
        with device.counted() as counts:
            assert_array_equal(clf.predict_logits(images), expected)
        assert counts.to_device == images.nbytes
        assert counts.waits == 2 * 5


def test_infinite_outputs_on_a_device(images):
    with stand_in_device():
        net = _net().to("cuda")
        clf = pretrained(net, batch_size=8)
        with torch.no_grad():
            net[6].bias[1] = np.inf
        with pytest.raises(ValueError, match="The network's logits contain NaN or inf"):
            clf.predict_logits(images)

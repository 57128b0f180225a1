"""Detectors of the whole network on a GPU give what the CPU gives."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from skood.detectors import ODIN, Gram, MultiLayerMahalanobis, RankFeat
from skood.nn import pretrained
from skood.nn._make_network import make_network
from tests._loops import looped
from tests.nn._conv_net import conv_net, images
from tests.nn._outputs import read
from tests.nn.test_module_is_unchanged import aspects, assert_same

pytestmark = pytest.mark.gpu


@looped("tensors", [False, True])
@looped("home", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "kind, params",
    [
        (ODIN, {"temperature": 2.0, "epsilon": 0.01, "scale": [0.5, 2.0]}),
        (Gram, {"random_state": 0}),
        (Gram, {"random_state": 0, "entries": "row_sums", "layers": ["relu1", "flat"]}),
        (MultiLayerMahalanobis, {"layers": ["conv1", "conv2"]}),
        (RankFeat, {"layer": ["conv1", "relu2"]}),
        (RankFeat, {"layer": "relu2", "method": "power"}),
    ],
)
def test_scores_equal_those_of_the_cpu(kind, params, home, tensors):
    X, y = images(60, dtype=np.float64), np.arange(60) % 3
    y[50:] = -1
    clf = pretrained(conv_net(dtype=torch.float64), classes=[0, 1, 2])
    expected = kind(clf, device="cpu", **params).fit(X, y)
    net = conv_net(dtype=torch.float64).to(home)
    detector = kind(pretrained(net, classes=[0, 1, 2]), device="cuda", **params)
    samples = torch.as_tensor(X, device="cuda") if tensors else X
    before = aspects(net)
    detector.fit(samples, y)
    scores = detector.score_samples(samples)
    assert_same(aspects(net), before)
    assert_allclose(
        scores, expected.score_samples(X), rtol=1e-7, atol=1e-7 * np.std(scores)
    )
    assert detector.offset_ == pytest.approx(expected.offset_, rel=1e-6)
    for name, value in vars(detector).items():
        values = value if isinstance(value, list) else [value]
        assert not any(isinstance(v, torch.Tensor) for v in values), name


def test_recurrent_network_is_differentiated():
    """cuDNN cannot do that in eval mode."""

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.rnn, self.head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    X = np.random.default_rng(0).normal(size=(6, 5, 3)).astype(np.float32)
    results = []
    for device in ("cpu", "cuda"):
        network = make_network(pretrained(Recurrent(), device=device))
        samples = network.prepare(X)

        def keep(component, gradient):
            results.append(gradient.cpu().numpy())
            return component

        list(network.input_gradient(samples, lambda z: z, keep))
    assert_allclose(results[1], results[0], rtol=1e-3, atol=1e-6)


def test_module_can_be_trained_after_a_move_in_inference_mode():
    net = conv_net()
    clf = pretrained(net, device="cuda")
    X = images(9)
    with torch.inference_mode():
        read(clf, X, {"logits"})
        ODIN(clf).fit(X)
    net(torch.as_tensor(X)).sum().backward()
    assert net.head.weight.grad is not None

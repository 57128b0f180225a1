"""Ensembles over networks on a GPU give what the CPU gives, in as many passes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.frozen import FrozenEstimator

from skood.combine import DetectorEnsemble
from skood.detectors import KNN, MSP, Energy, ViM
from skood.nn import pretrained
from tests.nn._conv_net import conv_net, images

pytestmark = pytest.mark.gpu


def _ensemble(network):
    frozen = FrozenEstimator(pretrained(network, classes=[0, 1, 2]))
    members = [
        ("msp", MSP(frozen)),
        ("energy", Energy(frozen)),
        ("knn", KNN(frozen, n_neighbors=5)),
        ("vim", ViM(frozen)),
    ]
    return DetectorEnsemble(members, calibration=0.4, random_state=0)


@pytest.mark.parametrize("tensors", [False, True])
def test_levels_equal_those_of_the_cpu(tensors):
    X, y = images(200, dtype=np.float64), np.arange(200) % 3
    expected = _ensemble(conv_net(dtype=torch.float64)).fit(X, y).levels(X)
    network = conv_net(dtype=torch.float64).to("cuda")
    values = []
    network.register_forward_hook(lambda module, args, out: values.append(len(out)))
    samples = torch.as_tensor(X, device="cuda") if tensors else X
    ensemble = _ensemble(network).fit(samples, y)
    assert sum(values) == 200  # training and held-out rows, once each
    values.clear()
    assert_allclose(ensemble.levels(samples), expected)
    assert sum(values) == 200

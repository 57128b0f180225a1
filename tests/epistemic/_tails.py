"""Small networks in double precision, and the parts of them that are searched."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from skood.epistemic.quam._searched_layers import find_tail
from skood.nn import pretrained
from skood.nn._make_network import make_network

SIZE = 4  # of a row
X = np.random.default_rng(0).normal(size=(12, SIZE))


class Two(nn.Module):
    """Two linear layers, and what is between them."""

    def __init__(self, between, n_classes=3):
        super().__init__()
        self.body, self.head = nn.Linear(SIZE, 6), nn.Linear(6, n_classes)
        self.between = between

    def forward(self, x):
        """Call them."""
        return self.head(self.between(self.body(x)))


def make_net(make, seed=0):
    """A network in float64 with weights that are no accident."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = make().double()
        for component in module.modules():
            if isinstance(component, nn.BatchNorm1d):
                component.running_mean.normal_()
                component.running_var.uniform_(0.5, 2.0)
        return module.eval()


def make_tail(module, scope="dense", samples=X, n_classes=3):
    network = make_network(pretrained(module, np.arange(n_classes))).with_weights(
        device="cpu"
    )
    batch = network.batch(network.prepare(samples)[:2])
    return network, find_tail(network, scope, batch)


def other_weights(tail, n_searches, seed=1):
    """Stacked weights that differ from search to search."""
    generator = torch.Generator().manual_seed(seed)
    weights = tail.start(n_searches)
    with torch.no_grad():
        for weight in weights:
            weight += 0.3 * torch.randn(
                weight.shape, generator=generator, dtype=weight.dtype
            )
    return weights


def assert_is_the_network(module, tail, samples=X):
    """With other weights the part gives what the module gives with them."""
    weights = other_weights(tail, 6)
    features = tail.features(samples)
    row_logits, point_logits = tail.logits(weights, features[:5], features[5:8])
    for search in range(6):
        named = dict(module.named_parameters()) | tail.named(weights, search)
        with torch.no_grad():
            logits = functional_call(module, named, (torch.as_tensor(samples),))
        torch.testing.assert_close(row_logits[search], logits[:5], rtol=0, atol=1e-12)
        separate = logits[5 + search // 2]  # two searches for each point
        torch.testing.assert_close(point_logits[search], separate, rtol=0, atol=1e-12)

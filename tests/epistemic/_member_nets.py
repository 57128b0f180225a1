"""Networks to make ensembles of, and how a layer of one member looks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy

import torch
from torch import nn
from torch.nn import functional

from skood.nn import TorchClassifier

_OWN = {"n_members", "factor_init", "alpha", "gamma", "setting"}


def ensemble(kind, module=None, **params):
    """Return an ensemble of a `TorchClassifier`; parameters are of one of the two."""
    separate = {name: params.pop(name) for name in _OWN.intersection(params)}
    return kind(TorchClassifier(module, **params), **separate)


class ResidualNet(nn.Module):
    """Batch norm of the input, a stem, a residual block, and functions in between."""

    def __init__(self, input_shape, n_classes, width=8):
        super().__init__()
        channels = input_shape[0]
        self.norm = nn.BatchNorm2d(channels)
        self.stem = nn.Conv2d(channels, width, 3, padding="same", bias=False)
        self.block = nn.Sequential(
            nn.BatchNorm2d(width, momentum=0.3),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride=2, padding=1, padding_mode="circular"),
            nn.BatchNorm2d(width, affine=False),
        )
        self.depth = nn.Conv2d(width, 2 * width, 3, dilation=2, padding=2, groups=width)
        self.skip = nn.Conv2d(width, 2 * width, 1, stride=2)
        self.head = nn.Linear(2 * width, n_classes)
        self.extra = nn.Linear(2 * width, n_classes, bias=False)

    def forward(self, x):
        x = self.stem(self.norm(x))
        x = functional.relu(self.depth(self.block(x)) + self.skip(x))
        x = x.mean((2, 3))
        return self.head(x) + self.extra(x)


class Recurrent(nn.Module):
    """Reads a row as a sequence; ``torch.func.vmap`` cannot map its cell."""

    def __init__(self, width=5):
        super().__init__()
        self.cell, self.head = nn.GRU(1, width, batch_first=True), nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.cell(x[:, :, None])[0][:, -1])


class NormalLoss(nn.Module):
    """Negative log-likelihood of a mean and the logarithm of a variance."""

    def forward(self, outputs, y):
        variance = outputs[:, 1:].exp()
        return 0.5 * ((y - outputs[:, :1]) ** 2 / variance + outputs[:, 1:]).mean()


class Encoder(nn.Module):
    """Has a fused form in eval mode, which has no gradient."""

    def __init__(self, n_outputs=2):
        super().__init__()
        self.embed = nn.Linear(1, 4)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.head = nn.Linear(4, n_outputs)

    def forward(self, x):
        """Of the mean token."""
        return self.head(self.encoder(self.embed(x[:, :, None])).mean(1))


def rows(n_samples, shape, seed=0, dtype=torch.float64):
    """Random rows."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((n_samples, *shape), generator=generator, dtype=dtype)


def disturbed(network):
    """Give all numbers of a network random values, in double precision."""
    generator = torch.Generator().manual_seed(5)
    network = network.double()
    with torch.no_grad():
        for tensor in [*network.parameters(), *network.buffers()]:
            if tensor.is_floating_point():
                drawn = torch.rand(
                    tensor.shape, generator=generator, dtype=tensor.dtype
                )
                tensor.copy_(drawn + 0.2)  # variances are positive
        for tensor in network.parameters():
            tensor.sub_(0.7)
    return network


def member_norm(norm, n_members, m):
    """Batch normalization of member m, cut out of that of all members."""
    width = norm.num_features // n_members
    new = type(norm)(width, eps=norm.eps, momentum=norm.momentum, affine=norm.affine)
    state = {
        name: value[m * width : (m + 1) * width] if value.ndim else value
        for name, value in norm.state_dict().items()
    }
    new.double().load_state_dict(state)
    return new.train(norm.training)


def alone(layer, single):
    """Return the network of a member; `single` returns its layers with weights."""
    new = single(layer)
    if new is None:
        new = copy.copy(layer)
        children = layer._modules.items()
        new._modules = {name: alone(child, single) for name, child in children}
    return new

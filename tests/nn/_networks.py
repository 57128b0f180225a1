"""Small networks for tests. Being in a module, they can be pickled."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from torch import nn

from skood.nn import LinearHead
from skood.nn._default_modules import MLP


def random_head(n_features=8, n_classes=3, dtype=np.float64, seed=0):
    """Return a frozen head of random weights, and features on different scales."""
    rng = np.random.default_rng(seed)
    coef = rng.normal(size=(n_classes, n_features)).astype(dtype)
    intercept = rng.normal(size=n_classes).astype(dtype)
    Z = rng.normal(size=(120, n_features)) * np.linspace(1, 4, n_features) + 1
    return FrozenEstimator(LinearHead(coef, intercept)), Z.astype(dtype)


class Body(nn.Sequential):
    """One hidden layer, for networks with heads."""

    def __init__(self, input_shape, width=8, dropout=0.0):
        super().__init__(nn.Linear(*input_shape, width), nn.Tanh(), nn.Dropout(dropout))


class Flat(nn.Flatten):
    """Rows are the features: a body without parameters."""

    def __init__(self, input_shape):
        super().__init__()


class Net(nn.Module):
    """Named layers, and a function of the network and its input as forward pass."""

    def __init__(self, run, **layers):
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.run(self, x)


class _Interrupting(nn.Module):
    """Interrupts training after a number of batches."""

    batches_left: int | None = None

    def forward(self, x):
        cls = type(self)
        if self.training and cls.batches_left is not None:
            if cls.batches_left == 0:
                raise KeyboardInterrupt
            cls.batches_left -= 1
        return super().forward(x)


class InterruptingBody(_Interrupting, Body):
    """Body whose training is interrupted."""


class MarginLoss:
    """A loss whose name in the names of tests has no address."""

    def __call__(self, logits, codes):
        """Multi-class hinge loss of each row, of margin one."""
        own = logits.gather(1, codes[:, None])
        return (logits - own + 1).clamp(min=0).sum(dim=1) - 1

    def __repr__(self):
        return "MarginLoss()"


margin_loss = MarginLoss()


class Linear(nn.Linear):
    """A linear model without intercept."""

    def __init__(self, input_shape, n_classes):
        super().__init__(*input_shape, n_classes, bias=False)


class DoublePerceptron(MLP):
    """The default network in float64."""

    def __init__(self, input_shape, n_classes):
        super().__init__(input_shape, n_classes)
        self.double()


class Interrupting(_Interrupting, MLP):
    """Default network whose training is interrupted."""


class Normalized(nn.Sequential):
    """Has batch normalization and dropout, so it differs between modes."""

    def __init__(self, input_shape, n_classes):
        super().__init__(
            nn.Linear(*input_shape, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.5),
            nn.Linear(8, n_classes),
        )


class RandomFeatures(nn.Module):
    """Draws weights that are neither parameter nor buffer."""

    def __init__(self, input_shape, n_classes):
        super().__init__()
        self.drawn = torch.randn(*input_shape, 16)
        self.head = nn.Linear(16, n_classes)

    def forward(self, x):
        return self.head(torch.cos(x @ self.drawn))

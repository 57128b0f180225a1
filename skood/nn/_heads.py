"""Network with several heads on one body, and the net that trains it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial

import numpy as np
import torch
from torch import nn

from skood.nn._default_modules import ModuleBuilder, default_module
from skood.nn._training import TrainingNet
from skood.nn._training_data import Rows
from skood.utils._torch import parameter_device, parameter_dtype

__all__ = [
    "HeadNetwork",
    "HeadRows",
    "MultiHeadFactory",
    "MultiHeadNet",
    "MultiHeadNetwork",
]


class HeadNetwork(nn.Module):
    """Body and one linear head: a plain network for classification.

    Parameters
    ----------
    body : torch.nn.Module
        Returns features; all axes except the sample axis are flattened.

    head : torch.nn.Linear
        Returns logits.
    """

    def __init__(self, body, head):
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, x):
        """Return logits of shape (n_rows, n_classes)."""
        return self.head(self.body(x).flatten(1))


class MultiHeadNetwork(nn.Module):
    """Body and several linear heads.

    Parameters
    ----------
    body : torch.nn.Module
        Returns features; all axes except the sample axis are flattened.

    heads : list of torch.nn.Linear
        Return logits.
    """

    def __init__(self, body, heads):
        super().__init__()
        self.body = body
        self.heads = nn.ModuleList(heads)

    def features(self, x):
        """Return the input of the heads, of shape (n_rows, n_features)."""
        return self.body(x).flatten(1)

    def forward(self, x):
        """Return the logits of all heads side by side."""
        z = self.features(x)
        logits = [head(z) for head in self.heads]
        return logits[0] if len(logits) == 1 else torch.cat(logits, dim=1)

    def split(self, logits):
        """Return the logits of each head."""
        return logits.split([head.out_features for head in self.heads], dim=1)

    def one_head(self, k):
        """Return a network of the body and one head, which are not copied."""
        return HeadNetwork(self.body, self.heads[k])


class _BodyBuilder(ModuleBuilder):
    """Factory of a body for samples of a given shape, and the width of its features."""

    _call = "input_shape"
    _meaning = "the shape of one row"

    def _default(self):
        return partial(default_module(self.input_shape), n_classes=None)

    def _arguments(self):
        return (self.input_shape,)

    def _check_output(self, features):
        if not isinstance(features, torch.Tensor):
            raise TypeError(
                "The module is the body of the network and must return one tensor of "
                f"features, got an object of type {type(features).__name__}."
            )
        if features.ndim < 2 or len(features) != 2 or features.numel() == 0:
            raise ValueError(
                "The module is the body of the network and must return features of "
                f"shape (n_samples, n_features): for 2 rows of shape "
                f"{self.input_shape} it returned {tuple(features.shape)}."
            )
        self.width = features[0].numel()


class MultiHeadFactory:
    """Factory of a body for samples of a given shape, with one head per label column.

    Parameters
    ----------
    module : callable or None
        Class or factory of the body, called as ``module(input_shape,
        **module_params)``. None: the default network without its head.

    sizes : list of int
        Number of classes of each column.
    """

    def __init__(self, module, sizes):
        self.module = module
        self.sizes = sizes

    def __call__(self, input_shape, n_classes, **module_params):
        """Return a new network; torch must be seeded."""
        builder = _BodyBuilder(self.module, module_params, input_shape, None)
        body = builder()
        options = {"device": parameter_device(body), "dtype": parameter_dtype(body)}
        heads = [nn.Linear(builder.width, size, **options) for size in self.sizes]
        return MultiHeadNetwork(body, heads)


class HeadRows(Rows):
    """Samples with a class and a weight for each head.

    Parameters
    ----------
    inputs : ndarray or torch.Tensor of shape (n_samples, ...)
        The samples. They are not copied.

    codes : ndarray of shape (n_samples, n_heads), dtype int
        Classes of each sample.

    weight : ndarray of shape (n_samples, n_heads)
        Weights of each sample.

    shares : ndarray of shape (n_heads,)
        Weights of the heads, of mean one.
    """

    def __init__(self, inputs, codes, weight, shares):
        super().__init__(inputs, codes, weight)
        self.weight = self.weight * shares
        self.shares = shares

    def subset(self, indices):
        """Return some of the samples, with the weights of each head rescaled."""
        weight = self.weight[indices]
        return HeadRows(self.inputs[indices], self.codes[indices], weight, self.shares)


class MultiHeadNet(TrainingNet):
    """Net that trains a `MultiHeadNetwork` on `HeadRows`, or on plain `Rows`.

    The loss of a batch is the mean of the losses of the heads.
    """

    def get_loss(self, y_pred, y_true, X=None, training=False):
        """Return the mean of the criterion over the heads."""
        codes, weight = y_true
        if codes.ndim == 1:
            return super().get_loss(y_pred, y_true, X=X, training=training)
        losses = [
            super(MultiHeadNet, self).get_loss(
                logits, (codes[:, k], weight[:, k]), X=X, training=training
            )
            for k, logits in enumerate(self.module_.split(y_pred))
        ]
        return torch.stack(losses).mean()

    def hits(self, logits, codes):
        """Return the number of samples for which all classes are predicted."""
        if codes.ndim == 1:
            return super().hits(logits, codes)
        parts = self.module_.split(logits)
        predicted = [part.argmax(dim=1).cpu().numpy() for part in parts]
        return int((np.column_stack(predicted) == codes).all(axis=1).sum())

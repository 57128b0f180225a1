"""Base classes of ensembles in a single network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from abc import abstractmethod

import numpy as np
import torch
from scipy.special import log_softmax, logsumexp
from torch import nn

from skood.epistemic._base_uncertainty import BaseMembers, Block
from skood.nn._classifier import TorchClassifier
from skood.nn._default_modules import ModuleBuilder
from skood.utils._batches import blockwise
from skood.utils._torch import parameter_device, parameter_dtype, row_chunks

__all__ = [
    "TRAINING_CONSTRAINTS",
    "MemberNetwork",
    "NetworkFactory",
    "SharedMembersClassifier",
    "is_plain",
    "moved",
    "replaced",
    "resized_norm",
]

# Constraints of the parameters of a `TorchClassifier`, except the loss, which is the
# mean of the cross-entropies of the members.
TRAINING_CONSTRAINTS = {
    name: constraint
    for name, constraint in TorchClassifier._parameter_constraints.items()
    if name != "criterion"
}


class MemberNetwork(nn.Module):
    """Network of several members that are trained together.

    In training mode it returns the logits of all members, of shape (n_rows, n_members,
    n_classes). In eval mode it returns the logarithms of their mean probabilities, of
    shape (n_rows, n_classes): logits of the mixture.

    Parameters
    ----------
    body : torch.nn.Module
        The layers.

    n_members : int
        Number of members.
    """

    def __init__(self, body, n_members):
        super().__init__()
        self.body = body
        self.n_members = n_members

    @abstractmethod
    def members(self, x):
        """Return logits of all members, of shape (n_rows, n_members, n_classes)."""

    def forward(self, x):
        """Return the logits of the members, or in eval mode of their mixture."""
        logits = self.members(x)
        if self.training:
            return logits
        log_p = torch.log_softmax(logits, dim=-1)
        return torch.logsumexp(log_p, dim=1) - math.log(self.n_members)


class NetworkFactory:
    """Factory that builds the user's network and converts it to an ensemble.

    Parameters
    ----------
    module : callable or None
        The user's module class or factory, see `TorchClassifier`.

    convert : callable
        Called as ``convert(module, input_shape, **options)``; returns a
        `MemberNetwork`.

    options : dict
        Further arguments of `convert`.
    """

    def __init__(self, module, convert, options):
        self.module = module
        self.convert = convert
        self.options = options

    def __call__(self, input_shape, n_classes, **module_params):
        """Return a new network; torch must be seeded."""
        built = ModuleBuilder(self.module, module_params, input_shape, n_classes)()
        return self.convert(built, input_shape, **self.options)


def is_plain(layer, kind):
    """Return whether a layer is an unmodified layer of its kind with its own weights.

    Subclasses defined by torch (with a parametrized weight, or inside attention) are
    not, nor are layers whose weight is computed by a hook; subclasses of a user are
    unless they define `forward`.
    """
    if not isinstance(layer, kind) or "weight" not in layer._parameters:
        return False
    return type(layer) is kind or (
        type(layer).forward is kind.forward
        and not type(layer).__module__.startswith("torch.")
    )


def moved(before, after):
    """Return indices of the members whose logits differ for any sample.

    Logits have the shape (n_rows, n_members, ...); rounding differences do not count.
    """
    before, after = before.flatten(2), after.flatten(2)
    change = (after - before).abs().amax((0, 2))
    return torch.nonzero(change > 1e-4 * before.abs().amax((0, 2))).flatten().tolist()


def replaced(module, convert):
    """Replace layers of a module; a layer that is used twice stays one layer.

    ``convert(part, name)`` returns the replacement of a submodule; for None its parts
    are visited. Returns the module, changed in place, or its replacement.
    """
    done: dict = {}

    def visit(part, name):
        if id(part) not in done:
            new = convert(part, name)
            done[id(part)] = part, part if new is None else new  # keeps `part` alive
            if new is None:
                for key, child in part._modules.items():
                    if child is not None:
                        path = f"{name}.{key}" if name else key
                        part._modules[key] = visit(child, path)
        return done[id(part)][1]

    return visit(module, "")


def resized_norm(layer, width):
    """Return new batch normalization like a layer, for `width` channels.

    None if the layer is not batch normalization.
    """
    for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        if is_plain(layer, kind):
            norm = kind(
                width,
                eps=layer.eps,
                momentum=layer.momentum,
                affine=layer.affine,
                track_running_stats=layer.track_running_stats,
            )
            return norm.to(parameter_device(layer), parameter_dtype(layer))
    return None


class SharedMembersClassifier(BaseMembers, TorchClassifier):
    """Base class of classifiers that train many members as one network.

    A subclass has the parameters of `TorchClassifier`, ``n_members`` and ``setting``,
    and implements ``_module_factory``.
    """

    def __sklearn_tags__(self):
        return super(BaseMembers, self).__sklearn_tags__()

    def _setting(self):
        return self.setting

    def _reference_log_proba(self, X):
        """Return the log-probabilities of the mixture, which is the given model."""
        return self.predict_logits(X)

    def _row_bytes(self, X):
        """Return the memory per sample of the widest layer, with all members."""
        names = "in_features", "out_features", "in_channels", "out_channels"
        layers = self.module_.modules()
        width = max(getattr(layer, name, 0) for layer in layers for name in names)
        # a network needs several times the memory of its widest layer
        return 16 * 4 * self.module_.n_members * width * math.prod(X.shape[2:])

    def _member_log_proba(self, X):
        """Return log-probabilities of samples, (n_members, n_rows, n_classes)."""
        logits = self._forward(X, self.module_.members, self._row_bytes(X))
        return log_softmax(logits, axis=-1).transpose(1, 0, 2)

    def _blocks(self, X):
        X = self._prepare_input(X)
        n_members = self.module_.n_members
        row_bytes = 4 * 8 * n_members * len(self.classes_)
        for part in row_chunks(len(X), row_bytes):
            log_proba = self._member_log_proba(X[part])
            yield Block(log_proba, reference=_mixture(log_proba))

    @blockwise
    def predict_logits(self, X):
        """Return the logits of the mixture: logarithms of its probabilities.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes), dtype float64
            Logarithms of the means of the members' probabilities.
        """
        return np.concatenate([block.reference for block in self._blocks(X)])


def _mixture(log_proba):
    """Return normalized log-probabilities of the equally weighted mixture."""
    return log_softmax(logsumexp(log_proba, axis=0), axis=1)

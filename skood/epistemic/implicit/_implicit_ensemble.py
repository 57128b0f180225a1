"""Base class of ensembles in a single network, and of their networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from abc import abstractmethod
from numbers import Integral

import numpy as np
import torch
from scipy.special import log_softmax, logsumexp
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import nn

from skood.epistemic._base_uncertainty import BaseMembers
from skood.epistemic._likelihood import Block
from skood.nn import TorchClassifier
from skood.nn._default_modules import ModuleBuilder
from skood.nn._logits import LogitsMixin
from skood.nn._make_network import plain_network
from skood.utils._atomic_fit import fresh_fit, kept_state
from skood.utils._batches import blockwise
from skood.utils._metaestimators import copy_input_attributes
from skood.utils._param_validation import Interval, StrOptions, fit_context
from skood.utils._stored import stored
from skood.utils._torch import parameter_device, parameter_dtype, row_chunks


class MemberNetwork(nn.Module):
    """Network of several members that are trained together, with the layers of `body`.

    Outputs are the logits of the members in training mode, and in eval mode the
    logarithms of their mean probabilities, (n_rows, n_classes): logits of the mixture.
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


@stored
class NetworkFactory:
    """Factory that builds the user's network and converts it to a `MemberNetwork`."""

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
    weight = getattr(layer, "weight", layer)  # a layer without one is none of its kind
    if not (isinstance(layer, kind) and isinstance(weight, nn.Parameter | None)):
        return False
    return type(layer) is kind or (
        type(layer).forward is kind.forward
        and not type(layer).__module__.startswith("torch.")
    )


def moved(before, after):
    """Return indices of members whose logits (n, n_members, ...) really differ."""
    before, after = before.flatten(2), after.flatten(2)
    change = (after - before).abs().amax((0, 2))
    return torch.nonzero(change > 1e-4 * before.abs().amax((0, 2))).flatten().tolist()


def replaced(module, convert):
    """Replace layers by ``convert(layer, name)``, or visit inside; shared ones once."""
    done: dict = {}

    def visit(layer, name):
        if id(layer) not in done:
            new = convert(layer, name)
            done[id(layer)] = layer, layer if new is None else new  # keeps it alive
            if new is None:
                for key, child in layer._modules.items():
                    if child is not None:
                        path = f"{name}.{key}" if name else key
                        layer._modules[key] = visit(child, path)
        return done[id(layer)][1]

    return visit(module, "")


def resized_norm(layer, width):
    """Return new batch normalization of `width` channels, None for other layers."""
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


class ImplicitEnsemble(BaseMembers):
    """Base class of ensembles in one network; `_conversion` is a subclass's."""

    _parameter_constraints: dict = {
        "estimator": [TorchClassifier],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "setting": [StrOptions({"a", "b"})],
    }

    @abstractmethod
    def _conversion(self):
        """Return the conversion of a network, and its options."""

    @fit_context(prefer_skip_nested_validation=False)  # the estimator is the user's
    def fit(self, X, y, sample_weight=None):
        """Train all members as one network.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        y : array-like of shape (n_samples,)
            Class labels.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        with fresh_fit(self):
            self._store(self._converted().fit(X, y, sample_weight=sample_weight))
        return self

    @fit_context(prefer_skip_nested_validation=False)
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Train for one epoch, starting from the current weights.

        The first call without a preceding `fit` builds the network.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        y : array-like of shape (n_samples,)
            Class labels.

        classes : array-like of shape (n_classes,), default=None
            All class labels, needed in the first call if `y` misses some.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        new = self._converted()
        data = {"X": X, "y": y, "classes": classes, "sample_weight": sample_weight}
        if hasattr(self, "estimator_"):
            params = new.get_params(deep=False)
            del params["module"]  # the network stays
            with kept_state(self.estimator_):
                self.estimator_.set_params(**params).partial_fit(**data)
            return self
        with fresh_fit(self):
            self._store(new.partial_fit(**data))
        return self

    def _converted(self):
        """Return a clone of the estimator with a network of many members."""
        estimator = self.estimator
        estimator._validate_params()
        if estimator.criterion is not None:
            raise ValueError(
                f"{type(self).__name__} minimizes the mean of the cross-entropies of "
                "its members: the criterion of its estimator must be None, got "
                f"{estimator.criterion!r}."
            )
        factory = NetworkFactory(estimator.module, *self._conversion())
        return clone(estimator).set_params(module=factory)

    def _store(self, fitted):
        """Set the fitted attributes."""
        self.estimator_ = fitted
        self.classes_ = fitted.classes_
        copy_input_attributes(self, fitted)

    def _blocks(self, X):
        """Yield a `Block` for consecutive samples; the mixture is the given model."""
        X = self.estimator_._prepare_input(X)
        network = self.estimator_.module_
        row_bytes = 4 * 8 * network.n_members * len(self.classes_)
        width = _row_bytes(network, X)
        for chunk in row_chunks(len(X), row_bytes):
            logits = self.estimator_._forward(X[chunk], network.members, width)
            log_p = log_softmax(logits, axis=-1).transpose(1, 0, 2)
            mixture = log_softmax(logsumexp(log_p, axis=0), axis=1)
            yield Block(log_p, reference=mixture)

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
            Log-probabilities in the order of ``classes_``.
        """
        check_is_fitted(self)
        return self._reference(X)

    def _reference(self, X):
        return np.concatenate([block.reference for block in self._blocks(X)])

    def decision_function(self, X):
        """Return the logits, or for two classes the second minus the first.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Larger for the class; with two classes, above zero means ``classes_[1]``.
        """
        return LogitsMixin.decision_function(self, X)

    def __skood_network__(self, **options):
        check_is_fitted(self)
        return plain_network(self.estimator_, **options)


def _row_bytes(network, X):
    """Return the memory per sample of the widest layer, with all members."""
    names = "in_features", "out_features", "in_channels", "out_channels"
    layers = network.modules()
    width = max(getattr(layer, name, 0) for layer in layers for name in names)
    # a network needs several times the memory of its widest layer
    return 16 * 4 * network.n_members * width * math.prod(X.shape[2:])

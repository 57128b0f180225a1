"""Fitted network as a function of its weights, to search and sample weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from skood.nn._borrowed_module import (
    check_first_axis,
    check_network_input,
    copied,
    is_copy,
    log_probabilities,
    to_batch,
)
from skood.nn._forward_hooks import Watcher, primary_tensor
from skood.utils._locks import ForkSafeLock
from skood.utils._metaestimators import take_rows, unwrap
from skood.utils._torch import (
    autocast,
    parameter_dtype,
    resolve_device,
    row_chunks,
    to_tensor,
)

# Number of samples on which the probabilities of a scikit-learn model are compared with
# a softmax, and a difference that is beyond the precision of float32.
_N_COMPARED = 100
_APART = 1e-3

_ACTIVATIONS = {
    "identity": nn.Identity,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "logistic": nn.Sigmoid,
}


def symmetric(logits):
    """Return logits (-m/2, m/2) of a binary margin; wider tensors are unchanged."""
    if logits.ndim == 1:
        logits = logits[:, None]
    if logits.shape[1] == 1:
        logits = torch.cat([-logits, logits], dim=1) / 2
    return logits


class _FunctionalModule:
    """Module in eval mode, without gradients, whose weights can be replaced.

    It belongs to the caller. ``prepare`` of a subclass validates samples and sets
    ``head_name``, the ``torch.nn.Linear`` of the output, None if there is none.
    """

    _model: Any  # the fitted estimator, without wrappers and steps of a pipeline
    head_name: str | None = None
    is_margin = False
    _probed = _keeps_logits = False

    # Attributes that the first call of `prepare` determines from outputs.
    _probed_names: tuple[str, ...] = ("head_name",)

    # Returns samples as a tensor for the original network; None: they are arrays.
    _to_batch: Callable | None = None

    def __init__(self, module, device, dtype=None, *, for_steps=False):
        self.device = resolve_device(device)
        if for_steps and torch.finfo(parameter_dtype(module)).bits < 32:
            dtype = torch.float32
        for layer in module.modules():
            layer.training = False
        for parameter in module.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        self.module = module.to(device=self.device, dtype=dtype)
        self.dtype = parameter_dtype(self.module)

    def is_of(self, estimator, device):
        """Return whether it is a copy of the network of a fitted estimator as it is."""
        model, _ = unwrap(estimator)
        with suppress(Exception):  # what cannot be compared is copied again
            return (
                model is self._model
                and resolve_device(device) == self.device
                and is_copy(self.module, model.module_)
            )
        return False

    def probed(self):
        """Return what `prepare` has found, as plain values for `restore`."""
        values = {name: getattr(self, name) for name in self._probed_names}
        return values | {"layers": repr(self.module)}

    def restore(self, probed):
        """Use what another copy of the network has found, without a forward pass."""
        if probed["layers"] != repr(self.module):
            return  # a frozen network that was changed in place
        for name in self._probed_names:
            setattr(self, name, probed[name])
        self._probed = True
        if self._keeps_logits:
            self._keep_logits_of_head()

    def _keep_logits_of_head(self):
        """Store the output of the last linear layer in each forward pass."""
        self._keeps_logits = True
        head = self.module.get_submodule(self.head_name)
        head.register_forward_hook(self._keep_logits)

    def _keep_logits(self, head, args, output):
        self._kept = output

    def batch(self, samples):
        """Return samples as an input tensor of the module; a copy."""
        if self._to_batch is not None:
            batch = self._to_batch(samples, device=self.device)
            return batch.to(self.dtype) if batch.is_floating_point() else batch
        return to_tensor(np.array(samples), self.device, self.dtype)

    def batches(self, samples, batch_size=256):
        """Yield samples as tensors of at most `batch_size` samples."""
        for block in row_chunks(len(samples), 1, batch_size):
            yield self.batch(samples[block])

    def _computed(self, function, samples, what, batch_size=256):
        """Return finite float64 results of a function of batches of samples."""
        with torch.no_grad():
            batches = self.batches(samples, batch_size)
            parts = [function(batch).double().cpu().numpy() for batch in batches]
        return check_array(np.concatenate(parts), input_name=what)

    def _run_watched(self, batch):
        """Return the module's output and the linear layer that gave it, or None."""
        with torch.inference_mode(False), torch.no_grad(), autocast(self.device.type):
            watcher = Watcher(self.module)
            try:
                output = primary_tensor(self.module(batch.clone()))
                return output, watcher.head_of(output)
            finally:
                watcher.remove()

    def _call(self, batch, weights):
        """Return the output of the module with some of its weights replaced."""
        with plain_attention(), autocast(self.device.type):
            batch = batch.clone()  # because a module may write to its input
            if weights:
                output = functional_call(self.module, weights, (batch,))
            else:
                output = self.module(batch)
        return primary_tensor(output)

    def weights(self, names=None):
        """Return copies of parameters by name; None: all parameters."""
        return {
            name: parameter.detach().clone()
            for name, parameter in self.module.named_parameters()
            if names is None or name in names
        }


class FunctionalNetwork(_FunctionalModule):
    """Copy of a fitted classifier's network whose weights can be replaced.

    Made by `Network.with_weights`, with options of `_FunctionalModule` and
    `Network.copied_module`. ``head_name`` and ``is_margin`` (one output, a binary
    margin m with the logits (-m/2, m/2)) are set by `prepare`.
    """

    _probed_names = "head_name", "is_margin", "_gives_probabilities", "_keeps_logits"

    def __init__(self, network, *, device="auto", one_margin=False, **options):
        self._network, self._core = network, network.core
        self._model = self._core.estimator
        self._to_batch = getattr(self._core, "to_batch", None)
        self.classes = np.asarray(network.estimator.classes_)
        super().__init__(self._core.copied_module(one_margin), device, **options)
        self.is_margin = False
        self._gives_probabilities = False

    # --- samples -------------------------------------------------------------

    def prepare(self, X):
        """Validate samples, and apply the pipeline steps before the network."""
        samples = self._network.prepare(X)
        if not self._probed:
            self._probe(self.batch(samples[:2]))
            if self._to_batch is None:
                self._check_softmax(X, samples)
        return samples

    def _probe(self, batch):
        """Determine once the module's kind of output and the layer of the logits."""
        output, head = self._run_watched(batch)
        self._gives_probabilities = getattr(self._core, "outputs_probabilities", False)
        if head is not None:
            self.head_name = head[0]
            # a softmax after the head would lose the digits of confident predictions
            self._gives_probabilities = False
            if not (output.shape == head[3].shape and torch.equal(output, head[3])):
                self._keep_logits_of_head()
        logits = output if head is None else head[3]
        self.is_margin = logits.ndim == 1 or logits.shape[1] == 1
        self._logits_of(logits, batch)
        self._probed = True

    def _logits_of(self, output, batch):
        """Return the logits of an output, one per class, or raise."""
        logits = self.__dict__.pop("_kept", None)
        if logits is None:
            logits = log_probabilities(output) if self._gives_probabilities else output
        logits = symmetric(logits)
        check_first_axis(logits, batch, "The network")
        if logits.ndim != 2 or logits.shape[1] != len(self.classes):
            raise ValueError(
                f"The network {type(self.module).__name__} gave outputs of the shape "
                f"{tuple(output.shape)} for {len(batch)} samples and "
                f"{len(self.classes)} classes: it must have one output per class."
            )
        return logits

    def _check_softmax(self, X, samples):
        """Raise if the probabilities of a scikit-learn model are not a softmax."""
        if not hasattr(self._network.estimator, "predict_proba"):
            return
        n = min(_N_COMPARED, len(samples))
        expected = self._network.estimator.predict_proba(take_rows(X, np.arange(n)))
        apart = np.abs(np.exp(self.log_proba(samples[:n])) - expected).max()
        if apart > _APART:
            name = type(self._core.estimator).__name__
            raise ValueError(
                f"The probabilities of {name} are not the softmax of its logits (they "
                f"differ by up to {apart:.2g}), so that it cannot be opened as a "
                "network: it may have been trained as one model for each class against "
                "the rest. Use LogisticRegression or MLPClassifier."
            )

    # --- logits --------------------------------------------------------------

    def logits(self, batch, weights=None):
        """Return the logits (n_rows, n_classes) of a batch; it can be differentiated.

        `weights` is a dict of tensors that replace the module's parameters, by their
        names.
        """
        return self._logits_of(self._call(batch, weights), batch)

    def log_proba(self, samples, weights=None, batch_size=256, logits=None):
        """Return float64 log-probabilities (n_rows, n_classes) of prepared samples.

        `logits` replaces the method of this name; it has the argument `batch`.
        """
        logits = logits or partial(self.logits, weights=weights)

        def log_softmax(batch):
            return torch.log_softmax(logits(batch).double(), 1)

        return self._computed(log_softmax, samples, "logits", batch_size)


class FunctionalRegressor(_FunctionalModule):
    """Copy of a regression network whose weights can be replaced, see `_as_module`.

    Also of a `TorchRegressor` or a skorch ``NeuralNetRegressor``, or a `Pipeline` that
    ends in one of these.
    """

    _probed_names = "head_name", "_n_outputs"

    def __init__(self, estimator, n_outputs, *, device="auto", **options):
        self._estimator, (model, _) = estimator, unwrap(estimator)
        check_is_fitted(model)
        self._model, self._n_outputs = model, n_outputs
        skorch = getattr(sys.modules.get("skorch.net"), "NeuralNet", ())
        if isinstance(model, skorch) or hasattr(model, "_prepare_input"):
            own = model.module_
            self._check_input = getattr(model, "_prepare_input", check_network_input)
            self._to_batch = partial(
                to_batch, module=own, check_input=self._check_input
            )
            module = copied(own)
        else:
            module = _as_module(model)
        super().__init__(module, device, **options)

    def prepare(self, X):
        """Validate samples and apply the pipeline steps before the network."""
        _, X = unwrap(self._estimator, X)
        if self._to_batch is not None:
            samples = self._check_input(X)
        else:
            samples = validate_data(self._model, X, reset=False, dtype=np.float64)
        if not self._probed:
            self._probe(self.batch(samples[:2]))
        return samples

    def restore(self, probed):
        if probed["_n_outputs"] == self._n_outputs:  # else `prepare` raises
            super().restore(probed)

    def _probe(self, batch):
        output, head = self._run_watched(batch)
        self._checked(output, batch)
        if not torch.isfinite(output).all():
            raise ValueError(
                f"The outputs of {type(self.module).__name__} contain NaN or infinity: "
                "its training failed, or the features need a scale."
            )
        if head is not None and torch.equal(head[3].reshape(output.shape), output):
            self.head_name = head[0]
        self._probed = True

    def logits(self, batch, weights=None):
        """Return the outputs of a batch, of shape (n_rows, n_outputs)."""
        return self._checked(self._call(batch, weights), batch)

    def _checked(self, output, batch):
        """Return outputs as columns, or raise unless their number is right."""
        check_first_axis(output, batch, "The network")
        shape = tuple(output.shape[1:]) or (1,)
        if shape != (self._n_outputs,):
            raise ValueError(
                f"The network {type(self.module).__name__} has outputs of the shape "
                f"{shape} for each sample, expected ({self._n_outputs},): one mean, "
                "and with variance='network' also the logarithm of the variance."
            )
        return output.reshape(len(batch), self._n_outputs)

    def outputs(self, samples, logits=None):
        """Return float64 outputs of prepared samples, (n_rows, n_outputs).

        `logits` replaces the method of this name.
        """
        return self._computed(logits or self.logits, samples, "outputs")


def _as_module(model):
    """Return a perceptron or linear regressor of scikit-learn as a module."""
    if hasattr(model, "coefs_") and hasattr(model, "out_activation_"):
        if model.out_activation_ != "identity":
            raise ValueError(
                f"The output of {type(model).__name__} is not a mean: its activation "
                f"is {model.out_activation_!r}."
            )
        hidden = list(zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True))
        return perceptron(
            hidden, model.activation, model.coefs_[-1], model.intercepts_[-1]
        )
    if hasattr(model, "coef_") and hasattr(model, "intercept_"):
        coef = np.atleast_2d(model.coef_)
        intercept = None  # a bias of zero would be searched as well
        if getattr(model, "fit_intercept", True):
            intercept = np.broadcast_to(model.intercept_, coef.shape[:1])
        return perceptron([], "identity", coef.T, intercept)
    raise TypeError(
        f"Cannot search the weights of {type(model).__name__}: use an MLPRegressor or "
        "a linear regressor of scikit-learn, a TorchRegressor, a skorch "
        "NeuralNetRegressor, or a Pipeline that ends in one of these."
    )


def perceptron(hidden, activation, coef, intercept):
    """Return a module of float64 layers, from weights of shape (n_inputs, n_outputs).

    ``hidden`` has (weights, biases) of the layers before `activation`; `intercept`
    None: no biases of the last layer.
    """
    layers: list[nn.Module] = []
    for weight, bias in hidden:
        layers += [_linear(weight, bias), _ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, _linear(coef, intercept))


def _linear(coef, intercept):
    # without initial weights, which would be drawn from torch's own generator
    layer = nn.utils.skip_init(
        nn.Linear, *coef.shape, bias=intercept is not None, dtype=torch.float64
    )
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.array(coef.T, dtype=np.float64)))
        if intercept is not None:
            layer.bias.copy_(torch.from_numpy(np.array(intercept, dtype=np.float64)))
    return layer


_LOCK = ForkSafeLock()
_USERS: list = []
_SWITCHES = ExitStack()


def _forget_other_threads():
    """Restore torch's switches in a forked child, which has no other threads."""
    others = [user for user in _USERS if user != threading.get_ident()]
    for user in others:
        _USERS.remove(user)
    if others and not _USERS:
        _SWITCHES.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


@contextmanager
def plain_attention():
    """Run attention step by step: fused forms have no gradient, or cannot be mapped.

    Threads share torch's switches: the first sets them, the last restores them.
    """
    user = threading.get_ident()
    with _LOCK:
        if not _USERS:
            before = torch.backends.mha.get_fastpath_enabled()
            _SWITCHES.callback(torch.backends.mha.set_fastpath_enabled, before)
            torch.backends.mha.set_fastpath_enabled(False)
            _SWITCHES.enter_context(sdpa_kernel(SDPBackend.MATH))
        _USERS.append(user)
    try:
        yield
    finally:
        with _LOCK:
            _USERS.remove(user)
            if not _USERS:
                _SWITCHES.close()

"""Fitted network as a function of its weights, to search and sample weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import os
import threading
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from skood.nn._forward_hooks import Watcher, primary_tensor
from skood.nn._make_network import make_network
from skood.nn._torch_reader import check_first_axis
from skood.utils._locks import ForkSafeLock
from skood.utils._metaestimators import take_rows
from skood.utils._torch import (
    parameter_dtype,
    resolve_device,
    row_chunks,
    to_tensor,
)

__all__ = ["OpenNetwork", "copied", "perceptron", "plain_attention", "symmetric"]

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


class OpenNetwork:
    """Copy of a fitted network, in eval mode, whose weights can be replaced.

    It supports a `TorchClassifier`, a module wrapped by `pretrained`, a skorch net, a
    linear classifier or `MLPClassifier` of scikit-learn, or a `Pipeline` that ends in
    one of these. The user's estimator is not modified.

    Parameters
    ----------
    estimator : object
        Fitted.

    device : str or torch.device, default="auto"
        Device of the copy: "auto" is CUDA if available, else the CPU.

    dtype : torch.dtype, default=None
        Data type. None: the dtype of the network (float64 for scikit-learn's).

    one_margin : bool, default=False
        Whether a binary classifier of scikit-learn that has the weights w of one margin
        becomes a network with one output, instead of two outputs with the weights -w/2
        and w/2.

    Attributes
    ----------
    module : torch.nn.Module
        The copy. Its parameters do not require a gradient.

    classes : ndarray of shape (n_classes,)
        Class labels.

    device : torch.device
        Device of the copy.

    dtype : torch.dtype
        Data type of its first parameter.

    head_name : str or None
        The ``torch.nn.Linear`` that gives the logits, set by `prepare`. None: there is
        no such layer.

    is_margin : bool
        Whether the network has one output, a binary margin m with the logits (-m/2,
        m/2). Set by `prepare`.
    """

    def __init__(self, estimator, *, device="auto", dtype=None, one_margin=False):
        self._estimator = estimator
        self._network = make_network(estimator, device="auto")
        if self._network.reads_graphs:
            raise TypeError(
                "A graph network cannot be opened as a function of its weights: its "
                "output for a node depends on the whole graph. Split it, body, head = "
                "skood.nn.split(gnn), and go on with the head and the embeddings, as "
                "in Laplace(head).fit(body.transform(nodes), y). MCDropout and "
                "DeepEnsemble take graph networks as they are."
            )
        self._reader = self._network.reader
        self.classes = np.asarray(estimator.classes_)
        if hasattr(self._reader, "module"):
            check_is_fitted(estimator)
            self._take(copied(self._reader.module), device, dtype)
        else:
            self._take(_sequential(self._reader, one_margin), device, dtype)
        self.head_name = None
        self.is_margin = False
        self._probed = False
        self._gives_probabilities = False

    @classmethod
    def for_steps(cls, *args, device="auto"):
        """Open a network for small steps: half precision becomes float32."""
        network = cls(*args, device=device)
        if torch.finfo(network.dtype).bits < 32:  # too few digits
            network = cls(*args, device=device, dtype=torch.float32)
        return network

    def _take(self, module, device, dtype):
        """Store a module that is already copied, in eval mode and without gradients."""
        self.device = resolve_device(device)
        for part in module.modules():
            part.training = False
        for parameter in module.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None
        self.module = module.to(device=self.device, dtype=dtype)
        self.dtype = parameter_dtype(self.module)

    # --- samples -------------------------------------------------------------

    def prepare(self, X):
        """Validate samples and apply the pipeline steps before the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input of the classifier.

        Returns
        -------
        rows : ndarray or torch.Tensor of shape (n_samples, ...)
            Prepared samples, which can be indexed and passed to `batch`.
        """
        rows = self._network.prepare(X)
        if not self._probed:
            self._probe(self.batch(rows[:2]))
            if not hasattr(self._reader, "module"):
                self._check_softmax(X, rows)
        return rows

    def batch(self, rows):
        """Return samples as an input tensor of the module; a copy."""
        if hasattr(self._reader, "to_batch"):
            batch = self._reader.to_batch(rows, self.device)
            return batch.to(self.dtype) if batch.is_floating_point() else batch
        return to_tensor(np.array(rows), self.device, self.dtype)

    def batches(self, rows, batch_size=256):
        """Yield samples as tensors of at most `batch_size` samples."""
        for part in row_chunks(len(rows), 1, batch_size):
            yield self.batch(rows[part])

    def _probe(self, batch):
        """Determine once the module's kind of output and the layer of the logits."""
        output, found = self._run_watched(batch)
        self._gives_probabilities = getattr(
            self._reader, "outputs_probabilities", False
        )
        if found is not None:
            self.head_name = found[0]
            # a softmax after the head would lose the digits of confident predictions
            self._gives_probabilities = False
            head = self.module.get_submodule(self.head_name)
            if not (output.shape == found[3].shape and torch.equal(output, found[3])):
                head.register_forward_hook(self._keep_logits)
        logits = self._logits_of(output if found is None else found[3], batch)
        self.is_margin = logits.ndim == 1 or logits.shape[1] == 1
        logits = symmetric(logits)
        check_first_axis(logits, batch, "The network")
        if logits.ndim != 2 or logits.shape[1] != len(self.classes):
            raise ValueError(
                f"The network {type(self.module).__name__} gave outputs of the shape "
                f"{tuple(output.shape)} for {len(batch)} rows and "
                f"{len(self.classes)} classes: it must have one output per class."
            )
        self._probed = True

    def _run_watched(self, batch):
        """Return the module's output and the linear layer that gave it, or None."""
        with torch.inference_mode(False), torch.no_grad():
            watcher = Watcher(self.module)
            try:
                output = primary_tensor(self.module(batch.clone()))
                return output, watcher.head_of(output)
            finally:
                watcher.remove()

    def _check_softmax(self, X, rows):
        """Raise if the probabilities of a scikit-learn model are not a softmax."""
        if not hasattr(self._estimator, "predict_proba"):
            return
        n = min(_N_COMPARED, len(rows))
        given = self._estimator.predict_proba(take_rows(X, np.arange(n)))
        apart = np.abs(np.exp(self.log_proba(rows[:n])) - given).max()
        if apart > _APART:
            name = type(self._reader.estimator).__name__
            raise ValueError(
                f"The probabilities of {name} are not the softmax of its logits (they "
                f"differ by up to {apart:.2g}), so that it cannot be opened as a "
                "network: it may have been trained as one model for each class against "
                "the rest. Use LogisticRegression or MLPClassifier."
            )

    def _keep_logits(self, head, args, output):
        self._kept = output

    # --- logits --------------------------------------------------------------

    def _logits_of(self, output, batch):
        kept = self.__dict__.pop("_kept", None)
        if kept is not None:
            return kept
        if not self._gives_probabilities:
            return output
        p = output.double()
        log_p = p.clamp_min(torch.finfo(p.dtype).tiny).log()
        if p.ndim == 1 or p.shape[1] == 1:
            return log_p - (1 - p).clamp_min(torch.finfo(p.dtype).tiny).log()
        return log_p

    def logits(self, batch, weights=None):
        """Return the logits of a batch, by the module's own or by other weights.

        It can be differentiated, and mapped over stacked weights by
        ``torch.func.vmap``.

        Parameters
        ----------
        batch : torch.Tensor of shape (n_rows, ...)
            See `batch`.

        weights : dict of str to torch.Tensor, default=None
            Parameters that replace the module's, by their names.

        Returns
        -------
        logits : torch.Tensor of shape (n_rows, n_classes)
            One column per class.
        """
        with plain_attention():
            # a copy, because a module may write to its input
            output = functional_call(self.module, weights or {}, (batch.clone(),))
        return symmetric(self._logits_of(primary_tensor(output), batch))

    def log_proba(self, rows, weights=None, batch_size=256):
        """Return the log-probabilities of prepared samples as a float64 ndarray.

        Parameters
        ----------
        rows : ndarray or torch.Tensor
            See `prepare`.

        weights : dict of str to torch.Tensor, default=None
            See `logits`.

        batch_size : int, default=256
            Number of samples per forward pass.

        Returns
        -------
        log_proba : ndarray of shape (n_rows, n_classes)
            Logarithms of the softmax of the logits.
        """
        parts = []
        with torch.no_grad():
            for batch in self.batches(rows, batch_size):
                logits = self.logits(batch, weights).double()
                parts.append(torch.log_softmax(logits, 1).cpu().numpy())
        return check_array(np.concatenate(parts), input_name="logits")

    def weights(self, names=None):
        """Return copies of parameters by name; None: all parameters."""
        return {
            name: parameter.detach().clone()
            for name, parameter in self.module.named_parameters()
            if names is None or name in names
        }


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


def copied(module):
    """Return a copy of a module whose weights may require a gradient."""
    with torch.inference_mode(False), torch.no_grad():
        return copy.deepcopy(module)


def _sequential(reader, one_margin):
    """Return a linear classifier or perceptron of scikit-learn as a module."""
    hidden, activation = reader.hidden()
    head, _ = reader.find_head()
    coef, intercept = head.coef, head.intercept
    if one_margin and _has_margin(reader.estimator):  # given as (-w/2, w/2)
        coef, intercept = np.diff(coef, axis=0), np.diff(intercept)
    if not getattr(reader.estimator, "fit_intercept", True):
        intercept = None
    return perceptron(hidden, activation, coef.T, intercept)


def _has_margin(estimator):
    """Return whether a scikit-learn model has the weights of one binary margin."""
    if hasattr(estimator, "coefs_"):
        return estimator.coefs_[-1].shape[1] == 1
    shape = np.shape(estimator.coef_)
    return len(shape) == 1 or shape[0] == 1


def perceptron(hidden, activation, coef, intercept):
    """Return a module of float64 layers, from weights of shape (n_inputs, n_outputs).

    Parameters
    ----------
    hidden : list of (ndarray, ndarray)
        Weights and biases of the hidden layers.

    activation : {"identity", "relu", "tanh", "logistic"}
        Activation after each hidden layer.

    coef : ndarray
        Weights of the last layer.

    intercept : ndarray or None
        Biases of the last layer. None: no biases.

    Returns
    -------
    module : torch.nn.Sequential
        The layers.
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

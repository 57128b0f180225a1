"""Watch the layers of a torch network while it runs.

`Watcher` hooks itself into a network for the time of a forward pass, keeps what one
layer gives, and finds the linear layer whose output are the logits.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import threading

import numpy as np
import torch
from torch import nn

__all__ = ["Watcher", "parse_layer", "pool", "primary_tensor"]

_CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

# Layers that tell what the axes of the 3-D arrays they give are: (n, c, length) or
# (n, tokens, d).
_CHANNELS_FIRST = (nn.Conv1d, nn.ConvTranspose1d, nn.BatchNorm1d, nn.GroupNorm)
_CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.RNNBase, nn.MultiheadAttention)


def primary_tensor(output):
    """The logits among what a module returned: itself, `.logits`, or the first."""
    if isinstance(output, torch.Tensor):
        return output
    logits = getattr(output, "logits", None)
    if logits is None and isinstance(output, dict):
        logits = output.get("logits")
    if logits is None and isinstance(output, (tuple, list)) and output:
        logits = primary_tensor(output[0])
    if not isinstance(logits, torch.Tensor):
        raise TypeError(
            f"The module returned {type(output).__name__}; expected a tensor of "
            "logits, a tuple that starts with it, or an object with .logits."
        )
    return logits


def _same_memory(a, b):
    """Tell whether `a` is `b`, or a reshaped view of all of it."""
    return a.data_ptr() == b.data_ptr() and a.numel() == b.numel()


def pool(features, pooling, channels_last):
    """Turn feature maps (n, c, ...), or tokens (n, ..., d), into vectors."""
    if features.ndim == 1:
        return features[:, None]
    if features.ndim == 2 or pooling is None:
        return features
    if pooling == "flatten":
        return features.flatten(1)
    axes = tuple(
        range(1, features.ndim - 1) if channels_last else range(2, features.ndim)
    )
    return features.mean(axes) if pooling == "mean" else features.amax(axes)


def _first_tensor(args, kwargs):
    """The tensor that a layer was called with."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value
    raise ValueError("The layer was called without a tensor: it has no input to read.")


def _follows(logits, output):
    """Tell if `output` is a copy, a (log-)softmax or the sigmoid of 2-D `logits`."""
    if logits.numel() != output.numel() or not output.is_floating_point():
        return False
    output = output.reshape(logits.shape)
    if torch.equal(logits.to(output.dtype), output):
        return True
    # Small probabilities are compared by their ratio: where the largest is rounded
    # to 1, they alone tell the logits of two heads apart.
    limits = torch.finfo(output.dtype)
    rtol = max(1e-4, 4 * limits.eps)
    logits, output = (
        t.to(torch.promote_types(t.dtype, torch.float32)) for t in (logits, output)
    )
    if logits.shape[1] == 1:
        return _close(torch.sigmoid(logits), output, rtol, limits.tiny)
    size = 1 + float(logits.abs().max())
    return _close(torch.softmax(logits, 1), output, rtol, limits.tiny) or _close(
        torch.log_softmax(logits, 1), output, rtol, 16 * limits.eps * size
    )


def _close(a, b, rtol, atol):
    return torch.allclose(a.to(b.dtype), b, rtol=rtol, atol=atol)


class Watcher:
    """Forward hooks that remember what one reading needs, for this thread only."""

    def __init__(self, module, layer, pooling="mean"):
        self.thread = threading.get_ident()
        self.pooling = pooling
        self.handles = []
        self.last: tuple | None = None
        self.forget()
        name, of_input = parse_layer(module, layer)
        for child_name, child in module.named_modules():
            if child_name == name and of_input:
                self._hook(child.register_forward_pre_hook, self._take_input)
            if isinstance(child, (*_CHANNELS_FIRST, *_CHANNELS_LAST)):
                self._hook(child.register_forward_hook, self._lay_out)
            if isinstance(child, nn.Linear):
                self._hook(child.register_forward_hook, self._linear, child_name)
            if child_name == name and not of_input:
                self._hook(child.register_forward_hook, self._take)

    def _hook(self, register, function, *options):
        def hook(*call):
            if threading.get_ident() == self.thread:
                function(*options, *call)

        self.handles.append(register(hook, with_kwargs=True))

    def _lay_out(self, module, args, kwargs, output):
        if primary_tensor(output).ndim == 3:
            self.tokens = isinstance(module, _CHANNELS_LAST)

    def _linear(self, name, module, args, kwargs, output):
        self.last = (name, module, _first_tensor(args, kwargs), output)
        if output.ndim == 2:
            self.candidates[name] = self.last

    def _take(self, module, args, kwargs, output):
        self._keep(primary_tensor(output), module)

    def _take_input(self, module, args, kwargs):
        self._keep(_first_tensor(args, kwargs), module)

    def _keep(self, tensor, module):
        tokens = self.tokens and not isinstance(module, _CHANNELS_FIRST)
        channels_last = isinstance(module, nn.Linear) or (tensor.ndim == 3 and tokens)
        # A copy, before an operation in place changes it.
        self.taken = pool(tensor, self.pooling, channels_last).clone()

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def forget(self):
        self.last = None  # the linear layer that ran last: (name, layer, in, out)
        self.candidates: dict = {}  # linear layers that may be the head, likewise
        self.taken = None  # what the asked layer gave
        self.tokens = True  # whether a 3-D array is (n, tokens, d)

    def head_of(self, output):
        """Find the linear layer whose output is what the network returned.

        Directly, or before a closing softmax, log-softmax or sigmoid: then it is
        the layer's output, not the module's, that are the logits.
        """
        for found in self.candidates.values():
            if _same_memory(found[3], output):
                return found
        for found in reversed(self.candidates.values()):
            if _follows(found[3], output):
                return found
        return None


def _layer_names(module):
    return [
        name
        for name, child in module.named_modules()
        if isinstance(child, (nn.Linear, *_CONV))
    ]


def parse_layer(module, layer):
    """Return (module name or None for "penultimate", whether its input is meant)."""
    if layer == "penultimate":
        return None, True
    names = _layer_names(module)
    if isinstance(layer, (int, np.integer)):
        if not -len(names) <= layer < len(names):
            raise ValueError(
                f"layer={layer} is out of range: the network has {len(names)} linear "
                f"and convolutional layers: {names}."
            )
        return names[layer], False
    name, of_input = layer.removeprefix("input:"), layer.startswith("input:")
    known = [n for n, _ in module.named_modules() if n]
    if name not in known:
        raise ValueError(
            f"The network has no layer named {name!r}. It has: {', '.join(known)}."
        )
    return name, of_input

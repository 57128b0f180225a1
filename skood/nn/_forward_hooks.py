"""Forward hooks that record or replace outputs of layers of a torch network.

`Watcher` adds hooks to a network for the duration of a forward pass, stores the outputs
of some layers, and finds the linear layer whose output are the logits. `replacing`
replaces the output of a layer.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import threading
from contextlib import contextmanager
from difflib import get_close_matches

import numpy as np
import torch
from torch import nn

_CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

# Layers that determine the axes of their 3-D outputs: (n, c, length) or (n, tokens, d).
_CHANNELS_FIRST = (nn.Conv1d, nn.ConvTranspose1d, nn.BatchNorm1d, nn.GroupNorm)
_CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.RNNBase, nn.MultiheadAttention)
_LAYOUTS = (*_CHANNELS_FIRST, *_CHANNELS_LAST)
_COUNTED = (nn.Linear, *_CONV)


def primary_tensor(output):
    """Return the logits in the output of a module: itself, `.logits`, or the first."""
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


def pool(features, pooling, channels_last):
    """Turn feature maps (n, c, ...), or tokens (n, ..., d), into vectors.

    With "maps" into arrays (n, c, positions), vectors being maps of one position.
    """
    if features.ndim == 1:
        features = features[:, None]
    if pooling == "maps":
        if channels_last and features.ndim > 2:
            features = features.movedim(-1, 1)
        return features.flatten(2) if features.ndim > 2 else features[:, :, None]
    if features.ndim == 2 or pooling is None:
        return features
    if pooling == "flatten":
        return features.flatten(1)
    axes = tuple(
        range(1, features.ndim - 1) if channels_last else range(2, features.ndim)
    )
    return features.mean(axes) if pooling == "mean" else features.amax(axes)


def _first_tensor(args, kwargs):
    """Return the tensor that a layer was called with."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value
    raise ValueError("The layer was called without a tensor: it has no input to read.")


def _follows(logits, output):
    """Return whether `output` is a copy, (log-)softmax or sigmoid of 2-D `logits`."""
    if logits.numel() != output.numel() or not output.is_floating_point():
        return False
    output = output.reshape(logits.shape)
    if torch.equal(logits.to(output.dtype), output):
        return True
    # Small probabilities are compared by their ratio: where the largest is rounded to
    # 1, only they distinguish the logits of two heads.
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
    """Forward hooks that record layers of `module`, in this thread only.

    The last output of each of `layers` (see `parse_layer`) is stored, pooled by `pool`;
    without any, the names of the layers that ran. With None, only linear layers that
    may give `n_logits` logits (None: any number) are recorded.
    """

    def __init__(self, module, layers=(), pooling="mean", n_logits=None):
        self.pooling = pooling
        self.handles = []
        self.last: tuple | None = None
        self.forget()
        inputs: dict = {}
        outputs: dict = {}
        for layer in layers or ():
            name, of_input = parse_layer(module, layer)
            if name is not None:
                (inputs if of_input else outputs).setdefault(name, []).append(layer)
        for name, child in module.named_modules():
            if name in inputs:
                self._hook(child.register_forward_pre_hook, self._input, inputs[name])
            if (inputs or outputs) and isinstance(child, _LAYOUTS):
                self._hook(child.register_forward_hook, self._lay_out)
            if layers is not None and not layers and isinstance(child, _COUNTED):
                self._hook(child.register_forward_hook, self._ran, name)
            if isinstance(child, nn.Linear) and (
                n_logits is None or max(2, child.out_features) == n_logits
            ):
                self._hook(child.register_forward_hook, self._linear, name)
            if name in outputs:
                self._hook(child.register_forward_hook, self._output, outputs[name])

    def _hook(self, register, function, *options):
        self.handles.append(
            register(in_same_thread(function, *options), with_kwargs=True)
        )

    def _lay_out(self, module, args, kwargs, output):
        if primary_tensor(output).ndim == 3:
            self.tokens = isinstance(module, _CHANNELS_LAST)

    def _linear(self, name, module, args, kwargs, output):
        self.last = (name, module, _first_tensor(args, kwargs), output)
        if output.ndim == 2:
            self.candidates[name] = self.last

    def _ran(self, name, module, args, kwargs, output):
        self.ran[name] = None

    def _output(self, layers, module, args, kwargs, output):
        try:
            tensor = primary_tensor(output)
        except TypeError as error:
            inside = [f"{layers[0]}.{name}" for name in _parts(module)]
            raise TypeError(
                f"The layer {layers[0]!r} returned {type(output).__name__}, expected a "
                f"tensor, or a tuple that starts with one. Name a layer inside it that "
                f"returns one: it has {', '.join(inside) or 'none'}."
            ) from error
        self._keep(layers, tensor, module)

    def _input(self, layers, module, args, kwargs):
        self._keep(layers, _first_tensor(args, kwargs), module)

    def _keep(self, layers, tensor, module):
        tokens = self.tokens and not isinstance(module, _CHANNELS_FIRST)
        channels_last = isinstance(module, nn.Linear) or (tensor.ndim == 3 and tokens)
        # A copy, before an operation in place changes it.
        pooled = pool(tensor, self.pooling, channels_last).clone()
        self.taken.update(dict.fromkeys(layers, pooled))

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def forget(self):
        self.last = None  # the linear layer that ran last: (name, layer, in, out)
        self.candidates: dict = {}  # linear layers that may be the head, as above
        self.taken: dict = {}  # outputs of the requested layers
        self.ran: dict = {}  # linear and convolutional layers, in the order they ran
        self.tokens = True  # whether a 3-D array is (n, tokens, d)

    def head_of(self, output):
        """Find the linear layer whose output is what the network returned, or None.

        A softmax, log-softmax or sigmoid may follow: then the logits are the layer's
        output.
        """
        for candidate in self.candidates.values():
            same_start = candidate[3].data_ptr() == output.data_ptr()
            if same_start and candidate[3].numel() == output.numel():  # maybe reshaped
                return candidate
        with torch.no_grad():  # the numbers are compared, not differentiated
            for candidate in reversed(self.candidates.values()):
                if _follows(candidate[3], output):
                    return candidate
        return None


def in_same_thread(function, *options):
    """Return a hook that ignores other threads that run the same module."""
    thread = threading.get_ident()

    def hook(*call):
        if threading.get_ident() == thread:
            return function(*options, *call)
        return None

    return hook


@contextmanager
def replacing(module, layer, function):
    """Replace the output of a layer by a function of it, in this thread only.

    "input:NAME" replaces an input. The list that is yielded gets an entry for each run.
    """
    name, of_input = parse_layer(module, layer)
    if name is None:
        raise ValueError(
            f"The input of the linear head is the output of no one layer: name the "
            f"layer to replace. The network has: {', '.join(_module_names(module))}."
        )
    ran: list = []

    def replace_output(child, args, kwargs, output):
        ran.append(name)
        if not isinstance(output, torch.Tensor):
            raise TypeError(
                f"The layer {layer!r} returned {type(output).__name__}, and only a "
                "tensor can be replaced. Name a layer inside it that returns one."
            )
        return function(output)

    def replace_input(child, args, kwargs):
        ran.append(name)
        tensor = _first_tensor(args, kwargs)
        new = function(tensor)
        args = tuple(new if value is tensor else value for value in args)
        return args, {k: new if v is tensor else v for k, v in kwargs.items()}

    child = dict(module.named_modules())[name]
    if of_input:
        hook = in_same_thread(replace_input)
        handle = child.register_forward_pre_hook(hook, with_kwargs=True)
    else:
        hook = in_same_thread(replace_output)
        handle = child.register_forward_hook(hook, with_kwargs=True)
    try:
        yield ran
    finally:
        handle.remove()


def _module_names(module):
    return [name for name, _ in module.named_modules() if name]


def _parts(module):
    """Return the names of the submodules that a module calls itself (no containers)."""
    for name, child in module.named_children():
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            yield from (f"{name}.{inner}" for inner in _parts(child))
        else:
            yield name


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
    known = _module_names(module)
    if name not in known:
        raise ValueError(
            f"The network has no layer named {name!r}. {_near(name, known)}"
        )
    return name, of_input


def _near(name, known):
    """Return similar names: all names of a small network, else the closest ones."""
    if len(known) <= 30:
        return f"It has: {', '.join(known)}."
    close = get_close_matches(name, known, n=8, cutoff=0.0)
    return (
        f"The closest of its {len(known)} are: {', '.join(close)}. All are listed by "
        "module.named_modules()."
    )

"""Part of a network whose weights are searched, for many searches at a time."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from skood.epistemic.quam._tails import (
    Adapters,
    DenseTail,
    WholeNetwork,
    linear_arguments,
)

# Samplewise functions that are supported between two linear layers.
_NAMES = (
    "alpha_dropout celu dropout elu feature_alpha_dropout gelu hardshrink hardsigmoid "
    "hardswish hardtanh layer_norm leaky_relu logsigmoid mish relu relu6 rrelu selu "
    "sigmoid silu softplus softshrink softsign tanh tanhshrink threshold"
).split()
_ROWWISE = {getattr(functional, name) for name in _NAMES} | {
    getattr(owner, name)
    for owner in (torch, torch.Tensor)
    for name in ("relu", "tanh", "sigmoid")
}

_RELU = functional.relu, torch.relu, torch.Tensor.relu

_DROPOUTS = [getattr(functional, name) for name in _NAMES if "dropout" in name]

# Functions that change at most the shape, and not the shape of 2-D input.
_RESHAPES = {torch.flatten, torch.reshape, torch.squeeze} | {
    getattr(torch.Tensor, name)
    for name in ("flatten", "reshape", "view", "contiguous", "clone")
}


class _Recorder(TorchFunctionMode):
    """Recorder of the function and the inputs that made each tensor."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self._made_by = {}
        self._referenced = []  # so that ids of tensors are unique

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = args[0] if args else kwargs.get("input")
        maker = self._made_by.get(id(first))
        output = func(*args, **kwargs)
        if isinstance(output, torch.Tensor) and isinstance(first, torch.Tensor):
            shapes = tuple(first.shape), tuple(output.shape)
            self._referenced += [first, output]
            self._made_by[id(output)] = len(self.calls)
            self.calls.append((func, args, kwargs, maker, shapes))
        return output


def _function(func, args, kwargs):
    """Return a recorded samplewise function as a function of its first argument."""
    if func in _RELU:
        return functional.relu
    kwargs = {k: v for k, v in kwargs.items() if k not in ("input", "inplace")}
    names = functional.__dict__
    rest = list(args[1:])
    if func in names.values() and func is not functional.layer_norm:
        rest = [False if value is True else value for value in rest]  # in place
    return lambda h: func(h, *rest, **kwargs)


def _is_identity(func, args, kwargs):
    """Return whether a recorded function is a dropout in eval mode."""
    training = args[2] if len(args) > 2 else kwargs.get("training", True)
    return func in _DROPOUTS and not training


def _recorded(network, batch):
    """Return the recorded functions of the network for a batch, see `_Recorder`."""
    with torch.no_grad(), _Recorder() as recorder:
        network.logits(batch)
    return recorder.calls


def _dense_layers(network, batch):
    """Return the names of the last layers, and the functions between them."""
    names = {id(p): name for name, p in network.module.named_parameters()}
    calls = _recorded(network, batch)
    head = network.module.get_submodule(network.head_name).weight
    places = [
        i
        for i, (func, args, kwargs, *_) in enumerate(calls)
        if func is functional.linear and linear_arguments(args, kwargs)[1] is head
    ]
    place = places[-1] if places else None
    layers: list = []
    functions: list = []
    between: list = []
    while place is not None:
        func, args, kwargs, maker, (before, after) = calls[place]
        if func is functional.linear and len(before) == 2:
            _, weight, bias = linear_arguments(args, kwargs)
            known = [id(tensor) in names for tensor in (weight, bias)]
            if not known[0] or not (known[1] or bias is None):
                break
            if layers:
                functions.append(_composed(between[::-1]))
            layers.append((names[id(weight)], names.get(id(bias))))
            between = []
        elif func in _ROWWISE and len(before) == 2:
            if not _is_identity(func, args, kwargs):
                between.append(_function(func, args, kwargs))
        elif not (func in _RESHAPES and before == after):
            break
        place = maker
    return layers[::-1], functions[::-1]


def _composed(functions):
    """Return the composition of functions; of one function, this function."""
    if len(functions) == 1:
        return functions[0]

    def composed(h):
        for function in functions:
            h = function(h)
        return h

    return composed


def find_tail(network, scope, batch, *, rank=4, seed=0):
    """Return the `Tail` of a prepared `FunctionalNetwork` whose weights are searched.

    For `scope` see `QUAM`. Raises if there are none. The initial matrices of adapters
    depend on a seed.
    """
    if scope in _PARTIAL:
        names = _PARTIAL[scope](network.module)
        if not names:
            raise _no_weights(network, scope, batch)
        structure = {"names": names, "adapters": scope == "adapter"}
        structure["bytes_per_row"] = _activation_bytes(network, batch)
        return restored_tail(network, structure, None, rank=rank, seed=seed)
    tail = _dense_tail(network, scope, batch)
    if scope != "full" and tail is None:
        raise ValueError(
            f"scope={scope!r} searches linear layers at the end of the network, but "
            f"the logits of {type(network.module).__name__} are not the output of a "
            "torch.nn.Linear with weights of its own. Use scope='full'."
        )
    n_all = sum(p.numel() for p in network.module.parameters())
    if scope == "full" and (tail is None or tail.n_weights() < n_all):
        tail = WholeNetwork(network)
        tail.bytes_per_row = _activation_bytes(network, batch)
    return tail


def _activation_bytes(network, batch):
    """Return twice the bytes of all outputs in a forward pass of a sample."""
    sizes = [math.prod(after) for *_, (_, after) in _recorded(network, batch)]
    return 2 * torch.finfo(network.dtype).bits // 8 * sum(sizes) // len(batch)


def _parameters_of(module, kinds, *, matrices):
    """Return the names of the parameters of layers of some kinds."""
    ids = {
        id(parameter)
        for layer in module.modules()
        if isinstance(layer, kinds)
        for parameter in layer.parameters(recurse=False)
        if parameter.ndim > 1 or not matrices
    }
    return [name for name, p in module.named_parameters() if id(p) in ids]


def _bias_names(module):
    names = [name for name, _ in module.named_parameters()]
    return [name for name in names if "bias" in name.rpartition(".")[2]]


# Scopes of weights that are no layers at the end: functions that return their names.
_NORMS = nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm
_MAPS = nn.Linear, nn.modules.conv._ConvNd
_PARTIAL: dict = {
    "norm": partial(_parameters_of, kinds=_NORMS, matrices=False),
    "bias": _bias_names,
    "adapter": partial(_parameters_of, kinds=_MAPS, matrices=True),
}

_KINDS = {
    "norm": "normalization layers with weights (BatchNorm, LayerNorm, GroupNorm)",
    "bias": "biases",
    "adapter": "linear or convolutional layers",
}


def _no_weights(network, scope, batch):
    """Return an error that names the scopes with weights."""
    works = ["full"] + [name for name, of in _PARTIAL.items() if of(network.module)]
    if _dense_tail(network, "last", batch) is not None:
        works = ["last", "dense", *works]
    return ValueError(
        f"scope={scope!r} searches weights of {_KINDS[scope]}, but "
        f"{type(network.module).__name__} has none. Scopes of this network are "
        f"{', '.join(map(repr, works))}."
    )


def restored_tail(network, structure, samples, *, rank=4, seed=0):
    """Return the part of another copy of a network; functions are recorded again."""
    if "bytes_per_row" in structure:
        tail = WholeNetwork(network, structure["names"])
        if structure.get("adapters", False):
            tail = Adapters(network, structure["names"], rank, seed)
        tail.bytes_per_row = structure["bytes_per_row"]
        return tail
    layers, functions = structure["layers"], []
    if len(layers) > 1:
        _, functions = _dense_layers(network, network.batch(samples))
        functions = functions[-(len(layers) - 1) :]
    return DenseTail(network, layers, functions)


def _dense_tail(network, scope, batch):
    """Return the longest tail of linear layers; None: there is none."""
    if network.head_name is None:
        return None
    layers, functions = _dense_layers(network, batch)
    if scope == "last":
        layers, functions = layers[-1:], []
    while layers:
        tail = DenseTail(network, layers, functions)
        if tail.explains(batch):
            return tail
        layers, functions = layers[1:], functions[1:]
    return None

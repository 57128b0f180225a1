"""Part of a network whose weights are searched, for many searches at a time."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from abc import ABC, abstractmethod

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from skood.epistemic._vectorized import Vectorized, stacked_linear
from skood.nn._functional_network import symmetric

__all__ = ["DenseTail", "Tail", "WholeNetwork", "find_tail", "restored_tail"]

# Samplewise functions that are supported between two linear layers.
_ROWWISE = {
    getattr(functional, name)
    for name in (
        "alpha_dropout celu dropout elu feature_alpha_dropout gelu hardshrink "
        "hardsigmoid hardswish hardtanh layer_norm leaky_relu logsigmoid mish relu "
        "relu6 rrelu selu sigmoid silu softplus softshrink softsign tanh tanhshrink "
        "threshold"
    ).split()
} | {
    torch.relu,
    torch.tanh,
    torch.sigmoid,
    torch.Tensor.relu,
    torch.Tensor.tanh,
    torch.Tensor.sigmoid,
}

_RELU = functional.relu, torch.relu, torch.Tensor.relu

_DROPOUTS = (
    functional.dropout,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
)

# Functions that change at most the shape, and not the shape of 2-D input.
_RESHAPES = {
    torch.flatten,
    torch.reshape,
    torch.squeeze,
    torch.Tensor.flatten,
    torch.Tensor.reshape,
    torch.Tensor.view,
    torch.Tensor.contiguous,
    torch.Tensor.clone,
}


class _Recorder(TorchFunctionMode):
    """Recorder of the function and the inputs that made each tensor."""

    def __init__(self):
        super().__init__()
        self.calls = []
        self._made_by = {}
        self._kept = []  # so that ids of tensors are unique

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = args[0] if args else kwargs.get("input")
        maker = self._made_by.get(id(first))
        output = func(*args, **kwargs)
        if isinstance(output, torch.Tensor) and isinstance(first, torch.Tensor):
            shapes = tuple(first.shape), tuple(output.shape)
            self._kept += [first, output]
            self._made_by[id(output)] = len(self.calls)
            self.calls.append((func, args, kwargs, maker, shapes))
        return output


class _InputOf(TorchFunctionMode):
    """Recorder of the input of the last linear map with a weight."""

    def __init__(self, weight):
        super().__init__()
        self._weight = weight

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is functional.linear and _linear(args, kwargs)[1] is self._weight:
            # a copy, before an operation in place changes it
            self.taken = _linear(args, kwargs)[0].detach().clone()
        return func(*args, **kwargs)


class Tail(ABC):
    """Base class of the parts of a network that are searched.

    S searches have separate, stacked weights. They share the training samples; each
    block of S / n_points searches belongs to one point.
    """

    # Maximum bytes of activations per search and sample of the penalty.
    bytes_per_row = 0

    def __init__(self, network):
        self.network = network

    def features(self, rows):
        """Return the input of the part for prepared samples, one row per sample."""
        batches = self.network.batches(rows)
        return torch.cat([self.read(batch)[0] for batch in batches])

    @abstractmethod
    def read(self, batch):
        """Return the input of the part and the logits, from one forward pass."""

    @abstractmethod
    def structure(self):
        """Return plain values from which `restored_tail` makes the part again."""

    @abstractmethod
    def start(self, n_searches):
        """Return a list of stacked weights, copies of the network's, with gradient."""

    @abstractmethod
    def logits(self, weights, rows, points):
        """Return logits of the training samples and of the own point of each search.

        Their shapes are (n_searches, n_rows, n_outputs) and (n_searches, n_outputs);
        `rows` and `points` are `features`, `weights` stacked as by `start`.
        """

    @abstractmethod
    def n_weights(self):
        """Return the number of weights of one search."""

    @abstractmethod
    def by_search(self, weights):
        """Return views of stacked weights whose first axis is the searches."""

    @abstractmethod
    def named(self, weights, search=slice(None)):
        """Return copies of the weights of one or all searches by parameter name."""

    @abstractmethod
    def _output_biases(self, weights):
        """Return a view (n_searches, n_outputs) of the last layer's biases, or None."""

    def move_outputs(self, weights, shifts):
        """Add shifts (n_searches,) to the biases of the first output, or raise."""
        biases = self._output_biases(weights)
        if biases is None:
            raise ValueError(
                f"The last layer of {type(self.network.module).__name__} has no bias, "
                "which searches around a regressor move at first. Give it one."
            )
        with torch.no_grad():
            biases[:, 0] += shifts


class DenseTail(Tail):
    """Linear layers at the end of a network, with samplewise functions between them.

    The first layer has the same training samples as input in all searches, which is one
    matrix product. Its weights have the shape (n_inputs, n_searches * n_outputs), the
    weights of the other layers (n_searches, n_inputs, n_outputs).
    """

    def __init__(self, network, layers, functions):
        super().__init__(network)
        self.layers = layers  # pairs of names of weights and biases (or None)
        self.functions = functions  # before each layer except the first
        parameters = dict(network.module.named_parameters())
        self._given = [
            (
                parameters[weight].detach().T.contiguous(),
                None if bias is None else parameters[bias].detach(),
            )
            for weight, bias in layers
        ]
        widths = [weight.shape[1] for weight, _ in self._given]
        self.n_out = widths[0]
        self.bytes_per_row = 4 * sum(widths) * self._given[0][0].element_size()

    def read(self, batch):
        weight = self.network.module.get_parameter(self.layers[0][0])
        with torch.no_grad(), _InputOf(weight) as mode:
            logits = self.network.logits(batch)
        return mode.taken, logits

    def structure(self):
        return {"layers": self.layers}

    def explains(self, batch):
        """Return whether the layers reproduce the network, also for other weights."""
        generator = torch.Generator().manual_seed(0)
        weights = self.start(1)
        with torch.no_grad():
            for weight in weights:
                noise = torch.randn(weight.shape, generator=generator).to(weight)
                weight += noise * (weight.abs().mean() + 0.1) / 2
            features, _ = self.read(batch)
            found = self.logits(weights, features, features[:1])[0][0]
            expected = self.network.logits(batch, self.named(weights, 0))
        if found.shape != expected.shape:
            found = symmetric(found)
        atol = 1e-3 * float(expected.abs().max())
        return torch.allclose(found, expected, rtol=0, atol=atol)

    def start(self, n_searches):
        weights = []
        for i, (weight, bias) in enumerate(self._given):
            if i == 0:
                stacked = weight.repeat(1, n_searches)
                biases = None if bias is None else bias.repeat(n_searches)
            else:
                stacked = weight.repeat(n_searches, 1, 1)
                biases = None if bias is None else bias.repeat(n_searches, 1, 1)
            weights.append(stacked.requires_grad_())
            if biases is not None:
                weights.append(biases.requires_grad_())
        return weights

    def pairs(self, weights):
        """Yield the weight and the bias, or None, of each layer."""
        weights = iter(weights)
        for _, bias in self._given:
            yield next(weights), None if bias is None else next(weights)

    def logits(self, weights, rows, points):
        (weight, bias), *others = self.pairs(weights)
        # every point runs through the searches of all points: only few more rows
        n_rows, both = len(rows), torch.cat([rows, points])
        h = functional.linear(both, weight.T, bias)
        n_searches = h.shape[1] // self.n_out
        own = self.own(h[n_rows:]).reshape(n_searches, 1, self.n_out)
        h = h[:n_rows].view(n_rows, n_searches, self.n_out).transpose(0, 1)
        if not others:
            return h, own[:, 0]
        h = torch.cat([h, own], dim=1)
        for (weight, bias), function in zip(others, self.functions, strict=True):
            h = stacked_linear(function(h), weight, bias)
        return h[:, :n_rows], h[:, n_rows]

    def own(self, block):
        """Return a view of each point in its own searches, (n_points, each, n_out)."""
        each = block.shape[1] // (len(block) * self.n_out)
        block = block.view(len(block), len(block), each, self.n_out)
        return block.diagonal(dim1=0, dim2=1).movedim(-1, 0)

    def n_weights(self):
        return sum(
            weight.numel() + (0 if bias is None else bias.numel())
            for weight, bias in self._given
        )

    def _output_biases(self, weights):
        *_, (_, bias) = self.pairs(weights)
        width = self._given[-1][0].shape[1]
        return None if bias is None else bias.view(-1, width)

    def by_search(self, weights):
        views = []
        for i, (weight, bias) in enumerate(self.pairs(weights)):
            if i == 0:
                weight = weight.unflatten(1, (-1, self.n_out)).transpose(0, 1)
            views.append(weight)
            if bias is not None:
                views.append(bias.view(len(weight), -1))
        return views

    def named(self, weights, search=slice(None)):
        found = {}
        views = iter(self.by_search(weights))
        for name, bias_name in self.layers:
            found[name] = next(views)[search].mT
            if bias_name is not None:
                found[bias_name] = next(views)[search]
        return {
            name: tensor.detach().clone(memory_format=torch.contiguous_format)
            for name, tensor in found.items()
        }


class WholeNetwork(Tail):
    """All weights of a network, vectorized over the searches."""

    def __init__(self, network, names=None):
        super().__init__(network)
        self._given = network.weights(names)
        self._each = Vectorized(self._one)

    def features(self, rows):
        return torch.cat(list(self.network.batches(rows)))

    def read(self, batch):
        with torch.no_grad():
            return batch, self.network.logits(batch)

    def structure(self):
        return {"bytes_per_row": self.bytes_per_row}

    def start(self, n_searches):
        return [
            tensor.expand(n_searches, *tensor.shape)
            .clone(memory_format=torch.contiguous_format)
            .requires_grad_()
            for tensor in self._given.values()
        ]

    def logits(self, weights, rows, points):
        own = points.repeat_interleave(len(weights[0]) // len(points), dim=0)
        return self._each(list(weights), own, rows=rows)

    def _one(self, weights, point, rows):
        """Return the logits of the samples and of a point by one model."""
        weights = dict(zip(self._given, weights, strict=True))
        # separate, so that the first layers are computed on shared samples
        of_rows = self.network.logits(rows, weights)
        return of_rows, self.network.logits(point[None], weights)[0]

    def n_weights(self):
        return sum(tensor.numel() for tensor in self._given.values())

    def _output_biases(self, weights):
        names = list(self._given)
        name = f"{self.network.head_name}.bias"
        return weights[names.index(name)] if name in names else None

    def by_search(self, weights):
        return list(weights)

    def named(self, weights, search=slice(None)):
        return {
            name: tensor[search].detach().clone()
            for name, tensor in zip(self._given, weights, strict=True)
        }


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


def _linear(args, kwargs):
    """Return input, weight and bias of a call of ``torch.nn.functional.linear``."""
    names = ("input", "weight", "bias")
    return [*args, *(kwargs.get(name) for name in names[len(args) :])]


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
        if func is functional.linear and _linear(args, kwargs)[1] is head
    ]
    place = places[-1] if places else None
    layers: list = []
    functions: list = []
    between: list = []
    while place is not None:
        func, args, kwargs, maker, (before, after) = calls[place]
        if func is functional.linear and len(before) == 2:
            _, weight, bias = _linear(args, kwargs)
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


def find_tail(network, scope, batch):
    """Return the `Tail` of a prepared `FunctionalNetwork` whose weights are searched.

    `scope` is "last", the last linear layer, "dense", all linear layers at its end, or
    "full". Raises if the logits are not the output of a linear layer.
    """
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
        sizes = [math.prod(after) for *_, (_, after) in _recorded(network, batch)]
        item = torch.finfo(network.dtype).bits // 8
        tail.bytes_per_row = 2 * item * sum(sizes) // len(batch)
    return tail


def restored_tail(network, structure, rows):
    """Return the part that another copy of the network has, see `find_tail`.

    Functions between layers are recorded again, in one forward pass of some samples.
    """
    if "bytes_per_row" in structure:
        tail = WholeNetwork(network)
        tail.bytes_per_row = structure["bytes_per_row"]
        return tail
    layers, functions = structure["layers"], []
    if len(layers) > 1:
        _, functions = _dense_layers(network, network.batch(rows))
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

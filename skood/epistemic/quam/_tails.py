"""Searched weights of a network, stacked for many searches at a time."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from collections.abc import Callable

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from skood.epistemic._vectorized import Vectorized, stacked_linear
from skood.nn._functional_network import symmetric

# Stacks of matrices with fewer columns are stored by column: their products take a
# third to half of the time (84 x 10 weights, on a CPU).
_NARROW = 16


class _InputOf(TorchFunctionMode):
    """Recorder of the input of the last linear map with a weight."""

    def __init__(self, weight):
        super().__init__()
        self._weight = weight

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if (
            func is functional.linear
            and linear_arguments(args, kwargs)[1] is self._weight
        ):
            # a copy, before an operation in place changes it
            self.taken = linear_arguments(args, kwargs)[0].detach().clone()
        return func(*args, **kwargs)


class Tail:
    """Base class of the parts of a network that are searched.

    S searches have separate, stacked weights. They share the training samples; each
    block of S / n_points searches belongs to one point.
    """

    # Maximum bytes of activations per search and sample of the penalty.
    bytes_per_row = 0

    # Methods of subclasses, see `DenseTail`.
    read: Callable
    structure: Callable
    start: Callable
    logits: Callable
    n_weights: Callable
    by_search: Callable
    named: Callable
    _output_biases: Callable

    def __init__(self, network):
        self.network = network

    def features(self, samples):
        """Return the input of the part for prepared samples, one row per sample."""
        batches = self.network.batches(samples)
        return torch.cat([self.read(batch)[0] for batch in batches])

    def flatten(self, weights):
        """Return stacked weights as rows, of shape (n_searches, n_weights)."""
        views = [view.detach().flatten(1) for view in self.by_search(weights)]
        return torch.cat(views, dim=1)

    def stacked(self, theta):
        """Return stacked weights, with gradient, from rows as of `flatten`."""
        weights = self.start(len(theta))
        views = self.by_search(weights)
        parts = theta.split([view[0].numel() for view in views], dim=1)
        with torch.no_grad():
            for view, block in zip(views, parts, strict=True):
                view.copy_(block.reshape(view.shape))
        return weights

    def scales(self):
        """Return the standard deviations of the entries of each searched tensor."""
        return _deviations([view[0] for view in self.by_search(self.start(1))])

    def move_outputs(self, weights, shifts):
        """Add shifts (n_searches,) to the biases of the first output, or raise."""
        biases = self._output_biases(weights)
        head = self.network.module.get_submodule(self.network.head_name or "")
        if biases is None and getattr(head, "bias", None) is not None:
            raise ValueError(
                "Searches around a regressor at first move the bias of the last layer "
                f"of {type(self.network.module).__name__}, which this scope does not "
                "search. Use scope='last', 'dense', 'full' or 'bias'."
            )
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
    weights of the other layers (n_searches, n_inputs, n_outputs), see `new_stack`.
    """

    def __init__(self, network, layers, functions):
        super().__init__(network)
        self.layers = layers  # pairs of names of weights and biases (or None)
        self.functions = functions  # before each layer except the first
        parameters = dict(network.module.named_parameters())
        self._weights = [
            (
                parameters[weight].detach().T.contiguous(),
                None if bias is None else parameters[bias].detach(),
            )
            for weight, bias in layers
        ]
        widths = [weight.shape[1] for weight, _ in self._weights]
        self.n_out = widths[0]
        self.bytes_per_row = 4 * sum(widths) * self._weights[0][0].element_size()

    def read(self, batch):
        """Return the input of the part and the logits, from one forward pass."""
        weight = self.network.module.get_parameter(self.layers[0][0])
        with torch.no_grad(), _InputOf(weight) as mode:
            logits = self.network.logits(batch)
        return mode.taken, logits

    def structure(self):
        """Return plain values from which `restored_tail` makes the part again."""
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
            logits = self.logits(weights, features, features[:1])[0][0]
            expected = self.network.logits(batch, self.named(weights, 0))
        if logits.shape != expected.shape:
            logits = symmetric(logits)
        atol = 1e-3 * float(expected.abs().max())
        return torch.allclose(logits, expected, rtol=0, atol=atol)

    def start(self, n_searches):
        """Return a list of stacked weights, copies of the network's, with gradient."""
        weights = []
        for i, (weight, bias) in enumerate(self._weights):
            if i == 0:
                stacked = weight.repeat(1, n_searches)
                biases = None if bias is None else bias.repeat(n_searches)
            else:
                stacked = new_stack(weight, n_searches, *weight.shape).copy_(weight)
                biases = None if bias is None else bias.repeat(n_searches, 1, 1)
            weights.append(stacked.requires_grad_())
            if biases is not None:
                weights.append(biases.requires_grad_())
        return weights

    def pairs(self, weights):
        """Yield the weight and the bias, or None, of each layer."""
        weights = iter(weights)
        for _, bias in self._weights:
            yield next(weights), None if bias is None else next(weights)

    def logits(self, weights, samples, points):
        """Return logits of the training samples and of the own point of each search.

        Shapes: (n_searches, n_samples, n_outputs) and (n_searches, n_outputs).
        `samples` and `points` are input of the part.
        """
        (weight, bias), *others = self.pairs(weights)
        # every point runs through the searches of all points: only few more rows
        n_samples, both = len(samples), torch.cat([samples, points])
        h = functional.linear(both, weight.T, bias)
        n_searches = h.shape[1] // self.n_out
        of_points = self.by_point(h[n_samples:]).reshape(n_searches, 1, self.n_out)
        h = h[:n_samples].view(n_samples, n_searches, self.n_out).transpose(0, 1)
        if not others:
            return h, of_points[:, 0]
        h = torch.cat([h, of_points], dim=1)
        for (weight, bias), function in zip(others, self.functions, strict=True):
            h = stacked_linear(function(h), weight, bias)
        return h[:, :n_samples], h[:, n_samples]

    def by_point(self, block):
        """Return a view of each point in its own searches, (n_points, each, n_out)."""
        each = block.shape[1] // (len(block) * self.n_out)
        block = block.view(len(block), len(block), each, self.n_out)
        return block.diagonal(dim1=0, dim2=1).movedim(-1, 0)

    def n_weights(self):
        """Return the number of weights of one search."""
        return sum(
            weight.numel() + (0 if bias is None else bias.numel())
            for weight, bias in self._weights
        )

    def _output_biases(self, weights):
        """Return a view (n_searches, n_outputs) of the last layer's biases, or None."""
        *_, (_, bias) = self.pairs(weights)
        width = self._weights[-1][0].shape[1]
        return None if bias is None else bias.view(-1, width)

    def by_search(self, weights):
        """Return views of stacked weights whose first axis is the searches."""
        views = []
        for i, (weight, bias) in enumerate(self.pairs(weights)):
            if i == 0:
                weight = weight.unflatten(1, (-1, self.n_out)).transpose(0, 1)
            views.append(weight)
            if bias is not None:
                views.append(bias.view(len(weight), -1))
        return views

    def named(self, weights, search=slice(None)):
        """Return copies of the weights of one or all searches by parameter name."""
        tensors = {}
        views = iter(self.by_search(weights))
        for name, bias_name in self.layers:
            tensors[name] = next(views)[search].mT
            if bias_name is not None:
                tensors[bias_name] = next(views)[search]
        return {
            name: tensor.detach().clone(memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()
        }


class WholeNetwork(Tail):
    """All or some weights of a network, by name, vectorized over the searches."""

    def __init__(self, network, names=None):
        super().__init__(network)
        self._names = names
        self._weights = network.weights(names)
        self._initial = list(self._weights.values())
        self._each = Vectorized(self._one)

    def features(self, samples):
        return torch.cat(list(self.network.batches(samples)))

    def read(self, batch):
        with torch.no_grad():
            return batch, self.network.logits(batch)

    def structure(self):
        return {"bytes_per_row": self.bytes_per_row, "names": self._names}

    def start(self, n_searches):
        return [
            tensor.expand(n_searches, *tensor.shape)
            .clone(memory_format=torch.contiguous_format)
            .requires_grad_()
            for tensor in self._initial
        ]

    def logits(self, weights, samples, points):
        of_points = points.repeat_interleave(len(weights[0]) // len(points), dim=0)
        return self._each(list(weights), of_points, samples=samples)

    def _one(self, weights, point, samples):
        """Return the logits of the samples and of a point by one model."""
        weights = self._by_name(weights)
        # separate, so that the first layers are computed on shared samples
        of_samples = self.network.logits(samples, weights)
        return of_samples, self.network.logits(point[None], weights)[0]

    def _by_name(self, weights):
        """Return the weights of the network, of one model or stacked, by name."""
        return dict(zip(self._weights, weights, strict=True))

    def of_one(self, theta):
        """Return weights of the network by name, from (n_weights,); differentiable."""
        parts = theta.split([tensor.numel() for tensor in self._initial])
        shapes = [tensor.shape for tensor in self._initial]
        pairs = zip(parts, shapes, strict=True)
        return self._by_name([block.view(shape) for block, shape in pairs])

    def n_weights(self):
        return sum(tensor.numel() for tensor in self._initial)

    def _output_biases(self, weights):
        names = list(self._weights)
        name = f"{self.network.head_name}.bias"
        return weights[names.index(name)] if name in names else None

    def by_search(self, weights):
        return list(weights)

    def named(self, weights, search=slice(None)):
        views = self._by_name([tensor[search] for tensor in weights])
        return {name: tensor.detach().clone() for name, tensor in views.items()}


class Adapters(WholeNetwork):
    """Sums W + BA of given weights and searched matrices of low rank.

    W of shape (n_outputs, ...) counts as a matrix of n_inputs columns; A is (rank,
    n_inputs), initially N(0, 1 / n_inputs) by the seed, and B (n_outputs, rank) zero.
    """

    def __init__(self, network, names, rank, seed):
        super().__init__(network, names)
        generator = torch.Generator().manual_seed(seed)
        self._initial = []
        for weight in self._weights.values():
            n_in = weight[0].numel()
            width = min(rank, len(weight), n_in)
            normals = torch.randn(width, n_in, generator=generator, dtype=torch.float64)
            self._initial.append((normals / math.sqrt(n_in)).to(weight))
            self._initial.append(weight.new_zeros(len(weight), width))

    def structure(self):
        return {**super().structure(), "adapters": True}

    def scales(self):
        # of a change of W, not of the matrices: B is zero
        deviations = _deviations(list(self._weights.values()))
        return [scale for each in deviations for scale in (0.0, each)]

    def _by_name(self, weights):
        pairs = zip(weights[::2], weights[1::2], strict=True)
        return {
            name: weight + (b @ a).unflatten(-1, weight.shape[1:])
            for (name, weight), (a, b) in zip(self._weights.items(), pairs, strict=True)
        }


def new_stack(like, *shape):
    """Return uninitialized stacked matrices in the faster memory layout."""
    if shape[-1] < _NARROW:
        return like.new_empty(*shape[:-2], shape[-1], shape[-2]).mT
    return like.new_empty(shape)


def _deviations(tensors):
    """Return the standard deviations of the entries of tensors; 1 if all are equal."""
    deviations = [float(tensor.detach().std(correction=0)) for tensor in tensors]
    return [value or 1.0 for value in deviations]


def linear_arguments(args, kwargs):
    """Return input, weight and bias of a call of ``torch.nn.functional.linear``."""
    names = ("input", "weight", "bias")
    return [*args, *(kwargs.get(name) for name in names[len(args) :])]

"""Default networks of `TorchClassifier` and construction of networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import inspect
from collections import OrderedDict

import torch
from torch import nn

from skood.utils._torch import evaluating, parameter_device, parameter_dtype


class MLP(nn.Sequential):
    """Multi-layer perceptron with ReLU activations, the default network for vectors.

    Samples of shape `input_shape` are flattened; `hidden` are the widths of the hidden
    layers, empty for a linear model. `n_classes` None: no head.
    """

    def __init__(self, input_shape, n_classes, hidden=(100,), dropout=0.0):
        width = 1
        for size in input_shape:
            width *= size
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for i, size in enumerate(hidden, start=1):
            layers[f"linear_{i}"] = nn.Linear(width, size)
            layers[f"relu_{i}"] = nn.ReLU()
            if dropout:
                layers[f"dropout_{i}"] = nn.Dropout(dropout)
            width = size
        if n_classes is not None:
            layers["head"] = nn.Linear(width, n_classes)
        super().__init__(layers)


class SmallConvNet(nn.Sequential):
    """Small convolutional network, the default for images (c, height, width).

    Two 3 x 3 convolutions of widths `channels` with ReLU; the first is followed by 2 x
    2 maximum pooling, the second by average pooling to a map of 4 to 7 pixels a side,
    one hidden layer and a linear head. `n_classes` None: no head.
    """

    def __init__(
        self, input_shape, n_classes, channels=(16, 32), hidden=64, dropout=0.0
    ):
        if len(input_shape) != 3:
            raise ValueError(
                f"SmallConvNet needs images of shape (channels, height, width), got "
                f"samples of shape {tuple(input_shape)}."
            )
        n_channels, height, width = input_shape
        first, second = channels
        halve = min(2, height), min(2, width)
        height, width = height // halve[0], width // halve[1]
        # fixed windows: adaptive pooling is not deterministic on CUDA
        window = max(1, height // 4), max(1, width // 4)
        height, width = height // window[0], width // window[1]
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv_1=nn.Conv2d(n_channels, first, 3, padding=1),
            relu_1=nn.ReLU(),
            pool_1=nn.MaxPool2d(halve),
            conv_2=nn.Conv2d(first, second, 3, padding=1),
            relu_2=nn.ReLU(),
            pool_2=nn.AvgPool2d(window),
            flatten=nn.Flatten(),
            linear=nn.Linear(second * height * width, hidden),
            relu_3=nn.ReLU(),
        )
        if dropout:
            layers["dropout"] = nn.Dropout(dropout)
        if n_classes is not None:
            layers["head"] = nn.Linear(hidden, n_classes)
        super().__init__(layers)


def default_module(input_shape):
    """Return the default network class for samples of a shape."""
    return SmallConvNet if len(input_shape) == 3 else MLP


class ModuleBuilder:
    """Factory of a network, for skorch, with checks of its arguments and output."""

    # Arguments of the factory, as named in error messages.
    _call = "input_shape, n_classes"
    _meaning = "the shape of one sample and the number of classes"

    # Names of the outputs, of their number, and of what is counted, likewise.
    _outputs, _width, _counted = "logits", "n_classes", "classes"

    def __init__(self, module, module_params, input_shape, n_classes):
        self.module = module
        self.module_params = module_params
        self.input_shape = input_shape
        self.n_classes = n_classes

    def __call__(self):
        """Return a new network in training mode."""
        if isinstance(self.module, nn.Module):
            raise TypeError(
                f"module must be a class or a factory, got an instance of "
                f"{type(self.module).__name__}: fitting would change it. Pass the "
                f"class with module_params, or a function ({self._call}) "
                f"-> module; a trained network goes to "
                f"skood.nn.pretrained(module, classes=...)."
            )
        factory = self.module or self._default()
        # copied, because a module among them would be trained in place
        params = copy.deepcopy(self.module_params or {})
        self._check_signature(factory, params)
        module = factory(*self._arguments(), **params)
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"module({self._call}) must return a torch module, got an "
                f"object of type {type(module).__name__}."
            )
        self._check_output(self._tried(module))
        return module.train()

    def _default(self):
        """Return the factory that is used if none is given."""
        return default_module(self.input_shape)

    def _arguments(self):
        """Return the positional arguments of the factory."""
        return self.input_shape, self.n_classes

    def _check_signature(self, factory, params):
        try:
            signature = inspect.signature(factory)
        except ValueError:  # some callables written in C have no signature
            return
        try:
            signature.bind(*self._arguments(), **params)
        except TypeError as error:
            name = getattr(factory, "__name__", type(factory).__name__)
            raise TypeError(
                f"module is called as module({self._call}, **module_params) "
                f"with {self._meaning}; {name} does "
                f"not accept that with module_params={params!r}: {error}. Its "
                f"parameters are {signature}."
            ) from error

    def _tried(self, module):
        """Return the output for two samples of zeros; this sizes lazy layers."""
        zeros = torch.zeros(
            (2, *self.input_shape),
            dtype=parameter_dtype(module),
            device=parameter_device(module),
        )
        try:
            with torch.no_grad(), evaluating(module):
                return module(zeros)
        except RuntimeError as error:
            raise ValueError(
                f"The module failed on two samples of zeros of shape "
                f"{self.input_shape}, dtype {zeros.dtype}: {error}. Build it for the "
                f"input_shape that it is called with."
            ) from error

    def _check_output(self, logits):
        """Raise if the output is not a row of the right width for two samples."""
        if not isinstance(logits, torch.Tensor):
            raise TypeError(
                f"The module must return one tensor of {self._outputs} of shape "
                f"(n_samples, {self._width}), got an object of type "
                f"{type(logits).__name__}."
            )
        if logits.shape != (2, self.n_classes):
            raise ValueError(
                f"The module must return {self._outputs} of shape (n_samples, "
                f"{self._width}): for 2 samples of shape {self.input_shape} and "
                f"{self.n_classes} {self._counted} {(2, self.n_classes)}, got "
                f"{tuple(logits.shape)}. Make the last layer as wide as the "
                f"{self._width} that the module is called with."
            )

"""Forward hooks that record the layers of a graph network."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import torch
from torch import nn

from skood.graph._linear_convolutions import linear_features, linear_form
from skood.graph._modules import FeatureLinear
from skood.nn._forward_hooks import Watcher


def is_convolution(module):
    """Return whether a module is a message passing layer of torch_geometric."""
    return hasattr(module, "message") and hasattr(module, "propagate")


def _is_linear(module):
    """Return whether a module is a linear layer, of torch or torch_geometric."""
    kind = type(module)
    return isinstance(module, (nn.Linear, FeatureLinear)) or (
        kind.__name__ == "Linear" and kind.__module__.startswith("torch_geometric.nn")
    )


def named_layers(module):
    """Yield the convolutions and the linear layers outside of them, with names."""
    inside: tuple = ()
    for name, child in module.named_modules():
        if name.startswith(inside) and inside:
            continue
        if is_convolution(child):
            yield name, child
            inside = (*inside, f"{name}." if name else "")
        elif _is_linear(child):
            yield name, child


class GraphWatcher(Watcher):
    """Forward hooks that also record the layers of torch_geometric, see `Watcher`."""

    def __init__(self, module, layers=(), pooling=None):
        self.convolutions: dict = {}
        super().__init__(module, layers, pooling)
        for name, child in named_layers(module):
            if isinstance(child, nn.Linear):
                continue  # hooked already
            self._hook(child.register_forward_hook, self._ran, name)
            if is_convolution(child):
                self._hook(child.register_forward_hook, self._convolution, name)
            elif not isinstance(child, FeatureLinear):
                self._hook(child.register_forward_hook, self._linear, name)

    def _convolution(self, name, module, args, kwargs, output):
        if isinstance(output, tuple) and output:  # with attention weights
            output = output[0]
        if isinstance(output, torch.Tensor):
            call = (args, kwargs)
            self.convolutions[name] = (name, module, call, output)
            values = _values(args, kwargs)
            if values is not None:
                self.last = (name, module, values, output)

    def forget(self):
        """Release the results of a forward pass."""
        super().forget()
        self.convolutions = {}

    def giver_of(self, output):
        """Return name, layer, input and logits of the layer that gives the logits."""
        found = super().head_of(output)
        if found is None and self.convolutions:
            own, self.candidates = self.candidates, self.convolutions
            found = super().head_of(output)
            self.candidates = own
        return found

    def head_of(self, output):
        """Return name, linear map, input and logits of the layer that gives the logits.

        The map of a convolution is its `LinearForm`, with aggregated input, or None.
        """
        found = self.giver_of(output)
        if found is None or not is_convolution(found[1]):
            return found
        name, layer, (args, kwargs), logits = found
        form = linear_form(layer)
        features = None if form is None else linear_features(layer, args, kwargs)
        if features is not None:
            return name, form, features, logits
        values = _values(args, kwargs)
        return None if values is None else (name, None, values, logits)


def _values(args, kwargs):
    """Return the values of the nodes among the arguments of a convolution."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, (tuple, list)) and value:  # of sources and targets
            value = value[-1]
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value
    return None

"""Functions of stacked tensors: mapped by torch, or item after item."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial

import torch
from torch.func import vmap


class Vectorized:
    """Function of tensors, applied along the first axis of stacked tensors.

    It runs under ``torch.func.vmap``; from the first time that torch cannot map it,
    `plain` (None: the same function) runs in a loop.
    """

    def __init__(self, function, plain=None):
        self._function, self._plain = function, plain or function
        self.is_mapped = True

    def __call__(self, *stacked, **shared):
        """Return stacked outputs; arguments are tensors, or lists of tensors."""
        if self.is_mapped:
            try:
                return vmap(partial(self._function, **shared))(*stacked)
            except (NotImplementedError, RuntimeError):
                self.is_mapped = False  # other errors are raised again below
        items = [
            tensors if isinstance(tensors, torch.Tensor) else zip(*tensors, strict=True)
            for tensors in stacked
        ]
        outputs = [self._plain(*item, **shared) for item in zip(*items, strict=True)]
        if isinstance(outputs[0], torch.Tensor):
            return torch.stack(outputs)
        return tuple(torch.stack(parts) for parts in zip(*outputs, strict=True))


def stacked_linear(x, weight, bias):
    """Return x W + b of stacked inputs, weights (n, n_inputs, n_outputs) and biases."""
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)

"""Gradients of many searches, in memory that is reused in each step."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy

import torch
from torch.nn import functional

from skood.epistemic.quam._tails import DenseTail, new_stack


def make_steps(tail, weights):
    """Return the gradients of stacked weights of a tail."""
    kind = DenseSteps if isinstance(tail, DenseTail) else AutogradSteps
    return kind(tail, weights)


class AutogradSteps:
    """Gradients by torch's automatic differentiation, for any tail."""

    def __init__(self, tail, weights):
        self._tail = tail
        self._weights = weights

    def forward(self, samples, points):
        """Return logits as in `Tail.logits`; store the values for `backward`."""
        with torch.enable_grad():
            self._logits = self._tail.logits(self._weights, samples, points)
        return tuple(logits.detach() for logits in self._logits)

    def evaluate(self, samples, points):
        """Return logits of the samples, which the next call may overwrite."""
        with torch.no_grad():
            return self._tail.logits(self._weights, samples, points)[0]

    def backward(self, row_gradient, point_gradient):
        """Set the gradients of the weights, from the gradients of the logits."""
        grads = torch.autograd.grad(
            self._logits,
            self._weights,
            (row_gradient, point_gradient),
            allow_unused=True,  # the network may have weights that it does not use
        )
        for weight, grad in zip(self._weights, grads, strict=True):
            if grad is not None:
                # fused Adam assumes the same memory layout of both
                weight.grad = grad.reshape(-1).view(weight.shape)
        del self._logits


class DenseSteps:
    """Gradients of linear layers by matrix products, in preallocated memory.

    Allocating some megabytes in each step would cost more than computing them. Outputs
    of the first layer have one row for each training sample, one before these for the
    own point of each search, and one after these for each point, in all searches.
    """

    def __init__(self, tail, weights):
        self._tail = tail
        self._pairs = list(tail.pairs([weight.detach() for weight in weights]))
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        self._grads = list(tail.pairs([weight.grad for weight in weights]))
        self._n_samples = -1
        self._evaluator: DenseSteps | None = None

    def _allocate(self, n_samples, points):
        """Allocate memory for the input and the outputs of all layers."""
        self._n_samples, self._first_gradient = n_samples, None
        self._both = points.new_empty(n_samples + len(points), points.shape[1])
        shape = 1 + len(self._both), self._pairs[0][0].shape[1]
        self._first = points.new_empty(shape)
        self._outputs = self._stacks(self._first)

    def _stacks(self, first):
        """Return memory for all layers, of the first one in the rows of `first`."""
        n_samples, n_out = self._n_samples, self._tail.n_out
        n_searches = first.shape[1] // n_out
        view = first[: n_samples + 1].view(n_samples + 1, n_searches, n_out)
        shapes = [(n_searches, n_samples + 1, w.shape[-1]) for w, _ in self._pairs[1:]]
        return [view.transpose(0, 1), *(new_stack(first, *shape) for shape in shapes)]

    def forward(self, samples, points):
        """Return logits as in `Tail.logits`; store the values for `backward`."""
        if len(samples) != self._n_samples:
            self._allocate(len(samples), points)
        torch.cat([samples, points], out=self._both)
        (weight, bias), *others = self._pairs
        first = self._first[1:]
        if bias is None:
            torch.mm(self._both, weight, out=first)
        else:
            torch.addmm(bias, self._both, weight, out=first)
        of_points = self._tail.by_point(first[len(samples) :])
        self._first[0].view(of_points.shape).copy_(of_points)
        self._values = []
        for i, (weight, bias) in enumerate(others):
            before, after = self._apply(self._tail.functions[i], self._outputs[i])
            self._values.append((before, after))
            h, out = after.detach(), self._outputs[i + 1]
            if bias is None:
                torch.bmm(h, weight, out=out)
            else:
                torch.baddbmm(bias, h, weight, out=out)
        logits = self._outputs[-1]
        return logits[:, 1:].detach(), logits[:, 0].detach()

    def evaluate(self, samples, points):
        """Return logits of the samples, which the next call overwrites."""
        if self._evaluator is None:
            self._evaluator = copy.copy(self)  # the same weights, separate memory
            self._evaluator._n_samples = -1
        return self._evaluator.forward(samples, points[:1])[0]

    def _apply(self, function, before):
        """Return the input and the values of a function, for `backward`."""
        if function is functional.relu:
            return None, before.relu_()
        before = before.detach().requires_grad_()
        with torch.enable_grad():
            after = function(before)
        return before, after

    def backward(self, row_gradient, point_gradient):
        """Set the gradients of the weights, from the gradients of the logits."""
        if self._first_gradient is None:
            # remains zero for pairs of a point and the search of another point
            self._first_gradient = torch.zeros_like(self._first)
            self._gradients = self._stacks(self._first_gradient)
            # a product in the order of the first layer would be a call for each search
            shape = self._gradients[0].shape
            self._product = self._first.new_empty(shape) if self._pairs[1:] else None
        gradient = self._gradients[-1]
        gradient[:, 1:] = row_gradient
        gradient[:, 0] = point_gradient
        for i in reversed(range(len(self._values))):
            before, after = self._values[i]
            to_weight, to_bias = self._grads[i + 1]
            torch.bmm(after.detach().mT, gradient, out=to_weight)
            if to_bias is not None:
                torch.sum(gradient, dim=1, keepdim=True, out=to_bias)
            weight, _ = self._pairs[i + 1]
            below = self._gradients[i]
            product = self._product if i == 0 else below
            torch.bmm(gradient, weight.mT, out=product)
            if before is None:
                torch.ops.aten.threshold_backward(product, after, 0, grad_input=below)
            else:
                below.copy_(torch.autograd.grad(after, before, product)[0])
            gradient = below
        gradient = self._first_gradient
        of_points = self._tail.by_point(gradient[1 + self._n_samples :])
        of_points.copy_(gradient[0].view(of_points.shape))
        to_weight, to_bias = self._grads[0]
        torch.mm(self._both.T, gradient[1:], out=to_weight)
        if to_bias is not None:
            torch.sum(gradient[1:], dim=0, out=to_bias)
        del self._values

"""Gradients of many searches, in memory that is reused in each step."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import Any

import torch

from skood.epistemic.quam._searched_layers import DenseTail

__all__ = ["AutogradSteps", "DenseSteps", "make_steps"]


def make_steps(tail, weights):
    """Return the gradients of stacked weights of a tail."""
    kind = DenseSteps if isinstance(tail, DenseTail) else AutogradSteps
    return kind(tail, weights)


class AutogradSteps:
    """Gradients by torch's automatic differentiation, for any tail."""

    def __init__(self, tail, weights):
        self._tail = tail
        self._weights = weights

    def forward(self, rows, points):
        """Return logits as in `Tail.logits`; store the values for `backward`."""
        with torch.enable_grad():
            self._logits = self._tail.logits(self._weights, rows, points)
        return tuple(logits.detach() for logits in self._logits)

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

    Allocating memory for gradients of some megabytes would cost more than computing
    them: the system clears it page by page. Functions between the layers are
    differentiated by torch.
    """

    def __init__(self, tail, weights):
        self._tail = tail
        self._pairs = list(tail.pairs([weight.detach() for weight in weights]))
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        self._grads = list(tail.pairs([weight.grad for weight in weights]))
        self._first: Any = None
        self._gradient: Any = None

    def _buffers(self, n_rows):
        """Allocate memory for the first layer's outputs and their gradient."""
        if self._first is None or len(self._first) != n_rows:
            weight = self._pairs[0][0]
            self._first = weight.new_empty(n_rows, weight.shape[1])
            # remains zero for pairs of a point and the search of another point
            self._gradient = weight.new_zeros(n_rows, weight.shape[1])
        return self._first, self._gradient

    def forward(self, rows, points):
        """Return logits as in `Tail.logits`; store the values for `backward`."""
        self._both, self._kept = torch.cat([rows, points]), []
        out, _ = self._buffers(len(self._both))
        return self._tail.run(self._pairs, self._both, len(rows), out, self._apply)

    def _apply(self, function, before):
        """Return the values of a function, and store them for `backward`."""
        before.requires_grad_()
        with torch.enable_grad():
            after = function(before)
        self._kept.append((before, after))
        return after.detach()

    def backward(self, row_gradient, point_gradient):
        """Set the gradients of the weights, from the gradients of the logits."""
        (n_searches, n_rows), n_out = row_gradient.shape[:2], self._tail.n_out
        grads = list(zip(self._pairs, self._grads, strict=True))[1:]
        if grads:
            g = torch.cat([row_gradient, point_gradient[:, None]], dim=1)
            for ((weight, _), (to_weight, to_bias)), kept in zip(
                reversed(grads), reversed(self._kept), strict=True
            ):
                before, after = kept
                h = after.detach().view(n_searches, n_rows + 1, -1)
                torch.bmm(h.mT, g, out=to_weight)
                if to_bias is not None:
                    torch.sum(g, dim=1, keepdim=True, out=to_bias)
                g = torch.bmm(g, weight.mT).flatten(0, 1)
                (g,) = torch.autograd.grad(after, before, g)
                g = g.view(n_searches, n_rows + 1, -1)
            row_gradient, point_gradient = g[:, :n_rows], g[:, n_rows]
        gradient = self._gradient
        shared = gradient[:n_rows].view(n_rows, n_searches, n_out)
        shared.copy_(row_gradient.transpose(0, 1))
        own = self._tail.own(gradient[n_rows:])
        own.copy_(point_gradient.reshape(own.shape))
        to_weight, to_bias = self._grads[0]
        torch.mm(self._both.T, gradient, out=to_weight)
        if to_bias is not None:
            torch.sum(gradient, dim=0, out=to_bias)
        del self._kept

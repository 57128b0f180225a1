"""Radial normalizing flows: class-conditional densities, computed together."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from skood.utils._torch import row_chunks

# Bound of the coordinates, whose square and its gradient are finite floats.
_FAR = 1e18

# Maximum bytes of activations that are stored for the backward pass at once.
_MAX_BLOCK_BYTES = 2**29

# Lower bound of a and s: softplus alone underflows to zero.
_NEAR = 1e-6


class RadialFlows(torch.nn.Module):
    r"""Class-conditional densities by radial flows to a standard normal distribution.

    A layer moves points along the rays from its center :math:`c`: with :math:`r = \|z -
    c\|`

    .. math:: f(z) = z + \frac{\beta}{a + r} (z - c), \qquad a > 0, \beta > -a,

    which is invertible, because :math:`\beta = s - a` with :math:`s > 0` [1]_.
    Initially s is about a, so that layers hardly move points: no class is denser by
    chance.

    References
    ----------
    .. [1] D. J. Rezende, S. Mohamed. Variational inference with normalizing flows.
       ICML 2015. Section 4.1.
    """

    def __init__(self, n_classes, n_features, n_layers):
        super().__init__()
        self.n_classes = n_classes
        bound = 1 / math.sqrt(n_features)
        self.centers = self._parameter(bound, n_layers, n_classes, n_features)
        self.raw_a = self._parameter(bound, n_layers, n_classes)
        # not exactly a: the gradient of the centers would be only rounding errors
        self.raw_s = self._parameter(0.1 * bound, n_layers, n_classes)
        with torch.no_grad():
            self.raw_s += self.raw_a

    @staticmethod
    def _parameter(bound, *shape):
        return torch.nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

    def transform(self, z):
        """Return points in the base distribution, and log determinants, by class."""
        n_points, n_features = z.shape
        z = z.clamp(-_FAR, _FAR)[:, None].expand(-1, self.n_classes, -1)
        log_det = z.new_zeros(n_points, self.n_classes)
        a, s = (functional.softplus(raw) + _NEAR for raw in (self.raw_a, self.raw_s))
        for center, a_k, s_k in zip(self.centers, a, s, strict=True):
            from_center = z - center
            r = torch.linalg.vector_norm(from_center, dim=-1)
            reach = a_k + r
            # Eigenvalues of the Jacobian along the ray, and d - 1 across it, without a
            # difference, so that neither is rounded to zero; section 4.1 of [1].
            along = (r * (r + 2 * a_k) + s_k * a_k) / reach**2
            across = (s_k + r) / reach
            z = z + ((s_k - a_k) / reach)[..., None] * from_center
            log_det = log_det + (n_features - 1) * across.log() + along.log()
        return z, log_det

    def forward(self, z):
        """Return the log density of each class, (n_points, n_classes)."""
        n_features = z.shape[1]
        z, log_det = self.transform(z)
        log_base = -0.5 * (z.square().sum(dim=-1) + n_features * math.log(2 * math.pi))
        return log_base + log_det

    def blocks(self, n_points):
        """Cut points into blocks whose activations can be stored at once."""
        n_layers, _, n_features = self.centers.shape
        row_bytes = 4 * self.n_classes * n_features * 4 * (1 + n_layers)
        return list(row_chunks(n_points, row_bytes, _MAX_BLOCK_BYTES))

    def in_blocks(self, z):
        """Return the result of `forward`, with activations of one block at a time."""
        # Several blocks are run again in the backward pass, which adds the gradients of
        # parameters to their `grad`: call `backward`.
        blocks = self.blocks(len(z))
        run: Callable = self
        if len(blocks) > 1 and z.requires_grad:
            # a flow draws no random numbers, so generator states need not be stored
            run = partial(checkpoint, run, use_reentrant=True, preserve_rng_state=False)
        return torch.cat([run(z[block]) for block in blocks])

"""Principal space of the features, and residuals outside of it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np

from skood.detectors._common._partial_fit import NotEnoughRows
from skood.utils._array_api import (
    array_namespace,
    as_double,
    cast_once,
    centered_rows,
    plus,
    row_dots,
)
from skood.utils._linalg import symmetric_eigh
from skood.utils._stored import stored
from skood.utils._warnings import warn


def added_scatter(scatter, chunk, origin):
    """Return a scatter around `origin` (None at first) with a chunk added."""
    centered = centered_rows(chunk.features, chunk.asarray(origin))
    if chunk.weight is not None:
        centered *= chunk.asarray(np.sqrt(chunk.weight))[:, None]
    return plus(scatter, centered.T @ centered)


@stored
class PrincipalSpace:
    """Principal space of samples and its orthogonal complement.

    `scatter` is the sum of outer products of the samples minus `origin`, `n_components`
    the dimension, or the fraction of squared length that the space explains.
    ``complement``, (n_features, n_features - dimension), is an orthonormal basis.
    """

    def __init__(self, scatter, origin, n_components):
        values, vectors, rank = symmetric_eigh(scatter)
        self.origin = origin
        self.dimension = _dimension(n_components, values, rank)
        # Ascending order: the first columns are outside the principal space.
        self.complement = np.ascontiguousarray(
            vectors[:, : len(values) - self.dimension]
        )
        self._shift = origin @ self.complement

    def residuals(self, chunk):
        """Return the length of the residual of each sample of a chunk."""
        xp = array_namespace(chunk.features)
        dtype = np.float32 if chunk.features.dtype == xp.float32 else np.float64
        complement = chunk.asarray(cast_once(self.complement, dtype))
        shift = chunk.asarray(cast_once(self._shift, dtype))
        projected = chunk.features @ complement
        projected -= shift
        return xp.sqrt(as_double(row_dots(projected, projected)))

    def onnx_residuals(self, features):
        """Return the residuals of features in an ONNX graph."""
        return (features @ self.complement - self._shift).squared().apply("Sqrt")

    def residual_vectors(self, features):
        """Return the residual of each feature: its square is its contribution."""
        gaps = (features - self.origin) @ self.complement
        return gaps @ self.complement.T


def _dimension(n_components, values, rank):
    """Return the dimension of the principal space, less than the features' rank."""
    n_features = len(values)
    if isinstance(n_components, str):
        wanted = n_features // 2
        for size, dimension in ((1024, 512), (512, 256)):
            if n_features >= size:
                wanted = dimension
                break
        if wanted >= rank > 0:
            warn(
                f"The training features have rank {rank} of {n_features}: a principal "
                f"space of dimension {wanted} would leave no residual. Using "
                f"n_components={rank // 2}; give more samples to use more."
            )
            wanted = rank // 2
    elif isinstance(n_components, Integral):
        wanted = int(n_components)
    else:
        explained = np.cumsum(values[::-1]) / values.sum()
        wanted = int(np.searchsorted(explained, n_components) + 1)
    if wanted >= rank:
        raise NotEnoughRows(
            f"n_components={n_components!r} gives a principal space of dimension "
            f"{wanted}, but the training features have rank {rank} (n_features = "
            f"{n_features}): no residual is left. Use fewer components or give more "
            "samples."
        )
    return wanted

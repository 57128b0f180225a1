"""A small graph with all that graphs may have."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy import sparse

from skood.graph import NodeSet

__all__ = ["messy_graph"]


def messy_graph(
    n_nodes=30,
    n_features=6,
    *,
    seed=0,
    density=0.12,
    weighted=True,
    loops=True,
    sparse_features=False,
    dtype=np.float32,
):
    """A directed graph with loops, weights, and two nodes without edges.

    The features have zeros.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_nodes, n_features)) * (
        rng.random((n_nodes, n_features)) < 0.6
    )
    A = (rng.random((n_nodes, n_nodes)) < density).astype(np.float64)
    np.fill_diagonal(A, (rng.random(n_nodes) < 0.3) if loops else 0.0)
    if weighted:
        A *= rng.uniform(0.2, 3.0, size=A.shape)
    A[-2:] = A[:, -2:] = 0.0
    X = X.astype(dtype)
    return NodeSet((sparse.csr_array(X) if sparse_features else X, A))

"""A small graph with all that graphs may have, and densities by a loop."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
from scipy import sparse

from skood.graph import NodeSet


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


def _softplus(value):
    return math.log1p(math.exp(value)) + 1e-6


def naive_log_density(flows, z, c):
    """log p(z | c) as the paper prints it, with h, its derivative and beta."""
    z, d, log_det = np.array(z), len(z), 0.0
    for k in range(len(flows.centers)):
        center = flows.centers[k, c].detach().double().numpy()
        a = _softplus(flows.raw_a[k, c].item())
        beta = -a + _softplus(flows.raw_s[k, c].item())
        r = math.sqrt(sum((z - center) ** 2))
        h, slope = 1 / (a + r), -1 / (a + r) ** 2
        log_det += (d - 1) * math.log(1 + beta * h)
        log_det += math.log(1 + beta * h + beta * slope * r)
        z = z + beta * h * (z - center)
    return -0.5 * sum(z**2) - 0.5 * d * math.log(2 * math.pi) + log_det

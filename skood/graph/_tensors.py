"""Graphs as torch tensors, and their aggregation in networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import torch
from scipy import sparse

# Torch's warnings of sparse tensors (beta state, disabled checks) are shown once per
# process: at import, since `catch_warnings` in a later call could change the filters of
# other threads permanently.
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Sparse ", UserWarning)
    torch.sparse_csr_tensor([0, 1], [0], [1.0], size=(1, 1))


def _csr(matrix, device, dtype):
    """Return a SciPy matrix in CSR format as a torch tensor."""
    return torch.sparse_csr_tensor(
        torch.tensor(matrix.indptr, dtype=torch.int32, device=device),
        torch.tensor(matrix.indices, dtype=torch.int32, device=device),
        torch.tensor(matrix.data, dtype=dtype, device=device),
        size=matrix.shape,
    )


def sparse_pair(matrix, device, dtype):
    """Return a SciPy matrix and its transpose as torch tensors in CSR format."""
    matrix = sparse.csr_array(matrix)
    return _csr(matrix, device, dtype), _csr(sparse.csr_array(matrix.T), device, dtype)


def _product(matrix, dense):
    """Return the product of a sparse matrix and a dense one."""
    if dense.device.type != "cpu" or not torch.backends.mkl.is_available():
        return matrix @ dense
    # `@` fills the result with zeros and copies it, which takes a third of the time
    out = dense.new_empty(matrix.shape[0], dense.shape[1])
    return torch.addmm(out, matrix, dense, beta=0, out=out)


class _Product(torch.autograd.Function):
    """Product of a constant sparse matrix and a dense one."""

    @staticmethod
    def forward(ctx, matrix, transposed, dense):
        ctx.swapped = transposed, matrix
        return _product(matrix, dense)

    @staticmethod
    def backward(ctx, gradient):
        return None, None, _Product.apply(*ctx.swapped, gradient.contiguous())


class SparseRows:
    """Sparse features of nodes, which networks multiply by weights."""

    def __init__(self, pair, order):
        self.pair = pair
        self.order = order

    @property
    def shape(self):
        """Shape (n_nodes, n_features)."""
        return self.pair[0].shape

    @property
    def columns(self):
        """Column of each value."""
        return self.pair[0].col_indices()

    @property
    def values(self):
        """Nonzero values, row by row."""
        return self.pair[0].values()

    def with_values(self, values):
        """Return features with other values at the same positions."""
        pair = tuple(
            torch.sparse_csr_tensor(
                old.crow_indices(), old.col_indices(), new, size=old.shape
            )
            for old, new in zip(
                self.pair, (values, values.index_select(0, self.order)), strict=True
            )
        )
        return SparseRows(pair, self.order)

    def to_dense(self):
        """Return the features as a dense tensor."""
        return self.pair[0].to_dense()

    def __matmul__(self, dense):
        return _Product.apply(*self.pair, dense)


def attend(edges, targets, scores, values, dropout):
    """Return sums over in-neighbors, weighted by a softmax of scores of the edges.

    Scores have shape (n_edges, n_heads); head i weights the i-th part of the columns.
    """
    starts = edges.pair[0].crow_indices().long()
    top = torch.segment_reduce(scores.detach(), "max", offsets=starts, axis=0)
    weights = (scores - top.index_select(0, targets)).exp()
    total = torch.segment_reduce(weights, "sum", offsets=starts, axis=0)
    by_head = dropout(weights).T.contiguous()
    parts = values.chunk(len(by_head), dim=1)
    sums = [
        _WeightedSum.apply(edges, weight, part) / total[:, [head]]
        for head, (weight, part) in enumerate(zip(by_head, parts, strict=True))
    ]
    return torch.cat(sums, dim=1)


class _WeightedSum(torch.autograd.Function):
    """Product of a sparse matrix with the given values and a dense matrix."""

    @staticmethod
    def forward(ctx, edges, weight, dense):
        ctx.edges = edges.with_values(weight)
        ctx.save_for_backward(dense)
        return _product(ctx.edges.pair[0], dense.contiguous())

    @staticmethod
    def backward(ctx, gradient):
        (dense,) = ctx.saved_tensors
        matrix, transposed = ctx.edges.pair
        gradient = gradient.contiguous()
        of_weight = torch.sparse.sampled_addmm(matrix, gradient, dense.T, beta=0)
        return None, of_weight.values(), _product(transposed, gradient)


class GraphTensors:
    """Graph on a device, the input of networks; the graph caches its tensors."""

    def __init__(self, graph, device, dtype=torch.float32):
        self.graph = graph
        self.device = device
        self.dtype = dtype
        # The graph stores the tensors, but no references to itself.
        self._made = graph.derived(("tensors", str(device), str(dtype)), dict)

    def _once(self, key, make):
        if key not in self._made:
            # Tensors created in inference mode could not be used in training.
            with torch.inference_mode(False):
                self._made[key] = make()
        return self._made[key]

    @property
    def shape(self):
        """Shape (n_nodes, n_features)."""
        return self.graph.X.shape

    @property
    def x(self):
        """Features of all nodes: a dense tensor, or `SparseRows`."""
        return self._once("x", self._features)

    def _features(self):
        X = self.graph.X
        if not sparse.issparse(X):
            X = np.ascontiguousarray(X)  # the layout determines the dropped entries
            return torch.tensor(X, device=self.device, dtype=self.dtype)
        return self._sparse_rows(X)

    def _sparse_rows(self, X):
        places = sparse.csr_array(
            (np.arange(1, X.nnz + 1), X.indices, X.indptr), shape=X.shape
        )
        order = torch.tensor(sparse.csr_array(places.T).data - 1, device=self.device)
        return SparseRows(sparse_pair(X, self.device, self.dtype), order)

    @property
    def attention_edges(self):
        """Matrix of edges into nodes, each with one from itself; target per edge."""
        return self._once("attention", self._attention_edges)

    def _attention_edges(self):
        into = sparse.csr_array(self.graph.adjacency.T)
        into.data = np.ones_like(into.data)
        into = into + sparse.csr_array(sparse.eye(into.shape[0], format="csr"))
        targets = np.repeat(np.arange(into.shape[0]), np.diff(into.indptr))
        return self._sparse_rows(into), torch.tensor(targets, device=self.device)

    @property
    def dense(self):
        """Features of all nodes as a dense tensor."""
        if isinstance(self.x, SparseRows):
            return self._once("dense", self.x.to_dense)
        return self.x

    @property
    def edge_index(self):
        """First and second node of each edge, int64 of shape (2, n_edges)."""
        return self._once("edges", self._edges)

    def _edges(self):
        edges = self.graph.adjacency.tocoo()
        index = np.stack([edges.row, edges.col]).astype(np.int64)
        return torch.tensor(index, device=self.device)

    @property
    def edge_weight(self):
        """Weight of each edge, or None if all are one."""
        return self._once("weights", self._weights)

    def _weights(self):
        if not self.graph.is_weighted:
            return None
        weights = self.graph.adjacency.data
        return torch.tensor(weights, device=self.device, dtype=self.dtype)

    def aggregate(self, kind, values):
        """Aggregate the values, (n_nodes, k), of the in-neighbors of each node."""
        options = self.device, self.dtype
        pair = self._once(
            kind, lambda: sparse_pair(self.graph.operator(kind), *options)
        )
        return _Product.apply(*pair, values)

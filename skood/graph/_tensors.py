"""Graphs as torch tensors, and their aggregation in networks."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from functools import cache, cached_property, partial

import numpy as np
import torch
from scipy import sparse

# Torch's warnings of sparse tensors (beta state, disabled checks) are shown once per
# process: at import, since `catch_warnings` in a later call could change the filters of
# other threads permanently.
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Sparse ", UserWarning)
    torch.sparse_csr_tensor([0, 1], [0], [1.0], size=(1, 1))


def _product(matrix, dense):
    """Return the product of a sparse matrix and a dense one."""
    if dense.device.type != "cpu" or not torch.backends.mkl.is_available():
        return matrix @ dense
    # `@` fills the result with zeros and copies it, which takes a third of the time
    out = dense.new_empty(matrix.shape[0], dense.shape[1])
    return torch.addmm(out, matrix, dense, beta=0, out=out)


class _Product(torch.autograd.Function):
    """Product of constant `SparseRows`, or of their transpose, and a dense matrix."""

    @staticmethod
    def forward(ctx, factor, is_transposed, dense):
        ctx.factor, ctx.is_transposed = factor, is_transposed
        if ctx.needs_input_grad[2]:  # it is made before the backward pass
            ctx.needed = factor.transposed
        return _product(factor.transposed if is_transposed else factor.matrix, dense)

    @staticmethod
    def backward(ctx, gradient):
        others = ctx.factor, not ctx.is_transposed, gradient.contiguous()
        return None, None, _Product.apply(*others)


class SparseRows:
    """Sparse features of nodes, or weights of edges, that are multiplied by matrices.

    A gradient needs the transpose, which is made, and sent to the device, for it.
    """

    def __init__(self, matrix, find_transpose):
        self.matrix = matrix
        self._find_transpose = find_transpose

    @classmethod
    def of(cls, matrix, device, dtype):
        """Return a SciPy matrix on a device."""
        matrix = sparse.csr_array(matrix)
        tensor = torch.sparse_csr_tensor(
            torch.tensor(matrix.indptr, dtype=torch.int32, device=device),
            torch.tensor(matrix.indices, dtype=torch.int32, device=device),
            torch.tensor(matrix.data, dtype=dtype, device=device),
            size=matrix.shape,
        )
        return cls(tensor, cache(partial(_transpose, matrix, device)))

    @property
    def shape(self):
        """Shape (n_nodes, n_features)."""
        return self.matrix.shape

    @property
    def columns(self):
        """Column of each value."""
        return self.matrix.col_indices()

    @property
    def values(self):
        """Nonzero values, row by row."""
        return self.matrix.values()

    @cached_property
    def transposed(self):
        """Transpose of the matrix, in CSR format."""
        starts, columns, order = self._find_transpose()
        values = self.values.index_select(0, order)
        return torch.sparse_csr_tensor(starts, columns, values, size=self.shape[::-1])

    def with_values(self, values):
        """Return features with other values at the same positions."""
        starts = self.matrix.crow_indices()
        matrix = torch.sparse_csr_tensor(starts, self.columns, values, size=self.shape)
        return SparseRows(matrix, self._find_transpose)

    def to_dense(self):
        """Return the features as a dense tensor."""
        return self.matrix.to_dense()

    def __matmul__(self, dense):
        return _Product.apply(self, False, dense)


def _transpose(matrix, device):
    """Return CSR indices of the transpose, and the place of each value before."""
    places = np.arange(1, matrix.nnz + 1)
    places = sparse.csr_array(
        (places, matrix.indices, matrix.indptr), shape=matrix.shape
    )
    turned = sparse.csr_array(places.T)
    return (
        torch.tensor(turned.indptr, dtype=torch.int32, device=device),
        torch.tensor(turned.indices, dtype=torch.int32, device=device),
        torch.tensor(turned.data - 1, device=device),
    )


def attend(edges, targets, scores, values, dropout):
    """Return sums over in-neighbors, weighted by a softmax of scores of the edges.

    Scores have shape (n_edges, n_heads); head i weights the i-th part of the columns.
    """
    starts = edges.matrix.crow_indices().long()
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
        if ctx.needs_input_grad[2]:
            ctx.needed = ctx.edges.transposed
        ctx.save_for_backward(dense)
        return _product(ctx.edges.matrix, dense.contiguous())

    @staticmethod
    def backward(ctx, gradient):
        (dense,) = ctx.saved_tensors
        gradient, matrix = gradient.contiguous(), ctx.edges.matrix
        of_weight = torch.sparse.sampled_addmm(matrix, gradient, dense.T, beta=0)
        return None, of_weight.values(), _product(ctx.edges.transposed, gradient)


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
        return SparseRows.of(X, self.device, self.dtype)

    @property
    def attention_edges(self):
        """Matrix of edges into nodes, each with one from itself; target per edge."""
        return self._once("attention", self._attention_edges)

    def _attention_edges(self):
        into = sparse.csr_array(self.graph.adjacency.T)
        into.data = np.ones_like(into.data)
        into = into + sparse.csr_array(sparse.eye(into.shape[0], format="csr"))
        targets = np.repeat(np.arange(into.shape[0]), np.diff(into.indptr))
        edges = SparseRows.of(into, self.device, self.dtype)
        return edges, torch.tensor(targets, device=self.device)

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
        operator = self._once(
            kind,
            lambda: SparseRows.of(self.graph.operator(kind), self.device, self.dtype),
        )
        return operator @ values

"""Graphs as tensors: what they hold, products with them and their gradients."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import weakref

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from skood.graph import NodeSet
from skood.graph._tensors import (
    GraphTensors,
    SparseRows,
    _product,
)
from tests._loops import looped
from tests.graph._messy import messy_graph

CPU = torch.device("cpu")
KINDS = ("sum", "mean", "walk", "symmetric")


def _naive(A, kind):
    """The operator of a dense adjacency matrix, node by node."""
    n = len(A)
    B = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            B[i, j] = A[j, i]  # node i hears of node j
    if kind in ("walk", "symmetric"):
        for i in range(n):
            if B[i, i] == 0:
                B[i, i] = 1.0
    degrees = [sum(row) for row in B]
    for i in range(n):
        for j in range(n):
            if kind == "symmetric":
                B[i, j] /= np.sqrt(degrees[i] * degrees[j])
            elif kind != "sum" and degrees[i] > 0:
                B[i, j] /= degrees[i]
    return B


# --- what they hold ----------------------------------------------------------------


@pytest.mark.parametrize("sparse_features", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features(sparse_features, dtype):
    nodes = messy_graph(sparse_features=sparse_features, dtype=np.float64)
    tensors = GraphTensors(nodes.graph, CPU, dtype)
    assert tensors.shape == (30, 6)
    assert tensors.x.shape == (30, 6)
    assert isinstance(tensors.x, SparseRows) is sparse_features
    assert tensors.dense.dtype == dtype
    X = messy_graph(dtype=np.float64).features
    assert_array_equal(tensors.dense, X.astype(str(dtype)[6:]))


def test_edges():
    nodes = messy_graph()
    tensors = GraphTensors(nodes.graph, CPU)
    A = nodes.adjacency.toarray()
    first, second = tensors.edge_index.numpy()
    assert tensors.edge_index.dtype == torch.int64
    assert len(first) == (A > 0).sum()
    assert_array_equal(tensors.edge_weight, A[first, second])


def test_unit_weights_are_none():
    assert GraphTensors(messy_graph(weighted=False).graph, CPU).edge_weight is None
    arrays = NodeSet((np.ones((3, 2)), np.zeros((3, 3))))
    tensors = GraphTensors(arrays.graph, CPU)
    assert tensors.edge_weight is None
    assert tensors.edge_index.shape == (2, 0)


def test_made_once_for_a_device_and_a_kind_of_number():
    graph = messy_graph(sparse_features=True).graph
    tensors = GraphTensors(graph, CPU)
    again = GraphTensors(graph, torch.device("cpu"))
    double = GraphTensors(graph, CPU, torch.float64)
    for name in ("x", "dense", "edge_index", "edge_weight"):
        assert getattr(again, name) is getattr(tensors, name)
        assert getattr(double, name) is not getattr(tensors, name)


@pytest.mark.parametrize("sparse_features", [False, True])
def test_they_go_with_the_graph(sparse_features):
    """At once: nothing that the graph keeps refers to it."""
    nodes = messy_graph(sparse_features=sparse_features)
    tensors = GraphTensors(nodes.graph, CPU)
    tensors.aggregate("walk", tensors.dense)
    made = [tensors.dense, tensors.edge_index, tensors.edge_weight, nodes.graph]
    references = [weakref.ref(thing) for thing in made]
    del tensors, made
    assert all(reference() is not None for reference in references)
    del nodes
    assert all(reference() is None for reference in references)


def test_made_in_inference_mode_they_can_be_trained_with():
    nodes = messy_graph()
    with torch.inference_mode():
        tensors = GraphTensors(nodes.graph, CPU)
        tensors.aggregate("mean", tensors.dense)
        assert not tensors.edge_weight.is_inference()
    weight = torch.ones(6, 2, requires_grad=True)
    tensors.aggregate("mean", tensors.x @ weight).sum().backward()
    expected = _naive(nodes.adjacency.toarray().astype(np.float64), "mean").sum(axis=0)
    grad = weight.grad[:, 0]
    assert_allclose(grad, expected @ nodes.features, rtol=1e-4, atol=1e-4)


# --- products ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@looped("k", [0, 1, 5])
def test_aggregate_against_a_loop(kind, k):
    nodes = messy_graph()
    H = np.random.default_rng(1).normal(size=(30, k))
    tensors = GraphTensors(nodes.graph, CPU, torch.float64)
    aggregated = tensors.aggregate(kind, torch.tensor(H))
    expected = _naive(nodes.adjacency.toarray().astype(np.float64), kind) @ H
    assert_allclose(aggregated, expected, rtol=1e-12, atol=1e-13)
    single = GraphTensors(nodes.graph, CPU).aggregate(kind, torch.tensor(H).float())
    assert single.dtype == torch.float32
    assert_allclose(single, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_of_aggregate(kind):
    tensors = GraphTensors(messy_graph(n_nodes=8).graph, CPU, torch.float64)
    H = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)

    def aggregate(H):
        return tensors.aggregate(kind, H)

    assert torch.autograd.gradcheck(aggregate, (H,))
    assert torch.autograd.gradgradcheck(aggregate, (H,))


@pytest.mark.parametrize("mkl", [True, False])
@pytest.mark.parametrize("layout", ["rows", "columns", "every second"])
def test_product_of_any_layout(monkeypatch, mkl, layout):
    """The memory that the result is written to may hold anything, such as NaN."""
    if not (mkl and torch.backends.mkl.is_available()):
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    rng = np.random.default_rng(0)
    S = rng.normal(size=(40, 30)) * (rng.random((40, 30)) < 0.2)
    S[3] = 0.0
    D = torch.tensor(rng.normal(size=(30, 8)))
    if layout == "columns":
        D = D.T.contiguous().T
    elif layout == "every second":
        D = D.repeat_interleave(2, dim=1)[:, ::2]
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda self, *shape: self.new_full(shape, np.nan)
    )
    rows = SparseRows.of(sparse.csr_array(S), CPU, torch.float64)
    assert_allclose(_product(rows.matrix, D), S @ D.numpy(), rtol=1e-12)
    back = _product(rows.transposed, torch.tensor(S[:, :4]))
    assert_allclose(back, S.T @ S[:, :4], rtol=1e-12, atol=1e-15)


def test_gradient_of_a_repeated_number():
    """`sum` hands back an expanded gradient, which is no array in memory."""
    nodes = messy_graph()
    tensors = GraphTensors(nodes.graph, CPU, torch.float64)
    H = torch.randn(30, 4, dtype=torch.float64, requires_grad=True)
    tensors.aggregate("walk", H).sum().backward()
    columns = _naive(nodes.adjacency.toarray().astype(np.float64), "walk").sum(axis=0)
    assert_allclose(H.grad, np.repeat(columns[:, None], 4, 1), rtol=1e-12)


def test_indices_are_of_the_size_that_products_take():
    """MKL would convert indices of 64 bits in each product."""
    tensors = GraphTensors(messy_graph(sparse_features=True).graph, CPU, torch.float32)
    tensors.aggregate("walk", tensors.dense)
    for rows in (tensors._made["walk"], tensors.x):
        for matrix in (rows.matrix, rows.transposed):
            kinds = {matrix.crow_indices().dtype, matrix.col_indices().dtype}
            assert kinds == {torch.int32}


# --- sparse features ---------------------------------------------------------------


def _sparse_rows(seed=0):
    nodes = messy_graph(sparse_features=True, seed=seed, dtype=np.float64)
    return GraphTensors(nodes.graph, CPU, torch.float64).x


def test_sparse_features_times_weights():
    x = _sparse_rows()
    W = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda W: x @ W, (W,))
    assert_allclose((x @ W).detach(), (x.to_dense() @ W).detach())
    samples, columns = np.nonzero(x.to_dense().numpy())
    assert_array_equal(x.columns, columns)
    assert_array_equal(x.values, x.to_dense().numpy()[samples, columns])


def test_sparse_features_with_other_values():
    """The transpose, which gradients go by, has the new values in the right places."""
    x = _sparse_rows()
    values = torch.randn_like(x.values)
    other = x.with_values(values)
    dense = torch.zeros(30, 6, dtype=torch.float64)
    samples, columns = np.nonzero(x.to_dense().numpy())
    dense[samples, columns] = values
    assert torch.equal(other.to_dense(), dense)
    W = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    (other @ W).square().sum().backward()
    expected = 2 * dense.T @ (dense @ W.detach())
    assert_allclose(W.grad, expected, rtol=1e-12)
    assert torch.equal(x.to_dense(), _sparse_rows().to_dense())  # as they were

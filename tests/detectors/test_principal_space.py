"""Tests of the principal space and of what lies outside of it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch

from skood.detectors._common._partial_fit import NotEnoughRows
from skood.detectors._common._principal_space import (
    PrincipalSpace,
    added_scatter,
)
from skood.exceptions import SkoodWarning
from skood.nn._outputs import Head, NetworkOutputs
from skood.utils._array_api import to_host


def _rows(n_samples=60, n_features=5, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, n_features)) * np.arange(1, n_features + 1) + 2
    return X.astype(dtype)


def _space(X, n_components, origin=None):
    origin = np.zeros(X.shape[1]) if origin is None else origin
    gaps = X.astype(np.float64) - origin
    return PrincipalSpace(gaps.T @ gaps, origin, n_components)


def test_origin_is_the_nearest_zero_of_the_head():
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(2, 4)), rng.normal(size=2)
    u = Head(W, b).origin
    np.testing.assert_allclose(W @ u + b, 0, atol=1e-12)
    shortest, *_ = np.linalg.lstsq(W, -b, rcond=None)
    np.testing.assert_allclose(u, shortest, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_of_a_head_is_not_inverted(dtype):
    """Rows that sum to zero, but for rounding."""
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(3, 4)), np.array([1.0, 2.0, -3.0])
    W -= W.mean(axis=0)
    noisy = (W + np.finfo(dtype).eps * rng.normal(size=(3, 4))).astype(dtype)
    expected, *_ = np.linalg.lstsq(W, -b, rcond=1e-6)
    got = Head(noisy, b.astype(dtype)).origin
    np.testing.assert_allclose(
        got, expected, rtol=1e-4 if dtype is np.float32 else 1e-9
    )


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_scatter_is_a_sum_over_chunks(kind):
    X, origin = _rows(dtype=np.float32), np.arange(5.0)
    scatter = None
    for samples in np.split(X, [1, 20]):
        part = NetworkOutputs(torch.from_numpy(samples) if kind == "torch" else samples)
        before = None if scatter is None else to_host(scatter).copy()
        new = added_scatter(scatter, part, origin)
        if before is not None:
            np.testing.assert_array_equal(to_host(scatter), before)
        scatter = new
    gaps = X.astype(np.float64) - origin
    np.testing.assert_allclose(to_host(scatter), gaps.T @ gaps, rtol=1e-12)
    assert isinstance(scatter, np.ndarray) == (kind == "numpy")


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_components", [1, 4])
def test_residuals(n_components, dtype, kind):
    X, origin = _rows(dtype=dtype), np.arange(5.0)
    space = _space(X, n_components, origin)
    _, _, vectors = np.linalg.svd(X - origin)
    rest = (X - origin) @ vectors[n_components:].T
    part = NetworkOutputs(torch.from_numpy(X) if kind == "torch" else X)
    residuals = space.residuals(part)
    assert type(residuals) is type(part.features)
    rtol = 1e-4 if dtype is np.float32 else 1e-9
    np.testing.assert_allclose(residuals, np.linalg.norm(rest, axis=1), rtol=rtol)
    parts = space.residual_vectors(X) ** 2
    np.testing.assert_allclose(parts, (rest @ vectors[n_components:]) ** 2, atol=1e-8)
    assert space.dimension == n_components
    product = space.complement.T @ space.complement
    np.testing.assert_allclose(product, np.eye(5 - n_components), atol=1e-12)


@pytest.mark.parametrize(
    "n_features, dimension", [(1, 0), (7, 3), (511, 255), (512, 256), (1024, 512)]
)
def test_automatic_dimension(n_features, dimension):
    space = PrincipalSpace(np.eye(n_features), np.zeros(n_features), "auto")
    assert space.dimension == dimension


@pytest.mark.parametrize("share, dimension", [(0.4, 1), (0.5, 1), (0.51, 2), (0.9, 3)])
def test_share_of_the_squared_length(share, dimension):
    scatter = np.diag([1.0, 5.0, 2.0, 2.0])  # shares .1, .5, .2, .2
    assert PrincipalSpace(scatter, np.zeros(4), share).dimension == dimension


def test_too_little_rank():
    scatter = np.diag([1.0, 2.0, 0, 0, 0, 0])
    message = "rank 2 of 6: .*dimension 3 would leave no.*n_components=1; give more"
    with pytest.warns(SkoodWarning, match=message):
        assert PrincipalSpace(scatter, np.zeros(6), "auto").dimension == 1
    for wanted in (2, 0.99):
        with pytest.raises(NotEnoughRows, match=r"dimension 2, but .*rank 2"):
            PrincipalSpace(scatter, np.zeros(6), wanted)
    with pytest.raises(NotEnoughRows, match="rank 0"):
        PrincipalSpace(np.zeros((6, 6)), np.zeros(6), "auto")

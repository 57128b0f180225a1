"""Tests of exact quantiles without sorting."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import tracemalloc

import numpy as np
import pytest

from skood.rectifiers import _quantiles as _quantile
from skood.rectifiers._quantiles import column_quantiles, pooled_quantile

QUANTILES = [0.0, 0.03, 0.1, 0.5, 0.77, 0.9, 0.99, 1.0]


def _naive(values, quantile):
    """Linear interpolation between order statistics, from a sorted list."""
    ordered = sorted(float(value) for value in values)
    position = quantile * (len(ordered) - 1)
    rank = math.floor(position)
    weight = position - rank
    low, high = ordered[rank], ordered[min(rank + 1, len(ordered) - 1)]
    return low * (1 - weight) + high * weight


def _arrays():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(97, 13))
    return {
        "normal": normal,
        "float32": normal.astype(np.float32),
        "relu": np.maximum(normal, 0).astype(np.float32),  # half of it is zero
        "integers": rng.integers(-2, 3, size=(97, 13)).astype(float),
        "constant": np.full((97, 13), 0.1),
        "two values": np.where(normal > 1, 5.0, -5.0),
        "heavy tails": np.exp(20 * normal),
        "sorted": np.sort(normal, axis=None).reshape(97, 13),
        "one row": normal[:1],
        "one column": normal[:, :1],
        "one value": normal[:1, :1],
        "fortran": np.asfortranarray(normal),
    }


@pytest.fixture
def small_parts(monkeypatch):
    """Constants so small that every branch runs on small arrays."""
    monkeypatch.setattr(_quantile, "_MAX_CANDIDATES", 7)
    monkeypatch.setattr(_quantile, "_N_DRAWS", 40)
    monkeypatch.setattr(_quantile, "_CHUNK_BYTES", 1500)
    monkeypatch.setattr(_quantile, "_BLOCK_BYTES", 3000)


def _check(X, mask):
    values = X if mask is None else X[mask]
    for quantile in QUANTILES:
        got = pooled_quantile(X, quantile, mask)
        assert isinstance(got, float)
        assert got == pytest.approx(_naive(values.ravel(), quantile), rel=1e-12)
    got = column_quantiles(X, QUANTILES, mask)
    assert got.dtype == np.float64
    expected = [[_naive(column, q) for column in values.T] for q in QUANTILES]
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", _arrays())
def test_equals_sorting(name):
    _check(_arrays()[name], None)


@pytest.mark.parametrize("name", _arrays())
def test_equals_sorting_in_small_parts(name, small_parts):
    _check(_arrays()[name], None)


@pytest.mark.parametrize("name", ["normal", "relu", "integers", "fortran"])
def test_masked_samples(name, small_parts):
    X = _arrays()[name]
    mask = np.random.default_rng(1).random(len(X)) < 0.4
    mask[20:40] = False  # whole chunks without a row
    _check(X, mask)


def test_single_draws(monkeypatch, small_parts):
    """Draws that miss the candidates are repeated."""
    monkeypatch.setattr(_quantile, "_N_DRAWS", 1)
    _check(_arrays()["normal"][:10], None)


def test_input_is_not_written_to():
    X = _arrays()["normal"]
    X.flags.writeable = False
    before = X.copy()
    _check(X, None)
    np.testing.assert_array_equal(X, before)


def test_order_of_the_quantiles_does_not_matter():
    X = _arrays()["relu"]
    mixed = [0.9, 0.1, 0.5, 0.9]
    got = column_quantiles(X, mixed)
    for quantile, row in zip(mixed, got, strict=True):
        np.testing.assert_array_equal(row, column_quantiles(X, [quantile])[0])


@pytest.mark.parametrize("quantile", [0.25, 0.9])
def test_equals_numpy_in_float64(quantile):
    X = np.random.default_rng(0).normal(size=(3000, 400)).astype(np.float32)
    exact = np.quantile(X.astype(np.float64), quantile)
    assert X.size > _quantile._MAX_CANDIDATES
    assert pooled_quantile(X, quantile) == exact
    columns = np.quantile(X.astype(np.float64), quantile, axis=0)
    np.testing.assert_array_equal(column_quantiles(X, [quantile])[0], columns)


@pytest.mark.parametrize("function", ["pooled", "columns"])
def test_memory(function):
    """64 MiB of values are not copied as a whole, sorted or kept."""
    X = np.random.default_rng(0).random(size=(2**15, 2**9), dtype=np.float32)
    mask = np.ones(len(X), dtype=bool)
    mask[::10] = False
    tracemalloc.start()
    if function == "pooled":
        pooled_quantile(X, 0.9, mask)
    else:
        column_quantiles(X, [0.1, 0.9], mask)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert X.nbytes == 64 * 2**20
    assert peak < 48 * 2**20

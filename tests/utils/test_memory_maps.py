"""Tests of rows of memory-mapped files."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood.utils._array_api import array_namespace
from skood.utils._memory_maps import (
    MappedRows,
    float_rows,
    in_memory,
    is_mapped,
    is_matrix,
    row_blocks,
)


def _mapped(folder, dtype=np.int16, shape=(5, 3)):
    np.save(folder / "X.npy", np.arange(np.prod(shape)).reshape(shape).astype(dtype))
    return np.load(folder / "X.npy", mmap_mode="r")


def test_what_is_mapped(tmp_path):
    X = _mapped(tmp_path)
    assert is_mapped(X)
    assert is_mapped(X[1:])
    assert not is_mapped(np.array(X))
    assert not is_mapped(X[0])
    assert not is_mapped(_mapped(tmp_path, complex))
    assert not is_mapped(X.tolist())
    assert is_matrix(X)
    assert is_matrix(np.array(X))
    assert is_matrix(MappedRows(X))
    assert not is_matrix(X[:0])
    assert not is_matrix(X[0])
    assert not is_matrix(X.tolist())


@pytest.mark.parametrize("dtype", [None, np.float64])
@pytest.mark.parametrize("rows", [None, np.array([4, 0, 2])])
def test_view_equals_the_array(rows, dtype, tmp_path):
    X = _mapped(tmp_path)
    actual = MappedRows(X, rows, dtype)
    expected = np.array(X if rows is None else X[rows], dtype=dtype)
    assert actual.shape == expected.shape
    assert len(actual) == len(expected)
    assert actual.ndim == expected.ndim
    assert actual.dtype == expected.dtype
    assert actual.nbytes == expected.nbytes
    mask = np.arange(len(expected)) != 1
    for part in (slice(1, 3), slice(None), np.array([2, 0]), mask, 1):
        assert type(actual[part]) is np.ndarray
        assert actual[part].dtype == expected.dtype
        np.testing.assert_array_equal(actual[part], expected[part])
    np.testing.assert_array_equal(np.asarray(actual), expected)
    assert np.asarray(actual, dtype=np.float32).dtype == np.float32
    assert array_namespace(actual) is array_namespace(expected)
    np.testing.assert_array_equal(in_memory(actual), expected)


def test_what_is_in_memory_stays():
    X = np.ones((2, 2))
    assert in_memory(X) is X


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        *((other, "float64") for other in ("float16", "int8", ">f4", "?")),
    ],
)
def test_floats_as_scikit_learn_converts_them(dtype, expected, tmp_path):
    X = _mapped(tmp_path, dtype)
    for given in (X, np.array(X), MappedRows(X, np.array([2]))):
        actual = float_rows(given)
        assert actual.dtype == expected
        np.testing.assert_array_equal(actual[:], in_memory(given)[:].astype(expected))
    assert isinstance(float_rows(X), np.ndarray) == (dtype == expected)
    if dtype == expected:
        assert np.shares_memory(float_rows(X), X)


@pytest.mark.parametrize(
    ("n_columns", "n_rows"), [(3, 10), (256, 10), (512, 5), (4000, 1)]
)
def test_blocks_of_samples(n_columns, n_rows):
    X = np.arange(23.0)[:, None] * np.ones(n_columns)
    blocks = list(row_blocks(X, 8 * 256 * 10))
    assert [len(block) for block in blocks[:-1]] == [n_rows] * ((23 - 1) // n_rows)
    assert all(np.shares_memory(block, X) for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), X)

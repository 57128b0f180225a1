"""Tests of array computations that are written once for NumPy and torch."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ctypes
import math
import sys
import warnings

import numpy as np
import pytest
import torch

from skood.utils import _array_api as _arrays
from skood.utils._array_api import (
    array_device,
    as_double,
    asarray_like,
    cast_once,
    nearest,
    row_dots,
    row_indices,
    row_max,
    row_sums,
    to_device,
    to_host,
    top_k,
    unit_rows,
)

each_kind = pytest.mark.parametrize("make", [np.asarray, torch.as_tensor])


def _rows(n_samples=7, width=5, dtype=np.float64):
    return np.random.default_rng(0).normal(size=(n_samples, width)).astype(dtype)


# --- where to compute ---------------------------------------------------------


@pytest.fixture
def cuda(monkeypatch):
    """A machine that has CUDA."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)


def test_large_arrays_go_to_the_gpu(cuda):
    small, large = np.empty((2, 3)), np.empty(16 * 2**20, dtype=np.int8)
    assert array_device("auto", small) is None
    assert array_device("auto", large[:-1]) is None
    assert array_device("auto", large) == torch.device("cuda", 1)
    assert array_device("cuda:0", small) == torch.device("cuda", 0)
    assert array_device("cpu", large) is None
    assert array_device(torch.device("cpu"), large) is None


def test_without_cuda_numpy_computes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    large = np.empty(16 * 2**20, dtype=np.int8)
    assert array_device("auto", large) is None
    assert array_device("auto", torch.as_tensor(large)) is None
    with pytest.raises(ValueError, match="'cuda' was requested, but torch finds no"):
        array_device("cuda", large)
    with pytest.raises(ValueError, match="Unknown device 'gpu'"):
        array_device("gpu", large)
    with pytest.raises(TypeError, match="device must be 'auto', a string"):
        array_device(0, large)


def test_a_tensor_is_computed_on_where_it_is():
    tensor = torch.empty(2, 3, device="meta")
    assert array_device("auto", tensor) == torch.device("meta")
    assert array_device("cpu", tensor) is None


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_without_a_driver_torch_is_not_imported(monkeypatch, platform):
    asked = []

    def load(name):
        asked.append(name)
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.delitem(sys.modules, "torch")
    assert array_device("auto", np.empty(16 * 2**20, dtype=np.int8)) is None
    assert asked == ["nvcuda.dll" if platform == "win32" else "libcuda.so.1"]
    assert "torch" not in sys.modules


def test_with_a_driver_torch_is_asked(monkeypatch):
    class Torch:
        class cuda:
            @staticmethod
            def is_available():
                return "asked"

    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    monkeypatch.delitem(sys.modules, "torch")
    real = sys.meta_path

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "torch":
                sys.modules["torch"] = Torch
                raise _Done
            return None

    class _Done(Exception):
        pass

    monkeypatch.setattr(sys, "meta_path", [Finder, *real])
    with pytest.raises(_Done):
        _arrays._cuda_is_there()  # it imports torch
    assert _arrays._cuda_is_there() == "asked"


# --- moving -------------------------------------------------------------------


def test_to_device():
    rows = _rows()
    assert to_device(rows, None) is rows
    tensor = to_device(rows, torch.device("cpu"))
    assert torch.is_tensor(tensor)
    np.testing.assert_array_equal(to_device(tensor, None), rows)
    turned = np.asfortranarray(rows)
    there = to_device(turned, None)
    assert there.flags.c_contiguous
    np.testing.assert_array_equal(there, rows)


def test_to_device_does_not_write_to_read_only_arrays():
    rows = _rows()
    rows.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = to_device(rows, torch.device("cpu"))
    tensor += 1
    np.testing.assert_array_equal(rows, _rows())


def test_asarray_like():
    rows = _rows()
    assert asarray_like(rows, rows) is rows
    like = asarray_like(rows, torch.ones(1))
    assert torch.is_tensor(like) and like.dtype == torch.float64
    assert asarray_like(rows, torch.ones(1, device="meta")).device.type == "meta"
    assert to_host(rows) is rows
    assert isinstance(to_host(like), np.ndarray)


# --- computing ----------------------------------------------------------------


@each_kind
def test_as_double(make):
    double, single = make(_rows()), make(_rows(dtype=np.float32))
    assert as_double(double) is double
    assert to_host(as_double(single)).dtype == np.float64
    np.testing.assert_array_equal(to_host(as_double(single)), to_host(single))


@each_kind
def test_row_reductions(make):
    for width in (1, 5, 32, 33):
        rows, others = _rows(width=width), _rows(width=width) + 1
        naive = [
            sum(a * b for a, b in zip(x, z, strict=True))
            for x, z in zip(rows, others, strict=True)
        ]
        kind = type(make(rows))
        for got, expected in [
            (row_dots(make(rows), make(others)), naive),
            (row_sums(make(rows)), [math.fsum(x) for x in rows]),
            (row_max(make(rows)), [max(x) for x in rows]),
            (row_indices(make(rows)), range(len(rows))),
        ]:
            assert type(got) is kind
            np.testing.assert_allclose(to_host(got), list(expected), rtol=1e-12)


def test_row_max_does_not_modify_its_input():
    rows = _rows()
    row_max(rows)
    np.testing.assert_array_equal(rows, _rows())


@each_kind
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unit_length(make, dtype):
    rows = _rows(dtype=dtype)
    rows[2] = 0
    units = unit_rows(make(rows))
    assert type(units) is type(make(rows))
    lengths = [math.sqrt(sum(float(v) ** 2 for v in x)) or 1.0 for x in rows]
    expected = rows.astype(np.float64) / np.array(lengths)[:, None]
    np.testing.assert_allclose(to_host(units), expected, rtol=1e-14)
    assert to_host(units).dtype == np.float64
    np.testing.assert_array_equal(rows[:2], _rows(dtype=dtype)[:2])


@each_kind
@pytest.mark.parametrize(
    "dtype, scale", [(np.float64, 1e300), (np.float64, 5e-324), (np.float32, 5e37)]
)
def test_unit_length_without_overflow(make, dtype, scale):
    rows = np.array([[3.0, 4.0], [1.0, 0.0]], dtype=dtype) * dtype(scale)
    rtol = 1e-6 if dtype is np.float32 else 1e-14
    got = to_host(unit_rows(make(rows)))
    np.testing.assert_allclose(got, [[0.6, 0.8], [1, 0]], rtol=rtol)


@each_kind
@pytest.mark.parametrize("k", [1, 3, 5])
def test_top_k(make, k):
    rows = _rows()
    rows[1] = 2.0  # ties
    largest = top_k(make(rows), k)
    assert type(largest) is type(make(rows))
    expected = np.sort(rows, axis=1)[:, 5 - k :]
    np.testing.assert_array_equal(np.sort(to_host(largest), axis=1), expected)


@each_kind
def test_nearest(make):
    points, centers = _rows(20, 3), 2 * _rows(4, 3)
    squared, index = nearest(make(points), make(centers))
    assert type(squared) is type(index) is type(make(points))
    expected = [[sum((p - c) ** 2) for c in centers] for p in points]
    np.testing.assert_array_equal(to_host(index), np.argmin(expected, axis=1))
    np.testing.assert_allclose(to_host(squared), np.min(expected, axis=1), rtol=1e-10)


@each_kind
def test_nearest_is_never_negative_and_takes_the_first_of_equal_centers(make):
    points = 1e8 + _rows(50, 3)
    squared, index = nearest(make(points), make(np.concatenate([points, points])))
    assert to_host(squared).min() >= 0
    _, index = nearest(make(np.zeros((2, 1))), make(np.array([[1.0], [-1.0], [1.0]])))
    assert to_host(index).tolist() == [0, 0]


@pytest.mark.parametrize("as_kind", [np.asarray, torch.from_numpy])
def test_nearest_where_squares_cancel(as_kind):
    centers = np.array([[0.0, 0.0], [1e8, 0.0]])
    points = np.array([[1e8 + 1.5, 0.5], [3.0, 4.0], [1e8, 0.0]])
    squared, index = nearest(as_kind(points), as_kind(centers))
    np.testing.assert_allclose(np.asarray(squared), [2.5, 25.0, 0.0], rtol=1e-7)
    np.testing.assert_array_equal(np.asarray(index), [1, 0, 1])


def test_arrays_that_torch_does_not_take_as_they_are():
    array = np.arange(6.0).reshape(2, 3)
    fixed = array.copy()
    fixed.flags.writeable = False
    for view in (array[::-1], array[:, ::-1], array.T, fixed):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tensor = to_device(view, torch.device("cpu"))
        np.testing.assert_array_equal(tensor.numpy(), view)


def test_an_array_is_cast_once():
    before = len(_arrays._COPIES)
    array = np.arange(6.0).reshape(2, 3)
    single = cast_once(array, np.float32)
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, array)
    assert cast_once(array, np.float32) is single
    assert cast_once(array, np.float64) is array
    other = array.copy()
    assert cast_once(other, np.float32) is not single
    assert len(_arrays._COPIES) == before + 2
    del array, other
    assert len(_arrays._COPIES) == before

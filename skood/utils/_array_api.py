"""Array functions for NumPy and for torch on a GPU.

Functions take NumPy arrays or torch tensors and return the same kind. They complement
the array API standard, as provided by NumPy from 2.1 on, and by array_api_compat for
older versions and torch. Importing this module imports neither torch nor, with such a
NumPy, array_api_compat, which takes 20 ms.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ctypes
import math
import sys
from weakref import ref

import numpy as np
from scipy.sparse import issparse

from skood.utils._sparse import unit_csr
from skood.utils._torch import double_device, is_tensor, to_numpy

# For arrays with fewer bytes, moving them to a GPU is slower than computing on the CPU.
_MIN_GPU_BYTES = 16 * 2**20

# Inner products of this many values have no threads in OpenBLAS.
_FEW_VALUES = 10_000

# Larger arrays are read from the memory, smaller ones may be in the cache.
_CACHE_BYTES = 16 * 2**20

# From this length on, rows outside of the cache are multiplied one by one.
_LONG_ROW_BYTES = 512

# A squared distance below this fraction of the squared length of the point is computed
# from the difference: otherwise fewer than ten digits may be accurate.
_CANCELS = 1e-6

# Up to this many columns NumPy is faster column by column: its reductions along short
# rows need one loop per row.
NARROW = 32

# Whether NumPy is a namespace of the standard, from version 2.1 on.
_HAS_ASTYPE = hasattr(np, "astype")

# Inner products of rows, from NumPy 2.0 on.
_VECDOT = getattr(np, "vecdot", None)

# Arrays in another precision or on a torch device, by the id of the array and these.
_COPIES: dict = {}

# Bytes of the temporaries of a chunk on a GPU: at most this, and a fraction of what is
# free; at least what a CPU is given.
_GPU_CHUNK_BYTES = 2**30
_FREE_FRACTION = 5


def has_finite_squares(array):
    """Return whether the squares of a few values are finite; False for many values."""
    if array.size > 2 * _FEW_VALUES:
        return False
    flat = array.ravel()
    first, rest = flat[:_FEW_VALUES], flat[_FEW_VALUES:]
    # `vdot`, unlike `dot`, gives no warning
    is_finite = math.isfinite(np.vdot(first, first))
    return is_finite and math.isfinite(np.vdot(rest, rest))


def all_finite(array):
    """Return whether all values of a NumPy array are finite."""
    # the first is faster for a few values
    return has_finite_squares(array) or bool(np.isfinite(array).all())


def array_namespace(array):
    """Return the namespace of an array by the array API standard."""
    if type(array) is np.ndarray and _HAS_ASTYPE:  # for the speed of small calls
        return np
    if type(array) is np.ndarray or issparse(array):  # NumPy's astype takes none
        from array_api_compat import numpy

        return numpy
    from array_api_compat import array_namespace

    return array_namespace(array)


def _cuda_is_there():
    """Return whether torch finds CUDA; without a driver, torch is not imported."""
    if "torch" not in sys.modules:
        try:
            ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        except OSError:
            return False
    import torch

    return torch.cuda.is_available()


def array_device(device, array):
    """Return the device for computations on an array, None for NumPy on the CPU.

    "auto": its own GPU; the current CUDA device for 16 MiB or more; else the CPU, as
    for sparse matrices.
    """
    if isinstance(device, str) and device == "auto":
        if type(array) is np.ndarray and array.nbytes < _MIN_GPU_BYTES:
            return None  # for the speed of small calls
        if is_tensor(array) and array.device.type not in ("cpu", "mps"):
            return array.device
        if issparse(array) or array.nbytes < _MIN_GPU_BYTES or not _cuda_is_there():
            return None
    elif isinstance(device, str) and device == "cpu":
        return None
    resolved = double_device(device)
    return None if resolved.type == "cpu" or issparse(array) else resolved


def chunk_bytes(device, size):
    """Return the bytes of temporaries of a chunk on a GPU: 1 GiB.

    At most a fifth of the free memory of CUDA, at least `size`, as on the CPU.
    """
    free = _FREE_FRACTION * _GPU_CHUNK_BYTES
    if device.type == "cuda":
        from torch import cuda

        cached = cuda.memory_reserved(device) - cuda.memory_allocated(device)
        free = cuda.mem_get_info(device)[0] + cached
    return max(size, min(_GPU_CHUNK_BYTES, free // _FREE_FRACTION))


def to_device(array, device):
    """Move an array: to a torch device, or to NumPy (row by row) for None."""
    if device is None:
        return array if issparse(array) else np.ascontiguousarray(to_numpy(array))
    import torch

    if not is_tensor(array):  # torch supports neither read-only nor reversed arrays
        array = np.require(array, requirements=["C", "W"])
    return torch.as_tensor(array, device=device)


to_host = to_numpy


def asarray_like(array, like):
    """Return a NumPy array unchanged, or as a tensor on the device of `like`."""
    return to_device(array, like.device) if is_tensor(like) else array


def zeros(shape, like):
    """Return zeros in float64, of the array type of `like` and on its device."""
    if is_tensor(like):
        return like.new_zeros(shape, dtype=array_namespace(like).float64)
    return np.zeros(shape)


def plus(total, added):
    """Return a sum on the device of what is added; a `total` of None is zero."""
    return added if total is None else asarray_like(total, added) + added


def as_double(array):
    """Return an array in float64, without a copy if it is float64."""
    if type(array) is np.ndarray:  # for the speed of small calls
        return array.astype(np.float64, copy=False)
    xp = array_namespace(array)
    return xp.astype(array, xp.float64, copy=False)


def cast_once(array, dtype):
    """Return a fitted NumPy array in another precision, see `copy_of`."""
    if array.dtype == dtype:
        return array
    return copy_of(array, dtype, lambda: array.astype(dtype))


def sent_once(array, device):
    """Return a fitted NumPy array on a torch device, see `copy_of`."""
    if device.type == "cpu":  # which shares its memory
        return to_device(array, device)
    return copy_of(array, device, lambda: to_device(array, device))


def copy_of(array, kind, function):
    """Return a copy or function of a NumPy array, stored as long as it exists.

    For fitted arrays, which are never changed in place; nor must be the copy.
    """
    key = id(array), kind
    entry = _COPIES.get(key)
    if entry is None or entry[0]() is not array:
        # at the exit of Python there may be no dict
        gone = ref(array, lambda _: _COPIES and _COPIES.pop(key, None))
        entry = _COPIES[key] = gone, function()
    return entry[1]


def numpy_dtype(array):
    """Return the dtype of NumPy that an array or a tensor has."""
    return np.dtype(str(array.dtype).removeprefix("torch."))


def row_indices(array):
    """Return 0, 1, … for the rows of an array, on its device."""
    xp = array_namespace(array)
    if is_tensor(array):
        return xp.arange(array.shape[0], device=array.device)
    return xp.arange(array.shape[0])


def centered_rows(array, center):
    """Return rows minus a float64 vector, in float64."""
    if type(array) is np.ndarray:
        centered = array.astype(np.float64)  # mixed types are slower
    else:
        xp = array_namespace(array)
        centered = xp.astype(array, xp.float64, copy=True)
    centered -= center
    return centered


def row_dots(a, b):
    """Return the inner product of each row of `a` with the same row of `b`."""
    if type(a) is not np.ndarray:
        return array_namespace(a).einsum("id,id->i", a, b)
    if _VECDOT is not None and a.shape[1] > NARROW:
        return _VECDOT(a, b)  # half the time of einsum
    return np.einsum("id,id->i", a, b)


def dots_with(matrix, vector):
    """Return the inner products of the rows of a NumPy array and a vector.

    OpenBLAS reads several rows at a time: outside of the cache its product takes .3 to
    .75 of the time of one inner product per row for rows of less than 512 bytes, and
    1.1 to 1.3 times, or more, for longer rows.
    """
    is_short = vector.nbytes < _LONG_ROW_BYTES
    if _VECDOT is None or is_short or matrix.nbytes <= _CACHE_BYTES:
        return matrix @ vector
    return _VECDOT(matrix, vector)


def row_sums(array):
    """Return the sum of each row, in the precision of the array."""
    return array_namespace(array).einsum("ij->i", array)  # NumPy's sum is slower


def row_max(array):
    """Return the largest value of each row."""
    if is_tensor(array) or array.shape[1] > NARROW:
        return array_namespace(array).max(array, axis=1)
    largest = array[:, 0].copy()
    for j in range(1, array.shape[1]):
        np.maximum(largest, array[:, j], out=largest)
    return largest


def unit_rows(array):
    """Scale rows to unit Euclidean length in float64; zero rows stay zero.

    Float64 rows are first divided by their largest value: no square overflows.
    """
    if issparse(array):
        return unit_csr(array)
    xp = array_namespace(array)
    is_double = array.dtype == xp.float64
    array = xp.astype(array, xp.float64, copy=True)
    if is_double:
        largest = xp.max(xp.abs(array), axis=1, keepdims=True)
        largest[largest == 0] = 1.0
        array /= largest
    norm = xp.sqrt(row_dots(array, array))[:, None]
    norm[norm == 0] = 1.0
    array /= norm
    return array


def top_k(array, k):
    """Return the `k` largest values of each row, of shape (n_samples, k), unordered."""
    if k == array.shape[1]:
        return array
    if is_tensor(array):
        return array.topk(k, dim=1, sorted=False).values
    return np.partition(array, array.shape[1] - k, axis=1)[:, -k:]


def nearest(points, centers):
    """Return squared distances, not negative, to nearest centers, and the indices.

    Float64 of shapes (n_samples, n_features) and (n_centers, n_features); ties are
    resolved by the lowest index.
    """
    xp = array_namespace(points)
    # |w - m|² = |w|² - 2 w·m + |m|², smallest over the centers
    gaps = points @ centers.T
    gaps *= -2.0
    gaps += row_dots(centers, centers)
    index = xp.argmin(gaps, axis=1)
    norms = row_dots(points, points)
    squared = norms + gaps[row_indices(gaps), index]
    canceled = xp.nonzero(squared < _CANCELS * norms)[0]
    if len(canceled):
        gaps = points[canceled] - centers[index[canceled]]
        squared[canceled] = row_dots(gaps, gaps)
    return squared, index

"""Array computations that are written once, for NumPy and for torch on a GPU.

A function here takes NumPy arrays or torch tensors and gives back the same kind. It
adds what the array API standard, by way of array_api_compat, leaves out. Importing
this file does not import torch.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ctypes
import sys

import numpy as np
from array_api_compat import array_namespace

from skood.utils._torch import is_tensor, resolve_device, to_numpy

__all__ = [
    "array_device",
    "array_namespace",
    "as_double",
    "asarray_like",
    "nearest",
    "row_dots",
    "row_indices",
    "row_max",
    "row_sums",
    "to_device",
    "to_host",
    "top_k",
    "unit_rows",
]

# Below this many bytes, moving an array to a GPU costs more than it gives.
_MIN_GPU_BYTES = 16 * 2**20

# A squared distance below this share of the squared length of the point is computed
# from the difference: else fewer than ten digits of it might be right.
_CANCELS = 1e-6

# Up to this many columns NumPy finds the largest value of each row faster column by
# column: its reductions along short rows cost a loop each.
_NARROW = 32


def _cuda_is_there():
    """Tell whether torch finds CUDA; without a driver torch is not imported."""
    if "torch" not in sys.modules:
        try:
            ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        except OSError:
            return False
    import torch

    return torch.cuda.is_available()


def array_device(device, array):
    """Where to compute on an array: a torch device, or None for NumPy on the CPU.

    Parameters
    ----------
    device : str or torch.device
        "auto" is where `array` is if that is a GPU, else the current CUDA device
        for arrays of 16 MiB or more if there is one, else the CPU.

    array : ndarray or torch.Tensor
        What is computed on.

    Returns
    -------
    device : torch.device or None
        None: NumPy.

    Raises
    ------
    TypeError, ValueError
        If `device` is no device, or this machine does not have it.
    """
    if isinstance(device, str) and device == "auto":
        if is_tensor(array) and array.device.type != "cpu":
            return array.device
        if array.nbytes < _MIN_GPU_BYTES or not _cuda_is_there():
            return None
    elif isinstance(device, str) and device == "cpu":
        return None
    found = resolve_device(device)
    return None if found.type == "cpu" else found


def to_device(array, device):
    """Move an array: to a torch device, or to NumPy (row by row) for None."""
    if device is None:
        return np.ascontiguousarray(to_numpy(array))
    import torch

    if not is_tensor(array):  # torch takes neither read-only nor reversed arrays
        array = np.require(array, requirements=["C", "W"])
    return torch.as_tensor(array, device=device)


def to_host(array):
    """Return an array as NumPy."""
    return to_numpy(array)


def asarray_like(array, like):
    """Return a NumPy array as what `like` is: NumPy, or a tensor on its device."""
    return to_device(array, like.device) if is_tensor(like) else array


def as_double(array):
    """Return an array in float64; one that is float64 is not copied."""
    xp = array_namespace(array)
    return xp.astype(array, xp.float64, copy=False)


def row_indices(array):
    """Return 0, 1, … for the rows of an array, on its device."""
    xp = array_namespace(array)
    if is_tensor(array):
        return xp.arange(array.shape[0], device=array.device)
    return xp.arange(array.shape[0])


def row_dots(a, b):
    """Inner product of each row of `a` with the same row of `b`."""
    return array_namespace(a).einsum("id,id->i", a, b)


def row_sums(array):
    """Sum of each row, in the precision of the array."""
    return array_namespace(array).einsum("ij->i", array)  # NumPy's sum is slower


def row_max(array):
    """Largest value of each row."""
    if is_tensor(array) or array.shape[1] > _NARROW:
        return array_namespace(array).max(array, axis=1)
    largest = array[:, 0].copy()
    for j in range(1, array.shape[1]):
        np.maximum(largest, array[:, j], out=largest)
    return largest


def unit_rows(array):
    """Scale rows to unit Euclidean length in float64; zero rows stay zero.

    Rows in float64 are first divided by their largest value, so that no square
    overflows; those of float32 cannot.
    """
    xp = array_namespace(array)
    is_double = array.dtype == xp.float64
    array = xp.astype(array, xp.float64, copy=True)
    if is_double:
        largest = xp.max(xp.abs(array), axis=1, keepdims=True)
        array /= xp.where(largest > 0, largest, xp.ones_like(largest))
    norm = xp.sqrt(row_dots(array, array))[:, None]
    array /= xp.where(norm > 0, norm, xp.ones_like(norm))
    return array


def top_k(array, k):
    """Return the `k` largest values of each row, in no order.

    Parameters
    ----------
    array : ndarray or torch.Tensor of shape (n_samples, n_values)
        Values.

    k : int
        At most `n_values`.

    Returns
    -------
    values : ndarray or torch.Tensor of shape (n_samples, k)
        The largest ones.
    """
    if k == array.shape[1]:
        return array
    if is_tensor(array):
        return array.topk(k, dim=1, sorted=False).values
    return np.partition(array, array.shape[1] - k, axis=1)[:, -k:]


def nearest(points, centers):
    """Squared distance of each point to its nearest center, and which one that is.

    Parameters
    ----------
    points : array of shape (n_samples, n_features)
        In float64.

    centers : array of shape (n_centers, n_features)
        In float64, of the same kind.

    Returns
    -------
    squared : array of shape (n_samples,)
        Never negative.

    index : array of shape (n_samples,), dtype int
        Index of the center; the first among equally near ones.
    """
    xp = array_namespace(points)
    # |w - m|² = |w|² - 2 w·m + |m|², smallest over the centers
    gaps = points @ (-2.0 * centers.T)
    gaps += row_dots(centers, centers)
    index = xp.argmin(gaps, axis=1)
    norms = row_dots(points, points)
    squared = norms + gaps[row_indices(gaps), index]
    canceled = squared < _CANCELS * norms
    if xp.any(canceled):
        gaps = points[canceled] - centers[index[canceled]]
        squared[canceled] = row_dots(gaps, gaps)
    return squared, index

"""Memory-mapped matrices, processed in chunks without loading the whole file."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._array_api import array_namespace
from skood.utils._torch import row_chunks

# Least number of columns assumed for the size of a block.
_LEAST_WIDTH = 256


def is_mapped(X):
    """Return whether `X` is a `numpy.memmap` of real numbers with two axes."""
    return isinstance(X, np.memmap) and X.ndim == 2 and X.dtype.kind in "biuf"


class MappedRows:
    """View of rows of a memory-mapped matrix, loaded and converted on access.

    Indexing, or conversion, of the matrix itself would copy nearly all of the file.
    `indices` None: all rows; `dtype` None is the dtype of the file.
    """

    ndim = 2

    def __init__(self, X, indices=None, dtype=None):
        self.X = X
        self.chosen = indices
        self.shape = (len(X) if indices is None else len(indices), X.shape[1])
        self.dtype = np.dtype(X.dtype if dtype is None else dtype)

    def __len__(self):
        return self.shape[0]

    @property
    def nbytes(self):
        """Number of bytes of an array of all rows."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __getitem__(self, key):
        indices = key if self.chosen is None else self.chosen[key]
        return np.asarray(self.X[indices]).astype(self.dtype, copy=False)

    def __array__(self, dtype=None, copy=None):
        array = self[:]
        return array if dtype is None else array.astype(dtype, copy=False)

    def __array_namespace__(self, api_version=None):
        return array_namespace(np.empty(0))


def float_rows(X):
    """Return a matrix in float32 or float64, without copying a memory-mapped one.

    This is an array of its pages if all rows are needed in its dtype, else
    `MappedRows`.
    """
    if X.dtype not in (np.float32, np.float64) and is_mapped(X):
        X = MappedRows(X)
    if isinstance(X, MappedRows):
        # as scikit-learn converts them
        dtype = np.float32 if X.X.dtype == np.float32 else np.float64
        return MappedRows(X.X, X.chosen, dtype)
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    return np.asarray(X, dtype=dtype)


def in_memory(X):
    """Return `X`; `MappedRows` are loaded as an array."""
    return X[:] if isinstance(X, MappedRows) else X


def is_matrix(X):
    """Return whether `X` is a non-empty NumPy matrix, memory-mapped or not."""
    return isinstance(X, (np.ndarray, MappedRows)) and X.ndim == 2 and len(X) > 0


def row_blocks(X, budget):
    """Yield blocks of consecutive rows, of `budget` bytes in float64.

    Narrow rows count as wider ones: a classifier may compute larger arrays from them.
    """
    for chunk in row_chunks(len(X), 8 * max(X.shape[1], _LEAST_WIDTH), budget):
        yield X[chunk]


def without(array, left_out):
    """Return an array (None stays None) without the rows `left_out`.

    A memory-mapped file gives `MappedRows`, and nothing is loaded.
    """
    if array is None:
        return None
    indices = np.delete(np.arange(array.shape[0]), left_out)
    if isinstance(array, MappedRows):
        chosen = indices if array.chosen is None else array.chosen[indices]
        return MappedRows(array.X, chosen, array.dtype)
    return MappedRows(array, indices) if is_mapped(array) else array[indices]

"""Samples that are not in memory: torch datasets and loaders, and dask arrays.

Computations on single samples run batch by batch. This module imports neither torch
nor dask: their objects exist only if the caller has imported them.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools

import numpy as np
from sklearn.utils import Bunch

from skood.utils._input import takes_input
from skood.utils._memory_maps import is_mapped, row_blocks
from skood.utils._optional import is_instance
from skood.utils._torch import to_numpy

_DASK_FRAMES = (("dask.dataframe", "DataFrame"), ("dask.dataframe", "Series"))
_TORCH_DATA = (
    ("torch.utils.data", "Dataset"),
    ("torch.utils.data", "DataLoader"),
    ("skorch.helper", "SliceDataset"),
    ("skood.utils._torch_batches", "DatasetRows"),
)


def is_torch_data(X):
    """Return whether `X` is a torch dataset or loader, or a part of one."""
    if type(X) is np.ndarray:  # for the speed of small calls
        return False
    return any(is_instance(X, *kind) for kind in _TORCH_DATA)


def is_dask(X):
    """Return whether `X` is a dask array or data frame."""
    kinds = (("dask.array", "Array"), *_DASK_FRAMES)
    return any(is_instance(X, *kind) for kind in kinds)


def is_lazy(X):
    """Return whether samples are yet to be loaded: torch data and dask, no memmaps."""
    if type(X) is np.ndarray:  # for the speed of small calls
        return False
    return is_torch_data(X) or is_dask(X)


def as_rows(X, *, for_fit=False):
    """Return samples that can be counted and indexed: `DatasetRows` of torch data.

    `for_fit`: whether a loader may shuffle, since the order does not matter.
    """
    if not is_torch_data(X):
        return X
    from skood.utils._torch_batches import rows_of

    return rows_of(X, for_fit=for_fit)


def labeled_rows(X, y, sample_weight=None, *, wait=False):
    """Return samples to fit on, and their labels, of torch data if `y` is None.

    With weights, the samples are in their order, and a loader that shuffles raises.
    `wait`: whether to defer labels until the samples have been loaded in any case.
    """
    if not is_torch_data(X):
        return X, y
    X = as_rows(X, for_fit=y is None and sample_weight is None)
    if y is not None:
        return X.without_labels(), y
    return X, None if wait else X.labels()


def loaded_blocks(X):
    """Yield samples in memory: batches of torch data, chunks of dask, or `X` itself."""
    if not is_lazy(X):
        yield X
    elif is_dask(X):
        yield from _chunks(X)
    else:
        from skood.utils._torch_batches import iter_batches

        yield from iter_batches(X)


def array_batches(X, budget):
    """Return an iterable over consecutive samples, as arrays in memory.

    These are blocks of ``budget(X)`` bytes, in float64, of a memory-mapped matrix, and
    `loaded_blocks` of other `X`.
    """
    if is_mapped(X) and len(X):
        return map(np.asarray, row_blocks(X, budget(X)))
    return loaded_blocks(X)


def _chunks(X):
    """Yield the chunks of a dask array, computing one at a time."""
    _refuse_frames(X)
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    has_samples = False
    for chunk in X.to_delayed().ravel():
        block = chunk.compute()
        if len(block):
            has_samples = True
            yield block
    if not has_samples:
        raise ValueError("X has no samples: all chunks of the dask array are empty.")


def _refuse_frames(X):
    if not is_instance(X, "dask.array", "Array"):
        raise TypeError(
            f"Got a dask {type(X).__name__}, but only dask arrays are supported: pass "
            "X.to_dask_array(), or X.compute() if it fits into memory."
        )


def loaded(X):
    """Return all samples in memory, as one array; `X` itself if it is in memory."""
    if type(X) is np.ndarray or not is_lazy(X):  # for the speed of small calls
        return X
    if is_dask(X):
        _refuse_frames(X)
        return X.compute()
    return np.concatenate([to_numpy(block) for block in loaded_blocks(X)])


def joined(parts, axis=0):
    """Concatenate results for consecutive blocks of samples.

    `parts`: the results, all of one kind, such as dicts of arrays or None. `axis`: the
    axis of the samples. Returns `result`: the result for all samples.
    """
    first = parts[0]
    if len(parts) == 1 and isinstance(first, (np.ndarray, Bunch)):
        return first
    if first is None:
        return None
    if isinstance(first, dict):
        return Bunch(**{key: joined([p[key] for p in parts], axis) for key in first})
    if isinstance(first, tuple) or (isinstance(first, list) and np.ndim(first[0])):
        columns = zip(*parts, strict=True)
        return type(first)(joined(list(column), axis) for column in columns)
    return np.concatenate(parts, axis=axis)


def blockwise(method=None, *, axis=0):
    """Decorate a method whose result for a sample depends on this sample alone.

    For samples that are not in memory, the method, of ``(self, X, ...)``, is called
    block by block, and the results are concatenated along `axis`.
    """
    if method is None:
        return functools.partial(blockwise, axis=axis)

    def by_blocks(self, X, *args, **kwargs):
        parts = [method(self, block, *args, **kwargs) for block in loaded_blocks(X)]
        return joined(parts, axis)

    return takes_input(method, is_lazy, by_blocks)

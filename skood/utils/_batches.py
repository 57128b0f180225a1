"""Rows that are not in memory: torch datasets and loaders, and arrays of dask.

What is computed row by row is computed of one batch of them after the other. This file
imports neither torch nor dask: their objects can only be given by someone who did.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools
import sys

import numpy as np
from sklearn.utils import Bunch

from skood.utils._input import takes_input
from skood.utils._torch import to_numpy

__all__ = [
    "as_rows",
    "blockwise",
    "is_dask",
    "is_instance",
    "is_lazy",
    "is_torch_data",
    "joined",
    "labeled_rows",
    "loaded",
    "loaded_blocks",
]

_DASK_FRAMES = (
    ("dask.dataframe", "DataFrame"),
    ("dask.dataframe", "Series"),
)
_TORCH_DATA = (
    ("torch.utils.data", "Dataset"),
    ("torch.utils.data", "DataLoader"),
    ("skorch.helper", "SliceDataset"),
    ("skood.utils._torch_batches", "DatasetRows"),
)


def is_instance(thing, module, name):
    """``isinstance`` that does not import the module of the class.

    Parameters
    ----------
    thing : object
        Anything.

    module, name : str
        Of the class.

    Returns
    -------
    is_instance : bool
        False also if the module has not been imported.
    """
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(thing, kind)


def is_torch_data(X):
    """Tell whether `X` is a torch dataset or loader, or a part of one."""
    return any(is_instance(X, *kind) for kind in _TORCH_DATA)


def is_dask(X):
    """Tell whether `X` is an array or a data frame of dask."""
    kinds = (("dask.array", "Array"), *_DASK_FRAMES)
    return any(is_instance(X, *kind) for kind in kinds)


def is_lazy(X):
    """Tell whether the rows of `X` are yet to be loaded or computed.

    Parameters
    ----------
    X : object
        Anything.

    Returns
    -------
    is_lazy : bool
        True for torch datasets and loaders, and for arrays and data frames of dask.
        Memory-mapped arrays are arrays.
    """
    if type(X) is np.ndarray:  # for the speed of small calls
        return False
    return is_torch_data(X) or is_dask(X)


def as_rows(X, *, for_fit=False):
    """Rows that can be counted and chosen.

    Parameters
    ----------
    X : object
        Anything.

    for_fit : bool, default=False
        Whether the order of the rows does not matter, so that a loader may shuffle.

    Returns
    -------
    X : object
        `DatasetRows` of a torch dataset or loader; else `X` itself.

    Raises
    ------
    TypeError
        If it is an iterable dataset, which has no rows to choose among.

    ValueError
        If a loader shuffles or drops rows, and may not.
    """
    if not is_torch_data(X):
        return X
    from skood.utils._torch_batches import rows_of

    return rows_of(X, for_fit=for_fit)


def labeled_rows(X, y, *, wait=False):
    """Rows to fit on, and their labels: of torch data those that the items have.

    Parameters
    ----------
    X : object
        Anything.

    y : array-like of shape (n_samples,) or None
        Labels; None: those of the items.

    wait : bool, default=False
        Leave labels for later, when the rows have been read in any case.

    Returns
    -------
    X : object
        Rows that can be counted and chosen.

    y : array-like of shape (n_samples,) or None
        None if there are no labels, or none yet.
    """
    if not is_torch_data(X):
        return X, y
    X = as_rows(X, for_fit=y is None)
    if y is not None:
        return X.without_labels(), y
    return X, None if wait else X.labels()


def loaded_blocks(X):
    """Yield rows, in their order, as arrays in memory.

    Parameters
    ----------
    X : array-like, torch Dataset or DataLoader, or dask array
        The rows.

    Yields
    ------
    block : object
        A batch of a dataset or loader, a chunk of dask's; anything else as it is.
    """
    if is_torch_data(X):
        from skood.utils._torch_batches import iter_batches

        yield from iter_batches(X)
    elif is_dask(X):
        yield from _chunks(X)
    else:
        yield X


def _chunks(X):
    """Yield the chunks of rows of a dask array, one computed at a time."""
    _refuse_frames(X)
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    rows_found = False
    for part in X.to_delayed().ravel():
        block = part.compute()
        if len(block):
            rows_found = True
            yield block
    if not rows_found:
        raise ValueError("X has no rows: all chunks of the dask array are empty.")


def _refuse_frames(X):
    if not is_instance(X, "dask.array", "Array"):
        raise TypeError(
            f"Got a dask {type(X).__name__}, and skood reads arrays of dask: pass "
            "X.to_dask_array(), or X.compute() if it fits into memory."
        )


def loaded(X):
    """All rows in memory, as one array.

    Parameters
    ----------
    X : object
        See `loaded_blocks`.

    Returns
    -------
    X : object
        The array, or `X` itself if it is in memory.
    """
    if is_dask(X):
        _refuse_frames(X)
        return X.compute()
    return np.concatenate([to_numpy(b) for b in loaded_blocks(X)]) if is_lazy(X) else X


def joined(parts, axis=0):
    """Join results for consecutive rows.

    Parameters
    ----------
    parts : list of ndarray, or of lists, tuples or dicts of ndarrays or None
        The results, all of one kind.

    axis : int, default=0
        The axis of the rows.

    Returns
    -------
    result : ndarray, list, tuple or Bunch
        The result for all rows.

    Examples
    --------
    >>> from skood.utils._batches import joined
    >>> joined([{"a": [1, 2], "b": None}, {"a": [3], "b": None}])
    {'a': array([1, 2, 3]), 'b': None}
    """
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return Bunch(**{key: joined([p[key] for p in parts], axis) for key in first})
    if isinstance(first, tuple) or (isinstance(first, list) and np.ndim(first[0])):
        columns = zip(*parts, strict=True)
        return type(first)(joined(list(column), axis) for column in columns)
    return np.concatenate(parts, axis=axis)


def blockwise(method=None, *, axis=0):
    """Decorate a method whose result for a row depends on that row alone.

    Given rows that are not in memory, it is called for one block after the other, and
    the results are joined.

    Parameters
    ----------
    method : callable
        Takes ``(self, X, ...)``.

    axis : int, default=0
        The axis of the rows in what it returns.

    Returns
    -------
    method : callable
        As before, for rows in memory.
    """
    if method is None:
        return functools.partial(blockwise, axis=axis)

    in_memory = takes_input(method)

    @functools.wraps(method)
    def by_blocks(self, X, *args, **kwargs):
        if not is_lazy(X):
            return in_memory(self, X, *args, **kwargs)
        parts = [method(self, block, *args, **kwargs) for block in loaded_blocks(X)]
        return joined(parts, axis)

    return by_blocks

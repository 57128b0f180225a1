"""Rows of torch datasets and loaders, loaded batch by batch."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import islice

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from skood.utils._locks import TORCH_LOCK
from skood.utils._torch import to_numpy

__all__ = ["DatasetRows", "iter_batches", "rows_of"]

# Rows per batch of a dataset without a loader.
_BATCH_SIZE = 64

# What `DatasetRows` take over from a loader.
_LOADER_OPTIONS = (
    "batch_size",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
)

_RANDOM_SAMPLERS = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class DatasetRows:
    """Rows of a map-style dataset, in a chosen order, which are loaded when read.

    It has a length and a shape and can be indexed: that gives other rows, and loads
    none.

    Parameters
    ----------
    dataset : torch.utils.data.Dataset
        Its items are rows, or (row, label, ...).

    indices : ndarray of shape (n_samples,), dtype int, default=None
        The rows. None: all.

    options : dict, default=None
        How batches are loaded: arguments of a ``DataLoader``.
    """

    def __init__(self, dataset, indices=None, options=None):
        self.dataset = dataset
        self.indices = np.arange(len(dataset)) if indices is None else indices
        self.options = options or {"batch_size": _BATCH_SIZE, "collate_fn": _collate}
        self._labels = None
        self._knows_labels = False

    def __len__(self):
        return len(self.indices)

    @property
    def shape(self):
        """The number of rows, in a tuple: what a row is like is not known."""
        return (len(self),)

    def __getitem__(self, rows):
        if isinstance(rows, tuple):  # scikit-learn asks for [rows, ...]
            rows = rows[0]
        part = DatasetRows(self.dataset, self.indices[rows], self.options)
        part._knows_labels = self._knows_labels
        if self._labels is not None:
            part._labels = self._labels[rows]
        return part

    def without_labels(self):
        """Return the same rows; labels that the items have are not looked at."""
        if self._knows_labels:
            return self
        rows = DatasetRows(self.dataset, self.indices, self.options)
        rows._knows_labels = True
        return rows

    def __array__(self, dtype=None, copy=None):
        return np.asarray(np.concatenate(list(iter_batches(self))), dtype=dtype)

    def labels(self):
        """Return the labels that the items have, from a pass over them.

        Returns
        -------
        labels : ndarray of shape (n_samples,) or (n_samples, n_columns), or None
            None if items are rows without labels. They are known without a pass once
            all rows have been read.
        """
        if not self._knows_labels:
            for _ in self.blocks():
                pass
        return self._labels

    def blocks(self):
        """Yield the rows batch by batch.

        Yields
        ------
        block : ndarray, or tensor that is not on the CPU, of shape (n_rows, ...)
            At most as many rows as a batch of the loader has.
        """
        options = dict(self.options)
        size = options.pop("batch_size")
        batches = [
            self.indices[start : start + size].tolist()
            for start in range(0, len(self), size)
        ]
        # with a generator of its own it leaves that of the process alone
        loader = DataLoader(
            self.dataset,
            batch_sampler=batches,
            generator=torch.Generator(),
            **options,
        )
        labels = []
        for asked, batch in zip(batches, loader, strict=True):
            X = _rows(batch)
            if len(X) != len(asked):
                raise ValueError(
                    f"The collate_fn of the loader gave {len(X)} rows for "
                    f"{len(asked)} items: there must be one row for each."
                )
            if not self._knows_labels:
                labels.append(_labels(batch, len(X)))
            yield X
        if not self._knows_labels:
            self._labels, self._knows_labels = _merged(labels), True


def _collate(items):
    """Stack rows; labels, which may be text, stay in a list."""
    items = [item if isinstance(item, (tuple, list)) else (item,) for item in items]
    rows = [item[0] for item in items]
    for x in rows:
        if not isinstance(x, _ROW_KINDS):
            raise TypeError(_NOT_ROWS.format(f"an item with a {_name(x)}"))
    if all(isinstance(x, torch.Tensor) for x in rows):
        X = torch.stack(rows)
    else:
        X = torch.from_numpy(np.stack([to_numpy(x) for x in rows]))
    if all(len(item) == 1 for item in items):
        return X
    return X, [item[1] if len(item) > 1 else None for item in items]


_ROW_KINDS = (torch.Tensor, np.ndarray, np.generic, int, float)
_NOT_ROWS = (
    "Items of a torch dataset must be a tensor or an array, or (x, label) with one, "
    "and a batch of them likewise; got {}. Give the dataset a transform that makes "
    "tensors, or give a DataLoader with a collate_fn that returns (X, y)."
)


def _name(thing):
    kind = type(thing)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _rows(batch):
    """Rows of a batch as an array."""
    if isinstance(batch, (tuple, list)) and len(batch):
        batch = batch[0]
    if isinstance(batch, torch.Tensor):
        return to_numpy(batch) if batch.device.type == "cpu" else batch
    if isinstance(batch, np.ndarray):
        return batch
    raise TypeError(_NOT_ROWS.format(f"a batch with a {_name(batch)}"))


def _labels(batch, n_rows):
    """Labels of a batch as a list, or None."""
    if not isinstance(batch, (tuple, list)) or len(batch) < 2 or batch[1] is None:
        return None
    y = batch[1]
    if len(y) != n_rows:
        raise ValueError(
            f"A batch of the torch dataset has {n_rows} rows and {len(y)} labels: "
            "there must be one for each row. Make the items (x, label), or pass y."
        )
    y = to_numpy(y)
    return y.tolist() if hasattr(y, "tolist") else [_plain(label) for label in y]


def _plain(label):
    """A label as Python has it."""
    label = to_numpy(label)
    return label.tolist() if isinstance(label, (np.ndarray, np.generic)) else label


def _merged(labels):
    """Labels of all batches as an array; text and numbers stay what they are."""
    if all(y is None for y in labels):
        return None
    if any(y is None for y in labels):
        raise ValueError(
            "Some batches of the torch dataset have labels and others have none. Give "
            "all items a label, or none, or pass y."
        )
    values = [value for part in labels for value in part]
    if len({isinstance(value, str) for value in values}) == 2:
        return np.array(values, dtype=object)
    try:
        return np.array(values)
    except ValueError as error:  # they differ in length
        raise ValueError(
            "Labels of the items of the torch dataset must be a number or a text "
            f"each, got {values[0]!r} in the first item. Make the items (x, label), or "
            "pass y."
        ) from error


def _sampler(loader):
    """What chooses the order of the rows."""
    batch_sampler = loader.batch_sampler
    return (
        batch_sampler.sampler if type(batch_sampler) is BatchSampler else batch_sampler
    )


def _drawn(loader):
    """Batches of row numbers in one pass of a loader, and whether it shuffles.

    The generators of torch are left as they are.
    """
    generator = loader.generator
    state = None if generator is None else generator.get_state()
    with TORCH_LOCK, torch.random.fork_rng(devices=[]):
        batches, again = ([list(b) for b in loader.batch_sampler] for _ in range(2))
    if state is not None:
        generator.set_state(state)
    sampler = _sampler(loader)
    is_random = isinstance(sampler, _RANDOM_SAMPLERS)
    is_random = is_random or getattr(sampler, "shuffle", False) or batches != again
    return batches, is_random and sum(map(len, batches)) > 1


def _is_stream(X):
    """Tell whether rows can only be had one after the other."""
    if isinstance(X, DataLoader):
        return isinstance(X.dataset, IterableDataset) or X.batch_sampler is None
    return isinstance(X, IterableDataset) or not hasattr(X, "__len__")


def rows_of(X, *, for_fit=False):
    """`DatasetRows` of a dataset or a loader; see `skood.utils._batches.as_rows`."""
    if isinstance(X, DatasetRows):
        return X
    if _is_stream(X):
        raise TypeError(
            f"A {_name(X)} gives rows one after the other, and here they are counted "
            "or chosen, as every fit does. Give a map-style dataset (with __len__ and "
            "__getitem__) or a loader of one; methods that score read any."
        )
    if not isinstance(X, DataLoader):
        return DatasetRows(X)
    batches, is_random = _drawn(X)
    indices = np.array([i for batch in batches for i in batch], dtype=np.int64)
    if is_random:
        if not for_fit:
            raise ValueError(
                "The DataLoader shuffles, so that nobody could tell which result is "
                f"of which row: its sampler is a {_name(_sampler(X))}. Make one with "
                "shuffle=False, or give the dataset itself."
            )
        indices = np.sort(indices)  # the order does not matter, but to rounding
    drops = type(X.batch_sampler) is BatchSampler and X.batch_sampler.drop_last
    n_all = len(_sampler(X)) if drops else len(indices)
    if n_all > len(indices) and not for_fit:
        raise ValueError(
            f"The DataLoader leaves out the last {n_all - len(indices)} of {n_all} "
            "rows. Make one with drop_last=False, or give the dataset itself."
        )
    options = {name: getattr(X, name) for name in _LOADER_OPTIONS}
    if options["batch_size"] is None:  # it has a batch_sampler of the user's
        options["batch_size"] = max(map(len, batches), default=1)
    return DatasetRows(X.dataset, indices, options)


def _stream(X):
    """Batches of what is gone through once."""
    if isinstance(X, DataLoader):
        if X.drop_last:
            raise ValueError(
                "The DataLoader leaves out the last rows of an iterable dataset if "
                "they do not fill a batch. Make one with drop_last=False."
            )
        return iter(X)
    items = iter(X)
    gathered = iter(lambda: list(islice(items, _BATCH_SIZE)), [])
    return map(_collate, gathered)


def iter_batches(X):
    """Yield the rows of a dataset or loader batch by batch, in their order.

    Parameters
    ----------
    X : torch Dataset or DataLoader, or DatasetRows
        Iterable datasets, and loaders of them, are gone through once.

    Yields
    ------
    block : ndarray, or tensor that is not on the CPU, of shape (n_rows, ...)
        A batch.
    """
    n_samples = 0
    if isinstance(X, DatasetRows):
        blocks = X.blocks()
    elif _is_stream(X):
        blocks = (_rows(batch) for batch in _stream(X))
    else:
        blocks = rows_of(X).without_labels().blocks()
    for block in blocks:
        n_samples += len(block)
        yield block
    if n_samples == 0:
        raise ValueError("X has no rows: the torch dataset gave none.")

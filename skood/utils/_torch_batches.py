"""Samples of torch datasets and loaders, loaded batch by batch."""

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

# Samples per batch of a dataset without a loader.
_BATCH_SIZE = 64

# Options of a loader that `DatasetRows` reuse.
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
    """Samples of a map-style dataset, in a given order, loaded on demand.

    It has a length and a shape; indexing returns other `DatasetRows`, without loading.
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
        """A tuple of the number of samples; their shape is unknown before loading."""
        return (len(self),)

    def __getitem__(self, key):
        if isinstance(key, tuple):  # scikit-learn indexes with [rows, ...]
            key = key[0]
        subset = DatasetRows(self.dataset, self.indices[key], self.options)
        subset._knows_labels = self._knows_labels
        if self._labels is not None:
            subset._labels = self._labels[key]
        return subset

    def without_labels(self):
        """Return the same samples; labels of the items are ignored."""
        if self._knows_labels:
            return self
        subset = DatasetRows(self.dataset, self.indices, self.options)
        subset._knows_labels = True
        return subset

    def __array__(self, dtype=None, copy=None):
        return np.asarray(np.concatenate(list(iter_batches(self))), dtype=dtype)

    def labels(self):
        """Return the labels of the items, from a pass over them unless all were loaded.

        None if items are samples without labels.
        """
        if not self._knows_labels:
            for _ in self.blocks():
                pass
        return self._labels

    def blocks(self):
        """Yield the samples batch by batch, of shape (n_rows, ...)."""
        options = dict(self.options)
        size = options.pop("batch_size")
        batches = [
            self.indices[start : start + size].tolist()
            for start in range(0, len(self), size)
        ]
        # with its own generator, it does not use the generator of the process
        loader = DataLoader(
            self.dataset, batch_sampler=batches, generator=torch.Generator(), **options
        )
        labels = []
        for requested, batch in zip(batches, loader, strict=True):
            X = _samples(batch)
            if len(X) != len(requested):
                raise ValueError(
                    f"The collate_fn of the loader gave {len(X)} samples for "
                    f"{len(requested)} items: there must be one sample for each."
                )
            if not self._knows_labels:
                labels.append(_labels(batch, len(X)))
            yield X
        if not self._knows_labels:
            self._labels, self._knows_labels = _merged(labels), True


def _collate(items):
    """Stack samples; labels, which may be text, remain in a list."""
    items = [item if isinstance(item, (tuple, list)) else (item,) for item in items]
    samples = [item[0] for item in items]
    for x in samples:
        if not isinstance(x, _SAMPLE_KINDS):
            raise TypeError(_NOT_SAMPLES.format(f"an item with a {_name(x)}"))
    if all(isinstance(x, torch.Tensor) for x in samples):
        X = torch.stack(samples)
    else:
        X = torch.from_numpy(np.stack([to_numpy(x) for x in samples]))
    if all(len(item) == 1 for item in items):
        return X
    return X, [item[1] if len(item) > 1 else None for item in items]


_SAMPLE_KINDS = (torch.Tensor, np.ndarray, np.generic, int, float)
_NOT_SAMPLES = (
    "Items of a torch dataset must be a tensor or an array, or (x, label) with one, "
    "and a batch of them likewise; got {}. Give the dataset a transform that makes "
    "tensors, or give a DataLoader with a collate_fn that returns (X, y)."
)


def _name(thing):
    kind = type(thing)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _samples(batch):
    """Return the samples of a batch as an array."""
    if isinstance(batch, (tuple, list)) and len(batch):
        batch = batch[0]
    if isinstance(batch, torch.Tensor):
        return to_numpy(batch) if batch.device.type == "cpu" else batch
    if isinstance(batch, np.ndarray):
        return batch
    raise TypeError(_NOT_SAMPLES.format(f"a batch with a {_name(batch)}"))


def _labels(batch, n_samples):
    """Return the labels of a batch as a list, or None."""
    if not isinstance(batch, (tuple, list)) or len(batch) < 2 or batch[1] is None:
        return None
    y = batch[1]
    if len(y) != n_samples:
        raise ValueError(
            f"A batch of the torch dataset has {n_samples} samples and {len(y)} "
            "labels: there must be one for each sample. Make the items (x, label), or "
            "pass y."
        )
    y = to_numpy(y)
    return y.tolist() if hasattr(y, "tolist") else [_plain(label) for label in y]


def _plain(label):
    """Return a label as a Python object."""
    label = to_numpy(label)
    return label.tolist() if isinstance(label, (np.ndarray, np.generic)) else label


def _merged(labels):
    """Return the labels of all batches as an array; do not convert text or numbers."""
    if all(y is None for y in labels):
        return None
    if any(y is None for y in labels):
        raise ValueError(
            "Some batches of the torch dataset have labels and others have none. Give "
            "all items a label, or none, or pass y."
        )
    values = [value for batch in labels for value in batch]
    if len({isinstance(value, str) for value in values}) == 2:
        return np.array(values, dtype=object)
    try:
        return np.array(values)
    except ValueError as error:  # labels have different lengths
        raise ValueError(
            "Labels of the items of the torch dataset must be a number or a text "
            f"each, got {values[0]!r} in the first item. Make the items (x, label), or "
            "pass y."
        ) from error


def _sampler(loader):
    """Return the sampler that determines the order of the samples."""
    batch_sampler = loader.batch_sampler
    return (
        batch_sampler.sampler if type(batch_sampler) is BatchSampler else batch_sampler
    )


def _drawn(loader):
    """Return batches of indices in one pass of a loader, and whether it shuffles.

    The state of torch's generators is not changed.
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
    """Return whether samples are only available by iteration."""
    if isinstance(X, DataLoader):
        return isinstance(X.dataset, IterableDataset) or X.batch_sampler is None
    return isinstance(X, IterableDataset) or not hasattr(X, "__len__")


def rows_of(X, *, for_fit=False):
    """Return `DatasetRows` of a dataset or a loader; see `_batches.as_rows`."""
    if isinstance(X, DatasetRows):
        return X
    if _is_stream(X):
        raise TypeError(
            f"A {_name(X)} gives samples one after the other, and here they are "
            "counted or chosen, as every fit does. Give a map-style dataset (with "
            "__len__ and __getitem__) or a loader of one; methods that score accept "
            "any."
        )
    if not isinstance(X, DataLoader):
        return DatasetRows(X)
    batches, is_random = _drawn(X)
    indices = np.array([i for batch in batches for i in batch], dtype=np.int64)
    if is_random:
        if not for_fit:
            raise ValueError(
                "The DataLoader shuffles, so that results cannot be assigned to "
                f"samples: its sampler is a {_name(_sampler(X))}. Make one with "
                "shuffle=False, or give the dataset itself."
            )
        indices = np.sort(indices)  # the order only affects rounding
    drops = type(X.batch_sampler) is BatchSampler and X.batch_sampler.drop_last
    n_all = len(_sampler(X)) if drops else len(indices)
    if n_all > len(indices) and not for_fit:
        raise ValueError(
            f"The DataLoader leaves out the last {n_all - len(indices)} of {n_all} "
            "samples. Make one with drop_last=False, or give the dataset itself."
        )
    options = {name: getattr(X, name) for name in _LOADER_OPTIONS}
    if options["batch_size"] is None:  # it has a user-defined batch_sampler
        options["batch_size"] = max(map(len, batches), default=1)
    return DatasetRows(X.dataset, indices, options)


def _stream(X):
    """Return an iterator over the batches of iterable data."""
    if isinstance(X, DataLoader):
        if X.drop_last:
            raise ValueError(
                "The DataLoader leaves out the last samples of an iterable dataset if "
                "they do not fill a batch. Make one with drop_last=False."
            )
        return iter(X)
    items = iter(X)
    gathered = iter(lambda: list(islice(items, _BATCH_SIZE)), [])
    return map(_collate, gathered)


def iter_batches(X):
    """Yield the samples of a dataset or loader batch by batch, in their order."""
    n_samples = 0
    if isinstance(X, DatasetRows):
        blocks = X.blocks()
    elif _is_stream(X):
        blocks = (_samples(batch) for batch in _stream(X))
    else:
        blocks = rows_of(X).without_labels().blocks()
    for block in blocks:
        n_samples += len(block)
        yield block
    if n_samples == 0:
        raise ValueError("X has no samples: the torch dataset gave none.")

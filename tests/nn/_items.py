"""Torch datasets for tests; being in a module, workers can load them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset


class Items(Dataset):
    """Rows, or rows with labels; counts how many items were loaded."""

    def __init__(self, X, y=None):
        self.X, self.y = X, y
        self.n_loaded = 0

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        self.n_loaded += 1
        x = torch.from_numpy(self.X[i])
        return x if self.y is None else (x, self.y[i])


class Stream(IterableDataset):
    """Items of another dataset, one after the other."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return (self.items[i] for i in range(len(self.items)))


def loses_rows(items):
    """A collate_fn that leaves out an item, such as a broken file."""
    return torch.stack([item[0] for item in items[1:]])


def one_too_few(items):
    """A collate_fn that loses a label."""
    return torch.stack([item[0] for item in items]), [item[1] for item in items[1:]]


def as_arrays(items):
    """A collate_fn without tensors."""
    return tuple(np.stack(part) for part in zip(*items, strict=True))

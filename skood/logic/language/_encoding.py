"""Encoding of labels of concepts as codes, and decoding."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.logic.language._domains import known, value_code
from skood.utils._torch import is_tensor, to_numpy


def is_frame(Y):
    """Return whether `Y` is a data frame: its columns have names."""
    return hasattr(Y, "columns") and hasattr(Y, "__getitem__")


def _columns(Y, domains):
    """Return the columns of labels, one array per concept."""
    names = list(domains)
    if is_frame(Y):
        columns = list(Y.columns)
        missing = [name for name in names if name not in columns]
        if missing:
            raise ValueError(
                f"The data frame has no column for the concepts {missing}; it has "
                f"{[str(c) for c in columns]}."
            )
        doubled = [name for name in names if columns.count(name) > 1]
        if doubled:
            raise ValueError(
                f"The data frame has more than one column for the concepts {doubled}."
            )
        return [np.asarray(Y[name]) for name in names]
    if not is_tensor(Y) and not isinstance(Y, np.ndarray):
        Y = np.array(Y, dtype=object)  # mixed arrays would be converted to str
    Y = to_numpy(Y)
    if Y.ndim == 1 and len(names) == 1:
        Y = Y[:, None]
    if Y.ndim != 2 or Y.shape[1] != len(names):
        raise ValueError(
            f"Expected one column for each of the {len(names)} concepts {names}, got "
            f"an array of shape {Y.shape}."
        )
    return list(Y.T)


def encode(Y, domains):
    """Return the codes of labels, an int64 array of shape (n_samples, n_concepts)."""
    columns = _columns(Y, domains)
    Z = np.empty((len(columns[0]), len(columns)), dtype=np.int64)
    for j, (column, name) in enumerate(zip(columns, domains, strict=True)):
        codes = _Codes(name, domains[name])
        Z[:, j] = [codes[label] for label in column.tolist()]
    return Z


class _Codes(dict):
    """Codes of the values of a concept, cached."""

    def __init__(self, name, values):
        super().__init__({value: code for code, value in enumerate(values)})
        self.name, self.values_ = name, values

    def __missing__(self, label):
        # missing entries are not values, even if their string is a value
        plain = isinstance(label, (str, bool, int, float, np.generic))
        code = value_code(self.values_, label) if plain and label == label else -1
        if code < 0:
            label = label.item() if isinstance(label, np.generic) else label
            raise ValueError(
                f"{label!r} is no value of the concept {self.name!r}. "
                + known("Its values", str(label), self.values_)
            )
        self[label] = code
        return code


def decode(Z, domains):
    """Return the labels of codes; see `encode`."""
    Z = to_numpy(check_codes(Z, [len(values) for values in domains.values()]))
    columns = [
        _labels(values)[codes]
        for codes, values in zip(Z.T, domains.values(), strict=True)
    ]
    if len({column.dtype.kind for column in columns}) == 1:
        return np.stack(columns, axis=1)
    Y = np.empty(Z.shape, dtype=object)
    for j, column in enumerate(columns):
        Y[:, j] = column
    return Y


def _labels(values):
    """Return values as an array that preserves their types."""
    labels = np.array(values)
    is_same = [(type(v), v) for v in labels.tolist()] == [(type(v), v) for v in values]
    return labels if is_same else np.array(values, dtype=object)


def check_codes(Z, sizes):
    """Return codes, an array or tensor of integers below `sizes`, or raise."""
    if is_tensor(Z):
        integer = not (Z.is_floating_point() or Z.is_complex())
    else:
        Z = np.asarray(Z)
        integer = Z.dtype.kind in "biu"
    if Z.ndim != 2 or Z.shape[1] != len(sizes):
        raise ValueError(
            f"Expected codes of shape (n_samples, {len(sizes)}), got {tuple(Z.shape)}."
        )
    if not integer:
        raise TypeError(
            f"Expected codes, which are integers, got an array of {Z.dtype}. Turn "
            "labels into codes with encode(), or give a data frame."
        )
    for j, size in enumerate(sizes if len(Z) else ()):
        # torch has no minimum for some integer dtypes
        column = Z[:, j].long() if is_tensor(Z) else Z[:, j]
        low, high = int(column.min()), int(column.max())
        if low < 0 or high >= size:
            raise ValueError(
                f"Column {j} holds the code {low if low < 0 else high}, but the "
                f"concept has the codes 0 to {size - 1}."
            )
    return Z


def narrow_columns(Z, sizes):
    """Return valid codes as contiguous columns of the smallest integer dtype."""
    # codes in too few bits would be compared with an overflowed number
    if not is_tensor(Z):
        return np.ascontiguousarray(Z.T, dtype=np.min_scalar_type(max(sizes) - 1))
    import torch

    narrow = torch.uint8 if max(sizes) <= 256 else torch.int64
    return Z.T.to(narrow).contiguous()

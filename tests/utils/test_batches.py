"""Methods that take rows which are not in memory, block by block."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
import types

import dask.array as da
import numpy as np
import pytest
import torch
from skorch.helper import SliceDataset
from torch.utils.data import DataLoader, TensorDataset

from skood.utils._batches import (
    as_rows,
    blockwise,
    is_dask,
    is_lazy,
    is_torch_data,
    joined,
    labeled_rows,
    loaded,
    loaded_blocks,
)
from skood.utils._metaestimators import n_rows, take_rows
from skood.utils._optional import is_instance

X = np.arange(24.0).reshape(12, 2)
DATA = TensorDataset(torch.from_numpy(X), torch.arange(12) % 2)
LAZY = {
    "dataset": DATA,
    "loader": DataLoader(DATA, batch_size=5),
    "sliceable": SliceDataset(DATA),
    "rows": as_rows(DATA),
    "dask": da.from_array(X, chunks=(5, 1)),
}


class Sums:
    """A thing with methods of each kind."""

    @blockwise
    def array(self, X, factor=1):
        return factor * np.asarray(X).sum(axis=1)

    @blockwise
    def several(self, X):
        return [self.array(X), -self.array(X)]

    @blockwise
    def pair(self, X):
        return self.array(X), None

    @blockwise
    def named(self, X):
        return {"sum": self.array(X), "none": None}

    @blockwise(axis=1)
    def wide(self, X):
        return np.asarray(X).T


@pytest.mark.parametrize("X_lazy", LAZY.values(), ids=LAZY)
def test_blockwise(X_lazy):
    sums = Sums()
    assert is_lazy(X_lazy)
    assert is_dask(X_lazy) != is_torch_data(X_lazy)
    expected = X.sum(axis=1)
    np.testing.assert_array_equal(sums.array(X_lazy, factor=2), 2 * expected)
    actual = sums.several(X_lazy)
    assert isinstance(actual, list)
    np.testing.assert_array_equal(actual, [expected, -expected])
    first, second = sums.pair(X_lazy)
    np.testing.assert_array_equal(first, expected)
    assert second is None
    actual = sums.named(X_lazy)
    np.testing.assert_array_equal(actual.sum, expected)
    assert actual.none is None
    np.testing.assert_array_equal(sums.wide(X_lazy), X.T)
    assert Sums.array.__name__ == "array"


@pytest.mark.parametrize("X_lazy", LAZY.values(), ids=LAZY)
def test_as_rows(X_lazy):
    np.testing.assert_array_equal(loaded(X_lazy), X)
    assert n_rows(X_lazy) == 12
    for rows in (np.array([3, 1]), np.arange(12) < 5):
        part = take_rows(X_lazy, rows)
        assert is_lazy(part)
        np.testing.assert_array_equal(loaded(part), X[rows])


def test_samples_in_memory_pass_through():
    assert loaded(X) is X
    assert as_rows(X) is X
    assert labeled_rows(X, None) == (X, None)
    assert [block is X for block in loaded_blocks(X)] == [True]
    assert not is_lazy(X.tolist())


def test_labels():
    rows, y = labeled_rows(DATA, None)
    np.testing.assert_array_equal(y, np.arange(12) % 2)
    rows, y = labeled_rows(DATA, None, wait=True)
    assert y is None
    given = np.arange(12)
    assert labeled_rows(DATA, given)[1] is given
    assert len(rows) == 12


def test_labels_of_the_user_with_a_shuffling_loader_raise():
    loader = DataLoader(DATA, shuffle=True)
    assert labeled_rows(loader, None)[1] is not None
    with pytest.raises(ValueError, match="The DataLoader shuffles"):
        labeled_rows(loader, np.arange(12))


@pytest.mark.parametrize("n_tables", [1, 2])
def test_joined_tables(n_tables):
    parts = [[np.ones((2, 3))] * n_tables, [np.zeros((1, 3))] * n_tables]
    found = joined(parts)
    assert [part.shape for part in found] == [(3, 3)] * n_tables


# ---- dask


def test_chunks_are_computed_in_turn():
    alive = []

    def note(block):
        alive.append(len(block))
        return block

    X_dask = da.from_array(X, chunks=(5, 2)).map_blocks(note, meta=X[:0])
    blocks = loaded_blocks(X_dask)
    next(blocks)
    assert alive == [5]
    next(blocks)
    assert alive == [5, 5]


def test_unknown_and_empty_chunks():
    X_dask = da.from_array(X, chunks=(5, 2))
    some = X_dask[X_dask[:, 0] > 9]
    assert np.isnan(some.shape[0])
    assert [len(block) for block in loaded_blocks(some)] == [5, 2]
    with pytest.raises(ValueError, match="X has no samples: all chunks of the dask"):
        list(loaded_blocks(X_dask[X_dask[:, 0] > 99]))


def test_single_axis():
    blocks = list(loaded_blocks(da.arange(4, chunks=2)))
    assert [block.tolist() for block in blocks] == [[0, 1], [2, 3]]


def test_data_frames_are_refused(monkeypatch):
    """One stands in for that of dask, which needs another library."""

    class DataFrame:
        """Of dask.dataframe."""

    module = types.SimpleNamespace(DataFrame=DataFrame)
    monkeypatch.setitem(sys.modules, "dask.dataframe", module)
    assert is_lazy(DataFrame())
    message = r"Got a dask DataFrame, but .* pass X.to_dask_array\(\), or X.compute\(\)"
    for function in (loaded, lambda X: list(loaded_blocks(X)), Sums().array):
        with pytest.raises(TypeError, match=message):
            function(DataFrame())


def test_class_that_is_not_imported():
    assert not is_instance(X, "no.such.module", "Array")
    assert not is_instance(X, "numpy", "no_such_name")
    assert is_instance(X, "numpy", "ndarray")

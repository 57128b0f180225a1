"""Tests of what the detectors that search a bank share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch

from skood.detectors._common._memory_bank import drawn_indices, top_k_of_many
from tests._loops import looped


@looped("n_values", [1, 63, 64, 200, 1000, 4097])
@looped("k", [1, 3, 10])
@looped("kind", [np.float32, np.float64, torch.float64])
def test_top_k_of_many_equals_a_sort(n_values, k, kind):
    k = min(k, n_values)
    array = np.random.default_rng(n_values).normal(size=(17, n_values))
    # the largest values in one block, ties, and the largest in the columns left over
    array[0, :: max(1, n_values // 64)] += 100
    array[1] = 3.0
    array[2, -1] = 50.0
    if kind is torch.float64:
        largest = top_k_of_many(torch.from_numpy(array), k).numpy()
    else:
        array = array.astype(kind)
        largest = top_k_of_many(array, k)
        assert largest.dtype == kind
    expected = np.sort(array, axis=1)[:, -k:]
    np.testing.assert_array_equal(np.sort(largest, axis=1), expected)


def test_top_k_of_many_of_a_slice():
    """A slice of columns, which is not contiguous."""
    array = np.random.default_rng(0).normal(size=(5, 3000))[:, 100:2000]
    largest = np.sort(top_k_of_many(array, 4), axis=1)
    np.testing.assert_array_equal(largest, np.sort(array, axis=1)[:, -4:])


@pytest.mark.parametrize("size", [None, 10, 11, 1.0])
def test_all_samples_are_a_slice(size):
    assert drawn_indices(10, size, 0) == slice(None)


@pytest.mark.parametrize(
    "size, n_drawn", [(1, 1), (4, 4), (0.5, 50), (0.001, 1), (0.999, 100)]
)
def test_drawn_indices_are_sorted(size, n_drawn):
    indices = drawn_indices(100, size, 0)
    if n_drawn == 100:
        assert indices == slice(None)
        return
    assert len(indices) == n_drawn
    assert np.all(np.diff(indices) > 0)
    assert 0 <= indices[0] and indices[-1] < 100
    np.testing.assert_array_equal(indices, drawn_indices(100, size, 0))


def test_each_row_is_drawn_as_often():
    rng = np.random.RandomState(0)
    counts = np.zeros(10)
    for _ in range(2000):
        counts[drawn_indices(10, 0.3, rng)] += 1
    # 600 each, with a standard deviation of 20
    assert np.abs(counts - 600).max() < 80

"""Keys of samples: equal for copies in any container, different for other samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from struct import pack

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csc_array, csr_array

from skood.graph import NodeSet
from skood.utils._sample_keys import SampleKeys, copy_numbers

_X = np.maximum(np.random.default_rng(0).normal(size=(300, 7)), 0).astype(np.float32)


def _keys(X):
    return SampleKeys(X).values


@pytest.mark.parametrize(
    "convert",
    [
        lambda X: X.astype(np.float64),
        np.asfortranarray,
        lambda X: np.where(X == 0, np.float32(-0.0), X),
        lambda X: X.tolist(),
        torch.from_numpy,
        csr_array,
        csc_array,
        pd.DataFrame,
        lambda X: pd.DataFrame(X).assign(a=1.0).drop(columns="a"),
        lambda X: X.reshape(300, 7, 1),
        lambda X: torch.utils.data.TensorDataset(torch.from_numpy(X)),
    ],
)
def test_containers(convert):
    np.testing.assert_array_equal(_keys(convert(_X)), _keys(_X))


def test_large_arrays_are_read_in_blocks(tmp_path):
    X = np.random.default_rng(0).normal(size=(5000, 60)).astype(np.float32)
    expected = np.concatenate([_keys(X[i : i + 1]) for i in range(0, 5000, 100)])
    np.testing.assert_array_equal(_keys(X)[::100], expected)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    np.testing.assert_array_equal(_keys(mapped), _keys(X))


def test_entries_stored_as_summands():
    parts = csr_array(([1.0, 1.0, 0.0], [2, 2, 1], [0, 3]), shape=(1, 4))
    np.testing.assert_array_equal(_keys(parts), _keys(np.array([[0.0, 0, 2, 0]])))
    assert parts.nnz == 3


@pytest.mark.parametrize("step", [1.0, 0.5, 1e-12, 2.0**30])
def test_different_samples_have_different_keys(step):
    grid = np.stack(np.meshgrid(*[np.arange(20) * step] * 4), axis=-1).reshape(-1, 4)
    assert len(np.unique(_keys(grid))) == 20**4


def test_other_values():
    frame = pd.DataFrame(
        {
            "text": ["a", "a", "b", None],
            "day": pd.to_datetime(["2020-01-01", "2020-01-01", "2020-01-02", None]),
            "kind": pd.Categorical(["u", "u", "v", "u"]),
            "number": [1.0, 1.0, np.nan, np.nan],
        }
    )
    keys = _keys(frame)
    assert keys[0] == keys[1] and len(np.unique(keys)) == 3
    np.testing.assert_array_equal(_keys(frame.iloc[::-1]), keys[::-1])
    assert len(np.unique(_keys(["one", "two", "one"]))) == 2
    pair = np.array([["x", 1.5], ["x", 1.5], ["x", 2.5]], dtype=object)
    assert len(np.unique(_keys(pair))) == 2


def test_nodes():
    nodes = NodeSet((_X, np.array([[0, 1], [1, 2]])), [3, 5, 3])
    keys = _keys(nodes)
    assert keys[0] == keys[2] != keys[1]


def _split_mix(number):
    """SplitMix64 in integers of Python."""
    number = (number + 0x9E3779B97F4A7C15) % 2**64
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
    return number ^ number >> 31


def test_keys_are_the_same_everywhere():
    """They are integers of the bits of values, so that no rounding enters."""
    assert _split_mix(0) == 0xE220A8397B1DCDAF  # the published first output of seed 0
    expected = []
    for row in _X[:5].tolist():
        bits = [int.from_bytes(pack(">d", value), "big") for value in row]
        terms = [(b ^ b >> 32) * (_split_mix(j) | 1) for j, b in enumerate(bits)]
        expected.append(_split_mix(sum(terms) % 2**64))
    assert _keys(_X[:5]).tolist() == expected
    texts = [13504641805304789086, 9441266784409274942]  # computed by another process
    assert _keys(["text", "other"]).tolist() == texts


def test_copies_have_different_numbers():
    keys = _keys(np.array([[1.0], [2.0], [1.0], [3.0]]))
    numbers = copy_numbers(keys, np.array([2, 1, 3, 1]))
    assert len(np.unique(numbers)) == 7
    ones = np.sort(copy_numbers(np.repeat(keys[:1], 5)))
    np.testing.assert_array_equal(np.sort(numbers[[0, 1, 3, 4, 5]]), ones)
    other = copy_numbers(keys, np.array([2, 1, 3, 1]), seed=1)
    assert set(other).isdisjoint(numbers)


@pytest.mark.parametrize("seed", [0, 7])
def test_numbers_are_uniform(seed):
    values = np.arange(20_000.0)[:, None]
    for keys in (_keys(values), np.zeros(20_000, dtype=np.uint64)):
        share = copy_numbers(keys, seed=seed) / 2.0**64
        counts = np.histogram(share, 20, (0, 1))[0]
        assert np.sum((counts - 1000) ** 2 / 1000) < 45.3  # 1 - 6e-4 of chi2(19)
        assert abs(np.corrcoef(share[:-1], share[1:])[0, 1]) < 0.025

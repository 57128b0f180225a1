"""Tests of working on chunks in threads."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from skood.utils import _parallel as _threads
from skood.utils._parallel import map_chunks


@pytest.mark.parametrize("n_threads", [1, 2, 8])
@pytest.mark.parametrize("n_chunks", [0, 1, 3, 9])
def test_results_are_in_order(monkeypatch, n_threads, n_chunks):
    monkeypatch.setattr(_threads, "_n_threads", lambda: n_threads)
    chunks = list(range(n_chunks))
    assert map_chunks(lambda i: i * i, chunks) == [i * i for i in chunks]


def test_threads_are_used_side_by_side(monkeypatch):
    monkeypatch.setattr(_threads, "_n_threads", lambda: 2)
    barrier = threading.Barrier(2, timeout=10)  # breaks if one waits for the other
    map_chunks(lambda _: barrier.wait(), [0, 1, 2, 3])


def test_few_chunks_or_one_thread_stay_in_this_thread(monkeypatch):
    monkeypatch.setattr(_threads, "_n_threads", lambda: 1)
    here = threading.get_ident()
    assert set(map_chunks(lambda _: threading.get_ident(), range(9))) == {here}
    monkeypatch.setattr(_threads, "_n_threads", lambda: 4)
    assert map_chunks(lambda _: threading.get_ident(), range(3)) == 3 * [here]


def test_errors_reach_the_caller(monkeypatch):
    monkeypatch.setattr(_threads, "_n_threads", lambda: 2)

    def fail(chunk):
        raise ValueError(f"chunk {chunk}")

    with pytest.raises(ValueError, match="chunk 0"):
        map_chunks(fail, [0, 1, 2, 3])


def test_number_of_threads_follows_the_limits():
    with threadpool_limits(limits=1):
        assert _threads._n_threads() == 1


def test_libraries_have_one_thread_meanwhile(monkeypatch):
    assert np.ones(2) @ np.ones(2) == 2.0  # NumPy and its BLAS are loaded
    with threadpool_limits(limits=2):
        assert set(map_chunks(lambda _: _threads._n_threads(), range(4))) == {1}
        assert _threads._n_threads() == 2

"""Tests of working on chunks in threads."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from skood.detectors import Mahalanobis
from skood.nn._outputs import linear_logits
from skood.utils import _parallel as _threads
from skood.utils._parallel import map_chunks
from tests._loops import looped


@looped("n_threads", [1, 2, 8])
@looped("n_chunks", [0, 1, 3, 9])
def test_results_are_in_order(monkeypatch, n_threads, n_chunks):
    monkeypatch.setattr(_threads, "_n_threads", lambda: n_threads)
    chunks = list(range(n_chunks))
    assert map_chunks(lambda i: i * i, chunks) == [i * i for i in chunks]


def test_threads_are_used_side_by_side(monkeypatch):
    monkeypatch.setattr(_threads, "_n_threads", lambda: 2)
    monkeypatch.setattr(_threads, "_LEAST_SECONDS", 0)
    barrier = threading.Barrier(2, timeout=10)  # breaks if one waits for the other
    # the first shows how long one takes
    map_chunks(lambda i: i == 0 or barrier.wait(), [0, 1, 2, 3, 4])


def test_threads_are_started_for_what_takes_longer_than_starting_them(monkeypatch):
    monkeypatch.setattr(_threads, "_n_threads", lambda: 2)
    here = threading.get_ident()

    def spin(seconds):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return threading.get_ident()

    assert map_chunks(spin, [1e-4] * 9) == 9 * [here]
    first, *others = map_chunks(spin, [0.01] * 9)
    assert first == here and here not in others


def test_few_chunks_or_a_single_thread_stay_in_this_thread(monkeypatch):
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


def test_libraries_have_a_single_thread_meanwhile(monkeypatch):
    assert np.ones(2) @ np.ones(2) == 2.0  # NumPy and its BLAS are loaded
    monkeypatch.setattr(_threads, "_LEAST_SECONDS", 0)
    with threadpool_limits(limits=2):
        _, *found = map_chunks(lambda _: _threads._n_threads(), range(4))
        assert set(found) == {1}
        assert _threads._n_threads() == 2


# --- one thread for small products ------------------------------------------------


class Library:
    """What `threadpoolctl` finds: a library with a number of threads."""

    def __init__(self, num_threads):
        self.num_threads = num_threads

    def set_num_threads(self, number):
        self.num_threads = number


@pytest.fixture
def libraries(monkeypatch):
    found = [Library(4), Library(1)]
    monkeypatch.setattr(_threads, "_open_blas", lambda with_scipy: found)
    return found


def counts(libraries):
    return [library.num_threads for library in libraries]


def test_the_number_of_threads_is_restored(libraries):
    with _threads.ONE_THREAD:
        assert counts(libraries) == [1, 1]
        with _threads.ONE_THREAD:
            assert counts(libraries) == [1, 1]
        assert counts(libraries) == [1, 1]
    assert counts(libraries) == [4, 1]
    with pytest.raises(ZeroDivisionError), _threads.ONE_THREAD:
        1 / 0  # noqa: B018
    assert counts(libraries) == [4, 1]


def test_blocks_of_threads_that_overlap_restore_the_number(libraries):
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def second():
        first_is_in.wait(10)
        with _threads.ONE_THREAD:
            second_is_in.set()
            first_is_out.wait(10)
            assert counts(libraries) == [1, 1]

    thread = threading.Thread(target=second)
    thread.start()
    with _threads.ONE_THREAD:
        first_is_in.set()
        assert second_is_in.wait(10)
    assert counts(libraries) == [1, 1]  # the other block has not ended
    first_is_out.set()
    thread.join()
    assert counts(libraries) == [4, 1]


def test_few_samples_are_scored_on_a_single_thread(libraries):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 5)), np.arange(600) % 3
    detector, actual = Mahalanobis().fit(X, y), []

    class Noted(Mahalanobis):
        def _score_outputs(self, outputs):
            actual.append(counts(libraries))
            return super()._score_outputs(outputs)

    detector.__class__ = Noted
    expected = detector.score_samples(X)
    few = detector.score_samples(X[:10])
    assert actual == [[4, 1], [1, 1]]
    np.testing.assert_allclose(few, expected[:10], rtol=1e-12)
    assert counts(libraries) == [4, 1]


@pytest.mark.parametrize(
    ("n_multiplications", "found"),
    [(1, [4, 1]), (2**18 + 1, [1, 1]), (2**34 - 1, [1, 1]), (2**34, [4, 1])],
)
def test_neither_tiny_nor_large_products_are_limited(
    libraries, n_multiplications, found
):
    with _threads.one_thread(n_multiplications):
        assert counts(libraries) == found
    assert counts(libraries) == [4, 1]


@pytest.mark.parametrize(("many", "limited"), [(2**34, [1, 1]), (2**19, [4, 1])])
def test_small_fits_and_scores_are_limited(libraries, monkeypatch, many, limited):
    monkeypatch.setattr(_threads, "_MANY", many)
    found = []

    class Noted(Mahalanobis):
        def _added(self, sums, part, labels):
            found.append(counts(libraries))
            return super()._added(sums, part, labels)

        def _score_left_out(self, part, labels):
            found.append(counts(libraries))
            return super()._score_left_out(part, labels)

        def _score_outputs(self, outputs):
            found.append(counts(libraries))
            return super()._score_outputs(outputs)

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 40)), np.arange(600) % 3
    Noted().fit(X, y).score_samples(X)
    assert len(found) >= 3
    assert set(map(tuple, found)) == {tuple(limited)}
    assert counts(libraries) == [4, 1]


@pytest.mark.parametrize(("n_samples", "limited"), [(1, [4, 1]), (900, [1, 1])])
def test_small_products_with_heads_are_limited(libraries, n_samples, limited):
    class Noted(np.ndarray):
        def __matmul__(self, other):
            found.append(counts(libraries))
            return np.asarray(self) @ other

    found = []
    rng = np.random.default_rng(0)
    X, coef = rng.normal(size=(n_samples, 40)), rng.normal(size=(10, 40))
    logits = linear_logits(X.view(Noted), coef, np.ones(10))
    np.testing.assert_allclose(logits, X @ coef.T + 1, rtol=1e-12)
    assert found == [limited]


def test_chunks_without_threads_are_limited(libraries, monkeypatch):
    monkeypatch.setattr(_threads, "_n_threads", lambda: 4)
    assert map_chunks(lambda _: counts(libraries), range(3)) == 3 * [[1, 1]]
    assert map_chunks(lambda _: counts(libraries), range(1)) == [[4, 1]]


def test_maps_that_overlap_restore_the_number(monkeypatch):
    monkeypatch.setattr(_threads, "_LEAST_SECONDS", 0)
    starts = threading.Barrier(2, timeout=10)

    def run():
        map_chunks(lambda i: starts.wait() if i == 0 else None, range(4))

    with threadpool_limits(limits=2):
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        blas = [p for p in threadpool_info() if p["internal_api"] == "openblas"]
        assert {p["num_threads"] for p in blas} <= {2}

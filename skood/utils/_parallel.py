"""Threaded map over chunks of samples, and a limit of threads for small products."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

from skood.utils._locks import ForkSafeLock

# Fewer chunks, or chunks that take less CPU time in all, have no threads: these take
# a millisecond to start, and share the bandwidth of the memory.
_MIN_CHUNKS, _LEAST_SECONDS = 4, 0.02

# Packages with threaded libraries of their own.
_THREADED = "scipy.linalg", "faiss", "torch"

# Products of fewer multiplications have no threads; products of more take so long that
# threads gain more than they wait for each other.
_FEW, _MANY = 2**18, 2**34


def _libraries():
    """Return the controller of the threaded libraries that have been imported."""
    return _imported_libraries(*(name in sys.modules for name in _THREADED))


@cache
def _imported_libraries(*imported):
    """Return the controller of the libraries, searched once for each of these."""
    return ThreadpoolController()


def _n_threads():
    """Return the number of threads of the libraries below NumPy.

    1 with ``OMP_NUM_THREADS=1``, or in a process of joblib where all cores are busy.
    """
    libraries = _libraries().lib_controllers
    return max((library.num_threads for library in libraries), default=1)


def map_chunks(function, chunks):
    """Apply a function to chunks, in parallel threads if available; return a list.

    Elementwise functions of NumPy release the lock of the interpreter. Matrix products
    have their own threads and do not gain here.
    """
    n_threads = _n_threads() if len(chunks) >= _MIN_CHUNKS else 1
    if n_threads == 1:
        with ONE_THREAD if len(chunks) > 1 else NO_LIMIT:
            return [function(chunk) for chunk in chunks]
    with ONE_THREAD, _limited_to_one():
        start = time.thread_time()
        first = function(chunks[0])
        if (time.thread_time() - start) * len(chunks) < _LEAST_SECONDS:
            return [first, *(function(chunk) for chunk in chunks[1:])]
    # Small products with their own threads in each thread would block each other. A
    # limit of OpenMP is of one thread only, and so is set in each.
    with (
        ONE_THREAD,
        _limited_to_one(),
        ThreadPoolExecutor(n_threads, initializer=_limited_to_one) as pool,
    ):
        return [first, *pool.map(function, chunks[1:])]


class _OneThread:
    """Limit OpenBLAS to one thread in a block; blocks of several threads may overlap.

    Threads of a product that takes less than some milliseconds mostly wait for each
    other, and spin: next to busy processes this takes a hundred times the time of the
    product. The limit is the process's, so that the first block sets it and the last
    one restores it. OpenMP has a limit per thread, and is left as it is.
    """

    def __init__(self):
        self._lock = ForkSafeLock()
        self._n_blocks = 0
        self._limited = []

    def __enter__(self):
        with self._lock:
            self._n_blocks += 1
            if self._n_blocks == 1:
                self._limited = []
                for library in _open_blas("scipy.linalg" in sys.modules):
                    n_threads = library.num_threads
                    if n_threads > 1:
                        self._limited.append((library, n_threads))
                        library.set_num_threads(1)

    def __exit__(self, *exc_info):
        with self._lock:
            self._n_blocks -= 1
            if self._n_blocks == 0:
                for library, n_threads in self._limited:
                    library.set_num_threads(n_threads)


ONE_THREAD = _OneThread()
NO_LIMIT = nullcontext()  # created once, for the speed of small calls


@cache
def _open_blas(with_scipy):
    """Return the libraries whose threads spin; SciPy has one of its own."""
    return [
        library
        for library in ThreadpoolController().lib_controllers
        if library.internal_api == "openblas" and library.threading_layer == "pthreads"
    ]


def one_thread(n_multiplications):
    """Return a context that limits OpenBLAS to one thread for small products."""
    return ONE_THREAD if _FEW < n_multiplications < _MANY else NO_LIMIT


def _limited_to_one():
    """Limit the libraries to one thread, until the returned context ends."""
    return _libraries().limit(limits=1)

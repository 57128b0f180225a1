"""Threaded map over chunks of samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from concurrent.futures import ThreadPoolExecutor
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["map_chunks"]

# Fewer chunks take less time than starting threads.
_MIN_CHUNKS = 4


@cache
def _libraries():
    """Return the controller of the threaded libraries below NumPy."""
    return ThreadpoolController()


def _n_threads():
    """Return the number of threads of the libraries below NumPy.

    1 with ``OMP_NUM_THREADS=1``, or in a process of joblib where all cores are in use.
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
        return [function(chunk) for chunk in chunks]
    # Small products with their own threads in each thread would block each other. A
    # limit of OpenMP is of one thread only, and so is set in each.
    with (
        _limited_to_one(),
        ThreadPoolExecutor(n_threads, initializer=_limited_to_one) as pool,
    ):
        return list(pool.map(function, chunks))


def _limited_to_one():
    """Limit the libraries to one thread, until the returned context ends."""
    return _libraries().limit(limits=1)

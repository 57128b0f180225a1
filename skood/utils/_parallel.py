"""Work on chunks of rows in as many threads as NumPy's libraries may use."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from concurrent.futures import ThreadPoolExecutor
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["map_chunks"]

# Fewer chunks are done before threads have started.
_MIN_CHUNKS = 4


@cache
def _libraries():
    """The libraries below NumPy that have threads."""
    return ThreadpoolController()


def _n_threads():
    """How many threads the libraries below NumPy use here.

    One where ``OMP_NUM_THREADS=1`` is set, or in a process that joblib started on a
    machine whose cores are taken.
    """
    libraries = _libraries().lib_controllers
    return max((library.num_threads for library in libraries), default=1)


def map_chunks(function, chunks):
    """Apply a function to chunks, side by side where there are threads for it.

    NumPy works on elements in one thread, and lets others run meanwhile. Matrix
    products have threads of their own: they gain nothing here.

    Parameters
    ----------
    function : callable
        Called with each chunk.

    chunks : sequence
        The chunks.

    Returns
    -------
    results : list
        What the function returned, in the order of the chunks.
    """
    n_threads = _n_threads() if len(chunks) >= _MIN_CHUNKS else 1
    if n_threads == 1:
        return [function(chunk) for chunk in chunks]
    # Small products in each of our threads would only wait for each other's threads.
    with _libraries().limit(limits=1), ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(function, chunks))

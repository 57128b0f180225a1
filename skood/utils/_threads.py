"""Work on chunks of rows in as many threads as NumPy's libraries may use."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from concurrent.futures import ThreadPoolExecutor

from threadpoolctl import threadpool_info

__all__ = ["map_chunks"]


def _n_threads():
    """How many threads the libraries below NumPy use here.

    One where ``OMP_NUM_THREADS=1`` is set, or in a process that joblib started on a
    machine whose cores are taken.
    """
    return max((library["num_threads"] for library in threadpool_info()), default=1)


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
    n_threads = min(_n_threads(), len(chunks)) if len(chunks) > 1 else 1
    if n_threads == 1:
        return [function(chunk) for chunk in chunks]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(function, chunks))

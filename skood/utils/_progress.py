"""Progress of long computations, shown by tqdm."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.utils.parallel import Parallel

__all__ = ["as_they_come", "progress"]


def as_they_come(n_jobs):
    """Return a joblib `Parallel` that yields results in order, as they are computed.

    With a backend that does not support generators, it returns them all at the end.
    """
    try:
        return Parallel(n_jobs=n_jobs, return_as="generator")
    except ValueError:
        return Parallel(n_jobs=n_jobs)


class _Silent:
    """Interface of progress displays; this one shows nothing."""

    def __init__(self, iterable):
        self.iterable = iterable

    def __iter__(self):
        with self:
            for item in self.iterable:
                yield item
                self.update(1)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def update(self, n=1):
        """Count `n` more steps."""

    def set_postfix(self, **values):
        """Show `values` after the count."""

    def close(self):
        """Finish the display."""


def progress(iterable_or_total, *, desc, verbose):
    """Show the progress of a long computation.

    Parameters
    ----------
    iterable_or_total : iterable or int
        Items to iterate over, or the number of steps.

    desc : str
        Name of the computation.

    verbose : int or bool
        0 shows nothing, otherwise a tqdm bar.

    Returns
    -------
    bar : iterator and context manager
        Iterating over it counts automatically. ``update(n)`` counts `n` steps,
        ``set_postfix(**values)`` shows values after the count, ``close()`` or the end
        of a `with` block finishes it.

    Examples
    --------
    >>> from skood.utils._progress import progress
    >>> [i * i for i in progress(range(3), desc="squares", verbose=0)]
    [0, 1, 4]
    >>> with progress(2, desc="steps", verbose=0) as bar:
    ...     bar.update(1)
    ...     bar.set_postfix(loss=0.5)
    """
    if isinstance(iterable_or_total, int):
        iterable = range(iterable_or_total)
    else:
        iterable = iterable_or_total
    if not verbose:
        return _Silent(iterable)
    from tqdm.auto import tqdm

    class Bar(tqdm):
        def set_postfix(self, **values):
            super().set_postfix(refresh=False, **values)  # shown at the next update

    return Bar(iterable, desc=desc)

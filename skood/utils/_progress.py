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
    """Iterate over items, or count to a total, with a tqdm bar if `verbose`.

    As a context manager it has ``update(n)``, ``set_postfix(**values)`` and
    ``close()``.
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

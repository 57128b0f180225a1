"""Progress of long computations: a tqdm bar if tqdm is installed, else plain lines."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
import time

from sklearn.utils.parallel import Parallel

__all__ = ["as_they_come", "progress"]

_SECONDS_BETWEEN_LINES = 2.0


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


class _Lines(_Silent):
    """Plain lines on stderr, at most one every few seconds, and one at the end."""

    def __init__(self, iterable, total, desc):
        super().__init__(iterable)
        self.total = total
        self.desc = desc
        self.count = 0
        self.values = {}
        self.started = self.written = time.monotonic()
        self.shown = None

    def update(self, n=1):
        self.count += n
        if time.monotonic() - self.written >= _SECONDS_BETWEEN_LINES:
            self._write()

    def set_postfix(self, **values):
        self.values = values

    def close(self):
        if self.shown != (self.count, self.values):
            self._write()

    def _write(self):
        self.written = time.monotonic()
        self.shown = self.count, self.values
        seconds = self.written - self.started
        of_total = "" if self.total is None else f"/{self.total}"
        values = "".join(f", {name}={value}" for name, value in self.values.items())
        print(
            f"{self.desc}: {self.count}{of_total} in {seconds:.1f} s{values}",
            file=sys.stderr,
            flush=True,
        )


def progress(iterable_or_total, *, desc, verbose):
    """Show the progress of a long computation.

    Parameters
    ----------
    iterable_or_total : iterable or int
        Items to iterate over, or the number of steps.

    desc : str
        Name of the computation.

    verbose : int or bool
        0 shows nothing. Otherwise a tqdm bar if tqdm is installed
        (``pip install "skood[progress]"``), else plain lines on stderr.

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
    total = len(iterable) if hasattr(iterable, "__len__") else None
    if not verbose:
        return _Silent(iterable)
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Lines(iterable, total, desc)

    class Bar(tqdm):
        def set_postfix(self, **values):
            super().set_postfix(refresh=False, **values)  # shown at the next update

    return Bar(iterable, total=total, desc=desc)

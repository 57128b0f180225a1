"""Progress of long computations, shown by tqdm."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager
from contextvars import ContextVar

from sklearn.utils.parallel import Parallel

from skood.utils._optional import import_optional

_SHOWN = ContextVar("show_progress", default=False)


@contextmanager
def show_progress():
    """Show progress bars of folds and of members of ensembles inside a block.

    Bars count the folds of cross-fitting, as in
    :class:`~skood.rejection.RejectOptionClassifier`, the members of combined detectors
    and of :class:`~skood.epistemic.DeepEnsemble`. They are written to the standard
    error by tqdm, and advance when results return, also from other processes.

    Examples
    --------
    >>> import skood
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.detectors import Mahalanobis
    >>> from skood.rejection import RejectOptionClassifier, TwoThresholds
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = RejectOptionClassifier(
    ...     LogisticRegression(max_iter=500),
    ...     ood_detector=Mahalanobis(),
    ...     rule=TwoThresholds(ood=0.1, risk=0.1),
    ...     calibration=5,
    ... )
    >>> with skood.show_progress():
    ...     clf = clf.fit(X, y)
    """
    import_optional("tqdm", "show_progress()")
    token = _SHOWN.set(True)
    try:
        yield
    finally:
        _SHOWN.reset(token)


def is_shown():
    """Return whether `show_progress` is active in this context."""
    return _SHOWN.get()


def in_parallel(calls, sizes, *, desc, n_jobs, verbose=0):
    """Return the results of delayed calls, with a bar in a block of `show_progress`.

    `sizes` has the number of steps of each call; `verbose` is the parameter of joblib.
    """
    if not _SHOWN.get():
        return Parallel(n_jobs=n_jobs, verbose=verbose)(calls)
    results = []
    with progress(sum(sizes), desc=desc, verbose=1) as bar:
        for result, size in zip(as_they_come(n_jobs)(calls), sizes, strict=True):
            results.append(result)
            bar.update(size)
    return results


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

"""Keep an estimator's state when a fit fails or is interrupted."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager

__all__ = ["fresh_fit"]


@contextmanager
def fresh_fit(estimator):
    """Run a fit that starts from nothing and, if it fails, never happened.

    On entry every fitted attribute (a name that ends in an underscore) of an
    earlier fit is removed, so that nothing of it can leak into this one. If the
    block raises, be it a ``KeyboardInterrupt``, the attributes that the estimator
    had before are put back.

    Parameters
    ----------
    estimator : object
        The estimator that is being fitted.
    """
    before = vars(estimator).copy()
    for name in before:
        if name.endswith("_") and not name.startswith("_"):
            delattr(estimator, name)
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise

"""Keep an estimator's state when a fit fails or is interrupted."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager

__all__ = ["fresh_fit", "kept_state"]


@contextmanager
def kept_state(estimator):
    """Put back the attributes of an estimator if the block raises.

    Parameters
    ----------
    estimator : object
        Its attributes may be replaced in the block, but not be written into.
    """
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


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
    with kept_state(estimator):
        for name in list(vars(estimator)):
            if name.endswith("_") and not name.startswith("_"):
                delattr(estimator, name)
        yield

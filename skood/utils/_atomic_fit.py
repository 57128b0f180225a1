"""Context managers that restore an estimator's state when a fit fails."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager


@contextmanager
def kept_state(estimator):
    """Restore the attributes of an estimator if the block raises.

    Attributes may be replaced in the block, but not be modified in place.
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
    """Run a fit without fitted attributes of earlier fits; restore them if it fails.

    Any exception restores them, a ``KeyboardInterrupt`` as well.
    """
    with kept_state(estimator):
        for name in list(vars(estimator)):
            if name.endswith("_") and not name.startswith("_"):
                delattr(estimator, name)
        yield

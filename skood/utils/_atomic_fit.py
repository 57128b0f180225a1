"""Context managers that restore an estimator's state when a fit fails."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextlib import contextmanager
from functools import partial


@contextmanager
def kept_state(estimator, fresh=False):
    """Restore the attributes of an estimator if the block raises.

    Attributes may be replaced in the block, but not be modified in place. With `fresh`,
    the block runs without fitted attributes.
    """
    before = vars(estimator).copy()
    try:
        if fresh:
            for name in before:
                if name.endswith("_") and not name.startswith("_"):
                    delattr(estimator, name)
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


# Context of a fit without fitted attributes of earlier fits, which are restored if it
# fails, by any exception: a KeyboardInterrupt as well.
fresh_fit = partial(kept_state, fresh=True)

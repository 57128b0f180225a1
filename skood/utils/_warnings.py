"""Warnings that refer to the line of the user's call."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
import warnings
from contextlib import contextmanager
from contextvars import ContextVar

from skood.exceptions import SkoodWarning

_OURS = ("skood", "sklearn", "contextlib", "joblib", "skops")

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quiet():
    """Suppress warnings of `warn` inside a `with` block, in this thread only.

    ``warnings.catch_warnings`` replaces the filters of the whole process: overlapping
    blocks in several threads would change them permanently.
    """
    token = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(token)


def warn(message):
    """Emit a `SkoodWarning` at the line of the first caller outside skood.

    Inside `quiet` nothing is emitted.
    """
    if _QUIET.get():
        return
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None:
        # exec may set any value; with None Python would discard the warning
        name = frame.f_globals.get("__name__", "")
        if name is not None and str(name).split(".")[0] not in _OURS:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, SkoodWarning, stacklevel=level)

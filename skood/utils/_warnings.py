"""Warn where the user called."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
import warnings

from skood.exceptions import SkoodWarning

__all__ = ["warn"]

_OURS = ("skood", "sklearn", "contextlib", "joblib", "skops")


def warn(message):
    """Emit a `SkoodWarning` that names the line of the first caller outside skood.

    Parameters
    ----------
    message : str
        What happened, with numbers, and what to do.
    """
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None:
        # exec may have given it any value; with None Python would drop the warning
        name = frame.f_globals.get("__name__", "")
        if name is not None and str(name).split(".")[0] not in _OURS:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, SkoodWarning, stacklevel=level)

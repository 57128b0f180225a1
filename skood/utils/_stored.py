"""Mark of the classes and functions that files of `skood.persistence` may contain."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

_MARK = "__skood_stored__"


def stored(thing):
    """Mark a class or function that fitted attributes contain, for files.

    A file may create or call it with any content: mark only what opens no file, starts
    no program and imports no module by name. Exported estimators need no mark.
    """
    setattr(thing, _MARK, True)
    return thing


def is_marked(thing):
    """Return whether a class, not merely one of its bases, or a function is marked."""
    return _MARK in getattr(thing, "__dict__", {})

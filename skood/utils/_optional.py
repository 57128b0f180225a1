"""Imports on first use, and of optional dependencies."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
from importlib import import_module

__all__ = ["import_optional", "import_pandas", "is_instance", "lazy_names"]


def import_optional(module, purpose, extra=None):
    """Import a module of a package of ``skood[extra]``, or None: of its own; or raise.

    The purpose, such as "conv='gat'", is the subject of the error.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        asked = f'"skood[{extra}]"' if extra else package
        raise ImportError(
            f"{purpose} needs {package}, which is not installed: pip install {asked}."
        ) from error


def import_pandas(method):
    """Import pandas for a method that returns a data frame, or raise."""
    return import_optional("pandas", f"{method}, which returns a pandas.DataFrame,")


def is_instance(thing, module, name):
    """Return whether `thing` is of a class, without importing its module."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(thing, kind)


def lazy_names(package, names, files):
    """Return ``__getattr__`` and ``__dir__`` of a package with names, see :pep:`562`.

    `files` is a dict from the names to import on first use to the files that define
    them, relative to the package.
    """

    def __getattr__(name):
        if name in files:
            return getattr(import_module(files[name], package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def __dir__():
        return sorted(names)

    return __getattr__, __dir__

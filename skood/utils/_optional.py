"""Import of optional dependencies."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from importlib import import_module

__all__ = ["import_optional", "import_pandas"]


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

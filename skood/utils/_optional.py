"""Import of optional dependencies."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from importlib import import_module

__all__ = ["import_optional"]


def import_optional(module, purpose, extra):
    """Import a module of a package that is installed with ``skood[extra]``, or raise.

    The purpose, such as "conv='gat'", is the subject of the error.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {module.split('.')[0]}, which is not installed: "
            f'pip install "skood[{extra}]".'
        ) from error

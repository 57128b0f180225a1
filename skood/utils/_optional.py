"""Imports on first use, and of optional dependencies."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module, metadata
from importlib.util import find_spec


def import_optional(module, purpose, extra=None):
    """Import a module of a package of an extra of skood, or of any; or raise.

    The purpose, such as "to_data", is the subject of the error.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        needed = pip_install(extra) if extra else f"pip install {package}"
        raise ImportError(
            f"{purpose} needs {package}, which is not installed: {needed}."
        ) from error


def pip_install(extra):
    """Return the command that installs the package of an extra, with its bound.

    Without metadata, in a clone that is not installed, it installs the extra.
    """
    needs: list = []
    with suppress(metadata.PackageNotFoundError):
        needs = [need.split(";") for need in metadata.requires("skood") or ()]
    marker = f"extra == {extra!r}"
    packages = (need.strip() for need, *rest in needs if marker in "".join(rest))
    return f'pip install "{next(packages, f".[{extra}]")}"'


def project_url(label):
    """Return an address of the project in the installed metadata, or an empty str."""
    with suppress(metadata.PackageNotFoundError):
        urls = metadata.metadata("skood").get_all("Project-URL") or ()
        return dict(url.split(", ", 1) for url in urls).get(label, "")
    return ""


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
        raise missing_name(package, name)

    def __dir__():
        return sorted(names)

    return __getattr__, __dir__


def missing_name(package, name):
    """Return the error of a package's ``__getattr__`` for a name that it does not have.

    An AttributeError, as `hasattr` expects; but an ImportError with the right import if
    ``from package import name`` fails for a name that skood has elsewhere, or a similar
    one.
    """
    importer = sys._getframe(2).f_code  # of the caller of `__getattr__`
    if (
        importer.co_name == "_handle_fromlist"
        and not name.startswith("_")
        and find_spec(f"{package}.{name}") is None
    ):
        places = _public_names(package)
        similar = {known.lower(): known for known in reversed(places)}
        close = get_close_matches(name.lower(), similar, 1, cutoff=0.75)
        known = name if name in places else similar[close[0]] if close else None
        if known is not None:
            question = "." if known == name else f"; did you mean {known}?"
            return ImportError(
                f"cannot import name {name!r} from {package!r}{question} Use: from "
                f"{places[known]} import {known}"
            )
    return AttributeError(f"module {package!r} has no attribute {name!r}")


def _public_names(package):
    """Return the modules of all public names, those of a package first."""
    root = import_module("skood")
    modules = [package, *(f"skood.{name}" for name in root._SUBMODULES)]
    places: dict = {}
    for module in modules if package != "skood" else modules[1:]:
        with suppress(ImportError):  # of a dependency of an extra
            for name in getattr(import_module(module), "__all__", ()):
                places.setdefault(name, module)
    return places

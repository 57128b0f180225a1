"""The file: a zip archive of skops with a note of skood's, and a sealed end.

The note, a member of the archive, has the versions that wrote the file. The seal is the
comment of the archive: the SHA-256 of every byte before it. It finds damage; it has no
key, so that anyone who edits a file can seal it again. skops can read the archive as
one of its own.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from zipfile import ZipFile

from skood.utils._warnings import warn

__all__ = ["check_note", "check_seal", "read_note", "seal", "versions"]

_NOTE = "skood.json"

# How states of estimators are laid out. It goes up when they are no longer read as they
# were; then files of other numbers are refused.
FORMAT = 1

_MARK = b"skood-sha256:"
_HEX = 64  # digits of a SHA-256
_BLOCK_BYTES = 2**20

_UNKNOWN = "unknown"

# How many numbers of a version have to be the same for states to be read alike.
_COMPARED = {"skood": 2, "scikit-learn": 2, "numpy": 1, "scipy": 1, "torch": 1}


def versions():
    """Versions of what writes a file.

    Returns
    -------
    versions : dict of str
        By name.
    """
    import skood

    others = [name for name in (*_COMPARED, "skops") if name != "skood"]
    found = {name: _version(name) for name in others}
    return {"skood": skood.__version__, **found, "python": platform.python_version()}


def _version(name):
    """Version of an installed package, which need not be imported for that."""
    try:
        return version(name)
    except PackageNotFoundError:  # it was not installed, but put on the path
        return _UNKNOWN


def _digest(stream, n_bytes):
    """SHA-256 of the first bytes of a stream, in hexadecimal digits."""
    found = hashlib.sha256()
    stream.seek(0)
    while n_bytes:
        block = stream.read(min(n_bytes, _BLOCK_BYTES))
        if not block:
            break
        found.update(block)
        n_bytes -= len(block)
    return found.hexdigest().encode()


def seal(stream, note):
    """Add a note to an archive, and seal it.

    Parameters
    ----------
    stream : binary file
        An archive that can be read, written and sought in.

    note : dict
        What can be written as JSON; versions and the format are added.
    """
    note = {"format": FORMAT, "versions": versions(), **note}
    with ZipFile(stream, "a") as archive:
        archive.writestr(_NOTE, json.dumps(note, indent=2))
        archive.comment = _MARK + b"0" * _HEX
    n_bytes = stream.seek(0, 2) - _HEX
    digest = _digest(stream, n_bytes)
    stream.seek(n_bytes)
    stream.write(digest)


def check_seal(stream):
    """Check that a file is not damaged: its bytes have the SHA-256 at its end.

    Parameters
    ----------
    stream : binary file
        It can be read and sought in.

    Raises
    ------
    ValueError
        If it is no sealed file, or was changed or cut.
    """
    size = stream.seek(0, 2)
    n_bytes = max(0, size - _HEX)
    start = max(0, n_bytes - len(_MARK))
    stream.seek(start)
    if stream.read(len(_MARK)) != _MARK or start == 0:
        raise ValueError(
            "The file has no seal of skood.persistence.dump at its end: something else "
            f"wrote it, or its end is missing after {size} bytes. A file of "
            "skops.io.dump is loaded by skops.io.load(file, "
            "trusted=skood.persistence.trusted_types())."
        )
    expected = stream.read(_HEX)
    found = _digest(stream, n_bytes)
    if found != expected:
        raise ValueError(
            "The file was changed or damaged after it was written: the SHA-256 of its "
            f"content is {found.decode()}, and its seal says {_text(expected)}. "
            "Nothing of it was read. Take the file from where it was written again."
        )


def _text(seal):
    return seal.decode("ascii", "replace")


def read_note(stream):
    """Read the note of a sealed file.

    Parameters
    ----------
    stream : binary file
        A file whose seal is whole.

    Returns
    -------
    note : dict
        With "format" and "versions", and what `seal` was given.

    Raises
    ------
    ValueError
        If there is none.
    """
    stream.seek(0)
    try:
        with ZipFile(stream) as archive:
            note = json.loads(archive.read(_NOTE))
        for name in _COMPARED:
            _numbers(note["versions"][name], 1)
        if not isinstance(note["format"], int):
            raise TypeError(f"format is {note['format']!r}")
    except Exception as error:  # a sealed file was made by hand: anything is possible
        raise ValueError(
            f"The file has a seal, but its note {_NOTE} cannot be read "
            f"({type(error).__name__}: {error}). skood.persistence.dump wrote no such "
            "file: do not trust it."
        ) from error
    return note


def _numbers(text, count):
    """The first numbers of a version, as text."""
    return tuple(text.split(".")[:count])


def check_note(note):
    """Compare the versions of a file with those that are here.

    Parameters
    ----------
    note : dict
        See `read_note`.

    Raises
    ------
    ValueError
        If states of this format are not read.

    Warns
    -----
    SkoodWarning
        If what was learned may be read otherwise.
    """
    here, there = versions(), note["versions"]
    if note["format"] != FORMAT:
        raise ValueError(
            f"The file is of format {note['format']}, and skood {here['skood']} reads "
            f"format {FORMAT}: what estimators learn is laid out otherwise. Load it "
            f"with skood {there['skood']}, which wrote it, or fit the estimator again."
        )
    other = [
        f"{name} {there[name]} (here {here[name]})"
        for name, count in _COMPARED.items()
        if _numbers(there[name], count) != _numbers(here[name], count)
        and _UNKNOWN not in (there[name], here[name])
    ]
    if other:
        warn(
            f"The file was written with {', '.join(other)}: what was learned may be "
            "read otherwise. Compare predictions of some rows with those there, or fit "
            "the estimator again."
        )

"""File format: a zip archive of skops with a note of skood and a checksum.

The note, a member of the archive, has the versions of the libraries that wrote the
file. The seal is the comment of the archive: the SHA-256 of every byte before it. It
detects damage; it has no key, so that anyone can edit a file and seal it again. skops
can read the archive.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from zipfile import ZipFile

from skood.utils._warnings import warn

_NOTE = "skood.json"

# Format of the states of estimators. It is increased for incompatible changes; files of
# other formats are rejected.
FORMAT = 1

_MARK = b"skood-sha256:"
_HEX = 64  # digits of a SHA-256
_BLOCK_BYTES = 2**20

_UNKNOWN = "unknown"

# Number of components of a version that must be equal for compatible states.
_COMPARED = {"skood": 2, "scikit-learn": 2, "numpy": 1, "scipy": 1, "torch": 1}


def versions():
    """Return the versions of the libraries that write a file, by name."""
    import skood

    others = [name for name in (*_COMPARED, "skops") if name != "skood"]
    found = {name: _version(name) for name in others}
    return {"skood": skood.__version__, **found, "python": platform.python_version()}


def _version(name):
    """Return the version of an installed package, without importing it."""
    try:
        return version(name)
    except PackageNotFoundError:  # not installed, but on the path
        return _UNKNOWN


def _digest(stream, n_bytes):
    """Return the SHA-256 of the first bytes of a stream, in hexadecimal digits."""
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
    """Add a note, a dict for JSON, to an archive in a seekable file, and seal it."""
    note = {"format": FORMAT, "versions": versions(), **note}
    with ZipFile(stream, "a") as archive:
        archive.writestr(_NOTE, json.dumps(note, indent=2))
        archive.comment = _MARK + b"0" * _HEX
    n_bytes = stream.seek(0, 2) - _HEX
    digest = _digest(stream, n_bytes)
    stream.seek(n_bytes)
    stream.write(digest)


def check_seal(stream):
    """Raise a ValueError unless a seekable file has a seal that matches its content."""
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
            f"content is {found.decode()}, and its seal has {_text(expected)}. "
            "Nothing of it was read. Take the file from where it was written again."
        )


def _text(seal):
    return seal.decode("ascii", "replace")


def read_note(stream):
    """Return the note of a file with a valid seal, or raise a ValueError.

    It has the keys "format" and "versions", and the argument of `seal`.
    """
    stream.seek(0)
    try:
        with ZipFile(stream) as archive:
            note = json.loads(archive.read(_NOTE))
        for name in _COMPARED:
            _numbers(note["versions"][name], 1)
        if not isinstance(note["format"], int):
            raise TypeError(f"format is {note['format']!r}")
    except Exception as error:  # a file sealed by hand may contain anything
        raise unreadable(error, f"note {_NOTE}") from error
    return note


def unreadable(error, what="content"):
    """Return the error of a file with a valid seal that `dump` did not write."""
    return ValueError(
        f"The file has a seal, but its {what} cannot be read "
        f"({type(error).__name__}: {error}). skood.persistence.dump wrote no such "
        "file: do not trust it."
    )


def _numbers(text, count):
    """Return the first components of a version, as a string."""
    return tuple(text.split(".")[:count])


def check_note(note):
    """Compare the versions in the note of a file with the installed versions.

    Raises if the format is not supported; warns if the state may have another meaning.
    """
    here, there = versions(), note["versions"]
    if note["format"] != FORMAT:
        raise ValueError(
            f"The file is of format {note['format']}, and skood {here['skood']} uses "
            f"format {FORMAT}: fitted attributes differ. Load it "
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
            f"The file was written with {', '.join(other)}: fitted attributes may have "
            "another meaning. Compare predictions of some samples with those there, or "
            "fit the estimator again."
        )

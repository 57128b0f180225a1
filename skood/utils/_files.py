"""Atomic writing of files, and size limits for reading compressed files."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import errno
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = [
    "archive_size",
    "check_unpacked_size",
    "largest_content",
    "replacing",
    "write_text",
]

# Compressed files of images and of graphs are read up to this multiple of their size,
# and small ones up to the number of bytes below.
_RATIO = 100
_FLOOR = 64 * 2**20


@contextmanager
def replacing(path):
    """Yield a new binary file that replaces the file `path` at the end of the block.

    Its name is unique, so that several processes can write one file: the last to finish
    wins. An error leaves the old file; its permissions are preserved; links are
    followed. Devices and pipes, such as /dev/null, are refused, not replaced.
    """
    path = Path(os.path.realpath(path))
    try:
        status = path.stat()
    except FileNotFoundError:
        mode = None
    else:
        if not stat.S_ISREG(status.st_mode):
            code = errno.EISDIR if path.is_dir() else errno.EINVAL
            raise OSError(code, "Not a regular file, which could be replaced", path)
        mode = status.st_mode & 0o777
    unfinished = path.with_name(f".{secrets.token_hex(8)}.tmp")
    # not readable for users who could not read the old file
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    file = os.open(unfinished, flags, 0o666 if mode is None else mode & 0o600)
    try:
        with os.fdopen(file, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            os.chmod(unfinished, mode)
        os.replace(unfinished, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)
        raise


def write_text(path, text):
    """Write text in UTF-8 to a file atomically, see `replacing`.

    Lone surrogates in the text become question marks.
    """
    with replacing(path) as stream:
        stream.write(text.encode("utf-8", "replace"))


def check_unpacked_size(unpacked, packed, max_bytes=None, *, name, remedy=None):
    """Raise if `unpacked` bytes, in a file of `packed` bytes, exceed `max_bytes`.

    None: 100 times the size of the file, at least 64 MiB. `name` is the file, `remedy`
    the advice in the message, None: a larger `max_bytes`.
    """
    limit = largest_content(packed, max_bytes)
    if unpacked > limit:
        remedy = remedy or "If you trust the file, pass a larger max_bytes."
        raise ValueError(
            f"{name} has {packed} bytes and unpacks to {unpacked} or more, and at most "
            f"{limit} are read. {remedy}"
        )


def largest_content(packed, max_bytes=None):
    """Return the largest permitted size of a compressed file's content in bytes."""
    return max(_FLOOR, _RATIO * packed) if max_bytes is None else max_bytes


def archive_size(archive):
    """Return the total unpacked size in bytes of all members of a zip archive.

    Reading a member ends at the stated size: a false statement circumvents no limit.
    """
    return sum(member.file_size for member in archive.infolist())

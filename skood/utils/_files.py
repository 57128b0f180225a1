"""Atomic writing of files."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import errno
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path


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

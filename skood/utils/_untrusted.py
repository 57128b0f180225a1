"""Decoding of untrusted files: bounded in memory, with errors that name the file."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gzip
import io
import math
import zipfile
from contextlib import contextmanager
from copy import copy
from functools import partial

import numpy as np
from numpy.lib import format as npy_format

# Compressed files of images and of graphs are read up to this multiple of their size,
# and small ones up to the number of bytes below.
_RATIO = 100
_FLOOR = 64 * 2**20

_CHUNK_BYTES = 2**20
_LARGEST_SIZE = 2**62


class UntrustedFileError(ValueError):
    """A file is damaged, forged or larger than permitted; the message names it."""


@contextmanager
def decoding(name, kind):
    """Raise errors of decoding the file `name` as ``ValueError: … is not {kind}: …``.

    Decoders of damaged bytes raise anything, up to RecursionError and MemoryError.
    Absent files and packages, and missing permissions, raise their own errors.
    """
    try:
        yield
    except (UntrustedFileError, FileNotFoundError, PermissionError, ImportError):
        raise
    except Exception as error:
        reason = f"{error}" if isinstance(error, (ValueError, OSError)) else ""
        reason = reason or f"{type(error).__name__}: {error}"
        raise UntrustedFileError(
            f"{name} is not {kind}: {reason.rstrip('.')}. Copy or download it again."
        ) from error


def check_unpacked_size(unpacked, packed, max_bytes=None, *, name, remedy=None):
    """Raise if `unpacked` bytes, in a file of `packed` bytes, exceed `max_bytes`.

    None: 100 times the size of the file, at least 64 MiB. `name` is the file, `remedy`
    the advice in the message, None: a larger `max_bytes`.
    """
    limit = largest_content(packed, max_bytes)
    if unpacked > limit:
        remedy = remedy or "If you trust the file, pass a larger max_bytes."
        raise UntrustedFileError(
            f"{name} has {packed} bytes and unpacks to {unpacked} or more, and at most "
            f"{limit} are read. {remedy}"
        )


def largest_content(packed, max_bytes=None):
    """Return the largest permitted size of a compressed file's content in bytes."""
    return max(_FLOOR, _RATIO * packed) if max_bytes is None else max_bytes


def read_bounded(stream, limit):
    """Return the next bytes of a stream, `limit` + 1 at most, read in chunks."""
    content = bytearray()
    while chunk := stream.read(min(_CHUNK_BYTES, limit + 1 - len(content))):
        content += chunk
    return content


class BoundedGzip(gzip.GzipFile):
    """A gzip file whose content has at most `max_bytes`, see `check_unpacked_size`."""

    def __init__(self, path, max_bytes=None):
        super().__init__(path, "rb")
        packed = path.stat().st_size
        self.limit = largest_content(packed, max_bytes)
        self._check = partial(
            check_unpacked_size, packed=packed, max_bytes=max_bytes, name=path
        )

    def read(self, size=-1):
        """Return the next bytes, or raise if they end beyond the limit."""
        rest = self.limit + 1 - self.tell()
        content = super().read(rest if size is None or size < 0 else min(size, rest))
        self._check(self.tell())
        return content

    def seek(self, offset, whence=io.SEEK_SET):
        """Move to a position, or raise if it is beyond the limit."""
        self._check(offset)
        return super().seek(offset, whence)


def read_gzip(path, max_bytes=None):
    """Return the content of a gzip file, see `BoundedGzip`."""
    with BoundedGzip(path, max_bytes) as file:
        return read_bounded(file, file.limit)


class BoundedZip(zipfile.ZipFile):
    """A zip archive whose members have at most `max_bytes` together.

    Parameters
    ----------
    file : path or binary file
        The archive.

    max_bytes : int, default=None
        See `check_unpacked_size`; `name` and `remedy` as well.
    """

    def __init__(self, file, max_bytes=None, *, name=None, remedy=None):
        super().__init__(file)
        self._name = name or file
        check_unpacked_size(
            sum(info.file_size for info in self.infolist()),
            self.fp.seek(0, io.SEEK_END),  # type: ignore[union-attr]
            max_bytes,
            name=self._name,
            remedy=remedy,
        )

    def read(self, name, pwd=None):
        """Return a member; inflating it ends at its stated size, unlike `ZipFile.read`.

        Only the methods with bounded output are permitted: stored and deflated.
        """
        info = copy(name if isinstance(name, zipfile.ZipInfo) else self.getinfo(name))
        methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if info.flag_bits & 1 or info.compress_type not in methods:
            raise zipfile.BadZipFile(
                f"{info.filename} is encrypted, or compressed by another method than "
                "deflate"
            )
        # the member is read to its true end, which has to be the stated one
        size, info.file_size = info.file_size, _LARGEST_SIZE
        with self.open(info) as member:
            content = read_bounded(member, size)
        if len(content) != size:
            raise zipfile.BadZipFile(f"{info.filename} has a false size, {size}")
        return content

    def read_array(self, name):
        """Return an array written by :func:`numpy.savez`, without pickle."""
        if f"{name}.npy" not in self.NameToInfo:
            raise KeyError(f"{name} is not a file in the archive")
        content = self.read(f"{name}.npy")
        stream = io.BytesIO(content)
        if npy_format.read_magic(stream) == (1, 0):
            header = npy_format.read_array_header_1_0(stream)
        else:
            header = npy_format.read_array_header_2_0(stream)
        shape, is_fortran, dtype = header
        if dtype.hasobject:
            raise ValueError("Object arrays are not read: allow_pickle=False")
        n_values, n_bytes = math.prod(shape), len(content) - stream.tell()
        if n_values * dtype.itemsize != n_bytes:
            raise ValueError(f"{name} of shape {shape} has {n_bytes} bytes")
        values = np.frombuffer(content, np.uint8, offset=stream.tell())
        array = np.ndarray(shape, dtype, values, order="F" if is_fortran else "C")
        return np.require(array, requirements="A")

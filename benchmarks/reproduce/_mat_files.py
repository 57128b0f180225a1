"""Files of MATLAB 5, without the reader of SciPy, which damaged tags can crash."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import struct
import zlib

import numpy as np

from skood.utils._untrusted import check_unpacked_size, decoding, largest_content

# Numbers of data types, and of kinds of arrays, in the format
_TYPES = dict(zip((1, 2, 3, 4, 5, 6, 7, 9), "bBhHiIfd", strict=True))
_TYPES |= {12: "q", 13: "Q", 16: "B", 17: "H"}  # the last two are text
_COMPRESSED, _HEADER_BYTES = 15, 128
_STRUCT, _TEXT, _NUMBERS = 2, 4, range(6, 16)


def read_mat(path, max_bytes=None):
    """Return the arrays of numbers, strings and structs in a file, by name.

    A struct is a dict of the lists of its fields. Arrays of other kinds are None.
    """
    with decoding(path, "a file of MATLAB 5"):
        content = memoryview(path.read_bytes())
        order = {b"IM": "<", b"MI": ">"}[bytes(content[126:_HEADER_BYTES])]
        limit = largest_content(len(content), max_bytes)
        arrays, unpacked = {}, 0
        for kind, data in _elements(content[_HEADER_BYTES:], order):
            if kind == _COMPRESSED:
                data = zlib.decompressobj().decompress(data, limit + 1 - unpacked)
                unpacked += len(data)
                check_unpacked_size(unpacked, len(content), max_bytes, name=path)
                _, data = next(_elements(data, order))
            name, value = _matrix(data, order)
            arrays[name] = value
    return arrays


def _elements(data, order):
    """Yield the data types and the bytes of the elements, without padding."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start, end = at + 8, at + 8 + size
        at = end if kind == _COMPRESSED else end + -end % 8
        if kind >> 16:  # two numbers of 16 bits, and up to four bytes
            kind, size = kind & 0xFFFF, kind >> 16
            start, end, at = start - 4, start - 4 + size, start
        if end > len(data) or end > at:
            raise ValueError("it ends within an array")
        yield kind, data[start:end]


def _matrix(data, order):
    """Return the name and the value of an array."""
    if not len(data):
        return "", None
    elements = _elements(data, order)
    flags, shape, name = (_numbers(next(elements), order) for _ in range(3))
    kind, name = int(flags[0]) & 0xFF, name.tobytes().decode("latin-1")
    if kind == _STRUCT:
        [width] = _numbers(next(elements), order)
        names = bytes(next(elements)[1])
        fields = [
            names[i : i + width].partition(b"\0")[0].decode("latin-1")
            for i in range(0, len(names), int(width))
        ]
        values = [_matrix(part, order)[1] for _, part in elements]
        if len(values) != len(fields) * math.prod(map(int, shape)):
            raise ValueError(f"a struct has {len(values)} values")
        return name, {x: values[i :: len(fields)] for i, x in enumerate(fields)}
    if kind == _TEXT:
        return name, "".join(map(chr, _numbers(next(elements), order)))
    if kind in _NUMBERS:
        return name, _numbers(next(elements), order).reshape(shape, order="F")
    return name, None


def _numbers(element, order):
    """Return the numbers of an element."""
    kind, data = element
    dtype = np.dtype(order + _TYPES[kind])
    return np.ndarray(len(data) // dtype.itemsize, dtype, data)

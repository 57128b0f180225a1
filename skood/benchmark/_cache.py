"""Cache of arrays and network outputs on disk, safe against interruptions.

An array is in an ``npz`` file, which is read without pickle, and whose name is a hash
of the inputs of its computation. It gets its name after it is complete.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from sklearn.frozen import FrozenEstimator

from skood.benchmark._hashing import code_version, content_hash
from skood.nn._make_network import SHARING
from skood.nn._outputs import Head, NetworkOutputs
from skood.nn._shared_forward import _Memory, _uses
from skood.utils._files import replacing
from skood.utils._untrusted import BoundedZip
from skood.utils._warnings import warn


def write_arrays(path, **arrays):
    """Write arrays to an npz file, atomically; its folder is created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        np.savez(file, **arrays)


def read_arrays(path, *names):
    """Return a list of arrays by name from a file of `write_arrays`.

    None if there is no such file, or, with a warning, if it is broken.
    """
    try:
        # write_arrays does not compress
        with BoundedZip(path, remedy="It is not one that skood wrote.") as file:
            return [file.read_array(name) for name in names]
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged file may raise anything
        warn(
            f"{path} cannot be read and is computed anew: "
            f"{type(error).__name__}: {error}. Nothing need be done, unless it happens "
            "again: then look at the disk."
        )
        return None


class _StoredOutputs(_Memory):
    """Network outputs, cached for a block and, with a folder, on disk."""

    def __init__(self, uses, folder):
        super().__init__(uses)
        self._folder = folder
        self._network_hash = None
        self._hashed = None  # samples, and their hash

    def read_first(self, X):
        """Compute the union of required outputs, so that timings exclude it."""
        for options, want in self._wants:
            with suppress(Exception):  # raised again where it is used
                self.read(self.open(options), X, want)

    def read(self, reader, X, want):
        """Return the outputs for all samples: from disk, from memory, or new."""
        if self._folder is None:
            return super().read(reader, X, want)
        paths = {name: self._path(reader, X, name) for name in want}
        found = {name: _load(path, name) for name, path in paths.items()}
        missing = [name for name, part in found.items() if part is None]
        if missing:
            outputs = super().read(reader, X, want)
            for name in missing:
                _save(paths[name], name, getattr(outputs, name))
            found.update((name, getattr(outputs, name)) for name in missing)
        return NetworkOutputs(**found)

    def close(self):
        """Clear the cache, and do not cache from now on."""
        super().close()
        self._hashed = None

    def _path(self, reader, X, name):
        """Return the file of a part of the outputs, named by the hash of its inputs."""
        if self._network_hash is None:
            self._network_hash = content_hash(
                FrozenEstimator(self.network), code_version()
            )
        if self._hashed is None or self._hashed[0] is not X:
            self._hashed = X, content_hash(X)
        how = str(reader.target), repr(reader.place), reader.batch_size
        key = content_hash(self._network_hash, self._hashed[1], how, name)
        return self._folder / f"{key}.npz"


def _load(path, name):
    names = ("coef", "intercept") if name == "head" else ("array",)
    arrays = read_arrays(path, *names)
    if arrays is None:
        return None
    return Head(*arrays) if name == "head" else arrays[0]


def _save(path, name, part):
    if name == "head":
        write_arrays(path, coef=part.coef, intercept=part.intercept)
    elif isinstance(part, np.ndarray):  # a tensor stays on its device
        write_arrays(path, array=part)


@contextmanager
def network_outputs(detectors, folder):
    """Run each fitted network once per array, or use the disk, inside a block.

    As `shared_outputs`, but also for a network used by one detector, so that the time
    of detectors excludes it. Yields a function that computes the outputs of an array,
    and returns the seconds. `folder` is the cache, None for memory only.
    """
    folder = None if folder is None else Path(folder)
    uses: dict = {}
    for use in (use for detector in detectors for use in _uses(detector)):
        if use.want is not None:
            uses.setdefault(id(use.network), []).append(use)
    memories = {key: _StoredOutputs(found, folder) for key, found in uses.items()}

    def read(X):
        start = time.perf_counter()
        for memory in memories.values():
            memory.read_first(X)
        return time.perf_counter() - start if memories else 0.0

    token = SHARING.set((*SHARING.get(), memories))
    try:
        yield read
    finally:
        SHARING.reset(token)
        for memory in memories.values():
            memory.close()

"""What of a comparison is finished, on disk."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from skood.benchmark._cache import read_arrays, write_arrays

__all__ = ["Journal"]


class Journal:
    """Finished cells: the scores of some rows by a detector that was fitted on others.

    A cell has a file of scores and, when that is whole, a line in ``cells.jsonl`` with
    the SHA-256 of the file. What breaks off while either is written is not finished.

    Parameters
    ----------
    folder : str, path-like or None
        Where it is; it is made. None: nothing is kept.
    """

    def __init__(self, folder):
        self.folder: Any = None if folder is None else Path(folder)
        self._records: dict = {}
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._records = self._read()

    @property
    def path(self):
        """The file with a line for each cell."""
        return self.folder / "cells.jsonl"

    def _read(self):
        """Records by key; a line that broke off is ended, and none is added to it."""
        if not self.path.exists():
            return {}
        text = self.path.read_bytes()
        if text and not text.endswith(b"\n"):
            self._append(b"\n")
        records = {}
        for line in text.splitlines():
            try:
                record = json.loads(line)
                records[record["key"]] = record
            except (ValueError, TypeError, KeyError):
                continue
        return records

    def _append(self, line):
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(file, line) < len(line):  # it says so, and raises nothing
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(file)
        finally:
            os.close(file)

    def _file(self, key):
        return self.folder / f"{key}.npz"

    def get(self, key):
        """Return the scores and the record of a cell, or None if it is not finished.

        Parameters
        ----------
        key : str
            Hash of what the cell is computed from.

        Returns
        -------
        cell : tuple of ndarray and dict, or None
            The scores, and what `add` was given.
        """
        record = self._records.get(key)
        if record is None or record["sha256"] != _sha256(self._file(key)):
            return None
        arrays = read_arrays(self._file(key), "scores")
        return None if arrays is None else (arrays[0], record)

    def add(self, key, scores, **record):
        """Keep a finished cell.

        Parameters
        ----------
        key : str
            Hash of what the cell is computed from.

        scores : ndarray of shape (n_samples,)
            What it is.

        **record : dict
            What else is to be known of it, for JSON.
        """
        if self.folder is None:
            return
        write_arrays(self._file(key), scores=scores)
        record = {"key": key, "sha256": _sha256(self._file(key)), **record}
        self._append(json.dumps(record).encode() + b"\n")


def _sha256(path):
    """SHA-256 of a file, or None if there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None

"""What of a comparison is finished, on disk."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import errno
import hashlib
import json
import os
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from skood.benchmark._cache import read_arrays, write_arrays
from skood.utils._warnings import warn

__all__ = ["Journal"]

# What is read of the line of a cell.
_FIELDS = {
    "sha256": str,
    "fit_seconds": Real,
    "score_seconds": Real,
    "network_seconds": Real,
}


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

    def get(self, key, n_samples):
        """Return the scores and the record of a cell, or None if it is not finished.

        If its line or its scores cannot be used, there is a warning, and None.

        Parameters
        ----------
        key : str
            Hash of what the cell is computed from.

        n_samples : int
            Number of scores that the cell has.

        Returns
        -------
        cell : tuple of ndarray and dict, or None
            The scores, and what `add` was given.
        """
        record = self._records.get(key)
        if record is None:
            return None
        problem = _problem_of_record(record)
        if problem is None:
            if record["sha256"] != _sha256(self._file(key)):
                return None
            arrays = read_arrays(self._file(key), "scores")
            if arrays is None:
                return None
            problem = _problem_of_scores(arrays[0], n_samples)
            if problem is None:
                return arrays[0], record
        warn(
            f"The cell {key} of {self.path} cannot be used and is computed anew: "
            f"{problem}. skood wrote no such cell: if nobody edited it, look at the "
            "disk."
        )
        return None

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


def _problem_of_record(record):
    """Tell what is missing or wrong in the line of a cell, or None."""
    for name, kind in _FIELDS.items():
        if name not in record:
            return f"its line has no {name!r}"
        value = record[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            return f"its line has {name}={value!r}"
        if kind is Real and not 0 <= value < float("inf"):
            return f"its line has {name}={value!r}"
    return None


def _problem_of_scores(scores, n_samples):
    """Tell what is wrong with the scores of a cell, or None."""
    if scores.dtype != np.float64 or scores.shape != (n_samples,):
        return (
            f"its scores are {scores.dtype} of shape {scores.shape}, expected float64 "
            f"of shape ({n_samples},)"
        )
    n_missing = int(np.isnan(scores).sum())
    return f"{n_missing} of its scores are NaN" if n_missing else None


def _sha256(path):
    """SHA-256 of a file, or None if there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None

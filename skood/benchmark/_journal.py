"""Journal on disk of the finished cells of a comparison."""

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

# Keys of the line of a cell that are read.
_FIELDS = {
    "sha256": str,
    "fit_seconds": Real,
    "score_seconds": Real,
    "network_seconds": Real,
}


class Journal:
    """Finished cells: the scores of a set of samples by a fitted detector.

    A cell has a file of scores and, once that is complete, a line in ``cells.jsonl``
    with its SHA-256. If either is interrupted, the cell is not finished. None: no
    storage.
    """

    def __init__(self, folder):
        self.folder: Any = None if folder is None else Path(folder)
        self._records: dict = {}
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._records = self._read()

    @property
    def path(self):
        """Return the file with a line for each cell."""
        return self.folder / "cells.jsonl"

    def _read(self):
        """Return records by key; an incomplete last line is terminated."""
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
            if os.write(file, line) < len(line):  # a short write raises no error
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(file)
        finally:
            os.close(file)

    def _file(self, key):
        return self.folder / f"{key}.npz"

    def get(self, key, n_samples):
        """Return the scores and the record of a cell, or None if it is not finished.

        An invalid line, or invalid scores, give a warning and None.
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
            f"{problem}. It was not written by skood: if it was not edited, check the "
            "disk."
        )
        return None

    def add(self, key, scores, **record):
        """Store a finished cell by the hash of its inputs: scores, and a record."""
        if self.folder is None:
            return
        write_arrays(self._file(key), scores=scores)
        record = {"key": key, "sha256": _sha256(self._file(key)), **record}
        self._append(json.dumps(record).encode() + b"\n")


def _problem_of_record(record):
    """Return what is missing or wrong in the line of a cell, or None."""
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
    """Return what is wrong with the scores of a cell, or None."""
    if scores.dtype != np.float64 or scores.shape != (n_samples,):
        return (
            f"its scores are {scores.dtype} of shape {scores.shape}, expected float64 "
            f"of shape ({n_samples},)"
        )
    n_missing = int(np.isnan(scores).sum())
    return f"{n_missing} of its scores are NaN" if n_missing else None


def _sha256(path):
    """Return the SHA-256 of a file, or None if there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None

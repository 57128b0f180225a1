"""Journals on disk: finished computations, and finished cells of a comparison."""

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

# Keys of the line of a cell that are read.
_FIELDS = {
    "sha256": str,
    "fit_seconds": Real,
    "score_seconds": Real,
    "network_seconds": Real,
}


class Journal:
    """Records of finished computations in a file, for runs that may be interrupted.

    A record is a line of JSON, appended as soon as its computation is finished, and on
    disk before `add` returns. A line that an interruption left incomplete is ignored,
    so its computation is repeated. Several processes can add records to one file, each
    with its own journal; a journal contains the records that were in the file when it
    was opened, and its own.

    Read more in the :ref:`User Guide <own_experiments>`.

    Parameters
    ----------
    path : str or path-like
        The file, by custom with the suffix ``.jsonl``. It and its folder are created
        by the first record.

    See Also
    --------
    content_hash : Key of a computation from its inputs.
    compare : Comparison of detectors that continues after an interruption.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skood.benchmark import Journal, content_hash
    >>> path = Path(tempfile.mkdtemp()) / "results.jsonl"
    >>> def area(radius):
    ...     journal, key = Journal(path), content_hash("area", radius)
    ...     if journal.get(key) is None:
    ...         print("computed")
    ...         journal.add(key, area=3.14159 * radius**2)
    ...     return journal.get(key)["area"]
    >>> area(2.0)
    computed
    12.56636
    >>> area(2.0)
    12.56636
    """

    def __init__(self, path):
        self.path = Path(path)
        self._records = self._read()

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
            except Exception:  # a damaged line may raise anything
                continue
        return records

    def _append(self, line):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(file, line) < len(line):  # a short write raises no error
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(file)
        finally:
            os.close(file)

    def get(self, key):
        """Return the record of a computation, or None if it is not finished.

        Parameters
        ----------
        key : str
            Key of the computation.

        Returns
        -------
        record : dict or None
            Its record, including "key".
        """
        return self._records.get(key)

    def add(self, key, **record):
        """Append the record of a finished computation.

        Parameters
        ----------
        key : str
            Key of the computation, such as a :func:`content_hash` of its inputs.

        **record : JSON values
            Its results. A later record with the same key replaces this one.

        Raises
        ------
        TypeError
            If a value is not of JSON.
        OSError
            If the record cannot be written completely.
        """
        record = {"key": key, **record}
        self._append(json.dumps(record).encode() + b"\n")
        self._records[key] = record


class ScoreJournal:
    """Finished cells: the scores of a set of samples by a fitted detector.

    A cell has a file of scores and, once that is complete, a line in ``cells.jsonl``
    with its SHA-256. If either is interrupted, the cell is not finished. None: no
    storage.
    """

    def __init__(self, folder):
        self.folder: Any = None if folder is None else Path(folder)
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._lines = Journal(Path(folder) / "cells.jsonl")

    def _file(self, key):
        return self.folder / f"{key}.npz"

    def get(self, key, n_samples):
        """Return the scores and the record of a cell, or None if it is not finished.

        An invalid line, or invalid scores, give a warning and None.
        """
        record = None if self.folder is None else self._lines.get(key)
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
            f"The cell {key} of {self._lines.path} cannot be used and is computed "
            f"anew: {problem}. It was not written by skood: if it was not edited, "
            "check the disk."
        )
        return None

    def add(self, key, scores, **record):
        """Store a finished cell by the hash of its inputs: scores, and a record."""
        if self.folder is None:
            return
        write_arrays(self._file(key), scores=scores)
        self._lines.add(key, sha256=_sha256(self._file(key)), **record)


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

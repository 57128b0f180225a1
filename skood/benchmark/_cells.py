"""Cells of a comparison: scores of samples by fitted detectors, and their storage.

Finished computations are on disk, safe against interruptions: an array is in an
``npz`` file, which is read without pickle, and whose name is a hash of the inputs of
its computation. It gets its name after it is complete.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import errno
import hashlib
import json
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.parallel import delayed

from skood.benchmark._hashing import code_version, content_hash
from skood.nn._make_network import SHARING
from skood.nn._outputs import Head, NetworkOutputs
from skood.nn._shared_forward import _Memory, _uses, network_groups
from skood.utils._files import replacing
from skood.utils._metaestimators import n_rows, take_rows, with_seeds
from skood.utils._progress import as_they_come, progress
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
        stored = {name: _load(path, name) for name, path in paths.items()}
        missing = [name for name, array in stored.items() if array is None]
        if missing:
            outputs = super().read(reader, X, want)
            for name in missing:
                _save(paths[name], name, getattr(outputs, name))
            stored.update((name, getattr(outputs, name)) for name in missing)
        return NetworkOutputs(**stored)

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


def _save(path, name, array):
    if name == "head":
        write_arrays(path, coef=array.coef, intercept=array.intercept)
    elif isinstance(array, np.ndarray):  # a tensor stays on its device
        write_arrays(path, array=array)


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
    memories = {
        key: _StoredOutputs(network_uses, folder) for key, network_uses in uses.items()
    }

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
        is_valid = isinstance(value, kind) and not isinstance(value, bool)
        if not is_valid or (kind is Real and not 0 <= value < float("inf")):
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


#: Name of the held-out ID samples among the sets to score.
ID = ""


@dataclass(frozen=True)
class ComparisonData:
    """Samples of a comparison.

    ``X_id`` and ``y_id`` are ID samples and their classes (or None), ``ood`` sets of
    OOD samples; ``X_train`` and ``y_train`` are None if training samples are part of
    ``X_id``.
    """

    X_id: Any
    y_id: Any
    ood: dict
    X_train: Any
    y_train: Any

    def training_samples(self, repeat):
        """Return the training samples, and their classes."""
        if repeat.train is None:
            return self.X_train, self.y_train
        y = None if self.y_id is None else self.y_id[repeat.train]
        return take_rows(self.X_id, repeat.train), y

    def scored_sets(self, repeat):
        """Return the sets of samples to score, by name."""
        X_test = self.X_id
        if len(repeat.test) < n_rows(X_test):
            X_test = take_rows(X_test, repeat.test)
        return {ID: X_test, **self.ood}


@dataclass(frozen=True)
class Repeat:
    """Split and seed of one repeat.

    ``train`` and ``test`` are indices of ID samples (None: given training samples);
    ``seed`` is for detectors whose `random_state` is None.
    """

    train: np.ndarray | None
    test: np.ndarray
    seed: int


class _Keys:
    """Hashes of the inputs of cells; samples are hashed once."""

    def __init__(self, data):
        self._sets = {name: content_hash(X) for name, X in data.ood.items()}
        self._id = content_hash(data.X_id, data.y_id)
        self._train = content_hash(data.X_train, data.y_train)
        self._code = code_version()

    def of(self, detector, repeat, set_name):
        """Return the key of a cell."""
        train = (self._id if repeat.train is not None else self._train), repeat.train
        scored = (self._id, repeat.test) if set_name == ID else self._sets[set_name]
        return content_hash(detector, train, repeat.seed, scored, self._code)


def timed(function, *args):
    """Call a function, and return the result and the seconds."""
    start = time.perf_counter()
    return function(*args), time.perf_counter() - start


def _fit(name, detector, X, y):
    if isinstance(detector, FrozenEstimator):
        return 0.0
    try:
        _, seconds = timed(detector.fit, X) if y is None else timed(detector.fit, X, y)
    except Exception as error:
        error.add_note(f"This happened in fitting the detector {name!r}.")
        raise
    return seconds


def _score(name, detector, X, set_name):
    """Return scores of a set of samples, and seconds."""
    where = "held-out ID samples" if set_name == ID else f"OOD samples {set_name!r}"
    try:
        scores, seconds = timed(detector.score_samples, X)
    except Exception as error:
        error.add_note(f"This happened in scoring the {where} by {name!r}.")
        raise
    scores = np.asarray(scores, dtype=np.float64)
    if scores.shape != (n_rows(X),) or np.isnan(scores).any():
        raise ValueError(
            f"The detector {name!r} gave scores of shape {scores.shape}, "
            f"{int(np.isnan(scores).sum())} of them NaN, for {n_rows(X)} {where}; "
            "there must be one number for each, high for ID samples."
        )
    return scores, seconds


def _run_group(members, data, repeats, keys, folders):
    """Yield the finished cells of detectors that use the same network.

    A cell is: repeat, detector, set, scores, record (int, str, str, ndarray, dict).
    """
    cache, resume = folders
    journal = ScoreJournal(resume)
    for r, repeat in enumerate(repeats):
        # each detector separately, so that the others do not affect it
        seeded = {
            name: with_seeds([clone(detector)], repeat.seed)[0]
            for name, detector in members.items()
        }
        missing: dict = {}
        for name, detector in seeded.items():
            for set_name in (ID, *data.ood):
                key = None if keys is None else keys.of(detector, repeat, set_name)
                n_samples = (
                    len(repeat.test) if set_name == ID else n_rows(data.ood[set_name])
                )
                cell = None if key is None else journal.get(key, n_samples)
                if cell is None:
                    missing.setdefault(set_name, {})[name] = key
                else:
                    yield r, name, set_name, *cell
        if missing:
            for cell in _run_missing(seeded, missing, data, repeat, cache):
                name, set_name, scores, record = cell
                journal.add(missing[set_name][name], scores, repeat=r, **record)
                yield r, name, set_name, scores, record


def _run_missing(seeded, missing, data, repeat, cache):
    """Yield detector, set of samples, scores and record of missing cells."""
    X, y = data.training_samples(repeat)
    scored = data.scored_sets(repeat)
    members = {name: seeded[name] for names in missing.values() for name in names}
    fit_seconds = {}
    with network_outputs(list(members.values()), cache) as read:
        unfitted = [m for m in members.values() if not isinstance(m, FrozenEstimator)]
        network_seconds = read(X) if unfitted else 0.0
        for name, detector in members.items():
            fit_seconds[name] = _fit(name, detector, X, y)
    # the fitted parts of a detector are new objects
    with network_outputs(list(members.values()), cache) as read:
        for set_name, names in missing.items():
            read_seconds = read(scored[set_name])
            for name in names:
                scores, seconds = _score(
                    name, members[name], scored[set_name], set_name
                )
                record = {
                    "detector": name,
                    "rows": set_name,
                    "n_samples": len(scores),
                    "fit_seconds": fit_seconds[name],
                    "score_seconds": seconds,
                    "network_seconds": network_seconds + read_seconds,
                }
                yield name, set_name, scores, record
            network_seconds = 0.0  # of the fit: counted with the first set of rows


def _as_list(*args):
    return list(_run_group(*args))


def run_cells(detectors, data, repeats, output, *, n_jobs, desc):
    """Fit and evaluate all detectors in all repeats.

    `n_jobs` jobs run groups of detectors that share no network; `output` has folders of
    network outputs and of finished cells. Returns scores and records by (detector,
    set), a dict for each repeat.
    """
    keys = None if output.resume is None else _Keys(data)
    ScoreJournal(output.resume)  # ends a broken line before a line is added
    names = list(detectors)
    groups = [
        {names[i]: detectors[names[i]] for i in group}
        for group in network_groups(list(detectors.values()))
    ]
    arguments = data, repeats, keys, (output.cache, output.resume)
    if effective_n_jobs(n_jobs) == 1:
        results = (_run_group(members, *arguments) for members in groups)
    else:
        results = as_they_come(n_jobs)(
            delayed(_as_list)(members, *arguments) for members in groups
        )
    scores: list[dict] = [{} for _ in repeats]
    records: list[dict] = [{} for _ in repeats]
    n_cells = len(repeats) * len(names) * (1 + len(data.ood))
    with progress(n_cells, desc=desc, verbose=output.verbose) as bar:
        for cells in results:
            for r, name, set_name, cell_scores, record in cells:
                scores[r][name, set_name] = cell_scores
                records[r][name, set_name] = record
                bar.update(1)
    return scores, records

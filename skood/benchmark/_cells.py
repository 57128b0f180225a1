"""Cells of a comparison: scores of one set of samples by one fitted detector."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.parallel import delayed

from skood.benchmark._cache import network_outputs
from skood.benchmark._hashing import code_version, content_hash
from skood.benchmark._journal import ScoreJournal
from skood.nn._shared_forward import network_groups
from skood.utils._metaestimators import n_rows, take_rows, with_seeds
from skood.utils._progress import as_they_come, progress

#: Name of the held-out ID samples among the sets to score.
ID = ""


@dataclass(frozen=True)
class Data:
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

    def training_rows(self, repeat):
        """Return the training samples, and their classes."""
        if repeat.train is None:
            return self.X_train, self.y_train
        y = None if self.y_id is None else self.y_id[repeat.train]
        return take_rows(self.X_id, repeat.train), y

    def scored_rows(self, repeat):
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
        self._rows = {name: content_hash(X) for name, X in data.ood.items()}
        self._id = content_hash(data.X_id, data.y_id)
        self._train = content_hash(data.X_train, data.y_train)
        self._code = code_version()

    def of(self, detector, repeat, rows):
        """Return the key of a cell."""
        train = (self._id if repeat.train is not None else self._train), repeat.train
        scored = (self._id, repeat.test) if rows == ID else self._rows[rows]
        return content_hash(detector, train, repeat.seed, scored, self._code)


def _seconds(function, *args):
    start = time.perf_counter()
    return function(*args), time.perf_counter() - start


def _fit(name, detector, X, y):
    if isinstance(detector, FrozenEstimator):
        return 0.0
    try:
        _, seconds = (
            _seconds(detector.fit, X) if y is None else _seconds(detector.fit, X, y)
        )
    except Exception as error:
        error.add_note(f"This happened in fitting the detector {name!r}.")
        raise
    return seconds


def _score(name, detector, X, rows):
    """Return scores of a set of samples, and seconds."""
    where = "held-out ID samples" if rows == ID else f"OOD samples {rows!r}"
    try:
        scores, seconds = _seconds(detector.score_samples, X)
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
            name: with_seeds([clone(one)], repeat.seed)[0]
            for name, one in members.items()
        }
        missing: dict = {}
        for name, detector in seeded.items():
            for rows in (ID, *data.ood):
                key = None if keys is None else keys.of(detector, repeat, rows)
                n_samples = len(repeat.test) if rows == ID else n_rows(data.ood[rows])
                cell = None if key is None else journal.get(key, n_samples)
                if cell is None:
                    missing.setdefault(rows, {})[name] = key
                else:
                    yield r, name, rows, *cell
        if missing:
            for cell in _run_missing(seeded, missing, data, repeat, cache):
                name, rows, scores, record = cell
                journal.add(missing[rows][name], scores, repeat=r, **record)
                yield r, name, rows, scores, record


def _run_missing(seeded, missing, data, repeat, cache):
    """Yield detector, set of samples, scores and record of missing cells."""
    X, y = data.training_rows(repeat)
    scored = data.scored_rows(repeat)
    members = {name: seeded[name] for part in missing.values() for name in part}
    fit_seconds = {}
    with network_outputs(list(members.values()), cache) as read:
        unfitted = [m for m in members.values() if not isinstance(m, FrozenEstimator)]
        network_seconds = read(X) if unfitted else 0.0
        for name, detector in members.items():
            fit_seconds[name] = _fit(name, detector, X, y)
    # the fitted parts of a detector are new objects
    with network_outputs(list(members.values()), cache) as read:
        for rows, names in missing.items():
            read_seconds = read(scored[rows])
            for name in names:
                scores, seconds = _score(name, members[name], scored[rows], rows)
                record = {
                    "detector": name,
                    "rows": rows,
                    "n_samples": len(scores),
                    "fit_seconds": fit_seconds[name],
                    "score_seconds": seconds,
                    "network_seconds": network_seconds + read_seconds,
                }
                yield name, rows, scores, record
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
    given = data, repeats, keys, (output.cache, output.resume)
    if effective_n_jobs(n_jobs) == 1:
        found = (_run_group(members, *given) for members in groups)
    else:
        found = as_they_come(n_jobs)(
            delayed(_as_list)(members, *given) for members in groups
        )
    scores: list[dict] = [{} for _ in repeats]
    records: list[dict] = [{} for _ in repeats]
    n_cells = len(repeats) * len(names) * (1 + len(data.ood))
    with progress(n_cells, desc=desc, verbose=output.verbose) as bar:
        for cells in found:
            for r, name, rows, cell_scores, record in cells:
                scores[r][name, rows] = cell_scores
                records[r][name, rows] = record
                bar.update(1)
    return scores, records

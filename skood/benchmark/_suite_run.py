"""Run of the offline suite, and its files."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import shlex

from joblib import effective_n_jobs
from sklearn.utils.parallel import delayed

from skood.benchmark._compare import run_comparison
from skood.benchmark._hashing import versions
from skood.benchmark._inputs import METRICS
from skood.benchmark._output import to_csv
from skood.benchmark._report import leaders, tied, write_report
from skood.benchmark._run import _one_thread
from skood.benchmark._suite import PARTS
from skood.utils._files import write_text
from skood.utils._progress import as_they_come, progress

#: Names of the files: the page, the table and all numbers.
FILES = ("report.html", "benchmark.csv", "benchmark.json")


def run_suite(folder, names=None, *, seed=0, repeats=1, n_jobs=None, verbose=0):
    """Run parts of the suite, write report, table and numbers, and return a summary.

    Finished cells are in the subfolder ``cells``: the same call continues after an
    interruption. `names` are parts in order, None: all; `n_jobs` joblib jobs run parts.
    """
    names = list(PARTS) if names is None else list(names)
    folder.mkdir(parents=True, exist_ok=True)
    for path in (folder / name for name in FILES):
        if path.is_dir():
            raise IsADirectoryError(
                f"{path} is a folder, and a file of this name is to be written. Give "
                "another folder, or move it away."
            )
    given = str(folder / "cells"), seed, repeats
    if effective_n_jobs(n_jobs) == 1:
        found = dict(_run_part(name, *given, verbose) for name in names)
    else:
        parts = as_they_come(n_jobs)(
            delayed(_run_part)(name, *given, 0) for name in names
        )
        found = {}
        with progress(len(names), desc="parts", verbose=verbose) as bar:
            for name, part in parts:
                found[name] = part
                bar.update(1)
    found = {name: found[name] for name in names}
    _write(folder, found, seed, repeats)
    return "\n".join(_line(name, part[2]) for name, part in found.items())


def _run_part(name, cells, seed, repeats, verbose):
    """Run a part; return its name, and its title, text and comparison."""
    with _one_thread():
        part = PARTS[name](seed)
        comparison = run_comparison(
            part.detectors,
            part.X,
            part.y,
            part.ood,
            metrics=list(METRICS),
            groups=part.groups,
            test_size=0.5,
            repeats=repeats,
            cache=None,
            resume=cells,
            n_jobs=None,
            random_state=seed,
            verbose=verbose,
            desc=name,
            predictions=True,
        )
    return name, (part.title, part.text, comparison)


def _line(name, comparison):
    """Return a line with the best detectors of a part."""
    metric, means = leaders(comparison)
    best = ", ".join(f"{detector} {value:.3f}" for detector, value in means[:3])
    tie = tied(comparison)
    end = f" (tie: {', '.join(tie)})" if len(tie) > 1 else ""
    return f"{name + ':':<10}{metric} {best}{end}"


def _write(folder, found, seed, repeats):
    page, table, numbers = (folder / name for name in FILES)
    options = ["--out", str(folder), "--suite", ",".join(found)]
    options += ["--seed", str(seed), "--repeats", str(repeats)]
    command = shlex.join(["skood", "benchmark", *options])
    title = "skood: the offline suite"
    write_report(page, list(found.values()), title=title, command=command)
    rows = [
        {"part": name, **row}
        for name, (_, _, comparison) in found.items()
        for row in comparison.rows
    ]
    write_text(table, to_csv(rows))
    content = {
        "versions": versions(),
        "seed": seed,
        "repeats": repeats,
        "parts": {
            name: {
                "title": title,
                "text": text,
                "n_train": comparison.n_train,
                "sets": comparison.sets,
                "groups": comparison.groups,
                "settings": comparison.settings,
                "rows": comparison.rows,
            }
            for name, (title, text, comparison) in found.items()
        },
    }
    write_text(numbers, json.dumps(content, indent=1, allow_nan=False) + "\n")

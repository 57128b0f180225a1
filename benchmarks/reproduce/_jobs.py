"""Run experiments row by row, with a journal, and collect the cells."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import sys
import time
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from benchmarks.reproduce import _files
from benchmarks.reproduce._paper import Records
from benchmarks.reproduce._run import Run
from benchmarks.reproduce._verdicts import compare_cells, test_claims
from skood.benchmark import Journal, code_version, content_hash

PAPERS = ("franc", "dsde", "mln", "quam", "epn", "openood")

RECIPES = {"ours": ("ours",), "printed": ("printed",), "both": ("ours", "printed")}

_FOLDER = Path(__file__).parent

# Files of this folder whose code affects values, beside the paper's own.
_SHARED = (
    *("_networks.py", "_training.py", "_run.py", "_images.py", "_image_folders.py"),
    *("_packed_images.py", "_file_trees.py", "_gtsrb.py", "_mat_files.py"),
    "printed_recipes.json",
)


def available_papers():
    """Return the names of the papers that have a file."""
    return [name for name in PAPERS if (_FOLDER / f"{name}.py").exists()]


def load_paper(name):
    """Return a `Paper` by its name, or raise."""
    if name not in available_papers():
        raise ValueError(
            f"There is no paper {name!r}, only {', '.join(available_papers())}."
        )
    return import_module(f"benchmarks.reproduce.{name}").PAPER


@dataclass(frozen=True)
class Result:
    """Cells as a data frame, claims, records, and what was skipped or absent.

    ``by_recipe`` are records by recipe, ``skipped`` are reasons, and ``absent`` are
    optional data sets and weights that were not there, by the names of the experiments.
    """

    paper: Any
    small: bool
    cells: pd.DataFrame
    claims: list
    by_recipe: dict
    skipped: dict
    absent: dict

    @property
    def records(self):
        """Records of the first recipe."""
        return next(iter(self.by_recipe.values()))


@dataclass(frozen=True)
class Plan:
    """Units (experiment, seed, recipe), reasons for what is skipped, absent files."""

    units: list
    skipped: dict
    absent: dict


def plan(paper, tables, *, data, small, seeds, recipes=("ours",)):
    """Return the experiments that have a table in `tables`, their seeds and recipes.

    `tables` are names, or None for all. An unknown table raises.
    """
    known = paper.tables(small)
    for name in tables or ():
        if name not in known:
            raise ValueError(
                f"There is no table {name!r} of {paper.name} here, only "
                f"{', '.join(known)}."
            )
    units, skipped, optional = [], {}, {}
    for experiment in paper.small if small else paper.experiments:
        if tables and not set(tables) & set(experiment.tables):
            continue
        absent = {
            "package": [p for p in experiment.packages if find_spec(p) is None],
            "files of": _files.missing(experiment.needs, data),
        }
        if any(absent.values()):
            skipped[experiment.name] = (
                f"Table {', '.join(experiment.tables)}, {experiment.name}: "
                + ", ".join(
                    f"no {kind} {'; '.join(names)}"
                    for kind, names in absent.items()
                    if names
                )
            )
            continue
        names = [n[1:] for n in experiment.needs if n.startswith("?")]
        optional[experiment.name] = [n for n in names if _files.find(n, data) is None]
        chosen = [recipe for recipe in recipes if recipe in experiment.recipes]
        if not chosen:
            skipped[experiment.name] = (
                f"Table {', '.join(experiment.tables)}, {experiment.name}: the printed "
                "recipe has the same values as ours; use --recipe ours"
            )
        runs = experiment.seeds if seeds is None else seeds
        units += [
            (experiment, seed, recipe) for recipe in chosen for seed in range(runs)
        ]
    return Plan(units, skipped, {k: names for k, names in optional.items() if names})


def code_of(paper):
    """Return what identifies the code that affects the values of a paper."""
    module = sys.modules.get(f"benchmarks.reproduce.{paper.name}")
    own = [Path(module.__file__)] if module is not None else []
    paths = [*own, *(_FOLDER / name for name in _SHARED), *paper.sources]
    return code_version(), [path.read_text() for path in paths]


def rows_of(paper, experiment, seed, run, selection, code):
    """Yield (key, table, row) of an experiment with one seed.

    `selection` is (tables, patterns of rows), each None for all.
    """
    tables, only = selection
    seeds = experiment.seeds if run.seeds is None else run.seeds
    parts = experiment.prepare(replace(run, seeds=seeds), seed)
    files = _files.digest(tuple(experiment.needs), run.data)
    for table, function in experiment.tables.items():
        if tables and table not in tables:
            continue
        for row in function(parts):
            if only and not any(fnmatchcase(row.name, pattern) for pattern in only):
                continue
            key = content_hash(
                *(paper.name, experiment.name, dict(experiment.recipe), seed),
                *(table, row.name, row.depends, files, code, run.small, run.recipe),
            )
            yield key, table, row


def run_unit(paper, experiment, seed, recipe, run, selection, code, show):
    """Compute the rows of a unit that are not in the journal; return all records."""
    run = replace(run, recipe=recipe)
    journal = Journal(run.out / "records.jsonl")
    found = []
    for key, table, row in rows_of(paper, experiment, seed, run, selection, code):
        if journal.get(key) is None:
            start = time.perf_counter()
            try:
                values = row.compute()
            except Exception as error:
                error.add_note(
                    f"This happened in {paper.name}, table {table}, row {row.name!r}, "
                    f"experiment {experiment.name!r}, seed {seed}, recipe {recipe}."
                )
                raise
            seconds = time.perf_counter() - start
            journal.add(
                key,
                paper=paper.name,
                experiment=experiment.name,
                table=table,
                row=row.name,
                recipe=recipe,
                seed=seed,
                values={column: _triple(value) for column, value in values.items()},
                seconds=seconds,
                device=run.device,
                small=run.small,
            )
            if show:
                print(
                    f"{paper.name} {table}: {row.name}, seed {seed}, {seconds:.1f} s, "
                    f"recipe {recipe}",
                    file=sys.stderr,
                    flush=True,
                )
        found.append(journal.get(key))
    return found


def _triple(value):
    """Return a value with the ends of its interval, None where there is none."""
    value, *ends = value if isinstance(value, tuple) else (value,)
    numbers = [value, *(ends or (None, None))]
    return [None if v is None or math.isnan(v) else float(v) for v in numbers]


def _in_process(name, index, small, *given):
    """Run a unit in another process, where the paper is loaded by its name."""
    paper = load_paper(name)
    experiment = (paper.small if small else paper.experiments)[index]
    with threadpool_limits(limits=1):
        return run_unit(paper, experiment, *given)


def reproduce(
    paper,
    tables=None,
    *,
    data=None,
    out,
    seeds=None,
    device="auto",
    jobs=1,
    small=False,
    only=None,
    methods=None,
    memory=2.0,
    quiet=True,
    recipe="ours",
):
    """Compute tables of a paper, and compare them with the printed ones.

    Parameters
    ----------
    paper : str or Paper
        Name of a paper.

    tables : sequence of str, default=None
        Tables as printed, such as "2" or "fig-1". None: all.

    data : path-like, default=None
        Folder of the data sets. Not used if `small`.

    out : path-like
        Folder for the journal, networks, features.

    seeds : int, default=None
        Number of runs. None: of each experiment.

    device : str, default="auto"
        Device of networks.

    jobs : int, default=1
        Number of processes, each with an experiment and a seed.

    small : bool, default=False
        Small versions that need no files.

    only : sequence of str, default=None
        Patterns of names of rows, with wildcards of fnmatch.

    methods : dict of str to object, default=None
        Detectors or estimators to add to the tables, see `own_method`.

    memory : float, default=2.0
        GiB of images whose features are computed at a time.

    quiet : bool, default=True
        Whether to print nothing while rows are computed.

    recipe : {"ours", "printed", "both"}, default="ours"
        Settings of skood, those printed in the paper (`printed_recipe`), or each.

    Returns
    -------
    result : Result
        ``cells`` is a data frame.
    """
    paper = load_paper(paper) if isinstance(paper, str) else paper
    if recipe not in RECIPES:
        raise ValueError(f"recipe must be of {list(RECIPES)}, got {recipe!r}.")
    recipes = RECIPES[recipe]
    run = Run(
        None if small or data is None else Path(data).expanduser(),
        Path(out),
        device=device,
        small=small,
        methods=dict(methods or {}),
        verbose=0 if quiet else 1,
        max_bytes=round(memory * 2**30),
        seeds=seeds,
    )
    todo = plan(paper, tables, data=run.data, small=small, seeds=seeds, recipes=recipes)
    options = run, (tables, only), code_of(paper), not quiet
    Journal(run.out / "records.jsonl")  # ends a broken line before a line is added
    if jobs == 1:
        parts = [run_unit(paper, *unit, *options) for unit in todo.units]
    else:
        experiments = list(paper.small if small else paper.experiments)
        parts = Parallel(n_jobs=jobs)(
            delayed(_in_process)(
                paper.name, experiments.index(experiment), small, *unit, *options
            )
            for experiment, *unit in todo.units
        )
    found = [record for part in parts for record in part]
    by_recipe = {
        name: Records([record for record in found if record["recipe"] == name])
        for name in recipes
    }
    return Result(
        paper=paper,
        small=small,
        cells=pd.DataFrame(
            [
                cell
                for name, records in by_recipe.items()
                for cell in compare_cells(
                    paper, records, small=small, recipe=name
                ).to_dict("records")
            ]
        ),
        claims=[
            {**claim, "recipe": name}
            for name, records in by_recipe.items()
            for claim in test_claims(paper, records, tables, small=small)
        ],
        by_recipe=by_recipe,
        skipped=todo.skipped,
        absent=todo.absent,
    )

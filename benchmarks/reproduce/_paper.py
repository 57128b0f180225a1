"""What a paper's file defines: experiments, rows of tables, and claims."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone


class Row(NamedTuple):
    """Row of a table: its name, and a function that returns values by column.

    ``depends`` is hashed into the key of the row, beside what all rows depend on: a
    method of the user's, for example.
    """

    name: str
    compute: Callable[[], Mapping]
    depends: Any = None


@dataclass(frozen=True)
class Experiment:
    """Tables, or parts of them, from the same networks and samples.

    Parameters
    ----------
    name : str
        Name, unique in the paper.

    prepare : callable
        Called as ``prepare(run, seed)``, returns the parts. Cheap.

    tables : dict of str to callable
        For each table a function from the parts to an iterable of `Row`.

    needs : sequence of str
        Data sets, see ``_files.py``; with a "?" in front optional.

    packages : sequence of str
        Python packages that are no dependency of skood.

    seeds : int
        Number of runs.

    recipe : dict
        All settings that affect values and are not in the code of the paper's file.

    time : str
        Estimate for ``--list``.

    recipes : sequence of str
        "ours", and "printed" if values by the printed recipe are others.
    """

    name: str
    prepare: Callable
    tables: Mapping[str, Callable]
    needs: Sequence[str] = ()
    packages: Sequence[str] = ()
    seeds: int = 1
    recipe: Mapping = field(default_factory=dict)
    time: str = ""
    recipes: Sequence[str] = ("ours", "printed")


@dataclass(frozen=True)
class Claim:
    """Claim of a paper, as paired differences that are positive in its favor.

    Parameters
    ----------
    text : str
        The claim.

    table : str
        Table with the values, for the selection of tables.

    differences : callable
        Function from `Records` to an array of shape (n_runs,) or (n_runs, …), which is
        averaged over the other axes; None if the rows are not there.

    always : bool
        Whether no difference may be negative; it is not a test then.
    """

    text: str
    table: str
    differences: Callable
    always: bool = False


@dataclass(frozen=True)
class Paper:
    """A paper: see the docstring of the package."""

    name: str
    title: str
    experiments: Sequence[Experiment]
    small: Sequence[Experiment]
    claims: Sequence[Claim] = ()
    #: (table, row pattern, column pattern) to the reason, with wildcards of fnmatch.
    cannot_follow: Mapping[tuple, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    #: functions from `Records` to a figure of matplotlib or None, by table.
    figures: Mapping[str, Callable] = field(default_factory=dict)
    #: further files whose code affects values.
    sources: Sequence[Path] = ()

    def tables(self, small=False):
        """Return the names of all tables, in the order of the experiments."""
        experiments = self.small if small else self.experiments
        names = (table for experiment in experiments for table in experiment.tables)
        return sorted(dict.fromkeys(names), key=_table_order)


def _table_order(name):
    """Sort 2 before 10, and both before C.1 and figures."""
    return (0, int(name), "") if name.isdigit() else (1, 0, name)


class Records:
    """Values of finished rows, by table, row and column, over the runs.

    ``found`` are records of the journal. Experiments may share a row, each with columns
    of its own.
    """

    def __init__(self, found):
        self.found = found
        self.seeds = sorted({record["seed"] for record in found})
        self._runs = {}
        for record in found:
            runs = self._runs.setdefault((record["table"], record["row"]), {})
            run = self.seeds.index(record["seed"])
            runs.setdefault(run, {}).update(record["values"])

    def tables(self):
        """Return the names of the tables."""
        return list(dict.fromkeys(table for table, _ in self._runs))

    def rows(self, table):
        """Return the names of the rows of a table."""
        return [row for name, row in self._runs if name == table]

    def columns(self, table, row):
        """Return the names of the columns of a row."""
        runs = self._runs.get((table, row), {}).values()
        return list(dict.fromkeys(name for values in runs for name in values))

    def triples(self, table, row, column):
        """Return an array (n_runs, 3): value, and ends of its interval; else NaN."""
        found = np.full((len(self.seeds), 3), np.nan)
        for i, values in self._runs.get((table, row), {}).items():
            if column in values:
                found[i] = [np.nan if v is None else v for v in values[column]]
        return found

    def n_runs(self, table, row):
        """Return the number of finished runs of a row."""
        return len(self._runs.get((table, row), ()))

    def of(self, table, row, column):
        """Return the values of a cell in all runs, NaN where it has none."""
        return self.triples(table, row, column)[:, 0]


def own_method(method, estimator):
    """Return a new estimator of a ``--method`` for a network or classifier.

    The method is a class or function called with ``estimator=``, or an estimator, which
    is cloned and whose parameter `estimator` is set, if it has one.
    """
    if isinstance(method, type) or not hasattr(method, "get_params"):
        return method(estimator=estimator)
    made = clone(method)
    if "estimator" in made.get_params(deep=False):
        made.set_params(estimator=estimator)
    return made

"""Average ranks of the models, and claims on them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import partial

import numpy as np
from scipy.stats import rankdata

from benchmarks.reproduce._graph_models import MODELS
from benchmarks.reproduce._paper import Row
from benchmarks.reproduce._paper_tables import paper_table
from skood.benchmark import average_ranks

# The paper's names of graphs, and skood's.
GRAPHS = {
    "CoraML": "CoraML",
    "CiteSeer": "CiteSeerFull",
    "PubMed": "PubMed",
    "AmazonPhotos": "AmazonPhoto",
    "AmazonComputers": "AmazonComputers",
    "CoauthorCS": "CoauthorCS",
    "CoauthorPhysics": "CoauthorPhysics",
    "OGBN-Arxiv": "OGBN-Arxiv",
}

RANKS = {"1": ("10", "11", "12", "13"), "14": ("15", "16", "17", "18")}


class Printed:
    """Printed cells of the tables that ranks are of."""

    def __init__(self, run, seed):
        self._ranks = {}

    def ranks(self, tables, ending):
        """Return the average ranks of the models by the printed cells of a column."""
        if tables not in self._ranks:
            self._ranks[tables] = self._ranked(tables, ending)
        return self._ranks[tables]

    def _ranked(self, tables, ending):
        rows = []
        for table in tables:
            cells = paper_table("epn", table)
            cells = cells[cells.column.str.endswith(ending)]
            for row, column, value in zip(
                cells.row, cells.column, cells.value, strict=True
            ):
                graph, model = row.split("/")
                rows.append(
                    {"block": f"{graph}/{column}", "model": model, "value": value}
                )
        return average_ranks(rows, block="block", method="model", value="value")


def rank_table(parts, table, ending="OOD-AUROC"):
    """Yield the average rank of each model, by the printed cells, and their test."""
    tables = RANKS.get(table, ("8", "9"))
    for model in MODELS:
        yield Row(model, partial(_average_rank, parts, tables, ending, model))
    yield Row("all models", partial(_test, parts, tables, ending))


def _average_rank(parts, tables, ending, model):
    found = parts.ranks(tables, ending)
    at = found.methods.tolist().index(model)
    return {"average/rank": found.mean_rank[at]}


def _test(parts, tables, ending):
    """Return what average ranks must differ by, and the statistic of Friedman's test.

    The test is of the models that have a value in all settings.
    """
    found = parts.ranks(tables, ending)
    return {
        "critical difference": found.critical_difference,
        "Friedman statistic": found.statistic,
    }


def own_average_ranks(records, tables, ending):
    """Return `average_ranks` of the means over our runs, or None without cells."""

    def mean(*place):
        values = records.of(*place)
        values = values[~np.isnan(values)]
        return values.mean() if len(values) else np.nan

    rows = [
        {
            "block": f"{graph}/{column}",
            "model": model,
            "value": mean(table, row, column),
        }
        for table in tables
        for row in records.rows(table)
        for graph, _, model in [row.partition("/")]
        if model in MODELS
        for column in records.columns(table, row)
        if column.endswith(ending)
    ]
    rows = [row for row in rows if not np.isnan(row["value"])]
    if len({row["model"] for row in rows}) < 2:
        return None
    return average_ranks(rows, block="block", method="model", value="value")


def draw_ranks(records, tables, ending="OOD-AUROC"):
    """Return a figure of the average ranks of our cells and of the printed ones."""
    from matplotlib.figure import Figure

    own = own_average_ranks(records, tables, ending)
    if own is None:
        return None
    printed = Printed(None, 0).ranks(tables, ending)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    names = own.methods.tolist()
    for ranks, marker, name in ((own, "o", "ours"), (printed, "x", "printed")):
        there = [model for model in ranks.methods if model in names]
        values = dict(zip(ranks.methods, ranks.mean_rank, strict=True))
        places = [names.index(model) for model in there]
        n_settings = ranks.n_blocks.max()
        label = f"{name}, {n_settings} setting{'s' if n_settings > 1 else ''}"
        axes.plot([values[model] for model in there], places, marker, label=label)
    best, difference = own.mean_rank[0], own.critical_difference
    label = f"critical difference {difference:.2f}"
    axes.axvspan(best, best + difference, color="0.9", label=label)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel=f"average rank by {ending}")
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    return figure


#: Drawings by table: of the first table with cells that are ranked.
FIGURES = {
    "10": partial(draw_ranks, tables=RANKS["1"]),
    "15": partial(draw_ranks, tables=RANKS["14"]),
    "8": partial(draw_ranks, tables=("8", "9"), ending="MIS-AUROC"),
}


def _own_ranks(records, tables):
    """Return mean ranks (n_runs, n_models) over the settings of all graphs, or None.

    A setting in which a model is unable is left out of the mean of this model.
    """
    runs = []
    for table in tables:
        there = set(records.rows(table))
        graphs = {row.partition("/")[0] for row in there}
        for graph in sorted(graphs & set(GRAPHS)):
            rows = [f"{graph}/{model}" for model in MODELS]
            if not there.issuperset(rows):
                return None
            for column in records.columns(table, rows[-1]):
                if column.endswith("OOD-AUROC"):
                    cells = [records.of(table, row, column) for row in rows]
                    runs.append(np.array(cells).T)
    if not runs or np.isnan(runs).all(axis=0).any():
        return None
    return np.nanmean(rankdata(-np.array(runs), axis=2, nan_policy="omit"), axis=0)


def probe_is_first(records, tables=RANKS["1"]):
    """Return how much smaller the rank of EPN-reg is than the best of the others."""
    ranks = _own_ranks(records, tables)
    if ranks is None:
        return None
    others = ranks[:, :-1]
    return others[:, others.mean(axis=0).argmin()] - ranks[:, -1]


def regularizers_help(records):
    """Return the differences in AUROC between EPN-reg and EPN."""
    rows = "EPN+ICE+PCL (EPN-reg)", "EPN"
    columns = records.columns("4", rows[0])
    found = [
        records.of("4", rows[0], column) - records.of("4", rows[1], column)
        for column in columns
    ]
    return np.array(found).T if found else None


def probe_is_fastest(records, column="OGBN-Arxiv/seconds"):
    """Return how many seconds the fastest other model needs more than the probe."""
    rows = [row for row in records.rows("3") if not row.startswith("EPN")]
    if not rows or column not in records.columns("3", rows[0]):
        return None
    others = np.min([records.of("3", row, column) for row in rows], axis=0)
    return others - records.of("3", "EPN", column)


def is_ahead(records, model, other, *, published=False):
    """Return the differences in AUROC between two models, GCN, over all graphs."""
    found = []
    for table in RANKS["1"]:
        for row in records.rows(table):
            graph, _, name = row.partition("/")
            if name == model and (graph in GRAPHS or not published):
                found += [
                    records.of(table, row, column)
                    - records.of(table, f"{graph}/{other}", column)
                    for column in records.columns(table, row)
                    if column.endswith("OOD-AUROC")
                ]
    return np.array(found).T if found else None

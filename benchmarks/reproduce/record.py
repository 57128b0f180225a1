"""Records of runs as data files, and the pages of results that are made of them.

::

    python -m benchmarks.reproduce.record OUT [OUT ...]

merges cells, claims and runs in folders that ``python -m benchmarks.reproduce`` wrote
into ``benchmarks/results/PAPER.json``. A cell of more runs replaces one of fewer.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import json
import math
from pathlib import Path

import pandas as pd

from benchmarks.reproduce._jobs import available_papers, load_paper
from benchmarks.reproduce._page import MARKS, VERDICTS, table_title
from benchmarks.reproduce._paper_tables import paper_tables
from benchmarks.reproduce._recipes import choice_rows
from benchmarks.reproduce._run import replacing
from benchmarks.reproduce._verdicts import printed_cells

RESULTS = Path(__file__).parents[1] / "results"

# Fewer runs are not shown, unless an experiment has fewer because nothing is random.
_LEAST_RUNS = 3

_PLACE = ["table", "row", "column", "recipe"]
COLUMNS = [*_PLACE, "n_runs", "value", "low", "high", "spread", "verdict"]


def _rounded(entry):
    """Return a dict whose numbers have five significant digits, None for NaN."""
    return {
        name: value
        if not isinstance(value, float)
        else None
        if math.isnan(value)
        else float(f"{value:.5g}")
        for name, value in entry.items()
    }


def load_record(paper, folder=RESULTS):
    """Return the record of a paper, a dict, with `cells` as dicts; empty if none."""
    path = Path(folder, f"{paper}.json")
    if not path.exists():
        return {"runs": [], "cells": [], "claims": [], "skipped": []}
    content = json.loads(path.read_text())
    names = content["columns"]
    content["cells"] = [dict(zip(names, c, strict=True)) for c in content["cells"]]
    return content


def _runs(out, about):
    """Return a dict for each experiment and recipe in the journal of a folder."""
    lines = (out / "records.jsonl").read_text().splitlines()
    rows = pd.DataFrame([{"recipe": "ours", **json.loads(line)} for line in lines])
    # rows that were computed again, after a change of the code, are there twice
    key = ["table", "row", "recipe", "experiment", "seed"]
    rows = rows.drop_duplicates(key, keep="last")
    return [
        {
            "experiment": experiment,
            "recipe": recipe,
            "n_runs": group.seed.nunique(),
            "seeds": sorted(set(group.seed.tolist())),
            "date": about["date"],
            "device": about["device"],
            "code": about.get("sources", about["skood"]),
            "minutes": group.seconds.sum() / 60,
        }
        for (experiment, recipe), group in rows.groupby(["experiment", "recipe"])
    ]


def _merged(old, new, names):
    """Return dicts by the values of `names`; a new one replaces one of no more runs."""
    merged = {tuple(entry[name] for name in names): entry for entry in old}
    for entry in new:
        place = tuple(entry[name] for name in names)
        if entry["n_runs"] >= merged.get(place, entry)["n_runs"]:
            merged[place] = _rounded(entry)
    return [merged[place] for place in sorted(merged)]


def _reasons(paper, skipped):
    """Return why tables are absent, by table: all of their experiments were skipped."""
    reasons = {}
    for table in paper.tables():
        for_table = [e for e in paper.experiments if table in e.tables]
        if all(experiment.name in skipped for experiment in for_table):
            reason, needs = skipped[for_table[0].name], for_table[0].needs
            absent = [name for name in needs if f"{name}: " in reason]
            reasons[table] = f"no files of {', '.join(absent)}" if absent else reason
    return reasons


def _with_recipe(claims):
    return [{"recipe": "ours", **claim} for claim in claims]


def record(out, folder=RESULTS):
    """Merge the results in a folder into the record of their paper; return its path."""
    out = Path(out)
    new = json.loads((out / "cells.json").read_text())
    if new["small"]:
        raise ValueError(f"{out} has small versions, which are no results of a paper.")
    about = json.loads((out / "environment.json").read_text())
    old = load_record(new["paper"], folder)
    cells = []
    for cell in new["cells"]:
        cell = {"recipe": "ours", **cell, "n_runs": cell["n_runs"] + cell["n_unable"]}
        cells.append({name: cell[name] for name in COLUMNS})
    cells = _merged(old["cells"], cells, _PLACE)
    reasons = {entry["table"]: entry["reason"] for entry in old["skipped"]}
    reasons |= _reasons(load_paper(new["paper"]), new["skipped"])
    there = {cell["table"] for cell in cells}
    lists = {
        "runs": _merged(old["runs"], _runs(out, about), ["experiment", "recipe"]),
        "cells": [list(cell.values()) for cell in cells],
        "claims": _merged(
            *(_with_recipe(claims) for claims in (old["claims"], new["claims"])),
            ["table", "claim", "recipe"],
        ),
        "skipped": [
            {"table": table, "reason": reason}
            for table, reason in sorted(reasons.items())
            if table not in there
        ],
    }
    head = {"format": 1, "paper": new["paper"], "columns": COLUMNS}
    parts = [f'"{name}": {json.dumps(value)}' for name, value in head.items()]
    for name, entries in lists.items():
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        parts.append(f'"{name}": [\n{lines}\n]')
    path = Path(folder, f"{new['paper']}.json")
    with replacing(path) as file:
        file.write(("{\n" + ",\n".join(parts) + "\n}\n").encode())
    return path


# --- pages ----------------------------------------------------------------------------


def _csv(title, *rows):
    """Yield the lines of a table in reStructuredText; the first row is the header."""
    yield from (f".. csv-table:: {title}", "   :header-rows: 1", "")
    for row in rows:
        yield "   " + ",".join('"' + str(text).replace('"', '""') + '"' for text in row)
    yield ""


def _shown(cell, printed):
    """Return a value, half the width of its interval, and the mark of its verdict.

    It has one digit more than the printed number, or two digits of the half width.
    """
    if cell is None:
        return ""
    value, width, digits = cell["value"], "", 2
    if value is None:
        return f"unable {MARKS.get(cell['verdict'], '')}"
    half = 0.0 if cell["low"] is None else (cell["high"] - cell["low"]) / 2
    if printed is not None and printed.value is not None:
        digits = len(repr(float(printed.value)).partition(".")[2]) + 1
    elif half > 0:
        digits = 1 - math.floor(math.log10(half))
    digits = min(max(digits, 0), 4)
    if cell["low"] is not None:
        width = f" ± {half:.{digits}f}"
    return f"{value:.{digits}f}{width} {MARKS.get(cell['verdict'], '')}".rstrip()


def _printed(cell):
    """Return a printed number and its spread."""
    if cell is None:
        return ""
    spread = "" if cell.std is None else f" ± {cell.std:g}"
    return "unable" if cell.value is None else f"{cell.value:g}{spread}"


def _table_rows(cells, printed):
    """Yield the header, and of each row the numbers of the paper and the recipes."""
    of = {(cell["row"], cell["column"], cell["recipe"]): cell for cell in cells}
    there = dict.fromkeys(place[:2] for place in of)
    places = dict.fromkeys([p for p in printed if p in there]) | there
    columns = dict.fromkeys(column for _, column in places)
    yield "row", "source", *columns
    for row in dict.fromkeys(row for row, _ in places):
        theirs = [printed.get((row, column)) for column in columns]
        if any(theirs):
            yield row, "paper", *map(_printed, theirs)
        for recipe in "printed", "ours":
            numbers = [of.get((row, column, recipe)) for column in columns]
            if any(numbers):
                source = {"printed": "printed recipe"}.get(recipe, recipe)
                yield row, source, *map(_shown, numbers, theirs)


def _claim_row(claim):
    ends = ""
    if claim["low"] is not None:
        ends = f" [{claim['low']:.3g}, {claim['high']:.3g}]"
    pvalue = "" if claim["pvalue"] is None else f"{claim['pvalue']:.2g}"
    difference = f"{claim['mean']:.3g}{ends}"
    recipe = claim.get("recipe", "ours")
    return claim["claim"], recipe, claim["verdict"], difference, pvalue, claim["n_runs"]


def page(name, folder=RESULTS):
    """Return the page of the results of a paper in reStructuredText."""
    paper, content = load_paper(name), load_record(name, folder)
    least = {t: min(_LEAST_RUNS, e.seeds) for e in paper.experiments for t in e.tables}
    least |= {e.name: min(_LEAST_RUNS, e.seeds) for e in paper.experiments}

    def shown(kind, place):
        return [
            entry
            for entry in content[kind]
            if entry["n_runs"] >= least.get(entry[place], _LEAST_RUNS)
        ]

    lines = [paper.title, "=" * len(paper.title), ""]
    lines += ["Ours, ± half the width of 95 % intervals over runs.", ""]
    if choices := choice_rows(name):
        title = "Choices that the paper does not state, or that ours changes"
        choices = [(f"``{setting}``", *others) for setting, *others in choices]
        lines += _csv(title, ("setting", "printed", "ours", "reason"), *choices)
    lines += [f"- {MARKS[word]}: {meaning}" for word, meaning in VERDICTS.items()]
    lines.append("")
    names = "experiment", "recipe", "n_runs", "date", "device", "minutes"
    runs = [
        [run[field] for field in names[:-1]] + [f"{run['minutes']:.2g}"]
        for run in shown("runs", "experiment")
    ]
    header = "experiment", "recipe", "runs", "date", "device", "minutes"
    lines += _csv("Runs", header, *runs) if runs else ["No run is recorded.", ""]
    if claims := shown("claims", "table"):
        header = "claim", "recipe", "verdict", "difference", "p (Holm)", "runs"
        lines += _csv("Claims", header, *map(_claim_row, claims))
    cells = shown("cells", "table")
    for table in paper.tables():
        of_table = [cell for cell in cells if cell["table"] == table]
        if of_table and not table.startswith("fig-"):
            rows = _table_rows(of_table, printed_cells(name, table))
            lines += _csv(table_title(name, table), *rows)
    about = paper_tables()
    there = {cell["table"] for cell in cells}
    reasons = {entry["table"]: entry["reason"] for entry in content["skipped"]}
    names = dict.fromkeys([*about.table[about.paper == name], *paper.tables()])
    absent = [
        (table, reasons.get(table, f"see ``reproduce {name} {table} --list``"))
        for table in names
        if table not in there
    ]
    if absent:
        lines += _csv("Not recorded", ("table", "reason"), *absent)
    return "\n".join(lines) + "\n"


def write_pages(folder):
    """Write the page of each paper, as ``PAPER.rst``."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in available_papers():
        (folder / f"{name}.rst").write_text(page(name))


def main(argv=None):
    """Merge folders of results into the records, or write the pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.record")
    parser.add_argument("out", nargs="*", metavar="OUT", help="folder of results")
    parser.add_argument("--pages", metavar="FOLDER", help="write the pages of results")
    arguments = parser.parse_args(argv)
    for out in arguments.out:
        print(record(out))
    if arguments.pages:
        write_pages(arguments.pages)


if __name__ == "__main__":
    main()

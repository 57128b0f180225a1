"""The report: an HTML page, CSV and JSON files, and a table for the console."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import io
import json
import math
import os
import platform
from datetime import date
from html import escape

import pandas as pd
import torch

from benchmarks.reproduce._paper_tables import paper_tables
from benchmarks.reproduce._recipes import choice_rows
from benchmarks.reproduce._run import replacing
from skood.benchmark import code_version, html_page, html_table
from skood.utils._torch import resolve_device

FILES = ("report.html", "cells.csv", "cells.json", "environment.json")

VERDICTS = {
    "agrees": "our value and the paper's differ by no more than their errors",
    "better": "ours is better by more than that",
    "worse": "ours is worse by more than that",
    "differs": "they differ, in a column without a direction",
    "cannot follow": "the paper does not determine the value: see the note",
}
MARKS = {
    "agrees": "=",
    "better": "↑",
    "worse": "↓",
    "differs": "≠",
    "cannot follow": "?",
}


def environment(device):
    """Return the software and the machine."""
    found = {
        **code_version(),
        "date": date.today().isoformat(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "device": str(resolve_device(device)),
    }
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_device_name()
    return found


def write(result, out, device):
    """Write `FILES` to a folder."""
    about = environment(device)
    claims = pd.DataFrame(result.claims)
    cells = {
        "paper": result.paper.name,
        "small": result.small,
        "cells": json.loads(result.cells.to_json(orient="records")),
        "claims": json.loads(claims.to_json(orient="records")),
        "skipped": result.skipped,
        "absent": result.absent,
    }
    contents = (
        html_page(f"Reproduction: {result.paper.title}", list(_parts(result, about))),
        result.cells.to_csv(index=False),
        json.dumps(cells, indent=1, ensure_ascii=False),
        json.dumps(about, indent=1),
    )
    for name, text in zip(FILES, contents, strict=True):
        with replacing(out / name) as file:
            file.write(text.encode())


def number(value, like=None):
    """Return a number as text, with the digits of a printed one, and one more.

    At least 3 and at most 6 digits, and 4 if there is no printed number.
    """
    if value is None or math.isnan(value):
        return "unable"
    digits = 4
    if like is not None and not math.isnan(like):
        digits = min(max(len(repr(float(like)).partition(".")[2]) + 1, 3), 6)
    return f"{value:.{digits}f}"


def table_title(paper, table):
    """Return the number of a table or figure, and its title in the paper."""
    about = paper_tables()
    known = about[(about.paper == paper) & (about.table == table)]
    name = f"Figure {table[4:]}" if table.startswith("fig-") else f"Table {table}"
    return name + (f": {known.title.iloc[0]}" if len(known) else "")


def _parts(result, about):
    """Yield the parts of the page."""
    facts = "".join(
        f"<dt>{escape(k)}</dt><dd>{escape(str(v)[:80])}</dd>" for k, v in about.items()
    )
    if result.small:
        yield "<p><strong>Small versions: no verdicts on the paper.</strong></p>"
    if len(result.cells) and not result.small:
        yield _overview(result)
    yield f"<details><summary>Software and machine</summary><dl class='facts'>{facts}"
    yield "</dl></details>"
    yield f"<details><summary>Choices</summary>{_choices(result)}</details>"
    if result.claims:
        yield "<h2>Claims</h2>"
        yield _claims(result)
    for reason in result.skipped.values():
        yield f"<p>Skipped: {escape(reason)}</p>"
    for line in _absent(result):
        yield f"<p>{escape(line)}</p>"
    for table in dict.fromkeys(result.cells.table if len(result.cells) else ()):
        title = escape(table_title(result.paper.name, table))
        yield f'<section id="{table}"><h2>{title}</h2>'
        if table in result.paper.notes:
            yield f"<p>{escape(result.paper.notes[table])}</p>"
        yield _table(result, table)
        if table in result.paper.figures:
            for name, records in result.by_recipe.items():
                yield _figure(result.paper.figures[table], records, name)
        yield "</section>"


def _choices(result):
    """Return a table of the settings that the paper does not state or ours changes."""
    rows = choice_rows(result.paper.name)
    columns = ("setting", "printed", "ours", "reason")
    frame = pd.DataFrame(rows, columns=columns).map(escape).set_index("setting")
    caption = "Settings that the paper does not state, or that ours changes."
    return html_table(frame, caption=caption) if rows else ""


def _absent(result):
    """Yield lines on optional files, such as weights, that were not there."""
    for name, files in result.absent.items():
        yield f"{name}: computed without the optional {', '.join(files)}"


def with_recipe(frame, name):
    """Return a column, with the recipe of each row if there are two."""
    is_single = frame.recipe.nunique() < 2
    return frame[name] if is_single else frame[name] + ", " + frame.recipe


def _overview(result):
    """Return the number of cells of each verdict by table."""
    verdicts = result.cells.verdict.replace("", "not in the paper")
    tables = with_recipe(result.cells, "table")
    counts = pd.crosstab(tables, verdicts, margins=True)
    counts = counts.rename(index={"All": "all"}, columns={"All": "cells"})
    counts = counts.loc[[*dict.fromkeys(tables), "all"]]
    counts.columns.name = None
    legend = "; ".join(
        f"{MARKS[name]} <b>{name}</b>: {meaning}" for name, meaning in VERDICTS.items()
    )
    caption = f"Cells of each verdict. {legend}."
    return html_table(counts.astype(str), caption=caption)


def _claims(result):
    """Return the table of claims."""
    frame = pd.DataFrame(
        {
            "table": [c["table"] for c in result.claims],
            "verdict": [f"<b>{c['verdict']}</b>" for c in result.claims],
            "difference": [_with_interval(c) for c in result.claims],
            "runs": [str(c["n_runs"]) for c in result.claims],
            "p (Holm)": [_pvalue(c["pvalue"]) for c in result.claims],
        },
        index=list(with_recipe(pd.DataFrame(result.claims), "claim")),
    )
    return html_table(
        frame,
        caption="Mean paired difference over runs, positive in favor of the claim, "
        "with its 95 % interval, and two-sided t-tests with Holm's correction; without "
        "a p-value: an identity, which has to hold in every run, or a small version.",
    )


def _pvalue(value):
    return "–" if value is None or math.isnan(value) else f"{value:.3g}"


def _with_interval(row):
    text = f"{row['mean']:+.4g}"
    if not math.isnan(row["low"]):
        text += f"<small>[{row['low']:+.4g}, {row['high']:+.4g}]</small>"
    return text


def _cell(cell, small):
    """Return a cell as HTML: ours, its interval, the paper's value, the verdict."""
    shown = number(cell.value, cell.paper)
    if cell.verdict in MARKS:
        mark = f'<span title="{cell.verdict}">{MARKS[cell.verdict]}</span>'
        shown = f"{mark} <b>{shown}</b>"
    lines = []
    if not math.isnan(cell.low):
        ends = (number(end, cell.paper) for end in (cell.low, cell.high))
        lines.append(f"[{', '.join(ends)}]")
    if cell.n_unable and not math.isnan(cell.value):
        lines.append(f"unable in {cell.n_unable} runs")
    if small:
        lines.append("small")
    elif cell.verdict:
        lines.append(f"paper {_printed(cell)}")
    return shown + "".join(f"<small>{line}</small>" for line in lines)


def _printed(cell):
    """Return the value of the paper, "unable" only where its cell is that."""
    if cell.paper is None or math.isnan(cell.paper):
        return "unable" if cell.note.startswith("unable") else ""
    std = cell.paper_std
    spread = "" if std is None or math.isnan(std) else f" ± {std:g}"
    return f"{cell.paper:g}{spread}"


def _of_table(result, table):
    """Return the cells of a table, the rows of two recipes beside each other."""
    cells = result.cells[result.cells.table == table]
    order = {row: i for i, row in enumerate(dict.fromkeys(cells.row))}
    cells = cells.sort_values("row", key=lambda rows: rows.map(order), kind="stable")
    return cells.assign(row=with_recipe(cells, "row"))


def _table(result, table):
    """Return a table of the page: rows by columns, and its notes."""
    cells = _of_table(result, table)
    shown = [_cell(cell, result.small) for cell in cells.itertuples()]
    frame = cells.assign(shown=shown).pivot(index="row", columns="column")["shown"]
    frame = frame.loc[list(dict.fromkeys(cells.row)), list(dict.fromkeys(cells.column))]
    frame.columns.name = frame.index.name = None
    notes = cells[cells.note != ""].groupby("note", sort=False).row.unique()
    lines = "".join(
        f"<li>{escape(', '.join(rows))}: {escape(note)}</li>"
        for note, rows in notes.items()
    )
    n_runs = sorted(set(cells.n_runs[cells.n_runs > 0]))
    text = " to ".join(dict.fromkeys(map(str, (n_runs or [0])[:1] + n_runs[-1:])))
    caption = f"Ours, with 95 % intervals; {text} runs."
    return html_table(frame.fillna(""), caption=caption) + (
        f"<ul>{lines}</ul>" if lines else ""
    )


def _figure(draw, records, recipe):
    """Return a figure of matplotlib as inline SVG, or nothing for None."""
    figure = draw(records)
    if figure is None:
        return ""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    caption = "" if recipe == "ours" else "<figcaption>Printed recipe.</figcaption>"
    text = text[text.index("<svg") :] + caption
    return f"<figure style='overflow-x: auto'>{text}</figure>"


def console(result):
    """Return the cells as lines of text."""
    lines = []
    for table in dict.fromkeys(result.cells.table if len(result.cells) else ()):
        lines += ["", table_title(result.paper.name, table)]
        cells = _of_table(result, table)
        width = max(map(len, cells.row)) + 2
        wide = max(map(len, cells.column)) + 2
        for cell in cells.itertuples():
            ends = ""
            if not math.isnan(cell.low):
                low, high = (number(end, cell.paper) for end in (cell.low, cell.high))
                ends = f"[{low}, {high}]"
            paper = f"paper {_printed(cell)}" if cell.verdict in VERDICTS else ""
            line = (
                f"{cell.row:{width}}{cell.column:{wide}}"
                f"{number(cell.value, cell.paper):>10} {ends:20} {paper:20} "
                f"{cell.verdict}"
            )
            lines.append(line.rstrip())
    if result.claims:
        lines += ["", "Claims"]
    for claim in result.claims:
        lines.append(
            f"{claim['verdict']:10} {claim['mean']:+.4g}, p {_pvalue(claim['pvalue'])}"
            f", {claim['n_runs']} runs, {claim['recipe']}: {claim['claim']}"
        )
    skipped = (f"skipped: {reason}" for reason in result.skipped.values())
    return "\n".join([*lines, *skipped, *_absent(result)])

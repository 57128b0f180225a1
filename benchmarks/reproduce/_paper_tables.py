"""The printed tables of the papers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import gzip
import json
from functools import cache
from pathlib import Path

import pandas as pd

_FILE = Path(__file__).with_name("paper_tables.json.gz")


@cache
def _content():
    return json.loads(gzip.decompress(_FILE.read_bytes()))


def paper_tables():
    """Return a data frame with a row for each table: paper, table, title, unit, …

    `spread` is "standard deviation" or "standard error" if the paper has spreads, over
    `runs` runs, else None.
    """
    frame = pd.DataFrame(_content()["tables"]).drop(columns="cells")
    return frame.astype(object).where(frame.notna(), None)


def paper_table(paper, table):
    """Return a data frame of the cells of a table: row, column, value, std, note.

    `value` is None if the paper has none, with the reason in `note`. Raises a KeyError
    for a table that is not there.
    """
    cells = [
        {name: cell.get(name) for name in ("row", "column", "value", "std", "note")}
        for cell in _content()["cells"]
        if (cell["paper"], cell["table"]) == (paper, table)
    ]
    if not cells:
        known = [t["table"] for t in _content()["tables"] if t["paper"] == paper]
        raise KeyError(
            f"There is no table {table!r} of {paper!r}, only {', '.join(known)}."
        )
    return pd.DataFrame(cells, dtype=object)

"""Intervals over runs, verdicts on cells, and tests of claims."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import re
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.reproduce._paper_tables import paper_table, paper_tables

LEVEL = 0.05
_Z = stats.norm.ppf(1 - LEVEL / 2)

# Words in the names of columns for which small values are good; tables of ranks and of
# seconds have no others.
_LOWER = re.compile(r"risk|FPR|\bBS\b|Brier|ECE|seconds|rank|error", re.IGNORECASE)
# Columns that have no direction: a difference is a difference.
_NEUTRAL = re.compile(
    r"^(TPR|classes|nodes|edges|features|train nodes|difference)$|left out"
)


class Ours(NamedTuple):
    """Mean over runs, its interval and standard error, and the spread; else NaN."""

    value: float
    low: float
    high: float
    error: float
    spread: float
    n_runs: int


def summarize(triples):
    """Return `Ours` of an array (n_runs, 3): values and ends of their intervals.

    The interval is a 95 % t-interval over runs or, for one run, its own interval over
    samples, whose length gives the standard error.
    """
    values = triples[~np.isnan(triples[:, 0]), 0]
    n = len(values)
    if n == 0:
        return Ours(*[math.nan] * 5, 0)
    mean = float(values.mean())
    if n == 1:
        low, high = triples[~np.isnan(triples[:, 0]), 1:][0].tolist()
        error = (high - low) / (2 * _Z)
        return Ours(mean, low, high, error, error, 1)
    spread = float(values.std(ddof=1))
    error = spread / math.sqrt(n)
    half = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * error
    return Ours(mean, mean - half, mean + half, error, spread, n)


def paper_error(std, spread, runs):
    """Return the standard error of a printed value, NaN if there is none."""
    if std is None or spread is None:
        return math.nan
    if spread == "standard error":
        return float(std)
    return float(std) / math.sqrt(runs) if runs else math.nan


def tolerance(ours, error, unit):
    """Return the largest difference to the paper that is no disagreement.

    With a printed spread 1.96 times the standard error of the difference. Without one
    the paper's value is a further run: half the prediction interval for it. Without a
    spread of ours either, a value is exact, and only rounding remains: half a `unit`
    of the last printed digit.
    """
    if math.isnan(ours.error) or ours.error <= 1e-12 * abs(ours.value):
        # one run, or equal runs: a printed spread is the only one known
        return unit / 2 if math.isnan(error) else max(_Z * error, unit / 2)
    if not math.isnan(error):
        return _Z * math.hypot(ours.error, error)
    if ours.n_runs == 1:
        return _Z * math.sqrt(2) * ours.error
    t = float(stats.t.ppf(1 - LEVEL / 2, ours.n_runs - 1))
    return t * ours.spread * math.sqrt(1 + 1 / ours.n_runs)


def direction(column):
    """Return 1 if large values of a column are good, -1 if small ones are, or 0."""
    name = column.split("/")[-1]
    if _NEUTRAL.search(name):
        return 0
    return -1 if _LOWER.search(name) else 1


def verdict(ours, paper, error, unit, sign):
    """Return the verdict on a cell: agrees, better, worse, or differs (`sign` 0).

    None in place of a value is "unable", and no value is better than it.
    """
    if paper is None or math.isnan(ours.value):
        able, was = not math.isnan(ours.value), paper is not None
        return "agrees" if able == was else "better" if able else "worse"
    gap = ours.value - paper
    if abs(gap) <= tolerance(ours, error, unit) + 1e-12:
        return "agrees"
    if sign == 0:
        return "differs"
    return "better" if sign * gap > 0 else "worse"


def last_digit(values):
    """Return the unit of the last digit that is printed in a column."""
    digits = [len(repr(float(v)).partition(".")[2]) for v in values]
    whole = all(float(v).is_integer() for v in values)
    return 1.0 if whole else 10.0 ** -max(digits)


def compare_cells(paper, records, *, small, recipe="ours"):
    """Return a data frame with a row for each cell that was computed.

    Of a small version, and of rows and columns that are not in the paper, there is no
    verdict.
    """
    about = paper_tables()
    about = about[about.paper == paper.name].set_index("table")
    found = []
    for table in records.tables():
        printed = {} if small else printed_cells(paper.name, table)
        units = _units(printed)
        for row in records.rows(table):
            for column in records.columns(table, row):
                cell = printed.get((row, column))
                ours = summarize(records.triples(table, row, column))
                found.append(
                    {
                        "table": table,
                        "row": row,
                        "column": column,
                        "recipe": recipe,
                        **ours._asdict(),
                        "paper": None if cell is None else cell.value,
                        "paper_std": None if cell is None else cell.std,
                        **_verdict_and_note(
                            paper, (table, row, column), ours, cell, about, units, small
                        ),
                        "n_unable": records.n_runs(table, row) - ours.n_runs,
                    }
                )
    return pd.DataFrame(found)


def printed_cells(paper, table):
    """Return the numeric cells of a printed table by (row, column)."""
    about = paper_tables()
    if not ((about.paper == paper) & (about.table == table)).any():
        return {}
    frame = paper_table(paper, table)
    return {
        (cell.row, cell.column): cell
        for cell in frame.itertuples()
        if not isinstance(cell.value, list)
    }


def _units(printed):
    """Return the unit of the last printed digit of each column."""
    values = {}
    for (_, column), cell in printed.items():
        if cell.value is not None:
            values.setdefault(column, []).append(cell.value)
    return {column: last_digit(found) for column, found in values.items()}


def _verdict_and_note(paper, place, ours, cell, about, units, small):
    """Return the verdict and the note of a cell."""
    if small:
        return {"verdict": "small", "note": ""}
    reasons = [
        reason
        for pattern, reason in paper.cannot_follow.items()
        if all(map(fnmatchcase, place, pattern))
    ]
    notes = [cell.note] if cell is not None and cell.note else []
    note = "; ".join(notes + reasons[:1])
    if cell is None or (cell.value is None and not note.startswith("unable")):
        return {"verdict": "", "note": note}
    if reasons:
        return {"verdict": "cannot follow", "note": note}
    table, _, column = place
    spread, runs = about.loc[table, "spread"], about.loc[table, "runs"]
    error = paper_error(cell.std, spread, runs)
    unit, sign = units.get(column, 0.0), direction(column)
    return {"verdict": verdict(ours, cell.value, error, unit, sign), "note": note}


# --- claims ---------------------------------------------------------------------------


def holm(pvalues):
    """Return p-values adjusted by Holm's method; NaN stays NaN."""
    pvalues = np.asarray(pvalues, dtype=float)
    adjusted = np.full(len(pvalues), np.nan)
    order = np.argsort(pvalues)[: np.sum(~np.isnan(pvalues))]
    steps = pvalues[order] * (len(order) - np.arange(len(order)))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def paired_pvalue(differences):
    """Return the two-sided p-value of a t-test of mean 0; NaN for fewer than two.

    Equal differences have no spread: 0, or 1 if they are zero.
    """
    n = len(differences)
    if n < 2:
        return math.nan
    spread = differences.std(ddof=1)
    if spread <= 1e-12 * max(1.0, np.abs(differences).max()):
        return 1.0 if np.abs(differences).max() <= 1e-12 else 0.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def test_claims(paper, records, tables=None, *, small=False):
    """Return a dict for each claim whose rows are there.

    With `claim`, `mean`, `low`, `high` and `n_runs` of the differences, `pvalue`
    adjusted by Holm's method, and `verdict`: holds, fails, undecided; in a small
    version "in favor" or "against", without a test.
    """
    found = []
    for claim in paper.claims:
        if tables and claim.table not in tables:
            continue
        differences = claim.differences(records)
        if differences is None:
            continue
        runs = np.asarray(differences, dtype=float)
        finite = runs[~np.isnan(runs)]
        runs = runs.reshape(len(runs), -1).mean(axis=1)
        runs = runs[~np.isnan(runs)]
        if len(runs):
            found.append((claim, runs, finite.min()))
    tested = [paired_pvalue(d) for claim, d, _ in found if not claim.always]
    adjusted = iter(holm(tested))
    return [
        _claim_row(claim, runs, least, None if claim.always else next(adjusted), small)
        for claim, runs, least in found
    ]


def _claim_row(claim, runs, least, pvalue, small):
    """Return the line of a claim; `pvalue` None: it must hold in every run."""
    ours = summarize(np.column_stack([runs, np.full((len(runs), 2), np.nan)]))
    if claim.always:
        word = "holds" if least >= -1e-12 else "fails"
    elif small:
        word = "in favor" if ours.value > 0 else "against"
    elif math.isnan(pvalue) or pvalue > LEVEL:
        word = "undecided"
    else:
        word = "holds" if ours.value > 0 else "fails"
    return {
        "claim": claim.text,
        "table": claim.table,
        "mean": ours.value,
        "low": ours.low,
        "high": ours.high,
        "n_runs": len(runs),
        "pvalue": None if small else pvalue,
        "verdict": word,
    }

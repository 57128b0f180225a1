"""Tests of records of results, and of the pages made of them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json

import pytest

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import _command
from benchmarks.reproduce._jobs import load_paper
from benchmarks.reproduce._paper_tables import paper_table
from benchmarks.reproduce.record import RESULTS, load_record, page, record

PLACE = {"table": "2", "row": "MNIST/KNN", "column": "notMNIST/AUROC"}


def cell(value=0.91, n_runs=3, **changes):
    """Return a cell as `compare_cells` makes it."""
    ours = {"value": value, "low": value - 0.01, "high": value + 0.01, "spread": 0.004}
    entry = PLACE | ours | {"n_runs": n_runs, "n_unable": 0, "verdict": "worse"}
    return entry | changes


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a folder of results, and returns it."""

    def write(name, *cells, skipped=(), claims=(), small=False, n_seeds=3):
        out = tmp_path / name
        out.mkdir()
        content = {"paper": "franc", "small": small, "cells": cells}
        content |= {"claims": claims, "skipped": dict(skipped), "absent": {}}
        (out / "cells.json").write_text(json.dumps(content))
        about = {"date": "2026-11-28", "device": "cpu", "skood": "0.2"}
        (out / "environment.json").write_text(json.dumps(about))
        rows = [
            {
                **{"table": "2", "row": "MNIST/KNN", "seed": seed, "seconds": 30.0},
                "experiment": "MNIST against notMNIST",
            }
            for seed in range(n_seeds)
        ]
        rows.append(rows[-1] | {"seconds": 60.0})  # computed again
        (out / "records.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return out

    return write


def test_more_runs_replace_fewer(write, tmp_path):
    folder = tmp_path / "results"
    other = {"column": "notMNIST/OSCR"}
    record(write("a", cell(0.91), cell(0.5, 5, **other)), folder)
    record(write("b", cell(0.92, 4), cell(0.6, 4, **other), n_seeds=4), folder)
    content = load_record("franc", folder)
    assert [(c["value"], c["n_runs"]) for c in content["cells"]] == [
        (0.92, 4),
        (0.5, 5),
    ]
    (run,) = content["runs"]
    assert (run["seeds"], run["minutes"]) == ([0, 1, 2, 3], 2.5)
    before = (folder / "franc.json").read_bytes()
    record(tmp_path / "a", folder)  # nothing changes
    assert (folder / "franc.json").read_bytes() == before


def test_five_significant_digits(write, tmp_path):
    record(write("a", cell(0.123456789, low=float("nan"))), tmp_path)
    (entry,) = load_record("franc", tmp_path)["cells"]
    assert (entry["value"], entry["low"]) == (0.12346, None)


def test_page_has_the_cells_of_the_record(write, tmp_path):
    """Both recipes next to the printed cell; too few runs, or none, are not shown."""
    printed = cell(0.93, recipe="printed", verdict="agrees")
    unable = cell(float("nan"), 1, n_unable=2, column="notMNIST/common FPR")
    few = cell(0.7, 2, row="MNIST/MSP")
    claim = {"claim": "A claim", "table": "2", "mean": 0.1, "low": 0.05, "high": 0.15}
    claim |= {"n_runs": 3, "pvalue": 0.0123, "verdict": "holds"}
    reason = "Table 2, CIFAR-10: no files of cifar10"
    out = write("a", cell(), printed, unable, few, claims=[claim])
    record(out, tmp_path)
    lines = page("franc", tmp_path)
    value = (
        paper_table("franc", "2")
        .query("row == 'MNIST/KNN' and column == 'notMNIST/AUROC'")
        .value.item()
    )
    assert '"row","source","notMNIST/AUROC","notMNIST/common FPR"' in lines
    assert f'"MNIST/KNN","paper","{value:g}",""' in lines
    assert '"MNIST/KNN","printed recipe","0.9300 ± 0.0100 =",""' in lines
    assert '"MNIST/KNN","ours","0.9100 ± 0.0100 ↓","unable' in lines
    assert "MNIST/MSP" not in lines
    assert '"A claim","ours","holds","0.1 [0.05, 0.15]","0.012","3"' in lines
    assert '"MNIST against notMNIST","ours","3","2026-11-28","cpu","2"' in lines
    assert reason not in lines
    skipped = {"densities": "Table 1, fig-1, densities: no package x"}
    record(write("b", cell(), skipped=skipped), tmp_path)
    assert '"1","Table 1, fig-1, densities: no package x"' in page("franc", tmp_path)
    # a table is absent if all of its experiments are
    names = [e.name for e in load_paper("franc").experiments if "2" in e.tables]
    absent = "mnist: There is no /home/me/data/mnist; notmnist: There is no ..."
    skipped = dict.fromkeys(names, f"Table 2: no files of {absent}")
    other = cell() | {"table": "1"}
    record(write("c", other, skipped=skipped), tmp_path / "other")
    assert '"2","no files of mnist, notmnist"' in page("franc", tmp_path / "other")
    del skipped[names[0]]
    record(write("d", other, skipped=skipped), tmp_path / "fewer")
    assert '"2","see ``reproduce franc 2' in page("franc", tmp_path / "fewer")


def test_small_versions_are_no_results(write, tmp_path):
    with pytest.raises(ValueError, match="small versions, which are no results"):
        record(write("a", cell(), small=True), tmp_path)


def test_recorded_files():
    """What is in the repository has all columns, and little text."""
    assert sum(path.stat().st_size for path in RESULTS.glob("*.json")) <= 1_000_000
    for path in RESULTS.glob("*.json"):
        content = load_record(path.stem)
        assert content["cells"] and content["runs"]
        for entry in content["cells"]:
            assert entry["n_runs"] >= 1 and entry["recipe"] in ("ours", "printed")
        assert page(path.stem).count("csv-table") >= 2


def test_recorded_minutes_are_listed(write, tmp_path, monkeypatch):
    record(write("a", cell()), tmp_path)
    content = load_record("franc", tmp_path)
    monkeypatch.setattr("benchmarks.reproduce.record.load_record", lambda name: content)
    lines = "\n".join(_command.listing(_command.load_paper("franc"), None, False))
    assert "MNIST against notMNIST, 3 runs, 0.67 minutes a run, recorded" in lines

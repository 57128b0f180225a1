"""Tests of ``skood compare``: its result, and every error about files as one line."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import builtins
import json
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import skood.detectors
from skood.benchmark._cli import main, make_parser

FAST = "--classifier logistic --detectors MSP,Mahalanobis --quiet"


def _table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(n, 2)), columns=["height", "width"])
    table["color"] = rng.choice(["blue", "red"], n)
    table["day"] = np.array(["2020-01-01", "2020-02-03", "2021-12-31"])[
        np.arange(n) % 3
    ]
    table.loc[::9, "width"] = np.nan
    table.loc[5, "color"] = None
    return table, np.where(table["height"] > 0, "tall", "short")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with id.csv and ood.csv, the current one."""
    monkeypatch.chdir(tmp_path)
    table, kind = _table()
    table.assign(kind=kind).to_csv("id.csv", index=False)
    _table(40, 1)[0].assign(height=5.0).to_csv("ood.csv", index=False)
    return tmp_path


def _run(line):
    return main(["compare", *line.split()])


def _error(line, capsys):
    assert _run(f"{line} {FAST} --out out") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("skood: error: ")
    return err.removeprefix("skood: error: ")


def test_page_and_table(files, capsys):
    """Two sets of OOD samples; the label in one, and another order of columns."""
    table, kind = _table(50, 2)
    table = table.assign(kind=kind, color="pink", day="2020-01-01")
    table[table.columns[::-1]].to_csv("pink.csv", index=False)
    line = f"--id id.csv --label kind --ood ood.csv --ood pink.csv {FAST} --out out"
    assert _run(line) == 0
    out, _ = capsys.readouterr()
    assert out.startswith("120 ID samples of 2 classes, 3 columns of numbers and 1 of ")
    assert out.endswith("written to out: report.html, table.csv\n")
    page = (files / "out" / "report.html").read_text()
    actual = pd.read_csv(files / "out" / "table.csv").query("metric == 'auroc'")
    assert list(actual["ood"].unique()) == ["ood", "pink"]
    for name, value in zip(actual["detector"], actual["value"], strict=True):
        assert f">{name}</th>" in page
        assert f"{value:.3f}" in page
        assert f"{value:.3f}" in out
    values = actual.set_index(["detector", "ood"])["value"]
    assert values["Mahalanobis"].min() > 0.95
    assert set(actual["n_id"]) == {36}
    again = line.replace("--out out", "--out again")
    assert _run(again) == 0
    seconds = ["fit_seconds", "score_seconds", "network_seconds"]
    pd.testing.assert_frame_equal(
        pd.read_csv("again/table.csv").drop(columns=seconds),
        pd.read_csv("out/table.csv").drop(columns=seconds),
    )


def test_arrays_and_custom_classifier(files, capsys):
    """Labels -1 and 1, and a classifier from a module in the current folder."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    np.savez("id.npz", X=X, y=np.where(X[:, 0] > 0, 1, -1))
    X_ood = rng.normal((0, 4, 0), size=(60, 3))
    np.savez("ood.npz", X=X_ood)
    (files / "own_model.py").write_text(
        "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB()\n"
    )
    line = "--id id.npz --ood ood.npz --classifier own_model:model --out out --quiet"
    assert _run(f"{line} --detectors KNN,Energy --test 0.5 --seed 3") == 0
    assert "GaussianNB on held-out samples: 0.9" in capsys.readouterr().out
    actual = pd.read_csv("out/table.csv").query("metric == 'auroc'")
    value = actual.set_index("detector")["value"]["KNN"]
    assert actual["n_id"].iloc[0] == 100
    distance = np.linalg.norm(np.r_[X, X_ood], axis=1)
    expected = roc_auc_score(np.arange(260) >= 200, distance)
    assert value == pytest.approx(expected, abs=0.05)


def test_parquet(files):
    pytest.importorskip("pyarrow")
    table, kind = _table()
    table["day"] = pd.to_datetime(table["day"])
    table["color"] = table["color"].astype("category")
    table.assign(kind=kind).to_parquet("id.parquet")
    table.assign(width=table["width"] + 9).to_parquet("ood.parquet")
    line = f"--id id.parquet --label kind --ood ood.parquet {FAST} --out out"
    assert _run(line) == 0
    actual = pd.read_csv("out/table.csv").query("metric == 'auroc'")
    assert actual.set_index("detector")["value"]["Mahalanobis"] > 0.9


def test_parquet_without_pyarrow(files, monkeypatch, capsys):
    def read(path):
        raise ImportError("Unable to find a usable engine")

    monkeypatch.setattr(pd, "read_parquet", read)
    (files / "id.parquet").write_bytes(b"")
    assert _error("--id id.parquet --label kind --ood ood.csv", capsys) == (
        "id.parquet: pandas reads parquet files by pyarrow, which is not installed: "
        "pip install pyarrow. Or save the table as a CSV file.\n"
    )


def test_without_pandas(files, monkeypatch, capsys):
    plain = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "pandas":
            raise ImportError(name)
        return plain(name, *args, **kwargs)

    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr(builtins, "__import__", without)
    text = _error("--id id.csv --label kind --ood ood.csv", capsys)
    assert text.startswith("skood compare needs pandas, which is not installed: pip")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("idd.csv", "idd.csv is not a file; similar: id.csv"),
        ("no/id.csv", "no/id.csv is not a file."),
        ("id.xlsx", "id.xlsx has the suffix '.xlsx'; tables are read"),
        ("id.csv --label kinds", "id.csv has no column 'kinds' of labels; simila"),
        (
            "id.csv --label zzz",
            "id.csv has no column 'zzz' of labels; there are: height, width, color, ",
        ),
        ("semicolons.csv", "semicolons.csv has no column 'kind' of"),
        ("id.csv --drop hight", "id.csv has no column 'hight' to dro"),
        ("id.csv --label height", "There are 120 different values in 120 rows of "),
        ("one.csv", "All rows of the label column 'kind' of one.csv "),
        ("alone.csv", "The classes odd of the label column 'kind' of"),
        ("holes.csv", "1 of 120 rows of the label column 'kind' of h"),
        ("few.csv", "few.csv has 3 rows; at least 10 are needed to f"),
        ("text.csv", "text.csv has no numeric columns next to the lab"),
        (
            "constant.csv",
            "Columns of constant.csv have a single value or none: same, none. "
            "Detectors learn nothing from them; leave them out: --drop same,none",
        ),
        ("infinite.csv", "The column 'height' of infinite.csv must h"),
        ("broken.csv", "broken.csv cannot be read as a .csv file: "),
        ("empty.csv", "empty.csv cannot be read as a .csv file: No c"),
        ("broken.npz", "broken.npz cannot be read as a .npz file: "),
        ("other.npz", "other.npz cannot be read as a .npz file: it has the arrays "),
        ("images.npz", "images.npz cannot be read as a .npz file: X must have two "),
    ],
)
def test_bad_id_files(options, text, files, capsys):
    table, kind = _table()
    table = table.assign(kind=kind)
    table.to_csv("semicolons.csv", sep=";", index=False)
    table.assign(kind="tall").to_csv("one.csv", index=False)
    table.assign(kind=np.where(table.index == 3, "odd", kind)).to_csv("alone.csv")
    table.assign(kind=table["kind"].where(table.index > 0)).to_csv("holes.csv")
    table[:3].to_csv("few.csv")
    table[["color", "kind"]].to_csv("text.csv", index=False)
    table.assign(same=1, none=np.nan).to_csv("constant.csv", index=False)
    table.assign(height=table["height"].where(table.index > 0, np.inf)).to_csv(
        "infinite.csv", index=False
    )
    (files / "broken.csv").write_bytes(b"a,b\n\xff\xfe\x00,1\n")
    (files / "empty.csv").write_bytes(b"")
    (files / "broken.npz").write_bytes(b"not an archive")
    np.savez("other.npz", data=np.eye(3))
    np.savez("images.npz", X=np.zeros((12, 2, 2)), y=np.arange(12) % 2)
    is_labeled = "label" in options or options.endswith("npz")
    label = "" if is_labeled else " --label kind"
    actual = _error(f"--id {options}{label} --ood ood.csv", capsys)
    assert actual.startswith(text)
    assert not (files / "out").exists()
    if "semicolons" in options:
        assert actual.endswith(
            "Columns must be separated by commas, or by tabs in a .tsv file.\n"
        )


def test_id_file_without_a_label(files, capsys):
    text = _error("--id id.csv --ood ood.csv", capsys)
    assert text.startswith(
        "The column of id.csv with the classes is needed: --label COL"
    )
    assert not (files / "out").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("odd.csv", "odd.csv is not a file; similar: ood.csv"),
        (
            "columns.csv",
            "columns.csv must have the columns of id.csv, but it has no width, and "
            "also breadth. Rename columns, or leave some out by --drop.",
        ),
        ("words.csv", "The column 'height' of words.csv must hold numbers, as in "),
        ("dates.csv", "The column 'day' of dates.csv must hold dates, as in id.c"),
        ("none.csv", "none.csv has no rows: OOD samples are needed."),
        ("ood.csv --ood ood.csv", "A file is given twice as OOD samples: ood.csv"),
        ("ood.csv --classifier svm", "--classifier must be one of boosting, fore"),
        ("ood.csv --classifier nope:x", "--classifier nope:x cannot be imported:"),
        ("ood.csv --classifier math:nope", "--classifier math:nope cannot be imp"),
        ("ood.csv --classifier builtins:list", "--classifier builtins:list must "),
        ("ood.csv --detectors MSP,Nope", "--detectors must be names of skood.det"),
    ],
)
def test_bad_ood_files_and_names(options, text, files, capsys):
    table = pd.read_csv("ood.csv")
    table.rename(columns={"width": "breadth"}).to_csv("columns.csv", index=False)
    table.assign(height="tall").to_csv("words.csv", index=False)
    table.assign(day="monday").to_csv("dates.csv", index=False)
    table[:0].to_csv("none.csv", index=False)
    assert _run(f"--id id.csv --label kind --out out --quiet --ood {options}") == 2
    actual = capsys.readouterr().err
    assert actual.startswith(f"skood: error: {text}")
    assert not (files / "out").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--out c", "the following arguments are required: --ood"),
        ("--ood b", "the following arguments are required: --out"),
        ("--ood b --out c --test 1", "argument --test: must be between 0 and 1"),
        ("--ood b --out c --drop a,a", "argument --drop: must be distinct names"),
        ("--ood b --out c --detectors=", "argument --detectors: must be distinc"),
    ],
)
def test_bad_arguments(options, text, capsys):
    with pytest.raises(SystemExit):
        _run(f"--id a {options}")
    err = capsys.readouterr().err
    assert err.startswith(f"skood: error: {text}")
    assert err.endswith(" (see skood compare --help)\n")


def test_default_detectors_exist():
    defaults = make_parser("compare").parse_args(
        ["--id", "a", "--ood", "b", "--out", "c"]
    )
    assert set(defaults.detectors) <= set(skood.detectors.__all__)
    assert json.dumps(vars(defaults))

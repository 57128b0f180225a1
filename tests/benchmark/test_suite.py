"""Tests of the offline suite: its parts, what it writes, and that it goes on."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import csv
import errno
import json
import os
import sys
import time
from functools import partial
from itertools import chain

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Bunch

from skood.benchmark import _cli, _suite
from skood.benchmark._cli import main
from skood.benchmark._inputs import METRICS
from skood.benchmark._suite import PARTS
from skood.detectors import KNN, MSP
from skood.metrics import Resampling
from skood.utils._metaestimators import n_rows
from tests._forks import forks
from tests.benchmark.conftest import kill_after


def barely_trained(make):
    return lambda **params: make(**params | {"max_epochs": 1})


@pytest.fixture
def untrained(monkeypatch):
    """Networks of one epoch."""
    for name in ("TorchClassifier", "GraphClassifier"):
        monkeypatch.setattr(_suite, name, barely_trained(getattr(_suite, name)))


@pytest.mark.parametrize("name", PARTS)
def test_parts(name, untrained):
    subset = PARTS[name](3)
    assert len(subset.detectors) >= 6
    assert sorted(subset.groups) == ["far", "near"]
    assert sorted(chain(*subset.groups.values())) == sorted(subset.ood)
    assert n_rows(subset.X) == len(subset.y) >= 60
    for X in subset.ood.values():
        assert n_rows(X) >= 12
    again = PARTS[name](3)
    other = PARTS[name](2**32 - 1)
    for ood in subset.ood:
        if isinstance(subset.ood[ood], np.ndarray):
            assert_array_equal(subset.ood[ood], again.ood[ood])
            assert subset.ood[ood].shape[1:] == subset.X.shape[1:]
    if name != "concepts":  # all rows are ID rows there, whatever the seed
        assert not np.array_equal(subset.y, other.y)
    networks = {
        id(detector.estimator.estimator)
        for detector in subset.detectors.values()
        if isinstance(getattr(detector, "estimator", None), FrozenEstimator)
    }
    assert len(networks) == (0 if name == "concepts" else 1)


def test_odd_tables():
    Z = np.random.default_rng(0).normal(size=(200, 30))
    tables = _suite._odd_tables(Z, np.random.default_rng(1))
    assert_array_equal(np.sort(tables["shuffled"], axis=0), np.sort(Z, axis=0))
    is_zero = tables["coarse"] == 0
    assert is_zero.mean() == pytest.approx(1 / 3, abs=0.02)
    assert_array_equal(tables["coarse"][~is_zero], Z[~is_zero])
    changed = (tables["converted"] != Z).all(axis=0)
    assert changed.sum() == 10
    assert_array_equal(tables["converted"][:, ~changed], Z[:, ~changed])


def test_concepts_tell_the_class():
    rng = np.random.default_rng(0)
    X, concepts = rng.normal(size=(40, 3)), np.arange(80).reshape(40, 2) % 4
    wrapped = _suite._OfClasses(KNN(n_neighbors=3)).fit(X, concepts)
    assert_array_equal(wrapped.detector_.classes_, [0, 2])
    assert_array_equal(wrapped.score_samples(X), wrapped.detector_.score_samples(X))


def small(seed):
    """A part that is run at once."""
    rng = np.random.RandomState(seed % 1000)
    X = rng.normal(size=(40, 2))
    return _suite.SuitePart(
        "Small <part>",
        "Of few rows.",
        {"knn": KNN(n_neighbors=2), "msp": MSP()},
        X,
        np.arange(40) % 2,
        {"a": X + 5, "b": X - 9},
        {"far": ["b"]},
    )


@pytest.fixture
def parts(monkeypatch):
    calls = []

    def made(seed):
        calls.append(seed)
        return small(seed)

    monkeypatch.setattr(_suite, "PARTS", {"one": made, "two": made})
    few = partial(_suite.run_comparison, resampling=Resampling(49))
    monkeypatch.setattr(_suite, "run_comparison", few)
    return calls


def test_what_is_written(parts, tmp_path):
    text = _suite.run_suite(tmp_path / "new", ["two", "one"], seed=5)
    assert parts == [5, 5]
    assert [line.split(":")[0] for line in text.split("\n")] == ["two", "one"]
    assert text.startswith("two:      auroc knn 1.")
    folder = tmp_path / "new"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["benchmark.csv", "benchmark.json", "cells", "report.html"]
    with (folder / "benchmark.csv").open(encoding="utf-8") as file:
        entries = list(csv.DictReader(file))
    assert len(entries) == 2 * 2 * 3 * len(
        METRICS
    )  # parts, detectors, sets and a group
    content = json.loads((folder / "benchmark.json").read_text("utf-8"))
    assert (content["seed"], content["repeats"]) == (5, 1)
    flat = [
        {"part": name, **row}
        for name in ("two", "one")
        for row in content["parts"][name]["rows"]
    ]
    assert [{k: str(v) for k, v in row.items()} for row in flat] == entries
    assert content["parts"]["one"]["sets"] == {"a": 40, "b": 40}
    page = (folder / "report.html").read_text("utf-8")
    command = f"skood benchmark --out {folder} --suite two,one --seed 5 --repeats 1"
    top = page.split("<details")[0]
    assert f"<dt>Command</dt><dd>{command}</dd>" in top
    assert "<dt>Seed</dt><dd>5</dd>" in top
    assert top.count("<b>Small &lt;part&gt;:</b>") == 2
    for i in range(2):
        assert f'id="part-{i}"><h2>Small &lt;part&gt;</h2>\n<p>Of few rows.</p>' in page
        assert f'<a href="#part-{i}">Small &lt;part&gt;</a>' in page
    best = text.split()[3].rstrip(",")
    assert page.count(f">knn (AUROC ↑ {best})<") == 2
    cells = (folder / "cells" / "cells.jsonl").read_text()
    assert cells.count("\n") == 2 * 3  # both parts are the same one


def test_jobs_and_repeats(parts, tmp_path, capsys):
    from joblib import parallel_config

    alone = _suite.run_suite(tmp_path / "a", repeats=2)
    with parallel_config(backend="threading"):
        together = _suite.run_suite(tmp_path / "b", repeats=2, n_jobs=2, verbose=1)
    assert together == alone
    assert "parts: " in capsys.readouterr().err
    entries = json.loads((tmp_path / "b" / "benchmark.json").read_text())["parts"][
        "one"
    ]
    assert entries["settings"]["repeats"] == 2
    assert entries["rows"][0]["std"] >= 0


FITS: list = []


class Numbered(BaseEstimator):
    """A detector that notes its fits; number 2 waits in scoring on request."""

    wait = 0

    def __init__(self, number):
        self.number = number

    def fit(self, X, y):
        FITS.append(self.number)
        return self

    def score_samples(self, X):
        if self.number == 2:
            time.sleep(Numbered.wait)
        return -np.abs(X[:, 0] - self.number)


@forks
def test_killed(tmp_path, monkeypatch):
    def part(seed):
        X = np.random.RandomState(0).normal(size=(40, 2))
        many = {str(i): Numbered(i) for i in range(4)}
        return _suite.SuitePart("t", "", many, X, np.arange(40) % 2, {"a": X + 5})

    monkeypatch.setattr(_suite, "PARTS", {"one": part})
    run = partial(_suite.run_suite, tmp_path)
    journal = tmp_path / "cells" / "cells.jsonl"
    monkeypatch.setattr(Numbered, "wait", 60)
    kill_after(4, journal, run)
    finished = journal.read_bytes()
    assert not (tmp_path / "report.html").exists()
    monkeypatch.setattr(Numbered, "wait", 0)
    run()
    assert FITS == [2, 3]
    assert journal.read_bytes().startswith(finished)
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.fixture
def asked(monkeypatch):
    """What the suite was run with, without running it."""
    calls = []

    def run_suite(folder, names, **params):
        calls.append(Bunch(folder=folder, names=names, **params))
        return "digits:   auroc KNN 0.9"

    monkeypatch.setattr(_suite, "run_suite", run_suite)
    return calls


def test_command(asked, tmp_path, capsys):
    assert main(["benchmark", "--out", str(tmp_path / "x")]) == 0
    assert asked[0] == Bunch(
        folder=tmp_path / "x", names=list(PARTS), seed=0, repeats=1, n_jobs=1, verbose=1
    )
    files = "report.html, benchmark.csv, benchmark.json"
    assert capsys.readouterr() == (
        f"digits:   auroc KNN 0.9\n\nwritten to {tmp_path / 'x'}: {files}\n",
        "",
    )
    line = f"benchmark --out {tmp_path} --suite graph,digits --seed 7 --repeats 3"
    assert main([*line.split(), "--jobs", "2", "--quiet"]) == 0
    assert asked[1] == Bunch(
        folder=tmp_path,
        names=["graph", "digits"],
        seed=7,
        repeats=3,
        n_jobs=2,
        verbose=0,
    )


def test_arguments_of_the_process(asked, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["skood", "benchmark", "--out", str(tmp_path)])
    assert main() == 0
    assert len(asked) == 1


def test_out_that_is_a_file(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["benchmark", "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith("skood: error: [Errno 17] File exists")


def test_names_of_parts():
    assert tuple(PARTS) == _cli.PARTS


@pytest.mark.skipif(
    "SKOOD_NIGHTLY" not in os.environ, reason="SKOOD_NIGHTLY is not set"
)
def test_whole_suite(tmp_path):
    """It takes less than a minute of computing, and tells ID rows from OOD rows."""
    start = time.process_time()
    assert main(["benchmark", "--out", str(tmp_path), "--quiet"]) == 0
    assert time.process_time() - start < 60
    actual = json.loads((tmp_path / "benchmark.json").read_text())["parts"]
    for subset in actual.values():
        entries = [
            r for r in subset["rows"] if (r["metric"], r["ood"]) == ("auroc", "far")
        ]
        assert max(row["value"] for row in entries) > 0.75


def test_file_that_is_a_folder(parts, tmp_path, capsys):
    """It is found before the work."""
    path = tmp_path / "benchmark.json"
    path.mkdir()
    assert main(["benchmark", "--out", str(tmp_path), "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"skood: error: {path} is a folder, and a file of this name")
    assert out == "" and os.listdir(tmp_path) == ["benchmark.json"]


def test_disk_is_full(monkeypatch, tmp_path, capsys):
    def run_suite(folder, names, **params):
        raise OSError(errno.ENOSPC, "No space left on device", "a.npz")

    monkeypatch.setattr(_suite, "run_suite", run_suite)
    assert main(["benchmark", "--out", str(tmp_path)]) == 2
    line = "skood: error: [Errno 28] No space left on device: 'a.npz'\n"
    assert capsys.readouterr() == ("", line)

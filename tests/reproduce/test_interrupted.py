"""The command killed at five points and started again, and in two processes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import os
import signal
from functools import cached_property, partial

import joblib
import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import (
    Experiment,
    Paper,
    Row,
    _command,
    _jobs,
    _page,
    _run,
    reproduce,
)
from skood.benchmark import Journal
from skood.nn import TorchClassifier
from tests._forks import forked, forks

ROWS = ("mean", "spread", "largest")


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


class Parts:
    """A small network, its features, and numbers of them; ``log`` has what was done."""

    log = None

    def __init__(self, run, seed):
        self.run, self.seed = run, seed
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(40, 3)).astype(np.float32)
        self.y = (self.X[:, 0] > 0).astype(int)

    def done(self, text):
        with self.log.open("a") as file:
            file.write(f"{text} {self.seed}\n")

    def train(self):
        made = TorchClassifier(
            lambda input_shape, n_classes: self.module(),
            max_epochs=2,
            random_state=self.seed,
        ).fit(self.X, self.y)
        self.done("trained")
        return made

    @staticmethod
    def module():
        return torch.nn.Sequential(
            *(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        )

    @cached_property
    def features(self):
        stored = self.run.network(
            "net",
            train=self.train,
            module=self.module,
            classes=[0, 1],
            depends=("net", self.seed),
        )

        def load():
            self.done("loaded")
            return self.X, self.y

        return self.run.features(stored, "X", load)

    def values(self, name):
        Z = self.features.Z
        self.done(name)
        return {"all": {"mean": Z.mean(), "spread": Z.std(), "largest": Z.max()}[name]}


def table(parts):
    for name in ROWS:
        yield Row(name, partial(parts.values, name))


PAPER = Paper("franc", "Tiny", [Experiment("e", Parts, {"x": table}, seeds=2)], [])


def during_training(patch):
    """In the second network, after its first epoch."""
    steps, step = [], torch.optim.Adam.step

    def stop(*args, **kwargs):
        steps.append(0)
        return kill() if len(steps) > 3 else step(*args, **kwargs)

    patch(torch.optim.Adam, "step", stop)


def between_rows(patch):
    add = Journal.add

    def stop(journal, key, **record):
        add(journal, key, **record)
        if record["row"] == "spread":
            kill()

    patch(Journal, "add", stop)


def in_the_journal(patch):
    """Half of a line is written."""

    def stop(journal, line):
        if b'"spread"' not in line:
            return append(journal, line)
        append(journal, line[: len(line) // 2])
        return kill()

    append = Journal._append
    patch(Journal, "_append", stop)


def in_the_features(patch):
    def stop(file, **arrays):
        file.write(b"PK half of a file")
        file.flush()
        kill()

    patch(_run.np, "savez", stop)


def in_the_report(patch):
    """The page is there, a part of the table is not."""
    replacing = _run.replacing

    def stop(path):
        if path.name == "cells.json":
            (path.parent / ".cells.json.0").write_text('{"paper"')
            kill()
        return replacing(path)

    patch(_page, "replacing", stop)


POINTS = {
    during_training: ["trained 0", "loaded 0", *(f"{name} 0" for name in ROWS)],
    between_rows: ["trained 0", "loaded 0", "mean 0", "spread 0"],
    in_the_journal: ["trained 0", "loaded 0", "mean 0", "spread 0"],
    in_the_features: ["trained 0", "loaded 0"],
    in_the_report: [
        f"{what} {seed}" for seed in (0, 1) for what in ("trained", "loaded", *ROWS)
    ],
}
ALL = POINTS[in_the_report]
# What was done, but not stored when the process was killed, is done again.
AGAIN = {in_the_journal: ["spread 0"], in_the_features: ["loaded 0"]}


def command(out):
    return _command.main(
        ["franc", "x", "--quiet", "--device", "cpu", "--out", str(out)]
    )


@pytest.fixture
def log(tmp_path, monkeypatch):
    for module in (_command, _jobs):
        monkeypatch.setattr(module, "load_paper", lambda name: PAPER)
    monkeypatch.setattr(Parts, "log", tmp_path / "log")
    return tmp_path / "log"


@forks
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__)
def test_killed_command_continues(tmp_path, log, monkeypatch, point):
    """What was finished is not done again, and all values are equal."""

    def killed():
        point(setattr)
        command(tmp_path / "killed")

    assert forked(killed) == -signal.SIGKILL
    before = log.read_text().split("\n")[:-1]
    assert before == POINTS[point]
    assert not (tmp_path / "killed" / "cells.json").exists()
    assert command(tmp_path / "killed") == 0
    after = log.read_text().split("\n")[len(before) : -1]
    assert sorted(after) == sorted(
        {*ALL} - {*before} | {*AGAIN.get(point, ())},
    )
    monkeypatch.setattr(Parts, "log", tmp_path / "other")
    assert command(tmp_path / "whole") == 0
    actual, expected = (
        json.loads((tmp_path / name / "cells.json").read_text())
        for name in ("killed", "whole")
    )
    assert actual == expected
    assert command(tmp_path / "killed") == 0
    assert log.read_text().split("\n")[:-1] == before + after


@forks
def test_two_processes(tmp_path, log):
    """Cells and journal are of one process, and nothing is done twice."""
    with joblib.parallel_config(backend="multiprocessing"):
        two = reproduce("franc", out=tmp_path / "two", device="cpu", jobs=2)
    assert sorted(log.read_text().split("\n")[:-1]) == sorted(ALL)
    one = reproduce(PAPER, out=tmp_path / "one", device="cpu")
    pd.testing.assert_frame_equal(two.cells, one.cells)
    keys = [
        sorted(
            json.loads(line)["key"]
            for line in (tmp_path / name / "records.jsonl").read_text().splitlines()
        )
        for name in ("one", "two")
    ]
    assert keys[0] == keys[1] and len(set(keys[0])) == 2 * len(ROWS)
    log.unlink()
    reproduce(PAPER, out=tmp_path / "two", device="cpu")  # one process goes on
    assert not log.exists()

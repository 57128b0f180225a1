"""Tests of the files that outlive an interruption: outputs, and finished cells."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from skood.benchmark._cells import (
    Journal,
    ScoreJournal,
    _save,
    network_outputs,
    read_arrays,
    write_arrays,
)
from skood.detectors import KNN, ODIN, SSD, Energy, ViM
from skood.exceptions import SkoodWarning
from skood.nn import pretrained
from tests.benchmark.conftest import compared

RNG = np.random.RandomState(0)
X = RNG.normal(size=(40, 3)).astype(np.float32)
Y = np.arange(40) % 2


class Counted:
    """A network that counts the rows that it is run on."""

    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.module = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
        )
        self.n_rows = 0
        self.module.register_forward_hook(self.count)
        self.classifier = pretrained(self.module)
        _ = self.classifier.predict(X)  # finds out what it has to
        self.n_rows = 0

    def count(self, module, args, output):
        self.n_rows += len(output)


def scores(detector, X, folder):
    with network_outputs([detector], folder) as read:
        assert read(X) >= 0
        return detector.score_samples(X)


def test_file_is_whole_or_not_there(tmp_path, monkeypatch):
    path = tmp_path / "new" / "a.npz"
    assert read_arrays(path, "x") is None
    write_arrays(path, x=X, y=Y)
    assert_array_equal(read_arrays(path, "y", "x")[1], X)

    def broken(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="disk full"):
        write_arrays(path, x=X + 1)
    assert_array_equal(read_arrays(path, "x")[0], X)
    assert [actual.name for actual in path.parent.iterdir()] == ["a.npz"]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", ""),
        (b"PK\x03\x04 nonsense", ""),
        (b"not a file of arrays", ""),
        ({"x": np.array([print], dtype=object)}, ": ValueError: Object arrays"),
        ({"y": X}, ": KeyError"),
    ],
)
def test_broken_file(tmp_path, content, message):
    path = tmp_path / "a.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.savez(path, **content)
    message = f"cannot be read and is computed anew{message}"
    with pytest.warns(SkoodWarning, match=message):
        assert read_arrays(path, "x") is None


def test_network_runs_once_for_all():
    net = Counted()
    detectors = [Energy(net.classifier), KNN(net.classifier, n_neighbors=3)]
    expected = [d.fit(X, Y).score_samples(X) for d in detectors]
    net.n_rows = 0
    with network_outputs(detectors, None) as read:
        read(X)
        assert net.n_rows == 40
        assert_array_equal([d.fit(X, Y).score_samples(X) for d in detectors], expected)
    assert net.n_rows == 40
    detectors[0].score_samples(X)  # outside of the block it runs again
    assert net.n_rows == 80


@pytest.mark.parametrize(
    "make", [Energy, partial(KNN, n_neighbors=3), partial(ViM, n_components=2)]
)
def test_network_does_not_run_again(tmp_path, make):
    net = Counted()
    detector = make(net.classifier).fit(X, Y)
    expected = detector.score_samples(X)
    net.n_rows = 0
    assert_array_equal(scores(detector, X, tmp_path), expected)
    assert net.n_rows == 40
    again = Counted()  # another network of the same weights, as in a new process
    detector = make(again.classifier)
    with network_outputs([detector], tmp_path):
        assert_array_equal(detector.fit(X.copy(), Y).score_samples(X), expected)
    assert again.n_rows == 0


def test_what_another_file_is_for(tmp_path):
    def rows_run(net, X=X, make=Energy):
        detector = make(net.classifier).fit(X, Y)
        net.n_rows = 0
        scores(detector, X, tmp_path)
        return net.n_rows

    assert rows_run(Counted()) == 40
    assert rows_run(Counted()) == 0
    assert rows_run(Counted(seed=1)) == 40
    assert rows_run(Counted(), X + np.float32(1e-3)) == 40
    assert rows_run(Counted(), make=partial(KNN, n_neighbors=3)) == 40  # features
    net = Counted()
    with torch.no_grad():
        net.module[0].bias[1] += 1e-3
    assert rows_run(net) == 40


def test_detector_that_runs_the_network_itself(tmp_path):
    detector = ODIN(Counted().classifier).fit(X)
    expected = detector.score_samples(X)
    assert_array_equal(scores(detector, X, tmp_path), expected)
    assert not list(tmp_path.iterdir())


def test_tensors_stay_where_they_are(tmp_path):
    _save(tmp_path / "a.npz", "features", torch.ones(2))
    assert not list(tmp_path.iterdir())


def test_broken_outputs_are_computed_anew(tmp_path):
    net = Counted()
    detector = Energy(net.classifier).fit(X)
    expected = scores(detector, X, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    with pytest.warns(SkoodWarning, match="cannot be read and is computed anew"):
        assert_array_equal(scores(detector, X, tmp_path), expected)
    assert_array_equal(scores(detector, X, tmp_path), expected)


def test_scikit_learn_network(tmp_path):
    head = FrozenEstimator(LogisticRegression().fit(X, Y))
    detector = ViM(head).fit(X, Y)
    expected = detector.score_samples(X)
    for _ in range(2):
        assert_array_equal(scores(detector, X, tmp_path), expected)
    assert len(list(tmp_path.iterdir())) > 0


def test_error_is_that_of_the_detector(tmp_path):
    detector = Energy(Counted().classifier).fit(X)
    with network_outputs([detector], tmp_path) as read:
        read(X[:, :2])
        with pytest.raises((RuntimeError, ValueError)):
            detector.score_samples(X[:, :2])


SECONDS = {"fit_seconds": 1.0, "score_seconds": 0.5, "network_seconds": 0.0}


def test_records(tmp_path):
    """A later record replaces an earlier one; records of others wait for a new read."""
    path = tmp_path / "new" / "folder" / "results.jsonl"
    journal, other = Journal(path), Journal(path)
    assert not path.exists()
    journal.add("a", value=1.5, names=["x"])
    other.add("b", value=None)
    journal.add("a", value=2.5)
    assert journal.get("a") == {"key": "a", "value": 2.5}
    assert journal.get("b") is other.get("a") is None
    assert Journal(path).get("b") == {"key": "b", "value": None}
    assert Journal(path).get("a")["value"] == 2.5
    with pytest.raises(TypeError, match="not JSON serializable"):
        journal.add("c", value=np.ones(2))
    assert len(path.read_text().splitlines()) == 3


def test_journal(tmp_path):
    folder = tmp_path / "a" / "b"
    journal = ScoreJournal(folder)
    assert journal.get("k", 2) is None
    journal.add("k", np.array([1.0, np.inf]), detector="knn", **SECONDS)
    actual, record = ScoreJournal(folder).get("k", 2)
    assert_array_equal(actual, [1.0, np.inf])
    assert record["detector"] == "knn"
    assert ScoreJournal(folder).get("other", 2) is None


def test_journal_of_no_folder():
    journal = ScoreJournal(None)
    journal.add("k", np.ones(2), **SECONDS)
    assert journal.get("k", 2) is None


def test_line_that_broke_off(tmp_path):
    ScoreJournal(tmp_path).add("a", np.ones(2), **SECONDS)
    ScoreJournal(tmp_path).add("b", np.ones(3), **SECONDS)
    path = tmp_path / "cells.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n")
    ends = {*range(4), *range(first - 3, first + 4), *range(len(whole) - 3, len(whole))}
    for n_bytes in sorted({*range(0, len(whole), 9), *ends}):
        path.write_bytes(whole[:n_bytes])
        journal = ScoreJournal(tmp_path)
        n_lines = whole[: n_bytes + 1].count(b"\n")  # also without its line break
        assert (journal.get("a", 2) is not None) == (n_lines >= 1)
        journal.add("c", np.zeros(4), **SECONDS)
        assert_array_equal(ScoreJournal(tmp_path).get("c", 4)[0], np.zeros(4))
        assert (ScoreJournal(tmp_path).get("a", 2) is not None) == (n_lines >= 1)


def test_disk_fills_up_within_a_line(tmp_path, monkeypatch):
    """Part of a line can be written without an error."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:7]))
    with pytest.raises(OSError, match=r"No space left on device: .*cells\.jsonl"):
        ScoreJournal(tmp_path).add("a", np.ones(2), **SECONDS)
    monkeypatch.undo()
    ScoreJournal(tmp_path).add("b", np.ones(3), **SECONDS)
    assert ScoreJournal(tmp_path).get("a", 2) is None
    assert_array_equal(ScoreJournal(tmp_path).get("b", 3)[0], np.ones(3))


def test_line_that_is_no_record(tmp_path):
    lines = ["[1, 2]", "3", '{"no": "key"}', ""]
    (tmp_path / "cells.jsonl").write_text("\n".join(lines) + "\n")
    ScoreJournal(tmp_path).add("a", np.ones(2), **SECONDS)
    assert ScoreJournal(tmp_path).get("a", 2) is not None


def test_scores_that_are_not_those_of_the_line(tmp_path):
    ScoreJournal(tmp_path).add("a", np.ones(2), **SECONDS)
    write_arrays(tmp_path / "a.npz", scores=np.zeros(2))
    assert ScoreJournal(tmp_path).get("a", 2) is None
    (tmp_path / "a.npz").unlink()
    assert ScoreJournal(tmp_path).get("a", 2) is None


def test_file_of_scores_without_scores(tmp_path):
    journal = ScoreJournal(tmp_path)
    journal.add("a", np.ones(2), **SECONDS)
    write_arrays(tmp_path / "a.npz", others=np.zeros(2))
    lines = (tmp_path / "cells.jsonl").read_text().splitlines()
    record = json.loads(lines[0])
    record["sha256"] = hashlib.sha256((tmp_path / "a.npz").read_bytes()).hexdigest()
    (tmp_path / "cells.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.warns(SkoodWarning, match="KeyError"):
        assert ScoreJournal(tmp_path).get("a", 2) is None


def _resealed(folder, scores=None, **changes):
    """A journal of the cell "a", edited by somebody who made the hash fit."""
    ScoreJournal(folder).add("a", np.ones(2), **SECONDS)
    path = folder / "cells.jsonl"
    record = json.loads(path.read_text())
    if scores is not None:
        write_arrays(folder / "a.npz", scores=scores)
    record["sha256"] = hashlib.sha256((folder / "a.npz").read_bytes()).hexdigest()
    record = {k: v for k, v in (record | changes).items() if v is not Ellipsis}
    path.write_text(json.dumps(record) + "\n")
    return ScoreJournal(folder)


@pytest.mark.parametrize("value", [..., None, "1.0", True, [1.0], -1.0, np.nan, np.inf])
@pytest.mark.parametrize("name", [*SECONDS, "sha256"])
def test_line_without_a_number_or_a_hash(tmp_path, name, value):
    if name == "sha256" and isinstance(value, str):
        value = 3
    journal = _resealed(tmp_path, **{name: value})
    with pytest.warns(SkoodWarning, match=f"cell a of .* computed anew: its.*{name}"):
        assert journal.get("a", 2) is None


@pytest.mark.parametrize(
    "scores",
    [
        np.ones(3),
        np.ones((2, 1)),
        np.ones(2, dtype=np.float32),
        np.ones(2, dtype=int),
        np.array(["1.0", "2.0"]),
        np.array(1.0),
        np.array([1.0, np.nan]),
    ],
    ids=str,
)
def test_scores_that_no_detector_gives(tmp_path, scores):
    journal = _resealed(tmp_path, scores=scores)
    with pytest.warns(SkoodWarning, match="computed anew: .* scores are"):
        assert journal.get("a", 2) is None


def test_comparison_computes_cells_anew_that_were_edited(tmp_path):
    rng = np.random.default_rng(0)
    X, ood = rng.normal(size=(60, 3)), {"far": rng.normal(size=(20, 3)) + 3}
    options = {"resume": tmp_path, "n_resamples": 50, "random_state": 0}
    detectors = {"knn": KNN(n_neighbors=3), "ssd": SSD()}
    before = compared(detectors, X, None, ood=ood, **options)
    lines = (tmp_path / "cells.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    del records[0]["fit_seconds"]
    file = tmp_path / f"{records[1]['key']}.npz"
    write_arrays(file, scores=np.full(7, np.nan))
    records[1]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    edited = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "cells.jsonl").write_text(edited)
    with pytest.warns(SkoodWarning, match="computed anew") as caught:
        after = compared(detectors, X, None, ood=ood, **options)
    assert sum("computed anew" in str(each.message) for each in caught) == 2
    numbers = [name for name in before if not name.endswith("seconds")]
    assert after[numbers].equals(before[numbers])


def test_archive_that_unpacks_to_much_more(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, scores=np.zeros(2**24))  # 128 MiB in 130 kB
    assert path.stat().st_size < 2**20
    with pytest.warns(SkoodWarning, match="unpacks to .*, and at most 67108864"):
        assert read_arrays(path, "scores") is None


def test_files_of_many_writers_at_once(tmp_path):
    """Each writer has a file of its own, and the last whole one stays."""
    path = tmp_path / "a.npz"
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(write_arrays, path, scores=np.full(10**4, i)) for i in range(40)
        ]
        for job in jobs:
            job.result()
    (scores,) = read_arrays(path, "scores")
    assert len(set(scores)) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["a.npz"]

"""Tests of the program around the papers, on a paper of small numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import re
from functools import partial
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

pytest.importorskip("benchmarks.reproduce", reason="only in the source tree")

from benchmarks.reproduce import (
    Claim,
    Experiment,
    Paper,
    Row,
    _command,
    _files,
    _run,
    own_method,
    reproduce,
)
from benchmarks.reproduce._page import console, number, write
from benchmarks.reproduce._run import Run
from skood.detectors import KNN, MSP, Energy
from skood.nn import TorchClassifier
from skood.rectifiers import ReAct


class Parts:
    """Numbers in place of networks; each computed row is a line of ``log``."""

    log = None

    def __init__(self, run, seed, start=0.0):
        self.run, self.seed, self.start = run, seed, start

    def value(self, name, number):
        with self.log.open("a") as file:
            file.write(f"{name} {self.seed}\n")
        return {
            "AUROC": self.start + number + 0.1 * self.seed,
            "risk": None if name == "worst" else (1.0, 0.5, 1.5),
        }


def table_1(parts):
    for value, name in enumerate(("best", "worst", "<b>")):
        yield Row(name, partial(parts.value, name, value))
    for name, method in parts.run.methods.items():
        yield Row(name, partial(parts.value, name, 9), method)


def table_2(parts):
    yield Row("only", partial(parts.value, "only", 7))


def gain(records):
    rows = records.rows("1")
    if not {"best", "worst"} <= set(rows):
        return None
    return records.of("1", "worst", "AUROC") - records.of("1", "best", "AUROC")


def paper_of(needs=(), seeds=2, **recipe):
    main = Experiment(
        "main",
        partial(Parts, **recipe),
        {"1": table_1, "2": table_2},
        needs=needs,
        seeds=seeds,
        recipe=recipe,
    )
    claims = [Claim("The worst is better", "1", gain)]
    notes = {"1": "A <note>."}
    return Paper("tiny", "Tiny", [main], [main], claims=claims, notes=notes)


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The file with a line for each computed row."""
    monkeypatch.setattr(Parts, "log", tmp_path / "log")
    return tmp_path / "log"


def test_experiments_share_methods(tmp_path, log):
    """As where a table has a column for each data set."""

    def renamed(parts):
        for row in table_2(parts):
            compute = partial(_renamed, row.compute, f"{parts.start:g}/")
            yield row._replace(compute=compute)

    tables = {"2": renamed}
    experiments = [
        Experiment(f"{start}", partial(Parts, start=start), tables, seeds=2)
        for start in (0.0, 10.0)
    ]
    result = reproduce(Paper("tiny", "Tiny", experiments, []), out=tmp_path)
    cells = result.cells.set_index(["row", "column"]).value
    assert cells["only", "0/AUROC"] == pytest.approx(7.05)
    assert cells["only", "10/AUROC"] == pytest.approx(17.05)


def _renamed(compute, start):
    return {f"{start}{column}": value for column, value in compute().items()}


def test_cells(tmp_path, log):
    result = reproduce(paper_of(), out=tmp_path)
    assert len(log.read_text().splitlines()) == 2 * 4
    cells = result.cells.set_index(["table", "row", "column"])
    best = cells.loc["1", "best", "AUROC"]
    np.testing.assert_allclose([best.value, best.n_runs], [0.05, 2])
    half = 12.706205 * 0.1 / 2  # t(0.975; 1) sd / sqrt 2
    np.testing.assert_allclose([best.low, best.high], 0.05 + half * np.r_[-1, 1])
    assert cells.loc["1", "worst", "risk"][["n_runs", "n_unable"]].tolist() == [0, 2]
    assert set(cells.verdict) == {""}
    [claim] = result.claims
    assert (claim["verdict"], claim["mean"], claim["n_runs"]) == ("holds", 1.0, 2)


def test_interval_of_a_single_run(tmp_path, log):
    cells = reproduce(paper_of(), out=tmp_path, seeds=1).cells
    risk = cells[(cells.row == "best") & (cells.column == "risk")].iloc[0]
    assert (risk.value, risk.low, risk.high, risk.n_runs) == (1.0, 0.5, 1.5, 1)


def test_finished_methods_are_not_computed_again(tmp_path, log):
    def computed(paper, **options):
        log.unlink(missing_ok=True)
        reproduce(paper, out=tmp_path / "out", **options)
        return len(log.read_text().splitlines()) if log.exists() else 0

    assert computed(paper_of(), seeds=1) == 4
    assert computed(paper_of(), seeds=1) == 0
    assert computed(paper_of(), seeds=3) == 2 * 4
    assert computed(paper_of(start=1.0), seeds=1) == 4  # the recipe
    assert computed(paper_of(), seeds=1, small=True) == 4
    assert computed(paper_of(), seeds=1, methods={"mine": KNN()}) == 1
    assert computed(paper_of(), seeds=1, methods={"mine": KNN(n_neighbors=9)}) == 1


def test_files_and_code_are_inputs(tmp_path, log, monkeypatch):
    """A file that is not needed is none; code is that of the paper and its sources."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.npy").write_bytes(b"1")
    paper = paper_of(needs=("a.npy", "?b.npy"), seeds=1)

    def computed(paper=paper):
        _files.digest.cache_clear()
        log.unlink(missing_ok=True)
        reproduce(paper, data=data, out=tmp_path / "out")
        return log.exists()

    assert computed() and not computed()
    (data / "c.npy").write_bytes(b"1")
    assert not computed()
    (data / "a.npy").write_bytes(b"2")
    assert computed() and not computed()
    (data / "b.npy").write_bytes(b"1")
    assert computed() and not computed()
    source = tmp_path / "shared.py"
    source.write_text("x = 1")
    other = Paper("tiny", "Tiny", paper.experiments, (), sources=[source])
    assert computed(other) and not computed(other)
    source.write_text("x = 2")
    assert computed(other)


def test_digest_of_large_files_and_folders(tmp_path):
    """First and last MiB of a file; of many files names and sizes."""
    file = tmp_path / "a"

    def digest(name):
        _files.digest.cache_clear()
        return _files.digest((name,), tmp_path)

    content = bytearray(3 * 2**20)
    seen = set()
    for position in (0, len(content) - 1):
        content[position] = 1
        file.write_bytes(content)
        seen.add(digest("a"))
    content[len(content) // 2] = 1
    file.write_bytes(content)
    assert len(seen) == 2 and digest("a") in seen
    folder = tmp_path / "folder" / "deep"
    folder.mkdir(parents=True)
    (folder / "x.png").write_bytes(b"1")
    first = digest("folder")
    (folder / "y.png").write_bytes(b"1")
    assert digest("folder") != first


def test_selected_methods_and_tables(tmp_path, log):
    result = reproduce(paper_of(), ["1"], out=tmp_path, only=["b*", "wor??"])
    assert set(result.cells.row) == {"best", "worst"}
    assert len(log.read_text().splitlines()) == 4
    result = reproduce(paper_of(), ["2"], out=tmp_path)
    assert set(result.cells.table) == {"2"} and result.claims == []
    with pytest.raises(ValueError, match="no table '3' of tiny here, only 1, 2"):
        reproduce(paper_of(), ["3"], out=tmp_path)


def test_error_in_a_row_names_it(tmp_path, log, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("no")

    monkeypatch.setattr(Parts, "value", fails)
    with pytest.raises(ZeroDivisionError) as error:
        reproduce(paper_of(), out=tmp_path)
    assert "tiny, table 1, row 'best', experiment 'main', seed 0" in str(
        error.value.__notes__
    )


class Cells(HTMLParser):
    """Text of the cells of a page, and all its text."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.text, self._open = [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag in ("td", "th"):
            self.cells.append("")
            self._open = True

    def handle_endtag(self, tag):
        self._open &= tag not in ("td", "th")

    def handle_data(self, data):
        self.text += data
        if self._open:
            self.cells[-1] += data


def test_report(tmp_path, log):
    result = reproduce(paper_of(needs=()), out=tmp_path)
    write(result, tmp_path, "cpu")
    page = Cells((tmp_path / "report.html").read_text())
    assert {"best", "worst", "<b>", "unable", "The worst is better"} <= set(page.cells)
    assert "0.0500[-0.5853, 0.6853]" in page.cells
    assert "A <note>." in page.text
    cells = pd.read_csv(tmp_path / "cells.csv")
    assert len(cells) == len(result.cells) == 8
    content = json.loads((tmp_path / "cells.json").read_text())
    assert content["claims"][0]["verdict"] == "holds"
    assert content["cells"][0]["value"] == pytest.approx(0.05)
    about = json.loads((tmp_path / "environment.json").read_text())
    assert about["device"] == "cpu" and "torch" in about
    assert re.search(
        r"^best +AUROC +0\.0500 \[-0\.5853, 0\.6853\]$", console(result), re.M
    )


def test_numbers_as_text():
    assert number(0.123456) == number(0.123456, np.nan) == "0.1235"
    assert number(0.123456, 0.5) == number(0.123456, 0.0) == "0.123"
    assert number(0.000414, 0.00041) == "0.000414"
    assert number(99.1234, 99.52) == "99.123"
    assert number(np.nan) == number(None) == "unable"


def test_report_of_verdicts(tmp_path, log):
    """Rows of a paper with numbers: value, interval, printed value and mark."""

    def table(parts):
        values = {"notMNIST/AUROC": 0.5 + parts.seed, "notMNIST/OSCR": 0.99}
        yield Row("MNIST/KNN", lambda: values)

    experiment = Experiment("e", Parts, {"2": table})
    reasons = {("2", "*", "*/OSCR"): "not stated"}
    paper = Paper("franc", "F", [experiment], [experiment], cannot_follow=reasons)
    result = reproduce(paper, out=tmp_path)
    assert result.cells.verdict.tolist() == ["worse", "cannot follow"]
    write(result, tmp_path, "cpu")
    page = Cells((tmp_path / "report.html").read_text())
    printed = result.cells.paper.tolist()
    assert f"↓ 0.5000paper {printed[0]:g}" in page.cells
    assert f"? 0.9900paper {printed[1]:g}" in page.cells
    assert "MNIST/KNN: not stated" in page.text
    result = reproduce(paper, out=tmp_path, small=True)
    write(result, tmp_path, "cpu")
    page = Cells((tmp_path / "report.html").read_text())
    assert {"0.5000small", "0.9900small"} <= set(page.cells)
    assert not re.search("paper 0|agrees|worse", page.text)


# --- the command ----------------------------------------------------------------------


@pytest.fixture
def command(tmp_path, log, monkeypatch):
    """The command on a tiny paper, which stands for franc."""

    def run(*arguments, paper=None):
        monkeypatch.setattr(_command, "load_paper", lambda name: paper or paper_of())
        return _command.main(["franc", *arguments, "--out", str(tmp_path / "out")])

    return run


def test_command(command, tmp_path, capsys):
    assert command("1", "--seeds", "1") == 0
    printed = capsys.readouterr()
    assert "Table 1" in printed.out and "best" in printed.out
    assert "tiny 1: best, seed 0" in printed.err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("report.html", "cells.csv", "cells.json", "environment.json"),
        "records.jsonl",
    }
    assert command("--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_exit_codes(command, tmp_path, capsys):
    absent = paper_of(needs=("mnist", "?fmnist"))
    assert command("--data", str(tmp_path), paper=absent) == 2
    shown = capsys.readouterr().err
    assert f"no files of mnist: There is no folder {tmp_path}/mnist or" in shown
    assert "fmnist" not in shown
    assert _files.missing(("uniform_noise",), tmp_path) == []  # it has no files
    assert command("--only", "nothing") == 2
    against = Paper(
        *("tiny", "Tiny", paper_of().experiments, paper_of().small),
        claims=[Claim("The best is better", "1", lambda records: -gain(records))],
    )
    assert command(paper=against) == 0
    assert command("--claims", paper=against) == 1
    assert command("--small", paper=against) == 1
    assert command("--small") == 0


def test_list(command, tmp_path, capsys):
    (tmp_path / "a.npy").touch()
    paper = paper_of(needs=("a.npy", "?cifar10"))
    assert command("--list", "--data", str(tmp_path), paper=paper) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1, 2: main, 2 runs"
    assert lines[1].split() == ["there", "a.npy"]
    start = (
        f"    absent  cifar10 (optional): There is no {tmp_path}/cifar-10-batches-py"
    )
    assert lines[2].startswith(start)
    assert command("--list", paper=paper) == 0
    assert "no DIR/cifar-10-batches-py" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["7"], "no table '7' of tiny here, only 1, 2"),
        (["--seeds", "0"], "must be at least 1, got 0"),
        (["--memory", "0"], "must be a positive number, got 0"),
        (["--method", "KNN"], "must be NAME=module:object, got 'KNN'"),
        (["--method", "a=skood.detectors:NoSuch"], "cannot be imported: .*NoSuch"),
        (["--method", "a=no_such_module:x"], "cannot be imported: No module"),
    ],
)
def test_bad_arguments(command, capsys, arguments, message):
    with pytest.raises(SystemExit) as error:
        command(*arguments)
    assert error.value.code == 2
    assert re.search(message, capsys.readouterr().err)


def test_optional_files_that_are_absent(command, tmp_path, log, capsys):
    """The report names them: networks are trained where weights are absent."""
    needs = ("?weights/a.pth", "?weights/b.pth", "?uniform_noise")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "b.pth").touch()
    assert command("--data", str(tmp_path), paper=paper_of(needs=needs)) == 0
    line = "main: computed without the optional weights/a.pth"
    assert line in capsys.readouterr().out.splitlines()
    assert line in (tmp_path / "out" / "report.html").read_text()
    content = json.loads((tmp_path / "out" / "cells.json").read_text())
    assert content["absent"] == {"main": ["weights/a.pth"]}


def test_size_of_chunks(command, log):
    runs = []

    def prepare(run, seed):
        runs.append(run)
        return Parts(run, seed)

    main = Experiment("main", prepare, {"1": table_1})
    for arguments, size in (([], 2**31), (["--memory", "0.5"], 2**29)):
        assert command(*arguments, paper=Paper("tiny", "Tiny", [main], [])) == 0
        assert runs.pop().max_bytes == size


def test_methods_of_the_user(command, log, tmp_path):
    assert command("1", "--seeds", "1", "--method", "mine=skood.detectors:KNN") == 0
    assert "mine 0" in log.read_text().splitlines()
    assert "mine" in pd.read_csv(tmp_path / "out" / "cells.csv").row.tolist()


def test_network_of_a_method_of_the_user():
    network = LogisticRegression()
    for method in (MSP, lambda estimator: MSP(estimator), MSP(temperature=2.0)):
        assert own_method(method, network).estimator is not None
    made = own_method(MSP(temperature=2.0), network)
    assert made.temperature == 2.0 and made.estimator is network
    given = LogisticRegression(C=2.0)
    assert own_method(given, network) is not given


# --- networks and features ------------------------------------------------------------


def test_network_is_trained_once(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    y, trained = (X[:, 0] > 0).astype(int), []

    def train():
        trained.append(0)
        return TorchClassifier(make, max_epochs=2, random_state=0).fit(X, y)

    def make(input_shape=(3,), n_classes=2):
        from torch import nn

        return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))

    def network(seed):
        return Run(None, tmp_path).network(
            "net", train=train, module=make, classes=[0, 1], depends=("recipe", seed)
        )

    first, again = network(0), network(0)
    assert len(trained) == 1 and first.name == again.name
    np.testing.assert_array_equal(
        first.network.predict_logits(X), again.network.predict_logits(X)
    )
    assert network(1).name != first.name and len(trained) == 2

    loaded, sizes = [], []

    def double(chunk):
        sizes.append(len(chunk))
        return 2 * chunk

    def load():
        loaded.append(0)
        return X, y

    for _ in range(2):
        part = Run(None, tmp_path).features(
            first, "mnist/test", load, lambda X: {"odin": X[:, 0]}
        )
        np.testing.assert_array_equal(part.y, y)
        np.testing.assert_array_equal(part.odin, X[:, 0])
        assert part.Z.dtype == np.float32 and part.Z.shape == (40, 5)
    assert len(loaded) == 1
    chunked = Run(None, tmp_path, max_bytes=3 * 12).features(
        first, "chunks", lambda: (X[:7] / 2, y[:7]), prepare=double
    )
    np.testing.assert_array_equal(chunked.Z, part.Z[:7])
    assert sizes == [3, 3, 1]
    assert not list(tmp_path.rglob(".*"))  # no unfinished files


def test_device_reaches_networks_and_detectors(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(_run, "pretrained", lambda *_, device: given.append(device))
    net = torch.nn.Linear(3, 2)
    run = Run(None, tmp_path, device="cuda:3")
    trained = type("Trained", (), {"module_": net})
    run.network(
        "net",
        train=lambda: trained,
        module=lambda: torch.nn.Linear(3, 2),
        classes=[0, 1],
        depends=(),
    )
    assert given == ["cuda:3"]
    assert run.placed(KNN()).device == "cuda:3"
    pipeline = run.placed(make_pipeline(ReAct(), Energy(FrozenEstimator(KNN()))))
    assert pipeline[1].device == "cuda:3"
    assert pipeline[1].estimator.estimator.device == "auto"
    plain = LogisticRegression()
    assert run.placed(plain) is plain

"""Tests of the command line: its parameters, and every error as one line."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import Bunch

from skood.benchmark import _cli, _run
from skood.benchmark._cli import (
    main,
    make_parser,
)
from skood.exceptions import SkoodWarning

WHOLE = "must be a whole number of at least"
SUITE = "argument --suite: must be distinct names among"


@pytest.fixture
def asked(monkeypatch):
    """What the demo was run with, without running it."""
    calls = []

    def run(options, parts, *, verbose):
        calls.append(Bunch(options=options, parts=parts, verbose=verbose))
        return Bunch(text="the report ↑", files=[])

    monkeypatch.setattr(_run, "run", run)
    return calls


@pytest.fixture
def folder(write_idx):
    rng = np.random.RandomState(0)
    write_idx("shapes", rng.randint(0, 256, (90, 8, 8)), np.arange(90) % 3)
    return write_idx("noise", rng.randint(0, 256, (90, 8, 8)), np.zeros(90))


def test_defaults_are_those_of_the_function(asked, capsys):
    assert main([]) == 0
    (call,) = asked
    assert call.options.to_dict() == {
        "id_data": "digits",
        "ood_data": None,
        "folder": None,
        "left_out": [8, 9],
        "n_train": None,
        "n_test": None,
        "max_epochs": None,
        "tpr_min": 0.8,
        "fpr_max": 0.2,
        "random_state": 0,
        "out": None,
    }
    assert call.verbose == 1
    assert capsys.readouterr() == (f"the report ↑\n{_cli._NEXT}\n", "")


def test_all_options(asked, folder, tmp_path, capsys):
    line = (
        f"--id shapes --ood noise --data {folder} --train 50 --test 30 --epochs 2 "
        f"--tpr .7 --fpr 0.1 --seed 5 --out {tmp_path / 'out'} --quiet"
    )
    assert main(line.split()) == 0
    (call,) = asked
    assert call.options.to_dict() == {
        "id_data": "shapes",
        "ood_data": "noise",
        "folder": str(folder),
        "left_out": [],
        "n_train": 50,
        "n_test": 30,
        "max_epochs": 2,
        "tpr_min": 0.7,
        "fpr_max": 0.1,
        "random_state": 5,
        "out": str(tmp_path / "out"),
    }
    assert call.parts.sizes["held_out"] == {"id": 30, "ood": 30}
    assert call.verbose == 0
    assert main(f"--id shapes --left-out 2 --data {folder}".split()) == 0
    assert asked[1].options.left_out == (2,)


def test_files_are_named(monkeypatch, tmp_path, capsys):
    def run(options, parts, *, verbose):
        warnings.warn("no\nplots", SkoodWarning, stacklevel=2)
        return Bunch(text="the report", files=[options.out / "table.csv"])

    monkeypatch.setattr(_run, "run", run)
    assert main(["--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"the report\n\nwritten to {tmp_path}: table.csv\n{_cli._NEXT}\n"
    assert err == "skood: warning: no plots\n"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--tpr 1.5", "argument --tpr: must be a number in [0, 1], got '1.5'"),
        ("--tpr nan", "argument --tpr: must be a number in [0, 1], got 'nan'"),
        ("--fpr much", "argument --fpr: must be a number in [0, 1], got 'much'"),
        ("--train 0", f"argument --train: {WHOLE} 1, got '0'"),
        ("--test 2", f"argument --test: {WHOLE} 3, got '2'"),
        ("--epochs 1.5", f"argument --epochs: {WHOLE} 1"),
        ("--seed -1", f"argument --seed: {WHOLE} 0, got '-1'"),
        ("--seed 4294967296", "argument --seed: must be less than 2**32"),
        ("--left-out 8;9", "argument --left-out: must be class numbers with commas"),
        ("--left-out=", "argument --left-out: must be class numbers with commas"),
        ("--left", "unrecognized arguments: --left"),
        ("--epo 3", "unrecognized arguments: --epo 3"),
        ("train", "unrecognized arguments: train"),
        ("--out", "argument --out: expected one argument"),
        ("benchmark", "the following arguments are required: --out"),
        ("benchmark --out x --suite moon", f"{SUITE} digits, tabular, signs, graph, c"),
        ("benchmark --out x --suite graph,graph", SUITE),
        ("benchmark --out x --suite=", SUITE),
        ("benchmark --out x --seed -1", f"argument --seed: {WHOLE} 0"),
        ("benchmark --out x --repeats 0", f"argument --repeats: {WHOLE} 1"),
        ("benchmark --out x --jobs 0", f"argument --jobs: {WHOLE} 1"),
        ("benchmark --out x --tpr 1", "unrecognized arguments: --tpr 1"),
    ],
)
def test_bad_arguments(line, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(line.split())
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"skood: error: {text}")
    command = "skood benchmark" if line.startswith("benchmark") else "skood"
    assert err.endswith(f" (see {command} --help)\n")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--left-out 8,12", "left_out=(8, 12) names [12], which are no classes"),
        ("--left-out 8,8", "left_out=(8, 8) names a class twice"),
        (
            "--left-out 0,1,2,3,4,5,6,7,8",
            "All ID training samples of 'digits' are of cl",
        ),
        ("--ood digits", "'digits' cannot be both the ID and the OOD data"),
        ("--ood letters", "'letters' is read from IDX files, but no data folder was"),
        ("--data {0}", "{0} was given as data folder, but 'digits' come with"),
        ("--ood noise --data {0}/x", "{0}/x is not a folder."),
        ("--ood x --data {0}", "{0} contains no folder 'x', only ['alone'"),
        ("--id shapes --ood noise --left-out 1 --data {0}", "The classes (1,) we"),
        ("--id empty --ood noise --data {0}", "No IDX files in {0}/empty: ex"),
        ("--id cut --ood noise --data {0}", "{0}/cut/t10k-images-idx3-ubyte "),
        ("--id alone --ood noise --data {0}", "{0}/alone/t10k-images-idx3-ub"),
        ("--train 5000", "5000 ID samples to train on are needed, but 'digits' has 1"),
        ("--out {0}/file", "{0}/file is a file; results are written to a f"),
        ("--out {0}/file/x", "[Errno 20] Not a directory: '{0}/file/x'"),
    ],
)
def test_what_does_not_fit(line, text, folder, capsys):
    images = (folder / "noise" / "t10k-images-idx3-ubyte").read_bytes()
    labels = (folder / "noise" / "t10k-labels-idx1-ubyte").read_bytes()
    for name in ("empty", "cut", "alone"):
        (folder / name).mkdir()
    (folder / "cut" / "t10k-images-idx3-ubyte").write_bytes(images[:-1])
    (folder / "cut" / "t10k-labels-idx1-ubyte").write_bytes(labels)
    (folder / "alone" / "t10k-images-idx3-ubyte").write_bytes(images)
    (folder / "file").write_text("")
    assert main(line.format(folder).split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("skood: error: " + text.format(folder))
    assert err.count("\n") == 1


@pytest.fixture
def fails(monkeypatch):
    """Let the job raise an error."""

    def with_error(error):
        def run(options, parts, *, verbose):
            raise error

        monkeypatch.setattr(_run, "run", run)

    return with_error


def test_errors_of_the_job_itself_are_not_hidden(fails):
    fails(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        main([])


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [(KeyboardInterrupt, 130, "skood: interrupted\n"), (BrokenPipeError, 0, "")],
)
def test_interrupt_or_no_reader(fails, capsys, error, code, text):
    fails(error)
    assert main([]) == code
    assert capsys.readouterr() == ("", text)


@pytest.mark.parametrize("command", ["", "benchmark", "compare"])
def test_help_names_every_option(capsys, command):
    with pytest.raises(SystemExit) as exit_:
        main([*command.split(), "--help"])
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    for action in make_parser(command)._actions:
        assert action.option_strings[-1] in shown
    assert max(map(len, shown.split("\n"))) <= 100


def test_text_for_terminals_that_know_little():
    text = "AUROC↑ risk↓ – ≥ ≤"
    assert _cli._printable(text, "utf-8") == text
    assert _cli._printable(text, "ascii") == "AUROC+ risk- - >= <="
    assert _cli._printable(text, None) == "AUROC+ risk- - >= <="
    assert _cli._printable(text, "cp1252") == "AUROC+ risk- – >= <="


def test_help_lists_the_commands(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    usage, rest = capsys.readouterr().out.split("\n\n", 1)
    assert "skood [options]" in usage
    assert "commands:" in rest
    for command in ("benchmark", "compare"):
        assert f"skood {command} [options]" in usage
        assert f"skood {command} [options]" in rest


def test_next_steps_exist():
    """The last lines name a page, an example and a command."""
    root = Path(__file__).parents[2]
    steps = dict(line.split(maxsplit=1) for line in _cli._NEXT.split("\n")[2:])
    assert list(steps) == ["page", "example", "command"]
    assert (root / steps["page"]).is_file()
    assert (root / steps["example"]).is_file()
    assert _cli.make_parser("compare").parse_args(steps["command"].split()[2:]).out

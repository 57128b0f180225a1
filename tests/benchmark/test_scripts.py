"""Tests of the scripts in ``benchmarks/``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.utils import Bunch

FOLDER = Path(__file__).parents[2] / "benchmarks"

NIGHTLY = "SKOOD_NIGHTLY" in os.environ
nightly = pytest.mark.skipif(not NIGHTLY, reason="SKOOD_NIGHTLY is not set")

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="benchmarks/ is only in the source tree"
)


@pytest.fixture(autouse=True)
def path(monkeypatch):
    """Scripts import each other, and add their folder to the path themselves."""
    monkeypatch.syspath_prepend(FOLDER)


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, FOLDER / script, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def load(script):
    spec = importlib.util.spec_from_file_location(script, FOLDER / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow  # .ci/nightly runs the script, too
def test_import_time_is_printed():
    done = run("import_time.py", "skood", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    cpu, wall = re.findall(r"^import skood +([\d.]+) +([\d.]+) s$", done.stdout, re.M)
    for least, median in (cpu, wall):
        assert 0 <= float(least) == float(median) < 1
    rows = re.findall(r"CPU seconds: ([\d.]+) \(at most ([\d.]+)\): (\w+)", done.stdout)
    assert [row[1] for row in rows] == ["1.04", "1.1", "1.1", "1.08"]
    for ratio, target, word in rows:
        assert word == ("OK" if float(ratio) <= float(target) else "missed")


@pytest.fixture
def import_time(tmp_path, monkeypatch):
    """The script with quick imports instead of scikit-learn's and a detector's."""
    (tmp_path / "torch.py").touch()  # stands for torch, whose import takes long
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = load("import_time")
    monkeypatch.setattr(script, "PEER", "import json")
    monkeypatch.setattr(script, "TARGETS", {"import csv": 1.04})
    return script


def test_import_of_torch_fails(import_time, capsys):
    assert import_time.main(["torch", "--repeat", "1"]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"^import torch .* imports torch!$", shown, re.M)


def test_module_that_cannot_be_imported(import_time):
    message = "No module named 'skood.no_such_thing'"
    with pytest.raises(SystemExit, match=message) as error:
        import_time.main(["skood.no_such_thing", "--repeat", "1"])
    assert isinstance(error.value.code, str)  # Python prints it and returns 1


@pytest.mark.parametrize(
    ("accuracy", "pair_risk", "seconds", "failures"),
    [
        (0.98, 0.001, 30, []),
        (0.96, 0.001, 30, ["accuracy 0.9600"]),
        (0.98, 0.003, 30, ["risk of KNN+MSP"]),
        (0.98, 0.002, 200, ["200.0 s"]),
    ],
)
def test_what_mnist_must_reach(accuracy, pair_risk, seconds, failures):
    risks = {"MSP": 0.002, "KNN": 0.004, "KNN+MSP": pair_risk}
    result = Bunch(
        accuracy=accuracy,
        common_fpr=0.3,
        table=[{"method": k, "risk_common": v} for k, v in risks.items()],
        reject_options={"KNN+MSP": None},
        options={"tpr_min": 0.8},
    )
    outcomes = load("mnist_notmnist").checks(result, seconds)
    failed = [text for text, holds in outcomes if not holds]
    assert len(failed) == len(failures)
    for text, start in zip(failed, failures, strict=True):
        assert text.startswith(start)


def test_mutants_change_a_line_that_is_there_once():
    mutants = load("mutants").all_mutants()
    for mutant in mutants:
        mutant.line()  # raises unless the line is there exactly once
        assert mutant.new not in ("", mutant.old), mutant
        for test in mutant.tests:
            path, _, name = test.partition("::")
            assert f"def {name}" in (FOLDER.parent / path).read_text(), mutant
    assert len(mutants) >= 40
    assert len({mutant.path.split("/")[1] for mutant in mutants}) >= 10


def test_surviving_mutant_is_an_error(tmp_path, monkeypatch, capsys):
    """A package of two functions; a stand-in for pytest tests the first."""
    script, path = load("mutants"), tmp_path / "skood" / "small" / "_one.py"
    path.parent.mkdir(parents=True)
    code = "def up(x):\n    return x + 1\n\n\ndef down(x):\n    return x - 1\n"
    path.write_text(code)

    def run_tests(folder, tests):
        assert tests == ["tests/small/test_one.py"]
        changed = (folder / "skood" / "small" / "_one.py").read_text()
        assert changed.count("\n") == code.count("\n") and folder != tmp_path
        return int("x + 1" not in changed), 0.0

    monkeypatch.setattr(script, "COPIED", ("skood",))
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script.Mutant.line, "__defaults__", (tmp_path,))
    monkeypatch.setattr(script, "run_tests", run_tests)
    first = "- small/_one.py: return x + 1\n+ return x + 2\n"
    second = "- small/_one.py: return x - 1\n+ return x - 2\n"
    for table, expected in (
        (first, ["killed"]),
        (first + second, ["killed", "survived"]),
        (second + "= unused", ["harmless: unused"]),
        (first + "= unused", ["error: not harmless"]),
    ):
        monkeypatch.setattr(script, "MUTANTS", table)
        failed = expected[-1] in ("survived", "error: not harmless")
        assert script.main(["--jobs", "2"]) == failed
        lines = capsys.readouterr().out.splitlines()
        assert [line.split("   0.0 s")[0].strip() for line in lines] == expected
    assert path.read_text() == code
    monkeypatch.setattr(script, "MUTANTS", second)
    assert script.main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert shown == "skood/small/_one.py:6: return x - 1 -> return x - 2\n"
    monkeypatch.setattr(script, "MUTANTS", "- small/_one.py: return x\n+ return 0")
    with pytest.raises(ValueError, match="has 0 lines 'return x', expected one"):
        script.main(["--list"])


def test_correlation_and_regret_of_substitutes_for_ood_samples(capsys, monkeypatch):
    script = load("selection_without_ood")
    monkeypatch.setattr(script, "CONSTANT", ("b",))
    truths = {
        "digits, near": [
            {"a": 0.9, "b": 0.8, "c": 0.5},
            {"a": 0.7, "b": 0.6, "c": 0.2},
        ],
        "wine, far": [{"a": 0.6, "b": 1.0, "c": 0.9}] * 2,
    }
    equal, wrong = {"a": 0.3, "b": 0.2, "c": 0.1}, {"a": 0.1, "b": 0.2, "c": 0.2}
    proxies = {
        "digits, near": [{"mixing": equal}, {"mixing": wrong}],
        "wine, far": [{"mixing": None}, {"mixing": {"b": 0.4, "c": 0.3}}],
    }
    table = script.summarize(truths, proxies)
    near, far = table["mixing"].values()
    ties = -np.sqrt(3) / 2  # Spearman's of the ranks 3, 2, 1 and 1, 2.5, 2.5
    assert_allclose(near, [[1, 0], [ties, 100 * (0.7 - 0.4)]])
    assert_allclose(far, [[1, 0]])
    regrets = [values[:, 1] for values in table["always b"].values()]
    assert_allclose(regrets, [[10, 10], [0, 0]], atol=1e-12)
    regrets = [values[:, 1] for values in table["best on other tasks"].values()]
    assert_allclose(regrets, [[10, 10], [40, 40]])
    regrets = [values[0, 1] for values in table["any"].values()]
    assert_allclose(regrets, [100 * (0.9 - 2.2 / 3), 100 * (1 - 2.5 / 3)])
    script.report(truths, proxies)
    shown = capsys.readouterr().out
    # tasks, mean, SD and worst: (0 + 30) / 2 and 0
    assert re.search(r"^mixing +15\.0 +0\.0 +7\.5 +10\.6 +30\.0$", shown, re.M)
    assert re.search(r"^b +70\.0 +100\.0 +85\.0 +21\.2$", shown, re.M)


@pytest.mark.slow  # a process for each method
def test_detectors_are_timed(tmp_path, capsys):
    status = load("detectors").main(
        [
            *("--scale", "0.005", "--libraries", "skood", "--workloads", "F"),
            *("--methods", "Energy", "ReAct", "--repeat", "1", "--strict"),
            *("--json", str(tmp_path / "rows.json")),
        ]
    )
    printed = capsys.readouterr().out
    assert not status, printed
    _, title, _, floors, energy, react, *_ = printed.splitlines()
    assert floors.startswith("floors: ")
    assert title.startswith("F: 250 training and 100 test rows, 512 features")
    assert energy.split()[:2] == ["Energy", "skood"]
    assert react.split()[:2] == ["ReAct", "skood"]
    assert "2 targets OK, 0 missed" in printed
    samples = json.loads((tmp_path / "rows.json").read_text())["rows"]
    for row in samples:
        assert 0 < row["score_cpu"] < 10 > row["score"] > 0
        assert row["auroc"] > 0.7
        assert row["score_mib"] < 50
    assert 0 < samples[0]["threshold"] < samples[0]["fit"]  # rectifiers have none
    assert "threshold" not in samples[1]


def test_unknown_methods(capsys):
    with pytest.raises(SystemExit) as error:
        load("detectors").main(["--methods", "NoSuchMethod"])
    assert error.value.code == 2
    assert "invalid choice: 'NoSuchMethod'" in capsys.readouterr().err


def _row(library, fit, score, mib=10, **more):
    row = {"workload": "F", "method": "KNN", "library": library, "fit_cpu": fit}
    row |= {"score": score, "score_cpu": score, "us_per_row": score}
    row |= {"fit_mib": mib, "score_mib": mib, "correct": True}
    return row | more


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        (_row("skood", 1.0, 0.5), []),
        # half of the fit is the threshold, which others do not set
        (_row("skood", 2.0, 0.5, threshold_cpu=1.0), []),
        (_row("skood", 1.2, 0.5), ["F KNN: fit 1.20000 CPU s, peer 1.00000"]),
        (
            _row("skood", 1.0, 1.2),
            [
                "F KNN: score 1.20000 CPU s, peer 1.00000",
                "F KNN: 1.7 times as fast as pytorch-ood to score, at least 2",
            ],
        ),
        (
            _row("skood", 1.0, 0.5, mib=300),
            [
                "F KNN: 300 MiB to score, at most 256",
                "F KNN: fit 300 MiB, peer 10 MiB",
                "F KNN: score 300 MiB, peer 10 MiB",
            ],
        ),
    ],
)
def test_what_detectors_must_reach(ours, missed):
    module = load("detectors")
    others = [
        _row("peer", 1.0, 1.0),
        _row("pytorch-ood", 3.0, 2.0),
        _row("wrong", 0.1, 0.1, correct=False),
        {"workload": "F", "method": "KNN", "library": "broken", "failed": "no"},
    ]
    samples = module.add_ratios([ours, *others])
    assert [text for text, met in module.targets(samples, 2) if not met] == missed
    fit = ours["fit_cpu"] - ours.get("threshold_cpu", 0)
    assert (samples[0]["x_fit"], samples[0]["x_score"]) == (fit, ours["score"])
    assert samples[3]["x_score"] == 0.1
    assert "x_score" not in samples[4]
    assert module.targets(others, 2) == []  # nothing of ours


@pytest.fixture
def logic(monkeypatch):
    """Run parts of the script for logic on few rows."""
    script = load("logic")
    monkeypatch.setattr(script, "lbfgs", lambda kb, mean_truth: np.zeros(len(kb)))

    def run(parts, **changes):
        for name, value in changes.items():
            monkeypatch.setattr(script, name, value)
        arguments = ["logic.py", "--scale", "0.002", "--parts", parts]
        monkeypatch.setattr(sys, "argv", arguments)
        script.main()

    return run


@pytest.mark.parametrize(
    ("parts", "n_met"),
    [
        ("truth,partition,weights,overhead", 2),
        pytest.param("search", 2, marks=pytest.mark.slow),
    ],
)
def test_logic_is_timed(logic, capsys, parts, n_met):
    logic(parts)
    lines = capsys.readouterr().out.splitlines()
    assert sum("at most" in line and "OK" in line for line in lines) == n_met
    assert not any("missed" in line for line in lines)
    assert sum(line.startswith("search, ") for line in lines) == 2 * (parts == "search")


def test_logic_misses_a_target(logic):
    with pytest.raises(SystemExit, match="missed: truth, 2,000 rows x 43 rules"):
        logic("truth", seconds=lambda function, *_: (7.0, function()))


def test_searches_of_rules_agree():
    options = Bunch(seed=0, repeat=1)
    assert load("rejection").compare(200, "noisy", options) == []

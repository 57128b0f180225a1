"""Tests of the scripts in ``benchmarks/``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.utils import Bunch

FOLDER = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="benchmarks/ is only in the source tree"
)


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


def test_import_time_is_printed():
    done = run("import_time.py", "skood", "--repeat", "3")
    assert done.returncode == 0, done.stderr
    _, module, seconds, unit = done.stdout.split()
    assert (module, unit) == ("skood", "s")
    assert 0 <= float(seconds) < 1


def test_import_of_torch_fails():
    done = run("import_time.py", "torch", "--repeat", "1")
    assert done.returncode == 1
    assert done.stdout.endswith("imports torch!\n")


def test_module_that_cannot_be_imported():
    done = run("import_time.py", "skood.no_such_thing", "--repeat", "1")
    assert done.returncode == 1
    assert "No module named 'skood.no_such_thing'" in done.stderr


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


def test_detectors_are_timed(tmp_path):
    done = run(
        "detectors.py",
        *("--scale", "0.005", "--libraries", "skood", "--workloads", "F"),
        *("--methods", "Energy", "ReAct", "--repeat", "1", "--strict"),
        *("--json", tmp_path / "rows.json"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, title, _, energy, react, *_ = done.stdout.splitlines()
    assert title.startswith("F: 250 training and 100 test rows, 512 features")
    assert energy.split()[:2] == ["Energy", "skood"]
    assert react.split()[:2] == ["ReAct", "skood"]
    assert "2 targets OK, 0 missed" in done.stdout
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    for row in rows:
        assert 0 < row["score_min"] <= row["score"] < 10
        assert row["auroc"] > 0.7
        assert row["score_mib"] < 50
    assert 0 < rows[0]["threshold"] < rows[0]["fit"]  # rectifiers have none
    assert "threshold" not in rows[1]


def test_methods_that_detectors_do_not_have_are_said():
    done = run("detectors.py", "--methods", "NoSuchMethod")
    assert done.returncode == 2
    assert "invalid choice: 'NoSuchMethod'" in done.stderr


def _row(library, fit, score, mib=10, **more):
    row = {"workload": "F", "method": "KNN", "library": library, "fit": fit}
    row |= {"score": score, "fit_mib": mib, "score_mib": mib, "correct": True}
    return row | more


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        (_row("skood", 1.0, 0.5), []),
        # half of the fit is the threshold, which others do not set
        (_row("skood", 2.0, 0.5, threshold=1.0), []),
        (_row("skood", 1.2, 0.5), ["F KNN: fit 1.2000 s, peer 1.0000 s"]),
        (
            _row("skood", 1.0, 1.2),
            [
                "F KNN: score 1.2000 s, peer 1.0000 s",
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
def test_what_detectors_must_reach(monkeypatch, ours, missed):
    monkeypatch.syspath_prepend(FOLDER)
    module = load("detectors")
    others = [
        _row("peer", 1.0, 1.0),
        _row("pytorch-ood", 3.0, 2.0),
        _row("wrong", 0.1, 0.1, correct=False),
        {"workload": "F", "method": "KNN", "library": "broken", "failed": "no"},
    ]
    rows = module.add_ratios([ours, *others])
    assert [text for text, met in module.targets(rows) if not met] == missed
    fit = ours["fit"] - ours.get("threshold", 0)
    assert (rows[0]["x_fit"], rows[0]["x_score"]) == (fit, ours["score"])
    assert rows[3]["x_score"] == 0.1
    assert "x_score" not in rows[4]
    assert module.targets(others) == []  # nothing of ours

"""Tests of the scripts in ``benchmarks/``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib.util
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

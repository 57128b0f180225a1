"""Tests of ``python -m skood`` as a process."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import os
import subprocess
import sys

import pytest

import skood
from skood.__main__ import main
from skood.benchmark import _cli

COMMAND = [sys.executable, "-m", "skood"]
QUICK = ["--epochs", "1", "--train", "100", "--quiet"]


def run(*arguments, **environment):
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        check=False,
        env=os.environ | environment,
    )


def test_entry_point():
    assert main is _cli.main


def test_version():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.decode().split() == ["skood", skood.__version__]


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from skood.__main__ import main\n"
        "for line in (['--help'], ['benchmark', '--help']):\n"
        "    try: main(line)\n"
        "    except SystemExit: pass\n"
        "heavy = {'numpy', 'sklearn', 'torch', 'scipy'}\n"
        "print(heavy & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.startswith(b"usage: skood")
    assert done.stderr.decode().strip() == "set()"


@pytest.mark.parametrize(
    "line",
    [
        "--tpr 2",
        pytest.param("--left-out 77", marks=pytest.mark.slow),
        pytest.param("--ood nothing", marks=pytest.mark.slow),
    ],
)
def test_errors_exit_with_2(line):
    # in one process: tests/benchmark/test_cli.py
    done = run(*line.split())
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"skood: error: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.slow  # in one process: tests/benchmark/test_cli.py, test_output.py
def test_whole_run_on_a_terminal_of_few_characters(tmp_path):
    done = run(*QUICK, "--out", str(tmp_path), PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stderr == b""
    report = done.stdout.decode("ascii")
    assert "AUROC+" in report
    assert "KNN+MSP" in report
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["parts"]["train"] == {"id": 100, "ood": 0}
    assert f"accuracy {content['network']['accuracy']:.4f}" in report


@pytest.mark.slow  # in one process: tests/benchmark/test_cli.py
def test_nobody_reads():
    process = subprocess.Popen(
        [*COMMAND, *QUICK], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    _, errors = process.stderr.read(), process.wait(timeout=120)
    assert process.returncode == 0
    assert _ == b""
    assert errors == 0

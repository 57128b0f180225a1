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
NIGHTLY = "SKOOD_NIGHTLY" in os.environ
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
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print({'numpy', 'sklearn', 'torch'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.startswith(b"usage: skood")
    assert done.stderr.decode().strip() == "set()"


def test_errors_exit_with_2():
    # in one process: tests/benchmark/test_cli.py
    wrong = ["--left-out", "77"], ["--tpr", "2"], ["--ood", "nothing"]
    for arguments in wrong if NIGHTLY else wrong[:1]:
        done = run(*arguments)
        assert done.returncode == 2
        assert done.stdout == b""
        assert done.stderr.startswith(b"skood: error: ")
        assert done.stderr.count(b"\n") == 1


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


@pytest.mark.skipif(not NIGHTLY, reason="a broken pipe is tested in one process too")
def test_nobody_reads():
    process = subprocess.Popen(
        [*COMMAND, *QUICK], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    _, errors = process.stderr.read(), process.wait(timeout=120)
    assert process.returncode == 0
    assert _ == b""
    assert errors == 0

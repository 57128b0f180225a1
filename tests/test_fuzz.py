"""A fraction of the inputs of ``benchmarks/fuzz.py``."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn import __version__ as sklearn_version
from sklearn.utils.fixes import parse_version

from skood.utils.discovery import all_estimators

FOLDER = Path(__file__).parents[1] / "benchmarks"

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="benchmarks/ is only in the source tree"
)

# .ci/nightly runs the script with 20,000
N_INPUTS = [40, pytest.param(150, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def fuzz():
    """The script as a module; it imports another one that is next to it."""
    before = list(sys.path)
    sys.path.append(str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("fuzz", FOLDER / "fuzz.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = before


@pytest.mark.skipif(
    parse_version(sklearn_version) < parse_version("1.8"),
    reason="older versions of scikit-learn have other texts of errors",
)
@pytest.mark.parametrize("n_inputs", N_INPUTS)
def test_no_input_has_an_unclean_outcome(fuzz, n_inputs):
    counts, unclean = fuzz.run(fuzz.draw_cases(n_inputs, seed=n_inputs))
    assert unclean == []
    for outcome in ("result", "error"):  # neither all refused nor all taken
        kinds = ("all, mode fit", "all, mode score")
        assert sum(counts[kind, outcome] for kind in kinds) > 0.2 * n_inputs


@pytest.mark.slow
def test_all_public_estimators_are_drawn(fuzz):
    drawn = {case.split("|")[0] for case in fuzz.draw_cases(400, seed=0)}
    classes = {type(fuzz.estimators()[name]).__name__ for name in drawn}
    assert {name for name, _ in all_estimators()} <= classes


def _raised(function):
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_is_unclean(fuzz):
    """The check finds raw errors, other kinds of errors and results without sense."""
    for function in (
        lambda: np.zeros(3).reshape(2),  # in this file
        lambda: np.linalg.cholesky(-np.eye(2)),  # in NumPy's
        lambda: {}["a"],
    ):
        assert fuzz.check_error(_raised(function)) is not None
    from skood.detectors import KNN

    clear = _raised(lambda: KNN(n_neighbors=1).fit([[np.nan], [1.0]]))
    assert fuzz.check_error(clear) is None
    for method, values in (
        ("score_samples", [1.0, np.nan]),
        ("score_samples", [1.0, np.inf]),
        ("score_samples", [1.0]),
        ("score_samples", ["a", "b"]),
        ("predict_proba", [[0.5, 0.4], [0.5, 0.5]]),
    ):
        assert fuzz._check_values(np.array(values), method, 2) is not None
    assert fuzz._check_values(np.array([1.0, -2.0]), "score_samples", 2) is None


@pytest.mark.parametrize(
    "code, on_purpose",
    [
        ("raise ValueError(\n    'no')", True),
        (
            "try:\n    int('a')\nexcept ValueError as e:\n    raise KeyError from e",
            True,
        ),
        ("try:\n    int('a')\nexcept ValueError:\n    raise", False),
        ("int('a')", False),
        ("raise ValueError(int('a'))", False),  # its text could not be made
    ],
)
def test_raised_by_a_statement(fuzz, code, on_purpose):
    """Told without the source, which others may edit while the fuzzer runs."""
    assert fuzz._by_raise(_raised(lambda: exec(code, {}))) is on_purpose


def test_changed_global_state_is_detected(fuzz):
    before = fuzz._state()
    assert fuzz._state() == before
    with np.errstate(over="raise"):
        assert fuzz._state() != before

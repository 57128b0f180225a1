"""Warnings name the line of the user."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event, current_thread
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.decision import _certify as _guarantee
from skood.detectors import Mahalanobis
from skood.exceptions import SkoodWarning
from skood.rejection import (
    BoundedTPRFPR,
    Certificate,
    ScoredSamples,
    certify,
)
from skood.utils import _warnings
from skood.utils._warnings import quiet, warn


def _ours(code):
    """Run code as if it were in a module of skood."""
    names = {"__name__": "skood.somewhere", "warn": warn}
    exec(compile(code, "ours.py", "exec"), names)
    return names["f"]


def _all_caught(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    assert {warning.category for warning in caught} <= {SkoodWarning}
    return caught


def _caught(function):
    (warning,) = _all_caught(function)
    return warning


def test_line_of_the_caller():
    f = _ours("def f():\n    g()\ndef g():\n    warn('few rows')")
    warning = _caught(lambda: f())
    assert str(warning.message) == "few rows"
    assert warning.filename == __file__
    lines = open(__file__, encoding="utf-8").read().splitlines()
    assert lines[warning.lineno - 1].strip() == "warning = _caught(lambda: f())"


def test_called_by_no_module_of_ours():
    assert _caught(lambda: warn("here")).filename == __file__


@pytest.mark.parametrize(
    ("names", "filename"),
    [({}, "given.py"), ({"__name__": 3}, "given.py"), ({"__name__": None}, __file__)],
)
def test_called_by_code_without_a_name(names, filename):
    """As exec runs it. Python drops warnings that name a module of name None."""
    code = compile("warn('here')", "given.py", "exec")
    warning = _caught(lambda: exec(code, {"warn": warn, **names}))
    assert warning.filename == filename


def test_nobody_but_ours_called(monkeypatch):
    """The outermost frame is named if all are ours."""
    frame = SimpleNamespace(f_back=None)
    for name in ("skood.utils._warnings", "skood.somewhere"):
        frame = SimpleNamespace(f_back=frame, f_globals={"__name__": name})
    monkeypatch.setattr(_warnings, "sys", SimpleNamespace(_getframe=lambda _: frame))
    f = _ours("def f():\n    warn('alone')")

    def call():
        f()

    warning = _caught(call)  # two frames above warn()
    assert warning.filename == __file__


def _few():
    return np.eye(4)[:3], [0, 0, 1]


def _check_two_of_few(caught):
    """One of the covariance, and one of the threshold: none can be left out."""
    starts = ("The within-class covariance is singular", "The threshold of Mahalanobis")
    assert len(caught) == len(starts)
    for warning, start in zip(caught, starts, strict=True):
        assert str(warning.message).startswith(start)
        assert warning.filename == __file__


def test_through_scikit_learn():
    """A pipeline stands between the user and us."""
    X, y = _few()
    pipeline = make_pipeline(StandardScaler(), Mahalanobis())
    _check_two_of_few(_all_caught(lambda: pipeline.fit(X, y)))


@pytest.mark.parametrize("n_jobs", [None, 1])
def test_through_joblib(n_jobs):
    """What joblib calls has no line of the user's own: it names the call of joblib."""
    X, y = _few()

    def call():
        Parallel(n_jobs=n_jobs)(delayed(Mahalanobis().fit)(X, y) for _ in range(1))

    _check_two_of_few(_all_caught(call))


def test_can_be_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkoodWarning)
        with pytest.raises(SkoodWarning, match="rank"):
            Mahalanobis().fit(*_few())


def test_quiet_is_of_a_single_thread():
    """Blocks that overlap in threads, and the other thread goes on warning."""
    f = _ours("def f():\n    warn('few rows')")
    inside, done = Event(), Event()

    def other():
        with quiet():
            f()
            inside.set()
            assert done.wait(30)
            f()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        filters = list(warnings.filters)
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(other)
            assert inside.wait(30)
            f()
            done.set()
            future.result()
        assert warnings.filters == filters
        with quiet(), quiet():
            f()
        with quiet():
            with suppress(ZeroDivisionError), quiet():
                _ = 1 / 0
            f()
        f()
    assert [str(warning.message) for warning in caught] == ["few rows"] * 2


def test_filters_survive_certify_in_threads(monkeypatch):
    """A second thread enters the search after the first, and leaves it later."""
    rng = np.random.default_rng(0)
    scores = [rng.normal(size=400) for _ in range(3)]
    ood = [rng.normal(size=300) + 2 for _ in range(2)]
    inside = {name: Event() for name in "ab"}
    left, search = Event(), _guarantee.search_problem

    def meeting(*args):
        name = current_thread().name[0]
        if not inside[name].is_set():
            inside[name].set()
            assert (inside["b"] if name == "a" else left).wait(60)
        return search(*args)

    def run():
        rule = BoundedTPRFPR(0.5, 0.5)
        rows = scores[0], scores[1], np.abs(scores[2]) % 1, *ood
        return certify(
            rule,
            ScoredSamples.from_arrays(*rows),
            Certificate("expectation"),
            random_state=0,
        )

    monkeypatch.setattr(_guarantee, "search_problem", meeting)
    with warnings.catch_warnings():
        before = list(warnings.filters)
        with ThreadPoolExecutor(1, "a") as pool_a, ThreadPoolExecutor(1, "b") as pool_b:
            first = pool_a.submit(run)
            assert inside["a"].wait(60)
            second = pool_b.submit(run)
            first.result()
            left.set()
            second.result()
        assert list(warnings.filters) == before

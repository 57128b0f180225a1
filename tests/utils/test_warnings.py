"""Warnings name the line of the user."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import Mahalanobis
from skood.exceptions import SkoodWarning
from skood.utils import _warnings
from skood.utils._warnings import warn


def _ours(code):
    """Run code as if it were in a module of skood."""
    names = {"__name__": "skood.somewhere", "warn": warn}
    exec(compile(code, "ours.py", "exec"), names)
    return names["f"]


def _caught(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    (one,) = caught
    assert one.category is SkoodWarning
    return one


def test_line_of_the_caller():
    f = _ours("def f():\n    g()\ndef g():\n    warn('few rows')")
    one = _caught(lambda: f())
    assert str(one.message) == "few rows"
    assert one.filename == __file__
    lines = open(__file__, encoding="utf-8").read().splitlines()
    assert lines[one.lineno - 1].strip() == "one = _caught(lambda: f())"


def test_called_by_no_module_of_ours():
    assert _caught(lambda: warn("here")).filename == __file__


@pytest.mark.parametrize(
    ("names", "filename"),
    [({}, "given.py"), ({"__name__": 3}, "given.py"), ({"__name__": None}, __file__)],
)
def test_called_by_code_without_a_name(names, filename):
    """As exec runs it. Python drops warnings that name a module of name None."""
    code = compile("warn('here')", "given.py", "exec")
    one = _caught(lambda: exec(code, {"warn": warn, **names}))
    assert one.filename == filename


def test_nobody_but_ours_called(monkeypatch):
    """The outermost frame is named if all are ours."""
    frame = SimpleNamespace(f_back=None)
    for name in ("skood.utils._warnings", "skood.somewhere"):
        frame = SimpleNamespace(f_back=frame, f_globals={"__name__": name})
    monkeypatch.setattr(_warnings, "sys", SimpleNamespace(_getframe=lambda _: frame))
    f = _ours("def f():\n    warn('alone')")

    def call():
        f()

    one = _caught(call)  # two frames above warn()
    assert one.filename == __file__


def _few():
    return np.eye(4)[:3], [0, 0, 1]


def test_through_scikit_learn():
    """A pipeline stands between the user and us."""
    X, y = _few()
    pipeline = make_pipeline(StandardScaler(), Mahalanobis())
    assert _caught(lambda: pipeline.fit(X, y)).filename == __file__


@pytest.mark.parametrize("n_jobs", [None, 1])
def test_through_joblib(n_jobs):
    """What joblib calls has no line of the user's own: it names the call of joblib."""
    X, y = _few()

    def call():
        Parallel(n_jobs=n_jobs)(delayed(Mahalanobis().fit)(X, y) for _ in range(1))

    assert _caught(call).filename == __file__


def test_can_be_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkoodWarning)
        with pytest.raises(SkoodWarning, match="rank"):
            Mahalanobis().fit(*_few())

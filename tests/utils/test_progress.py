"""Tests of the progress of long work."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import pytest

from skood.utils import _progress
from skood.utils._progress import progress


@pytest.fixture
def no_tqdm(monkeypatch):
    for name in ("tqdm", "tqdm.auto"):
        monkeypatch.setitem(sys.modules, name, None)


class Clock:
    """A clock that is read as if `step` seconds had gone by each time."""

    def __init__(self, step):
        self.now = 0.0
        self.step = step

    def monotonic(self):
        self.now += self.step
        return self.now


def all_uses(verbose):
    """Use progress in each way there is; return what the iterations gave."""
    given = [list(progress(3, desc="number", verbose=verbose))]
    given.append(list(progress((c for c in "abc"), desc="generator", verbose=verbose)))
    with progress("xyz", desc="sized", verbose=verbose) as bar:
        given.append(list(bar))
    with progress(4, desc="context", verbose=verbose) as bar:
        bar.update(3)
        bar.set_postfix(loss=0.25, lr="1e-3")
        bar.update()
    bar.close()  # closing twice does no harm
    return given


EXPECTED = [[0, 1, 2], ["a", "b", "c"], ["x", "y", "z"]]


def test_silent(capsys):
    assert all_uses(verbose=0) == EXPECTED
    assert capsys.readouterr() == ("", "")


def test_tqdm(capsys):
    pytest.importorskip("tqdm")
    assert all_uses(verbose=1) == EXPECTED
    out, err = capsys.readouterr()
    assert out == ""
    for text in ("number: 100%", "generator: 3it", "sized: 100%", "context: 100%"):
        assert text in err
    assert "4/4" in err
    assert "loss=0.25, lr=1e-3" in err


def test_tqdm_does_not_redraw_for_values_alone(capsys):
    pytest.importorskip("tqdm")
    with progress(1000, desc="fast", verbose=1) as bar:
        for i in range(1000):
            bar.set_postfix(i=i)
            bar.update()
    assert capsys.readouterr().err.count("fast:") < 100


def test_lines_without_tqdm(capsys, no_tqdm, monkeypatch):
    monkeypatch.setattr(_progress, "time", Clock(step=0.1))
    assert all_uses(verbose=2) == EXPECTED
    out, err = capsys.readouterr()
    assert out == ""
    # nothing took two seconds, so there is one line for each, at the end
    assert err.splitlines() == [
        "number: 3/3 in 0.4 s",
        "generator: 3 in 0.4 s",
        "sized: 3/3 in 0.4 s",
        "context: 4/4 in 0.3 s, loss=0.25, lr=1e-3",
    ]


def test_lines_are_written_every_two_seconds(capsys, no_tqdm, monkeypatch):
    # the clock is read at the start, in each update, and for each line
    monkeypatch.setattr(_progress, "time", Clock(step=0.75))
    with progress(6, desc="work", verbose=1) as bar:
        for _ in range(6):
            bar.update()
    counts = [line.split()[1] for line in capsys.readouterr().err.splitlines()]
    assert counts == ["3/6", "6/6"]


def test_lines_say_where_work_stopped(capsys, no_tqdm):
    with pytest.raises(KeyboardInterrupt), progress(9, desc="w", verbose=1) as bar:
        bar.update(2)
        raise KeyboardInterrupt
    assert capsys.readouterr().err.startswith("w: 2/9 in ")

"""Tests of the progress of long work."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import subprocess
import sys

import pytest
from joblib import parallel_config
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import skood
from skood.combine import BenjaminiHochberg, DetectorEnsemble
from skood.detectors import KNN, Mahalanobis
from skood.epistemic import DeepEnsemble
from skood.rejection import RejectOptionClassifier, TwoThresholds
from skood.utils._progress import progress

X, Y = load_iris(return_X_y=True)


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
    assert all_uses(verbose=1) == EXPECTED
    out, err = capsys.readouterr()
    assert out == ""
    for text in ("number: 100%", "generator: 3it", "sized: 100%", "context: 100%"):
        assert text in err
    assert "4/4" in err
    assert "loss=0.25, lr=1e-3" in err


def test_tqdm_does_not_redraw_for_values_alone(capsys):
    with progress(1000, desc="fast", verbose=1) as bar:
        for i in range(1000):
            bar.set_postfix(i=i)
            bar.update()
    assert capsys.readouterr().err.count("fast:") < 100


def cross_fitted(n_jobs=None):
    return RejectOptionClassifier(
        LogisticRegression(max_iter=500),
        ood_detector=Mahalanobis(),
        rule=TwoThresholds(ood=0.1, risk=0.1),
        calibration=4,
        n_jobs=n_jobs,
        random_state=0,
    )


MEMBERS = [("knn", KNN()), ("gauss", Mahalanobis()), ("near", KNN(n_neighbors=1))]


@pytest.mark.parametrize(
    ("estimator", "bar"),
    [
        (cross_fitted(), "folds: 100%"),
        (
            DetectorEnsemble(MEMBERS, BenjaminiHochberg(), random_state=0),
            "members: 100%",
        ),
        (
            DeepEnsemble(LogisticRegression(max_iter=500), n_members=3, random_state=0),
            "DeepEnsemble: 100%",
        ),
    ],
)
def test_folds_and_members_are_shown(capsys, estimator, bar):
    with skood.show_progress():
        estimator.fit(X, Y)
    shown = capsys.readouterr().err
    assert bar in shown
    assert ("4/4" if bar.startswith("folds") else "3/3") in shown
    estimator.fit(X, Y)  # after the block
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_bars_of_parallel_folds_and_equal_results(capsys, backend):
    alone = cross_fitted().fit(X, Y)
    with skood.show_progress(), parallel_config(backend=backend):
        together = cross_fitted(n_jobs=2).fit(X, Y)
    assert "folds: 100%" in capsys.readouterr().err
    assert repr(together.operating_point_) == repr(alone.operating_point_)


def test_progress_ends_with_the_block_after_an_error(capsys):
    with pytest.raises(RuntimeError, match="stop"), skood.show_progress():
        raise RuntimeError("stop")
    cross_fitted().fit(X, Y)
    assert capsys.readouterr().err == ""


def test_show_progress_without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with (
        pytest.raises(ImportError, match=r"show_progress\(\) needs tqdm"),
        skood.show_progress(),
    ):
        pass


def test_import_stays_light():
    code = "import skood, sys; print({'numpy', 'sklearn', 'tqdm'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == "set()"

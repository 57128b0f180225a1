"""Ensembles on a dask cluster: two worker processes on this machine."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import signal

import joblib
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from skood.combine import DSDE, DetectorEnsemble, DOSStorey
from skood.datasets import load_digits_ood
from skood.detectors import KNN, Energy, Mahalanobis, ViM
from skood.metrics import make_ood_scorer
from skood.model_selection import LeaveClassesOut
from tests.combine._members import Column
from tests.combine._remote import Broken, Meeting
from tests.nn._conv_net import conv_classifier, images

pytestmark = pytest.mark.slow

NIGHTLY = "SKOOD_NIGHTLY" in os.environ


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    cluster = LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path_factory.mktemp("dask")),
    )
    with cluster, Client(cluster, timeout="60s") as client:
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture(autouse=True)
def _no_test_hangs():
    """A cluster that does not answer is an error, not a run without an end."""
    if not hasattr(signal, "SIGALRM"):  # Windows
        yield
        return

    def stop(*_):
        raise TimeoutError("the cluster gave no answer for 120 s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    return X[:900], y[:900], X[900:]


def _columns(n_samples=400, m=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n_samples, m))


def _network():
    return LogisticRegression(C=0.1, max_iter=300)


def _said(ensemble, X):
    """All that an ensemble says about rows."""
    methods = ("score_samples", "predict", "pvalues", "selected_detectors")
    return {method: getattr(ensemble, method)(X) for method in methods}


def _on_dask(ensemble, X, y, X_test):
    with joblib.parallel_config(backend="dask"):
        return _said(ensemble.fit(X, y), X_test)


def _assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        assert_array_equal(actual[key], values, err_msg=key)


def _processes(folder, what):
    return {int(path.name.split("-")[1]) for path in folder.glob(f"{what}-*")}


# -----------------------------------------------------------------------------
# Where the work is done


@pytest.mark.parametrize("n_jobs", [None, 1, 2] if NIGHTLY else [2])
def test_members_are_fitted_side_by_side_in_the_workers(client, tmp_path, n_jobs):
    """No fit ends before both workers are in one: whatever n_jobs, all are used."""
    X = _columns(800, m=4)
    ensemble = DetectorEnsemble(
        [(f"c{j}", Meeting(j, folder=str(tmp_path))) for j in range(4)],
        random_state=0,
        n_jobs=n_jobs,
    )
    with joblib.parallel_config(backend="dask"):
        ensemble.fit(X)
    workers = set(client.run(os.getpid).values())
    assert len(workers) == 2 and os.getpid() not in workers
    assert _processes(tmp_path, "fit") == workers
    for path in tmp_path.glob("score-*"):  # of the rows that calibrate
        path.unlink()
    with joblib.parallel_config(backend="dask"):
        scores = ensemble.score_samples(X)
    scored = _processes(tmp_path, "score")
    assert scored and scored <= workers
    # outside of the block, here
    ensemble.set_params(n_jobs=None)
    assert_array_equal(ensemble.score_samples(X), scores)
    assert os.getpid() in _processes(tmp_path, "score")


# -----------------------------------------------------------------------------
# The same numbers


@pytest.mark.parametrize("calibration", [0.3, 3])
def test_same_as_in_a_single_process(client, digits, calibration):
    X, y, X_test = digits
    ensemble = DSDE(
        [
            ("knn", KNN(n_neighbors=5)),
            ("vim", ViM()),
            ("energy", Energy()),
            ("gaussian", Mahalanobis(covariance=LedoitWolf())),
            ("forest", IsolationForest(n_estimators=20, random_state=0)),
        ],
        estimator=_network(),
        calibration=calibration,
        random_state=0,
    )
    expected = clone(ensemble).fit(X, y)
    _assert_same(_on_dask(ensemble, X, y, X_test), _said(expected, X_test))
    assert_array_equal(ensemble.pi0(X_test), expected.pi0(X_test))
    assert_array_equal(ensemble.estimator_.coef_, expected.estimator_.coef_)
    assert ensemble.level_ == expected.level_ == "conformal"
    assert ensemble.n_calibration_ == expected.n_calibration_


def test_fitted_ensemble_that_is_sent_once(client, digits):
    """Batches of rows are tasks of dask's own."""
    X, y, X_test = digits
    ensemble = DetectorEnsemble(
        [("knn", KNN(n_neighbors=5)), ("energy", Energy(_network()))], random_state=0
    ).fit(X, y)
    on_workers = client.scatter(ensemble, broadcast=True)
    batches = np.array_split(X_test, 5)
    futures = [
        client.submit(DetectorEnsemble.score_samples, on_workers, samples)
        for samples in batches
    ]
    assert_array_equal(
        np.concatenate(client.gather(futures)), ensemble.score_samples(X_test)
    )


def test_data_frame(client):
    names = ["left", "middle", "right"]
    X, X_test = (pd.DataFrame(_columns(500, 3, seed), columns=names) for seed in (0, 1))
    ensemble = DetectorEnsemble(
        [("gaussian", Mahalanobis()), ("knn", KNN(n_neighbors=2))], random_state=0
    )
    expected = clone(ensemble).fit(X)
    with joblib.parallel_config(backend="dask"):
        ensemble.fit(X)
        table = ensemble.explain(X_test)
    assert_array_equal(ensemble.feature_names_in_, names)
    pd.testing.assert_frame_equal(table, expected.explain(X_test))


@pytest.mark.parametrize("n_jobs", [None, 2] if NIGHTLY else [None])
def test_members_share_a_network(client, n_jobs):
    """Members of one frozen torch network are one task, and share what comes back."""
    net, classifier = conv_classifier()
    X, X_test = images(400), images(60, seed=1)
    y = classifier.predict(X)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    ensemble = DetectorEnsemble(
        [
            ("knn", KNN(classifier, n_neighbors=3)),
            ("energy", Energy(classifier)),
            ("gaussian", Mahalanobis(classifier, covariance=LedoitWolf())),
        ],
        DOSStorey(c_m=1 / 3),
        random_state=0,
        n_jobs=n_jobs,
    )
    expected = _said(clone(ensemble).set_params(n_jobs=None).fit(X, y), X_test)
    _assert_same(_on_dask(ensemble, X, y, X_test), expected)
    first, *others = (each.estimator_ for each in ensemble.named_detectors_.values())
    assert all(each is first for each in others)
    # the user's own network is as it was
    assert ensemble.detectors[0][1].estimator is classifier
    assert net.training
    for key, value in net.state_dict().items():
        assert value.equal(before[key])


# -----------------------------------------------------------------------------
# Searches


def _search(ensemble, grid):
    return GridSearchCV(
        ensemble,
        grid,
        cv=LeaveClassesOut(3, random_state=0),
        scoring=make_ood_scorer("auroc"),
        error_score="raise",
    )


def test_search_over_beta_and_c_m(client, digits):
    """Members are tasks of the tasks of a search: none waits for ever."""
    X, y, X_test = digits
    X, y = X[y != -1], y[y != -1]
    network = FrozenEstimator(_network().fit(X, y))
    members = [
        ("knn", KNN(n_neighbors=1)),
        ("gaussian", Mahalanobis(covariance=LedoitWolf())),
        ("energy", Energy(network)),
        ("vim", ViM(network)),
    ]
    options = {"level": "nominal", "alpha": 0.3, "random_state": 0}
    ensemble = DSDE(members, **options)
    grid = {"beta": [0.5, 1.0], "c_m": [1 / 4, 1 / 2]}
    expected = _search(ensemble, grid).fit(X, y)
    search = _search(ensemble, grid)
    with joblib.parallel_config(backend="dask"):
        search.fit(X, y)
    assert search.best_params_ == expected.best_params_
    assert search.cv_results_["params"] == expected.cv_results_["params"]
    for key, values in expected.cv_results_.items():
        if "test_score" in key:
            assert_array_equal(search.cv_results_[key], values)
    assert len(np.unique(search.cv_results_["mean_test_score"])) > 1
    _assert_same(
        _said(search.best_estimator_, X_test), _said(expected.best_estimator_, X_test)
    )


# -----------------------------------------------------------------------------
# Errors


def test_error_in_fit_reaches_the_user_and_leaves_what_was_fitted(client):
    X = _columns()
    ensemble = DetectorEnsemble([("a", Column()), ("b", Column(1))], random_state=0)
    scores = ensemble.fit(X).score_samples(X)
    ensemble.set_params(b=Broken(1))
    with (
        joblib.parallel_config(backend="dask"),
        pytest.raises(RuntimeError, match="sensor 1 is off") as error,
    ):
        ensemble.fit(X + 1)
    assert error.value.__notes__ == ["This happened in fitting the member 'b'."]
    assert isinstance(ensemble.named_detectors_.b, Column)
    assert not isinstance(ensemble.named_detectors_.b, Broken)
    with joblib.parallel_config(backend="dask"):  # and the cluster goes on
        assert_array_equal(ensemble.score_samples(X), scores)


def test_error_in_scoring_reaches_the_user(client):
    X = _columns()
    ensemble = DetectorEnsemble(
        [("a", Column()), ("b", Broken(1, largest=50))], random_state=0
    )
    with joblib.parallel_config(backend="dask"):
        scores = ensemble.fit(X).score_samples(X)
        with pytest.raises(RuntimeError, match="sensor 1 gave 99") as error:
            ensemble.score_samples(np.full((5, 2), 99.0))
        assert_array_equal(ensemble.score_samples(X), scores)
    assert error.value.__notes__ == ["This happened in scoring with the member 'b'."]

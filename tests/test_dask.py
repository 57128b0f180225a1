"""Dask arrays in place of arrays: chunk by chunk, at once or later."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import dask.array as da
import numpy as np
import pytest
import torch
from distributed import Client, LocalCluster
from sklearn.linear_model import LogisticRegression

from skood.combine import DetectorEnsemble
from skood.datasets import load_digits_ood
from skood.detectors import KNN, MSP, Mahalanobis, ViM
from skood.nn import FeatureExtractor, TorchClassifier, pretrained
from skood.rectifiers import ReAct
from skood.rejection import BoundedAbstention, RejectOptionClassifier
from skood.utils.dask import map_rows
from tests._counted import Counted

X, Y = load_digits_ood(left_out=[8, 9], return_X_y=True, ood_label=-1)
X = X[:600].astype(np.float32)
Y = Y[:600]
CHUNKS = {
    "rows": (250, 64),
    "uneven": ((10, 300, 290), 64),
    "columns": (250, 20),
    "one": (600, 64),
}


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)
    )
    return pretrained(module)


@pytest.fixture(scope="module")
def fitted(network):
    linear = LogisticRegression(max_iter=300)
    ensemble = DetectorEnsemble(
        [("msp", MSP()), ("knn", KNN())], estimator=linear, random_state=0
    )
    rejecting = RejectOptionClassifier(linear, rule=BoundedAbstention(), random_state=0)
    return {
        "knn": KNN().fit(X, Y),
        "vim": ViM().fit(X, Y),
        "network": Mahalanobis(network).fit(X, Y),
        "ensemble": ensemble.fit(X, Y),
        "body": FeatureExtractor(network).fit(X),
        "rejecting": rejecting.fit(X, Y),
        "trained": TorchClassifier(max_epochs=1, random_state=0).fit(X, Y),
    }


def _methods(estimator):
    names = ("score_samples", "decision_function", "predict", "predict_proba")
    return [n for n in (*names, "transform") if hasattr(estimator, n)]


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_methods_return_numpy(fitted, chunks):
    X_dask = da.from_array(X, chunks=chunks)
    for estimator in fitted.values():
        for name in _methods(estimator):
            actual = getattr(estimator, name)(X_dask)
            assert isinstance(actual, np.ndarray)
            expected = getattr(estimator, name)(X)
            assert actual.dtype == expected.dtype
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)
            else:
                np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_later(fitted, chunks):
    X_dask = da.from_array(X, chunks=chunks)
    for estimator in (fitted["knn"], fitted["body"], fitted["trained"]):
        for name in _methods(estimator):
            method = getattr(estimator, name)
            actual = map_rows(method, X_dask)
            expected = method(X)
            assert isinstance(actual, da.Array)
            assert actual.shape == expected.shape
            assert actual.chunks[0] == X_dask.chunks[0]
            assert actual.dtype == expected.dtype
            computed = actual.compute()
            assert computed.dtype == expected.dtype
            np.testing.assert_allclose(computed, expected, rtol=1e-3, atol=1e-5)


def test_later_of_images():
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(72, 5)
    )
    classifier = pretrained(module, classes=list("abcde"))
    images = X.reshape(-1, 1, 8, 8)
    X_dask = da.from_array(images, chunks=(250, 1, 4, 8))
    for name in ("predict", "predict_proba"):
        method = getattr(classifier, name)
        actual = map_rows(method, X_dask)
        assert actual.shape == method(images).shape
        if name == "predict":
            np.testing.assert_array_equal(actual.compute(), method(images))
        else:
            np.testing.assert_allclose(actual.compute(), method(images), rtol=1e-5)
        np.testing.assert_array_equal(method(X_dask), actual.compute())


def test_unknown_numbers_of_samples(fitted):
    """Chunks may turn out to have no rows."""
    X_dask = da.from_array(X, chunks=(100, 64))
    kept = np.arange(len(X)) >= 150
    some = X_dask[da.from_array(kept, chunks=100)]
    assert np.isnan(some.shape[0])
    expected = fitted["knn"].score_samples(X[kept])
    np.testing.assert_allclose(fitted["knn"].score_samples(some), expected)
    np.testing.assert_allclose(
        map_rows(fitted["knn"].score_samples, some).compute(), expected
    )
    none = X_dask[X_dask[:, 0] > 99]
    assert map_rows(fitted["body"].transform, none).compute().shape == (0, 16)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_fit_computes_what_is_learned_from(network):
    X_dask = da.from_array(X, chunks=(100, 64))
    for detector in (Mahalanobis(), Mahalanobis(network)):
        actual = detector.fit(X_dask, da.from_array(Y, chunks=100)).offset_
        assert actual == pytest.approx(detector.fit(X, Y).offset_, rel=1e-5)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_partial_fit_of_chunks():
    X_dask = da.from_array(X, chunks=(200, 64))
    detector = Mahalanobis()
    for start, chunk in zip((0, 200, 400), X_dask.blocks, strict=True):
        detector.partial_fit(chunk, Y[start : start + 200])
    expected = Mahalanobis().fit(X, Y).score_samples(X)
    np.testing.assert_allclose(detector.score_samples(X_dask), expected, rtol=1e-6)


def test_rectifier_computes_all():
    Z = ReAct().fit(X).transform(da.from_array(X, chunks=(100, 64)))
    np.testing.assert_array_equal(Z, ReAct().fit(X).transform(X))


def test_wrong_number_of_features(fitted):
    X_dask = da.from_array(X[:, :10], chunks=(100, 10))
    for call in (fitted["knn"].score_samples, lambda X: map_rows(_knn(fitted), X)):
        with pytest.raises(ValueError, match="X has 10 features, but KNN is expecting"):
            call(X_dask)


def _knn(fitted):
    return fitted["knn"].score_samples


@pytest.mark.parametrize(
    ("method", "given", "error", "match"),
    [
        (None, X, TypeError, "X must be a dask.array.Array, got a ndarray. Call the"),
        (len, da.ones((2, 2)), TypeError, "method must be one of a fitted estimator"),
        (
            None,
            da.ones(2),
            ValueError,
            r"X must have the shape \(n_samples, ...\), got",
        ),
    ],
)
def test_errors(fitted, method, given, error, match):
    with pytest.raises(error, match=match):
        map_rows(method or _knn(fitted), given)


@pytest.mark.slow
def test_on_a_cluster(fitted, tmp_path):
    """The estimator goes to each worker once, however many chunks there are."""
    log = tmp_path / "log"
    counted = Counted(fitted["knn"], log)
    X_dask = da.from_array(X, chunks=(50, 64))
    expected = fitted["knn"].score_samples(X)
    cluster = LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path),
    )
    with cluster, Client(cluster, timeout="60s"):
        actual = map_rows(counted.score_samples, X_dask).compute()
        np.testing.assert_allclose(actual, expected)
        np.testing.assert_allclose(fitted["knn"].score_samples(X_dask), expected)
    loaded_by = log.read_text().split()
    assert len(loaded_by) <= 4  # of 12 chunks: two workers, the scheduler, this process

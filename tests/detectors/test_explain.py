"""Tests of the explanations of scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import (
    KNN,
    SSD,
    Energy,
    Mahalanobis,
    RelativeMahalanobis,
    Residual,
    ViM,
)
from skood.nn import LinearHead

DETECTORS = [
    KNN(n_neighbors=5),
    Mahalanobis(),
    Mahalanobis(tied=False),
    RelativeMahalanobis(),
    Residual(),
    SSD(),
    ViM(),
]

each_detector = pytest.mark.parametrize("detector", DETECTORS, ids=repr)


def _data():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=120)
    X = rng.normal(size=(120, 4)) * [1, 2, 1, 3] + 3 * rng.normal(size=(3, 4))[y]
    return X, y, 4 * rng.normal(size=(30, 4))


@each_detector
def test_explanation_per_sample(detector):
    X, y, queries = _data()
    detector = clone(detector).fit(X, y)
    frame = detector.explain(queries, n_features=2)
    np.testing.assert_allclose(frame["score"], detector.score_samples(queries))
    is_ood = detector.predict(queries) == -1
    np.testing.assert_array_equal(frame["is_ood"], is_ood)
    assert 0 < is_ood.sum() < len(queries)
    names = ["feature_1", "contribution_1", "feature_2", "contribution_2"]
    assert list(frame.columns[:2]) == ["score", "is_ood"]
    assert list(frame.columns[-4:]) == names
    np.testing.assert_array_equal(frame.index, np.arange(30))
    assert np.all(frame["contribution_1"] >= frame["contribution_2"])
    assert np.all(frame["feature_1"] != frame["feature_2"])


@each_detector
def test_names_and_index_of_a_data_frame(detector):
    X, y, queries = _data()
    columns = ["width", "height", "depth", "mass"]
    plain = clone(detector).fit(X, y).explain(queries)
    detector = clone(detector).fit(pd.DataFrame(X, columns=columns), y)
    index = pd.Index([f"row {i}" for i in range(len(queries))])
    frame = detector.explain(pd.DataFrame(queries, columns=columns, index=index))
    assert frame.index.equals(index)
    names = np.array(columns)[plain["feature_1"].astype(int)]
    np.testing.assert_array_equal(frame["feature_1"], names)
    np.testing.assert_allclose(frame["contribution_1"], plain["contribution_1"])


@each_detector
def test_a_row_is_explained_alone(detector, monkeypatch):
    X, y, queries = _data()
    detector = clone(detector).fit(X, y)
    together = detector.explain(queries)
    alone = pd.concat(
        [detector.explain(queries[i : i + 1]) for i in range(30)], ignore_index=True
    )
    pd.testing.assert_frame_equal(alone, together)
    monkeypatch.setattr(type(detector), "_chunk_bytes", 1)  # chunks of one row
    pd.testing.assert_frame_equal(detector.explain(queries), together)


def test_features_of_a_network_have_numbers():
    X, y, queries = _data()
    columns = list("pqrs")
    frame = pd.DataFrame(X, columns=columns)
    network = MLPClassifier((4,), max_iter=20, random_state=0)
    detector = Mahalanobis(network).fit(frame, y)
    explained = detector.explain(pd.DataFrame(queries, columns=columns))
    assert set(explained["feature_1"]) <= {0, 1, 2, 3}


def test_mahalanobis():
    X, y, queries = _data()
    names = np.array(["ant", "bee", "cat"])
    detector = Mahalanobis().fit(X, names[y])
    frame = detector.explain(queries, n_features=4)
    precision = np.linalg.inv(detector.covariance_)
    gaps = queries[:, None] - detector.location_
    squared = np.einsum("nki,ij,nkj->nk", gaps, precision, gaps)
    nearest = squared.argmin(axis=1)
    np.testing.assert_array_equal(frame["nearest_class"], names[nearest])
    np.testing.assert_allclose(
        frame["squared_distance"], squared.min(axis=1), rtol=1e-9
    )
    gaps = gaps[np.arange(30), nearest]
    parts = gaps * (gaps @ precision)
    for j in range(1, 5):
        at = frame[f"feature_{j}"].astype(int)
        expected = parts[np.arange(30), at]
        np.testing.assert_allclose(frame[f"contribution_{j}"], expected, rtol=1e-7)


def test_mahalanobis_with_class_covariances():
    """The class is the likeliest one, the distance in its own covariance."""
    X, y, queries = _data()
    X[y == 1] *= 5
    detector = Mahalanobis(tied=False).fit(X, y)
    frame = detector.explain(queries, n_features=4)
    terms, distances = [], []
    for k in range(3):
        covariance = np.cov(X[y == k].T, ddof=0)
        gaps = queries - X[y == k].mean(axis=0)
        squared = np.einsum("ni,ij,nj->n", gaps, np.linalg.inv(covariance), gaps)
        log_det = np.linalg.slogdet(covariance)[1]
        terms.append(np.log(np.mean(y == k)) - (squared + log_det) / 2)
        distances.append(squared)
    likeliest = np.argmax(terms, axis=0)
    assert set(likeliest) == {0, 1, 2}
    np.testing.assert_array_equal(frame["nearest_class"], likeliest)
    expected = np.choose(likeliest, distances)
    np.testing.assert_allclose(frame["squared_distance"], expected, rtol=1e-8)
    parts = frame[[f"contribution_{j}" for j in range(1, 5)]]
    np.testing.assert_allclose(parts.sum(axis=1), expected, rtol=1e-8)


def test_mahalanobis_without_labels():
    X, _, queries = _data()
    frame = Mahalanobis().fit(X).explain(queries)
    assert set(frame["nearest_class"]) == {0}


def test_vim():
    """The predicted class is that of the classifier, which may know more."""
    rng = np.random.default_rng(0)
    classes = np.array(["d", "c", "b", "a"])
    head = FrozenEstimator(LinearHead(rng.normal(size=(4, 6)), [9.0] * 4, classes))
    X = rng.normal(size=(200, 6))
    predicted = head.predict(X)
    known = np.isin(predicted, ["a", "c", "d"])
    vim = ViM(head, n_components=2).fit(X[known], predicted[known])
    assert vim.classes_.tolist() == ["a", "c", "d"]
    frame = vim.explain(X, n_features=6)
    np.testing.assert_array_equal(frame["predicted_class"], predicted)
    energy = Energy(head).fit(X).score_samples(X)
    np.testing.assert_allclose(frame["energy"], energy, rtol=1e-9)
    virtual = frame["energy"] - vim.alpha_ * frame["residual"]
    np.testing.assert_allclose(frame["score"], virtual, rtol=1e-9)
    parts = frame[[f"contribution_{j}" for j in range(1, 7)]]
    np.testing.assert_allclose(parts.sum(axis=1), frame["residual"] ** 2, rtol=1e-8)


def test_equal_contributions_are_in_the_order_of_the_features():
    X = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    frame = Mahalanobis().fit(X).explain([[2.0, 2.0], [3.0, -3.0]], n_features=2)
    np.testing.assert_array_equal(frame[["feature_1", "feature_2"]], [[0, 1], [0, 1]])
    np.testing.assert_allclose(frame["contribution_1"], [4.0, 9.0])


def test_no_features():
    X, y, queries = _data()
    frame = Mahalanobis().fit(X, y).explain(queries, n_features=0)
    columns = ["score", "is_ood", "nearest_class", "squared_distance"]
    assert list(frame.columns) == columns


def test_errors():
    X, y, queries = _data()
    with pytest.raises(NotFittedError):
        Mahalanobis().explain(queries)
    detector = Mahalanobis().fit(X, y)
    with pytest.raises(ValueError, match="n_features=5, but there are only 4 features"):
        detector.explain(queries, n_features=5)
    with pytest.raises(ValueError, match="n_features == -1, must be >= 0"):
        detector.explain(queries, n_features=-1)
    with pytest.raises(TypeError, match="n_features must be an instance of int"):
        detector.explain(queries, n_features=1.5)
    with pytest.raises(ValueError, match="X has 3 features"):
        detector.explain(queries[:, :3])


def test_without_pandas(monkeypatch):
    X, y, queries = _data()
    detector = Mahalanobis().fit(X, y)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ImportError, match="needs pandas, which is not installed: pip install pandas"
    ):
        detector.explain(queries)


@each_detector
def test_a_score_at_the_threshold_is_in_distribution(detector):
    """As it is for `predict`."""
    X, y, queries = _data()
    detector = clone(detector).fit(X, y)
    detector.offset_ = detector.score_samples(queries)[3]
    frame = detector.explain(queries)
    assert frame["score"][3] == detector.offset_
    assert not frame["is_ood"][3]
    assert detector.predict(queries)[3] != -1


def test_names_of_features_through_a_pipeline():
    """Names of columns, where the features of a classifier have them."""
    data = load_iris(as_frame=True)
    X, y = data.data, data.target
    columns = list(X.columns)

    def named(detector, samples=X):
        frame = detector.explain(samples, n_features=1)
        return set(frame["feature_1"])

    linear = LogisticRegression(max_iter=500)
    scaled = make_pipeline(StandardScaler(), linear)
    for classifier in (linear, scaled, FrozenEstimator(clone(scaled).fit(X, y))):
        assert named(Mahalanobis(classifier).fit(X, y)) <= set(columns)
        without = Mahalanobis(classifier)
        if not isinstance(classifier, FrozenEstimator):
            without.fit(X.to_numpy(), y)
            assert named(without, X.to_numpy()) <= {0, 1, 2, 3}
    pca = make_pipeline(PCA(2), linear)
    assert named(Mahalanobis(pca).fit(X, y)) <= {"pca0", "pca1"}
    perceptron = MLPClassifier((5,), solver="lbfgs", random_state=0, max_iter=500)
    assert named(Mahalanobis(perceptron).fit(X, y)) <= {0, 1, 2, 3, 4}
    front = make_pipeline(StandardScaler(), Mahalanobis()).set_output(
        transform="pandas"
    )
    front.fit(X, y)
    assert named(front[-1], front[:-1].transform(X)) <= set(columns)

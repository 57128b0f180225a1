"""The body of a network as a transformer."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from torch import nn

from skood.detectors import KNN
from skood.nn import FeatureExtractor, TorchClassifier, pretrained
from tests.nn._outputs import fitted

X, y = load_iris(return_X_y=True)
X = (X - X.mean(0)) / X.std(0)


def mlp(*hidden):
    return MLPClassifier(hidden, random_state=0, max_iter=20)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)
    ).double()


def test_it_fits_a_clone():
    estimator = mlp(7)
    body = fitted(FeatureExtractor(estimator), X, y)
    assert body.estimator_ is not estimator
    assert not hasattr(estimator, "coefs_")
    alone = fitted(clone(estimator), X, y)
    hidden = np.maximum(X @ alone.coefs_[0] + alone.intercepts_[0], 0)
    assert_allclose(body.transform(X), hidden, rtol=1e-9)
    with pytest.warns(ConvergenceWarning):
        assert_array_equal(body.fit_transform(X, y), body.transform(X))
    assert body.n_features_in_ == 4
    assert not hasattr(body, "classes_")


def test_frozen_needs_no_labels(net):
    body = FeatureExtractor(pretrained(net)).fit(X)
    with torch.no_grad():
        expected = net[:4](torch.as_tensor(X)).numpy()
    assert_allclose(body.transform(X), expected, rtol=1e-9)
    assert not hasattr(body, "classes_")
    with pytest.raises(ValueError, match="FeatureExtractor requires y to be passed"):
        FeatureExtractor(LogisticRegression()).fit(X)


def test_layer_pooling_batch_size_and_device_are_passed_on():
    torch.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(12, 3))
    sizes = []
    conv.register_forward_pre_hook(lambda m, args: sizes.append(len(args[0])))
    images = np.random.default_rng(0).normal(size=(10, 1, 3, 3)).astype(np.float32)
    with torch.no_grad():
        maps = conv[0](torch.as_tensor(images)).numpy()
    for pooling, expected in [
        ("mean", maps.mean((2, 3))),
        ("max", maps.max((2, 3))),
        ("flatten", maps.reshape(10, 12)),
        (None, maps),
    ]:
        body = FeatureExtractor(pretrained(conv), layer=0, pooling=pooling)
        assert_allclose(
            body.fit(images).transform(images), expected, rtol=1e-5, atol=1e-6
        )
        names = body.get_feature_names_out()
        assert len(names) == expected.shape[1]
    sizes.clear()
    body = FeatureExtractor(pretrained(conv), batch_size=4).fit(images)
    body.transform(images)
    assert sizes == [1, 4, 4, 2]  # fit looks at one row, for the number of features
    body = FeatureExtractor(pretrained(conv), device="abacus")
    with pytest.raises(ValueError, match="Unknown device 'abacus'"):
        body.fit(images)


def test_several_blocks_are_joined(net, monkeypatch):
    body = FeatureExtractor(pretrained(net), batch_size=16).fit(X)
    whole = body.transform(X)
    monkeypatch.setattr("skood.nn._torch_network._BLOCK_BYTES", 1)
    assert_array_equal(body.transform(X), whole)


def test_in_a_pipeline_before_a_detector(net):
    clf = pretrained(net)
    knn = KNN(n_neighbors=5, normalize=True)
    pipe = Pipeline([("body", FeatureExtractor(clf)), ("detector", knn)])
    with torch.no_grad():
        Z = net[:4](torch.as_tensor(X)).numpy()
    expected = clone(knn).fit(Z)
    assert_allclose(
        pipe.fit(X, y).score_samples(X[:20]), expected.score_samples(Z[:20]), atol=1e-12
    )
    assert_array_equal(
        pipe.predict(X * 3), np.where(pipe.decision_function(X * 3) >= 0, 1, -1)
    )
    # the same as letting the detector read
    direct = KNN(estimator=clf, n_neighbors=5).fit(X, y)
    assert_allclose(direct.score_samples(X), pipe.score_samples(X))


def test_names_of_features(net):
    body = FeatureExtractor(pretrained(net), layer=1).fit(X)
    expected = [f"featureextractor{i}" for i in range(6)]
    assert body.get_feature_names_out().tolist() == expected
    table = body.set_output(transform="pandas").transform(X)
    assert isinstance(table, pd.DataFrame) and table.columns.tolist() == expected
    assert_array_equal(
        table.to_numpy(), clone(body).set_output(transform="default").fit_transform(X)
    )


def test_data_frames_and_their_names():
    frame = pd.DataFrame(X, columns=list("abcd"))
    body = FeatureExtractor(LogisticRegression()).fit(frame, y)
    assert body.feature_names_in_.tolist() == list("abcd")
    assert_array_equal(body.transform(frame), X)
    with pytest.raises(ValueError, match="feature names should match"):
        body.transform(frame[["d", "c", "b", "a"]])


def test_clone(net):
    clf = pretrained(net)
    body = FeatureExtractor(clf, layer="0", pooling="max", batch_size=3).fit(X)
    copy = clone(body)
    assert copy.get_params() == body.get_params()
    assert copy.estimator is clf  # and so is the network not copied
    assert not hasattr(copy, "estimator_")


def test_grid_search_over_layers():
    clf = FrozenEstimator(fitted(mlp(20, 2), X, y))
    pipe = make_pipeline(FeatureExtractor(clf), LogisticRegression(max_iter=300))
    grid = {"featureextractor__layer": [0, 1, "penultimate"]}
    search = GridSearchCV(pipe, grid, cv=3).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert scores[1] == scores[2]  # with two hidden layers they are the same
    assert search.best_estimator_[0].estimator is clf
    assert search.predict(X).shape == (150,)


def test_pickle():
    body = FeatureExtractor(TorchClassifier(max_epochs=1, random_state=0)).fit(X, y)
    copy = pickle.loads(pickle.dumps(body))
    assert_array_equal(copy.transform(X), body.transform(X))
    body = FeatureExtractor(pretrained(nn.Linear(4, 3))).fit(X)
    copy = pickle.loads(pickle.dumps(body))
    assert_array_equal(copy.transform(X), body.transform(X))


class Dense(TransformerMixin, BaseEstimator):
    """Makes a sparse matrix dense."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X.toarray()

    def __sklearn_is_fitted__(self):
        return True


def test_text():
    texts = ["good day", "bad day", "good night", "bad night"] * 3
    labels = [1, 0, 1, 0] * 3
    clf = make_pipeline(CountVectorizer(), Dense(), LogisticRegression())
    body = FeatureExtractor(clf).fit(texts, labels)
    # the features of the last step: counts of bad, day, good and night
    assert_array_equal(
        body.transform(["good night", "bad bad"]), [[0, 0, 1, 1], [2, 0, 0, 0]]
    )


def test_errors(net):
    with pytest.raises(NotFittedError):
        FeatureExtractor(LogisticRegression()).transform(X)
    for params, text in [
        ({"layer": 1.5}, "The 'layer' parameter of FeatureExtractor must be"),
        ({"pooling": "sum"}, "The 'pooling' parameter of FeatureExtractor must be"),
        ({"batch_size": 0}, "The 'batch_size' parameter of FeatureExtractor must be"),
        ({"estimator": 3}, "The 'estimator' parameter of FeatureExtractor must be"),
    ]:
        with pytest.raises(ValueError, match=text):
            FeatureExtractor(pretrained(net)).set_params(**params).fit(X)
    body = FeatureExtractor(pretrained(net)).fit(X)
    before = body.transform(X)
    with pytest.raises(ValueError, match="no layer named 'fc'"):
        body.set_params(layer="fc").fit(X)
    with pytest.raises(ValueError, match="X contains NaN"):
        body.set_params(layer="penultimate").transform(X * np.nan)
    assert_array_equal(body.transform(X), before)  # the fit is kept
    with pytest.raises(ValueError, match="has no layers"):
        FeatureExtractor(LogisticRegression(), layer=0).fit(X, y)

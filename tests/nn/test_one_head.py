"""Tests of one head of a `MultiHeadClassifier`, as detectors read it."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

from skood.combine import DetectorEnsemble, Fisher
from skood.detectors import KNN, MSP, ODIN, Energy, Mahalanobis, ViM
from skood.nn import FeatureExtractor, MultiHeadClassifier, TorchClassifier, split
from skood.nn._shared_forward import shared_outputs
from tests.nn._copies import by_joblib, by_pickle, by_skops
from tests.nn._networks import Body
from tests.nn._outputs import ALL, read


@pytest.fixture(scope="module")
def data():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    frame = pd.DataFrame({"species": names[y], "long": X[:, 2] > 3})
    return pd.DataFrame(scale(X), columns=list("abcd")), frame


@pytest.fixture(scope="module")
def trained(data):
    return MultiHeadClassifier(Body, max_epochs=20, lr=0.01, random_state=0).fit(*data)


@pytest.fixture
def clf(trained):
    return copy.deepcopy(trained)


def test_head_is_a_fitted_classifier_of_a_column(clf, data):
    X, y = data
    for k, name in enumerate(["species", "long"]):
        for column in (k, name, k - 2, np.int64(k)):
            head = clf.head(column)
            assert is_classifier(head)
            assert clone(head) is head
            assert_array_equal(head.classes_, clf.classes_[k], strict=True)
            assert_array_equal(head.predict(X), clf.predict(X)[:, k])
            assert_array_equal(head.predict_logits(X), clf.predict_logits(X)[k])
            assert_array_equal(head.predict_proba(X), clf.predict_proba(X)[k])
        logits = clf.predict_logits(X)[k]
        margin = logits if k == 0 else logits[:, 1] - logits[:, 0]
        assert_array_equal(head.decision_function(X), margin)
        assert head.score(X, y[name]) == (clf.predict(X)[:, k] == y[name]).mean()
        assert head.n_features_in_ == 4
        assert_array_equal(head.feature_names_in_, list("abcd"))
    with pytest.raises(ValueError, match="feature names should match"):
        head.predict(X[["b", "a", "c", "d"]])


def test_outputs_are_those_of_the_network(clf, data):
    X, _ = data
    for k, name in enumerate(["species", "long"]):
        outputs = read(clf.head(name), X, ALL)
        assert_allclose(outputs.features, clf.transform(X), rtol=1e-6, atol=1e-7)
        assert_allclose(outputs.logits, clf.predict_logits(X)[k], rtol=1e-5, atol=1e-6)
        linear = clf.module_.heads[k]
        assert_array_equal(outputs.head.coef, linear.weight.detach().numpy())
        assert_array_equal(outputs.head.intercept, linear.bias.detach().numpy())


def test_split_and_layers(clf, data):
    X, _ = data
    body, species = split(clf.head("species"))
    Z = body.transform(X)
    long = split(clf.head("long"))[1]
    for k, head in enumerate([species, long]):
        expected = clf.predict_proba(X)[k]
        assert_allclose(head.predict_proba(Z), expected, rtol=1e-4, atol=1e-6)
    assert_array_equal(long.classes_, [False, True])
    inner = FeatureExtractor(clf.head(0), layer="body.0").fit(X)
    assert_allclose(np.tanh(inner.transform(X)), Z, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "detector",
    [
        MSP,
        Energy,
        Mahalanobis,
        ODIN,
        lambda head: KNN(head, n_neighbors=3),
        lambda head: ViM(head, n_components=2),
    ],
)
def test_detectors_score_as_on_a_separate_network(detector, clf, data):
    """The other heads are not there for a detector."""
    X, y = data
    alone = TorchClassifier(whole, max_epochs=1, random_state=0)
    alone.fit(X, y["species"])
    alone.module_.load_state_dict(
        {
            name.replace("heads.0", "head"): tensor
            for name, tensor in clf.module_.state_dict().items()
            if "heads.1" not in name
        }
    )
    fitted = detector(clf.head(0)).fit(X, y["species"])
    expected = detector(FrozenEstimator(alone)).fit(X, y["species"])
    assert_array_equal(fitted.classes_, expected.classes_)
    assert_allclose(fitted.score_samples(3 * X), expected.score_samples(3 * X))
    wrapped = detector(FrozenEstimator(clf.head(0))).fit(X, y["species"])
    assert_array_equal(wrapped.score_samples(X), fitted.score_samples(X))


def whole(input_shape, n_classes):
    """The body of the tests with a head."""
    from torch import nn

    from skood.nn._multi_head_network import HeadNetwork

    return HeadNetwork(Body(input_shape), nn.Linear(8, n_classes))


def test_detectors_of_several_heads_together(clf, data):
    X, y = data
    parts = [
        ("species", MSP(clf.head("species"))),
        ("long", Energy(clf.head("long"))),
        ("features", KNN(clf.head("species"), n_neighbors=3)),
    ]
    combined = DetectorEnsemble(parts, Fisher(), level="nominal", random_state=0).fit(
        X, y["species"]
    )
    assert combined.predict(X).mean() > 0.8


def test_shared_outputs_run_the_body_once(clf, data):
    X, _ = data
    runs = []
    head = clf.head("species")
    clf.module_.body.register_forward_hook(lambda *call: runs.append(1))
    detectors = [MSP(head), Energy(head), KNN(head, n_neighbors=3)]
    with shared_outputs(detectors):
        for detector in detectors:
            detector.fit(X)
    assert len(runs) == 1


def test_no_weights_are_copied(clf, data):
    X, y = data
    head = clf.head("long")
    module = head.module_
    assert module.body is clf.module_.body
    assert module.head is clf.module_.heads[1]
    before = head.predict_logits(X)
    clf.partial_fit(X, y)
    assert_array_equal(head.predict_logits(X), clf.predict_logits(X)[1])
    after = head.predict_logits(X)
    assert abs(after - before).max() > 1e-4
    clf.set_params(module=None).fit(X, y["species"])  # another network
    assert_array_equal(head.predict_logits(X), after)
    assert head.get_params()["estimator"].classifier.n_outputs_ == 2


@pytest.mark.parametrize("copied", [by_pickle, by_joblib, by_skops, copy.deepcopy])
def test_persistence(copied, clf, data):
    X, _ = data
    detector = Energy(clf.head("long")).fit(X)
    loaded = copied(detector)
    assert_array_equal(loaded.score_samples(X), detector.score_samples(X))
    expected = clf.predict_proba(X)[1]
    assert_array_equal(copied(clf.head("long")).predict_proba(X), expected)


@pytest.mark.parametrize("copied", [by_pickle, by_joblib, by_skops, copy.deepcopy])
def test_heads_that_are_pickled_together_hold_the_network_once(copied, clf, data):
    X, _ = data
    heads = [clf.head("long"), clf.head("species")]
    loaded = copied(heads)
    assert loaded[0].estimator.module_.body is loaded[1].estimator.module_.body
    for head, same in zip(heads, loaded, strict=True):
        assert_array_equal(same.predict_logits(X), head.predict_logits(X))
    loaded = copied(clf)  # without its heads
    assert set(vars(loaded)) == {*vars(clf)} - {"_copy_of_heads"}
    assert_array_equal(loaded.head("long").predict(X), heads[0].predict(X))


def test_a_head_knows_the_classifier_as_it_was(clf, data):
    X, y = data
    before = clf.head("long").estimator
    assert clf.head("long").estimator.classifier is before.classifier
    clf.set_params(device="cpu")
    after = clf.head("long").estimator
    assert (before.device, after.device) == ("auto", "cpu")
    clf.partial_fit(X, y)
    assert clf.head("long").estimator.classifier.n_iter_ == 21
    assert after.classifier.n_iter_ == 20
    fewer = after.classifier
    clf.fit(X, y["species"])
    assert clf.head(0).estimator.classifier is not fewer
    assert not hasattr(clf.head(0).estimator.classifier, "target_names_")


def test_single_column(data):
    X, y = data
    clf = MultiHeadClassifier(max_epochs=3, random_state=0).fit(X, y["species"])
    head = clf.head(0)
    assert_array_equal(head.predict_proba(X), clf.predict_proba(X))
    assert_array_equal(head.classes_, clf.classes_)
    expected = Energy(FrozenEstimator(clf)).fit(X).score_samples(X)
    assert_allclose(Energy(head).fit(X).score_samples(X), expected, rtol=1e-6)
    with pytest.raises(AttributeError, match="no attribute 'target_names_'"):
        head.target_names_  # noqa: B018


def test_calibration_and_pipeline(clf, data):
    X, y = data
    calibrated = CalibratedClassifierCV(clf.head("species")).fit(X, y["species"])
    assert calibrated.score(X, y["species"]) > 0.9
    scaler = StandardScaler().set_output(transform="pandas").fit(X)
    pipeline = make_pipeline(scaler, clf.head("species"))
    assert pipeline.predict(X).shape == (150,)


def test_a_head_is_not_trained(clf, data):
    X, y = data
    head = clf.head("long")
    assert head.fit(X, y["long"]) is head
    with pytest.raises(TypeError, match="A head is trained together with the others"):
        head.estimator.fit(X, y["long"])


@pytest.mark.parametrize("column", ["color", 2, -3, 1.5, None])
def test_unknown_column(column, clf):
    with pytest.raises(
        ValueError, match=r"no column .*\['species', 'long'\], or a num"
    ):
        clf.head(column)


def test_several_columns_are_not_a_single_column(clf, data):
    X, y = data
    message = "MultiHeadClassifier was fitted on several columns of y.*head\\(0\\)"
    for read_it in (
        lambda: MSP(FrozenEstimator(clf)).fit(X),
        lambda: MSP(FrozenEstimator(clf)).fit(X, y["species"]),
        lambda: KNN(FrozenEstimator(clf)).fit(X),
        lambda: split(clf),
        lambda: FeatureExtractor(FrozenEstimator(clf)).fit(X),
    ):
        with pytest.raises(ValueError, match=message):
            read_it()
    forest = RandomForestClassifier(5).fit(
        X, y.apply(lambda c: c.astype("category").cat.codes)
    )
    with pytest.raises(
        ValueError, match="RandomForestClassifier was fitted on several"
    ):
        MSP(FrozenEstimator(forest)).fit(X)

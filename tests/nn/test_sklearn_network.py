"""Outputs of scikit-learn classifiers, against NumPy and what they predict."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    IsolationForest,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC

from skood.detectors import MSP, Energy
from skood.nn import LinearHead, TorchClassifier, split
from skood.nn._make_network import make_network, predicts_softmax
from tests._loops import looped
from tests.nn._outputs import ALL, assert_head, fitted, naive_mlp, read
from tests.nn._outputs import data as outputs_data


def data(n_classes=3):
    X, y = outputs_data(n_classes, 90, n_features=6)
    return X.astype(np.float64), np.array(["a", "b", "c", "d"])[y]


def mlp(**params):
    return MLPClassifier(random_state=0, max_iter=15, **params)


LINEAR = [
    LogisticRegression(),
    LogisticRegression(fit_intercept=False),
    LinearSVC(fit_intercept=False),  # its intercept_ is the float 0.0
    RidgeClassifier(),
    SGDClassifier(random_state=0),
    LinearDiscriminantAnalysis(),
]


@looped("n_classes", [2, 3])
@looped("estimator", LINEAR)
def test_linear_classifier(estimator, n_classes):
    X, y = data(n_classes)
    clf = fitted(estimator, X, y)
    margins = clf.decision_function(X)
    outputs = read(clf, X, ALL)
    assert_array_equal(outputs.features, X)
    if n_classes == 2:
        expected = np.stack([-margins / 2, margins / 2], axis=1)
        assert_allclose(
            outputs.logits[:, 1] - outputs.logits[:, 0], margins, rtol=1e-12
        )
    else:
        expected = margins
    assert_allclose(outputs.logits, expected, rtol=1e-12)
    rebuilt = X @ outputs.head.coef.T + outputs.head.intercept
    assert_allclose(rebuilt, expected, rtol=1e-9, atol=1e-9)
    assert outputs.head.coef.shape == (n_classes, 6)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("estimator", [LINEAR[0], LINEAR[-1]], ids=str)
def test_softmax_of_linear_logits_is_predict_proba(estimator, n_classes):
    X, y = data(n_classes)
    clf = fitted(estimator, X, y)
    logits = read(clf, X, {"logits"}).logits
    assert_allclose(softmax(logits, axis=1), clf.predict_proba(X), rtol=1e-9)


def test_sparsified_head():
    X, y = data()
    clf = fitted(SGDClassifier(random_state=0, penalty="l1"), X, y)
    dense = read(clf, X, ALL).head.coef
    assert_array_equal(read(clf.sparsify(), X, ALL).head.coef, dense)


def test_linear_svc_is_a_linear_head_but_kernel_svc_is_not():
    # SVC(kernel="linear") has a row of coef_ per pair of classes: for 3 classes just
    # as many rows as classes, so that the shape does not tell them apart.
    X, y = data()
    clf = SVC(kernel="linear").fit(X, y)
    assert clf.coef_.shape == (3, 6)
    assert_array_equal(read(clf, X, {"logits"}).logits, clf.decision_function(X))
    assert not np.allclose(X @ clf.coef_.T + clf.intercept_, clf.decision_function(X))
    with pytest.raises(ValueError, match="weights of a linear head, and a SVC has"):
        read(clf, X, ALL)


def test_margins_that_are_not_per_class():
    X, y = data(4)
    clf = SVC(decision_function_shape="ovo").fit(X, y)
    with pytest.raises(ValueError, match="SVC gives 6 margins for 4 classes, expected"):
        read(clf, X, {"logits"})
    clf = SVC(decision_function_shape="ovr").fit(X, y)
    assert read(clf, X, {"logits"}).logits.shape == (90, 4)


def test_binary_svc_margin_is_made_symmetric():
    X, y = data(2)
    clf = SVC().fit(X, y)
    margin = clf.decision_function(X)
    assert_array_equal(
        read(clf, X, {"logits"}).logits, np.stack([-margin / 2, margin / 2], axis=1)
    )


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("activation", ["identity", "relu", "tanh", "logistic"])
def test_mlp(activation, n_classes):
    X, y = data(n_classes)
    clf = fitted(mlp(hidden_layer_sizes=(7, 5), activation=activation), X, y)
    outputs = read(clf, X, ALL)
    assert_allclose(
        softmax(outputs.logits, axis=1), clf.predict_proba(X), rtol=1e-9, atol=1e-12
    )
    assert_head(outputs, rtol=1e-9, atol=1e-12)
    first, second, out = naive_mlp(clf, X[0])
    assert_allclose(outputs.features[0], second, rtol=1e-9)
    for layer, expected in [(0, first), (-3, first), (1, second), (-2, second)]:
        features = read(clf, X, {"features"}, layer=layer).features
        assert_allclose(features[0], expected, rtol=1e-9)
    for layer in (2, -1, np.int64(2)):
        features = read(clf, X, {"features", "logits"}, layer=layer).features
        assert_allclose(features[0], out, rtol=1e-9)


def test_saturated_logistic_mlp_does_not_overflow():
    X, y = data(2)
    clf = fitted(mlp(hidden_layer_sizes=(4,), activation="logistic"), X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features = read(clf, X * 1e6, {"features"}).features
    assert set(np.unique(features)) == {0.0, 1.0}


def test_mlp_without_hidden_layers_is_linear():
    X, y = data()
    clf = fitted(mlp(hidden_layer_sizes=()), X, y)
    outputs = read(clf, X, ALL)
    assert_array_equal(outputs.features, X)
    assert_allclose(softmax(outputs.logits, axis=1), clf.predict_proba(X), rtol=1e-9)
    assert_array_equal(outputs.head.coef, clf.coefs_[0].T)
    out = read(clf, X, {"features"}, layer=-1).features
    assert_array_equal(out, outputs.logits)


def test_float32_mlp_stays_float32():
    X, y = data()
    X = X.astype(np.float32)
    outputs = read(fitted(mlp(), X, y), X, ALL)
    assert outputs.features.dtype == outputs.logits.dtype == np.float32


def test_mlp_errors():
    X, y = data()
    clf = fitted(mlp(hidden_layer_sizes=(4,)), X, y)
    for layer in (2, -3, "fc"):
        with pytest.raises(ValueError, match=r"is not a layer .* index in \[-2, 1\]"):
            make_network(clf, layer=layer)
    with pytest.raises(ValueError, match="head uses the penultimate layer"):
        read(clf, X, ALL, layer=-1)
    multilabel = fitted(mlp(), X, np.stack([y == "a", y == "b"], axis=1))
    with pytest.raises(ValueError, match="multilabel targets"):
        make_network(multilabel)
    with pytest.raises(ValueError, match="X has 5 features, but MLPClassifier"):
        read(clf, X[:, :5], {"features"})
    with pytest.raises(ValueError, match="features contains infinity"):
        with np.errstate(all="ignore"):
            read(clf, np.full((2, 6), 1.7e308), {"features"})


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(5, random_state=0),
        ExtraTreesClassifier(5, random_state=0),
        KNeighborsClassifier(3),
    ],
    ids=lambda e: type(e).__name__,
)
def test_classifier_with_probabilities_only(estimator, n_classes):
    X, y = data(n_classes)
    clf = estimator.fit(X, y)
    outputs = read(clf, X, {"features", "logits"})
    proba = clf.predict_proba(X)
    assert_array_equal(outputs.features, X)
    for i in range(5):
        for k in range(n_classes):
            expected = np.log(max(proba[i, k], 2.2250738585072014e-308))
            assert outputs.logits[i, k] == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="weights of a linear head, and a"):
        read(clf, X, ALL)
    with pytest.raises(ValueError, match="has no layers: its features are its input"):
        make_network(clf, layer=0)


def test_forest_detectors_have_no_nan():
    X, y = data()
    clf = RandomForestClassifier(5, random_state=0).fit(X, y)
    assert (clf.predict_proba(X) == 0).any()
    for detector in (MSP(FrozenEstimator(clf)), Energy(FrozenEstimator(clf))):
        assert np.isfinite(detector.fit(X, y).score_samples(X)).all()
    # softmax(log p) = p: the maximum probability is that of the forest
    assert_allclose(
        MSP(FrozenEstimator(clf)).fit(X, y).score_samples(X) + 1,
        clf.predict_proba(X).max(axis=1),
        rtol=1e-12,
    )


def test_pipeline():
    X, y = data()
    clf = fitted(make_pipeline(StandardScaler(), MinMaxScaler(), mlp()), X, y)
    outputs = read(clf, X, ALL)
    assert_allclose(softmax(outputs.logits, axis=1), clf.predict_proba(X), rtol=1e-9)
    scaled = (X - X.mean(0)) / X.std(0)
    scaled = (scaled - scaled.min(0)) / (scaled.max(0) - scaled.min(0))
    hidden = np.maximum(scaled @ clf[-1].coefs_[0] + clf[-1].intercepts_[0], 0)
    assert_allclose(outputs.features, hidden, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "steps",
    [
        [("clf", LogisticRegression())],
        [("nothing", "passthrough"), ("clf", LogisticRegression())],
        [("inner", StandardScaler()), ("outer", make_pipeline(LogisticRegression()))],
    ],
)
def test_short_and_nested_pipelines(steps):
    X, y = data()
    clf = Pipeline(steps).fit(X, y)
    logits = read(clf, X, {"logits"}).logits
    assert_allclose(softmax(logits, axis=1), clf.predict_proba(X), rtol=1e-9)


def test_forest_in_a_pipeline_has_the_transformed_input_as_features():
    X, y = data()
    clf = make_pipeline(StandardScaler(), RandomForestClassifier(5)).fit(X, y)
    assert_allclose(
        read(clf, X, {"features"}).features, (X - X.mean(0)) / X.std(0), rtol=1e-9
    )


def test_pipeline_that_ends_in_a_torch_classifier():
    X, y = data()
    clf = make_pipeline(StandardScaler(), TorchClassifier(max_epochs=2, random_state=0))
    clf.fit(X, y)
    outputs = read(clf, X, ALL)
    assert_allclose(
        softmax(outputs.logits.astype(float), axis=1), clf.predict_proba(X), rtol=1e-5
    )
    assert_head(outputs, rtol=1e-4, atol=1e-5)


def test_searches_and_frozen_estimators_are_looked_through():
    X, y = data()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression()),
        {"logisticregression__C": [0.1, 1.0]},
        cv=2,
    ).fit(X, y)
    best = search.best_estimator_
    wrapped = FrozenEstimator(make_pipeline(FrozenEstimator(FrozenEstimator(search))))
    for want in (ALL, {"logits"}, {"features"}):
        expected, actual = read(best, X, want), read(wrapped, X, want)
        for name in want - {"head"}:
            assert_array_equal(getattr(actual, name), getattr(expected, name))
    assert_array_equal(read(wrapped, X, ALL).head.coef, best[-1].coef_)


def test_which_probabilities_are_the_softmax_of_the_logits():
    """All that the readers take as such are, and linear classifiers are asked."""
    X, y = make_classification(
        n_samples=80, n_features=4, n_informative=3, n_redundant=0, n_classes=3,
        random_state=0,
    )  # fmt: skip
    is_softmax = {}
    for name, model in {
        "logistic": LogisticRegression(),
        "one_vs_rest": SGDClassifier(loss="log_loss", random_state=0),
        "ridge": RidgeClassifier(),
        "svc": SVC(),
        "mlp": MLPClassifier((4,), max_iter=5, random_state=0),
        "forest": RandomForestClassifier(n_estimators=5, random_state=0),
        "torch": TorchClassifier(max_epochs=1, random_state=0),
    }.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        is_softmax[name] = predicts_softmax(model)
        assert predicts_softmax(FrozenEstimator(model)) == is_softmax[name]
        assert predicts_softmax(Pipeline([("last", model)])) == is_softmax[name]
        if is_softmax[name] and hasattr(model, "predict_proba"):
            logits = read(model, X, {"logits"}).logits.astype(float)
            assert_allclose(softmax(logits, axis=1), model.predict_proba(X), atol=1e-6)
    assert [name for name in is_softmax if not is_softmax[name]] == [
        "logistic",
        "one_vs_rest",
    ]


def test_text():
    texts = ["the cat sat", "a dog barked", "cat and cat", "dog or dog"] * 5
    y = ["cat", "dog", "cat", "dog"] * 5
    clf = make_pipeline(CountVectorizer(), LogisticRegression())
    detector = MSP(estimator=clf).fit(texts, y)
    new = ["cat cat cat", "nothing known", "dog barked"]
    expected = detector.estimator_.predict_proba(new).max(axis=1) - 1
    assert_allclose(detector.score_samples(new), expected, rtol=1e-9)
    assert detector.score_samples(new).argmin() == 1
    assert detector.score(new, ["cat", -1, "dog"]) == 1.0
    features = read(detector.estimator_, new, {"features"}).features  # sparse counts
    counts = detector.estimator_[0].transform(new)
    assert_array_equal(features.toarray(), counts.toarray())


def test_linear_head_keeps_its_two_logits():
    X, _ = data(2)
    rng = np.random.default_rng(0)
    head = LinearHead(rng.normal(size=(2, 6)), rng.normal(size=2), ["a", "b"])
    outputs = read(head, X, ALL)
    assert_array_equal(outputs.logits, head.predict_logits(X))
    assert np.ptp(outputs.logits.sum(axis=1)) > 1  # they are not symmetric
    assert_array_equal(outputs.head.coef, head.coef_)


def test_find_head_names_the_place():
    X, y = data()
    clf = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    head, place = make_network(clf).find_head()
    assert place == "penultimate"
    assert_array_equal(head.coef, clf[-1].coef_)
    with pytest.raises(ValueError, match="a KNeighborsClassifier has none"):
        split(KNeighborsClassifier().fit(X, y))


def test_unfitted_and_unreadable():
    X, y = data()
    for estimator in (LogisticRegression(), mlp(), RandomForestClassifier(), SVC()):
        with pytest.raises(NotFittedError):
            make_network(estimator)
    for estimator in (
        LinearRegression().fit(X, np.arange(90)),
        fitted(MLPRegressor(max_iter=2), X, np.arange(90)),
    ):
        with pytest.raises(TypeError, match="must be a classifier, got the regressor"):
            make_network(estimator)
    for thing in (IsolationForest().fit(X), "passthrough", None):
        with pytest.raises(TypeError, match="estimator must be a classifier with"):
            make_network(thing)
    hard = VotingClassifier([("a", LogisticRegression())], voting="hard").fit(X, y)
    with pytest.raises(TypeError, match=r"must be a classifier .* got VotingClassif"):
        make_network(hard)  # it only predicts
    with pytest.raises(TypeError, match=r"Sequential. Wrap a trained one with skood"):
        make_network(torch.nn.Sequential())
    with pytest.raises(ValueError, match="no layers"):
        make_network(LogisticRegression().fit(X, y), layer="fc")


def test_classifier_that_does_not_count_its_features():
    class Constant(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.classes_ = np.unique(y)
            return self

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    X = [[1.0, 2.0], [3.0, 4.0]]
    clf = Constant().fit(X, [0, 1])
    outputs = read(clf, X, {"features", "logits"})
    assert_array_equal(outputs.features, X)
    assert_allclose(outputs.logits, np.log(0.5))
    with pytest.raises(ValueError, match="contains NaN"):
        read(clf, [[np.nan, 0.0]], {"features"})


def test_nan_logits_raise():
    X, y = data()

    clf = LogisticRegression().fit(X, y)
    clf.intercept_ = clf.intercept_ * np.nan
    with pytest.raises(ValueError, match="logits contains NaN"):
        read(clf, X, {"logits"})


@pytest.mark.parametrize("row", [0, -1])
@pytest.mark.parametrize("n_samples", [1, 2, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_finiteness_is_tested_on_logits(n_classes, dtype, n_samples, row):
    """Also of a feature without weights, and errors name what is not finite."""
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(n_classes, 5)), rng.normal(size=n_classes)
    W[:, 2] = 0.0
    X, y = rng.normal(size=(60, 5)), np.arange(60) % n_classes
    linear = LogisticRegression().fit(X, y)
    linear.coef_[:, 2] = 0.0
    queries = rng.normal(size=(n_samples, 5)).astype(dtype)
    layouts = (np.copy, lambda Q: Q.copy("F"), lambda Q: Q.repeat(2, 1)[:, ::2])
    head = LinearHead(W, b).fit(X, y)
    for estimator in (head, linear):
        margins = estimator.decision_function(queries)
        logits = read(estimator, queries, {"logits"}).logits
        if n_classes == 2:
            assert_array_equal(logits[:, 1] - logits[:, 0], margins)
        else:
            assert_array_equal(logits, margins)
        for value, layout in zip([np.nan, np.inf, -np.inf], layouts, strict=True):
            wrong = layout(queries)
            wrong[row, 2] = value
            with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
                read(estimator, wrong, {"logits"})
    large = queries.copy()
    large[row] = np.finfo(dtype).max
    with pytest.raises(ValueError, match="A logit overflows float64"):
        read(LinearHead(np.ones_like(W), b).fit(X, y), large, {"logits"})
    linear.coef_[:] = 1.0
    if dtype == np.float64:
        with pytest.raises(ValueError, match="Input logits contains infinity"):
            read(linear, large, {"logits"})
    else:  # whose sums do not overflow in float64
        assert np.isfinite(read(linear, large, {"logits"}).logits).all()


def test_sum_of_finite_logits_may_overflow():
    head = LinearHead(1e308 * np.eye(2), np.zeros(2))
    logits = read(head, np.ones((3, 2)), {"logits"}).logits
    assert_array_equal(logits, np.full((3, 2), 1e308))


def test_joined_and_cut_outputs():
    from skood.nn._outputs import NetworkOutputs, concatenate

    X, y = data()
    outputs = read(LogisticRegression().fit(X, y), X, ALL)
    assert outputs.n_samples == 90
    block = outputs.take(slice(10, 20))
    assert block.n_samples == 10 and block.head is outputs.head
    assert block.features.base is not None
    again = concatenate([outputs.take(slice(0, 40)), outputs.take(slice(40, None))])
    assert_array_equal(again.logits, outputs.logits)
    assert_array_equal(again.features, outputs.features)
    only = concatenate([NetworkOutputs(logits=outputs.logits)] * 2)
    assert only.features is None and only.n_samples == 180
    assert only.take(slice(5)).features is None
    assert NetworkOutputs(features=X).take(slice(5)).logits is None
    assert NetworkOutputs(head=outputs.head).n_samples == 0

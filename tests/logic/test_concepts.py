"""Concepts: names and parameters of classifiers, labels in columns, values."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from skood.detectors import KNN, MSP, Mahalanobis
from skood.logic import ConceptFusion, MLNDetector
from skood.logic._concepts import (
    ConceptSource,
    concept_domains,
    label_columns,
    predict_codes,
    predict_proba,
    samples_at,
    source_labels,
)
from skood.nn import pretrained
from tests.logic._signs import NAMES, Column, columns, signs
from tests.nn._outputs import Counter

LINEAR = LogisticRegression()


def detector(concepts):
    return MLNDetector([], concepts)


# ------------------------------------------------------------------------- parameters


def test_classifiers_are_parameters():
    model = detector([("class", LogisticRegression(C=2.0)), ("color", Column())])
    assert model.get_params()["class__C"] == 2.0
    model.set_params(color__C=5.0)
    assert model.concepts[1][1].C == 5.0
    model.set_params(color=LINEAR)
    assert model.concepts == [model.concepts[0], ("color", LINEAR)]
    model.set_params(concepts=[("shape", Column(3))], shape__column=2)
    assert model.get_params()["shape__column"] == 2
    assert clone(model).get_params()["shape__column"] == 2
    with pytest.raises(ValueError, match="Invalid parameter 'color'"):
        model.set_params(color=LINEAR)


def test_a_classifier_of_several_concepts_is_a_parameter_too():
    several = MultiOutputClassifier(LogisticRegression(C=3.0))
    model = detector([("class", Column()), (("color", "shape"), several)])
    assert model.get_params()["color_shape__estimator__C"] == 3.0
    model.set_params(color_shape__estimator__C=4.0)
    assert several.estimator.C == 4.0
    model.set_params(color_shape=Column(1))
    assert model.concepts[1][0] == ("color", "shape")
    copy = clone(model)
    assert copy.concepts[1][0] == ("color", "shape")
    assert type(copy.concepts[1][1]) is Column


def test_parameters_of_what_is_no_list():
    for bad in (None, 3, [1, 2], [("a",)]):
        assert set(detector(bad).get_params()) == set(
            MLNDetector([], []).get_params(deep=False)
        )


@pytest.mark.parametrize(
    "pairs, error, text",
    [
        ("class", TypeError, r"must be a list of \(name, classifier\), got 'class'"),
        ([LINEAR], TypeError, "must be a list of"),
        ([("a", LINEAR, 1)], TypeError, "must be a list of"),
        ([(1, LINEAR)], TypeError, "must be a list of"),
        ([((), LINEAR)], TypeError, "must be a list of"),
        ([(("a", 1), LINEAR)], TypeError, "must be a list of"),
        ([], ValueError, r"concepts=\[\] has no classifier"),
        ([("a__b", LINEAR)], ValueError, r"contain '__' .* got \['a__b'\]"),
        ([("", LINEAR)], ValueError, "must not be empty"),
        ([("fusion", LINEAR)], ValueError, r"a parameter of MLNDetector, .*'fusion'"),
        ([(("fusion", "a"), LINEAR)], ValueError, r"\['fusion'\]"),
        ([("a", LINEAR), ("a", LINEAR)], ValueError, r"distinct, got twice: \['a'\]"),
        ([("a", LINEAR), (("b", "a"), LINEAR)], ValueError, r"twice: \['a'\]"),
        ([("a_b", LINEAR), (("a", "b"), LINEAR)], ValueError, r"twice: \['a_b'\]"),
        ([("a", "drop")], TypeError, "got 'drop' without fit, predict"),
        ([("a", LogisticRegression)], TypeError, "'>: a class"),
    ],
)
def test_bad_parts(pairs, error, text):
    with pytest.raises(error, match=text):
        detector(pairs).fit(np.zeros((4, 2)), [0, 1, 0, 1])


# ----------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    "y, text",
    [
        ([0, 1], r"a column of labels for each of the 2 concepts \['a', 'b'\]"),
        ([[0, 1, 2]], r"Got 3 column\(s\)"),
        (pd.DataFrame({"a": [0], "z": [1]}), r"no column for .*\['b'\]; .*'z'"),
        (pd.DataFrame({"a": [0], "b": [np.nan]}), "NaN"),
        ([[0, None]], "NaN or None"),
        ([[0, -1], [-1, 2]], "every label in y equals ood_label=-1"),
    ],
)
def test_bad_labels(y, text):
    with pytest.raises(ValueError, match=text):
        label_columns(y, ["a", "b"], -1)


def test_labels_of_a_concept_source():
    columns = {
        "a": np.array(["x", "y", -1], dtype=object),
        "b": np.array([3, 4, 5]),
        "c": np.array([0.5, 1.5, 2.5]),
        "d": np.array([7, 8, 9]),
    }
    rows = np.array([0, 1])
    labels = source_labels(ConceptSource("a", ("a",), None), columns, rows)
    assert labels.dtype.kind == "U"
    assert labels.tolist() == ["x", "y"]
    same = source_labels(ConceptSource("b_d", ("b", "d"), None), columns, rows)
    assert same.dtype.kind == "i"
    mixed = source_labels(ConceptSource("a_b", ("a", "b"), None), columns, rows)
    assert mixed.tolist() == [["x", 3], ["y", 4]]
    with pytest.raises(ValueError, match=r"label type: continuous. .* concept 'c'"):
        source_labels(ConceptSource("c", ("c",), None), columns, rows)


# ----------------------------------------------------------------------------- values


def part(name="a", classifier=None):
    return ConceptSource(name, (name,), classifier)


def frozen(labels):
    labels = np.asarray(labels)
    return FrozenEstimator(Column().fit(np.zeros((len(labels), 1)), labels))


def test_values_are_those_of_labels_and_of_frozen_classifiers():
    parts = [part("a", Column()), part("b", frozen(["x", "z"]))]
    columns = {"a": np.array([3.0, 1.0, 3.0]), "b": np.array(["y", "x"], dtype=object)}
    domains, observed = concept_domains(parts, columns, None, -1)
    assert domains == {"a": [1, 3], "b": ["x", "y", "z"]}
    assert observed == domains
    assert [type(value) for value in domains["a"]] == [int, int]


def test_domains_add_values_and_order_them():
    parts = [part("a", Column()), part("b", Column())]
    columns = {"a": np.array(["lo", "hi"]), "b": np.array([True])}
    given = {"a": ["lo", "mid", "hi"], "b": "bool"}
    domains, observed = concept_domains(parts, columns, given, -1)
    assert domains == {"a": ["lo", "mid", "hi"], "b": [False, True]}
    assert observed == {"a": ["hi", "lo"], "b": [True]}


def test_values_of_several_kinds_are_not_sorted():
    columns = {"a": np.array(["x", 1, "x"], dtype=object)}
    parts = [part("a", frozen(["x"]))]
    with pytest.raises(TypeError):
        np.unique(columns["a"])
    domains, _ = concept_domains(parts, columns, None, -1)
    assert domains == {"a": ["x", 1]}


@pytest.mark.parametrize(
    "given, columns, text",
    [
        ({"z": [1]}, {"a": np.array([1])}, r"domains names \['z'\], which are not"),
        ({"a": [1]}, {"a": np.array([1, 2])}, r"domains\['a'\]=\[1\] lacks \[2\]"),
        ({"a": "bool"}, {"a": np.array(["x"])}, r"\[False, True\] lacks \['x'\]"),
        # sets have no order
        ({"a": {"x", "y"}}, {"a": np.array(["x"])}, "must be a list or 'bool'"),
        ({"a": "xy"}, {"a": np.array(["x"])}, "must be a list or 'bool', got 'xy'"),
        (None, {}, "values of the concept 'a' are unknown"),
    ],
)
def test_bad_domains(given, columns, text):
    without = FrozenEstimator(LogisticRegression())
    parts = [part("a", without)]
    error = TypeError if "must be a list" in text else ValueError
    with pytest.raises(error, match=text):
        concept_domains(parts, columns, given, -1)


def test_values_of_a_frozen_classifier_of_several_concepts():
    labels = np.array([["x", "u"], ["y", "u"], ["x", "v"]])
    tree = DecisionTreeClassifier().fit(np.zeros((3, 1)), labels)
    part = ConceptSource("a_b", ("a", "b"), FrozenEstimator(tree))
    domains, _ = concept_domains([part], {}, None, -1)
    assert domains == {"a": ["x", "y"], "b": ["u", "v"]}


@pytest.mark.parametrize(
    "concepts, labels, text",
    [
        (("a",), np.array([[0, 1], [1, 0]]), "fitted on several columns of y"),
        (("a", "b"), np.array([0, 1]), r"\['a', 'b'\] is frozen.* not 2 arrays"),
        (("a", "b"), np.eye(3, dtype=int), r"classes_ are not 2 arrays.*\[array"),
        (("a", "b"), np.arange(99), r"…\. Name the columns of y"),
    ],
)
def test_frozen_classifiers_of_other_columns(concepts, labels, text):
    tree = DecisionTreeClassifier().fit(np.zeros((len(labels), 1)), labels)
    part = ConceptSource("_".join(concepts), concepts, FrozenEstimator(tree))
    with pytest.raises(ValueError, match=text):
        concept_domains([part], {}, None, -1)


def test_probabilities_of_several_concepts_are_a_list():
    """A classifier of several labels at once gives an array."""
    X, y = np.arange(12.0).reshape(6, 2), np.array([[0, 1], [1, 0], [1, 1]] * 2)
    both = OneVsRestClassifier(LogisticRegression()).fit(X, y)
    part = ConceptSource("a_b", ("a", "b"), both)
    with pytest.raises(TypeError, match=r"array of shape \(6, 2\) .* not a list"):
        predict_proba(part, X, {"a": [0, 1], "b": [0, 1]})


def test_ood_label_is_no_value():
    parts = [part("a", frozen([-1, 1]))]
    with pytest.raises(ValueError, match="ood_label=-1 is a value of the concept 'a'"):
        concept_domains(parts, {}, None, -1)
    assert concept_domains(parts, {}, None, -2)[0] == {"a": [-1, 1]}


# ---------------------------------------------------------------------------- reading


def test_codes_and_probabilities_go_by_the_domain():
    source = part("a", Column(0).fit(None, np.array(["x", "y"])))
    domains = {"a": ["y", "w", "x"]}
    X = np.array([[0.0], [1.0], [0.2]])
    (codes,) = predict_codes(source, X, domains)
    assert codes.tolist() == [2, 0, 2]
    (proba,) = predict_proba(source, X, domains)
    theirs = source.classifier.predict_proba(X)
    np.testing.assert_array_equal(proba[:, [2, 0]], theirs)
    np.testing.assert_array_equal(proba[:, 1], 0.0)


def test_several_outputs():
    X, y = signs(200)
    y = y[:, 1:].astype(str)
    several = MultiOutputClassifier(LINEAR).fit(X, y)
    source = ConceptSource("color_shape", ("color", "shape"), several)
    domains = {"color": ["blue", "red"], "shape": ["triangle", "octagon"]}
    actual = predict_codes(source, X, domains)
    labels = several.predict(X)
    for name, codes, column in zip(NAMES[1:], actual, labels.T, strict=True):
        assert [domains[name][code] for code in codes] == column.tolist()
    color, shape = predict_proba(source, X, domains)
    theirs = several.predict_proba(X)
    np.testing.assert_array_equal(color, theirs[0])
    np.testing.assert_array_equal(shape, theirs[1][:, ::-1])


def test_prediction_errors():
    source = part("a", Column().fit(None, np.array(["x", "y"])))
    with pytest.raises(ValueError, match=r"predicts 'y', which is not among .*'x'"):
        predict_codes(source, np.array([[1.0]]), {"a": ["x"]})
    two = ConceptSource("a_b", ("a", "b"), source.classifier)
    with pytest.raises(ValueError, match=r"shape \(1,\), not one column for each"):
        predict_codes(two, np.array([[1.0]]), {"a": ["x", "y"], "b": ["x", "y"]})

    class NoProba:
        def predict(self, X):
            return X

    with pytest.raises(TypeError, match=r"concept 'a' are needed .* no predict_proba"):
        predict_proba(part("a", NoProba()), np.zeros((1, 1)), {"a": [0]})


def networks():
    """A network for the class, and readers of the other concepts."""
    module = Counter(n_inputs=3)
    net = pretrained(module, classes=["other", "stop_sign", "yield"])
    return module, net, [("class", net), *columns()[1:]]


@pytest.mark.parametrize("detector", ["confidence", "msp", "mahalanobis"])
def test_a_network_runs_once_per_call(detector):
    X, y = signs(200, 20)
    X = X.astype(np.float32)
    module, net, readers = networks()
    given = {"confidence": detector, "msp": MSP(net), "mahalanobis": Mahalanobis(net)}
    model = MLNDetector(
        ["class = yield -> shape = triangle"],
        readers,
        given[detector],
        fusion=ConceptFusion(normalizer="empirical"),
        marginalize=True,
        random_state=0,
    ).fit(X, y)
    module.sizes.clear()
    scores = model.score_samples(X)
    assert sum(module.sizes) == len(X)
    alone = [model.score_samples(X[i : i + 1])[0] for i in range(0, 220, 20)]
    np.testing.assert_allclose(scores[::20], alone, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.predict_concepts(X)[:, 0], net.predict(X))


def test_a_shared_network_of_scikit_learn():
    X, y = signs(200, 20)
    labels = np.where(y[:, 0] == -1, "other", y[:, 0]).astype(str)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        net = FrozenEstimator(MLPClassifier(8, max_iter=30).fit(X, labels))
    model = MLNDetector(
        ["class = yield -> shape = triangle"],
        [("class", net), *columns()[1:]],
        KNN(net),
        fusion=ConceptFusion(normalizer="empirical"),
        marginalize=True,
    ).fit(X, y)
    actual = model._read(X)
    np.testing.assert_allclose(actual.proba[0], net.predict_proba(X), rtol=1e-6)
    np.testing.assert_array_equal(model.predict_concepts(X)[:, 0], net.predict(X))
    np.testing.assert_allclose(actual.outlier, -model.detector_.score_samples(X))


def test_chunks(monkeypatch):
    X, y = signs(200, 20)
    X = X.astype(np.float32)
    _, net, readers = networks()
    for params in ({}, {"marginalize": True}):
        model = MLNDetector(
            ["class = yield -> shape = triangle"],
            readers,
            MSP(net),
            fusion=ConceptFusion(normalizer="norm"),
            random_state=0,
            **params,
        ).fit(X, y)
        together = model.score_samples(X)
        monkeypatch.setattr("skood.nn._shared_forward._SHARED_SAMPLES", 64)
        np.testing.assert_allclose(model.score_samples(X), together, rtol=1e-5)
        monkeypatch.undo()


def test_a_network_reads_the_same_labels_with_and_without_probabilities():
    X, y = signs(100)
    X = X.astype(np.float32)
    _, net, readers = networks()
    actual = []
    for params in ({}, {"marginalize": True}):
        fusion = ConceptFusion(normalizer="norm")
        model = MLNDetector(
            [], readers, MSP(net), fusion=fusion, random_state=0, **params
        )
        model.fit(X, y)
        actual.append(model._read(X))
    np.testing.assert_array_equal(actual[0].codes, actual[1].codes)
    assert actual[0].proba is None
    assert [p.shape for p in actual[1].proba] == [(100, 3), (100, 2), (100, 2)]


def test_samples_at():
    X = np.arange(6).reshape(3, 2)
    assert samples_at(X, np.arange(3)) is X
    np.testing.assert_array_equal(samples_at(X, np.array([2, 1, 0])), X[::-1])
    np.testing.assert_array_equal(samples_at(X, np.array([1])), X[[1]])

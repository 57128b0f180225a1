"""Tests of the scorers, with tiny estimators whose scores are known."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skood import metrics
from skood.detectors import KNN
from skood.metrics import (
    auroc,
    detection_error,
    fpr_at_tpr,
    make_misclassification_scorer,
    make_ood_scorer,
    make_selective_risk_scorer,
)
from skood.model_selection import LeaveClassesOut, OODStratifiedKFold
from skood.rejection import RejectOptionClassifier
from skood.utils._metaestimators import concept_columns
from tests.metrics._scored import Classify, Detector, ProbabilityDetector, outputs

RNG = np.random.RandomState(0)


# ------------------------------------------------------------------- make_ood_scorer

Y = RNG.choice([0, 1, 2, -1], 200)
X = outputs(np.zeros(200), RNG.normal(size=200).round(1) + (Y != -1))
IS_ID = (Y != -1).astype(int)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("auroc", roc_auc_score(IS_ID, X[:, 1])),
        ("aupr_in", average_precision_score(IS_ID, X[:, 1])),
        ("aupr_out", average_precision_score(1 - IS_ID, -X[:, 1])),
        ("fpr_at_tpr", -fpr_at_tpr(Y, X[:, 1])),
        ("detection_error", -detection_error(Y, X[:, 1])),
        (roc_auc_score, roc_auc_score(IS_ID, X[:, 1])),
    ],
)
def test_value_of_each_metric(metric, expected):
    """Functions of skood are their names: fpr_at_tpr is not maximized."""
    scorer, detector = make_ood_scorer(metric), Detector().fit()
    score = scorer(detector, X, Y)
    assert isinstance(score, float)
    assert_allclose(score, expected, rtol=1e-12)
    assert pickle.loads(pickle.dumps(scorer))(detector, X, Y) == score
    by_function = make_ood_scorer(getattr(metrics, str(metric), metric))
    assert repr(by_function) == repr(scorer)
    assert by_function(detector, X, Y) == score


def test_metric_parameters_are_passed_on():
    scorer = make_ood_scorer("fpr_at_tpr", tpr=0.5, positive="ood")
    expected = -fpr_at_tpr(Y, X[:, 1], tpr=0.5, positive="ood")
    assert scorer(Detector().fit(), X, Y) == expected
    assert expected != -fpr_at_tpr(Y, X[:, 1])


def mean_gap(y_true, y_score, power=1):
    return (y_score[y_true == -1].mean() - y_score[y_true == 1].mean()) ** power


def test_callable_metric_and_its_direction():
    gap = X[IS_ID == 0, 1].mean() - X[IS_ID == 1, 1].mean()
    detector = Detector().fit()
    scorer = make_ood_scorer(mean_gap, greater_is_better=False)
    assert_allclose(scorer(detector, X, Y), -gap)
    assert_allclose(make_ood_scorer(mean_gap, power=2)(detector, X, Y), gap**2)


def test_left_out_classes_are_ood():
    """A fitted detector that has not seen class 2 counts it as OOD."""
    detector = Detector().fit(X, np.where(Y == 2, 1, Y))
    assert_array_equal(detector.classes_, [0, 1])
    is_id = (Y == 0) | (Y == 1)
    assert_allclose(
        make_ood_scorer()(detector, X, Y), roc_auc_score(is_id, X[:, 1]), rtol=1e-12
    )


def test_string_labels_and_ood_label():
    names = np.array(["a", "b", "c", "junk"])[Y]
    score = make_ood_scorer(ood_label="junk")(Detector().fit(), X, names)
    assert_allclose(score, roc_auc_score(IS_ID, X[:, 1]), rtol=1e-12)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("y", "kind"), [([0, 1], "out-of-distribution"), ([-1, -1], "in-distribution")]
)
def test_fold_without_ood_or_id_samples(y, kind, known):
    detector = Detector().fit(y=[0, 1] if known else None)
    hint = "is not in its classes_" if known else "has no classes_ to identify"
    with pytest.raises(
        ValueError, match=f"no {kind} samples to score Detector"
    ) as info:
        make_ood_scorer()(detector, X[:2], y)
    for text in (hint, "OODStratifiedKFold", "LeaveClassesOut"):
        assert text in str(info.value)


def test_estimator_without_score_samples():
    with pytest.raises(TypeError, match=r"with score_samples, .* Classify has none"):
        make_ood_scorer()(Classify().fit(), X, Y)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"metric": "auc"}, ValueError, r"metric must be one of \['auroc'.*Got 'auc'"),
        ({"metric": 3}, ValueError, "Got 3"),
        ({"score": "class"}, ValueError, r"one of \['ood', 'risk'\]. Got 'class'"),
        ({"metric": "auroc", "tpr": 0.9}, TypeError, r"no parameters \['tpr'\].*none"),
        ({"metric": "fpr_at_tpr", "tp": 0.9}, TypeError, r"it has \['tpr', 'positive'"),
        (
            {"metric": "fpr_at_tpr", "greater_is_better": True},
            ValueError,
            "known that greater is worse, got greater_is_better=True",
        ),
    ],
)
def test_ood_scorer_construction_errors(params, error, message):
    with pytest.raises(error, match=message):
        make_ood_scorer(**params)


@pytest.mark.parametrize(
    ("scorer", "text"),
    [
        (make_ood_scorer(), "make_ood_scorer('auroc', ood_label=-1)"),
        (
            make_ood_scorer(mean_gap, greater_is_better=False, power=3),
            "make_ood_scorer(mean_gap, ood_label=-1, greater_is_better=False, power=3)",
        ),
        (
            make_ood_scorer(component="total"),
            "make_ood_scorer('auroc', ood_label=-1, component='total')",
        ),
        (
            make_misclassification_scorer("total", ood_label="x"),
            "make_misclassification_scorer('total', ood_label='x')",
        ),
    ],
)
def test_repr(scorer, text):
    assert repr(scorer) == text


@pytest.mark.parametrize("score", ["ood", "risk"])
@pytest.mark.parametrize("in_pipeline", [False, True])
def test_scores_of_a_reject_option_classifier(score, in_pipeline):
    X, y = load_digits(return_X_y=True)
    y = np.where(y > 7, -1, y)
    clf = RejectOptionClassifier(LogisticRegression(), ood_detector=KNN())
    if in_pipeline:
        clf = make_pipeline(StandardScaler(), clf)
    cv = OODStratifiedKFold(2)
    scorer = make_ood_scorer("fpr_at_tpr", tpr=0.9, score=score)
    actual = cross_val_score(clf, X, y, cv=cv, scoring=scorer, error_score="raise")
    for value, (train, test) in zip(actual, cv.split(X, y), strict=True):
        fitted, X_test = clone(clf).fit(X[train], y[train]), X[test]
        if in_pipeline:
            fitted, X_test = fitted[-1], fitted[0].transform(X_test)
        scores = fitted.ood_detector_.score_samples(X_test)
        if score == "risk":
            scores = fitted.predict_proba(X_test).max(axis=1)
        accepted = scores >= np.quantile(
            scores[y[test] >= 0], 0.1, method="inverted_cdf"
        )
        assert value == pytest.approx(-accepted[y[test] < 0].mean(), abs=0.005)
    assert repr(scorer) == "make_ood_scorer('fpr_at_tpr', ood_label=-1, " + (
        "tpr=0.9)" if score == "ood" else "score='risk', tpr=0.9)"
    )


def test_a_reject_option_classifier_without_ood_score():
    X, y = load_digits(return_X_y=True)
    y = np.where(y > 7, -1, y)
    clf = RejectOptionClassifier(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match=r"no ood_detector.*score='risk'"):
        make_ood_scorer()(clf, X, y)
    assert make_ood_scorer(score="risk")(clf, X, y) > 0.8


# ------------------------------------------------------------ uncertainty classifiers


class Doubt(ClassifierMixin, BaseEstimator):
    """Predicts class 0, and reads its uncertainties off the columns."""

    classes_ = np.array([0, 1, 2])

    def fit(self, X=None, y=None):
        self.fitted_ = True
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def predict_uncertainty(self, X):
        return {"epistemic": -X[:, 1], "aleatoric": X[:, 1] ** 2, "total": X[:, 0]}


@pytest.mark.parametrize("component", ["epistemic", "aleatoric", "total"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_uncertainty_is_scored_with_a_minus(component, wrapped):
    estimator, samples = Doubt().fit(), X
    if wrapped:
        estimator = make_pipeline(FunctionTransformer(np.negative), estimator).fit(X, Y)
        samples = -X
    u = Doubt().fit().predict_uncertainty(X)[component]
    actual = make_ood_scorer(component=component)(estimator, samples, Y)
    assert_allclose(actual, roc_auc_score(IS_ID, -u), rtol=1e-12)


def test_score_samples_goes_before_uncertainty():
    class Both(Detector):
        def predict_uncertainty(self, X):
            raise AssertionError

    detector = Both().fit()
    assert make_ood_scorer()(detector, X, Y) == make_ood_scorer()(
        Detector().fit(), X, Y
    )


@pytest.mark.parametrize("component", ["epistemic", "aleatoric", "total"])
def test_misclassification_scorer(component):
    """The AUROC of right against wrong rows; OOD rows are not looked at."""
    names = np.where(np.arange(200) % 10 == 0, 7, Y)  # a class that is not known
    actual = make_misclassification_scorer(component)(Doubt().fit(), X, names)
    is_id = np.isin(names, [0, 1, 2])
    u = Doubt().fit().predict_uncertainty(X)[component][is_id]
    assert_allclose(actual, roc_auc_score(Y[is_id] == 0, -u), rtol=1e-12)
    scorer = make_misclassification_scorer(component)
    assert pickle.loads(pickle.dumps(scorer))(Doubt().fit(), X, names) == actual


@pytest.mark.parametrize(("label", "word"), [(0, "right"), (1, "wrong")])
def test_misclassification_scorer_needs_both_kinds(label, word):
    with pytest.raises(ValueError, match=f"Doubt is {word} on all 200 in-distribution"):
        make_misclassification_scorer()(Doubt().fit(), X, np.full(200, label))


def test_errors_of_scorers_of_uncertainties():
    with pytest.raises(TypeError, match="Detector has no predict_uncertainty"):
        make_misclassification_scorer()(Detector().fit(), X, Y)
    with pytest.raises(ValueError, match="no in-distribution samples to score Doubt"):
        make_misclassification_scorer(ood_label=3)(Doubt().fit(), X, np.full(200, 3))
    for make in (make_ood_scorer, make_misclassification_scorer):
        with pytest.raises(ValueError, match=r"component must be one of .*Got 'all'"):
            make(component="all")


# ------------------------------------------------------------ in scikit-learn's hands


def test_grid_search_with_left_out_classes():
    """Each split's score is what a loop over the same splits gives."""
    X, y = load_digits(return_X_y=True)
    X, y = X[::3] / 16, y[::3]
    cv = LeaveClassesOut(3, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), ProbabilityDetector()),
        {"probabilitydetector__C": [1e-3, 1.0]},
        scoring={"auroc": make_ood_scorer(), "risk": make_selective_risk_scorer(0.7)},
        refit="auroc",
        cv=cv,
        error_score="raise",
    ).fit(X, y)
    results = search.cv_results_
    for i, (train, test) in enumerate(cv.split(X, y)):
        best = clone(search.estimator).set_params(**results["params"][1])
        best.fit(X[train], y[train])
        is_id = np.isin(y[test], best.classes_)
        assert is_id.any() and not is_id.all()
        expected = roc_auc_score(is_id, best.score_samples(X[test]))
        assert_allclose(results[f"split{i}_test_auroc"][1], expected, rtol=1e-12)
        assert results[f"split{i}_test_risk"][1] <= 0
    assert results["mean_test_auroc"].max() > 0.8


def test_cross_validation_with_known_ood_samples():
    X = np.concatenate([np.linspace(-1, 1, 40), np.linspace(5, 9, 10)])[:, None]
    y = np.repeat([0, -1], [40, 10])
    cv = OODStratifiedKFold(5, ood_in_train=False)
    scores = cross_val_score(KernelDensity(), X, y, cv=cv, scoring=make_ood_scorer())
    assert_array_equal(scores, np.ones(5))
    with config_context(enable_metadata_routing=True):
        scoring = {"a": make_ood_scorer(), "b": make_ood_scorer("fpr_at_tpr")}
        # params: without them scikit-learn 1.6.0 trips over its own default
        results = cross_validate(
            KernelDensity(), X, y, cv=cv, scoring=scoring, params={}
        )
    assert_array_equal(results["test_a"], np.ones(5))
    assert_array_equal(results["test_b"], np.zeros(5))


@pytest.mark.parametrize("tpr", [0.5, 0.9])
def test_partial_of_our_metric_keeps_its_direction(tpr):
    scorer = make_ood_scorer(partial(fpr_at_tpr, tpr=tpr))
    expected = -fpr_at_tpr(Y, X[:, 1], tpr=tpr)
    assert_allclose(scorer(Detector().fit(), X, Y), expected, rtol=1e-12)
    assert repr(scorer) == f"make_ood_scorer('fpr_at_tpr', ood_label=-1, tpr={tpr})"
    again = make_ood_scorer(partial(fpr_at_tpr, tpr=0.1), tpr=tpr)
    assert repr(again) == repr(scorer)


def test_other_partials():
    scorer = make_ood_scorer(partial(roc_auc_score, average="macro"))
    expected = roc_auc_score(IS_ID, X[:, 1])
    assert_allclose(scorer(Detector().fit(), X, Y), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="greater is worse, got"):
        make_ood_scorer(partial(fpr_at_tpr, tpr=0.9), greater_is_better=True)
    with pytest.raises(TypeError, match="fixes arguments by their position"):
        make_ood_scorer(partial(fpr_at_tpr, Y))


# ------------------------------------------------------------------ several concepts


class ConceptScorer(BaseEstimator):
    """A detector of several concepts, whose score is the first column."""

    def __init__(self, concepts_=("class", "color")):
        self.concepts_ = list(concepts_)
        self.classes_ = np.array(["cat", "dog"])
        self.offset_ = 0.0

    def fit(self, X, y):
        return self

    def score_samples(self, X):
        return np.asarray(X)[:, 0]


def test_labels_of_several_concepts():
    y = pd.DataFrame(
        {
            "color": ["red", "red", "blue", -1, "red"],
            "class": ["cat", "dog", "cow", "cat", "dog"],
            "other": [1, 2, 3, 4, 5],
        }
    )
    X = np.array([[5.0], [1.0], [3.0], [2.0], [4.0]])
    flat = np.where([False, False, True, True, False], -1, 1)
    expected = auroc(flat, X[:, 0])
    scorer = make_ood_scorer()
    first = ConceptScorer()
    # columns go by their names
    for estimator in (
        first,
        FrozenEstimator(first),
        make_pipeline("passthrough", first),
        make_pipeline("passthrough", make_pipeline(FrozenEstimator(first))),
    ):
        assert scorer(estimator, X, y) == expected
        assert scorer(estimator, X, y[["class", "color"]].to_numpy()) == expected
    # of one concept there is a column, and no warning of a column vector
    single = ConceptScorer(("class",))
    with warnings.catch_warnings(action="error"):
        assert scorer(single, X, y[["class"]]) == auroc(
            np.where(y["class"] == "cow", -1, 1), X[:, 0]
        )
    assert concept_columns(y[["class"]], first) is not None
    rest = y[["other", "color"]]
    assert concept_columns(rest, first) is rest
    # a column of the first concept may be all there is, in a table or not
    for column in (y[["class"]], y[["class"]].to_numpy(), y["class"]):
        assert_array_equal(concept_columns(column, first), y["class"])
    assert concept_columns(y, object()) is y

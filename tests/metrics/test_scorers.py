"""Tests of the scorers, with tiny estimators whose scores are known."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skood.metrics import (
    aupr_in,
    aupr_out,
    auroc,
    detection_error,
    fpr_at_tpr,
    make_ood_scorer,
    make_selective_risk_scorer,
)
from skood.model_selection import LeaveClassesOut, OODStratifiedKFold

RNG = np.random.RandomState(0)


class Classify(BaseEstimator):
    """Predicts column 0 of X."""

    def __init__(self, classes=(0, 1)):
        self.classes = classes

    def fit(self, X=None, y=None):
        self.classes_ = np.array(self.classes)
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0].astype(int)


class Detector(BaseEstimator):
    """Scores by `sign` times column 1 of X; knows the classes of y."""

    def __init__(self, sign=1.0):
        self.sign = sign

    def fit(self, X=None, y=None):
        if y is not None:
            self.classes_ = np.unique(np.asarray(y)[np.asarray(y) != -1])
        self.estimator_ = Classify().fit()
        return self

    def score_samples(self, X):
        return self.sign * np.asarray(X)[:, 1]


class Decider(BaseEstimator):
    """Accepts with the probability in column 1 of X; rejects by predict -1."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X=None, y=None):
        self.estimator_ = Classify().fit()
        self.classes_ = self.estimator_.classes_
        return self

    def accept_proba(self, X):
        return self.scale * np.asarray(X)[:, 1]

    def predict(self, X):
        return np.where(self.accept_proba(X) > 0.5, self.estimator_.predict(X), -1)


def rows(y_pred, score):
    return np.column_stack([y_pred, score]).astype(float)


# ------------------------------------------------------------------- make_ood_scorer

Y = RNG.choice([0, 1, 2, -1], 200)
X = rows(np.zeros(200), RNG.normal(size=200).round(1) + (Y != -1))
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
    score = make_ood_scorer(metric)(Detector().fit(), X, Y)
    assert isinstance(score, float)
    assert_allclose(score, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (auroc, "auroc"),
        (aupr_in, "aupr_in"),
        (aupr_out, "aupr_out"),
        (fpr_at_tpr, "fpr_at_tpr"),
        (detection_error, "detection_error"),
    ],
)
def test_our_functions_are_their_names(function, name):
    """Otherwise fpr_at_tpr given as a function would be maximised."""
    by_function, by_name = make_ood_scorer(function), make_ood_scorer(name)
    assert repr(by_function) == repr(by_name)
    detector = Detector().fit()
    assert by_function(detector, X, Y) == by_name(detector, X, Y)


def test_metric_parameters_are_passed_on():
    scorer = make_ood_scorer("fpr_at_tpr", tpr=0.5, positive="ood")
    expected = -fpr_at_tpr(Y, X[:, 1], tpr=0.5, positive="ood")
    assert scorer(Detector().fit(), X, Y) == expected
    assert expected != -fpr_at_tpr(Y, X[:, 1])


def test_a_better_detector_scores_higher_by_every_metric():
    for metric in ("auroc", "aupr_in", "aupr_out", "fpr_at_tpr", "detection_error"):
        scorer = make_ood_scorer(metric)
        good, bad = (scorer(Detector(sign).fit(), X, Y) for sign in (1.0, -1.0))
        assert good > bad


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
def test_fold_without_ood_or_id_rows(y, kind, known):
    detector = Detector().fit(y=[0, 1] if known else None)
    hint = "is not in its classes_" if known else "has no classes_ by which"
    with pytest.raises(ValueError, match=f"no {kind} rows to score Detector.*") as info:
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
            make_selective_risk_scorer(0.7),
            "make_selective_risk_scorer(tpr_min=0.7, fpr_max=0.2, loss='zero_one', "
            "ood_label=-1, angles='quadrant')",
        ),
        (
            make_selective_risk_scorer(loss=mean_gap, angles="full"),
            "make_selective_risk_scorer(tpr_min=0.8, fpr_max=0.2, loss=mean_gap, "
            "ood_label=-1, angles='full')",
        ),
    ],
)
def test_repr(scorer, text):
    assert repr(scorer) == text


@pytest.mark.parametrize("make", [make_ood_scorer, make_selective_risk_scorer])
def test_pickle(make):
    scorer = make()
    again = pickle.loads(pickle.dumps(scorer))
    detector = Detector().fit()
    assert again(detector, X, Y) == scorer(detector, X, Y)


# ---------------------------------------------- make_selective_risk_scorer: decisions

# rows:         ID right  ID wrong  ID right  ID right  OOD       OOD
Y_TRUE = np.array([0, 1, 1, 0, -1, 7])
Y_PRED = np.array([0, 0, 1, 0, 0, 1])
ACCEPT = np.array([1.0, 0.5, 1.0, 0.5, 0.0, 0.4])


def test_decisions_are_judged_as_they_are():
    """TPR 3/4, FPR .2 (label 7 is unseen, hence OOD), risk .5 / 3."""
    scorer = make_selective_risk_scorer(tpr_min=0.75, fpr_max=0.2)
    score = scorer(Decider().fit(), rows(Y_PRED, ACCEPT), Y_TRUE)
    assert_allclose(score, -0.5 / 3, rtol=1e-14)


@pytest.mark.parametrize(
    ("tpr_min", "fpr_max", "violation"),
    [(0.9, 0.2, 0.15), (0.7, 0.05, 0.15), (1.0, 0.0, 0.45)],
)
def test_violations_of_decisions(tpr_min, fpr_max, violation):
    scorer = make_selective_risk_scorer(tpr_min=tpr_min, fpr_max=fpr_max)
    score = scorer(Decider().fit(), rows(Y_PRED, ACCEPT), Y_TRUE)
    assert_allclose(score, -1 - violation, rtol=1e-14)


def test_accepting_nothing_is_infeasible_even_where_nothing_is_asked():
    score = make_selective_risk_scorer(tpr_min=0.0)(
        Decider(0.0).fit(), rows(Y_PRED, ACCEPT), Y_TRUE
    )
    assert score == -1.0


@pytest.mark.parametrize(("amount", "score"), [(1e-12, 0.0), (1e-6, -1.000002)])
def test_bounds_are_guarded_against_rounding(amount, score):
    """What rounding does breaks no bound, what is more does."""
    accept = np.append(np.full(10, 0.7 - amount), [0.3 + amount] * 2)
    y = np.append(np.zeros(10, dtype=int), [-1, -1])
    scorer = make_selective_risk_scorer(tpr_min=0.7, fpr_max=0.3)
    found = scorer(Decider().fit(), rows(np.zeros(12), accept), y)
    assert_allclose(found, score, rtol=1e-12)


@pytest.mark.parametrize("accept", [[1, 2, 0, 0, 0, 0], [1, np.nan, 0, 0, 0, 0]])
def test_acceptance_outside_of_its_range(accept):
    with pytest.raises(
        ValueError, match=r"Decider.accept_proba must return .* \[0, 1\]"
    ):
        make_selective_risk_scorer()(Decider().fit(), rows(Y_PRED, accept), Y_TRUE)


def test_acceptance_of_wrong_shape():
    class TwoColumns(Decider):
        def accept_proba(self, X):
            return np.ones((len(X), 2))

    with pytest.raises(ValueError, match=r"shape \(6,\); got shape \(6, 2\)"):
        make_selective_risk_scorer()(TwoColumns().fit(), rows(Y_PRED, ACCEPT), Y_TRUE)


def squared(y_true, y_pred):
    return (4.0 * (y_true - y_pred)) ** 2


@pytest.mark.parametrize("loss", [squared, [[0, 16], [16, 0]]])
def test_other_losses(loss):
    """The wrong row costs 16, and infeasible scores are below all feasible ones."""
    X = rows(Y_PRED, ACCEPT)
    scorer = make_selective_risk_scorer(tpr_min=0.7, loss=loss)
    assert_allclose(scorer(Decider().fit(), X, Y_TRUE), -16 * 0.5 / 3)
    scorer = make_selective_risk_scorer(tpr_min=0.8, loss=loss)
    assert_allclose(scorer(Decider().fit(), X, Y_TRUE), -16.05)


def test_zero_one_loss_is_its_matrix():
    X = rows(Y_PRED, ACCEPT)
    one, other = (
        make_selective_risk_scorer(tpr_min=0.7, loss=loss)(Decider().fit(), X, Y_TRUE)
        for loss in ("zero_one", 1 - np.eye(2))
    )
    assert one == other


# ------------------------------------------------ make_selective_risk_scorer: scores


def naive_best(y, y_pred, score, tpr_min, fpr_max):
    """All thresholds in a loop: minus the least risk, or the least violation."""
    is_id = (y == 0) | (y == 1)
    feasible, violated = [], []
    for threshold in np.unique(score):
        accepted = score >= threshold
        if not (accepted & is_id).any():
            continue
        tpr, fpr = accepted[is_id].mean(), accepted[~is_id].mean()
        violation = max(0, tpr_min - tpr) + max(0, fpr - fpr_max)
        if violation < 1e-9:
            feasible.append(np.mean((y_pred != y)[accepted & is_id]))
        else:
            violated.append(violation)
    return -min(feasible) if feasible else -1 - min(violated)


@pytest.mark.parametrize("seed", range(20))
def test_detector_is_judged_at_its_best_threshold(seed):
    rng = np.random.RandomState(seed)
    y = np.append(rng.choice([0, 1, -1, 5], 30), [0, -1])
    y_pred, score = rng.randint(2, size=32), rng.randint(6, size=32)
    tpr_min, fpr_max = rng.choice([0.3, 0.6, 0.9]), rng.choice([0.1, 0.4, 0.9])
    scorer = make_selective_risk_scorer(tpr_min, fpr_max)
    assert_allclose(
        scorer(Detector().fit(y=[0, 1]), rows(y_pred, score), y),
        naive_best(y, y_pred, score, tpr_min, fpr_max),
        rtol=1e-12,
        atol=1e-15,
    )


def test_infeasible_and_feasible_detectors_are_among_the_cases_above():
    """So that the comparison is not one of a single branch."""
    y, good = np.array([0, 1, -1]), rows([0, 0, 0], [2, 1, 0])
    scorer = make_selective_risk_scorer(1.0, 0.0)
    assert scorer(Detector().fit(y=[0, 1]), good, y) == -0.5
    assert_allclose(scorer(Detector(-1.0).fit(y=[0, 1]), good, y), -2.0)


def test_classes_may_come_from_the_classifier():
    """A detector that was fitted without y: the classifier's classes are {0, 1}."""
    detector = Detector().fit()
    assert not hasattr(detector, "classes_")
    y = np.array([0, 1, 7])
    assert make_selective_risk_scorer()(detector, rows([0, 1, 0], [2, 1, 0]), y) == 0.0


@pytest.mark.parametrize("estimator", [Detector(), Decider()])
def test_wrapped_estimators_score_the_same(estimator):
    """A search, pipelines and frozen estimators, one in another."""
    X = rows(Y_PRED, ACCEPT)
    scorer = make_selective_risk_scorer(tpr_min=0.7)
    fitted = estimator.fit(y=[0, 1])
    expected = scorer(fitted, X, Y_TRUE)
    double = FunctionTransformer(lambda X: 2 * X - X.mean() + X.mean() - X)
    pipe = make_pipeline("passthrough", None, double.fit(X), FrozenEstimator(fitted))
    search = GridSearchCV(
        pipe,
        {"functiontransformer__validate": [False]},
        scoring=scorer,
        cv=[(range(6),) * 2],
    ).fit(X, Y_TRUE)
    for wrapped in (FrozenEstimator(fitted), pipe, search, FrozenEstimator(search)):
        assert_allclose(scorer(wrapped, X, Y_TRUE), expected, rtol=1e-12)
    assert_allclose(search.best_score_, expected, rtol=1e-12)


def test_pipeline_transforms_for_classifier_and_acceptance():
    """The step swaps the columns back; without it the score would be another."""
    X = rows(Y_PRED, ACCEPT)
    swap = FunctionTransformer(lambda X: X[:, ::-1])
    pipe = make_pipeline(swap, Decider().fit()).fit(X[:, ::-1])
    scorer = make_selective_risk_scorer(tpr_min=0.75, fpr_max=0.2)
    assert_allclose(scorer(pipe, X[:, ::-1], Y_TRUE), -0.5 / 3, rtol=1e-14)


@pytest.mark.parametrize(
    "estimator", [Classify(), KernelDensity(), make_pipeline(Classify())]
)
def test_other_estimators_are_refused(estimator):
    with pytest.raises(
        TypeError, match=r"by accept_proba.*score_samples.*estimator_. Got"
    ):
        make_selective_risk_scorer()(estimator.fit(X), X, Y)


def test_selective_risk_scorer_needs_both_kinds_of_rows():
    with pytest.raises(
        ValueError, match=r"no out-of-distribution rows.*LeaveClassesOut"
    ):
        make_selective_risk_scorer()(Decider().fit(), rows([0, 1], [1, 1]), [0, 1])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"tpr_min": 1.5}, "tpr_min of BoundedTPRFPR must be in"),
        ({"fpr_max": -0.1}, "fpr_max of BoundedTPRFPR must be in"),
        ({"loss": "hinge"}, "loss must be 'zero_one', a callable .*Got 'hinge'"),
        ({"loss": [0.0, 1.0]}, "loss must be 'zero_one'"),
        ({"angles": "half"}, "angles must be 'quadrant' or 'full', got 'half'"),
    ],
)
def test_selective_risk_scorer_construction_errors(params, message):
    with pytest.raises(ValueError, match=message):
        make_selective_risk_scorer(**params)


# ------------------------------------------------------------ in scikit-learn's hands


class ProbabilityDetector(BaseEstimator):
    """The greatest probability of a logistic regression."""

    def __init__(self, C=1.0):
        self.C = C

    def fit(self, X, y):
        self.estimator_ = LogisticRegression(C=self.C, max_iter=300).fit(X, y)
        self.classes_ = self.estimator_.classes_
        return self

    def score_samples(self, X):
        return self.estimator_.predict_proba(X).max(axis=1)


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


def test_cross_validation_with_known_ood_rows():
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

"""Tests of the scorers that evaluate a rule, with estimators whose scores are known."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skood.detectors import KNN
from skood.metrics import (
    make_cost_scorer,
    make_rule_scorer,
    make_selective_risk_scorer,
    selective_risk_at,
)
from skood.metrics._base_scorers import largest_loss
from skood.model_selection import LeaveClassesOut, OODStratifiedKFold
from skood.rejection import (
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    RejectOptionClassifier,
    Solver,
)
from skood.utils._losses import per_sample_loss
from tests._loops import looped
from tests.metrics._double_samples import cost_curve
from tests.metrics._scored import (
    Classify,
    Decider,
    Detector,
    ProbabilityDetector,
    make_precision_recall_scorer,
    outputs,
)

MAKERS = [make_selective_risk_scorer, make_precision_recall_scorer, make_cost_scorer]

# ---------------------------------------------- make_selective_risk_scorer: decisions

# rows:         ID right  ID wrong  ID right  ID right  OOD       OOD
Y_TRUE = np.array([0, 1, 1, 0, -1, 7])
Y_PRED = np.array([0, 0, 1, 0, 0, 1])
ACCEPT = np.array([1.0, 0.5, 1.0, 0.5, 0.0, 0.4])
ACCEPTING = outputs(Y_PRED, ACCEPT)


def test_decisions_are_judged_as_they_are():
    """TPR 3/4, FPR .2 (label 7 is unseen, hence OOD), risk .5 / 3."""
    scorer = make_selective_risk_scorer(tpr_min=0.75, fpr_max=0.2)
    score = scorer(Decider().fit(), outputs(Y_PRED, ACCEPT), Y_TRUE)
    assert_allclose(score, -0.5 / 3, rtol=1e-14)


@pytest.mark.parametrize(
    ("tpr_min", "fpr_max", "violation"),
    [(0.9, 0.2, 0.15), (0.7, 0.05, 0.15), (1.0, 0.0, 0.45)],
)
def test_violations_of_decisions(tpr_min, fpr_max, violation):
    scorer = make_selective_risk_scorer(tpr_min=tpr_min, fpr_max=fpr_max)
    score = scorer(Decider().fit(), outputs(Y_PRED, ACCEPT), Y_TRUE)
    assert_allclose(score, -1 - violation, rtol=1e-14)


def test_accepting_nothing_is_infeasible_even_where_nothing_is_asked():
    score = make_selective_risk_scorer(tpr_min=0.0)(
        Decider(0.0).fit(), outputs(Y_PRED, ACCEPT), Y_TRUE
    )
    assert score == -1.25


@pytest.mark.parametrize(
    ("make", "params"),
    [
        (make_selective_risk_scorer, {"tpr_min": 0.0}),
        (make_selective_risk_scorer, {"tpr_min": 0.1}),
        (make_precision_recall_scorer, {"precision_min": 0, "recall_min": 0.0}),
    ],
    ids=["tpr 0", "tpr 0.1", "recall 0"],
)
def test_accepting_nothing_is_below_being_always_wrong(make, params):
    """A row is missing: 1/4 of the ID rows, even if the bound asks for less."""
    wrong = outputs(1 - np.array([0, 1, 1, 0, 0, 0]), [1, 1, 1, 1, 0, 0])
    scorer = make(**params)
    assert scorer(Decider().fit(), wrong, Y_TRUE) == -1.0
    assert scorer(Decider(0.0).fit(), wrong, Y_TRUE) == -1.25


UNEVEN = [[0, 1], [10, 0]]


def uneven(y_true, y_pred):
    return np.asarray(UNEVEN)[y_true, y_pred]


@pytest.mark.parametrize("loss", [UNEVEN, uneven], ids=["matrix", "callable"])
@pytest.mark.parametrize(
    "make", [make_selective_risk_scorer, make_precision_recall_scorer]
)
def test_infeasible_is_below_feasible_whatever_is_predicted(make, loss):
    """One accepts all and is always right; the other is wrong within the bounds.

    The shift is the 10 that a wrong label 1 costs, although the first pays nothing.
    """
    y = np.array([0, 1, 1, 0, -1, -1])
    leaky = outputs([0, 1, 1, 0, 0, 0], np.ones(6))
    wrong = outputs([1, 0, 0, 1, 0, 0], [1, 1, 1, 1, 0, 0])
    scorer = make(loss=loss)
    infeasible, feasible = (scorer(Decider().fit(), X, y) for X in (leaky, wrong))
    assert feasible == -5.5
    violation = 0.8 if make is make_selective_risk_scorer else 0.4
    assert_allclose(infeasible, -10 - violation, rtol=1e-14)


@pytest.mark.parametrize("loss", [UNEVEN, uneven], ids=["matrix", "callable"])
def test_shift_of_a_detector_does_not_depend_on_its_predictions(loss):
    """No threshold keeps the OOD row out: TPR 1, FPR 1 is the nearest."""
    y, score = np.array([0, 1, -1]), [0, 0, 1]
    scorer = make_selective_risk_scorer(tpr_min=1.0, fpr_max=0.0, loss=loss)
    right, wrong = outputs([0, 1, 0], score), outputs([0, 0, 0], score)
    scores = [scorer(Detector().fit(y=y), X, y) for X in (right, wrong)]
    assert scores == [-11.0, -11.0]


@pytest.mark.parametrize(("amount", "score"), [(1e-12, 0.0), (1e-6, -1.000002)])
def test_bounds_are_guarded_against_rounding(amount, score):
    """What rounding does breaks no bound, what is more does."""
    accept = np.append(np.full(10, 0.7 - amount), [0.3 + amount] * 2)
    y = np.append(np.zeros(10, dtype=int), [-1, -1])
    scorer = make_selective_risk_scorer(tpr_min=0.7, fpr_max=0.3)
    actual = scorer(Decider().fit(), outputs(np.zeros(12), accept), y)
    assert_allclose(actual, score, rtol=1e-12)


@pytest.mark.parametrize("accept", [[1, 2, 0, 0, 0, 0], [1, np.nan, 0, 0, 0, 0]])
def test_acceptance_outside_of_its_range(accept):
    with pytest.raises(
        ValueError, match=r"Decider.accept_proba must return .* \[0, 1\]"
    ):
        make_selective_risk_scorer()(Decider().fit(), outputs(Y_PRED, accept), Y_TRUE)


def test_acceptance_of_wrong_shape():
    class TwoColumns(Decider):
        def accept_proba(self, X):
            return np.ones((len(X), 2))

    with pytest.raises(ValueError, match=r"shape \(6,\); got shape \(6, 2\)"):
        make_selective_risk_scorer()(
            TwoColumns().fit(), outputs(Y_PRED, ACCEPT), Y_TRUE
        )


def squared(y_true, y_pred):
    return (4.0 * (y_true - y_pred)) ** 2


@pytest.mark.parametrize("loss", [squared, [[0, 16], [16, 0]]])
def test_other_losses(loss):
    """The wrong row costs 16, and infeasible scores are below all feasible ones."""
    X = outputs(Y_PRED, ACCEPT)
    scorer = make_selective_risk_scorer(tpr_min=0.7, loss=loss)
    assert_allclose(scorer(Decider().fit(), X, Y_TRUE), -16 * 0.5 / 3)
    scorer = make_selective_risk_scorer(tpr_min=0.8, loss=loss)
    assert_allclose(scorer(Decider().fit(), X, Y_TRUE), -16.05)


def test_loss_of_errors_is_its_matrix():
    X = outputs(Y_PRED, ACCEPT)
    first, other = (
        make_selective_risk_scorer(tpr_min=0.7, loss=loss)(Decider().fit(), X, Y_TRUE)
        for loss in ("zero_one", 1 - np.eye(2))
    )
    assert first == other


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


@looped("seed", range(20))
def test_detector_is_judged_at_its_best_threshold(seed):
    rng = np.random.RandomState(seed)
    y = np.append(rng.choice([0, 1, -1, 5], 30), [0, -1])
    y_pred, score = rng.randint(2, size=32), rng.randint(6, size=32)
    tpr_min, fpr_max = rng.choice([0.3, 0.6, 0.9]), rng.choice([0.1, 0.4, 0.9])
    scorer = make_selective_risk_scorer(tpr_min, fpr_max)
    assert_allclose(
        scorer(Detector().fit(y=[0, 1]), outputs(y_pred, score), y),
        naive_best(y, y_pred, score, tpr_min, fpr_max),
        rtol=1e-12,
        atol=1e-15,
    )


def test_infeasible_and_feasible_detectors_are_among_the_cases_above():
    """So that the comparison is not one of a single branch."""
    y, good = np.array([0, 1, -1]), outputs([0, 0, 0], [2, 1, 0])
    scorer = make_selective_risk_scorer(1.0, 0.0)
    assert scorer(Detector().fit(y=[0, 1]), good, y) == -0.5
    assert_allclose(scorer(Detector(-1.0).fit(y=[0, 1]), good, y), -2.0)


def test_classes_may_come_from_the_classifier():
    """A detector that was fitted without y: the classifier's classes are {0, 1}."""
    detector = Detector().fit()
    assert not hasattr(detector, "classes_")
    y = np.array([0, 1, 7])
    assert (
        make_selective_risk_scorer()(detector, outputs([0, 1, 0], [2, 1, 0]), y) == 0.0
    )


@pytest.mark.parametrize("estimator", [Detector(), Decider()])
def test_wrapped_estimators_score_the_same(estimator):
    """A search, pipelines and frozen estimators, one in another."""
    X = outputs(Y_PRED, ACCEPT)
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
    X = outputs(Y_PRED, ACCEPT)
    swap = FunctionTransformer(lambda X: X[:, ::-1])
    pipe = make_pipeline(swap, Decider().fit()).fit(X[:, ::-1])
    scorer = make_selective_risk_scorer(tpr_min=0.75, fpr_max=0.2)
    assert_allclose(scorer(pipe, X[:, ::-1], Y_TRUE), -0.5 / 3, rtol=1e-14)


@pytest.mark.parametrize(
    "estimator", [Classify(), KernelDensity(), make_pipeline(Classify())]
)
def test_other_estimators_are_refused(estimator):
    for make in MAKERS:
        with pytest.raises(
            TypeError, match=r"make.*by accept_proba.*score_samples.*estimator_. Got"
        ):
            make()(estimator.fit(ACCEPTING), ACCEPTING, Y_TRUE)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("estimator", [Detector(), Decider()], ids=["score", "accept"])
def test_both_kinds_of_samples_are_needed(make, estimator):
    fitted, X = estimator.fit(y=[0, 1]), outputs([0, 1], [1, 1])
    for y, kind in (([0, 1], "out-of-distribution"), ([-1, 5], "in-distribution")):
        with pytest.raises(ValueError, match=rf"no {kind} samples .*LeaveClassesOut"):
            make()(fitted, X, y)


# ------------------------------------------------ make_precision_recall_scorer


def test_precision_and_recall_of_decisions():
    """TPR 3/4, FPR .2: at the prior 1/3 the precision is .5 / (.5 + .2 / 3)."""
    precision = 0.5 / (0.5 + 0.2 / 3)
    for asked, score in (
        (precision - 1e-6, -0.5 / 3),
        (precision + 0.01, -1.01),
        (1.0, -2 + precision),
    ):
        scorer = make_precision_recall_scorer(asked, 0.75, 1 / 3)
        assert_allclose(scorer(Decider().fit(), ACCEPTING, Y_TRUE), score, rtol=1e-12)
    scorer = make_precision_recall_scorer(precision, 0.8, 1 / 3)
    assert_allclose(scorer(Decider().fit(), ACCEPTING, Y_TRUE), -1.05, rtol=1e-12)
    nothing = scorer(Decider(0.0).fit(), ACCEPTING, Y_TRUE)
    assert_allclose(nothing, -1 - 0.8 - precision, rtol=1e-12)


@looped("seed", range(20))
def test_precision_and_recall_at_the_best_threshold(seed):
    rng = np.random.RandomState(seed)
    y = np.append(rng.choice([0, 1, -1, 5], 30), [0, -1])
    y_pred, score = rng.randint(2, size=32), rng.randint(6, size=32)
    kappa, phi, prior = rng.choice([0.5, 0.8]), rng.choice([0.3, 0.9]), 0.4
    is_id = (y == 0) | (y == 1)
    feasible, violated = [], []
    for threshold in np.unique(score):
        accepted = score >= threshold
        tpr, fpr = accepted[is_id].mean(), accepted[~is_id].mean()
        if tpr == 0:
            continue
        precision = 0.6 * tpr / (0.6 * tpr + 0.4 * fpr)
        violation = max(0, phi - tpr) + max(0, kappa - precision)
        if violation < 1e-9:
            feasible.append(np.mean((y_pred != y)[accepted & is_id]))
        else:
            violated.append(violation)
    expected = -min(feasible) if feasible else -1 - min(violated)
    scorer = make_precision_recall_scorer(kappa, phi, prior)
    actual = scorer(Detector().fit(y=[0, 1]), outputs(y_pred, score), y)
    assert_allclose(actual, expected, rtol=1e-12, atol=1e-15)


# ------------------------------------------------------------------ make_cost_scorer


def test_cost_of_decisions():
    """ID rows: .5 wrong and 1 rejected of 4; OOD rows: .4 accepted of 2."""
    scorer = make_cost_scorer(0.3, 2.0, 0.1, 0.25)
    expected = 0.75 * (0.5 + 0.3) / 4 + 0.25 * (2.0 * 0.4 + 0.1 * 1.6) / 2
    score = scorer(Decider().fit(), ACCEPTING, Y_TRUE)
    assert_allclose(score, -expected, rtol=1e-14)
    nothing = scorer(Decider(0.0).fit(), ACCEPTING, Y_TRUE)
    assert_allclose(nothing, -(0.75 * 0.3 + 0.25 * 0.1), rtol=1e-14)


@pytest.mark.parametrize("seed", range(10))
def test_cost_at_the_best_threshold(seed):
    """The same as the point of the curve, and as a loop that can accept nothing."""
    rng = np.random.RandomState(seed)
    y = np.append(rng.choice([0, 1, -1, 5], 30), [0, -1])
    y_pred, score = rng.randint(2, size=32), rng.randint(6, size=32)
    costs = {
        "reject_id": rng.choice([0.05, 0.4]),
        "accept_ood": rng.choice([0.5, 2.0]),
        "reject_ood": 0.1,
        "ood_prior": 0.3,
    }
    is_id = (y == 0) | (y == 1)
    reached = []
    for threshold in np.append(np.unique(score), np.inf):
        accepted = score >= threshold
        on_id = np.where(accepted, y_pred != y, costs["reject_id"])[is_id]
        on_ood = np.where(accepted, costs["accept_ood"], 0.1)[~is_id]
        reached.append(0.7 * on_id.mean() + 0.3 * on_ood.mean())
    actual = make_cost_scorer(**costs)(
        Detector().fit(y=[0, 1]), outputs(y_pred, score), y
    )
    assert_allclose(actual, -min(reached), rtol=1e-12)
    curve = cost_curve(y, y_pred, score, classes=[0, 1], **costs)
    assert_allclose(actual, -curve.costs[0], rtol=1e-12)


def test_cost_with_another_loss():
    X, decider = ACCEPTING, Decider().fit()
    plain = make_cost_scorer(ood_prior=0.0)(decider, X, Y_TRUE)
    assert_allclose(plain, -(0.5 + 0.3) / 4, rtol=1e-14)
    for loss in (squared, [[0, 16], [16, 0]]):
        actual = make_cost_scorer(ood_prior=0.0, loss=loss)(decider, X, Y_TRUE)
        assert_allclose(actual, -(8 + 0.3) / 4, rtol=1e-14)


@pytest.mark.parametrize("make", [make_precision_recall_scorer, make_cost_scorer])
@pytest.mark.parametrize("estimator", [Detector(), Decider()], ids=["score", "accept"])
def test_folds_without_ood_samples_at_a_prior_of_zero(make, estimator):
    fitted = estimator.fit(y=[0, 1])
    is_id = np.isin(Y_TRUE, [0, 1])
    scorer = make(ood_prior=0.0)
    only_id = scorer(fitted, ACCEPTING[is_id], Y_TRUE[is_id])
    assert_allclose(only_id, scorer(fitted, ACCEPTING, Y_TRUE), rtol=1e-14)
    assert np.isfinite(only_id)
    with pytest.raises(ValueError, match="no in-distribution samples to score"):
        scorer(fitted, ACCEPTING[~is_id], Y_TRUE[~is_id])


# -------------------------------------------------------------------------- all three


@pytest.mark.parametrize("make", MAKERS)
def test_string_labels_unseen_labels_and_pickle(make):
    names = np.array(["a", "b", "c", "junk"])

    class Named(Classify):
        def predict(self, X):
            return names[super().predict(X)]

    scorer = make(ood_label="junk")
    numbers = make()(Decider().fit(), ACCEPTING, Y_TRUE)
    for ood in (["junk", "junk"], ["junk", "other"], ["c", "other"]):
        decider = Decider().fit()
        decider.estimator_ = Named(("a", "b")).fit()
        decider.classes_ = decider.estimator_.classes_
        y = np.append(names[Y_TRUE[:4]], ood)
        assert scorer(decider, ACCEPTING, y) == numbers
    again = pickle.loads(pickle.dumps(make()))
    assert again(Decider().fit(), ACCEPTING, Y_TRUE) == numbers
    assert repr(again) == repr(make())


@pytest.mark.parametrize(
    ("scorer", "text"),
    [
        (
            make_selective_risk_scorer(0.7),
            "make_selective_risk_scorer(tpr_min=0.7, fpr_max=0.2, loss='zero_one', "
            "ood_label=-1)",
        ),
        (
            make_selective_risk_scorer(loss=squared, solver=Solver(angles="full")),
            "make_selective_risk_scorer(tpr_min=0.8, fpr_max=0.2, loss=squared, "
            "ood_label=-1, solver=Solver(angles='full'))",
        ),
        (
            make_precision_recall_scorer(0.7, ood_label="junk"),
            "make_rule_scorer(BoundedPrecisionRecall(precision_min=0.7), "
            "loss='zero_one', ood_label='junk')",
        ),
        (
            make_cost_scorer(0.1, loss=[[0, 1], [2, 0]]),
            "make_cost_scorer(reject_id=0.1, accept_ood=1.0, reject_ood=0.0, "
            "ood_prior=0.5, loss=[[0, 1], [2, 0]], ood_label=-1)",
        ),
    ],
    ids=["tpr", "full", "precision", "cost"],
)
def test_repr(scorer, text):
    assert repr(scorer) == text


@pytest.mark.parametrize(
    ("make", "params", "message"),
    [
        (MAKERS[0], {"tpr_min": 1.5}, "'tpr_min' parameter of BoundedTPRFPR"),
        (MAKERS[0], {"fpr_max": -0.1}, "'fpr_max' parameter of BoundedTPRFPR"),
        (MAKERS[0], {"loss": "hinge"}, "loss must be 'zero_one', .*Got 'hinge'"),
        (MAKERS[0], {"loss": [0.0, 1.0]}, "loss must be 'zero_one'"),
        (MAKERS[0], {"solver": Solver(angles="half")}, "'angles' parameter of Solver"),
        (
            MAKERS[1],
            {"recall_min": 1.5},
            "'recall_min' parameter of BoundedPrecisionRecall",
        ),
        (
            MAKERS[1],
            {"ood_prior": 1.0},
            "'ood_prior' parameter of BoundedPrecisionRecall",
        ),
        (MAKERS[1], {"solver": Solver(angles="half")}, "'angles' parameter of Solver"),
        (MAKERS[2], {"accept_ood": 0.0}, "accept_ood of CostBased must be above"),
        (MAKERS[2], {"loss": "hinge"}, "loss must be 'zero_one', .*Got 'hinge'"),
    ],
)
def test_construction_errors(make, params, message):
    with pytest.raises(ValueError, match=message):
        make(**params)


# ------------------------------------------------------------ in scikit-learn's hands


@pytest.mark.parametrize(
    "rule",
    [BoundedTPRFPR(0.7, 0.4), BoundedPrecisionRecall(0.6, 0.7, 0.3)],
    ids=["tpr_fpr", "precision_recall"],
)
def test_grid_search_with_left_out_classes(rule):
    """The score of each split is the metric on the same split."""
    X, y = load_digits(return_X_y=True)
    X, y = X[::4] / 16, y[::4]
    cv = LeaveClassesOut(3, random_state=0)
    search = GridSearchCV(
        ProbabilityDetector(),
        {"C": [1e-3, 1.0]},
        scoring=make_rule_scorer(rule),
        cv=cv,
        error_score="raise",
    ).fit(X, y)
    results, feasible = search.cv_results_, 0
    for i, (train, test) in enumerate(cv.split(X, y)):
        fitted = ProbabilityDetector().fit(X[train], y[train])
        point = selective_risk_at(
            y[test],
            fitted.estimator_.predict(X[test]),
            fitted.score_samples(X[test]),
            classes=fitted.classes_,
            rule=rule,
        )
        actual = results[f"split{i}_test_score"][1]
        feasible += point.feasible
        if point.feasible:
            assert_allclose(actual, -point.risk, rtol=1e-12)
        else:
            assert -2 < actual < -1
    assert feasible


def test_search_over_the_rule_of_a_reject_option_classifier():
    """Decisions are scored: the score is that of what accept_proba says."""
    rng = np.random.default_rng(0)
    y = rng.choice([0, 1, -1], 300)
    X = rng.normal(size=(300, 2)) + np.array([[2.0, 0], [-2, 0], [0, 4]])[y]
    clf = RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=KNN(n_neighbors=3),
        rule=BoundedPrecisionRecall(recall_min=0.5, ood_prior=0.3),
        random_state=0,
    )
    scorer = make_cost_scorer(0.2, 1.0, 0.0, 0.3)
    cv = OODStratifiedKFold(2)
    search = GridSearchCV(
        clf,
        {"rule__precision_min": [0.5, 0.95]},
        scoring=scorer,
        cv=cv,
        error_score="raise",
    ).fit(X, y)
    again = cross_val_score(search.best_estimator_, X, y, scoring=scorer, cv=cv)
    assert_allclose(search.best_score_, again.mean(), rtol=1e-12)
    for i, (train, test) in enumerate(cv.split(X, y)):
        fitted = clone(search.best_estimator_).fit(X[train], y[train])
        accepted = fitted.accept_proba(X[test])
        wrong = fitted.estimator_.predict(X[test]) != y[test]
        on_id = (accepted * wrong + 0.2 * (1 - accepted))[y[test] != -1].mean()
        expected = 0.7 * on_id + 0.3 * accepted[y[test] == -1].mean()
        assert_allclose(again[i], -expected, rtol=1e-12)


MATRIX = np.array([[0.0, 2, 5], [3, 0, 1], [9, 8, 0]])


def look_up(y_true, y_pred):
    position = {"ant": 0, "bee": 1, "cow": 2}
    return np.array(
        [
            MATRIX[position[t], position[p]]
            for t, p in zip(y_true.tolist(), y_pred.tolist(), strict=True)
        ]
    )


@pytest.mark.parametrize("loss", [MATRIX, look_up], ids=["matrix", "callable"])
@pytest.mark.parametrize(
    "labels",
    [["ant", "bee"], ["bee"], ["cow", "ant"], ["ant"]],
    ids=lambda labels: "-".join(labels),
)
def test_largest_loss_is_that_of_the_worst_predictions(labels, loss):
    """All predictions in a loop; OOD rows, and classes without rows, do not count."""
    y = np.array([*labels, "other"])
    is_id = y != "other"
    classes = np.array(["ant", "bee", "cow"])
    worst = max(
        per_sample_loss(
            y, np.array([*pred, "ant"]), loss, is_id=is_id, classes=classes
        ).max()
        for pred in itertools.product(classes, repeat=len(labels))
    )
    assert largest_loss(y, loss, is_id, classes) == worst


def test_largest_loss_is_at_least_unity():
    y, is_id = np.array([0, 1, -1]), np.array([True, True, False])
    assert largest_loss(y, "zero_one", is_id, [0, 1]) == 1.0
    assert largest_loss(y, [[0, 0.5], [0.2, 0]], is_id, [0, 1]) == 1.0


def test_without_classes_any_label_could_be_predicted():
    y, is_id = np.array([0, 3, 7, -1]), np.array([True, True, True, False])

    def distance(y_true, y_pred):
        return np.abs(y_true - y_pred).astype(float)

    assert largest_loss(y, distance, is_id, None) == 7.0


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ([[0, 1, 2], [1, 0, 2]], r"must be square; got the shape \(2, 3\)"),
        ([[0, 1], [-2, 0]], r"not negative, got -2.0 \(in 1 of 4 entries\)"),
        ([[0, np.nan], [np.inf, 0]], r"finite .*got nan \(in 2 of 4 entries\)"),
        ("hinge", "loss must be 'zero_one', .*Got 'hinge'"),
        ([0, 1], r"loss must be .* Got \[0, 1\]"),
    ],
    ids=["not square", "negative", "not finite", "unknown", "one-dimensional"],
)
def test_impossible_losses_are_refused_at_once(make, loss, message):
    with pytest.raises(ValueError, match=message):
        make(loss=loss)

"""Tests of RejectOptionClassifier with every rule, randomized and with guarantees."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skood.exceptions import NotCertifiableError
from skood.metrics import (
    make_cost_scorer,
    make_rule_scorer,
    make_selective_risk_scorer,
)
from skood.model_selection import OODStratifiedKFold
from skood.rejection import (
    BoundedAbstention,
    BoundedImprovement,
    BoundedPrecisionRecall,
    BoundedTPRFPR,
    Certificate,
    CostBased,
    LinearRule,
    PlugInCost,
    RejectOptionClassifier,
    Solver,
)
from tests.decision._scores import certified, solved
from tests.rejection._problem import X_NEW, Y_NEW, X, Y, make_clf, make_data

RULES = [
    BoundedTPRFPR(0.6, 0.4),
    BoundedPrecisionRecall(0.8, 0.6, ood_prior=0.3),
    BoundedAbstention(0.7),
    BoundedImprovement(0.1),
    CostBased(0.3, ood_prior=0.2),
    PlugInCost(0.2, ood_prior=0.1),
    LinearRule(0.1, 0.4),
]


def _name(rule):
    return type(rule).__name__


@pytest.mark.parametrize("labels", ["numbers", "strings"])
@pytest.mark.parametrize("rule", RULES, ids=_name)
def test_every_rule(rule, labels):
    names = np.array(["ant", "bee", "cat", "unknown"], dtype=object)
    y, y_new, ood, reject = Y, Y_NEW, -1, -1
    if labels == "strings":
        y, y_new, ood, reject = names[Y], names[Y_NEW], "unknown", "none"
    clf = make_clf(rule=rule, ood_label=ood, reject_label=reject)
    if isinstance(rule, PlugInCost):
        clf.set_params(ood_detector=None)  # a distance is no likelihood ratio
    clf.fit(X, y)
    point = clf.operating_point_
    scores = clf._parts().score(X_NEW)
    accepted = clf.accept_proba(X_NEW) == 1
    if clf.ood_detector is None:
        assert_array_equal(accepted, scores[0] / point.scales[0] <= point.lam)
    assert 0 < accepted.mean() < 1
    predicted = clf.predict(X_NEW)
    assert_array_equal(predicted == reject, ~accepted)
    assert_array_equal(predicted[accepted], clf.estimator_.predict(X_NEW)[accepted])
    # score is minus the objective on new rows
    is_id = y_new != ood
    wrong = clf.estimator_.predict(X_NEW)[is_id] != y_new[is_id]
    objective = rule.objective(
        accepted[is_id].sum(),
        wrong[accepted[is_id]].sum(),
        accepted[~is_id].sum(),
        is_id.sum(),
        (~is_id).sum(),
    )
    assert clf.score(X_NEW, y_new) == pytest.approx(-objective)
    if rule.ood_prior is not None:
        assert 0 < point.precision < 1
    again = pickle.loads(pickle.dumps(clf))
    assert_array_equal(again.predict(X_NEW), predicted)
    assert clone(clf).get_params()["rule"].get_params() == rule.get_params()


@pytest.mark.parametrize("solver", ["bnb", "exact", "grid"])
def test_solvers(solver):
    clf = make_clf(solver=Solver(solver, tol=1e-6), calibration=0.5).fit(X, Y)
    assert np.isnan(clf.gap_) if solver == "grid" else clf.gap_ <= 1e-6
    best = make_clf(solver="exact", calibration=0.5).fit(X, Y)
    assert clf.operating_point_.risk >= best.operating_point_.risk
    if solver != "grid":
        assert_allclose(clf.lower_bound_, best.operating_point_.risk, atol=1e-6)


def test_chows_rule_needs_no_ood_samples():
    is_id = Y >= 0
    clf = make_clf(rule=PlugInCost(reject_id=0.2), ood_detector=None)
    clf.fit(X[is_id], Y[is_id])
    proba = clf.predict_proba(X_NEW)
    assert_array_equal(clf.accept_proba(X_NEW) == 1, 1 - proba.max(axis=1) <= 0.2)
    with pytest.raises(
        ValueError, match="No OOD samples in y, but the cost of PlugInCost"
    ):
        clf.score(X_NEW[Y_NEW >= 0], Y_NEW[Y_NEW >= 0])
    clf.set_params(rule__ood_prior=0.0).fit(X[is_id], Y[is_id])
    accepted = clf.accept_proba(X_NEW[Y_NEW >= 0]) == 1
    wrong = clf.estimator_.predict(X_NEW[Y_NEW >= 0]) != Y_NEW[Y_NEW >= 0]
    assert clf.score(X_NEW[Y_NEW >= 0], Y_NEW[Y_NEW >= 0]) == pytest.approx(
        -np.mean(np.where(accepted, wrong, 0.2))
    )


def test_nothing_is_accepted_if_rejection_is_free():
    clf = make_clf(rule=CostBased(reject_id=0.0, ood_prior=0.3)).fit(X, Y)
    # a region without errors costs nothing either: make all predictions wrong
    clf.set_params(loss=lambda y_true, y_pred: np.ones(len(y_true))).fit(X, Y)
    assert (clf.predict(X_NEW) == -1).all()
    assert (clf.tau_, clf.lambda_, clf.gap_) == (0.0, -np.inf, 0.0)
    report = clf.report(X_NEW, Y_NEW)
    assert (report.tpr.value, report.fpr.value) == (0.0, 0.0)
    assert np.isnan(report.risk.value)
    assert clf.score(X_NEW, Y_NEW) == 0.0
    reasons = clf.reject_reason(X_NEW)
    assert (reasons.reason != "accepted").all()
    assert_allclose(reasons.risk_fraction + reasons.ood_fraction, 1.0)


@pytest.fixture(scope="module")
def randomized():
    # a tree has few different probabilities: many samples are tied
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    params = {"ood_detector": None, "rule": BoundedAbstention(0.55)}
    return make_clf(tree, solver=Solver(randomize=True), calibration=0.5, **params).fit(
        X, Y
    )


def test_randomized_acceptance(randomized):
    plain = clone(randomized).set_params(solver__randomize=False).fit(X, Y)
    assert randomized.operating_point_.risk < plain.operating_point_.risk
    tau = randomized.tau_
    assert 0 < tau < 1
    proba = randomized.accept_proba(X_NEW)
    assert_array_equal(np.unique(proba), [0.0, tau, 1.0])
    risk = randomized._parts().score(X_NEW)[0] / randomized.operating_point_.scales[0]
    point = randomized.operating_point_
    tied = (risk > point.lam_low) & (risk <= point.lam)
    assert_array_equal(proba == tau, tied)
    assert len(np.unique(risk[tied])) == 1  # one leaf of the tree


def test_randomized_decisions(randomized):
    proba = randomized.accept_proba(X_NEW)
    first = randomized.predict(X_NEW)
    assert_array_equal(first, randomized.predict(X_NEW))  # random_state=0
    unsure = (proba > 0) & (proba < 1)
    assert 0 < np.mean(first[unsure] == -1) < 1
    assert_array_equal(first[~unsure] == -1, proba[~unsure] == 0)
    # reports and reasons are about the same decisions
    report = randomized.report(X_NEW, Y_NEW)
    assert report.n_accepted_id == np.sum(first[Y_NEW >= 0] != -1)
    assert report.n_accepted_ood == np.sum(first[Y_NEW < 0] != -1)
    reason = randomized.reject_reason(X_NEW).reason
    assert_array_equal(reason == "accepted", first != -1)
    # other draws, the same fraction
    other = clone(randomized)
    shares = []
    for seed in range(200):
        other.__dict__.update(vars(randomized), random_state=seed)
        shares.append(np.mean(other.predict(X_NEW)[unsure] != -1))
    error = np.sqrt(randomized.tau_ * (1 - randomized.tau_) / (200 * unsure.sum()))
    assert abs(np.mean(shares) - randomized.tau_) < 4 * error


@pytest.mark.parametrize("guarantee", ["high_probability", "ltt", "expectation"])
def test_guarantee(guarantee):
    X, Y = make_data(seed=5, n_per_class=400, n_ood=900)
    rule = BoundedTPRFPR(0.6, 0.45)
    clf = make_clf(
        rule=rule, guarantee=Certificate(guarantee, delta=0.2), calibration=0.5
    )
    point = clf.fit(X, Y).operating_point_
    assert point == clone(clf).fit(X, Y).operating_point_
    # room for chance on the certifying rows, which are few
    assert point.tpr > 0.6 and point.fpr < 0.45
    plain = clone(clf).set_params(guarantee=None).fit(X, Y).operating_point_
    assert plain.risk <= point.risk + 0.02
    if guarantee != "expectation":
        # a smaller delta asks for more
        wide = clone(clf).set_params(guarantee__delta=0.9).fit(X, Y).operating_point_
        assert wide.risk <= point.risk + 0.02
        assert wide != point


def test_guarantee_is_that_of_certify():
    X, Y = make_data(seed=5, n_per_class=400, n_ood=900)
    rule = BoundedTPRFPR(0.6, 0.45)
    clf = make_clf(rule=rule, guarantee="high_probability", calibration=0.5)
    clf.fit(X, Y)
    held_out = make_clf(rule=BoundedAbstention(0.5), calibration=0.5).fit(X, Y)
    # the rows that were held out are those whose scores made the percentiles
    assert_array_equal(clf._reference.risk, held_out._reference.risk)
    risk_ood, ood_ood = clf._parts().score(X[Y < 0])
    chosen = np.isin(clf._parts().score(X[Y >= 0])[0], clf._reference.risk)
    assert chosen.sum() == len(clf._reference.risk) == 600
    risk, ood = (score[chosen] for score in clf._parts().score(X[Y >= 0]))
    loss = clf.estimator_.predict(X[Y >= 0])[chosen] != Y[Y >= 0][chosen]
    for made, by in (
        (
            clf,
            certified(rule, risk, ood, loss, risk_ood, ood_ood, random_state=0),
        ),
        (
            clone(clf).set_params(guarantee=None).fit(X, Y),
            solved(rule, risk, ood, loss, risk_ood, ood_ood),
        ),
    ):
        # the order of the rows, which the split depends on, is another one
        assert made.operating_point_.tpr == pytest.approx(by.tpr, abs=0.05)
        assert made.operating_point_.fpr == pytest.approx(by.fpr, abs=0.05)


def test_impossible_guarantees():
    clf = make_clf(guarantee="high_probability").fit(
        *make_data(seed=5, n_per_class=400, n_ood=900)
    )
    before = dict(vars(clf))
    clf.set_params(rule__fpr_max=0.01)
    with pytest.raises(NotCertifiableError, match="OOD samples are too few for FPR"):
        clf.fit(X, Y)
    with pytest.raises(ValueError, match="randomize=True and a guarantee exclude each"):
        clf.set_params(solver=Solver(randomize=True)).fit(X, Y)
    clf.set_params(solver__randomize=False)
    for calibration in (3, OODStratifiedKFold(3)):
        clf.set_params(calibration=calibration)
        with pytest.raises(
            ValueError, match=r"needs calibration samples scored by the final models"
        ):
            clf.fit(X, Y)
    clf.set_params(calibration=0.3, rule=CostBased(), guarantee="ltt")
    with pytest.raises(TypeError, match="The bounds of CostBased do not follow"):
        clf.fit(X, Y)
    for name, value in before.items():
        if name.endswith("_"):
            assert vars(clf)[name] is value


@pytest.mark.parametrize(
    ("rule", "grid", "scorer"),
    [
        (
            BoundedTPRFPR(0.6, 0.4),
            {"rule__tpr_min": [0.5, 0.6]},
            make_selective_risk_scorer(0.5, 0.6),
        ),
        (
            BoundedPrecisionRecall(0.8, 0.6, ood_prior=0.2),
            {"rule__precision_min": [0.6, 0.8]},
            make_rule_scorer(BoundedPrecisionRecall(0.75, 0.5, ood_prior=0.2)),
        ),
        (
            CostBased(ood_prior=0.2),
            {"rule__reject_id": [0.1, 0.3], "rule__accept_ood": [1.0, 5.0]},
            make_cost_scorer(0.3, ood_prior=0.2),
        ),
    ],
    ids=["tpr_fpr", "precision_recall", "cost"],
)
def test_rules_are_searched(rule, grid, scorer):
    pipe = make_pipeline(StandardScaler(), make_clf(rule=rule))
    grid = {f"rejectoptionclassifier__{key}": values for key, values in grid.items()}
    search = GridSearchCV(
        pipe, grid, scoring=scorer, cv=OODStratifiedKFold(2), error_score=np.nan
    ).fit(X, Y)
    scores = search.cv_results_["mean_test_score"]
    assert search.best_score_ == np.nanmax(scores)
    assert len(np.unique(scores[~np.isnan(scores)])) > 1
    assert -1 < search.best_score_ <= 0


def test_default_is_the_certified_solver():
    params = RejectOptionClassifier(LogisticRegression()).get_params()
    assert (params["solver"], Solver().method, Solver().tol) == ("bnb", "bnb", 1e-5)
    assert params["guarantee"] is None and Solver().randomize is False

"""Tests of decisions under a loss: Bayes decisions, conditional risks, bad losses."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from skood import persistence
from skood.detectors import KNN, MSP
from skood.exceptions import SkoodWarning
from skood.metrics import make_cost_scorer
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    Certificate,
    CostBased,
    PlugInCost,
    RejectOptionClassifier,
    RejectOptionRegressor,
    solve_finite,
)
from tests.rejection._problem import PLAIN_KNN, X_NEW, Y_NEW, X, Y, make_clf

VECTORS = {
    vector["id"]: vector
    for vector in json.loads(
        Path(__file__).with_name("vectors_decisions.json").read_text()
    )
}
L3 = np.array([[0.0, 1.0, 4.0], [6.0, 0.0, 1.0], [0.5, 9.0, 0.0]])
SKEWED = [[0, 1], [10, 0]]

# Exact expected costs: Bayes decisions and their risk; argmax and 1 - max p; argmax and
# its own expected loss; Bayes decisions and 1 - max p.
D_NORMAL = {
    0.3: [0.25790147, 0.71753609, 0.25790147, 0.44089236],
    1.0: [0.50334339, 1.31876707, 0.61613779, 0.50334339],
    2.0: [0.50334339, 1.31876707, 0.95341508, 0.50334339],
}


class Posterior(ClassifierMixin, BaseEstimator):
    """Probabilities of the samples 0, 1, …; it predicts the likeliest class."""

    def __init__(self, proba, classes=None):
        self.proba = proba
        self.classes = classes
        self.fit()

    def fit(self, X=None, y=None):
        n_classes = len(self.proba[0])
        self.classes_ = np.arange(n_classes) if self.classes is None else self.classes
        self.classes_ = np.asarray(self.classes_)
        return self

    def predict_proba(self, X):
        return np.asarray(self.proba)[np.ravel(X).astype(int)]

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def posterior(proba, loss, classes=None, **params):
    """A fitted RejectOptionClassifier of given probabilities, and their indices."""
    model = Posterior(proba, classes)
    indices = np.arange(len(proba))[:, None]
    y = np.resize(model.classes_, len(proba))
    params = {"calibration": "same", **params}
    clf = RejectOptionClassifier(FrozenEstimator(model), loss=loss, **params)
    return clf.fit(indices, y), indices


@pytest.mark.parametrize("name", ["D-bayes-0", "D-bayes-1", "D-bayes-2"])
def test_bayes_decisions_of_vectors(name):
    data, expected = VECTORS[name]["input"], VECTORS[name]["expected"]
    rule = PlugInCost(data["reject_id"], ood_prior=0.0)
    clf, indices = posterior(data["proba"], data["loss"], rule=rule)
    assert_array_equal(clf.decide(indices), expected["decision"])
    assert_allclose(-clf.score_pair(indices)[0], expected["risk"], atol=1e-12)
    is_accepted = clf.predict(indices) != clf.reject_label_
    assert_array_equal(is_accepted, expected["accepted_by_plug_in"])
    clf.set_params(decision="estimator").fit(indices, np.resize(clf.classes_, 9))
    assert_array_equal(clf.decide(indices), np.argmax(data["proba"], axis=1))
    risk = -clf.score_pair(indices)[0]
    assert_allclose(risk, expected["risk_of_argmax"], atol=1e-12)


def test_callable_loss_of_the_vectors():
    data = VECTORS["D-bayes-callable"]["input"]
    expected = VECTORS["D-bayes-callable"]["expected"]

    def loss(y_true, y_pred):
        return np.abs(y_true - y_pred)

    clf, indices = posterior(data["proba"], loss, data["classes"])
    assert_array_equal(clf.decide(indices), expected["decision"])
    assert_allclose(-clf.score_pair(indices)[0], expected["risk"], atol=1e-12)


@pytest.mark.parametrize("name", ["D-lp-0", "D-lp-1", "D-lp-2"])
def test_least_cost_and_risk_of_randomized_decisions(name):
    # the expected values are those of a linear program over randomized decisions
    data, expected = VECTORS[name]["input"], VECTORS[name]["expected"]
    clf, indices = posterior(data["posterior"], data["loss"])
    risk = -clf.score_pair(indices)[0]
    assert_allclose(risk, expected["conditional_risk"], atol=1e-12)
    costs = data["reject_id"], data["accept_ood"], data["reject_ood"]
    rule = CostBased(*costs, ood_prior=data["ood_prior"])
    densities = np.array(data["p_id"]), np.array(data["p_ood"])
    solution = solve_finite(*densities, risk, rule)
    assert_allclose(solution.objective, expected["cost"], atol=1e-8)
    rule = BoundedTPRFPR(data["tpr_min"], data["fpr_max"])
    solution = solve_finite(*densities, risk, rule)
    assert_allclose(solution.risk, expected["selective_risk"], atol=1e-8)


def true_model():
    """Logistic regression of p(1 | x) = 1 / (1 + exp(1 - 2x))."""
    model = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    model.coef_, model.intercept_ = np.array([[2.0]]), np.array([-1.0])
    return FrozenEstimator(model)


def draw(n_samples, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_samples, 1))
    return x, (rng.random(n_samples) < true_model().predict_proba(x)[:, 1]).astype(int)


@pytest.mark.parametrize("reject_id", D_NORMAL)
def test_expected_costs_of_a_normal_sample(reject_id):
    x = np.linspace(-9, 9, 900_001)[:, None]
    weight = norm.pdf(x[:, 0])
    weight /= weight.sum()
    proba = true_model().predict_proba(x)
    kinds = [
        {},
        {"decision": "estimator", "risk_detector": MSP()},
        {"decision": "estimator"},
        {"risk_detector": MSP()},
    ]
    costs = []
    for kind in kinds:
        clf = RejectOptionClassifier(true_model(), loss=SKEWED, **kind)
        clf.fit([[0.0], [1.0]], [0, 1])
        score = -clf.score_pair(x)[0]  # of MSP: 1 - max p
        labels = clf.decide(x)
        loss = np.where(labels == 1, proba[:, 0], 10 * proba[:, 1])
        costs.append(weight @ np.where(score <= reject_id, loss, reject_id))
    assert_allclose(costs, D_NORMAL[reject_id], atol=3e-5)


@pytest.mark.parametrize("reject_id", D_NORMAL)
@pytest.mark.parametrize("kind", [PlugInCost, CostBased])
def test_costs_on_new_samples(kind, reject_id):
    clf = RejectOptionClassifier(
        true_model(),
        rule=kind(reject_id, ood_prior=0.0),
        calibration="same",
        loss=SKEWED,
    ).fit(*draw(10_000, 0))
    x, y = draw(10_000, 1)
    labels = clf.predict(x)
    loss = np.where(labels == 1, 1.0, 10.0) * (labels != y)
    costs = np.where(labels == clf.reject_label_, reject_id, loss)
    error = costs.std() / 100
    assert costs.mean() <= 1.02 * D_NORMAL[reject_id][0] + 2 * error
    assert costs.mean() >= D_NORMAL[reject_id][0] - 3 * error
    assert_allclose(-clf.score(x, y), costs.mean(), rtol=1e-12)
    scorer = make_cost_scorer(reject_id, ood_prior=0.0, loss=SKEWED)
    assert_allclose(-scorer(clf, x, y), costs.mean(), rtol=1e-12)


# --- zero-one losses ----------------------------------------------------------------


class Contrary(GaussianNB):
    """It predicts the class of the second largest probability."""

    def predict(self, X):
        return self.classes_[np.argsort(self.predict_proba(X))[:, -2]]


@pytest.mark.parametrize("decision", ["auto", "estimator"])
@pytest.mark.parametrize("rule", [None, BoundedTPRFPR(0.6, 0.4)])
def test_plain_losses_are_errors_of_the_predictions(decision, rule):
    clf = make_clf(Contrary(), decision=decision, rule=rule).fit(X, Y)
    assert_array_equal(clf.decide(X_NEW), clf.estimator_.predict(X_NEW))
    others = np.sort(clf.estimator_.predict_proba(X_NEW))[:, :-1]
    assert_allclose(-clf.score_pair(X_NEW)[0], others.sum(axis=1), rtol=1e-14)
    accepted = clf.predict(X_NEW) != clf.reject_label_
    wrong = clf.estimator_.predict(X_NEW) != Y_NEW
    risk = clf.report(X_NEW, Y_NEW).risk.value
    assert_allclose(risk, wrong[accepted & (Y_NEW >= 0)].mean(), rtol=1e-14)
    bayes = make_clf(Contrary(), decision="bayes", rule=rule).fit(X, Y)
    proba = bayes.estimator_.predict_proba(X_NEW)
    assert_array_equal(bayes.decide(X_NEW), proba.argmax(axis=1))


@pytest.mark.parametrize("decision", ["auto", "bayes", "estimator"])
def test_matrix_of_plain_losses(decision):
    plain = make_clf(GaussianNB()).fit(X, Y)
    clf = make_clf(GaussianNB(), loss=1 - np.eye(3), decision=decision).fit(X, Y)
    assert_array_equal(clf.predict(X_NEW), plain.predict(X_NEW))
    assert_allclose(clf.score_pair(X_NEW)[0], plain.score_pair(X_NEW)[0], rtol=1e-13)
    assert_array_equal(clf.score_pair(X_NEW)[1], plain.score_pair(X_NEW)[1])


# --- ties, and classes ----------------------------------------------------------------


def test_tied_classes():
    # all classes have the same expected loss, up to rounding
    proba = [[k / (k + 1), 1 / (k + 1)] for k in range(1, 60)]
    for k, row in enumerate(proba, start=1):
        for classes in (["b", "a"], [True, False]):
            clf, _ = posterior([row] * 3, [[0, 1], [k, 0]], classes)
            assert clf.decide([[0], [1], [2]]).tolist() == classes[:1] * 3
    # not tied: the second class is better by more than rounding
    clf, _ = posterior([[0.5 - 1e-9, 0.5 + 1e-9]], [[0, 1], [1, 0]])
    assert clf.decide([[0]]) == 1


@pytest.mark.parametrize("ood_detector", [None, KNN(), PLAIN_KNN])
def test_decisions_do_not_depend_on_other_samples(ood_detector):
    clf = make_clf(loss=L3, ood_detector=ood_detector, rule=CostBased()).fit(X, Y)
    assert set(clf.decide(X_NEW)) == {0, 1, 2}
    risk = clf.score_pair(X_NEW)[0]
    for i in range(0, len(X_NEW), 7):
        x = X_NEW[i : i + 1]
        assert clf.decide(x) == clf.decide(X_NEW)[i]
        assert_allclose(clf.score_pair(x)[0], risk[i], rtol=1e-13)
        assert clf.predict(x) == clf.predict(X_NEW)[i]


def by_hand(model, X, loss, classes):
    """Bayes decisions and their risks, sample by sample."""
    losses = {
        (i, j): loss[a][b] for a, i in enumerate(classes) for b, j in enumerate(classes)
    }
    labels, risks = [], []
    for row in model.predict_proba(X):
        pairs = dict(zip(model.classes_.tolist(), row.tolist(), strict=True))
        rho = {k: sum(p * losses[y, k] for y, p in pairs.items()) for k in pairs}
        labels.append(min(rho, key=rho.get))
        risks.append(min(rho.values()))
    return np.array(labels), np.array(risks)


def test_only_fitted_classes_are_predicted():
    # class "n" is in one fold alone, and deciding for it costs nothing
    classes = ["a", "n", "z"]
    loss = np.array([[0.0, 0.0, 3.0], [7.0, 0.0, 5.0], [1.0, 0.0, 0.0]])
    rng = np.random.default_rng(0)
    y = np.array(["a", "z"] * 30)
    y[:5] = "n"
    x = rng.normal(size=(60, 1)) + (y == "z")[:, None]
    params = {"loss": loss, "rule": BoundedAbstention(0.5), "calibration": KFold(3)}
    clf = RejectOptionClassifier(GaussianNB(), **params)
    with pytest.warns(SkoodWarning, match="never predicted"):
        clf.fit(x, y)
    assert clf.decide(x).tolist() == ["n"] * 60  # all classes are fitted at the end
    scores, losses = [], []
    for train, test in KFold(3).split(x):
        model = GaussianNB().fit(x[train], y[train])
        labels, risks = by_hand(model, x[test], loss, classes)
        if "n" not in model.classes_:
            assert set(labels) <= {"a", "z"}
        scores.append(risks)
        codes = [classes.index(label) for label in y[test]]
        losses.append(loss[codes, [classes.index(label) for label in labels]])
    samples = clf._calibration.samples
    order = np.argsort(samples.risk), np.argsort(np.concatenate(scores))
    assert_allclose(samples.risk[order[0]], np.concatenate(scores)[order[1]])
    assert_array_equal(samples.loss[order[0]], np.concatenate(losses)[order[1]])
    assert losses[0].sum() > 0 == losses[1].sum()


def test_class_without_training_samples():
    # both samples of "n" are held out by this seed
    y = np.array(["a", "z"] * 20 + ["n"] * 2)
    x = np.linspace(0, 1, 42)[:, None] + (y == "z")[:, None]
    loss = [[0, 0, 3], [7, 0, 5], [1, 0, 0]]  # "n" is the second class
    params = {"rule": BoundedAbstention(1.0), "loss": loss, "random_state": 8}
    clf = RejectOptionClassifier(GaussianNB(), **params)
    with pytest.warns(SkoodWarning, match="never predicted"):
        clf.fit(x, y)
    assert clf.estimator_.classes_.tolist() == ["a", "z"]
    assert clf.classes_.tolist() == ["a", "n", "z"]
    labels, risks = by_hand(clf.estimator_, x, loss, ["a", "n", "z"])
    assert_array_equal(clf.decide(x), labels)
    assert_allclose(-clf.score_pair(x)[0], risks, rtol=1e-12)
    assert "expected loss" in clf.explain(x[:1]).sentences[0]
    assert "'n'" not in clf.explain(x).sentences[0]


def test_a_frozen_classifier_with_more_classes_than_y():
    model = FrozenEstimator(GaussianNB().fit(X[Y >= 0], Y[Y >= 0]))
    is_used = (Y == 0) | (Y == 1)
    rule = BoundedAbstention(0.8)
    for estimator in (model, make_pipeline(FrozenEstimator(model))):
        clf = RejectOptionClassifier(estimator, rule=rule, loss=L3, calibration="same")
        if estimator is not model:
            clf.set_params(calibration=0.3, random_state=0)
        clf.fit(X[is_used], Y[is_used])
        labels, risks = by_hand(model, X_NEW, L3, [0, 1, 2])
        assert_array_equal(clf.decide(X_NEW), labels)
        assert_allclose(-clf.score_pair(X_NEW)[0], risks, rtol=1e-12)


def test_a_callable_is_tabulated_once_for_each_fit():
    calls = []

    class Fitted(GaussianNB):
        def fit(self, X, y):
            calls.append("fit")
            return super().fit(X, y)

    def loss(y_true, y_pred):
        calls.append(list(zip(y_true.tolist(), y_pred.tolist(), strict=True)))
        return L3[y_true, y_pred]

    clf = make_clf(Fitted(), loss=loss, calibration=3).fit(X, Y)
    pairs = [(i, j) for i in range(3) for j in range(3)]
    assert calls[:2] == [pairs, "fit"] and calls.count(pairs) == 1
    matrix = make_clf(GaussianNB(), loss=L3, calibration=3).fit(X, Y)
    assert_array_equal(clf.predict(X_NEW), matrix.predict(X_NEW))
    assert clf.operating_point_.risk == matrix.operating_point_.risk
    n_calls = len(calls)
    clf.decide(X_NEW)
    assert len(calls) == n_calls


# --- everything that uses labels ------------------------------------------------------


def test_all_methods_use_the_decisions():
    clf = make_clf(loss=L3, rule=CostBased(0.8)).fit(X, Y)
    labels, risks = by_hand(clf.estimator_, X_NEW, L3, [0, 1, 2])
    assert (labels != clf.estimator_.predict(X_NEW)).mean() > 0.15
    is_id, accepted = Y_NEW >= 0, clf.predict(X_NEW) != -1
    assert_array_equal(clf.predict(X_NEW)[accepted], labels[accepted])
    losses = L3[Y_NEW[is_id & accepted], labels[is_id & accepted]]
    report = clf.report(X_NEW, Y_NEW)
    assert_allclose(report.risk.value, losses.mean(), rtol=1e-12)
    assert (
        report.scores["risk"] == "expected loss of the decision of LogisticRegression"
    )
    explanation = clf.explain(X_NEW)
    assert_array_equal(explanation.prediction, labels)
    (i, *_) = np.flatnonzero(accepted)
    sentence = f"accepted as class {labels[i]} with expected loss {risks[i]:.2f}"
    assert explanation.sentences[i] == sentence
    (i, *_) = np.flatnonzero(explanation.reason == "uncertain class")
    start = f"rejected as uncertain: expected loss {risks[i]:.2f} of class {labels[i]} "
    assert explanation.sentences[i].startswith(start)
    for other in (
        clf.with_rule(clf.rule, X_NEW, Y_NEW),
        make_clf(loss=L3, rule=CostBased(0.8)).fit(X, Y).recalibrate(X_NEW, Y_NEW),
    ):
        assert_array_equal(other.decide(X_NEW), labels)
        samples = other._calibration.samples
        n_new = np.count_nonzero(is_id)
        of_id = samples.loss[~samples.is_ood][-n_new:]
        assert_allclose(of_id, L3[Y_NEW[is_id], labels[is_id]], rtol=1e-12)


def test_without_a_rule_the_score_is_the_accuracy_of_the_decisions():
    clf = make_clf(loss=L3, rule=None).fit(X, Y)
    is_id = Y_NEW >= 0
    accuracy = np.mean(clf.decide(X_NEW)[is_id] == Y_NEW[is_id])
    assert_allclose(clf.score(X_NEW, Y_NEW), accuracy, rtol=1e-12)
    assert_array_equal(clf.predict(X_NEW), clf.decide(X_NEW))
    assert_array_equal(clf.predict_proba(X_NEW), clf.estimator_.predict_proba(X_NEW))


def test_thresholds_of_decided_classes():
    clf = make_clf(
        loss=L3,
        rule=BoundedAbstention(0.5),
        ood_detector=None,
        guarantee=Certificate(within="predicted_class", thresholds="group", delta=0.5),
        calibration=0.7,
    ).fit(X, Y)
    assert set(clf.lambda_) <= {0, 1, 2}
    labels, risk = clf.decide(X_NEW), -clf.score_pair(X_NEW)[0]
    scale = clf.operating_point_.scales[0]
    limits = np.array([clf.lambda_.get(label, -np.inf) for label in labels.tolist()])
    assert_array_equal(clf.predict(X_NEW) != -1, risk / scale <= limits)


@pytest.mark.parametrize("detector", [None, MSP(), make_pipeline(KNN())])
def test_stored_copies_decide_alike(detector, tmp_path):
    clf = make_clf(loss=L3, risk_detector=detector).fit(X, Y)
    path = tmp_path / "clf.skood"
    persistence.dump(clf, path)
    for copy in (pickle.loads(pickle.dumps(clf)), persistence.load(path)):
        assert_array_equal(copy.decide(X_NEW), clf.decide(X_NEW))
        assert_array_equal(copy.predict(X_NEW), clf.predict(X_NEW))
        assert_array_equal(copy.score_pair(X_NEW)[0], clf.score_pair(X_NEW)[0])


def test_a_refit_with_plain_losses_forgets_the_table():
    clf = make_clf(loss=L3).fit(X, Y)
    clf.set_params(loss="zero_one").fit(X, Y)
    assert_array_equal(clf.decide(X_NEW), clf.estimator_.predict(X_NEW))


def test_decision_is_searched():
    x, y = draw(600, 3)
    search = GridSearchCV(
        RejectOptionClassifier(
            true_model(), rule=CostBased(1.0, ood_prior=0), loss=SKEWED
        ),
        {"decision": ["bayes", "estimator"]},
        scoring=make_cost_scorer(1.0, ood_prior=0, loss=SKEWED),
        cv=3,
    ).fit(x, y)
    best, second = search.cv_results_["mean_test_score"]
    assert search.best_params_ == {"decision": "bayes"} and best > second + 0.03


# --- bad input ----------------------------------------------------------------------


class NeverFitted(GaussianNB):
    def fit(self, X, y):
        raise AssertionError("It is fitted.")


class WithoutProba(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        raise AssertionError("It is fitted.")

    def predict(self, X):
        return np.zeros(len(X))


def raises_for(y_true, y_pred, true=1, pred=2):
    if np.any((y_true == true) & (y_pred == pred)):
        raise KeyError("no such cost")
    return np.abs(y_true - y_pred)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"loss": SKEWED}, r"3 classes must have shape \(3, 3\), got \(2, 2\)"),
        ({"loss": np.full((3, 2), 1.0)}, r"must have shape \(3, 3\), got \(3, 2\)"),
        ({"loss": L3 - np.eye(3)}, "got -1.0 for the true class 0 and the decision 0"),
        (
            {"loss": np.where(L3 == 1, np.inf, L3)},
            "got inf for the true class 0 and the dec.* 1",
        ),
        ({"loss": np.where(L3 == 9, np.nan, L3)}, "got nan for .*class 2 and .*sion 1"),
        ({"loss": lambda t, p: t - p}, "got -1.0 for the true class 0 and the dec.* 1"),
        ({"loss": raises_for}, "raises KeyError.*true class 1 and the decision 2"),
        ({"loss": lambda t, p: 1.0}, r"one number per sample, shape \(9,\)"),
        (
            {"loss": L3, "rule": PlugInCost(), "risk_detector": MSP()},
            "PlugInCost takes the risk score for the expected loss: leave "
            "risk_detector at None, or use CostBased",
        ),
        ({"loss": L3, "decision": "map"}, "decision"),
    ],
)
@pytest.mark.parametrize("decision", ["auto", "estimator"])
def test_bad_losses(params, match, decision):
    clf = make_clf(NeverFitted(), **{"decision": decision, **params})
    with pytest.raises(ValueError, match=match):
        clf.fit(X, Y)
    assert not hasattr(clf, "estimator_")


@pytest.mark.parametrize(
    "params", [{"loss": L3}, {"decision": "bayes"}, {"loss": raises_for}]
)
@pytest.mark.parametrize("risk_detector", [None, make_pipeline(KNN())])
def test_bayes_decisions_need_probabilities(params, risk_detector):
    for estimator in (WithoutProba(), SVC(), make_pipeline(SVC())):
        clf = make_clf(estimator, risk_detector=risk_detector, **params)
        name = "WithoutProba" if isinstance(estimator, WithoutProba) else "SVC"
        match = rf"{name} has no predict_proba.*CalibratedClassifierCV.*'estimator'"
        with pytest.raises(ValueError, match=match):
            clf.fit(X, Y)


def test_losses_of_predictions_without_probabilities():
    params = {"loss": L3, "risk_detector": make_pipeline(KNN())}
    clf = make_clf(SVC(), decision="estimator", **params).fit(X, Y)
    assert_array_equal(clf.decide(X_NEW), clf.estimator_.predict(X_NEW))
    accepted = (clf.predict(X_NEW) != -1) & (Y_NEW >= 0)
    losses = L3[Y_NEW, clf.decide(X_NEW)][accepted]
    assert_allclose(clf.report(X_NEW, Y_NEW).risk.value, losses.mean(), rtol=1e-12)
    calibrated = make_clf(CalibratedClassifierCV(SVC(), ensemble=False), loss=L3)
    labels, _ = by_hand(calibrated.fit(X, Y).estimator_, X_NEW, L3, [0, 1, 2])
    assert_array_equal(calibrated.decide(X_NEW), labels)


def test_plug_in_cost_of_a_regressor():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = x[:, 0] + rng.normal(size=200) * np.abs(x[:, 1])
    make = partial(RejectOptionRegressor, LinearRegression(), random_state=0)
    rule = PlugInCost(0.5, ood_prior=0.0)
    for uncertainty in (None, RandomForestRegressor(20, min_samples_leaf=5)):
        reg = make(uncertainty, rule=rule).fit(x, y)
        risk = -reg.score_pair(x)[0]
        assert_array_equal(np.isnan(reg.predict(x)), risk > 0.5)
        assert 0.1 < np.mean(risk > 0.5) < 0.9
    again = make().fit(x, y).with_rule(rule, x, y)
    assert again.operating_point_.mu == 0
    for uncertainty in ("std", KNN(), (LinearRegression(), LinearRegression())):
        match = "PlugInCost takes the risk score.*leave uncertainty at None"
        with pytest.raises(ValueError, match=match):
            make(uncertainty, rule=rule).fit(x, y)

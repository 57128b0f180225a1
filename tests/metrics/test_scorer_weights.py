"""Weights of scorers, passed directly, by searches and by metadata routing."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.naive_bayes import GaussianNB

from skood.detectors import MSP
from skood.metrics import (
    auroc,
    make_cost_scorer,
    make_misclassification_scorer,
    make_ood_scorer,
    make_rule_scorer,
    make_selective_risk_scorer,
)
from skood.rejection import (
    BoundedImprovement,
    BoundedPrecisionRecall,
    RejectOptionClassifier,
)

RULES = {
    "risk": make_selective_risk_scorer(tpr_min=0.6, fpr_max=0.4),
    "infeasible": make_selective_risk_scorer(tpr_min=0.95, fpr_max=0.0),
    "precision": make_rule_scorer(BoundedPrecisionRecall(0.7, 0.5, 0.3)),
    "cost": make_cost_scorer(reject_id=0.6, ood_prior=0.2),
    "improvement": make_rule_scorer(BoundedImprovement(0.05)),
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.choice([0, 1, -1], size=120)
    X = np.array([[0.0, 1.0], [1.5, 0.0], [3.0, 3.0]])[y] + rng.normal(size=(120, 2))
    return X.round(1), y, rng.integers(4, size=120)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("kind", ["decisions", "scores"])
def test_weights_of_rule_scorers_are_repeated_samples(name, kind, data):
    X, y, weight = data
    is_id = y >= 0
    estimator = MSP(GaussianNB())
    if kind == "decisions":
        estimator = RejectOptionClassifier(
            GaussianNB(), rule=BoundedImprovement(0.1), random_state=0
        )
    estimator.fit(X[is_id], y[is_id])
    repeated = np.repeat(X, weight, axis=0), np.repeat(y, weight)
    expected = RULES[name](estimator, *repeated)
    actual = RULES[name](estimator, X, y, sample_weight=weight)
    assert actual == pytest.approx(expected, rel=0, abs=1e-12)
    assert actual != RULES[name](estimator, X, y)


def test_weights_of_ood_scorers(data):
    X, y, weight = data
    detector = MSP(GaussianNB()).fit(X[y >= 0], y[y >= 0])
    actual = make_ood_scorer()(detector, X, y, sample_weight=weight)
    assert actual == auroc(y, detector.score_samples(X), sample_weight=weight)
    arguments = []

    def metric(y_true, y_score, sample_weight=None):
        arguments.append(sample_weight)
        return 0.5

    make_ood_scorer(metric)(detector, X, y)
    make_ood_scorer(metric)(detector, X, y, sample_weight=weight)
    assert arguments[0] is None
    assert_array_equal(arguments[1], weight)
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(120,\)"):
        make_ood_scorer()(detector, X, y, sample_weight=np.ones(3))


class _Uncertain:
    """Classifier that is wrong, and uncertain, where the sample is negative."""

    classes_ = np.array([0, 1])

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def predict_uncertainty(self, X):
        return {"epistemic": -X[:, 0]}


def test_weights_of_misclassification_scorers():
    X = np.array([[3.0], [2.0], [1.0], [0.0], [9.0]])
    y = np.array([0, 1, 0, 1, -1])
    scorer, weight = make_misclassification_scorer(), np.array([2, 1, 3, 4, 5])
    score = scorer(_Uncertain(), X, y, sample_weight=weight)
    # right scores 3, 1 of weights 2, 3 against wrong ones 2, 0 of weights 1, 4
    assert score == pytest.approx((2 * 5 + 3 * 4) / 25)
    with pytest.raises(ValueError, match="wrong on all 2 in-distribution samples"):
        scorer(_Uncertain(), X, y, sample_weight=[0, 1, 0, 1, 1])


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_scorer_in_a_routed_search(routing, data):
    X, y, weight = data
    scorer = make_selective_risk_scorer(0.6, 0.4).set_score_request(sample_weight=True)
    search = GridSearchCV(
        RejectOptionClassifier(
            LogisticRegression().set_fit_request(sample_weight=False),
            rule=BoundedImprovement(0.1),
            random_state=0,
        ).set_fit_request(sample_weight=False),
        {"estimator__C": [0.01, 1.0]},
        scoring=scorer,
        cv=[(np.arange(60), np.arange(60, 120))],
        error_score="raise",
    ).fit(X, y, sample_weight=weight)
    fitted = RejectOptionClassifier(
        LogisticRegression(C=0.01), rule=BoundedImprovement(0.1), random_state=0
    ).fit(X[:60], y[:60])
    expected = scorer(fitted, X[60:], y[60:], sample_weight=weight[60:])
    assert search.cv_results_["mean_test_score"][0] == expected


def test_names_of_routed_weights(routing, data):
    X, y, weight = data
    scorer = make_ood_scorer().set_score_request(sample_weight="w")
    result = cross_validate(
        MSP(GaussianNB()),
        X,
        y,
        scoring=scorer,
        cv=2,
        params={"w": weight},
        return_estimator=True,
        return_indices=True,
    )
    test = result["indices"]["test"][0]
    assert result["test_score"][0] == scorer(
        result["estimator"][0], X[test], y[test], sample_weight=weight[test]
    )


def test_weights_that_are_not_requested_raise(routing, data):
    X, y, weight = data
    subset = GaussianNB().set_fit_request(sample_weight=False)
    detector = MSP(subset).set_fit_request(sample_weight=False)
    with pytest.raises(UnsetMetadataPassedError, match=r"make_ood_scorer\('auroc'"):
        cross_validate(
            detector, X, y, scoring=make_ood_scorer(), params={"sample_weight": weight}
        )


def test_request_without_routing_raises():
    with pytest.raises(RuntimeError, match="enable_metadata_routing=True"):
        make_ood_scorer().set_score_request(sample_weight=True)

"""Scorers of rates of decisions."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skood.detectors import KNN, MSP
from skood.metrics import make_rate_scorer
from skood.model_selection import OODStratifiedKFold
from skood.rejection import (
    BoundedTPRFPR,
    RejectOptionClassifier,
    RejectOptionRegressor,
)
from tests.metrics._scored import Decider, outputs

VECTORS = json.loads(Path(__file__).with_name("vectors_decisions.json").read_text())
RATES = "tpr", "coverage", "precision", "neg_fpr", "neg_risk", "neg_error_rate"


class Table(Decider):
    """Decider with other classes."""

    def __init__(self, classes=(0, 1)):
        self.classes = classes
        self.scale = 1.0

    def fit(self, X=None, y=None):
        super().fit()
        self.classes_ = np.array(self.classes)
        return self


@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
def test_rates_of_the_specification(kind):
    (vector,) = (v for v in VECTORS if v["id"] == "D-rates")
    y, y_pred, accept, weight = map(np.array, vector["input"].values())
    X, weight = outputs(y_pred, accept), weight if kind == "weighted" else None
    assert len(vector["expected"][kind]) == 9
    for name, expected in vector["expected"][kind].items():
        rate, *prior = name.split(" at ood_prior ")
        scorer = make_rate_scorer(rate, ood_prior=float(prior[0]) if prior else None)
        score = scorer(Table((0, 1, 2)).fit(), X, y, sample_weight=weight)
        assert_allclose(score, expected, rtol=0, atol=1e-9, err_msg=name)


def _random_case(seed):
    rng = np.random.default_rng(seed)
    y = rng.choice([0, 1, -1, 7], size=60)  # 7 is a left-out class
    X = outputs(rng.integers(2, size=60), rng.choice([0, 0.3, 1.0], size=60))
    return X, y, rng.integers(4, size=60)


@pytest.mark.parametrize("prior", [None, 0.0, 0.37])
@pytest.mark.parametrize("loss", ["zero_one", [[0, 2], [5, 0.5]]])
@pytest.mark.parametrize("max_loss", [None, 3.0])
def test_rates_by_loops_over_repeated_samples(prior, loss, max_loss):
    X, y, weight = _random_case(3)
    sums = np.zeros(3)  # of accepted ID samples, their losses, accepted OOD samples
    n = np.zeros(2)
    for (label, accept), target, count in zip(X, y, weight, strict=True):
        for _ in range(count):
            n[int(target in (-1, 7))] += 1
            if target in (-1, 7):
                sums[2] += accept
                continue
            error = float(label != target)
            if loss != "zero_one":
                error = loss[target][int(label)]
            sums += [accept, accept * min(error, max_loss or np.inf), 0]
    pi = n[1] / n.sum() if prior is None else prior
    tpr, cost, fpr = sums / [n[0], n[0], n[1]]
    coverage = (1 - pi) * tpr + pi * fpr
    expected = {
        "tpr": tpr,
        "neg_fpr": -fpr,
        "coverage": coverage,
        "precision": (1 - pi) * tpr / coverage,
        "neg_risk": -sums[1] / sums[0],
        "neg_error_rate": -((1 - pi) * cost + (max_loss or 1) * pi * fpr) / coverage,
    }
    for rate in RATES:
        scorer = make_rate_scorer(
            rate, loss=loss, max_loss=max_loss, ood_prior=prior, ood_label=-1
        )
        score = scorer(Table().fit(), X, y, sample_weight=weight)
        assert type(score) is float
        assert_allclose(score, expected[rate], rtol=1e-12, err_msg=rate)
        again = pickle.loads(pickle.dumps(scorer))
        repeated = np.repeat(X, weight, axis=0), np.repeat(y, weight)
        assert_allclose(again(Table().fit(), *repeated), score, rtol=1e-12)


# labels, accepted, and whether tpr, coverage, precision, FPR, risk, error rate exist
UNDEFINED = {
    "no OOD": ([0, 1, 1], [1, 1, 0], "111011", "100010"),
    "no ID": ([-1, -1, -1], [1, 1, 0], "011101", "000100"),
    "nothing accepted": ([0, 1, -1], [0, 0, 0], "110100", "110100"),
    "no ID accepted": ([0, 1, -1], [0, 0, 1], "111101", "111101"),
    "no OOD, nothing accepted": ([0, 1, 1], [0, 0, 0], "110000", "100000"),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_undefined_rates_are_nan(name):
    y, accept, *exist = UNDEFINED[name]
    X = outputs([0, 1, 0], accept)
    for prior, defined in zip([None, 0.3], exist, strict=True):
        for rate, is_defined in zip(RATES, defined, strict=True):
            scorer = make_rate_scorer(rate, ood_prior=prior)
            if is_defined == "1":
                with warnings.catch_warnings(action="error"):
                    assert np.isfinite(scorer(Table().fit(), X, y))
                continue
            shown = rate.removeprefix("neg_")
            text = rf"The {shown} is undefined .*OODStratifiedKFold"
            with pytest.warns(UndefinedMetricWarning, match=text):
                assert np.isnan(scorer(Table().fit(), X, y))


def test_prior_of_zero_needs_no_ood_samples():
    X, y = outputs([0, 1, 0], [1, 0.5, 1]), [0, 1, 1]
    rates = {
        rate: make_rate_scorer(rate, ood_prior=0)(Table().fit(), X, y)
        for rate in ("coverage", "precision", "neg_error_rate")
    }
    assert_allclose(list(rates.values()), [2.5 / 3, 1.0, -0.4])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.choice([0, 1, -1], p=[0.45, 0.45, 0.1], size=150)
    X = np.array([[0.0, 1.0], [1.5, 0.0], [3.0, 3.0]])[y] + rng.normal(size=(150, 2))
    return X, y


def test_fold_without_ood_samples_in_a_search_of_several_metrics(data):
    """NaN for the FPR of one fold; all other scores, and the choice, are as alone."""
    X, y = data
    order = np.argsort(y == -1, kind="stable")  # all OOD samples in the last folds
    X, y = X[order], y[order]
    scoring = {rate: make_rate_scorer(rate) for rate in RATES}
    model = RejectOptionClassifier(
        FrozenEstimator(GaussianNB().fit(X[y >= 0], y[y >= 0])),
        random_state=0,
        ood_detector=FrozenEstimator(KNN().fit(X[y >= 0])),
        rule=BoundedTPRFPR(0.5, 0.5),
        calibration="same",
    ).fit(X, y)
    assert 0 < make_rate_scorer("tpr")(model, X, y) < 1

    class Fitted(BaseEstimator):
        def __init__(self, shift=0.0):
            self.shift = shift

        def fit(self, X, y):
            self.classes_, self.estimator_ = model.classes_, model.estimator_
            return self

        def accept_proba(self, X):
            return model.accept_proba(X + self.shift)

        def decide(self, X):
            return model.decide(X + self.shift)

        def predict(self, X):
            return model.predict(X + self.shift)

    with pytest.warns(UndefinedMetricWarning, match="fpr is undefined on a fold with"):
        scores = cross_validate(Fitted(), X, y, scoring=scoring, cv=KFold(5))
    for rate in RATES:
        is_nan = np.isnan(scores[f"test_{rate}"])
        expected = [True] * 4 + [False] if rate == "neg_fpr" else [False] * 5
        assert_array_equal(is_nan, expected, err_msg=rate)
    grid = {"shift": [0.0, 0.4]}
    search = GridSearchCV(Fitted(), grid, scoring=scoring, cv=KFold(5), refit="tpr")
    with warnings.catch_warnings(action="ignore"):
        search.fit(X, y)
    alone = GridSearchCV(Fitted(), grid, scoring=scoring["tpr"], cv=KFold(5)).fit(X, y)
    results = search.cv_results_
    assert_array_equal(results["mean_test_tpr"], alone.cv_results_["mean_test_score"])
    assert search.best_params_ == alone.best_params_
    assert np.isnan(results["mean_test_neg_fpr"]).all()
    with warnings.catch_warnings(action="error"):
        both = cross_validate(Fitted(), X, y, scoring=scoring, cv=OODStratifiedKFold(3))
    assert all(np.isfinite(both[f"test_{rate}"]).all() for rate in RATES)


def test_rates_equal_the_report(data):
    X, y = data
    labels = np.array(["cat", "dog", "none"])[y]
    model = RejectOptionClassifier(
        GaussianNB(),
        ood_detector=KNN(),
        rule=BoundedTPRFPR(0.5, 0.3),
        ood_label="none",
        random_state=0,
    ).fit(X, labels)
    report = model.report(X, labels, ood_prior=0.2)

    def score(rate):
        scorer = make_rate_scorer(rate, ood_prior=0.2, ood_label="none")
        pipeline = make_pipeline(FunctionTransformer(), model)
        assert scorer(pipeline, X, labels) == scorer(model, X, labels)
        return scorer(model, X, labels)

    assert score("tpr") == pytest.approx(report.tpr[0], abs=1e-12)
    assert score("neg_fpr") == pytest.approx(-report.fpr[0], abs=1e-12)
    assert score("precision") == pytest.approx(report.precision[0], abs=1e-12)
    assert score("neg_risk") == pytest.approx(-report.risk[0], abs=1e-12)


@pytest.mark.parametrize("detector", [MSP(GaussianNB()), KNN(), IsolationForest()])
def test_detector_accepts_inliers(detector, data):
    X, y = data
    detector.fit(X[y >= 0], y[y >= 0])
    accepted = detector.predict(X) == 1
    assert make_rate_scorer("tpr")(detector, X, y) == accepted[y >= 0].mean()
    assert make_rate_scorer("neg_fpr")(detector, X, y) == -accepted[y < 0].mean()
    assert make_rate_scorer("coverage")(detector, X, y) == accepted.mean()
    scorer = make_rate_scorer("neg_risk")
    if isinstance(detector, MSP):
        wrong = detector.estimator_.predict(X) != y
        assert scorer(detector, X, y) == -wrong[(y >= 0) & accepted].mean()
        return
    for rate in ("neg_risk", "neg_error_rate"):
        with pytest.raises(
            TypeError, match=r"errors of a classifier in estimator_, but .* has none"
        ):
            make_rate_scorer(rate)(detector, X, y)


def test_classifier_without_decisions(data):
    X, y = data
    with pytest.raises(TypeError, match=r"accept_proba.*Got LogisticRegression"):
        make_rate_scorer("tpr")(LogisticRegression().fit(X, y), X, y)


def test_regressor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1))
    y = X[:, 0] + rng.normal(size=200) * np.abs(X[:, 0])
    y[::10] = np.nan
    model = RejectOptionRegressor(
        LinearRegression(), rule=BoundedTPRFPR(0.5, 1.0), random_state=0
    ).fit(X, y)
    accepted, is_ood = model.accept_proba(X), np.isnan(y)
    assert make_rate_scorer("tpr")(model, X, y) == accepted[~is_ood].mean()
    assert make_rate_scorer("neg_fpr")(model, X, y) == -accepted[is_ood].mean()
    error = np.abs(model.estimator_.predict(X) - y)[~is_ood]
    risk = np.average(error, weights=accepted[~is_ood])
    scorer = make_rate_scorer("neg_risk", loss="absolute_error")
    assert scorer(model, X, y) == pytest.approx(-risk)
    with pytest.raises(ValueError, match="is a regressor, but loss='zero_one'"):
        make_rate_scorer("neg_risk")(model, X, y)


@pytest.mark.parametrize("rate", ["fpr", "risk", "error_rate"])
def test_rates_that_are_lower_for_better_decisions(rate):
    with pytest.raises(ValueError, match=f"Pass 'neg_{rate}'"):
        make_rate_scorer(rate)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"rate": "recall"}, "must be one of 'tpr', .* got 'recall'"),
        ({"rate": None}, "got None"),
        (
            {"rate": "tpr", "ood_prior": 1.0},
            "'ood_prior' parameter of make_rate_scorer",
        ),
        ({"rate": "tpr", "ood_prior": -0.1}, "'ood_prior' parameter"),
        ({"rate": "neg_risk", "loss": "hinge"}, "loss must be 'zero_one'"),
        ({"rate": "neg_risk", "max_loss": 0}, "max_loss must be positive"),
    ],
)
def test_bad_parameters(params, match):
    with pytest.raises(ValueError, match=match):
        make_rate_scorer(**params)


def test_decisions_that_are_no_probabilities():
    X = outputs([0, 1, 0], [1, 0.5, 1.5])
    with pytest.raises(ValueError, match=r"accept_proba must return .* to 1\.5"):
        make_rate_scorer("tpr")(Table().fit(), X, [0, 1, -1])


def test_scorer_is_printed_with_its_parameters():
    assert repr(make_rate_scorer("precision", ood_prior=0.2)) == (
        "make_rate_scorer('precision', loss='zero_one', max_loss=None, "
        "ood_prior=0.2, ood_label=-1)"
    )

"""Tests of RejectOptionRegressor: decisions, uncertainties, OOD targets, errors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import IsolationForest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import (
    BayesianRidge,
    LinearRegression,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
)
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import Bunch

from skood.detectors import Mahalanobis
from skood.exceptions import SkoodWarning
from skood.metrics import (
    RiskCoverageCurve,
    auroc,
    make_cost_scorer,
    make_ood_scorer,
    make_rule_scorer,
    make_selective_risk_scorer,
    selective_risk_at,
)
from skood.rejection import (
    BoundedAbstention,
    BoundedImprovement,
    BoundedTPRFPR,
    PlugInCost,
    RejectOptionRegressor,
    TwoThresholds,
)
from tests.decision._scores import solved

INSTANCES = [
    RejectOptionRegressor(
        DecisionTreeRegressor(random_state=0),
        uncertainty=DecisionTreeRegressor(min_samples_leaf=5, random_state=0),
    ),
    RejectOptionRegressor(DecisionTreeRegressor(random_state=0)),
    RejectOptionRegressor(
        DecisionTreeRegressor(random_state=0),
        uncertainty=Ridge(),
        # accepts everything, by way of a calibrated threshold
        rule=PlugInCost(reject_id=1e6, ood_prior=0.0),
        calibration=2,
        random_state=0,
    ),
]


def _data(n_id=200, n_ood=60, seed=0):
    """A linear function of the first column, noise by the second, OOD by the third."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_id + n_ood, 3))
    y = X[:, 0] + 0.5 * np.abs(X[:, 1]) * rng.normal(size=len(X))
    X[n_id:, 2] += 4
    y[n_id:] = np.nan
    order = rng.permutation(len(X))
    return X[order], y[order]


X, Y = _data()
X_ID, Y_ID = X[~np.isnan(Y)], Y[~np.isnan(Y)]
X_NEW, Y_NEW = _data(seed=1)
IS_ID = ~np.isnan(Y_NEW)


class Scale(RegressorMixin, BaseEstimator):
    """The true standard deviation, as a model of the loss."""

    def fit(self, X, y):
        self.fitted_ = np.array(y)
        return self

    def predict(self, X):
        return np.abs(np.asarray(X)[:, 1])


class Zero(Scale):
    """A regressor with every kind of uncertainty."""

    def predict(self, X, return_std=False):
        mean, std = np.zeros(len(X)), np.asarray(X)[:, 1]
        return (mean, std) if return_std else mean

    def predict_uncertainty(self, X):
        X = np.asarray(X)
        return Bunch(total=X[:, 0], aleatoric=X[:, 1], epistemic=X[:, 2])


class Memory(RegressorMixin, BaseEstimator):
    """The target of the training sample with the same first feature, or 100."""

    def fit(self, X, y, sample_weight=None):
        self.known_ = dict(zip(X[:, 0].tolist(), y.tolist(), strict=False))
        return self

    def predict(self, X):
        return np.array([self.known_.get(v, 100.0) for v in X[:, 0].tolist()])


def _make(estimator=None, **params):
    params = {
        "uncertainty": Scale(),
        "ood_detector": Mahalanobis(),
        "rule": BoundedTPRFPR(0.7, 0.3),
        "random_state": 0,
        **params,
    }
    return RejectOptionRegressor(
        LinearRegression() if estimator is None else estimator, **params
    )


@pytest.fixture(scope="module")
def fitted():
    return _make().fit(X, Y)


# --- decisions -----------------------------------------------------------------------


def test_rejected_samples_are_nan(fitted):
    predicted = fitted.predict(X_NEW)
    accepted = fitted.accept_proba(X_NEW) == 1
    assert predicted.dtype == np.float64
    assert 20 < accepted.sum() < 180
    assert_array_equal(np.isnan(predicted), ~accepted)
    assert_array_equal(predicted[accepted], fitted.estimator_.predict(X_NEW)[accepted])


def test_masked_array(fitted):
    masked = clone(fitted).set_params(rejected="masked").fit(X, Y).predict(X_NEW)
    assert isinstance(masked, np.ma.MaskedArray)
    assert_array_equal(masked.mask, np.isnan(fitted.predict(X_NEW)))
    # rejected predictions are hidden, but not lost
    assert_array_equal(masked.data, fitted.estimator_.predict(X_NEW))
    assert_allclose(masked.mean(), np.nanmean(fitted.predict(X_NEW)))


def test_without_a_rule_it_is_the_regressor():
    reg = RejectOptionRegressor(Ridge(), random_state=0).fit(X_ID, Y_ID)
    plain = Ridge().fit(X_ID, Y_ID)
    assert_array_equal(reg.predict(X_NEW), plain.predict(X_NEW))
    expected = plain.score(X_NEW[IS_ID], Y_NEW[IS_ID])
    assert reg.score(X_NEW, Y_NEW) == expected
    weight = np.arange(len(Y_NEW)) % 3
    predicted = plain.predict(X_NEW[IS_ID])
    expected = r2_score(Y_NEW[IS_ID], predicted, sample_weight=weight[IS_ID])
    assert_allclose(reg.score(X_NEW, Y_NEW, weight), expected)
    report = reg.report(X_NEW, Y_NEW)
    assert (report.tpr.value, report.fpr.value) == (1.0, 1.0)


def test_the_rule_is_that_of_the_function():
    """The scores and losses that `fit` used, by hand, with frozen parts."""
    is_id = ~np.isnan(Y)
    frozen = FrozenEstimator(LinearRegression().fit(X_ID[:80], Y_ID[:80]))
    detector = FrozenEstimator(Mahalanobis().fit(X_ID[:80]))
    reg = _make(
        frozen,
        uncertainty=FrozenEstimator(Scale().fit(X, Y)),
        ood_detector=detector,
        loss="squared_error",
        calibration="same",
    ).fit(X, Y)
    risk, ood = np.abs(X[:, 1]), -detector.score_samples(X)
    loss = (Y - frozen.predict(X))[is_id] ** 2
    point = solved(reg.rule, risk[is_id], ood[is_id], loss, risk[~is_id], ood[~is_id])
    assert reg.operating_point_ == point
    assert reg.detector_inputs_ == {"risk": "estimator", "ood": "X"}
    risk_score, ood_score = reg.score_pair(X)
    assert_array_equal(risk_score, -risk)
    assert_array_equal(ood_score, -ood)


@pytest.mark.parametrize("loss", ["absolute_error", "squared_error", "callable"])
def test_report_and_score(loss):
    functions = {
        "absolute_error": lambda y, p: np.abs(y - p),
        "squared_error": lambda y, p: (y - p) ** 2,
        "callable": lambda y, p: np.maximum(y - p, 0.0),
    }
    function = functions[loss]
    loss = function if loss == "callable" else loss
    reg = _make(loss=loss, max_loss=0.5).fit(X, Y)
    report = reg.report(X_NEW, Y_NEW)
    accepted = ~np.isnan(reg.predict(X_NEW))
    both = accepted & IS_ID
    losses = function(Y_NEW[both], reg.estimator_.predict(X_NEW[both]))
    assert losses.max() > 0.5  # so that some are clipped
    risk = np.minimum(losses, 0.5).mean()
    assert_allclose(report.risk.value, risk)
    assert 0 <= report.risk.low < risk < report.risk.high < 0.5
    assert_allclose(reg.score(X_NEW, Y_NEW), -risk)
    assert report.tpr.value == accepted[IS_ID].mean()
    assert report.fpr.value == accepted[~IS_ID].mean()
    assert report.n_ood == 60


def test_interval_of_an_unbounded_loss():
    reg = _make().fit(X, Y)
    assert np.isnan(reg.report(X_NEW, Y_NEW).risk.high)
    assert reg.report(X_NEW, Y_NEW, max_loss=10.0).risk.high < 10
    with pytest.raises(ValueError, match=r"is above max_loss=0\.01"):
        reg.report(X_NEW, Y_NEW, max_loss=0.01)


def test_reasons_and_explanations(fitted):
    reasons = fitted.reject_reason(X_NEW)
    accepted = ~np.isnan(fitted.predict(X_NEW))
    assert_array_equal(reasons.reason == "accepted", accepted)
    assert set(reasons.reason) == {"accepted", "uncertain value", "out-of-distribution"}
    rejected_ood = reasons.reason[~IS_ID & ~accepted]
    assert np.mean(rejected_ood == "out-of-distribution") > 0.9
    explanation = fitted.explain(pd.DataFrame(X_NEW, columns=list("abc")))
    for i, sentence in enumerate(explanation.sentences):
        starts = {
            "accepted": f"accepted as {fitted.predict(X_NEW[i : i + 1])[0]:.3g}",
            "uncertain value": "rejected as uncertain: the risk score is higher than",
            "out-of-distribution": "rejected as out-of-distribution: ",
        }
        assert sentence.startswith(starts[reasons.reason[i]])


def test_another_rule_for_the_same_parts(fitted):
    other = fitted.with_rule(BoundedAbstention(0.5), X_NEW[IS_ID], Y_NEW[IS_ID])
    assert other.operating_point_.tpr >= 0.5
    assert other.estimator_ is fitted.estimator_
    assert other.risk_detector_ is fitted.risk_detector_
    copy = clone(other).fit(X_NEW[IS_ID], Y_NEW[IS_ID])
    assert_array_equal(copy.predict(X_NEW), other.predict(X_NEW))
    assert_array_equal(pickle.loads(pickle.dumps(other)).predict(X), other.predict(X))


@pytest.mark.parametrize("calibration", [3, KFold(4)])
def test_cross_fitted_scores(calibration):
    reg = _make(calibration=calibration).fit(X, Y)
    assert_allclose(reg.estimator_.coef_, LinearRegression().fit(X_ID, Y_ID).coef_)
    assert reg.operating_point_.tpr >= 0.7
    assert reg.operating_point_.fpr <= 0.3


# --- uncertainties -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uncertainty", "column"),
    [("std", 1), ("total", 0), ("aleatoric", 1), ("epistemic", 2), (Zero(), 0)],
    ids=repr,
)
def test_predicted_uncertainties(uncertainty, column):
    estimator = Zero() if isinstance(uncertainty, str) else LinearRegression()
    reg = _make(estimator, uncertainty=uncertainty).fit(X, Y)
    assert_array_equal(reg.score_pair(X_NEW)[0], -X_NEW[:, column])
    # of the last step of a pipeline, on its input
    steps = make_pipeline(StandardScaler(), estimator)
    if isinstance(uncertainty, str):
        reg = _make(steps, uncertainty=uncertainty).fit(X, Y)
        scaled = reg.estimator_[0].transform(X_NEW)
        assert_array_equal(reg.score_pair(X_NEW)[0], -scaled[:, column])


def test_standard_deviation_of_a_process():
    estimator = make_pipeline(StandardScaler(), GaussianProcessRegressor(alpha=0.5))
    reg = _make(estimator, uncertainty="std", ood_detector=None).fit(X, Y)
    _, std = reg.estimator_.predict(X_NEW, return_std=True)
    assert_array_equal(reg.score_pair(X_NEW)[0], -std)
    assert "standard deviation of GaussianProcessRegressor" in str(
        reg.report(X_NEW, Y_NEW)
    )


def test_width_of_an_interval():
    ends = tuple(QuantileRegressor(quantile=q, alpha=0) for q in (0.1, 0.9))
    reg = _make(uncertainty=ends).fit(X, Y)
    score = reg.risk_detector_
    width = score.upper_.predict(X_NEW) - score.lower_.predict(X_NEW)
    assert_array_equal(reg.score_pair(X_NEW)[0], -width)
    assert score.lower_ is not ends[0]
    assert not hasattr(ends[0], "coef_")


def test_losses_are_cross_validated():
    """A regressor that stores its training targets has no error on them."""
    reg = _make(Memory(), rule=None, ood_detector=None).fit(X_ID, Y_ID)
    losses = reg.risk_detector_.model_.fitted_
    assert_allclose(losses, np.abs(Y_ID - 100.0))
    clipped = _make(Memory(), rule=None, ood_detector=None, max_loss=3.0)
    clipped = clipped.fit(X_ID, Y_ID).risk_detector_.model_.fitted_
    assert_array_equal(clipped, np.full(len(Y_ID), 3.0))
    # a frozen regressor is not fitted again
    frozen = FrozenEstimator(Memory().fit(X_ID, Y_ID))
    reg = _make(frozen, rule=None, ood_detector=None).fit(X_ID, Y_ID)
    assert_array_equal(reg.risk_detector_.model_.fitted_, np.zeros(len(Y_ID)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("calibration", [None, 0.3, 3])
def test_losses_are_of_unseen_groups(calibration, weighted):
    """The regressor has seen copies of a sample, which are in its group."""
    X_id, y = np.repeat(X_ID, 3, axis=0), Y_ID.repeat(3)
    groups = np.array([f"patient {i}" for i in range(len(y) // 3)]).repeat(3)
    order = np.random.default_rng(0).permutation(len(y))
    reg = _make(
        Memory(),
        ood_detector=None,
        rule=None if calibration is None else BoundedAbstention(0.5),
        calibration=calibration or 0.3,
    )
    weight = np.ones(len(y)) if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)  # Scale takes no weights
        naive = clone(reg).fit(X_id[order], y[order], weight)
        reg.fit(X_id[order], y[order], weight, groups=groups[order])
    model = reg.risk_detector_.model_
    n_fitted = round(0.7 * len(groups)) if calibration == 0.3 else len(groups)
    assert len(model.fitted_) == n_fitted  # of the last fit
    assert (model.fitted_ > 90).all()
    assert np.mean(naive.risk_detector_.model_.fitted_ == 0) > 0.8


def test_losses_need_two_groups():
    groups = np.repeat([0, 1], 20)
    reg = RejectOptionRegressor(Ridge(), random_state=0)
    reg.fit(X[:40], np.arange(40.0), groups=groups)
    reg.set_params(rule=BoundedAbstention())
    with pytest.raises(ValueError, match="at least 2 groups to fit on, got n_groups=1"):
        reg.fit(X[:40], np.arange(40.0), groups=groups)


@pytest.mark.parametrize("n_samples", [2, 3, 4])
def test_very_few_samples(n_samples):
    X, y = np.arange(n_samples)[:, None], np.arange(n_samples)
    reg = RejectOptionRegressor(LinearRegression(), random_state=0).fit(X, y)
    assert_allclose(reg.predict(X), y, atol=1e-12)
    with pytest.raises(ValueError, match=r"at least 2 samples .* got n_samples=1"):
        RejectOptionRegressor(Ridge()).fit(X[:1], y[:1])


def test_the_default_model_ranks_by_the_noise():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, size=(500, 1))
    y = (1 + 9 * (x[:, 0] > 0.5)) * rng.normal(size=500)
    reg = RejectOptionRegressor(Ridge(), rule=BoundedAbstention(0.4), random_state=0)
    reg.fit(x, y)
    grid = np.array([[0.1], [0.3], [0.7], [0.9]])
    assert_array_equal(np.isnan(reg.predict(grid)), [False, False, True, True])
    # it estimates the conditional risk E|y|, for PlugInCost
    risks = -reg.score_pair(np.linspace(0, 1, 200)[:, None])[0].reshape(2, 100)
    assert_allclose(
        risks.mean(axis=1), np.sqrt(2 / np.pi) * np.array([1, 10]), rtol=0.2
    )


def test_text_in_a_pipeline():
    """The default model uses the numbers that the pipeline makes of texts."""
    words = np.array(["calm", "wild"])
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, size=200)
    y = (0.1 + 5 * kind) * rng.normal(size=200)
    texts = words[kind].tolist()
    reg = RejectOptionRegressor(
        make_pipeline(CountVectorizer(), Ridge()),
        rule=BoundedAbstention(0.3),
        random_state=0,
    ).fit(texts, y)
    assert_array_equal(np.isnan(reg.predict(["calm", "wild"])), [False, True])
    with pytest.raises(ValueError, match="could not convert") as error:
        RejectOptionRegressor(Words(), random_state=0).fit(texts, y)
    notes = " ".join(getattr(error.value, "__notes__", []))
    assert "another model or uncertainty" in notes


class Words(Scale):
    """A regressor of texts that are not turned into numbers."""

    def predict(self, X):
        return np.array([float(len(text)) for text in X])


def test_detectors_of_scikit_learn():
    reg = _make(ood_detector=IsolationForest()).fit(X, Y)
    scores = reg.ood_detector_.score_samples(X_NEW)
    assert_array_equal(reg.score_pair(X_NEW)[1], scores)
    # the only score may be one of unusual inputs
    reg = _make(uncertainty=Mahalanobis(), ood_detector=None).fit(X, Y)
    is_ood = np.where(IS_ID, 1, -1)
    assert auroc(is_ood, reg.score_pair(X_NEW)[0]) > 0.95


# --- OOD samples ---------------------------------------------------------------------


def test_ood_samples_are_not_fitted_on():
    moved = X.copy()
    moved[np.isnan(Y)] += 1e3
    plain, other = (_make().fit(x, Y) for x in (X, moved))
    assert_array_equal(plain.estimator_.coef_, other.estimator_.coef_)
    assert_array_equal(
        plain.ood_detector_.score_samples(X_NEW),
        other.ood_detector_.score_samples(X_NEW),
    )


@pytest.mark.parametrize("missing", [None, pd.NA, np.nan])
def test_missing_targets_of_any_kind(missing, fitted):
    y = pd.Series([missing if np.isnan(v) else v for v in Y], dtype=object)
    reg = _make().fit(X, y)
    assert_array_equal(reg.predict(X_NEW), fitted.predict(X_NEW))
    nullable = pd.Series(Y).convert_dtypes()
    assert reg.score(X, nullable) == fitted.score(X, Y)


def test_targets_that_are_missing_by_mistake():
    for rule in (None, BoundedAbstention(0.5)):
        with pytest.warns(
            SkoodWarning, match=r"y is NaN for 60 of 260 samples.*missin"
        ):
            _make(rule=rule, ood_detector=None).fit(X, Y)


def test_bad_targets():
    reg = _make()
    with pytest.raises(ValueError, match="every target in y is NaN"):
        reg.fit(X, np.full(len(X), np.nan))
    with pytest.raises(ValueError, match="contains infinity"):
        reg.fit(X, np.where(np.isnan(Y), np.inf, Y))
    with pytest.raises(ValueError, match="targets of a regression, numbers, got"):
        reg.fit(X, np.where(np.isnan(Y), "ood", "id"))
    with pytest.raises(ValueError, match="needs OOD samples: samples with the target"):
        reg.fit(X[IS_ID], np.zeros(IS_ID.sum()))
    with pytest.raises(ValueError, match="No in-distribution samples in y: every t"):
        reg.fit(X, Y).score(X, np.full(len(X), np.nan))


# --- parameters ----------------------------------------------------------------------


def test_bad_parameters():
    for params, error, message in (
        ({"estimator": LogisticRegression()}, TypeError, "Use RejectOptionClassifier"),
        ({"estimator": Mahalanobis()}, TypeError, "regressor, got the outlier detec"),
        ({"uncertainty": LogisticRegression()}, TypeError, "regressor of the loss"),
        ({"uncertainty": (Ridge(),)}, ValueError, "must be a pair of regressors"),
        ({"uncertainty": "std"}, TypeError, r"return_std=True\), such as Gaussian"),
        ({"uncertainty": "total"}, TypeError, "requires a regressor with predict_unc"),
        ({"loss": "zero_one"}, ValueError, "The 'loss' parameter of RejectOptionR"),
        ({"max_loss": 0.0}, ValueError, "The 'max_loss' parameter of RejectOptionR"),
        ({"rejected": None}, ValueError, "The 'rejected' parameter of RejectOptionR"),
        ({"calibration": "same"}, ValueError, "but estimator would be fitted"),
        (
            {"guarantee": "ltt", "rule": BoundedImprovement(0.5)},
            ValueError,
            "bounded losses: set max_loss",
        ),
    ):
        with pytest.raises(error, match=message):
            _make(**params).fit(X, Y)


def test_calibration_on_the_same_samples():
    """A standard deviation of a frozen regressor is fitted on nothing else."""
    frozen = FrozenEstimator(BayesianRidge().fit(X_ID, Y_ID))
    params = {"calibration": "same", "ood_detector": None}
    _make(frozen, uncertainty="std", **params).fit(X_NEW, Y_NEW)
    with pytest.raises(ValueError, match="frozen parts, but uncertainty would be"):
        _make(frozen, uncertainty=None, **params).fit(X_NEW, Y_NEW)


def test_two_targets():
    class Two(Scale):
        def predict(self, X):
            return np.zeros((len(X), 2))

    reg = RejectOptionRegressor(Two(), uncertainty=Mahalanobis())
    with pytest.raises(ValueError, match=r"one target, got predictions of shape \(26"):
        reg.fit(X, np.zeros(len(X))).predict(X)


# --- weights, searches, metrics ------------------------------------------------------


def test_weights_are_frequencies():
    frozen = FrozenEstimator(LinearRegression().fit(X_ID, Y_ID))
    params = {
        "uncertainty": FrozenEstimator(Scale().fit(X, Y)),
        "ood_detector": FrozenEstimator(Mahalanobis().fit(X_ID)),
        "calibration": "same",
    }
    weight = np.arange(len(Y)) % 3
    weighted = _make(frozen, **params).fit(X, Y, weight)
    repeated = _make(frozen, **params).fit(np.repeat(X, weight, 0), Y.repeat(weight))
    assert_allclose(weighted.theta_, repeated.theta_, atol=1e-6)
    assert_array_equal(weighted.predict(X_NEW), repeated.predict(X_NEW))


def test_weights_of_the_parts():
    is_id = ~np.isnan(Y)
    weight = np.where(X[:, 0] > 0, 3.0, 1.0)
    reg = _make(uncertainty=Ridge(), rule=None, ood_detector=None)
    reg.fit(X_ID, Y_ID, weight[is_id])
    expected = LinearRegression().fit(X_ID, Y_ID, weight[is_id])
    assert_allclose(reg.estimator_.coef_, expected.coef_)


@pytest.mark.parametrize(
    "scorer",
    [
        make_selective_risk_scorer(0.6, 0.4, loss="absolute_error"),
        make_rule_scorer(BoundedTPRFPR(0.6, 0.4), loss="squared_error", max_loss=2.0),
        make_cost_scorer(loss=lambda y, p: np.abs(y - p), ood_prior=0.2),
    ],
    ids=repr,
)
def test_scorers(scorer, fitted):
    score = scorer(fitted, X_NEW, Y_NEW)
    accepted = ~np.isnan(fitted.predict(X_NEW))
    residual = np.abs(Y_NEW - fitted.estimator_.predict(X_NEW))[IS_ID & accepted]
    tpr, fpr = accepted[IS_ID].mean(), accepted[~IS_ID].mean()
    expected = {
        "make_selective_risk_scorer": residual.mean(),
        "make_rule_scorer": np.minimum(residual**2, 2.0).mean(),
        "make_cost_scorer": 0.8 * (residual.sum() / IS_ID.sum() + 0.3 * (1 - tpr))
        + 0.2 * fpr,
    }
    assert_allclose(score, -expected[repr(scorer).split("(")[0]])


def test_scores_of_violated_bounds(fitted):
    """Below all scores of candidates that meet the bounds."""
    accepted = ~np.isnan(fitted.predict(X_NEW))
    missing = 1.0 - accepted[IS_ID].mean()
    scorer = make_selective_risk_scorer(1.0, 1.0, loss="absolute_error", max_loss=7.0)
    assert_allclose(scorer(fitted, X_NEW, Y_NEW), -(7.0 + missing))
    scorer = make_selective_risk_scorer(1.0, 1.0, loss="absolute_error")
    largest = np.nanmax(Y_NEW) - np.nanmin(Y_NEW)
    assert_allclose(scorer(fitted, X_NEW, Y_NEW), -(largest + missing))


def test_errors_of_scorers(fitted):
    with pytest.raises(ValueError, match="is a regressor, but loss='zero_one' is for"):
        make_selective_risk_scorer()(fitted, X_NEW, Y_NEW)
    scorer = make_selective_risk_scorer(loss="absolute_error")
    with pytest.raises(ValueError, match=r"OOD are samples with the target NaN\. Use"):
        scorer(fitted, X_NEW[IS_ID], Y_NEW[IS_ID])
    classifier = LogisticRegression().fit(X, np.isnan(Y))
    with pytest.raises(TypeError, match="needs an estimator that accepts"):
        scorer(classifier, X, Y)
    with pytest.raises(ValueError, match="max_loss must be positive and finite"):
        make_selective_risk_scorer(loss="absolute_error", max_loss=-1.0)


def test_searches():
    cv = KFold(3, shuffle=True, random_state=0)
    scorer = make_selective_risk_scorer(0.3, 0.7, loss="absolute_error")
    search = GridSearchCV(
        make_pipeline(StandardScaler(), _make(Ridge())),
        {
            "rejectoptionregressor__rule__tpr_min": [0.55, 0.8],
            "rejectoptionregressor__estimator__alpha": [1e-3, 1e4],
        },
        scoring=scorer,
        cv=cv,
        error_score="raise",
    ).fit(X, Y)
    # a smaller coverage has a smaller risk, and a huge penalty fits nothing
    assert search.best_params_ == {
        "rejectoptionregressor__rule__tpr_min": 0.55,
        "rejectoptionregressor__estimator__alpha": 1e-3,
    }
    reg = search.best_estimator_
    scores = cross_val_score(reg, X, Y, scoring=make_ood_scorer(), cv=cv)
    assert scores.min() > 0.95
    plain = cross_val_score(reg, X, Y, cv=cv, error_score="raise")
    assert (plain < 0).all()
    assert (plain > -1).all()


def test_curves_of_targets():
    """A target of -1 is no OOD sample, and NaN is one."""
    y = np.array([-1.0, 2.0, np.nan, 0.5])
    predicted, score = np.array([0.0, 2.0, 7.0, 0.0]), [0.5, 0.9, 0.8, 0.7]
    make_curve = RiskCoverageCurve.from_predictions
    curve = make_curve(y, predicted, score, loss="absolute_error")
    assert_allclose(curve.coverage, [1 / 3, 2 / 3, 1])
    assert_allclose(curve.risk, [0, 0.25, 0.5])
    curve = make_curve(y, predicted, score, loss="squared_error")
    assert_allclose(curve.risk, [0, 0.125, 1.25 / 3])
    curve = make_curve(
        y, predicted, score, loss=lambda t, p: np.abs(t - p), ood_label=np.nan
    )
    assert_allclose(curve.risk, [0, 0.25, 0.5])
    point = selective_risk_at(
        y,
        predicted,
        score,
        rule=BoundedTPRFPR(tpr_min=0.3, fpr_max=0.0),
        loss="absolute_error",
    )
    assert (point.tpr, point.fpr, point.risk) == (1 / 3, 0.0, 0.0)
    with pytest.raises(ValueError, match="y_true contains NaN"):
        make_curve(y, predicted, score, loss=np.ones(4))


# --- guarantees ----------------------------------------------------------------------


def _heavy(n, rng):
    """Cauchy noise that grows with x, whose values are few."""
    X = rng.integers(1, 6, size=(n, 1)) / 5
    return X, X[:, 0] ** 2 * rng.standard_cauchy(n)


@pytest.mark.parametrize("n_draws", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_guarantee_with_heavy_tails(n_draws):
    """The mean clipped loss of new samples, over draws of the calibration samples."""
    rng = np.random.default_rng(0)
    X_test, y_test = _heavy(50_000, rng)
    loss = np.minimum(np.abs(y_test), 3.0)
    n_broken = n_certified = 0
    for seed in range(n_draws):
        reg = RejectOptionRegressor(
            FrozenEstimator(ZeroOfColumn().fit(None, None)),
            uncertainty="std",
            rule=BoundedImprovement(0.4),
            calibration="same",
            max_loss=3.0,
            guarantee="high_probability",
            random_state=seed,
        )
        try:
            reg.fit(*_heavy(600, rng))
        except ValueError:  # not certified
            continue
        n_certified += 1
        accepted = ~np.isnan(reg.predict(X_test))
        n_broken += loss[accepted].mean() > 0.4
    assert n_certified > 2 * n_draws / 3
    # delta = .1 of the draws, and 3 standard deviations
    assert n_broken <= 0.1 * n_draws + 3 * np.sqrt(n_draws * 0.1 * 0.9)


class ZeroOfColumn(Zero):
    """Predicts zero, with the first column as standard deviation."""

    def predict(self, X, return_std=False):
        mean, std = np.zeros(len(X)), np.asarray(X)[:, 0]
        return (mean, std) if return_std else mean


def test_two_thresholds_in_units_of_the_loss():
    reg = _make(
        rule=TwoThresholds(0.1, 30.0, criterion="selective_risk"),
        loss=lambda y, p: 100 * np.abs(y - p),
        max_loss=300.0,
        guarantee="high_probability",
    ).fit(*_data(2000, 0))
    report = reg.report(*_data(1000, 300, seed=2))
    assert report.risk.value < 30
    assert report.tpr.value > 0.4
    assert report.fpr.value < 0.2

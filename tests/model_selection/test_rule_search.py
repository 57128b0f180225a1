"""Tests of RuleSearchCV: results equal scikit-learn's, with a fit per fold."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import skops.io as skops_io
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVR, LinearSVC

from skood.combine import (
    DSDE,
    BenjaminiHochberg,
    Bonferroni,
    DetectorEnsemble,
    DOSStorey,
    Fisher,
)
from skood.detectors import KNN, Mahalanobis
from skood.exceptions import SkoodWarning
from skood.metrics import (
    make_cost_scorer,
    make_ood_scorer,
    make_rule_scorer,
    make_selective_risk_scorer,
)
from skood.model_selection import OODStratifiedKFold, RuleSearchCV
from skood.rejection import (
    BoundedAbstention,
    BoundedErrorRate,
    BoundedImprovement,
    BoundedTPRFPR,
    Certificate,
    CostBased,
    LinearRule,
    PlugInCost,
    RejectOptionClassifier,
    RejectOptionRegressor,
    Solver,
    TwoThresholds,
)

INSTANCES = [
    RuleSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
    RuleSearchCV(SVR(), {"C": [0.1, 1.0]}, cv=2),
]

pytestmark = pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")


def make_data(n=240, labels=(0, 1, -1), seed=0):
    """Two overlapping classes, and OOD samples on one side, with the last label."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=n, p=[0.4, 0.4, 0.2])
    X = rng.normal(size=(n, 2)) + np.array([[0, 0], [1.5, 0], [1, 3]])[y]
    return X, np.array(labels, dtype=object)[y].astype(type(labels[0]))


class CountedNB(GaussianNB):
    """Naive Bayes that counts its fits and predictions."""

    counts = Counter()

    def fit(self, X, y, sample_weight=None):
        self.counts["fit"] += 1
        return super().fit(X, y, sample_weight)

    def predict(self, X):
        self.counts["predict"] += 1
        return super().predict(X)


class CountedScaler(TransformerMixin, BaseEstimator):
    """A step that counts its fits and transforms, and doubles."""

    counts = Counter()

    def fit(self, X, y=None):
        self.counts["fit"] += 1
        return self

    def transform(self, X):
        self.counts["transform"] += 1
        return 2 * np.asarray(X)

    def __sklearn_is_fitted__(self):
        return True


@pytest.fixture(autouse=True)
def _reset_counts():
    for cls in (CountedNB, CountedScaler):
        cls.counts.clear()


def make_clf(**params):
    params = {"ood_detector": KNN(n_neighbors=3), "random_state": 0, **params}
    params = {"rule": BoundedTPRFPR(), "solver": Solver("grid", n_angles=9), **params}
    return RejectOptionClassifier(CountedNB(), **params)


def searched(estimator, grid, X, y, params=None, n_jobs=None, **options):
    """Return both searches, with the messages of their warnings, if they are equal."""
    searches = []
    for cls, jobs in ((GridSearchCV, None), (RuleSearchCV, n_jobs)):
        search = cls(clone(estimator), grid, n_jobs=jobs, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with parallel_config("multiprocessing"):
                search.fit(X, y, **(params or {}))
        messages = {(each.category, str(each.message)) for each in caught}
        searches.append((search, messages))
    (expected, _), (search, _) = searches
    assert list(search.cv_results_) == list(expected.cv_results_)
    for name, values in expected.cv_results_.items():
        result = search.cv_results_[name]
        if name == "params" or name.startswith("param_"):
            assert repr(result) == repr(values), name
        elif not name.endswith("_time"):
            assert_allclose(result, values, rtol=0, atol=1e-12, err_msg=name)
            assert result.dtype == values.dtype
        else:
            assert result.shape == values.shape and (result >= 0).all()
    names = set(filter(lambda name: name.endswith("_"), vars(expected)))
    assert {name for name in vars(search) if name.endswith("_")} == names
    for name in ("best_index_", "n_splits_", "multimetric_", "best_score_"):
        if name in names:
            assert getattr(search, name) == pytest.approx(getattr(expected, name))
    assert repr(search.scorer_) == repr(expected.scorer_)
    if expected.refit:
        assert repr(search.best_params_) == repr(expected.best_params_)
        for method in ("predict", "predict_proba", "accept_proba", "score_samples"):
            best, other = expected.best_estimator_, search.best_estimator_
            if hasattr(best, method):
                assert_array_equal(getattr(other, method)(X), getattr(best, method)(X))
        shown = (
            []
            if callable(expected.refit)
            else [
                np.asarray(each.score(X, y), dtype=float) for each in (expected, search)
            ]
        )
        assert not shown or shown[0] == pytest.approx(shown[1], abs=1e-12)
    return searches


RULES = [
    BoundedTPRFPR(0.7, 0.4),
    BoundedTPRFPR(0.999, 0.0),  # infeasible
    LinearRule(0.3, 0.9),
    CostBased(0.2, ood_prior=0.1),
    BoundedAbstention(0.6),
    TwoThresholds(0.1, 0.1),
    PlugInCost(ood_prior=0.0),
    BoundedImprovement(0.1),
    BoundedTPRFPR(2.0, 0.5),  # invalid
]

SCORERS = {
    "risk": make_selective_risk_scorer(0.6, 0.5),
    "cost": make_cost_scorer(0.2, ood_prior=0.1),
    "rule": make_rule_scorer(BoundedImprovement(0.2)),
    "auroc": make_ood_scorer(),
    "accuracy": "accuracy",
}


@pytest.mark.parametrize(
    ("labels", "n_jobs"), [((0, 1, -1), None), (("no", "yes", "other"), 2)]
)
def test_equals_grid_search_of_rules(labels, n_jobs):
    """With rules that raise, every scorer, string labels and training scores."""
    X, y = make_data(labels=labels)
    ood = labels[-1]
    scoring = {
        "risk": make_selective_risk_scorer(0.6, 0.5, ood_label=ood),
        "cost": make_cost_scorer(0.2, ood_prior=0.1, ood_label=ood),
        "rule": make_rule_scorer(BoundedImprovement(0.2), ood_label=ood),
        "ranks": make_ood_scorer(ood_label=ood),
        "risk_ranks": make_ood_scorer(ood_label=ood, score="risk"),
        "accuracy": "accuracy",
    }
    grid = [
        {"rule": RULES},
        {"rule__fpr_max": [0.4, 0.6], "solver__tol": [1e-2, 1e-1], "solver": ["bnb"]},
        {"rule": [None], "solver": ["bnb", "grid"]},
    ]
    (_, expected), (search, messages) = searched(
        make_clf(ood_label=ood, reject_label="auto"),
        grid,
        X,
        y,
        n_jobs=n_jobs,
        scoring=scoring,
        refit="cost",
        cv=OODStratifiedKFold(2, ood_label=ood),
        return_train_score=True,
    )
    assert np.isnan(search.cv_results_["mean_test_risk"][[1, 8]]).all()
    failed = [str(text) for kind, text in messages if kind is FitFailedWarning]
    (text,) = failed
    assert "4 fits failed out of a total of 30" in text
    assert "InfeasibleError: No acceptance rule meets" in text
    assert "'tpr_min' parameter of BoundedTPRFPR" in text
    assert any(kind is FitFailedWarning for kind, _ in expected)


def test_fits_once_per_fold_and_setting():
    X, y = make_data()
    scorer = make_selective_risk_scorer(0.6, 0.5)
    options = {"scoring": scorer, "cv": OODStratifiedKFold(3)}
    RuleSearchCV(make_clf(), {"rule": RULES}, **options).fit(X, y)
    assert CountedNB.counts["fit"] == 3 + 1
    # the first candidate of a fit may raise; equal numbers in two grids are equal
    CountedNB.counts.clear()
    grid = [
        {"rule": RULES[1:3], "ood_detector__n_neighbors": [2, 1]},
        {"rule": [RULES[0]], "ood_detector__n_neighbors": [1, 2]},
        {"rule": [None], "solver": ["bnb", "grid", "exact"]},
    ]
    RuleSearchCV(make_clf(), grid, refit=False, **options).fit(X, y)
    assert CountedNB.counts["fit"] == 3 * 3
    # cross-fitting fits more than once
    CountedNB.counts.clear()
    clf = make_clf(calibration=2)
    RuleSearchCV(clf, {"rule": RULES}, refit=False, **options).fit(X, y)
    assert CountedNB.counts["fit"] == 3 * (2 + 1)


def test_scores_samples_once():
    X, y = make_data()
    grid = {"rule": [RULES[0], *RULES[2:6]]}
    clf = make_clf(calibration=0.4)
    cv = OODStratifiedKFold(2)
    options = {"scoring": SCORERS, "refit": False, "cv": cv}
    RuleSearchCV(clf, grid, **options).fit(X, y)
    # calibration samples and the test samples of each fold
    assert CountedNB.counts["predict"] == 2 * 2
    CountedNB.counts.clear()
    RuleSearchCV(clf, grid, return_train_score=True, **options).fit(X, y)
    assert CountedNB.counts["predict"] == 2 * 3


def test_equals_grid_search_of_guarantees():
    """A certificate within groups holds samples out regardless of them."""
    X, y = make_data(400)
    groups = np.arange(400) // 2 % 150
    certificates = [
        None,
        "high_probability",
        Certificate("ltt", delta=0.2),
        "expectation",
        Certificate(within="class", delta=0.3),
        Certificate(within="groups", small_groups="pool", delta=0.3),
        Certificate(within="groups", small_groups="skip", delta=0.2),
        "no such method",
    ]
    grid = [
        {"guarantee": certificates, "rule": [BoundedAbstention(0.5)]},
        {"guarantee__delta": [0.1, 0.4], "rule": [BoundedTPRFPR(0.5, 0.8)]},
    ]
    with config_context(enable_metadata_routing=True):
        clf = make_clf().set_fit_request(groups=True)
        scorer = make_cost_scorer(0.2, ood_prior=0.1)
        searched(
            clf,
            grid,
            X,
            y,
            {"groups": groups},
            scoring=scorer,
            cv=OODStratifiedKFold(2),
        )
    CountedNB.counts.clear()
    search = RuleSearchCV(
        make_clf(rule=BoundedAbstention(0.5)),
        {"guarantee": [None, "high_probability", Certificate(within="class")]},
        scoring=make_cost_scorer(0.2, ood_prior=0.1),
        cv=OODStratifiedKFold(2),
    ).fit(X, y)
    assert CountedNB.counts["fit"] == 2 + 1
    assert len(search.cv_results_["params"]) == 3


def test_equals_grid_search_of_a_regressor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = X[:, 0] + np.abs(X[:, 1]) * rng.normal(size=200)
    y[X[:, 1] > 1.5] = np.nan
    reg = RejectOptionRegressor(
        LinearRegression(),
        Mahalanobis(),
        ood_detector=KNN(n_neighbors=3),
        random_state=0,
        max_loss=3.0,
    )
    grid = [
        {
            "rule": [
                BoundedAbstention(0.7),
                BoundedImprovement(0.0),
                LinearRule(0.1, 0.8),
                BoundedTPRFPR(0.5, 0.9),
            ],
            "guarantee": [None, "expectation"],
        },
        {
            "rule": [BoundedAbstention()],
            "rule__coverage": [0.5, 0.9],
            "loss": ["squared_error"],
        },
    ]
    scoring = {
        "risk": make_selective_risk_scorer(0.4, 0.9, loss="absolute_error", max_loss=3),
        "ranks": make_ood_scorer(),
    }
    cv = KFold(2, shuffle=True, random_state=0)
    searched(reg, grid, X, y, scoring=scoring, refit="ranks", cv=cv)


MEMBERS = [
    ("net", KNN(GaussianNB(), n_neighbors=3)),
    ("near", KNN(n_neighbors=2)),
    ("far", Mahalanobis()),
    ("wide", KNN(n_neighbors=9)),
]

COMBINERS = [
    BenjaminiHochberg(),
    Fisher(),
    Bonferroni(),
    DOSStorey(),
    DOSStorey(beta=-1.0),  # invalid
    "no combiner",
]


@pytest.mark.parametrize("calibration", [0.4, 2])
@pytest.mark.parametrize("cls", [DetectorEnsemble, DSDE])
def test_equals_grid_search_of_combiners(cls, calibration):
    X, y = make_data(labels=("no", "yes", "other"))
    ensemble = cls(
        MEMBERS, calibration=calibration, random_state=0, ood_label="other", alpha=0.2
    )
    grid = [
        {"combiner": COMBINERS, "level": ["nominal"]},
        {"alpha": [0.05, 1.5], "method": ["ecdf", "conformal"]},
        {"combiner": [DOSStorey()], "combiner__beta": [0.5, 1], "far": [KNN()]},
        {"combiner": [Fisher()], "far": ["drop"], "alpha": [0.1, 0.3]},
    ]
    if cls is DSDE:
        grid = [
            {"c_m": [0.25, 0.5], "beta": [0.0, 1.0], "level": ["nominal"]},
            grid[1],
            {"beta": [0.5, 1.0], "far": [KNN()]},
            {"c_m": [0.3], "far": ["drop"], "alpha": [0.1, 0.3]},
        ]
    scoring = {
        "auroc": make_ood_scorer(ood_label="other"),
        "fpr": make_ood_scorer("fpr_at_tpr", ood_label="other"),
        "accepted": lambda search, X, y: np.mean(search.predict(X) == 1),
    }
    searched(
        ensemble,
        grid,
        X,
        y,
        scoring=scoring,
        refit="auroc",
        cv=OODStratifiedKFold(2, ood_label="other"),
        return_train_score=True,
    )


def test_fits_of_ensembles():
    X, y = make_data()
    library = [(f"net{i}", KNN(CountedNB(), n_neighbors=i + 1)) for i in range(4)]
    grid = {"combiner": COMBINERS[:4], "level": ["conformal", "nominal"]}
    options = {"scoring": make_ood_scorer(), "cv": OODStratifiedKFold(3)}
    fits = []
    for cls, params in ((GridSearchCV, {"level": ["nominal"]}), (RuleSearchCV, grid)):
        CountedNB.counts.clear()
        ensemble = DetectorEnsemble(library, random_state=0)
        cls(ensemble, params, **options).fit(X, y)
        fits.append(CountedNB.counts["fit"])
    assert fits[0] == fits[1]
    # with None, all candidates share held-out samples: only the level differs
    search = RuleSearchCV(DSDE(library), {"alpha": [0.1, 0.2, 0.3]}, **options)
    assert np.ptp(search.fit(X, y).cv_results_["mean_test_score"]) < 1e-9


def test_labels_without_a_rule():
    """A classifier without probabilities, and losses with the decision of least."""
    X, y = make_data()
    svm = RejectOptionClassifier(LinearSVC(), ood_detector=KNN(), random_state=0)
    scoring = {"accuracy": "accuracy", "labels": lambda clf, X, y: clf.decide(X).mean()}
    options = {"scoring": scoring, "refit": "labels", "cv": OODStratifiedKFold(2)}
    grid = {"rule": [None, BoundedAbstention(0.5)], "solver": ["grid", "bnb"]}
    _, (search, _) = searched(svm, grid, X, y, **options)
    assert np.isnan(search.cv_results_["mean_test_labels"]).tolist() == [0, 0, 1, 1]
    CountedNB.counts.clear()
    params = {**grid, "loss": [[[0, 1], [9, 0]]], "decision": ["auto", "estimator"]}
    searched(make_clf(), params, X, y, **options)


def test_no_random_state_shares_draws():
    X, y = make_data()
    rules = [BoundedAbstention(0.6) for _ in range(4)]
    scorer = make_rule_scorer(BoundedAbstention(0.3))
    for calibration in (0.3, 2):
        clf = make_clf(random_state=None, calibration=calibration)
        cv = OODStratifiedKFold(2)
        search = RuleSearchCV(clf, {"rule": rules}, scoring=scorer, cv=cv).fit(X, y)
        assert np.ptp(search.cv_results_["mean_test_score"]) == 0


def test_pipelines_share_their_steps():
    """Also steps that return their input, in nested pipelines and with a memory."""
    X, y = make_data()
    last = make_pipeline(
        FunctionTransformer(), FunctionTransformer(), CountedScaler(), make_clf()
    )
    pipeline = make_pipeline(StandardScaler(), CountedScaler(), "passthrough", last)
    path = "pipeline__rejectoptionclassifier__"
    grid = [
        {f"{path}rule": RULES[:4]},
        {f"{path}rule__tpr_min": [0.5], f"{path}ood_detector__n_neighbors": [1, 2]},
        {"standardscaler__with_std": [False], f"{path}solver__n_angles": [2, 5]},
    ]
    options = {
        "scoring": {name: SCORERS[name] for name in ("risk", "auroc")},
        "refit": "risk",
        "cv": OODStratifiedKFold(2),
        "return_train_score": True,
    }
    _, (search, _) = searched(pipeline, grid, X, y, **options)
    assert search.best_estimator_.memory is None
    CountedScaler.counts.clear()
    CountedNB.counts.clear()
    params = {f"{path}rule": RULES, f"{path}solver": ["bnb", "grid"]}
    RuleSearchCV(pipeline, params, **{**options, "refit": False}).fit(X, y)
    assert CountedNB.counts["fit"] == 2
    # two scalers; training samples in the fit, then test and training samples
    assert CountedScaler.counts == {"fit": 2 * 2, "transform": 2 * 2 * 3}


def test_memory_of_a_pipeline_is_used(tmp_path):
    X, y = make_data()
    pipeline = make_pipeline(CountedScaler(), make_clf(), memory=str(tmp_path))
    grid = {"rejectoptionclassifier__ood_detector__n_neighbors": [1, 2, 3]}
    options = {"scoring": SCORERS["cost"], "cv": OODStratifiedKFold(2), "refit": False}
    RuleSearchCV(pipeline, grid, **options).fit(X, y)
    assert CountedScaler.counts["fit"] == 2
    searched(pipeline, grid, X, y, **options)


def test_any_estimator_is_searched():
    X, y = make_data()
    frame = pd.DataFrame(X, columns=["a", "b"])
    target = pd.Series(y)
    grid = {"C": [0.1, 1.0], "solver": ["lbfgs", "none"]}
    options = {"scoring": "accuracy", "cv": 2, "return_train_score": True}
    (expected, _), (search, _) = searched(
        LogisticRegression(), grid, frame, target, **options
    )
    assert search.feature_names_in_.tolist() == ["a", "b"]
    assert search.n_features_in_ == expected.n_features_in_ == 2
    searched(StandardScaler(), {"with_std": [True]}, X, None, scoring=lambda *_: 1.0)
    searched(KNN(), {"n_neighbors": [1, 2]}, X, y, scoring=make_ood_scorer())
    assert isinstance(search, GridSearchCV)
    scores = cross_val_score(clone(search), frame, target, cv=2)
    assert_array_equal(scores, cross_val_score(clone(expected), frame, target, cv=2))


def test_weights_and_groups():
    """Passed to fits, splits and scorers, with routing and without."""
    X, y = make_data()
    rng = np.random.default_rng(0)
    weight, groups = rng.integers(0, 3, size=len(y)), np.arange(len(y)) // 3
    grid = {"rule__tpr_min": [0.4, 0.6, 1.5], "solver": ["bnb", "grid"]}
    options = {"scoring": make_cost_scorer(0.2, ood_prior=0.1), "cv": GroupKFold(2)}
    params = {"sample_weight": weight.tolist(), "groups": groups}
    searched(make_clf(), grid, X, y, params, **options)
    with config_context(enable_metadata_routing=True):
        clf = make_clf(calibration=GroupKFold(2)).set_fit_request(
            groups=True, sample_weight="own_weight"
        )
        clf.estimator.set_fit_request(sample_weight=True)
        clf.ood_detector.set_fit_request(sample_weight=False)
        scorer = make_cost_scorer(0.2, ood_prior=0.1)
        scorer.set_score_request(sample_weight="own_weight")
        scoring = {"cost": scorer, "accuracy": "accuracy"}
        params = {"own_weight": weight, "groups": groups}
        options |= {"scoring": scoring, "refit": "cost"}
        searched(clf, grid, X, y, params, **options)
        with pytest.raises(TypeError, match="unexpected argument"):
            RuleSearchCV(clf, grid, **options).fit(X, y, other=weight)


def test_refit():
    X, y = make_data()
    scoring = {name: SCORERS[name] for name in ("risk", "cost")}
    grid = {"rule": RULES[:4]}
    options = {"scoring": scoring, "cv": OODStratifiedKFold(2)}
    seen = []

    def choose(results):
        seen.append(
            {name: values.copy() for name, values in results.items() if "_time" in name}
        )
        return 2

    searched(make_clf(), grid, X, y, refit=choose, **options)
    (_, times) = seen
    search = RuleSearchCV(make_clf(), grid, refit=choose, **options).fit(X, y)
    assert search.best_params_ == {"rule": RULES[2]} and not hasattr(
        search, "best_score_"
    )
    for name, values in seen[-1].items():
        assert_array_equal(search.cv_results_[name], values)
    # naive Bayes takes longer than the choice of a linear rule
    assert times["mean_fit_time"].min() > 0
    (_, _), (search, _) = searched(make_clf(), grid, X, y, refit=False, **options)
    assert not hasattr(search, "predict")
    with pytest.raises(ValueError, match="the parameter refit must be set to a scorer"):
        RuleSearchCV(make_clf(), grid, refit=True, **options).fit(X, y)
    assert CountedNB.counts["fit"] > 0
    searched(
        make_clf(),
        grid,
        X,
        y,
        scoring=lambda clf, X, y: {
            "a": clf.score(X, y),
            "b": clf.accept_proba(X).mean(),
        },
        refit="b",
        cv=OODStratifiedKFold(2),
    )


def test_errors():
    X, y = make_data()
    options = {"scoring": SCORERS["cost"], "cv": OODStratifiedKFold(2)}
    for cls in (GridSearchCV, RuleSearchCV):
        search = cls(make_clf(), {"rule": RULES[1:2]}, **options)
        with pytest.raises(ValueError, match=r"All the 2 fits failed(.|\n)*Infeasible"):
            search.fit(X, y)
        search.set_params(error_score="raise")
        with pytest.raises(ValueError, match="No acceptance rule meets"):
            search.fit(X, y)
        with pytest.raises(ValueError, match="Invalid parameter 'tpr'"):
            cls(make_clf(), {"rule__tpr": [0.5]}, **options).fit(X, y)
        with pytest.raises(ValueError, match="n_splits"):
            cls(make_clf(), {"rule": RULES[:1]}, cv=OODStratifiedKFold(99)).fit(X, y)
        with pytest.raises(ValueError, match="'error_score' parameter of"):
            cls(make_clf(), {"rule": RULES[:1]}, error_score="nan").fit(X, y)

    def fails(clf, X, y):
        if clf.rule is RULES[2] or isinstance(clf.rule, LinearRule):
            raise ZeroDivisionError("no score")
        return clf.accept_proba(X).mean()

    for scoring in (fails, {"a": fails, "b": SCORERS["cost"]}):
        for error_score in (-7.0,):
            (_, _), (search, messages) = searched(
                make_clf(),
                {"rule": [*RULES[:4]]},
                X,
                y,
                scoring=scoring,
                error_score=error_score,
                refit=scoring is fails or "a",
                cv=OODStratifiedKFold(2),
            )
            texts = [text for _, text in messages if "Scoring failed" in text]
            assert texts and all("ZeroDivisionError: no score" in t for t in texts)
        with pytest.raises(ZeroDivisionError):
            RuleSearchCV(
                make_clf(),
                {"rule": RULES[2:4]},
                scoring=scoring,
                error_score="raise",
                refit=False,
            ).fit(X, y)


def test_candidates_do_not_change_each_other():
    """A scorer that writes to what it gets changes no other candidate."""
    X, y = make_data()

    def spoil(estimator, X, y):
        total = 0.0
        for name in ("decide", "predict", "accept_proba", "score_samples", "pvalues"):
            if hasattr(estimator, name):
                values = getattr(estimator, name)(X)
                total += np.sum(values == -1) + np.sum(values[:5])
                values[:] = values[0]
        if hasattr(estimator, "score_pair"):
            for scores in estimator.score_pair(X):
                total += scores[:7].sum()
                scores[:] = 0
        return float(total)

    options = {"scoring": spoil, "cv": OODStratifiedKFold(2), "refit": False}
    searched(make_clf(), {"rule": RULES[2:6]}, X, y, **options)
    ensemble = DetectorEnsemble(MEMBERS[1:], random_state=0, calibration=0.4)
    grid = {"combiner": COMBINERS[:3], "alpha": [0.1, 0.2]}
    searched(ensemble, grid, X, y, **options)


def test_best_estimator_is_as_fitted_alone():
    """It shares nothing: files, clones and further calls are those of any estimator."""
    X, y = make_data()
    search = RuleSearchCV(
        make_clf(), {"rule": RULES[2:4]}, scoring=SCORERS["cost"], cv=2
    ).fit(X, y)
    best = search.best_estimator_
    alone = clone(best).fit(X, y)
    assert set(vars(best)) == set(vars(alone))
    data = skops_io.dumps(search)
    trusted = skops_io.get_untrusted_types(data=data)
    copies = pickle.loads(pickle.dumps(search)), skops_io.loads(data, trusted=trusted)
    for copy in copies:
        assert_array_equal(copy.predict(X), alone.predict(X))
        assert copy.cv_results_["rank_test_score"].tolist() == [
            *search.cv_results_["rank_test_score"]
        ]
    best.recalibrate(X[:50], y[:50])
    assert repr(clone(search)) == repr(search)
    params = GridSearchCV(make_clf(), {}).get_params()
    assert RuleSearchCV(make_clf(), {}).get_params().keys() == params.keys()


def test_mixtures_have_separate_fits():
    """Of a mixture, a fraction of all samples is held out; else all OOD samples are."""
    X, y = make_data(500)
    separate, mixture = Certificate(delta=0.3), Certificate(sampling="mixture")
    grid = [
        {"rule": [BoundedErrorRate(0.6)], "guarantee": [mixture], "solver": ["grid"]},
        {"rule": [BoundedErrorRate(0.6)], "guarantee__sampling": ["mixture"]},
        {"rule": [BoundedErrorRate(0.9, ood_prior=0.2), BoundedErrorRate(0.7)]},
        {"rule": [BoundedTPRFPR(0.4, 0.9)], "guarantee": [None, separate, mixture]},
    ]
    clf = make_clf(guarantee=separate)
    options = {"scoring": SCORERS["cost"], "cv": OODStratifiedKFold(2)}
    _, (search, _) = searched(clf, grid, X, y, **options)
    # the rules of a mixture at two solvers, and three of separate samples
    missing = np.isnan(search.cv_results_["mean_test_score"])
    assert missing.tolist() == [False, False, False, True, False, False, False]
    CountedNB.counts.clear()
    RuleSearchCV(clf, grid, refit=False, **options).fit(X, y)
    assert CountedNB.counts["fit"] == 2 * 2


def test_certified_rules_share_draws():
    """The split of a certificate is that of a fit alone, with the same seed."""
    X, y = make_data(400)
    grid = {"guarantee__delta": [0.1, 0.3], "rule__tpr_min": [0.4, 0.5]}
    clf = make_clf(rule=BoundedTPRFPR(0.5, 0.9), guarantee="high_probability")
    searched(clf, grid, X, y, scoring=SCORERS["cost"], cv=OODStratifiedKFold(2))


def test_thresholds_of_predicted_classes():
    X, y = make_data(500)
    certificate = Certificate(within="predicted_class", thresholds="group", delta=0.3)
    clf = make_clf(rule=BoundedTPRFPR(0.4, 0.9), guarantee=certificate)
    grid = {"rule__tpr_min": [0.3, 0.5], "guarantee__thresholds": ["group", "shared"]}
    options = {"scoring": SCORERS["cost"], "cv": OODStratifiedKFold(2)}
    searched(clf, grid, X, y, **options)
    CountedNB.counts.clear()
    RuleSearchCV(clf, grid, refit=False, **options).fit(X, y)
    assert CountedNB.counts["fit"] == 2


def test_warnings_of_fits_reach_the_user():
    X, y = make_data()
    clf = RejectOptionClassifier(
        GaussianNB(), ood_detector=KNN(), rule=BoundedAbstention(), random_state=0
    )
    is_id = y >= 0
    with pytest.warns(SkoodWarning, match="y has no OOD samples"):
        RuleSearchCV(clf, {"rule__coverage": [0.5, 0.6]}, cv=2).fit(X[is_id], y[is_id])


def test_solvers_are_nested_parameters():
    X, y = make_data()
    grid = {"solver": [Solver("grid"), "exact"], "solver__n_angles": [9, 90]}
    _, (search, _) = searched(
        make_clf(),
        grid,
        X,
        y,
        scoring=SCORERS["risk"],
        cv=OODStratifiedKFold(2),
    )
    assert search.best_estimator_.solver.n_angles in (9, 90)

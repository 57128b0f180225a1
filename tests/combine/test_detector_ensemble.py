"""Ensembles of detectors: p-values, levels, selection, parameters."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.combine import (
    DSDE,
    BenjaminiHochberg,
    Bonferroni,
    DetectorEnsemble,
    DOSStorey,
    Fisher,
    Naive,
    Vote,
    conformal_pvalues,
)
from skood.datasets import load_digits_ood
from skood.detectors import KNN, MSP, Energy, Mahalanobis, ViM
from skood.exceptions import SkoodWarning
from skood.metrics import make_ood_scorer
from skood.model_selection import LeaveClassesOut
from skood.rejection import BoundedTPRFPR, RejectOptionClassifier
from skood.utils._folds import calibration_folds
from tests.combine._members import (
    Column,
    equicorrelated,
    frozen_columns,
    frozen_ensemble,
    quiet,
)


def _split_by_hand(ensemble, X):
    """The halves that p-values and levels refer to, found by their seed."""
    order = np.random.RandomState(ensemble.random_state).permutation(len(X))
    return X[order[::2]], X[order[1::2]]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits_ood(left_out=[8, 9], ood_label=-1, return_X_y=True)
    return train_test_split(X, y, stratify=y, random_state=0)


# -----------------------------------------------------------------------------
# Numbers


@pytest.mark.parametrize("method", ["conformal", "ecdf"])
@pytest.mark.parametrize("combiner", [BenjaminiHochberg(), DOSStorey(), Fisher()])
def test_levels_by_hand(combiner, method):
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(300, 5)), rng.normal(size=(50, 5)) - 1
    ensemble = frozen_ensemble(5, combiner, method=method, random_state=3).fit(X)
    assert ensemble.level_ == "conformal"
    assert (ensemble.n_calibration_, ensemble.n_level_) == (150, 150)
    first, second = _split_by_hand(ensemble, X)
    P = conformal_pvalues(X_new, first, method=method)
    assert_allclose(ensemble.pvalues(X_new), P, rtol=1e-15)
    q = combiner.statistic(P)
    q_cal = combiner.statistic(conformal_pvalues(second, first, method=method))
    level = [(1 + np.sum(q_cal <= each * (1 + 1e-12))) / 151 for each in q]
    assert_allclose(ensemble.levels(X_new), level, rtol=1e-15)
    scores = ensemble.score_samples(X_new)
    assert_allclose(scores, np.log(level), rtol=0, atol=1.01e-9)
    # samples of equal level are ranked by their statistic, all others by their level
    order = np.lexsort((q, np.array(level)))
    assert np.all(np.diff(scores[order]) >= 0)
    equal = np.diff(np.array(level)[order]) == 0
    assert equal.sum() > 5
    assert_array_equal(np.diff(scores[order])[equal] > 0, np.diff(q[order])[equal] > 0)
    assert_array_equal(
        ensemble.predict(X_new), np.where(np.array(level) <= 0.05, -1, 1)
    )


def test_nominal_level_is_the_statistic():
    rng = np.random.default_rng(1)
    X, X_new = rng.normal(size=(300, 4)), rng.normal(size=(80, 4)) - 1
    ensemble = frozen_ensemble(4, level="nominal").fit(X)
    assert (ensemble.level_, ensemble.n_calibration_) == ("nominal", 300)
    P = conformal_pvalues(X_new, X)
    q = BenjaminiHochberg().statistic(P)
    assert_allclose(ensemble.levels(X_new), q)
    assert_array_equal(ensemble.predict(X_new) == -1, q <= 0.05)
    assert_array_equal(
        ensemble.selected_detectors(X_new), BenjaminiHochberg().selected(P, 0.05)
    )
    assert_array_equal(
        ensemble.selected_detectors(X_new, 0.3), BenjaminiHochberg().selected(P, 0.3)
    )


@pytest.mark.parametrize("c_m", [None, 2 / 7, 2 / 15])
def test_subset_of_a_library_is_dsde_on_its_members(c_m):
    """Columns of the p-values of all members, so that studies need no new fits."""
    rng = np.random.default_rng(2)
    X, X_new = rng.normal(size=(200, 9)), rng.normal(size=(60, 9)) - 1
    library = frozen_columns(9)
    P = conformal_pvalues(X_new, X)
    for subset in ([0, 3, 4, 8], [8, 1, 0, 2, 5, 7], list(range(9))):
        members = [library[j] for j in subset]
        dsde = DSDE(members, c_m=c_m, calibration="same", level="nominal").fit(X)
        expected = DOSStorey(c_m=c_m).statistic(P[:, subset])
        assert_allclose(dsde.levels(X_new), expected, rtol=0, atol=1e-12)
        assert 0.1 < np.mean(expected <= 0.05) < 0.9


def test_level_equal_to_alpha_rejects():
    """n = 139 is the smallest that lets one of 7 members reject at .05."""
    X = np.random.default_rng(0).normal(size=(139, 7))
    row = np.full((1, 7), X.max() + 1)
    row[0, 3] = X.min() - 1
    for n, label in ((139, -1), (138, 1)):
        ensemble = quiet(frozen_ensemble(7, level="nominal").fit, X[:n])
        assert ensemble.predict(row) == [label]
        if label == -1:
            assert ensemble.levels(row)[0] == pytest.approx(0.05, rel=1e-14)
            assert_array_equal(np.flatnonzero(ensemble.selected_detectors(row)), [3])


@pytest.mark.parametrize("n", [39, 99, 100])
def test_conformal_level_that_equals_alpha_rejects(n):
    """(1 + r) / (n2 + 1) = .05 counts as at most .05, whatever log and exp do."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    for alpha in (0.05, 0.1, 0.15, 0.2, 0.3, 0.35):
        ensemble = quiet(frozen_ensemble(2, alpha=alpha, random_state=0).fit, X)
        X_new = rng.normal(size=(400, 2)) - 1
        count = np.rint(ensemble.levels(X_new) * (ensemble.n_level_ + 1)).astype(int)
        hundredths = round(100 * alpha)
        expected = 100 * count <= hundredths * (ensemble.n_level_ + 1)  # in integers
        assert_array_equal(ensemble.predict(X_new) == -1, expected)
        selected = ensemble.selected_detectors(X_new).any(axis=1)
        assert_array_equal(selected, expected)


@pytest.mark.parametrize("combiner", [Bonferroni(), DOSStorey(), BenjaminiHochberg()])
def test_selected_where_rejected(combiner):
    """Whatever the level, a sample is rejected if some member is selected."""
    rng = np.random.default_rng(0)
    X = equicorrelated(rng, 400, 6, 0.6)
    X_new = equicorrelated(rng, 400, 6, 0.6) - 1.5 * (np.arange(6) < 3)
    for level in ("nominal", "conformal"):
        ensemble = frozen_ensemble(6, combiner, level=level, random_state=0).fit(X)
        selected = ensemble.selected_detectors(X_new)
        rejected = ensemble.predict(X_new) == -1
        assert 0.05 < rejected.mean() < 0.95
        assert_array_equal(selected.any(axis=1), rejected)


@pytest.mark.parametrize("rho", [pytest.param(0.0, marks=pytest.mark.slow), 0.6])
def test_share_of_rejected_id_samples_of_a_trained_ensemble(rho):
    """Members that are fitted, on rows that others are: TPR is 1 - alpha."""
    rng = np.random.default_rng(0)
    accepted = []
    for seed in range(30):
        X = equicorrelated(rng, 400, 4, rho)
        ensemble = DetectorEnsemble(
            [
                ("gaussian", Mahalanobis()),
                ("knn", KNN(n_neighbors=5, normalize=False)),
                ("density", KernelDensity()),
                ("mixture", GaussianMixture(2, random_state=0)),
            ],
            DOSStorey(),
            alpha=0.1,
            calibration=0.5,
            random_state=seed,
        ).fit(X)
        accepted.append(np.mean(ensemble.predict(equicorrelated(rng, 500, 4, rho)) > 0))
    error = np.std(accepted) / np.sqrt(len(accepted))
    # (1 + r) / 101 <= .1 for r <= 9: the fraction of rejected rows is 10 / 101
    assert abs(np.mean(accepted) - (1 - 10 / 101)) < 4 * error
    assert error < 0.01


def test_cross_conformal_by_hand():
    """Each row calibrates the members that were not fitted on it."""
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(90, 3)), rng.normal(size=(40, 3)) * 2
    members = [("a", Mahalanobis()), ("b", KernelDensity())]
    ensemble = DetectorEnsemble(
        members, calibration=KFold(3), level="nominal", random_state=0
    ).fit(X)
    counts = np.zeros((40, 2))
    for train, test in KFold(3).split(X):
        for j, (_, member) in enumerate(members):
            fitted = clone(member).fit(X[train])
            held_out, new = fitted.score_samples(X[test]), fitted.score_samples(X_new)
            counts[:, j] += np.sum(held_out <= new[:, None], axis=1)
    P = (1 + counts) / 91
    assert_allclose(ensemble.pvalues(X_new), P, rtol=1e-15)
    q = BenjaminiHochberg().statistic(P)
    assert_allclose(ensemble.levels(X_new), q)
    assert ensemble.n_calibration_ == 90


def test_cross_conformal_levels_by_hand():
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(120, 3)), rng.normal(size=(40, 3)) * 2
    members = [("a", Mahalanobis()), ("b", KernelDensity())]
    ensemble = DetectorEnsemble(
        members, calibration=KFold(3), level="conformal", random_state=0
    )
    quiet(ensemble.fit, X)
    assert (ensemble.level_, ensemble.n_level_) == ("conformal", 60)
    draws = np.random.RandomState(0)
    n_below, counts = np.zeros(40), np.zeros((40, 2))
    for train, test in KFold(3).split(X):
        test = draws.permutation(test)
        first, second = X[test[::2]], X[test[1::2]]
        fitted = [clone(member).fit(X[train]) for _, member in members]

        def scores(samples, fitted=fitted):
            return np.column_stack([each.score_samples(samples) for each in fitted])

        q_cal = BenjaminiHochberg().statistic(
            conformal_pvalues(scores(second), scores(first))
        )
        P = conformal_pvalues(scores(X_new), scores(first))
        q = BenjaminiHochberg().statistic(P)
        n_below += np.sum(q_cal <= q[:, None] * (1 + 1e-12), axis=1)
        counts += np.rint(P * 21 - 1)
    assert_allclose(ensemble.levels(X_new), (1 + n_below) / 61)
    assert_allclose(ensemble.pvalues(X_new), (1 + counts) / 61)
    table = ensemble.explain(X_new)  # the statistic is that of pooled p-values
    q = BenjaminiHochberg().statistic((1 + counts) / 61)
    assert_allclose(table["statistic"], q)


def test_rounding_does_not_move_a_row_past_itself():
    """A row whose score differs in the last digits from when it calibrated."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3)) * [1, 1e-8, 1e6] - [0, 1e-4, 0]
    ensemble = quiet(frozen_ensemble(3, level="nominal").fit, X)
    expected = conformal_pvalues(X, X)
    for factor in (1 - 1e-9, 1 + 1e-9):
        assert_array_equal(ensemble.pvalues(X * factor), expected)
    constant = np.zeros((50, 3))
    quiet(ensemble.fit, constant)
    assert_array_equal(ensemble.pvalues(constant[:1]), 1.0)
    assert ensemble.pvalues(constant[:1] - 1e-12).max() == 1 / 51


def test_infinite_scores():
    X = np.random.default_rng(0).normal(size=(200, 2))
    X[:10, 0], X[10:150, 1] = -np.inf, np.inf
    ensemble = frozen_ensemble(2, level="nominal").fit(X)
    P = ensemble.pvalues(np.array([[-np.inf, np.inf], [0.0, 0.0]]))
    assert_allclose(P[0], [11 / 201, 1.0])
    assert P[1, 1] == (1 + np.sum(X[:, 1] <= 0)) / 201


def test_zero_statistic_has_a_finite_score():
    X = np.random.default_rng(0).normal(size=(100, 2))
    ensemble = frozen_ensemble(2, level="nominal", method="ecdf").fit(X)
    row = np.full((1, 2), -99.0)
    assert ensemble.levels(row) == [0.0]
    assert np.isfinite(ensemble.score_samples(row)).all()
    assert ensemble.predict(row) == [-1]


def test_alpha_that_no_conformal_level_reaches_selects_nobody():
    X = np.random.default_rng(0).normal(size=(100, 2))
    ensemble = frozen_ensemble(2, random_state=0).fit(X)
    row = np.full((1, 2), -99.0)
    assert ensemble.levels(row) == [1 / 51]
    assert ensemble.selected_detectors(row).all()
    assert not ensemble.selected_detectors(row, alpha=0.01).any()
    with pytest.raises(ValueError, match=r"alpha == 1\.0, must be < 1"):
        ensemble.selected_detectors(row, alpha=1.0)


def test_votes_are_those_of_the_members():
    X = np.random.default_rng(0).normal(size=(400, 3))
    ensemble = frozen_ensemble(3, Vote(0.6), level="nominal").fit(X)
    samples = np.array([[-9.0, 9, 9], [-9, -9, 9]])
    assert_array_equal(ensemble.predict(samples), [1, -1])
    assert_array_equal(ensemble.selected_detectors(samples), samples < 0)


# -----------------------------------------------------------------------------
# Members


def test_members_of_all_kinds(digits):
    X, X_test, y, y_test = digits
    linear = LogisticRegression(max_iter=300)
    logits = [("a", MSP(linear)), ("b", Energy(linear))]
    inner = DSDE(logits, c_m=0.5, level="nominal")
    ensemble = DetectorEnsemble(
        [
            ("knn", KNN(n_neighbors=5)),
            ("vim", ViM(LogisticRegression(max_iter=300))),
            ("forest", IsolationForest(n_estimators=30, random_state=0)),
            ("mixture", GaussianMixture(5, covariance_type="diag", random_state=0)),
            ("inner", inner.set_params(random_state=0)),
        ],
        random_state=0,
    )
    quiet(ensemble.fit, X, y)
    assert list(ensemble.named_detectors_) == "knn vim forest mixture inner".split()
    assert ensemble.named_detectors_.knn.n_neighbors == 5
    assert_array_equal(ensemble.classes_, np.arange(8))
    assert ensemble.n_features_in_ == 64
    X_id, y_id = X[y != -1], y[y != -1]
    ((train, held_out),) = calibration_folds(len(X_id), y_id, 0.2, 0)
    P = np.column_stack(
        [
            conformal_pvalues(
                clone(member).fit(X_id[train], y_id[train]).score_samples(X_test),
                fitted.score_samples(X_id[held_out[::2]]),
            )
            for (_, member), fitted in zip(
                ensemble.detectors, ensemble.named_detectors_.values(), strict=True
            )
        ]
    )
    pvalues = ensemble.pvalues(X_test)
    # but where scores are equal up to 1e-5
    assert_allclose(pvalues, P, rtol=0, atol=1.01 / len(held_out[::2]))
    assert np.isclose(pvalues, P).mean() > 0.999
    assert ensemble.score(X_test, y_test) > 0.85
    assert np.mean(ensemble.predict(X_test[y_test != -1]) == 1) > 0.9


def test_estimator_is_fitted_once_and_read_by_all(digits):
    X, X_test, y, y_test = digits

    class Counting(LogisticRegression):
        n_fits = 0

        def fit(self, X, y):
            type(self).n_fits += 1
            return super().fit(X, y)

    ensemble = DetectorEnsemble(
        [("msp", MSP()), ("energy", Energy()), ("vim", ViM())],
        estimator=Counting(max_iter=300),
        random_state=0,
    ).fit(X, y)
    assert Counting.n_fits == 1
    for detector in ensemble.named_detectors_.values():
        assert detector.estimator_.estimator is ensemble.estimator_
    assert ensemble.score(X_test, y_test) > 0.8
    # as if the members had been given that classifier
    network = FrozenEstimator(ensemble.estimator_)
    frozen = clone(ensemble).set_params(estimator=network).fit(X, y)
    assert frozen.estimator_ is network
    assert_allclose(frozen.score_samples(X_test), ensemble.score_samples(X_test))
    Counting.n_fits = 0
    folds = clone(ensemble).set_params(calibration=3).fit(X, y)
    assert Counting.n_fits == 3
    assert folds.score(X_test, y_test) > 0.8


def test_ensemble_in_a_reject_option_classifier(digits):
    X, X_test, y, y_test = digits
    clf = RejectOptionClassifier(
        LogisticRegression(max_iter=300),
        ood_detector=DetectorEnsemble([("msp", MSP()), ("vim", ViM())], random_state=0),
        rule=BoundedTPRFPR(tpr_min=0.8, fpr_max=0.3),
        random_state=0,
    )
    quiet(clf.fit, X, y)
    report = clf.report(X_test, y_test)
    assert report.tpr.value > 0.7
    assert report.fpr.value < 0.4


def test_dropped_member():
    X = np.random.default_rng(0).normal(size=(100, 3))
    ensemble = frozen_ensemble(3, random_state=0)
    ensemble.set_params(c1="drop").fit(X)
    assert list(ensemble.named_detectors_) == ["c0", "c2"]
    assert ensemble.pvalues(X).shape == (100, 2)


@pytest.mark.parametrize(
    "backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)]
)
def test_members_of_a_shared_network_with_n_jobs(digits, backend):
    X, X_test, y, _ = digits
    network = FrozenEstimator(
        LogisticRegression(max_iter=300).fit(X[y != -1], y[y != -1])
    )
    ensemble = DetectorEnsemble(
        [
            ("msp", MSP(network)),
            ("energy", Energy(network)),
            ("gaussian", Mahalanobis(covariance=LedoitWolf())),
        ],
        random_state=0,
    )
    expected = quiet(ensemble.fit, X, y).score_samples(X_test)
    for n_jobs in (1, 2):
        parallel = clone(ensemble).set_params(n_jobs=n_jobs, verbose=0)
        with joblib.parallel_config(backend):
            scores = quiet(parallel.fit, X, y).score_samples(X_test)
        assert_allclose(scores, expected)


def test_known_ood_samples_change_nothing():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 3)), np.arange(100) % 2
    both = np.concatenate([X, np.full((20, 3), -50.0)])
    labels = np.concatenate([y, np.full(20, -1)])
    members = [("a", Column(0)), ("b", Mahalanobis())]
    first = quiet(DetectorEnsemble(members, random_state=0).fit, X, y)
    two = quiet(DetectorEnsemble(members, random_state=0).fit, both, labels)
    assert_array_equal(first.score_samples(both), two.score_samples(both))
    assert two.named_detectors_.a.n_rows_ == 80


# -----------------------------------------------------------------------------
# What it says


def test_explain(digits):
    X, X_test, y, _ = digits
    frame = pd.DataFrame(X_test[:30], index=[f"r{i}" for i in range(30)])
    ensemble = DSDE(
        [(f"k{k}", KNN(n_neighbors=k)) for k in (1, 5, 20, 50)], random_state=0
    )
    quiet(ensemble.fit, X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # X was no frame in fit
        table = ensemble.explain(frame)
    assert list(table.index) == list(frame.index)
    names = ["k1", "k5", "k20", "k50"]
    assert list(table.columns) == [
        "score",
        "is_ood",
        "level",
        "statistic",
        "pi0",
        "n_selected",
        *(f"pvalue_{name}" for name in names),
        *(f"selected_{name}" for name in names),
    ]
    samples = X_test[:30]
    assert_array_equal(table["score"], ensemble.score_samples(samples))
    assert_array_equal(table["is_ood"], ensemble.predict(samples) == -1)
    assert_array_equal(table["level"], ensemble.levels(samples))
    assert_array_equal(table["pi0"], ensemble.pi0(samples))
    P, selected = ensemble.pvalues(samples), ensemble.selected_detectors(samples)
    assert_array_equal(table["n_selected"], selected.sum(axis=1))
    for j, name in enumerate(names):
        assert_array_equal(table[f"pvalue_{name}"], P[:, j])
        assert_array_equal(table[f"selected_{name}"], selected[:, j])
    assert_allclose(table["statistic"], DOSStorey().statistic(P))


def test_pi0_only_where_the_combiner_has_it():
    X = np.random.default_rng(0).normal(size=(100, 4))
    ensemble = frozen_ensemble(4, random_state=0).fit(X)
    assert not hasattr(ensemble, "pi0")
    assert "pi0" not in ensemble.explain(X)
    ensemble.set_params(combiner=DOSStorey()).fit(X)
    assert_array_equal(ensemble.pi0(X), DOSStorey().pi0(ensemble.pvalues(X)))


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, csr_array])
def test_explain_takes_what_others_take(kind):
    X = np.random.default_rng(0).normal(size=(100, 2))
    ensemble = DetectorEnsemble(
        [
            ("a", GaussianMixture()),
            ("b", IsolationForest(n_estimators=9, random_state=0)),
        ],
        random_state=0,
    )
    if kind is csr_array:
        ensemble.set_params(a="drop")
    quiet(ensemble.fit, X)
    pd.testing.assert_frame_equal(ensemble.explain(kind(X)), ensemble.explain(X))


def test_parameters_that_are_set_after_the_fit_wait_for_the_next():
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(200, 4)), rng.normal(size=(50, 4)) - 1
    combiner = DOSStorey()
    ensemble = frozen_ensemble(4, combiner, random_state=0).fit(X)
    before = ensemble.explain(X_new)
    ensemble.set_params(alpha=0.5, method="ecdf", combiner__beta=0.5)
    pd.testing.assert_frame_equal(ensemble.explain(X_new), before)
    assert_array_equal(
        ensemble.selected_detectors(X_new).sum(axis=1), before["n_selected"]
    )
    assert np.any(ensemble.fit(X).levels(X_new) != before["level"])


def test_parameters_of_a_combiner_that_is_none():
    ensemble = DetectorEnsemble([("knn", KNN())], DOSStorey()).set_params(
        combiner__beta=0.25, knn__n_neighbors=3
    )
    assert ensemble.combiner.get_params() == {**DOSStorey().get_params(), "beta": 0.25}
    assert ensemble.detectors[0][1].n_neighbors == 3
    with pytest.raises(ValueError, match="'beta' for estimator BenjaminiHochberg"):
        DetectorEnsemble([("knn", KNN())]).set_params(combiner__beta=0.25)


def test_cross_conformal_selection_goes_with_the_decision():
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(600, 3)), rng.normal(size=(600, 3)) - [1.5, 1, 0]
    members = [(f"c{j}", Column(j)) for j in range(3)]
    ensemble = DetectorEnsemble(members, calibration=KFold(4), random_state=0).fit(X)
    assert ensemble.level_ == "conformal"
    selected = ensemble.selected_detectors(X_new).any(axis=1)
    rejected = ensemble.predict(X_new) == -1
    assert not (selected & ~rejected).any()
    # p-values of all folds and statistics of one can differ at the edge
    assert (rejected & ~selected).mean() < 0.02 < rejected.mean()
    for alpha in (0.01, 0.2):
        actual = ensemble.selected_detectors(X_new, alpha).any(axis=1)
        assert not (actual & (ensemble.levels(X_new) > alpha * (1 + 1e-9))).any()


@pytest.mark.parametrize("alpha", [np.float32(0.05), 0.95, 0.999])
def test_levels_at_the_ends_and_in_single_precision(alpha):
    X = np.random.default_rng(0).normal(size=(38, 2))
    ensemble = quiet(frozen_ensemble(2, alpha=alpha, random_state=0).fit, X)
    rejected = ensemble.levels(X) <= min(float(alpha) * (1 + 1e-12), 1.0)
    assert_array_equal(ensemble.predict(X) == -1, rejected)
    assert_array_equal(ensemble.selected_detectors(X).any(axis=1), rejected)


def test_tiny_statistics_of_equal_levels_are_ranked():
    rng = np.random.default_rng(0)
    ensemble = frozen_ensemble(9, Fisher(), random_state=0).fit(
        rng.normal(size=(2000, 9))
    )
    order = np.sort(rng.normal(size=1000))[:5, None] * np.ones(9) - 1.5
    table = ensemble.explain(order)
    assert table["level"].nunique() == 1
    assert table["statistic"].max() < 1e-8
    ranked = table.sort_values("statistic", kind="stable")
    same = np.diff(ranked["statistic"]) == 0
    assert_array_equal(np.diff(ranked["score"]) == 0, same)
    assert (np.diff(ranked["score"]) >= 0).all()


def test_combiner_of_another_kind():
    """Two methods are enough: it need not be an estimator."""

    class Smallest:
        def statistic(self, P):
            return P.min(axis=1)

        def selected(self, P, alpha):
            return P <= alpha

    X = np.random.default_rng(0).normal(size=(200, 2))
    options = {"calibration": "same", "random_state": 0}
    fitted = DetectorEnsemble(frozen_columns(2), Smallest(), **options).fit(X)
    expected = DetectorEnsemble(frozen_columns(2), Naive(), **options).fit(X)
    assert_array_equal(fitted.levels(X), expected.levels(X))
    assert_array_equal(fitted.selected_detectors(X), expected.selected_detectors(X))


def test_combiner_that_gives_nan():
    class Broken(Fisher):
        def _statistic(self, p):
            return np.full(p.shape[1], np.nan)

    message = r"Broken\(\) made NaN of the p-values of 19 of"
    with pytest.raises(ValueError, match=message):
        frozen_ensemble(2, Broken()).fit(np.random.default_rng(0).normal(size=(38, 2)))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (None, "X is required, got None"),
        (np.float64(3.0), "Expected 2D array, got scalar array instead"),
        (np.array(1.0), "Expected 2D array, got scalar array instead"),
    ],
)
def test_invalid_samples(X, message):
    ensemble = DetectorEnsemble([("a", Column())])
    with pytest.raises(ValueError, match=message):
        ensemble.fit(X)


@pytest.mark.parametrize("estimator", [GridSearchCV, make_pipeline])
def test_labels_are_missing_deeper(estimator):
    """Tags of searches and pipelines may not tell that labels are needed."""
    inner = LogisticRegression()
    if estimator is GridSearchCV:
        estimator = GridSearchCV(inner, {"C": [1.0]})
    else:
        estimator = make_pipeline(StandardScaler(), inner)
    X = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises((TypeError, ValueError), match=r"\by\b"):
        DetectorEnsemble([("a", MSP())], estimator=estimator).fit(X)


def test_guarantee_with_many_rare_classes():
    """Held-out rows are like new ones, also those of classes with one row."""
    rng = np.random.default_rng(0)
    rejected = []
    for seed in range(30):
        centers = 40 * rng.normal(size=(3000, 4))
        y = np.where(rng.random(500) < 0.4, rng.integers(3, 3000, 500), 0)
        X = centers[y] + rng.normal(size=(500, 4))
        ensemble = DetectorEnsemble(
            [("knn", KNN(n_neighbors=1, normalize=False))],
            calibration=0.3,
            random_state=seed,
        ).fit(X[:300], y[:300])
        rejected.append(np.mean(ensemble.predict(X[300:]) == -1))
    error = np.std(rejected) / np.sqrt(len(rejected))
    assert np.mean(rejected) <= 0.05 + 3 * error


def test_explain_without_pandas(monkeypatch):
    X = np.random.default_rng(0).normal(size=(100, 2))
    ensemble = frozen_ensemble(2, random_state=0).fit(X)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        ensemble.explain(X)


# -----------------------------------------------------------------------------
# Searches


def test_grid_search_of_dsde_and_members(digits):
    X, _, y, _ = digits
    id_samples = y != -1
    X, y = X[id_samples][:300], y[id_samples][:300]
    members = [(f"k{k}", KNN(n_neighbors=k)) for k in (1, 3, 5, 9, 20, 30)]
    search = GridSearchCV(
        DSDE(members, random_state=0, level="nominal"),
        {
            "beta": [0.5, 1.0],
            "c_m": [1 / 6, 1 / 3],
            "k1__normalize": [False],
        },
        cv=LeaveClassesOut(4, random_state=0),
        scoring=make_ood_scorer("auroc"),
        error_score="raise",
    )
    quiet(search.fit, X, y)
    assert search.best_score_ > 0.7
    assert len(np.unique(search.cv_results_["mean_test_score"])) > 1
    ensemble = DetectorEnsemble(members, DOSStorey(), random_state=0, level="nominal")
    again = GridSearchCV(
        ensemble,
        {"combiner__beta": [0.5, 1.0], "combiner__c_m": [1 / 6, 1 / 3]},
        cv=LeaveClassesOut(4, random_state=0),
        error_score="raise",
    )
    quiet(again.fit, X, y)
    assert_allclose(
        again.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"]
    )


# -----------------------------------------------------------------------------
# Errors


def test_not_fitted():
    ensemble = DetectorEnsemble(frozen_columns(2))
    for method in ("score_samples", "pvalues", "levels", "selected_detectors"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(ensemble, method)(np.zeros((3, 2)))


def test_calibration_same_with_members_to_fit():
    with pytest.raises(ValueError, match="'same' needs frozen members, but 'a' would"):
        DetectorEnsemble([("a", Column())], calibration="same").fit(np.zeros((50, 2)))


@pytest.mark.parametrize(
    "parameter, value",
    [
        ("alpha", 0.0),
        ("alpha", 1.0),
        ("calibration", 1.5),
        ("calibration", 1),
        ("calibration", "all"),
        ("level", "exact"),
        ("method", "smooth"),
        ("combiner", "bh"),
        ("n_jobs", 1.5),
    ],
)
def test_bad_parameters(parameter, value):
    ensemble = DetectorEnsemble([("a", Column())]).set_params(**{parameter: value})
    with pytest.raises(ValueError, match=f"The '{parameter}' parameter"):
        ensemble.fit(np.zeros((50, 2)))


def test_bad_members():
    X = np.zeros((50, 2))
    with pytest.raises(TypeError, match=r"must be a list of \(name, estimator\)"):
        DetectorEnsemble(KNN()).fit(X)
    with pytest.raises(TypeError, match="without score_samples"):
        DetectorEnsemble([("a", LogisticRegression())]).fit(X)
    with pytest.raises(ValueError, match="be a parameter of DSDE"):
        DSDE([("alpha", KNN())]).fit(X)


def test_a_class_that_a_member_takes_for_ood():
    y = np.arange(50) % 2 - 1
    ensemble = DetectorEnsemble([("a", Mahalanobis())], ood_label=-9)
    with pytest.raises(ValueError, match=r"a__ood_label=-1 is one of the classes"):
        ensemble.fit(np.zeros((50, 2)), y)
    with pytest.raises(ValueError, match="ood_label of the DetectorEnsemble"):
        ensemble.fit(np.zeros((50, 2)), y)


def test_labels_are_missing():
    X = np.random.default_rng(0).normal(size=(50, 2))
    ensemble = DetectorEnsemble([("a", MSP())], estimator=LogisticRegression())
    with pytest.raises(ValueError, match="requires y to be passed, but the target y"):
        ensemble.fit(X)
    y = np.arange(50) % 2
    frozen = FrozenEstimator(LogisticRegression().fit(X, y))
    ensemble.set_params(estimator=frozen, random_state=0)
    quiet(ensemble.fit, X)
    assert_array_equal(ensemble.classes_, [0, 1])


class _Broken(Column):
    """Gives NaN, or too many scores, or an error."""

    def __init__(self, column=0, ood_label=-1, kind="nan"):
        super().__init__(column, ood_label)
        self.kind = kind

    def fit(self, X, y=None):
        if self.kind == "fit":
            raise RuntimeError("cannot")
        return super().fit(X, y)

    def score_samples(self, X):
        scores = super().score_samples(X).copy()
        if self.kind == "score":
            raise RuntimeError("could not")
        if self.kind == "shape":
            return np.stack([scores, scores], axis=1)
        scores[0] = np.nan
        return scores


@pytest.mark.parametrize(
    "kind, error, says",
    [
        ("nan", ValueError, "'bad' gave NaN as the score of 1 of 10 samples"),
        ("shape", ValueError, r"'bad' gave scores of shape \(10, 2\) for 10 samples"),
        ("fit", RuntimeError, "cannot"),
        ("score", RuntimeError, "could not"),
    ],
)
def test_broken_member(kind, error, says):
    X = np.random.default_rng(0).normal(size=(50, 2))
    good = DetectorEnsemble([("bad", Column())], random_state=0)
    quiet(good.fit, X)
    before = pickle.dumps(good)
    good.set_params(bad=_Broken(kind=kind))
    with pytest.raises(error, match=says) as caught:
        good.fit(X)
    if error is RuntimeError:
        assert "member 'bad'" in caught.value.__notes__[0]
    good.set_params(bad=Column())
    assert pickle.dumps(good) == before  # the state of the fit before


def test_too_many_members_for_the_samples_warns():
    X = np.random.default_rng(0).normal(size=(138, 7))
    ensemble = frozen_ensemble(7, level="nominal")
    with pytest.warns(SkoodWarning, match="Calibrate on at least 139 samples"):
        ensemble.fit(X)
    with warnings.catch_warnings(action="error"):
        ensemble.set_params(combiner=Fisher()).fit(X)  # needs no small p-value
        ensemble.set_params(combiner=None, method="ecdf").fit(X)  # p can be 0


def test_no_warning_where_a_single_member_can_reject():
    """A conformal level does not compare the statistic with alpha."""
    X = equicorrelated(np.random.default_rng(0), 200, 7, 0.9)
    ensemble = frozen_ensemble(7, random_state=0)
    with warnings.catch_warnings(action="error"):
        ensemble.fit(X)
    row = np.full((1, 7), 9.0)
    row[0, 2] = -9.0
    assert ensemble.predict(row) == [-1]
    assert_array_equal(np.flatnonzero(ensemble.selected_detectors(row)), [2])


def test_combiner_that_is_a_class():
    message = r"an object, not a class: .* Got <class '.*\.Fisher'> instead"
    with pytest.raises(TypeError, match=message):
        DetectorEnsemble([("a", Column())], Fisher).fit(np.zeros((50, 2)))


def test_statistics_that_are_all_tied_warn():
    """Half of the rows have the smallest p-value of 18 members in 100 rows."""
    X = np.random.default_rng(0).normal(size=(200, 18))
    ensemble = frozen_ensemble(18, Vote(1 / 18), random_state=0)
    with pytest.warns(SkoodWarning, match=r"No sample can be rejected at alpha=0\.05"):
        ensemble.fit(X)
    worst = np.full((1, 18), -50.0)
    assert ensemble.predict(worst) == [1]
    tied = ensemble.levels(worst)[0] * 101 - 1
    with pytest.warns(SkoodWarning, match=f"is that of {tied:.0f} of the 100 calibr"):
        ensemble.fit(X)
    with warnings.catch_warnings(action="error"):
        ensemble.set_params(combiner=Fisher()).fit(X)
    assert ensemble.predict(worst) == [-1]


def test_combiner_that_cannot_take_so_many_says_so_before_the_fit():
    class Never(Column):
        def fit(self, X, y=None):
            raise AssertionError("members must not be fitted")

    with pytest.raises(ValueError, match="c_m"):
        DSDE([("a", Never()), ("b", Never())]).fit(np.zeros((50, 2)))


@pytest.mark.parametrize("method", ["score_samples", "predict", "pvalues"])
def test_no_samples_are_refused(method):
    X = np.random.default_rng(0).normal(size=(90, 3))
    detectors = [("a", KNN(n_neighbors=3)), ("b", KNN(n_neighbors=9))]
    ensemble = DetectorEnsemble(detectors, calibration=0.5, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"Found array with 0 sample\(s\)"):
        getattr(ensemble, method)(X[:0])

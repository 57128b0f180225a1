"""Tests of the scores that a rule is chosen on: which model scores which row."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.ensemble import IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    KFold,
    RepeatedStratifiedKFold,
    StratifiedKFold,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from skood.detectors import KNN, Energy, Mahalanobis, MaxLogit
from skood.rejection import (
    BoundedAbstention,
    RejectOptionClassifier,
)
from skood.rejection._parts import LabeledSamples, Parts
from skood.utils._metaestimators import bind
from tests.decision._scores import solved
from tests.rejection._problem import PLAIN_KNN, RULE, make_data, selective


class FirstColumn(BaseEstimator):
    """A detector that scores a sample by its first column."""

    def fit(self, X, y=None):
        return self

    def score_samples(self, X):
        return np.asarray(X)[:, 0]


class WhichFit(BaseEstimator):
    """A detector whose score is a checksum of the samples that it was fitted on."""

    def fit(self, X, y=None):
        self.sum_ = float(np.sum(X))
        return self

    def score_samples(self, X):
        return np.full(len(X), self.sum_)


SIZES = {"n_per_class": 40, "n_ood": 30}
X, Y = make_data(**SIZES)
IS_ID = Y != -1
X_ID, Y_ID, X_OOD = X[IS_ID], Y[IS_ID], X[~IS_ID]


def fit_and_held_out(share, seed):
    """ID samples that are fitted, and held out: drawn whatever their classes."""
    order = np.random.RandomState(seed).permutation(len(Y_ID))
    n_held_out = round(share * len(Y_ID))
    return np.sort(order[n_held_out:]), order[:n_held_out]


def one_minus_max(classifier, X):
    """Naive loop: sum of all probabilities but the largest."""
    return np.array([sum(sorted(p)[:-1]) for p in classifier.predict_proba(X)])


def assert_same_point(actual, expected):
    for name in ("theta", "lam", "scales", "risk", "tpr", "fpr", "objective"):
        assert_allclose(
            getattr(actual, name), getattr(expected, name), rtol=1e-12, err_msg=name
        )


# ------------------------------------------------------------------ a held-out part


@pytest.mark.parametrize("share", [0.3, 0.55])
@pytest.mark.parametrize("seed", [0, 7])
def test_held_out_point_is_that_of_recomputed_scores(share, seed):
    clf = RejectOptionClassifier(
        LogisticRegression(),
        ood_detector=PLAIN_KNN,
        rule=RULE,
        calibration=share,
        random_state=seed,
    ).fit(X, Y)
    train, held_out = fit_and_held_out(share, seed)
    X_fit, X_cal, y_fit, y_cal = (
        X_ID[train],
        X_ID[held_out],
        Y_ID[train],
        Y_ID[held_out],
    )
    model = LogisticRegression().fit(X_fit, y_fit)
    detector = KNN(n_neighbors=3, normalize=False).fit(X_fit)  # features are X
    point = solved(
        RULE,
        one_minus_max(model, X_cal),
        -detector.score_samples(X_cal),
        model.predict(X_cal) != y_cal,
        one_minus_max(model, X_OOD),
        -detector.score_samples(X_OOD),
    )
    assert_same_point(clf.operating_point_, point)
    assert (clf.theta_, clf.lambda_, clf.tau_) == (point.theta, point.lam, 1.0)
    assert clf.mu_ == point.mu
    assert_array_equal(clf.estimator_.coef_, model.coef_)


def test_random_state_draws_the_held_out_samples():
    def point(random_state):
        clf = RejectOptionClassifier(
            LogisticRegression(), rule=BoundedAbstention(), random_state=random_state
        )
        return clf.fit(X, Y).lambda_

    assert point(3) == point(3) == point(np.random.RandomState(3))
    assert point(3) != point(4)


def test_ood_samples_are_not_fitted_on():
    clf = selective(
        risk_detector=WhichFit(), ood_detector=WhichFit(), rule=BoundedAbstention()
    )
    with_ood = clf.fit(X, Y).risk_detector_.sum_, clf.ood_detector_.sum_
    coef = clf.estimator_.coef_
    without = clf.fit(X_ID, Y_ID)
    assert with_ood == (without.risk_detector_.sum_, without.ood_detector_.sum_)
    assert_array_equal(coef, without.estimator_.coef_)


# -------------------------------------------------------------------- cross-fitting


@pytest.mark.parametrize(
    ("calibration", "folds"),
    [
        (4, KFold(4, shuffle=True, random_state=0)),
        (KFold(3, shuffle=True, random_state=1), None),
        (StratifiedKFold(3), None),
    ],
)
def test_no_row_is_scored_by_a_model_fitted_on_it(calibration, folds):
    # On shuffled labels 1-NN is always right on its own rows, and nowhere else.
    y = np.random.default_rng(0).permutation(Y_ID)
    detector = make_pipeline(KNN(n_neighbors=1, normalize=False))  # reads X
    parts = Parts(KNeighborsClassifier(1), None, detector)
    labels = np.r_[y, -np.ones(len(X_OOD))]
    data = LabeledSamples.of(np.r_[X_ID, X_OOD], labels, None, None, None, -1)
    fitted, (order, ood_order), outputs = parts.fit_and_score(
        data, calibration, random_state=0, n_jobs=None
    )
    _, ood_id, predicted, *_ = outputs
    assert_array_equal(np.sort(ood_order), np.arange(len(X_OOD)))
    splits = list((folds or calibration).split(X_ID, y))
    assert sorted(order) == list(range(len(y)))
    assert len(fitted.unfitted) == 0

    nearest, label = np.empty(len(y)), np.empty(len(y), dtype=int)
    for train, test in splits:
        for i in test:
            distances = [np.linalg.norm(X_ID[i] - X_ID[j]) for j in train]
            nearest[i] = min(distances)
            label[i] = y[train[np.argmin(distances)]]
    assert_array_equal(predicted, label[order])
    assert_allclose(ood_id, nearest[order], rtol=1e-6)
    assert ood_id.min() > 0
    assert np.mean(predicted == y[order]) < 0.5
    # the final models have seen all rows
    assert_array_equal(fitted.estimator.predict(X_ID), y)
    assert_allclose(fitted.ood_detector.score_samples(X_ID), 0)


def test_repeated_folds_score_samples_more_than_once():
    cv = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    clf = RejectOptionClassifier(
        LogisticRegression(), rule=BoundedAbstention(0.5), calibration=cv
    ).fit(X_ID, Y_ID)
    risks, losses = [], []
    for train, test in cv.split(X_ID, Y_ID):
        model = LogisticRegression().fit(X_ID[train], Y_ID[train])
        risks.append(one_minus_max(model, X_ID[test]))
        losses.append(model.predict(X_ID[test]) != Y_ID[test])
    point = solved(
        clf.rule, np.concatenate(risks), None, np.concatenate(losses), None, None
    )
    assert len(np.concatenate(risks)) == 2 * len(Y_ID)
    assert_same_point(clf.operating_point_, point)


def test_each_ood_row_is_scored_once():
    for n_folds in (3, 5):
        parts = Parts(LogisticRegression(), WhichFit(), FirstColumn())
        y = np.r_[Y_ID, -np.ones(len(X_OOD))]
        data = LabeledSamples.of(np.r_[X_ID, X_OOD], y, None, None, None, -1)
        _, (_, ood_order), (*_, risk_ood, ood_ood) = parts.fit_and_score(
            data, n_folds, random_state=0, n_jobs=None
        )
        assert_array_equal(-ood_ood, X_OOD[ood_order, 0])
        assert_array_equal(np.sort(-ood_ood), np.sort(X_OOD[:, 0]))
        _, sizes = np.unique(risk_ood, return_counts=True)
        expected = [len(fold) for fold in np.array_split(X_OOD, n_folds)]
        assert sorted(sizes) == sorted(expected)


def test_fewer_ood_samples_than_folds():
    clf = RejectOptionClassifier(
        LogisticRegression(), ood_detector=PLAIN_KNN, rule=RULE, calibration=5
    )
    indices = np.concatenate([np.flatnonzero(IS_ID), np.flatnonzero(~IS_ID)[:2]])
    point = clf.fit(X[indices], Y[indices]).operating_point_
    assert point.fpr in (0.0, 0.5, 1.0)


@pytest.mark.parametrize(
    "backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)]
)
def test_number_of_jobs_changes_nothing(backend):
    def fit(n_jobs):
        return selective(
            risk_detector=Energy(),
            ood_detector=PLAIN_KNN,
            rule=RULE,
            calibration=3,
            n_jobs=n_jobs,
        ).fit(X, Y)

    alone = fit(None)
    with parallel_config(backend):
        two = fit(2)
    assert_same_point(alone.operating_point_, two.operating_point_)
    assert_array_equal(alone.accept_proba(X), two.accept_proba(X))


# --------------------------------------------------------------------- all rows


def test_same_samples_with_frozen_parts():
    X_fit, y_fit = make_data(seed=1, **SIZES)
    X_fit, y_fit = X_fit[y_fit >= 0], y_fit[y_fit >= 0]
    model = LogisticRegression().fit(X_fit, y_fit)
    detector = KNN(n_neighbors=3, normalize=False).fit(X_fit)
    clf = RejectOptionClassifier(
        FrozenEstimator(model),
        ood_detector=FrozenEstimator(detector),
        rule=RULE,
        calibration="same",
    ).fit(X, Y)
    point = solved(
        RULE,
        one_minus_max(model, X_ID),
        -detector.score_samples(X_ID),
        model.predict(X_ID) != Y_ID,
        one_minus_max(model, X_OOD),
        -detector.score_samples(X_OOD),
    )
    assert_same_point(clf.operating_point_, point)
    assert clf.estimator_.estimator is model
    assert clf.ood_detector_.estimator is detector


@pytest.mark.parametrize("name", ["estimator", "risk_detector", "ood_detector"])
def test_same_samples_need_frozen_parts(name):
    model = LogisticRegression().fit(X_ID, Y_ID)
    parts = {
        "estimator": FrozenEstimator(model),
        "risk_detector": FrozenEstimator(Energy(model).fit(X_ID, Y_ID)),
        "ood_detector": FrozenEstimator(KNN(n_neighbors=3).fit(X_ID)),
    }
    parts[name] = parts[name].estimator
    clf = RejectOptionClassifier(**parts, rule=RULE, calibration="same")
    with pytest.raises(
        ValueError, match=rf"'same' needs frozen parts, but {name} would.*FrozenEst"
    ):
        clf.fit(X, Y)


# ---------------------------------------------------------- what a detector reads


def test_detectors_without_estimator_read_the_classifier():
    classifier = make_pipeline(StandardScaler(), LogisticRegression())
    clf = selective(
        classifier, risk_detector=Energy(), ood_detector=Mahalanobis(), rule=RULE
    ).fit(X, Y)
    fitted = clf.estimator_
    for detector in (clf.risk_detector_, clf.ood_detector_):
        assert detector.estimator_.estimator is fitted
    logits = fitted.decision_function(X)
    assert_allclose(
        clf.risk_detector_.score_samples(X), np.log(np.exp(logits).sum(axis=1))
    )
    # features are the scaled columns that the last step reads
    on_features = Mahalanobis().fit(*_held_out_fit_samples(fitted, clf))
    assert_allclose(
        clf.ood_detector_.score_samples(X),
        on_features.score_samples(fitted[0].transform(X)),
        rtol=1e-9,
    )


def _held_out_fit_samples(fitted, clf):
    train, _ = fit_and_held_out(0.3, 0)
    return fitted[0].transform(X_ID[train]), Y_ID[train]


def test_detectors_in_a_pipeline_use_the_samples():
    clf = selective(
        make_pipeline(StandardScaler(), LogisticRegression()),
        ood_detector=make_pipeline(KNN(n_neighbors=3, normalize=False)),
        rule=RULE,
    ).fit(X, Y)
    assert not hasattr(clf.ood_detector_[-1], "estimator_")
    train, _ = fit_and_held_out(0.3, 0)
    nearest = np.sort(np.linalg.norm(X[:, None] - X_ID[train][None], axis=2), axis=1)[
        :, 2
    ]
    assert_allclose(clf.ood_detector_.score_samples(X), -nearest, rtol=1e-6)


def test_detector_with_another_classifier():
    other = FrozenEstimator(LogisticRegression(C=1e-3).fit(X_ID, Y_ID))
    detector = bind(MaxLogit(other), FrozenEstimator(LogisticRegression()))
    assert detector.estimator is other
    # and a detector of another library has none to be given
    forest = bind(IsolationForest(random_state=0), other)
    assert forest.get_params() == IsolationForest(random_state=0).get_params()


# ------------------------------------------------------------------- the risk score


def test_confident_samples_are_not_tied():
    # 1 - max p would be 0 for all of them
    class Sure(BaseEstimator):
        def predict_proba(self, X):
            small = np.array([1e-30, 1e-25, 1e-20])
            return np.column_stack([small, np.ones(3), small])

    risk, ood = Parts(Sure(), None, None).score(X[:3])
    assert_allclose(risk, [2e-30, 2e-25, 2e-20])
    assert ood is None


def test_probabilities_are_not_written_to():
    stored = np.array([[0.25, 0.75], [0.5, 0.5]])

    class Stored(BaseEstimator):
        def predict_proba(self, X):
            return stored

    risk, _ = Parts(Stored(), None, None).score(X[:2])
    assert_array_equal(risk, [0.25, 0.5])
    assert_array_equal(stored, [[0.25, 0.75], [0.5, 0.5]])


def test_classifier_without_probabilities():
    clf = selective(LinearSVC(), rule=BoundedAbstention())
    with pytest.raises(
        ValueError, match=r"LinearSVC has no predict_proba. Pass a .*MaxLogit\(\)"
    ):
        clf.fit(X, Y)
    clf.set_params(risk_detector=MaxLogit()).fit(X, Y)
    margins = clf.estimator_.decision_function(X).max(axis=1)
    assert_allclose(clf.risk_detector_.score_samples(X), margins)
    assert_array_equal(
        clf.accept_proba(X) == 1,
        -margins / clf.operating_point_.scales[0] <= clf.lambda_,
    )
    assert not hasattr(clf, "predict_proba")


# ------------------------------------------------------------------- other checks


def test_sparse_samples():
    X_sparse = csr_matrix(np.where(np.abs(X) > 0.5, X, 0))
    options = {"rule": BoundedAbstention(), "random_state": 0}
    sparse = RejectOptionClassifier(LogisticRegression(), **options).fit(X_sparse, Y)
    dense = RejectOptionClassifier(LogisticRegression(), **options).fit(
        X_sparse.toarray(), Y
    )
    assert_allclose(sparse.lambda_, dense.lambda_, rtol=1e-6)
    assert_array_equal(sparse.predict(X_sparse), dense.predict(X_sparse.toarray()))


def test_a_detector_with_another_ood_label():
    y = np.where(Y == -1, -7, np.where(Y == 0, -1, Y))  # -1 is a class now
    detector = make_pipeline(KNN(n_neighbors=3, normalize=False))
    clf = selective(ood_detector=detector, rule=RULE, ood_label=-7, reject_label=-8)
    with pytest.raises(
        ValueError, match="ood_detector__knn__ood_label=-1 is one of the classes"
    ):
        clf.fit(X, y)
    clf.set_params(ood_detector__knn__ood_label=-7).fit(X, y)
    assert_same_point(
        clf.operating_point_,
        selective(ood_detector=detector, rule=RULE)
        .set_params(ood_detector__knn__ood_label=-7)
        .fit(X, np.where(Y == -1, -1, Y + 1))
        .operating_point_,
    )
    # a frozen one is not fitted, so that its label does not matter
    frozen = FrozenEstimator(KNN(n_neighbors=3).fit(X_ID))
    clf.set_params(ood_detector=frozen).fit(X, y)

"""Weights, groups and metadata routing of RejectOptionClassifier."""

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.detectors import Mahalanobis
from skood.metrics import make_cost_scorer, make_selective_risk_scorer
from skood.rejection import (
    BoundedAbstention,
    BoundedTPRFPR,
    CostBased,
    RejectOptionClassifier,
)
from tests.rejection._problem import selective

RULE = BoundedTPRFPR(0.6, 0.4)


def _data(seed=0, n=150):
    rng = np.random.default_rng(seed)
    y = rng.choice([0, 1, -1], size=n)
    X = np.array([[0.0, 1.0], [1.5, 0.0], [4.0, 4.0]])[y] + rng.normal(size=(n, 2))
    return X, y, rng.integers(4, size=n)


class Outside(BaseEstimator):
    """Detector that takes weights: distance from their mean."""

    def fit(self, X, y=None, sample_weight=None):
        self.weight_ = sample_weight
        self.mean_ = np.average(X, axis=0, weights=sample_weight)
        return self

    def score_samples(self, X):
        return -np.linalg.norm(X - self.mean_, axis=1)


class Recording(ClassifierMixin, BaseEstimator):
    """Classifier that records what it is fitted on, in column 0 of X."""

    seen: list = []

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        self.seen_ = X[:, 0].copy()
        self.weight_ = sample_weight
        Recording.seen.append(set(X[:, 0].tolist()))
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def predict_proba(self, X):
        return np.tile(np.eye(len(self.classes_))[0], (len(X), 1))


@pytest.mark.parametrize("solver", ["bnb", "exact", "grid"])
def test_whole_weights_are_repeated_samples(solver):
    X, y, weight = _data()
    parts = {
        "estimator": FrozenEstimator(GaussianNB().fit(X[y >= 0], y[y >= 0])),
        "ood_detector": FrozenEstimator(Outside().fit(X[y >= 0])),
    }
    clf = RejectOptionClassifier(
        **parts, rule=RULE, calibration="same", solver=solver
    ).fit(X, y, sample_weight=weight)
    repeated = np.repeat(X, weight, axis=0), np.repeat(y, weight)
    expected = RejectOptionClassifier(
        **parts, rule=RULE, calibration="same", solver=solver
    ).fit(*repeated)
    point, other = clf.operating_point_, expected.operating_point_
    assert point.objective == pytest.approx(other.objective, rel=0, abs=1e-9)
    if solver != "bnb":  # ties of the objective are resolved alike
        np.testing.assert_allclose(clf.lambda_, expected.lambda_, rtol=1e-9)
        reason, other = clf.reject_reason(X), expected.reject_reason(X)
        for name in ("risk_percentile", "ood_percentile", "ood_fraction"):
            np.testing.assert_allclose(reason[name], other[name], rtol=0, atol=1e-9)
    assert clf.score(X, y, sample_weight=weight) == pytest.approx(clf.score(*repeated))
    report = clf.report(X, y, sample_weight=weight, ood_prior=0.2)
    expected = clf.report(*repeated, ood_prior=0.2)
    for name in ("tpr", "fpr", "coverage", "risk", "precision"):
        np.testing.assert_allclose(
            getattr(report, name), getattr(expected, name), rtol=0, atol=1e-9
        )
    assert str(report) == str(expected)


@pytest.mark.parametrize(
    "make", [GaussianNB, lambda: make_pipeline(StandardScaler(), GaussianNB())]
)
def test_weights_reach_the_parts(make):
    X, y, weight = _data(1)
    is_id = (y >= 0) & (weight > 0)
    clf = RejectOptionClassifier(
        make(), risk_detector=Outside(), ood_detector=Outside()
    )
    clf.fit(X, y, sample_weight=weight)
    repeated = (
        np.repeat(X[is_id], weight[is_id], axis=0),
        np.repeat(y[is_id], weight[is_id]),
    )
    expected = make().fit(*repeated)
    np.testing.assert_allclose(
        clf.predict_proba(X), expected.predict_proba(X), rtol=1e-6
    )
    for detector in (clf.risk_detector_, clf.ood_detector_):
        np.testing.assert_allclose(detector.mean_, repeated[0].mean(axis=0))
    np.testing.assert_array_equal(clf.ood_detector_.weight_, weight[is_id])


@pytest.mark.parametrize("calibration", [0.3, 4, KFold(3)])
def test_weights_follow_the_samples_of_each_split(calibration):
    # all weights of a sample are its first column, and so are its scores
    X, y, weight = _data(2)
    X[:, 0] = weight = np.random.default_rng(2).exponential(size=len(y))
    seen = {}

    class Rule(CostBased):
        is_searched = False

        def _point(self, problem, certificate=None):
            seen.update(vars(problem))

    selective(
        Recording(), risk_detector=_FirstColumn(), rule=Rule(), calibration=calibration
    ).fit(X, y, sample_weight=weight)
    for kind in ("id", "ood"):
        ratio = seen[f"weight_{kind}"] / -seen[f"risk_{kind}"]
        np.testing.assert_allclose(ratio, ratio[0])
    assert seen["size_ood"] == np.count_nonzero(y == -1)


class _FirstColumn(BaseEstimator):
    def fit(self, X, y=None, sample_weight=None):
        np.testing.assert_array_equal(X[:, 0], sample_weight)
        return self

    def score_samples(self, X):
        return X[:, 0]


def test_samples_of_weight_zero_are_absent():
    X, y, weight = _data(3)
    X[weight == 0] = np.nan
    y = y.copy()
    y[np.flatnonzero(weight == 0)[0]] = 7
    clf = selective(GaussianNB(), rule=CostBased())
    clf.fit(X, y, sample_weight=weight)
    used = weight > 0
    expected = selective(GaussianNB(), rule=CostBased()).fit(
        X[used], y[used], sample_weight=weight[used]
    )
    assert clf.operating_point_ == expected.operating_point_
    np.testing.assert_array_equal(clf.classes_, [0, 1])


def test_errors_of_weights():
    X, y, weight = _data(4)
    clf = selective(GaussianNB(), rule=CostBased()).fit(X, y)
    before = clf.operating_point_
    for weights, message in (
        (weight[1:], r"sample_weight has shape \(149,\)"),
        (-weight, "Negative"),
        (np.where(weight, np.nan, 1), "NaN"),
        ((y == -1).astype(float), "zero for all ID samples"),
        (0 * weight, "zero"),
    ):
        with pytest.raises(ValueError, match=message):
            clf.fit(X, y, sample_weight=weights)
    assert clf.operating_point_ is before
    with pytest.raises(ValueError, match="needs OOD samples"):
        clf.fit(X, y, sample_weight=y >= 0)
    knn = RejectOptionClassifier(KNeighborsClassifier(), rule=CostBased())
    with pytest.raises(ValueError, match="KNeighborsClassifier has no sample_weight"):
        knn.fit(X, y, sample_weight=weight)
    lof = RejectOptionClassifier(
        GaussianNB(), ood_detector=LocalOutlierFactor(novelty=True), rule=RULE
    )
    with pytest.warns(
        UserWarning, match="ood_detector is fitted without sample_weight"
    ):
        lof.fit(X, y, sample_weight=weight)


def test_a_guarantee_excludes_weights_and_dependent_samples():
    X, y, weight = _data(5)
    clf = RejectOptionClassifier(
        GaussianNB(), rule=BoundedAbstention(0.5), guarantee="high_probability"
    )
    with pytest.raises(ValueError, match=r"Repeats of a sample.*are not independent"):
        clf.fit(X, y, sample_weight=weight)
    with pytest.raises(ValueError, match="requires independent samples, but groups"):
        clf.fit(X, y, groups=np.arange(150) // 2)
    clf.fit(X, y, groups=np.arange(150))  # each sample is a group


@pytest.mark.parametrize(
    "calibration", [0.3, 4, GroupKFold(3), LeaveOneGroupOut()], ids=str
)
@pytest.mark.parametrize("as_text", [False, True])
def test_groups_are_held_out_as_a_whole(calibration, as_text):
    X, y, _ = _data(6)
    groups = np.random.default_rng(60).integers(8, size=150)
    X[:, 0] = groups
    Recording.seen.clear()
    scored = []

    class Scores(Outside):
        def score_samples(self, X):
            scored.append(set(X[:, 0].tolist()))
            return -X[:, 1]

    selective(
        Recording(), ood_detector=Scores(), rule=RULE, calibration=calibration
    ).fit(X, y, groups=[f"g{g}" for g in groups] if as_text else groups)
    fits = Recording.seen
    # ID samples and then OOD samples of each fold are scored by its models
    per_fold = np.reshape(np.array(scored, dtype=object), (-1, 2))
    for train, held_out in zip(fits, per_fold, strict=False):
        for kind in held_out:
            assert not train & kind
    assert set.union(*per_fold[:, 0]) == (
        set(range(8)) if calibration != 0.3 else per_fold[0, 0]
    )
    if calibration == 0.3:
        assert len(per_fold[0, 0]) == 2


def test_groups_with_all_ood_samples_seen():
    X, y, _ = _data(7)
    clf = selective(GaussianNB(), rule=CostBased())
    groups = np.where(y == -1, 0, np.arange(150) % 10)
    seed = next(
        seed
        for seed in range(9)
        if 0 not in np.random.RandomState(seed).permutation(10)[:3]
    )
    with pytest.raises(ValueError, match=r"No OOD samples are left.*calibration=5"):
        clf.set_params(random_state=seed).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="one group only, 'a'"):
        clf.fit(X, y, groups=["a"] * 150)
    with pytest.raises(ValueError, match=r"GroupKFold.* needs groups.*set_fit_request"):
        clf.set_params(calibration=GroupKFold(3)).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.fit(X, y, groups=groups[1:])


def test_groups_in_a_search_without_routing():
    X, y, _ = _data(8)
    groups = np.arange(150) % 10
    search = GridSearchCV(
        selective(GaussianNB(), rule=CostBased()),
        {"rule__reject_id": [0.3, 0.6]},
        scoring=make_cost_scorer(),
        cv=GroupKFold(3),
        error_score="raise",
    ).fit(X, y, groups=groups)
    assert search.best_score_ > -1


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_routing_of_weights_and_groups(routing):
    X, y, weight = _data(9)
    groups = np.arange(150) % 10
    X[:, 0] = groups
    clf = selective(
        Recording().set_fit_request(sample_weight=True),
        ood_detector=Outside().set_fit_request(sample_weight=False),
        rule=RULE,
        calibration=GroupKFold(3),
    ).set_fit_request(sample_weight=True, groups=True)
    router = clf.get_metadata_routing()
    assert router.consumes("fit", ["sample_weight", "groups"]) == {
        "sample_weight",
        "groups",
    }
    Recording.seen.clear()
    result = cross_validate(
        clf,
        X,
        y,
        cv=GroupKFold(2),
        params={"groups": groups, "sample_weight": weight},
        scoring=make_selective_risk_scorer(0.6, 0.4).set_score_request(
            sample_weight=True
        ),
        return_estimator=True,
        return_indices=True,
        error_score="raise",
    )
    for fitted, train in zip(
        result["estimator"], result["indices"]["train"], strict=True
    ):
        fitted_on = train[(y[train] >= 0) & (weight[train] > 0)]
        np.testing.assert_array_equal(fitted.estimator_.weight_, weight[fitted_on])
        assert fitted.ood_detector_.weight_ is None
    # two folds, each with three of its own and the final fit
    sizes = [len(seen) for seen in Recording.seen]
    assert sizes[3::4] == [5, 5]
    assert max(sizes[:3]) < 5


def test_weights_that_parts_do_not_request_raise(routing):
    X, y, weight = _data(10)
    clf = RejectOptionClassifier(GaussianNB(), rule=RULE)
    with pytest.raises(UnsetMetadataPassedError, match=r"GaussianNB\.fit"):
        clf.fit(X, y, sample_weight=weight)


def test_detectors_of_skood_and_scikit_learn_take_weights():
    X, y, weight = _data(11)
    for detector in (Mahalanobis(), IsolationForest(n_estimators=5, random_state=0)):
        clf = selective(ood_detector=detector, rule=RULE).fit(
            X, y, sample_weight=weight
        )
        plain = selective(ood_detector=detector, rule=RULE).fit(X, y)
        ours, others = (c.ood_detector_.score_samples(X) for c in (clf, plain))
        assert not np.allclose(ours, others)


def test_another_rule_with_weights():
    X, y, weight = _data(12)
    clf = RejectOptionClassifier(GaussianNB()).fit(X, y)
    other = clf.with_rule(CostBased(), X, y, sample_weight=weight)
    expected = clf.with_rule(
        CostBased(), np.repeat(X, weight, axis=0), np.repeat(y, weight)
    )
    assert other.lambda_ == pytest.approx(expected.lambda_, rel=1e-9)


def test_there_are_no_intervals_with_other_weights():
    X, y, _ = _data(13)
    clf = selective(GaussianNB(), Outside(), rule=RULE)
    clf.fit(X, y)
    ones, halves = (
        clf.report(X, y, sample_weight=np.full(150, w), ood_prior=0.1) for w in (1, 0.5)
    )
    assert str(ones) == str(halves) == str(clf.report(X, y, ood_prior=0.1))
    skewed = np.where(np.arange(150) < 30, 10.0, 0.1)
    report = clf.report(X, y, sample_weight=skewed)
    subset = clf.report(X[:30], y[:30])
    assert report.tpr.value == pytest.approx(subset.tpr.value, abs=0.05)
    for name in ("tpr", "fpr", "coverage", "risk"):
        estimate = getattr(report, name)
        assert np.isfinite(estimate.value)
        assert np.isnan([estimate.low, estimate.high]).all()
        assert np.ptp(getattr(ones, name)[1:]) > 0
    assert report.to_dict()["tpr"]["low"] is None
    clf.set_params(loss=np.array([[0.0, 0.5], [1.0, 0.0]]))
    report = clf.report(X, y, sample_weight=skewed)
    assert np.isfinite(report.risk.value)
    assert np.isnan(report.risk.low)

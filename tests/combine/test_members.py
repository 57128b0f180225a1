"""Members that are fitted and score together."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel

from skood.combine import (
    DSDE,
    BenjaminiHochberg,
    Bonferroni,
    DetectorEnsemble,
    DOSStorey,
    conformal_pvalues,
)
from skood.combine._detector_ensemble import kind_of_levels
from skood.detectors import KNN, MSP, SSD, Energy, Mahalanobis, ViM
from skood.exceptions import SkoodWarning
from skood.nn import FeatureExtractor, LinearHead
from skood.rectifiers import ASH, ReAct
from skood.stats._conformal import Calibration
from skood.utils._folds import calibration_folds, check_same
from skood.utils._ties import tolerance
from tests.combine._members import Column, frozen_ensemble, quiet
from tests.nn._conv_net import images
from tests.nn._members import counted


def _members(network):
    frozen = FrozenEstimator(network)
    rectified = make_pipeline(FeatureExtractor(frozen), ReAct(), KNN(n_neighbors=3))
    shaped = make_pipeline(FeatureExtractor(frozen), ASH(), KNN(n_neighbors=3))
    return [
        ("msp", MSP(frozen)),
        ("energy", Energy(frozen)),
        ("vim", ViM(frozen)),
        ("react", rectified),
        ("ash", shaped),
        ("frozen", FrozenEstimator(KNN(frozen, n_neighbors=3).fit(images(60)))),
    ]


@pytest.mark.parametrize("calibration", [0.4, 3])
def test_a_network_reads_each_row_once(calibration):
    network, samples_run = counted()
    X, X_new, y = images(60), images(35, seed=1), np.arange(60) % 3
    members = _members(network)
    ensemble = DetectorEnsemble(members, calibration=calibration, random_state=0)
    samples_run.clear()
    quiet(ensemble.fit, X, y)
    # per fold the training and the held-out rows; FeatureExtractor needs no row more
    n_folds = 1 if calibration == 0.4 else 3
    assert sum(samples_run) == 60 * n_folds
    for method in (ensemble.levels, ensemble.predict, ensemble.explain):
        samples_run.clear()
        method(X_new)
        assert sum(samples_run) == 35  # whatever the number of folds


def test_many_samples_are_scored_in_chunks(monkeypatch):
    """Bounded memory for what is kept, and the same scores."""
    network, samples_run = counted()
    X, y = images(60), np.arange(60) % 3
    ensemble = quiet(DetectorEnsemble(_members(network), random_state=0).fit, X, y)
    (whole,) = ensemble._member_scores(X)
    monkeypatch.setattr("skood.nn._shared_forward._SHARED_SAMPLES", 25)
    samples_run.clear()
    (parts,) = ensemble._member_scores(X)
    assert samples_run == [25, 25, 10]
    assert_allclose(parts, whole, rtol=1e-5)


def test_estimator_is_not_fitted_on_held_out_samples():
    class Counting(LogisticRegression):
        def fit(self, X, y):
            self.n_rows_ = len(X)
            return super().fit(X, y)

    X = np.random.default_rng(0).normal(size=(100, 3))
    ensemble = DetectorEnsemble(
        [("msp", MSP()), ("energy", Energy())],
        estimator=Counting(),
        calibration=0.4,
        random_state=0,
    ).fit(X, np.arange(100) % 2)
    assert ensemble.estimator_.n_rows_ == 60
    ensemble.set_params(calibration=KFold(5)).fit(X, np.arange(100) % 2)
    assert ensemble.estimator_.n_rows_ == 80


class _WithoutY(BaseEstimator):
    def fit(self, X):
        self.mean_ = X.mean(axis=0)
        return self

    def score_samples(self, X):
        return -np.abs(X - self.mean_).sum(axis=1)


def test_member_whose_fit_takes_no_y():
    X = np.random.default_rng(0).normal(size=(100, 3))
    ensemble = quiet(DetectorEnsemble([("plain", _WithoutY())], random_state=0).fit, X)
    assert ensemble.predict(X[:1] + 99) == [-1]


def test_scores_tied_with_calibration_scores_are_counted():
    scores = np.linspace(10.0, 14.0, 401)[:, None]  # interquartile range 2
    calibration = Calibration.of(scores)
    assert_allclose(tolerance(scores[:1], *calibration.scale), [[2e-5]])
    assert len(calibration) == 401
    below = scores[100, 0] - np.array([[1e-5], [3e-5]])
    assert_array_equal(calibration.counts(below), [[101], [100]])


def test_a_frozen_or_deeper_member_with_a_class_for_ood_label():
    """Only what is fitted here would lose the rows; however deep it is."""
    X, y = np.random.default_rng(0).normal(size=(100, 2)), np.arange(100) % 2 - 1
    frozen = FrozenEstimator(Column().fit(X))
    ensemble = quiet(
        DetectorEnsemble([("a", frozen)], ood_label=-9, random_state=0).fit, X, y
    )
    assert_array_equal(ensemble.classes_, [-1, 0])
    inner = DetectorEnsemble([("b", Column())], ood_label=-9)
    with pytest.raises(ValueError, match="c__b__ood_label=-1 is one of the classes"):
        DetectorEnsemble([("c", inner)], ood_label=-9).fit(X, y)


@pytest.mark.parametrize("name, needs", [("sparse", all), ("positive_only", any)])
def test_input_tags_are_those_that_all_members_can_do_with(name, needs):
    class Tagged(Column):
        def __init__(self, column=0, ood_label=-1, value=False):
            super().__init__(column, ood_label)
            self.value = value

        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            setattr(tags.input_tags, name, self.value)
            tags.target_tags.required = self.value
            tags.non_deterministic = self.value
            return tags

    for values in ((True, True), (True, False), (False, False)):
        members = [(f"m{i}", Tagged(value=value)) for i, value in enumerate(values)]
        tags = get_tags(DetectorEnsemble([*members, ("out", "drop")]))
        assert getattr(tags.input_tags, name) == needs(values)
        assert tags.target_tags.required == any(values)
        assert tags.non_deterministic == any(values)


def test_a_classifier_to_fit_needs_labels():
    members = [("msp", MSP()), ("energy", Energy())]
    unfitted = LogisticRegression()
    fitted = LogisticRegression().fit(np.eye(2), [0, 1])
    for estimator, required in ((unfitted, True), (FrozenEstimator(fitted), False)):
        ensemble = DetectorEnsemble(members, estimator=estimator)
        assert get_tags(ensemble).target_tags.required == required


def test_warning_counts_the_samples_of_the_smallest_fold():
    """Statistics of a fold come from its p-values alone."""
    X = np.random.default_rng(0).normal(size=(300, 3))
    members = [(f"m{j}", Column(j)) for j in range(3)]
    ensemble = DetectorEnsemble(
        members, Bonferroni(), calibration=KFold(5), level="conformal", random_state=0
    )
    with pytest.warns(SkoodWarning, match=r"smallest statistic of Bonf.*, 0\.0968, is"):
        ensemble.fit(X)  # 3 / 31: of the 60 rows of a fold 30 give p-values
    ensemble.set_params(calibration=KFold(2))
    with warnings.catch_warnings(action="error"):
        ensemble.fit(X)  # 75 rows per fold are enough for 3 members


def test_single_warning():
    X = np.random.default_rng(0).normal(size=(200, 18))
    ensemble = frozen_ensemble(18, Bonferroni(), random_state=0)
    with pytest.warns(SkoodWarning) as caught:
        ensemble.fit(X)
    assert len(caught) == 1
    assert "No sample can be rejected" in str(caught[0].message)


def _counting(sizes):
    """Classes of classifiers that note the number of samples of each product."""

    class Logistic(LogisticRegression):
        def decision_function(self, X):
            sizes.append(len(X))
            return super().decision_function(X)

    class Head(LinearHead):
        def predict_logits(self, X):
            sizes.append(len(X))
            return super().predict_logits(X)

    return {"logistic": Logistic, "head": Head}


@pytest.mark.parametrize("calibration", [0.4, 3])
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("kind", ["logistic", "head"])
def test_a_linear_classifier_runs_once(kind, frozen, calibration):
    sizes: list = []
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(200, 5)), rng.normal(size=(35, 5))
    y = np.argmax(X[:, :3], axis=1)
    estimator = _counting(sizes)[kind]()
    if frozen:
        estimator = FrozenEstimator(estimator.fit(X, y))
    members = [MSP(), Energy(), ViM(n_components=2), KNN(), Mahalanobis()]
    dsde = DSDE(
        [(type(each).__name__, each) for each in members],
        estimator=estimator,
        calibration=calibration,
        random_state=0,
    )
    sizes.clear()
    quiet(dsde.fit, X, y)
    n_folds = 1 if calibration == 0.4 else 3
    assert sum(sizes) == 200 * n_folds
    n_networks = n_folds if not frozen else 1
    for method in (
        dsde.score_samples,
        dsde.predict,
        dsde.pvalues,
        dsde.levels,
        dsde.pi0,
        dsde.selected_detectors,
    ):
        sizes.clear()
        method(X_new)
        assert sum(sizes) == 35 * n_networks


def test_joblib_runs_several_groups_only(monkeypatch):
    """Its set-up takes longer than the scores of a sample; they are the same."""
    jobs = []

    class Spy(Parallel):
        def __call__(self, tasks):
            jobs.append(self.n_jobs)
            return super().__call__(tasks)

    X = np.random.default_rng(0).normal(size=(60, 3))
    ensemble = frozen_ensemble(3, random_state=0).fit(X)
    monkeypatch.setattr("skood.combine._base_committee.Parallel", Spy)
    expected = ensemble.score_samples(X)
    assert jobs == []
    with joblib.parallel_config("threading", n_jobs=2):
        assert_array_equal(ensemble.score_samples(X), expected)
    with joblib.parallel_config("threading"):  # processes take seconds to start
        assert_array_equal(ensemble.set_params(n_jobs=2).score_samples(X), expected)
    assert len(jobs) == 2


def _sizes(n_samples, n_folds="same"):
    """Return the numbers of samples of each fold for p-values, and for levels."""
    folds = calibration_folds(n_samples, None, n_folds, 0)
    sizes = np.array([len(held_out) for _, held_out in folds])
    return np.stack([sizes - sizes // 2, sizes // 2], axis=1)


def _kind(sizes, level, alpha=0.05):
    with warnings.catch_warnings(action="error"):
        return kind_of_levels(sizes, level, alpha)


@pytest.mark.parametrize("n", [38, 39])
def test_halves(n):
    X = np.random.default_rng(0).normal(size=(n, 1))
    for level in ("auto", "conformal"):
        assert _kind(_sizes(n), level) == "conformal"
        ensemble = frozen_ensemble(1, level=level, random_state=0)
        quiet(ensemble.fit, X)
        assert ensemble.level_ == "conformal"
        assert ensemble.n_level_ == 19  # (1 + 0) / (19 + 1) reaches .05
        assert ensemble.n_calibration_ == n - 19
        scores = ensemble._levels.calibrations[0].scores[:, 0]
        others = np.setdiff1d(X, scores)  # the halves are disjoint
        pvalues = (1 + scores.searchsorted(others, "right")) / (n - 18)
        assert_allclose(ensemble._levels.statistics[0], pvalues)


def test_too_few_samples_for_a_conformal_level():
    sizes = _sizes(37)
    with pytest.warns(
        SkoodWarning, match=r"needs 19 samples.* of the 37 samples .* 18 can"
    ):
        assert kind_of_levels(sizes, "auto", 0.05) == "nominal"
    with pytest.raises(ValueError, match=r"^level='conformal' needs 19 samples"):
        kind_of_levels(sizes, "conformal", 0.05)
    assert _kind(sizes, "nominal") == "nominal"  # requested: no warning
    X = np.random.default_rng(0).normal(size=(37, 2))
    ensemble = frozen_ensemble(2, level="nominal", random_state=0).fit(X)
    assert (ensemble.n_calibration_, ensemble.n_level_) == (37, 0)


def test_samples_that_a_level_needs_despite_rounding():
    """1 / alpha is 49.00000000000001 for alpha = 1/49: 48 rows are enough."""
    assert _kind(_sizes(96), "conformal", alpha=1 / 49) == "conformal"


def test_samples_for_levels_are_counted_over_folds():
    assert _kind(_sizes(40, 5), "conformal") == "conformal"
    ensemble = DetectorEnsemble([("a", Column())], level="conformal", calibration=5)
    quiet(ensemble.fit, np.arange(40.0)[:, None])
    assert list(map(len, ensemble._levels.statistics)) == [4] * 5


def test_each_fold_needs_pvalues_that_are_small_enough():
    """Its statistics are ranked among themselves: in small folds they are all tied."""
    for n, n_folds, correction, expected in (
        (400, 5, 2.0, "conformal"),  # 40 rows of a fold give p-values, 39 are needed
        (375, 5, 2.0, "nominal"),  # 38 rows
        (400, 10, 2.0, "nominal"),
        (400, 10, 1.0, "conformal"),
    ):
        sizes = _sizes(n, n_folds)
        with warnings.catch_warnings(record=True, action="always") as caught:
            assert kind_of_levels(sizes, "auto", 0.05, correction) == expected
        assert len(caught) == (expected == "nominal")
        assert kind_of_levels(sizes, "conformal", 0.05, correction) == "conformal"
    with pytest.warns(
        SkoodWarning, match=r"only 20 samples of a fold .* fewer than 39"
    ):
        kind_of_levels(_sizes(400, 10), "auto", 0.05, 2.0)


def test_leaving_single_samples_out_has_no_samples_for_levels():
    with pytest.warns(SkoodWarning, match="of the 50 samples held out 0 can be had"):
        assert kind_of_levels(_sizes(50, 50), "auto", 0.05) == "nominal"


def test_same_needs_frozen_members():
    frozen = FrozenEstimator(Column().fit(np.zeros((1, 1))))
    check_same(["a"], [frozen])
    with pytest.raises(ValueError, match="needs frozen members, but 'b' would be"):
        check_same(["a", "b"], [frozen, Column()])


rng = np.random.default_rng(0)
Y = np.arange(300) % 3
X = rng.normal(size=(300, 3)) + 3 * np.eye(3)[Y]
X[:40] = np.round(X[:40])  # ties
Y[[7, 90]] = -1
WEIGHT = rng.integers(0, 4, size=300)
ROWS = np.repeat(np.arange(300), WEIGHT)
NEW = rng.normal(size=(50, 3)) * 2
MEMBERS = [
    ("near", FrozenEstimator(Mahalanobis().fit(X, Y))),
    ("angle", FrozenEstimator(SSD().fit(X, Y))),
]


class _Halves:
    """Whole samples, in the order of the data, by a column that marks the sample."""

    def __init__(self, groups):
        self.groups = groups

    def get_n_splits(self, X=None, y=None, groups=None):
        return 1

    def split(self, X, y=None, groups=None):
        held = self.groups % 2 == 1
        yield np.flatnonzero(~held), np.flatnonzero(held)


@pytest.mark.parametrize("combiner", [BenjaminiHochberg(), DOSStorey(c_m=0.5)])
def test_repeated_calibration_scores_of_frozen_members(combiner):
    def fitted(X, y, weight=None):
        return DetectorEnsemble(
            MEMBERS, combiner, calibration="same", level="nominal", random_state=0
        ).fit(X, y, sample_weight=weight)

    weighted, repeated = fitted(X, Y, WEIGHT), fitted(X[ROWS], Y[ROWS])
    assert_array_equal(weighted.pvalues(NEW), repeated.pvalues(NEW))
    assert_array_equal(weighted.levels(NEW), repeated.levels(NEW))
    assert weighted.n_calibration_ == WEIGHT[Y >= 0].sum()
    individual = MEMBERS[0][1].score_samples(X[ROWS][Y[ROWS] >= 0])
    expected = conformal_pvalues(MEMBERS[0][1].score_samples(NEW), individual)
    assert_allclose(weighted.pvalues(NEW)[:, 0], expected)


def test_members_are_fitted_on_weighted_samples():
    """A splitter that holds out whole samples makes both fits equal."""
    id_samples = np.flatnonzero(Y >= 0)
    accepted = id_samples[WEIGHT[id_samples] > 0]
    members = [("near", Mahalanobis()), ("proba", MSP())]

    def fitted(X, y, groups, weight=None):
        return DetectorEnsemble(
            members,
            estimator=LogisticRegression(C=0.1, tol=1e-10),
            calibration=_Halves(groups),
            level="nominal",
            random_state=0,
        ).fit(X, y, sample_weight=weight)

    samples = np.repeat(accepted, WEIGHT[accepted])
    weighted = fitted(X, Y, accepted, WEIGHT)
    repeated = fitted(X[samples], Y[samples], samples)
    assert_allclose(weighted.pvalues(NEW), repeated.pvalues(NEW), rtol=1e-12)
    near = weighted.named_detectors_["near"]
    train = accepted[accepted % 2 == 0]
    expected = Mahalanobis().fit(X[train], Y[train], sample_weight=WEIGHT[train])
    assert_allclose(near.location_, expected.location_, rtol=1e-12)


def test_conformal_levels_count_weights():
    weight = np.full(300, 2)
    ensemble = DetectorEnsemble(
        MEMBERS, calibration="same", level="conformal", random_state=0
    )
    plain = ensemble.fit(X, Y).n_level_
    assert ensemble.fit(X, Y, sample_weight=weight).n_level_ == 2 * plain
    # a copy is on the same side as its sample, and levels are at least 1 / (n + 1)
    assert ensemble.levels(NEW).min() >= 1 / (2 * plain + 1)


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_members_without_weights_are_fitted_without():
    members = [("lof", LocalOutlierFactor(novelty=True)), ("near", Mahalanobis())]
    ensemble = DetectorEnsemble(members, random_state=0)
    ensemble.fit(X, Y, sample_weight=WEIGHT)
    plain = DetectorEnsemble(members, random_state=0).fit(X[WEIGHT > 0], Y[WEIGHT > 0])
    both = (ensemble, plain)
    pairs = [each.named_detectors_["lof"].score_samples(NEW) for each in both]
    assert_array_equal(*pairs)
    near = [each.named_detectors_["near"].location_ for each in both]
    assert not np.allclose(*near)


def test_weights_that_are_no_counts():
    with pytest.raises(ValueError, match=r"must be integers, .* got 0\.5: p-values"):
        DetectorEnsemble(MEMBERS, calibration="same").fit(
            X, Y, sample_weight=np.full(300, 0.5)
        )
    nearest = KNeighborsClassifier()
    members = [("a", MSP(nearest)), ("b", Mahalanobis())]
    with pytest.raises(ValueError, match="KNeighborsClassifier has no sample_weight"):
        DetectorEnsemble(members).fit(X, Y, sample_weight=WEIGHT)

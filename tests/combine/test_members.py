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
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel

from skood.combine import DSDE, Bonferroni, DetectorEnsemble
from skood.detectors import KNN, MSP, Energy, Mahalanobis, ViM
from skood.exceptions import SkoodWarning
from skood.nn import FeatureExtractor, LinearHead
from skood.rectifiers import ASH, ReAct
from skood.stats._conformal import Calibration
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
        members,
        Bonferroni(),
        calibration=KFold(5),
        level="conformal",
        random_state=0,
    )
    with pytest.warns(SkoodWarning, match=r"smallest statistic of Bonf.*, 0\.0968, is"):
        ensemble.fit(X)  # 3 / 31: of the 60 rows of a fold 30 give p-values
    ensemble.set_params(calibration=KFold(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # 75 rows per fold are enough for 3 members
        ensemble.fit(X)


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
    assert_array_equal(ensemble.set_params(n_jobs=2).score_samples(X), expected)
    assert len(jobs) == 2

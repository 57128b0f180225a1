"""Each detector check catches a detector that breaks what it is about."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

from skood.base import BaseDetector, UncertaintyDetector
from skood.detectors import MSP
from skood.exceptions import SkoodWarning
from skood.utils import estimator_checks
from skood.utils.estimator_checks import check_detector, yield_detector_checks
from tests._instances import PlainUncertainty


class Good(BaseDetector):
    """Minus the distance to the nearest class mean: keeps all conventions.

    The scores of fit, for the threshold, are to means of the other nine tenths.
    """

    def _fit(self, X, y):
        X = self._validate(X, reset=True)
        scores, part = np.empty(len(X)), np.arange(len(X)) % 10
        for k in range(10):
            self.means_ = self._means(X[part != k], y[part != k])
            scores[part == k] = self._distances(X[part == k])
        self.means_ = self._means(X, y)
        return scores

    def _means(self, X, y):
        return np.stack([X[y == k].mean(axis=0) for k in self.classes_ if k in y])

    def _distances(self, X):
        return -np.linalg.norm(X[:, None] - self.means_, axis=2).min(axis=1)

    def _score(self, X):
        return self._distances(self._validate(X, reset=False))


class HighForOOD(Good):
    def _distances(self, X):
        return -super()._distances(X)


class ScoreKnowsNoLeftOutClasses(Good):
    def score(self, X, y):
        return super().score(X, np.where(y == self.ood_label, y, 0))


class Float32(Good):
    def score_samples(self, X):
        return super().score_samples(X).astype(np.float32)


class Column(Good):
    def decision_function(self, X):
        return super().decision_function(X)[:, None]


class Masked(Good):
    def score_samples(self, X):
        return np.ma.asarray(super().score_samples(X))


class InfiniteFarAway(Good):
    def score_samples(self, X):
        scores = super().score_samples(X)
        return np.where(scores < -15, -np.inf, scores)


class TrueForID(Good):
    def predict(self, X):
        return (super().predict(X) == 1).astype(int)


class FloatLabels(Good):
    def predict(self, X):
        return super().predict(X).astype(float)


class DecisionWithoutThreshold(Good):
    def decision_function(self, X):
        return self.score_samples(X)


class ThresholdOfZero(Good):
    def fit(self, X, y=None):
        super().fit(X, y)
        self.offset_ = 0.0
        return self


class ThresholdOfTheOtherTail(Good):
    def fit(self, X, y=None):
        super().fit(X, y)
        self.offset_ = np.percentile(self.score_samples(X), 100 - self.contamination)
        return self


class AcceptsAll(Good):
    def predict(self, X):
        return np.ones(len(super().predict(X)), dtype=int)


class FewValues(Good):
    def _distances(self, X):
        return np.floor(super()._distances(X) / 4)


class InSampleScores(Good):
    """Its threshold is of samples each of which is its own nearest neighbor."""

    def _fit(self, X, y):
        self.rows_ = self._validate(X, reset=True)
        return self._distances(self.rows_)

    def _distances(self, X):
        return -NearestNeighbors(n_neighbors=1).fit(self.rows_).kneighbors(X)[0][:, 0]


class CenteredBatch(Good):
    def _score(self, X):
        scores = super()._score(X)
        return scores - scores.mean() / 10


class DependsOnPlace(Good):
    def _score(self, X):
        return super()._score(X) - 1e-3 * np.arange(len(X))


class ThresholdAtAScore(Good):
    """Accepts samples at the threshold, whose scores are lower in smaller batches."""

    def fit(self, X, y=None):
        super().fit(X, y)
        level = 100 * self.contamination
        self.offset_ = np.percentile(self.score_samples(X), level, method="higher")
        return self

    def _score(self, X):
        return super()._score(X) * (1 - 1e-12 * len(X))


class KeepsTheFirstStatistics(Good):
    def _fit(self, X, y):
        if not hasattr(self, "_scale"):
            self._scale = np.std(X)
        return super()._fit(X, y)

    def _distances(self, X):
        return super()._distances(X) / self._scale


class LeavesAttributesBehind(Good):
    def _fit(self, X, y):
        if X.shape[1] > 5:
            self._wide = True
        return super()._fit(X, y)


class ForgetsBeforeItLooks(Good):
    def fit(self, X, y=None):
        vars(self).pop("means_", None)
        return super().fit(X, y)


class LearnsBeforeItLooks(Good):
    def fit(self, X, y=None):
        self.offset_ = float(np.nanmean(X))
        return super().fit(X, y)

    def _distances(self, X):
        return super()._distances(X) - self.__dict__.get("offset_", 0)


class WritesOnTheNetwork(MSP):
    def _fit_outputs(self, outputs, y):
        self.estimator_.shift = outputs.logits.mean(axis=0)

    def _score_outputs(self, outputs):
        return super()._score_outputs(outputs) - np.abs(self.estimator_.shift).sum()


class NaNForFewSamples(Good):
    def score_samples(self, X):
        return self._score(X)

    def _distances(self, X):
        scores = super()._distances(X)
        return scores + (0 if X.shape[1] < 12 else np.nan)

    def fit(self, X, y=None):
        self.offset_, self.n_features_in_ = 0.0, np.shape(X)[1]
        self.classes_ = np.unique(y)
        self._fit(X, y)
        return self


class UnhelpfulForFewSamples(Good):
    def _fit(self, X, y):
        if X.shape[1] > len(X):
            raise ValueError("Singular matrix")
        return super()._fit(X, y)


class Overflows(Good):
    def score_samples(self, X):
        with np.errstate(over="ignore"):
            return -np.exp(-super().score_samples(X))


class OverflowsInFit(Good):
    def fit(self, X, y=None):
        super().fit(X, y)
        if np.abs(X).max() > 1e3:
            self.offset_ = -np.inf
        return self


class TakesNaN(Good):
    def _validate(self, X, *, reset):
        return super()._validate(np.nan_to_num(X), reset=reset)


class TakesAnyWidth(Good):
    def _score(self, X):
        X = np.hstack([X, np.zeros((len(X), 5 - X.shape[1]))])
        return super()._score(X)


class TakesAnyContamination(Good):
    def fit(self, X, y=None):
        asked = self.contamination
        self.contamination = min(max(asked, 0.01), 0.5)
        try:
            return super().fit(X, y)
        finally:
            self.contamination = asked


class FitsOODRows(Good):
    def _fit_samples(self, X, y):
        super()._fit_samples(X, y)
        X = self._validate(X, reset=True)
        self.means_ = np.stack([X.mean(axis=0)])
        return self._distances(X)


class OODIsAClass(Good):
    def _fit_samples(self, X, y):
        self.classes_ = np.unique(y)
        return self._fit(X, y)


class FitsOODRowsOnly(Good):
    def fit(self, X, y=None):
        if np.all(np.asarray(y) == self.ood_label):
            y = np.zeros(len(y))
        return super().fit(X, y)


class ReadsLabelsAsNumbers(Good):
    def _distances(self, X):
        return super()._distances(X) - float(self.classes_[-1])


class RanksLabels(Good):
    def _fit(self, X, y):
        self.classes_ = np.arange(len(self.classes_))
        return super()._fit(X, np.unique(y, return_inverse=True)[1])


class LosesItsThreshold(Good):
    def __getstate__(self):
        return {**super().__getstate__(), "offset_": 0.0}


_REGISTRY = {}


class RemembersByIdentity(Good):
    def _fit(self, X, y):
        scores = super()._fit(X, y)
        _REGISTRY[id(self)] = np.mean(scores)
        return scores

    def _score(self, X):
        return super()._score(X) - _REGISTRY.get(id(self), 0)


class CentersInPlace(Good):
    def _fit(self, X, y):
        X -= X.mean(axis=0)
        return super()._fit(X, y)


class SortsLabelsInPlace(Good):
    def fit(self, X, y=None):
        y.setflags(write=True)
        super().fit(X, y)
        y.sort()
        return self


class WritesThroughTheFlag(Good):
    def _score(self, X):
        scores = super()._score(X)
        X.setflags(write=True)
        X[0] = 0
        return scores


BROKEN = [
    ("check_polarity", HighForOOD, "AUROC of ID against far OOD samples is only 0"),
    ("check_polarity", ScoreKnowsNoLeftOutClasses, "No OOD samples"),
    ("check_score_type", Float32, "scores must be float64, got float32"),
    ("check_score_type", Column, r"expected one score per sample, got \(200, 1\)"),
    ("check_score_type", Masked, "scores must be an ndarray, got .*MaskedArray"),
    ("check_score_type", InfiniteFarAway, "scores must be finite"),
    ("check_score_type", TrueForID, r"predict must return \+1 and -1, got \[0"),
    ("check_score_type", FloatLabels, "predict must be int, got float64"),
    ("check_offset", DecisionWithoutThreshold, "Not equal to tolerance"),
    ("check_offset", ThresholdOfTheOtherTail, "offset_ must not fall where contam"),
    ("check_offset", AcceptsAll, "Arrays are not equal"),
    ("check_contamination", ThresholdOfZero, "rejects 1.0000 of new ID samples, as"),
    ("check_contamination", FewValues, "rejects 0.00.. of new ID samples, as"),
    ("check_contamination", InSampleScores, "of new ID.*samples that are left out"),
    ("check_batch_of_one", CenteredBatch, "scoring one by one changed the scores"),
    ("check_batch_of_one", DependsOnPlace, "scoring one by one changed the scores"),
    ("check_ties", ThresholdAtAScore, "predict one by one is not predict of one batch"),
    ("check_refit", KeepsTheFirstStatistics, "A refit changed the scores"),
    ("check_refit", LeavesAttributesBehind, "A refit left attributes behind"),
    (
        "check_failed_fit_keeps_state",
        ForgetsBeforeItLooks,
        "added or removed the attributes {'means_'}",
    ),
    (
        "check_failed_fit_keeps_state",
        LearnsBeforeItLooks,
        "A fit that raised changed the scores",
    ),
    (
        "check_two_detectors_share_a_network",
        WritesOnTheNetwork,
        "A second detector on the same network changed the scores",
    ),
    ("check_few_samples", NaNForFewSamples, "also with fewer samples than features"),
    ("check_few_samples", UnhelpfulForFewSamples, "got: Singular matrix"),
    ("check_large_values", Overflows, "scores must be finite, also for inputs of 1e4"),
    ("check_large_values", OverflowsInFit, "offset_ is -inf"),
    ("check_bad_input", TakesNaN, "Expected ValueError with 'nan', nothing raised"),
    ("check_bad_input", TakesAnyWidth, "with 'features', nothing raised"),
    ("check_bad_input", TakesAnyContamination, "with 'contamination', nothing"),
    ("check_ood_rows_are_left_out", FitsOODRows, "Not equal to tolerance"),
    ("check_ood_rows_are_left_out", OODIsAClass, "Arrays are not equal"),
    ("check_ood_rows_are_left_out", FitsOODRowsOnly, "'ood_label', nothing raised"),
    ("check_label_kinds", ReadsLabelsAsNumbers, "could not convert string to float"),
    ("check_label_kinds", RanksLabels, "Arrays are not equal"),
    ("check_serialization", LosesItsThreshold, "Pickling changed the scores"),
    ("check_serialization", RemembersByIdentity, "Pickling changed the scores"),
    ("check_input_is_kept", CentersInPlace, "read-only"),
    ("check_input_is_kept", SortsLabelsInPlace, "Arrays are not equal"),
    ("check_input_is_kept", WritesThroughTheFlag, "Arrays are not equal"),
]


@pytest.mark.parametrize("check", list(yield_detector_checks()))
def test_good_detector_passes(check):
    check(Good())


@pytest.mark.parametrize(
    "name, broken, says", BROKEN, ids=[broken.__name__ for _, broken, _ in BROKEN]
)
def test_broken_detector_is_caught(name, broken, says):
    check = getattr(estimator_checks, name)
    with pytest.raises((AssertionError, ValueError), match=says):
        check(broken())


def test_every_check_catches_something():
    caught = {name for name, _, _ in BROKEN}
    assert caught == {check.__name__ for check in yield_detector_checks()}


def test_check_of_other_errors():
    """An error of another kind is not taken for the one that was expected."""

    class Unhelpful(Good):
        def _validate(self, X, *, reset):
            if not np.isfinite(X).all():
                raise ValueError("bad data")
            return super()._validate(X, reset=reset)

    with pytest.raises(AssertionError, match="should contain 'nan', got: bad data"):
        estimator_checks.check_bad_input(Unhelpful())

    class Typed(Good):
        def _validate(self, X, *, reset):
            if not np.isfinite(X).all():
                raise TypeError("NaN")
            return super()._validate(X, reset=reset)

    with pytest.raises(TypeError, match="NaN"):
        estimator_checks.check_bad_input(Typed())


def test_helpful_refusal_of_few_samples_is_accepted():
    class Refuses(Good):
        def _fit(self, X, y):
            raise ValueError(f"n_samples={len(X)} is too few")

    estimator_checks.check_few_samples(Refuses())


def test_warnings_of_skood_are_no_failure():
    class Warns(Good):
        def _fit(self, X, y):
            import warnings

            warnings.warn("Few samples.", SkoodWarning, stacklevel=2)
            return super()._fit(X, y)

    with pytest.warns(SkoodWarning):
        Warns().fit(np.eye(3), [0, 1, 2])
    estimator_checks.check_refit(Warns())


def test_detectors_that_read_no_linear_classifier_share_none():
    """Nothing to check for these two: no `estimator`, or one of another kind."""
    estimator_checks.check_two_detectors_share_a_network(Good())
    uncertain = UncertaintyDetector(PlainUncertainty())
    estimator_checks.check_two_detectors_share_a_network(uncertain)


def test_frozen_network_of_a_detector_is_shared():
    X, y, _ = estimator_checks._data()
    own = FrozenEstimator(LogisticRegression().fit(X, y))
    estimator_checks.check_two_detectors_share_a_network(MSP(own))
    with pytest.raises(AssertionError, match="A second detector on the same network"):
        estimator_checks.check_two_detectors_share_a_network(WritesOnTheNetwork(own))
    assert own.shift.shape == (5,)


def test_detector_is_not_fitted_by_the_checks():
    detector = Good(contamination=0.2, ood_label="unknown")
    check_detector(detector)
    assert vars(detector) == {"contamination": 0.2, "ood_label": "unknown"}


def test_expected_failures_are_tolerated_and_must_fail():
    reason = "Its scores are low for ID samples."
    with pytest.raises(AssertionError, match="AUROC"):
        check_detector(HighForOOD())
    check_detector(HighForOOD(), expected_failed_checks={"check_polarity": reason})
    message = rf"check_refit was expected to fail \({reason}\); it passed"
    with pytest.raises(AssertionError, match=message):
        check_detector(Good(), expected_failed_checks={"check_refit": reason})
    # one expected failure does not excuse another
    with pytest.raises(AssertionError, match="AUROC"):
        check_detector(HighForOOD(), expected_failed_checks={"check_offset": reason})


def test_expected_failures_that_are_no_checks():
    with pytest.raises(
        ValueError, match=r"names \['check_poles'\], which are not among"
    ):
        check_detector(Good(), expected_failed_checks={"check_poles": "A typo."})


def test_data_have_a_logit_per_class_and_far_ood_samples():
    X, y, X_ood = estimator_checks._data()
    np.testing.assert_array_equal(X.argmax(axis=1), y)
    assert np.bincount(y).tolist() == [40] * 5
    assert X_ood.max() < X.max(axis=1).min() - 8

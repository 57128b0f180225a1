"""Sample weights of ensembles: calibration scores are repeated by integer weights."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor

from skood.combine import (
    BenjaminiHochberg,
    DetectorEnsemble,
    DOSStorey,
    conformal_pvalues,
)
from skood.detectors import MSP, SSD, Mahalanobis

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
    np.testing.assert_array_equal(weighted.pvalues(NEW), repeated.pvalues(NEW))
    np.testing.assert_array_equal(weighted.levels(NEW), repeated.levels(NEW))
    assert weighted.n_calibration_ == WEIGHT[Y >= 0].sum()
    individual = MEMBERS[0][1].score_samples(X[ROWS][Y[ROWS] >= 0])
    expected = conformal_pvalues(MEMBERS[0][1].score_samples(NEW), individual)
    np.testing.assert_allclose(weighted.pvalues(NEW)[:, 0], expected)


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
    np.testing.assert_allclose(weighted.pvalues(NEW), repeated.pvalues(NEW), rtol=1e-12)
    near = weighted.named_detectors_["near"]
    train = accepted[accepted % 2 == 0]
    expected = Mahalanobis().fit(X[train], Y[train], sample_weight=WEIGHT[train])
    np.testing.assert_allclose(near.location_, expected.location_, rtol=1e-12)


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
    np.testing.assert_array_equal(*pairs)
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

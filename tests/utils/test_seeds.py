"""A meta-estimator's random_state seeds what its parts draw."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from skood.combine import DSDE, DetectorEnsemble
from skood.detectors import KNN
from skood.logic import MLNDetector
from skood.rejection import BoundedAbstention, RejectOptionClassifier
from skood.utils._metaestimators import with_seeds

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = (X[:, 0] + RNG.normal(scale=0.3, size=80) > 0).astype(int)
FOREST = IsolationForest(n_estimators=4)
NET = MLPClassifier((4,), max_iter=3)


def _members(seed=None):
    forest = IsolationForest(n_estimators=2, random_state=seed)
    return [(f"m{i}", forest) for i in range(4)]


def test_only_open_parameters_are_set():
    nested = make_pipeline(KNN(NET, random_state=5))
    frozen = FrozenEstimator(IsolationForest(n_estimators=2).fit(X))
    seeded, same, none = with_seeds([nested, frozen, None], 0)
    assert same is frozen and none is None
    assert frozen.estimator.random_state is None
    params = seeded.get_params()
    assert params["knn__random_state"] == 5
    assert isinstance(params["knn__estimator__random_state"], int)
    assert nested.get_params()["knn__estimator__random_state"] is None
    assert with_seeds([nested], None)[0] is nested
    one, other = with_seeds([FOREST, FOREST], 0)  # not the same draws
    assert one.random_state != other.random_state


@pytest.mark.parametrize("calibration", [0.5, 3])
@pytest.mark.parametrize("kind", [DSDE, DetectorEnsemble])
def test_ensembles(kind, calibration):
    def scores(random_state, seed=None):
        options = {"calibration": calibration, "level": "nominal"}
        return (
            kind(_members(seed), random_state=random_state, **options)
            .fit(X)
            .score_samples(X)
        )

    seeded = scores(0)
    np.testing.assert_array_equal(seeded, scores(0))
    state = np.random.RandomState
    np.testing.assert_array_equal(scores(state(3)), scores(state(3)))
    assert (seeded != scores(1)).any()
    assert (scores(None) != scores(None)).any()


def test_members_keep_their_seeds():
    ensemble = DetectorEnsemble(_members(7), random_state=0, level="nominal").fit(X)
    assert {one.random_state for one in ensemble.named_detectors_.values()} == {7}
    ensemble = DetectorEnsemble(_members(), random_state=0, level="nominal").fit(X)
    assert len({m.random_state for m in ensemble.named_detectors_.values()}) == 4


def test_estimator_of_an_ensemble():
    def scores():
        members = [("a", KNN(n_neighbors=2)), ("b", KNN(n_neighbors=5))]
        ensemble = DetectorEnsemble(
            members, estimator=NET, level="nominal", random_state=0
        )
        return ensemble.fit(X, Y).score_samples(X)

    np.testing.assert_array_equal(scores(), scores())


@pytest.mark.parametrize("rule", [BoundedAbstention(0.7), None])
@pytest.mark.parametrize("calibration", [0.4, 3])
def test_reject_option_classifier(calibration, rule):
    def fit(random_state):
        return RejectOptionClassifier(
            RandomForestClassifier(4, max_depth=3),
            ood_detector=FOREST,
            rule=rule,
            calibration=calibration,
            random_state=random_state,
        ).fit(X, Y)

    def numbers(clf):
        scores = clf.ood_detector_.score_samples(X)
        return np.column_stack([clf.predict_proba(X), clf.accept_proba(X), scores])

    seeded = numbers(fit(0))
    np.testing.assert_array_equal(seeded, numbers(fit(0)))
    assert (seeded != numbers(fit(1))).any()
    assert fit(None).estimator_.random_state is None


def test_logic_detector():
    def scores():
        forest = RandomForestClassifier(3, max_depth=2)
        detector = MLNDetector(
            ["class = class"], [("class", forest)], FOREST, random_state=0
        )
        return detector.fit(X, Y).score_samples(X)

    np.testing.assert_array_equal(scores(), scores())

"""DSDE with parameters of its combiner, as published, and libraries of members."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skood.combine import (
    DSDE,
    DetectorEnsemble,
    DOSStorey,
    conformal_pvalues,
    detector_library,
)
from skood.detectors import KNN, MSP, Energy
from skood.nn import FeatureExtractor
from tests.combine._members import frozen_columns, quiet


def _samples(m, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(200, m)), rng.normal(size=(300, m)) - np.arange(m) % 2


@pytest.mark.parametrize("m", [7, 18])
@pytest.mark.parametrize("params", [{}, {"c_m": 2 / 15, "beta": 0.5}])
def test_published_ensemble_rejects_by_the_statistic_of_ecdf_pvalues(m, params):
    X, X_new = _samples(m)
    dsde = DSDE.as_published(frozen_columns(m), calibration="same", **params)
    P = conformal_pvalues(X_new, X, method="ecdf")
    combiner = DOSStorey(**{"c_m": 2 / 7, "beta": 1.0, **params})
    q = combiner.statistic(P)
    assert_array_equal(dsde.fit(X).levels(X_new), q)
    assert_array_equal(dsde.predict(X_new) == -1, q <= 0.05)
    assert 0.05 < np.mean(q <= 0.05) < 0.95
    by_hand = DetectorEnsemble(
        frozen_columns(m), combiner, method="ecdf", level="nominal", calibration="same"
    )
    assert_array_equal(by_hand.fit(X).score_samples(X_new), dsde.score_samples(X_new))


@pytest.mark.parametrize("params", [{"c_m": 0.4}, {"beta": 0.5}, {"c_m": 1 / 3}])
def test_parameters_are_of_the_combiner(params):
    X, X_new = _samples(9)
    options = {"calibration": "same", "level": "nominal"}
    dsde = DSDE(frozen_columns(9), **params, **options)
    assert hasattr(dsde, "pi0")
    assert clone(dsde).get_params()["c_m"] == params.get("c_m")
    other = DetectorEnsemble(frozen_columns(9), DOSStorey(**params), **options).fit(X)
    assert_array_equal(dsde.fit(X).levels(X_new), other.levels(X_new))
    assert dsde.combiner_.get_params() == other.combiner_.get_params()
    plain = DSDE(frozen_columns(9), **options).fit(X)
    assert np.any(plain.levels(X_new) != dsde.levels(X_new))


def test_another_combiner_is_of_another_class():
    assert {"combiner"} == DetectorEnsemble([]).get_params(False).keys() - set(
        DSDE([]).get_params(False)
    )
    with pytest.raises(ValueError, match="Invalid parameter 'combiner' for estimator"):
        DSDE(frozen_columns(7)).set_params(combiner__beta=0.5)


@pytest.mark.parametrize(
    "params", [{"c_m": 0.6}, {"c_m": 0}, {"beta": 0.4}, {"beta": "1"}]
)
def test_parameter_out_of_its_range(params):
    (name,) = params
    with pytest.raises(ValueError, match=f"'{name}' parameter of DSDE must be"):
        DSDE(frozen_columns(7), **params).fit(_samples(7)[0])


def test_share_without_a_change_point():
    X, _ = _samples(3)
    with pytest.raises(ValueError, match="c_m"):
        DSDE.as_published(frozen_columns(3), c_m=0.5, calibration="same").fit(X)
    with pytest.raises(TypeError, match="level"):
        DSDE.as_published(frozen_columns(7), level="conformal")


def test_parameters_of_the_combiner_are_searched():
    X, X_new = _samples(9)
    y = np.zeros(len(X))
    search = GridSearchCV(
        DSDE.as_published(frozen_columns(9), calibration="same"),
        {"c_m": [2 / 9, 1 / 3], "beta": [0.5, 1.0]},
        scoring=lambda dsde, X, y: float(np.mean(dsde.levels(X_new))),
        cv=2,
    )
    scores = quiet(search.fit, X, y).cv_results_["mean_test_score"]
    assert len(np.unique(scores)) == 4


def test_names_of_a_library():
    def names(detectors, nets):
        return [name for name, _ in detector_library(detectors, nets)]

    linear, forest = LogisticRegression(), RandomForestClassifier()
    assert names(KNN(), [linear, forest]) == [
        "logisticregression",
        "randomforestclassifier",
    ]
    frozen = FrozenEstimator(LogisticRegression().fit([[0], [1]], [0, 1]))
    assert names(KNN(), [linear, forest, frozen]) == [
        "logisticregression-1",
        "randomforestclassifier",
        "logisticregression-2",
    ]
    assert names([KNN(), KNN(n_neighbors=2), MSP()], {"a": linear, "b": forest}) == [
        *("knn-1_a", "knn-1_b", "knn-2_a", "knn-2_b", "msp_a", "msp_b")
    ]
    assert names({"near": KNN(), "far": MSP()}, {"a": linear}) == ["near_a", "far_a"]
    assert names([KNN()], {"a": linear}) == ["knn_a"]


def test_library_has_clones_on_the_networks():
    X, y = _samples(4)[0], np.arange(200) % 2
    nets = {
        name: FrozenEstimator(LogisticRegression(C=C).fit(X, y))
        for name, C in (("a", 1e-3), ("b", 1.0), ("c", 10.0), ("d", 1e3))
    }
    knn = KNN(n_neighbors=50)
    library = detector_library(knn, nets)
    assert knn.estimator is None
    assert [member.n_neighbors for _, member in library] == [50] * 4
    assert len({id(member) for _, member in library}) == 4
    for name, member in detector_library([knn, Energy()], nets):
        assert member.estimator is nets[name.split("_")[1]]  # one forward pass each
    by_hand = [(name, KNN(net, n_neighbors=50)) for name, net in nets.items()]
    dsde = DSDE(library, level="nominal", random_state=0).fit(X)
    other = DSDE(by_hand, level="nominal", random_state=0).fit(X)
    assert_array_equal(dsde.pvalues(X), other.pvalues(X))


@pytest.mark.parametrize(
    "detector",
    [
        IsolationForest(),
        make_pipeline(FeatureExtractor(LogisticRegression()), KNN()),
        KNN(LogisticRegression()),
        [MSP(), KNN(FrozenEstimator(LogisticRegression()))],
        {"a": StandardScaler()},
        KNN,
        "drop",
    ],
)
def test_detector_without_a_free_estimator(detector):
    with pytest.raises(ValueError, match="needs a parameter estimator that is None"):
        detector_library(detector, [LogisticRegression()])

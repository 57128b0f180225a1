"""Tests of the predictions that a report has beside scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge

from skood.benchmark._compare import PREDICTED, misclassified, predictor
from skood.detectors import KNN, MSP, Energy, Mahalanobis

RNG = np.random.RandomState(0)
X = RNG.normal(size=(90, 3))
Y = np.array(["b", "c", "a"])[np.arange(90) % 3]
X[:, 0] += 2 * (np.arange(90) % 3)
NET = LogisticRegression().fit(X, Y)
OTHER = LogisticRegression(C=0.01).fit(X, Y)


@pytest.mark.parametrize("net", [NET, LogisticRegression().fit(X, Y == "a")])
def test_predictions_are_those_of_the_classifier(net):
    y = Y if net is NET else Y == "a"
    arguments = {"knn": KNN(), "msp": MSP(FrozenEstimator(net))}
    (actual,) = predictor(arguments, y).items()
    assert actual[0] == PREDICTED
    columns = actual[1].score_samples(X)
    assert columns.dtype == np.float64
    wrong = net.predict(X) != y
    assert 0 < wrong.sum() < len(X)
    assert_array_equal(misclassified(actual[1], columns, y), wrong)


def test_single_classifier_predicts():
    net, other = FrozenEstimator(NET), FrozenEstimator(OTHER)
    assert predictor({"a": MSP(net), "b": Energy(net)}, Y)
    assert not predictor({"a": MSP(net), "b": Energy(other)}, Y)
    assert not predictor({"a": MSP(NET), "b": KNN()}, Y)  # fitted by the detector
    assert predictor({"a": FrozenEstimator(MSP(net).fit(X, Y))}, Y)
    regressor = FrozenEstimator(Ridge().fit(X, np.arange(90)))
    reads = Mahalanobis()
    reads.estimator = regressor
    assert not predictor({"a": reads}, Y)


@pytest.mark.parametrize("y", [None, np.arange(90), np.column_stack([Y, Y])])
def test_classes_that_it_does_not_know(y):
    assert not predictor({"a": MSP(FrozenEstimator(NET))}, y)


def test_there_is_nothing_to_fit():
    (member,) = predictor({"a": MSP(FrozenEstimator(NET))}, Y).values()
    unfitted = member.estimator
    assert unfitted.fit(X, Y) is unfitted

"""Classifiers of several columns of y: what reads classes refuses them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator

from skood.epistemic import HMC, QUAM, DeepEnsemble
from skood.evidential import EvidentialClassifier
from skood.nn import MultiHeadClassifier
from skood.rejection import RejectOptionClassifier

X = np.random.RandomState(0).normal(size=(60, 3))
Y = (X[:, :2] > 0).astype(int)  # two classes each: the lists make a square array


@pytest.mark.parametrize("kind", [HMC, QUAM, RejectOptionClassifier])
def test_frozen_classifier_of_several_columns(kind):
    clf = MultiHeadClassifier(max_epochs=1, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="was fitted on several columns of y"):
        kind(FrozenEstimator(clf)).fit(X, Y[:, 0])


@pytest.mark.parametrize(
    "estimator",
    [
        DeepEnsemble(MultiHeadClassifier(max_epochs=1)),
        DeepEnsemble(RandomForestClassifier(2)),
        EvidentialClassifier(MultiHeadClassifier(max_epochs=1)),
    ],
)
def test_labels_of_several_columns(estimator):
    with pytest.raises(ValueError, match="was fitted on several columns of y"):
        estimator.fit(X, Y)

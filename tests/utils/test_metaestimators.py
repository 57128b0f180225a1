"""Tests of looking through wrappers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from skood.utils._metaestimators import (
    check_one_column,
    copy_input_attributes,
    unwrapped,
)


def test_searches_and_frozen_estimators_in_each_other():
    X, y = np.arange(20.0).reshape(-1, 1), np.arange(20) % 2
    search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2).fit(X, y)
    best = search.best_estimator_
    frozen = FrozenEstimator(search)
    for wrapped in (best, search, frozen, FrozenEstimator(frozen)):
        assert unwrapped(wrapped) is best
    unfitted = GridSearchCV(LogisticRegression(), {"C": [1.0]})
    assert unwrapped(unfitted) is unfitted


def test_input_attributes_that_there_are():
    owner = SimpleNamespace()
    copy_input_attributes(owner, SimpleNamespace(n_features_in_=3, other_=1))
    assert vars(owner) == {"n_features_in_": 3}
    names = np.array(["a"], dtype=object)
    copy_input_attributes(owner, SimpleNamespace(feature_names_in_=names))
    assert owner.feature_names_in_ is names and owner.n_features_in_ == 3


def test_classes_of_several_columns():
    labels = np.arange(3)
    for classes in (labels, [0, 1], ["a", "b"], None):
        check_one_column(SimpleNamespace(classes_=classes))
    check_one_column(SimpleNamespace())
    forest = RandomForestClassifier(2).fit(np.eye(4), [[0, 1], [1, 0], [0, 2], [1, 1]])
    for several in (forest, FrozenEstimator(forest)):
        with pytest.raises(
            ValueError,
            match="This RandomForestClassifier was fitted on several columns",
        ):
            check_one_column(several)

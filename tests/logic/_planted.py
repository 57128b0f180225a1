"""Concepts with a planted rule, read by classifiers that need no training."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator

from skood.base import BaseDetector
from skood.logic import (
    ConstraintSearch,
    GreedySearch,
    MLNDetector,
    WeightedConstraints,
)
from skood.logic.search._constraint_search import split_samples
from tests.logic._signs import with_parts

NAMES = ["a", "b", "c", "d"]


class Column(ClassifierMixin, BaseEstimator):
    """Reads a concept off the sign of a column; it is born fitted."""

    def __init__(self, column, values=(False, True)):
        self.column = column
        self.values = values

    @property
    def classes_(self):
        return np.array(self.values)

    def __sklearn_is_fitted__(self):
        return True

    def fit(self, X, y=None):
        return self

    def predict(self, X):
        return self.classes_[(np.asarray(X)[:, self.column] > 0).astype(int)]

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-2 * np.asarray(X)[:, self.column]))
        return np.stack([1 - p, p], axis=1)


class LastColumn(BaseDetector):
    """A detector that sees a little; it is born fitted."""

    offset_ = 0.0

    def __sklearn_is_fitted__(self):
        return True

    def fit(self, X, y=None):
        return self

    def _fit(self, X, y):
        raise NotImplementedError

    def _score(self, X):
        return np.asarray(X)[:, -1]


def planted_data(n_id=600, n_ood=400, seed=0):
    """ID rows obey a -> b, and c is like d in most; OOD rows do not."""
    rng = np.random.default_rng(seed)
    y = rng.random((n_id + n_ood, 4)) < [0.5, 0.6, 0.5, 0.3]
    y[:n_id, 1] |= y[:n_id, 0] & (rng.random(n_id) < 0.95)
    y[:n_id, 2] = y[:n_id, 3] ^ (rng.random(n_id) < 0.2)
    is_ood = np.arange(len(y)) >= n_id
    X = np.column_stack(
        [np.where(y, 1.0, -1.0), rng.normal(size=len(y)) - 0.5 * is_ood]
    )
    X[:, :4] += rng.normal(scale=0.3, size=y.shape)
    order = rng.permutation(len(y))
    labels = y.astype(object)
    labels[is_ood] = -1
    return X[order], labels[order]


def planted_detector(detector=True, **params):
    concepts = [(name, FrozenEstimator(Column(j))) for j, name in enumerate(NAMES)]
    params = {"calibration": "same", "normalizer": "empirical", **params}
    params = with_parts(params.pop("constraints", []), **params)
    one = FrozenEstimator(LastColumn()) if detector else None
    return MLNDetector(concepts=concepts, detector=one, **params)


def planted_search(detector=None, *, random_state=0, **params):
    """A search; parameters of its greedy search are among the others."""
    names = ("order", "n_refits", "min_improvement", "max_constraints", "prune")
    options = {name: params.pop(name) for name in names if name in params}
    return ConstraintSearch(
        planted_detector() if detector is None else detector,
        search=GreedySearch(**options),
        random_state=random_state,
        **params,
    )


def rows_of(y, seed, validation=0.2, test=0.2):
    is_ood = (y == -1).any(axis=1)
    return split_samples(
        np.flatnonzero(~is_ood),
        np.flatnonzero(is_ood),
        validation,
        test,
        np.random.RandomState(seed),
        keep_ood=False,
    )


def naive_auroc(mln, constraints, X, y, rows):
    """Fit a detector of these constraints from scratch, and score validation rows."""
    detector = clone(mln).set_params(random_state=0)
    given = isinstance(mln.constraints, WeightedConstraints)
    name = "constraints__constraints" if given else "constraints"
    detector.set_params(**{name: constraints})
    detector.fit(X[rows.train], y[rows.train])
    return detector.score(X[rows.validation], y[rows.validation])

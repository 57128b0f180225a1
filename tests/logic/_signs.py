"""Signs as vectors: columns say how much a sign is a stop sign, red, an octagon."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from skood.logic import ConceptFusion, LogicDetector, MLNDetector, WeightedConstraints

NAMES = ["class", "color", "shape"]
RULES = [
    "class = stop_sign -> color = red and shape = octagon",
    "class = yield -> shape = triangle",
]

_VALUES = (["other", "stop_sign", "yield"], ["blue", "red"], ["octagon", "triangle"])
_KNOWN = np.array(
    [
        ["stop_sign", "red", "octagon"],
        ["yield", "red", "triangle"],
        ["yield", "blue", "triangle"],
        ["other", "blue", "octagon"],
        ["other", "red", "triangle"],
    ]
)


class Column(ClassifierMixin, BaseEstimator):
    """A classifier that reads one column: its values are the codes of classes.

    Parameters
    ----------
    column : int
        The column.

    C : float, default=1.0
        No effect; to be set.
    """

    def __init__(self, column=0, C=1.0):
        self.column = column
        self.C = C

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        X = np.asarray(X, dtype=np.float64)
        if np.isnan(X).any():
            raise ValueError("Input X contains NaN.")
        gaps = -np.abs(X[:, [self.column]] - np.arange(len(self.classes_))) * 4
        p = np.exp(gaps)
        return p / p.sum(axis=1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def columns():
    """One reader for each concept."""
    return [(name, Column(j)) for j, name in enumerate(NAMES)]


def signs(n=300, n_ood=0, noise=0.1, seed=0):
    """Signs that obey the rules, and OOD signs that break them, labeled -1.

    Returns
    -------
    X : ndarray of shape (n + n_ood, 3)
        Codes of the values, with noise.

    y : ndarray of shape (n + n_ood, 3)
        The values; -1 for OOD signs.
    """
    rng = np.random.default_rng(seed)
    y = _KNOWN[rng.integers(len(_KNOWN), size=n)]
    wrong = np.array([["stop_sign", "blue", "octagon"], ["yield", "red", "octagon"]])
    shown = np.concatenate([y, wrong[rng.integers(2, size=n_ood)]])
    codes = [
        np.searchsorted(values, column)
        for values, column in zip(_VALUES, shown.T, strict=True)
    ]
    X = np.stack(codes, axis=1) + noise * rng.normal(size=shown.shape)
    labels = shown.astype(object)
    labels[n:] = -1
    return X, labels


def holds(rule, sign):
    """Return whether a sign obeys one of the `RULES`."""
    class_, color, shape = sign
    if rule == RULES[0]:
        return class_ != "stop_sign" or (color == "red" and shape == "octagon")
    return class_ != "yield" or shape == "triangle"


def with_parts(constraints, *, weights=None, prior=1.0, **params):
    """Parameters of an MLNDetector, with options of its parts in parts."""
    if weights is not None or prior != 1.0:
        constraints = WeightedConstraints(constraints, weights=weights, prior=prior)
    options = {key: params.pop(key) for key in ("gamma", "normalizer") if key in params}
    if options:
        params["fusion"] = ConceptFusion(params.pop("fusion", "log"), **options)
    return {"constraints": constraints, **params}


def mln(constraints=RULES, detector=None, **params):
    """A detector with one reader for each concept."""
    params = {"random_state": 0, **with_parts(constraints, **params)}
    return MLNDetector(concepts=columns(), detector=detector, **params)


def logic(constraints=RULES, detector=None, **params):
    """The strict one."""
    params = {"random_state": 0, **params}
    return LogicDetector(constraints, columns(), detector, **params)


def linear():
    """Linear classifiers in place of readers."""
    return [(name, LogisticRegression()) for name in NAMES]

"""Misclassified samples of the classifier used by the detectors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.frozen import FrozenEstimator

from skood.nn._make_network import make_network
from skood.nn._shared_forward import _uses
from skood.utils._array_api import to_host

#: Name of the predictor of classes among detectors; reserved.
PREDICTED = ""


class _Predictions(BaseEstimator):
    """Index of the predicted class as a score: it shares forward pass and cache."""

    _reads: ClassVar[frozenset] = frozenset({"logits"})

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y=None):
        """Do nothing."""
        return self

    def score_samples(self, X):
        """Return the column of the largest logit."""
        parts = make_network(self.estimator).iter_outputs(X, self._reads)
        columns = [np.argmax(to_host(part.logits), axis=1) for part in parts]
        return np.concatenate(columns).astype(np.float64)


def predictor(detectors, y):
    """Return a predictor of classes: a dict with at most one FrozenEstimator.

    It is present if all detectors with a frozen classifier use the same one, and its
    classes include some of `y`, the classes of the ID samples.
    """
    networks = {
        id(use.network): use.network
        for detector in detectors.values()
        for use in _uses(detector)
    }
    known = [n for n in networks.values() if is_classifier(n) and _knows(n, y)]
    if len(known) != 1:
        return {}
    return {PREDICTED: FrozenEstimator(_Predictions(FrozenEstimator(known[0])))}


def _knows(network, y):
    """Return whether the classes of a classifier are among the classes in y."""
    classes = getattr(network, "classes_", None)
    if classes is None or y is None or y.ndim != 1:
        return False
    return bool(np.isin(y, classes).any())


def wrong_rows(predicting, columns, y):
    """Return a mask of misclassified samples, from the scores of a `predictor`."""
    classes = predicting.estimator.estimator.classes_
    return np.asarray(classes)[columns.astype(int)] != y

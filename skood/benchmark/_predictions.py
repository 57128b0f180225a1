"""Which rows the classifier that detectors read gets wrong."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.frozen import FrozenEstimator

from skood.nn._shared_forward import _uses
from skood.nn._sklearn_network import make_reader
from skood.utils._array_api import to_host

__all__ = ["PREDICTED", "predictor", "wrong_rows"]

#: Name, among detectors, of what predicts classes; no detector has it.
PREDICTED = ""


class _Predictions(BaseEstimator):
    """The number of the predicted class, in the place of a score.

    So predictions are read with the same forward pass as scores, and kept as they are.

    Parameters
    ----------
    estimator : FrozenEstimator
        The classifier.
    """

    _reads: ClassVar[frozenset] = frozenset({"logits"})

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y=None):
        """There is nothing to fit."""
        return self

    def score_samples(self, X):
        """Return the column of the largest logit."""
        parts = make_reader(self.estimator).iter_read(X, self._reads)
        columns = [np.argmax(to_host(part.logits), axis=1) for part in parts]
        return np.concatenate(columns).astype(np.float64)


def predictor(detectors, y):
    """Return what predicts the classes of rows.

    Parameters
    ----------
    detectors : dict of str to object
        The detectors of a comparison.

    y : ndarray or None
        Classes of the ID rows.

    Returns
    -------
    predictor : dict of str to FrozenEstimator
        One member with the name `PREDICTED`, if all detectors that read a frozen
        classifier read the same one, and it knows some of the classes; else none.
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
    """Whether the classes of a classifier are of those in y."""
    classes = getattr(network, "classes_", None)
    if classes is None or y is None or y.ndim != 1:
        return False
    return bool(np.isin(y, classes).any())


def wrong_rows(predicting, columns, y):
    """Tell which rows get another class than theirs.

    Parameters
    ----------
    predicting : FrozenEstimator
        As `predictor` returns it.

    columns : ndarray of shape (n_rows,)
        Its scores of the rows.

    y : ndarray of shape (n_rows,)
        Their classes.

    Returns
    -------
    wrong : ndarray of shape (n_rows,), dtype bool
        True for errors.
    """
    classes = predicting.estimator.estimator.classes_
    return np.asarray(classes)[columns.astype(int)] != y

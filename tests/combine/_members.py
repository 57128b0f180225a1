"""Detectors whose scores are known, and ensembles of them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator

from skood.combine import DetectorEnsemble
from skood.exceptions import SkoodWarning


class Column(BaseEstimator):
    """The score is a column of X, whatever it is fitted on."""

    def __init__(self, column=0, ood_label=-1):
        self.column = column
        self.ood_label = ood_label

    def fit(self, X, y=None):
        """Remember how many rows there were."""
        self.n_rows_ = len(X)
        self.n_features_in_ = np.shape(X)[1]
        return self

    def score_samples(self, X):
        """Return the column."""
        return np.asarray(X)[:, self.column]


def frozen_columns(m):
    """Members that read the m columns of X."""
    return [
        (f"c{j}", FrozenEstimator(Column(j).fit(np.zeros((1, m))))) for j in range(m)
    ]


def equicorrelated(rng, n, m, rho):
    """Rows of m standard normal scores with correlation rho."""
    shared = rng.normal(size=(n, 1))
    return np.sqrt(rho) * shared + np.sqrt(1 - rho) * rng.normal(size=(n, m))


def frozen_ensemble(m, combiner=None, **options):
    """Return an ensemble of the m columns of X that is calibrated on all samples."""
    return DetectorEnsemble(frozen_columns(m), combiner, calibration="same", **options)


def quiet(function, *args):
    """Call a function without warnings of skood."""
    with warnings.catch_warnings(action="ignore", category=SkoodWarning):
        return function(*args)

"""Explanations of scores by feature contributions, as a data frame."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from skood.nn._make_network import make_network
from skood.utils._input import takes_input
from skood.utils._metaestimators import unwrapped
from skood.utils._pandas import import_pandas

if TYPE_CHECKING:
    from skood.detectors._common._base_output_detector import (
        ReadingDetector as _Detector,
    )
else:
    _Detector = object

__all__ = ["ExplainMixin"]


class ExplainMixin(_Detector):
    """Mixin for detectors whose score is a sum over features.

    A subclass implements ``_explained(reading)``, for samples in NumPy arrays: columns
    that describe the reference of each sample, and the contribution of each feature.
    """

    @abstractmethod
    def _explained(self, reading):
        """Return a dict of columns, and contributions (n_samples, n_features)."""

    @takes_input
    def explain(self, X, *, n_features=3):
        """Explain the score of each sample by its reference and feature contributions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        n_features : int, default=3
            Number of features to report, with the largest contributions first.

        Returns
        -------
        explanation : pandas.DataFrame
            One row per sample, with the index of `X` if it is a data frame: the
            columns ``score`` and ``is_ood``, the columns of each detector described in
            the :ref:`User Guide <explanations>`, and ``feature_1``,
            ``contribution_1``, …: a feature (its name, or its index if the features
            have no names) and its contribution to the squared distance.

        Raises
        ------
        ImportError
            If pandas is not installed.

        ValueError
            If `n_features` is negative or more than the number of features.

        NotFittedError
            If the detector is not fitted.
        """
        return self._explain(X, n_features)

    def _explain(self, X, n_features, **options):
        """Return the data frame; `options` are passed to ``_explained``."""
        check_is_fitted(self, "offset_")
        check_scalar(n_features, "n_features", Integral, min_val=0)
        pd = import_pandas("explain")
        reading = self._read_all(X, validated=False)
        frames = [
            pd.DataFrame(
                self._columns(reading.rows(rows).to(None), n_features, options)
            )
            for rows in self._chunks(reading)
        ]
        frame = pd.concat(frames, ignore_index=True)
        scores = self._score_rows(reading)
        frame.insert(0, "score", scores)
        frame.insert(1, "is_ood", scores < self.offset_)
        if hasattr(X, "iloc"):
            frame.index = X.index
        return frame

    def _columns(self, reading, n_features, options):
        """Return the columns that explain a chunk of samples."""
        columns, contributions = self._explained(reading, **options)
        if n_features > contributions.shape[1]:
            raise ValueError(
                f"n_features={n_features}, but there are only "
                f"{contributions.shape[1]} features."
            )
        # the largest first, ties in the order of the features
        order = np.argsort(-contributions, axis=1, kind="stable")[:, :n_features]
        names = self._feature_names(contributions.shape[1])
        values = np.take_along_axis(contributions, order, axis=1)
        for j in range(n_features):
            columns[f"feature_{j + 1}"] = names[order[:, j]]
            columns[f"contribution_{j + 1}"] = values[:, j]
        return columns

    def _feature_names(self, n_features):
        """Return the names of the features, or indices if they have no names."""
        names = getattr(self, "feature_names_in_", None)
        if names is not None and self.estimator is not None:
            names = _names_of_features(self.estimator_, names)
        return np.arange(n_features) if names is None else names


def _names_of_features(estimator, names):
    """Return the names of the features of a classifier without layers."""
    estimator = unwrapped(estimator)
    steps = getattr(estimator, "steps", None)
    if not isinstance(steps, list):
        return names if make_network(estimator).features_are_rows else None
    if len(steps) > 1:
        if not hasattr(estimator[:-1], "get_feature_names_out"):
            return None
        names = estimator[:-1].get_feature_names_out(names)
    return _names_of_features(steps[-1][1], names)

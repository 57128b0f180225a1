"""Say what a score is made of, as a data frame."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from skood.nn._sklearn_network import make_reader
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
    """Mixin of detectors whose score is a sum over features.

    A subclass implements ``_explained(reading)``, for rows in NumPy arrays: columns
    that say what a row was compared with, and the share of each feature.
    """

    @abstractmethod
    def _explained(self, reading):
        """Return a dict of columns, and contributions (n_samples, n_features)."""

    @takes_input
    def explain(self, X, *, n_features=3):
        """Say what each sample was compared with, and which features count most.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        n_features : int, default=3
            How many features to name, those with the largest contributions first.

        Returns
        -------
        explanation : pandas.DataFrame
            One row per sample, with the index of `X` if it is a data frame: the
            columns ``score`` and ``is_ood``, those that are described in the
            :ref:`User Guide <explanations>` for each detector, and ``feature_1``,
            ``contribution_1``, …: a feature (its name, or its index where the
            features have none) and its part of the squared distance.

        Raises
        ------
        ImportError
            If pandas is not installed.

        ValueError
            If `n_features` is not a number of features.

        NotFittedError
            If the detector is not fitted.
        """
        return self._explain(X, n_features)

    def _explain(self, X, n_features, **options):
        """Explain; `options` are handed to ``_explained``."""
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
        """Columns that explain a chunk of rows."""
        columns, contributions = self._explained(reading, **options)
        if n_features > contributions.shape[1]:
            raise ValueError(
                f"n_features={n_features}, but there are only "
                f"{contributions.shape[1]} features."
            )
        # the largest first, equal ones in the order of the features
        order = np.argsort(-contributions, axis=1, kind="stable")[:, :n_features]
        names = self._feature_names(contributions.shape[1])
        values = np.take_along_axis(contributions, order, axis=1)
        for j in range(n_features):
            columns[f"feature_{j + 1}"] = names[order[:, j]]
            columns[f"contribution_{j + 1}"] = values[:, j]
        return columns

    def _feature_names(self, n_features):
        """Names of the features that are compared, or numbers where there are none."""
        names = getattr(self, "feature_names_in_", None)
        if names is not None and self.estimator is not None:
            names = _names_of_features(self.estimator_, names)
        return np.arange(n_features) if names is None else names


def _names_of_features(estimator, names):
    """Names of what a classifier is given, if it has no layers; through pipelines."""
    estimator = unwrapped(estimator)
    steps = getattr(estimator, "steps", None)
    if not isinstance(steps, list):
        return names if make_reader(estimator).features_are_rows else None
    if len(steps) > 1:
        if not hasattr(estimator[:-1], "get_feature_names_out"):
            return None
        names = estimator[:-1].get_feature_names_out(names)
    return _names_of_features(steps[-1][1], names)

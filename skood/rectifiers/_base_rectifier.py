"""Base class of rectifiers: transformers of the features that detectors use."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from skood.utils._array_api import all_finite
from skood.utils._atomic_fit import fresh_fit
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import new_samples, takes_input
from skood.utils._labels import check_id_mask, check_labels
from skood.utils._linalg import check_no_overflow
from skood.utils._parallel import map_chunks
from skood.utils._param_validation import fit_context
from skood.utils._torch import row_chunks, to_numpy
from skood.utils._weights import check_weight

# Size of the chunks of samples, which stay in the cache of the processor.
_CHUNK_BYTES = 2**20


def known_mask(y, X, ood_label, weight=None):
    """Return a mask of the ID samples, of shape (n_samples,), or None if all are.

    Samples of weight zero are excluded.
    """
    if y is None and weight is None:
        return None
    is_id = np.ones(len(X), dtype=bool) if weight is None else weight > 0
    if y is not None:
        y = check_labels(y)
        check_consistent_length(X, y)
        is_id &= check_id_mask(y, ood_label)
        if not is_id.any():
            raise ValueError(
                "The sample weights of all ID samples are zero: only samples with "
                f"ood_label={ood_label!r} have a weight. Give ID samples a positive "
                "sample_weight."
            )
    return None if is_id.all() else is_id


class BaseRectifier(
    OneToOneFeatureMixin, TransformerMixin, SkoodEstimator, metaclass=ABCMeta
):
    """Base class of rectifiers, which preserve the number of features and the dtype.

    A subclass implements ``_rectify(Z, out)``, which must not modify `Z`, the same as
    ``_rectified(Z)`` for tensors on a GPU, and, if it has parameters to learn,
    ``_learn(X, y, weight)``.
    """

    _parameter_constraints: dict = {}

    # Whether rectified features are finite if the features are.
    _keeps_finite: ClassVar[bool] = False

    _rectified: Callable

    @fit_context(
        # A head that a rectifier wraps validates itself.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y=None, sample_weight=None):
        """Learn from training features.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            Features.

        y : array-like of shape (n_samples,), default=None
            Class labels. Rectifiers with an `ood_label` leave samples of that label
            out; others ignore `y`.

        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights; integers equal repeated samples. Rectifiers that do
            not learn ignore them.

        Returns
        -------
        self : object
            The fitted rectifier.
        """
        with fresh_fit(self):
            X = self._validated(X, reset=True)
            self._learn(X, y, check_weight(sample_weight, len(X)))
        return self

    def _learn(self, X, y, weight):
        """Learn from validated features; do nothing unless overridden."""

    @takes_input
    def transform(self, X):
        """Rectify features.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            Features.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_features)
            Rectified features: float32 if `X` is, else float64. Samples are
            transformed independently.

        Raises
        ------
        ValueError
            If `X` is invalid, or rectified features overflow.
        """
        if "n_features_in_" not in vars(self):  # for the speed of small calls
            check_is_fitted(self)
        X = self._validated(X, reset=False)
        out = np.empty(X.shape, dtype=X.dtype)

        def rectify(chunk):
            self._rectify(X[chunk], out[chunk])
            # while it is in the cache
            return self._keeps_finite or all_finite(out[chunk])

        chunks = list(row_chunks(len(X), X[0].nbytes, budget=_CHUNK_BYTES))
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            is_finite = map_chunks(rectify, chunks)
        if not all(is_finite):
            check_no_overflow(out, "A rectified feature")
        return out

    def _transform_tensor(self, Z):
        """Return rectified features of a tensor, where it is; errors of `transform`."""
        Z = Z.detach()
        Z = Z if "float64" in str(Z.dtype) else Z.float()
        if len(Z) and Z.shape[1:] == (getattr(self, "n_features_in_", 0),):
            out = self._rectified(Z)
            is_valid = Z.isfinite().all() & out.isfinite().all()
            if get_tags(self).input_tags.positive_only:
                is_valid &= Z.min() >= 0
            if is_valid:  # one wait
                return out
        return self.transform(Z)

    @abstractmethod
    def _rectify(self, Z, out):
        """Write rectified features to `out`; shape (n_samples, n_features) as `Z`."""

    def _validated(self, X, *, reset):
        """Validate features: finite, two-dimensional, float32 or float64."""
        X = to_numpy(X)
        if not reset:
            return new_samples(self, X)
        return validate_data(self, X, dtype=[np.float64, np.float32])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

"""Meta-transformer that is fitted on ID samples only."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from sklearn.base import TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skood.utils._atomic_fit import fresh_fit
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import takes_input
from skood.utils._labels import check_id_mask, check_label_columns
from skood.utils._metaestimators import (
    check_given,
    copy_input_attributes,
    n_rows,
    take_rows,
    wrapped_tags,
)
from skood.utils._param_validation import HasMethods, fit_context
from skood.utils._routing import router_of, weight_params
from skood.utils._weights import check_weight, row_weight


def _transformer_has(name):
    """Return a check that the transformer has a method, fitted or not."""

    def check(self):
        getattr(getattr(self, "transformer_", self.transformer), name)
        return True

    return check


class IDOnly(TransformerMixin, SkoodEstimator):
    """Fit a transformer on the in-distribution (ID) samples only.

    Detectors and classifiers of skood exclude samples labeled `ood_label` from their
    fits. The steps before them in a :class:`~sklearn.pipeline.Pipeline` do not: a
    scaler uses the mean and the standard deviation of all samples, an encoder includes
    the categories of OOD samples. In this wrapper such a step is fitted on the ID
    samples, and transforms all samples.

    Read more in the :ref:`User Guide <id_only>`.

    Parameters
    ----------
    transformer : object
        A transformer, or a pipeline of them. It is cloned and fitted, unless it is in
        a :class:`~sklearn.frozen.FrozenEstimator`.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``.

    Attributes
    ----------
    transformer_ : object
        The fitted transformer.

    n_features_in_ : int
        Number of features seen in fit, if the transformer has it.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if the transformer has them.

    See Also
    --------
    OODStratifiedKFold : With ``ood_in_train=False`` no step is fitted on OOD samples.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skood.model_selection import IDOnly
    >>> X, y = np.array([[0.0], [2.0], [100.0]]), np.array([0, 1, -1])
    >>> IDOnly(StandardScaler()).fit(X, y).transform(X)
    array([[-1.],
           [ 1.],
           [99.]])
    """

    _parameter_constraints: dict = {
        "transformer": [HasMethods(["fit", "transform"])],
        "ood_label": [Integral, str],
    }

    def __init__(self, transformer, *, ood_label=-1):
        self.transformer = transformer
        self.ood_label = ood_label

    @fit_context(
        # The transformer is validated by its own fit.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y=None, sample_weight=None):
        """Fit the transformer on the ID samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training data.

        y : array-like of shape (n_samples,), default=None
            Class labels; samples labeled `ood_label` are excluded. None: all samples
            are ID.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights; the ones of OOD samples are excluded. They are passed on to a
            transformer that takes them, or requests them if metadata routing is
            enabled; others are fitted on the samples of positive weight.

        Returns
        -------
        self : object
            The fitted transformer.

        Raises
        ------
        ValueError
            If there are only OOD samples, or weights are invalid.
        """
        check_given(X)
        with fresh_fit(self):
            weight = check_weight(sample_weight, n_rows(X))
            is_used = np.ones(1, dtype=bool) if weight is None else weight > 0
            if y is not None:
                check_consistent_length(X, y)
                is_used = is_used & check_id_mask(
                    check_label_columns(y), self.ood_label
                )
                if not is_used.any():
                    raise ValueError(
                        "The sample weights of all ID samples are zero: only samples "
                        f"with ood_label={self.ood_label!r} have a weight. Give ID "
                        "samples a positive sample_weight."
                    )
            if not is_used.all():
                used = np.flatnonzero(is_used)
                X, y = take_rows(X, used), None if y is None else take_rows(y, used)
                weight = row_weight(weight, used)
            params = weight_params(
                self, "transformer", self.transformer, weight, required=False
            )
            self.transformer_ = clone(self.transformer).fit(X, y, **params)
            copy_input_attributes(self, self.transformer_)
        return self

    def get_metadata_routing(self):
        """Return how ``sample_weight`` is passed on, if metadata routing is enabled.

        Returns
        -------
        routing : MetadataRouter
            The request of the estimator, and the routing to the transformer.
        """
        parts = {"transformer": self.transformer}
        return router_of(self, super().get_metadata_routing(), parts)

    @takes_input
    def transform(self, X):
        """Transform ID and OOD samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        Z : {ndarray, sparse matrix} of shape (n_samples, n_features_out)
            The transformed samples.
        """
        check_is_fitted(self, "transformer_")
        return self.transformer_.transform(X)

    @available_if(_transformer_has("inverse_transform"))
    @takes_input
    def inverse_transform(self, X):
        """Apply the inverse transform.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_out)
            Transformed samples.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            The samples.
        """
        check_is_fitted(self, "transformer_")
        return self.transformer_.inverse_transform(X)

    @available_if(_transformer_has("get_feature_names_out"))
    def get_feature_names_out(self, input_features=None):
        """Return the names of the features after the transform.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features of `X`.

        Returns
        -------
        names : ndarray of str
            The names.
        """
        check_is_fitted(self, "transformer_")
        return self.transformer_.get_feature_names_out(input_features)

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.transformer)
        inner = get_tags(self.transformer)
        tags.target_tags = inner.target_tags
        if inner.transformer_tags is not None:
            tags.transformer_tags = inner.transformer_tags
        return tags

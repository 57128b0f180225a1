"""DICE: sparsification of the weights of a linear head."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from skood.nn._linear_head import LinearHead
from skood.nn._logits import LogitsMixin
from skood.nn._outputs import linear_logits
from skood.rectifiers._base_rectifier import known_mask
from skood.rectifiers._rectified_head import fit_head
from skood.utils._atomic_fit import fresh_fit
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import takes_input
from skood.utils._metaestimators import wrapped_tags
from skood.utils._param_validation import Classifier, Interval, fit_context
from skood.utils._routing import router_of
from skood.utils._torch import row_chunks, to_numpy
from skood.utils._weights import check_weight


def _mean_row(X, mask, weight):
    """Return the mean of the chosen rows (None: all rows), summed in float64."""
    if weight is not None:
        weight = weight if mask is None else weight * mask
        parts = row_chunks(len(X), X[0].nbytes, budget=2**20)
        return sum(weight[block] @ X[block] for block in parts) / weight.sum()
    total = np.zeros(X.shape[1])
    for block in row_chunks(len(X), X[0].nbytes, budget=2**20):
        chunk = X[block] if mask is None else X[block][mask[block]]
        total += chunk.sum(axis=0, dtype=np.float64)
    return total / (len(X) if mask is None else np.count_nonzero(mask))


class DICE(LogitsMixin, ClassifierMixin, SkoodEstimator):
    r"""Directed sparsification (DICE) [1]_: a linear head with sparse weights.

    .. math:: l(z) = (M \odot W) z + b, \qquad
        M_{kj} = 1 \text{ if } V_{kj} > q, \text{ else } 0, \qquad
        V_{kj} = W_{kj} \, \bar z_j

    :math:`V_{kj}` is the mean contribution of feature j to logit k over the ID training
    samples, and q the `sparsity` quantile of all entries of V. It is a classifier: pass
    it to a detector as `estimator`.

    Features of mean zero, as after a :class:`~sklearn.preprocessing.StandardScaler`,
    have zero contributions, so that the mask depends on rounding only: use the output
    of a ReLU without centering.

    Read more in the :ref:`User Guide <rectifiers>`.

    Parameters
    ----------
    estimator : object, default=None
        A linear classifier of `X`, such as the head from :func:`skood.nn.split`;
        cloned and fitted unless it is in a :class:`~sklearn.frozen.FrozenEstimator`.
        None: a :class:`~skood.nn.LinearHead` is fitted on ``(X, y)``.

    sparsity : float, default=0.9
        Fraction p of the weights to set to zero, in [0, 1). 0 retains all.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
        The remaining weights, zero elsewhere.

    intercept_ : ndarray of shape (n_classes,)
        Biases.

    classes_ : ndarray of shape (n_classes,)
        Class labels, without `ood_label`.

    mask_ : ndarray of shape (n_classes, n_features), dtype bool
        Mask of the remaining weights.

    estimator_ : object
        The fitted linear classifier.

    n_features_in_ : int
        Number of features.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they are all strings.

    See Also
    --------
    ReAct : Rectifies the features instead; both can be combined.

    References
    ----------
    .. [1] Y. Sun and Y. Li. "DICE: Leveraging sparsification for out-of-distribution
       detection". ECCV 2022.

    Examples
    --------
    >>> from sklearn.frozen import FrozenEstimator
    >>> from skood.detectors import Energy
    >>> from skood.nn import LinearHead
    >>> from skood.rectifiers import DICE
    >>> head = FrozenEstimator(LinearHead([[3.0, 1.0], [-1.0, 2.0]]))
    >>> Z = [[2.0, 1.0], [1.0, 3.0]]
    >>> DICE(head, sparsity=0.5).fit(Z).coef_
    array([[3., 0.],
           [0., 2.]])
    >>> detector = Energy(estimator=DICE(head, sparsity=0.5)).fit(Z)
    >>> detector.score_samples(Z).round(2)
    array([6.02, 6.05])
    """

    _parameter_constraints: dict = {
        "estimator": [Classifier(), None],
        "sparsity": [Interval(Real, 0, 1, closed="left")],
        "ood_label": [Integral, str],
    }

    def __init__(self, estimator=None, *, sparsity=0.9, ood_label=-1):
        self.estimator = estimator
        self.sparsity = sparsity
        self.ood_label = ood_label

    @fit_context(
        # The wrapped classifier validates itself.
        prefer_skip_nested_validation=False
    )
    def fit(self, X, y=None, sample_weight=None):
        """Fit the linear classifier, unless it is frozen, and mask its weights.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            Features.

        y : array-like of shape (n_samples,), default=None
            Class labels; samples of `ood_label` are left out. Not needed if `estimator`
            is frozen.

        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights, of the classifier and of the mean contributions;
            integers equal repeated samples.

        Returns
        -------
        self : object
            The fitted classifier.

        Raises
        ------
        ValueError
            If the estimator is no linear classifier of `X`, or no weight remains.
        """
        with fresh_fit(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X, y, sample_weight):
        estimator = LinearHead() if self.estimator is None else self.estimator
        X = self._validated(X, reset=True)
        weight = check_weight(sample_weight, len(X))
        mask = known_mask(y, X, self.ood_label, weight)
        self.estimator_, head = fit_head(self, estimator, X, y, mask, weight)
        contribution = head.coef * _mean_row(X, mask, weight)
        self.mask_ = np.ones(contribution.shape, dtype=bool)
        if self.sparsity > 0:
            self.mask_ = contribution > np.quantile(contribution, self.sparsity)
        if not self.mask_.any():
            raise ValueError(
                f"DICE has no weight left: at sparsity={self.sparsity} no contribution "
                f"is above the quantile, which is their maximum, "
                f"{contribution.max():.3g}. Use a lower sparsity, or features that "
                "vary in their mean."
            )
        self.coef_ = np.where(self.mask_, head.coef, 0).astype(head.coef.dtype)
        self.intercept_ = np.array(head.intercept)
        self.classes_ = np.asarray(self.estimator_.classes_)

    def get_metadata_routing(self):
        """Return how ``sample_weight`` is passed on, if metadata routing is enabled.

        Returns
        -------
        routing : MetadataRouter or MetadataRequest
            The request of the estimator, and the routing to its classifier.
        """
        parts = {} if self.estimator is None else {"estimator": self.estimator}
        return router_of(self, super().get_metadata_routing(), parts)

    @takes_input
    def predict_logits(self, X):
        """Return the logits of each class.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, n_features)
            Features.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes)
            ``X @ coef_.T + intercept_``, in the precision of `X`.

        Raises
        ------
        ValueError
            If `X` is invalid, or a logit overflows.
        """
        check_is_fitted(self, "coef_")
        X = self._validated(X, reset=False)
        return linear_logits(X, self.coef_, self.intercept_)

    def _validated(self, X, *, reset):
        return validate_data(
            self, to_numpy(X), dtype=[np.float64, np.float32], reset=reset
        )

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        tags.input_tags.sparse = False
        return tags

"""Logit scaling (LTS)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from sklearn.utils import get_tags

from skood.rectifiers._base_rectifier import BaseRectifier, known_mask
from skood.rectifiers._rectified_head import fit_head
from skood.rectifiers._top_activations import (
    largest,
    n_largest,
    scale_samples,
    scaled_tensor,
    sorts_faster,
    totals,
)
from skood.utils._array_api import asarray_like, numpy_dtype
from skood.utils._param_validation import Classifier, Interval
from skood.utils._routing import router_of
from skood.utils._warnings import warn


class LTS(BaseRectifier):
    r"""Logit scaling (LTS) [1]_: scale the logits by a ratio of sums of features.

    .. math:: S(z) = \left( \frac{\sum_j \max(z_j, 0)}
        {\sum_{j \in \text{top } k} \max(z_j, 0)} \right)^2, \qquad
        z \mapsto u + S(z) \, (z - u)

    where k is the fraction `top` of the d features: :math:`d - \operatorname{round}(d
    (1
    - \text{top}))`, at least one. The paper multiplies the logits :math:`l = W z + b`
    by :math:`S(z)`:

    - With ``estimator=head``, u is the shortest vector with :math:`W u + b = 0`, so
      that the logits of the transformed features are exactly :math:`S(z) \, l(z)`.
    - With ``estimator=None``, :math:`u = 0`. The logits are :math:`S(z) W z + b`, which
      differ from the paper's by :math:`(S(z) - 1) \, b`, hence not at all without a
      bias.

    A sample without a positive feature has :math:`S(z) = 1`.

    Read more in the :ref:`User Guide <rectifiers>`.

    Parameters
    ----------
    estimator : object, default=None
        The linear head of the features, as in a detector's `estimator`; cloned and
        fitted unless it is in a :class:`~sklearn.frozen.FrozenEstimator`.

    top : float, default=0.05
        Fraction of the features of each sample in the sum of the largest, in (0, 1].

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit of the head.

    Attributes
    ----------
    origin_ : ndarray of shape (n_features,)
        The fixed point u of the transformation.

    estimator_ : object
        The fitted head, if there is one.

    n_features_in_ : int
        Number of features.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they are all strings.

    See Also
    --------
    SCALE : Scales non-negative features by the exponential of the ratio.

    Notes
    -----
    The paper has no max with 0; the authors' code and pytorch-ood have it. It makes a
    difference only for features that can be negative.

    References
    ----------
    .. [1] A. Djurisic, R. Liu and M. Nikolic. "Logit scaling for out-of-distribution
       detection". Machine Vision and Applications, 2025.

    Examples
    --------
    >>> from skood.nn import LinearHead
    >>> from sklearn.frozen import FrozenEstimator
    >>> from skood.rectifiers import LTS
    >>> Z = [[1.0, 4.0, 0.0, 3.0]]
    >>> LTS(top=0.5).fit_transform(Z).round(2)  # times (8 / 7) ** 2
    array([[1.31, 5.22, 0.  , 3.92]])
    >>> head = FrozenEstimator(LinearHead([[1, 0, 0, 0], [0, 1, 1, 0]], [1, 3]))
    >>> head.predict_logits(Z)
    array([[2., 7.]])
    >>> head.predict_logits(LTS(head, top=0.5).fit_transform(Z)).round(2)
    array([[2.61, 9.14]])
    """

    _parameter_constraints: dict = {
        "estimator": [Classifier(), None],
        "top": [Interval(Real, 0, 1, closed="right")],
        "ood_label": [Integral, str],
    }

    def __init__(self, estimator=None, *, top=0.05, ood_label=-1):
        self.estimator = estimator
        self.top = top
        self.ood_label = ood_label

    def _learn(self, X, y, weight):
        self._by_sorting = sorts_faster(X)
        self.origin_ = np.zeros(X.shape[1])
        if self.estimator is None:
            return
        mask = known_mask(y, X, self.ood_label, weight)
        self.estimator_, head = fit_head(self, self.estimator, X, y, mask, weight)
        self.origin_ = head.origin
        rest = np.abs(head.coef @ self.origin_ + head.intercept).max()
        if rest > 1e-3 * np.abs(head.intercept).max():
            warn(
                f"The logits of the head are not all zero anywhere: where they are "
                f"smallest, one is {rest:.3g}, because the {head.coef.shape[0]} rows "
                "of its weights are linearly dependent. LTS does not scale that part "
                "of the biases. Use a head whose rows are linearly independent, hence "
                "with no more classes than features."
            )

    def get_metadata_routing(self):
        """Return how ``sample_weight`` is passed on, if metadata routing is enabled.

        Returns
        -------
        routing : MetadataRouter or MetadataRequest
            The request of the estimator, and the routing to its classifier.
        """
        parts = {} if self.estimator is None else {"estimator": self.estimator}
        return router_of(self, super().get_metadata_routing(), parts)

    def _rectified(self, Z):
        k = n_largest(Z.shape[1], 1.0 - self.top)
        origin = asarray_like(self.origin_.astype(numpy_dtype(Z)), Z)
        return scaled_tensor(Z, k, lambda ratio: ratio**2, Z - origin) + origin

    def _rectify(self, Z, out):
        positive = Z if Z.min() >= 0 else np.maximum(Z, 0)
        k = n_largest(Z.shape[1], 1.0 - self.top)
        _, top = largest(positive, k, self._by_sorting)
        total = totals(positive)
        factor = np.square(np.where(top > 0, total / np.where(top > 0, top, 1.0), 1.0))
        if self.estimator is None:  # the origin is zero
            scale_samples(self, Z, factor, np.abs(Z).max(axis=1), out)
            return
        origin = self.origin_.astype(Z.dtype)
        np.subtract(Z, origin, out=out)
        scale_samples(self, out, factor, np.abs(out).max(axis=1), out)
        out += origin

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            tags.target_tags.required = get_tags(self.estimator).target_tags.required
        return tags

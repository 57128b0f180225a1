"""Variational rectified activation (VRA)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skood.rectifiers._base_rectifier import BaseRectifier, known_mask
from skood.rectifiers._quantiles import column_quantiles, pooled_quantile
from skood.utils._array_api import asarray_like, numpy_dtype
from skood.utils._param_validation import Interval, StrOptions


class VRA(BaseRectifier):
    r"""Variational rectified activation (VRA) [1]_: truncate both tails.

    .. math:: z_j \mapsto \begin{cases}
        0 & z_j < a_j \\ z_j & a_j \le z_j \le b_j \\ b_j & z_j > b_j
        \end{cases}

    where :math:`a_j` and :math:`b_j` are a low and a high quantile of feature j over
    the ID training samples.

    Read more in the :ref:`User Guide <rectifiers>`.

    Parameters
    ----------
    low : float, default=0.1
        Quantile :math:`a_j`, in [0, 1]. The authors choose from 0.5 to 0.7.

    high : float, default=0.9
        Quantile :math:`b_j`, in [0, 1], not below `low`.

    below : {"zero", "clip"}, default="zero"
        Value of features below :math:`a_j`: 0, as in the paper and the authors' code,
        or :math:`a_j`. If features can be negative, "zero" increases the lowest ones.

    per_feature : bool, default=True
        Whether each feature has its own thresholds. False: one pair for all, from all
        activations together.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    low_ : ndarray of shape (n_features,)
        The thresholds :math:`a_j`.

    high_ : ndarray of shape (n_features,)
        The thresholds :math:`b_j`.

    n_features_in_ : int
        Number of features.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they are all strings.

    See Also
    --------
    ReAct : Clips high activations only, with one threshold.

    Notes
    -----
    As here, the authors' code has thresholds per feature and sets features below them
    to zero. pytorch-ood clips (``below="clip"``, with ``low=0.01, high=0.99``); OpenOOD
    clips as well and has one pair of thresholds (``per_feature=False``).

    References
    ----------
    .. [1] M. Xu, Z. Lian, B. Liu and J. Tao. "VRA: Variational rectified activation
       for out-of-distribution detection". NeurIPS 2023.

    Examples
    --------
    >>> from skood.rectifiers import VRA
    >>> Z = [[1.0], [2.0], [3.0], [4.0], [5.0]]
    >>> VRA(low=0.25, high=0.75).fit_transform(Z).ravel()
    array([0., 2., 3., 4., 4.])
    >>> VRA(low=0.25, high=0.75, below="clip").fit_transform(Z).ravel()
    array([2., 2., 3., 4., 4.])
    """

    _parameter_constraints: dict = {
        "low": [Interval(Real, 0, 1, closed="both")],
        "high": [Interval(Real, 0, 1, closed="both")],
        "below": [StrOptions({"zero", "clip"})],
        "per_feature": ["boolean"],
        "ood_label": [Integral, str],
    }

    _keeps_finite: ClassVar[bool] = True

    def __init__(
        self, *, low=0.1, high=0.9, below="zero", per_feature=True, ood_label=-1
    ):
        self.low = low
        self.high = high
        self.below = below
        self.per_feature = per_feature
        self.ood_label = ood_label

    def _learn(self, X, y, weight):
        if self.low > self.high:
            raise ValueError(
                f"low={self.low} is above high={self.high}. Both are quantiles: pass "
                "a low one that is at most the high one."
            )
        mask = known_mask(y, X, self.ood_label, weight)
        both = (self.low, self.high)
        if self.per_feature:
            self.low_, self.high_ = column_quantiles(X, both, mask, weight)
        else:
            self.low_, self.high_ = (
                np.full(X.shape[1], pooled_quantile(X, quantile, mask, weight))
                for quantile in both
            )

    def _rectified(self, Z):
        bounds = self.low_, self.high_
        low, high = (asarray_like(b.astype(numpy_dtype(Z)), Z) for b in bounds)
        if self.below == "clip":
            return Z.maximum(low).minimum(high)
        return Z.minimum(high).where(Z >= low, 0.0)

    def _rectify(self, Z, out):
        low, high = self.low_.astype(Z.dtype), self.high_.astype(Z.dtype)
        if self.below == "clip":
            np.maximum(Z, low, out=out)  # twice as fast as clip
            np.minimum(out, high, out=out)
        else:
            np.minimum(Z, high, out=out)
            np.copyto(out, 0.0, where=Z < low)

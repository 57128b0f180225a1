"""Rectified activations (ReAct)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skood.rectifiers._base_rectifier import BaseRectifier, known_mask
from skood.rectifiers._quantiles import pooled_quantile
from skood.utils._param_validation import Interval


class ReAct(BaseRectifier):
    r"""Rectified activations (ReAct) [1]_: clip high activations.

    .. math:: z_j \mapsto \min(z_j, c)

    with one threshold c for all features: the quantile of all activations of all ID
    training samples. It is exact, and computed without sorting or copying them.

    Read more in the :ref:`User Guide <rectifiers>`.

    Parameters
    ----------
    quantile : float, default=0.9
        Fraction of the training activations below the threshold c, in [0, 1].

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    threshold_ : float
        The threshold c.

    n_features_in_ : int
        Number of features.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they are all strings.

    See Also
    --------
    VRA : Also truncates low activations, with thresholds for each feature.

    References
    ----------
    .. [1] Y. Sun, C. Guo and Y. Li. "ReAct: Out-of-distribution detection with
       rectified activations". NeurIPS 2021.

    Examples
    --------
    >>> from skood.rectifiers import ReAct
    >>> Z = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    >>> react = ReAct(quantile=0.5).fit(Z)
    >>> react.threshold_
    3.5
    >>> react.transform([[0.5, 7.0]])
    array([[0.5, 3.5]])
    """

    _parameter_constraints: dict = {
        "quantile": [Interval(Real, 0, 1, closed="both")],
        "ood_label": [Integral, str],
    }

    _keeps_finite: ClassVar[bool] = True

    def __init__(self, *, quantile=0.9, ood_label=-1):
        self.quantile = quantile
        self.ood_label = ood_label

    def _learn(self, X, y, weight):
        mask = known_mask(y, X, self.ood_label, weight)
        self.threshold_ = pooled_quantile(X, self.quantile, mask, weight)

    def _rectified(self, Z):
        return Z.clamp(max=self.threshold_)

    def _rectify(self, Z, out):
        np.minimum(Z, Z.dtype.type(self.threshold_), out=out)

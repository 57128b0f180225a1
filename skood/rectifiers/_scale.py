"""Activation scaling (SCALE)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np

from skood.rectifiers._top_activations import (
    ShapingRectifier,
    largest,
    scale_samples,
    scaled_tensor,
    totals,
)
from skood.utils._param_validation import Interval


class SCALE(ShapingRectifier):
    r"""Activation scaling (SCALE) [1]_: scale each sample without pruning.

    .. math:: z \mapsto z \, e^{s_1 / s_2}, \qquad s_1 = \sum_j z_j

    where :math:`s_2` is the sum of the :math:`k = d - \operatorname{round}(d \cdot
    \text{percentile} / 100)` largest of the d features, at least one. The factor is
    between :math:`e` and :math:`e^{d/k}`; it decreases with the fraction of the sum in
    the largest features. A sample with all features zero is unchanged.

    Features must be non-negative, as a sum of activations of both signs does not
    measure their magnitude, and could be zero. Negative features raise a
    ``ValueError``.

    Read more in the :ref:`User Guide <rectifiers>`.

    Parameters
    ----------
    percentile : float, default=85
        Fraction of the features of each sample that is not among the largest, in
        percent, in [0, 100).

    Attributes
    ----------
    n_features_in_ : int
        Number of features.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they are all strings.

    See Also
    --------
    ASH : Also prunes.
    LTS : Scales the logits by a power of the same ratio.

    References
    ----------
    .. [1] K. Xu, R. Chen, G. Franchi and A. Yao. "Scaling for training time and
       post-hoc out-of-distribution detection enhancement". ICLR 2024.

    Examples
    --------
    >>> from skood.rectifiers import SCALE
    >>> Z = [[1.0, 4.0, 0.0, 3.0]]  # the factor is exp(8 / 7)
    >>> SCALE(percentile=50).fit_transform(Z).round(2)
    array([[ 3.14, 12.54,  0.  ,  9.41]])
    """

    _parameter_constraints: dict = {
        **ShapingRectifier._parameter_constraints,
        "percentile": [Interval(Real, 0, 100, closed="left")],
    }

    def __init__(self, *, percentile=85):
        self.percentile = percentile

    def _rectified(self, Z):
        return scaled_tensor(Z, self._n_retained(Z), lambda ratio: ratio.exp(), Z)

    def _rectify(self, Z, out):
        _, retained = largest(Z, self._n_retained(Z), self._by_sorting)
        total = totals(Z)
        with np.errstate(over="ignore"):
            factor = np.exp(total / np.where(retained > 0, retained, 1.0))
        scale_samples(self, Z, factor, total, out)

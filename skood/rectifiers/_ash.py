"""Activation shaping (ASH)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np

from skood.rectifiers._top_activations import (
    ShapingRectifier,
    largest,
    scale_samples,
    scaled_tensor,
    survivors,
    totals,
)
from skood.utils._param_validation import Interval, StrOptions


class ASH(ShapingRectifier):
    r"""Activation shaping (ASH) [1]_: prune the low activations of each sample.

    Of the d features of a sample, the :math:`k = d - \operatorname{round}(d \cdot
    \text{percentile} / 100)` largest, at least one, are kept; the others become 0. With
    the sum :math:`s_1` of the features before pruning and :math:`s_2` after it, a
    feature that is kept becomes

    .. math:: z_j \mapsto z_j \, e^{s_1 / s_2} \;(\text{ASH-S}), \qquad
        z_j \mapsto s_1 / k \;(\text{ASH-B}), \qquad
        z_j \mapsto z_j \;(\text{ASH-P})

    Features must be non-negative. Among equal features, the features with the lowest
    indices are kept, so that exactly k are. Zeros are never kept: if fewer than k
    features are positive, these are kept, and k in ASH-B is their number. A sample with
    all features zero is unchanged.

    Read more in the :ref:`User Guide <rectifiers>`.

    Parameters
    ----------
    percentile : float, default=65
        Fraction of the features of each sample to prune, in percent, in [0, 100).

    variant : {"s", "b", "p"}, default="s"
        Transformation of the features that are kept: scaled, set to one value
        ("binarized") or unchanged.

    Attributes
    ----------
    n_features_in_ : int
        Number of features.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if they are all strings.

    See Also
    --------
    SCALE : Scales without pruning.
    LTS : Scales the logits.

    Notes
    -----
    In the authors' code and in pytorch-ood, ``torch.topk`` chooses among equal
    features. If fewer than k features are positive, ASH-B there also sets arbitrary
    zeros to :math:`s_1 / k`, up to k features. If k features are positive and distinct,
    the results are the same.

    References
    ----------
    .. [1] A. Djurisic, N. Bozanic, A. Ashok and R. Liu. "Extremely simple activation
       shaping for out-of-distribution detection". ICLR 2023.

    Examples
    --------
    >>> from skood.rectifiers import ASH
    >>> Z = [[1.0, 4.0, 0.0, 3.0]]
    >>> ASH(percentile=50, variant="p").fit_transform(Z)
    array([[0., 4., 0., 3.]])
    >>> ASH(percentile=50, variant="b").fit_transform(Z)
    array([[0., 4., 0., 4.]])
    """

    _parameter_constraints: dict = {
        **ShapingRectifier._parameter_constraints,
        "percentile": [Interval(Real, 0, 100, closed="left")],
        "variant": [StrOptions({"s", "b", "p"})],
    }

    def __init__(self, *, percentile=65, variant="s"):
        self.percentile = percentile
        self.variant = variant

    def _rectified(self, Z):
        k = self._n_retained(Z)
        order = Z.argsort(dim=1, descending=True, stable=True)[:, :k]
        out = Z.new_zeros(Z.shape).scatter(1, order, Z.gather(1, order))
        if self.variant == "s":
            return scaled_tensor(Z, k, lambda ratio: ratio.exp(), out)
        if self.variant == "b":
            fraction = Z.double().sum(dim=1) / (out > 0).sum(dim=1).clamp(min=1)
            return (out > 0) * fraction.to(Z.dtype)[:, None]
        return out

    def _rectify(self, Z, out):
        k = self._n_retained(Z)
        threshold, retained = largest(Z, k, self._by_sorting)
        keep = survivors(Z, k, threshold)
        if self.variant == "b":
            fraction = totals(Z) / np.maximum(np.count_nonzero(keep, axis=1), 1)
            np.multiply(keep, fraction.astype(out.dtype)[:, None], out=out)
            return
        out[...] = keep  # faster than a product of floats and booleans
        out *= Z
        if self.variant == "s":
            total = totals(Z)
            with np.errstate(over="ignore"):
                factor = np.exp(total / np.where(retained > 0, retained, 1.0))
            scale_samples(self, out, factor, total, out)

"""Activation shaping."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np

from skood.rectifiers._top_activations import (
    ShapingRectifier,
    largest,
    scale_rows,
    survivors,
)
from skood.utils._param_validation import Interval, StrOptions

__all__ = ["ASH"]


class ASH(ShapingRectifier):
    r"""Activation shaping (ASH) [1]_: prunes the low activations of each sample.

    Of the d features of a row, the :math:`k = d - \operatorname{round}(d \cdot
    \text{percentile} / 100)` largest survive, at least one; the others become 0.
    With the sum :math:`s_1` of the row before and :math:`s_2` after pruning, a
    survivor becomes

    .. math:: z_j \mapsto z_j \, e^{s_1 / s_2} \;(\text{ASH-S}), \qquad
        z_j \mapsto s_1 / k \;(\text{ASH-B}), \qquad
        z_j \mapsto z_j \;(\text{ASH-P})

    Features must not be negative. Of equal features those with the lowest index
    survive, so that exactly k do. Zeros never survive: if fewer than k features are
    positive, these survive, and k in ASH-B is their number. A row of zeros stays one.

    Read more in the :ref:`User Guide <rectifiers>`.

    Parameters
    ----------
    percentile : float, default=65
        Share of the features of each row to prune, in percent, in [0, 100).

    variant : {"s", "b", "p"}, default="s"
        What happens to the survivors: they are scaled, made equal ("binarized") or
        left as they are.

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
    The authors' code, and pytorch-ood's, let ``torch.topk`` choose among equal
    features. In ASH-B it also sets as many of the zeros as are missing to k to
    :math:`s_1 / k`, and which is arbitrary. Where k features are positive and
    distinct, the results are the same.

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

    def _rectify(self, Z, out):
        k = self._n_kept(Z)
        threshold, kept = largest(Z, k)
        keep = survivors(Z, k, threshold)
        if self.variant == "b":
            total = Z.sum(axis=1, dtype=np.float64)
            share = total / np.maximum(np.count_nonzero(keep, axis=1), 1)
            np.multiply(keep, share.astype(out.dtype)[:, None], out=out)
            return
        np.multiply(Z, keep, out=out)
        if self.variant == "s":
            total = Z.sum(axis=1, dtype=np.float64)
            with np.errstate(over="ignore"):
                factor = np.exp(total / np.where(kept > 0, kept, 1.0))
            scale_rows(self, out, factor, total, out)

"""Generalized entropy (GEN)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real
from typing import ClassVar

import numpy as np

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._softmax import (
    log_sum_exp,
    shifted_exponentials,
    without_largest,
)
from skood.utils._array_api import array_namespace, row_sums, top_k
from skood.utils._param_validation import Interval


class GEN(OutputDetector):
    r"""Generalized entropy of the largest probabilities (GEN) [1]_.

    .. math:: s(x) = -\sum_{j=1}^{M} p_{(j)}^\gamma \, (1 - p_{(j)})^\gamma

    with the probabilities :math:`p_{(1)} \ge p_{(2)} \ge \dots` of the softmax. A
    small :math:`\gamma` increases the weight of small probabilities; `top` leaves out
    the tail of many classes, which is noise then.

    The terms are powers of :math:`\log p` and :math:`\log (1 - p)`, the latter from
    the sum of the other probabilities: nothing is clipped, and confident samples are
    ranked even if :math:`p` or :math:`1 - p` is below the smallest float.

    Read more in the :ref:`User Guide <detectors_logits>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose logits are used; cloned and fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds logits.

    gamma : float, default=0.1
        Exponent :math:`\gamma > 0`.

    top : int, default=100
        Number M of the largest probabilities; all if there are fewer classes.

    device : str, default="auto"
        Where scores are computed: "auto" is CUDA for large arrays if there is one,
        else the CPU. A network runs on the device of its classifier.

    contamination : float, default=0.05
        Fraction of new ID samples to reject. With more than 5,000 training samples
        the threshold is estimated from 5,000, drawn with a fixed seed.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Entropy : Shannon's entropy.
    MSP : Uses the largest probability only.

    Notes
    -----
    pytorch-ood takes the mean of the terms instead of their sum, and clips
    probabilities at 1e-7.

    References
    ----------
    .. [1] X. Liu, Y. Lochman and C. Zach. "GEN: Pushing the limits of softmax-based
       out-of-distribution detection". CVPR 2023.

    Examples
    --------
    >>> from skood.detectors import GEN
    >>> logits = [[0.0, 0.0], [5.0, 0.0], [30.0, 0.0]]
    >>> GEN().fit(logits).score_samples(logits).round(3)
    array([-1.741, -1.211, -0.1  ])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "top": [Interval(Integral, 1, None, closed="left")],
    }

    _needs: ClassVar[frozenset] = frozenset({"logits"})
    _learns: ClassVar[bool] = False

    def __init__(
        self,
        estimator=None,
        *,
        gamma=0.1,
        top=100,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.gamma = gamma
        self.top = top

    def _score_outputs(self, outputs):
        xp = outputs.xp
        # With e_j = exp(l_j - max l), S the sum of the others and Z = 1 + S:
        # p_j (1 - p_j) = e_j (Z - e_j) / Z², and S / Z² for the largest.
        exponentials, others, shifted = shifted_exponentials(outputs.logits)
        shifted = without_largest(shifted)
        log_square = 2.0 * xp.log1p(others)
        largest = _log_others(others, shifted) - log_square
        total = xp.exp(self.gamma * largest)
        n_others = min(self.top, shifted.shape[1]) - 1
        if n_others > 0:
            if n_others < shifted.shape[1] - 1:
                shifted = top_k(shifted, n_others)
                exponentials = xp.exp(shifted)
            terms = (1.0 + others)[:, None] - exponentials
            xp.log(terms, out=terms)
            terms += shifted
            terms -= log_square[:, None]
            terms *= self.gamma
            xp.exp(terms, out=terms)
            total += row_sums(terms)
        return -total

    def _onnx_score(self, outputs):
        _, others, shifted, is_top = outputs.shifted_exponentials()
        log_square = others.log1p() * 2.0
        rest = outputs.constant(outputs.far_below).where(shifted, is_top)
        total = ((rest.logsumexp() - log_square) * self.gamma).apply("Exp")
        n_others = min(self.top, outputs.n_classes) - 1
        if n_others > 0:
            largest = rest.largest(n_others)
            terms = (
                (others + 1.0 - largest.apply("Exp")).apply("Log")
                + largest
                - log_square
            )
            total = total + (terms * self.gamma).apply("Exp").sum()
        return -total


def _log_others(others, shifted):
    """Return log(sum of all exponentials except the largest), even if it underflows."""
    xp = array_namespace(others)
    lost = others < np.finfo(np.float64).tiny
    log_others = xp.log(xp.where(lost, xp.ones_like(others), others))
    indices = xp.nonzero(lost)[0]
    if len(indices):
        log_others[indices] = log_sum_exp(shifted[indices])
    return log_others

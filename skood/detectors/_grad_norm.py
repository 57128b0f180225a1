"""Norm of the gradient of the head towards a uniform prediction (GradNorm)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real
from typing import ClassVar

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._softmax import shifted_exponentials
from skood.utils._array_api import row_indices, row_sums
from skood.utils._param_validation import Interval


class GradNorm(OutputDetector):
    r"""Norm of the gradient towards a uniform prediction (GradNorm) [1]_.

    .. math:: s(x) = \Bigl\lVert \frac{\partial}{\partial W} D_\text{KL}(u \,\Vert\, p)
        \Bigr\rVert_1
        = \frac{1}{T} \lVert z \rVert_1 \, \lVert p - u \rVert_1,
        \qquad p = \operatorname{softmax}((W z + b) / T)

    with the uniform distribution :math:`u = (1/C, \dots, 1/C)` and the weights W of the
    linear head; the gradient with respect to the bias is left out. The gradient is the
    outer product :math:`(p - u) z^\top / T`, whose norm is the product of two norms: no
    backward pass is needed.

    For confident predictions, :math:`\lVert p - u \rVert_1` is close to its maximum
    :math:`2 - 2/C`, and the score is proportional to the 1-norm of the features.

    Read more in the :ref:`User Guide <detectors_logits>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features and logits are used, with a linear head; cloned
        and fitted unless it is in a :class:`~sklearn.frozen.FrozenEstimator`. None:
        `X` holds features, and a linear head is fitted on ``(X, y)``.

    temperature : float, default=1.0
        Temperature T > 0.

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
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    MSP : Uses the prediction only.
    ODIN : Uses a gradient with respect to the input.

    Notes
    -----
    The code of the authors sums the cross-entropy over the classes instead of averaging
    it, which multiplies all scores by C. By default, pytorch-ood uses the gradient with
    respect to all parameters of the network.

    References
    ----------
    .. [1] R. Huang, A. Geng and Y. Li. "On the importance of gradients for detecting
       distributional shifts in the wild". NeurIPS 2021.

    Examples
    --------
    >>> from sklearn.frozen import FrozenEstimator
    >>> from skood.detectors import GradNorm
    >>> from skood.nn import LinearHead
    >>> head = FrozenEstimator(LinearHead(coef=[[1.0, 0.0], [0.0, 1.0]]))
    >>> Z = [[4.0, 0.0], [1.0, 1.0], [0.0, 2.0]]
    >>> GradNorm(head).fit(Z).score_samples(Z).round(3)
    array([3.856, 0.   , 1.523])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "temperature": [Interval(Real, 0, None, closed="neither")],
    }

    # The head is not used, but the closed form holds only for a linear head.
    _needs: ClassVar[frozenset] = frozenset({"features", "logits", "head"})
    _sparse: ClassVar[str | None] = "chunks"
    _learns: ClassVar[bool] = False
    _elementwise: ClassVar[bool] = True

    # One pass over the features: chunks that stay in the cache are fastest.
    _chunk_bytes: ClassVar[int] = 8 * 2**20

    def __init__(
        self,
        estimator=None,
        *,
        temperature=1.0,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.temperature = temperature

    def _score_outputs(self, outputs):
        xp = outputs.xp
        p, others, shifted = shifted_exponentials(outputs.logits, self.temperature)
        p[row_indices(p), xp.argmax(shifted, axis=1)] = 1.0
        p /= (1.0 + others)[:, None]
        p -= 1.0 / p.shape[1]
        xp.abs(p, out=p)
        length = xp.sum(xp.abs(outputs.features), axis=1, dtype=xp.float64)
        return length * row_sums(p) / self.temperature

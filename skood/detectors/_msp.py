"""Maximum softmax probability (MSP)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real
from typing import ClassVar

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._softmax import shifted_exponentials
from skood.utils._param_validation import Interval


class MSP(OutputDetector):
    r"""Maximum softmax probability (MSP) [1]_.

    .. math:: s(x) = \max_k p_k - 1 = -\sum_{j \ne \hat y} p_j,
        \qquad p = \operatorname{softmax}(l / T)

    The constant 1 is subtracted, and the difference computed as the sum of the other
    probabilities, since a maximum close to 1 is rounded: so confident samples are
    ranked instead of tied at 1.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose logits are used; cloned and fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds logits.

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
        The fitted classifier, if there is one.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Entropy : Uses all probabilities.
    Energy : Does not normalize the logits.

    References
    ----------
    .. [1] D. Hendrycks and K. Gimpel. "A baseline for detecting misclassified and
       out-of-distribution examples in neural networks". ICLR 2017.

    Examples
    --------
    >>> from skood.detectors import MSP
    >>> logits = [[2.0, 0.0], [0.0, 3.0], [0.5, 0.0]]
    >>> MSP().fit(logits).score_samples(logits).round(3)
    array([-0.119, -0.047, -0.378])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "temperature": [Interval(Real, 0, None, closed="neither")],
    }

    _needs: ClassVar[frozenset] = frozenset({"logits"})
    _learns: ClassVar[bool] = False

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
        _, others, _ = shifted_exponentials(outputs.logits, self.temperature)
        # 1 - max p = others / (1 + others)
        return -others / (1.0 + others)

    def _onnx_score(self, outputs):
        _, others, _, _ = outputs.shifted_exponentials(self.temperature)
        return -(others / (others + 1.0))

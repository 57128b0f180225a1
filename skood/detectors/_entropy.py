"""Negative entropy of the predicted probabilities."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._softmax import shifted_exponentials
from skood.utils._array_api import row_dots


class Entropy(OutputDetector):
    r"""Negative entropy of the predictive distribution.

    .. math:: s(x) = \sum_k p_k \log p_k, \qquad p = \operatorname{softmax}(l),
        \quad 0 \log 0 = 0

    It is computed from logits in float64, so that confident samples, whose entropy is
    nearly zero, are still ranked.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose logits are used; cloned and fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds logits.

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
    MSP : Uses the largest probability only.

    References
    ----------
    .. [1] C. E. Shannon. "A mathematical theory of communication". Bell System
       Technical Journal 27, 1948.

    Examples
    --------
    >>> from skood.detectors import Entropy
    >>> logits = [[0.0, 0.0], [5.0, 0.0], [30.0, 0.0]]
    >>> Entropy().fit(logits).score_samples(logits).round(3)
    array([-0.693, -0.04 , -0.   ])
    """

    _needs: ClassVar[frozenset] = frozenset({"logits"})
    _learns: ClassVar[bool] = False

    def _score_outputs(self, outputs):
        exponentials, others, shifted = shifted_exponentials(outputs.logits)
        # log p_j = shifted_j - log(1 + others), so with Z = 1 + others
        # sum_j p_j log p_j = sum_j exponentials_j shifted_j / Z - log Z
        weighted = row_dots(exponentials, shifted)
        return weighted / (1.0 + others) - outputs.xp.log1p(others)

    def _onnx_score(self, outputs):
        exponentials, others, shifted, _ = outputs.shifted_exponentials()
        return (exponentials * shifted).sum() / (others + 1.0) - others.log1p()

"""Maximum logit score (MLS)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

from skood.detectors._common._base_output_detector import OutputDetector
from skood.utils._array_api import row_max


class MaxLogit(OutputDetector):
    r"""Maximum logit score (MLS) [1]_.

    .. math:: s(x) = \max_k l_k

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
    Energy : A smooth maximum of the logits.

    References
    ----------
    .. [1] D. Hendrycks, S. Basart, M. Mazeika, A. Zou, J. Kwon, M. Mostajabi, J.
       Steinhardt, D. Song. "Scaling out-of-distribution detection for real-world
       settings". ICML 2022.

    Examples
    --------
    >>> from skood.detectors import MaxLogit
    >>> logits = [[2.0, 0.0], [0.0, 3.0], [0.5, 0.0]]
    >>> MaxLogit().fit(logits).score_samples(logits)
    array([2. , 3. , 0.5])
    """

    _needs: ClassVar[frozenset] = frozenset({"logits"})
    _learns: ClassVar[bool] = False

    def _score_outputs(self, outputs):
        return row_max(outputs.logits)

    def _onnx_score(self, outputs):
        return outputs.logits.max()

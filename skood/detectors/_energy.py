"""Energy score (EBO), optionally weighted by class."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real
from typing import ClassVar

import numpy as np
from sklearn.utils import check_array

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._softmax import log_sum_exp
from skood.utils._array_api import as_double
from skood.utils._param_validation import Interval
from skood.utils._warnings import warn

# Energies up to this are zero up to rounding, as for log probabilities.
_CONSTANT = 1e-12


class Energy(OutputDetector):
    r"""Negative free energy (EBO) [1]_, optionally weighted by class [2]_.

    .. math:: s(x) = T \log \sum_k w_k \exp(l_k / T)

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose logits are used; cloned and fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds logits.

    temperature : float, default=1.0
        Temperature T > 0.

    class_weight : array-like of shape (n_classes,), default=None
        Weights w_k >= 0 in the order of the logits, not all zero (the weighted
        energy of VOS). None: all ones.

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
    MaxLogit : The limit for T -> 0.

    References
    ----------
    .. [1] W. Liu, X. Wang, J. D. Owens, Y. Li. "Energy-based out-of-distribution
       detection". NeurIPS 2020.

    .. [2] X. Du, Z. Wang, M. Cai, Y. Li. "VOS: Learning what you don't know by virtual
       outlier synthesis". ICLR 2022.

    Examples
    --------
    >>> from skood.detectors import Energy
    >>> logits = [[2.0, 0.0], [0.0, 3.0], [0.5, 0.0]]
    >>> Energy().fit(logits).score_samples(logits).round(3)
    array([2.127, 3.049, 0.974])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "class_weight": ["array-like", None],
    }

    _needs: ClassVar[frozenset] = frozenset({"logits"})
    _learns: ClassVar[bool] = False

    def __init__(
        self,
        estimator=None,
        *,
        temperature=1.0,
        class_weight=None,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.temperature = temperature
        self.class_weight = class_weight

    def _fit_outputs(self, outputs, y):
        self._log_weight = None
        if self.class_weight is None:
            return
        weight = check_array(
            self.class_weight,
            ensure_2d=False,
            dtype=np.float64,
            ensure_all_finite=False,
            input_name="class_weight",
        )
        n_classes = outputs.logits.shape[1]
        if weight.shape != (n_classes,):
            raise ValueError(
                f"class_weight has shape {weight.shape}, expected ({n_classes},): one "
                "weight per logit."
            )
        if not np.isfinite(weight).all() or weight.min() < 0 or weight.max() == 0:
            raise ValueError(
                "class_weight must be finite, non-negative and not all zero, got "
                f"{weight.tolist()}."
            )
        with np.errstate(divide="ignore"):
            self._log_weight = np.log(weight)

    def _fit(self, X, y, sample_weight=None):
        scores = super()._fit(X, y, sample_weight)
        energies = scores if sample_weight is None else scores[0]
        if np.abs(energies).max() <= _CONSTANT:
            warn(
                "The energy of all training samples is 0 up to rounding: the outputs "
                "are log probabilities, not logits, and the score is meaningless. Use "
                "MSP or Entropy."
            )
        return scores

    def _score_outputs(self, outputs):
        # w exp(l/T) = exp(l/T + log w): one shift prevents overflow of both.
        logits = outputs.logits
        if self.temperature != 1.0:
            logits = as_double(logits) / self.temperature
        if self._log_weight is not None:
            logits = logits + outputs.asarray(self._log_weight)
        return self.temperature * log_sum_exp(logits)

    def _onnx_score(self, outputs):
        logits = outputs.logits / self.temperature
        if self._log_weight is not None:
            logits = logits + np.maximum(self._log_weight, outputs.far_below)
        return logits.logsumexp() * self.temperature

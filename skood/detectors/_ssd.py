"""Mahalanobis distance to one cluster of unit-norm features (SSD)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._class_moments import ClassMoments
from skood.detectors._common._explain import ReferencePoints
from skood.detectors._common._gaussian import (
    Whitening,
    contributions,
    covariance_part,
    deviations,
    fitted_covariance,
    left_out_distances,
    within_covariance,
)
from skood.utils._array_api import unit_rows
from skood.utils._param_validation import HasMethods


class SSD(OutputDetector):
    r"""Mahalanobis distance to one cluster of unit-norm features (SSD) [1]_.

    .. math:: s(x) = -(\hat z - \mu)^\top \Sigma^{-1} (\hat z - \mu),
        \qquad \hat z = z / \lVert z \rVert_2

    with the mean :math:`\mu` and the covariance :math:`\Sigma` of the training
    features, scaled to unit length. Zero vectors stay zero. Class labels are not
    used.

    With fewer than 2d samples, where d is the number of features, the correlations are
    shrunk towards zero, :math:`\Sigma_{ij}' = (1 - \rho) \Sigma_{ij}` for :math:`i \ne
    j`, by the oracle approximating shrinkage [2]_: with the correlation matrix R,

    .. math:: \rho = \min\left(1, \frac{(1 - 2/d) \operatorname{tr} R^2 + d^2}
        {(n + 1 - 2/d) (\operatorname{tr} R^2 - d)}\right) .

    A :math:`\Sigma` that is singular all the same (more samples, but collinear
    features) is inverted on its support, with a warning; constant features are left
    out. `partial_fit` adds samples, and `explain` returns the contributions of the
    features.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features are used; cloned and fitted unless it is in
        a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features.

    covariance : object, default=None
        A covariance estimator of scikit-learn, such as
        :class:`~sklearn.covariance.LedoitWolf`; it is cloned and fitted on the
        unit-norm features minus their mean. None: maximum likelihood, in one pass,
        which `partial_fit` requires.

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
    location_ : ndarray of shape (n_features,)
        Mean of the unit-norm features.

    covariance_ : ndarray of shape (n_features, n_features)
        Covariance of the unit-norm features.

    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Mahalanobis : Uses a mean per class, and unnormalized features.
    KNN : Distance to a neighbor among unit-norm features.

    References
    ----------
    .. [1] V. Sehwag, M. Chiang and P. Mittal. "SSD: A unified framework for
       self-supervised outlier detection". ICLR 2021.

    .. [2] Y. Chen, A. Wiesel, Y. C. Eldar and A. O. Hero. "Shrinkage algorithms for
       MMSE covariance estimation". IEEE Trans. Signal Processing 58, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skood.detectors import SSD
    >>> X, y = load_iris(return_X_y=True)
    >>> detector = SSD().fit(X[:50])
    >>> detector.predict(X[48:56])  # six samples of another class
    array([ 1,  1, -1, -1, -1, -1, -1, -1])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "covariance": [HasMethods("fit"), None],
    }

    _needs: ClassVar[frozenset] = frozenset({"features"})

    def __init__(
        self,
        estimator=None,
        *,
        covariance=None,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.covariance = covariance

    def _added(self, sums, chunk, labels):
        unit = unit_rows(chunk.features)
        return (sums or ClassMoments()).updated(unit, None, chunk.weight)

    def _settle(self, outputs, y):
        moments = self._sums
        self.location_ = moments.means[0]
        few = self._shrinks if self._is_fold else None
        self._shrinks = False
        if self.covariance is None:
            self.covariance_, self._shrinks = within_covariance(moments, few)
        else:
            residuals = unit_rows(outputs.to(None).features) - self.location_
            self.covariance_ = fitted_covariance(self, residuals, outputs.weight)
        self._whitening = Whitening(
            self.covariance_, moments, "The covariance of the unit-norm features"
        )

    def _fitted_parts(self):
        return covariance_part(super()._fitted_parts(), self.covariance)

    def _score_left_out(self, chunk, labels):
        if self.covariance is not None or self._shrinks:
            return None
        codes = self._sums.codes(None, chunk.n_samples)
        white = self._whitening.apply(unit_rows(chunk.features), chunk.asarray)
        squared = left_out_distances(
            self._whitening, self._sums, white, codes, chunk.weight
        )
        return None if squared is None else -squared[:, 0]

    def _score_outputs(self, outputs):
        squared, _ = self._whitening.squared_distances(
            unit_rows(outputs.features), outputs.asarray
        )
        return -squared

    def _onnx_score(self, outputs):
        white = self._whitening.onnx_apply(outputs.features.unit())
        return -white.nearest(self._whitening.means)

    def _explained(self, outputs):
        units = unit_rows(outputs.features)
        gaps = self._whitening.gaps(units, 0)
        matrix = self._whitening.matrix
        parts = contributions(gaps, matrix)
        reference = ReferencePoints(
            units - gaps, "mean", deviations(matrix), is_unit=True
        )
        return {"squared_distance": parts.sum(axis=1)}, parts, reference

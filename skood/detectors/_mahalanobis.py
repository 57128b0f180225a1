"""Mahalanobis distance to the nearest class mean (MDS)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import Any, ClassVar

import numpy as np

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._class_moments import ClassMoments
from skood.detectors._common._explain import ReferencePoints
from skood.detectors._common._gaussian import (
    ALONE,
    Whitening,
    contributions,
    covariance_part,
    deviations,
    fitted_covariance,
    left_out_distances,
    within_covariance,
)
from skood.detectors._common._softmax import log_sum_exp
from skood.utils._array_api import row_dots
from skood.utils._linalg import symmetric_eigh
from skood.utils._param_validation import HasMethods
from skood.utils._warnings import warn
from skood.utils._weights import has_others, left_out_weight, row_weight


class Mahalanobis(OutputDetector):
    r"""Negative squared Mahalanobis distance to the nearest class mean (MDS) [1]_.

    .. math:: s(x) = -\min_k (z - \mu_k)^\top \Sigma^{-1} (z - \mu_k)

    with the class means :math:`\mu_k` and the tied within-class covariance
    :math:`\Sigma` of the training features. With ``tied=False`` each class has
    its own covariance, and the score is the log density of the mixture

    .. math:: s(x) = \log \sum_k \pi_k \mathcal N(z; \mu_k, \Sigma_k) .

    With fewer than 2d samples, where d is the number of features, the correlations are
    shrunk towards zero, :math:`\Sigma_{ij}' = (1 - \rho) \Sigma_{ij}` for :math:`i \ne
    j`, by the oracle approximating shrinkage [2]_: with the correlation matrix R,

    .. math:: \rho = \min\left(1, \frac{(1 - 2/d) \operatorname{tr} R^2 + d^2}
        {(n + 1 - 2/d) (\operatorname{tr} R^2 - d)}\right) ,

    where n is the number of samples minus C - 1 with C classes. A :math:`\Sigma` that
    is singular all the same (more samples, but collinear features) is inverted on its
    support, with a warning. The score then uses the pseudo-inverse, which, unlike the
    inverse, depends on the scales of the features. Constant features, which vary by
    four rounding errors of their mean or less, are left out. Singular covariances of
    single classes, with a warning, and covariances of fewer than 2d samples are
    regularized towards the tied one:
    :math:`\Sigma_k' = (n_k \Sigma_k + d\,\Sigma)/(n_k + d)`.

    `partial_fit` adds samples, and `explain` returns the nearest class and the
    contributions of the features to the distance.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features are used; cloned and fitted unless it is in
        a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features.

    covariance : object, default=None
        A covariance estimator of scikit-learn, such as
        :class:`~sklearn.covariance.LedoitWolf`; it is cloned and fitted on the
        features minus their class means. None: maximum likelihood, shrunk for few
        samples, in one pass, which `partial_fit` requires.

    tied : bool, default=True
        Whether all classes share one covariance.

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
    location_ : ndarray of shape (n_classes, n_features)
        Class means. Without `y` there is one class.

    covariance_ : ndarray of shape (n_features, n_features)
        The tied within-class covariance, also with ``tied=False``.

    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    RelativeMahalanobis : Subtracts the distance to the mean of all data.
    GMM : Gaussian mixture fitted by expectation maximization.
    KNN : Makes no assumption on the distribution.

    References
    ----------
    .. [1] K. Lee, K. Lee, H. Lee, J. Shin. "A simple unified framework for detecting
       out-of-distribution samples and adversarial attacks". NeurIPS 2018.

    .. [2] Y. Chen, A. Wiesel, Y. C. Eldar and A. O. Hero. "Shrinkage algorithms for
       MMSE covariance estimation". IEEE Trans. Signal Processing 58, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skood.detectors import Mahalanobis
    >>> X, y = load_iris(return_X_y=True)
    >>> detector = Mahalanobis().fit(X[:100], y[:100])
    >>> detector.predict(X[100:110])  # the class left out
    array([-1, -1, -1, -1, -1, -1, -1, -1, -1, -1])
    """

    _few: Any

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "covariance": [HasMethods("fit"), None],
        "tied": ["boolean"],
    }

    _needs: ClassVar[frozenset] = frozenset({"features"})
    _sums_need: ClassVar[tuple] = ("estimator", "tied")

    def __init__(
        self,
        estimator=None,
        *,
        covariance=None,
        tied=True,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.covariance = covariance
        self.tied = tied

    def _added(self, sums, chunk, labels):
        if sums is None:
            sums = ClassMoments(per_class=not self.tied)
        is_new = sums is not self._sums
        return sums.updated(chunk.features, labels, chunk.weight, consume=is_new)

    def _settle(self, outputs, y):
        moments = self._sums
        self.location_ = moments.means
        self._shrinks = False
        if self.covariance is None:  # Eq. (1) of [1]
            few = self._few if self._is_fold else None
            self.covariance_, self._few = within_covariance(moments, few)
            self._shrinks = self._few
        else:
            codes = moments.codes(y, outputs.n_samples)
            residuals = outputs.to(None).features - self.location_[codes]
            self.covariance_ = fitted_covariance(self, residuals, outputs.weight)
        self._whitening = Whitening(
            self.covariance_, moments, "The within-class covariance"
        )
        self._components: Any = None
        if not self.tied:
            if self.covariance is None:
                residuals = codes = None
            self._fit_components(moments, residuals, codes, outputs.weight)

    def _fit_components(self, moments, residuals, codes, weight):
        """Fit a Gaussian per class, in the whitened space of the tied covariance."""
        whitener = self._whitening.matrix
        rank = whitener.shape[1]
        components, singular = [], []
        few = self._few_classes(moments, rank)
        for k, count in enumerate(moments.counts):
            if residuals is None:
                covariance = whitener.T @ (moments.scatter[k] / count) @ whitener
            else:
                members = codes == k
                covariance = fitted_covariance(
                    self, residuals[members] @ whitener, row_weight(weight, members)
                )
            values, vectors, class_rank = symmetric_eigh(covariance)
            # The tied covariance is the identity here: eps is the rounding error.
            is_singular = class_rank < rank or values[0] <= np.finfo(np.float64).eps
            if is_singular:
                singular.append(k)
            if is_singular or few[k]:
                self._shrinks = True
                values = (count * np.maximum(values, 0) + rank) / (count + rank)
            log_det = self._whitening.log_det + np.log(values).sum()
            norm = rank * np.log(2 * np.pi) + log_det
            log_prior = np.log(count / moments.counts.sum())
            components.append((vectors / np.sqrt(values), float(log_prior - norm / 2)))
        self._components = components
        if singular:
            names = moments.classes[singular].tolist()
            warn(
                f"The covariances of the classes {names} are singular and were "
                "regularized towards the tied one. Give more samples, or pass "
                "covariance=LedoitWolf()."
            )

    def _few_classes(self, moments, rank):
        """Return which classes have fewer samples than twice the rank."""
        if self.covariance is not None:
            return np.zeros(len(moments.counts), dtype=bool)
        if not self._is_fold:
            few = np.maximum(moments.counts, moments.n_samples) < 2 * rank
            self._small_classes = moments.classes[few]
        return np.isin(moments.classes, self._small_classes)

    def _log_densities(self, outputs):
        """Return log(prior times density), (n_samples, n_classes), with tied=False."""
        white = self._whitening.apply(outputs.features, outputs.asarray)
        columns = []
        for mean, (whitener, constant) in zip(
            self._whitening.means, self._components, strict=True
        ):
            class_white = (white - outputs.asarray(mean)) @ outputs.asarray(whitener)
            columns.append(constant - row_dots(class_white, class_white) / 2)
        return outputs.xp.stack(columns, axis=1)

    def _fitted_parts(self):
        return covariance_part(super()._fitted_parts(), self.covariance)

    def _score_left_out(self, chunk, labels):
        if self.covariance is not None or self._shrinks:
            return None
        codes = self._sums.codes(labels, chunk.n_samples)
        if self.tied:
            white = self._whitening.apply(chunk.features, np.asarray)
            squared = left_out_distances(
                self._whitening, self._sums, white, codes, chunk.weight
            )
            return None if squared is None else -squared.min(axis=1)
        return self._log_densities_left_out(chunk, codes)

    def _log_densities_left_out(self, chunk, codes):
        r"""Return leave-one-out scores of training samples with ``tied=False``.

        For a sample of a class with n samples and :math:`g^\top \Sigma^{-1} g = q`, the
        squared distance is :math:`n q / (n - 1 - q)` without the sample, and the
        determinant is multiplied by :math:`(n / (n - 1))^d (1 - q / (n - 1))`. Without
        a weight a they are :math:`n q / (n - a - a q)` and :math:`(n / (n - a))^d (1 -
        a q / (n - a))`.
        """
        logs = self._log_densities(chunk)
        counts, indices = self._sums.counts, np.arange(chunk.n_samples)
        n_samples, class_counts = counts.sum(), counts[codes]
        norms = np.array([constant for _, constant in self._components])[codes]
        squared = 2.0 * (norms - logs[indices, codes])
        gone = left_out_weight(chunk.weight)
        rest = np.where(has_others(class_counts, gone), class_counts - gone, np.nan)
        left = 1.0 - gone * squared / rest
        if not left.min() > ALONE:
            return None
        rank = self._whitening.matrix.shape[1]
        log_det = rank * np.log(class_counts / rest) + np.log(left)
        squared *= class_counts / rest / left
        norms += np.log(rest / class_counts) - log_det / 2
        logs[indices, codes] = norms - squared / 2
        growth = np.reshape(n_samples / (n_samples - gone), (-1, 1))
        return log_sum_exp(logs + np.log(growth))

    def _score_outputs(self, outputs):
        if self._components is not None:
            return log_sum_exp(self._log_densities(outputs))
        squared, _ = self._whitening.squared_distances(
            outputs.features, outputs.asarray
        )
        return -squared  # Eq. (2) of [1]

    def _onnx_score(self, outputs):
        white = self._whitening.onnx_apply(outputs.features)
        if self._components is None:
            return -white.nearest(self._whitening.means)
        columns = [
            ((white - mean) @ whitener).squared() * -0.5 + constant
            for mean, (whitener, constant) in zip(
                self._whitening.means, self._components, strict=True
            )
        ]
        return outputs.stack(columns).logsumexp()

    def _explained(self, outputs):
        features = outputs.features
        whitener = self._whitening.matrix
        if self._components is None:
            _, nearest = self._whitening.squared_distances(features, outputs.asarray)
            gaps = self._whitening.gaps(features, nearest)
            parts, spread = contributions(gaps, whitener), deviations(whitener)
        else:
            nearest = self._log_densities(outputs).argmax(axis=1)
            gaps = self._whitening.gaps(features, nearest)
            parts, spread = np.empty(features.shape), np.empty(features.shape)
            for k, (class_whitener, _) in enumerate(self._components):
                members = nearest == k
                parts[members] = contributions(gaps[members], whitener @ class_whitener)
                spread[members] = deviations(whitener @ class_whitener)
        columns = {
            "nearest_class": self._sums.classes[nearest],
            "squared_distance": parts.sum(axis=1),
        }
        return columns, parts, ReferencePoints(features - gaps, "class mean", spread)

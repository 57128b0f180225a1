"""Relative Mahalanobis distance to the nearest class mean (RMD, RMDS)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

import numpy as np

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._class_moments import ClassMoments
from skood.detectors._common._explain import ReferencePoints
from skood.detectors._common._gaussian import (
    ALONE,
    Whitening,
    covariance_part,
    deviations,
    fitted_covariance,
    left_out_distances,
    within_covariance,
)
from skood.detectors._common._partial_fit import NotEnoughRows
from skood.utils._array_api import centered_rows, nearest, row_dots
from skood.utils._linalg import symmetric_eigh
from skood.utils._param_validation import HasMethods
from skood.utils._warnings import warn
from skood.utils._weights import left_out_weight


class RelativeMahalanobis(OutputDetector):
    r"""Relative Mahalanobis distance to the nearest class mean (RMD, RMDS) [1]_.

    .. math:: s(x) = d_0(z) - \min_k d_k(z), \qquad
        d_k(z) = (z - \mu_k)^\top \Sigma^{-1} (z - \mu_k), \qquad
        d_0(z) = (z - \mu_0)^\top \Sigma_0^{-1} (z - \mu_0)

    with the class means :math:`\mu_k` and the tied within-class covariance
    :math:`\Sigma` of the training features, and the mean :math:`\mu_0` and the
    covariance :math:`\Sigma_0` of all training features. Both covariances are divided
    by the number of samples. Directions in which the classes do not differ cancel in
    the difference, so that at most n_classes - 1 directions are computed.

    With fewer samples than twice the features plus classes, :math:`\Sigma` is shrunk as
    in :class:`Mahalanobis`, and :math:`\Sigma_0` by the same difference. If it is
    singular all the same (more samples, but collinear features), it is inverted on its
    support, with a warning, and constant features are left out; :math:`d_0` is then
    computed on the same directions. At least two classes must have different means.

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
        :class:`~sklearn.covariance.LedoitWolf`; clones of it are fitted on the
        features minus their class means, and on the features minus the overall mean.
        None: maximum likelihood, in one pass, which `partial_fit` requires.

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
        Class means.

    covariance_ : ndarray of shape (n_features, n_features)
        The tied within-class covariance.

    background_location_ : ndarray of shape (n_features,)
        Mean of all training features.

    background_covariance_ : ndarray of shape (n_features, n_features)
        Covariance of all training features.

    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`.

    See Also
    --------
    Mahalanobis : Distance to the nearest class mean alone.
    SSD : Distance to the overall mean alone, on features of unit length.

    Notes
    -----
    Some implementations do not divide the background scatter by the number of samples;
    the background distance then vanishes as this number grows, and the score becomes
    that of :class:`Mahalanobis`.

    References
    ----------
    .. [1] J. Ren, S. Fort, J. Liu, A. Guha Roy, S. Padhy, B. Lakshminarayanan. "A
       simple fix to Mahalanobis distance for improving near-OOD detection".
       arXiv:2106.09022, 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skood.detectors import RelativeMahalanobis
    >>> X, y = load_digits(return_X_y=True)
    >>> X = X[:, X.std(axis=0) > 1]  # without constant pixels
    >>> y[y >= 8] = -1  # known OOD: left out of the fit
    >>> detector = RelativeMahalanobis().fit(X[:1000], y[:1000])
    >>> round(detector.score(X[1000:], y[1000:]), 2)  # AUROC, other samples
    0.89
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

    def _begin(self, outputs, y):
        if y is None:
            raise ValueError(
                "RelativeMahalanobis requires y to be passed, but the target y is "
                "None: with one class for all samples both distances are the same. "
                "Pass class labels, or use Mahalanobis."
            )

    def _added(self, sums, chunk, labels):
        return (sums or ClassMoments()).updated(chunk.features, labels, chunk.weight)

    def _settle(self, outputs, y):
        moments = self._sums
        n_samples = moments.counts.sum()
        self.location_ = moments.means
        mean, scatter = moments.total()
        self.background_location_ = moments.origin + mean
        few = self._shrinks if self._is_fold else None
        self._shrinks = False
        if self.covariance is None:
            self.covariance_, self._shrinks = within_covariance(moments, few)
            within = moments.within() / n_samples
            self.background_covariance_ = scatter / n_samples
            self.background_covariance_ += self.covariance_ - within
        else:
            features = outputs.to(None).features
            residuals = features - self.location_[moments.codes(y, len(y))]
            self.covariance_ = fitted_covariance(self, residuals, outputs.weight)
            self.background_covariance_ = fitted_covariance(
                self, features - self.background_location_, outputs.weight
            )
        what = "The within-class covariance"
        self._whitening = Whitening(self.covariance_, moments, what)
        whitener = self._whitening.matrix
        gaps = moments.offsets - mean  # class means minus the overall mean
        # The rounding error of the overall mean after adding the origin.
        self._lost = mean - (self.background_location_ - moments.origin)
        directions, variances = self._between(whitener, gaps)
        if self.covariance is not None:
            directions, variances = self._background(whitener)
        self._directions = directions
        self._shift = self._lost @ directions
        self._precisions = 1.0 / variances
        self._gaps = gaps
        self._centers = gaps @ directions

    def _between(self, whitener, gaps):
        r"""Return the between-class directions and their background variances.

        The background covariance is :math:`\Sigma` plus the covariance of the class
        means, whose rank is below the number of classes: in the whitened space, its
        eigenvalues are 1 in all other directions.
        """
        counts, offsets = self._sums.counts, self._sums.offsets
        gaps = gaps @ whitener
        scaled = np.sqrt(counts / counts.sum())[:, None] * gaps
        _, spread, vectors = np.linalg.svd(scaled, full_matrices=False)
        largest = np.abs(offsets).max(axis=0) @ np.abs(whitener)
        rounding = np.finfo(np.float64).eps * max(gaps.shape) * largest.max()
        is_spread = spread > rounding
        if not is_spread.any():
            raise NotEnoughRows(
                "Distances relative to all data are zero: the class means (n_classes = "
                f"{len(gaps)}) do not differ where features vary within the classes "
                f"(n_samples = {int(counts.sum())}, n_features = "
                f"{whitener.shape[0]}). Give samples of two classes that differ, or "
                "use Mahalanobis."
            )
        return whitener @ vectors[is_spread].T, 1.0 + spread[is_spread] ** 2

    def _background(self, whitener):
        """Return directions spanning the whitened space and background variances."""
        covariance = whitener.T @ self.background_covariance_ @ whitener
        variances, vectors, rank = symmetric_eigh(covariance)
        if rank < len(variances):
            warn(
                "The background covariance is singular where the within-class "
                f"covariance is not (rank {rank} of {len(variances)}): these "
                "directions do not count in the background distance. Pass another "
                f"covariance estimator than {self.covariance!r}."
            )
            variances[:-rank] = np.inf
        return whitener @ vectors, variances

    def _fitted_parts(self):
        return covariance_part(super()._fitted_parts(), self.covariance)

    def _coordinates(self, outputs):
        """Return features minus the overall mean in the directions that matter."""
        centered = centered_rows(
            outputs.features, outputs.asarray(self.background_location_)
        )
        at = centered @ outputs.asarray(self._directions)
        return at - outputs.asarray(self._shift)

    def _score_left_out(self, chunk, labels):
        if self.covariance is not None or self._shrinks:
            return None
        moments, n_samples = self._sums, self._sums.counts.sum()
        codes = moments.codes(labels, chunk.n_samples)
        white = self._whitening.apply(chunk.features, np.asarray)
        squared = left_out_distances(
            self._whitening, moments, white, codes, chunk.weight
        )
        if squared is None:
            return None
        # The background distance q differs from the within-class distance only in the
        # between-class directions; without a weight a it is n q / (n - a - a q).
        white -= moments.counts @ self._whitening.means / n_samples
        at = self._coordinates(chunk)
        q = row_dots(white, white) - row_dots(at * (1.0 - self._precisions), at)
        gone = left_out_weight(chunk.weight)
        left = n_samples - gone - gone * q
        if left.min() <= ALONE * n_samples:
            return None
        return n_samples * q / left - squared.min(axis=1)

    def _score_outputs(self, outputs):
        at = self._coordinates(outputs)
        squared, _ = nearest(at, outputs.asarray(self._centers))
        return row_dots(at * outputs.asarray(self._precisions), at) - squared

    def _onnx_score(self, outputs):
        at = (outputs.features - self.background_location_) @ self._directions
        at = at - self._shift
        return (at * self._precisions * at).sum() - at.nearest(self._centers)

    def _explained(self, outputs):
        at = self._coordinates(outputs)
        _, index = nearest(at, self._centers)
        back = self._directions.T
        background = (outputs.features - self.background_location_) - self._lost
        parts = background - self._gaps[index]
        spread = deviations(self._whitening.matrix)
        reference = ReferencePoints(outputs.features - parts, "class mean", spread)
        parts *= (at - self._centers[index]) @ back
        background *= (at * self._precisions) @ back
        parts -= background
        columns = {
            "nearest_class": self._sums.classes[index],
            "relative_distance": parts.sum(axis=1),
        }
        return columns, parts, reference

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

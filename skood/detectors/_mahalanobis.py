"""Mahalanobis distance to the nearest class mean."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings
from typing import ClassVar

import numpy as np
from sklearn.base import clone

from skood.detectors._base import ReadingDetector
from skood.detectors._softmax import logsumexp_rows
from skood.exceptions import SkoodWarning
from skood.utils._linalg import symmetric_eigh
from skood.utils._params import HasMethods
from skood.utils._torch import row_chunks

__all__ = ["Mahalanobis"]


class Mahalanobis(ReadingDetector):
    r"""Negative squared Mahalanobis distance to the nearest class mean (MDS) [1]_.

    .. math:: s(x) = -\min_k (z - \mu_k)^\top \Sigma^{-1} (z - \mu_k)

    with the class means :math:`\mu_k` and the tied within-class covariance
    :math:`\Sigma` of the training features. With ``tied=False`` each class has
    its own covariance, and the score is the log density of the mixture

    .. math:: s(x) = \log \sum_k \pi_k \mathcal N(z; \mu_k, \Sigma_k) .

    A singular :math:`\Sigma` (fewer samples than features, constant features) is
    inverted on its support, with a warning. Own covariances that are singular are
    drawn to the tied one: :math:`\Sigma_k' = (n_k \Sigma_k + d\,\Sigma)/(n_k + d)`,
    with a warning.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features are read; cloned and fitted unless it is in
        a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features.

    covariance : object, default=None
        A covariance estimator of scikit-learn, such as
        :class:`~sklearn.covariance.LedoitWolf`; it is cloned and fitted on the
        features minus their class means. None: maximum likelihood, in chunks.

    tied : bool, default=True
        Whether all classes share one covariance.

    contamination : float, default=0.05
        Share of the ID training samples to reject.

    ood_label : int or str, default=-1
        Label of known OOD rows in ``y``; they are left out of the fit.

    Attributes
    ----------
    location_ : ndarray of shape (n_classes, n_features)
        Class means. Without `y` there is one class.

    covariance_ : ndarray of shape (n_features, n_features)
        The tied within-class covariance, also with ``tied=False``.

    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        The `contamination` quantile of the training scores.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    KNN : Makes no assumption on the distribution.

    References
    ----------
    .. [1] K. Lee et al. "A simple unified framework for detecting
       out-of-distribution samples and adversarial attacks". NeurIPS 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skood.detectors import Mahalanobis
    >>> X, y = load_iris(return_X_y=True)
    >>> detector = Mahalanobis().fit(X[:100], y[:100])
    >>> bool((detector.predict(X[100:]) == -1).mean() > 0.5)
    True
    """

    _parameter_constraints: dict = {
        **ReadingDetector._parameter_constraints,
        "covariance": [HasMethods("fit"), None],
        "tied": ["boolean"],
    }

    _reads: ClassVar[frozenset] = frozenset({"features"})

    def __init__(
        self,
        estimator=None,
        *,
        covariance=None,
        tied=True,
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(estimator, contamination=contamination, ood_label=ood_label)
        self.covariance = covariance
        self.tied = tied

    def _fit_reading(self, reading, y):
        Z = reading.features
        n_samples, n_features = Z.shape
        codes = np.zeros(n_samples, dtype=np.intp)
        if y is not None:
            codes = np.unique(y, return_inverse=True)[1]
        counts = np.bincount(codes)
        self.location_ = np.stack(
            [Z[codes == k].mean(axis=0, dtype=np.float64) for k in range(len(counts))]
        )
        self.covariance_ = self._within_covariance(Z, codes, range(len(counts)))
        values, vectors, rank = symmetric_eigh(self.covariance_)
        # The mean of n equal numbers is off by at most n rounding errors.
        rounding = counts.max() * np.finfo(np.float64).eps * np.abs(self.location_)
        if np.all(np.diag(self.covariance_) <= rounding.max(axis=0) ** 2):
            raise ValueError(
                "The within-class covariance is zero: all features are constant "
                f"within each class (n_samples = {n_samples} in {len(counts)} "
                "classes). Give more than 1 sample per class."
            )
        if rank < n_features:
            warnings.warn(
                f"The within-class covariance is singular (rank {rank} of "
                f"{n_features}): distances are measured on its support only. Give more "
                "samples, drop constant features, or pass covariance=LedoitWolf().",
                SkoodWarning,
                stacklevel=5,
            )
        # z -> (z - center) @ whitener has covariance 1 within the classes
        self._whitener = vectors[:, -rank:] / np.sqrt(values[-rank:])
        self._center = self.location_.mean(axis=0)
        self._white_means = (self.location_ - self._center) @ self._whitener
        self._components = None
        if not self.tied:
            self._fit_components(Z, codes, counts, float(np.log(values[-rank:]).sum()))

    def _within_covariance(self, Z, codes, classes):
        """Covariance of the rows of `classes` around their class means."""
        if self.covariance is not None:
            rows = np.isin(codes, list(classes))
            residuals = Z[rows] - self.location_[codes[rows]]
            return np.asarray(clone(self.covariance).fit(residuals).covariance_)
        scatter = np.zeros((Z.shape[1], Z.shape[1]))
        for part in row_chunks(len(Z), 16 * Z.shape[1]):
            residuals = Z[part] - self.location_[codes[part]]
            scatter += residuals.T @ residuals
        return scatter / len(Z)

    def _fit_components(self, Z, codes, counts, log_det):
        """One Gaussian per class, in the whitened space of the tied covariance."""
        rank = self._whitener.shape[1]
        components, shrunk = [], []
        for k, count in enumerate(counts):
            white = (Z[codes == k] - self.location_[k]) @ self._whitener
            if self.covariance is None:
                own = white.T @ white / count
            else:
                own = np.asarray(clone(self.covariance).fit(white).covariance_)
            values, vectors, own_rank = symmetric_eigh(own)
            # The tied covariance is 1 here: what is below rounding is zero.
            if own_rank < rank or values[0] <= np.finfo(np.float64).eps:
                shrunk.append(k)
                values = (count * np.maximum(values, 0) + rank) / (count + rank)
            norm = rank * np.log(2 * np.pi) + log_det + np.log(values).sum()
            log_prior = np.log(count / counts.sum())
            components.append((vectors / np.sqrt(values), float(log_prior - norm / 2)))
        self._components = components
        if shrunk:
            names = getattr(self, "classes_", np.arange(1))[shrunk].tolist()
            warnings.warn(
                f"The covariances of the classes {names} are singular and were drawn "
                "to the tied one. Give more samples, or pass covariance=LedoitWolf().",
                SkoodWarning,
                stacklevel=6,
            )

    def _score_reading(self, reading):
        white = (reading.features - self._center) @ self._whitener
        if self._components is None:
            # |w - m|² = |w|² - 2 w·m + |m|², smallest over the means
            products = white @ (-2.0 * self._white_means.T)
            products += np.einsum("kd,kd->k", self._white_means, self._white_means)
            distances = np.einsum("id,id->i", white, white) + products.min(axis=1)
            return -np.maximum(distances, 0.0)
        log_density = np.empty((len(white), len(self._components)))
        for k, (whitener, constant) in enumerate(self._components):
            own = (white - self._white_means[k]) @ whitener
            log_density[:, k] = constant - np.einsum("id,id->i", own, own) / 2
        return logsumexp_rows(log_density)

"""Density under a Gaussian mixture (GMM)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.linalg.blas import dtrmm, dtrmv
from sklearn.mixture import GaussianMixture

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._class_moments import ClassMoments, is_constant
from skood.detectors._common._gaussian import shrunk, within_covariance
from skood.detectors._common._softmax import log_sum_exp
from skood.utils._array_api import as_double, row_dots
from skood.utils._linalg import check_no_overflow, precision_cholesky
from skood.utils._memory_maps import MappedRows
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._torch import row_chunks
from skood.utils._warnings import warn
from skood.utils._weights import repeated_samples, row_weight


class GMM(OutputDetector):
    r"""Log density of the features under a Gaussian mixture.

    .. math:: s(x) = \log \sum_k \pi_k \, \mathcal N(z; \mu_k, \Sigma_k)

    With ``n_components=None`` the components are the classes: :math:`\pi_k` is the
    fraction of class k among the training samples, :math:`\mu_k` and :math:`\Sigma_k`
    are its mean and covariance; without ``y`` there is one component. With a number,
    that many components are fitted by expectation maximization, and ``y`` is only used
    to leave out OOD samples.

    `reg_covar` is added to every variance, as in scikit-learn. "full" and "tied"
    covariances of fewer than 2d samples are shrunk as in :class:`Mahalanobis`; with
    expectation maximization they are shrunk after it, if there are fewer than 2d
    samples per component on average. With fewer than 5d samples per component, fewer
    new ID samples than `contamination` are rejected (measured: .02 to .04 for .05),
    since fits without a fold of the samples differ from the fit of all. If a feature
    has no variance, the density depends on `reg_covar` alone, and a warning is given.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features are used; cloned and fitted unless it is in
        a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features.

    n_components : int, default=None
        Number of components to fit. None: one per class, without iterations.

    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        One covariance per component, one for all, or variances per component: one
        per feature, or one.

    reg_covar : float, default=1e-6
        Added to the variances, in units of the features squared.

    tol : float, default=1e-3
        Convergence threshold: the smallest gain per sample of an iteration.

    max_iter : int, default=100
        Largest number of iterations.

    n_init : int, default=1
        Number of initializations; the best result is used.

    contamination : float, default=0.05
        Fraction of new ID samples to reject. With more than 5,000 training samples
        the threshold is estimated from 5,000, drawn with a fixed seed.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    random_state : int, RandomState instance or None, default=None
        Draws the initializations.

    Attributes
    ----------
    mixture_ : GaussianMixture
        The mixture; with ``n_components=None`` its components are in the order of
        ``classes_``.

    n_iter_ : int
        Number of iterations; 1, a pass over the samples, with ``n_components=None``.

    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Mahalanobis : With ``tied=False`` the same mixture of classes, but without
        `reg_covar`: covariances of few samples are regularized towards the tied one.
    sklearn.mixture.GaussianMixture : The underlying estimator.

    Notes
    -----
    All computations are in float64, on the CPU.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skood.detectors import GMM
    >>> X, y = load_iris(return_X_y=True)
    >>> detector = GMM().fit(X[:100], y[:100])
    >>> detector.mixture_.weights_
    array([0.5, 0.5])
    >>> detector.predict(X[100:110])  # the class left out
    array([-1, -1, -1, -1, -1, -1, -1, -1, -1, -1])
    """

    _few: Any

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical"})],
        "reg_covar": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    del _parameter_constraints["device"]

    _needs: ClassVar[frozenset] = frozenset({"features"})

    def __init__(
        self,
        estimator=None,
        *,
        n_components=None,
        covariance_type="full",
        reg_covar=1e-6,
        tol=1e-3,
        max_iter=100,
        n_init=1,
        contamination=0.05,
        ood_label=-1,
        random_state=None,
    ):
        super().__init__(estimator, contamination=contamination, ood_label=ood_label)
        del self.device  # scikit-learn computes on the CPU
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.reg_covar = reg_covar
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state

    def _fit_outputs(self, outputs, y):
        mixture = GaussianMixture(
            n_components=self.n_components or 1,
            covariance_type=self.covariance_type,
            reg_covar=self.reg_covar,
            tol=self.tol,
            max_iter=self.max_iter,
            n_init=self.n_init,
            random_state=self.random_state,
        )
        if self.n_components is None:
            features = outputs.features  # chunks of a file, which stays on disk
            if not isinstance(features, MappedRows):
                features = outputs.to(None).features
            self._take_classes(mixture, features, y, outputs.weight)
        else:
            features = as_double(outputs.to(None).features)
            spread = np.ptp(features, axis=0)
            check_no_overflow(spread @ spread, "The covariance matrix")
            what = f"the GaussianMixture of GMM(n_components={self.n_components})"
            samples = repeated_samples(features, outputs.weight, what)
            self._shrink(mixture.fit(samples), len(samples))
        self.mixture_ = mixture
        self.n_iter_ = mixture.n_iter_
        if self.covariance_type == "full":
            self._constants = _log_constants(mixture)

    def _take_classes(self, mixture, features, y, weight):
        """Set a mixture to the fractions, means and covariances of the classes."""
        if y is None:
            y = np.zeros(len(features), dtype=np.intp)
        classes, codes = np.unique(y, return_inverse=True)
        kind = self.covariance_type
        few = self._few if self._is_fold else None
        means, covariances, self._few = _statistics(features, codes, kind, weight, few)
        self._shrinks = np.any(self._few)
        singular = _singular(means, covariances, kind)
        if singular.any() and self.reg_covar == 0:
            raise self._not_definite()
        if singular.any():
            names = classes.tolist() if kind == "tied" else classes[singular].tolist()
            warn(
                f"The covariance of the classes {names} is singular (n_samples = "
                f"{len(features)}, n_features = {features.shape[1]}): in some "
                f"directions reg_covar={self.reg_covar} alone makes the density. Give "
                "more samples, drop constant features, raise reg_covar, or use "
                "covariance_type='tied' or 'diag'."
            )
        if kind in ("full", "tied"):
            covariances = covariances + self.reg_covar * np.eye(features.shape[1])
        else:
            covariances = covariances + self.reg_covar
        if kind == "spherical":
            covariances = covariances.mean(axis=1)
        mixture.n_components = len(classes)
        mixture.n_features_in_ = features.shape[1]
        counts = np.bincount(codes, weights=weight)
        mixture.weights_ = counts / counts.sum()
        mixture.means_ = means
        self._set_covariances(mixture, covariances)
        mixture.converged_ = True
        mixture.n_iter_ = 1

    def _shrink(self, mixture, n_samples):
        """Shrink covariances fitted by expectation maximization to few samples."""
        is_tied = self.covariance_type == "tied"
        if not is_tied and self.covariance_type != "full":
            return
        n_features = mixture.means_.shape[1]
        if not self._is_fold:
            n_parts = 1 if is_tied else self.n_components
            self._few = n_samples < 2 * n_parts * n_features
        if not self._few:
            return
        varies = np.ones(n_features, dtype=bool)
        if is_tied:
            covariances, _ = shrunk(mixture.covariances_, varies, n_samples, True)
        else:
            pairs = zip(mixture.covariances_, n_samples * mixture.weights_, strict=True)
            covariances = np.stack(
                [shrunk(covariance, varies, n, True)[0] for covariance, n in pairs]
            )
        self._set_covariances(mixture, covariances)

    def _set_covariances(self, mixture, covariances):
        """Set the covariances of a mixture, and their inverses."""
        mixture.covariances_ = covariances
        mixture.precisions_cholesky_ = factors = self._factors(covariances)
        if self.covariance_type in ("full", "tied"):
            mixture.precisions_ = factors @ np.swapaxes(factors, -1, -2)
        else:
            mixture.precisions_ = factors**2

    def _factors(self, covariances):
        """Return Cholesky factors of the inverse covariances, as in scikit-learn."""
        try:
            if self.covariance_type == "full":
                return np.stack(
                    [precision_cholesky(covariance) for covariance in covariances]
                )
            if self.covariance_type == "tied":
                return precision_cholesky(covariances)
        except np.linalg.LinAlgError as error:
            raise self._not_definite() from error
        return 1.0 / np.sqrt(covariances)

    def _not_definite(self):
        return ValueError(
            "A covariance is not positive definite, also with reg_covar="
            f"{self.reg_covar} added to the variances. Raise reg_covar, scale X, drop "
            "constant features, or give more samples per class."
        )

    def _score_outputs(self, outputs):
        features = as_double(outputs.features)
        if self.covariance_type != "full":
            return self.mixture_.score_samples(features)
        mixture = self.mixture_
        factors = mixture.precisions_cholesky_
        if len(features) == 1:  # for the speed of small calls
            white = features - mixture.means_
            for gap, factor in zip(white, factors, strict=True):
                gap[:] = dtrmv(factor.T, gap, lower=True, overwrite_x=True)
            densities = (self._constants - 0.5 * row_dots(white, white))[None]
        else:
            densities = np.empty((len(features), len(factors)))
            parts = zip(mixture.means_, factors, self._constants, strict=True)
            for k, (mean, factor, constant) in enumerate(parts):
                squares = _squared_lengths(features - mean, factor)
                densities[:, k] = constant - 0.5 * squares
        far = np.isneginf(densities).all(axis=1)
        densities[far] = 0.0  # without a warning
        scores = log_sum_exp(densities)
        scores[far] = -np.inf
        return scores


def _log_constants(mixture):
    """Return the logarithms of the weighted densities at the means."""
    log_det = np.log(np.einsum("kjj->kj", mixture.precisions_cholesky_)).sum(axis=1)
    constants = log_det - 0.5 * np.log(2 * np.pi) * mixture.means_.shape[1]
    with np.errstate(divide="ignore"):  # a weight may be 0
        return np.log(mixture.weights_) + constants


def _squared_lengths(gaps, factor):
    """Return the squared length of each row times an upper triangular matrix.

    A triangular product needs half the memory and the arithmetic of a full one.
    """
    white = dtrmm(1.0, factor.T, gaps.T, lower=True, overwrite_b=True)
    return np.einsum("ij,ij->j", white, white)


def _chunks(features, indices):
    """Yield chunks of indices of samples, in bounded memory."""
    for chunk in row_chunks(len(indices), 32 * features.shape[1]):
        yield indices[chunk]


def _moments(features, indices, weight, codes=None):
    """Return moments of some samples, by their codes if these are given."""
    moments = ClassMoments()
    for chunk in _chunks(features, indices):
        labels = None if codes is None else codes[chunk]
        moments = moments.updated(features[chunk], labels, row_weight(weight, chunk))
    return moments


def _statistics(features, codes, kind, weight, few=None):
    """Return means, covariances or variances of the classes, and which are shrunk."""
    if kind == "tied":
        moments = _moments(features, np.arange(len(codes)), weight, codes)
        return moments.means, *within_covariance(moments, few)
    groups = [np.flatnonzero(codes == k) for k in range(codes.max() + 1)]
    if kind == "full":
        of_groups = [_moments(features, indices, weight) for indices in groups]
        means = np.concatenate([group.means for group in of_groups])
        few = [None] * len(of_groups) if few is None else few
        pairs = [within_covariance(*pair) for pair in zip(of_groups, few, strict=True)]
        covariances, few = zip(*pairs, strict=True)
        return means, np.stack(covariances), few
    pairs = [_mean_and_variance(features, indices, weight) for indices in groups]
    means, variances = (np.stack(statistic) for statistic in zip(*pairs, strict=True))
    return means, variances, False


def _mean_and_variance(features, indices, weight):
    """Return mean and variance of each feature; exactly 0 for constants."""
    origin = np.array(features[indices[0]], dtype=np.float64)
    total, squares = 0.0, 0.0
    count = len(indices) if weight is None else weight[indices].sum()
    for chunk in _chunks(features, indices):
        offsets = features[chunk] - origin
        if weight is not None:
            offsets *= weight[chunk][:, None]
        total = total + offsets.sum(axis=0)
    mean = total / count
    for chunk in _chunks(features, indices):
        offsets = features[chunk] - origin
        offsets -= mean
        if weight is not None:
            offsets *= np.sqrt(weight[chunk])[:, None]
        squares = squares + np.einsum("ij,ij->j", offsets, offsets)
    return origin + mean, squares / count


def _singular(means, covariances, kind):
    """Return which components have a feature without variance."""
    if kind == "tied":
        return is_constant(np.diag(covariances), np.abs(means).max(axis=0)).any(
            keepdims=True
        )
    variances = np.einsum("kjj->kj", covariances) if kind == "full" else covariances
    return is_constant(variances, means).any(axis=1)

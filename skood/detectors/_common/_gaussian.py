"""Covariances, and whitening for Mahalanobis distances."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from skood.detectors._common._class_moments import is_constant
from skood.detectors._common._partial_fit import NotEnoughRows
from skood.utils._array_api import centered_rows, nearest, row_dots
from skood.utils._linalg import symmetric_eigh
from skood.utils._routing import weight_params
from skood.utils._stored import stored
from skood.utils._warnings import warn
from skood.utils._weights import has_others, left_out_weight, repeated_samples

# A sample with a leverage this close to 1 alone spans a direction: without it the
# covariance has a lower rank, so that a formula with the inverse does not apply.
ALONE = 1e-9


def fitted_covariance(owner, residuals, weight=None):
    """Return the covariance from a clone of the scikit-learn estimator of a detector.

    Its parameter ``covariance`` is this estimator. If it does not take weights, rows
    are repeated by integer weights.
    """
    fitted, params = clone(owner.covariance), {}
    if weight is not None and has_fit_parameter(fitted, "sample_weight"):
        params = weight_params(owner, "covariance", fitted, weight)
    else:
        what = f"covariance={owner.covariance!r}"
        residuals = repeated_samples(residuals, weight, what)
    return np.asarray(fitted.fit(residuals, **params).covariance_, dtype=np.float64)


def shrunk(covariance, varies, n_samples, few=None):
    r"""Return a covariance, shrunk for few samples, and whether it was shrunk.

    With fewer than 2d samples, where d is the number of features that vary, the
    correlation matrix R becomes :math:`(1 - \rho) R + \rho I` by the oracle
    approximating shrinkage of Y. Chen, A. Wiesel, Y. C. Eldar and A. O. Hero,
    "Shrinkage algorithms for MMSE covariance estimation", IEEE Trans. Signal Processing
    58, 2010, Eq. (23), with :math:`\operatorname{tr} R = d`:

    .. math:: \rho = \min\left(1, \frac{(1 - 2/d) \operatorname{tr} R^2 + d^2}
        {(n + 1 - 2/d) (\operatorname{tr} R^2 - d)}\right)

    The inverse without it depends on the smallest eigenvalues, which are near zero for
    n near d and change with each sample. Correlations are shrunk, since they do not
    depend on the scales of the features.

    `few`: the result of the fit on all samples, for a fit without some of them.
    """
    d = np.count_nonzero(varies)
    few = n_samples < 2 * d if few is None else few
    if not few or d == 0:
        return covariance, False
    scale = np.sqrt(np.where(varies, np.diag(covariance), np.inf))
    squared = np.sum((covariance / scale / scale[:, None]) ** 2)
    optimum = (1 - 2 / d) * squared + d**2
    excess = (n_samples + 1 - 2 / d) * (squared - d)
    result = covariance * (1 - optimum / excess if optimum < excess else 0.0)
    np.fill_diagonal(result, np.diag(covariance))
    return result, True


def within_covariance(moments, few=None):
    """Return the covariance around the class means, and whether it is `shrunk`.

    The number of samples is n - C + 1 with C classes, whose means are subtracted.
    """
    covariance = moments.within() / moments.counts.sum()
    varies = ~is_constant(np.diag(covariance), np.abs(moments.means).max(axis=0))
    # weights whose sum is less than the number of samples are scaled to it
    n_samples = max(moments.counts.sum(), moments.n_samples.sum())
    return shrunk(covariance, varies, n_samples - len(moments.counts) + 1, few)


def covariance_part(parts, covariance):
    """Return the fitted parts of a detector, with its covariance estimator if any."""
    return parts if covariance is None else {**parts, "covariance": covariance}


def check_spread(covariance, moments, what):
    """Return which features vary; raise if all are constant."""
    varies = ~is_constant(np.diag(covariance), np.abs(moments.means).max(axis=0))
    if varies.any():
        return varies
    n_samples, n_classes = int(moments.counts.sum()), len(moments.counts)
    if n_classes == 1:
        raise NotEnoughRows(
            f"{what} is zero: no feature varies, up to rounding (n_samples = "
            f"{n_samples}, n_features = {len(varies)}). Give more samples, or scale "
            "features that are too small to be squared."
        )
    raise NotEnoughRows(
        f"{what} is zero: all features are constant within each class, up to rounding "
        f"(n_samples = {n_samples} in {n_classes} classes, n_features = "
        f"{len(varies)}). Give more than 1 sample per class, or scale features that "
        "are too small to be squared."
    )


def _inverse_root(covariance, varies):
    """Return a root of the (pseudo-)inverse of a covariance, and its log determinant.

    The rank is the rank of the correlation matrix, which does not depend on the scales
    of the features. Below full rank the pseudo-inverse, which depends on the scales, is
    that of the covariance, without directions below the rounding error of the largest
    variance.
    """
    varying = covariance[np.ix_(varies, varies)]
    scale = np.sqrt(np.diag(varying))
    values, vectors, rank = symmetric_eigh(varying / scale / scale[:, None])
    log_scale = np.log(scale).sum()
    if rank == len(values):
        vectors /= scale[:, None]
    else:
        values, vectors, rank = symmetric_eigh(varying)
        values, vectors = values[-rank:], vectors[:, -rank:]
        log_scale = 0.0
    matrix = np.zeros((len(varies), rank))
    matrix[varies] = vectors / np.sqrt(values)
    return matrix, float(np.log(values).sum() + 2 * log_scale)


@stored
class Whitening:
    """Whitening transformation of a covariance, restricted to its support.

    Distances are to the means of `moments`. Constant features are left out; a warning
    with the name `what` is given if a singular covariance leaves out others. The
    product ``matrix @ matrix.T`` is the (pseudo-)inverse of the covariance, and
    ``log_det`` the logarithm of the product of its non-zero eigenvalues.
    """

    def __init__(self, covariance, moments, what):
        varies = check_spread(covariance, moments, what)
        self.matrix, self.log_det = _inverse_root(covariance, varies)
        n_features, rank = self.matrix.shape
        # features that are constant over all samples are left out
        between = np.var(moments.offsets, axis=0)
        varies |= ~is_constant(between, np.abs(moments.means).max(axis=0))
        if rank < np.count_nonzero(varies):
            warn(
                f"{what} is singular (rank {rank} of {n_features}): distances are "
                "measured on its support only. Give more samples, drop features that "
                "others determine, or pass covariance=LedoitWolf()."
            )
        # Relative to a point between the means, so that no difference cancels.
        self.center = moments.origin + moments.offsets.mean(axis=0)
        self._offsets = moments.offsets - (self.center - moments.origin)
        self.means = self._offsets @ self.matrix

    def apply(self, features, asarray):
        """Whiten rows; `asarray` moves arrays to their device."""
        return centered_rows(features, asarray(self.center)) @ asarray(self.matrix)

    def gaps(self, features, index):
        """Return rows minus the means with these indices, before whitening; NumPy."""
        return (features - self.center) - self._offsets[index]

    def onnx_apply(self, features):
        """Return whitened features in an ONNX graph."""
        return (features - self.center) @ self.matrix

    def squared_distances(self, features, asarray):
        """Return squared distances of rows to their nearest means, and the indices."""
        return nearest(self.apply(features, asarray), asarray(self.means))


def contributions(gaps, matrix):
    r"""Return the contributions of features to squared Mahalanobis distances.

    Feature j of :math:`g = z - \mu` contributes :math:`g_j (\Sigma^{-1} g)_j`, negative
    if the other features alone would suggest a larger distance; they sum to the
    distance.
    """
    return gaps * ((gaps @ matrix) @ matrix.T)


def deviations(matrix):
    """Return standard deviations of features from a root of their precision matrix.

    The precision is ``matrix @ matrix.T``; constant features have the deviation 0.
    """
    return np.linalg.norm(np.linalg.pinv(matrix), axis=0)


def left_out_distances(whitening, moments, white, codes, weight=None):
    r"""Return leave-one-out squared Mahalanobis distances of training samples.

    Without a sample of class k of weight a (1, if there are no weights), with :math:`g
    = z - \mu_k`, the scatter :math:`n \Sigma` is reduced by :math:`u u^\top` with
    :math:`u = \sqrt{a n_k / (n_k - a)} \, g`, and :math:`g` is multiplied by :math:`n_k
    / (n_k - a)` (Welford, Technometrics 4, 1962). So by the Sherman-Morrison formula
    (Annals of Mathematical Statistics 21, 1950)

    .. math:: v^\top \Sigma'^{-1} v = \frac{n - a}{n} \left( v^\top \Sigma^{-1} v
        + \frac{(v^\top \Sigma^{-1} u)^2}{n - u^\top \Sigma^{-1} u} \right) .

    `whitening` is of the maximum likelihood covariance of `moments`; `white` are
    whitened samples, and `codes` their class indices. The result is (n_samples,
    n_classes): NaN for the only sample of a class; None if a sample is the only one
    with a component in some direction.
    """
    n_samples, counts = moments.counts.sum(), moments.counts[codes]
    gone = left_out_weight(weight)
    is_left = has_others(counts, gone)
    growth = counts / np.where(is_left, counts - gone, gone)
    means = whitening.means
    class_gaps = white - means[codes]
    u = np.sqrt(gone * growth)[:, None] * class_gaps
    left = n_samples - row_dots(u, u)
    if left.min() <= ALONE * n_samples:
        return None
    squared = white @ (-2.0 * means.T) + row_dots(means, means)
    squared += row_dots(white, white)[:, None]
    indices = np.arange(len(codes))
    squared[indices, codes] = row_dots(class_gaps, class_gaps)
    along = row_dots(white, u)[:, None] - u @ means.T  # from each mean
    squared += along**2 / left[:, None]
    squared[indices, codes] *= growth**2
    squared *= np.reshape((n_samples - gone) / n_samples, (-1, 1))
    squared[~is_left] = np.nan
    return squared

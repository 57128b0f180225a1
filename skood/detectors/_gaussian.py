"""Covariances, and the whitening that makes Mahalanobis distances Euclidean."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.base import clone

from skood.detectors._streaming import NotEnoughRows
from skood.utils._arrays import nearest
from skood.utils._linalg import symmetric_eigh
from skood.utils._warnings import warn

__all__ = ["Whitening", "check_spread", "contributions", "fitted_covariance"]


def fitted_covariance(estimator, residuals):
    """Return the covariance that a clone of a scikit-learn estimator gives."""
    return np.asarray(clone(estimator).fit(residuals).covariance_, dtype=np.float64)


def check_spread(covariance, means, counts, what):
    """Raise if a covariance is zero up to rounding: there is nothing to scale by."""
    # The mean of n equal numbers is off by at most n rounding errors.
    rounding = counts.max() * np.finfo(np.float64).eps * np.abs(means)
    if np.all(np.diag(covariance) <= rounding.max(axis=0) ** 2):
        raise NotEnoughRows(
            f"{what} is zero: all features are constant within each class (n_samples "
            f"= {int(counts.sum())} in {len(counts)} classes, n_features = "
            f"{means.shape[1]}). Give more than 1 sample per class."
        )


class Whitening:
    """A linear map after which a covariance is one, on its support.

    Parameters
    ----------
    covariance : ndarray of shape (n_features, n_features)
        Positive semidefinite.

    means : ndarray of shape (n_means, n_features)
        Distances to these are measured.

    what : str
        What a warning about a singular covariance calls it.

    Attributes
    ----------
    matrix : ndarray of shape (n_features, rank)
        ``matrix @ matrix.T`` is the (pseudo-)inverse of the covariance.

    log_det : float
        Logarithm of the product of the non-zero eigenvalues.
    """

    def __init__(self, covariance, means, what):
        values, vectors, rank = symmetric_eigh(covariance)
        n_features = len(values)
        if rank < n_features:
            warn(
                f"{what} is singular (rank {rank} of {n_features}): distances are "
                "measured on its support only. Give more samples, drop constant "
                "features, or pass covariance=LedoitWolf().",
            )
        self.matrix = vectors[:, -rank:] / np.sqrt(values[-rank:])
        self.log_det = float(np.log(values[-rank:]).sum())
        # Measured from a point among the means, so that no difference cancels.
        self.center = means.mean(axis=0)
        self.means = (means - self.center) @ self.matrix

    def apply(self, rows, asarray):
        """Whiten rows; `asarray` brings arrays to where they are."""
        return (rows - asarray(self.center)) @ asarray(self.matrix)

    def squared_distances(self, rows, asarray):
        """Squared distance of each row to its nearest mean, and which one that is."""
        return nearest(self.apply(rows, asarray), asarray(self.means))


def contributions(gaps, matrix):
    r"""Parts of each feature in squared Mahalanobis distances.

    Feature j of :math:`g = z - \mu` contributes :math:`g_j (\Sigma^{-1} g)_j`: the
    parts sum to the distance. One of them is negative where the other features alone
    would let a larger distance expect.

    Parameters
    ----------
    gaps : ndarray of shape (n_samples, n_features)
        Rows minus means.

    matrix : ndarray of shape (n_features, rank)
        With ``matrix @ matrix.T`` the inverse covariance.

    Returns
    -------
    parts : ndarray of shape (n_samples, n_features)
        They sum to the squared distances.
    """
    return gaps * ((gaps @ matrix) @ matrix.T)

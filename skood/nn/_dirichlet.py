"""Mixin for classifiers that predict Dirichlet distributions."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABCMeta, abstractmethod

import numpy as np
from scipy.special import entr
from sklearn.utils import Bunch

from skood.base import UncertaintyMixin


def dirichlet_mean(alpha):
    """Return the mean of Dirichlet distributions, (n_samples, n_classes)."""
    return alpha / alpha.sum(axis=1, keepdims=True)


def dirichlet_uncertainty(alpha, u=None):
    """Return uncertainties of `alpha` (n_samples, n_classes); `u` is the vacuity."""
    total = alpha.sum(axis=1)
    mean = alpha / total[:, None]
    return Bunch(
        total=entr(mean).sum(axis=1),
        aleatoric=-mean.max(axis=1),
        epistemic=alpha.shape[1] / total if u is None else u,
    )


@UncertaintyMixin.register  # an interface without code of its own
class DirichletMixin(metaclass=ABCMeta):
    """Mixin for classifiers that predict Dirichlet distributions.

    The class implements ``predict_alpha(X)`` and has the attribute ``classes_``.
    """

    classes_: np.ndarray

    @abstractmethod
    def predict_alpha(self, X):
        """Return the Dirichlet parameters, of shape (n_samples, n_classes)."""

    def predict_proba(self, X):
        """Return the mean of the Dirichlet distribution.

        Parameters
        ----------
        X : NodeSet, array-like or torch.Tensor of shape (n_samples, ...)
            Samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), dtype float64
            Probabilities in the order of ``classes_``.
        """
        return dirichlet_mean(self.predict_alpha(X))

    def predict(self, X):
        """Return the class with the most evidence.

        Parameters
        ----------
        X : NodeSet, array-like or torch.Tensor of shape (n_samples, ...)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels; the first class of a tie.
        """
        alpha = self.predict_alpha(X)
        return self.classes_[alpha.argmax(axis=1)]

    def predict_uncertainty(self, X):
        """Return total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : NodeSet, array-like or torch.Tensor of shape (n_samples, ...)
            Samples.

        Returns
        -------
        uncertainty : Bunch
            ``total``, the entropy of the mean, ``aleatoric``, minus its largest
            probability, and ``epistemic``, the vacuity, each an ndarray of shape
            (n_samples,), larger for more uncertain samples.
        """
        return dirichlet_uncertainty(self.predict_alpha(X))

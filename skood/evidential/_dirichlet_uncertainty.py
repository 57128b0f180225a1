"""Uncertainty measures of Dirichlet distributions, with propagation on graphs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod

import numpy as np
from sklearn.utils import Bunch

from skood.base import UncertaintyMixin
from skood.epistemic import entropy
from skood.evidential._subjective import vacuity
from skood.graph._node_set import NodeSet

__all__ = [
    "DirichletMixin",
    "dirichlet_uncertainty",
    "evidential_uncertainty",
    "whole_graph",
]

# Steps and teleport of the random walk that averages evidence, or vacuity.
_EVIDENCE_WALK = 10, 0.1
_VACUITY_WALK = 30, 0.02


def whole_graph(X):
    """Return all nodes of the graph of a `NodeSet`; other samples unchanged."""
    return X.whole() if isinstance(X, NodeSet) else X


def evidential_uncertainty(alpha, X, *, propagation=None, steps=None, teleport=None):
    """Return total, aleatoric and epistemic uncertainty of Dirichlet distributions.

    Parameters
    ----------
    alpha : ndarray of shape (n_nodes, n_classes)
        Parameters of the distributions of all nodes of the graph of `X`, or of all
        samples of an array.

    X : NodeSet or array-like
        The samples.

    propagation : {"vacuity", "evidence", "both"} or None, default=None
        Values that a random walk averages over neighbors: the vacuity; the parameters;
        or first the parameters and then the vacuity. Samples of arrays have no
        neighbors.

    steps : int, default=None
        Number of steps of the walk. None: 30 of "vacuity", 10 of "evidence".

    teleport : float, default=None
        Teleport of the walk. None: 0.02 of "vacuity", 0.1 of "evidence".

    Returns
    -------
    uncertainty : Bunch
        ``total``, the entropy of the mean; ``aleatoric``, minus the largest
        probability of the mean; ``epistemic``, the vacuity. Each of shape (n_samples,).
    """
    if not isinstance(X, NodeSet):
        return dirichlet_uncertainty(alpha)
    from skood.graph._propagation import propagate

    def walk(values, usual):
        return propagate(
            values,
            X,
            scheme="random-walk",
            steps=usual[0] if steps is None else steps,
            teleport=usual[1] if teleport is None else teleport,
        )

    if propagation in ("evidence", "both"):
        alpha = walk(alpha, _EVIDENCE_WALK)
    u = vacuity(alpha)
    if propagation in ("vacuity", "both"):
        u = walk(u, _VACUITY_WALK)
    return dirichlet_uncertainty(alpha[X.nodes], u[X.nodes])


def dirichlet_uncertainty(alpha, u=None):
    """Return total, aleatoric and epistemic uncertainty without propagation.

    For `alpha` of shape (n_samples, n_classes); `u` of shape (n_samples,) replaces the
    vacuity. See `evidential_uncertainty`.
    """
    u = vacuity(alpha) if u is None else u
    mean = alpha / alpha.sum(axis=1, keepdims=True)
    return Bunch(total=entropy(np.log(mean)), aleatoric=-mean.max(axis=1), epistemic=u)


class DirichletMixin(UncertaintyMixin):
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
        alpha = self.predict_alpha(X)
        return alpha / alpha.sum(axis=1, keepdims=True)

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

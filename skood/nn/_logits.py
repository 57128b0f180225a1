"""Mixin for classifiers that predict logits."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections.abc import Callable

import numpy as np
from scipy.special import softmax


class LogitsMixin:
    """Mixin for classifiers with ``predict_logits``: margins, probabilities, classes.

    The class implements ``predict_logits(X)`` and has the attribute ``classes_``.
    """

    predict_logits: Callable[..., np.ndarray]  # of shape (n_samples, n_classes)

    def decision_function(self, X):
        """Return the logits, or for two classes the second minus the first.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Larger for the class; with two classes, above zero means ``classes_[1]``.
        """
        logits = self.predict_logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X):
        """Return the softmax of the logits.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), dtype float64
            Probability of each class, in the order of ``classes_``.
        """
        return softmax(np.asarray(self.predict_logits(X), dtype=np.float64), axis=1)

    def predict(self, X):
        """Return the class with the largest logit.

        Parameters
        ----------
        X : array-like or torch.Tensor of shape (n_samples, ...)
            Input samples.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels.
        """
        logits = self.predict_logits(X)
        return self.classes_[logits.argmax(axis=1)]  # type: ignore[attr-defined]

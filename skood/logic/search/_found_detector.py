"""What a search does with the detector that it has found."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.utils.validation import check_is_fitted

from skood.base import BaseDetector
from skood.utils._input import takes_input

__all__ = ["FoundDetector"]


def _of_estimator(name):
    """An attribute that is one of ``estimator_``, and changes with it."""
    return property(
        lambda self: getattr(self.estimator_, name), doc=f"``estimator_.{name}``."
    )


class FoundDetector(BaseDetector):
    """Base class of a detector that does what its ``estimator_`` does.

    Parameters
    ----------
    contamination, ood_label
        See `BaseDetector`.
    """

    knowledge_base_ = _of_estimator("knowledge_base_")
    constraints_ = _of_estimator("constraints_")
    weights_ = _of_estimator("weights_")
    concepts_ = _of_estimator("concepts_")
    classes_ = _of_estimator("classes_")
    offset_ = _of_estimator("offset_")

    def _score(self, X):
        return self.estimator_._score(X)

    def score(self, X, y):
        """Area under the ROC curve of ID against OOD samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        y : array-like of shape (n_samples, n_concepts) or (n_samples,)
            Labels; see :meth:`MLNDetector.score`.

        Returns
        -------
        auroc : float
            Probability that an ID sample scores above an OOD one, ties counting one
            half.
        """
        check_is_fitted(self, "offset_")
        return self.estimator_.score(X, y)

    @takes_input
    def predict_concepts(self, X):
        """Read the concepts; see :meth:`MLNDetector.predict_concepts`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        concepts : ndarray of shape (n_samples, n_concepts)
            The predicted values.
        """
        check_is_fitted(self, "offset_")
        return self.estimator_.predict_concepts(X)

    def concept_proba(self, X):
        """Probabilities of concepts; see :meth:`MLNDetector.concept_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        proba : list of ndarray of shape (n_samples, n_values)
            One array for each concept.
        """
        check_is_fitted(self, "offset_")
        return self.estimator_.concept_proba(X)

    def penalty(self, X):
        """Penalty of each sample; see :meth:`MLNDetector.penalty`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        Returns
        -------
        penalty : ndarray of shape (n_samples,), dtype float64
            High = OOD.
        """
        check_is_fitted(self, "offset_")
        return self.estimator_.penalty(X)

    def set_weights(self, weights):
        """Replace weights by hand; see :meth:`MLNDetector.set_weights`.

        Parameters
        ----------
        weights : array-like of shape (n_constraints,) or dict of str to float
            Weights by constraint, or by its name or text in a dict.

        Returns
        -------
        self : object
            The detector, with other `weights_` and `offset_`. What it reports of
            validation and test rows stays that of the weights before.
        """
        check_is_fitted(self, "offset_")
        self.estimator_.set_weights(weights)
        return self

    @takes_input
    def explain(self, X, *, as_frame=False):
        """Say which constraints each sample breaks; see :meth:`MLNDetector.explain`.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            The samples.

        as_frame : bool, default=False
            Whether to return a pandas.DataFrame.

        Returns
        -------
        explanation : list of Bunch, or pandas.DataFrame
            One for each sample.
        """
        check_is_fitted(self, "offset_")
        return self.estimator_.explain(X, as_frame=as_frame)

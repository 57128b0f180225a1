"""Base class of a detector that delegates to the detector found by a search."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.utils.validation import check_is_fitted

from skood.base import BaseDetector
from skood.utils._input import takes_input

__all__ = ["FoundDetector"]


def _of_estimator(name):
    """Return a property that delegates to ``estimator_``."""
    return property(
        lambda self: getattr(self.estimator_, name), doc=f"``estimator_.{name}``."
    )


class FoundDetector(BaseDetector):
    """Base class of a detector that delegates to its ``estimator_``.

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
        """Return the area under the ROC curve of ID against OOD samples.

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
        """Predict the concepts; see :meth:`MLNDetector.predict_concepts`.

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
        """Return the probabilities of concepts; see :meth:`MLNDetector.concept_proba`.

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
        """Return the penalty of each sample; see :meth:`MLNDetector.penalty`.

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
        """Set weights of constraints; see :meth:`MLNDetector.set_weights`.

        Parameters
        ----------
        weights : array-like of shape (n_constraints,) or dict of str to float
            Weights by constraint, or by its name or string in a dict.

        Returns
        -------
        self : object
            The detector, with updated `weights_` and `offset_`. The reported validation
            and test results are not recomputed.
        """
        check_is_fitted(self, "offset_")
        self.estimator_.set_weights(weights)
        return self

    @takes_input
    def explain(self, X, *, as_frame=False):
        """Return the violated constraints of samples; see :meth:`MLNDetector.explain`.

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

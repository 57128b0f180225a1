"""One head of a multi-head network as a classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import weakref

from sklearn.base import ClassifierMixin

from skood.nn._logits import LogitsMixin
from skood.utils._estimator import SkoodEstimator

__all__ = ["HeadClassifier", "copy_with_same_net"]


def copy_with_same_net(classifier):
    """Return a copy of a fitted classifier that shares its network.

    All existing heads get the same copy, so that pickles contain it once, unless
    parameters or the network have changed in between. `classifier` stores the copy as
    long as a head needs it; the copy does not change when it is fitted again.
    """
    state = {k: v for k, v in vars(classifier).items() if k != "_copy_of_heads"}
    copied = getattr(classifier, "_copy_of_heads", lambda: None)()
    if copied is not None and vars(copied).keys() == state.keys():
        if all(value is state[name] for name, value in vars(copied).items()):
            return copied
    copied = object.__new__(type(classifier))
    vars(copied).update(state)
    classifier._copy_of_heads = weakref.ref(copied)
    return copied


class HeadClassifier(LogitsMixin, ClassifierMixin, SkoodEstimator):
    """One head of a fitted `MultiHeadClassifier`, see its method ``head``.

    Parameters
    ----------
    classifier : MultiHeadClassifier
        A fitted classifier.

    column : int
        Index of the column.
    """

    def __init__(self, classifier, column):
        self.classifier = classifier
        self.column = column

    def __sklearn_is_fitted__(self):
        return True

    def __getattr__(self, name):
        # attributes of the fitted classifier, such as the feature names
        if name in ("input_shape_", "n_features_in_", "feature_names_in_", "device"):
            return getattr(self.classifier, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")

    @property
    def classes_(self):
        """Class labels of the column."""
        return self.classifier._each()[self.column]

    @property
    def module_(self):
        """Return the body and the head, as a torch module."""
        return self.classifier.module_.one_head(self.column)

    def _prepare_input(self, X):
        return self.classifier._prepare_input(X)

    def fit(self, X, y=None):
        """Raise, because a head is not trained alone."""
        raise TypeError(
            "A head is trained together with the others, by fit of the "
            "MultiHeadClassifier. Keep it in the FrozenEstimator that its method head "
            "returned."
        )

    def predict_logits(self, X):
        """Return the logits, an ndarray of shape (n_samples, n_classes)."""
        logits = self.classifier.predict_logits(X)
        return logits if self.classifier.n_outputs_ == 1 else logits[self.column]

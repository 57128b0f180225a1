"""Look at what an estimator wraps."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.frozen import FrozenEstimator

__all__ = ["check_one_column", "copy_input_attributes", "unwrapped"]


def unwrapped(estimator):
    """Look through frozen estimators and finished searches.

    Parameters
    ----------
    estimator : object
        A fitted estimator.

    Returns
    -------
    estimator : object
        The first that is neither frozen nor a search.
    """
    while True:
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return estimator


def check_one_column(estimator):
    """Raise if a fitted classifier has classes of several columns of labels.

    Parameters
    ----------
    estimator : object
        A classifier whose labels are to be read.

    Raises
    ------
    ValueError
        If its ``classes_`` are those of several columns.
    """
    classes = getattr(estimator, "classes_", None)
    if isinstance(classes, list) and np.ndim(classes[0]):  # a skorch net lists labels
        raise ValueError(
            f"This {type(unwrapped(estimator)).__name__} was fitted on several columns "
            "of y, and one label per row is read here: give the classifier of one "
            "column, such as head(0) of a MultiHeadClassifier."
        )


def copy_input_attributes(owner, fitted):
    """Let a meta-estimator know the features that what it wraps was fitted on.

    Parameters
    ----------
    owner : object
        Gets ``n_features_in_`` and ``feature_names_in_``.

    fitted : object
        Has them, or does not.
    """
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(fitted, name):
            setattr(owner, name, getattr(fitted, name))

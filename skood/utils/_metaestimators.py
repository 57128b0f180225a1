"""Look at what an estimator wraps."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state

from skood.utils._warnings import warn

__all__ = [
    "check_one_column",
    "copy_input_attributes",
    "unwrapped",
    "warn_of_known_classes",
    "with_seeds",
]


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


def warn_of_known_classes(estimator, y, is_ood, ood_label):
    """Warn if a frozen classifier has classes that count as OOD here.

    Parameters
    ----------
    estimator : object
        A fitted estimator whose parameters may hold frozen classifiers.

    y : ndarray of shape (n_samples,)
        Labels.

    is_ood : ndarray of shape (n_samples,), dtype bool
        Which samples count as OOD.

    ood_label : int or str
        Label of known OOD samples.
    """
    if not hasattr(estimator, "get_params") or np.ndim(y) != 1:
        return
    left_out = {v for v in np.asarray(y)[is_ood].tolist() if v != ood_label}
    for name, part in estimator.get_params().items() if left_out else ():
        if not isinstance(part, FrozenEstimator):
            continue
        classes = getattr(part, "classes_", None)
        if classes is None or np.ndim(classes) != 1:
            continue
        known = sorted(left_out.intersection(np.asarray(classes).tolist()), key=str)
        if known:
            warn(
                f"The samples of the classes {known} count as OOD, but {name}, a "
                f"frozen {type(unwrapped(part)).__name__}, was fitted on these "
                "classes: the scores rank nothing that is new to it. Pass the "
                "classifier unfrozen, so that it is fitted without them in each "
                "split, or score samples "
                f"with the label ood_label={ood_label!r}."
            )
            return


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


def with_seeds(estimators, random_state):
    """Seed the parts of a meta-estimator from its `random_state`.

    Parameters
    ----------
    estimators : iterable of object
        Unfitted or frozen estimators, or None.

    random_state : int, RandomState instance or None
        None: nothing is set.

    Returns
    -------
    seeded : list of object
        Clones with a number for each parameter named ``random_state``, nested ones
        too, that was None. An estimator without any (a frozen one has none) is
        returned itself.

    Examples
    --------
    >>> from sklearn.ensemble import IsolationForest
    >>> from skood.utils._metaestimators import with_seeds
    >>> given, none = IsolationForest(random_state=3), IsolationForest()
    >>> [forest.random_state for forest in with_seeds([given, none], 0)]
    [3, 209652396]
    """
    estimators = list(estimators)
    if random_state is None:
        return estimators
    rng = check_random_state(random_state)
    return [_with_seed(estimator, rng) for estimator in estimators]


def _with_seed(estimator, rng):
    if not hasattr(estimator, "get_params"):
        return estimator
    seeds = {
        name: int(rng.randint(np.iinfo(np.int32).max))
        for name, value in sorted(estimator.get_params(deep=True).items())
        if name.split("__")[-1] == "random_state" and value is None
    }
    return clone(estimator).set_params(**seeds) if seeds else estimator

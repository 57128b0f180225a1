"""Helpers of meta-estimators: cloning, fitting, seeding and tags of nested parts."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import replace

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.validation import has_fit_parameter

from skood.utils._batches import as_rows
from skood.utils._input import named_errors
from skood.utils._labels import check_one_kind, single_column
from skood.utils._routing import weight_params
from skood.utils._torch import is_tensor
from skood.utils._warnings import warn


def unwrapped(estimator):
    """Return the estimator inside frozen estimators and fitted searches."""
    while True:
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return estimator


def unwrap(estimator, X=None):
    """Return the estimator inside searches, pipelines and frozen ones, and its input.

    `X`, unless None, is transformed by the steps of a pipeline before the last.
    """
    while True:
        estimator = unwrapped(estimator)
        if not isinstance(getattr(estimator, "steps", None), list):
            return estimator, X
        for _, step in estimator.steps[:-1] if X is not None else ():
            if step is not None and not isinstance(step, str):
                X = step.transform(X)
        estimator = estimator.steps[-1][1]


def known_classes(*estimators):
    """Return the `classes_` of the first estimator that has them, or None."""
    for estimator in estimators:
        classes = getattr(estimator, "classes_", None)
        if classes is not None:
            return np.asarray(classes)
    return None


def inner_estimator(estimator):
    """Return the fitted ``estimator_``, or None; an IsolationForest fits copies."""
    is_forest = hasattr(estimator, "estimators_")
    return None if is_forest else getattr(estimator, "estimator_", None)


def labels_before_rejection(estimator):
    """Return the function that predicts all samples, also rejected ones, or None.

    It is `decide`, if the estimator has it, else the `predict` of its ``estimator_``.
    """
    if hasattr(estimator, "decide"):
        return estimator.decide
    predict = getattr(inner_estimator(estimator), "predict", None)
    if predict is None:
        return None
    return lambda X: single_column(predict(X))  # of CatBoost


def estimator_kind(estimator):
    """Return "classifier", "regressor", another kind, or None if it is unknown."""
    if not hasattr(estimator, "__sklearn_tags__"):
        return None
    return get_tags(estimator).estimator_type


def concept_columns(y, estimator):
    """Return the columns of `y` that are concepts of a fitted estimator, in its order.

    The estimator may be in searches, pipelines and frozen ones. `y` is returned if it
    has no columns of their names, or the estimator has no concepts.
    """
    names = getattr(unwrap(estimator)[0], "concepts_", None)
    if names is None:
        return y
    columns = list(getattr(y, "columns", []))
    if all(name in columns for name in names):
        y = y[list(names)]
    # a single column becomes 1-D, to avoid warnings about column vectors
    return single_column(y)


def warn_of_known_classes(estimator, y, is_ood, ood_label):
    """Warn if a frozen classifier in an estimator has classes that are labeled OOD."""
    if not hasattr(estimator, "get_params") or np.ndim(y) != 1:
        return
    left_out = {v for v in np.asarray(y)[is_ood].tolist() if v != ood_label}
    for name, inner in estimator.get_params().items() if left_out else ():
        if not isinstance(inner, FrozenEstimator):
            continue
        classes = getattr(inner, "classes_", None)
        if classes is None or np.ndim(classes) != 1:
            continue
        known = sorted(left_out.intersection(np.asarray(classes).tolist()), key=str)
        if known:
            warn(
                f"The samples of the classes {known} count as OOD, but {name}, a "
                f"frozen {type(unwrapped(inner)).__name__}, was fitted on these "
                "classes: its scores do not measure how new they are. Pass the "
                "classifier unfrozen, so that it is fitted without them in each "
                "split, or score samples "
                f"with the label ood_label={ood_label!r}."
            )
            return


def check_one_column(estimator):
    """Raise a ValueError if a fitted classifier has several columns of labels."""
    classes = getattr(estimator, "classes_", None)
    if isinstance(classes, list) and np.ndim(classes[0]):  # a skorch net lists labels
        raise ValueError(
            f"This {type(unwrapped(estimator)).__name__} was fitted on several columns "
            "of y, but one label per sample is needed: give the classifier of one "
            "column, such as head(0) of a MultiHeadClassifier."
        )


def check_takes_weight(estimator, sample_weight):
    """Raise if there are sample weights that an unfitted estimator does not take."""
    if sample_weight is None or isinstance(estimator, FrozenEstimator):
        return
    if not has_fit_parameter(estimator, "sample_weight"):
        raise ValueError(
            f"sample_weight was passed, but {type(estimator).__name__} has no "
            "sample_weight in its fit. Leave it out, or use an estimator that has."
        )


def copy_input_attributes(owner, fitted):
    """Copy ``n_features_in_`` and ``feature_names_in_`` if `fitted` has them."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(fitted, name):
            setattr(owner, name, getattr(fitted, name))


def with_seeds(estimators, random_state):
    """Return clones with a seed for each ``random_state``, nested or not, that is None.

    With `random_state` None nothing is set. An estimator without such parameters, such
    as a frozen one, is returned itself.
    """
    estimators = list(estimators)
    if random_state is None:
        return estimators
    rng = check_random_state(random_state)
    for i, estimator in enumerate(estimators):
        params: dict = getattr(estimator, "get_params", dict)()
        seeds = {
            name: int(rng.randint(np.iinfo(np.int32).max))
            for name, value in sorted(params.items())
            if name.split("__")[-1] == "random_state" and value is None
        }
        if seeds:
            estimators[i] = clone(estimator).set_params(**seeds)
    return estimators


def check_given(X):
    """Raise if `X` is None."""
    if X is None:
        raise ValueError(
            "X is required, got None. Pass samples, an array-like of shape "
            "(n_samples, n_features)."
        )


def take_rows(X, indices):
    """Return samples by index, of an array, tensor, data frame, list or array-like.

    Samples of a torch dataset or loader are not loaded yet.
    """
    if type(X) is np.ndarray and X.ndim:  # for the speed of small calls
        return _safe_indexing(X, indices)
    X = as_rows(X)
    if is_tensor(X):
        return X[indices]
    if issparse(X):
        return X.tocsr()[indices]
    if not hasattr(X, "__getitem__"):
        X = np.asarray(X)
    _check_has_samples(X)
    return _safe_indexing(X, indices)


def n_rows(X):
    """Return the number of samples of an array, tensor, dataset, matrix or list."""
    if type(X) is np.ndarray and X.ndim:  # for the speed of small calls
        return len(X)
    X = as_rows(X)
    if not hasattr(X, "shape") and not hasattr(X, "__len__"):
        X = np.asarray(X)
    _check_has_samples(X)
    return X.shape[0] if hasattr(X, "shape") else len(X)


def _check_has_samples(X):
    if getattr(X, "shape", None) == ():
        raise ValueError(f"Expected 2D array, got scalar array instead: {X!r:.80}.")


def bind(detector, estimator, *, copy=clone):
    """Copy a detector; if its own `estimator` is None, set it to `estimator`."""
    detector = copy(detector)
    if detector.get_params(deep=False).get("estimator", "absent") is None:
        detector.set_params(estimator=estimator)
    return detector


def fit_wrapped(owner, estimator, X, y, sample_weight=None):
    """Clone and fit the estimator of a meta-estimator; a frozen one is not changed.

    `owner` gets its input attributes, and its ``classes_`` if `y` is None.
    """
    fitted = clone(estimator)
    check_one_kind(y)
    weights = weight_params(owner, "estimator", estimator, sample_weight)
    with named_errors(estimator):
        _fit_clone(owner, estimator, fitted, X, y, weights)
    copy_input_attributes(owner, fitted)
    if y is None and hasattr(fitted, "classes_"):
        check_one_column(fitted)
        owner.classes_ = np.asarray(fitted.classes_)
    return fitted


def _fit_clone(owner, estimator, fitted, X, y, weights):
    """Fit the clone of an estimator; an error about missing `y` includes advice."""
    if y is None and not isinstance(estimator, FrozenEstimator):
        try:
            fitted.fit(X, **weights)
        except (TypeError, ValueError) as error:
            if not get_tags(estimator).target_tags.required:
                raise
            raise ValueError(
                f"{type(owner).__name__} requires y to be passed, but the target y is "
                f"None: it fits its estimator {estimator!r}. Pass class labels, or a "
                "fitted estimator inside sklearn.frozen.FrozenEstimator."
            ) from error
    else:
        fitted.fit(X, y, **weights)


def join_input_tags(tags, inner):
    """Set the input tags of a meta-estimator from the tags of its estimators."""
    for name, of in (
        ("sparse", all),
        ("allow_nan", all),
        ("positive_only", any),
        ("three_d_array", any),
    ):
        value = bool(inner) and of(
            getattr(inner_tags.input_tags, name) for inner_tags in inner
        )
        setattr(tags.input_tags, name, value)


def wrapped_tags(tags, estimator):
    """Return tags of a meta-estimator with input and target tags of its estimator."""
    if estimator is None:
        return tags
    inner = get_tags(estimator)
    return replace(
        tags,
        input_tags=inner.input_tags,
        target_tags=replace(tags.target_tags, required=inner.target_tags.required),
        non_deterministic=inner.non_deterministic,
    )

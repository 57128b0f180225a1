"""Validation and conversion of samples of any type before estimators are given them.

Meta-estimators pass `X` on unvalidated, and scikit-learn does not handle tensors,
repeated column names and objects that are not numbers, so that libraries below it fail.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import functools
import math
import re
from collections.abc import Mapping
from contextlib import contextmanager

import numpy as np
from sklearn.utils.validation import validate_data

from skood.utils._array_api import has_finite_squares
from skood.utils._sparse import dense_error, float_samples
from skood.utils._torch import check_has_values, is_tensor, to_numpy, with_numpy_dtype

# XGBoost needs a step that encodes other labels, such as after LeaveClassesOut.
_XGBOOST_LABELS = (
    "XGBClassifier takes the labels 0, 1, ..., n_classes - 1 only. A VotingClassifier "
    "encodes labels: VotingClassifier([('xgb', XGBClassifier())], voting='soft')."
)

# scikit-learn's error suggests other estimators, also to detectors.
_MISSING = re.compile(r"(Input \w+ contains NaN)\.\n(\w+) does not accept missing")

_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))

# The same for its error about axes, whose advice is to reshape all to one row.
_AXES = re.compile(r"Found array with dim [3-9]")

# Modules whose messages concern the input, also if NumPy raised the error.
_VALIDATION = ("sklearn.utils.validation", "sklearn.utils._array_api")


def check_input(X):
    """Return `X` in a type that any estimator accepts, or raise.

    A tensor is detached, in a dtype of NumPy; a list of tensors becomes an array, or a
    list of arrays if shapes differ. A dict raises. Everything else is unchanged.
    """
    if type(X) is np.ndarray:  # for the speed of small calls
        return X
    if is_tensor(X):
        return _plain_tensor(X)
    if isinstance(X, (list, tuple)) and X and all(is_tensor(row) for row in X):
        arrays = [to_numpy(row) for row in X]
        return (
            arrays if len({array.shape for array in arrays}) > 1 else np.stack(arrays)
        )
    if isinstance(X, Mapping) and not hasattr(X, "toarray"):  # of SciPy
        raise TypeError(
            f"X must hold one sample per row, got a {type(X).__name__} with the keys "
            f"{list(X)[:5]}. Pass one of its arrays. For a text model, wrap a module "
            "that takes the token ids alone by skood.nn.pretrained, and pass them: see "
            "the recipe of models from timm and Hugging Face."
        )
    if not getattr(getattr(X, "columns", None), "is_unique", True):
        repeated = X.columns[X.columns.duplicated()].unique().tolist()
        raise ValueError(
            f"The columns of X must differ in name; repeated: {repeated[:5]}. Rename "
            "or drop them."
        )
    return X


def _plain_tensor(X):
    """Return a detached tensor of a dtype that NumPy has, or raise."""
    import torch

    check_has_values(X)
    if X.layout != torch.strided:
        raise TypeError(
            f"X must be a dense tensor, got the layout {X.layout}. Pass X.to_dense()."
        )
    # the same object if possible, since shared forward passes use its identity
    return with_numpy_dtype(X.detach() if X.requires_grad else X)


def is_float_matrix(X):
    """Return whether `X` is a non-empty, finite NumPy matrix of float32 or float64.

    Such an array is what `check_array` returns unchanged, at ten times the cost.
    """
    if type(X) is not np.ndarray or X.ndim != 2 or X.dtype not in _FLOATS:
        return False
    if X.size == 0:
        return False
    if has_finite_squares(X):  # for the speed of small calls
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        # False also if the sum of finite values overflows, which is rare
        return math.isfinite(np.einsum("ij->", X))  # half the time of `sum`


def is_as_fitted(estimator, X):
    """Return whether `validate_data` would return `X` unchanged, without a warning.

    This is so for a plain array with as many features as in a fit without names. False
    if scikit-learn has to look at it.
    """
    return (
        is_float_matrix(X)
        and X.shape[1] == getattr(estimator, "n_features_in_", None)
        and getattr(estimator, "feature_names_in_", None) is None
    )


def is_shaped_as_fitted(estimator, X):
    """Return whether `X` is as for `is_as_fitted`, though perhaps not finite."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype in _FLOATS
        and X.size > 0
        and X.shape[1] == getattr(estimator, "n_features_in_", None)
        and getattr(estimator, "feature_names_in_", None) is None
    )


def new_samples(estimator, X, *, accept_sparse=False, **options):
    """Return `validate_data` of samples after the fit, in float32 or float64."""
    if is_shaped_as_fitted(estimator, X) and is_float_matrix(X):  # for small calls
        return X
    if accept_sparse:
        return float_samples(estimator, X, reset=False, **options)
    options = {"dtype": [np.float64, np.float32]} | options
    return validate_data(estimator, X, reset=False, **options)


def _clear_error(error, X):
    """Return the error that replaces one of a library, None if it is clear."""
    match = _MISSING.match(str(error))
    has_axes = _AXES.match(str(error)) is not None
    if match is None and not has_axes and not _is_raw(error):
        return None
    if has_axes:
        clear: Exception = ValueError(
            f"{str(error).rstrip('.')}. X must have one row per sample. For images, "
            "give a detector the network, as in Energy(estimator=network). For maps of "
            "shape (n, K, h, w), give one row per pixel, such as numpy.moveaxis(X, 1, "
            "-1).reshape(-1, K): see the recipe of segmentation."
        )
    elif match is not None:
        what, name = match.groups()
        clear = ValueError(
            f"{what}, which {name} does not take. Impute the missing values, as in "
            f"make_pipeline(SimpleImputer(), {name}()), or leave their samples out."
        )
    elif any(name in _VALIDATION for name in _modules(error)):
        clear = ValueError(
            "The input cannot be converted to an array of numbers: "
            f"{error}{_encoding_of(error)}"
        )
    elif _holds_numbers(X):
        return None
    else:
        clear = TypeError(
            f"X must hold numbers, or what the first step of a pipeline takes; got "
            f"{type(X).__name__} with values of another kind: {error}"
        )
    for note in getattr(error, "__notes__", ()):  # such as the name of a member
        clear.add_note(note)
    return clear


@contextmanager
def named_errors(estimator):
    """Add the name of the estimator fitted in the block to errors of libraries.

    A ValueError or TypeError of a library below skood is raised as a ValueError.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if "Invalid classes inferred" in str(error):
            error.add_note(_XGBOOST_LABELS)
        if not _is_raw(error) or hasattr(error, "__notes__"):
            raise
        remedy = _encoding_of(error) or (
            ". Look at their values and scales, for example with numpy.ptp(X, axis=0)."
        )
        raise ValueError(
            f"The fit of {type(estimator).__name__} failed on X and y: "
            f"{str(error).rstrip('.')}{remedy}"
        ) from error


def _encoding_of(error):
    """Return the remedy if an error is about text, else an empty string."""
    if "could not convert string to float" not in str(error):
        return ""
    return (
        ". Encode columns of text in a step before, such as "
        "OneHotEncoder(handle_unknown='ignore') in a ColumnTransformer."
    )


def _is_raw(error):
    """Return whether a library below scikit-learn and skood raised an error."""
    *_, module = _modules(error)
    if isinstance(error, OverflowError):
        return True
    package = module.split(".")[0]
    if package == "sklearn" and not isinstance(error, ValueError):
        return module not in _VALIDATION  # arithmetic on objects or dates
    return package not in ("skood", "sklearn")


def _modules(error):
    """Return the modules in the traceback of an error, the outermost first."""
    at = error.__traceback__
    while at is not None:
        yield at.tb_frame.f_globals.get("__name__", "")
        at = at.tb_next


def _holds_numbers(X):
    """Return whether `X` is an array of numbers, or is no array at all."""
    if hasattr(X, "toarray") or is_tensor(X):
        return True
    try:
        array = np.asarray(X)
    except (TypeError, ValueError):
        return True  # the error is about that
    if array.dtype.kind != "O":
        return array.dtype.kind in "biufc"
    try:
        array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    return not any(value is None for value in array.ravel())


def takes_input(method, is_lazy=None, by_blocks=None, *, labels=False):
    """Decorate a method ``(self, X, ...)``: see `check_input`.

    Errors that libraries raise if `X` does not contain numbers are replaced; `X` is
    examined only then, since pipelines may accept text or dates.

    A dict is passed on if the owner has a true attribute ``_takes_dict``. Samples for
    which `is_lazy` is true are passed to `by_blocks` instead. With `labels`, a tensor
    as the next argument `y` becomes an array.
    """

    @functools.wraps(method)
    def with_input(self, X, *args, **kwargs):
        if is_lazy is not None and type(X) is not np.ndarray and is_lazy(X):
            return by_blocks(self, X, *args, **kwargs)
        try:  # a context manager would take longer
            if type(X) is not np.ndarray and not (
                getattr(self, "_takes_dict", False) and isinstance(X, Mapping)
            ):
                X = check_input(X)
            if labels and args and type(args[0]) is not np.ndarray:
                args = (to_numpy(args[0]), *args[1:])
            elif labels and "y" in kwargs:
                kwargs["y"] = to_numpy(kwargs["y"])
            return method(self, X, *args, **kwargs)
        except (TypeError, ValueError, OverflowError) as error:
            clear = dense_error(self, error) or _clear_error(error, X)
            if clear is None:
                raise
            raise clear from error

    return with_input

"""Validation of a parameter that is a list of named estimators."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import Any

# Its detectors have no `score_samples`.
PYOD_ADVICE = "write SklearnDetector(detector=...) for a detector of PyOD"


def missing_methods(estimator, methods):
    """Return the methods that an unfitted estimator lacks and cannot get from `fit`.

    In scikit-learn, methods of a ``StackingClassifier`` appear on `fit`.
    """
    return [method for method in methods if not _can_have(estimator, method)]


def _can_have(estimator, method):
    if hasattr(estimator, method):
        return True
    if not hasattr(type(estimator), method):  # not a method with a condition
        return False
    steps = getattr(estimator, "steps", None)
    inner = steps[-1][1] if steps else getattr(estimator, "estimator", None)
    if inner is not None:
        return _can_have(inner, method)
    # `predict` has no condition in an SVC, whose predict_proba depends on a parameter
    return not hasattr(estimator, "predict")


def named_parts(pairs):
    """Return the pairs of a name and a part, none if they are invalid, see `fit`."""
    try:
        return [(name, estimator) for name, estimator in pairs if isinstance(name, str)]
    except (TypeError, ValueError):
        return []


def check_parts(owner, what, methods):
    """Return names and parts that are not "drop", or raise.

    `what` is the parameter of `owner`; each part must have all `methods`.
    """
    pairs, reserved = getattr(owner, what), owner.get_params(deep=False)
    listed: Any = pairs if isinstance(pairs, (list, tuple)) else [None]
    parts: dict = {}
    bad, twice = [], set()
    for pair in listed:
        is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], str):
            raise TypeError(
                f"{what} must be a list of (name, estimator), got {pairs!r}. Write "
                f"{what}=[('knn', KNN()), ('vim', ViM())]."
            )
        name, part = pair
        if not name or "__" in name or name in reserved:
            bad.append(name)
        if name in parts:
            twice.add(name)
        parts[name] = part
    if bad:
        raise ValueError(
            f"Names in {what} must not be empty, contain '__' or be a parameter of "
            f"{type(owner).__name__}, got {bad}. Rename them."
        )
    if twice:
        names = sorted(twice)
        raise ValueError(f"Names in {what} must be distinct, got twice: {names}.")
    for name, part in pairs:
        if isinstance(part, str) and part == "drop":
            del parts[name]
            continue
        lacking = missing_methods(part, methods)
        if lacking or isinstance(part, type):
            raise TypeError(
                f"{name!r} in {what} must be an estimator with "
                f"{' and '.join(methods)}, or 'drop', got {part!r}"
                + (f" without {', '.join(lacking)}." if lacking else ": a class.")
                + (f" Instead {PYOD_ADVICE}." if "score_samples" in lacking else "")
            )
    if not parts:
        raise ValueError(
            f"{what}={pairs!r} has no estimator. Give at least one that is not 'drop'."
        )
    return list(parts), list(parts.values())

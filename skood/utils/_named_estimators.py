"""Validation of a parameter that is a list of named estimators."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

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
    pairs = getattr(owner, what)
    if not isinstance(pairs, (list, tuple)) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in pairs
    ):
        raise TypeError(
            f"{what} must be a list of (name, estimator), got {pairs!r}. Write "
            f"{what}=[('knn', KNN()), ('vim', ViM())]."
        )
    names = [name for name, _ in pairs]
    reserved = set(owner.get_params(deep=False))
    bad = [name for name in names if not name or "__" in name or name in reserved]
    if bad:
        raise ValueError(
            f"Names in {what} must not be empty, contain '__' or be a parameter of "
            f"{type(owner).__name__}, got {bad}. Rename them."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Names in {what} must be distinct, got twice: {twice}.")
    used = [(n, p) for n, p in pairs if not (isinstance(p, str) and p == "drop")]
    if not used:
        raise ValueError(
            f"{what}={pairs!r} has no estimator. Give at least one that is not 'drop'."
        )
    for name, estimator in used:
        lacking = missing_methods(estimator, methods)
        if lacking or isinstance(estimator, type):
            raise TypeError(
                f"{name!r} in {what} must be an estimator with "
                f"{' and '.join(methods)}, or 'drop', got {estimator!r}"
                + (f" without {', '.join(lacking)}." if lacking else ": a class.")
                + (f" Instead {PYOD_ADVICE}." if "score_samples" in lacking else "")
            )
    return [name for name, _ in used], [estimator for _, estimator in used]

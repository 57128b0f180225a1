"""Input of the detectors of a selective classifier: classifier outputs or X."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.base import BaseEstimator, clone

from skood.utils._metaestimators import unwrapped

__all__ = ["INPUTS", "describe", "detector_input", "reading_x"]

INPUTS = {"auto", "estimator", "X"}


class _OnX(BaseEstimator):
    """Wrapper of a detector on X; its fit returns the fitted detector."""

    def __init__(self, detector):
        self.detector = detector

    def fit(self, X, y=None):
        return clone(self.detector).fit(X, y)


def _is_open(detector):
    """Return whether a detector has an `estimator` that is None."""
    return detector.get_params(deep=False).get("estimator", "absent") is None


def detector_input(name, detector, asked):
    """Return the kind of input of a detector.

    Parameters
    ----------
    name : {"risk", "ood"}
        Which detector, for the error.

    detector : object or None
        The detector.

    asked : {"auto", "estimator", "X"}
        The parameter.

    Returns
    -------
    found : {"estimator", "X"} or None
        None without a detector.

    Raises
    ------
    ValueError
        If outputs of the classifier are requested but not possible.
    """
    if detector is None:
        return None
    is_open = _is_open(detector)
    if asked == "estimator" and not is_open:
        raise ValueError(
            f"{name}_input='estimator', but {name}_detector={detector!r} has no "
            "parameter estimator that is None. Use a detector of skood.detectors "
            "(SklearnDetector takes an outlier detector of scikit-learn), or set "
            f"{name}_input='X'."
        )
    return "estimator" if is_open and asked != "X" else "X"


def reading_x(detector, found):
    """Return a detector for `fit_parts`, wrapped if its input is X."""
    if found == "X" and _is_open(detector):
        return _OnX(detector)
    return detector


def describe(detector, found, estimator):
    """Return a line for the report: a score and its input."""
    classifier = type(unwrapped(estimator)).__name__
    if detector is None:
        return f"1 - max probability of {classifier}"
    name = type(unwrapped(detector)).__name__
    return f"{name} on {'X' if found == 'X' else f'the outputs of {classifier}'}"

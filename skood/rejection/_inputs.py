"""Input of the detectors of a selective classifier: its classifier's outputs or X."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from sklearn.base import BaseEstimator, clone

from skood.utils._metaestimators import unwrapped

__all__ = ["INPUTS", "describe", "detector_input", "reading_x"]

INPUTS = {"auto", "estimator", "X"}


class _OnX(BaseEstimator):
    """A detector that is not given the classifier; its fit returns the detector."""

    def __init__(self, detector):
        self.detector = detector

    def fit(self, X, y=None):
        return clone(self.detector).fit(X, y)


def _is_open(detector):
    """Tell whether a detector has an `estimator` that is yet to be given."""
    return detector.get_params(deep=False).get("estimator", "absent") is None


def detector_input(name, detector, asked):
    """Return what a detector is fitted on.

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
        If the outputs of the classifier are asked for, and cannot be given.
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
    """Return a detector for `fit_parts`, which gives open ones the classifier."""
    if found == "X" and _is_open(detector):
        return _OnX(detector)
    return detector


def describe(detector, found, estimator):
    """Return a line for the report: which score, and of what."""
    classifier = type(unwrapped(estimator)).__name__
    if detector is None:
        return f"1 - max probability of {classifier}"
    name = type(unwrapped(detector)).__name__
    return f"{name} on {'X' if found == 'X' else f'the outputs of {classifier}'}"

"""Input of the detectors of a selective classifier: classifier outputs or X."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.utils._metaestimators import unwrap

__all__ = ["describe", "detector_input"]


def detector_input(detector):
    """Return "estimator" if a detector has an `estimator` that is None, else "X"."""
    own = detector.get_params(deep=False).get("estimator", "absent")
    return "estimator" if own is None else "X"


def describe(detector, found, estimator):
    """Return a line for the report: a score and its input."""
    classifier = type(unwrap(estimator)[0]).__name__
    if detector is None:
        return f"1 - max probability of {classifier}"
    name = type(unwrap(detector)[0]).__name__
    return f"{name} on {'X' if found == 'X' else f'the outputs of {classifier}'}"

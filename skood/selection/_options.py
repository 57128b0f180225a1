"""Options of NoveltySelector, and which of them have no guarantee together."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

from skood.selection._best_of import BestOf
from skood.utils._named_estimators import check_parts

__all__ = ["checked_choice", "checked_parts"]

_METHODS = ("fit", "score_samples")


def checked_parts(selector):
    """Return the names and detectors that are not "drop", or raise."""
    one = selector.detectors
    if isinstance(one, (list, tuple)):
        return check_parts(selector, "detectors", _METHODS)
    if isinstance(one, type) or not all(hasattr(one, name) for name in _METHODS):
        raise TypeError(
            "detectors must be a detector with fit and score_samples, or a list of "
            f"(name, detector), got {one!r}."
        )
    return ["detector"], [one]


def checked_choice(selector, n_detectors):
    """Return the choice; raise for options that have no guarantee together."""
    several = n_detectors > 1 or selector.choice is not None
    if several and selector.procedure is not None:
        raise ValueError(
            "procedure is for the p-values of one detector, but there are "
            f"{n_detectors} detectors or a choice. Leave it out: a choice among "
            "detectors uses the procedure of Benjamini and Hochberg."
        )
    is_cross = not isinstance(selector.calibration, (str, Real)) or (
        isinstance(selector.calibration, Integral)
    )
    if is_cross and (several or selector.n_splits > 1):
        raise ValueError(
            f"calibration={selector.calibration!r} is cross-conformal, and for one "
            "detector without a choice and n_splits=1. Hold a share of the samples "
            "out, such as calibration=0.5."
        )
    if selector.n_splits > 1 and isinstance(selector.calibration, str):
        raise ValueError(
            f"calibration='same' has one split, got n_splits={selector.n_splits}."
        )
    if selector.n_splits > 1 and selector.procedure is not None:
        raise ValueError(
            "n_splits > 1 selects by e-values, and uses no procedure. Leave "
            "procedure or n_splits out."
        )
    choice = selector._as_part("choice", selector.choice) if several else None
    if selector.n_splits > 1 and several and not isinstance(choice, BestOf):
        raise ValueError(
            "n_splits > 1 needs e-values, which BestOf has, got "
            f"choice={selector.choice!r}."
        )
    if selector.delta is not None and (several or is_cross or selector.n_splits > 1):
        raise ValueError(
            "delta bounds the share of false discoveries for one detector and one "
            "split. Leave it out, or combine the detectors in a DetectorEnsemble, "
            "which is one detector."
        )
    if choice is not None and hasattr(choice, "_validate_params"):
        choice._validate_params()
    return choice

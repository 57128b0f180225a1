"""Options of NoveltySelector, and which of them have no guarantee together."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np

from skood.selection._best_of import BestOf
from skood.utils._named_estimators import PYOD_ADVICE, check_parts
from skood.utils._warnings import warn

_METHODS = ("fit", "score_samples")

# Size of a batch with the smallest p-values only, from which some are selected.
_MANY = 1000


def has_folds(calibration):
    """Return whether folds calibrate, or a splitter of the user: without a proof."""
    return isinstance(calibration, Integral) or not isinstance(calibration, (str, Real))


def checked_parts(selector):
    """Return the names and detectors that are not "drop", or raise."""
    one = selector.detectors
    if isinstance(one, (list, tuple)):
        return check_parts(selector, "detectors", _METHODS)
    if isinstance(one, type) or not all(hasattr(one, name) for name in _METHODS):
        raise TypeError(
            "detectors must be a detector with fit and score_samples, or a list of "
            f"(name, detector), got {one!r}. Instead {PYOD_ADVICE}."
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
    is_cross = has_folds(selector.calibration)
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
    if selector.delta is not None and (is_cross or selector.n_splits > 1):
        raise ValueError(
            "delta bounds the share of false discoveries for one random split. Leave "
            "it out, or hold a share of the samples out once, such as calibration=0.5."
        )
    if choice is not None and hasattr(choice, "_validate_params"):
        choice._validate_params()
    return choice


def warn_if_few(selector):
    """Warn if a fitted selector selects no sample of any batch."""
    n, choice, alpha = selector.n_calibration_, selector.choice_, float(selector.alpha)
    if hasattr(choice, "_n_calibration"):  # it takes reference samples
        n = choice._n_calibration(n, len(selector.named_detectors_))
    level = alpha if selector.n_splits == 1 else alpha / 2
    smallest = np.full(_MANY, 1.0 / (n + 1))
    if not np.any(selector.procedure_.selected(smallest, n, level)):
        warn(
            f"No sample can be selected: with {n} calibration samples, p-values are at "
            f"least 1/{n + 1}, too large for alpha={alpha:g}. Hold out more samples."
        )

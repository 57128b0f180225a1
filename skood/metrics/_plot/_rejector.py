"""Inputs of displays: outputs of a selective classifier, and their validation."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.decision import OperatingPoint
from skood.utils._metaestimators import labels_before_rejection, unwrap, unwrapped


def read_rejector(estimator, X, owner):
    """Return a fitted selective classifier and its inputs of `from_predictions`.

    These are its predictions, also for samples that it rejects, its two scores (the
    second may be None), and `ood_label` and `classes` in a dict.
    """
    final, X = unwrap(estimator, X)
    if not hasattr(final, "operating_point_"):
        raise TypeError(
            f"{owner}.from_estimator needs a fitted RejectOptionClassifier or "
            f"RejectOptionRegressor, got {type(final).__name__}. Fit it, or use "
            "from_predictions with scores of your own."
        )
    y_score, ood_score = final.score_pair(X)
    classes = getattr(final, "classes_", None)
    labels = {"ood_label": final.ood_label, "classes": classes}
    y_pred = np.asarray(labels_before_rejection(final)(X))
    return final, y_pred, y_score, ood_score, labels


def detector_names(clf, first):
    """Return the names of both scores; `first` for a classifier without a detector."""
    names = []
    for detector, other in (
        (clf.risk_detector_, first),
        (clf.ood_detector_, "no second score"),
    ):
        detector = unwrapped(detector)
        if hasattr(detector, "steps"):
            detector = detector.steps[-1][1]
        names.append(other if detector is None else type(detector).__name__)
    return tuple(names)


def check_point(point):
    """Raise a TypeError unless `point` is an operating point."""
    if not isinstance(point, OperatingPoint):
        raise TypeError(
            f"point must be an OperatingPoint, as skood.rejection.solve returns it, "
            f"got {point!r}."
        )
    if point.has_group_thresholds:
        second = ", ood_max=point.ood_max[group]" * isinstance(point.ood_max, dict)
        raise ValueError(
            "The rule has a threshold for each group, and the display draws one. Draw "
            "a group by itself: "
            f"dataclasses.replace(point, lam=point.lam[group]{second})."
        )


def check_names(score_names, double):
    """Raise unless there is a name for each score; a second name may be unused."""
    is_text = isinstance(score_names, str)
    n_names = 0 if is_text else len(score_names)
    if n_names not in ((2,) if double else (1, 2)):
        got = "a single text" if is_text else f"{n_names}"
        raise ValueError(
            f"score_names must be a tuple of two names, one for each score, got {got}:"
            f" {score_names!r}."
        )

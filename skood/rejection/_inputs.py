"""Input of a selective predictor: its parts, its samples, and what detectors use."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import NamedTuple

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from skood.utils._labels import column, id_rows, is_nan, ood_mask, sortable_labels
from skood.utils._metaestimators import take_rows, unwrap
from skood.utils._weights import check_weight, row_weight


class Parts(NamedTuple):
    """Classifier and detectors of a selective classifier; a detector may be None."""

    estimator: object
    risk_detector: object | None
    ood_detector: object | None

    @property
    def regression(self):
        """Whether the estimator is a regressor."""
        return False


class RegressionParts(Parts):
    """Regressor and detectors of a selective regressor."""

    @property
    def regression(self):
        """Whether the estimator is a regressor."""
        return True


NO_ARGUMENTS = Parts({}, {}, {})


class Data(NamedTuple):
    """Samples of positive weight of a fit: `X` and `y` are ID samples.

    Weights, groups and sources of shape (n_id,) and (n_ood,) may be None; `arguments`
    pass them to the fits of the parts.
    """

    X: object
    y: np.ndarray
    X_ood: object | None
    n_ood: int
    weight: np.ndarray | None
    weight_ood: np.ndarray | None
    groups: np.ndarray | None
    groups_ood: np.ndarray | None
    source_ood: np.ndarray | None
    arguments: Parts = NO_ARGUMENTS


def separate(X, y, sample_weight, groups, ood_label, ood_source=None, needs_id=True):
    """Return the ID and the OOD samples of positive weight.

    If no sample is ID, this raises, unless `needs_id` is false.
    """
    check_consistent_length(X, y, groups, ood_source)
    is_id = id_rows(y, ood_label) if needs_id else ~ood_mask(y, ood_label=ood_label)
    is_ood = ~is_id
    weight = check_weight(sample_weight, len(y))
    if weight is not None:
        is_id, is_ood = is_id & (weight > 0), is_ood & (weight > 0)
        if not is_id.any():
            raise ValueError(
                "sample_weight is zero for all ID samples: only samples labeled "
                f"ood_label={ood_label!r} have a weight."
            )
    groups = None if groups is None else column(groups)
    ood_source = None if ood_source is None else column(ood_source)
    X_id, X_ood = X, None
    if not is_id.all():
        X_id = take_rows(X, np.flatnonzero(is_id))
    if is_ood.any():
        X_ood = take_rows(X, np.flatnonzero(is_ood))
    y_id = y[is_id]
    if not is_nan(ood_label) and y_id.size:
        y_id = sortable_labels(y_id)  # mixed with a string ood_label
        check_classification_targets(y_id)
    return Data(
        X_id,
        y_id,
        X_ood,
        int(is_ood.sum()),
        weight=row_weight(weight, is_id),
        weight_ood=row_weight(weight, is_ood),
        groups=None if groups is None else groups[is_id],
        groups_ood=None if groups is None else groups[is_ood],
        source_ood=None if ood_source is None else ood_source[is_ood],
    )


def detector_input(detector):
    """Return "estimator" if a detector has an `estimator` that is None, else "X"."""
    own = detector.get_params(deep=False).get("estimator", "absent")
    return "estimator" if own is None else "X"


def _describe(detector, found, estimator):
    """Return a line for the report: a score and its input."""
    classifier = type(unwrap(estimator)[0]).__name__
    if detector is None:
        return f"1 - max probability of {classifier}"
    if hasattr(detector, "_described"):
        return detector._described(classifier)
    name = type(unwrap(detector)[0]).__name__
    return f"{name} on {'X' if found == 'X' else f'the outputs of {classifier}'}"


def described_scores(owner):
    """Return which scores the rule uses, or None without a rule."""
    if owner.operating_point_ is None:
        return None
    found = {
        name: _describe(
            getattr(owner, f"{name}_detector_"),
            owner.detector_inputs_.get(name),
            owner.estimator_,
        )
        for name in ("risk", "ood")
    }
    if owner.ood_detector_ is None:
        del found["ood"]
    if not owner.operating_point_.feasible:
        found["bounds"] = (
            "not attainable on the calibration samples; the nearest rule violates "
            f"one by {owner.operating_point_.violation:.4g}"
        )
    certificate = owner.operating_point_.certificate
    if certificate is not None and certificate.statements:
        found["certified"] = str(certificate)
    return found

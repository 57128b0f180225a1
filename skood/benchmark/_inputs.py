"""Validation of the arguments of a comparison."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections.abc import Mapping

import numpy as np
from sklearn.utils import check_consistent_length

from skood.benchmark._cells import ComparisonData
from skood.utils._batches import as_rows, labeled_rows
from skood.utils._labels import check_label_columns, ood_mask
from skood.utils._metaestimators import n_rows, take_rows
from skood.utils._named_estimators import PYOD_ADVICE

#: Name of a metric: its sign, +1 if greater is better.
METRICS = {
    "auroc": 1,
    "aupr_in": 1,
    "aupr_out": 1,
    "fpr_at_tpr": -1,
    "detection_error": -1,
}


def named(objects, what, methods=()):
    """Return a dict of names to objects, or raise an error."""
    pairs = list(objects.items()) if isinstance(objects, Mapping) else list(objects)
    is_pairs = all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs)
    if not pairs or not is_pairs or not all(isinstance(k, str) for k, _ in pairs):
        raise ValueError(
            f"{what} must be a dict with one name or more, or a list of (name, "
            f"value), got {objects!r}. Write {what}={{'name': …}}."
        )
    names = [name for name, _ in pairs]
    bad = sorted({name for name in names if not name or names.count(name) > 1})
    if bad:
        raise ValueError(
            f"Names in {what} must be distinct and not empty, got {bad}. Rename them."
        )
    for name, thing in pairs:
        lacking = [method for method in methods if not hasattr(thing, method)]
        if lacking or (methods and isinstance(thing, type)):
            raise TypeError(
                f"{name!r} in {what} must be a detector with {' and '.join(methods)}, "
                f"got {thing!r}. Pass a network or classifier to a detector, such as "
                f"Energy(estimator=FrozenEstimator(classifier)); {PYOD_ADVICE}."
            )
    return dict(pairs)


def _labels(X, y, name):
    if y is None:
        return None
    y = check_label_columns(y, name)
    check_consistent_length(X, y)
    return y


def checked_data(X_id, y_id, ood, train):
    """Return validated samples."""
    if train is not None and len(train) != 2:
        raise ValueError(
            "train must be the training samples and their classes, (X, y) or (X, "
            f"None), got {len(train)} objects."
        )
    X_id, y_id = labeled_rows(X_id, y_id)
    X_train, y_train = (None, None) if train is None else train
    X_train, y_train = labeled_rows(X_train, y_train)
    ood = {k: as_rows(X, for_fit=True) for k, X in named(ood, "ood").items()}
    for name, X in {"X_id": X_id, **ood}.items():
        if n_rows(X) == 0:
            raise ValueError(f"{name} has no samples. Leave it out, or give some.")
    if X_train is None and y_train is not None:
        raise ValueError("train has classes but no samples. Give (X, y), or None.")
    y_train = _labels(X_train, y_train, "y of train")
    return ComparisonData(X_id, _labels(X_id, y_id, "y_id"), ood, X_train, y_train)


def split_ood(detectors, X_id, y_id):
    """Return the data with the samples labeled as OOD split off as the set "ood"."""
    X_id, y_id = labeled_rows(X_id, y_id)
    labels = {getattr(detector, "ood_label", -1) for detector in detectors.values()}
    if y_id is None or len(labels) > 1:
        raise ValueError(
            "ood=None takes the samples of X_id that are labeled ood_label in y_id, "
            + ("but y_id is None." if y_id is None else f"but detectors have {labels}.")
            + " Give the OOD samples as ood={'name': X_ood}."
        )
    [label] = labels
    y_id = _labels(X_id, y_id, "y_id")
    is_ood = ood_mask(y_id, ood_label=label)
    if is_ood.all() or not is_ood.any():
        raise ValueError(
            f"ood=None takes the samples that are labeled ood_label={label!r} in "
            f"y_id, which are {int(is_ood.sum())} of {len(is_ood)}. Give ID and OOD "
            "samples, or OOD samples as ood={'name': X_ood}."
        )
    known, others = np.flatnonzero(~is_ood), np.flatnonzero(is_ood)
    return take_rows(X_id, known), y_id[known], {"ood": take_rows(X_id, others)}


def checked_metrics(metrics):
    """Return a list of names of metrics."""
    metrics = [metrics] if isinstance(metrics, str) else list(metrics)
    unknown = [name for name in metrics if name not in METRICS]
    if unknown or not metrics or len(set(metrics)) < len(metrics):
        raise ValueError(
            f"metrics must be distinct names among {list(METRICS)}, got {metrics}."
        )
    return metrics


def checked_groups(groups, ood):
    """Return the sets of each group by name."""
    groups = {name: list(sets) for name, sets in (groups or {}).items()}
    for name, sets in groups.items():
        if name in ood:
            raise ValueError(
                f"The group {name!r} has the name of a set in ood. Rename it."
            )
        if not sets or not set(sets) <= set(ood) or len(set(sets)) < len(sets):
            raise ValueError(
                f"The group {name!r} must have distinct sets among {list(ood)}, got "
                f"{sets}."
            )
    return groups


def check_id_labels(detectors, data):
    """Raise an error if a detector would exclude ID samples from its fit."""
    for name, detector in detectors.items():
        label = getattr(detector, "ood_label", None)
        if label is None or data.y_id is None:
            continue
        is_ood = ood_mask(data.y_id, ood_label=label)
        if is_ood.any():
            raise ValueError(
                f"y_id has {int(is_ood.sum())} samples with the ood_label={label!r} of "
                f"the detector {name!r}: X_id must hold ID samples only. Give the "
                "others as a set in ood, or set another ood_label."
            )

"""Fitting, scoring and calibration of the members of an ensemble."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed

from skood.nn._shared_forward import (
    distinct_uses,
    few_scores,
    network_groups,
    read_alike,
    shared_blocks,
    shared_outputs,
)
from skood.utils._folds import check_same, warn_of_training_samples
from skood.utils._labels import check_nested_ood_labels
from skood.utils._left_out import unused_thresholds
from skood.utils._metaestimators import (
    bind,
    copy_input_attributes,
    join_input_tags,
    n_rows,
    take_rows,
)
from skood.utils._progress import in_parallel
from skood.utils._routing import weight_params


def check_members(ensemble, names, detectors, y):
    """Raise, before a long fit, errors that would otherwise occur after it."""
    if isinstance(ensemble.calibration, str):
        check_same(names, detectors)
    if y is None:
        if (
            ensemble._fits_estimator
            and get_tags(ensemble.estimator).target_tags.required
        ):
            raise ValueError(
                f"{type(ensemble).__name__} requires y to be passed, but the target y "
                f"is None: it fits estimator={ensemble.estimator!r}. Pass class "
                "labels, or a fitted classifier inside "
                "sklearn.frozen.FrozenEstimator."
            )
        return
    for name, detector in zip(names, detectors, strict=True):
        check_nested_ood_labels(name, detector, y, type(ensemble).__name__)


def member_weights(ensemble, names, detectors, sample_weight):
    """Return keyword arguments of the fits of the estimator (None) and the members.

    Members that take no weights are fitted without. Also returns the weights as counts
    of the calibration samples, or None; raise if these are no integers.
    """
    parts = [(None, "estimator", ensemble.estimator)]
    parts += [(name, name, one) for name, one in zip(names, detectors, strict=True)]
    params = {
        key: {}
        if part is None
        else weight_params(ensemble, name, part, sample_weight, required=False)
        for key, name, part in parts
    }
    if sample_weight is None:
        return params, None
    counts = sample_weight.astype(np.intp)
    if (counts != sample_weight).any():
        raise ValueError(
            f"sample_weight of {type(ensemble).__name__} must be integers, the numbers "
            "of times that samples were observed, got "
            f"{sample_weight[counts != sample_weight][0]:g}: p-values are ranks among "
            "calibration samples. For other weights fit the members with them, put "
            "them in sklearn.frozen.FrozenEstimator, and leave sample_weight out here."
        )
    return params, counts


def store_inputs(owner, fitted, y):
    """Copy attributes of the input from the first fitted part that has them."""
    for one in reversed(fitted):
        if one is not None:
            copy_input_attributes(owner, one)
    if y is None:
        for one in fitted:
            if hasattr(one, "classes_"):
                owner.classes_ = np.asarray(one.classes_)
                break


def member_tags(tags, owner, members):
    """Return the tags of a meta-estimator from its members and its `estimator`."""
    inner = [get_tags(one) for one in members if hasattr(one, "get_params")]
    join_input_tags(tags, inner)
    if owner._fits_estimator:
        inner.append(get_tags(owner.estimator))
    tags.target_tags.required = any(one.target_tags.required for one in inner)
    tags.non_deterministic = any(one.non_deterministic for one in inner)
    return tags


def fit_committees(
    names, detectors, estimator, X, y, folds, *, params, n_jobs, verbose
):
    """Fit the members per fold; score held-out samples, (n_held_out, n_members).

    `params` are keyword arguments of each fit, weights of all samples: by the names of
    the members, and under None of the estimator.
    """
    how = {"n_jobs": n_jobs, "verbose": verbose}
    estimators = [estimator] * len(folds)
    bound = [detectors] * len(folds)
    if estimator is not None:
        frozen = estimators
        if not isinstance(estimator, FrozenEstimator):
            calls = (
                delayed(_fit_clone)(
                    estimator, _rows(X, train), _rows(y, train), params[None], train
                )
                for train, _ in folds
            )
            estimators = in_parallel(calls, [1] * len(folds), desc="folds", **how)
            frozen = [FrozenEstimator(fitted) for fitted in estimators]
        bound = [[bind(detector, one) for detector in detectors] for one in frozen]
    tasks = [
        (k, group, [members[i] for i in group])
        for k, members in enumerate(bound)
        for group in network_groups(members)
    ]
    calls = (
        delayed(_fit_group)([names[i] for i in group], members, X, y, folds[k], params)
        for k, group, members in tasks
    )
    sizes = [len(group) for _, group, _ in tasks]
    results = in_parallel(calls, sizes, desc="members", **how)
    committees: list = [[None] * len(names) for _ in folds]
    scores = [np.empty((len(held_out), len(names))) for _, held_out in folds]
    for (k, group, _), (fitted, group_scores) in zip(tasks, results, strict=True):
        scores[k][:, group] = group_scores
        for i, detector in zip(group, fitted, strict=True):
            committees[k][i] = detector
    warn_of_training_samples(X, *committees[0], rows=folds[0][1])
    return committees, estimators, scores


def _rows(X, rows):
    return X if rows is None or X is None else take_rows(X, rows)


def _fit_clone(estimator, X, y, weights, train):
    """Fit a clone; pass `y` only if it is given or the estimator is frozen."""
    estimator = clone(estimator)
    weights = {name: _rows(weight, train) for name, weight in weights.items()}
    if y is None and not isinstance(estimator, FrozenEstimator):
        return estimator.fit(X, **weights)
    return estimator.fit(X, y, **weights)


def _fit_group(names, detectors, X, y, fold, params):
    """Fit members that use the same network, and score the held-out samples."""
    train, held_out = fold
    X_train, y_train = _rows(X, train), _rows(y, train)
    with shared_outputs(detectors), unused_thresholds():
        fitted = [
            _fit_member(name, detector, X_train, y_train, params[name], train)
            for name, detector in zip(names, detectors, strict=True)
        ]
    return fitted, _score_group(names, fitted, take_rows(X, held_out))


def _fit_member(name, detector, X, y, weights, train):
    """Fit a clone; add the name of the member to errors."""
    try:
        return _fit_clone(detector, X, y, weights, train)
    except Exception as error:
        error.add_note(f"This happened in fitting the member {name!r}.")
        raise


def committee_groups(committees):
    """Return the members by `network_groups`, each with how to score them.

    Each group comes with its `distinct_uses`, and whether its members `read_alike`.
    """
    # all at once, since they may use the same network
    members = [detector for committee in committees for detector in committee]
    groups = []
    for group in network_groups(members):
        own = [members[i] for i in group]
        groups.append((group, distinct_uses(own), read_alike(own)))
    return groups


def score_committees(names, committees, groups, X, *, n_jobs):
    """Score samples by each committee: a list of arrays (n_samples, n_members).

    `groups` are from `committee_groups`.
    """
    members = [detector for committee in committees for detector in committee]
    tasks = [
        ([names[i % len(names)] for i in group], [members[i] for i in group], X, *how)
        for group, *how in groups
    ]
    if len(tasks) == 1 or effective_n_jobs(n_jobs) == 1:  # joblib is slow for a sample
        results = [_score_group(*task) for task in tasks]
    else:
        results = Parallel(n_jobs=n_jobs)(delayed(_score_group)(*t) for t in tasks)
    scores = np.empty((len(committees), n_rows(X), len(names)))
    for (group, *_), columns in zip(groups, results, strict=True):
        for i, column in zip(group, columns.T, strict=True):
            scores[i // len(names), :, i % len(names)] = column
    return list(scores)


def _score_group(names, detectors, X, users=None, alike=False):
    """Score samples by members that use the same network, which runs once.

    `users` are the `distinct_uses` of the members, if known; `alike`: `read_alike`.
    """
    found = few_scores(detectors, X) if alike else None
    if found is not None:  # else a member is named in the error
        return found[0]
    blocks = []
    with shared_outputs(detectors if users is None else [detectors[i] for i in users]):
        for part in shared_blocks(X, len(detectors)):
            n_samples = n_rows(part)
            columns = [
                _member_scores(name, detector, part, n_samples)
                for name, detector in zip(names, detectors, strict=True)
            ]
            block = np.stack(columns, axis=1)
            if np.isnan(block).any():
                _raise_for_nan(names, block)
            blocks.append(block)
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _member_scores(name, detector, X, n_samples):
    """Return the scores of one member, of shape (n_samples,)."""
    try:
        scores = np.asarray(detector.score_samples(X), dtype=np.float64)
    except Exception as error:
        error.add_note(f"This happened in scoring with the member {name!r}.")
        raise
    if scores.shape != (n_samples,):
        raise ValueError(
            f"The member {name!r} gave scores of shape {scores.shape} for {n_samples} "
            "samples: score_samples must return one score per sample."
        )
    return scores


def _raise_for_nan(names, scores):
    """Raise for the first member with a NaN among its scores."""
    n_missing = np.isnan(scores).sum(axis=0)
    j = np.flatnonzero(n_missing)[0]
    raise ValueError(
        f"The member {names[j]!r} gave NaN as the score of {n_missing[j]} of "
        f"{len(scores)} samples, and a missing score has no p-value. Repair the "
        "member, or leave it out."
    )

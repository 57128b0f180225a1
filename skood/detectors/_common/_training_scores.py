"""Scores of training samples, from which detectors set their thresholds."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.nn._linear_head import LinearHead
from skood.utils._left_out import (
    NETWORK_FOLDS,
    cross_fitted,
    drawn_copies,
    found_scores,
    refitted_scores,
)
from skood.utils._metaestimators import fit_wrapped, n_rows
from skood.utils._sample_keys import SampleKeys
from skood.utils._weights import weighted

# Distances of a shrunk covariance change fast with the number of samples, so that a
# fold leaves out few of them, where fits are fast: with up to this number of features.
_SHRUNK_FOLDS = 100
_NARROW = 256

# A head of four fifths of few samples overfits more than the head of all: it is fitted
# this often to fewer than this number of samples.
_HEAD_FOLDS = 20
_FEW_ROWS = 1000


def training_scores(detector, outputs, y):
    """Return scores for the threshold, distributed like scores of new samples."""
    scores = None
    if hasattr(detector, "_sample"):  # of the samples that sums were taken of
        sample = detector._sample.outputs(outputs.head)
        scores = _without_each(detector, sample, detector._sample.labels)
    if scores is None:
        limit = detector._max_offset_rows
        if detector._learns:
            rows, shares = drawn_copies(outputs.content, outputs.weight, limit)
        else:
            rows, shares = np.arange(len(outputs)), outputs.weight
        scores = detector._left_out_scores(outputs, y, rows, shares)
    if not hasattr(detector, "partial_fit"):  # no more samples can be added
        detector.__dict__.pop("_sample", None)
    return scores


def left_out_scores(detector, outputs, y, rows, shares):
    """Return scores of training samples, each from a fit without it."""
    if not detector._learns:
        whole = len(rows) == len(outputs)  # then a file is not copied
        scores = detector._score_rows(outputs if whole else outputs.rows(rows))
        return weighted(scores, shares)
    if hasattr(detector, "_added"):
        labels = None if y is None else y[rows]
        scores = _without_each(detector, outputs.rows(rows).weighted(shares), labels)
        if scores is not None:
            return scores
    n_folds = detector._n_folds
    if detector._shrinks and outputs.features.shape[1] <= _NARROW:
        n_folds = _SHRUNK_FOLDS
    return cross_fitted(detector, outputs, y, rows, n_folds, detector._rescales, shares)


def _without_each(detector, outputs, y):
    """Return leave-one-out training scores from the sums, or None if impossible."""
    scores = detector._without_each(outputs, y)
    return None if scores is None else found_scores(scores, outputs.weight)


def scores_of_formula(detector, outputs, y):
    """Return leave-one-out training scores, NaN for some, by a formula; or None."""
    scores = []
    for part, labels in detector._parts(outputs, y):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = detector._score_left_out(part.to(None), labels)
        if found is None:
            return None
        scores.append(found)
    return np.concatenate(scores)


def refitted_training_scores(detector, X, y, sample_weight):
    """Return training scores, each from a classifier and a fit without it."""
    keys = SampleKeys(X)

    def fit(other, X, y, sample_weight):
        if detector.estimator is None:
            other.estimator_ = LinearHead().fit(X, y, sample_weight)
        else:
            other.estimator_ = fit_wrapped(
                other, detector.estimator, X, y, sample_weight
            )

    def score(other, left_out, shares):
        whole = other._read_all(X).keyed(keys)
        if sample_weight is not None:
            whole = whole.weighted(sample_weight)
        other._fit_outputs(whole, y)
        return other._left_out_scores(whole, y, left_out, shares)

    n_folds = NETWORK_FOLDS
    if detector.estimator is None and n_rows(X) < _FEW_ROWS:
        n_folds = _HEAD_FOLDS
    return refitted_scores(
        detector, X, y, fit, score, n_folds, weight=sample_weight, keys=keys
    )

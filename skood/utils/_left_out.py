"""Cross-fitted scores of training samples, from which thresholds are estimated."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skood.utils._memory_maps import without
from skood.utils._metaestimators import n_rows, take_rows
from skood.utils._warnings import quiet, warn

__all__ = [
    "MAX_OFFSET_ROWS",
    "cross_fitted",
    "folds",
    "in_sample",
    "is_fixed",
    "offset_rows",
    "refitted_scores",
    "unused_thresholds",
]

# For slow scores, the threshold is estimated from this many training samples. The
# standard error of a 5 % quantile's level is then .3 %. Samples are drawn, not evenly
# spaced: if classes alternate in the data, evenly spaced samples may all be of one
# class.
MAX_OFFSET_ROWS = 5000

# A network is refitted for each fold: fewer samples are scored.
MAX_REFITTED_ROWS = 1000
NETWORK_FOLDS = 5

# Number of samples on which the scores of two classifiers are compared.
_MAX_COMPARED = 1000

# Whether the thresholds of detectors fitted now, in this thread, are unused.
_UNUSED: ContextVar[bool] = ContextVar("unused_thresholds", default=False)

# Below this number of samples more folds are used: a model of nine tenths of few
# samples scores worse than the model of all of them.
_FEW = 1000


@contextmanager
def unused_thresholds():
    """Skip refits for thresholds inside a ``with`` block, in this thread only.

    For members of an ensemble, which are used for scores: their thresholds are computed
    from scores of samples that they were fitted on.
    """
    token = _UNUSED.set(True)
    try:
        yield
    finally:
        _UNUSED.reset(token)


def offset_rows(n_rows, limit=MAX_OFFSET_ROWS):
    """Return indices of samples for the threshold: all, or `limit` (fixed seed)."""
    if n_rows <= limit:
        return slice(None)
    return np.sort(np.random.default_rng(0).choice(n_rows, limit, replace=False))


def folds(n_samples, rows, y=None, n_folds=None):
    """Split samples into folds that are left out together: positions in `rows`.

    Folds are stratified; a sample that is the only one of its class is in no fold. A
    fold has at most 1 / `n_folds` of the samples; None: 20 for fewer than 1,000, else
    10. Empty if no sample can be left out.
    """
    n_folds = n_folds or (20 if n_samples < _FEW else 10)
    order = np.random.default_rng(0).permutation(len(rows))
    if y is not None:
        classes, codes = np.unique(y, return_inverse=True)
        alone = np.bincount(codes, minlength=len(classes)) == 1
        codes = codes[rows]
        order = order[~alone[codes[order]]]
        order = order[np.argsort(codes[order], kind="stable")]
    n_parts = min(len(order), max(1, -(-n_folds * len(rows) // n_samples)))
    if n_samples < 2 or n_parts == 0:
        return []
    if n_parts == 1 and len(order) == n_samples:
        n_parts = 2
    return [np.sort(order[start::n_parts]) for start in range(n_parts)]


def cross_fitted(detector, reading, y, rows, n_folds=None, rescale=False):
    """Return scores of samples, each from a copy of the detector fitted without it.

    The outputs `reading` of the classifier, fitted on all samples, are reused.
    `rescale` maps the scores of copies to the detector's scale, if it depends on the
    number of samples. If no copy can be fitted, warns and returns the detector's own
    scores.
    """
    if _UNUSED.get():
        return detector._score_rows(reading.rows(rows))
    scores = np.full(len(rows), np.nan)
    try:
        with quiet():
            for part in folds(len(reading), rows, y, n_folds):
                other = copy.copy(detector)
                left_out = rows[part]
                kept = reading.without(left_out)
                other._fit_reading(kept, without(y, left_out))
                scores[part] = other._score_rows(reading.rows(left_out))
                if rescale:
                    seen = kept.rows(offset_rows(len(kept), _MAX_COMPARED))
                    own, others = other._score_rows(seen), detector._score_rows(seen)
                    scores[part] = _rescaled(scores[part], own, others)
    except ValueError as error:
        return in_sample(detector, detector._score_rows(reading.rows(rows)), error)
    found = scores[~np.isnan(scores)]
    if len(found) == 0:
        return in_sample(detector, detector._score_rows(reading.rows(rows)))
    return found


def is_fixed(estimator):
    """Return whether `fit` leaves a classifier unchanged, so that a clone is fitted.

    True as well if thresholds are unused, since only they need a refit.
    """
    if _UNUSED.get():
        return True
    if isinstance(estimator, Pipeline):
        return all(is_fixed(step) for _, step in estimator.steps)
    if estimator is None or isinstance(estimator, str):  # a step that is left out
        return True
    try:
        check_is_fitted(clone(estimator))
    except NotFittedError:
        return False
    return True


def refitted_scores(detector, X, y, fit, score, n_folds=NETWORK_FOLDS, rescale=True):
    """Return scores of at most 1,000 samples, each from a classifier fitted without it.

    ``fit(other, X, y)`` fits the classifier of a copy, ``score(other, left_out)``
    scores the other samples with it. If none can be fitted, warns and returns the
    detector's own scores; see `cross_fitted`.
    """
    n_samples, scores = n_rows(X), []
    rows = np.arange(n_samples)[offset_rows(n_samples, MAX_REFITTED_ROWS)]
    try:
        with quiet():
            for part in folds(n_samples, rows, y, n_folds):
                left_out = rows[part]
                kept = np.delete(np.arange(n_samples), left_out)
                other = copy.copy(detector)
                with unused_thresholds():  # of detectors inside the copy
                    fit(other, take_rows(X, kept), None if y is None else y[kept])
                found = score(other, left_out)
                if rescale:
                    few = offset_rows(len(kept), _MAX_COMPARED)
                    seen = take_rows(X, kept[few])
                    pair = (one._score_validated(seen) for one in (other, detector))
                    found = _rescaled(found, *pair)
                scores.append(found)
    except ValueError as error:
        return in_sample(detector, detector._score_validated(X), error)
    if not scores:
        return in_sample(detector, detector._score_validated(X))
    return np.concatenate(scores)


def _rescaled(scores, own, others):
    """Rescale scores of a copy to the detector's, by quartiles on common samples.

    A classifier fitted on fewer samples has logits of another scale, and the score of a
    one-class SVM is a sum over its support vectors.
    """
    (low, middle, high), quartiles = np.percentile(
        [own, others], [25, 50, 75], axis=1
    ).T
    spread = high - low
    scale = (quartiles[2] - quartiles[0]) / spread if spread > 0 else 1.0
    return quartiles[1] + scale * (scores - middle)


def in_sample(detector, scores, error=None):
    """Return scores of samples that a detector was fitted on, and warn."""
    reason = "" if error is None else f" ({error})"
    warn(
        f"The threshold of {type(detector).__name__} is taken from scores of samples "
        "that it was fitted on, so that more than contamination="
        f"{detector.contamination} of new ID samples may be rejected: with n_samples ="
        f" {len(scores)} none can be left out of the fit{reason}. Give more samples, "
        "or set the threshold on others by DetectorEnsemble(calibration=)."
    )
    return scores

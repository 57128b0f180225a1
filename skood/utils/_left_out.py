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
from skood.utils._weights import (
    remaining_weight,
    unit_counts,
    units,
    weighted,
)

__all__ = [
    "MAX_OFFSET_ROWS",
    "cross_fitted",
    "drawn_copies",
    "folds",
    "found_scores",
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


def drawn_copies(weight, limit=MAX_OFFSET_ROWS):
    """Return samples for the threshold by units of weight, and these weights.

    A sample of weight w occurs w times, unless there are more than `limit` copies
    (None: any number) in all; then as many are drawn at random.
    """
    rows, shares = units(weight)
    if limit is None:
        return rows, shares
    drawn = offset_rows(len(rows), limit)
    return rows[drawn], shares[drawn]


def folds(n_samples, rows, y=None, n_folds=None, weight=None):
    """Split samples into folds that are left out together: positions in `rows`.

    Folds are stratified; a sample that is the only one of its class is in no fold. A
    fold has at most 1 / `n_folds` of the samples; None: 20 for fewer than 1,000, else
    10. Empty if no sample can be left out.

    With weights (n_samples,), `rows` are from `drawn_copies`, and copies are split.
    """
    counts = None if weight is None else unit_counts(weight)
    if counts is not None:
        n_samples = int(counts.sum())
    n_folds = n_folds or (20 if n_samples < _FEW else 10)
    order = np.random.default_rng(0).permutation(len(rows))
    if y is not None:
        classes, codes = np.unique(y, return_inverse=True)
        alone = np.bincount(codes, counts, minlength=len(classes)) == 1
        codes = codes[rows]
        order = order[~alone[codes[order]]]
        order = order[np.argsort(codes[order], kind="stable")]
    n_parts = min(len(order), max(1, -(-n_folds * len(rows) // n_samples)))
    if n_samples < 2 or n_parts == 0:
        return []
    if n_parts == 1 and len(order) == n_samples:
        n_parts = 2
    return [np.sort(order[start::n_parts]) for start in range(n_parts)]


def cross_fitted(detector, reading, y, rows, n_folds=None, rescale=False, shares=None):
    """Return scores of samples, each from a copy of the detector fitted without it.

    The outputs `reading` of the classifier, fitted on all samples, are reused.
    `rescale` maps the scores of copies to the detector's scale, if it depends on the
    number of samples. If no copy can be fitted, warns and returns the detector's own
    scores. With weights, `rows` and `shares` are from `drawn_copies`.
    """

    def own_scores():
        return weighted(detector._score_rows(reading.rows(rows)), shares)

    if _UNUSED.get():
        return own_scores()
    scores = np.full(len(rows), np.nan)
    try:
        with quiet():
            for part in folds(len(reading), rows, y, n_folds, reading.weight):
                other = copy.copy(detector)
                left_out = rows[part]
                kept, labels = _others(reading, y, left_out, shares, part)
                other._fit_reading(kept, labels)
                scores[part] = other._score_rows(reading.rows(left_out))
                if rescale:
                    seen = kept.rows(_compared(len(kept), kept.weight))
                    own, others = other._score_rows(seen), detector._score_rows(seen)
                    scores[part] = _rescaled(scores[part], own, others)
    except ValueError as error:
        return in_sample(detector, own_scores(), error)
    found = found_scores(scores, shares)
    return in_sample(detector, own_scores()) if found is None else found


def found_scores(scores, shares=None):
    """Return scores that are not NaN, with their weights; None if there is none."""
    found = ~np.isnan(scores)
    if not found.any():
        return None
    return weighted(scores[found], None if shares is None else shares[found])


def _others(reading, y, left_out, shares, part):
    """Return the outputs and the labels of samples without some of them."""
    if shares is None:
        return reading.without(left_out), without(y, left_out)
    kept, weight = remaining_weight(reading.weight, left_out, shares[part])
    gone = np.setdiff1d(np.arange(len(reading)), kept)
    return reading.without(gone).weighted(weight), without(y, gone)


def _compared(n_samples, weight):
    """Return samples on which the scores of two classifiers are compared."""
    if weight is None:
        return offset_rows(n_samples, _MAX_COMPARED)
    return drawn_copies(weight, _MAX_COMPARED)[0]


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


def refitted_scores(
    detector,
    X,
    y,
    fit,
    score,
    n_folds=NETWORK_FOLDS,
    rescale=True,
    weight=None,
    stratify=True,
):
    """Return scores of at most 1,000 samples, each from a classifier fitted without it.

    ``fit(other, X, y, weight)`` fits the classifier of a copy, ``score(other, left_out,
    shares)`` scores the other samples with it; with weights, the samples are copies of
    these weights, and it returns a pair, see `weighted`. `stratify`: folds are by the
    labels `y`, not targets of a regression. If none can be fitted, warns
    and returns the detector's own scores; see `cross_fitted`.
    """

    def own_scores():
        return weighted(detector._score_validated(X), weight)

    n_samples, found, weights = n_rows(X), [], []
    every = np.arange(n_samples)
    if weight is None:
        rows, shares = every[offset_rows(n_samples, MAX_REFITTED_ROWS)], None
    else:
        rows, shares = drawn_copies(weight, MAX_REFITTED_ROWS)
    try:
        with quiet():
            strata = y if stratify else None
            for part in folds(n_samples, rows, strata, n_folds, weight):
                left_out = rows[part]
                if shares is None:
                    kept, left, own = np.delete(every, left_out), None, None
                else:
                    own = shares[part]
                    kept, left = remaining_weight(weight, left_out, own)
                other = copy.copy(detector)
                with unused_thresholds():  # of detectors inside the copy
                    labels = None if y is None else y[kept]
                    fit(other, take_rows(X, kept), labels, left)
                scores = score(other, left_out, own)
                if weight is not None:
                    scores, own = scores
                    weights.append(own)
                if rescale:
                    seen = take_rows(X, kept[_compared(len(kept), left)])
                    pair = (one._score_validated(seen) for one in (other, detector))
                    scores = _rescaled(scores, *pair)
                found.append(scores)
    except ValueError as error:
        return in_sample(detector, own_scores(), error)
    if not found:
        return in_sample(detector, own_scores())
    scores = np.concatenate(found)
    return scores if weight is None else (scores, np.concatenate(weights))


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
    n_samples = len(scores[0] if isinstance(scores, tuple) else scores)
    warn(
        f"The threshold of {type(detector).__name__} is taken from scores of samples "
        "that it was fitted on, so that more than contamination="
        f"{detector.contamination} of new ID samples may be rejected: with n_samples ="
        f" {n_samples} none can be left out of the fit{reason}. Give more samples, "
        "or set the threshold on others by DetectorEnsemble(calibration=)."
    )
    return scores

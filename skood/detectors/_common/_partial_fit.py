"""Incremental fitting (``partial_fit``) of detectors from sums over samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from skood.nn._outputs import NetworkOutputs, concatenate
from skood.utils._batches import labeled_rows, loaded, weighted_rows
from skood.utils._id_samples import id_samples
from skood.utils._left_out import MAX_OFFSET_ROWS, folds
from skood.utils._metaestimators import n_rows
from skood.utils._sample_keys import merged_keys, stored_keys
from skood.utils._stored import stored
from skood.utils._warnings import quiet
from skood.utils._weights import check_weight, row_weight, units


class NotEnoughRows(ValueError):
    """Error: the samples so far do not determine the model."""


@stored
class RowSample:
    """Uniform random sample of at most `size` of all samples that were added.

    Every sample gets a number from a fixed random stream; the samples with the smallest
    numbers are stored, in their order. So the result does not depend on the batch size.
    A sample with a weight is added as copies of weight 1, see `units`.
    """

    def __init__(self, size=MAX_OFFSET_ROWS):
        self.size = size
        self.n_seen = 0
        self._outputs: Any = None
        self._numbers = np.empty(0)
        self.labels: Any = None
        self._state = np.random.RandomState(0).get_state()

    def updated(self, outputs, y=None):
        """Return the sample with the outputs of samples, and their labels, added."""
        new = RowSample(self.size)
        copies, shares = None, None
        if outputs.weight is not None:
            copies, shares = units(outputs.weight)
            y = None if y is None else y[copies]
        n_new = len(outputs) if copies is None else len(copies)
        rng = np.random.RandomState()
        rng.set_state(self._state)
        numbers = np.concatenate([self._numbers, rng.random_sample(n_new)])
        new._state = rng.get_state()
        new.n_seen = self.n_seen + n_new
        rows = np.arange(len(numbers))
        if len(numbers) > self.size:
            rows = np.sort(np.argpartition(numbers, self.size)[: self.size])
        new._numbers = numbers[rows]
        if y is not None:
            labels = y if self.labels is None else np.concatenate([self.labels, y])
            new.labels = labels[rows]
        n_old = len(self._numbers)
        chosen = rows[rows >= n_old] - n_old
        if copies is None or shares is None:
            fresh = outputs.rows(chosen).to(None)
        else:
            fresh = outputs.rows(copies[chosen]).to(None).weighted(shares[chosen])
        parts = [] if n_old == 0 else [self._outputs.rows(rows[rows < n_old])]
        if len(fresh) or not parts:
            parts.append(fresh)
        joined = concatenate(parts)
        # without the head
        new._outputs = NetworkOutputs(
            joined.features, joined.logits, None, joined.weight
        )
        return new

    def outputs(self, head=None):
        """Return the outputs of the stored samples."""
        return replace(self._outputs, head=head)


def fit_sums(detector, outputs, y):
    """Fit a detector on the sums over all training samples."""
    _begin(detector, outputs, y)
    _include(detector, outputs, y)
    detector._settle(outputs, y)


def _begin(detector, outputs, y):
    detector._labeled = y is not None
    detector._weighs = outputs.weight is not None
    detector._summed_with = {
        name: getattr(detector, name) for name in detector._sums_need
    }
    detector._sums, detector._sample = None, RowSample()
    detector._begin(outputs, y)


def _include(detector, outputs, y):
    """Add samples to the sums and to the random sample."""
    sums = detector._sums  # restored if this call fails
    summed = outputs if detector._sums_logits else replace(outputs, logits=None)
    for part, labels in detector._parts(summed, y):
        sums = detector._added(sums, part, labels)
    detector._sums = sums
    detector._sample = detector._sample.updated(outputs, y)


def scores_without_blocks(detector, outputs, y, removed):
    """Return scores of training samples, from the sums without a block of them.

    ``removed(sums, part)`` returns the sums without a chunk. None if the samples are
    too few to leave any out.
    """
    scores = np.full(len(outputs), np.nan)
    try:
        with quiet():
            rows, n_seen = np.arange(len(outputs)), detector._sample.n_seen
            for fold in folds(outputs.content, rows, y, n_seen=n_seen):
                part = outputs.rows(fold.part)
                other = copy.copy(detector)
                other.n_components = detector.n_components_
                for chunk, _ in detector._parts(part):
                    other._sums = removed(other._sums, chunk)
                other._settle_space()
                scores[fold.part] = other._score_rows(part)
    except ValueError:
        return None
    return scores


def add_samples(detector, X, y, sample_weight):
    """Add samples to the sums and to the random sample, and update the model."""
    weight = check_weight(sample_weight, n_rows(X))
    X, y = labeled_rows(X, y) if weight is None else weighted_rows(X, y)
    if detector.estimator is None:
        X = loaded(X)
    first = not hasattr(detector, "_sums")
    weighs = weight is not None
    if not first and weighs != detector._weighs:
        raise ValueError(
            "sample_weight must be given in every call of partial_fit or in none: it "
            f"was {'given' if detector._weighs else 'not given'} before."
        )
    if not first and (y is not None) != detector._labeled:
        raise ValueError(
            "y must be given in every call of partial_fit or in none: it was "
            f"{'given' if detector._labeled else 'not given'} before."
        )
    if not first:
        _check_unchanged(detector)
    earlier: Any = [] if first or y is None else detector.classes_
    X, y, rows = id_samples(detector, X, y, weight)
    weight = row_weight(weight, rows)
    added = stored_keys(X)
    if detector.estimator is None:
        X = detector._validate(X, reset=first)
    elif first:  # a frozen one
        detector.estimator_ = detector._fit_estimator(X, y)
    else:
        X = detector._checked(X)
    if len(earlier):
        detector.classes_ = np.union1d(earlier, detector.classes_)
    outputs = detector._read_all(X)
    if weighs:
        outputs = outputs.weighted(weight)
    if first:
        _begin(detector, outputs, y)
    _include(detector, outputs, y)
    earlier_keys = getattr(detector, "_training_keys", None)
    detector._training_keys = added if first else merged_keys(earlier_keys, added)
    sample = detector._sample.outputs(outputs.head)
    try:
        detector._settle(sample, None)
    except NotEnoughRows:
        detector.__dict__.pop("offset_", None)
    else:
        scores = detector._training_scores(sample, detector._sample.labels)
        detector._set_offset(scores)


def _check_unchanged(detector):
    """Raise if parameters were changed that the sums depend on."""
    for name, value in detector._summed_with.items():
        now = getattr(detector, name)
        if now is not value and (name == "estimator" or now != value):
            raise ValueError(
                f"{name}={now!r} was set after samples had been learned from with "
                f"{name}={value!r}: their sums do not go together. Call fit to "
                "start anew."
            )


def check_adds(detector):
    """Return whether a detector learns from sums; raise if none can be added now."""
    if not hasattr(detector, "_added"):
        return False
    fitted = isinstance(detector.estimator, FrozenEstimator)
    name = type(detector).__name__
    if detector._fits_head or not (fitted or detector.estimator is None):
        raise AttributeError(
            f"{name}.partial_fit needs a classifier that is fitted already and stays "
            "as it is: pass estimator=FrozenEstimator(classifier), or the head of "
            f"skood.nn.split. Got estimator={detector.estimator!r}."
        )
    covariance = getattr(detector, "covariance", None)
    if covariance is not None:
        raise AttributeError(
            f"{name}.partial_fit needs covariance=None, the maximum likelihood "
            f"covariance, which is a sum over samples. {covariance!r} needs all "
            "samples at once: use fit."
        )
    return True

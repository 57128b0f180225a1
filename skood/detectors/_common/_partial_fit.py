"""Mixin for incremental fitting (``partial_fit``) of detectors from sums."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metaestimators import available_if

from skood.nn._outputs import Reading, concatenate
from skood.utils._atomic_fit import kept_state
from skood.utils._batches import labeled_rows, loaded
from skood.utils._left_out import MAX_OFFSET_ROWS, folds
from skood.utils._param_validation import fit_context
from skood.utils._warnings import quiet

if TYPE_CHECKING:
    from skood.detectors._common._base_output_detector import (
        ReadingDetector as _Detector,
    )
else:
    _Detector = object

__all__ = ["NotEnoughRows", "PartialFitMixin", "RowSample"]


class NotEnoughRows(ValueError):
    """Error: the samples so far do not determine the model."""


class RowSample:
    """Uniform random sample of at most `size` of all samples that were added.

    Every sample gets a number from a fixed random stream; the samples with the smallest
    numbers are stored, in their order. So the result does not depend on the batch size.
    """

    def __init__(self, size=MAX_OFFSET_ROWS):
        self.size = size
        self.n_seen = 0
        self._reading: Any = None
        self._numbers = np.empty(0)
        self.labels: Any = None
        self._state = np.random.RandomState(0).get_state()

    def updated(self, reading, y=None):
        """Return the sample with the samples of a reading, and their labels, added."""
        new = RowSample(self.size)
        rng = np.random.RandomState()
        rng.set_state(self._state)
        numbers = np.concatenate([self._numbers, rng.random_sample(len(reading))])
        new._state = rng.get_state()
        new.n_seen = self.n_seen + len(reading)
        rows = np.arange(len(numbers))
        if len(numbers) > self.size:
            rows = np.sort(np.argpartition(numbers, self.size)[: self.size])
        new._numbers = numbers[rows]
        if y is not None:
            labels = y if self.labels is None else np.concatenate([self.labels, y])
            new.labels = labels[rows]
        n_old = len(self._numbers)
        fresh = reading.rows(rows[rows >= n_old] - n_old).to(None)
        parts = [] if n_old == 0 else [self._reading.rows(rows[rows < n_old])]
        if len(fresh) or not parts:
            parts.append(fresh)
        joined = concatenate(parts)
        new._reading = Reading(joined.features, joined.logits)  # without the head
        return new

    def reading(self, head=None):
        """Return the reading of the stored samples."""
        return Reading(self._reading.features, self._reading.logits, head)


def _streams(detector):
    """Return whether `partial_fit` is possible; raise with the reason if it is not."""
    detector._check_streams()
    return True


class PartialFitMixin(_Detector):
    """Mixin for detectors (`ReadingDetector`) that learn from sums over samples.

    A detector implements ``_begin(reading)``, ``_added(sums, part, labels)`` and
    ``_settle(reading, y)``, and inherits ``fit`` and ``partial_fit``. Its threshold is
    computed from at most 5,000 samples; `partial_fit` stores these samples and sums.
    """

    _max_offset_rows: ClassVar[int | None] = MAX_OFFSET_ROWS
    _sums: Any  # what `_added` returns

    # Parameters that the sums depend on: they must not change between calls.
    _sums_need: ClassVar[tuple] = ("estimator",)

    def _begin(self, reading):
        """Set attributes that depend on the head alone."""

    @abstractmethod
    def _added(self, sums, part, labels):
        """Return `sums` (None at first) with the sums of a chunk of samples added."""

    @abstractmethod
    def _settle(self, reading, y):
        """Set the attributes for scoring from ``self._sums``.

        `reading` are the training samples and `y` their labels or, in `partial_fit`, a
        random part of them and None. Raises `NotEnoughRows` if more samples would help.
        """

    def _fit_reading(self, reading, y):
        self._start(reading, y)
        self._include(reading, y)
        self._settle(reading, y)

    def _start(self, reading, y):
        self._labeled = y is not None
        self._summed_with = {name: getattr(self, name) for name in self._sums_need}
        self._sums, self._sample = None, RowSample()
        self._begin(reading)

    def _include(self, reading, y):
        sums = self._sums  # restored if this call fails
        for part, labels in self._parts(reading, y):
            sums = self._added(sums, part, labels)
        self._sums = sums
        self._sample = self._sample.updated(reading, y)

    def _training_scores(self, reading, y):
        sample = self._sample.reading(reading.head)
        scores = self._without_each(sample, self._sample.labels)
        if scores is None:
            scores = super()._training_scores(reading, y)
        if not hasattr(self, "partial_fit"):  # no more samples can be added
            del self._sample
        return scores

    def _left_out_scores(self, reading, y, rows):
        labels = None if y is None else y[rows]
        scores = self._without_each(reading.rows(rows), labels)
        if scores is None:
            return super()._left_out_scores(reading, y, rows)
        return scores

    def _without_each(self, reading, y):
        """Return leave-one-out training scores from the sums, or None if impossible."""
        scores = []
        for part, labels in self._parts(reading, y):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                found = self._score_left_out(part.to(None), labels)
            if found is None:
                return None
            scores.append(found[~np.isnan(found)])
        found = np.concatenate(scores)
        return found if len(found) else None

    def _score_left_out(self, part, labels):
        """Return leave-one-out scores of a chunk of training samples (NumPy).

        NaN for the only sample of its class; None if there is no formula.
        """
        return None

    def _without_blocks(self, reading, y, removed):
        """Return scores of training samples, from the sums without a block of them.

        ``removed(sums, part)`` returns the sums without a chunk; ``_settle_space()``
        sets the attributes that depend on the sums.
        """
        scores = np.full(len(reading), np.nan)
        try:
            with quiet():
                for rows in folds(self._sample.n_seen, np.arange(len(reading)), y):
                    part = reading.rows(rows)
                    other = copy.copy(self)
                    other.n_components = self.n_components_
                    for chunk, _ in self._parts(part):
                        other._sums = removed(other._sums, chunk)
                    other._settle_space()
                    scores[rows] = other._score_rows(part)
        except ValueError:  # too few samples to leave any out
            return None
        found = scores[~np.isnan(scores)]
        return found if len(found) else None

    @available_if(_streams)
    @fit_context(
        # Nested estimators come from the user and are validated by their own fit.
        prefer_skip_nested_validation=False
    )
    def partial_fit(self, X, y=None):
        """Fit incrementally on a batch of samples.

        The result equals one `fit` on all samples of all calls, except ``alpha_`` of
        :class:`ViM`, which is then computed from at most 5,000 samples. Memory does not
        depend on the number of earlier samples. Each call costs a factorization and,
        for the threshold, the scores of up to 5,000 stored samples: pass thousands of
        samples at a time.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More training data.

        y : array-like of shape (n_samples,), default=None
            Class labels, given in every call or in no call. Samples labeled
            `ood_label` are left out, and at least one sample must have another label.
            New classes may occur in any call.

        Returns
        -------
        self : object
            The detector. While the samples do not determine the model (such as one
            sample per class for a covariance) it is not fitted yet.

        Raises
        ------
        ValueError
            If the data are invalid, or a parameter was changed that the previous sums
            depend on. The detector is then unchanged by the call.

        AttributeError
            If there is an `estimator` that is not fitted, in a
            :class:`~sklearn.frozen.FrozenEstimator`.
        """
        with kept_state(self):
            self._add(X, y)
        return self

    def _add(self, X, y):
        """Add samples to the sums and to the random sample, and update the model."""
        X, y = labeled_rows(X, y)
        if self.estimator is None:
            X = loaded(X)
        first = not hasattr(self, "_sums")
        if not first and (y is not None) != self._labeled:
            raise ValueError(
                "y must be given in every call of partial_fit or in none: it was "
                f"{'given' if self._labeled else 'not given'} before."
            )
        if not first:
            self._check_unchanged()
        earlier: Any = [] if first or y is None else self.classes_
        X, y = self._only_id(X, y)
        del self._id_rows  # as long as X
        if self.estimator is None:
            X = self._validate(X, reset=first)
        elif first:  # a frozen one
            self.estimator_ = self._fit_estimator(X, y)
        if len(earlier):
            self.classes_ = np.union1d(earlier, self.classes_)
        validated = first or self.estimator is None
        reading = self._read_all(X, validated=validated)
        if first:
            self._start(reading, y)
        self._include(reading, y)
        try:
            self._settle(self._sample.reading(reading.head), None)
        except NotEnoughRows:
            self.__dict__.pop("offset_", None)
        else:
            sample = self._sample.reading(reading.head)
            self._set_offset(self._training_scores(sample, self._sample.labels))

    def _check_unchanged(self):
        """Raise if parameters were changed that the sums depend on."""
        for name, value in self._summed_with.items():
            now = getattr(self, name)
            if now is not value and (name == "estimator" or now != value):
                raise ValueError(
                    f"{name}={now!r} was set after rows had been learned from with "
                    f"{name}={value!r}: their sums do not go together. Call fit to "
                    "start anew."
                )

    def _check_streams(self):
        """Raise an AttributeError if incremental fitting is not possible."""
        fitted = isinstance(self.estimator, FrozenEstimator)
        if self._fits_head or not (fitted or self.estimator is None):
            raise AttributeError(
                f"{type(self).__name__}.partial_fit needs a classifier that is fitted "
                "already and stays as it is: pass estimator=FrozenEstimator(classifier)"
                f", or the head of skood.nn.split. Got estimator={self.estimator!r}."
            )

"""Base of the detectors that read features, logits or the head of a classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from skood.base import BaseDetector, fit_wrapped, wrapped_tags
from skood.nn._head import LinearHead
from skood.nn._reader import make_reader
from skood.nn._reading import Reading, concatenate
from skood.utils._params import Classifier
from skood.utils._torch import row_chunks

__all__ = ["ReadingDetector"]


class ReadingDetector(BaseDetector):
    """Base class of detectors that read a classifier.

    A subclass names in ``_reads`` what it needs ("features", "logits", "head"),
    and implements ``_fit_reading(reading, y)`` and ``_score_reading(reading)``.
    With ``estimator=None``, `X` is what the subclass reads: features if it reads
    any, else logits. A subclass that reads features and needs a head then gets a
    `LinearHead` that is fitted on ``(X, y)``.

    Parameters
    ----------
    estimator : object, default=None
        A classifier to read, cloned and fitted unless frozen.

    contamination : float, default=0.05
        Share of the ID training samples to reject.

    ood_label : int or str, default=-1
        Label of known OOD rows in ``y``.
    """

    _parameter_constraints: dict = {
        **BaseDetector._parameter_constraints,
        "estimator": [Classifier(), None],
    }

    _reads: ClassVar[frozenset] = frozenset()

    def __init__(self, estimator=None, *, contamination=0.05, ood_label=-1):
        super().__init__(contamination=contamination, ood_label=ood_label)
        self.estimator = estimator

    def _fit(self, X, y):
        if self.estimator is None:
            X = self._validate(X, reset=True)
            if "head" in self._reads:
                if y is None:
                    raise ValueError(
                        f"{type(self).__name__}() requires y to be passed, but the "
                        "target y is None: with estimator=None it fits a linear head "
                        "on (X, y). Pass class labels, or estimator=."
                    )
                self.estimator_ = LinearHead().fit(X, y)
        else:
            self.estimator_ = fit_wrapped(self, self.estimator, X, y)
        reading = concatenate(self._read(X, validated=True))
        self._fit_reading(reading, y)
        return self._training_scores(reading)

    def _training_scores(self, reading):
        """Scores from which the threshold is taken: those of the training rows."""
        return self._score_rows(reading)

    @abstractmethod
    def _fit_reading(self, reading, y):
        """Learn from what was read off the ID training rows."""

    @abstractmethod
    def _score_reading(self, reading):
        """Score a chunk of rows: float64, high = ID."""

    def _read(self, X, *, validated=False):
        """Yield readings of consecutive rows of `X`."""
        if self.estimator is None and not validated:
            X = self._validate(X, reset=False)
        if hasattr(self, "estimator_"):
            yield from make_reader(self.estimator_).iter_read(X, self._reads)
        elif "features" in self._reads:
            yield Reading(features=X)
        else:
            yield Reading(logits=check_logits(X))

    def _score(self, X):
        return np.concatenate([self._score_rows(part) for part in self._read(X)])

    def _bytes_per_row(self, reading):
        """Size of the float64 temporaries that scoring a row needs."""
        width = sum(
            array.shape[1]
            for array in (reading.features, reading.logits)
            if array is not None
        )
        return 8 * 4 * width

    def _score_rows(self, reading):
        chunks = row_chunks(len(reading), self._bytes_per_row(reading))
        scores = [self._score_reading(reading.rows(part)) for part in chunks]
        return scores[0] if len(scores) == 1 else np.concatenate(scores)

    def __sklearn_tags__(self):
        tags = wrapped_tags(super().__sklearn_tags__(), self.estimator)
        if self.estimator is None:
            tags.target_tags.required = "head" in self._reads
        elif "features" in self._reads:
            tags.input_tags.sparse = False
        return tags


def check_logits(logits):
    """Return logits, of at least two classes, or raise."""
    if logits.shape[1] < 2:
        raise ValueError(
            "With estimator=None X holds logits, one column per class, but got "
            f"n_features = {logits.shape[1]}. Give a binary margin m as the two "
            "columns -m/2 and m/2, or pass the classifier as estimator=."
        )
    return logits

"""Base class of readers, and containers for features, logits and the linear head."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from skood.utils._array_api import (
    array_device,
    array_namespace,
    asarray_like,
    to_device,
)
from skood.utils._memory_maps import without

__all__ = [
    "Head",
    "Reader",
    "Reading",
    "concatenate",
    "symmetric_logits",
    "symmetric_rows",
]


@dataclass(frozen=True)
class Head:
    """Linear head: logits = features @ coef.T + intercept.

    Parameters
    ----------
    coef : ndarray of shape (n_classes, n_features)
        Weights W.

    intercept : ndarray of shape (n_classes,)
        Biases b.
    """

    coef: np.ndarray
    intercept: np.ndarray


@dataclass(frozen=True)
class Reading:
    """Features and logits of samples, from one forward pass.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features) or None
        None if they were not requested.

    logits : ndarray of shape (n_samples, n_classes) or None
        None if they were not requested.

    head : Head or None
        The head that maps `features` to `logits`, None if not requested.
    """

    features: np.ndarray | None = None
    logits: np.ndarray | None = None
    head: Head | None = None

    @property
    def array(self):
        """Features, or the logits if there are no features."""
        return self.logits if self.features is None else self.features

    def __len__(self):
        return 0 if self.array is None else self.array.shape[0]

    @property
    def xp(self):
        """Namespace of the arrays, from array_api_compat: NumPy or torch."""
        return array_namespace(self.array)

    def asarray(self, array):
        """Return a NumPy array as the array type of this reading, on its device."""
        return asarray_like(array, self.array)

    def device_for(self, device):
        """Return the torch device to compute on, or None for NumPy."""
        return array_device(device, self.array)

    def to(self, device):
        """Return the reading with its arrays on a torch device, or None: NumPy."""
        features, logits = (
            None if array is None else to_device(array, device)
            for array in (self.features, self.logits)
        )
        return Reading(features, logits, self.head)

    def without(self, left_out):
        """Return the reading without some samples; loads no memory-mapped file."""
        return Reading(
            without(self.features, left_out), without(self.logits, left_out), self.head
        )

    def rows(self, part):
        """Return the reading of the samples `part`; a slice is not copied."""
        return Reading(
            None if self.features is None else self.features[part],
            None if self.logits is None else self.logits[part],
            self.head,
        )


class Reader(ABC):
    """Base class of the readers."""

    # Cache of a block of `shared_readings` for this classifier.
    memory: Any = None

    # Layer of the features.
    place: Any = "input"

    # Number of samples per forward pass.
    batch_size: float = float("inf")

    # Whether a large array may be given block by block, and whether features are its
    # samples themselves.
    takes_blocks: bool = False
    features_are_rows: bool = False

    @property
    def target(self):
        """Device of the classifier: readers of the same target can read together."""
        return None

    def iter_read(self, X, want):
        """Yield readings of consecutive samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input of the classifier.

        want : set of {"features", "logits", "head"}
            Outputs to return; the others are None.

        Yields
        ------
        reading : Reading
            If it comes from memory, its arrays are read-only.
        """
        if self.memory is not None and self.memory.is_open():
            yield from self.blocks(self.memory.read(self, X, want))
        else:
            for (reading,) in self.iter_together(X, [(self, want)]):
                yield reading

    @abstractmethod
    def iter_together(self, X, wanted):
        """Yield the outputs for several readers, from one forward pass per block.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Input of the classifier.

        wanted : list of (Reader, set of str)
            Readers of this classifier, each of another layer, and their outputs.

        Yields
        ------
        readings : list of Reading
            One per reader.
        """

    def blocks(self, reading):
        """Cut a reading of all samples as `iter_read` does."""
        yield reading


def concatenate(readings):
    """Concatenate readings of consecutive samples."""
    readings = list(readings)
    if len(readings) == 1:
        return readings[0]
    features, logits = (
        None
        if getattr(readings[0], name) is None
        else np.concatenate([getattr(reading, name) for reading in readings])
        for name in ("features", "logits")
    )
    return Reading(features, logits, readings[0].head)


def symmetric_rows(coef, intercept):
    """Return the head of two symmetric rows for a binary margin m = coef z + intercept.

    The logits (-m/2, m/2) have the softmax (1 - sigmoid(m), sigmoid(m)).
    """
    coef, intercept = np.asarray(coef), np.asarray(intercept)
    if coef.shape[0] == 1:
        coef = np.concatenate([-coef, coef]) / 2
        intercept = np.concatenate([-intercept, intercept]) / 2
    return Head(coef, intercept)


def symmetric_logits(margin):
    """Return logits (-m/2, m/2) of a binary margin; wider arrays are unchanged."""
    margin = np.asarray(margin)
    if margin.ndim == 1:
        margin = margin[:, None]
    if margin.shape[1] == 1:
        margin = np.concatenate([-margin, margin], axis=1) / 2
    return margin

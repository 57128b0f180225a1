"""Means of the features by predicted class, and lengths of features."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import Any

import numpy as np

from skood.detectors._common._class_moments import first_row, offset_sums
from skood.utils._array_api import array_namespace, asarray_like, to_host, zeros
from skood.utils._stored import stored
from skood.utils._warnings import warn
from skood.utils._weights import has_others, left_out_weight


@stored
class PredictedMeans:
    """Means of the features by predicted class, updated incrementally; None at first.

    ``counts`` has shape (n_classes,), ``totals`` (n_classes, n_features). The first
    sample, `origin`, is subtracted before summing, so that no precision is lost if
    features are far from zero.
    """

    def __init__(self):
        self.counts: Any = None
        self.origin: Any = None
        self.totals: Any = None

    def updated(self, chunk):
        """Return the means with the outputs of samples added."""
        n_classes, n_features = chunk.logits.shape[1], chunk.features.shape[1]
        new = PredictedMeans()
        new.origin = self.origin
        if new.origin is None:
            new.origin = first_row(chunk.features)
        predicted = to_host(chunk.xp.argmax(chunk.logits, axis=1))
        classes, counts, totals = offset_sums(
            chunk.features, new.origin, predicted, chunk.weight
        )
        new.counts = np.zeros(n_classes)
        new.counts[classes] = counts
        new.totals = zeros((n_classes, n_features), totals)
        new.totals[asarray_like(classes, totals)] = totals
        if self.counts is not None:
            new.counts += self.counts
            new.totals += asarray_like(self.totals, totals)
        return new

    def means(self, labels):
        """Return the means; the overall mean, with a warning, for empty classes."""
        missing = self.counts == 0
        counts = np.where(missing, 1.0, self.counts)
        means = self.origin + self.totals / counts[:, None]
        if missing.any():
            means[missing] = self._overall()
            warn(
                f"No training sample is predicted to be of the {int(missing.sum())} "
                f"classes {labels[missing][:10].tolist()}: samples that are get "
                "compared with the mean of all training features. Give more samples, "
                "or drop the class from the head."
            )
        return means

    def growth(self, chunk):
        """Return the factor by which m - z grows if z is left out of the mean m.

        Without z of weight u, the mean of n samples is m + (m - z) u / (n - u); the
        only sample of a class is compared with the mean of all others.
        """
        counts = self.counts[chunk.xp.argmax(chunk.logits, axis=1)]
        gone = left_out_weight(chunk.weight)
        counts = np.where(has_others(counts, gone), counts, self.counts.sum())
        return counts / (counts - gone)

    def least_norm(self):
        """Return the lower bound of 1-norms: eps times the norm of the overall mean."""
        norm = np.abs(self._overall()).sum()
        return np.finfo(np.float64).eps * (norm or 1.0)

    def _overall(self):
        """Return the mean of all samples."""
        return self.origin + self.totals.sum(axis=0) / self.counts.sum()


def l1_norms(features, least):
    """Return the sum of absolute values of each row, bounded below by `least`."""
    xp = array_namespace(features)
    norms = xp.sum(xp.abs(features), axis=1, dtype=xp.float64)
    return norms.clip(least)

"""Class-aware relative feature error (CARef)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import Any, ClassVar

import numpy as np

from skood.detectors._common._base_output_detector import ReadingDetector
from skood.detectors._common._class_moments import first_row, offset_sums
from skood.detectors._common._partial_fit import PartialFitMixin
from skood.utils._array_api import array_namespace, to_host
from skood.utils._warnings import warn

__all__ = ["CARef", "PredictedMeans", "l1_norms"]


class CARef(PartialFitMixin, ReadingDetector):
    r"""Class-aware relative feature error (CARef) [1]_.

    .. math:: s(x) = -\frac{\lVert z - m_{\hat y} \rVert_1}{\lVert z \rVert_1}

    where :math:`m_k` is the mean of the features of the training samples that are
    *predicted* to be of class k. A class that no training sample is predicted to be
    gets the mean of all training features, with a warning. The norm
    :math:`\lVert z \rVert_1` is at least 2.2e-16 times the norm of this mean, so that a
    zero vector has a very low, but finite score. `partial_fit` adds samples.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features and logits are used; cloned and fitted unless it
        is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds features,
        and a linear head is fitted on ``(X, y)``.

    device : str, default="auto"
        Where scores are computed: "auto" is CUDA for large arrays if there is one,
        else the CPU. A network runs on the device of its classifier.

    contamination : float, default=0.05
        Share of new ID samples to reject. With more than 5,000 training samples
        the threshold is estimated from 5,000, drawn with a fixed seed.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    location_ : ndarray of shape (n_classes, n_features)
        The means :math:`m_k`, in the order of the logits.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a share `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    CADRef : Weights the error by its effect on the largest logit.
    SHE : Inner product with the mean of the predicted class.

    References
    ----------
    .. [1] Z. Ling et al. "CADRef: Robust out-of-distribution detection via
       class-aware decoupled relative feature leveraging". CVPR 2025.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.detectors import CARef
    >>> X, y = load_digits(return_X_y=True)
    >>> y[y >= 7] = -1  # known OOD: left out of the fit
    >>> detector = CARef(LogisticRegression(max_iter=500)).fit(X / 16, y)
    >>> bool(detector.score(X / 16, y) > 0.75)
    True
    """

    _reads: ClassVar[frozenset] = frozenset({"features", "logits"})
    _elementwise: ClassVar[bool] = True
    _chunk_bytes: ClassVar[int] = 16 * 2**20

    def _begin(self, reading):
        self._class_labels = self._column_labels(reading.logits.shape[1])

    def _added(self, sums, part, labels):
        if sums is None:
            sums = PredictedMeans()
        return sums.updated(part)

    def _settle(self, reading, y):
        self.location_ = self._sums.means(self._class_labels)
        self._least = self._sums.least_norm()

    def _score_left_out(self, part, labels):
        return self._score_reading(part) * self._sums.growth(part)

    def _score_reading(self, reading):
        xp = reading.xp
        gaps = reading.asarray(self.location_)[xp.argmax(reading.logits, axis=1)]
        gaps -= reading.features
        error = xp.sum(xp.abs(gaps, out=gaps), axis=1)
        return -error / l1_norms(reading.features, self._least)


class PredictedMeans:
    """Means of the features by predicted class, updated incrementally.

    Attributes
    ----------
    counts : ndarray of shape (n_classes,) or None
        Samples per predicted class; None before the first samples.

    origin : ndarray of shape (n_features,) or None
        The first sample, which is subtracted before summing, so that no precision is
        lost if features are far from zero.

    totals : ndarray of shape (n_classes, n_features) or None
        Sums of the features minus `origin`.
    """

    def __init__(self):
        self.counts: Any = None
        self.origin: Any = None
        self.totals: Any = None

    def updated(self, part):
        """Return the means with the samples of a reading added."""
        n_classes, n_features = part.logits.shape[1], part.features.shape[1]
        new = PredictedMeans()
        new.origin = self.origin
        if new.origin is None:
            new.origin = first_row(part.features)
        new.counts, new.totals = np.zeros(n_classes), np.zeros((n_classes, n_features))
        predicted = to_host(part.xp.argmax(part.logits, axis=1))
        classes, counts, totals = offset_sums(part.features, new.origin, predicted)
        new.counts[classes], new.totals[classes] = counts, totals
        if self.counts is not None:
            new.counts += self.counts
            new.totals += self.totals
        return new

    def means(self, labels):
        """Return the means; the overall mean, with a warning, for empty classes."""
        missing = self.counts == 0
        means = self.origin + self.totals / np.maximum(self.counts, 1)[:, None]
        if missing.any():
            means[missing] = self._overall()
            warn(
                f"No training sample is predicted to be of the {int(missing.sum())} "
                f"classes {labels[missing][:10].tolist()}: samples that are get "
                "compared with the mean of all training features. Give more samples, "
                "or drop the class from the head."
            )
        return means

    def growth(self, part):
        """Return the factor by which m - z grows if z is left out of the mean m.

        Without z, the mean of n samples is m + (m - z) / (n - 1). For the only sample
        of a class, the mean of all other samples is used.
        """
        counts = self.counts[part.xp.argmax(part.logits, axis=1)]
        counts = np.where(counts > 1, counts, self.counts.sum())
        return counts / (counts - 1)

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
    return xp.clip(norms, least, None)

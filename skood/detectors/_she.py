"""Simplified Hopfield energy: similarity to the mean of the predicted class (SHE)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

import numpy as np

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._class_moments import first_row, offset_sums
from skood.detectors._common._inputs import column_labels
from skood.detectors._common._partial_fit import NotEnoughRows
from skood.utils._array_api import (
    array_namespace,
    as_double,
    asarray_like,
    row_dots,
    to_host,
    unit_rows,
    zeros,
)
from skood.utils._labels import label_codes
from skood.utils._param_validation import StrOptions
from skood.utils._torch import is_tensor, row_chunks
from skood.utils._weights import has_others, left_out_weight

# Number of entries of the patterns that are gathered at once: 1 MiB.
_BLOCK = 2**17


class SHE(OutputDetector):
    r"""Simplified Hopfield energy (SHE) [1]_.

    .. math:: s(x) = z^\top S_{\hat y}

    where the pattern :math:`S_k` is the mean of the correctly classified training
    features of class k. With ``metric="euclidean"`` the score is
    :math:`-\lVert z - S_{\hat y} \rVert_2`, with ``metric="cosine"`` the cosine of the
    angle between z and the pattern, which is zero if one of them is zero.

    :math:`\hat y` is the class with the largest logit among the classes of the ID
    samples in ``y``; a classifier may have more classes. Each class needs a correctly
    classified sample. `partial_fit` adds samples.

    Read more in the :ref:`User Guide <detectors>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose features and logits are used; cloned and fitted unless
        it is in a :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds
        features, and a linear head is fitted on ``(X, y)``.

    metric : {"inner", "euclidean", "cosine"}, default="inner"
        Similarity of features and pattern.

    device : str, default="auto"
        Where scores are computed: "auto" is CUDA for large arrays if there is one,
        else the CPU. A network runs on the device of its classifier.

    contamination : float, default=0.05
        Fraction of new ID samples to reject. With more than 5,000 training samples
        the threshold is estimated from 5,000, drawn with a fixed seed.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    patterns_ : ndarray of shape (n_classes, n_features)
        The patterns, in the order of ``classes_``.

    estimator_ : object
        The fitted classifier.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`.

    See Also
    --------
    Mahalanobis : Distance to class means, scaled by the covariance.
    KNN : Distance to a training sample.

    References
    ----------
    .. [1] J. Zhang, Q. Fu, X. Chen, L. Du, Z. Li, G. Wang, X. Liu, S. Han, D. Zhang.
       "Out-of-distribution detection based on in-distribution data patterns
       memorization with modern Hopfield energy". ICLR 2023.

    Examples
    --------
    >>> from skood.detectors import SHE
    >>> from skood.nn import LinearHead
    >>> Z, y = [[2.0, 0.0], [4.0, 1.0], [0.0, 1.0]], [0, 0, 1]
    >>> head = LinearHead([[1.0, 0.0], [0.0, 1.0]])
    >>> detector = SHE(head).fit(Z, y)
    >>> detector.patterns_
    array([[3. , 0.5],
           [0. , 1. ]])
    >>> detector.score_samples([[1.0, 0.0], [0.0, 2.0]])
    array([3., 2.])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "metric": [StrOptions({"inner", "euclidean", "cosine"})],
    }

    _needs: ClassVar[frozenset] = frozenset({"features", "logits"})
    _sparse: ClassVar[str | None] = "chunks"
    _elementwise: ClassVar[bool] = True
    _chunk_bytes: ClassVar[int] = 16 * 2**20

    def __init__(
        self,
        estimator=None,
        *,
        metric="inner",
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.metric = metric

    def _begin(self, outputs, y):
        if y is None:
            raise ValueError(
                "SHE requires y to be passed, but the target y is None: patterns are "
                "means of correctly classified samples. Pass class labels."
            )
        self._labels = column_labels(self, outputs.logits.shape[1])

    def _added(self, sums, chunk, labels):
        """Add counts and offset sums of correctly classified samples by logit."""
        codes = label_codes(labels, self._labels)
        predicted = to_host(chunk.xp.argmax(chunk.logits, axis=1))
        codes[codes != predicted] = -1
        origin = first_row(chunk.features) if sums is None else sums[0]
        class_codes, numbers, added = offset_sums(
            chunk.features, origin, codes, chunk.weight
        )
        first = int(class_codes[0] < 0)  # misclassified samples come first
        shape = len(self._labels), chunk.features.shape[1]
        counts, totals = np.zeros(shape[0]), zeros(shape, added)
        if sums is not None:
            counts += sums[1]
            totals += asarray_like(sums[2], totals)
        counts[class_codes[first:]] += numbers[first:]
        totals[asarray_like(class_codes[first:], totals)] += added[first:]
        return origin, counts, totals

    def _settle(self, outputs, y):
        origin, counts, totals = self._sums
        columns = label_codes(self.classes_, self._labels)
        missing = self.classes_[(columns < 0) | (counts[columns] == 0)]
        if len(missing):
            raise NotEnoughRows(
                f"No sample of the classes {missing.tolist()} is correctly classified "
                f"(n_samples = {self._sample.n_seen}, classes of the classifier: "
                f"{self._labels.tolist()}): they have no pattern. Leave these classes "
                "out, give more samples, or train the classifier better."
            )
        self.patterns_ = origin + totals[columns] / counts[columns, None]
        self._columns = columns
        self._compared = self.patterns_
        if self.metric == "cosine":
            self._compared = unit_rows(self.patterns_)

    def _score_left_out(self, chunk, labels):
        predicted = self._predicted(chunk)
        codes = label_codes(labels, self._labels)
        correct = codes == chunk.xp.argmax(chunk.logits, axis=1)
        features = as_double(chunk.features)
        counts = self._sums[1][self._columns[predicted]]
        # without z of weight u the mean of n samples is p + (p - z) u / (n - u)
        gone = left_out_weight(chunk.weight)
        is_left = has_others(counts, gone)
        fraction = np.where(correct & is_left, gone / (counts - gone), 0.0)[:, None]
        patterns = self.patterns_[predicted]
        patterns += fraction * (patterns - features)
        if self.metric == "cosine":
            patterns = unit_rows(patterns)
        scores = self._compare(features, patterns)
        scores[correct & ~is_left] = np.nan
        return scores

    def _predicted(self, outputs):
        """Return the index of the pattern that each sample is compared with."""
        logits = outputs.logits
        if not np.array_equal(self._columns, np.arange(logits.shape[1])):
            logits = logits[:, outputs.asarray(self._columns)]
        return outputs.xp.argmax(logits, axis=1)

    def _score_outputs(self, outputs):
        features, predicted = outputs.features, self._predicted(outputs)
        patterns = outputs.asarray(self._compared)
        # Patterns are gathered per sample, in blocks that fit into the CPU's cache.
        size = len(features) if is_tensor(features) else _BLOCK // features.shape[1]
        blocks = row_chunks(len(features), 1, max(1, size))
        scores = [self._compare(features[b], patterns[predicted[b]]) for b in blocks]
        return outputs.xp.concat(scores)

    def _compare(self, features, patterns):
        """Compare each sample with its own pattern; `patterns` is overwritten."""
        if self.metric == "euclidean":
            patterns -= features
            return -array_namespace(patterns).sqrt(row_dots(patterns, patterns))
        if self.metric == "cosine":
            features = unit_rows(features)
        elif is_tensor(features):  # torch does not multiply different float types
            features = as_double(features)
        return row_dots(features, patterns)

"""KL divergence from the mean predictions of the classes (KL matching)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import ClassVar

import numpy as np

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._class_moments import class_sums
from skood.detectors._common._softmax import shifted_exponentials
from skood.utils._array_api import asarray_like, row_dots, row_max, to_host, zeros
from skood.utils._warnings import warn
from skood.utils._weights import has_others, left_out_weight


class KLMatching(OutputDetector):
    r"""KL divergence from the nearest mean prediction of a class (KL matching) [1]_.

    .. math:: s(x) = -\min_k D_\text{KL}(p \,\Vert\, d_k)
        = -\min_k \sum_j p_j \log \frac{p_j}{d_{kj}}

    where :math:`d_k` is the mean softmax probability p of the training samples that are
    *predicted* to be of class k. Labels are not needed. A class that no training sample
    is predicted to be of is left out, with a warning.

    Entries of :math:`d_k` are at least the smallest normal float, 2.2e-308. The largest
    :math:`p_j` is computed from the sum of the others, so that confident samples are
    ranked. `partial_fit` adds samples.

    Read more in the :ref:`User Guide <detectors_logits>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose logits are used; cloned and fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds logits.

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
    columns_ : ndarray of shape (n_predicted,)
        Indices of the logits of classes that training samples are predicted to be of.

    distributions_ : ndarray of shape (n_predicted, n_classes)
        The mean predictions :math:`d_k` of these classes.

    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`, if known.

    See Also
    --------
    Entropy : Up to a constant, the divergence from the uniform prediction.

    Notes
    -----
    The paper computes :math:`d_k` from a validation set, on which a network is less
    confident than on its training samples: fit this detector on a validation set, with
    the classifier in a :class:`~sklearn.frozen.FrozenEstimator`.

    References
    ----------
    .. [1] D. Hendrycks, S. Basart, M. Mazeika, A. Zou, J. Kwon, M. Mostajabi, J.
       Steinhardt, D. Song. "Scaling out-of-distribution detection for real-world
       settings". ICML 2022.

    Examples
    --------
    >>> from skood.detectors import KLMatching
    >>> logits = [[3.0, 0.0], [4.0, 0.0], [0.0, 3.0], [0.0, 4.0]]
    >>> detector = KLMatching().fit(logits)
    >>> detector.score_samples([[3.5, 0.0], [0.0, 0.0]]).round(3)
    array([-0.   , -1.034])
    """

    _needs: ClassVar[frozenset] = frozenset({"logits"})

    def _added(self, sums, chunk, labels):
        """Add counts of predictions, and sums of probabilities without the largest."""
        p, others, _ = shifted_exponentials(chunk.logits)
        p /= (1.0 + others)[:, None]
        predicted = to_host(chunk.xp.argmax(chunk.logits, axis=1))
        columns, counts, added, _ = class_sums(p, predicted, chunk.weight)
        n_classes = p.shape[1]
        numbers, totals = np.zeros(n_classes), zeros((n_classes, n_classes), added)
        if sums is not None:
            numbers += sums[0]
            totals += asarray_like(sums[1], totals)
        numbers[columns] += counts
        totals[asarray_like(columns, totals)] += added
        return numbers, totals

    def _settle(self, outputs, y):
        counts, sums = self._sums
        self.columns_ = np.flatnonzero(counts)
        n_missing = len(counts) - len(self.columns_)
        if n_missing:
            missing = np.flatnonzero(counts == 0)[:10].tolist()
            warn(
                f"No training sample is predicted to be of {n_missing} of the "
                f"{len(counts)} classes (columns {missing}"
                f"{', …' * (n_missing > 10)} of the logits): they have no typical "
                "prediction and are left out. Give samples of all classes."
            )
        means = sums[self.columns_] / counts[self.columns_][:, None]
        others = means.sum(axis=1)  # the entry of the predicted class is zero so far
        logs = _logs(means, self.columns_)
        means[np.arange(len(means)), self.columns_] = 1.0 - others
        self.distributions_ = means
        self._log_distributions = np.ascontiguousarray(logs.T)

    def _score_left_out(self, chunk, labels):
        p, others, shifted = shifted_exponentials(chunk.logits)
        indices, top = np.arange(len(p)), np.argmax(shifted, axis=1)
        counts, sums = self._sums
        gone = left_out_weight(chunk.weight)
        is_left = has_others(counts[top], gone)
        left = np.maximum(sums[top] - p * (gone / (1.0 + others))[:, None], 0.0)
        rest = np.where(is_left, counts[top] - gone, np.nan)
        logs = _logs(left / rest[:, None], top)
        cross = p @ self._log_distributions
        cross += self._log_distributions[top]
        divergence = row_dots(p, logs) + logs[indices, top]
        divergence[~is_left] = -np.inf  # without the sample, its class has no mean
        cross[indices, np.searchsorted(self.columns_, top)] = divergence
        nearest = row_dots(p, shifted) - row_max(cross)
        scores = -np.clip(nearest / (1.0 + others) - np.log1p(others), 0.0, None)
        return np.where(np.isfinite(scores), scores, np.nan)

    def _score_outputs(self, outputs):
        xp = outputs.xp
        # With e_j = exp(l_j - max l), and S the sum of all but the largest:
        # sum p log p = sum e_j (l_j - max l) / (1 + S) - log(1 + S)
        exponentials, others, shifted = shifted_exponentials(outputs.logits)
        exponentials[shifted == 0.0] = 1.0
        cross = exponentials @ outputs.asarray(self._log_distributions)
        nearest = row_dots(exponentials, shifted) - row_max(cross)
        divergence = nearest / (1.0 + others) - xp.log1p(others)
        return -divergence.clip(0.0)

    def _onnx_score(self, outputs):
        exponentials, others, shifted, _ = outputs.shifted_exponentials()
        logs = self._log_distributions
        cross = exponentials @ logs + shifted.argmax().rows_of(logs)
        nearest = (exponentials * shifted).sum() - cross.max()
        divergence = nearest / (others + 1.0) - others.log1p()
        return -divergence.apply("Relu")


def _logs(means, top):
    """Return logarithms of mean probabilities, given with 0 in the columns `top`."""
    logs = np.log(np.maximum(means, np.finfo(np.float64).tiny))
    logs[np.arange(len(means)), top] = np.log1p(-means.sum(axis=1))
    return logs

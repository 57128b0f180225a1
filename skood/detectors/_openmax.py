"""OpenMax: softmax with the probability of an unknown class."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq

from skood.detectors._common._base_output_detector import OutputDetector
from skood.detectors._common._class_moments import class_sums
from skood.detectors._common._inputs import column_labels
from skood.detectors._common._softmax import log_sum_exp
from skood.utils._array_api import (
    array_namespace,
    as_double,
    asarray_like,
    row_dots,
    row_indices,
    row_sums,
    to_host,
    unit_rows,
    zeros,
)
from skood.utils._labels import label_codes
from skood.utils._linalg import check_no_overflow
from skood.utils._param_validation import Interval, StrOptions
from skood.utils._torch import is_tensor
from skood.utils._warnings import warn
from skood.utils._weights import row_weight

# Distances whose difference, relative to the numbers they are computed from, is less
# than this are equal up to rounding.
_NO_SPREAD = 64 * np.finfo(np.float64).eps


class OpenMax(OutputDetector):
    r"""Log probability that the class is not unknown (OpenMax) [1]_.

    .. math:: s(x) = \log\bigl(1 - P(\text{unknown} \mid x)\bigr)
        = \log \frac{\sum_k e^{\hat l_k}}{e^{\hat l_0} + \sum_k e^{\hat l_k}}

    where the :math:`\alpha` largest logits, of rank r = 1, 2, …, are reduced, and the
    reductions are added to the logit of the unknown class:

    .. math:: \hat l_k = l_k (1 - w_k), \qquad \hat l_0 = \sum_k l_k w_k, \qquad
        w_k = \frac{\alpha + 1 - r_k}{\alpha} F_k(d(l, \mu_k))

    (:math:`w_k = 0` for the others). :math:`\mu_k` is the mean logit vector of the
    training samples of class k that are classified correctly, and :math:`F_k` the
    distribution function of a Weibull distribution fitted to the `tail_size` largest
    distances d of these samples from the mean. The logarithm gives the same ranking as
    :math:`-P(\text{unknown} \mid x)`, but does not round to 0 or 1.

    A class without a correctly classified sample has :math:`F_k = 1`. A class whose
    distances are all equal (for example with two samples) gets the Weibull distribution
    of the largest distances of all classes. Both give a warning.

    Logits are multiplied, so that a constant added to all of them changes the score,
    and samples whose logits are all negative are not detected as unknown: use centered
    logits.

    Read more in the :ref:`User Guide <detectors_logits>`.

    Parameters
    ----------
    estimator : object, default=None
        The classifier whose logits are used; cloned and fitted unless it is in a
        :class:`~sklearn.frozen.FrozenEstimator`. None: `X` holds logits, of one column
        per class in ``y``, in sorted order.

    tail_size : int, default=20
        Number of largest distances per class that the Weibull distribution is fitted
        to. The default is a few percent of a class with a thousand samples; use a lower
        value for smaller classes. All distances are used for a class with fewer, with a
        warning.

    alpha : int, default=10
        Number :math:`\alpha` of logits to reduce; all if there are fewer.

    distance : {"eucos", "euclidean", "cosine"}, default="eucos"
        The distance d. "eucos" is the cosine distance plus `euclidean_weight` times
        the Euclidean distance. A zero vector has cosine distance 1 from any vector.

    euclidean_weight : float, default=0.005
        Weight of the Euclidean distance in "eucos".

    translation : float, default=10000.0
        The Weibull distribution is that of ``d - d_min + translation``, where ``d_min``
        is the smallest distance of the tail. If it is much larger than the spread of
        the distances, the distribution is a Gumbel distribution (for minima), for any
        unit of the distances.

    device : str, default="auto"
        Where scores are computed: "auto" is CUDA for large arrays if there is one,
        else the CPU. A network runs on the device of its classifier.

    contamination : float, default=0.05
        Fraction of new ID samples to reject.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``; they are left out of the fit.

    Attributes
    ----------
    means_ : ndarray of shape (n_classes, n_classes)
        Mean logit vector of each class, zeros for a class without a correctly
        classified sample.

    location_ : ndarray of shape (n_classes,)
        Smallest distance in the tail of each class; minus infinity for a class without
        a correctly classified sample.

    shape_, scale_ : ndarray of shape (n_classes,)
        Parameters of the Weibull distribution of ``d - location_ + translation``.

    estimator_ : object
        The fitted classifier, if there is one.

    offset_ : float
        Threshold: at most a fraction `contamination` of the scores of training samples,
        each left out of the fit, are below it, see :ref:`ties`.

    classes_ : ndarray of shape (n_classes,)
        The classes, without `ood_label`.

    See Also
    --------
    MSP : The probability of the predicted class, without an unknown one.
    Mahalanobis : Distances to class means without extreme value theory.

    Notes
    -----
    As printed, the algorithm of the paper has the survival function in place of
    :math:`F_k` and :math:`\alpha - r` in place of :math:`\alpha + 1 - r`, so that
    samples close to a mean would be unknown; this class follows the code of the
    authors. The translation is that of their library libMR; the likelihood is maximized
    by the only root in the shape parameter, on ``log(1 + (d - d_min) / translation)``,
    where it does not cancel. The authors divide the Euclidean distance of test samples,
    but not of training samples, by 200, which is not followed; the weight in "eucos"
    applies to both. pytorch-ood uses the mean of all samples of a class, including
    misclassified samples, `tail_size` 25 and the Euclidean distance.

    References
    ----------
    .. [1] A. Bendale and T. E. Boult. "Towards open set deep networks". CVPR 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.detectors import OpenMax
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(90) % 3
    >>> logits = rng.normal(size=(90, 3)) + 6 * np.eye(3)[y]
    >>> detector = OpenMax().fit(logits, y)
    >>> detector.score_samples([[6.0, 0.0, 0.0], [3.0, 3.0, 3.0]]).round(2)
    array([-0.01, -3.62])
    """

    _parameter_constraints: dict = {
        **OutputDetector._parameter_constraints,
        "tail_size": [Interval(Integral, 2, None, closed="left")],
        "alpha": [Interval(Integral, 1, None, closed="left")],
        "distance": [StrOptions({"eucos", "euclidean", "cosine"})],
        "euclidean_weight": [Interval(Real, 0, None, closed="neither")],
        "translation": [Interval(Real, 0, None, closed="neither")],
    }

    _needs: ClassVar[frozenset] = frozenset({"logits"})
    _max_offset_samples: ClassVar[int | None] = None

    def __init__(
        self,
        estimator=None,
        *,
        tail_size=20,
        alpha=10,
        distance="eucos",
        euclidean_weight=0.005,
        translation=10000.0,
        device="auto",
        contamination=0.05,
        ood_label=-1,
    ):
        super().__init__(
            estimator, device=device, contamination=contamination, ood_label=ood_label
        )
        self.tail_size = tail_size
        self.alpha = alpha
        self.distance = distance
        self.euclidean_weight = euclidean_weight
        self.translation = translation

    def _fit_outputs(self, outputs, y):
        if y is None:
            raise ValueError(
                "OpenMax requires y to be passed, but the target y is None: it learns "
                "from correctly classified samples. Pass class labels."
            )
        n_classes = outputs.logits.shape[1]
        columns = label_codes(y, column_labels(self, n_classes))
        correct = np.zeros(len(columns), dtype=bool)
        start = 0
        counts, sums = np.zeros(n_classes), None
        for chunk, codes in self._chunks(outputs, columns):
            hits = to_host(chunk.xp.argmax(chunk.logits, axis=1)) == codes
            correct[start : start + chunk.n_samples] = hits
            start += chunk.n_samples
            if hits.any():
                hit_logits = as_double(chunk.logits[np.flatnonzero(hits)])
                weight = row_weight(chunk.weight, hits)
                hit_codes, added, total, _ = class_sums(hit_logits, codes[hits], weight)
                counts[hit_codes] += added
                if sums is None:
                    sums = zeros((n_classes, n_classes), total)
                sums[asarray_like(hit_codes, total)] += total
        self._check_correct(counts, len(columns))
        self.means_ = to_host(sums) / np.where(counts > 0, counts, 1.0)[:, None]
        distances = self._distances_to_means(outputs, columns, correct)
        weights = [None] * n_classes
        if outputs.weight is not None:
            masks = [correct & (columns == k) for k in range(n_classes)]
            weights = [outputs.weight[mask] for mask in masks]
        self._fit_tails(distances, weights, counts)

    def _check_correct(self, counts, n_samples):
        """Warn of classes without a correctly classified sample; raise if all are."""
        if not counts.any():
            raise ValueError(
                f"None of the n_samples = {n_samples} is classified correctly: OpenMax "
                "learns from samples whose largest logit is the one of their label. "
                "Check the order of the columns, or the labels."
            )
        missing = np.flatnonzero(counts == 0)
        if len(missing):
            warn(
                f"No training sample of {len(missing)} of the {len(counts)} classes "
                f"(columns {missing[:10].tolist()}{', …' * (len(missing) > 10)} of the "
                "logits) is classified correctly: samples that are predicted to be of "
                "them count as unknown. Give samples of all classes."
            )

    def _distances_to_means(self, outputs, columns, correct):
        """Return distances of correctly classified samples from their class means."""
        distances = np.full(len(columns), np.nan)
        start = 0
        for chunk, codes in self._chunks(outputs, columns):
            hits = np.flatnonzero(correct[start : start + chunk.n_samples])
            if len(hits):
                logits = as_double(chunk.logits[hits])
                means = chunk.asarray(self.means_)[codes[hits]]
                gaps = logits - means
                euclidean = chunk.xp.sqrt(row_dots(gaps, gaps))
                cosine = 1.0 - row_dots(unit_rows(logits), unit_rows(means))
                distances[start + hits] = to_host(self._combined(euclidean, cosine))
            start += chunk.n_samples
        return [distances[correct & (columns == k)] for k in range(len(self.means_))]

    def _combined(self, euclidean, cosine):
        if self.distance == "euclidean":
            return euclidean
        if self.distance == "cosine":
            return cosine
        return self.euclidean_weight * euclidean + cosine

    def _fit_tails(self, distances, weights, counts):
        """Fit a Weibull distribution to the largest distances of each class."""
        lengths = np.sqrt(row_dots(self.means_, self.means_))
        sizes = self._combined(lengths, 1.0) * np.ones(len(lengths))
        for array in (sizes, *distances):
            check_no_overflow(array, "A distance to the mean logits of a class")
        fits = [
            self._fit_tail(of_class, weight, size) if len(of_class) else None
            for of_class, weight, size in zip(distances, weights, sizes, strict=True)
        ]
        flat = [k for k, fit in enumerate(fits) if fit is None and counts[k]]
        if flat:
            every = None if weights[0] is None else np.concatenate(weights)
            pooled = self._fit_tail(np.concatenate(distances), every, sizes.max())
            if pooled is None:
                raise ValueError(
                    "Correctly classified samples are all at one distance from the "
                    f"mean logits of their class (n_samples = {int(counts.sum())} in "
                    f"{np.count_nonzero(counts)} classes). Give at least 3 different "
                    "ones of a class; two logits -m and m have no angle, use "
                    "distance='euclidean' for them."
                )
            warn(
                f"The distances to the mean logits are equal in the classes of columns "
                f"{flat[:10]}{', …' * (len(flat) > 10)}: these take the Weibull "
                "distribution of all classes. Give more samples of them."
            )
            for k in flat:
                fits[k] = pooled
        self._warn_of_small_classes(counts)
        unknown = (-np.inf, 1.0, 0.0)  # a distribution function that is 1 everywhere
        location, shape, log_scale = np.transpose([fit or unknown for fit in fits])
        self.location_, self.shape_, self._log_scale = location, shape, log_scale
        self.scale_ = self.translation * np.exp(log_scale)

    def _warn_of_small_classes(self, counts):
        small = (counts > 0) & (counts < self.tail_size)
        if small.any():
            warn(
                f"{small.sum()} of the {len(counts)} classes have fewer correctly "
                f"classified samples ({int(counts[small].min())} at the least) than "
                f"tail_size={self.tail_size}: their Weibull distribution is fitted to "
                "all of them. Give more samples, or lower tail_size."
            )

    def _fit_tail(self, distances, weight, size):
        """Return location, shape and log scale of a tail; None if it has no spread.

        `size`: the magnitude of the numbers whose differences are the distances.
        """
        if weight is None:
            n_tail = min(self.tail_size, len(distances))  # Algorithm 1 of [1]
            tail = np.partition(distances, len(distances) - n_tail)[-n_tail:]
        else:
            tail, weight = _weighted_tail(distances, weight, self.tail_size)
        location = tail.min()
        if tail.max() - location <= _NO_SPREAD * (tail.max() + size):
            return None
        return location, *fit_log_weibull(
            np.log1p((tail - location) / self.translation), weight
        )

    def _distances(self, logits, ranked, outputs):
        """Return distances from ranked means; expanded squares would cancel."""
        xp = outputs.xp
        means = outputs.asarray(self.means_)
        unit, unit_means = unit_rows(logits), unit_rows(means)
        columns = []
        for j in range(ranked.shape[1]):
            nearby, euclidean = ranked[:, j], 0.0
            if self.distance != "cosine":
                gaps = means[nearby]
                gaps -= logits
                euclidean = xp.sqrt(row_dots(gaps, gaps))
            cosine = 1.0 - row_dots(unit, unit_means[nearby])
            columns.append(self._combined(euclidean, cosine))
        return xp.stack(columns, axis=1)

    def _score_outputs(self, outputs):
        xp = outputs.xp  # Algorithm 2 of [1]
        logits = xp.astype(outputs.logits, xp.float64, copy=True)
        alpha = min(self.alpha, logits.shape[1])
        ranked = leading_columns(logits, alpha)
        indices = row_indices(logits)[:, None]
        location, shape, log_scale = (
            outputs.asarray(array)[ranked]
            for array in (self.location_, self.shape_, self._log_scale)
        )
        distances = self._distances(logits, ranked, outputs)
        unknown = _distribution_function(
            (distances - location) / self.translation, shape, log_scale
        )
        weights = np.arange(alpha, 0, -1) / alpha
        taken = logits[indices, ranked] * unknown * outputs.asarray(weights)
        logits[indices, ranked] -= taken
        # log(1 - P) = -log(1 + exp(gap)), without overflow
        gap = row_sums(taken) - log_sum_exp(logits)
        return -(gap.clip(0.0) + xp.log1p(xp.exp(-xp.abs(gap))))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def leading_columns(logits, k):
    """Return columns of the k largest entries per row, descending, ties in order."""
    xp = array_namespace(logits)

    def in_order(values):
        return xp.argsort(-values, axis=1, stable=True)

    first = logits.shape[1] - k
    if first < k:
        return in_order(logits)[:, :k]
    if is_tensor(logits):
        leading = logits.topk(k, dim=1).indices
    else:
        leading = np.argpartition(logits, first, axis=1)[:, first:]
    leading = xp.sort(leading, axis=1)
    indices = row_indices(logits)[:, None]
    values = logits[indices, leading]
    ranked = leading[indices, in_order(values)]
    reach = xp.min(values, axis=1, keepdims=True)
    tied = xp.nonzero(xp.sum(xp.astype(logits >= reach, xp.int64), axis=1) > k)[0]
    if len(tied):  # a partial sort returns arbitrary ones of equal entries
        ranked[tied] = in_order(logits[tied])[:, :k]
    return ranked


def _weighted_tail(distances, weight, size):
    """Return the largest distances up to a sum of weights, and their weights in it."""
    order = np.argsort(distances)[::-1]
    distances, weight = distances[order], weight[order]
    ends = np.cumsum(weight)
    inside = np.clip(size - (ends - weight), 0.0, weight)
    n_tail = np.count_nonzero(inside > 0)
    return distances[:n_tail], inside[:n_tail]


def _distribution_function(shifts, shape, log_scale):
    """Return the Weibull distribution function at 1 + shifts, possibly infinite."""
    xp = array_namespace(shifts)
    inside = shifts > -1.0
    logs = xp.log1p(xp.where(inside, shifts, xp.zeros_like(shifts)))
    # above exp(700) the function is 1
    exponents = xp.clip(shape * (logs - log_scale), None, 700.0)
    values = -xp.expm1(-xp.exp(exponents))
    return xp.where(inside, values, xp.zeros_like(values))


def fit_log_weibull(logs, weight=None):
    r"""Fit a Weibull distribution by maximum likelihood to logarithms of values.

    For values :math:`e^{u_i}`, the shape c is the only root of

    .. math:: \frac{\sum_i u_i e^{c u_i}}{\sum_i e^{c u_i}} - \bar u - \frac{1}{c} ,

    which increases in c, and the scale is :math:`(\overline{e^{c u}})^{1/c}`. `logs`
    are the :math:`u_i`, not all equal, of shape (n_samples,). Returns the shape and the
    logarithm of the scale. Sums and means are weighted, if weights are given.
    """
    largest = logs.max()
    spread = largest - logs.min()
    gaps = (logs - largest) / spread  # from -1 to 0
    mean = np.average(gaps, weights=weight)

    def slope(c):
        weights = np.exp(c * gaps)
        if weight is not None:
            weights *= weight
        return weights @ gaps / weights.sum() - mean - 1.0 / c

    # The first term is at most 0, so that the slope at `low` is at most `mean` < 0.
    low = -0.5 / mean
    high = 4.0 * low
    while slope(high) < 0:
        high *= 2.0
    c = brentq(slope, low, high, xtol=1e-14 * low, rtol=1e-14)
    mean_power = np.average(np.exp(c * gaps), weights=weight)
    log_scale = largest + spread * np.log(mean_power) / c
    return c / spread, log_scale

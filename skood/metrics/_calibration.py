"""Calibration of predicted probabilities: ECE and Brier score."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np

from skood.metrics._sample_checks import id_mask, id_samples, least_count
from skood.utils._labels import check_labels
from skood.utils._losses import per_sample_loss
from skood.utils._param_validation import Number, StrOptions, validate_params
from skood.utils._torch import to_numpy

# Number of draws of the noise of a calibration error, and of samples in a block.
_N_DRAWS = 500
_BLOCK = 10**4

# Tolerance of the sum of the probabilities of a sample: rounding in float16.
_SUM_TOLERANCE = 1e-3
# Tolerance of a probability outside of [0, 1]: rounding in float32, as in the mean of
# an ensemble.
_TOLERANCE = 1e-6


def _in_range(proba):
    """Return probabilities clipped to [0, 1]; raise if they are invalid."""
    bad = ~((proba >= -_TOLERANCE) & (proba <= 1 + _TOLERANCE))
    if bad.any():
        raise ValueError(
            f"y_proba must be in [0, 1] on ID samples, got {float(proba[bad][0])!r} "
            f"(in {int(bad.sum())} of {bad.size} entries); pass probabilities, for "
            f"example the softmax of logits."
        )
    return np.clip(proba, 0, 1)


def _one_hot_and_proba(y_true, y_proba, classes, ood_label, sample_weight=None):
    """Return one-hot labels, probabilities and weights (or None) of the ID samples."""
    is_id, weight = id_samples(y_true, ood_label, classes, sample_weight)
    y_true = check_labels(y_true, "y_true")
    known = np.asarray(classes)
    if classes is None:  # samples without weight have columns as well
        known = np.unique(y_true[id_mask(y_true, ood_label, classes)])
    y_true = y_true[is_id]
    y_proba = np.asarray(to_numpy(y_proba), dtype=np.float64)
    if y_proba.ndim != 2 or y_proba.shape[0] != is_id.size:
        raise ValueError(
            f"y_proba must have shape ({is_id.size}, n_classes), one row per label, "
            f"got {y_proba.shape}. With two classes and the probability p of the "
            f"second, pass np.column_stack([1 - p, p])."
        )
    if y_proba.shape[1] != known.size:
        raise ValueError(
            f"y_proba has {y_proba.shape[1]} columns for {known.size} classes "
            f"{known.tolist()}; pass classes, the label of every column (classes_ of "
            f"the classifier)."
        )
    if len(set(known.tolist())) != known.size:
        raise ValueError(f"classes contains a label twice, got {known.tolist()}.")
    proba = _in_range(y_proba[is_id])
    off = np.abs(proba.sum(axis=1) - 1)
    if off.max() > _SUM_TOLERANCE:
        raise ValueError(
            f"The rows of y_proba must sum to 1, got a row that is off by "
            f"{off.max():.3g}; pass probabilities of all classes."
        )
    return y_true[:, None] == known, proba, weight


def bins_of(proba, n_bins, strategy, weight=None):
    """Return the bin of every probability; bins are open below, closed above."""
    k = np.arange(1, n_bins)
    if strategy == "uniform":
        inner_edges = k / n_bins
    elif weight is None:
        n = proba.size
        inner_edges = np.sort(proba)[-(-k * n // n_bins) - 1]  # rank ceil(k n / B)
    else:
        order = np.argsort(proba)
        ends = np.cumsum(weight[order])
        ranks = least_count(k / n_bins, ends[-1])
        inner_edges = proba[order[np.searchsorted(ends, ranks)]]
    return np.searchsorted(inner_edges, proba)


def _binned_error(proba, happened, weight, n_bins, strategy, norm):
    """Calibration error of the probability of one event."""
    bins = bins_of(proba, n_bins, strategy, weight)
    if weight is not None:
        happened, proba = happened * weight, proba * weight
    count = np.bincount(bins, weight)
    gap = np.abs(np.bincount(bins, happened) - np.bincount(bins, proba))
    occupied = count > 0
    return _norm(gap[occupied] / count[occupied], count[occupied] / count.sum(), norm)


def _norm(gap, fraction, norm):
    """Return the norm of gaps (..., n_bins), given the fraction of samples per bin."""
    if norm == "l1":
        return np.sum(fraction * gap, axis=-1)  # Eq. (3) of [1]
    if norm == "l2":
        return np.sqrt(np.sum(fraction * gap**2, axis=-1))
    return gap.max(axis=-1)  # Eq. (5) of [1]


def _noise_draws(proba, happened, weight, n_bins, strategy, norm, multipliers):
    """Return draws of the norm of the sampling errors of the gaps of all bins."""
    bins = bins_of(proba, n_bins, strategy, weight)
    count = np.bincount(bins, weight, minlength=n_bins)
    sums = np.zeros((_N_DRAWS, n_bins))
    residuals = happened - proba
    if weight is not None:
        residuals = residuals * weight
    for block, drawn in multipliers(proba.size):
        terms = residuals[block, None] * (bins[block, None] == np.arange(n_bins))
        sums += drawn @ terms
    occupied = count > 0
    return _norm(
        abs(sums[:, occupied]) / count[occupied], count[occupied] / count.sum(), norm
    )


def calibration_noise(
    level,
    y_true,
    y_proba,
    y_pred=None,
    *,
    n_bins,
    strategy,
    norm,
    classwise,
    ood_label,
    classes,
    sample_weight=None,
):
    r"""Return a quantile of the norm of the sampling errors of all gaps.

    The gap of a bin is the true one plus an error. By the triangle inequality the true
    calibration error is at least the measured one minus the norm of these errors. They
    are drawn as sums of residuals, :math:`\frac{1}{n_b} \sum_i \xi_i (r_i - p_i)` with
    standard normal :math:`\xi_i`.
    """

    def multipliers(n):
        rng = np.random.default_rng(0)  # the same for all classes, and in each call
        for start in range(0, n, _BLOCK):
            block = slice(start, min(n, start + _BLOCK))
            yield block, rng.normal(size=(_N_DRAWS, block.stop - start))

    events = _events(
        y_true, y_proba, y_pred, classwise, ood_label, classes, sample_weight
    )
    bins = n_bins, strategy
    draws = [
        _noise_draws(p, happened, weight, *bins, norm, multipliers)
        for p, happened, weight in events
    ]
    return float(np.quantile(np.mean(draws, axis=0), level))


def confidence_of(y_true, y_proba, y_pred, ood_label, classes, sample_weight=None):
    """Return the confidences of the ID samples, whether they are right, weights."""
    if y_pred is None:
        one_hot, proba, weight = _one_hot_and_proba(
            y_true, y_proba, classes, ood_label, sample_weight
        )
        top = proba.argmax(axis=1)
        samples = np.arange(top.size)
        return proba[samples, top], one_hot[samples, top], weight
    is_id, weight = id_samples(y_true, ood_label, classes, sample_weight)
    confidence = np.asarray(to_numpy(y_proba), dtype=np.float64)
    if confidence.shape != is_id.shape:
        raise ValueError(
            f"With y_pred, y_proba must have shape ({is_id.size},), one probability "
            f"that the prediction is right per label; got {confidence.shape}. Leave "
            f"y_pred out to score the probabilities of all classes."
        )
    confidence = _in_range(confidence[is_id])
    right = 1 - per_sample_loss(y_true, y_pred, is_id=is_id)
    return confidence, right, weight


def _events(y_true, y_proba, y_pred, classwise, ood_label, classes, sample_weight):
    """Return probabilities, outcomes and weights (n_id,) of one event, or per class."""
    rest = ood_label, classes, sample_weight
    if not classwise:
        return [confidence_of(y_true, y_proba, y_pred, *rest)]
    if y_pred is not None:
        raise ValueError(
            "classwise=True needs the probabilities of all classes; leave y_pred out."
        )
    one_hot, proba, weight = _one_hot_and_proba(
        y_true, y_proba, classes, ood_label, sample_weight
    )
    return [(p, hits, weight) for p, hits in zip(proba.T, one_hot.T, strict=True)]


@validate_params(
    {
        "n_bins": [Number(Integral, 1, None, closed="left")],
        "strategy": [StrOptions({"uniform", "quantile"})],
        "norm": [StrOptions({"l1", "l2", "max"})],
        "classwise": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def expected_calibration_error(
    y_true,
    y_proba,
    y_pred=None,
    *,
    n_bins=15,
    strategy="uniform",
    norm="l1",
    classwise=False,
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Expected calibration error (ECE): confidence against accuracy, in bins.

    OOD samples are excluded: any class predicted for them is wrong. Read more in the
    :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, ood_label, sample_weight
        As in :func:`auroc`.

    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Probabilities of the classes, as returned by ``predict_proba``; the largest one
        is the confidence, and its class (the first among ties) the prediction. Or, with
        `y_pred`, the probability that the prediction is right.

    y_pred : array-like of shape (n_samples,), default=None
        Predicted labels, for a one-dimensional `y_proba`.

    n_bins : int, default=15
        Number of bins.

    strategy : {"uniform", "quantile"}, default="uniform"
        "uniform": bins of equal width over [0, 1]. "quantile": bins of equal mass.

    norm : {"l1", "l2", "max"}, default="l1"
        "l1": the mean gap, ECE. "l2": the root of the mean squared gap. "max": the
        largest gap, MCE.

    classwise : bool, default=False
        Whether to average, over the classes, the error of each class's probability
        (each with its own bins) instead of only the largest probability.

    classes : array-like of shape (n_classes,), default=None
        The labels of the columns of `y_proba`, ``classes_`` of the classifier; a
        label outside of them is OOD. None: the sorted ID labels.

    Returns
    -------
    ece : float
        In [0, 1], lower is better.

    Raises
    ------
    ValueError
        If `y_proba` has another shape, is not in [0, 1] (up to 1e-6; smaller deviations
        are clipped) or does not sum to 1, if there are no ID samples, or if a parameter
        is unknown.

    See Also
    --------
    brier : A proper score of the same probabilities, without bins.

    Notes
    -----
    With the accuracy :math:`a_b` and the mean confidence :math:`c_b` of the
    :math:`n_b` samples in bin b,

    .. math::
        \mathrm{ECE}_1 = \sum_b \frac{n_b}{n} |a_b - c_b|, \quad
        \mathrm{ECE}_2 = \Big( \sum_b \frac{n_b}{n} (a_b - c_b)^2 \Big)^{1/2}, \quad
        \mathrm{MCE} = \max_b |a_b - c_b| .

    Empty bins do not count. Of B bins, bin b is open below and closed above:

    - "uniform" [1]_: :math:`((b-1)/B, b/B]`, and 0 belongs to the first;
    - "quantile" [3]_: its upper edge is the :math:`\lceil bn/B \rceil`-th smallest
      confidence. Without ties the sizes differ by one at most. Tied confidences always
      share a bin, so ties may leave fewer than `n_bins` bins.

    Class-wise [2]_: :math:`\frac1K \sum_k` of the error of the k-th column as the
    probability of ``y_true == classes[k]``.

    The gap of a bin is positive even for a calibrated classifier, about
    :math:`\sqrt{a(1-a)/n_b}`: compare at equal numbers of samples and bins only.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger. On calibration of modern
       neural networks. ICML 2017.
    .. [2] M. Kull, M. Perello-Nieto, M. Kängsepp, T. Silva Filho, H. Song, P. Flach.
       Beyond temperature scaling. NeurIPS 2019.
    .. [3] J. Nixon, M. W. Dusenberry, L. Zhang, G. Jerfel, D. Tran. Measuring
       calibration in deep learning. CVPR Workshops 2019.

    Examples
    --------
    >>> from skood.metrics import expected_calibration_error
    >>> y_true = [0, 1, 1, 0, -1]
    >>> y_proba = [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.7, 0.3], [0.5, 0.5]]
    >>> round(expected_calibration_error(y_true, y_proba), 4)
    0.175
    >>> round(expected_calibration_error(y_true, y_proba, n_bins=2, norm="max"), 4)
    0.025
    >>> round(expected_calibration_error(y_true, y_proba, classwise=True), 4)
    0.175
    """
    events = _events(
        y_true, y_proba, y_pred, classwise, ood_label, classes, sample_weight
    )
    errors = [
        _binned_error(p, happened, weight, n_bins, strategy, norm)
        for p, happened, weight in events
    ]
    return float(np.mean(errors))


def brier(y_true, y_proba, *, ood_label=-1, classes=None, sample_weight=None):
    r"""Brier score: mean squared distance of the probabilities from the truth.

    The squares are *summed* over the classes, also when there are two, so that the
    score is in [0, 2]. OOD samples are excluded. Read more in the
    :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_proba, ood_label, classes, sample_weight
        As in :func:`expected_calibration_error`, with the probabilities of all classes.

    Returns
    -------
    score : float
        In [0, 2], lower is better. Always predicting 1/K for K classes gives 1 - 1/K.

    Raises
    ------
    ValueError
        If `y_proba` has another shape, is not in [0, 1] (up to 1e-6; smaller deviations
        are clipped) or does not sum to 1, or if there are no ID samples.

    See Also
    --------
    expected_calibration_error : The calibration part of this score.
    sklearn.metrics.brier_score_loss : Half of this score with two classes.

    Notes
    -----
    .. math::
        \frac1n \sum_i \sum_k (p_{ik} - [y_i = k])^2

    It is proper: the true probabilities have the least expected score [1]_.

    References
    ----------
    .. [1] G. W. Brier. Verification of forecasts expressed in terms of probability.
       Monthly Weather Review, 1950.

    Examples
    --------
    >>> from skood.metrics import brier
    >>> y_proba = [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.5, 0.5]]
    >>> round(brier([0, 1, 1, -1], y_proba), 4)
    0.36
    """
    one_hot, proba, weight = _one_hot_and_proba(
        y_true, y_proba, classes, ood_label, sample_weight
    )
    return float(np.average(np.sum((proba - one_hot) ** 2, axis=1), weights=weight))

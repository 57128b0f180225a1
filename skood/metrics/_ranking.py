"""Ranking metrics of OOD detection, each alone and all from one sort."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.metrics._sample_checks import (
    check_ood,
    least_count,
    require_both,
)
from skood.stats._ranks import check_level
from skood.utils._scores import check_scores
from skood.utils._stored import stored
from skood.utils._ties import at_ends, ends_of_ties, ranked_scores
from skood.utils._weights import count_weights


def accepted_counts(is_ood, y_score, weight=None, *others):
    """Return counts of accepted samples at distinct scores, decreasing.

    Of ID samples, of OOD samples, and of each mask in `others`.
    """
    order, ranked = (ascending[::-1] for ascending in ranked_scores(y_score))
    last = ends_of_ties(ranked)
    if weight is not None:
        kinds = (weight * kind for kind in (~is_ood, is_ood, *others))
        return tuple(at_ends(np.cumsum(kind[order]), last) for kind in kinds)
    accepted_ood, *accepted = (
        at_ends(np.cumsum(kind[order].astype(np.int64)), last)
        for kind in (is_ood, *others)
    )
    return last + 1 - accepted_ood, accepted_ood, *accepted


def _counts(y_true, y_score, ood_label, classes, sample_weight=None):
    """Check labels and scores, and return the counts."""
    is_ood = check_ood(y_true, ood_label, classes)
    y_score = check_scores(y_score, "y_score", n_samples=is_ood.shape[0])
    weight = count_weights(sample_weight, is_ood.shape[0])
    if weight is not None and not weight.all():
        is_ood, y_score, weight = (a[weight > 0] for a in (is_ood, y_score, weight))
    require_both(is_ood, ood_label)
    return accepted_counts(is_ood, y_score, weight)


def _flip(counts):
    """Return counts of flagged OOD and ID samples at distinct scores, increasing."""
    n_id, n_ood = counts
    flagged_ood = n_ood[-1] - np.append(n_ood[-2::-1], 0)
    flagged_id = n_id[-1] - np.append(n_id[-2::-1], 0)
    return flagged_ood, flagged_id


def _auroc(counts):
    n_id, n_ood = counts
    # 2 U = sum over tie groups of dF (2 N_before + dN), exact in integers
    d_id, d_ood = np.diff(n_id, prepend=0), np.diff(n_ood, prepend=0)
    twice_u = np.sum(d_ood * (2 * n_id - d_id)).item()
    return twice_u / (2 * n_id[-1].item() * n_ood[-1].item())


def _aupr(counts, interpolation):
    tp, fp = counts
    if interpolation not in ("step", "trapezoid"):
        raise ValueError(
            f"interpolation must be 'step' or 'trapezoid', got {interpolation!r}."
        )
    precision = tp / (tp + fp)
    if interpolation == "trapezoid":
        # the curve starts at recall 0, precision 1, as scikit-learn's does
        precision = (precision + np.append(1.0, precision[:-1])) / 2
    return float(np.sum(np.diff(tp, prepend=0) * precision) / tp[-1])


def first_reaching(counts, tpr):
    """Return the index of the first threshold that reaches a TPR."""
    tp, _ = counts
    check_level(tpr, "tpr", "(]")
    # tp and fp never decrease, so the first threshold that reaches tpr is the best; any
    # positive tpr requires an accepted sample
    least = least_count(tpr, tp[-1])
    return max(np.searchsorted(tp, least), np.searchsorted(tp, 0, side="right"))


def _fpr_at_tpr(counts, tpr):
    fp = counts[1]
    return float(fp[first_reaching(counts, tpr)] / fp[-1])


def _detection_error(counts):
    n_id, n_ood = counts
    error = (1 - n_id / n_id[-1]) + n_ood / n_ood[-1]
    return float(error.min() / 2)


@stored
def auroc(y_true, y_score, *, ood_label=-1, classes=None, sample_weight=None):
    r"""Area under the ROC curve, ID samples positive.

    The probability that a random ID sample scores higher than a random OOD sample, ties
    counting one half. The value is the same if OOD is the positive class and the score
    is negated. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels of ID and OOD samples, see `ood_label` and `classes`.

    y_score : array-like of shape (n_samples,)
        Scores, high for ID samples. Infinities are allowed, NaN is not.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    auroc : float
        In [0, 1], higher is better.

    Raises
    ------
    ValueError
        If there are no ID or no OOD samples, if `y_true` is boolean, or if `y_score`
        contains NaN or has another length.

    See Also
    --------
    ranking_metrics : All ranking metrics from one sort.
    aupr_in, aupr_out : Average precision of either class.

    Notes
    -----
    .. math::
        \mathrm{AUROC} = P(s_I > s_O) + \tfrac12 P(s_I = s_O)

    Examples
    --------
    >>> from skood.metrics import auroc
    >>> y_true = [0, 1, 1, -1, -1]
    >>> y_score = [0.9, 0.8, 0.3, 0.3, 0.1]
    >>> round(auroc(y_true, y_score), 4)
    0.9167
    """
    return _auroc(_counts(y_true, y_score, ood_label, classes, sample_weight))


@stored
def aupr_in(
    y_true,
    y_score,
    *,
    interpolation="step",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Area under the precision-recall curve, ID samples positive.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score, ood_label, classes, sample_weight
        As in :func:`auroc`.

    interpolation : {"step", "trapezoid"}, default="step"
        "step" is the average precision, an unbiased sum over thresholds.
        "trapezoid" joins the points by straight lines from (recall 0, precision 1),
        which is optimistic but reported in several papers.

    Returns
    -------
    aupr : float
        In (0, 1], higher is better. A random score has the fraction of ID samples.

    See Also
    --------
    aupr_out : The same with OOD samples positive.
    auroc : Does not depend on the class ratio of ID and OOD samples.

    Notes
    -----
    With recall :math:`R_k` and precision :math:`P_k` at the k-th highest distinct
    score, the average precision is

    .. math::
        \mathrm{AP} = \sum_k (R_k - R_{k-1}) P_k .

    Examples
    --------
    >>> from skood.metrics import aupr_in
    >>> round(aupr_in([0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1]), 4)
    0.9167
    """
    return _aupr(
        _counts(y_true, y_score, ood_label, classes, sample_weight), interpolation
    )


@stored
def aupr_out(
    y_true,
    y_score,
    *,
    interpolation="step",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    """Area under the precision-recall curve, OOD samples positive.

    As elsewhere, scores are high for ID samples; they are negated internally. Read more
    in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score, interpolation, ood_label, classes, sample_weight
        As in :func:`aupr_in`.

    Returns
    -------
    aupr : float
        In (0, 1], higher is better. A random score has the fraction of OOD samples.

    See Also
    --------
    aupr_in : The same with ID samples positive.

    Examples
    --------
    >>> from skood.metrics import aupr_out
    >>> round(aupr_out([0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1]), 4)
    0.8333
    """
    counts = _counts(y_true, y_score, ood_label, classes, sample_weight)
    return _aupr(_flip(counts), interpolation)


def _oriented(counts, positive):
    if positive not in ("id", "ood"):
        raise ValueError(f"positive must be 'id' or 'ood', got {positive!r}.")
    return counts if positive == "id" else _flip(counts)


@stored
def fpr_at_tpr(
    y_true,
    y_score,
    *,
    tpr=0.95,
    positive="id",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""False positive rate at a given true positive rate.

    The smallest FPR over the thresholds at distinct scores whose TPR is at least
    `tpr`: tied samples are accepted together. Read more in the
    :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score, ood_label, classes, sample_weight
        As in :func:`auroc`.

    tpr : float, default=0.95
        The true positive rate to reach, in (0, 1].

    positive : {"id", "ood"}, default="id"
        The positive class. "id": the fraction of OOD samples accepted when at least
        `tpr` of the ID samples are accepted. "ood": the fraction of ID samples flagged
        when at least `tpr` of the OOD samples are flagged. The two values differ.

    Returns
    -------
    fpr : float
        In [0, 1], lower is better.

    See Also
    --------
    auroc : The area under the whole curve.

    Notes
    -----
    .. math::
        \mathrm{FPR@TPR}(\phi) = \min_t \{ P(s_O \ge t) : P(s_I \ge t) \ge \phi \}

    Examples
    --------
    >>> from skood.metrics import fpr_at_tpr
    >>> y_true, y_score = [0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1]
    >>> fpr_at_tpr(y_true, y_score)
    0.5
    >>> round(fpr_at_tpr(y_true, y_score, positive="ood"), 4)
    0.3333
    """
    counts = _counts(y_true, y_score, ood_label, classes, sample_weight)
    return _fpr_at_tpr(_oriented(counts, positive), tpr)


@stored
def detection_error(y_true, y_score, *, ood_label=-1, classes=None, sample_weight=None):
    r"""Detection error: smallest error of ID against OOD classification, equal priors.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score, ood_label, classes, sample_weight
        As in :func:`auroc`.

    Returns
    -------
    error : float
        In [0, 0.5], lower is better. The same for either positive class.

    See Also
    --------
    fpr_at_tpr : The error on OOD samples at a fixed error on ID samples.

    Notes
    -----
    .. math::
        \min_t \tfrac12 (1 - \mathrm{TPR}(t)) + \tfrac12 \mathrm{FPR}(t)

    Examples
    --------
    >>> from skood.metrics import detection_error
    >>> round(detection_error([0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1]), 4)
    0.1667
    """
    return _detection_error(_counts(y_true, y_score, ood_label, classes, sample_weight))


@stored
def tnr_at_tpr(
    y_true,
    y_score,
    *,
    tpr=0.95,
    positive="id",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Largest true negative rate (TNR) at a true positive rate of at least `tpr`.

    It is 1 minus the FPR: the fraction of OOD samples that are rejected while at least
    `tpr` of the ID samples are accepted. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score, tpr, positive, ood_label, classes, sample_weight
        As in :func:`fpr_at_tpr`.

    Returns
    -------
    tnr : float
        In [0, 1], higher is better.

    See Also
    --------
    fpr_at_tpr : One minus this.

    Examples
    --------
    >>> from skood.metrics import tnr_at_tpr
    >>> tnr_at_tpr([0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1])
    0.5
    """
    counts = _counts(y_true, y_score, ood_label, classes, sample_weight)
    return 1.0 - _fpr_at_tpr(_oriented(counts, positive), tpr)


def _f1(counts, ood_prior):
    """Return F1 of the acceptance of ID samples at all thresholds."""
    n_id, n_ood = counts
    if ood_prior is None:
        return 2 * n_id / (n_id[-1] + n_id + n_ood)
    check_level(ood_prior, "ood_prior", "[)")
    tpr, fpr = n_id / n_id[-1], n_ood / n_ood[-1]
    fraction = 1.0 - float(ood_prior)
    # 2 precision * recall / (precision + recall), without a division by 0
    return 2 * fraction * tpr / (fraction * (1 + tpr) + ood_prior * fpr)


def _f1_at_tpr(counts, tpr, ood_prior):
    return float(_f1(counts, ood_prior)[first_reaching(counts, tpr)])


def _max_f1(counts, ood_prior):
    return float(_f1(counts, ood_prior).max())


@stored
def f1_at_tpr(
    y_true,
    y_score,
    *,
    tpr=0.95,
    ood_prior=None,
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""F1 score of the acceptance of ID samples at a given true positive rate.

    With the recall :math:`\varphi` and FPR :math:`\rho` at the largest threshold that
    reaches `tpr`, and the fraction :math:`\pi` of OOD samples,

    .. math:: F_1 = \frac{2 \kappa \varphi}{\kappa + \varphi}, \qquad \kappa =
       \frac{(1 - \pi) \varphi}{(1 - \pi) \varphi + \pi \rho} ,

    where :math:`\kappa` is the precision [1]_. Read more in the :ref:`User Guide
    <metrics>`.

    Parameters
    ----------
    y_true, y_score, tpr, ood_label, classes, sample_weight
        As in :func:`fpr_at_tpr`.

    ood_prior : float, default=None
        Fraction :math:`\pi` of OOD samples at deployment, in [0, 1). None: their
        fraction here.

    Returns
    -------
    f1 : float
        In [0, 1], higher is better.

    See Also
    --------
    max_f1 : At the best threshold.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> from skood.metrics import f1_at_tpr
    >>> y_true, y_score = [0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1]
    >>> round(f1_at_tpr(y_true, y_score), 4)
    0.8571
    >>> round(f1_at_tpr(y_true, y_score, tpr=0.6, ood_prior=0.5), 4)
    0.8
    """
    counts = _counts(y_true, y_score, ood_label, classes, sample_weight)
    return _f1_at_tpr(counts, tpr, ood_prior)


@stored
def max_f1(
    y_true, y_score, *, ood_prior=None, ood_label=-1, classes=None, sample_weight=None
):
    """Largest F1 score of the acceptance of ID samples, over all thresholds.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score, ood_prior, ood_label, classes, sample_weight
        As in :func:`f1_at_tpr`.

    Returns
    -------
    f1 : float
        In (0, 1], higher is better.

    See Also
    --------
    f1_at_tpr : At a given true positive rate, with the equation.

    Examples
    --------
    >>> from skood.metrics import max_f1
    >>> max_f1([0, 1, -1], [0.9, 0.8, 0.3])
    1.0
    """
    counts = _counts(y_true, y_score, ood_label, classes, sample_weight)
    return _max_f1(counts, ood_prior)


# Metrics, and whether greater is better.
GREATER_IS_BETTER = {
    auroc: True,
    aupr_in: True,
    aupr_out: True,
    fpr_at_tpr: False,
    detection_error: False,
    tnr_at_tpr: True,
    f1_at_tpr: True,
    max_f1: True,
}


def ranking_metrics(
    y_true,
    y_score,
    *,
    tpr=0.95,
    positive="id",
    interpolation="step",
    ood_prior=None,
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    """All ranking metrics from one sort of the scores.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score, ood_label, classes, sample_weight
        As in :func:`auroc`.

    tpr, positive, interpolation, ood_prior
        As in :func:`fpr_at_tpr`, :func:`aupr_in` and :func:`f1_at_tpr`.

    Returns
    -------
    metrics : dict of str to float
        With the keys "auroc", "aupr_in", "aupr_out", "tnr_at_tpr", "f1_at_tpr" and
        "max_f1" (higher is better), "fpr_at_tpr" and "detection_error" (lower is
        better).

    See Also
    --------
    auroc, aupr_in, aupr_out, fpr_at_tpr, detection_error : Single metrics.
    tnr_at_tpr, f1_at_tpr, max_f1 : Single metrics.

    Examples
    --------
    >>> from skood.metrics import ranking_metrics
    >>> res = ranking_metrics([0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.3, 0.1])
    >>> for name, value in res.items():
    ...     print(f"{name}: {value:.4f}")
    auroc: 0.9167
    aupr_in: 0.9167
    aupr_out: 0.8333
    fpr_at_tpr: 0.5000
    detection_error: 0.1667
    tnr_at_tpr: 0.5000
    f1_at_tpr: 0.8571
    max_f1: 0.8571
    """
    counts = _counts(y_true, y_score, ood_label, classes, sample_weight)
    fpr = _fpr_at_tpr(_oriented(counts, positive), tpr)
    return {
        "auroc": _auroc(counts),
        "aupr_in": _aupr(counts, interpolation),
        "aupr_out": _aupr(_flip(counts), interpolation),
        "fpr_at_tpr": fpr,
        "detection_error": _detection_error(counts),
        "tnr_at_tpr": 1.0 - fpr,
        "f1_at_tpr": _f1_at_tpr(counts, tpr, ood_prior),
        "max_f1": _max_f1(counts, ood_prior),
    }

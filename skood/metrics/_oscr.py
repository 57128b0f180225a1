"""Open-set metrics: OSCR and the correct classification rate at an FPR."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np

from skood.metrics._sample_checks import check_ood, check_scores, require_both
from skood.utils._losses import per_sample_loss
from skood.utils._param_validation import Number, validate_params
from skood.utils._ties import GUARD, at_ends, ends_of_ties, ranked_scores
from skood.utils._weights import count_weights


def _curve_counts(
    y_true, y_pred, y_score, definition, ood_label, classes, sample_weight
):
    """Return counts of accepted OOD, ID and correct ID samples at distinct scores."""
    if definition not in ("selective_risk", "dhamija"):
        raise ValueError(
            f"definition must be 'selective_risk' or 'dhamija', got {definition!r}."
        )
    is_ood = check_ood(y_true, ood_label, classes)
    y_score = check_scores(y_score, is_ood.size)
    weight = count_weights(sample_weight, is_ood.size)
    require_both(is_ood if weight is None else is_ood[weight > 0], ood_label)
    correct = ~is_ood if weight is None else ~is_ood & (weight > 0)
    loss = per_sample_loss(y_true, y_pred, is_id=correct)
    correct[np.flatnonzero(correct)] = loss == 0
    if weight is not None:
        return _weighted_counts(y_score, weight, is_ood, correct)
    order, ranked = (part[::-1] for part in ranked_scores(y_score))
    last = ends_of_ties(ranked)
    # sums of Booleans, and ratios of floats, are faster
    n_ood, n_correct = (
        at_ends(np.cumsum(mask[order]), last).astype(np.float64)
        for mask in (is_ood, correct)
    )
    return n_ood, last + 1.0 - n_ood, n_correct


def _weighted_counts(y_score, weight, is_ood, correct):
    """Return the sums of weights; whole ones are counts."""
    rows = np.flatnonzero(weight)
    order, ranked = (part[::-1] for part in ranked_scores(y_score[rows]))
    last, rows = ends_of_ties(ranked), rows[order]
    return tuple(
        at_ends(np.cumsum(weight[rows] * mask[rows]), last)
        for mask in (is_ood, ~is_ood, correct)
    )


def oscr(
    y_true,
    y_pred,
    y_score,
    *,
    definition="selective_risk",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Area under the correct classification rate against the FPR (OSCR).

    ID samples are positive: the false positive rate (FPR) is the share of OOD samples
    that are accepted. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels of ID and OOD samples, see `ood_label` and `classes`.

    y_pred : array-like of shape (n_samples,)
        Predicted labels; entries of OOD samples are ignored.

    y_score : array-like of shape (n_samples,)
        Scores, high for samples to accept first. Infinities are allowed.

    definition : {"selective_risk", "dhamija"}, default="selective_risk"
        The correct classification rate (CCR). "selective_risk": the share of correct
        among accepted ID samples, one minus the selective risk [1]_. "dhamija": the
        share of ID samples that are accepted and correct [2]_. The two definitions rank
        detectors differently: the first ignores the number of rejected ID samples.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    oscr : float
        In [0, 1], higher is better.

    See Also
    --------
    auroc : Equals "dhamija" if every prediction is right.
    ccr_at_fpr : A point on the curve.
    selective_risk_at : The selective risk at bounds on TPR and FPR.

    Notes
    -----
    The operating points are at distinct scores, joined by straight lines from FPR 0 to
    1. "dhamija" starts at (0, 0). The CCR of "selective_risk" is undefined as long as
    no ID sample is accepted; it is extended there from the first point where it is
    defined.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.
    .. [2] A. R. Dhamija, M. Günther, T. E. Boult. Reducing network agnostophobia.
       NeurIPS 2018.

    Examples
    --------
    >>> from skood.metrics import oscr
    >>> y_true, y_pred = [0, 1, 1, -1, -1], [0, 1, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.3, 0.5, 0.1]
    >>> round(oscr(y_true, y_pred, y_score), 4)
    0.8333
    >>> round(oscr(y_true, y_pred, y_score, definition="dhamija"), 4)
    0.6667
    """
    n_ood, n_id, n_correct = _curve_counts(
        y_true, y_pred, y_score, definition, ood_label, classes, sample_weight
    )
    if definition == "dhamija":
        fpr = np.append(0.0, n_ood / n_ood[-1])
        ccr = np.append(0.0, n_correct / n_id[-1])
    else:
        some = slice(np.searchsorted(n_id, 0, side="right"), None)
        ccr = n_correct[some] / n_id[some]
        fpr = np.append(0.0, n_ood[some] / n_ood[-1])
        ccr = np.append(ccr[0], ccr)
    area = np.diff(fpr)
    area *= ccr[1:] + ccr[:-1]
    return float(np.sum(area) / 2)


@validate_params(
    {"fpr": [Number(Real, 0, 1, closed="both")]}, prefer_skip_nested_validation=True
)
def ccr_at_fpr(
    y_true,
    y_pred,
    y_score,
    *,
    fpr=0.05,
    definition="selective_risk",
    ood_label=-1,
    classes=None,
    sample_weight=None,
):
    r"""Correct classification rate at a bounded false positive rate.

    The threshold accepts as many samples as the bound on the FPR allows. Read more in
    the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, ood_label, classes, sample_weight
        As in :func:`oscr`.

    fpr : float, default=0.05
        Largest share of OOD samples to accept, in [0, 1].

    definition : {"selective_risk", "dhamija"}, default="selective_risk"
        As in :func:`oscr`. "selective_risk": the share of correct among accepted ID
        samples. "dhamija": the share of ID samples that are accepted and correct.

    Returns
    -------
    ccr : float
        In [0, 1], higher is better. 0 if no ID sample can be accepted within the bound.

    Raises
    ------
    ValueError
        If `fpr` is not in [0, 1], or there are no ID or no OOD samples.

    See Also
    --------
    oscr : Area under the curve of these points.
    selective_risk_at : The least selective risk at this bound, with a least TPR.

    Notes
    -----
    The threshold is the lowest distinct score whose FPR is at most `fpr`; tied samples
    are accepted together. For "dhamija" the CCR grows with the number of accepted
    samples, so this is its greatest value within the bound. For "selective_risk" this
    does not hold, and the greatest value is often attained by accepting a single
    sample; so the threshold is the same.

    Examples
    --------
    >>> from skood.metrics import ccr_at_fpr
    >>> y_true, y_pred = [0, 1, 1, -1, -1], [0, 1, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.3, 0.5, 0.1]
    >>> round(ccr_at_fpr(y_true, y_pred, y_score, fpr=0.5), 4)
    0.6667
    >>> ccr_at_fpr(y_true, y_pred, y_score, fpr=0.0)
    1.0
    >>> round(ccr_at_fpr(y_true, y_pred, y_score, fpr=0.0, definition="dhamija"), 4)
    0.6667
    """
    n_ood, n_id, n_correct = _curve_counts(
        y_true, y_pred, y_score, definition, ood_label, classes, sample_weight
    )
    bound = fpr * n_ood[-1] * (1 + GUARD)
    lowest = np.searchsorted(n_ood, bound, side="right") - 1
    if lowest < 0 or n_id[lowest] == 0:
        return 0.0
    total = n_id[-1] if definition == "dhamija" else n_id[lowest]
    return float(n_correct[lowest] / total)

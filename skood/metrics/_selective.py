"""How wrong a classifier is on the rows that it accepts: risk, coverage, OSCR."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.metrics._ranking import check_ood, check_scores, require_both
from skood.rejection._rules import BoundedTPRFPR
from skood.rejection._solver import search
from skood.utils._loss import per_sample_loss
from skood.utils._ties import ends_of_ties

__all__ = ["aurc", "oscr", "risk_coverage_curve", "selective_risk_at"]


def _id_part(y_true, y_pred, y_score, loss, ood_label):
    """Return ID scores from the highest down, their losses, ends of tie groups."""
    is_id = ~check_ood(y_true, ood_label, None)
    y_score = check_scores(y_score, is_id.size)
    if not is_id.any():
        raise ValueError(
            f"No ID rows in y_true: all of its {is_id.size} labels equal "
            f"ood_label={ood_label!r}. Add ID rows, or pass the ood_label in use."
        )
    loss = per_sample_loss(y_true, y_pred, loss, is_id=is_id)
    s = y_score[is_id]
    order = np.argsort(s)[::-1]
    s = s[order]
    last = ends_of_ties(s)
    return s, loss[order], last


def risk_coverage_curve(y_true, y_pred, y_score, *, loss="zero_one", ood_label=-1):
    r"""Selective risk against coverage, accepting the highest scores first.

    OOD rows are left out. Tied rows are accepted together, so there is one point per
    distinct score. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels; OOD rows carry `ood_label`.

    y_pred : array-like of shape (n_samples,)
        Predicted labels. May be None when `loss` is an array.

    y_score : array-like of shape (n_samples,)
        Confidence, high for rows to accept first. Infinities are allowed.

    loss : "zero_one", callable or array-like of shape (n_samples,), default="zero_one"
        "zero_one", a function ``loss(y_true, y_pred)`` of the ID rows that returns a
        loss per row, or the losses themselves (ignored on OOD rows). Not negative.

    ood_label : int or str, default=-1
        Label of known OOD rows.

    Returns
    -------
    coverage : ndarray of shape (n_points,)
        Accepted share of ID rows, increasing to 1.

    risk : ndarray of shape (n_points,)
        Mean loss of the accepted ID rows; lower is better.

    thresholds : ndarray of shape (n_points,)
        Distinct scores, decreasing; rows with ``y_score >= threshold`` are accepted.

    See Also
    --------
    aurc : Area under the curve.
    selective_risk_at : The least selective risk at bounds on TPR and FPR.

    Notes
    -----
    .. math::
        \mathrm{coverage}(t) = \frac{1}{n}\sum_i [s_i \ge t], \qquad
        R(t) = \frac{\sum_i \ell_i [s_i \ge t]}{\sum_i [s_i \ge t]}

    Examples
    --------
    >>> from skood.metrics import risk_coverage_curve
    >>> coverage, risk, thresholds = risk_coverage_curve(
    ...     [0, 1, 1, 0, -1], [0, 1, 0, 0, 1], [0.9, 0.8, 0.5, 0.5, 0.4]
    ... )
    >>> coverage
    array([0.25, 0.5 , 1.  ])
    >>> risk
    array([0.  , 0.  , 0.25])
    >>> thresholds
    array([0.9, 0.8, 0.5])
    """
    s, loss, last = _id_part(y_true, y_pred, y_score, loss, ood_label)
    return (last + 1) / s.size, np.cumsum(loss)[last] / (last + 1), s[last]


def aurc(y_true, y_pred, y_score, *, loss="zero_one", ood_label=-1):
    r"""Area under the risk-coverage curve.

    The mean of the selective risk over the coverages 1/n, 2/n, ..., 1. OOD rows are
    left out. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels; OOD rows carry `ood_label`.

    y_pred : array-like of shape (n_samples,)
        Predicted labels. May be None when `loss` is an array.

    y_score : array-like of shape (n_samples,)
        Confidence, high for rows to accept first. Infinities are allowed.

    loss : "zero_one", callable or array-like of shape (n_samples,), default="zero_one"
        "zero_one", a function ``loss(y_true, y_pred)`` of the ID rows that returns a
        loss per row, or the losses themselves (ignored on OOD rows). Not negative.

    ood_label : int or str, default=-1
        Label of known OOD rows.

    Returns
    -------
    aurc : float
        Lower is better; a constant score gives the mean loss.

    See Also
    --------
    risk_coverage_curve : The curve.

    Notes
    -----
    Inside a group of :math:`g` tied rows the summed loss is interpolated linearly:
    after :math:`j` of them it is :math:`E_0 + j \bar\ell`, with the mean loss
    :math:`\bar\ell` of the group. This is its expectation under random breaking of
    ties, and so the result is the expectation of

    .. math::
        \mathrm{AURC} = \frac1n \sum_{k=1}^n \frac1k \sum_{i \le k} \ell_{(i)} .

    Examples
    --------
    >>> from skood.metrics import aurc
    >>> aurc([0, 1, 1, 0], [0, 1, 0, 0], [0.9, 0.8, 0.4, 0.5])
    0.0625
    """
    s, loss, last = _id_part(y_true, y_pred, y_score, loss, ood_label)
    first = np.append(0, last[:-1] + 1)
    size = last + 1 - first
    mean_loss = np.repeat(np.add.reduceat(loss, first) / size, size)
    return float(np.mean(np.cumsum(mean_loss) / np.arange(1, s.size + 1)))


def oscr(
    y_true,
    y_pred,
    y_score,
    *,
    definition="selective_risk",
    ood_label=-1,
    classes=None,
):
    r"""Area under the correct classification rate against the FPR (OSCR).

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels. A row is OOD when its label equals `ood_label` or, with `classes`
        given, is not among them.

    y_pred : array-like of shape (n_samples,)
        Predicted labels; entries of OOD rows are ignored.

    y_score : array-like of shape (n_samples,)
        Scores, high for rows to accept first. Infinities are allowed.

    definition : {"selective_risk", "dhamija"}, default="selective_risk"
        The correct classification rate (CCR). "selective_risk": the share of correct
        among accepted ID rows, one minus the selective risk [1]_. "dhamija": the
        share of ID rows that are accepted and correct [2]_. The two order detectors
        differently: the first does not count how many ID rows are rejected.

    ood_label : int or str, default=-1
        Label of known OOD rows.

    classes : array-like of shape (n_classes,), default=None
        The known classes; a label outside of them is OOD.

    Returns
    -------
    oscr : float
        In [0, 1], higher is better.

    See Also
    --------
    auroc : What "dhamija" gives when every prediction is right.
    selective_risk_at : The selective risk at bounds on TPR and FPR.

    Notes
    -----
    The operating points are those at distinct scores, joined by straight lines from
    FPR 0 to 1. "dhamija" starts at (0, 0). The CCR of "selective_risk" is undefined
    as long as no ID row is accepted; it is then continued from the first point where
    it is defined.

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
    if definition not in ("selective_risk", "dhamija"):
        raise ValueError(
            f"definition must be 'selective_risk' or 'dhamija', got {definition!r}."
        )
    is_ood = check_ood(y_true, ood_label, classes)
    y_score = check_scores(y_score, is_ood.size)
    require_both(is_ood, ood_label)
    correct = np.zeros(is_ood.size)
    correct[~is_ood] = 1 - per_sample_loss(y_true, y_pred, is_id=~is_ood)
    order = np.argsort(y_score)[::-1]
    s = y_score[order]
    last = ends_of_ties(s)
    n_ood = np.cumsum(is_ood[order], dtype=np.int64)[last]
    n_id, n_correct = last + 1 - n_ood, np.cumsum(correct[order])[last]
    if definition == "dhamija":
        fpr = np.append(0.0, n_ood / n_ood[-1])
        ccr = np.append(0.0, n_correct / n_id[-1])
    else:
        some = n_id > 0
        ccr = n_correct[some] / n_id[some]
        fpr = np.append(0.0, n_ood[some] / n_ood[-1])
        ccr = np.append(ccr[0], ccr)
    return float(np.sum(np.diff(fpr) * (ccr[1:] + ccr[:-1])) / 2)


def selective_risk_at(
    y_true,
    y_pred,
    y_score,
    ood_score=None,
    *,
    tpr_min=0.8,
    fpr_max=0.2,
    loss="zero_one",
    ood_label=-1,
    classes=None,
    angles="quadrant",
):
    r"""Least selective risk at a bounded TPR and FPR, of one or two scores.

    The best acceptance rule is searched on the data given, so this is the figure of
    merit of the scores, not of a rule on new data. Read more in the
    :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels. A row is OOD when its label equals `ood_label` or, with `classes`
        given, is not among them.

    y_pred : array-like of shape (n_samples,)
        Predicted labels; entries of OOD rows are ignored. May be None when `loss` is
        an array of losses.

    y_score : array-like of shape (n_samples,)
        Scores, high for rows to accept: a confidence, or an ID score.

    ood_score : array-like of shape (n_samples,), default=None
        A second score, high for ID rows; +inf is not allowed. The best rule on both
        scores is searched. None: `y_score` is the only score.

    tpr_min : float, default=0.8
        Least share of ID rows to accept.

    fpr_max : float, default=0.2
        Largest share of OOD rows to accept.

    loss : "zero_one", callable or array-like, default="zero_one"
        "zero_one", a function ``loss(y_true, y_pred)`` of the ID rows that returns a
        loss per row, an array of shape (n_samples,) of losses (ignored on OOD rows),
        or, with `classes`, a loss matrix of shape (n_classes, n_classes) with the
        true class in rows. Not negative.

    ood_label : int or str, default=-1
        Label of known OOD rows.

    classes : array-like of shape (n_classes,), default=None
        The known classes; a label outside of them is OOD.

    angles : {"quadrant", "full"}, default="quadrant"
        "full" lets a score be used reversed, with a warning.

    Returns
    -------
    point : OperatingPoint
        With the selective risk in `risk`; lower is better. If no rule meets the
        bounds, `feasible` is False, `risk` is NaN, and `max_tpr_at_fpr` and
        `min_fpr_at_tpr` say what is attainable. The rule is one on the negated
        scores: ``accept(point, -y_score, -ood_score)``.

    See Also
    --------
    skood.rejection.BoundedTPRFPR : The rule.
    skood.rejection.solve : The same from scores, raising if infeasible.
    oscr : The area under a curve of selective risks.

    Notes
    -----
    .. math::
        \min_{\theta, \lambda} R \quad\text{such that}\quad
        \mathrm{TPR} \ge \phi,\ \mathrm{FPR} \le \rho

    Examples
    --------
    >>> from skood.metrics import selective_risk_at
    >>> y_true, y_pred = [0, 1, 1, 0, -1, -1], [0, 1, 0, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.3, 0.7, 0.75, 0.1]
    >>> point = selective_risk_at(y_true, y_pred, y_score, tpr_min=0.7, fpr_max=0.5)
    >>> point.risk, point.tpr, point.fpr
    (0.0, 0.75, 0.5)
    >>> point = selective_risk_at(y_true, y_pred, y_score, tpr_min=0.7, fpr_max=0.0)
    >>> point.feasible, point.risk, point.max_tpr_at_fpr, point.min_fpr_at_tpr
    (False, nan, 0.5, 0.5)
    """
    is_ood = check_ood(y_true, ood_label, classes)
    is_id = ~is_ood
    risk = -check_scores(y_score, is_ood.size)
    ood = None
    if ood_score is not None:
        ood = -check_scores(ood_score, is_ood.size, "ood_score")
        if np.isneginf(ood).any():
            raise ValueError(
                "ood_score contains +inf, a score that no threshold could reject; "
                "use finite scores (-inf is allowed: rejected first)."
            )
    require_both(is_ood, ood_label)
    return search(
        BoundedTPRFPR(tpr_min=tpr_min, fpr_max=fpr_max),
        risk[is_id],
        None if ood is None else ood[is_id],
        per_sample_loss(y_true, y_pred, loss, is_id=is_id, classes=classes),
        risk[is_ood],
        None if ood is None else ood[is_ood],
        angles=angles,
    )

"""Curves of the best acceptance rule on two scores at every bound."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np

from skood.decision import Problem, precision_at
from skood.metrics._best_rules import BoundCurve, angles_to_try, best_rules
from skood.metrics._selective_risk import reject_scores
from skood.utils._param_validation import Number, StrOptions, validate_params
from skood.utils._ties import GUARD


def double_score_risk_coverage_curve(
    y_true,
    y_pred,
    y_score,
    ood_score=None,
    *,
    loss="zero_one",
    ood_label=-1,
    classes=None,
    angles="quadrant",
    n_angles=91,
    sample_weight=None,
):
    r"""Least selective risk at every coverage, of one or two scores.

    OOD samples are excluded. The second score may still help: samples far from the
    training data are often misclassified. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels of ID and OOD samples, see `ood_label` and `classes`.

    y_pred : array-like of shape (n_samples,)
        Predicted labels; entries of OOD samples are ignored. May be None when `loss` is
        an array of losses.

    y_score : array-like of shape (n_samples,)
        Scores, high for samples to accept: a confidence, or an ID score.

    ood_score : array-like of shape (n_samples,), default=None
        A second score, high for ID samples; +inf is not allowed. None: `y_score` is the
        only score.

    loss : "zero_one", callable or array-like, default="zero_one"
        As in :func:`risk_coverage_curve`.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    angles : {"quadrant", "full"}, default="quadrant"
        With "full" a score may be used reversed, without a warning: see the `thetas`.

    n_angles : int, default=91
        Number of angles, one degree apart by default. No effect with one score.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    curve : BoundCurve
        The coverages in `bounds`, the least selective risks in `values`: lower is
        better. Its `area` is the mean of the least risk over the coverages 1/n, 2/n,
        ..., 1.

    See Also
    --------
    risk_coverage_curve : The risk at every threshold of one score.
    aurc : The area under that curve.
    scod_risk_coverage_curve : The same with OOD samples among accepted samples.

    Notes
    -----
    .. math::
        R^*(\phi) = \min_{\theta, \lambda} R \quad\text{such that}\quad
        \mathrm{coverage} \ge \phi

    over the given angles :math:`\theta` and all thresholds :math:`\lambda`, where rules
    accept iff :math:`\cos\theta \, a / c_a + \sin\theta \, b / c_b \le \lambda` for the
    negated scores a and b. Both ends of the quadrant are among the angles, so that
    (with finite scores) two scores are never worse than either of them. With one score
    without ties the area is at most the :func:`aurc`, since the risk is not monotone in
    the coverage and the best rule may accept more than the bound.

    Examples
    --------
    >>> from skood.metrics import double_score_risk_coverage_curve
    >>> y_true, y_pred = [0, 1, 1, 0], [0, 1, 0, 0]
    >>> first, second = [0.9, 0.4, 0.8, 0.2], [0.15, 0.9, 0.2, 0.9]
    >>> double_score_risk_coverage_curve(y_true, y_pred, first).area
    0.1875
    >>> curve = double_score_risk_coverage_curve(y_true, y_pred, first, second)
    >>> curve.area
    0.0625
    >>> curve.bounds, curve.values
    (array([0.75, 1.  ]), array([0.  , 0.25]))
    """
    given = y_true, y_pred, y_score, ood_score, loss, ood_label, classes
    rows = reject_scores(*given, needs_ood=False, sample_weight=sample_weight)
    risk_id, ood_id, loss_id, risk_ood, ood_ood, weight_id, _ = rows
    ood_ood = None if ood_ood is None else ood_ood[:0]
    problem = Problem(risk_id, ood_id, loss_id, risk_ood[:0], ood_ood, weight_id)

    def read(N, E, F):
        return N, E / N

    n, risk, rules = best_rules(problem, angles_to_try(problem, angles, n_angles), read)
    return BoundCurve(bounds=n / problem.n_id, values=risk, **rules)


def double_score_roc_curve(
    y_true,
    y_score,
    ood_score=None,
    *,
    ood_label=-1,
    classes=None,
    angles="quadrant",
    n_angles=91,
    sample_weight=None,
):
    r"""Least FPR at every TPR, of one or two scores; ID samples are positive.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score, ood_score : array-like of shape (n_samples,)
        As in :func:`double_score_risk_coverage_curve`; `ood_score` may be None.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    angles, n_angles : {"quadrant", "full"}, default="quadrant", and int, default=91
        As in :func:`double_score_risk_coverage_curve`.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    curve : BoundCurve
        The true positive rates (accepted share of ID samples) in `bounds`, the least
        false positive rates (accepted share of OOD samples) in `values`: lower is
        better. One minus its `area` corresponds to the AUROC.

    See Also
    --------
    auroc : The area under the ROC curve of one score.
    fpr_at_tpr : A point on the curve of one score.
    double_score_ccr_curve : Also counts the errors on accepted samples.

    Notes
    -----
    .. math::
        \rho^*(\phi) = \min_{\theta, \lambda} \mathrm{FPR} \quad\text{such that}\quad
        \mathrm{TPR} \ge \phi

    over the given angles :math:`\theta` and all thresholds :math:`\lambda`. The rules
    do not break ties: with one score, one minus the area is :math:`P(s_I > s_O)`, where
    the AUROC adds one half of :math:`P(s_I = s_O)`. The rules at different bounds are
    different linear combinations of the scores, so that with two scores the curve is
    not the ROC curve of a single combination, but better than each of them.

    Examples
    --------
    >>> from skood.metrics import auroc, double_score_roc_curve
    >>> y_true = [0, 1, 1, -1, -1]
    >>> first, second = [0.9, 0.8, 0.3, 0.7, 0.2], [0.4, 0.7, 0.9, 0.1, 0.8]
    >>> curve = double_score_roc_curve(y_true, first, second)
    >>> curve.bounds, curve.values
    (array([1.]), array([0.]))
    >>> 1 - curve.area, round(auroc(y_true, first), 4), round(auroc(y_true, second), 4)
    (1.0, 0.8333, 0.6667)
    """
    given = y_true, None, y_score, ood_score, None, ood_label, classes
    rows = reject_scores(*given, sample_weight=sample_weight)
    problem = Problem(*rows)

    def read(N, E, F):
        return N, F.astype(np.float64)

    n, n_ood, rules = best_rules(
        problem, angles_to_try(problem, angles, n_angles), read, none=(0, 0)
    )
    return BoundCurve(bounds=n / problem.n_id, values=n_ood / problem.n_ood, **rules)


@validate_params(
    {"ood_prior": [Number(Real, 0, 1, closed="left")]},
    prefer_skip_nested_validation=True,
)
def double_score_precision_recall_curve(
    y_true,
    y_score,
    ood_score=None,
    *,
    ood_prior=0.5,
    ood_label=-1,
    classes=None,
    angles="quadrant",
    n_angles=91,
    sample_weight=None,
):
    r"""Largest precision at every recall, of one or two scores; ID is positive.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_score, ood_score : array-like of shape (n_samples,)
        As in :func:`double_score_risk_coverage_curve`; `ood_score` may be None.

    ood_prior : float, default=0.5
        Share of OOD samples in use, in [0, 1). It is never estimated from the data.
        With 0 no OOD samples are needed, and the precision is 1.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    angles, n_angles : {"quadrant", "full"}, default="quadrant", and int, default=91
        As in :func:`double_score_risk_coverage_curve`.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    curve : BoundCurve
        The recalls (accepted share of ID samples) in `bounds`, the largest precisions
        (share of ID samples among accepted samples) in `values`: higher is better.

    See Also
    --------
    aupr_in : The area under the precision-recall curve of one score.
    selective_risk_at_precision_recall : The least selective risk at bounds on both.

    Notes
    -----
    With the prior :math:`\pi`,

    .. math::
        \kappa^*(\phi) = \max_{\theta, \lambda} \frac{(1 - \pi) \mathrm{TPR}}
        {(1 - \pi) \mathrm{TPR} + \pi \mathrm{FPR}} \quad\text{such that}\quad
        \mathrm{TPR} \ge \phi

    over the given angles :math:`\theta` and all thresholds :math:`\lambda`. With one
    score, and the share of OOD samples in the data as `ood_prior`, the area is at least
    the average precision :func:`aupr_in`, since precision is not monotone in recall and
    the best rule may accept more than the bound.

    Examples
    --------
    >>> from skood.metrics import double_score_precision_recall_curve
    >>> y_true = [0, 1, 1, -1, -1]
    >>> y_score = [0.9, 0.8, 0.3, 0.7, 0.2]
    >>> curve = double_score_precision_recall_curve(y_true, y_score, ood_prior=0.25)
    >>> curve.bounds.round(4), curve.values.round(4)
    (array([0.6667, 1.    ]), array([1.    , 0.8571]))
    >>> from skood.rejection import accept
    >>> accept(curve.rule_at(1.0), [-0.25, -0.35])
    array([False,  True])
    """
    rows = reject_scores(
        y_true,
        None,
        y_score,
        ood_score,
        None,
        ood_label,
        classes,
        needs_ood=ood_prior > 0,
        sample_weight=sample_weight,
    )
    problem = Problem(*rows)

    def read(N, E, F):
        # the precision decreases in this ratio at every prior
        return N, np.divide(F, N, out=np.full(N.shape, np.inf), where=N > 0)

    n, ratio, rules = best_rules(
        problem, angles_to_try(problem, angles, n_angles), read
    )
    ratio = ratio * problem.n_id / max(problem.n_ood, 1)
    precision = [precision_at(ood_prior, 1.0, r) for r in ratio.tolist()]
    return BoundCurve(bounds=n / problem.n_id, values=np.array(precision), **rules)


@validate_params(
    {
        "tpr_min": [Number(Real, 0, 1, closed="both")],
        "definition": [StrOptions({"selective_risk", "dhamija"})],
    },
    prefer_skip_nested_validation=True,
)
def double_score_ccr_curve(
    y_true,
    y_pred,
    y_score,
    ood_score=None,
    *,
    tpr_min=0.0,
    definition="selective_risk",
    ood_label=-1,
    classes=None,
    angles="quadrant",
    n_angles=91,
    sample_weight=None,
):
    r"""Largest correct classification rate at every FPR, of one or two scores.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, ood_score : array-like of shape (n_samples,)
        As in :func:`double_score_risk_coverage_curve`; `ood_score` may be
        None, `y_pred` may not.

    tpr_min : float, default=0.0
        Least share of ID samples to accept at every bound. Without it, the CCR of
        "selective_risk" is computed on very few samples where the bound on the FPR is
        tight.

    definition : {"selective_risk", "dhamija"}, default="selective_risk"
        The correct classification rate (CCR), as in :func:`oscr`. "selective_risk":
        the share of correct among accepted ID samples, one minus the selective risk.
        "dhamija": the share of ID samples that are accepted and correct.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    angles, n_angles : {"quadrant", "full"}, default="quadrant", and int, default=91
        As in :func:`double_score_risk_coverage_curve`.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    curve : BoundCurve
        The false positive rates (accepted share of OOD samples) in `bounds`, which are
        upper bounds, and the largest CCR in `values`: higher is better. It starts at
        the least FPR at which `tpr_min` can be met. Its `area`, where the CCR counts as
        0 below this FPR, corresponds to :func:`oscr`.

    See Also
    --------
    oscr : The area under the curve of one score.
    selective_risk_at : One minus a point on the curve, by the solver.

    Notes
    -----
    .. math::
        \mathrm{CCR}^*(\rho) = \max_{\theta, \lambda} \mathrm{CCR}
        \quad\text{such that}\quad \mathrm{FPR} \le \rho,\ \mathrm{TPR} \ge \phi

    over the given angles :math:`\theta` and all thresholds :math:`\lambda`, with
    :math:`\phi` = `tpr_min`. The CCR of "selective_risk" is defined only if an ID
    sample is accepted; the CCR of "dhamija" is 0 otherwise. With one score without ties
    between ID and OOD samples, and `tpr_min` 0, the area for "dhamija" equals
    :func:`oscr`.

    Examples
    --------
    >>> from skood.metrics import double_score_ccr_curve
    >>> y_true, y_pred = [0, 1, 1, 0, -1, -1], [0, 1, 0, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.3, 0.7, 0.75, 0.1]
    >>> curve = double_score_ccr_curve(y_true, y_pred, y_score, tpr_min=0.7)
    >>> curve.bounds, curve.values, curve.area
    (array([0.5]), array([1.]), 0.5)
    >>> curve.at([0.4, 0.6])
    array([nan,  1.])
    """
    given = y_true, y_pred, y_score, ood_score, "zero_one", ood_label, classes
    rows = reject_scores(*given, sample_weight=sample_weight)
    problem = Problem(*rows)
    n_id, n_ood = problem.n_id, problem.n_ood
    least = tpr_min * n_id * (1 - GUARD)
    dhamija = definition == "dhamija"

    def read(N, E, F):
        some = N > 0
        wrong = np.divide(E, N, out=np.ones(N.shape), where=some)
        if dhamija:
            wrong = 1 - (N - E) / n_id
        return F, np.where(some & (N >= least), wrong, np.inf)

    n, wrong, rules = best_rules(
        problem,
        angles_to_try(problem, angles, n_angles),
        read,
        none=(0, 1) if dhamija and tpr_min == 0 else None,
        at_most=True,
    )
    return BoundCurve(bounds=n / n_ood, values=1 - wrong, **rules)

"""Least selective risk of one or two scores within the bounds of a rule."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.decision import BoundedTPRFPR, ScoredSamples
from skood.decision._base_rule import check_rule
from skood.decision._solver import search
from skood.metrics._sample_checks import id_samples, require_both
from skood.utils._losses import implied_ood_label, per_sample_loss
from skood.utils._scores import check_scores
from skood.utils._weights import check_weight


def reject_scores(
    y_true,
    y_pred,
    y_score,
    ood_score,
    loss,
    ood_label,
    classes,
    *,
    needs_ood=True,
    sample_weight=None,
):
    """Return `ScoredSamples` of negated scores, high for samples to reject.

    Losses are zero if `loss` is None. Samples of weight zero are left out.
    """
    ood_label = implied_ood_label(loss, ood_label)
    is_id, weight = id_samples(y_true, ood_label, classes, sample_weight)
    is_ood, weight_ood = ~is_id, None
    if weight is not None:
        weights = check_weight(sample_weight, is_id.size)
        is_ood = (weights > 0) & ~is_id
        weight_ood = weights[is_ood]
    risk = -check_scores(y_score, "y_score", n_samples=is_id.size)
    ood = None
    if ood_score is not None:
        ood = -check_scores(ood_score, "ood_score", n_samples=is_id.size)
        if np.isneginf(ood).any():
            raise ValueError(
                "ood_score contains +inf, a score that no threshold could reject; "
                "use finite scores (-inf is allowed: rejected first)."
            )
    if needs_ood:
        if not is_ood.any() and (~is_id).any():
            raise ValueError("sample_weight is zero for all OOD samples in y_true.")
        require_both(~is_id, ood_label)
    if loss is None:
        loss = np.zeros(is_id.size)
    loss = per_sample_loss(y_true, y_pred, loss, is_id=is_id, classes=classes)
    of_id, of_ood = np.flatnonzero(is_id), np.flatnonzero(is_ood)  # faster than masks
    ood_id, ood_ood = (None, None) if ood is None else (ood[of_id], ood[of_ood])
    arrays = risk[of_id], ood_id, loss, risk[of_ood], ood_ood
    return ScoredSamples.from_arrays(*arrays, weight_id=weight, weight_ood=weight_ood)


def selective_risk_at(
    y_true,
    y_pred,
    y_score,
    ood_score=None,
    *,
    rule=None,
    loss="zero_one",
    ood_label=-1,
    classes=None,
    solver=None,
    sample_weight=None,
):
    """Least selective risk within the bounds of a rule, of one or two scores.

    The best acceptance rule is searched on the given data, so this evaluates the
    scores, not a rule on new data. Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, ood_score, loss, ood_label, classes, sample_weight
        As in :meth:`TwoScoreCurve.from_predictions`. Of two scores, the best rule on
        both is searched.

    rule : BaseRule, default=None
        The bounds, such as :class:`~skood.rejection.BoundedTPRFPR`, or
        :class:`~skood.rejection.BoundedPrecisionRecall` for precision and recall in
        deployment. None: ``BoundedTPRFPR(tpr_min=0.8, fpr_max=0.2)``.

    solver : Solver, default=None
        The search; it returns an infeasible point in place of raising. With
        ``angles="full"`` a score may be used reversed, with a warning. None:
        ``Solver()``.

    Returns
    -------
    point : OperatingPoint
        The rule, with the selective risk in `risk`; lower is better. If no rule meets
        the bounds, `feasible` is False, `risk` is NaN, and `attainable`
        has the attainable rates. The rule applies to the negated
        scores: ``point.accept(-y_score, -ood_score)``.

    Raises
    ------
    ValueError, TypeError
        If there are no ID samples or, where the rule needs them, no OOD samples, if a
        score is NaN, or if a bound is out of its range.

    See Also
    --------
    skood.rejection.solve : The same from scores, raising if infeasible.
    TwoScoreCurve : The best value at every bound.
    oscr : The area under a curve of selective risks.

    Notes
    -----
    The problems are in the notes of the rules, over angles and thresholds as in
    :func:`~skood.rejection.solve`.

    Examples
    --------
    >>> from skood.metrics import selective_risk_at
    >>> from skood.rejection import BoundedPrecisionRecall, BoundedTPRFPR
    >>> y_true, y_pred = [0, 1, 1, 0, -1, -1], [0, 1, 0, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.3, 0.7, 0.75, 0.1]
    >>> rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.5)
    >>> point = selective_risk_at(y_true, y_pred, y_score, rule=rule)
    >>> point.risk, point.tpr, point.fpr
    (0.0, 0.75, 0.5)
    >>> rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.0)
    >>> point = selective_risk_at(y_true, y_pred, y_score, rule=rule)
    >>> point.feasible, point.risk, *point.attainable[:2]
    (False, nan, 0.5, 0.5)
    >>> rule = BoundedPrecisionRecall(0.8, 0.7, ood_prior=0.25)
    >>> point = selective_risk_at(y_true, y_pred, y_score, rule=rule)
    >>> point.risk, point.tpr, round(point.precision, 4)
    (0.0, 0.75, 0.8182)
    """
    rule = BoundedTPRFPR() if rule is None else rule
    check_rule(rule)
    samples = reject_scores(
        y_true,
        y_pred,
        y_score,
        ood_score,
        loss,
        ood_label,
        classes,
        needs_ood=rule.needs_ood,
        sample_weight=sample_weight,
    )
    return search(rule, samples, solver)

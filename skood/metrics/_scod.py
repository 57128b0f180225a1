"""Selective classification with OOD samples among the inputs (SCOD): risk and cost."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, field
from numbers import Real

import numpy as np

from skood.decision import CostBased, Goal, Problem, better
from skood.metrics._best_rules import BoundCurve, angles_to_try, best_rules
from skood.metrics._selective_risk import reject_scores
from skood.utils._param_validation import Number, validate_params


@validate_params(
    {
        "ood_weight": [Number(Real, 0, 1, closed="both")],
        "ood_prior": [Number(Real, 0, 1, closed="left")],
    },
    prefer_skip_nested_validation=True,
)
def scod_risk_coverage_curve(
    y_true,
    y_pred,
    y_score,
    ood_score=None,
    *,
    ood_weight=0.5,
    ood_prior=0.5,
    loss="zero_one",
    ood_label=-1,
    classes=None,
    angles="quadrant",
    n_angles=91,
    sample_weight=None,
):
    r"""Least SCOD risk at every coverage of ID and OOD samples, of one or two scores.

    Selective classification with OOD samples among the inputs (SCOD) counts two kinds
    of accepted samples as wrong: misclassified ID samples and OOD samples. Read more in
    the :ref:`User Guide <metrics>`.

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

    ood_weight : float, default=0.5
        The weight of an accepted OOD sample, in [0, 1]; the weight of the loss of an
        accepted ID sample is ``1 - ood_weight``.

    ood_prior : float, default=0.5
        Share of OOD samples in use, in [0, 1). It is never estimated from the data.
        With 0 no OOD samples are needed.

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
        The coverages (accepted share of all samples in use) in `bounds`, the least SCOD
        risks in `values`: lower is better.

    See Also
    --------
    double_score_risk_coverage_curve : Coverage and risk of ID samples alone.
    scod_cost_curve : The least expected cost, with a cost of rejection.

    Notes
    -----
    With the summed loss E of accepted ID samples, F accepted OOD samples,
    :math:`\beta` = `ood_weight` and :math:`\pi` = `ood_prior`,

    .. math::
        c = (1 - \pi) \, \mathrm{TPR} + \pi \, \mathrm{FPR}, \qquad
        R = \frac{1}{c} \left( (1 - \beta)(1 - \pi) \frac{E}{n_I}
        + \beta \, \pi \, \mathrm{FPR} \right),

    and the curve is the least R with a coverage c of at least a bound. This is the
    risk of [1]_, and the joint risk of [2]_ with :math:`\beta = c_\mathrm{fn}`; both
    draw it for every threshold of one score, which need not be monotone.

    References
    ----------
    .. [1] G. Xia, C.-S. Bouganis. Augmenting softmax information for selective
       classification with out-of-distribution data. ACCV 2022.
    .. [2] H. Narasimhan, A. K. Menon, W. Jitkrittum, S. Kumar. Plugin estimators for
       selective classification with out-of-distribution detection. ICLR 2024.

    Examples
    --------
    >>> from skood.metrics import scod_risk_coverage_curve
    >>> y_true, y_pred = [0, 1, 1, 0, -1, -1], [0, 1, 0, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.3, 0.7, 0.75, 0.1]
    >>> curve = scod_risk_coverage_curve(y_true, y_pred, y_score, ood_prior=0.2)
    >>> curve.bounds, curve.values.round(4)
    (array([0.4, 0.7, 0.9, 1. ]), array([0.    , 0.0714, 0.1667, 0.2   ]))
    """
    rows = reject_scores(
        y_true,
        y_pred,
        y_score,
        ood_score,
        loss,
        ood_label,
        classes,
        needs_ood=ood_prior > 0,
        sample_weight=sample_weight,
    )
    problem = Problem(*rows)
    per_id = (1 - ood_prior) / problem.n_id
    per_ood = ood_prior / max(problem.n_ood, 1)

    def read(N, E, F):
        coverage = per_id * N + per_ood * F
        wrong = (1 - ood_weight) * per_id * E + ood_weight * per_ood * F
        risk = np.full(N.shape, np.inf)
        return coverage, np.divide(wrong, coverage, out=risk, where=coverage > 0)

    coverage, risk, rules = best_rules(
        problem, angles_to_try(problem, angles, n_angles), read
    )
    return BoundCurve(bounds=coverage, values=risk, **rules)


@dataclass(frozen=True, eq=False)
class SCODCostCurve:
    """Least expected cost for several costs or priors.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    costs : ndarray of shape (n_points,)
        The least expected costs; lower is better.

    rules : list of CostBased
        The costs and priors.

    points : list of OperatingPoint
        The acceptance rules of least cost, with their TPR, FPR, precision and
        selective risk. They are rules on the negated scores.

    See Also
    --------
    scod_cost_curve : Finds it.

    Examples
    --------
    >>> from skood.metrics import scod_cost_curve
    >>> curve = scod_cost_curve(
    ...     [0, 1, -1], [0, 0, 0], [3, 2, 1], reject_id=[0.0, 0.5], ood_prior=0.2
    ... )
    >>> curve.rules[1]
    CostBased(ood_prior=0.2, reject_id=0.5)
    >>> curve.points[1].tpr
    0.5
    """

    costs: np.ndarray
    rules: list[CostBased] = field(repr=False)
    points: list = field(repr=False)


def _cost_rules(**params):
    """Return the checked rules of broadcast arrays of parameters."""
    arrays = {name: np.asarray(value) for name, value in params.items()}
    wrong = [name for name, array in arrays.items() if array.ndim > 1]
    if wrong:
        raise ValueError(
            f"{wrong[0]} must be a number or a one-dimensional array, got an array of "
            f"shape {arrays[wrong[0]].shape}."
        )
    sizes = {name: array.size for name, array in arrays.items() if array.ndim == 1}
    if 0 in sizes.values() or len(set(sizes.values()) - {1}) > 1:
        raise ValueError(
            f"Swept parameters must be arrays of one length of at least 1, got the "
            f"lengths {sizes}."
        )
    columns = np.broadcast_arrays(*(np.atleast_1d(a) for a in arrays.values()))
    rules = [
        CostBased(**dict(zip(arrays, values, strict=True)))
        for values in zip(*(column.tolist() for column in columns), strict=True)
    ]
    for rule in rules:
        rule.check_params()
    return rules


def _worth_trying(lam, N, E, F):
    """Drop operating points that are never better than one of their neighbors.

    At any costs, accepting an OOD sample is no gain and rejecting an ID sample without
    loss is none either, so that few points are searched for all costs.
    """
    gains = np.diff(N, prepend=0) > 0
    misses = np.append((np.diff(E) == 0) & (np.diff(F) == 0), False)
    k = np.flatnonzero(gains & ~misses)
    return lam[k], N[k], E[k], F[k]


def scod_cost_curve(
    y_true,
    y_pred,
    y_score,
    ood_score=None,
    *,
    reject_id=0.3,
    accept_ood=1.0,
    reject_ood=0.0,
    ood_prior=0.5,
    loss="zero_one",
    ood_label=-1,
    classes=None,
    angles="quadrant",
    n_angles=91,
    sample_weight=None,
):
    r"""Least expected cost against a swept cost or prior, of one or two scores.

    For each combination of costs and prior, the best acceptance rule is searched on the
    given data. Accepting all and accepting no samples are among the rules. Read more in
    the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    y_true, y_pred, y_score, ood_score : array-like of shape (n_samples,)
        As in :func:`scod_risk_coverage_curve`; `ood_score` may be None.

    reject_id : float or array-like of shape (n_points,), default=0.3
        Cost of rejecting an ID sample, in units of the loss; not negative. Pass an
        array to sweep it; several arrays among the four are swept together.

    accept_ood : float or array-like of shape (n_points,), default=1.0
        Cost of accepting an OOD sample; above `reject_ood`.

    reject_ood : float or array-like of shape (n_points,), default=0.0
        Cost of rejecting an OOD sample; not negative.

    ood_prior : float or array-like of shape (n_points,), default=0.5
        Share of OOD samples in use, in [0, 1). It is never estimated from the data. If
        it is 0 throughout, no OOD samples are needed.

    loss : "zero_one", callable or array-like, default="zero_one"
        As in :func:`risk_coverage_curve`.

    ood_label, classes : int or str, default=-1, and array-like, default=None
        OOD samples have the label `ood_label`, or a label that is not in `classes`.

    angles : {"quadrant", "full"}, default="quadrant"
        With "full" a score may be used reversed, without a warning: see the `theta` of
        the points.

    n_angles : int, default=91
        Number of angles, one degree apart by default. No effect with one score.

    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples, see :ref:`metric_weights`. None: equal weights.

    Returns
    -------
    curve : SCODCostCurve
        The least expected costs in `costs` (lower is better), their costs and priors in
        `rules`, and the acceptance rules in `points`.

    Raises
    ------
    ValueError, TypeError
        If there are no ID samples or, with a positive `ood_prior`, no OOD samples, if a
        cost or the prior is out of its range, or if the arrays differ in length.

    See Also
    --------
    skood.rejection.CostBased : The rule.
    scod_risk_coverage_curve : The risk at a bounded coverage instead.
    make_cost_scorer : A scorer for searches.

    Notes
    -----
    .. math::
        \min_{\theta, \lambda} \; (1 - \pi) \left( \frac{E}{n_I} +
        \varepsilon_1 (1 - \mathrm{TPR}) \right) +
        \pi \left( \varepsilon_2 \mathrm{FPR} +
        \varepsilon_3 (1 - \mathrm{FPR}) \right)

    with the summed loss E of accepted ID samples, :math:`\varepsilon_1` = `reject_id`,
    :math:`\varepsilon_2` = `accept_ood`, :math:`\varepsilon_3` = `reject_ood` and
    :math:`\pi` = `ood_prior` [1]_. As the minimum of functions that are linear in each
    of the four, the curve is concave in each. It is never above the cost of accepting
    all or no samples.

    The cost :math:`(1 - c_\mathrm{in} - c_\mathrm{out}) P_I(\text{wrong, accepted}) +
    c_\mathrm{in} P_I(\text{rejected}) + c_\mathrm{out}
    P_O(\text{accepted})` of [2]_ is, divided by :math:`1 - c_\mathrm{in} -
    c_\mathrm{out}`, twice the cost above with :math:`\pi = 1/2`, :math:`\varepsilon_1 =
    c_\mathrm{in} / (1 - c_\mathrm{in} - c_\mathrm{out})`, :math:`\varepsilon_2 =
    c_\mathrm{out} / (1 - c_\mathrm{in} - c_\mathrm{out})` and :math:`\varepsilon_3 =
    0`.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.
    .. [2] H. Narasimhan, A. K. Menon, W. Jitkrittum, S. Kumar. Plugin estimators for
       selective classification with out-of-distribution detection. ICLR 2024.

    Examples
    --------
    >>> from skood.metrics import scod_cost_curve
    >>> y_true, y_pred = [0, 1, 1, 0, -1, -1], [0, 1, 0, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.3, 0.7, 0.75, 0.1]
    >>> curve = scod_cost_curve(
    ...     y_true, y_pred, y_score, reject_id=[0.0, 0.5, 1.5], ood_prior=0.2
    ... )
    >>> curve.costs
    array([0. , 0.2, 0.3])
    >>> [(point.tpr, point.fpr) for point in curve.points]
    [(0.5, 0.0), (0.75, 0.5), (1.0, 0.5)]
    """
    rules = _cost_rules(
        reject_id=reject_id,
        accept_ood=accept_ood,
        reject_ood=reject_ood,
        ood_prior=ood_prior,
    )
    rows = reject_scores(
        y_true,
        y_pred,
        y_score,
        ood_score,
        loss,
        ood_label,
        classes,
        needs_ood=any(rule.needs_ood for rule in rules),
        sample_weight=sample_weight,
    )
    problem = Problem(*rows)
    goals = [Goal.of(rule, problem) for rule in rules]
    best = [None] * len(goals)
    for theta in angles_to_try(problem, angles, n_angles):
        lam, N, E, F = _worth_trying(*problem.points(theta))
        for i, goal in enumerate(goals):
            found = problem.best_of(theta, lam, N, E, F, goal=goal)
            if better(found, best[i], goal.rtol):
                best[i] = found
    points = [
        problem.describe(rule, found) for rule, found in zip(rules, best, strict=True)
    ]
    return SCODCostCurve(
        costs=np.array([point.objective for point in points]),
        rules=rules,
        points=points,
    )

"""Curves of the best acceptance rule on one or two scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass, field
from numbers import Real

import numpy as np

from skood.decision import CostBased, OperatingPoint, Solver
from skood.decision._calibration_sample import Goal, Problem, better
from skood.decision._operating_point import precision_at
from skood.decision._solver import N_ANGLES, grid_of_angles
from skood.metrics._selective_risk import reject_scores
from skood.utils._param_validation import Number, StrOptions, validate_params
from skood.utils._ties import GUARD, ends_of_ties


@validate_params(
    {
        "tpr_min": [Number(Real, 0, 1, closed="both")],
        "ood_prior": [Number(Real, 0, 1, closed="left"), None],
        "ood_weight": [Number(Real, 0, 1, closed="both")],
        "fpr_max": [Number(Real, 0, 1, closed="both"), None],
        "precision_min": [Number(Real, 0, 1, closed="both"), None],
    },
    prefer_skip_nested_validation=True,
)
def _checked_options(
    kind,
    *,
    tpr_min=0.0,
    ood_prior=None,
    ood_weight=0.5,
    fpr_max=None,
    precision_min=None,
):
    """Return valid options of a kind of curves, or raise."""
    is_bounded = fpr_max is not None or precision_min is not None
    if is_bounded and kind != "risk_coverage":
        raise ValueError(
            "fpr_max and precision_min are bounds of kind='risk_coverage', got "
            f"kind={kind!r}. Leave them out."
        )
    if precision_min is not None and ood_prior is None:
        raise ValueError(
            f"precision_min={precision_min!r} is a bound on the precision at "
            "deployment, which depends on the fraction of OOD samples at deployment. "
            "Pass ood_prior."
        )
    ood_prior = 0.5 if ood_prior is None else ood_prior
    fpr_max = 1.0 if fpr_max is None else fpr_max
    return tpr_min, ood_prior, ood_weight, fpr_max, precision_min or 0.0, is_bounded


_KINDS = "roc", "precision_recall", "ccr", "dhamija", "risk_coverage", "scod"


@dataclass(frozen=True, eq=False)
class TwoScoreCurve:
    r"""Best value of an acceptance rule on one or two scores, at every bound.

    The curve is a step function, with a point where the best value changes, and stores
    the rule that attains each point. Use `from_predictions` to make a curve. Read more
    in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    bounds : ndarray of shape (n_points,)
        The bounds, which the rules meet with equality; increasing.

    values : ndarray of shape (n_points,)
        The best value of a rule that meets the bound; strictly monotone. Precisions
        may also be equal, namely 1 at an `ood_prior` of 0 or next to it.

    at_most : bool
        Whether the bounds are upper bounds. False: lower bounds.

    thetas : ndarray of shape (n_points,)
        The angle of each rule; 0 uses the first score only, pi/2 the second. If
        several rules share a point, the smallest angle.

    lams : ndarray of shape (n_points,)
        The threshold of each rule; -inf with a tau of 0 accepts nothing.

    taus : ndarray of shape (n_points,)
        Probability of accepting samples at the threshold.

    scales : tuple of (float, float)
        The scales of the two scores.

    See Also
    --------
    RiskCoverageCurve : The risk at every threshold of one score.
    SCODCurve : The least expected cost, with a cost of rejection.
    DoubleScoreROCDisplay, PrecisionRecallDisplay : Plots of the curves.
    selective_risk_at : The least selective risk within the bounds of a rule.

    Notes
    -----
    ID samples are positive: the TPR, also the recall or the coverage of ID samples, is
    the fraction of ID samples that are accepted, the FPR the fraction of OOD samples.
    With the summed loss E of the N accepted of :math:`n_I` ID samples, the prior
    :math:`\pi` = `ood_prior`, :math:`\beta` = `ood_weight`, :math:`\phi` = `tpr_min`,
    :math:`\rho` = `fpr_max` and :math:`\kappa` = `precision_min` [3]_, the kinds at the
    bound t are

    .. math::
        \text{roc: } & \min \mathrm{FPR} \text{ such that } \mathrm{TPR} \ge t \\
        \text{precision\_recall: } & \max \frac{(1 - \pi) \mathrm{TPR}}
        {(1 - \pi) \mathrm{TPR} + \pi \mathrm{FPR}}
        \text{ such that } \mathrm{TPR} \ge t \\
        \text{ccr: } & \max 1 - E / N \text{ such that }
        \mathrm{FPR} \le t,\ \mathrm{TPR} \ge \phi \\
        \text{dhamija: } & \max (N - E) / n_I \text{ such that }
        \mathrm{FPR} \le t,\ \mathrm{TPR} \ge \phi \\
        \text{risk\_coverage: } & \min E / N \text{ such that } \mathrm{TPR} \ge t
        \text{ and, if given, } \mathrm{FPR} \le \rho \text{ and } \frac{(1 - \pi)
        \mathrm{TPR}}{(1 - \pi) \mathrm{TPR} + \pi \mathrm{FPR}} \ge \kappa \\
        \text{scod: } & \min \frac{1}{c} \left( (1 - \beta)(1 - \pi) \frac{E}{n_I}
        + \beta \, \pi \, \mathrm{FPR} \right) \text{ such that }
        c = (1 - \pi) \, \mathrm{TPR} + \pi \, \mathrm{FPR} \ge t

    over the given angles :math:`\theta` and all thresholds :math:`\lambda`, where rules
    accept iff :math:`\cos\theta \, a / c_a + \sin\theta \, b / c_b \le \lambda` for the
    negated scores a and b. Both ends of the quadrant are among the angles, so that
    (with finite scores) two scores are never worse than either of them. The rules at
    different bounds are different linear combinations of the scores, so that the curve
    is not the curve of a single combination, but better than each of them.

    "scod" is selective classification with OOD samples among the inputs, where
    misclassified ID samples and OOD samples are wrong: the risk of [1]_, and the joint
    risk of [2]_ with :math:`\beta = c_\mathrm{fn}`; both draw it for every threshold of
    one score, which need not be monotone.

    With one score, the areas correspond to areas under curves of all thresholds:

    - "roc": one minus the area is :math:`P(s_I > s_O)`, where :func:`auroc` adds one
      half of :math:`P(s_I = s_O)`, since the rules do not break ties.
    - "precision_recall": at least :func:`aupr_in` if `ood_prior` is the fraction of OOD
      samples in the data, as the precision is not monotone in the recall and the best
      rule may accept more than the bound.
    - "dhamija": :func:`oscr` of this definition, without ties between ID and OOD
      samples and with `tpr_min` 0. The CCR of "ccr" is not defined if no ID sample is
      accepted, and computed on very few samples where the bound on the FPR is tight.
    - "risk_coverage": the mean of the least risk over the coverages 1/n, 2/n, ..., 1,
      which is at most :func:`aurc` without ties.

    References
    ----------
    .. [1] G. Xia, C.-S. Bouganis. Augmenting softmax information for selective
       classification with out-of-distribution data. ACCV 2022.
    .. [2] H. Narasimhan, A. K. Menon, W. Jitkrittum, S. Kumar. Plugin estimators for
       selective classification with out-of-distribution detection. ICLR 2024.
    .. [3] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> from skood.metrics import TwoScoreCurve
    >>> y_true, y_pred = [0, 1, 1, 0], [0, 1, 0, 0]
    >>> first, second = [0.9, 0.4, 0.8, 0.2], [0.15, 0.9, 0.2, 0.9]
    >>> TwoScoreCurve.from_predictions(
    ...     y_true, y_pred, first, kind="risk_coverage"
    ... ).area
    0.1875
    >>> curve = TwoScoreCurve.from_predictions(
    ...     y_true, y_pred, first, second, kind="risk_coverage"
    ... )
    >>> curve.bounds, curve.values, curve.area
    (array([0.75, 1.  ]), array([0.  , 0.25]), 0.0625)
    >>> curve.at([0.4, 0.8])
    array([0.  , 0.25])
    >>> y_true, y_score = [0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.7, 0.2]
    >>> curve = TwoScoreCurve.from_predictions(
    ...     y_true, None, y_score, kind="precision_recall", ood_prior=0.25
    ... )
    >>> curve.bounds.round(4), curve.values.round(4)
    (array([0.6667, 1.    ]), array([1.    , 0.8571]))
    >>> curve.rule_at(1.0).accept([-0.25, -0.35])
    array([False,  True])
    """

    bounds: np.ndarray
    values: np.ndarray
    at_most: bool
    thetas: np.ndarray = field(repr=False)
    lams: np.ndarray = field(repr=False)
    taus: np.ndarray = field(repr=False)
    scales: tuple[float, float]

    @classmethod
    @validate_params(
        {"kind": [StrOptions(set(_KINDS))]}, prefer_skip_nested_validation=False
    )
    def from_predictions(
        cls,
        y_true,
        y_pred,
        y_score,
        ood_score=None,
        *,
        kind,
        loss="zero_one",
        ood_label=-1,
        classes=None,
        solver=None,
        sample_weight=None,
        **options,
    ):
        """Make a curve from labels, predictions and scores.

        Parameters
        ----------
        y_true, loss, ood_label, classes, sample_weight
            As in :meth:`RiskCoverageCurve.from_predictions`; `loss` is of
            "risk_coverage" and "scod".

        y_pred : array-like of shape (n_samples,)
            Predicted labels; entries of OOD samples are ignored. May be None when
            `loss` is an array of losses, and for "roc" and "precision_recall".

        y_score : array-like of shape (n_samples,)
            Scores, high for samples to accept: a confidence, or an ID score.

        ood_score : array-like of shape (n_samples,), default=None
            A second score, high for ID samples; +inf is not allowed. None: `y_score` is
            the only score.

        kind : {"roc", "precision_recall", "ccr", "dhamija", "risk_coverage", "scod"}
            "roc": the least FPR at every TPR. "precision_recall": the largest precision
            at every recall. "ccr": the largest correct classification rate (CCR), the
            fraction of correct among accepted ID samples, at every upper bound on the
            FPR; the curve starts at the least FPR at which `tpr_min` can be met.
            "dhamija": the same for the fraction of ID samples that are accepted and
            correct. "risk_coverage": the least selective risk at every coverage,
            without the OOD samples; the second score may still help, as samples far
            from the training data are often misclassified. "scod": the least risk over
            ID and OOD samples at every coverage of both.

        solver : Solver, default=None
            Its `angles` and `n_angles` are searched; no effect with one score. With
            ``angles="full"`` a score may be used reversed, without a warning: see the
            `thetas`. None: ``Solver("grid", n_angles=91)``, one degree apart.

        **options : float
            Options of some kinds:

            tpr_min : float, default=0.0
                Of "ccr" and "dhamija": least fraction of ID samples to accept at every
                bound.

            ood_prior : float, default=0.5
                Of "precision_recall", "scod" and `precision_min`: fraction of OOD
                samples at deployment, in [0, 1). It is never estimated from the data.
                Curves with 0 need no OOD samples.

            ood_weight : float, default=0.5
                Of "scod": the weight of an accepted OOD sample, in [0, 1]; the weight
                of the loss of an accepted ID sample is ``1 - ood_weight``.

            fpr_max : float, default=None
                Of "risk_coverage": largest fraction of OOD samples to accept. The curve
                ends at the largest coverage within the bounds, `attainable`.

                .. versionadded:: 0.2

            precision_min : float, default=None
                Of "risk_coverage": least precision at `ood_prior`, which is required.

                .. versionadded:: 0.2

        Returns
        -------
        curve : TwoScoreCurve
            The curve.
        """
        tpr_min, ood_prior, ood_weight, fpr_max, precision_min, is_bounded = (
            _checked_options(kind, **options)
        )
        if kind in ("roc", "precision_recall"):
            y_pred = loss = None
        elif kind in ("ccr", "dhamija"):
            loss = "zero_one"
        all_id = kind == "risk_coverage" and not is_bounded
        uses_prior = kind in ("precision_recall", "scod")
        samples = reject_scores(
            y_true,
            y_pred,
            y_score,
            ood_score,
            loss,
            ood_label,
            classes,
            needs_ood=ood_prior > 0 if uses_prior else not all_id,
            sample_weight=sample_weight,
        )
        if all_id:
            samples = samples.take(~samples.is_ood)
        problem = Problem(samples)
        n_id, n_ood = problem.n_id, max(problem.n_ood, 1)
        least = tpr_min * n_id * (1 - GUARD)
        per_id, per_ood = (1 - ood_prior) / n_id, ood_prior / n_ood

        def evaluate(N, E, F):
            """Return bounds and values of operating points; less is better."""
            if kind == "roc":
                return N, F.astype(np.float64)
            if kind == "precision_recall":
                return N, _ratio(F, N)  # the precision decreases in it at every prior
            if kind == "risk_coverage":
                meets = fpr_max * n_ood * (1 + GUARD) >= F
                accepted = per_id * N + per_ood * F
                meets &= per_id * N >= precision_min * accepted * (1 - GUARD)
                return N, np.where(meets, _ratio(E, N), np.inf)
            if kind == "scod":
                coverage = per_id * N + per_ood * F
                wrong = (1 - ood_weight) * per_id * E + ood_weight * per_ood * F
                return coverage, _ratio(wrong, coverage)
            wrong = 1 - (N - E) / n_id if kind == "dhamija" else _ratio(E, N)
            return F, np.where((N > 0) & (N >= least), wrong, np.inf)

        at_most = kind in ("ccr", "dhamija")
        none = {"roc": (0, 0), "dhamija": None if tpr_min else (0, 1)}.get(kind)
        thetas = _angles_to_try(problem, solver)
        bounds, values, rules = _best_rules(
            problem, thetas, evaluate, none=none, at_most=at_most
        )
        if kind != "scod":
            bounds = bounds / (n_ood if at_most else n_id)
        if kind == "roc":
            values = values / n_ood
        elif kind == "precision_recall":
            ratios = (values * n_id / n_ood).tolist()
            values = np.array([precision_at(ood_prior, 1.0, r) for r in ratios])
        elif at_most:
            values = 1 - values
        return cls(bounds=bounds, values=values, **rules)

    def _positions(self, bound):
        """Return the index of the point for each bound, and whether it exists."""
        bound = np.asarray(bound, dtype=np.float64)
        if np.isnan(bound).any():
            raise ValueError("bound contains NaN; pass numbers.")
        if self.at_most:
            position = np.searchsorted(self.bounds, bound + GUARD, side="right") - 1
            return position, position >= 0
        position = np.searchsorted(self.bounds, bound - GUARD)
        return position, position < self.bounds.size

    def at(self, bound):
        """Return the best value at other bounds.

        Parameters
        ----------
        bound : float or array-like
            The bounds to meet.

        Returns
        -------
        value : float or ndarray
            NaN where no rule meets the bound.
        """
        position, met = self._positions(bound)
        # a last NaN for all positions outside, also of an empty curve
        return np.append(self.values, np.nan)[np.where(met, position, -1)]

    def rule_at(self, bound):
        """Return the rule that is best at a bound.

        Parameters
        ----------
        bound : float
            The bound to meet.

        Returns
        -------
        point : OperatingPoint
            The rule, on the negated scores: apply it by
            ``point.accept(-y_score, -ood_score)``.

        Raises
        ------
        ValueError
            If no rule meets the bound.
        """
        position, met = self._positions(float(bound))
        if not met:
            raise ValueError(
                f"No rule meets a bound of at most {bound!r}: the least that one "
                f"meets is {self.bounds[0]:.6g}."
                if self.at_most
                else f"No rule meets a bound of at least {bound!r}: the largest that "
                f"one meets is {self.attainable:.6g}."
            )
        return OperatingPoint(
            theta=float(self.thetas[position]),
            lam=float(self.lams[position]),
            tau=float(self.taus[position]),
            scales=self.scales,
        )

    @property
    def attainable(self):
        """The largest TPR or coverage that a rule meets; 0 if there is none."""
        return float(self.bounds.max(initial=0.0))

    @property
    def area(self):
        """The exact area under the step function, over bounds from 0 to 1.

        Where no rule meets an upper bound, the value counts as 0. If `attainable`, the
        largest lower bound that a rule meets, is below 1, the area is NaN.
        """
        if not self.at_most and self.attainable < 1 - GUARD:
            return np.nan
        if self.at_most:
            width = np.diff(self.bounds, append=1.0)
        else:
            width = np.diff(self.bounds, prepend=0.0)
        return float(np.sum(width * self.values))


@dataclass(frozen=True, eq=False)
class SCODCurve:
    r"""Least expected cost of one or two scores for several costs or priors.

    In selective classification with OOD samples among the inputs (SCOD), errors on
    accepted ID samples, accepted OOD samples and rejections have costs. Use
    `from_predictions` to make a curve. Read more in the :ref:`User Guide <metrics>`.

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
    skood.rejection.CostBased : The rule.
    TwoScoreCurve : With kind "scod", the risk at a bounded coverage instead.
    make_cost_scorer : A scorer for searches.

    Notes
    -----
    Costs are as in :class:`~skood.rejection.CostBased` [1]_, with its symbols. As
    the minimum of functions that are linear in each of :math:`\varepsilon_1`,
    :math:`\varepsilon_2`, :math:`\varepsilon_3` and :math:`\pi`, the curve is concave
    in each. It is never above the cost of accepting all or no samples.

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
    >>> from skood.metrics import SCODCurve
    >>> from skood.rejection import CostBased
    >>> y_true, y_pred = [0, 1, 1, 0, -1, -1], [0, 1, 0, 0, 0, 1]
    >>> y_score = [0.9, 0.8, 0.3, 0.7, 0.75, 0.1]
    >>> rules = [CostBased(reject_id=e, ood_prior=0.2) for e in (0.0, 0.5, 1.5)]
    >>> curve = SCODCurve.from_predictions(y_true, y_pred, y_score, rules=rules)
    >>> curve.costs
    array([0. , 0.2, 0.3])
    >>> [(point.tpr, point.fpr) for point in curve.points]
    [(0.5, 0.0), (0.75, 0.5), (1.0, 0.5)]
    """

    costs: np.ndarray
    rules: list[CostBased] = field(repr=False)
    points: list = field(repr=False)

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_pred,
        y_score,
        ood_score=None,
        *,
        rules,
        loss="zero_one",
        ood_label=-1,
        classes=None,
        solver=None,
        sample_weight=None,
    ):
        """Make a curve from labels, predictions and scores.

        For each rule, the best acceptance rule is searched on the given data. Accepting
        all and accepting no samples are among them.

        Parameters
        ----------
        y_true, y_pred, y_score, ood_score : array-like of shape (n_samples,)
            As in :meth:`TwoScoreCurve.from_predictions`; `ood_score` may be None.

        rules : list of CostBased
            The costs and priors. If all priors are 0, no OOD samples are needed.

        loss, ood_label, classes, solver, sample_weight
            As in :meth:`TwoScoreCurve.from_predictions`.

        Returns
        -------
        curve : SCODCurve
            The curve.

        Raises
        ------
        ValueError, TypeError
            If there are no ID samples or, with a positive prior, no OOD samples, or if
            a cost or a prior is out of its range.
        """
        if not rules or not all(isinstance(rule, CostBased) for rule in rules):
            raise TypeError(
                f"rules must be a list of CostBased rules, at least one, got {rules!r}."
            )
        for rule in rules:
            rule.check_params()
        samples = reject_scores(
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
        problem = Problem(samples)
        goals = [Goal.of(rule, problem) for rule in rules]
        best = [None] * len(goals)
        for theta in _angles_to_try(problem, solver):
            lam, N, E, F = _worth_trying(*problem.points(theta))
            for i, goal in enumerate(goals):
                candidate = problem.best_of(theta, lam, N, E, F, goal=goal)
                if better(candidate, best[i], goal.rtol):
                    best[i] = candidate
        points = [problem.describe(*pair) for pair in zip(rules, best, strict=True)]
        costs = np.array([point.objective for point in points])
        return cls(costs=costs, rules=list(rules), points=points)


def _ratio(a, b):
    """Return a / b, infinite where b is 0."""
    return np.divide(a, b, out=np.full(b.shape, np.inf), where=b > 0)


def _angles_to_try(problem, solver):
    """Return the grid of angles, or angle 0 if there is only one score."""
    solver = Solver._checked(Solver("grid", n_angles=91) if solver is None else solver)
    thetas = grid_of_angles(solver.angles, solver.n_angles or N_ANGLES)
    return thetas if problem.double else np.zeros(1)


def _best_of_runs(position, key):
    """Return, for each run of equal positions, the index of its last least key.

    Runs with only infinite keys are omitted.
    """
    last = ends_of_ties(position)
    first = np.append(0, last[:-1] + 1)
    least = np.repeat(np.minimum.reduceat(key, first), last + 1 - first)
    hit = np.flatnonzero((key == least) & (key < np.inf))
    return hit[ends_of_ties(position[hit])] if hit.size else hit


def _beats_later(key):
    """Return which keys are smaller than all later keys."""
    return key < np.append(np.minimum.accumulate(key[::-1])[::-1][1:], np.inf)


def _best_rules(problem, thetas, evaluate, *, none=None, at_most=False):
    """Return positions and keys of the best rule at every bound, and the rules.

    `evaluate(N, E, F)` returns position and key (infinite: does not count) of operating
    points; `none` are position and key of accepting nothing. Positions, of shape
    (n_points,), are bounded from above if `at_most`; the rules are arguments of a
    :class:`TwoScoreCurve`.
    """
    # One pass over the angles: all thresholds at each angle are evaluated, and the best
    # are merged into the best rules so far.
    sign = -1.0 if at_most else 1.0
    # rows: position, key, N, theta, lam, tau; upper bounds are negated lower bounds
    best = np.empty((6, 0))
    if none is not None:
        best = np.array([[sign * none[0]], [none[1]], [0], [0], [-math.inf], [0]])
    for theta in thetas:
        lam, N, E, F = problem.points(theta)
        position, key = evaluate(N, E, F)
        k = _best_of_runs(position, key)
        if at_most:
            k = k[::-1]
        k = k[_beats_later(key[k])]
        new = np.array(
            [
                sign * position[k],
                key[k],
                N[k],
                np.full(k.size, theta),
                lam[k],
                np.ones(k.size),
            ]
        )
        points = np.concatenate([new, best], axis=1)
        # of equal columns, the one with the most ID samples stays, then the last
        points = points[:, np.lexsort((points[2], -points[1], points[0]))]
        best = points[:, _beats_later(points[1])]
    if at_most:
        best = best[:, ::-1]
    rules = {
        "at_most": at_most,
        "thetas": best[3],
        "lams": best[4],
        "taus": best[5],
        "scales": problem.scales,
    }
    return sign * best[0], best[1], rules


def _worth_trying(lam, N, E, F):
    """Drop operating points that are never better than one of their neighbors.

    At any costs, accepting an OOD sample is no gain and rejecting an ID sample without
    loss is none either, so that few points are searched for all costs.
    """
    gains = np.diff(N, prepend=0) > 0
    misses = np.append((np.diff(E) == 0) & (np.diff(F) == 0), False)
    k = np.flatnonzero(gains & ~misses)
    return lam[k], N[k], E[k], F[k]

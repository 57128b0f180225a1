"""Acceptance rules with certified bounds on new data."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from functools import partial
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from skood.decision._base_rule import (
    BaseRule,
    Linear,
    as_asked,
    check_rule,
    is_floor,
)
from skood.decision._calibration_sample import Problem
from skood.decision._check_problem import check_problem
from skood.decision._confidence_bounds import (
    max_accepted_ood,
    max_accepted_ood_on_average,
    min_accepted_id,
    min_accepted_id_on_average,
    sizes_needed,
)
from skood.decision._objective import Goal
from skood.decision._solver import (
    SOLVERS,
    grid_of_angles,
    grid_search,
    search,
    warn_of_reversed,
)
from skood.exceptions import NotCertifiableError
from skood.utils._param_validation import Interval, StrOptions, validate_params
from skood.utils._warnings import quiet

__all__ = ["certify"]

# Share of ID samples that only set the scales, if all others certify many angles.
_FOR_SCALES = 0.1

# Margins of the choice of the angle, for the difference between two samples, in
# standard deviations: with enough data, for one in 20 per bound, else less.
_CAUTION = (1.645, 0.8, 0.0)


class CertificateOptions(NamedTuple):
    """Guarantee for a rule with its own thresholds, and the samples that it is for."""

    guarantee: str
    delta: float
    n_id: int
    n_ood: int
    split: partial  # problem -> its part for choices, and its part for tests
    max_loss: float = 1.0


class _Demand(NamedTuple):
    """Bounds on rates, and the counts that certify them on the given samples."""

    tpr_min: float
    fpr_max: float
    rank: partial  # number of ID samples -> least number to accept, or None
    count: partial  # number of OOD samples -> largest number to accept, or -1


class _Tightened(BaseRule):
    """A rule with other bounds on the TPR and the FPR: those to meet on a sample."""

    def __init__(self, rule, tpr_min, fpr_max):
        self.rule = rule
        self.tpr_min = tpr_min
        self.fpr_max = fpr_max

    def rates(self):
        floor = Linear(id=-1.0, constant=self.tpr_min)
        if self.fpr_max == 1:  # needs no OOD samples
            return (floor,)
        return floor, Linear(ood=1.0, constant=-self.fpr_max)

    def cost(self):
        return self.rule.cost()


def _at_priors(rule, ood_prior):
    """Return the rule at the ends of `ood_prior`, a number or a pair (low, high)."""
    if ood_prior is None:
        return [rule]
    if rule.ood_prior is None:
        raise ValueError(
            f"ood_prior is for rules such as BoundedPrecisionRecall; "
            f"{type(rule).__name__} bounds no precision. Leave it out."
        )
    ends = ood_prior if isinstance(ood_prior, tuple) else (ood_prior,)
    if isinstance(ood_prior, tuple) and not (
        len(ends) == 2 and 0 <= ends[0] <= ends[1]
    ):
        raise ValueError(
            f"ood_prior must be a number or a pair (low, high) with 0 <= low <= high, "
            f"got {ood_prior!r}."
        )
    return [clone(rule).set_params(ood_prior=end) for end in ends]


def _implied_bounds(rule):
    """Return bounds on TPR and FPR that imply the bounds of a rule, or raise."""
    rates = rule.rates()
    if not rates or any(r.loss or r.id > 0 or r.ood < 0 for r in rates):
        raise TypeError(
            f"{type(rule).__name__} cannot be certified: its bounds do not follow from "
            f"a lower bound on the TPR and an upper bound on the FPR. Use "
            f"BoundedTPRFPR, BoundedPrecisionRecall or BoundedAbstention; or "
            f"BoundedImprovement or TwoThresholds, which bound the selective risk."
        )
    tpr_min = max((r.constant / -r.id for r in rates if is_floor(r)), default=0.0)
    # the bounds on both rates hold for all larger TPR if they hold for the least one
    ends = [-(r.id * tpr_min + r.constant) / r.ood for r in rates if r.ood]
    return tpr_min, max(0.0, min([*ends, 1.0]))


def _demand(guarantee, delta, n_angles, tpr_min, fpr_max):
    """Return the counts that the certifying samples must meet."""
    if guarantee == "expectation":
        rank = partial(min_accepted_id_on_average, tpr_min=tpr_min)
        count = partial(max_accepted_ood_on_average, fpr_max=fpr_max)
    else:
        # delta is divided among all bounds that can be broken, at each of the angles
        n_bounds = int(tpr_min > 0) + int(fpr_max < 1)
        share = delta / n_angles / max(1, n_bounds)
        rank = partial(min_accepted_id, tpr_min=tpr_min, delta=share)
        count = partial(max_accepted_ood, fpr_max=fpr_max, delta=share)
    return _Demand(tpr_min, fpr_max, rank, count)


def _split(problem, shares, rng):
    """Return two disjoint parts, the first with these shares of ID and OOD samples."""
    first, second = [], []
    for n, share in zip((problem.n_id, problem.n_ood), shares, strict=True):
        order = rng.permutation(n)
        size = max(1, int(share * n)) if share else 0
        first.append(np.sort(order[:size]))
        second.append(np.sort(order[size:]))
    return _take(problem, *first), _take(problem, *second)


def _take(problem, rows_id, rows_ood):
    """Return a problem of some of the samples."""
    double = problem.double
    return Problem(
        problem.risk_id[rows_id],
        problem.ood_id[rows_id] if double else None,
        problem.loss_id[rows_id],
        problem.risk_ood[rows_ood],
        problem.ood_ood[rows_ood] if double else None,
    )


def _choose_angle(rule, first, second, demand, **options):
    """Return the best rule on the first part with a margin for the second."""
    k, K = demand.rank(second.n_id), demand.count(second.n_ood)
    tpr, fpr = demand.tpr_min, demand.fpr_max
    cautions: tuple[float, ...] = (0.0,)
    bounded = fpr < 1
    rows = first.risk_id, first.ood_id, first.loss_id, first.risk_ood, first.ood_ood
    if k is not None and K >= 0:
        cautions = _CAUTION
        tpr = k / second.n_id
        fpr = K / second.n_ood if bounded else 1.0
    for caution in cautions:
        coverage = tpr + caution * _deviation(tpr, first.n_id, second.n_id)
        leak = 1.0
        if bounded:
            leak = fpr - caution * _deviation(fpr, first.n_ood, second.n_ood)
        target = _Tightened(rule, min(1.0, coverage), max(0.0, leak))
        with quiet():  # warned once, at the end
            point = search(target, *rows, **options)
        if point.feasible:
            break
    return point


def _deviation(share, n, m):
    """Return the standard deviation of the difference of two sample shares."""
    return math.sqrt(share * (1 - share) * (1 / n + 1 / max(m, 1)))


def _best(rule, problem, thetas, k, K):
    """Return the best rule with at least k ID and at most K OOD samples, or None."""
    if k is None or K < 0:
        return None
    bounds = Linear(id=-1.0, constant=k), Linear(ood=1.0, constant=-K)
    cost = rule.cost()
    if cost is not None:
        cost = cost.in_counts(problem.n_id, problem.n_ood)
    return grid_search(problem, Goal(cost, bounds), thetas)[0]


def _reasons(demand, n_id, n_ood):
    """Return the reason why the certifying samples are too few."""
    k, K = demand.rank(n_id), demand.count(n_ood)
    reasons = []
    if k is None and demand.tpr_min == 1:
        reasons.append("no number of ID samples certifies a TPR of 1")
    elif k is None:
        rows = "1 ID sample is" if n_id == 1 else f"{n_id} ID samples are"
        reasons.append(f"{rows} too few for a TPR of {demand.tpr_min:.4g}")
    if K < 0 and demand.fpr_max == 0:
        reasons.append("no number of OOD samples certifies an FPR of 0")
    elif K < 0:
        rows = "1 OOD sample is" if n_ood == 1 else f"{n_ood} OOD samples are"
        reasons.append(f"{rows} too few for an FPR of {demand.fpr_max:.4g}")
    return " and ".join(reasons) or (
        f"a TPR of {demand.tpr_min:.4g} needs {k} of {n_id} ID samples accepted, an "
        f"FPR of {demand.fpr_max:.4g} allows {K} of {n_ood} OOD samples, and no "
        f"threshold does both"
    )


def _refusal(rule, problem, second, thetas, demand, shares):
    """Return the error with the reason and the number of samples needed.

    `shares` are the shares of ID and OOD samples outside the certifying part `second`.
    """
    bounded = demand.fpr_max < 1
    seen = second if second.n_id and (second.n_ood or not bounded) else problem
    points = [seen.points(theta) for theta in thetas]
    N, F = (np.concatenate([point[i] for point in points]) for i in (1, 3))
    needed = sizes_needed(
        N / seen.n_id,
        F / max(seen.n_ood, 1),
        second.n_id,
        second.n_ood,
        demand.rank,
        demand.count,
    )
    if needed is not None:
        totals = (
            max(given, math.ceil(n / (1 - share)))
            for n, share, given in zip(
                needed, shares, (problem.n_id, problem.n_ood), strict=True
            )
        )
        n_id, n_ood = totals
        needed = n_id, n_ood if bounded else problem.n_ood
    return NotCertifiableError(
        f"{as_asked(rule)} is not certified by {problem.n_id} ID and "
        f"{problem.n_ood} OOD samples: "
        f"{_reasons(demand, second.n_id, second.n_ood)}.",
        *(needed or (None, None)),
    )


@validate_params(
    {
        "guarantee": [StrOptions({"high_probability", "ltt", "expectation"})],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "split": [Interval(Real, 0, 1, closed="neither")],
        "n_angles": [Interval(Integral, 2, None, closed="left")],
        "ood_prior": [Real, tuple, None],
        "max_loss": [Interval(Real, 0, None, closed="neither")],
        "solver": [StrOptions(set(SOLVERS))],
        "angles": [StrOptions({"quadrant", "full"})],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def certify(
    rule,
    risk_id,
    ood_id,
    loss_id,
    risk_ood,
    ood_ood,
    *,
    guarantee="high_probability",
    delta=0.1,
    split=0.3,
    n_angles=16,
    ood_prior=None,
    max_loss=1.0,
    solver="bnb",
    angles="quadrant",
    random_state=None,
):
    r"""Find an acceptance rule whose bounds hold on new data.

    :func:`solve` returns the best rule on the given samples. On new samples this rule
    violates its bounds about half of the time. The rule returned here meets them with a
    probability of at least ``1 - delta`` over the draw of the given samples. New
    samples must come from the same distributions. Read more in the
    :ref:`User Guide <guarantees>`.

    Parameters
    ----------
    rule : BaseRule
        The rule whose bounds are certified, such as :class:`BoundedTPRFPR`,
        :class:`BoundedPrecisionRecall` or :class:`BoundedAbstention`: any rule whose
        bounds follow from a lower bound on the TPR and an upper bound on the FPR; or
        :class:`TwoThresholds` and :class:`BoundedImprovement`, which bound the
        selective risk.

    risk_id : array-like of shape (n_id,)
        Scores a of ID samples, high for samples that are likely misclassified.

    ood_id : array-like of shape (n_id,) or None
        Scores b of ID samples, high for OOD samples. None (then also in `ood_ood`):
        there is only the score a.

    loss_id : array-like of shape (n_id,)
        Losses of ID samples, not negative. They select among certified rules; nothing
        is guaranteed about them unless the rule bounds the selective risk.

    risk_ood : array-like of shape (n_ood,) or None
        Scores a of OOD samples. None: no OOD samples, for rules that do not require
        them.

    ood_ood : array-like of shape (n_ood,) or None
        Scores b of OOD samples.

    guarantee : {"high_probability", "ltt", "expectation"}, default="high_probability"
        The kind of guarantee.

        - "high_probability": with a probability of at least ``1 - delta``, all bounds
          hold on new data. One part of the samples chooses the angle between the
          scores, the others certify thresholds ("split" in the notes).
        - "ltt": the same guarantee. All samples certify thresholds at each of
          `n_angles` angles (learn then test), except for a tenth of the ID samples,
          which set the scales of the scores.
        - "expectation": the TPR and the FPR are within their bounds on average over
          the draw of the given samples, by conformal order statistics. About half of
          all draws break a bound. `delta` is not used.

        With one score there is no angle to choose, and all samples certify thresholds.

    delta : float, default=0.1
        Probability, in (0, 1), that the guarantee fails.

    split : float, default=0.3
        Share of the ID and of the OOD samples that choose the angle; not for "ltt".

    n_angles : int, default=16
        Number of angles of "ltt". More angles come closer to the best one, but each is
        certified with ``delta / n_angles``.

    ood_prior : float or tuple (low, high), default=None
        For rules with a prior, such as BoundedPrecisionRecall: the share of OOD samples
        in use, or an interval for it; the guarantee holds for all of its values. None:
        the `ood_prior` of the rule.

    max_loss : float, default=1.0
        Largest possible loss, for a bound on the selective risk. It must be known
        beforehand: clip losses of unknown range to it.

    solver : {"bnb", "exact", "grid"}, default="bnb"
        How the angle is chosen, see :func:`solve`; not for "ltt".

    angles : {"quadrant", "full"}, default="quadrant"
        Angles to choose from, see :func:`solve`.

    random_state : int, RandomState instance or None, default=None
        Draws the parts of the samples.

    Returns
    -------
    point : OperatingPoint
        The rule. Its numbers are computed on the certifying samples; its risk is the
        least of many, and therefore optimistic.

    Raises
    ------
    NotCertifiableError
        If the samples are too few. Its text and attributes give the numbers needed.
    TypeError
        If the bounds of `rule` do not follow from bounds on the TPR and the FPR.
    ValueError
        As :func:`solve`.

    Warns
    -----
    SkoodWarning
        If the rule uses a score reversed.

    See Also
    --------
    min_accepted_id, max_accepted_ood : The numbers that certify.
    risk_upper_bound : A bound on the selective risk.
    solve : The best rule on the given samples.

    Notes
    -----
    At a fixed angle TPR and FPR grow with the threshold :math:`\lambda`. Let k be
    :func:`min_accepted_id` and K :func:`max_accepted_ood`, each with :math:`\delta / 2`
    (with :math:`\delta` if one of the bounds always holds). All thresholds from the
    k-th smallest ID score to just below the (K+1)-th smallest OOD score are certified
    at once: TPR and FPR at the ends bound the rates of all thresholds in between. So
    the threshold with the smallest empirical risk may be chosen. Ties are resolved as
    by :func:`solve`. With "ltt" [1]_ there are `n_angles` such intervals, with
    :math:`\delta` divided by their number.

    With "expectation" the ends are the :math:`\lceil (n_I + 1) \phi \rceil`-th ID
    score and (not included) the :math:`\lfloor (n_O + 1) \rho \rfloor`-th OOD score
    [2]_. The average is over all draws of the given samples, also those for which the
    interval is empty and an error is raised.

    A precision of :math:`\kappa` at a recall of :math:`\phi` is guaranteed through
    :math:`\mathrm{TPR} \ge \phi` and :math:`\mathrm{FPR} \le \phi (1 - \pi)(1 -
    \kappa) / (\pi \kappa)`, which imply it for all priors up to :math:`\pi`.

    With two scores and a split, the first part chooses its best angle within tighter
    bounds: the bounds that the second part must meet, and a margin for the difference
    between two samples, if there are enough samples for it.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan, L. Lei. Learn
       then test: calibrating predictive algorithms to achieve risk control. 2021.
    .. [2] V. Vovk, A. Gammerman, G. Shafer. Algorithmic learning in a random world.
       Springer, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import BoundedTPRFPR, certify, solve
    >>> rng = np.random.default_rng(0)
    >>> risk_id, risk_ood = rng.normal(size=500), rng.normal(2.0, size=300)
    >>> loss_id = rng.uniform(size=500) < 0.1
    >>> rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.2)
    >>> point = certify(rule, risk_id, None, loss_id, risk_ood, None, delta=0.1)
    >>> bool(point.tpr > 0.73 and point.fpr < 0.16)  # the bounds, and room for chance
    True
    """
    check_rule(rule)
    rules = _at_priors(rule, ood_prior)
    rule = rules[-1]  # the upper end, where precision is least
    problem = check_problem(rule, risk_id, ood_id, loss_id, risk_ood, ood_ood)
    rng = check_random_state(random_state)
    own = partial(_split, shares=(split, 0.0), rng=rng)
    sizes = problem.n_id, problem.n_ood
    own_options = CertificateOptions(guarantee, delta, *sizes, own, max_loss)
    point = rule._point(problem, own_options)
    if point is not None:
        return point
    # bounds are linear in the prior: they hold in between if they hold at both ends
    tpr_min, fpr_max = zip(*map(_implied_bounds, rules), strict=True)
    rates = max(tpr_min), min(fpr_max)
    shares = (0.0, 0.0)
    if not problem.double:
        second, thetas = problem, np.zeros(1)
        demand = _demand(guarantee, delta, 1, *rates)
    elif guarantee == "ltt":
        shares = (_FOR_SCALES, 0.0)
        first, second = _split(problem, shares, rng)
        second.set_scales(*first.scales)
        thetas = grid_of_angles(angles, n_angles)
        demand = _demand(guarantee, delta, len(thetas), *rates)
    else:
        shares = (split, split)
        first, second = _split(problem, shares, rng)
        demand = _demand(guarantee, delta, 1, *rates)
        options = {"solver": solver, "angles": angles}
        point = _choose_angle(rule, first, second, demand, **options)
        second.set_scales(*point.scales)
        thetas = np.array([point.theta])
    k, K = demand.rank(second.n_id), demand.count(second.n_ood)
    # Where scores are dense, ties that were merged may not stay together at an angle.
    for sample in (second.with_merged_ties(), second):
        best = _best(rule, sample, thetas, k, K)
        if best is None:
            break
        gap = {} if problem.double else {"gap": 0.0}
        point = sample.describe(rule, best, **gap)
        if point is not None:
            warn_of_reversed(point)
            return point
    raise _refusal(rule, problem, second, thetas, demand, shares)

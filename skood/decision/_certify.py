"""Acceptance rules with certified bounds on new data."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import math
import operator
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from skood.decision._angle_search import grid_search
from skood.decision._base_rule import (
    Linear,
    Rebounded,
    as_requested,
    check_rule,
    is_floor,
)
from skood.decision._calibration_sample import Goal, Problem
from skood.decision._certified_path import RuleCertificate, statement_of
from skood.decision._distribution_shift import (
    check_guarantee,
    checked_unlabeled,
    weighted,
    with_margin,
)
from skood.decision._group_thresholds import check_thresholds
from skood.decision._options import Solver, checked_certificate
from skood.decision._path_certificates import certify_statements
from skood.decision._scored_samples import Counts, checked_samples
from skood.decision._solver import grid_of_angles, search_problem, warn_of_reversed
from skood.decision._statements import tests_of
from skood.exceptions import NotCertifiableError
from skood.stats._binomial_bounds import (
    max_accepted_ood,
    max_accepted_ood_on_average,
    min_accepted_id,
    min_accepted_id_on_average,
    sizes_needed,
)
from skood.stats._rate_tests import at_least, at_most
from skood.utils._warnings import quiet

# Fraction of ID samples that only set the scales, if all others certify many angles.
_FOR_SCALES = 0.1

# Number of these angles by default: each is certified with a fraction of delta.
_N_ANGLES = 16

# Margins of the choice of the angle, for the difference between two samples, in
# standard deviations: with enough data, for one in 20 per bound, else less.
_CAUTION = (1.645, 0.8, 0.0)


def _at_priors(rule, ood_prior, unlabeled):
    """Return the rule at the ends of `ood_prior`, a number or a pair (low, high)."""
    check_rule(rule)
    if unlabeled is not None:
        raise ValueError(
            "Pass ood_prior or unlabeled, not both: with unlabeled samples the "
            "precision at deployment is certified without a prior."
        )
    if rule.ood_prior is None and not rule.has_open_prior:
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
    return [rule._at_prior(end) for end in ends]


def certify(
    rule, samples, certificate=None, solver=None, *, unlabeled=None, random_state=None
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
        The rule whose bounds are certified, all together; :class:`AllOf` combines
        rules. :class:`CostBased` without a bound gets an upper bound on its cost. "ltt"
        and "expectation" are for bounds that follow from a lower bound on the TPR and
        an upper bound on the FPR, and for :class:`TwoThresholds`.

    samples : ScoredSamples
        Scores and losses. Losses select among certified rules; nothing is guaranteed
        about them unless the rule bounds the selective risk. With groups, such as
        classes or an attribute, bounds on the TPR and the risk are certified within
        every group, with one rule for all; bounds within every class hold for all class
        priors. With sources of OOD samples, bounds on the FPR are certified for every
        source, and hence for every mixture of them. Groups of OOD samples are for
        ``Certificate(thresholds="group")``, and the meaning of weights is in
        :class:`Shift`.

    certificate : Certificate, default=None
        Kind of guarantee, its error, and the samples that choose. None:
        ``Certificate()``.

    solver : Solver, default=None
        Angles to choose from, and how the angle is chosen; not for "ltt". None:
        ``Solver()``.

    unlabeled : tuple (risk, ood) of array-like, default=None
        Scores of unlabeled samples in deployment, a mixture of ID and OOD samples;
        `ood` is None for one score. A bound on the precision is then certified for this
        mixture, and its fraction of OOD samples need not be known: `ood_prior` is not
        used.

    random_state : int, RandomState instance or None, default=None
        Draws the parts of the samples.

    Returns
    -------
    point : OperatingPoint
        The rule. Its numbers are computed on the certifying samples; without a bound
        on it, its risk is the least of many, and therefore optimistic. It has a
        `certificate`, a :class:`RuleCertificate`.

    Raises
    ------
    NotCertifiableError
        If the samples are too few. Its text and attributes give the numbers needed.
    TypeError
        If the bounds of `rule` do not follow from bounds on the TPR and the FPR, with
        "ltt" or "expectation".
    ValueError
        As :func:`solve`.

    Warns
    -----
    SkoodWarning
        If the rule uses a score reversed, or if a mixture has as many ID as OOD
        samples.

    See Also
    --------
    certify_path : Certifies candidates of your own.
    min_accepted_id, max_accepted_ood : The numbers that certify.
    risk_upper_bound : A bound on the selective risk.
    solve : The best rule on the given samples.

    Notes
    -----
    **Path.** The first part of the samples chooses at most 200 candidates, angles and
    thresholds: the Pareto front of the margin by which all bounds are expected to pass
    their tests, and of the objective, the safest first. On the second part each
    candidate has a p-value, the largest over all bounds, groups and sources
    (intersection-union test [3]_), and candidates are tested at the full
    :math:`\delta` until the first is not certified (fixed sequence). The first
    candidate that breaks a bound passes with a probability of at most :math:`\delta`,
    so that this also bounds the probability that the returned one, the last that
    passed, breaks a bound. The p-values are exact for any number of samples: binomial
    for TPR, FPR, and the risk if losses are 0 or `max_loss`, an exact two-sample test
    for the precision, and by betting [4]_ for other losses and for costs. Ties do not
    matter. The split is random, within groups and sources and within nothing else.

    **One score.** If the largest coverage within a bound on the selective risk is
    searched, an eighth of the first part suffices: its scores are the thresholds of the
    candidates, in ascending order, and all others test them. There are two starts, the
    first with 95 % of :math:`\delta` at a coverage at which the bound can be shown, the
    other at 0.75 for scores whose least values have a large risk. A candidate is tested
    at the sum of its fraction of :math:`\delta` and, if the one before is certified,
    the level of that.

    **Mixture.** With ``sampling="mixture"`` an accepted OOD sample has the largest
    loss, and the error rate has the tests of a selective risk. For
    :class:`BoundedErrorRate` alone, the first part, of all samples, chooses an angle
    and a cap of the OOD score (`ood_max`) with the fewest errors among the first
    answers. Candidates accept ever more, from two starts, see :func:`certify_path`.

    **Distribution shift.** With importance weights :math:`w \le W` a statement is
    :math:`E[w Z] \le 0`, with :math:`Z` equal to :math:`\phi - A` for the TPR,
    :math:`(l - r) A` for the risk and :math:`A - \rho` for the FPR, for the decision
    A and the loss l. It is tested by betting, with the largest possible :math:`w Z` in
    place of the largest loss. With "expectation" thresholds are weighted conformal
    quantiles [5]_. With `unlabeled` samples, accepted at the rate q, the precision is
    :math:`t (q - f) / (q (t - f))`, which grows with q and falls with t and f. It is
    tested by one statistic of the three counts; its p-value is the largest probability
    over a confidence region of t and f, see :func:`ood_prior_interval`.

    **Thresholds of groups.** At level c the threshold of a group is a quantile of its
    scores in the first part, at :math:`t^* + c \sqrt{t^* (1 - t^*) (1 / n_1 + 1 /
    n_2)}`, where :math:`t^*` is about the least TPR that passes the test on the
    :math:`n_2` samples of the group in the second part. The candidates are levels in
    steps of 1/4 at all angles [6]_. Their order and their tests are as before.

    **Interval.** At a fixed angle TPR and FPR grow with the threshold
    :math:`\lambda`. Let k be :func:`min_accepted_id` and K :func:`max_accepted_ood`,
    each with :math:`\delta / 2` (with :math:`\delta` if one of the bounds always
    holds). All thresholds from the k-th smallest ID score to just below the (K+1)-th
    smallest OOD score are certified at once: TPR and FPR at the ends bound the rates of
    all thresholds in between. So
    the threshold with the smallest empirical risk may be chosen. Ties are resolved as
    by :func:`solve`. With "ltt" [1]_ there are `n_angles` such intervals, with
    :math:`\delta` divided by their number.

    With "expectation" the ends are the :math:`\lceil (n_I + 1) \phi \rceil`-th ID
    score and (not included) the :math:`\lfloor (n_O + 1) \rho \rfloor`-th OOD score
    [2]_. The average is over all draws of the given samples, also those for which the
    interval is empty and an error is raised.

    A precision is guaranteed through the bounds on TPR and FPR in the notes of
    :class:`BoundedPrecisionRecall`, which imply it for all priors up to :math:`\pi`.

    With two scores and "expectation", the first part chooses its best angle within
    tighter bounds: the bounds that the second part must meet, and a margin for the
    difference between two samples, if there are enough samples for it.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan, L. Lei. Learn
       then test: calibrating predictive algorithms to achieve risk control. 2021.
    .. [2] V. Vovk, A. Gammerman, G. Shafer. Algorithmic learning in a random world.
       Springer, 2005.
    .. [3] R. L. Berger. Multiparameter hypothesis testing and acceptance sampling.
       Technometrics 24, 1982.
    .. [4] I. Waudby-Smith, A. Ramdas. Estimating means of bounded random variables by
       betting. Journal of the Royal Statistical Society B 86, 2024.
    .. [5] R. J. Tibshirani, R. Foygel Barber, E. J. Candès, A. Ramdas. Conformal
       prediction under covariate shift. NeurIPS 2019.
    .. [6] V. Vovk, D. Lindsay, I. Nouretdinov, A. Gammerman. Mondrian confidence
       machine. Technical report, Royal Holloway, 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import BoundedTPRFPR, Certificate, ScoredSamples, certify
    >>> rng = np.random.default_rng(0)
    >>> risk_id, risk_ood = rng.normal(size=500), rng.normal(2.0, size=300)
    >>> loss_id = rng.uniform(size=500) < 0.1
    >>> rule = BoundedTPRFPR(tpr_min=0.7, fpr_max=0.2)
    >>> samples = ScoredSamples.from_arrays(risk_id, None, loss_id, risk_ood, None)
    >>> point = certify(rule, samples, Certificate(delta=0.1))
    >>> print(f"TPR {point.tpr:.2f}, FPR {point.fpr:.2f}")
    TPR 0.80, FPR 0.14
    """
    certificate = checked_certificate(certificate, rule)
    if certificate.method == "expectation":
        certificate.delta = None  # it holds on average
    solver = Solver._checked(solver)
    solver._check_certifiable()
    tv, by_mask = certificate.shift.tv, not isinstance(certificate.split, Real)
    rules = [rule]
    if certificate.ood_prior is not None:
        rules = _at_priors(rule, certificate.ood_prior, unlabeled)
    rule = rules[-1]  # the upper end, where precision is least
    samples = checked_samples(rule, samples, certificate, unlabeled)
    if by_mask:
        certificate.split = _checked_mask(rule, samples, unlabeled, certificate)
    if unlabeled is not None:
        unlabeled = checked_unlabeled(unlabeled, samples.ood is not None)
    if samples.weight is not None:
        samples = weighted(samples, unlabeled, certificate.shift)
    rng = check_random_state(random_state)
    is_weighted = samples.weight is not None
    has_labels = samples.group is not None or samples.source is not None
    is_special = is_weighted or has_labels or tv > 0 or unlabeled is not None
    if is_special or certificate.thresholds == "group":
        check_thresholds(rule, samples, unlabeled, certificate)
        check_guarantee(rule, samples, unlabeled, certificate)
    if not rule.is_searched:
        point = rule._point(Problem(samples), certificate, samples, rng)
        if point is not None:
            return point
    # linear in the prior: statements hold in between if they hold at both ends
    bounds = _strictest(rules)
    needs_path = is_special or by_mask or samples.ood is not None or rule.error_rates
    if certificate.method == "high_probability" and (
        needs_path or not rule.rates() or not all(map(_is_implied, bounds))
    ):
        if tv:
            bounds = [with_margin(bound, tv, certificate.max_loss) for bound in bounds]
        point = certify_statements(
            rule, bounds, samples, unlabeled, certificate, solver, rng
        )
        warn_of_reversed(point)
        return point
    return certify_nested(rules, bounds, samples, certificate, solver, rng)


def _checked_mask(rule, samples, unlabeled, certificate):
    """Return the mask of the samples that choose, or raise."""
    if unlabeled is not None or samples.weight is not None:
        raise ValueError(
            "split as a mask excludes weights and unlabeled samples. Pass a fraction."
        )
    method, mask = certificate.method, np.asarray(certificate.split)
    if method != "high_probability" or not rule.is_searched:
        raise ValueError(
            f"split as a mask is for guarantee='high_probability' and rules with "
            f"linear bounds, got guarantee={method!r} and {type(rule).__name__}."
        )
    if mask.shape != samples.is_ood.shape or mask.dtype != bool:
        raise ValueError(
            f"split must be a fraction, or a Boolean mask of the {samples.is_ood.size} "
            f"samples, got an array of shape {mask.shape} and dtype {mask.dtype}."
        )
    of_id = mask[~samples.is_ood]
    if not of_id.any() or of_id.all():
        raise ValueError(
            "split must leave ID samples that choose and ID samples that certify, got "
            f"{int(of_id.sum())} and {int((~of_id).sum())}."
        )
    return mask


def _is_implied(bound):
    """Return whether a bound follows from bounds on the TPR and on the FPR."""
    return bound.loss == 0 and bound.id <= 0 <= bound.ood


def _strictest(rules):
    """Return the statements of rules without those that others imply."""
    bounds: dict = {}
    for rule in rules:
        bounds |= dict.fromkeys(rule.statements())
    for bound, other in list(itertools.permutations(bounds, 2)):
        if all(map(operator.ge, other, bound)):
            bounds.pop(bound, None)
    return list(bounds)


class _Demand(NamedTuple):
    """Bounds on rates, and the counts that certify them on the given samples."""

    tpr_min: float
    fpr_max: float
    rank: partial  # number of ID samples -> least number to accept, or None
    count: partial  # number of OOD samples -> largest number to accept, or -1
    n_angles: int = 1

    def pvalues(self, n_id, n_ood):
        """Return the p-values of both bounds if just these numbers are accepted."""
        low = at_least(self.rank(n_id), n_id, self.tpr_min)
        high = at_most(self.count(n_ood), n_ood, self.fpr_max)
        return min(1.0, self.n_angles * low), min(1.0, self.n_angles * high)


def _implied_bounds(rule):
    """Return bounds on TPR and FPR that imply the bounds of a rule, or raise."""
    rates = rule.rates()
    if not rates or any(r.loss or r.id > 0 or r.ood < 0 for r in rates):
        raise TypeError(
            f"The bounds of {type(rule).__name__} do not follow from a lower bound on "
            f"the TPR and an upper bound on the FPR; only "
            f"guarantee='high_probability' certifies such bounds."
        )
    tpr_min = max((r.constant / -r.id for r in rates if is_floor(r)), default=0.0)
    # the bounds on both rates hold for all larger TPR if they hold for the least one
    ends = [-(r.id * tpr_min + r.constant) / r.ood for r in rates if r.ood]
    return tpr_min, max(0.0, min([*ends, 1.0]))


def _demand(guarantee, delta, n_angles, tpr_min, fpr_max, largest=(None, None)):
    """Return the counts that the certifying samples must meet.

    `largest` are the largest weights of ID and OOD samples; None: there are no weights.
    """
    if guarantee == "expectation":
        id_, ood = ({"largest": w} for w in largest)
        rank = partial(min_accepted_id_on_average, tpr_min=tpr_min, **id_)
        count = partial(max_accepted_ood_on_average, fpr_max=fpr_max, **ood)
    else:
        # delta is divided among all bounds that can be broken, at each of the angles
        n_bounds = int(tpr_min > 0) + int(fpr_max < 1)
        fraction = delta / n_angles / max(1, n_bounds)
        rank = partial(min_accepted_id, tpr_min=tpr_min, delta=fraction)
        count = partial(max_accepted_ood, fpr_max=fpr_max, delta=fraction)
    return _Demand(tpr_min, fpr_max, rank, count, n_angles)


def _choose_angle(rule, first, second, demand, solver):
    """Return the best rule on the first part with a margin for the second."""
    k, K = demand.rank(second.n_id), demand.count(second.n_ood)
    tpr, fpr = demand.tpr_min, demand.fpr_max
    cautions: tuple[float, ...] = (0.0,)
    bounded = fpr < 1
    if k is not None and K >= 0:
        cautions = _CAUTION
        tpr = k / second.n_id
        fpr = K / second.n_ood if bounded else 1.0
    for caution in cautions:
        coverage = tpr + caution * _deviation(tpr, first.n_id, second.n_id)
        rates = [Linear(id=-1.0, constant=min(1.0, coverage))]
        if bounded:  # else no OOD samples are needed
            leak = fpr - caution * _deviation(fpr, first.n_ood, second.n_ood)
            rates.append(Linear(ood=1.0, constant=-max(0.0, leak)))
        with quiet():  # warned once, at the end
            point = search_problem(Rebounded(rule, rates), first, solver)
        if point.feasible:
            break
    return point


def _deviation(fraction, n, m):
    """Return the standard deviation of the difference of two sample fractions."""
    return math.sqrt(fraction * (1 - fraction) * (1 / n + 1 / max(m, 1)))


def _reasons(demand, n_id, n_ood):
    """Return the reason why the certifying samples are too few."""
    k, K = demand.rank(n_id), demand.count(n_ood)
    reasons = []
    if k is None and demand.tpr_min == 1:
        reasons.append("no number of ID samples certifies a TPR of 1")
    elif k is None:
        samples = "1 ID sample is" if n_id == 1 else f"{n_id} ID samples are"
        reasons.append(f"{samples} too few for a TPR of {demand.tpr_min:.4g}")
    if K < 0 and demand.fpr_max == 0:
        reasons.append("no number of OOD samples certifies an FPR of 0")
    elif K < 0:
        samples = "1 OOD sample is" if n_ood == 1 else f"{n_ood} OOD samples are"
        reasons.append(f"{samples} too few for an FPR of {demand.fpr_max:.4g}")
    return " and ".join(reasons) or (
        f"a TPR of {demand.tpr_min:.4g} needs {k:.6g} of {n_id:.6g} ID samples "
        f"accepted, an FPR of {demand.fpr_max:.4g} allows {K:.6g} of {n_ood:.6g} OOD "
        f"samples, and no "
        f"threshold does both"
    )


def _refusal(rule, problem, second, thetas, demand, fractions):
    """Return the error with the reason and the number of samples needed.

    `fractions` are the fractions of ID and OOD samples outside the certifying part
    `second`.
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
    sizes, sums = (problem.size_id, problem.size_ood), (problem.n_id, problem.n_ood)
    if needed is not None:
        n_id, n_ood = (
            max(size, math.ceil(n / (1 - fraction) * (size / total if total else 1)))
            for n, fraction, size, total in zip(
                needed, fractions, sizes, sums, strict=True
            )
        )
        needed = n_id, n_ood if bounded else problem.size_ood
    return NotCertifiableError(
        f"{as_requested(rule)} is not certified by {problem.size_id} ID and "
        f"{problem.size_ood} OOD samples: "
        f"{_reasons(demand, second.n_id, second.n_ood)}.",
        *(needed or (None, None)),
    )


def _rule_certificate(bounds, point, problem, demand, certificate):
    """Return the certificate of a point with bounds that follow from TPR and FPR."""
    pvalues = math.nan, math.nan
    if certificate.method != "expectation":
        pvalues = demand.pvalues(problem.n_id, problem.n_ood)
    counts = Counts(point.tpr, point.tpr * point.risk, 0.0, 0, point.fpr, 1, 1)
    statements = []
    for test in tests_of(bounds, None, None, True, certificate.max_loss):
        needed = test.needs_id, test.needs_ood
        p = [p for p, is_needed in zip(pvalues, needed, strict=True) if is_needed]
        statements.append(statement_of(test, counts, max(p)))
    return RuleCertificate(
        certificate.delta,
        tuple(statements),
        problem.size_id,
        problem.size_ood,
        n_candidates=demand.n_angles,
        n_certified=1,
        weight_max=None if problem.weight is None else certificate.shift.weight_max,
    )


def certify_nested(rules, bounds, samples, certificate, solver, rng):
    """Return the best rule between thresholds that bound TPR and FPR, or raise.

    `rules` are a rule at one or two priors, and `bounds` their statements.
    """
    rule, method, delta = rules[-1], certificate.method, certificate.delta
    # bounds are linear in the prior: they hold in between if they hold at both ends
    tpr_min, fpr_max = zip(*map(_implied_bounds, rules), strict=True)
    rates = max(tpr_min), min(fpr_max)
    problem = Problem(samples)
    fractions = (0.0, 0.0)
    if not problem.double:
        second, thetas = problem, np.zeros(1)
        largest = _largest_weights(samples, problem, certificate.shift)
        demand = _demand(method, delta, 1, *rates, largest)
    elif method == "ltt":
        fractions = (_FOR_SCALES, 0.0)
        first, second = map(Problem, samples.split(fractions, rng))
        second.set_scales(*first.scales)
        thetas = grid_of_angles(solver.angles, solver.n_angles or _N_ANGLES)
        demand = _demand(method, delta, len(thetas), *rates)
    else:
        fractions = (certificate.split, certificate.split)
        first, second = map(Problem, samples.split(certificate.split, rng))
        demand = _demand(method, delta, 1, *rates)
        point = _choose_angle(rule, first, second, demand, solver)
        second.set_scales(*point.scales)
        thetas = np.array([point.theta])
    k, K = demand.rank(second.n_id), demand.count(second.n_ood)
    cost = rule.cost()
    if cost is not None:
        cost = cost.in_counts(second.n_id, second.n_ood)
    # Where scores are dense, ties that were merged may not stay together at an angle.
    for sample in (second.with_merged_ties(), second):
        if k is None or K < 0:
            break
        bounds_on_counts = Linear(id=-1.0, constant=k), Linear(ood=1.0, constant=-K)
        best = grid_search(sample, Goal(cost, bounds_on_counts), thetas)[0]
        if best is None:
            break
        point = sample.describe(rule, best)
        if point is not None:
            warn_of_reversed(point)
            about = _rule_certificate(bounds, point, sample, demand, certificate)
            gap = math.nan if problem.double else 0.0
            return replace(point, certificate=about, gap=gap)
    raise _refusal(rule, problem, second, thetas, demand, fractions)


def _largest_weights(samples, problem, shift):
    """Return the largest weights of ID and OOD samples in the units of a problem."""
    return tuple(
        None
        if weight is None or not weight.size
        else shift.weight_max * n / weight.sum()
        for weight, n in zip(
            samples.by_kind("weight"), (problem.n_id, problem.n_ood), strict=True
        )
    )

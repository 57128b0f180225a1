"""Certified bounds on TPR and FPR alone: all thresholds of an interval at once."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from skood.decision._angle_search import grid_search
from skood.decision._base_rule import BaseRule, Linear, as_asked, is_floor
from skood.decision._calibration_sample import Problem
from skood.decision._certified_path import RuleCertificate, statement_of
from skood.decision._objective import Goal
from skood.decision._options import certified_delta
from skood.decision._scored_samples import Counts
from skood.decision._solver import (
    grid_of_angles,
    search_problem,
    warn_of_reversed,
)
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

# Share of ID samples that only set the scales, if all others certify many angles.
_FOR_SCALES = 0.1

# Margins of the choice of the angle, for the difference between two samples, in
# standard deviations: with enough data, for one in 20 per bound, else less.
_CAUTION = (1.645, 0.8, 0.0)


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
        share = delta / n_angles / max(1, n_bounds)
        rank = partial(min_accepted_id, tpr_min=tpr_min, delta=share)
        count = partial(max_accepted_ood, fpr_max=fpr_max, delta=share)
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
        leak = 1.0
        if bounded:
            leak = fpr - caution * _deviation(fpr, first.n_ood, second.n_ood)
        target = _Tightened(rule, min(1.0, coverage), max(0.0, leak))
        with quiet():  # warned once, at the end
            point = search_problem(target, first, solver)
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
        f"a TPR of {demand.tpr_min:.4g} needs {k:.6g} of {n_id:.6g} ID samples "
        f"accepted, an FPR of {demand.fpr_max:.4g} allows {K:.6g} of {n_ood:.6g} OOD "
        f"samples, and no "
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
    sizes, sums = (problem.size_id, problem.size_ood), (problem.n_id, problem.n_ood)
    if needed is not None:
        n_id, n_ood = (
            max(size, math.ceil(n / (1 - share) * (size / total if total else 1)))
            for n, share, size, total in zip(needed, shares, sizes, sums, strict=True)
        )
        needed = n_id, n_ood if bounded else problem.size_ood
    return NotCertifiableError(
        f"{as_asked(rule)} is not certified by {problem.size_id} ID and "
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
        certified_delta(certificate),
        tuple(statements),
        problem.size_id,
        problem.size_ood,
        n_candidates=demand.n_angles,
        n_certified=1,
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
    shares = (0.0, 0.0)
    if not problem.double:
        second, thetas = problem, np.zeros(1)
        largest = _largest_weights(samples, problem, certificate.shift)
        demand = _demand(method, delta, 1, *rates, largest)
    elif method == "ltt":
        shares = (_FOR_SCALES, 0.0)
        first, second = map(Problem, samples.split(shares, rng))
        second.set_scales(*first.scales)
        thetas = grid_of_angles(solver.angles, certificate.n_angles)
        demand = _demand(method, delta, len(thetas), *rates)
    else:
        shares = (certificate.split, certificate.split)
        first, second = map(Problem, samples.split(certificate.split, rng))
        demand = _demand(method, delta, 1, *rates)
        point = _choose_angle(rule, first, second, demand, solver)
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
            about = _rule_certificate(bounds, point, sample, demand, certificate)
            return replace(point, certificate=about)
    raise _refusal(rule, problem, second, thetas, demand, shares)


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

"""Certificates of all statements of a rule, by a path of candidate rules."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np

from skood.decision._base_rule import as_requested
from skood.decision._calibration_sample import Problem, scales_of
from skood.decision._certified_path import (
    RuleCertificate,
    ascending,
    best_order,
    by_answers,
    capped,
    factor_needed,
    plan,
    sequence,
    statement_of,
    upper_bound,
)
from skood.decision._distribution_shift import statement_tests
from skood.decision._group_thresholds import by_levels, named_thresholds
from skood.decision._operating_point import OperatingPoint, rates_of
from skood.decision._solver import grid_of_angles, search_problem
from skood.decision._statements import TestedSamples, tests_of, text_of
from skood.exceptions import NotCertifiableError
from skood.utils._warnings import quiet

_N_ANGLES = 24

# Of the samples that choose candidates, those that choose thresholds of one score.
_FOR_THRESHOLDS = 1 / 8

# Largest number of samples of each kind that an error names.
_MANY = 1e9

POOLED = "pooled"


def _least_size(bounds, max_loss, delta):
    """Return how many certifying ID samples a group needs, if all are accepted."""
    least = 0.0
    for test in tests_of(bounds, None, None, True, max_loss):
        if test.kind == "tpr_min" and 0 < test.limit < 1:
            least = max(least, math.log(delta) / math.log(test.limit))
        elif test.kind == "errors" and 0 < test.limit < 1:
            least = max(least, math.log(delta) / math.log(1 - test.limit))
    return math.ceil(least - 1e-9)


def without_small(samples, least, split, certificate):
    """Return samples with small groups pooled; the groups to certify, pooled, skipped.

    Each group needs `least` certifying samples, those without the fraction, or the
    mask, `split`.
    """
    delta, small_groups = certificate.delta, certificate.small_groups
    labels = samples.by_kind("group")[0]
    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if isinstance(split, np.ndarray):
        split = split[samples.indices[0]]
        certifying = np.bincount(codes, weights=~split, minlength=len(names))
        split = split.mean()
    else:
        certifying = counts - (split * counts).astype(int)
    small = {
        name: int(n)
        for name, n in zip(names.tolist(), certifying, strict=True)
        if n < least
    }
    if not small:
        return samples, names.tolist(), (), ()
    if small_groups == "raise" or (small_groups == "skip" and len(small) == len(names)):
        listed = ", ".join(f"{name!r} ({n})" for name, n in small.items())
        raise NotCertifiableError(
            f"These groups have fewer than {least} certifying samples, which each "
            f"group needs{'' if delta is None else f' at delta={delta:g}'}: {listed}. "
            f"Add samples, or set small_groups='pool' or 'skip'.",
            math.ceil(least / (1 - split)) * len(names),
            0,
        )
    others = [name for name in names.tolist() if name not in small]
    if small_groups == "skip":
        return samples, others, (), tuple(small)
    group = samples.group.astype(object)
    group[np.isin(samples.group, list(small))] = POOLED
    return replace(samples, group=group), [*others, POOLED], tuple(small), ()


def check_attainable(tests):
    """Raise if no number of samples certifies a statement."""
    for test in tests:
        kind = test.kind
        if kind == "tpr_min" and test.limit >= 1:
            reason = f"no number of ID samples certifies a TPR of {test.limit:.4g}"
        elif kind == "fpr_max" and test.limit <= 0:
            reason = "no number of OOD samples certifies an FPR of 0"
        elif kind in ("errors", "losses") and test.limit <= 0:
            reason = "no number of ID samples certifies a selective risk of 0"
        elif kind == "in_use" and test.limit >= 1:
            reason = "no number of samples certifies a precision of 1"
        else:
            continue
        raise NotCertifiableError(f"{reason[0].upper()}{reason[1:]}.")


def check_path_losses(samples, max_loss):
    """Raise if a loss is above `max_loss`, for statements about losses."""
    largest = samples.by_kind("loss")[0].max(initial=0.0)
    if largest > max_loss:
        raise ValueError(
            f"The rule bounds losses, and a guarantee needs their largest possible "
            f"value: max_loss={max_loss!r}, but a loss is {float(largest)!r}. Pass "
            f"a larger max_loss, or clip the losses."
        )


def certify_statements(rule, bounds, samples, unlabeled, certificate, solver, rng):
    """Return the rule of the last certified candidate, or raise NotCertifiableError.

    `bounds` are the statements of `rule`, functions of rates that must not be positive.
    """
    delta, max_loss, split = certificate.delta, certificate.max_loss, certificate.split
    by_group = certificate.thresholds == "group"
    together = certificate.sampling == "mixture"
    by_order, ascends, ood_max = together and not bounds, False, math.inf
    if together or any(map(attrgetter("loss"), bounds)):
        check_path_losses(samples, max_loss)
        single = samples.ood is None and not by_group
        by_fraction = not (together or isinstance(split, np.ndarray))
        cost = rule.cost() if by_fraction else None
        if single and cost is not None:  # and the largest coverage
            ascends = cost.id < 0 == cost.loss == cost.ood
    split = split * _FOR_THRESHOLDS if ascends else split
    sizes = (*samples.sizes, 0 if unlabeled is None else unlabeled.is_ood.size)
    groups, pooled, skipped = None, (), ()
    if samples.by_kind("group")[0] is not None:
        options = _least_size(bounds, max_loss, delta), split, certificate
        samples, groups, pooled, skipped = without_small(samples, *options)
    first, second = samples.split(split, rng, together=together)
    if not first.sizes[0]:
        text = "All samples that choose candidates are OOD."
        raise NotCertifiableError(text, factor=math.nan)
    new: tuple = (None, None)
    if unlabeled is not None:
        new = unlabeled.split(split, rng)
    source = samples.by_kind("source")[1]
    sources = None if source is None else np.unique(source).tolist()
    two_valued = bool(np.isin(first.by_kind("loss")[0], (0, max_loss)).all())
    how = two_valued, certificate, samples, unlabeled
    tests = statement_tests(rule, bounds, (groups, sources), *how)
    check_attainable(tests)
    about = described(second, new[1], certificate.shift, pooled, skipped)
    if not tests:
        with quiet():
            point = search_problem(rule, Problem(first), solver)
        return _certified_cost(rule, point, first, second, sources, certificate, about)
    thetas, scales = np.zeros(1), scales_of(first)
    if by_order:
        (answers,) = TestedSamples(tests, first).subsets
        theta, ood_max = best_order(answers, scales)
        first, second = (capped(part, ood_max) for part in (first, second))
    elif samples.ood is not None:
        thetas = grid_of_angles(solver.angles, _N_ANGLES)
    if by_group:
        first, second = by_levels(first, second, tests, thetas, scales, delta)
    chosen = TestedSamples(tests, first, new[0])
    tested = TestedSamples(tests, second, new[1])
    if by_order:
        path, weights = by_answers(chosen, theta, scales)
    elif ascends:
        path, weights = ascending(chosen, tested.sizes, scales, delta)
    else:
        path = plan(rule, chosen, thetas, scales, tested.sizes, delta)
        weights = (1.0,)
    candidates = path.candidates
    follows = ascends or by_order
    stakes_of = partial(_stakes, chosen, tested.sizes, candidates, delta, follows)
    passed, failed = sequence(tested, candidates, stakes_of, delta, weights=weights)
    if not passed:
        if by_order:  # no other candidate is ever a start
            path = path._replace(candidates=[candidates[k] for k in failed])
        raise _refusal(rule, sizes, tested, path, delta, weights, failed)
    last = max(passed)
    about |= {"n_candidates": len(candidates), "n_certified": len(passed)}
    certificate = RuleCertificate(delta, (), **about)
    point = certified(rule, tested, candidates[last], passed[last], certificate)
    point = replace(point, ood_max=ood_max)
    if by_group:
        lam = second.thresholds_at(point.theta, point.lam)
        point = replace(point, lam=named_thresholds(lam, POOLED, pooled, skipped))
    return point


def _stakes(chosen, sizes, candidates, delta, follows, k):
    """Return the stakes of a candidate's tests; None: no bets, or stakes that follow.

    If stakes may follow the samples before, they do.
    """
    tests = chosen.tests
    needs_none = follows and not any(map(attrgetter("needs_stakes"), tests))
    if needs_none or not any(map(attrgetter("bets"), tests)):
        return [None] * len(tests)
    theta, lam, scales = candidates[k]
    counts, _ = chosen.counts(theta, np.array([lam]), scales)
    return [
        test.stakes(_numbers(count), *size, delta)
        for test, count, size in zip(tests, counts, sizes, strict=True)
    ]


def described(second, unlabeled, shift, pooled=(), skipped=()):
    """Return fields of the certificate: the certifying samples and their shift."""
    n_id, n_ood = second.sizes
    return {
        "n_id": n_id,
        "n_ood": n_ood,
        "pooled": pooled,
        "not_certified": skipped,
        "n_unlabeled": 0 if unlabeled is None else unlabeled.is_ood.size,
        "weight_max": None if second.weight is None else float(shift.weight_max),
        "tv": shift.tv,
    }


def _numbers(counts):
    """Return counts at one threshold as numbers."""
    return type(counts)(*(np.ravel(count)[0] for count in counts))


def certified(rule, tested, candidate, pvalues, certificate):
    """Return the operating point of a certified candidate."""
    theta, lam, scales = candidate
    counts, everything = tested.counts(theta, np.array([lam]), scales)
    statements, in_use = [], []
    for test, count, p in zip(tested.tests, counts, pvalues, strict=True):
        statements.append(statement_of(test, _numbers(count), p))
        if test.kind == "in_use":
            in_use.append(statements[-1].estimate)
    N, E, *_, F, n_id, n_ood = everything
    rates = rates_of(rule, float(N[0]), float(E[0]), float(F[0]), n_id, n_ood)
    if in_use:  # not the precision at the prior of the rule
        rates = rates._replace(precision=min(in_use))
    certificate = replace(certificate, statements=tuple(statements))
    return OperatingPoint(
        theta, lam, scales=scales, rates=rates, certificate=certificate
    )


def _certified_cost(rule, point, first, second, sources, certificate, about):
    """Return the best rule on the first samples, with an upper bound on its cost."""
    delta, max_loss = certificate.delta, certificate.max_loss
    cost = rule.cost()
    if point.lam_low is not None or point.tau != 1:
        point = replace(point, tau=float(point.lam > -math.inf), lam_low=None)
    candidate = point.theta, point.lam, point.scales
    certificate = RuleCertificate(delta, (), n_candidates=1, n_certified=1, **about)
    tests: list = []
    if cost is not None:
        if cost.loss:
            check_path_losses(first + second, max_loss)
        tests = tests_of([cost], None, sources, True, max_loss)
        a, b, c, d = cost
        ends = (
            d + min(a, 0.0) + min(c, 0.0),
            d + max(a + max(b, 0.0) * max_loss, 0.0) + max(c, 0.0),
        )
    chosen, tested = TestedSamples(tests, first), TestedSamples(tests, second)
    counts, _ = chosen.counts(point.theta, np.array([point.lam]), point.scales)
    for k, test in enumerate(tests):
        stakes = test.stakes(_numbers(counts[k]), *tested.sizes[k], delta)
        samples = tested.subsets[k]
        accepted = samples.project(point.theta, point.scales) <= point.lam
        high = upper_bound(test, samples, accepted, stakes, ends, delta)
        tested.tests[k] = test._replace(bound=cost._replace(constant=d - high))
    return certified(rule, tested, candidate, [delta] * len(tests), certificate)


def _refusal(rule, sizes, tested, path, delta, weights, failed):
    """Return the error with the statement that failed and the samples needed.

    `sizes` are the numbers of all ID, OOD and unlabeled samples, and `failed` has the
    p-values of the candidates that were tested.
    """
    tests, n = tested.tests, tested.sizes
    if not failed:
        reason = _too_few(tests, path.counts, n, delta)
    else:
        k = min(failed)
        p, fraction = failed[k][-1], "" if weights[k] == 1 else f"{weights[k]:g} * "
        reason = (
            f"{text_of(tests[len(failed[k]) - 1])} has a p-value of {p:.3g} for the "
            f"safest rule, which is above {fraction}delta={delta:g}"
        )
    n_id, n_ood, n_new = sizes
    options = delta * max(weights), _MANY / max(sizes)
    factor = planned = factor_needed(tests, path.counts, n, *options)
    if failed:
        thresholds: dict = {}
        for theta, lam, scales in path.candidates:
            thresholds.setdefault((theta, scales), []).append(lam)
        counts = [
            tested.counts(theta, np.array(lam), scales)[0]
            for (theta, scales), lam in thresholds.items()
        ]
        factor = factor_needed(tests, counts, n, *options)
    if factor == 1 or (factor is None and planned is not None):
        factor = math.nan
    needed: tuple = (None, None, factor)
    if factor is not None and factor > 1:
        needed = math.ceil(factor * n_id), math.ceil(factor * n_ood), factor
        if n_new:
            reason += (
                f". About {math.ceil(factor * n_new)} unlabeled samples are needed"
            )
    samples = f"{n_id} ID and {n_ood} OOD samples"
    if n_new:
        samples = f"{n_id} ID, {n_ood} OOD and {n_new} unlabeled samples"
    return NotCertifiableError(
        f"{as_requested(rule)} is not certified by {samples}: {reason}.", *needed
    )


def _too_few(tests, counts_of_angles, sizes, delta):
    """Return the statements that no count of the certifying samples certifies."""
    reasons = []
    for i, (test, size) in enumerate(zip(tests, sizes, strict=True)):
        margins = (test.margin(counts[i], *size, delta) for counts in counts_of_angles)
        if max(margin.max() for margin in margins) > -math.inf:
            continue
        kinds = ("", "") if getattr(test, "of_mixture", False) else ("ID ", "OOD ")
        by_kind = zip(kinds, size, (test.needs_id, test.needs_ood), strict=True)
        samples = [
            f"1 {kind}sample" if n == 1 else f"{n} {kind}samples"
            for kind, n, is_needed in by_kind
            if is_needed
        ]
        verb = "is" if len(samples) == 1 and samples[0].startswith("1 ") else "are"
        reasons.append(f"{' and '.join(samples)} {verb} too few for {text_of(test)}")
    return " and ".join(reasons[:3]) or "no rule meets all statements with a margin"

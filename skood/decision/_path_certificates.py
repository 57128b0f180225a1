"""Certificates of all statements of a rule, by a path of candidate rules."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import replace

import numpy as np

from skood.decision._base_rule import as_asked
from skood.decision._calibration_sample import Problem
from skood.decision._certified_path import (
    RuleCertificate,
    ascending,
    factor_needed,
    plan,
    sequence,
    statement_of,
    upper_bound,
)
from skood.decision._distribution_shift import statement_tests
from skood.decision._group_thresholds import by_levels, named_thresholds
from skood.decision._operating_point import OperatingPoint
from skood.decision._solver import grid_of_angles, search_problem
from skood.decision._statements import Part, tests_of, text_of
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


def without_small(labels, least, split, delta, small_groups):
    """Return the groups to certify, the pooled and the skipped groups.

    Each group needs `least` certifying samples; `delta` is for the message, or None.
    """
    if labels is None:
        return None, (), ()
    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if isinstance(split, np.ndarray):
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
        return names.tolist(), (), ()
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
        return others, (), tuple(small)
    return [*others, POOLED], tuple(small), ()


def pooled_labels(labels, names):
    """Return labels after some names are replaced by one."""
    found = labels.astype(object)
    found[np.isin(labels, list(names))] = POOLED
    return found


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


def check_path_losses(bounds, loss, max_loss):
    """Raise if a statement is about losses, and one is above `max_loss`."""
    if any(bound.loss for bound in bounds) and loss.max(initial=0.0) > max_loss:
        raise ValueError(
            f"The rule bounds losses, and a guarantee needs their largest possible "
            f"value: max_loss={max_loss!r}, but a loss is {float(loss.max())!r}. Pass "
            f"a larger max_loss, or clip the losses."
        )


def _is_two_valued(loss, max_loss):
    return bool(np.all((loss == 0) | (loss == max_loss)))


def certify_statements(rule, bounds, whole, certificate, solver, rng):
    """Return the rule of the last certified candidate, or raise NotCertifiableError.

    `bounds` are the statements of `rule`, functions of rates that must not be positive,
    and `whole` has all samples, a `Part`.
    """
    delta, max_loss = certificate.delta, certificate.max_loss
    split, by_group = certificate.split, certificate.thresholds == "group"
    check_path_losses(bounds, whole.loss, max_loss)
    ascends = (
        not by_group
        and whole.samples.ood is None
        and not isinstance(split, np.ndarray)
        and any(bound.loss for bound in bounds)
        and _is_coverage(rule.cost())
    )
    split = split * _FOR_THRESHOLDS if ascends else split
    least = _least_size(bounds, max_loss, delta)
    of_id = split[whole.samples.indices[0]] if isinstance(split, np.ndarray) else split
    options = least, of_id, delta, certificate.small_groups
    groups, pooled, skipped = without_small(whole.group, *options)
    if pooled:
        group = pooled_labels(whole.samples.group, pooled)
        whole = Part(replace(whole.samples, group=group), whole.new)
    first, second = whole.split(split, rng)
    chooser = Problem(first.samples)
    sources = None if whole.source is None else np.unique(whole.source).tolist()
    two_valued = _is_two_valued(first.loss, max_loss)
    how = two_valued, certificate, whole
    tests = statement_tests(rule, bounds, groups, sources, *how)
    check_attainable(tests)
    about = _about(whole, second, certificate, pooled=pooled, not_certified=skipped)
    if not tests:
        with quiet():
            found = search_problem(rule, chooser, solver)
        return _certified_cost(
            rule, found, first, second, sources, delta, max_loss, about
        )
    thetas = grid_of_angles(solver.angles, _N_ANGLES) if chooser.double else np.zeros(1)
    scales, sizes = chooser.scales, [second.sizes(test) for test in tests]
    if by_group:
        first, second = by_levels(first, second, tests, thetas, scales, delta)
    if ascends:
        path, weights = ascending(first, tests, sizes, scales, delta)
    else:
        path, weights = plan(rule, first, tests, thetas, scales, sizes, delta), (1.0,)
    candidates = [
        (float(theta), float(lam), scales)
        for theta, lam in zip(path.theta, path.lam, strict=True)
    ]

    def stakes_of(k):
        needs_none = not any(test.needs_stakes for test in tests) and ascends
        if needs_none or not any(test.bets for test in tests):
            return [None] * len(tests)
        theta, lam, _ = candidates[k]
        counts = first.counts(tests, theta, scales, np.array([lam]))
        return [
            test.stakes(_numbers(count), *size, delta)
            for test, count, size in zip(tests, counts, sizes, strict=True)
        ]

    found, failed = sequence(
        second, tests, candidates, stakes_of, delta, weights=weights
    )
    if not found:
        about_tests = tests, path, sizes, delta, weights
        counts = [
            second.counts(tests, theta, scales, np.array([lam]))
            for theta, lam, _ in candidates
        ]
        raise _refusal(rule, whole, *about_tests, failed, counts)
    last = max(found)
    about = {**about, "n_candidates": len(candidates), "n_certified": len(found)}
    certificate = RuleCertificate(delta, (), **about)
    point = certified(rule, second, tests, candidates[last], found[last], certificate)
    if by_group:
        lam = named_thresholds(point.lam, POOLED, pooled, skipped)
        point = replace(point, lam=lam)
    return point


def _is_coverage(cost):
    """Return whether an objective is the largest coverage."""
    return cost is not None and cost.id < 0 == cost.loss == cost.ood


def _about(whole, second, certificate, **names):
    """Return fields of the certificate: the certifying samples and their shift."""
    shift, is_weighted = certificate.shift, whole.samples.weight is not None
    weight_max = float(shift.weight_max) if is_weighted else None
    found = {"n_id": len(second.loss), "n_ood": len(second.ood[0]), **names}
    if second.new is not None:
        found["n_unlabeled"] = len(second.new[0])
    return {**found, "weight_max": weight_max, "tv": shift.tv}


def _numbers(counts):
    """Return counts at one threshold as numbers."""
    return type(counts)(*(np.ravel(count)[0] for count in counts))


def certified(rule, part, tests, candidate, pvalues, certificate):
    """Return the operating point of a certified candidate."""
    theta, lam, scales = candidate
    counts = part.counts(tests, theta, scales, np.array([lam]))
    statements = tuple(
        statement_of(test, _numbers(count), p)
        for test, count, p in zip(tests, counts, pvalues, strict=True)
    )
    certificate = replace(certificate, statements=statements)
    lam = part.lam_of(theta, lam)
    point = OperatingPoint(theta, lam, scales=scales, certificate=certificate)
    groups = part.group, part.group_ood
    point = Problem(part.samples).evaluated(rule, point, groups)
    in_use = [
        one.estimate
        for one, test in zip(statements, tests, strict=True)
        if test.kind == "in_use"
    ]
    if in_use:  # not the precision at the prior of the rule
        rates = point.rates._replace(precision=min(in_use))
        point = replace(point, rates=rates)
    return point


def _certified_cost(rule, found, first, second, sources, delta, max_loss, about):
    """Return the best rule on the first part, with an upper bound on its cost."""
    if found.lam_low is not None or found.tau != 1:
        found = replace(found, tau=float(found.lam > -math.inf), lam_low=None)
    candidate = found.theta, found.lam, found.scales
    certificate = RuleCertificate(delta, (), n_candidates=1, n_certified=1, **about)
    cost = rule.cost()
    if cost is None:
        return certified(rule, second, [], candidate, [], certificate)
    check_path_losses([cost], np.append(first.loss, second.loss), max_loss)
    tests = tests_of([cost], None, sources, True, max_loss)
    decisions = second.decided(found.theta, found.lam, found.scales)
    a, b, c, d = cost
    least = d + min(a, 0.0) + min(c, 0.0)
    most = d + max(a + max(b, 0.0) * max_loss, 0.0) + max(c, 0.0)
    bounded = []
    for test in tests:
        count = first.counts([test], found.theta, found.scales, np.array([found.lam]))
        stakes = test.stakes(_numbers(count[0]), *second.sizes(test), delta)
        rows = second.of_test(test, *decisions)
        high = upper_bound(test, rows, stakes, (least, most), delta)
        bounded.append(test._replace(bound=cost._replace(constant=d - high)))
    return certified(
        rule, second, bounded, candidate, [delta] * len(bounded), certificate
    )


def _refusal(rule, whole, tests, path, sizes, delta, weights, failed, counts):
    """Return the error with the statement that failed and the samples needed.

    `failed` has the p-values of the candidates that were tested, and `counts` are those
    of all candidates on the samples that test.
    """
    if not failed:
        reason = _too_few(tests, path.counts, sizes, delta)
    else:
        k = min(failed)
        p, share = failed[k][-1], "" if weights[k] == 1 else f"{weights[k]:g} * "
        reason = (
            f"{text_of(tests[len(failed[k]) - 1])} has a p-value of {p:.3g} for the "
            f"safest rule, which is above {share}delta={delta:g}"
        )
    n_id, n_ood = whole.samples.sizes
    n_new = 0 if whole.new is None else len(whole.new[0])
    most = _MANY / max(n_id, n_ood, n_new)
    about = sizes, delta, most
    factor = planned = factor_needed(tests, path.counts, *about)
    if failed:
        factor = factor_needed(tests, counts, *about)
    if factor == 1 or (factor is None and planned is not None):
        factor = math.nan
    needed: tuple = (None, None, factor)
    if factor is not None and factor > 1:
        needed = math.ceil(factor * n_id), math.ceil(factor * n_ood), factor
        if n_new:
            reason += (
                f". About {math.ceil(factor * n_new)} unlabeled samples are needed"
            )
    given = f"{n_id} ID and {n_ood} OOD samples"
    if n_new:
        given = f"{n_id} ID, {n_ood} OOD and {n_new} unlabeled samples"
    return NotCertifiableError(
        f"{as_asked(rule)} is not certified by {given}: {reason}.", *needed
    )


def _too_few(tests, counts_of_angles, sizes, delta):
    """Return the statements that no count of the certifying samples certifies."""
    found = []
    for i, (test, size) in enumerate(zip(tests, sizes, strict=True)):
        margins = (test.margin(one[i], *size, delta) for one in counts_of_angles)
        if max(margin.max() for margin in margins) > -math.inf:
            continue
        by_kind = zip(("ID", "OOD"), size, (test.needs_id, test.needs_ood), strict=True)
        samples = [
            f"1 {kind} sample" if n == 1 else f"{n} {kind} samples"
            for kind, n, is_needed in by_kind
            if is_needed
        ]
        verb = "is" if len(samples) == 1 and samples[0].startswith("1 ") else "are"
        found.append(f"{' and '.join(samples)} {verb} too few for {text_of(test)}")
    return " and ".join(found[:3]) or "no rule meets all statements with a margin"

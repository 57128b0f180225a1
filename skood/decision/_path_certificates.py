"""Certificates of all statements of a rule, by a path of candidate rules."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.utils.validation import column_or_1d

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
from skood.decision._distribution_shift import NO_SHIFT, statement_tests
from skood.decision._group_thresholds import by_levels, named_thresholds
from skood.decision._operating_point import OperatingPoint
from skood.decision._solver import grid_of_angles, search
from skood.decision._statements import Part, tests_of, text_of
from skood.exceptions import NotCertifiableError
from skood.utils._warnings import quiet

_N_ANGLES = 24

# Of the samples that choose candidates, those that choose thresholds of one score.
_FOR_THRESHOLDS = 1 / 8

# Largest number of samples of each kind that an error names.
_MANY = 1e9

POOLED = "pooled"


class Labels(NamedTuple):
    """Groups of ID samples, sources and groups of OOD samples, as arrays or None."""

    group: np.ndarray | None = None
    source: np.ndarray | None = None
    group_ood: np.ndarray | None = None


def check_labels(problem, group_id, source_ood, group_ood=None):
    """Return checked labels of the samples of a problem."""
    found: list = []
    for labels, name, n in (
        (group_id, "group_id", problem.size_id),
        (source_ood, "source_ood", problem.size_ood),
        (group_ood, "group_ood", problem.size_ood),
    ):
        if labels is None:
            found.append(None)
            continue
        labels = column_or_1d(labels)
        if len(labels) != n:
            kind = "ID" if name == "group_id" else "OOD"
            raise ValueError(
                f"{name} must have one label per {kind} sample, got {len(labels)} for "
                f"{n} samples."
            )
        if any(label is None or label != label for label in labels.tolist()):
            raise ValueError(
                f"{name} contains missing labels; leave these samples out, or give "
                f"them a label of their own."
            )
        found.append(labels)
    return Labels(*found)


def _first_rows(labels, n, split, rng):
    """Return the rows that choose, and those that certify in random order.

    The split is random within each label and within nothing else: the certifying
    samples of a label are a sample of it given the others. `split` is the share of
    the first, or a mask of them.
    """
    order = rng.permutation(n)
    if isinstance(split, np.ndarray):
        return order[split[order]], order[~split[order]]
    if labels is None:
        size = max(1, int(split * n)) if n else 0
        return order[:size], order[size:]
    first = np.zeros(n, dtype=bool)
    for label in set(labels.tolist()):
        rows = order[labels[order] == label]
        first[rows[: int(split * len(rows))]] = True
    return order[first[order]], order[~first[order]]


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
    """Return labels, the groups to certify, the pooled and the skipped groups.

    Each group needs `least` certifying samples; `delta` is for the message, or None.
    """
    if labels is None:
        return None, None, (), ()
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
        return labels, names.tolist(), (), ()
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
        return labels, others, (), tuple(small)
    return _pooled(labels, small), [*others, POOLED], tuple(small), ()


def _pooled(labels, names):
    """Return labels after some names are replaced by one; None stays None."""
    if labels is None or not names:
        return labels
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


def part_of(problem, labels, shift=NO_SHIFT):
    return Part(
        problem.risk_id,
        problem.ood_id,
        problem.loss_id,
        problem.risk_ood,
        problem.ood_ood,
        labels.group,
        labels.source,
        shift.weights,
        shift.new,
        labels.group_ood,
    )


def _problem_of(part):
    (risk_id, ood_id), (risk_ood, ood_ood) = part.id, part.ood
    weights = (w if w is not None and w.size else None for w in part.weights)
    return Problem(risk_id, ood_id, part.loss, risk_ood, ood_ood, *weights)


def _is_two_valued(loss, max_loss):
    return bool(np.all((loss == 0) | (loss == max_loss)))


def _parts(problem, labels, shift, splits, rng):
    """Return the samples that choose, and the others, which certify."""
    part = part_of(problem, labels, shift)
    rows = [
        _first_rows(labels.group, problem.size_id, splits[0], rng),
        _first_rows(labels.source, problem.size_ood, splits[1], rng),
    ]
    if shift.new is not None:
        rows.append(_first_rows(None, len(shift.new[0]), splits[0], rng))
    return (part.take(*some) for some in zip(*rows, strict=True))


def certify_statements(
    rule,
    bounds,
    problem,
    labels,
    shift,
    *,
    delta,
    split,
    max_loss,
    small_groups,
    solver,
    angles,
    rng,
    thresholds="shared",
):
    """Return the rule of the last certified candidate, or raise NotCertifiableError.

    `bounds` are the statements of `rule`, functions of rates that must not be positive,
    and `shift` is the `Shift` of the distributions in use.
    """
    check_path_losses(bounds, problem.loss_id, max_loss)
    ascends = (
        thresholds == "shared"
        and not problem.double
        and not isinstance(split, tuple)
        and any(bound.loss for bound in bounds)
        and _is_coverage(rule.cost())
    )
    split = split * _FOR_THRESHOLDS if ascends else split
    splits = split if isinstance(split, tuple) else (split, split)
    least = _least_size(bounds, max_loss, delta)
    options = least, splits[0], delta, small_groups
    group, groups, pooled, skipped = without_small(labels.group, *options)
    labels = Labels(group, labels.source, _pooled(labels.group_ood, pooled))
    first, second = _parts(problem, labels, shift, splits, rng)
    chooser = _problem_of(first)
    sources = None if labels.source is None else np.unique(labels.source).tolist()
    two_valued = _is_two_valued(first.loss, max_loss)
    how = two_valued, max_loss, shift
    tests = statement_tests(rule, bounds, groups, sources, *how)
    check_attainable(tests)
    about = _about(second, shift, pooled=pooled, not_certified=skipped)
    if not tests:
        rows = *first.id, first.loss, *first.ood
        with quiet():
            found = search(rule, *rows, solver=solver, angles=angles)
        return _certified_cost(
            rule, found, first, second, sources, delta, max_loss, about
        )
    thetas = grid_of_angles(angles, _N_ANGLES) if problem.double else np.zeros(1)
    scales, sizes = chooser.scales, [second.sizes(test) for test in tests]
    if thresholds == "group":
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
        raise _refusal(rule, problem, shift, *about_tests, failed, counts)
    last = max(found)
    about = {**about, "n_candidates": len(candidates), "n_certified": len(found)}
    certificate = RuleCertificate(delta, (), **about)
    point = certified(rule, second, tests, candidates[last], found[last], certificate)
    if thresholds == "group":
        lam = named_thresholds(point.lam, POOLED, pooled, skipped)
        point = replace(point, lam=lam)
    return point


def _is_coverage(cost):
    """Return whether an objective is the largest coverage."""
    return cost is not None and cost.id < 0 == cost.loss == cost.ood


def _about(second, shift, **names):
    """Return fields of the certificate: the certifying samples and their shift."""
    found = {"n_id": len(second.loss), "n_ood": len(second.ood[0]), **names}
    if second.new is not None:
        found["n_unlabeled"] = len(second.new[0])
    return {**found, "weight_max": shift.weight_max, "tv": shift.tv}


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
    point = _problem_of(part).evaluated(rule, point, groups)
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


def _refusal(rule, problem, shift, tests, path, sizes, delta, weights, failed, counts):
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
    n_id, n_ood = problem.size_id, problem.size_ood
    n_new = 0 if shift.new is None else len(shift.new[0])
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

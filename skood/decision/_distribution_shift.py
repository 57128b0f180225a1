"""Descriptions of distributions in use that differ from the ones of the samples.

Weights of the samples describe another distribution, unlabeled samples a mixture of ID
and OOD samples, and bounds may have a margin for a distance in total variation.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import replace

import numpy as np

from skood.decision._operating_point import check_pair
from skood.decision._shifted_statements import PrecisionInUse, WeightedTest
from skood.decision._statements import tests_of

_NAMES = "weight_id", "weight_ood"


def with_margin(bound, tv, max_loss):
    """Return a bound that implies the given one within a total variation distance.

    The mean of a function differs by at most the distance times its range, for ID and
    for OOD samples.
    """
    a, b, c, d = bound
    gains = 0.0, a, a + b * max_loss
    return bound._replace(constant=d + tv * (max(gains) - min(gains) + abs(c)))


def _check_unlabeled(unlabeled, double):
    """Return the checked pair of scores of unlabeled samples, or None."""
    if unlabeled is None:
        return None
    if not isinstance(unlabeled, (tuple, list)) or len(unlabeled) != 2:
        raise ValueError(
            f"unlabeled must be a pair of scores (risk, ood); ood is None for one "
            f"score, got {unlabeled!r:.80}."
        )
    risk, ood = unlabeled
    names = "unlabeled[0]", "unlabeled[1]"
    pair = check_pair(risk, ood, names, double)
    if pair[1] is not None and not double:
        raise ValueError(
            "unlabeled has two scores although ood_id is None; pass (risk, None)."
        )
    if not pair[0].size:
        raise ValueError("unlabeled has no samples; leave it out, or pass some.")
    return pair


def _precisions(rule, sources):
    """Return the tests of the precision in use, and the other bounds of a rule."""
    name = type(rule).__name__
    if rule.ood_prior is None:
        raise ValueError(
            f"unlabeled is for bounds on the precision, such as of "
            f"BoundedPrecisionRecall; {name} has none. Leave it out."
        )
    # the bound on a precision kappa is (1 - kappa) t >= kappa f at a prior of 1/2
    others, limits = [], []
    fixed = rule._at_prior(0.25).statements()
    for bound in rule._at_prior(0.5).statements():
        if bound in fixed:
            others.append(bound)
        elif bound.loss == bound.constant == 0 and bound.id <= 0 < bound.ood:
            limits.append(bound.ood / (bound.ood - bound.id))
        else:
            raise ValueError(
                f"unlabeled is for bounds on the precision, and {name} has another one "
                f"that depends on ood_prior. Pass ood_prior=(low, high) for it."
            )
    tests = [
        PrecisionInUse(limit, source)
        for limit in dict.fromkeys(limits)
        for source in sources or [None]
    ]
    return tests, others


def statement_tests(rule, bounds, groups, sources, two_valued, certificate, part):
    """Return the tests of all statements of a rule about the distributions in use."""
    shift = certificate.shift
    is_weighted = any(weight is not None for weight in part.weights)
    is_shifted = is_weighted or shift.tv > 0 or part.new is not None
    in_use: list = []
    if part.new is not None:
        in_use, bounds = _precisions(rule, sources)
    tests: list = tests_of(bounds, groups, sources, two_valued, certificate.max_loss)
    if is_shifted and not (tests or in_use):
        raise ValueError(
            f"{type(rule).__name__} has no bounds, and its cost is bounded for the "
            f"distributions of the samples only. Leave weights, tv and unlabeled out."
        )
    if not is_weighted:
        return [*tests, *in_use]
    found = []
    for test in tests:
        if test.needs_id and test.needs_ood:
            raise ValueError(
                f"Weights are for bounds on ID or on OOD samples alone, since they are "
                f"relative within each kind, and {type(rule).__name__} has another "
                f"bound. Bound the TPR and the FPR instead."
            )
        weight = part.weights[int(test.needs_ood)]
        found.append(
            test if weight is None else WeightedTest(test, float(shift.weight_max))
        )
    return found


def shifted(samples, unlabeled, shift):
    """Return samples and unlabeled scores that count, or raise.

    Samples are repeated by frequencies, which are no weights afterwards.
    """
    unlabeled = _check_unlabeled(unlabeled, samples.ood is not None)
    if samples.weight is None:
        return samples, unlabeled
    pairs = [
        (weight, name)
        for weight, name in zip(samples.by_kind("weight"), _NAMES, strict=True)
        if weight is not None
    ]
    if shift.weights == "frequency":
        for weight, name in pairs:
            _check_whole(weight, name)
        counts = np.where(np.isnan(samples.weight), 1, samples.weight).astype(np.intp)
        indices = np.repeat(np.arange(counts.size), counts)
        return replace(samples, weight=None).take(indices), unlabeled
    if unlabeled is not None:
        raise ValueError(
            "Weights and unlabeled samples cannot be combined: the precision in use is "
            "bounded for ID samples in use that are distributed as the given ones."
        )
    if shift.weight_max is None:
        raise ValueError(
            "weight_max must be given with importance weights: the largest possible "
            "weight, fixed before the samples are seen; clip weights to it. Counts of "
            "independent observations are weights='frequency'."
        )
    for weight, name in pairs:
        if weight.max(initial=0.0) > shift.weight_max:
            raise ValueError(
                f"{name} has a weight of {weight.max():g}, above weight_max="
                f"{shift.weight_max:g}. Clip the weights, or pass a larger weight_max, "
                f"fixed beforehand."
            )
    return samples, unlabeled


def _check_whole(weight, name):
    wrong = weight != np.rint(weight)
    if wrong.any():
        raise ValueError(
            f"weights='frequency' needs whole numbers in {name}, how often "
            f"samples were observed, got {weight[wrong][0]:g}. Weights of the "
            f"distribution in use are weights='importance'."
        )


def check_guarantee(rule, samples, unlabeled, certificate, own):
    """Raise unless a guarantee covers groups, sources and a shift.

    `own` is whether the rule has thresholds of its own.
    """
    tv, method = certificate.shift.tv, certificate.method
    needs_path = tv > 0 or unlabeled is not None
    if own and samples.source is not None:
        raise ValueError(
            f"{type(rule).__name__} bounds no rate of OOD samples, for which sources "
            "are: leave source_ood (ood_source of fit) out."
        )
    if not own:
        needs_path |= samples.group is not None or samples.source is not None
    if needs_path and (own or method != "high_probability"):
        raise ValueError(
            f"group_id, source_ood, unlabeled and tv are for "
            f"guarantee='high_probability' and rules with linear bounds, got "
            f"guarantee={method!r} and {type(rule).__name__}."
        )
    is_simple = method == "expectation" and samples.ood is None
    if samples.weight is not None and (
        own or not (method == "high_probability" or is_simple)
    ):
        raise ValueError(
            f"Importance weights are for guarantee='high_probability', and "
            f"'expectation' with one score, and rules with linear bounds; got "
            f"guarantee={method!r} and {type(rule).__name__}."
        )
    if unlabeled is not None and (samples.group is not None or tv > 0):
        raise ValueError(
            "unlabeled cannot be combined with group_id or tv: the ID samples in use "
            "must be distributed as all given ones."
        )

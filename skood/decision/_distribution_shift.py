"""Descriptions of distributions in use that differ from the ones of the samples.

Weights of the samples describe another distribution, unlabeled samples a mixture of ID
and OOD samples, and bounds may have a margin for a distance in total variation.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import Any, NamedTuple

import numpy as np

from skood.decision._calibration_sample import Problem
from skood.decision._operating_point import check_pair
from skood.decision._shifted_statements import PrecisionInUse, WeightedTest
from skood.decision._statements import tests_of
from skood.utils._weights import check_weight


class Shift(NamedTuple):
    """Description of the distributions in use.

    `weights` of ID and of OOD samples are arrays or None, and at most `weight_max`;
    `tv` is a total variation distance, and `new` has both scores of unlabeled samples.
    """

    weights: tuple[Any, Any] = (None, None)
    weight_max: float | None = None
    tv: float = 0.0
    new: tuple[Any, Any] | None = None

    @property
    def is_weighted(self):
        """Whether some samples have weights."""
        return any(weight is not None for weight in self.weights)

    @property
    def is_none(self):
        """Whether the samples are of the distributions in use."""
        return not self.is_weighted and self.tv == 0 and self.new is None

    def largest_of(self, problem):
        """Return the largest weights in the units of a problem, or None."""
        totals = problem.n_id, problem.n_ood
        return tuple(
            None if weight is None else self.weight_max * n / weight.sum()
            for weight, n in zip(self.weights, totals, strict=True)
        )


_NAMES = "sample_weight_id", "sample_weight_ood"

NO_SHIFT = Shift()


def with_margin(bound, tv, max_loss):
    """Return a bound that implies the given one within a total variation distance.

    The mean of a function differs by at most the distance times its range, for ID and
    for OOD samples.
    """
    a, b, c, d = bound
    gains = 0.0, a, a + b * max_loss
    return bound._replace(constant=d + tv * (max(gains) - min(gains) + abs(c)))


def _check_unlabeled(unlabeled, problem):
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
    pair = check_pair(risk, ood, names, problem.double)
    if pair[1] is not None and not problem.double:
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


def statement_tests(rule, bounds, groups, sources, two_valued, max_loss, shift):
    """Return the tests of all statements of a rule about the distributions in use."""
    in_use: list = []
    if shift.new is not None:
        in_use, bounds = _precisions(rule, sources)
    tests: list = tests_of(bounds, groups, sources, two_valued, max_loss)
    if not shift.is_none and not (tests or in_use):
        raise ValueError(
            f"{type(rule).__name__} has no bounds, and its cost is bounded for the "
            f"distributions of the samples only. Leave weights, tv and unlabeled out."
        )
    if not shift.is_weighted:
        return [*tests, *in_use]
    found = []
    for test in tests:
        if test.needs_id and test.needs_ood:
            raise ValueError(
                f"Weights are for bounds on ID or on OOD samples alone, since they are "
                f"relative within each kind, and {type(rule).__name__} has another "
                f"bound. Bound the TPR and the FPR instead."
            )
        weight = shift.weights[int(test.needs_ood)]
        found.append(test if weight is None else WeightedTest(test, shift.weight_max))
    return found


def _check_weights(weights, problem):
    """Return the checked weights of ID and of OOD samples; None: there are none."""
    sizes = problem.size_id, problem.size_ood
    return [
        check_weight(weight, size, name) if size else None
        for weight, size, name in zip(weights, sizes, _NAMES, strict=True)
    ]


def _rows(weight, n_samples):
    """Return the samples of positive weight."""
    return np.arange(n_samples) if weight is None else np.flatnonzero(weight > 0)


def _repeated(weight, n_samples, name):
    """Return samples repeated by their weights, which must be whole numbers."""
    rows = np.arange(n_samples)
    if weight is None:
        return rows
    wrong = weight != np.rint(weight)
    if wrong.any():
        raise ValueError(
            f"weights='frequency' needs whole numbers in {name}, how often "
            f"samples were observed, got {weight[wrong][0]:g}. Weights of the "
            f"distribution in use are weights='importance'."
        )
    return np.repeat(rows, weight.astype(np.intp))


def check_shift(problem, labels, given, kind, weight_max, tv, unlabeled):
    """Return the samples and labels that count, and the `Shift`.

    Samples are repeated by `given` frequencies; samples of weight 0 are left out.
    """
    sizes = problem.size_id, problem.size_ood
    weights = _check_weights(given, problem)
    shift = Shift(tv=tv, new=_check_unlabeled(unlabeled, problem))
    if all(weight is None for weight in weights):
        return problem, labels, shift
    if kind == "frequency":
        rows = list(map(_repeated, weights, sizes, _NAMES))
    else:
        rows = list(map(_rows, weights, sizes))
    labels = type(labels)(
        *(
            None if label is None else label[some]
            for label, some in zip(labels, (*rows, rows[1]), strict=True)
        )
    )
    problem = problem.take(*rows)
    if kind == "frequency":
        return problem, labels, shift
    if shift.new is not None:
        raise ValueError(
            "Weights and unlabeled samples cannot be combined: the precision in use is "
            "bounded for ID samples in use that are distributed as the given ones."
        )
    _check_largest(weights, weight_max)
    weights = [
        None if w is None else w[some] for w, some in zip(weights, rows, strict=True)
    ]
    of_id = problem.risk_id, problem.ood_id, problem.loss_id
    return (
        Problem(*of_id, problem.risk_ood, problem.ood_ood, *weights),
        labels,
        shift._replace(weights=tuple(weights), weight_max=float(weight_max)),
    )


def _check_largest(weights, weight_max):
    if weight_max is None:
        raise ValueError(
            "weight_max must be given with importance weights: the largest possible "
            "weight, fixed before the samples are seen; clip weights to it. Counts of "
            "independent observations are weights='frequency'."
        )
    for weight, name in zip(weights, _NAMES, strict=True):
        if weight is not None and weight.max() > weight_max:
            raise ValueError(
                f"{name} has a weight of {weight.max():g}, above weight_max="
                f"{weight_max:g}. Clip the weights, or pass a larger weight_max, "
                f"fixed beforehand."
            )


def check_guarantee(rule, guarantee, shift, labels, problem, own):
    """Raise unless a guarantee covers groups, sources and a shift.

    `own` is whether the rule has thresholds of its own.
    """
    needs_path = shift.tv > 0 or shift.new is not None
    if own and labels.source is not None:
        raise ValueError(
            f"{type(rule).__name__} bounds no rate of OOD samples, for which sources "
            "are: leave source_ood (ood_source of fit) out."
        )
    if not own:
        needs_path |= any(label is not None for label in labels)
    if needs_path and (own or guarantee != "high_probability"):
        raise ValueError(
            f"group_id, source_ood, unlabeled and tv are for "
            f"guarantee='high_probability' and rules with linear bounds, got "
            f"guarantee={guarantee!r} and {type(rule).__name__}."
        )
    is_simple = guarantee == "expectation" and not problem.double
    if shift.is_weighted and (
        own or not (guarantee == "high_probability" or is_simple)
    ):
        raise ValueError(
            f"Importance weights are for guarantee='high_probability', and "
            f"'expectation' with one score, and rules with linear bounds; got "
            f"guarantee={guarantee!r} and {type(rule).__name__}."
        )
    if shift.new is not None and (labels.group is not None or shift.tv > 0):
        raise ValueError(
            "unlabeled cannot be combined with group_id or tv: the ID samples in use "
            "must be distributed as all given ones."
        )

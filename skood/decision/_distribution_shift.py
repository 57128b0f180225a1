"""Statements about distributions in deployment that differ from the samples.

With weights a statement is one about weighted means, tested by betting ([4] of
`certify`). With unlabeled samples the precision in deployment is bounded from the
accepted fraction of them, so that the fraction of OOD samples need not be known. Bounds
may have a margin for a distance in total variation.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from skood.decision._base_rule import Linear
from skood.decision._ood_fraction import precision_pvalue
from skood.decision._operating_point import check_pair
from skood.decision._scored_samples import ScoredSamples, sums_up_to
from skood.decision._statements import BETTING, StatementTest, tests_of
from skood.stats._rate_tests import betting

_NAMES = "weight_id", "weight_ood"

# By which factor the exact limit of the precision in deployment is farther than a
# normal one.
_EXACT = 1.15


class WeightedCounts(NamedTuple):
    """Sums of the weighted values that a statement is about, at some thresholds.

    ``total`` and ``squares`` are of the values and of their squares, ``accepted`` and
    ``loss`` of the weights and weighted losses of accepted samples. Shapes:
    (n_thresholds,), or numbers; ``weight`` and ``n`` are numbers.
    """

    total: Any
    squares: Any
    accepted: Any
    loss: Any
    weight: float
    n: float


class WeightedTest(NamedTuple):
    """Test of a statement about weighted means, of ID or of OOD samples alone.

    The statement is that ``E[w (a A + b l A + d)]`` is not positive, with the decision
    A and the loss l, or ``E[w (c B + d)]`` for OOD samples. Weights are at most
    `weight_max`; only their ratios matter.
    """

    unweighted: StatementTest
    weight_max: float
    bets: bool = True
    needs_stakes: bool = True

    def __getattr__(self, name):
        return getattr(self.unweighted, name)

    @property
    def ends(self):
        """Least and largest possible value; the least weight is 0."""
        a, b, c, d = self.bound
        gains = (0.0, c) if c else (0.0, a, a + b * self.max_loss)
        values = 0.0, d + min(gains), d + max(gains)
        return self.weight_max * min(values), self.weight_max * max(values)

    def stakes_per_sample(self, stake, n_id, n_ood):
        """Return the stake on each sample."""
        return (stake,)

    @property
    def largest_losses(self):
        """Largest loss of a bet with a stake of 1."""
        return (self.ends[1],)

    def _values(self, samples):
        """Return which samples the statement is about, their weights, and gains."""
        a, b, c, _ = self.bound
        mask = samples.is_ood if c else ~samples.is_ood
        loss, weight = samples.loss[mask], samples.weight[mask]
        return mask, weight, np.full(loss.shape, c) if c else a + b * loss

    def counts(self, counts, samples, unlabeled, theta, lam, scales):
        """Return the `WeightedCounts` at thresholds; `counts` are the `Counts`."""
        mask, weight, gains = self._values(samples)
        projected, d = samples.project(theta, scales)[mask], self.bound.constant
        total = sums_up_to(lam, projected, weight * gains)[0] + d * weight.sum()
        squares = weight**2 * (gains**2 + 2 * d * gains)
        squares = sums_up_to(lam, projected, squares)[0] + d**2 * (weight**2).sum()
        accepted = counts.F if self.bound.ood else counts.N
        sizes = weight.sum(), float(weight.size)
        return WeightedCounts(total, squares, accepted, counts.E, *sizes)

    def estimate(self, counts):
        """Return the weighted rate that is bounded, or the linear function."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.kind in ("errors", "losses"):
                return np.divide(counts.loss, counts.accepted)
            if self.kind == "sum":
                return counts.total / counts.weight
            return counts.accepted / counts.weight

    def _moments(self, counts):
        """Return the mean and the variance of the values."""
        least, most = self.ends
        mean = counts.total / counts.n
        squares = np.maximum(counts.squares - counts.n * mean**2, 0.0)
        return mean, (squares + (most - least) ** 2 / 4) / (counts.n + 1)

    def margin(self, counts, n_id, n_ood, delta):
        """Return by how many standard deviations a test is expected to pass."""
        mean, variance = self._moments(counts)
        n = np.maximum(n_ood if self.bound.ood else n_id, 1e-300)
        needed = BETTING * np.sqrt(-2 * math.log(delta) * variance / n)
        chosen = variance / np.maximum(counts.n, 1e-300)
        return (-mean - needed) / np.sqrt(variance / n + chosen)

    def stakes(self, counts, n_id, n_ood, delta):
        """Return the stake of the bets, chosen on other samples."""
        n, most = (n_ood if self.bound.ood else n_id), self.ends[1]
        _, variance = self._moments(counts)
        stake = math.sqrt(-2 * math.log(delta) / (max(n, 1) * float(variance)))
        return min(stake, 0.9 / most) if most > 0 else stake

    def pvalue(self, samples, accepted, unlabeled, delta, stakes):
        """Return the p-value from the decisions on other samples."""
        mask, weight, gains = self._values(samples)
        accepted = accepted[mask]
        if not self.bound.ood and self.bound.loss and not accepted.any():
            return 1.0  # the risk of no sample is undefined
        if self.ends[1] <= 0:
            return 0.0
        return betting(weight * (gains * accepted + self.bound.constant), 0.0, stakes)


class InUseCounts(NamedTuple):
    """Accepted and all samples: ID, OOD of a source, and unlabeled."""

    N: Any
    n_id: float
    F: Any
    n_ood: float
    Q: Any
    n_new: float


class PrecisionInUse(NamedTuple):
    """Test of a lower bound on the precision in the mixture of unlabeled samples.

    It falls with the FPR: if it holds with the FPR of every source, it holds for all
    mixtures of them.
    """

    limit: float
    source: Any = None
    group: None = None
    kind: str = "in_use"
    bets: bool = False
    needs_stakes: bool = False
    needs_id: bool = True
    needs_ood: bool = True

    def counts(self, counts, samples, unlabeled, theta, lam, scales):
        """Return the `InUseCounts` at thresholds."""
        Q, *_, n_new = sums_up_to(lam, unlabeled.project(theta, scales), None)
        return InUseCounts(counts.N, counts.n_id, counts.F, counts.n_ood, Q, n_new)

    def estimate(self, counts):
        """Return the precision at the given rates."""
        t, f = counts.N / counts.n_id, counts.F / counts.n_ood
        q = np.minimum(counts.Q / counts.n_new, t)
        with np.errstate(invalid="ignore", divide="ignore"):
            precision = t * (q - f) / (q * (t - f))
        return np.where(q > f, precision, 0.0)

    def margin(self, counts, n_id, n_ood, delta):
        """Return by how many standard deviations a test is expected to pass."""
        t, f = counts.N / counts.n_id, counts.F / counts.n_ood
        q = np.minimum(counts.Q / counts.n_new, t)
        n_new = counts.n_new * n_id / counts.n_id  # all are split alike
        tested_variance, variance = 0.0, 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            a, b = 1 - f / q, 1 - f / t  # their ratio is the precision
            for slope, count, chosen, tested in (
                (-a * f / (t * b) ** 2, counts.N, counts.n_id, n_id),
                ((1 / t - 1 / q) / b**2, counts.F, counts.n_ood, n_ood),
                (f / (q**2 * b), counts.Q, counts.n_new, n_new),
            ):
                smooth = (count + 1) / (chosen + 2)
                spread = slope**2 * smooth * (1 - smooth)
                tested_variance = tested_variance + spread / tested
                variance = variance + spread * (1 / chosen + 1 / tested)
            needed = -_EXACT * ndtri(delta) * np.sqrt(tested_variance)
            margin = (a / b - self.limit - needed) / np.sqrt(variance)
        return np.where((q > f) & (variance > 0), margin, -np.inf)

    def stakes(self, counts, n_id, n_ood, delta):
        """Return None: the test is no bet."""
        return None

    def pvalue(self, samples, accepted, unlabeled, delta, stakes):
        """Return the p-value from the decisions on other samples."""
        decisions = accepted[~samples.is_ood], accepted[samples.is_ood], unlabeled
        counts = [(int(np.count_nonzero(x)), x.size) for x in decisions]
        (N, n_id), (F, n_ood), (Q, n_new) = counts
        return precision_pvalue(self.limit, N, n_id, F, n_ood, Q, n_new, delta)


def with_margin(bound, tv, max_loss):
    """Return a bound that implies the given one within a total variation distance.

    The mean of a function differs by at most the distance times its range, for ID and
    for OOD samples.
    """
    a, b, c, d = bound
    gains = 0.0, a, a + b * max_loss
    return bound._replace(constant=d + tv * (max(gains) - min(gains) + abs(c)))


def checked_unlabeled(unlabeled, double):
    """Return unlabeled samples from a pair of scores, or raise."""
    if not isinstance(unlabeled, (tuple, list)) or len(unlabeled) != 2:
        raise ValueError(
            f"unlabeled must be a pair of scores (risk, ood); ood is None for one "
            f"score, got {unlabeled!r:.80}."
        )
    names = "unlabeled[0]", "unlabeled[1]"
    risk, ood = check_pair(unlabeled[0], unlabeled[1], names, double)
    if ood is not None and not double:
        raise ValueError(
            "unlabeled has two scores although ood_id is None; pass (risk, None)."
        )
    if not risk.size:
        raise ValueError("unlabeled has no samples; leave it out, or pass some.")
    return ScoredSamples(risk, ood, np.zeros(risk.size), np.zeros(risk.size, bool))


def _precisions(rule, sources):
    """Return tests of the precision in deployment, and the other bounds of a rule."""
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


def statement_tests(rule, bounds, labels, two_valued, certificate, samples, unlabeled):
    """Return the tests of all statements of a rule, also about other distributions.

    `labels` are the groups and the sources, each a list or None.
    """
    (groups, sources), shift = labels, certificate.shift
    weights = samples.by_kind("weight")
    is_weighted = weights[0] is not None or weights[1] is not None
    is_shifted = is_weighted or shift.tv > 0 or unlabeled is not None
    in_use: list = []
    if unlabeled is not None:
        in_use, bounds = _precisions(rule, sources)
    losses = two_valued, certificate.max_loss
    tests: list = tests_of(bounds, groups, sources, *losses)
    if certificate.sampling == "mixture":
        for rate in rule.error_rates:
            bound = Linear(id=-rate, loss=1.0)
            tests.append(StatementTest(bound, None, None, *losses, of_mixture=True))
    if is_shifted and not (tests or in_use):
        raise ValueError(
            f"{type(rule).__name__} has no bounds, and its cost is bounded for the "
            f"distributions of the samples only. Leave weights, tv and unlabeled out."
        )
    if not is_weighted:
        return [*tests, *in_use]
    weighted_tests = []
    for test in tests:
        if test.needs_id and test.needs_ood:
            raise ValueError(
                f"Weights are for bounds on ID or on OOD samples alone, since they are "
                f"relative within each kind, and {type(rule).__name__} has another "
                f"bound. Bound the TPR and the FPR instead."
            )
        if weights[int(test.needs_ood)] is not None:
            test = WeightedTest(test, float(shift.weight_max))
        weighted_tests.append(test)
    return weighted_tests


def weighted(samples, unlabeled, shift):
    """Return samples with importance weights, or repeated by frequencies, or raise."""
    pairs = [
        (weight, name)
        for weight, name in zip(samples.by_kind("weight"), _NAMES, strict=True)
        if weight is not None
    ]
    if shift.weights == "frequency":
        for weight, name in pairs:
            wrong = weight != np.rint(weight)
            if wrong.any():
                raise ValueError(
                    f"weights='frequency' needs whole numbers in {name}, how often "
                    f"samples were observed, got {weight[wrong][0]:g}. Weights of the "
                    f"distribution at deployment are weights='importance'."
                )
        counts = np.where(np.isnan(samples.weight), 1, samples.weight).astype(np.intp)
        indices = np.repeat(np.arange(counts.size), counts)
        return replace(samples, weight=None).take(indices)
    if unlabeled is not None:
        raise ValueError(
            "Weights and unlabeled samples cannot be combined: the precision at "
            "deployment is bounded for ID samples at deployment that are distributed "
            "as the given ones."
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
    return samples


def check_guarantee(rule, samples, unlabeled, certificate):
    """Raise unless a guarantee covers groups, sources and a shift."""
    tv, method, has_point = (
        certificate.shift.tv,
        certificate.method,
        not rule.is_searched,
    )
    needs_path = tv > 0 or unlabeled is not None
    if has_point and samples.source is not None:
        raise ValueError(
            f"{type(rule).__name__} bounds no rate of OOD samples, for which sources "
            "are: leave source_ood (ood_source of fit) out."
        )
    if not has_point:
        needs_path |= samples.group is not None or samples.source is not None
    if needs_path and (has_point or method != "high_probability"):
        raise ValueError(
            f"group_id, source_ood, unlabeled and tv are for "
            f"guarantee='high_probability' and rules with linear bounds, got "
            f"guarantee={method!r} and {type(rule).__name__}."
        )
    is_simple = method == "expectation" and samples.ood is None
    if samples.weight is not None and (
        has_point or not (method == "high_probability" or is_simple)
    ):
        raise ValueError(
            f"Importance weights are for guarantee='high_probability', and "
            f"'expectation' with one score, and rules with linear bounds; got "
            f"guarantee={method!r} and {type(rule).__name__}."
        )
    if unlabeled is not None and (samples.group is not None or tv > 0):
        raise ValueError(
            "unlabeled cannot be combined with group_id or tv: the ID samples at "
            "deployment must be distributed as all given ones."
        )

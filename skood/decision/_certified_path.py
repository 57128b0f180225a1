"""Candidate rules in a fixed order, certified one after the other.

The notes of `certify` have the tests (intersection-union test) and the Pareto front
[1]_ of candidates, the notes of `certify_path` have several starts of a path.

References
----------
.. [1] B. Laufer-Goldshtein, A. Fisch, R. Barzilay, T. Jaakkola. Efficiently controlling
   multiple risks with Pareto testing. ICLR 2023.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np

from skood.decision._statements import limit_of, text_of
from skood.stats._rate_tests import least_where
from skood.utils._stored import stored
from skood.utils._ties import tie_scale_of_ranked, tolerance

# Thresholds at an angle, candidates on the path, and their least margin.
_N_THRESHOLDS, _N_CANDIDATES, _LEAST_MARGIN = 400, 200, -3.0

# Least number of thresholds of one score, least fractions of its two starts, and
# weights.
_N_STEPS, _STARTS, _WEIGHTS = 100, (0.12, 0.75), (0.95, 0.05)

# Fractions of the samples that choose the order of answers: of the caps of the OOD
# score, of the first answers whose errors count, of the candidates, and of their
# starts.
_CAPS, _FIRST, _N_ORDERS = (0.9, 0.8, 0.7, 0.6, 0.5), (0.05, 0.5), 16
_ANSWERED, _MIXTURE_STARTS = np.arange(2, 101) / 100, (0.08, 0.2)

# A test with this margin passes for 19 of 20 samples.
_LIKELY = 1.645


@stored
class CertifiedStatement(NamedTuple):
    """Statement about new data, with its estimate and p-value.

    Parameters
    ----------
    text : str
        The statement.

    group, source : object, default=None
        Group of ID samples and source of OOD samples that it is about; None: all.

    estimate : float, default=nan
        Estimate of the bounded rate on the certifying samples.

    pvalue : float, default=nan
        p-value of the hypothesis that the statement is false.

    rate : {"tpr", "fpr", "risk", "precision", "error_rate"} or None, default=None
        The rate that is bounded. None: another function of the decisions.

    limit : float, default=nan
        The bound of the rate; NaN if there is no single one.

    See Also
    --------
    RuleCertificate : Has the statements of a rule.

    Examples
    --------
    >>> from skood.rejection import CertifiedStatement
    >>> CertifiedStatement("TPR >= 0.8", estimate=0.86, pvalue=0.01).text
    'TPR >= 0.8'
    """

    text: str
    group: object = None
    source: object = None
    estimate: float = math.nan
    pvalue: float = math.nan
    rate: str | None = None
    limit: float = math.nan

    def __str__(self):
        if math.isnan(self.pvalue):
            return self.text
        return f"{self.text} (p = {self.pvalue:.2g})"


@stored
@dataclass(frozen=True)
class RuleCertificate:
    """Guarantee for new data that :func:`certify` has found for a rule.

    Read more in the :ref:`User Guide <guarantees_details>`.

    Parameters
    ----------
    delta : float or None
        Probability, over the draw of the calibration samples, that some statement is
        false although the rule is returned. None: the statements hold on average over
        the draw ("expectation").

    statements : tuple of CertifiedStatement
        All statements; they hold together.

    n_id, n_ood : int
        Numbers of certifying samples.

    n_candidates, n_certified : int
        Numbers of candidate rules, and of certified ones. The last certified one is
        returned.

    not_certified : tuple, default=()
        Groups without a statement since they are too small.

    pooled : tuple, default=()
        Groups that were united since they are too small.

    path_pvalues : ndarray of shape (n_candidates, n_statements) or None, default=None
        p-values of all candidates, of :func:`certify_path` only.

    n_unlabeled : int, default=0
        Number of certifying unlabeled samples.

    weight_max : float or None, default=None
        Largest importance weight; None: samples have none.

    tv : float, default=0.0
        Total variation distance for which the bounds of the rule follow from the
        statements.

    See Also
    --------
    OperatingPoint : Has the certificate as an attribute.
    skood.exceptions.NotCertifiableError : Raised if no rule is certified.

    Examples
    --------
    >>> from skood.rejection import CertifiedStatement, RuleCertificate
    >>> statement = CertifiedStatement("TPR >= 0.8", estimate=0.86, pvalue=0.01)
    >>> certificate = RuleCertificate(0.1, (statement,), 500, 0, 60, 12)
    >>> print(certificate.assumptions)
    The ID samples, and the OOD samples of each source, are independent draws from the \
distributions at deployment, and no detector or classifier was fitted on them.
    """

    delta: float | None
    statements: tuple
    n_id: int
    n_ood: int
    n_candidates: int
    n_certified: int
    not_certified: tuple = ()
    pooled: tuple = ()
    path_pvalues: np.ndarray | None = field(default=None, compare=False)
    n_unlabeled: int = 0
    weight_max: float | None = None
    tv: float = 0.0

    def __str__(self):
        listed = ", ".join(map(str, self.statements))
        samples = f"{self.n_id} ID and {self.n_ood} OOD samples"
        if self.n_unlabeled:
            samples = f"{self.n_id} ID, {self.n_ood} OOD and {self.n_unlabeled} "
            samples += "unlabeled samples"
        weighted = "" if self.weight_max is None else " for the weighted distribution"
        chance = "on average"
        if self.delta is not None:
            chance = f"together{weighted} with a probability of {1 - self.delta:g}"
        return (
            f"{listed}; {chance} over the draw of the calibration samples; {samples} "
            "certify"
        )

    @property
    def assumptions(self):
        """Assumptions of the guarantee."""
        text = (
            "The ID samples, and the OOD samples of each source, are independent "
            "draws from the distributions at deployment, and no detector or classifier "
            "was fitted on them."
        )
        if any(statement.rate == "error_rate" for statement in self.statements):
            text = text.replace(
                "ID samples, and the OOD samples of each source, are independent draws "
                "from the distributions at deployment",
                "samples are independent draws from the mixture of ID and OOD samples "
                "at deployment",
            )
        if self.n_unlabeled:
            text += (
                " The unlabeled samples are independent draws from a mixture of the "
                "distributions of ID samples and of the sources of OOD samples."
            )
        if self.weight_max is not None or self.tv:
            text = text.replace("distributions at deployment", "same distributions")
        if self.weight_max is not None:
            text += (
                f" Weights are a fixed function of a sample, at most "
                f"{self.weight_max:g} and not fitted on these samples. The statements "
                f"hold for the distributions that they describe; if the weights are "
                f"estimated, they hold only approximately for the distributions at "
                "deployment."
            )
        if self.tv:
            text += (
                f" The bounds of the rule hold for all distributions within a total "
                f"variation distance of {self.tv:g}."
            )
        return text


class Path(NamedTuple):
    """Candidates, the safest first, and everything that was evaluated to find them."""

    candidates: list  # (theta, lam, scales)
    counts: list  # of all angles and thresholds: a list of `Counts` per angle


def thresholds_between(projected, most=_N_THRESHOLDS):
    """Return at most `most` + 1 thresholds between scores that are not tied.

    Between two quantiles it is in the widest gap, so that rounding of scores, which
    differs between calls, does not change decisions.
    """
    ranked = np.sort(projected[projected < np.inf])
    if not ranked.size:
        return np.array([-np.inf])
    scale, values = tie_scale_of_ranked(ranked), np.unique(ranked)
    gaps = np.diff(values)
    chosen = np.arange(gaps.size)
    if gaps.size > most:
        ends = np.linspace(0, gaps.size, most + 1).astype(int)
        chosen = np.array(
            [low + gaps[low:high].argmax() for low, high in pairwise(ends)]
        )
    chosen = chosen[gaps[chosen] > tolerance(values[chosen], *scale)]
    low, high = values[chosen], values[chosen + 1]
    middle = low / 2 + high / 2
    between = np.where((low < middle) & (middle < high), middle, low)
    return np.append(between, values[-1] + tolerance(values[-1], *scale))


def plan(rule, first, thetas, scales, sizes, delta):
    """Return the `Path` of candidates, chosen on the first of the samples.

    `sizes` are the numbers of ID and OOD samples that certify, for each test.
    """
    columns: tuple = [], [], [], []
    counts = []
    for theta in thetas:
        lam = thresholds_between(first.samples.project(theta, scales))
        of_tests, everything = first.counts(theta, lam, scales)
        margin = np.full(lam.size, np.inf)
        for test, count, (n_id, n_ood) in zip(
            first.tests, of_tests, sizes, strict=True
        ):
            margin = np.fmin(margin, test.margin(count, n_id, n_ood, delta))
        N, E, *_, F, n_id, n_ood = everything
        objective = rule.objective(N, E, F, n_id, n_ood)
        for column, values in zip(
            columns, (np.full(lam.size, theta), lam, margin, objective), strict=True
        ):
            column.append(values)
        counts.append(of_tests)
    theta, lam, margin, objective = map(np.concatenate, columns)
    best = _front(margin, objective)
    pairs = zip(theta[best].tolist(), lam[best].tolist(), strict=True)
    return Path([(*pair, scales) for pair in pairs], counts)


def ascending(first, sizes, scales, delta):
    """Return a `Path` of ever larger thresholds of one score, and its weights.

    The thresholds are at quantiles of the ID scores. Losses are not used, so that few
    samples suffice. The first start is where five times the accepted samples that could
    pass at all are expected, the second for scores whose least values have a large
    risk.
    """
    scores = first.samples.project(0.0, scales)[~first.samples.is_ood]
    lam = thresholds_between(scores)
    if np.isfinite(lam).any():
        lam = lam[np.isfinite(lam)]
        at = np.linspace(0, lam.size - 1, max(_N_STEPS, lam.size))
        lam = np.interp(at, np.arange(lam.size), lam)
    fraction = np.searchsorted(np.sort(scores), lam, side="right") / scores.size
    start, other = _STARTS
    for test, (n_id, _) in zip(first.tests, sizes, strict=True):
        if test.kind in ("errors", "losses") and 0 < test.limit < 1:
            least = math.log(delta / 2) / math.log1p(-test.limit)
            start = max(start, 5 * least / max(n_id, 1))
        elif test.kind == "tpr_min":
            spread = math.sqrt(test.limit * (1 - test.limit) / max(n_id, 1))
            start = max(start, test.limit + 3 * spread)
    weights = np.zeros(lam.size)
    for low, weight in zip((start, max(start, other)), _WEIGHTS, strict=True):
        weights[min(np.searchsorted(fraction, low), lam.size - 1)] += weight
    counts = [first.counts(0.0, lam, scales)[0]]
    return Path(list(zip(repeat(0.0), lam.tolist(), repeat(scales))), counts), weights


def _at_fractions(projected, fractions):
    """Return thresholds between scores, the first that accept these fractions."""
    lam = thresholds_between(projected)
    accepted = np.searchsorted(np.sort(projected), lam, side="right") / projected.size
    at = np.unique(np.minimum(np.searchsorted(accepted, fractions), lam.size - 1))
    return lam[at], accepted[at]


def best_order(answers, scales):
    """Return the angle and the cap of the OOD score with the fewest early errors.

    Answers are ordered by the projected score, the ones above the cap last. The
    criterion is the mean error rate of the first k of them, k in a range of fractions.
    """
    low, high = (math.ceil(fraction * answers.risk.size) for fraction in _FIRST)
    caps, thetas = [math.inf], np.zeros(1)
    if answers.ood is not None:
        caps += _at_fractions(answers.ood, _CAPS)[0].tolist()[::-1]
        thetas = np.linspace(0, math.pi / 2, _N_ORDERS)
    best = math.inf, 0.0, 0.0
    for theta in thetas.tolist():
        projected = answers.project(theta, scales)
        for cap in caps:
            above = 0 if cap == math.inf else answers.ood > cap
            loss = answers.loss[np.argsort(np.where(above, np.inf, projected))]
            errors = np.cumsum(loss[:high])[low - 1 :] / np.arange(low, high + 1)
            best = min(best, (float(errors.mean()), -cap, theta))
    return best[2], -best[1]


def capped(samples, cap):
    """Return the samples, where OOD scores above the cap are never accepted."""
    if cap == math.inf:
        return samples
    return replace(samples, ood=np.where(samples.ood > cap, np.inf, samples.ood))


def by_answers(first, theta, scales):
    """Return a `Path` from few to many answers in an order, and its weights."""
    projected = first.samples.project(theta, scales)
    lam, accepted = _at_fractions(projected, _ANSWERED)
    weights = np.zeros(lam.size)
    for start in _MIXTURE_STARTS:
        at = min(np.searchsorted(accepted, start), lam.size - 1)
        weights[at] += 1 / len(_MIXTURE_STARTS)
    counts = [first.counts(theta, lam[weights > 0], scales)[0]]
    return Path(list(zip(repeat(theta), lam.tolist(), repeat(scales))), counts), weights


def _front(margin, objective):
    """Return the Pareto front of large margins and small objectives, safest first."""
    usable = np.flatnonzero((margin > -np.inf) & (objective < np.inf))
    near = usable[margin[usable] >= _LEAST_MARGIN]
    if not near.size:
        near = usable[np.argsort(-margin[usable], kind="stable")[:1]]
    order = near[np.lexsort((objective[near], -margin[near]))]
    least = np.minimum.accumulate(objective[order])
    first = np.append(True, least[1:] < least[:-1])[: order.size]
    front = order[first]
    if front.size > _N_CANDIDATES:
        chosen = np.linspace(0, front.size - 1, _N_CANDIDATES)
        front = front[np.unique(chosen.round().astype(int))]
    return front


def sequence(second, candidates, stakes_of, delta, *, weights=(1.0,), stop=True):
    """Test candidates in their order, each at a level that depends on the one before.

    The level of a candidate is its weight times delta, plus the level of the one before
    if that is certified, see `certify_path`. Weights, 0 where there are none, sum to at
    most 1. A weight of 1 for the first candidate is the fixed sequence.

    `second` are `TestedSamples` that did not choose the candidates, tuples (theta, lam,
    scales), and ``stakes_of(k)`` has the stakes of each test. Returns two dicts of
    p-values by candidate, of certified candidates and of others. Without `stop` all
    p-values are computed.
    """
    certified, failed, level = {}, {}, 0.0
    for k, (theta, lam, scales) in enumerate(candidates):
        level += delta * weights[k] if k < len(weights) else 0.0
        if stop and not level:
            if not any(weights[k:]):
                break
            continue
        highest = level if stop else math.inf
        pvalues = second.pvalues(theta, lam, scales, stakes_of(k), delta, highest)
        if level and max(pvalues) <= level:
            certified[k] = pvalues
        else:
            failed[k] = pvalues
            level = 0.0
    return certified, failed


def factor_needed(tests, counts_of_angles, sizes, delta, most):
    """Return by which factor there are too few samples, or None.

    With so many samples the best candidate passes all tests with a probability of some
    95 %, if its rates are as in the counts. It is 1 if the given samples are enough.
    """

    def passes(factor):
        for counts in counts_of_angles:
            margin = np.inf
            for test, count, (n_id, n_ood) in zip(tests, counts, sizes, strict=True):
                grown = type(count)(*(factor * np.asarray(x, float) for x in count))
                expected = test.margin(grown, factor * n_id, factor * n_ood, delta)
                margin = np.fmin(margin, expected)
            if np.max(margin) >= _LIKELY:
                return True
        return False

    high = 1.0
    while not passes(high):
        high *= 2
        if high > most:
            return None
    low = max(1.0, high / 2)
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high if high == 1 else max(high, 1.01)


def upper_bound(test, samples, accepted, stakes, ends, delta):
    """Return the least u such that "the function is at most u" is certified.

    The stakes are fixed, so that the p-value falls with u. `test` is about the function
    with u = 0, whose values are between the `ends`.
    """

    def is_certified(u):
        bound = test.bound._replace(constant=test.bound.constant - u)
        moved = test._replace(bound=bound)
        return moved.pvalue(samples, accepted, None, delta, stakes) <= delta

    low, high = ends
    if not is_certified(high):
        return high
    return least_where(is_certified, low, high, 1e-9 * (high - low))


# Rates of kinds of tests that do not start with them.
_RATES = {
    "errors": "risk",
    "losses": "risk",
    "two_sample": "precision",
    "in_use": "precision",
    "sum": None,
}


def statement_of(test, counts, pvalue):
    """Return a statement with its estimate and p-value."""
    of_mixture = getattr(test, "of_mixture", False)
    return CertifiedStatement(
        text_of(test),
        test.group,
        test.source,
        float(test.estimate(counts)),
        float(pvalue),
        "error_rate" if of_mixture else _RATES.get(test.kind, test.kind[:3]),
        limit_of(test),
    )

"""Statements about rates, each for a group of ID samples and a source of OOD samples.

A statement is a linear function of the rates of an acceptance rule that must not be
positive. `StatementTest` has the margin of a statement on the samples that choose
candidate rules, and its p-value on the samples that test them.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from skood.decision._base_rule import Linear
from skood.stats._rate_tests import (
    at_least,
    at_most,
    betting,
    fixed_stake,
    predictable_stakes,
    two_sample,
    weighted_sum,
)

# With fewer accepted samples nothing is known about their risk.
_FEW, _UNKNOWN = 5, -9.0

# Bets lose some power against a normal approximation with the same variance.
BETTING = 0.8


class TestedSamples:
    """Samples, and the subset that each of some tests concerns.

    `sizes` are the numbers of ID and OOD samples in the subsets. Tests of precisions
    also use the unlabeled samples. Tests of error rates take OOD samples for ID samples
    with the largest loss.
    """

    __test__ = False  # no tests for pytest

    def __init__(self, tests, samples, unlabeled=None):
        self.tests, self.samples, self.unlabeled = tests, samples, unlabeled
        subsets: dict = {(None, None, True, True): samples}
        self.subsets: list = []
        self.sizes: list = []
        for test in tests:
            key: tuple = (None, None, True, True)
            if isinstance(test, StatementTest) and test.of_mixture:
                key = "mixture", None, True, True
                loss = np.where(samples.is_ood, test.max_loss, samples.loss)
                none = np.zeros_like(samples.is_ood)
                subsets.setdefault(key, replace(samples, loss=loss, is_ood=none))
            elif test.group is not None or test.source is not None:
                key = test.group, test.source, test.needs_id, test.needs_ood
            if key not in subsets:
                of_id, of_ood = ~samples.is_ood, samples.is_ood
                if test.group is not None:
                    of_id = of_id & (samples.group == test.group)
                if test.source is not None:
                    of_ood = of_ood & (samples.source == test.source)
                mask = (of_id & test.needs_id) | (of_ood & test.needs_ood)
                subsets[key] = samples.take(mask)
            self.subsets.append(subsets[key])
            self.sizes.append(subsets[key].sizes)

    def counts(self, theta, lam, scales):
        """Return the counts of each test at thresholds, and `Counts` of all samples."""
        shared = {id(self.samples): self.samples.counts(theta, lam, scales)}
        counts = []
        for test, samples in zip(self.tests, self.subsets, strict=True):
            if id(samples) not in shared:
                shared[id(samples)] = samples.counts(theta, lam, scales)
            count = shared[id(samples)]
            if not isinstance(test, StatementTest):
                count = test.counts(count, samples, self.unlabeled, theta, lam, scales)
            counts.append(count)
        return counts, shared[id(self.samples)]

    def pvalues(self, theta, lam, scales, stakes, delta, level=math.inf):
        """Return the p-values of a rule, until one is above a level."""
        accepted: dict = {}
        if self.unlabeled is not None:
            accepted[None] = self.unlabeled.project(theta, scales) <= lam
        pvalues = []
        for test, samples, stake in zip(self.tests, self.subsets, stakes, strict=True):
            key = id(samples)
            if key not in accepted:
                accepted[key] = samples.project(theta, scales) <= lam
            decisions = samples, accepted[key], accepted.get(None)
            pvalues.append(test.pvalue(*decisions, delta, stake))
            if pvalues[-1] > level:
                break
        return pvalues


def _fraction_margin(count, n, limit, sign, n_test, delta):
    """Return the margin of a fraction, at least (sign 1) or at most (-1) a limit."""
    n, n_test = np.maximum(n, 1e-300), np.maximum(n_test, 1e-300)
    smooth = (count + 1) / (n + 2)
    deviation = np.sqrt(smooth * (1 - smooth) * (1 / n + 1 / n_test))
    needed = -ndtri(delta) * np.sqrt(limit * (1 - limit) / n_test) + 0.5 / n_test
    margin = (sign * (count / n - limit) - needed) / deviation
    passes = n_test * math.log(limit if sign > 0 else 1 - limit) <= math.log(delta)
    return np.where(passes, margin, -np.inf)


class StatementTest(NamedTuple):
    """Test of one statement for one group and one source.

    ``two_valued``: losses are 0 or `max_loss`; others count as `max_loss` if positive,
    so that the test stays valid. ``of_mixture``: the mean loss is among all accepted
    samples, ID and OOD.
    """

    bound: Linear
    group: Any
    source: Any
    two_valued: bool
    max_loss: float
    of_mixture: bool = False

    @property
    def kind(self):
        """Name of the p-value."""
        a, b, c, d = self.bound
        if b == 0 and c == 0:
            return "tpr_min" if a < 0 else "tpr_max"
        if a == 0 and b == 0:
            return "fpr_max" if c > 0 else "fpr_min"
        if b > 0 >= a and c == 0 and d == 0:
            return "errors" if self.two_valued else "losses"
        if a < 0 < c and b == 0 and d == 0:
            return "two_sample"
        return "sum"

    @property
    def bets(self):
        """Whether the test is a bet, with stakes."""
        return self.kind in ("losses", "sum")

    @property
    def needs_id(self):
        """Whether the statement is about ID samples."""
        return bool(self.bound.id or self.bound.loss)

    @property
    def needs_ood(self):
        """Whether the statement is about OOD samples."""
        return bool(self.bound.ood)

    @property
    def limit(self):
        """Bound on a single rate; on losses as a fraction of the largest."""
        a, b, c, d = self.bound
        if self.kind in ("errors", "losses"):
            return -a / b / self.max_loss
        return -d / (a or c)

    def estimate(self, counts):
        """Return the estimate of what is bounded: a rate, or the linear function."""
        kind = self.kind
        with np.errstate(invalid="ignore", divide="ignore"):
            if kind.startswith("tpr"):
                return counts.N / counts.n_id
            if kind.startswith("fpr"):
                return counts.F / counts.n_ood
            if kind in ("errors", "losses"):
                return np.divide(counts.E, counts.N)
            f = counts.F / counts.n_ood if self.bound.ood else 0.0
            return self.bound.at(counts.N / counts.n_id, counts.E / counts.n_id, f)

    def margin(self, counts, n_id, n_ood, delta):
        """Return by how many standard deviations a test is expected to pass.

        `counts` are from the samples that choose, `n_id` and `n_ood` the numbers of
        samples that test.
        """
        kind, limit = self.kind, self.limit if self.kind != "sum" else math.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            if kind.endswith(("min", "max")):
                sizes = counts.F, counts.n_ood, n_ood
                if kind.startswith("tpr"):
                    sizes = counts.N, counts.n_id, n_id
                count, n, n_test = sizes
                sign = 1 if kind.endswith("min") else -1
                return _fraction_margin(count, n, limit, sign, n_test, delta)
            if kind in ("errors", "losses") and limit >= 1:
                return np.where(counts.N > 0, np.inf, _UNKNOWN)
            if kind == "errors":
                n_test = counts.N * n_id / counts.n_id
                margin = _fraction_margin(
                    counts.n_lossy, counts.N, limit, -1, n_test, delta
                )
                return np.where(counts.N >= _FEW, margin, _UNKNOWN)
            if kind == "losses":
                mean, variance = self._loss_moments(counts)
                n_test = counts.N * n_id / counts.n_id
                needed = BETTING * np.sqrt(-2 * math.log(delta) * variance / n_test)
                deviation = np.sqrt(variance * (1 / counts.N + 1 / n_test))
                margin = (limit - mean - needed) / deviation
                return np.where(counts.N >= _FEW, margin, _UNKNOWN)
            return self._sum_margin(counts, n_id, n_ood, delta)

    def _loss_moments(self, counts):
        """Return mean and variance of accepted losses in units of the largest."""
        N = np.maximum(counts.N, 1)
        mean = counts.E / N / self.max_loss
        squares = counts.squares / self.max_loss**2 - N * mean**2
        return mean, (np.maximum(squares, 0.0) + 0.25) / (N + 1)

    def _sum_moments(self, counts):
        """Return the mean of the linear function, and variances of its two parts.

        The first is the variance of ``a A + b l A + d`` over ID samples, the second of
        ``c B`` over OOD samples.
        """
        a, b, c, d = self.bound
        n = counts.n_id
        mean = (a * counts.N + b * counts.E) / n
        squares = (a**2 * counts.N + 2 * a * b * counts.E + b**2 * counts.squares) / n
        spread = (abs(a) + abs(b) * self.max_loss) ** 2
        v_id = (np.maximum(squares - mean**2, 0.0) * n + spread / 4) / (n + 1)
        mean, v_ood = mean + d, 0.0
        if c:
            smooth = (counts.F + 1) / (counts.n_ood + 2)
            v_ood = c**2 * smooth * (1 - smooth)
            mean = mean + c * counts.F / counts.n_ood
        return mean, v_id, v_ood

    def _sum_margin(self, counts, n_id, n_ood, delta):
        mean, v_id, v_ood = self._sum_moments(counts)
        if self.kind == "two_sample":
            smooth = (counts.N + 1) / (counts.n_id + 2)
            v_id = self.bound.id**2 * smooth * (1 - smooth)
        tested = v_id / n_id + v_ood / max(n_ood, 1)
        if self.kind == "two_sample":
            needed = -ndtri(delta) * np.sqrt(tested)
        else:
            needed = BETTING * np.sqrt(-2 * math.log(delta) * tested)
        chosen = v_id / counts.n_id + v_ood / max(counts.n_ood, 1)
        return (-mean - needed) / np.sqrt(tested + chosen)

    def stakes(self, counts, n_id, n_ood, delta):
        """Return the stakes of bets for `n_id` and `n_ood` samples that test, or None.

        `counts` are numbers, from the samples that choose the rule.
        """
        if self.kind == "losses":
            variance = self._loss_moments(counts)[1]
            n_test = max(counts.N, 1) * n_id / counts.n_id
            return fixed_stake(self.limit, float(variance), n_test, delta)
        if self.kind != "sum":
            return None
        _, v_id, v_ood = self._sum_moments(counts)
        total = v_id / n_id + (v_ood / n_ood if self.bound.ood else 0.0)
        stake = math.sqrt(-2 * math.log(delta) / total)
        for n, loss in zip((n_id, n_ood), self.largest_losses, strict=True):
            if loss > 0:
                stake = min(stake, 0.9 * n / loss)
        return stake / n_id, stake / n_ood if self.bound.ood else 0.0

    @property
    def needs_stakes(self):
        """Whether there are no stakes that follow the samples before."""
        return self.kind == "sum"

    def stakes_per_sample(self, stake, n_id, n_ood):
        """Return the stakes on ID and on OOD samples for one that is given."""
        if self.kind == "sum":
            return stake / max(n_id, 1), stake / max(n_ood, 1)
        return (stake,)

    @property
    def largest_losses(self):
        """Largest losses of bets with a stake of 1, on ID and on OOD samples.

        A stake times the loss must not be above 1, or wealth could be negative.
        """
        a, b, c, d = self.bound
        if self.kind == "losses":
            return 1 - self.limit, 0.0
        return max(d, a + d + max(b, 0.0) * self.max_loss) + max(c, 0.0), abs(c)

    def pvalue(self, samples, accepted, unlabeled, delta, stakes):
        """Return the p-value from the decisions on samples that did not choose them.

        `unlabeled` has the decisions on unlabeled samples, or is None. `stakes` None:
        predictable ones, for `kind` "losses".
        """
        kind, of_id = self.kind, ~samples.is_ood
        loss, leaked = samples.loss[of_id], accepted[samples.is_ood]
        accepted = accepted[of_id]
        N, n_id = int(np.count_nonzero(accepted)), accepted.size
        F, n_ood = int(np.count_nonzero(leaked)), leaked.size
        if kind.endswith(("min", "max")):
            counts = (N, n_id) if kind.startswith("tpr") else (F, n_ood)
            test = at_least if kind.endswith("min") else at_most
            return test(*counts, self.limit)
        if kind == "two_sample":
            factors = -self.bound.id, self.bound.ood
            return two_sample(N, n_id, F, n_ood, *factors, delta)
        if kind == "sum":
            a, b, c, d = self.bound
            z = (a + b * loss) * accepted + d
            return weighted_sum(z, leaked, c, stakes, delta)
        if N == 0:  # the risk of no sample is undefined
            return 1.0
        if kind == "errors":
            return at_most(int(np.count_nonzero(loss[accepted])), N, self.limit)
        values = loss[accepted] / self.max_loss
        if self.limit >= 1:
            return 0.0
        if stakes is None:
            stakes = predictable_stakes(values, self.limit, delta)
        return betting(values, self.limit, stakes)


def limit_of(test):
    """Return the bound of a rate, in its own units; NaN for functions of several."""
    if test.kind in ("sum", "two_sample"):
        return math.nan
    return test.limit * (test.max_loss if test.kind in ("errors", "losses") else 1.0)


def text_of(test):
    """Return a statement as text."""
    kind = test.kind
    if kind == "sum":
        names = ("TPR", "mean loss of accepted samples", "FPR")
        terms = [f"{f:+.4g} {n}" for f, n in zip(test.bound, names, strict=False) if f]
        text = f"{' '.join(terms)} {test.bound.constant:+.4g} <= 0"
    elif kind == "two_sample":
        text = f"{-test.bound.id:.4g} TPR >= {test.bound.ood:.4g} FPR"
    elif kind == "in_use":
        text = f"precision at deployment >= {test.limit:.4g}"
    else:
        name, sign = {
            "tpr_min": ("TPR", ">="),
            "tpr_max": ("TPR", "<="),
            "fpr_max": ("FPR", "<="),
            "fpr_min": ("FPR", ">="),
        }.get(kind, ("error rate" if test.of_mixture else "selective risk", "<="))
        text = f"{name} {sign} {limit_of(test):.4g}"
    if test.group is not None:
        text += f" in group {test.group}"
    if test.source is not None:
        text += f" for source {test.source}"
    return text


def tests_of(bounds, groups, sources, two_valued, max_loss):
    """Return the tests of statements in all groups and for all sources.

    `groups` and `sources` are lists of labels, or None. A statement on the TPR or the
    loss must hold in each group, one on the FPR for each source.
    """
    tests = []
    for bound in bounds:
        by_group = groups if groups and (bound.id or bound.loss) else [None]
        by_source = sources if sources and bound.ood else [None]
        for labels in itertools.product(by_group, by_source):
            tests.append(StatementTest(bound, *labels, two_valued, max_loss))
    return tests

"""Tests of statements about distributions in use, with weights or unlabeled samples.

With weights a statement is one about weighted means, tested by betting [1]_. With
unlabeled samples the precision in use is bounded from the accepted share of them, so
that the share of OOD samples need not be known.

References
----------
.. [1] I. Waudby-Smith, A. Ramdas. Estimating means of bounded random variables by
   betting. Journal of the Royal Statistical Society B 86, 2024.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from skood.decision._ood_share import precision_pvalue
from skood.decision._statements import BETTING, StatementTest, sums_up_to
from skood.stats._rate_tests import betting

# By which factor the exact limit of the precision in use is farther than a normal one.
_EXACT = 1.15


class WeightedCounts(NamedTuple):
    """Sums of the weighted values that a statement is about, at some thresholds.

    ``total`` and ``squares`` are of the values and of their squares, ``kept`` and
    ``loss`` of the weights and weighted losses of accepted samples. Shapes:
    (n_thresholds,), or numbers; ``weight`` and ``n`` are numbers.
    """

    total: Any
    squares: Any
    kept: Any
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

    @property
    def bets(self):
        """Whether the test is a bet, with stakes."""
        return True

    def __getattr__(self, name):
        return getattr(self.unweighted, name)

    @property
    def ends(self):
        """Least and largest possible value; the least weight is 0."""
        a, b, c, d = self.bound
        gains = (0.0, c) if c else (0.0, a, a + b * self.max_loss)
        values = 0.0, d + min(gains), d + max(gains)
        return self.weight_max * min(values), self.weight_max * max(values)

    @property
    def needs_stakes(self):
        """Whether there are no stakes that follow the samples before."""
        return True

    def given_stakes(self, stake, n_id, n_ood):
        """Return the stake on each sample."""
        return (stake,)

    @property
    def largest_losses(self):
        """Largest loss of a bet with a stake of 1."""
        return (self.ends[1],)

    def _gains(self, rows):
        """Return decisions, weights, losses or None, and gains of an acceptance."""
        a, b, c, _ = self.bound
        if c:
            return rows.leaked, rows.weight_ood, None, np.full(rows.leaked.shape, c)
        return rows.accepted, rows.weight_id, rows.loss, a + b * rows.loss

    def counts(self, counts, rows, lam):
        """Return the `WeightedCounts` at thresholds of projected scores in `rows`.

        `counts` are the weighted `Counts`.
        """
        projected, weight, loss, gains = self._gains(rows)
        d = self.bound.constant
        values = weight * gains, weight**2 * (gains**2 + 2 * d * gains)
        sums = [sums_up_to(lam, projected, value)[0] for value in values]
        total = sums[0] + d * weight.sum()
        squares = sums[1] + d**2 * (weight**2).sum()
        kept = counts.N if loss is not None else counts.F
        size = weight.sum()
        return WeightedCounts(total, squares, kept, counts.E, size, float(weight.size))

    def estimate(self, counts):
        """Return the weighted rate that is bounded, or the linear function."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.kind in ("errors", "losses"):
                return np.divide(counts.loss, counts.kept)
            if self.kind == "sum":
                return counts.total / counts.weight
            return counts.kept / counts.weight

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

    def pvalue(self, rows, delta, stakes):
        """Return the p-value from the `Decisions` on other samples."""
        accepted, weight, loss, gains = self._gains(rows)
        if loss is not None and self.bound.loss and not accepted.any():
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

    def counts(self, counts, rows, lam):
        """Return the `InUseCounts` at thresholds."""
        Q, *_, n_new = sums_up_to(lam, rows.accepted_new, None)
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

    def pvalue(self, rows, delta, stakes):
        """Return the p-value from the `Decisions` on other samples."""
        samples = rows.accepted, rows.leaked, rows.accepted_new
        counts = [(int(np.count_nonzero(x)), x.size) for x in samples]
        (N, n_id), (F, n_ood), (Q, n_new) = counts
        return precision_pvalue(self.limit, N, n_id, F, n_ood, Q, n_new, delta)

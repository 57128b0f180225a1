"""p-values of statements about one fixed acceptance rule, valid for finite samples.

The null hypothesis is that the statement is false. Every p-value is at most `delta`
with a probability of at most `delta` if it is, for any distribution and any number of
samples: counts are compared with binomial distributions, means of bounded variables are
tested by betting [1]_, and a nuisance rate is taken from a confidence interval, whose
error is added [2]_. No p-value relies on continuous scores, so that ties do not matter.

References
----------
.. [1] I. Waudby-Smith, A. Ramdas. Estimating means of bounded random variables by
   betting. Journal of the Royal Statistical Society B 86, 2024.
.. [2] R. L. Berger, D. D. Boos. P values maximized over a confidence set for the
   nuisance parameter. Journal of the American Statistical Association 89, 1994.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
from scipy.special import bdtr
from scipy.stats import binom

from skood.stats._mean_intervals import clopper_pearson
from skood.utils._ties import GUARD
from skood.utils._warnings import warn

# Cells of the nuisance rate, and the tails of counts that are added to the p-value.
_CELLS, _TAIL = 100, 1e-9


def at_least(count, n, fraction):
    """Return the p-value of "at least a fraction `fraction` is accepted"."""
    return float(binom.sf(count - 1, n, fraction)) if fraction > 0 else 0.0


def at_most(count, n, fraction):
    """Return the p-value of "the fraction of accepted samples is at most `fraction`".

    It also tests a bound on the selective risk, where `count` of `n` accepted samples
    have a loss: given their number, these are binomial.
    """
    return float(binom.cdf(count, n, fraction)) if fraction < 1 else 0.0


def fixed_stake(bound, variance, n, delta):
    """Return the stake of a bet that the mean in [0, 1] is below `bound`.

    It suits `n` samples of the variance, and keeps the wealth positive.
    """
    largest = 0.9 / (1 - bound) if bound < 1 else math.inf
    return min(largest, math.sqrt(-2 * math.log(delta) / (n * variance)))


def predictable_stakes(values, bound, delta):
    """Return a stake for each value in [0, 1], from the values before it.

    Section 3.2 of [1]_ of this file, with running estimates of mean and variance.
    """
    steps = np.arange(1, len(values) + 1)
    mean = (0.5 + np.cumsum(values)) / (steps + 1)
    variance = (0.25 + np.cumsum((values - mean) ** 2)) / (steps + 1)
    before = np.append(0.25, variance[:-1])
    stakes = np.sqrt(-2 * math.log(delta) / (max(len(values), 1) * before))
    return np.minimum(0.75 / (1 - bound) if bound < 1 else np.inf, stakes)


def betting(values, bound, stakes):
    r"""Return the p-value of "the mean of values in [0, 1] is at most `bound`".

    The wealth :math:`K_m = \prod_{i \le m} (1 + \nu (r - x_i))` is a non-negative
    supermartingale if the mean is at least r, so that one over its maximum is a p-value
    by Ville's inequality. Samples must be in an order that does not depend on the
    values. `stakes` is a number or has one number per value.
    """
    with np.errstate(divide="ignore"):
        log_wealth = np.cumsum(np.log1p(stakes * (bound - values)))
    return math.exp(-max(0.0, log_wealth.max(initial=0.0)))


def is_sorted(values):
    """Return whether values are sorted, but not all equal."""
    first, second = values[:-1], values[1:]
    return bool(
        ((first <= second).all() or (first >= second).all()) and (first != second).any()
    )


def least_where(holds, low, high, accuracy):
    """Return the least number where `holds`, which is monotone; `high` if nowhere."""
    while high - low > accuracy:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def betting_bound(values, delta):
    """Return an upper bound on the mean of values in [0, 1], see `risk_upper_bound`."""
    if len(values) > 20 and is_sorted(values):
        warn(
            f"The {len(values)} losses are sorted, but a bound by betting requires an "
            "order that does not depend on them. Pass them in the order of arrival, or "
            "rng.permutation(loss)."
        )
    stakes = predictable_stakes(values, 0.0, delta)

    def is_reached(r):
        wealth = np.cumsum(np.log1p(stakes * (r - values)))
        return wealth.max() >= -math.log(delta)

    return least_where(is_reached, 0.0, 1.0, 1e-12) if is_reached(1.0) else 1.0


def two_sample(N, n_id, F, n_ood, id_factor, ood_factor, delta):
    r"""Return the p-value of ``id_factor * t >= ood_factor * f``, an exact test.

    With :math:`T = R N / n_I - W F / n_O`, the probability of a statistic at least as
    large grows with t and falls with f. On the border :math:`f = R t / W` it is bounded
    in each of 100 cells of a confidence interval of t by its value for the largest t
    and the smallest f of the cell.
    """
    gamma = delta / 100
    _, low, high = clopper_pearson(N, n_id, 1 - gamma)
    high = min(high, ood_factor / id_factor)
    if low > high:  # the statement holds for all rates in the interval
        return gamma
    statistic = id_factor * N / n_id - ood_factor * F / n_ood
    edges = np.linspace(low, high, _CELLS + 1)
    f_low = np.minimum(1.0, id_factor * edges[:-1] / ood_factor)[:, None]
    t_high = edges[1:, None]
    # Bernstein's inequality: other counts have a probability of at most 2 * _TAIL
    size = -math.log(_TAIL)
    spread = size / 3 + np.sqrt(size**2 / 9 + 2 * size * n_id * t_high * (1 - t_high))
    first = np.floor(np.maximum(n_id * t_high - spread, 0))
    counts = first + np.arange(math.ceil(2 * spread.max()) + 2)
    others = n_ood * (id_factor * counts / n_id - statistic) / ood_factor
    others = np.floor(others + GUARD)
    below = _cumulated_binomial(others, n_ood, f_low)
    probabilities = np.einsum("ij,ij->i", binom.pmf(counts, n_id, t_high), below)
    return min(1.0, gamma + float(probabilities.max()) + 2 * _TAIL)


def _cumulated_binomial(counts, n, fraction):
    """Return P(Bin(n, fraction) <= counts), of shape (n_cells, n_counts), 0 below 0.

    The shape of `fraction` is (n_cells, 1).
    """
    counts = np.clip(counts, -1, n).astype(np.intp)
    least = int(counts.min())
    values = np.arange(max(least, 0), int(counts.max()) + 1)
    with np.errstate(invalid="ignore"):
        if values.size > counts.shape[1]:
            probabilities = bdtr(np.maximum(counts, 0), n, fraction)
        else:  # few counts, which are repeated
            probabilities = bdtr(values, n, fraction)
            columns = np.maximum(counts - max(least, 0), 0)
            probabilities = np.take_along_axis(probabilities, columns, axis=1)
    probabilities[counts < 0] = 0.0
    return probabilities


def weighted_sum(values, accepted, ood_factor, stakes, delta):
    r"""Return the p-value of "the mean of z plus ``ood_factor * f`` is at most 0".

    `values` are z of the ID samples, `accepted` the decisions on the OOD samples, 0 or
    1, whose mean is f, and `stakes` a pair. For a given f the wealth

    .. math::
        K(f) = \prod_i (1 + \nu_I (-c f - z_i)) \prod_j (1 + \nu_O (c f - c B_j))

    has a mean of at most 1 if the statement is false. Its logarithm is concave in f: on
    an interval of f it is smallest at one of the ends.
    """
    gamma, ends = 0.0, (0.0,)
    if ood_factor:
        gamma = delta / 100
        count = int(np.sum(accepted))
        ends = clopper_pearson(count, len(accepted), 1 - gamma)[1:]
    least = math.inf
    for f in ends:
        shift = ood_factor * f
        with np.errstate(divide="ignore", invalid="ignore"):
            wealth = np.log1p(stakes[0] * (-shift - values)).sum()
            if ood_factor:
                gains = stakes[1] * (shift - ood_factor * np.asarray(accepted))
                wealth += np.log1p(gains).sum()
        least = min(least, float(wealth))
    return min(1.0, gamma + math.exp(-max(least, -700.0)))

"""Confidence intervals of a mean that hold for any number of samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, rel_entr
from scipy.stats import beta


class Estimate(NamedTuple):
    """A number and its confidence interval.

    Parameters
    ----------
    value : float
        The estimate; NaN where it is undefined.

    low, high : float
        Ends of the interval; NaN where there is none.
    """

    value: float
    low: float
    high: float


UNDEFINED = Estimate(math.nan, math.nan, math.nan)


def clopper_pearson(successes, trials, confidence_level=0.95):
    """Return a fraction with its exact two-sided interval; all NaN without trials."""
    if trials == 0:
        return UNDEFINED
    tail = (1.0 - confidence_level) / 2
    low = beta.ppf(tail, successes, trials - successes + 1) if successes else 0.0
    high = 1.0
    if successes < trials:
        high = beta.ppf(1 - tail, successes + 1, trials - successes)
    return Estimate(successes / trials, float(low), float(high))


def _hoeffding(mean, n, delta):
    """Return the largest mean that Hoeffding's inequality does not rule out."""
    if mean >= 1:
        return 1.0

    def slack(r):  # Theorem 1 of Hoeffding, [2] of `risk_upper_bound`
        return n * (rel_entr(mean, r) + rel_entr(1 - mean, 1 - r)) + math.log(delta)

    top = math.nextafter(1.0, 0.0)
    return float(brentq(slack, mean, top)) if slack(top) > 0 else 1.0


def hoeffding_bentkus(total, n, delta):
    """Return an upper bound on the mean of a variable in [0, 1].

    `total` is the sum of `n` samples of it; the bound holds with a probability of
    1 - `delta`. See the notes of `risk_upper_bound`.
    """
    bentkus = 1.0
    if delta < math.e:
        k = min(math.ceil(total), n)
        bentkus = clopper_pearson(k, n, 1 - 2 * delta / math.e).high
    return min(bentkus, _hoeffding(min(total / n, 1.0), n, delta))


def _betting(values, delta):
    r"""Return an upper bound on the mean of a variable in [0, 1], by fixed bets.

    The wealth :math:`\prod_i (1 - \lambda (x_i - m))`, :math:`0 < \lambda \le 1`, of
    one who bets on a mean below `m` is 1 on average if `m` is the mean, and so is the
    average over :math:`\lambda`, for any order of the samples. By Markov's inequality
    `m` is ruled out where it is 1 / `delta`: section 4.2 of [4] of `risk_upper_bound`.
    The bets suit variances 1/4, 1/16, ...
    """
    values, counts = np.unique(values, return_counts=True)
    n, mean = counts.sum(), np.average(values, weights=counts)
    least = math.sqrt(-8 * math.log(delta) / n)
    bets = np.append(least * 2.0 ** np.arange(math.log2(max(1, 1 / least))), 1.0)

    def slack(m):
        gains = np.log1p(-bets[:, None] * (values - m)) @ counts
        return float(logsumexp(gains)) - math.log(len(bets)) + math.log(delta)

    top = math.nextafter(1.0, 0.0)
    if mean >= top or slack(top) <= 0:
        return 1.0
    return float(brentq(slack, mean, top))


def _upper_bound(values, delta):
    """Return the smaller of two upper bounds that hold together."""
    by_moments = hoeffding_bentkus(math.fsum(values), len(values), delta / 2)
    return min(by_moments, _betting(values, delta / 2))


def mean_interval(values, possible, confidence_level):
    """Return the mean of a variable of known range with its interval; NaN without any.

    `possible` has the values that the variable can take, or the ends of its range and a
    value in between; None: there is no interval. With two values, which must be known
    beforehand and not from the samples, the interval is of Clopper and Pearson; else
    each end is the better of two bounds: by the inequalities of Hoeffding and Bentkus,
    which suit losses that are mostly 0, and by betting, which uses their variance.
    """
    n = len(values)
    if n == 0:
        return UNDEFINED
    mean = float(np.mean(values))
    if possible is None:
        return Estimate(mean, math.nan, math.nan)
    possible = np.unique(possible)
    least, scale = float(possible[0]), float(possible[-1] - possible[0])
    if scale == 0:
        return Estimate(mean, least, least)
    if len(possible) == 2:
        fraction = clopper_pearson(int(np.sum(values > least)), n, confidence_level)
        return Estimate(mean, *(least + scale * end for end in fraction[1:]))
    tail = (1 - confidence_level) / 2
    # the lower end is the upper end for the distance to the largest value
    high = _upper_bound(np.clip((values - least) / scale, 0, 1), tail)
    missing = _upper_bound(np.clip((least + scale - values) / scale, 0, 1), tail)
    low, high = least + scale * (1 - missing), least + scale * high
    return Estimate(mean, min(low, mean), max(high, mean))

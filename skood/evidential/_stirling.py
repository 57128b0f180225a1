"""Log gamma and digamma functions without their large terms (Stirling series)."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.special import digamma, gammaln

# From here on the Stirling series have full precision. They are in powers of 1 / x^2,
# with the Bernoulli numbers B_2k: B_2k / (2k (2k - 1)) for Delta, B_2k / 2k for delta.
_LARGE = 10.0
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_DELTA_GAMMA = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, start=1)]
_DELTA_PSI = [b / (2 * k) for k, b in enumerate(_BERNOULLI, start=1)]

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


def _series(x, coefficients, start):
    """Return the sum of coefficient k times x to the power of start - 2k."""
    squared = x**-2
    total = np.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * squared + coefficient
    return total * x**start


def _by_size(x, small, large):
    """Evaluate one function below `_LARGE`, another above."""
    is_large = x >= _LARGE
    found = np.empty_like(x)
    found[is_large] = large(x[is_large])
    found[~is_large] = small(x[~is_large])
    return found


def stirling_rest(x):
    """Return the rest of Stirling's formula, Delta(x) = 1 / 12x - 1 / 360x^3 + ....

    x is positive, with at least one axis.
    """
    return _by_size(
        x,
        lambda x: gammaln(x) - ((x - 0.5) * np.log(x) - x + HALF_LOG_2PI),
        lambda x: _series(x, _DELTA_GAMMA, -1),
    )


def log_minus_digamma(x):
    """Return delta(x) = log x - digamma(x) = 1 / 2x + 1 / 12x^2 - ....

    x is positive, with at least one axis, and so is the result.
    """
    return _by_size(
        x,
        lambda x: 1.0 / x - (digamma(x + 1.0) - np.log(x)),
        lambda x: 0.5 / x + _series(x, _DELTA_PSI, -2),
    )


def digamma_next_minus_log(x):
    """Return digamma(x + 1) - log x = 1 / 2x - 1 / 12x^2 + ..., decreasing to 0.

    x is positive, with at least one axis, and so is the result.
    """
    return _by_size(
        x,
        lambda x: digamma(x + 1.0) - np.log(x),
        lambda x: 0.5 / x - _series(x, _DELTA_PSI, -2),
    )


def digamma_gain(x, gain):
    """Return digamma(x + gain) - digamma(x) as a sum of positive numbers.

    The recurrence of digamma shifts x to `_LARGE`; differences of the powers in the
    series there are multiples of the gain. x is positive, with at least one axis, and
    `gain` is non-negative and of the same shape.
    """
    total = np.zeros_like(x)
    while (is_small := x < _LARGE).any():
        total += np.where(is_small, gain / x / (x + gain), 0.0)
        x = np.where(is_small, x + 1.0, x)
    u, v = 1.0 / x, 1.0 / (x + gain)
    difference = gain * u * v  # u - v
    total += np.log1p(gain * u) + 0.5 * difference
    # u^2k - v^2k = (u^2 - v^2) (u^(2k-2) + u^(2k-4) v^2 + ... + v^(2k-2))
    sum_of_powers = np.zeros_like(total)
    series = np.zeros_like(total)
    v_power = np.ones_like(total)
    for coefficient in _DELTA_PSI:
        sum_of_powers = sum_of_powers * u**2 + v_power
        v_power = v_power * v**2
        series += coefficient * sum_of_powers
    return total + difference * (u + v) * series

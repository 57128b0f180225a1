"""The rule closest to bounds that no rule meets."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.decision._base_rule import BaseRule
from skood.decision._objective import Goal
from skood.utils._ties import GUARD

# Accuracy of the least violation: less than a sample in a billion.
_ACCURACY = 1e-9


class _Loosened(BaseRule):
    """A rule whose bounds may each be violated by an amount."""

    def __init__(self, rule, amount):
        self.rule = rule
        self.amount = amount

    def rates(self):
        return self.rule._loosened_rates(self.amount)

    def cost(self):
        return self.rule.cost()


def nearest(problem, rule, optimize, find, *, whole, randomize):
    """Return the best rule of those with the least largest violation, and the latter.

    `optimize` returns the best rule of a goal, or None; `find` returns some rule that
    meets its bounds, or None. `whole` is as in `BaseRule.bounds`.

    The violation is bracketed: each rule that is found lowers the upper end to the
    least violation at its angle. The bracket is halved, or the violation just below the
    upper end is tried, which is the last search if no rule has it.
    """

    def goal(amount):
        return Goal.of(_Loosened(rule, amount), problem, whole=whole)

    low, high = 0.0, 1.0
    found = find(goal(high))
    while found is None:
        low, high = high, 2 * high  # a risk of large losses
        found = find(goal(high))
    accuracy = _ACCURACY * max(high, 1.0)
    halves = False
    while high - low > 1.5 * accuracy:  # differences are rounded
        if found is not None:
            high = _least_at(problem, found.theta, goal, low, high, accuracy, randomize)
            halves = not halves and high - low > 2 * accuracy
        amount = (low + high) / 2 if halves else high - accuracy
        found = find(goal(amount))
        if found is not None:
            high = amount
        else:
            low, halves = amount, False
    # Rules with equal violations may differ by the guard against rounding.
    return optimize(goal(high + GUARD + accuracy)), round(high, 9)


def _least_at(problem, theta, goal, low, high, accuracy, randomize):
    """Return the least violation of the rules of an angle, which have at most `high`.

    It is at least `low`, and is found by bisection.
    """
    lam, *after = problem.points(theta)
    before = [np.append(0, count[:-1]) for count in after] if randomize else None
    while high - low > accuracy / 2:
        middle = (low + high) / 2
        found = problem.best_of(theta, lam, *after, goal=goal(middle), before=before)
        low, high = (middle, high) if found is None else (low, middle)
    return high

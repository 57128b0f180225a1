"""The rule closest to bounds that no rule meets."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.decision._base_rule import GUARD, BaseRule
from skood.decision._objective import Goal

__all__ = ["nearest"]

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


def nearest(problem, rule, optimize, *, whole):
    """Return the best rule of those with the least largest violation, and the latter.

    The violation is found by bisection: `optimize` returns the best rule of a goal, or
    None. `whole` is as in `BaseRule.bounds`.
    """

    def best_within(amount):
        goal = Goal.of(_Loosened(rule, amount), problem, whole=whole)
        return optimize(goal)

    low, high = 0.0, 1.0
    while best_within(high) is None:
        low, high = high, 2 * high  # a risk of large losses
    accuracy = _ACCURACY * max(high, 1.0)
    while high - low > accuracy:
        middle = (low + high) / 2
        low, high = (low, middle) if best_within(middle) else (middle, high)
    # Rules with equal violations may differ by the guard against rounding.
    return best_within(high + GUARD + accuracy), round(high, 9)

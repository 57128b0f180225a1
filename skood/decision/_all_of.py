"""AllOf: the bounds of several rules at once."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools

import numpy as np

from skood.decision._base_rule import BaseRule, check_rule


class AllOf(BaseRule):
    """Bounds of several rules at once, with the objective of the first.

    Read more in the :ref:`User Guide <own_rule>`.

    Parameters
    ----------
    rules : list of BaseRule
        The rules, at least one. The first one's objective is minimized.

    See Also
    --------
    BoundedTPRFPR, BoundedImprovement, BoundedPrecisionRecall : Rules to combine.
    certify : Guarantees all bounds together.

    Notes
    -----
    A rule without a search, such as :class:`TwoThresholds`, cannot be combined.

    Examples
    --------
    Bounds on TPR, FPR and selective risk:

    >>> from skood.rejection import AllOf, BoundedImprovement, BoundedTPRFPR
    >>> from skood.rejection import ScoredSamples, solve
    >>> rule = AllOf([BoundedTPRFPR(0.5, 0.5), BoundedImprovement(0.25)])
    >>> scores = [0, 0, 1, 1, 2, 3], None, [0, 0, 1, 0, 0, 1], [0, 2, 2, 3], None
    >>> point = solve(rule, ScoredSamples.from_arrays(*scores))
    >>> point.tpr, point.risk, point.fpr
    (0.6666666666666666, 0.25, 0.25)
    """

    _parameter_constraints: dict = {"rules": [list, tuple]}

    def __init__(self, rules):
        self.rules = rules

    def check_params(self):
        super().check_params()
        if not self.rules:
            raise ValueError("rules of AllOf is empty; pass at least one rule.")
        for rule in self.rules:
            check_rule(rule)
            if not rule.is_searched or rule.plug_in() is not None:
                raise ValueError(
                    f"{type(rule).__name__} is found without a search and cannot be "
                    "combined with other rules."
                )

    @property
    def ood_prior(self):
        """Fraction of OOD samples in deployment of the first rule with one, or None."""
        priors = (rule.ood_prior for rule in self.rules)
        return next((prior for prior in priors if prior is not None), None)

    @property
    def has_open_prior(self):
        return any(rule.has_open_prior for rule in self.rules)

    @property
    def error_rates(self):
        return sum((rule.error_rates for rule in self.rules), ())

    def rates(self):
        return tuple(itertools.chain.from_iterable(r.rates() for r in self.rules))

    def cost(self):
        return self.rules[0].cost()

    def statements(self):
        statements = itertools.chain.from_iterable(r.statements() for r in self.rules)
        return tuple(dict.fromkeys(statements))

    def violation(self, tpr, fpr=np.nan, risk=np.nan):
        return sum(rule.violation(tpr, fpr, risk) for rule in self.rules)

    def _loosened_rates(self, amount):
        return tuple(
            itertools.chain.from_iterable(r._loosened_rates(amount) for r in self.rules)
        )

    def _at_prior(self, ood_prior):
        """Return the rule at another fraction of OOD samples."""
        return AllOf([rule._at_prior(ood_prior) for rule in self.rules])

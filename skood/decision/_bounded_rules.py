"""Rules that minimize the risk, or maximize answers, within bounds; several at once."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools
from numbers import Real

import numpy as np
from sklearn.base import clone

from skood.decision._base_rule import BaseRule, Linear, check_rule, excess
from skood.utils._param_validation import Number

_FRACTION = [Number(Real, 0, 1, closed="both")]


class BoundedTPRFPR(BaseRule):
    r"""Least selective risk at a bounded TPR and FPR.

    Minimizes the mean loss of the accepted ID samples, where at least the fraction
    `tpr_min` of ID samples and at most the fraction `fpr_max` of OOD samples are
    accepted. Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    tpr_min : float, default=0.8
        Least fraction of ID samples to accept, in [0, 1].

    fpr_max : float, default=0.2
        Largest fraction of OOD samples to accept, in [0, 1].

    See Also
    --------
    BoundedAbstention : The same without OOD samples.
    skood.metrics.selective_risk_at : The selective risk of the best such rule.

    Notes
    -----
    With :math:`N` of :math:`n_I` ID samples accepted at a summed loss :math:`E`, and
    :math:`F` of :math:`n_O` OOD samples, the problem is

    .. math::
        \min E / N \quad\text{such that}\quad
        N \ge \lceil \phi n_I \rceil,\ F \le \lfloor \rho n_O \rfloor

    with :math:`\phi` = `tpr_min` and :math:`\rho` = `fpr_max` [1]_. At least one ID
    sample is accepted, since the risk of an empty region is undefined.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> from skood.rejection import BoundedTPRFPR, ScoredSamples, solve
    >>> scores = [0, 0, 1, 1, 2, 3], None, [0, 0, 1, 0, 0, 1], [0, 2, 2, 3], None
    >>> samples = ScoredSamples.from_arrays(*scores)
    >>> point = solve(BoundedTPRFPR(tpr_min=0.5, fpr_max=0.25), samples)
    >>> point.risk, round(point.tpr, 4), point.fpr
    (0.25, 0.6667, 0.25)
    """

    _parameter_constraints: dict = {"tpr_min": _FRACTION, "fpr_max": _FRACTION}

    def __init__(self, tpr_min=0.8, fpr_max=0.2):
        self.tpr_min = tpr_min
        self.fpr_max = fpr_max

    def rates(self):
        return (
            Linear(id=-1.0, constant=self.tpr_min),
            Linear(ood=1.0, constant=-self.fpr_max),
        )


class BoundedPrecisionRecall(BaseRule):
    r"""Least selective risk at a bounded precision and recall.

    Minimizes the mean loss of the accepted ID samples, where at least the fraction
    `recall_min` of ID samples is accepted, and at least the fraction `precision_min` of
    accepted samples is ID when the fraction `ood_prior` of samples is OOD. Read more in
    the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    precision_min : float, default=0.9
        Least fraction of ID samples among accepted samples, in [0, 1].

    recall_min : float, default=0.8
        Least fraction of ID samples to accept, in [0, 1].

    ood_prior : float, default=0.5
        Fraction of OOD samples in deployment, in [0, 1). It is never estimated from the
        data.

    See Also
    --------
    BoundedTPRFPR : Bounds TPR and FPR, which do not depend on a prior.
    skood.metrics.selective_risk_at : The selective risk of the best
        such rule.

    Notes
    -----
    With the prior :math:`\pi`, the precision is at least :math:`\kappa` iff

    .. math::
        \kappa \pi \, F / n_O \le (1 - \pi)(1 - \kappa) \, N / n_I ,

    and so the problem is :math:`\min E / N` such that this holds and :math:`N \ge
    \lceil \phi n_I \rceil`, with :math:`\kappa` = `precision_min` and :math:`\phi` =
    `recall_min` [1]_. For a known distribution the optimum equals the optimum of
    :class:`BoundedTPRFPR` with the same :math:`\phi` and

    .. math::
        \rho = \phi \, \frac{(1 - \pi)(1 - \kappa)}{\pi \kappa} ,

    since neither the risk nor the precision changes when all probabilities of
    acceptance are multiplied by the same factor. On samples the two agree as long as
    the bound on the recall is tight.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> from skood.rejection import BoundedPrecisionRecall, ScoredSamples, solve
    >>> rule = BoundedPrecisionRecall(
    ...     precision_min=0.8, recall_min=0.5, ood_prior=0.25
    ... )
    >>> scores = [0, 0, 1, 1, 2, 3], None, [0, 0, 1, 0, 0, 1], [0, 2, 2, 3], None
    >>> samples = ScoredSamples.from_arrays(*scores)
    >>> point = solve(rule, samples)
    >>> point.risk, round(point.precision, 4), round(point.tpr, 4)
    (0.25, 0.8889, 0.6667)
    """

    _parameter_constraints: dict = {
        "precision_min": _FRACTION,
        "recall_min": _FRACTION,
        "ood_prior": [Number(Real, 0, 1, closed="left")],
    }

    def __init__(self, precision_min=0.9, recall_min=0.8, ood_prior=0.5):
        self.precision_min = precision_min
        self.recall_min = recall_min
        self.ood_prior = ood_prior

    @property
    def needs_ood(self):
        return self.ood_prior > 0

    def rates(self):
        return (
            Linear(id=-1.0, constant=self.recall_min),
            Linear(
                id=-(1 - self.ood_prior) * (1 - self.precision_min),
                ood=self.precision_min * self.ood_prior,
            ),
        )

    def violation(self, tpr, fpr=np.nan, risk=np.nan):
        tpr, fpr = np.asarray(tpr, dtype=np.float64), np.asarray(fpr)
        right = (1 - self.ood_prior) * tpr
        wrong = self.ood_prior * fpr if self.ood_prior else np.zeros_like(tpr)
        accepted = right + wrong
        # the precision of accepting nothing counts as zero
        precision = np.divide(
            right, accepted, out=np.zeros(accepted.shape), where=accepted != 0
        )
        missing = excess(self.recall_min - tpr)
        return (missing + excess(self.precision_min - precision))[()]

    def _loosened_rates(self, amount):
        """Return the bounds on rates for a smaller precision and recall."""
        fractions = ("precision_min", "recall_min")
        less = {name: max(getattr(self, name) - amount, 0.0) for name in fractions}
        return clone(self).set_params(**less).rates()


class BoundedAbstention(BaseRule):
    r"""Least selective risk at a bounded coverage; needs no OOD samples.

    Minimizes the mean loss of the accepted ID samples, where at least the fraction
    `coverage` of ID samples is accepted. Read more in the
    :ref:`User Guide <rejection>`.

    Parameters
    ----------
    coverage : float, default=0.8
        Least fraction of ID samples to accept, in [0, 1].

    See Also
    --------
    BoundedTPRFPR : Also bounds the fraction of OOD samples accepted.

    Notes
    -----
    With :math:`N` of :math:`n_I` ID samples accepted at a summed loss :math:`E`, the
    problem is

    .. math::
        \min E / N \quad\text{such that}\quad N \ge \lceil \phi n_I \rceil

    with :math:`\phi` = `coverage`. The risk does not always grow with the coverage, so
    the best rule may accept more than the bound.

    Examples
    --------
    >>> from skood.rejection import BoundedAbstention, ScoredSamples, solve
    >>> rule = BoundedAbstention(coverage=0.5)
    >>> scores = [0.1, 0.2, 0.3, 0.4], None, [0, 1, 0, 1], None, None
    >>> samples = ScoredSamples.from_arrays(*scores)
    >>> point = solve(rule, samples)
    >>> round(point.risk, 4), point.tpr
    (0.3333, 0.75)
    """

    _parameter_constraints: dict = {"coverage": _FRACTION}

    def __init__(self, coverage=0.8):
        self.coverage = coverage

    def rates(self):
        return (Linear(id=-1.0, constant=self.coverage),)


class BoundedErrorRate(BaseRule):
    r"""Most answers at a bounded fraction of errors among them, OOD samples included.

    Maximizes the fraction of accepted samples, where at most the fraction `error_max`
    of them is wrong, and accepted OOD samples are wrong. Read more in the
    :ref:`User Guide <guarantees_mixture>`.

    .. versionadded:: 0.2

    Parameters
    ----------
    error_max : float, default=0.1
        Largest error rate, not negative: the mean loss of accepted samples, of OOD
        samples 1 (of a mixture, the `max_loss` of the certificate).

    ood_prior : float or None, default=None
        Fraction of OOD samples in deployment, in [0, 1). None: unknown, for samples of
        one mixture, with ``Certificate(sampling="mixture")``.

    See Also
    --------
    BoundedImprovement : Bounds the errors among the accepted ID samples alone.
    BoundedPrecisionRecall : Bounds the fraction of OOD samples among accepted samples.

    Notes
    -----
    With the prior :math:`\pi`, TPR t, FPR f, and the summed loss e of the accepted ID
    samples per ID sample, the problem is

    .. math::
        \max \, (1 - \pi) t + \pi f \quad\text{such that}\quad
        (1 - \pi) e + \pi f \le \alpha \left((1 - \pi) t + \pi f\right)

    with :math:`\alpha` = `error_max`, and at least one ID sample is accepted.

    Examples
    --------
    >>> from skood.rejection import BoundedErrorRate, ScoredSamples, solve
    >>> rule = BoundedErrorRate(error_max=0.45, ood_prior=0.2)
    >>> scores = [0.1, 0.2, 0.3, 0.4], None, [0, 1, 0, 1], [0.15, 0.35], None
    >>> point = solve(rule, ScoredSamples.from_arrays(*scores))
    >>> point.tpr, point.fpr, round(-point.objective, 4)
    (0.75, 0.5, 0.7)
    """

    _parameter_constraints: dict = {
        "error_max": [Number(Real, 0, None, closed="left")],
        "ood_prior": [Number(Real, 0, 1, closed="left"), None],
    }

    def __init__(self, error_max=0.1, ood_prior=None):
        self.error_max = error_max
        self.ood_prior = ood_prior

    @property
    def has_open_prior(self):
        return self.ood_prior is None

    @property
    def error_rates(self):
        return (self.error_max,)

    def statements(self):
        """Return the bound at the prior; without one it is in `error_rates` alone."""
        return () if self.ood_prior is None else super().statements()

    def _prior(self):
        """Return the prior, or raise."""
        if self.ood_prior is None:
            raise ValueError(
                "BoundedErrorRate depends on the fraction of OOD samples in "
                "deployment: set ood_prior, or certify it with "
                "Certificate(sampling='mixture') if ID and OOD samples were drawn "
                "together, as in deployment."
            )
        return self.ood_prior

    def rates(self):
        a, prior = self.error_max, self._prior()
        return (Linear(id=-a * (1 - prior), loss=1 - prior, ood=prior * (1 - a)),)

    def _loosened_rates(self, amount):
        """Return the bound for a larger error rate."""
        return clone(self).set_params(error_max=self.error_max + amount).rates()

    def cost(self):
        prior = self._prior()
        return Linear(id=-(1 - prior), ood=-prior)


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

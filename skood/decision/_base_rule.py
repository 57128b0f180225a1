"""Base class of decision rules: an objective within bounds, linear in three rates."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from abc import ABCMeta, abstractmethod
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from skood.utils._estimator import SkoodEstimator, check_options
from skood.utils._ties import GUARD


class Linear(NamedTuple):
    """The function ``id * t + loss * e + ood * f + constant`` of an acceptance region.

    Its arguments are rates, see :class:`BaseRule`, or the counts :math:`N, E, F`.

    Parameters
    ----------
    id : float, default=0.0
        Factor of the accepted ID samples.

    loss : float, default=0.0
        Factor of the summed loss of the accepted ID samples.

    ood : float, default=0.0
        Factor of the accepted OOD samples.

    constant : float, default=0.0
        Constant term.

    See Also
    --------
    BaseRule : Its bounds and its cost have this form.

    Examples
    --------
    >>> from skood.rejection import Linear
    >>> Linear(id=-1.0, constant=7.0).at(5, 0.0, 0)
    2.0
    """

    id: float = 0.0
    loss: float = 0.0
    ood: float = 0.0
    constant: float = 0.0

    def at(self, N, E, F):
        """Return the value, elementwise.

        Parameters
        ----------
        N, E, F : ndarray or number
            Accepted ID samples, their summed loss, accepted OOD samples; or rates.

        Returns
        -------
        value : ndarray or float
            The value.
        """
        value = self.constant
        for factor, count in zip(self[:3], (N, E, F), strict=True):
            if factor:
                value = value + factor * count
        return value

    def in_counts(self, n_id, n_ood):
        """Return a function of rates as a function of counts.

        Parameters
        ----------
        n_id, n_ood : int
            Numbers of ID and OOD samples.

        Returns
        -------
        function : Linear
            The same function of N, E and F; NaN if it depends on f without OOD samples.
        """
        by_ood = self.ood / n_ood if n_ood else self.ood and math.nan
        return Linear(self.id / n_id, self.loss / n_id, by_ood, self.constant)


def is_floor(bound: Linear) -> bool:
    """Return whether a bound is a lower bound on the accepted ID samples alone."""
    return bound.id < 0 and bound.loss == 0 and bound.ood == 0


def excess(amount):
    """Return the positive part of `amount`, where rounding counts as zero."""
    return np.where(amount <= GUARD, 0.0, amount)


class BaseRule(SkoodEstimator, metaclass=ABCMeta):
    r"""Interface of the rules of :mod:`skood.rejection`: an objective within bounds.

    An acceptance region has three rates: its TPR `t`, the accepted fraction of ID
    samples; `e`, the summed loss of the accepted ID samples divided by the number of
    all ID samples, so that ``e / t`` is the selective risk; and its FPR `f`, the
    accepted fraction of OOD samples. Subclasses implement :meth:`rates`, linear
    functions of them that must not be positive. They minimize the selective risk or, if
    they implement it, :meth:`cost`, which is linear as well. Solvers, certificates,
    scorers and displays use no more than that, so that a rule of your own works
    everywhere. Read more in the :ref:`User Guide <own_rule>`.

    Parameters are declared in ``__init__`` and ``_parameter_constraints``, as in an
    estimator of scikit-learn; :meth:`check_params` may be extended by conditions on
    several of them. A rule with a parameter `ood_prior` reports the precision.

    See Also
    --------
    BoundedTPRFPR : Least selective risk at a bounded TPR and FPR.
    BoundedPrecisionRecall : Least selective risk at a bounded precision and recall.
    BoundedAbstention : Least selective risk at a bounded coverage.
    BoundedImprovement : Largest coverage at a bounded selective risk.
    CostBased : Least expected cost.
    skood.rejection.solve : Finds the best acceptance region of a rule.

    Examples
    --------
    Least FPR at a bounded coverage and a bounded selective risk:

    >>> from skood.rejection import BaseRule, Linear, ScoredSamples, solve
    >>> class LeastFPR(BaseRule):
    ...     def __init__(self, coverage=0.5, risk_max=0.3):
    ...         self.coverage = coverage
    ...         self.risk_max = risk_max
    ...
    ...     def rates(self):
    ...         return (
    ...             Linear(id=-1.0, constant=self.coverage),  # t >= coverage
    ...             Linear(id=-self.risk_max, loss=1.0),  # e <= risk_max * t
    ...         )
    ...
    ...     def cost(self):
    ...         return Linear(ood=1.0)  # f
    >>> scores = [1, 2, 3, 4], None, [0, 0, 1, 1], [2.5, 9], None
    >>> point = solve(LeastFPR(), ScoredSamples.from_arrays(*scores))
    >>> point.tpr, point.risk, point.fpr
    (0.5, 0.0, 0.0)
    """

    #: Fraction of OOD samples in deployment, for the precision; None: unknown.
    ood_prior: Any = None

    #: Whether samples of one mixture may take the place of a prior.
    has_open_prior: Any = False

    #: Bounds on the error rate among all answers, see :class:`BoundedErrorRate`.
    error_rates: Any = ()

    _parameter_constraints: dict = {}

    #: Whether the best rule is searched; False: it is known without a search.
    is_searched = True

    @property
    def needs_ood(self):
        """Whether OOD samples are required: if a bound or the cost depends on f."""
        functions = [*self.rates(), self.cost() or Linear()]
        return any(map(itemgetter(2), functions))

    def check_params(self):
        """Raise a ValueError if a parameter is out of its range, or of another type."""
        check_options(self)

    @abstractmethod
    def rates(self):
        """Return the bounds, as functions of the rates that must not be positive.

        Returns
        -------
        rates : tuple of Linear
            Functions of t, e and f. A lower bound on t alone, and a bound on the
            selective risk or on the error rate, also require that at least one ID
            sample is accepted.
        """

    def cost(self):
        """Return the objective if it is linear.

        Returns
        -------
        cost : Linear or None
            Function of t, e and f. None: the objective is the selective risk e / t.
        """
        return None

    def statements(self):
        """Return the bounds that some acceptance region breaks, to be certified.

        Returns
        -------
        statements : tuple of Linear
            Functions of t, e and f that must not be positive.
        """
        return tuple(filter(_can_break, self.rates()))

    def bounds(self, n_id, n_ood, *, whole=True):
        """Return the bounds on counts of samples that follow from :meth:`rates`.

        Parameters
        ----------
        n_id, n_ood : int
            Numbers of ID and OOD samples.

        whole : bool, default=True
            Samples are accepted as a whole, so that bounds on one count are rounded to
            the next count that meets them. False: with probabilities.

        Returns
        -------
        bounds : tuple of Linear
            Functions of N, E and F that must not be positive.
        """
        rates = self.rates()
        bounds = []
        if any(map(_bounds_ratio, rates)) and not any(map(is_floor, rates)):
            bounds.append(Linear(id=-1.0, constant=1.0))
        for rate in rates:
            bounds.append(_bound_on_counts(rate, n_id, n_ood, whole))
        return tuple(bounds)

    def violation(self, tpr, fpr=np.nan, risk=np.nan):
        """Return the total amount by which the bounds are broken.

        Parameters
        ----------
        tpr, fpr, risk : ndarray or float
            True positive rate (coverage of ID samples), false positive rate (accepted
            fraction of OOD samples) and selective risk.

        Returns
        -------
        violation : ndarray or float
            Zero where all bounds are met; NaN where a needed rate is.
        """
        tpr, fpr = np.asarray(tpr, dtype=np.float64), np.asarray(fpr)
        loss = np.zeros(np.broadcast_shapes(tpr.shape, np.shape(risk)))
        np.multiply(risk, tpr, out=loss, where=tpr > 0)
        broken = [excess(rate.at(tpr, loss, fpr)) for rate in self.rates()]
        return sum(broken, start=np.zeros(tpr.shape))[()]

    def _at_prior(self, ood_prior):
        """Return the rule at another fraction of OOD samples, if it depends on it."""
        if self.ood_prior is None and not self.has_open_prior:
            return self
        return clone(self).set_params(ood_prior=ood_prior)

    def _loosened_rates(self, amount):
        """Return the bounds on rates if each may be violated by an amount.

        Bounds on the selective risk change by the amount, and so do the constants of
        the others.
        """
        return tuple(
            rate._replace(id=rate.id - amount * rate.loss)
            if _bounds_ratio(rate) and rate.ood == 0
            else rate._replace(constant=rate.constant - amount)
            for rate in self.rates()
        )

    def plug_in(self):
        """Return the rule on the scores if it is known without a search.

        Returns
        -------
        plug_in : tuple (mu, lam) of float or None
            Accept iff ``a + mu * b <= lam``. None: the rule must be searched.
        """
        return None

    def _point(self, problem, certificate=None, samples=None, rng=None):
        """Return the operating point on a `Problem` if it is known without a search.

        `certificate` is the `Certificate` of a guarantee for `samples`. None: search.
        """
        return None

    def feasible(self, N, E, F, n_id, n_ood):
        """Return which acceptance regions meet all bounds.

        Parameters
        ----------
        N, E, F : ndarray or number
            Accepted ID samples, their summed loss, accepted OOD samples.

        n_id, n_ood : int
            Numbers of ID and OOD samples.

        Returns
        -------
        met : ndarray or bool
            True where all bounds are met.
        """
        met = np.ones(np.broadcast_shapes(np.shape(N), np.shape(E), np.shape(F)), bool)
        for bound in self.bounds(n_id, n_ood):
            met &= bound.at(N, E, F) <= GUARD
        return met[()]

    def objective(self, N, E, F, n_id, n_ood):
        """Return the objective: the selective risk ``E / N``, or the cost.

        Parameters
        ----------
        N, E, F, n_id, n_ood
            As in :meth:`feasible`. If the rule leaves a prior open, the fraction of OOD
            samples takes its place.

        Returns
        -------
        objective : ndarray or float
            Smaller is better; infinite where it is undefined (``N = 0``).
        """
        N, E = np.asarray(N), np.asarray(E, dtype=np.float64)
        rule = self
        if self.has_open_prior:
            rule = self._at_prior(n_ood / (n_id + n_ood))
        cost = rule.cost()
        if cost is not None:
            return cost.in_counts(n_id, n_ood).at(N, E, np.asarray(F))
        objective = np.full(np.broadcast_shapes(N.shape, E.shape), np.inf)
        return np.divide(E, N, out=objective, where=N > 0)[()]


class Rebounded(BaseRule):
    """A rule with other bounds, and the same objective."""

    def __init__(self, rule, bounded):
        self.rule = rule
        self.bounded = bounded

    @classmethod
    def loosened(cls, rule, amount):
        """Return a rule whose bounds may each be violated by an amount."""
        return cls(rule, rule._loosened_rates(amount))

    def rates(self):
        return self.bounded

    def cost(self):
        return self.rule.cost()


def _can_break(rate):
    """Return whether a bound is broken by some rates in [0, 1]."""
    least = max(rate.id, 0.0) + max(rate.ood, 0.0) + rate.constant
    return rate.loss != 0 or least > GUARD


def _bounds_ratio(rate):
    """Return whether a bound is one on a ratio that needs an accepted ID sample."""
    return rate.loss > 0 >= rate.id and rate.ood >= 0 == rate.constant


def _bound_on_counts(rate, n_id, n_ood, whole):
    """Return a bound on rates as a bound in units of ID, or else OOD samples."""
    if rate.loss or (rate.id and rate.ood) or not (rate.id or rate.ood):
        by_ood = rate.ood * n_id / max(n_ood, 1)
        return Linear(rate.id, rate.loss, by_ood, rate.constant * n_id)
    factor, n = (rate.id, n_id) if rate.id else (rate.ood, n_ood)
    least = rate.constant / abs(factor) * n
    if whole:
        least = math.ceil(least - GUARD)
    if rate.id < 0:
        least = max(1, least)  # the risk of no sample is undefined
    sign, least = math.copysign(1.0, factor), float(least)
    return Linear(**{"id" if rate.id else "ood": sign, "constant": least})


def check_rule(rule):
    """Raise unless `rule` is a rule with valid parameters."""
    if isinstance(rule, type) and issubclass(rule, BaseRule):
        raise TypeError(
            f"rule must be an object, got the class {rule.__name__}: write "
            f"{rule.__name__}()."
        )
    if not isinstance(rule, BaseRule):
        raise TypeError(
            f"rule must be an instance of a rule, such as BoundedTPRFPR(), got "
            f"{rule!r}."
        )
    rule.check_params()


def least_tpr(rule, n_id=math.inf):
    """Return the least TPR that a rule allows, with `n_id` samples at least one."""
    rates = rule.rates()
    floors = [rate.constant / -rate.id for rate in rates if is_floor(rate)]
    needs_sample = rule.cost() is None or floors or any(map(_bounds_ratio, rates))
    return max([*floors, 1 / n_id if needs_sample else 0.0])


def rates_within(rates):
    """Return the largest lower bound on t alone and the least upper bound on f alone.

    They are None where there is no such bound.
    """
    floors = [rate.constant / -rate.id for rate in rates if is_floor(rate)]
    ceilings = [
        -rate.constant / rate.ood
        for rate in rates
        if rate.ood > 0 and rate.id == rate.loss == 0
    ]
    return max(floors, default=None), min(ceilings, default=None)


def as_requested(rule):
    """Return a rule as text, with all of its parameters."""
    params = ", ".join(f"{k}={v!r}" for k, v in rule.get_params().items())
    return f"{type(rule).__name__}({params})"


def attainable_rates(rule, attainable):
    """Return the arguments of an InfeasibleError that concern the bounds of a rule."""
    rates = rule.rates()
    arguments = {}
    if not any(rate.loss for rate in rates) or any(rate.ood for rate in rates):
        others = [rate for rate in rates if not is_floor(rate)]
        bounded = "bounds" if any(rate.id or rate.loss for rate in others) else "FPR"
        if rule.ood_prior is not None:
            bounded = "bounds" if any(rate.loss for rate in others) else "precision"
        arguments = {
            "max_tpr_at_fpr": attainable.max_tpr_at_fpr,
            "min_fpr_at_tpr": attainable.min_fpr_at_tpr,
            "bounded": bounded,
        }
    if any(rate.loss for rate in rates):
        arguments["min_risk"] = attainable.min_risk
    return arguments

"""Base class of decision rules: an objective and bounds linear in three counts."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABCMeta, abstractmethod
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from skood.utils._estimator import SkoodEstimator

__all__ = [
    "GUARD",
    "BaseRule",
    "Linear",
    "as_asked",
    "check_rule",
    "excess",
    "other_bound",
]

# Guard against rounding in ceil and floor of a share times a count, so that 0.7 of 10
# samples are 7 samples; smaller amounts are no violation.
GUARD = 1e-9


class Linear(NamedTuple):
    """The function ``id * N + loss * E + ood * F + constant`` of an acceptance region.

    Parameters
    ----------
    id : float, default=0.0
        Factor of the number N of accepted ID samples.

    loss : float, default=0.0
        Factor of the summed loss E of the accepted ID samples.

    ood : float, default=0.0
        Factor of the number F of accepted OOD samples.

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
            Accepted ID samples, their summed loss, accepted OOD samples.

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


def excess(amount):
    """Return the positive part of `amount`, where rounding counts as zero."""
    return np.where(amount <= GUARD, 0.0, amount)


class BaseRule(SkoodEstimator, metaclass=ABCMeta):
    """Interface of the rules of :mod:`skood.rejection`.

    A rule depends on an acceptance region through five numbers only: `N` accepted ID
    samples with the summed loss `E`, `F` accepted OOD samples, and the totals `n_id`
    and `n_ood`. The solver minimizes :meth:`objective` over the regions that are
    :meth:`feasible`. The objective is the selective risk ``E / N``, or linear in the
    three counts, and all bounds are linear in them, so that the solvers can certify an
    optimum.

    Subclasses implement :meth:`check_params`, :meth:`bounds` and :meth:`violation`;
    subclasses with a linear objective also implement :meth:`cost`. Rules that require
    OOD samples override `needs_ood`; for rules with a parameter `ood_prior` the solver
    reports the precision.

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
    >>> import numpy as np
    >>> from skood.rejection import BaseRule, BoundedTPRFPR
    >>> isinstance(BoundedTPRFPR(), BaseRule)
    True
    >>> N, E, F = np.array([5, 8, 10]), np.array([0, 2, 4]), np.array([0, 1, 3])
    >>> BoundedTPRFPR().feasible(N, E, F, n_id=10, n_ood=5)
    array([False,  True, False])
    """

    #: Share of OOD samples in use, from which the precision is reported; None: unknown.
    ood_prior: Any = None

    @property
    def needs_ood(self):
        """Return whether the rule requires OOD samples."""
        return False

    @abstractmethod
    def check_params(self):
        """Raise a ValueError or TypeError if a parameter is out of its range."""

    @abstractmethod
    def bounds(self, n_id, n_ood, *, whole=True):
        """Return the bounds, each as a function that must not be positive.

        Parameters
        ----------
        n_id, n_ood : int
            Numbers of ID and OOD samples.

        whole : bool, default=True
            Samples are accepted as a whole, so that bounds on counts are rounded to the
            next count that meets them. False: with probabilities.

        Returns
        -------
        bounds : tuple of Linear
            In units of samples. A bound on `N` alone is a lower bound on the number of
            accepted ID samples.
        """

    @abstractmethod
    def violation(self, tpr, fpr=np.nan, risk=np.nan):
        """Return the total amount by which the bounds are broken.

        Parameters
        ----------
        tpr, fpr, risk : ndarray or float
            True positive rate (coverage of ID samples), false positive rate (accepted
            share of OOD samples) and selective risk.

        Returns
        -------
        violation : ndarray or float
            Zero where all bounds are met; NaN where a needed rate is.
        """

    def cost(self, n_id, n_ood):
        """Return the objective if it is linear.

        Parameters
        ----------
        n_id, n_ood : int
            Numbers of ID and OOD samples.

        Returns
        -------
        cost : Linear or None
            None: the objective is the selective risk.
        """
        return None

    def plug_in(self):
        """Return the rule on the scores if it is known without a search.

        Returns
        -------
        plug_in : tuple (mu, lam) of float or None
            Accept iff ``a + mu * b <= lam``. None: the rule must be searched.
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
        N, E, F : ndarray or number
            Accepted ID samples, their summed loss, accepted OOD samples.

        n_id, n_ood : int
            Numbers of ID and OOD samples.

        Returns
        -------
        objective : ndarray or float
            Smaller is better; infinite where it is undefined (``N = 0``).
        """
        N, E = np.asarray(N), np.asarray(E, dtype=np.float64)
        cost = self.cost(n_id, n_ood)
        if cost is not None:
            return cost.at(N, E, np.asarray(F))
        objective = np.full(np.broadcast_shapes(N.shape, E.shape), np.inf)
        return np.divide(E, N, out=objective, where=N > 0)[()]

    def _check_number(self, name, low=0.0, high=1.0, *, closed=True):
        """Raise unless parameter `name` is a number in [low, high], or [low, high)."""
        value = getattr(self, name)
        span = f"[{low:g}, {high:g}{']' if closed else ')'}"
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(
                f"{name} of {type(self).__name__} must be a number in {span}, got "
                f"{value!r}."
            )
        inside = low <= float(value) <= high and (closed or float(value) < high)
        if not inside:
            raise ValueError(
                f"{name} of {type(self).__name__} must be in {span}, got {value!r}."
            )


def check_rule(rule):
    """Raise unless `rule` is a rule with valid parameters."""
    if not isinstance(rule, BaseRule):
        raise TypeError(
            f"rule must be an instance of a rule, such as BoundedTPRFPR(), got "
            f"{rule!r}."
        )
    rule.check_params()


def as_asked(rule):
    """Return a rule as text, with all of its parameters."""
    params = ", ".join(f"{k}={v!r}" for k, v in rule.get_params().items())
    return f"{type(rule).__name__}({params})"


def other_bound(rule):
    """Return the name of the quantity that is bounded besides the TPR."""
    return "FPR" if rule.ood_prior is None else "precision"

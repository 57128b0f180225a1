"""Rules: what an optimal reject option is asked for, in bounds and an objective."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import ABCMeta, abstractmethod
from numbers import Real

import numpy as np
from sklearn.base import BaseEstimator

__all__ = ["BaseRule", "BoundedAbstention", "BoundedTPRFPR"]

# ceil and floor of a share times a count are guarded against rounding by this much,
# so that 0.7 of 10 rows are 7 rows; smaller amounts are no violation.
_GUARD = 1e-9


def _excess(amount):
    """Return the positive part of `amount`, where rounding counts as zero."""
    return np.where(amount <= _GUARD, 0.0, amount)


class BaseRule(BaseEstimator, metaclass=ABCMeta):
    """Interface of the rules of :mod:`skood.rejection`.

    A rule sees an acceptance region through five numbers only: `N` accepted ID rows
    with the summed loss `E`, `F` accepted OOD rows, and the totals `n_id` and
    `n_ood`. The solver looks for the region that minimises :meth:`objective` among
    those that are :meth:`feasible`. All methods work elementwise on arrays `N`, `E`
    and `F`, so that a solver evaluates many regions at once.

    Subclasses set `needs_ood` and implement :meth:`check_params`,
    :meth:`accepts_enough`, :meth:`keeps_out` and :meth:`violation`; the objective is
    the selective risk unless they override it. Those with a parameter `ood_prior`
    make the solver report the precision.

    See Also
    --------
    BoundedTPRFPR : Least selective risk at a bounded TPR and FPR.
    BoundedAbstention : Least selective risk at a bounded coverage.
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

    #: Whether the rule cannot be solved without OOD rows.
    needs_ood = False

    #: Share of OOD rows in use, from which the precision is reported; None: unknown.
    ood_prior = None

    @abstractmethod
    def check_params(self):
        """Raise a ValueError or TypeError if a parameter is out of its range."""

    @abstractmethod
    def accepts_enough(self, N, n_id):
        """Tell whether enough ID rows are accepted.

        Parameters
        ----------
        N : ndarray or int
            Accepted ID rows.

        n_id : int
            Number of ID rows.

        Returns
        -------
        met : ndarray or bool
            True where the bound from below is met.
        """

    @abstractmethod
    def keeps_out(self, N, E, F, n_id, n_ood):
        """Tell whether few enough rows are accepted that should not be.

        Parameters
        ----------
        N, E, F : ndarray or number
            Accepted ID rows, their summed loss, accepted OOD rows.

        n_id, n_ood : int
            Numbers of ID and OOD rows.

        Returns
        -------
        met : ndarray or bool
            True where every bound from above is met.
        """

    @abstractmethod
    def violation(self, tpr, fpr=np.nan, risk=np.nan):
        """Return the total amount by which the bounds are broken.

        Parameters
        ----------
        tpr, fpr, risk : ndarray or float
            True positive rate (coverage of ID rows), false positive rate (accepted
            share of OOD rows) and selective risk.

        Returns
        -------
        violation : ndarray or float
            Zero where all bounds are met; NaN where a needed rate is.
        """

    def feasible(self, N, E, F, n_id, n_ood):
        """Tell which acceptance regions meet all bounds.

        Parameters
        ----------
        N, E, F : ndarray or number
            Accepted ID rows, their summed loss, accepted OOD rows.

        n_id, n_ood : int
            Numbers of ID and OOD rows.

        Returns
        -------
        met : ndarray or bool
            True where all bounds are met.
        """
        return self.accepts_enough(N, n_id) & self.keeps_out(N, E, F, n_id, n_ood)

    def objective(self, N, E, F, n_id, n_ood):
        """Return what is minimised: the selective risk ``E / N``.

        Parameters
        ----------
        N, E, F : ndarray or number
            Accepted ID rows, their summed loss, accepted OOD rows.

        n_id, n_ood : int
            Numbers of ID and OOD rows.

        Returns
        -------
        objective : ndarray or float
            Smaller is better; infinite where it is undefined (``N = 0``).
        """
        N, E = np.asarray(N), np.asarray(E, dtype=np.float64)
        objective = np.full(np.broadcast_shapes(N.shape, E.shape), np.inf)
        return np.divide(E, N, out=objective, where=N > 0)[()]

    def _check_share(self, name):
        """Raise unless parameter `name` is a number in [0, 1]."""
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(
                f"{name} of {type(self).__name__} must be a number in [0, 1], got "
                f"{value!r}."
            )
        if not 0 <= float(value) <= 1:
            raise ValueError(
                f"{name} of {type(self).__name__} must be in [0, 1], got {value!r}."
            )


def _at_least(share, n):
    """Return the smallest count, at least one, that is `share` of `n` rows."""
    return max(1, int(np.ceil(share * n - _GUARD)))


class BoundedTPRFPR(BaseRule):
    r"""Least selective risk at a bounded TPR and FPR.

    Accept at least the share `tpr_min` of ID rows and at most the share `fpr_max` of
    OOD rows, and be wrong on as few of the accepted ID rows as possible. Read more
    in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    tpr_min : float, default=0.8
        Least share of ID rows to accept, in [0, 1].

    fpr_max : float, default=0.2
        Largest share of OOD rows to accept, in [0, 1].

    See Also
    --------
    BoundedAbstention : The same without OOD rows.
    skood.metrics.selective_risk_at : The selective risk of the best such rule.

    Notes
    -----
    With :math:`N` of :math:`n_I` ID rows accepted at a summed loss :math:`E`, and
    :math:`F` of :math:`n_O` OOD rows, the problem is

    .. math::
        \min E / N \quad\text{such that}\quad
        N \ge \lceil \phi n_I \rceil,\ F \le \lfloor \rho n_O \rfloor

    with :math:`\phi` = `tpr_min` and :math:`\rho` = `fpr_max` [1]_. At least one ID
    row is accepted, since the risk of none is undefined.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> from skood.rejection import BoundedTPRFPR, solve
    >>> point = solve(
    ...     BoundedTPRFPR(tpr_min=0.5, fpr_max=0.25),
    ...     risk_id=[0, 0, 1, 1, 2, 3],
    ...     ood_id=None,
    ...     loss_id=[0, 0, 1, 0, 0, 1],
    ...     risk_ood=[0, 2, 2, 3],
    ...     ood_ood=None,
    ... )
    >>> point.risk, round(point.tpr, 4), point.fpr
    (0.25, 0.6667, 0.25)
    """

    needs_ood = True

    def __init__(self, tpr_min=0.8, fpr_max=0.2):
        self.tpr_min = tpr_min
        self.fpr_max = fpr_max

    def check_params(self):
        """Raise a ValueError or TypeError if a parameter is out of its range."""
        self._check_share("tpr_min")
        self._check_share("fpr_max")

    def accepts_enough(self, N, n_id):
        """Tell whether at least `tpr_min` of the ID rows are accepted.

        Parameters
        ----------
        N : ndarray or int
            Accepted ID rows.

        n_id : int
            Number of ID rows.

        Returns
        -------
        met : ndarray or bool
            True where the bound is met.
        """
        return np.greater_equal(N, _at_least(self.tpr_min, n_id))

    def keeps_out(self, N, E, F, n_id, n_ood):
        """Tell whether at most `fpr_max` of the OOD rows are accepted.

        Parameters
        ----------
        N, E, F : ndarray or number
            Accepted ID rows, their summed loss, accepted OOD rows.

        n_id, n_ood : int
            Numbers of ID and OOD rows.

        Returns
        -------
        met : ndarray or bool
            True where the bound is met.
        """
        return np.less_equal(F, int(np.floor(self.fpr_max * n_ood + _GUARD)))

    def violation(self, tpr, fpr=np.nan, risk=np.nan):
        """Return how much TPR is missing plus how much FPR is too much.

        Parameters
        ----------
        tpr, fpr, risk : ndarray or float
            True positive rate, false positive rate and selective risk; the last is
            not used.

        Returns
        -------
        violation : ndarray or float
            Zero where both bounds are met.
        """
        missing = _excess(self.tpr_min - np.asarray(tpr))
        return (missing + _excess(np.asarray(fpr) - self.fpr_max))[()]


class BoundedAbstention(BaseRule):
    r"""Least selective risk at a bounded coverage; needs no OOD rows.

    Accept at least the share `coverage` of ID rows, and be wrong on as few of them
    as possible. Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    coverage : float, default=0.8
        Least share of ID rows to accept, in [0, 1].

    See Also
    --------
    BoundedTPRFPR : Also bounds the share of OOD rows accepted.

    Notes
    -----
    With :math:`N` of :math:`n_I` ID rows accepted at a summed loss :math:`E`, the
    problem is

    .. math::
        \min E / N \quad\text{such that}\quad N \ge \lceil \phi n_I \rceil

    with :math:`\phi` = `coverage`. The risk need not grow with the coverage, so the
    best rule may accept more than the bound.

    Examples
    --------
    >>> from skood.rejection import BoundedAbstention, solve
    >>> rule = BoundedAbstention(coverage=0.5)
    >>> point = solve(rule, [0.1, 0.2, 0.3, 0.4], None, [0, 1, 0, 1], None, None)
    >>> round(point.risk, 4), point.tpr
    (0.3333, 0.75)
    """

    def __init__(self, coverage=0.8):
        self.coverage = coverage

    def check_params(self):
        """Raise a ValueError or TypeError if a parameter is out of its range."""
        self._check_share("coverage")

    def accepts_enough(self, N, n_id):
        """Tell whether at least `coverage` of the ID rows are accepted.

        Parameters
        ----------
        N : ndarray or int
            Accepted ID rows.

        n_id : int
            Number of ID rows.

        Returns
        -------
        met : ndarray or bool
            True where the bound is met.
        """
        return np.greater_equal(N, _at_least(self.coverage, n_id))

    def keeps_out(self, N, E, F, n_id, n_ood):
        """Return True everywhere: nothing is bounded from above.

        Parameters
        ----------
        N, E, F : ndarray or number
            Accepted ID rows, their summed loss, accepted OOD rows.

        n_id, n_ood : int
            Numbers of ID and OOD rows.

        Returns
        -------
        met : ndarray or bool
            True.
        """
        return np.ones(np.shape(N), dtype=bool)[()]

    def violation(self, tpr, fpr=np.nan, risk=np.nan):
        """Return how much coverage is missing.

        Parameters
        ----------
        tpr, fpr, risk : ndarray or float
            True positive rate (the coverage of ID rows), false positive rate and
            selective risk; only the first is used.

        Returns
        -------
        violation : ndarray or float
            Zero where the bound is met.
        """
        return _excess(self.coverage - np.asarray(tpr))[()]

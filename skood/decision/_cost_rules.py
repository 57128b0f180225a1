"""Rules with a linear objective, and a rule with given numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Real

import numpy as np

from skood.decision._base_rule import BaseRule, Linear, excess
from skood.decision._operating_point import OperatingPoint
from skood.utils._param_validation import Number
from skood.utils._ties import tolerance

_COST = [Number(Real, 0, None, closed="left")]


class BoundedImprovement(BaseRule):
    r"""Largest coverage at a bounded selective risk; needs no OOD samples.

    Maximizes the number of accepted ID samples, where the mean loss of the accepted
    samples is at most `risk_max`. Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    risk_max : float, default=0.05
        Largest selective risk, not negative.

    See Also
    --------
    BoundedAbstention : The converse problem: least risk at a bounded coverage.
    skood.metrics.coverage_at_risk : The coverage of a single score.

    Notes
    -----
    With :math:`N` of :math:`n_I` ID samples accepted at a summed loss :math:`E`, the
    problem is

    .. math:: \max N \quad\text{such that}\quad E \le r N,\ N \ge 1

    with :math:`r` = `risk_max`. The objective is :math:`-N / n_I`.

    Examples
    --------
    >>> from skood.rejection import BoundedImprovement, ScoredSamples, solve
    >>> rule = BoundedImprovement(risk_max=0.3)
    >>> scores = [0.1, 0.2, 0.3, 0.4], None, [0, 1, 0, 0], None, None
    >>> samples = ScoredSamples.from_arrays(*scores)
    >>> point = solve(rule, samples)
    >>> point.risk, point.tpr, point.objective
    (0.25, 1.0, -1.0)
    """

    _parameter_constraints: dict = {"risk_max": _COST}

    def __init__(self, risk_max=0.05):
        self.risk_max = risk_max

    def rates(self):
        return (Linear(id=-self.risk_max, loss=1.0),)

    def cost(self):
        return Linear(id=-1.0)

    def violation(self, tpr, fpr=np.nan, risk=np.nan):
        return excess(np.asarray(risk) - self.risk_max)[()]


class CostBased(BaseRule):
    r"""Least expected cost of errors, of rejections and of accepted OOD samples.

    Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    reject_id : float, default=0.3
        Cost of rejecting an ID sample, in units of the loss; not negative.

    accept_ood : float, default=1.0
        Cost of accepting an OOD sample; above `reject_ood`.

    reject_ood : float, default=0.0
        Cost of rejecting an OOD sample; not negative.

    ood_prior : float, default=0.5
        Fraction of OOD samples in deployment, in [0, 1). It is never estimated from the
        data. With 0 the rule needs no OOD samples.

    cost_max : float or None, default=None
        Largest expected cost, a bound of the rule. None: no bound.

    See Also
    --------
    PlugInCost : The same for a known risk and likelihood ratio, without a search.

    Notes
    -----
    With :math:`N` of :math:`n_I` ID samples accepted at a summed loss :math:`E`, and
    :math:`F` of :math:`n_O` OOD samples, the cost is

    .. math::
        (1 - \pi) \, \frac{E + \varepsilon_1 (n_I - N)}{n_I} +
        \pi \, \frac{\varepsilon_2 F + \varepsilon_3 (n_O - F)}{n_O}

    with :math:`\varepsilon_1` = `reject_id`, :math:`\varepsilon_2` = `accept_ood`,
    :math:`\varepsilon_3` = `reject_ood` and :math:`\pi` = `ood_prior` [1]_. There are
    no bounds, unless `cost_max` is given: accepting all or no samples is allowed.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> from skood.rejection import CostBased, ScoredSamples, solve
    >>> rule = CostBased(reject_id=0.3, accept_ood=1.0, reject_ood=0.0, ood_prior=0.25)
    >>> scores = [1, 2, 3, 4], None, [0, 0, 1, 1], [2.5, 3.5], None
    >>> samples = ScoredSamples.from_arrays(*scores)
    >>> point = solve(rule, samples)
    >>> point.tpr, point.fpr, round(point.objective, 4)
    (0.5, 0.0, 0.1125)
    >>> costly = CostBased(reject_id=0.0, ood_prior=0.25)
    >>> samples = ScoredSamples.from_arrays([2, 3], None, [1, 0], [1], None)
    >>> solve(costly, samples).tpr
    0.0
    """

    _parameter_constraints: dict = {
        "reject_id": _COST,
        "accept_ood": _COST,
        "reject_ood": _COST,
        "ood_prior": [Number(Real, 0, 1, closed="left")],
        "cost_max": [Number(Real, 0, None, closed="left"), None],
    }

    def __init__(
        self,
        reject_id=0.3,
        accept_ood=1.0,
        reject_ood=0.0,
        ood_prior=0.5,
        *,
        cost_max=None,
    ):
        self.reject_id = reject_id
        self.accept_ood = accept_ood
        self.reject_ood = reject_ood
        self.ood_prior = ood_prior
        self.cost_max = cost_max

    def check_params(self):
        super().check_params()
        if self.accept_ood <= self.reject_ood:
            raise ValueError(
                f"accept_ood of {type(self).__name__} must be above reject_ood, or "
                f"nothing is gained by rejecting OOD samples; got accept_ood="
                f"{self.accept_ood!r} and reject_ood={self.reject_ood!r}."
            )

    def rates(self):
        if self.cost_max is None:
            return ()
        cost = self.cost()
        return (cost._replace(constant=cost.constant - self.cost_max),)

    def cost(self):
        return Linear(
            id=-(1 - self.ood_prior) * self.reject_id,
            loss=1 - self.ood_prior,
            ood=self.ood_prior * (self.accept_ood - self.reject_ood),
            constant=(1 - self.ood_prior) * self.reject_id
            + self.ood_prior * self.reject_ood,
        )


class PlugInCost(CostBased):
    r"""Least expected cost for a known risk and likelihood ratio: no search.

    If the risk score is the conditional risk of the classifier, such as one minus the
    largest of calibrated probabilities, and the OOD score the likelihood ratio of OOD
    to ID, then the rule of least cost has a closed form, which needs neither OOD
    samples nor labels. Without an OOD score the ratio is taken to be zero, which gives
    Chow's rule. Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    reject_id, accept_ood, reject_ood, ood_prior
        As in :class:`CostBased`.

    See Also
    --------
    CostBased : For scores of any kind, searched on ID and OOD samples.

    Notes
    -----
    Accept iff

    .. math::
        r(x) + (\varepsilon_2 - \varepsilon_3) \frac{\pi}{1 - \pi} \, g(x) \le
        \varepsilon_1

    with the conditional risk r, the likelihood ratio :math:`g = p_O / p_I`, and the
    symbols of :class:`CostBased` [1]_. Scores are used as given: the quality of the
    rule depends on their calibration.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> from skood.rejection import PlugInCost, ScoredSamples, solve
    >>> rule = PlugInCost(reject_id=0.3, ood_prior=0.25)
    >>> scores = [0.1, 0.4, 0.2], [0.0, 0.1, 0.6], [0, 1, 0], None, None
    >>> samples = ScoredSamples.from_arrays(*scores)
    >>> point = solve(rule, samples)
    >>> round(point.mu, 4)
    0.3333
    >>> point.accept([0.1, 0.4, 0.2], [0.0, 0.1, 0.6])
    array([ True, False, False])
    """

    def __init__(self, reject_id=0.3, accept_ood=1.0, reject_ood=0.0, ood_prior=0.5):
        super().__init__(reject_id, accept_ood, reject_ood, ood_prior)

    @property
    def needs_ood(self):
        return False

    def plug_in(self):
        odds = self.ood_prior / (1 - self.ood_prior)
        return (self.accept_ood - self.reject_ood) * odds, float(self.reject_id)


class LinearRule(BaseRule):
    """Accept iff a + mu b <= lam, with given numbers: no search, no OOD samples.

    The form of the optimal rules [1]_. There are no bounds, and the objective is the
    selective risk. Read more in the :ref:`User Guide <linear_rule>`.

    .. versionadded:: 0.2

    Parameters
    ----------
    mu : float, default=0.0
        Weight of the OOD score b, which is required unless it is 0. Infinity: accept
        iff b <= lam.

    lam : float, default=0.5
        Largest accepted value, in the units of the scores. A value that equals it up to
        rounding is accepted, see :ref:`ties`.

    See Also
    --------
    PlugInCost : These numbers from costs.
    certify_path : Certifies bounds of a rule among candidates.
    skood.model_selection.RuleSearchCV : Searches the numbers without refits.

    References
    ----------
    .. [1] V. Franc, D. Prusa, J. Paplham. Reject option models comprising
       out-of-distribution detection. 2023.

    Examples
    --------
    >>> from skood.rejection import LinearRule, ScoredSamples, solve
    >>> scores = [0.1, 0.4, 0.2], [0.0, 0.1, 0.6], [0, 1, 0], None, None
    >>> point = solve(LinearRule(mu=0.5, lam=0.45), ScoredSamples.from_arrays(*scores))
    >>> point.accept([0.1, 0.4, 0.2], [0.0, 0.1, 0.6])
    array([ True,  True, False])
    >>> point.risk
    0.5
    """

    _parameter_constraints: dict = {
        "mu": [Number(Real, None, None, closed="right")],
        "lam": [Number(Real, None, None, closed="both")],
    }

    is_searched = False

    def __init__(self, mu=0.0, lam=0.5):
        self.mu = mu
        self.lam = lam

    def rates(self):
        return ()

    def _point(self, problem, certificate=None, samples=None, rng=None):
        if certificate is not None:
            raise ValueError(
                "LinearRule has given numbers, and no bounds to certify: leave the "
                "guarantee out. certify_path(rule, path, samples) certifies bounds of "
                "another rule for given candidates."
            )
        if self.mu and not problem.double:
            raise ValueError(
                f"LinearRule(mu={self.mu!r}) requires two scores, got a risk score "
                "only. Pass the OOD score as well (ood_detector= in "
                "RejectOptionClassifier), or set mu=0."
            )
        lam = self.lam + float(tolerance(self.lam, 0.0, abs(self.lam)))
        scale = 1.0 if self.mu == math.inf else math.hypot(1.0, self.mu)
        point = OperatingPoint(theta=math.atan(self.mu), lam=lam / scale)
        return problem.evaluated(self, point)

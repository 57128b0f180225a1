"""Acceptance rule on one or two scores, and its application to new samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from skood.utils._labels import column
from skood.utils._scores import check_scores
from skood.utils._stored import stored
from skood.utils._warnings import warn

# cos and sin at multiples of a right angle, where floating point is not exact
_RIGHT_ANGLES = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))


@stored
class Attainable(NamedTuple):
    """Rates that rules attain on samples on which no rule meets all bounds.

    These are the largest TPR within the bound on the FPR, the smallest FPR with the
    bound on the TPR, and the smallest selective risk of any rule.
    """

    max_tpr_at_fpr: float = math.nan
    min_fpr_at_tpr: float = math.nan
    min_risk: float = math.nan


@stored
class Rates(NamedTuple):
    """Rates of a rule on given samples.

    Parameters
    ----------
    risk : float, default=nan
        Selective risk: mean loss of the accepted ID samples.

    tpr : float, default=nan
        Accepted fraction of ID samples.

    fpr : float, default=nan
        Accepted fraction of OOD samples; NaN if there were none.

    precision : float, default=nan
        Fraction of ID samples among accepted samples at the `ood_prior` of the rule;
        NaN if the rule has no `ood_prior`, since the fraction of OOD samples in the
        data is not the fraction in deployment.

    objective : float, default=nan
        The minimized objective of the rule.

    See Also
    --------
    OperatingPoint : Has the rates as attributes.

    Examples
    --------
    >>> from skood.rejection import Rates
    >>> Rates(risk=0.1, tpr=0.8).tpr
    0.8
    """

    risk: float = math.nan
    tpr: float = math.nan
    fpr: float = math.nan
    precision: float = math.nan
    objective: float = math.nan


_UNKNOWN = Rates()


def _rate(name, doc):
    """Return a property that is a rate of the `rates`."""
    return property(attrgetter(f"rates.{name}"), doc=doc)


@stored
@dataclass(frozen=True)
class OperatingPoint:
    r"""Acceptance rule on two scores, and its rates on the data it was chosen on.

    A sample with the scores a (high = likely misclassified) and b (high = OOD) is
    accepted iff

    .. math::
        \cos\theta \, a / c_a + \sin\theta \, b / c_b \le \lambda .

    :meth:`accept` applies it. Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    theta : float
        The angle between the two scores; 0 uses the first only, pi/2 the second.

    lam : float or dict of float
        The threshold: the largest projected score that is accepted. The solvers put it
        halfway between the scores of calibration samples, see :ref:`ties`. A dict has
        the thresholds of groups, see `thresholds` of :func:`certify`.

    tau : float, default=1.0
        Probability of accepting a sample at the threshold; below 1 only with
        ``randomize=True``, or if nothing is accepted (``lam=-inf, tau=0``).

    scales : tuple of (float, float), default=(1.0, 1.0)
        The scales c_a and c_b of the two scores.

    rates : Rates, default=Rates()
        Selective risk, TPR, FPR, precision and objective on the data it was chosen on;
        each is an attribute of the rule as well, such as ``point.tpr``.

    gap : float, default=nan
        Certified distance of `objective` from the best over all angles; 0 for a
        single score, NaN if the solver certifies none ("grid").

    attainable : Attainable, default=None
        The attainable rates if the bounds of the rule are not met. Then the risk and
        the objective are NaN, and the other rates belong to the rule with the smallest
        total violation of the bounds, except for the nearest rule of
        ``solve(infeasible="nearest")``, which has all rates.

    lam_low : float or None, default=None
        Samples are at the threshold if their projected score is above `lam_low` and at
        most `lam`. None: if it equals `lam`.

    ood_max : float or dict of float, default=inf
        The largest score b that is accepted at any projected score; finite only for
        :class:`TwoThresholds`, where `theta` is 0, and :class:`BoundedErrorRate`. A
        dict has the largest ones of groups.

    violation : float, default=0.0
        Largest violation of a bound by the nearest rule, if no rule meets all bounds.

    certificate : RuleCertificate or None, default=None
        What :func:`certify` has certified.

    See Also
    --------
    solve : Finds the best one.
    certify : Finds one whose bounds hold on new data.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.rejection import OperatingPoint
    >>> point = OperatingPoint(theta=0.0, lam=0.5)
    >>> point.accept([0.2, 0.7])
    array([ True, False])
    >>> OperatingPoint(theta=0.0, lam=0.5, tau=0.25).accept_proba([0.4, 0.5, 0.6])
    array([1.  , 0.25, 0.  ])
    >>> OperatingPoint(np.pi / 4, 1.0).accept([0.5, 0.5, 0], [0.5, 1, np.inf])
    array([ True, False, False])
    >>> point.mu
    0.0
    """

    theta: float
    lam: Any
    tau: float = 1.0
    scales: tuple[float, float] = (1.0, 1.0)
    rates: Rates = _UNKNOWN
    gap: float = math.nan
    attainable: Attainable | None = None
    lam_low: float | None = None
    ood_max: Any = math.inf
    violation: float = 0.0
    certificate: Any = None

    risk = _rate("risk", "Selective risk: mean loss of the accepted ID samples.")
    tpr = _rate("tpr", "Accepted fraction of ID samples.")
    fpr = _rate("fpr", "Accepted fraction of OOD samples; NaN if there were none.")
    precision = _rate(
        "precision",
        "Fraction of ID among accepted samples at the `ood_prior` of the rule.",
    )
    objective = _rate("objective", "The minimized objective of the rule.")

    @property
    def has_two_thresholds(self):
        """Whether b has a threshold of its own, see `ood_max`."""
        largest = self.ood_max
        ends = largest.values() if isinstance(largest, dict) else [largest]
        return min(ends) < math.inf

    @property
    def has_group_thresholds(self):
        """Whether each group has a threshold of its own, see `lam`."""
        return isinstance(self.lam, dict)

    @property
    def feasible(self):
        """Whether the bounds of the rule are met."""
        return self.attainable is None

    def infeasible(self, attainable, violation=0.0):
        """Return the point as one that does not meet the bounds of its rule."""
        rates = self.rates._replace(risk=math.nan, objective=math.nan)
        return replace(self, rates=rates, attainable=attainable, violation=violation)

    @property
    def lower_bound(self):
        """Bound of the objective: no rule over all angles has a smaller one."""
        return self.objective - self.gap

    @property
    def mu(self):
        """Weight of b in ``a + mu b``: tan(theta) c_a / c_b, infinite at pi/2."""
        w_a, w_b = weights(self.theta)
        if w_a == 0:
            return math.copysign(math.inf, w_b)
        return w_b / w_a * self.scales[0] / self.scales[1]

    def project(self, risk, ood=None):
        """Return the projected scores, which the rule compares with `lam`.

        Parameters
        ----------
        risk, ood : ndarray of shape (n_samples,)
            Both scores, without NaN; `ood` may be None if the rule has one score.

        Returns
        -------
        projected : ndarray of shape (n_samples,)
            Projected scores, high for samples to reject.
        """
        return project(self.theta, *standardize(risk, ood, self.scales))

    def accept_proba(self, risk, ood=None, *, groups=None):
        """Return the probability that the rule accepts each sample.

        Parameters
        ----------
        risk : array-like of shape (n_samples,)
            The risk-like score, high for samples that are likely misclassified.

        ood : array-like of shape (n_samples,), default=None
            The OOD-like score, high for OOD samples. None: `risk` is the only score.

        groups : array-like of shape (n_samples,), default=None
            Groups of the samples, if the rule has a threshold for each group. Samples
            of other groups are rejected, with a warning.

        Returns
        -------
        proba : ndarray of shape (n_samples,), dtype float64
            1 below the threshold, `tau` at it, 0 above it. A sample with an infinite
            score is above every finite threshold, at any angle.

        Raises
        ------
        ValueError
            If a score contains NaN, `ood` contains -inf, or `ood` or `groups` is
            missing.
        """
        needs_ood = weights(self.theta)[1] != 0 or self.has_two_thresholds
        risk, ood = check_pair(risk, ood, ("risk", "ood"), needs_ood)
        if self.has_group_thresholds:
            groups = _check_groups(self.lam, groups, risk.size)
        return self._proba(risk, ood, groups)

    def _proba(self, risk, ood, groups=None):
        """Return the probability of acceptance for checked scores and groups."""
        lam, ood_max, low = self.lam, self.ood_max, self.lam_low
        if isinstance(lam, dict):
            lam = of_groups(lam, groups)
        values = project(self.theta, *standardize(risk, ood, self.scales))
        proba = (values <= lam).astype(np.float64)
        if self.tau != 1:
            at = values == lam if low is None else (proba > 0) & (values > low)
            proba[at] = self.tau
        if ood_max != math.inf:
            proba[ood > of_groups(ood_max, groups)] = 0.0
        return proba

    def accept(self, risk, ood=None, *, groups=None, random_state=None):
        """Return which samples the rule accepts.

        Parameters
        ----------
        risk, ood, groups : array-like of shape (n_samples,)
            As in :meth:`accept_proba`.

        random_state : int, RandomState instance or None, default=None
            Controls the draws for samples at the threshold of a randomized rule.

        Returns
        -------
        accepted : ndarray of shape (n_samples,), dtype bool
            True where the sample is accepted.
        """
        return draw(self.accept_proba(risk, ood, groups=groups), random_state)


def weights(theta):
    """Return cos and sin of `theta`, exact at multiples of a right angle."""
    quarter = theta / (math.pi / 2)
    if quarter == round(quarter):
        return _RIGHT_ANGLES[int(quarter) % 4]
    return math.cos(theta), math.sin(theta)


def of_groups(limit, groups):
    """Return the limit of each sample, of its group if `limit` is a dict."""
    if not isinstance(limit, dict):
        return limit
    limits = (limit.get(group, -math.inf) for group in groups.tolist())
    return np.fromiter(limits, np.float64, groups.size)


def precision_at(ood_prior, tpr, fpr):
    """Return the fraction of ID among accepted samples at a prior of OOD samples."""
    right = (1 - ood_prior) * tpr
    accepted = right + ood_prior * fpr
    return right / accepted if accepted > 0 else math.nan


def rates_of(rule, N, E, F, n_id, n_ood):
    """Return the rates of a rule that accepts N of n_id ID and F of n_ood OOD samples.

    E is the summed loss of the accepted ID samples.
    """
    tpr, fpr = float(N / n_id), float(F / n_ood) if n_ood else math.nan
    precision = math.nan
    if rule.ood_prior is not None:
        leaked = fpr if rule.ood_prior else 0.0
        precision = float(precision_at(rule.ood_prior, tpr, leaked))
    return Rates(
        risk=E / N if N else math.nan,
        tpr=tpr,
        fpr=fpr,
        precision=precision,
        objective=float(rule.objective(N, E, F, n_id, n_ood)),
    )


def check_pair(risk, ood, names, needs_ood_score):
    """Return both scores of one group of samples, of the same length."""
    risk = check_scores(risk, names[0])
    if ood is None:
        if needs_ood_score:
            raise ValueError(
                f"{names[1]} is None although the rule has two scores; pass both "
                f"scores for ID and for OOD samples, or one for both."
            )
        return risk, None
    ood = check_scores(ood, names[1])
    if np.isneginf(ood).any():
        raise ValueError(
            f"{names[1]} contains -inf, an OOD score that no threshold could reject; "
            f"use a finite score (+inf is allowed: rejected first)."
        )
    if risk.shape != ood.shape:
        raise ValueError(
            f"{names[0]} and {names[1]} must have one entry per sample each, got "
            f"{risk.shape[0]} and {ood.shape[0]}."
        )
    return risk, ood


def standardize(risk, ood, scales):
    """Return scaled scores and the samples with an infinite one, rejected first."""
    with np.errstate(over="ignore"):
        u = risk / scales[0]
        if ood is None:
            return u, None, None
        v = ood / scales[1]
    top = np.isposinf(u) | np.isposinf(v)
    if not top.any():
        return u, v, None
    u[top] = v[top] = 0.0
    return u, v, top


def project(theta, u, v, top):
    """Return the projected score; all code uses this arithmetic, bit for bit."""
    w_a, w_b = weights(theta)
    if v is None and w_a == 1:
        projected = u  # as it is: one score has no `top`
    elif v is None or w_b == 0:
        projected = w_a * u
    elif w_a == 0:
        projected = w_b * v
    else:
        projected = w_a * u
        projected += w_b * v
    if top is not None:
        projected[top] = np.inf
    return projected


def _check_groups(lam, groups, n_samples):
    """Return the groups of samples, or raise; warn of groups without a threshold."""
    if groups is None:
        raise ValueError(
            "The rule has a threshold for each group; pass groups, the group of each "
            f"sample, such as {next(iter(lam))!r}."
        )
    groups = column(groups)
    if groups.shape != (n_samples,):
        raise ValueError(
            f"groups must have one label per sample, got {groups.size} for {n_samples} "
            "samples."
        )
    other = [group not in lam for group in groups.tolist()]
    if any(other):
        names = list(dict.fromkeys(groups[other].tolist()))
        shown = ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)
        warn(
            f"{sum(other)} of {n_samples} samples are rejected: the rule has no "
            f"threshold for their groups {shown}. Recalibrate with samples of them."
        )
    return groups


def draw(proba, random_state):
    """Draw decisions; probabilities 0 and 1 consume no random number."""
    accepted = proba == 1.0
    unsure = (proba > 0) & ~accepted
    if unsure.any():
        rng = check_random_state(random_state)
        accepted[unsure] = rng.uniform(size=int(unsure.sum())) < proba[unsure]
    return accepted

"""Monitor of a rate against a bound, with audits and labels that arrive late."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state

from skood.monitor._audits import (
    QUANTITIES,
    Audit,
    audit_weights,
    check_values,
    outcomes,
    promised,
    reject_label,
    waiting,
)
from skood.monitor._rate_results import RateResults
from skood.monitor._rate_stage import Stage, rate_bettors
from skood.stats._reference_ranks import stream_uniforms
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import check_input
from skood.utils._metaestimators import known_classes, n_rows, unwrap
from skood.utils._param_validation import HasMethods, Number, StrOptions
from skood.utils._torch import to_numpy


class RateMonitor(RateResults, SkoodEstimator):
    r"""Alarm, at any time, if a rate of a deployed classifier violates its bound.

    A rate is :math:`m = E[g x] / E[g]` with :math:`g \in \{0, 1\}`, the samples that
    count, and :math:`x \in [0, 1]`:

    =================  ======================  ========================  ============
    quantity           samples that count      x                         default side
    =================  ======================  ========================  ============
    "acceptance"       all, without labels     accepted                  lower
    "tpr"              ID samples              accepted                  lower
    "fpr"              OOD samples             accepted                  upper
    "ood_share"        all                     is OOD                    upper
    "selective_risk"   accepted ID samples     loss                      upper
    "precision"        accepted                is ID                     lower
    =================  ======================  ========================  ============

    Labels are needed for audited samples only, which are drawn with probability
    :math:`\pi_t` before any label is known, and weighted by :math:`r_t = (\pi_{\min} /
    \pi_t)\, \xi_t g_t`. For the side "upper" the bets on a violation are

    .. math:: b_{i,t} = 1 + 2^{-i}\, r_t (x_t / m_0 - 1), \qquad i = 1, \dots, 8,

    with the change prior of :class:`ExchangeabilityMonitor`; for "lower" the same with
    :math:`1 - x` and :math:`1 - m_0`. If :math:`E[g_t (x_t - m_0) \mid \text{past}] \le
    0` at every sample, under any dependence and with rates that change, the probability
    of an alarm, ever, is at most `alpha`.

    Read more in the :ref:`User Guide <monitor_rates>`.

    Parameters
    ----------
    estimator : object, default=None
        A fitted classifier with a reject option. None: only `update_values`.

    quantity : str, default="acceptance"
        The rate: "acceptance", "tpr", "fpr", "ood_share", "selective_risk" or
        "precision". A sample is OOD if its label is not among the classes of the
        estimator.

    bound : float, default=None
        The bound :math:`m_0` in (0, 1). None: the bound of the estimator's rule, such
        as its `tpr_min`.

    side : {"lower", "upper", "both"}, default=None
        The violation to detect: the rate is below or above its bound. "both" uses half
        of `alpha` for each. None: the default side of the quantity.

    alpha : float, default=0.01
        Probability of a false alarm, ever, in (0, 1).

    audit : float or callable, default=1.0
        Probability of an audit in (0, 1], or a callable from `X` to probabilities of
        shape (n_samples,), each at least `min_audit`.

    min_audit : float, default=None
        The smallest probability of an audit. None: `audit`, which is then a number.

    loss : "zero_one" or callable, default="zero_one"
        Loss of a prediction for "selective_risk": a callable of true and predicted
        labels of shape (n_samples,) returns losses in [0, 1].

    max_delay : int, default=None
        Labels that are still missing after so many later samples are written off. None:
        they are waited for.

    confidence_level : float, default=0.95
        Level of the confidence sequence of the rate, at all times together.

    time_scale : float, default=1000
        Time scale of the change prior, in audited samples.

    random_state : int, RandomState instance or None, default=None
        Seed of the audits.

    Attributes
    ----------
    log_martingale_ : float
        Log martingale now; for two sides the larger one.

    max_log_martingale_ : float
        Its maximum since the start or the last restart; for two sides, of the larger
        one divided by two.

    threshold_ : float
        The log martingale at which the alarm is raised.

    leader_ : tuple of (str, None, int)
        Direction and start of the bet with the largest capital now.

    alarm_ : Alarm or None
        The first alarm since the start or the last restart.

    alarms_ : list of Alarm
        All alarms.

    estimate_ : float
        Weighted mean of x in labeled samples; NaN without any.

    interval_ : tuple of float
        Confidence interval of a constant rate, valid at all times.

    recent_ : tuple of float or None
        Clopper-Pearson interval of the last 1,000 audited samples, without a guarantee
        for repeated looks; None if probabilities of audits vary, or x is not 0 or 1.

    history_ : Bunch
        Arrays as of :class:`ExchangeabilityMonitor`, for two sides of the larger one,
        and ``estimate``, ``low`` and ``high`` after the samples ``interval_row``.

    bound_ : float
        The bound.

    n_seen_, n_audited_, n_pending_ : int
        Samples of the stream, audited samples that were used, and audited samples that
        wait for a label, their own or an earlier one.

    seed_ : int
        Seed of the audits.

    stage_ : object
        State after the samples seen so far.

    See Also
    --------
    ExchangeabilityMonitor : Monitor of scores, without labels.

    Notes
    -----
    Audited samples are used in the order of the stream: a label waits for all labels of
    earlier audited samples, or until they are written off, so that delays may depend on
    labels. A sample that is written off counts as harmless, and the interval covers
    both possible values.

    References
    ----------
    .. [1] I. Waudby-Smith, A. Ramdas. Estimating means of bounded random variables by
       betting. Journal of the Royal Statistical Society B, 2024.

    .. [2] H. Robbins. Statistical methods related to the law of the iterated logarithm.
       Annals of Mathematical Statistics, 1970.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.monitor import RateMonitor
    >>> rng = np.random.default_rng(0)
    >>> monitor = RateMonitor(quantity="selective_risk", bound=0.05)
    >>> path = monitor.update_values(rng.random(2000) < 0.04)
    >>> monitor.alarm_ is None
    True
    >>> path = monitor.update_values(rng.random(500) < 0.2)
    >>> monitor.alarm_.row, monitor.alarm_.direction
    (2061, 'upper')
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["predict"]), None],
        "quantity": [StrOptions(set(QUANTITIES))],
        "bound": [Number(Real, 0, 1, closed="neither"), None],
        "side": [StrOptions({"lower", "upper", "both"}), None],
        "alpha": [Number(Real, 0, 1, closed="neither")],
        "audit": [Number(Real, 0, 1, closed="right"), callable],
        "min_audit": [Number(Real, 0, 1, closed="right"), None],
        "loss": [StrOptions({"zero_one"}), callable],
        "max_delay": [Number(Integral, 1, None, closed="left"), None],
        "confidence_level": [Number(Real, 0, 1, closed="neither")],
        "time_scale": [Number(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator=None,
        quantity="acceptance",
        bound=None,
        side=None,
        *,
        alpha=0.01,
        audit=1.0,
        min_audit=None,
        loss="zero_one",
        max_delay=None,
        confidence_level=0.95,
        time_scale=1000,
        random_state=None,
    ):
        self.estimator = estimator
        self.quantity = quantity
        self.bound = bound
        self.side = side
        self.alpha = alpha
        self.audit = audit
        self.min_audit = min_audit
        self.loss = loss
        self.max_delay = max_delay
        self.confidence_level = confidence_level
        self.time_scale = time_scale
        self.random_state = random_state

    def update(self, X):
        """Add samples of the stream, and draw which of them need labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New samples, all of them, in the order of the stream.

        Returns
        -------
        audit : Audit
            Numbers of the samples, and which of them need labels. Samples that cannot
            count, such as rejected ones for "selective_risk", need none.

        Raises
        ------
        ValueError
            If the monitor has no estimator, or a probability of an audit is not valid.
        """
        stage = self._started()
        if self.estimator is None:
            raise ValueError(
                "update(X) needs an estimator, got estimator=None. Give a fitted "
                "classifier with a reject option, or call update_values(x)."
            )
        X = check_input(X)
        n = n_rows(X)
        ids = np.arange(stage.n_seen + 1, stage.n_seen + n + 1)
        if n == 0:
            return Audit(ids, np.zeros(0, dtype=bool), np.zeros(0))
        predicted = np.asarray(self.estimator.predict(X))
        accepted = predicted != reject_label(self.estimator)
        if self.quantity == "acceptance":
            used = np.ones(n)
            self.stage_ = self._used(stage, ids, accepted.astype(float), used, None, n)
            return Audit(ids, np.zeros(n, dtype=bool), np.zeros(n))
        probability = self._probability(X, n)
        audited = stream_uniforms(self.seed_, ids - 1) < probability
        if self.quantity in ("selective_risk", "precision"):
            audited &= accepted  # the label of a rejected sample has no effect
        pending = dict(stage.pending)
        for i in np.flatnonzero(audited):
            rest = (bool(accepted[i]), float(probability[i]), None)
            pending[int(ids[i])] = (predicted[i], *rest)
        stage = replace(stage, pending=pending, n_seen=stage.n_seen + n)
        if self.max_delay is not None:
            last = stage.n_seen - self.max_delay
            late = [i for i, one in pending.items() if i < last and one[3] is None]
            stage = self._resolved(stage, late, [(0.0, True, True)] * len(late))
        self.stage_ = stage
        return Audit(ids, audited, probability)

    def add_labels(self, ids, y):
        """Add labels of audited samples, in any order.

        Parameters
        ----------
        ids : array-like of shape (n_labels,)
            Numbers of audited samples, from `update`.

        y : array-like of shape (n_labels,)
            Their labels.

        Returns
        -------
        self : object
            The monitor.

        Raises
        ------
        ValueError
            If a number is repeated, or is not of a sample that waits for its label. No
            label is then used.
        """
        stage = self._started()
        ids = waiting(stage.pending, ids)
        y = np.asarray(to_numpy(y))
        if y.shape != (len(ids),):
            raise ValueError(
                f"y must have the shape ({len(ids)},), one label per number in ids, "
                f"got {y.shape}."
            )
        if len(ids):
            entries = [stage.pending[i] for i in ids]
            classes = known_classes(unwrap(self.estimator)[0])
            found = outcomes(entries, y, self.quantity, self.loss, classes)
            self.stage_ = self._resolved(stage, ids, found)
        return self

    def write_off(self, ids):
        """Give up waiting for labels of audited samples.

        Parameters
        ----------
        ids : array-like of shape (n_labels,)
            Numbers of audited samples, from `update`.

        Returns
        -------
        self : object
            The monitor.
        """
        stage = self._started()
        ids = waiting(stage.pending, ids)
        self.stage_ = self._resolved(stage, ids, [(0.0, True, True)] * len(ids))
        return self

    def update_values(self, x, included=None, probability=None):
        """Add values of audited samples, in the order of the stream.

        Parameters
        ----------
        x : array-like of shape (n_samples,)
            Values in [0, 1]; 0 and 1 only, unless the quantity has another loss.

        included : array-like of bool of shape (n_samples,), default=None
            Whether each sample counts; None: all.

        probability : array-like of shape (n_samples,), default=None
            Probability of the audit of each sample, if `audit` is not a number.

        Returns
        -------
        log_martingale : ndarray of shape (n_samples,)
            Log martingale after each sample; the larger one for two sides.

        Raises
        ------
        ValueError
            If a value is not as above, or samples of `update` wait for labels.
        """
        stage = self._started()
        if stage.pending:
            raise ValueError(
                f"update_values would overtake {len(stage.pending)} audited samples "
                "that wait for labels. Call add_labels or write_off first."
            )
        x = np.asarray(to_numpy(x), dtype=np.float64)
        check_values(x, self.quantity, self._binary())
        n = len(x)
        weight = np.ones(n)
        if included is not None:
            weight = np.asarray(to_numpy(included)) * 1.0
            if weight.shape != (n,) or not ((weight == 0) | (weight == 1)).all():
                raise ValueError(
                    f"included must be bool, of shape ({n},), got {included!r:.80}."
                )
        if probability is not None:
            weight = weight * self._weights(np.asarray(to_numpy(probability), float), n)
        elif callable(self.audit):
            raise ValueError(
                "probability must be given, because audit is a callable: pass the "
                "probability of the audit of each sample."
            )
        elif self.min_audit is not None:
            weight = weight * self._weights(np.full(n, float(self.audit)), n)
        if n == 0:
            return np.empty(0)
        ids = np.arange(stage.n_seen + 1, stage.n_seen + n + 1)
        path, self.stage_ = self._advance(stage, ids, x, weight, None, n)
        return path

    def restart(self):
        """Continue after an alarm that was a false one.

        Bets start again with the next sample of the stream. Labels of earlier samples
        that wait, or arrive later, count for the estimate and the interval only.

        Returns
        -------
        self : object
            The monitor. The probability of an alarm from now on is at most `alpha`.
        """
        stage = self._started()
        self.stage_ = stage.restarted()
        return self

    # --- the start --------------------------------------------------------------------

    def _started(self):
        """Return the state; validate parameters and make it at the first call."""
        if hasattr(self, "stage_"):
            return self.stage_
        self._validate_params()
        if callable(self.audit) and self.min_audit is None:
            raise ValueError(
                "audit is a callable, which needs min_audit, the smallest probability "
                "that it returns. Set min_audit=0.05, for example."
            )
        if not callable(self.audit) and (self.min_audit or 0) > self.audit:
            raise ValueError(
                f"min_audit={self.min_audit} must be at most audit={self.audit}."
            )
        given = self.bound is not None
        bound = self.bound if given else promised(self.estimator, self.quantity)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.bound_, self.seed_ = float(bound), seed
        return Stage.initial(self._bettors(), self._counts())

    def _bettors(self):
        side = self.side or QUANTITIES[self.quantity][0]
        sides = ("lower", "upper") if side == "both" else (side,)
        return rate_bettors(sides, self.alpha, float(self.time_scale))

    def _binary(self):
        """Return whether x is 0 or 1 by definition."""
        return self.quantity != "selective_risk" or self.loss == "zero_one"

    def _counts(self):
        """Return whether counts of 0 and 1 are the state of the interval."""
        return self._binary() and not callable(self.audit) and self.min_audit is None

    # --- samples ----------------------------------------------------------------------

    def _probability(self, X, n):
        """Return the probabilities of audits, of shape (n_samples,)."""
        if not callable(self.audit):
            return np.full(n, float(self.audit))
        probability = np.asarray(to_numpy(self.audit(X)), dtype=np.float64)
        self._weights(probability, n)
        return probability

    def _weights(self, probability, n):
        """Return pi_min / pi_t, or raise if a probability is not valid."""
        fixed = self.audit if self._counts() else None
        least = self.audit if self.min_audit is None else self.min_audit
        return audit_weights(probability, n, least, fixed)

    def _resolved(self, stage, ids, found):
        """Return the state with outcomes, used up to the first that is missing."""
        stage, ready, entries = stage.resolve(ids, found)
        if not ready:
            return stage
        results = zip(*(one[3] for one in entries), strict=True)
        x, included, lost = (np.array(one) for one in results)
        probability = np.array([one[2] for one in entries])
        weight = included * self._weights(probability, len(ready))
        return self._used(stage, np.array(ready), x, weight, lost, 0)

    def _used(self, *samples):
        return self._advance(*samples)[1]

    def _advance(self, stage, ids, x, weight, lost, n_new):
        """Return the path over audited samples in order, and the state after them."""
        lost = np.zeros(len(x), dtype=bool) if lost is None else lost
        delta = 1 - self.confidence_level
        return stage.advance(self.bound_, ids, x, weight, lost, delta, n_new)

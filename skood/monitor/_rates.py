"""Monitor of a rate against a bound, with audits and labels that arrive late."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, field, replace
from itertools import chain
from numbers import Integral, Real

import numpy as np
from scipy.stats import beta
from sklearn.utils import Bunch, check_random_state

from skood.stats._betting import (
    FRACTIONS,
    Bettors,
    Capital,
    CountBand,
    HedgedBand,
    History,
)
from skood.stats._reference_ranks import stream_uniforms
from skood.utils._estimator import SkoodEstimator
from skood.utils._input import check_input
from skood.utils._labels import ood_mask
from skood.utils._metaestimators import known_classes, n_rows, unwrap
from skood.utils._param_validation import HasMethods, Number, StrOptions
from skood.utils._stored import stored
from skood.utils._torch import to_numpy

# Default side, and the parameter of a rule that promises a bound.
_QUANTITIES = {
    "acceptance": ("lower", "acceptance_min"),
    "tpr": ("lower", "tpr_min"),
    "fpr": ("upper", "fpr_max"),
    "ood_fraction": ("upper", None),
    "selective_risk": ("upper", "risk_max"),
    "precision": ("lower", "precision_min"),
}

# Audited samples of the recent interval.
_WINDOW = 1000


@dataclass(frozen=True)
class Audit:
    """Samples for which a monitor needs labels.

    Parameters
    ----------
    ids : ndarray of shape (n_samples,)
        Numbers of the samples in the stream, from 1.

    audited : ndarray of bool of shape (n_samples,)
        Whether the label of the sample is needed.

    probability : ndarray of shape (n_samples,)
        Probability of an audit of each sample.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.monitor import Audit
    >>> Audit(np.array([7, 8]), np.array([True, False]), np.ones(2)).ids
    array([7, 8])
    """

    ids: np.ndarray
    audited: np.ndarray
    probability: np.ndarray


class RateMonitor(SkoodEstimator):
    r"""Alarm, at any time, if a rate of a deployed classifier violates its bound.

    A rate is :math:`m = E[g x] / E[g]` with :math:`g \in \{0, 1\}`, the samples that
    count, and :math:`x \in [0, 1]`:

    =================  ======================  ========================  ============
    quantity           samples that count      x                         default side
    =================  ======================  ========================  ============
    "acceptance"       all, without labels     accepted                  lower
    "tpr"              ID samples              accepted                  lower
    "fpr"              OOD samples             accepted                  upper
    "ood_fraction"        all                     is OOD                    upper
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
        The rate: "acceptance", "tpr", "fpr", "ood_fraction", "selective_risk" or
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
        Level of the confidence sequence of the rate, anytime-valid.

    time_scale : float, default=1000
        Time scale of the change prior, in audited samples.

    random_state : int, RandomState instance or None, default=None
        Seed of the audits.

    Attributes
    ----------
    log_martingale_, max_log_martingale_, threshold_, leader_, alarm_, alarms_
        As of :class:`ExchangeabilityMonitor`, since the start; `leader_` has no shape.
        For two sides, the larger log martingale, and its maximum divided by two.

    estimate_ : float
        Weighted mean of x in labeled samples; NaN without any.

    interval_ : tuple of float
        Confidence interval of a constant rate, anytime-valid.

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
    >>> print(monitor.alarm_)
    None
    >>> path = monitor.update_values(rng.random(500) < 0.2)
    >>> monitor.alarm_.row, monitor.alarm_.direction
    (2061, 'upper')
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["predict"]), None],
        "quantity": [StrOptions(set(_QUANTITIES))],
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
        classifier = unwrap(self.estimator)[0]
        if not hasattr(classifier, "reject_label_"):
            raise ValueError(
                "update(X) needs a fitted classifier with a reject option, got "
                f"{type(classifier).__name__} without reject_label_. Give a "
                "RejectOptionClassifier, or call update_values(x)."
            )
        accepted = predicted != classifier.reject_label_
        if self.quantity == "acceptance":
            accepted = accepted.astype(float)
            self.stage_ = self._advance(stage, ids, accepted, np.ones(n), None, n)[1]
            return Audit(ids, np.zeros(n, dtype=bool), np.zeros(n))
        probability = self.audit(X) if callable(self.audit) else np.full(n, self.audit)
        probability = np.asarray(to_numpy(probability), dtype=np.float64)
        self._weights(probability, n)
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
            late = [i for i, entry in pending.items() if i < last and entry[3] is None]
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
        ids = _waiting(stage.pending, ids)
        y = np.asarray(to_numpy(y))
        if y.shape != (len(ids),):
            raise ValueError(
                f"y must have the shape ({len(ids)},), one label per number in ids, "
                f"got {y.shape}."
            )
        if len(ids):
            entries = [stage.pending[i] for i in ids]
            self.stage_ = self._resolved(stage, ids, self._outcomes(entries, y))
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
        ids = _waiting(stage.pending, ids)
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
        self._check_values(x)
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
        each = zip(stage.bettors, stage.capitals, strict=True)
        capitals = tuple(Capital.initial(bets, old.alarms) for bets, old in each)
        self.stage_ = replace(stage, capitals=capitals, n_restarted=stage.n_seen)
        return self

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
        bound = self.bound
        if bound is None:
            rule = getattr(unwrap(self.estimator)[0], "rule", None)
            bound = getattr(rule, _QUANTITIES[self.quantity][1] or "", None)
        if bound is None or not 0 < bound < 1:
            raise ValueError(
                "bound=None needs an estimator whose rule promises a bound on "
                f"{self.quantity!r} in (0, 1), got {rule!r}. Give bound. A bound that "
                "was estimated from data is no promise: to compare with a calibration "
                "set, monitor accepted samples (0 or 1) with ExchangeabilityMonitor."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.bound_, self.seed_ = float(bound), seed
        side = self.side or _QUANTITIES[self.quantity][0]
        sides = ("lower", "upper") if side == "both" else (side,)
        n, threshold = len(FRACTIONS), float(np.log(len(sides) / self.alpha))
        weight, scale = np.full(n, -np.log(n)), float(self.time_scale)
        labels = [((side, None),) * n for side in sides]
        bettors = [Bettors(weight, label, threshold, scale) for label in labels]
        capitals = [*map(Capital.initial, bettors)]
        histories = tuple(History.empty() for _ in bettors)
        band = CountBand() if self._counts() else HedgedBand.empty()
        return Stage(tuple(bettors), tuple(capitals), histories, band)

    def _binary(self):
        """Return whether x is 0 or 1 by definition."""
        return self.quantity != "selective_risk" or self.loss == "zero_one"

    def _counts(self):
        """Return whether counts of 0 and 1 are the state of the interval."""
        return self._binary() and not callable(self.audit) and self.min_audit is None

    def _weights(self, probability, n):
        """Return pi_min / pi_t, or raise if a probability is not valid."""
        least = self.audit if self.min_audit is None else self.min_audit
        is_fixed = self._counts()
        good = (
            probability.shape == (n,)
            and ((probability >= least) & (probability <= 1)).all()
        )
        if not good or (is_fixed and (probability != self.audit).any()):
            expected = f"audit={self.audit}" if is_fixed else f"in [{least}, 1]"
            raise ValueError(
                f"Probabilities of audits must have the shape ({n},) and be {expected},"
                f" got {probability!r:.80}. Set min_audit if they vary."
            )
        return least / probability

    def _check_values(self, x):
        """Raise if values are not in [0, 1], or not 0 or 1 where they have to be."""
        if x.ndim != 1 or not ((x >= 0) & (x <= 1)).all():
            ends = (x.min(), x.max()) if x.size else (None, None)
            raise ValueError(
                "Values must be in [0, 1] and have the shape (n_samples,), got the "
                f"shape {x.shape}, {ends[0]} to {ends[1]}. Scale losses by their "
                "maximum."
            )
        if self._binary() and not ((x == 0) | (x == 1)).all():
            raise ValueError(
                f"Values of {self.quantity!r} must be 0 or 1, got {x!r:.80}. For other "
                "losses set quantity='selective_risk' and a callable loss."
            )

    def _outcomes(self, entries, y):
        """Return a list of (x, included, False) for samples with labels `y`.

        `entries` are tuples of prediction, acceptance and more.
        """
        is_id = ~ood_mask(y, classes=known_classes(unwrap(self.estimator)[0]))
        predicted, accepted, *_ = map(np.array, zip(*entries, strict=True))
        included, x = np.ones(len(y), dtype=bool), np.zeros(len(y))
        if self.quantity in ("tpr", "fpr"):
            included = is_id if self.quantity == "tpr" else ~is_id
            x[:] = accepted
        elif self.quantity == "selective_risk":
            included = is_id & accepted
            if included.any():
                true, predicted = y[included], predicted[included]
                has_loss = callable(self.loss)
                x[included] = (
                    self.loss(true, predicted) if has_loss else true != predicted
                )
        else:
            x[:] = is_id if self.quantity == "precision" else ~is_id
        self._check_values(x)
        counts = np.asarray(included, dtype=bool).tolist()
        return [(*pair, False) for pair in zip(x.tolist(), counts, strict=True)]

    def _resolved(self, stage, ids, outcomes):
        """Return the state with outcomes, used up to the first that is missing."""
        pending = dict(stage.pending)
        for i, outcome in zip(ids, outcomes, strict=True):
            pending[i] = (*pending[i][:3], outcome)
        ready = []
        for i, entry in pending.items():
            if entry[3] is None:
                break
            ready.append(i)
        entries = [pending.pop(i) for i in ready]
        stage = replace(stage, pending=pending)
        if not ready:
            return stage
        _, _, probability, results = zip(*entries, strict=True)
        x, included, lost = map(np.array, zip(*results, strict=True))
        weight = included * self._weights(np.array(probability), len(ready))
        return self._advance(stage, np.array(ready), x, weight, lost, 0)[1]

    def _advance(self, stage, ids, x, weight, lost, n_new):
        """Return the path over audited samples in order, and the state after them."""
        lost = np.zeros(len(x), dtype=bool) if lost is None else lost
        delta = 1 - self.confidence_level
        return stage.advance(self.bound_, ids, x, weight, lost, delta, n_new)

    @property
    def n_seen_(self):
        return self._started().n_seen

    @property
    def n_audited_(self):
        return self._started().n_audited

    @property
    def n_pending_(self):
        return len(self._started().pending)

    @property
    def log_martingale_(self):
        return max(capital.log_martingale for capital in self._started().capitals)

    @property
    def max_log_martingale_(self):
        capitals = self._started().capitals
        return max(capital.largest for capital in capitals) - np.log(len(capitals))

    @property
    def threshold_(self):
        return self._started().bettors[0].threshold

    @property
    def leader_(self):
        stage = self._started()
        side = int(np.argmax([capital.log_martingale for capital in stage.capitals]))
        return stage.capitals[side].leader(stage.bettors[side])

    @property
    def alarm_(self):
        alarms = [capital.alarm for capital in self._started().capitals]
        alarms = [alarm for alarm in alarms if alarm is not None]
        return min(alarms, key=lambda alarm: alarm.row, default=None)

    @property
    def alarms_(self):
        alarms = [capital.alarms for capital in self._started().capitals]
        return sorted(chain(*alarms), key=lambda alarm: alarm.row)

    @property
    def estimate_(self):
        return float(self._started().band.estimate)

    @property
    def interval_(self):
        return self._started().band.interval(1 - self.confidence_level)

    @property
    def recent_(self):
        if not self._counts():
            return None
        recent, tail = self._started().recent, (1 - self.confidence_level) / 2
        n, k = len(recent), int(recent.sum())
        low = float(beta.ppf(tail, k, n - k + 1)) if k else 0.0
        return low, float(beta.isf(tail, k + 1, n - k)) if k < n else 1.0

    @property
    def history_(self):
        stage = self._started()
        tables = [history.table() for history in stage.histories]
        table = tables[0]
        for name in ("log_martingale", "largest"):
            table[name] = np.max([each[name] for each in tables], axis=0)
        lines = stage.intervals
        if len(table.row) and (not len(lines) or lines[-1, 0] < table.row[-1]):
            now = (table.row[-1], self.estimate_, *self.interval_)
            lines = np.vstack([lines, now])
        table.interval_row = lines[:, 0].astype(np.int64)
        table.estimate, table.low, table.high = lines[:, 1:].T.copy()
        return table

    def pooled(self, *others):
        """Return the estimate and interval of the samples of several monitors together.

        For a stream that is split over several machines, each with a monitor of its
        own. The states of the intervals are added; the interval covers a rate that is
        constant and the same for all monitors at any time. Alarms stay apart: give
        the monitors to a :class:`MonitorPanel`.

        Parameters
        ----------
        *others : RateMonitor
            Other monitors, of other samples, of the same quantity and bound.

        Returns
        -------
        pooled : Bunch
            ``estimate``, ``interval`` and ``n_audited``, as the attributes of a single
            monitor.

        Raises
        ------
        ValueError
            If quantities, bounds, weights of audits or kinds of losses differ, or a
            monitor is given twice.
        """
        monitors = (self, *others)
        streams = {id(getattr(monitor, "stage_", monitor)) for monitor in monitors}
        if len(streams) < len(monitors):
            raise ValueError(
                "A monitor, or its copy, is pooled with itself, which would count its "
                "samples twice. Give each monitor once."
            )
        stages = [monitor._started() for monitor in monitors]
        kinds = {(m.quantity, m.bound_, m._counts(), m.min_audit) for m in monitors}
        if len(kinds) > 1:
            raise ValueError(
                "Pooled monitors must have the same quantity, bound, min_audit, and "
                "losses of 0 and 1 or other ones, got (quantity, bound, 0 and 1, "
                f"min_audit) = {sorted(kinds, key=str)}."
            )
        band = stages[0].band
        for stage in stages[1:]:
            band = band + stage.band
        n_audited = sum(stage.n_audited for stage in stages)
        interval = band.interval(1 - self.confidence_level)
        return Bunch(
            estimate=float(band.estimate), interval=interval, n_audited=n_audited
        )


@stored
@dataclass(frozen=True)
class Stage:
    """State of a monitor of a rate; replaced by every update.

    Bets use samples after `n_restarted`, the number of samples before the last restart.
    `pending` maps numbers of audited samples, in order, to (prediction, accepted,
    probability, resolved), with None or (x, included, lost) as the last. `intervals`
    has lines of number of the sample, estimate, and both ends of the interval.
    """

    bettors: tuple
    capitals: tuple
    histories: tuple
    band: CountBand | HedgedBand
    recent: np.ndarray = field(default_factory=lambda: np.empty(0))
    intervals: np.ndarray = field(default_factory=lambda: np.empty((0, 4)))
    pending: dict = field(default_factory=dict)
    n_seen: int = 0
    n_audited: int = 0
    n_restarted: int = 0

    def advance(self, bound, ids, x, weight, lost, delta, n_new):
        """Return the path over samples with weights r_t, and the state after them.

        `n_new` is the number of new samples of the stream, audited or not.
        """
        capitals, histories, paths = [], [], []
        each = zip(self.bettors, self.capitals, self.histories, strict=True)
        new = slice(int(np.searchsorted(ids, self.n_restarted, side="right")), None)
        for bettors, capital, history in each:
            is_upper = bettors.labels[0][0] == "upper"
            value = np.where(lost, 0.0, x if is_upper else 1 - x)
            gain = weight * (value / (bound if is_upper else 1 - bound) - 1)
            path = np.full(len(ids), capital.log_martingale)
            if len(ids[new]):
                bets = 1 + FRACTIONS[:, None] * gain[new]
                path[new], capital = capital.advance(bettors, bets, ids[new])
            capitals.append(capital)
            histories.append(history.extend(ids, path))
            paths.append(path)
        recent = self.recent
        if isinstance(self.band, CountBand):
            recent = np.r_[recent, x[(weight > 0) & ~lost]][-_WINDOW:]
        band, intervals = self._extended_band(ids, x, weight, lost, delta)
        after = replace(
            self,
            capitals=tuple(capitals),
            histories=tuple(histories),
            band=band,
            recent=recent,
            intervals=intervals,
            n_seen=self.n_seen + n_new,
            n_audited=self.n_audited + len(x),
        )
        return paths[0] if len(paths) == 1 else np.maximum(*paths), after

    def _extended_band(self, ids, x, weight, lost, delta):
        """Return the band after more samples, and the lines of `intervals`."""
        band, lines, done = self.band, [], 0
        stop = _next_stop(self.n_audited) - self.n_audited
        while stop <= len(x):
            block = slice(done, stop)
            band = band.extend(weight[block], x[block], lost[block])
            lines.append((ids[stop - 1], band.estimate, *band.interval(delta)))
            done, stop = stop, _next_stop(self.n_audited + stop) - self.n_audited
        if done < len(x):
            band = band.extend(weight[done:], x[done:], lost[done:])
        return band, np.vstack([self.intervals, *lines]) if lines else self.intervals


def _waiting(pending, ids):
    """Return numbers of samples as a list, or raise if one is not waited for."""
    ids = np.ravel(to_numpy(ids)).tolist()
    if len(set(ids)) < len(ids):
        raise ValueError(f"ids must differ, got {ids!r:.80}.")
    for i in ids:
        if i not in pending or pending[i][3] is not None:
            raise ValueError(
                f"Sample {i!r} does not wait for a label: it was not audited, or its "
                "label has been given or written off. Give each label of an audited "
                "sample once."
            )
    return ids


def _next_stop(n):
    """Return the next length of an interval's record: all to 32, 16 per doubling."""
    step = 1 << max(int(n).bit_length() - 5, 0)
    return (n // step + 1) * step

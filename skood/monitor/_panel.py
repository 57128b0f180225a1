"""Several monitors with one alarm, and the names of the culprits."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from copy import copy
from itertools import compress
from numbers import Real

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from skood.monitor._exchangeability import ExchangeabilityMonitor, FittedMonitor
from skood.monitor._rates import RateMonitor
from skood.stats._betting import Alarm
from skood.stats._evalues import e_bh
from skood.utils._atomic_fit import fresh_fit, kept_state
from skood.utils._input import check_input
from skood.utils._metaestimators import (
    copy_input_attributes,
    join_input_tags,
    n_rows,
    take_rows,
)
from skood.utils._optional import import_pandas
from skood.utils._param_validation import HasMethods, Number, fit_context


class MonitorPanel(FittedMonitor):
    r"""Monitors of several scores, rates or classes: one alarm, and named culprits.

    Martingales of different scores have different filtrations: their average is not a
    martingale. With running maxima :math:`M^*_k`, Ville's inequality makes
    :math:`\min(1, 1/M^*_k)` a p-value that is valid at any time, under any dependence:

    - the alarm is raised when some :math:`M^*_k \ge K / \alpha`;
    - culprits are selected by e-BH on :math:`M^*_k / \sum_{i \le K} 1/i`, the procedure
      of Benjamini and Yekutieli [1]_, with a false discovery rate of at most `fdr`.

    With `by`, the monitors of classes take turns in one filtration: the alarm is raised
    when the mean of the martingales reaches :math:`1/\alpha`, and culprits are selected
    by :func:`e_bh` on the martingales.

    Read more in the :ref:`User Guide <monitor_panel>`.

    Parameters
    ----------
    monitors : list of (str, object) or object
        Names and monitors; with `by` one `ExchangeabilityMonitor`, which is cloned for
        every class. Their own `alpha` is not used.

    alpha : float, default=0.01
        Probability of a false alarm of the panel, ever, in (0, 1).

    fdr : float, default=0.05
        Bound of the false discovery rate of the culprits, in (0, 1).

    by : object, callable or None, default=None
        A fitted classifier with ``predict``, or a callable from `X` to classes.

    Attributes
    ----------
    named_monitors_ : dict of str to object
        The fitted monitors; with `by`, by class.

    alarm_ : Alarm or None
        The first alarm.

    alarm_name_ : object
        The name, or class, of the monitor with the largest martingale at the alarm;
        None without an alarm.

    culprits_ : list
        Names, or classes, of the monitors that changed.

    n_seen_ : int
        Number of samples of `update`, with `by`.

    n_features_in_ : int
        Number of features seen in fit, if a monitor has it.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if a monitor has them.

    See Also
    --------
    ExchangeabilityMonitor, RateMonitor : The monitors.

    References
    ----------
    .. [1] Y. Benjamini, D. Yekutieli. The control of the false discovery rate in
       multiple testing under dependency. Annals of Statistics, 2001.

    .. [2] Y. J. Choe, A. Ramdas. Combining evidence across filtrations.
       arXiv:2402.09698, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.monitor import ExchangeabilityMonitor, MonitorPanel
    >>> rng = np.random.default_rng(0)
    >>> names = ["a", "b", "c"]
    >>> panel = MonitorPanel([(one, ExchangeabilityMonitor()) for one in names])
    >>> panel = panel.fit({one: rng.normal(size=300) for one in names})
    >>> new = {one: rng.normal(size=300) - (one == "b") for one in names}
    >>> panel.partial_fit(new).culprits_
    ['b']
    """

    _parameter_constraints: dict = {
        "monitors": [list, ExchangeabilityMonitor],
        "alpha": [Number(Real, 0, 1, closed="neither")],
        "fdr": [Number(Real, 0, 1, closed="neither")],
        "by": [HasMethods(["predict"]), callable, None],
    }

    def __init__(self, monitors, *, alpha=0.01, fdr=0.05, by=None):
        self.monitors = monitors
        self.alpha = alpha
        self.fdr = fdr
        self.by = by

    _state = "named_monitors_"
    _takes_dict = True  # of the samples of each monitor

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None):
        """Fit all monitors on samples of normal operation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or dict of str to array-like
            Samples, or samples or scores by the name of the monitor. A `RateMonitor`
            needs none.

        y : array-like of shape (n_samples,), default=None
            Labels for detectors that have to be fitted.

        Returns
        -------
        self : object
            The panel.

        Raises
        ------
        ValueError
            If names are not as they should be, or a class has fewer than two samples.
        """
        with fresh_fit(self):
            if self.by is not None:
                self._fit_classes(X, y)
                return self
            self._check_names(X)
            self.named_monitors_ = {}
            for name, monitor in self.monitors:
                fitted = clone(monitor).set_params(
                    alpha=self.alpha / len(self.monitors)
                )
                if hasattr(fitted, "fit"):
                    fitted.fit(X[name] if _is_named(X) else X, y)
                    copy_input_attributes(self, fitted)
                self.named_monitors_[name] = fitted
        return self

    def _check_names(self, X):
        """Raise if the monitors are not (name, monitor), or names of X differ."""
        kinds = (ExchangeabilityMonitor, RateMonitor)
        if not isinstance(self.monitors, list) or not self.monitors:
            raise ValueError(
                "monitors must be a list of (name, monitor) with at least one, got "
                f"{self.monitors!r:.80}. One monitor for all classes needs by."
            )
        for name, monitor in self.monitors:
            if (
                not isinstance(monitor, kinds)
                or getattr(monitor, "guarantee", "anytime") != "anytime"
            ):
                raise ValueError(
                    f"Monitor {name!r} must be a RateMonitor, or an "
                    "ExchangeabilityMonitor with guarantee='anytime', got "
                    f"{monitor!r:.80}."
                )
        names = [name for name, _ in self.monitors]
        if len(set(names)) < len(names):
            raise ValueError(f"Names of monitors must differ, got {names}.")
        scored = [name for name, monitor in self.monitors if hasattr(monitor, "fit")]
        if _is_named(X) and set(X) != set(scored):
            raise ValueError(
                f"X must have the keys {scored}, the names of the monitors of scores, "
                f"got {list(X)}."
            )

    def _fit_classes(self, X, y):
        """Fit one monitor per predicted class."""
        template = self.monitors
        if (
            not isinstance(template, ExchangeabilityMonitor)
            or template.guarantee != "anytime"
            or template.every > 1
            or template.shuffle
            or (
                hasattr(template.detector, "fit")
                and not isinstance(template.detector, FrozenEstimator)
            )
        ):
            raise ValueError(
                "With by, monitors must be one ExchangeabilityMonitor with a frozen "
                "detector, a callable or None, guarantee='anytime', every=1 and "
                f"shuffle=False, got {template!r:.120}."
            )
        predicted = self._classes(X)
        classes, counts = np.unique(predicted, return_counts=True)
        known = getattr(self.by, "classes_", classes)
        count = dict(zip(classes.tolist(), counts.tolist(), strict=True))
        few = [label for label in np.asarray(known).tolist() if count.get(label, 0) < 2]
        if few or len(known) < 1:
            raise ValueError(
                f"Each class needs at least 2 calibration samples, but {few} have "
                "fewer. Give more samples of normal operation."
            )
        template = clone(template).set_params(alpha=self.alpha)
        self.named_monitors_ = {}
        for label in classes.tolist():
            of_class = take_rows(X, np.flatnonzero(predicted == label))
            self.named_monitors_[label] = clone(template).fit(of_class)
            copy_input_attributes(self, self.named_monitors_[label])
        self.n_seen_: int = 0
        self._alarm_of_classes: tuple = (None, None)

    def _classes(self, X):
        predict = self.by.predict if hasattr(self.by, "predict") else self.by
        return np.asarray(predict(X))

    def update(self, X):
        """Add samples of the stream.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or dict of str to array-like
            New samples, or samples, scores or (for a `RateMonitor`) values by the name
            of the monitor, of some or all monitors.

        Returns
        -------
        log_martingale : ndarray of shape (n_samples, n_monitors) or dict
            Log martingales of the monitors after each sample, by name for a dict.

        Raises
        ------
        ValueError
            If a name is unknown, or a sample cannot be scored. No monitor is changed.
        """
        check_is_fitted(self)
        X = X if _is_named(X) else check_input(X)
        if self.by is not None:
            return self._update_classes(X)
        monitors = self.named_monitors_
        samples = X if _is_named(X) else dict.fromkeys(monitors, X)
        unknown = [name for name in samples if name not in monitors]
        if unknown:
            raise ValueError(f"No monitor is named {unknown}; names: {list(monitors)}.")
        before = {name: vars(monitor).copy() for name, monitor in monitors.items()}
        try:
            paths = {}
            for name, values in samples.items():
                monitor = monitors[name]
                method = "update" if hasattr(monitor, "fit") else "update_values"
                paths[name] = getattr(monitor, method)(values)
        except BaseException:
            for name, state in before.items():
                vars(monitors[name]).clear()
                vars(monitors[name]).update(state)
            raise
        return paths if _is_named(X) else np.column_stack(list(paths.values()))

    def _update_classes(self, X):
        """Return the path of all classes, and pass samples to their monitors."""
        monitors = self.named_monitors_
        n = n_rows(X)
        now = np.array([monitor.log_martingale_ for monitor in monitors.values()])
        path = np.tile(now, (n, 1))
        if n == 0:
            return path
        predicted = self._classes(X)
        unknown = set(predicted.tolist()) - set(monitors)
        if unknown:
            raise ValueError(
                f"The classes {sorted(unknown, key=str)} had no calibration samples. "
                "Fit the panel on samples of all classes."
            )
        after, samples = {}, {}
        for k, (name, monitor) in enumerate(monitors.items()):
            at = np.flatnonzero(predicted == name)
            if len(at):
                scores = monitor._scores(take_rows(X, at))
                samples[name] = scores, self.n_seen_ + 1 + at
                of_class, after[name] = monitor._advance(*samples[name])
                moved = np.searchsorted(at, np.arange(n), side="right")
                path[:, k] = np.r_[now[k], of_class][moved]
        with kept_state(self):
            self._find_alarm(path, samples)
            for name, progress in after.items():
                monitors[name].progress_ = progress
            self.n_seen_ = self.n_seen_ + n
        return path

    def _find_alarm(self, path, samples):
        """Store the first sample at which the mean of martingales reaches 1 / alpha.

        `samples` are scores and numbers of new samples by class.
        """
        mean = np.logaddexp.reduce(path, axis=1) - np.log(path.shape[1])
        if self._alarm_of_classes[0] is not None or mean.max() < -np.log(self.alpha):
            return
        at = int((mean >= -np.log(self.alpha)).argmax())
        name, monitor = list(self.named_monitors_.items())[int(path[at].argmax())]
        row = self.n_seen_ + at + 1
        scores, numbers = samples.get(name, np.empty((2, 0)))
        n_until = np.searchsorted(numbers, row, side="right")
        _, progress = monitor._advance(scores[:n_until], numbers[:n_until])
        direction, shape, start = progress.capital.leader(monitor.bettors_)
        alarm = Alarm(row, start, direction, shape, float(mean[at]))
        self._alarm_of_classes = (alarm, name)

    def _first_alarm(self):
        """Return the first alarm and the name of its monitor."""
        if self.by is not None:
            return self._alarm_of_classes
        alarms = [(each.alarm_, name) for name, each in self.named_monitors_.items()]
        alarms = [pair for pair in alarms if pair[0] is not None]
        return min(
            alarms,
            key=lambda pair: (pair[0].row, -pair[0].log_evidence),
            default=(None, None),
        )

    @property
    def alarm_(self):
        return self._first_alarm()[0]

    @property
    def alarm_name_(self):
        return self._first_alarm()[1]

    @property
    def culprits_(self):
        monitors = self.named_monitors_
        if self.by is not None:
            log_e = np.array([monitor.log_martingale_ for monitor in monitors.values()])
        else:
            log_e = np.array([each.max_log_martingale_ for each in monitors.values()])
            log_e -= np.log((1 / np.arange(1, len(log_e) + 1)).sum())
        selected = e_bh(np.exp(np.minimum(log_e, 700.0)), self.fdr)
        return list(compress(monitors, selected))

    def explain(self):
        """Return a table of the monitors, the largest evidence first.

        Returns
        -------
        table : pandas.DataFrame
            Columns ``name``, ``log_martingale``, ``largest`` (its running maximum),
            ``start`` (estimated first sample after a change), ``direction`` and
            ``named`` (whether the monitor is a culprit).
        """
        check_is_fitted(self)
        pandas = import_pandas("MonitorPanel.explain")
        named = self.culprits_
        lines = [
            (name, m.log_martingale_, m.max_log_martingale_, *m.leader_[::-2])
            for name, m in self.named_monitors_.items()
        ]
        columns = ["name", "log_martingale", "largest", "start", "direction"]
        table = pandas.DataFrame(lines, columns=columns)
        table["named"] = [name in named for name in self.named_monitors_]
        return table.sort_values("largest", ascending=False, ignore_index=True)

    def __copy__(self):
        copied = self.__class__.__new__(self.__class__)
        copied.__setstate__(self.__getstate__())
        if hasattr(self, "named_monitors_"):  # the copy has a stream of its own
            monitors = self.named_monitors_.items()
            copied.named_monitors_ = {name: copy(each) for name, each in monitors}
        return copied

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        parts = self.monitors
        if isinstance(parts, list):
            parts = [monitor for _, monitor in parts if hasattr(monitor, "fit")]
            join_input_tags(tags, [get_tags(monitor) for monitor in parts])
        return tags


def _is_named(X):
    """Return whether X is a dict; SciPy's dok_matrix is one, but no dict of names."""
    return isinstance(X, dict) and not issparse(X)

"""Displays of the log martingales and the rates of monitors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np

from skood.monitor._rates import RateMonitor
from skood.utils._plotting import COLORS, DASHES, BaseDisplay, long_names

_GRAY = "0.7"


@dataclass(kw_only=True, eq=False, repr=False)
class MartingaleDisplay(BaseDisplay):
    """Martingales against the samples of a stream, with alarms and estimated starts.

    Use `from_monitor` to make a display; the parameters become attributes.

    Read more in the :ref:`User Guide <monitor>`.

    Parameters
    ----------
    row : list of ndarray
        Numbers of samples, one array of shape (n_blocks,) per monitor.

    log_martingale : list of ndarray
        Logarithms of the martingales there, of the same shapes.

    threshold : float
        The log martingale at which an alarm is raised.

    alarms : list of Alarm
        The alarms.

    name : list of str, default=None
        Names of the monitors, for the legend.

    highlighted : list of bool, default=None
        Monitors to draw in color; None: all. The others are gray.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        The axes and the figure.

    lines_ : list of matplotlib Line2D
        The martingales.

    See Also
    --------
    ExchangeabilityMonitor, MonitorPanel : The monitors.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.monitor import ExchangeabilityMonitor, MartingaleDisplay
    >>> rng = np.random.default_rng(0)
    >>> monitor = ExchangeabilityMonitor(random_state=0).fit(rng.normal(size=300))
    >>> monitor = monitor.partial_fit(rng.normal(size=100) - 1)
    >>> display = MartingaleDisplay.from_monitor(monitor)
    >>> len(display.lines_), len(display.alarms)
    (1, 1)
    """

    row: list
    log_martingale: list
    threshold: float
    alarms: list
    name: list | None = None
    highlighted: list | None = None

    @classmethod
    def from_monitor(cls, monitor, *, ax=None, **kwargs):
        """Draw the history of a monitor, of several monitors, or of a panel.

        Parameters
        ----------
        monitor : object, dict of str to object, or MonitorPanel
            A fitted monitor, several by name, or a panel, whose culprits are colored.

        ax, **kwargs
            Passed to `plot`.

        Returns
        -------
        display : MartingaleDisplay
            The display.

        Raises
        ------
        ValueError
            If there is no monitor.
        """
        highlighted, alarms = None, None
        if hasattr(monitor, "named_monitors_"):
            monitors = monitor.named_monitors_
            highlighted = [label in monitor.culprits_ for label in monitors]
            alarms = [] if monitor.alarm_ is None else [monitor.alarm_]
        else:
            monitors = monitor if isinstance(monitor, dict) else {None: monitor}
        if not monitors:
            raise ValueError("monitor must contain at least one monitor, got none.")
        if alarms is None:
            alarms = [alarm for each in monitors.values() for alarm in each.alarms_]
        threshold = min(each.threshold_ for each in monitors.values())
        name = None if None in monitors else [str(label) for label in monitors]
        histories = [each.history_ for each in monitors.values()]
        display = cls(
            row=[each.row for each in histories],
            log_martingale=[each.log_martingale for each in histories],
            threshold=threshold,
            alarms=alarms,
            name=name,
            highlighted=highlighted,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, *, ax=None, **kwargs):
        """Draw the martingales in decimal logarithms.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        **kwargs : dict
            Passed to matplotlib's ``plot``, of every line.

        Returns
        -------
        display : MartingaleDisplay
            The display.
        """
        with self._axes(ax) as ax:
            self.lines_ = []
            colored = 0
            for k, (row, path) in enumerate(
                zip(self.row, self.log_martingale, strict=True)
            ):
                shown = self.highlighted is None or self.highlighted[k]
                style = {"color": _GRAY, "linewidth": 1.0}
                if shown:
                    style = {
                        "color": COLORS[colored % len(COLORS)],
                        "linestyle": DASHES[colored // len(COLORS) % len(DASHES)],
                        "zorder": 3,
                    }
                    colored += 1
                if self.name is not None and shown:
                    style["label"] = self.name[k]
                # the martingale is one before the first sample
                (line,) = ax.plot(
                    np.r_[0, row], np.r_[0.0, path] / np.log(10), **{**style, **kwargs}
                )
                self.lines_.append(line)
            top = self.threshold / np.log(10)
            bound = f"1/alpha = {np.exp(self.threshold):.3g}"
            ax.axhline(top, color="black", linestyle=":", linewidth=1.0, label=bound)
            _draw_alarms(ax, self.alarms, top)
            ax.legend(loc="upper left")
            ax.set(xlabel="sample of the stream", ylabel="log10 of the martingale")
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class RateDisplay(BaseDisplay):
    """Estimate and interval of a rate against the samples of a stream, with the bound.

    Use `from_monitor` to make a display; the parameters become attributes.

    Read more in the :ref:`User Guide <monitor_rates>`.

    Parameters
    ----------
    row : ndarray of shape (n_points,)
        Numbers of samples.

    estimate : ndarray of shape (n_points,)
        Estimates of the rate after these samples; NaN without a sample that counts.

    low, high : ndarray of shape (n_points,)
        Ends of the anytime-valid interval.

    bound : float
        The bound of the rate.

    audited : ndarray of shape (n_audited,)
        Numbers of audited samples; of long streams one of several.

    alarms : list of Alarm
        The alarms.

    quantity : str, default="rate"
        Name of the rate.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        The axes and the figure.

    line_ : matplotlib Line2D
        The estimate.

    band_ : matplotlib PolyCollection
        The interval.

    See Also
    --------
    RateMonitor : The monitor.
    MartingaleDisplay : Evidence against the bound.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.monitor import RateDisplay, RateMonitor
    >>> rng = np.random.default_rng(0)
    >>> monitor = RateMonitor(quantity="fpr", bound=0.05)
    >>> path = monitor.update_values(rng.random(500) < 0.04)
    >>> display = RateDisplay.from_monitor(monitor)
    >>> len(display.row), len(display.audited)
    (96, 500)
    """

    row: np.ndarray
    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    bound: float
    audited: np.ndarray
    alarms: list
    quantity: str = "rate"

    @classmethod
    def from_monitor(cls, monitor, *, ax=None, **kwargs):
        """Draw the history of a monitor of a rate.

        Parameters
        ----------
        monitor : RateMonitor
            The monitor.

        ax, **kwargs
            Passed to `plot`.

        Returns
        -------
        display : RateDisplay
            The display.

        Raises
        ------
        TypeError
            If `monitor` is no monitor of a rate.
        """
        if not isinstance(monitor, RateMonitor):
            raise TypeError(
                f"monitor must be a RateMonitor, got {monitor!r:.80}. Draw monitors of "
                "scores with MartingaleDisplay."
            )
        history = monitor.history_
        display = cls(
            row=history.interval_row,
            estimate=history.estimate,
            low=history.low,
            high=history.high,
            bound=monitor.bound_,
            audited=history.row,
            alarms=monitor.alarms_,
            quantity=monitor.quantity,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, *, ax=None, **kwargs):
        """Draw the estimate with its interval, the bound, audits and alarms.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        **kwargs : dict
            Passed to matplotlib's ``plot`` of the estimate; ``color`` is also the color
            of the interval.

        Returns
        -------
        display : RateDisplay
            The display.
        """
        with self._axes(ax) as ax:
            style = {"color": COLORS[0], "label": "estimate", **long_names(kwargs)}
            (self.line_,) = ax.plot(self.row, self.estimate, **style)
            band = {"color": style["color"], "alpha": 0.2, "lw": 0, "label": "interval"}
            self.band_ = ax.fill_between(self.row, self.low, self.high, **band)
            bound = {"color": "black", "linestyle": ":", "linewidth": 1.0}
            ax.axhline(self.bound, label=f"bound {self.bound:.3g}", **bound)
            ticks = ax.get_xaxis_transform()  # y from 0 to 1 over the height
            ax.plot(
                self.audited,
                np.full(len(self.audited), 0.015),
                marker="|",
                color=_GRAY,
                linestyle="",
                transform=ticks,
                label="audited samples",
            )
            _draw_alarms(ax, self.alarms, self.bound)
            ax.legend()
            name = self.quantity.replace("_", " ")
            ax.set(xlabel="sample of the stream", ylabel=name)
        return self


def _draw_alarms(ax, alarms, level):
    """Draw estimated starts as vertical lines, and alarms as triangles."""
    for k, alarm in enumerate(alarms):
        hidden = "_" if k else ""  # the first alarm only is in the legend
        start = f"{hidden}estimated start"
        ax.axvline(alarm.start, color="black", linewidth=0.5, label=start)
        style = {"marker": "v", "color": "black", "linestyle": ""}
        ax.plot([alarm.row], [level], label=f"{hidden}alarm", **style)

"""Display of the log martingales of monitors."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.monitor._panel import MonitorPanel
from skood.utils._plotting import COLORS, DASHES, get_axes

__all__ = ["MartingaleDisplay"]

_GRAY = "0.7"


class MartingaleDisplay:
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

    def __init__(
        self,
        *,
        row,
        log_martingale,
        threshold,
        alarms,
        name=None,
        highlighted=None,
    ):
        self.row = row
        self.log_martingale = log_martingale
        self.threshold = threshold
        self.alarms = alarms
        self.name = name
        self.highlighted = highlighted

    @classmethod
    def from_monitor(cls, monitor, *, ax=None, **kwargs):
        """Draw the history of a monitor, of several monitors, or of a panel.

        Parameters
        ----------
        monitor : object, dict of str to object, or MonitorPanel
            A fitted monitor, several by name, or a panel, whose culprits are colored.

        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        **kwargs : dict
            Passed to matplotlib's ``plot``, of every line.

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
        if isinstance(monitor, MonitorPanel):
            monitors = monitor.named_monitors_
            highlighted = [one in monitor.culprits_ for one in monitors]
            alarms = [] if monitor.alarm_ is None else [monitor.alarm_]
        else:
            monitors = monitor if isinstance(monitor, dict) else {None: monitor}
        if not monitors:
            raise ValueError("monitor must contain at least one monitor, got none.")
        if alarms is None:
            alarms = [alarm for one in monitors.values() for alarm in one.alarms_]
        threshold = min(one.threshold_ for one in monitors.values())
        name = None if None in monitors else [str(one) for one in monitors]
        histories = [one.history_ for one in monitors.values()]
        display = cls(
            row=[one.row for one in histories],
            log_martingale=[one.log_martingale for one in histories],
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
        with get_axes(ax, type(self).__name__) as ax:
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
            ax.axhline(top, color="black", linestyle=":", linewidth=1.0)
            for alarm in self.alarms:
                ax.axvline(alarm.start, color="black", linewidth=0.5)
                ax.plot([alarm.row], [top], marker="v", color="black", linestyle="")
            if self.name is not None and colored:
                ax.legend()
            ax.set(xlabel="sample of the stream", ylabel="log10 of the martingale")
        self.ax_, self.figure_ = ax, ax.figure
        return self

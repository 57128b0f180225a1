"""PValuePlotDisplay: plot of sorted p-values, thresholds and change point."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from typing import Any

import numpy as np

from skood.combine._detector_ensemble import DetectorEnsemble
from skood.combine._multiple_tests import BenjaminiHochberg, DOSStorey
from skood.stats._conformal import reaches
from skood.utils._metaestimators import unwrap
from skood.utils._plotting import COLORS, BaseDisplay, long_names
from skood.utils._torch import to_numpy

# Largest number of panels that are readable in one figure.
_MAX_PANELS = 12

# Names with this many letters in total are slanted; with this many names, upright.
_LONG_NAMES = 60
_MANY_MEMBERS = 10

# The inset ends below this p-value: above it, the lines are visible without an inset.
_MAX_ZOOM = 0.35

# Candidate positions of the inset, as (left, bottom, width, height) of the axes.
_CORNERS = ((0.03, 0.55, 0.36, 0.4), (0.59, 0.13, 0.38, 0.4))

# Margin around the inset without lines, for its tick labels.
_MARGIN = 0.1


@dataclass(kw_only=True, eq=False, repr=False)
class PValuePlotDisplay(BaseDisplay):
    r"""Plot of the sorted p-values of a sample, with the lines of multiple testing.

    If a sample is ID for a detector, its p-value is uniform on [0, 1]. In ascending
    order, plotted over their ranks, :math:`m_0` such p-values rise to 1 on a line of
    slope :math:`1/m_0`. Detectors for which the sample is out-of-distribution (OOD)
    have p-values near zero, to the left of the bend. :class:`DOSStorey` finds the bend
    (the change point :math:`k`), and estimates :math:`1 / (\hat\pi_0 m)` by the slope
    of the line from :math:`(k, p_{(k)})` to :math:`(m, 1)`. The members up to the last
    p-value at or below the line :math:`\alpha i / (\hat\pi_0 m)` are selected: they
    reject the sample. With :math:`\hat\pi_0 = 1` this is the line of Benjamini and
    Hochberg.

    Use `from_estimator` or `from_pvalues` to create a display; the parameters become
    attributes. Each sample has its own panel.

    Read more in the :ref:`User Guide <combine>`.

    Parameters
    ----------
    pvalues : ndarray of shape (n_samples, n_members)
        The p-values, not sorted.

    selected : ndarray of shape (n_samples, n_members), dtype bool
        The members that reject the sample.

    level : ndarray of shape (n_samples,)
        The smallest level at which the sample is OOD.

    alpha : float
        The level of the test: a sample is OOD if its `level` is at most this.

    cut : float, default=None
        The level of the combiner's own statistic that corresponds to `alpha`, for the
        lines; None: `alpha`.

    names : list of str, default=None
        Names of the members; None: their indices.

    pi0 : ndarray of shape (n_samples,), default=None
        Estimated proportion of members for which the sample is ID; None: not estimated.

    change_point : ndarray of shape (n_samples,), dtype int, default=None
        Number of p-values up to the bend, 0 if there is none; None: not estimated.

    Attributes
    ----------
    ax_ : matplotlib Axes or list of them
        The axes; a list if there are several samples, as for all attributes except
        `figure_`.

    figure_ : matplotlib Figure
        The figure.

    line_ : matplotlib Line2D
        The p-values in ascending order, over their ranks 1, 2, ….

    selected_line_ : matplotlib Line2D
        The filled markers of the selected members.

    bh_line_ : matplotlib Line2D
        The line from the origin to `cut` at rank `n_members`.

    adaptive_line_ : matplotlib Line2D or None
        The line from the origin to ``cut / pi0``; None if `pi0` is None.

    slope_lines_ : tuple of (Line2D, Line2D) or None
        The lines from the origin to the change point, and from there to 1 at the
        last rank; None if there is no change point.

    zoom_ax_ : matplotlib Axes or None
        Inset of the lower left corner, enlarged; None if nothing is in the corner or
        there is no space for it.

    See Also
    --------
    DOSStorey : The change point and the estimate of `pi0`.
    DetectorEnsemble : Has members whose p-values can be plotted.

    References
    ----------
    .. [1] T. Schweder, E. Spjøtvoll. "Plots of p-values to evaluate many tests
       simultaneously", Biometrika 69, 1982.
    .. [2] A. Kostic, P. Fryzlewicz. "A change-point approach to estimating the
       proportion of false null hypotheses in multiple testing", arXiv:2309.10017,
       2023.

    Examples
    --------
    >>> from skood.combine import PValuePlotDisplay
    >>> p = [0.5, 0.001, 0.7, 0.03, 0.9, 0.008, 0.2]
    >>> display = PValuePlotDisplay.from_pvalues(p)
    >>> display.line_.get_ydata()
    array([0.001, 0.008, 0.03 , 0.2  , 0.5  , 0.7  , 0.9  ])
    >>> display.selected_line_.get_ydata()
    array([0.001, 0.008, 0.03 ])
    >>> int(display.change_point[0]), round(float(display.pi0[0]), 4)
    (3, 0.5891)
    """

    pvalues: np.ndarray
    selected: np.ndarray
    level: np.ndarray
    alpha: float
    cut: float | None = None
    names: Any = None
    pi0: Any = None
    change_point: Any = None

    @classmethod
    def from_pvalues(
        cls, pvalues, *, names=None, combiner=None, alpha=0.05, ax=None, **kwargs
    ):
        """Plot given p-values and the selection of a combiner.

        Parameters
        ----------
        pvalues : array-like of shape (n_members,) or (n_samples, n_members)
            The p-values of one sample, or of a few.

        names : list of str, default=None
            Names of the members; None: the columns of a data frame, or indices.

        combiner : BaseCombiner, default=None
            The combiner; None: ``DOSStorey()``, which needs four members, or
            ``BenjaminiHochberg()`` for fewer. The change point is drawn if it has a
            `change_point`, the adaptive line if it has a `pi0`.

        alpha : float, default=0.05
            The level of the test.

        ax : matplotlib Axes or list of them, default=None
            Axes to draw on, one for each sample; None makes a new figure.

        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        display : PValuePlotDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If the p-values are invalid, or there are too many samples.
        """
        if names is None and hasattr(pvalues, "columns"):
            names = [str(name) for name in pvalues.columns]
        P = np.atleast_2d(to_numpy(pvalues))
        if combiner is None:
            combiner = DOSStorey() if P.shape[1] >= 4 else BenjaminiHochberg()
        display = cls(
            selected=combiner.selected(P, alpha),
            pvalues=P.astype(np.float64),
            level=combiner.statistic(P),
            alpha=alpha,
            names=names,
            **_estimates(combiner, P),
        )
        return display.plot(ax, **kwargs)

    @classmethod
    def from_estimator(cls, ensemble, X, *, alpha=None, ax=None, **kwargs):
        """Plot the p-values of the members of a fitted ensemble.

        Parameters
        ----------
        ensemble : DetectorEnsemble
            A fitted ensemble. It may be the last step of a Pipeline.

        X : array-like of shape (n_samples, n_features)
            A few samples; each has its own panel.

        alpha : float, default=None
            The level of the test; None: the level of the ensemble.

        ax : matplotlib Axes or list of them, default=None
            Axes to draw on, one for each sample; None makes a new figure.

        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        display : PValuePlotDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If `ensemble` has no p-values.
        """
        final, X = unwrap(ensemble, X)
        if not isinstance(final, DetectorEnsemble):
            raise TypeError(
                "PValuePlotDisplay.from_estimator needs a DetectorEnsemble or a DSDE, "
                f"got {type(final).__name__}. Use from_pvalues with p-values of your "
                "own."
            )
        alpha = final._checked_alpha(alpha)
        evaluation = final._evaluate(X)
        display = cls(
            pvalues=evaluation.pvalues,
            selected=final._levels.selected(evaluation, alpha),
            level=evaluation.level,
            alpha=alpha,
            cut=final._levels.nominal(alpha),
            names=list(final.named_detectors_),
            **_estimates(final.combiner_, evaluation.pvalues),
        )
        return display.plot(ax, **kwargs)

    def plot(self, ax=None, *, plot_zoom=True, **kwargs):
        """Plot the p-values.

        Parameters
        ----------
        ax : matplotlib Axes or list of them, default=None
            Axes to draw on, one for each sample; None makes a new figure. The legend
            is to the right of the axes.

        plot_zoom : bool, default=True
            Whether to enlarge the lower left corner where members are near the lines.

        **kwargs : dict
            Passed to matplotlib's ``plot`` of the p-values.

        Returns
        -------
        display : PValuePlotDisplay
            This display, with `ax_`, `figure_` and the other attributes.
        """
        n_rows, n_members = self.pvalues.shape
        names = self._check_plot(n_rows, n_members)
        drawn, size = [], (max(8.0, 3.0 + 0.15 * n_members), 4.2 * n_rows)
        axes = None if ax is None else _checked_axes(ax, n_rows)
        with self._panels(axes, (n_rows, 1), size) as axes:
            panels = list(axes.ravel())
            for i, panel in enumerate(panels):
                drawn.append(_Panel(self, i, names, panel).draw(plot_zoom, kwargs))
        for name in drawn[0]:
            parts = [artists[name] for artists in drawn]
            setattr(self, name, parts[0] if n_rows == 1 else parts)
        self.figure_ = panels[0].figure
        return self

    def _check_plot(self, n_rows, n_members):
        """Return the names of the members; raise if their number is wrong."""
        if not 1 <= n_rows <= _MAX_PANELS:
            raise ValueError(
                f"Each sample gets a panel of its own, and from 1 to {_MAX_PANELS} fit "
                f"in a figure. Got {n_rows} samples: choose a few, such as X[:4]."
            )
        if self.names is None:
            return [str(j) for j in range(n_members)]
        if isinstance(self.names, str) or len(self.names) != n_members:
            raise ValueError(
                f"names must be a list of {n_members} names, one for each member, got "
                f"{self.names!r}."
            )
        return [str(name) for name in self.names]


def _estimates(combiner, P):
    """Return `pi0` and `change_point` of p-values, if the combiner estimates them."""
    return {
        name: getattr(combiner, name)(P)
        for name in ("pi0", "change_point")
        if hasattr(combiner, name)
    }


def _checked_axes(ax, n_rows):
    """Return axes as an array; raise unless there is one for each sample."""
    panels = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(panels) != n_rows:
        raise ValueError(
            f"There are {n_rows} samples, and each needs axes of its own; got "
            f"{len(panels)}. Give one for each in ax, or leave it out."
        )
    return panels


class _Panel:
    """The artists of one sample, which become attributes of the display."""

    def __init__(self, display, row, names, ax):
        p = display.pvalues[row]
        order = np.argsort(p, kind="stable")
        self._p, self._m = p[order], p.size
        self._selected = display.selected[row][order]
        self._names = [names[j] for j in order]
        self._title = f"sample {row}: " if len(display.pvalues) > 1 else ""
        self._alpha, self._level = display.alpha, display.level[row]
        self._cut = display.alpha if display.cut is None else display.cut
        self._pi0 = None if display.pi0 is None else float(display.pi0[row])
        points = display.change_point
        self._k = 0 if points is None else int(points[row])
        self.ax_ = ax

    def draw(self, plot_zoom, style):
        """Draw everything, and return the public attributes by name."""
        self.bh_line_, self.adaptive_line_ = self._draw_thresholds(self.ax_)
        self._draw_slopes()
        self.line_, self.selected_line_ = self._draw_pvalues(self.ax_, style)
        self._label()
        self.zoom_ax_ = self._draw_zoom(style) if plot_zoom else None
        return {
            name: artist for name, artist in vars(self).items() if name.endswith("_")
        }

    def _draw_thresholds(self, ax):
        """Draw the lines that p-values are compared with."""
        is_nominal = self._cut == self._alpha
        symbol, value = ("α", "") if is_nominal else ("c", f", c = {self._cut:.3g}")
        (bh,) = ax.plot(
            [0, self._m],
            [0, self._cut],
            color="0.35",
            linestyle=":",
            linewidth=1.4,
            label=f"${symbol}\\, i / m$ (BH){value}",
        )
        if self._pi0 is None:
            return bh, None
        # with pi0 = 0 the line is vertical
        right, top = (self._m, self._cut / self._pi0) if self._pi0 else (0, 1)
        (adaptive,) = ax.plot(
            [0, right],
            [0, top],
            color=COLORS[1],
            linestyle="--",
            linewidth=1.4,
            label=f"${symbol}\\, i / (\\hat\\pi_0 m)$, $\\hat\\pi_0$ = {self._pi0:.3f}",
        )
        return bh, adaptive

    def _draw_slopes(self):
        """Draw the two lines that meet at the change point."""
        self.slope_lines_ = None
        if self._k == 0:
            return
        k, p_k, m = self._k, self._p[self._k - 1], self._m
        style = {"color": COLORS[2], "linewidth": 5.0, "alpha": 0.3}
        (first,) = self.ax_.plot([0, k], [0, p_k], **style)
        (second,) = self.ax_.plot(
            [k, m], [p_k, 1], **style, label=f"slopes, change point {k}"
        )
        self.slope_lines_ = first, second

    def _draw_pvalues(self, ax, style):
        """Draw the p-values, and fill the markers of the selected members."""
        ranks = np.arange(1, self._m + 1)
        (line,) = ax.plot(
            ranks,
            self._p,
            **{
                "color": COLORS[0],
                "linewidth": 0.8,
                "marker": "o",
                "markerfacecolor": "white",
                "zorder": 2.5,
                "label": "p-value",
                **long_names(style),
            },
        )
        (selected,) = ax.plot(
            ranks[self._selected],
            self._p[self._selected],
            color=line.get_color(),
            linestyle="none",
            marker=line.get_marker(),
            markersize=line.get_markersize(),
            zorder=line.get_zorder() + 0.1,
            label=f"selected ({self._selected.sum()} of {self._m})",
        )
        return line, selected

    def _label(self):
        """Label the axes, and write the decision in the title."""
        is_ood = reaches(self._level, self._alpha)
        verdict, sign = ("OOD", "≤") if is_ood else ("ID", ">")
        self.ax_.set_title(
            f"{self._title}{verdict} (level {self._level:.3g} {sign} {self._alpha:g})"
        )
        ranks = np.arange(1, self._m + 1)
        self.ax_.set_xticks(ranks, self._names, fontsize="small", **self._tilt())
        self.ax_.set_xlim(0, self._m + 0.5)
        self.ax_.set_ylim(-0.03, 1.03)
        self.ax_.set_ylabel("p-value")
        self.ax_.legend(
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            fontsize="small",
            frameon=False,
        )

    def _tilt(self):
        """Return text properties of the names: horizontal, slanted or upright."""
        if sum(map(len, self._names)) < _LONG_NAMES:
            return {}
        if self._m < _MANY_MEMBERS:
            return {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
        return {"rotation": 90}

    def _draw_zoom(self, style):
        """Enlarge the lower left corner with the lines; None if not needed."""
        height = self._cut / (self._pi0 or 1.0)
        near = max(np.sum(self._p <= height), self._selected.sum())
        right = min(near + 1, self._m)
        top = 1.3 * max(self._p[near - 1], height * right / self._m) if near else 1.0
        corner = self._free_corner()
        if not 0 < top <= _MAX_ZOOM or corner is None:
            return None
        zoom = self.ax_.inset_axes(corner)
        self._draw_thresholds(zoom)
        self._draw_pvalues(zoom, style)
        zoom.set_xlim(0, right + 0.5)
        zoom.set_ylim(-0.08 * top, top)
        zoom.set_xticks([])
        zoom.tick_params(labelsize="small")
        zoom.yaxis.set_ticks_position("right" if corner == _CORNERS[0] else "left")
        zoom.spines[:].set(color="0.5", linestyle="--")
        self.ax_.indicate_inset(
            (0, -0.02, right + 0.5, max(top, 0.02) + 0.02),
            edgecolor="0.5",
            linestyle="--",
        )
        return zoom

    def _free_corner(self):
        """Return the upper left or the lower right corner if nothing is drawn there."""
        x = np.linspace(0, self._m, 200)
        ranks = np.arange(1, self._m + 1)
        drawn = [np.interp(x, ranks, self._p)]
        if self._k:
            drawn.append(
                np.interp(x, [0, self._k, self._m], [0, self._p[self._k - 1], 1])
            )
        x = x / (self._m + 0.5)
        for corner in _CORNERS:
            left, bottom, width, height = corner
            is_near = np.abs(x - left - width / 2) < width / 2 + _MARGIN
            level = np.abs(np.array(drawn) - bottom - height / 2) < height / 2 + _MARGIN
            if not (is_near & level).any():
                return corner
        return None

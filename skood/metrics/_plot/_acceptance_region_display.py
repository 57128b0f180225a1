"""Display of the acceptance region of a rule in the plane of its scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from skood.decision import OperatingPoint
from skood.decision._operating_point import weights
from skood.metrics._plot._rejector import (
    check_names,
    check_point,
    detector_names,
    read_rejector,
)
from skood.metrics._selective_risk import reject_scores
from skood.utils._param_validation import Number, validate_params
from skood.utils._plotting import COLORS, BaseDisplay, long_names

# kind of samples: color and marker (as in the histograms for ID and OOD), height of
# their strip if there is only one score
_STYLES = {
    "ID, right": (COLORS[0], "o", 2.0),
    "ID, wrong": ("black", "x", 1.0),
    "OOD": (COLORS[1], "^", 0.0),
}


@dataclass(kw_only=True, eq=False, repr=False)
class AcceptanceRegionDisplay(BaseDisplay):
    r"""Scatter plot of samples by two scores, with the acceptance region of a rule.

    Both scores are high for samples to reject: a for likely misclassified samples, b
    for OOD samples. The acceptance region is shaded, and its border drawn. With a
    single score the samples lie in strips along one axis, one strip for each kind. Use
    `from_estimator` or `from_predictions` to make a display; the parameters become
    attributes.

    Read more in the :ref:`User Guide <rejection>`.

    Parameters
    ----------
    risk_id, ood_id : ndarray of shape (n_id,)
        The scores a and b of ID samples; `ood_id` is None for a single score.

    wrong_id : ndarray of shape (n_id,), dtype bool
        Which ID samples are misclassified.

    risk_ood, ood_ood : ndarray of shape (n_ood,)
        The scores of OOD samples; `ood_ood` is None for a single score.

    point : OperatingPoint
        The rule.

    score_names : tuple of (str, str), default=("-y_score", "-ood_score")
        Names of a and b, for the axes.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        The axes and the figure.

    region_ : matplotlib Polygon
        The accepted region within the axes; empty if there is none.

    line_ : matplotlib Line2D
        Its border; empty if it is not within the axes.

    points_right_, points_wrong_, points_ood_ : matplotlib Line2D or None
        The samples drawn, None for a kind without samples.

    See Also
    --------
    skood.rejection.solve : Finds the rule.
    DoubleScoreROCDisplay : Rates of the best rule at every bound.
    ScoreHistogramDisplay : The distribution of one score.

    Notes
    -----
    The region is :math:`\cos\theta\, a/c_a + \sin\theta\, b/c_b \le \lambda`, or a
    rectangle with a rule of :class:`skood.rejection.TwoThresholds`. On axes
    that are not linear its border is a curve, which is drawn as such. The region is
    drawn for the limits of the axes at the time of drawing.

    Examples
    --------
    >>> from skood.metrics import AcceptanceRegionDisplay
    >>> from skood.rejection import OperatingPoint
    >>> display = AcceptanceRegionDisplay.from_predictions(
    ...     [0, 1, 1, -1],
    ...     [0, 1, 0, 1],
    ...     [0.9, 0.8, 0.4, 0.6],
    ...     [3.0, 2.0, 2.5, 1.0],
    ...     point=OperatingPoint(theta=0.0, lam=-0.5),
    ... )
    >>> float(display.line_.get_xdata()[0])
    -0.5
    >>> [text.get_text() for text in display.ax_.get_legend().get_texts()][:2]
    ['ID, right: 100.0 % of 2 accepted', 'ID, wrong: 0.0 % of 1 accepted']
    """

    risk_id: np.ndarray
    ood_id: Any
    wrong_id: np.ndarray
    risk_ood: np.ndarray
    ood_ood: Any
    point: OperatingPoint
    score_names: tuple = ("-y_score", "-ood_score")

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_pred,
        y_score,
        ood_score=None,
        *,
        point,
        ood_label=-1,
        classes=None,
        score_names=("-y_score", "-ood_score"),
        ax=None,
        **kwargs,
    ):
        """Draw a rule from labels, predictions and scores.

        Parameters
        ----------
        y_true, y_pred, y_score, ood_score, ood_label, classes
            As in :func:`selective_risk_at`; a is minus `y_score`, b minus `ood_score`.
            There need be no OOD samples.

        point : OperatingPoint
            A rule on the negated scores, as :func:`selective_risk_at`,
            :meth:`TwoScoreCurve.rule_at` and :func:`skood.rejection.solve` return it.

        score_names : tuple of (str, str), default=("-y_score", "-ood_score")
            Names of a and b, for the axes.

        ax, **kwargs
            Passed to `plot`.

        Returns
        -------
        display : AcceptanceRegionDisplay
            The display, drawn.
        """
        check_point(point)
        arguments = y_true, y_pred, y_score, ood_score, "zero_one", ood_label, classes
        samples = reject_scores(*arguments, needs_ood=False)
        (risk_id, risk_ood), (ood_id, ood_ood) = map(samples.by_kind, ("risk", "ood"))
        display = cls(
            risk_id=risk_id,
            ood_id=ood_id,
            wrong_id=samples.by_kind("loss")[0] > 0,
            risk_ood=risk_ood,
            ood_ood=ood_ood,
            point=point,
            score_names=score_names,
        )
        return display.plot(ax, **kwargs)

    @classmethod
    def from_estimator(cls, estimator, X, y, *, ax=None, **kwargs):
        """Draw the rule of a fitted RejectOptionClassifier.

        Parameters
        ----------
        estimator, X, y
            As in :meth:`DoubleScoreROCDisplay.from_estimator`.

        ax, **kwargs
            Passed to `plot`.

        Returns
        -------
        display : AcceptanceRegionDisplay
            The display, drawn.
        """
        read = read_rejector(estimator, X, cls.__name__)
        clf, y_pred, y_score, ood_score, labels = read
        if clf.operating_point_ is None:
            raise ValueError(
                "The RejectOptionClassifier has rule=None, so it accepts everything "
                "and has no region to draw. Set a rule, such as BoundedTPRFPR()."
            )
        names = [f"-{name} score" for name in detector_names(clf, "")]
        if clf.risk_detector_ is None:
            plain = isinstance(clf.loss, str)
            names[0] = "1 - max probability" if plain else "expected loss"
        return cls.from_predictions(
            y,
            y_pred,
            y_score,
            ood_score,
            point=clf.operating_point_,
            score_names=tuple(names),
            ax=ax,
            **labels,
            **kwargs,
        )

    @validate_params(
        {
            "max_points": [Number(Integral, 1, None, closed="left")],
            "random_state": ["random_state"],
        },
        prefer_skip_nested_validation=True,
    )
    def plot(
        self,
        ax=None,
        *,
        max_points=1000,
        random_state=0,
        xscale=None,
        yscale=None,
        **kwargs,
    ):
        """Draw the samples and the region.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        max_points : int, default=1000
            Largest number of samples of each kind (ID and right, ID and wrong, OOD) to
            draw; of more, a random subset is drawn. The legend counts all samples.

        random_state : int, RandomState instance or None, default=0
            Controls the random subset and the jitter within the strip of a single
            score.

        xscale, yscale : str, default=None
            Scales of the axes, such as "log", "symlog" or "logit"; None leaves them
            unchanged: linear in a new figure.

        **kwargs : dict
            Passed to matplotlib's ``plot``, of all samples.

        Returns
        -------
        display : AcceptanceRegionDisplay
            This display, with `ax_`, `figure_` and the other attributes.
        """
        double = self.ood_id is not None
        if yscale is not None and not double:
            raise ValueError(
                f"yscale={yscale!r} is for the second score, but there is only one. "
                "Leave yscale out."
            )
        check_names(self.score_names, double)
        with self._axes(ax) as ax:
            if xscale is not None:
                ax.set_xscale(xscale)
            if yscale is not None:
                ax.set_yscale(yscale)
            self._draw_samples(ax, max_points, check_random_state(random_state), kwargs)
            self._draw_region(ax)
            ax.set_xlabel(f"a = {self.score_names[0]}  (high = reject)")
            if double:
                ax.set_ylabel(f"b = {self.score_names[1]}  (high = reject)")
            else:
                heights = [style[2] for style in _STYLES.values()]
                ax.set_yticks(heights, list(_STYLES))
            ax.legend(
                loc="upper center",
                ncols=2,
                fontsize="small",
                framealpha=1,
                handlelength=1.5,
                handletextpad=0.5,
                columnspacing=1.0,
            )
        return self

    def _kinds(self):
        """Return both scores of the samples of each kind, as in `_STYLES`."""
        right, wrong = ~self.wrong_id, self.wrong_id
        if self.ood_id is None:
            risks = self.risk_id[right], self.risk_id[wrong], self.risk_ood
            return [(risk, None) for risk in risks]
        return [
            (self.risk_id[right], self.ood_id[right]),
            (self.risk_id[wrong], self.ood_id[wrong]),
            (self.risk_ood, self.ood_ood),
        ]

    def _draw_samples(self, ax, max_points, rng, kwargs):
        """Set the limits of the axes, and draw the samples."""
        groups = []
        for (name, (color, marker, height)), (x, ood) in zip(
            _STYLES.items(), self._kinds(), strict=True
        ):
            y = height + rng.uniform(-0.35, 0.35, x.size) if ood is None else ood
            shown = _drawable(ax.get_xscale(), x) & _drawable(ax.get_yscale(), y)
            finite = np.isfinite(x) & np.isfinite(y)
            label = None
            if x.size:
                fraction = self.point.accept_proba(x, ood).mean()
                label = f"{name}: {100 * fraction:.1f} % of {x.size} accepted"
                label += _hidden(np.sum(~finite), np.sum(finite & ~shown))
            groups.append((x[shown], y[shown], label, color, marker))
        _set_limits(ax.xaxis, ax.set_xlim, [group[0] for group in groups])
        # space for the legend above the samples
        _set_limits(ax.yaxis, ax.set_ylim, [group[1] for group in groups], above=0.35)
        drawn: list = []
        for x, y, label, color, marker in groups:
            style = {
                "linestyle": "none",
                "marker": marker,
                "markersize": 4,
                "color": color,
                "alpha": 0.6,
                "label": label,
                **long_names(kwargs),
            }
            subset = np.arange(x.size)
            if x.size > max_points:
                subset = np.sort(rng.choice(x.size, max_points, replace=False))
            drawn += ax.plot(x[subset], y[subset], **style) if label else [None]
        self.points_right_, self.points_wrong_, self.points_ood_ = drawn

    def _draw_region(self, ax):
        """Shade the acceptance region within the axes, and draw the border."""
        point = self.point
        box = ax.get_xlim(), ax.get_ylim()
        if point.has_two_thresholds and point.theta == 0:
            corners, border = _rectangle(
                point.lam * point.scales[0], point.ood_max, *box
            )
        else:
            w_a, w_b = weights(point.theta)
            factors = np.array([w_a / point.scales[0], w_b / point.scales[1]])
            box = box[0], np.minimum(box[1], point.ood_max)
            corners, border = _half_plane(factors, point.lam, *box)
            if len(border):
                axes = ax.xaxis, ax.yaxis
                inner = _along(factors, point.lam, border[0], border[1], axes)
                border = np.concatenate([border[:1], inner, border[1:]])
                corners = np.concatenate([border, corners])
        (self.region_,) = ax.fill(
            *corners.T,
            facecolor=(COLORS[2], 0.18),
            edgecolor="none",
            zorder=0.5,
            label="accepted region" if len(corners) else "no accepted region here",
        )
        unsure = f", τ = {point.tau:.3g}" if 0 < point.tau < 1 else ""
        (self.line_,) = ax.plot(
            *border.T, color="black", linewidth=1.5, label=_described(point) + unsure
        )


def _described(point):
    """Return a rule as text for the legend."""
    cap = f", b ≤ {point.ood_max:.3g}" if point.has_two_thresholds else ""
    if cap and point.theta == 0:
        return f"rule: a ≤ {point.lam * point.scales[0]:.3g}{cap}"
    return f"rule: θ = {np.degrees(point.theta):.1f}°, λ = {point.lam:.3g}{cap}"


def _drawable(scale, values):
    """Return which values an axis can show: finite and valid for its scale."""
    shown = np.isfinite(values)
    if scale in ("log", "logit"):
        shown &= values > 0
    if scale == "logit":
        shown &= values < 1
    return shown


def _hidden(n_infinite, n_off):
    """Warn about samples that are not drawn."""
    notes = [
        f"{count} {kind}"
        for count, kind in ((n_infinite, "infinite"), (n_off, "off the scale"))
        if count
    ]
    return f" ({', '.join(notes)})" if notes else ""


def _set_limits(axis, set_limits, groups, above=0.0):
    """Fit an axis to values, with a margin in the units of its scale.

    `set_limits` is ``set_xlim`` or ``set_ylim``, `groups` are arrays of values, all
    valid for the axis, and `above` is an additional margin at the upper end.
    """
    values = np.concatenate(groups)
    if values.size == 0:
        raise ValueError(
            "No sample can be drawn: every sample has an infinite score, or one that "
            "the scale of its axis does not take. Use xscale and yscale of 'linear' or "
            "'symlog' for scores that are not positive."
        )
    scale = axis.get_transform()
    low, high = scale.transform(np.array([values.min(), values.max()]))
    width = (high - low) or 1.0
    ends = np.array([low - 0.05 * width, high + (0.05 + above) * width])
    set_limits(*scale.inverted().transform(ends))


def _half_plane(factors, lam, xlim, ylim):
    """Intersect the box of the axes with the region ``factors @ (a, b) <= lam``.

    Returns the corners of the box in the region, of shape (n_corners, 2), in order from
    the end of the border on, and where the border enters and leaves the box: shape (2,
    2), or (0, 2) if it does not.
    """
    box = np.array(
        [[xlim[i], ylim[j]] for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))], dtype=float
    )
    excess = box @ factors - lam
    inside = excess <= 0
    if inside.all() or not inside.any():
        return box[inside], np.empty((0, 2))
    border = []
    for leaves in (True, False):  # the one corner after which the region ends, begins
        (k,) = np.flatnonzero((inside == leaves) & (np.roll(inside, -1) != leaves))
        after = (k + 1) % 4
        fraction = excess[k] / (excess[k] - excess[after])
        border.append(box[k] + fraction * (box[after] - box[k]))
        if not leaves:
            start = after
    corners = np.roll(box, -start, axis=0)[: inside.sum()]
    return corners, np.array(border)


def _rectangle(a_max, b_max, xlim, ylim):
    """Intersect the box of the axes with the region ``a <= a_max, b <= b_max``.

    Returns the corners and the border within the box, as `_half_plane` does; the border
    has three points if it turns within the box.
    """
    (left, right), (low, high) = np.sort(xlim), np.sort(ylim)
    a, b = min(a_max, right), min(b_max, high)
    if a < left or b < low:
        return np.empty((0, 2)), np.empty((0, 2))
    corners = np.array([[left, low], [a, low], [a, b], [left, b]])
    first, last = (1 if a_max <= right else 2), (4 if b_max <= high else 3)
    return corners, corners[first:last] if last - first > 1 else np.empty((0, 2))


def _along(factors, lam, start, end, axes):
    """Return points of the border between two, dense in the units of both axes."""
    pieces = []
    for k in (0, 1):
        other = 1 - k
        if factors[other] == 0:
            continue
        scale = axes[k].get_transform()
        ends = scale.transform(np.array([start[k], end[k]]))
        values = scale.inverted().transform(np.linspace(ends[0], ends[1], 202)[1:-1])
        points = np.empty((values.size, 2))
        points[:, k] = values
        points[:, other] = (lam - factors[k] * values) / factors[other]
        pieces.append(points)
    low, high = np.minimum(start, end), np.maximum(start, end)
    points = np.clip(np.concatenate(pieces), low, high)
    towards = np.sign(end - start)
    return points[np.lexsort((towards[1] * points[:, 1], towards[0] * points[:, 0]))]

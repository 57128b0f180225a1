"""Displays of curves of the best rule on two scores: ROC and precision-recall."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from skood.decision import (
    BaseRule,
    Rates,
    Solver,
)
from skood.decision._base_rule import rates_within
from skood.decision._operating_point import precision_at
from skood.metrics._plot._rejector import (
    check_names,
    check_point,
    detector_names,
    read_rejector,
)
from skood.metrics._selective_risk import reject_scores
from skood.metrics._two_score_curves import TwoScoreCurve
from skood.utils._plotting import COLORS, DASHES, BaseDisplay, long_names


def _rates(point, samples, ood_prior, knows_risk):
    """Return a rule with its rates on given samples."""
    check_point(point)
    (risk_id, risk_ood), (ood_id, ood_ood) = map(samples.by_kind, ("risk", "ood"))
    loss_id = samples.by_kind("loss")[0]
    accepted = point.accept_proba(risk_id, ood_id)
    tpr = float(accepted.mean())
    fpr = math.nan
    if risk_ood.size:
        fpr = float(point.accept_proba(risk_ood, ood_ood).mean())
    risk = math.nan
    if knows_risk and tpr > 0:
        risk = float(accepted @ loss_id / accepted.sum())
    precision = precision_at(ood_prior, tpr, fpr if ood_prior else 0.0)
    rates = Rates(risk=risk, tpr=tpr, fpr=fpr, precision=precision)
    return replace(point, rates=rates, gap=math.nan, attainable=None)


@dataclass(kw_only=True, eq=False, repr=False)
class BoundDisplay(BaseDisplay):
    """Base class for displays of curves at bounds; see `DoubleScoreROCDisplay`."""

    # Of subclasses: a rule with the bounds that can be marked, the bounds of a rule or
    # None, and the constructor from predictions.
    _example_rule: ClassVar[str]
    _marked_bounds: ClassVar[Any]
    from_predictions: ClassVar[Any]

    curve: TwoScoreCurve
    single_curves: Sequence[TwoScoreCurve] = ()
    score_names: tuple = ("y_score", "ood_score")
    point: Any = None
    rule: Any = None

    @classmethod
    def _compute(cls, y_true, y_pred, scores, point, **params):
        """Return the curves and the rated point as constructor arguments."""
        make = partial(TwoScoreCurve.from_predictions, y_true, None)
        singles = [] if scores[1] is None else scores
        curve = make(*scores, **params)
        if point is not None:
            loss = None if y_pred is None else "zero_one"
            prior = params.get("ood_prior", math.nan)
            samples = reject_scores(
                y_true,
                y_pred,
                scores[0],
                scores[1],
                loss,
                params["ood_label"],
                params["classes"],
                needs_ood=prior != 0,
            )
            point = _rates(point, samples, prior, y_pred is not None)
        return {
            "curve": curve,
            "single_curves": [make(s, **params) for s in singles],
            "point": point,
        }

    @classmethod
    def _from_rejector(cls, y, read, rule, solver, **kwargs):
        """Draw the result of `read_rejector`, with the bounds of `rule`."""
        clf, y_pred, y_score, ood_score, labels = read
        if solver is None:
            angles = getattr(clf.solver, "angles", "quadrant")
            solver = Solver("grid", angles=angles, n_angles=91)
        return cls.from_predictions(
            y,
            y_score,
            ood_score,
            y_pred=y_pred,
            point=clf.operating_point_,
            rule=rule,
            solver=solver,
            score_names=detector_names(clf, "max probability"),
            **labels,
            **kwargs,
        )

    def _check_plot(self):
        """Raise unless there are names, and the bounds of the rule can be marked."""
        check_names(self.score_names, len(self.single_curves) > 0)
        if self.rule is None:
            return
        if isinstance(self.rule, BaseRule):
            self.rule.check_params()
            if self._marked_bounds(self.rule) is not None:
                return
        raise TypeError(
            f"{type(self).__name__} marks bounds as in "
            f"{self._example_rule}, got rule={self.rule!r}. Leave rule out, or mark "
            "its operating point by point."
        )

    def _draw_curves(self, ax, read, plot_single, kwargs):
        """Draw the curve of the best rule above the curves of the single scores."""
        names = ["both scores", *(f"{name} alone" for name in self.score_names)]
        if not self.single_curves:
            names = list(self.score_names[:1])
        curves = [self.curve, *(self.single_curves if plot_single else ())]
        n_before = sum(line.get_gid() == "bound-curve" for line in ax.lines)
        lines = []
        for i, curve in enumerate(curves):
            x, y, drawstyle, area = read(curve)
            style = {
                "color": COLORS[(n_before + i) % len(COLORS)],
                "linestyle": DASHES[i],
                "gid": "bound-curve",
                "linewidth": 1.5 if i else 2.2,
                "zorder": 2.2 if i else 2.5,
                "label": f"{names[i]} (area {area:.3f})",
                "drawstyle": drawstyle,
                **({} if i else long_names(kwargs)),
            }
            lines += ax.plot(x, y, **style)
        self.line_, self.single_lines_ = lines[0], lines[1:]

    def _draw_bounds(self, ax, left, right, bottom, label):
        """Shade the corner of the plot in which the bounds are met."""
        from matplotlib.patches import Rectangle

        self.bounds_ = ax.add_patch(
            Rectangle(
                (left, bottom),
                right - left,
                1 - bottom,
                facecolor=("0.5", 0.15),
                edgecolor="0.35",
                linestyle=":",
                linewidth=1.2,
                zorder=1.5,
                label=label,
            )
        )

    def _draw_point(self, ax, x, y, rates):
        """Mark the operating point."""
        if not math.isnan(self.point.risk):
            rates += f", risk {self.point.risk:.3f}"
        (self.point_,) = ax.plot(
            [x],
            [y],
            linestyle="none",
            marker="o",
            markersize=8,
            markerfacecolor="black",
            markeredgecolor="white",
            zorder=3,
            label=f"operating point\n({rates})",
        )

    def _finish(self, ax, xlabel, ylabel, loc):
        """Label the axes."""
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        ax.set_xlim(-0.01, 1.01)
        ax.set_ylim(top=1.01)
        ax.legend(loc=loc, fontsize="small", framealpha=0.9)
        return self


class DoubleScoreROCDisplay(BoundDisplay):
    """ROC curve of the best rule on two scores, with the curve of each score.

    For every TPR the curve shows the smallest FPR of a rule on both scores. ID samples
    are positive; high and to the left is good. Use `from_estimator` or
    `from_predictions` to make a display; the parameters become attributes.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    curve : TwoScoreCurve
        The curve of kind "roc" for both scores, or for one.

    single_curves : list of TwoScoreCurve, default=()
        The same for each score alone; empty if there is only one.

    score_names : tuple of (str, str), default=("y_score", "ood_score")
        Names of the scores, for the legend.

    point : OperatingPoint, default=None
        A rule to mark, by its `tpr` and `fpr`; its `risk` is shown in the legend unless
        it is NaN.

    rule : BaseRule, default=None
        Its bounds on TPR and FPR are shaded; it must bound the latter.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        The axes and the figure.

    line_ : matplotlib Line2D
        The curve of the best rule.

    single_lines_ : list of matplotlib Line2D
        The curves of each score alone.

    point_ : matplotlib Line2D or None
        The marker of the operating point.

    bounds_ : matplotlib Rectangle or None
        Where the bounds of the rule are met.

    random_line_ : matplotlib Line2D or None
        The curve of a random score.

    See Also
    --------
    TwoScoreCurve : The numbers.
    PrecisionRecallDisplay : Precision and recall, for a fraction of OOD samples.
    AcceptanceRegionDisplay : One rule, in the plane of both scores.
    sklearn.metrics.RocCurveDisplay : Curves of single scores, with straight lines
        between the thresholds; here curves are steps, without randomization.

    Examples
    --------
    >>> from skood.metrics import DoubleScoreROCDisplay
    >>> y_true = [0, 1, 1, -1, -1]
    >>> first, second = [0.9, 0.8, 0.3, 0.7, 0.2], [0.4, 0.7, 0.9, 0.1, 0.8]
    >>> display = DoubleScoreROCDisplay.from_predictions(y_true, first, second)
    >>> display.line_.get_xydata()
    array([[0., 0.],
           [0., 1.],
           [1., 1.]])
    """

    _example_rule = "BoundedTPRFPR"

    @staticmethod
    def _marked_bounds(rule):
        """Return the bounds of a rule on TPR and FPR, or None without the latter."""
        tpr_min, fpr_max = rates_within(rule.rates())
        return None if fpr_max is None else (tpr_min, fpr_max)

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_score,
        ood_score=None,
        *,
        y_pred=None,
        point=None,
        rule=None,
        ood_label=-1,
        classes=None,
        solver=None,
        score_names=("y_score", "ood_score"),
        ax=None,
        **kwargs,
    ):
        """Draw the curves from labels and scores.

        Parameters
        ----------
        y_true, y_score, ood_score, y_pred, ood_label, classes, solver
            As in :meth:`TwoScoreCurve.from_predictions`. Predicted labels are for the
            selective risk at `point`, None: without.

        point : OperatingPoint, default=None
            A rule on the negated scores, as :func:`selective_risk_at` and
            :func:`skood.rejection.solve` return it; marked at its rates on these
            samples.

        rule, score_names
            As of the display.

        ax, **kwargs
            Passed to `plot`.

        Returns
        -------
        display : DoubleScoreROCDisplay
            The display, drawn.
        """
        known = {"ood_label": ood_label, "classes": classes, "solver": solver}
        scores = y_score, ood_score
        made = cls._compute(y_true, y_pred, scores, point, kind="roc", **known)
        return cls(**made, score_names=score_names, rule=rule).plot(ax, **kwargs)

    @classmethod
    def from_estimator(cls, estimator, X, y, *, solver=None, ax=None, **kwargs):
        """Draw the curves and the operating point of a fitted RejectOptionClassifier.

        Parameters
        ----------
        estimator : RejectOptionClassifier
            Fitted. It may be the last step of a Pipeline, or in a search. If its rule
            bounds the FPR, such as :class:`~skood.rejection.BoundedTPRFPR`, its bounds
            on TPR and FPR are shaded.

        X : array-like of shape (n_samples, ...)
            The samples.

        y : array-like of shape (n_samples,)
            Their labels. A sample is OOD when its label is the `ood_label` of the
            classifier or is not in its `classes_`.

        solver : Solver, default=None
            See :meth:`TwoScoreCurve.from_predictions`. None: 91 angles, of the range
            that the solver of the classifier searches.

        ax, **kwargs
            Passed to `plot`.

        Returns
        -------
        display : DoubleScoreROCDisplay
            The display, drawn.
        """
        read = read_rejector(estimator, X, cls.__name__)
        rule = read[0].rule
        if rule is not None and cls._marked_bounds(rule) is None:
            rule = None
        return cls._from_rejector(y, read, rule, solver, ax=ax, **kwargs)

    @staticmethod
    def _read(curve):
        """Return the corners of the curve, its draw style and its area."""
        fpr, tpr = np.append(curve.values, 1.0), np.append(curve.bounds, 1.0)
        return np.append(0.0, fpr), np.append(0.0, tpr), "steps-post", 1 - curve.area

    def plot(self, ax=None, *, plot_single=True, plot_random=False, **kwargs):
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        plot_single : bool, default=True
            Whether to draw the curves of each score alone.

        plot_random : bool, default=False
            Whether to draw the curve of a random score.

        **kwargs : dict
            Passed to matplotlib's ``plot``, of the curve of the best rule.

        Returns
        -------
        display : DoubleScoreROCDisplay
            This display, with `ax_`, `figure_` and the other attributes.
        """
        self._check_plot()
        with self._axes(ax) as ax:
            self._draw_curves(ax, self._read, plot_single, kwargs)
            self.bounds_ = self.point_ = self.random_line_ = None
            if self.point is not None:
                x, y = self.point.fpr, self.point.tpr
                self._draw_point(ax, x, y, f"TPR {y:.3f}, FPR {x:.3f}")
            if self.rule is not None:
                tpr, fpr = self._marked_bounds(self.rule)
                label = f"FPR ≤ {fpr:g}"
                if tpr is not None:
                    label = f"TPR ≥ {tpr:g}, {label}"
                self._draw_bounds(ax, 0, fpr, tpr or 0, f"bounds: {label}")
            if plot_random:
                (self.random_line_,) = ax.plot(
                    [0, 1], [0, 1], color="0.45", linestyle=":", label="random"
                )
            ax.set_ylim(bottom=-0.01)
            return self._finish(
                ax,
                "FPR: fraction of OOD samples accepted",
                "TPR: fraction of ID samples accepted",
                "lower right",
            )


@dataclass(kw_only=True, eq=False, repr=False)
class PrecisionRecallDisplay(BoundDisplay):
    """Precision-recall curve of the best rule on two scores, and of each score.

    ID samples are positive, and the fraction of OOD samples at deployment is a
    parameter, which may differ from the fraction in the data. Use `from_estimator` or
    `from_predictions` to make a display; the parameters become attributes.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    curve : TwoScoreCurve
        The curve of kind "precision_recall" for both scores, or for one.

    ood_prior : float
        The fraction of OOD samples at deployment that the curves were made for.

    single_curves, score_names, point
        As of :class:`DoubleScoreROCDisplay`; `point` is marked by its `tpr` and
        `precision`.

    rule : BaseRule, default=None
        Its bounds on precision and recall are shaded; it must bound the former, at the
        `ood_prior` of the display.

    Attributes
    ----------
    ax_, figure_, line_, single_lines_, point_, bounds_, random_line_
        As of :class:`DoubleScoreROCDisplay`.

    fpr_lines_ : list of matplotlib Line2D
        Lines of equal FPR.

    See Also
    --------
    TwoScoreCurve : The numbers.
    DoubleScoreROCDisplay : TPR and FPR, which do not depend on a prior.
    sklearn.metrics.PrecisionRecallDisplay : The curve of one score at the class ratio.

    Examples
    --------
    >>> from skood.metrics import PrecisionRecallDisplay
    >>> display = PrecisionRecallDisplay.from_predictions(
    ...     [0, 1, 1, -1, -1], [0.9, 0.8, 0.3, 0.7, 0.2], ood_prior=0.25
    ... )
    >>> display.line_.get_xydata().round(4)
    array([[0.    , 1.    ],
           [0.6667, 1.    ],
           [1.    , 0.8571]])
    """

    ood_prior: float

    _example_rule = "BoundedPrecisionRecall"

    @staticmethod
    def _marked_bounds(rule):
        """Return the bounds of a rule on precision and recall, or None."""
        rates, prior = rule.rates(), rule.ood_prior
        if not prior:
            return None
        # right * t >= wrong * f is a bound on the precision; the largest one counts
        bounds = [
            precision_at(prior, rate.ood, -rate.id)
            for rate in rates
            if rate.id <= 0 < rate.ood and rate.loss == rate.constant == 0
        ]
        return (max(bounds), rates_within(rates)[0]) if bounds else None

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_score,
        ood_score=None,
        *,
        ood_prior=0.5,
        y_pred=None,
        point=None,
        rule=None,
        ood_label=-1,
        classes=None,
        solver=None,
        score_names=("y_score", "ood_score"),
        ax=None,
        **kwargs,
    ):
        """Draw the curves from labels and scores.

        Parameters
        ----------
        y_true, y_score, ood_score, y_pred, point, rule, ood_label, classes, solver
            As in :meth:`DoubleScoreROCDisplay.from_predictions`; `rule` is a
            BoundedPrecisionRecall of the same `ood_prior`.

        ood_prior : float, default=0.5
            Fraction of OOD samples at deployment, in [0, 1).

        score_names, ax, **kwargs
            As in :meth:`DoubleScoreROCDisplay.from_predictions`.

        Returns
        -------
        display : PrecisionRecallDisplay
            The display, drawn.
        """
        known = {"ood_label": ood_label, "classes": classes, "solver": solver}
        known |= {"kind": "precision_recall", "ood_prior": ood_prior}
        made = cls._compute(y_true, y_pred, (y_score, ood_score), point, **known)
        display = cls(**made, ood_prior=ood_prior, score_names=score_names, rule=rule)
        return display.plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls, estimator, X, y, *, ood_prior=None, solver=None, ax=None, **kwargs
    ):
        """Draw the curves and the operating point of a fitted RejectOptionClassifier.

        Parameters
        ----------
        estimator, X, y
            As in :meth:`DoubleScoreROCDisplay.from_estimator`; bounds are shaded if the
            rule bounds the precision at this `ood_prior`, such as
            :class:`~skood.rejection.BoundedPrecisionRecall`.

        ood_prior : float, default=None
            Fraction of OOD samples at deployment, in [0, 1). None: the prior of the
            classifier's rule, 0.5 if it has none.

        solver, ax, **kwargs
            As in :meth:`DoubleScoreROCDisplay.from_estimator`.

        Returns
        -------
        display : PrecisionRecallDisplay
            The display, drawn.
        """
        read = read_rejector(estimator, X, cls.__name__)
        rule = read[0].rule
        of_rule = getattr(rule, "ood_prior", None)
        if ood_prior is None:
            ood_prior = 0.5 if of_rule is None else of_rule
        if of_rule != ood_prior or cls._marked_bounds(rule) is None:
            rule = None
        kwargs |= {"ood_prior": ood_prior, "ax": ax}
        return cls._from_rejector(y, read, rule, solver, **kwargs)

    @staticmethod
    def _read(curve):
        """Return the corners of the curve, its draw style and its area."""
        recall = np.append(0.0, curve.bounds)
        return recall, np.append(curve.values[0], curve.values), "steps-pre", curve.area

    def plot(
        self, ax=None, *, plot_single=True, plot_random=False, fpr_lines=(), **kwargs
    ):
        """Draw the curves.

        Parameters
        ----------
        ax, plot_single, **kwargs
            As in :meth:`DoubleScoreROCDisplay.plot`.

        plot_random : bool, default=False
            Whether to draw the precision of a random score, which accepts as large a
            fraction of OOD as of ID samples.

        fpr_lines : array-like of float, default=()
            Values of the FPR at which to draw lines of equal FPR.

        Returns
        -------
        display : PrecisionRecallDisplay
            This display, with `ax_`, `figure_` and the other attributes.
        """
        self._check_plot()
        if self.rule is not None and self.rule.ood_prior != self.ood_prior:
            raise ValueError(
                f"The bounds of rule={self.rule!r} are for its own ood_prior, but the "
                f"curves are for ood_prior={self.ood_prior!r}. Use the same."
            )
        with self._axes(ax) as ax:
            old = ax.get_ylim()[0] if ax.lines else np.inf
            self._draw_curves(ax, self._read, plot_single, kwargs)
            self.bounds_ = self.point_ = self.random_line_ = None
            low = min(0.9, 1 - self.ood_prior)  # no curve is lower
            if self.point is not None:
                x, y = self.point.tpr, self.point.precision
                low = float(np.fmin(low, y))
                self._draw_point(ax, x, y, f"precision {y:.3f}, recall {x:.3f}")
            if self.rule is not None:
                precision, recall = self._marked_bounds(self.rule)
                label = f"bounds: precision ≥ {precision:g}"
                if recall is not None:
                    label += f", recall ≥ {recall:g}"
                self._draw_bounds(ax, recall or 0, 1, precision, label)
            if plot_random:
                (self.random_line_,) = ax.plot(
                    [0, 1],
                    [1 - self.ood_prior] * 2,
                    color="0.45",
                    linestyle=":",
                    label="random",
                )
            self._draw_fpr_lines(ax, fpr_lines)
            low = max(0.0, low - 0.4 * (1 - low))  # space for the legend
            ax.set_ylim(bottom=min(low, old))
            return self._finish(
                ax,
                "recall: fraction of ID samples accepted",
                f"precision, if the fraction {self.ood_prior:g} of samples is OOD",
                "lower left",
            )

    def _draw_fpr_lines(self, ax, fpr_lines):
        """Draw lines of equal FPR, each with its value at the right end."""
        recall = np.linspace(0.005, 1, 200)
        self.fpr_lines_ = []
        for fpr in fpr_lines:
            precision = [precision_at(self.ood_prior, r, fpr) for r in recall.tolist()]
            self.fpr_lines_ += ax.plot(
                recall, precision, color="0.7", linewidth=0.8, zorder=1
            )
            ax.annotate(
                f"FPR {fpr:g}",
                (1.01, precision[-1]),
                (3, 0),
                textcoords="offset points",
                color="0.4",
                fontsize="small",
                va="center",
                annotation_clip=False,
            )

"""Precision-recall curve of the best rule on two scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.decision import precision_at, rates_within
from skood.metrics._plot._double_score_roc_display import BoundDisplay
from skood.metrics._plot._rejector import read_rejector
from skood.metrics._two_score_curves import double_score_precision_recall_curve
from skood.utils._plotting import get_axes


class PrecisionRecallDisplay(BoundDisplay):
    """Precision-recall curve of the best rule on two scores, and of each score.

    ID samples are positive, and the share of OOD samples in use is a parameter, which
    may differ from the share in the data. Use `from_estimator` or `from_predictions` to
    make a display; the parameters become attributes.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    curve : BoundCurve
        Result of :func:`double_score_precision_recall_curve` for both scores, or for
        one.

    ood_prior : float
        The share of OOD samples in use that the curves were made for.

    single_curves : list of BoundCurve, default=()
        The same for each score alone; empty if there is only one.

    score_names : tuple of (str, str), default=("y_score", "ood_score")
        Names of the scores, for the legend.

    point : OperatingPoint, default=None
        A rule to mark, by its `tpr` and `precision`; its `risk` is shown in the legend
        unless it is NaN.

    rule : BaseRule, default=None
        Its bounds on precision and recall are shaded; it must bound the former, at the
        `ood_prior` of the display.

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
        The precision of a random score.

    fpr_lines_ : list of matplotlib Line2D
        Lines of equal FPR.

    See Also
    --------
    double_score_precision_recall_curve : The numbers.
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

    def __init__(
        self,
        *,
        curve,
        ood_prior,
        single_curves=(),
        score_names=("y_score", "ood_score"),
        point=None,
        rule=None,
    ):
        super().__init__(
            curve=curve,
            single_curves=single_curves,
            score_names=score_names,
            point=point,
            rule=rule,
        )
        self.ood_prior = ood_prior

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
        angles="quadrant",
        n_angles=91,
        score_names=("y_score", "ood_score"),
        ax=None,
        **kwargs,
    ):
        """Draw the curves from labels and scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Labels of ID and OOD samples, see `ood_label` and `classes`.

        y_score : array-like of shape (n_samples,)
            Scores, high for samples to accept.

        ood_score : array-like of shape (n_samples,), default=None
            A second score, high for ID samples. None: only the curve of `y_score`.

        ood_prior : float, default=0.5
            Share of OOD samples in use, in [0, 1).

        y_pred, point, rule, ood_label, classes, angles, n_angles, score_names, ax
            See :meth:`DoubleScoreROCDisplay.from_predictions`; `rule` is a
            BoundedPrecisionRecall of the same `ood_prior`.

        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        display : PrecisionRecallDisplay
            The display, drawn.
        """
        params = {
            "ood_prior": ood_prior,
            "ood_label": ood_label,
            "classes": classes,
            "angles": angles,
            "n_angles": n_angles,
        }
        made = cls._compute(
            double_score_precision_recall_curve,
            y_true,
            y_pred,
            (y_score, ood_score),
            point,
            params,
        )
        display = cls(**made, ood_prior=ood_prior, score_names=score_names, rule=rule)
        return display.plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls, estimator, X, y, *, ood_prior=None, n_angles=91, ax=None, **kwargs
    ):
        """Draw the curves and the operating point of a fitted RejectOptionClassifier.

        Parameters
        ----------
        estimator, X, y
            As in :meth:`DoubleScoreROCDisplay.from_estimator`; bounds are shaded if the
            rule bounds the precision at this `ood_prior`, such as
            :class:`~skood.rejection.BoundedPrecisionRecall`.

        ood_prior : float, default=None
            Share of OOD samples in use, in [0, 1). None: the prior of the classifier's
            rule, 0.5 if it has none.

        n_angles : int, default=91
            See :func:`double_score_precision_recall_curve`.

        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        display : PrecisionRecallDisplay
            The display, drawn.
        """
        read = read_rejector(estimator, X, y, cls.__name__)
        rule = read[0].rule
        of_rule = getattr(rule, "ood_prior", None)
        if ood_prior is None:
            ood_prior = 0.5 if of_rule is None else of_rule
        if of_rule != ood_prior or cls._marked_bounds(rule) is None:
            rule = None
        kwargs |= {"ood_prior": ood_prior, "n_angles": n_angles, "ax": ax}
        return cls._from_rejector(y, read, rule, **kwargs)

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
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        plot_single : bool, default=True
            Whether to draw the curves of each score alone.

        plot_random : bool, default=False
            Whether to draw the precision of a random score, which accepts as large a
            share of OOD as of ID samples.

        fpr_lines : array-like of float, default=()
            Values of the FPR at which to draw lines of equal FPR.

        **kwargs : dict
            Passed to matplotlib's ``plot``, of the curve of the best rule.

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
        with get_axes(ax, "PrecisionRecallDisplay") as ax:
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
            low = max(0.0, low - 0.4 * (1 - low))  # room for the legend
            ax.set_ylim(bottom=min(low, old))
            return self._finish(
                ax,
                "recall: share of ID samples accepted",
                f"precision, if the share {self.ood_prior:g} of samples is OOD",
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

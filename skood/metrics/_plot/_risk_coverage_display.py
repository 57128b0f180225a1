"""Risk-coverage display."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from skood.metrics._base_scorers import check_kind
from skood.metrics._risk_coverage import RiskCoverageCurve
from skood.metrics._sample_checks import id_mask
from skood.metrics._two_score_curves import TwoScoreCurve
from skood.utils._labels import ood_mask
from skood.utils._losses import implied_ood_label, per_sample_loss
from skood.utils._metaestimators import (
    estimator_kind,
    known_classes,
    labels_before_rejection,
    unwrap,
)
from skood.utils._plotting import COLORS, DASHES, BaseDisplay, long_names


@dataclass(kw_only=True, eq=False, repr=False)
class RiskCoverageDisplay(BaseDisplay):
    """Risk-coverage curves: selective risk against the accepted fraction of samples.

    Samples are accepted from the highest score down. Use `from_estimator` or
    `from_predictions` to make a display; the parameters become attributes.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    coverage : list of ndarray
        Fraction of ID samples accepted, one array of shape (n_points,) per curve.

    risk : list of ndarray
        Mean loss of the accepted ID samples, arrays of the same shapes.

    aurc : list of float, default=None
        Area under each curve, for the legend; NaN if it ends below a coverage of 1.

    name : list of str, default=None
        Name of each curve, for the legend.

    oracle_coverage, oracle_risk : ndarray of shape (n_id,), default=None
        The curve of a score that ranks the smallest losses first.

    full_risk : float, default=None
        Mean loss of all ID samples: the expected risk of a random score at every
        coverage.

    operating_point : tuple (coverage, risk), default=None
        The point of a rule, drawn as a marker.

        .. versionadded:: 0.2

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        The axes and the figure.

    line_ : matplotlib Line2D or list of them
        The curve; a list if there are several.

    random_line_, oracle_line_ : matplotlib Line2D or None
        The reference lines.

    See Also
    --------
    RiskCoverageCurve : The numbers.
    sklearn.metrics.RocCurveDisplay : Its ``from_predictions(y, scores)`` draws the
        ROC curve of a detector, with `y` 1 for ID and 0 for OOD samples.

    Examples
    --------
    >>> from skood.metrics import RiskCoverageDisplay
    >>> display = RiskCoverageDisplay.from_predictions(
    ...     [0, 1, 1, 0], [0, 1, 0, 0], [0.9, 0.8, 0.4, 0.5], plot_oracle=True
    ... )
    >>> display.line_.get_xydata()
    array([[0.25, 0.  ],
           [0.5 , 0.  ],
           [0.75, 0.  ],
           [1.  , 0.25]])
    """

    coverage: list
    risk: list
    aurc: Any = None
    name: Any = None
    oracle_coverage: Any = None
    oracle_risk: Any = None
    full_risk: Any = None
    operating_point: Any = None

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_pred,
        y_score,
        *,
        ood_score=None,
        fpr_max=None,
        precision_min=None,
        ood_prior=None,
        loss="zero_one",
        ood_label=-1,
        classes=None,
        name=None,
        ax=None,
        **kwargs,
    ):
        """Draw the curves of one or more scores on the same predictions.

        With a second score, or bounds, it is the least risk of the best rule at every
        coverage, see :class:`TwoScoreCurve`; the line ends where the bounds cannot be
        met.

        Parameters
        ----------
        y_true, y_pred, loss, ood_label, classes
            As in :meth:`RiskCoverageCurve.from_predictions`.

        y_score : array-like of shape (n_samples,) or dict of str to array-like
            Confidence, high for samples to accept first. A dict maps names to several
            scores, one curve each.

        ood_score, fpr_max, precision_min, ood_prior
            A second score, high for ID samples, and bounds, as in
            :meth:`TwoScoreCurve.from_predictions`. None: no second score, no bounds.

            .. versionadded:: 0.2

        name : str, default=None
            Name of a single curve.

        ax, **kwargs
            Passed to `plot`, such as `plot_random` and `plot_oracle`.

        Returns
        -------
        display : RiskCoverageDisplay
            The display, drawn.
        """
        scores = y_score if isinstance(y_score, dict) else {name: y_score}
        if not scores:
            raise ValueError("y_score is an empty dict; give at least one score.")
        if isinstance(y_score, dict) and name is not None:
            raise ValueError(
                f"name={name!r} is for a single score, but y_score is a dict, whose "
                "keys are the names. Leave name out."
            )
        ood_label = implied_ood_label(loss, ood_label)
        params = {"loss": loss, "ood_label": ood_label, "classes": classes}
        read = partial(_curve, y_true, y_pred, **params)
        best = {"fpr_max": fpr_max, "precision_min": precision_min}
        best["ood_score"] = ood_score
        if any(value is not None for value in best.values()):
            params |= {**best, "ood_prior": ood_prior}
            read = partial(_best_curve, y_true, y_pred, **params)
        coverage, risk, areas = map(list, zip(*map(read, scores.values()), strict=True))
        is_id = id_mask(y_true, ood_label, classes)
        losses = per_sample_loss(y_true, y_pred, loss, is_id=is_id, classes=classes)
        losses = np.sort(losses)
        accepted = np.arange(1, losses.size + 1)
        display = cls(
            coverage=coverage,
            risk=risk,
            aurc=areas,
            name=list(scores),
            oracle_coverage=accepted / losses.size,
            oracle_risk=np.cumsum(losses) / accepted,
            full_risk=float(losses.mean()),
        )
        return display.plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y,
        *,
        loss="zero_one",
        ood_label=-1,
        classes=None,
        name=None,
        ax=None,
        plot_random=False,
        plot_oracle=False,
        **kwargs,
    ):
        """Draw the curve of a classifier, of a detector around it, or of a regressor.

        Parameters
        ----------
        estimator : object
            A fitted classifier, whose score is its largest probability; or a fitted
            detector with the classifier in `estimator_`, whose score is its own. The
            score of an estimator that rejects samples is its risk score, by
            ``score_pair``; the predictions for all samples are made by the one in
            `estimator_`, and a marker shows its rule, unless this has a threshold for
            each group. Each may be the last step of a Pipeline.

        X : array-like of shape (n_samples, n_features)
            The samples.

        y : array-like of shape (n_samples,)
            Their labels. Samples with `ood_label`, or with a label that is not in
            `classes`, are excluded.

        loss : str, callable or array-like, default="zero_one"
            As in :meth:`RiskCoverageCurve.from_predictions`; of a regressor,
            "absolute_error", "squared_error" or a callable.

        ood_label : int or str, default=-1
            Label of known OOD samples; not one of the classes. For regressors, it is
            always NaN.

        classes : array-like of shape (n_classes,), default=None
            The known classes, in the order of a loss matrix; None: `classes_` of the
            estimator.

        name : str, default=None
            Name of the curve; None: the name of the estimator's class.

        ax, plot_random, plot_oracle, **kwargs
            Passed to `from_predictions`, as are `ood_score`, `fpr_max`, `precision_min`
            and `ood_prior`.

        Returns
        -------
        display : RiskCoverageDisplay
            The display, drawn.
        """
        final, X_final = unwrap(estimator, X)
        inner = getattr(final, "estimator_", None)
        predict = labels_before_rejection(final)
        has_pair = hasattr(final, "score_pair")
        regression = has_pair and estimator_kind(final) == "regressor"
        check_kind(loss, regression, type(final).__name__)
        if regression:
            ood_label = np.nan
        if has_pair:
            y_pred, y_score = predict(X_final), final.score_pair(X_final)[0]
        elif hasattr(final, "score_samples") and predict is not None:
            y_pred, y_score = predict(X_final), final.score_samples(X_final)
        else:
            if not hasattr(final, "accept_proba"):
                predict = getattr(final, "predict", None)
            if predict is None or not hasattr(final, "predict_proba"):
                raise TypeError(
                    "RiskCoverageDisplay.from_estimator needs a classifier with "
                    "predict_proba (one that rejects samples with the classifier whose "
                    "errors are counted in estimator_), or a detector with "
                    "score_samples and a classifier in estimator_. Got "
                    f"{type(final).__name__}. Use from_predictions with predictions "
                    "and scores of your own."
                )
            y_pred = predict(X_final)
            y_score = np.max(final.predict_proba(X_final), axis=1)
        if classes is None:
            classes = known_classes(final, inner)
        if ood_mask(y, ood_label=ood_label, classes=classes).all():
            raise ValueError(
                f"No in-distribution samples in y: every label is "
                f"ood_label={ood_label!r} or is not in classes_ of "
                f"{type(final).__name__}."
            )
        kwargs |= {"ax": ax, "plot_random": plot_random, "plot_oracle": plot_oracle}
        kwargs |= {"classes": classes, "loss": loss, "ood_label": ood_label}
        name = type(final).__name__ if name is None else name
        display = cls.from_predictions(y, y_pred, y_score, name=name, **kwargs)
        rule = getattr(final, "operating_point_", None)
        if rule is not None and not rule.has_group_thresholds:
            is_id = id_mask(y, ood_label, classes)
            losses = per_sample_loss(y, y_pred, loss, is_id=is_id, classes=classes)
            accept = final.accept_proba(X_final)[is_id]
            if accept.any():
                point = accept.mean(), accept @ losses / accept.sum()
                display.operating_point = point
                display._draw_operating_point(display.ax_)
                display.ax_.legend(loc="best")
        return display

    def plot(
        self, ax=None, *, name=None, plot_random=False, plot_oracle=False, **kwargs
    ):
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        name : str or list of str, default=None
            Names for the legend; None: the names of the display.

        plot_random, plot_oracle : bool, default=False
            Whether to draw the risk of a random, and of the best possible score.

        **kwargs : dict
            Passed to matplotlib's ``plot``, of every curve.

        Returns
        -------
        display : RiskCoverageDisplay
            This display, with `ax_`, `figure_` and `line_`.
        """
        n_curves = len(self.coverage)
        names = self.name if name is None else [name] if isinstance(name, str) else name
        names = [None] * n_curves if names is None else names
        areas = [None] * n_curves if self.aurc is None else self.aurc
        self._check_plot(names, areas, plot_random, plot_oracle)
        with self._axes(ax) as ax:
            lines = self._draw_curves(ax, names, areas, kwargs)
            self._draw_references(ax, plot_random, plot_oracle)
            if self.operating_point is not None:
                self._draw_operating_point(ax)
            ax.set_xlabel("coverage (fraction of ID samples accepted)")
            ax.set_ylabel("selective risk (low = good)")
            ax.set_xlim(0, 1)
            ax.set_ylim(bottom=0, auto=None)  # upper end still autoscales
            if ax.get_legend_handles_labels()[1]:
                ax.legend(loc="best")
        self.ax_, self.figure_ = ax, ax.figure
        self.line_ = lines[0] if n_curves == 1 else lines
        return self

    def _draw_operating_point(self, ax):
        """Draw the marker of the rule."""
        label = "rule (coverage {:.3f}, risk {:.3f})".format(*self.operating_point)
        ax.plot(*self.operating_point, "ko", label=label, zorder=3, clip_on=False)

    def _draw_curves(self, ax, names, areas, kwargs):
        """Draw the curves and return their lines."""
        n_before = sum(line.get_gid() == "risk-coverage" for line in ax.lines)
        lines = []
        for i, (coverage, risk) in enumerate(
            zip(self.coverage, self.risk, strict=True)
        ):
            style = {
                "color": COLORS[(n_before + i) % len(COLORS)],
                "linestyle": DASHES[(n_before + i) % len(DASHES)],
                "label": _curve_label(names[i], coverage, areas[i]),
                "gid": "risk-coverage",
                **long_names(kwargs),
            }
            lines += ax.plot(coverage, risk, **style)
        return lines

    def _draw_references(self, ax, plot_random, plot_oracle):
        """Draw the curves of the best possible and of a random score."""
        self.oracle_line_ = self.random_line_ = None
        if plot_oracle:
            (self.oracle_line_,) = ax.plot(
                self.oracle_coverage,
                self.oracle_risk,
                color="black",
                linestyle=":",
                label="oracle",
            )
        if plot_random:
            (self.random_line_,) = ax.plot(
                [0, 1],
                [self.full_risk] * 2,
                color="0.45",
                linestyle=(0, (8, 4)),
                linewidth=1.0,
                label=f"random (risk = {self.full_risk:.4f})",
            )

    def _check_plot(self, names, areas, plot_random, plot_oracle):
        """Raise if the data of a requested curve are missing."""
        n_curves = len(self.coverage)
        if not len(self.risk) == len(names) == len(areas) == n_curves:
            raise ValueError(
                f"There are {n_curves} arrays of coverage, {len(self.risk)} of risk, "
                f"{len(names)} names and {len(areas)} values of aurc. Give one of each "
                "per curve, in lists."
            )
        if plot_oracle and (self.oracle_coverage is None or self.oracle_risk is None):
            raise ValueError(
                "plot_oracle=True needs oracle_coverage and oracle_risk, which "
                "from_predictions and from_estimator compute."
            )
        if plot_random and self.full_risk is None:
            raise ValueError(
                "plot_random=True needs full_risk, which from_predictions and "
                "from_estimator compute."
            )


def _curve(*args, **params):
    """Return coverages, risks and the area of one score."""
    curve = RiskCoverageCurve.from_predictions(*args, **params)
    return curve.coverage, curve.risk, curve.aurc


def _best_curve(*args, **params):
    """Return the corners of the steps of the best rules, and the area."""
    curve = TwoScoreCurve.from_predictions(*args, kind="risk_coverage", **params)
    coverage = np.append(0.0, np.repeat(curve.bounds, 2))[:-1]
    return coverage, np.repeat(curve.values, 2), curve.area


def _curve_label(name, coverage, area):
    """Return the legend entry of a curve, None if it has none."""
    if area is None:
        return name
    end = f"coverage ≤ {np.max(coverage, initial=0.0):.2f}"
    text = end if np.isnan(area) else f"AURC = {area:.4f}"
    return text if name is None else f"{name} ({text})"

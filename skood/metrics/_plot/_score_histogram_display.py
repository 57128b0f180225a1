"""Histograms of a detector's scores on ID and on OOD samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from typing import Any

import numpy as np

from skood.metrics._sample_checks import check_ood, require_both
from skood.stats._survival import FAMILIES, fit_family
from skood.utils._metaestimators import known_classes, unwrap
from skood.utils._plotting import COLORS, BaseDisplay, long_names
from skood.utils._scores import check_scores


@dataclass(kw_only=True, eq=False, repr=False)
class ScoreHistogramDisplay(BaseDisplay):
    """Histograms of a detector's scores on ID and on OOD samples.

    Use `from_estimator` or `from_predictions` to make a display; the parameters
    become attributes.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    scores_id : ndarray of shape (n_id,)
        Scores of ID samples, high for ID.

    scores_ood : ndarray of shape (n_ood,)
        Scores of OOD samples.

    threshold : float, default=None
        Samples with a score of at least this much are accepted as ID.

    name : str, default=None
        Title.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        The axes and the figure.

    bin_edges_ : ndarray of shape (n_bins + 1,)
        The bins, the same for both.

    counts_id_, counts_ood_ : ndarray of shape (n_bins,)
        Heights of the two histograms: densities, or counts of samples.

    patch_id_, patch_ood_ : matplotlib Polygon
        The two histograms.

    line_ : matplotlib Line2D or None
        The threshold.

    distribution_ : dict or None
        With `fit`: the parameters of the distribution of :mod:`scipy.stats` that is
        fitted to minus the scores of the ID samples.

    distance_ : float or None
        With `fit`: the Kolmogorov-Smirnov distance of this distribution from the
        empirical one, as by :func:`scipy.stats.kstest`.

    ax_survival_ : matplotlib Axes or None
        With `fit`: the panel of the survival functions.

    See Also
    --------
    auroc : Separation of the two histograms as a number.
    skood.logic.ConceptFusion : Uses fitted distributions to normalize scores.
    sklearn.metrics.RocCurveDisplay : Its ``from_predictions(y, scores)`` draws the
        ROC curve of a detector, with `y` 1 for ID and 0 for OOD samples.

    Examples
    --------
    >>> from skood.metrics import ScoreHistogramDisplay
    >>> display = ScoreHistogramDisplay.from_predictions(
    ...     [0, 1, 1, -1], [0.9, 0.8, 0.1, 0.3], bins=[0, 0.5, 1], density=False
    ... )
    >>> display.counts_id_, display.counts_ood_
    (array([1., 2.]), array([1., 0.]))
    """

    scores_id: np.ndarray
    scores_ood: np.ndarray
    threshold: Any = None
    name: Any = None

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_score,
        *,
        threshold=None,
        ood_label=-1,
        classes=None,
        name=None,
        ax=None,
        **kwargs,
    ):
        """Draw the histograms from labels and scores.

        Parameters
        ----------
        y_true, y_score, ood_label, classes
            As in :func:`auroc`.

        threshold : float, default=None
            Where to draw the threshold.

        name : str, default=None
            Title.

        ax, **kwargs
            Passed to `plot`.

        Returns
        -------
        display : ScoreHistogramDisplay
            The display, drawn.
        """
        is_ood = check_ood(y_true, ood_label, classes)
        y_score = check_scores(y_score, "y_score", n_samples=is_ood.size)
        require_both(is_ood, ood_label)
        display = cls(
            scores_id=y_score[~is_ood],
            scores_ood=y_score[is_ood],
            threshold=threshold,
            name=name,
        )
        return display.plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls, estimator, X, y, *, ood_label=-1, name=None, ax=None, **kwargs
    ):
        """Draw the histograms of a fitted detector, with its threshold.

        Parameters
        ----------
        estimator : object
            A fitted detector: it has `score_samples` and, if a threshold is to be
            drawn, `offset_`. It may be the last step of a Pipeline.

        X : array-like of shape (n_samples, n_features)
            The samples.

        y : array-like of shape (n_samples,)
            Their labels. A sample is OOD when its label is `ood_label` or is not in
            the detector's `classes_`.

        ood_label : int or str, default=-1
            Label of known OOD samples.

        name : str, default=None
            Title; None: the detector's class.

        ax, **kwargs
            Passed to `plot`.

        Returns
        -------
        display : ScoreHistogramDisplay
            The display, drawn.
        """
        final, X_final = unwrap(estimator, X)
        if not hasattr(final, "score_samples"):
            raise TypeError(
                "ScoreHistogramDisplay.from_estimator needs a detector with "
                f"score_samples, {type(final).__name__} has none. Use "
                "from_predictions with scores of your own."
            )
        offset = getattr(final, "offset_", None)
        return cls.from_predictions(
            y,
            final.score_samples(X_final),
            threshold=None if offset is None else float(offset),
            ood_label=ood_label,
            classes=known_classes(final),
            name=type(final).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    def plot(self, ax=None, *, name=None, bins=30, density=True, fit=None, **kwargs):
        """Draw the histograms.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        name : str, default=None
            Title; None: the name of the display.

        bins : int, str or array-like, default=30
            Bins of the finite scores of both kinds together, as in
            :func:`numpy.histogram_bin_edges`.

        density : bool, default=True
            Whether each histogram has area one, so that groups of different sizes are
            comparable. False shows counts.

        fit : {"genextreme", "norm", "gennorm", "lognorm", "uniform"}, default=None
            Distribution to fit to the outlier scores, minus the scores, of the ID
            samples. Its density is drawn over the histogram, and a second panel shows
            its survival function :math:`P(O \\ge o)`, which normalizes scores in
            :class:`~skood.logic.MLNDetector`, next to the empirical one. Requires
            ``density=True``.

        **kwargs : dict
            Passed to matplotlib's ``hist``, of both histograms.

        Returns
        -------
        display : ScoreHistogramDisplay
            This display, with `ax_`, `figure_` and the other attributes.

        Raises
        ------
        ValueError
            If `fit` is unknown, or cannot be fitted to the scores.
        """
        survival = self._fitted(fit, density)
        if kwargs.get("orientation", "vertical") != "vertical":
            raise ValueError(
                f"orientation={kwargs['orientation']!r} is not supported: the scores "
                "are on the horizontal axis. Leave orientation out."
            )
        finite = [s[np.isfinite(s)] for s in (self.scores_id, self.scores_ood)]
        self.bin_edges_ = np.histogram_bin_edges(np.concatenate(finite), bins)
        with self._axes(ax) as ax:
            self._draw_histograms(ax, finite, density, kwargs)
            lowest = self._draw_fit(ax, fit, survival)
            self._draw_threshold(ax)
            lowest.set_xlabel("score (high = in-distribution)")
            ax.set_ylabel("density" if density else "samples per bin")
            title = self.name if name is None else name
            if title is not None:
                ax.set_title(title)
            if ax.get_yscale() == "linear" and ax.dataLim.y1 > 0:
                ax.set_ylim(0, 1.4 * ax.dataLim.y1)  # space for the legend
            ax.legend(loc="upper left", framealpha=1)
        return self

    def _fitted(self, fit, density):
        """Return the survival function fitted to minus the scores of ID samples."""
        self.distribution_ = self.distance_ = self.ax_survival_ = None
        if fit is None:
            return None
        if fit not in FAMILIES:
            raise ValueError(f"fit must be one of {sorted(FAMILIES)}, got {fit!r}.")
        if not density:
            raise ValueError(
                f"fit={fit!r} draws a density, and needs density=True for the "
                "histogram, got False."
            )
        survival, why = fit_family(fit, -self.scores_id)
        if survival is None:
            raise ValueError(
                f"fit={fit!r} cannot be fitted to the {self.scores_id.size} scores of "
                f"ID samples: {why}. Leave fit out."
            )
        self.distribution_ = survival.params
        self.distance_ = survival.distance(-self.scores_id)
        return survival

    def _draw_fit(self, ax, fit, survival):
        """Draw the density, and survival functions below; return the lowest axes."""
        if survival is None:
            return ax
        x = np.linspace(self.bin_edges_[0], self.bin_edges_[-1], 512)
        style = {"color": "black", "linewidth": 1.5}
        ax.plot(x, survival.pdf(-x), **style, label=f"{fit}, in-distribution")
        below = _panel_below(ax)
        ordered = np.sort(self.scores_id)
        fractions = np.arange(1, ordered.size + 1) / ordered.size
        below.step(
            ordered, fractions, where="post", color=COLORS[0], label="in-distribution"
        )
        label = f"{fit} (KS distance {self.distance_:.3f})"
        below.plot(x, np.exp(survival.log_sf(-x)), **style, label=label)
        below.set_ylabel(r"survival $P(O \geq o)$")
        below.legend(loc="upper left", framealpha=1)
        ax.tick_params(labelbottom=False)
        self.ax_survival_ = below
        return below

    def _draw_histograms(self, ax, finite, density, kwargs):
        """Draw both histograms of the finite scores."""
        drawn = []
        for scores, shown, label, color, hatch in (
            (self.scores_id, finite[0], "in-distribution", COLORS[0], None),
            (self.scores_ood, finite[1], "out-of-distribution", COLORS[1], "///"),
        ):
            hidden = f", {scores.size - shown.size} infinite"
            hidden *= shown.size < scores.size
            style = {
                "histtype": "stepfilled",
                "facecolor": (color, 0.35),
                "edgecolor": color,
                "linewidth": 1.3,
                "hatch": hatch,
                "label": f"{label} ({scores.size} samples{hidden})",
                **long_names(kwargs, patch=True),
            }
            heights, _, patches = ax.hist(
                shown, bins=self.bin_edges_, density=density and shown.size > 0, **style
            )
            drawn.append((heights, patches[0]))
        (self.counts_id_, self.patch_id_), (self.counts_ood_, self.patch_ood_) = drawn

    def _draw_threshold(self, ax):
        """Draw the threshold, if there is one."""
        self.line_ = None
        if self.threshold is not None:
            tpr, fpr = (
                np.mean(s >= self.threshold) for s in (self.scores_id, self.scores_ood)
            )
            self.line_ = ax.axvline(
                self.threshold,
                color="black",
                linestyle="--",
                linewidth=1.5,
                label=f"threshold (TPR {tpr:.2f}, FPR {fpr:.2f})",
            )


def _panel_below(ax):
    """Return a panel that takes the lower part of some axes."""
    place = ax.get_subplotspec()
    if place is None:  # placed by hand
        left, bottom, width, height = ax.get_position().bounds
        ax.set_position([left, bottom + 0.38 * height, width, 0.62 * height])
        lower = [left, bottom, width, 0.32 * height]
        return ax.figure.add_axes(lower, sharex=ax)
    upper, lower = place.subgridspec(2, 1, height_ratios=[2, 1], hspace=0.08)
    ax.set_subplotspec(upper)
    return ax.figure.add_subplot(lower, sharex=ax)

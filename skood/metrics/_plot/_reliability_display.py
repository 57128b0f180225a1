"""Reliability diagram: accuracy over confidence."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np

from skood.metrics._calibration import (
    bins_of,
    confidence_of,
    expected_calibration_error,
)
from skood.metrics._intervals import bootstrap_ci
from skood.stats._mean_intervals import clopper_pearson
from skood.utils._labels import check_id_mask, check_labels, sortable_labels
from skood.utils._metaestimators import known_classes, unwrap
from skood.utils._plotting import COLORS, BaseDisplay, long_names


@dataclass(kw_only=True, eq=False, repr=False)
class ReliabilityDisplay(BaseDisplay):
    r"""Reliability diagram: the accuracy of predictions over their confidence.

    ID samples are divided into bins by the largest probability. For each bin that is
    not empty there is a point at the mean confidence :math:`c_b` and the accuracy
    :math:`a_b`, with an exact interval, which is on the diagonal for a calibrated
    classifier; the bars are the fractions :math:`n_b / n` of the samples. The legend
    has the expected calibration error :math:`\sum_b \frac{n_b}{n} |a_b - c_b|` [1]_.

    Use `from_estimator` or `from_predictions` to make a display; the parameters become
    attributes.

    Read more in the :ref:`User Guide <metrics>`.

    Parameters
    ----------
    confidence, accuracy : ndarray of shape (n_bins,)
        Mean confidence, and accuracy with its interval in `low` and `high`, of the bins
        that are not empty.

    low, high : ndarray of shape (n_bins,)
        Ends of the intervals of Clopper and Pearson.

    n_samples : ndarray of shape (n_bins,)
        Numbers of samples.

    ece : float
        The expected calibration error.

    interval : tuple of float
        Its bootstrap interval.

    name : str, default=None
        Name of the classifier, for the legend.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        The axes and the figure.

    errorbar_ : matplotlib ErrorbarContainer
        Points and intervals.

    bars_ : matplotlib BarContainer
        The fractions of the samples.

    See Also
    --------
    expected_calibration_error : The number in the legend.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger. On calibration of modern neural
       networks. ICML 2017.

    Examples
    --------
    >>> from skood.metrics import ReliabilityDisplay
    >>> y_proba = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
    >>> display = ReliabilityDisplay.from_predictions([0, 1, 1, 1], y_proba, n_bins=2)
    >>> display.confidence, display.accuracy
    (array([0.75]), array([0.75]))
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n_samples: np.ndarray
    ece: float
    interval: tuple
    name: str | None = None

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_proba,
        y_pred=None,
        *,
        n_bins=15,
        strategy="uniform",
        confidence_level=0.95,
        n_resamples=999,
        random_state=0,
        ood_label=-1,
        classes=None,
        name=None,
        ax=None,
        **kwargs,
    ):
        """Draw the diagram from labels and probabilities.

        Parameters
        ----------
        y_true, y_proba, y_pred, n_bins, strategy, ood_label, classes
            As in :func:`expected_calibration_error`.

        confidence_level : float, default=0.95
            Coverage of all intervals.

        n_resamples, random_state : int, default=999, and default=0
            Number and seed of the resamples of the interval of the error.

        name : str, default=None
            Name of the classifier, for the legend.

        ax : matplotlib Axes, default=None
            Where to draw, such as on the diagram of another classifier; None makes a
            new figure.

        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        display : ReliabilityDisplay
            The display, drawn.
        """
        if classes is None:  # resamples may lack one
            labels = check_labels(y_true)
            labels = sortable_labels(labels[check_id_mask(labels, ood_label)])
            classes = np.unique(labels)
        known = {"ood_label": ood_label, "classes": classes}
        binning = {"n_bins": n_bins, "strategy": strategy}
        arrays = (y_proba,) if y_pred is None else (y_proba, y_pred)
        ece = bootstrap_ci(
            expected_calibration_error,
            y_true,
            *arrays,
            n_resamples=n_resamples,
            confidence_level=confidence_level,
            random_state=random_state,
            **known,
            **binning,
        )
        confidence, right, _ = confidence_of(y_true, y_proba, y_pred, **known)
        bins = bins_of(confidence, **binning)
        present, codes, counts = np.unique(
            bins, return_inverse=True, return_counts=True
        )
        n_right = np.bincount(codes, right, minlength=len(present))
        accuracies = [
            clopper_pearson(int(k), int(n), confidence_level)
            for k, n in zip(n_right, counts, strict=True)
        ]
        accuracy, low, high = np.array(accuracies).T
        display = cls(
            confidence=np.bincount(codes, confidence) / counts,
            accuracy=accuracy,
            low=low,
            high=high,
            n_samples=counts,
            ece=ece.value,
            interval=(ece.low, ece.high),
            name=name,
        )
        return display.plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls, estimator, X, y, *, ood_label=-1, name=None, ax=None, **kwargs
    ):
        """Draw the diagram of a fitted classifier.

        Parameters
        ----------
        estimator : object
            A fitted classifier with ``predict_proba``.

        X, y, ood_label, name
            As in :meth:`RiskCoverageDisplay.from_estimator`.

        ax, **kwargs
            Passed to `from_predictions`.

        Returns
        -------
        display : ReliabilityDisplay
            The display, drawn.
        """
        final, _ = unwrap(estimator)
        if not hasattr(estimator, "predict_proba"):
            raise TypeError(
                "ReliabilityDisplay.from_estimator needs a classifier with "
                f"predict_proba, {type(final).__name__} has none."
            )
        return cls.from_predictions(
            y,
            estimator.predict_proba(X),
            ood_label=ood_label,
            classes=known_classes(estimator, final),
            name=type(final).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    def plot(self, ax=None, *, name=None, **kwargs):
        """Draw the diagram.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        name : str, default=None
            Name for the legend; None: the name of the display.

        **kwargs : dict
            Passed to matplotlib's ``errorbar``.

        Returns
        -------
        display : ReliabilityDisplay
            This display, with `ax_`, `figure_` and the other attributes.
        """
        name = self.name if name is None else name
        low, high = self.interval
        error = f"ECE {self.ece:.3f} [{low:.3f}, {high:.3f}]"
        with self._axes(ax) as ax:
            k = len(ax.containers) // 2  # of another classifier on the same axes
            if not k:
                ax.plot([0, 1], [0, 1], color="black", ls=":", label="calibrated")
            style = {
                "color": COLORS[k % len(COLORS)],
                "marker": "os^Dvp"[k % 6],
                "capsize": 3,
                "label": error if name is None else f"{name}: {error}",
                **long_names(kwargs),
            }
            self.errorbar_ = ax.errorbar(
                self.confidence,
                self.accuracy,
                yerr=[self.accuracy - self.low, self.high - self.accuracy],
                **style,
            )
            self.bars_ = ax.bar(
                self.confidence,
                self.n_samples / self.n_samples.sum(),
                width=0.02,
                color=style["color"],
                alpha=0.35,
            )
            ax.set(
                xlim=(0, 1.01),
                ylim=(0, 1.01),
                yticks=np.linspace(0, 1, 6),
                xlabel="confidence",
                ylabel="accuracy; bars: fraction of the samples",
            )
            ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
        return self

"""Bar charts of the contributions of violated constraints to the penalty."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skood.utils._labels import ood_mask
from skood.utils._metaestimators import concept_columns, n_rows, unwrap
from skood.utils._plotting import COLORS, BaseDisplay

# Figures with more bars are not readable.
_MAX_BARS = 40

# Colors are reused with these hatchings.
_HATCHES = ("", "//", "..", "xx")

# Longer texts of constraints are shortened in the legend.
_MAX_LETTERS = 60


@dataclass(kw_only=True, eq=False, repr=False)
class ConstraintContributionDisplay(BaseDisplay):
    r"""Stacked bars of the contributions of violated constraints to the penalty.

    A constraint of weight w that holds to the degree :math:`\varphi` adds
    :math:`\max(w, 0) (1 - \varphi) + \max(-w, 0) \varphi`. Use `from_estimator` to
    create a display; the parameters become attributes.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    contributions : ndarray of shape (n_bars, n_constraints)
        Contributions, non-negative.

    names : list of str
        Names of the constraints.

    labels : list of str, default=None
        A label for each bar; None: "sample 0", "sample 1", …

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.

    figure_ : matplotlib Figure
        The figure.

    bars_ : list of BarContainer
        The bars of each constraint shown, in decreasing order of contribution; the
        last one is the sum of all other constraints, if there are others.

    See Also
    --------
    MLNDetector : Its ``explain`` returns the contributions.

    Examples
    --------
    >>> from skood.logic import ConstraintContributionDisplay
    >>> display = ConstraintContributionDisplay(
    ...     contributions=[[0.0, 2.0], [4.5, 1.0]],
    ...     names=["stop -> red", "stop -> octagon"],
    ... ).plot()
    >>> [text.get_text() for text in display.ax_.get_legend().get_texts()]
    ['stop -> red', 'stop -> octagon']
    """

    contributions: np.ndarray
    names: list
    labels: Any = None

    @classmethod
    def from_estimator(
        cls, detector, X, y=None, *, labels=None, ax=None, max_constraints=8, **kwargs
    ):
        """Plot the contributions for some samples, or their means.

        Parameters
        ----------
        detector : MLNDetector, LogicDetector or ConstraintSearch
            Fitted. It may be the last step of a Pipeline.

        X : array-like of shape (n_samples, ...)
            The samples; without `y`, each sample has a bar, so pass only a few.

        y : array-like of shape (n_samples,) or (n_samples, n_concepts), default=None
            Labels. If given, two bars show the mean contributions of the ID samples and
            of the OOD samples.

        labels : list of str, default=None
            A label for each bar.

        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.

        max_constraints : int, default=8
            Number of constraints to show, in decreasing order of contribution.

        **kwargs : dict
            Passed to matplotlib's ``barh``.

        Returns
        -------
        display : ConstraintContributionDisplay
            The plotted display.

        Raises
        ------
        TypeError
            If `detector` has no constraints.

        ValueError
            If `y` has only ID samples or only OOD samples.
        """
        final, final_X = unwrap(detector, X)
        check_is_fitted(final)
        if not hasattr(final, "knowledge_base_"):
            raise TypeError(
                "ConstraintContributionDisplay.from_estimator needs a detector with "
                f"constraints, such as MLNDetector, got {type(final).__name__}."
            )
        names = list(final.knowledge_base_.names)
        if y is None:
            _check_bars(n_rows(final_X))
        inner = getattr(final, "estimator_", final)  # the result of a search
        values = inner._explained(inner._read(final_X))[2]
        if y is not None:
            is_ood = ood_mask(
                concept_columns(y, final),
                ood_label=final.ood_label,
                classes=final.classes_,
            )
            if is_ood.all() or not is_ood.any():
                raise ValueError(
                    f"y has only {'OOD' if is_ood.all() else 'ID'} samples; means "
                    "of both are plotted. Leave y out for a bar per sample."
                )
            values = np.array([values[~is_ood].mean(axis=0), values[is_ood].mean(0)])
            labels = ["ID (mean)", "OOD (mean)"] if labels is None else labels
        display = cls(contributions=values, names=names, labels=labels)
        return display.plot(ax, max_constraints=max_constraints, **kwargs)

    def plot(self, ax=None, *, max_constraints=8, **kwargs):
        """Plot the bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; None creates a new figure.

        max_constraints : int, default=8
            Number of constraints to show; the others are summed.

        **kwargs : dict
            Passed to matplotlib's ``barh``.

        Returns
        -------
        display : ConstraintContributionDisplay
            This display, with `ax_`, `figure_` and `bars_`.

        Raises
        ------
        ValueError
            If there are too many bars, or the number of names does not match.
        """
        values = np.asarray(self.contributions, dtype=np.float64)
        labels = self._check_plot(values)
        order = np.argsort(-values.sum(axis=0), kind="stable")
        order = order[values.sum(axis=0)[order] > 0]
        shown, others = order[:max_constraints], order[max_constraints:]
        parts = [(_short(self.names[j]), values[:, j]) for j in shown]
        if others.size:
            parts.append((f"{others.size} others", values[:, others].sum(axis=1)))
        with self._axes(ax) as ax:
            self.bars_ = _draw(ax, parts, len(values), bool(others.size), kwargs)
            ax.set_yticks(range(len(values)), labels)
            ax.invert_yaxis()  # the first sample is on top
            # for bars only: a last part of zero width would remove the margin
            largest = values.sum(axis=1).max()
            ax.set_xlim(0, 1.05 * largest if largest > 0 else 1.0)
            ax.set_xlabel("contribution to the penalty (high = OOD)")
            if parts:
                ax.legend(
                    loc="upper center",
                    bbox_to_anchor=(0.5, -0.16),
                    fontsize="small",
                    frameon=False,
                )
        return self

    def _check_plot(self, values):
        """Return a label for each bar; raise if names and constraints do not match."""
        if values.ndim != 2 or values.shape[1] != len(self.names):
            raise ValueError(
                "contributions must have a row for each bar and a column for each of "
                f"{len(self.names)} names, got an array of shape {values.shape}."
            )
        _check_bars(len(values))
        if self.labels is None:
            return [f"sample {i}" for i in range(len(values))]
        if isinstance(self.labels, str) or len(self.labels) != len(values):
            raise ValueError(
                f"labels must be a list of {len(values)} texts, one for each bar, got "
                f"{self.labels!r}."
            )
        return [str(label) for label in self.labels]


def _check_bars(n_bars):
    if not 1 <= n_bars <= _MAX_BARS:
        raise ValueError(
            f"From 1 to {_MAX_BARS} bars fit in a figure, got {n_bars}: choose a few "
            "samples, such as X[:10], or give y for the ID and OOD means."
        )


def _short(name):
    """Shorten a long name."""
    return name if len(name) <= _MAX_LETTERS else f"{name[: _MAX_LETTERS - 1]}…"


def _draw(ax, parts, n_bars, has_others, style):
    """Draw the segments of all bars and return them."""
    left, drawn = np.zeros(n_bars), []
    for i, (name, width) in enumerate(parts):
        is_rest = has_others and i == len(parts) - 1
        drawn.append(
            ax.barh(
                np.arange(n_bars),
                width,
                left=left,
                **{
                    "label": name,
                    "color": "0.7" if is_rest else COLORS[i % len(COLORS)],
                    "hatch": _HATCHES[i // len(COLORS) % len(_HATCHES)],
                    "edgecolor": "white",
                    **style,
                },
            )
        )
        left = left + width
    return drawn

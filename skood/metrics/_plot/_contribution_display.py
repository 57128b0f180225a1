"""Bars of the contributions of columns to the score of one sample."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import textwrap
from dataclasses import dataclass

import numpy as np

from skood.utils._metaestimators import unwrap
from skood.utils._plotting import COLORS, BaseDisplay

# Letters in a line of the title.
_WIDTH = 70


@dataclass(kw_only=True, eq=False, repr=False)
class ContributionDisplay(BaseDisplay):
    """Bars of the contributions of columns to the score of one sample.

    Use `from_estimator` or `from_explanation` to make a display; the parameters become
    attributes.

    Read more in the :ref:`User Guide <explain_rejection>`.

    Parameters
    ----------
    contributions : ndarray of shape (n_columns,)
        The contributions. A negative one decreases the distance.

    columns : ndarray of shape (n_columns,)
        Names of the columns.

    name : str, default=None
        Title.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, matplotlib Figure
        The axes and the figure.

    bars_ : matplotlib BarContainer
        The bars, from top to bottom; the last one is the sum of all other columns, if
        there are others.

    See Also
    --------
    skood.rejection.RejectOptionClassifier.explain : Returns the contributions.
    skood.detectors.column_contributions : The same for a detector.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.metrics import ContributionDisplay
    >>> display = ContributionDisplay(
    ...     contributions=np.array([1.0, -2.0, 9.0]), columns=["a", "b", "c"]
    ... ).plot(max_columns=1)
    >>> [bar.get_width().item() for bar in display.bars_]
    [9.0, -1.0]
    """

    contributions: np.ndarray
    columns: np.ndarray
    name: str | None = None

    @classmethod
    def from_explanation(cls, explanation, i=0, *, name=None, ax=None, **kwargs):
        """Draw the contributions for one of the explained samples.

        Parameters
        ----------
        explanation : RejectionExplanation or Bunch
            What :meth:`skood.rejection.RejectOptionClassifier.explain` or
            :func:`skood.detectors.column_contributions` returned.

        i : int, default=0
            Position of the sample.

        name : str, default=None
            Title; None: the sentence on the sample, if there is one.

        ax, **kwargs
            Passed to `plot`.

        Returns
        -------
        display : ContributionDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If there are no contributions.
        """
        if not len(explanation.columns):
            raise ValueError(
                "The explanation has no contributions: no detector of the classifier "
                "has a score that is a sum over features. Use a detector such as "
                "skood.detectors.Mahalanobis or KNN."
            )
        if name is None and hasattr(explanation, "sentences"):
            name = explanation.sentences[i]
        display = cls(
            contributions=explanation.contributions[i],
            columns=explanation.columns,
            name=name,
        )
        return display.plot(ax, **kwargs)

    @classmethod
    def from_estimator(cls, estimator, X, *, name=None, ax=None, **kwargs):
        """Draw the contributions for one sample of a fitted classifier.

        Parameters
        ----------
        estimator : object
            A fitted :class:`~skood.rejection.RejectOptionClassifier`. It may be the
            last step of a pipeline.

        X : array-like of shape (1, ...)
            The sample.

        name, ax, **kwargs
            As in :meth:`from_explanation`.

        Returns
        -------
        display : ContributionDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If the estimator has no `explain` with sentences.
        ValueError
            If `X` has more than one sample, or there are no contributions.
        """
        final, X = unwrap(estimator, X)
        if not (hasattr(final, "explain") and hasattr(final, "reject_reason")):
            raise TypeError(
                "ContributionDisplay.from_estimator needs a fitted "
                f"RejectOptionClassifier with a rule, got {type(final).__name__}. Use "
                "from_explanation for a detector."
            )
        explanation = final.explain(X)
        if len(explanation) != 1:
            raise ValueError(
                f"X must have one sample, got {len(explanation)}. Pass X[i : i + 1], "
                "or use from_explanation(classifier.explain(X), i)."
            )
        return cls.from_explanation(explanation, name=name, ax=ax, **kwargs)

    def plot(self, ax=None, *, name=None, max_columns=10, **kwargs):
        """Draw the bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        name : str, default=None
            Title; None: the name of the display.

        max_columns : int, default=10
            Number of columns with a bar of their own: those with the largest absolute
            contributions, in decreasing order. One more bar sums the others.

        **kwargs : dict
            Passed to matplotlib's ``barh``.

        Returns
        -------
        display : ContributionDisplay
            This display, with `ax_`, `figure_` and `bars_`.
        """
        parts = np.asarray(self.contributions, dtype=np.float64)
        order = np.argsort(-np.abs(parts), kind="stable")
        shown, others = order[:max_columns], order[max_columns:]
        labels = [str(self.columns[j]) for j in shown]
        widths = parts[shown].tolist()
        if len(others):
            labels.append(
                "1 other column" if len(others) == 1 else f"{len(others)} others"
            )
            widths.append(parts[others].sum())
        with self._axes(ax) as ax:
            style = {"color": [COLORS[0] if w >= 0 else COLORS[1] for w in widths]}
            positions = np.arange(len(widths))
            self.bars_ = ax.barh(positions, widths, **{**style, **kwargs})
            # a dollar sign in a name is no formula
            ax.set_yticks(positions, labels, parse_math=False)
            ax.invert_yaxis()
            ax.axvline(0.0, color="black", linewidth=0.8)
            ax.set_xlabel("contribution to the squared distance")
            title = self.name if name is None else name
            if title is not None:
                lines = textwrap.fill(title, _WIDTH)
                ax.set_title(lines, fontsize="medium", loc="left", parse_math=False)
        return self

"""SelectionDisplay: sorted p-values of a batch, with the line of the procedure."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass
from typing import Any

import numpy as np

from skood.utils._metaestimators import unwrap
from skood.utils._plotting import COLORS, BaseDisplay, long_names
from skood.utils._torch import to_numpy

# At least this many of the smallest p-values are shown, and this many times those that
# are selected.
_MIN_SHOWN = 20
_SHOWN_PER_SELECTED = 3


@dataclass(kw_only=True, eq=False, repr=False)
class SelectionDisplay(BaseDisplay):
    r"""Plot of the smallest p-values of a batch, with the line of the selection.

    P-values of in-distribution (ID) samples are uniform: in ascending order, over their
    ranks k, they rise on a line to 1. P-values of out-of-distribution (OOD) samples are
    close to 0. The procedure of Benjamini and Hochberg selects the samples up to the
    last p-value at or below the line :math:`\alpha k / m`, a `StepUp` with an
    estimated number of ID samples those at or below :math:`\alpha k / \hat m_0`.

    Use `from_selection` or `from_estimator` to create a display; the parameters become
    attributes. Read more in the :ref:`User Guide <selection>`.

    Parameters
    ----------
    selection : Selection
        The selected samples of a batch.

    is_ood : ndarray of shape (n_samples,), dtype bool, default=None
        Which samples are OOD, if it is known; others are drawn in another color.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.

    figure_ : matplotlib Figure
        The figure.

    lines_ : list of matplotlib Line2D
        The p-values over their ranks; with `is_ood` of ID samples, then of OOD samples.

    selected_line_ : matplotlib Line2D
        The selected samples.

    bound_line_ : matplotlib Line2D or None
        The line of the procedure; None for procedures without one, such as `BestOf`.

    See Also
    --------
    select_novelties : Selects by p-values.
    NoveltySelector : Selects by detectors.

    References
    ----------
    .. [1] T. Schweder, E. Spjotvoll. Plots of p-values to evaluate many tests
       simultaneously. Biometrika 69, 1982.

    Examples
    --------
    >>> import numpy as np
    >>> from skood.selection import SelectionDisplay, select_novelties
    >>> batch = select_novelties(np.array([1, 60, 2, 90, 3, 40]) / 100, 99, alpha=0.1)
    >>> display = SelectionDisplay.from_selection(batch)
    >>> display.selected_line_.get_ydata()
    array([0.01, 0.02, 0.03])
    """

    selection: Any
    is_ood: Any = None

    @classmethod
    def from_selection(cls, selection, *, is_ood=None, ax=None, **kwargs):
        """Plot a selection.

        Parameters
        ----------
        selection : Selection
            The selected samples of a batch.

        is_ood : array-like of shape (n_samples,), dtype bool, default=None
            Which samples are OOD, if it is known.

        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        display : SelectionDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If the batch is empty, or `is_ood` does not match it.
        """
        return cls(selection=selection, is_ood=is_ood).plot(ax, **kwargs)

    @classmethod
    def from_estimator(cls, selector, X, *, alpha=None, is_ood=None, ax=None, **kwargs):
        """Plot the selection of a batch by a fitted selector.

        Parameters
        ----------
        selector : NoveltySelector
            A fitted selector. It may be the last step of a Pipeline.

        X : array-like of shape (n_samples, n_features)
            The batch.

        alpha : float, default=None
            The level; None: the level of the selector.

        is_ood : array-like of shape (n_samples,), dtype bool, default=None
            Which samples are OOD, if it is known.

        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        display : SelectionDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If `selector` has no ``select``.
        """
        final, X = unwrap(selector, X)
        if not hasattr(final, "select"):
            raise TypeError(
                "SelectionDisplay.from_estimator needs a NoveltySelector, got "
                f"{type(final).__name__}. Use from_selection with a Selection."
            )
        selection = final.select(X, alpha=alpha)
        return cls.from_selection(selection, is_ood=is_ood, ax=ax, **kwargs)

    def plot(self, ax=None, *, n_shown=None, **kwargs):
        """Plot the p-values.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        n_shown : int, default=None
            How many of the smallest p-values to draw. None: three times as many as are
            selected, at least 20.

        **kwargs : dict
            Passed to matplotlib's ``plot`` of the p-values.

        Returns
        -------
        display : SelectionDisplay
            This display, with `ax_`, `figure_` and the lines.
        """
        batch, m = self.selection, len(self.selection.pvalues)
        is_ood = self._checked_truth(m)
        if n_shown is None:
            n_shown = max(_MIN_SHOWN, _SHOWN_PER_SELECTED * batch.n_selected)
        order = np.lexsort((~batch.selected, batch.pvalues))[:n_shown]
        k, p = np.arange(1, len(order) + 1), batch.pvalues[order]
        style = {"linestyle": "", "marker": "o", "markersize": 6, "fillstyle": "none"}
        style |= long_names(kwargs)
        with self._axes(ax) as ax:
            self.lines_ = []
            groups = [("samples", COLORS[0], np.ones(len(order), dtype=bool))]
            if is_ood is not None:
                truth = is_ood[order]
                groups = [("ID", COLORS[0], ~truth), ("OOD", COLORS[1], truth)]
            for label, color, of in groups:
                options = {"color": color, "label": label} | style
                self.lines_ += ax.plot(k[of], p[of], **options)
            chosen = batch.selected[order]
            (self.selected_line_,) = ax.plot(
                k[chosen],
                p[chosen],
                linestyle="",
                marker=".",
                markersize=4,
                color="black",
                label=f"selected ({batch.n_selected} of {m})",
            )
            self.bound_line_ = None
            if batch.pi0 is not None and batch.pi0 > 0:
                n_id = batch.pi0 * m
                name = "m" if batch.pi0 == 1 else r"\hat m_0"
                (self.bound_line_,) = ax.plot(
                    [0, k[-1]],
                    [0, batch.alpha * k[-1] / n_id],
                    color="0.4",
                    label=rf"$\alpha k / {name}$, $\alpha = {batch.alpha:g}$",
                )
            ax.set(xlabel="rank k of the sample", ylabel="p-value", ylim=(0, None))
            ax.xaxis.get_major_locator().set_params(integer=True)
            ax.legend()
            return self

    def _checked_truth(self, m):
        """Return `is_ood` as a boolean array, or None; raise if it does not match."""
        if m == 0:
            raise ValueError("The batch is empty: there is no p-value to plot.")
        if self.is_ood is None:
            return None
        is_ood = np.asarray(to_numpy(self.is_ood))
        if is_ood.shape != (m,) or is_ood.dtype.kind != "b":
            raise ValueError(
                f"is_ood must be a boolean array of shape ({m},), got the dtype "
                f"{is_ood.dtype} and the shape {is_ood.shape}."
            )
        return is_ood

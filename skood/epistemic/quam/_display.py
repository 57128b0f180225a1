"""Display of the adversarial model searches of one point."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np
from sklearn.utils import Bunch

from skood.utils._metaestimators import unwrap
from skood.utils._plotting import COLORS, BaseDisplay

_LABELS = {
    "loss": "loss",
    "attack_loss": "loss of the attack",
    "training_loss": "loss on training samples",
    "penalty": "excess training loss",
    "divergence": "KL divergence (nats)",
    "weights": "weight",
}

# Maximum number of lines in a legend.
_MAX_NAMES = 20

_STYLES = "-", "--", "-.", ":"


@dataclass(kw_only=True, eq=False, repr=False)
class AdversarialModelDisplay(BaseDisplay):
    r"""Display of the searches for adversarial models of one point, step by step.

    There is a panel for each quantity, and a line for each target. An adversarial model
    is found where the divergence of its prediction is large while its training loss is
    close to the training loss of the given network; its weight is its contribution to
    the uncertainty.

    Use `from_estimator` or `from_trace` to create a display; the parameters are stored
    as attributes.

    Read more in the :ref:`User Guide <quam>`.

    Parameters
    ----------
    trace : Bunch
        Output of `QUAM.trace`.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One for each quantity.

    figure_ : matplotlib Figure
        The figure.

    lines_ : dict of str to list of matplotlib Line2D
        For each quantity the lines of the targets.

    See Also
    --------
    QUAM : The search.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.epistemic import QUAM, AdversarialModelDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> quam = QUAM(LogisticRegression(max_iter=500), random_state=0).fit(X, y)
    >>> display = AdversarialModelDisplay.from_estimator(quam, X[:1] + 0.1)
    >>> len(display.axes_), len(display.lines_["divergence"])
    (4, 3)
    """

    trace: Bunch

    @classmethod
    def from_trace(cls, trace, *, ax=None, **kwargs):
        """Draw a trace.

        Parameters
        ----------
        trace : Bunch
            Output of `QUAM.trace`.

        ax : sequence of matplotlib Axes, default=None
            Axes to draw on, one for each quantity; None makes a new figure.

        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        display : AdversarialModelDisplay
            The display, drawn.
        """
        return cls(trace=trace).plot(ax, **kwargs)

    @classmethod
    def from_estimator(cls, quam, x, *, ax=None, **kwargs):
        """Search adversarial models for a point, and draw the searches.

        Parameters
        ----------
        quam : QUAM
            A fitted estimator. It may be the last step of a Pipeline.

        x : array-like of shape (1, ...)
            The point, as a batch of one sample.

        ax : sequence of matplotlib Axes, default=None
            Axes to draw on, one for each quantity; None makes a new figure.

        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        display : AdversarialModelDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If `quam` does not search adversarial models.
        """
        final, x = unwrap(quam, x)
        if not hasattr(final, "trace"):
            raise TypeError(
                "AdversarialModelDisplay.from_estimator needs a QUAM, got "
                f"{type(final).__name__}."
            )
        return cls.from_trace(final.trace(x), ax=ax, **kwargs)

    def plot(
        self,
        ax=None,
        *,
        quantities=("attack_loss", "penalty", "divergence", "weights"),
        **kwargs,
    ):
        """Draw the searches.

        Parameters
        ----------
        ax : sequence of matplotlib Axes, default=None
            Axes to draw on, one for each quantity; None makes a new figure.

        quantities : sequence of str, default=("attack_loss", "penalty", \
"divergence", "weights")
            Quantities to draw, of these and "loss" and "training_loss".

        **kwargs : dict
            Passed to matplotlib's ``plot``.

        Returns
        -------
        display : AdversarialModelDisplay
            This display, with `axes_`, `figure_` and `lines_`.
        """
        unknown = [name for name in quantities if name not in _LABELS]
        if unknown or isinstance(quantities, str) or not len(quantities):
            raise ValueError(
                f"quantities must be a list of names from {sorted(_LABELS)}, got "
                f"{quantities!r}."
            )
        if ax is not None:
            axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
            if len(axes) != len(quantities):
                raise ValueError(
                    f"There are {len(quantities)} quantities, and each needs axes of "
                    f"its own; got {len(axes)}."
                )
            self._draw(axes, quantities, kwargs)
            return self
        size = 3.4 * len(quantities) + 1.2, 3.4
        with self._panels(None, (1, len(quantities)), size) as (axes,):
            self._draw(axes, quantities, kwargs)
            handles = self.lines_[quantities[0]]
            if len(handles) <= _MAX_NAMES:
                self.figure_.legend(
                    handles=handles, loc="outside right upper", title="target"
                )
        return self

    def _draw(self, axes, quantities, kwargs):
        """Draw one panel for each quantity."""
        self.axes_, self.figure_, self.lines_ = axes, axes[0].figure, {}
        for panel, name in zip(axes, quantities, strict=True):
            values = np.asarray(self.trace[name])
            lines = []
            for j, target in enumerate(self.trace.targets):
                style = {
                    "color": COLORS[j % len(COLORS)],
                    "linestyle": _STYLES[j // len(COLORS) % len(_STYLES)],
                    "linewidth": 1.4,
                    "label": str(target),
                    **kwargs,
                }
                lines += panel.plot(np.arange(len(values)), values[:, j], **style)
            self.lines_[name] = lines
            panel.set(xlabel="step", ylabel=_LABELS[name])
            if name == "penalty":
                panel.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)

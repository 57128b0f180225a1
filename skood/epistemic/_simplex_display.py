"""Display of predictions for three classes on the probability simplex."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from skood.utils._metaestimators import n_rows, unwrap
from skood.utils._plotting import COLORS, BaseDisplay

# Corners of the triangle, one for each class.
_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])

# Sum of the areas of all dots, in square points.
_AREA = 2500.0


@dataclass(eq=False, repr=False)
class SimplexDisplay(BaseDisplay):
    """Display of the members' predictions at a point, for three classes.

    The probabilities of three classes are a point of a triangle, whose corners are the
    certain predictions. Each member is a dot; the areas are proportional to the
    weights.

    Use `from_estimator` to create a display from an uncertainty classifier; the
    parameters are stored as attributes.

    Read more in the :ref:`User Guide <simplex>`.

    Parameters
    ----------
    members : array-like of shape (n_members, 3)
        Class probabilities of the members.

    weights : array-like of shape (n_members,), default=None
        Weights of the members; None: equal weights.

    background : tuple of two array-like, default=None
        Probabilities, of shape (n_targets, 3), and a value for each: for example
        `grid` and its :func:`attainable_likelihood`.

    names : sequence of str, default=None
        Names of the classes; None: "class 0" to "class 2".

    groups : array-like of shape (n_members,), default=None
        Groups of members, which have different colors: for example the targets of the
        searches of `QUAM`.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.

    figure_ : matplotlib Figure
        The figure.

    dots_ : list of matplotlib PathCollection
        The members, one collection for each group.

    background_ : matplotlib TriContourSet or None
        The background.

    See Also
    --------
    attainable_likelihood : Training loss of networks with a given prediction.
    AdversarialModelDisplay : Display of searches, step by step.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skood.epistemic import Laplace, SimplexDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = Laplace(LogisticRegression(max_iter=500), random_state=0).fit(X, y)
    >>> display = SimplexDisplay.from_estimator(clf, [[6.0, 2.8, 5.0, 1.6]])
    >>> display.members.shape
    (100, 3)
    """

    members: Any
    weights: Any = None
    background: Any = None
    names: Any = None
    groups: Any = field(default=None, kw_only=True)

    @staticmethod
    def to_plane(proba):
        """Return the points of the triangle for probabilities.

        Parameters
        ----------
        proba : array-like of shape (n, 3)
            Class probabilities.

        Returns
        -------
        points : ndarray of shape (n, 2)
            Points of the triangle with the corners (0, 0), (1, 0) and (1/2, √3/2).
        """
        return _checked(proba, "proba") @ _CORNERS

    @staticmethod
    def from_plane(points):
        """Return the probabilities, barycentric coordinates, of points of the plane.

        Parameters
        ----------
        points : array-like of shape (n, 2)
            Points; outside the triangle some probabilities are negative.

        Returns
        -------
        proba : ndarray of shape (n, 3)
            Class probabilities.
        """
        points = check_array(points, dtype=np.float64, input_name="points")
        last = points[:, 1] / _CORNERS[2, 1]
        second = points[:, 0] - last / 2
        return np.column_stack([1 - second - last, second, last])

    @staticmethod
    def grid(n_refinements=5):
        """Return the vertices of a triangle whose edges are halved several times.

        Parameters
        ----------
        n_refinements : int, default=5
            Number of times that each triangle is split into four.

        Returns
        -------
        proba : ndarray of shape (n_vertices, 3)
            Class probabilities: 561 for 5 refinements, 45 for 3.
        """
        n = 2**n_refinements
        i, j = np.triu_indices(n + 1)
        return np.column_stack([n - j, j - i, i]) / n

    @classmethod
    def from_estimator(
        cls, estimator, x, *, background=None, names=None, ax=None, **kwargs
    ):
        """Draw the members of an uncertainty classifier at a point.

        Parameters
        ----------
        estimator : object
            A fitted uncertainty classifier with members and three classes, such as
            `QUAM` or `DeepEnsemble`. It may be the last step of a Pipeline.

        x : array-like of shape (1, ...)
            The point, as a batch of one sample.

        background : tuple of two array-like, default=None
            See `SimplexDisplay`.

        names : sequence of str, default=None
            Names of the classes; None: the class labels.

        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        **kwargs : dict
            Passed to `plot`.

        Returns
        -------
        display : SimplexDisplay
            The display, drawn. Members of `QUAM` have the color of their target.

        Raises
        ------
        TypeError
            If the estimator has no members.
        """
        final, x = unwrap(estimator, x)
        if not hasattr(final, "_blocks"):
            raise TypeError(
                "SimplexDisplay.from_estimator needs an uncertainty classifier with "
                f"members, such as QUAM or DeepEnsemble, got {type(final).__name__}."
            )
        check_is_fitted(final)
        if n_rows(x) != 1:
            raise ValueError(
                f"SimplexDisplay shows one point, got {n_rows(x)} samples. Pass "
                "X[i : i + 1]."
            )
        (block,) = final._blocks(x)
        weights = block.weights
        if weights is not None and weights.ndim == 2:
            weights = weights[:, 0]
        if names is None:
            names = [str(label) for label in final.classes_]
        members = np.exp(block.predictions[:, 0])
        display = cls(members, weights, background, names, groups=block.groups)
        return display.plot(ax, **kwargs)

    def plot(self, ax=None, **kwargs):
        """Draw the triangle, the background and the members.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a new figure.

        **kwargs : dict
            Passed to matplotlib's ``scatter`` of the members.

        Returns
        -------
        display : SimplexDisplay
            This display, with `ax_`, `figure_`, `dots_` and `background_`.

        Raises
        ------
        ValueError
            If the members are not probabilities of three classes, or weights, groups,
            names or the background do not match.
        """
        members = _checked(self.members, "members")
        n = len(members)
        weights = np.full(n, 1 / n) if self.weights is None else self.weights
        weights = _of_length(weights, n, "weights", "members")
        groups = np.zeros(n) if self.groups is None else self.groups
        groups = _of_length(groups, n, "groups", "members")
        names = [f"class {k}" for k in range(3)] if self.names is None else self.names
        names = _of_length(names, 3, "names", "classes")
        with self._axes(ax) as ax:
            self.ax_ = ax
            self._draw_background()
            self._draw_triangle(names)
            self.dots_ = []
            for k, group in enumerate(np.unique(groups)):
                mask = groups == group
                style = {
                    "s": _AREA * weights[mask] / weights.sum(),
                    "color": COLORS[k % len(COLORS)],
                    "alpha": 0.6,
                    "linewidths": 0,
                    **kwargs,
                }
                dots = ax.scatter(*(members[mask] @ _CORNERS).T, zorder=3, **style)
                self.dots_.append(dots)
        return self

    def _draw_background(self):
        self.background_ = None
        if self.background is None:
            return
        proba, values = self.background
        proba = _checked(proba, "background")
        values = _of_length(values, len(proba), "background values", "targets")
        self.background_ = self.ax_.tricontourf(
            *(proba @ _CORNERS).T, values, levels=20, cmap="Greys_r", zorder=1
        )

    def _draw_triangle(self, names):
        closed = np.vstack([_CORNERS, _CORNERS[:1]])
        self.ax_.plot(*closed.T, color="0.3", linewidth=1, zorder=2)
        shifts = [(-0.02, -0.03), (0.02, -0.03), (0.0, 0.03)]
        sides = ["top", "top", "bottom"]
        for corner, shift, name, side in zip(
            _CORNERS, shifts, names, sides, strict=True
        ):
            self.ax_.text(*(corner + shift), str(name), ha="center", va=side)
        self.ax_.set(aspect="equal", xlim=(-0.15, 1.15), ylim=(-0.15, 1.0))
        self.ax_.axis("off")


def _checked(proba, what):
    """Return probabilities of three classes, or raise."""
    proba = check_array(proba, dtype=np.float64, input_name=what)
    if (
        proba.shape[1] != 3
        or (proba < 0).any()
        or not np.allclose(proba.sum(axis=1), 1, atol=1e-6)
    ):
        raise ValueError(
            f"{what} must be probabilities of three classes, of shape (n, 3) and with "
            f"sums of 1; got the shape {proba.shape} and values from "
            f"{proba.min():.3g} to {proba.max():.3g}."
        )
    return proba


def _of_length(values, n, what, of):
    """Return an array with one entry for each of n things, or raise."""
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(
            f"{what} must have the shape ({n},), one for each of the {n} {of}; got "
            f"{values.shape}."
        )
    return values

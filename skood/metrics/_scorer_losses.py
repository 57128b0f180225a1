"""Validation of the loss of a scorer, and its largest value."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._losses import REGRESSION_LOSSES, is_regression_loss, per_sample_loss


def check_loss(loss):
    """Raise if a loss is not valid for scorers."""
    if callable(loss) or is_regression_loss(loss):
        return
    if isinstance(loss, str) and loss == "zero_one":
        return
    if isinstance(loss, str) or np.ndim(loss) != 2:
        raise ValueError(
            "loss must be 'zero_one', 'absolute_error', 'squared_error', a callable "
            "loss(y_true, y_pred) or a loss matrix of shape (n_classes, n_classes). "
            f"Got {loss!r}."
        )
    matrix = np.asarray(loss, dtype=np.float64)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            "A loss matrix has a row and a column for every class, so it must be "
            f"square; got the shape {matrix.shape}."
        )
    bad = ~(np.isfinite(matrix) & (matrix >= 0))
    if bad.any():
        raise ValueError(
            "A loss matrix must be finite and not negative, got "
            f"{float(matrix[bad][0])!r} (in {int(bad.sum())} of {matrix.size} entries)."
        )


def check_kind(loss, regression, owner):
    """Raise if a loss is not for a regressor, or not for a classifier."""
    if regression and not (callable(loss) or is_regression_loss(loss)):
        raise ValueError(
            f"{owner} is a regressor, but loss={loss!r} is for classes. Pass loss="
            f"{' or '.join(map(repr, REGRESSION_LOSSES))}, or a callable."
        )
    if not regression and is_regression_loss(loss):
        raise ValueError(
            f"{owner} is no regressor, but loss={loss!r} is for regression. Pass loss="
            "'zero_one', a callable or a loss matrix."
        )


def check_max_loss(max_loss):
    """Raise unless a bound on losses is None or a positive number."""
    if max_loss is not None and not 0 < max_loss < np.inf:
        raise ValueError(f"max_loss must be positive and finite, got {max_loss!r}.")


def largest_loss(y, loss, is_id, classes, max_loss=None):
    """Return the largest loss of any prediction on the ID samples, at least 1.

    `loss` is checked; `classes` are the possible predictions and the rows of a matrix
    (None: the labels of these samples). For targets of a regression, they are the
    targets; the loss of a prediction between them is no larger, if it is convex.
    """
    if max_loss is not None:
        return max(1.0, float(max_loss))
    if is_regression_loss(loss):
        classes = np.array([y[is_id].min(), y[is_id].max()])
    elif isinstance(loss, str):
        return 1.0
    if callable(loss) or is_regression_loss(loss):
        known = np.unique(y[is_id]) if classes is None else np.asarray(classes)
        every = (known[np.full(y.shape, k)] for k in range(known.size))
        losses = [per_sample_loss(y, pred, loss, is_id=is_id) for pred in every]
    else:
        there = set(y[is_id].tolist())
        of_rows = [label in there for label in np.asarray(classes).tolist()]
        losses = [np.asarray(loss, dtype=np.float64)[of_rows]]
    return max(1.0, float(np.max(losses)))

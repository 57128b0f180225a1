"""Validation of the loss of a scorer, and its largest value."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._losses import per_sample_loss

__all__ = ["check_loss", "largest_loss"]


def check_loss(loss):
    """Raise if a loss is not valid for scorers."""
    if callable(loss) or (isinstance(loss, str) and loss == "zero_one"):
        return
    if isinstance(loss, str) or np.ndim(loss) != 2:
        raise ValueError(
            "loss must be 'zero_one', a callable loss(y_true, y_pred) or a loss "
            f"matrix of shape (n_classes, n_classes). Got {loss!r}."
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


def largest_loss(y, loss, is_id, classes):
    """Return the largest loss of any prediction on the ID samples, at least 1.

    `loss` is checked; `classes` are the possible predictions and the rows of a matrix
    (None: the labels of these samples).
    """
    if isinstance(loss, str):
        return 1.0
    if callable(loss):
        known = np.unique(y[is_id]) if classes is None else np.asarray(classes)
        every = (known[np.full(y.shape, k)] for k in range(known.size))
        losses = [per_sample_loss(y, pred, loss, is_id=is_id) for pred in every]
    else:
        there = set(y[is_id].tolist())
        of_rows = [label in there for label in np.asarray(classes).tolist()]
        losses = [np.asarray(loss, dtype=np.float64)[of_rows]]
    return max(1.0, float(np.max(losses)))

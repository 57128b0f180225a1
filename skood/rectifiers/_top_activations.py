"""The largest entries of each row, and rectifiers that scale rows by their share."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.rectifiers._base_rectifier import BaseRectifier

__all__ = ["ShapingRectifier", "largest", "n_largest", "scale_rows", "survivors"]


def n_largest(n_features, pruned):
    """Entries that are left when a share of each row is pruned: at least one.

    Parameters
    ----------
    n_features : int
        Entries of a row.

    pruned : float
        Share to prune, in [0, 1).

    Returns
    -------
    k : int
        Number of entries left; halves are rounded to even.
    """
    return max(1, n_features - int(np.round(n_features * pruned)))


def largest(Z, k):
    """Smallest and sum of the `k` largest entries of each row.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, n_features)
        Features.

    k : int
        At most `n_features`.

    Returns
    -------
    threshold : ndarray of shape (n_samples,)
        The k-th largest entry.

    total : ndarray of shape (n_samples,), dtype float64
        Sum of the `k` largest ones.
    """
    first = Z.shape[1] - k
    ordered = np.partition(Z, first, axis=1)
    return ordered[:, first], ordered[:, first:].sum(axis=1, dtype=np.float64)


def survivors(Z, k, threshold):
    """Tell which entries are among the `k` largest of their row and positive.

    Of equal entries, those with the lowest index survive.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, n_features)
        Non-negative features.

    k : int
        Number of entries to keep.

    threshold : ndarray of shape (n_samples,)
        The k-th largest entry of each row.

    Returns
    -------
    keep : ndarray of shape (n_samples, n_features), dtype bool
        At most `k` per row are true, fewer only if fewer are positive.
    """
    threshold = threshold[:, None]
    keep = (Z >= threshold) & (Z > 0)
    n_kept = np.count_nonzero(keep, axis=1)
    tied_rows = np.flatnonzero(n_kept > k)
    if len(tied_rows):
        tied = Z[tied_rows] == threshold[tied_rows]
        position = np.cumsum(tied, axis=1)
        too_many = (n_kept[tied_rows] - k)[:, None]
        keep[tied_rows] &= ~tied | (position <= position[:, -1:] - too_many)
    return keep


def scale_rows(rectifier, Z, factor, total, out):
    """Write ``Z * factor`` to `out`, or raise if that overflows.

    Parameters
    ----------
    rectifier : object
        Whose name the error tells.

    Z : ndarray of shape (n_samples, n_features)
        Features.

    factor : ndarray of shape (n_samples,), dtype float64
        Factor of each row.

    total : ndarray of shape (n_samples,), dtype float64
        Bound on the absolute entries of each row.

    out : ndarray of shape (n_samples, n_features)
        The scaled features.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        fits = factor * np.maximum(total, 1.0) <= np.finfo(out.dtype).max
    if not fits.all():
        raise ValueError(
            f"{type(rectifier).__name__} scales a row by {factor[~fits].max():.3g}, "
            f"which overflows {out.dtype}. Keep more entries of each row (a lower "
            "percentile, a larger top), or scale X."
        )
    np.multiply(Z, factor.astype(out.dtype)[:, None], out=out)


class ShapingRectifier(BaseRectifier):
    """Base class of rectifiers that compare the sum of a row with that of its largest.

    They learn nothing, and take non-negative features only. A subclass has a
    parameter `percentile`: the share to prune, in percent.
    """

    def _n_kept(self, Z):
        return n_largest(Z.shape[1], self.percentile / 100.0)

    def _validated(self, X, *, reset):
        X = super()._validated(X, reset=reset)
        if X.min() < 0:
            raise ValueError(
                f"Negative values in data passed to {type(self).__name__}, the lowest "
                f"{X.min():.4g}: it compares sums of activations, which must not be "
                "negative. Take features after a ReLU, or use ReAct, VRA or LTS."
            )
        return X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

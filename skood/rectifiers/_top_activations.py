"""Largest features of each sample, and the base class of rectifiers that use them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.rectifiers._base_rectifier import BaseRectifier
from skood.utils._array_api import row_sums

# With a lower fraction of positive entries, of this number of samples, sorting is
# faster than a partition.
_POSITIVE, _N_EXAMINED = 0.55, 256


def n_largest(n_features, pruned):
    """Return the number of entries, at least one, left when a fraction is pruned."""
    return max(1, n_features - int(np.round(n_features * pruned)))


def totals(Z):
    """Return the sum of each row in float64, in one order for any memory layout."""
    return row_sums(Z.astype(np.float64, order="C", copy=False))


def sorts_faster(Z):
    """Return whether sorting is the faster way to find the largest entries of a row.

    Where half of the entries or more are zero, a partition in float32 takes 1 to 20
    times as long as sorting, in float64 at least half as long; else, sorting takes 1 to
    5 times as long. The order of their sums differs, and thereby the last digit: `fit`
    decides, so that a sample has the same result in any batch.
    """
    first = Z[:_N_EXAMINED]
    return bool(np.count_nonzero(first > 0) < _POSITIVE * first.size)


def largest(Z, k, by_sorting):
    """Return the smallest and the sum of the `k` largest entries of each row.

    Entries are non-negative. As integers they have the same order, and are compared in
    two thirds of the time.
    """
    first = Z.shape[1] - k
    integers = Z.view(np.int32 if Z.dtype == np.float32 else np.int64)
    if by_sorting:
        ordered = np.sort(integers, axis=1).view(Z.dtype)
    else:
        ordered = np.partition(integers, first, axis=1).view(Z.dtype)
    return ordered[:, first], totals(ordered[:, first:])


def survivors(Z, k, threshold):
    """Return a mask of the entries that are positive and among the `k` largest.

    `threshold` (n_samples,) is the k-th largest entry of each row of a non-negative
    `Z`. Among equal entries the lowest indices are retained: at most `k` are true.
    """
    is_positive = threshold.min() > 0
    threshold = threshold[:, None]
    keep = Z >= threshold
    if not is_positive:
        keep &= Z > 0
    elif np.count_nonzero(keep) == k * len(Z):  # no ties
        return keep
    n_retained = np.count_nonzero(keep, axis=1)
    tied_samples = np.flatnonzero(n_retained > k)
    if len(tied_samples):
        tied = Z[tied_samples] == threshold[tied_samples]
        position = np.cumsum(tied, axis=1)
        too_many = (n_retained[tied_samples] - k)[:, None]
        keep[tied_samples] &= ~tied | (position <= position[:, -1:] - too_many)
    return keep


def scale_samples(rectifier, Z, factor, total, out):
    """Write ``Z * factor`` to `out`, or raise if that overflows.

    `factor` and `total`, a bound on the absolute entries of each row, are (n_samples,).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        fits = factor * np.maximum(total, 1.0) <= np.finfo(out.dtype).max
    if not fits.all():
        raise ValueError(
            f"{type(rectifier).__name__} scales a sample by {factor[~fits].max():.3g}, "
            f"which overflows {out.dtype}. Keep more entries of each sample (a lower "
            "percentile, a larger top), or scale X."
        )
    np.multiply(Z, factor.astype(out.dtype)[:, None], out=out)


def scaled_tensor(Z, k, function, gaps):
    """Return gaps times a function of the sum of all over the `k` largest features."""
    Z = Z.clamp(min=0.0).double()
    top = Z.topk(k, dim=1).values.sum(dim=1)
    factor = function(Z.sum(dim=1) / top).where(top > 0, 1.0)
    return gaps * factor.to(gaps.dtype)[:, None]


class ShapingRectifier(BaseRectifier):
    """Base class of rectifiers that use the sums of all and of the largest features.

    They accept only non-negative features. A subclass has a
    parameter `percentile`: the fraction to prune, in percent.
    """

    def _learn(self, X, y, weight):
        self._by_sorting = sorts_faster(X)

    def _n_retained(self, Z):
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

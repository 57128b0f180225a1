"""Sample weights: validation, units of weight, and quantiles.

Integer weights are frequencies: a sample of weight w counts as w copies of it. A sample
of another weight counts as copies of weight 1 and one of the remaining weight.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Real

import numpy as np
from sklearn.utils import check_array

from skood.utils._torch import to_numpy

# Weights that are this close to an integer above are rounded down to count units.
_ROUNDING = 1e-9

# Larger sums of weights are divided by a constant to count units, to bound memory.
_MAX_UNITS = 10_000_000

# Up to this sum, the product of two counts is an int64.
_LARGEST_SUM = 2**31


def check_weight(sample_weight, n_samples, name="sample_weight", default=None):
    """Return weights as float64 of shape (n_samples,), or None; raise if invalid.

    A number is the weight of each sample. `default` replaces None.
    """
    sample_weight = default if sample_weight is None else to_numpy(sample_weight)
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_samples, sample_weight)
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name=name
    )
    if weight.shape != (n_samples,):
        raise ValueError(
            f"{name} has shape {weight.shape}, expected ({n_samples},): one "
            "weight for each sample of X."
        )
    if weight.min(initial=0.0) < 0:
        raise ValueError(
            f"Negative values in data passed to {name}: the least is "
            f"{weight.min():.3g}. Weights must be zero or positive."
        )
    if not weight.any():
        raise ValueError(
            f"All {n_samples} sample weights are zero. Sample weights must contain at "
            "least one non-zero number."
        )
    return weight


def row_weight(sample_weight, indices):
    """Return the weights of some samples (None: all); None stays None."""
    if sample_weight is None or indices is None:
        return sample_weight
    return sample_weight[indices]


def left_out_weight(weight):
    """Return the weight to remove where a sample is left out: one copy, or all of it.

    None, the weight of unweighted samples, gives 1.
    """
    return 1.0 if weight is None else np.minimum(weight, 1.0)


def has_others(counts, gone):
    """Return where a weight remains of the sums `counts` if `gone` is left out."""
    return counts > gone * (1 + _ROUNDING)


def _sizes(weight):
    """Return weights, divided by a constant if their sum is too large to count."""
    total = weight.sum()
    if total > max(_MAX_UNITS, len(weight)):
        return weight * (_MAX_UNITS / total)
    return weight


def unit_counts(weight):
    """Return the number of units of each weight, see `units`."""
    return np.maximum(np.ceil(_sizes(weight) * (1 - _ROUNDING)), 1).astype(np.intp)


def units(weight):
    """Return the samples that units of positive weights belong to, and their weights.

    A sample of weight w has units of weight 1 and one of the remaining weight, at least
    one. The order is the one of ``numpy.repeat``.
    """
    counts, sizes = unit_counts(weight), _sizes(weight)
    indices = np.repeat(np.arange(len(weight)), counts)
    copy_weights = np.ones(len(indices))
    copy_weights[np.cumsum(counts) - 1] = sizes - (counts - 1)
    return indices, copy_weights if sizes is weight else copy_weights * (
        weight.sum() / _MAX_UNITS
    )


def repeated_samples(samples, weight, what):
    """Return rows repeated by integer weights (None: themselves), for `what`."""
    if weight is None:
        return samples
    counts = weight.astype(np.intp)
    wrong = counts != weight
    if wrong.any():
        raise ValueError(
            f"sample_weight was passed, but {what} takes no weights: samples can only "
            "be repeated for it, and the weights are no integers, such as "
            f"{weight[wrong][0]:g}. Give integers, or leave sample_weight out."
        )
    return np.repeat(samples, counts, axis=0)


def remaining_weight(weight, left_out, copy_weights):
    """Return which samples are left, and their weights, without units of some.

    `left_out` are the samples of the units, with repeats, and `copy_weights` their
    weights.
    """
    left = weight - np.bincount(left_out, weights=copy_weights, minlength=len(weight))
    remaining = np.flatnonzero(left > _ROUNDING * weight)
    return remaining, left[remaining]


def weighted(scores, weight):
    """Return scores for a threshold: a pair with their weights, if there are any."""
    return scores if weight is None else (scores, weight)


def first_above(ends, level):
    """Return the first index of cumulated weights `ends` that is above a level."""
    return min(int(np.searchsorted(ends, level, side="right")), len(ends) - 1)


def weighted_quantile(ranked, ends, level):
    """Return a quantile of sorted values with cumulated weights `ends` (None: equal).

    For integer weights it is the quantile of repeated values in the arithmetic of
    `numpy.quantile`, which interpolates between the values of the ranks next to
    ``level * (n - 1)``; n is the sum of the weights. Weights whose sum is less than the
    number of values are scaled to it.
    """
    total = len(ranked) if ends is None else ends[-1]
    if ends is not None and total < len(ends):
        ends, total = ends * (len(ends) / total), float(len(ends))
    position = level * (total - 1)
    rank = int(position)
    if ends is None:
        low, high = float(ranked[rank]), float(ranked[min(rank + 1, total - 1)])
    else:
        low = float(ranked[first_above(ends, rank)])
        high = float(ranked[first_above(ends, rank + 1)])
    fraction = position - rank
    if fraction >= 0.5:
        return high - (high - low) * (1 - fraction)
    return low + (high - low) * fraction


def count_weights(sample_weight, n_samples):
    """Return weights as counts of samples, None if there are none.

    They are int64 if they are whole numbers: all counts then agree with repeated
    samples. Other weights are scaled to a mean of 1 of all that are positive.
    """
    weight = check_weight(sample_weight, n_samples)
    if weight is None:
        return None
    if not _is_whole(weight):
        weight = weight / weight.max()
        weight /= weight[weight > 0].mean()
    return weight.astype(np.int64) if _is_whole(weight) else weight


def _is_whole(weight):
    """Return whether weights are numbers of samples."""
    return bool((weight == np.rint(weight)).all() and weight.sum() < _LARGEST_SUM)

"""Exact quantiles of large arrays, with little memory.

Quantiles use NumPy's linear interpolation, with ranks computed in float64.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._torch import row_chunks
from skood.utils._weights import weighted_quantile

# Number of values that are sorted to select a rank.
_MAX_CANDIDATES = 2**20

# Number of values drawn to bracket a quantile.
_N_DRAWS = 2**16

# Bytes of one chunk of rows, and of one block of columns.
_CHUNK_BYTES = 2**20
_BLOCK_BYTES = 32 * 2**20


class _Values:
    """Values of some rows (a mask of shape (n_samples,); None: all), in chunks."""

    def __init__(self, X, mask):
        self.X = X
        self.mask = mask
        self.n_samples = len(X) if mask is None else int(np.count_nonzero(mask))

    def __len__(self):
        return self.n_samples * self.X.shape[1]

    def chunks(self):
        """Yield two-dimensional chunks of the rows."""
        for block in row_chunks(len(self.X), self.X[0].nbytes, budget=_CHUNK_BYTES):
            yield (
                self.X[block] if self.mask is None else self.X[block][self.mask[block]]
            )

    def between(self, low, high):
        """Return the values strictly between two bounds."""
        inside_chunks = []
        for chunk in self.chunks():
            inside = chunk > low
            inside &= chunk < high
            inside_chunks.append(chunk[inside])
        return np.concatenate(inside_chunks)

    def ranks(self, value):
        """Count the values less than `value`, and the values at most `value`."""
        below = upto = 0
        for chunk in self.chunks():
            below += int(np.count_nonzero(chunk < value))
            upto += int(np.count_nonzero(chunk <= value))
        return below, upto

    def draw(self, rng, low, high):
        """Draw values strictly between two bounds, with replacement, in order."""
        row = rng.integers(self.n_samples, size=_N_DRAWS)
        if self.mask is not None:
            row = np.flatnonzero(self.mask)[row]
        drawn = self.X[row, rng.integers(self.X.shape[1], size=_N_DRAWS)]
        return np.sort(drawn[(drawn > low) & (drawn < high)])


def _bracket(drawn, fraction):
    """Return two drawn values that probably enclose the quantile of a fraction."""
    n_drawn = len(drawn)
    middle, margin = (
        fraction * n_drawn,
        3.0 * np.sqrt(n_drawn * fraction * (1.0 - fraction)),
    )
    first = max(int(middle - margin) - 1, 0)
    last = min(int(middle + margin) + 1, n_drawn - 1)
    return drawn[first], drawn[last]


def _neighbors(values, rank):
    """Return the value of a rank, counted from 0, and the next one (or itself).

    While there are too many candidates, two of them that probably enclose the rank are
    drawn and their ranks counted; then either one of them has the rank, or the
    candidates are restricted to one side of each.
    """
    rng = np.random.default_rng(0)
    low, high = -np.inf, np.inf  # the value is strictly between them
    n_low, n_high = 0, len(values)  # ranks of the first and behind the last candidate
    while n_high - n_low > _MAX_CANDIDATES:
        drawn = values.draw(rng, low, high)
        if len(drawn) == 0:
            continue
        for pivot in _bracket(drawn, (rank - n_low) / (n_high - n_low)):
            below, upto = values.ranks(pivot)
            if below <= rank < upto:
                return pivot, _following(values, pivot, upto - rank)
            if rank < below:
                high, n_high = min(high, pivot), min(n_high, below)
            else:
                low, n_low = max(low, pivot), max(n_low, upto)
    inside = values.between(low, high)
    place = rank - n_low
    inside.sort()
    if place + 1 < len(inside):
        return inside[place], inside[place + 1]
    return inside[place], _following(values, inside[place], 1)


def _following(values, value, n_left):
    """Return the next value: `value` itself if `n_left` > 1 of it are left."""
    if n_left > 1:
        return value
    smallest = min(
        np.min(chunk, where=chunk > value, initial=np.inf) for chunk in values.chunks()
    )
    return smallest if np.isfinite(smallest) else value


def _interpolate(low, high, weight):
    """Interpolate between two neighbors, in float64, exactly at both ends."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if weight < 0.5:
        return low + (high - low) * weight
    return high - (high - low) * (1.0 - weight)


def pooled_quantile(X, quantile, mask=None, weight=None):
    """Return the quantile of all (finite) values of the rows in a mask (None: all).

    Rows with weights (n_samples,) are sorted in memory.
    """
    if weight is not None:
        chosen = slice(None) if mask is None else mask
        values = X[chosen].ravel()
        (value,) = _weighted(values, np.repeat(weight[chosen], X.shape[1]), [quantile])
        return value
    values = _Values(X, mask)
    position = quantile * (len(values) - 1)
    rank = int(position)
    low, high = _neighbors(values, rank)
    return float(_interpolate(low, high, position - rank))


def _weighted(values, weight, quantiles):
    """Return quantiles of weighted values."""
    order = np.argsort(values)
    ranked, ends = values[order], np.cumsum(weight[order])
    return [weighted_quantile(ranked, ends, quantile) for quantile in quantiles]


def column_quantiles(X, quantiles, mask=None, weight=None):
    """Return float64 quantiles (n_quantiles, n_features) of columns of such rows."""
    if weight is not None:
        mask = slice(None) if mask is None else mask
        columns = [_weighted(column, weight[mask], quantiles) for column in X[mask].T]
        return np.transpose(columns)
    n_samples = _Values(X, mask).n_samples
    result = np.empty((len(quantiles), X.shape[1]))
    for block in row_chunks(X.shape[1], n_samples * X.itemsize, budget=_BLOCK_BYTES):
        _write_quantiles(
            _columns(X[:, block], mask, n_samples), result[:, block], quantiles
        )
    return result


def _columns(X, mask, n_samples):
    """Return the chosen rows of an array transposed, copied tile by tile."""
    block = np.empty((X.shape[1], n_samples), dtype=X.dtype)
    start = 0
    for chunk in _Values(X, mask).chunks():
        block[:, start : start + len(chunk)] = chunk.T
        start += len(chunk)
    return block


def _write_quantiles(block, result, quantiles):
    """Write quantiles of the rows of `block`, which is sorted, to `result`.

    NumPy sorts by vector instructions, in less time than it selects several ranks.
    """
    block.sort(axis=1)
    last = block.shape[1] - 1
    for i, quantile in enumerate(quantiles):
        rank = int(quantile * last)
        low, high = block[:, rank], block[:, min(rank + 1, last)]
        result[i] = _interpolate(low, high, quantile * last - rank)

"""Memory banks: training samples that detectors compare all samples with."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state

from skood.utils._array_api import as_double, to_device, to_host, top_k
from skood.utils._torch import is_tensor, row_chunks

__all__ = [
    "UNIT_BYTES",
    "bank_bytes_per_row",
    "bank_scores",
    "bank_tiles",
    "drawn_rows",
    "half_squares",
    "kth_distances",
    "kth_of_tiles",
    "leave_out",
    "own_rows",
    "row_lengths",
    "top_k_of_many",
]

# Number of columns per block in `top_k_of_many`.
_BLOCK = 64

# Samples of a chunk, and bytes of the product of a chunk and a part of the bank.
_TILE_ROWS = 512
_TILE_BYTES = 32 * 2**20

# Bytes of float64 temporaries, which stay in the cache.
UNIT_BYTES = 2 * 2**20

# Candidates of a sample, beside its neighbors, whose distances are computed again.
_CANDIDATES = 100


def bank_bytes_per_row(detector):
    """Return the bytes that count for a sample, so that chunks have few samples."""
    return detector._chunk_bytes // _TILE_ROWS


def bank_tiles(reading, bank, tile_bytes=None):
    """Split a bank so that products with a chunk of samples need bounded memory."""
    return row_chunks(
        len(bank), bank.itemsize * len(reading), tile_bytes or _TILE_BYTES
    )


def bank_scores(detector, reading, own=None):
    """Score samples against a bank, which is copied to a GPU once, not once per chunk.

    ``detector._bank()`` returns the arrays of the bank, ``_compare(reading, *bank,
    own=None)`` the scores of a chunk. `own` are the indices of the samples in the bank,
    -1 for others: samples are not compared with themselves.
    """
    device = reading.device_for(detector._device)
    bank = [to_device(array, device) for array in detector._bank()]
    scores = [
        to_host(as_double(detector._compare(part, *bank, own=owned)))
        for part, owned in detector._parts(reading, own)
    ]
    return np.concatenate(scores)


def own_rows(kept, rows, n_bank, shares=None):
    """Return training samples that can be left out of a bank, and their indices in it.

    `kept`, from `drawn_rows`, is the bank (None: all). The index is -1 outside of it. A
    bank of one sample cannot do without it. The third result are the weights `shares`
    of these samples.
    """
    own = rows
    if kept is not None:
        own = np.minimum(np.searchsorted(kept, rows), len(kept) - 1)
        own = np.where(kept[own] == rows, own, -1)
    if n_bank == 1:
        left = own < 0
        shares = None if shares is None else shares[left]
        rows, own = rows[left], own[left]
    return rows, own, shares


def drawn_rows(n_samples, size, random_state, weight=None):
    """Draw a number or share (at least one) of samples; return ascending indices.

    For None, or all samples, the result is a slice, so that nothing is copied. With
    weights, the probability of each draw is proportional to them.
    """
    if size is not None and not isinstance(size, Integral):
        size = max(1, round(size * n_samples))
    if size is None or size >= n_samples:
        return slice(None)
    rng = check_random_state(random_state)
    p = None if weight is None else weight / weight.sum()
    return np.sort(rng.choice(n_samples, size, replace=False, p=p))


def leave_out(products, own, tile, value):
    """Set products of samples with themselves, in a tile of the bank, to a value."""
    if own is not None:
        rows = np.flatnonzero((own >= tile.start) & (own < tile.stop))
        products[rows, own[rows] - tile.start] = value


def top_k_of_many(array, k):
    """Return the `k` largest values of each of a few long rows, unordered.

    Columns are split into blocks. The `k` blocks with the largest maxima contain the
    `k` largest values, since any other value is at most the maximum of each of these
    blocks. On the CPU, finding maxima is faster than partial sorting.
    """
    n_blocks = array.shape[1] // _BLOCK
    if is_tensor(array) or n_blocks <= 2 * k:
        return top_k(array, k)
    n_rows, n_cut = len(array), n_blocks * _BLOCK
    blocks = array[:, :n_cut].reshape(n_rows, _BLOCK, n_blocks)
    maxima = blocks.max(axis=1)
    chosen = np.argpartition(maxima, n_blocks - k, axis=1)[:, None, -k:]
    found = np.take_along_axis(blocks, chosen, axis=2).reshape(n_rows, -1)
    return top_k(np.concatenate([found, array[:, n_cut:]], axis=1), k)


def half_squares(bank):
    """Return half the squared lengths of a bank, in its precision; None if infinite."""
    halves = np.empty(len(bank))
    for rows in row_chunks(len(bank), 8 * bank.shape[1], UNIT_BYTES):
        part = bank[rows].astype(np.float64)
        halves[rows] = np.einsum("ij,ij->i", part, part) / 2
    with np.errstate(over="ignore"):
        halves = halves.astype(bank.dtype)
    return halves if np.isfinite(halves).all() else None


def _kth_at_most(gaps, k):
    """Return a bound of the k-th smallest value of each row, from minima of blocks."""
    n_blocks = gaps.shape[1] // _BLOCK
    if n_blocks > 2 * k:
        cut = n_blocks * _BLOCK
        minima = gaps[:, :cut].reshape(len(gaps), _BLOCK, n_blocks).min(axis=1)
        gaps = np.concatenate([minima, gaps[:, cut:]], axis=1)
    return np.partition(gaps, k - 1, axis=1)[:, k - 1]


def row_lengths(rows):
    """Return the Euclidean length of each row of an array of NumPy, in float64."""
    rows = rows.astype(np.float64, copy=False)
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))


def kth_distances(queries, bank, halves, n_neighbors):
    """Return distances to the k-th neighbors in float64; None for other searches.

    A product in the precision of the bank leaves the candidates whose distances are,
    within its error bound, at most the k-th; their distances are computed in float64.
    `halves` is from `half_squares`. None if memory would be large, or candidates many.
    """
    if halves is None or len(queries) * halves.nbytes > _TILE_BYTES:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        given = queries.astype(bank.dtype, copy=False)
        gaps = (bank @ given[0])[None] if len(given) == 1 else given @ bank.T
        np.subtract(halves, gaps, out=gaps)
        # |fl(q.b) - q.b| <= D u |q| |b| for any order of summation, u = eps / 2
        longest = np.sqrt(2.0 * halves.max())
        length = row_lengths(queries) + longest
        kind, n_features = np.finfo(bank.dtype), bank.shape[1]
        error = kind.eps * (n_features / 2 + 4) * length * longest
        error += n_features * kind.tiny  # products may underflow
        limit = _kth_at_most(gaps, n_neighbors) + 2 * error
    if not np.isfinite(limit).all():
        return None
    found = np.flatnonzero(gaps <= limit[:, None])
    if len(found) > len(queries) * (_CANDIDATES + n_neighbors):
        return None
    if len(queries) == 1:  # for the speed of small calls
        distances = row_lengths(queries - bank[found].astype(np.float64))
        distances.partition(n_neighbors - 1)
        return distances[n_neighbors - 1 : n_neighbors]
    rows, found = divmod(found, len(bank))
    distances = row_lengths(queries[rows].astype(np.float64) - bank[found])
    order = np.lexsort((distances, rows))
    first = np.searchsorted(rows, np.arange(len(queries)))
    return distances[order[first + n_neighbors - 1]]


def kth_of_tiles(queries, bank, tiles, half_norms, n_neighbors, own=None):
    """Return the k-th neighbors in a bank of tensors, from the neighbors in each tile.

    `half_norms`: half the squared lengths of each tile; `own`: see `leave_out`.
    """
    import torch

    gaps, rows = [], []
    for tile, half in zip(tiles, half_norms, strict=True):
        gap = torch.addmm(half, queries, bank[tile].double().T, alpha=-1)
        leave_out(gap, own, tile, torch.inf)
        best = gap.topk(min(n_neighbors, gap.shape[1]), largest=False)
        gaps.append(best.values)
        rows.append(best.indices + tile.start)
        if len(gaps) > 1:
            gap, row = torch.cat(gaps, dim=1), torch.cat(rows, dim=1)
            best = gap.topk(min(n_neighbors, gap.shape[1]), largest=False)
            gaps, rows = [best.values], [row.gather(1, best.indices)]
    found = rows[0]
    if own is not None and found.shape[1] == len(bank):  # the sample itself is last
        return found[:, -2]
    return found[:, -1]

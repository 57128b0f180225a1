"""Memory banks: training samples that detectors compare all samples with."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.utils import check_random_state

from skood.utils._array_api import (
    as_double,
    dots_with,
    row_dots,
    to_host,
    top_k,
    unit_rows,
)
from skood.utils._sparse import csr_lengths, inner_products
from skood.utils._torch import is_tensor, row_chunks

# Number of values per block in `top_k_of_many` and `_candidates`.
_BLOCK = 64

# Samples of a chunk, and bytes of the product of a chunk and a part of the bank.
TILE_SAMPLES = 512
_TILE_BYTES = 32 * 2**20

# Bytes of float64 temporaries, which stay in the cache.
UNIT_BYTES = 2 * 2**20

# Bytes of distances, and of rows of the bank in float64, that torch uses at a time: on
# the CPU, and elsewhere.
CPU_BYTES = 32 * 2**20
GPU_BYTES = 256 * 2**20

# The norms that metrics are based on.
_NORMS = dict.fromkeys(("euclidean", "l2", "minkowski"), 2) | {"chebyshev": np.inf}
_NORMS |= dict.fromkeys(("cityblock", "l1", "manhattan"), 1)

# Candidates of a sample, next to its neighbors, whose distances are computed again: at
# most this many, or the bank divided by the fraction, if that is more.
_CANDIDATES = 100
_BANK_FRACTION = 256

# Candidates on a GPU, and the relative error of products that round values to TF32.
GPU_CANDIDATES = 32
_TF32_ERROR = 2.0**-9

# Bytes of products of samples and a part of the bank, in a search for candidates.
_SEARCH_BYTES = 16 * 2**20


def like_bank(features, bank):
    """Return features of a chunk: sparse if the bank is, else dense."""
    if issparse(bank):
        return csr_array(features)
    return features.toarray() if issparse(features) else features


def bank_tiles(n_samples, bank, tile_bytes=_TILE_BYTES):
    """Split a bank so that products with a chunk of samples need bounded memory."""
    return row_chunks(bank.shape[0], bank.dtype.itemsize * n_samples, tile_bytes)


def omissions(bank_indices, drawn, n_bank, copy_weights=None):
    """Return training samples that can be left out of a bank, and their indices in it.

    `bank_indices`, from `drawn_indices`, is the bank (None: all). The index is -1
    outside of it. A bank of one sample cannot do without it. The third result are the
    weights `copy_weights` of these samples.
    """
    omit = drawn
    if bank_indices is not None:
        omit = np.minimum(np.searchsorted(bank_indices, drawn), len(bank_indices) - 1)
        omit = np.where(bank_indices[omit] == drawn, omit, -1)
    if n_bank == 1:
        outside = omit < 0
        copy_weights = None if copy_weights is None else copy_weights[outside]
        drawn, omit = drawn[outside], omit[outside]
    return drawn, omit, copy_weights


def drawn_indices(n_samples, size, random_state, weight=None):
    """Draw a number or fraction (at least one) of samples; return ascending indices.

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


def leave_out(products, omit, tile, value):
    """Set products of samples with themselves, in a tile of the bank, to a value."""
    if omit is not None:
        indices = np.flatnonzero((omit >= tile.start) & (omit < tile.stop))
        products[indices, omit[indices] - tile.start] = value


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
    candidates = np.take_along_axis(blocks, chosen, axis=2).reshape(n_rows, -1)
    return top_k(np.concatenate([candidates, array[:, n_cut:]], axis=1), k)


def unit_features(features):
    """Return features scaled to unit length, in their own precision."""
    if issparse(features):
        return unit_rows(features).astype(features.dtype, copy=False)
    if len(features) == 1 and type(features) is np.ndarray:  # as below
        return unit_rows(features).astype(features.dtype, copy=False)
    shape, kind = features.shape, features.dtype
    is_torch = is_tensor(features)
    units = features.new_empty(shape) if is_torch else np.empty(shape, dtype=kind)
    n_bytes = GPU_BYTES if is_torch else UNIT_BYTES
    for indices in row_chunks(len(features), 8 * features.shape[1], n_bytes):
        block = features[indices]
        if not is_torch:  # a fixed order of summation for any memory layout
            block = np.ascontiguousarray(block)
        units[indices] = unit_rows(block)  # in float64, where float32 cannot overflow
    return units


def half_squares(bank):
    """Return half the squared lengths of a bank, in its precision; None if infinite."""
    if issparse(bank):
        return csr_lengths(bank) ** 2 / 2
    halves = np.empty(len(bank))
    for indices in row_chunks(len(bank), 8 * bank.shape[1], UNIT_BYTES):
        block = bank[indices].astype(np.float64)
        halves[indices] = np.einsum("ij,ij->i", block, block) / 2
    with np.errstate(over="ignore"):
        halves = halves.astype(bank.dtype)
    return halves if np.isfinite(halves).all() else None


def kth_distances(queries, bank, halves, n_neighbors, omit=None):
    """Return distances to the k-th neighbors in float64; None for other searches.

    Products in the precision of the bank leave the candidates whose distances are,
    within the error bound, at most the k-th; their distances are computed in float64.
    `halves` is from `half_squares`; `omit`: see `leave_out`. None if there would be
    many candidates.
    """
    if halves is None:
        return None
    size = lengths(queries)
    with np.errstate(over="ignore", invalid="ignore"):
        candidates = _candidates(queries, size, bank, halves, n_neighbors, omit)
    if candidates is None:
        return None
    query_index, columns, gaps, error = candidates
    if len(queries) == 1:  # for the speed of small calls
        distances = lengths(queries - bank[columns].astype(np.float64))
        distances.partition(n_neighbors - 1)
        return distances[n_neighbors - 1 : n_neighbors]
    order = np.lexsort((gaps, query_index))
    first = np.searchsorted(query_index[order], np.arange(len(queries)))
    # two errors below the k-th, a sample is nearer, whatever its distance
    least = gaps[order[first + n_neighbors - 1]] - 2 * error
    is_nearer = gaps < least[query_index]
    rank = n_neighbors - 1 - np.bincount(query_index[is_nearer], minlength=len(queries))
    query_index, columns = query_index[~is_nearer], columns[~is_nearer]
    distances = np.empty(len(query_index))
    for block in row_chunks(len(query_index), 16 * bank.shape[1], UNIT_BYTES):
        distances[block] = distances_to(
            bank, columns[block], queries[query_index[block]]
        )
    order = np.lexsort((distances, query_index))
    first = np.searchsorted(query_index[order], np.arange(len(queries)))
    return distances[order[first + rank]]


def _candidates(queries, size, bank, halves, k, omit):
    """Return rows and columns of distances that may be at most the k-th, or None.

    Also returns half the squared distances minus half the squared lengths of queries,
    and bounds of their errors.
    """
    n = len(queries)
    tiles = list(row_chunks(len(bank), bank.dtype.itemsize * n, _SEARCH_BYTES))
    if len(tiles) > 1 and 4 * k > tiles[0].stop:
        return None
    cast_queries = queries.astype(bank.dtype, copy=False)
    # |fl(q.b) - q.b| <= D u |q| |b| for any order of summation, u = eps / 2
    longest = np.sqrt(2.0 * halves.max())
    length = size + longest
    kind, n_features = np.finfo(bank.dtype), bank.shape[1]
    error = kind.eps * (n_features / 2 + 4) * length * longest
    error += n_features * kind.tiny  # products may underflow
    n_left = n * (max(_CANDIDATES, len(bank) // _BANK_FRACTION) + k)
    least = np.empty((0, n), dtype=bank.dtype)
    near_pairs = []
    for tile in tiles:
        # products with the bank on the left take less time
        if len(cast_queries) == 1:
            gaps = dots_with(bank[tile], cast_queries[0])[:, None]
        else:
            gaps = bank[tile] @ cast_queries.T
        np.subtract(halves[tile, None], gaps, out=gaps)
        leave_out(gaps.T, omit, tile, np.inf)
        # minima of blocks of rows: their k-th smallest bounds that of the gaps
        height = max(1, min(_BLOCK, len(gaps) // (4 * k)))
        cut = len(gaps) // height * height
        minima = gaps[:cut].reshape(height, cut // height, -1).min(axis=0)
        least = np.concatenate([least, minima, gaps[cut:]])
        least = np.partition(least, k - 1, axis=0)[:k]
        limit = least.max(axis=0) + 2 * error
        if not np.isfinite(limit).all():
            return None
        near = np.flatnonzero(minima <= limit)
        if len(near) > n_left:
            return None
        near = (near + np.arange(0, cut * n, minima.size)[:, None]).ravel()
        near = near[gaps.ravel()[near] <= limit[near % n]]
        rest = np.flatnonzero(gaps[cut:] <= limit) + cut * n
        near = np.concatenate([near, rest])
        n_left -= len(near)
        if n_left < 0:
            return None
        columns, query_index = divmod(near, n)
        near_pairs.append((query_index, columns + tile.start, gaps.ravel()[near]))
    query_index, columns, gaps = map(np.concatenate, zip(*near_pairs, strict=True))
    near = gaps <= limit[query_index]
    return query_index[near], columns[near], gaps[near], error


def distances_to(bank, nearest, queries):
    """Return distances, in float64, from each query to its row of the bank."""
    if issparse(bank):
        return csr_lengths(queries.astype(np.float64) - bank[nearest])
    distances = np.empty(len(queries))
    for block in row_chunks(len(queries), 16 * queries.shape[1]):
        difference = queries[block].astype(np.float64) - bank[nearest[block]]
        distances[block] = np.linalg.norm(difference, axis=1)
    return distances


def lengths(queries, metric=None):
    """Return norms, in float64, that distances by a metric are compared with.

    None: of an array or tensor, as they are in `kth_distances`.
    """
    if metric is None:
        queries = as_double(queries)
        return row_dots(queries, queries) ** 0.5
    if metric not in _NORMS:
        return 1.0
    order = _NORMS[metric]
    if issparse(queries):
        return csr_lengths(queries, order)
    return np.linalg.norm(queries.astype(np.float64), ord=order, axis=1)


def kth_of_sparse(queries, bank, halves, n_neighbors, omit=None):
    """Return the k-th neighbors in a CSR bank, by dense products with parts of it.

    `halves`: half the squared lengths, see `half_squares`; `omit`: see `leave_out`.
    """
    n_queries, n_bank = queries.shape[0], bank.shape[0]
    queries = queries.astype(np.float64, copy=False)
    gaps, bank_index = np.empty((n_queries, 0)), np.empty((n_queries, 0), dtype=np.intp)
    for tile in row_chunks(n_bank, 8 * n_queries, _TILE_BYTES):
        bank_block = bank if tile == slice(0, n_bank) else bank[tile]
        gap = halves[tile] - inner_products(queries, bank_block)
        leave_out(gap, omit, tile, np.inf)
        gap, row = _smallest(gap, np.arange(tile.start, tile.stop), n_neighbors)
        gaps, bank_index = np.hstack([gaps, gap]), np.hstack([bank_index, row])
        gaps, bank_index = _smallest(gaps, bank_index, n_neighbors)
    order = np.argsort(gaps, axis=1, kind="stable")
    if omit is not None and n_neighbors == n_bank:  # the sample itself is last
        n_neighbors -= 1
    return np.take_along_axis(
        bank_index, order[:, n_neighbors - 1 : n_neighbors], axis=1
    )[:, 0]


def _smallest(values, labels, k):
    """Return the `k` smallest values of each row, and their labels by column."""
    labels = np.broadcast_to(labels, values.shape)
    if k < values.shape[1]:
        smallest = np.argpartition(values, k - 1, axis=1)[:, :k]
        values = np.take_along_axis(values, smallest, axis=1)
        labels = np.take_along_axis(labels, smallest, axis=1)
    return values, labels


def distances_of_tiles(queries, bank, tiles, half_norms, n_neighbors, omit=None):
    """Return distances to the k-th neighbors in a bank of tensors, in float64.

    On a GPU, float32 finds candidates; float64 searches again where the error bound of
    `kth_distances` leaves a doubt. Arguments: see `nearest_of_tiles`.
    """
    import torch

    exact = queries.double()
    n_bank, n_features = bank.shape
    count = n_neighbors + GPU_CANDIDATES
    is_single = queries.dtype == bank.dtype == torch.float32
    if not is_single or count >= n_bank or bank.device.type == "cpu":
        _, index = nearest_of_tiles(exact, bank, tiles, half_norms, n_neighbors, omit)
        place = min(n_neighbors, n_bank - (omit is not None)) - 1  # itself is last
        return (exact - bank[index[:, place]]).norm(dim=1)
    gaps, index = nearest_of_tiles(queries, bank, tiles, half_norms, count, omit)
    distances = (exact[:, None] - bank[index]).norm(dim=2).kthvalue(n_neighbors).values
    # infinite if a length is not finite in float32
    size, longest = lengths(queries), (2.0 * half_norms.max().float().double()) ** 0.5
    kind = torch.finfo(torch.float32)
    eps = kind.eps * (n_features / 2 + 4) + _TF32_ERROR * _allows_tf32()
    error = eps * (size + longest) * longest + n_features * kind.tiny
    is_sure = (distances**2 - size**2) / 2 + error <= gaps.amax(dim=1)
    (doubtful,) = torch.nonzero(~is_sure, as_tuple=True)
    if len(doubtful):
        left_out = None if omit is None else omit[to_host(doubtful)]
        distances[doubtful] = distances_of_tiles(
            exact[doubtful], bank, tiles, half_norms, n_neighbors, left_out
        )
    return distances


def nearest_of_tiles(queries, bank, tiles, half_norms, n_neighbors, omit=None):
    """Return half squared distances minus half squared lengths, and rows of the bank.

    Both are (n_queries, n_neighbors), in the precision of the queries. `half_norms`:
    half the squared lengths of the bank; `omit`: see `leave_out`.
    """
    import torch

    kind, gaps, bank_index = queries.dtype, [], []
    for tile in tiles:
        halves, rows = half_norms[tile].to(kind), bank[tile].to(kind)
        gap = torch.addmm(halves, queries, rows.T, alpha=-1)
        leave_out(gap, omit, tile, torch.inf)
        best = gap.topk(min(n_neighbors, gap.shape[1]), largest=False)
        gaps.append(best.values)
        bank_index.append(best.indices + tile.start)
        if len(gaps) > 1:
            gap, row = torch.cat(gaps, dim=1), torch.cat(bank_index, dim=1)
            best = gap.topk(min(n_neighbors, gap.shape[1]), largest=False)
            gaps, bank_index = [best.values], [row.gather(1, best.indices)]
    return gaps[0], bank_index[0]


def _allows_tf32():
    """Return whether products of float32 on a GPU may round to TF32."""
    from torch.backends.cuda import matmul

    try:
        return matmul.allow_tf32
    except RuntimeError:  # it was set by the other name that newer versions have
        return matmul.fp32_precision != "ieee"

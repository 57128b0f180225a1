"""Hashes of the content of samples, which random choices for thresholds depend on.

Copies of a sample have one key, in any order and container: repeated or weighted, dense
or sparse, an array or a tensor, float32 values or the same values in float64. So folds
and subsamples depend on the set of samples and their weights, not on their positions.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from functools import lru_cache
from hashlib import blake2b
from numbers import Number

import numpy as np
from joblib import hash as joblib_hash
from scipy.sparse import csr_array, issparse

from skood.utils._batches import is_lazy, loaded_blocks
from skood.utils._metaestimators import n_rows, take_rows
from skood.utils._torch import is_tensor, row_chunks, to_numpy

# Fitted detectors store keys of at most this many training samples.
_MAX_STORED = 2000

# At most this many columns of an array, evenly spaced, are compared.
_MAX_COMPARED = 256

# Bytes of a block of samples in float64, which stays in the cache.
_BLOCK_BYTES = 2**18

# The constants of SplitMix64 (Steele, Lea and Flood, 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


class SampleKeys:
    """Keys of samples, computed when they are first needed: uint64, (n_samples,)."""

    def __init__(self, X=None, values=None):
        self._X = X
        self._values = values
        self.n_samples = n_rows(X) if values is None else len(values)

    @property
    def values(self):
        """The keys of all samples."""
        if self._values is None:
            self._values, self._X = _keys(self._X), None
        return self._values

    def take(self, indices):
        """Return the keys of the samples `indices`."""
        return SampleKeys(values=self.values[indices])


def mixed(keys):
    """Return uint64 numbers that are uniform, one for each key (SplitMix64)."""
    keys = keys + _GOLDEN
    keys = (keys ^ (keys >> np.uint64(30))) * _FIRST
    keys = (keys ^ (keys >> np.uint64(27))) * _SECOND
    return keys ^ (keys >> np.uint64(31))


def copy_numbers(keys, counts=None, seed=0):
    """Return a random number for each copy, in the order of ``numpy.repeat``.

    The numbers are a function of the key, the rank among its copies, and the `seed`.
    `counts` is the number of copies of each sample (None: one).
    """
    if counts is None:
        counts = np.ones(len(keys), dtype=np.intp)
    order = np.argsort(keys, kind="stable")
    ranked, before = keys[order], np.cumsum(counts[order]) - counts[order]
    first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])[: len(keys)])
    sizes = np.diff(np.append(first, len(keys)))
    start = np.empty(len(keys), dtype=np.intp)
    start[order] = before - np.repeat(before[first], sizes)
    rank = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    rank = (rank + np.repeat(start, counts)).astype(np.uint64)
    salt = mixed(np.array([seed], dtype=np.uint64))
    return mixed(np.repeat(keys, counts) ^ mixed(rank ^ salt))


def drawn_samples(X, indices=None):
    """Return at most 2,000 of the samples `indices` (None: all), by a fixed seed.

    Also returns the number of samples from which they are drawn.
    """
    n_samples = n_rows(X) if indices is None else len(indices)
    if n_samples > _MAX_STORED:
        rng = np.random.default_rng(0)
        drawn = rng.choice(n_samples, _MAX_STORED, replace=False)
        indices = drawn if indices is None else indices[drawn]
    return X if indices is None else take_rows(X, indices), n_samples


def stored_keys(X):
    """Return the number of training samples, and keys of at most 2,000, or None."""
    drawn, n_samples = (X, 0) if is_lazy(X) else drawn_samples(X)
    keys = compared_keys(drawn)
    return None if keys is None else (n_samples, keys)


def merged_keys(*stored):
    """Return the `stored_keys` of two sets of samples together."""
    if None in stored:
        return None
    rng = np.random.default_rng(0)
    n_samples = sum(n for n, _ in stored)
    fraction = min(1.0, _MAX_STORED / n_samples)
    parts = [rng.permutation(keys)[: math.ceil(fraction * n)] for n, keys in stored]
    return n_samples, np.concatenate(parts)


def compared_keys(X):
    """Return keys to look samples up among others; None if `X` has no rows to compare.

    Numbers are compared in float32, so that copies in another precision are equal, and
    at most 256 columns of an array.
    """
    if is_lazy(X):
        return None
    try:
        is_graph = isinstance(getattr(X, "nodes", None), np.ndarray)
        values = X.features if is_graph else X
        if hasattr(values, "columns"):
            table = values.to_numpy()
            values = table if table.dtype.kind in "biuf" else values
        elif type(values) is not np.ndarray and not issparse(values):
            values = _as_array(to_numpy(values))
        if not hasattr(values, "columns") and values.dtype.kind in "biuf":
            if not issparse(values):
                values = values.reshape(len(values), -1)
                values = values[:, :: math.ceil(values.shape[1] / _MAX_COMPARED) or 1]
            with np.errstate(over="ignore"):
                values = values.astype(np.float32)
        keys = _keys(values)
        return keys ^ _keys(X) if is_graph else keys  # nodes may have equal numbers
    except (TypeError, ValueError):  # such as samples of different shapes
        return None


def _keys(X):
    """Return the keys of samples in any container that an estimator takes."""
    if is_lazy(X):
        return np.concatenate([_keys(block) for block in loaded_blocks(X)])
    nodes = getattr(X, "nodes", None)
    if isinstance(nodes, np.ndarray):  # of a graph
        return mixed(_sums(nodes[:, None]))
    if issparse(X):
        return mixed(_sparse_sums(X))
    if hasattr(X, "columns"):  # a data frame
        return _keys_of_columns([_series(X, j) for j in range(X.shape[1])])
    if not hasattr(X, "shape"):
        X = _as_array(X)
    if not is_tensor(X) and X.dtype.kind not in "biuf":
        return _keys_of_columns(np.asarray(X).reshape(len(X), -1).T)
    return mixed(_sums(X))


def _as_array(X):
    """Return an array of a list, without the longest text as width of all."""
    is_text = isinstance(X, (list, tuple)) and X and isinstance(X[0], str)
    return np.array(X, dtype=object) if is_text else np.asarray(X)


def _series(X, j):
    """Return a column of a data frame of pandas or polars, by position."""
    return X.iloc[:, j] if hasattr(X, "iloc") else X[X.columns[j]]


def _keys_of_columns(columns):
    """Return the keys of samples with columns of any types."""
    factors = _factors(len(columns))
    terms = [_column(column) * c for column, c in zip(columns, factors, strict=True)]
    return mixed(np.sum(terms, axis=0, dtype=np.uint64))


@lru_cache(maxsize=8)
def _factors(n_columns):
    """Return an odd factor for each column."""
    return mixed(np.arange(n_columns, dtype=np.uint64)) | np.uint64(1)


def _bits(values, out=None):
    """Return the bits of numbers in float64, mixed so that low ones are set, too.

    Zero has the bits 0, and there is one zero and one NaN. `out` is float64 memory.
    """
    values = np.add(values, 0.0, out=out, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        is_missing = np.isnan(values.sum())
    if is_missing:
        values[np.isnan(values)] = np.nan
    bits = values.view(np.uint64)
    bits ^= bits >> np.uint64(32)
    return bits


def _sums(X):
    """Return the sum over columns of the bits of a value times the column's factor."""
    n_samples, width = X.shape[0], math.prod(X.shape[1:])
    factors, sums = _factors(width), np.empty(n_samples, dtype=np.uint64)
    chunks = list(row_chunks(n_samples, 8 * width, _BLOCK_BYTES))
    memory = np.empty((chunks[0].stop if chunks else 0, width))
    for chunk in chunks:
        block = to_numpy(X[chunk]).reshape(-1, width)
        bits = _bits(block, memory[: len(block)])
        np.einsum("ij,j->i", bits, factors, out=sums[chunk])
    return sums


def _sparse_sums(X):
    """Return the sums of `_sums` for a sparse matrix: zeros do not add to them."""
    X = csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    terms = _bits(X.data) * _factors(X.shape[1])[X.indices]
    ends = np.append(np.uint64(0), np.cumsum(terms, dtype=np.uint64))
    return ends[X.indptr[1:]] - ends[X.indptr[:-1]]


def _column(values):
    """Return the bits of numbers, or hashes of other values, of a column."""
    values = np.asarray(values)
    if values.dtype.kind in "biuf":
        return _bits(values)
    if values.dtype.kind in "mM":
        return _bits(values.astype(np.int64))
    hashes: dict[str, int] = {}
    return np.array(
        [_hash(value, hashes) for value in values.tolist()], dtype=np.uint64
    )


def _hash(value, hashes):
    """Return a hash of a value that is the same in every process."""
    plain = isinstance(value, (str, bytes, Number)) or value is None
    name = repr(value) if plain else joblib_hash(value)
    if name not in hashes:
        digest = blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
        hashes[name] = int.from_bytes(digest, "little")
    return hashes[name]

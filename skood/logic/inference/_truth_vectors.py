"""Worlds of concepts grouped by truth vectors.

The probability of a world depends only on its truth vector: the constraints that hold.
All worlds are enumerated once, in blocks, and each distinct truth vector, packed into
words of 64 bits, is stored with the number of its worlds.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np

from skood.utils._stored import stored

# Little-endian on every machine, so that the bytes of a word are in bit order.
_WORD = np.dtype("<u8")

# Worlds of a block times constraints: memory for indices while grouping.
_BLOCK_ENTRIES = 2**22

# Worlds in a block.
_BLOCK_WORLDS = (2**12, 2**17)

# Groups in a buffer before they are merged with previous groups.
_PENDING = 2**20

# Truth values that are unpacked at once, as float64.
_UNPACKED = 2**20


def pack_bits(truth):
    """Pack truth values of shape (n, m) into words of shape (n_words, n)."""
    n, m = truth.shape
    n_words = -(-m // 64)
    packed = np.zeros((n, 8 * n_words), dtype=np.uint8)
    packed[:, : -(-m // 8)] = np.packbits(truth, axis=1, bitorder="little")
    return np.ascontiguousarray(packed.view(_WORD).T)


def unpack_bits(words, m):
    """Return the truth values of shape (n, m) of words of shape (n_words, n)."""
    packed = np.ascontiguousarray(words.T).view(np.uint8)
    return np.unpackbits(packed, axis=1, count=m, bitorder="little")


def distinct_columns(words, counts=None):
    """Return the distinct columns of words (n_words, n), n >= 1, and summed counts."""
    if len(words) == 1 and counts is None:
        distinct, counts = np.unique(words[0], return_counts=True)
        return distinct[np.newaxis], counts
    order = np.argsort(words[0]) if len(words) == 1 else np.lexsort(words)
    words = words[:, order]
    new = (words[:, 1:] != words[:, :-1]).any(axis=0)
    if counts is not None:
        counts = counts[order]
    del order
    starts = np.concatenate([[0], np.flatnonzero(new) + 1])
    if counts is None:
        counts = np.diff(np.append(starts, len(new) + 1))
    else:
        counts = np.add.reduceat(counts, starts)
    return words[:, starts], counts


def _flat_index(sizes, strides):
    """Return Σ digit · stride for all worlds of some axes, the last one fastest."""
    index = np.zeros(1, dtype=np.intp)
    for size, stride in zip(sizes, strides, strict=True):
        index = (index[:, np.newaxis] + stride * np.arange(size)).ravel()
    return index


class _Blocks:
    """Enumerate all worlds in blocks, and pack their truth."""

    # The last axes, whose worlds make a block, are added from the last to the first: a
    # constraint is looked up as soon as all its axes are included, at the cost of the
    # worlds of these and the later axes, not of the whole block.

    def __init__(self, sizes, scopes, tables):
        degree = np.zeros(len(sizes), dtype=int)
        for scope in scopes:
            degree[list(scope)] += 1
        order = np.argsort(degree, kind="stable")
        ordered = [sizes[axis] for axis in order]
        low, high = _BLOCK_WORLDS
        limit = min(max(_BLOCK_ENTRIES // len(scopes), low), high)
        cut = len(sizes) - 1
        while cut > 0 and math.prod(ordered[cut - 1 :]) <= limit:
            cut -= 1
        self.outer, self.inner = ordered[:cut], ordered[cut:]
        self.n_words = -(-len(scopes) // 64)
        self.lookups: list = [[] for _ in range(len(self.inner) + 1)]
        # place[axis] is the position of the axis in `ordered`
        place = np.argsort(order)
        for i, (scope, table) in enumerate(zip(scopes, tables, strict=True)):
            level, lookup = self._lookup(i, place[list(scope)], table)
            self.lookups[level].append(lookup)

    def _lookup(self, i, places, table):
        """Return the level of a constraint and its lookup at this level."""
        cut = len(self.outer)
        axes = np.argsort(places)
        places, table = places[axes], table.transpose(axes)
        n_outer = int(np.sum(places < cut))
        shape = table.shape
        slices = table.reshape(math.prod(shape[:n_outer]), -1)
        strides = np.zeros(cut + len(self.inner), dtype=np.intp)
        for k, place in enumerate(places):
            end = n_outer if k < n_outer else len(shape)
            strides[place] = math.prod(shape[k + 1 : end])
        level = int(places[n_outer]) - cut if n_outer < len(places) else len(self.inner)
        row = _flat_index(self.outer, strides[:cut])
        index = _flat_index(self.inner[level:], strides[cut + level :])
        return level, (i // 64, np.uint64(i % 64), slices, row, index)

    def __iter__(self):
        for block in range(math.prod(self.outer)):
            words = np.zeros((self.n_words, 1), dtype=_WORD)
            for level in range(len(self.inner), -1, -1):
                if level < len(self.inner):
                    words = np.tile(words, self.inner[level])
                for word, bit, slices, row, index in self.lookups[level]:
                    truth = slices[row[block]].astype(_WORD) << bit
                    words[word] |= truth.take(index)
            yield words


@stored
class GroupedWorlds:
    """Worlds in groups of equal truth; without ``merge`` each world is a group."""

    def __init__(self, sizes, scopes, tables, merge=True):
        self.sizes = sizes
        self.scopes = scopes
        self.tables = tables
        self.merge = merge
        self._groups = None
        self._small = None

    @property
    def groups(self):
        """Return packed truth, of shape (n_words, n_groups), and world counts."""
        if self._groups is None:
            blocks = _Blocks(self.sizes, self.scopes, self.tables)
            if self.merge:
                self._groups = _merged(blocks)
            else:
                words = np.concatenate(list(blocks), axis=1)
                self._groups = words, np.ones(words.shape[1], dtype=np.int64)
        return self._groups

    @property
    def n_groups(self):
        """Return the number of groups."""
        return len(self.groups[1])

    def _chunks(self):
        """Yield truth as float64 (n, n_constraints), and the log of the counts."""
        if self._small is not None:
            yield self._small
            return
        words, counts = self.groups
        m = len(self.scopes)
        step = max(1, _UNPACKED // m)
        for start in range(0, len(counts), step):
            place = slice(start, start + step)
            truth = unpack_bits(words[:, place], m).astype(np.float64)
            chunk = truth, np.log(counts[place])
            if step >= len(counts):
                self._small = chunk
            yield chunk

    def log_partition(self, weights):
        """Return log Σ_groups count · exp(w · φ)."""
        top, total = -math.inf, 0.0
        for truth, log_counts in self._chunks():
            energy = truth @ weights + log_counts
            new = max(top, float(energy.max()))
            total = total * math.exp(top - new) + float(np.exp(energy - new).sum())
            top = new
        return top + math.log(total)

    def _weighted(self, weights):
        """Yield truth and the probability of each group, up to rounding."""
        log_z = self.log_partition(weights)
        for truth, log_counts in self._chunks():
            yield truth, np.exp(truth @ weights + log_counts - log_z)

    def expected_truth(self, weights):
        """Return the expected truth of each constraint."""
        mean, total = 0.0, 0.0
        for truth, proba in self._weighted(weights):
            mean = mean + proba @ truth
            total += proba.sum()
        return mean / total

    def covariance(self, weights):
        """Return the covariance of the truth of the constraints."""
        mean = self.expected_truth(weights)
        covariance = np.zeros((len(mean), len(mean)))
        total = 0.0
        for truth, proba in self._weighted(weights):
            centered = truth - mean
            covariance += (centered * proba[:, np.newaxis]).T @ centered
            total += proba.sum()
        covariance /= total
        return (covariance + covariance.T) / 2

    def max_penalty(self, weights):
        """Return the largest -w · φ."""
        return max(float(np.max(truth @ -weights)) for truth, _ in self._chunks())


def _merged(blocks):
    """Return the distinct columns of all blocks, merged at intervals."""
    merged, waiting = [], 0
    for words in blocks:
        merged.append(distinct_columns(words))
        waiting += merged[-1][0].shape[1]
        if waiting > max(_PENDING, merged[0][0].shape[1] / 2):
            merged, waiting = [merge_columns(merged)], 0
    return merge_columns(merged)


def merge_columns(blocks):
    """Return the distinct columns of blocks, and summed weights; empties `blocks`."""
    if len(blocks) == 1:
        return blocks.pop()
    total = sum(len(counts) for _, counts in blocks)
    words = np.empty((len(blocks[0][0]), total), dtype=_WORD)
    counts = np.empty(total, dtype=blocks[0][1].dtype)
    while blocks:
        block, weights = blocks.pop()
        place = slice(total - len(weights), total)
        words[:, place], counts[place] = block, weights
        total = place.start
    columns = [words, counts]
    del words, counts
    return distinct_columns(columns.pop(0), columns.pop())

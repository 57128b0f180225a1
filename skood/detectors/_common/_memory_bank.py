"""Base class of detectors that compare samples with a bank of training samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from abc import abstractmethod
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from skood.detectors._common._base_output_detector import ReadingDetector
from skood.utils._array_api import as_double, to_device, to_host, top_k
from skood.utils._left_out import MAX_OFFSET_ROWS
from skood.utils._torch import is_tensor, row_chunks

__all__ = ["BankDetector", "drawn_rows", "leave_out", "own_rows", "top_k_of_many"]

# Number of columns per block in `top_k_of_many`.
_BLOCK = 64


class BankDetector(ReadingDetector):
    """Base class of detectors that compare each sample with all samples of a bank.

    A subclass implements ``_bank()``, which returns the fitted NumPy arrays of the bank
    (the first array has one row per sample of the bank), and ``_compare(reading,
    *bank)``, which returns the scores of a chunk of samples and iterates over the bank
    with ``self._tiles(reading, bank)``. The bank is copied to a GPU once, not once per
    chunk.

    Parameters
    ----------
    estimator : object, default=None
        A classifier, cloned and fitted unless frozen.

    device : str, default="auto"
        Device on which scores are computed.

    contamination : float, default=0.05
        Share of new ID samples to reject.

    ood_label : int or str, default=-1
        Label of known OOD samples in ``y``.
    """

    _max_offset_rows: ClassVar[int | None] = MAX_OFFSET_ROWS

    # Samples of a chunk, and bytes of the product of a chunk and a part of the bank.
    _tile_rows: ClassVar[int] = 512
    _tile_bytes: ClassVar[int] = 32 * 2**20

    _kept: Any = None  # training rows in the bank; None: all

    @abstractmethod
    def _bank(self):
        """Return the arrays of the bank."""

    @abstractmethod
    def _compare(self, reading, *bank, **own):
        """Score a chunk of samples against the bank, which is on the same device.

        `own` are the indices in the bank of the samples of the chunk, -1 for samples
        that are not in it: samples are not compared with themselves.
        """

    def _tiles(self, reading, bank):
        """Split the bank so that products with a chunk need bounded memory."""
        return row_chunks(len(bank), bank.itemsize * len(reading), self._tile_bytes)

    def _bytes_per_row(self, reading):
        least = self._chunk_bytes // self._tile_rows
        return max(super()._bytes_per_row(reading), least)

    def _score_rows(self, reading, own=None):
        device = reading.device_for(self._device)
        bank = [to_device(array, device) for array in self._bank()]
        scores = [
            to_host(as_double(self._compare(part, *bank, own=owned)))
            for part, owned in self._parts(reading, own)
        ]
        return np.concatenate(scores)

    def _left_out_scores(self, reading, y, rows):
        own = own_rows(self._kept, rows)
        if len(self._bank()[0]) == 1:  # the bank would be empty
            rows, own = rows[own < 0], own[own < 0]
        if len(rows) == 0:
            return super()._left_out_scores(reading, y, np.arange(len(reading)))
        return self._score_rows(reading.rows(rows), own)

    def _score_reading(self, reading):
        return self._compare(reading, *map(reading.asarray, self._bank()))


def drawn_rows(n_samples, size, random_state):
    """Draw samples without replacement; return their indices in ascending order.

    `size` is the number of samples to draw from `n_samples`, or their share, at least
    one. For None, or all samples, the result is a slice, so that nothing is copied.
    """
    if size is not None and not isinstance(size, Integral):
        size = max(1, round(size * n_samples))
    if size is None or size >= n_samples:
        return slice(None)
    rng = check_random_state(random_state)
    return np.sort(rng.choice(n_samples, size, replace=False))


def own_rows(kept, rows):
    """Return the indices of training samples in a bank, -1 if they are not in it.

    `kept` are the samples of the bank, from `drawn_rows` (None: all).
    """
    if kept is None:
        return rows
    own = np.minimum(np.searchsorted(kept, rows), len(kept) - 1)
    return np.where(kept[own] == rows, own, -1)


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

    `array` is an ndarray or tensor of shape (n_samples, n_values), the result of shape
    (n_samples, k).
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

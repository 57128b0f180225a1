"""Incremental fitting (``partial_fit``) of detectors from sums over samples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
from typing import Any

import numpy as np

from skood.nn._outputs import NetworkOutputs, concatenate
from skood.utils._left_out import MAX_OFFSET_SAMPLES
from skood.utils._stored import stored
from skood.utils._torch import is_tensor, to_numpy
from skood.utils._weights import units


class NotEnoughRows(ValueError):
    """Error: the samples so far do not determine the model."""


def on_host(sums):
    """Return sums over samples with NumPy arrays in place of tensors on a GPU."""
    if isinstance(sums, tuple):
        return tuple(map(on_host, sums))
    if not hasattr(sums, "__dict__") or is_tensor(sums):
        return to_numpy(sums)
    fetched = copy.copy(sums)
    for name, value in vars(sums).items():
        setattr(fetched, name, to_numpy(value))
    return fetched


@stored
class RowSample:
    """Uniform random sample of at most `size` of all samples that were added.

    Every sample gets a number from a fixed random stream; the samples with the smallest
    numbers are stored, in their order. So the result does not depend on the batch size.
    A sample with a weight is added as copies of weight 1, see `units`.
    """

    def __init__(self, size=MAX_OFFSET_SAMPLES):
        self.size = size
        self.n_seen = 0
        self._outputs: Any = None
        self._numbers = np.empty(0)
        self.labels: Any = None
        self._state = np.random.RandomState(0).get_state()

    def updated(self, outputs, y=None):
        """Return the sample with the outputs of samples, and their labels, added."""
        new = RowSample(self.size)
        copies, copy_weights = None, None
        if outputs.weight is not None:
            copies, copy_weights = units(outputs.weight)
            y = None if y is None else y[copies]
        n_new = outputs.n_samples if copies is None else len(copies)
        rng = np.random.RandomState()
        rng.set_state(self._state)
        numbers = np.concatenate([self._numbers, rng.random_sample(n_new)])
        new._state = rng.get_state()
        new.n_seen = self.n_seen + n_new
        indices = np.arange(len(numbers))
        if len(numbers) > self.size:
            indices = np.sort(np.argpartition(numbers, self.size)[: self.size])
        new._numbers = numbers[indices]
        if y is not None:
            labels = y if self.labels is None else np.concatenate([self.labels, y])
            new.labels = labels[indices]
        n_old = len(self._numbers)
        chosen = indices[indices >= n_old] - n_old
        if copies is None or copy_weights is None:
            fresh = outputs.take(chosen).to(None)
        else:
            fresh = outputs.take(copies[chosen]).to(None).weighted(copy_weights[chosen])
        parts = [] if n_old == 0 else [self._outputs.take(indices[indices < n_old])]
        if fresh.n_samples or not parts:
            parts.append(fresh)
        joined = concatenate(parts)
        # without the head
        new._outputs = NetworkOutputs(
            joined.features, joined.logits, None, joined.weight
        )
        return new

    def outputs(self, head=None):
        """Return the outputs of the stored samples."""
        return self._outputs._replace(head=head)

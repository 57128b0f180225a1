"""Containers for features, logits and the linear head of a classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from skood.utils._array_api import (
    array_namespace,
    as_double,
    asarray_like,
    sent_once,
    to_device,
    to_host,
)
from skood.utils._linalg import check_no_overflow
from skood.utils._memory_maps import without
from skood.utils._parallel import NO_LIMIT, map_chunks, one_thread
from skood.utils._sample_keys import SampleKeys
from skood.utils._sparse import stacked
from skood.utils._stored import stored
from skood.utils._torch import is_tensor, row_chunks

# Sixteenths of the size of chunks that a fit uses, see `with_halved_chunks`.
SIXTEENTHS: ContextVar = ContextVar("SIXTEENTHS", default=16)


@dataclass(frozen=True)
class Head:
    """Linear head, logits = features @ coef.T + intercept, one row per class."""

    coef: np.ndarray
    intercept: np.ndarray

    def scaled(self, factor):
        """Return the head with its logits multiplied by a factor."""
        return Head(factor * self.coef, factor * self.intercept)

    @property
    def origin(self):
        """The u of least length with W u + b = 0, or in the least squares sense.

        Rows of a fitted head sum to zero only up to the solver's precision: inverting
        that remainder would move the origin far away.
        """
        eps = np.finfo(np.result_type(self.coef, np.float32)).eps
        rcond = max(max(self.coef.shape) * eps, eps ** (2 / 3))
        inverse = np.linalg.pinv(self.coef.astype(np.float64), rcond=rcond)
        return -inverse @ self.intercept.astype(np.float64)

    @classmethod
    def of_linear(cls, linear):
        """Return a ``torch.nn.Linear`` as a float64 head with one row per class."""
        weight = linear.weight.detach().double().cpu().numpy()
        if linear.bias is None:
            return symmetric_head(weight, np.zeros(len(weight)))
        return symmetric_head(weight, linear.bias.detach().double().cpu().numpy())


class LaterHead:
    """Head of a ``torch.nn.Linear``, fetched from its device when it is used."""

    def __init__(self, linear):
        self._linear = linear

    @cached_property
    def _head(self):
        return Head.of_linear(self._linear)

    def __getattr__(self, name):
        if name.startswith("_"):  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._head, name)


@stored
class NetworkOutputs(NamedTuple):
    """Features (n_samples, n_features), logits (n_samples, n_classes), and the head.

    From one forward pass; None if not requested. Features may be a CSR array. Training
    samples may have a weight, a float64 NumPy array of shape (n_samples,), and keys.
    """

    features: Any = None
    logits: Any = None
    head: Head | None = None
    weight: np.ndarray | None = None
    keys: SampleKeys | None = None

    def scaled(self, factor):
        """Return the outputs with the logits, and the head, multiplied by a factor."""
        logits = None if self.logits is None else factor * self.logits
        return self._replace(logits=logits, head=self.head and self.head.scaled(factor))

    @property
    def array(self):
        """Features, or the logits if there are no features."""
        return self.logits if self.features is None else self.features

    @property
    def content(self):
        """Keys of the samples, if they are known, or of their outputs."""
        return SampleKeys(self.array) if self.keys is None else self.keys

    @property
    def n_samples(self):
        """Number of samples."""
        array = self.logits if self.features is None else self.features
        return 0 if array is None else array.shape[0]

    @property
    def xp(self):
        """Namespace of the arrays by the array API standard: NumPy or torch."""
        return array_namespace(self.array)

    def asarray(self, array):
        """Return a fitted NumPy array as the array type of the outputs, on its device.

        A copy on a GPU is stored as long as the array exists: neither may be changed.
        """
        like = self.logits if self.features is None else self.features
        return sent_once(array, like.device) if is_tensor(like) else array

    def to(self, device):
        """Return the outputs with its arrays on a torch device, or None: NumPy."""
        for array in (self.features, self.logits):
            is_dense = type(array) is np.ndarray and array.flags.c_contiguous
            is_as_wanted = array is None or is_dense or issparse(array)
            if device is not None or not is_as_wanted:
                return self._mapped(lambda values: to_device(values, device))
        return self

    def chunk(self, block, device, sparse):
        """Return the outputs of a slice of samples on a torch device, or None: NumPy.

        Features are dense, unless they are to stay `sparse`.
        """
        outputs = self.take(block)
        if not sparse and issparse(outputs.features):
            outputs = outputs._replace(features=outputs.features.toarray())
        return outputs.to(device)

    def without(self, left_out):
        """Return the outputs without some samples; loads no memory-mapped file."""
        weight = without(self.weight, left_out)
        remaining = self._mapped(lambda array: without(array, left_out))
        return remaining if weight is None else remaining.weighted(weight)

    def weighted(self, weight):
        """Return the outputs with these weights of the samples, or None."""
        return self._replace(weight=weight)

    def keyed(self, keys):
        """Return the outputs with the keys of its samples."""
        return self._replace(keys=keys)

    def total(self, values):
        """Return the sum over samples of their values times their weights."""
        xp = self.xp
        if self.weight is None:
            return float(xp.sum(values, dtype=xp.float64))
        values = xp.astype(values, xp.float64, copy=False)
        return float(xp.sum(values * asarray_like(self.weight, values)))

    def take(self, index):
        """Return the outputs of the samples `index`; a slice is not copied."""
        if isinstance(self.logits, LaterLogits):
            features = self.features[index]
            outputs = NetworkOutputs(features, self.logits.product(features), self.head)
            return (
                outputs if self.weight is None else outputs.weighted(self.weight[index])
            )
        if isinstance(index, slice):
            n_samples = self.n_samples
            if index.indices(n_samples) == (0, n_samples, 1):
                return self
        outputs = self._mapped(lambda array: array[index])
        return outputs if self.weight is None else outputs.weighted(self.weight[index])

    def _mapped(self, function):
        features, logits = (
            None if array is None else function(array)
            for array in (self.features, self.logits)
        )
        return NetworkOutputs(features, logits, self.head, self.weight)


def concatenate(batches):
    """Concatenate outputs of consecutive samples."""
    batches = list(batches)
    if len(batches) == 1:
        return batches[0]
    features, logits, weight = (
        None
        if getattr(batches[0], name) is None
        else stacked([getattr(batch, name) for batch in batches])
        for name in ("features", "logits", "weight")
    )
    return NetworkOutputs(features, logits, batches[0].head, weight)


def map_samples(function, outputs, size, device, threads, sparse=False):
    """Return the float64 values of a function for all samples, from chunks of them.

    The function takes `NetworkOutputs` of up to `size` samples on a torch device, or
    None: NumPy. With `threads` chunks run in parallel; False: products of all samples
    with a square matrix are on one thread if they are small; None: they have threads.
    Features become dense, unless they are to stay `sparse`. Chunks that do not fit into
    a GPU are halved.
    """
    n_samples = outputs.n_samples
    if threads and n_samples > size:
        values = map_chunks(
            lambda block: map_samples(
                function, outputs.take(block), size, device, threads, sparse
            ),
            list(row_chunks(n_samples, 1, size)),
        )
        return np.concatenate(values)
    limit, values, start = NO_LIMIT, [], 0
    if threads is False:
        array = outputs.logits if outputs.features is None else outputs.features
        limit = one_thread(n_samples * array.shape[1] ** 2)
    with limit, np.errstate(over="ignore", invalid="ignore"):  # NaN raises in the end
        while start < n_samples:
            block = slice(start, min(start + size, n_samples))
            try:
                chunk = function(outputs.chunk(block, device, sparse))
            except RuntimeError as error:
                size = halved(size, error)
                continue
            start = block.stop
            if type(chunk) is np.ndarray:  # for the speed of small calls
                values.append(chunk.astype(np.float64, copy=False))
            else:
                values.append(as_double(chunk))
    if len(values) == 1:
        return to_host(values[0])
    return to_host(array_namespace(values[0]).concat(values))  # one transfer


def with_halved_chunks(function, *args, error=None):
    """Return a function of arrays; it starts again if chunks do not fit into a GPU.

    With an `error`, of the first attempt, chunks are halved at once.
    """
    size = 16 if error is None else halved(16, error)
    while True:
        token = SIXTEENTHS.set(size)
        try:
            return function(*args)
        except RuntimeError as error:
            size = halved(size, error, "A chunk of the least size")
        finally:
            SIXTEENTHS.reset(token)


def halved(size, error, what="A single sample"):
    """Return half the size of chunks if they do not fit into a GPU; else raise."""
    if type(error).__name__ != "OutOfMemoryError":
        raise error
    if size == 1:
        raise type(error)(
            f"{what} does not fit into the memory of the GPU: {error} Free "
            "memory, by torch.cuda.empty_cache() or without other arrays, or pass "
            "device='cpu'."
        ) from error
    return size // 2


def linear_logits(X, coef, intercept):
    """Return ``X @ coef.T + intercept`` in the precision of `X`; overflow raises."""
    coef = coef.astype(X.dtype, copy=False)
    intercept = intercept.astype(X.dtype, copy=False)
    # overflow is checked below
    with (
        np.errstate(over="ignore", invalid="ignore"),
        one_thread(X.shape[0] * coef.size),
    ):
        logits = X @ coef.T + intercept
    check_no_overflow(logits, "A logit")
    return logits


class LaterLogits:
    """Logits of a linear classifier, computed for samples when they are indexed."""

    ndim = 2

    def __init__(self, features, product, n_classes):
        self.features = features
        self.product = product
        self.shape = len(features), n_classes

    def __getitem__(self, index):
        return self.product(self.features[index])

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self[:], dtype=dtype)


def symmetric_head(coef, intercept):
    """Return the head; a binary margin m becomes the logits (-m/2, m/2)."""
    coef, intercept = np.asarray(coef), np.asarray(intercept)
    if coef.shape[0] == 1:
        coef = np.concatenate([-coef, coef]) / 2
        intercept = np.concatenate([-intercept, intercept]) / 2
    # views: copies of them on a GPU end with the head, and so before weights change
    return Head(coef.view(), intercept.view())


def symmetric_logits(margin):
    """Return logits (-m/2, m/2) of a binary margin; wider arrays are unchanged."""
    margin = margin if hasattr(margin, "ndim") else np.asarray(margin)
    if margin.ndim == 1:
        margin = margin[:, None]
    if margin.shape[1] == 1:
        margin = array_namespace(margin).concat([-margin, margin], axis=1) / 2
    return margin

"""Containers for features, logits and the linear head of a classifier."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from skood.utils._array_api import (
    array_device,
    array_namespace,
    asarray_like,
    to_device,
)
from skood.utils._linalg import check_no_overflow
from skood.utils._memory_maps import without
from skood.utils._parallel import one_thread
from skood.utils._sample_keys import SampleKeys
from skood.utils._sparse import stacked
from skood.utils._stored import stored


@dataclass(frozen=True)
class Head:
    """Linear head, logits = features @ coef.T + intercept, one row per class."""

    coef: np.ndarray
    intercept: np.ndarray

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
            return symmetric_rows(weight, np.zeros(len(weight)))
        return symmetric_rows(weight, linear.bias.detach().double().cpu().numpy())


@stored
@dataclass(frozen=True)
class NetworkOutputs:
    """Features (n_samples, n_features), logits (n_samples, n_classes), and the head.

    From one forward pass; None if not requested. Features may be a CSR array. Training
    samples may have a weight, a float64 NumPy array of shape (n_samples,), and keys.
    """

    features: np.ndarray | None = None
    logits: np.ndarray | None = None
    head: Head | None = None
    weight: np.ndarray | None = None
    keys: SampleKeys | None = None

    @property
    def array(self):
        """Features, or the logits if there are no features."""
        return self.logits if self.features is None else self.features

    @property
    def content(self):
        """Keys of the samples, if they are known, or of their outputs."""
        return SampleKeys(self.array) if self.keys is None else self.keys

    def __len__(self):
        return 0 if self.array is None else self.array.shape[0]

    @property
    def xp(self):
        """Namespace of the arrays by the array API standard: NumPy or torch."""
        return array_namespace(self.array)

    def asarray(self, array):
        """Return a NumPy array as the array type of the outputs, on its device."""
        return asarray_like(array, self.array)

    def device_for(self, device):
        """Return the torch device to compute on, or None for NumPy."""
        return array_device(device, self.array)

    def to(self, device):
        """Return the outputs with its arrays on a torch device, or None: NumPy."""
        if device is None and _is_plain(self.features) and _is_plain(self.logits):
            return self
        return self._mapped(lambda array: to_device(array, device))

    def dense(self):
        """Return the outputs with dense features: of a chunk of samples."""
        features: Any = self.features
        if not issparse(features):
            return self
        return replace(self, features=features.toarray())

    def without(self, left_out):
        """Return the outputs without some samples; loads no memory-mapped file."""
        weight = without(self.weight, left_out)
        found = self._mapped(lambda array: without(array, left_out))
        return found if weight is None else found.weighted(weight)

    def weighted(self, weight):
        """Return the outputs with these weights of the samples, or None."""
        return replace(self, weight=weight)

    def keyed(self, keys):
        """Return the outputs with the keys of its samples."""
        return replace(self, keys=keys)

    def total(self, values):
        """Return the sum over samples of their values times their weights."""
        xp = self.xp
        if self.weight is None:
            return float(xp.sum(values, dtype=xp.float64))
        values = xp.astype(values, xp.float64, copy=False)
        return float(xp.sum(values * self.asarray(self.weight)))

    def rows(self, part):
        """Return the outputs of the samples `part`; a slice is not copied."""
        if isinstance(self.logits, LaterLogits):
            features = self.features[part]
            found = NetworkOutputs(features, self.logits.product(features), self.head)
            return found if self.weight is None else found.weighted(self.weight[part])
        if isinstance(part, slice) and part == slice(0, len(self)):
            return self
        found = self._mapped(lambda array: array[part])
        return found if self.weight is None else found.weighted(self.weight[part])

    def _mapped(self, function):
        features, logits = (
            None if array is None else function(array)
            for array in (self.features, self.logits)
        )
        return NetworkOutputs(features, logits, self.head, self.weight)


def _is_plain(array):
    """Return whether an array is None, or contiguous and of NumPy, or sparse."""
    if array is None or issparse(array):
        return True
    return type(array) is np.ndarray and array.flags.c_contiguous


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

    def __getitem__(self, part):
        return self.product(self.features[part])

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self[:], dtype=dtype)


def symmetric_rows(coef, intercept):
    """Return the head; a binary margin m becomes the logits (-m/2, m/2)."""
    coef, intercept = np.asarray(coef), np.asarray(intercept)
    if coef.shape[0] == 1:
        coef = np.concatenate([-coef, coef]) / 2
        intercept = np.concatenate([-intercept, intercept]) / 2
    return Head(coef, intercept)


def symmetric_logits(margin):
    """Return logits (-m/2, m/2) of a binary margin; wider arrays are unchanged."""
    margin = np.asarray(margin)
    if margin.ndim == 1:
        margin = margin[:, None]
    if margin.shape[1] == 1:
        margin = np.concatenate([-margin, margin], axis=1) / 2
    return margin

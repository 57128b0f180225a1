"""Class means and within-class scatter of samples, in one pass over the data."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from skood.utils._array_api import (
    array_namespace,
    as_double,
    asarray_like,
    centered_rows,
    plus,
    row_indices,
    to_host,
    zeros,
)
from skood.utils._labels import unique_codes
from skood.utils._stored import stored
from skood.utils._torch import is_tensor, row_chunks

# A feature is constant if it varies by no more than this many rounding errors of its
# mean: scaling samples to unit length, and merging chunks, cause as much variation.
_ROUNDING_ERRORS = 4

# Bytes of arrays that stay in the cache of a core.
_CACHE_BYTES = 2**19

# Up to this many classes, class sums are faster as products with an indicator matrix.
_DENSE_CLASSES = 16


def class_sums(samples, labels, weight=None):
    """Sum float64 rows by class; `labels` is (n_samples,), or None for one class, 0.

    Returns the sorted labels, their counts, the sums (n_classes, n_features), and the
    function of rows that returns their sums. Counts and sums are times the weights
    (n_samples,), if given. Sums of tensors are on their device.
    """
    if labels is None:
        labels = np.zeros(samples.shape[0], dtype=np.intp)
    classes, codes = unique_codes(labels)
    lengths = np.bincount(codes, minlength=len(classes)).astype(np.float64)
    counts = lengths if weight is None else np.bincount(codes, weights=weight)
    if is_tensor(samples):
        add = _device_sums(samples, codes, len(classes), weight)
        return classes, counts, add(samples), add
    if len(classes) > _DENSE_CLASSES:
        # sparse, so that each row is added once, instead of multiplied by zeros
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.intp)
        order = np.argsort(codes, kind="stable")
        shape = len(classes), len(codes)
        values = np.ones(len(codes)) if weight is None else weight[order]
        members = csr_array((values, order, starts), shape=shape)
    else:
        members = (np.arange(len(classes))[:, None] == codes).astype(np.float64)
        members = members if weight is None else members * weight
    return classes, counts, members @ samples, members.__matmul__


def _device_sums(samples, codes, n_classes, weight):
    """Return the function of tensors that returns their class sums."""
    index = asarray_like(codes, samples)
    weight = 1.0 if weight is None else asarray_like(weight, samples)
    if n_classes > _DENSE_CLASSES:
        weight = weight if isinstance(weight, float) else weight[:, None]
        return lambda rows: zeros((n_classes, rows.shape[1]), rows).index_add_(
            0, index, rows * weight
        )
    # additions to few sums would wait for each other
    members = as_double(row_indices(index[:n_classes])[:, None] == index) * weight
    return members.__matmul__


def first_row(samples):
    """Return the first row as a float64 NumPy array: the origin of differences."""
    return np.array(to_host(samples[0]), dtype=np.float64)


def offset_sums(samples, origin, labels, weight=None):
    """Sum the differences of rows from an origin by class, as `class_sums` does.

    Far from zero the differences are small, so that their sums are accurate; `origin`
    (n_features,) is one of the rows (n_samples, n_features) or similar to them.
    """
    if samples.dtype == array_namespace(samples).float32:
        # Sums of float32 features are exact in float64: one pass less.
        classes, counts, sums, _ = class_sums(as_double(samples), labels, weight)
        numbers, origin = asarray_like(counts, sums), asarray_like(origin, sums)
        return classes, counts, sums - numbers[:, None] * origin
    samples = samples - asarray_like(origin, samples)
    classes, counts, sums, _ = class_sums(samples, labels, weight)
    return classes, counts, sums


def is_constant(variances, means):
    """Return which features vary by at most rounding errors of their (largest) means.

    `variances` are around an origin that is a sample: errors of sums of the features
    themselves grow with their number. Those too small to divide by are constant as
    well.
    """
    rounding = _ROUNDING_ERRORS * np.finfo(np.float64).eps * np.abs(means)
    return variances <= np.maximum(rounding**2, np.finfo(np.float64).tiny)


def added_features(sums, chunk):
    """Return sums over samples of features (None at first) with a chunk added.

    They are the first sample, the number of samples (or sum of weights), and the sum of
    differences from the first: far from zero, a sum of the samples is less accurate.
    """
    if sums is None:
        sums = first_row(chunk.features), 0, None
    origin, count, total = sums
    features, xp = chunk.features, chunk.xp
    if chunk.weight is not None:
        gaps = as_double(features) - chunk.asarray(origin)
        added = asarray_like(chunk.weight, gaps) @ gaps
        return origin, count + chunk.weight.sum(), plus(total, added)
    if features.dtype == xp.float32:  # whose sums are exact in float64
        total_of_chunk = xp.sum(features, axis=0, dtype=xp.float64)
        added = total_of_chunk - chunk.n_samples * chunk.asarray(origin)
    else:
        added = xp.sum(features - chunk.asarray(origin), axis=0)
    return origin, count + chunk.n_samples, plus(total, added)


def mean_of_features(sums):
    """Return the mean of the samples summed by `added_features`."""
    origin, count, total = sums
    return origin + total / count


@stored
class ClassMoments:
    r"""Counts, means and within-class scatter of samples, updated incrementally.

    Two sets of samples with counts :math:`n, n'`, means :math:`m, m'` and scatters
    :math:`S, S'` have the joint scatter

    .. math:: S + S' + \frac{n n'}{n + n'} (m' - m)(m' - m)^\top ,

    which, unlike a difference of sums of squares, does not cancel (Chan, Golub and
    LeVeque 1983). The first sample, `origin`, is subtracted from all samples before
    summing, and each mean is corrected by the mean of the residuals: its error is one
    rounding of its distance to the first sample, independent of the number of samples
    and of their distance from zero.

    ``classes`` (sorted labels), ``counts`` (sums of weights) and ``n_samples`` (without
    weights) have shape (n_classes,), ``offsets``, the class means minus `origin`,
    (n_classes, n_features), and ``scatter`` ([n_classes,] n_features, n_features), one
    matrix for each class with `per_class`.
    """

    def __init__(self, per_class=False):
        self.per_class = per_class
        self.classes: Any = None
        self.counts: Any = None
        self.n_samples: Any = None
        self.origin: Any = None
        self.offsets: Any = None
        self.scatter: Any = None

    @property
    def means(self):
        return self.origin + self.offsets

    def updated(self, samples, labels, weight=None, *, consume=False):
        """Return the moments with samples added; `consume`: reuse arrays of these.

        A sample of an integer weight counts as repeated ones.
        """
        new = ClassMoments(self.per_class)
        new.origin = self.origin
        if new.origin is None:
            new.origin = first_row(samples)
        new._take(
            centered_rows(samples, asarray_like(new.origin, samples)), labels, weight
        )
        return new if self.classes is None else self._merged(new, consume)

    def _take(self, samples, labels, weight):
        """Set the moments of rows minus the origin, which are overwritten."""
        self.classes, self.counts, sums, add = class_sums(samples, labels, weight)
        counts = asarray_like(self.counts, samples)[:, None]
        means = sums / counts
        codes = np.zeros(len(samples), dtype=np.intp)
        if len(self.classes) == 1:
            samples -= means
        else:
            codes = np.searchsorted(self.classes, labels)
            index = asarray_like(codes, samples)
            # the means of a few samples at a time stay in the cache
            size = samples.nbytes if is_tensor(samples) else _CACHE_BYTES
            for block in row_chunks(len(samples), 8 * samples.shape[1], size):
                samples[block] -= means[index[block]]
        self.n_samples = np.bincount(codes, minlength=len(self.classes))
        errors = add(samples) / counts
        if weight is not None:
            samples *= asarray_like(np.sqrt(weight), samples)[:, None]
        self.offsets = means + errors
        shifts = errors * counts**0.5
        if self.per_class:
            scatter = []
            for k, shift in enumerate(shifts):
                gaps = samples[asarray_like(np.flatnonzero(codes == k), samples)]
                scatter.append(gaps.T @ gaps - shift[:, None] * shift)
            self.scatter = array_namespace(samples).stack(scatter)
        else:
            self.scatter = samples.T @ samples - shifts.T @ shifts

    def _merged(self, other, consume):
        """Return the joint moments of both sets of samples."""
        new = ClassMoments(self.per_class)
        new.origin = self.origin
        new.classes = np.union1d(self.classes, other.classes)
        mine = np.searchsorted(new.classes, self.classes)
        theirs = np.searchsorted(new.classes, other.classes)
        n_classes, n_features = len(new.classes), self.offsets.shape[1]
        before, more = np.zeros(n_classes), np.zeros(n_classes)
        before[mine], more[theirs] = self.counts, other.counts
        new.counts = before + more
        new.n_samples = np.zeros(n_classes, dtype=np.intp)
        new.n_samples[mine] += self.n_samples
        new.n_samples[theirs] += other.n_samples
        like = other.offsets  # its device is the place of the sums
        mine, index = asarray_like(mine, like), asarray_like(theirs, like)
        fractions = more / new.counts, np.sqrt(before * more / new.counts)
        step, factor = (asarray_like(fraction, like)[:, None] for fraction in fractions)
        means, gaps = (zeros((n_classes, n_features), like) for _ in range(2))
        means[mine] = asarray_like(self.offsets, like)
        gaps[index] = other.offsets - means[index]
        new.offsets = means + gaps * step
        scaled = gaps * factor
        earlier = asarray_like(self.scatter, like)
        if self.per_class:
            new.scatter = earlier
            if not consume or len(mine) < n_classes:
                new.scatter = zeros((n_classes, n_features, n_features), like)
                new.scatter[mine] = earlier
            for k, scatter in zip(theirs, other.scatter, strict=True):
                new.scatter[k] += scatter
                new.scatter[k] += scaled[k][:, None] * scaled[k]
        else:
            new.scatter = other.scatter  # of new samples, not used elsewhere
            new.scatter += earlier
            new.scatter += scaled.T @ scaled
        return new

    def without(self, samples, weight=None):
        """Return the moments without some of the samples, if there is one class."""
        new, gone = ClassMoments(), ClassMoments()
        new.classes, new.origin = self.classes, self.origin
        gone._take(centered_rows(samples, self.origin), None, weight)
        new.counts = self.counts - gone.counts
        new.n_samples = self.n_samples - gone.n_samples
        fraction = (gone.counts / new.counts)[:, None]
        new.offsets = self.offsets + fraction * (self.offsets - gone.offsets)
        gap = (gone.offsets - self.offsets) * np.sqrt(self.counts * fraction[:, 0])[
            :, None
        ]
        new.scatter = self.scatter - gone.scatter - gap.T @ gap
        return new

    def codes(self, y, n_samples):
        """Return the class index of each of `n_samples` samples; `y` may be None."""
        if y is None:
            return np.zeros(n_samples, dtype=np.intp)
        return np.searchsorted(self.classes, y)

    def within(self):
        """Return the scatter around the class means, of all classes together."""
        return self.scatter.sum(axis=0) if self.per_class else self.scatter

    def total(self):
        """Return the overall mean, minus the origin, and the scatter around it."""
        mean = self.counts @ self.offsets / self.counts.sum()
        gaps = (self.offsets - mean) * np.sqrt(self.counts)[:, None]
        return mean, self.within() + gaps.T @ gaps

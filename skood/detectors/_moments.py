"""Means and scatter of classes of rows, in one pass over the rows."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import Any

import numpy as np

from skood.utils._arrays import as_double, asarray_like, to_host

__all__ = ["ClassMoments", "class_sums"]


def class_sums(rows, labels):
    """Sum rows by class.

    Parameters
    ----------
    rows : array of shape (n_samples, n_features)
        NumPy, or torch on a GPU; in float64.

    labels : ndarray of shape (n_samples,) or None
        Class labels. None: one class, called 0.

    Returns
    -------
    classes : ndarray of shape (n_classes,)
        The labels there are, sorted.

    counts : ndarray of shape (n_classes,), dtype float64
        Rows of each.

    sums : array of shape (n_classes, n_features)
        Sums of the rows, of the kind of `rows`.

    members : array of shape (n_samples, n_classes)
        1.0 where a row is of a class, else 0.0.
    """
    if labels is None:
        labels = np.zeros(rows.shape[0], dtype=np.intp)
    classes, codes = np.unique(labels, return_inverse=True)
    members = (codes[:, None] == np.arange(len(classes))).astype(np.float64)
    counts = members.sum(axis=0)
    members = asarray_like(members, rows)
    return classes, counts, members.T @ rows, members


class ClassMoments:
    r"""Counts, means and within-class scatter of some rows, to which more are added.

    Two sets of rows with counts :math:`n, n'`, means :math:`m, m'` and scatters
    :math:`S, S'` have together the scatter

    .. math:: S + S' + \frac{n n'}{n + n'} (m' - m)(m' - m)^\top ,

    which, unlike a difference of sums of squares, does not cancel (Chan, Golub and
    LeVeque 1983).

    Parameters
    ----------
    per_class : bool, default=False
        Whether to keep a scatter per class instead of one for all.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Labels, sorted.

    counts : ndarray of shape (n_classes,)
        Rows per class, float64.

    means : ndarray of shape (n_classes, n_features)
        Class means.

    scatter : ndarray of shape ([n_classes,] n_features, n_features)
        Sums of outer products of the rows minus their class mean.
    """

    def __init__(self, per_class=False):
        self.per_class = per_class
        self.classes: Any = None
        self.counts: Any = None
        self.means: Any = None
        self.scatter: Any = None

    def updated(self, rows, labels, *, consume=False):
        """Return the moments with more rows (float64 or float32) added.

        With `consume` these moments may become part of those that are returned.
        """
        new = ClassMoments(self.per_class)
        new._take(as_double(rows), labels)
        return new if self.classes is None else self._merged(new, consume)

    def _take(self, rows, labels):
        """Moments of rows alone, in two passes over them."""
        self.classes, self.counts, sums, members = class_sums(rows, labels)
        means = sums / asarray_like(self.counts, rows)[:, None]
        residuals = rows - members @ means
        if self.per_class:
            codes = to_host(members).argmax(axis=1)
            scatter = []
            for k in range(len(self.classes)):
                own = residuals[asarray_like(np.flatnonzero(codes == k), rows)]
                scatter.append(to_host(own.T @ own))
            self.scatter = np.stack(scatter)
        else:
            self.scatter = to_host(residuals.T @ residuals)
        self.means = to_host(means)

    def _merged(self, other, consume):
        """Moments of both sets of rows."""
        new = ClassMoments(self.per_class)
        new.classes = np.union1d(self.classes, other.classes)
        mine = np.searchsorted(new.classes, self.classes)
        theirs = np.searchsorted(new.classes, other.classes)
        n_classes, n_features = len(new.classes), self.means.shape[1]
        before, more = np.zeros(n_classes), np.zeros(n_classes)
        before[mine], more[theirs] = self.counts, other.counts
        new.counts = before + more
        means = np.zeros((n_classes, n_features))
        means[mine] = self.means
        gaps = np.zeros((n_classes, n_features))
        gaps[theirs] = other.means - means[theirs]
        new.means = means + gaps * (more / new.counts)[:, None]
        scaled = gaps * np.sqrt(before * more / new.counts)[:, None]
        if self.per_class:
            new.scatter = self.scatter
            if not consume or len(mine) < n_classes:
                new.scatter = np.zeros((n_classes, n_features, n_features))
                new.scatter[mine] = self.scatter
            for k, scatter in zip(theirs, other.scatter, strict=True):
                new.scatter[k] += scatter
                new.scatter[k] += np.outer(scaled[k], scaled[k])
        else:
            new.scatter = other.scatter  # of rows that nobody else has seen
            new.scatter += self.scatter
            new.scatter += scaled.T @ scaled
        return new

    def within(self):
        """Return the scatter around the class means, of all classes together."""
        return self.scatter.sum(axis=0) if self.per_class else self.scatter

    def total(self):
        """Return the mean of all rows and the scatter around it."""
        mean = self.counts @ self.means / self.counts.sum()
        gaps = (self.means - mean) * np.sqrt(self.counts)[:, None]
        return mean, self.within() + gaps.T @ gaps

"""Worlds in groups that satisfy the same constraints, and one more constraint.

A candidate constraint splits groups. For its weight it is enough to know how many
worlds of each group satisfy it; the groups are only split once it is accepted.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np

from skood.logic.inference._truth_vectors import GroupedWorlds
from skood.utils._linalg import symmetric_eigh

__all__ = ["Groups", "Split", "inverse_of", "minimized"]

# The weights are found where no gradient is larger: as many digits as a fit from
# scratch has.
_TOLERANCE = 1e-11

# From where the constraints were before, a handful of steps is enough.
_MAX_STEPS = 60
_MAX_HALVINGS = 30


class Groups(GroupedWorlds):
    """Worlds of some concepts in groups that satisfy the same constraints.

    Parameters
    ----------
    index : ndarray of int, one axis for each concept
        The group of each world.

    truth : ndarray of shape (n_groups, n_constraints), dtype bool
        Which constraints the worlds of each group satisfy.
    """

    def __init__(self, index, truth):
        self.index = index
        self.truth = truth
        self.counts = np.bincount(index.ravel(), minlength=len(truth)).astype(float)
        self.features = truth.astype(np.float64)
        self._log_counts = np.log(self.counts)
        self._small = self.features, self._log_counts  # what the base class sums over
        self._uniform = self.counts @ self.features / index.size
        self._kept: dict = {}

    def without(self, column):
        """Take a constraint out; groups that now satisfy the same stay apart."""
        return Groups(self.index, np.delete(self.truth, column, axis=1))

    def uniform_truth(self):
        """Share of the worlds that satisfy each constraint."""
        return self._uniform

    def evaluate(self, weights):
        """Logarithm of the partition function, and its gradient."""
        log_z, p = self._normalized(weights)
        return log_z, p @ self.features

    def _normalized(self, weights):
        return _normalized(self.features @ weights + self._log_counts)

    def marginal(self, weights, axes):
        """Probabilities of the values of some concepts.

        Parameters
        ----------
        weights : ndarray of shape (n_constraints,)
            The weights. What they give is kept for the next concepts.

        axes : tuple of int
            The axes of the concepts, in increasing order.

        Returns
        -------
        probabilities : ndarray
            An axis for each of the concepts.
        """
        key = weights.tobytes()
        if key not in self._kept:
            p = self._normalized(weights)[1] / self.counts
            self._kept = {key: p[self.index]}
        others = tuple(axis for axis in range(self.index.ndim) if axis not in axes)
        return self._kept[key].sum(axis=others)


class Split:
    """Groups, some of whose worlds satisfy one more constraint.

    Parameters
    ----------
    groups : Groups
        The groups.

    truth : ndarray of bool
        The worlds that satisfy the constraint; broadcasts to the worlds of the groups.
    """

    def __init__(self, groups, truth):
        self.groups = groups
        self._truth = np.broadcast_to(truth, groups.index.shape)
        n_true = np.bincount(groups.index[self._truth], minlength=len(groups.counts))
        self._n_true = n_true.astype(np.float64)
        self._n_false = groups.counts - self._n_true

    def done(self):
        """Return the groups that there are then."""
        index = 2 * self.groups.index + self._truth
        present = np.bincount(index.ravel(), minlength=2 * len(self._n_true)) > 0
        (old,) = np.nonzero(present)
        truth = np.column_stack([self.groups.truth[old // 2], old % 2 == 1])
        return Groups((np.cumsum(present) - 1)[index], truth)

    def uniform_truth(self):
        """Share of the worlds that satisfy each constraint."""
        last = self._n_true.sum() / self.groups.index.size
        return np.append(self.groups.uniform_truth(), last)

    def _moments(self, weights):
        truth = self.groups.features
        # one of the numbers of worlds times exp(weight), shifted so as not to overflow
        shift = max(weights[-1], 0.0)
        true = self._n_true * math.exp(weights[-1] - shift)
        mass = self._n_false * math.exp(-shift) + true
        with np.errstate(divide="ignore", invalid="ignore"):  # of a step too far
            log_z, p = _normalized(truth @ weights[:-1] + np.log(mass) + shift)
            return log_z, p, true / mass

    def evaluate(self, weights):
        """Logarithm of the partition function, and its gradient."""
        log_z, p, last = self._moments(weights)
        return log_z, np.append(p @ self.groups.features, p @ last)

    def log_partition(self, weights):
        """Logarithm of the partition function of these concepts."""
        return self._moments(weights)[0]

    def max_penalty(self, weights):
        """Largest penalty of any world."""
        last = -weights[-1]
        most = np.where(self._n_false > 0, max(last, 0.0), last)
        most[self._n_true == 0] = 0.0
        return float(np.max(most - self.groups.features @ weights[:-1]))

    def inverse_hessian(self, weights, inverse):
        """Inverse of the covariance at weights near those of the groups.

        Parameters
        ----------
        weights : ndarray of shape (n_constraints,)
            The weights.

        inverse : ndarray of shape (n_constraints - 1, n_constraints - 1)
            That of the groups.

        Returns
        -------
        inverse : ndarray of shape (n_constraints, n_constraints)
            Positive definite, and close.
        """
        truth = self.groups.features
        _, p, last = self._moments(weights)
        mean = float(p @ last)
        covariance = (p * last) @ truth - mean * (p @ truth)
        column = inverse @ covariance
        variance = mean * (1.0 - mean)
        # that of others is of slightly other weights: what is left must be positive
        rest = max(variance - covariance @ column, 1e-3 * variance)
        edge = np.append(column, -1.0)
        larger = np.zeros((len(weights), len(weights)))
        larger[:-1, :-1] = inverse
        return larger + np.outer(edge, edge) / rest


def _normalized(logits):
    """Logarithm of a sum of exponentials, and their shares."""
    top = float(logits.max())
    p = np.exp(logits - top)
    total = float(p.sum())
    p /= total
    return top + math.log(total), p


def inverse_of(covariance, free):
    """Inverse of a covariance in the weights that are free, 0 in the others.

    Directions in which nothing varies have none.
    """
    inverse = np.zeros_like(covariance)
    if free.any():
        values, vectors, rank = symmetric_eigh(covariance[np.ix_(free, free)])
        vectors = vectors[:, len(values) - rank :]
        found = (vectors / values[len(values) - rank :]) @ vectors.T
        inverse[np.ix_(free, free)] = found
    return inverse


def minimized(evaluate, target, weights, inverse, free):
    r"""Minimize :math:`\log Z(w) - w^\top m` by a quasi-Newton method (BFGS).

    Parameters
    ----------
    evaluate : callable
        Returns :math:`\log Z` and its gradient.

    target : ndarray of shape (n_constraints,)
        The mean truth m.

    weights : ndarray of shape (n_constraints,)
        Where to start.

    inverse : ndarray of shape (n_constraints, n_constraints)
        Approximate inverse of the Hessian there; 0 for weights that are not free.

    free : ndarray of shape (n_constraints,), dtype bool
        Weights that do not stay as they are.

    Returns
    -------
    weights : ndarray of shape (n_constraints,) or None
        The weights. None if they were not found in a few steps.
    """
    log_z, mean = evaluate(weights)
    value, gradient = log_z - weights @ target, np.where(free, mean - target, 0.0)
    for _ in range(_MAX_STEPS):
        if np.max(np.abs(gradient)) < _TOLERANCE:
            return weights
        step = -(inverse @ gradient)
        slope = float(gradient @ step)
        if slope >= 0.0:  # the inverse knows no way
            return None
        rounding = 8 * np.finfo(np.float64).eps * max(1.0, abs(log_z))
        for _ in range(_MAX_HALVINGS):
            log_z, mean = evaluate(weights + step)
            further = log_z - (weights + step) @ target
            if further <= value + 1e-4 * slope + rounding:
                break
            step, slope = step / 2, slope / 2
        else:
            return None
        new = np.where(free, mean - target, 0.0)
        inverse = _updated(inverse, step, new - gradient)
        weights, value, gradient = weights + step, further, new
    return None


def _updated(inverse, step, change):
    """The inverse Hessian after a step that changed the gradient by so much."""
    curvature = float(step @ change)
    if curvature <= 0.0:
        return inverse
    image = inverse @ change
    share = (1.0 + change @ image / curvature) / curvature
    both = np.outer(image, step) / curvature
    return inverse + share * np.outer(step, step) - both - both.T

"""Groups of worlds that satisfy the same constraints, and splits by a candidate.

A candidate constraint splits groups. Its weight only requires the number of worlds
of each group that satisfy it; the groups are split once it is accepted.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np

from skood.logic.inference._truth_vectors import GroupedWorlds
from skood.utils._linalg import symmetric_eigh

# Largest gradient at the solution: as many digits as a fit from scratch has.
_TOLERANCE = 1e-11

# Starting from the previous constraints, a few steps are enough.
_MAX_STEPS = 60
_MAX_HALVINGS = 30


class Groups(GroupedWorlds):
    """Worlds in groups; ``index``, with an axis for each concept, is the group."""

    def __init__(self, index, truth):
        self.index = index
        self.truth = truth
        self.counts = np.bincount(index.ravel(), minlength=len(truth)).astype(float)
        self.features = truth.astype(np.float64)
        self._log_counts = np.log(self.counts)
        self._small = self.features, self._log_counts  # summed by the base class
        self._uniform = self.counts @ self.features / index.size
        self._kept: dict = {}

    def without(self, column):
        """Remove a constraint; groups that are now equal are not merged."""
        return Groups(self.index, np.delete(self.truth, column, axis=1))

    def uniform_truth(self):
        """Return the fraction of the worlds that satisfy each constraint."""
        return self._uniform

    def evaluate(self, weights):
        """Return the log partition function and its gradient."""
        log_z, p = self._normalized(weights)
        return log_z, p @ self.features

    def _normalized(self, weights):
        return _normalized(self.features @ weights + self._log_counts)

    def marginal(self, weights, axes):
        """Return the joint probabilities of concepts (`axes`, ascending), cached."""
        key = weights.tobytes()
        if key not in self._kept:
            p = self._normalized(weights)[1] / self.counts
            self._kept = {key: p[self.index]}
        others = tuple(axis for axis in range(self.index.ndim) if axis not in axes)
        return self._kept[key].sum(axis=others)


class Split:
    """Groups, partly split by one more constraint; its truth broadcasts."""

    def __init__(self, groups, truth):
        self.groups = groups
        self._truth = np.broadcast_to(truth, groups.index.shape)
        n_true = np.bincount(groups.index[self._truth], minlength=len(groups.counts))
        self._n_true = n_true.astype(np.float64)
        self._n_false = groups.counts - self._n_true

    def done(self):
        """Return the groups after the split."""
        index = 2 * self.groups.index + self._truth
        present = np.bincount(index.ravel(), minlength=2 * len(self._n_true)) > 0
        (old,) = np.nonzero(present)
        truth = np.column_stack([self.groups.truth[old // 2], old % 2 == 1])
        return Groups((np.cumsum(present) - 1)[index], truth)

    def uniform_truth(self):
        """Return the fraction of the worlds that satisfy each constraint."""
        last = self._n_true.sum() / self.groups.index.size
        return np.append(self.groups.uniform_truth(), last)

    def _moments(self, weights):
        truth = self.groups.features
        # one of the numbers of worlds times exp(weight), shifted so as not to overflow
        shift = max(weights[-1], 0.0)
        true = self._n_true * math.exp(weights[-1] - shift)
        mass = self._n_false * math.exp(-shift) + true
        with np.errstate(divide="ignore", invalid="ignore"):  # for too large steps
            log_z, p = _normalized(truth @ weights[:-1] + np.log(mass) + shift)
            return log_z, p, true / mass

    def evaluate(self, weights):
        """Return the log partition function and its gradient."""
        log_z, p, last = self._moments(weights)
        return log_z, np.append(p @ self.groups.features, p @ last)

    def log_partition(self, weights):
        """Return the log partition function of these concepts."""
        return self._moments(weights)[0]

    def max_penalty(self, weights):
        """Return the largest penalty of any world."""
        last = -weights[-1]
        most = np.where(self._n_false > 0, max(last, 0.0), last)
        most[self._n_true == 0] = 0.0
        return float(np.max(most - self.groups.features @ weights[:-1]))

    def inverse_hessian(self, weights, inverse):
        """Extend the inverse covariance of the groups by the last constraint."""
        truth = self.groups.features
        _, p, last = self._moments(weights)
        mean = float(p @ last)
        covariance = (p * last) @ truth - mean * (p @ truth)
        column = inverse @ covariance
        variance = mean * (1.0 - mean)
        # computed for slightly different weights: the complement must be positive
        rest = max(variance - covariance @ column, 1e-3 * variance)
        edge = np.append(column, -1.0)
        larger = np.zeros((len(weights), len(weights)))
        larger[:-1, :-1] = inverse
        return larger + np.outer(edge, edge) / rest


def _normalized(logits):
    """Return the log-sum-exp and the softmax."""
    top = float(logits.max())
    p = np.exp(logits - top)
    total = float(p.sum())
    p /= total
    return top + math.log(total), p


def inverse_of(covariance, free):
    """Return the pseudo-inverse of a covariance for free weights, 0 for others."""
    inverse = np.zeros_like(covariance)
    if free.any():
        values, vectors, rank = symmetric_eigh(covariance[np.ix_(free, free)])
        vectors = vectors[:, len(values) - rank :]
        found = (vectors / values[len(values) - rank :]) @ vectors.T
        inverse[np.ix_(free, free)] = found
    return inverse


def minimized(evaluate, target, weights, inverse, free):
    """Minimize log Z(w) - w · target by BFGS from an inverse Hessian, or return None.

    `evaluate` returns log Z and its gradient; `inverse` is 0 for weights not `free`.
    """
    log_z, mean = evaluate(weights)
    value, gradient = log_z - weights @ target, np.where(free, mean - target, 0.0)
    for _ in range(_MAX_STEPS):
        if np.max(np.abs(gradient)) < _TOLERANCE:
            return weights
        step = -(inverse @ gradient)
        slope = float(gradient @ step)
        if slope >= 0.0:  # not a direction of descent
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
    """Return the inverse Hessian after a step and its change of the gradient."""
    curvature = float(step @ change)
    if curvature <= 0.0:
        return inverse
    image = inverse @ change
    share = (1.0 + change @ image / curvature) / curvature
    both = np.outer(image, step) / curvature
    return inverse + share * np.outer(step, step) - both - both.T

"""Newton's method for convex functions that may be flat or unbounded."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.utils._linalg import symmetric_eigh

# If the optimum is at infinity, RIDGE · |w|² / 2 is added: a constraint that always
# holds then gets the weight w such that it is violated with probability RIDGE · w.
RIDGE = 1e-9

# The optimum is at infinity if a step is longer than this while the gradient is less
# than that: at a finite optimum, steps vanish faster than gradients.
_LONG_STEP = 0.1
_NO_GRADIENT = 1e-13

# Largest gradient at a minimum.
TOLERANCE = 1e-8

# The search ends at steps shorter than this fraction of the weights.
_SHORT_STEP = 1e-7

# Added to the Hessian, in gradients: steps stay finite where the Hessian vanishes, and
# convergence near the optimum, where the gradient vanishes, is as fast.
_DAMPING = 1e-3

_MAX_ITER = 500
_MAX_HALVINGS = 60

# Weights this many times the fixed ones (or one) are invalid: the mean truths
# contradict the constraints.
_MAX_WEIGHT = 1e4


class Fit:
    """A convex function, its gradient and Hessian, and the mask of weights to fit."""

    def __init__(self, value, derivatives, free):
        self._value = value
        self._derivatives = derivatives
        self.asked = free
        self.ridge = 0.0
        hessian = derivatives(np.zeros(len(free)))[1]
        self.free = free & (np.diag(hessian) > 0)
        self.basis = _range_basis(hessian[np.ix_(self.free, self.free)])
        self.weights = np.zeros(len(free))
        self.unbounded = np.zeros(len(free), dtype=bool)
        self.converged, self.gradient = True, 0.0

    def value(self, weights):
        own = weights[self.free]
        return self._value(weights) + self.ridge * float(own @ own) / 2

    def derivatives(self, weights):
        gradient, hessian = self._derivatives(weights)
        gradient = gradient[self.free] + self.ridge * weights[self.free]
        hessian = hessian[np.ix_(self.free, self.free)]
        hessian = self.basis.T @ hessian @ self.basis
        return gradient, hessian + self.ridge * np.eye(len(hessian))

    def minimize(self, start):
        """Find the minimum of least norm by Newton's method from `start`, 0 where free.

        Sets ``weights``, the largest ``gradient``, ``converged`` and ``unbounded``.
        """
        self.weights = start.copy()
        self.unbounded = np.zeros(len(start), dtype=bool)
        if not self.free.any():
            return
        furthest = _MAX_WEIGHT * max(1.0, _largest(start[~self.asked]))
        for _ in range(_MAX_ITER):
            gradient, hessian = self.derivatives(self.weights)
            inside = self.basis.T @ gradient
            step = self.basis @ -_damped_solution(hessian, inside)
            self.gradient = _largest(gradient)
            self.converged = self.gradient < TOLERANCE
            limit = _SHORT_STEP * max(1.0, _largest(self.weights[self.free]))
            if self.converged and _largest(step) < limit:
                self.weights[self.free] += step
                return
            if _largest(inside) < _NO_GRADIENT:
                if self.converged:
                    self.unbounded[self.free] = np.abs(step) > _LONG_STEP
                return
            further = self._search(self.weights, step, float(gradient @ step))
            if further is None or _largest(further[self.free]) > furthest:
                return
            self.weights = further

    def _search(self, weights, step, slope):
        """Return weights along a step with sufficient decrease, or None."""
        start = self.value(weights)
        rounding = 8 * np.finfo(np.float64).eps * max(1.0, abs(start))
        share = 1.0
        for _ in range(_MAX_HALVINGS):
            further = weights.copy()
            further[self.free] += share * step
            if self.value(further) <= start + 1e-4 * share * slope + rounding:
                return further
            share /= 2
        return None


def _largest(array):
    """Return the largest absolute value."""
    return float(np.max(np.abs(array), initial=0.0))


def _range_basis(hessian):
    """Return an orthonormal basis of the range of a covariance matrix."""
    scale = np.sqrt(np.diag(hessian))
    if not len(scale):
        return np.zeros((0, 0))
    _, vectors, rank = symmetric_eigh(hessian / np.outer(scale, scale))
    if rank == len(scale):
        return np.eye(rank)
    return np.linalg.qr(scale[:, np.newaxis] * vectors[:, len(scale) - rank :])[0]


def _damped_solution(hessian, gradient):
    """Solve (H + µ) x = g for a µ that vanishes with the gradient."""
    values, vectors, _ = symmetric_eigh(hessian)
    damping = _DAMPING * np.max(np.abs(gradient)) + np.finfo(np.float64).tiny
    return vectors @ ((vectors.T @ gradient) / (np.maximum(values, 0.0) + damping))


def minimum(fit, start, at_infinity):
    """Minimize from `start`, with a ridge if weights are (known to be) infinite."""
    if not at_infinity.any():
        fit.minimize(start)
        if fit.converged and not fit.unbounded.any():
            return fit
    unbounded = at_infinity | fit.unbounded
    if unbounded.any():
        fit.ridge = RIDGE
        fit.minimize(start)
        fit.unbounded = unbounded
    return fit

r"""Weights of constraints by maximum likelihood or maximum pseudo-likelihood.

With the mean truth :math:`\bar\varphi` of n samples, the mean truth u of all worlds,
and α pseudo-samples, the weights minimize the convex

.. math:: \log Z(w) - w^\top m, \qquad m = \frac{n \bar\varphi + \alpha u}{n + \alpha}.

If the samples do not determine weights (constraints that are equal, or each other's
negation), the minimum of least norm is returned.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.special import logsumexp, softmax

from skood.logic.inference._partition import Partition, constraint_weights
from skood.logic.inference._truth_vectors import (
    distinct_columns,
    merge_columns,
    pack_bits,
    unpack_bits,
)
from skood.utils._linalg import symmetric_eigh
from skood.utils._torch import row_chunks
from skood.utils._warnings import warn

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
        self.requested = free
        self.ridge = 0.0
        hessian = derivatives(np.zeros(len(free)))[1]
        self.free = free & (np.diag(hessian) > 0)
        self.basis = _range_basis(hessian[np.ix_(self.free, self.free)])
        self.weights = np.zeros(len(free))
        self.unbounded = np.zeros(len(free), dtype=bool)
        self.converged, self.gradient = True, 0.0

    def value(self, weights):
        fitted = weights[self.free]
        return self._value(weights) + self.ridge * float(fitted @ fitted) / 2

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
        furthest = _MAX_WEIGHT * max(1.0, _largest(start[~self.requested]))
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

    def solve(self, start, at_infinity):
        """Minimize from `start`, with a ridge if weights are (known to be) infinite."""
        if not at_infinity.any():
            self.minimize(start)
            if self.converged and not self.unbounded.any():
                return self
        unbounded = at_infinity | self.unbounded
        if unbounded.any():
            self.ridge = RIDGE
            self.minimize(start)
            self.unbounded = unbounded
        return self

    def _search(self, weights, step, slope):
        """Return weights along a step with sufficient decrease, or None."""
        start = self.value(weights)
        rounding = 8 * np.finfo(np.float64).eps * max(1.0, abs(start))
        fraction = 1.0
        for _ in range(_MAX_HALVINGS):
            further = weights.copy()
            further[self.free] += fraction * step
            if self.value(further) <= start + 1e-4 * fraction * slope + rounding:
                return further
            fraction /= 2
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


# Pseudo-samples of the prior of the pseudo-likelihood, drawn with this seed.
_N_PSEUDO_SAMPLES = 1000
_PSEUDO_SEED = 0

# Mean truths may be above 1 by rounding.
_ROUNDING = 1e-12

# Truth values in memory at once.
_CHUNK = 2**21


def fit_weights(partition, mean_truth, n, prior=1.0, fixed=None, *, names=None):
    r"""Fit weights by maximum likelihood to the mean truth of `n` samples.

    Without a prior the weight of a constraint that holds for all samples, or for none,
    is at infinity: :math:`10^{-9} |w|^2 / 2` is then added, with a warning. `partition`
    has the methods of a `Partition`; `fixed` weights are not NaN.
    """
    uniform = np.asarray(partition.uniform_truth())
    m = len(uniform)
    mean_truth = np.asarray(mean_truth, dtype=np.float64)
    inside = (mean_truth >= 0) & (mean_truth <= 1 + _ROUNDING)
    if mean_truth.shape != (m,) or not inside.all():
        raise ValueError(
            f"mean_truth must hold {m} numbers in [0, 1], one for each constraint. Got "
            f"{mean_truth}."
        )
    mean_truth = np.minimum(mean_truth, 1.0)
    fixed = _fixed(fixed, m)
    _check_counts(n, prior)
    constant = (uniform == 0) | (uniform == 1)
    free = np.isnan(fixed) & ~constant
    _warn_constant(constant & np.isnan(fixed), "hold in all worlds, or in none", names)
    weights = np.nan_to_num(fixed)
    blocks = [(np.arange(m), partition)]
    if isinstance(partition, Partition):
        blocks = [(np.array(p.constraints), p.solver) for p in partition.parts_]
        mean_truth = partition.canonical_truth(mean_truth)
        uniform = partition.uniform_truth(canonical=True)
        weights = partition.canonical_weights(weights)
    target = (n * mean_truth + prior * uniform) / (n + prior)
    fits = []
    for members, solver in blocks:
        if free[members].any():
            fit = _fit_block(solver, target[members], free[members], weights[members])
            weights[members] = fit.weights
            fits.append((members, fit))
    _warn_fits(fits, m, names)
    if isinstance(partition, Partition):
        weights = partition.canonical_weights(weights)
    return weights + 0.0


def _fit_block(solver, target, free, start):
    """Fit the weights of one component."""

    def value(weights):
        return solver.log_partition(weights) - float(weights @ target)

    def derivatives(weights):
        return solver.expected_truth(weights) - target, solver.covariance(weights)

    at_infinity = free & ((target == 0) | (target == 1))
    return Fit(value, derivatives, free).solve(start, at_infinity)


def _fixed(fixed, m):
    """Return validated fixed weights, NaN for weights to fit."""
    fixed = np.full(m, np.nan) if fixed is None else np.asarray(fixed, dtype=float)
    if fixed.shape != (m,) or np.isinf(fixed).any():
        raise ValueError(
            f"fixed must have a finite weight, or NaN, for each of the {m} "
            f"constraints, got {fixed}."
        )
    return fixed


def _check_counts(n, prior):
    """Raise an error unless there are samples, or pseudo-samples, to fit to."""
    if not (n >= 0 and 0 <= prior < np.inf and n + prior > 0):
        raise ValueError(
            "Weights need samples or pseudo-samples: n and prior must be at least 0, "
            f"and not both 0; got n={n} and prior={prior}."
        )


def _called(which, names):
    """Return the first few names of some constraints, with their number."""
    where = np.flatnonzero(which)
    shown = [repr(names[i]) if names is not None else f"{i}" for i in where[:5]]
    more = f" and {len(where) - 5} more" if len(where) > 5 else ""
    return ", ".join(shown) + more


def _warn_constant(constant, what, names):
    if constant.any():
        warn(
            f"{int(constant.sum())} constraint(s) {what}: {_called(constant, names)}. "
            "They have no effect, and their weights are 0. Correct them, or leave them "
            "out."
        )


def _warn_fits(fits, m, names):
    """Warn of weights that are at infinity, and of fits that did not converge."""
    unbounded = np.zeros(m, dtype=bool)
    for members, fit in fits:
        unbounded[members] = fit.unbounded
    if unbounded.any():
        warn(
            f"The likelihood has no maximum: the weights of {int(unbounded.sum())} "
            f"constraint(s) would diverge ({_called(unbounded, names)}), because no "
            f"sample violates it. They are kept finite by a penalty of {RIDGE:g} "
            "|w|²/2. Pass prior=1, or weights."
        )
    gradient = max((fit.gradient for _, fit in fits if not fit.converged), default=None)
    if gradient is not None:
        warn(
            f"The weights have not converged: a gradient is {gradient:.2g} "
            f"(tol={TOLERANCE}). The mean truths may contradict the constraints, or "
            "fixed weights be too large; raise prior, or lower the fixed weights."
        )


class _Conditionals:
    """Distribution of each concept given the others, for weighted samples.

    Samples are grouped by the truth of its constraints under each of its values.
    """

    def __init__(self, truth, sizes, scopes, Z, sample_weights):
        self.n_constraints = len(scopes)
        self.observed = np.zeros(len(scopes))
        by_scope: dict = {}
        times = np.array([len(scope) for scope in scopes])
        for chunk in row_chunks(len(Z), max(sizes) * len(scopes), budget=_CHUNK):
            codes, chunk_weights = Z[chunk], sample_weights[chunk]
            self.observed += (
                chunk_weights @ np.asarray(truth(codes), dtype=np.float64) * times
            )
            for concept, members, values in _alternatives(truth, sizes, scopes, codes):
                flat = np.concatenate(values, axis=1)
                block = distinct_columns(pack_bits(flat), chunk_weights)
                by_scope.setdefault((concept, members), []).append(block)
        self.parts = [
            (list(members), sizes[concept], *merge_columns(blocks))
            for (concept, members), blocks in by_scope.items()
        ]

    def _chunks(self):
        """Yield constraints, truth of shape (groups, values, constraints), weights."""
        for members, size, words, weights in self.parts:
            n_values = size * len(members)
            for chunk in row_chunks(len(weights), n_values, budget=_CHUNK):
                truth = unpack_bits(words[:, chunk], n_values)
                shape = (-1, size, len(members))
                yield members, truth.reshape(shape).astype(float), weights[chunk]

    def value(self, weights):
        """Return minus the mean pseudo-log-likelihood, up to a constant."""
        total = -float(self.observed @ weights)
        for members, truth, counts in self._chunks():
            total += float(counts @ logsumexp(truth @ weights[members], axis=1))
        return total

    def derivatives(self, weights):
        """Return the gradient and the Hessian of the value."""
        gradient = -self.observed
        hessian = np.zeros((self.n_constraints, self.n_constraints))
        for members, truth, counts in self._chunks():
            proba = softmax(truth @ weights[members], axis=1)
            mean = np.einsum("gv,gvm->gm", proba, truth)
            gradient[members] += counts @ mean
            centered = (truth - mean[:, np.newaxis]).reshape(-1, len(members))
            mass = (proba * counts[:, np.newaxis]).reshape(-1, 1)
            hessian[np.ix_(members, members)] += (centered * mass).T @ centered
        return gradient, hessian


def _alternatives(truth, sizes, scopes, Z):
    """Yield each concept, its constraints, and their truth under each of its values."""
    for concept, size in enumerate(sizes):
        members = tuple(i for i, scope in enumerate(scopes) if concept in scope)
        if members:
            other, values = Z.copy(), []
            for value in range(size):
                other[:, concept] = value
                values.append(np.asarray(truth(other), dtype=bool)[:, list(members)])
            yield concept, members, values


def fit_pseudo_weights(truth, sizes, scopes, Z, prior=1.0, fixed=None, *, names=None):
    r"""Fit weights by maximum pseudo-likelihood to codes Z.

    They maximize the mean of :math:`\sum_d \log P(z_d \mid z_{-d})` over `Z` and 1000
    worlds drawn uniformly, which weigh as much as `prior` samples. `truth` maps codes
    to the truth of the constraints, of shape (n, n_constraints).
    """
    m = len(scopes)
    fixed = _fixed(fixed, m)
    _check_counts(len(Z), prior)
    sample_weights = np.ones(len(Z))
    if prior > 0:
        random = np.random.default_rng(_PSEUDO_SEED)
        drawn = random.integers(0, sizes, size=(_N_PSEUDO_SAMPLES, len(sizes)))
        Z = np.concatenate([Z, drawn])
        mass = np.full(_N_PSEUDO_SAMPLES, prior / _N_PSEUDO_SAMPLES)
        sample_weights = np.concatenate([sample_weights, mass])
    sample_weights /= sample_weights.sum()
    conditionals = _Conditionals(truth, sizes, scopes, Z, sample_weights)
    free = np.isnan(fixed)
    fit = Fit(conditionals.value, conditionals.derivatives, free)
    what = "do not change with any single concept of any sample"
    _warn_constant(free & ~fit.free, what, names)
    fit.solve(np.nan_to_num(fixed), np.zeros(m, dtype=bool))
    _warn_fits([(np.arange(m), fit)], m, names)
    return fit.weights + 0.0


def pseudo_log_likelihood(truth, sizes, scopes, Z, weights):
    r"""Return :math:`\sum_d \log P(z_d \mid z_{-d})` of each sample, (n_samples,)."""
    weights = constraint_weights(weights, len(scopes))
    touched = {concept for scope in scopes for concept in scope}
    alone = [size for concept, size in enumerate(sizes) if concept not in touched]
    out = np.full(len(Z), -float(np.log(alone).sum()))
    for chunk in row_chunks(len(Z), max(sizes) * len(scopes), budget=_CHUNK):
        codes = Z[chunk]
        for concept, members, values in _alternatives(truth, sizes, scopes, codes):
            # sums term by term: the same in any batch
            energies = [
                sum(w * value[:, k] for k, w in enumerate(weights[list(members)]))
                for value in values
            ]
            top = np.maximum.reduce(energies)
            total = sum(np.exp(energy - top) for energy in energies)
            observed = np.array(energies)[codes[:, concept], np.arange(len(codes))]
            out[chunk] += observed - top - np.log(total)
    return out

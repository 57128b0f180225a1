"""Markov logic network to which constraints are added and removed one by one.

Only the connected component of a constraint is updated. Its worlds are stored in
groups that satisfy the same constraints, and one more constraint splits these groups,
without another enumeration.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit, rel_entr

from skood.logic.inference._partition import Partition
from skood.logic.inference._truth_vectors import GroupedWorlds
from skood.logic.inference._weights import fit_weights
from skood.utils._linalg import symmetric_eigh
from skood.utils._warnings import quiet

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
        self._joint: dict = {}

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
        if key not in self._joint:
            p = self._normalized(weights)[1] / self.counts
            self._joint = {key: p[self.index]}
        others = tuple(axis for axis in range(self.index.ndim) if axis not in axes)
        return self._joint[key].sum(axis=others)


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
        block = (vectors / values[len(values) - rank :]) @ vectors.T
        inverse[np.ix_(free, free)] = block
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
    factor = (1.0 + change @ image / curvature) / curvature
    both = np.outer(image, step) / curvature
    return inverse + factor * np.outer(step, step) - both - both.T


# Components with more worlds use elimination, for each candidate from scratch:
# splitting their groups would take as long.
_MAX_WORLDS = 2**18

# Largest number of entries of the tables of elimination; others are not tried.
_MAX_TABLE = 2**18

# With a smaller prior weights may be at infinity, which requires another solver.
_LEAST_PRIOR = 1e-3


class Factor(NamedTuple):
    """Concepts of a constraint, truth table, mean truth, and fixed weight."""

    scope: tuple
    table: np.ndarray
    mean_truth: float
    fixed: float = math.nan


class NetworkComponent(NamedTuple):
    """Connected concepts, positions of constraints, and sums over worlds."""

    concepts: tuple
    members: tuple
    worlds: Any


class SearchModel:
    """An immutable network of constraints, with ``prior`` pseudo-samples."""

    def __init__(self, sizes, n_samples, prior):
        self.sizes = tuple(sizes)
        self.n_samples = n_samples
        self.prior = prior
        self.factors: tuple = ()
        self.weights = np.empty(0)
        self.components: tuple = ()
        self._changed: NetworkComponent | None = None
        self._inverse: np.ndarray | None = None
        self._bases: dict = {}
        self._inverses: dict = {}
        self._marginals: dict = {}

    def _like(self, factors, weights, components):
        other = SearchModel(self.sizes, self.n_samples, self.prior)
        other.factors, other.weights = factors, weights
        other.components = components
        return other

    # -- constraints in and out

    def extended(self, factor):
        """Return the network with a `Factor`, not yet fitted; None if too large."""
        factors = (*self.factors, factor)
        base = self._base(factor.scope)
        members = (*base.members, len(self.factors))
        worlds: Split | Partition | None
        if isinstance(base.worlds, Groups):
            truth = _aligned(factor.table, factor.scope, base.concepts)
            worlds = Split(base.worlds, truth)
        else:
            worlds = self._partition(base.concepts, [factors[i] for i in members])
            if worlds is None:
                return None
        changed = NetworkComponent(base.concepts, members, worlds)
        others = [c for c in self.components if c.members[0] not in base.members]
        weight, inverse = factor.fixed, None
        if _is_free(factor):
            weight = 0.0
            if isinstance(worlds, Split):
                weight = float(logit(self._observed(factor)))
                weight -= float(logit(self._predicted(factor)))
                inverse = self._inverse_of(base)
        model = self._like(factors, np.append(self.weights, weight), (*others, changed))
        model._changed, model._inverse = changed, inverse
        return model

    def without(self, member):
        """Return the network without a constraint, not fitted; None if too large."""
        rest = [i for i in range(len(self.factors)) if i != member]
        (old,) = [c for c in self.components if member in c.members]
        remaining = [i for i in old.members if i != member]
        changed, inverse = None, None
        if remaining and isinstance(old.worlds, Groups):
            place = old.members.index(member)
            changed = NetworkComponent(
                old.concepts, tuple(remaining), old.worlds.without(place)
            )
            inverse = _smaller(self._inverse_of(old), place)
        elif remaining:
            worlds = self._partition(old.concepts, [self.factors[i] for i in remaining])
            if worlds is None:
                return None
            changed = NetworkComponent(old.concepts, tuple(remaining), worlds)
        components = [c for c in self.components if c is not old]
        components += [changed] if changed else []
        place = {i: k for k, i in enumerate(rest)}
        components = [
            c._replace(members=tuple(place[i] for i in c.members)) for c in components
        ]
        factors = tuple(self.factors[i] for i in rest)
        model = self._like(factors, self.weights[rest], tuple(components))
        model._changed = components[-1] if changed else None
        model._inverse = inverse
        return model

    def settled(self):
        """Return the network with groups split by the last constraint."""
        components = [
            c._replace(worlds=c.worlds.done()) if isinstance(c.worlds, Split) else c
            for c in self.components
        ]
        return self._like(self.factors, self.weights, tuple(components))

    def _base(self, scope):
        """Return the component that a constraint on these concepts would belong to."""
        joined = [c for c in self.components if not set(c.concepts).isdisjoint(scope)]
        concepts = tuple(sorted(set(scope).union(*(c.concepts for c in joined))))
        if concepts not in self._bases:
            members = tuple(i for c in joined for i in c.members)
            shape = tuple(self.sizes[j] for j in concepts)
            worlds = None
            if math.prod(shape) <= _MAX_WORLDS:
                worlds = _joined(joined, concepts, shape)
            self._bases[concepts] = NetworkComponent(concepts, members, worlds)
        return self._bases[concepts]

    def _partition(self, concepts, factors):
        """Return exact sums over the values of concepts; None if too large."""
        axis = {concept: a for a, concept in enumerate(concepts)}
        local = [(tuple(axis[j] for j in f.scope), f.table) for f in factors]
        partition = Partition(
            tuple(self.sizes[j] for j in concepts),
            local,
            max_worlds=_MAX_WORLDS,
            max_table=_MAX_TABLE,
        )
        return None if partition.method_ == "pseudo-likelihood" else partition

    # -- weights

    def _weights_of(self, component):
        return self.weights[list(component.members)]

    def _inverse_of(self, base):
        """Return the inverse of the covariance of its constraints."""
        if base.members not in self._inverses:
            factors = [self.factors[i] for i in base.members]
            covariance = base.worlds.covariance(self._weights_of(base))
            free = np.array([_is_free(factor) for factor in factors], dtype=bool)
            self._inverses[base.members] = inverse_of(covariance, free)
        return self._inverses[base.members]

    def _target(self, component):
        """Return the mean truth of the samples and of the prior's pseudo-samples."""
        observed = np.array([self.factors[i].mean_truth for i in component.members])
        uniform = component.worlds.uniform_truth()
        n, prior = self.n_samples, self.prior
        return (n * observed + prior * uniform) / (n + prior)

    def gain(self, factor):
        """Return the mean log-likelihood gained by a constraint; None if too large."""
        observed, predicted = self._observed(factor), self._predicted(factor)
        if predicted is None:
            return None
        # the Kullback-Leibler divergence: for the best weight, with all others fixed
        divergence = rel_entr(observed, predicted)
        return float(divergence + rel_entr(1.0 - observed, 1.0 - predicted))

    def _observed(self, factor):
        """Return the mean truth of a constraint in samples and pseudo-samples."""
        total = self.n_samples * factor.mean_truth + self.prior * factor.table.mean()
        return total / (self.n_samples + self.prior)

    def _predicted(self, factor):
        """Return the probability of a constraint not in the network, or None."""
        base = self._base(factor.scope)
        if isinstance(base.worlds, Groups):
            if factor.scope not in self._marginals:
                axes = tuple(base.concepts.index(j) for j in factor.scope)
                marginal = base.worlds.marginal(self._weights_of(base), axes)
                self._marginals[factor.scope] = marginal
            predicted = self._marginals[factor.scope][factor.table].sum()
        else:
            factors = [*(self.factors[i] for i in base.members), factor]
            worlds = self._partition(base.concepts, factors)
            if worlds is None:
                return None
            predicted = worlds.expected_truth(np.append(self._weights_of(base), 0.0))[
                -1
            ]
        tiny = np.finfo(np.float64).eps
        return min(max(float(predicted), tiny), 1.0 - tiny)

    def fit(self):
        """Fit the weights of the component that has changed, with a warm start."""
        if self._changed is None:
            return self
        component = self._changed
        fitted = self._refitted(component)
        if fitted is None:
            fitted = self._fitted(component)
        self.weights = self.weights.copy()
        self.weights[list(component.members)] = fitted
        self._changed = self._inverse = None
        return self

    def _refitted(self, component):
        """Return weights near the current ones, or None without convergence."""
        if self._inverse is None or self.prior < _LEAST_PRIOR:
            return None
        target, worlds = self._target(component), component.worlds
        weights, inverse = self._weights_of(component), self._inverse
        free = np.array([_is_free(self.factors[i]) for i in component.members])
        if isinstance(worlds, Split):
            inverse = worlds.inverse_hessian(weights, inverse)
        return minimized(worlds.evaluate, target, weights, inverse, free)

    def _fitted(self, component):
        """Return the weights of the solver that needs no start."""
        worlds = component.worlds
        factors = [self.factors[i] for i in component.members]
        with quiet():
            # the last fit, with the constraints found, repeats relevant warnings
            return fit_weights(
                worlds.done() if isinstance(worlds, Split) else worlds,
                np.array([factor.mean_truth for factor in factors]),
                self.n_samples,
                prior=self.prior,
                fixed=np.array([factor.fixed for factor in factors]),
            )

    # -- sums over all worlds

    def log_partition(self):
        """Return the log partition function over all concepts."""
        touched = {j for c in self.components for j in c.concepts}
        free = sum(math.log(s) for j, s in enumerate(self.sizes) if j not in touched)
        return free + sum(
            c.worlds.log_partition(self._weights_of(c)) for c in self.components
        )

    def max_penalty(self):
        """Return the largest penalty of any world."""
        return sum(c.worlds.max_penalty(self._weights_of(c)) for c in self.components)


def _is_free(factor):
    return math.isnan(factor.fixed)


def _smaller(inverse, place):
    """Return the inverse of a covariance without one of its rows and columns."""
    rest = np.delete(np.arange(len(inverse)), place)
    column, corner = inverse[rest, place], inverse[place, place]
    inverse = inverse[np.ix_(rest, rest)]
    return inverse - np.outer(column, column) / corner if corner > 0.0 else inverse


def _aligned(values, scope, concepts):
    """Reshape an array over some concepts to broadcast over all concepts."""
    lengths = dict(zip(scope, values.shape, strict=True))
    return values.reshape([lengths.get(concept, 1) for concept in concepts])


def _joined(components, concepts, shape):
    """Return groups of the worlds of several components and of further concepts."""
    index, truth = np.zeros(shape, dtype=np.int64), np.empty((1, 0), dtype=bool)
    for component in components:
        other = component.worlds
        index = index * len(other.truth)
        index += _aligned(other.index, component.concepts, concepts)
        truth = np.column_stack(
            [
                np.repeat(truth, len(other.truth), axis=0),
                np.tile(other.truth, (len(truth), 1)),
            ]
        )
    return Groups(index, truth)

r"""Exact partition function of weighted constraints over discrete concepts.

The probability of a world z, a value for each concept, is

.. math:: P(z) = \frac{1}{Z(w)} \exp \sum_i w_i \varphi_i(z), \qquad
          Z(w) = \sum_z \exp \sum_i w_i \varphi_i(z),

with φ_i(z) one if constraint i holds and zero otherwise. The first derivatives of
log Z are the expected truths, the second ones their covariance. Concepts without
constraints add a constant; constraints that share no concepts are independent.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from skood.logic.inference._truth_vectors import GroupedWorlds
from skood.utils._stored import stored
from skood.utils._torch import row_chunks

# Entries of the tables in memory for several weights at once.
_BATCH_ENTRIES = 2**21


@stored
class _Step:
    """A concept summed out, at position ``axis`` of the table of the step."""

    def __init__(self, concept, joint, factors, sizes):
        self.axis = joint.index(concept)
        self.shape = tuple(sizes[c] for c in joint)
        # of each factor: its number, its shape in the table (1 for missing concepts),
        # and the axes over which the table is summed to give its marginal
        self.inputs = []
        for number, scope in factors:
            shape = tuple(sizes[c] if c in scope else 1 for c in joint)
            axes = tuple(k for k, c in enumerate(joint) if c not in scope)
            self.inputs.append((number, shape, axes))


def _bits(mask):
    """Yield the positions of the ones of an integer."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@stored
class EliminationPlan:
    """Order in which concepts are summed out; entries of the largest table, and of all.

    Not feasible if a table, or all messages together, exceed ``max_table``.
    """

    def __init__(self, sizes, scopes, max_table):
        self.largest, self.entries = 1, 0
        self.steps: list = []
        self.feasible = True
        n_stored = 0
        for concept, joint in self._order(sizes, scopes):
            table = math.prod(sizes[c] for c in joint)
            self.entries += table
            self.largest = max(self.largest, table)
            n_stored += table // sizes[concept]
            self.feasible = max(table, n_stored) <= max_table
            if not self.feasible:
                self.steps = []
                self.largest = max(self.largest, n_stored)
                return
            self.steps.append((concept, joint))
        self._lay_out(sizes, scopes)

    @staticmethod
    def _order(sizes, scopes):
        """Yield each concept, and the concepts of its table, in min-fill order."""
        near = [0] * len(sizes)  # the neighbors of each concept, as bits
        for scope in scopes:
            mask = sum(1 << c for c in scope)
            for c in scope:
                near[c] |= mask & ~(1 << c)

        def cost(c):
            fill = sum(
                (near[c] & ~near[other]).bit_count() - 1 for other in _bits(near[c])
            )
            # ties are broken by the size of the table, then by the number
            return fill, math.prod(sizes[k] for k in _bits(near[c] | 1 << c)), c

        costs = {c: cost(c) for c in range(len(sizes))}
        while costs:
            c = min(costs.values())[-1]
            del costs[c]
            around = near[c]
            yield c, tuple(_bits(around | 1 << c))
            changed = around
            for other in _bits(around):
                near[other] = (near[other] | around) & ~(1 << c) & ~(1 << other)
                changed |= near[other]
            for other in _bits(changed):
                costs[other] = cost(other)

    def _lay_out(self, sizes, scopes):
        """Replace each concept and its table by a step."""
        live: dict = dict(enumerate(scopes))
        for k, (concept, joint) in enumerate(self.steps):
            factors = [(i, scope) for i, scope in live.items() if concept in scope]
            for number, _ in factors:
                del live[number]
            live[len(scopes) + k] = tuple(c for c in joint if c != concept)
            self.steps[k] = _Step(concept, joint, factors, sizes)


@stored
@dataclass(eq=False)
class Elimination:
    """Exact moments of connected constraints, by variable elimination."""

    tables: list
    plan: EliminationPlan
    n_groups: ClassVar[None] = None

    def _joined(self, step, factors):
        """Return the sum of the factors of a step; factors may have a leading axis."""
        lead = factors[step.inputs[0][0]].shape[:-1]
        total = np.zeros(lead + step.shape)
        for number, shape, _ in step.inputs:
            total += factors[number].reshape(lead + shape)
        return total

    def _forward(self, weights, largest=False):
        """Return all flat factors, then the messages (of maxima if `largest`)."""
        factors = [
            w * table.ravel() for w, table in zip(weights, self.tables, strict=True)
        ]
        for step in self.plan.steps:
            total = self._joined(step, factors)
            message = total.max(axis=step.axis)
            if not largest:
                total -= np.expand_dims(message, step.axis)
                message += np.log(np.exp(total, out=total).sum(axis=step.axis))
            factors.append(message.ravel())
        return factors

    def _message(self, k, factors):
        """Return the message of a step, or its tangent or adjoint, along its axes."""
        step = self.plan.steps[k]
        message = factors[len(self.tables) + k]
        shape = (*step.shape[: step.axis], 1, *step.shape[step.axis + 1 :])
        return message.reshape(message.shape[:-1] + shape)

    def _conditional(self, k, factors):
        """Return the probabilities of a concept, given the rest of its table."""
        step = self.plan.steps[k]
        total = self._joined(step, factors)
        total -= self._message(k, factors)
        np.exp(total, out=total)
        total /= total.sum(axis=step.axis, keepdims=True)
        return total

    def _spread(self, k, marginal, adjoints):
        """Add to each factor of a step its part of a marginal (or of its tangent)."""
        step = self.plan.steps[k]
        lead = marginal.ndim - len(step.shape)
        for number, _, axes in step.inputs:
            summed = marginal.sum(axis=tuple(lead + a for a in axes))
            adjoints[number] = summed.reshape((*marginal.shape[:lead], -1))

    def _roots(self, adjoint, lead=()):
        """Return a list of adjoints in which only the last message has one."""
        n_factors = len(self.tables) + len(self.plan.steps)
        return [None] * (n_factors - 1) + [np.full((*lead, 1), adjoint)]

    def log_partition(self, weights):
        """Return log Z."""
        return float(self._forward(weights)[-1][0])

    def max_penalty(self, weights):
        """Return the largest -w · φ."""
        return float(self._forward(-weights, largest=True)[-1][0])

    def expected_truth(self, weights):
        """Return the expected truth of each constraint."""
        factors = self._forward(weights)
        adjoints = self._roots(1.0)
        for k in range(len(self.plan.steps) - 1, -1, -1):
            marginal = self._conditional(k, factors) * self._message(k, adjoints)
            self._spread(k, marginal, adjoints)
        return self._truths(adjoints)

    def _truths(self, adjoints):
        """Return the sum of each constraint's marginal where it holds."""
        sums = [
            adjoint[..., table.ravel()].sum(axis=-1)
            for adjoint, table in zip(adjoints, self.tables, strict=False)
        ]
        return np.stack(sums, axis=-1)

    def covariance(self, weights):
        """Return the covariance of the truth of the constraints."""
        factors = self._forward(weights)
        directions = np.eye(len(self.tables))
        blocks = [
            self._tangents(factors, directions[chunk])
            for chunk in row_chunks(len(directions), self.plan.largest, _BATCH_ENTRIES)
        ]
        covariance = np.concatenate(blocks)
        return (covariance + covariance.T) / 2

    def _tangents(self, factors, directions):
        """Return the derivatives of the expected truth along some directions."""
        tangents = [
            along[:, np.newaxis] * table.ravel()
            for along, table in zip(directions.T, self.tables, strict=True)
        ]
        for k, step in enumerate(self.plan.steps):
            change = self._joined(step, tangents)
            change *= self._conditional(k, factors)
            tangents.append(change.sum(axis=1 + step.axis).reshape(len(directions), -1))
        adjoints = self._roots(1.0)
        seconds = self._roots(0.0, (len(directions),))
        for k in range(len(self.plan.steps) - 1, -1, -1):
            conditional = self._conditional(k, factors)
            marginal = conditional * self._message(k, adjoints)
            second = self._joined(self.plan.steps[k], tangents)
            second -= self._message(k, tangents)
            second *= marginal
            second += conditional * self._message(k, seconds)
            self._spread(k, marginal, adjoints)
            self._spread(k, second, seconds)
        return self._truths(seconds)


_METHODS = ("auto", "enumeration", "grouping", "components", "elimination")

# From the most to the least exact.
_TIERS = ("grouping", "elimination", "pseudo-likelihood")

# Up to this many groups grouping is always fast; beyond, "auto" uses elimination if
# all its tables together have at most a sixteenth of the entries.
_MANY_GROUPS = 2**16
_CHEAPER = 16


def constraint_weights(weights, n_constraints):
    """Return finite float64 weights, one per constraint, or raise a ValueError."""
    array = np.asarray(weights)
    if array.dtype.kind not in "biuf" and array.size:
        raise ValueError(f"weights must be numbers, got dtype {array.dtype}.")
    array = array.astype(np.float64)
    if array.shape != (n_constraints,):
        raise ValueError(
            f"weights must have one number for each of the {n_constraints} "
            f"constraints, got the shape {array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"weights must be finite, got {array[~np.isfinite(array)][0]} for "
            f"constraint {int(np.flatnonzero(~np.isfinite(array))[0])}. A rule that "
            "must never be broken is a large weight, such as 20."
        )
    return array


def _count(number):
    """Format an integer that may be larger than any float."""
    return f"{number:.3g}" if number < 1e9 else f"10^{math.log10(number):.1f}"


@stored
@dataclass(eq=False)
class _Intractable:
    """A component that is too large; it has only a reason."""

    reason: str
    n_groups: ClassVar[None] = None

    def _refuse(self, weights):
        raise ValueError(self.reason)

    log_partition = expected_truth = covariance = max_penalty = _refuse


@stored
class ConnectedComponent:
    """Connected constraints; its solver has the weights of the canonical ones."""

    def __init__(self, concepts, constraints, sizes):
        self.concepts = concepts
        self.constraints = constraints
        self.n_worlds = math.prod(sizes[c] for c in concepts)
        self.method = None
        self.solver = None


@stored
class Partition:
    """Exact log partition function of weighted constraints, and its derivatives.

    A constraint is a *factor* (scope, table): sorted concepts, and its truth for all
    their values, None if it is too large. Its canonical form has no concepts that do
    not affect the truth, and is negated (with minus its weight) if it holds in more
    than half of the worlds, so that a negated constraint gives exactly the same result.
    """

    def __init__(
        self, sizes, factors, method="auto", *, max_worlds=2**24, max_table=2**26
    ):
        if method not in _METHODS:
            raise ValueError(f"method must be one of {_METHODS}, got {method!r}.")
        self.sizes = tuple(sizes)
        self.n_constraints = len(factors)
        self.method = method
        self.max_worlds = max_worlds
        self.max_table = max_table
        self._canonical(factors)
        self.parts_ = self._components()
        for component in self.parts_:
            component.method, component.solver = self._solver(component)
        touched = {
            concept for component in self.parts_ for concept in component.concepts
        }
        free = [size for c, size in enumerate(self.sizes) if c not in touched]
        self._log_free = float(np.log(free).sum())
        used = {component.method for component in self.parts_}
        least = [tier for tier in _TIERS if tier in used] or [_TIERS[0]]
        self.method_ = least[-1] if method == "auto" else method

    def _canonical(self, factors):
        """Set the factors in canonical form, and their transformations."""
        self._factors: list = []
        self._flipped = np.zeros(len(factors), dtype=bool)
        self.constant_ = np.zeros(len(factors), dtype=bool)
        # the mean truth of the canonical constraints; NaN if unknown
        self._uniform = np.full(len(factors), np.nan)
        for i, (scope, table) in enumerate(factors):
            if table is None:
                self._factors.append((scope, None))
                continue
            n_true = int(np.count_nonzero(table))
            twice = 2 * n_true - table.size
            self._flipped[i] = twice > 0 or (twice == 0 and bool(table.flat[0]))
            if self._flipped[i]:
                table, n_true = ~table, table.size - n_true
            self._uniform[i] = n_true / table.size
            self.constant_[i] = n_true == 0
            scope, table = reduced(scope, table)
            self._factors.append((scope, np.ascontiguousarray(table)))

    def _components(self):
        """Return the components, without solvers."""
        varying = [i for i, (scope, _) in enumerate(self._factors) if scope]
        if not varying:
            return []
        if self.method in ("enumeration", "grouping"):
            touched = {c for i in varying for c in self._factors[i][0]}
            if self.method == "enumeration":
                touched = set(range(len(self.sizes)))
            return [ConnectedComponent(sorted(touched), varying, self.sizes)]
        groups: list = []  # concepts and constraints of each component so far
        for i in varying:
            concepts, constraints, apart = set(self._factors[i][0]), [i], []
            for other in groups:
                if concepts.isdisjoint(other[0]):
                    apart.append(other)
                else:
                    concepts |= other[0]
                    constraints += other[1]
            groups = [*apart, (concepts, constraints)]
        components = [
            ConnectedComponent(sorted(concepts), sorted(members), self.sizes)
            for concepts, members in groups
        ]
        return sorted(components, key=lambda component: component.constraints)

    def _solver(self, component):
        """Return the method of a component, and its solver."""
        place = {c: k for k, c in enumerate(component.concepts)}
        sizes = [self.sizes[c] for c in component.concepts]
        factors = [self._factors[i] for i in component.constraints]
        scopes = [tuple(place[c] for c in scope) for scope, _ in factors]
        tables = [table for _, table in factors]
        known = all(table is not None for table in tables)
        groupable = (
            known
            and component.n_worlds <= self.max_worlds
            and self.method != "elimination"
        )
        most_groups = min(component.n_worlds, 2 ** len(tables))
        plan = None
        if known and self.method in ("auto", "elimination"):
            if not groupable or most_groups > _MANY_GROUPS:
                plan = EliminationPlan(sizes, scopes, self.max_table)
        if plan is not None and plan.feasible:
            if not groupable or _CHEAPER * plan.entries <= most_groups:
                return "elimination", Elimination(tables, plan)
        if groupable:
            merge = self.method != "enumeration"
            name = "grouping" if merge else "enumeration"
            return name, GroupedWorlds(sizes, scopes, tables, merge)
        reason = self._too_large(component, known, plan)
        if self.method != "auto":
            raise ValueError(
                f"{reason} method={self.method!r} cannot do this: take method='auto'."
            )
        return "pseudo-likelihood", _Intractable(
            f"{reason} So log Z and what follows from it (probabilities, expected "
            "truth, the largest penalty) are not there. The truth and the penalty of "
            "given samples still work, and weights can be given, or fitted by "
            "pseudo-likelihood. Else leave out the constraints that tie the most "
            "concepts together."
        )

    def _too_large(self, component, known, plan):
        """Return the reason why a component cannot be solved."""
        text = (
            f"{len(component.constraints)} constraints tie {len(component.concepts)} "
            f"concepts together, with {_count(component.n_worlds)} worlds "
            f"(max_worlds={self.max_worlds})"
        )
        if not known:
            return text + ", and a single one has too many for a truth table."
        if plan is None:
            return text + "."
        return text + (
            f", and variable elimination needs {_count(plan.largest)} entries "
            f"(max_table={self.max_table})."
        )

    @property
    def components_(self):
        """Return the components as dicts: their contents, method and cost."""
        return [
            {
                "concepts": list(component.concepts),
                "constraints": list(component.constraints),
                "method": component.method,
                "n_worlds": component.n_worlds,
                "n_groups": component.solver.n_groups,
            }
            for component in self.parts_
        ]

    def canonical_truth(self, truth):
        """Return mean truths of the canonical constraints, or invert this map."""
        return np.where(self._flipped, 1.0 - truth, truth)

    def canonical_weights(self, weights):
        """Return weights of the canonical constraints, or invert this map."""
        return np.where(self._flipped, 0.0 - weights, weights)

    def _prepared(self, weights):
        """Return validated weights, and the canonical weights."""
        weights = constraint_weights(weights, self.n_constraints)
        return weights, self.canonical_weights(weights)

    def log_partition(self, weights):
        """Return log Z, the log of the sum over all worlds of exp(w · φ)."""
        weights, canonical = self._prepared(weights)
        log_z = self._log_free + float(weights[self._flipped].sum())
        return log_z + sum(
            component.solver.log_partition(canonical[component.constraints])
            for component in self.parts_
        )

    def expected_truth(self, weights):
        """Return the expected truth of each constraint, the gradient of log Z."""
        _, canonical = self._prepared(weights)
        truth = np.zeros(self.n_constraints)
        for component in self.parts_:
            local = canonical[component.constraints]
            truth[component.constraints] = component.solver.expected_truth(local)
        return self.canonical_truth(truth)

    def covariance(self, weights):
        """Return the covariance of the constraints' truth, the Hessian of log Z."""
        _, canonical = self._prepared(weights)
        covariance = np.zeros((self.n_constraints, self.n_constraints))
        for component in self.parts_:
            local = canonical[component.constraints]
            covariance[np.ix_(component.constraints, component.constraints)] = (
                component.solver.covariance(local)
            )
        covariance[self._flipped] *= -1.0
        covariance[:, self._flipped] *= -1.0
        return covariance + 0.0

    def max_penalty(self, weights):
        """Return the largest penalty -w · φ of a world."""
        weights, canonical = self._prepared(weights)
        return -float(weights[self._flipped].sum()) + sum(
            component.solver.max_penalty(canonical[component.constraints])
            for component in self.parts_
        )

    def uniform_truth(self, canonical=False):
        """Return the fraction of the worlds in which each constraint holds."""
        if np.isnan(self._uniform).any():
            raise ValueError(
                f"Constraint {int(np.flatnonzero(np.isnan(self._uniform))[0])} has too "
                "many worlds for a truth table: in how many it holds is not known."
            )
        return self._uniform if canonical else self.canonical_truth(self._uniform)


def reduced(scope, table):
    """Remove concepts that do not affect the truth from a scope and its table."""
    remaining = list(scope)
    for axis in reversed(range(table.ndim)):
        first = table.take([0], axis=axis)
        if (table == first).all():
            table = first.squeeze(axis)
            del remaining[axis]
    return tuple(remaining), table

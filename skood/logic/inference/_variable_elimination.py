r"""Exact partition function of constraints by variable elimination.

Concepts are summed out one by one: the tables of all factors with the concept are
added, and the logarithm of the sum of exponentials over its values is a new factor,

.. math:: m(x_{N}) = \log \sum_{x_d} \exp \sum_{f \ni d} f(x_d, x_N).

The order is min-fill. First derivatives come from a reverse pass over the steps, second
derivatives from the derivative of both passes along each weight.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np

from skood.utils._stored import stored

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
        kept = 0
        for concept, joint in self._order(sizes, scopes):
            table = math.prod(sizes[c] for c in joint)
            self.entries += table
            self.largest = max(self.largest, table)
            kept += table // sizes[concept]
            self.feasible = max(table, kept) <= max_table
            if not self.feasible:
                self.steps = []
                self.largest = max(self.largest, kept)
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
class Elimination:
    """Exact moments of connected constraints, by variable elimination."""

    n_groups = None

    def __init__(self, tables, plan):
        self.tables = tables
        self.plan = plan

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
            share = marginal.sum(axis=tuple(lead + a for a in axes))
            adjoints[number] = share.reshape((*marginal.shape[:lead], -1))

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
        shares = [
            adjoint[..., table.ravel()].sum(axis=-1)
            for adjoint, table in zip(adjoints, self.tables, strict=False)
        ]
        return np.stack(shares, axis=-1)

    def covariance(self, weights):
        """Return the covariance of the truth of the constraints."""
        factors = self._forward(weights)
        m = len(self.tables)
        step = max(1, _BATCH_ENTRIES // self.plan.largest)
        rows = [
            self._tangents(factors, np.eye(m)[start : start + step])
            for start in range(0, m, step)
        ]
        covariance = np.concatenate(rows)
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

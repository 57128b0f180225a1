"""Scores whose laws are known, for the tests of guarantees."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
from scipy.stats import norm

GUARANTEES = ("high_probability", "ltt", "expectation")
SHIFT = np.array([1.0, 2.0])  # of the OOD scores of draw


def draw(rng, n_id, n_ood):
    """Normal scores; the loss is more likely where a is high."""
    a, b = rng.normal(size=(2, n_id))
    loss = (rng.uniform(size=n_id) < norm.cdf(a - 1.5)).astype(float)
    a_ood, b_ood = rng.normal(size=(2, n_ood)) + SHIFT[:, None]
    return a, b, loss, a_ood, b_ood


def true_rates(point):
    """TPR and FPR of a rule on the scores of draw: a projection is normal."""
    direction = np.array([math.cos(point.theta), math.sin(point.theta)]) / point.scales
    length = np.linalg.norm(direction)
    return norm.cdf([point.lam / length, (point.lam - direction @ SHIFT) / length])


def increasing(n_id=200, n_ood=150):
    """The risk grows with the threshold, and OOD rows lie between ID rows."""
    a = np.arange(n_id, dtype=float)
    return a, None, a / n_id, np.linspace(0.5, 4 * n_id, n_ood), None

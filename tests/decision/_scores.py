"""Scores whose laws are known, for the tests of guarantees."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
from scipy.stats import norm

from skood.rejection import Certificate, ScoredSamples, Shift, Solver

samples_of = ScoredSamples.from_arrays

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


def solve_arguments(*arrays, **options):
    """Arguments of solve, by name, from arrays and options of all kinds."""
    labels = {name: options.pop(name) for name in _LABELS & set(options)}
    if "solver" in options:
        options["method"] = options.pop("solver")
    labels = {name.removeprefix("sample_"): x for name, x in labels.items()}
    samples = samples_of(*arrays, **labels)
    return {"samples": samples, "solver": Solver(**options)}


def certify_arguments(*arrays, **options):
    """Arguments of certify and certify_path, likewise; n_angles are those of "ltt"."""
    names = {"solver", "angles", *(_LABELS & set(options))} & set(options)
    arguments = solve_arguments(*arrays, **{name: options.pop(name) for name in names})
    if not names - _LABELS:
        del arguments["solver"]
    for name in ("unlabeled", "random_state", "stakes", "two_valued"):
        if name in options:
            arguments[name] = options.pop(name)
    if "guarantee" in options:
        options["method"] = options.pop("guarantee")
    shift = {name: options.pop(name) for name in _SHIFT & set(options)}
    if shift:
        options["shift"] = Shift(**shift)
    return {**arguments, "certificate": Certificate(**options)}


_LABELS = {
    *("group_id", "group_ood", "source_ood"),
    *("sample_weight_id", "sample_weight_ood", "weight_id", "weight_ood"),
}
_SHIFT = {"weights", "weight_max", "tv"}

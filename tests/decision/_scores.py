"""Scores whose laws are known, for the tests of guarantees."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
from scipy.stats import norm

from skood.rejection import (
    Certificate,
    ScoredSamples,
    Shift,
    Solver,
    certify,
    certify_path,
    solve,
)

samples_of = ScoredSamples.from_arrays

GUARANTEES = ("high_probability", "ltt", "expectation")
SHIFT = np.array([1.0, 2.0])  # of the OOD scores of draw


# Table 1 of the paper, corrected: A-dens-2.0-0.2-0.25 and A-dens-3.0-0.2-0.25, by the
# mean of the OOD density.
# For r and g together (D): risk, mu, lam and FPR of the best r + mu g <= lam, at the
# bounds on TPR and FPR, and on precision and recall.
DOUBLE = {
    2.0: (
        (0.1258560691240669, 0.04346517930571281, 0.35048486455254074, 0.2),
        (0.12419133538842779, 0.0272942405899812, 0.3334875182265594, 0.7 / 3),
    ),
    3.0: (
        (0.18654737461889703, 0.11064369900850579, 0.4549420738402861, 0.2),
        (0.18154749425212108, 0.09985087895074685, 0.4436206570103227, 0.7 / 3),
    ),
}
# Least cost, and that of Chow's rule r <= 0.3.
COST = {
    2.0: (0.14988425140398326, 0.21523359892410232),
    3.0: (0.17382812344748588, 0.3681382524358514),
}


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


# A-ties of the specification: heavily tied scores, ID and OOD rows mixed
TIED_SCORE = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 3], dtype=float)
TIED_OOD = np.array([0, 0, 1, 0, 0, 0, 1, 1, 1, 0], dtype=bool)
TIED_LOSS = np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 1], dtype=float)
TIED = TIED_SCORE[~TIED_OOD], None, TIED_LOSS[~TIED_OOD], TIED_SCORE[TIED_OOD], None


class FixedPValues:
    """A statement with fixed p-values of candidates that accept 0, 1, ... samples."""

    group = source = None

    def __init__(self, pvalues):
        self.pvalues = pvalues

    def pvalue(self, samples, accepted, unlabeled, delta, stakes):
        return self.pvalues[int(accepted.sum())]


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
    """Arguments of certify and certify_path, likewise."""
    names = {"solver", "angles", "n_angles", *(_LABELS & set(options))} & set(options)
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


def solved(rule, *arrays, **options):
    """Rule that `solve` finds."""
    return solve(rule, **solve_arguments(*arrays, **options))


def certified(rule, *arrays, **options):
    """Rule that `certify` finds."""
    return certify(rule, **certify_arguments(*arrays, **options))


def certified_path(rule, path, *arrays, **options):
    """Rule of a path that `certify_path` finds."""
    return certify_path(rule, path, **certify_arguments(*arrays, **options))


_LABELS = {
    *("group_id", "group_ood", "source_ood"),
    *("sample_weight_id", "sample_weight_ood", "weight_id", "weight_ood"),
}
_SHIFT = {"weights", "weight_max", "tv"}

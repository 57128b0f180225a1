"""A threshold for each group of samples, at a common angle: Mondrian, [6] of `certify`.

All groups have the same levels, numbers of standard deviations by which the TPR of a
group is above its bound on the samples that choose. A level has a threshold for each
group, so that the candidates at an angle are one path of levels.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from skood.decision._base_rule import is_floor
from skood.decision._certified_path import thresholds_between
from skood.decision._scored_samples import ScoredSamples

# Levels of the path, in standard deviations of the difference between two samples.
_LEVELS = np.arange(-1.0, 8.01, 0.25)


@dataclass(frozen=True, eq=False)
class GroupedSamples(ScoredSamples):
    """Samples with a level in place of their projected score.

    It is the first level whose threshold for the group of the sample accepts it, so
    that a threshold of levels decides. Samples of groups without thresholds have none.
    `thresholds` has the thresholds of groups at all levels, for each angle.
    """

    thresholds: Any = None

    def project(self, theta, scales):
        """Return the levels; inf where no level accepts a sample."""
        projected = super().project(theta, scales)
        levels = np.full(projected.size, np.inf)
        for name, thresholds in self.thresholds[theta].items():
            indices = np.flatnonzero(self.group == name)
            level = np.searchsorted(thresholds, projected[indices], side="left")
            is_accepted = level < thresholds.size
            levels[indices[is_accepted]] = level[is_accepted]
        return levels

    def thresholds_at(self, theta, level):
        """Return the thresholds of the groups at a level."""
        by_group = self.thresholds[theta].items()
        return {group: float(lam[math.floor(level)]) for group, lam in by_group}


def by_levels(first, second, tests, thetas, scales, delta):
    """Return the samples that choose, and that certify, with levels for their scores.

    `tests` has a lower bound on the TPR of each group.
    """
    floors: dict = {}
    for test in tests:
        if test.kind == "tpr_min":
            floors[test.group] = max(test.limit, floors.get(test.group, 0.0))
    thresholds: dict = {theta: {} for theta in thetas}
    for group, floor in floors.items():
        chosen = first.take(~first.is_ood & (first.group == group))
        n_certify = np.count_nonzero(~second.is_ood & (second.group == group))
        for theta, of_groups in thresholds.items():
            projected = chosen.project(theta, scales)
            of_groups[group] = _thresholds(projected, n_certify, floor, delta)
    parts = (vars(part) for part in (first, second))
    return tuple(GroupedSamples(**part, thresholds=thresholds) for part in parts)


def _thresholds(projected, n_certify, floor, delta):
    """Return the thresholds of one group at all levels, in ascending order.

    `n_certify` samples test that the TPR is at least `floor`.
    """
    n = max(projected.size, 1)
    needed = -ndtri(delta) * math.sqrt(floor * (1 - floor) / n_certify)
    fraction = min(floor + needed + 0.5 / n_certify, 1.0)
    deviation = math.sqrt(fraction * (1 - fraction) * (1 / n + 1 / n_certify))
    fractions = np.clip(fraction + deviation * _LEVELS, 0.0, 1.0)
    between = thresholds_between(projected, projected.size)
    accepted = np.searchsorted(np.sort(projected), between, side="right")
    k = np.searchsorted(accepted, np.ceil(fractions * n - 1e-9), side="left")
    return between[np.minimum(k, between.size - 1)]


def named_thresholds(lam, pooled_name, pooled, skipped):
    """Return the thresholds of all groups, also if they were united or left out."""
    lam = dict(lam)
    if pooled:
        lam.update(dict.fromkeys(pooled, lam.pop(pooled_name)))
    return {**lam, **dict.fromkeys(skipped, -math.inf)}


def check_thresholds(rule, samples, unlabeled, certificate):
    """Raise unless there may be thresholds of groups, or none are requested."""
    group_id, group_ood = samples.by_kind("group")
    if certificate.thresholds == "shared":
        if group_ood is not None and group_ood.size:
            raise ValueError(
                "group_ood is for thresholds='group': bounds on the FPR hold for all "
                "groups together. Leave it out, or use source_ood."
            )
        return
    if rule.is_searched and certificate.method != "high_probability":
        raise ValueError(
            f"thresholds='group' is for guarantee='high_probability' and rules with "
            f"linear bounds, got guarantee={certificate.method!r} and "
            f"{type(rule).__name__}."
        )
    if samples.weight is not None or unlabeled is not None:
        raise ValueError("thresholds='group' excludes weights and unlabeled samples.")
    if group_id is None or group_ood is None:
        raise ValueError(
            "thresholds='group' needs the group of each sample: pass group_id, and "
            "group_ood if there are OOD samples."
        )
    if rule.is_searched and not any(is_floor(bound) for bound in rule.statements()):
        raise ValueError(
            f"thresholds='group' needs a lower bound on the TPR within groups, such as "
            f"tpr_min of BoundedTPRFPR, which {type(rule).__name__} does not have. Add "
            f"one with AllOf([{rule!r}, BoundedAbstention(coverage)])."
        )

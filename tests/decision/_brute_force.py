"""Every rule on two whole-numbered scores, in whole numbers and fractions."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np


def instance(seed, *, n_id=12, n_ood=6, losses=(0, 1), high=6):
    """Small whole numbers: many ties in each score, in rows and in their sums."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, high, size=(2, n_id)).astype(float)
    a_ood = rng.integers(0, high, size=n_ood).astype(float)
    b_ood = rng.integers(1, high + 2, size=n_ood).astype(float)
    return a, b, rng.choice(losses, size=n_id).astype(float), a_ood, b_ood


def _directions(points, turns, critical):
    """Return one pair of whole weights for every set of rules that are alike."""
    axes = {0: (1, 0), 1: (0, 1), 2: (-1, 0), 3: (0, -1)}
    for turn in turns:
        ratios = {Fraction(0)}
        for dx, dy in {(x - z, y - w) for x, y in points for z, w in points}:
            # in a quadrant turned to the first one: weights (1, t), t >= 0
            for _ in range(turn % 4):
                dx, dy = dy, -dx
            if dx * dy < 0:
                ratios.add(Fraction(-dx, dy))
        ratios = sorted(ratios)
        inside = [(p + q) / 2 for p, q in pairwise(ratios)]
        for t in (*(ratios[1:] if critical else ()), *inside, ratios[-1] + 1):
            w = (t.denominator, t.numerator)
            for _ in range(turn % 4):
                w = (-w[1], w[0])
            yield w
        yield axes[turn % 4]
        yield axes[(turn + 1) % 4]


def regions(a, b, loss, a_ood, b_ood, turns=(0,), *, critical=True):
    """Return the set of all (before, after) counts N, E, F at a threshold.

    `before` counts the samples strictly below the threshold. With ``critical=False``
    angles at which different samples change places are left out.
    """
    pairs = tuple((int(x), int(y)) for x, y in zip(a, b, strict=True))
    outs = tuple((int(x), int(y)) for x, y in zip(a_ood, b_ood, strict=True))
    return _regions(pairs, tuple(loss.tolist()), outs, turns, critical)


@cache  # the same samples are searched with several rules
def _regions(pairs, loss, outs, turns, critical):
    costs = [Fraction(cost).limit_denominator(1000) for cost in loss]
    unit = math.lcm(*(cost.denominator for cost in costs))
    losses = np.array([int(cost * unit) for cost in costs])
    directions = np.array(list(_directions(set(pairs + outs), turns, critical)))
    p = directions @ np.array(pairs).reshape(-1, 2).T
    q = directions @ np.array(outs, dtype=int).reshape(-1, 2).T
    lam = np.concatenate([p, q], axis=1)[:, :, None]
    counts = []
    for below in (np.less, np.less_equal):
        of_id, of_ood = below(p[:, None], lam), below(q[:, None], lam)
        counts += [of_id.sum(axis=2), of_id @ losses, of_ood.sum(axis=2)]
    distinct = np.unique(np.stack(counts, axis=-1).reshape(-1, 6), axis=0).tolist()
    return {
        ((N, Fraction(E, unit), F), (N_at, Fraction(E_at, unit), F_at))
        for N, E, F, N_at, E_at, F_at in distinct
    }


def brute_force(counted, feasible, objective, *, none_allowed=False):
    """Return the best (objective, -N, F) of a set of regions, None if none is."""
    points = {after for _, after in counted}
    if none_allowed:
        points.add((0, 0, 0))
    keys = [
        (objective(*point), -point[0], point[2]) for point in points if feasible(*point)
    ]
    return min(keys, default=None)


def best_mixture(counted, bounds, objective):
    """Return the least objective of mixtures before + tau * (after - before).

    `bounds` are functions of N, E, F, linear, that must not be positive. Along a
    mixture the objective is monotone, so that it is least at an end of the feasible
    part.
    """
    best = None
    for before, after in counted:
        low, high = Fraction(0), Fraction(1)
        for bound in bounds:
            start, end = bound(*before), bound(*after)
            if start > 0 and end > 0:
                high = Fraction(-1)
            elif start > 0:
                low = max(low, start / (start - end))
            elif end > 0:
                high = min(high, -start / (end - start))
        if low > high:
            continue
        for tau in (low, high):
            N, E, F = (x + tau * (y - x) for x, y in zip(before, after, strict=True))
            if N + F > 0 and (value := objective(N, E, F)) is not None:
                best = value if best is None else min(best, value)
    return best

"""Intersection of the acceptance region of a rule with the box of the axes."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np


def half_plane(factors, lam, xlim, ylim):
    """Intersect the box of the axes with the region ``factors @ (a, b) <= lam``.

    Returns the corners of the box in the region, of shape (n_corners, 2), in order from
    the end of the border on, and where the border enters and leaves the box: shape (2,
    2), or (0, 2) if it does not.
    """
    box = np.array(
        [[xlim[i], ylim[j]] for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))], dtype=float
    )
    excess = box @ factors - lam
    inside = excess <= 0
    if inside.all() or not inside.any():
        return box[inside], np.empty((0, 2))
    border = []
    for leaves in (True, False):  # the one corner after which the region ends, begins
        (k,) = np.flatnonzero((inside == leaves) & (np.roll(inside, -1) != leaves))
        after = (k + 1) % 4
        share = excess[k] / (excess[k] - excess[after])
        border.append(box[k] + share * (box[after] - box[k]))
        if not leaves:
            start = after
    corners = np.roll(box, -start, axis=0)[: inside.sum()]
    return corners, np.array(border)


def rectangle(a_max, b_max, xlim, ylim):
    """Intersect the box of the axes with the region ``a <= a_max, b <= b_max``.

    Returns the corners and the border within the box, as `half_plane` does; the border
    has three points if it turns within the box.
    """
    (left, right), (low, high) = np.sort(xlim), np.sort(ylim)
    a, b = min(a_max, right), min(b_max, high)
    if a < left or b < low:
        return np.empty((0, 2)), np.empty((0, 2))
    corners = np.array([[left, low], [a, low], [a, b], [left, b]])
    first, last = (1 if a_max <= right else 2), (4 if b_max <= high else 3)
    return corners, corners[first:last] if last - first > 1 else np.empty((0, 2))


def along(factors, lam, start, end, axes):
    """Return points of the border between two, dense in the units of both axes."""
    found = []
    for k in (0, 1):
        other = 1 - k
        if factors[other] == 0:
            continue
        scale = axes[k].get_transform()
        ends = scale.transform(np.array([start[k], end[k]]))
        values = scale.inverted().transform(np.linspace(ends[0], ends[1], 202)[1:-1])
        points = np.empty((values.size, 2))
        points[:, k] = values
        points[:, other] = (lam - factors[k] * values) / factors[other]
        found.append(points)
    low, high = np.minimum(start, end), np.maximum(start, end)
    points = np.clip(np.concatenate(found), low, high)
    towards = np.sign(end - start)
    return points[np.lexsort((towards[1] * points[:, 1], towards[0] * points[:, 0]))]

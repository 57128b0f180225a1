"""Curves and histograms as SVG, with colors defined by the style sheet of the page.

The same drawing is used for light mode, dark mode and print, and has few kilobytes.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from html import escape

import numpy as np

from skood.utils._ties import ends_of_ties

#: Number of colors and dashes of the page: the classes c0, … and d0, ….
N_COLORS, N_DASHES = 8, 4

_BOX = (460, 360, 62, 10, 8, 42)  # width, height, and margins: left, right, top, bottom
_SMALL = (220, 120, 6, 6, 4, 20)
_N_BINS = 40
_TAIL = 0.005  # fraction of the scores on either side in the outermost bins
_PIXEL = 0.4  # largest distance of a drawn line from its points


def style(i):
    """Return classes of the i-th curve; 32 combinations of color and dashes."""
    return f"s{i} c{i % N_COLORS} d{(i + i // N_COLORS) % N_DASHES}"


def key(i):
    """Return a segment of the i-th curve, for a legend."""
    return (
        '<svg class="key" viewBox="0 0 34 8" aria-hidden="true">'
        f'<polyline class="curve {style(i)}" points="0,4 34,4"/></svg>'
    )


def roc(id_scores, ood_scores):
    """Return fpr and tpr of an ROC curve, from (0, 0) to (1, 1)."""
    scores = np.concatenate([id_scores, ood_scores])
    order = np.argsort(scores)[::-1]
    is_ood, last = order >= len(id_scores), ends_of_ties(scores[order])
    accepted = [np.cumsum(part)[last] for part in (is_ood, ~is_ood)]
    fpr, tpr = (np.append(0.0, n / n[-1]) for n in accepted)
    return fpr, tpr


def curves(label, lines, x_label, y_label, y_max=1.0, diagonal=False):
    """Return an SVG element with curves, without references to other files.

    `lines` maps names to (number of the style, x in [0, 1], y); curves are cut at
    `y_max`. With `diagonal`, the line from (0, 0) to (1, `y_max`) is drawn.
    """
    parts = [_opening(label, _BOX, "chart"), *_axes(x_label, y_label, y_max)]
    if diagonal:
        parts.append(f'<polyline class="guide" points="{_points([0, 1], [0, 1], 1)}"/>')
    for name, (i, x, y) in lines.items():
        parts.append(
            f'<polyline class="curve {style(i)}" points="{_points(x, y, y_max)}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return "\n".join([*parts, "</svg>"])


def histogram(label, id_scores, ood_scores):
    """Return an SVG histogram of scores of ID (filled) and OOD samples (dashed).

    Heights are square roots of fractions: small sets are visible beside large ones. The
    line is at the 5 % quantile of the ID scores; extreme scores are in the outermost
    bins.
    """
    low, high = _range(np.concatenate([id_scores, ood_scores]))
    edges = np.linspace(low, high, _N_BINS + 1)
    shares = [
        np.sqrt(np.histogram(np.clip(part, low, high), edges)[0] / len(part))
        for part in (id_scores, ood_scores)
    ]
    top = max(part.max() for part in shares)
    width, height, left, right, _, bottom = _SMALL
    parts = [_opening(label, _SMALL, "small")]
    for part, kind in zip(shares, ("id", "ood"), strict=True):
        x = np.repeat(np.linspace(0, 1, _N_BINS + 1), 2)
        y = np.concatenate([[0], np.repeat(part, 2), [0]])
        points = _points(x, y, top, _SMALL)
        parts.append(f'<polygon class="{kind}" points="{points}"/>')
    cut = np.quantile(np.clip(id_scores, low, high), 0.05)
    at = [(cut - low) / (high - low)] * 2
    ends = [_short(0.0 if abs(e) < 1e-3 * (high - low) else e) for e in (low, high)]
    parts += [
        f'<polyline class="cut" points="{_points(at, [0, top], top, _SMALL)}"/>',
        f'<text class="start" x="{left}" y="{height - 4}">{ends[0]}</text>',
        f'<text class="end" x="{width - right}" y="{height - 4}">{ends[1]}</text>',
        f'<path class="axis" d="M{left} {height - bottom}H{width - right}"/>',
    ]
    return "\n".join([*parts, "</svg>"])


def _range(scores):
    """Return the range of a histogram without extreme scores, of positive length."""
    finite = scores[np.isfinite(scores)]
    if not finite.size:
        return -1.0, 1.0
    low, high = np.quantile(finite, [_TAIL, 1 - _TAIL])
    least = 1e-9 * max(1.0, abs(low), abs(high))
    return (low, high) if high - low > least else (low - 0.5, low + 0.5 + least)


def _short(number):
    return f"{number:.3g}".replace("-", "−")


def _opening(label, box, kind):
    return (
        f'<svg class="{kind}" viewBox="0 0 {box[0]} {box[1]}" role="img" '
        f'aria-label="{escape(label)}">'
    )


def _points(x, y, y_max, box=_BOX):
    """Return the points of a line in the coordinates of the frame."""
    width, height, left, right, top, bottom = box
    across = left + np.asarray(x, dtype=float) * (width - left - right)
    share = np.minimum(np.asarray(y, dtype=float) / y_max, 1.0)
    down = height - bottom - share * (height - top - bottom)
    places = np.column_stack([across, down])
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in places[_corners(places)])


def _corners(places):
    """Return the points needed to draw a line (Ramer, Douglas and Peucker)."""
    kept = np.zeros(len(places), dtype=bool)
    kept[[0, -1]] = True
    pieces = [(0, len(places) - 1)]
    while pieces:
        first, last = pieces.pop()
        if last - first < 2:
            continue
        along = places[last] - places[first]
        inner = places[first + 1 : last] - places[first]
        length = along @ along
        share = (
            np.clip(inner @ along / length, 0, 1) if length else np.zeros(len(inner))
        )
        off = np.linalg.norm(inner - share[:, None] * along, axis=1)
        farthest = int(np.argmax(off))
        if off[farthest] > _PIXEL:
            middle = first + 1 + farthest
            kept[middle] = True
            pieces += [(first, middle), (middle, last)]
    return kept


def _axes(x_label, y_label, y_max):
    """Return the frame, five ticks on either axis, and labels."""
    width, height, left, right, top, bottom = _BOX
    right, bottom = width - right, height - bottom
    yield (
        f'<rect class="frame" x="{left}" y="{top}" width="{right - left}" '
        f'height="{bottom - top}"/>'
    )
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = left + share * (right - left)
        y = bottom - share * (bottom - top)
        if 0 < share < 1:
            yield f'<path class="grid" d="M{x:.1f} {top}V{bottom}"/>'
            yield f'<path class="grid" d="M{left} {y:.1f}H{right}"/>'
        anchor = "end" if share == 1 else "tick"
        yield f'<text class="{anchor}" x="{x:.1f}" y="{bottom + 16}">{share:g}</text>'
        yield (
            f'<text class="end" x="{left - 5}" y="{y + 4:.1f}">'
            f"{share * y_max:.3g}</text>"
        )
    middle = (left + right) / 2
    yield f'<text class="tick" x="{middle}" y="{height - 6}">{escape(x_label)}</text>'
    x, y = 12, (top + bottom) / 2
    yield (
        f'<text class="tick" x="{x}" y="{y}" transform="rotate(-90 {x} {y})">'
        f"{escape(y_label)}</text>"
    )

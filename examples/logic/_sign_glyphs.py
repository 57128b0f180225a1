"""
=======================================
Traffic signs: pictograms
=======================================

A stroke is a polyline with a width, in a frame where x goes right and y goes down,
both from -1 to 1. `glyph_atlas` renders all pictograms to gray pictures once, and
`sample_glyphs` interpolates them at the pixels of an image.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from functools import lru_cache

import numpy as np

_SIDE = 32  # pixels of a picture in the atlas
_HALF = 1.25  # its half side: the margin stays empty, so that edges fade out


def _arc(x, y, radius, start=0, stop=360):
    """Return points of an arc, angles in degrees, clockwise from the right."""
    angles = np.deg2rad(np.linspace(start, stop, 2 + abs(stop - start) // 24))
    return [(x + radius * np.cos(a), y + radius * np.sin(a)) for a in angles]


def _mirrored(strokes):
    """Return the pictogram with left and right exchanged."""
    return [(width, [(-x, y) for x, y in points]) for width, points in strokes]


_LETTERS = {  # polylines in the frame of one letter
    "0": [[(-0.6, -0.5), (0, -1), (0.6, -0.5), (0.6, 0.5), (0, 1), (-0.6, 0.5),
           (-0.6, -0.5)]],
    "1": [[(-0.4, -0.5), (0.1, -1), (0.1, 1)]],
    "2": [[(-0.6, -0.5), (-0.2, -1), (0.3, -1), (0.6, -0.5), (-0.6, 1), (0.7, 1)]],
    "3": [[(-0.6, -0.8), (0, -1), (0.6, -0.6), (0, -0.1), (0.6, 0.5), (0, 1),
           (-0.6, 0.8)]],
    "5": [[(0.6, -1), (-0.5, -1), (-0.5, -0.2), (0.2, -0.2), (0.6, 0.3), (0.2, 1),
           (-0.6, 0.9)]],
    "8": [_arc(0, -0.5, 0.5), _arc(0, 0.5, 0.58)],
    "A": [[(-0.7, 1), (0, -1), (0.7, 1)], [(-0.4, 0.3), (0.4, 0.3)]],
    "K": [[(-0.5, -1), (-0.5, 1)], [(0.6, -1), (-0.5, 0.1), (0.6, 1)]],
    "O": [_arc(0, 0, 0.85)],
    "P": [[(-0.5, 1), (-0.5, -1), (0.3, -1), (0.6, -0.5), (0.3, 0), (-0.5, 0)]],
    "S": [[(0.6, -0.8), (-0.2, -1), (-0.6, -0.5), (0.6, 0.4), (0.2, 1),
           (-0.6, 0.8)]],
    "T": [[(-0.7, -1), (0.7, -1)], [(0, -1), (0, 1)]],
    "Z": [[(-0.6, -1), (0.6, -1), (-0.6, 1), (0.6, 1)]],
}  # fmt: skip


def _text(letters, width=0.26, height=0.6):
    """Return the strokes of a word that fills the frame from left to right."""
    half = 1 / len(letters)  # half the width of a letter
    return [
        (width, [(-1 + half * (2 * i + 1 + 0.8 * x), height * y) for x, y in points])
        for i, letter in enumerate(letters)
        for points in _LETTERS[letter]
    ]


_CURVE = [
    (0.34, [(0.35, 0.9), (0.35, 0.2), (-0.3, -0.3), (-0.3, -0.8)]),
    (0.3, [(-0.75, -0.3), (-0.3, -0.85), (0.15, -0.3)]),
]
_TURN = [
    (0.36, [(-0.45, 0.9), (-0.45, -0.1), (0.6, -0.1)]),
    (0.36, [(0.2, -0.65), (0.8, -0.1), (0.2, 0.45)]),
]

# Pictograms of the sign classes.
GLYPHS = {
    "": [],
    "stop": _text("STOP", 0.17, 0.4),
    "bar": [(0.42, [(-0.8, 0), (0.8, 0)])],
    "20": _text("20"),
    "30": _text("30"),
    "50": _text("50"),
    "80": _text("80"),
    "120": _text("120", 0.2),
    "exclamation": [(0.4, [(0, -0.8), (0, 0.2)]), (0.44, [(0, 0.78)])],
    "curve_left": _CURVE,
    "curve_right": _mirrored(_CURVE),
    "cross": [
        (0.34, [(-0.7, -0.7), (0.7, 0.7)]),
        (0.34, [(-0.7, 0.7), (0.7, -0.7)]),
    ],
    "walker": [
        (0.42, [(0.05, -0.75)]),
        (0.32, [(0, -0.4), (-0.05, 0.2), (-0.5, 0.9)]),
        (0.28, [(-0.05, 0.2), (0.45, 0.9)]),
        (0.2, [(-0.55, 0.1), (0, -0.4), (0.5, 0.05)]),
    ],
    "turn_right": _TURN,
    "turn_left": _mirrored(_TURN),
    "ahead": [
        (0.36, [(0, 0.9), (0, -0.6)]),
        (0.36, [(-0.55, -0.25), (0, -0.85), (0.55, -0.25)]),
    ],
    "roundabout": [
        *((0.24, _arc(0, 0, 0.7, a, a + 80)) for a in (0, 120, 240)),
        (0.24, [(0.55, 0.25), (0.72, -0.1), (0.95, 0.25)]),
        (0.24, [(-0.25, 0.9), (-0.3, 0.6), (-0.75, 0.75)]),
        (0.24, [(-0.3, -0.35), (-0.4, -0.6), (-0.1, -0.95)]),
    ],
    "p": [(0.34, [(0.85 * x, 0.9 * y) for x, y in _LETTERS["P"][0]])],
    "long_arrow": [
        (0.36, [(-0.95, 0), (0.7, 0)]),
        (0.34, [(0.3, -0.55), (0.9, 0), (0.3, 0.55)]),
    ],
    "detour": [
        (0.34, [(0.9, 0.6), (0.9, -0.3), (-0.6, -0.3)]),
        (0.34, [(-0.3, -0.85), (-0.85, -0.3), (-0.3, 0.25)]),
    ],
    "extinguisher": [
        (0.7, [(0.15, 0), (0.15, 0.55)]),
        (0.2, [(0.15, -0.3), (0.15, -0.8), (-0.5, -0.7), (-0.65, 0.5)]),
        (0.2, [(0.15, -0.8), (0.65, -0.9)]),
    ],
    "flame": [
        (0.26, [(0, 0.85), (-0.55, 0.6), (-0.5, 0), (0.05, -0.9)]),
        (0.26, [(0, 0.85), (0.55, 0.55), (0.5, 0), (0.25, -0.35), (0.05, -0.9)]),
        (0.4, [(0, 0.6), (0.05, 0.25)]),
    ],
    "drops": [
        (0.5, [(-0.5, 0.55)]),
        (0.2, [(-0.65, 0.4), (-0.5, -0.2), (-0.35, 0.4)]),
        (0.5, [(0.5, 0.55)]),
        (0.2, [(0.35, 0.4), (0.5, -0.2), (0.65, 0.4)]),
        (0.5, [(0, -0.25)]),
        (0.2, [(-0.15, -0.4), (0, -0.95), (0.15, -0.4)]),
    ],
    "skull": [
        (0.3, _arc(0, -0.3, 0.42)),
        (0.4, [(0, -0.3), (0, 0.1)]),
        (0.22, [(-0.75, 0.45), (0.75, 0.95)]),
        (0.22, [(-0.75, 0.95), (0.75, 0.45)]),
    ],
    "thick_line": [(0.42, [(-0.95, 0.95), (0.95, -0.95)])],
    "thin_lines": [
        (0.14, [(-0.9 + s, 0.7 + s), (0.7 + s, -0.9 + s)]) for s in (-0.1, 0.1, 0.3)
    ],
}

# Pictograms not used by any sign class.
UNSEEN_GLYPHS = {
    "star": [
        (0.24, [
            (np.sin(0.8 * np.pi * i), -np.cos(0.8 * np.pi * i)) for i in range(6)
        ])
    ],
    "heart": [
        (0.7, [(-0.4, -0.35)]),
        (0.7, [(0.4, -0.35)]),
        (0.55, [(-0.4, -0.2), (0, 0.45), (0.4, -0.2)]),
        (0.2, [(-0.6, 0), (0, 0.85), (0.6, 0)]),
    ],
    "bolt": [(0.28, [(0.35, -0.95), (-0.35, 0.1), (0.35, -0.1), (-0.35, 0.95)])],
    "moon": [(0.4, _arc(0.15, 0, 0.75, 70, 290))],
    "house": [
        (0.24, [(-0.9, 0), (0, -0.8), (0.9, 0)]),
        (0.24, [(-0.6, 0), (-0.6, 0.8), (0.6, 0.8), (0.6, 0)]),
        (0.4, [(0, 0.5), (0, 0.7)]),
    ],
    "face": [
        (0.2, _arc(0, 0, 0.85)),
        (0.3, [(-0.32, -0.25)]),
        (0.3, [(0.32, -0.25)]),
        (0.2, _arc(0, 0.1, 0.4, 10, 170)),
    ],
    "spiral": [
        (0.22, [
            (t / 16 * np.cos(t), t / 16 * np.sin(t)) for t in np.linspace(0, 15, 40)
        ])
    ],
    "tree": [
        (0.24, [(0, 0.95), (0, -0.2)]),
        (0.9, [(0, -0.4)]),
    ],
    "letters_az": _text("AZ"),
    "cars": [
        (0.5, [(-0.7, 0.2), (-0.25, 0.2)]),
        (0.4, [(-0.6, -0.1), (-0.35, -0.1)]),
        (0.5, [(0.25, 0.2), (0.7, 0.2)]),
        (0.4, [(0.35, -0.1), (0.6, -0.1)]),
    ],
    "truck": [
        (0.75, [(-0.5, -0.1), (0.1, -0.1)]),
        (0.5, [(0.65, 0.02), (0.7, 0.02)]),
        (0.4, [(-0.5, 0.45)]),
        (0.4, [(0.6, 0.45)]),
    ],
    "road_works": [
        (0.4, [(-0.2, -0.7)]),
        (0.3, [(-0.3, -0.3), (-0.6, 0.2), (-0.8, 0.9)]),
        (0.18, [(-0.5, -0.1), (0.6, 0.5)]),
        (0.5, [(0.5, 0.75), (0.75, 0.75)]),
    ],
}  # fmt: skip


def _stroke_distance(x, y, points):
    """Return distances of points of a grid from a polyline (or from a point)."""
    starts, ends = (points, points) if len(points) == 1 else (points[:-1], points[1:])
    nearest = np.full(x.shape, np.inf)
    for (x_0, y_0), (x_1, y_1) in zip(starts, ends, strict=True):
        d_x, d_y = x_1 - x_0, y_1 - y_0
        along = (x - x_0) * d_x + (y - y_0) * d_y
        along = np.clip(along / max(d_x**2 + d_y**2, 1e-12), 0, 1)
        distance = np.hypot(x - x_0 - along * d_x, y - y_0 - along * d_y)
        nearest = np.minimum(nearest, distance)
    return nearest


@lru_cache(maxsize=1)
def glyph_atlas():
    """Return all rendered pictograms, of shape (n_glyphs, 32, 32), dtype float32.

    Entries are the ink in each pixel, in [0, 1]; first `GLYPHS`, then `UNSEEN_GLYPHS`.
    The array is shared by all callers, and read-only.
    """
    pixel = 2 * _HALF / _SIDE
    axis = (np.arange(_SIDE) + 0.5) * pixel - _HALF
    y, x = np.meshgrid(axis, axis, indexing="ij")
    all_glyphs = [*GLYPHS.values(), *UNSEEN_GLYPHS.values()]
    atlas = np.zeros((len(all_glyphs), _SIDE, _SIDE), dtype=np.float32)
    for picture, strokes in zip(atlas, all_glyphs, strict=True):
        for width, points in strokes:
            outside = _stroke_distance(x, y, points) - width / 2
            np.maximum(picture, np.clip(0.5 - outside / pixel, 0, 1), out=picture)
    atlas.setflags(write=False)
    return atlas


def sample_glyphs(codes, x, y):
    """Interpolate pictograms bilinearly at points; zero outside the frame.

    `codes` of shape (n_images,) are indices of the atlas; `x` and `y` of shape
    (n_images, height, width), float32, are points in the frame of the strokes. Returns
    ink in [0, 1], of the shape of `x`, float32.
    """
    scale = np.float32(_SIDE / (2 * _HALF))
    column = np.clip(x * scale + np.float32(_SIDE / 2 - 0.5), 0, _SIDE - 1.001)
    row = np.clip(y * scale + np.float32(_SIDE / 2 - 0.5), 0, _SIDE - 1.001)
    left, top = column.astype(np.int32), row.astype(np.int32)
    column -= left
    row -= top
    first = codes.astype(np.int32)[:, None, None] * (_SIDE * _SIDE)
    first = first + top * _SIDE + left
    ink = glyph_atlas().ravel()
    upper = ink[first] + column * (ink[first + 1] - ink[first])
    first += _SIDE
    lower = ink[first] + column * (ink[first + 1] - ink[first])
    return upper + row * (lower - upper)

"""
=====================================================
Traffic signs: geometry, backgrounds and camera
=====================================================

All functions take a block of images of shape (n_images, 3, 32, 32), float32 in
[0, 1], and draw from a NumPy generator. Edges are antialiased: the color of a pixel
depends on its distance inside the edge.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np
from _sign_glyphs import sample_glyphs

SIDE = 32
SHAPES = ("circle", "triangle", "inverted_triangle", "octagon", "diamond", "square")
COLORS = ("red", "blue", "yellow", "white")
STYLES = ("rim", "frame", "plain")  # colored rim; white frame; neither

_RGB = np.array(
    [[0.76, 0.09, 0.12], [0.07, 0.27, 0.66], [0.94, 0.74, 0.09], [0.92, 0.92, 0.91],
     [0.07, 0.07, 0.08]], dtype=np.float32
)  # fmt: skip
_RED, _BLUE, _YELLOW, _WHITE, _BLACK = range(5)
_RIM_WIDTH = {"rim": 0.2, "frame": 0.09, "plain": 0.0}
# half the side of the pictogram, and its vertical offset; the radius of the sign is 1
_GLYPH_PLACE = {
    "circle": (0.6, 0.0),
    "triangle": (0.41, 0.26),
    "inverted_triangle": (0.41, -0.26),
    "octagon": (0.72, 0.0),
    "diamond": (0.52, 0.0),
    "square": (0.66, 0.0),
}


def _uniform(rng, low, high, size):
    """Draw float32 numbers between two bounds."""
    return rng.random(size, dtype=np.float32) * np.float32(high - low) + np.float32(low)


def _grid(n_images):
    """Return the coordinates of pixel centers, from -1 to 1, each (1, 32, 32)."""
    axis = ((np.arange(SIDE, dtype=np.float32) + 0.5) * (2 / SIDE) - 1)[None]
    return axis[:, None, :], axis[:, :, None]


def _blend(images, color, coverage):
    """Blend a color for each image, (n, 3), into the images, in place."""
    coverage = coverage[:, None]
    images += coverage * (color[:, :, None, None] - images)


def shape_distance(shape, x, y):
    """Return the signed distance from the edge of a sign of radius 1; y goes down.

    Negative and exact inside; outside, edges are extended at corners.
    """
    if shape == "circle":
        return np.sqrt(x * x + y * y) - np.float32(1)
    if shape == "inverted_triangle":
        return shape_distance("triangle", x, -y)
    x, y = np.abs(x), (y if shape == "triangle" else np.abs(y))
    half = np.float32(np.sqrt(0.5))
    if shape == "triangle":
        y = y - np.float32(0.3)
        sides = x * np.float32(np.sqrt(0.75)) - np.float32(0.5) * y
        return np.maximum(y, sides) - np.float32(0.62)
    if shape == "octagon":
        return np.maximum(np.maximum(x, y), half * (x + y)) - np.float32(0.95)
    if shape == "diamond":
        return half * (x + y) - np.float32(0.76)
    return np.maximum(x, y) - np.float32(0.88)


def _sign_colors(style, color, rng):
    """Return colors of rim, ground and pictogram of each sign, randomly faded."""
    n_images = len(color)
    light = (color == _WHITE) | (color == _YELLOW)
    is_rim = style == STYLES.index("rim")
    codes = np.stack([
        np.where(is_rim, color, _WHITE),
        np.where(is_rim, _WHITE, color),
        np.where(is_rim | light, _BLACK, _WHITE),
    ])  # fmt: skip
    faded = _uniform(rng, 0, 0.5, (1, n_images, 1))
    rgb = _RGB[codes] + np.float32(0.04) * rng.standard_normal(
        (3, n_images, 3), dtype=np.float32
    )
    gray = _uniform(rng, 0.35, 0.65, (1, n_images, 1))
    return rgb + faded * (gray - rgb)


def draw_signs(images, shape, color, style, glyph, rotation, rng):
    """Draw a sign at a random place, size, angle and view into each image, in place.

    `shape`, `color`, `style` and `glyph` are codes (n_images,); `rotation` is in
    degrees.
    """
    n_images = len(images)
    row = (n_images, 1, 1)
    radius = _uniform(rng, 0.64, 0.86, row)
    width = radius * _uniform(rng, 0.8, 1.0, row)  # seen from the side
    angle = np.deg2rad(_uniform(rng, -rotation, rotation, row))
    u, v = _grid(n_images)
    u = u - (np.float32(0.95) - radius) * _uniform(rng, -1, 1, row)
    v = v - (np.float32(0.95) - radius) * _uniform(rng, -1, 1, row)
    cos, sin = np.cos(angle), np.sin(angle)
    x, y = (u * cos + v * sin) / width, (v * cos - u * sin) / radius
    sharpness = np.sqrt(width * radius) * np.float32(SIDE / 2)  # pixels per radius
    distance = np.empty((n_images, SIDE, SIDE), dtype=np.float32)
    size, down = np.empty(row, np.float32), np.empty(row, np.float32)
    for code, name in enumerate(SHAPES):
        rows = shape == code
        distance[rows] = shape_distance(name, x[rows], y[rows])
        size[rows], down[rows] = _GLYPH_PLACE[name]
    rim = np.array([_RIM_WIDTH[name] for name in STYLES], dtype=np.float32)
    outside = distance * sharpness
    inside = (distance + rim[style][:, None, None]) * sharpness
    half = np.float32(0.5)
    ink = sample_glyphs(glyph, x / size, (y - down) / size)
    rim_rgb, ground_rgb, ink_rgb = _sign_colors(style, color, rng)
    _blend(images, rim_rgb, np.clip(half - outside, 0, 1))
    inside = np.clip(half - inside, 0, 1)
    _blend(images, ground_rgb, inside)
    _blend(images, ink_rgb, inside * ink)


def _smooth_field(n_images, n_knots, rng):
    """Return smooth random fields, (n, 3, 32, 32), each about within -1 to 1."""
    knots = rng.standard_normal((n_images, 1, n_knots, n_knots), dtype=np.float32)
    tints = rng.standard_normal((n_images, 3, n_knots, n_knots), dtype=np.float32)
    knots = np.float32(0.45) * knots + np.float32(0.2) * tints
    place = (np.arange(SIDE) + 0.5) / SIDE * (n_knots - 1)
    gap = np.abs(place[:, None] - np.arange(n_knots))
    weights = np.where(gap < 1, 0.5 + 0.5 * np.cos(np.pi * gap), 0).astype(np.float32)
    return weights @ knots @ weights.T


def draw_backgrounds(n_images, clutter, rng):
    """Return backgrounds, not clipped: sky, ground, and clutter (walls, leaves)."""
    u, v = _grid(n_images)
    row = (n_images, 1, 1)
    images = np.empty((n_images, 3, SIDE, SIDE), dtype=np.float32)
    tint = np.array([-0.08, 0.0, 0.14], dtype=np.float32)
    images[:] = (_uniform(rng, 0.35, 0.9, (n_images, 1)) + tint)[:, :, None, None]
    tilted = v + _uniform(rng, -0.3, 0.3, row) * u - _uniform(rng, -0.9, 1.2, row)
    ground = _uniform(rng, 0.1, 0.6, (n_images, 1)) + _uniform(
        rng, -0.12, 0.12, (n_images, 3)
    )
    _blend(images, ground, np.clip(tilted * (SIDE / 2) + np.float32(0.5), 0, 1))
    for _ in range(2):  # walls, cars, other signs
        half_width, half_height = _uniform(rng, 0.1, 0.6, (2, *row))
        x = np.abs(u - _uniform(rng, -1, 1, row)) - half_width
        y = np.abs(v - _uniform(rng, -1, 1, row)) - half_height
        inside = np.clip(np.float32(0.5) - np.maximum(x, y) * (SIDE / 2), 0, 1)
        opacity = np.minimum(1, clutter * rng.random(row, dtype=np.float32))
        _blend(images, _uniform(rng, 0.05, 0.95, (n_images, 3)), inside * opacity)
    for n_knots, strength in ((4, 0.2), (16, 0.16)):
        field = _smooth_field(n_images, n_knots, rng)
        field *= strength * clutter
        images += field
    return images


def draw_textures(n_images, rng):
    """Return gratings and checkers in two colors that fill the image."""
    u, v = _grid(n_images)
    waves = []
    for _ in range(2):
        angle = _uniform(rng, 0, np.pi, (n_images, 1, 1))
        frequency = _uniform(rng, 4, 24, (n_images, 1, 1))
        phase = _uniform(rng, 0, 2 * np.pi, (n_images, 1, 1))
        waves.append(
            np.sin(frequency * (u * np.cos(angle) + v * np.sin(angle)) + phase)
        )
    mixed = np.where(rng.random((n_images, 1, 1)) < 0.5, waves[0], waves[0] * waves[1])
    steepness = _uniform(rng, 1, 6, (n_images, 1, 1))
    fraction = np.clip(np.float32(0.5) + steepness * mixed, 0, 1)
    # colors of signs, and others
    code = rng.integers(len(_RGB), size=n_images)
    next_code = (code + rng.integers(1, len(_RGB), size=n_images)) % len(_RGB)
    paint = _RGB[np.stack([code, next_code])]
    other = _uniform(rng, 0, 1, paint.shape)
    paint = np.where(rng.random((2, n_images, 1)) < 0.5, paint, other)
    images = np.empty((n_images, 3, SIDE, SIDE), dtype=np.float32)
    images[:] = paint[0][:, :, None, None]
    _blend(images, paint[1], fraction)
    return images


def draw_noise(n_images, rng):
    """Return images of independent blocks of 1, 2, 4 or 8 pixels a side."""
    side = 2 ** rng.integers(4, size=n_images)
    contrast = _uniform(rng, 0.3, 1.0, (n_images, 1, 1, 1))
    images = np.empty((n_images, 3, SIDE, SIDE), dtype=np.float32)
    for block in (1, 2, 4, 8):
        rows = side == block
        n_blocks = SIDE // block
        values = rng.random((rows.sum(), 3, n_blocks, n_blocks), dtype=np.float32)
        images[rows] = values.repeat(block, axis=2).repeat(block, axis=3)
    return np.float32(0.5) + contrast * (images - np.float32(0.5))


def put_obstacles(images, fraction, rng):
    """Hide a part of a `fraction` of the images by a branch or a pole, in place."""
    n_images = len(images)
    row = (n_images, 1, 1)
    u, v = _grid(n_images)
    angle = _uniform(rng, 0, 2 * np.pi, row)
    x, y = u * np.cos(angle) + v * np.sin(angle), v * np.cos(angle) - u * np.sin(angle)
    # half are bars across the image, half enter from one side
    bar = np.abs(x - _uniform(rng, -0.7, 0.7, row)) - _uniform(rng, 0.05, 0.16, row)
    edge = _uniform(rng, 0.3, 0.8, row) + np.float32(0.12) * np.sin(
        _uniform(rng, 4, 12, row) * y
    )
    distance = np.where(rng.random(row) < 0.5, bar, edge - x)
    coverage = np.clip(np.float32(0.5) - distance * (SIDE / 2), 0, 1)
    coverage *= rng.random(row) < fraction
    paint = _uniform(rng, 0.05, 0.5, (n_images, 1)) + _uniform(
        rng, -0.05, 0.1, (n_images, 3)
    )
    _blend(images, paint, coverage)


@dataclass(frozen=True)
class Camera:
    """Lighting (darkness, gradients, casts of color, haze), blur (0 to 1) and noise."""

    lighting: float
    blur: float
    noise: float

    def take(self, images, rng):
        """Apply lighting, blur and noise to images (n, 3, 32, 32), in place."""
        n_images = len(images)
        self._light(images, rng)
        amount = _uniform(rng, 0, 0.22 * self.blur, (n_images, 1, 1, 1))
        for _ in range(2):
            _blur_axis(images, amount, axis=2)
            _blur_axis(images, amount, axis=3)
        deviation = _uniform(rng, 0, self.noise, (n_images, 1, 1, 1))
        noise = rng.standard_normal(images.shape, dtype=np.float32)
        noise *= deviation
        images += noise
        np.clip(images, 0, 1, out=images)

    def _light(self, images, rng):
        """Multiply by light that varies over the image, and add haze, in place."""
        n_images, s = len(images), self.lighting
        row = (n_images, 1, 1)
        u, v = _grid(n_images)
        slope_x, slope_y = _uniform(rng, -0.25 * s, 0.25 * s, (2, *row))
        light = np.exp(_uniform(rng, -0.75 * s, 0.15 * s, row))
        light = light * (1 + slope_x * u + slope_y * v)
        images *= light[:, None]
        images *= np.exp(_uniform(rng, -0.22 * s, 0.22 * s, (n_images, 3, 1, 1)))
        haze = _uniform(rng, 0, min(1, 0.3 * s), (n_images, 1, 1, 1))
        images += haze * (np.float32(0.6) - images)


def _blur_axis(images, amount, axis):
    """Average each pixel with its neighbors along an axis, in place."""
    first = np.take(images, [0], axis=axis)
    last = np.take(images, [-1], axis=axis)
    padded = np.concatenate([first, images, last], axis=axis)
    take = [slice(None)] * 4
    take[axis] = slice(0, -2)
    before = padded[tuple(take)]
    take[axis] = slice(2, None)
    after = padded[tuple(take)]
    images += amount * (before + after - 2 * images)

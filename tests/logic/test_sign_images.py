"""Tests of the geometry, the pictograms and the camera of `make_traffic_signs`."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import itertools

import numpy as np
import pytest
from _sign_glyphs import (
    GLYPHS,
    UNSEEN_GLYPHS,
    _stroke_distance,
    glyph_atlas,
    sample_glyphs,
)
from _sign_images import (
    COLORS,
    SHAPES,
    STYLES,
    Camera,
    _blur_axis,
    draw_backgrounds,
    draw_noise,
    draw_signs,
    draw_textures,
    put_obstacles,
    shape_distance,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import map_coordinates

from tests._loops import looped

AREAS = {  # closed forms for the inradii
    "circle": np.pi,
    "triangle": 3 * np.sqrt(3) * 0.62**2,
    "inverted_triangle": 3 * np.sqrt(3) * 0.62**2,
    "octagon": 8 * np.tan(np.pi / 8) * 0.95**2,
    "diamond": 4 * 0.76**2,
    "square": 4 * 0.88**2,
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def codes(n_images, shape="circle", color="red", style="rim", glyph=0):
    values = SHAPES.index(shape), COLORS.index(color), STYLES.index(style), glyph
    return np.tile(np.array(values)[:, None], (1, n_images))


def masks(n_images, shape, rotation, rng):
    """How much of each pixel a white sign without rim covers, by a black ground."""
    images = np.zeros((n_images, 3, 32, 32), dtype=np.float32)
    look = codes(n_images, shape, "white", "plain")
    draw_signs(images, *look, rotation, rng)
    brightest = images.max(axis=(2, 3), keepdims=True)
    return (images / brightest).mean(axis=1)


def n_colors(image):
    """The dimension of the space that the colors of an image span, around one."""
    pixels = image.reshape(3, -1).T.astype(np.float64)
    return np.linalg.matrix_rank(pixels - pixels[0], tol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_area_within_the_edge(shape):
    axis = (np.arange(2000) + 0.5) / 800 - 1.25
    inside = shape_distance(shape, axis[None, :], axis[:, None]) < 0
    assert inside.sum() / 800**2 == pytest.approx(AREAS[shape], rel=3e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_distance_grows_by_1_per_unit(shape, rng):
    """The gradient of a distance has length 1, everywhere but on its ridges."""
    x, y = rng.uniform(-1, 1, size=(2, 200))
    h = 1e-6
    d_x = shape_distance(shape, x + h, y) - shape_distance(shape, x - h, y)
    d_y = shape_distance(shape, x, y + h) - shape_distance(shape, x, y - h)
    assert_allclose(np.hypot(d_x, d_y) / (2 * h), 1, atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "corner"),
    [
        ("circle", (0.6, 0.8)),
        ("triangle", (0, 0.3 - 2 * 0.62)),
        ("inverted_triangle", (0, 2 * 0.62 - 0.3)),
        ("octagon", (0.95, 0.95 * np.tan(np.pi / 8))),
        ("diamond", (0, -0.76 * np.sqrt(2))),
        ("square", (-0.88, 0.88)),
    ],
)
def test_corners_lie_on_the_edge(shape, corner):
    x, y = np.array([corner[0]]), np.array([corner[1]])
    assert_allclose(shape_distance(shape, x, y), 0, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("circle", 16 * np.pi**2),
        ("triangle", 108.0),
        ("inverted_triangle", 108.0),
        ("octagon", 8 / ((2 + np.sqrt(0.5)) / 12) ** 2),
        ("diamond", 144.0),
        ("square", 144.0),
    ],
)
def test_shapes_by_their_moments(shape, expected, rng):
    """Squared area over the variances of x and y depends on neither size nor view."""
    place = np.arange(32)
    for mask in masks(40, shape, 0, rng):
        mask = mask.astype(np.float64) / mask.sum() * (area := mask.sum())
        variances = []
        for axis in (0, 1):
            weights = mask.sum(axis=axis) / area
            mean = weights @ place
            variances.append(weights @ (place - mean) ** 2 - 1 / 12)
        assert area**2 / np.prod(variances) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [("circle", np.pi / 4), ("octagon", 2 * np.tan(np.pi / 8)), ("square", 1.0)],
)
def test_shapes_by_the_share_of_their_box(shape, expected, rng):
    """The longest row and column, summed up, are the sides of the box."""
    boxes = [(m.sum(), m.sum(axis=0).max() * m.sum(axis=1).max()) for m in
             masks(100, shape, 0, rng)]  # fmt: skip
    shares = [area / box for area, box in boxes]
    assert np.mean(shares) == pytest.approx(expected, abs=0.01)


def test_triangles_stand_on_their_base_or_their_point(rng):
    """The center of mass is a sixth of the height off the middle."""
    for shape, sign in (("triangle", 1), ("inverted_triangle", -1)):
        for mask in masks(20, shape, 0, rng):
            weights = mask.sum(axis=1)
            rows = np.flatnonzero(weights > 0.2)
            height = rows[-1] - rows[0] + 1
            center = weights @ np.arange(32) / weights.sum()
            offset = center - (rows[0] + rows[-1]) / 2
            assert sign * offset / height == pytest.approx(1 / 6, abs=0.04)


def test_squares_are_turned_by_the_angle(rng):
    """Upright: coverage is a product of a row's and a column's. Else it is not."""
    upright = [np.linalg.svd(m)[1] for m in masks(20, "square", 0, rng)]
    assert max(s[1] / s[0] for s in upright) < 0.02
    turned = [np.linalg.svd(m)[1] for m in masks(200, "square", 45, rng)]
    assert np.mean([s[1] / s[0] for s in turned]) > 0.1


@looped("style", STYLES)
@looped("color", COLORS)
def test_colors_of_rim_and_ground(style, color, rng):
    """At the center is the ground; rims show between it and what lies behind."""
    images = np.zeros((400, 3, 32, 32), dtype=np.float32)
    draw_signs(images, *codes(400, "square", color, style), 0, rng)
    center = images[:, :, 15:17, 15:17].mean(axis=(0, 2, 3))
    pure = {"red": (0.76, 0.09, 0.12), "blue": (0.07, 0.27, 0.66),
            "yellow": (0.94, 0.74, 0.09), "white": (0.92, 0.92, 0.91)}  # fmt: skip
    ground = "white" if style == "rim" else color
    # a quarter of the mean fading towards the mean gray
    expected = 0.75 * np.array(pure[ground]) + 0.25 * 0.5
    assert_allclose(center, expected, atol=0.02)


def test_widths_of_rims():
    """Shares of the area of a square sign that are red, by the widths of rims."""
    areas = {}
    for style in STYLES:
        images = np.zeros((100, 3, 32, 32), dtype=np.float32)
        look = codes(100, "square", "red", style)
        draw_signs(images, *look, 0, np.random.default_rng(0))  # the same places
        redness = images[:, 0] - images[:, 1]
        areas[style] = redness.sum(axis=(1, 2)) / redness.max(axis=(1, 2))
    rim, frame = areas["rim"] / areas["plain"], areas["frame"] / areas["plain"]
    assert rim.mean() == pytest.approx(1 - (1 - 0.2 / 0.88) ** 2, abs=0.03)
    assert frame.mean() == pytest.approx((1 - 0.09 / 0.88) ** 2, abs=0.03)


@pytest.mark.parametrize(
    ("style", "color", "sign"),
    [
        ("rim", "red", -1),
        ("plain", "white", -1),
        ("frame", "yellow", -1),
        ("frame", "blue", 1),
        ("frame", "red", 1),
    ],
)
def test_pictograms_are_light_on_dark_and_dark_on_light(style, color, sign):
    pictures = []
    for glyph in (0, 2):  # nothing, and a bar
        images = np.zeros((50, 3, 32, 32), dtype=np.float32)
        look = codes(50, "circle", color, style, glyph)
        draw_signs(images, *look, 0, np.random.default_rng(1))  # the same places
        pictures.append(images.mean(axis=1))
    change = sign * (pictures[1] - pictures[0])
    assert change.min() > -1e-6
    assert change.max(axis=(1, 2)).min() > 0.1


def test_background_without_clutter_has_two_colors(rng):
    for image in draw_backgrounds(20, 0.0, rng):
        assert n_colors(image) <= 1
    assert n_colors(draw_backgrounds(1, 1.0, rng)[0]) == 3


def test_textures_have_two_colors(rng):
    images = draw_textures(50, rng)
    assert [n_colors(image) for image in images] == [1] * 50
    assert images.min() >= 0
    assert images.max() <= 1


def test_noise_comes_in_blocks(rng):
    images = draw_noise(400, rng)
    assert images.mean() == pytest.approx(0.5, abs=0.01)
    sides = []
    for image in images:
        changes = np.flatnonzero(np.any(np.diff(image, axis=2) != 0, axis=(0, 1))) + 1
        sides.append(np.gcd.reduce(changes))
        assert_array_equal(changes, np.arange(sides[-1], 32, sides[-1]))
        below = np.any(np.diff(image, axis=1) != 0, axis=(0, 2))
        assert_array_equal(np.flatnonzero(below) + 1, changes)
    assert_allclose(np.bincount(sides)[[1, 2, 4, 8]] / 400, 0.25, atol=0.07)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_share_of_images_with_obstacles(share, rng):
    images = np.ones((2000, 3, 32, 32), dtype=np.float32)
    put_obstacles(images, share, rng)
    hidden = np.any(images != 1, axis=(1, 2, 3))
    assert hidden.mean() == pytest.approx(share, abs=0.03)
    covered = (images[hidden].mean(axis=1) < 0.99).mean(axis=(1, 2))
    assert share == 0 or 0.05 < covered.mean() < 0.3


def test_camera_without_effects_changes_nothing(rng):
    images = rng.random((5, 3, 32, 32), dtype=np.float32)
    before = images.copy()
    Camera(lighting=0.0, blur=0.0, noise=0.0).take(images, rng)
    assert_array_equal(images, before)


def test_blur_is_a_weighted_sum_of_neighbors(rng):
    images = rng.random((2, 3, 6, 6)).astype(np.float32)
    amount = np.array([0.1, 0.25], dtype=np.float32).reshape(2, 1, 1, 1)
    padded = np.pad(images, [(0, 0), (0, 0), (0, 0), (1, 1)], mode="edge")
    neighbors = padded[..., :-2] + padded[..., 2:]
    expected = (1 - 2 * amount) * images + amount * neighbors
    down = images.transpose(0, 1, 3, 2).copy()
    _blur_axis(images, amount, axis=3)
    assert_allclose(images, expected, atol=1e-6)
    _blur_axis(down, amount, axis=2)
    assert_array_equal(down, images.transpose(0, 1, 3, 2))


def test_blur_smooths_and_keeps_the_mean(rng):
    images = draw_noise(50, rng)
    blurred = images.copy()
    Camera(lighting=0.0, blur=1.0, noise=0.0).take(blurred, rng)
    assert blurred.mean() == pytest.approx(images.mean(), abs=5e-3)
    steps = [np.abs(np.diff(x, axis=3)).mean() for x in (images, blurred)]
    assert steps[1] < 0.8 * steps[0]


def test_noise_of_the_camera_has_at_most_the_standard_deviation(rng):
    images = np.full((500, 3, 32, 32), 0.5, dtype=np.float32)
    Camera(lighting=0.0, blur=0.0, noise=0.1).take(images, rng)
    deviations = images.std(axis=(1, 2, 3))
    assert deviations.max() < 0.105
    assert deviations.mean() == pytest.approx(0.05, abs=0.003)
    assert images.mean() == pytest.approx(0.5, abs=1e-3)


def test_light_darkens_and_haze_brightens_the_dark(rng):
    gray = np.full((500, 3, 32, 32), 0.5, dtype=np.float32)
    Camera(lighting=1.0, blur=0.0, noise=0.0).take(gray, rng)
    means = gray.mean(axis=(1, 2, 3))
    assert means.mean() < 0.45
    assert means.std() > 0.05
    black = np.zeros((500, 3, 32, 32), dtype=np.float32)
    Camera(lighting=1.0, blur=0.0, noise=0.0).take(black, rng)
    # haze is uniform up to 0.3, of a gray of 0.6
    assert black.max() <= 0.18 + 1e-6
    assert black.mean() == pytest.approx(0.09, abs=0.01)
    strong = np.zeros((20, 3, 32, 32), dtype=np.float32)
    Camera(lighting=50.0, blur=0.0, noise=0.0).take(strong, rng)
    assert strong.max() <= 0.6 + 1e-6


NAMES = [*GLYPHS, *UNSEEN_GLYPHS]
PIXEL = 2.5 / 32


def picture(name):
    return glyph_atlas()[NAMES.index(name)]


def test_distance_from_a_polyline_by_a_naive_loop():
    """The smallest distance from many points along the line."""
    points = [(-0.5, 0.2), (0.3, 0.7), (0.3, -0.9)]
    corners = np.array(points)
    t = np.linspace(0, 1, 20001)[:, None]
    parts = itertools.pairwise(corners)
    line = np.concatenate([a + t * (b - a) for a, b in parts])
    where = np.random.default_rng(0).uniform(-1, 1, size=(30, 2))
    naive = [np.hypot(*(line - point).T).min() for point in where]
    assert_allclose(_stroke_distance(*where.T, points), naive, atol=1e-6)


def test_distance_from_a_point_is_that_of_a_disc():
    x, y = np.array([0.3, -1.0]), np.array([0.0, 0.4])
    expected = [np.hypot(0.2, 0.2), np.hypot(1.1, 0.6)]
    assert_allclose(_stroke_distance(x, y, [(0.1, -0.2)]), expected)


def test_ink_covers_the_area_of_the_strokes():
    """A bar with round ends: length times width, and a disc."""
    expected = 1.6 * 0.42 + np.pi * 0.21**2
    assert picture("bar").sum() * PIXEL**2 == pytest.approx(expected, abs=0.02)


def test_pictures_are_gray_values_with_an_empty_margin():
    atlas = glyph_atlas()
    assert atlas.dtype == np.float32
    assert atlas.min() == 0
    assert atlas.max() == 1
    for edge in (atlas[:, 0], atlas[:, -1], atlas[:, :, 0], atlas[:, :, -1]):
        assert not edge.any()
    with pytest.raises(ValueError, match="read-only"):
        atlas[0] = 1


def test_only_the_picture_without_strokes_is_empty():
    filled = glyph_atlas().any(axis=(1, 2))
    assert_array_equal(~filled, [name == "" for name in NAMES])


def test_all_pictures_differ():
    atlas = glyph_atlas()
    for i in range(len(atlas)):
        for j in range(i):
            assert np.abs(atlas[i] - atlas[j]).sum() > 20, (NAMES[i], NAMES[j])


@pytest.mark.parametrize("name", ["curve", "turn"])
def test_left_is_right_mirrored(name):
    assert_allclose(
        picture(f"{name}_left"), picture(f"{name}_right")[:, ::-1], atol=1e-6
    )


def test_samples_at_centers_of_pixels_are_the_pictures():
    axis = ((np.arange(32) + 0.5) * PIXEL - 1.25).astype(np.float32)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    ink = sample_glyphs(np.array([3, 8]), np.stack([x, x]), np.stack([y, y]))
    assert ink.dtype == np.float32
    assert_allclose(ink, glyph_atlas()[[3, 8]], atol=2e-3)


def test_samples_are_linear_between_pixels():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1.2, 1.2, size=(2, 1, 20, 20)).astype(np.float32)
    code = NAMES.index("walker")
    where = [(y[0] + 1.25) / PIXEL - 0.5, (x[0] + 1.25) / PIXEL - 0.5]
    expected = map_coordinates(glyph_atlas()[code], where, order=1)
    assert_allclose(sample_glyphs(np.array([code]), x, y)[0], expected, atol=1e-4)


def test_there_is_no_ink_far_out():
    far = np.array([[[-50, -1.3, 1.3, 50]]], dtype=np.float32)
    codes = np.array([NAMES.index("cross")])
    for x, y in ((far, 0 * far), (0 * far, far), (far, far)):
        assert_allclose(sample_glyphs(codes, x, y), 0, atol=1e-6)

"""Tests of the pictograms of traffic signs."""

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
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import map_coordinates

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

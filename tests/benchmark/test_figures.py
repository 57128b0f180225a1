"""Tests of the drawings of a report: where their lines are."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skood.benchmark._report import (
    N_COLORS,
    N_DASHES,
    _corners,
    curves,
    histogram,
    key,
    roc,
    style,
)

RNG = np.random.RandomState(0)


def corners(svg, name):
    """Points of the line or polygon of a class."""
    (points,) = re.findall(rf'class="{name}" points="([^"]*)"', svg)
    return np.array([[float(n) for n in pair.split(",")] for pair in points.split()])


def test_roc_by_hand():
    id_scores, ood_scores = RNG.randint(6, size=30), RNG.randint(-2, 4, size=20)
    fpr, tpr = roc(id_scores.astype(float), ood_scores.astype(float))
    expected = [(0, 0)]
    for cut in sorted({*id_scores, *ood_scores}, reverse=True):
        expected.append((np.mean(ood_scores >= cut), np.mean(id_scores >= cut)))
    assert_allclose(np.column_stack([fpr, tpr]), expected, rtol=1e-12)


def test_roc_of_infinite_scores():
    fpr, tpr = roc(np.array([np.inf, 0.0]), np.array([-np.inf, np.inf]))
    assert_allclose(fpr, [0, 0.5, 0.5, 1])
    assert_allclose(tpr, [0, 0.5, 1, 1])


def test_no_two_of_many_styles_are_alike():
    pairs = [tuple(style(i).split()[1:]) for i in range(N_COLORS * N_DASHES)]
    assert len(set(pairs)) == N_COLORS * N_DASHES
    assert style(9).startswith("s9 ")
    assert style(9) in key(9)


def distance(point, places):
    """How far a point is from a line through places, by brute force."""
    t = np.linspace(0, 1, 400)[:, None]
    line = np.concatenate([a + t * (b - a) for a, b in pairwise(places)])
    return np.linalg.norm(line - point, axis=1).min()


def test_drawn_line_is_near_its_points():
    steps = RNG.exponential(size=(150, 2)) * (RNG.rand(150, 1) < [[0.5, 2]])
    places = np.cumsum(steps, axis=0)
    accepted = _corners(places)
    assert accepted[0]
    assert accepted[-1]
    assert accepted.sum() < 130
    for point in places[~accepted]:
        assert distance(point, places[accepted]) <= 0.41
    straight = np.linspace([0, 0], [10, 20], 30)
    assert _corners(straight).sum() == 2
    there_and_back = np.array([[0.0, 0], [5, 0], [0, 0]])
    assert _corners(there_and_back).all()


def test_curves_are_in_the_frame():
    x = np.array([0.0, 0.25, 1.0])
    svg = curves(
        "what is seen",
        {"<a>": (3, x, np.array([0.0, 1.0, 8.0]))},
        "across",
        "up & down",
        y_max=2.0,
        diagonal=True,
    )
    (frame,) = re.findall(
        r'class="frame" x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', svg
    )
    left, top, width, height = map(int, frame)
    expected = [(0, 1), (0.25, 0.5), (1, 0)]  # what is too high ends at the top
    assert_allclose(
        corners(svg, f"curve {style(3)}"),
        [(left + a * width, top + b * height) for a, b in expected],
        atol=0.05,
    )
    assert_allclose(
        corners(svg, "guide"), [(left, top + height), (left + width, top)], atol=0.05
    )
    for subset in ("<title>&lt;a&gt;</title>", ">up &amp; down<", ">0.5</text>", ">2<"):
        assert subset in svg
    assert 'role="img" aria-label="what is seen"' in svg


def test_histogram_by_hand():
    id_scores = np.concatenate([RNG.normal(3, 1, 300), [50.0, np.inf]])
    ood_scores = np.concatenate([RNG.normal(0, 1, 200), [-np.inf]])
    svg = histogram("h", id_scores, ood_scores)
    finite = np.concatenate([id_scores[:-1], ood_scores[:-1]])
    low, high = np.quantile(finite, [0.005, 0.995])
    shares = []
    for scores in (id_scores, ood_scores):
        counts = [0] * 40
        for score in scores:
            bin_ = int((min(max(score, low), high) - low) / (high - low) * 40)
            counts[min(bin_, 39)] += 1
        shares.append(np.sqrt(np.array(counts) / len(scores)))
    for subset, kind in zip(shares, ("id", "ood"), strict=True):
        drawn = corners(svg, kind)
        at_top, bottom = drawn[:, 1].min(), drawn[:, 1].max()
        assert bottom == 100
        height = 100 - 4
        assert at_top == pytest.approx(
            100 - height * subset.max() / np.max(shares), abs=0.06
        )
        # the height in the middle of each bin
        middles = 6 + (np.arange(40) + 0.5) / 40 * (220 - 12)
        order = np.interp(middles, drawn[:, 0], drawn[:, 1])
        assert_allclose(order, 100 - height * subset / np.max(shares), atol=0.6)
    cut = (np.quantile(np.clip(id_scores, low, high), 0.05) - low) / (high - low)
    assert_allclose(corners(svg, "cut")[:, 0], 6 + cut * (220 - 12), atol=0.06)
    assert f">{high:.3g}<" in svg
    assert f">−{-low:.3g}<" in svg


@pytest.mark.parametrize("value", [0.0, 1e300, -7.0, np.inf])
def test_histogram_of_a_single_score(value):
    svg = histogram("h", np.full(3, value), np.full(2, value))
    assert "nan" not in svg
    assert "inf" not in svg.replace("info", "")
    assert np.isfinite(corners(svg, "ood")).all()


def test_ends_that_are_zero_but_for_rounding():
    svg = histogram("h", np.linspace(-5, -1e-9, 50), np.linspace(-5, -1e-9, 50))
    assert ">0</text>" in svg

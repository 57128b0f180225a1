"""Tests of `make_traffic_signs` of the examples."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from _sign_glyphs import GLYPHS, UNSEEN_GLYPHS
from _sign_images import COLORS, SHAPES, STYLES
from _traffic_signs import _LOOKS, _OOD_KINDS, _SIGNS, _other_looks, make_traffic_signs
from numpy.testing import assert_array_equal

from skood.logic import KnowledgeBase
from skood.utils._labels import ood_mask

NAMES = ["class", "color", "shape"]
CLEAR = {
    "rotation": 0.0,
    "occlusion": 0.0,
    "clutter": 0.0,
    "lighting": 0.0,
    "blur": 0.0,
    "noise": 0.0,
}


@pytest.fixture(scope="module")
def signs():
    return make_traffic_signs(1200, ood=0.5, random_state=0)


@pytest.fixture(scope="module")
def rules(signs):
    """Color and shape of each class, read off the text of the constraints."""
    table = {}
    for rule in signs.constraints:
        left, right = rule.split(" -> ")
        color, shape = right.split(" and ")
        table[left.removeprefix("class=")] = (
            color.removeprefix("color="),
            shape.removeprefix("shape="),
        )
    return table


def test_images(signs):
    assert signs.data.shape == (1200, 3, 32, 32)
    assert signs.data.dtype == np.float32
    assert signs.data.min() == 0
    assert signs.data.max() == 1
    assert np.all(signs.data.std(axis=(1, 2, 3)) > 0.01)
    assert len(np.unique(signs.data.mean(axis=(1, 2, 3)))) == 1200
    assert "1200 drawn images of traffic signs of 29 classes, 600" in signs.DESCR


def test_domains_name_all_values(signs):
    assert signs.concept_names == list(signs.domains) == NAMES
    is_id = ~signs.is_ood
    for column, values in zip(signs.concepts.T, signs.domains.values(), strict=True):
        assert set(column[is_id]) == set(values)
        assert len(set(values)) == len(values)
    assert len(signs.domains["class"]) == len(signs.constraints) == 29


def test_rules_hold_for_id_samples(signs, rules):
    assert signs.constraints[0] == "class=stop -> color=red and shape=octagon"
    for name, color, shape in signs.concepts[~signs.is_ood]:
        assert rules[name] == (color, shape)
    assert_array_equal(signs.drawn[~signs.is_ood], signs.concepts[~signs.is_ood])
    assert set(rules) == set(signs.domains["class"])


def test_rules_in_the_room_of_logic(signs):
    base = KnowledgeBase(signs.constraints, signs.domains)
    is_id = ~signs.is_ood
    assert base.truth(base.encode(signs.concepts[is_id])).all()
    for kind in ("color", "shape"):
        truth = base.truth(base.encode(signs.drawn[signs.ood_kind == kind]))
        assert_array_equal((~truth).sum(axis=1), 1)


def test_classes_share_colors_and_shapes():
    """No concept but the class gives away another one."""
    pairs = {look[:2] for look in _SIGNS.values()}
    for column, values in enumerate((COLORS, SHAPES)):
        shared = [sum(pair[column] == value for pair in pairs) for value in values]
        assert max(shared) >= 3
    assert len(pairs) < len(_SIGNS)


def test_ood_samples_have_the_label_in_all_columns(signs):
    assert signs.target.dtype == signs.concepts.dtype == object
    assert_array_equal(ood_mask(signs.target), signs.is_ood)
    for column in signs.concepts.T:
        assert_array_equal(ood_mask(column), signs.is_ood)
    assert_array_equal(signs.target, signs.concepts[:, 0])
    assert_array_equal(signs.ood_kind != "id", signs.is_ood)


def test_text_as_label_of_ood_samples():
    signs = make_traffic_signs(60, ood=0.5, ood_label="none", random_state=0)
    assert signs.concepts.dtype.kind == signs.target.dtype.kind == "U"
    assert_array_equal(ood_mask(signs.target, ood_label="none"), signs.is_ood)
    assert_array_equal(signs.concepts[signs.is_ood], "none")


def test_changed_signs_break_their_rule_by_a_single_concept(signs, rules):
    for kind, other in (("color", 1), ("shape", 0)):
        drawn = signs.drawn[signs.ood_kind == kind]
        assert len(drawn) == 100
        for name, *look in drawn:
            assert [a != b for a, b in zip(look, rules[name], strict=True)] == [
                other == 1,
                other == 0,
            ]


def test_unknown_pictograms_keep_color_and_shape_of_a_class(signs, rules):
    drawn = signs.drawn[signs.ood_kind == "pictogram"]
    assert set(drawn[:, 0]) == {""}
    assert {tuple(look) for look in drawn[:, 1:]} <= set(rules.values())
    assert set(GLYPHS).isdisjoint(UNSEEN_GLYPHS)


def test_nothing_is_drawn_without_a_sign(signs):
    rows = np.isin(signs.ood_kind, ["texture", "noise", "natural"])
    assert rows.sum() == 300
    assert set(signs.drawn[rows].ravel()) == {""}
    assert np.all(signs.drawn[~rows][:, 1:] != "")


@pytest.mark.parametrize(("column", "n_values"), [(0, len(SHAPES)), (1, len(COLORS))])
def test_changed_looks_are_no_look_of_a_class(column, n_values):
    """A yield sign that is round would be one of no_vehicles."""
    known = {tuple(look) for look in _LOOKS.tolist()}
    assert len(known) == len(_SIGNS)
    others = _other_looks(column, n_values)
    for look, choices in zip(_LOOKS, others, strict=True):
        assert len(choices) >= n_values - 2
        assert known.isdisjoint(tuple(choice) for choice in choices.tolist())
        assert np.all(choices[:, column] != look[column])
        assert_array_equal(np.delete(choices - look, column, axis=1), 0)
    names = list(_SIGNS)
    if column == 0:
        changed = others[names.index("yield")][:, 0]
        assert SHAPES.index("circle") not in changed
    # white signs look alike in all styles: none may look like one of a class
    white = COLORS.index("white")
    looks_of_white = {(s, g) for s, c, _, g in known if c == white}
    for choices in others:
        for shape, color, style, glyph in choices.tolist():
            if color == white and style != STYLES.index("plain"):
                assert (shape, glyph) not in looks_of_white


def read_color(image):
    """The color of a sign before a plain background, by its most colored pixels."""
    red, green, blue = image
    counts = {
        "red": np.sum((red - green > 0.2) & (red - blue > 0.2)),
        "blue": np.sum(blue - red > 0.24),
        "yellow": np.sum((red - blue > 0.2) & (green - blue > 0.15)),
    }
    best = max(counts, key=counts.get)
    return best if counts[best] > 40 else "white"


def test_pixels_have_the_color_that_is_drawn():
    ood = {"color": 0.3, "shape": 0.2}
    signs = make_traffic_signs(600, ood=ood, random_state=0, **CLEAR)
    read = [read_color(image) for image in signs.data]
    assert np.mean(np.array(read) == signs.drawn[:, 1]) > 0.99


def test_difficulty_is_set_by_the_parameters():
    """The same seed draws the same scene, whatever the camera does to it."""
    clear = make_traffic_signs(100, random_state=0, **CLEAR)
    for name, value in (
        ("rotation", 30.0),
        ("occlusion", 1.0),
        ("clutter", 1.0),
        ("lighting", 1.0),
        ("blur", 1.0),
        ("noise", 0.2),
    ):
        other = make_traffic_signs(100, random_state=0, **{**CLEAR, name: value})
        assert_array_equal(other.concepts, clear.concepts)
        changed = np.abs(other.data - clear.data).mean(axis=(1, 2, 3))
        assert np.mean(changed > 1e-4) > 0.95, name


def test_images_stay_in_range_at_the_largest_values():
    largest = dict.fromkeys(["occlusion", "blur", "noise"], 1.0)
    largest |= {"rotation": 180.0, "clutter": 10.0, "lighting": 10.0}
    data = make_traffic_signs(200, ood=0.5, random_state=0, **largest).data
    assert np.all((data >= 0) & (data <= 1))


def test_same_seed_same_images():
    first, second = (make_traffic_signs(100, ood=0.2, random_state=3) for _ in "ab")
    assert_array_equal(first.data, second.data)
    assert_array_equal(first.concepts, second.concepts)
    assert_array_equal(first.ood_kind, second.ood_kind)
    other = make_traffic_signs(100, ood=0.2, random_state=4)
    assert np.any(other.concepts != first.concepts)
    rng = np.random.RandomState(3)
    assert_array_equal(
        make_traffic_signs(100, ood=0.2, random_state=rng).data, first.data
    )
    again = make_traffic_signs(100, ood=0.2, random_state=rng)
    assert np.any(again.data != first.data)


def test_classes_are_equally_likely():
    target = make_traffic_signs(1450, random_state=0, **CLEAR).target
    counts = np.unique(target, return_counts=True)[1]
    # 50 each, give or take five standard deviations
    assert len(counts) == 29
    assert np.all(np.abs(counts - 50) < 35)


@pytest.mark.parametrize(
    ("n_samples", "ood", "expected"),
    [
        (10, 0.0, [0, 0, 0, 0, 0, 0]),
        (60, 0.5, [5, 5, 5, 5, 5, 5]),
        (10, 0.8, [2, 2, 1, 1, 1, 1]),
        (12, 1.0, [2, 2, 2, 2, 2, 2]),
        (7, 1, [2, 1, 1, 1, 1, 1]),
        (10, {"noise": 0.3}, [0, 0, 0, 0, 3, 0]),
        (10, {"natural": 0.4, "color": 0.5}, [5, 0, 0, 0, 0, 4]),
        (10, {}, [0, 0, 0, 0, 0, 0]),
        # 2.5 and 0.83 rows each: their running sums are rounded
        (5, dict.fromkeys(["color", "shape"], 0.5), [2, 3, 0, 0, 0, 0]),
        (5, dict.fromkeys(_OOD_KINDS, 1 / 6), [1, 1, 0, 1, 1, 1]),
    ],
)
def test_number_of_samples_of_each_kind(n_samples, ood, expected):
    signs = make_traffic_signs(n_samples, ood=ood, random_state=0)
    counts = [int(np.sum(signs.ood_kind == kind)) for kind in _OOD_KINDS]
    assert counts == expected
    assert signs.is_ood.sum() == sum(expected)


def test_samples_come_in_random_order(signs):
    for kind in ("id", *_OOD_KINDS):
        rows = np.flatnonzero(signs.ood_kind == kind)
        assert 400 < rows.mean() < 800


def test_frames_and_return_X_y():
    params = {"n_samples": 20, "ood": 0.3, "random_state": 0}
    signs = make_traffic_signs(**params, as_frame=True)
    assert list(signs.concepts.columns) == list(signs.drawn.columns) == NAMES
    X, y = make_traffic_signs(**params, return_X_y=True)
    assert_array_equal(X, signs.data)
    assert_array_equal(y, signs.concepts.to_numpy())
    _, y = make_traffic_signs(**params, return_X_y=True, as_frame=True)
    pd.testing.assert_frame_equal(y, signs.concepts)


def test_frames_need_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="make_traffic_signs with as_frame=True"):
        make_traffic_signs(3, as_frame=True)
    assert make_traffic_signs(3).concepts.shape == (3, 3)


def test_each_call_returns_fresh_objects():
    signs = make_traffic_signs(3, random_state=0)
    signs.domains["color"].clear()
    signs.concepts[:] = "x"
    assert signs.drawn[0, 0] != "x"
    assert signs.target[0] != "x"
    assert make_traffic_signs(3).domains["color"] == list(COLORS)


def test_memory_beyond_the_images_does_not_grow_with_them():
    extra = []
    for n_samples in (300, 900):
        tracemalloc.start()
        signs = make_traffic_signs(n_samples, ood=0.3, random_state=0)
        extra.append(tracemalloc.get_traced_memory()[1] - signs.data.nbytes)
        tracemalloc.stop()
    assert extra[1] < 1.1 * extra[0] + 2e6
    assert extra[1] < 1e8


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"ood": {"weird": 0.1}}, r"ood names \['weird'\].*Choose among \['color'"),
        ({"ood": {"noise": -0.1}}, r"numbers from 0 to 1 .* Got \{'noise': -0\.1\}"),
        ({"ood": {"noise": 0.6, "color": 0.5}}, r"whose sum is at most 1"),
        ({"ood": {"noise": "much"}}, r"whose sum is at most 1. Got \{'noise': 'much'"),
        ({"ood": 1.5}, r"'ood' parameter of make_traffic_signs must be"),
        ({"ood_label": "stop"}, r"ood_label='stop' is a value of the concept 'class'"),
        ({"ood_label": "circle"}, r"is a value of the concept 'shape'. Use another"),
        ({"n_samples": 0}, r"'n_samples' parameter of make_traffic_signs must be"),
        ({"blur": 1.5}, r"'blur' parameter of make_traffic_signs must be"),
        ({"lighting": 11.0}, r"'lighting' parameter of make_traffic_signs must be"),
        ({"noise": -1.0}, r"'noise' parameter of make_traffic_signs must be"),
    ],
)
def test_errors(params, message):
    with pytest.raises(ValueError, match=message):
        make_traffic_signs(**params)

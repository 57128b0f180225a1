"""Tests of `skood.datasets.digit_concepts` and `load_digit_concepts`."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

from skood.datasets import digit_concepts, load_digit_concepts, load_digits_ood
from skood.utils._labels import ood_mask

NAMES = ["class", "parity", "has_loop", "size", "has_curve"]
LOOPS = "0689"
CURVES = "0235689"


def test_concepts_of_all_digits():
    """The table, written down once more by other means."""
    concepts = digit_concepts(np.arange(10))
    for digit, row in enumerate(concepts.tolist()):
        text = str(digit)
        assert row == [
            text,
            "odd" if digit & 1 else "even",
            "yes" if text in LOOPS else "no",
            "small" if digit < 5 else "large",
            "yes" if text in CURVES else "no",
        ]


def test_ood_labels_stay_in_all_columns():
    assert_array_equal(
        digit_concepts([7, -1]),
        np.array([["7", "odd", "no", "large", "no"], [-1] * 5], dtype=object),
    )
    concepts = digit_concepts([7, "none"], ood_label="none")
    assert concepts.dtype.kind == "U"
    assert concepts[1].tolist() == ["none"] * 5
    # a digit may be the label of OOD rows, as the concepts are text
    assert digit_concepts([7, 3], ood_label=3)[1].tolist() == [3] * 5


def test_concepts_as_frame():
    frame = digit_concepts([4, 0], as_frame=True)
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == NAMES
    assert frame["class"].tolist() == ["4", "0"]


@pytest.mark.parametrize(
    ("y", "params", "message"),
    [
        ([3, 12], {}, r"integers from 0 to 9, or ood_label=-1\. Got 12 in sample 1"),
        ([3, -1], {"ood_label": "no digit"}, r"Got -1 in sample 1"),
        (["3"], {}, r"The labels are text, such as '3', but the classes are numbers"),
        ([2.5], {}, r"Got 2\.5 in sample 0"),
        ([3], {"ood_label": "even"}, r"ood_label='even' is a value of the concept"),
        ([3], {"ood_label": 0.5}, r"'ood_label' parameter of digit_concepts must"),
        ([3, np.nan], {}, r"contains NaN"),
    ],
)
def test_errors_of_concepts(y, params, message):
    with pytest.raises(ValueError, match=message):
        digit_concepts(y, **params)


def test_data_are_those_of_load_digits_ood():
    digits, raw = load_digit_concepts(), load_digits()
    assert_array_equal(digits.data, load_digits_ood().data)
    assert_array_equal(digits.digit, raw.target)
    assert_array_equal(digits.target, raw.target.astype(str))
    assert_array_equal(digits.concepts, digit_concepts(raw.target))
    assert not digits.is_ood.any()
    assert digits.left_out == ()
    assert digits.concept_names == NAMES
    assert raw.DESCR in digits.DESCR
    images = load_digit_concepts(as_images=True).data
    assert_array_equal(images.reshape(1797, 64), digits.data)


@pytest.mark.parametrize("ood_label", [-1, "none"])
def test_samples_of_left_out_digits_are_ood(ood_label):
    digits = load_digit_concepts((3, 8), ood_label=ood_label)
    left_out = np.isin(digits.digit, (3, 8))
    assert_array_equal(digits.is_ood, left_out)
    assert_array_equal(ood_mask(digits.target, ood_label=ood_label), left_out)
    for column in digits.concepts.T:
        assert_array_equal(ood_mask(column, ood_label=ood_label), left_out)
    assert digits.left_out == (3, 8)
    assert digits.domains["class"] == list("01245679")
    assert len(digits.constraints) == 8
    assert not any("class=3" in rule for rule in digits.constraints)


def test_rules_hold_for_id_samples_and_name_values_of_domains():
    digits = load_digit_concepts((5,))
    assert list(digits.domains) == NAMES
    for column, values in zip(digits.concepts.T, digits.domains.values(), strict=True):
        assert set(column[~digits.is_ood]) == set(values)
    assert digits.constraints[3] == (
        "class=3 -> parity=odd and has_loop=no and size=small and has_curve=yes"
    )
    rules = {}
    for rule in digits.constraints:
        left, right = rule.split(" -> ")
        rules[left.removeprefix("class=")] = [
            p.split("=") for p in right.split(" and ")
        ]
    for row in digits.concepts[~digits.is_ood]:
        values = dict(zip(NAMES, row, strict=True))
        assert all(values[name] == value for name, value in rules[row[0]])


def test_frame_and_return_X_y():
    digits = load_digit_concepts(3, as_frame=True)
    assert list(digits.concepts.columns) == NAMES
    X, y = load_digit_concepts(3, return_X_y=True)
    assert_array_equal(X, digits.data)
    assert_array_equal(y, digits.concepts.to_numpy())
    _, y = load_digit_concepts(3, as_frame=True, return_X_y=True)
    pd.testing.assert_frame_equal(y, digits.concepts)


def test_each_call_returns_fresh_objects():
    digits = load_digit_concepts()
    digits.concepts[:] = "x"
    digits.domains["parity"].append("x")
    assert load_digit_concepts().domains["parity"] == ["even", "odd"]
    assert load_digit_concepts().concepts[1, 1] == "odd"
    assert digits.target[0] == "0"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"left_out": (3, 11)}, r"names \[11\], which are no classes"),
        ({"left_out": range(10)}, r"leaves out all 10 classes"),
        ({"ood_label": "7"}, r"ood_label='7' is a value of the concept 'class'"),
        ({"ood_label": None}, r"'ood_label' parameter of load_digit_concepts must"),
    ],
)
def test_errors(params, message):
    with pytest.raises(ValueError, match=message):
        load_digit_concepts(**params)


def test_frames_need_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="load_digit_concepts with as_frame=True"):
        load_digit_concepts(as_frame=True)
    assert load_digit_concepts().concepts.shape == (1797, 5)

"""Tests of `skood.datasets.load_digits_ood`."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

from skood.datasets import load_digits_ood


def test_data_are_sklearns_digits_scaled():
    """Dividing by 16 is exact in binary, so equality is exact too."""
    digits = load_digits_ood()
    raw = load_digits()
    assert digits.data.dtype == np.float32
    assert_array_equal(digits.data * 16, raw.data)
    assert digits.data.min() == 0
    assert digits.data.max() == 1
    assert_array_equal(digits.target, raw.target)
    assert digits.target.dtype == np.int64
    assert_array_equal(digits.target_names, np.arange(10))
    assert raw.DESCR in digits.DESCR


def test_unscaled_data_and_images():
    raw = load_digits()
    assert_array_equal(load_digits_ood(scaled=False).data, raw.data)
    images = load_digits_ood(as_images=True, scaled=False).data
    assert images.shape == (1797, 1, 8, 8)
    assert_array_equal(images[:, 0], raw.images)


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ((7, 8, 9), (7, 8, 9)),
        ([9, 0], (0, 9)),
        (3, (3,)),
        (np.array([5, 4]), (4, 5)),
        ((), ()),
    ],
)
def test_samples_of_left_out_classes_are_ood(left_out, expected):
    digits = load_digits_ood(left_out)
    assert digits.left_out == expected
    assert all(type(label) is int for label in digits.left_out)
    assert_array_equal(digits.is_ood, [t in expected for t in digits.target.tolist()])


def test_ood_label_replaces_only_the_left_out_targets():
    digits = load_digits_ood((1, 2), ood_label=-7)
    raw = load_digits().target
    left_out = (raw == 1) | (raw == 2)
    assert_array_equal(digits.is_ood, left_out)
    assert_array_equal(digits.target, np.where(left_out, -7, raw))


def test_ood_label_may_be_a_left_out_class():
    digits = load_digits_ood((1, 2), ood_label=1)
    assert_array_equal(digits.target == 1, digits.is_ood)


def test_return_X_y():
    X, y = load_digits_ood(ood_label=-1, return_X_y=True)
    digits = load_digits_ood(ood_label=-1)
    assert_array_equal(X, digits.data)
    assert_array_equal(y, digits.target)


def test_each_call_returns_fresh_arrays():
    load_digits_ood().data[:] = 9
    assert load_digits_ood().data.max() == 1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"left_out": (3, 11, 12)}, r"names \[11, 12\], which are no classes"),
        ({"left_out": ("a",)}, r"names \['a'\], which are no classes"),
        ({"left_out": (3, 3)}, r"names a class twice"),
        ({"left_out": range(10)}, r"leaves out all 10 classes"),
        ({"left_out": "all"}, r"'left_out' parameter of load_digits_ood must be"),
        ({"ood_label": 0}, r"ood_label=0 is one of the classes that are kept"),
        ({"ood_label": "ood"}, r"'ood_label' parameter of load_digits_ood must be"),
    ],
)
def test_errors(params, message):
    with pytest.raises(ValueError, match=message):
        load_digits_ood(**params)

"""Rows that fit members, and rows that calibrate an ensemble."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold

from skood.combine._splits import calibration_folds, check_same, with_levels
from skood.exceptions import SkoodWarning
from tests.combine._members import Column


def _levels(folds, level, alpha=0.05):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return with_levels(folds, level, alpha)


def test_share_is_held_out_and_nothing_is_fitted_on_it():
    y = np.repeat([0, 1, 2], [60, 30, 10])
    ((train, held),) = calibration_folds(100, y, 0.3, 0)
    assert len(held) == 30
    assert sorted([*train, *held]) == list(range(100))
    assert list(held) != sorted(held)  # halves of it are random
    ((again, held_again),) = calibration_folds(100, y, 0.3, 0)
    np.testing.assert_array_equal(train, again)
    np.testing.assert_array_equal(held, held_again)
    ((other, _),) = calibration_folds(100, y, 0.3, 1)
    assert list(other) != list(train)


def test_labels_do_not_matter_to_what_is_held_out():
    """New rows of rare classes come, too: they must be held out like any others."""
    y = np.arange(40)
    for seed in range(10):
        ((train, held),) = calibration_folds(40, y, 0.9, seed)
        ((train_alone, held_alone),) = calibration_folds(40, None, 0.9, seed)
        np.testing.assert_array_equal(train, train_alone)
        np.testing.assert_array_equal(held, held_alone)
        assert len(held) == 36


@pytest.mark.parametrize("share, n_held_out", [(0.01, 1), (0.5, 2), (0.99, 2)])
def test_at_least_one_row_on_each_side(share, n_held_out):
    ((train, held),) = calibration_folds(3, None, share, 0)
    assert (len(train), len(held)) == (3 - n_held_out, n_held_out)


def test_same_calibrates_on_all_rows():
    ((train, held),) = calibration_folds(20, None, "same", 0)
    assert train is None
    assert sorted(held) == list(range(20))


@pytest.mark.parametrize("calibration", [4, KFold(4)])
def test_folds_hold_out_each_row_once(calibration):
    y = np.repeat([0, 1], 21) if calibration == 4 else None  # sorted
    folds = calibration_folds(42, y, calibration, 0)
    assert len(folds) == 4
    assert sorted(np.concatenate([held for _, held in folds])) == list(range(42))
    for train, held in folds:
        assert sorted([*train, *held]) == list(range(42))
        if y is not None:  # stratified
            assert abs(np.mean(y[held]) - 0.5) < 0.06


def test_nothing_to_hold_out():
    with pytest.raises(ValueError, match=r"none to hold out of n_samples=1\. Give"):
        calibration_folds(1, None, 0.5, 0)


@pytest.mark.parametrize("n, level", [(38, "conformal"), (39, "conformal")])
def test_halves(n, level):
    folds = calibration_folds(n, None, "same", 0)
    for asked in ("auto", "conformal"):
        (fold,), found = _levels(folds, asked)
        assert found == level
        assert len(fold.level_rows) == 19  # (1 + 0) / (19 + 1) reaches .05
        assert len(fold.pvalue_rows) == n - 19
        assert not set(fold.level_rows) & set(fold.pvalue_rows)


def test_too_few_rows_for_a_conformal_level():
    folds = calibration_folds(37, None, "same", 0)
    with pytest.warns(SkoodWarning, match=r"needs 19 rows.* of the 37 rows .* 18 can"):
        (fold,), found = with_levels(folds, "auto", 0.05)
    assert found == "nominal"
    assert len(fold.pvalue_rows) == 37
    assert len(fold.level_rows) == 0
    with pytest.raises(ValueError, match=r"^level='conformal' needs 19 rows"):
        with_levels(folds, "conformal", 0.05)
    (fold,), found = _levels(folds, "nominal")  # asked for: no warning
    assert (len(fold.pvalue_rows), found) == (37, "nominal")


def test_rows_that_a_level_needs_despite_rounding():
    """1 / alpha is 49.00000000000001 for alpha = 1/49: 48 rows are enough."""
    folds = calibration_folds(96, None, "same", 0)
    (fold,), found = _levels(folds, "conformal", alpha=1 / 49)
    assert (len(fold.level_rows), found) == (48, "conformal")


def test_rows_for_levels_are_counted_over_folds():
    folds = calibration_folds(40, None, 5, 0)
    halves, found = _levels(folds, "conformal")
    assert found == "conformal"
    assert [len(fold.level_rows) for fold in halves] == [4] * 5


def test_each_fold_needs_pvalues_that_are_small_enough():
    """Its statistics are ranked among themselves: in small folds they are all tied."""
    for n, n_folds, correction, expected in (
        (400, 5, 2.0, "conformal"),  # 40 rows of a fold give p-values, 39 are needed
        (375, 5, 2.0, "nominal"),  # 38 rows
        (400, 10, 2.0, "nominal"),
        (400, 10, 1.0, "conformal"),
    ):
        folds = calibration_folds(n, None, n_folds, 0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            halves, found = with_levels(folds, "auto", 0.05, correction)
        assert found == expected
        assert len(caught) == (expected == "nominal")
        assert sum(len(f.pvalue_rows) + len(f.level_rows) for f in halves) == n
        assert with_levels(folds, "conformal", 0.05, correction)[1] == "conformal"
    folds = calibration_folds(400, None, 10, 0)
    with pytest.warns(SkoodWarning, match=r"only 20 rows of a fold .* fewer than 39"):
        with_levels(folds, "auto", 0.05, 2.0)


def test_leave_one_out_has_no_rows_for_levels():
    folds = calibration_folds(50, None, 50, 0)
    with pytest.warns(SkoodWarning, match="of the 50 rows held out 0 can be had"):
        assert with_levels(folds, "auto", 0.05)[1] == "nominal"


def test_same_needs_frozen_members():
    frozen = FrozenEstimator(Column().fit(np.zeros((1, 1))))
    check_same(["a"], [frozen])
    with pytest.raises(ValueError, match="needs frozen members, but 'b' would be"):
        check_same(["a", "b"], [frozen, Column()])

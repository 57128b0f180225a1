"""Rows that fit members, and rows that calibrate an ensemble."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

from skood.combine._levels import with_levels
from skood.exceptions import SkoodWarning
from skood.utils._folds import calibration_folds, check_same
from tests.combine._members import Column


def _levels(folds, level, alpha=0.05):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return with_levels(folds, level, alpha)


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
    with pytest.warns(
        SkoodWarning, match=r"needs 19 samples.* of the 37 samples .* 18 can"
    ):
        (fold,), found = with_levels(folds, "auto", 0.05)
    assert found == "nominal"
    assert len(fold.pvalue_rows) == 37
    assert len(fold.level_rows) == 0
    with pytest.raises(ValueError, match=r"^level='conformal' needs 19 samples"):
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
    with pytest.warns(
        SkoodWarning, match=r"only 20 samples of a fold .* fewer than 39"
    ):
        with_levels(folds, "auto", 0.05, 2.0)


def test_leave_one_out_has_no_rows_for_levels():
    folds = calibration_folds(50, None, 50, 0)
    with pytest.warns(SkoodWarning, match="of the 50 samples held out 0 can be had"):
        assert with_levels(folds, "auto", 0.05)[1] == "nominal"


def test_same_needs_frozen_members():
    frozen = FrozenEstimator(Column().fit(np.zeros((1, 1))))
    check_same(["a"], [frozen])
    with pytest.raises(ValueError, match="needs frozen members, but 'b' would be"):
        check_same(["a", "b"], [frozen, Column()])

"""Rows that fit members, and rows that calibrate an ensemble."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.frozen import FrozenEstimator

from skood.combine import DetectorEnsemble
from skood.combine._detector_ensemble import kind_of_levels
from skood.exceptions import SkoodWarning
from skood.utils._folds import calibration_folds, check_same
from tests.combine._members import Column, frozen_ensemble, quiet


def _sizes(n_samples, n_folds="same"):
    """Return the numbers of samples of each fold for p-values, and for levels."""
    folds = calibration_folds(n_samples, None, n_folds, 0)
    sizes = np.array([len(held_out) for _, held_out in folds])
    return np.stack([sizes - sizes // 2, sizes // 2], axis=1)


def _kind(sizes, level, alpha=0.05):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return kind_of_levels(sizes, level, alpha)


@pytest.mark.parametrize("n", [38, 39])
def test_halves(n):
    X = np.random.default_rng(0).normal(size=(n, 1))
    for level in ("auto", "conformal"):
        assert _kind(_sizes(n), level) == "conformal"
        ensemble = frozen_ensemble(1, level=level, random_state=0)
        quiet(ensemble.fit, X)
        assert ensemble.level_ == "conformal"
        assert ensemble.n_level_ == 19  # (1 + 0) / (19 + 1) reaches .05
        assert ensemble.n_calibration_ == n - 19
        scores = ensemble._levels.calibrations[0].scores[:, 0]
        others = np.setdiff1d(X, scores)  # the halves are disjoint
        pvalues = (1 + scores.searchsorted(others, "right")) / (n - 18)
        assert_allclose(ensemble._levels.statistics[0], pvalues)


def test_too_few_samples_for_a_conformal_level():
    sizes = _sizes(37)
    with pytest.warns(
        SkoodWarning, match=r"needs 19 samples.* of the 37 samples .* 18 can"
    ):
        assert kind_of_levels(sizes, "auto", 0.05) == "nominal"
    with pytest.raises(ValueError, match=r"^level='conformal' needs 19 samples"):
        kind_of_levels(sizes, "conformal", 0.05)
    assert _kind(sizes, "nominal") == "nominal"  # asked for: no warning
    X = np.random.default_rng(0).normal(size=(37, 2))
    ensemble = frozen_ensemble(2, level="nominal", random_state=0).fit(X)
    assert (ensemble.n_calibration_, ensemble.n_level_) == (37, 0)


def test_samples_that_a_level_needs_despite_rounding():
    """1 / alpha is 49.00000000000001 for alpha = 1/49: 48 rows are enough."""
    assert _kind(_sizes(96), "conformal", alpha=1 / 49) == "conformal"


def test_samples_for_levels_are_counted_over_folds():
    assert _kind(_sizes(40, 5), "conformal") == "conformal"
    ensemble = DetectorEnsemble([("a", Column())], level="conformal", calibration=5)
    quiet(ensemble.fit, np.arange(40.0)[:, None])
    assert list(map(len, ensemble._levels.statistics)) == [4] * 5


def test_each_fold_needs_pvalues_that_are_small_enough():
    """Its statistics are ranked among themselves: in small folds they are all tied."""
    for n, n_folds, correction, expected in (
        (400, 5, 2.0, "conformal"),  # 40 rows of a fold give p-values, 39 are needed
        (375, 5, 2.0, "nominal"),  # 38 rows
        (400, 10, 2.0, "nominal"),
        (400, 10, 1.0, "conformal"),
    ):
        sizes = _sizes(n, n_folds)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert kind_of_levels(sizes, "auto", 0.05, correction) == expected
        assert len(caught) == (expected == "nominal")
        assert kind_of_levels(sizes, "conformal", 0.05, correction) == "conformal"
    with pytest.warns(
        SkoodWarning, match=r"only 20 samples of a fold .* fewer than 39"
    ):
        kind_of_levels(_sizes(400, 10), "auto", 0.05, 2.0)


def test_leaving_single_samples_out_has_no_samples_for_levels():
    with pytest.warns(SkoodWarning, match="of the 50 samples held out 0 can be had"):
        assert kind_of_levels(_sizes(50, 50), "auto", 0.05) == "nominal"


def test_same_needs_frozen_members():
    frozen = FrozenEstimator(Column().fit(np.zeros((1, 1))))
    check_same(["a"], [frozen])
    with pytest.raises(ValueError, match="needs frozen members, but 'b' would be"):
        check_same(["a", "b"], [frozen, Column()])

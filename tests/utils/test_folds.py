"""Which samples fit a model, and which calibrate it: drawn whatever their labels."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from scipy.stats import hypergeom
from sklearn.model_selection import KFold, StratifiedKFold

from skood.utils._folds import calibration_folds


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
def test_at_least_a_sample_on_each_side(share, n_held_out):
    ((train, held),) = calibration_folds(3, None, share, 0)
    assert (len(train), len(held)) == (3 - n_held_out, n_held_out)


def test_same_calibrates_on_all_samples():
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


def test_nothing_to_hold_out():
    with pytest.raises(ValueError, match=r"can be held out of n_samples=1\. Give"):
        calibration_folds(1, None, 0.5, 0)


@pytest.mark.parametrize("calibration", [0.5, 2])
def test_class_counts_of_held_out_samples_are_those_of_random_draws(calibration):
    """Of 20 samples of two classes, 10 are held out: the counts are hypergeometric."""
    y = np.repeat([0, 1], 10)
    counts = np.zeros(11)
    for seed in range(500):
        _, held = calibration_folds(20, y, calibration, seed)[0]
        counts[np.sum(y[held])] += 1
    expected = hypergeom(20, 10, 10).pmf(np.arange(11))
    error = np.sqrt(expected * (1 - expected) / 500)
    assert np.all(np.abs(counts / 500 - expected) < 4.5 * error + 1e-3)


def test_folds_do_not_depend_on_labels():
    """Classes with fewer samples than folds, or with a single one, are no error."""
    y = np.array([0] * 17 + [1, 1, 2])
    for one, other in zip(
        calibration_folds(20, y, 5, 3), calibration_folds(20, None, 5, 3), strict=True
    ):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_splitters_of_the_user_are_taken_as_they_are():
    y = np.repeat([0, 1], 20)
    folds = calibration_folds(40, y, StratifiedKFold(4), 0)
    for (train, held), (train_own, held_own) in zip(
        folds, StratifiedKFold(4).split(y, y), strict=True
    ):
        np.testing.assert_array_equal(train, train_own)
        np.testing.assert_array_equal(np.sort(held), held_own)


def test_more_folds_than_samples():
    with pytest.raises(ValueError, match=r"calibration=5 folds .* n_samples=4\. Use"):
        calibration_folds(4, None, 5, 0)

"""Tests of the rows that a network is trained on."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils.class_weight import compute_sample_weight

from skood.nn._training_data import (
    TrainingSet,
    check_same_classes,
    check_target,
    class_codes,
    normalized,
    row_batches,
    stratified_split,
    weighted_samples,
    with_class_weight,
)
from tests._loops import looped

# --- labels ------------------------------------------------------------------


def test_check_target():
    assert_array_equal(check_target(torch.tensor([1, 5]), None), [1, 5])
    assert_array_equal(check_target(["a", "b"], None), ["a", "b"])
    with pytest.raises(ValueError, match="object requires y to be passed"):
        check_target(None, object())
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        check_target([0.5, 1.5], None)
    with pytest.raises(ValueError, match="y contains NaN"):
        check_target([0.0, np.nan], None)


@pytest.mark.parametrize("classes", [[3, 7, 20], ["a", "b", "c"]])
def test_class_codes(classes):
    classes = np.array(classes)
    codes = np.array([2, 0, 0, 1])
    assert_array_equal(class_codes(classes[codes], classes), codes)
    assert len(class_codes(classes[:0], classes)) == 0


def test_class_codes_unknown_label():
    with pytest.raises(
        ValueError, match=r"the label 'd', which is not .* \['a', 'b'\]"
    ):
        class_codes(np.array(["a", "d"]), np.array(["a", "b"]))


def test_check_same_classes():
    check_same_classes(None, np.array([0, 1]))
    check_same_classes([1, 0, 1], np.array([0, 1]))
    with pytest.raises(ValueError, match=r"classes=\[0, 2\] differs .* \[0, 1\]"):
        check_same_classes([0, 2], np.array([0, 1]))


# --- weights -----------------------------------------------------------------


def test_balanced_is_scikit_learns():
    codes = np.array([0, 0, 0, 0, 2, 2, 5])
    classes = np.arange(6)
    weight = with_class_weight(np.ones(7), "balanced", codes, classes)
    assert_allclose(weight, compute_sample_weight("balanced", codes))


def test_balanced_counts_weights():
    """A weight of two is the same as the row occurring twice."""
    codes = np.array([0, 0, 1])
    classes = np.arange(2)
    weighted = with_class_weight(np.array([1.0, 3, 2]), "balanced", codes, classes)
    repeated = with_class_weight(
        np.ones(6), "balanced", np.array([0, 0, 0, 0, 1, 1]), classes
    )
    assert_allclose(weighted, [repeated[0], repeated[1:4].sum(), repeated[4:].sum()])


def test_class_weight_dict():
    weight = with_class_weight(
        np.array([1.0, 1, 5]),
        {"a": 3, "b": 0.5},
        np.array([0, 1, 1]),
        np.array(["a", "b"]),
    )
    assert_allclose(weight, [3, 0.5, 2.5])
    same = np.ones(2)
    assert with_class_weight(same, None, np.array([0, 1]), np.arange(2)) is same


@pytest.mark.parametrize("value", [-1.0, np.inf, np.nan])
def test_class_weight_dict_errors(value):
    with pytest.raises(
        ValueError, match="class_weight must be finite and not negative"
    ):
        with_class_weight(np.ones(2), {0: value}, np.array([0, 1]), np.arange(2))


def test_normalized():
    assert_allclose(normalized(np.array([1.0, 2, 3])), [0.5, 1, 1.5])
    assert_array_equal(normalized(np.full(7, 0.3)), np.ones(7))


def test_weighted_samples_leave_out_weight_0():
    X = np.arange(8.0).reshape(4, 2)
    training_set = weighted_samples(
        X, np.array([0, 1, 1, 0]), [1, 0, 3, 2], {0: 1, 1: 2}, np.arange(2)
    )
    assert_array_equal(training_set.inputs, X[[0, 2, 3]])
    assert_array_equal(training_set.codes, [0, 1, 0])
    assert_allclose(training_set.weight, np.array([1, 6, 2]) / 3)
    training_set = weighted_samples(X, np.array([0, 1, 1, 0]), None, None, np.arange(2))
    assert training_set.inputs is X
    with pytest.raises(ValueError, match="leaves only samples of weight zero"):
        weighted_samples(X[:1], np.array([0]), None, {0: 0}, np.arange(2))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        weighted_samples(X, np.array([0]), None, None, np.arange(2))


# --- rows and batches --------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_training_set(kind):
    X = kind(np.arange(8.0).reshape(4, 2))
    training_set = TrainingSet(X, np.array([0, 1, 2, 3]), np.array([1.0, 2, 2, 3]))
    assert len(training_set) == 4
    assert_allclose(training_set.weight.mean(), 1)
    subset = training_set.subset(np.array([3, 1]))
    inputs, (codes, weight) = subset[np.array([0])]
    assert_array_equal(inputs, [[6.0, 7.0]])
    assert_array_equal(codes, [3])
    assert_allclose(weight, [1.2])


@looped("shuffle", [False, True])
@looped(
    "n_rows, batch_size, sizes",
    [
        (6, 3, [3, 3]),
        (8, 3, [3, 3, 2]),
        (7, 3, [3, 4]),  # a last batch of one row is joined to the one before
        (3, 3, [3]),
        (2, 3, [2]),
        (1, 3, [1]),
        (3, 1, [1, 1, 1]),
        (3, 10**9, [3]),
    ],
)
def test_row_batches(n_rows, batch_size, sizes, shuffle):
    batches = list(row_batches(n_rows, batch_size, shuffle))
    assert [len(batch) for batch in batches] == sizes
    assert sorted(np.concatenate(batches)) == list(range(n_rows))


def test_row_batches_are_drawn_from_the_generator_of_torch():
    def order(seed, shuffle=True):
        torch.manual_seed(seed)
        return np.concatenate(list(row_batches(50, 10, shuffle))).tolist()

    with torch.random.fork_rng():
        assert order(0) == order(0) != order(1)
        assert order(0, shuffle=False) == list(range(50))


# --- validation rows ---------------------------------------------------------


@looped("seed", range(5))
@looped("fraction", [0.1, 0.25, 0.5, 0.9])
def test_stratified_split_gives_each_class_its_share(fraction, seed):
    rng = np.random.RandomState(seed)
    codes = rng.permutation(np.repeat([0, 1, 2], [40, 100, 7]))
    train, valid = stratified_split(codes, fraction, rng)
    assert_array_equal(np.sort(np.concatenate([train, valid])), np.arange(147))
    assert abs(len(valid) - 147 * fraction) <= 1
    for code, count in enumerate([40, 100, 7]):
        # the ends of a class cut off less than a step on each side
        assert abs((codes[valid] == code).sum() - count * fraction) <= 1
        assert (codes[train] == code).any()


@pytest.mark.parametrize("n_runs", [500, pytest.param(4000, marks=pytest.mark.slow)])
def test_stratified_split_chooses_each_row_as_often(n_runs):
    codes = np.repeat([0, 1], [5, 15])
    counts = np.zeros(20)
    for seed in range(n_runs):
        counts[stratified_split(codes, 0.2, np.random.RandomState(seed))[1]] += 1
    # binomial: 4.7 standard deviations
    assert_allclose(counts / n_runs, 0.2, atol=4.7 * np.sqrt(0.16 / n_runs))


def test_stratified_split_keeps_a_row_of_each_class_in_training():
    codes = np.array([0] * 20 + [1] + [2] * 2 + [3] * 2)
    for seed in range(50):
        train, valid = stratified_split(codes, 0.9, np.random.RandomState(seed))
        assert set(codes[train]) == {0, 1, 2, 3}
        assert 1 not in codes[valid]
        assert len(valid) > 15


def test_stratified_split_by_several_columns():
    """Each combination gets its share, and each class keeps a row in training."""
    rng = np.random.RandomState(0)
    codes = np.column_stack([rng.randint(3, size=600), rng.randint(2, size=600)])
    joint = codes @ [2, 1]
    for seed in range(5):
        splits = [
            stratified_split(labels, 0.3, np.random.RandomState(seed))
            for labels in (codes, joint)
        ]
        for result, expected in zip(*splits, strict=True):
            assert_array_equal(result, expected)  # in order of the first column first
    codes = np.column_stack([np.zeros(40, dtype=int), np.arange(40) % 20])
    codes[:3, 0] = [1, 2, 2]
    for seed in range(20):
        train, valid = stratified_split(codes, 0.9, np.random.RandomState(seed))
        assert_array_equal(np.sort(np.append(train, valid)), np.arange(40))
        for column in codes[train].T:
            assert len(np.unique(column)) in (3, 20)
        assert len(valid) >= 40 * 0.9 - 1 - 3 - 20


def test_single_columns_are_split_as_without_columns():
    codes = np.random.RandomState(0).randint(4, size=50)
    for a, b in zip(
        stratified_split(codes, 0.4, np.random.RandomState(1)),
        stratified_split(codes[:, None], 0.4, np.random.RandomState(1)),
        strict=True,
    ):
        assert_array_equal(a, b)


def test_stratified_split_without_validation_samples():
    with pytest.raises(
        ValueError, match=r"validation_fraction=0.5 of 2 samples leaves none"
    ):
        stratified_split(np.array([0, 1]), 0.5, np.random.RandomState(0))

"""Tests of sample weights: validation, units, and quantiles of weighted scores."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
import torch

from skood.utils._ties import merged_ties, threshold_at, threshold_between, tie_scale
from skood.utils._weights import (
    check_weight,
    left_out_weight,
    remaining_weight,
    row_weight,
    units,
    weighted_quantile,
)


def test_none_and_numbers():
    assert check_weight(None, 3) is None
    np.testing.assert_array_equal(check_weight(2, 3), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(check_weight(None, 3, default=1), np.ones(3))
    for counts in (np.array([1, 0, 3], dtype=np.int32), torch.tensor([1, 0, 3])):
        weight = check_weight(counts, 3)
        assert weight.dtype == np.float64
        np.testing.assert_array_equal(weight, [1, 0, 3])
    np.testing.assert_array_equal(left_out_weight(np.array([0.25, 1, 3])), [0.25, 1, 1])
    assert left_out_weight(None) == 1.0
    assert row_weight(None, [0]) is None
    np.testing.assert_array_equal(row_weight(weight, [2, 0]), [3, 1])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, 2.0], r"sample_weight has shape \(2,\), expected \(3,\)"),
        (np.ones((3, 1)), r"sample_weight has shape \(3, 1\), expected \(3,\)"),
        ([1.0, np.nan, 1.0], "sample_weight contains NaN"),
        ([1.0, np.inf, 1.0], "sample_weight contains infinity"),
        ([1.0, -0.5, 1.0], "Negative values in data passed to sample_weight"),
        ([0.0, 0.0, 0.0], "All 3 sample weights are zero"),
        (0, "All 3 sample weights are zero"),
    ],
)
def test_invalid_weights(weight, message):
    with pytest.raises(ValueError, match=message):
        check_weight(weight, 3)


def test_remaining_weight_without_rounding():
    """Six fractions of .1 are all of a weight of .6, although 6 * .1 is a bit more."""
    weight = np.array([6 * 0.1, 2.0, 1.0])
    left_out, shares = [0] * 6 + [1], [0.1] * 6 + [0.5]
    kept, left = remaining_weight(weight, left_out, shares)
    assert weight[0] > np.sum(shares[:6])
    np.testing.assert_array_equal(kept, [1, 2])
    np.testing.assert_array_equal(left, [1.5, 1.0])


def test_units_of_integers_are_repeats():
    rng = np.random.default_rng(0)
    weight = rng.integers(1, 6, size=50).astype(float)
    rows, shares = units(weight)
    np.testing.assert_array_equal(rows, np.repeat(np.arange(50), weight.astype(int)))
    np.testing.assert_array_equal(shares, np.ones(len(rows)))


def test_units_of_other_weights():
    rows, shares = units(np.array([0.25, 2.5, 3 + 1e-12, 1e-9]))
    np.testing.assert_array_equal(rows, [0, 1, 1, 1, 2, 2, 2, 3])
    np.testing.assert_allclose(shares, [0.25, 1, 1, 0.5, 1, 1, 1, 1e-9])


def test_units_of_large_weights_are_bounded():
    weight = np.array([1e15, 3e15, 1.0])
    rows, shares = units(weight)
    assert len(rows) <= 10_000_003
    sums = np.bincount(rows, weights=shares)
    np.testing.assert_allclose(sums, weight, rtol=1e-9)


def _cases():
    """Yield scores with ties, duplicates, infinite ends and heavy tails; weights."""
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 7, 40, 301):
        for scores in (
            rng.normal(size=n),
            rng.choice([-1.0, 0.5, 0.5 * (1 + 1e-8), 2.0], size=n),
            rng.standard_cauchy(size=n) * 1e5,
            np.where(rng.uniform(size=n) < 0.1, -np.inf, rng.normal(size=n)),
            np.full(n, 3.0),
        ):
            yield scores, rng.integers(1, 5, size=n)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.29, 0.5])
def test_threshold_of_weighted_is_of_repeated_scores(share):
    for scores, counts in _cases():
        repeated = np.repeat(scores, counts)
        weight = counts.astype(float)
        expected = threshold_at(repeated, share)
        assert threshold_at(scores, share, weight) == pytest.approx(expected, 1e-12)
        if np.isfinite(expected):
            below = weight[scores < expected].sum()
            assert below <= share * weight.sum() * (1 + 1e-12)


def test_scales_of_weighted_are_of_repeated_scores():
    for scores, counts in _cases():
        weight = counts.astype(float)
        repeated = np.repeat(scores, counts)
        expected = tie_scale(repeated)
        assert tie_scale(scores, weight) == pytest.approx(expected, 1e-12)
        low = threshold_between(-np.inf, 1.0, scores, weight)
        expected = threshold_between(-np.inf, 1.0, repeated)
        assert low == pytest.approx(expected, 1e-15)
        merged = merged_ties(scores, weight)
        np.testing.assert_allclose(np.repeat(merged, counts), merged_ties(repeated))


def test_quantile_of_weighted_values_is_of_repeated_ones():
    for values, counts in _cases():
        if np.isinf(values).any():
            continue
        order = np.argsort(values)
        ends = np.cumsum(counts[order].astype(float))
        for share in (0.0, 0.05, 0.5, 0.9, 1.0):
            expected = np.quantile(np.repeat(values, counts), share)
            actual = weighted_quantile(values[order], ends, share)
            assert actual == pytest.approx(expected, 1e-12)


def test_small_weights_do_not_collapse_a_quantile():
    values, ends = np.arange(5.0), np.cumsum(np.full(5, 0.01))
    assert weighted_quantile(values, ends, 0.25) == pytest.approx(1.0)
    assert weighted_quantile(values, ends, 1.0) == 4.0


@pytest.mark.parametrize("factor", [0.01, 0.3, 7.0, 1e6])
def test_threshold_does_not_depend_on_the_scale_of_weights(factor):
    rng = np.random.default_rng(2)
    scores, weight = rng.normal(size=200), rng.uniform(0.5, 2.0, size=200)
    expected = threshold_at(scores, 0.1, weight)
    assert threshold_at(scores, 0.1, factor * weight) == expected

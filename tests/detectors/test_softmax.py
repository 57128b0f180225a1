"""Tests of the numerically safe softmax quantities."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from fractions import Fraction

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

from skood.detectors._common._softmax import (
    log_sum_exp,
    shifted_exponentials,
    without_largest,
)
from skood.utils._array_api import NARROW


@pytest.fixture(params=[np.float32, np.float64])
def logits(request):
    rng = np.random.default_rng(0)
    return (10 * rng.normal(size=(50, 7))).astype(request.param)


def test_number_of_columns_does_not_matter(logits):
    """Narrow arrays are computed column by column, wide ones row by row."""
    wide = np.pad(logits, [(0, 0), (0, NARROW)], constant_values=-1e4)
    p, others, shifted = shifted_exponentials(logits, 2.0)
    wide_p, wide_others, wide_shifted = shifted_exponentials(wide, 2.0)
    np.testing.assert_allclose(p, wide_p[:, :7], rtol=1e-14)
    np.testing.assert_allclose(others, wide_others, rtol=1e-14)
    np.testing.assert_allclose(shifted, wide_shifted[:, :7], rtol=1e-14)
    wide = wide.astype(np.float64)  # exponentials of float32 are float32
    narrow = log_sum_exp(logits.astype(np.float64))
    np.testing.assert_allclose(narrow, log_sum_exp(wide), rtol=1e-14)


@pytest.mark.parametrize("offset", [-2000.0, -599.0, 0.0, 599.0, 2000.0])
def test_logsumexp_moves_with_the_logits(logits, offset):
    got = log_sum_exp(logits.astype(np.float64) / 100 + offset)
    expected = log_sum_exp(logits.astype(np.float64) / 100) + offset
    np.testing.assert_allclose(got, expected, rtol=1e-14)


@pytest.mark.parametrize("rows", [[[0.0, -1.0], [-2.0, 0.0]], [[0.0, 0.0, -1.0]] * 2])
def test_a_largest_logit_is_left_out(rows):
    left = without_largest(np.array(rows))
    np.testing.assert_array_equal(np.isneginf(left).sum(axis=1), 1)
    np.testing.assert_array_equal(left[np.isfinite(left)].sum(), np.sum(rows))


def test_probabilities_follow(logits):
    before = logits.copy()
    exponentials, others, shifted = shifted_exponentials(logits)
    np.testing.assert_array_equal(logits, before)
    assert exponentials.dtype == others.dtype == shifted.dtype == np.float64
    p = softmax(logits.astype(np.float64), axis=1)
    indices, top = np.arange(len(p)), p.argmax(axis=1)
    np.testing.assert_array_equal(exponentials[indices, top], 0)
    np.testing.assert_array_equal(shifted[indices, top], 0)
    full = exponentials.copy()
    full[indices, top] = 1
    np.testing.assert_allclose(full / (1 + others)[:, None], p, rtol=1e-13)
    np.testing.assert_allclose(
        shifted - np.log1p(others)[:, None],
        log_softmax(logits.astype(np.float64), axis=1),
        rtol=1e-13,
        atol=1e-14,
    )


def test_others_are_exact_where_1_minus_max_is_0():
    """1 - max p rounds to 0 at a gap of 40; the sum of the others does not."""
    logits = np.array([[0.0, -40.0, -41.0]])
    assert 1 - softmax(logits, axis=1).max() == 0
    _, others, _ = shifted_exponentials(logits)
    expected = Fraction(np.exp(-40.0)) + Fraction(np.exp(-41.0))
    assert others[0] == pytest.approx(float(expected), rel=1e-15)


def test_single_maximum_of_several_is_left_out():
    exponentials, others, _ = shifted_exponentials(np.array([[3.0, 3.0, 3.0]]))
    np.testing.assert_array_equal(np.sort(exponentials[0]), [0, 1, 1])
    np.testing.assert_array_equal(others, [2])


def test_temperature_divides(logits):
    for got, expected in zip(
        shifted_exponentials(logits, 4.0),
        shifted_exponentials(logits.astype(np.float64) / 4),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_logsumexp(logits):
    got = log_sum_exp(logits)
    assert got.dtype == np.float64
    expected = logsumexp(logits.astype(np.float64), axis=1)
    exact = {"rtol": 1e-14} if logits.dtype == np.float64 else {"rtol": 0, "atol": 3e-7}
    np.testing.assert_allclose(got, expected, **exact)


@pytest.mark.parametrize("n_columns", [2, 10, 1000, 21_841])
@pytest.mark.parametrize("scale", [0.0, 1.0, 20.0])
def test_logsumexp_of_float32_logits(n_columns, scale):
    rng = np.random.default_rng(0)
    logits = np.clip(scale * rng.normal(size=(20, n_columns)) + 0.1, -80, 80)
    logits = logits.astype(np.float32)
    expected = logsumexp(logits.astype(np.float64), axis=1)
    np.testing.assert_allclose(log_sum_exp(logits), expected, rtol=0, atol=3e-7)


@pytest.mark.parametrize("large", [81.0, -90.0, 3e38, -np.inf, np.inf, np.nan])
@pytest.mark.parametrize("row", [0, -1])
def test_logsumexp_of_float32_does_not_depend_on_other_samples(large, row):
    logits = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    alone = [log_sum_exp(logits[[i]])[0] for i in range(6)]
    np.testing.assert_array_equal(log_sum_exp(logits), alone)
    logits[row, 1] = large
    with np.errstate(over="ignore", invalid="ignore"):
        got = np.delete(log_sum_exp(logits), row)
        np.testing.assert_array_equal(got, np.delete(alone, row))
        expected = logsumexp(logits[row].astype(np.float64))
        if np.isfinite(expected):
            assert log_sum_exp(logits)[row] == pytest.approx(expected, rel=1e-14)
        else:
            assert not np.isfinite(log_sum_exp(logits)[row])


def test_logsumexp_of_infinite_and_large_logits():
    with np.errstate(all="raise", under="ignore"):
        got = log_sum_exp(np.array([[-np.inf, 2.0], [1e4, 1e4], [-1e4, -2e4]]))
    np.testing.assert_allclose(got, [2.0, 1e4 + np.log(2), -1e4], rtol=1e-15)

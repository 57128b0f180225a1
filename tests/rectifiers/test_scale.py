"""Tests of activation scaling."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np
import pytest

from skood.rectifiers import ASH, SCALE
from tests._loops import looped


def _naive(Z, percentile):
    out = []
    for row in Z.astype(np.float64):
        d = len(row)
        k = max(1, d - round(d * percentile / 100))
        s1, s2 = sum(row), sum(sorted(row)[d - k :])
        out.append([value * (math.exp(s1 / s2) if s2 else 1.0) for value in row])
    return np.array(out)


@looped("percentile", [0, 10, 85, 99])
@looped("dtype", [np.float32, np.float64])
@looped("n_features", [1, 2, 40])
def test_equals_naive_loop(percentile, dtype, n_features):
    rng = np.random.default_rng(0)
    Z = np.maximum(rng.normal(size=(60, n_features)), 0).astype(dtype)
    Z[5] = 0
    got = SCALE(percentile=percentile).fit_transform(Z)
    rtol = 3e-6 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(got, _naive(Z, percentile), rtol=rtol)


def test_default():
    Z = np.random.default_rng(0).exponential(size=(20, 40))
    np.testing.assert_allclose(SCALE().fit_transform(Z), _naive(Z, 85), rtol=1e-12)


def test_factor_of_survivors_equals_that_of_ash():
    Z = np.random.default_rng(0).exponential(size=(20, 40))
    shaped = ASH(percentile=70).fit_transform(Z)
    scaled = SCALE(percentile=70).fit_transform(Z)
    remaining = shaped > 0
    np.testing.assert_array_equal(shaped[remaining], scaled[remaining])
    assert (scaled[~remaining] > 0).all()


def test_bounds_of_the_factor():
    """e where all of the sum is in few features, e^(d / k) where it is even."""
    Z = np.zeros((2, 20))
    Z[0, 3] = 5.0
    Z[1] = 0.2
    factor = SCALE(percentile=85).fit_transform(Z).max(axis=1) / Z.max(axis=1)
    np.testing.assert_allclose(factor, [math.e, math.exp(20 / 3)], rtol=1e-12)


def test_order_of_features_is_unchanged():
    Z = np.random.default_rng(0).exponential(size=(20, 40))
    out = SCALE().fit_transform(Z)
    np.testing.assert_array_equal(out.argsort(axis=1), Z.argsort(axis=1))


def test_negative_features():
    message = "Negative values in data passed to SCALE, the lowest -1: .*LTS"
    with pytest.raises(ValueError, match=message):
        SCALE().fit([[1.0, -1.0]])


def test_overflow():
    message = "SCALE scales a sample by inf, which overflows float64. Keep more entries"
    with pytest.raises(ValueError, match=message):
        SCALE(percentile=99.95).fit_transform(np.ones((2, 1000)))

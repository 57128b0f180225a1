"""Tests of variational rectified activations."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood.rectifiers import VRA, ReAct
from tests._loops import looped


def _naive(train, test, low, high, below, per_feature):
    """One value at a time."""
    train, test = train.astype(np.float64), test.astype(np.float64)
    out = []
    for row in test:
        rectified = []
        for j, value in enumerate(row):
            seen = train[:, j] if per_feature else train.ravel()
            a, b = np.quantile(seen, low), np.quantile(seen, high)
            if value < a:
                rectified.append(0.0 if below == "zero" else a)
            else:
                rectified.append(min(value, b))
        out.append(rectified)
    return np.array(out)


@looped("below", ["zero", "clip"])
@looped("per_feature", [True, False])
@looped("dtype", [np.float32, np.float64])
@looped("low, high", [(0.1, 0.9), (0.6, 0.95), (0.0, 1.0)])
def test_equals_naive_loop(below, per_feature, dtype, low, high):
    rng = np.random.default_rng(0)
    train, test = (
        (rng.normal(size=(n, 5)) * [1, 2, 3, 4, 5]).astype(dtype) for n in (64, 20)
    )
    vra = VRA(low=low, high=high, below=below, per_feature=per_feature).fit(train)
    expected = _naive(train, test, low, high, below, per_feature)
    np.testing.assert_allclose(vra.transform(test), expected, rtol=2e-7, atol=1e-12)
    assert vra.low_.shape == vra.high_.shape == (5,)
    assert vra.low_.dtype == vra.high_.dtype == np.float64


def test_thresholds_of_each_feature():
    Z = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0]])
    vra = VRA(low=0.5, high=0.75).fit(Z)
    np.testing.assert_array_equal(vra.low_, [1.0, 11.0])
    np.testing.assert_array_equal(vra.high_, [1.5, 11.5])
    # what equals a threshold stays
    np.testing.assert_array_equal(vra.transform(Z), [[0, 0], [1, 11], [1.5, 11.5]])


def test_react_is_vra_without_a_low_threshold():
    Z = np.random.default_rng(0).normal(size=(100, 6))
    vra = VRA(low=0.0, high=0.8, below="clip", per_feature=False)
    np.testing.assert_array_equal(
        vra.fit_transform(Z), ReAct(quantile=0.8).fit_transform(Z)
    )


def test_equal_quantiles():
    """All that is left is whether a feature is above its median."""
    Z = np.random.default_rng(0).normal(size=(101, 3))
    out = VRA(low=0.5, high=0.5).fit_transform(Z)
    median = np.median(Z, axis=0)
    np.testing.assert_array_equal(out, np.where(Z < median, 0.0, median))


def test_single_sample():
    Z = np.array([[1.0, 2.0, -3.0]])
    np.testing.assert_array_equal(VRA().fit_transform(Z), Z)


def test_bad_quantiles():
    message = "low=0.6 is above high=0.5. Both are quantiles"
    with pytest.raises(ValueError, match=message):
        VRA(low=0.6, high=0.5).fit(np.ones((3, 2)))

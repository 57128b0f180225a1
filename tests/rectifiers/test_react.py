"""Tests of rectified activations."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood.rectifiers import ReAct


@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_naive_loop(quantile, dtype):
    rng = np.random.default_rng(0)
    train, test = (rng.normal(size=(n, 7)).astype(dtype) for n in (50, 20))
    react = ReAct(quantile=quantile).fit(train)
    flat = sorted(float(value) for row in train for value in row)
    position = quantile * 349
    rank = min(int(position), 348)
    c = flat[rank] + (position - rank) * (flat[rank + 1] - flat[rank])
    assert react.threshold_ == pytest.approx(c, rel=1e-12)
    expected = [[min(float(value), c) for value in row] for row in test]
    np.testing.assert_allclose(react.transform(test), expected, rtol=1e-7)


def test_threshold_is_that_of_all_features_together():
    """One large feature decides about the threshold of all."""
    Z = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0]])
    assert ReAct(quantile=0.6).fit(Z).threshold_ == 10.0


def test_share_of_activations_cut_off():
    Z = np.random.default_rng(0).exponential(size=(200, 10))
    out = ReAct(quantile=0.9).fit_transform(Z)
    assert np.mean(out != Z) == pytest.approx(0.1, abs=1e-3)


def test_largest_quantile_changes_no_training_row():
    Z = np.random.default_rng(0).normal(size=(200, 10)).astype(np.float32)
    np.testing.assert_array_equal(ReAct(quantile=1.0).fit_transform(Z), Z)


def test_idempotent_and_monotone():
    Z = np.random.default_rng(0).normal(size=(200, 10))
    react = ReAct(quantile=0.7).fit(Z)
    out = react.transform(Z)
    np.testing.assert_array_equal(react.transform(out), out)
    assert (react.transform(Z + 0.1) >= out).all()

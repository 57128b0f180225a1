"""Cohen's d: closed forms, and the coverage of its interval."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import nct, ttest_1samp, ttest_ind

from skood.metrics import cohen_d


def test_values_by_hand():
    assert cohen_d([1, 2, 3], [0, 1, 2]).value == 1
    # differences 1, 3, 2: mean 2, sd 1
    assert_allclose(cohen_d([1, 5, 7], [0, 2, 5], paired=True).value, 2.0, rtol=1e-12)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=8), rng.normal(0.5, 2, size=5)
    spread = ((a.var(ddof=1) + b.var(ddof=1)) / 2) ** 0.5
    assert_allclose(cohen_d(a, b).value, (a.mean() - b.mean()) / spread, rtol=1e-12)
    found, swapped = cohen_d(a, b), cohen_d(b, a)
    assert_allclose(swapped, [-found.value, -found.high, -found.low], rtol=1e-6)
    assert_allclose(cohen_d(100 + 3 * a, 100 + 3 * b), found, rtol=1e-6)


def test_the_interval_contains_0_iff_the_t_test_is_not_significant():
    rng = np.random.default_rng(1)
    for shift in (0.0, 0.8, 1.0, 1.2, 2.0):
        a, b = rng.normal(size=(2, 9))
        found = cohen_d(a + shift, b)
        assert (found.low > 0) == (ttest_ind(a + shift, b).pvalue < 0.05)
        pairs = cohen_d(a + shift, b, paired=True)
        assert (pairs.low > 0) == (ttest_1samp(a + shift - b, 0).pvalue < 0.05)


def test_ends_are_quantiles_of_the_noncentral_t():
    a, b = np.arange(7.0), np.arange(7.0)[::-1] ** 0.5
    found = cohen_d(a, b, confidence_level=0.9)
    t = found.value * 3.5**0.5
    assert_allclose(nct.cdf(t, 12, found.low * 3.5**0.5), 0.95, atol=1e-6)
    assert_allclose(nct.cdf(t, 12, found.high * 3.5**0.5), 0.05, atol=1e-6)


@pytest.mark.parametrize("paired, d", [(False, 1.2), (True, 0.7)])
def test_coverage_with_few_seeds(paired, d):
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(400):
        b = rng.normal(size=5)
        a = (b if paired else 0) + d + rng.normal(size=5)
        found = cohen_d(a, b, paired=paired, confidence_level=0.9)
        covered += found.low <= d <= found.high
    assert abs(covered / 400 - 0.9) < 3 * (0.9 * 0.1 / 400) ** 0.5


@pytest.mark.parametrize(
    "a, b, paired, message",
    [
        ([1.0], [1.0, 2.0], False, r"a must have the shape \(n,\) with n >= 2"),
        ([1.0, 2.0], [[1.0], [2.0]], False, r"b must have the shape .* got \(2, 1\)"),
        ([1.0, np.nan], [1.0, 2.0], False, "Input a contains NaN"),
        ([1.0, 1.0], [2.0, 2.0], False, "no spread .* The means differ by -1"),
        ([0.1, 0.2], [0.3, 0.4], True, "no spread"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], True, "got 2 in a and 3 in b"),
    ],
)
def test_errors(a, b, paired, message):
    with pytest.raises(ValueError, match=message):
        cohen_d(a, b, paired=paired)

"""Cohen's d and effect sizes of paired tests: closed forms, coverage of intervals."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import nct, ttest_1samp, ttest_ind

from skood.metrics import auroc, brier, cohen_d
from tests.metrics._resampled import paired


def test_values_by_hand():
    assert cohen_d([1, 2, 3], [0, 1, 2]).value == 1
    # differences 1, 3, 2: mean 2, sd 1
    assert_allclose(cohen_d([1, 5, 7], [0, 2, 5], paired=True).value, 2.0, rtol=1e-12)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=8), rng.normal(0.5, 2, size=5)
    spread = ((a.var(ddof=1) + b.var(ddof=1)) / 2) ** 0.5
    assert_allclose(cohen_d(a, b).value, (a.mean() - b.mean()) / spread, rtol=1e-12)
    actual, swapped = cohen_d(a, b), cohen_d(b, a)
    assert_allclose(swapped, [-actual.value, -actual.high, -actual.low], rtol=1e-6)
    assert_allclose(cohen_d(100 + 3 * a, 100 + 3 * b), actual, rtol=1e-6)


@pytest.mark.parametrize("n, expected", [(8, 1.25), (10, 1.12)])
def test_effect_size_of_the_study_of_markov_logic_networks(n, expected):
    """99.89 ± .02 against 99.80 ± .03: the printed d of 1.27 is that of n = 8."""
    z = np.arange(n) - (n - 1) / 2
    z *= n**0.5 / z.std(ddof=1)  # of standard error 1
    d = cohen_d(99.89 + 0.02 * z, 99.80 + 0.03 * z)
    assert_allclose(d.value, expected, atol=0.005)


def test_the_interval_contains_0_iff_the_t_test_is_not_significant():
    rng = np.random.default_rng(1)
    for shift in (0.0, 0.8, 1.0, 1.2, 2.0):
        a, b = rng.normal(size=(2, 9))
        effect = cohen_d(a + shift, b)
        assert (effect.low > 0) == (ttest_ind(a + shift, b).pvalue < 0.05)
        pairs = cohen_d(a + shift, b, paired=True)
        assert (pairs.low > 0) == (ttest_1samp(a + shift - b, 0).pvalue < 0.05)


def test_ends_are_quantiles_of_the_noncentral_t():
    a, b = np.arange(7.0), np.arange(7.0)[::-1] ** 0.5
    effect = cohen_d(a, b, confidence_level=0.9)
    t = effect.value * 3.5**0.5
    assert_allclose(nct.cdf(t, 12, effect.low * 3.5**0.5), 0.95, atol=1e-6)
    assert_allclose(nct.cdf(t, 12, effect.high * 3.5**0.5), 0.05, atol=1e-6)


@pytest.mark.parametrize("paired, d", [(False, 1.2), (True, 0.7)])
def test_coverage_with_few_seeds(paired, d):
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(400):
        b = rng.normal(size=5)
        a = (b if paired else 0) + d + rng.normal(size=5)
        effect = cohen_d(a, b, paired=paired, confidence_level=0.9)
        covered += effect.low <= d <= effect.high
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


def _mean(y_true, y_pred):
    return float(np.mean(y_pred))


def test_effect_size_of_a_mean_is_cohens_d_of_the_samples():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 60))
    result = paired(
        _mean,
        np.zeros(60, dtype=int),
        a + 0.4,
        b,
        n_resamples=800,
        random_state=0,
        bounds=(-9, 9),
    )
    expected = cohen_d(a + 0.4, b, paired=True)
    # the standard deviation of 800 resamples has a standard error of 2.5 %
    assert_allclose(result.effect_size, expected, rtol=0.08, atol=0.02)


def test_effect_size_counts_the_samples_that_the_metric_uses():
    """OOD samples do not change the Brier score, and its effect size."""
    rng = np.random.default_rng(4)
    y = rng.integers(2, size=50)
    p, q = rng.uniform(size=(2, 50))
    p, q = np.column_stack([p, 1 - p]), np.column_stack([q, 1 - q])
    first = np.eye(2)[y]
    expected = cohen_d(
        ((p - first) ** 2).sum(1), ((q - first) ** 2).sum(1), paired=True
    )
    y = np.append(y, np.full(150, -1))
    p, q = (np.vstack([x, np.full((150, 2), 0.5)]) for x in (p, q))
    result = paired(brier, y, p, q, n_resamples=800, random_state=0)
    assert_allclose(result.effect_size, expected, rtol=0.08, atol=0.02)


def test_effect_size_does_not_grow_with_the_number_of_samples():
    values = []
    for n in (50, 800):
        rng = np.random.default_rng(n)
        y = np.repeat([0, -1], n)
        scores = rng.normal(size=(2, 2 * n)) + (y == 0) * [[1.5], [0.5]]
        result = paired(auroc, y, *scores, n_resamples=200, random_state=0)
        swapped = paired(auroc, y, *scores[::-1], n_resamples=200, random_state=0)
        value, low, high = result.effect_size
        assert_allclose(swapped.effect_size, [-value, -high, -low], rtol=1e-6)
        assert low < value < high
        values.append(result.effect_size)
    assert values[0].low < values[1].value < values[0].high
    widths = [actual.high - actual.low for actual in values]
    assert_allclose(widths[0] / widths[1], 4, rtol=0.1)

"""Tests of ties: groups of scores, and thresholds between them."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

from skood.utils import _ties
from skood.utils._ties import (
    at_ends,
    ends_of_ties,
    merged_ties,
    ranked_scores,
    threshold_at,
    threshold_between,
    tie_around,
    tie_scale,
    tolerance,
)
from skood.utils._weights import weighted_quantile
from tests._loops import looped


@pytest.mark.parametrize("step", [1, -1])
def test_against_a_loop(step):
    rng = np.random.default_rng(0)
    for n in range(1, 30):
        ranked = np.sort(rng.choice([-np.inf, 0.0, 0.5, 2.0, np.inf], n))[::step]
        ends = [i for i in range(n) if i == n - 1 or ranked[i] != ranked[i + 1]]
        np.testing.assert_array_equal(ends_of_ties(ranked), ends)


def _tied(scores, one, other):
    tol = tolerance(np.array([one, other]), *tie_scale(scores)).min()
    return abs(one - other) <= tol


def test_small_scores_of_equal_sign_are_compared_relatively():
    scores = np.logspace(-12, 0, 100)
    assert not _tied(scores, 1e-12, 1e-9)
    assert not _tied(scores, 1e-12, 1.001e-12)
    assert _tied(scores, 1e-12, 1.00005e-12)


def test_small_scores_of_both_signs_are_not():
    scores = np.linspace(-3.0, 3.0, 101)
    assert _tied(scores, 1e-9, -1e-9)
    assert not _tied(scores, 1e-3, -1e-3)


def test_a_large_constant_ties_nothing():
    scores = 1e6 + np.linspace(-1.0, 1.0, 101)
    assert not _tied(scores, scores[50], scores[51])
    assert len(np.unique(merged_ties(scores))) == 101
    assert threshold_at(scores, 0.5) == pytest.approx(1e6 - 0.01, abs=1e-9)


@pytest.mark.parametrize("share", [0.6, 0.95, 0.995, 1.0])
def test_common_score_is_a_single_level_for_any_rounding(share):
    rng = np.random.default_rng(0)
    n = round(share * 1000)
    common = 3.0 * (1 + 1e-7 * rng.uniform(-1, 1, size=n))
    scores = np.concatenate([common, rng.uniform(5.0, 9.0, size=1000 - n)])
    assert len(np.unique(merged_ties(scores)[:n])) == 1
    assert threshold_at(scores, 0.05) < common.min() - 1e-6


@looped("level", [1e-200, 1e-9, 1.0, 1e200, -1e-9, -1.0, -1e200])
@looped("shift", [-2e-6, -1e-7, 1e-7, 2e-6])
def test_rounding_crosses_no_threshold(level, shift):
    rng = np.random.default_rng(1)
    atoms = level * np.array([1.0, 1.5, 2.0, 4.0])
    scores = rng.choice(atoms, size=400, p=[0.1, 0.2, 0.3, 0.4])
    noisy = scores * (1 + 1e-7 * rng.uniform(-1, 1, size=400))
    for share in np.linspace(0.0, 0.99, 34):
        threshold = threshold_at(noisy, share)
        assert np.mean(noisy < threshold) <= share
        np.testing.assert_array_equal(
            noisy < threshold, scores * (1 + shift) < threshold
        )


def test_distinct_scores_keep_the_promised_share():
    rng = np.random.default_rng(2)
    for n in (1, 2, 7, 20, 100, 1000):
        scores = rng.normal(size=n)
        for share in (0.0, 0.05, 0.29, 0.5, 0.57):
            k = int(np.floor(share * n + 1e-9))
            threshold = threshold_at(scores, share)
            assert np.count_nonzero(scores < threshold) == k
            if k:
                ranked = np.sort(scores)
                assert threshold == pytest.approx((ranked[k - 1] + ranked[k]) / 2)


def test_dense_scores_lose_no_more_than_the_tolerance():
    scores = np.random.default_rng(3).uniform(size=300_000)
    threshold = threshold_at(scores, 0.3)
    assert 0.3 - 2e-5 < np.mean(scores < threshold) <= 0.3
    ranked = np.sort(scores)  # in the middle of a gap
    k = np.searchsorted(ranked, threshold)
    assert threshold == (ranked[k - 1] + ranked[k]) / 2


def test_a_common_score_among_dense_ones():
    rng = np.random.default_rng(4)
    common = 0.5 * (1 + 1e-8 * rng.uniform(-1, 1, size=100_000))
    scores = np.concatenate([common, rng.uniform(size=200_000)])
    threshold = threshold_at(scores, 0.5)  # in the middle of the common score
    assert common.min() - 1e-5 < threshold < common.min() - 1e-7


def test_merged_ties_against_a_loop():
    rng = np.random.default_rng(5)
    for _ in range(50):
        atoms = rng.uniform(1.0, 2.0, size=6)
        chosen = rng.integers(0, 6, size=40)
        scores = atoms[chosen] * (1 + 1e-7 * rng.uniform(-1, 1, size=40))
        merged = merged_ties(scores)
        np.testing.assert_allclose(merged, scores, rtol=1e-6)
        for i in range(40):
            np.testing.assert_array_equal(merged == merged[i], chosen == chosen[i])


def test_chains_are_not_merged():
    scores = np.linspace(1.0, 2.0, 500_001)  # neighbors are tied
    assert merged_ties(scores) is scores
    few = np.array([1.0, 1.0 + 4e-6, 1.0 + 8e-6, 3.0, 4.0, 5.0])
    assert len(np.unique(merged_ties(few))) == 4
    long = np.array([1.0, 1.0 + 4e-5, 1.0 + 8e-5, 5.0, 6.0, 7.0])
    assert len(np.unique(merged_ties(long))) == 6


def test_infinite_scores():
    scores = np.array([-np.inf, -np.inf, 1.0, 2.0, np.inf])
    np.testing.assert_array_equal(merged_ties(scores), scores)
    assert 0.999 < threshold_at(scores, 0.4) < 1.0
    assert threshold_at(scores, 0.6) == 1.5
    assert np.isinf(threshold_at(scores, 0.1))
    assert threshold_between(-np.inf, np.inf, scores) == -np.inf
    assert threshold_between(np.inf, np.inf, scores) == np.inf
    extreme = np.array([-1.7e308, 1.7e308])
    assert threshold_at(extreme, 0.5) == 0.0
    assert tie_scale(np.array([np.inf, -np.inf])) == (0.0, 0.0)


def test_threshold_between_is_below_the_upper_score():
    for low, high in ((1.0, np.nextafter(1.0, 2)), (0.0, 5e-324), (-5e-324, 0.0)):
        assert low <= threshold_between(low, high, np.array([low, high])) < high
    for high in (0.0, 1.0, -1e300):
        assert threshold_between(-np.inf, high, np.array([high])) < high


def _kinds_of_scores(n):
    rng = np.random.default_rng(n)
    normal = rng.normal(size=n)
    return {
        "normal": normal,
        "single precision": normal.astype(np.float32).astype(np.float64),
        "tied": np.round(normal, 1),
        "all nearly tied": np.round(normal, 1) * (1 + 1e-13 * rng.normal(size=n)),
        "some nearly tied": np.where(rng.random(n) < 0.05, 1 + 1e-15 * normal, normal),
        "heavy tails": rng.standard_cauchy(n) ** 9,
        "tiny": normal * 1e-312,
        "zeros": np.where(rng.random(n) < 0.5, 0.0, -0.0),
        "infinite": np.where(np.abs(normal) > 1, normal * np.inf, normal),
        "constant": np.full(n, 3.0),
    }


@pytest.mark.parametrize("n", [1, 2, 999, 1000, 1023, 1025, 5003])
def test_ranked_scores_are_sorted(n):
    for scores in _kinds_of_scores(n).values():
        order, ranked = ranked_scores(scores)
        np.testing.assert_array_equal(np.sort(order), np.arange(n))
        np.testing.assert_array_equal(ranked, np.sort(scores))
        np.testing.assert_array_equal(scores[order], ranked)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 99, 1000])
def test_quantiles_are_of_numpy(n):
    scores = _kinds_of_scores(n)
    del scores["infinite"]
    for values in scores.values():
        for share in (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0):
            actual = weighted_quantile(np.sort(values), None, share)
            assert actual == np.quantile(values, share)


@pytest.mark.parametrize("n", [1, 2, 7, 1000, 1501])
def test_scales_of_a_plain_computation(n):
    for scores in _kinds_of_scores(n).values():
        finite = np.clip(scores[np.isfinite(scores)], -1e300, 1e300)
        if not finite.size:
            continue
        typical = np.median(np.abs(finite))
        least = typical if finite.min() < 0 < finite.max() else 0.0
        spreads = [
            np.subtract(*np.quantile(finite, [1 - tail, tail]))
            for tail in (0.25, 0.05, 0.0)
        ]
        wide = [spread for spread in spreads if spread > 1e-6 * typical]
        assert tie_scale(scores) == (least, (wide or [typical])[0])


def test_merged_ties_of_a_loop():
    for scores in _kinds_of_scores(1200).values():
        scale = tie_scale(scores)
        expected, order = scores.copy(), np.argsort(scores, kind="stable")
        groups = [[order[0]]]
        for i in order[1:]:
            pair = scores[[groups[-1][-1], i]]
            if np.isfinite(pair).all() and pair[1] - pair[0] <= min(
                tolerance(pair, *scale)
            ):
                groups[-1].append(i)
            else:
                groups.append([i])
        for group in groups:
            ends = scores[[group[0], group[-1]]]
            if ends[0] < ends[1] <= ends[0] + max(tolerance(ends, *scale)):
                expected[group] = ends[0] / 2 + ends[1] / 2
        np.testing.assert_array_equal(merged_ties(scores), expected)


def test_values_at_the_ends():
    values = np.array([1.0, 2.0, 3.0])
    assert at_ends(values, np.arange(3)) is values
    np.testing.assert_array_equal(at_ends(values, np.array([0, 2])), [1.0, 3.0])


@pytest.mark.parametrize("n", [1, 2, 40, 1500])
def test_ties_around_a_threshold_are_those_of_all(n):
    kinds = _kinds_of_scores(n)
    kinds["chains"] = np.linspace(1.0, 1.0 + 4e-6 * n, n)
    kinds["pairs"] = np.repeat(kinds["normal"], 2)[:n] * (1 + 1e-7 * kinds["chains"])
    for scores in kinds.values():
        ranked, scale = np.sort(scores), tie_scale(scores)
        merged = merged_ties(ranked)
        for k in range(0, n, 1 + n // 100):
            actual = tie_around(ranked, k, scale)
            if k + 1 < n and merged[k] == merged[k + 1] and np.isfinite(merged[k]):
                if merged is ranked or ranked[k] == ranked[k + 1]:
                    continue  # no threshold is there
                tied = np.flatnonzero(merged == merged[k])
                assert actual == (tied[0], tied[-1])
            else:
                assert actual is None


@pytest.mark.parametrize("n", [1000, 1003])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.999])
def test_selection_equals_sorting(n, share, monkeypatch):
    """Scales and thresholds do not depend on how far scores are sorted."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=n)
    cases = [
        normal,
        np.exp(5 * normal),
        -np.exp(5 * normal),
        np.round(np.exp(normal)),
        np.maximum(normal, 0),
        np.minimum(normal, 0),
        np.where(rng.random(n) < 0.1, normal, 30) + 40,  # quartiles are equal
        np.where(rng.random(n) < 0.02, normal, -30) - 40,
        np.full(n, 2.0),
        np.zeros(n),
        -np.zeros(n),
        1e307 * np.exp(-(normal**2)),
        np.where(normal > 1, np.inf, np.exp(normal)),
        np.where(normal > 1, -np.inf, -np.exp(normal)),
    ]
    got = [(tie_scale(case), threshold_at(case, share)) for case in cases]
    monkeypatch.setattr(_ties, "_MANY", n + 1)
    assert got == [(tie_scale(case), threshold_at(case, share)) for case in cases]

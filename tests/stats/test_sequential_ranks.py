"""Sequential ranks, bets on p-values, and the test of serial dependence."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import permutations, product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import kstest

from skood.monitor import (
    log_histogram_bet,
    log_power_mixture,
    log_simple_jumper,
    sequential_ranks,
    serial_dependence,
)

from tests.monitor._vectors import VECTORS  # isort: skip


@pytest.mark.parametrize("resolution", ["calibration", "full"])
def test_ranks(resolution):
    data, expected = (VECTORS["M-ranks"][key] for key in ("input", "expected"))
    ranks = sequential_ranks(
        data["calibration"], data["scores"], theta=data["theta"], resolution=resolution
    )
    name = {"calibration": "calibration_resolution"}.get(resolution, resolution)
    assert_allclose(ranks, expected[name], rtol=1e-9)


@pytest.mark.parametrize("resolution", ["calibration", "full"])
@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_ranks_of_a_naive_loop(resolution, n):
    """Distinct calibration scores; ties among the stream."""
    rng = np.random.default_rng(n)
    calibration, theta = rng.permutation(9) + 0.5, rng.random(n)
    scores = rng.integers(0, 10, n)
    ranks = sequential_ranks(calibration, scores, theta=theta, resolution=resolution)
    for t in range(n):
        earlier = np.r_[calibration, scores[:t]]
        if resolution == "full":
            less, equal = sum(earlier < scores[t]), sum(earlier == scores[t])
        else:
            index = np.searchsorted(np.sort(calibration), scores[: t + 1])
            less = index[t] + sum(index[:t] < index[t])
            equal = sum(index[:t] == index[t])
        expected = (less + theta[t] * (equal + 1)) / (9 + t + 1)
        assert ranks[t] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("resolution", ["calibration", "full"])
def test_p_values_are_uniform_with_ties(resolution):
    scores = np.random.default_rng(0).integers(0, 3, 4010)
    p = sequential_ranks(
        scores[:10], scores[10:], resolution=resolution, random_state=0
    )
    assert kstest(p, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(p[1:], p[:-1])[0, 1]) < 0.04
    again = sequential_ranks(
        scores[:10], scores[10:], resolution=resolution, random_state=0
    )
    assert_array_equal(p, again)


def test_bets():
    data, expected = (VECTORS["M-bettors"][key] for key in ("input", "expected"))
    p = data["p"]
    assert_allclose(log_power_mixture(p), expected["power_mixture"], atol=1e-9)
    assert_allclose(log_simple_jumper(p), expected["simple_jumper_J_0_01"], atol=1e-9)
    log_capital = log_simple_jumper(p, eps=(-1, 0))
    assert_allclose(log_capital, expected["jumper_ood_J_0_01"], atol=1e-9)
    assert_allclose(log_histogram_bet(p), expected["histogram_10_bins"], atol=1e-9)


def test_power_mixture_is_its_integral():
    """Both forms, next to where they meet, and after many samples."""
    for p in (
        [0.3],
        [0.13],
        [0.1353],
        [1.0] * 5,
        [1e-300] * 3,
        [0.2] * 40 + [0.9] * 20,
    ):
        s, t = -np.log(p).sum(), len(p)
        mode = min(1, t / s) if s else 1

        def ratio(k, s=s, t=t, mode=mode):
            return np.exp(t * np.log(k / mode) - (k - mode) * s)

        integral, _ = quad(ratio, 0, 1, points=[mode])
        expected = np.log(integral) + t * np.log(mode) + (1 - mode) * s
        assert log_power_mixture(p)[-1] == pytest.approx(expected, rel=1e-8)
    path = log_power_mixture(np.random.default_rng(0).random(100_000))
    assert np.isfinite(path).all()
    assert path.max() < np.log(100)
    assert abs(np.diff(path)).max() < 10
    assert_array_equal(log_power_mixture([0.5, 0.0, 0.5])[1:], [np.inf, np.inf])


@pytest.mark.parametrize("bet", [log_simple_jumper, log_histogram_bet])
def test_bets_have_mean_one(bet):
    """E[M_3 | p_1, p_2] = M_2, by the midpoint rule: bets are piecewise linear."""
    grid = (np.arange(100) + 0.5) / 100
    values = np.exp([bet([0.123, 0.9, last])[2] for last in grid])
    assert values.mean() == pytest.approx(np.exp(bet([0.123, 0.9])[1]), rel=1e-12)


def test_serial_dependence():
    data, expected = (VECTORS["M-serial"][key] for key in ("input", "expected"))
    scores = data["calibration"] + data["scores"]
    log_e = serial_dependence(scores, n_calibration=len(data["calibration"]))
    assert_allclose(log_e, expected["log_e"], atol=1e-9)


def test_serial_factors_have_mean_one():
    """E[e_t | order before] = e_{t-1}, over all orders of three and four scores."""
    paths = {
        tuple(sum(c < x for c in order[:3]) for x in order[3:]): np.exp(
            np.r_[0, serial_dependence(order, n_calibration=3)]
        )
        for order in permutations(range(7))
        if order[0] < order[1] < order[2]
    }
    assert len(paths) == 4**4
    for t in range(1, 5):
        for before in product(range(4), repeat=t - 1):
            mean = 0
            for j in range(4):  # each index with its probability in the urn
                ranks = (*before, j, *[0] * (4 - t))
                mean += (1 + before.count(j)) / (3 + t) * paths[ranks][t]
            last = paths[(*before, *[0] * (5 - t))][t - 1]
            assert mean == pytest.approx(last, abs=1e-12)


def test_serial_dependence_of_ties_and_of_repeated_samples():
    rng = np.random.default_rng(1)
    levels = rng.integers(0, 4, 3000)
    assert serial_dependence(levels, random_state=0).max() < np.log(100)
    assert serial_dependence(np.repeat(levels, 2), random_state=0).max() > 50
    assert serial_dependence(np.zeros(3000), random_state=0).max() < np.log(100)
    assert len(serial_dependence(levels)) == 1500


def test_errors():
    with pytest.raises(ValueError, match=r"theta must have the shape .2,., got .3,."):
        sequential_ranks([1.0], [1.0, 2.0], theta=[0.1] * 3)
    with pytest.raises(ValueError, match=r"p must be in .0, 1., got 0.1 to 1.5"):
        log_power_mixture([0.1, 1.5])
    with pytest.raises(ValueError, match=r"eps must be .* numbers in .-2, 2."):
        log_simple_jumper([0.1], eps=[3])
    with pytest.raises(ValueError, match=r"At least 1 score of .*, got n_samples=0"):
        sequential_ranks([], [1.0])
    with pytest.raises(ValueError, match=r"n_calibration=3 must be less than .* 3"):
        serial_dependence([1.0, 2.0, 3.0], n_calibration=3)
    with pytest.raises(ValueError, match="scores contains 1 NaN among 2 values"):
        sequential_ranks([1.0], [np.nan, 1.0])

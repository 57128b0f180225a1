"""Storey's estimate with a threshold that is estimated from the p-values."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skood.combine import BenjaminiHochberg, DetectorEnsemble, Storey
from skood.detectors import KNN, Mahalanobis
from skood.exceptions import SkoodWarning
from tests.combine._combiners import mixed_pvalues

GRID = [i / 100 for i in range(96)]

few = pytest.mark.filterwarnings("ignore:lam=")


def _estimate(p, lam, plus_one=False):
    return (sum(each > lam for each in p) + plus_one) / (len(p) * (1 - lam))


def _bootstrap(p, grid, plus_one):
    m = len(p)
    curve = [_estimate(p, lam, plus_one) for lam in grid]
    low = np.quantile(curve, 0.1)
    errors = []
    for lam, estimate in zip(grid, curve, strict=True):
        w = sum(each > lam for each in p)
        variance = w / (m**2 * (1 - lam) ** 2) * (1 - w / m)
        errors.append(variance + (estimate - low) ** 2)
    best = min(errors)
    at = next(i for i, e in enumerate(errors) if e <= best + 1e-9)
    return min(1.0, curve[at])


def _smoother(p, grid, plus_one):
    curve = [_estimate(p, lam, plus_one) for lam in grid]
    value = np.polyval(np.polyfit(grid, curve, 3), grid[-1])
    return min(max(value, 0.0), 1.0)


@few
@pytest.mark.parametrize("plus_one", [False, True])
@pytest.mark.parametrize("m", [1, 2, 7, 18])
def test_sample_by_sample(m, plus_one):
    P = mixed_pvalues(np.random.default_rng(m), 80, m)
    array = [0.1, 0.5, 0.3]
    curve = Storey("bootstrap", plus_one).pi0_curve(P)
    bootstrap = Storey("bootstrap", plus_one).pi0(P)
    smoother = Storey("smoother", plus_one).pi0(P)
    of_array = Storey(array, plus_one).pi0(P)
    for s, p in enumerate(P.tolist()):
        expected = [_estimate(p, lam, plus_one) for lam in GRID]
        assert_allclose(curve[s], expected, rtol=1e-12)
        assert_allclose(bootstrap[s], _bootstrap(p, GRID, plus_one), rtol=1e-9)
        assert_allclose(smoother[s], _smoother(p, GRID, plus_one), atol=1e-8)
        assert_allclose(of_array[s], _bootstrap(p, sorted(array), plus_one), rtol=1e-9)


@few
def test_the_variance_is_that_of_bootstrap_samples():
    p = np.array([0.001, 0.01, 0.02, 0.3, 0.5, 0.7, 0.9])
    draws = np.random.default_rng(0).choice(p, size=(200_000, 7))
    for lam, w in ((0.02, 4), (0.4, 3), (0.8, 1)):
        estimates = (draws > lam).sum(axis=1) / (7 * (1 - lam))
        expected = w / (49 * (1 - lam) ** 2) * (1 - w / 7)
        assert_allclose(estimates.var(), expected, rtol=0.02)
    assert_allclose(Storey("bootstrap").pi0([p]), 0.58309, atol=5e-6)
    assert_allclose(Storey(0.5).pi0([p]), 0.57143, atol=5e-6)
    assert_allclose(Storey(0.5).pi0_curve([p]), [[4 / 7]], rtol=1e-12)


@few
@pytest.mark.parametrize(
    "m, lam, accepted",
    # independent uniform p-values; 40,000 draws of the specification
    [
        (7, 0.5, 0.920),
        (7, "bootstrap", 0.607),
        (7, "smoother", 0.576),
        (18, 0.5, 0.940),
        (18, "bootstrap", 0.863),
        (18, "smoother", 0.785),
    ],
)
def test_share_of_accepted_samples(m, lam, accepted):
    P = np.random.default_rng(1).random((20_000, m))
    share = np.mean(Storey(lam).statistic(P) > 0.05)
    assert abs(share - accepted) < 3 * np.sqrt(accepted * (1 - accepted) * 1.5 / 20_000)


@few
@pytest.mark.slow
@pytest.mark.parametrize(
    "m, expected",
    [
        (7, {0.5: 0.920, "bootstrap": 0.607, "smoother": 0.576}),
        (18, {0.5: 0.940, "bootstrap": 0.863, "smoother": 0.785}),
    ],
)
def test_table_of_the_user_guide(m, expected):
    """300,000 draws: standard errors of 0.0009 or less."""
    least = {7: 0.277, 18: 0.551}[m]  # with the smallest estimate of the grid
    expected = {**expected, "smallest": least, "bh": {7: 0.950, 18: 0.949}[m]}
    counts = dict.fromkeys(expected, 0)
    for seed in range(6):
        P = np.random.default_rng(seed).random((50_000, m))
        bh = BenjaminiHochberg().statistic(P)
        pi0 = np.minimum(Storey("bootstrap").pi0_curve(P).min(axis=1), 1)
        ratios = np.sort(P, axis=1) * m / np.arange(1, m + 1)
        levels = {"bh": bh, "smallest": np.minimum(pi0 * ratios.min(axis=1), 1)}
        for lam in (0.5, "bootstrap", "smoother"):
            levels[lam] = Storey(lam).statistic(P)
        for name, level in levels.items():
            counts[name] += np.sum(level > 0.05)
    for name, accepted in expected.items():
        assert abs(counts[name] / 300_000 - accepted) < 0.002, name


@few
@pytest.mark.parametrize("lam", ["bootstrap", "smoother", [0.2, 0.6]])
def test_a_sample_alone_is_the_same_sample(lam):
    P = mixed_pvalues(np.random.default_rng(0), 60, 9)
    combiner = Storey(lam)
    alone = [combiner.statistic(P[[i]])[0] for i in range(len(P))]
    assert_array_equal(combiner.statistic(P), alone)
    assert_array_equal(combiner.statistic(P[:, ::-1]), alone)


def test_few_detectors_warn_and_many_do_not():
    P = np.random.default_rng(0).random((5, 99))
    message = "lam='bootstrap' estimates the threshold from 99 p-values"
    with pytest.warns(SkoodWarning, match=message) as caught:
        Storey("bootstrap").statistic(P)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Storey("bootstrap").pi0_curve(P)
        Storey("smoother").statistic(np.hstack([P, P]))
        Storey(0.4).statistic(P)


def test_in_an_ensemble():
    """The conformal level holds for any combiner."""
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(1000, 3)), rng.normal(size=(4000, 3))
    members = [("knn", KNN()), ("mahalanobis", Mahalanobis())]
    with pytest.warns(SkoodWarning, match="from 2 p-values"):
        ensemble = DetectorEnsemble(
            members, Storey("bootstrap", plus_one=True), random_state=0
        ).fit(X)
        accepted = np.mean(ensemble.predict(X_new) == 1)
    # 100 calibration samples of the level: sd .022
    assert 0.95 - 3 * 0.022 < accepted < 1


@pytest.mark.parametrize(
    "lam, message",
    [
        ("median", "'lam' parameter of Storey"),
        ([0.5, 1.0], r"lam must be thresholds in \[0, 1\)"),
        ([-0.1], r"lam must be thresholds in \[0, 1\)"),
        ([[0.5]], r"lam must be thresholds in \[0, 1\) of shape \(n,\)"),
    ],
)
def test_errors(lam, message):
    for method in ("statistic", "pi0", "pi0_curve"):
        with pytest.raises(ValueError, match=message):
            getattr(Storey(lam), method)(np.full((2, 100), 0.3))

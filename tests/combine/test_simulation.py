"""Error rates of combiners on drawn p-values, against published and exact numbers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from skood.combine import (
    BenjaminiHochberg,
    BenjaminiYekutieli,
    Bonferroni,
    Cauchy,
    DOSStorey,
    Fisher,
    HarmonicMean,
    Naive,
    Storey,
    Stouffer,
    Vote,
    conformal_pvalues,
)
from skood.metrics import auroc, fpr_at_tpr
from tests.combine._members import equicorrelated

ALPHA = 0.05
C_M = {7: 2 / 7, 18: 2 / 15}


def combiners(m):
    """The combiners, under the names that the checked numbers have."""
    return {
        "naive": Naive(),
        "bonferroni": Bonferroni(),
        "bh": BenjaminiHochberg(),
        "by": BenjaminiYekutieli(),
        "dsde": DOSStorey(c_m=C_M[m]),
        "dsde_no_fallback": DOSStorey(c_m=C_M[m], fallback="argmax"),
        "storey": Storey(),
        "storey_plus1": Storey(plus_one=True),
        "vote50": Vote(),
        "vote60": Vote(0.6),
        "fisher": Fisher(),
        "stouffer": Stouffer(),
        "cauchy": Cauchy(),
        "hmp": HarmonicMean(),
    }


slow = pytest.mark.slow


@cache
def null_pvalues(m, rho=0.0, n=200_000):
    return ndtr(equicorrelated(np.random.default_rng(m), n, m, rho))


def tpr(combiner, P):
    """Share of ID samples that is accepted."""
    return np.mean(combiner.statistic(P) > ALPHA)


def as_printed(m, P):
    """The statistic with the product that equation 15 prints."""
    k = DOSStorey(c_m=C_M[m], fallback="argmax").change_point(P)
    at = np.sort(P, axis=1)[np.arange(len(P)), k - 1]
    return (1 - k / m) * (1 - at) * BenjaminiHochberg().statistic(P)


# ---- ID samples

NULL = {  # B-null-tpr-7, B-null-tpr-18
    7: {
        "bh": 0.95,
        "dsde": 0.9352866666666667,
        "dsde_no_fallback": 0.9349374166666666,
        "eq15_as_printed": 0.9005054166666666,
        "storey": 0.9198511666666667,
        "storey_plus1": 0.9426211666666666,
        "mean_pi0": 0.874280556533016,
    },
    18: {
        "bh": 0.95,
        "dsde": 0.94129375,
        "dsde_no_fallback": 0.9412795,
        "eq15_as_printed": 0.9053275,
        "storey": 0.94058375,
        "storey_plus1": 0.9453905,
        "mean_pi0": 0.8940530533437148,
    },
}


@pytest.mark.parametrize("m", [7, pytest.param(18, marks=slow)])
def test_tpr_of_independent_detectors(m):
    harmonic = sum(1 / i for i in range(1, m + 1))
    expected = NULL[m] | {
        "naive": (1 - ALPHA) ** m,
        "bonferroni": (1 - ALPHA / m) ** m,
        "by": 1 - ALPHA / harmonic,
        "vote50": binom.cdf(math.ceil(m / 2) - 1, m, ALPHA),
        "vote60": binom.cdf(math.ceil(0.6 * m) - 1, m, ALPHA),
    }
    P, named = null_pvalues(m), combiners(m)
    actual = {name: tpr(c, P) for name, c in named.items() if name in expected}
    actual["eq15_as_printed"] = np.mean(as_printed(m, P) > ALPHA)
    actual["mean_pi0"] = DOSStorey(c_m=C_M[m]).pi0(P).mean()
    # the exact ones have a standard error of at most 0.0011 here, the others of 0.0006
    assert actual == pytest.approx(expected, abs=0.002)
    for name in ("fisher", "stouffer", "cauchy"):
        assert tpr(named[name], P) == pytest.approx(0.95, abs=0.002)


@pytest.mark.parametrize(
    ("rho", "expected"),
    [
        (0.3, {"dsde": 0.935, "storey": 0.865, "fisher": 0.875, "stouffer": 0.837}),
        (0.6, {"dsde": 0.944, "storey": 0.811, "fisher": 0.840, "stouffer": 0.779}),
        (0.9, {"dsde": 0.960, "storey": 0.670, "fisher": 0.821, "stouffer": 0.742}),
    ],
)
def test_tpr_of_dependent_detectors(rho, expected):
    P = null_pvalues(7, rho)
    actual = {name: tpr(c, P) for name, c in combiners(7).items()}
    assert {k: actual[k] for k in expected} == pytest.approx(expected, abs=0.003)
    # the level is kept under positive, or under any dependence
    assert min(actual[k] for k in ("bonferroni", "bh", "by", "hmp")) > 0.9485


@pytest.mark.parametrize(
    "rho", [0.0, *(pytest.param(r, marks=slow) for r in (0.3, 0.6)), 0.9]
)
@pytest.mark.parametrize("m", [7, 18])
def test_least_tpr_of_dsde(m, rho):
    P = null_pvalues(m, rho, 50_000)
    combiner = DOSStorey(c_m=C_M[m])
    least = 1 - (m // 2) / m
    assert combiner.pi0(P).min() >= least
    last = [float(i >= 2 * (m // 2) - 1) for i in range(m)]  # k = floor(m / 2)
    assert combiner.pi0([last]) == pytest.approx(least)
    q, simes = combiner.statistic(P), BenjaminiHochberg().statistic(P)
    assert (q >= least * simes * (1 - 1e-12)).all()
    assert np.mean(q > ALPHA) >= np.mean(simes > ALPHA / least)
    assert np.mean(q > ALPHA) > 1 - ALPHA * m / (m - m // 2)


# ---- few calibration rows


@pytest.mark.parametrize(
    ("method", "expected"),
    [("ecdf", 0.909), pytest.param("conformal", 0.996, marks=slow)],
)
def test_tpr_with_200_calibration_samples(method, expected):
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(400):
        cal, new = rng.random((200, 18)), rng.random((250, 18))
        P = conformal_pvalues(new, cal, method=method)
        shares.append(tpr(BenjaminiHochberg(), P))
    # one calibration set is like another: standard error of the mean 0.001
    assert np.mean(shares) == pytest.approx(expected, abs=0.004)


@pytest.mark.parametrize(
    "name, rho",
    [
        ("dsde", 0.0),
        ("fisher", 0.9),
        *(
            pytest.param(name, rho, marks=slow)
            for name, rho in product(("bh", "dsde", "fisher", "stouffer"), (0.0, 0.9))
            if (name, rho) not in (("dsde", 0.0), ("fisher", 0.9))
        ),
    ],
)
def test_tpr_of_the_conformal_level(name, rho):
    # half of 400 rows give the p-values, half rank the statistic: by exchangeability
    # the TPR is 1 - floor(alpha (n + 1)) / (n + 1) without ties, and more with ties
    rng, combiner = np.random.default_rng(1), combiners(18)[name]
    shares = []
    for _ in range(250):
        scores = equicorrelated(rng, 200 + 199 + 250, 18, rho)
        P = conformal_pvalues(scores[200:], scores[:200])
        q = combiner.statistic(P)
        ranked = np.sort(q[:199])
        rank = np.searchsorted(ranked, q[199:] * (1 + 1e-12), side="right")
        shares.append(np.mean(1 + rank > ALPHA * 200 * (1 + 1e-12)))
    error = np.std(shares) / math.sqrt(len(shares))
    assert error < 0.0015
    assert np.mean(shares) > 0.95 - 3.5 * error
    if name in ("fisher", "stouffer"):
        assert np.mean(shares) < 0.95 + 3.5 * error


# ---- OOD samples

# TPR and FPR at alpha, AUROC, FPR at a TPR of 95 %, all in %
SPARSE = {  # B-sim-7-0.0-sparse: a shift of 3 of the first two detectors
    "naive": [70.04, 0.56, 98.42, 8.33],
    "bonferroni": [94.84, 8.06, 98.42, 8.33],
    "by": [98.04, 15.57, 98.55, 7.65],
    "bh": [94.7, 7.23, 98.55, 7.65],
    "dsde": [93.3, 4.97, 98.67, 6.81],
    "dsde_product": [89.96, 4.14, 98.28, 8.87],
    "storey": [91.84, 4.82, 97.89, 8.32],
    "storey_plus1": [94.02, 6.27, 98.56, 7.45],
    "vote50": [99.98, 98.12, 75.13, 69.61],
    "vote60": [100.0, 99.9, 68.94, 78.16],
    "fisher": [94.95, 6.57, 98.72, 6.64],
    "stouffer": [94.94, 26.74, 94.55, 26.92],
    "cauchy": [94.76, 6.6, 98.05, 6.91],
    "hmp": [98.95, 20.92, 98.7, 6.77],
}
DENSE = {  # B-sim-7-0.0-dense: a shift of 1.5 of all detectors
    "naive": [70.04, 1.6, 95.47, 27.18],
    "bonferroni": [94.84, 26.5, 95.47, 27.18],
    "by": [98.04, 44.66, 96.38, 23.29],
    "bh": [94.7, 22.05, 96.38, 23.29],
    "dsde": [93.3, 13.38, 96.88, 19.0],
    "dsde_product": [89.96, 11.39, 95.86, 26.2],
    "storey": [91.84, 2.89, 98.59, 6.29],
    "storey_plus1": [94.02, 7.73, 98.1, 9.82],
    "vote50": [99.98, 62.06, 98.92, 5.52],
    "vote60": [100.0, 85.67, 98.77, 6.06],
    "fisher": [94.95, 1.68, 99.6, 1.71],
    "stouffer": [94.94, 1.05, 99.75, 1.06],
    "cauchy": [94.76, 12.58, 97.69, 13.43],
    "hmp": [98.95, 53.43, 97.21, 16.86],
}


@pytest.mark.parametrize(
    ("expected", "shift"),
    [(SPARSE, [3, 3, 0, 0, 0, 0, 0]), (DENSE, [1.5] * 7)],
    ids=["sparse", "dense"],
)
def test_ood_samples(expected, shift):
    # The numbers are of one draw, and so are these: the standard error of a difference
    # is up to 0.6, which is that of the FPR at a TPR, so not every seed is within 0.8.
    rng = np.random.default_rng(4)
    calibration = equicorrelated(rng, 200_000, 7, 0.0)
    scores = equicorrelated(rng, 80_000, 7, 0.0)
    y = np.repeat([0, -1], 40_000)
    scores[y == -1] -= shift
    P = conformal_pvalues(scores, calibration)
    statistics = {k: c.statistic(P) for k, c in combiners(7).items() if k in expected}
    statistics["dsde_product"] = as_printed(7, P)
    assert statistics.keys() == expected.keys()
    for name, q in statistics.items():
        accepted = q > ALPHA
        actual = [np.mean(accepted[y == 0]), np.mean(accepted[y == -1])]
        actual += [auroc(y, q), fpr_at_tpr(y, q)]
        assert [100 * rate for rate in actual] == pytest.approx(
            expected[name], abs=0.8
        ), name

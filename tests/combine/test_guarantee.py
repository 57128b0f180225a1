"""The fraction of rejected ID samples is at most alpha, whatever the dependence."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import os
import re
import warnings
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.model_selection import StratifiedKFold

from skood.combine import (
    BenjaminiHochberg,
    DetectorEnsemble,
    DOSStorey,
    Fisher,
    Storey,
    Stouffer,
)
from skood.detectors import KNN
from skood.exceptions import SkoodWarning
from tests.combine._combiners import ALL
from tests.combine._members import (
    Column,
    equicorrelated,
    frozen_columns,
    frozen_ensemble,
)

# Members and c_m, correlation, and number of calibration samples.
NIGHTLY = "SKOOD_NIGHTLY" in os.environ
LEVELS = list(product([(7, 2 / 7), (18, 2 / 15)], [0.0, 0.3, 0.6, 0.9], [200, 2000]))
N_DRAWS = 40
if not NIGHTLY:
    LEVELS = [
        ((7, 2 / 7), 0.6, 200),
        ((7, 2 / 7), 0.3, 2000),
        ((18, 2 / 15), 0.0, 2000),
        ((18, 2 / 15), 0.9, 2000),
    ]
    N_DRAWS = 15


def _accepted(combiner, m, rho, n, *, level, n_draws, n_new=200, seed=0, scores=None):
    """Mean share of accepted ID samples over draws of calibration rows, and its s.e."""
    rng = np.random.default_rng(seed)
    shares = []
    ensemble = frozen_ensemble(m, combiner, level=level)
    for draw in range(n_draws):
        samples = (scores or equicorrelated)(rng, n + n_new, m, rho)
        ensemble.set_params(random_state=draw)
        with warnings.catch_warnings(action="ignore", category=SkoodWarning):
            ensemble.fit(samples[:n])
        shares.append(np.mean(ensemble.predict(samples[n:]) == 1))
    return np.mean(shares), np.std(shares) / np.sqrt(n_draws)


@pytest.mark.slow
@pytest.mark.parametrize("members, rho, n", LEVELS)
def test_conformal_level(members, rho, n):
    m, c_m = members
    n_draws = 300 if n == 200 else 60
    combiner = DOSStorey(c_m=c_m)
    mean, error = _accepted(combiner, m, rho, n, level="conformal", n_draws=n_draws)
    assert error < 0.003
    assert mean >= 0.95 - 3 * error
    # ties of the statistics, with few rows, only make it accept more
    assert mean <= 0.95 + 1 / (n / 2 + 1) + 3 * error + (0.02 if n == 200 else 0.003)


@pytest.mark.parametrize(
    "combiner, n_draws",
    [
        (Fisher(), 60),
        *(
            pytest.param(combiner, 200, marks=pytest.mark.slow)
            for combiner in (BenjaminiHochberg(), Fisher(), Stouffer())
        ),
    ],
)
def test_conformal_level_with_any_combiner_and_dependence(combiner, n_draws):
    """Members that contradict each other, and scores with many ties."""

    def opposed(rng, n, m, _):
        samples = rng.normal(size=(n, 1)) * np.resize([1, -1], m)
        return np.round(samples, 1) + rng.integers(0, 2, size=(n, m))

    mean, error = _accepted(
        combiner, 4, None, 200, level="conformal", n_draws=n_draws, scores=opposed
    )
    assert mean >= 0.95 - 3 * error


def test_nominal_level_is_lost_under_dependence():
    """Combined p-values that assume independence: what the conformal level is for."""
    draws = {"n": 2000, "level": "nominal", "n_draws": 10}
    for combiner, at_most in ((Fisher(), 0.85), (Stouffer(), 0.8)):
        mean, _ = _accepted(combiner, 7, 0.6, **draws)
        assert mean < at_most
    mean, error = _accepted(BenjaminiHochberg(), 7, 0.6, **draws)
    assert mean >= 0.95 - 3 * error  # positive dependence is no harm to BH


@pytest.mark.parametrize(
    "method", ["conformal", pytest.param("ecdf", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("combiner", ALL, ids=repr)
def test_no_combiner_fails_on_few_calibration_samples(combiner, method):
    """Statistics of 0, ties and levels of 0 included; decisions are those of levels."""
    n_fits = 0
    for m, n, alpha, folds, level in product(
        (1, 2, 5), (5, 40), (0.05, 0.5), ("same", 2), ("conformal", "nominal")
    ):
        rng = np.random.default_rng([m, n])
        X = np.round(rng.normal(size=(n, 1)) + rng.normal(size=(n, m)), 1)
        members = (
            frozen_columns(m)
            if folds == "same"
            else [(f"c{j}", Column(j)) for j in range(m)]
        )
        ensemble = DetectorEnsemble(
            members,
            combiner,
            alpha=alpha,
            calibration=folds,
            level=level,
            method=method,
            random_state=0,
        )
        with warnings.catch_warnings(record=True, action="always") as caught:
            try:
                ensemble.fit(X)
            except ValueError as error:  # too few members or samples, and it says so
                assert re.search(r"needs (at least )?\d+|c_m", str(error))
                continue
        n_fits += 1
        new = np.concatenate([X, np.full((1, m), -9.0), np.full((1, m), 9.0)])
        levels, rejected = ensemble.levels(new), ensemble.predict(new) == -1
        assert np.isfinite(ensemble.score_samples(new)).all()
        assert_array_equal(rejected, levels <= alpha * (1 + 1e-11))
        if any("No sample can be rejected" in str(w.message) for w in caught):
            assert not rejected.any()
            assert not ensemble.selected_detectors(new)[rejected].any()
    assert n_fits >= 20


def test_statistics_of_zero_are_warned_of():
    X = np.random.default_rng(0).normal(size=(400, 2))
    ensemble = DetectorEnsemble(
        [(f"knn{k}", KNN(n_neighbors=k, normalize=False)) for k in (5, 6)],
        Storey(),
        alpha=0.1,
        calibration=0.5,
        random_state=0,
    )
    with pytest.warns(
        SkoodWarning,
        match=r"No sample can be rejected at alpha=0.1: the smallest statistic of "
        r"Storey, 0, is that of \d+ of the 100 .* such as BenjaminiHochberg\(\) or "
        r"Storey\(plus_one=True\)",
    ):
        ensemble.fit(X)
    assert (ensemble.predict(X * 10) == 1).all()
    ensemble.set_params(combiner=Storey(plus_one=True))
    with warnings.catch_warnings(action="error", category=SkoodWarning):
        ensemble.fit(X)
    assert (ensemble.predict(X * 100 + 50) == -1).all()


def _draw_classes(rng, n, n_classes=100):
    means = 2 * np.random.default_rng(1).normal(size=(n_classes, 4))
    y = rng.integers(0, n_classes, n)
    return means[y] + 0.15 * rng.normal(size=(n, 4)), y


def _fraction_rejected(calibration, alphas, n_draws, n=300):
    """Mean fraction of rejected ID samples, and its standard error, at each alpha."""
    shares = []
    members = [(f"knn{k}", KNN(n_neighbors=k, normalize=False)) for k in (2, 3)]
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        ensemble = DetectorEnsemble(
            members, calibration=calibration, level="conformal", random_state=seed
        )
        with warnings.catch_warnings(action="ignore", category=SkoodWarning):
            ensemble.fit(*_draw_classes(rng, n))
        levels = ensemble.levels(_draw_classes(rng, 500)[0])
        shares.append([(levels <= alpha + 1e-12).mean() for alpha in alphas])
    return np.mean(shares, axis=0), np.std(shares, axis=0) / np.sqrt(n_draws)


@pytest.mark.parametrize(
    "calibration", [0.5, 5, pytest.param(2, marks=pytest.mark.slow)]
)
def test_few_samples_of_many_classes(calibration):
    """Stratified folds rejected .2 at .2, and .46 at .4; a level is at most alpha."""
    alphas = np.array([0.1, 0.2, 0.4])
    means, errors = _fraction_rejected(calibration, alphas, N_DRAWS)
    assert np.all(means <= alphas + 3 * errors)
    assert np.all(means >= alphas / 3)  # and not for want of power


@pytest.mark.slow
def test_stratified_folds_void_the_level():
    """For what folds of the user's own are documented: no promise."""
    alphas = np.array([0.4])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated", UserWarning)
        splitter = StratifiedKFold(5, shuffle=True, random_state=0)
        means, errors = _fraction_rejected(splitter, alphas, 40)
    assert means[0] > 0.4 + 3 * errors[0]

"""The share of rejected ID samples is at most alpha, whatever the dependence."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest

from skood.combine import (
    BenjaminiHochberg,
    DetectorEnsemble,
    DOSStorey,
    Fisher,
    Stouffer,
)
from skood.exceptions import SkoodWarning
from tests.combine._members import equicorrelated, frozen_columns


def _accepted(combiner, m, rho, n, *, level, n_draws, n_new=200, seed=0, scores=None):
    """Mean share of accepted ID samples over draws of calibration rows, and its s.e."""
    rng = np.random.default_rng(seed)
    shares = []
    ensemble = DetectorEnsemble(
        frozen_columns(m), combiner, calibration="same", level=level
    )
    for draw in range(n_draws):
        rows = (scores or equicorrelated)(rng, n + n_new, m, rho)
        ensemble.set_params(random_state=draw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SkoodWarning)
            ensemble.fit(rows[:n])
        shares.append(np.mean(ensemble.predict(rows[n:]) == 1))
    return np.mean(shares), np.std(shares) / np.sqrt(n_draws)


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 2000])
@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("m, c_m", [(7, 2 / 7), (18, 2 / 15)])
def test_conformal_level(m, c_m, rho, n):
    n_draws = 300 if n == 200 else 60
    combiner = DOSStorey(c_m=c_m)
    mean, error = _accepted(combiner, m, rho, n, level="conformal", n_draws=n_draws)
    assert error < 0.003
    assert mean >= 0.95 - 3 * error
    # ties of the statistics, with few rows, only make it accept more
    assert mean <= 0.95 + 1 / (n / 2 + 1) + 3 * error + (0.02 if n == 200 else 0.003)


@pytest.mark.parametrize("combiner", [BenjaminiHochberg(), Fisher(), Stouffer()])
def test_conformal_level_with_any_combiner_and_dependence(combiner):
    """Members that contradict each other, and scores with many ties."""

    def opposed(rng, n, m, _):
        rows = rng.normal(size=(n, 1)) * np.resize([1, -1], m)
        return np.round(rows, 1) + rng.integers(0, 2, size=(n, m))

    mean, error = _accepted(
        combiner, 4, None, 200, level="conformal", n_draws=200, scores=opposed
    )
    assert mean >= 0.95 - 3 * error


def test_nominal_level_is_lost_under_dependence():
    """Combined p-values that assume independence: what the conformal level is for."""
    draws = {"n": 2000, "level": "nominal", "n_draws": 30}
    for combiner, at_most in ((Fisher(), 0.85), (Stouffer(), 0.8)):
        mean, _ = _accepted(combiner, 7, 0.6, **draws)
        assert mean < at_most
    mean, error = _accepted(BenjaminiHochberg(), 7, 0.6, **draws)
    assert mean >= 0.95 - 3 * error  # positive dependence is no harm to BH

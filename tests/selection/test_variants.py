"""Several splits, covariate shift and streams: checked numbers and rates."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import permutations, product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skood.combine import conformal_pvalues
from skood.selection import (
    LOND,
    StepUp,
    evalue_selection,
    fdp_power,
    weighted_selection,
)
from skood.selection._best_of import auxiliary_counts
from skood.selection._step_up import evalues_of
from skood.selection._variants import _fractions, weighted_counts
from skood.stats._ranks import check_pvalues
from tests.selection._cases import orders, vector


def test_checked_evalues():
    arguments, expected = vector("S-evalues")
    p, n, alpha = np.array(arguments["p"]), arguments["n"], arguments["alpha"]
    ranks = check_pvalues(p, n_calibration=n)
    for name, level in zip(("e1", "e2"), arguments["alpha_bh"], strict=True):
        assert_allclose(evalues_of(ranks, n, level), expected[name])
    first, both = arguments["alpha_bh"][0], arguments["alpha_bh"]
    selected = evalue_selection(p[None], n, alpha, alpha_bh=first).nonzero()[0]
    assert selected.tolist() == expected["selected_e1"]
    selected = evalue_selection([p, p], n, alpha, alpha_bh=both).nonzero()[0]
    assert selected.tolist() == expected["selected_mean"]


@pytest.mark.parametrize("case", list(vector("S-evalues-exact")[1]))
def test_exact_mean_of_evalues(case):
    """By enumeration: the mean is 1; one over the largest selected p is too much."""
    n, m0, m1 = map(int, case.split(",")[:3])
    alpha = float(case.split(",")[3])
    expected = vector("S-evalues-exact")[1][case]
    total, invalid, n_orders = 0.0, 0.0, 0
    for ranks in orders(n, m0, m1):
        e = evalues_of(ranks, n, alpha)
        total += e[:m0].sum()
        selected = ranks[e > 0]
        if len(selected):
            invalid += np.sum(e[:m0] > 0) * (n + 1) / selected.max()
        n_orders += 1
    assert total / n_orders == pytest.approx(expected["sum"], abs=1e-9)
    assert invalid / n_orders == pytest.approx(expected["invalid"], abs=1e-9)


def test_evalues_of_splits(rng):
    """Few splits that disagree still have a false discovery rate below the level."""
    is_ood, rates = np.arange(60) < 15, []
    for _ in range(150):
        scores = rng.normal(size=60) - 5 * is_ood
        noise = rng.normal(size=(4, 60)) / 2
        p = [conformal_pvalues(scores + e, rng.normal(size=300)) for e in noise]
        rates.append(fdp_power(evalue_selection(p, 300, 0.2), is_ood))
    fdp, power = np.mean(rates, axis=0)
    assert fdp < 0.2 and power > 0.6
    assert not evalue_selection(np.ones((3, 5)), 20).any()
    assert evalue_selection(np.ones((3, 0)), 20).shape == (0,)


def test_checked_weighted_selection():
    arguments, expected = vector("S-wcs")
    values = [
        np.array(arguments[k]) for k in ("cal", "scores", "weights_cal", "weights")
    ]
    calibration, scores, w_calibration, weights = values
    counts = weighted_counts(scores, weights, calibration, w_calibration, 0.4)
    assert counts.tolist() == expected["R"]
    for pruning, name in (("none", "none"), (0.5, "half")):
        batch = weighted_selection(*values, arguments["alpha"], pruning=pruning)
        assert_allclose(batch.pvalues, expected["p"], rtol=1e-12)
        actual = batch.selected.nonzero()[0].tolist()
        assert actual == expected[f"selected_{name}"]


def test_weighted_counts_by_a_loop(rng):
    for _ in range(30):
        m, n = rng.integers(1, 14), rng.integers(1, 25)
        scores, calibration = rng.integers(-4, 4, m), rng.integers(-2, 5, n)
        weights, w = rng.integers(0, 4, m) / 2, 1 + rng.integers(0, 4, n) / 2
        expected = []
        for j in range(m):
            p = [
                (w[calibration <= s].sum() + weights[j] * (scores[j] <= s))
                / (w.sum() + weights[j])
                for s in scores
            ]
            p[j] = 0.0
            k = np.arange(1, m + 1)
            expected.append(k[m * np.sort(p) <= 0.5 * k * (1 + 1e-12)].max())
        actual = weighted_counts(scores, weights, calibration, w, 0.5)
        assert actual.tolist() == expected
        ones = weighted_counts(scores, np.ones(m), calibration, np.ones(n), 0.5)
        equal = auxiliary_counts(scores, calibration, 0.5)
        assert ones.tolist() == equal.tolist()


@pytest.mark.parametrize("score", [range(6), (0, 0, 1, 1, 2, 2), (1, 0, 5, 3, 4, 2)])
def test_exact_rate_under_a_shift(score):
    """By enumeration of covariates 0 to 5: the bound holds with the weights only."""
    n, alpha, is_ood = 3, 0.8, np.array([False, True])
    score = np.array(score, dtype=float)
    calibrating = np.full(6, 1 / 6)
    w = 0.5 ** np.arange(6)
    testing = calibrating * w / (calibrating @ w)
    rates = {"none": 0.0, "shared": 0.0, "no weights": 0.0}
    for x in product(range(6), repeat=n + 1):
        x = np.array(x)
        chance = calibrating[x[:n]].prod() * testing[x[n]]
        calibration, scores = score[x[:n]], np.append(score[x[n]], -1.0)
        arguments = calibration, scores, w[x[:n]], np.append(w[x[n]], 1.0), alpha
        # with R of at most 2, xi matters at 1/2 only
        fdp = [
            fdp_power(weighted_selection(*arguments, pruning=xi).selected, is_ood).fdp
            for xi in (0.25, 0.75, 1.0)
        ]
        rates["none"] += chance * fdp[2]
        rates["shared"] += chance * np.mean(fdp[:2])
        p = conformal_pvalues(scores, calibration)
        plain = StepUp().selected(p, n, alpha)
        rates["no weights"] += chance * fdp_power(plain, is_ood).fdp
    bound = alpha / 2
    assert 0.1 < rates["none"] <= rates["shared"] <= bound < rates["no weights"]


def test_rate_under_a_shift():
    """Weights restore the rate, which the p-values without weights exceed."""
    rng = np.random.default_rng(2)
    n, m, alpha, n_runs = 600, 80, 0.1, 200
    is_ood, plain, weighted = np.arange(m) < 4, [], []
    for seed in range(n_runs):
        x = rng.normal(size=n)
        z = rng.normal(-1.0, 1, m)
        z[is_ood] -= 4
        p = conformal_pvalues(z, x)
        plain.append(fdp_power(StepUp().selected(p, n, alpha), is_ood).fdp)
        batch = weighted_selection(
            x, z, np.exp(-x - 0.5), np.exp(-z - 0.5), alpha, random_state=seed
        )
        weighted.append(fdp_power(batch.selected, is_ood).fdp)
    assert np.mean(plain) > 2 * alpha
    assert np.mean(weighted) <= alpha + 3 * np.std(weighted) / np.sqrt(n_runs)


def test_checked_stream():
    arguments, expected = vector("S-lond")
    p = arguments["p"]
    assert_allclose(_fractions()[:8], expected["gamma"], rtol=1e-9)
    assert LOND(arguments["alpha"]).update(p).tolist() == expected["rejected"]
    stream = LOND(arguments["alpha"])
    assert [bool(stream.update(each)[0]) for each in p] == expected["rejected"]
    assert (stream.n_seen_, stream.n_selected_) == (8, sum(expected["rejected"]))


@pytest.mark.parametrize("places", [(0, 1), (1, 3), (4, 5)])
def test_exact_rate_of_a_stream(places):
    """By enumeration, at all times: the level is distributed over the ID samples."""
    n, alpha, is_id = 24, 0.9, np.isin(np.arange(6), places)
    fdp = []
    for pair in orders(n, 2, 0):
        for ordered in permutations(pair):
            ranks = np.ones(6)
            ranks[is_id] = ordered
            selected = LOND(alpha).update(ranks / (n + 1))
            n_false = np.cumsum(selected & is_id)
            fdp.append(n_false / np.maximum(np.cumsum(selected), 1))
    bound = alpha * np.cumsum(_fractions()[:6] * is_id)
    rate = np.mean(fdp, axis=0)
    assert (rate <= bound + 1e-12).all()
    assert rate[-1] > 0.2 * bound[-1]  # selected ID samples occur


def test_rate_of_a_long_stream_with_ties(rng):
    """OOD samples at the beginning raise the levels of all ID samples after them."""
    alpha, n_runs, is_id = 0.5, 100, np.arange(120) >= 20
    fdp = []
    for _ in range(n_runs):
        calibration = rng.integers(300, size=400)
        p = conformal_pvalues(
            np.where(is_id, rng.integers(300, size=120), -1), calibration
        )
        selected = LOND(alpha).update(p)
        n_false = np.cumsum(selected & is_id)
        fdp.append(n_false / np.maximum(np.cumsum(selected), 1))
    error = np.std(fdp, axis=0) / np.sqrt(n_runs)
    assert (np.mean(fdp, axis=0) <= alpha + 3 * error).all()
    assert np.mean(fdp, axis=0)[-1] > 0.005


def test_stream_is_unchanged_by_an_error_and_ends():
    stream = LOND(0.5)
    stream.update([1e-6, 0.5])
    for wrong in ([0.1, 0.0], [np.nan], [2.0]):
        with pytest.raises(ValueError, match="pvalues"):
            stream.update(wrong)
    assert stream.n_seen_ == 2
    stream.n_seen_ = 10**6 - 1  # beyond the millionth sample the level is zero
    assert stream.update([1e-12, 1e-12]).tolist() == [True, False]


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1, -1, 1], "weights must be finite and not negative.*got -1"),
        ([1, np.inf, 1], "weights must be finite and not negative.*got inf"),
        ([1, 1], "calibration_weights must have .*, got 2 for 3 samples"),
        ([0, 0, 0], "All calibration_weights are zero"),
    ],
)
def test_invalid_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        weighted_selection([1, 2, 3], [0, 1], weights, [1, 1])


def test_invalid_arguments():
    with pytest.raises(ValueError, match="pruning must be 'shared', 'none' or a n"):
        weighted_selection([1, 2], [0], [1, 1], [1], pruning="both")
    with pytest.raises(ValueError, match="Got 2 rows and 3 numbers"):
        evalue_selection(np.ones((2, 4)), 9, alpha_bh=[0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"or \(n_splits, n_samples\), got \(4,\)"):
        evalue_selection(np.ones(4), 9)
    with pytest.raises(ValueError, match=r"alpha_bh must be in \(0, 1\)"):
        evalue_selection(np.ones((2, 4)), 9, alpha_bh=1.5)

"""Tests of resampled metrics and of p-values, each against a plain loop."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom

from skood.exceptions import SkoodWarning
from skood.metrics import compare_with_best, ranking_metrics
from skood.metrics._compare_with_best import METRICS, Resamples, holm, pvalues_of_best

RNG = np.random.RandomState(0)


def make(tests):
    """Scores with ties, and what resamples them."""
    tests = [np.array(test) for test in tests]
    ids = [RNG.normal(1, 1, (2, len(test))).round(1) for test in tests]
    oods = [[RNG.normal(0, 1, (2, n)).round(1) for n in (30, 20)] for _ in tests]
    random_state = np.random.RandomState(1)
    groups = [[0, 1], [1]]
    resamples = Resamples(ids, oods, tests, groups, list(METRICS), random_state)
    return (ids, oods), resamples


def naive(scores, tests, id_samples, ood_samples):
    """Metrics of rows that are repeated as often as they are drawn."""
    ids, oods = scores
    values = np.empty((len(tests), 2, 4, len(METRICS)))
    for r, test in enumerate(tests):
        for j in range(2):
            for k in range(2):
                drawn = [np.flatnonzero(np.array(test) == i) for i in id_samples]
                id_scores = ids[r][j][np.concatenate(drawn)]
                ood_scores = oods[r][k][j][ood_samples[k]]
                y = np.repeat([0, -1], [len(id_scores), len(ood_scores)])
                actual = ranking_metrics(y, np.append(id_scores, ood_scores))
                values[r, j, k] = [actual[metric] for metric in METRICS]
            values[r, j, 2] = (values[r, j, 0] + values[r, j, 1]) / 2
            values[r, j, 3] = values[r, j, 1]
    return values


@pytest.mark.parametrize("tests", [[range(25)], [range(0, 20), range(10, 30)]])
def test_metrics_of_samples_and_of_resamples(tests):
    scores, resamples = make(tests)
    everything = np.arange(30), [np.arange(30), np.arange(20)]
    expected = naive(scores, tests, *everything)
    assert_allclose(resamples.each(), expected, rtol=1e-12)
    for i in range(5):
        id_weights, ood_weights = resamples._draw(i)
        drawn = [np.repeat(np.arange(len(w)), w) for w in (id_weights, *ood_weights)]
        assert [len(samples) for samples in drawn] == [len(resamples.held_out), 30, 20]
        expected = naive(scores, tests, drawn[0], drawn[1:])
        assert_allclose(resamples(i), expected.mean(axis=0), rtol=1e-12)
    assert_array_equal(resamples(3), resamples(3))
    assert (resamples(3) != resamples(4)).any()


def test_samples_of_a_single_repeat_are_all_drawn_from():
    _, resamples = make([[4, 7, 9]])
    drawn = sum(resamples._draw(i)[0] for i in range(100))
    assert_array_equal(np.flatnonzero(drawn), [4, 7, 9])


def test_every_repeat_keeps_a_row():
    _, resamples = make([[0], [1]])  # half of the draws would lack one of them
    assert all((resamples._draw(i)[0] == 1).all() for i in range(20))


def test_spread_of_auroc_is_that_of_delong():
    """Of a difference of two AUROCs, by E. R. DeLong and others, Biometrics 1988."""
    n_id, n_ood = 160, 120
    shared_id, shared_ood = RNG.normal(1, 1, n_id), RNG.normal(0, 1, n_ood)
    ids = shared_id + RNG.normal(0, 1, (2, n_id))
    oods = shared_ood + RNG.normal(0, 1, (2, n_ood))
    placed = []
    for i, o in zip(ids, oods, strict=True):
        above = i[:, None] > o
        placed.append((above.mean(axis=1), above.mean(axis=0)))
    by_id, by_ood = (placed[0][k] - placed[1][k] for k in (0, 1))
    expected = np.sqrt(by_id.var(ddof=1) / n_id + by_ood.var(ddof=1) / n_ood)
    resamples = Resamples(
        [ids], [[oods]], [np.arange(n_id)], [], ["auroc"], np.random.RandomState(0)
    )
    draws = np.array([resamples(i)[:, 0, 0] for i in range(2000)])
    # the standard error of a standard deviation of 2000 draws is 1.6 %
    assert np.std(draws[:, 0] - draws[:, 1]) == pytest.approx(expected, rel=0.05)


def test_pvalues_by_a_loop():
    values = RNG.normal(size=4)
    draws = values + RNG.normal(size=(50, 4))
    for i, actual in enumerate(pvalues_of_best(values, draws)):
        others = [j for j in range(4) if j != i]
        errors = draws - values
        sd = {j: np.std([e[j] - e[i] for e in errors]) for j in others}
        lag = max(0, *((values[j] - values[i]) / sd[j] for j in others))
        hits = np.zeros(2)
        for e in errors:
            apart = [(e[j] - e[i]) / sd[j] for j in others]
            hits += max(0, *apart) >= lag, max(0, *np.negative(apart)) >= lag
        assert actual == (1 + hits.max()) / 51
    assert pvalues_of_best(values, draws)[values.argmax()] == 1.0


def test_pvalue_of_equal_systems():
    draws = RNG.normal(size=(20, 1)) + np.zeros(3)
    assert_array_equal(pvalues_of_best(np.zeros(3), draws), 1.0)


def test_systems_that_never_vary():
    values = np.array([1.0, 0.9, 1.0])
    draws = np.tile(values, (19, 1))
    assert_array_equal(pvalues_of_best(values, draws), [1.0, 1 / 20, 1.0])


def test_system_of_large_variance_hides_no_difference():
    values = np.array([0.97, 0.93, 0.5])
    draws = values + RNG.normal(size=(999, 3)) * [0.005, 0.005, 0.2]
    pvalues = pvalues_of_best(values, draws)
    assert pvalues[0] == 1.0
    assert pvalues[1] < 0.01


@pytest.mark.parametrize("sd", [1.0, (1.0, 0.05, 5.0)], ids=["alike", "unlike"])
def test_level(sd):
    """Of equal systems at most 5 % of comparisons reject any."""
    n_trials, rejected = 600, 0
    for _ in range(n_trials):
        values = RNG.normal(size=3) * sd
        draws = values + RNG.normal(size=(199, 3)) * sd
        rejected += holm(pvalues_of_best(values, draws)).min() <= 0.05
    # 0.05 and three standard errors
    assert rejected / n_trials <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_trials)
    assert rejected > 0


def test_power():
    values = np.array([0.0, 10.0, 9.9])
    adjusted = holm(pvalues_of_best(values, values + RNG.normal(size=(199, 3))))
    assert adjusted[0] == 3 / 200
    assert adjusted[1] == 1.0
    assert adjusted[2] > 0.05


def test_holm():
    # R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
    adjusted = holm(np.array([0.01, 0.04, 0.03, 0.005]))
    assert_allclose(adjusted, [0.03, 0.06, 0.06, 0.02], rtol=1e-12)
    assert_array_equal(holm(np.array([0.6, 0.5])), [1.0, 1.0])
    assert_array_equal(holm(np.array([0.3])), [0.3])


def scores_of(n_repeats=1):
    ids = [RNG.normal(1, 1, (3, 40)) for _ in range(n_repeats)]
    oods = [RNG.normal(0, 1, (3, 30)) for _ in range(n_repeats)]
    return ids, {"a": oods, "b": [subset - 1 for subset in oods]}


def test_values_and_sign_of_metrics():
    ids, oods = scores_of(2)
    arguments = {"groups": {"both": ["a", "b"]}, "metrics": list(METRICS)}
    result = compare_with_best(ids, oods, n_resamples=59, random_state=0, **arguments)
    assert result.values.shape == (2, 3, 3, len(METRICS))
    assert result.low.shape == result.pvalues.shape == (3, 3, len(METRICS))
    mean = result.values.mean(axis=0)
    assert ((result.low <= mean) & (mean <= result.high)).all()
    for k, (sign, _, function) in enumerate(METRICS.values()):
        best = (sign * mean[..., k]).argmax(axis=0)
        assert (result.pvalues[best, range(3), k] == 1).all()
        y_true = np.repeat([0, -1], [40, 30])
        flat = np.concatenate([ids[1][2], oods["b"][1][2]])
        assert result.values[1, 2, 1, k] == function(y_true, flat)
    again = compare_with_best(ids, oods, n_resamples=59, random_state=0, **arguments)
    assert_array_equal(again.pvalues, result.pvalues)


@pytest.mark.parametrize(
    ("n", "decimals", "n_detectors"), [(20, 9, 2), (20, 0, 5), (100, 0, 2)]
)
@pytest.mark.parametrize("n_trials", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_level_on_scores(n_trials, n, decimals, n_detectors):
    """Equal systems: metrics of quantiles and of ties keep their level, too."""
    rng, rejected = np.random.default_rng(0), np.zeros(3)
    for seed in range(n_trials):
        ids = rng.normal(2.3, 1, size=(n_detectors, n)).round(decimals)
        oods = rng.normal(0, 1, size=(n_detectors, n)).round(decimals)
        result = compare_with_best(
            [ids],
            {"ood": [oods]},
            metrics=["auroc", "fpr_at_tpr", "detection_error"],
            n_resamples=49,
            random_state=seed,
        )
        rejected += result.pvalues[:, 0].min(axis=0) <= 0.1
    assert (rejected <= binom.isf(1e-3, n_trials, 0.1)).all()


def test_power_of_the_fpr_on_tied_scores():
    rng, rejected = np.random.default_rng(0), 0
    for seed in range(20):
        ids = rng.normal([[2.3], [2.3], [0.3]], 1, size=(3, 100)).round()
        oods = rng.normal(0, 1, size=(3, 100)).round()
        draw = {"n_resamples": 59, "random_state": seed}
        comparison = compare_with_best(
            [ids], {"ood": [oods]}, metrics=["fpr_at_tpr"], **draw
        )
        rejected += comparison.pvalues[2, 0, 0] <= 0.1
    assert rejected >= 14


def test_warns_of_the_fpr_of_many_detectors_on_few_samples():
    ids, oods = RNG.normal(size=(2, 6, 19))
    draw = {"n_resamples": 9, "random_state": 0}
    with pytest.warns(SkoodWarning, match=r"6 detectors .* got 19"):
        compare_with_best([ids], {"a": [oods]}, metrics=["fpr_at_tpr"], **draw)
    with warnings.catch_warnings(action="error", category=SkoodWarning):
        compare_with_best([ids], {"a": [oods]}, metrics=["auroc"], **draw)
        compare_with_best([ids[:5]], {"a": [oods[:5]]}, **draw)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["f1"]}, r"have sets among \['a', 'b'\], got \['f1'\]"),
        ({"groups": {"g": ["x"]}}, r"must be names among \['auroc', .*got \['x'\]"),
        ({"held_out": [range(9)]}, r"Got the shapes \[\(3, 40\)\] in id_scores"),
        ({"id_scores": [np.ones(9)]}, "must have the shape"),
        ({"id_scores": [np.ones((3, 9))] * 2}, "one entry per repeat"),
        ({"id_scores": []}, "must have one entry or more"),
        ({"ood_scores": {}}, "must have one entry or more"),
        ({"metrics": []}, "must have one entry or more"),
        ({"groups": {"g": []}}, "must have one entry or more"),
        ({"ood_scores": {"a": [np.ones((3, 0))]}}, r"not empty.* \[\[\(3, 0\)\]\]"),
        ({"n_resamples": 0}, "'n_resamples' parameter of compare_with_best"),
    ],
)
def test_errors(changes, message):
    ids, oods = scores_of()
    arguments = {"id_scores": ids, "ood_scores": oods, "random_state": 0} | changes
    with pytest.raises(ValueError, match=message):
        compare_with_best(**arguments)

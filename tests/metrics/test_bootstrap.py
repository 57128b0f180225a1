"""Tests of bootstrap intervals and paired tests."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.stats import nct, ttest_1samp, ttest_ind
from sklearn.metrics import average_precision_score
from sklearn.utils import check_random_state

from skood.metrics import (
    PairedTestResult,
    aurc,
    auroc,
    bootstrap_ci,
    brier,
    cohen_d,
    expected_calibration_error,
    fpr_at_tpr,
    oscr,
    selective_risk_at,
)
from skood.metrics._resampling import (
    Bootstrap,
    finite_values,
    interval,
    jackknife_values,
    make_system,
    parameters_of,
    strata_of,
)
from skood.rejection import Estimate
from tests.metrics._resampled import OPTIONS, paired
from tests.metrics._samples import tied

METHODS = ["percentile", "basic", "bca"]


def mean(y_true, x):
    return x.mean()


def dominance(y_true, y_score):
    """2 AUROC - 1, faster on few rows."""
    return np.sign(y_score[y_true == 0][:, None] - y_score[y_true == -1]).mean()


def _two_groups(seed, n_id=40, n_ood=30, shift=1.0):
    """Labels and scores of ID rows, shifted upwards, and of OOD rows."""
    rng = np.random.default_rng(seed)
    y_true = np.repeat([0, -1], [n_id, n_ood])
    return y_true, rng.normal(size=y_true.size) + shift * (y_true == 0)


def _draws(y_true, y_score, n_resamples, seed):
    """What bootstrap_ci draws."""
    system = make_system(auroc, y_true, (y_score,), {}, -1, None)
    strata = strata_of(y_true, True, -1, None)
    bootstrap = Bootstrap([system], strata, check_random_state(seed))
    return finite_values(bootstrap, n_resamples, None, "resamples")[:, 0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_interval_of_scipy_on_the_same_resamples(seed, method):
    y_true, y_score = _two_groups(seed)
    draws = _draws(y_true, y_score, 200, seed)
    theirs = stats.bootstrap(
        (np.flatnonzero(y_true == 0), np.flatnonzero(y_true == -1)),
        lambda i, o: auroc(np.r_[y_true[i], y_true[o]], np.r_[y_score[i], y_score[o]]),
        n_resamples=0,
        bootstrap_result=SimpleNamespace(bootstrap_distribution=draws),
        vectorized=False,
        confidence_level=0.9,
        method=method,
    ).confidence_interval
    ours = bootstrap_ci(
        auroc,
        y_true,
        y_score,
        n_resamples=200,
        confidence_level=0.9,
        method=method,
        random_state=seed,
    )
    assert isinstance(ours, Estimate)
    assert ours.value == auroc(y_true, y_score)
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=1e-12)


def test_width_is_that_of_the_normal_theory():
    x = np.random.default_rng(0).normal(size=400)
    value, low, high = bootstrap_ci(
        mean, np.zeros(400), x, n_resamples=4000, random_state=0
    )
    half = 1.96 * x.std() / 20
    # the ends are quantiles of 4000 draws: about 4 % of the half width, 3 sigma
    assert value == pytest.approx(x.mean(), abs=1e-15)
    assert [low - value, high - value] == pytest.approx([-half, half], rel=0.1)


@pytest.mark.parametrize(
    "method", ["basic", "bca", pytest.param("percentile", marks=pytest.mark.slow)]
)
def test_coverage_is_close_to_nominal(method):
    true = 2 * stats.norm.cdf(1 / math.sqrt(2)) - 1  # of N(1, 1) against N(0, 1)
    hits = 0
    for seed in range(1000, 1100):
        _, low, high = bootstrap_ci(
            dominance,
            *_two_groups(seed, 40, 40),
            n_resamples=99,
            confidence_level=0.8,
            method=method,
            random_state=seed,
        )
        hits += low <= true <= high
    # three standard deviations of a binomial of 100 trials
    assert hits / 100 == pytest.approx(0.8, abs=3 * math.sqrt(0.8 * 0.2 / 100))


def test_arrays_are_drawn_together_and_strata_have_constant_sizes():
    y_true = np.repeat([3, 5, -1], [20, 15, 4])
    samples = np.arange(39)

    def metric(y_true, y_pred, row, proba, *, loss, names, ood_label, classes):
        assert y_pred is None
        assert_array_equal(y_true, np.repeat([3, 5, -1], [20, 15, 4])[row])
        assert_array_equal(proba, np.column_stack([row, -row]))
        assert_array_equal(loss, 2 * row)
        assert names == ["a", "b"] and ood_label == -1 and classes is None
        assert np.sum(y_true == -1) == 4 and y_true.size == 39
        return row.mean()

    arrays = None, samples, torch.as_tensor(np.column_stack([samples, -samples]))
    params = {"loss": list(2 * samples), "names": ["a", "b"], "n_resamples": 20}
    result = bootstrap_ci(metric, y_true, *arrays, random_state=0, **params)
    assert result.low < result.value < result.high


def test_without_strata_a_resample_may_lack_a_kind():
    y_true, y_score = _two_groups(0, 30, 1)
    assert bootstrap_ci(auroc, y_true, y_score, n_resamples=50, random_state=0).low >= 0
    with pytest.raises(ValueError, match="No OOD samples in y_true"):
        bootstrap_ci(
            auroc, y_true, y_score, n_resamples=50, random_state=0, stratify=False
        )


def test_ood_label_and_classes_reach_the_metric_if_it_has_them():
    y_true, y_pred, y_score = tied(0)
    draw = {"n_resamples": 20, "random_state": 0}
    expected = bootstrap_ci(oscr, y_true, y_pred, y_score, **draw)
    other = np.where(y_true == -1, 9, y_true)
    for params in ({"ood_label": 9}, {"classes": [0, 1, 2]}):
        assert expected == bootstrap_ci(oscr, other, y_pred, y_score, **draw, **params)
    # metrics without these parameters, of this package or not
    sign = np.where(y_true == -1, -1, 1)
    assert bootstrap_ci(
        average_precision_score, sign, y_score, **draw
    ).value == pytest.approx(average_precision_score(sign, y_score))
    assert parameters_of(max) == {}  # has no signature that can be read


def test_parameters_reach_the_metric():
    y_true, y_score = _two_groups(1)
    assert bootstrap_ci(fpr_at_tpr, y_true, y_score, tpr=0.5, n_resamples=9).value == (
        fpr_at_tpr(y_true, y_score, tpr=0.5)
    )


def test_result_depends_on_the_seed_alone():
    y_true, y_score = _two_groups(2)
    serial = bootstrap_ci(auroc, y_true, y_score, n_resamples=50, random_state=3)
    with joblib.parallel_config(backend="threading"):
        parallel = bootstrap_ci(
            auroc, y_true, y_score, n_resamples=50, random_state=3, n_jobs=3
        )
    assert serial == parallel
    assert serial != bootstrap_ci(
        auroc, y_true, y_score, n_resamples=50, random_state=4
    )


@pytest.mark.parametrize("method", METHODS)
def test_metric_that_never_changes(method):
    y_true, y_score = _two_groups(0, shift=100)
    assert bootstrap_ci(
        auroc, y_true, y_score, method=method, n_resamples=20
    ) == Estimate(1.0, 1.0, 1.0)


def test_interval_of_a_small_calibration_error():
    # resampling shifts it upwards: percentiles do not even contain the value
    rng = np.random.default_rng(0)
    p = rng.uniform(size=500)
    y_true = (rng.uniform(size=500) < p).astype(int)
    args = expected_calibration_error, y_true, np.column_stack([1 - p, p])
    params = {"n_resamples": 99, "random_state": 0, "confidence_level": 0.8}
    estimate = bootstrap_ci(*args, method="percentile", **params)
    assert estimate.value < estimate.low
    estimate = bootstrap_ci(*args, **params)
    assert 0 == estimate.low < estimate.value < estimate.high  # it is 0 in truth


def test_bca_levels_at_extremes():
    draws = np.linspace(-1, 1, 201)
    # no bias and no skewness: the percentile interval
    flat = [np.array([1.0, 1.0])]
    assert interval(0.0, draws, "bca", 0.9, flat) == pytest.approx((-0.9, 0.9))
    # leave-one-out values so skewed that the map turns around: the end of the range
    skewed = np.zeros(400)
    skewed[0] = -1.0
    assert interval(0.95, draws, "bca", 0.95, [skewed])[1] == 1.0
    assert interval(-0.95, draws, "bca", 0.95, [-skewed])[0] == -1.0
    for value, side in ((-2.0, "above"), (2.0, "below")):
        with pytest.raises(ValueError, match=f"all 201 resamples are {side} the value"):
            interval(value, draws, "bca", 0.9, flat)


def test_jackknife_leaves_out_single_samples_of_a_stratum():
    x = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    system = make_system(mean, np.array([0, 0, 0, -1, -1]), (x,), {}, -1, None)
    first, second = jackknife_values(
        system, [np.array([0, 1, 2]), np.array([3, 4])], None
    )
    assert_allclose(first, (31 - x[:3]) / 4)
    assert_allclose(second, (31 - x[3:]) / 4)


def test_errors_of_bootstrap_ci():
    y_true, y_score = _two_groups(0)
    with pytest.raises(ValueError, match=r"Array 1 after y_true must .* 70 .*\(69,\)"):
        bootstrap_ci(auroc, y_true, y_score[1:])
    with pytest.raises(ValueError, match=r"Array 2 after y_true .* shape \(\)"):
        bootstrap_ci(auroc, y_true, y_score, 3.0)
    with pytest.raises(ValueError, match=r"pass labels.*np.where\(is_ood, -1, 1\)"):
        bootstrap_ci(auroc, y_true == -1, y_score)
    with pytest.raises(TypeError, match="must return a number, got OperatingPoint"):
        bootstrap_ci(selective_risk_at, y_true, np.zeros(70), y_score)
    with pytest.raises(ValueError, match="metric is nan on the data"):
        bootstrap_ci(lambda y, s: math.nan, y_true, y_score)

    def sometimes(y_true, y_score):
        return math.nan if y_score.max() < y_score_max else 1.0

    y_score_max = y_score.max()
    with pytest.raises(ValueError, match=r"NaN or infinite in \d+ of 50 resamples"):
        bootstrap_ci(sometimes, y_true, y_score, n_resamples=50, random_state=0)
    with pytest.raises(ValueError, match="infinite in 1 of 40 leave-one-out samples"):
        bootstrap_ci(sometimes, y_true, y_score, method="bca", random_state=0)
    with pytest.raises(ValueError, match="there is a single ID or OOD sample"):
        bootstrap_ci(auroc, [0, 0, -1], [1, 2, 0], method="bca")


@pytest.mark.parametrize("function", [bootstrap_ci, paired])
@pytest.mark.parametrize(
    "params",
    [
        {"n_resamples": 0},
        {"n_resamples": True},
        {"confidence_level": 1.0},
        {"method": "normal"},
        {"stratify": "yes"},
        {"n_jobs": "all"},
        {"random_state": "seed"},
    ],
    ids=lambda params: next(iter(params)),
)
def test_errors_of_parameters(function, params):
    arrays = [np.zeros(2)] * (1 if function is bootstrap_ci else 2)
    name = next(iter(params))
    where = "bootstrap_ci"
    if function is paired:
        where = "Resampling" if name in OPTIONS else "paired_test"
    message = f"'{name}' parameter of {where} .*Got {params[name]!r} instead"
    with pytest.raises(ValueError, match=message):
        function(mean, [0, 1], *arrays, **params)


def _pair(seed, n=60, gain=0.0, scale=None):
    """Two correlated detectors; `scale` maps the scores of the second."""
    rng = np.random.default_rng(seed)
    y_true = np.repeat([0, -1], n // 2)
    is_id = y_true == 0
    common, private_a, private_b = 0.7 * rng.normal(size=(3, n))
    a, b = (1 + gain) * is_id + common + private_a, is_id + common + private_b
    return y_true, a, b if scale is None else scale(b)


def _far(b):
    return np.exp(2 * b) + 100


def _p_values(n_pairs, gain, **params):
    return np.array(
        [
            paired(
                dominance,
                *_pair(seed, gain=gain, scale=_far),
                n_resamples=59,
                random_state=seed,
                **params,
            ).pvalue
            for seed in range(n_pairs)
        ]
    )


@pytest.mark.parametrize("method", ["permutation", "bootstrap"])
def test_level_and_power_on_scores_of_different_scales(method):
    # three standard deviations of a binomial of 60 trials
    noise = 3 * math.sqrt(0.1 * 0.9 / 60)
    assert np.mean(_p_values(60, 0.0, method=method) <= 0.1) <= 0.1 + noise
    assert np.mean(_p_values(20, 1.0, method=method) <= 0.1) >= 0.8


@pytest.mark.parametrize("n_pairs", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_level_and_power_of_permutations_of_tied_scores(n_pairs):
    """Ties, which the FPR at a TPR accepts together, remain ties after swapping."""
    rng, y_true = np.random.default_rng(0), np.repeat([0, -1], 100)
    rejected = 0
    for seed in range(n_pairs):
        a, b = (rng.normal(size=(2, 200)) + 4.0 * (y_true == 0)).round()
        draw = {"n_resamples": 19, "random_state": seed}
        rejected += paired(fpr_at_tpr, y_true, a, np.exp(b), **draw).pvalue <= 0.1
        if seed < 5:
            worse = np.exp(b - 2.0 * (y_true == 0))
            assert paired(fpr_at_tpr, y_true, a, worse, **draw).pvalue == 0.1
    assert rejected <= stats.binom.isf(1e-3, n_pairs, 0.1)


def test_swapping_raw_scores_of_different_scales_has_less_power():
    # the reason for rank=True
    assert np.mean(_p_values(20, 1.0, rank=False) <= 0.1) <= 0.5


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_permutation_test_of_scipy(alternative):
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 9))
    exact = stats.permutation_test(
        (a, b),
        lambda x, y: x.mean() - y.mean(),
        permutation_type="samples",
        vectorized=False,
        alternative=alternative,
        n_resamples=np.inf,
    )
    ours = paired(
        mean,
        np.zeros(9),
        a,
        b,
        rank=False,
        alternative=alternative,
        n_resamples=4000,
        random_state=0,
    )
    assert ours.statistic == pytest.approx(exact.statistic)
    sides = 2 if alternative == "two-sided" else 1
    share = exact.pvalue / sides
    noise = sides * 4 * math.sqrt(share * (1 - share) / 4000)
    assert ours.pvalue == pytest.approx(exact.pvalue, abs=noise)
    assert 0.02 < exact.pvalue < 0.98


@pytest.mark.parametrize("method", ["permutation", "bootstrap"])
def test_systems_that_do_not_differ(method):
    y_true, a, _ = _pair(0)
    result = paired(auroc, y_true, a, _far(a), method=method, n_resamples=50)
    assert isinstance(result, PairedTestResult)
    value = auroc(y_true, a)
    assert (result.statistic, result.pvalue) == (0.0, 1.0)
    assert result.value_a == result.value_b == value
    # on other samples they may: 30 of either kind lack one of a fraction of 0.1
    assert -0.15 < result.low < -0.1 and result.high == -result.low < 0.15


def test_largest_difference_there_can_be():
    y_true = np.repeat([0, -1], 20)
    a = (y_true == 0).astype(float)
    result = paired(
        auroc, y_true, a, -a, alternative="greater", n_resamples=99, random_state=0
    )
    assert result[:-1] == (1.0, 0.01, result.low, 1.0, 1.0, 0.0)
    assert np.isnan(result.effect_size).all()  # all resamples are perfect
    assert 0.6 < result.low < 0.9
    for method, least in (("permutation", 0.02), ("bootstrap", 0.02)):
        params = {"method": method, "n_resamples": 99, "random_state": 0}
        assert paired(auroc, y_true, a, -a, **params).pvalue == least
        # exchanging the systems exchanges the sides
        less = paired(auroc, y_true, -a, a, alternative="less", **params)
        assert (less.statistic, less.pvalue) == (-1.0, 0.01)


def test_bootstrap_p_value_goes_with_the_interval():
    for gain, n in ((0.5, 200), (1.0, 100), (0.0, 200)):
        args = auroc, *_pair(0, n=n, gain=gain)
        params = {"method": "bootstrap", "n_resamples": 199, "random_state": 0}
        result = paired(*args, **params)
        assert (result.low <= 0 <= result.high) == (result.pvalue > 0.05)


def test_interval_of_the_difference_of_correlated_systems():
    y_true, a, b = _pair(1, gain=0.5, n=200)
    draw = {"n_resamples": 199, "random_state": 5}
    result = paired(auroc, y_true, a, b, **draw)
    first, other = (bootstrap_ci(auroc, y_true, x, **draw) for x in (a, b))
    assert (result.value_a, result.value_b) == (first.value, other.value)
    apart = math.hypot(first.value - first.low, other.high - other.value)
    assert 0.5 * apart < result.statistic - result.low < 0.95 * apart
    # other systems, exchanged
    turned = paired(auroc, y_true, b, a, **draw)
    assert (turned.low, turned.high) == pytest.approx((-result.high, -result.low))


def test_arrays_as_tuples_and_dicts():
    y_true, y_pred, y_score = tied(0)
    rng = np.random.default_rng(0)
    other_pred = np.where(rng.uniform(size=60) < 0.5, y_pred, 0)
    other_score = 5 + rng.normal(size=60)
    params = {"n_resamples": 49, "random_state": 0}
    first = paired(aurc, y_true, (y_pred, y_score), (other_pred, other_score), **params)
    assert first.value_b == aurc(y_true, other_pred, other_score)
    # losses in place of predictions, by name
    losses = [np.where(y_true == p, 0.0, 1.0) for p in (y_pred, other_pred)]
    by_name = [
        {"y_pred": None, "y_score": s, "loss": loss}
        for s, loss in zip((y_score, other_score), losses, strict=True)
    ]
    named = paired(aurc, y_true, *by_name, **params)
    assert math.isnan(named.low) and math.isnan(named.high)  # losses without a bound
    assert paired(aurc, y_true, *by_name, bounds=(0, 1), **params) == first
    # what both share is a parameter
    shared = paired(
        aurc, y_true, (None, y_score), (None, other_score), loss=losses[0], **params
    )
    assert shared.value_b == aurc(y_true, None, other_score, loss=losses[0])
    assert shared.value_a == first.value_a


def test_probabilities_and_predictions_are_swapped_as_they_are():
    rng = np.random.default_rng(0)
    y_true = rng.integers(3, size=80)
    sure, unsure = 0.9 * np.eye(3) + 0.1 / 3, 0.2 * np.eye(3) + 0.8 / 3
    params = {"n_resamples": 99, "random_state": 0}
    result = paired(brier, y_true, sure[y_true], unsure[y_true], **params)
    assert result.statistic < -0.3 and result.pvalue == 0.02

    def accuracy(y_true, y_pred):
        return np.mean(y_true == y_pred)

    names = np.array(["a", "bb", "ccc"])
    wrong = np.where(rng.uniform(size=80) < 0.3, (y_true + 1) % 3, y_true)
    result = paired(accuracy, names[y_true], names[y_true], names[wrong], **params)
    assert result.value_a == 1.0 and result.pvalue == 0.02


def test_errors_of_paired_test():
    y_true, a, b = _pair(0)
    with pytest.raises(ValueError, match=r"same arrays, got the shapes \[\(60,\)\] in"):
        paired(auroc, y_true, a, (b, b))
    with pytest.raises(ValueError, match=r"same arrays.*\[None, \(60,\)\] in arrays_b"):
        paired(oscr, y_true, (b, a), (None, b), method="bootstrap")
    with pytest.raises(ValueError, match=r"same arrays.*\('loss', \(60,\)\)"):
        paired(aurc, y_true, {"loss": a, "y_score": a}, {"y_score": b})
    with pytest.raises(ValueError, match=r"an array 'x' of 1 dim.*Pass rank=False"):
        paired(mean, y_true, a, b, n_resamples=5)
    with pytest.raises(ValueError, match="an array 'y_score' of 2 dimension"):
        paired(
            lambda y_true, y_score: 1.0, y_true, a[:, None], b[:, None], n_resamples=5
        )
    with pytest.raises(ValueError, match="an array 'without a name' of 1"):
        paired(lambda *arrays: 1.0, y_true, a, b, n_resamples=5)
    with pytest.raises(ValueError, match=r"more than the order .* on their ranks"):
        paired(lambda y, y_score: y_score.mean(), y_true, a, b, n_resamples=5)
    with pytest.raises(ValueError, match="metric is inf on system b"):
        paired(lambda y, s: s.max(), y_true, a, np.full(60, np.inf))
    with pytest.raises(ValueError, match="'alternative' parameter of paired_test must"):
        paired(auroc, y_true, a, b, alternative="better")


def test_loss_matrix_with_as_many_classes_as_samples_is_not_resampled():
    """The metric is the summed loss of the rows drawn, by the matrix as it is."""
    matrix = np.arange(9.0).reshape(3, 3)
    y_true, y_score = np.array([0, 1, 2]), np.array([3.0, 2.0, 1.0])

    def lost(y_true, y_pred, loss=None):
        assert np.array_equal(loss, matrix)
        return loss[y_true, y_pred].sum()

    value, low, high = bootstrap_ci(
        lost, y_true, y_true[::-1], loss=matrix, n_resamples=50, random_state=0
    )
    assert value == 2 + 4 + 6
    assert low < value < high
    params = {"loss": matrix, "classes": [0, 1, 2], "n_resamples": 20}
    interval = bootstrap_ci(
        aurc, y_true, y_true[::-1], y_score, random_state=0, **params
    )
    assert interval.value == aurc(
        y_true, y_true[::-1], y_score, loss=matrix, classes=[0, 1, 2]
    )


def test_named_arrays_of_several_dimensions_are_resampled():
    y_true = np.array([0, 1, 0, 1, -1])
    y_proba = np.random.default_rng(0).dirichlet([1, 1], size=5)
    params = {"n_resamples": 20, "random_state": 0, "classes": [0, 1]}
    assert bootstrap_ci(brier, y_true, y_proba=y_proba, **params) == bootstrap_ci(
        brier, y_true, y_proba, **params
    )


def test_arrays_that_may_or_may_not_belong_to_the_samples():
    def metric(y_true, y_score, weights=None):
        return float(y_score.mean())

    with pytest.raises(
        ValueError, match=r"weights has the shape \(3, 2\), and as many"
    ):
        bootstrap_ci(metric, [0, 1, 2], [3.0, 2.0, 1.0], weights=np.ones((3, 2)))
    interval = bootstrap_ci(
        metric, [0, 1, 2], [3.0, 2.0, 1.0], weights=np.ones((2, 3)), n_resamples=5
    )
    assert interval.value == 2


def test_parameters_of_the_metric_are_validated():
    y, proba = [0, 1], [[0.6, 0.4], [0.1, 0.9]]
    with pytest.raises(ValueError, match=r"'n_bins' parameter of .* must be an int"):
        bootstrap_ci(expected_calibration_error, y, proba, n_bins=0)


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

"""Measures of uncertainty and their errors, against loops, scipy and identities."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats
from scipy.special import log_softmax, rel_entr
from scipy.stats import norm
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor

from skood.epistemic import (
    QUAM,
    AdversarialSearch,
    DeepEnsemble,
    entropy,
    gaussian_uncertainty,
    importance_estimate,
    kl_divergence,
    kl_divergence_gaussian,
    member_uncertainty,
)
from tests.epistemic._naive import divergence, naive_uncertainty


def _members(seed=0, n_members=4, n_samples=6, n_classes=3, scale=3.0):
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(n_members, n_samples, n_classes))
    weights = rng.dirichlet(np.ones(n_members), size=n_samples).T
    reference = log_softmax(scale * rng.normal(size=(n_samples, n_classes)), axis=-1)
    return log_softmax(logits, axis=-1), weights, reference


# ---- categorical


@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_entropy_and_divergence_against_loops_and_scipy(scale):
    log_p, _, log_q = _members(scale=scale)
    p, q = np.exp(log_p), np.exp(log_q)
    # logarithms of rounded probabilities near 1 are no more exact than 1e-16
    expected = [[math.fsum(-math.exp(v) * v for v in row) for row in m] for m in log_p]
    assert_allclose(entropy(log_p), expected, rtol=1e-12)
    assert_allclose(entropy(log_p), stats.entropy(p, axis=-1), rtol=1e-12, atol=1e-15)
    expected = [[divergence(row, q[i]) for i, row in enumerate(member)] for member in p]
    result = kl_divergence(log_p, log_q)
    assert_allclose(result, expected, rtol=1e-10, atol=1e-15)
    expected = rel_entr(p, q).sum(axis=-1)
    assert_allclose(result, expected, rtol=1e-10, atol=1e-15)


def test_small_divergences_keep_their_digits():
    """p log(p/q) summed as it stands would give 0, or a negative number."""
    for exponent in (3, 6, 9):
        eps = Fraction(1, 10**exponent)
        p, q = (
            (Fraction(1, 2), Fraction(1, 2)),
            (Fraction(1, 2) + eps, Fraction(1, 2) - eps),
        )
        # -1/2 log(1 - 4 eps^2), as a series
        expected = float(2 * eps**2 + 4 * eps**4 + Fraction(32, 3) * eps**6)
        log_p, log_q = np.log(np.array(p, float)), np.log(np.array(q, float))
        # log q itself is rounded to 1e-16, which eps makes relative
        result = kl_divergence(log_p, log_q)
        assert_allclose(result, expected, rtol=1e-15 / float(eps) + 1e-12)
    assert kl_divergence(log_p, log_p) == 0.0


@pytest.mark.parametrize("setting", ["a", "b"])
def test_members_decomposed_in_chunks_against_all_at_once(setting):
    rng = np.random.default_rng(0)
    log_p = log_softmax(rng.normal(scale=20, size=(4, 9000, 5)), axis=-1)
    log_p[0, 0] = [0, -np.inf, -np.inf, -1000, -np.inf]  # p underflows
    weights = rng.dirichlet(np.ones(4), size=9000).T
    p, reference = np.exp(log_p), log_p[1]
    chunked = member_uncertainty(
        log_p, weights=weights, reference=reference, setting=setting
    )
    mixture = np.log(np.sum(weights[:, :, None] * p, axis=0))
    first, second = (reference, log_p) if setting == "b" else (log_p, mixture)
    aleatoric = np.sum(weights * entropy(first), axis=0)
    epistemic = np.sum(weights * kl_divergence(first, second), axis=0)
    assert_allclose(chunked.aleatoric, aleatoric, rtol=1e-12, atol=1e-15)
    assert_allclose(chunked.epistemic, epistemic, rtol=1e-12, atol=1e-15)
    loops = rel_entr(np.exp(first), np.exp(second)).sum(axis=-1)[..., 1:]
    loops = np.sum(weights[:, 1:] * loops, axis=0)
    assert_allclose(chunked.epistemic[1:], loops, rtol=1e-9, atol=1e-14)
    few = member_uncertainty(
        log_p[:, :3], weights=weights[:, :3], reference=reference[:3], setting=setting
    )
    assert_array_equal(few.total, chunked.total[:3])


def test_saturated_probabilities_are_finite():
    log_p = np.log([[1.0, 1e-300], [0.5, 0.5]])
    with np.errstate(divide="ignore"):
        log_zero = np.log([[0.0, 1.0], [1.0, 0.0]])
    assert entropy(log_zero).tolist() == [0.0, 0.0]
    actual = kl_divergence(log_p, log_zero)
    assert_allclose(
        actual,
        [
            -np.log(np.finfo(float).tiny),
            0.5 * (-np.log(4) - np.log(2.2250738585072014e-308)),
        ],
        rtol=1e-12,
    )
    logits = np.array([[[1e4, 0.0, -1e4]], [[-1e4, 0.0, 1e4]]])
    for setting in "ab":
        reference = log_softmax(logits[0], axis=-1)
        result = member_uncertainty(
            log_softmax(logits, axis=-1), reference=reference, setting=setting
        )
        assert all(
            np.isfinite(value).all() and (value >= 0).all() for value in result.values()
        )
    assert_allclose(
        member_uncertainty(log_softmax(logits, axis=-1)).epistemic, np.log(2)
    )


def test_log_probabilities_beyond_those_of_numbers_are_preserved():
    """exp(-1000) is no float64, and its logarithm is one."""
    log_p = np.log([0.5, 0.5])
    actual = kl_divergence(log_p, [0.0, -1000.0])
    assert actual == pytest.approx(500 - math.log(2), rel=1e-14)
    assert kl_divergence([0.0, -1000.0], log_p) == pytest.approx(math.log(2))
    assert kl_divergence([0.0, -1000.0], [0.0, -1000.0]) == 0.0
    assert entropy([0.0, -1000.0]) == 0.0
    assert np.isfinite(kl_divergence(np.log([1 / 3] * 3), [0.0, -1.5e308, -1.5e308]))
    members = np.array([[[0.0, -900.0]], [[0.0, -1100.0]]])
    result = member_uncertainty(members, reference=log_p[None], setting="b")
    assert result.epistemic[0] == pytest.approx(500 - math.log(2), rel=1e-14)
    assert result.total[0] == result.aleatoric[0] + result.epistemic[0]
    result = member_uncertainty(members, weights=[1.0, 0.0])
    assert [float(value[0]) for value in result.values()] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("per_sample", [True, False])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 20.0])
def test_setting_a_against_a_loop(scale, per_sample):
    log_p, weights, _ = _members(scale=scale)
    if per_sample:
        uncertainty = member_uncertainty(log_p, weights=weights)
    else:
        uncertainty = member_uncertainty(log_p, weights=weights[:, 0])
        weights = np.tile(weights[:, :1], log_p.shape[1])
    expected = naive_uncertainty(np.exp(log_p), weights)
    assert_allclose(uncertainty.total, expected.total, rtol=1e-12, atol=1e-15)
    assert_allclose(uncertainty.aleatoric, expected.aleatoric, rtol=1e-12, atol=1e-15)
    # the loop subtracts: it is not exact for nearly equal members
    assert_allclose(uncertainty.epistemic, expected.epistemic, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_setting_b_against_a_loop(scale):
    log_p, weights, reference = _members(scale=scale)
    uncertainty = member_uncertainty(
        log_p, weights=weights, reference=reference, setting="b"
    )
    p, r = np.exp(log_p), np.exp(reference)
    expected = naive_uncertainty(p, weights, r)
    assert_allclose(uncertainty.aleatoric, expected.aleatoric, rtol=1e-12, atol=1e-15)
    assert_allclose(uncertainty.epistemic, expected.epistemic, rtol=1e-10)
    cross = -np.einsum("ni,ik,nik->i", weights, r, log_p)
    assert_allclose(uncertainty.total, cross, rtol=1e-12)


@pytest.mark.parametrize("setting", ["a", "b"])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 100.0])
def test_identities(setting, scale):
    log_p, weights, reference = _members(
        seed=1, n_members=7, n_samples=200, scale=scale
    )
    options = {"reference": reference, "setting": setting}
    uncertainty = member_uncertainty(log_p, weights=weights, **options)
    assert_allclose(
        uncertainty.total,
        uncertainty.aleatoric + uncertainty.epistemic,
        rtol=0,
        atol=1e-12,
    )
    assert all((value >= 0).all() for value in uncertainty.values())
    assert all(value.dtype == np.float64 for value in uncertainty.values())
    # log-probabilities are rounded to 1e-16, and members differ by about `scale`
    near = {"rtol": 1e-12 + 1e-15 / scale, "atol": 1e-300}
    order = np.random.default_rng(0).permutation(7)
    again = member_uncertainty(log_p[order], weights=weights[order], **options)
    for name in uncertainty:
        assert_allclose(again[name], uncertainty[name], **near)
    # one model that is the given one leaves nothing to be learned
    same = member_uncertainty(reference[None], **options)
    assert_allclose(same.epistemic, 0.0, rtol=0, atol=1e-15)
    assert_allclose(same.aleatoric, entropy(reference))
    # a member without weight does not count
    more = np.concatenate([log_p, log_p[:1]])
    none = np.concatenate([weights, np.zeros_like(weights[:1])])
    assert_allclose(
        member_uncertainty(more, weights=none, **options).epistemic,
        uncertainty.epistemic,
        **near,
    )


def test_float32_and_tensors():
    log_p, weights, _ = _members()
    single = log_p.astype(np.float32)
    expected = member_uncertainty(single.astype(np.float64), weights=weights)
    for original in (single, torch.from_numpy(single), single.tolist()):
        uncertainty = member_uncertainty(original, weights=weights)
        assert_allclose(uncertainty.total, expected.total, rtol=1e-12)


# ---- normal distributions


def test_gaussian_divergence_against_an_integral():
    for mu_p, var_p, mu_q, var_q in ((0, 1, 1, 2), (3, 0.5, -1, 1), (0, 1, 0, 1)):
        p, q = stats.norm(mu_p, var_p**0.5), stats.norm(mu_q, var_q**0.5)
        expected, _ = integrate.quad(
            lambda x, p=p, q=q: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)),
            mu_p - 12 * var_p**0.5,
            mu_p + 12 * var_p**0.5,
        )
        result = kl_divergence_gaussian(mu_p, var_p, mu_q, var_q)
        assert result == pytest.approx(expected, rel=1e-9, abs=1e-12)
    # nearly equal variances: (log ratio)^2 / 4
    result = kl_divergence_gaussian(0.0, 1.0 + 1e-7, 0.0, 1.0)
    assert result == pytest.approx(1e-14 / 4, rel=1e-6)


@pytest.mark.parametrize("homoscedastic", [True, False])
def test_gaussian_uncertainty_against_loops(homoscedastic):
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(4, 5))
    variance = 0.7 if homoscedastic else rng.uniform(0.5, 2, size=(4, 5))
    weights = rng.dirichlet(np.ones(4), size=5).T
    mu, sigma2 = rng.normal(size=5), rng.uniform(0.5, 2, size=5)
    options = {"weights": weights, "reference": (mu, sigma2)}
    a = gaussian_uncertainty(mean, variance, setting="a", **options)
    b = gaussian_uncertainty(mean, variance, setting="b", **options)
    v = np.broadcast_to(variance, mean.shape)

    def kl(m1, v1, m2, v2):
        return 0.5 * (((m1 - m2) ** 2 + v1) / v2 - 1 - math.log(v1 / v2))

    for i in range(5):
        w = weights[:, i]
        entropies = [stats.norm(0, math.sqrt(v[n, i])).entropy() for n in range(4)]
        assert a.aleatoric[i] == pytest.approx(w @ entropies)
        pairs = [
            w[n] * w[k] * kl(mean[n, i], v[n, i], mean[k, i], v[k, i])
            for n in range(4)
            for k in range(4)
        ]
        assert a.epistemic[i] == pytest.approx(math.fsum(pairs))
        assert b.aleatoric[i] == pytest.approx(
            stats.norm(0, sigma2[i] ** 0.5).entropy()
        )
        to_members = [
            w[n] * kl(mu[i], sigma2[i], mean[n, i], v[n, i]) for n in range(4)
        ]
        assert b.epistemic[i] == pytest.approx(math.fsum(to_members))
    for result in (a, b):
        assert_allclose(result.total, result.aleatoric + result.epistemic)
        assert (result.epistemic >= 0).all()
    if homoscedastic:  # the variance of the means over that of the noise
        spread = (weights * mean**2).sum(0) - (weights * mean).sum(0) ** 2
        assert_allclose(a.epistemic, spread / variance)


# ---- errors


@pytest.mark.parametrize(
    ("log_proba", "options", "message"),
    [
        (
            np.zeros((2, 3, 2)),
            {},
            "must hold the logarithms of probabilities, but these",
        ),
        (np.log([[0.5, 0.5]]), {}, r"must have the shape \(n_members, n_samples, n_cl"),
        (np.zeros((0, 3, 1)), {}, r"must have the shape \(n_members, n_samples, n_cl"),
        ([[[np.nan, 0.0]]], {}, "log_proba has 1 NaN among 2 values"),
        ([[[np.inf, 0.0]]], {}, "log_proba has infinite values"),
        ([[["a", "b"]]], {}, "log_proba must hold real numbers, got dtype"),
        (np.zeros((2, 3, 0)), {}, "must have classes along its last axis"),
        (1.0, {}, r"must have classes along its last axis, got the shape \(\)"),
        (
            np.zeros((2, 3, 1)),
            {"weights": [1.0]},
            r"weights must have the shape \(2, 3",
        ),
        (np.zeros((2, 3, 1)), {"weights": [0.5, 0.6]}, "got sums from 1.1 to 1.1"),
        (np.zeros((2, 3, 1)), {"weights": [-0.5, 1.5]}, "weights must be non-negative"),
        (np.zeros((2, 3, 1)), {"setting": "b"}, "pass its log-probabilities as"),
        (np.zeros((2, 3, 1)), {"setting": "c"}, "The 'setting' parameter"),
        (
            np.zeros((2, 3, 1)),
            {"setting": "b", "reference": np.zeros((2, 1))},
            r"reference must have the shape \(3, 1\)",
        ),
    ],
)
def test_invalid_members(log_proba, options, message):
    with pytest.raises(ValueError, match=message):
        member_uncertainty(log_proba, **options)


@pytest.mark.parametrize(
    ("mean", "variance", "options", "message"),
    [
        ([1.0, 2.0], 1.0, {}, r"mean must have the shape \(n_members, n_samples\)"),
        ([[1.0]], [[1.0, 2.0]], {}, r"got \(1, 1\) and \(1, 2\)"),
        ([[1.0]], 0.0, {}, "must be positive and finite, got values from 0 to 0"),
        ([[np.inf]], 1.0, {}, "The mean of the members has infinite values"),
        ([[0.0], [1e160]], 1.0, {}, "A divergence of members overflows float64"),
        (
            [[1.0]],
            1.0,
            {"setting": "b", "reference": np.ones(1)},
            r"a tuple \(mean, variance\) of the given model, got ndarray",
        ),
        ([[1.0]], 1.0, {"setting": "b"}, r"pass its \(mean, variance\) as reference"),
        (
            [[1.0]],
            1.0,
            {"setting": "b", "reference": ([1.0, 2.0], 1.0)},
            r"reference must be a mean of shape \(1,\)",
        ),
    ],
)
def test_invalid_moments(mean, variance, options, message):
    with pytest.raises(ValueError, match=message):
        gaussian_uncertainty(mean, variance, **options)


def test_equal_weights_are_the_standard_error_of_a_mean():
    values = np.random.default_rng(0).exponential(size=(50, 3))
    estimate = importance_estimate(values, confidence_level=0.9)
    error = values.std(axis=0, ddof=1) / np.sqrt(50)
    half = norm.ppf(0.95) * error
    assert_allclose(estimate.estimate, values.mean(axis=0), rtol=1e-12)
    assert_allclose(estimate.standard_error, error, rtol=1e-12)
    assert_allclose(estimate.n_effective, 50, rtol=1e-12)
    assert_allclose(estimate.interval[:, 1], estimate.estimate + half, rtol=1e-12)
    assert_allclose(estimate.interval[:, 0], estimate.estimate - half, rtol=1e-12)


def test_weights_and_groups_as_in_a_loop():
    rng = np.random.default_rng(1)
    values = rng.normal(size=9)
    weights = rng.dirichlet(np.ones(9))
    groups = np.array(["a", "b", "a", "c", "c", "c", "a", "b", "d"])
    mean = sum(w * v for w, v in zip(weights, values, strict=True))
    estimate = importance_estimate(values, weights, groups=groups)
    sums, totals = {}, {}
    for g, w, v in zip(groups.tolist(), weights, values, strict=True):
        sums[g] = sums.get(g, 0.0) + w * (v - mean)
        totals[g] = totals.get(g, 0.0) + w
    error = (4 / 3 * sum(s**2 for s in sums.values())) ** 0.5
    assert_allclose(estimate.estimate, mean, rtol=1e-12)
    assert_allclose(estimate.standard_error, error, rtol=1e-12)
    n_effective = 1 / sum(t**2 for t in totals.values())
    assert_allclose(estimate.n_effective, n_effective, rtol=1e-12)
    alone = importance_estimate(values, weights)
    error = (9 / 8 * np.sum(weights**2 * (values - mean) ** 2)) ** 0.5
    assert_allclose(alone.standard_error, error, rtol=1e-12)
    each = importance_estimate(values, weights, groups=np.arange(9))
    assert_allclose(each.standard_error, error, rtol=1e-12)


def test_copies_of_draws_in_a_group_add_no_information():
    values = np.random.default_rng(2).exponential(size=20)
    once = importance_estimate(values)
    copies = importance_estimate(np.repeat(values, 5), groups=np.repeat(range(20), 5))
    for name in ("estimate", "standard_error", "interval", "n_effective"):
        assert_allclose(copies[name], once[name], rtol=1e-12)


def test_a_single_draw_has_no_error():
    estimate = importance_estimate([[2.0, 0.0]])
    assert np.isinf(estimate.standard_error).all()
    assert estimate.interval.tolist() == [[0, np.inf], [0, np.inf]]
    assert estimate.n_effective.tolist() == [1, 1]
    assert np.isinf(importance_estimate([1.0, 3.0], groups=[0, 0]).standard_error)
    assert importance_estimate([-1.0, 3.0], groups=[0, 0]).interval[0] == -np.inf


def _mixture(x, means, sd):
    return np.mean([norm.pdf(x, mean, sd) for mean in means], axis=0)


@pytest.mark.parametrize(
    "means, sd, coverage",
    # 4,000 repetitions of the specification; the first draws hardly reach one mode
    [((0,), 1.0, 0.602), ((0,), 2.0, 0.953), ((0, 3), 1.2, 0.954)],
)
def test_coverage(means, sd, coverage):
    """p = N(0, 1) / 2 + N(3, 1) / 2 by draws from q: the interval of the integral 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(rng.choice(means, size=(1000, 2000)), sd)
    ratios = _mixture(x, (0, 3), 1.0) / _mixture(x, means, sd)
    estimate = importance_estimate(ratios)
    covers = (estimate.interval[:, 0] <= 1) & (estimate.interval[:, 1] >= 1)
    noise = np.sqrt(coverage * (1 - coverage) * (1 / 2000 + 1 / 4000))
    assert abs(covers.mean() - coverage) < 3 * noise


@pytest.mark.parametrize(
    "values, options, message",
    [
        ([], {}, r"draws along its first axis, got the shape \(0,\)"),
        (1.0, {}, r"draws along its first axis, got the shape \(\)"),
        ([1.0, np.inf], {}, "infinite"),
        ([1.0, np.nan], {}, "values has 1 NaN among 2 values"),
        ([1.0, 2.0], {"weights": [0.5, 0.6]}, "sum to one over the members, got sums"),
        ([1.0, 2.0], {"weights": [1.0]}, r"weights must have the shape \(2,\)"),
        ([1.0, 2.0], {"groups": [1]}, r"groups must have the shape \(2,\)"),
        ([1.0, 2.0], {"confidence_level": 1.0}, "confidence_level"),
    ],
)
def test_errors(values, options, message):
    with pytest.raises(ValueError, match=message):
        importance_estimate(values, **options)


def test_error_of_member_uncertainty():
    rng = np.random.default_rng(3)
    log_p = np.log(rng.dirichlet(np.ones(3), size=(6, 4)))
    weights = rng.dirichlet(np.ones(6))
    for setting, original in (
        ("a", np.log(np.einsum("n,nik->ik", weights, np.exp(log_p)))),
        ("b", log_p[0]),
    ):
        options = {"weights": weights, "setting": setting, "reference": log_p[0]}
        uncertainty = member_uncertainty(log_p, return_error=True, **options)
        first, second = (log_p, original) if setting == "a" else (original, log_p)
        values = kl_divergence(first, second)
        expected = importance_estimate(values, weights)
        assert_allclose(uncertainty.epistemic, expected.estimate, rtol=1e-12)
        assert_allclose(
            uncertainty.epistemic_error, expected.standard_error, rtol=1e-12
        )
        assert_allclose(uncertainty.epistemic_interval, expected.interval)
        assert "epistemic_error" not in member_uncertainty(log_p, **options)


def test_error_of_mutual_information_is_the_jackknife_for_many_members():
    """In setting "a" the mixture depends on the members, too."""
    rng = np.random.default_rng(4)
    log_p = np.log(rng.dirichlet(np.ones(3), size=(400, 1)))
    uncertainty = member_uncertainty(log_p, return_error=True)
    without = [
        member_uncertainty(np.delete(log_p, n, axis=0)).epistemic[0] for n in range(400)
    ]
    jackknife = np.sqrt(399 / 400 * np.sum((without - np.mean(without)) ** 2))
    assert_allclose(uncertainty.epistemic_error[0], jackknife, rtol=5e-3)


def test_error_of_pairs_of_gaussians_is_the_jackknife_for_many_members():
    rng = np.random.default_rng(5)
    mean, variance = rng.normal(size=(150, 1)), rng.uniform(0.5, 2, size=(150, 1))
    uncertainty = gaussian_uncertainty(mean, variance, return_error=True)
    without = [
        gaussian_uncertainty(np.delete(mean, n, axis=0), np.delete(variance, n, axis=0))
        .epistemic[0]
        for n in range(150)
    ]  # fmt: skip
    jackknife = np.sqrt(149 / 150 * np.sum((without - np.mean(without)) ** 2))
    assert_allclose(
        uncertainty.epistemic_error[0], jackknife, rtol=4e-2
    )  # of order 1 / n
    low, high = uncertainty.epistemic_interval[0]
    assert_allclose((low + high) / 2, uncertainty.epistemic[0], rtol=1e-12)


def test_searches_of_quam_are_the_draws():
    X, y = make_moons(100, noise=0.1, random_state=0)
    net = MLPClassifier((16,), max_iter=500, random_state=0).fit(X, y)
    search = AdversarialSearch(n_steps=10)
    quam = QUAM(net, search, temperature=np.inf, random_state=0).fit(X, y)
    points = np.array([[0.5, 0.2], [-2.0, -2.0], [3.0, 3.0]])
    uncertainty = quam.predict_uncertainty(points, return_error=True)
    for i, point in enumerate(points):
        trace = quam.trace([point])
        expected = importance_estimate(
            trace.divergence.ravel(),
            trace.weights.ravel(),
            groups=np.tile([0, 1], len(trace.divergence)),
        )
        result = uncertainty.epistemic[i], uncertainty.epistemic_error[i]
        wanted = expected.estimate, expected.standard_error
        assert_allclose(result, wanted, rtol=1e-5)
        assert_allclose(uncertainty.epistemic_interval[i, 1], expected.interval[1])
    assert_allclose(uncertainty.n_effective, 2)
    plain = quam.predict_uncertainty(points)
    assert_allclose(plain.epistemic, uncertainty.epistemic)
    assert set(plain) == {"total", "aleatoric", "epistemic"}


def test_searches_of_the_regressor_are_the_draws():
    X = np.linspace(-2, 2, 60)[:, None]
    net = MLPRegressor(hidden_layer_sizes=(8,), max_iter=50, random_state=0)
    quam = QUAM(net, AdversarialSearch(n_steps=5), temperature=np.inf)
    uncertainty = quam.fit(X, np.sin(X[:, 0])).predict_uncertainty(
        [[0.0]], return_error=True
    )
    assert_allclose(uncertainty.n_effective, 2)
    trace = quam.trace([[0.0]])
    halves = 0.5 * trace.divergence.mean(axis=0)  # weight 1/2 of each search
    share = halves - 0.5 * trace.divergence.mean()
    expected = np.sqrt(2 * np.sum(share**2))
    assert_allclose(uncertainty.epistemic_error, [expected], rtol=1e-4)


def test_single_effective_member_warns():
    X, y = make_moons(60, noise=0.1, random_state=0)
    ensemble = DeepEnsemble(LogisticRegression(), n_members=1).fit(X, y)
    with pytest.warns(UserWarning, match=r"60 of 60 samples .* below 2 \(least: 1\)"):
        uncertainty = ensemble.predict_uncertainty(X, return_error=True)
    assert np.isinf(uncertainty.epistemic_error).all()
    search = AdversarialSearch(n_steps=30)
    net = MLPClassifier((16,), max_iter=500, random_state=0)
    quam = QUAM(net, search, temperature=1e-6, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="Raise temperature=1e-06"):
        quam.predict_uncertainty(X[:3], return_error=True)


@pytest.fixture(scope="module")
def example():
    """The functions of the example, without its figure."""
    pytest.importorskip("matplotlib")
    path = Path(__file__).parents[2] / "examples/epistemic/plot_importance_sampling.py"
    code, names = path.read_text().split("fig, axes")[0], {}
    exec(compile(code, str(path), "exec"), names)
    return names


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("sq", 1.0, (3 + np.exp(9)) / 4 - 1),
        ("sq", 1.0, 2025.521),
        ("s2", 0.25, 64.459),
        ("s2", 1.3**2, 1.402e12),
        ("mu2", 1.0, 0.42957),
        ("mu2", 2.0, 13.3995),
        ("mu2", 4.0, 2.22153e6),
        ("mu2", 5.0, 1.80012e10),
        ("sq", 0.64, 2.754e13),
        ("sq", 1.5**2, 3.35532),
        ("sq", 4.0, 0.855035),
        ("sq", 9.0, 0.603588),
        ("sq", 25.0, 1.16279),
        ("sq", 2.667**2, 0.576774),
    ],
)
def test_variance_of_the_example(example, name, value, expected):
    result = example["variance"](**{name: value})
    rtol = 4e-4 if expected > 1e12 else 2e-5  # printed with four digits, others more
    assert_allclose(result, expected, rtol=rtol)


@pytest.mark.parametrize(
    "sq, expected", [(1.0, (8106.1, np.inf)), (4.0, (7.4201, 80.431))]
)
def test_bounds_of_theorem_1(example, sq, expected):
    assert_allclose(example["bounds"](sq), expected, rtol=1e-5)


@pytest.mark.parametrize("sq, expected", [(4.0, 0.855035), (9.0, 0.603588)])
def test_standard_error_is_that_of_the_closed_form(sq, expected):
    """The square of the error of independent draws is unbiased."""
    x = np.random.default_rng(0).normal(0, sq**0.5, size=(500, 4000))
    ratios = _mixture(x, (0, 3), 1.0) / norm.pdf(x, 0, sq**0.5)
    squares = 500 * importance_estimate(ratios).standard_error ** 2
    assert_allclose(squares.mean(), expected, rtol=0.01)

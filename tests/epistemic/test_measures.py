"""Measures of uncertainty against loops, scipy and identities."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import integrate, stats
from scipy.special import log_softmax, rel_entr

from skood.epistemic import (
    entropy,
    gaussian_uncertainty,
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

"""Tests of `skood.datasets.make_reject_option_1d` against its closed forms."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import binom, norm

from skood.datasets import make_reject_option_1d

MODEL = make_reject_option_1d(1).model


def test_posterior_by_hand():
    """At x = 0 classes 1 and 2 are alike; class 3 weighs .4 exp(-4.5)."""
    a, b = 0.3 * np.exp(-0.5), 0.4 * np.exp(-4.5)
    assert_allclose(MODEL.posterior([0.0]), [[a, a, b] / (2 * a + b)], rtol=1e-14)


def test_densities_by_bayes():
    x = np.linspace(-4, 6, 41)
    joint = np.column_stack(
        [p * norm.pdf(x, m, 1) for p, m in ((0.3, -1), (0.3, 1), (0.4, 3))]
    )
    p_id, p_ood = joint.sum(axis=1), norm.pdf(x, 2, np.sqrt(0.2))
    assert_allclose(MODEL.density_id(x), p_id, rtol=1e-12)
    assert_allclose(MODEL.density_ood(x), p_ood, rtol=1e-12)
    assert_allclose(MODEL.likelihood_ratio(x), p_ood / p_id, rtol=1e-12)
    assert_allclose(MODEL.posterior(x), joint / p_id[:, None], rtol=1e-12)
    assert_allclose(MODEL.risk(x), 1 - joint.max(axis=1) / p_id, atol=1e-15)


def test_bayes_error():
    """vectors.json's .2045…: two priors' worth of the densities' overlap."""
    error = quad(
        lambda x: float(MODEL.density_id(x)[0] * MODEL.risk(x)[0]),
        -12,
        14,
        points=[0, 2],
        epsabs=1e-13,
        limit=400,
    )[0]
    assert_allclose(error, 0.20451754457302518, atol=1e-11)


def test_tails_are_finite_and_right():
    far = np.array([-1e3, 1e3])
    assert_array_equal(MODEL.posterior(far), [[1, 0, 0], [0, 0, 1]])
    assert_array_equal(MODEL.likelihood_ratio(far), [0, 0])
    # at x = 30 the risk is p(30, 2) / p(30, 3) = .75 exp(-56), below the unit round-off
    assert_allclose(MODEL.risk([30.0]), 0.75 * np.exp((27**2 - 29**2) / 2), rtol=1e-12)
    wide = make_reject_option_1d(1, ood_var=4.0).model
    assert_array_equal(wide.likelihood_ratio(far), [np.inf, np.inf])


def test_arrays_are_the_models():
    problem = make_reject_option_1d(50, random_state=3)
    x, model = problem.data, pickle.loads(pickle.dumps(problem.model))
    assert x.shape == (50, 1)
    assert_array_equal(problem.posteriors, model.posterior(x))
    assert_array_equal(problem.risk, model.risk(x))
    assert_array_equal(problem.likelihood_ratio, model.likelihood_ratio(x))
    assert_array_equal(problem.density_id, model.density_id(x))
    assert_array_equal(problem.density_ood, model.density_ood(x.ravel()))
    assert_array_equal(problem.target_names, [1, 2, 3])


def test_bound_methods_can_be_pickled():
    posterior = pickle.loads(pickle.dumps(MODEL.posterior))
    assert_array_equal(posterior([1.0]), MODEL.posterior([1.0]))


def test_sample_follows_the_densities():
    """Shares within binomial bounds, means and variances within 5 standard errors."""
    n = 40_000
    problem = make_reject_option_1d(n, random_state=0)
    x, y = problem.data[:, 0], problem.target
    parts = ((-1, 0.25, 2, 0.2), (1, 0.225, -1, 1), (2, 0.225, 1, 1), (3, 0.3, 3, 1))
    for label, share, mean, var in parts:
        rows = x[y == label]
        low, high = binom.interval(1 - 1e-6, n, share)
        assert low <= rows.size <= high
        assert abs(rows.mean() - mean) < 5 * np.sqrt(var / rows.size)
        assert abs(rows.var() - var) < 5 * var * np.sqrt(2 / rows.size)
    assert_array_equal(problem.is_ood, y == -1)


def test_labels_agree_with_posteriors():
    """Among ID rows the mean posterior of a class is its share, in expectation."""
    problem = make_reject_option_1d((20_000, 0), random_state=1)
    error = problem.posteriors.argmax(axis=1) + 1 != problem.target
    expected, noise = 0.2045, np.sqrt(0.2045 * 0.7955 / 20_000)
    assert abs(error.mean() - expected) < 4 * noise
    assert abs(problem.risk.mean() - expected) < 4 * noise


def test_pair_of_sizes_is_exact_and_shuffled():
    problem = make_reject_option_1d((30, 20), ood_label=0, random_state=0)
    assert problem.is_ood.sum() == 20
    assert_array_equal(problem.target == 0, problem.is_ood)
    assert 0 < problem.is_ood[:30].sum() < 20


@pytest.mark.parametrize(("prior", "n_ood"), [(0.0, 0), (1.0, 25)])
def test_extreme_priors(prior, n_ood):
    problem = make_reject_option_1d(25, ood_prior=prior, random_state=0)
    assert problem.is_ood.sum() == n_ood


def test_ood_parameters():
    problem = make_reject_option_1d((0, 20_000), ood_mean=-5, ood_var=9, random_state=0)
    assert abs(problem.data.mean() + 5) < 5 * 3 / np.sqrt(20_000)
    assert abs(problem.data.var() - 9) < 5 * 9 * np.sqrt(2 / 20_000)
    assert "N(-5, 9)" in problem.DESCR


def test_random_state():
    first, again, other = (
        make_reject_option_1d(20, random_state=seed) for seed in (7, 7, 8)
    )
    assert_array_equal(first.data, again.data)
    assert_array_equal(first.target, again.target)
    assert not np.array_equal(first.data, other.data)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_samples": (3,)}, r"a pair \(n_id, n_ood\) of numbers.*Got \(3,\)"),
        ({"n_samples": (3, -1)}, r"Got \(3, -1\)"),
        ({"n_samples": (3, 1.5)}, r"Got \(3, 1.5\)"),
        ({"n_samples": (0, 0)}, r"not both zero"),
        ({"n_samples": 0}, r"'n_samples' parameter"),
        ({"ood_var": 0.0}, r"'ood_var' parameter"),
        ({"ood_prior": 1.5}, r"'ood_prior' parameter"),
        ({"ood_label": 2}, r"ood_label=2 is one of the classes 1, 2, 3"),
    ],
)
def test_errors(params, message):
    with pytest.raises(ValueError, match=message):
        make_reject_option_1d(**params)

"""Standard error of an importance estimate: closed forms, loops and coverage."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor

from skood.epistemic import (
    QUAM,
    AdversarialSearch,
    DeepEnsemble,
    gaussian_uncertainty,
    importance_estimate,
    kl_divergence,
    member_uncertainty,
)


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

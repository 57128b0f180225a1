import itertools
import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skood.exceptions import SkoodWarning
from skood.logic.inference import _weights
from skood.logic.inference._partition import Partition
from skood.logic.inference._weights import (
    fit_pseudo_weights,
    fit_weights,
    pseudo_log_likelihood,
)
from tests._loops import looped
from tests.logic.test_partition import (
    IMPLIES,
    OR,
    XOR,
    naive,
    random_factors,
    slow,
    stop_rule,
)

TRUE = np.array([False, True])


@pytest.fixture(autouse=True)
def no_warnings():
    """A fit that warns where nothing is expected fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkoodWarning)
        warnings.simplefilter("error", RuntimeWarning)
        yield


def random_rows(rng, sizes, n):
    return np.stack([rng.integers(0, size, n) for size in sizes], axis=1)


def truth_of(factors):
    """The truth of factors on codes."""

    def truth(Z):
        columns = [table[tuple(Z[:, list(scope)].T)] for scope, table in factors]
        return np.stack(columns, axis=1)

    return truth


def target_of(partition, mean_truth, n, prior):
    return (n * mean_truth + prior * partition.uniform_truth()) / (n + prior)


# the maximum of the likelihood


def test_a_rule_that_is_never_broken_has_a_finite_weight():
    (w,) = fit_weights(Partition(*stop_rule()), [1.0], 200, prior=1)
    assert w == pytest.approx(5.589742425278634, abs=1e-9)
    # however many rows: m = 1 - .25 / (n + 1)
    for n in (10**6, 10**9):
        (w,) = fit_weights(Partition(*stop_rule()), [1.0], n, prior=1)
        m = 1 - 0.25 / (n + 1)
        assert w == pytest.approx(math.log(m / (0.25 / (n + 1)) / 3), abs=1e-5)


@pytest.mark.parametrize("first", [0, slow(15)])
@looped("seed", range(15))
def test_gradient_vanishes_at_the_weights(first, seed):
    # against expectations by a loop over all worlds
    rng = np.random.default_rng(first + seed)
    sizes, factors = random_factors(rng, 5, 7)
    partition = Partition(sizes, factors, rng.choice(["auto", "elimination"]))
    mean_truth = truth_of(factors)(random_rows(rng, sizes, 50)).mean(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkoodWarning)
        weights = fit_weights(partition, mean_truth, 50, prior=0.5)
    target = target_of(partition, mean_truth, 50, 0.5)
    expected = naive(sizes, factors, weights)[1]
    assert np.max(np.abs(expected - target)) < 1e-8
    # of the least norm: nothing along directions in which no world differs
    covariance = naive(sizes, factors, 0 * weights)[2]
    values, vectors = np.linalg.eigh(covariance)
    null = vectors[:, values < 1e-12]
    assert_allclose(null.T @ weights, 0, atol=1e-9)


def test_weights_come_back_from_their_expected_truth():
    rng = np.random.default_rng(1)
    chain = [((i, i + 1), rng.random((3, 3)) < 0.5) for i in range(29)]
    partition = Partition([3] * 30, chain)
    weights = rng.normal(size=29)
    found = fit_weights(partition, partition.expected_truth(weights), 10, prior=0)
    assert_allclose(found, weights, rtol=0, atol=1e-7)


def test_equal_constraints_share_a_weight():
    one = fit_weights(Partition([2, 2], [((0, 1), IMPLIES)]), [0.9], 100)
    factors = [((0, 1), IMPLIES), ((0, 1), ~IMPLIES), ((0, 1), IMPLIES)]
    three = fit_weights(Partition([2, 2], factors), [0.9, 0.1, 0.9], 100)
    assert_allclose(three, one * np.array([1, -1, 1]) / 3, rtol=0, atol=1e-10)


def test_independent_components_are_fitted_as_if_alone():
    factors = [((0, 1), IMPLIES), ((2, 3), XOR)]
    both = fit_weights(Partition([2] * 4, factors), [0.9, 0.2], 100)
    for i, mean in enumerate([0.9, 0.2]):
        alone = fit_weights(Partition([2] * 4, factors[i : i + 1]), [mean], 100)
        assert both[i] == alone[0]


@pytest.mark.parametrize("method", ["grouping", "elimination", "auto"])
def test_negated_constraints_have_exactly_minus_the_weights(method):
    rng = np.random.default_rng(4)
    sizes, scopes = [2, 3, 2, 3, 2], [(0, 1), (1, 2), (2, 3, 4), (0, 3), (1, 4), (4,)]
    factors = [(s, rng.random([sizes[c] for c in s]) < 0.6) for s in scopes[:-1]]
    factors.append(((4,), TRUE))
    mean_truth = truth_of(factors)(random_rows(rng, sizes, 64)).mean(axis=0)
    flip = np.array([True, False, True, True, False, False])
    negated = [
        (scope, ~table if turned else table)
        for (scope, table), turned in zip(factors, flip, strict=True)
    ]
    turned = np.where(flip, 1 - mean_truth, mean_truth)  # exact: fractions of 64 rows
    fixed = np.array([np.nan, np.nan, 0.3, np.nan, np.nan, np.nan])
    sign = np.where(flip, -1, 1)
    for given in (np.full(6, np.nan), fixed):
        one = fit_weights(Partition(sizes, factors, method), mean_truth, 64, 1, given)
        other = fit_weights(
            Partition(sizes, negated, method), turned, 64, 1, sign * given
        )
        assert_array_equal(other, sign * one)
        assert np.all(one != 0)


def test_fixed_weights_stay_and_the_others_fit_around_them():
    factors = [((0, 1), IMPLIES), ((1, 2), OR), ((0, 2), XOR)]
    partition = Partition([2] * 3, factors)
    mean_truth = np.array([0.9, 0.6, 0.3])
    fixed = [np.nan, 2.5, np.nan]
    weights = fit_weights(partition, mean_truth, 50, fixed=fixed)
    assert weights[1] == 2.5
    gap = partition.expected_truth(weights) - target_of(partition, mean_truth, 50, 1.0)
    assert np.max(np.abs(gap[[0, 2]])) < 1e-8
    assert abs(gap[1]) > 1e-3
    all_fixed = fit_weights(partition, mean_truth, 50, fixed=[1, -2, 0])
    assert_array_equal(all_fixed, [1.0, -2.0, 0.0])


def test_weights_opposed_to_fixed_weights():
    # a is all but certain by a fixed weight, yet 30 % of the rows say "not a"
    factors = [((0,), TRUE), ((0,), TRUE[::-1])]
    partition = Partition([2], factors)
    weights = fit_weights(partition, [0.7, 0.3], 100, fixed=[500.0, np.nan], prior=0)
    assert weights[1] == pytest.approx(500 - math.log(0.7 / 0.3), abs=1e-6)


# where there is no maximum


def test_without_prior_a_rule_that_always_holds_is_finite():
    message = (
        r"The likelihood has no maximum: the weights of 1 constraint\(s\) would "
        r"diverge \('stop'\), because no sample violates it\. They are kept finite by "
        r"a penalty of 1e-09 \|w\|²/2\. Pass prior=1, or weights\."
    )
    with pytest.warns(SkoodWarning, match=message):
        (w,) = fit_weights(Partition(*stop_rule()), [1.0], 200, 0, names=["stop"])
    # broken with the probability ridge · w
    assert 1 / (1 + 3 * math.exp(w)) == pytest.approx(1e-9 * w, rel=1e-5)
    with pytest.warns(SkoodWarning, match=r"diverge \(0\)"):
        (other,) = fit_weights(Partition(*stop_rule()), [0.0], 200, 0)
    assert 3 * math.exp(other) / (1 + 3 * math.exp(other)) == pytest.approx(
        -1e-9 * other, rel=1e-5
    )


def test_unbounded_weights_leave_the_others_at_their_optimum():
    factors = [((0, 1), IMPLIES), ((1, 2), OR), ((3,), TRUE)]
    partition = Partition([2] * 4, factors)
    with pytest.warns(SkoodWarning, match=r"of 1 constraint\(s\) .* \(0\)"):
        weights = fit_weights(partition, [1.0, 0.6, 0.2], 200, prior=0)
    gap = partition.expected_truth(weights) - [1.0, 0.6, 0.2]
    assert np.max(np.abs(gap)) < 2e-8
    assert 10 < weights[0] < 20
    assert weights[2] == pytest.approx(math.log(0.2 / 0.8), abs=1e-7)


def test_unbounded_along_several_constraints_at_once():
    # three values, of which one is never seen: both rules hold in part of the rows
    factors = [((0,), np.array([True, False, False])), ((0,), TRUE[[0, 1, 0]])]
    partition = Partition([3], factors)
    with pytest.warns(SkoodWarning, match=r"of 2 constraint\(s\) .* \(0, 1\)"):
        weights = fit_weights(partition, [0.5, 0.5], 200, prior=0)
    assert weights[0] == pytest.approx(weights[1], abs=1e-9)
    assert 10 < weights[0] < 25
    # with a prior there is a maximum: (200 · .5 + 1 / 3) / 201 of each
    weights = fit_weights(partition, [0.5, 0.5], 200)
    share = (100 + 1 / 3) / 201
    assert_allclose(weights, math.log(share / (1 - 2 * share)), atol=1e-8)


def test_constant_constraints_have_no_weight_and_a_warning():
    always = np.ones((2, 2), dtype=bool)
    factors = [((0, 1), always), ((0, 1), IMPLIES), ((0, 1), ~always)]
    partition = Partition([2, 2], factors)
    message = (
        r"2 constraint\(s\) hold in all worlds, or in none: 'a or not a', 'never'\. "
        r"They have no effect, and their weights are 0\. Correct them, or leave them "
        r"out"
    )
    names = ["a or not a", "a -> b", "never"]
    with pytest.warns(SkoodWarning, match=message):
        weights = fit_weights(partition, [1.0, 0.9, 0.0], 50, names=names)
    assert_array_equal(weights[[0, 2]], [0.0, 0.0])
    alone = fit_weights(Partition([2, 2], factors[1:2]), [0.9], 50)
    assert weights[1] == pytest.approx(alone[0], abs=1e-12)
    with pytest.warns(SkoodWarning, match=r"hold in all worlds, or in none: 0\. "):
        fit_weights(partition, [1.0, 0.9, 0.0], 50, fixed=[np.nan, 1.0, 2.0])


def test_only_a_few_names_are_listed():
    factors = [((0,), TRUE)] + [((0,), TRUE | True)] * 7
    with pytest.warns(SkoodWarning, match=r"7 constraint.* 1, 2, 3, 4, 5 and 2 more\."):
        fit_weights(Partition([2], factors), [0.5] + [1.0] * 7, 50)


def test_mean_truths_that_contradict_each_other_do_not_converge():
    # a in 90 % of the rows and not a in 90 % of them
    partition = Partition([2], [((0,), TRUE), ((0,), TRUE[::-1])])
    message = (
        r"The weights have not converged: a gradient is 0\.4 \(tol=1e-08\)\. The mean "
        r"truths may contradict the constraints"
    )
    with pytest.warns(SkoodWarning, match=message):
        weights = fit_weights(partition, [0.9, 0.9], 50, prior=0)
    assert_allclose(weights, [0, 0], atol=1e-9)


def test_mean_truths_beyond_all_worlds_stay_finite():
    # a in all rows, a and b in 90 %, b in 10 %: not possible
    both = np.array([[False, False], [False, True]])
    factors = [((0,), TRUE), ((0, 1), both), ((1,), TRUE)]
    with pytest.warns(SkoodWarning, match="The weights have not converged"):
        weights = fit_weights(Partition([2, 2], factors), [0.8, 0.9, 0.1], 50, prior=0)
    assert np.max(np.abs(weights)) < 1e4


@pytest.mark.parametrize(
    ("limit", "number", "mean", "gradient"),
    [("_MAX_ITER", 2, 0.999, r"0\.\d+ "), ("_MAX_HALVINGS", 0, 0.95, r"0\.2")],
)
def test_a_search_without_progress_ends(monkeypatch, limit, number, mean, gradient):
    monkeypatch.setattr(_weights, limit, number)
    with pytest.warns(SkoodWarning, match=f"not converged: a gradient is {gradient}"):
        fit_weights(Partition(*stop_rule()), [mean], 2000)


def test_a_component_that_is_too_large_has_no_likelihood():
    clique = [(pair, XOR) for pair in itertools.combinations(range(6), 2)]
    partition = Partition([2] * 6, clique, max_worlds=32, max_table=32)
    with pytest.raises(ValueError, match="15 constraints tie 6 concepts together"):
        fit_weights(partition, np.full(15, 0.5), 10)


# the pseudo-likelihood


def naive_pseudo(factors, sizes, row, weights):
    """Σ_d log P(z_d | the others), by loops."""

    def energy(world):
        return sum(
            w * table[tuple(world[c] for c in scope)]
            for w, (scope, table) in zip(weights, factors, strict=True)
        )

    total = 0.0
    for d, size in enumerate(sizes):
        worlds = [(*row[:d], value, *row[d + 1 :]) for value in range(size)]
        total += energy(row) - math.log(sum(math.exp(energy(w)) for w in worlds))
    return total


@pytest.mark.parametrize("seed", range(5))
def test_pseudo_likelihood_against_loops(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    sizes, factors = random_factors(rng, 6, 5)
    weights, scopes = rng.normal(size=5), [scope for scope, _ in factors]
    Z = random_rows(rng, sizes, 20)
    expected = [naive_pseudo(factors, sizes, tuple(row), weights) for row in Z]
    actual = pseudo_log_likelihood(truth_of(factors), sizes, scopes, Z, weights)
    assert_allclose(actual, expected, rtol=0, atol=1e-12)
    # the number of a row does not depend on the others, nor on chunks
    monkeypatch.setattr(_weights, "_CHUNK", 60)
    again = pseudo_log_likelihood(truth_of(factors), sizes, scopes, Z, weights)
    assert_array_equal(again, actual)


def test_pseudo_likelihood_with_large_weights_is_finite():
    factors = [((0, 1), IMPLIES)]
    Z = np.array([[1, 0], [0, 0]])
    found = pseudo_log_likelihood(truth_of(factors), [2, 2], [(0, 1)], Z, [1e3])
    # the first row breaks the rule, which either concept could mend
    assert_allclose(found, [-2e3, -math.log(2)], rtol=1e-15)


def test_pseudo_likelihood_without_constraints():
    Z = np.zeros((2, 2), dtype=int)
    found = pseudo_log_likelihood(None, [3, 4], [], Z, [])
    assert_allclose(found, -math.log(12), rtol=1e-15)


@pytest.mark.parametrize("chunk", [2**21, 40])
def test_pseudo_weights_are_the_maximum(chunk, monkeypatch):
    monkeypatch.setattr(_weights, "_CHUNK", chunk)
    rng = np.random.default_rng(0)
    sizes = [2, 3, 2, 3, 2]
    scopes = [(0, 1), (1, 2), (2, 3, 4), (0, 3), (4,)]
    factors = [(s, rng.random([sizes[c] for c in s]) < 0.5) for s in scopes]
    truth, scopes = truth_of(factors), [scope for scope, _ in factors]
    Z = random_rows(rng, sizes, 30)
    weights = fit_pseudo_weights(truth, sizes, scopes, Z, prior=0)
    args = truth, sizes, scopes, Z
    for unit in 1e-4 * np.eye(5):
        up = pseudo_log_likelihood(*args, weights + unit).mean()
        down = pseudo_log_likelihood(*args, weights - unit).mean()
        assert (up - down) / 2e-4 == pytest.approx(0, abs=1e-7)
        assert up < pseudo_log_likelihood(*args, weights).mean()


def test_pseudo_likelihood_of_single_concepts_is_the_likelihood():
    factors = [((0,), TRUE), ((1,), np.array([True, False, False]))]
    Z = np.array([[1, 0]] * 13 + [[0, 2]] * 2 + [[1, 1]] * 5)
    scopes = [(0,), (1,)]
    actual = fit_pseudo_weights(truth_of(factors), [2, 3], scopes, Z, prior=0)
    expected = [math.log(18 / 2), math.log(13 / 7 * 2)]
    assert_allclose(actual, expected, rtol=0, atol=1e-8)
    # the prior is that of a thousand drawn rows: close to uniform
    exact = fit_weights(Partition([2, 3], factors), [0.9, 0.65], 20, prior=2)
    with_prior = fit_pseudo_weights(truth_of(factors), [2, 3], scopes, Z, prior=2)
    assert_allclose(with_prior, exact, rtol=0, atol=0.02)
    again = fit_pseudo_weights(truth_of(factors), [2, 3], scopes, Z, prior=2)
    assert_array_equal(again, with_prior)


def test_pseudo_weights_approach_the_true_weights():
    rng = np.random.default_rng(0)
    factors = [((0, 1), IMPLIES), ((1, 2), XOR), ((0, 2), OR)]
    weights = np.array([1.5, -0.8, 0.6])
    worlds = np.array(list(itertools.product(range(2), repeat=3)))
    energy = truth_of(factors)(worlds) @ weights
    proba = np.exp(energy) / np.exp(energy).sum()
    Z = worlds[rng.choice(8, size=20_000, p=proba)]
    scopes = [scope for scope, _ in factors]
    found = fit_pseudo_weights(truth_of(factors), [2] * 3, scopes, Z)
    assert_allclose(found, weights, atol=0.08)


def test_pseudo_weights_of_a_component_that_is_too_large():
    # a rule for each pair of 14 concepts: log Z cannot be computed
    pairs = list(itertools.combinations(range(14), 2))
    factors = [(pair, np.eye(4) > 0) for pair in pairs]
    assert Partition([4] * 14, factors).method_ == "pseudo-likelihood"
    Z = np.random.default_rng(0).integers(0, 4, (300, 14))
    weights = fit_pseudo_weights(truth_of(factors), [4] * 14, pairs, Z, prior=10)
    assert np.isfinite(weights).all()
    assert np.abs(weights).max() < 2


def test_pseudo_weights_that_are_fixed_stay():
    rng = np.random.default_rng(0)
    factors = [((0, 1), IMPLIES), ((1, 2), XOR)]
    Z = rng.integers(0, 2, (50, 3))
    args = truth_of(factors), [2] * 3, [(0, 1), (1, 2)], Z
    weights = fit_pseudo_weights(*args, prior=0, fixed=[0.7, np.nan])
    assert weights[0] == 0.7
    for unit, sign in (([0, 1e-4], 0), ([1e-4, 0], 1)):
        up = pseudo_log_likelihood(*args, weights + unit).mean()
        down = pseudo_log_likelihood(*args, weights - np.array(unit)).mean()
        assert (abs(up - down) / 2e-4 > 1e-3) == bool(sign)


def test_pseudo_weights_without_prior_and_a_rule_that_always_holds():
    Z = np.array([[0, 0], [0, 1], [1, 1]])
    args = truth_of([((0, 1), IMPLIES)]), [2, 2], [(0, 1)], Z
    with pytest.warns(SkoodWarning, match=r"has no maximum: .* \('a -> b'\)"):
        weights = fit_pseudo_weights(*args, prior=0, names=["a -> b"])
    assert 10 < weights[0] < 25
    bounded = fit_pseudo_weights(*args, prior=1)
    assert 0 < bounded[0] < 5


def test_pseudo_weights_of_constraints_that_never_change():
    always = np.ones((2, 2), dtype=bool)
    factors = [((0, 1), IMPLIES), ((0, 1), always)]
    Z = np.array([[0, 0], [1, 0], [1, 1]])
    args = truth_of(factors), [2, 2], [(0, 1), (0, 1)], Z
    message = (
        r"1 constraint\(s\) do not change with any single concept of any sample: 1\."
    )
    with pytest.warns(SkoodWarning, match=message):
        weights = fit_pseudo_weights(*args)
    assert weights[1] == 0.0
    alone = fit_pseudo_weights(truth_of(factors[:1]), [2, 2], [(0, 1)], Z)
    assert weights[0] == pytest.approx(alone[0], abs=1e-9)
    with pytest.warns(SkoodWarning, match="do not change"):
        weights = fit_pseudo_weights(*args, fixed=[1.0, np.nan])
    assert_array_equal(weights, [1.0, 0.0])

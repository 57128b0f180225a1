"""The network of a search, against knowledge bases that are made from scratch."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
from functools import cache

import numpy as np
import pytest

from skood.logic import KnowledgeBase
from skood.logic.search import _incremental_network as module
from skood.logic.search._incremental_network import (
    Factor,
    Groups,
    SearchModel,
    Split,
    inverse_of,
    minimized,
)

DOMAINS = {
    "u": ["p", "q", "r"],
    "v": "bool",
    "w": ["k", "l", "m", "n"],
    "x": "bool",
    "y": "bool",
    "z": "bool",
}
RULES = [
    "u = p -> v",
    "w != k or x",  # another component
    "x xor y",
    "not (y and z) -> u = q",  # joins both
    "v <-> w = l",
    "x -> z",
    "u != r",
]


def _rows(n=400):
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(size, size=n) for size in SIZES], axis=1)
    # rules hold more often than they would by chance, one of them always
    truth = KnowledgeBase(RULES, DOMAINS).truth(rows)
    return rows[truth[:, 0] & (truth.sum(axis=1) >= 4)]


SIZES = KnowledgeBase([], DOMAINS).sizes
ROWS = _rows()


def _factors(rules, fixed=None):
    kb = KnowledgeBase(rules, DOMAINS)
    means = kb.truth(ROWS).mean(axis=0)
    fixed = np.full(len(rules), np.nan) if fixed is None else fixed
    return [
        Factor(scope, table, float(mean), float(weight))
        for scope, table, mean, weight in zip(
            kb.scopes, kb.tables, means, fixed, strict=True
        )
    ]


def _grown(rules, prior=1.0, fixed=None):
    model = SearchModel(SIZES, len(ROWS), prior)
    for factor in _factors(rules, fixed):
        model = model.extended(factor).fit().settled()
    return model


@pytest.fixture(params=["grouping", "elimination"])
def method(request, monkeypatch):
    """The method of inference; "elimination" if components are too large to group."""
    if request.param == "elimination":
        monkeypatch.setattr(module, "_MAX_WORLDS", 8)
        monkeypatch.setattr(module, "_MAX_TABLE", 2**10)
    return request.param


@cache
def _network_of_all_rules(method):
    return _grown(RULES)


def _check_equals_scratch(model, rules, fixed=None):
    kb = KnowledgeBase(rules, DOMAINS)
    weights = kb.fit_weights(ROWS, fixed=fixed)
    np.testing.assert_allclose(model.weights, weights, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(model.log_partition(), kb.log_partition(weights))
    np.testing.assert_allclose(
        model.max_penalty(), kb.max_penalty(weights), rtol=1e-6, atol=1e-7
    )


@pytest.mark.usefixtures("method")
def test_grown_network_equals_fit_from_scratch():
    model = SearchModel(SIZES, len(ROWS), 1.0)
    assert model.log_partition() == pytest.approx(math.log(3 * 4 * 2**4))
    assert model.max_penalty() == 0.0
    for n, factor in enumerate(_factors(RULES), start=1):
        trial = model.extended(factor).fit()
        _check_equals_scratch(trial, RULES[:n])
        model = trial.settled()
        _check_equals_scratch(model, RULES[:n])


def test_a_trial_changes_nothing():
    model = _grown(RULES[:4])
    weights = model.weights.copy()
    for factor in _factors(RULES[4:]):
        model.extended(factor).fit().settled()
    model.without(1).fit()
    np.testing.assert_array_equal(model.weights, weights)
    _check_equals_scratch(model, RULES[:4])


@pytest.mark.parametrize("member", range(len(RULES)))
def test_without_equals_from_scratch(member, method):
    model = _network_of_all_rules(method).without(member).fit()
    rest = RULES[:member] + RULES[member + 1 :]
    _check_equals_scratch(model, rest)
    # and it grows on
    (factor,) = _factors([RULES[member]])
    model = model.settled().extended(factor).fit()
    _check_equals_scratch(model, [*rest, RULES[member]])


def test_without_the_only_constraint():
    model = _grown(RULES[:1]).without(0).fit()
    assert model.weights.shape == (0,)
    assert model.components == ()
    assert model.log_partition() == pytest.approx(math.log(3 * 4 * 2**4))


def test_fixed_weights_stay():
    fixed = np.array([2.5, np.nan, -0.7, np.nan, np.nan, np.nan, 1.0])
    model = _grown(RULES, fixed=fixed)
    _check_equals_scratch(model, RULES, fixed)
    for i in (0, 1):
        rest = RULES[:i] + RULES[i + 1 :]
        _check_equals_scratch(model.without(i).fit(), rest, np.delete(fixed, i))


@pytest.mark.filterwarnings("ignore::skood.exceptions.SkoodWarning")
def test_unbounded_weights_are_those_of_the_solver():
    """Without a prior the weight of a rule that no sample violates is capped."""
    model = _grown(RULES[:3], prior=0.0)
    weights = KnowledgeBase(RULES[:3], DOMAINS).fit_weights(ROWS, 0.0)
    assert weights[0] > 15
    np.testing.assert_allclose(model.weights, weights, rtol=1e-6)


def test_equal_constraints_share():
    """Weights of equal constraints are not unique, but penalties are."""
    twice = [*RULES, "v or u != p", "not (x xor y)"]
    model = _grown(twice)
    for rules, one in ((twice, model), (twice[1:], model.without(0).fit())):
        kb = KnowledgeBase(rules, DOMAINS)
        weights = kb.fit_weights(ROWS)
        difference = kb.penalty(ROWS, one.weights) - kb.penalty(ROWS, weights)
        np.testing.assert_allclose(difference, difference[0], atol=1e-7)


@pytest.mark.usefixtures("method")
def test_gain_is_that_of_the_likelihood():
    """The largest increase of w·m - log Z over the weight of the new constraint."""
    model = _grown(RULES[:5])
    kb = KnowledgeBase(RULES[:6], DOMAINS)
    uniform = kb.expected_truth(np.zeros(6))
    target = (len(ROWS) * kb.truth(ROWS).mean(axis=0) + uniform) / (len(ROWS) + 1)

    def mean_log_likelihood(last):
        weights = np.append(model.weights, last)
        return weights @ target - kb.log_partition(weights)

    best = max(mean_log_likelihood(last) for last in np.linspace(-8, 8, 3201))
    gain = model.gain(_factors(RULES[:6])[5])
    assert gain == pytest.approx(best - mean_log_likelihood(0.0), abs=1e-6)
    assert gain > 1e-3


def test_gain_of_what_is_known_is_zero():
    model = _grown(RULES)
    for factor in _factors(RULES):
        assert abs(model.gain(factor)) < 1e-10


def test_too_large_for_exact_sums(monkeypatch):
    monkeypatch.setattr(module, "_MAX_WORLDS", 8)
    monkeypatch.setattr(module, "_MAX_TABLE", 8)
    factors = _factors(["u = p -> v", "v -> x", "x and y -> w = k and u = q"])
    model = SearchModel(SIZES, len(ROWS), 1.0)
    model = model.extended(factors[0]).fit().settled()
    assert model.extended(factors[2]) is None
    assert model.gain(factors[2]) is None
    model = model.extended(factors[1]).fit().settled()
    assert len(model.factors) == 2
    # what remains after taking one out need not be exact either, as far as is known
    monkeypatch.setattr(module, "_MAX_WORLDS", 2)
    monkeypatch.setattr(module, "_MAX_TABLE", 1)
    assert model.without(0) is None


def test_moments_of_a_split():
    """All numbers of a split are those of the groups that it becomes."""
    rng = np.random.default_rng(1)
    index = rng.integers(5, size=(4, 3, 2))
    groups = Groups(index, rng.random((5, 3)) < 0.5)
    for truth in (rng.random((4, 3, 2)) < 0.5, (index == 2) | (index == 4)):
        split = Split(groups, truth)
        done = split.done()
        np.testing.assert_array_equal(done.truth[done.index][..., 3], truth)
        np.testing.assert_array_equal(
            done.truth[done.index][..., :3], groups.truth[index]
        )
        for weights in (np.zeros(4), np.array([1.0, -2.0, 0.5, 3.0]), -np.ones(4)):
            log_z, mean = split.evaluate(weights)
            assert log_z == pytest.approx(done.log_partition(weights), abs=1e-12)
            assert split.log_partition(weights) == log_z
            np.testing.assert_allclose(mean, done.expected_truth(weights), atol=1e-12)
            np.testing.assert_allclose(done.evaluate(weights)[1], mean, atol=1e-12)
            assert split.max_penalty(weights) == pytest.approx(
                done.max_penalty(weights)
            )
        np.testing.assert_allclose(split.uniform_truth(), done.uniform_truth())
        marginal = done.marginal(weights, (0, 2))
        expected = np.zeros((4, 2))
        p = np.exp(done.truth[done.index] @ weights)
        for i, j, k in np.ndindex(4, 3, 2):
            expected[i, k] += p[i, j, k] / p.sum()
        np.testing.assert_allclose(marginal, expected)
    huge = np.array([1.0, -2.0, 0.5, 800.0])
    assert split.log_partition(huge) == pytest.approx(done.log_partition(huge))
    assert split.log_partition(-huge) == pytest.approx(done.log_partition(-huge))


def test_inverse_of_a_covariance():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, 4))
    covariance = A @ A.T
    free = np.array([True, True, False, True])
    inverse = inverse_of(covariance, free)
    np.testing.assert_allclose(
        inverse[np.ix_(free, free)], np.linalg.inv(covariance[np.ix_(free, free)])
    )
    assert not inverse[2].any()
    assert not inverse[:, 2].any()
    assert not inverse_of(covariance, np.zeros(4, dtype=bool)).any()
    flat = np.ones((2, 2))
    np.testing.assert_allclose(inverse_of(flat, np.ones(2, dtype=bool)), flat / 4)


def test_minimized_gives_up():
    """None where the minimum is at infinity, or no step leads down."""
    free = np.ones(1, dtype=bool)

    def rising(weights):
        value = float(np.logaddexp(0.0, weights).sum())
        return value, 1.0 / (1.0 + np.exp(-weights))

    start = np.zeros(1)
    actual = minimized(rising, np.full(1, 0.9), start, np.eye(1), free)
    np.testing.assert_allclose(actual, [math.log(9.0)], rtol=1e-9)
    assert minimized(rising, np.full(1, 1.5), start, np.eye(1), free) is None
    for inverse in (np.zeros((1, 1)), -np.eye(1)):
        assert minimized(rising, np.full(1, 0.9), start, inverse, free) is None

    def wrong(weights):
        value, gradient = rising(weights)
        return value, 1.0 - gradient

    assert minimized(wrong, np.full(1, 0.1), start, np.eye(1), free) is None

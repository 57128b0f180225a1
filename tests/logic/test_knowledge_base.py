"""Tests of knowledge bases."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import math
import pickle
import tracemalloc
from itertools import product

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch

from skood.exceptions import ConstraintSyntaxError, SkoodWarning
from skood.logic import C, KnowledgeBase, _knowledge_base, parse_constraint
from skood.logic._knowledge_base import check_probabilities, expected_tables
from tests.logic._formulas import DOMAINS, holds, random_formula, worlds

SIGNS = {
    "class": ["stop_sign", "yield", "other"],
    "color": ["red", "blue"],
    "shape": ["octagon", "triangle"],
}
STOP = "class=stop_sign -> color=red and shape=octagon"
RULES = [
    "class = stop_sign -> color = red and paint != green",
    "'or' xor 'a b'",
    "class = 'it\\'s' <-> n = '1e-07'",
    "color = paint",
    "not (color != paint and κ.1)",
    "n = -1 or n = 2 or n = 1.5 -> round",
    "one = only",
    "-7 = '->' xor round xor color = red",
]


def _all_worlds(sizes):
    return np.array(list(product(*(range(size) for size in sizes))))


# ---------------------------------------------------------------- numbers that were
# worked out by hand, or with many digits


def test_a_stop_sign():
    kb = KnowledgeBase([STOP], SIGNS)
    every = _all_worlds(kb.sizes)
    truth = kb.truth(every)
    assert truth.sum() == 9
    np.testing.assert_allclose(kb.log_partition([1.5]), 3.7689652754667398, rtol=1e-12)
    proba = np.exp(kb.log_probability(every, [1.5]))
    np.testing.assert_allclose(proba[truth[:, 0]], 0.103419135055341, rtol=1e-12)
    np.testing.assert_allclose(proba[~truth[:, 0]], 0.02307592816731033, rtol=1e-12)
    assert set(kb.penalty(every, [1.5])[truth[:, 0]]) == {-1.5}
    assert set(kb.penalty(every, [1.5])[~truth[:, 0]]) == {0.0}
    assert kb.max_penalty([1.5]) == 0.0


@pytest.mark.parametrize(
    ("n_kept", "n", "prior", "weight"),
    [
        (190, 200, 0, 1.8458266904983307),
        (190, 200, 1, 1.8250736759120392),
        (200, 200, 1, 5.589742425278634),
    ],
)
def test_weight_of_a_single_constraint(n_kept, n, prior, weight):
    kb = KnowledgeBase([STOP], SIGNS)
    Y = [["stop_sign", "red", "octagon"]] * n_kept
    Y += [["stop_sign", "red", "triangle"]] * (n - n_kept)
    found = kb.fit_weights(kb.encode(Y), prior=prior)
    np.testing.assert_allclose(found, [weight], rtol=1e-9)
    found = kb.fit_weights_to([n_kept / n], n, prior=prior)
    np.testing.assert_allclose(found, [weight], rtol=1e-9)


def _traffic_signs():
    """43 classes, each with one color and one shape."""
    domains = {
        "class": [f"c{i}" for i in range(43)],
        "color": ["red", "blue", "white", "yellow"],
        "shape": ["octagon", "circle", "triangle", "inverse", "diamond"],
    }
    colors, shapes = domains["color"], domains["shape"]
    rules = [
        f"class=c{i} -> color={colors[i % 4]} and shape={shapes[i % 5]}"
        for i in range(43)
    ]
    return KnowledgeBase(rules, domains)


def test_traffic_signs():
    kb = _traffic_signs()
    kept = [[i % 43, i % 43 % 4, i % 43 % 5] for i in range(4209 - 43)]
    broken = [[i, (i + 1) % 4, i % 5] for i in range(43)]
    Z = np.array(kept + broken)
    assert (len(Z) - kb.truth(Z).sum(axis=0)).tolist() == [1] * 43
    weights = kb.fit_weights(Z, prior=0)
    closed = math.log(19 * (1 - 43 / 4209) / (43 / 4209))
    np.testing.assert_allclose(weights, closed, rtol=1e-9)
    np.testing.assert_allclose(weights[:5], 7.517950485293795, rtol=1e-9)
    assert [c["n_worlds"] for c in kb.components_] == [860]
    assert [c["n_groups"] for c in kb.components_] == [44]
    assert kb.method_ == "grouping"


SEVEN = {
    "u": ["p", "q", "r"],
    "v": ["s", "t"],
    "w": ["k", "l", "m", "n"],
    "x": ["0", "1"],
    "y": ["0", "1"],
    "z": ["0", "1"],
}
SEVEN_RULES = ["u=p -> v=s", "w!=k or x", "x xor y", "not (y and z) -> u=q"]
SEVEN_RULES += ["v=t <-> w=l"]
# made with mpmath by explicit enumeration
SEVEN_WEIGHTS = [0.002, 0.448, -0.411, -1.336, -0.682]


@pytest.mark.parametrize(
    "method", ["auto", "enumeration", "grouping", "components", "elimination"]
)
def test_a_partition_function_with_many_digits(method):
    kb = KnowledgeBase(SEVEN_RULES, SEVEN, method=method)
    assert kb.method_ == (method if method != "auto" else "grouping")
    np.testing.assert_allclose(
        kb.log_partition(SEVEN_WEIGHTS), 4.73072055793961, rtol=0, atol=1e-10
    )
    np.testing.assert_allclose(
        kb.expected_truth(SEVEN_WEIGHTS),
        [
            0.7515447269220497,
            0.9129085458979184,
            0.403089356626033,
            0.2092867448381646,
            0.3359062828236324,
        ],
        rtol=0,
        atol=1e-10,
    )


def test_a_pseudo_likelihood():
    kb = KnowledgeBase(["a -> b", "b xor c"], dict.fromkeys("abc", "bool"))
    Z = np.array([[0, 0, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]])
    expected = [
        -2.469654565108947,
        -2.27041021362551,
        -2.8405455004035955,
        -1.2357199877283638,
    ]
    for codes in (Z, Z.astype(bool), torch.as_tensor(Z), kb.decode(Z)):
        if codes.dtype == bool and codes is not Z:
            codes = kb.encode(codes)
        actual = kb.pseudo_log_likelihood(codes, [1.2, -0.7])
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(kb.log_partition([1.2, -0.7]), 2.7974703342918876)


# ---------------------------------------------------------------- truth


def _naive(kb, Z):
    """Truth of each constraint in each row, by plain Python."""
    rows = [
        {
            name: values[c]
            for c, (name, values) in zip(row, DOMAINS.items(), strict=True)
        }
        for row in np.asarray(Z).tolist()
    ]
    return [[holds(formula, row) for formula in kb.formulas] for row in rows]


@pytest.fixture(scope="module")
def messy():
    """A knowledge base of odd names, codes of rows, and their truth."""
    rng = np.random.default_rng(0)
    kb = KnowledgeBase(RULES + [random_formula(rng, 4) for _ in range(12)], DOMAINS)
    codes, _ = worlds(rng, 150)
    return kb, codes, np.array(_naive(kb, codes))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_truth_of_arrays(messy, kind):
    kb, codes, truth = messy
    assert len(kb) == 20
    assert 0 < truth.mean() < 1
    Z = codes.astype(kind)
    for same in (Z, np.asfortranarray(Z), Z.tolist(), np.repeat(Z, 2, axis=1)[:, ::2]):
        found = kb.truth(same)
        assert isinstance(found, np.ndarray)
        assert found.dtype == bool
        assert found.tolist() == truth.tolist()
    assert kb.truth(Z[::-1]).tolist() == truth[::-1].tolist()
    read_only = Z.copy()
    read_only.flags.writeable = False
    assert kb.truth(read_only).tolist() == truth.tolist()


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_truth_of_tensors(messy, kind):
    kb, codes, truth = messy
    Z = torch.as_tensor(codes).to(kind)
    for same in (Z, Z.T.contiguous().T, Z.repeat_interleave(2, dim=1)[:, ::2]):
        found = kb.truth(same)
        assert isinstance(found, torch.Tensor)
        assert found.dtype == torch.bool
        assert found.device == Z.device
        assert found.tolist() == truth.tolist()


def test_truth_of_frames(messy):
    kb, codes, truth = messy
    frame = pd.DataFrame(kb.decode(codes), columns=kb.concepts)
    assert kb.truth(frame).tolist() == truth.tolist()
    shuffled = frame.assign(more=0)[[*kb.concepts[::-1], "more"]]
    assert kb.truth(shuffled).tolist() == truth.tolist()


def test_truth_of_boolean_codes():
    kb = KnowledgeBase(["a and b", "a xor b"], {"a": "bool", "b": "bool"})
    Z = _all_worlds((2, 2)).astype(bool)
    expected = [[False, False], [False, True], [False, True], [True, False]]
    assert kb.truth(Z).tolist() == expected
    assert kb.truth(torch.as_tensor(Z)).tolist() == expected


def test_codes_that_need_more_than_a_byte():
    domains = {"many": [f"v{i}" for i in range(300)], "few": "bool"}
    kb = KnowledgeBase(["many = v299", "many = v43 or few"], domains)
    Z = np.array([[43, 0], [299, 0], [255, 1]])
    expected = [[False, True], [True, False], [False, True]]
    assert kb.truth(Z).tolist() == expected
    assert kb.truth(torch.as_tensor(Z)).tolist() == expected
    # 299 leaves 43 in a byte
    few = torch.as_tensor(Z[[0, 2]]).to(torch.uint8)
    assert kb.truth(few).tolist() == [expected[0], expected[2]]
    assert kb.truth(Z[[0, 2]].astype(np.uint8)).tolist() == [expected[0], expected[2]]


def test_no_samples(messy):
    kb, codes, _ = messy
    assert kb.truth(codes[:0]).shape == (0, 20)
    assert kb.truth(torch.as_tensor(codes[:0])).shape == (0, 20)
    assert kb.penalty(codes[:0], np.ones(20)).shape == (0,)
    assert kb.log_probability(codes[:0], np.ones(20)).shape == (0,)
    assert kb.expected([np.empty((0, size)) for size in kb.sizes]).shape == (0, 20)


def test_many_samples_are_as_few(messy):
    kb, codes, truth = messy
    rows = np.random.default_rng(1).integers(len(codes), size=70_000)
    weights = np.random.default_rng(2).normal(size=20)
    few = kb.penalty(codes, weights)
    for Z in (codes[rows], torch.as_tensor(codes)[rows]):
        assert (np.asarray(kb.truth(Z)) == truth[rows]).all()
        assert (kb.penalty(Z, weights) == few[rows]).all()


def test_memory_of_a_million_samples():
    kb = _traffic_signs()
    rng = np.random.default_rng(0)
    Z = np.stack([rng.integers(size, size=10**6) for size in kb.sizes], axis=1)
    tracemalloc.start()
    truth = kb.truth(Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert truth.shape == (10**6, 43)
    assert peak < truth.nbytes + 50e6
    assert (truth[::1000] == kb.truth(Z[::1000])).all()


def test_many_constraints():
    domains = {"class": [f"c{i}" for i in range(1000)], "color": ["red", "blue"]}
    kb = KnowledgeBase([f"class = c{i} -> color = red" for i in range(1000)], domains)
    Z = np.column_stack([np.arange(1000).repeat(20), np.tile([0, 1], 10_000)])
    tracemalloc.start()
    truth = kb.truth(Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < truth.nbytes + 50e6
    broken = np.zeros((20_000, 1000), dtype=bool)
    broken[np.arange(20_000), Z[:, 0]] = Z[:, 1] == 1
    assert (truth == ~broken).all()


# ---------------------------------------------------------------- expectations


def test_expected_of_certain_concepts_is_the_truth(messy):
    kb, codes, truth = messy
    P = [np.eye(size)[column] for size, column in zip(kb.sizes, codes.T, strict=True)]
    assert (kb.expected(P) == truth).all()


def test_expected_needs_tables():
    kb = _too_large()
    P = [np.full((1, 2), 0.5)] * 30
    with pytest.raises(
        ValueError, match="'all' names concepts with more than 16777216"
    ):
        kb.expected(P)
    with pytest.raises(
        ValueError, match="Expected probabilities of 30 concepts, got 2"
    ):
        kb.expected(P[:2])


# ---------------------------------------------------------------- penalties


def test_penalties_are_sums(messy):
    kb, codes, truth = messy
    weights = np.random.default_rng(0).normal(size=20)
    expected = [-math.fsum(weights[row]) for row in truth]
    actual = kb.penalty(codes, weights)
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, rtol=1e-13, atol=1e-13)
    assert (kb.penalty(torch.as_tensor(codes), weights) == actual).all()
    frame = pd.DataFrame(kb.decode(codes), columns=kb.concepts)
    assert (kb.penalty(frame, weights.tolist()) == actual).all()


def test_samples_that_satisfy_the_same_have_equal_penalties(messy):
    kb, codes, _ = messy
    weights = np.random.default_rng(1).normal(size=20)
    twice = np.concatenate([codes, codes[::-1], codes[:7]])
    found = kb.penalty(twice, weights)
    _, group = np.unique(kb.truth(twice), axis=0, return_inverse=True)
    for k in range(group.max() + 1):
        assert len(set(found[group.ravel() == k].tolist())) == 1
    alone = [kb.penalty(row[None], weights)[0] for row in codes[:20]]
    assert alone == found[:20].tolist()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([], r"each of the 5 .*got .*\(0,\)"),
        (np.ones(4), r"one number for each of the 5 constraints, got .*\(4,\)"),
        (np.ones(6), r"each of the 5 .*got .*\(6,\)"),
        ([np.nan, 1, 1, 1, 1], "weights must be finite, got nan for constraint 0"),
        (
            [1, np.inf, 1, 1, 1],
            "got inf for constraint 1. A rule that must never be broken",
        ),
        ([1, -np.inf, 1, 1, 1], "got -inf for constraint 1"),
        (list("abcde"), "weights must be numbers, got dtype <U1"),
    ],
)
def test_bad_weights(weights, message):
    kb = KnowledgeBase(SEVEN_RULES, SEVEN)
    Z = np.zeros((1, 6), dtype=int)
    for called in (
        lambda: kb.penalty(Z, weights),
        lambda: kb.max_penalty(weights),
        lambda: kb.log_partition(weights),
        lambda: kb.expected_truth(weights),
        lambda: kb.log_probability(Z, weights),
        lambda: kb.pseudo_log_likelihood(Z, weights),
    ):
        with pytest.raises(ValueError, match=message):
            called()


# ---------------------------------------------------------------- distributions


def test_probabilities_of_all_worlds_sum_to_1():
    kb = KnowledgeBase(SEVEN_RULES, {**SEVEN, "free": [1, 2, 3]})
    every = _all_worlds(kb.sizes)
    log_proba = kb.log_probability(every, SEVEN_WEIGHTS)
    np.testing.assert_allclose(np.exp(log_proba).sum(), 1.0, rtol=1e-12)
    mean = np.exp(log_proba) @ kb.truth(every)
    np.testing.assert_allclose(kb.expected_truth(SEVEN_WEIGHTS), mean, rtol=1e-12)


def test_fit_recovers_weights():
    kb = KnowledgeBase(SEVEN_RULES, SEVEN)
    expected = kb.expected_truth(SEVEN_WEIGHTS)
    actual = kb.fit_weights_to(expected, 100, prior=0)
    np.testing.assert_allclose(actual, SEVEN_WEIGHTS, rtol=0, atol=1e-6)


def test_weights_of_samples_of_any_kind(messy):
    kb, codes, truth = messy
    with pytest.warns(SkoodWarning, match="hold in all worlds, or in none: 'one = on"):
        weights = kb.fit_weights(codes)
        assert (kb.fit_weights(torch.as_tensor(codes)) == weights).all()
        frame = pd.DataFrame(kb.decode(codes), columns=kb.concepts)
        assert (kb.fit_weights(frame) == weights).all()
        assert (kb.fit_weights(codes[::-1]) == weights).all()
        means = truth.mean(axis=0)
        np.testing.assert_allclose(kb.fit_weights_to(means, 150), weights, atol=1e-9)
    uniform = kb.expected_truth(np.zeros(20))
    target = (150 * means + uniform) / 151
    np.testing.assert_allclose(kb.expected_truth(weights), target, rtol=0, atol=1e-7)
    assert weights[kb.constraints.index("one = only")] == 0


def test_weights_that_are_fixed():
    kb = KnowledgeBase(SEVEN_RULES, SEVEN)
    Z = np.random.default_rng(0).integers(0, kb.sizes, size=(50, 6))
    fixed = [np.nan, 3.0, np.nan, np.nan, -1.0]
    weights = kb.fit_weights(Z, fixed=fixed)
    assert weights[[1, 4]].tolist() == [3.0, -1.0]
    target = (50 * kb.truth(Z).mean(axis=0) + kb.expected_truth(np.zeros(5))) / 51
    free = [0, 2, 3]
    np.testing.assert_allclose(
        kb.expected_truth(weights)[free], target[free], rtol=0, atol=1e-8
    )


@pytest.mark.parametrize(
    ("means", "n", "prior", "fixed", "message"),
    [
        ([0.5], 10, 1, None, r"must hold 2 numbers .*, one for each .* Got \[0\.5\]"),
        ([0.5, 1.1], 10, 1, None, r"hold 2 numbers in \[0, 1\], .* Got \[0.5 1.1\]"),
        ([-0.1, 0.5], 10, 1, None, r"mean_truth must hold 2 numbers in \[0, 1\]"),
        ([np.nan, 0.5], 10, 1, None, r"mean_truth must hold 2 numbers in \[0, 1\]"),
        ([[0.5, 0.5]], 10, 1, None, r"mean_truth must hold 2 numbers in \[0, 1\]"),
        (0.5, 10, 1, None, r"mean_truth must hold 2 numbers in \[0, 1\]"),
        ([0.5, 0.5], 0, 0, None, "and not both 0; got n=0 and prior=0"),
        ([0.5, 0.5], -1, 1, None, "must be at least 0, and not both 0; got n=-1"),
        ([0.5, 0.5], 5, -1, None, "got n=5 and prior=-1"),
        ([0.5, 0.5], 5, np.inf, None, "got n=5 and prior=inf"),
        ([0.5, 0.5], 5, np.nan, None, "got n=5 and prior=nan"),
        ([0.5, 0.5], 5, 1, [1.0], "fixed must have a finite weight, or NaN, for each"),
        ([0.5, 0.5], 5, 1, [np.inf, 1], r"of the 2 constraints, got \[inf  1\.\]"),
    ],
)
def test_what_weights_cannot_be_fitted_to(means, n, prior, fixed, message):
    kb = KnowledgeBase(["a", "b"], {"a": "bool", "b": "bool"})
    with pytest.raises(ValueError, match=message):
        kb.fit_weights_to(means, n, prior, fixed=fixed)
    with pytest.raises(ValueError, match="Weights cannot be fitted to 0 samples"):
        kb.fit_weights(np.empty((0, 2), dtype=int))


def test_means_may_be_rounded():
    kb = KnowledgeBase(["a"], {"a": "bool"})
    found = kb.fit_weights_to([1 + 1e-15], 10)
    np.testing.assert_allclose(found, [math.log(10.5 / 0.5)])


def _too_large():
    """Thirty concepts in one constraint: too many for anything exact."""
    domains = {f"c{i}": "bool" for i in range(30)}
    rules = {"all": " xor ".join(domains), "first": "c0 -> c1", "last": "c29"}
    return KnowledgeBase(rules, domains)


def test_what_is_too_large_is_fitted_by_pseudo_likelihood():
    kb = _too_large()
    assert kb.method_ == "pseudo-likelihood"
    assert kb.tables[0] is None
    assert kb.tables[1].tolist() == [[True, True], [False, True]]
    Z = np.random.default_rng(0).integers(2, size=(40, 30))
    with pytest.warns(SkoodWarning, match=r"pseudo-likelihood, .* tie 30 concepts"):
        weights = kb.fit_weights(Z)
    assert np.isfinite(weights).all()
    with pytest.warns(SkoodWarning):
        assert (kb.fit_weights(torch.as_tensor(Z)) == weights).all()
    mean = kb.pseudo_log_likelihood(Z, weights).mean()
    for i in range(3):  # the prior weighs one of 41 rows
        for step in (-0.5, 0.5):
            other = weights + step * np.eye(3)[i]
            assert kb.pseudo_log_likelihood(Z, other).mean() < mean
    parity = Z.sum(axis=1) % 2 == 1
    assert kb.truth(Z)[:, 0].tolist() == parity.tolist()
    np.testing.assert_allclose(
        kb.penalty(Z, [1.0, 0.0, 0.0]), -parity.astype(float), rtol=0
    )
    for called in (
        lambda: kb.log_partition(weights),
        lambda: kb.expected_truth(weights),
        lambda: kb.max_penalty(weights),
        lambda: kb.log_probability(Z, weights),
    ):
        with pytest.raises(ValueError, match="log Z and what follows from it"):
            called()


def test_pseudo_likelihood_is_log_probability_of_what_is_independent():
    kb = KnowledgeBase(
        ["a", "b = x", "c != 2"], {"a": "bool", "b": ["x", "y"], "c": [1, 2, 3]}
    )
    every = _all_worlds(kb.sizes)
    weights = [0.3, -1.0, 2.0]
    np.testing.assert_allclose(
        kb.pseudo_log_likelihood(every, weights), kb.log_probability(every, weights)
    )


def test_a_constraint_over_more_concepts_than_an_array_has_axes():
    domains = {f"c{i}": ["only"] for i in range(70)} | {"x": "bool"}
    rules = [" and ".join(f"c{i} = only" for i in range(70)) + " -> x", "x"]
    kb = KnowledgeBase(rules, domains)
    assert kb.tables[0] is None
    Z = np.zeros((2, 71), dtype=int)
    Z[1, 70] = 1
    assert kb.truth(Z).tolist() == [[False, False], [True, True]]
    with pytest.raises(ValueError, match="or more than 32 concepts: its expectation"):
        kb.expected([np.ones((1, 1))] * 70 + [[[0.5, 0.5]]])


# ---------------------------------------------------------------- construction


def test_attributes():
    rule = C("class").eq("yield") >> ~C("color").eq("blue")
    kb = KnowledgeBase([STOP, rule], {**SIGNS, "day": "bool"})
    assert kb.constraints == [
        "class = stop_sign -> color = red and shape = octagon",
        "class = yield -> not color = blue",
    ]
    assert kb.names == kb.constraints
    assert kb.names is not kb.constraints
    assert kb.formulas == [parse_constraint(STOP, SIGNS), rule]
    assert kb.concepts == ["class", "color", "shape", "day"]
    assert kb.domains == {**SIGNS, "day": [False, True]}
    assert kb.sizes == (3, 2, 2, 2)
    assert kb.scopes == [(0, 1, 2), (0, 1)]
    assert [table.shape for table in kb.tables] == [(3, 2, 2), (3, 2)]
    assert kb.tables[1].tolist() == [[True, True], [True, False], [True, True]]
    assert len(kb) == 2
    assert repr(kb) == "KnowledgeBase(2 constraints, 4 concepts, method='grouping')"
    assert kb.components_ == [
        {
            "concepts": [0, 1, 2],
            "constraints": [0, 1],
            "method": "grouping",
            "n_worlds": 12,
            "n_groups": 3,
        }
    ]


@pytest.mark.parametrize("kind", [dict, pd.Series])
def test_constraints_with_names(kind):
    kb = KnowledgeBase(kind({"stop": STOP, 7: "class = yield"}), SIGNS)
    assert kb.names == ["stop", "7"]
    assert kb.constraints[1] == "class = yield"


def test_constraints_of_any_iterable():
    for some in ([STOP], (STOP,), iter([STOP]), np.array([STOP]), pd.Index([STOP])):
        assert len(KnowledgeBase(some, SIGNS)) == 1


def test_no_constraints():
    kb = KnowledgeBase([], SIGNS)
    Z = np.zeros((3, 3), dtype=int)
    assert kb.truth(Z).shape == (3, 0)
    assert kb.truth(torch.as_tensor(Z)).shape == (3, 0)
    assert kb.penalty(Z, []).tolist() == [0.0, 0.0, 0.0]
    assert kb.fit_weights(Z).shape == (0,)
    assert kb.components_ == []
    np.testing.assert_allclose(kb.log_partition([]), math.log(12))
    np.testing.assert_allclose(kb.log_probability(Z, []), -math.log(12))
    assert kb.expected([np.full((2, size), 1 / size) for size in kb.sizes]).shape == (
        2,
        0,
    )


LISTED = "constraints must be a list of constraints, or"
ONE = "A constraint must be a str or a Formula, got"
THIRTY = {f"c{i}": "bool" for i in range(30)}


@pytest.mark.parametrize(
    ("constraints", "domains", "method", "error", "message"),
    [
        *((given, SIGNS, "auto", TypeError, LISTED) for given in (STOP, 3, None)),
        (C("color"), SIGNS, "auto", TypeError, LISTED),
        *(
            ([STOP, one], SIGNS, "auto", TypeError, ONE)
            for one in (None, 1, ["a"], b"a")
        ),
        ([STOP, C("color") == "red"], SIGNS, "auto", TypeError, ONE),
        (
            ["size = big"],
            SIGNS,
            "auto",
            ConstraintSyntaxError,
            "unknown concept 'size'",
        ),
        ([C("size").eq("big")], SIGNS, "auto", ValueError, "Unknown concept 'size'"),
        ([], {}, "auto", ValueError, "domains is empty: name at least one concept"),
        ([], ["a"], "auto", TypeError, "domains must be a dict"),
        ([STOP], SIGNS, "exact", ValueError, r"method must be one of .* got 'exact'"),
        (
            [" or ".join(THIRTY)],
            THIRTY,
            "grouping",
            ValueError,
            "method='grouping' cannot do this",
        ),
    ],
)
def test_bad_constraints(constraints, domains, method, error, message):
    with pytest.raises(error, match=message):
        KnowledgeBase(constraints, domains, method=method)


def test_codes_and_labels(messy):
    kb, codes, _ = messy
    labels = kb.decode(codes)
    assert labels.dtype == object
    assert (kb.encode(labels) == codes).all()
    assert (kb.encode(labels.tolist()) == codes).all()
    with pytest.raises(ValueError, match="no column for the concepts"):
        kb.truth(pd.DataFrame(labels))
    with pytest.raises(ValueError, match=r"'\?' is no value of the concept 'class'"):
        kb.encode(np.where(labels == "yield", "?", labels))
    for method in (
        kb.truth,
        kb.fit_weights,
        lambda Z: kb.penalty(Z, np.ones(20)),
        lambda Z: kb.pseudo_log_likelihood(Z, np.ones(20)),
    ):
        with pytest.raises(ValueError, match="Column 0 holds the code 17"):
            method(codes + 9)
        with pytest.raises(TypeError, match="Expected codes, which are integers"):
            method(labels)
        with pytest.raises(
            ValueError, match=r"Expected codes of shape \(n_samples, 10"
        ):
            method(codes[0])


@pytest.mark.parametrize("after_use", [False, True])
def test_copies_compute_the_same(messy, after_use):
    _, codes, truth = messy
    kb = KnowledgeBase(RULES + messy[0].formulas[len(RULES) :], DOMAINS)
    weights = np.random.default_rng(0).normal(size=20)
    if after_use:
        kb.log_partition(weights)
    dumped = skops.io.dumps(kb)
    trusted = skops.io.get_untrusted_types(data=dumped)
    assert all(name.startswith("skood.logic.") for name in trusted)
    for again in (
        pickle.loads(pickle.dumps(kb)),
        copy.deepcopy(kb),
        skops.io.loads(dumped, trusted=trusted),
    ):
        assert again.formulas == kb.formulas
        assert again.domains == kb.domains
        assert (again.truth(codes) == truth).all()
        assert again.log_partition(weights) == kb.log_partition(weights)
        assert (again.penalty(codes, weights) == kb.penalty(codes, weights)).all()
        assert again.components_ == kb.components_


SIZES = (3, 2, 4, 1)


def _problem(seed, n_samples=5):
    """Probabilities of four concepts, and tables over some of them."""
    rng = np.random.default_rng(seed)
    P = [rng.dirichlet(np.ones(size), size=n_samples) for size in SIZES]
    scopes = [(0, 1), (2,), (0, 1, 2), (0, 1), (1, 3), (0, 1, 2, 3), (3,)]
    tables = [rng.random([SIZES[j] for j in scope]) < 0.5 for scope in scopes]
    return P, scopes, tables


def _summed_over_worlds(P, scopes, tables):
    """The expectation, world by world."""
    out = np.zeros((len(P[0]), len(scopes)))
    for n in range(len(P[0])):
        for world in product(*(range(size) for size in SIZES)):
            proba = 1.0
            for p, value in zip(P, world, strict=True):
                proba *= p[n, value]
            for i, (scope, table) in enumerate(zip(scopes, tables, strict=True)):
                out[n, i] += proba * table[tuple(world[j] for j in scope)]
    return out


def test_sums_over_all_worlds():
    P, scopes, tables = _problem(0)
    found = expected_tables(P, scopes, tables)
    np.testing.assert_allclose(
        found, _summed_over_worlds(P, scopes, tables), rtol=1e-13, atol=1e-15
    )


def test_in_small_pieces(monkeypatch):
    P, scopes, tables = _problem(1)
    whole = expected_tables(P, scopes, tables)
    monkeypatch.setattr(_knowledge_base, "_MAX_ENTRIES", 10)
    np.testing.assert_allclose(expected_tables(P, scopes, tables), whole, rtol=1e-14)


def test_what_always_holds_has_the_expectation_1():
    P, scopes, tables = _problem(3, n_samples=1000)
    found = expected_tables(P, scopes, [np.ones_like(table) for table in tables])
    assert found.max() == 1.0
    np.testing.assert_allclose(found, 1.0, rtol=1e-14)


@pytest.mark.parametrize("n_samples", [1, 63, 64, 65, 200])
def test_samples_do_not_depend_on_each_other(n_samples):
    P, scopes, tables = _problem(4, n_samples)
    whole = expected_tables(P, scopes, tables)
    order = np.random.default_rng(0).permutation(n_samples)
    mixed = expected_tables([p[order] for p in P], scopes, tables)
    assert (mixed == whole[order]).all()
    for row in range(0, n_samples, 7):
        alone = expected_tables([p[row : row + 1] for p in P], scopes, tables)
        assert (alone == whole[row]).all()


def test_no_samples_and_no_constraints():
    P, scopes, tables = _problem(5)
    assert expected_tables([p[:0] for p in P], scopes, tables).shape == (0, 7)
    assert expected_tables(P, [], []).shape == (5, 0)


CONCEPTS = {"a": [0, 1], "b": ["x", "y", "z"]}


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_probabilities_become_float64(kind):
    P = np.array([[1 / 3, 2 / 3]], dtype=kind), [[0.5, 0, 0.5]]
    found = check_probabilities(P, CONCEPTS)
    assert [p.dtype for p in found] == [np.float64, np.float64]
    assert found[0].tolist() == P[0].astype(float).tolist()
    tensors = [torch.as_tensor(p) for p in found]
    for p, again in zip(found, check_probabilities(tensors, CONCEPTS), strict=True):
        assert (p == again).all()


@pytest.mark.parametrize(
    ("P", "message"),
    [
        ([[[1, 0]]], "Expected probabilities of 2 concepts, got 1."),
        (
            [[[1, 0]], [[1, 0]]],
            "Expected probabilities of shape (1, 3) of the concept 'b', got (1, 2).",
        ),
        (
            [[[1, 0]], [[1, 0, 0], [1, 0, 0]]],
            "Expected probabilities of shape (1, 3) of the concept 'b', got (2, 3).",
        ),
        (
            [[1, 0], [1, 0, 0]],
            "Expected probabilities of shape (2, 2) of the concept 'a', got (2,).",
        ),
        (
            [[[1, 0]], [[1.5, -0.5, 0]]],
            "Probabilities of the concept 'b' are negative, or NaN, or do not sum to 1 "
            "in each row.",
        ),
        ([[[0.5, 0.4]], [[1, 0, 0]]], "Probabilities of the concept 'a' are negative"),
        ([[[np.nan, 1]], [[1, 0, 0]]], "Probabilities of the concept 'a' are negative"),
        ([[[2, -1]], [[1, 0, 0]]], "Probabilities of the concept 'a' are negative"),
    ],
)
def test_what_is_no_probability(P, message):
    with pytest.raises(ValueError) as caught:
        check_probabilities(P, CONCEPTS)
    assert message in str(caught.value)

import itertools
import math
import pickle
import time
import tracemalloc

import numpy as np
import pytest

from skood.logic.inference import _partition
from skood.logic.inference import _truth_vectors as _grouping
from skood.logic.inference._partition import EliminationPlan, Partition
from skood.logic.inference._truth_vectors import (
    distinct_columns,
    pack_bits,
    unpack_bits,
)
from tests._loops import looped

METHODS = ["enumeration", "grouping", "components", "elimination", "auto"]
MOMENTS = ["log_partition", "expected_truth", "covariance", "max_penalty"]

IMPLIES = np.array([[True, True], [False, True]])
OR = np.array([[False, True], [True, True]])
XOR = np.array([[False, True], [True, False]])


def slow(*values):
    """A case of the nightly run."""
    return pytest.param(*values, marks=pytest.mark.slow)


def random_factors(rng, n_concepts, n_constraints, max_size=4):
    """Random truth tables over up to three concepts."""
    sizes = rng.integers(1, max_size + 1, n_concepts).tolist()
    factors = []
    for _ in range(n_constraints):
        k = rng.integers(1, min(3, n_concepts) + 1)
        scope = tuple(sorted(rng.choice(n_concepts, k, replace=False).tolist()))
        share = rng.choice([0.2, 0.5, 0.9])
        factors.append((scope, rng.random([sizes[c] for c in scope]) < share))
    return sizes, factors


def random_pairs(rng, n_concepts, n_constraints):
    """Random rules over pairs of two-valued concepts."""
    pairs = [
        tuple(sorted(rng.choice(n_concepts, 2, replace=False).tolist()))
        for _ in range(n_constraints)
    ]
    return [(pair, rng.random((2, 2)) < 0.6) for pair in pairs]


def naive(sizes, factors, weights):
    """All four moments by a loop over all worlds."""
    energies, truths = [], []
    for world in itertools.product(*(range(size) for size in sizes)):
        truth = [
            float(table[tuple(world[c] for c in scope)]) for scope, table in factors
        ]
        truths.append(truth)
        energies.append(math.fsum(w * t for w, t in zip(weights, truth, strict=True)))
    top = max(energies)
    log_z = top + math.log(math.fsum(math.exp(e - top) for e in energies))
    proba = np.array([math.exp(e - log_z) for e in energies])
    truths = np.array(truths).reshape(len(proba), len(factors))
    mean = proba @ truths
    covariance = (truths - mean).T @ ((truths - mean) * proba[:, np.newaxis])
    return log_z, mean, covariance, -min(energies)


def moments(partition, weights):
    return [getattr(partition, name)(weights) for name in MOMENTS]


def assert_moments_equal(found, expected, atol=1e-10):
    for name, one, other in zip(MOMENTS, found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=name)


def stop_rule():
    """class=stop_sign -> color=red and shape=octagon, over 3 × 2 × 2 worlds."""
    table = np.ones((3, 2, 2), dtype=bool)
    table[0] = False
    table[0, 0, 0] = True
    return [3, 2, 2], [((0, 1, 2), table)]


@pytest.mark.parametrize("first", [0, slow(34), slow(67)])
@looped("seed", range(34))
def test_all_methods_agree_with_a_loop_over_worlds(first, seed):
    rng = np.random.default_rng(first + seed)
    sizes, factors = random_factors(rng, rng.integers(1, 8), rng.integers(0, 9))
    weights = 3 * rng.normal(size=len(factors))
    expected = naive(sizes, factors, weights)
    uniform = naive(sizes, factors, np.zeros(len(factors)))[1]
    for method in METHODS:
        partition = Partition(sizes, factors, method)
        assert_moments_equal(moments(partition, weights), expected)
        np.testing.assert_allclose(partition.uniform_truth(), uniform, atol=1e-12)


@pytest.mark.parametrize("method", ["grouping", "elimination"])
def test_derivatives_against_finite_differences(method):
    rng = np.random.default_rng(3)
    sizes, factors = random_factors(rng, 9, 12, max_size=3)
    partition = Partition(sizes, factors, method)
    weights, h = rng.normal(size=12), 1e-5
    gradient = partition.expected_truth(weights)
    hessian = partition.covariance(weights)
    for i, unit in enumerate(np.eye(12)):
        up, down = weights + h * unit, weights - h * unit
        slope = partition.log_partition(up) - partition.log_partition(down)
        assert gradient[i] == pytest.approx(slope / (2 * h), abs=1e-8)
        change = partition.expected_truth(up) - partition.expected_truth(down)
        np.testing.assert_allclose(hessian[i], change / (2 * h), rtol=0, atol=1e-8)


def test_chain_of_200_concepts_against_its_transfer_matrix():
    # Z of a chain is a product of 2 × 2 matrices
    factors = [((i, i + 1), XOR) for i in range(199)]
    weights = np.linspace(-1, 2, 199)
    vector, log_z = np.ones(2), 0.0
    for w in weights:
        vector = np.exp(w * XOR) @ vector
        log_z += math.log(vector.sum())
        vector /= vector.sum()
    partition = Partition([2] * 200, factors)
    assert partition.method_ == "elimination"
    assert partition.log_partition(weights) == pytest.approx(log_z, abs=1e-10)
    # xor of neighbors are independent of each other
    proba = 1 / (1 + np.exp(-weights))
    np.testing.assert_allclose(partition.expected_truth(weights), proba, atol=1e-12)
    np.testing.assert_allclose(
        partition.covariance(weights), np.diag(proba * (1 - proba)), atol=1e-12
    )
    assert partition.max_penalty(weights) == pytest.approx(-weights[weights < 0].sum())


def test_forty_concepts_with_forty_rules_are_exact_and_quick():
    rng = np.random.default_rng(0)
    factors, weights = random_pairs(rng, 40, 40), rng.normal(size=40)
    start = time.process_time()
    partition = Partition([2] * 40, factors)
    log_z = partition.log_partition(weights)
    assert time.process_time() - start < 1.0
    assert partition.method_ == "elimination"
    # condition on the concept of most rules: the rest is another network
    degree = np.bincount([c for scope, _ in factors for c in scope])
    hub, parts = int(degree.argmax()), []
    for value in range(2):
        reduced = [
            (tuple(c for c in scope if c != hub), table.take(value, scope.index(hub)))
            if hub in scope
            else (scope, table)
            for scope, table in factors
        ]
        other = Partition([1 if c == hub else 2 for c in range(40)], reduced)
        parts.append(other.log_partition(weights))
    assert log_z == pytest.approx(np.logaddexp(*parts), abs=1e-10)


def test_component_of_hundreds_of_constraints():
    rng = np.random.default_rng(0)
    tables = rng.random((150, 6, 5, 4)) < 0.5
    factors = [((0, 1, 2), table) for table in tables]
    weights = rng.normal(size=150)
    expected = naive([6, 5, 4], factors, weights)
    for method in METHODS:
        partition = Partition([6, 5, 4], factors, method)
        assert_moments_equal(moments(partition, weights), expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_large_weights_are_stable(method, scale):
    sizes = [2, 2, 3]
    factors = [((0, 1), IMPLIES), ((1, 2), np.array([[0, 1, 1], [1, 0, 0]], bool))]
    partition = Partition(sizes, factors, method)
    weights = np.array([scale, scale / 2])
    if scale > 0:  # both hold: (0,0) and (0,1)/(1,1) with the values of the third
        log_z, truth = 1.5 * scale + math.log(2 + 2), [1, 1]
    else:  # both broken: (1, 0, 0)
        log_z, truth = 0.0, [0, 0]
    assert partition.log_partition(weights) == pytest.approx(log_z, rel=1e-14)
    found = partition.expected_truth(weights)
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-200)
    covariance = partition.covariance(weights)
    np.testing.assert_allclose(covariance, np.zeros((2, 2)), rtol=0, atol=1e-200)
    assert partition.max_penalty(weights) == max(0, -1.5 * scale)


# structure


def test_untouched_concepts_only_count():
    sizes, factors = stop_rule()
    wide = Partition([*sizes, 7, 1, 1000], factors)
    narrow = Partition(sizes, factors)
    assert wide.log_partition([1.5]) == pytest.approx(
        narrow.log_partition([1.5]) + math.log(7000), abs=1e-12
    )
    np.testing.assert_array_equal(
        wide.expected_truth([1.5]), narrow.expected_truth([1.5])
    )


def test_constant_constraints_shift_and_tell_nothing():
    always = np.ones((2, 2), dtype=bool)
    factors = [((0, 1), always), ((0, 1), IMPLIES), ((1, 2), ~always)]
    partition = Partition([2, 2, 2], factors)
    np.testing.assert_array_equal(partition.constant_, [True, False, True])
    alone = Partition([2, 2, 2], factors[1:2])
    weights = [0.7, -1.1, 5.0]
    assert partition.log_partition(weights) == pytest.approx(
        alone.log_partition([-1.1]) + 0.7, abs=1e-14
    )
    np.testing.assert_array_equal(partition.expected_truth(weights)[[0, 2]], [1, 0])
    assert partition.max_penalty(weights) == pytest.approx(1.1 - 0.7, abs=1e-14)
    np.testing.assert_array_equal(partition.uniform_truth(), [1, 0.75, 0])
    (component,) = partition.components_
    assert component["constraints"] == [1]


def test_concepts_that_do_not_matter_tie_nothing():
    # a rule that names a concept, but whose truth does not depend on it
    table = np.stack([IMPLIES, IMPLIES, IMPLIES], axis=1)
    other = np.array([[True, False], [False, True], [False, False]])
    partition = Partition([2, 3, 2, 2], [((0, 1, 2), table), ((1, 3), other)])
    assert [c["concepts"] for c in partition.components_] == [[0, 2], [1, 3]]
    both = Partition([2, 3, 2], [((0, 1, 2), table)])
    assert both.components_[0]["concepts"] == [0, 2]
    assert both.log_partition([2.0]) == pytest.approx(
        Partition([2, 2], [((0, 1), IMPLIES)]).log_partition([2.0]) + math.log(3)
    )


def test_components_are_independent():
    factors = [((0, 2), IMPLIES), ((1, 3), OR), ((2, 4), XOR), ((3,), XOR[0])]
    partition = Partition([2] * 6, factors)
    assert [c["concepts"] for c in partition.components_] == [[0, 2, 4], [1, 3]]
    assert [c["constraints"] for c in partition.components_] == [[0, 2], [1, 3]]
    assert [c["n_worlds"] for c in partition.components_] == [8, 4]
    covariance = partition.covariance([1.0, -1.0, 0.5, 2.0])
    np.testing.assert_array_equal(covariance[np.ix_([0, 2], [1, 3])], 0.0)
    whole = Partition([2] * 6, factors, "grouping")
    assert [c["concepts"] for c in whole.components_] == [[0, 1, 2, 3, 4]]
    every = Partition([2] * 6, factors, "enumeration")
    assert every.components_[0]["n_worlds"] == every.components_[0]["n_groups"] == 64
    assert every.method_ == every.components_[0]["method"] == "enumeration"


def test_auto_takes_the_quickest_exact_way():
    chain = [((i, i + 1), XOR) for i in range(24)]
    assert Partition([2] * 25, chain).method_ == "elimination"
    assert Partition([2] * 11, chain[:10]).method_ == "grouping"
    # more groups are possible than are quick, but elimination is not cheaper
    rng = np.random.default_rng(0)
    wide = [(tuple(range(17)), rng.random([2] * 17) < 0.5) for _ in range(20)]
    assert Partition([2] * 17, wide).method_ == "grouping"
    # few rules over many worlds have few groups
    few = [((0, 1), rng.random((500, 500)) < 0.5), ((1, 2), np.eye(500) > 0)]
    assert Partition([500] * 3, few, max_table=100).method_ == "pseudo-likelihood"
    assert Partition([500, 500, 2], few[:1], max_table=100).method_ == "grouping"


def test_the_least_exact_component_names_the_method():
    clique = [(pair, XOR) for pair in itertools.combinations(range(6), 2)]
    mixed = [*clique, ((6, 7), IMPLIES)]
    limits = {"max_worlds": 32, "max_table": 32}
    partition = Partition([2] * 8, mixed, **limits)
    assert partition.method_ == "pseudo-likelihood"
    assert [c["method"] for c in partition.components_] == [
        "pseudo-likelihood",
        "grouping",
    ]
    assert partition.components_[0]["n_groups"] is None
    np.testing.assert_array_equal(partition.uniform_truth(), [0.5] * 15 + [0.75])
    wider = Partition([2] * 8, mixed, max_worlds=32)
    assert wider.method_ == "elimination"
    assert_moments_equal(
        moments(wider, np.ones(16)), naive([2] * 8, mixed, np.ones(16))
    )


@pytest.mark.parametrize("name", MOMENTS)
def test_what_is_too_large_says_what_is_left(name):
    clique = [(pair, XOR) for pair in itertools.combinations(range(6), 2)]
    partition = Partition([2] * 6, clique, max_worlds=32, max_table=32)
    message = (
        r"15 constraints tie 6 concepts together, with 64 worlds \(max_worlds=32\), "
        r"and variable elimination needs 64 entries \(max_table=32\)\. So log Z .* not "
        r"there\. The truth and the penalty of given samples still work, and weights "
        r"can be given, or fitted by pseudo-likelihood\."
    )
    with pytest.raises(ValueError, match=message):
        getattr(partition, name)(np.zeros(15))


def test_a_constraint_without_a_table():
    partition = Partition([2] * 30, [(tuple(range(30)), None), ((0, 1), XOR)])
    assert partition.method_ == "pseudo-likelihood"
    assert not partition.constant_.any()
    with pytest.raises(ValueError, match="a single one has too many for a truth table"):
        partition.log_partition([1.0, 1.0])
    with pytest.raises(ValueError, match="Constraint 0 has too many worlds"):
        partition.uniform_truth()


@pytest.mark.parametrize(
    ("method", "limits", "why"),
    [
        ("enumeration", {"max_worlds": 8}, r"with 32 worlds \(max_worlds=8\)\."),
        ("grouping", {"max_worlds": 8}, r"with 16 worlds \(max_worlds=8\)\."),
        ("components", {"max_worlds": 8}, r"with 16 worlds \(max_worlds=8\)\."),
        ("elimination", {"max_table": 3}, r"needs 4 entries \(max_table=3\)\."),
    ],
)
def test_methods_that_are_asked_for_and_not_feasible(method, limits, why):
    chain = [((i, i + 1), XOR) for i in range(3)]
    with pytest.raises(ValueError, match=f"{why} method='{method}' cannot do this"):
        Partition([2] * 5, chain, method, **limits)


def test_messages_together_are_bounded():
    # all tables have 4 entries, the messages of the chain together 2 · 9 + 1
    chain = [((i, i + 1), XOR) for i in range(9)]
    assert EliminationPlan([2] * 10, [s for s, _ in chain], 19).feasible
    plan = EliminationPlan([2] * 10, [s for s, _ in chain], 18)
    assert not plan.feasible
    assert plan.largest == 19


def test_elimination_order_is_that_of_least_fill():
    # the leaves of a star first; a ring of n needs tables of three
    star = EliminationPlan([2] * 21, [(0, i) for i in range(1, 21)], 2**26)
    assert star.largest == 4
    assert star.entries == 20 * 4 + 2
    ring = [(i, i + 1) for i in range(19)] + [(0, 19)]
    assert EliminationPlan([2] * 20, ring, 2**26).largest == 8
    # ties: the smaller table first
    plan = EliminationPlan([5, 3, 2], [(0, 1), (1, 2)], 2**26)
    assert [step.shape for step in plan.steps] == [(3, 2), (5, 3), (3,)]


def test_negation_changes_nothing():
    # not phi with -w, for every other constraint: the same to the last digit
    rng = np.random.default_rng(5)
    sizes, factors = random_factors(rng, 6, 9)
    weights = rng.normal(size=9)
    flip = np.arange(9) % 2 == 0
    negated = [
        (scope, ~table if turned else table)
        for (scope, table), turned in zip(factors, flip, strict=True)
    ]
    sign = np.where(flip, -1.0, 1.0)
    for method in METHODS:
        one = Partition(sizes, factors, method)
        other = Partition(sizes, negated, method)
        shift, truth = weights[flip].sum(), one.expected_truth(weights)
        assert other.log_partition(sign * weights) == pytest.approx(
            one.log_partition(weights) - shift, abs=1e-12
        )
        assert other.max_penalty(sign * weights) == pytest.approx(
            one.max_penalty(weights) + shift, abs=1e-12
        )
        np.testing.assert_allclose(
            other.expected_truth(sign * weights),
            np.where(flip, 1 - truth, truth),
            rtol=0,
            atol=2e-16,
        )
        np.testing.assert_array_equal(
            other.covariance(sign * weights),
            one.covariance(weights) * np.outer(sign, sign),
        )


def test_order_of_concepts_and_constraints_does_not_matter():
    rng = np.random.default_rng(2)
    sizes, factors = random_factors(rng, 6, 8)
    weights = rng.normal(size=8)
    new = rng.permutation(6)  # concept c becomes new[c]
    renamed = []
    for scope, table in factors:
        target = [int(new[c]) for c in scope]
        axes = np.argsort(target)
        renamed.append((tuple(sorted(target)), table.transpose(axes)))
    moved = [sizes[c] for c in np.argsort(new)]
    order = rng.permutation(8)
    for method in METHODS:
        one = Partition(sizes, factors, method)
        other = Partition(moved, [renamed[i] for i in order], method)
        assert other.log_partition(weights[order]) == pytest.approx(
            one.log_partition(weights), abs=1e-12
        )
        np.testing.assert_allclose(
            other.expected_truth(weights[order]),
            one.expected_truth(weights)[order],
            atol=1e-12,
        )


# memory and chunks


@pytest.mark.parametrize("n_constraints", [12, 70])
def test_blocks_and_chunks_do_not_change_numbers(monkeypatch, n_constraints):
    rng = np.random.default_rng(7)
    sizes, factors = random_factors(rng, 5, n_constraints, max_size=3)
    weights = rng.normal(size=n_constraints)
    expected = {m: moments(Partition(sizes, factors, m), weights) for m in METHODS}
    groups = Partition(sizes, factors, "grouping").components_[0]["n_groups"]
    monkeypatch.setattr(_grouping, "_BLOCK_WORLDS", (4, 4))
    monkeypatch.setattr(_grouping, "_PENDING", 10)
    monkeypatch.setattr(_grouping, "_UNPACKED", 100)
    monkeypatch.setattr(_partition, "_BATCH_ENTRIES", 1)
    for method in METHODS:
        partition = Partition(sizes, factors, method)
        assert_moments_equal(moments(partition, weights), expected[method], 1e-12)
        # and from what is cached
        assert_moments_equal(moments(partition, weights), expected[method], 1e-12)
    whole = Partition(sizes, factors, "grouping")
    assert whole.components_[0]["n_groups"] == groups


def test_grouping_of_many_worlds_is_bounded_in_memory():
    # 2**19 worlds by 60 constraints: truth values alone would be 30 MiB as bool
    factors = []
    for c in range(60):
        table = np.ones((64, 64, 128), dtype=bool)
        table[c] = False
        table[c, c % 7, c % 11] = True
        factors.append(((0, 1, 2), table))
    partition = Partition([64, 64, 128], factors, "grouping")
    tracemalloc.start()
    (component,) = partition.components_
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert component["n_worlds"] == 2**19
    assert component["n_groups"] == 61
    assert peak < 12 * 2**20
    # one class breaks a rule in all but one of its 2**13 worlds
    log_z = math.log(
        math.exp(3 * 60) * (4 * 2**13 + 60) + 60 * (2**13 - 1) * math.exp(3 * 59)
    )
    assert partition.log_partition(np.full(60, 3.0)) == pytest.approx(log_z, abs=1e-10)


def test_grouping_into_many_groups_is_bounded_in_memory():
    rng = np.random.default_rng(1)
    factors = [((i, i + 1), OR) for i in range(18)] + random_pairs(rng, 19, 39)
    partition = Partition([2] * 19, factors, "grouping")
    tracemalloc.start()
    (component,) = partition.components_
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert component["n_groups"] > 2**17
    # 16 bytes are kept of each group
    assert peak < 80 * component["n_groups"]
    weights = rng.normal(size=57)
    assert partition.log_partition(weights) == pytest.approx(
        Partition([2] * 19, factors, "elimination").log_partition(weights), abs=1e-9
    )


def test_packed_bits_come_back_and_are_counted():
    rng = np.random.default_rng(0)
    for m in (1, 8, 63, 64, 65, 130):
        truth = rng.random((40, m)) < 0.5
        truth[20:] = truth[:20]
        words = pack_bits(truth)
        assert words.shape == (-(-m // 64), 40)
        np.testing.assert_array_equal(unpack_bits(words, m), truth)
        actual, counts = distinct_columns(words)
        rows, expected = np.unique(truth, axis=0, return_counts=True)
        assert len(counts) == len(rows)
        assert sorted(counts) == sorted(expected)
        again, sums = distinct_columns(words, np.full(40, 0.25))
        np.testing.assert_array_equal(again, actual)
        np.testing.assert_array_equal(sums, counts / 4)


def test_pickled_partition_computes_the_same():
    partition = Partition(*stop_rule())
    before = partition.log_partition([1.0])
    again = pickle.loads(pickle.dumps(partition))
    assert again.log_partition([1.0]) == before
    chain = Partition([2] * 30, [((i, i + 1), XOR) for i in range(29)])
    again = pickle.loads(pickle.dumps(chain))
    assert again.log_partition(np.ones(29)) == chain.log_partition(np.ones(29))


# errors


def test_more_worlds_than_floats_can_count():
    partition = Partition((2,) * 1100, [(tuple(range(1100)), None)])
    assert partition.method_ == "pseudo-likelihood"
    with pytest.raises(ValueError, match=r"with 10\^331\.1 worlds"):
        partition.log_partition([1.0])

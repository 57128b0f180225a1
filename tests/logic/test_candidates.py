"""Candidates: their numbers, and that each says something of its own."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import product

import numpy as np
import pytest

from skood.logic import parse_constraint
from skood.logic._knowledge_base import KnowledgeBase
from skood.logic.search._candidates import constraint_candidates, truth_key

FIVE = ("->", "and", "or", "xor", "<->")
MIXED = {"class": ["a", "b", "c"], "round": "bool", "color": ["red", "blue"]}


def _bools(n):
    return {f"p{i}": "bool" for i in range(n)}


def _truths(candidates, domains):
    """Truth of each candidate in all worlds, by the compiler."""
    kb = KnowledgeBase(candidates, domains)
    worlds = np.array(list(product(*(range(size) for size in kb.sizes))))
    return kb.truth(worlds).T


def _first_by_truth(candidates, domains, distinct):
    """The first of each truth vector, or of each and its negation, by all worlds."""
    vectors = {}
    for formula, truth in zip(candidates, _truths(candidates, domains), strict=True):
        flip = distinct is True and truth[0]
        if 0 < truth.sum() < truth.size:
            vectors.setdefault((truth ^ flip).tobytes(), formula)
    return list(vectors.values())


@pytest.mark.parametrize(
    "n, total, tautologies, signed, distinct",
    [
        (13, 702, 26, 338, 325),
        pytest.param(14, 812, 28, 392, 378, marks=pytest.mark.slow),
    ],
)
def test_numbers_up_to_depth_2(n, total, tautologies, signed, distinct):
    domains = _bools(n)
    listed = constraint_candidates(domains, distinct=False)
    assert len(listed) == total
    tables = KnowledgeBase(listed, domains).tables
    assert sum(table.all() for table in tables) == tautologies
    assert not any((~table).all() for table in tables)
    assert len(constraint_candidates(domains, distinct="signed")) == signed
    assert len(constraint_candidates(domains)) == distinct


def test_single_concept_by_hand():
    texts = [str(f) for f in constraint_candidates({"a": "bool"}, distinct=False)]
    assert texts == [
        "a",
        "not a",
        "a -> a",
        "a -> not a",
        "not a -> a",
        "not a -> not a",
    ]
    assert [str(f) for f in constraint_candidates({"a": "bool"})] == ["a"]
    both = constraint_candidates({"a": "bool"}, distinct="signed")
    assert [str(f) for f in both] == ["a", "not a"]


@pytest.mark.parametrize(
    "values, texts",
    [
        ("bool", ["x", "not x"]),
        ([0, 1], ["x", "not x"]),
        ([1, 0], ["x = 1", "x = 0"]),
        (["red", "dark blue"], ["x = red", "x = 'dark blue'"]),
        (
            ["a", "b", "c"],
            ["x = a", "x != a", "x = b", "x != b", "x = c", "x != c"],
        ),
        (["only"], []),
    ],
)
def test_literals(values, texts):
    literals = constraint_candidates({"x": values}, 1, distinct=False)
    assert [str(literal) for literal in literals] == texts


@pytest.mark.parametrize("domains", [_bools(3), MIXED])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_distinct_ones_are_the_truth_vectors(domains, depth):
    """As many as there are truth vectors over all worlds, each by the first formula."""
    listed = constraint_candidates(domains, depth, distinct=False)
    for distinct in ("signed", True):
        actual = constraint_candidates(domains, depth, distinct=distinct)
        assert actual == _first_by_truth(listed, domains, distinct)


def test_numbers_at_depth_3():
    """Conditions of different concepts: 3 pairs of them with 4 pairs of literals."""
    deep = constraint_candidates(_bools(3), 3, distinct=False)
    assert len(deep) == 6 + 36 + 3 * 4 * 6
    assert str(deep[-1]) == "not p1 and not p2 -> not p2"
    # clauses of one, of two and of three literals; the first up to negation
    assert len(constraint_candidates(_bools(3), 3)) == 3 + 3 * 4 + 8
    # more literals than concepts add nothing
    assert len(constraint_candidates(_bools(3), 99)) == len(
        constraint_candidates(_bools(3), 4)
    )


# -- trees


@pytest.mark.parametrize(
    "n, levels, connectives, total, signed, distinct",
    [
        (13, 2, ("->",), 702, 338, 325),
        (13, 2, FIVE, 3406, 806, 403),
        (3, 3, ("->",), 1770, 50, 47),
        pytest.param(3, 3, FIVE, 172_986, 230, 115, marks=pytest.mark.slow),
    ],
)
def test_numbers_of_trees(n, levels, connectives, total, signed, distinct):
    options = {"form": "tree", "connectives": connectives}
    for excluded, expected in ((False, total), ("signed", signed), (True, distinct)):
        actual = constraint_candidates(_bools(n), levels, distinct=excluded, **options)
        assert len(actual) == expected


@pytest.mark.parametrize("distinct", [True, "signed", False])
@pytest.mark.parametrize("domains", [_bools(4), MIXED])
def test_trees_of_two_levels_are_the_rules_of_two_literals(domains, distinct):
    trees = constraint_candidates(domains, form="tree", distinct=distinct)
    assert trees == constraint_candidates(domains, distinct=distinct)


class _Truth:
    """A truth value for which Python evaluates the operators of formulas."""

    def __init__(self, value):
        self.value = bool(value)

    def eq(self, value):
        return _Truth(self.value == value)

    def __invert__(self):
        return _Truth(not self.value)

    def __and__(self, other):
        return _Truth(self.value and other.value)

    def __or__(self, other):
        return _Truth(self.value or other.value)

    def __xor__(self, other):
        return _Truth(self.value != other.value)

    def __rshift__(self, other):
        return _Truth(self.value <= other.value)

    def iff(self, other):
        return _Truth(self.value == other.value)


def test_truth_of_trees_is_the_evaluation_by_python():
    """Of the expression in Python, and of the string after parsing."""
    domains = _bools(2)
    trees = constraint_candidates(
        domains, 3, form="tree", connectives=FIVE, distinct=False
    )
    trees = trees[:: len(trees) // 200]
    worlds = list(product((False, True), repeat=2))
    for tree, truth in zip(trees, _truths(trees, domains), strict=True):
        assert parse_constraint(str(tree), domains) == tree
        for world, holds in zip(worlds, truth, strict=True):
            value = dict(zip(domains, world, strict=True))
            code = compile(repr(tree), "tree", "eval")
            names = {"C": lambda name, value=value: _Truth(value[name])}
            assert eval(code, names).value == holds


@pytest.mark.parametrize("distinct", [True, "signed"])
@pytest.mark.parametrize(
    "domains, levels, connectives",
    [(_bools(2), 3, ("->",)), (MIXED, 2, FIVE), ({"a": "bool"}, 3, ("or", "xor"))],
)
def test_distinct_trees_are_the_first_ones(domains, levels, connectives, distinct):
    """Of all trees in the order of their operands, by their truth in all worlds."""
    options = {"form": "tree", "connectives": connectives}
    listed = constraint_candidates(domains, levels, distinct=False, **options)
    actual = constraint_candidates(domains, levels, distinct=distinct, **options)
    assert actual == _first_by_truth(listed, domains, distinct)


# -- random candidates


@pytest.mark.parametrize(
    "domains, options",
    [
        (_bools(3), {"depth": 3}),
        (MIXED, {"depth": 4}),
        (MIXED, {"form": "tree", "connectives": ("and", "<->")}),
        (_bools(1), {"depth": 3, "form": "tree", "connectives": ("or",)}),
    ],
)
def test_drawn_candidates_are_listed_ones(domains, options):
    """Nearly all are drawn, so that each place of the list is computed."""
    listed = constraint_candidates(domains, distinct=False, **options)
    drawn = constraint_candidates(
        domains,
        distinct=False,
        max_candidates=len(listed) - 1,
        random_state=0,
        **options,
    )
    (missing,) = [k for k in range(len(listed)) if listed[:k] == drawn[:k]][-1:]
    assert drawn == listed[:missing] + listed[missing + 1 :]
    more = {**options, "max_candidates": len(listed) + 1}
    assert constraint_candidates(domains, distinct=False, **more) == listed


def test_draws_are_uniform_and_reproducible():
    counts = dict.fromkeys(
        map(str, constraint_candidates(_bools(2), distinct=False)), 0
    )
    for seed in range(200):
        options = {"distinct": False, "max_candidates": 5, "random_state": seed}
        drawn = constraint_candidates(_bools(2), **options)
        assert len(drawn) == len(set(map(str, drawn))) == 5
        assert drawn == constraint_candidates(_bools(2), **options)
        for formula in drawn:
            counts[str(formula)] += 1
    # binomial with p = 5 / 20: four standard deviations are 25
    assert all(abs(count - 50) < 25 for count in counts.values())


def test_draws_from_astronomically_many_trees():
    trees = constraint_candidates(
        _bools(13),
        10,
        form="tree",
        connectives=FIVE,
        max_candidates=3,
        random_state=0,
    )
    assert len(trees) == 3
    # nearly all trees have all levels
    assert min(str(tree).count("p") for tree in trees) > 400


def test_distinct_applies_to_drawn_candidates():
    options = {"max_candidates": 19, "random_state": 0}
    drawn = constraint_candidates(_bools(2), distinct=False, **options)
    distinct = constraint_candidates(_bools(2), **options)
    assert len(drawn) == 19
    assert len(distinct) == 6  # as many as there are without negations
    assert [formula for formula in drawn if formula in distinct] == distinct


def test_formulas_read_back():
    candidates = constraint_candidates(MIXED, 3)
    texts = [str(formula) for formula in candidates]
    np.testing.assert_array_equal(_truths(texts, MIXED), _truths(candidates, MIXED))


def test_no_concepts_no_candidates():
    assert constraint_candidates({}) == []
    assert constraint_candidates({"x": ["only"], "y": [1]}, 3) == []


def test_errors():
    with pytest.raises(
        ValueError,
        match=r"depth=4 lists \d+ candidates over 40 concepts, and at most 1000000 can "
        r"be\. Take a smaller depth, the domains of fewer concepts, or draw some of "
        r"them by max_candidates\.",
    ):
        constraint_candidates(_bools(40), 4)
    with pytest.raises(ValueError, match=r"depth=9 lists about 10\^208 candidates"):
        constraint_candidates(_bools(3), 9, form="tree")
    with pytest.raises(ValueError, match=r"at most 10 levels, got depth=11\."):
        constraint_candidates(_bools(3), 11, form="tree", max_candidates=5)
    for wrong in ([], ["nor"], ["and", "and"]):
        with pytest.raises(
            ValueError,
            match=r"connectives must be some of \['->', 'and', 'or', 'xor', '<->'\], "
            r"each once, got \[",
        ):
            constraint_candidates(_bools(3), form="tree", connectives=wrong)
    with pytest.raises(
        ValueError,
        match=r"Rules have the connective '->' only, got connectives=\['and'\]\. "
        r"Pass form='tree'",
    ):
        constraint_candidates(_bools(3), connectives=["and"])
    with pytest.raises(ValueError, match="The 'depth' parameter"):
        constraint_candidates(_bools(2), 0)
    with pytest.raises(ValueError, match="The 'distinct' parameter"):
        constraint_candidates(_bools(2), distinct="no")
    with pytest.raises(TypeError, match="domains must be a dict"):
        constraint_candidates(["a"])


def test_key_of_a_table():
    implies = np.array([[True, True], [False, True]])
    key = truth_key((1, 4), implies)
    assert key == truth_key((1, 4), ~implies)
    assert truth_key((1, 4), implies, signed=True) != truth_key(
        (1, 4), ~implies, signed=True
    )
    assert key != truth_key((1, 5), implies)
    assert key != truth_key((1, 4), implies.T)
    # a concept that does not matter
    assert key == truth_key((1, 2, 4), np.repeat(implies[:, None], 3, axis=1))
    assert truth_key((0,), np.array([False, True])) == truth_key(
        (0, 1), np.array([[False, False], [True, True]])
    )
    for constant in (np.ones((2, 3), dtype=bool), np.zeros((2, 3), dtype=bool)):
        assert truth_key((0, 1), constant) is None

"""Candidates: their numbers, and that each says something of its own."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import product

import numpy as np
import pytest

from skood.logic._knowledge_base import KnowledgeBase
from skood.logic.search._candidates import constraint_candidates, truth_key

MIXED = {"class": ["a", "b", "c"], "round": "bool", "color": ["red", "blue"]}


def _bools(n):
    return {f"p{i}": "bool" for i in range(n)}


def _truths(candidates, domains):
    """Truth of each candidate in all worlds, by the compiler."""
    kb = KnowledgeBase(candidates, domains)
    worlds = np.array(list(product(*(range(size) for size in kb.sizes))))
    return kb.truth(worlds).T


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


def test_one_concept_by_hand():
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
        vectors = {}
        for formula, truth in zip(listed, _truths(listed, domains), strict=True):
            flip = distinct is True and truth[0]
            if 0 < truth.sum() < truth.size:
                vectors.setdefault((truth ^ flip).tobytes(), formula)
        assert constraint_candidates(domains, depth, distinct) == list(vectors.values())


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
        r"be\. Take a smaller depth, or the domains of fewer concepts\.",
    ):
        constraint_candidates(_bools(40), 4)
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

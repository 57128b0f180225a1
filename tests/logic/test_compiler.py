"""Tests of compiled formulas."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from skood.logic import C
from skood.logic.language._compiler import (
    bind,
    comparisons,
    compile_formula,
    evaluate,
    truth_table,
)
from tests.logic._formulas import DOMAINS, formulas, holds, worlds

SMALL = {"a": [False, True], "b": [False, True], "n": [1, 2, 3], "m": [1, 2, 3]}
a, b, n, m = C("a"), C("b"), C("n"), C("m")


@pytest.mark.parametrize(
    ("formula", "bound"),
    [
        (n.eq("2"), n.eq(2)),
        (n.eq(2.0), n.eq(2)),
        (n.eq(np.int8(2)), n.eq(2)),
        (a.eq(1), a.eq(True)),
        (a.eq("True"), a.eq(True)),
        (~n.ne("1") & a, ~n.ne(1) & a),
        (a >> n.eq("1"), a >> n.eq(1)),
        ((a ^ n.eq("1")).iff(b | n.eq("3")), (a ^ n.eq(1)).iff(b | n.eq(3))),
        (n.ne(m), n.ne(m)),
    ],
)
def test_bound_formulas_hold_the_values_of_domains(formula, bound):
    found = bind(formula, SMALL)
    assert found == bound
    assert str(found) == str(bound)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (C("x"), "Unknown concept 'x'. Known concepts: a, b, n, m."),
        (a & C("A"), "Unknown concept 'A'. Known concepts: a, b, n, m. Did you mean"),
        (C("x").eq(1), "Unknown concept 'x'"),
        (n.eq(C("x")), "Unknown concept 'x'"),
        (~n, "The concept 'n' has 3 values, and only one with two can stand alone."),
        (~n, "Compare it with one: n = 1, or in Python C('n').eq(1)."),
        (n.eq(4), "4 is no value of the concept 'n'. Its values: 1, 2, 3."),
        (a.eq("true"), "'true' is no value of the concept 'a'. Its values: False, Tr"),
        (
            a.eq(n),
            "The concepts 'a' and 'n' have different values, and cannot be compared.",
        ),
    ],
)
def test_what_does_not_fit_the_domains(formula, message):
    with pytest.raises(ValueError) as caught:
        bind(formula, SMALL)
    assert message in str(caught.value)


def test_a_concept_that_is_also_a_value():
    domains = {"x": ["y", "z"], "y": ["y", "z"]}
    with pytest.raises(ValueError, match="'y' is a concept, and a value of the"):
        bind(C("x").eq(C("y")), domains)
    assert bind(C("y").eq(C("x")), domains) == C("y").eq(C("x"))


@given(formula=formulas)
@settings(max_examples=30, derandomize=True, deadline=None, database=None)
def test_against_plain_python(formula):
    assert bind(formula, DOMAINS) == formula
    codes, some = worlds(np.random.default_rng(0), 30)
    expected = [holds(formula, world) for world in some]
    compiled = compile_formula(formula, DOMAINS)
    for columns in (codes.T, torch.as_tensor(codes).T):
        cache = {}
        for _ in range(2):  # what is kept does not change
            actual = evaluate(compiled, columns, cache)
            assert actual.dtype in (np.bool_, torch.bool)
            assert actual.tolist() == expected
        assert set(cache) == comparisons(compiled)


def test_comparisons_are_shared():
    compiled = compile_formula((n.eq(1) | ~n.ne(1)) >> (a ^ n.eq(m)), SMALL)
    assert comparisons(compiled) == {("value", 2, 0), ("value", 0, 1)}


@pytest.mark.parametrize(
    "formula", [a, ~b, n.eq(2), n.eq(m), a >> (n.eq(1) & m.ne(3)), n.eq(1) | n.ne(1)]
)
def test_truth_tables(formula):
    names = list(SMALL)
    scope = tuple(sorted(names.index(name) for name in formula.concepts()))
    sizes = tuple(len(values) for values in SMALL.values())
    table = truth_table(compile_formula(formula, SMALL), scope, sizes)
    assert table.dtype == bool
    assert table.flags.c_contiguous
    assert table.shape == tuple(sizes[j] for j in scope)
    values = list(SMALL.values())
    for index in product(*(range(size) for size in table.shape)):
        world = {names[j]: values[j][k] for j, k in zip(scope, index, strict=True)}
        assert table[index] == holds(formula, world, SMALL)


def test_comparison_alone_leaves_the_cache_alone():
    columns, cache = np.array([[0, 1, 1]]), {}
    found = evaluate(("not", ("value", 0, 1)), columns, cache)
    assert found.tolist() == [True, False, False]
    assert cache[("value", 0, 1)].tolist() == [False, True, True]

"""Tests of formulas that are built in Python."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import copy
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings

from skood.logic import C
from skood.logic.language._formulas import (
    MAX_DEPTH,
    And,
    Equals,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    Same,
    Xor,
    spell,
)
from tests.logic._formulas import formulas

a, b, c = C("a"), C("b"), C("c")


def test_operators_build_the_kinds():
    assert ~a == Not(a)
    assert a & b == And((a, b))
    assert a | b == Or((a, b))
    assert a ^ b == Xor((a, b))
    assert a >> b == Implies(a, b)
    assert a.iff(b) == Iff(a, b)
    assert a.eq(1) == Equals("a", 1)
    assert a.ne("x") == Equals("a", "x", False)
    assert a.eq(b) == Same("a", "b")
    assert a.ne(b) == Same("a", "b", False)
    assert a.isin([1, 2]) == Or((a.eq(1), a.eq(2)))
    assert a.isin(iter("x")) == a.eq("x")
    assert a.isin([1, b]) == Or((a.eq(1), a.eq(b)))


def test_the_formula_of_the_specification():
    rule = C("class").eq("stop_sign") >> (
        C("color").eq("red") & C("shape").eq("octagon")
    )
    assert str(rule) == "class = stop_sign -> color = red and shape = octagon"
    assert repr(rule) == (
        "(C('class').eq('stop_sign') >> "
        "(C('color').eq('red') & C('shape').eq('octagon')))"
    )
    assert rule.concepts() == ["class", "color", "shape"]


def test_chains_are_single_formulas():
    assert a & b & c == a & (b & c) == And((a, b, c))
    assert (a | b) | (c | a) == Or((a, b, c, a))
    assert a ^ (b ^ c) == Xor((a, b, c))
    assert (a & b) | c != a & (b | c)
    assert (a & b & c).depth == 2
    assert (a | (b & c)).depth == 3
    assert (~~a).depth == 3


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (a & (b | c), "a and (b or c)"),
        ((a & b) | c, "a and b or c"),
        (a ^ (b | c), "a xor (b or c)"),
        ((a ^ b) & c, "(a xor b) and c"),
        ((a & b) ^ c, "a and b xor c"),
        ((a ^ b) | c, "a xor b or c"),
        ((a >> b) >> c, "(a -> b) -> c"),
        (a >> (b >> c), "a -> (b -> c)"),
        ((a >> b).iff(c), "a -> b <-> c"),
        (a.iff(b).iff(c), "(a <-> b) <-> c"),
        (a.iff(b) >> c, "(a <-> b) -> c"),
        ((a >> b) | c, "(a -> b) or c"),
        (~(a & b), "not (a and b)"),
        (~a & b, "not a and b"),
        (~~a, "not not a"),
        (~a.eq(1), "not a = 1"),
        (a.ne(-1.5), "a != -1.5"),
        (a.eq(b), "a = b"),
        (a.ne(b), "a != b"),
    ],
)
def test_only_needed_parentheses_are_written(formula, text):
    assert str(formula) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stop_sign", "stop_sign"),
        ("a.b", "a.b"),
        ("größe", "größe"),
        (3, "3"),
        (-3, "-3"),
        (-0.5, "-0.5"),
        (True, "True"),
        (1e-07, "'1e-07'"),
        ("-x", "'-x'"),
        (".x", "'.x'"),
        ("x ", "'x '"),
        ("x\n", "'x\n'"),
        ("", "''"),
        ("And", "'And'"),
        ("NOT", "'NOT'"),
        ("android", "android"),
        ("it's", r"'it\'s'"),
        ("\\'", r"'\\\''"),
        ('"', "'\"'"),
    ],
)
def test_what_is_no_plain_word_is_quoted(name, text):
    assert spell(name) == text


@given(formula=formulas)
@settings(max_examples=50, derandomize=True, deadline=None, database=None)
def test_formulas_survive_repr_copies_and_pickle(formula):
    for again in (
        eval(repr(formula), {"C": C}),
        pickle.loads(pickle.dumps(formula)),
        copy.copy(formula),
        copy.deepcopy([formula])[0],
    ):
        assert again == formula
        assert hash(again) == hash(formula)
        assert str(again) == str(formula)
        assert again.depth == formula.depth
        assert again.concepts() == formula.concepts()


def test_repr_of_a_negation_that_is_equivalent():
    assert repr((~a).iff(b)) == "(~C('a')).iff(C('b'))"
    assert repr(~a.iff(b)) == "~C('a').iff(C('b'))"
    assert (~a).iff(b) != ~a.iff(b)


def test_formulas_are_keys_and_do_not_change():
    assert len({a & b, And((C("a"), C("b"))), b & a, a | b}) == 3
    assert a.eq(1) != a.ne(1)
    assert a.eq("b") != a.eq(b)
    for formula, name in [(a, "name"), (a.eq(1), "value"), (a & b, "operands")]:
        with pytest.raises(FrozenInstanceError):
            setattr(formula, name, "x")


def test_concepts_are_named_once_in_order():
    formula = (b.eq(1) | ~a) >> C("d").ne(b).iff(a ^ c)
    assert formula.concepts() == ["b", "a", "d", "c"]
    assert a.eq(a).concepts() == ["a"]
    assert Formula().concepts() == []


@pytest.mark.parametrize(
    "value", [np.str_("x"), np.int8(-1), np.float32(0.5), np.bool_(True)]
)
def test_values_of_numpy_become_plain(value):
    formula = a.eq(value)
    assert type(formula.value) is type(value.item())
    assert formula == a.eq(value.item())
    assert eval(repr(formula), {"C": C}) == formula
    assert type(C(np.str_("a")).name) is str


@pytest.mark.parametrize("name", [1, None, b"a", ["a"]])
def test_names_are_texts(name):
    with pytest.raises(TypeError, match="name of a concept must be a str, got"):
        C(name)


def test_names_are_not_empty():
    with pytest.raises(ValueError, match="name of a concept must not be empty"):
        C("")


@pytest.mark.parametrize(
    "value", [None, [1], np.arange(2), float("nan"), np.inf, 1j, b"x", object()]
)
def test_values_are_texts_and_finite_numbers(value):
    with pytest.raises(TypeError, match="A value of the concept 'a' must be a str, a"):
        a.eq(value)


def test_isin_needs_a_list_of_values():
    with pytest.raises(ValueError, match=r"C\('a'\).isin\(\) needs at least one value"):
        a.isin([])
    with pytest.raises(TypeError, match=r"takes a list of values, got the str 'red'"):
        a.isin("red")


def test_formulas_are_not_compared_with_formulas():
    with pytest.raises(TypeError, match=r"the formula 'b or c'. Use .iff\(\)"):
        a.eq(b | c)


def test_python_words_are_refused():
    for used in (
        lambda: a and b,
        lambda: not a,
        lambda: a.eq(1) or b,
        lambda: 1 if a >> b else 0,
    ):
        with pytest.raises(TypeError, match=r"Combine formulas with & \(and\), \|"):
            used()
    with pytest.raises(TypeError, match=r"The truth of the formula 'a -> b' depends"):
        bool(a >> b)


def test_formulas_combine_with_formulas_only():
    for combined in (
        lambda: a & True,
        lambda: a | "b",
        lambda: 1 ^ a,
        lambda: a >> None,
        lambda: [] >> a,
    ):
        with pytest.raises(TypeError, match="unsupported operand"):
            combined()
    for combined in (
        lambda: a.iff(True),
        lambda: Not("a"),
        lambda: And((a, "b")),
        lambda: Implies(a, 1),
        lambda: Iff("a", a),
    ):
        with pytest.raises(TypeError, match="can only be combined with a formula, got"):
            combined()


@pytest.mark.parametrize("kind", [And, Or, Xor])
def test_chains_have_two_parts(kind):
    for parts in ((), (a,)):
        with pytest.raises(ValueError, match=f"'{kind.word}' joins at least two form"):
            kind(parts)


@pytest.mark.parametrize(
    "deeper",
    [
        lambda f: ~f,
        lambda f: f >> a,
        lambda f: a.iff(f),
        lambda f: (f & a) | a,
    ],
)
def test_depth_is_bounded(deeper):
    formula = a
    with pytest.raises(ValueError, match=f"nested deeper than {MAX_DEPTH} levels"):
        for _ in range(MAX_DEPTH):
            formula = deeper(formula)
    assert formula.depth >= MAX_DEPTH - 1
    hash(formula), str(formula), repr(formula), pickle.dumps(formula)

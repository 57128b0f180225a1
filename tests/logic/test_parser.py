"""Tests of constraints as texts."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ast
import inspect
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skood.exceptions import ConstraintSyntaxError, SkoodError
from skood.logic import C, parse_constraint
from skood.logic.language import _parser
from skood.logic.language._compiler import compile_formula, evaluate
from skood.logic.language._formulas import And, Iff, Implies, Not, Or, Xor
from tests.logic._formulas import DOMAINS, formulas, holds, texts, worlds

CODES, WORLDS = worlds(np.random.default_rng(0), 8)
FOLDER = Path(_parser.__file__).parent
BOOL = {"a": "bool", "b": "bool", "c": "bool"}
SIGNS = {**BOOL, "color": ["red"], "class": ["1", "2", "3"]}


# More examples in the nightly part.
SCALE = 50 if "SKOOD_NIGHTLY" in os.environ else 1


def _fuzzed(n_examples):
    return settings(
        max_examples=n_examples * SCALE,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


a, b, c = C("a"), C("b"), C("c")


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("not a and b", ~a & b),
        ("a and b xor c", (a & b) ^ c),
        ("a xor b and c", a ^ (b & c)),
        ("a xor b or c", (a ^ b) | c),
        ("a or b xor c", a | (b ^ c)),
        ("a or b -> c", (a | b) >> c),
        ("a -> b or c", a >> (b | c)),
        ("a -> b <-> c", (a >> b).iff(c)),
        ("a <-> b -> c", a.iff(b >> c)),
        ("a -> b <-> b -> a", (a >> b).iff(b >> a)),
        ("a and b and c", And((a, b, c))),
        ("a or b or c and a or b", Or((a, b, c & a, b))),
        ("a xor b xor c", Xor((a, b, c))),
        ("(a -> b) -> c", Implies(Implies(a, b), c)),
        ("a -> (b -> c)", Implies(a, Implies(b, c))),
        ("(a <-> b) <-> c", Iff(Iff(a, b), c)),
        ("not not a", Not(Not(a))),
        ("not (not a)", Not(Not(a))),
        ("((a))", a),
        ("a AND Not b OR\n\tc XoR a", (a & ~b) | (c ^ a)),
        ("a=True", a.eq(True)),
        ("a!=False", a.ne(False)),
        ("a = b", a.eq(b)),
        ("a != 'b'", a.ne(b)),
        ("not a = b", ~a.eq(b)),
        ("a->b", a >> b),
        ("a<->b", a.iff(b)),
    ],
)
def test_what_is_read(text, formula):
    assert parse_constraint(text, BOOL) == formula


def test_names_values_and_quotes():
    def read(text):
        return parse_constraint(text, DOMAINS)

    assert read("class = 'and'") == C("class").eq("and")
    assert read("class = 'it\\'s'") == C("class").eq("it's")
    assert read('class = "it\'s"') == C("class").eq("it's")
    assert read("class = '\\\\'") == C("class").eq("\\")
    assert read("class != ''") == C("class").ne("")
    assert read("'or' or 'a b'") == C("or") | C("a b")
    assert read("n=-1 or n=1.5") == C("n").eq(-1) | C("n").eq(1.5)
    assert read("n = '1e-07'").value == 1e-07
    assert read("-7->κ.1") == C("-7") >> C("κ.1")
    assert read("-7 = '->'") == C("-7").eq("->")
    assert read("'round'='True'").value is True


def test_a_value_comes_before_a_concept():
    domains = {"x": ["y", "z"], "y": ["y", "z"]}
    assert parse_constraint("x = y", domains) == C("x").eq("y")
    assert parse_constraint("y = x", domains) == C("y").eq(C("x"))


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("a ->", 5, "expected a concept, 'not' or '(', got the end of the text"),
        ("(a", 1, "this '(' is not closed"),
        ("a b", 3, "expected an operator or the end, got 'b'"),
        (
            "zzz",
            1,
            "unknown concept 'zzz'. Known concepts: a, b, c, color, class.",
        ),
        ("color=pink", 7, "'pink' is no value of the concept 'color'. Its values: red"),
        (
            "class",
            1,
            "the concept 'class' has 3 values, and only one with two can stand alone. "
            "Its values: 1, 2, 3. Compare it with one: class = 1, or in Python "
            "C('class').eq('1').",
        ),
        ("a -> b -> c", 8, "a second '->' is ambiguous: put one of them in parenth"),
        ("a <-> b -> c <-> a", 14, "a second '<->' is ambiguous: put one of them"),
        ("a =", 4, "expected a value or a concept, got the end of the text"),
        ("not", 4, "expected a concept, 'not' or '(', got the end of the text"),
        ("", 1, "the constraint is empty"),
        (" \t", 3, "the constraint is empty"),
        ("a and or b", 7, "expected a concept, 'not' or '(', got 'or'"),
        ("a=1=1", 3, "'1' is no value of the concept 'a'. Its values: False, True."),
        ("class=1=1", 8, "a comparison has one '=' or '!=': to compare comparisons"),
        ("(class=1=1)", 9, "expected an operator or ')', got '='"),
        ("(a b)", 4, "expected an operator or ')', got 'b'"),
        (
            "__import__('os')",
            1,
            "unknown concept '__import__'. Known concepts: a, b, c, color, class.",
        ),
        ("a)", 2, "this ')' closes nothing"),
        ("a ')'", 3, "expected an operator or the end, got ')'"),
        ("a '='", 3, "expected an operator or the end, got '='"),
        ("()", 2, "expected a concept, 'not' or '(', got ')'"),
        ("a = (b)", 5, "expected a value or a concept, got '('"),
        ("a = not", 5, "expected a value or a concept, got 'not', or write it in quo"),
        ("a == b", 4, "expected a value or a concept, got '='"),
        ("a = 'b", 5, "this quote is not closed"),
        ('"a', 1, "this quote is not closed"),
        ("a & b", 3, "unexpected character '&': in a text write and, or, xor, not, ->"),
        ("a < b", 3, "unexpected character '<': in a text write and, or, xor, not, ->"),
        ("!a", 1, "unexpected character '!': in a text write and, or, xor, not, ->"),
        ("a; b", 2, "unexpected character ';': names and values with other characters"),
        ("a - b", 3, "unexpected character '-': names and values with other charact"),
        ("a-1", 2, "expected an operator or the end, got '-1'"),
        ("A", 1, "Did you mean 'a'?"),
        ("COLOR = red", 1, "Did you mean 'color'?"),
        ("color = Red", 9, "Did you mean 'red'?"),
        ("a = color", 5, "the concepts 'a' and 'color' have different values, and can"),
    ],
)
def test_errors_name_what_is_wrong_and_where(text, column, message):
    with pytest.raises(ConstraintSyntaxError) as caught:
        parse_constraint(text, SIGNS)
    error = caught.value
    assert isinstance(error, (SkoodError, ValueError))
    assert message in error.message
    assert (error.lineno, error.column) == (1, column)
    assert str(error).splitlines()[-1].index("^") == 4 + column - 1


def test_an_error_in_a_later_line():
    with pytest.raises(ConstraintSyntaxError) as caught:
        parse_constraint("a and\n\tb or\n  zzz and a", BOOL)
    assert str(caught.value) == (
        "unknown concept 'zzz'. Known concepts: a, b, c. (line 3)\n"
        "      zzz and a\n"
        "      ^"
    )


def test_few_of_many_names_are_listed():
    domains = {f"c{i}": "bool" for i in range(30)}
    with pytest.raises(ConstraintSyntaxError, match=r"c0, c1, .*, c19 and 10 more\."):
        parse_constraint("c30", domains)
    with pytest.raises(ConstraintSyntaxError, match=r"Known concepts: none\."):
        parse_constraint("c30", {})


def test_names_are_listed_as_they_are_written():
    with pytest.raises(ConstraintSyntaxError, match="Its values: 'dark red', 'not', 1"):
        parse_constraint("c = d", {"c": ["dark red", "not", 1]})


@pytest.mark.parametrize("text", [None, 1, b"a", ["a"], True])
def test_only_texts_are_read(text):
    with pytest.raises(TypeError, match="A constraint must be a str, got"):
        parse_constraint(text, BOOL)


def test_depth_is_bounded():
    assert parse_constraint("(" * 50 + "a" + ")" * 50, BOOL) == a
    with pytest.raises(ConstraintSyntaxError, match="nested deeper than 50") as caught:
        parse_constraint("(" * 51 + "a" + ")" * 51, BOOL)
    assert caught.value.column == 51
    assert parse_constraint("not " * 49 + "a", BOOL).depth == 50
    with pytest.raises(ConstraintSyntaxError, match="nested deeper than 50") as caught:
        parse_constraint("b or " + "not " * 50 + "a", BOOL)
    assert caught.value.column == 6
    # parentheses side by side are not nested
    assert len(parse_constraint(" and ".join(["(a or b)"] * 60), BOOL).operands) == 60


def test_a_formula_as_deep_as_may_be_is_written_and_read():
    for kind in (Implies, Iff):
        left = right = a
        for _ in range(49):
            left, right = kind(left, b), kind(b, right)
        assert left.depth == right.depth == 50
        for formula in (left, right):
            assert parse_constraint(str(formula), BOOL) == formula
        with pytest.raises(ValueError, match="nested deeper than 50 levels"):
            kind(left, b)


def test_few_frames_of_the_stack_are_needed():
    deepest = a
    for _ in range(8):  # each level of the language, again and again
        deepest = ((((deepest | b) ^ c) & a) >> b).iff(c)
    text = "a <-> b -> c or a xor b and not (" * 8 + "a" + ")" * 8
    here = len(inspect.stack(0))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(here + 250)
    try:
        assert parse_constraint(str(deepest), BOOL) == deepest
        parse_constraint(text, BOOL)
        parse_constraint("(" * 50 + "a" + ")" * 50, BOOL)
    finally:
        sys.setrecursionlimit(limit)


def test_a_long_chain():
    text = " or ".join(["a and not b", "c"] * 1_000)
    formula = parse_constraint(text, BOOL)
    assert len(formula.operands) == 2_000
    assert formula.depth == 4
    assert str(formula) == text


def _reads_or_refuses(text):
    """Read a text; what is read can be written and read again."""
    try:
        formula = parse_constraint(text, DOMAINS)
    except ConstraintSyntaxError as error:
        assert 1 <= error.lineno <= text.count("\n") + 1
        assert 0 <= error.position <= len(text)
        assert str(error).endswith("^")
        return
    again = parse_constraint(str(formula), DOMAINS)
    assert again == formula
    assert str(again) == str(formula)
    compiled = compile_formula(formula, DOMAINS)
    actual = evaluate(compiled, CODES.T, {})
    assert actual.tolist() == [holds(formula, world) for world in WORLDS]


@given(text=st.one_of(texts.values()))
@_fuzzed(60)
def test_fuzzed_texts(text):
    _reads_or_refuses(text)


# 20 at a time: that is faster
N_BATCHES = 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", texts)
def test_many_fuzzed_texts(kind):
    read = 0

    @given(batch=st.lists(texts[kind], min_size=20, max_size=20))
    @_fuzzed(N_BATCHES)
    def reads_or_refuses(batch):
        nonlocal read
        for text in batch:
            _reads_or_refuses(text)
        read += len(batch)

    reads_or_refuses()
    assert read >= 20 * N_BATCHES * SCALE


@given(formula=formulas)
@_fuzzed(50)
def test_formulas_are_read_as_they_are_written(formula):
    again = parse_constraint(str(formula), DOMAINS)
    assert again == formula
    assert hash(again) == hash(formula)
    assert str(again) == str(formula)


def test_nothing_of_a_text_can_be_executed():
    banned = {
        *("eval", "exec", "compile", "getattr", "setattr", "globals", "locals"),
        *("__import__", "import_module", "literal_eval", "vars", "open", "query"),
    }
    sources = ("_formulas", "_domains", "_parser", "_compiler")
    for name in sources:
        tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        assert not names & banned
        called = {ast.unparse(n.func) for n in nodes if isinstance(n, ast.Call)}
        # patterns of ours, and how frozen objects are filled
        called -= {"re.compile", "object.__setattr__"}
        assert not {call.split(".")[-1].strip("_") for call in called} & banned
        imported = {n.module for n in nodes if isinstance(n, ast.ImportFrom)}
        for node in nodes:
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
        assert imported <= {
            *("collections", "dataclasses", "difflib", "math", "re", "typing"),
            *(
                "numpy",
                "skood.exceptions",
                "skood.utils._stored",  # it only sets an attribute
                *(f"skood.logic.language.{s}" for s in sources),
            ),
        }


@pytest.mark.parametrize(
    "text",
    [
        "class = " + "x" * 30_000,
        "x" * 30_000 + " = stop",
        "'" + "x" * 30_000,
        "class = stop " + "x" * 30_000,
        "(" * 30_000,
        "class = stop and " + "?" * 30_000,
    ],
)
def test_errors_of_long_texts_are_short(text):
    with pytest.raises(ConstraintSyntaxError) as info:
        parse_constraint(text, {"class": ["stop", "yield"]})
    assert len(str(info.value)) < 1000
    assert info.value.text == text
    for wrong in ([text], text.encode()):
        with pytest.raises(TypeError) as info:
            parse_constraint(wrong, {"class": ["stop", "yield"]})
        assert len(str(info.value)) < 300

"""Compiler of formulas to Boolean operations on columns of codes.

A compiled formula is ("value", column, code), ("same", column, column), or a tuple of
an operation and its operands. It is evaluated on NumPy arrays or torch tensors.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from skood.logic.language._domains import brief, known, value_code
from skood.logic.language._formulas import (
    And,
    C,
    Equals,
    Iff,
    Implies,
    Not,
    Or,
    Same,
    Xor,
)


def concept_values(name, domains):
    """Return the values of a concept, or raise an error that lists the concepts."""
    if name not in domains:
        raise ValueError(
            f"Unknown concept {brief(name)}. "
            + known("Known concepts", name, list(domains))
        )
    return domains[name]


def bind(formula, domains):
    """Return the formula with values of the checked domains: 1 for "1"; or raise."""
    if isinstance(formula, C):
        values = concept_values(formula.name, domains)
        if len(values) != 2:
            raise ValueError(
                f"The concept {formula.name!r} has {len(values)} values, and only one "
                "with two can stand alone. "
                + known("Its values", "", values)
                + f" Compare it with one: {formula.eq(values[0])}, or in Python "
                f"{formula.eq(values[0])!r}."
            )
        return formula
    if isinstance(formula, Equals):
        values = concept_values(formula.name, domains)
        code = value_code(values, formula.value)
        if code < 0:
            raise ValueError(
                f"{brief(formula.value)} is no value of the concept {formula.name!r}. "
                + known("Its values", str(formula.value), values)
            )
        return Equals(formula.name, values[code], formula.equal)
    if isinstance(formula, Same):
        values, others = (
            concept_values(n, domains) for n in (formula.name, formula.other)
        )
        if values != others:
            raise ValueError(
                f"The concepts {formula.name!r} and {formula.other!r} have different "
                "values, and cannot be compared."
            )
        if value_code(values, formula.other) >= 0:
            raise ValueError(
                f"{formula.other!r} is a concept, and a value of the concept "
                f"{formula.name!r} too: their comparison would read as one with the "
                "value. Rename the concept."
            )
        return formula
    if isinstance(formula, Not):
        return Not(bind(formula.operand, domains))
    if isinstance(formula, (Implies, Iff)):
        return type(formula)(bind(formula.left, domains), bind(formula.right, domains))
    return type(formula)(tuple(bind(operand, domains) for operand in formula.operands))


def compile_formula(formula, domains):
    """Compile a bound formula; the columns are in the order of `domains`."""
    columns = {name: column for column, name in enumerate(domains)}

    def compiled(node):
        if isinstance(node, C):
            return "value", columns[node.name], 1
        if isinstance(node, Equals):
            atom = "value", columns[node.name], domains[node.name].index(node.value)
            return atom if node.equal else ("not", atom)
        if isinstance(node, Same):
            atom = "same", columns[node.name], columns[node.other]
            return atom if node.equal else ("not", atom)
        if isinstance(node, Not):
            return "not", compiled(node.operand)
        if isinstance(node, Implies):
            return "or", (("not", compiled(node.left)), compiled(node.right))
        if isinstance(node, Iff):
            return "not", ("xor", (compiled(node.left), compiled(node.right)))
        name = {And: "and", Or: "or", Xor: "xor"}[type(node)]
        return name, tuple(compiled(operand) for operand in node.operands)

    return compiled(formula)


def comparisons(compiled):
    """Return the distinct comparisons of concepts with values in a compiled formula."""
    kind, *rest = compiled
    if kind in ("value", "same"):
        return {compiled} if kind == "value" else set()
    operands = rest if kind == "not" else rest[0]
    return set().union(*(comparisons(operand) for operand in operands))


def evaluate(compiled, columns, cache):
    """Evaluate a compiled formula on columns; do not modify the result."""
    kind, *rest = compiled
    if kind == "value":
        if compiled not in cache:
            cache[compiled] = columns[rest[0]] == rest[1]
        return cache[compiled]
    if kind == "same":
        return columns[rest[0]] == columns[rest[1]]
    if kind == "not":
        return ~evaluate(rest[0], columns, cache)
    first, *others = rest[0]
    truth = evaluate(first, columns, cache)
    for operand in others:
        other = evaluate(operand, columns, cache)
        if kind == "and":
            truth = truth & other
        elif kind == "or":
            truth = truth | other
        else:
            truth = truth ^ other
    return truth


def truth_table(compiled, scope, sizes):
    """Return the truth for all values of the concepts in `scope`, an axis for each."""
    shape = tuple(sizes[column] for column in scope)
    grid = np.ogrid[tuple(slice(size) for size in shape)]
    columns = dict(zip(scope, grid, strict=True))
    table = evaluate(compiled, columns, {})
    return np.ascontiguousarray(np.broadcast_to(table, shape))

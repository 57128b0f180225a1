"""Formulas over concepts: their classes and string representation.

A formula is a tree of small immutable objects. The values of its concepts are unknown
until it is bound to domains, see `skood.logic.language._compiler`.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from skood.utils._stored import stored

KEYWORDS = frozenset({"and", "or", "xor", "not"})

# Names that need no quotes: a word, or a number.
WORD = re.compile(r"-?\d[\w.]*|\w[\w.]*")

# Deeper formulas, and deeper parentheses, could exhaust the stack when they are parsed,
# written or compiled. The string of a formula has fewer parentheses than levels.
MAX_DEPTH = 50


def spell(name):
    """Return a name or a value as a string, in quotes unless it is a plain word."""
    text = str(name)
    if WORD.fullmatch(text) and text.lower() not in KEYWORDS:
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def plain_value(value, name):
    """Return a value of the concept `name` as a plain Python object, or raise."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise TypeError(
        f"A value of the concept {name!r} must be a str, a bool, an int or a finite "
        f"float, got {value!r}."
    )


class Formula:
    """A formula over concepts; `C` is the simplest one.

    Formulas are combined by ``~`` (not), ``&`` (and), ``^`` (exclusive or), ``|``
    (or), ``>>`` (implies) and ``.iff()``. ``str`` returns a formula in the syntax of
    :func:`parse_constraint`.
    """

    precedence: ClassVar[int] = 7
    depth = 1

    def __post_init__(self):
        operands = [_checked(operand) for operand in self._operands()]
        if not operands:
            return
        depth = 1 + max(operand.depth for operand in operands)
        if depth > MAX_DEPTH:
            raise ValueError(
                f"The formula is nested deeper than {MAX_DEPTH} levels. Write it as "
                "several constraints."
            )
        object.__setattr__(self, "depth", depth)

    def __and__(self, other):
        return _combined(And, self, other)

    def __or__(self, other):
        return _combined(Or, self, other)

    def __xor__(self, other):
        return _combined(Xor, self, other)

    def __rshift__(self, other):
        return _combined(Implies, self, other)

    def __invert__(self):
        return Not(self)

    def iff(self, other):
        """Return the equivalence of this formula and another one.

        Parameters
        ----------
        other : Formula
            The other formula.

        Returns
        -------
        formula : Formula
            True where both are true or both are false.
        """
        return Iff(self, other)

    def concepts(self):
        """Return the distinct names of the concepts, in order of appearance.

        Returns
        -------
        names : list of str
            The names.
        """
        names: dict = {}
        for operand in self._operands():
            names.update(dict.fromkeys(operand.concepts()))
        return list(names)

    def __bool__(self):
        raise TypeError(
            f"The truth of the formula {str(self)!r} depends on the sample. Combine "
            "formulas with & (and), | (or), ^ (xor), ~ (not) and >> (implies) instead "
            "of Python's and, or, not; and mind that these bind more tightly than ==: "
            "write C('a').eq(1), not C('a') == 1."
        )

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def _operands(self):
        """Return the operands of this formula."""
        return ()

    def _written(self, operand, loosest):
        """Return a part as a string, in parentheses if it binds less than `loosest`."""
        text = str(operand)
        return text if operand.precedence >= loosest else f"({text})"


def _checked(formula):
    """Raise an error if the argument is not a formula."""
    if not isinstance(formula, Formula):
        raise TypeError(
            f"A formula can only be combined with a formula, got {formula!r}. Write "
            "C('name').eq(value) for 'the concept has this value'."
        )
    return formula


def _combined(kind, left, right):
    """Combine two formulas by an operator, or return NotImplemented."""
    if not isinstance(right, Formula):
        return NotImplemented
    return kind((left, right)) if issubclass(kind, _Joined) else kind(left, right)


@stored
@dataclass(frozen=True, repr=False)
class C(Formula):
    """A concept, by its name.

    On its own it is the formula that a two-valued concept has its second value.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    name : str
        Name of the concept.

    See Also
    --------
    parse_constraint : Parse a formula from a string.

    Examples
    --------
    >>> from skood.logic import C
    >>> rule = C("class").eq("stop") >> (C("color").eq("red") & ~C("round"))
    >>> print(rule)
    class = stop -> color = red and not round
    >>> rule.concepts()
    ['class', 'color', 'round']
    """

    name: str

    def __post_init__(self):
        if not isinstance(self.name, str):
            raise TypeError(f"The name of a concept must be a str, got {self.name!r}.")
        if not self.name:
            raise ValueError("The name of a concept must not be empty.")
        object.__setattr__(self, "name", str(self.name))

    def eq(self, value):
        """Return the formula that the concept has a value, or the value of a concept.

        Parameters
        ----------
        value : str, int, float, bool or C
            The value, or a concept with the same values.

        Returns
        -------
        formula : Formula
            ``name = value``.
        """
        return self._compared(value, True)

    def ne(self, value):
        """Return the formula that the concept does not have a value.

        Parameters
        ----------
        value : str, int, float, bool or C
            The value, or a concept with the same values, whose value must then differ.

        Returns
        -------
        formula : Formula
            ``name != value``.
        """
        return self._compared(value, False)

    def isin(self, values):
        """Return the formula that the concept has one of several values.

        Parameters
        ----------
        values : iterable of str, int, float or bool
            The values, at least one.

        Returns
        -------
        formula : Formula
            ``name = value or name = value …``.
        """
        if isinstance(values, str):
            raise TypeError(
                f"C({self.name!r}).isin() takes a list of values, got the str "
                f"{values!r}. For one value use .eq()."
            )
        operands = tuple(self.eq(value) for value in values)
        if not operands:
            raise ValueError(f"C({self.name!r}).isin() needs at least one value.")
        return operands[0] if len(operands) == 1 else Or(operands)

    def _compared(self, value, equal):
        if isinstance(value, C):
            return Same(self.name, value.name, equal)
        if isinstance(value, Formula):
            raise TypeError(
                f"C({self.name!r}) can be compared with a value or with another "
                f"concept, got the formula {str(value)!r}. Use .iff()."
            )
        return Equals(self.name, value, equal)

    def concepts(self):
        return [self.name]

    def __str__(self):
        return spell(self.name)

    def __repr__(self):
        return f"C({self.name!r})"


@stored
@dataclass(frozen=True, repr=False)
class Equals(Formula):
    """Formula that a concept has a value or, if not `equal`, does not have it."""

    name: str
    value: Any
    equal: bool = True

    def __post_init__(self):
        object.__setattr__(self, "value", plain_value(self.value, self.name))

    def concepts(self):
        return [self.name]

    def __str__(self):
        return f"{spell(self.name)} {'=' if self.equal else '!='} {spell(self.value)}"

    def __repr__(self):
        return f"C({self.name!r}).{'eq' if self.equal else 'ne'}({self.value!r})"


@stored
@dataclass(frozen=True, repr=False)
class Same(Formula):
    """Formula that two concepts have, or do not have, the same value."""

    name: str
    other: str
    equal: bool = True

    def concepts(self):
        return list(dict.fromkeys([self.name, self.other]))

    def __str__(self):
        return f"{spell(self.name)} {'=' if self.equal else '!='} {spell(self.other)}"

    def __repr__(self):
        return f"C({self.name!r}).{'eq' if self.equal else 'ne'}(C({self.other!r}))"


@stored
@dataclass(frozen=True, repr=False)
class Not(Formula):
    """Negation of a formula."""

    operand: Formula
    depth: int = field(init=False, compare=False)
    precedence: ClassVar[int] = 6

    def _operands(self):
        return (self.operand,)

    def __str__(self):
        return f"not {self._written(self.operand, self.precedence)}"

    def __repr__(self):
        return f"~{self.operand!r}"


@dataclass(frozen=True, repr=False)
class _Joined(Formula):
    """Formulas joined by an associative operator: a chain is one formula."""

    operands: tuple
    depth: int = field(init=False, compare=False)
    word: ClassVar[str]
    sign: ClassVar[str]

    def __post_init__(self):
        operands: list = []
        for operand in self.operands:
            same = type(operand) is type(self)
            operands.extend(operand.operands if same else [_checked(operand)])
        if len(operands) < 2:
            raise ValueError(f"{self.word!r} joins at least two formulas.")
        object.__setattr__(self, "operands", tuple(operands))
        super().__post_init__()

    def _operands(self):
        return self.operands

    def __str__(self):
        tighter = self.precedence + 1
        return f" {self.word} ".join(self._written(p, tighter) for p in self.operands)

    def __repr__(self):
        return (
            "("
            + f" {self.sign} ".join(repr(operand) for operand in self.operands)
            + ")"
        )


@stored
class And(_Joined):
    """Conjunction: all of several formulas hold."""

    word, sign, precedence = "and", "&", 5


@stored
class Xor(_Joined):
    """Exclusive disjunction: an odd number of several formulas holds."""

    word, sign, precedence = "xor", "^", 4


@stored
class Or(_Joined):
    """Disjunction: at least one of several formulas holds."""

    word, sign, precedence = "or", "|", 3


@dataclass(frozen=True, repr=False)
class _Pair(Formula):
    """Two formulas joined by an operator that is not associative."""

    left: Formula
    right: Formula
    depth: int = field(init=False, compare=False)
    sign: ClassVar[str]

    def _operands(self):
        return self.left, self.right

    def __str__(self):
        tighter = self.precedence + 1
        left, right = (self._written(operand, tighter) for operand in self._operands())
        return f"{left} {self.sign} {right}"


@stored
class Implies(_Pair):
    """Implication: if the left formula holds, so does the right one."""

    sign, precedence = "->", 2

    def __repr__(self):
        return f"({self.left!r} >> {self.right!r})"


@stored
class Iff(_Pair):
    """Equivalence: both formulas hold, or neither does."""

    sign, precedence = "<->", 1

    def __repr__(self):
        # a call binds more tightly than ~
        left = f"({self.left!r})" if isinstance(self.left, Not) else repr(self.left)
        return f"{left}.iff({self.right!r})"

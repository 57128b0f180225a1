"""Parser of constraints by operator precedence; text is never executed."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
from typing import NamedTuple

from skood.exceptions import ConstraintSyntaxError
from skood.logic.language._compiler import bind, concept_values
from skood.logic.language._domains import brief, check_domains, value_code
from skood.logic.language._formulas import (
    KEYWORDS,
    MAX_DEPTH,
    WORD,
    And,
    C,
    Equals,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    Same,
    Xor,
)

_OPERATORS: dict[str, type[Formula]] = {
    "<->": Iff,
    "->": Implies,
    "or": Or,
    "xor": Xor,
    "and": And,
}

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<sign><->|->|!=|=|\(|\))"
    r"|(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    rf"|(?P<word>{WORD.pattern})",
    re.DOTALL,
)


class _Token(NamedTuple):
    """A token: a sign or keyword, a name, or the end."""

    kind: str  # "sign" (also keywords), "name", "end"
    text: str
    position: int

    def __str__(self):
        return "the end of the text" if self.kind == "end" else brief(self.text)


def _tokens(text):
    """Split a string into tokens."""
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        kind, piece = match.lastgroup, match.group()
        if kind == "quoted":
            tokens.append(
                _Token("name", re.sub(r"(?s)\\(.)", r"\1", piece[1:-1]), position)
            )
        elif kind == "word" and piece.lower() not in KEYWORDS:
            tokens.append(_Token("name", piece, position))
        elif kind != "space":
            tokens.append(_Token("sign", piece.lower(), position))
        position = match.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _unreadable(text, position):
    """Return the error for a character that starts no token."""
    character = text[position]
    if character in "'\"":
        message = "this quote is not closed"
    elif character in "&|^~<>!":
        message = (
            f"unexpected character {character!r}: in a text write and, or, xor, not, "
            "->, <->, = and !="
        )
    else:
        message = (
            f"unexpected character {character!r}: names and values with other "
            "characters than letters, digits, '_' and '.' must be quoted"
        )
    return ConstraintSyntaxError(message, text, position)


class _ConstraintParser:
    """Recursive parser of the tokens of a string."""

    def __init__(self, text, domains):
        self.text = text
        self.domains = domains
        self.tokens = _tokens(text)
        self.index = 0
        self.n_open = 0

    @property
    def token(self):
        """Return the next token."""
        return self.tokens[self.index]

    def error(self, message, token=None):
        """Return the error at a token, by default at the next one."""
        position = (token or self.token).position
        return ConstraintSyntaxError(message, self.text, position)

    def at(self, *signs):
        """Return whether the next token is one of some signs."""
        return self.token.kind == "sign" and self.token.text in signs

    def take(self, *signs):
        """Consume the next token if it is one of some signs; return whether it was."""
        matches = self.at(*signs)
        self.index += matches
        return matches

    def parse(self):
        """Parse the whole string."""
        if self.token.kind == "end":
            raise self.error("the constraint is empty")
        formula = self.formula()
        if self.token.kind == "end":
            return formula
        if self.at(")"):
            raise self.error("this ')' closes nothing")
        if self.at("=", "!="):
            raise self.error(
                "a comparison has one '=' or '!=': to compare comparisons, write "
                "(a = 1) <-> (b = 1)"
            )
        raise self.error(f"expected an operator or the end, got {self.token}")

    def formula(self, loosest=Iff.precedence):
        """Parse an operand and its operators with at least the precedence `loosest`."""
        left, last = self.operand(), None
        while self.at(*_OPERATORS):
            operator = self.token
            kind = _OPERATORS[operator.text]
            if kind.precedence < loosest:
                break
            if kind is last:
                raise self.error(
                    f"a second {operator.text!r} is ambiguous: put one of them in "
                    "parentheses"
                )
            self.index += 1
            operands = [left, self.formula(kind.precedence + 1)]
            if kind in (Implies, Iff):
                left = self.checked(operator, kind, *operands)
            else:
                while self.take(operator.text):
                    operands.append(self.formula(kind.precedence + 1))
                left = self.checked(operator, kind, tuple(operands))
            last = kind
        return left

    def checked(self, token, function, *args):
        """Return the result of a function; its error is an error at `token`."""
        try:
            return function(*args)
        except ValueError as error:
            message = str(error)
            raise self.error(message[0].lower() + message[1:], token) from None

    def bound(self, token, kind, *args):
        """Return a concept or comparison with values of the domains."""
        return self.checked(token, lambda: bind(kind(*args), self.domains))

    def operand(self):
        """Parse negations and their operand: ``'not' not | atom``."""
        first, n_negations = self.token, 0
        while self.take("not"):
            n_negations += 1
        formula = self.atom()
        for _ in range(n_negations):
            formula = self.checked(first, Not, formula)
        return formula

    def atom(self):
        """Parse a formula in parentheses, a name, or a comparison."""
        opening = self.token
        if not self.take("("):
            return self.concept()
        self.n_open += 1
        if self.n_open > MAX_DEPTH:
            raise self.error(
                f"parentheses are nested deeper than {MAX_DEPTH} levels", opening
            )
        formula = self.formula()
        if not self.take(")"):
            if self.token.kind == "end":
                raise self.error("this '(' is not closed", opening)
            raise self.error(f"expected an operator or ')', got {self.token}")
        self.n_open -= 1
        return formula

    def concept(self):
        """Parse a concept alone, or in a comparison."""
        name = self.token
        if name.kind != "name":
            raise self.error(f"expected a concept, 'not' or '(', got {name}")
        self.index += 1
        if self.at("=", "!="):
            return self.comparison(name)
        return self.bound(name, C, name.text)

    def comparison(self, name):
        """Parse the part after the name: ``('=' | '!=') (value | name)``."""
        values = self.checked(name, concept_values, name.text, self.domains)
        equal = self.token.text == "="
        self.index += 1
        right = self.token
        if right.kind != "name":
            quoted = ", or write it in quotes" if right.text in KEYWORDS else ""
            raise self.error(f"expected a value or a concept, got {right}{quoted}")
        self.index += 1
        is_value = value_code(values, right.text) >= 0
        kind = Equals if is_value or right.text not in self.domains else Same
        return self.bound(right, kind, name.text, right.text, equal)


def parse(text, domains):
    """Parse a constraint over validated domains; see `parse_constraint`."""
    if not isinstance(text, str):
        raise TypeError(f"A constraint must be a str, got {brief(text)}.")
    return _ConstraintParser(text, domains).parse()


def parse_constraint(text, domains):
    """Parse a constraint from a string.

    The grammar, from the operator of lowest precedence to the highest::

        iff         := implication ['<->' implication]
        implication := or ['->' or]
        or          := xor {'or' xor}
        xor         := and {'xor' and}
        and         := not {'and' not}
        not         := 'not' not | atom
        atom        := '(' iff ')' | name | name ('=' | '!=') (value | name)

    A name alone requires a two-valued concept, and means that it has its second value.
    The right side of '=' is a value of the concept on the left or, if there is no such
    value, a concept with the same values. Operators may be written in upper case; names
    and values are case-sensitive. Names and values other than plain words are quoted.
    The text is never executed.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    text : str
        The constraint.

    domains : dict of str to (list or "bool")
        Values of each concept; "bool" is short for ``[False, True]``.

    Returns
    -------
    formula : Formula
        The constraint. ``str(formula)`` is a string that parses to it.

    Raises
    ------
    ConstraintSyntaxError
        If the text is not a constraint over these concepts. It is a ``ValueError``,
        and shows the position.

    TypeError
        If `text` is not a str, or `domains` not a dict of lists.

    See Also
    --------
    C : Formulas built in Python.
    KnowledgeBase : Weighted constraints.

    Examples
    --------
    >>> from skood.logic import parse_constraint
    >>> domains = {"class": ["stop", "yield"], "color": ["red", "blue"], "old": "bool"}
    >>> formula = parse_constraint("class=stop -> (color = red OR old)", domains)
    >>> print(formula)
    class = stop -> color = red or old
    >>> parse_constraint("class=stop -> color=rde", domains)
    Traceback (most recent call last):
    ...
    skood.exceptions.ConstraintSyntaxError: 'rde' is no value of the concept 'color'. \
Its values: red, blue. Did you mean 'red'?
        class=stop -> color=rde
                            ^
    """
    return parse(text, check_domains(domains))


def read_constraints(constraints, domains):
    """Return names (or None) and formulas of constraints."""
    names = None
    if isinstance(constraints, (str, Formula)) or not hasattr(constraints, "__iter__"):
        raise TypeError(
            "constraints must be a list of constraints, or a dict of name: constraint, "
            f"got {brief(constraints)}."
        )
    if hasattr(constraints, "items"):
        names = [str(name) for name, _ in constraints.items()]
        constraints = [constraint for _, constraint in constraints.items()]
    formulas = []
    for constraint in constraints:
        if isinstance(constraint, str):
            formulas.append(parse(constraint, domains))
        elif isinstance(constraint, Formula):
            formulas.append(bind(constraint, domains))
        else:
            raise TypeError(
                f"A constraint must be a str or a Formula, got {brief(constraint)}."
            )
    return names, formulas

"""Random formulas and texts, and what formulas say, in plain Python."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from hypothesis import strategies as st

from skood.logic import C
from skood.logic.language._formulas import And, Equals, Iff, Implies, Not, Or, Same, Xor

# Names and values that look like something else, quoted or not.
DOMAINS = {
    "class": ["stop_sign", "yield", "1", "and", "it's", 'a "b"', "\\", "ß ö\n", ""],
    "color": ["red", "blue", "green"],
    "paint": ["red", "blue", "green"],
    "or": [False, True],
    "a b": [False, True],
    "round": [False, True],
    "n": [-1, 0, 1.5, 1e-07, 2],
    "-7": ["(", "->"],
    "one": ["only"],
    "κ.1": ["no", "yes"],
}


def holds(formula, world, domains=DOMAINS):
    """Return whether a formula holds where each concept has a value."""
    if isinstance(formula, C):
        return world[formula.name] == domains[formula.name][1]
    if isinstance(formula, Equals):
        return (world[formula.name] == formula.value) == formula.equal
    if isinstance(formula, Same):
        return (world[formula.name] == world[formula.other]) == formula.equal
    if isinstance(formula, Not):
        return not holds(formula.operand, world, domains)
    if isinstance(formula, Implies):
        left, right = formula.left, formula.right
        return not holds(left, world, domains) or holds(right, world, domains)
    if isinstance(formula, Iff):
        return holds(formula.left, world, domains) == holds(
            formula.right, world, domains
        )
    parts = [holds(part, world, domains) for part in formula.operands]
    if isinstance(formula, And):
        return all(parts)
    if isinstance(formula, Or):
        return any(parts)
    return sum(parts) % 2 == 1


def worlds(rng, n):
    """Draw worlds, and their codes."""
    sizes = [len(values) for values in DOMAINS.values()]
    codes = rng.integers(0, sizes, size=(n, len(sizes)))
    return codes, [
        {name: v[c] for c, (name, v) in zip(row, DOMAINS.items(), strict=True)}
        for row in codes
    ]


def _compared():
    """Comparisons of concepts with values and with each other."""
    values = [(name, v) for name, values in DOMAINS.items() for v in values]
    pairs = st.sampled_from(values)
    same = st.sampled_from([("color", "paint"), ("or", "a b"), ("round", "round")])
    return st.one_of(
        pairs.map(lambda pair: C(pair[0]).eq(pair[1])),
        pairs.map(lambda pair: C(pair[0]).ne(pair[1])),
        same.map(lambda pair: C(pair[0]).eq(C(pair[1]))),
        same.map(lambda pair: C(pair[1]).ne(C(pair[0]))),
        st.sampled_from(["or", "a b", "round", "-7", "κ.1"]).map(C),
    )


def _larger(parts):
    """Formulas of smaller ones."""
    some = st.lists(parts, min_size=2, max_size=4).map(tuple)
    return st.one_of(
        parts.map(Not),
        some.map(And),
        some.map(Or),
        some.map(Xor),
        st.builds(Implies, parts, parts),
        st.builds(Iff, parts, parts),
    )


def random_formula(rng, n_levels):
    """Draw a formula of at most so many levels."""
    if n_levels == 1 or rng.random() < 0.1:
        names = list(DOMAINS)
        name = names[rng.integers(len(names))]
        values = DOMAINS[name]
        if len(values) == 2 and rng.random() < 0.5:
            return C(name)
        return Equals(name, values[rng.integers(len(values))], bool(rng.integers(2)))
    parts = [random_formula(rng, n_levels - 1) for _ in range(rng.integers(2, 4))]
    kind = (Not, And, Or, Xor, Implies, Iff)[rng.integers(6)]
    if kind is Not:
        return Not(parts[0])
    return kind(*parts[:2]) if kind in (Implies, Iff) else kind(tuple(parts))


formulas = st.recursive(_compared(), _larger, max_leaves=12)

_PIECES = [
    "class", "color", "paint", "'or'", "'a b'", "round", "n", "-7", "one", "κ.1",
    "red", "blue", "stop_sign", "1", "-1", "1.5", "'1e-07'", "'it\\'s'", '"a \\"b\\""',
    "''", "only", "True", "False", "yes", "nobody",
    "and", "AND", "or", "Or", "xor", "not", "NOT", "->", "<->", "=", "!=", "(", ")",
    "'", '"', "\\", "\n", "\t", " ", "==", "&", "|", "~", "<", ">", "-", "!", "#", ";",
    "__import__('os')", "lambda", "()", "\x00", "\r", "é", "²", "\ud800",
]  # fmt: skip

_soup = st.lists(st.sampled_from(_PIECES), max_size=30).flatmap(
    lambda pieces: st.sampled_from(["", " ", "\n"]).map(lambda gap: gap.join(pieces))
)


def _mutated(text, edits):
    """Replace, insert or delete characters of a text."""
    for where, length, new in edits:
        start = where % (len(text) + 1)
        text = text[:start] + new + text[start + length :]
    return text


_edits = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.integers(0, 3),
        st.one_of(st.just(""), st.sampled_from(_PIECES), st.characters()),
    ),
    min_size=1,
    max_size=3,
)

_deep = st.builds(
    lambda opening, middle, closing, n, m: opening * n + middle + closing * m,
    st.sampled_from(["(", "not ", "not (", "((round -> ", "round or (not ", "'"]),
    st.sampled_from(["round", "color = red", "", "round -> round", "not"]),
    st.sampled_from([")", "))", " <-> round)", "'", ""]),
    st.integers(0, 70),
    st.integers(0, 70),
)

_long = st.builds(
    lambda part, sign, n: f" {sign} ".join([part] * n),
    st.sampled_from(["round", "color = red", "not round", "(n = 2 -> round)", "("]),
    st.sampled_from(["and", "or", "xor", "->", "<->", "="]),
    st.integers(1, 100),
)

texts = {
    "characters": st.text(max_size=40),
    "words": _soup,
    "formulas": formulas.map(str),
    "mistakes": st.builds(_mutated, formulas.map(str), _edits),
    "deep": _deep,
    "long": _long,
}

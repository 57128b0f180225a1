"""Candidate constraints of a search, and their equivalence."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import math
import random
from functools import partial
from itertools import chain
from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state

from skood.logic.inference._partition import reduced
from skood.logic.language._compiler import compile_formula, truth_table
from skood.logic.language._domains import check_domains
from skood.logic.language._formulas import C
from skood.utils._param_validation import Interval, Options, StrOptions, validate_params

# Listing more formulas takes minutes, and trying them hours.
_MAX_LISTED = 1_000_000

# The number of trees is squared by each level.
_MAX_LEVELS = 10

_CONNECTIVES = {
    "->": lambda left, right: left >> right,
    "and": lambda left, right: left & right,
    "or": lambda left, right: left | right,
    "xor": lambda left, right: left ^ right,
    "<->": lambda left, right: left.iff(right),
}


@validate_params(
    {
        "domains": "no_validation",  # by check_domains
        "depth": [Interval(Integral, 1, None, closed="left")],
        "form": [StrOptions({"rule", "tree"})],
        "connectives": [list, tuple],
        "distinct": [Options(bool, {True, False}), StrOptions({"signed"})],
        "max_candidates": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def constraint_candidates(
    domains,
    depth=2,
    *,
    form="rule",
    connectives=("->",),
    distinct=True,
    max_candidates=None,
    random_state=None,
):
    r"""List the candidate constraints of a search.

    A literal is the formula that a concept has, or does not have, a value. The
    candidates of depth 1 are the literals; depth 2 adds the implications between two
    literals :math:`l \to l'` [1]_; and depth d adds the rules

    .. math:: l_1 \land \dots \land l_{d-1} \to l_d

    whose conditions :math:`l_1, \dots, l_{d-1}` are about different concepts. K
    two-valued concepts have :math:`2K` literals, and
    :math:`2K + 4K^2` candidates up to depth 2.

    With ``form="tree"`` the candidates are all binary trees of at most d levels, whose
    leaves are literals and whose branches are `connectives`. L literals and k
    connectives have

    .. math:: N_1 = L, \qquad N_d = L + k N_{d-1}^2

    trees; the ones of two levels with the connective "->" are the candidates of depth
    2 above.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    domains : dict of str to (list or "bool")
        Values of each concept; "bool" is short for ``[False, True]``. A concept with
        the values False and True, or 0 and 1, has the literals ``name`` and ``not
        name``; a concept with two other values ``name = value`` for each value; and a
        concept with more values ``name = value`` and ``name != value`` for each value.

    depth : int, default=2
        Maximal number of literals of a rule, or of levels of a tree (a literal has
        one), at least 1; of levels at most 10.

    form : {"rule", "tree"}, default="rule"
        Form of the candidates.

    connectives : sequence of {"->", "and", "or", "xor", "<->"}, default=("->",)
        Connectives of the trees. Rules have "->" only.

    distinct : bool or "signed", default=True
        Candidates to exclude. True: candidates that are always true or always false,
        and candidates with the truth table of an earlier one or of its negation
        (a constraint and its negation with minus its weight are the same model).
        "signed": as True, but a constraint and its negation are distinct. False:
        nothing is excluded.

    max_candidates : int, default=None
        Number of candidates to draw at random, without replacement, if there are more.
        `distinct` applies to the drawn ones, so that fewer may be left. None: all.

    random_state : int, RandomState instance or None, default=None
        Controls which candidates are drawn.

    Returns
    -------
    candidates : list of Formula
        Literals first, then rules or trees, in the order of the concepts; the first of
        equivalent candidates.

    Raises
    ------
    ValueError
        If there are more than a million candidates, or if `connectives` are unknown.

    See Also
    --------
    ConstraintSearch : Select candidates by their contribution to detection.

    References
    ----------
    .. [1] K. Kirchheim, F. Ortmeier. Improving out-of-distribution detection with
       Markov logic networks. ICML 2025.

    Examples
    --------
    >>> from skood.logic import constraint_candidates
    >>> domains = {"round": "bool", "red": "bool"}
    >>> for candidate in constraint_candidates(domains):
    ...     print(candidate)
    round
    red
    round -> red
    round -> not red
    not round -> red
    not round -> not red
    >>> len(constraint_candidates(domains, distinct=False))
    20
    >>> trees = constraint_candidates(domains, form="tree", connectives=["and", "xor"])
    >>> len(trees), str(trees[-1])
    (7, 'not round and not red')
    """
    domains = check_domains(domains)
    literals = [_literals(name, values) for name, values in domains.items()]
    listing = _listing(literals, depth, form, connectives)
    n = listing.count if max_candidates is None else max_candidates
    if min(n, listing.count) > _MAX_LISTED:
        count = listing.count
        shown = count if count < 1e12 else f"about 10^{math.log10(count):.0f}"
        raise ValueError(
            f"depth={depth} lists {shown} candidates over {len(domains)} concepts, "
            f"and at most {_MAX_LISTED} can be. Take a smaller depth, the domains "
            "of fewer concepts, or draw some of them by max_candidates."
        )
    if n < listing.count:
        drawn = _drawn(listing.count, n, check_random_state(random_state))
        listed = map(listing.formula, drawn)
    elif distinct is not False and form == "tree":
        listed = listing.formulas(
            partial(_first_of_each, domains=domains, signed=True, constants=True)
        )
    else:
        listed = listing.formulas()
    if distinct is False:
        return list(listed)
    return _first_of_each(listed, domains, signed=distinct == "signed")


def _literals(name, values):
    """Return the literals of one concept; none for a concept with one value."""
    if len(values) == 1:
        return []
    if values == [0, 1]:  # or [False, True]
        return [C(name), ~C(name)]
    if len(values) == 2:
        return [C(name).eq(value) for value in values]
    return [
        literal
        for value in values
        for literal in (C(name).eq(value), C(name).ne(value))
    ]


def _listing(literals, depth, form, connectives):
    """Return the list of all candidates of a form."""
    unknown = [c for c in connectives if c not in _CONNECTIVES]
    if unknown or not connectives or len(set(connectives)) < len(connectives):
        raise ValueError(
            f"connectives must be some of {list(_CONNECTIVES)}, each once, got "
            f"{list(connectives)!r}."
        )
    if form == "rule":
        if tuple(connectives) != ("->",):
            raise ValueError(
                f"Rules have the connective '->' only, got connectives="
                f"{list(connectives)!r}. Pass form='tree' for others."
            )
        return _Rules(literals, depth)
    if depth > _MAX_LEVELS:
        raise ValueError(
            f"form='tree' has at most {_MAX_LEVELS} levels, got depth={depth}."
        )
    return _Trees(literals, depth, [_CONNECTIVES[c] for c in connectives])


def _drawn(count, n, rng):
    """Return n of count numbers in ascending order, by Floyd's algorithm.

    NumPy cannot draw integers as large as the numbers of trees.
    """
    draw = random.Random(int(rng.randint(2**31 - 1)))
    chosen: set = set()
    for last in range(count - n, count):
        number = draw.randrange(last + 1)
        chosen.add(last if number in chosen else number)
    return sorted(chosen)


def _first_of_each(formulas, domains, *, signed, constants=False):
    """Return the first of formulas with equal truth tables."""
    first: dict = {}
    sizes = tuple(len(values) for values in domains.values())
    columns = {name: column for column, name in enumerate(domains)}
    for formula in formulas:
        scope = tuple(sorted(columns[name] for name in formula.concepts()))
        table = truth_table(compile_formula(formula, domains), scope, sizes)
        key = truth_key(scope, table, signed=signed)
        if key is None and constants:
            key = bool(table.flat[0])
        if key is not None:
            first.setdefault(key, formula)
    return list(first.values())


class _Rules:
    """Literals, and rules with conditions on different concepts."""

    def __init__(self, literals, depth):
        self.groups = [group for group in literals if group]
        self.literals = list(chain.from_iterable(literals))
        longest = min(depth - 1, len(self.groups))
        # elementary symmetric polynomials: ways[k][c] chooses literals of c of the
        # concepts from the k-th one on
        ways = [[1] + [0] * longest]
        for group in reversed(self.groups):
            after = ways[0]
            more = [after[c] + len(group) * after[c - 1] for c in range(1, longest + 1)]
            ways.insert(0, [1, *more])
        self.ways = ways
        self.count = len(self.literals) * (1 + sum(ways[0][1:]))

    def formulas(self):
        """Yield all candidates."""
        return map(self.formula, range(self.count))

    def formula(self, i):
        """Return the candidate i."""
        rule, literal = divmod(i, len(self.literals))
        conclusion = self.literals[literal]
        if rule == 0:
            return conclusion
        rule -= 1
        n_conditions = 1
        while rule >= self.ways[0][n_conditions]:
            rule -= self.ways[0][n_conditions]
            n_conditions += 1
        return self._condition(rule, n_conditions) >> conclusion

    def _condition(self, i, n_conditions):
        """Return the conjunction i of literals of different concepts."""
        chosen: list = []
        n_ways = 1  # of choosing literals of the concepts so far
        for k, group in enumerate(self.groups):
            if len(chosen) == n_conditions:
                break
            n_with = n_ways * len(group)
            n_with *= self.ways[k + 1][n_conditions - len(chosen) - 1]
            if i < n_with:
                chosen.append(group)
                n_ways *= len(group)
            else:
                i -= n_with
        condition = None
        for group in chosen:
            n_ways //= len(group)
            literal, i = group[i // n_ways], i % n_ways
            condition = literal if condition is None else condition & literal
        return condition


class _Trees:
    """Literals, and binary trees of them with branches of connectives."""

    def __init__(self, literals, depth, connectives):
        self.literals = list(chain.from_iterable(literals))
        self.connectives = connectives
        self.counts = [len(self.literals)]
        for _ in range(depth - 1):
            n_branches = len(connectives) * self.counts[-1] ** 2
            self.counts.append(len(self.literals) + n_branches)
        self.count = self.counts[-1]

    def formulas(self, distinct=list):
        """Yield all candidates, or until one of each truth table is among them.

        `distinct` returns the first formula with each truth table. The first tree with
        a truth table has the first operands with theirs, since trees are listed in the
        order of their operands.
        """
        listed = self.literals
        for _ in self.counts[2:]:
            listed = distinct(self._with_branches(listed))
        return self._with_branches(listed) if self.counts[1:] else iter(listed)

    def _with_branches(self, operands):
        yield from self.literals
        for left in operands:
            for right in operands:
                for connect in self.connectives:
                    yield connect(left, right)

    def formula(self, i, level=-1):
        """Return the candidate i of the trees up to a level."""
        if i < len(self.literals):
            return self.literals[i]
        pair, connective = divmod(i - len(self.literals), len(self.connectives))
        left, right = divmod(pair, self.counts[level - 1])
        return self.connectives[connective](
            self.formula(left, level - 1), self.formula(right, level - 1)
        )


def truth_key(scope, table, *, signed=False):
    """Return a key shared by all constraints with the same truth, None for constants.

    A constraint and its negation have different keys only if `signed`.
    """
    scope, table = reduced(scope, table)
    if not scope:
        return None
    if not signed and table.flat[0]:
        table = ~table
    return scope, np.packbits(table).tobytes()

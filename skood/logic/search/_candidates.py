"""Candidate constraints of a search, and their equivalence."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from itertools import combinations, product
from numbers import Integral

import numpy as np

from skood.logic.inference._partition import reduced
from skood.logic.language._compiler import compile_formula, truth_table
from skood.logic.language._domains import check_domains
from skood.logic.language._formulas import C
from skood.utils._param_validation import Interval, Options, StrOptions, validate_params

__all__ = ["constraint_candidates", "truth_key"]

# Listing more formulas takes minutes, and trying them hours.
_MAX_LISTED = 1_000_000


@validate_params(
    {
        "domains": "no_validation",  # by check_domains
        "depth": [Interval(Integral, 1, None, closed="left")],
        "distinct": [Options(bool, {True, False}), StrOptions({"signed"})],
    },
    prefer_skip_nested_validation=True,
)
def constraint_candidates(domains, depth=2, distinct=True):
    r"""List the candidate constraints of a search.

    A literal is the formula that a concept has, or does not have, a value. The
    candidates of depth 1 are the literals; depth 2 adds the implications between two
    literals :math:`l \to l'` [1]_; and depth d adds the rules

    .. math:: l_1 \land \dots \land l_{d-1} \to l_d

    whose conditions :math:`l_1, \dots, l_{d-1}` are about different concepts. K
    two-valued concepts have :math:`2K` literals, and
    :math:`2K + 4K^2` candidates up to depth 2.

    Read more in the :ref:`User Guide <logic>`.

    Parameters
    ----------
    domains : dict of str to (list or "bool")
        Values of each concept; "bool" is short for ``[False, True]``. A concept with
        the values False and True, or 0 and 1, has the literals ``name`` and ``not
        name``; a concept with two other values ``name = value`` for each value; and a
        concept with more values ``name = value`` and ``name != value`` for each value.

    depth : int, default=2
        Maximal number of literals of a candidate, at least 1.

    distinct : bool or "signed", default=True
        Candidates to exclude. True: candidates that are always true or always false,
        and candidates with the truth table of an earlier one or of its negation
        (a constraint and its negation with minus its weight are the same model).
        "signed": as True, but a constraint and its negation are distinct. False:
        nothing is excluded.

    Returns
    -------
    candidates : list of Formula
        Literals first, then implications, in the order of the concepts; the first of
        equivalent candidates.

    Raises
    ------
    ValueError
        If there are more than a million candidates.

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
    """
    domains = check_domains(domains)
    literals = [_literals(name, values) for name, values in domains.items()]
    n_listed = _count([len(some) for some in literals], depth)
    if n_listed > _MAX_LISTED:
        raise ValueError(
            f"depth={depth} lists {n_listed} candidates over {len(domains)} concepts, "
            f"and at most {_MAX_LISTED} can be. Take a smaller depth, or the domains "
            "of fewer concepts."
        )
    listed = _listed(literals, depth)
    if distinct is False:
        return list(listed)
    found: dict = {}
    sizes = tuple(len(values) for values in domains.values())
    columns = {name: column for column, name in enumerate(domains)}
    for formula in listed:
        scope = tuple(sorted(columns[name] for name in formula.concepts()))
        table = truth_table(compile_formula(formula, domains), scope, sizes)
        key = truth_key(scope, table, signed=distinct == "signed")
        if key is not None:
            found.setdefault(key, formula)
    return list(found.values())


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


def _count(sizes, depth):
    """Return the number of candidates, from the numbers of literals of concepts."""
    total = sum(sizes)
    # elementary symmetric polynomials: ways to choose literals of different concepts
    longest = min(depth - 1, len(sizes))
    ways = [1] + [0] * longest
    for size in sizes:
        for d in range(longest, 0, -1):
            ways[d] += ways[d - 1] * size
    return total + sum(ways[1:]) * total


def _listed(literals, depth):
    """Yield all candidates."""
    everything = [literal for some in literals for literal in some]
    yield from everything
    for n_conditions in range(1, min(depth - 1, len(literals)) + 1):
        for concepts in combinations(literals, n_conditions):
            for conditions in product(*concepts):
                condition = conditions[0]
                for other in conditions[1:]:
                    condition = condition & other
                for literal in everything:
                    yield condition >> literal


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

"""Validation of concepts and their values."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from collections import Counter
from difflib import get_close_matches

import numpy as np

from skood.logic.language._formulas import plain_value, spell

# Errors list at most this many names.
_MAX_LISTED = 20

# Errors show at most this many characters of a name.
_MAX_SHOWN = 76


def check_domains(domains):
    """Return concepts and their values as a dict of lists of plain Python objects."""
    if not hasattr(domains, "items"):
        raise TypeError(
            "domains must be a dict of concept names to lists of values, for example "
            f"{{'color': ['red', 'blue'], 'round': 'bool'}}; got {brief(domains)}."
        )
    checked = {}
    for name, values in domains.items():
        if not isinstance(name, str):
            raise TypeError(f"The name of a concept must be a str, got {brief(name)}.")
        if not name:
            raise ValueError("The name of a concept must not be empty.")
        checked[str(name)] = _check_values(str(name), values)
    return checked


def _check_values(name, values):
    """Return the values of one concept as a list of plain Python objects."""
    if isinstance(values, str) and values == "bool":
        return [False, True]
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not hasattr(
        values, "__iter__"
    ):
        raise TypeError(
            f"The values of the concept {brief(name)} must be a list or 'bool', got "
            f"{brief(values)}."
        )
    values = [plain_value(value, name) for value in values]
    if not values:
        raise ValueError(f"The concept {brief(name)} has no values.")
    equal = Counter(values)  # 1, 1.0 and True are equal
    alike = Counter(str(value) for value in values)
    doubled = {str(value) for value in values if equal[value] > 1}
    doubled.update(text for text, count in alike.items() if count > 1)
    if doubled:
        raise ValueError(
            f"The concept {brief(name)} has values that are equal, or are written "
            f"alike: {brief(sorted(doubled))}. Values must be distinct."
        )
    return values


def value_code(values, value):
    """Return the index of a value by equality or else by its string, or -1."""
    value = value.item() if isinstance(value, np.generic) else value
    if value in values:
        return values.index(value)
    text = str(value)
    for code, candidate in enumerate(values):
        if str(candidate) == text:
            return code
    return -1


def brief(thing):
    """Return the ``repr`` of a name or value, shortened to some 80 characters."""
    return repr(_cut(thing)) if isinstance(thing, str) else _cut(repr(thing))


def _cut(text):
    """Return a text, shortened to some 80 characters."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def known(kind, name, names):
    """Return sentences that list known `names` and suggest one like `name`."""
    listed = ", ".join(_cut(spell(other)) for other in names[:_MAX_LISTED]) or "none"
    more = len(names) - _MAX_LISTED
    if more > 0:
        listed += f" and {more} more"
    folded = {str(other).casefold(): str(other) for other in names}
    near = get_close_matches(str(name)[:_MAX_SHOWN].casefold(), folded, n=1)
    hint = f" Did you mean {brief(folded[near[0]])}?" if near else ""
    return f"{kind}: {listed}.{hint}"

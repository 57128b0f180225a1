"""Recipes that the papers print, and choices of ours."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).parent


class Choice(NamedTuple):
    """Setting: its name, our value, and the reason.

    Names with "/" that match a place of the printed recipe are changes of it; the paper
    does not state the others.
    """

    name: str
    value: Any
    reason: str


def printed_recipe(paper):
    """Return the settings that a paper prints, a nested dict; of all experiments."""
    recipes = json.loads((_FOLDER / "printed_recipes.json").read_text())
    if paper not in recipes:
        raise ValueError(f"There is no recipe of {paper!r}, only {', '.join(recipes)}.")
    return recipes[paper]


def own_choices(paper):
    """Return a `Choice` for each setting that a paper does not state or ours changes.

    Those that the paper does not state, and those with "both recipes" in the reason,
    are in the printed recipe, too.
    """
    choices = json.loads((_FOLDER / "own_choices.json").read_text())
    return [Choice(*choice) for choice in choices.get(paper, ())]


def settings(recipe, start=""):
    """Return the values of a nested dict by their path with "/"."""
    found = {}
    for name, value in recipe.items():
        if isinstance(value, dict):
            found |= settings(value, f"{start}{name}/")
        else:
            found[f"{start}{name}"] = value
    return found


def choice_rows(paper):
    """Return tuples of text: name, different printed values, our value, reason."""
    choices = own_choices(paper)
    printed = settings(printed_recipe(paper)) if choices else {}
    return [
        (
            choice.name,
            "; ".join(
                dict.fromkeys(
                    _shown(value)
                    for place, value in printed.items()
                    if fnmatchcase(place, choice.name)
                )
            ),
            _shown(choice.value),
            choice.reason,
        )
        for choice in choices
    ]


def _shown(value):
    values = value if isinstance(value, list) else [value]
    return ", ".join(map(str, values))

"""The structure of the code, and the language of all that users read.

``python benchmarks/house.py --long`` prints every measure with what it counts.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ast
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def house():
    spec = spec_from_file_location("house", ROOT / "benchmarks" / "house.py")
    module = module_from_spec(spec)
    sys.modules["house"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["house"]


def test_listed_words(house):
    """Docstrings, pages and errors use the field's terms."""
    found = house.listed_words()
    assert not found, "\n".join(found)


def test_words_of_docstrings_and_messages(house):
    """Words that pages still have, but no docstring and no message."""
    words = (
        r"\b(?:(?:the|an?|OOD) share|shares? of|in use|judge\w*|asked|beside|redo)\b"
    )
    words = re.compile(words + r"|\b(?:at all times|shortly|unable|at hand)\b")
    found = [
        f"{place}: {match.group()}"
        for place, text in house.prose()
        if ".py:" in place
        for match in words.finditer(" ".join(text.split()))
    ]
    assert not found, "\n".join(found)


def test_listed_words_are_detected(house, monkeypatch):
    text = "It says which rows of those of the bank are drawn to zero."
    monkeypatch.setattr(house, "prose", lambda: [("skood/x.py:1", text)])
    assert len(house.listed_words()) == 3


def test_docstrings_have_no_control_characters():
    """A formula in a plain string loses the backslashes of \\theta and \\frac."""
    for path in sorted((ROOT / "skood").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            doc = getattr(node, "body", None)
            if isinstance(doc, list) and doc and isinstance(doc[0], ast.Expr):
                value = getattr(doc[0].value, "value", "")
                if isinstance(value, str):
                    assert not set(value) & set("\a\b\f\t\v\r"), path


@pytest.mark.parametrize(
    "measure",
    ["circles", "upward_imports", "private_imports", "deep_classes", "british"],
)
def test_there_is_none(house, measure):
    found = getattr(house, measure)()
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("measure", "most"),
    [
        ("wide_functions", 3),
        ("reaching_functions", 16),
        ("single_importers", 23),
        ("repeated_classes", 0),
        ("names_of_decision", 0),
        ("private_all", 0),
        ("test_names", 25),
    ],
)
def test_measures_do_not_grow(house, measure, most):
    """Measures above their limits are lowered here when the code is."""
    places = getattr(house, measure)()
    assert len(places) <= most, "\n".join(places)


def test_tree_of_calls(house):
    from skood.utils._ties import tolerance

    def twice():
        tolerance(1.0, 0.0, 1.0)
        tolerance(2.0, 0.0, 1.0)

    tree = house.called(twice)
    assert (len(house.functions_of(tree)), house.depth_of(tree)) == (1, 1)
    (line,) = house.drawn(tree, 1)
    assert line.split() == ["tolerance", "utils/_ties.py"]
    assert not list(house.drawn(tree, 0))

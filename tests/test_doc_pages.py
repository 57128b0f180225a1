"""Tests of the pages of the documentation: lengths, outputs of code and words."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import re
from pathlib import Path

import pytest

DOC = Path(__file__).parents[1] / "doc"
GUIDE = DOC / "user_guide"
#: Folders that a build of the pages writes.
BUILT = {"generated", "auto_examples", "_build"}
PAGES = sorted(path for path in DOC.rglob("*.rst") if not BUILT & {*path.parts})
#: Words of a page to use, of a page of details, of all pages of the guide, of a recipe.
USE, DETAILS, ALL, RECIPE = 1_500, 2_800, 60_000, 1_200
LONGER = {"numerical_notes": 2_000}
#: Words with a plainer term: fraction, in production, available, module, reproduce, ...
WORDS = [
    r"\bshares? of\b",
    r"\bthe share\b",
    r"\bsamples in use\b",
    r"\bat hand\b",
    r"\bredo(es|ne)?\b",
    r"\bbeside\b",
    r"\bat all times\b",
    r"\bshortly\b",
    r"\bunable\b",
    r"\bjudged?s?\b",
    r"\basked\b",
    r"\bmain job\b",
]


def number_of_words(path):
    return len(path.read_text(encoding="utf-8").split())


def name_of(path):
    return path.relative_to(DOC).as_posix().removesuffix(".rst")


@pytest.mark.parametrize(
    "path", sorted(GUIDE.glob("*.rst")), ids=lambda path: path.stem
)
def test_length_of_page(path):
    limit = DETAILS if path.stem.endswith("_details") else USE
    limit, words = LONGER.get(path.stem, limit), number_of_words(path)
    assert words <= limit


@pytest.mark.parametrize(
    "path", sorted((DOC / "recipes").glob("*.rst")), ids=lambda path: path.stem
)
def test_length_of_recipe(path):
    assert number_of_words(path) <= RECIPE


def test_length_of_guide():
    words = sum(map(number_of_words, GUIDE.glob("*.rst")))
    assert words <= ALL


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_outputs_are_not_mere_booleans(path):
    assert ">>> bool(" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_plain_words(path):
    if path.parent.name != "whats_new":
        text = path.read_text(encoding="utf-8").lower()
        assert [word for word in WORDS if re.search(word, text)] == []


def test_results_of_papers_are_not_typed():
    """Tables and numbers are in pages that are generated from benchmarks/results."""
    text = (GUIDE / "reproduce_results.rst").read_text(encoding="utf-8")
    assert "generated/results/" in text
    assert re.findall(r"-table::|\d\.\d", text) == []

"""Measure the structure of the code: circles, private imports, sizes and language.

::

    python benchmarks/house.py [--long]

Prints a line for each measure with its target, and with ``--long`` what it counts.
Exits with 1 if a target is missed.

Imports inside functions count like those at the top of a file. Modules that
``doc/developers/architecture.rst`` lists as extension points may be imported from
everywhere, as may ``skood.base`` and ``skood.utils``.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import ast
import inspect
import re
import statistics
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE = ROOT / "doc" / "developers" / "architecture.rst"

# What 69,000 lines of the library and 70,700 of its tests are to become.
MAX_LINES, MAX_TEST_LINES = 59_000, 68_000

# Rooms that were added later count apart.
LATER: tuple = ("monitor", "selection")

WORDS = (
    r"\bsay(?:s|ing)?\b",
    r"\bsaid\b",
    r"\btell(?:s)?\b",
    r"\btold\b",
    r"\bknows\b",
    r"\bis asked\b",
    r"\bwhat is read off\b",
    r"\bread off\b",
    r"\bthose of\b",
    r"\bof which\b",
    r"\bsuch as them\b",
    r"\bwhatever\b",
    r"\bnobody\b",
    r"\bnone to\b",
    r"\bbut for\b",
    r"\bobjects? to\b",
    r"\bdrawn to\b",
    r"\bcarried along\b",
    r"\bID rows\b",
    r"\bOOD rows\b",
    r"\breads? (?:a|the) classifier\b",
    r"\bmany detectors, one\b",
    r"\bshall\b",
    r"\b(?:calibration|training|validation|held-out|in-distribution) rows?\b",
    r"\b(?:an?|no|one|per|each) row,? (?:of y|is accepted|is rejected|needs)\b",
    r"\bskood reads\b",
    r"\bread otherwise\b",
)

BRITISH = re.compile(
    r"\b\w*(?:neighbour|colour|behaviour|favour|centre[ds]?\b|centred|labelled|"
    r"labelling|modelled|modelling|travelled|cancelled|regularis|normalis|optimis(?!t|m)|"
    r"standardis|summaris|generalis|initialis|minimis|maximis|recognis|organis|"
    r"analys(?:e|ed|es|ing)\b|penalis|randomis|vectoris|parametris|visualis|"
    r"factoris|discretis|quantis|serialis|factorisation|grey\b|catalogue)\w*",
    re.IGNORECASE,
)


# --- imports --------------------------------------------------------------------------


@cache
def modules():
    """Return the modules of skood: name to path."""
    found = {}
    for path in sorted((ROOT / "skood").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    return found


@cache
def imports():
    """Return (importing module, imported module, imported name) of skood's own."""
    found = set()
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets = [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                targets = [(node.module, alias.name) for alias in node.names]
            else:
                continue
            for target, imported in targets:
                if target.split(".")[0] != "skood":
                    continue
                if f"{target}.{imported}" in modules():
                    target = f"{target}.{imported}"
                if target != name:
                    found.add((name, target, imported))
    return sorted(found)


def room(module):
    """Return the sub-package, or top module, that a module belongs to."""
    return [*module.split("."), ""][1]


def circles():
    """Return sets of files that import each other in a circle."""
    graph = nx.DiGraph((source, target) for source, target, _ in imports())
    return [
        " <-> ".join(sorted(one))
        for one in nx.strongly_connected_components(graph)
        if len(one) > 1
    ]


@cache
def extension_points():
    """Return the private modules that the page on the architecture lists as open."""
    if not ARCHITECTURE.exists():
        return frozenset()
    text = ARCHITECTURE.read_text()
    return frozenset(re.findall(r"``(skood\.[a-z_.]+)``", text)) & set(modules())


def private_imports():
    """Return imports of private modules or names from other rooms."""
    found = []
    for source, target, name in imports():
        free = room(target) in (room(source), "utils", "base", "")
        private = any(part.startswith("_") for part in target.split("."))
        private = private or (name.startswith("_") and not name.startswith("__"))
        if private and not free and target not in extension_points():
            found.append(f"{source} imports {target}.{name}")
    return found


# --- classes --------------------------------------------------------------------------


@cache
def public_classes():
    """Return the public classes of all rooms."""
    found = set()
    for name in modules():
        if name.count(".") != 1 or name.split(".")[1].startswith("_"):
            continue
        module = import_module(name)
        values = (getattr(module, one) for one in getattr(module, "__all__", ()))
        found |= {one for one in values if inspect.isclass(one)}
    return sorted(found, key=lambda one: one.__qualname__)


def deep_classes():
    """Return classes with more than three of skood's classes above them."""
    found = []
    for cls in public_classes():
        above = [
            one.__name__
            for one in cls.__mro__[1:]
            if one.__module__.split(".")[0] == "skood"
        ]
        if len(above) > 3:
            found.append(f"{cls.__name__}: {', '.join(above)}")
    return found


def wide_classes():
    """Return classes with more than twelve constructor parameters."""
    found = []
    for cls in public_classes():
        if "__init__" in dir(cls) and cls.__init__ is not object.__init__:
            count = len(inspect.signature(cls.__init__).parameters) - 1
            if count > 12:
                found.append(f"{cls.__name__}: {count}")
    return found


def mentions():
    """Return detectors that more than eight files mention."""
    from skood.utils.discovery import all_estimators

    paths = [
        path
        for folder, end in (("skood", "py"), ("doc", "rst"), ("tests", "py"))
        for path in (ROOT / folder).rglob(f"*.{end}")
        if not {"_build", "generated", "auto_examples"} & set(path.parts)
    ]
    texts = [path.read_text() for path in paths]
    found = []
    for name, _ in all_estimators("detector"):
        count = sum(bool(re.search(rf"\b{name}\b", text)) for text in texts)
        if count > 8:
            found.append(f"{name}: {count}")
    return found


# --- language -------------------------------------------------------------------------


def _is_message(node):
    """Return whether a node raises an error or warns."""
    if isinstance(node, ast.Raise):
        return isinstance(node.exc, ast.Call)
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("warn")


def _strings(tree):
    """Yield line and text of public docstrings, errors and warnings."""
    for node in ast.walk(tree):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, kinds):
            public = not getattr(node, "name", "").startswith("_")
            text = ast.get_docstring(node) if public else None
            if text:
                yield getattr(node, "lineno", 1), text
        elif _is_message(node):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def prose():
    """Yield (place, text) of all that users read."""
    for path in modules().values():
        for line, text in _strings(ast.parse(path.read_text())):
            yield f"{path.relative_to(ROOT)}:{line}", text
    pages = [ROOT / "README.md", *sorted((ROOT / "doc").rglob("*.rst"))]
    for path in pages:
        if not {"_build", "generated", "auto_examples"} & set(path.parts):
            yield str(path.relative_to(ROOT)), path.read_text()


def listed_words():
    """Return uses of phrases that scikit-learn's pages would not have."""
    found = []
    for place, text in prose():
        if place.endswith(".py") or ".py:" in place:
            first = text.lstrip().split("\n", 1)[0]
            if re.match(r"(What|How|Whether) ", first) and ":" in place:
                found += [f"{place}: {first}"] if first.startswith("What") else []
        for word in WORDS:
            for match in re.finditer(word, text, re.IGNORECASE):
                part = text[max(match.start() - 30, 0) : match.end() + 30]
                found.append(f"{place}: {' '.join(part.split())}")
    return found


def british():
    """Return British spellings, in code as in prose."""
    found = []
    for folder in ("skood", "doc", "examples", "tests", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".py", ".rst", ".md") or {
                "_build",
                "generated",
                "auto_examples",
            } & set(path.parts):
                continue
            if path.name != Path(__file__).name:
                words = BRITISH.findall(path.read_text())
                place = path.relative_to(ROOT)
                found += [
                    f"{place}: {m.group()}"
                    for m in BRITISH.finditer(path.read_text())
                    if words
                ]
    return found


# --- sizes ----------------------------------------------------------------------------


def lines_of(paths):
    """Return the number of lines of each file."""
    return {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in paths}


def measures():
    """Yield what is measured: text, value, target and what is counted."""

    def counted(text, found, target=0):
        return text, len(found), target, found

    yield counted("circles of imports", circles())
    yield counted("private imports from other rooms", private_imports())
    yield counted("classes with more than 3 of ours above", deep_classes())
    yield counted("classes with more than 12 parameters", wide_classes())
    sizes = lines_of(p for n, p in modules().items() if room(n) not in LATER)
    long = [f"{name}: {n}" for name, n in sizes.items() if n > 500]
    yield counted("files with more than 500 lines", long)
    yield "lines of the median file", statistics.median(sizes.values()), 200, []
    yield counted("listed words in what users read", listed_words(), 10)
    yield counted("British spellings", british())
    yield counted("detectors that more than 8 files mention", mentions())
    yield "lines of skood", sum(sizes.values()), MAX_LINES, []
    tests = lines_of(
        path
        for path in (ROOT / "tests").rglob("*.py")
        if path.relative_to(ROOT / "tests").parts[0] not in LATER
    )
    yield "lines of tests", sum(tests.values()), MAX_TEST_LINES, []


def main(argv=None):
    """Print the measures; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="print what is counted")
    arguments = parser.parse_args(argv)
    missed = False
    for text, value, target, found in measures():
        missed |= value > target
        mark = "" if value <= target else "  MISSED"
        print(f"{text:42}{value:>8g}  (at most {target:,}){mark}")
        if arguments.long:
            print("".join(f"    {one}\n" for one in found), end="")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

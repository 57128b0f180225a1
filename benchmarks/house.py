"""Measure the structure of the code: imports, sizes, depth of calls and language.

::

    python benchmarks/house.py [--long] [--trees FOLDER]

Prints a line for each measure with its limit, and with ``--long`` the places that it
counts. Exits with 1 if a limit is missed. With ``--trees``, only the trees of the two
calls that ``doc/developers/architecture.rst`` shows are written, into that folder.

Imports inside functions count as imports at the top of a file do. Modules that
``doc/developers/architecture.rst`` lists as extension points may be imported by all
sub-packages, as may ``skood.base``, ``skood.utils`` and ``skood.stats``.

Calls are measured by ``sys.setprofile`` on 300 samples with 8 features and 50 queries,
at the second call: the number of different functions of skood that run, and how deep
they are nested. Comprehensions count as functions in Python 3.11.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import argparse
import ast
import inspect
import os
import re
import statistics
import sys
import warnings
from collections import Counter, defaultdict
from functools import cache, partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE = ROOT / "doc" / "developers" / "architecture.rst"
BUILT = {"_build", "generated", "auto_examples"}

# Sub-packages added after version 0.1 count apart.
LATER: tuple = ()

# A sub-package imports those of its own line and of the lines above.
LAYERS = (
    ("utils", "exceptions", "_version"),
    ("stats",),
    ("decision",),
    ("metrics",),
    ("base", "nn"),
    ("detectors", "rectifiers"),
    ("graph", "evidential"),
    ("epistemic",),
    ("logic",),
    ("combine", "selection"),
    ("rejection", "monitor"),
)
# These import the base class of detectors.
BELOW_ALL = (
    "skood.utils.discovery",
    "skood.utils.estimator_checks",
)

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

# The calls whose trees are shown, and how many levels of them.
SHOWN = {"KNN.score_samples": 10, "RejectOptionClassifier.fit": 6}

# Words of names that a name of the thing replaces; for each, the most per 10,000
# identifiers (variables, attributes, arguments, functions, classes), twice in tests.
IDENTIFIER_WORDS = {
    "found": 5,
    "own": 5,
    "given": 5,
    "kept": 5,
    "some": 5,
    "reading": 5,
    "one": 5,  # as the whole name
    "part": 5,
    "rows": 15,
}


# Methods of named tuples are public: the underscore keeps them apart from fields.
NAMED_TUPLE = {"_replace", "_asdict", "_fields"}


class Measure(NamedTuple):
    """A number, its limit, and the places that it counts."""

    name: str
    value: float
    limit: float
    places: list


# --- files and imports ----------------------------------------------------------------


@cache
def modules():
    """Return the modules of skood: name to path."""
    paths = {}
    for path in sorted((ROOT / "skood").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        paths[name] = path
    return paths


@cache
def tree(path):
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


def test_files():
    """Return the files of tests."""
    return sorted((ROOT / "tests").rglob("*.py"))


def functions(root):
    """Return the functions and methods of a syntax tree, nested ones included."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(root) if isinstance(node, kinds)]


@cache
def imports():
    """Return (importing module, imported module, imported name) within skood."""
    edges = set()
    for name, path in modules().items():
        for node in ast.walk(tree(path)):
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
                    edges.add((name, target, imported))
    return sorted(edges)


def package_of(module):
    """Return the sub-package, or top module, that a module belongs to."""
    return [*module.split("."), ""][1]


def circles():
    """Return sets of files that import each other in a circle."""
    graph = nx.DiGraph((source, target) for source, target, _ in imports())
    return [
        " <-> ".join(sorted(circle))
        for circle in nx.strongly_connected_components(graph)
        if len(circle) > 1
    ]


def upward_imports():
    """Return imports of a layer below, by ``LAYERS``."""
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    last = len(LAYERS)
    return [
        f"{source} imports {target}"
        for source, target, _ in imports()
        if level.get(package_of(source), last) < level.get(package_of(target), last)
        and package_of(target)
        and source not in BELOW_ALL
    ]


@cache
def extension_points():
    """Return the private modules that the page on the architecture lists as open."""
    text = ARCHITECTURE.read_text()
    return frozenset(re.findall(r"``(skood\.[a-z_.]+)``", text)) & set(modules())


def private_imports():
    """Return imports of private modules or names from other sub-packages."""
    places = []
    for source, target, name in imports():
        free = package_of(target) in (package_of(source), "utils", "stats", "base", "")
        private = any(part.startswith("_") for part in target.split("."))
        private = private or (name.startswith("_") and not name.startswith("__"))
        if private and not free and target not in extension_points():
            places.append(f"{source} imports {target}.{name}")
    return places


def single_importers():
    """Return files that one other file imports, apart from ``__init__``."""
    packages = {n for n, path in modules().items() if path.name == "__init__.py"}
    importers = defaultdict(set)
    for source, target, _ in imports():
        importers[target] |= {source} - packages
    return [
        f"{name} by {min(importers[name])}"
        for name in sorted(set(modules()) - packages)
        if len(importers[name]) == 1
    ]


def private_all():
    """Return private modules with ``__all__``."""
    return [
        name
        for name, path in modules().items()
        if path.name.startswith("_")
        and path.name != "__init__.py"
        and any(
            isinstance(node, ast.Assign)
            and getattr(node.targets[0], "id", "") == "__all__"
            for node in tree(path).body
        )
    ]


# --- classes and functions ------------------------------------------------------------


@cache
def public_objects():
    """Return the public classes and functions: qualified name to object."""
    objects = {}
    for name in modules():
        if name.count(".") != 1 or name.split(".")[1].startswith("_"):
            continue
        module = import_module(name)
        for public in getattr(module, "__all__", ()):
            value = getattr(module, public)
            if inspect.isclass(value) or inspect.isfunction(value):
                objects[f"{value.__module__}.{public}"] = value
    return objects


def deep_classes():
    """Return classes with more than three of skood's classes above an estimator.

    A preset, a class such as `DSDE` with at most a constructor, may have four.
    """
    places = []
    for cls in filter(inspect.isclass, public_objects().values()):
        above = [
            base.__name__
            for base in cls.__mro__[1:]
            if base.__module__.split(".")[0] == "skood"
        ]
        methods = {name for name, v in vars(cls).items() if inspect.isfunction(v)}
        is_preset = methods <= {"__init__"}
        if len(above) > 3 + is_preset:
            places.append(f"{cls.__name__}: {', '.join(above)}")
    return places


def _parameters(function):
    """Return the number of parameters, without ``self`` and variadic keywords."""
    signature = inspect.signature(function).parameters.values()
    return sum(p.name != "self" and p.kind != p.VAR_KEYWORD for p in signature)


def wide_functions():
    """Return constructors, public functions and methods with over 12 parameters."""
    places = []
    for name, value in public_objects().items():
        callables = {name: value}
        if inspect.isclass(value):
            callables = {
                f"{name}.{attribute}": getattr(value, attribute)
                for attribute, method in vars(value).items()
                if inspect.isfunction(method) or isinstance(method, classmethod)
                if attribute == "__init__" or not attribute.startswith("_")
            }
        for place, function in callables.items():
            if _parameters(function) > 12:
                places.append(f"{place}: {_parameters(function)}")
    return places


def reaching_functions():
    """Return functions that read private attributes of an argument, or set any."""
    places = []
    for name, path in modules().items():
        for node in tree(path).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            spec = node.args
            names = {a.arg for a in spec.posonlyargs + spec.args + spec.kwonlyargs}
            for inner in ast.walk(node):
                if (
                    isinstance(inner, ast.Attribute)
                    and isinstance(inner.value, ast.Name)
                    and inner.value.id in names
                    and (
                        isinstance(inner.ctx, ast.Store | ast.Del)
                        or re.match("_(?!_)", inner.attr)
                    )
                    and inner.attr not in NAMED_TUPLE
                ):
                    places.append(f"{name}.{node.name}: {ast.unparse(inner)}")
                    break
    return places


def repeated_classes():
    """Return names of classes that two files define."""
    names = defaultdict(list)
    for name, path in modules().items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                names[node.name].append(name)
    return [f"{k}: {', '.join(v)}" for k, v in sorted(names.items()) if len(v) > 1]


def names_of_decision():
    """Return public names of ``skood.decision`` that ``skood.rejection`` lacks."""
    decision, rejection = map(import_module, ("skood.decision", "skood.rejection"))
    return sorted(set(decision.__all__) - set(rejection.__all__))


def mentions():
    """Return for each detector how many files mention it, most first."""
    from skood.utils.discovery import all_estimators

    paths = [
        path
        for folder, end in (("skood", "py"), ("doc", "rst"), ("tests", "py"))
        for path in (ROOT / folder).rglob(f"*.{end}")
        if not BUILT & set(path.parts)
    ]
    texts = [path.read_text() for path in paths]
    counts = Counter()
    for name, _ in all_estimators("detector"):
        counts[name] = sum(bool(re.search(rf"\b{name}\b", text)) for text in texts)
    return counts.most_common()


# --- calls ----------------------------------------------------------------------------


def called(function):
    """Return the tree of skood's functions that a second call runs.

    It maps (name, file) to the tree of the functions called there; calls of a function
    by one other are merged.
    """
    function()
    tree = {}
    path = [tree]
    folder = ROOT / "skood"

    def profile(frame, event, _):
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(
            f"{folder}{os.sep}"
        ):
            return
        if event == "call":
            file = Path(code.co_filename).relative_to(folder).as_posix()
            key = code.co_qualname, file, code.co_firstlineno
            path.append(path[-1].setdefault(key, {}))
        else:
            path.pop()

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return tree


def functions_of(tree):
    """Return the set of functions in a tree of calls."""
    return set(tree).union(*map(functions_of, tree.values()))


def depth_of(tree):
    """Return how deep the calls of a tree are nested."""
    return max((1 + depth_of(branch) for branch in tree.values()), default=0)


def drawn(tree, deepest, indent=0):
    """Yield the lines of a tree of calls, at most `deepest` levels of it."""
    for (name, file, _), branch in tree.items() if deepest else ():
        yield f"{'  ' * indent + name:58} {file}"
        yield from drawn(branch, deepest - 1, indent + 1)


def calls():
    """Yield (name, function to call, most functions, greatest depth)."""
    import numpy as np
    from sklearn.base import clone
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    from skood.combine import DSDE
    from skood.decision import BoundedImprovement, BoundedTPRFPR, certify, solve
    from skood.detectors import KNN, MSP, Mahalanobis, ViM
    from skood.epistemic import Laplace
    from skood.evidential import EvidentialProbe
    from skood.rejection import RejectOptionClassifier, ScoredSamples
    from skood.selection import NoveltySelector

    rng = np.random.default_rng(0)
    X, queries = rng.normal(size=(300, 8)), rng.normal(size=(50, 8))
    y = (X[:, 0] + 0.3 * rng.normal(size=300) > 0).astype(int)
    ood = np.where(np.arange(300) % 5, y, -1)
    X[ood == -1] += 4  # OOD samples
    known = ood != -1
    linear = LogisticRegression()

    knn = KNN().fit(X)
    yield "KNN.fit", lambda: KNN().fit(X), 75, 12
    yield "KNN.score_samples", lambda: knn.score_samples(queries), 40, 10
    yield "KNN.predict", lambda: knn.predict(queries), 44, 12

    rule = BoundedTPRFPR(tpr_min=0.5, fpr_max=0.8)
    both = RejectOptionClassifier(linear, ood_detector=KNN(), rule=rule, random_state=0)
    yield "RejectOptionClassifier.fit", lambda: both.fit(X, ood), 200, 16
    classifier = clone(both).fit(X, ood)
    yield "RejectOptionClassifier.predict", lambda: classifier.predict(X[:20]), 90, 15
    yield "RejectOptionClassifier.report", lambda: classifier.report(X, ood), 120, 16
    alone = RejectOptionClassifier(linear)
    yield "RejectOptionClassifier.fit, no rule", lambda: alone.fit(X, y), 60, 10

    frozen = FrozenEstimator(LogisticRegression().fit(X[known], y[known]))
    network = MLPClassifier((16,), max_iter=50, random_state=0)
    network = FrozenEstimator(network.fit(X[known], y[known]))
    mahalanobis, msp, vim = (d.fit(X, y) for d in (Mahalanobis(), MSP(frozen), ViM()))
    yield (
        "Mahalanobis.score_samples",
        lambda: mahalanobis.score_samples(queries),
        44,
        10,
    )
    yield "MSP.score_samples", lambda: msp.score_samples(queries), 50, 11
    yield "ViM.score_samples", lambda: vim.score_samples(queries), 62, 12

    risk, risk_ood = rng.random(400), rng.random(400)
    loss = (rng.random(400) < 0.3 * risk).astype(float)
    distance, distance_ood = rng.normal(size=400), rng.normal(2, 1, 400)
    one_score = ScoredSamples.from_arrays(risk, None, loss, None, None)
    both_scores = ScoredSamples.from_arrays(
        risk, distance, loss, risk_ood, distance_ood
    )
    least, easy = BoundedImprovement(0.3), BoundedTPRFPR(tpr_min=0.6, fpr_max=0.5)
    seed = {"random_state": 0}
    yield "certify, one score", lambda: certify(least, one_score, **seed), 75, 8
    yield "certify, two scores", lambda: certify(easy, both_scores, **seed), 90, 10
    yield "solve, two scores", lambda: solve(easy, both_scores), 90, 11

    members = [(cls.__name__.lower(), cls(frozen)) for cls in (KNN, Mahalanobis, MSP)]
    dsde = DSDE([*members, ("vim", ViM(frozen))], random_state=0)
    yield "DSDE.fit", lambda: dsde.fit(X[known], y[known]), 230, 17
    ensemble = clone(dsde).fit(X[known], y[known])
    yield "DSDE.predict", lambda: ensemble.predict(queries), 110, 16
    members = [("knn", KNN()), ("mahalanobis", Mahalanobis())]
    selector = NoveltySelector(members, random_state=0)
    yield "NoveltySelector.fit", lambda: selector.fit(X[known], y[known]), 150, 16
    fitted = clone(selector).fit(X[known], y[known])
    yield "NoveltySelector.select", lambda: fitted.select(queries), 90, 15

    for estimator, most, deepest in (
        (Laplace(network), 80, 12),
        (EvidentialProbe(network, max_epochs=3), 45, 11),
    ):
        function = estimator.fit(X[known], y[known]).predict_uncertainty
        name = f"{type(estimator).__name__}.predict_uncertainty"
        yield name, partial(function, queries), most, deepest


# --- language -------------------------------------------------------------------------


def _is_message(node):
    """Return whether a node raises an error or warns."""
    if isinstance(node, ast.Raise):
        return isinstance(node.exc, ast.Call)
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("warn")


def _strings(root):
    """Yield line and text of public docstrings, errors and warnings."""
    for node in ast.walk(root):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, kinds):
            public = not getattr(node, "name", "").startswith("_")
            text = ast.get_docstring(node) if public else None
            if text:
                yield getattr(node, "lineno", 1), text
        elif _is_message(node):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.lineno, inner.value


def prose():
    """Yield (place, text) of all that users read."""
    for path in modules().values():
        for line, text in _strings(tree(path)):
            yield f"{path.relative_to(ROOT)}:{line}", text
    for path in [ROOT / "README.md", *sorted((ROOT / "doc").rglob("*.rst"))]:
        if not BUILT & set(path.parts):
            yield str(path.relative_to(ROOT)), path.read_text()


def listed_words():
    """Return uses of phrases that scikit-learn's pages would not have."""
    places = []
    for place, text in prose():
        if ".py:" in place:
            first = text.lstrip().split("\n", 1)[0]
            places += [f"{place}: {first}"] if first.startswith("What ") else []
        for word in WORDS:
            for match in re.finditer(word, text, re.IGNORECASE):
                context = text[max(match.start() - 30, 0) : match.end() + 30]
                places.append(f"{place}: {' '.join(context.split())}")
    return places


def british():
    """Return British spellings, in code as in prose."""
    places = []
    for folder in ("skood", "doc", "examples", "tests", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if (
                path.suffix in (".py", ".rst", ".md")
                and not BUILT & set(path.parts)
                and path.name != Path(__file__).name
            ):
                matches = BRITISH.finditer(path.read_text())
                places += [f"{path.relative_to(ROOT)}: {m.group()}" for m in matches]
    return places


def identifiers(paths):
    """Return the number of identifiers, and how often each listed word is in one."""
    total, counts = 0, Counter()
    for path in paths:
        for node in ast.walk(tree(path)):
            names = [
                getattr(node, field, None)
                for field in ("id", "arg", "attr", "name")
                if not isinstance(node, ast.alias | ast.ExceptHandler)
            ]
            for name in filter(None, names):
                total += 1
                words = set(name.lower().split("_")) - {"one"}
                words |= {"one"} & {name}
                counts.update(words & set(IDENTIFIER_WORDS))
    return total, counts


def test_names():
    """Return names of tests with listed words."""
    return [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in test_files()
        for node in functions(tree(path))
        if node.name.startswith("test_")
        and set(node.name.split("_")) & set(IDENTIFIER_WORDS)
    ]


# --- all of it ------------------------------------------------------------------------


def lines_of(paths):
    """Return the number of lines of each file."""
    return {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in paths}


def measures():
    """Yield the measures."""

    def count(name, places, limit=0):
        return Measure(name, len(places), limit, places)

    yield count("circles of imports", circles())
    yield count("imports of a layer below", upward_imports())
    yield count("private imports from other sub-packages", private_imports())
    yield count("extension points", sorted(extension_points()), 26)
    yield count("classes with more than 3 of ours above", deep_classes())
    yield count("callables with more than 12 parameters", wide_functions())
    sizes = lines_of(p for n, p in modules().items() if package_of(n) not in LATER)
    long = [f"{name}: {n}" for name, n in sizes.items() if n > 800]
    yield count("files with more than 800 lines", long)
    yield count("functions that reach into an argument", reaching_functions(), 30)
    yield count("files imported by one other", single_importers(), 50)
    total = sum(len(functions(tree(path))) for path in modules().values())
    yield Measure("functions and methods", total, 3_900, [])
    yield count("names of classes defined twice", repeated_classes())
    yield count("names that decision alone exports", names_of_decision())
    yield count("private modules with __all__", private_all())
    public = import_module("skood.metrics").__all__
    yield count("public names of metrics", sorted(public), 42)
    files = mentions()
    median = statistics.median(n for _, n in files)
    places = [f"{name}: {n}" for name, n in files]
    yield Measure("files that name the median detector", median, 12, places)
    yield count("listed words in prose", listed_words(), 10)
    yield count("British spellings", british())
    for folder, paths, factor in (
        ("skood", modules().values(), 1),
        ("tests", test_files(), 2),
    ):
        total, counts = identifiers(paths)
        for word, limit in IDENTIFIER_WORDS.items():
            rate = round(1e4 * counts[word] / total, 1)
            yield Measure(
                f"{word!r} in identifiers of {folder}", rate, factor * limit, []
            )
    yield count("names of tests with listed words", test_names(), 40)
    yield Measure("lines of skood", sum(sizes.values()), 84_000, [])
    tests = lines_of(test_files())
    yield Measure("lines of tests", sum(tests.values()), 92_000, [])


def call_measures():
    """Yield the measures of calls: the number of functions, and their depth."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function, most, deepest in calls():
            tree = called(function)
            number = len(functions_of(tree))
            yield Measure(f"functions of {name}", number, most, [])
            yield Measure(f"depth of {name}", depth_of(tree), deepest, drawn(tree, 99))


def write_trees(folder):
    """Write the trees of the calls in `SHOWN` as files to include in a page."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functions = ((name, f) for name, f, *_ in calls() if name in SHOWN)
        for name, function in islice(functions, len(SHOWN)):
            lines = drawn(called(function), SHOWN[name])
            text = "".join(f"    {line}\n" for line in lines)
            Path(folder, f"{name}.inc").write_text(f"::\n\n{text}")


def main(argv=None):
    """Print the measures; return 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="print the places")
    parser.add_argument("--trees", metavar="FOLDER", help="write two trees of calls")
    arguments = parser.parse_args(argv)
    if arguments.trees:
        write_trees(arguments.trees)
        return 0
    missed = False
    for measure in chain(measures(), call_measures()):
        missed |= measure.value > measure.limit
        mark = "" if measure.value <= measure.limit else "  MISSED"
        print(
            f"{measure.name:52}{measure.value:>9g}  (at most {measure.limit:,}){mark}"
        )
        if arguments.long:
            print("".join(f"    {place}\n" for place in measure.places), end="")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

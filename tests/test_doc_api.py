"""The API page lists exactly the public names."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ast
import csv
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOC = Path(__file__).parents[1] / "doc"
MODULES = (
    "base",
    "benchmark",
    "combine",
    "datasets",
    "detectors",
    "epistemic",
    "evidential",
    "exceptions",
    "graph",
    "logic",
    "metrics",
    "model_selection",
    "monitor",
    "nn",
    "onnx",
    "persistence",
    "rectifiers",
    "rejection",
    "selection",
    "utils",
    "utils.dask",
    "utils.discovery",
    "utils.estimator_checks",
)


def _listed():
    """Names of each module, and those below "Start here", as the pages list them."""
    names, first = {}, []
    for page in sorted((DOC / "api").glob("*.rst")):
        module = heading = None
        lines = page.read_text().splitlines()
        for line, under in zip(lines, [*lines[1:], ""], strict=True):
            if match := re.match(r"\.\. module:: skood\.?(\S*)", line):
                module = match[1]
                names.setdefault(module, [])
            elif under and not under.strip("-"):
                heading = line
            elif match := re.match(r"   (\w+)$", line):
                names[module].append(match[1])
                first += [match[1]] if heading == "Start here" else []
    return names, first


def test_public_names_are_of_a_single_module():
    """Names that `skood.decision` exports as well are the same objects."""
    modules = {}
    for module in MODULES:
        for name in importlib.import_module(f"skood.{module}").__all__:
            modules.setdefault(name, []).append(module)
    assert not {name: used for name, used in modules.items() if len(used) > 1}
    decision = importlib.import_module("skood.decision")
    for name in set(decision.__all__) & set(modules):
        exported = importlib.import_module(f"skood.{modules[name][0]}")
        assert getattr(exported, name) is getattr(decision, name), name


def test_pages_list_every_public_name_once():
    names, first = _listed()
    public = {m: sorted(importlib.import_module(f"skood.{m}").__all__) for m in MODULES}
    public[""] = ["show_progress", "show_versions"]
    assert {module: sorted(listed) for module, listed in names.items()} == public
    assert 28 <= len(first) <= 32
    start = re.findall(r"`~skood\.\w+\.(\w+)`", (DOC / "api.rst").read_text())
    assert sorted(start) == sorted(first)


def test_changelog_names_every_estimator():
    from skood.utils.discovery import all_estimators

    pages = (DOC / "whats_new").glob("*.rst")
    text = "".join(page.read_text() for page in pages)
    missing = [name for name, _ in all_estimators() if f"``{name}``" not in text]
    assert missing == []


def rows_of_table(page, header):
    """Rows of a csv-table of the guide, whose cells may have several lines."""
    text = (DOC / "user_guide" / f"{page}.rst").read_text().split(header)[1]
    lines = text.split("\n\n")[1].splitlines()
    cells = csv.reader((f"{x.strip()}\n" for x in lines), skipinitialspace=True)
    return list(cells)


def test_guarantees_name_existing_tests():
    """Each promise has at least one attacking test, in the row of the same number."""
    promises = rows_of_table("guarantees", '"What voids it"')
    rows = rows_of_table("guarantees_details", '"Tests, in ``tests/``"')
    assert len(rows) > 30 and {len(row) for row in promises} == {3}
    found = [re.findall(r"``([\w/]+\.py)::(\w+)``", tests) for _, tests in rows]
    assert all(found)
    for (promise, *_), (name, _) in zip(promises, rows, strict=True):
        assert name.strip("`") in " ".join(promise.split())
    missing = []
    for file, test in {name for names in found for name in names}:
        tree = ast.parse((Path(__file__).parent / file).read_text())
        tests = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        missing += [] if test in tests else [f"{file}::{test}"]
    assert missing == []


def test_unknown_name_of_the_package():
    import skood

    with pytest.raises(AttributeError, match="module 'skood' has no attribute 'nope'"):
        skood.nope  # noqa: B018
    assert set(skood.__all__) <= set(dir(skood))
    assert skood.__getattr__("metrics") is skood.metrics  # on the first use of it
    public = {name for name in dir(skood) if not name.startswith("_")}
    assert public == set(skood.__all__) - {"__version__"}


@pytest.mark.parametrize(
    "room",
    [
        "benchmark",
        "detectors",
        "epistemic",
        "evidential",
        "graph",
        "metrics",
        "nn",
        "utils",
    ],
)
def test_names_imported_on_first_use(room):
    module = importlib.import_module(f"skood.{room}")
    tree = ast.parse(Path(module.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    for_tools = {
        alias.name: getattr(importlib.import_module(line.module), alias.name)
        for line in block.body
        for alias in line.names
    }
    assert set(for_tools) == set(module._LAZY)
    for name, value in for_tools.items():
        assert module.__getattr__(name) is value
    assert dir(module) == sorted(module.__all__)
    everything = {}
    exec(f"from skood.{room} import *", everything)
    assert set(everything) - {"__builtins__"} == set(module.__all__)
    with pytest.raises(AttributeError, match=f"'skood.{room}' has no attribute 'no'"):
        module.no  # noqa: B018


def test_a_detector_imports_no_other():
    code = (
        "import sys; from skood.detectors import KNN; "
        "files = {name for name in sys.modules if name.startswith('skood.detectors._')}"
        "; assert not {'sklearn.ensemble', 'torch'} & set(sys.modules)"
        "; assert {f for f in files if '_common' not in f} == {'skood.detectors._knn'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import skood.metrics", "skood.decision"),
        ("from skood.rejection import RejectOptionClassifier", "sklearn.ensemble"),
        ("from skood.rejection import RejectOptionClassifier", "skood.metrics"),
    ],
)
def test_modules_that_an_import_does_not_need(statement, unwanted):
    code = f"import sys; {statement}; assert {unwanted!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_show_versions(capsys):
    import numpy
    import sklearn

    import skood

    skood.show_versions()
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["skood"] == skood.__version__
    assert rows["numpy"] == numpy.__version__
    assert rows["scikit-learn"] == sklearn.__version__
    assert {"python", "torch", "machine", "networkx", "pyod"} <= set(rows)
    assert int(rows["cpus"]) >= 1
    assert rows["threads"].endswith(")")  # a library and its number of threads


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_code_is_copied_without_prompts_and_output():
    text = "\n".join(
        [
            ">>> for k in range(2):",
            "...     print(k)",
            "...",
            "0",
            "1",
            ">>> raise ValueError",
            "Traceback (most recent call last):",
            "...",
            "ValueError",
        ]
    )
    expected = "for k in range(2):\n    print(k)\n\nraise ValueError"
    file = DOC / "_static" / "copy.js"
    script = (
        f"const {{ withoutPrompts: f }} = require({str(file)!r});"
        "process.stdout.write(JSON.stringify(process.argv.slice(1).map(f)))"
    )
    plain = "pip install skood\n... and more"
    done = subprocess.run(
        ["node", "-e", script, text, plain], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [expected, plain]

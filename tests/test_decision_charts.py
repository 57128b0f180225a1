"""The decision charts place every estimator, rule and combiner, and link to pages."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import importlib
import inspect
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from xml.etree import ElementTree

import pytest

import skood.combine
import skood.rejection
from skood.utils.discovery import all_estimators

DOC = Path(__file__).parents[1] / "doc"
_SPEC = spec_from_file_location("decision_charts", DOC / "decision_charts.py")
charts = module_from_spec(_SPEC)
_SPEC.loader.exec_module(charts)
LABELS = sorted(charts.CHARTS.keys() - {"parts"})
LEAVES = [leaf for label in LABELS for leaf in charts.leaves(charts.CHARTS[label])]


def _to_place():
    """Return the names of all estimators, rules and combiners."""
    names = {name for name, _ in all_estimators()}
    for module, base in [
        (skood.combine, "BaseCombiner"),
        (skood.rejection, "BaseRule"),
    ]:
        classes = [getattr(module, name) for name in module.__all__]
        classes = [cls for cls in classes if inspect.isclass(cls)]
        subclasses = [cls for cls in classes if issubclass(cls, getattr(module, base))]
        names |= {cls.__name__ for cls in subclasses} - {base}
    return names


def test_everything_is_placed():
    assert _to_place() - charts.placed() == set()


def test_a_new_estimator_is_not_placed():
    without = {**charts.CHARTS, "parts": {}}
    missing = _to_place() - charts.placed(without)
    assert missing == set(charts.CHARTS["parts"])
    assert len(LEAVES) >= 42


def test_names_are_importable():
    names = {use for leaf in LEAVES for use in leaf["use"]}
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert attribute in importlib.import_module(module).__all__, name


def test_pages_exist():
    for leaf in LEAVES:
        assert (DOC / f"{charts.page_of(leaf)}.rst").is_file(), leaf["page"]


@pytest.mark.parametrize("label", LABELS)
def test_drawing(label):
    text = charts.svg(label)
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    height = int(root.get("height"))
    boxes = root.findall(f"{space}rect")
    assert max(float(b.get("y")) + float(b.get("height")) for b in boxes) <= height
    assert min(map(int, re.findall(r"(\d+)px", text))) >= 12
    assert 'data-theme="dark"' in text and "prefers-color-scheme: dark" in text
    links = [link.get("href") for link in root.iter(f"{space}a")]
    leaves = list(charts.leaves(charts.CHARTS[label]))
    expected = [f"generated/{use}.html" for leaf in leaves for use in leaf["use"]]
    expected += [f"{charts.page_of(leaf)}.html" for leaf in leaves]
    assert sorted(links) == sorted(expected)


def test_files(tmp_path):
    charts.write(tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    expected = {f"{label}.{kind}" for label in LABELS for kind in ("svg", "inc")}
    assert files == expected | {"parts.inc"}
    page = (DOC / "choosing.rst").read_text()
    included = re.findall(r"generated/charts/(\S+)", page)
    assert sorted(included) == sorted(files)
    for label in LABELS:
        text = (tmp_path / f"{label}.inc").read_text()
        for leaf in charts.leaves(charts.CHARTS[label]):
            names = ", ".join(f":obj:`~{use}`" for use in leaf["use"])
            assert f"{names}; {leaf['why']}" in text

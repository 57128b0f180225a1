"""Configuration of the documentation."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import ast
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import matplotlib
from cycler import cycler
from docutils import nodes
from sphinx import addnodes
from sphinx.ext.autosummary import autosummary_table

import skood
from skood.utils._plotting import COLORS

project = "skood"
author = copyright = "The skood developers"
version = release = skood.__version__
extensions = [
    "matplotlib.sphinxext.plot_directive",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
nitpicky = True
# Names of other packages are not looked up: the pages are built without a network.
# Nor are private modules, which annotations of fields name.
nitpick_ignore_regex = [("py:.*", r"(?!skood)\w+\..*|skood\..*\._.*")]
autosummary_generate = True
numpydoc_show_class_members = False
# The pictures of the guide, drawn from the code above them.
plot_include_source = True
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 150)]
plot_rcparams = {"figure.figsize": (5.6, 3.6), "savefig.bbox": "tight"}
plot_rcparams["axes.prop_cycle"] = cycler(color=COLORS)
# The gallery resets to the defaults before each example.
matplotlib.rcParamsDefault["axes.prop_cycle"] = cycler(color=COLORS)
plot_apply_rcparams = True
GALLERY = ("start", "rejection", "detectors", "rectifiers", "monitor", "selection")
GALLERY += ("combine", "epistemic", "graph", "logic")
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "subsection_order": [f"../examples/{folder}" for folder in GALLERY],
    "doc_module": "skood",
    "backreferences_dir": "generated/backreferences",
    "default_thumb_file": str(Path(__file__).parent / "_static" / "thumb.png"),
    "write_computation_times": False,  # their page fetches scripts from the network
}

html_theme = "pydata_sphinx_theme"
html_title = "skood"
html_favicon = "_static/favicon.svg"
toc_object_entries_show_parents = "hide"
html_static_path = ["_static"]
html_css_files = ["skood.css"]
html_js_files = ["copy.js"]
html_show_sourcelink = False
html_sidebars = {"choosing": []}  # its charts are wide
html_theme_options = {
    "logo": {"image_light": "_static/logo.svg", "image_dark": "_static/logo-dark.svg"},
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}

# Addresses of the project; pages with the tag name them as |Source| and so on.
_pyproject = Path(__file__).parents[1] / "pyproject.toml"
_urls = tomllib.loads(_pyproject.read_text(encoding="utf-8"))["project"].get("urls", {})
if _urls:
    tags.add("published")  # noqa: F821
html_baseurl = _urls.get("Documentation", "")
_icons = {"Source": "code", "Issues": "bug", "Changelog": "clock-rotate-left"}
html_theme_options["icon_links"] = [
    {"name": name, "url": _urls[name], "icon": f"fa-solid fa-{icon}"}
    for name, icon in _icons.items()
    if name in _urls
]
rst_epilog = "\n".join(f".. |{name}| replace:: {_urls.get(name)}" for name in _icons)

# Formulas are drawn without a network, by the one file of MathJax that has its letters
# in it; without the package that brings it, pages fetch MathJax from where Sphinx says.
_mathjax = importlib.util.find_spec("sphinx-mathjax-offline")
if _mathjax is not None:
    _script = Path(_mathjax.origin).parent / "static" / "mathjax" / "tex-svg.js"
    html_static_path.append(str(_script))
    mathjax_path = _script.name
    mathjax3_config = {"options": {"enableMenu": False}}  # it would fetch more


def _skip_what_others_wrote(app, what, name, obj, skip, options):
    """Leave out methods that skood's classes inherit from other packages."""
    function = obj.fget if isinstance(obj, property) else obj
    module = getattr(function, "__module__", None) or ""
    return True if callable(function) and not module.startswith("skood") else None


def _summaries_without_references(app, doctree):
    """Leave references to papers, such as [R2b63-1], out of tables of summaries."""
    for table in doctree.findall(autosummary_table):
        for reference in list(table.findall(addnodes.pending_xref)):
            if reference["refdomain"] == "citation":
                summary = reference.parent
                place = summary.index(reference)
                summary[place - 1] = nodes.Text(summary[place - 1].rstrip())
                summary.remove(reference)


def _write_layout(app):
    """Write a table of all files with the first lines of their docstrings."""
    root = Path(skood.__file__).parent
    lines = []
    for module in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
        files = sorted(module.glob("*.py") if module == root else module.rglob("*.py"))
        if not files:
            continue
        name = "skood" if module == root else f"skood/{module.name}"
        lines += ["", name, "~" * len(name), "", ".. list-table::"]
        lines += ["   :widths: 34 66", ""]
        for path in files:
            purpose = ast.get_docstring(ast.parse(path.read_text())).split("\n")[0]
            lines.append(f"   * - ``{path.relative_to(module)}``")
            lines.append(f"     - {purpose}")
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "layout.inc").write_text("\n".join(lines) + "\n")


def _write_calls_and_results(app):
    """Write calls of functions, as a run shows them, results, and decision charts.

    In other processes: workers of Sphinx that are forked after threads of OpenMP have
    been started wait for these threads for ever.
    """
    clone, folder = Path(app.srcdir).parent, Path(app.srcdir) / "generated"
    script = "benchmarks/house.py", "--trees", folder
    pages = "-m", "benchmarks.reproduce.record", "--pages", folder / "results"
    charts = "doc/decision_charts.py", folder / "charts"
    for command in (script, pages, charts):
        subprocess.run([sys.executable, *command], cwd=clone, check=True)
    options = [sys.executable, "-m", "skood", "--help"]  # for the page command_line
    with open(folder / "help.txt", "w") as file:
        subprocess.run(options, cwd=clone, check=True, stdout=file)


def setup(app):
    """Connect the functions of this file to events of Sphinx."""
    app.connect("builder-inited", _write_layout)
    app.connect("builder-inited", _write_calls_and_results)
    app.connect("autodoc-skip-member", _skip_what_others_wrote)
    app.connect("doctree-read", _summaries_without_references)

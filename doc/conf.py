"""Configuration of the documentation."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

import skood

project = "skood"
author = "The skood developers"
version = release = skood.__version__
extensions = [
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
# Names of other packages are not looked up: the pages are built without a network.
nitpicky = False
autosummary_generate = True
numpydoc_show_class_members = False
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "doc_module": "skood",
    "backreferences_dir": "generated/backreferences",
    "reference_url": {"skood": None},
}

html_theme = "pydata_sphinx_theme"
html_title = "skood"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}


def _skip_what_others_wrote(app, what, name, obj, skip, options):
    """Leave out methods that skood's classes inherit from other packages."""
    function = obj.fget if isinstance(obj, property) else obj
    module = getattr(function, "__module__", None) or ""
    return True if callable(function) and not module.startswith("skood") else None


def setup(app):
    """Tell Sphinx about it."""
    app.connect("autodoc-skip-member", _skip_what_others_wrote)

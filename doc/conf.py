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
autosummary_generate = True
numpydoc_show_class_members = False
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "doc_module": "skood",
    "reference_url": {"skood": None},
}

"""The demo, comparisons of detectors on custom data, and parts of other runs."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.benchmark._demo import run_demo
from skood.utils._optional import lazy_names

if TYPE_CHECKING:
    from skood.benchmark._average_ranks import average_ranks
    from skood.benchmark._cells import Journal
    from skood.benchmark._cli import main as main
    from skood.benchmark._compare import Output, compare
    from skood.benchmark._hashing import code_version, content_hash
    from skood.benchmark._report import html_page, html_table

__all__ = [
    "Journal",
    "Output",
    "average_ranks",
    "code_version",
    "compare",
    "content_hash",
    "html_page",
    "html_table",
    "run_demo",
]

# Imported on first use: ``skood --help`` does not need scikit-learn.
_LAZY = {
    "Journal": "._cells",
    "Output": "._compare",
    "average_ranks": "._average_ranks",
    "code_version": "._hashing",
    "compare": "._compare",
    "content_hash": "._hashing",
    "html_page": "._report",
    "html_table": "._report",
    "main": "._cli",
}

__getattr__, __dir__ = lazy_names(__name__, __all__, _LAZY)

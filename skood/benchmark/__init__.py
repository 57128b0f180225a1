"""The main job, and comparisons of detectors on custom data."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.benchmark._main_job import run_main_job
from skood.utils._optional import lazy_names

if TYPE_CHECKING:
    from skood.benchmark._average_ranks import average_ranks
    from skood.benchmark._cli import main as main
    from skood.benchmark._compare import compare

__all__ = ["average_ranks", "compare", "run_main_job"]

# Imported on first use: ``skood --help`` does not need scikit-learn.
_LAZY = {
    "average_ranks": "._average_ranks",
    "compare": "._compare",
    "main": "._cli",
}

__getattr__, __dir__ = lazy_names(__name__, __all__, _LAZY)

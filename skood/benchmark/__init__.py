"""The main job, and comparisons of detectors on custom data."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.benchmark._main_job import run_main_job

if TYPE_CHECKING:
    from skood.benchmark._cli import main as main
    from skood.benchmark._compare import compare

__all__ = ["compare", "run_main_job"]


def __getattr__(name):
    """Import submodules on first use: ``skood --help`` does not need scikit-learn."""
    if name == "compare":
        from skood.benchmark._compare import compare

        return compare
    if name == "main":  # the command line
        from skood.benchmark._cli import main

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

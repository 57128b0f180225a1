"""The main job, and comparisons of detectors on one's own data."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from typing import TYPE_CHECKING

from skood.benchmark._main_job import run_main_job

if TYPE_CHECKING:
    from skood.benchmark._compare import compare

__all__ = ["compare", "run_main_job"]


def __getattr__(name):
    """Import what needs scikit-learn when it is used: ``skood --help`` does not."""
    if name == "compare":
        from skood.benchmark._compare import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

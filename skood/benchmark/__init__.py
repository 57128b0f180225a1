"""The main job: a network, its detectors and its reject options on one data set."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.benchmark._main_job import run_main_job

__all__ = ["run_main_job"]

"""Reject options: rules, their solver, and selective classifiers."""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause

from skood.rejection._classifier import RejectOptionClassifier
from skood.rejection._operating_point import OperatingPoint, accept
from skood.rejection._report import Estimate, RejectionReport
from skood.rejection._rules import BaseRule, BoundedAbstention, BoundedTPRFPR
from skood.rejection._solver import solve

__all__ = [
    "BaseRule",
    "BoundedAbstention",
    "BoundedTPRFPR",
    "Estimate",
    "OperatingPoint",
    "RejectOptionClassifier",
    "RejectionReport",
    "accept",
    "solve",
]
